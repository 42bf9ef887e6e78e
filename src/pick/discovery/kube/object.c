/* An object of the API, reduced to what is needed of it: managed fields and annotations are often
 * the largest part of one. */
#include <stdlib.h>

#include "pick/discovery/kube/store_state.h"

/* ---- reading --------------------------------------------------------------------------------- */

static void copy_member(yyjson_mut_doc *into, yyjson_mut_val *object, yyjson_val *from,
                        const char *key) {
    yyjson_val *value = yyjson_obj_get(from, key);
    if (value) {
        yyjson_mut_obj_add_val(into, object, key, yyjson_val_mut_copy(into, value));
    }
}

/* Returns: NULL when out of memory. */
static yyjson_doc *copy_reduced(yyjson_val *object) {
    static const char *const metadata_members[] = {"name",
                                                   "namespace",
                                                   "uid",
                                                   "resourceVersion",
                                                   "generation",
                                                   "creationTimestamp",
                                                   "deletionTimestamp"};
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc), *metadata = yyjson_mut_obj(doc);
    yyjson_doc *tree = NULL;
    if (doc && root && metadata) {
        yyjson_mut_doc_set_root(doc, root);
        yyjson_mut_obj_add_val(doc, root, "metadata", metadata);
        for (size_t i = 0; i < sizeof metadata_members / sizeof *metadata_members; i++) {
            copy_member(doc, metadata, yyjson_obj_get(object, "metadata"), metadata_members[i]);
        }
        copy_member(doc, root, object, "spec");
        copy_member(doc, root, object, "status");
        tree = yyjson_mut_doc_imut_copy(doc, NULL);
    }
    yyjson_mut_doc_free(doc);
    return tree;
}

/* As a person would name it. */
static void print_title(enum kube_kind kind, const char *name, char *out, size_t n_bytes) {
    snprintf(out, n_bytes, "%s %s", KUBE_KINDS[kind].kind, name);
}

static enum status take_doc(enum kube_kind kind, yyjson_val *object, struct kube_object *out,
                            struct error *err) {
    char name[POOL_CONFIG_NAME_BYTES + 64];
    yyjson_doc *tree = copy_reduced(object);
    if (!tree) {
        return error_set(err, ST_NO_MEMORY, "no memory for an object");
    }
    print_title(kind, out->name, name, sizeof(name));
    return doc_from_tree(name, tree, &out->doc, err);
}

/* Would it do for a pool? */
static enum status check_object(enum kube_kind kind, const struct kube_object *object,
                                struct error *err) {
    struct pool_config_reader reader = {.file = object->name};
    struct doc_node root = doc_root(object->doc);
    enum status st = pool_spec_new(&reader.spec, err);
    if (st == ST_OK) {
        reader.arena = reader.spec->arena;
        st = pool_config_read_kube_object_of_kind(&reader, KUBE_KINDS[kind].kind, &root, err);
        pool_spec_free(reader.spec);
    }
    return st;
}

enum status kube_object_read(enum kube_kind kind, const struct doc_node *object,
                             struct kube_object *out, struct error *err) {
    yyjson_val *name = yyjson_ptr_get(object->val, "/metadata/name");
    if (!yyjson_is_str(name) || yyjson_get_len(name) == 0 ||
        yyjson_get_len(name) > POOL_CONFIG_NAME_BYTES) {
        return error_set(err, ST_BAD_CONFIG, "metadata.name: expected a name of 1 to %d bytes",
                         POOL_CONFIG_NAME_BYTES);
    }
    out->name = str_dup(str_make(yyjson_get_str(name), yyjson_get_len(name)));
    if (!out->name) {
        return error_set(err, ST_NO_MEMORY, "no memory for an object");
    }
    if (kind == KUBE_POD) {
        return kube_pod_read(object->val, &out->pod, err);
    }
    enum status st = take_doc(kind, object->val, out, err);
    return st == ST_OK ? check_object(kind, out, err) : st;
}

void kube_object_fini(struct kube_object *object) {
    free(object->name);
    free(object->pod);
    free(object->why);
    doc_free(object->doc);
    *object = (struct kube_object){.name = NULL};
}

/* ---- looking --------------------------------------------------------------------------------- */

static yyjson_val *get_member(const struct kube_object *object, const char *pointer) {
    struct doc_node root = doc_root(object->doc);
    return yyjson_ptr_get(root.val, pointer);
}

bool kube_object_is_deleting(const struct kube_object *object) {
    return object->doc && get_member(object, "/metadata/deletionTimestamp");
}

struct str kube_object_created(const struct kube_object *object) {
    yyjson_val *created = get_member(object, "/metadata/creationTimestamp");
    return yyjson_is_str(created) ? str_make(yyjson_get_str(created), yyjson_get_len(created))
                                  : STR("");
}

bool kube_object_equal(const struct kube_object *a, const struct kube_object *b) {
    if (a->pod && b->pod) {
        return kube_pod_equal(a->pod, b->pod);
    }
    if (!a->doc || !b->doc) {
        return !a->doc && !b->doc && !a->pod && !b->pod;
    }
    return (a->why != NULL) == (b->why != NULL) &&
           kube_object_is_deleting(a) == kube_object_is_deleting(b) &&
           str_eq(kube_object_created(a), kube_object_created(b)) &&
           yyjson_equals(get_member(a, "/spec"), get_member(b, "/spec"));
}

static bool is_text_or_none(yyjson_val *value, const char *text) {
    return !value || yyjson_is_null(value) || yyjson_get_len(value) == 0 ||
           yyjson_equals_str(value, text);
}

bool kube_object_refers(const struct kube_object *object, const char *pool, const char *group) {
    return yyjson_equals_str(get_member(object, "/spec/poolRef/name"), pool) &&
           is_text_or_none(get_member(object, "/spec/poolRef/kind"), "InferencePool") &&
           (!group || is_text_or_none(get_member(object, "/spec/poolRef/group"), group));
}

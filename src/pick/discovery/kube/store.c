/* Sorted lists of objects, kept up to date by events. */
#include <stdlib.h>

#include "core/base/log.h"
#include "pick/discovery/kube/store_state.h"

/* ---- finding --------------------------------------------------------------------------------- */

/* Returns: where it is, or would be. */
static size_t find_object(const struct kube_objects *objects, const char *name, bool *found) {
    size_t low = 0, high = objects->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(objects->items[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *found = low < objects->n && strcmp(objects->items[low].name, name) == 0;
    return low;
}

static bool make_room(struct kube_objects *objects) {
    if (objects->n < objects->cap) {
        return true;
    }
    size_t cap = 2 * objects->cap + 16;
    struct kube_object *items = reallocarray(objects->items, cap, sizeof(*items));
    if (items) {
        objects->items = items;
        objects->cap = cap;
    }
    return items != NULL;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* Reads the InferencePool of a kind, if there is one that can be used. */
static bool use_pool(struct kube_store *store, enum kube_kind kind) {
    struct pool_config_reader reader = {.file = KUBE_KINDS[kind].kind};
    const char *group = store->options.group;
    struct error err;
    bool found;
    size_t i = find_object(&store->kinds[kind], store->options.pool, &found);
    const struct kube_object *object = found ? &store->kinds[kind].items[i] : NULL;
    if (!object || object->why || kube_object_is_deleting(object) ||
        (group && strcmp(group, KUBE_KINDS[kind].group) != 0)) {
        return false;
    }
    struct doc_node root = doc_root(object->doc);
    enum status st = pool_spec_new(&reader.spec, &err);
    if (st == ST_OK) {
        reader.arena = reader.spec->arena;
        st = pool_config_read_kube_object_of_kind(&reader, KUBE_KINDS[kind].kind, &root, &err);
    }
    if (st != ST_OK) {
        log_event(LOG_ERROR, "an InferencePool can't be read", LOG_CSTR("reason", err.text));
        pool_spec_free(reader.spec);
        return false;
    }
    store->pool = reader.spec;
    store->pool_kind = kind;
    store->ports = reader.ports;
    return true;
}

static void look_at_pool(struct kube_store *store) {
    pool_spec_free(store->pool);
    store->pool = NULL;
    if (!use_pool(store, KUBE_POOL)) {
        (void)use_pool(store, KUBE_POOL_ALPHA);
    }
}

/* Somebody's object is another, or another's is. */
static void count_change(struct kube_store *store, enum kube_kind kind, bool matters) {
    if (kube_kind_is_pool(kind)) {
        look_at_pool(store);
    }
    store->version += matters;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void remember_why(enum kube_kind kind, const struct kube_object *before,
                         struct kube_object *object, const struct error *err) {
    bool said = before && before->why && strcmp(before->why, err->text) == 0;
    object->why = strdup(err->text);
    if (!said) {
        log_event(LOG_WARNING, "an object of the cluster makes no sense and is left out",
                  LOG_CSTR("kind", KUBE_KINDS[kind].kind),
                  LOG_CSTR("name", object->name ? object->name : ""),
                  LOG_CSTR("reason", err->text));
    }
}

static bool matters(const struct kube_store *store, enum kube_kind kind,
                    const struct kube_object *object) {
    return object && kube_store_owns(store, kind, object) && !object->why &&
           (kind != KUBE_POD || object->pod->ready);
}

/* Is somebody to be told when it comes, goes or changes? Of what makes no sense its author is, by
 * its status. */
static bool is_news(const struct kube_store *store, enum kube_kind kind,
                    const struct kube_object *object) {
    bool waits = object && object->why && kind != KUBE_POD && !kube_kind_is_pool(kind) &&
                 kube_store_owns(store, kind, object);
    return waits || matters(store, kind, object);
}

/* Puts it in, in the place of one of its name. Owns: takes the object. */
static void put_object(struct kube_store *store, enum kube_kind kind, struct kube_object *object) {
    struct kube_objects *objects = &store->kinds[kind];
    bool found;
    size_t at = find_object(objects, object->name, &found);
    struct kube_object *place = found ? &objects->items[at] : NULL;
    bool changed = !place || !kube_object_equal(place, object);
    changed = changed && (is_news(store, kind, place) || is_news(store, kind, object));
    object->round = objects->round;
    if (place) {
        kube_object_fini(place);
    } else if (make_room(objects)) {
        place = &objects->items[at];
        memmove(place + 1, place, (objects->n - at) * sizeof(*place));
        objects->n++;
    } else {
        log_message(LOG_ERROR, "no memory for an object of the cluster: it is left out");
        kube_object_fini(object);
        return;
    }
    *place = *object;
    count_change(store, kind, changed);
}

/* Objects of other namespaces are nobody's; a watch of one has none. */
static bool is_here(const struct kube_store *store, const struct doc_node *object) {
    yyjson_val *name_space = yyjson_ptr_get(object->val, "/metadata/namespace");
    return !name_space || yyjson_equals_str(name_space, store->options.name_space);
}

void kube_store_put(struct kube_store *store, enum kube_kind kind, const struct doc_node *object) {
    struct kube_object read = {.name = NULL};
    struct error err;
    bool found = false;
    if (!is_here(store, object)) {
        return;
    }
    enum status st = kube_object_read(kind, object, &read, &err);
    size_t at = read.name ? find_object(&store->kinds[kind], read.name, &found) : 0;
    if (st != ST_OK) {
        remember_why(kind, found ? &store->kinds[kind].items[at] : NULL, &read, &err);
    }
    if (read.name && (st == ST_OK || read.why)) {
        put_object(store, kind, &read);
    } else {
        kube_object_fini(&read);
    }
}

static void remove_object(struct kube_store *store, enum kube_kind kind, size_t at) {
    struct kube_objects *objects = &store->kinds[kind];
    struct kube_object *place = &objects->items[at];
    bool changed = matters(store, kind, place);
    kube_object_fini(place);
    objects->n--;
    memmove(place, place + 1, (objects->n - at) * sizeof(*place));
    count_change(store, kind, changed);
}

void kube_store_remove(struct kube_store *store, enum kube_kind kind,
                       const struct doc_node *object) {
    yyjson_val *name = yyjson_ptr_get(object->val, "/metadata/name");
    bool found = false;
    size_t at = yyjson_is_str(name) && is_here(store, object)
                    ? find_object(&store->kinds[kind], yyjson_get_str(name), &found)
                    : 0;
    if (found) {
        remove_object(store, kind, at);
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

void kube_store_list_begin(struct kube_store *store, enum kube_kind kind) {
    store->kinds[kind].round++;
}

/* Takes out in one go what the list did not have: one by one they would be moved again and
 * again. */
static void remove_unlisted(struct kube_store *store, enum kube_kind kind) {
    struct kube_objects *objects = &store->kinds[kind];
    bool changed = false;
    size_t n = 0;
    for (size_t i = 0; i < objects->n; i++) {
        struct kube_object *object = &objects->items[i];
        if (object->round == objects->round) {
            objects->items[n++] = *object;
            continue;
        }
        changed = changed || matters(store, kind, object);
        kube_object_fini(object);
    }
    objects->n = n;
    count_change(store, kind, changed);
}

void kube_store_list_end(struct kube_store *store, enum kube_kind kind, bool served) {
    struct kube_objects *objects = &store->kinds[kind];
    bool other = !objects->known || objects->served != served;
    objects->known = true;
    objects->served = served;
    remove_unlisted(store, kind);
    store->version += other;
}

void kube_store_skip_kind(struct kube_store *store, enum kube_kind kind) {
    kube_store_list_begin(store, kind);
    kube_store_list_end(store, kind, false);
}

/* ---- looking --------------------------------------------------------------------------------- */

uint64_t kube_store_version(const struct kube_store *store) {
    return store->version;
}

bool kube_store_is_synced(const struct kube_store *store) {
    size_t i = 0;
    while (i < N_KUBE_KINDS && store->kinds[i].known) {
        i++;
    }
    return i == N_KUBE_KINDS;
}

bool kube_store_is_served(const struct kube_store *store, enum kube_kind kind) {
    return store->kinds[kind].known && store->kinds[kind].served;
}

bool kube_store_has_pool(const struct kube_store *store) {
    return store->pool != NULL;
}

const char *kube_store_group(const struct kube_store *store) {
    return store->pool ? KUBE_KINDS[store->pool_kind].group : NULL;
}

void kube_store_count(const struct kube_store *store, enum kube_kind kind,
                      struct kube_kind_counts *out) {
    const struct kube_objects *objects = &store->kinds[kind];
    *out = (struct kube_kind_counts){
        .n_objects = objects->n, .known = objects->known, .served = objects->served};
    for (size_t i = 0; i < objects->n; i++) {
        const struct kube_object *object = &objects->items[i];
        bool ours = kube_store_owns(store, kind, object);
        out->n_matching += ours;
        out->n_usable += ours && matters(store, kind, object);
        out->n_invalid += object->why != NULL;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status kube_store_new(const struct kube_store_options *options, struct kube_store **out,
                           struct error *err) {
    struct kube_store *store = calloc(1, sizeof(*store));
    if (!store) {
        return error_set(err, ST_NO_MEMORY, "no memory for the cluster's objects");
    }
    store->options = *options;
    *out = store;
    return ST_OK;
}

void kube_store_free(struct kube_store *store) {
    for (size_t kind = 0; store && kind < N_KUBE_KINDS; kind++) {
        struct kube_objects *objects = &store->kinds[kind];
        for (size_t i = 0; i < objects->n; i++) {
            kube_object_fini(&objects->items[i]);
        }
        free(objects->items);
    }
    if (store) {
        pool_spec_free(store->pool);
        free(store);
    }
}

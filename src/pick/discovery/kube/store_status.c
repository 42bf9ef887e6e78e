/* What the API expects a picker to say of the objects that refer to its pool: the condition
 * "Accepted". Of two InferenceModels with one name only the older is; what makes no sense waits
 * for its author. Conditions of others stay, but for the one that the definition itself puts there
 * while nobody has said anything. */
#include <stdlib.h>

#include "core/base/json_writer.h"
#include "pick/discovery/kube/store_state.h"

/* What is to be said. */
struct verdict {
    const char *status, *reason;
    struct str message;
};

static yyjson_val *find_member(const struct kube_object *object, const char *pointer) {
    struct doc_node root = doc_root(object->doc);
    return yyjson_ptr_get(root.val, pointer);
}

static struct str text_at(yyjson_val *value) {
    return yyjson_is_str(value) ? str_make(yyjson_get_str(value), yyjson_get_len(value)) : STR("");
}

/* ---- what was said --------------------------------------------------------------------------- */

static bool is_type(yyjson_val *condition, const char *type) {
    return yyjson_equals_str(yyjson_obj_get(condition, "type"), type);
}

static bool is_placeholder(yyjson_val *condition) {
    return yyjson_equals_str(yyjson_obj_get(condition, "reason"), "Pending") &&
           yyjson_equals_str(yyjson_obj_get(condition, "status"), "Unknown");
}

static yyjson_val *find_accepted(const struct kube_object *object) {
    yyjson_val *conditions = find_member(object, "/status/conditions"), *condition;
    size_t i, max;
    yyjson_arr_foreach(conditions, i, max, condition) {
        if (is_type(condition, "Accepted")) {
            return condition;
        }
    }
    return NULL;
}

/* The message doesn't count: two pickers of different age must not write over each other. */
static bool is_said(const struct kube_object *object, const struct verdict *verdict) {
    yyjson_val *condition = find_accepted(object);
    return yyjson_equals_str(yyjson_obj_get(condition, "status"), verdict->status) &&
           yyjson_equals_str(yyjson_obj_get(condition, "reason"), verdict->reason) &&
           yyjson_get_sint(yyjson_obj_get(condition, "observedGeneration")) ==
               yyjson_get_sint(find_member(object, "/metadata/generation"));
}

/* ---- what is to be said ---------------------------------------------------------------------- */

/* Who has the names of models: by name, then by age. */
struct claim {
    struct str name;
    size_t age; /* a number: the oldest has 0 */
    const struct kube_object *object;
};

struct claims {
    struct claim *items;
    size_t n;
};

static int compare_claims(const void *a, const void *b) {
    const struct claim *left = a, *right = b;
    int order = str_compare(left->name, right->name);
    return order ? order : left->age < right->age ? -1 : left->age > right->age;
}

/* Out of memory nobody has any. */
static struct claims claims_of(const struct kube_store *store, struct arena *arena) {
    const struct kube_object **models;
    struct claims claims = {
        .n = kube_store_list_by_age(store, KUBE_MODEL, KUBE_MODEL, arena, &models)};
    claims.items = arena_calloc(arena, claims.n + 1, sizeof(*claims.items));
    claims.n = claims.items ? claims.n : 0;
    for (size_t i = 0; i < claims.n; i++) {
        claims.items[i] =
            (struct claim){text_at(find_member(models[i], "/spec/modelName")), i, models[i]};
    }
    if (claims.items) {
        qsort(claims.items, claims.n, sizeof(*claims.items), compare_claims);
    }
    return claims;
}

/* An older InferenceModel of the pool with the same name; NULL: there is none. */
static const struct kube_object *claimed_by(const struct claims *claims,
                                            const struct kube_object *object) {
    struct str name = text_at(find_member(object, "/spec/modelName"));
    size_t low = 0, high = claims->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (str_compare(claims->items[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < claims->n && str_eq(claims->items[low].name, name) &&
                   claims->items[low].object != object
               ? claims->items[low].object
               : NULL;
}

static struct verdict judge_object(const struct kube_object *object,
                                   const struct kube_object *older, struct arena *arena) {
    if (object->why) {
        return (struct verdict){"Unknown", "Pending", str_of(object->why)};
    }
    if (older) {
        struct str text =
            arena_printf(arena, "%s is older, and has the same modelName", older->name);
        return (struct verdict){"False", "ModelNameInUse", text.ptr ? text : STR("")};
    }
    return (struct verdict){"True", "Accepted", STR("the endpoint picker follows it")};
}

/* ---- the change ------------------------------------------------------------------------------ */

static void add_others(const struct kube_object *object, struct json_writer *json) {
    yyjson_val *conditions = find_member(object, "/status/conditions"), *condition;
    size_t i, max, n;
    yyjson_arr_foreach(conditions, i, max, condition) {
        char *text = is_type(condition, "Accepted") || is_placeholder(condition)
                         ? NULL
                         : yyjson_val_write(condition, 0, &n);
        if (text) {
            json_write_separator(json);
            buf_add(json->out, text, n);
            json->has_items = true;
        }
        free(text);
    }
}

/* The time is that of the last change of `status`. */
static void add_accepted(const struct kube_object *object, const struct verdict *verdict,
                         const char *now, struct json_writer *json) {
    yyjson_val *before = find_accepted(object);
    bool same = yyjson_equals_str(yyjson_obj_get(before, "status"), verdict->status);
    struct str since = text_at(yyjson_obj_get(before, "lastTransitionTime"));
    json_write_separator(json);
    json_write_open(json, '{');
    json_write_string(json, "type", STR("Accepted"));
    json_write_string(json, "status", str_of(verdict->status));
    json_write_string(json, "reason", str_of(verdict->reason));
    json_write_string(json, "message", verdict->message);
    json_write_i64(json, "observedGeneration",
                   yyjson_get_sint(find_member(object, "/metadata/generation")));
    json_write_string(json, "lastTransitionTime", same && since.len > 0 ? since : str_of(now));
    json_write_close(json, '}');
}

/* A merge patch, which is refused when the object has changed since. */
static struct str print_patch(const struct kube_object *object, const struct verdict *verdict,
                              const char *now, struct arena *arena) {
    struct buf out;
    struct json_writer json = {.out = &out};
    buf_init(&out, arena, 512);
    json_write_open(&json, '{');
    json_write_key(&json, "metadata");
    json_write_open(&json, '{');
    json_write_string(&json, "resourceVersion",
                      text_at(find_member(object, "/metadata/resourceVersion")));
    json_write_close(&json, '}');
    json_write_key(&json, "status");
    json_write_open(&json, '{');
    json_write_key(&json, "conditions");
    json_write_open(&json, '[');
    add_others(object, &json);
    add_accepted(object, verdict, now, &json);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    json_write_close(&json, '}');
    return out.failed ? str_make(NULL, 0) : buf_str(&out);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static size_t add_kind(const struct kube_store *store, enum kube_kind kind, struct arena *arena,
                       const char *now, struct kube_patch *out) {
    const struct kube_objects *objects = &store->kinds[kind];
    struct claims claims = {.n = 0};
    size_t n = 0;
    if (kind == KUBE_MODEL) {
        claims = claims_of(store, arena);
    }
    for (size_t i = 0; i < objects->n; i++) {
        const struct kube_object *object = &objects->items[i];
        if (!kube_store_owns(store, kind, object)) {
            continue;
        }
        struct verdict verdict = judge_object(object, claimed_by(&claims, object), arena);
        struct str body = {NULL, 0};
        if (!is_said(object, &verdict)) {
            body = print_patch(object, &verdict, now, arena);
        }
        struct str name = arena_printf(arena, "%s", object->name);
        if (body.ptr && name.ptr) {
            out[n++] = (struct kube_patch){kind, name, body};
        }
    }
    return n;
}

size_t kube_store_patches(const struct kube_store *store, struct arena *arena, const char *now,
                          struct kube_patch **out) {
    size_t most = 0, n = 0;
    for (int kind = KUBE_MODEL; kind < N_KUBE_KINDS; kind++) {
        most += store->kinds[kind].n;
    }
    *out = arena_calloc(arena, most + 1, sizeof(**out));
    for (int kind = KUBE_MODEL; store->pool && *out && kind < N_KUBE_KINDS; kind++) {
        n += add_kind(store, (enum kube_kind)kind, arena, now, *out + n);
    }
    return n;
}

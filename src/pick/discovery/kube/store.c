/* Objects of a cluster, as lists sorted by name that events keep up to date; the pool's spec that
 * they result in; and the status patches of objects that refer to the pool. */
#include "pick/discovery/kube/store.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/json_writer.h"
#include "core/base/log.h"
#include "core/must/must.h"
#include "pick/config/reader.h"
#include "pick/config/scrape_rules.h"

struct kube_object {
    char *name;
    struct kube_pod *pod; /* of a valid pod */
    struct doc *doc;      /* of other kinds: metadata, spec and status */
    char *why;            /* why it is invalid, which has been logged; NULL: valid */
    uint64_t round;       /* of the last list that had it */
};

/* The objects of a kind, sorted by name. */
struct kube_objects {
    struct kube_object *items;
    size_t n, cap;
    uint64_t round; /* counts the lists */
    bool known, served;
};

struct kube_store {
    struct kube_store_options options;
    struct kube_objects kinds[N_KUBE_KINDS];
    uint64_t version;
    /* The InferencePool in use, read: its selector and its ports. */
    struct pool_spec *pool; /* NULL: none */
    enum kube_kind pool_kind;
    struct pool_config_ports ports;
};

const struct kube_kind_info KUBE_KINDS[N_KUBE_KINDS] = {
#define KUBE_KIND(id, group, version, resource, kind)                                              \
    [KUBE_##id] = {(group), (version), (resource), (kind)},
#include "pick/discovery/kube/kind.def"
#undef KUBE_KIND
};

bool kube_kind_is_pool(enum kube_kind kind) {
    return kind == KUBE_POOL || kind == KUBE_POOL_ALPHA;
}

/* ---- objects: reading ------------------------------------------------------------------------ */

static enum status copy_doc(enum kube_kind kind, const struct doc_node *object,
                            struct kube_object *out, struct error *err) {
    static const char *const members[] = {"metadata/name",
                                          "metadata/namespace",
                                          "metadata/uid",
                                          "metadata/resourceVersion",
                                          "metadata/generation",
                                          "metadata/creationTimestamp",
                                          "metadata/deletionTimestamp",
                                          "spec",
                                          "status",
                                          NULL};
    char name[POOL_CONFIG_NAME_BYTES + 64];
    snprintf(name, sizeof(name), "%s %s", KUBE_KINDS[kind].kind, out->name); /* for messages */
    return doc_copy_members(name, object, members, &out->doc, err);
}

/* Checks that the object can be read into a pool. */
static enum status check_object(enum kube_kind kind, const struct kube_object *object,
                                struct error *err) {
    struct pool_config_reader reader;
    struct doc_node root = doc_root(object->doc);
    struct pool_spec *spec = pool_spec_new();
    pool_config_reader_init(&reader, object->name, spec, spec->arena, err);
    enum status st = pool_config_read_kube_object_of_kind(&reader, KUBE_KINDS[kind].kind, &root);
    pool_spec_free(spec);
    return st;
}

static enum status kube_object_read(enum kube_kind kind, const struct doc_node *object,
                                    struct kube_object *out, struct error *err) {
    struct str name = json_text(json_at(object->val, "/metadata/name"));
    if (name.len == 0 || name.len > POOL_CONFIG_NAME_BYTES) {
        return error_set(err, ST_BAD_CONFIG, "metadata.name: expected a name of 1 to %d bytes",
                         POOL_CONFIG_NAME_BYTES);
    }
    out->name = str_dup(name);
    if (!out->name) {
        return error_no_memory(err, "an object");
    }
    if (kind == KUBE_POD) {
        return kube_pod_read(object->val, &out->pod, err);
    }
    enum status st = copy_doc(kind, object, out, err);
    return st == ST_OK ? check_object(kind, out, err) : st;
}

static void kube_object_fini(struct kube_object *object) {
    free(object->name);
    free(object->pod);
    free(object->why);
    doc_free(object->doc);
    *object = (struct kube_object){.name = NULL};
}

/* ---- objects: members ------------------------------------------------------------------------ */

static yyjson_val *object_member(const struct kube_object *object, const char *pointer) {
    struct doc_node root = doc_root(object->doc);
    return json_at(root.val, pointer);
}

static struct str text_of(yyjson_val *value) {
    struct str text = STR("");
    (void)json_get_string(value, &text);
    return text;
}

static bool kube_object_is_deleting(const struct kube_object *object) {
    return object->doc && object_member(object, "/metadata/deletionTimestamp");
}

static struct str kube_object_created(const struct kube_object *object) {
    return text_of(object_member(object, "/metadata/creationTimestamp"));
}

static bool kube_object_equal(const struct kube_object *a, const struct kube_object *b) {
    if (a->pod && b->pod) {
        return kube_pod_equal(a->pod, b->pod);
    }
    if (!a->doc || !b->doc) {
        return !a->doc && !b->doc && !a->pod && !b->pod;
    }
    return (a->why != NULL) == (b->why != NULL) &&
           kube_object_is_deleting(a) == kube_object_is_deleting(b) &&
           str_eq(kube_object_created(a), kube_object_created(b)) &&
           json_equal(object_member(a, "/spec"), object_member(b, "/spec"));
}

static bool is_text_or_none(yyjson_val *value, const char *text) {
    return !value || json_is_null(value) || json_text_is(value, "") || json_text_is(value, text);
}

static bool kube_object_refers(const struct kube_object *object, const char *pool,
                               const char *group) {
    return json_text_is(object_member(object, "/spec/poolRef/name"), pool) &&
           is_text_or_none(object_member(object, "/spec/poolRef/kind"), "InferencePool") &&
           (!group || is_text_or_none(object_member(object, "/spec/poolRef/group"), group));
}

/* ---- objects of the pool --------------------------------------------------------------------- */

static bool kube_store_owns(const struct kube_store *store, enum kube_kind kind,
                            const struct kube_object *object) {
    if (kind == KUBE_POD) {
        return store->pool && object->pod &&
               pool_labels_match(object->pod->labels, store->pool->selector);
    }
    if (kube_kind_is_pool(kind)) {
        return strcmp(object->name, store->options.pool) == 0;
    }
    return object->doc && !kube_object_is_deleting(object) &&
           kube_object_refers(object, store->options.pool, kube_store_group(store));
}

/* ---- objects sorted by age ------------------------------------------------------------------- */

static int compare_ages(const void *a, const void *b) {
    const struct kube_object *left = *(const struct kube_object *const *)a;
    const struct kube_object *right = *(const struct kube_object *const *)b;
    int order = str_compare(kube_object_created(left), kube_object_created(right));
    return order ? order : strcmp(left->name, right->name);
}

static size_t list_owned(const struct kube_store *store, enum kube_kind kind,
                         const struct kube_object **out) {
    const struct kube_objects *objects = &store->kinds[kind];
    size_t n = 0;
    for (size_t i = 0; i < objects->n; i++) {
        if (!objects->items[i].why && kube_store_owns(store, kind, &objects->items[i])) {
            out[n++] = &objects->items[i];
        }
    }
    return n;
}

static size_t kube_store_list_by_age(const struct kube_store *store, enum kube_kind first,
                                     enum kube_kind second, struct arena *arena,
                                     const struct kube_object ***out) {
    size_t most = store->kinds[first].n + store->kinds[second].n, n;
    const struct kube_object **items = arena_calloc(arena, most + 1, sizeof(*items));
    *out = items;
    if (!items) {
        return 0;
    }
    n = list_owned(store, first, items);
    n += second != first ? list_owned(store, second, items + n) : 0;
    qsort(items, n, sizeof(*items), compare_ages);
    return n;
}

/* ---- lists of objects ------------------------------------------------------------------------ */

/* Returns: the object's index, or where it would be inserted. */
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

static bool grow_objects(struct kube_objects *objects) {
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

/* ---- the pool in use ------------------------------------------------------------------------- */

/* Reads the InferencePool of a kind, if there is a valid one. */
static bool read_pool_of_kind(struct kube_store *store, enum kube_kind kind) {
    struct pool_config_reader reader;
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
    struct pool_spec *spec = pool_spec_new();
    pool_config_reader_init(&reader, KUBE_KINDS[kind].kind, spec, spec->arena, &err);
    if (pool_config_read_kube_object_of_kind(&reader, KUBE_KINDS[kind].kind, &root) != ST_OK) {
        log_event(LOG_ERROR, "InferencePool can't be used", LOG_CSTR("reason", err.text));
        pool_spec_free(spec);
        return false;
    }
    store->pool = spec;
    store->pool_kind = kind;
    store->ports = reader.ports;
    return true;
}

static void select_pool(struct kube_store *store) {
    pool_spec_free(store->pool);
    store->pool = NULL;
    if (!read_pool_of_kind(store, KUBE_POOL)) {
        (void)read_pool_of_kind(store, KUBE_POOL_ALPHA);
    }
}

/* `matters`: the change concerns the pool in use. */
static void count_change(struct kube_store *store, enum kube_kind kind, bool matters) {
    if (kube_kind_is_pool(kind)) {
        select_pool(store);
    }
    store->version += matters;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void set_invalid_reason(enum kube_kind kind, const struct kube_object *before,
                               struct kube_object *object, const struct error *err) {
    bool said = before && before->why && strcmp(before->why, err->text) == 0;
    object->why = strdup(err->text);
    if (!said) {
        log_event(LOG_WARNING, "invalid Kubernetes object ignored",
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

/* Returns: the object's changes are counted. An invalid one's, too, as its status tells its
 * author. */
static bool is_relevant(const struct kube_store *store, enum kube_kind kind,
                        const struct kube_object *object) {
    bool waits = object && object->why && kind != KUBE_POD && !kube_kind_is_pool(kind) &&
                 kube_store_owns(store, kind, object);
    return waits || matters(store, kind, object);
}

/* Inserts or replaces the object. Owns: takes the object. */
static void put_object(struct kube_store *store, enum kube_kind kind, struct kube_object *object) {
    struct kube_objects *objects = &store->kinds[kind];
    bool found;
    size_t at = find_object(objects, object->name, &found);
    struct kube_object *place = found ? &objects->items[at] : NULL;
    bool changed = !place || !kube_object_equal(place, object);
    changed = changed && (is_relevant(store, kind, place) || is_relevant(store, kind, object));
    object->round = objects->round;
    if (place) {
        kube_object_fini(place);
    } else if (grow_objects(objects)) {
        place = &objects->items[at];
        memmove(place + 1, place, (objects->n - at) * sizeof(*place));
        objects->n++;
    } else {
        log_message(LOG_ERROR, "out of memory for a Kubernetes object: it is ignored");
        kube_object_fini(object);
        return;
    }
    *place = *object;
    count_change(store, kind, changed);
}

/* A watch of one namespace has no other objects; others are ignored. */
static bool is_in_namespace(const struct kube_store *store, const struct doc_node *object) {
    yyjson_val *name_space = json_at(object->val, "/metadata/namespace");
    return !name_space || json_text_is(name_space, store->options.name_space);
}

void kube_store_put(struct kube_store *store, enum kube_kind kind, const struct doc_node *object) {
    struct kube_object read = {.name = NULL};
    struct error err;
    bool found = false;
    if (!is_in_namespace(store, object)) {
        return;
    }
    enum status st = kube_object_read(kind, object, &read, &err);
    size_t at = read.name ? find_object(&store->kinds[kind], read.name, &found) : 0;
    if (st != ST_OK) {
        set_invalid_reason(kind, found ? &store->kinds[kind].items[at] : NULL, &read, &err);
    }
    if (read.name && (st == ST_OK || read.why)) {
        put_object(store, kind, &read);
    } else {
        kube_object_fini(&read);
    }
}

void kube_store_remove(struct kube_store *store, enum kube_kind kind,
                       const struct doc_node *object) {
    struct str name = json_text(json_at(object->val, "/metadata/name"));
    bool found = false;
    size_t at = name.ptr && is_in_namespace(store, object)
                    ? find_object(&store->kinds[kind], name.ptr, &found)
                    : 0;
    if (found) {
        struct kube_objects *objects = &store->kinds[kind];
        struct kube_object *place = &objects->items[at];
        bool changed = matters(store, kind, place);
        kube_object_fini(place);
        objects->n--;
        memmove(place, place + 1, (objects->n - at) * sizeof(*place));
        count_change(store, kind, changed);
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

void kube_store_list_begin(struct kube_store *store, enum kube_kind kind) {
    store->kinds[kind].round++;
}

/* Removes the objects that the list did not have in one pass, as each single removal moves the
 * rest. */
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

/* ---- queries --------------------------------------------------------------------------------- */

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

/* ---- new and free ---------------------------------------------------------------------------- */

enum status kube_store_new(const struct kube_store_options *options, struct kube_store **out,
                           struct error *err) {
    struct kube_store *store = calloc(1, sizeof(*store));
    if (!store) {
        return error_no_memory(err, "the cluster's objects");
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

/* ---- spec: models, objectives, rewrites ------------------------------------------------------ */

/* Each was valid when it was stored. */
static void add_objects(const struct kube_store *store, struct pool_config_reader *reader,
                        enum kube_kind first, enum kube_kind second) {
    const struct kube_object **items;
    size_t n = kube_store_list_by_age(store, first, second, reader->arena, &items);
    for (size_t i = 0; i < n; i++) {
        struct doc_node root = doc_root(items[i]->doc);
        enum status st =
            pool_config_read_kube_object_of_kind(reader, KUBE_KINDS[first].kind, &root);
        assert(st == ST_OK);
        (void)st;
    }
}

/* ---- spec: pods ------------------------------------------------------------------------------ */

static struct pool_labels copy_labels(struct pool_spec *spec, struct pool_labels labels) {
    struct pool_label *items = arena_calloc(spec->arena, labels.n, sizeof(*items));
    for (size_t i = 0; i < labels.n; i++) {
        items[i].key = pool_spec_dup_text(spec, labels.items[i].key);
        items[i].value = pool_spec_dup_text(spec, labels.items[i].value);
    }
    return (struct pool_labels){items, labels.n};
}

/* Adds an endpoint for each port of the pod. */
static void add_pod(const struct kube_store *store, const struct kube_pod *pod,
                    struct pool_spec *spec) {
    struct pool_spec_endpoint wanted = {
        .address = pod->address,
        .node = pod->node,
        .labels = copy_labels(spec, pod->labels),
        .name = {.pod = pool_spec_dup_text(spec, pod->name),
                 .name_space = pool_spec_dup_text(spec, str_of(store->options.name_space)),
                 .host = pool_spec_dup_text(spec, pod->hostname)}};
    for (size_t i = 0; i < store->ports.n; i++) {
        wanted.address.port = store->ports.items[i];
        wanted.name.text = arena_printf(spec->arena, "%.*s-rank-%zu", STR_ARG(wanted.name.pod), i);
        if (kube_pod_has_port(pod, wanted.address.port)) {
            pool_spec_add_endpoint(spec, &wanted);
        }
    }
}

/* Returns: a pod has an engine label. */
static bool add_pods(const struct kube_store *store, struct pool_spec *spec) {
    const struct kube_objects *pods = &store->kinds[KUBE_POD];
    bool with_engine = false;
    for (size_t i = 0; i < pods->n; i++) {
        const struct kube_object *object = &pods->items[i];
        if (kube_store_owns(store, KUBE_POD, object) && object->pod->ready) {
            add_pod(store, object->pod, spec);
            with_engine = with_engine || scrape_engine_is_known(object->pod->labels);
        }
    }
    return with_engine;
}

/* Pods with an engine label are scraped as the file says of that engine, or with its preset; the
 * others as the file says, or not at all. */
static void add_scrape_plan(struct pool_spec *spec) {
    struct scrape_plan *plan = arena_calloc(spec->arena, 1, sizeof(*plan));
    scrape_plan_init(plan);
    if (spec->scrape) {
        *plan = *spec->scrape;
    }
    spec->scrape = plan;
    if (plan->n_engines == 0) {
        scrape_plan_make_engines(plan, NULL, 0, spec->arena);
    }
}

/* ---- spec ------------------------------------------------------------------------------------ */

void kube_store_add_to_spec(const struct kube_store *store, struct pool_spec *spec) {
    struct pool_config_reader reader;
    struct error err;
    /* Without a pool a request gets 503, as there are no endpoints, and not 404 for its model. */
    if (!spec->strict_models_set && store->pool && kube_store_is_served(store, KUBE_MODEL)) {
        spec->strict_models = true;
    }
    spec->name = pool_spec_dup_text(spec, str_of(store->options.pool));
    if (!store->pool) {
        return;
    }
    struct arena *arena = must_arena_new("the cluster's pool");
    pool_config_reader_init(&reader, "the cluster", spec, arena, &err);
    if (add_pods(store, spec)) {
        add_scrape_plan(spec);
    }
    add_objects(store, &reader, KUBE_MODEL, KUBE_MODEL);
    add_objects(store, &reader, KUBE_OBJECTIVE, KUBE_OBJECTIVE);
    add_objects(store, &reader, KUBE_OBJECTIVE_ALPHA, KUBE_OBJECTIVE_ALPHA);
    add_objects(store, &reader, KUBE_REWRITE, KUBE_REWRITE_ALPHA);
    arena_free(arena);
}

/* The condition that an object's status is to have. */
struct verdict {
    const char *status, *reason;
    struct str message;
};

/* ---- status: present conditions -------------------------------------------------------------- */

static bool condition_has_type(yyjson_val *condition, const char *type) {
    return json_text_is(json_member(condition, "type"), type);
}

static bool is_placeholder(yyjson_val *condition) {
    return json_text_is(json_member(condition, "reason"), "Pending") &&
           json_text_is(json_member(condition, "status"), "Unknown");
}

static yyjson_val *find_accepted(const struct kube_object *object) {
    struct json_iter condition = json_elements(object_member(object, "/status/conditions"));
    while (json_iter_next(&condition)) {
        if (condition_has_type(condition.value, "Accepted")) {
            return condition.value;
        }
    }
    return NULL;
}

/* The message is not compared: pickers of two versions must not overwrite each other's. */
static bool has_condition(const struct kube_object *object, const struct verdict *verdict) {
    yyjson_val *condition = find_accepted(object);
    return json_text_is(json_member(condition, "status"), verdict->status) &&
           json_text_is(json_member(condition, "reason"), verdict->reason) &&
           json_whole(json_member(condition, "observedGeneration")) ==
               json_whole(object_member(object, "/metadata/generation"));
}

/* ---- status: expected condition -------------------------------------------------------------- */

/* Which object has the name of a model: sorted by name, then by age. */
struct claim {
    struct str name;
    size_t age; /* index by age; 0: the oldest */
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

/* Out of memory the result is empty. */
static struct claims claims_of(const struct kube_store *store, struct arena *arena) {
    const struct kube_object **models;
    struct claims claims = {
        .n = kube_store_list_by_age(store, KUBE_MODEL, KUBE_MODEL, arena, &models)};
    claims.items = arena_calloc(arena, claims.n + 1, sizeof(*claims.items));
    claims.n = claims.items ? claims.n : 0;
    for (size_t i = 0; i < claims.n; i++) {
        claims.items[i] =
            (struct claim){text_of(object_member(models[i], "/spec/modelName")), i, models[i]};
    }
    if (claims.items) {
        qsort(claims.items, claims.n, sizeof(*claims.items), compare_claims);
    }
    return claims;
}

/* Returns: an older InferenceModel of the pool with the same name; NULL: none. */
static const struct kube_object *claimed_by(const struct claims *claims,
                                            const struct kube_object *object) {
    struct str name = text_of(object_member(object, "/spec/modelName"));
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

/* ---- status: patch --------------------------------------------------------------------------- */

/* lastTransitionTime is that of the last change of `status`. */
static void add_accepted(const struct kube_object *object, const struct verdict *verdict,
                         const char *now, struct json_writer *json) {
    yyjson_val *before = find_accepted(object);
    bool same = json_text_is(json_member(before, "status"), verdict->status);
    struct str since = text_of(json_member(before, "lastTransitionTime"));
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "type", STR("Accepted"));
    json_write_string(json, "status", str_of(verdict->status));
    json_write_string(json, "reason", str_of(verdict->reason));
    json_write_string(json, "message", verdict->message);
    json_write_i64(json, "observedGeneration",
                   json_whole(object_member(object, "/metadata/generation")));
    json_write_string(json, "lastTransitionTime", same && since.len > 0 ? since : str_of(now));
    json_write_close(json, '}');
}

/* A merge patch with the object's version, which the server rejects if the object has changed
 * since. */
static struct str print_patch(const struct kube_object *object, const struct verdict *verdict,
                              const char *now, struct arena *arena) {
    struct buf out;
    struct json_writer json = {.out = &out};
    buf_init(&out, arena, 512);
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "metadata", '{');
    json_write_string(&json, "resourceVersion",
                      text_of(object_member(object, "/metadata/resourceVersion")));
    json_write_close(&json, '}');
    json_write_open(&json, "status", '{');
    json_write_open(&json, "conditions", '[');
    struct json_iter condition = json_elements(object_member(object, "/status/conditions"));
    while (json_iter_next(&condition)) {
        if (!condition_has_type(condition.value, "Accepted") && !is_placeholder(condition.value)) {
            json_write_value(&json, JSON_ELEMENT, condition.value);
        }
    }
    add_accepted(object, verdict, now, &json);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    json_write_close(&json, '}');
    return out.failed ? str_make(NULL, 0) : buf_str(&out);
}

/* ---- status: all patches --------------------------------------------------------------------- */

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
        if (!has_condition(object, &verdict)) {
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

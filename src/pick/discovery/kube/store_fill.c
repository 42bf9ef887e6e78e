/* Objects become a pool's spec. What the spec has already, from the picker's own file, comes first
 * and so counts first (pick/pool/snapshot.h); of the cluster's objects the oldest does. */
#include <assert.h>
#include <stdlib.h>

#include "pick/config/scrape_rules.h"
#include "pick/discovery/kube/store_state.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for what the cluster says of the pool");
}

/* ---- whose ----------------------------------------------------------------------------------- */

bool kube_store_owns(const struct kube_store *store, enum kube_kind kind,
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

/* ---- the oldest first ------------------------------------------------------------------------ */

static int compare_ages(const void *a, const void *b) {
    const struct kube_object *left = *(const struct kube_object *const *)a;
    const struct kube_object *right = *(const struct kube_object *const *)b;
    int order = str_compare(kube_object_created(left), kube_object_created(right));
    return order ? order : strcmp(left->name, right->name);
}

static size_t list_ours(const struct kube_store *store, enum kube_kind kind,
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

size_t kube_store_list_by_age(const struct kube_store *store, enum kube_kind first,
                              enum kube_kind second, struct arena *arena,
                              const struct kube_object ***out) {
    size_t most = store->kinds[first].n + store->kinds[second].n, n;
    const struct kube_object **items = arena_calloc(arena, most + 1, sizeof(*items));
    *out = items;
    if (!items) {
        return 0;
    }
    n = list_ours(store, first, items);
    n += second != first ? list_ours(store, second, items + n) : 0;
    qsort(items, n, sizeof(*items), compare_ages);
    return n;
}

/* ---- what refers to the pool ----------------------------------------------------------------- */

/* Each made sense when it came, so that only memory can be missing. */
static enum status fill_objects(const struct kube_store *store, struct pool_config_reader *reader,
                                enum kube_kind first, enum kube_kind second, struct error *err) {
    const struct kube_object **items;
    size_t n = kube_store_list_by_age(store, first, second, reader->arena, &items);
    enum status st = items ? ST_OK : no_memory(err);
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        struct doc_node root = doc_root(items[i]->doc);
        st = pool_config_read_kube_object_of_kind(reader, KUBE_KINDS[first].kind, &root, err);
        assert(st == ST_OK || st == ST_NO_MEMORY);
    }
    return st;
}

/* ---- pods ------------------------------------------------------------------------------------ */

static bool copy_labels(struct pool_spec *spec, struct pool_labels labels,
                        struct pool_labels *out) {
    struct pool_label *items = arena_calloc(spec->arena, labels.n, sizeof(*items));
    bool copied = items != NULL;
    for (size_t i = 0; i < labels.n && copied; i++) {
        items[i].key = pool_spec_dup_text(spec, labels.items[i].key);
        items[i].value = pool_spec_dup_text(spec, labels.items[i].value);
        copied = items[i].key.ptr && items[i].value.ptr;
    }
    *out = (struct pool_labels){items, labels.n};
    return copied;
}

/* An endpoint for each of its ports. */
static enum status fill_pod(const struct kube_store *store, const struct kube_pod *pod,
                            struct pool_spec *spec, struct error *err) {
    struct pool_spec_endpoint wanted = {.address = pod->address};
    enum status st = copy_labels(spec, pod->labels, &wanted.labels) ? ST_OK : no_memory(err);
    for (size_t i = 0; i < store->ports.n && st == ST_OK; i++) {
        wanted.address.port = store->ports.items[i];
        if (kube_pod_has_port(pod, wanted.address.port)) {
            st = pool_spec_add_endpoint(spec, &wanted, err);
        }
    }
    return st;
}

static enum status fill_pods(const struct kube_store *store, struct pool_spec *spec,
                             bool *with_engine, struct error *err) {
    const struct kube_objects *pods = &store->kinds[KUBE_POD];
    enum status st = ST_OK;
    for (size_t i = 0; i < pods->n && st == ST_OK; i++) {
        const struct kube_object *object = &pods->items[i];
        if (kube_store_owns(store, KUBE_POD, object) && object->pod->ready) {
            st = fill_pod(store, object->pod, spec, err);
            *with_engine = *with_engine || scrape_engine_is_known(object->pod->labels);
        }
    }
    return st;
}

/* Pods that say which server they run are asked as that one is; the others as the file says, or not
 * at all. */
static enum status fill_scrape(struct pool_spec *spec, struct error *err) {
    struct scrape_plan *plan = arena_calloc(spec->arena, 1, sizeof(*plan));
    if (!plan) {
        return no_memory(err);
    }
    scrape_plan_init(plan);
    if (spec->scrape) {
        *plan = *spec->scrape;
    }
    plan->by_engine = true;
    spec->scrape = plan;
    return scrape_plan_make_presets(plan, spec->arena) ? ST_OK : no_memory(err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum status read_into_spec(const struct kube_store *store, struct pool_config_reader *reader,
                                  struct error *err) {
    struct pool_spec *spec = reader->spec;
    bool with_engine = false;
    enum status st = fill_pods(store, spec, &with_engine, err);
    if (st == ST_OK && with_engine) {
        st = fill_scrape(spec, err);
    }
    if (st == ST_OK) {
        st = fill_objects(store, reader, KUBE_MODEL, KUBE_MODEL, err);
    }
    if (st == ST_OK) {
        st = fill_objects(store, reader, KUBE_OBJECTIVE, KUBE_OBJECTIVE, err);
    }
    if (st == ST_OK) {
        st = fill_objects(store, reader, KUBE_OBJECTIVE_ALPHA, KUBE_OBJECTIVE_ALPHA, err);
    }
    return st == ST_OK ? fill_objects(store, reader, KUBE_REWRITE, KUBE_REWRITE_ALPHA, err) : st;
}

enum status kube_store_add_to_spec(const struct kube_store *store, struct pool_spec *spec,
                                   struct error *err) {
    struct pool_config_reader reader = {.file = "the cluster", .spec = spec};
    /* Without a pool there are no models of it: 503, as there are no endpoints, and not 404. */
    if (!spec->strict_models_set && store->pool && kube_store_is_served(store, KUBE_MODEL)) {
        spec->strict_models = true;
    }
    spec->name = pool_spec_dup_text(spec, str_of(store->options.pool));
    reader.arena = arena_new(NULL, 0);
    enum status st = reader.arena && spec->name.ptr ? ST_OK : no_memory(err);
    if (st == ST_OK && store->pool) {
        st = read_into_spec(store, &reader, err);
    }
    arena_free(reader.arena);
    return st;
}

/* What the operators' pages say of requests that wait for room: under the upstream project's names,
 * without its label fairness_id, which clients choose. */
#include "core/base/metric/metric.h"
#include "pick/pool/flow/wait.h"
#include "program/picker/admin.h"
#include "program/picker/admin_pools.h"

enum { MOST_BANDS = 64, FIRST_TIME = 6, LAST_TIME = METRIC_BOUNDS - 1 }; /* 64 us to 33.6 s */

struct pool_bands {
    const struct pick_admin_pool *pool;
    struct flow_band_stats *bands;
    size_t n;
};

/* There are few priorities, and many pools may have none. Out of memory there is less. */
static void read_pool(struct pool_bands *pool, struct flow_band_stats *room, struct arena *arena) {
    struct pool_flow_stats numbers;
    pool_get_flow_stats(pool->pool->entry->pool, room, MOST_BANDS, &numbers);
    pool->bands = arena_alloc(arena, (numbers.n_bands + 1) * sizeof(*room));
    if (pool->bands && numbers.n_bands > 0) {
        memcpy(pool->bands, room, numbers.n_bands * sizeof(*room));
        pool->n = numbers.n_bands;
    }
}

/* Returns: NULL when out of memory. */
static struct pool_bands *read_all(const struct pick_admin_pools *list, struct arena *arena) {
    struct pool_bands *all = arena_calloc(arena, list->n + 1, sizeof(*all));
    struct flow_band_stats *room = arena_alloc(arena, MOST_BANDS * sizeof(*room));
    for (size_t i = 0; all && room && i < list->n; i++) {
        all[i].pool = &list->items[i];
        read_pool(&all[i], room, arena);
    }
    return room ? all : NULL;
}

static struct buf labels_of(const struct metric_text *text, const struct pool_bands *pool,
                            int64_t priority, const char *outcome) {
    struct str name = pick_admin_pool_name(pool->pool);
    struct buf labels;
    buf_init(&labels, text->out->arena, 96 + name.len);
    buf_printf(&labels, "priority=\"%lld\"", (long long)priority);
    if (outcome) {
        metric_label_add(&labels, "outcome", str_of(outcome));
    }
    if (name.len > 0) {
        metric_label_add(&labels, "inference_pool", name);
    }
    return labels;
}

static uint64_t waiting_of(const struct flow_band_stats *band) {
    return band->n_waiting;
}
static uint64_t bytes_of(const struct flow_band_stats *band) {
    return band->n_bytes;
}

static void print_gauge(struct metric_text *text, const struct pool_bands *all, size_t n,
                        enum metric_family family,
                        uint64_t (*value_of)(const struct flow_band_stats *band)) {
    metric_family_begin(text, family);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < all[i].n; k++) {
            struct buf labels = labels_of(text, &all[i], all[i].bands[k].priority, NULL);
            metric_text_u64(text, buf_str(&labels), value_of(&all[i].bands[k]));
        }
    }
}

/* Those that the queue was too full for have waited for nothing. */
static void print_band(struct metric_text *text, const struct pool_bands *pool,
                       const struct flow_band_stats *band) {
    static const char *const outcomes[] = {[FLOW_DISPATCHED] = "Dispatched",
                                           [FLOW_EXPIRED] = "EvictedTTL",
                                           [FLOW_ABORTED] = "EvictedContextCancelled",
                                           [FLOW_REFUSED] = "RejectedOther"};
    struct metric_distribution full = {.buckets = {band->n_full}, .count = band->n_full};
    struct buf labels = labels_of(text, pool, band->priority, "RejectedCapacity");
    metric_text_distribution(text, buf_str(&labels), &full, METRIC_UNIT_SECONDS, FIRST_TIME,
                             LAST_TIME);
    for (size_t i = 0; i < N_FLOW_OUTCOMES; i++) {
        labels = labels_of(text, pool, band->priority, outcomes[i]);
        metric_text_distribution(text, buf_str(&labels), &band->waited[i], METRIC_UNIT_SECONDS,
                                 FIRST_TIME, LAST_TIME);
    }
}

void pick_flow_control_metrics(const struct pick_admin_pools *list, struct metric_text *text) {
    const struct pool_bands *all = read_all(list, text->out->arena);
    size_t n = all ? list->n : 0;
    print_gauge(text, all, n, METRIC_FAMILY_UPSTREAM_FLOW_SIZE, waiting_of);
    print_gauge(text, all, n, METRIC_FAMILY_UPSTREAM_FLOW_BYTES, bytes_of);
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_FLOW_TIME);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < all[i].n; k++) {
            print_band(text, &all[i], &all[i].bands[k]);
        }
    }
}

void pick_flow_control_state(const struct pick_admin_pool *pool, struct buf *out) {
    struct pool_flow_stats numbers;
    struct flow_band_stats *bands = arena_alloc(out->arena, MOST_BANDS * sizeof(*bands));
    if (!bands || !pool->snapshot->spec->flow_control.on) {
        return;
    }
    pool_get_flow_stats(pool->entry->pool, bands, MOST_BANDS, &numbers);
    buf_printf(out, "%llu requests wait for room: %llu bytes, of %zu fairness ids\n",
               (unsigned long long)numbers.n_waiting, (unsigned long long)numbers.n_bytes,
               numbers.n_ids);
    for (size_t i = 0; i < numbers.n_bands; i++) {
        buf_printf(out, "  of priority %lld: %llu, of %zu fairness ids\n",
                   (long long)bands[i].priority, (unsigned long long)bands[i].n_waiting,
                   bands[i].n_ids);
    }
}

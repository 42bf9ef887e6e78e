/* The families of requests under upstream's names: flow control, durations, and those by model. */
#include "program/picker/upstream_page.h"

#include <string.h>

#include "pick/pool/flow/wait.h"

/* ---- request queues ---------------------------------------------------------------- */

enum { FIRST_WAIT = 6, LAST_WAIT = METRIC_BOUNDS - 1 }; /* 64 us to 33.6 s */

struct pool_bands {
    const struct pick_admin_pool *pool;
    struct flow_band_stats *bands;
    size_t n;
};

/* Copies the pools' bands: few of POOL_MAX_LISTED_BANDS are used, and many pools have none. Out of
 * memory some are missing. Returns: NULL when out of memory. */
static struct pool_bands *read_all_bands(const struct pick_admin_pools *list, struct arena *arena) {
    struct pool_bands *all = arena_calloc(arena, list->n + 1, sizeof(*all));
    struct flow_band_stats *space = arena_alloc(arena, POOL_MAX_LISTED_BANDS * sizeof(*space));
    for (size_t i = 0; all && space && i < list->n; i++) {
        struct pool_flow_stats numbers;
        all[i].pool = &list->items[i];
        pool_get_flow_stats(all[i].pool->entry->pool, space, POOL_MAX_LISTED_BANDS, &numbers);
        all[i].bands = arena_alloc(arena, (numbers.n_bands + 1) * sizeof(*space));
        if (all[i].bands && numbers.n_bands > 0) {
            memcpy(all[i].bands, space, numbers.n_bands * sizeof(*space));
            all[i].n = numbers.n_bands;
        }
    }
    return space ? all : NULL;
}

static struct buf band_labels(const struct metric_text *text, const struct pool_bands *pool,
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

static uint64_t band_waiting_of(const struct flow_band_stats *band) {
    return band->n_waiting;
}
static uint64_t band_bytes_of(const struct flow_band_stats *band) {
    return band->n_bytes;
}

static void print_band_gauge(struct metric_text *text, const struct pool_bands *all, size_t n,
                             enum metric_family family,
                             uint64_t (*value_of)(const struct flow_band_stats *band)) {
    metric_family_begin(text, family);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < all[i].n; k++) {
            struct buf labels = band_labels(text, &all[i], all[i].bands[k].priority, NULL);
            metric_text_u64(text, buf_str(&labels), value_of(&all[i].bands[k]));
        }
    }
}

/* Requests rejected with a full queue have not waited. */
static void print_band(struct metric_text *text, const struct pool_bands *pool,
                       const struct flow_band_stats *band) {
    static const char *const outcomes[] = {[FLOW_DISPATCHED] = "Dispatched",
                                           [FLOW_EXPIRED] = "EvictedTTL",
                                           [FLOW_ABORTED] = "EvictedContextCancelled",
                                           [FLOW_REFUSED] = "RejectedOther",
                                           [FLOW_DISPLACED] = "EvictedOther"};
    struct metric_distribution full = {.buckets = {band->n_full}, .count = band->n_full};
    struct buf labels = band_labels(text, pool, band->priority, "RejectedCapacity");
    metric_text_distribution(text, buf_str(&labels), &full, METRIC_UNIT_SECONDS, FIRST_WAIT,
                             LAST_WAIT);
    for (size_t i = 0; i < N_FLOW_OUTCOMES; i++) {
        labels = band_labels(text, pool, band->priority, outcomes[i]);
        metric_text_distribution(text, buf_str(&labels), &band->waited[i], METRIC_UNIT_SECONDS,
                                 FIRST_WAIT, LAST_WAIT);
    }
}

static void print_flow_control(const struct pick_admin_pools *list, struct metric_text *text) {
    const struct pool_bands *all = read_all_bands(list, text->out->arena);
    size_t n = all ? list->n : 0;
    print_band_gauge(text, all, n, METRIC_FAMILY_UPSTREAM_FLOW_SIZE, band_waiting_of);
    print_band_gauge(text, all, n, METRIC_FAMILY_UPSTREAM_FLOW_BYTES, band_bytes_of);
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_FLOW_TIME);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < all[i].n; k++) {
            print_band(text, &all[i], &all[i].bands[k]);
        }
    }
}

/* ---- durations ------------------------------------------------------------------------------- */

static void print_scheduler_times(const struct upstream_page *page,
                                  const struct pick_service *service) {
    enum { LAST_PICK_TIME = 17 };
    struct metric_distribution times[N_PICK_TIMES];
    pick_times_read(service, times);
    struct metric_distribution *sum = &times[PICK_TIME_HEADERS];
    metric_distribution_add(sum, &times[PICK_TIME_BODY]);
    metric_family_begin(page->text, METRIC_FAMILY_UPSTREAM_SCHEDULER_TIME);
    metric_text_distribution(page->text, STR(""), sum, METRIC_UNIT_SECONDS, 0, LAST_PICK_TIME);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Begins the labels: with `pool` if pools are named. */
static struct buf begin_row(const struct upstream_page *page, const struct pick_stats_sum *row) {
    struct buf labels;
    buf_init(&labels, page->text->out->arena, row->pool.len + row->model.len + 192);
    if (page->list->named) {
        metric_label_add(&labels, "pool", row->pool);
    }
    metric_label_add(&labels, "model_name", row->model);
    return labels;
}

static struct str labels_of_row(const struct upstream_page *page,
                                const struct pick_stats_sum *row) {
    struct buf labels = begin_row(page, row);
    metric_label_add(&labels, "target_model_name", row->target);
    return buf_str(&labels);
}

static void print_errors(const struct upstream_page *page, const struct pick_stats_sum *row) {
    for (size_t status = 0; status < ST_COUNT_; status++) {
        if (row->n_refused[status] > 0) {
            struct buf labels = begin_row(page, row);
            metric_label_add(&labels, "target_model_name", row->target);
            metric_label_add(&labels, "error_code", str_of(status_name((enum status)status)));
            metric_text_u64(page->text, buf_str(&labels), row->n_refused[status]);
        }
    }
}

/* Rows are sorted, so those of one model are adjacent. */
static void print_running(const struct upstream_page *page, const struct pick_stats_sum *rows,
                          size_t n) {
    metric_family_begin(page->text, METRIC_FAMILY_UPSTREAM_RUNNING);
    for (size_t i = 0, next; i < n; i = next) {
        uint64_t n_running = 0;
        for (next = i; next < n && str_eq(rows[next].model, rows[i].model) &&
                       str_eq(rows[next].pool, rows[i].pool);
             next++) {
            n_running += rows[next].n_running;
        }
        struct buf labels = begin_row(page, &rows[i]);
        metric_text_u64(page->text, buf_str(&labels), n_running);
    }
}

static void print_models(const struct upstream_page *page, const struct pick_service *service) {
    enum { FIRST_REQUEST_TIME = 9, LAST_REQUEST_TIME = METRIC_BOUNDS - 1 };
    struct metric_text *text = page->text;
    const struct pick_stats *ledgers[PICK_MAX_STATS];
    size_t n = 0, n_ledgers = pick_service_stats(service, ledgers);
    struct pick_stats_sum *rows = NULL;
    struct error err;
    if (pick_stats_sum_all(ledgers, n_ledgers, text->out->arena, &rows, &n, &err) != ST_OK) {
        text->out->failed = true;
        return;
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_REQUESTS);
    for (size_t i = 0; i < n; i++) {
        metric_text_u64(text, labels_of_row(page, &rows[i]), rows[i].n_picked);
    }
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_ERRORS);
    for (size_t i = 0; i < n; i++) {
        print_errors(page, &rows[i]);
    }
    print_running(page, rows, n);
    metric_family_begin(text, METRIC_FAMILY_UPSTREAM_REQUEST_TIME);
    for (size_t i = 0; i < n; i++) {
        metric_text_distribution(text, labels_of_row(page, &rows[i]), &rows[i].times,
                                 METRIC_UNIT_SECONDS, FIRST_REQUEST_TIME, LAST_REQUEST_TIME);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

void upstream_requests_print(const struct upstream_page *page, const struct pick_service *service) {
    if (page->has_deprecated) {
        print_flow_control(page->list, page->text);
        print_scheduler_times(page, service);
        print_models(page, service);
    }
}

/* The families of requests under upstream's names: flow control, durations, and those by model. */
#include "program/picker/upstream_page.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pick/pool/flow/wait.h"

/* ---- request queues ---------------------------------------------------------------- */

enum { FIRST_WAIT = 6, LAST_WAIT = METRIC_BOUNDS - 1 }; /* 64 us to 33.6 s */

/* Upstream's names of the ends of a wait. */
static const char *const WAIT_OUTCOMES[] = {
    [FLOW_DISPATCHED] = "Dispatched",           [FLOW_EXPIRED] = "EvictedTTL",
    [FLOW_ABORTED] = "EvictedContextCancelled", [FLOW_REFUSED] = "RejectedOther",
    [FLOW_DISPLACED] = "EvictedOther",          [N_FLOW_OUTCOMES] = "RejectedCapacity"};

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
    struct metric_distribution full = {.buckets = {band->n_full}, .count = band->n_full};
    struct buf labels = band_labels(text, pool, band->priority, "RejectedCapacity");
    metric_text_distribution(text, buf_str(&labels), &full, METRIC_UNIT_SECONDS, FIRST_WAIT,
                             LAST_WAIT);
    for (size_t i = 0; i < N_FLOW_OUTCOMES; i++) {
        labels = band_labels(text, pool, band->priority, WAIT_OUTCOMES[i]);
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

/* ---- labels of rows -------------------------------------------------------------------------- */

/* Which labels a family has, in their order. */
enum label_set {
    LABELS_OF_REQUEST, /* model, target, fairness id, priority */
    LABELS_OF_QUEUE,   /* fairness id, priority, pool, model, target */
    LABELS_OF_MODEL,   /* model, target */
};

/* With `pool` in front if pools are named. */
static struct buf begin_row(const struct upstream_page *page, const struct pick_stats_key *key) {
    struct buf labels;
    buf_init(&labels, page->text->out->arena,
             key->pool.len + key->model.len + key->target.len + key->fairness_id.len + 192);
    if (page->list->named) {
        metric_label_add(&labels, "pool", key->pool);
    }
    return labels;
}

static void add_model(struct buf *labels, const struct pick_stats_key *key) {
    metric_label_add(labels, "model_name", key->model);
    metric_label_add(labels, "target_model_name", key->target);
}

static void add_flow(struct buf *labels, const struct pick_stats_key *key) {
    char text[32];
    int n = snprintf(text, sizeof(text), "%" PRId64, key->priority);
    metric_label_add(labels, "fairness_id", key->fairness_id);
    metric_label_add(labels, "priority", str_make(text, (size_t)n));
}

static struct buf labels_of(const struct upstream_page *page, const struct pick_stats_key *key,
                            enum label_set set) {
    struct buf labels = begin_row(page, key);
    switch (set) {
    case LABELS_OF_REQUEST:
        add_model(&labels, key);
        add_flow(&labels, key);
        break;
    case LABELS_OF_QUEUE:
        add_flow(&labels, key);
        metric_label_add(&labels, "inference_pool", key->pool);
        add_model(&labels, key);
        break;
    case LABELS_OF_MODEL:
        add_model(&labels, key);
        break;
    }
    return labels;
}

/* The rows of all workers. */
struct rows {
    struct pick_stats_sum *items;
    size_t n;
};

/* ---- numbers of rows ------------------------------------------------------------------------- */

static uint64_t picked_of(const struct pick_stats_sum *row) {
    return row->n_picked;
}
static uint64_t running_of(const struct pick_stats_sum *row) {
    return row->n_running;
}
static uint64_t queued_of(const struct pick_stats_sum *row) {
    return row->n_queued;
}
static uint64_t queued_bytes_of(const struct pick_stats_sum *row) {
    return row->n_bytes_queued;
}

static const struct row_number {
    enum metric_family family;
    enum label_set labels;
    uint64_t (*value_of)(const struct pick_stats_sum *row);
} NUMBERS[] = {
    {METRIC_FAMILY_EPP_REQUESTS, LABELS_OF_REQUEST, picked_of},
    {METRIC_FAMILY_EPP_RUNNING, LABELS_OF_REQUEST, running_of},
    {METRIC_FAMILY_EPP_QUEUE_SIZE, LABELS_OF_QUEUE, queued_of},
    {METRIC_FAMILY_EPP_QUEUE_BYTES, LABELS_OF_QUEUE, queued_bytes_of},
};

static void print_number(const struct upstream_page *page, const struct rows *rows,
                         const struct row_number *number) {
    metric_family_begin(page->text, number->family);
    for (size_t i = 0; i < rows->n; i++) {
        const struct pick_stats_sum *row = &rows->items[i];
        if (number->labels != LABELS_OF_QUEUE || row->was_queued) {
            struct buf labels = labels_of(page, &row->key, number->labels);
            metric_text_u64(page->text, buf_str(&labels), number->value_of(row));
        }
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Upstream's codes. */
static const struct {
    const char *name;
    int http; /* the status of a refusal; 0: the next, lower one is that of all others */
} ERROR_CODES[] = {{"NotFound", 404},          {"PreconditionFailed", 412},
                   {"ResourceExhausted", 429}, {"ServiceUnavailable", 503},
                   {"Internal", 500},          {"BadRequest", 400}};

static size_t error_code_of(enum status status) {
    size_t n = sizeof ERROR_CODES / sizeof ERROR_CODES[0];
    int http = status_http(status);
    for (size_t i = 0; i < n; i++) {
        if (ERROR_CODES[i].http == http) {
            return i;
        }
    }
    return http >= 500 ? n - 2 : n - 1;
}

static void print_error(const struct upstream_page *page, const struct pick_stats_key *key,
                        const char *code, uint64_t n) {
    if (n > 0) {
        struct buf labels = labels_of(page, key, LABELS_OF_REQUEST);
        metric_label_add(&labels, "error_code", str_of(code));
        metric_text_u64(page->text, buf_str(&labels), n);
    }
}

static void print_errors(const struct upstream_page *page, const struct rows *rows) {
    metric_family_begin(page->text, METRIC_FAMILY_EPP_ERRORS);
    for (size_t i = 0; i < rows->n; i++) {
        const struct pick_stats_sum *row = &rows->items[i];
        uint64_t counts[sizeof ERROR_CODES / sizeof ERROR_CODES[0]] = {0};
        for (size_t status = 0; status < ST_COUNT_; status++) {
            counts[error_code_of((enum status)status)] += row->n_refused[status];
        }
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            print_error(page, &row->key, ERROR_CODES[k].name, counts[k]);
        }
        print_error(page, &row->key, "ModelServerError", row->n_server_errors);
    }
}

/* ---- stages ---------------------------------------------------------------------------------- */

static const struct profile_handler *find_handler(const struct upstream_page *page,
                                                  struct str pool) {
    for (size_t i = 0; i < page->list->n; i++) {
        const struct pick_admin_pool *item = &page->list->items[i];
        const struct profile_handler *handler = item->snapshot->spec->handler;
        if (handler && handler->is_disagg && str_eq(pick_admin_pool_name(item), pool)) {
            return handler;
        }
    }
    return NULL;
}

/* A sum over rows of one pool and model: the labels have no more. */
static void print_decision(const struct upstream_page *page, const struct pick_stats_key *key,
                           const struct profile_handler *handler, const uint64_t *counts) {
    static const char *const types[N_PICK_DECISIONS] = {[PICK_DECODE_ONLY] = "decode-only",
                                                        [PICK_PREFILL_DECODE] = "prefill-decode",
                                                        [PICK_ENCODE_DECODE] = "encode-decode",
                                                        [PICK_ENCODE_PREFILL_DECODE] =
                                                            "encode-prefill-decode"};
    for (size_t i = 0; i < N_PICK_DECISIONS; i++) {
        if (counts[i] > 0) {
            struct buf labels = begin_row(page, key);
            metric_label_add(&labels, "plugin_name", handler->name);
            metric_label_add(&labels, "plugin_type", handler->type);
            metric_label_add(&labels, "model_name", key->model);
            metric_label_add(&labels, "decision_type", str_of(types[i]));
            metric_text_u64(page->text, buf_str(&labels), counts[i]);
        }
    }
}

/* Rows are sorted by pool and model. A configuration without such a handler has no family. */
static void print_decisions(const struct upstream_page *page, const struct rows *rows) {
    bool begun = false;
    for (size_t i = 0, next; i < rows->n; i = next) {
        const struct pick_stats_key *key = &rows->items[i].key;
        const struct profile_handler *handler = find_handler(page, key->pool);
        uint64_t counts[N_PICK_DECISIONS] = {0};
        for (next = i; next < rows->n && pick_stats_compare(key, &rows->items[next].key, 2) == 0;
             next++) {
            for (size_t k = 0; k < N_PICK_DECISIONS; k++) {
                counts[k] += rows->items[next].n_decisions[k];
            }
        }
        if (handler && !begun) {
            metric_family_begin(page->text, METRIC_FAMILY_EPP_DECISIONS);
            begun = true;
        }
        if (handler) {
            print_decision(page, key, handler, counts);
        }
    }
}

/* ---- histograms of rows ---------------------------------------------------------------------- */

static const struct row_histogram {
    enum metric_family family;
    enum pick_histogram which;
    const char *label, *value; /* a further label; NULL: none */
    bool continues;            /* the family of the histogram before */
} HISTOGRAMS[] = {
    {METRIC_FAMILY_EPP_REQUEST_TIME, PICK_HISTOGRAM_DURATION, NULL, NULL, false},
    {METRIC_FAMILY_EPP_REQUEST_BYTES, PICK_HISTOGRAM_REQUEST_BYTES, NULL, NULL, false},
    {METRIC_FAMILY_EPP_RESPONSE_BYTES, PICK_HISTOGRAM_RESPONSE_BYTES, NULL, NULL, false},
    {METRIC_FAMILY_EPP_INPUT_TOKENS, PICK_HISTOGRAM_INPUT_TOKENS, NULL, NULL, false},
    {METRIC_FAMILY_EPP_OUTPUT_TOKENS, PICK_HISTOGRAM_OUTPUT_TOKENS, NULL, NULL, false},
    {METRIC_FAMILY_EPP_CACHED_TOKENS, PICK_HISTOGRAM_CACHED_TOKENS, NULL, NULL, false},
    {METRIC_FAMILY_EPP_TIME_PER_TOKEN, PICK_HISTOGRAM_TIME_PER_TOKEN, NULL, NULL, false},
    {METRIC_FAMILY_EPP_FIRST_TOKEN, PICK_HISTOGRAM_FIRST_TOKEN, "streaming", "false", false},
    {METRIC_FAMILY_EPP_FIRST_TOKEN, PICK_HISTOGRAM_FIRST_TOKEN_STREAMED, "streaming", "true", true},
    {METRIC_FAMILY_EPP_STREAMED_TOKEN, PICK_HISTOGRAM_STREAMED_TOKEN, NULL, NULL, false},
    {METRIC_FAMILY_EPP_BETWEEN_CHUNKS, PICK_HISTOGRAM_BETWEEN_CHUNKS, NULL, NULL, false},
};

static void print_histogram(const struct upstream_page *page, const struct rows *rows,
                            const struct row_histogram *histogram) {
    if (!histogram->continues) {
        metric_family_begin(page->text, histogram->family);
    }
    for (size_t i = 0; i < rows->n; i++) {
        const uint64_t *counts = rows->items[i].histograms[histogram->which];
        if (counts) {
            struct buf labels = labels_of(page, &rows->items[i].key, LABELS_OF_REQUEST);
            if (histogram->label) {
                metric_label_add(&labels, histogram->label, str_of(histogram->value));
            }
            metric_text_scale(page->text, buf_str(&labels), pick_histogram_scale(histogram->which),
                              counts);
        }
    }
}

/* ---- waits ----------------------------------------------------------------------------------- */

static void print_waits_of_row(const struct upstream_page *page, const struct pick_stats_sum *row) {
    for (size_t outcome = 0; outcome <= N_FLOW_OUTCOMES; outcome++) {
        enum pick_histogram which = PICK_HISTOGRAM_QUEUED + (enum pick_histogram)outcome;
        if (row->histograms[which]) {
            struct buf labels = begin_row(page, &row->key);
            add_flow(&labels, &row->key);
            metric_label_add(&labels, "outcome", str_of(WAIT_OUTCOMES[outcome]));
            metric_label_add(&labels, "inference_pool", row->key.pool);
            add_model(&labels, &row->key);
            metric_text_scale(page->text, buf_str(&labels), pick_histogram_scale(which),
                              row->histograms[which]);
        }
    }
}

static void print_waits(const struct upstream_page *page, const struct rows *rows) {
    metric_family_begin(page->text, METRIC_FAMILY_EPP_QUEUE_TIME);
    for (size_t i = 0; i < rows->n; i++) {
        print_waits_of_row(page, &rows->items[i]);
    }
}

/* By pool, fairness id and priority: the labels have no more. */
static int compare_flows(const void *a, const void *b) {
    const struct pick_stats_key *one = &(*(const struct pick_stats_sum *const *)a)->key;
    const struct pick_stats_key *other = &(*(const struct pick_stats_sum *const *)b)->key;
    int order = str_compare(one->pool, other->pool);
    order = order != 0 ? order : str_compare(one->fairness_id, other->fairness_id);
    return order != 0                        ? order
           : one->priority < other->priority ? -1
                                             : one->priority > other->priority;
}

static void add_counts(const struct pick_stats_sum *row, enum pick_histogram which,
                       uint64_t *counts) {
    unsigned n = row->histograms[which] ? metric_scale_cells(pick_histogram_scale(which)) : 0;
    for (unsigned i = 0; i < n; i++) {
        counts[i] += row->histograms[which][i];
    }
}

static void print_enqueued_of(const struct upstream_page *page, struct pick_stats_sum *const *rows,
                              size_t n, enum pick_histogram which, const char *outcome) {
    uint64_t counts[PICK_SHORT_TIME_CELLS] = {0};
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        add_counts(rows[i], which, counts);
        any = any || rows[i]->histograms[which];
    }
    if (any) {
        struct buf labels = begin_row(page, &rows[0]->key);
        add_flow(&labels, &rows[0]->key);
        metric_label_add(&labels, "outcome", str_of(outcome));
        metric_text_scale(page->text, buf_str(&labels), pick_histogram_scale(which), counts);
    }
}

static void print_enqueued(const struct upstream_page *page, const struct rows *rows) {
    struct pick_stats_sum **sorted =
        arena_alloc(page->text->out->arena, (rows->n + 1) * sizeof(struct pick_stats_sum *));
    metric_family_begin(page->text, METRIC_FAMILY_EPP_ENQUEUE_TIME);
    if (!sorted) {
        page->text->out->failed = true;
        return;
    }
    for (size_t i = 0; i < rows->n; i++) {
        sorted[i] = &rows->items[i];
    }
    qsort(sorted, rows->n, sizeof(struct pick_stats_sum *), compare_flows);
    for (size_t i = 0, next; i < rows->n; i = next) {
        for (next = i; next < rows->n && compare_flows(&sorted[i], &sorted[next]) == 0; next++) {
        }
        print_enqueued_of(page, &sorted[i], next - i, PICK_HISTOGRAM_ENQUEUED, "NotYetFinalized");
        print_enqueued_of(page, &sorted[i], next - i, PICK_HISTOGRAM_NOT_ENQUEUED,
                          "RejectedCapacity");
    }
}

/* ---- picks by endpoint ----------------------------------------------------------------------- */

/* Endpoints keep only a hash of the model's name; each has a row. */
static struct str find_target(const struct rows *rows, uint64_t hash) {
    for (size_t i = 0; i < rows->n; i++) {
        if (rows->items[i].target_hash == hash) {
            return rows->items[i].key.target;
        }
    }
    return PICK_LABEL_OTHER;
}

static void print_attempts(const struct upstream_page *page, struct buf *labels, const char *status,
                           const char *endpoint_label, const struct pool_member *member,
                           struct str target, uint64_t n) {
    char port[16];
    int n_port = member ? snprintf(port, sizeof(port), "%u", member->address.port) : 0;
    struct str name = !member                    ? STR("")
                      : member->name.pod.len > 0 ? member->name.pod
                                                 : endpoint_text(member->endpoint);
    metric_label_add(labels, "status", str_of(status));
    metric_label_add(labels, "target_model_name", target);
    metric_label_add(labels, endpoint_label, name);
    metric_label_add(labels, "namespace", member ? member->name.name_space : STR(""));
    metric_label_add(labels, "port", str_make(port, (size_t)n_port));
    metric_text_u64(page->text, buf_str(labels), n);
}

static void print_endpoint_attempts(const struct upstream_page *page, const struct rows *rows,
                                    const struct pick_admin_pool *pool,
                                    const struct pool_member *member, const char *endpoint_label) {
    const struct endpoint_targets *targets = &member->endpoint->targets;
    for (size_t i = 0; i <= ENDPOINT_MAX_TARGETS; i++) {
        bool is_last = i == ENDPOINT_MAX_TARGETS;
        uint64_t n = is_last ? targets->n_others : targets->n_picked[i];
        if (n > 0) {
            struct buf labels;
            pick_admin_pool_begin_labels(page->text, page->list, pool, &labels);
            print_attempts(page, &labels, "success", endpoint_label, member,
                           is_last ? PICK_LABEL_OTHER : find_target(rows, targets->hashes[i]), n);
        }
    }
}

static int compare_targets(const void *a, const void *b) {
    const struct pick_stats_sum *const *one = a, *const *other = b;
    struct pick_stats_key left = {.pool = (*one)->key.pool, .model = (*one)->key.target};
    struct pick_stats_key right = {.pool = (*other)->key.pool, .model = (*other)->key.target};
    return pick_stats_compare(&left, &right, 2);
}

/* Several rows may have a target: of other models, fairness ids and priorities. */
static void print_failed_attempts(const struct upstream_page *page, const struct rows *rows,
                                  const char *endpoint_label) {
    const struct pick_stats_sum **failed =
        arena_calloc(page->text->out->arena, rows->n + 1, sizeof(const struct pick_stats_sum *));
    size_t n_failed = 0;
    for (size_t i = 0; failed && i < rows->n; i++) {
        if (rows->items[i].n_refused[ST_NO_ENDPOINT] > 0) {
            failed[n_failed++] = &rows->items[i];
        }
    }
    if (n_failed > 0) {
        qsort(failed, n_failed, sizeof(*failed), compare_targets);
    }
    for (size_t i = 0, next; i < n_failed; i = next) {
        uint64_t n = 0;
        for (next = i; next < n_failed && compare_targets(&failed[i], &failed[next]) == 0; next++) {
            n += failed[next]->n_refused[ST_NO_ENDPOINT];
        }
        struct buf labels = begin_row(page, &failed[i]->key);
        print_attempts(page, &labels, "failure", endpoint_label, NULL, failed[i]->key.target, n);
    }
}

static void print_all_attempts(const struct upstream_page *page, const struct rows *rows,
                               enum metric_family family, const char *endpoint_label) {
    metric_family_begin(page->text, family);
    for (size_t i = 0; i < page->list->n; i++) {
        const struct pool_snapshot *snapshot = page->list->items[i].snapshot;
        for (uint32_t k = 0; k < snapshot->n_members; k++) {
            print_endpoint_attempts(page, rows, &page->list->items[i], &snapshot->members[k],
                                    endpoint_label);
        }
    }
    print_failed_attempts(page, rows, endpoint_label);
}

/* ---- streams and durations ------------------------------------------------------------------- */

static void print_worker_histogram(const struct upstream_page *page, enum metric_family family,
                                   const struct metric_scale *scale, size_t offset,
                                   const struct pick_stats *const *ledgers, size_t n) {
    uint64_t counts[PICK_STREAM_TIME_CELLS] = {0}; /* the longer one */
    for (size_t i = 0; i < n; i++) {
        metric_scale_read(scale, (const void *)((const char *)ledgers[i] + offset), counts);
    }
    metric_family_begin(page->text, family);
    metric_text_scale(page->text, STR(""), scale, counts);
}

static void print_streams(const struct upstream_page *page, const struct pick_stats *const *ledgers,
                          size_t n) {
    static const char *const codes[PICK_GRPC_CODES] = {
        "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
        "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
        "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
        "DataLoss", "Unauthenticated"};
    metric_family_begin(page->text, METRIC_FAMILY_EPP_STREAMS);
    for (size_t code = 0; code < PICK_GRPC_CODES; code++) {
        uint64_t n_ended = 0;
        for (size_t i = 0; i < n; i++) {
            n_ended += metric_cell_read(&ledgers[i]->n_streams[code]);
        }
        if (n_ended > 0 || code == 0) {
            struct buf labels = upstream_one_label(page, "code", str_of(codes[code]));
            metric_text_u64(page->text, buf_str(&labels), n_ended);
        }
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_OPEN_STREAMS);
    metric_text_i64(page->text, STR(""), metric_read(METRIC_PICK_STREAMS));
    print_worker_histogram(page, METRIC_FAMILY_EPP_STREAM_TIME, &PICK_STREAM_TIMES,
                           offsetof(struct pick_stats, stream_times), ledgers, n);
    print_worker_histogram(page, METRIC_FAMILY_EPP_DISPATCH_TIME, &PICK_SHORT_TIMES,
                           offsetof(struct pick_stats, dispatch_times), ledgers, n);
    print_worker_histogram(page, METRIC_FAMILY_EPP_SCHEDULER_TIME, &PICK_SHORT_TIMES,
                           offsetof(struct pick_stats, scheduler_times), ledgers, n);
    if (page->has_deprecated) {
        print_worker_histogram(page, METRIC_FAMILY_UPSTREAM_SCHEDULER_TIME, &PICK_SHORT_TIMES,
                               offsetof(struct pick_stats, scheduler_times), ledgers, n);
    }
}

/* ---- deprecated families of models ----------------------------------------------------------- */

/* They have no fairness id and no priority. Rows are sorted, so those of one model are adjacent. */
static void merge_rows(struct rows *rows) {
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (n > 0 && pick_stats_compare(&rows->items[n - 1].key, &rows->items[i].key, 3) == 0) {
            pick_stats_sum_add(&rows->items[n - 1], &rows->items[i]);
        } else {
            rows->items[n++] = rows->items[i];
        }
    }
    rows->n = n;
}

static void print_deprecated_errors(const struct upstream_page *page, const struct rows *rows) {
    metric_family_begin(page->text, METRIC_FAMILY_UPSTREAM_ERRORS);
    for (size_t i = 0; i < rows->n; i++) {
        const struct pick_stats_sum *row = &rows->items[i];
        for (size_t status = 0; status < ST_COUNT_; status++) {
            if (row->n_refused[status] > 0) {
                struct buf labels = labels_of(page, &row->key, LABELS_OF_MODEL);
                metric_label_add(&labels, "error_code", str_of(status_name((enum status)status)));
                metric_text_u64(page->text, buf_str(&labels), row->n_refused[status]);
            }
        }
    }
}

static void print_deprecated_running(const struct upstream_page *page, const struct rows *rows) {
    metric_family_begin(page->text, METRIC_FAMILY_UPSTREAM_RUNNING);
    for (size_t i = 0, next; i < rows->n; i = next) {
        const struct pick_stats_key *key = &rows->items[i].key;
        uint64_t n_running = 0;
        for (next = i; next < rows->n && pick_stats_compare(&rows->items[next].key, key, 2) == 0;
             next++) {
            n_running += rows->items[next].n_running;
        }
        struct buf labels = begin_row(page, key);
        metric_label_add(&labels, "model_name", key->model);
        metric_text_u64(page->text, buf_str(&labels), n_running);
    }
}

/* `rows` are merged: they are not used after this. */
static void print_deprecated_models(const struct upstream_page *page, struct rows *rows) {
    merge_rows(rows);
    metric_family_begin(page->text, METRIC_FAMILY_UPSTREAM_REQUESTS);
    for (size_t i = 0; i < rows->n; i++) {
        struct buf labels = labels_of(page, &rows->items[i].key, LABELS_OF_MODEL);
        metric_text_u64(page->text, buf_str(&labels), rows->items[i].n_picked);
    }
    print_deprecated_errors(page, rows);
    print_deprecated_running(page, rows);
    metric_family_begin(page->text, METRIC_FAMILY_UPSTREAM_REQUEST_TIME);
    for (size_t i = 0; i < rows->n; i++) {
        const uint64_t *counts = rows->items[i].histograms[PICK_HISTOGRAM_DURATION];
        if (counts) {
            struct buf labels = labels_of(page, &rows->items[i].key, LABELS_OF_MODEL);
            metric_text_scale(page->text, buf_str(&labels),
                              pick_histogram_scale(PICK_HISTOGRAM_DURATION), counts);
        }
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void print_rows(const struct upstream_page *page, struct rows *rows) {
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        print_number(page, rows, &NUMBERS[i]);
    }
    print_errors(page, rows);
    print_decisions(page, rows);
    print_all_attempts(page, rows, METRIC_FAMILY_EPP_ATTEMPTS, "endpoint_name");
    if (page->has_deprecated) {
        print_all_attempts(page, rows, METRIC_FAMILY_UPSTREAM_ATTEMPTS, "pod_name");
    }
    for (size_t i = 0; i < sizeof HISTOGRAMS / sizeof HISTOGRAMS[0]; i++) {
        print_histogram(page, rows, &HISTOGRAMS[i]);
    }
    print_waits(page, rows);
    print_enqueued(page, rows);
    if (page->has_deprecated) {
        print_deprecated_models(page, rows);
    }
}

void upstream_requests_print(const struct upstream_page *page, struct pick_workers *workers) {
    const struct pick_stats *ledgers[PICK_MAX_WORKERS];
    size_t n_ledgers = pick_workers_stats(workers, ledgers);
    struct rows rows = {NULL, 0};
    struct error err;
    if (pick_stats_sum_all(ledgers, n_ledgers, page->text->out->arena, &rows.items, &rows.n,
                           &err) != ST_OK) {
        page->text->out->failed = true;
        return;
    }
    print_streams(page, ledgers, n_ledgers);
    if (page->has_deprecated) {
        print_flow_control(page->list, page->text);
    }
    print_rows(page, &rows);
}

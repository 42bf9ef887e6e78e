/* The page /metrics. The counters of each version are read once, then written metric family by
 * family, which both text formats require. Names and help texts are in core/base/metric/metric.def.
 */
#include "serve/admin/routes.h"

#include <math.h>
#include <string.h>

#include "core/event/clock.h"
#include "serve/scheduler/statistics/custom_metrics.h"
#include "serve/scheduler/statistics/latency.h"
#include "serve/scheduler/statistics/recent.h"
#include "serve/scheduler/statistics/statistics.h"

/* The bounds shown of a time histogram: 32 us to 16.8 s. A size histogram begins at 1 and ends with
 * the largest batch that the model takes. */
enum { FIRST_TIME_BUCKET = 5, LAST_TIME_BUCKET = 24 };

enum { NS_PER_US = 1000 };

/* ---- reading --------------------------------------------------------------------------------- */

/* One model version that is ready. */
struct row {
    struct str labels;
    struct model_version *version; /* while the page is printed */
    uint64_t max_batch_size;
    struct model_statistics statistics;
    struct model_recent recent;
};

struct table {
    struct arena *arena;
    struct row *rows;
    size_t n, cap;
    uint64_t n_phase[REPOSITORY_PHASES];
    uint64_t n_queued, n_running, n_instances;
    struct model_recent highest; /* each of the model that has most */
    bool failed;                 /* out of memory */
};

static void count_entry(void *user, const struct repository_entry *entry) {
    struct table *table = user;
    table->n_phase[entry->phase]++;
}

/* `rows` has the capacity of the first pass: a model that became ready since then is in the next
 * scrape. */
static void read_entry(void *user, const struct repository_entry *entry) {
    struct table *table = user;
    if (entry->phase == REPOSITORY_UNLOADING) { /* it still has requests in flight */
        uint64_t n_queued, n_running, n_instances;
        model_version_gauges(entry->version, &n_queued, &n_running, &n_instances);
        table->n_queued += n_queued;
        table->n_running += n_running;
    }
    if (entry->phase != REPOSITORY_READY || table->n == table->cap) {
        return;
    }
    const struct model_spec *spec = model_version_spec(entry->version);
    struct row *row = &table->rows[table->n++];
    struct buf labels;
    buf_init(&labels, table->arena, spec->name.len + 64);
    metric_label_add(&labels, "model", spec->name);
    metric_label_add(&labels, "version", spec->version_text);
    table->failed = table->failed || labels.failed;
    row->labels = buf_str(&labels);
    row->version = entry->version;
    row->max_batch_size = spec->max_batch_size;
    model_version_statistics(entry->version, &row->statistics);
    table->n_queued += row->statistics.n_queued;
    table->n_running += row->statistics.n_running;
    table->n_instances += row->statistics.n_instances;
    model_version_recent(entry->version, &row->statistics, &row->recent);
    struct model_recent *highest = &table->highest;
    highest->utilization = fmax(highest->utilization, row->recent.utilization);
    highest->queue_ns =
        row->recent.queue_ns > highest->queue_ns ? row->recent.queue_ns : highest->queue_ns;
}

static void read_table(struct table *table, struct repository *repository, struct arena *arena) {
    *table = (struct table){.arena = arena};
    repository_visit(repository, count_entry, table);
    table->cap = table->n_phase[REPOSITORY_READY];
    table->rows = arena_calloc(arena, table->cap, sizeof(*table->rows));
    table->failed = table->rows == NULL;
    if (table->rows) {
        repository_visit(repository, read_entry, table);
    }
}

/* ---- families without models ----------------------------------------------------------------- */

static void print_u64(struct metric_text *text, enum metric_family family, uint64_t value) {
    metric_family_begin(text, family);
    metric_text_u64(text, STR(""), value);
}

static double seconds_of(uint64_t ns) {
    return (double)ns / 1e9;
}

static void print_f64(struct metric_text *text, enum metric_family family, double value) {
    metric_family_begin(text, family);
    metric_text_f64(text, STR(""), value);
}

static void print_totals(struct metric_text *text, const struct table *table,
                         const struct repository *repository) {
    print_u64(text, METRIC_FAMILY_QUEUED, table->n_queued);
    print_u64(text, METRIC_FAMILY_RUNNING, table->n_running);
    print_u64(text, METRIC_FAMILY_INSTANCES, table->n_instances);
    print_f64(text, METRIC_FAMILY_QUEUE_TIME_NOW, seconds_of(table->highest.queue_ns));
    print_f64(text, METRIC_FAMILY_UTILIZATION, table->highest.utilization);
    metric_family_begin(text, METRIC_FAMILY_MODELS);
    for (int i = 0; i < REPOSITORY_PHASES; i++) {
        struct buf labels;
        buf_init(&labels, text->out->arena, 32);
        metric_label_add(&labels, "state", str_of(repository_phase_name((enum repository_phase)i)));
        metric_text_u64(text, buf_str(&labels), table->n_phase[i]);
    }
    print_u64(text, METRIC_FAMILY_REPOSITORIES_UNAVAILABLE,
              repository_count_unavailable(repository));
}

/* ---- families of models ---------------------------------------------------------------------- */

#define MEMBER(member) offsetof(struct model_statistics, member)

/* Families with one number for each version. */
static const struct column {
    enum metric_family family;
    size_t member; /* an uint64_t of struct model_statistics */
    uint64_t divisor;
    bool only_cached; /* only versions with a response cache have it; without any, it is left out */
} COLUMNS[] = {
    {METRIC_FAMILY_SUCCESS, MEMBER(success.count), 1, false},
    {METRIC_FAMILY_INFERENCES, MEMBER(n_inferences), 1, false},
    {METRIC_FAMILY_EXECUTIONS, MEMBER(n_executions), 1, false},
    {METRIC_FAMILY_REQUEST_DURATION, MEMBER(success.ns), NS_PER_US, false},
    {METRIC_FAMILY_QUEUE_DURATION, MEMBER(queue.ns), NS_PER_US, false},
    {METRIC_FAMILY_INPUT_DURATION, MEMBER(compute.input_ns), NS_PER_US, false},
    {METRIC_FAMILY_INFER_DURATION, MEMBER(compute.infer_ns), NS_PER_US, false},
    {METRIC_FAMILY_OUTPUT_DURATION, MEMBER(compute.output_ns), NS_PER_US, false},
    {METRIC_FAMILY_CACHE_HITS, MEMBER(cache_hit.count), 1, .only_cached = true},
    {METRIC_FAMILY_CACHE_MISSES, MEMBER(cache_miss.count), 1, .only_cached = true},
    {METRIC_FAMILY_CACHE_HIT_DURATION, MEMBER(cache_hit.ns), NS_PER_US, .only_cached = true},
    {METRIC_FAMILY_CACHE_MISS_DURATION, MEMBER(cache_miss.ns), NS_PER_US, .only_cached = true},
    {METRIC_FAMILY_PENDING, MEMBER(n_queued), 1, false},
    {METRIC_FAMILY_MODEL_RUNNING, MEMBER(n_running), 1, false},
    {METRIC_FAMILY_MODEL_INSTANCES, MEMBER(n_instances), 1, false},
    {METRIC_FAMILY_MODEL_BUSY, MEMBER(n_busy), 1, false},
};

static bool any_caches(const struct table *table) {
    for (size_t i = 0; i < table->n; i++) {
        if (table->rows[i].statistics.caches) {
            return true;
        }
    }
    return false;
}

static void print_column(struct metric_text *text, const struct table *table,
                         const struct column *column) {
    if (column->only_cached && !any_caches(table)) {
        return; /* clients look for the name, which the head would have */
    }
    metric_family_begin(text, column->family);
    for (size_t i = 0; i < table->n; i++) {
        const char *statistics = (const char *)&table->rows[i].statistics;
        uint64_t value;
        if (column->only_cached && !table->rows[i].statistics.caches) {
            continue;
        }
        memcpy(&value, statistics + column->member, sizeof(value));
        metric_text_u64(text, table->rows[i].labels, value / column->divisor);
    }
}

/* The labels are in the reference server's order: clients search for the text. */
static void print_failures(struct metric_text *text, const struct table *table) {
    metric_family_begin(text, METRIC_FAMILY_FAILURE);
    for (size_t i = 0; i < table->n; i++) {
        const struct model_spec *spec = model_version_spec(table->rows[i].version);
        for (int j = 0; j < STATISTICS_REASONS; j++) {
            const char *reason = statistics_reason_name((enum statistics_reason)j);
            struct buf labels;
            buf_init(&labels, text->out->arena, table->rows[i].labels.len + 32);
            metric_label_add(&labels, "model", spec->name);
            metric_label_add(&labels, "reason", str_of(reason));
            metric_label_add(&labels, "version", spec->version_text);
            metric_text_u64(text, buf_str(&labels), table->rows[i].statistics.failed[j]);
        }
    }
}

static void print_seconds(struct metric_text *text, const struct table *table,
                          enum metric_family family, size_t member) {
    metric_family_begin(text, family);
    for (size_t i = 0; i < table->n; i++) {
        uint64_t ns;
        memcpy(&ns, (const char *)&table->rows[i] + member, sizeof(ns));
        metric_text_f64(text, table->rows[i].labels, seconds_of(ns));
    }
}

static void print_utilization(struct metric_text *text, const struct table *table) {
    metric_family_begin(text, METRIC_FAMILY_MODEL_UTILIZATION);
    for (size_t i = 0; i < table->n; i++) {
        metric_text_f64(text, table->rows[i].labels, table->rows[i].recent.utilization);
    }
}

/* One histogram for each version, from the struct metric_distribution at offset `member` of struct
 * model_statistics. */
static void print_histogram(struct metric_text *text, const struct table *table,
                            enum metric_family family, size_t member, enum metric_unit unit) {
    metric_family_begin(text, family);
    for (size_t i = 0; i < table->n; i++) {
        const struct row *row = &table->rows[i];
        struct metric_distribution distribution;
        bool of_sizes = unit == METRIC_UNIT_ITEMS;
        unsigned last = of_sizes ? metric_bucket(row->max_batch_size) : LAST_TIME_BUCKET;
        memcpy(&distribution, (const char *)&row->statistics + member, sizeof(distribution));
        metric_text_distribution(text, row->labels, &distribution, unit,
                                 of_sizes ? 0 : FIRST_TIME_BUCKET, last);
    }
}

/* Counters of times, which --metrics-config counter_latencies=false leaves out. */
static bool is_latency(const struct column *column) {
    return column->divisor == NS_PER_US;
}

static void print_first_responses(struct metric_text *text, const struct table *table) {
    metric_family_begin(text, METRIC_FAMILY_FIRST_RESPONSE);
    for (size_t i = 0; i < table->n; i++) {
        uint64_t counts[LATENCY_MAX_BOUNDS + 2] = {0};
        const struct metric_scale *scale =
            model_version_first_responses(table->rows[i].version, counts);
        metric_text_scale(text, table->rows[i].labels, scale, counts);
    }
}

/* Summaries, with the counters that have their sums and counts. As in Triton, that of requests is
 * left out for models with a response cache, those of the cache for all others. */
static const struct summary {
    enum metric_family family;
    enum latency_kind kind;
    size_t ns, count; /* members of struct model_statistics */
    bool with_cache, without_cache;
} SUMMARIES[] = {
    {METRIC_FAMILY_REQUEST_SUMMARY, LATENCY_REQUEST, MEMBER(success.ns), MEMBER(success.count),
     false, true},
    {METRIC_FAMILY_QUEUE_SUMMARY, LATENCY_QUEUE, MEMBER(queue.ns), MEMBER(queue.count), true, true},
    {METRIC_FAMILY_INPUT_SUMMARY, LATENCY_INPUT, MEMBER(compute.input_ns), MEMBER(n_computed), true,
     true},
    {METRIC_FAMILY_INFER_SUMMARY, LATENCY_INFER, MEMBER(compute.infer_ns), MEMBER(n_computed), true,
     true},
    {METRIC_FAMILY_OUTPUT_SUMMARY, LATENCY_OUTPUT, MEMBER(compute.output_ns), MEMBER(n_computed),
     true, true},
    {METRIC_FAMILY_CACHE_HIT_SUMMARY, LATENCY_CACHE_HIT, MEMBER(cache_hit.ns),
     MEMBER(cache_hit.count), true, false},
    {METRIC_FAMILY_CACHE_MISS_SUMMARY, LATENCY_CACHE_MISS, MEMBER(cache_miss.ns),
     MEMBER(cache_miss.count), true, false},
};

static uint64_t member_of(const struct row *row, size_t member) {
    uint64_t value;
    memcpy(&value, (const char *)&row->statistics + member, sizeof(value));
    return value;
}

static bool applies_to(const struct summary *summary, const struct row *row) {
    return row->statistics.caches ? summary->with_cache : summary->without_cache;
}

static bool applies_to_any(const struct summary *summary, const struct table *table) {
    bool any = table->n == 0 && summary->without_cache;
    for (size_t i = 0; i < table->n && !any; i++) {
        any = applies_to(summary, &table->rows[i]);
    }
    return any;
}

static void print_summary(struct metric_text *text, const struct table *table,
                          const struct summary *summary, const struct latency_options *options) {
    uint64_t now_ns = clock_now_ns();
    metric_family_begin(text, summary->family);
    for (size_t i = 0; i < table->n; i++) {
        const struct row *row = &table->rows[i];
        uint64_t counts[LATENCY_BUCKETS] = {0};
        if (!applies_to(summary, row)) {
            continue;
        }
        model_version_latencies(row->version, summary->kind, now_ns, counts);
        for (size_t j = 0; j < options->n_quantiles; j++) {
            double ns = latency_quantile_ns(counts, options->quantiles[j]);
            metric_text_quantile(text, row->labels, options->quantiles[j], ns / NS_PER_US);
        }
        metric_text_totals(text, row->labels, member_of(row, summary->ns) / NS_PER_US,
                           member_of(row, summary->count));
    }
}

static void print_latencies(struct metric_text *text, const struct table *table,
                            const struct latency_options *options) {
    if (options->has_histograms) {
        print_first_responses(text, table);
    }
    for (size_t i = 0; options->has_summaries && i < sizeof(SUMMARIES) / sizeof(*SUMMARIES); i++) {
        if (applies_to_any(&SUMMARIES[i], table)) {
            print_summary(text, table, &SUMMARIES[i], options);
        }
    }
}

static void print_versions(struct metric_text *text, const struct table *table,
                           const struct latency_options *options) {
    for (size_t i = 0; i < sizeof(COLUMNS) / sizeof(COLUMNS[0]); i++) {
        if (!options->hides_counters || !is_latency(&COLUMNS[i])) {
            print_column(text, table, &COLUMNS[i]);
        }
    }
    print_latencies(text, table, options);
    print_failures(text, table);
    print_seconds(text, table, METRIC_FAMILY_LOAD_DURATION,
                  offsetof(struct row, statistics.loaded_ns));
    print_seconds(text, table, METRIC_FAMILY_MODEL_BUSY_SECONDS,
                  offsetof(struct row, statistics.busy_ns));
    print_seconds(text, table, METRIC_FAMILY_MODEL_QUEUE_TIME_NOW,
                  offsetof(struct row, recent.queue_ns));
    print_utilization(text, table);
    print_histogram(text, table, METRIC_FAMILY_REQUEST_TIME, MEMBER(request_time),
                    METRIC_UNIT_SECONDS);
    print_histogram(text, table, METRIC_FAMILY_QUEUE_TIME, MEMBER(queue_time), METRIC_UNIT_SECONDS);
    print_histogram(text, table, METRIC_FAMILY_COMPUTE_TIME, MEMBER(compute_time),
                    METRIC_UNIT_SECONDS);
    print_histogram(text, table, METRIC_FAMILY_BATCH_SIZE, MEMBER(batch_size), METRIC_UNIT_ITEMS);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void print_page(void *context, struct metric_text *text) {
    admin_metrics_print(context, text);
}

void admin_metrics_init(struct admin_metrics *metrics, struct repository *repository,
                        const char *version) {
    metrics->repository = repository;
    admin_process_init(&metrics->process, version);
    metrics_page_init(&metrics->page, print_page, metrics);
}

void admin_metrics_fini(struct admin_metrics *metrics) {
    admin_process_fini(&metrics->process);
}

void admin_metrics_print(struct admin_metrics *metrics, struct metric_text *text) {
    struct table table;
    read_table(&table, metrics->repository, text->out->arena);
    metric_print(text, "sluice_pick_");
    admin_process_print(&metrics->process, text);
    print_totals(text, &table, metrics->repository);
    print_versions(text, &table, metrics->latencies);
    custom_metrics_print(text);
    metric_text_end(text);
    text->out->failed = text->out->failed || table.failed;
}

void admin_metrics_reply(struct admin_metrics *metrics, struct http_exchange *exchange) {
    metrics_page_reply(&metrics->page, exchange);
}

/* The part of /metrics under the names of the upstream project's picker: `llm_d_epp_…`, which the
 * autoscalers, alerts and dashboards of llm-d query, and the deprecated `inference_…`. Here are
 * those of pools and endpoints. docs/observability.md lists the differences. */
#include "program/picker/upstream_page.h"

#include <inttypes.h>
#include <math.h>

#include "core/event/clock.h"
#include "pick/pool/flow/wait.h"
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/plugin_times.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/rollout.h"

struct buf upstream_one_label(const struct upstream_page *page, const char *name,
                              struct str value) {
    struct buf labels;
    buf_init(&labels, page->text->out->arena, value.len + 128);
    metric_label_add(&labels, name, value);
    return labels;
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* A number of the endpoints of a pool: sums over those with a recent load that has it. */
struct load_sums {
    double sum, squares;
    uint64_t n;
};

/* A pool, with the sums of its endpoints' loads. */
struct summary {
    struct str labels;
    uint64_t n_ready;
    struct load_sums waiting, running, kv_cache;
};

static void load_sums_add(struct load_sums *sums, bool is_known, double value) {
    if (is_known) {
        sums->sum += value;
        sums->squares += value * value;
        sums->n++;
    }
}

static double average_of(const struct load_sums *sums) {
    return sums->n > 0 ? sums->sum / (double)sums->n : 0;
}

/* Of a sample, as upstream's. */
static double deviation_of(const struct load_sums *sums) {
    if (sums->n < 2) {
        return 0;
    }
    double n = (double)sums->n, variance = (sums->squares - sums->sum * sums->sum / n) / (n - 1);
    return variance > 0 ? sqrt(variance) : 0;
}

static struct summary summarise_pool(const struct upstream_page *page,
                                     const struct pick_admin_pool *pool, uint64_t now_ns) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    struct buf labels = upstream_one_label(page, "name", pick_admin_pool_name(pool));
    struct summary summary = {.labels = buf_str(&labels)};
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint_load load;
        pool_snapshot_get_load(snapshot, &snapshot->members[i], now_ns, &load);
        summary.n_ready += endpoint_is_ready(snapshot->members[i].endpoint);
        load_sums_add(&summary.waiting, load.known & LOAD_WAITING, load.n_waiting);
        load_sums_add(&summary.running, load.known & LOAD_RUNNING, load.n_running);
        load_sums_add(&summary.kv_cache, load.known & LOAD_KV_CACHE, (double)load.kv_cache_used);
    }
    return summary;
}

/* A gauge of loads of each pool. */
static const struct pool_gauge {
    enum metric_family family;
    size_t offset; /* of the sums in struct summary */
    double (*value_of)(const struct load_sums *sums);
    bool is_deprecated; /* such a gauge is absent where no load is known */
} POOL_GAUGES[] = {
    {METRIC_FAMILY_EPP_AVERAGE_KV_CACHE, offsetof(struct summary, kv_cache), average_of, false},
    {METRIC_FAMILY_EPP_AVERAGE_QUEUE, offsetof(struct summary, waiting), average_of, false},
    {METRIC_FAMILY_EPP_AVERAGE_RUNNING, offsetof(struct summary, running), average_of, false},
    {METRIC_FAMILY_EPP_DEVIATION_KV_CACHE, offsetof(struct summary, kv_cache), deviation_of, false},
    {METRIC_FAMILY_EPP_DEVIATION_QUEUE, offsetof(struct summary, waiting), deviation_of, false},
    {METRIC_FAMILY_EPP_DEVIATION_RUNNING, offsetof(struct summary, running), deviation_of, false},
    {METRIC_FAMILY_UPSTREAM_QUEUE_SIZE, offsetof(struct summary, waiting), average_of, true},
    {METRIC_FAMILY_UPSTREAM_KV_CACHE, offsetof(struct summary, kv_cache), average_of, true},
    {METRIC_FAMILY_UPSTREAM_RUNNING_SIZE, offsetof(struct summary, running), average_of, true},
};

static void print_pool_gauge(const struct upstream_page *page, const struct summary *all,
                             const struct pool_gauge *gauge) {
    if (gauge->is_deprecated && !page->has_deprecated) {
        return;
    }
    metric_family_begin(page->text, gauge->family);
    for (size_t i = 0; i < page->list->n; i++) {
        const struct load_sums *sums = (const void *)((const char *)&all[i] + gauge->offset);
        if (sums->n > 0 || !gauge->is_deprecated) {
            metric_text_f64(page->text, all[i].labels, gauge->value_of(sums));
        }
    }
}

/* Alerts fire where this family has no series: without a pool there is one, too. */
static void print_ready(const struct upstream_page *page, const struct summary *all,
                        enum metric_family family) {
    metric_family_begin(page->text, family);
    for (size_t i = 0; i < page->list->n; i++) {
        metric_text_u64(page->text, all[i].labels, all[i].n_ready);
    }
    if (page->list->n == 0) {
        metric_text_u64(page->text, STR("name=\"\""), 0);
    }
}

/* Series are grouped by family, as the format requires. */
static void print_pools(const struct upstream_page *page) {
    struct metric_text *text = page->text;
    uint64_t now_ns = clock_now_ns();
    struct summary *all = arena_calloc(text->out->arena, page->list->n + 1, sizeof(*all));
    if (!all) {
        text->out->failed = true;
        return;
    }
    for (size_t i = 0; i < page->list->n; i++) {
        all[i] = summarise_pool(page, &page->list->items[i], now_ns);
    }
    print_ready(page, all, METRIC_FAMILY_EPP_READY);
    if (page->has_deprecated) {
        print_ready(page, all, METRIC_FAMILY_UPSTREAM_READY);
    }
    for (size_t i = 0; i < sizeof POOL_GAUGES / sizeof POOL_GAUGES[0]; i++) {
        print_pool_gauge(page, all, &POOL_GAUGES[i]);
    }
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static struct str endpoint_name(const struct pool_member *member) {
    return member->name.text.len > 0 ? member->name.text : endpoint_text(member->endpoint);
}

static void print_queues(const struct upstream_page *page, enum metric_family family,
                         const char *label) {
    bool is_pod = family == METRIC_FAMILY_UPSTREAM_ENDPOINT_QUEUE_SIZE;
    uint64_t now_ns = clock_now_ns();
    metric_family_begin(page->text, family);
    for (size_t k = 0; k < page->list->n; k++) {
        const struct pool_snapshot *snapshot = page->list->items[k].snapshot;
        struct str pool = pick_admin_pool_name(&page->list->items[k]);
        for (uint32_t i = 0; i < snapshot->n_members; i++) {
            const struct pool_member *member = &snapshot->members[i];
            struct endpoint_load load;
            pool_snapshot_get_load(snapshot, member, now_ns, &load);
            if (load.known & LOAD_WAITING) {
                struct buf labels = upstream_one_label(page, "name", pool);
                metric_label_add(&labels, label,
                                 is_pod ? endpoint_text(member->endpoint) : endpoint_name(member));
                metric_text_u64(page->text, buf_str(&labels), load.n_waiting);
            }
        }
    }
}

static uint64_t inflight_requests_of(const struct endpoint *endpoint) {
    return endpoint_in_flight(endpoint);
}
static uint64_t inflight_tokens_of(const struct endpoint *endpoint) {
    return endpoint_n_tokens(endpoint);
}

/* The counts are of all fairness ids and priorities together. */
static void print_inflight(const struct upstream_page *page, enum metric_family family,
                           uint64_t (*value_of)(const struct endpoint *endpoint)) {
    metric_family_begin(page->text, family);
    for (size_t k = 0; k < page->list->n; k++) {
        const struct pool_snapshot *snapshot = page->list->items[k].snapshot;
        for (uint32_t i = 0; i < snapshot->n_members; i++) {
            const struct pool_member *member = &snapshot->members[i];
            struct buf labels;
            pick_admin_pool_begin_labels(page->text, page->list, &page->list->items[k], &labels);
            metric_label_add(&labels, "endpoint_name", endpoint_name(member));
            metric_label_add(&labels, "namespace", member->name.name_space);
            metric_label_add(&labels, "producer_name", STR("inflight-load-producer"));
            metric_label_add(&labels, "fairness_id", STR(""));
            metric_label_add(&labels, "priority", STR(""));
            metric_text_u64(page->text, buf_str(&labels), value_of(member->endpoint));
        }
    }
}

static void print_endpoints(const struct upstream_page *page) {
    print_queues(page, METRIC_FAMILY_EPP_ENDPOINT_QUEUE, "model_server_endpoint");
    if (page->has_deprecated) {
        print_queues(page, METRIC_FAMILY_UPSTREAM_ENDPOINT_QUEUE_SIZE, "model_server_pod");
    }
    print_inflight(page, METRIC_FAMILY_EPP_INFLIGHT_REQUESTS, inflight_requests_of);
    print_inflight(page, METRIC_FAMILY_EPP_INFLIGHT_TOKENS, inflight_tokens_of);
}

/* ---- scrapes --------------------------------------------------------------------------------- */

static void print_scrape_errors(const struct upstream_page *page) {
    static const enum metric failures[] = {
        METRIC_PICK_SCRAPES_REFUSED, METRIC_PICK_SCRAPES_TIMEOUT, METRIC_PICK_SCRAPES_BROKEN,
        METRIC_PICK_SCRAPES_LOCAL,   METRIC_PICK_SCRAPES_STATUS,  METRIC_PICK_SCRAPES_TOO_LARGE};
    struct str source = STR("source_type=\"metrics-data-source\"");
    int64_t n_failed = 0;
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        n_failed += metric_read(failures[i]);
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_POLL_ERRORS);
    metric_text_i64(page->text, source, n_failed);
    metric_family_begin(page->text, METRIC_FAMILY_EPP_EXTRACT_ERRORS);
    metric_text_i64(
        page->text,
        STR("source_type=\"metrics-data-source\",extractor_type=\"core-metrics-extractor\""),
        metric_read(METRIC_PICK_SCRAPES_SERIES));
}

/* ---- prefix indexes -------------------------------------------------------------------------- */

/* What an index is printed as. */
struct prefix_numbers {
    uint64_t size;
    struct prefix_hit_counts hits;
};

/* A family of histograms of each index; without a scale it is the gauge of sizes. */
struct prefix_family {
    enum metric_family family;
    const struct metric_scale *scale;
    size_t offset; /* of the cells in struct prefix_hit_counts */
};

#define HITS(id, scale, member)                                                                    \
    { METRIC_FAMILY_##id, &(scale), offsetof(struct prefix_hit_counts, member) }
static const struct prefix_family PREFIX_FAMILIES[] = {
    {.family = METRIC_FAMILY_EPP_PREFIX_SIZE},
    HITS(EPP_PREFIX_RATIO, PREFIX_HIT_RATIOS, ratios),
    HITS(EPP_PREFIX_BYTES, PREFIX_HIT_BYTES, bytes),
    HITS(EPP_PREFIX_CACHED, PREFIX_TOKENS, cached_tokens),
    HITS(EPP_PREFIX_PROMPT, PREFIX_TOKENS, prompt_tokens)};
static const struct prefix_family DEPRECATED_PREFIX_FAMILIES[] = {
    {.family = METRIC_FAMILY_UPSTREAM_PREFIX_SIZE},
    HITS(UPSTREAM_PREFIX_RATIO, PREFIX_HIT_RATIOS, ratios),
    HITS(UPSTREAM_PREFIX_BYTES, PREFIX_HIT_BYTES, bytes)};
#undef HITS

static void print_prefix_numbers(const struct upstream_page *page,
                                 const struct prefix_family *family, struct str labels,
                                 const struct prefix_numbers *numbers) {
    if (family->scale) {
        const void *counts = (const char *)&numbers->hits + family->offset;
        metric_text_scale(page->text, labels, family->scale, counts);
    } else {
        metric_text_u64(page->text, labels, numbers->size);
    }
}

/* Adds the index to `numbers`. */
static void read_prefix_numbers(const struct pick_admin_pool *pool, uint32_t index,
                                struct prefix_numbers *numbers) {
    numbers->size += pool_prefix_size(pool->entry->pool, pool->snapshot, index);
    pool_read_prefix_hits(pool->entry->pool, index, &numbers->hits);
}

/* NULL: no profile. */
static const struct pool_request_needs *needs_of(const struct pick_admin_pool *pool) {
    const struct pool_spec *spec = pool->snapshot->spec;
    return spec && spec->profile ? &spec->profile->needs : NULL;
}

/* Of each producer of prefixes that a plugin uses; `all`: one series of all. */
static void print_prefix_family(const struct upstream_page *page,
                                const struct prefix_family *family, bool all) {
    struct prefix_numbers sum = {.size = 0};
    bool any = false;
    metric_family_begin(page->text, family->family);
    for (size_t k = 0; k < page->list->n; k++) {
        const struct pick_admin_pool *pool = &page->list->items[k];
        const struct pool_request_needs *needs = needs_of(pool);
        for (uint32_t i = 0; needs && i < needs->n_prefixes; i++) {
            struct prefix_numbers own = {.size = 0};
            struct buf labels;
            if (!pool_needs_prefix(needs, i) || needs->prefixes[i].kind != PREFIX_TEXT) {
                continue;
            }
            any = true;
            read_prefix_numbers(pool, i, all ? &sum : &own);
            if (!all) {
                pick_admin_pool_begin_labels(page->text, page->list, pool, &labels);
                metric_label_add(&labels, "plugin_name", needs->prefixes[i].name);
                metric_label_add(&labels, "plugin_type", str_of(prefix_kind_type(PREFIX_TEXT)));
                print_prefix_numbers(page, family, buf_str(&labels), &own);
            }
        }
    }
    if (all && any) {
        print_prefix_numbers(page, family, STR(""), &sum);
    }
}

static void print_prefixes(const struct upstream_page *page) {
    for (size_t i = 0; i < sizeof PREFIX_FAMILIES / sizeof PREFIX_FAMILIES[0]; i++) {
        print_prefix_family(page, &PREFIX_FAMILIES[i], false);
    }
    size_t n = page->has_deprecated
                   ? sizeof DEPRECATED_PREFIX_FAMILIES / sizeof DEPRECATED_PREFIX_FAMILIES[0]
                   : 0;
    for (size_t i = 0; i < n; i++) {
        print_prefix_family(page, &DEPRECATED_PREFIX_FAMILIES[i], true);
    }
}

/* ---- indexes of media ------------------------------------------------------------------------ */

static struct buf media_labels(const struct upstream_page *page, const struct pick_admin_pool *pool,
                               struct str name) {
    struct buf labels;
    pick_admin_pool_begin_labels(page->text, page->list, pool, &labels);
    metric_label_add(&labels, "plugin_type", str_of(prefix_kind_type(PREFIX_MEDIA)));
    metric_label_add(&labels, "plugin_name", name);
    return labels;
}

static void print_media_items(const struct upstream_page *page, const struct buf *begun,
                              const uint64_t n_items[N_MEDIA_KINDS]) {
    for (size_t kind = 0; kind < N_MEDIA_KINDS; kind++) {
        if (n_items[kind] > 0) {
            struct buf labels;
            buf_init(&labels, page->text->out->arena, begun->len + 64);
            buf_add_str(&labels, buf_str(begun));
            metric_label_add(&labels, "modality", str_of(media_kind_name((enum media_kind)kind)));
            metric_text_u64(page->text, buf_str(&labels), n_items[kind]);
        }
    }
}

static void print_media_queries(const struct upstream_page *page,
                                const struct pick_admin_pool *pool, uint32_t index,
                                struct str name) {
    uint64_t n_items[N_MEDIA_KINDS] = {0}, ratios[PREFIX_HIT_RATIO_CELLS] = {0};
    struct buf labels = media_labels(page, pool, name);
    pool_read_media_lookups(pool->entry->pool, index, n_items, ratios);
    print_media_items(page, &labels, n_items);
}

/* Upstream names the pod with its namespace. */
static void print_media_hits(const struct upstream_page *page, const struct pick_admin_pool *pool,
                             uint32_t index, struct str name) {
    for (uint32_t i = 0; i < pool->snapshot->n_members; i++) {
        const struct pool_member *member = &pool->snapshot->members[i];
        struct buf labels = media_labels(page, pool, name), pod;
        uint64_t n_items[N_MEDIA_KINDS];
        buf_init(&pod, page->text->out->arena, 64);
        if (member->name.name_space.len > 0) {
            buf_add_str(&pod, member->name.name_space);
            buf_add_char(&pod, '/');
        }
        buf_add_str(&pod, endpoint_name(member));
        metric_label_add(&labels, "pod", buf_str(&pod));
        for (size_t kind = 0; kind < N_MEDIA_KINDS; kind++) {
            n_items[kind] = metric_cell_read(&member->endpoint->media_hits[index].n_items[kind]);
        }
        print_media_items(page, &labels, n_items);
    }
}

static void print_media_ratios(const struct upstream_page *page, const struct pick_admin_pool *pool,
                               uint32_t index, struct str name) {
    uint64_t n_items[N_MEDIA_KINDS] = {0}, ratios[PREFIX_HIT_RATIO_CELLS] = {0};
    struct buf labels = media_labels(page, pool, name);
    pool_read_media_lookups(pool->entry->pool, index, n_items, ratios);
    metric_text_scale(page->text, buf_str(&labels), &PREFIX_HIT_RATIOS, ratios);
}

typedef void media_printer(const struct upstream_page *page, const struct pick_admin_pool *pool,
                           uint32_t index, struct str name);

/* Of each producer of media that a plugin uses. */
static void print_media_family(const struct upstream_page *page, enum metric_family family,
                               media_printer *print) {
    metric_family_begin(page->text, family);
    for (size_t k = 0; k < page->list->n; k++) {
        const struct pool_request_needs *needs = needs_of(&page->list->items[k]);
        for (uint32_t i = 0; needs && i < needs->n_prefixes; i++) {
            if (pool_needs_prefix(needs, i) && needs->prefixes[i].kind == PREFIX_MEDIA) {
                print(page, &page->list->items[k], i, needs->prefixes[i].name);
            }
        }
    }
}

static void print_media(const struct upstream_page *page) {
    print_media_family(page, METRIC_FAMILY_EPP_MEDIA_QUERIES, print_media_queries);
    print_media_family(page, METRIC_FAMILY_EPP_MEDIA_HITS, print_media_hits);
    print_media_family(page, METRIC_FAMILY_EPP_MEDIA_RATIO, print_media_ratios);
}

/* ---- plugins --------------------------------------------------------------------------------- */

/* The times of a plugin in all pools. */
struct plugin_sum {
    const struct plugin_times_row *row; /* of one of them */
    uint64_t counts[PLUGIN_TIMES_CELLS];
};

struct plugin_sums {
    struct plugin_sum items[PLUGIN_TIMES_MAX_ROWS]; /* of further plugins there is no series */
    size_t n;
};

static void add_plugin_row(struct plugin_sums *sums, const struct plugin_times_row *row) {
    size_t i = 0;
    while (i < sums->n && !plugin_times_same(sums->items[i].row, row)) {
        i++;
    }
    if (i == PLUGIN_TIMES_MAX_ROWS) {
        return;
    }
    if (i == sums->n) {
        sums->items[sums->n++].row = row;
    }
    metric_scale_read(&PLUGIN_TIMES, row->cells, sums->items[i].counts);
}

static void print_plugin_family(const struct upstream_page *page, const struct plugin_sums *sums,
                                enum metric_family family) {
    metric_family_begin(page->text, family);
    for (size_t i = 0; i < sums->n; i++) {
        const struct plugin_times_row *row = sums->items[i].row;
        struct buf labels =
            upstream_one_label(page, "extension_point", str_of(plugin_point_name(row->point)));
        metric_label_add(&labels, "plugin_type", str_of(row->type));
        metric_label_add(&labels, "plugin_name", row->name);
        metric_text_scale(page->text, buf_str(&labels), &PLUGIN_TIMES, sums->items[i].counts);
    }
}

/* Upstream has no label for the pool. */
static void print_plugin_times(const struct upstream_page *page) {
    struct plugin_sums *sums = arena_calloc(page->text->out->arena, 1, sizeof(*sums));
    if (!sums) {
        page->text->out->failed = true;
        return;
    }
    for (size_t k = 0; k < page->list->n; k++) {
        const struct plugin_times_row *const *rows;
        size_t n = pool_plugin_times(page->list->items[k].entry->pool, &rows);
        for (size_t i = 0; i < n; i++) {
            add_plugin_row(sums, rows[i]);
        }
    }
    print_plugin_family(page, sums, METRIC_FAMILY_EPP_PLUGIN_TIME);
    if (page->has_deprecated) {
        print_plugin_family(page, sums, METRIC_FAMILY_UPSTREAM_PLUGIN_TIME);
    }
}

/* ---- rollouts -------------------------------------------------------------------------------- */

static struct buf screener_labels(const struct upstream_page *page,
                                  const struct pick_admin_pool *pool) {
    struct buf labels;
    pick_admin_pool_begin_labels(page->text, page->list, pool, &labels);
    metric_label_add(&labels, "plugin_type", STR("disaggregatedset-rollout-screener"));
    metric_label_add(&labels, "plugin_name", pool->snapshot->spec->rollout->name);
    return labels;
}

static void print_shares(const struct upstream_page *page, const struct pick_admin_pool *pool) {
    const struct rollout_screener *screener = pool->snapshot->spec->rollout;
    const struct rollout_index *index = pool->snapshot->rollout;
    double shares[ROLLOUT_MOST_REVISIONS];
    if (screener->mode == ROLLOUT_DISABLED || !index) {
        return;
    }
    rollout_get_shares(screener, index, pool->snapshot, shares);
    for (size_t i = 0; i < index->n_revisions; i++) {
        struct buf labels = screener_labels(page, pool);
        metric_label_add(&labels, "mode", str_of(rollout_mode_name(screener->mode)));
        metric_label_add(&labels, "revision", index->revisions[i]);
        metric_text_f64(page->text, buf_str(&labels), shares[i]);
    }
}

static void print_rollouts(const struct upstream_page *page) {
    metric_family_begin(page->text, METRIC_FAMILY_EPP_ROLLOUT_UNMATCHED);
    for (size_t k = 0; k < page->list->n; k++) {
        const struct pick_admin_pool *pool = &page->list->items[k];
        const struct pool_spec *spec = pool->snapshot->spec;
        const struct rollout_screener *screener = spec ? spec->rollout : NULL;
        for (size_t i = 0; screener && screener->n_unmatched && i < screener->n_selectors; i++) {
            struct buf labels = screener_labels(page, pool);
            metric_label_add(&labels, "selector", screener->selectors[i].name);
            metric_text_u64(page->text, buf_str(&labels), screener->n_unmatched[i]);
        }
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_ROLLOUT_SHARE);
    for (size_t k = 0; k < page->list->n; k++) {
        const struct pool_spec *spec = page->list->items[k].snapshot->spec;
        if (spec && spec->rollout) {
            print_shares(page, &page->list->items[k]);
        }
    }
}

/* ---- saturation ------------------------------------------------------------------------------ */

/* The saturation of the endpoints of a stage of a pool. */
struct stage_saturation {
    double by_load, in_flight; /* sums over the endpoints */
    uint64_t n;
};

/* An endpoint without a recent load counts as saturated. */
static double load_saturation_of(const struct pool_spec *spec, const struct endpoint_load *load) {
    double by_queue = spec->queue_depth > 0 ? load->n_waiting / (double)spec->queue_depth : 0;
    double by_cache = spec->kv_cache > 0 ? (double)load->kv_cache_used / spec->kv_cache : 0;
    return load->known == 0 ? 1 : by_queue > by_cache ? by_queue : by_cache;
}

static double saturation_of(const struct pool_spec *spec, const struct stage_saturation *stage) {
    double n = (double)stage->n;
    double by_load = stage->by_load / n;
    double by_count =
        spec->max_in_flight > 0 ? stage->in_flight / (n * (double)spec->max_in_flight) : 0;
    return by_load > by_count ? by_load : by_count;
}

static void add_endpoint_saturation(const struct pool_snapshot *snapshot, uint32_t i,
                                    uint64_t now_ns, struct stage_saturation *stage) {
    const struct pool_member *member = &snapshot->members[i];
    struct endpoint_load load;
    pool_snapshot_get_load(snapshot, member, now_ns, &load);
    stage->by_load +=
        pool_limits_loads(snapshot->spec) ? load_saturation_of(snapshot->spec, &load) : 0;
    stage->in_flight += endpoint_in_flight(member->endpoint);
    stage->n++;
}

static void print_stage_saturation(const struct upstream_page *page, struct str pool,
                                   const char *stage, double value) {
    struct buf labels = upstream_one_label(page, "inference_pool", pool);
    metric_label_add(&labels, "stage", str_of(stage));
    metric_text_f64(page->text, buf_str(&labels), value);
}

static const struct {
    const char *name;
    enum role role;
} STAGES[N_SATURATION_STAGES] = {[SATURATION_PREFILL] = {"prefill", ROLE_PREFILL},
                                 [SATURATION_DECODE] = {"decode", ROLE_DECODE}};

/* What decides on requests. */
static void print_whole_saturation(const struct upstream_page *page,
                                   const struct pick_admin_pool *pool) {
    struct pool_saturation_stats stats;
    pool_get_saturation(pool->entry->pool, &stats);
    for (size_t k = 0; k < N_SATURATION_STAGES; k++) {
        if (stats.stages[k] >= 0) {
            print_stage_saturation(page, pick_admin_pool_name(pool), STAGES[k].name,
                                   stats.stages[k]);
        }
    }
    print_stage_saturation(page, pick_admin_pool_name(pool), "effective", stats.effective);
}

/* Upstream's stages: endpoints that only encode belong to none. */
static void print_pool_saturation(const struct upstream_page *page,
                                  const struct pick_admin_pool *pool) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    struct str name = pick_admin_pool_name(pool);
    uint64_t now_ns = clock_now_ns();
    double effective = -1;
    for (size_t k = 0; k < N_SATURATION_STAGES; k++) {
        struct stage_saturation stage = {.n = 0};
        for (uint32_t i = 0; i < snapshot->n_members; i++) {
            if (labels_have_role(snapshot->members[i].labels, STAGES[k].role)) {
                add_endpoint_saturation(snapshot, i, now_ns, &stage);
            }
        }
        if (stage.n > 0) {
            double value = saturation_of(snapshot->spec, &stage);
            print_stage_saturation(page, name, STAGES[k].name, value);
            effective = value > effective ? value : effective;
        }
    }
    print_stage_saturation(page, name, "effective", effective < 0 ? 1 : effective);
}

static void print_saturation(const struct upstream_page *page) {
    metric_family_begin(page->text, METRIC_FAMILY_EPP_SATURATION);
    for (size_t i = 0; i < page->list->n; i++) {
        const struct pick_admin_pool *pool = &page->list->items[i];
        const struct pool_spec *spec = pool->snapshot->spec;
        if (spec && spec->detector.kind != DETECTOR_NONE) {
            print_whole_saturation(page, pool);
        } else if (spec && (spec->max_in_flight > 0 || pool_limits_loads(spec))) {
            print_pool_saturation(page, pool);
        }
    }
}

/* Upstream has no label for the pool. */
static void print_stale_endpoints(const struct upstream_page *page) {
    uint64_t n_stale = 0, n_pools = 0;
    for (size_t i = 0; i < page->list->n; i++) {
        const struct pick_admin_pool *pool = &page->list->items[i];
        if (pool->snapshot->spec && pool->snapshot->spec->detector.kind == DETECTOR_LOADS) {
            struct pool_saturation_stats stats;
            pool_get_saturation(pool->entry->pool, &stats);
            n_stale += stats.n_stale;
            n_pools++;
        }
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_STALE);
    if (n_pools > 0) {
        metric_text_u64(page->text, STR("detector=\"utilization-detector\""), n_stale);
    }
}

/* ---- eviction -------------------------------------------------------------------------------- */

/* A pool that ends running requests. */
struct evicting_pool {
    struct str labels;
    struct str name;
    struct pool_eviction_stats stats;
    struct flow_band_stats *bands;
    size_t n_bands;
};

static struct evicting_pool read_evicting_pool(const struct upstream_page *page,
                                               const struct pick_admin_pool *pool) {
    struct evicting_pool out = {.name = pick_admin_pool_name(pool)};
    struct buf labels = upstream_one_label(page, "inference_pool", out.name);
    struct pool_flow_stats flow;
    pool_get_eviction(pool->entry->pool, &out.stats);
    out.labels = buf_str(&labels);
    out.bands = arena_alloc(page->text->out->arena, POOL_MAX_LISTED_BANDS * sizeof(*out.bands));
    if (out.bands) {
        pool_get_flow_stats(pool->entry->pool, out.bands, POOL_MAX_LISTED_BANDS, &flow);
        out.n_bands = flow.n_bands;
    }
    return out;
}

static void print_issued(const struct upstream_page *page, const struct evicting_pool *pool) {
    for (size_t i = 0; i < pool->n_bands; i++) {
        if (pool->bands[i].n_revoked > 0) {
            char text[32];
            int n = snprintf(text, sizeof(text), "%" PRId64, pool->bands[i].priority);
            struct buf labels =
                upstream_one_label(page, "priority", str_make(text, n > 0 ? (size_t)n : 0));
            metric_label_add(&labels, "inference_pool", pool->name);
            metric_text_u64(page->text, buf_str(&labels), pool->bands[i].n_revoked);
        }
    }
}

static void print_outcome(const struct upstream_page *page, const struct evicting_pool *pool,
                          const char *outcome, uint64_t n) {
    struct buf labels = upstream_one_label(page, "outcome", str_of(outcome));
    metric_label_add(&labels, "inference_pool", pool->name);
    metric_text_u64(page->text, buf_str(&labels), n);
}

static void print_evictions(const struct upstream_page *page) {
    struct evicting_pool *pools =
        arena_calloc(page->text->out->arena, page->list->n + 1, sizeof(*pools));
    size_t n = 0;
    for (size_t i = 0; pools && i < page->list->n; i++) {
        const struct pool_spec *spec = page->list->items[i].snapshot->spec;
        if (spec && spec->flow_control.evicts) {
            pools[n++] = read_evicting_pool(page, &page->list->items[i]);
        }
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_REVOCATIONS_ISSUED);
    for (size_t i = 0; i < n; i++) {
        print_issued(page, &pools[i]);
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_REVOCATIONS);
    for (size_t i = 0; i < n; i++) {
        print_outcome(page, &pools[i], "confirmed", pools[i].stats.n_confirmed);
        print_outcome(page, &pools[i], "timed_out", pools[i].stats.n_timed_out);
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_RECLAIM_TARGET);
    for (size_t i = 0; i < n; i++) {
        metric_text_f64(page->text, pools[i].labels, pools[i].stats.target);
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_PENDING_RECLAIM);
    for (size_t i = 0; i < n; i++) {
        metric_text_f64(page->text, pools[i].labels, pools[i].stats.pending);
    }
    metric_family_begin(page->text, METRIC_FAMILY_EPP_REVOCATION_TIME);
    for (size_t i = 0; i < n; i++) {
        metric_text_scale(page->text, pools[i].labels, &EVICTION_TIMES, pools[i].stats.times);
    }
}

/* ---- all families ---------------------------------------------------------------------------- */

static void print_info(const struct upstream_page *page, enum metric_family family) {
    struct buf labels = upstream_one_label(page, "build_ref", STR("sluice " SLUICE_VERSION));
    metric_family_begin(page->text, family);
    metric_text_u64(page->text, buf_str(&labels), 1);
}

void pick_upstream_print(const struct pick_admin *admin, const struct pick_admin_pools *list,
                         struct metric_text *text) {
    struct upstream_page page = {text, list, admin->has_deprecated_metrics};
    print_info(&page, METRIC_FAMILY_EPP_INFO);
    if (page.has_deprecated) {
        print_info(&page, METRIC_FAMILY_UPSTREAM_INFO);
    }
    print_pools(&page);
    print_endpoints(&page);
    print_scrape_errors(&page);
    print_saturation(&page);
    print_prefixes(&page);
    print_media(&page);
    print_plugin_times(&page);
    print_rollouts(&page);
    print_stale_endpoints(&page);
    print_evictions(&page);
    upstream_requests_print(&page, admin->workers);
}

/* The page /status.json: the numbers of the picker's status page. Loads that have expired are left
 * out; ages are sent in place of times, as browsers have clocks of their own. */
#include "program/picker/routes.h"

#include "core/base/json_writer.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/discovery/kube/leader.h"
#include "pick/discovery/kube/source.h"
#include "pick/discovery/scrape/scraper.h"
#include "pick/pool/flow/wait.h"
#include "telemetry/admin/status_common.h"

/* ---- counts ---------------------------------------------------------------------------------- */

struct named_column {
    const char *name;
    enum metric metric;
};

static void add_counts(struct json_writer *json, const char *name,
                       const struct named_column *counts, size_t n) {
    json_write_open(json, name, '{');
    for (size_t i = 0; i < n; i++) {
        json_write_i64(json, counts[i].name, metric_read(counts[i].metric));
    }
    json_write_close(json, '}');
}

#define ADD_COUNTS(json, name, table)                                                              \
    add_counts((json), (name), (table), sizeof(table) / sizeof((table)[0]))

static void add_all_counts(struct json_writer *json) {
    static const struct named_column streams[] = {
        {"open", METRIC_PICK_STREAMS},
        {"begun", METRIC_PICK_STREAMS_TOTAL},
        {"unanswered", METRIC_PICK_UNANSWERED_TOTAL},
        {"illegal", METRIC_PICK_ILLEGAL_TOTAL},
        {"held_bytes", METRIC_PICK_HELD_BYTES},
    };
    static const struct named_column picks[] = {
        {"at headers", METRIC_PICK_AT_HEADERS},
        {"at the body", METRIC_PICK_AT_BODY},
        {"rewritten", METRIC_PICK_REWRITTEN_TOTAL},
        {"served elsewhere", METRIC_PICK_MOVED_TOTAL},
        {"connection refused", METRIC_PICK_REFUSED_TOTAL},
    };
    static const struct named_column decisions[] = {
        {"by the profile", METRIC_PICK_BY_PROFILE},
        {"fewest in flight", METRIC_PICK_BY_FEWEST},
        {"last choice", METRIC_PICK_BY_LAST_CHOICE},
    };
    static const struct named_column scrapes[] = {
        {"ok", METRIC_PICK_SCRAPES_OK},           {"refused", METRIC_PICK_SCRAPES_REFUSED},
        {"timeout", METRIC_PICK_SCRAPES_TIMEOUT}, {"broken", METRIC_PICK_SCRAPES_BROKEN},
        {"status", METRIC_PICK_SCRAPES_STATUS},   {"too large", METRIC_PICK_SCRAPES_TOO_LARGE},
        {"series", METRIC_PICK_SCRAPES_SERIES},   {"local", METRIC_PICK_SCRAPES_LOCAL},
    };
    static const struct named_column probes[] = {
        {"ok", METRIC_PICK_PROBES_OK},           {"refused", METRIC_PICK_PROBES_REFUSED},
        {"timeout", METRIC_PICK_PROBES_TIMEOUT}, {"status", METRIC_PICK_PROBES_STATUS},
        {"broken", METRIC_PICK_PROBES_BROKEN},
    };
    ADD_COUNTS(json, "streams", streams);
    ADD_COUNTS(json, "picks", picks);
    ADD_COUNTS(json, "decisions", decisions);
    ADD_COUNTS(json, "scrapes", scrapes);
    ADD_COUNTS(json, "probes", probes);
}

static void add_times(struct json_writer *json, const struct pick_admin *admin) {
    struct metric_distribution times[N_PICK_TIMES], scrape = {.count = 0};
    pick_times_read(admin->workers, times);
    json_write_open(json, "times", '{');
    for (size_t i = 0; i < N_PICK_TIMES; i++) {
        status_json_add_histogram(json, PICK_TIME_NAMES[i], &times[i]);
    }
    if (admin->scraper) {
        metric_histogram_read(scraper_durations(admin->scraper), &scrape);
    }
    status_json_add_histogram(json, "scrape", &scrape);
    json_write_close(json, '}');
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static const char *pick_state_name(const struct endpoint *endpoint) {
    return endpoint_is_unchecked(endpoint)  ? "unchecked"
           : !endpoint_is_ready(endpoint)   ? "not_ready"
           : endpoint_is_ejected(endpoint)  ? "ejected"
           : endpoint_is_refused(endpoint)  ? "refused"
           : endpoint_is_shedding(endpoint) ? "shedding"
                                            : "ready";
}

static void add_load(struct json_writer *json, const struct endpoint_load *load, uint64_t now_ns) {
    if (load->known & LOAD_WAITING) {
        json_write_u64(json, "waiting", load->n_waiting);
    }
    if (load->known & LOAD_RUNNING) {
        json_write_u64(json, "running", load->n_running);
    }
    if (load->known & LOAD_KV_CACHE) {
        json_write_f64(json, "kv", (double)load->kv_cache_used);
    }
    if (load->known) {
        uint64_t age_ns = clock_between_ns(load->asked_ns, now_ns);
        json_write_u64(json, "age_ms", age_ns / 1000000);
    }
}

static void add_endpoint(struct json_writer *json, const struct pool_snapshot *snapshot,
                         const struct pool_member *member, uint64_t now_ns) {
    const struct endpoint *endpoint = member->endpoint;
    struct endpoint_load load;
    pool_snapshot_get_load(snapshot, member, now_ns, &load);
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "address", endpoint_text(endpoint));
    json_write_string(json, "state", str_of(pick_state_name(endpoint)));
    json_write_u64(json, "picks", endpoint_n_picked(endpoint));
    json_write_u64(json, "in_flight", endpoint_in_flight(endpoint));
    json_write_u64(json, "silent", endpoint_n_scrape_failures(endpoint));
    add_load(json, &load, now_ns);
    json_write_close(json, '}');
}

/* A histogram of the waits of dispatched requests; others are only counted. */
static void add_queue(struct json_writer *json, const struct flow_band_stats *band) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_i64(json, "priority", band->priority);
    json_write_u64(json, "waiting", band->n_waiting);
    json_write_u64(json, "bytes", band->n_bytes);
    json_write_u64(json, "full", band->n_full);
    json_write_u64(json, "expired", band->waited[FLOW_EXPIRED].count);
    json_write_u64(json, "left", band->waited[FLOW_ABORTED].count);
    status_json_add_histogram(json, "wait", &band->waited[FLOW_DISPATCHED]);
    json_write_close(json, '}');
}

/* `bands`: space for POOL_MAX_LISTED_BANDS; NULL: out of memory. */
static void add_queues(struct json_writer *json, struct pool *pool, struct flow_band_stats *bands) {
    struct pool_flow_stats numbers;
    pool_get_flow_stats(pool, bands, bands ? POOL_MAX_LISTED_BANDS : 0, &numbers);
    json_write_open(json, "queues", '[');
    for (size_t i = 0; bands && i < numbers.n_bands; i++) {
        add_queue(json, &bands[i]);
    }
    json_write_close(json, ']');
}

static void add_pool(struct json_writer *json, const struct pick_admin_pool *pool,
                     struct flow_band_stats *bands) {
    uint64_t now_ns = clock_now_ns();
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", pick_admin_pool_name(pool));
    json_write_u64(json, "generation", pool->numbers.generation);
    json_write_u64(json, "in_flight", pool->numbers.n_in_flight);
    add_queues(json, pool->entry->pool, bands);
    json_write_open(json, "endpoints", '[');
    for (uint32_t i = 0; i < pool->snapshot->n_members; i++) {
        add_endpoint(json, pool->snapshot, &pool->snapshot->members[i], now_ns);
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
}

/* ---- cluster --------------------------------------------------------------------------------- */

static void add_kube_kind(struct json_writer *json, int kind, const struct kube_source_kind *one) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "kind", str_of(KUBE_KINDS[kind].kind));
    json_write_string(json, "group", str_of(KUBE_KINDS[kind].group));
    json_write_string(json, "phase", str_of(KUBE_PHASE_TEXTS[one->state.phase]));
    json_write_u64(json, "objects", one->counts.n_objects);
    json_write_u64(json, "ours", one->counts.n_matching);
    json_write_u64(json, "usable", one->counts.n_usable);
    json_write_u64(json, "senseless", one->counts.n_invalid);
    json_write_u64(json, "events", one->state.n_events);
    json_write_u64(json, "lists", one->state.n_lists);
    json_write_u64(json, "failures", one->state.n_failures);
    if (one->state.heard_ns > 0) {
        json_write_f64(json, "age_s", pick_seconds_since(one->state.heard_ns));
    }
    if (one->state.error.status != ST_OK) {
        json_write_string(json, "error", str_of(one->state.error.text));
    }
    json_write_close(json, '}');
}

static void add_cluster(const struct pick_admin *admin, struct json_writer *json) {
    struct kube_source_report report;
    if (!admin->cluster) {
        return;
    }
    kube_source_report(admin->cluster, &report);
    json_write_open(json, "cluster", '{');
    json_write_string(json, "server", str_of(report.server));
    json_write_string(json, "namespace", str_of(report.name_space));
    json_write_string(json, "pool", str_of(report.pool));
    if (report.pods) {
        json_write_string(json, "pods", str_of(report.pods));
    }
    json_write_string(json, "group", str_of(report.group ? report.group : ""));
    json_write_bool(json, "synced", report.synced);
    json_write_u64(json, "updates", report.n_changes);
    if (kube_source_fresh_ns(&report) > 0) {
        json_write_f64(json, "age_s", pick_seconds_since(kube_source_fresh_ns(&report)));
    }
    if (admin->leader) {
        struct kube_leader_state state;
        kube_leader_report(admin->leader, &state);
        json_write_bool(json, "leads", state.leads);
        json_write_string(json, "holder", str_of(state.holder));
    }
    json_write_open(json, "kinds", '[');
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        if (report.kinds[kind].watched) {
            add_kube_kind(json, kind, &report.kinds[kind]);
        }
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
}

/* ---- the page -------------------------------------------------------------------------------- */

void pick_status_print(void *context, const struct net_memory_report *memory, struct buf *out) {
    struct pick_admin *admin = context;
    struct pick_admin_pools list = pick_admin_pools_load(admin->pools, out->arena);
    struct flow_band_stats *bands = arena_alloc(out->arena, POOL_MAX_LISTED_BANDS * sizeof(*bands));
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    status_json_add_process(&json, &admin->process, list.n > 0);
    status_json_add_memory(&json, memory);
    add_all_counts(&json);
    add_times(&json, admin);
    add_cluster(admin, &json);
    json_write_open(&json, "pools", '[');
    for (size_t i = 0; i < list.n; i++) {
        add_pool(&json, &list.items[i], bands);
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
}

/* The numbers behind the picker's status page. Members that an endpoint has not said of late are
 * left out; times of day are nowhere, as browsers have clocks of their own. */
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/discovery/scrape/scraper.h"
#include "pick/pool/flow/wait.h"
#include "program/picker/admin.h"
#include "program/picker/shown.h"
#include "telemetry/admin/status_parts.h"

enum { MOST_BANDS = 64 };

/* ---- counts ---------------------------------------------------------------------------------- */

struct named {
    const char *name;
    enum metric metric;
};

static void add_counts(struct json_out *json, const char *name, const struct named *counts,
                       size_t n) {
    json_open_member(json, name, '{');
    for (size_t i = 0; i < n; i++) {
        json_i64(json, counts[i].name, metric_read(counts[i].metric));
    }
    json_close(json, '}');
}

#define ADD_COUNTS(json, name, table)                                                              \
    add_counts((json), (name), (table), sizeof(table) / sizeof((table)[0]))

static void add_all_counts(struct json_out *json) {
    static const struct named streams[] = {
        {"open", METRIC_PICK_STREAMS},
        {"begun", METRIC_PICK_STREAMS_TOTAL},
        {"unanswered", METRIC_PICK_UNANSWERED_TOTAL},
        {"illegal", METRIC_PICK_ILLEGAL_TOTAL},
        {"held_bytes", METRIC_PICK_HELD_BYTES},
    };
    static const struct named picks[] = {
        {"at headers", METRIC_PICK_AT_HEADERS},
        {"at the body", METRIC_PICK_AT_BODY},
        {"rewritten", METRIC_PICK_REWRITTEN_TOTAL},
        {"served elsewhere", METRIC_PICK_MOVED_TOTAL},
        {"connection refused", METRIC_PICK_REFUSED_TOTAL},
    };
    static const struct named decisions[] = {
        {"by the profile", METRIC_PICK_BY_PROFILE},
        {"fewest in flight", METRIC_PICK_BY_FEWEST},
        {"last choice", METRIC_PICK_BY_LAST_CHOICE},
    };
    static const struct named scrapes[] = {
        {"ok", METRIC_PICK_SCRAPES_OK},           {"refused", METRIC_PICK_SCRAPES_REFUSED},
        {"timeout", METRIC_PICK_SCRAPES_TIMEOUT}, {"broken", METRIC_PICK_SCRAPES_BROKEN},
        {"status", METRIC_PICK_SCRAPES_STATUS},   {"too large", METRIC_PICK_SCRAPES_TOO_LARGE},
        {"series", METRIC_PICK_SCRAPES_SERIES},
    };
    static const struct named probes[] = {
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

static void add_times(struct json_out *json, const struct pick_admin *admin) {
    struct metric_distribution times[N_PICK_TIMES], scrape = {.count = 0};
    pick_times_read(admin, times);
    json_open_member(json, "times", '{');
    for (size_t i = 0; i < N_PICK_TIMES; i++) {
        status_histogram_add(json, PICK_TIME_NAMES[i], &times[i]);
    }
    if (admin->scraper) {
        metric_histogram_read(scraper_times(admin->scraper), &scrape);
    }
    status_histogram_add(json, "scrape", &scrape);
    json_close(json, '}');
}

/* ---- endpoints ------------------------------------------------------------------------------- */

const char *pick_state_name(const struct endpoint *endpoint) {
    return endpoint_is_unchecked(endpoint) ? "unchecked"
           : !endpoint_is_ready(endpoint)  ? "not_ready"
           : endpoint_is_refused(endpoint) ? "refused"
                                           : "ready";
}

static void add_load(struct json_out *json, const struct endpoint_load *load, uint64_t now_ns) {
    if (load->known & LOAD_WAITING) {
        json_u64(json, "waiting", load->n_waiting);
    }
    if (load->known & LOAD_RUNNING) {
        json_u64(json, "running", load->n_running);
    }
    if (load->known & LOAD_KV_CACHE) {
        json_f64(json, "kv", (double)load->kv_cache_used);
    }
    if (load->known) {
        uint64_t age_ns = now_ns > load->asked_ns ? now_ns - load->asked_ns : 0;
        json_u64(json, "age_ms", age_ns / 1000000);
    }
}

static void add_endpoint(struct json_out *json, const struct pool_snapshot *snapshot,
                         const struct pool_member *member, uint64_t now_ns) {
    const struct endpoint *endpoint = member->endpoint;
    struct endpoint_load load;
    pool_snapshot_load(snapshot, member, now_ns, &load);
    json_open_element(json, '{');
    json_text(json, "address", endpoint_text(endpoint));
    json_text(json, "state", str_of(pick_state_name(endpoint)));
    json_u64(json, "picks", endpoint_n_picked(endpoint));
    json_u64(json, "in_flight", endpoint_in_flight(endpoint));
    json_u64(json, "silent", endpoint_n_silent(endpoint));
    add_load(json, &load, now_ns);
    json_close(json, '}');
}

/* Of those that were sent on, how long they waited; the others are counts. */
static void add_queue(struct json_out *json, const struct flow_band_numbers *band) {
    json_open_element(json, '{');
    json_i64(json, "priority", band->priority);
    json_u64(json, "waiting", band->n_waiting);
    json_u64(json, "bytes", band->n_bytes);
    json_u64(json, "full", band->n_full);
    json_u64(json, "expired", band->waited[FLOW_EXPIRED].count);
    json_u64(json, "left", band->waited[FLOW_ABORTED].count);
    status_histogram_add(json, "wait", &band->waited[FLOW_DISPATCHED]);
    json_close(json, '}');
}

/* `bands`: room to read them in; NULL: there is none. */
static void add_queues(struct json_out *json, struct pool *pool, struct flow_band_numbers *bands) {
    struct pool_flow_numbers numbers;
    pool_read_flow(pool, bands, bands ? MOST_BANDS : 0, &numbers);
    json_open_member(json, "queues", '[');
    for (size_t i = 0; bands && i < numbers.n_bands; i++) {
        add_queue(json, &bands[i]);
    }
    json_close(json, ']');
}

static void add_pool(struct json_out *json, const struct pick_shown *pool,
                     struct flow_band_numbers *bands) {
    uint64_t now_ns = clock_now_ns();
    json_open_element(json, '{');
    json_text(json, "name", pick_shown_name(pool));
    json_u64(json, "generation", pool->numbers.generation);
    json_u64(json, "in_flight", pool->numbers.n_in_flight);
    add_queues(json, pool->entry->pool, bands);
    json_open_member(json, "endpoints", '[');
    for (uint32_t i = 0; i < pool->snapshot->n_members; i++) {
        add_endpoint(json, pool->snapshot, &pool->snapshot->members[i], now_ns);
    }
    json_close(json, ']');
    json_close(json, '}');
}

/* ---- all of it ------------------------------------------------------------------------------- */

void pick_status_print(struct pick_admin *admin, struct buf *out) {
    struct pick_shown_list list = pick_shown_look(admin->pools, out->arena);
    struct flow_band_numbers *bands = arena_alloc(out->arena, MOST_BANDS * sizeof(*bands));
    struct json_out json = {.out = out};
    json_open(&json, '{');
    status_process_add(&json, &admin->process, list.n > 0);
    add_all_counts(&json);
    add_times(&json, admin);
    pick_kube_status(admin, &json);
    json_open_member(&json, "pools", '[');
    for (size_t i = 0; i < list.n; i++) {
        add_pool(&json, &list.items[i], bands);
    }
    json_close(&json, ']');
    json_close(&json, '}');
}

/* What /metrics and /debug/state say of the pools. An endpoint's numbers are read from the endpoint
 * as they are at that moment. */
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/discovery/scrape/scraper.h"
#include "program/picker/admin.h"
#include "program/picker/admin_pools.h"

/* ---- metrics --------------------------------------------------------------------------------- */

static uint64_t generation_of(const struct pool_stats *numbers) {
    return numbers->generation;
}
static uint64_t all_in_flight_of(const struct pool_stats *numbers) {
    return numbers->n_in_flight;
}

static void print_u64(struct metric_text *text, const struct pick_admin_pools *list,
                      enum metric_family family,
                      uint64_t (*value_of)(const struct pool_stats *numbers)) {
    metric_family_begin(text, family);
    for (size_t i = 0; i < list->n; i++) {
        struct buf labels;
        pick_admin_pool_begin_labels(text, list, &list->items[i], &labels);
        metric_text_u64(text, buf_str(&labels), value_of(&list->items[i].numbers));
    }
}

static void print_states(struct metric_text *text, const struct pick_admin_pools *list,
                         const struct pick_admin_pool *pool) {
    static const char *const names[] = {"ready", "refused", "unchecked", "not_ready"};
    const struct pool_stats *numbers = &pool->numbers;
    const uint64_t values[] = {numbers->n_ready - numbers->n_refused, numbers->n_refused,
                               numbers->n_unchecked,
                               numbers->n_endpoints - numbers->n_ready - numbers->n_unchecked};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct buf labels;
        pick_admin_pool_begin_labels(text, list, pool, &labels);
        metric_label_add(&labels, "state", str_of(names[i]));
        metric_text_u64(text, buf_str(&labels), values[i]);
    }
}

static void print_pools(struct metric_text *text, const struct pick_admin_pools *list) {
    print_u64(text, list, METRIC_FAMILY_POOL_GENERATION, generation_of);
    print_u64(text, list, METRIC_FAMILY_POOL_IN_FLIGHT, all_in_flight_of);
    metric_family_begin(text, METRIC_FAMILY_POOL_ENDPOINTS);
    for (size_t i = 0; i < list->n; i++) {
        print_states(text, list, &list->items[i]);
    }
}

static uint64_t in_flight_of(const struct endpoint *endpoint) {
    return endpoint_in_flight(endpoint);
}
static uint64_t ready_of(const struct endpoint *endpoint) {
    return endpoint_is_ready(endpoint);
}
static uint64_t refused_of(const struct endpoint *endpoint) {
    return endpoint_is_refused(endpoint);
}

/* A number of each endpoint. */
static const struct column {
    enum metric_family family;
    uint64_t (*value_of)(const struct endpoint *endpoint);
} COLUMNS[] = {
    {METRIC_FAMILY_ENDPOINT_IN_FLIGHT, in_flight_of},
    {METRIC_FAMILY_ENDPOINT_READY, ready_of},
    {METRIC_FAMILY_ENDPOINT_REFUSED, refused_of},
    {METRIC_FAMILY_ENDPOINT_PICKS, endpoint_n_picked},
    {METRIC_FAMILY_ENDPOINT_SCRAPE_FAILURES, endpoint_n_scrape_failures},
};

static void print_column(struct metric_text *text, const struct pick_admin_pools *list,
                         const struct column *column) {
    metric_family_begin(text, column->family);
    for (size_t k = 0; k < list->n; k++) {
        const struct pool_snapshot *snapshot = list->items[k].snapshot;
        for (uint32_t i = 0; i < snapshot->n_members; i++) {
            const struct endpoint *endpoint = snapshot->members[i].endpoint;
            struct buf labels;
            pick_admin_pool_begin_labels(text, list, &list->items[k], &labels);
            metric_label_add(&labels, "endpoint", endpoint_text(endpoint));
            metric_text_u64(text, buf_str(&labels), column->value_of(endpoint));
        }
    }
}

/* ---- loads ----------------------------------------------------------------------------------- */

static double age_of(const struct endpoint_load *load, uint64_t now_ns) {
    return now_ns > load->asked_ns ? (double)(now_ns - load->asked_ns) / 1e9 : 0;
}
static double waiting_of(const struct endpoint_load *load, uint64_t now_ns) {
    (void)now_ns;
    return load->n_waiting;
}
static double running_of(const struct endpoint_load *load, uint64_t now_ns) {
    (void)now_ns;
    return load->n_running;
}
static double kv_cache_of(const struct endpoint_load *load, uint64_t now_ns) {
    (void)now_ns;
    return (double)load->kv_cache_used;
}

/* A number that an endpoint said. */
static const struct said {
    enum metric_family family;
    unsigned known; /* one of these must be */
    double (*value_of)(const struct endpoint_load *load, uint64_t now_ns);
} SAID[] = {
    {METRIC_FAMILY_LOAD_AGE, ~0U, age_of},
    {METRIC_FAMILY_LOAD_WAITING, LOAD_WAITING, waiting_of},
    {METRIC_FAMILY_LOAD_RUNNING, LOAD_RUNNING, running_of},
    {METRIC_FAMILY_LOAD_KV_CACHE, LOAD_KV_CACHE, kv_cache_of},
};

static void print_said(struct metric_text *text, const struct pick_admin_pools *list,
                       const struct pick_admin_pool *pool, const struct said *said) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint_load load;
        struct buf labels;
        pool_snapshot_get_load(snapshot, &snapshot->members[i], now_ns, &load);
        if (load.known & said->known) {
            pick_admin_pool_begin_labels(text, list, pool, &labels);
            metric_label_add(&labels, "endpoint", endpoint_text(snapshot->members[i].endpoint));
            metric_text_f64(text, buf_str(&labels), said->value_of(&load, now_ns));
        }
    }
}

static void print_loads(struct metric_text *text, const struct pick_admin_pools *list,
                        const struct scraper *scraper) {
    enum { FIRST_TIME = 5, LAST_TIME = 24 }; /* 32 us to 16 s */
    struct metric_distribution seen = {.count = 0};
    for (size_t i = 0; i < sizeof SAID / sizeof SAID[0]; i++) {
        metric_family_begin(text, SAID[i].family);
        for (size_t k = 0; k < list->n; k++) {
            print_said(text, list, &list->items[k], &SAID[i]);
        }
    }
    if (scraper) {
        metric_histogram_read(scraper_durations(scraper), &seen);
    }
    metric_family_begin(text, METRIC_FAMILY_SCRAPE_TIME);
    metric_text_distribution(text, STR(""), &seen, METRIC_UNIT_SECONDS, FIRST_TIME, LAST_TIME);
}

void pick_metrics_print(void *context, struct metric_text *text) {
    struct pick_admin *admin = context;
    struct pick_admin_pools list = pick_admin_pools_load(admin->pools, text->out->arena);
    metric_print(text, "sluice_mip_");
    admin_process_print(&admin->process, text);
    print_pools(text, &list);
    for (size_t i = 0; i < sizeof COLUMNS / sizeof COLUMNS[0]; i++) {
        print_column(text, &list, &COLUMNS[i]);
    }
    print_loads(text, &list, admin->scraper);
    pick_dns_metrics(admin->dns, text);
    pick_kube_metrics(admin, text);
    pick_upstream_metrics_print(admin, &list, text);
    metric_text_end(text);
}

/* ---- state ----------------------------------------------------------------------------------- */

enum { ENDPOINTS_MOST = 1000, POOLS_MOST = 1000 };

/* What it said of its load, as far as that counts. */
static void print_load(const struct endpoint_load *load, struct buf *out) {
    if (load->known & LOAD_WAITING) {
        buf_printf(out, ", says %u waiting", load->n_waiting);
    }
    if (load->known & LOAD_RUNNING) {
        buf_printf(out, ", says %u running", load->n_running);
    }
    if (load->known & LOAD_KV_CACHE) {
        buf_printf(out, ", says %.3g of its KV cache used", (double)load->kv_cache_used);
    }
}

static void print_endpoint(const struct pool_snapshot *snapshot, const struct pool_member *member,
                           struct buf *out) {
    const struct endpoint *endpoint = member->endpoint;
    struct endpoint_load load;
    pool_snapshot_get_load(snapshot, member, clock_now_ns(), &load);
    const char *state = endpoint_is_unchecked(endpoint) ? "not checked yet"
                        : !endpoint_is_ready(endpoint)  ? "not ready"
                        : endpoint_is_refused(endpoint) ? "refused a connection"
                                                        : "ready";
    buf_printf(out, "endpoint %s: %s, %u in flight, %llu picks", endpoint->text, state,
               endpoint_in_flight(endpoint), (unsigned long long)endpoint_n_picked(endpoint));
    print_load(&load, out);
    buf_add_char(out, '\n');
}

/* Returns: how many endpoints were shown, of `most`. */
static uint32_t print_pool(const struct pick_admin_pool *pool, uint32_t most, struct buf *out) {
    const struct pool_stats *numbers = &pool->numbers;
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint32_t n = snapshot->n_members < most ? snapshot->n_members : most;
    buf_printf(out,
               "pool%s%.*s generation %llu: %u endpoints, %u ready, %u of these refused; %llu "
               "in flight\n",
               pool->entry->name.len > 0 ? " " : "", STR_ARG(pool->entry->name),
               (unsigned long long)numbers->generation, numbers->n_endpoints, numbers->n_ready,
               numbers->n_refused, (unsigned long long)numbers->n_in_flight);
    pick_flow_control_state(pool, out);
    for (uint32_t i = 0; i < n; i++) {
        print_endpoint(snapshot, &snapshot->members[i], out);
    }
    if (n < snapshot->n_members) {
        buf_printf(out, "and %u more endpoints\n", snapshot->n_members - n);
    }
    return n;
}

void pick_state_print(void *context, struct buf *out) {
    const struct pick_admin *admin = context;
    struct pick_admin_pools list = pick_admin_pools_load(admin->pools, out->arena);
    uint32_t n = 0;
    for (size_t i = 0; i < list.n && i < POOLS_MOST; i++) {
        n += print_pool(&list.items[i], ENDPOINTS_MOST - n, out);
    }
    if (list.n > POOLS_MOST) {
        buf_printf(out, "and %zu more pools\n", list.n - POOLS_MOST);
    }
    pick_dns_state(admin->dns, out);
    pick_kube_state(admin, out);
}

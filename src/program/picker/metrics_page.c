/* The page /metrics: the families of pools, endpoints, DNS names and the cluster. Those under the
 * names of the upstream project's picker are in upstream_page.c. */
#include "program/picker/routes.h"

#include "core/base/json_writer.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/discovery/dns/watch.h"
#include "pick/discovery/kube/leader.h"
#include "pick/discovery/kube/source.h"
#include "pick/discovery/scrape/scraper.h"

/* ---- pools and endpoints --------------------------------------------------------------------- */

static uint64_t generation_of(const struct pool_stats *numbers) {
    return numbers->generation;
}
static uint64_t all_in_flight_of(const struct pool_stats *numbers) {
    return numbers->n_in_flight;
}

static void print_pool_u64(struct metric_text *text, const struct pick_admin_pools *list,
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
    static const char *const names[] = {"ready",    "refused",   "ejected",
                                        "shedding", "unchecked", "not_ready"};
    const struct pool_stats *numbers = &pool->numbers;
    const uint64_t values[] = {numbers->n_ready - numbers->n_refused - numbers->n_ejected -
                                   numbers->n_shedding,
                               numbers->n_refused,
                               numbers->n_ejected,
                               numbers->n_shedding,
                               numbers->n_unchecked,
                               numbers->n_endpoints - numbers->n_ready - numbers->n_unchecked};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct buf labels;
        pick_admin_pool_begin_labels(text, list, pool, &labels);
        metric_label_add(&labels, "state", str_of(names[i]));
        metric_text_u64(text, buf_str(&labels), values[i]);
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
static uint64_t ejected_of(const struct endpoint *endpoint) {
    return endpoint_is_ejected(endpoint);
}

/* A metric of each endpoint. */
static const struct endpoint_column {
    enum metric_family family;
    uint64_t (*value_of)(const struct endpoint *endpoint);
} ENDPOINT_COLUMNS[] = {
    {METRIC_FAMILY_ENDPOINT_IN_FLIGHT, in_flight_of},
    {METRIC_FAMILY_ENDPOINT_READY, ready_of},
    {METRIC_FAMILY_ENDPOINT_REFUSED, refused_of},
    {METRIC_FAMILY_ENDPOINT_EJECTED, ejected_of},
    {METRIC_FAMILY_ENDPOINT_PICKS, endpoint_n_picked},
    {METRIC_FAMILY_ENDPOINT_SCRAPE_FAILURES, endpoint_n_scrape_failures},
};

static void print_endpoint_column(struct metric_text *text, const struct pick_admin_pools *list,
                                  const struct endpoint_column *column) {
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

static double load_age_of(const struct endpoint_load *load, uint64_t now_ns) {
    return now_ns > load->asked_ns ? (double)(now_ns - load->asked_ns) / 1e9 : 0;
}
static double load_waiting_of(const struct endpoint_load *load, uint64_t now_ns) {
    (void)now_ns;
    return load->n_waiting;
}
static double load_running_of(const struct endpoint_load *load, uint64_t now_ns) {
    (void)now_ns;
    return load->n_running;
}
static double load_kv_cache_of(const struct endpoint_load *load, uint64_t now_ns) {
    (void)now_ns;
    return (double)load->kv_cache_used;
}

/* A metric of each endpoint's last load. */
static const struct load_column {
    enum metric_family family;
    unsigned known; /* at least one of these flags must be set */
    double (*value_of)(const struct endpoint_load *load, uint64_t now_ns);
} LOAD_COLUMNS[] = {
    {METRIC_FAMILY_LOAD_AGE, ~0U, load_age_of},
    {METRIC_FAMILY_LOAD_WAITING, LOAD_WAITING, load_waiting_of},
    {METRIC_FAMILY_LOAD_RUNNING, LOAD_RUNNING, load_running_of},
    {METRIC_FAMILY_LOAD_KV_CACHE, LOAD_KV_CACHE, load_kv_cache_of},
};

static void print_load_column(struct metric_text *text, const struct pick_admin_pools *list,
                              const struct pick_admin_pool *pool,
                              const struct load_column *column) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint_load load;
        struct buf labels;
        pool_snapshot_get_load(snapshot, &snapshot->members[i], now_ns, &load);
        if (load.known & column->known) {
            pick_admin_pool_begin_labels(text, list, pool, &labels);
            metric_label_add(&labels, "endpoint", endpoint_text(snapshot->members[i].endpoint));
            metric_text_f64(text, buf_str(&labels), column->value_of(&load, now_ns));
        }
    }
}

/* Of each endpoint the attributes that have a value. */
static void print_attributes(struct metric_text *text, const struct pick_admin_pools *list,
                             const struct pick_admin_pool *pool) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint64_t now_ns = clock_now_ns();
    size_t n = snapshot->n_attributes;
    for (size_t cell = 0; cell < n * snapshot->n_members; cell++) {
        const struct attribute_key *key = &snapshot->attribute_keys[cell % n];
        struct buf labels;
        double value;
        if (attribute_cell_get(&snapshot->attributes[cell], now_ns, &value)) {
            pick_admin_pool_begin_labels(text, list, pool, &labels);
            metric_label_add(&labels, "endpoint",
                             endpoint_text(snapshot->members[cell / n].endpoint));
            metric_label_add(&labels, "attribute", key->name);
            metric_label_add(&labels, "producer", key->producer);
            metric_text_f64(text, buf_str(&labels), value);
        }
    }
}

static void print_loads(struct metric_text *text, const struct pick_admin_pools *list,
                        const struct scraper *scraper) {
    enum { FIRST_TIME = 5, LAST_TIME = 24 }; /* 32 us to 16 s */
    struct metric_distribution seen = {.count = 0};
    for (size_t i = 0; i < sizeof LOAD_COLUMNS / sizeof LOAD_COLUMNS[0]; i++) {
        metric_family_begin(text, LOAD_COLUMNS[i].family);
        for (size_t k = 0; k < list->n; k++) {
            print_load_column(text, list, &list->items[k], &LOAD_COLUMNS[i]);
        }
    }
    metric_family_begin(text, METRIC_FAMILY_LOAD_ATTRIBUTE);
    for (size_t k = 0; k < list->n; k++) {
        print_attributes(text, list, &list->items[k]);
    }
    if (scraper) {
        metric_histogram_read(scraper_durations(scraper), &seen);
    }
    metric_family_begin(text, METRIC_FAMILY_SCRAPE_TIME);
    metric_text_distribution(text, STR(""), &seen, METRIC_UNIT_SECONDS, FIRST_TIME, LAST_TIME);
}

/* ---- DNS names ------------------------------------------------------------------------------- */

static double dns_addresses_of(const struct dns_report *name, uint64_t now_ns) {
    (void)now_ns;
    return (double)name->n_addresses;
}
static double dns_failing_of(const struct dns_report *name, uint64_t now_ns) {
    (void)now_ns;
    return name->state == DNS_STATE_FAILING || name->state == DNS_STATE_EMPTY;
}
static double dns_age_of(const struct dns_report *name, uint64_t now_ns) {
    return now_ns > name->answered_ns ? (double)(now_ns - name->answered_ns) / 1e9 : 0;
}

/* A metric of each name. */
static const struct dns_column {
    enum metric_family family;
    bool answered; /* only if the name has had an answer */
    double (*value_of)(const struct dns_report *name, uint64_t now_ns);
} DNS_COLUMNS[] = {
    {METRIC_FAMILY_DNS_ADDRESSES, false, dns_addresses_of},
    {METRIC_FAMILY_DNS_FAILING, false, dns_failing_of},
    {METRIC_FAMILY_DNS_AGE, true, dns_age_of},
};

static void print_dns_column(struct metric_text *text, const struct dns_report *names, size_t n,
                             const struct dns_column *column) {
    uint64_t now_ns = clock_now_ns();
    metric_family_begin(text, column->family);
    for (size_t i = 0; i < n; i++) {
        struct buf labels;
        if (!column->answered || names[i].answered_ns > 0) {
            buf_init(&labels, text->out->arena, DNS_NAME_BYTES + 32);
            metric_label_add(&labels, "name", names[i].name);
            metric_label_add(&labels, "records", str_of(DNS_RECORDS_WORDS[names[i].records]));
            metric_text_f64(text, buf_str(&labels), column->value_of(&names[i], now_ns));
        }
    }
}

/* ---- cluster --------------------------------------------------------------------------------- */

static double kind_age_of(const struct kube_source_kind *kind) {
    return pick_seconds_since(kind->state.heard_ns);
}
static double events_of(const struct kube_source_kind *kind) {
    return (double)kind->state.n_events;
}
static double lists_of(const struct kube_source_kind *kind) {
    return (double)kind->state.n_lists;
}
static double failures_of(const struct kube_source_kind *kind) {
    return (double)kind->state.n_failures;
}
static double objects_of(const struct kube_source_kind *kind) {
    return (double)kind->counts.n_objects;
}
static double invalid_of(const struct kube_source_kind *kind) {
    return (double)kind->counts.n_invalid;
}

/* A metric of each watched kind. */
static const struct kube_column {
    enum metric_family family;
    bool heard; /* only if the kind was heard of */
    double (*value_of)(const struct kube_source_kind *kind);
} KUBE_COLUMNS[] = {
    {METRIC_FAMILY_KUBE_AGE, true, kind_age_of},
    {METRIC_FAMILY_KUBE_EVENTS, false, events_of},
    {METRIC_FAMILY_KUBE_LISTS, false, lists_of},
    {METRIC_FAMILY_KUBE_FAILURES, false, failures_of},
    {METRIC_FAMILY_KUBE_OBJECTS, false, objects_of},
    {METRIC_FAMILY_KUBE_SENSELESS, false, invalid_of},
};

static void begin_kube_labels(const struct metric_text *text, int kind, struct buf *labels) {
    buf_init(labels, text->out->arena, 128);
    metric_label_add(labels, "kind", str_of(KUBE_KINDS[kind].kind));
    metric_label_add(labels, "group", str_of(KUBE_KINDS[kind].group));
}

static void print_kube_column(const struct kube_source_report *report,
                              const struct kube_column *column, struct metric_text *text) {
    metric_family_begin(text, column->family);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        const struct kube_source_kind *one = &report->kinds[kind];
        if (one->watched && (!column->heard || one->state.heard_ns > 0)) {
            struct buf labels;
            begin_kube_labels(text, kind, &labels);
            metric_text_f64(text, buf_str(&labels), column->value_of(one));
        }
    }
}

/* Prints each phase of each kind, with 1 for the current one. */
static void print_phases(const struct kube_source_report *report, struct metric_text *text) {
    metric_family_begin(text, METRIC_FAMILY_KUBE_PHASE);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        const struct kube_source_kind *one = &report->kinds[kind];
        for (int phase = KUBE_LISTING; one->watched && phase <= KUBE_FAILING; phase++) {
            struct buf labels;
            begin_kube_labels(text, kind, &labels);
            metric_label_add(&labels, "phase", str_of(KUBE_PHASE_TEXTS[phase]));
            metric_text_u64(text, buf_str(&labels), (int)one->state.phase == phase);
        }
    }
}

/* A family is printed even if it has no series, so that the page shows which there are. */
static void print_kube_u64(struct metric_text *text, enum metric_family family, bool there,
                           uint64_t value) {
    metric_family_begin(text, family);
    if (there) {
        metric_text_u64(text, STR(""), value);
    }
}

static void print_cluster(const struct pick_admin *admin, struct metric_text *text) {
    struct kube_source_report report = {.synced = false};
    struct kube_leader_state leader = {.leads = false};
    bool there = admin->cluster != NULL, may_lead = admin->leader != NULL;
    if (there) {
        kube_source_report(admin->cluster, &report);
    }
    if (may_lead) {
        kube_leader_report(admin->leader, &leader);
    }
    print_kube_u64(text, METRIC_FAMILY_KUBE_SYNCED, there, report.synced);
    print_kube_u64(text, METRIC_FAMILY_KUBE_HAS_POOL, there, report.group != NULL);
    print_kube_u64(text, METRIC_FAMILY_KUBE_UPDATES, there, report.n_changes);
    print_kube_u64(text, METRIC_FAMILY_KUBE_LEADS, may_lead, leader.leads);
    print_kube_u64(text, METRIC_FAMILY_KUBE_LEASE_FAILURES, may_lead, leader.n_failures);
    print_phases(&report, text);
    for (size_t i = 0; i < sizeof KUBE_COLUMNS / sizeof KUBE_COLUMNS[0]; i++) {
        print_kube_column(&report, &KUBE_COLUMNS[i], text);
    }
}

/* ---- durations ------------------------------------------------------------------------------- */

void pick_times_read(struct pick_workers *workers, struct metric_distribution out[N_PICK_TIMES]) {
    const struct pick_stats *ledgers[PICK_MAX_WORKERS];
    size_t n = pick_workers_stats(workers, ledgers);
    for (size_t phase = 0; phase < N_PICK_TIMES; phase++) {
        out[phase] = (struct metric_distribution){.count = 0};
        for (size_t i = 0; i < n; i++) {
            metric_histogram_read(&ledgers[i]->times[phase], &out[phase]);
        }
    }
}

static void print_pick_times(struct pick_workers *workers, struct metric_text *text) {
    struct metric_distribution times[N_PICK_TIMES];
    pick_times_read(workers, times);
    metric_family_begin(text, METRIC_FAMILY_PICK_TIME);
    for (size_t i = 0; i < N_PICK_TIMES; i++) {
        struct buf labels;
        buf_init(&labels, text->out->arena, 64);
        metric_label_add(&labels, "phase", str_of(PICK_TIME_NAMES[i]));
        metric_text_distribution(text, buf_str(&labels), &times[i], METRIC_UNIT_SECONDS, 0,
                                 METRIC_BOUNDS - 1);
    }
}

/* ---- all families ---------------------------------------------------------------------------- */

void pick_metrics_print(void *context, struct metric_text *text) {
    struct pick_admin *admin = context;
    struct pick_admin_pools list = pick_admin_pools_load(admin->pools, text->out->arena);
    metric_print(text, "sluice_mip_");
    admin_process_print(&admin->process, text);
    print_pool_u64(text, &list, METRIC_FAMILY_POOL_GENERATION, generation_of);
    print_pool_u64(text, &list, METRIC_FAMILY_POOL_IN_FLIGHT, all_in_flight_of);
    metric_family_begin(text, METRIC_FAMILY_POOL_ENDPOINTS);
    for (size_t i = 0; i < list.n; i++) {
        print_states(text, &list, &list.items[i]);
    }
    for (size_t i = 0; i < sizeof ENDPOINT_COLUMNS / sizeof ENDPOINT_COLUMNS[0]; i++) {
        print_endpoint_column(text, &list, &ENDPOINT_COLUMNS[i]);
    }
    print_loads(text, &list, admin->scraper);
    struct dns_report *names = NULL;
    size_t n_names = admin->dns ? dns_watch_report(admin->dns, text->out->arena, &names) : 0;
    for (size_t i = 0; i < sizeof DNS_COLUMNS / sizeof DNS_COLUMNS[0]; i++) {
        print_dns_column(text, names, n_names, &DNS_COLUMNS[i]);
    }
    print_cluster(admin, text);
    print_pick_times(admin->workers, text);
    pick_upstream_print(admin, &list, text);
    metric_text_end(text);
}

/* The page /debug/state: pools, endpoints, DNS names and the cluster, as lines of text. */
#include "program/picker/routes.h"

#include "core/base/json_writer.h"
#include "core/base/metric/metric.h"
#include "core/base/plural.h"
#include "core/event/clock.h"
#include "pick/discovery/dns/watch.h"
#include "pick/discovery/kube/leader.h"
#include "pick/discovery/kube/source.h"
#include "pick/discovery/scrape/scraper.h"
#include "pick/pool/flow/wait.h"

static void print_flow_control(const struct pick_admin_pool *pool, struct buf *out) {
    struct pool_flow_stats numbers;
    struct flow_band_stats *bands = arena_alloc(out->arena, POOL_MAX_LISTED_BANDS * sizeof(*bands));
    if (!bands || !pool->snapshot->spec->flow_control.on) {
        return;
    }
    if (pool->snapshot->spec->flow_control.evicts) {
        struct pool_eviction_stats evicted;
        pool_get_eviction(pool->entry->pool, &evicted);
        buf_printf(out,
                   "%llu running, %llu of these sheddable; %llu evicted, of which %llu have ended "
                   "and %llu took too long\n",
                   (unsigned long long)evicted.n_leases, (unsigned long long)evicted.n_revocable,
                   (unsigned long long)evicted.n_revoked, (unsigned long long)evicted.n_confirmed,
                   (unsigned long long)evicted.n_timed_out);
    }
    pool_get_flow_stats(pool->entry->pool, bands, POOL_MAX_LISTED_BANDS, &numbers);
    buf_printf(out, "%llu request%s queued: %llu bytes, of %zu fairness id%s\n",
               (unsigned long long)numbers.n_waiting, plural_s(numbers.n_waiting),
               (unsigned long long)numbers.n_bytes, numbers.n_ids, plural_s(numbers.n_ids));
    for (size_t i = 0; i < numbers.n_bands; i++) {
        buf_printf(out, "  of priority %lld: %llu, of %zu fairness id%s\n",
                   (long long)bands[i].priority, (unsigned long long)bands[i].n_waiting,
                   bands[i].n_ids, plural_s(bands[i].n_ids));
    }
}

/* ---- pools ----------------------------------------------------------------------------------- */

enum { ENDPOINTS_MOST = 1000, POOLS_MOST = 1000 };

/* Prints the current values of the endpoint's load. */
static void print_load(const struct endpoint_load *load, struct buf *out) {
    if (load->known & LOAD_WAITING) {
        buf_printf(out, ", %u waiting", load->n_waiting);
    }
    if (load->known & LOAD_RUNNING) {
        buf_printf(out, ", %u running", load->n_running);
    }
    if (load->known & LOAD_KV_CACHE) {
        buf_printf(out, ", %.3g of its KV cache used", (double)load->kv_cache_used);
    }
}

static void print_endpoint(const struct pool_snapshot *snapshot, const struct pool_member *member,
                           struct buf *out) {
    const struct endpoint *endpoint = member->endpoint;
    struct endpoint_load load;
    pool_snapshot_get_load(snapshot, member, clock_now_ns(), &load);
    const char *state = endpoint_is_unchecked(endpoint)  ? "not checked yet"
                        : !endpoint_is_ready(endpoint)   ? "not ready"
                        : endpoint_is_ejected(endpoint)  ? "ejected"
                        : endpoint_is_refused(endpoint)  ? "refused a connection"
                        : endpoint_is_shedding(endpoint) ? "sheds load"
                                                         : "ready";
    buf_printf(out, "endpoint %s: %s, %u in flight, %llu picks", endpoint->text, state,
               endpoint_in_flight(endpoint), (unsigned long long)endpoint_n_picked(endpoint));
    print_load(&load, out);
    buf_add_char(out, '\n');
}

/* Prints at most `most` endpoints. Returns: how many. */
static uint32_t print_pool(const struct pick_admin_pool *pool, uint32_t most, struct buf *out) {
    const struct pool_stats *numbers = &pool->numbers;
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint32_t n = snapshot->n_members < most ? snapshot->n_members : most;
    buf_printf(out,
               "pool%s%.*s generation %llu: %u endpoints, %u ready, %u of these refused and %u "
               "ejected; %llu "
               "in flight\n",
               pool->entry->name.len > 0 ? " " : "", STR_ARG(pool->entry->name),
               (unsigned long long)numbers->generation, numbers->n_endpoints, numbers->n_ready,
               numbers->n_refused, numbers->n_ejected, (unsigned long long)numbers->n_in_flight);
    if (snapshot->spec->detector.kind != DETECTOR_NONE) {
        struct pool_saturation_stats whole;
        pool_get_saturation(pool->entry->pool, &whole);
        buf_printf(out, "saturation of the whole: %.4g\n", whole.effective);
    }
    print_flow_control(pool, out);
    for (uint32_t i = 0; i < n; i++) {
        print_endpoint(snapshot, &snapshot->members[i], out);
    }
    if (n < snapshot->n_members) {
        buf_printf(out, "and %u more endpoints\n", snapshot->n_members - n);
    }
    return n;
}

/* ---- DNS names ------------------------------------------------------------------------------- */

static void print_addresses(const struct dns_report *name, struct buf *out) {
    enum { ADDRESSES_MOST = 100 };
    for (size_t i = 0; i < name->n_addresses && i < ADDRESSES_MOST; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        struct str address = endpoint_address_print(&name->addresses[i], text);
        if (name->addresses[i].port == 0) { /* without ":0" */
            address.len -= 2;
        }
        buf_printf(out, "%s%.*s", i == 0 ? ": " : ", ", STR_ARG(address));
    }
    if (name->n_addresses > ADDRESSES_MOST) {
        buf_printf(out, " and %zu more", name->n_addresses - ADDRESSES_MOST);
    }
}

static void print_dns_name(const struct dns_report *name, struct buf *out) {
    static const char *const states[] = {
        [DNS_STATE_UNRESOLVED] = "not answered yet",
        [DNS_STATE_RESOLVED] = "resolved",
        [DNS_STATE_PARTIAL] = "resolved in part",
        [DNS_STATE_EMPTY] = "has no addresses",
        [DNS_STATE_FAILING] = "failing",
    };
    buf_printf(out, "name %.*s (%s): %s", STR_ARG(name->name), DNS_RECORDS_TEXTS[name->records],
               states[name->state]);
    if (name->error.len > 0) {
        buf_printf(out, " (%.*s)", STR_ARG(name->error));
    }
    if (name->answered_ns > 0) {
        buf_printf(out, ", answered %.1f s ago", pick_seconds_since(name->answered_ns));
    }
    buf_printf(out, ", %zu address%s", name->n_addresses, name->n_addresses == 1 ? "" : "es");
    print_addresses(name, out);
    buf_add_char(out, '\n');
}

/* ---- cluster --------------------------------------------------------------------------------- */

static void print_kube_kind(int kind, const struct kube_source_kind *one, struct buf *out) {
    const struct kube_kind_info *info = &KUBE_KINDS[kind];
    buf_printf(out, "cluster's %s%s%s: %s, %zu objects, %zu of the pool", info->kind,
               *info->group ? " of " : "", info->group, KUBE_PHASE_TEXTS[one->state.phase],
               one->counts.n_objects, one->counts.n_matching);
    if (kind == KUBE_POD) {
        buf_printf(out, ", %zu of these ready", one->counts.n_usable);
    }
    if (one->counts.n_invalid > 0) {
        buf_printf(out, ", %zu invalid", one->counts.n_invalid);
    }
    buf_printf(out, "; %llu events, %llu lists, %llu failures",
               (unsigned long long)one->state.n_events, (unsigned long long)one->state.n_lists,
               (unsigned long long)one->state.n_failures);
    if (one->state.heard_ns > 0) {
        buf_printf(out, ", heard of %.1f s ago", pick_seconds_since(one->state.heard_ns));
    }
    if (one->state.error.status != ST_OK) {
        buf_printf(out, " (%s)", one->state.error.text);
    }
    buf_add_char(out, '\n');
}

static void print_lease(struct kube_leader *leader, struct buf *out) {
    struct kube_leader_state state;
    kube_leader_report(leader, &state);
    buf_printf(out, "cluster's lease: %s%s, we are %s; %llu failures",
               state.leads     ? "this picker leads"
               : *state.holder ? "led by "
                               : "no leader",
               state.leads ? "" : state.holder, state.identity,
               (unsigned long long)state.n_failures);
    if (state.error.status != ST_OK) {
        buf_printf(out, " (%s)", state.error.text);
    }
    buf_add_char(out, '\n');
}

static void print_cluster(const struct pick_admin *admin, struct buf *out) {
    struct kube_source_report report;
    if (!admin->cluster) {
        return;
    }
    kube_source_report(admin->cluster, &report);
    buf_printf(out, "cluster %s, namespace %s: ", report.server, report.name_space);
    if (report.pods) {
        buf_printf(out, "pods with %s", report.pods);
    } else if (report.group) {
        buf_printf(out, "InferencePool %s of %s", report.pool, report.group);
    } else {
        buf_printf(out, "no InferencePool %s", report.pool);
    }
    uint64_t heard_ns = kube_source_fresh_ns(&report);
    buf_printf(out, "%s; %llu changes of the pool", report.synced ? "" : ", not synced yet",
               (unsigned long long)report.n_changes);
    if (heard_ns > 0) {
        buf_printf(out, "; up to date %.1f s ago", pick_seconds_since(heard_ns));
    }
    buf_add_char(out, '\n');
    if (admin->leader) {
        print_lease(admin->leader, out);
    }
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        if (report.kinds[kind].watched) {
            print_kube_kind(kind, &report.kinds[kind], out);
        }
    }
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
    struct dns_report *names = NULL;
    size_t n_names = admin->dns ? dns_watch_report(admin->dns, out->arena, &names) : 0;
    for (size_t i = 0; i < n_names; i++) {
        print_dns_name(&names[i], out);
    }
    print_cluster(admin, out);
}

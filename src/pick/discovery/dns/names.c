/* The names of all pools, the heap of their next queries, and the last answer of each. */
#include "pick/discovery/dns/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"

static const uint64_t NS_PER_S = 1000000000;
/* Upper limit of the wait after failures, so that a recovered server is noticed in time. */
static const uint64_t LONGEST_WAIT_NS = UINT64_C(30000000000);
enum { JITTER_SHARE = 4 };

static void name_free(struct dns_name *name) {
    free(name->found);
    free(name);
}

/* Removes the name from the heap. While its query runs the name is kept. */
static void remove_name(struct dns_names *names, struct dns_name *name) {
    timer_heap_remove(&names->waiting, &name->due);
    names->n_unresolved -= name->state == DNS_STATE_UNRESOLVED;
    name->removed = true;
    if (!name->query_running) {
        name_free(name);
    }
}

static void drop_all(struct dns_names *names) {
    for (size_t i = 0; i < names->n; i++) {
        remove_name(names, names->items[i]);
    }
    free(names->items);
    names->items = NULL;
    names->n = 0;
}

void dns_names_fini(struct dns_names *names) {
    drop_all(names);
    assert(names->n_queries == 0 && names->n_unresolved == 0);
    timer_heap_fini(&names->waiting);
}

/* ---- the set of names ------------------------------------------------------------------------ */

/* A name of a plan, with the plan. */
struct wanted_name {
    const struct dns_plan_name *wanted;
    const struct dns_plan *plan;
};

static int compare_name(const char *name, enum dns_records records, const char *servers,
                        const struct dns_name *other) {
    int order = strcmp(name, other->name);
    order = order ? order : (int)records - (int)other->records;
    return order ? order : strcmp(servers, other->servers);
}

/* Returns: the index of the name, or where it would be inserted. */
static size_t place_of(const struct dns_names *names, const char *name, enum dns_records records,
                       const char *servers, bool *found) {
    size_t low = 0, high = names->n;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_name(name, records, servers, names->items[middle]);
        *found = *found || order == 0;
        low = order > 0 ? middle + 1 : low;
        high = order > 0 ? high : middle;
    }
    return low;
}

const struct dns_name *dns_names_find(const struct dns_names *names, const char *name,
                                      enum dns_records records, const char *servers) {
    bool found;
    size_t place = place_of(names, name, records, servers, &found);
    assert(!found || names->items[place]);
    return found ? names->items[place] : NULL;
}

/* By name; of equal ones the first in the plans. */
static int compare_wanted_names(const void *a, const void *b) {
    const struct wanted_name *left = a, *right = b;
    int order = strcmp(left->wanted->name.ptr, right->wanted->name.ptr);
    order = order ? order : (int)left->wanted->records - (int)right->wanted->records;
    order = order ? order : strcmp(left->plan->servers.ptr, right->plan->servers.ptr);
    return order ? order : left->wanted < right->wanted ? -1 : left->wanted > right->wanted;
}

/* Lists the names of all plans, sorted. Returns: NULL when out of memory. */
static struct wanted_name *list_wanted_names(const struct pool_specs *specs, size_t *n) {
    size_t most = 0;
    *n = 0;
    for (size_t i = 0; specs && i < specs->n; i++) {
        most += specs->items[i]->dns ? specs->items[i]->dns->n_names : 0;
    }
    struct wanted_name *wanted_names = calloc(most + 1, sizeof(*wanted_names));
    for (size_t i = 0; wanted_names && specs && i < specs->n; i++) {
        const struct dns_plan *plan = specs->items[i]->dns;
        for (size_t k = 0; plan && k < plan->n_names; k++) {
            wanted_names[(*n)++] = (struct wanted_name){&plan->names[k], plan};
        }
    }
    if (*n > 0) {
        qsort(wanted_names, *n, sizeof(*wanted_names), compare_wanted_names);
    }
    return wanted_names;
}

/* The new name is due at once. Returns: NULL when out of memory. */
static struct dns_name *name_new(struct dns_names *names, const struct wanted_name *wanted_name,
                                 uint64_t now_ns) {
    struct str text = wanted_name->wanted->name, servers = wanted_name->plan->servers;
    struct dns_name *name = calloc(1, sizeof(*name));
    if (name && !timer_heap_set(&names->waiting, &name->due, now_ns)) {
        free(name);
        name = NULL;
    }
    if (name) {
        assert(text.len < sizeof(name->name) && servers.len < sizeof(name->servers));
        memcpy(name->name, text.ptr, text.len);
        memcpy(name->servers, servers.ptr, servers.len);
        name->records = wanted_name->wanted->records;
        names->n_unresolved++;
    }
    return name;
}

/* Applies the plan's times. A name whose next query is later than max_ttl_ns allows is moved. */
static void set_times(struct dns_names *names, struct dns_name *name, const struct dns_plan *plan,
                      uint64_t now_ns) {
    name->timeout_ns = plan->timeout_ns;
    name->min_ttl_ns = plan->min_ttl_ns;
    name->max_ttl_ns = plan->max_ttl_ns;
    name->keep_ns = plan->keep_ns;
    if (!name->query_running && name->due.due_ns > now_ns + plan->max_ttl_ns) {
        /* It is in the heap already, so this allocates no memory. */
        (void)!timer_heap_set(&names->waiting, &name->due, now_ns + plan->max_ttl_ns);
    }
}

/* Moves each wanted name from the old list to `items`, or creates it. Returns: false when out of
 * memory. */
static bool merge_names(struct dns_names *names, const struct wanted_name *wanted_names,
                        size_t n_wanted_names, struct dns_name **items, size_t *n,
                        uint64_t now_ns) {
    const struct dns_name *last = NULL;
    size_t old = 0;
    for (size_t i = 0; i < n_wanted_names; i++) {
        const struct dns_plan_name *wanted = wanted_names[i].wanted;
        const char *text = wanted->name.ptr, *servers = wanted_names[i].plan->servers.ptr;
        int order = 1;
        if (last && compare_name(text, wanted->records, servers, last) == 0) {
            continue;
        }
        while (old < names->n &&
               (order = compare_name(text, wanted->records, servers, names->items[old])) > 0) {
            old++;
        }
        bool known = old < names->n && order == 0;
        struct dns_name *name =
            known ? names->items[old] : name_new(names, &wanted_names[i], now_ns);
        if (!name) {
            return false;
        }
        name->removed = false; /* others keep the mark and are removed */
        set_times(names, name, wanted_names[i].plan, now_ns);
        items[(*n)++] = name;
        last = name;
        old += known;
    }
    return true;
}

bool dns_names_set_pools(struct dns_names *names, const struct pool_specs *specs, uint64_t now_ns) {
    size_t n_wanted_names, n = 0;
    struct wanted_name *wanted_names = list_wanted_names(specs, &n_wanted_names);
    struct dns_name **items =
        wanted_names ? calloc(n_wanted_names + 1, sizeof(struct dns_name *)) : NULL;
    for (size_t i = 0; i < names->n; i++) {
        names->items[i]->removed = true;
    }
    bool good = items && merge_names(names, wanted_names, n_wanted_names, items, &n, now_ns);
    for (size_t i = 0; i < names->n; i++) {
        if (names->items[i]->removed) {
            remove_name(names, names->items[i]);
        }
    }
    free(wanted_names);
    free(names->items);
    names->items = items;
    names->n = n;
    if (!good) {
        drop_all(names);
    }
    return good;
}

/* ---- time of the next query ------------------------------------------------------------------ */

struct dns_name *dns_names_pop_due(struct dns_names *names, uint64_t now_ns) {
    if (names->n_queries == DNS_MAX_CONCURRENT_QUERIES) {
        return NULL;
    }
    struct dns_name *name = (struct dns_name *)(void *)timer_heap_pop_due(&names->waiting, now_ns);
    if (name) {
        name->query_running = true;
        names->n_queries++;
    }
    return name;
}

uint64_t dns_names_next_ns(const struct dns_names *names) {
    return names->n_queries == DNS_MAX_CONCURRENT_QUERIES ? UINT64_MAX
                                                          : timer_heap_next_ns(&names->waiting);
}

static uint64_t clamp_ttl_ns(const struct dns_name *name, uint64_t ns) {
    ns = ns > name->min_ttl_ns ? ns : name->min_ttl_ns;
    return ns < name->max_ttl_ns ? ns : name->max_ttl_ns;
}

/* The wait doubles with each failure after the first; a random share is added. */
static uint64_t back_off(struct dns_names *names, const struct dns_name *name) {
    uint64_t max_ttl_ns = name->max_ttl_ns < LONGEST_WAIT_NS ? name->max_ttl_ns : LONGEST_WAIT_NS;
    uint64_t wait_ns = backoff_wait(name->min_ttl_ns, max_ttl_ns, name->n_failures);
    return wait_ns + prng_share(&names->prng, wait_ns / JITTER_SHARE);
}

static uint64_t wait_of(struct dns_names *names, struct dns_name *name,
                        const struct dns_result *result, uint64_t now_ns) {
    if (result->outcome == DNS_FOUND) {
        name->n_failures = 0;
        return clamp_ttl_ns(name, result->ttl_s * NS_PER_S);
    }
    name->n_failures++;
    uint64_t wait_ns = back_off(names, name);
    if (result->outcome == DNS_PARTIAL) {
        uint64_t ttl_ns = clamp_ttl_ns(name, result->ttl_s * NS_PER_S);
        wait_ns = ttl_ns < wait_ns ? ttl_ns : wait_ns;
    }
    if (result->outcome == DNS_EMPTY && name->n_found > 0) { /* until the kept addresses expire */
        uint64_t left_ns = name->keep_ns - (now_ns - name->none_ns);
        wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
    }
    return wait_ns;
}

/* Returns: false if the name was removed meanwhile, and is freed. */
static bool end_query(struct dns_names *names, struct dns_name *name) {
    name->query_running = false;
    names->n_queries--;
    if (name->removed) {
        name_free(name);
        return false;
    }
    return true;
}

/* Out of memory the name is not queried until the plans change. */
static void wait_until(struct dns_names *names, struct dns_name *name, uint64_t due_ns) {
    (void)!timer_heap_set(&names->waiting, &name->due, due_ns);
}

void dns_names_requeue(struct dns_names *names, struct dns_name *name, uint64_t now_ns) {
    name->query = NULL;
    if (end_query(names, name)) {
        wait_until(names, name, now_ns);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool same_addresses(const struct dns_name *name, const struct dns_query_address *found,
                           size_t n) {
    bool same = n == name->n_found;
    for (size_t i = 0; same && i < n; i++) {
        same = endpoint_address_equal(&found[i].address, &name->found[i].address);
    }
    return same;
}

/* Returns: the addresses have changed. Out of memory the old ones stay. */
static bool take_found(struct dns_name *name, const struct dns_query_address *found, size_t n) {
    struct dns_query_address *copy = calloc(n + 1, sizeof(*copy));
    bool changed = !same_addresses(name, found, n);
    if (!copy) {
        return false;
    }
    if (n > 0) {
        memcpy(copy, found, n * sizeof(*copy));
    }
    free(name->found);
    name->found = copy;
    name->n_found = n;
    return changed;
}

bool dns_names_finish(struct dns_names *names, struct dns_name *name,
                      const struct dns_result *result, uint64_t now_ns) {
    static const enum dns_state states[] = {[DNS_FOUND] = DNS_STATE_RESOLVED,
                                            [DNS_PARTIAL] = DNS_STATE_PARTIAL,
                                            [DNS_EMPTY] = DNS_STATE_EMPTY,
                                            [DNS_FAILED] = DNS_STATE_FAILING};
    bool changed = false;
    name->query = NULL;
    if (!end_query(names, name)) {
        return false;
    }
    names->n_unresolved -= name->state == DNS_STATE_UNRESOLVED;
    name->state = states[result->outcome];
    name->error = result->error;
    if (result->outcome == DNS_EMPTY) {
        name->none_ns = name->none_ns > 0 ? name->none_ns : now_ns;
        changed = now_ns - name->none_ns >= name->keep_ns && take_found(name, NULL, 0);
    } else if (result->outcome != DNS_FAILED) {
        name->none_ns = 0;
        changed = take_found(name, result->found, result->n_found);
    }
    if (result->outcome != DNS_FAILED) {
        name->answered_ns = now_ns;
    }
    wait_until(names, name, now_ns + wait_of(names, name, result, now_ns));
    return changed;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void add_endpoints(const struct dns_plan_name *wanted, const struct dns_query_address *found,
                          struct pool_spec *spec) {
    struct pool_spec_endpoint endpoint = {.address = found->address, .labels = wanted->labels};
    if (wanted->records == DNS_RECORDS_SRV) {
        pool_spec_add_endpoint(spec, &endpoint);
    }
    for (size_t i = 0; wanted->records != DNS_RECORDS_SRV && i < wanted->n_ports; i++) {
        endpoint.address.port = wanted->ports[i];
        pool_spec_add_endpoint(spec, &endpoint);
    }
}

void dns_names_add_endpoints(const struct dns_names *names, struct pool_spec *spec) {
    for (size_t i = 0; spec->dns && i < spec->dns->n_names; i++) {
        const struct dns_plan_name *wanted = &spec->dns->names[i];
        const struct dns_name *name =
            dns_names_find(names, wanted->name.ptr, wanted->records, spec->dns->servers.ptr);
        for (size_t k = 0; name && k < name->n_found; k++) {
            add_endpoints(wanted, &name->found[k], spec);
        }
    }
}

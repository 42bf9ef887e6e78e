/* A heap of times, and the last answer of each name. */
#include "pick/discovery/dns/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t NS_PER_S = 1000000000;
/* However long answers may count, a server that is back is noticed within this. */
static const uint64_t LONGEST_WAIT_NS = UINT64_C(30000000000);
enum { JITTER_SHARE = 4, MOST_DOUBLINGS = 16 };

static void name_free(struct dns_name *name) {
    free(name->found);
    free(name);
}

/* Out of the list. While it is asked it stays. */
static void drop(struct dns_names *names, struct dns_name *name) {
    deadlines_remove(&names->waiting, &name->due);
    names->n_unasked -= name->state == DNS_UNASKED;
    name->gone = true;
    if (!name->asking) {
        name_free(name);
    }
}

static void drop_all(struct dns_names *names) {
    for (size_t i = 0; i < names->n; i++) {
        drop(names, names->items[i]);
    }
    free(names->items);
    names->items = NULL;
    names->n = 0;
}

void dns_names_fini(struct dns_names *names) {
    drop_all(names);
    assert(names->n_asking == 0 && names->n_unasked == 0);
    deadlines_fini(&names->waiting);
}

/* ---- which ----------------------------------------------------------------------------------- */

/* A name of a plan. */
struct wish {
    const struct dns_wanted *wanted;
    const struct dns_plan *plan;
};

static int compare(const char *name, enum dns_records records, const char *servers,
                   const struct dns_name *other) {
    int order = strcmp(name, other->name);
    order = order ? order : (int)records - (int)other->records;
    return order ? order : strcmp(servers, other->servers);
}

/* Returns: where it is, or would be. */
static size_t place_of(const struct dns_names *names, const char *name, enum dns_records records,
                       const char *servers, bool *found) {
    size_t low = 0, high = names->n;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(name, records, servers, names->items[middle]);
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

/* By name; of equal ones the one that was wanted first. */
static int compare_wishes(const void *a, const void *b) {
    const struct wish *left = a, *right = b;
    int order = strcmp(left->wanted->name.ptr, right->wanted->name.ptr);
    order = order ? order : (int)left->wanted->records - (int)right->wanted->records;
    order = order ? order : strcmp(left->plan->servers.ptr, right->plan->servers.ptr);
    return order ? order : left->wanted < right->wanted ? -1 : left->wanted > right->wanted;
}

/* All names of all plans, sorted. Returns: NULL when out of memory. */
static struct wish *list_wishes(const struct pool_specs *specs, size_t *n) {
    size_t most = 0;
    *n = 0;
    for (size_t i = 0; specs && i < specs->n; i++) {
        most += specs->items[i]->dns ? specs->items[i]->dns->n_names : 0;
    }
    struct wish *wishes = calloc(most + 1, sizeof(*wishes));
    for (size_t i = 0; wishes && specs && i < specs->n; i++) {
        const struct dns_plan *plan = specs->items[i]->dns;
        for (size_t k = 0; plan && k < plan->n_names; k++) {
            wishes[(*n)++] = (struct wish){&plan->names[k], plan};
        }
    }
    if (*n > 0) {
        qsort(wishes, *n, sizeof(*wishes), compare_wishes);
    }
    return wishes;
}

/* Due at once. Returns: NULL when out of memory. */
static struct dns_name *name_new(struct dns_names *names, const struct wish *wish,
                                 uint64_t now_ns) {
    struct str text = wish->wanted->name, servers = wish->plan->servers;
    struct dns_name *name = calloc(1, sizeof(*name));
    if (name && !deadlines_set(&names->waiting, &name->due, now_ns)) {
        free(name);
        name = NULL;
    }
    if (name) {
        assert(text.len < sizeof(name->name) && servers.len < sizeof(name->servers));
        memcpy(name->name, text.ptr, text.len);
        memcpy(name->servers, servers.ptr, servers.len);
        name->records = wish->wanted->records;
        names->n_unasked++;
    }
    return name;
}

/* What waits longer than it may now waits anew. */
static void set_times(struct dns_names *names, struct dns_name *name, const struct dns_plan *plan,
                      uint64_t now_ns) {
    name->timeout_ns = plan->timeout_ns;
    name->shortest_ns = plan->shortest_ns;
    name->longest_ns = plan->longest_ns;
    name->keep_ns = plan->keep_ns;
    if (!name->asking && name->due.due_ns > now_ns + plan->longest_ns) {
        /* It is in the heap already: no memory is needed. */
        (void)!deadlines_set(&names->waiting, &name->due, now_ns + plan->longest_ns);
    }
}

/* The name of each wish goes from the old list to `items`, or is made. Returns: false when out of
 * memory. */
static bool gather(struct dns_names *names, const struct wish *wishes, size_t n_wishes,
                   struct dns_name **items, size_t *n, uint64_t now_ns) {
    const struct dns_name *last = NULL;
    size_t old = 0;
    for (size_t i = 0; i < n_wishes; i++) {
        const struct dns_wanted *wanted = wishes[i].wanted;
        const char *text = wanted->name.ptr, *servers = wishes[i].plan->servers.ptr;
        int order = 1;
        if (last && compare(text, wanted->records, servers, last) == 0) {
            continue;
        }
        while (old < names->n &&
               (order = compare(text, wanted->records, servers, names->items[old])) > 0) {
            old++;
        }
        bool known = old < names->n && order == 0;
        struct dns_name *name = known ? names->items[old] : name_new(names, &wishes[i], now_ns);
        if (!name) {
            return false;
        }
        name->gone = false; /* the others are, as it was until here */
        set_times(names, name, wishes[i].plan, now_ns);
        items[(*n)++] = name;
        last = name;
        old += known;
    }
    return true;
}

bool dns_names_follow(struct dns_names *names, const struct pool_specs *specs, uint64_t now_ns) {
    size_t n_wishes, n = 0;
    struct wish *wishes = list_wishes(specs, &n_wishes);
    struct dns_name **items = wishes ? calloc(n_wishes + 1, sizeof(struct dns_name *)) : NULL;
    for (size_t i = 0; i < names->n; i++) {
        names->items[i]->gone = true;
    }
    bool good = items && gather(names, wishes, n_wishes, items, &n, now_ns);
    for (size_t i = 0; i < names->n; i++) {
        if (names->items[i]->gone) {
            drop(names, names->items[i]);
        }
    }
    free(wishes);
    free(names->items);
    names->items = items;
    names->n = n;
    if (!good) {
        drop_all(names);
    }
    return good;
}

/* ---- when ------------------------------------------------------------------------------------ */

struct dns_name *dns_names_take(struct dns_names *names, uint64_t now_ns) {
    if (names->n_asking == DNS_MOST_ASKING) {
        return NULL;
    }
    struct dns_name *name = (struct dns_name *)(void *)deadlines_take_due(&names->waiting, now_ns);
    if (name) {
        name->asking = true;
        names->n_asking++;
    }
    return name;
}

uint64_t dns_names_next_ns(const struct dns_names *names) {
    return names->n_asking == DNS_MOST_ASKING ? UINT64_MAX : deadlines_next_ns(&names->waiting);
}

static uint64_t within(const struct dns_name *name, uint64_t ns) {
    ns = ns > name->shortest_ns ? ns : name->shortest_ns;
    return ns < name->longest_ns ? ns : name->longest_ns;
}

/* Twice as long for each failure but the first, and something at random. */
static uint64_t back_off(struct dns_names *names, const struct dns_name *name) {
    unsigned n = name->n_failures < MOST_DOUBLINGS ? name->n_failures : MOST_DOUBLINGS;
    uint64_t longest_ns = name->longest_ns < LONGEST_WAIT_NS ? name->longest_ns : LONGEST_WAIT_NS;
    uint64_t wait_ns = name->shortest_ns << (n > 0 ? n - 1 : 0);
    wait_ns = wait_ns < longest_ns ? wait_ns : longest_ns;
    return wait_ns + (uint64_t)(dice_unit(&names->dice) * (double)wait_ns / JITTER_SHARE);
}

static uint64_t wait_of(struct dns_names *names, struct dns_name *name,
                        const struct dns_result *result, uint64_t now_ns) {
    if (result->outcome == DNS_FOUND) {
        name->n_failures = 0;
        return within(name, result->ttl_s * NS_PER_S);
    }
    name->n_failures++;
    uint64_t wait_ns = back_off(names, name);
    if (result->outcome == DNS_PARTIAL) {
        uint64_t ttl_ns = within(name, result->ttl_s * NS_PER_S);
        wait_ns = ttl_ns < wait_ns ? ttl_ns : wait_ns;
    }
    if (result->outcome == DNS_EMPTY && name->n_found > 0) { /* when what it keeps is over */
        uint64_t left_ns = name->keep_ns - (now_ns - name->none_ns);
        wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
    }
    return wait_ns;
}

/* It is asked no more for now. Returns: false: it was gone, and is freed. */
static bool end_asking(struct dns_names *names, struct dns_name *name) {
    name->asking = false;
    names->n_asking--;
    if (name->gone) {
        name_free(name);
        return false;
    }
    return true;
}

/* Out of memory it is asked no more until the plan is another. */
static void wait_until(struct dns_names *names, struct dns_name *name, uint64_t due_ns) {
    (void)!deadlines_set(&names->waiting, &name->due, due_ns);
}

void dns_names_put_back(struct dns_names *names, struct dns_name *name, uint64_t now_ns) {
    name->query = NULL;
    if (end_asking(names, name)) {
        wait_until(names, name, now_ns);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool same_addresses(const struct dns_name *name, const struct dns_found *found, size_t n) {
    bool same = n == name->n_found;
    for (size_t i = 0; same && i < n; i++) {
        same = endpoint_address_equal(&found[i].address, &name->found[i].address);
    }
    return same;
}

/* Returns: the addresses are others now. Out of memory they stay. */
static bool take_found(struct dns_name *name, const struct dns_found *found, size_t n) {
    struct dns_found *copy = calloc(n + 1, sizeof(*copy));
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

static bool take_none(struct dns_name *name, uint64_t now_ns) {
    name->none_ns = name->none_ns > 0 ? name->none_ns : now_ns;
    bool over = now_ns - name->none_ns >= name->keep_ns;
    return over ? take_found(name, NULL, 0) : false;
}

bool dns_names_finish(struct dns_names *names, struct dns_name *name,
                      const struct dns_result *result, uint64_t now_ns) {
    static const enum dns_state states[] = {[DNS_FOUND] = DNS_GOOD,
                                            [DNS_PARTIAL] = DNS_SOME,
                                            [DNS_EMPTY] = DNS_NONE,
                                            [DNS_FAILED] = DNS_FAILING};
    bool changed = false;
    name->query = NULL;
    if (!end_asking(names, name)) {
        return false;
    }
    names->n_unasked -= name->state == DNS_UNASKED;
    name->state = states[result->outcome];
    name->error = result->error;
    if (result->outcome == DNS_EMPTY) {
        changed = take_none(name, now_ns);
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

static enum status add(const struct dns_wanted *wanted, const struct dns_found *found,
                       struct pool_spec *spec, struct error *err) {
    struct pool_wanted endpoint = {.address = found->address, .labels = wanted->labels};
    enum status st = ST_OK;
    if (wanted->records == DNS_RECORDS_SRV) {
        return pool_spec_add_endpoint(spec, &endpoint, err);
    }
    for (size_t i = 0; st == ST_OK && i < wanted->n_ports; i++) {
        endpoint.address.port = wanted->ports[i];
        st = pool_spec_add_endpoint(spec, &endpoint, err);
    }
    return st;
}

enum status dns_names_fill(const struct dns_names *names, struct pool_spec *spec,
                           struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; spec->dns && st == ST_OK && i < spec->dns->n_names; i++) {
        const struct dns_wanted *wanted = &spec->dns->names[i];
        const struct dns_name *name =
            dns_names_find(names, wanted->name.ptr, wanted->records, spec->dns->servers.ptr);
        for (size_t k = 0; name && st == ST_OK && k < name->n_found; k++) {
            st = add(wanted, &name->found[k], spec, err);
        }
    }
    return st;
}

/* What is known of the names of all pools, and when each is asked for again. Sans I/O: who has a
 * clock and a resolver (watch.h) takes a name that is due, asks, and says what came of it.
 *
 * A name is asked for once, however many pools want it, unless they ask other servers for it; times
 * are those of the first of its plans.
 *
 * It is asked for again when its answer's time to live is over, which counts as one between the
 * plan's shortest and longest. While it fails it keeps what is known, however long that takes, and
 * is asked for less and less often, with up to a quarter of the time added at random. One that
 * answers that there is nothing (any more) keeps its addresses for the plan's keep_ns, and then has
 * none.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_DNS_NAMES_H
#define SLUICE_PICK_DISCOVERY_DNS_NAMES_H

#include "core/base/random.h"
#include "core/event/timer.h"
#include "pick/discovery/dns/query.h"
#include "pick/pool/set.h"

/* How its last answer was. */
enum dns_state {
    DNS_STATE_UNRESOLVED,
    DNS_STATE_RESOLVED,
    DNS_STATE_PARTIAL,
    DNS_STATE_EMPTY,
    DNS_STATE_FAILING
};

struct dns_name {
    struct timer_node due; /* first: a deadline is cast to its name */
    char name[DNS_NAME_BYTES];
    enum dns_records records;
    char servers[DNS_SERVERS_BYTES]; /* as in its plan, and so are these: */
    uint64_t timeout_ns, min_ttl_ns, max_ttl_ns, keep_ns;
    enum dns_state state;
    struct error error;              /* but for DNS_STATE_UNRESOLVED and DNS_STATE_RESOLVED: why */
    struct dns_query_address *found; /* sorted by address; the name's own */
    size_t n_found;
    uint64_t answered_ns; /* when something was known last; 0: never */
    uint64_t none_ns;     /* since when it answers that there is nothing; 0: it does not */
    unsigned n_failures;  /* in a row */
    bool query_running;
    bool removed;            /* nobody wants it any more; it is freed when its query has ended */
    struct dns_query *query; /* for who asks */
    void *user;              /* the same */
};

/* Zeroed, with a seed in the dice, it is empty. */
struct dns_names {
    struct dns_name **items; /* sorted, each once */
    size_t n;
    struct timer_heap waiting;
    struct prng prng;
    size_t n_queries;
    size_t n_unresolved; /* whose first answer has not come, those that are asked included */
};

enum { DNS_MAX_CONCURRENT_QUERIES = 16 };

/* None is being asked. */
void dns_names_fini(struct dns_names *names);

/* From now on these are asked (NULL: none); those that stay keep what is known of them, those that
 * are new are due at once. Nothing of the plans is borrowed. Returns: false when out of memory:
 * then nothing is asked. */
bool dns_names_set_pools(struct dns_names *names, const struct pool_specs *specs, uint64_t now_ns)
    __attribute__((warn_unused_result));

/* Returns: one that is to be asked now, which it is from here on; NULL: none, or as many are as
 * may. */
struct dns_name *dns_names_pop_due(struct dns_names *names, uint64_t now_ns);
/* When to take again; UINT64_MAX: when an answer has come. */
uint64_t dns_names_next_ns(const struct dns_names *names);

/* What its query came to. Returns: the addresses are others now. One that is gone is freed. */
bool dns_names_finish(struct dns_names *names, struct dns_name *name,
                      const struct dns_result *result, uint64_t now_ns);
/* Its query was given up: it is due at once. One that is gone is freed. */
void dns_names_requeue(struct dns_names *names, struct dns_name *name, uint64_t now_ns);

/* Returns: NULL: it is not among them. */
const struct dns_name *dns_names_find(const struct dns_names *names, const char *name,
                                      enum dns_records records, const char *servers);
/* Appends the endpoints that the spec's names are, as far as they are known. Returns:
 * ST_NO_MEMORY. */
enum status dns_names_add_endpoints(const struct dns_names *names, struct pool_spec *spec,
                                    struct error *err) __attribute__((warn_unused_result));

#endif

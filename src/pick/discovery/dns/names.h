/* The DNS names of all pools, their addresses, and when each is queried again. Without I/O: the
 * caller (watch.h) takes a due name, runs its query and reports the result.
 *
 * A name is queried once even if several pools have it, unless their servers differ; times are
 * those of the first plan that has it.
 *
 * The next query is due when the answer's TTL is over, within the plan's min_ttl_ns and max_ttl_ns.
 * While queries fail the addresses stay, and the wait doubles, with up to a quarter added at
 * random. When a server answers that there are no addresses, the last ones are kept for the plan's
 * keep_ns.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_DNS_NAMES_H
#define SLUICE_PICK_DISCOVERY_DNS_NAMES_H

#include "core/base/random.h"
#include "core/event/timer.h"
#include "pick/discovery/dns/query.h"
#include "pick/pool/set.h"

/* The state after the last answer. */
enum dns_state {
    DNS_STATE_UNRESOLVED,
    DNS_STATE_RESOLVED,
    DNS_STATE_PARTIAL,
    DNS_STATE_EMPTY,
    DNS_STATE_FAILING
};

struct dns_name {
    struct timer_node due; /* first: a heap node is cast to its name */
    char name[DNS_NAME_BYTES];
    enum dns_records records;
    char servers[DNS_SERVERS_BYTES]; /* from here on as in its plan */
    uint64_t timeout_ns, min_ttl_ns, max_ttl_ns, keep_ns;
    enum dns_state state;
    struct error error;              /* the reason, unless the state is UNRESOLVED or RESOLVED */
    struct dns_query_address *found; /* sorted by address; owned */
    size_t n_found;
    uint64_t answered_ns; /* clock_now_ns of the last answer with a result; 0: none */
    uint64_t none_ns;     /* since when answers have no addresses; 0: they have */
    unsigned n_failures;  /* in a row */
    bool query_running;
    bool removed;            /* in no plan any more; freed when its query has ended */
    struct dns_query *query; /* the caller's */
    void *user;              /* the caller's */
};

/* Empty if zeroed, with a seed in `prng`. */
struct dns_names {
    struct dns_name **items; /* sorted, without duplicates */
    size_t n;
    struct timer_heap waiting;
    struct prng prng;
    size_t n_queries;
    size_t n_unresolved; /* names without an answer, including those being queried */
};

enum { DNS_MAX_CONCURRENT_QUERIES = 16 };

/* No query may be running. */
void dns_names_fini(struct dns_names *names);

/* Sets the names to those of the specs (NULL: none). Names that stay keep their addresses, new ones
 * are due at once. The specs are not borrowed. Returns: false when out of memory; then there are no
 * names. */
bool dns_names_set_pools(struct dns_names *names, const struct pool_specs *specs,
                         uint64_t now_ns) SLUICE_MUST_USE;

/* Returns: a name whose query is to be started now; NULL if none is due or too many queries are
 * running. */
struct dns_name *dns_names_pop_due(struct dns_names *names, uint64_t now_ns);
/* Returns: when dns_names_pop_due has a name again; UINT64_MAX: after a query has ended. */
uint64_t dns_names_next_ns(const struct dns_names *names);

/* Takes a query's result. Returns: the addresses have changed. A removed name is freed. */
bool dns_names_finish(struct dns_names *names, struct dns_name *name,
                      const struct dns_result *result, uint64_t now_ns);
/* The query was cancelled: the name is due at once. A removed name is freed. */
void dns_names_requeue(struct dns_names *names, struct dns_name *name, uint64_t now_ns);

/* Returns: NULL if there is no such name. */
const struct dns_name *dns_names_find(const struct dns_names *names, const char *name,
                                      enum dns_records records, const char *servers);
/* Appends the known addresses of the spec's names as endpoints. */
void dns_names_add_endpoints(const struct dns_names *names, struct pool_spec *spec);

#endif

/* One name's addresses: as many questions as that takes, put together into one answer.
 *
 * A and AAAA are asked for at the same time. Of SRV records those with the lowest priority count of
 * which at least one target has an address; each of their targets is asked for both kinds, and its
 * port is the record's. Weights are not looked at: who is picked is decided by load.
 *
 * What can't be found out about a part (one kind, one target) takes nothing away: its addresses of
 * the last time stay in the answer. What is known not to exist is gone.
 *
 * Thread: the resolver's worker, for everything. */
#ifndef SLUICE_PICK_DISCOVERY_DNS_QUERY_H
#define SLUICE_PICK_DISCOVERY_DNS_QUERY_H

#include "net/client/dns.h"
#include "pick/config/dns_plan.h"

struct dns_query_address {
    struct endpoint_address address; /* port 0; SRV: the record's */
    uint64_t source;                 /* of which part it is: the same each time */
};

enum dns_outcome {
    DNS_FOUND,   /* addresses, and nothing is unknown */
    DNS_PARTIAL, /* addresses, and a part that failed */
    DNS_EMPTY,   /* it is known that there are none */
    DNS_FAILED,  /* nothing could be found out */
};

struct dns_result {
    enum dns_outcome outcome;
    struct error error;                    /* but for DNS_FOUND: why, without the name */
    const struct dns_query_address *found; /* sorted by address, none twice */
    size_t n_found;
    uint32_t ttl_s; /* of what lives shortest; 0 where nothing says */
};

struct dns_query;

struct dns_query_options {
    struct dns_resolver *resolver;
    const char *name;
    enum dns_records records;
    const struct dns_query_address *known; /* the last answer; stays until `done` or the cancel */
    size_t n_known;
    /* Once, perhaps from within dns_query_start; the result is valid until it returns. */
    void (*done)(void *user, const struct dns_result *result);
    void *user;
};

/* More addresses than that are none that can be used: DNS_FAILED. */
enum { DNS_MAX_ADDRESSES = 10000 };

/* Returns: ST_NO_MEMORY; `done` does not come then. Owns: *out until `done` or dns_query_cancel. */
enum status dns_query_start(const struct dns_query_options *ask, struct dns_query **out,
                            struct error *err) __attribute__((warn_unused_result));
/* Gives it up; `done` does not come. Before its resolver is stopped. */
void dns_query_cancel(struct dns_query *query);

#endif

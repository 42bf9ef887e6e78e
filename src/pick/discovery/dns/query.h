/* The addresses of one name: several DNS lookups combined into one result.
 *
 * A and AAAA are looked up at the same time. Of SRV records, the targets of the lowest priority
 * with at least one address are used; each target is looked up for both families, and its port is
 * the record's. Weights are ignored, as endpoints are picked by load.
 *
 * When a lookup (one family, one target) fails, its addresses of the last result stay in the
 * result. Targets that do not exist are dropped.
 *
 * Thread: the resolver's worker. */
#ifndef SLUICE_PICK_DISCOVERY_DNS_QUERY_H
#define SLUICE_PICK_DISCOVERY_DNS_QUERY_H

#include "net/client/dns.h"
#include "pick/config/dns_plan.h"

struct dns_query_address {
    struct endpoint_address address; /* port 0, or that of the SRV record */
    uint64_t source;                 /* identifies the lookup: the same value in each result */
};

enum dns_outcome {
    DNS_FOUND,   /* addresses, and no lookup failed */
    DNS_PARTIAL, /* addresses, but a lookup failed */
    DNS_EMPTY,   /* no addresses exist */
    DNS_FAILED,  /* no result */
};

struct dns_result {
    enum dns_outcome outcome;
    struct error error;                    /* unless DNS_FOUND: the reason, without the name */
    const struct dns_query_address *found; /* sorted by address, without duplicates */
    size_t n_found;
    uint32_t ttl_s; /* the shortest TTL; 0: none is known */
};

struct dns_query;

struct dns_query_options {
    struct dns_resolver *resolver;
    const char *name;
    enum dns_records records;
    const struct dns_query_address *known; /* the last result; borrowed until the query ends */
    size_t n_known;
    /* Called once, perhaps within dns_query_start; the result is valid until it returns. */
    void (*done)(void *user, const struct dns_result *result);
    void *user;
};

/* With more addresses the result is DNS_FAILED. */
enum { DNS_MAX_ADDRESSES = 10000 };

/* Returns: ST_NO_MEMORY; `done` is not called then. Owns: *out until `done` or dns_query_cancel. */
enum status dns_query_start(const struct dns_query_options *ask, struct dns_query **out,
                            struct error *err) SLUICE_MUST_USE;
/* Cancels the query; `done` is not called. To be called before the resolver is stopped. */
void dns_query_cancel(struct dns_query *query);

#endif

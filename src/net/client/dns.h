/* DNS lookups, any number in parallel, each answer with its TTL: c-ares on a worker's loop, without
 * a cache. /etc/hosts is read first and search domains apply, as for other programs on the machine;
 * a name that ends in a dot is absolute.
 *
 * Thread: the resolver's worker, for everything. */
#ifndef SLUICE_NET_CLIENT_DNS_H
#define SLUICE_NET_CLIENT_DNS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"

struct dns_resolver;
struct dns_lookup;

/* DNS_SRV returns the raw answer, which codec/dns/srv.h decodes. */
enum dns_kind { DNS_A, DNS_AAAA, DNS_SRV };

struct dns_address {
    uint8_t bytes[16]; /* network byte order; 4 or 16 of them */
    bool is_ip6;
};

/* Result of a lookup. Valid until the callback returns. */
struct dns_answer {
    /* ST_OK, or a text without the name: ST_NOT_FOUND (the name, or records of that kind, do not
     * exist), ST_IO, ST_DEADLINE_EXCEEDED, ST_BAD_ANSWER, ST_REFUSED, ST_BAD_CONFIG (not a valid
     * name), ST_CANCELLED, ST_NO_MEMORY. */
    struct error error;
    const struct dns_address *addresses; /* DNS_A, DNS_AAAA: at least one with ST_OK */
    size_t n_addresses;
    uint32_t ttl_s;     /* DNS_A, DNS_AAAA: the lowest TTL */
    struct str message; /* DNS_SRV: the raw answer */
};

struct dns_resolver_options {
    struct worker *worker;
    const char *servers;     /* "127.0.0.1:5353,[::1]:53"; NULL or empty: the system's */
    unsigned timeout_ms;     /* until a server is retried, doubled for each try; 0: 1 s */
    unsigned n_tries;        /* of each server; 0: 3 */
    const char *system_file; /* system configuration file; NULL: /etc/resolv.conf */
};

/* Creates a resolver; the system configuration is read here only. Returns: ST_BAD_CONFIG, ST_IO,
 * ST_NO_MEMORY. Owns: *out until dns_resolver_free. */
enum status dns_resolver_new(const struct dns_resolver_options *options, struct dns_resolver **out,
                             struct error *err) SLUICE_MUST_USE;
/* Ends all lookups with ST_CANCELLED; calls `done` when no handle is open, possibly before it
 * returns. No lookup may start afterwards. Must not be called within a callback. */
void dns_resolver_stop(struct dns_resolver *resolver, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void dns_resolver_free(struct dns_resolver *resolver);

/* Looks up `name` (NUL-terminated). `done` is called once, possibly before this returns (a name in
 * /etc/hosts). Returns: ST_NO_MEMORY; `done` is not called then. Owns: *out until `done` or
 * dns_lookup_cancel. */
enum status dns_lookup_start(struct dns_resolver *resolver, const char *name, enum dns_kind kind,
                             void (*done)(void *user, const struct dns_answer *answer), void *user,
                             struct dns_lookup **out, struct error *err) SLUICE_MUST_USE;
/* Cancels it: `done` is not called. Must not be called after `done`. */
void dns_lookup_cancel(struct dns_lookup *lookup);

#endif

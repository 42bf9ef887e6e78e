/* Names asked of the DNS, any number at once, each answer with the time it may be kept: c-ares on a
 * worker's loop. It keeps nothing of an answer. The machine's own table of hosts (/etc/hosts) is
 * looked into first, and names are tried in the domains that the machine searches, as everywhere
 * else on it; a name that ends in a point is taken as it is.
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

/* DNS_SRV: the records of services, whose answer is for codec/dns/srv.h to read. */
enum dns_kind { DNS_A, DNS_AAAA, DNS_SRV };

struct dns_address {
    uint8_t bytes[16]; /* as they are on the wire; 4 of them, or all 16 */
    bool is_ip6;
};

/* What came of it. Valid until the callback returns. */
struct dns_answer {
    /* ST_OK. Else a sentence without the name: ST_NOT_FOUND (the name, or records of that kind, do
     * not exist: that is known), ST_IO, ST_DEADLINE_EXCEEDED, ST_BAD_ANSWER, ST_REFUSED,
     * ST_BAD_CONFIG (it is no name), ST_CANCELLED, ST_NO_MEMORY. */
    struct error error;
    const struct dns_address *addresses; /* DNS_A, DNS_AAAA: at least one with ST_OK */
    size_t n_addresses;
    uint32_t ttl_s;     /* DNS_A, DNS_AAAA: of what lives shortest */
    struct str message; /* DNS_SRV: as it came */
};

struct dns_resolver_options {
    struct worker *worker;
    const char *servers;     /* "127.0.0.1:5353,[::1]:53"; NULL or empty: the system's */
    unsigned timeout_ms;     /* until a server is asked again, twice as long each time; 0: 1 s */
    unsigned n_tries;        /* of each server; 0: 3 */
    const char *system_file; /* the system's configuration; NULL: /etc/resolv.conf */
};

/* The system's configuration is read here, and not again. Returns: ST_BAD_CONFIG, ST_IO,
 * ST_NO_MEMORY. Owns: *out until dns_resolver_free. */
enum status dns_resolver_new(const struct dns_resolver_options *options, struct dns_resolver **out,
                             struct error *err) __attribute__((warn_unused_result));
/* Ends what is under way with ST_CANCELLED; `done` when nothing is left on the loop, perhaps from
 * within. Nothing is asked afterwards. Not from within a callback. */
void dns_resolver_stop(struct dns_resolver *resolver, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void dns_resolver_free(struct dns_resolver *resolver);

/* `name` is NUL-terminated. `done` comes once, perhaps from within (a name in the table of hosts).
 * Returns: ST_NO_MEMORY; `done` does not come then. */
enum status dns_lookup_start(struct dns_resolver *resolver, const char *name, enum dns_kind kind,
                             void (*done)(void *user, const struct dns_answer *answer), void *user,
                             struct dns_lookup **out, struct error *err)
    __attribute__((warn_unused_result));
/* Nobody waits for it any more: `done` does not come. Not once it has come. */
void dns_lookup_cancel(struct dns_lookup *lookup);

#endif

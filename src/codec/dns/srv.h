/* Decodes the SRV records of a DNS response, and how long they may be cached. The caller checks
 * that the message answers its query (c-ares does). c-ares' own decoder of SRV records leaves out
 * their time to live.
 *
 * Thread: any. Clauses: RFC 1035, 4.1 (messages), RFC 2782 (SRV), RFC 2181, 8 (time to live). */
#ifndef SLUICE_CODEC_DNS_SRV_H
#define SLUICE_CODEC_DNS_SRV_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum { DNS_TYPE_SRV = 33, DNS_NAME_BYTES = 256 }; /* a name with its NUL */

struct dns_srv {
    uint16_t priority; /* the lowest is tried first */
    uint16_t weight;
    uint16_t port;     /* never 0 */
    struct str target; /* a host name such as "a.example"; NUL-terminated */
};

struct dns_srv_list {
    struct dns_srv *items; /* ordered by priority, lowest first */
    size_t n;
    size_t n_invalid; /* records left out: the target is no host name, or port 0 */
    uint32_t ttl_s;   /* the lowest of all records, aliases before them too; 0 without any record */
};

/* Decodes `message`. Records whose target is "." (no such service) are left out. Returns:
 * ST_BAD_ANSWER (a text without the name), ST_NO_MEMORY. Owns: the list is in `arena`. */
enum status dns_srv_decode(struct arena *arena, struct str message, struct dns_srv_list *out,
                           struct error *err) SLUICE_MUST_USE;

/* Can this be the name of a host, or of a service at one: labels of letters, digits, "-" and "_"
 * with points between them, 253 characters at most, and optionally one more point? A name whose
 * last label is a number is an address, or a mistyped one, and is not valid. */
bool dns_name_is_valid(struct str name);

#endif

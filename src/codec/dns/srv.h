/* The SRV records of a DNS answer, and how long they may be kept: where a service is. Bytes in,
 * records out; that the message answers what was asked is for who asked to see (c-ares does). The
 * library's own reader of such records leaves out how long they live.
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
    uint16_t priority; /* the lowest is asked first */
    uint16_t weight;
    uint16_t port;     /* never 0 */
    struct str target; /* "a.example", a name of a host; NUL-terminated */
};

struct dns_srv_list {
    struct dns_srv *items; /* the lowest priority first */
    size_t n;
    size_t n_invalid; /* records left out: no name of a host, or port 0 */
    uint32_t ttl_s;   /* of the one that lives shortest, aliases before them too; 0 without any */
};

/* Reads all of `message`. Records whose target is "." say that there is no such service, and are
 * left out. Returns: ST_BAD_ANSWER (a sentence without the name), ST_NO_MEMORY.
 * Owns: the list lies in `arena`. */
enum status dns_srv_decode(struct arena *arena, struct str message, struct dns_srv_list *out,
                           struct error *err) __attribute__((warn_unused_result));

/* Could this be the name of a host, or of a service at one: labels of letters, digits, "-" and "_"
 * with points between them, 253 characters at most, and one more point behind it if need be? What
 * ends with a number is an address, or meant to be one. */
bool dns_name_is_valid(struct str name);

#endif

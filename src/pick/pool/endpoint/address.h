/* Where a model server is: a numeric address and a port, in one of the two forms that the endpoint
 * picker protocol has: "10.0.0.1:8000" and "[::1]:8000". Read strictly, compared by value, printed
 * in one way. It refuses names: those are resolved before they come here. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_ADDRESS_H
#define SLUICE_PICK_POOL_ENDPOINT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Its order is that of the fields: all of IPv4 first, by number, then by port. */
struct endpoint_address {
    uint16_t family; /* 4 or 6 */
    uint16_t port;   /* 1 to 65535; 0: any, where a function says that this is meant */
    uint64_t high;   /* of the IPv6 address; 0 for IPv4 */
    uint64_t low;
};

/* "[ffff:…:255.255.255.255]:65535" and the NUL. */
enum { ENDPOINT_TEXT_BYTES = 56 };

/* "IP:PORT", whole text or nothing: no names, no leading zeros, no zone, a port of 1 to 65535.
 * Returns: false otherwise. */
bool endpoint_address_parse(struct str text, struct endpoint_address *out);
/* "IP" alone, IPv6 with or without brackets; the port becomes 0. */
bool endpoint_address_parse_ip(struct str text, struct endpoint_address *out);
/* IPv6 as RFC 5952 wants it. NUL-terminated. Returns: the text at `out`. */
struct str endpoint_address_print(const struct endpoint_address *address,
                                  char out[ENDPOINT_TEXT_BYTES]);

static inline bool endpoint_address_same_ip(const struct endpoint_address *a,
                                            const struct endpoint_address *b) {
    return a->low == b->low && a->high == b->high && a->family == b->family;
}
static inline bool endpoint_address_equal(const struct endpoint_address *a,
                                          const struct endpoint_address *b) {
    return endpoint_address_same_ip(a, b) && a->port == b->port;
}
/* Below, at or above 0, as `a` is to `b`. */
int endpoint_address_compare(const struct endpoint_address *a, const struct endpoint_address *b);
/* The same for equal ones; all bits of it are mixed. */
uint64_t endpoint_address_hash(const struct endpoint_address *address);

#endif

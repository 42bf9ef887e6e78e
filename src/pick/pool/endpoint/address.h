/* The address of a model server: IP and port, in the two forms of the endpoint picker protocol,
 * "10.0.0.1:8000" and "[::1]:8000". Parsed strictly, compared by value, printed in one form. DNS
 * names are resolved before. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_ADDRESS_H
#define SLUICE_PICK_POOL_ENDPOINT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Sorted by the fields: IPv4 first, by number, then by port. */
struct endpoint_address {
    uint16_t family; /* 4 or 6 */
    uint16_t port;   /* 1 to 65535; 0: any port, where a function allows it */
    uint64_t high;   /* of the IPv6 address; 0 for IPv4 */
    uint64_t low;
};

/* "[ffff:…:255.255.255.255]:65535" and a NUL. */
enum { ENDPOINT_TEXT_BYTES = 56 };

/* Parses "IP:PORT", the whole text: no names, no leading zeros, no zone, a port of 1 to 65535.
 * Returns: false otherwise. */
bool endpoint_address_parse(struct str text, struct endpoint_address *out);
/* Parses "IP" alone, IPv6 with or without brackets; the port becomes 0. */
bool endpoint_address_parse_ip(struct str text, struct endpoint_address *out);
/* IPv6 as RFC 5952 specifies. NUL-terminated. Returns: the text at `out`. */
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
/* Returns: below 0, 0 or above 0, as strcmp. */
int endpoint_address_compare(const struct endpoint_address *a, const struct endpoint_address *b);
/* A 64-bit hash of which all bits are mixed. */
uint64_t endpoint_address_hash(const struct endpoint_address *address);

/* An address without a port. An IPv4-mapped one (RFC 4291, 2.5.5.2: ::ffff:a.b.c.d) is the IPv4
 * address: it is the same server. */
struct endpoint_address endpoint_address_of_ip6(uint64_t high, uint64_t low);
/* Whether a server can have it: not unspecified (0.0.0.0, ::), multicast or broadcast. */
bool endpoint_address_is_unicast(const struct endpoint_address *address);

#endif

/* Parses and prints addresses in the protocol's forms. */
#include "pick/pool/endpoint/address.h"

#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "core/base/num.h"

enum { MOST_DIGITS = 5 };

/* Reads a number without leading zeros at `at`. Returns: the position after it; NULL when there is
 * none. Written by hand because a subset hint may list a thousand addresses. */
static const char *read_number(const char *at, const char *end, uint32_t most, uint32_t *out) {
    const char *begin = at;
    uint32_t value = 0, digit;
    if (end - at > MOST_DIGITS) {
        end = at + MOST_DIGITS;
    }
    while (at < end && (digit = (uint32_t)(unsigned char)*at - '0') < 10) {
        value = value * 10 + digit;
        at++;
    }
    bool good = at > begin && value <= most && (*begin != '0' || at == begin + 1);
    *out = value;
    return good ? at : NULL;
}

/* Reads an IPv4 address. Returns: the position after it; NULL when there is none. */
static const char *read_ip4(const char *at, const char *end, struct endpoint_address *out) {
    uint64_t ip = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t part;
        if (i > 0 && (at == end || *at++ != '.')) {
            return NULL;
        }
        at = read_number(at, end, UINT8_MAX, &part);
        if (!at) {
            return NULL;
        }
        ip = ip << 8 | part;
    }
    *out = (struct endpoint_address){.family = 4, .low = ip};
    return at;
}

struct endpoint_address endpoint_address_of_ip6(uint64_t high, uint64_t low) {
    static const uint64_t mapped = 0xffff;
    if (high == 0 && low >> 32 == mapped) {
        return (struct endpoint_address){.family = 4, .low = low & UINT32_MAX};
    }
    return (struct endpoint_address){.family = 6, .high = high, .low = low};
}

bool endpoint_address_is_unicast(const struct endpoint_address *address) {
    if (address->family == 4) {
        return address->low != 0 && address->low >> 28 != 0xe && address->low != UINT32_MAX;
    }
    return (address->high | address->low) != 0 && address->high >> 56 != 0xff;
}

static bool parse_ip6(struct str text, struct endpoint_address *out) {
    char copy[INET6_ADDRSTRLEN];
    uint64_t halves[2];
    if (text.len >= sizeof(copy) || memchr(text.ptr, '\0', text.len)) {
        return false;
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    if (inet_pton(AF_INET6, copy, halves) != 1) {
        return false;
    }
    *out = endpoint_address_of_ip6(be64toh(halves[0]), be64toh(halves[1]));
    return true;
}

/* Reads "[IPV6]". Returns: the position after it; NULL when there is none. */
static const char *read_ip6(const char *at, const char *end, struct endpoint_address *out) {
    const char *bracket = memchr(at, ']', (size_t)(end - at));
    bool good = bracket && parse_ip6(str_make(at + 1, (size_t)(bracket - at) - 1), out);
    return good ? bracket + 1 : NULL;
}

static const char *read_ip(const char *at, const char *end, struct endpoint_address *out) {
    return at < end && *at == '[' ? read_ip6(at, end, out) : read_ip4(at, end, out);
}

bool endpoint_address_parse(struct str text, struct endpoint_address *out) {
    struct endpoint_address address;
    uint32_t port;
    if (text.len == 0) {
        return false;
    }
    const char *end = text.ptr + text.len, *at = read_ip(text.ptr, end, &address);
    if (!at || at == end || *at != ':' || read_number(at + 1, end, UINT16_MAX, &port) != end ||
        port == 0) {
        return false;
    }
    address.port = (uint16_t)port;
    *out = address;
    return true;
}

bool endpoint_address_parse_ip(struct str text, struct endpoint_address *out) {
    struct endpoint_address address;
    if (text.len == 0) {
        return false;
    }
    const char *end = text.ptr + text.len;
    if (read_ip(text.ptr, end, &address) != end && !parse_ip6(text, &address)) {
        return false;
    }
    *out = address;
    return true;
}

/* ---- text ------------------------------------------------------------------------------------ */

static size_t print_ip4(uint64_t ip, char *out) {
    size_t len = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        len += num_print_u64(out + len, ip >> shift & 255);
        out[len++] = '.';
    }
    return len - 1;
}

static size_t print_ip6(const struct endpoint_address *address, char *out) {
    uint64_t halves[2] = {htobe64(address->high), htobe64(address->low)};
    out[0] = '[';
    inet_ntop(AF_INET6, halves, out + 1, INET6_ADDRSTRLEN);
    size_t len = 1 + strlen(out + 1);
    out[len] = ']';
    return len + 1;
}

struct str endpoint_address_print(const struct endpoint_address *address,
                                  char out[ENDPOINT_TEXT_BYTES]) {
    size_t len = address->family == 4 ? print_ip4(address->low, out) : print_ip6(address, out);
    out[len++] = ':';
    len += num_print_u64(out + len, address->port);
    out[len] = '\0';
    return str_make(out, len);
}

/* ---- order ----------------------------------------------------------------------------------- */

static int compare_u64(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

int endpoint_address_compare(const struct endpoint_address *a, const struct endpoint_address *b) {
    int order = compare_u64(a->family, b->family);
    order = order ? order : compare_u64(a->high, b->high);
    order = order ? order : compare_u64(a->low, b->low);
    return order ? order : compare_u64(a->port, b->port);
}

uint64_t endpoint_address_hash(const struct endpoint_address *address) {
    static const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h = (address->high ^ (uint64_t)address->family << 16 ^ address->port) * odd;
    h = (h ^ h >> 32 ^ address->low) * odd;
    h = (h ^ h >> 32) * odd;
    return h ^ h >> 32;
}

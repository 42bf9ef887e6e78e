/* Addresses as the protocol writes them. IPv4 is read by hand: a subset hint may list a thousand. */
#include "pool/endpoint_address.h"

#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "base/num.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Takes a number of at most `most` without leading zeros from the front of `text`. */
static bool take_number(struct str *text, uint32_t most, uint32_t *out) {
    uint32_t value = 0;
    size_t n = 0;
    for (; n < text->len && n < 5 && is_digit(text->ptr[n]); n++) {
        value = value * 10 + (uint32_t)(text->ptr[n] - '0');
    }
    if (n == 0 || value > most || (n > 1 && text->ptr[0] == '0')) {
        return false;
    }
    *text = str_make(text->ptr + n, text->len - n);
    *out = value;
    return true;
}

static bool take_char(struct str *text, char c) {
    if (text->len == 0 || text->ptr[0] != c) {
        return false;
    }
    *text = str_make(text->ptr + 1, text->len - 1);
    return true;
}

/* Takes four numbers with points between them. */
static bool take_ip4(struct str *text, struct endpoint_address *out) {
    uint64_t ip = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t part;
        if ((i > 0 && !take_char(text, '.')) || !take_number(text, 255, &part)) {
            return false;
        }
        ip = ip << 8 | part;
    }
    *out = (struct endpoint_address){.family = 4, .low = ip};
    return true;
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
    *out = (struct endpoint_address){
        .family = 6, .high = be64toh(halves[0]), .low = be64toh(halves[1])};
    return true;
}

/* Takes "[IPV6]". */
static bool take_ip6(struct str *text, struct endpoint_address *out) {
    const char *end = memchr(text->ptr, ']', text->len);
    if (!end) {
        return false;
    }
    struct str inner = str_make(text->ptr + 1, (size_t)(end - text->ptr) - 1);
    *text = str_make(end + 1, text->len - inner.len - 2);
    return parse_ip6(inner, out);
}

static bool take_ip(struct str *text, struct endpoint_address *out) {
    return text->len > 0 && text->ptr[0] == '[' ? take_ip6(text, out) : take_ip4(text, out);
}

bool endpoint_address_parse(struct str text, struct endpoint_address *out) {
    struct endpoint_address address;
    uint32_t port;
    if (!take_ip(&text, &address) || !take_char(&text, ':') ||
        !take_number(&text, UINT16_MAX, &port) || port == 0 || text.len > 0) {
        return false;
    }
    address.port = (uint16_t)port;
    *out = address;
    return true;
}

bool endpoint_address_parse_ip(struct str text, struct endpoint_address *out) {
    struct str rest = text;
    struct endpoint_address address;
    bool whole = take_ip(&rest, &address) && rest.len == 0;
    if (!whole && (text.len == 0 || !parse_ip6(text, &address))) {
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

static int compare(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

int endpoint_address_compare(const struct endpoint_address *a, const struct endpoint_address *b) {
    int order = compare(a->family, b->family);
    order = order ? order : compare(a->high, b->high);
    order = order ? order : compare(a->low, b->low);
    return order ? order : compare(a->port, b->port);
}

uint64_t endpoint_address_hash(const struct endpoint_address *address) {
    static const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h = (address->high ^ (uint64_t)address->family << 16 ^ address->port) * odd;
    h = (h ^ h >> 32 ^ address->low) * odd;
    h = (h ^ h >> 32) * odd;
    return h ^ h >> 32;
}

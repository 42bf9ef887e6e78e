/* The settings of the endpoint picker protocol: names of headers and metadata, and how fallback
 * endpoints are sent. Part of a pool's configuration; the document is endpoint-picker.txt. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_PROTOCOL_H
#define SLUICE_PICK_POOL_ENDPOINT_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum { PROTOCOL_MAX_HEADERS = 16, PROTOCOL_MAX_FALLBACKS = 7 };

/* Header names; the first one that a request has counts. */
struct protocol_headers {
    struct str names[PROTOCOL_MAX_HEADERS];
    size_t n;
};

/* How fallback endpoints are sent, if at all. */
enum protocol_fallback {
    FALLBACK_NONE,
    FALLBACK_KEY,  /* one, in a metadata key of its own ("Destination endpoint fallback") */
    FALLBACK_LIST, /* several, after the picked one in its key and header, separated by commas */
};

#define PROTOCOL_TYPE_HEADER struct str
#define PROTOCOL_TYPE_HEADERS struct protocol_headers
#define PROTOCOL_TYPE_KEY struct str
#define PROTOCOL_TYPE_COOKIE struct str
#define NAME(field, kind, preset, help) PROTOCOL_TYPE_##kind field;
struct protocol {
#include "pick/pool/endpoint/protocol.def"
    enum protocol_fallback fallback;
    size_t n_fallbacks;      /* at most; 1 with FALLBACK_KEY */
    bool conformance;        /* enables selection_header and served_header */
    bool send_served_header; /* enables served_header alone */
    /* A bit for each length (protocol_length_bit) of a header name that requests are searched for:
     * names in lists, and single ones. Set by protocol_update_lengths. */
    uint64_t listed_lengths, single_lengths;
};
#undef NAME

/* Sets the defaults; the names are literals. */
void protocol_init(struct protocol *protocol);
/* Call after changing names. */
void protocol_update_lengths(struct protocol *protocol);

/* The bit of a length; lengths from 63 on share the last one. */
static inline uint64_t protocol_length_bit(size_t n) {
    return UINT64_C(1) << (n < 63 ? n : 63);
}

#endif

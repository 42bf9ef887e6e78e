/* How the picker speaks: names of headers and metadata, and in which form endpoints leave. Part of
 * a pool's configuration; endpoint-picker.txt is the document. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_PROTOCOL_H
#define SLUICE_PICK_POOL_ENDPOINT_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum { PROTOCOL_MAX_HEADERS = 4, PROTOCOL_MAX_FALLBACKS = 7 };

/* Names of headers, of which the first that a request has counts. */
struct protocol_headers {
    struct str names[PROTOCOL_MAX_HEADERS];
    size_t n;
};

/* How endpoints to try after the first leave, if at all. */
enum protocol_fallback {
    FALLBACK_NONE,
    FALLBACK_KEY,  /* one, in a key of its own ("Destination endpoint fallback") */
    FALLBACK_LIST, /* several, behind the first in its own key and header, with commas */
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
    bool conformance;        /* selection_header and served_header work */
    bool send_served_header; /* served_header works at least */
    /* A bit for each length (protocol_length_bit) of a name that a request's headers may have: of
     * the lists, and of the others. By protocol_update_lengths. */
    uint64_t listed_lengths, single_lengths;
};
#undef NAME

/* The defaults, settled; the names are literals. */
void protocol_init(struct protocol *protocol);
/* For who has changed names. */
void protocol_update_lengths(struct protocol *protocol);

/* The bit of a length; one of 63 bytes and more has the last. */
static inline uint64_t protocol_length_bit(size_t n) {
    return UINT64_C(1) << (n < 63 ? n : 63);
}

#endif

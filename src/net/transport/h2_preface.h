/* The first bytes of a connection: HTTP/2's preface (RFC 9113, 3.4), an HTTP/1.x request line,
 * which gets an HTTP/1.1 error, or something else. Sans I/O. */
#ifndef SLUICE_NET_TRANSPORT_H2_PREFACE_H
#define SLUICE_NET_TRANSPORT_H2_PREFACE_H

#include "core/base/str.h"

enum { H2_PREFACE_BYTES = 24 };

enum h2_preface_result {
    H2_PREFACE_MORE,
    H2_PREFACE_OK,
    H2_PREFACE_HTTP1, /* the start of an HTTP/1.x request line */
    H2_PREFACE_OTHER,
};

/* Zeroed memory is the initial state. */
struct h2_preface {
    char bytes[H2_PREFACE_BYTES];
    unsigned char n;
    unsigned char result; /* enum h2_preface_result */
};

/* The `n` bytes at the front of the preface. */
struct str h2_preface_bytes(size_t n);
/* For a port of several protocols. Returns: how many bytes at the front of `data` continue a
 * preface of which `n_before` were received. */
size_t h2_preface_match(size_t n_before, struct str data);

/* Consumes bytes from the front of `data` until the protocol is known. With H2_PREFACE_OK the
 * preface was consumed and nothing else. */
enum h2_preface_result h2_preface_add(struct h2_preface *preface, struct str *data);

#endif

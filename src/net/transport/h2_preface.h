/* The first bytes of a connection: HTTP/2's preface (RFC 9113, 3.4), or something else. Somebody
 * who speaks HTTP/1.1 to the port is recognised, so that he can be told. Sans I/O. */
#ifndef SLUICE_NET_TRANSPORT_H2_PREFACE_H
#define SLUICE_NET_TRANSPORT_H2_PREFACE_H

#include "core/base/str.h"

enum { H2_PREFACE_BYTES = 24 };

enum h2_preface_result {
    H2_PREFACE_MORE,
    H2_PREFACE_OK,
    H2_PREFACE_HTTP1, /* a request line of HTTP/1.x begins here */
    H2_PREFACE_OTHER,
};

/* Zeroed memory is the beginning. */
struct h2_preface {
    char bytes[H2_PREFACE_BYTES];
    unsigned char n;
    unsigned char result; /* enum h2_preface_result */
};

/* Takes bytes off the front of `data` until it is clear what they are. With H2_PREFACE_OK all of
 * the preface was taken and nothing else. */
enum h2_preface_result h2_preface_add(struct h2_preface *preface, struct str *data);

#endif

/* On which of a connection's latest streams the peer has said that it is through with them (with
 * END_STREAM or RST_STREAM): HEADERS and DATA that follow there are an error of the connection (RFC
 * 9113, 5.1, "closed"), while on those that were reset from here they are only late. nghttp2 knows
 * that of closed streams that it keeps, but it keeps each of them whole, together with the open
 * ones as many as may be open at once: a connection of many calls takes hundreds of kilobytes, and
 * the table by which it finds its streams is too large for the nearer caches. Sans I/O. */
#ifndef SLUICE_NET_TRANSPORT_H2_CLOSED_STREAMS_H
#define SLUICE_NET_TRANSPORT_H2_CLOSED_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

enum { H2_CLOSED_STREAMS = 256 };

/* Zeroed memory knows of none. */
struct h2_closed_streams {
    int32_t newest; /* stream of the peer's: ids go up by two */
    uint64_t bits[H2_CLOSED_STREAMS / 64];
};

/* A stream begins, and those 256 or more in front of it are forgotten. Ids only ever rise. */
void h2_closed_streams_begin(struct h2_closed_streams *ended, int32_t id);
/* The peer is through with a stream, which is closed, or will be at once. */
void h2_closed_streams_add(struct h2_closed_streams *ended, int32_t id);
/* Returns: false, too, for a stream that is open, or that is forgotten. */
bool h2_closed_streams_has(const struct h2_closed_streams *ended, int32_t id);

#endif

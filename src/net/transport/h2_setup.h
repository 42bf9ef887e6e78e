/* What sessions of nghttp2 are made with: options, and the memory of those of a server. */
#ifndef SLUICE_NET_TRANSPORT_H2_SETUP_H
#define SLUICE_NET_TRANSPORT_H2_SETUP_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>

/* The options that servers and clients of gRPC share. Windows are returned by the session, and what
 * a peer may make nghttp2 hold is bounded: settings of a frame, acknowledgements queued for a peer
 * that does not read, bytes of a head or trailers to send. Returns: NULL when out of memory. Owns:
 * the caller, until nghttp2_option_del. */
nghttp2_option *h2_option_new(void);

/* The memory of an HTTP/2 session of a server. nghttp2 keeps a buffer for a frame to send, 16 KiB
 * and a few bytes, or as much as the longest frame that was sent, of which the heads of answers
 * touch the first page: bodies are not copied into it. It is a mapping of its own, so its other
 * pages are not there. On the heap they would be pages that others have used before, and an idle
 * connection would hold all of them.
 *
 * Zeroed memory is the initial state. Must outlive the session. */
struct h2_memory {
    struct h2_mapping {
        void *block; /* NULL: none */
        size_t n_bytes;
    } mappings[2]; /* two while a longer buffer replaces one */
};

/* Returns: the functions for nghttp2_session_server_new3, which copies them. All is freed by
 * nghttp2_session_del. */
nghttp2_mem h2_memory_functions(struct h2_memory *memory);

#endif

/* nghttp2's options that servers and clients of gRPC share. */
#ifndef SLUICE_NET_TRANSPORT_H2_OPTION_H
#define SLUICE_NET_TRANSPORT_H2_OPTION_H

#include <nghttp2/nghttp2.h>

/* Windows are returned by the session, and what a peer may make nghttp2 hold is bounded: settings
 * of a frame, acknowledgements queued for a peer that does not read, bytes of a head or trailers to
 * send. Returns: NULL when out of memory. Owns: the caller, until nghttp2_option_del. */
nghttp2_option *h2_option_new(void);

#endif

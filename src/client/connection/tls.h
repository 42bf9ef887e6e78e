/* TLS for the connections of clients, by OpenSSL. The server's name is checked against its
 * certificate, unless `insecure` is set. A build with SLUICE_CLIENT_TLS=OFF has no_tls.c in place
 * of tls.c.
 *
 * Thread: settings are made once and then read by all; a transport is used from one thread. */
#ifndef SLUICE_CLIENT_CONNECTION_TLS_H
#define SLUICE_CLIENT_CONNECTION_TLS_H

#include <stdbool.h>

#include "core/base/status.h"
#include "net/transport/tls/peer.h"
#include "sluice/client.h"

struct client_tls_options {
    struct tls_peer_options files;
    const char *server_name; /* that the certificate must have; NULL: the host of the URL */
    const struct tls_peer_hints *hints; /* NULL: the flags of the commands */
    bool is_http2; /* for gRPC: the server must select "h2"; else "http/1.1" is offered (ALPN) */
};

/* Settings for any number of connections. */
struct client_tls;
/* The transport of one client. */
struct client_tls_transport;

/* Reads the files. Returns: ST_BAD_CONFIG for one that cannot be used; ST_UNSUPPORTED if the build
 * has no TLS. Owns: client_tls_free, after the transports. */
enum status client_tls_new(const struct client_tls_options *options, struct client_tls **out,
                           struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void client_tls_free(struct client_tls *tls);

/* Creates a transport for one client, and fills `functions`. Returns: NULL when out of memory.
 * Owns: client_tls_transport_free, when the client is freed. */
struct client_tls_transport *client_tls_transport_new(const struct client_tls *tls,
                                                      sluice_client_transport *functions);
/* NULL is allowed. */
void client_tls_transport_free(void *transport);
/* Did the last failure mean that the server did not accept the client's certificate? */
bool client_tls_is_refused(const struct client_tls_transport *transport);

#endif

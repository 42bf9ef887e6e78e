/* TLS for the commands that ask a server, with OpenSSL: libsluice connects, and leaves the rest to
 * a transport of its caller's. The server's name is checked against its certificate unless somebody
 * says that it shall not be.
 *
 * Thread: settings are made once and then read by all; a transport is used from one thread. */
#ifndef SLUICE_PROGRAM_REQUESTS_TLS_CLIENT_H
#define SLUICE_PROGRAM_REQUESTS_TLS_CLIENT_H

#include <stdbool.h>

#include "client/url.h"
#include "core/base/status.h"
#include "net/transport/tls/peer.h"
#include "sluice/client.h"

/* As curl's options of the same names; paths may be NULL. */
struct tls_client_options {
    const char *cacert; /* whom to trust; NULL: whom the system trusts */
    const char *cert;   /* shown to a server that asks for one */
    const char *key;    /* NULL: in the same file */
    bool insecure;      /* trusts whoever answers */
};

/* Settings for any number of connections. */
struct tls_client;
/* What one client needs of them. */
struct tls_transport;

/* The files as the messages of TLS call them. */
struct tls_peer_options tls_client_files(const struct tls_client_options *options);
/* Do the options mean something for `url`? Returns: ST_BAD_CONFIG. */
enum status tls_client_check(const struct tls_client_options *options, const struct client_url *url,
                             struct error *err) __attribute__((warn_unused_result));
/* The settings for `url`: *out is NULL when it is none of TLS. Returns: ST_BAD_CONFIG for a file
 * that can't be used. Owns: tls_client_free, after the transports. */
enum status tls_client_new(const struct tls_client_options *options, const struct client_url *url,
                           struct tls_client **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. */
void tls_client_free(struct tls_client *client);

/* A transport for one client. `functions` is filled in. Returns: NULL when out of memory. Owns:
 * tls_transport_free, when the client is freed. */
struct tls_transport *tls_transport_new(const struct tls_client *client,
                                        sluice_client_transport *functions);
/* NULL is allowed. */
void tls_transport_free(void *transport);

#endif

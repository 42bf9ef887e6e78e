/* TLS for the commands, with OpenSSL: libsluice connects, and calls a transport for the rest. The
 * server's name is checked against its certificate, unless --insecure is given.
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
    const char *cacert; /* trusted CAs; NULL: the system's */
    const char *cert;   /* client certificate, for a server that requests one */
    const char *key;    /* NULL: in the file of `cert` */
    bool insecure;      /* does not verify the server */
};

/* Settings for any number of connections. */
struct tls_client;
/* The transport of one client. */
struct tls_transport;

/* The files with their flags, for the messages of TLS. */
struct tls_peer_options tls_client_files(const struct tls_client_options *options);
/* Checks that the options apply to `url`. Returns: ST_BAD_CONFIG. */
enum status tls_client_check(const struct tls_client_options *options, const struct client_url *url,
                             struct error *err) SLUICE_MUST_USE;
/* Creates the settings for `url`; *out is NULL when it is not a TLS URL. Returns: ST_BAD_CONFIG for
 * a file that cannot be used. Owns: tls_client_free, after the transports. */
enum status tls_client_new(const struct tls_client_options *options, const struct client_url *url,
                           struct tls_client **out, struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void tls_client_free(struct tls_client *client);

/* Creates a transport for one client, and fills `functions`. Returns: NULL when out of memory.
 * Owns: tls_transport_free, when the client is freed. */
struct tls_transport *tls_transport_new(const struct tls_client *client,
                                        sluice_client_transport *functions);
/* NULL is allowed. */
void tls_transport_free(void *transport);

#endif

/* TLS for the commands: the options of client/connection/tls.h on the command line. */
#ifndef SLUICE_PROGRAM_REQUESTS_TLS_CLIENT_H
#define SLUICE_PROGRAM_REQUESTS_TLS_CLIENT_H

#include <stdbool.h>

#include "client/connection/tls.h"
#include "client/connection/url.h"
#include "core/base/status.h"

/* As curl's options of the same names; paths may be NULL. */
struct tls_client_options {
    const char *cacert; /* trusted CAs; NULL: the system's */
    const char *cert;   /* client certificate, for a server that requests one */
    const char *key;    /* NULL: in the file of `cert` */
    bool insecure;      /* does not verify the server */
};

/* Checks that the options apply to `url`. Returns: ST_BAD_CONFIG. */
enum status tls_client_check(const struct tls_client_options *options, const struct client_url *url,
                             struct error *err) SLUICE_MUST_USE;
/* Creates the settings for `url`; *out is NULL when it is not a TLS URL. Returns: as
 * client_tls_new.
 * Owns: client_tls_free, after the clients. */
enum status tls_client_new(const struct tls_client_options *options, const struct client_url *url,
                           struct client_tls **out, struct error *err) SLUICE_MUST_USE;

#endif

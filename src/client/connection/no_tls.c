/* What tls.c is in a build without TLS (SLUICE_CLIENT_TLS=OFF). */
#include <stddef.h>

#include "client/connection/tls.h"

enum status client_tls_new(const struct client_tls_options *options, struct client_tls **out,
                           struct error *err) {
    (void)options;
    *out = NULL;
    return error_set(err, ST_UNSUPPORTED, "this build has no TLS (SLUICE_CLIENT_TLS=OFF)");
}

void client_tls_free(struct client_tls *tls) {
    (void)tls;
}

struct client_tls_transport *client_tls_transport_new(const struct client_tls *tls,
                                                      sluice_client_transport *functions) {
    (void)tls, (void)functions;
    return NULL;
}

void client_tls_transport_free(void *transport) {
    (void)transport;
}

bool client_tls_is_refused(const struct client_tls_transport *transport) {
    (void)transport;
    return false;
}

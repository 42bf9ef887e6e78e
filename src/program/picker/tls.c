/* From settings to TLS. */
#include "program/picker/tls.h"

enum status pick_tls_open(const struct pick_settings *settings, struct tls_server **out,
                          struct error *err) {
    struct tls_server_options options = {
        .cert = {"--grpc-tls-cert", settings->grpc_tls_cert},
        .key = {"--grpc-tls-key", settings->grpc_tls_key},
        .client_ca = {"--grpc-tls-client-ca", settings->grpc_tls_client_ca},
        .self_signed = settings->grpc_tls_self_signed};
    *out = NULL;
    return pick_has_tls(settings) ? tls_server_new(&options, time(NULL), out, err) : ST_OK;
}

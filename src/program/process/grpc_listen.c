/* From a text to a listener of gRPC. */
#include "program/process/grpc_listen.h"

enum status grpc_listen(struct grpc_server *server, const struct listen_scheme *scheme,
                        const char *text, const struct tls_server *tls, bool any_tls,
                        struct listen_address *listen_address, struct error *err) {
    enum status st = listen_address_parse(scheme, text, listen_address, err);
    if (st != ST_OK) {
        return st;
    }
    struct address address = listen_address->address;
    st = grpc_server_listen(server, &address, listen_address->tls ? tls : NULL,
                            &listen_address->address, err);
    if (st != ST_OK) {
        return error_prefix(err, "--%s %s", scheme->flag, text);
    }
    listen_address_log(scheme, listen_address, any_tls);
    return ST_OK;
}

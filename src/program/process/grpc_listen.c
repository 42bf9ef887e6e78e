/* From a text to a listener of gRPC. */
#include "program/process/grpc_listen.h"

enum status grpc_listen(struct grpc_server *server, const struct serve_scheme *scheme,
                        const char *text, const struct tls_server *tls, bool any_tls,
                        struct serve_place *place, struct error *err) {
    enum status st = serve_place_parse(scheme, text, place, err);
    if (st != ST_OK) {
        return st;
    }
    struct address address = place->address;
    st = grpc_server_listen(server, &address, place->tls ? tls : NULL, &place->address, err);
    if (st != ST_OK) {
        return error_prefix(err, "--%s %s", scheme->flag, text);
    }
    serve_place_tell(scheme, place, any_tls);
    return ST_OK;
}

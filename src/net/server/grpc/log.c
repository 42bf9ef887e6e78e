/* What the log says of connections and calls that were refused. A peer that does nothing else does
 * not fill it. */
#include "core/base/log.h"
#include "net/server/grpc/conn.h"

void grpc_log_refused(struct grpc_session *session, const struct error *err, bool whole) {
    const struct net_conn *conn = &grpc_conn_of(session)->net;
    struct log_limit *log = &grpc_server_worker_of(conn->server_worker)->log;
    enum log_level level = whole ? LOG_WARNING : LOG_DEBUG;
    char peer[ADDRESS_TEXT_BYTES];
    if (!log_enabled(level) || !log_limit_allow(log)) {
        return;
    }
    const struct log_field fields[] = {
        LOG_CSTR("peer", net_conn_peer(conn, peer)),
        LOG_CSTR("listener", conn->listen_endpoint->text),
        LOG_CSTR("reason", err->text),
        LOG_U64("left_out", log->n_suppressed),
    };
    log_write(level, whole ? "a gRPC connection was ended" : "a gRPC call was refused", fields,
              log->n_suppressed > 0 ? 4 : 3);
    log->n_suppressed = 0;
}

/* What the log says of connections and calls that were refused. A peer that does nothing else does
 * not fill it. */
#include "core/base/log.h"
#include "net/server/grpc/conn.h"

void grpc_log_refused(struct grpc_session *session, const struct error *err, bool whole) {
    const struct net_conn *conn = &grpc_conn_of(session)->net;
    struct log_limit *log = &grpc_shard_of(conn->shard)->log;
    enum log_level level = whole ? LOG_WARNING : LOG_DEBUG;
    char peer[ADDRESS_TEXT_BYTES];
    if (!log_enabled(level) || !log_limit_take(log)) {
        return;
    }
    const struct log_field fields[] = {
        LOG_TEXT_OF("peer", net_conn_peer(conn, peer)),
        LOG_TEXT_OF("listener", conn->entrance->text),
        LOG_TEXT_OF("reason", err->text),
        LOG_U64("left_out", log->n_left_out),
    };
    log_write(level, whole ? "a gRPC connection was ended" : "a gRPC call was refused", fields,
              log->n_left_out > 0 ? 4 : 3);
    log->n_left_out = 0;
}

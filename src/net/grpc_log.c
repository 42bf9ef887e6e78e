/* What the log says of connections and calls that were refused. A peer that does nothing else does
 * not fill it. */
#include "base/log.h"
#include "loop/clock.h"
#include "net/grpc_conn.h"

enum { LINES_PER_SECOND = 10 }; /* of one worker */

/* May another line be written now? */
static bool log_take(struct grpc_log *log) {
    uint64_t second = clock_now_ns() / 1000000000u;
    if (second != log->second) {
        log->second = second;
        log->n_lines = 0;
    }
    if (log->n_lines == LINES_PER_SECOND) {
        log->n_left_out++;
        return false;
    }
    log->n_lines++;
    return true;
}

void grpc_log_refused(struct grpc_session *session, const struct error *err, bool whole) {
    const struct net_conn *conn = &grpc_conn_of(session)->net;
    struct grpc_log *log = &grpc_shard_of(conn->shard)->log;
    enum log_level level = whole ? LOG_WARNING : LOG_DEBUG;
    char peer[ADDRESS_TEXT_BYTES];
    if (!log_enabled(level) || !log_take(log)) {
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

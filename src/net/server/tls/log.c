/* What the log and the counters say of handshakes. Those that tell whoever runs the server or the
 * client something are for everybody to see; scanners and probes, which connect and go away, are
 * for who looks closely. */
#include <assert.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "net/server/tls/conn.h"

static_assert((int)METRIC_TLS_FAILURES_PLAINTEXT + (int)TLS_FAILURE_DISCONNECTED ==
                  (int)METRIC_TLS_FAILURES_GONE,
              "the rows of the counter are in the order of enum tls_failure");

void net_tls_log_failure(const struct net_conn *conn, enum tls_failure failure, const char *why) {
    struct log_limit *limit = &conn->server_worker->tls->log;
    enum log_level level = failure == TLS_FAILURE_DISCONNECTED ? LOG_DEBUG : LOG_INFO;
    char peer[ADDRESS_TEXT_BYTES];
    metric_add((enum metric)((int)METRIC_TLS_FAILURES_PLAINTEXT + (int)failure), 1);
    if (!log_enabled(level) || !log_limit_allow(limit)) {
        return;
    }
    const struct log_field fields[] = {
        LOG_CSTR("peer", net_conn_peer(conn, peer)),
        LOG_CSTR("listener", conn->listen_endpoint->text),
        LOG_CSTR("reason", why),
        LOG_U64("left_out", limit->n_suppressed),
    };
    log_write(level, "no TLS with a client", fields, limit->n_suppressed > 0 ? 4 : 3);
    limit->n_suppressed = 0;
}

void net_tls_log_success(const struct net_conn *conn) {
    const struct tls_session *session = &conn->tls->session;
    char peer[ADDRESS_TEXT_BYTES];
    metric_add(METRIC_TLS_HANDSHAKES_TOTAL, 1);
    if (tls_session_is_resumed(session)) {
        metric_add(METRIC_TLS_RESUMPTIONS_TOTAL, 1);
    }
    if (log_enabled(LOG_DEBUG)) {
        log_event(LOG_DEBUG, "TLS with a client", LOG_CSTR("peer", net_conn_peer(conn, peer)),
                  LOG_CSTR("version", tls_session_version(session)),
                  LOG_CSTR("cipher", tls_session_cipher(session)),
                  LOG_CSTR("session", tls_session_is_resumed(session) ? "resumed" : "new"));
    }
}

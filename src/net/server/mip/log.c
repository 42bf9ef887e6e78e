/* What the log and the counters say of packets that were refused. The log has the reason, which the
 * packet cannot carry; a peer that sends nothing but errors does not fill it. */
#include <assert.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "net/server/mip/conn.h"

static_assert((int)METRIC_MIP_ERRORS_PROTOCOL + (int)MIP_ERROR_INTERNAL ==
                  (int)METRIC_MIP_ERRORS_INTERNAL,
              "the rows of the counter are in the order of the codes");

void mip_log_error(const struct net_conn *conn, const struct error *err) {
    const struct server_worker *server_worker = conn->server_worker;
    struct log_limit *log = &mip_server_of(server_worker)->logs[server_worker_index(server_worker)];
    unsigned code = (unsigned)status_mip(err->status);
    char peer[ADDRESS_TEXT_BYTES];
    metric_add((enum metric)(METRIC_MIP_ERRORS_PROTOCOL + code), 1);
    metric_add_error(METRIC_MIP, err->status);
    if (!log_enabled(LOG_WARNING) || !log_limit_allow(log)) {
        return;
    }
    const struct log_field fields[] = {
        LOG_CSTR("peer", net_conn_peer(conn, peer)),
        LOG_CSTR("listener", conn->listen_endpoint->text),
        LOG_CSTR("code", mip_error_name(code)),
        LOG_CSTR("reason", err->text),
        LOG_U64("left_out", log->n_suppressed),
    };
    log_write(LOG_WARNING, "answered with an error", fields, log->n_suppressed > 0 ? 5 : 4);
    log->n_suppressed = 0;
}

void mip_log_truncated(const struct net_conn *conn, const char *why) {
    char peer[ADDRESS_TEXT_BYTES];
    metric_add(METRIC_MIP_TRUNCATED_TOTAL, 1);
    if (log_enabled(LOG_DEBUG)) {
        log_event(LOG_DEBUG, "a connection ended within a packet",
                  LOG_CSTR("peer", net_conn_peer(conn, peer)),
                  LOG_CSTR("listener", conn->listen_endpoint->text), LOG_CSTR("reason", why));
    }
}

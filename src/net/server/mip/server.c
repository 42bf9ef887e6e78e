/* The MIP server: net/server/server.h with MIP's limits and handler; and its connections: packets
 * in, pings and errors answered, replies of the handler sent.
 *
 * The log has the reason of an error, which the packet cannot carry; its rate is limited. */
#include "net/server/mip/server.h"

#include "core/os/log_limit.h"
#include "net/server/request_response.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

struct mip_conn {
    struct request_response_conn base;
    uint8_t n_head; /* bytes of the header received */
    char head[MIP_HEADER_BYTES];
};

/* An inference request. */
struct mip_call {
    struct net_call base;
    struct mip_exchange exchange; /* the handler's view */
};

struct mip_server {
    struct net_server net;
    struct mip_handler handler;
    struct log_limit *logs; /* one per worker */
};

static inline struct mip_server *mip_server_of(const struct server_worker *server_worker) {
    return (struct mip_server *)server_worker->server;
}

static_assert((int)METRIC_MIP_ERRORS_PROTOCOL + (int)MIP_ERROR_INTERNAL ==
                  (int)METRIC_MIP_ERRORS_INTERNAL,
              "the rows of the counter are in the order of the codes");

/* An error response: counts it by its code and logs its reason. */
static void mip_log_error(const struct net_conn *conn, const struct error *err) {
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
    log_write(LOG_WARNING, "MIP request failed", fields, log->n_suppressed > 0 ? 5 : 4);
    log->n_suppressed = 0;
}

/* The connection closed in the middle of a packet. */
static void mip_log_truncated(const struct net_conn *conn, const char *why) {
    char peer[ADDRESS_TEXT_BYTES];
    metric_add(METRIC_MIP_TRUNCATED_TOTAL, 1);
    if (log_enabled(LOG_DEBUG)) {
        log_event(LOG_DEBUG, "MIP connection closed mid-packet",
                  LOG_CSTR("peer", net_conn_peer(conn, peer)),
                  LOG_CSTR("listener", conn->listen_endpoint->text), LOG_CSTR("reason", why));
    }
}

enum { STACK_BUFS = 16 }; /* more are allocated in the arena */

/* A request was answered. */
static void count_request(void) {
    metric_add(METRIC_REQUESTS_TOTAL, 1);
    metric_add(METRIC_MIP_REQUESTS_TOTAL, 1);
}

/* Sends a packet without payload; then the connection continues, or closes. */
static void send_header(struct request_response_conn *conn, const struct mip_header *header) {
    char bytes[MIP_HEADER_BYTES];
    mip_header_encode(header, bytes);
    net_conn_send_small(&conn->net, str_make(bytes, sizeof(bytes)));
    if (!request_response_is_closed(conn)) {
        request_response_on_reply_sent(conn);
    }
}

static void send_error(struct request_response_conn *conn, const struct error *err) {
    mip_log_error(&conn->net, err);
    send_header(conn, &(struct mip_header){.version = MIP_VERSION,
                                           .kind = MIP_ERROR,
                                           .subtype = (uint8_t)status_mip(err->status)});
}

/* Answers a packet that no handler has (state HEAD or BODY) with an error. `left` bytes of its
 * payload are still to come: skipped if few and known, else the connection closes. */
static void mip_refuse(struct request_response_conn *conn, uint64_t left, const struct error *err) {
    /* Another version may place the size elsewhere. */
    bool known = err->status != ST_BAD_VERSION;
    count_request();
    conn->net.close_after_reply =
        conn->net.close_after_reply || !known || left > request_response_max_skipped(conn);
    conn->skip_left = left;
    request_response_set_state(conn, conn->net.close_after_reply || left == 0
                                         ? REQUEST_RESPONSE_REPLY
                                         : REQUEST_RESPONSE_REPLY_SKIP);
    send_error(conn, err);
}

/* ---- replies of the handler ------------------------------------------------------------------ */

/* Lists the pieces, in `arena` when there are many. Returns: false when out of memory. */
static bool outgoing_make(struct arena *arena, const struct mip_answer *answer,
                          struct net_outgoing *out, uv_buf_t stack[STACK_BUFS]) {
    *out = (struct net_outgoing){.bufs = stack};
    if (answer->n_pieces > STACK_BUFS) {
        out->bufs = arena_calloc(arena, answer->n_pieces, sizeof(*out->bufs));
    }
    for (size_t i = 0; out->bufs && i < answer->n_pieces; i++) {
        net_outgoing_add(out, answer->pieces[i].data, answer->pieces[i].n_bytes);
    }
    out->n_body = out->n_bytes;
    return out->bufs != NULL;
}

/* Returns: false when the peer has disconnected; the call has ended. */
static bool reply_begin(struct net_call *call) {
    assert(!call->replied);
    call->replied = true;
    if (!call->conn) {
        net_call_finish(call);
        return false;
    }
    count_request();
    request_response_set_state((struct request_response_conn *)call->conn, REQUEST_RESPONSE_REPLY);
    return true;
}

static void reply_end(struct net_conn *conn) {
    if (!conn->consuming) {
        net_conn_update_io(conn);
    }
}

static struct net_call *call_of(struct mip_exchange *exchange) {
    return (struct net_call *)(void *)((char *)exchange - offsetof(struct mip_call, exchange));
}

void mip_reply(struct mip_exchange *exchange, const struct mip_answer *answer) {
    struct net_call *call = call_of(exchange);
    struct net_conn *conn = call->conn;
    uv_buf_t stack[STACK_BUFS];
    struct net_outgoing out;
    call->release = answer->release;
    call->user = answer->user;
    if (!reply_begin(call)) {
        return;
    }
    if (outgoing_make(call->arena, answer, &out, stack) ||
        (net_call_reply_arena(call) && outgoing_make(call->reply_arena, answer, &out, stack))) {
        assert(out.n_bytes >= MIP_HEADER_BYTES);
        request_response_send((struct request_response_conn *)conn, &out);
    } else {
        net_conn_close(conn);
    }
    reply_end(conn);
}

void mip_reply_error(struct mip_exchange *exchange, const struct error *err) {
    struct net_call *call = call_of(exchange);
    struct net_conn *conn = call->conn;
    if (reply_begin(call)) {
        send_error((struct request_response_conn *)conn, err);
        reply_end(conn);
    }
}

static const struct mip_handler *handler_of(const struct net_call *call) {
    return &mip_server_of(call->server_worker)->handler;
}

static struct mip_exchange *exchange_of(struct net_call *call) {
    return &((struct mip_call *)call)->exchange;
}

/* ---- payloads -------------------------------------------------------------------------------- */

static void payload_end(struct request_response_conn *conn) {
    struct net_call *call = conn->call;
    const struct mip_handler *handler = handler_of(call);
    request_response_set_state(conn, REQUEST_RESPONSE_WAIT);
    exchange_of(call)->payload = str_make(call->body.data, call->body.len);
    call->handler_started = true;
    handler->on_infer(exchange_of(call), handler->context);
}

/* The payload failed before a handler got it. */
static void payload_fail(struct request_response_conn *conn, const struct error *err) {
    struct net_call *call = conn->call;
    conn->call = NULL;
    net_call_finish(call);
    mip_refuse(conn, conn->skip_left, err);
}

static void fail_timeout(struct request_response_conn *conn, const char *why) {
    struct error err;
    conn->net.close_after_reply = true;
    error_set(&err, ST_REQUEST_TIMEOUT, "%s", why);
    payload_fail(conn, &err);
}

/* Continues after bytes were added or refused. */
static void on_payload_bytes(struct request_response_conn *conn, enum status st,
                             const struct error *err) {
    if (st != ST_OK) {
        payload_fail(conn, err);
    } else if (conn->skip_left == 0) {
        payload_end(conn);
    } else if (net_call_body_is_too_slow(conn->call)) {
        fail_timeout(conn, "the payload is too slow (--min-body-rate)");
    }
}

static void on_read_buffer_filled(struct net_conn *net_conn, size_t n_bytes) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    struct error err;
    enum status st = request_response_advance_body(conn, n_bytes, &err);
    on_payload_bytes(conn, st, &err);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Checks the announced size (DESIGN, "Limits"; MIP, "Errors": ERROR_MEMORY). */
static enum status check_size(const struct server_worker *server_worker, uint32_t n_bytes,
                              struct error *err) {
    uint64_t most = server_worker->server->limits.max_body_size;
    if (n_bytes > most) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "expected a payload of at most %llu bytes (--max-body-size), got one of "
                         "%lu announced",
                         (unsigned long long)most, (unsigned long)n_bytes);
    }
    return body_check_budget(server_worker->server->budget, n_bytes, err);
}

/* Creates the call with memory for the payload. Returns: ST_NO_MEMORY. */
static enum status call_new(struct request_response_conn *conn, const struct mip_header *header,
                            struct error *err) {
    struct server_worker *server_worker = conn->net.server_worker;
    struct net_call *call = net_call_new(&conn->net, sizeof(struct mip_call));
    if (!call) {
        return error_no_memory(err, "a request");
    }
    struct body_allocator means = {call->arena, &server_worker->pool, server_worker->server->budget,
                                   NET_BODY_MIP};
    struct body_plan plan = {.length = header->n_bytes, .max_bytes = header->n_bytes};
    enum status st = body_init(&call->body, &means, &plan, err);
    if (st != ST_OK) {
        net_call_free(call);
        return st;
    }
    *exchange_of(call) = (struct mip_exchange){
        .arena = call->arena,
        .worker = server_worker->worker,
        .account = conn->net.account,
        .header = *header,
        .payload = STR(""),
        .listener = conn->net.listen_endpoint->user,
    };
    call->body_rate.since_ns = clock_now_ns();
    conn->call = call;
    return ST_OK;
}

/* A header is complete. */
static void packet_begin(struct request_response_conn *conn, const struct mip_header *header) {
    struct error err;
    enum status st = mip_header_check_request(header, &err);
    if (st == ST_OK && header->kind == MIP_PING) {
        count_request();
        request_response_set_state(conn, REQUEST_RESPONSE_REPLY);
        send_header(conn, &(struct mip_header){
                              .version = MIP_VERSION, .kind = MIP_PING, .subtype = MIP_RESPONSE});
        return;
    }
    if (st == ST_OK) {
        st = check_size(conn->net.server_worker, header->n_bytes, &err);
    }
    if (st == ST_OK) {
        st = call_new(conn, header, &err);
    }
    if (st != ST_OK) {
        mip_refuse(conn, header->n_bytes, &err);
        return;
    }
    conn->skip_left = header->n_bytes;
    request_response_set_state(conn, REQUEST_RESPONSE_BODY);
    net_call_count_in_flight(conn->call);
}

static void read_header(struct mip_conn *conn, struct str *data) {
    size_t n = MIP_HEADER_BYTES - conn->n_head;
    struct mip_header header;
    n = n < data->len ? n : data->len;
    memcpy(conn->head + conn->n_head, data->ptr, n);
    conn->n_head = (uint8_t)(conn->n_head + n);
    *data = str_make(data->ptr + n, data->len - n);
    conn->base.net.n_pipelined_bytes = data->len;
    if (conn->n_head == MIP_HEADER_BYTES) {
        mip_header_decode(conn->head, &header);
        packet_begin(&conn->base, &header);
    }
}

static bool on_bytes(struct net_conn *net_conn, struct str *data) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    struct error err;
    switch ((enum request_response_state)conn->state) {
    case REQUEST_RESPONSE_IDLE:
        if (net_conn->n_flushing > 0) {
            return false;
        }
        ((struct mip_conn *)conn)->n_head = 0;
        net_conn->discarded = 0;
        request_response_set_state(conn, REQUEST_RESPONSE_HEAD);
        __attribute__((fallthrough));
    case REQUEST_RESPONSE_HEAD:
        read_header((struct mip_conn *)conn, data);
        return true;
    case REQUEST_RESPONSE_BODY: {
        enum status st = request_response_add_body(conn, data, &err);
        on_payload_bytes(conn, st, &err);
        return true;
    }
    case REQUEST_RESPONSE_REPLY_SKIP:
    case REQUEST_RESPONSE_SKIP:
        request_response_skip_body(conn, data);
        return true;
    case REQUEST_RESPONSE_WAIT:
    case REQUEST_RESPONSE_REPLY:
        if (!net_conn->close_after_reply) {
            return false;
        }
        break;
    case REQUEST_RESPONSE_ENDED:
    case REQUEST_RESPONSE_STATES:
        break;
    }
    net_conn_discard(net_conn, data);
    return true;
}

/* ---- hooks of struct net_protocol ------------------------------------------------------------ */

static void on_refused(struct net_conn *net_conn, const struct error *err) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    net_conn->close_after_reply = true;
    request_response_set_state(conn, REQUEST_RESPONSE_HEAD);
    mip_refuse(conn, 0, err);
}

static void on_timeout(struct net_conn *net_conn, enum net_timeout timeout) {
    struct request_response_conn *conn = (struct request_response_conn *)net_conn;
    if (timeout == NET_TIMEOUT_BODY && conn->state == REQUEST_RESPONSE_BODY) {
        fail_timeout(conn, "timed out waiting for the payload (--body-timeout)");
        return;
    }
    if (timeout == NET_TIMEOUT_HEAD) {
        mip_log_truncated(net_conn, "timed out waiting for the header (--header-timeout)");
    }
    net_conn_close(net_conn);
}

static void on_close(struct net_conn *net_conn) {
    const struct request_response_conn *conn = (const struct request_response_conn *)net_conn;
    if (net_conn->eof &&
        (conn->state == REQUEST_RESPONSE_HEAD || conn->state == REQUEST_RESPONSE_BODY)) {
        mip_log_truncated(net_conn, "the peer closed");
    }
    request_response_on_close(net_conn);
}

static void on_call_disconnected(struct net_call *call) {
    const struct mip_handler *handler = handler_of(call);
    exchange_of(call)->client_disconnected = true;
    exchange_of(call)->account = NULL; /* as in HTTP */
    if (handler->on_disconnect) {
        handler->on_disconnect(exchange_of(call), handler->context);
    }
}

/* The document of MIP asks for no half-close, so a client that closes its side has gone. */
static void on_call_half_closed(struct net_call *call) {
    const struct mip_handler *handler = handler_of(call);
    if (handler->on_disconnect) {
        handler->on_disconnect(exchange_of(call), handler->context);
    }
}

static void on_call_end(struct net_call *call) {
    const struct mip_handler *handler = handler_of(call);
    if (handler->on_end) {
        handler->on_end(exchange_of(call), handler->context);
    }
}

static const struct net_protocol mip_protocol = {
    .name = "mip",
    .conn_bytes = sizeof(struct mip_conn),
    .conn_memory_bytes = 6144, /* a call takes a chunk of an arena, 4 KiB */
    .on_refused = on_refused,
    .on_bytes = on_bytes,
    .read_buffer = request_response_read_buffer,
    .on_read_buffer_filled = on_read_buffer_filled,
    .on_eof = request_response_on_eof,
    .on_timeout = on_timeout,
    .on_close = on_close,
    .wants_to_read = request_response_wants_to_read,
    .timeout_of = request_response_timeout_of,
    .is_idle = request_response_is_idle,
    .on_written = request_response_on_written,
    .on_call_disconnected = on_call_disconnected,
    .on_call_half_closed = on_call_half_closed,
    .on_call_end = on_call_end,
    .body_bytes = request_response_body_bytes,
    .describe = request_response_describe,
};

enum status mip_server_new(const struct mip_server_options *options, struct mip_server **out,
                           struct error *err) {
    struct net_server_options net = {
        .protocol = &mip_protocol,
        .limits = options->limits,
        .budget = options->budget,
        .workers = options->workers,
        .n_workers = options->n_workers,
        .acceptor = options->acceptor,
    };
    struct mip_server *server = calloc(1, sizeof(*server));
    struct log_limit *logs = calloc(options->n_workers, sizeof(*logs));
    if (!server || !logs) {
        free(server);
        free(logs);
        return error_no_memory(err, "the MIP server");
    }
    enum status st = net_server_init(&server->net, &net, err);
    if (st != ST_OK) {
        free(server);
        free(logs);
        return st;
    }
    server->handler = options->handler;
    server->logs = logs;
    *out = server;
    return ST_OK;
}

void mip_server_free(struct mip_server *server) {
    if (server) {
        net_server_fini(&server->net);
        free(server->logs);
        free(server);
    }
}

enum status mip_server_listen(struct mip_server *server, const struct address *address,
                              const void *user, struct address *bound, struct error *err) {
    return net_server_listen(&server->net, address, NULL, user, bound, err);
}

struct net_server *mip_server_net(struct mip_server *server) {
    return &server->net;
}

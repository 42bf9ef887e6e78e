/* The gRPC server: net/server/server.h with gRPC's limits and methods, and its connections. Input
 * goes to the session; output is collected at the end of the event-loop iteration, so that all
 * calls answered in one iteration leave in one write. */
#include "net/server/grpc/server.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/os/log_limit.h"
#include "net/server/conn_write.h"
#include "net/server/grpc/session.h"
#include "net/server/report.h"

enum { MAX_WRITES = 4 };          /* per connection and iteration, so that others get their share */
enum { DISCARD_BYTES = 1 << 20 }; /* limit of input dropped while a connection lingers */
enum { MAX_DESCRIBED_CALLS = 8 };

struct grpc_conn {
    struct net_conn net;
    struct grpc_session session;
    struct grpc_output *output; /* sent by `write` */
    struct net_write write;
    bool session_opened; /* the session is open; opened with the first bytes */
};

/* A worker's part of the server. */
struct grpc_server_worker {
    struct grpc_core core;
    struct log_limit log;
};

struct grpc_server {
    struct net_server net;
    struct grpc_server_options options;
    struct grpc_server_worker *workers; /* as many as net.workers */
    const struct grpc_http_requests *http_requests;
};

static struct grpc_server *grpc_server_of(const struct server_worker *server_worker) {
    return (struct grpc_server *)server_worker->server;
}

static struct grpc_server_worker *grpc_server_worker_of(const struct server_worker *server_worker) {
    return &grpc_server_of(server_worker)->workers[server_worker_index(server_worker)];
}

static struct grpc_conn *grpc_conn_of(struct grpc_session *session) {
    return CONTAINER_OF(session, struct grpc_conn, session);
}

/* grpc_core.on_refused: a protocol violation of a connection is logged as a warning, a refused call
 * as debug. */
static void grpc_log_refused(struct grpc_session *session, const struct error *err, bool whole) {
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
    log_write(level, whole ? "gRPC connection terminated" : "gRPC call refused", fields,
              log->n_suppressed > 0 ? 4 : 3);
    log->n_suppressed = 0;
}

static struct grpc_core *core_of(const struct server_worker *server_worker) {
    return &grpc_server_worker_of(server_worker)->core;
}

/* ---- out ------------------------------------------------------------------------------------- */

static void on_sent(struct net_write *write, int status) {
    struct net_conn *net_conn = write->conn;
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    assert(conn->output);
    grpc_output_give(&core_of(net_conn->server_worker)->spare_output, conn->output);
    conn->output = NULL;
    grpc_session_on_written(&conn->session);
    if (status < 0) {
        net_conn_close(net_conn);
    }
    net_conn_update_io(net_conn);
}

/* Collects and sends once. Returns: whether to continue. */
static bool collect_and_send(struct grpc_conn *conn) {
    struct grpc_core *core = core_of(conn->net.server_worker);
    struct grpc_output *output = grpc_output_take(&core->spare_output);
    if (!output) {
        net_conn_close(&conn->net);
        return false;
    }
    if (!grpc_session_collect_output(&conn->session, output)) {
        grpc_output_give(&core->spare_output, output);
        return false;
    }
    uv_buf_t bufs[GRPC_OUTPUT_PIECES];
    struct net_outgoing out = {.bufs = bufs};
    for (size_t i = 0; i < output->n; i++) {
        net_outgoing_add(&out, output->pieces[i].data, output->pieces[i].n_bytes);
    }
    conn->write.done = on_sent;
    int rc = net_conn_write(&conn->net, &out, &conn->write);
    if (rc == 0) {
        conn->output = output; /* until on_sent */
        return false;
    }
    if (rc < 0) {
        net_conn_close(&conn->net);
    }
    grpc_output_give(&core->spare_output, output);
    grpc_session_on_written(&conn->session);
    return rc > 0;
}

/* The session stays marked as scheduled meanwhile, so that scheduling it from within does nothing:
 * output that becomes pending is seen by the check after each write. */
static void flush_session(struct grpc_conn *conn) {
    struct grpc_session *session = &conn->session;
    bool drains = grpc_session_drain_some(session);
    bool more = grpc_session_has_output(session);
    for (unsigned n = 0; more && n < MAX_WRITES && collect_and_send(conn); n++) {
        more = conn->net.phase == NET_OPEN && grpc_session_has_output(session);
    }
    session->scheduled = false;
    if (conn->net.phase != NET_OPEN || session->write_batch.writing) {
        return;
    }
    if (more || drains) {
        grpc_core_schedule_write(session->core, session);
    } else if (grpc_session_is_done(session)) {
        grpc_session_close(session);
        net_conn_close_gracefully(&conn->net, conn->net.skip_linger);
    }
}

/* The rest is left for the next iteration, before whatever is scheduled until then: a flush is a
 * system call and more, and a change of the server's health has output for each that watches it. */
static void flush_scheduled(struct grpc_core *core) {
    const struct grpc_session *last = TAILQ_LAST(&core->scheduled, grpc_session_list);
    struct grpc_session *session = NULL;
    uint64_t end_ns = 0;
    while (session != last && (end_ns == 0 || clock_now_ns() < end_ns) &&
           (session = grpc_core_take_scheduled(core))) {
        struct grpc_conn *conn = grpc_conn_of(session);
        if (end_ns == 0 && !TAILQ_EMPTY(&core->scheduled)) {
            end_ns = clock_now_ns() + LOOP_EVENTS_NS;
        }
        if (conn->net.phase == NET_OPEN) {
            flush_session(conn);
            net_conn_update_io(&conn->net);
        } else {
            session->scheduled = false;
        }
    }
}

static bool run_deferred(struct server_worker *server_worker) {
    struct grpc_core *core = core_of(server_worker);
    grpc_core_inflate_more(core);
    flush_scheduled(core);
    bool sweeps = grpc_core_sweep(core);
    server_worker_schedule_timer(server_worker, grpc_core_next_timer_ns(core));
    if (server_worker->pool.n > 0) {
        server_worker_schedule_timer(server_worker,
                                     body_pool_trim(&server_worker->pool, clock_now_ns()));
    }
    /* A method may have read on while output was sent: its input waits for the next slice. */
    return sweeps || !TAILQ_EMPTY(&core->scheduled) || !TAILQ_EMPTY(&core->inflating);
}

/* ---- in -------------------------------------------------------------------------------------- */

static void init(struct net_conn *net_conn) {
    grpc_session_init(&((struct grpc_conn *)net_conn)->session, core_of(net_conn->server_worker));
}

/* Returns: false when out of memory; the connection is closed. */
static bool open_session(struct grpc_conn *conn) {
    struct error err;
    if (conn->session_opened) {
        return true;
    }
    conn->session.account = conn->net.account;
    conn->session.listener = &conn->net.listen_endpoint->web;
    if (conn->net.listen_endpoint->server != conn->net.server_worker->server) {
        conn->session.http_requests = grpc_server_of(conn->net.server_worker)->http_requests;
    }
    if (grpc_session_open(&conn->session, &err) != ST_OK) {
        net_conn_close(&conn->net);
        return false;
    }
    conn->session_opened = true;
    return true;
}

/* A connection that comes while the server drains is told so once it has had a call: a client that
 * hears it before connects again at once, for the same call, without end. */
static void receive(struct grpc_conn *conn, struct str data) {
    grpc_session_receive(&conn->session, data);
    if (server_worker_is_draining(conn->net.server_worker) &&
        grpc_session_had_call(&conn->session)) {
        grpc_session_drain(&conn->session);
    }
}

/* In steps, between which the connection's turn may end. */
static bool on_bytes(struct net_conn *net_conn, struct str *data) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    bool opened = open_session(conn);
    size_t n = opened ? grpc_session_next_step(&conn->session, *data) : data->len;
    struct str step = str_make(data->ptr, n);
    *data = str_make(data->ptr + n, data->len - n);
    if (opened) {
        receive(conn, step);
    }
    return true;
}

static void on_refused(struct net_conn *net_conn, const struct error *err) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    if (open_session(conn)) {
        grpc_session_reject(&conn->session, err);
    }
}

static char *read_buffer(struct net_conn *net_conn, size_t *n_bytes) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    return grpc_session_read_buffer(&conn->session, n_bytes);
}

static void on_read_buffer_filled(struct net_conn *net_conn, size_t n_bytes) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    receive(conn, str_make(conn->session.read_place.at, n_bytes));
}

/* HTTP/2 has no half-closed connections: no response could be read. */
static bool on_eof(struct net_conn *conn) {
    (void)conn;
    return false;
}

static bool wants_to_read(const struct net_conn *net_conn) {
    const struct grpc_conn *conn = (const struct grpc_conn *)net_conn;
    return !conn->session_opened || grpc_session_wants_input(&conn->session);
}

static bool is_receiving_bulk(const struct net_conn *net_conn) {
    const struct grpc_conn *conn = (const struct grpc_conn *)net_conn;
    return conn->session.message_bytes_left >= NET_READ_BYTES;
}

/* ---- time and the end ------------------------------------------------------------------------ */

static enum net_timeout timeout_of(const struct net_conn *net_conn, bool *keep_running) {
    const struct grpc_conn *conn = (const struct grpc_conn *)net_conn;
    const struct grpc_session *session = &conn->session;
    *keep_running = true;
    if (conn->output) {
        return NET_TIMEOUT_WRITE;
    }
    if (!session->settings_received || h2_scan_is_in_fields(&session->scan)) {
        return NET_TIMEOUT_HEAD;
    }
    if (session->n_open > 0) {
        return NET_TIMEOUT_NONE; /* calls have timeouts of their own */
    }
    if (session->draining) {
        return NET_TIMEOUT_LINGER; /* the client does not answer the shutdown notice */
    }
    *keep_running = false;
    return NET_TIMEOUT_IDLE;
}

static void on_timeout(struct net_conn *net_conn, enum net_timeout timeout) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    (void)timeout;
    if (conn->session_opened) {
        grpc_session_fail(&conn->session, NGHTTP2_SETTINGS_TIMEOUT,
                          "timed out waiting for the preface or a header block (--header-timeout)");
    } else {
        net_conn_close(net_conn);
    }
}

static void on_drain(struct net_conn *net_conn) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    if (conn->session_opened) {
        grpc_session_drain(&conn->session);
    } /* else the notice is sent with its first call */
}

/* A call whose header block is not complete is not open yet. */
static bool has_open_call(const struct net_conn *net_conn) {
    const struct grpc_session *session = &((const struct grpc_conn *)net_conn)->session;
    return session->n_open > (h2_scan_is_in_fields(&session->scan) ? 1 : 0);
}

static bool stream_waits(const struct grpc_stream *stream, bool runs_nothing) {
    const struct grpc_method *method = stream->call.method;
    bool reads_slowly = stream->timeout.armed && stream->timeout.timer_class == GRPC_WAIT_WINDOW;
    return stream->closed || reads_slowly || grpc_receive_is_waiting(stream) ||
           (runs_nothing && method && method->streams);
}

/* A streaming call may wait for a message also after the first one, while no request runs. */
static bool waits_for_client(const struct net_conn *net_conn) {
    const struct grpc_session *session = &((const struct grpc_conn *)net_conn)->session;
    bool runs_nothing = memory_account_holds_no_response(net_conn->account);
    const struct grpc_stream *stream;
    TAILQ_FOREACH(stream, &session->streams, link) {
        if (!stream_waits(stream, runs_nothing)) {
            return false;
        }
    }
    return true;
}

/* Its client knows by GOAWAY that a call which it starts meanwhile was not taken. */
static void on_evict(struct net_conn *net_conn) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    if (conn->session_opened && conn->session.settings_received && conn->session.n_open == 0) {
        net_conn->skip_linger = true;
        grpc_session_end(&conn->session);
    } else {
        net_conn_close(net_conn);
    }
}

static void on_close(struct net_conn *net_conn) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    if (conn->session_opened) {
        grpc_session_close(&conn->session);
        net_conn->held = conn->session.h2 != NULL;
    }
}

/* grpc_core.on_closed. */
static void on_session_closed(struct grpc_session *session) {
    net_conn_release(&grpc_conn_of(session)->net);
}

static bool is_idle(const struct net_conn *net_conn) {
    const struct grpc_conn *conn = (const struct grpc_conn *)net_conn;
    return conn->session.n_open == 0;
}

/* Messages wait for the client's windows or for the socket; so progress is what its windows let be
 * collected, and what its host acknowledges of that. */
static bool unsent(const struct net_conn *net_conn, uint64_t *n_taken) {
    const struct grpc_session *session = &((const struct grpc_conn *)net_conn)->session;
    const struct grpc_stream *stream;
    TAILQ_FOREACH(stream, &session->streams, link) {
        if (stream->out.n_bytes > 0 || stream->out.n_in_write > 0) {
            *n_taken = session->n_sent + net_conn_taken_bytes(net_conn);
            return true;
        }
    }
    return false;
}

/* When a stream last sent something; while none has, when the first one began to wait. */
static uint64_t unsent_since(const struct net_conn *net_conn) {
    const struct grpc_session *session = &((const struct grpc_conn *)net_conn)->session;
    uint64_t timeout_ns = session->core->stream_timers.after_ns[GRPC_WAIT_WINDOW];
    uint64_t sent_ns = 0, waits_ns = UINT64_MAX;
    const struct grpc_stream *stream;
    TAILQ_FOREACH(stream, &session->streams, link) {
        if (stream->timeout.armed && stream->timeout.timer_class == GRPC_WAIT_WINDOW) {
            uint64_t since_ns = stream->timeout.due_ns - timeout_ns;
            if (stream->sent_since_ns > 0) {
                sent_ns = since_ns > sent_ns ? since_ns : sent_ns;
            } else {
                waits_ns = since_ns < waits_ns ? since_ns : waits_ns;
            }
        }
    }
    return sent_ns > 0 ? sent_ns : waits_ns < UINT64_MAX ? waits_ns : 0;
}

/* Of messages that are not taken, and of metadata. */
static uint64_t body_bytes(const struct net_conn *net_conn) {
    const struct grpc_session *session = &((const struct grpc_conn *)net_conn)->session;
    const struct grpc_stream *stream;
    uint64_t n_bytes = 0;
    TAILQ_FOREACH(stream, &session->streams, link) {
        n_bytes += grpc_receiver_reserved_bytes(&stream->in) + stream->n_head_reserved;
    }
    return n_bytes;
}

/* A proxy has the calls of many clients on one connection. While the socket is full no reset could
 * be sent, and all calls wait for the same. */
static size_t end_stalled_calls(struct net_conn *net_conn, uint64_t since_ns) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    return conn->output ? 0 : grpc_session_end_stalled_calls(&conn->session, since_ns);
}

static void send_ping(struct net_conn *net_conn) {
    struct grpc_conn *conn = (struct grpc_conn *)net_conn;
    if (conn->session_opened) {
        grpc_session_ping(&conn->session);
    }
}

static void on_timer(struct server_worker *server_worker, uint64_t now_ns) {
    grpc_core_run_timers(core_of(server_worker), now_ns);
    server_worker_schedule_timer(server_worker, grpc_core_next_timer_ns(core_of(server_worker)));
}

/* The method's description, if it has one; it may contain text from the peer. */
static void describe_call(const struct grpc_call *call, struct buf *out) {
    size_t before = out->len;
    if (call->user && call->method && call->method->describe) {
        buf_add_str(out, STR(": "));
        call->method->describe(call, out);
    }
    for (size_t i = before; i < out->len && !out->failed; i++) {
        if ((unsigned char)out->data[i] < 0x20 || out->data[i] == 0x7f) {
            out->data[i] = '?';
        }
    }
}

static void describe_stream(const struct grpc_stream *stream, struct buf *out) {
    static const char *const answers[] = {
        [GRPC_RESPONSE_NONE] = "waiting for the response",
        [GRPC_RESPONSE_OPEN] = "writing responses",
        [GRPC_RESPONSE_ENDING] = "writing the status",
        [GRPC_RESPONSE_SENT] = "answered",
    };
    buf_printf(out, "; call %d ", (int)stream->id);
    net_report_add_name(out, stream->path);
    buf_printf(out, " %s", answers[stream->response_state]);
    describe_call(&stream->call, out);
}

static void describe(const struct net_conn *net_conn, struct buf *out) {
    const struct grpc_session *session = &((const struct grpc_conn *)net_conn)->session;
    size_t n = 0;
    buf_printf(out, "%zu calls", session->n_open);
    const struct grpc_stream *stream;
    TAILQ_FOREACH_REVERSE(stream, &session->streams, grpc_stream_list,
                          link) { /* the newest first */
        if (n == MAX_DESCRIBED_CALLS) {
            break;
        }
        if (!stream->closed) {
            describe_stream(stream, out);
            n++;
        }
    }
    if (n < session->n_open) {
        buf_printf(out, "; and %zu more", session->n_open - n);
    }
}

static const struct net_protocol grpc_protocol = {
    .name = "grpc",
    .conn_bytes = sizeof(struct grpc_conn),
    /* The HTTP/2 session takes 11 KiB of the heap and a page of h2_memory, a call 4 KiB. */
    .conn_memory_bytes = 20480,
    .alpn = "\x02h2",
    .refusal_invites_retry = true,
    .init = init,
    .on_refused = on_refused,
    .on_bytes = on_bytes,
    .read_buffer = read_buffer,
    .on_read_buffer_filled = on_read_buffer_filled,
    .on_eof = on_eof,
    .on_timeout = on_timeout,
    .on_close = on_close,
    .wants_to_read = wants_to_read,
    .timeout_of = timeout_of,
    .is_idle = is_idle,
    .on_drain = on_drain,
    .has_open_call = has_open_call,
    .on_evict = on_evict,
    .waits_for_client = waits_for_client,
    .is_receiving_bulk = is_receiving_bulk,
    .run_deferred = run_deferred,
    .unsent = unsent,
    .unsent_since = unsent_since,
    .body_bytes = body_bytes,
    .end_stalled_calls = end_stalled_calls,
    .send_ping = send_ping,
    .on_timer = on_timer,
    .describe = describe,
};

size_t grpc_core_worker_index(const struct grpc_core *core) {
    return server_worker_index(core->user);
}

static void schedule_deferred(struct grpc_core *core) {
    server_worker_schedule_deferred(core->user);
}

static bool is_behind(struct grpc_session *session, uint64_t *mark) {
    return net_conn_is_behind_mark(&grpc_conn_of(session)->net, mark);
}

static uint64_t waiting_bytes(struct grpc_session *session) {
    return net_conn_waiting_bytes(&grpc_conn_of(session)->net);
}

static enum status init_workers(struct grpc_server *server, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < server->net.n_workers && st == ST_OK; i++) {
        struct server_worker *server_worker = &server->net.workers[i];
        struct grpc_core *core = &server->workers[i].core;
        *core = (struct grpc_core){
            .pool = &server_worker->pool,
            .n_alive = &server_worker->n_calls,
            .n_calls = &server_worker->in_flight,
            .schedule_deferred = schedule_deferred,
            .on_refused = grpc_log_refused,
            .is_behind = is_behind,
            .waiting_bytes = waiting_bytes,
            .on_closed = on_session_closed,
            .user = server_worker,
        };
        st = grpc_core_init(core, &server->options, server_worker->worker, err);
    }
    return st;
}

uint32_t grpc_stream_window(uint64_t memory_bytes, uint32_t n_streams, uint32_t most) {
    uint64_t share = memory_bytes / n_streams;
    share = share < most ? share : most;
    return share > NGHTTP2_INITIAL_WINDOW_SIZE ? (uint32_t)share : NGHTTP2_INITIAL_WINDOW_SIZE;
}

enum status grpc_server_new(const struct grpc_server_options *options, struct grpc_server **out,
                            struct error *err) {
    struct net_server_options net = {
        .protocol = &grpc_protocol,
        .limits = options->limits.net,
        .budget = options->budget,
        .workers = options->workers,
        .n_workers = options->n_workers,
        .acceptor = options->acceptor,
    };
    /* A session checks heads and messages itself. */
    net.limits.max_header_size = net.limits.max_body_size = net.limits.min_body_rate = 0;
    net.limits.discard_size = DISCARD_BYTES;
    struct grpc_server *server = calloc(1, sizeof(*server));
    struct grpc_server_worker *workers = calloc(options->n_workers, sizeof(*workers));
    enum status st = ST_NO_MEMORY;
    if (server && workers) {
        st = net_server_init(&server->net, &net, err);
    } else {
        error_no_memory(err, "the gRPC server");
    }
    if (!server || st != ST_OK) {
        free(server);
        free(workers);
        return st;
    }
    server->options = *options;
    server->workers = workers;
    st = init_workers(server, err);
    if (st != ST_OK) {
        grpc_server_free(server);
        return st;
    }
    *out = server;
    return ST_OK;
}

void grpc_server_free(struct grpc_server *server) {
    if (!server) {
        return;
    }
    for (size_t i = 0; i < server->net.n_workers; i++) {
        grpc_core_fini(&server->workers[i].core);
    }
    net_server_fini(&server->net);
    free(server->workers);
    free(server);
}

enum status grpc_server_listen(struct grpc_server *server, const struct address *address,
                               const struct tls_server *tls, struct address *bound,
                               struct error *err) {
    return net_server_listen(&server->net, address, tls, NULL, bound, err);
}

void grpc_server_set_http_requests(struct grpc_server *server,
                                   const struct grpc_http_requests *requests) {
    server->http_requests = requests;
}

struct net_server *grpc_server_net(struct grpc_server *server) {
    return &server->net;
}

/* Connections: connecting, bytes in and out, their end; and calls: start, answer, end. */
#include "client/channel.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "client/loop.h"
#include "client/stream.h"
#include "codec/grpc/status.h"
#include "core/base/backoff.h"
#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/client/grpc_session/session.h"

enum {
    IN_BYTES = 65536,
    IO_ROUNDS = 64, /* transfers in each direction per step; then the caller's event loop runs */
    MAX_ROUNDS = 4,
    FIRST_PAUSE_NS = 10000000, /* between connections that end without an answer */
    LONGEST_PAUSE_NS = 1000000000,
};

struct channel_conn {
    LIST_ENTRY(channel_conn) link;
    struct client_channel *channel;
    struct client_connection io;
    struct client_tls_transport *tls; /* NULL: none */
    struct client_watch watch;
    struct grpc_client_session session;
    bool is_open;  /* the session is: the socket is connected */
    bool is_ready; /* the socket is, or may be */
    bool wants_write;
    uint64_t connecting_ns; /* when connecting began */
    uint64_t last_io_ns;    /* when a byte was moved */
    /* Output being written, from `at` of its piece `piece` on; NULL: none. */
    struct grpc_output *output;
    size_t piece, at;
    char *rest; /* what follows there, where the pieces' own bytes may be gone; NULL: it is in the
                   pieces */
    size_t n_rest, rest_at;
};

struct client_channel {
    struct grpc_client_core core;
    sluice_client *client;
    LIST_HEAD(, channel_conn) conns;
    unsigned n_useless;       /* connections in a row that ended without an answer, and failed no
                                 call: the next one waits a little */
    uint64_t next_attempt_ns; /* not before */
    bool has_deferred;        /* there is something to do now */
    char in[IN_BYTES];
};

static void schedule_deferred(struct grpc_client_core *core) {
    CONTAINER_OF(core, struct client_channel, core)->has_deferred = true;
}

static struct grpc_client_stream *stream_of(struct grpc_client_call *call) {
    return (struct grpc_client_stream *)call; /* its first member */
}

static struct str endpoint(const struct client_channel *channel) {
    return client_url_endpoint(&channel->client->url);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void release_output(struct channel_conn *conn) {
    if (conn->output) {
        grpc_output_give(&conn->channel->core.spare_output, conn->output);
        conn->output = NULL;
        free(conn->rest);
        conn->rest = NULL;
        grpc_client_session_on_written(&conn->session);
    }
}

/* The unsent part of the output. Returns: number of pieces. */
static size_t list_unsent(const struct channel_conn *conn, struct iovec out[GRPC_OUTPUT_PIECES]) {
    const struct grpc_output *output = conn->output;
    size_t n = 0, at = conn->at;
    if (conn->rest) {
        out[0] = (struct iovec){conn->rest + conn->rest_at, conn->n_rest - conn->rest_at};
        return 1;
    }
    for (size_t i = conn->piece; i < output->n; i++) {
        out[n++] = (struct iovec){(char *)(uintptr_t)output->pieces[i].data + at,
                                  output->pieces[i].n_bytes - at};
        at = 0;
    }
    return n;
}

static void advance(struct channel_conn *conn, size_t n_bytes) {
    const struct grpc_output *output = conn->output;
    if (conn->rest) {
        conn->rest_at += n_bytes;
        if (conn->rest_at == conn->n_rest) {
            release_output(conn);
        }
        return;
    }
    conn->at += n_bytes;
    while (conn->piece < output->n && conn->at >= output->pieces[conn->piece].n_bytes) {
        conn->at -= output->pieces[conn->piece++].n_bytes;
    }
    if (conn->piece == output->n) {
        release_output(conn);
    }
}

/* Copies the unsent part of the output, because the bytes of a call may go. Returns: false when
 * out of memory. */
static bool keep_output(struct channel_conn *conn) {
    struct iovec pieces[GRPC_OUTPUT_PIECES];
    size_t n_bytes = 0, at = 0;
    if (!conn->output || conn->rest) {
        return true;
    }
    size_t n = list_unsent(conn, pieces);
    for (size_t i = 0; i < n; i++) {
        n_bytes += pieces[i].iov_len;
    }
    char *rest = malloc(n_bytes);
    if (!rest) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(rest + at, pieces[i].iov_base, pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    conn->rest = rest;
    conn->n_rest = n_bytes;
    conn->rest_at = 0;
    return true;
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static bool is_current(const struct channel_conn *conn) {
    return !conn->session.going_away;
}

/* How far the connection came is the reason of the calls that end with it. */
static void set_phase(struct grpc_client_list *list, enum client_phase phase) {
    struct grpc_client_stream *stream;
    TAILQ_FOREACH(stream, list, link) {
        sluice_call *call = stream->call.user;
        if (call) {
            call->phase = phase;
        }
    }
}

static void close_conn(struct channel_conn *conn, const struct error *err) {
    struct client_channel *channel = conn->channel;
    struct grpc_client_session *session = &conn->session;
    const struct error why = *grpc_client_session_close_reason(session, err);
    bool was_answered = session->call_answered;
    /* Waiting calls start on another connection, unless this one shows that there is none. */
    bool is_failure =
        is_current(conn) && (!session->settings_received || (session->n_open > 0 && !was_answered));
    if (conn->is_open) {
        set_phase(&session->streams, conn->io.phase);
        grpc_client_session_close(session, err);
    }
    release_output(conn);
    if (is_failure) {
        set_phase(&channel->core.waiting, conn->io.phase);
        grpc_client_core_fail_waiting(&channel->core, &why, true);
    }
    channel->n_useless = was_answered || is_failure ? 0 : channel->n_useless + 1;
    if (channel->n_useless > 1) {
        channel->next_attempt_ns =
            clock_now_ns() + backoff_wait(FIRST_PAUSE_NS, LONGEST_PAUSE_NS, channel->n_useless - 1);
    }
    client_connection_fini(&conn->io);
    client_tls_transport_free(conn->tls);
    LIST_REMOVE(conn, link);
    free(conn);
    channel->has_deferred = true;
}

static void fail_conn(struct channel_conn *conn, enum status status, const char *why) {
    struct error err;
    (void)error_set(&err, status, "%.*s: %s", STR_ARG(endpoint(conn->channel)), why);
    close_conn(conn, &err);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static enum status init_io(struct channel_conn *conn, struct error *err) {
    const sluice_client *client = conn->channel->client;
    sluice_client_transport tls;
    const sluice_client_transport *transport = client->options.transport;
    conn->io.fd = -1;
    if (!transport && client->tls) {
        conn->tls = client_tls_transport_new(client->tls, &tls);
        transport = &tls;
        if (!conn->tls) {
            return error_no_memory(err, "a connection");
        }
    }
    enum status status = client_connection_init(&conn->io, &client->url, transport, err);
    conn->io.tls = conn->tls;
    conn->io.is_shared = true;
    conn->io.resolving = &client->resolving;
    return status;
}

static void open_session(struct channel_conn *conn) {
    struct error err;
    conn->last_io_ns = clock_now_ns();
    conn->is_ready = false;
    if (grpc_client_session_open(&conn->channel->core, &conn->session, &err) == ST_OK) {
        conn->is_open = true;
    } else {
        close_conn(conn, &err);
    }
}

/* Starts connecting. Out of memory the waiting calls fail. */
static void open_conn(struct client_channel *channel) {
    struct channel_conn *conn = calloc(1, sizeof(*conn));
    struct error err = {0};
    if (!conn) {
        (void)error_no_memory(&err, "a connection");
        grpc_client_core_fail_waiting(&channel->core, &err, true);
        return;
    }
    conn->channel = channel;
    conn->watch.fd = -1;
    LIST_INSERT_HEAD(&channel->conns, conn, link);
    enum status status = init_io(conn, &err);
    if (status == ST_OK) {
        status = client_connection_start(&conn->io, &err);
    }
    conn->connecting_ns = clock_now_ns(); /* without a lookup that blocked */
    if (status != ST_OK) {
        close_conn(conn, &err);
    } else if (!conn->io.connecting) {
        open_session(conn);
    }
}

/* Do calls wait for a connection that is not begun? */
static bool needs_conn(const struct client_channel *channel) {
    bool is_exclusive = channel->client->options.transport != NULL; /* one connection at a time */
    const struct channel_conn *conn;
    if (TAILQ_EMPTY(&channel->core.waiting)) {
        return false;
    }
    LIST_FOREACH(conn, &channel->conns, link) {
        if (is_current(conn) || is_exclusive) {
            return false;
        }
    }
    return true;
}

/* Returns: false when the connection is closed. */
static bool continue_connecting(struct channel_conn *conn) {
    struct error err = {0};
    bool is_due = conn->io.retry_at_ns > 0 && clock_now_ns() >= conn->io.retry_at_ns;
    if (!conn->is_ready && !is_due) {
        return true;
    }
    conn->is_ready = false;
    if (client_connection_continue(&conn->io, &err) != ST_OK) {
        close_conn(conn, &err);
        return false;
    }
    if (!conn->io.connecting) {
        open_session(conn);
    }
    return true;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Returns: where the next bytes are read to: the body of a large message, or the buffer. */
static struct iovec read_place(struct channel_conn *conn) {
    struct iovec place = {NULL, 0};
    place.iov_base = grpc_client_session_read_buffer(&conn->session, &place.iov_len);
    return place.iov_base ? place : (struct iovec){conn->channel->in, IN_BYTES};
}

/* Receives until the socket would block. Returns: false when the connection is closed. */
static bool receive_some(struct channel_conn *conn) {
    struct client_channel *channel = conn->channel;
    struct error err = {0};
    conn->is_ready = false;
    for (int round = 0; round < IO_ROUNDS; round++) {
        struct client_io_result in;
        struct iovec piece = read_place(conn);
        if (client_connection_receive(&conn->io, &piece, 1, &in, &err) != ST_OK) {
            close_conn(conn, &err);
            return false;
        }
        if (in.ended) {
            fail_conn(conn, ST_IO, "the server closed the connection");
            return false;
        }
        if (in.n_bytes > 0) {
            conn->last_io_ns = clock_now_ns();
            grpc_client_session_receive(&conn->session, str_make(piece.iov_base, in.n_bytes));
        }
        conn->wants_write |= in.wants_write;
        /* After a short read a socket is drained; a transport may have more. */
        if (in.n_bytes == 0 || (in.n_bytes < piece.iov_len && !conn->io.transport.read)) {
            return true;
        }
    }
    conn->is_ready = channel->has_deferred = true;
    return true;
}

/* Collects what there is to send. Returns: false when out of memory. */
static bool collect(struct channel_conn *conn) {
    struct grpc_client_core *core = &conn->channel->core;
    if (conn->output || !grpc_client_session_has_output(&conn->session)) {
        return true;
    }
    struct grpc_output *output = grpc_output_take(&core->spare_output);
    if (!output) {
        return false;
    }
    if (!grpc_client_session_collect_output(&conn->session, output)) {
        grpc_output_give(&core->spare_output, output);
        return true;
    }
    conn->output = output;
    conn->piece = conn->at = 0;
    return true;
}

/* Sends the output. Returns: false when the connection is closed. *blocked: the socket takes no
 * more. */
static bool send_output(struct channel_conn *conn, bool *blocked) {
    struct iovec pieces[GRPC_OUTPUT_PIECES];
    struct client_io_result out;
    struct error err = {0};
    size_t n = list_unsent(conn, pieces);
    if (client_connection_send(&conn->io, pieces, n, &out, &err) != ST_OK) {
        close_conn(conn, &err);
        return false;
    }
    *blocked = out.n_bytes == 0;
    conn->wants_write |= out.wants_write;
    if (!*blocked) {
        conn->last_io_ns = clock_now_ns();
        advance(conn, out.n_bytes);
    }
    return true;
}

/* Sends until the socket would block. Returns: false when the connection is closed. */
static bool send_some(struct channel_conn *conn) {
    bool was_established = conn->io.established, blocked = false;
    for (int round = 0; !blocked && round < IO_ROUNDS; round++) {
        if (!collect(conn)) {
            fail_conn(conn, ST_NO_MEMORY, "no memory to send");
            return false;
        }
        if (!conn->output) {
            break;
        }
        if (!send_output(conn, &blocked)) {
            return false;
        }
    }
    /* There is more to send, or calls can start. */
    conn->channel->has_deferred |=
        (conn->output && !blocked) || (!was_established && conn->io.established);
    return true;
}

/* ---- deadlines of a connection --------------------------------------------------------------- */

/* The next deadline to expire; UINT64_MAX: none. `connects`: that of connecting. */
static uint64_t conn_due_ns(const struct channel_conn *conn, bool *connects) {
    const struct client_options *options = &conn->channel->client->options;
    *connects = !conn->session.settings_received;
    if (*connects) {
        return clock_after_ns(conn->connecting_ns, options->connect_timeout_ns);
    }
    return options->idle_timeout_ns > 0 && conn->session.n_open > 0
               ? clock_after_ns(conn->last_io_ns, options->idle_timeout_ns)
               : UINT64_MAX;
}

/* Returns: false when the connection is closed. */
static bool check_deadline(struct channel_conn *conn) {
    const struct client_options *options = &conn->channel->client->options;
    struct error err;
    bool connects;
    if (clock_now_ns() < conn_due_ns(conn, &connects)) {
        return true;
    }
    uint64_t limit_ns = connects ? options->connect_timeout_ns : options->idle_timeout_ns;
    (void)error_set(&err, ST_DEADLINE_EXCEEDED, "timed out %s %.*s after %.3g s%s",
                    !connects               ? "waiting for"
                    : conn->io.is_resolving ? "looking up the address of"
                    : conn->io.established  ? "waiting for the HTTP/2 SETTINGS of"
                                            : "connecting to",
                    STR_ARG(endpoint(conn->channel)), (double)limit_ns / 1e9,
                    connects ? "" : " without a byte");
    close_conn(conn, &err);
    return false;
}

/* ---- a step of a connection ------------------------------------------------------------------ */

static void update_watch(struct channel_conn *conn) {
    const struct client_connection *io = &conn->io;
    uint32_t events = conn->is_open || io->is_resolving ? EPOLLIN : 0u;
    if ((io->connecting && !io->is_resolving) || conn->wants_write) {
        events |= EPOLLOUT;
    }
    const struct client_watched wanted = {.socket = io->fd,
                                          .n_sockets = io->n_sockets,
                                          .is_out = io->connecting && io->retry_at_ns > 0 &&
                                                    !io->is_resolving,
                                          .events = events};
    client_watch_set(&conn->watch, conn->channel->client->epoll_fd, &wanted, conn);
}

/* Moves bytes, and starts waiting calls in between. An idle connection is read first: the server
 * may have closed it. Returns: false when the connection is closed. */
static bool exchange_bytes(struct channel_conn *conn) {
    struct client_channel *channel = conn->channel;
    struct grpc_client_core *core = &channel->core;
    bool may_have_ended = conn->session.n_open == 0 && !TAILQ_EMPTY(&core->waiting);
    conn->wants_write = false;
    if ((conn->is_ready || may_have_ended) && !receive_some(conn)) {
        return false;
    }
    if (conn->io.established && is_current(conn)) {
        grpc_client_core_dispatch(core, &conn->session);
    }
    if (!send_some(conn)) {
        return false;
    }
    if (!conn->output && grpc_client_session_is_done(&conn->session)) {
        fail_conn(conn, ST_IO, "connection closed");
        return false;
    }
    return true;
}

static void step_conn(struct channel_conn *conn) {
    if (!conn->is_open && !continue_connecting(conn)) {
        return;
    }
    if (conn->is_open && !exchange_bytes(conn)) {
        return;
    }
    if (check_deadline(conn)) {
        update_watch(conn);
    }
}

void client_channel_on_event(void *data) {
    struct channel_conn *conn = data;
    conn->is_ready = conn->channel->has_deferred = true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The caller gets its bytes back. */
static void give_bytes_back(struct client_channel *channel, struct grpc_client_stream *stream) {
    struct channel_conn *conn, *next;
    bool is_in_output = stream->out.n_in_write > 0 || stream->out.n_reserved > 0;
    bool kept = grpc_client_stream_give_bytes_back(stream);
    if (!is_in_output) {
        return;
    }
    for (conn = LIST_FIRST(&channel->conns); conn; conn = next) {
        next = LIST_NEXT(conn, link);
        bool is_its = &conn->session == stream->session;
        if (!keep_output(conn) || (is_its && !kept)) {
            fail_conn(conn, ST_NO_MEMORY, "no memory for a cancelled call's bytes");
        }
    }
}

/* The texts of the session's errors, as those of the other protocols. */
static enum status explain(const sluice_call *call, bool began, struct error *err) {
    struct str where = client_url_endpoint(&call->client->url);
    bool is_over = clock_now_ns() >= client_call_deadline_ns(call);
    /* The server has the same deadline, and may notice it first. */
    bool by_server =
        err->status == ST_REFUSED && call->grpc.stream->code == GRPC_CODE_DEADLINE_EXCEEDED;
    if (is_over && (err->status == ST_DEADLINE_EXCEEDED || by_server)) {
        return error_set(err, ST_DEADLINE_EXCEEDED, "timed out %s %.*s after %.3g s",
                         began ? "waiting for" : "connecting to", STR_ARG(where),
                         (double)call->timeout_ns / 1e9);
    }
    if (call->grpc.has_several) {
        return error_set(err, ST_BAD_ANSWER, "the server sent several messages, expected one");
    }
    return err->status;
}

static void on_end(sluice_call *call) {
    struct grpc_client_call *ended = call->grpc.stream;
    struct grpc_client_stream *stream = stream_of(ended);
    struct error err = ended->error;
    bool began = stream->id > 0;
    give_bytes_back(call->client->channel, stream);
    call->sent = began && !ended->not_processed && call->phase == CLIENT_CONNECTED;
    if (began && ended->not_processed && !call->grpc.was_refused && !call->kind->next) {
        call->grpc.was_refused = true;
        call->grpc.stream = NULL;
        if (client_loop_put_back(call, &err) != ST_OK) {
            client_call_fail(call, &err);
            client_loop_add_done(call);
        }
        return;
    }
    client_call_finish(call, explain(call, began, &err), &err);
    call->grpc.stream = NULL;
    client_loop_end(call);
}

static void on_message(sluice_call *call, struct grpc_client_call *stream) {
    if (call->kind->next) { /* the caller asks for the next one */
        call->grpc.message = stream->message;
        client_stream_on_message(call);
        return;
    }
    if (call->grpc.message) {
        call->grpc.has_several = true;
        grpc_message_free(stream->message);
        grpc_client_cancel(stream);
        return;
    }
    call->grpc.message = stream->message;
    grpc_client_read(stream); /* there is no other */
}

static void on_event(struct grpc_client_call *stream, enum grpc_client_event event) {
    sluice_call *call = stream->user; /* NULL: it was cancelled */
    if (event == GRPC_CLIENT_MESSAGE && call) {
        on_message(call, stream);
    } else if (event == GRPC_CLIENT_MESSAGE) {
        grpc_message_free(stream->message);
    } else if (event == GRPC_CLIENT_END && call) {
        on_end(call);
    }
}

/* Each stream is one of several messages, because those outlive it. */
static enum status start_call(struct client_channel *channel, sluice_call *call,
                              struct error *err) {
    const struct client_grpc_request *request = &call->grpc.request;
    struct grpc_field fields[CLIENT_MAX_METADATA];
    struct grpc_client_stream *stream;
    uint64_t now = clock_now_ns(), deadline = client_call_deadline_ns(call);
    uint64_t timeout_ns = deadline == UINT64_MAX ? 0 : deadline > now ? deadline - now : 1;
    for (size_t i = 0; i < call->headers.n; i++) {
        fields[i] = (struct grpc_field){call->headers.items[i].name, call->headers.items[i].value};
    }
    const struct grpc_client_call_options options = {
        .path = request->path,
        .fields = fields,
        .n_fields = call->headers.n,
        .timeout_ns = timeout_ns,
        .on_event = on_event,
        .user = call,
        .streams = true,
        .align_at = call->kind->is_raw ? NULL : v2_grpc_raw_output_offset};
    enum status status = grpc_client_stream_new(&channel->core, &options, &stream, err);
    if (status == ST_OK) {
        call->grpc.stream = &stream->call;
        call->phase = CLIENT_CONNECTED;
        if (!call->kind->sends) {
            grpc_client_send(&stream->call, request->pieces, request->n_pieces, NULL, NULL);
            grpc_client_half_close(&stream->call);
        }
        grpc_client_read(&stream->call);
    }
    return status;
}

void client_channel_start_queued(struct client_channel *channel) {
    sluice_client *client = channel->client;
    while (!TAILQ_EMPTY(&client->queue)) {
        struct error err = {0};
        sluice_call *call = client_loop_take(client);
        if (start_call(channel, call, &err) != ST_OK) {
            client_call_fail(call, &err);
            client_loop_add_done(call);
        }
    }
}

void client_channel_send(sluice_call *call, struct piece message) {
    grpc_client_send(call->grpc.stream, &message, 1, free, (void *)(uintptr_t)message.data);
    call->client->channel->has_deferred = true;
}

void client_channel_half_close(sluice_call *call) {
    grpc_client_half_close(call->grpc.stream);
    call->client->channel->has_deferred = true;
}

void client_channel_read(sluice_call *call) {
    grpc_client_read(call->grpc.stream);
    call->client->channel->has_deferred = true;
}

/* The server is told at once, as far as the socket takes it: the caller may make no other step. */
void client_channel_cancel(sluice_call *call) {
    struct client_channel *channel = call->client->channel;
    struct grpc_client_stream *stream = stream_of(call->grpc.stream);
    struct channel_conn *conn, *next;
    call->sent = stream->id > 0;
    call->grpc.stream = NULL;
    stream->call.user = NULL;
    grpc_client_cancel(&stream->call);
    give_bytes_back(channel, stream);
    for (conn = LIST_FIRST(&channel->conns); conn; conn = next) {
        next = LIST_NEXT(conn, link);
        if (conn->is_open && &conn->session == stream->session) {
            (void)send_some(conn);
        }
    }
}

/* ---- the channel ----------------------------------------------------------------------------- */

void client_channel_run(struct client_channel *channel) {
    client_channel_start_queued(channel);
    grpc_client_core_run_timers(&channel->core, clock_now_ns());
    for (unsigned round = 0; round < MAX_ROUNDS; round++) {
        struct channel_conn *conn, *next;
        channel->has_deferred = false;
        if (needs_conn(channel) && clock_now_ns() >= channel->next_attempt_ns) {
            open_conn(channel);
        }
        for (conn = LIST_FIRST(&channel->conns); conn; conn = next) {
            next = LIST_NEXT(conn, link);
            step_conn(conn);
        }
        grpc_client_core_sweep(&channel->core);
        client_channel_start_queued(channel);
        if (!channel->has_deferred) {
            break;
        }
    }
    (void)body_pool_trim(&channel->core.pool, clock_now_ns());
}

uint64_t client_channel_due_ns(const struct client_channel *channel) {
    uint64_t due = grpc_client_core_next_timer_ns(&channel->core);
    const struct channel_conn *conn;
    if (channel->has_deferred || !TAILQ_EMPTY(&channel->client->queue)) {
        return 0;
    }
    if (needs_conn(channel) && channel->next_attempt_ns < due) {
        due = channel->next_attempt_ns;
    }
    LIST_FOREACH(conn, &channel->conns, link) {
        bool connects;
        uint64_t conn_due = conn_due_ns(conn, &connects);
        uint64_t retry_at = conn->io.retry_at_ns;
        conn_due = retry_at > 0 && retry_at < conn_due ? retry_at : conn_due;
        due = conn_due < due ? conn_due : due;
    }
    return due;
}

enum status client_channel_new(sluice_client *client, struct client_channel **out,
                               struct error *err) {
    const sluice_client_transport *transport = client->options.transport;
    if (transport && (!transport->start || !transport->read || !transport->write)) {
        return error_set(err, ST_BAD_CONFIG, "the transport lacks its start, read or write");
    }
    struct client_channel *channel = calloc(1, sizeof(*channel));
    if (!channel) {
        return error_no_memory(err, "a client");
    }
    channel->client = client;
    LIST_INIT(&channel->conns);
    channel->core.limits.max_message_bytes = client->options.max_answer_bytes;
    channel->core.limits.setting = "max_answer_bytes, --max-answer-size";
    channel->core.authority = client->url.authority;
    channel->core.is_tls = client->url.is_tls;
    channel->core.arenas = client->cache;
    channel->core.schedule_deferred = schedule_deferred;
    enum status status = grpc_client_core_init(&channel->core, err);
    if (status != ST_OK) {
        free(channel);
        return status;
    }
    *out = channel;
    return ST_OK;
}

void client_channel_free(struct client_channel *channel) {
    struct error err;
    if (!channel) {
        return;
    }
    (void)error_set(&err, ST_CANCELLED, "the client was closed");
    while (!LIST_EMPTY(&channel->conns)) {
        close_conn(LIST_FIRST(&channel->conns), &err);
    }
    grpc_client_core_sweep(&channel->core);
    grpc_client_core_fini(&channel->core);
    free(channel);
}

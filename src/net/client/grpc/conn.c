/* A connection of the client, from the name lookup to the closed handle: its phases, its writes and
 * its reads. */
#include "net/client/grpc/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "core/base/compiler.h"
#include "core/base/transition.h"
#include "core/event/clock.h"
#include "net/client/dial.h"

enum {
    MAX_WRITES = 4,          /* per connection and round, so that others get their share */
    MAX_TRIES = 8,           /* per write: a large one often needs several while the peer reads */
    PLAINTEXT_BYTES = 16384, /* of TLS, at a time */
};

/* ---- outputs --------------------------------------------------------------------------------- */

/* The output was sent, or never will be. */
static void output_written(struct grpc_client_conn *conn) {
    grpc_output_give(&conn->client->core.spare_output, conn->output);
    conn->output = NULL;
    grpc_client_session_on_written(&conn->session);
}

/* Advances the write position by `n_bytes` of `output`. */
static void output_advance(struct grpc_client_conn *conn, size_t n_bytes) {
    const struct grpc_output *output = conn->output;
    conn->at += n_bytes;
    while (conn->piece < output->n && conn->at >= output->pieces[conn->piece].n_bytes) {
        conn->at -= output->pieces[conn->piece++].n_bytes;
    }
    if (conn->piece == output->n) {
        output_written(conn);
    }
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* Closes the connection with ST_IO "HOST:PORT: why". */
static void fail_connection(struct grpc_client_conn *conn, const char *why);

static void on_written(uv_write_t *write, int status);

/* ---- the socket: TLS ------------------------------------------------------------------------- */

/* Writes what TLS has for the server, unless a write is in progress. */
static void flush_encrypted(struct grpc_client_conn *conn) {
    size_t n = grpc_tls_pending(&conn->tls);
    if (conn->writing || n == 0) {
        return;
    }
    conn->encrypted = malloc(n);
    if (!conn->encrypted) {
        fail_connection(conn, "out of memory for a write");
        return;
    }
    grpc_tls_take(&conn->tls, conn->encrypted, n);
    uv_buf_t buf = {.base = conn->encrypted, .len = n};
    conn->write.data = conn;
    int rc = uv_write(&conn->write, &conn->uv.stream, &buf, 1, on_written);
    conn->writing = rc == 0;
    if (rc != 0) {
        free(conn->encrypted);
        conn->encrypted = NULL;
        fail_connection(conn, uv_strerror(rc));
    }
}

/* The output counts as written when the last of its encrypted bytes is. */
static void write_encrypted(struct grpc_client_conn *conn) {
    const struct grpc_output *output = conn->output;
    struct error err = {.status = ST_OK};
    for (size_t i = 0; i < output->n && err.status == ST_OK; i++) {
        const struct piece *piece = &output->pieces[i];
        (void)!grpc_tls_write(&conn->tls, str_make(piece->data, piece->n_bytes), &err);
    }
    if (err.status != ST_OK) {
        fail_connection(conn, err.text);
    } else {
        flush_encrypted(conn);
    }
}

/* ---- the socket: bytes out ------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status) {
    struct grpc_client_conn *conn = write->data;
    conn->writing = false;
    free(conn->encrypted);
    conn->encrypted = NULL;
    if (conn->phase != GRPC_CLIENT_CLOSED && conn->client->tls && status == 0) {
        flush_encrypted(conn);
    }
    if (conn->output && !conn->writing) {
        output_written(conn);
    }
    if (status < 0 && conn->phase != GRPC_CLIENT_CLOSED) {
        fail_connection(conn, uv_strerror(status));
    }
    grpc_client_schedule_deferred(conn->client);
}

/* The unsent part of the output. Returns: number of buffers. */
static unsigned list_unsent(const struct grpc_client_conn *conn,
                            uv_buf_t bufs[GRPC_OUTPUT_PIECES]) {
    const struct grpc_output *output = conn->output;
    unsigned n = 0;
    size_t at = conn->at;
    for (size_t i = conn->piece; i < output->n; i++) {
        /* libuv's type has no const; it does not write there. */
        bufs[n++] = (uv_buf_t){.base = (char *)(uintptr_t)output->pieces[i].data + at,
                               .len = output->pieces[i].n_bytes - at};
        at = 0;
    }
    return n;
}

static void write_output(struct grpc_client_conn *conn) {
    uv_buf_t bufs[GRPC_OUTPUT_PIECES];
    int rc = 0;
    if (conn->client->tls) {
        write_encrypted(conn);
        return;
    }
    for (unsigned tries = 0; conn->output && rc >= 0 && tries < MAX_TRIES; tries++) {
        rc = uv_try_write(&conn->uv.stream, bufs, list_unsent(conn, bufs));
        if (rc > 0) {
            output_advance(conn, (size_t)rc);
        }
    }
    if (conn->output && (rc >= 0 || rc == UV_EAGAIN)) {
        conn->write.data = conn;
        rc = uv_write(&conn->write, &conn->uv.stream, bufs, list_unsent(conn, bufs), on_written);
        conn->writing = rc == 0;
    }
    if (rc < 0 && rc != UV_EAGAIN) {
        fail_connection(conn, uv_strerror(rc));
    }
}

/* ---- collecting and writing ------------------------------------------------------------------ */

/* Collects and sends once. Returns: whether to continue. */
static bool collect_and_write(struct grpc_client_conn *conn) {
    struct grpc_client_core *core = &conn->client->core;
    struct grpc_output *output = grpc_output_take(&core->spare_output);
    if (!output) {
        fail_connection(conn, "out of memory for a write");
        return false;
    }
    if (!grpc_client_session_collect_output(&conn->session, output)) {
        grpc_output_give(&core->spare_output, output);
        return false;
    }
    conn->output = output;
    conn->piece = conn->at = 0;
    write_output(conn);
    return !conn->output;
}

void grpc_client_conn_flush(struct grpc_client_conn *conn) {
    struct grpc_client_session *session = &conn->session;
    unsigned n = 0;
    while (conn->phase == GRPC_CLIENT_CONNECTED && n++ < MAX_WRITES && !conn->output &&
           grpc_client_session_has_output(session) && collect_and_write(conn)) {
    }
    if (conn->phase != GRPC_CLIENT_CONNECTED || conn->output) {
        return;
    }
    if (grpc_client_session_has_output(session)) {
        grpc_client_schedule_deferred(conn->client);
    } else if (grpc_client_session_is_done(session)) {
        fail_connection(conn, "connection closed");
    }
}

enum { KEEPALIVE_S = 60 }; /* TCP keepalive: detects a lost machine */

/* ---- phases ---------------------------------------------------------------------------------- */

#define TO(phase) STATE_SET(GRPC_CLIENT_##phase)

static void set_phase(struct grpc_client_conn *conn, enum grpc_client_phase phase) {
    static const uint32_t NEXT[] = {
        [GRPC_CLIENT_RESOLVING] = TO(RESOLVING) | TO(CONNECTING) | TO(CLOSED),
        [GRPC_CLIENT_CONNECTING] = TO(CONNECTING) | TO(HANDSHAKE) | TO(CONNECTED) | TO(CLOSED),
        [GRPC_CLIENT_HANDSHAKE] = TO(CONNECTED) | TO(CLOSED),
        [GRPC_CLIENT_CONNECTED] = TO(CLOSED),
        [GRPC_CLIENT_CLOSED] = 0,
    };
    assert(transition_is_legal(NEXT, conn->phase, phase));
    conn->phase = (uint8_t)phase;
}

bool grpc_client_conn_is_usable(const struct grpc_client_conn *conn) {
    return conn->phase < GRPC_CLIENT_CONNECTED ||
           (conn->phase == GRPC_CLIENT_CONNECTED && !conn->session.going_away);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle);

/* A connection that answered nothing delays the next attempt. */
static bool is_failure(const struct grpc_client_conn *conn) {
    const struct grpc_client_session *session = &conn->session;
    return !conn->client->stopping &&
           (!session->settings_received ||
            (conn->used && !session->call_answered && !TAILQ_EMPTY(&session->streams)));
}

void grpc_client_conn_close(struct grpc_client_conn *conn, const struct error *err) {
    struct grpc_client *client = conn->client;
    if (conn->phase == GRPC_CLIENT_CLOSED) {
        return;
    }
    if (is_failure(conn)) {
        grpc_client_start_backoff(client, grpc_client_session_close_reason(&conn->session, err));
    }
    set_phase(conn, GRPC_CLIENT_CLOSED);
    timer_stop(worker_timers(client->worker), &conn->timer);
    grpc_client_session_close(&conn->session, err);
    if (conn->output && !conn->writing) {
        output_written(conn);
    }
    if (conn->resolving) {
        uv_cancel((uv_req_t *)&conn->lookup);
    }
    if (conn->has_handle && !uv_is_closing(&conn->uv.handle)) {
        uv_close(&conn->uv.handle, on_closed);
    }
    grpc_client_schedule_deferred(client);
}

static void fail_connection(struct grpc_client_conn *conn, const char *why) {
    struct error err;
    error_set(&err, ST_IO, "%s: %s", conn->client->target.text, why);
    grpc_client_conn_close(conn, &err);
}

bool grpc_client_conn_can_free(const struct grpc_client_conn *conn) {
    return conn->phase == GRPC_CLIENT_CLOSED && !conn->has_handle && !conn->resolving;
}

void grpc_client_conn_free(struct grpc_client_conn *conn) {
    assert(!conn->output && !conn->encrypted);
    grpc_tls_fini(&conn->tls);
    if (conn->addresses) {
        uv_freeaddrinfo(conn->addresses);
    }
    free(conn);
}

/* ---- bytes in -------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    const struct grpc_client_conn *conn = handle->data;
    (void)suggested;
    *buf = uv_buf_init(conn->client->in, GRPC_CLIENT_READ_BYTES);
}

static void open_session(struct grpc_client_conn *conn) {
    struct error err;
    set_phase(conn, GRPC_CLIENT_CONNECTED); /* calls can start */
    if (grpc_client_session_open(&conn->client->core, &conn->session, &err) != ST_OK) {
        grpc_client_conn_close(conn, &err);
    }
}

/* Writes what it has to say, an alert too. */
static void continue_handshake(struct grpc_client_conn *conn) {
    struct error err;
    bool done = false;
    enum status st = grpc_tls_handshake(&conn->tls, &done, &err);
    flush_encrypted(conn);
    if (conn->phase == GRPC_CLIENT_CLOSED) {
        return;
    }
    if (st != ST_OK) {
        fail_connection(conn, err.text);
    } else if (done) {
        open_session(conn);
        grpc_client_schedule_deferred(conn->client);
    }
}

static void receive_encrypted(struct grpc_client_conn *conn, struct str bytes) {
    char data[PLAINTEXT_BYTES];
    struct error err;
    size_t n = 1;
    if (!grpc_tls_receive(&conn->tls, bytes)) {
        fail_connection(conn, "out of memory for what the server sent");
    } else if (conn->phase == GRPC_CLIENT_HANDSHAKE) {
        continue_handshake(conn);
    }
    while (conn->phase == GRPC_CLIENT_CONNECTED && n > 0) {
        if (grpc_tls_read(&conn->tls, data, sizeof(data), &n, &err) != ST_OK) {
            fail_connection(conn, err.text);
        } else if (n > 0) {
            grpc_client_session_receive(&conn->session, str_make(data, n));
        }
    }
    if (conn->phase == GRPC_CLIENT_CONNECTED) {
        flush_encrypted(conn); /* messages of TLS itself */
    }
}

static void on_end(struct grpc_client_conn *conn, int status) {
    struct error err;
    if (status == UV_EOF && conn->phase == GRPC_CLIENT_HANDSHAKE) {
        grpc_tls_explain_end(&conn->tls, &err);
        fail_connection(conn, err.text);
    } else {
        fail_connection(conn, status == UV_EOF ? "the server closed the connection"
                                               : uv_strerror(status));
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct grpc_client_conn *conn = stream->data;
    if (conn->phase == GRPC_CLIENT_CLOSED || n == 0) {
        return;
    }
    if (n < 0) {
        on_end(conn, (int)n);
    } else if (conn->client->tls) {
        receive_encrypted(conn, str_make(buf->base, (size_t)n));
    } else {
        grpc_client_session_receive(&conn->session, str_make(buf->base, (size_t)n));
    }
    if (conn->session.settings_received) {
        timer_stop(worker_timers(conn->client->worker), &conn->timer);
    }
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void on_connected(uv_connect_t *connect, int status);

/* Returns: libuv's error, or 0. */
static int connect_to(struct grpc_client_conn *conn, const struct sockaddr *to) {
    uv_loop_t *loop = worker_loop(conn->client->worker);
    int rc = 0;
    if (to->sa_family == AF_UNIX) {
        rc = uv_pipe_init(loop, &conn->uv.pipe, 0);
    } else {
        rc = uv_tcp_init(loop, &conn->uv.tcp);
    }
    if (rc != 0) {
        return rc;
    }
    conn->has_handle = true;
    conn->uv.handle.data = conn;
    conn->connect.data = conn;
    if (to->sa_family == AF_UNIX) {
        uv_pipe_connect(&conn->connect, &conn->uv.pipe, ((const struct sockaddr_un *)to)->sun_path,
                        on_connected);
        return 0;
    }
    uv_tcp_nodelay(&conn->uv.tcp, 1);
    return uv_tcp_connect(&conn->connect, &conn->uv.tcp, to, on_connected);
}

/* Tries the next address, if there is one, once the handle is closed. */
static void try_next_address(struct grpc_client_conn *conn, int why) {
    struct error err;
    conn->next_address = conn->next_address ? conn->next_address->ai_next : NULL;
    if (conn->next_address && conn->has_handle) {
        uv_close(&conn->uv.handle, on_closed);
        return;
    }
    /* without a handle: it could not be opened */
    error_set(&err, dial_error_is_local(why) ? ST_OVERLOADED : ST_IO, "%s: no connection: %s",
              conn->client->target.text, uv_strerror(why));
    grpc_client_conn_close(conn, &err);
}

static void start_handshake(struct grpc_client_conn *conn) {
    const struct grpc_client *client = conn->client;
    struct error err;
    set_phase(conn, GRPC_CLIENT_HANDSHAKE);
    if (grpc_tls_init(&conn->tls, client->tls, client->target.host, &err) != ST_OK) {
        fail_connection(conn, err.text);
    } else {
        continue_handshake(conn);
    }
}

static void on_connected(uv_connect_t *connect, int status) {
    struct grpc_client_conn *conn = connect->data;
    if (conn->phase == GRPC_CLIENT_CLOSED || uv_is_closing(&conn->uv.handle)) {
        return;
    }
    if (status == 0) {
        status = uv_read_start(&conn->uv.stream, on_alloc, on_read);
    }
    if (status != 0) {
        try_next_address(conn, status);
        return;
    }
    if (conn->uv.handle.type == UV_TCP) {
        uv_tcp_keepalive(&conn->uv.tcp, 1, KEEPALIVE_S);
    }
    if (conn->client->tls) {
        start_handshake(conn);
    } else {
        open_session(conn);
    }
}

static void on_closed(uv_handle_t *handle) {
    struct grpc_client_conn *conn = handle->data;
    conn->has_handle = false;
    if (conn->phase == GRPC_CLIENT_CONNECTING) {
        int rc = connect_to(conn, conn->next_address->ai_addr);
        if (rc != 0) {
            try_next_address(conn, rc);
        }
    }
    grpc_client_schedule_deferred(conn->client);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void on_resolved(uv_getaddrinfo_t *lookup, int status, struct addrinfo *addresses) {
    struct grpc_client_conn *conn = lookup->data;
    char text[ERROR_TEXT_BYTES];
    conn->resolving = false;
    conn->addresses = addresses;
    conn->next_address = addresses;
    grpc_client_schedule_deferred(conn->client);
    if (conn->phase == GRPC_CLIENT_CLOSED) {
        return;
    }
    if (status != 0) {
        snprintf(text, sizeof(text), "name lookup failed: %s", uv_strerror(status));
        fail_connection(conn, text);
        return;
    }
    set_phase(conn, GRPC_CLIENT_CONNECTING);
    int rc = connect_to(conn, addresses->ai_addr);
    if (rc != 0) {
        try_next_address(conn, rc);
    }
}

/* Returns: libuv's error, or 0. */
static int resolve_name(struct grpc_client_conn *conn) {
    const struct grpc_client_target *target = &conn->client->target;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    conn->lookup.data = conn;
    int rc = uv_getaddrinfo(worker_loop(conn->client->worker), &conn->lookup, on_resolved,
                            target->host, target->port, &hints);
    conn->resolving = rc == 0;
    return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void on_connect_timeout(struct timer *timer) {
    static const char *const WORDS[] = {
        [GRPC_CLIENT_RESOLVING] = "name lookup timed out",
        [GRPC_CLIENT_CONNECTING] = "connection timed out",
        [GRPC_CLIENT_HANDSHAKE] = "TLS handshake timed out",
        [GRPC_CLIENT_CONNECTED] = "timed out waiting for the server's HTTP/2 SETTINGS",
    };
    struct grpc_client_conn *conn = CONTAINER_OF(timer, struct grpc_client_conn, timer);
    assert(conn->phase != GRPC_CLIENT_CLOSED);
    fail_connection(conn, WORDS[conn->phase]);
}

bool grpc_client_conn_new(struct grpc_client *client) {
    const struct address *address = &client->target.address;
    struct grpc_client_conn *conn = calloc(1, sizeof(*conn));
    struct error err;
    if (!conn) {
        error_no_memory(&err, "a connection");
        grpc_client_start_backoff(client, &err);
        return false;
    }
    conn->client = client;
    conn->session.core = &client->core;
    conn->timer.on_expire = on_connect_timeout;
    LIST_INSERT_HEAD(&client->conns, conn, link);
    uint64_t due_ns = clock_now_ns() + client->core.limits.connect_timeout_ns;
    timer_start(worker_timers(client->worker), &conn->timer, due_ns);
    int rc = 0;
    if (address->len > 0) {
        set_phase(conn, GRPC_CLIENT_CONNECTING);
        rc = connect_to(conn, (const struct sockaddr *)&address->storage);
    } else {
        rc = resolve_name(conn);
    }
    if (rc != 0) {
        try_next_address(conn, rc);
    }
    return true;
}

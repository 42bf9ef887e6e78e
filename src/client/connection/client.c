/* One exchange over a connection, in steps that do not block: connecting, sending, receiving,
 * deadlines; and the blocking call, a loop of step and poll. */
#include "client/connection/client.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>

#include "client/connection/connection.h"
#include "core/event/clock.h"

enum client_state {
    CLIENT_IDLE,       /* no exchange is under way */
    CLIENT_STARTED,    /* an exchange is started; no step was made */
    CLIENT_CONNECTING, /* the socket is not connected yet */
    CLIENT_EXCHANGING, /* bytes move */
};

struct client {
    struct arena *arena; /* of the URL */
    struct client_url url;
    struct client_options options;
    struct client_tls_transport *tls; /* NULL: none */
    struct client_connection connection;
    struct session *session;   /* one of these two */
    struct http_session *http; /* NULL: the URL is for MIP */
    struct mip_session *mip;   /* NULL: the URL is for HTTP */
    enum client_state state;
    bool reused; /* the connection was used by an earlier exchange */
    bool wants_read, wants_write;
    bool step_again; /* the last step stopped at STEP_ROUNDS */
    bool has_sent;   /* bytes of the request were sent, on this connection or one before */
    uint64_t timeout_ns;
    uint64_t started_ns;
    uint64_t connecting_ns;  /* when connecting began */
    uint64_t last_io_ns;     /* when a byte was moved, or the connection was made or checked */
    struct error send_error; /* why the rest of the request can't be sent; ST_OK: it can */
};

/* ---- new and free ---------------------------------------------------------------------------- */

static enum status check_transport(const struct client *client, struct error *err) {
    const sluice_client_transport *transport = client->options.transport;
    if (client->url.protocol == CLIENT_GRPC) {
        return error_set(err, ST_UNSUPPORTED,
                         "\"%.*s\": gRPC is not one exchange at a time; the same server's HTTP "
                         "is at http://HOST:PORT",
                         STR_ARG(client->url.text));
    }
    if (!transport && client->url.is_tls && !client->options.tls) {
        return error_set(err, ST_BAD_CONFIG, "\"%.*s\": the client has no settings for TLS",
                         STR_ARG(client->url.text));
    }
    if (transport && (!transport->start || !transport->read || !transport->write)) {
        return error_set(err, ST_BAD_CONFIG, "the transport lacks its start, read or write");
    }
    return ST_OK;
}

static enum status make_session(struct client *client, struct error *err) {
    uint64_t max_bytes = client->options.max_answer_bytes;
    if (client->url.protocol == CLIENT_HTTP) {
        client->http = http_session_new(max_bytes);
        client->session = client->http ? http_session_base(client->http) : NULL;
    } else {
        client->mip = mip_session_new(max_bytes);
        client->session = client->mip ? mip_session_base(client->mip) : NULL;
    }
    return client->session ? ST_OK : error_no_memory(err, "a client");
}

static enum status init_connection(struct client *client, struct error *err) {
    sluice_client_transport functions;
    const sluice_client_transport *transport = client->options.transport;
    if (!transport && client->url.is_tls) {
        client->tls = client_tls_transport_new(client->options.tls, &functions);
        transport = &functions;
        if (!client->tls) {
            return error_no_memory(err, "a client");
        }
    }
    enum status status = client_connection_init(&client->connection, &client->url, transport, err);
    client->connection.tls = client->tls;
    client->connection.resolving = client->options.resolving;
    return status;
}

enum status client_new(const struct client_options *options, struct client **out,
                       struct error *err) {
    struct client *client = calloc(1, sizeof(*client));
    *out = NULL;
    if (!client) {
        return error_no_memory(err, "a client");
    }
    client->options = *options;
    client->connection.fd = -1;
    client->arena = arena_new(NULL, 0);
    enum status status = client->arena
                             ? client_url_parse(client->arena, options->url, &client->url, err)
                             : error_no_memory(err, "a client");
    if (status == ST_OK) {
        status = check_transport(client, err);
    }
    if (status == ST_OK) {
        status = init_connection(client, err);
    }
    if (status == ST_OK) {
        status = make_session(client, err);
    }
    if (status == ST_OK) {
        *out = client;
    } else {
        client_free(client);
    }
    return status;
}

void client_free(struct client *client) {
    if (!client) {
        return;
    }
    client_connection_fini(&client->connection);
    http_session_free(client->http);
    mip_session_free(client->mip);
    arena_free(client->arena);
    client_tls_transport_free(client->tls);
    free(client);
}

const struct client_url *client_url(const struct client *client) {
    return &client->url;
}

struct http_session *client_http(const struct client *client) {
    assert(client->http);
    return client->http;
}

struct mip_session *client_mip(const struct client *client) {
    assert(client->mip);
    return client->mip;
}

enum client_phase client_phase(const struct client *client) {
    return client->connection.phase;
}

bool client_has_sent(const struct client *client) {
    return client->has_sent;
}

enum {
    OUTPUT_PIECES = 256,
    STEP_ROUNDS = 64, /* transfers in each direction per step; then the caller's event loop runs */
};

/* The only setter of the state. */
static void set_state(struct client *client, enum client_state state) {
    assert(state == CLIENT_IDLE || state > client->state ||
           (state == CLIENT_STARTED && client->state == CLIENT_EXCHANGING));
    client->state = state;
}

void client_start(struct client *client, uint64_t timeout_ns) {
    client_start_since(client, clock_now_ns(), timeout_ns);
}

void client_start_since(struct client *client, uint64_t started_ns, uint64_t timeout_ns) {
    assert(client->state == CLIENT_IDLE);
    client->timeout_ns = timeout_ns > 0 ? timeout_ns : client->options.timeout_ns;
    client->started_ns = started_ns;
    client->step_again = client->has_sent = false;
    client->send_error.status = ST_OK;
    set_state(client, CLIENT_STARTED);
}

void client_set_paused(struct client *client, bool paused) {
    if (client->session->paused && !paused && client->state == CLIENT_EXCHANGING) {
        client->last_io_ns = clock_now_ns();
        client->step_again = true;
    }
    client->session->paused = paused;
}

void client_cancel(struct client *client) {
    client_connection_close(&client->connection);
    set_state(client, CLIENT_IDLE);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void begin_exchange(struct client *client) {
    client->last_io_ns = clock_now_ns();
    set_state(client, CLIENT_EXCHANGING);
}

/* Reuses the connection, or makes a new one. */
static enum status begin_connection(struct client *client, struct error *err) {
    client->reused = client_connection_is_reusable(&client->connection);
    if (client->reused) {
        begin_exchange(client);
        return ST_OK;
    }
    enum status status = client_connection_start(&client->connection, err);
    client->connecting_ns = clock_now_ns(); /* without a lookup that blocked */
    set_state(client, CLIENT_CONNECTING);
    return status;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Sends until the socket would block. */
static enum status send_some(struct client *client, bool *moved, struct error *err) {
    const struct session_ops *ops = client->session->ops;
    struct iovec pieces[OUTPUT_PIECES];
    size_t n_pieces;
    for (int round = 0; (n_pieces = ops->output(client->session, pieces, OUTPUT_PIECES)) > 0;
         round++) {
        struct client_io_result out;
        struct error why = {0};
        if (round == STEP_ROUNDS) {
            client->step_again = true;
            return ST_OK;
        }
        if (client_connection_send(&client->connection, pieces, n_pieces, &out, &why) != ST_OK) {
            if (client->connection.transport.read) {
                return error_set(err, why.status, "%s", why.text);
            }
            /* over a socket an answer with the reason may still come */
            client->send_error = why;
            ops->drop_output(client->session);
            return ST_OK;
        }
        if (out.n_bytes == 0) {
            client->wants_read |= out.wants_read;
            client->wants_write |= out.wants_write;
            return ST_OK;
        }
        *moved = client->has_sent = true;
        ops->sent(client->session, out.n_bytes);
    }
    return ST_OK;
}

static size_t pieces_n_bytes(const struct iovec *pieces, size_t n_pieces) {
    size_t n = 0;
    for (size_t i = 0; i < n_pieces; i++) {
        n += pieces[i].iov_len;
    }
    return n;
}

/* Receiving failed: the error of sending explains it better. */
static enum status receive_failed(const struct client *client, enum status status,
                                  struct error *err) {
    if (client->session->answered) {
        if (status == ST_IO && err) {
            err->status = ST_BAD_ANSWER;
        }
        return status == ST_IO ? ST_BAD_ANSWER : status;
    }
    if (client->send_error.status != ST_OK) {
        return error_set(err, ST_IO, "%s", client->send_error.text);
    }
    return status;
}

/* Receives until the socket would block. */
static enum status receive_some(struct client *client, bool *moved, struct error *err) {
    struct session *session = client->session;
    for (int round = 0; !session->done && !session->paused; round++) {
        struct iovec pieces[SESSION_MAX_INPUT_PIECES];
        size_t n_pieces = session->ops->input(session, pieces);
        struct client_io_result in;
        if (round == STEP_ROUNDS) {
            client->step_again = true;
            return ST_OK;
        }
        enum status status =
            client_connection_receive(&client->connection, pieces, n_pieces, &in, err);
        if (status == ST_OK && in.ended) {
            status = session->ops->closed(session, err);
        } else if (status == ST_OK && in.n_bytes > 0) {
            *moved = true;
            status = session->ops->received(session, in.n_bytes, err);
        }
        if (status != ST_OK) {
            return receive_failed(client, status, err);
        }
        client->wants_read |= in.wants_read;
        client->wants_write |= in.wants_write;
        /* After a short read a socket is drained; a transport may have more. */
        bool emptied = in.n_bytes < pieces_n_bytes(pieces, n_pieces);
        if (in.n_bytes == 0 || (emptied && !client->connection.transport.read)) {
            client->wants_read |= !in.wants_write;
            return ST_OK;
        }
    }
    return ST_OK;
}

static bool is_sent(const struct client *client) {
    struct iovec piece;
    return client->session->ops->output(client->session, &piece, 1) == 0;
}

static enum status exchange_bytes(struct client *client, struct error *err) {
    bool moved = false;
    client->wants_read = client->wants_write = false;
    enum status status = send_some(client, &moved, err);
    if (status != ST_OK) {
        return status;
    }
    if (moved && is_sent(client) && !client->connection.transport.read) {
        /* The request was sent just now, so no answer can have arrived. */
        client->wants_read = !client->session->paused;
    } else {
        status = receive_some(client, &moved, err);
    }
    if (moved) {
        client->last_io_ns = clock_now_ns();
    }
    return status;
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* The next deadline to expire. Not when idle. */
enum client_deadline { CLIENT_DEADLINE_TOTAL, CLIENT_DEADLINE_CONNECT, CLIENT_DEADLINE_IDLE };
static uint64_t next_deadline_ns(const struct client *client, enum client_deadline *which) {
    const struct client_options *options = &client->options;
    uint64_t deadline = clock_after_ns(client->started_ns, client->timeout_ns), other = UINT64_MAX;
    enum client_deadline kind = CLIENT_DEADLINE_TOTAL;
    if (client->state == CLIENT_CONNECTING ||
        (client->state == CLIENT_EXCHANGING && !client->connection.established)) {
        kind = CLIENT_DEADLINE_CONNECT;
        other = clock_after_ns(client->connecting_ns, options->connect_timeout_ns);
    } else if (client->state == CLIENT_EXCHANGING && options->idle_timeout_ns > 0 &&
               !client->session->paused) {
        kind = CLIENT_DEADLINE_IDLE;
        other = clock_after_ns(client->last_io_ns, options->idle_timeout_ns);
    }
    *which = other < deadline ? kind : CLIENT_DEADLINE_TOTAL;
    return other < deadline ? other : deadline;
}

static enum status timed_out(const struct client *client, enum client_deadline which,
                             struct error *err) {
    struct str where = client_url_endpoint(&client->url);
    const char *doing = client->connection.is_resolving   ? "looking up the address of"
                        : !client->connection.established ? "connecting to"
                        : !is_sent(client)                ? "sending to"
                        : client->session->answered       ? "reading the answer of"
                                                          : "waiting for";
    uint64_t limit_ns = which == CLIENT_DEADLINE_CONNECT ? client->options.connect_timeout_ns
                        : which == CLIENT_DEADLINE_IDLE  ? client->options.idle_timeout_ns
                                                         : client->timeout_ns;
    return error_set(err, ST_DEADLINE_EXCEEDED, "timed out %s %.*s after %.3g s%s", doing,
                     STR_ARG(where), (double)limit_ns / 1e9,
                     which == CLIENT_DEADLINE_IDLE ? " without a byte" : "");
}

static enum status check_deadlines(struct client *client, struct error *err) {
    enum client_deadline which;
    if (clock_now_ns() < next_deadline_ns(client, &which)) {
        return ST_OK;
    }
    if (client->session->outcome_known) { /* the rest of the payload is not needed */
        return client->session->ops->closed(client->session, err);
    }
    return timed_out(client, which, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static enum status advance(struct client *client, struct error *err) {
    enum status status = ST_OK;
    client->step_again = false;
    if (client->state == CLIENT_STARTED) {
        status = begin_connection(client, err);
    }
    if (status == ST_OK && client->state == CLIENT_CONNECTING) {
        if (client->connection.connecting) {
            status = client_connection_continue(&client->connection, err);
        }
        if (status == ST_OK && !client->connection.connecting) {
            begin_exchange(client);
        }
    }
    if (status == ST_OK && client->state == CLIENT_EXCHANGING) {
        status = exchange_bytes(client, err);
    }
    return status;
}

/* Only if no byte of an answer came on a connection that was used before: the server may have
 * closed it before it read the request. */
static bool may_retry(const struct client *client, enum status status) {
    return status == ST_IO && client->state == CLIENT_EXCHANGING && client->reused &&
           !client->session->answered;
}

enum status client_step(struct client *client, bool *done, struct error *err) {
    assert(client->state != CLIENT_IDLE);
    enum status status = advance(client, err);
    if (may_retry(client, status)) {
        client_connection_close(&client->connection);
        client->session->ops->restart(client->session);
        client->send_error.status = ST_OK;
        set_state(client, CLIENT_STARTED);
        status = advance(client, err);
    }
    if (status == ST_OK && !client->session->done) {
        status = check_deadlines(client, err);
    }
    *done = status == ST_OK && client->session->done;
    if (status != ST_OK || (*done && !client->session->reusable)) {
        client_connection_close(&client->connection);
    }
    if (status != ST_OK || *done) {
        set_state(client, CLIENT_IDLE);
    }
    return status;
}

/* ---- waiting --------------------------------------------------------------------------------- */

uint64_t client_due_ns(const struct client *client) {
    enum client_deadline which;
    uint64_t retry_at = client->connection.retry_at_ns;
    if (client->state == CLIENT_IDLE) {
        return UINT64_MAX;
    }
    if (client->state == CLIENT_STARTED || client->step_again) {
        return 0;
    }
    uint64_t deadline = next_deadline_ns(client, &which);
    return retry_at > 0 && retry_at < deadline ? retry_at : deadline;
}

int client_socket(const struct client *client, uint64_t *n_sockets) {
    *n_sockets = client->connection.n_sockets;
    return client->connection.fd;
}

void client_check_idle(struct client *client) {
    assert(client->state == CLIENT_IDLE);
    if (!client_connection_is_reusable(&client->connection)) {
        client_connection_close(&client->connection);
    }
}

void client_wait(const struct client *client, struct client_waiting *out) {
    *out = (struct client_waiting){.fd = -1, .timeout_ns = UINT64_MAX};
    if (client->state == CLIENT_IDLE) {
        return;
    }
    uint64_t now = clock_now_ns(), until = client_due_ns(client);
    out->timeout_ns = until > now ? until - now : 0;
    bool is_resolving = client->connection.is_resolving;
    if (client->state == CLIENT_CONNECTING &&
        (is_resolving || client->connection.retry_at_ns == 0)) {
        out->fd = client->connection.fd;
        out->read = is_resolving;
        out->write = !is_resolving;
    } else if (client->state == CLIENT_EXCHANGING) {
        out->fd = client->connection.fd;
        out->read = client->wants_read;
        out->write = client->wants_write;
    }
}

static void poll_for(const struct client_waiting *waiting) {
    enum { HOUR_MS = 3600000, NS_PER_MS = 1000000 };
    struct pollfd fd = {.fd = waiting->fd,
                        .events =
                            (short)((waiting->read ? POLLIN : 0) | (waiting->write ? POLLOUT : 0))};
    uint64_t ms = waiting->timeout_ns / NS_PER_MS + (waiting->timeout_ns % NS_PER_MS > 0);
    (void)poll(&fd, 1, ms > HOUR_MS ? HOUR_MS : (int)ms); /* waking up early is harmless */
}

enum status client_run(struct client *client, struct error *err) {
    for (;;) {
        bool done;
        struct client_waiting waiting;
        enum status status = client_step(client, &done, err);
        if (status != ST_OK || done) {
            return status;
        }
        client_wait(client, &waiting);
        poll_for(&waiting);
    }
}

enum status client_exchange(struct client *client, struct http_message message, uint64_t timeout_ns,
                            struct error *err) {
    http_session_begin(client_http(client), message);
    client_start(client, timeout_ns);
    return client_run(client, err);
}

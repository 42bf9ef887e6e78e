/* TLS of a server connection: handshake, decryption before the protocol gets the bytes, encryption
 * of its writes, and the log and counters of both. Failures that matter to an operator are
 * logged as info; disconnects of scanners and probes as debug. */
#include "net/server/tls/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "net/server/conn_limit.h"
#include "net/server/conn_write.h"
#include "net/transport/tls/server.h"

static_assert((int)METRIC_TLS_FAILURES_PLAINTEXT + (int)TLS_FAILURE_MEMORY ==
                  (int)METRIC_TLS_FAILURES_MEMORY,
              "the rows of the counter are in the order of enum tls_failure");

static void log_limited(const struct net_conn *conn, enum log_level level, const char *event,
                        const char *why) {
    struct log_limit *limit = &conn->server_worker->tls->log;
    char peer[ADDRESS_TEXT_BYTES];
    if (!log_enabled(level) || !log_limit_allow(limit)) {
        return;
    }
    const struct log_field fields[] = {
        LOG_CSTR("peer", net_conn_peer(conn, peer)),
        LOG_CSTR("listener", conn->listen_endpoint->text),
        LOG_CSTR("reason", why),
        LOG_U64("left_out", limit->n_suppressed),
    };
    log_write(level, event, fields, limit->n_suppressed > 0 ? 4 : 3);
    limit->n_suppressed = 0;
}

static void net_tls_log_failure(const struct net_conn *conn, enum tls_failure failure,
                                const char *why) {
    enum log_level level = failure == TLS_FAILURE_DISCONNECTED ? LOG_DEBUG : LOG_INFO;
    metric_add((enum metric)((int)METRIC_TLS_FAILURES_PLAINTEXT + (int)failure), 1);
    log_limited(conn, level, "TLS handshake failed", why);
}

static void net_tls_log_success(const struct net_conn *conn) {
    const struct tls_session *session = &conn->tls->session;
    char peer[ADDRESS_TEXT_BYTES];
    metric_add(METRIC_TLS_HANDSHAKES_TOTAL, 1);
    if (tls_session_is_resumed(session)) {
        metric_add(METRIC_TLS_RESUMPTIONS_TOTAL, 1);
    }
    if (log_enabled(LOG_DEBUG)) {
        log_event(LOG_DEBUG, "TLS handshake completed", LOG_CSTR("peer", net_conn_peer(conn, peer)),
                  LOG_CSTR("version", tls_session_version(session)),
                  LOG_CSTR("cipher", tls_session_cipher(session)),
                  LOG_CSTR("session", tls_session_is_resumed(session) ? "resumed" : "new"));
    }
}

enum {
    MAX_ENCRYPTED_WRITES = 16
}; /* encrypted copies queued: a peer that requests more without reading is closed */

/* Encrypted bytes that the socket did not take at once. */
struct encrypted_write {
    uv_write_t write;
    struct net_conn *conn;
    size_t n_bytes, cap;
    char data[];
};

/* ---- records --------------------------------------------------------------------------------- */

/* The plaintext of the next record: in place, or, where that would make small records, coalesced in
 * `place`. Does not move the cursor. */
static struct str next_record(struct write_cursor from, char *place) {
    size_t left = from.bufs->len - from.at, n = 0;
    if (left >= TLS_RECORD_BYTES || from.n == 1) {
        return str_make(from.bufs->base + from.at,
                        left < TLS_RECORD_BYTES ? left : TLS_RECORD_BYTES);
    }
    while (from.n > 0 && n < TLS_RECORD_BYTES) {
        left = from.bufs->len - from.at;
        size_t piece = left < TLS_RECORD_BYTES - n ? left : TLS_RECORD_BYTES - n;
        memcpy(place + n, from.bufs->base + from.at, piece);
        n += piece;
        write_cursor_advance(&from, piece);
    }
    return str_make(place, n);
}

/* Encrypts as many records as fit. Returns: plaintext bytes, or -1 when the session has failed. */
static ssize_t encrypt_records(struct net_conn *conn, struct tls_io *io,
                               struct write_cursor *from) {
    size_t n = 0;
    while (from->n > 0) {
        struct str record = next_record(*from, conn->server_worker->tls->gathered);
        enum tls_result result = tls_session_write(&conn->tls->session, io, record);
        if (result == TLS_WANT_WRITE) {
            break;
        }
        if (result != TLS_DONE) {
            return -1;
        }
        write_cursor_advance(from, record.len);
        n += record.len;
    }
    return (ssize_t)n;
}

/* ---- encrypted bytes to the socket ----------------------------------------------------------- */

static struct encrypted_write *encrypted_new(struct net_conn *conn, size_t cap) {
    struct encrypted_write *encrypted = malloc(sizeof(*encrypted) + cap);
    if (encrypted) {
        encrypted->conn = conn;
        encrypted->n_bytes = 0;
        encrypted->cap = cap;
        memory_conn_hold(conn->account, MEMORY_CONN_BUFFERS, cap);
    }
    return encrypted;
}

static void encrypted_free(struct encrypted_write *encrypted) {
    memory_conn_subtract(encrypted->conn->account, MEMORY_CONN_BUFFERS, encrypted->cap);
    free(encrypted);
}

static int send_waiting(struct net_conn *conn);

static void on_encrypted_sent(uv_write_t *write, int status) {
    struct encrypted_write *encrypted = (struct encrypted_write *)write;
    struct net_conn *conn = encrypted->conn;
    size_t n_bytes = encrypted->n_bytes;
    encrypted_free(encrypted);
    conn->n_encrypted_writes--;
    if (status < 0) {
        net_conn_close(conn);
        return; /* queued writes are completed when the handle is closed */
    }
    metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)n_bytes);
    if (conn->n_encrypted_writes == 0) {
        struct queued_writes done;
        write_queue_pop_taken(&conn->writes, &done);
        if (send_waiting(conn) != 0) {
            net_conn_close(conn);
        }
        queued_writes_complete(&done, 0);
    }
    if (conn->phase == NET_LINGER && !net_conn_is_sending(conn)) {
        net_conn_half_close(conn);
    }
    net_conn_update_io(conn);
}

/* Takes ownership of `encrypted`. Returns: 0, or libuv's error. */
static int encrypted_send(struct net_conn *conn, struct encrypted_write *encrypted) {
    uv_buf_t buf = {.base = encrypted->data, .len = encrypted->n_bytes};
    int rc = uv_write(&encrypted->write, &conn->uv.stream, &buf, 1, on_encrypted_sent);
    if (rc == 0) {
        conn->n_encrypted_writes++;
    } else {
        encrypted_free(encrypted);
    }
    return rc;
}

/* Sends output of the session, or plaintext before it: at once what the socket takes, the rest from
 * a copy. Returns: 0, or libuv's error; then the caller closes the connection. */
static int send_or_copy(struct net_conn *conn, const char *data, size_t n_bytes) {
    /* libuv's type has no const; it does not write there. */
    uv_buf_t buf = {.base = (char *)(uintptr_t)data, .len = n_bytes};
    int rc = uv_try_write(&conn->uv.stream, &buf, 1); /* writes nothing when a write is queued */
    size_t n = rc > 0 ? (size_t)rc : 0;
    metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)n);
    if (n == n_bytes) {
        return 0;
    }
    bool hopeless = (rc < 0 && rc != UV_EAGAIN) || conn->n_encrypted_writes >= MAX_ENCRYPTED_WRITES;
    struct encrypted_write *encrypted = hopeless ? NULL : encrypted_new(conn, n_bytes - n);
    if (encrypted) {
        encrypted->n_bytes = n_bytes - n;
        memcpy(encrypted->data, data + n, encrypted->n_bytes);
    }
    return encrypted ? encrypted_send(conn, encrypted) : UV_ECONNABORTED;
}

/* Likewise, outside of writes. Returns: false when the connection was closed. */
static bool send_or_close(struct net_conn *conn, const char *data, size_t n_bytes) {
    bool sent = send_or_copy(conn, data, n_bytes) == 0;
    if (!sent) {
        net_conn_close(conn);
    }
    return sent;
}

/* ---- writes ---------------------------------------------------------------------------------- */

ssize_t net_tls_try_write(struct net_conn *conn, const uv_buf_t *bufs, unsigned n) {
    struct tls_io io = {.out = conn->server_worker->tls->encrypted,
                        .out_cap = NET_TLS_ENCRYPTED_BYTES};
    struct write_cursor from = {bufs, n, 0};
    if (conn->n_encrypted_writes > 0) {
        return 0; /* after the writes in progress */
    }
    /* Closed here, the connection would end the call whose list of buffers is in use. */
    ssize_t n_plain = encrypt_records(conn, &io, &from);
    if (n_plain < 0 || send_or_copy(conn, io.out, io.out_len) != 0) {
        return UV_ECONNABORTED;
    }
    return n_plain;
}

/* Encrypts queued writes, up to the capacity of `encrypted`. Returns: false when the session has
 * failed. */
static bool encrypt_waiting(struct net_conn *conn, struct encrypted_write *encrypted) {
    struct tls_io io = {.out = encrypted->data, .out_cap = NET_TLS_ENCRYPTED_BYTES};
    struct queued_write *write;
    STAILQ_FOREACH(write, &conn->writes.writes, link) {
        struct write_cursor from = write->rest;
        ssize_t n = encrypt_records(conn, &io, &from);
        if (n < 0) {
            return false;
        }
        write_queue_advance(&conn->writes, write, (size_t)n);
        if (write->rest.n > 0) {
            break;
        }
    }
    encrypted->n_bytes = io.out_len;
    return true;
}

/* Sends the next part of the queued writes; no other write is in progress. Returns: 0, or an error
 * that ends the connection. */
static int send_waiting(struct net_conn *conn) {
    if (write_queue_is_empty(&conn->writes) || conn->phase == NET_CLOSED) {
        return 0;
    }
    struct encrypted_write *encrypted = encrypted_new(conn, NET_TLS_ENCRYPTED_BYTES);
    if (!encrypted) {
        return UV_ENOMEM;
    }
    if (!encrypt_waiting(conn, encrypted)) {
        encrypted_free(encrypted);
        return UV_ECONNABORTED;
    }
    return encrypted_send(conn, encrypted);
}

int net_tls_queue_write(struct net_conn *conn, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                        uv_write_cb done) {
    if (!write_queue_add(&conn->writes, write, bufs, n, done)) {
        return UV_ENOMEM;
    }
    int rc = conn->n_encrypted_writes == 0 ? send_waiting(conn) : 0;
    if (rc != 0) { /* then it is the only one */
        write_queue_remove_last(&conn->writes);
    }
    return rc;
}

/* ---- opening and closing --------------------------------------------------------------------- */

bool net_tls_attach(struct net_conn *conn, const struct tls_server *server) {
    conn->tls = calloc(1, sizeof(*conn->tls));
    if (conn->tls) {
        conn->tls->context = tls_server_context(server);
        conn->tls->in_handshake = true;
    }
    return conn->tls != NULL;
}

bool net_tls_open(struct net_conn *conn) {
    struct server_worker *server_worker = conn->server_worker;
    if (!server_worker->tls) {
        server_worker->tls = calloc(1, sizeof(*server_worker->tls));
    }
    return server_worker->tls != NULL;
}

static void partial_free(struct net_conn *conn) {
    struct net_tls *tls = conn->tls;
    memory_conn_subtract(conn->account, MEMORY_CONN_TLS, tls->partial_cap);
    free(tls->partial);
    tls->partial = NULL;
    tls->n_partial = tls->partial_cap = 0;
}

void net_tls_free(struct net_conn *conn) {
    struct net_tls *tls = conn->tls;
    if (tls) {
        tls_session_fini(&tls->session);
        tls_context_unref(tls->context);
        partial_free(conn);
        free(tls);
        conn->tls = NULL;
    }
}

/* I/O buffers for session output outside of writes. */
static struct tls_io io_of(const struct net_conn *conn, struct str in) {
    return (struct tls_io){
        .in = in, .out = conn->server_worker->tls->encrypted, .out_cap = NET_TLS_ENCRYPTED_BYTES};
}

/* Sends the session's output. Returns: false when the connection is closed. */
static bool flush_session(struct net_conn *conn, struct tls_io *io) {
    size_t n = io->out_len;
    io->out_len = 0;
    return n == 0 || send_or_close(conn, io->out, n);
}

void net_tls_send_close_notify(struct net_conn *conn) {
    struct net_tls *tls = conn->tls;
    bool response_pending = net_conn_is_sending(conn) || conn->server_worker->out_conn == conn;
    if (tls->close_notify_sent || response_pending || !tls->session.ssl) {
        return;
    }
    tls->close_notify_sent = true;
    struct tls_io io = io_of(conn, str_make(NULL, 0));
    tls_session_send_close_notify(&tls->session, &io);
    if (io.out_len > 0) {
        /* If the socket is full, close_notify is dropped. */
        uv_buf_t buf = {.base = io.out, .len = io.out_len};
        (void)uv_try_write(&conn->uv.stream, &buf, 1);
    }
}

/* ---- plaintext on a TLS port ----------------------------------------------------------------- */

/* The response to a client that uses http:// instead of https://, in its own protocol. */
static struct str answer_in_plaintext(struct str request) {
    static const char HTTP1[] =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 68\r\n"
        "Connection: close\r\n\r\n"
        "{\"error\":\"this port takes TLS only: write https:// and not http://\"}";
    /* Empty SETTINGS, then GOAWAY with INADEQUATE_SECURITY. (RFC 9113, 6.5, 6.8, 7) */
    static const char HTTP2[] = "\0\0\0\4\0\0\0\0\0"
                                "\0\0\40\7\0\0\0\0\0"
                                "\0\0\0\0\0\0\0\14"
                                "this port takes TLS only";
    return str_starts_with(request, STR("PRI ")) ? str_make(HTTP2, sizeof(HTTP2) - 1)
                                                 : str_make(HTTP1, sizeof(HTTP1) - 1);
}

static void refuse_plaintext(struct net_conn *conn, struct str request) {
    struct str answer = answer_in_plaintext(request);
    net_tls_log_failure(conn, TLS_FAILURE_PLAINTEXT,
                        "the client sent a plaintext request instead of TLS");
    if (send_or_close(conn, answer.ptr, answer.len)) {
        net_conn_close_gracefully(conn, false);
    }
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static void on_handshake_done(struct net_conn *conn) {
    net_tls_log_success(conn);
    conn->tls->in_handshake = false;
    memory_conn_subtract(conn->account, MEMORY_CONN_TLS,
                         NET_TLS_HANDSHAKE_MEMORY_BYTES - NET_TLS_SESSION_MEMORY_BYTES);
    /* The protocol has timeouts of its own. */
    timer_list_stop(&conn->server_worker->conn_timers, &conn->timeout);
    if (conn->admission != NET_ADMITTED) {
        net_conn_reject(conn);
    }
}

void net_tls_handshake_failed(const struct net_conn *conn, enum tls_failure failure,
                              const char *why) {
    if (conn->server_worker->tls) {
        net_tls_log_failure(conn, failure, why);
    }
}

/* Returns: false while the handshake continues, or when the connection has ended. */
static bool do_handshake(struct net_conn *conn, struct tls_io *io) {
    struct net_tls *tls = conn->tls;
    enum tls_result result;
    enum tls_failure failure;
    struct error err;
    do {
        result = tls_session_handshake(&tls->session, io, &failure, &err);
        if (result == TLS_FAILED) {
            net_tls_log_failure(conn, failure, err.text);
        }
        if (!flush_session(conn, io)) {
            return false;
        }
    } while (result == TLS_WANT_WRITE);
    if (result == TLS_DONE) {
        on_handshake_done(conn);
        return conn->phase == NET_OPEN;
    }
    if (result == TLS_FAILED) {
        net_conn_close_gracefully(conn, false); /* lets the peer read the reason */
    }
    return false;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Decrypts the next bytes into `place`, and sends the session's output. */
static enum tls_result decrypt_into(struct net_conn *conn, struct tls_io *io, char *place,
                                    size_t n_room, size_t *n_read) {
    struct error err;
    enum tls_result result = tls_session_read(&conn->tls->session, io, place, n_room, n_read, &err);
    if (!flush_session(conn, io)) {
        return TLS_FAILED;
    }
    if (result == TLS_FAILED) {
        metric_add(METRIC_TLS_CONNECTION_FAILURES_TOTAL, 1);
        log_limited(conn, LOG_INFO, "TLS connection failed after its handshake", err.text);
    }
    return result;
}

/* Decrypts into the buffer that the protocol wants, and passes the bytes on. */
static enum tls_result decrypt_once(struct net_conn *conn, struct tls_io *io) {
    size_t n_room = NET_DECRYPTED_BYTES, n = 0;
    char *place = conn->protocol->read_buffer(conn, &n_room);
    char *to = place ? place : conn->server_worker->tls->decrypted;
    enum tls_result result = decrypt_into(conn, io, to, n_room, &n);
    if (n > 0 && conn->phase == NET_OPEN) {
        if (place) {
            conn->protocol->on_read_buffer_filled(conn, n);
            server_worker_free_ended_calls(conn->server_worker);
        } else {
            net_conn_process_input(conn, str_make(to, n));
        }
    }
    return result;
}

static void decrypt_all(struct net_conn *conn, struct tls_io *io) {
    enum tls_result result = TLS_DONE;
    while (result == TLS_DONE && conn->phase == NET_OPEN) {
        result = decrypt_once(conn, io);
    }
    if (result == TLS_FAILED) {
        net_conn_close(conn);
    } else if (result == TLS_CLOSED && conn->phase == NET_OPEN) {
        net_conn_set_reading(conn, false);
        conn->tls->peer_closed = true; /* handled by net_conn_update_io */
    }
}

/* ---- records in ------------------------------------------------------------------------------ */

enum {
    RECORD_HEAD_BYTES = 5,
    /* RFC 8446, 5.2, and RFC 5246, 6.2.3 */
    RECORD_MAX_BYTES = RECORD_HEAD_BYTES + TLS_RECORD_BYTES + 2048,
    PARTIAL_MIN_BYTES = 512,
    RECORD_FIRST_TYPE = 20, /* RFC 8446, 5.1, and RFC 6520 */
    RECORD_LAST_TYPE = 24,
};

/* Returns: the size of the record at the front; that of a head when it is not known yet; all bytes
 * when they are no record, as OpenSSL explains what is wrong. */
static size_t record_bytes(struct str data) {
    const unsigned char *head = (const unsigned char *)data.ptr;
    if (data.len > 0 && (head[0] < RECORD_FIRST_TYPE || head[0] > RECORD_LAST_TYPE)) {
        return data.len;
    }
    if (data.len < RECORD_HEAD_BYTES) {
        return RECORD_HEAD_BYTES;
    }
    size_t n = RECORD_HEAD_BYTES + ((size_t)head[3] << 8) + head[4];
    return n <= RECORD_MAX_BYTES ? n : data.len;
}

/* Returns: the bytes at the front that are whole records. */
static size_t whole_records(struct str data) {
    size_t at = 0;
    while (at < data.len) {
        size_t n = record_bytes(str_make(data.ptr + at, data.len - at));
        if (n > data.len - at) {
            break;
        }
        at += n;
    }
    return at;
}

/* Ends a connection for which there is no memory. */
static void refuse_for_memory(struct net_conn *conn) {
    metric_add(METRIC_DROPPED_MEMORY, 1);
    if (conn->tls->in_handshake) {
        net_tls_log_failure(conn, TLS_FAILURE_MEMORY,
                            "no memory for another handshake: connections take up half of "
                            "--client-memory, or requests and responses all of it");
    }
    net_conn_close(conn);
}

/* Appends `n_bytes` from the front of `data`, where the record has `n_whole` bytes. Returns: false
 * when there is no memory: the connection is closed. */
static bool partial_add(struct net_conn *conn, struct str *data, size_t n_bytes, size_t n_whole) {
    struct net_tls *tls = conn->tls;
    size_t needed = tls->n_partial + n_bytes, cap = tls->partial_cap;
    if (needed > cap) {
        cap = 2 * cap > PARTIAL_MIN_BYTES ? 2 * cap : PARTIAL_MIN_BYTES;
        cap = cap > n_whole ? n_whole : cap;
        cap = cap > needed ? cap : needed;
        bool fits = memory_conn_add(conn->account, MEMORY_CONN_TLS, cap - tls->partial_cap);
        char *grown = fits ? realloc(tls->partial, cap) : NULL;
        if (!grown) {
            memory_conn_subtract(conn->account, MEMORY_CONN_TLS, fits ? cap - tls->partial_cap : 0);
            refuse_for_memory(conn);
            return false;
        }
        tls->partial = grown;
        tls->partial_cap = cap;
    }
    memcpy(tls->partial + tls->n_partial, data->ptr, n_bytes);
    tls->n_partial = needed;
    *data = str_make(data->ptr + n_bytes, data->len - n_bytes);
    return true;
}

/* Begins the handshake. Returns: false when there is no memory: the connection is closed. */
static bool begin_session(struct net_conn *conn) {
    struct net_tls *tls = conn->tls;
    if (!net_conn_take_memory(conn, MEMORY_CONN_TLS, NET_TLS_HANDSHAKE_MEMORY_BYTES)) {
        refuse_for_memory(conn);
        return false;
    }
    struct tls_context *context = tls->context;
    tls->context = NULL;
    if (!tls_session_init(&tls->session, context, str_of(conn->protocol->alpn))) {
        net_conn_close(conn);
        return false;
    }
    return true;
}

/* Passes whole records to OpenSSL, and what they contain to the protocol: all at once, as what must
 * wait for a response becomes one pending input. */
static void receive_records(struct net_conn *conn, struct str first, struct str rest) {
    struct net_tls *tls = conn->tls;
    if (!tls->session.ssl && !begin_session(conn)) {
        return;
    }
    struct tls_io io = io_of(conn, first.len > 0 ? first : rest);
    io.in_after = first.len > 0 ? rest : first;
    if (!tls->in_handshake || do_handshake(conn, &io)) {
        decrypt_all(conn, &io);
    }
}

/* Adds to the record that has begun. Returns: false when it is not complete yet, or the connection
 * has ended. */
static bool complete_record(struct net_conn *conn, struct str *data) {
    struct net_tls *tls = conn->tls;
    size_t n_whole;
    while ((n_whole = record_bytes(str_make(tls->partial, tls->n_partial))) > tls->n_partial) {
        size_t missing = n_whole - tls->n_partial;
        size_t n = missing < data->len ? missing : data->len;
        if (n == 0 || !partial_add(conn, data, n, n_whole)) {
            return false;
        }
    }
    return true;
}

void net_tls_receive(struct net_conn *conn, struct str encrypted) {
    struct net_tls *tls = conn->tls;
    if (conn->phase != NET_OPEN) {
        net_conn_discard(conn, &encrypted);
        return;
    }
    if (!tls->received_any && tls_looks_like_plaintext(encrypted)) {
        refuse_plaintext(conn, encrypted);
        return;
    }
    tls->received_any = true;
    if (tls->n_partial > 0 && !complete_record(conn, &encrypted)) {
        return;
    }
    struct str records = str_make(encrypted.ptr, whole_records(encrypted));
    if (tls->n_partial + records.len > 0) {
        receive_records(conn, str_make(tls->partial, tls->n_partial), records);
        partial_free(conn);
    }
    encrypted = str_make(encrypted.ptr + records.len, encrypted.len - records.len);
    if (encrypted.len > 0 && conn->phase == NET_OPEN && !tls->peer_closed) {
        (void)partial_add(conn, &encrypted, encrypted.len, record_bytes(encrypted));
    }
}

/* A connection's handshake, and what comes after it. It refuses to know what the protocol makes of
 * the bytes. */
#include "net/server/tls/conn.h"

#include <stdlib.h>
#include <string.h>

#include "net/transport/tls/server.h"

/* ---- a connection's life --------------------------------------------------------------------- */

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
    struct net_tls *tls = conn->tls;
    if (!server_worker->tls) {
        server_worker->tls = calloc(1, sizeof(*server_worker->tls));
    }
    if (!server_worker->tls) {
        return false;
    }
    struct tls_context *context = tls->context;
    tls->context = NULL;
    return tls_session_init(&tls->session, context, str_of(conn->protocol->alpn));
}

void net_tls_free(struct net_conn *conn) {
    struct net_tls *tls = conn->tls;
    if (tls) {
        tls_session_fini(&tls->session);
        tls_context_unref(tls->context);
        free(tls);
        conn->tls = NULL;
    }
}

/* For what a session says while it reads or ends. */
static struct tls_io io_of(const struct net_conn *conn, struct str in) {
    return (struct tls_io){
        .in = in, .out = conn->server_worker->tls->encrypted, .out_cap = NET_TLS_ENCRYPTED_BYTES};
}

/* Sends what the session has said. Returns: false when the connection is closed. */
static bool flush_session(struct net_conn *conn, struct tls_io *io) {
    size_t n = io->out_len;
    io->out_len = 0;
    return n == 0 || net_tls_send_encrypted(conn, io->out, n);
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
        /* A socket that does not take this takes nothing else either. */
        uv_buf_t buf = {.base = io.out, .len = io.out_len};
        (void)uv_try_write(&conn->uv.stream, &buf, 1);
    }
}

/* ---- who does not speak TLS ------------------------------------------------------------------ */

/* Whoever writes http:// for https:// is told, in what he speaks. */
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
    net_tls_log_failure(conn, TLS_FAILURE_PLAINTEXT, "what came is no TLS but plain text");
    if (net_tls_send_encrypted(conn, answer.ptr, answer.len)) {
        net_conn_close_gracefully(conn, false);
    }
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static void on_handshake_done(struct net_conn *conn) {
    net_tls_log_success(conn);
    conn->tls->in_handshake = false;
    /* What follows has a time of its own. */
    timer_list_stop(&conn->server_worker->conn_timers, &conn->timeout);
    if (conn->over_limit) {
        net_conn_reject(conn);
    }
}

void net_tls_handshake_failed(const struct net_conn *conn, enum tls_failure failure,
                              const char *why) {
    if (conn->server_worker->tls) {
        net_tls_log_failure(conn, failure, why);
    }
}

/* Returns: false while it lasts, or when the connection has ended. */
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
        net_conn_close_gracefully(conn, false); /* the peer shall still read why */
    }
    return false;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Opens the next bytes into `place`, and tells the peer what it has to know. */
static enum tls_result decrypt_into(struct net_conn *conn, struct tls_io *io, char *place,
                                    size_t n_room, size_t *n_read) {
    struct error err;
    enum tls_result result = tls_session_read(&conn->tls->session, io, place, n_room, n_read, &err);
    if (!flush_session(conn, io)) {
        return TLS_FAILED;
    }
    if (result == TLS_FAILED) {
        net_tls_log_failure(conn, TLS_FAILURE_PROTOCOL, err.text);
    }
    return result;
}

/* Opens what fits where the next bytes belong, and hands it over. */
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
        net_conn_read_stop(conn);
        net_conn_handle_eof(conn, true);
    }
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
    struct tls_io io = io_of(conn, encrypted);
    if (!tls->in_handshake || do_handshake(conn, &io)) {
        decrypt_all(conn, &io);
    }
}

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
        conn->tls->shaking = true;
    }
    return conn->tls != NULL;
}

bool net_tls_open(struct net_conn *conn) {
    struct net_shard *shard = conn->shard;
    struct net_tls *tls = conn->tls;
    if (!shard->tls) {
        shard->tls = calloc(1, sizeof(*shard->tls));
    }
    if (!shard->tls) {
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
static struct tls_wire wire_of(const struct net_conn *conn, struct str in) {
    return (struct tls_wire){
        .in = in, .out = conn->shard->tls->sealed, .out_cap = NET_TLS_SEALED_BYTES};
}

/* Sends what the session has said. Returns: false when the connection is closed. */
static bool say(struct net_conn *conn, struct tls_wire *wire) {
    size_t n = wire->out_len;
    wire->out_len = 0;
    return n == 0 || net_tls_send_sealed(conn, wire->out, n);
}

void net_tls_say_end(struct net_conn *conn) {
    struct net_tls *tls = conn->tls;
    bool owes = net_conn_is_sending(conn) || conn->shard->out_conn == conn;
    if (tls->ended || owes || !tls->session.ssl) {
        return;
    }
    tls->ended = true;
    struct tls_wire wire = wire_of(conn, str_make(NULL, 0));
    tls_session_say_end(&tls->session, &wire);
    if (wire.out_len > 0) {
        /* A socket that does not take this takes nothing else either. */
        uv_buf_t buf = {.base = wire.out, .len = wire.out_len};
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
    return str_starts(request, STR("PRI ")) ? str_make(HTTP2, sizeof(HTTP2) - 1)
                                            : str_make(HTTP1, sizeof(HTTP1) - 1);
}

static void refuse_plaintext(struct net_conn *conn, struct str request) {
    struct str answer = answer_in_plaintext(request);
    net_tls_log_failure(conn, TLS_FAILURE_PLAINTEXT, "what came is no TLS but plain text");
    if (net_tls_send_sealed(conn, answer.ptr, answer.len)) {
        net_conn_end(conn, false);
    }
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static void shaken(struct net_conn *conn) {
    net_tls_log_success(conn);
    conn->tls->shaking = false;
    /* What follows has a time of its own. */
    timeouts_disarm(&conn->shard->timeouts, &conn->timeout);
    if (conn->refused) {
        net_conn_refuse(conn);
    }
}

void net_tls_shake_failed(const struct net_conn *conn, enum tls_failure failure, const char *why) {
    if (conn->shard->tls) {
        net_tls_log_failure(conn, failure, why);
    }
}

/* Returns: false while it lasts, or when the connection has ended. */
static bool shake(struct net_conn *conn, struct tls_wire *wire) {
    struct net_tls *tls = conn->tls;
    enum tls_result result;
    enum tls_failure failure;
    struct error err;
    do {
        result = tls_session_shake(&tls->session, wire, &failure, &err);
        if (result == TLS_BROKEN) {
            net_tls_log_failure(conn, failure, err.text);
        }
        if (!say(conn, wire)) {
            return false;
        }
    } while (result == TLS_FULL);
    if (result == TLS_DONE) {
        shaken(conn);
        return conn->phase == NET_OPEN;
    }
    if (result == TLS_BROKEN) {
        net_conn_end(conn, false); /* the peer shall still read why */
    }
    return false;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Opens the next bytes into `place`, and tells the peer what it has to know. */
static enum tls_result open_into(struct net_conn *conn, struct tls_wire *wire, char *place,
                                 size_t n_room, size_t *n_read) {
    struct error err;
    enum tls_result result =
        tls_session_read(&conn->tls->session, wire, place, n_room, n_read, &err);
    if (!say(conn, wire)) {
        return TLS_BROKEN;
    }
    if (result == TLS_BROKEN) {
        net_tls_log_failure(conn, TLS_FAILURE_PROTOCOL, err.text);
    }
    return result;
}

/* Opens what fits where the next bytes belong, and hands it over. */
static enum tls_result open_once(struct net_conn *conn, struct tls_wire *wire) {
    size_t n_room = NET_OPENED_BYTES, n = 0;
    char *place = conn->protocol->room(conn, &n_room);
    char *to = place ? place : conn->shard->tls->opened;
    enum tls_result result = open_into(conn, wire, to, n_room, &n);
    if (n > 0 && conn->phase == NET_OPEN) {
        if (place) {
            conn->protocol->on_room_filled(conn, n);
            net_shard_sweep(conn->shard);
        } else {
            net_conn_take(conn, str_make(to, n));
        }
    }
    return result;
}

static void open_all(struct net_conn *conn, struct tls_wire *wire) {
    enum tls_result result = TLS_DONE;
    while (result == TLS_DONE && conn->phase == NET_OPEN) {
        result = open_once(conn, wire);
    }
    if (result == TLS_BROKEN) {
        net_conn_close(conn);
    } else if (result == TLS_ENDED && conn->phase == NET_OPEN) {
        net_conn_read_stop(conn);
        net_conn_input_ended(conn, true);
    }
}

void net_tls_received(struct net_conn *conn, struct str sealed) {
    struct net_tls *tls = conn->tls;
    if (conn->phase != NET_OPEN) {
        net_conn_discard(conn, &sealed);
        return;
    }
    if (!tls->begun && tls_looks_like_plaintext(sealed)) {
        refuse_plaintext(conn, sealed);
        return;
    }
    tls->begun = true;
    struct tls_wire wire = wire_of(conn, sealed);
    if (!tls->shaking || shake(conn, &wire)) {
        open_all(conn, &wire);
    }
}

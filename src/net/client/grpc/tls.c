/* TLS under a connection of the client: what comes from the socket is opened before the session
 * sees it, what that says is sealed on its way out. */
#include <assert.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "net/client/grpc/conn.h"

static const unsigned char ALPN[] = "\x02h2"; /* RFC 9113, 3.2 */

/* Sealed bytes that the socket did not take at once. */
struct sealed {
    uv_write_t write;
    struct grpc_client_conn *conn;
    size_t n_bytes;
    char data[];
};

/* ---- settings -------------------------------------------------------------------------------- */

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for TLS");
}

static enum status make_context(struct grpc_client_tls_state *tls,
                                const struct grpc_client_tls *options, struct error *err) {
    struct tls_context *context = calloc(1, sizeof(*context));
    if (!context) {
        return no_memory(err);
    }
    atomic_init(&context->n_refs, 1);
    tls->context = context;
    context->ssl = SSL_CTX_new(TLS_client_method());
    context->bio = tls_session_bio_method();
    if (!context->ssl || !context->bio) {
        ERR_clear_error();
        return no_memory(err);
    }
    return tls_peer_configure(context->ssl, &options->files, err);
}

enum status grpc_client_tls_new(struct grpc_client *client, const struct grpc_client_tls *options,
                                struct error *err) {
    const char *name = options->server_name ? options->server_name : client->target.host;
    client->tls = calloc(1, sizeof(*client->tls));
    if (!client->tls || !(client->tls->server_name = strdup(name))) {
        return no_memory(err);
    }
    return make_context(client->tls, options, err);
}

void grpc_client_tls_free(struct grpc_client *client) {
    if (client->tls) {
        tls_context_unref(client->tls->context);
        free(client->tls->server_name);
        free(client->tls);
        client->tls = NULL;
    }
}

/* ---- sealed bytes to the socket -------------------------------------------------------------- */

static void on_sealed_sent(uv_write_t *write, int status) {
    struct sealed *sealed = (struct sealed *)write;
    struct grpc_client_conn *conn = sealed->conn;
    free(sealed);
    conn->n_sealed--;
    if (conn->phase == GRPC_CLIENT_CLOSED) {
        return;
    }
    if (status < 0) {
        grpc_client_conn_lost(conn, uv_strerror(status));
    } else if (conn->n_sealed == 0 && conn->output) {
        grpc_client_tls_push(conn);
    }
    grpc_client_ask_turn(conn->client);
}

/* At once, or from a copy. Returns: libuv's error, or 0. */
static int send_sealed(struct grpc_client_conn *conn, char *data, size_t n_bytes) {
    uv_buf_t buf = {.base = data, .len = n_bytes};
    if (n_bytes == 0) {
        return 0;
    }
    int rc = uv_try_write(&conn->uv.stream, &buf, 1); /* nothing, when there is a queue */
    size_t n = rc > 0 ? (size_t)rc : 0;
    if (n == n_bytes || (rc < 0 && rc != UV_EAGAIN)) {
        return n == n_bytes ? 0 : rc;
    }
    struct sealed *sealed = malloc(sizeof(*sealed) + n_bytes - n);
    if (!sealed) {
        return UV_ENOMEM;
    }
    sealed->conn = conn;
    memcpy(sealed->data, data + n, n_bytes - n);
    buf = (uv_buf_t){.base = sealed->data, .len = n_bytes - n};
    rc = uv_write(&sealed->write, &conn->uv.stream, &buf, 1, on_sealed_sent);
    if (rc == 0) {
        conn->n_sealed++;
    } else {
        free(sealed);
    }
    return rc;
}

/* Sends what the session has said. Returns: false when the connection is closed. */
static bool say(struct grpc_client_conn *conn, struct tls_wire *wire) {
    size_t n = wire->out_len;
    wire->out_len = 0;
    int rc = send_sealed(conn, wire->out, n);
    if (rc != 0) {
        grpc_client_conn_lost(conn, uv_strerror(rc));
    }
    return rc == 0;
}

static struct tls_wire wire_of(const struct grpc_client_conn *conn, struct str in) {
    return (struct tls_wire){
        .in = in, .out = conn->client->tls->sealed, .out_cap = GRPC_CLIENT_SEALED_BYTES};
}

/* ---- out ------------------------------------------------------------------------------------- */

/* The plain bytes of the next record: from where they lie, or, where that would make small records,
 * put together. */
static struct str next_record(const struct grpc_client_conn *conn) {
    const struct grpc_output *output = conn->output;
    const struct piece *piece = &output->pieces[conn->piece];
    char *place = conn->client->tls->gathered;
    size_t at = conn->at, n = 0;
    if (piece->n_bytes - at >= TLS_RECORD_BYTES) {
        return str_make((const char *)piece->data + at, TLS_RECORD_BYTES);
    }
    for (size_t i = conn->piece; i < output->n && n < TLS_RECORD_BYTES; i++) {
        size_t left = output->pieces[i].n_bytes - at;
        size_t part = left < TLS_RECORD_BYTES - n ? left : TLS_RECORD_BYTES - n;
        memcpy(place + n, (const char *)output->pieces[i].data + at, part);
        n += part;
        at = 0;
    }
    return str_make(place, n);
}

void grpc_client_tls_push(struct grpc_client_conn *conn) {
    while (conn->output && conn->n_sealed == 0 && conn->phase == GRPC_CLIENT_CONNECTED) {
        struct tls_wire wire = wire_of(conn, STR(""));
        enum tls_result result = TLS_DONE;
        while (conn->output && result == TLS_DONE) {
            struct str record = next_record(conn);
            result = tls_session_write(&conn->tls, &wire, record);
            if (result == TLS_DONE) {
                grpc_client_conn_advance(conn, record.len);
            }
        }
        if (!say(conn, &wire)) {
            return;
        }
        if (result != TLS_DONE && result != TLS_FULL) {
            grpc_client_conn_lost(conn, "TLS is over");
        }
    }
}

void grpc_client_tls_say_end(struct grpc_client_conn *conn) {
    if (!conn->tls.ssl || conn->n_sealed > 0 || !conn->has_handle) {
        return;
    }
    struct tls_wire wire = wire_of(conn, STR(""));
    tls_session_say_end(&conn->tls, &wire);
    uv_buf_t buf = {.base = wire.out, .len = wire.out_len};
    if (buf.len > 0) {
        (void)uv_try_write(&conn->uv.stream, &buf, 1);
    }
}

/* ---- hands ----------------------------------------------------------------------------------- */

/* RFC 9113, 3.2: both have to agree on "h2". */
static bool agreed(const struct grpc_client_conn *conn) {
    const unsigned char *name;
    unsigned n;
    SSL_get0_alpn_selected(conn->tls.ssl, &name, &n);
    return n == sizeof(ALPN) - 2 && memcmp(name, ALPN + 1, n) == 0;
}

/* Goes on with the handshake. Returns: whether it is over, and the connection can be used. */
static bool shake(struct grpc_client_conn *conn, struct tls_wire *wire) {
    enum tls_failure why;
    struct error err;
    enum tls_result result = TLS_FULL;
    while (result == TLS_FULL) {
        result = tls_session_shake(&conn->tls, wire, &why, &err);
        if (!say(conn, wire)) {
            return false;
        }
    }
    if (result == TLS_BROKEN) {
        grpc_client_conn_lost(conn, err.text);
    } else if (result == TLS_DONE && !agreed(conn)) {
        grpc_client_conn_lost(conn, "the server does not speak HTTP/2 over TLS (ALPN \"h2\")");
    } else if (result == TLS_DONE) {
        grpc_client_conn_ready(conn);
    }
    return conn->phase == GRPC_CLIENT_CONNECTED;
}

void grpc_client_tls_begin(struct grpc_client_conn *conn) {
    const struct grpc_client_tls_state *tls = conn->client->tls;
    struct tls_wire wire = wire_of(conn, STR(""));
    if (!tls_session_init(&conn->tls, tls_context_ref(tls->context), STR("")) ||
        !tls_peer_expect(conn->tls.ssl, tls->server_name) ||
        SSL_set_alpn_protos(conn->tls.ssl, ALPN, sizeof(ALPN) - 1) != 0) {
        ERR_clear_error();
        grpc_client_conn_lost(conn, "no memory for TLS");
        return;
    }
    SSL_set_connect_state(conn->tls.ssl);
    (void)shake(conn, &wire);
}

/* ---- in -------------------------------------------------------------------------------------- */

void grpc_client_tls_received(struct grpc_client_conn *conn, struct str sealed) {
    struct tls_wire wire = wire_of(conn, sealed);
    struct error err;
    size_t n = 0;
    enum tls_result result = TLS_DONE;
    if (conn->phase == GRPC_CLIENT_SHAKING && !shake(conn, &wire)) {
        return;
    }
    while (result == TLS_DONE || result == TLS_FULL) {
        char *opened = conn->client->tls->opened;
        result = tls_session_read(&conn->tls, &wire, opened, GRPC_CLIENT_READ_BYTES, &n, &err);
        if (!say(conn, &wire)) {
            return;
        }
        if (n > 0) {
            grpc_client_session_receive(&conn->session, str_make(opened, n));
        }
    }
    if (result == TLS_ENDED) {
        grpc_client_conn_lost(conn, "the server closed the connection");
    } else if (result == TLS_BROKEN) {
        grpc_client_conn_lost(conn, err.text);
    }
}

/* TLS of a client connection: decrypts what the socket delivers before the session gets it, and
 * encrypts the session's output. */
#include <assert.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "net/client/grpc/conn.h"

static const unsigned char ALPN[] = "\x02h2"; /* RFC 9113, 3.2 */

/* Encrypted bytes that the socket did not take at once. */
struct encrypted_write {
    uv_write_t write;
    struct grpc_client_conn *conn;
    size_t n_bytes;
    char data[];
};

/* ---- settings -------------------------------------------------------------------------------- */

static enum status make_context(struct grpc_client_tls_state *tls,
                                const struct grpc_client_tls *options, struct error *err) {
    struct tls_context *context = calloc(1, sizeof(*context));
    if (!context) {
        return error_no_memory(err, "TLS");
    }
    atomic_init(&context->n_refs, 1);
    tls->context = context;
    context->ssl = SSL_CTX_new(TLS_client_method());
    context->bio = tls_session_bio_method();
    if (!context->ssl || !context->bio) {
        ERR_clear_error();
        return error_no_memory(err, "TLS");
    }
    return tls_peer_configure(context->ssl, &options->files, err);
}

enum status grpc_client_tls_new(struct grpc_client *client, const struct grpc_client_tls *options,
                                struct error *err) {
    const char *name = options->server_name ? options->server_name : client->target.host;
    client->tls = calloc(1, sizeof(*client->tls));
    if (!client->tls || !(client->tls->server_name = strdup(name))) {
        return error_no_memory(err, "TLS");
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

/* ---- encrypted bytes to the socket ----------------------------------------------------------- */

static void on_encrypted_sent(uv_write_t *write, int status) {
    struct encrypted_write *encrypted = (struct encrypted_write *)write;
    struct grpc_client_conn *conn = encrypted->conn;
    free(encrypted);
    conn->n_encrypted_writes--;
    if (conn->phase == GRPC_CLIENT_CLOSED) {
        return;
    }
    if (status < 0) {
        grpc_client_conn_fail(conn, uv_strerror(status));
    } else if (conn->n_encrypted_writes == 0 && conn->output) {
        grpc_client_tls_push(conn);
    }
    grpc_client_schedule_deferred(conn->client);
}

/* Sends at once what the socket takes, the rest from a copy. Returns: libuv's error, or 0. */
static int send_encrypted(struct grpc_client_conn *conn, char *data, size_t n_bytes) {
    uv_buf_t buf = {.base = data, .len = n_bytes};
    if (n_bytes == 0) {
        return 0;
    }
    int rc = uv_try_write(&conn->uv.stream, &buf, 1); /* writes nothing when a write is queued */
    size_t n = rc > 0 ? (size_t)rc : 0;
    if (n == n_bytes || (rc < 0 && rc != UV_EAGAIN)) {
        return n == n_bytes ? 0 : rc;
    }
    struct encrypted_write *encrypted = malloc(sizeof(*encrypted) + n_bytes - n);
    if (!encrypted) {
        return UV_ENOMEM;
    }
    encrypted->conn = conn;
    memcpy(encrypted->data, data + n, n_bytes - n);
    buf = (uv_buf_t){.base = encrypted->data, .len = n_bytes - n};
    rc = uv_write(&encrypted->write, &conn->uv.stream, &buf, 1, on_encrypted_sent);
    if (rc == 0) {
        conn->n_encrypted_writes++;
    } else {
        free(encrypted);
    }
    return rc;
}

/* Sends the TLS session's output. Returns: false when the connection is closed. */
static bool flush_session(struct grpc_client_conn *conn, struct tls_io *io) {
    size_t n = io->out_len;
    io->out_len = 0;
    int rc = send_encrypted(conn, io->out, n);
    if (rc != 0) {
        grpc_client_conn_fail(conn, uv_strerror(rc));
    }
    return rc == 0;
}

static struct tls_io io_of(const struct grpc_client_conn *conn, struct str in) {
    return (struct tls_io){
        .in = in, .out = conn->client->tls->encrypted, .out_cap = GRPC_CLIENT_ENCRYPTED_BYTES};
}

/* ---- out ------------------------------------------------------------------------------------- */

/* The plaintext of the next record: in place, or coalesced where that would make small records. */
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
    while (conn->output && conn->n_encrypted_writes == 0 && conn->phase == GRPC_CLIENT_CONNECTED) {
        struct tls_io io = io_of(conn, STR(""));
        enum tls_result result = TLS_DONE;
        while (conn->output && result == TLS_DONE) {
            struct str record = next_record(conn);
            result = tls_session_write(&conn->tls, &io, record);
            if (result == TLS_DONE) {
                grpc_client_conn_advance(conn, record.len);
            }
        }
        if (!flush_session(conn, &io)) {
            return;
        }
        if (result != TLS_DONE && result != TLS_WANT_WRITE) {
            grpc_client_conn_fail(conn, "the TLS session has failed");
        }
    }
}

void grpc_client_tls_send_close_notify(struct grpc_client_conn *conn) {
    if (!conn->tls.ssl || conn->n_encrypted_writes > 0 || !conn->has_handle) {
        return;
    }
    struct tls_io io = io_of(conn, STR(""));
    tls_session_send_close_notify(&conn->tls, &io);
    uv_buf_t buf = {.base = io.out, .len = io.out_len};
    if (buf.len > 0) {
        (void)uv_try_write(&conn->uv.stream, &buf, 1);
    }
}

/* ---- handshake ------------------------------------------------------------------------------- */

/* RFC 9113, 3.2: both peers must agree on "h2". */
static bool is_h2_negotiated(const struct grpc_client_conn *conn) {
    const unsigned char *name;
    unsigned n;
    SSL_get0_alpn_selected(conn->tls.ssl, &name, &n);
    return n == sizeof(ALPN) - 2 && memcmp(name, ALPN + 1, n) == 0;
}

/* Continues the handshake. Returns: whether it is complete and the connection can be used. */
static bool do_handshake(struct grpc_client_conn *conn, struct tls_io *io) {
    enum tls_failure why;
    struct error err;
    enum tls_result result = TLS_WANT_WRITE;
    while (result == TLS_WANT_WRITE) {
        result = tls_session_handshake(&conn->tls, io, &why, &err);
        if (!flush_session(conn, io)) {
            return false;
        }
    }
    if (result == TLS_FAILED) {
        grpc_client_conn_fail(conn, err.text);
    } else if (result == TLS_DONE && !is_h2_negotiated(conn)) {
        grpc_client_conn_fail(conn, "the server does not speak HTTP/2 over TLS (ALPN \"h2\")");
    } else if (result == TLS_DONE) {
        grpc_client_conn_ready(conn);
    }
    return conn->phase == GRPC_CLIENT_CONNECTED;
}

void grpc_client_tls_start_handshake(struct grpc_client_conn *conn) {
    const struct grpc_client_tls_state *tls = conn->client->tls;
    struct tls_io io = io_of(conn, STR(""));
    if (!tls_session_init(&conn->tls, tls_context_ref(tls->context), STR("")) ||
        !tls_peer_set_host(conn->tls.ssl, tls->server_name) ||
        SSL_set_alpn_protos(conn->tls.ssl, ALPN, sizeof(ALPN) - 1) != 0) {
        ERR_clear_error();
        grpc_client_conn_fail(conn, "out of memory for TLS");
        return;
    }
    SSL_set_connect_state(conn->tls.ssl);
    (void)do_handshake(conn, &io);
}

/* ---- in -------------------------------------------------------------------------------------- */

void grpc_client_tls_receive(struct grpc_client_conn *conn, struct str encrypted) {
    struct tls_io io = io_of(conn, encrypted);
    struct error err;
    size_t n = 0;
    enum tls_result result = TLS_DONE;
    if (conn->phase == GRPC_CLIENT_TLS_HANDSHAKE && !do_handshake(conn, &io)) {
        return;
    }
    while (result == TLS_DONE || result == TLS_WANT_WRITE) {
        char *decrypted = conn->client->tls->decrypted;
        result = tls_session_read(&conn->tls, &io, decrypted, GRPC_CLIENT_READ_BYTES, &n, &err);
        if (!flush_session(conn, &io)) {
            return;
        }
        if (n > 0) {
            grpc_client_session_receive(&conn->session, str_make(decrypted, n));
        }
    }
    if (result == TLS_CLOSED) {
        grpc_client_conn_fail(conn, "the server closed the connection");
    } else if (result == TLS_FAILED) {
        grpc_client_conn_fail(conn, err.text);
    }
}

/* Bytes out of a connection of the client: what its session has to say, from where it lies. */
#include <assert.h>
#include <stdlib.h>

#include "net/client/grpc/conn.h"

enum {
    MAX_WRITES = 4, /* of one connection in a round; then others have theirs */
    MAX_TRIES = 8,  /* of one write: what is large often leaves in pieces while the peer reads */
};

/* ---- outputs --------------------------------------------------------------------------------- */

/* One is enough for all connections whose socket takes what it is given. */
static struct grpc_output *output_take(struct grpc_client_core *core) {
    struct grpc_output *output = core->spare_output;
    core->spare_output = NULL;
    return output ? output : malloc(sizeof(*output));
}

static void output_give(struct grpc_client_core *core, struct grpc_output *output) {
    if (core->spare_output) {
        free(output);
    } else {
        core->spare_output = output;
    }
}

void grpc_client_conn_written(struct grpc_client_conn *conn) {
    output_give(&conn->client->core, conn->output);
    conn->output = NULL;
    grpc_client_session_on_written(&conn->session);
}

void grpc_client_conn_advance(struct grpc_client_conn *conn, size_t n_bytes) {
    const struct grpc_output *output = conn->output;
    conn->at += n_bytes;
    while (conn->piece < output->n && conn->at >= output->pieces[conn->piece].n_bytes) {
        conn->at -= output->pieces[conn->piece++].n_bytes;
    }
    if (conn->piece == output->n) {
        grpc_client_conn_written(conn);
    }
}

/* ---- the socket ------------------------------------------------------------------------------ */

static void on_written(uv_write_t *write, int status) {
    struct grpc_client_conn *conn = write->data;
    conn->writing = false;
    grpc_client_conn_written(conn);
    if (status < 0 && conn->phase != GRPC_CLIENT_CLOSED) {
        grpc_client_conn_fail(conn, uv_strerror(status));
    }
    grpc_client_schedule_deferred(conn->client);
}

/* What is left of the output. Returns: how many. */
static unsigned list_unsent(const struct grpc_client_conn *conn,
                            uv_buf_t bufs[GRPC_OUTPUT_PIECES]) {
    const struct grpc_output *output = conn->output;
    unsigned n = 0;
    size_t at = conn->at;
    for (size_t i = conn->piece; i < output->n; i++) {
        /* libuv's type has no const; nobody writes there. */
        bufs[n++] = (uv_buf_t){.base = (char *)(uintptr_t)output->pieces[i].data + at,
                               .len = output->pieces[i].n_bytes - at};
        at = 0;
    }
    return n;
}

static void write_output(struct grpc_client_conn *conn) {
    uv_buf_t bufs[GRPC_OUTPUT_PIECES];
    int rc = 0;
    for (unsigned tries = 0; conn->output && rc >= 0 && tries < MAX_TRIES; tries++) {
        rc = uv_try_write(&conn->uv.stream, bufs, list_unsent(conn, bufs));
        if (rc > 0) {
            grpc_client_conn_advance(conn, (size_t)rc);
        }
    }
    if (conn->output && (rc >= 0 || rc == UV_EAGAIN)) {
        conn->write.data = conn;
        rc = uv_write(&conn->write, &conn->uv.stream, bufs, list_unsent(conn, bufs), on_written);
        conn->writing = rc == 0;
    }
    if (rc < 0 && rc != UV_EAGAIN) {
        grpc_client_conn_fail(conn, uv_strerror(rc));
    }
}

/* ---- what there is to say -------------------------------------------------------------------- */

/* Collects and sends once. Returns: whether to go on. */
static bool collect_and_write(struct grpc_client_conn *conn) {
    struct grpc_client_core *core = &conn->client->core;
    struct grpc_output *output = output_take(core);
    if (!output) {
        grpc_client_conn_fail(conn, "no memory for a write");
        return false;
    }
    if (!grpc_client_session_collect_output(&conn->session, output)) {
        output_give(core, output);
        return false;
    }
    conn->output = output;
    conn->piece = conn->at = 0;
    (conn->client->tls ? grpc_client_tls_push : write_output)(conn);
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
    } else if (grpc_client_session_is_done(session) && conn->n_encrypted_writes == 0) {
        grpc_client_conn_fail(conn, "the connection ended");
    }
}

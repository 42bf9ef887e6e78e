/* Answers on their way out: a head in the exchange's arena and the pieces of the body from where
 * they lie, in one writev where the socket takes them. Small answers of pipelined requests are
 * gathered, so that many leave in one write. It refuses to copy a body that is not small. */
#include "net/http_conn.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/metric.h"
#include "loop/clock.h"

enum {
    MAX_GATHERED_BYTES = 4096, /* of one answer */
    MAX_TRIES = 8,             /* at once; then other connections have their turn */
    STACK_BUFS = 16,           /* more than that are listed in the arena */
};

/* What is to be sent: a list of buffers, all not empty. */
struct outgoing {
    uv_buf_t *bufs;
    unsigned n;
    size_t n_bytes;
    size_t n_body; /* of them, the body's */
};

/* ---- gathered answers ------------------------------------------------------------------------ */

/* Gathered answers that the socket did not take at once. */
struct flush {
    uv_write_t write;
    struct http_conn *conn;
    size_t n_bytes;
    char data[];
};

static void on_flushed(uv_write_t *write, int status) {
    struct flush *flush = (struct flush *)write;
    struct http_conn *conn = flush->conn;
    size_t n_bytes = flush->n_bytes;
    free(flush);
    conn->flushing = false;
    if (status < 0) {
        http_conn_close(conn);
        return;
    }
    metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)n_bytes);
    if (conn->stash) {
        http_shard_make_ready(conn->shard, conn);
    }
    http_conn_settle(conn);
}

static void flush_later(struct http_conn *conn, const char *data, size_t n_bytes) {
    struct flush *flush = malloc(sizeof(*flush) + n_bytes);
    if (!flush) {
        http_conn_close(conn);
        return;
    }
    flush->conn = conn;
    flush->n_bytes = n_bytes;
    memcpy(flush->data, data, n_bytes);
    uv_buf_t buf = {.base = flush->data, .len = n_bytes};
    conn->flushing = true;
    if (uv_write(&flush->write, &conn->uv.stream, &buf, 1, on_flushed) != 0) {
        conn->flushing = false;
        free(flush);
        http_conn_close(conn);
    }
}

/* Writes what the socket takes now. Returns: bytes, or a negative error that ends the
 * connection. */
static ssize_t try_write(struct http_conn *conn, uv_buf_t *bufs, unsigned n) {
    int rc = uv_try_write(&conn->uv.stream, bufs, n);
    if (rc > 0) {
        metric_add(METRIC_SENT_BYTES_TOTAL, rc);
    }
    return rc == UV_EAGAIN ? 0 : rc;
}

void http_write_flush(struct http_conn *conn) {
    struct http_shard *shard = conn->shard;
    if (shard->out_conn != conn) {
        return;
    }
    size_t len = shard->out_len;
    shard->out_len = 0;
    shard->out_conn = NULL;
    uv_buf_t buf = {.base = shard->out, .len = len};
    ssize_t n = try_write(conn, &buf, 1);
    if (n < 0) {
        http_conn_close(conn);
    } else if ((size_t)n < len) {
        flush_later(conn, shard->out + n, len - (size_t)n);
    }
}

/* Worth gathering: another answer follows, or came before. */
static bool may_gather(const struct http_conn *conn, size_t n_bytes) {
    const struct http_shard *shard = conn->shard;
    bool others = conn->ahead > 0 || shard->out_conn == conn;
    return conn->consuming && others && !conn->last && n_bytes <= MAX_GATHERED_BYTES;
}

static void gather(struct http_conn *conn, const struct outgoing *out) {
    struct http_shard *shard = conn->shard;
    shard->out_conn = conn;
    for (unsigned i = 0; i < out->n; i++) {
        memcpy(shard->out + shard->out_len, out->bufs[i].base, out->bufs[i].len);
        shard->out_len += out->bufs[i].len;
    }
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)out->n_body);
}

void http_write_continue(struct http_conn *conn) {
    static const char CONTINUE[] = "HTTP/1.1 100 Continue\r\n\r\n";
    char text[sizeof(CONTINUE)];
    memcpy(text, CONTINUE, sizeof(CONTINUE));
    uv_buf_t buf = {.base = text, .len = sizeof(CONTINUE) - 1};
    http_write_flush(conn);
    if (conn->state == HTTP_CONN_CLOSED) {
        return;
    }
    /* A socket that takes none of it has other answers to send first; the client will not wait for
     * ever (RFC 9110, 10.1.1). */
    ssize_t n = try_write(conn, &buf, 1);
    if (n != 0 && n != (ssize_t)buf.len) {
        http_conn_close(conn);
    }
}

/* ---- one answer ------------------------------------------------------------------------------ */

static void answer_sent(struct http_call *call) {
    struct http_conn *conn = call->conn;
    if (call->release) {
        call->release(call->cookie);
        call->release = NULL;
    }
    if (conn->state == HTTP_CONN_REPLY_SKIP) {
        http_conn_set_state(conn, HTTP_CONN_SKIP);
    } else {
        http_conn_next(conn);
    }
}

static void on_written(uv_write_t *write, int status) {
    struct http_call *call =
        (struct http_call *)(void *)((char *)write - offsetof(struct http_call, write));
    struct http_conn *conn = call->conn;
    call->writing = false;
    if (!conn) {
        http_call_end(call);
        return;
    }
    if (status < 0) {
        http_conn_close(conn);
        return;
    }
    metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)call->writing_bytes);
    answer_sent(call);
    http_conn_settle(conn);
}

/* Drops the first `n_bytes` of the list. */
static void outgoing_cut(struct outgoing *out, size_t n_bytes) {
    out->n_bytes -= n_bytes;
    while (out->n > 0 && n_bytes >= out->bufs->len) {
        n_bytes -= out->bufs->len;
        out->bufs++;
        out->n--;
    }
    if (n_bytes > 0) {
        out->bufs->base += n_bytes;
        out->bufs->len -= n_bytes;
    }
}

static void answer_send(struct http_call *call, struct outgoing *out) {
    struct http_conn *conn = call->conn;
    if (may_gather(conn, out->n_bytes)) {
        if (conn->shard->out_len + out->n_bytes > HTTP_OUT_BYTES) {
            http_write_flush(conn);
        }
        if (conn->state != HTTP_CONN_CLOSED && !conn->flushing) {
            gather(conn, out);
            answer_sent(call);
            return;
        }
    }
    http_write_flush(conn);
    if (conn->state == HTTP_CONN_CLOSED) {
        return;
    }
    /* What is large often leaves in two or three pieces while the client reads. */
    ssize_t n;
    unsigned tries = 0;
    do {
        n = try_write(conn, out->bufs, out->n);
        outgoing_cut(out, n > 0 ? (size_t)n : 0);
    } while (n > 0 && out->n_bytes > 0 && ++tries < MAX_TRIES);
    if (n >= 0 && out->n_bytes == 0) {
        answer_sent(call);
        return;
    }
    if (n >= 0) {
        call->writing_bytes = out->n_bytes;
        call->writing = true;
        n = uv_write(&call->write, &conn->uv.stream, out->bufs, out->n, on_written);
        call->writing = n == 0;
    }
    if (n < 0) {
        http_conn_close(conn);
    }
}

/* ---- replies --------------------------------------------------------------------------------- */

/* What becomes of the connection after this answer, and of a body that is still coming. */
static void decide(struct http_conn *conn, struct http_call *call, bool close) {
    const struct http_head *head = &call->exchange.head;
    bool whole = conn->state == HTTP_CONN_WAIT;
    bool skips = conn->state == HTTP_CONN_BODY && !conn->last && !close && head->keep_alive &&
                 !http_shard_is_draining(conn->shard) && http_receive_may_skip(call);
    conn->last = conn->last || close || http_shard_is_draining(conn->shard) || !head->keep_alive ||
                 !(whole || skips);
    /* A client that said it would close, and whose request is whole, sends nothing more. */
    conn->clean_end = whole && !head->keep_alive && conn->ahead == 0 && !conn->stash;
    http_conn_set_state(conn, skips ? HTTP_CONN_REPLY_SKIP : HTTP_CONN_REPLY);
    if (!whole) {
        http_body_release(&call->body, clock_now_ns());
    }
}

/* Lists head and pieces, in `arena`. Returns: false when out of memory. */
static bool outgoing_make(struct http_call *call, struct arena *arena,
                          const struct http_reply *reply, struct outgoing *out,
                          uv_buf_t stack[STACK_BUFS]) {
    struct http_exchange *exchange = &call->exchange;
    struct http1_reply head = {
        .status = reply->status,
        .common = http_shard_common(call->shard),
        .content_type = reply->content_type,
        .fields = reply->fields,
        .n_fields = reply->n_fields,
        .close = call->conn->last,
        .keep_alive = exchange->head.http10,
    };
    for (size_t i = 0; i < reply->n_pieces; i++) {
        head.content_length += reply->pieces[i].n_bytes;
    }
    struct buf text;
    buf_init(&text, arena, 0);
    http1_reply_print(&text, &head);
    out->bufs = stack;
    if (reply->n_pieces >= STACK_BUFS) {
        out->bufs = arena_calloc(arena, reply->n_pieces + 1, sizeof(*out->bufs));
    }
    if (text.failed || !out->bufs) {
        return false;
    }
    out->bufs[0] = (uv_buf_t){.base = text.data, .len = text.len};
    out->n = 1;
    out->n_body = exchange->suppress_body ? 0 : (size_t)head.content_length;
    out->n_bytes = text.len + out->n_body;
    for (size_t i = 0; i < reply->n_pieces && !exchange->suppress_body; i++) {
        if (reply->pieces[i].n_bytes > 0) {
            /* libuv's type has no const; nobody writes there. */
            out->bufs[out->n].base = (char *)(uintptr_t)reply->pieces[i].data;
            out->bufs[out->n++].len = reply->pieces[i].n_bytes;
        }
    }
    return true;
}

void http_reply(struct http_exchange *exchange, const struct http_reply *reply) {
    struct http_call *call = (struct http_call *)exchange;
    struct http_conn *conn = call->conn;
    assert(!call->replied);
    call->replied = true;
    call->release = reply->release;
    call->cookie = reply->cookie;
    if (!conn) {
        http_call_end(call);
        return;
    }
    metric_add(METRIC_REQUESTS_TOTAL, 1);
    decide(conn, call, reply->close);
    uv_buf_t stack[STACK_BUFS];
    struct outgoing out;
    if (outgoing_make(call, exchange->arena, reply, &out, stack) ||
        (http_call_spare(call) && outgoing_make(call, call->spare, reply, &out, stack))) {
        answer_send(call, &out);
    } else {
        http_conn_close(conn);
    }
    if (!conn->consuming) {
        http_conn_settle(conn);
    }
}

/* Returns: the content type; NULL when there is no memory for a body. */
static const char *error_print(struct http_call *call, struct arena *arena,
                               const struct error *error, struct piece *piece) {
    const struct http_handler *handler = &call->shard->server->handler;
    struct buf body;
    buf_init(&body, arena, 0);
    const char *type = handler->error_body(&body, error, handler->context);
    *piece = (struct piece){body.data, body.len};
    return body.failed ? NULL : type;
}

void http_reply_error(struct http_exchange *exchange, const struct error *error,
                      const struct http_field *fields, size_t n_fields) {
    struct http_call *call = (struct http_call *)exchange;
    struct piece piece;
    const char *type = error_print(call, exchange->arena, error, &piece);
    if (!type && http_call_spare(call)) {
        type = error_print(call, call->spare, error, &piece);
    }
    if (status_http(error->status) >= 500) {
        log_event(LOG_DEBUG, "request failed", LOG_TEXT_OF("reason", error->text));
    }
    http_reply(exchange, &(struct http_reply){.status = status_http(error->status),
                                              .content_type = type,
                                              .fields = fields,
                                              .n_fields = n_fields,
                                              .pieces = &piece,
                                              .n_pieces = type != NULL});
}

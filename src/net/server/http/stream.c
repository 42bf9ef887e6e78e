/* Streamed responses: chunks that the socket does not take at once are queued and sent in order, in
 * place. They are not coalesced: each is news for the client. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/metric/metric.h"
#include "net/server/http/conn.h"

enum { SIZE_BYTES = 20 }; /* of a chunk size in hexadecimal, and CRLF */

/* A chunk with its framing. */
struct http_chunk {
    STAILQ_ENTRY(http_chunk) link;
    void (*release)(void *user);
    void *user;
    char size[SIZE_BYTES];
    struct net_outgoing out;
    uv_buf_t bufs[];
};

static struct http_chunk *chunk_new(size_t n_bufs) {
    struct http_chunk *chunk = calloc(1, sizeof(*chunk) + n_bufs * sizeof(chunk->bufs[0]));
    if (chunk) {
        chunk->out.bufs = chunk->bufs;
    }
    return chunk;
}

static void chunk_free(void *user) {
    struct http_chunk *chunk = user;
    if (chunk->release) {
        chunk->release(chunk->user);
    }
    free(chunk);
}

void http_stream_clear(struct http_call *call) {
    while (!STAILQ_EMPTY(&call->chunks)) {
        struct http_chunk *chunk = STAILQ_FIRST(&call->chunks);
        STAILQ_REMOVE_HEAD(&call->chunks, link);
        chunk_free(chunk);
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Sends queued chunks until the socket is full; after the last one the connection continues. A
 * connection closed meanwhile clears the queue. */
static void send_chunks(struct http_call *call) {
    struct net_call *base = &call->base;
    while (base->conn && !base->writing && !STAILQ_EMPTY(&call->chunks)) {
        struct http_chunk *chunk = STAILQ_FIRST(&call->chunks);
        STAILQ_REMOVE_HEAD(&call->chunks, link);
        base->release = chunk_free;
        base->user = chunk;
        net_call_send(base, &chunk->out);
        if (!base->writing) {
            net_call_release_reply(base);
        }
    }
    if (base->conn && !base->writing && base->replied) {
        request_response_on_reply_sent((struct request_response_conn *)base->conn);
    }
}

void http_stream_on_written(struct net_call *base) {
    if (!base->is_streaming) {
        request_response_on_written(base);
        return;
    }
    net_call_release_reply(base);
    send_chunks((struct http_call *)base);
}

static void send_chunks_and_update_io(struct http_call *call) {
    struct net_conn *conn = call->base.conn;
    send_chunks(call);
    if (!conn->consuming) {
        net_conn_update_io(conn);
    }
}

/* ---- begin, send, end ------------------------------------------------------------------------ */

static struct http_chunk *head_chunk_new(struct http_call *call, const struct http_reply *reply) {
    struct http_exchange *exchange = &call->exchange;
    struct http1_response_head head = {
        .status = reply->status,
        .common = http_reply_common_fields(call->base.server_worker),
        .content_type = reply->content_type,
        .fields = reply->fields,
        .n_fields = reply->n_fields,
        .allow_origin = exchange->allow_origin,
        .chunked = !exchange->head.http10,
        .until_close = exchange->head.http10,
        .close = call->base.conn->close_after_reply,
    };
    struct buf text;
    buf_init(&text, exchange->arena, 0);
    http1_response_head_print(&text, &head);
    struct http_chunk *chunk = text.failed ? NULL : chunk_new(1);
    if (chunk) {
        net_outgoing_add(&chunk->out, text.data, text.len);
    }
    return chunk;
}

void http1_stream_begin(struct http_exchange *exchange, const struct http_reply *reply) {
    struct http_call *call = http_call_of(exchange);
    struct request_response_conn *conn = (struct request_response_conn *)call->base.conn;
    assert(!call->base.replied && !call->base.is_streaming);
    call->base.is_streaming = true;
    STAILQ_INIT(&call->chunks);
    if (!conn) {
        return;
    }
    metric_add(METRIC_REQUESTS_TOTAL, 1);
    http_reply_decide_keep_alive(conn, call, reply->close || exchange->head.http10);
    struct http_chunk *head = head_chunk_new(call, reply);
    if (!head) {
        net_conn_close(&conn->net);
        return;
    }
    STAILQ_INSERT_TAIL(&call->chunks, head, link);
    send_chunks_and_update_io(call);
}

static struct http_chunk *data_chunk_new(const struct http_call *call, const struct piece *pieces,
                                         size_t n_pieces) {
    bool framed = !call->exchange.head.http10;
    struct http_chunk *chunk = n_pieces > 0 ? chunk_new(n_pieces + 2) : NULL;
    size_t n_bytes = 0;
    if (!chunk) {
        return NULL;
    }
    for (size_t i = 0; i < n_pieces; i++) {
        n_bytes += pieces[i].n_bytes;
    }
    assert(n_bytes > 0); /* an empty chunk would end the body */
    if (framed) {
        int n = snprintf(chunk->size, SIZE_BYTES, "%zx\r\n", n_bytes);
        net_outgoing_add(&chunk->out, chunk->size, (size_t)n);
    }
    for (size_t i = 0; i < n_pieces; i++) {
        net_outgoing_add(&chunk->out, pieces[i].data, pieces[i].n_bytes);
    }
    if (framed) {
        net_outgoing_add(&chunk->out, "\r\n", 2);
    }
    return chunk;
}

void http1_stream_send(struct http_exchange *exchange, const struct piece *pieces, size_t n_pieces,
                       void (*release)(void *user), void *user) {
    struct http_call *call = http_call_of(exchange);
    struct net_conn *conn = call->base.conn;
    struct http_chunk *chunk = conn ? data_chunk_new(call, pieces, n_pieces) : NULL;
    assert(call->base.is_streaming && !call->base.replied);
    if (!chunk) {
        if (release) {
            release(user);
        }
        if (conn) { /* the body must not look complete without it */
            net_conn_close(conn);
        }
        return;
    }
    chunk->release = release;
    chunk->user = user;
    STAILQ_INSERT_TAIL(&call->chunks, chunk, link);
    send_chunks_and_update_io(call);
}

void http1_stream_end(struct http_exchange *exchange) {
    static const char LAST[] = "0\r\n\r\n";
    struct http_call *call = http_call_of(exchange);
    struct net_call *base = &call->base;
    bool framed = base->conn && !exchange->head.http10;
    struct http_chunk *last = framed ? chunk_new(1) : NULL;
    assert(base->is_streaming && !base->replied);
    if (framed && !last) {
        net_conn_close(base->conn);
    }
    base->replied = true;
    if (!base->conn) {
        if (!base->writing) {
            net_call_finish(base);
        }
        return;
    }
    if (last) {
        net_outgoing_add(&last->out, LAST, sizeof(LAST) - 1);
        STAILQ_INSERT_TAIL(&call->chunks, last, link);
    }
    send_chunks_and_update_io(call);
}

/* Answers in pieces: what comes while the socket is busy is listed, and sent one after the other
 * from where it lies. It refuses to gather: each piece is news that somebody waits for. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/metric/metric.h"
#include "net/server/http/conn.h"

enum { SIZE_BYTES = 20 }; /* of a chunk in hexadecimal, and CRLF */

/* A piece of the answer with what frames it. */
struct http_chunk {
    struct http_chunk *next;
    void (*release)(void *cookie);
    void *cookie;
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

static void chunk_free(void *cookie) {
    struct http_chunk *chunk = cookie;
    if (chunk->release) {
        chunk->release(chunk->cookie);
    }
    free(chunk);
}

void http_stream_drop(struct http_call *call) {
    while (call->first_chunk) {
        struct http_chunk *chunk = call->first_chunk;
        call->first_chunk = chunk->next;
        chunk_free(chunk);
    }
    call->chunks_end = &call->first_chunk;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Sends what is listed, as far as the socket takes it; after the last piece the connection goes on.
 * A connection that is lost meanwhile empties the list. */
static void pump(struct http_call *call) {
    struct net_call *base = &call->base;
    while (base->conn && !base->writing && call->first_chunk) {
        struct http_chunk *chunk = call->first_chunk;
        call->first_chunk = chunk->next;
        call->chunks_end = chunk->next ? call->chunks_end : &call->first_chunk;
        base->release = chunk_free;
        base->cookie = chunk;
        net_call_send(base, &chunk->out);
        if (!base->writing) {
            net_call_release(base);
        }
    }
    if (base->conn && !base->writing && base->replied) {
        serial_answered((struct serial_conn *)base->conn);
    }
}

void http_stream_on_written(struct net_call *base) {
    if (!base->streams) {
        serial_on_written(base);
        return;
    }
    net_call_release(base);
    pump((struct http_call *)base);
}

static void pump_and_settle(struct http_call *call) {
    struct net_conn *conn = call->base.conn;
    pump(call);
    if (!conn->consuming) {
        net_conn_settle(conn);
    }
}

static void add(struct http_call *call, struct http_chunk *chunk) {
    *call->chunks_end = chunk;
    call->chunks_end = &chunk->next;
}

/* ---- beginning, pieces, end ------------------------------------------------------------------ */

static struct http_chunk *head_make(struct http_call *call, const struct http_reply *reply) {
    struct http_exchange *exchange = &call->exchange;
    struct http1_reply head = {
        .status = reply->status,
        .common = http_reply_common(call->base.shard),
        .content_type = reply->content_type,
        .fields = reply->fields,
        .n_fields = reply->n_fields,
        .chunked = !exchange->head.http10,
        .until_close = exchange->head.http10,
        .close = call->base.conn->last,
    };
    struct buf text;
    buf_init(&text, exchange->arena, 0);
    http1_reply_print(&text, &head);
    struct http_chunk *chunk = text.failed ? NULL : chunk_new(1);
    if (chunk) {
        net_outgoing_add(&chunk->out, text.data, text.len);
    }
    return chunk;
}

void http_stream_begin(struct http_exchange *exchange, const struct http_reply *reply) {
    struct http_call *call = http_call_of(exchange);
    struct serial_conn *conn = (struct serial_conn *)call->base.conn;
    assert(!call->base.replied && !call->base.streams);
    call->base.streams = true;
    call->chunks_end = &call->first_chunk;
    if (!conn) {
        return;
    }
    metric_add(METRIC_REQUESTS_TOTAL, 1);
    http_reply_decide(conn, call, reply->close || exchange->head.http10);
    struct http_chunk *head = head_make(call, reply);
    if (!head) {
        net_conn_close(&conn->net);
        return;
    }
    add(call, head);
    pump_and_settle(call);
}

static struct http_chunk *chunk_make(const struct http_call *call, const struct piece *pieces,
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
    assert(n_bytes > 0); /* an empty chunk would be the end */
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

void http_stream_send(struct http_exchange *exchange, const struct piece *pieces, size_t n_pieces,
                      void (*release)(void *cookie), void *cookie) {
    struct http_call *call = http_call_of(exchange);
    struct net_conn *conn = call->base.conn;
    struct http_chunk *chunk = conn ? chunk_make(call, pieces, n_pieces) : NULL;
    assert(call->base.streams && !call->base.replied);
    if (!chunk) {
        if (release) {
            release(cookie);
        }
        if (conn) { /* to leave it out would be a lie */
            net_conn_close(conn);
        }
        return;
    }
    chunk->release = release;
    chunk->cookie = cookie;
    add(call, chunk);
    pump_and_settle(call);
}

void http_stream_end(struct http_exchange *exchange) {
    static const char LAST[] = "0\r\n\r\n";
    struct http_call *call = http_call_of(exchange);
    struct net_call *base = &call->base;
    bool framed = base->conn && !exchange->head.http10;
    struct http_chunk *last = framed ? chunk_new(1) : NULL;
    assert(base->streams && !base->replied);
    if (framed && !last) {
        net_conn_close(base->conn);
    }
    base->replied = true;
    if (!base->conn) {
        if (!base->writing) {
            net_call_end(base);
        }
        return;
    }
    if (last) {
        net_outgoing_add(&last->out, LAST, sizeof(LAST) - 1);
        add(call, last);
    }
    pump_and_settle(call);
}

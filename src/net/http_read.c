/* Bytes from the client: read into the worker's buffer, or straight into a body, and handed to
 * whoever the state says, request after request in a loop. What comes while an answer is still
 * being made waits in the connection's stash; there is one, and while it is full nothing is read.
 * It refuses to know what the bytes mean. */
#include "net/http_conn.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/metric.h"

/* ---- what the state does with bytes ---------------------------------------------------------- */

static void discard(struct http_conn *conn, struct str *data) {
    conn->discarded += data->len;
    *data = str_make(data->ptr + data->len, 0);
    if (conn->state == HTTP_CONN_LINGER &&
        conn->discarded > conn->shard->server->limits.discard_bytes) {
        http_conn_close(conn);
    }
}

static void begin(struct http_conn *conn) {
    conn->call = http_call_new(conn);
    if (!conn->call) {
        http_conn_close(conn);
        return;
    }
    conn->discarded = 0;
    http_conn_set_state(conn, HTTP_CONN_HEAD);
}

static void read_head(struct http_conn *conn, struct str *data) {
    enum http1_request_event event;
    struct str body;
    struct error err;
    enum status st = http1_request_step(conn->call->request, data, &event, &body, &err);
    conn->ahead = data->len;
    if (st != ST_OK) {
        http_reply_error(&conn->call->exchange, &err, NULL, 0);
    } else if (event == HTTP1_REQUEST_HEAD) {
        http_receive_head(conn);
    }
}

/* Hands bytes to the state. Returns: false when they have to wait. */
static bool step(struct http_conn *conn, struct str *data) {
    switch ((enum http_conn_state)conn->state) {
    case HTTP_CONN_IDLE:
        if (conn->flushing) {
            return false;
        }
        begin(conn);
        return true;
    case HTTP_CONN_HEAD:
        read_head(conn, data);
        return true;
    case HTTP_CONN_BODY:
        http_receive_body(conn, data);
        return true;
    case HTTP_CONN_REPLY_SKIP:
    case HTTP_CONN_SKIP:
        http_receive_skip(conn, data);
        return true;
    case HTTP_CONN_WAIT:
    case HTTP_CONN_REPLY:
        if (!conn->last) {
            return false;
        }
        discard(conn, data);
        return true;
    case HTTP_CONN_LINGER:
    case HTTP_CONN_CLOSED:
    case HTTP_CONN_STATES:
        break;
    }
    discard(conn, data);
    return true;
}

/* Returns: the bytes that have to wait. */
static struct str consume(struct http_conn *conn, struct str data) {
    assert(!conn->consuming);
    conn->consuming = true;
    while (data.len > 0 && step(conn, &data)) {
        http_shard_sweep(conn->shard);
    }
    conn->consuming = false;
    conn->ahead = 0;
    return data;
}

/* ---- the stash ------------------------------------------------------------------------------- */

static void stash_copy(struct http_conn *conn, struct str data) {
    assert(!conn->stash && data.len <= HTTP_READ_BYTES);
    conn->stash = malloc(data.len);
    if (!conn->stash) {
        http_conn_close(conn);
        return;
    }
    memcpy(conn->stash, data.ptr, data.len);
    conn->stash_at = 0;
    conn->stash_len = data.len;
}

void http_conn_run_stash(struct http_conn *conn) {
    char *stash = conn->stash;
    if (!stash || conn->state == HTTP_CONN_CLOSED) {
        return;
    }
    struct str data = str_make(stash + conn->stash_at, conn->stash_len - conn->stash_at);
    conn->stash = NULL;
    data = consume(conn, data);
    if (data.len > 0) {
        conn->stash = stash;
        conn->stash_at = conn->stash_len - data.len;
    } else {
        free(stash);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct http_conn *conn = handle->data;
    struct http_call *call = conn->call;
    (void)suggested;
    if (conn->state == HTTP_CONN_BODY && call->body.in_place) {
        size_t n_bytes;
        buf->base = http_body_room(&call->body, &n_bytes);
        buf->len = n_bytes;
    } else {
        buf->base = conn->shard->in;
        buf->len = HTTP_READ_BYTES;
    }
}

/* The client sends nothing more; or nothing more can be sent to it either. */
static void input_ended(struct http_conn *conn, bool half_closed) {
    conn->eof = true;
    conn->reading = false; /* libuv has stopped by itself */
    switch ((enum http_conn_state)conn->state) {
    case HTTP_CONN_WAIT:
    case HTTP_CONN_REPLY:
        conn->last = true; /* the request is whole: it gets its answer */
        break;
    case HTTP_CONN_REPLY_SKIP:
        conn->last = true;
        http_conn_set_state(conn, HTTP_CONN_REPLY);
        break;
    case HTTP_CONN_IDLE:
    case HTTP_CONN_HEAD:
    case HTTP_CONN_BODY:
    case HTTP_CONN_SKIP:
    case HTTP_CONN_LINGER:
    case HTTP_CONN_CLOSED:
    case HTTP_CONN_STATES:
        half_closed = false;
        break;
    }
    if (!half_closed) {
        http_conn_close(conn);
    }
}

/* Is what looks like the end of the input the end of the connection? libuv reports a reset as an
 * end when bytes arrived before it; only the kernel knows that nobody can be answered any more. */
static bool is_gone(const struct http_conn *conn) {
    uv_os_fd_t fd;
    if (uv_fileno(&conn->uv.handle, &fd) != 0) {
        return true;
    }
    struct pollfd polled = {.fd = fd};
    return poll(&polled, 1, 0) == 1 && (polled.revents & (POLLERR | POLLHUP)) != 0;
}

/* A full buffer that is no plain body is work (many requests, or a text to decompress), and libuv
 * would read on at once: others have their turn first. */
static void take_turns(struct http_conn *conn, ssize_t n_read) {
    bool plain = conn->state == HTTP_CONN_LINGER || conn->state == HTTP_CONN_CLOSED ||
                 (conn->state == HTTP_CONN_BODY && conn->call->body.in_place);
    if (n_read == HTTP_READ_BYTES && !plain) {
        http_shard_make_ready(conn->shard, conn);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf) {
    struct http_conn *conn = stream->data;
    if (n_read == 0) {
        return; /* nothing there after all */
    }
    if (n_read < 0) {
        input_ended(conn, n_read == UV_EOF && !is_gone(conn));
    } else {
        metric_add(METRIC_RECEIVED_BYTES_TOTAL, n_read);
        if (buf->base != conn->shard->in) {
            http_receive_in_place(conn, (size_t)n_read);
            http_shard_sweep(conn->shard);
        } else {
            struct str rest = consume(conn, str_make(buf->base, (size_t)n_read));
            if (rest.len > 0 && conn->state != HTTP_CONN_CLOSED) {
                stash_copy(conn, rest);
            }
            take_turns(conn, n_read);
        }
    }
    http_conn_settle(conn);
}

void http_conn_read_start(struct http_conn *conn) {
    if (!conn->reading) {
        conn->reading = uv_read_start(&conn->uv.stream, on_alloc, on_read) == 0;
    }
}

void http_conn_read_stop(struct http_conn *conn) {
    if (conn->reading) {
        uv_read_stop(&conn->uv.stream);
        conn->reading = false;
    }
}

/* For client tests: a gRPC server in the test's own thread, on a Unix socket, by nghttp2. The test
 * steps the client and the server by turns (h2_peer_settle), looks at the requests that came and
 * answers them one by one, as well or badly as it wants. */
#ifndef SLUICE_CLIENT_TEST_H2_PEER_H
#define SLUICE_CLIENT_TEST_H2_PEER_H

#include <nghttp2/nghttp2.h>

#include "client/test_peer.h"

enum { H2_PEER_CONNS = 8, H2_PEER_REQUESTS = 64, H2_PEER_FIELDS = 96, H2_PEER_BODY = 1 << 18 };

struct h2_field {
    char name[64], value[256];
};

struct h2_peer_conn;

/* A request, and the answer while it is sent. */
struct h2_request {
    struct h2_peer_conn *conn;
    int32_t id;
    struct h2_field fields[H2_PEER_FIELDS];
    size_t n_fields;
    char *body; /* its beginning */
    size_t n_body, n_all;
    bool ended; /* END_STREAM came */
    bool reset; /* RST_STREAM came */
    uint32_t reset_code;
    const char *out; /* the body of the answer */
    size_t n_out, out_at;
    const struct h2_field *trailers;
    size_t n_trailers;
};

struct h2_peer_conn {
    int fd; /* -1: closed */
    nghttp2_session *h2;
    bool ended; /* the client closed it */
    char pending[1 << 15];
    size_t n_pending; /* bytes that the socket did not take */
};

/* The server. */
struct h2_peer {
    struct peer peer; /* the listener, and its URL with another scheme */
    char url[128];
    struct h2_peer_conn conns[H2_PEER_CONNS];
    size_t n_conns;
    struct h2_request requests[H2_PEER_REQUESTS];
    size_t n_requests;
    uint32_t max_streams; /* of new connections */
    bool reads_nothing;   /* the sockets of the clients fill up */
    bool is_silent;       /* says nothing, not even its SETTINGS */
    bool says_goaway;     /* ends new connections at once */
};

static inline struct h2_request *h2_request_of(struct h2_peer *side, int32_t id,
                                               nghttp2_session *h2) {
    for (size_t i = side->n_requests; i-- > 0;) {
        if (side->requests[i].id == id && side->requests[i].conn->h2 == h2) {
            return &side->requests[i];
        }
    }
    return NULL;
}

static inline int h2_on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                               size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags,
                               void *user) {
    struct h2_peer *side = user;
    struct h2_request *request = h2_request_of(side, frame->hd.stream_id, h2);
    (void)flags;
    if (!request) {
        struct h2_peer_conn *conn = NULL;
        for (size_t i = 0; i < side->n_conns; i++) {
            conn = side->conns[i].h2 == h2 ? &side->conns[i] : conn;
        }
        assert(conn && side->n_requests < H2_PEER_REQUESTS);
        request = &side->requests[side->n_requests++];
        *request = (struct h2_request){
            .conn = conn, .id = frame->hd.stream_id, .body = malloc(H2_PEER_BODY)};
    }
    assert(request->n_fields < H2_PEER_FIELDS);
    struct h2_field *field = &request->fields[request->n_fields++];
    snprintf(field->name, sizeof(field->name), "%.*s", (int)n_name, (const char *)name);
    snprintf(field->value, sizeof(field->value), "%.*s", (int)n_value, (const char *)value);
    return 0;
}

static inline int h2_on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data,
                             size_t n_bytes, void *user) {
    struct h2_request *request = h2_request_of(user, id, h2);
    (void)flags;
    if (request) {
        request->n_all += n_bytes;
        size_t n = H2_PEER_BODY - request->n_body;
        n = n_bytes < n ? n_bytes : n;
        memcpy(request->body + request->n_body, data, n);
        request->n_body += n;
    }
    return 0;
}

static inline int h2_on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct h2_request *request = h2_request_of(user, frame->hd.stream_id, h2);
    if (request && frame->hd.type == NGHTTP2_RST_STREAM) {
        request->reset = true;
        request->reset_code = frame->rst_stream.error_code;
    } else if (request && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        request->ended = true;
    }
    return 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

static inline void h2_peer_open(struct h2_peer *side) {
    memset(side, 0, sizeof(*side));
    peer_open(&side->peer, true);
    snprintf(side->url, sizeof(side->url), "grpc+unix:%s", side->peer.address.sun_path);
    side->max_streams = 100;
}

static inline void h2_peer_disconnect(struct h2_peer_conn *conn) {
    if (conn->fd >= 0) {
        close(conn->fd);
    }
    conn->fd = -1;
    nghttp2_session_del(conn->h2);
    conn->h2 = NULL;
}

static inline void h2_peer_close(struct h2_peer *side) {
    for (size_t i = 0; i < side->n_conns; i++) {
        h2_peer_disconnect(&side->conns[i]);
    }
    for (size_t i = 0; i < side->n_requests; i++) {
        free(side->requests[i].body);
    }
    peer_close(&side->peer);
}

static inline void h2_peer_accept(struct h2_peer *side) {
    struct pollfd fd = {.fd = side->peer.listener, .events = POLLIN};
    nghttp2_session_callbacks *callbacks;
    if (poll(&fd, 1, 0) <= 0) {
        return;
    }
    assert(side->n_conns < H2_PEER_CONNS);
    struct h2_peer_conn *conn = &side->conns[side->n_conns++];
    conn->fd = accept(side->peer.listener, NULL, NULL);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, h2_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, h2_on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, h2_on_frame);
    nghttp2_session_server_new(&conn->h2, callbacks, side);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                             side->max_streams};
    nghttp2_submit_settings(conn->h2, NGHTTP2_FLAG_NONE, &settings, 1);
    if (side->says_goaway) {
        nghttp2_submit_goaway(conn->h2, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
    }
}

static inline bool h2_peer_read(struct h2_peer_conn *conn) {
    static uint8_t bytes[1 << 16];
    ssize_t n = recv(conn->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        conn->ended = true;
        return false;
    }
    if (n > 0) {
        (void)nghttp2_session_mem_recv(conn->h2, bytes, (size_t)n);
    }
    return n > 0;
}

/* Returns: whether all was sent. */
static inline bool h2_peer_send(struct h2_peer_conn *conn, const void *data, size_t n_bytes) {
    ssize_t n = send(conn->fd, data, n_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    conn->ended = n < 0 && errno != EAGAIN; /* the client has closed it */
    size_t n_sent = n > 0 ? (size_t)n : 0;
    conn->n_pending = n_bytes - n_sent;
    memmove(conn->pending, (const char *)data + n_sent, conn->n_pending);
    return conn->n_pending == 0;
}

static inline bool h2_peer_write(struct h2_peer_conn *conn) {
    const uint8_t *data;
    ssize_t n = 0;
    bool any = conn->n_pending > 0, open = true;
    if (any) {
        open = h2_peer_send(conn, conn->pending, conn->n_pending);
    }
    while (open && !conn->ended && (n = nghttp2_session_mem_send(conn->h2, &data)) > 0) {
        any = true;
        assert((size_t)n <= sizeof(conn->pending));
        open = h2_peer_send(conn, data, (size_t)n);
    }
    return any && !conn->ended;
}

/* Steps client and server until neither has anything to do. */
static inline void h2_peer_settle(struct h2_peer *side, sluice_client *client) {
    bool moved = true;
    while (moved) {
        moved = false;
        sluice_client_step(client);
        h2_peer_accept(side);
        for (size_t i = 0; i < side->n_conns; i++) {
            struct h2_peer_conn *conn = &side->conns[i];
            if (conn->fd < 0 || conn->ended || side->is_silent) {
                continue;
            }
            moved |= !side->reads_nothing && h2_peer_read(conn);
            moved |= h2_peer_write(conn);
        }
        moved |= sluice_client_timeout_ns(client) == 0;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Returns: the value of a header field of the request; NULL: none. */
static inline const char *h2_request_field(const struct h2_request *request, const char *name) {
    for (size_t i = 0; i < request->n_fields; i++) {
        if (strcmp(request->fields[i].name, name) == 0) {
            return request->fields[i].value;
        }
    }
    return NULL;
}

static inline size_t h2_nv(nghttp2_nv *out, const struct h2_field *fields, size_t n) {
    for (size_t i = 0; i < n; i++) {
        out[i] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)fields[i].name,
                              .value = (uint8_t *)(uintptr_t)fields[i].value,
                              .namelen = strlen(fields[i].name),
                              .valuelen = strlen(fields[i].value)};
    }
    return n;
}

static inline ssize_t h2_read_out(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                                  uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct h2_request *request = source->ptr;
    nghttp2_nv nv[8];
    size_t n = request->n_out - request->out_at;
    (void)user;
    n = n < length ? n : length;
    memcpy(buf, request->out + request->out_at, n);
    request->out_at += n;
    if (request->out_at == request->n_out) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (request->n_trailers > 0) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            nghttp2_submit_trailer(h2, id, nv, h2_nv(nv, request->trailers, request->n_trailers));
        }
    }
    return (ssize_t)n;
}

/* An answer of fields, bytes and trailers; without bytes and trailers the fields are all. The
 * arrays must stay until it is sent. */
static inline void h2_answer(struct h2_request *request, const struct h2_field *fields,
                             size_t n_fields, const char *out, size_t n_out,
                             const struct h2_field *trailers, size_t n_trailers) {
    nghttp2_nv nv[8];
    nghttp2_data_provider provider = {.source.ptr = request, .read_callback = h2_read_out};
    request->out = out;
    request->n_out = n_out;
    request->trailers = trailers;
    request->n_trailers = n_trailers;
    int code =
        nghttp2_submit_response(request->conn->h2, request->id, nv, h2_nv(nv, fields, n_fields),
                                n_out > 0 || n_trailers > 0 ? &provider : NULL);
    assert(code == 0);
}

static const struct h2_field H2_HEAD[] = {{":status", "200"}, {"content-type", "application/grpc"}};
static const struct h2_field H2_OK[] = {{"grpc-status", "0"}, {"after", "all"}};

/* A good answer; `framed`: messages with their prefixes. */
static inline void h2_answer_ok(struct h2_request *request, const char *framed, size_t n_bytes) {
    h2_answer(request, H2_HEAD, 2, framed, n_bytes, H2_OK, 2);
}

#endif

/* Fixture for the gRPC tests: an nghttp2 client without a socket that records the responses. */
#ifndef SLUICE_NET_CLIENT_GRPC_GRPC_CLIENT_FIXTURE_H
#define SLUICE_NET_CLIENT_GRPC_GRPC_CLIENT_FIXTURE_H

#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/grpc/text.h"

enum { MOST_CLIENT_CALLS = 4096 };

/* A call as the client sees it. */
struct client_call {
    int32_t id;
    char *out; /* framed messages to send */
    size_t out_at, out_len;
    bool out_end; /* END_STREAM after it */
    char *in;     /* received */
    size_t in_len, in_cap;
    char status[8], grpc_status[8], message[512], coding[16], trailer[64];
    bool closed;
    uint32_t code; /* of the reset */
};

struct client {
    nghttp2_session *h2;
    struct client_call calls[MOST_CLIENT_CALLS];
    size_t n;
    bool goaway;
    uint32_t goaway_code;
    int32_t goaway_last;
    char goaway_text[256];
    int n_ping_acks;
    bool stingy; /* sends no WINDOW_UPDATE once the window is used up; set before it is opened */
};

static inline struct client_call *client_find(struct client *client, int32_t id) {
    for (size_t i = 0; i < client->n; i++) {
        if (client->calls[i].id == id) {
            return &client->calls[i];
        }
    }
    return NULL;
}

static inline void keep_text(char *out, size_t room, const uint8_t *value, size_t len) {
    snprintf(out, room, "%.*s", (int)len, (const char *)value);
}

static inline int client_on_header(nghttp2_session *h2, const nghttp2_frame *frame,
                                   const uint8_t *name, size_t name_len, const uint8_t *value,
                                   size_t value_len, uint8_t flags, void *user) {
    struct client_call *call = client_find(user, frame->hd.stream_id);
    struct str key = str_make((const char *)name, name_len);
    (void)h2, (void)flags;
    if (!call) {
        return 0;
    }
    if (str_is(key, ":status")) {
        keep_text(call->status, sizeof(call->status), value, value_len);
    } else if (str_is(key, "grpc-status")) {
        keep_text(call->grpc_status, sizeof(call->grpc_status), value, value_len);
    } else if (str_is(key, "grpc-message")) {
        keep_text(call->message, sizeof(call->message), value, value_len);
    } else if (str_is(key, "grpc-encoding")) {
        keep_text(call->coding, sizeof(call->coding), value, value_len);
    } else if (!str_is(key, "content-type")) {
        keep_text(call->trailer, sizeof(call->trailer), value, value_len);
    }
    return 0;
}

static inline int client_on_data(nghttp2_session *h2, uint8_t flags, int32_t id,
                                 const uint8_t *data, size_t len, void *user) {
    struct client_call *call = client_find(user, id);
    (void)h2, (void)flags;
    if (call->in_len + len > call->in_cap) {
        call->in_cap = 2 * (call->in_len + len);
        call->in = realloc(call->in, call->in_cap);
    }
    memcpy(call->in + call->in_len, data, len);
    call->in_len += len;
    return 0;
}

static inline int client_on_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user) {
    struct client_call *call = client_find(user, id);
    (void)h2;
    if (call) {
        call->closed = true;
        call->code = code;
    }
    return 0;
}

static inline int client_on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct client *client = user;
    (void)h2;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        client->goaway = true;
        client->goaway_code = frame->goaway.error_code;
        client->goaway_last = frame->goaway.last_stream_id;
        keep_text(client->goaway_text, sizeof(client->goaway_text), frame->goaway.opaque_data,
                  frame->goaway.opaque_data_len);
    }
    client->n_ping_acks += frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK;
    return 0;
}

static inline ssize_t client_on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                                     uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct client_call *call = client_find(user, id);
    size_t n = call->out_len - call->out_at;
    (void)h2, (void)source;
    n = n < length ? n : length;
    if (n > 0) {
        memcpy(buf, call->out + call->out_at, n);
        call->out_at += n;
    }
    if (call->out_at == call->out_len && call->out_end) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    } else if (n == 0) {
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

static inline void client_open(struct client *client, const nghttp2_settings_entry *settings,
                               size_t n_settings) {
    nghttp2_session_callbacks *callbacks;
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, client_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, client_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, client_on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, client_on_frame);
    nghttp2_option *option;
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_auto_window_update(option, client->stingy);
    assert_int_equal(nghttp2_session_client_new2(&client->h2, callbacks, client, option), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    assert_int_equal(nghttp2_submit_settings(client->h2, NGHTTP2_FLAG_NONE, settings, n_settings),
                     0);
}

static inline void client_close(struct client *client) {
    for (size_t i = 0; i < client->n; i++) {
        free(client->calls[i].out);
        free(client->calls[i].in);
    }
    nghttp2_session_del(client->h2);
}

static inline nghttp2_nv client_nv(const char *name, const char *value) {
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/* Starts a call with these fields (name, value, …, NULL). */
static inline struct client_call *client_begin(struct client *client, const char *path,
                                               const char *const *fields) {
    nghttp2_nv nv[64] = {
        client_nv(":method", "POST"),     client_nv(":scheme", "http"),
        client_nv(":path", path),         client_nv(":authority", "test"),
        client_nv("te", "trailers"),      client_nv("content-type", "application/grpc"),
        client_nv("user-agent", "a test")};
    size_t n = 7;
    for (; fields && fields[0]; fields += 2) {
        nv[n++] = client_nv(fields[0], fields[1]);
    }
    assert_true(client->n < MOST_CLIENT_CALLS);
    struct client_call *call = &client->calls[client->n++];
    nghttp2_data_provider provider = {.read_callback = client_on_read};
    call->id = nghttp2_submit_request(client->h2, NULL, nv, n, &provider, NULL);
    assert_true(call->id > 0);
    return call;
}

/* Appends bytes as they are. */
static inline void client_add(struct client *client, struct client_call *call, const void *bytes,
                              size_t n) {
    call->out = realloc(call->out, call->out_len + n + 1);
    memcpy(call->out + call->out_len, bytes, n);
    call->out_len += n;
    nghttp2_session_resume_data(client->h2, call->id);
}

static inline void client_message(struct client *client, struct client_call *call, bool compressed,
                                  const void *bytes, size_t n) {
    char prefix[GRPC_PREFIX_BYTES];
    grpc_prefix_encode((struct grpc_prefix){compressed, (uint32_t)n}, prefix);
    client_add(client, call, prefix, sizeof(prefix));
    client_add(client, call, bytes, n);
}

static inline void client_end(struct client *client, struct client_call *call) {
    call->out_end = true;
    nghttp2_session_resume_data(client->h2, call->id);
}

/* A complete unary call. */
static inline struct client_call *client_unary(struct client *client, const char *path,
                                               struct str message) {
    struct client_call *call = client_begin(client, path, NULL);
    client_message(client, call, false, message.ptr, message.len);
    client_end(client, call);
    return call;
}

/* Returns: the n-th message received; ptr NULL when there is none. */
static inline struct str client_answer(const struct client_call *call, size_t n, bool *compressed) {
    size_t at = 0;
    struct error err;
    for (;;) {
        struct grpc_prefix prefix;
        if (call->in_len - at < GRPC_PREFIX_BYTES) {
            return str_make(NULL, 0);
        }
        assert_int_equal(grpc_prefix_decode(call->in + at, &prefix, &err), ST_OK);
        at += GRPC_PREFIX_BYTES;
        assert_true(prefix.n_bytes <= call->in_len - at);
        if (n-- == 0) {
            *(compressed ? compressed : &(bool){false}) = prefix.compressed;
            return str_make(call->in + at, prefix.n_bytes);
        }
        at += prefix.n_bytes;
    }
}

#endif

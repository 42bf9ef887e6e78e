/* Fixture for the session tests: hand-made HTTP/2 frames that no correct client would send, and
 * inspection of the server's frames. */
#ifndef SLUICE_NET_SERVER_GRPC_RAW_FIXTURE_H
#define SLUICE_NET_SERVER_GRPC_RAW_FIXTURE_H

#include "net/server/grpc/session_fixture.h"

struct raw {
    char *bytes;
    size_t n, cap;
    int32_t id; /* of the last call */
};

static inline void raw_bytes(struct raw *raw, const void *bytes, size_t n) {
    if (raw->n + n > raw->cap) {
        raw->cap = 2 * (raw->n + n);
        raw->bytes = realloc(raw->bytes, raw->cap);
    }
    memcpy(raw->bytes + raw->n, bytes, n);
    raw->n += n;
}

static inline void raw_frame(struct raw *raw, int type, int flags, int32_t id, const void *payload,
                             size_t n) {
    const unsigned char head[9] = {
        (unsigned char)(n >> 16),  (unsigned char)(n >> 8),  (unsigned char)n,
        (unsigned char)type,       (unsigned char)flags,     (unsigned char)(id >> 24),
        (unsigned char)(id >> 16), (unsigned char)(id >> 8), (unsigned char)id};
    raw_bytes(raw, head, sizeof(head));
    raw_bytes(raw, payload, n);
}

static inline void raw_u32(struct raw *raw, int type, int32_t id, uint32_t value) {
    const unsigned char bytes[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                    (unsigned char)(value >> 8), (unsigned char)value};
    raw_frame(raw, type, 0, id, bytes, 4);
}

static inline void raw_begin(struct raw *raw) {
    *raw = (struct raw){.id = -1};
    raw_bytes(raw, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    raw_frame(raw, NGHTTP2_SETTINGS, 0, 0, "", 0);
}

/* The header block of a call, without Huffman coding and the dynamic table. Returns: its length. */
static inline size_t raw_head(char *out, const char *path) {
    size_t n = 0;
    const char *type = "application/grpc";
    out[n++] = (char)0x83; /* POST */
    out[n++] = (char)0x86; /* http */
    out[n++] = 0x04;       /* :path */
    out[n++] = (char)strlen(path);
    memcpy(out + n, path, strlen(path));
    n += strlen(path);
    memcpy(out + n, "\x01\1a\x0f\x10\x10", 6); /* :authority a, content-type */
    n += 6;
    memcpy(out + n, type, strlen(type));
    return n + strlen(type);
}

static inline void raw_call(struct raw *raw, const char *path, int flags) {
    char head[256];
    raw->id += 2;
    raw_frame(raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | flags, raw->id, head,
              raw_head(head, path));
}

/* Sends all of it and drops the server's output. */
static inline void raw_feed(struct grpc_fixture *fixture, struct raw *raw) {
    enum { PIECE = 65536 };
    fixture->keep_raw = true;
    for (size_t at = 0; at < raw->n; at += PIECE) {
        size_t n = raw->n - at < PIECE ? raw->n - at : PIECE;
        grpc_fixture_feed(fixture, raw->bytes + at, n);
        while (grpc_fixture_run_once(fixture)) {
        }
    }
    raw->n = 0;
}

static inline void raw_end(struct raw *raw) {
    free(raw->bytes);
}

/* Finds a frame in the server's output. Returns: its payload, ptr NULL when there is none. */
static inline struct str raw_find(const struct grpc_fixture *fixture, int type, int32_t id) {
    for (size_t at = 0; at + 9 <= fixture->raw_len;) {
        const unsigned char *head = (const unsigned char *)fixture->raw + at;
        size_t n = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        int32_t of = (int32_t)((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 |
                               (uint32_t)head[7] << 8 | head[8]);
        assert_true(at + 9 + n <= fixture->raw_len);
        if (head[3] == type && (of == id || id < 0)) {
            return str_make(fixture->raw + at + 9, n);
        }
        at += 9 + n;
    }
    return str_make(NULL, 0);
}

#endif

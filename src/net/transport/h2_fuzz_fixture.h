/* For the fuzzers of the gRPC sessions (server and client): consumes the input, builds frames,
 * reads the output. Included by them only. */
#ifndef SLUICE_NET_TRANSPORT_H2_FUZZ_FIXTURE_H
#define SLUICE_NET_TRANSPORT_H2_FUZZ_FIXTURE_H

#include <stdint.h>
#include <string.h>

#include "net/transport/grpc/send_queue.h"

/* Returns: the next byte of the input; 0 at its end. */
static inline uint8_t take(struct str *input) {
    if (input->len == 0) {
        return 0;
    }
    uint8_t byte = (uint8_t)*input->ptr;
    *input = str_make(input->ptr + 1, input->len - 1);
    return byte;
}

/* Returns: the next `n` bytes, or what remains. */
static inline struct str take_bytes(struct str *input, size_t n) {
    n = n < input->len ? n : input->len;
    struct str bytes = str_make(input->ptr, n);
    *input = str_make(input->ptr + n, input->len - n);
    return bytes;
}

enum { MOST_FRAME_BODY = 70000, FRAME_BYTES = 9 + MOST_FRAME_BODY };

/* Builds a frame of as much of `body` as fits. Returns: a view of `out`. */
static inline struct str frame_print(char out[FRAME_BYTES], uint8_t type, uint8_t flags,
                                     uint32_t id, struct str body) {
    size_t n = body.len < MOST_FRAME_BODY ? body.len : MOST_FRAME_BODY;
    const uint8_t head[9] = {
        (uint8_t)(n >> 16),  (uint8_t)(n >> 8),   (uint8_t)n,         type,       flags,
        (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
    memcpy(out, head, sizeof(head));
    if (n > 0) {
        memcpy(out + sizeof(head), body.ptr, n);
    }
    return str_make(out, sizeof(head) + n);
}

/* A well-formed message of zeros, a few or 20,000. Returns: a view valid until the next call. */
static inline struct str message_of(uint8_t how) {
    static char bytes[5 + 20000];
    size_t n = how & 64 ? 20000 : how & 63;
    bytes[3] = (char)(n >> 8);
    bytes[4] = (char)n;
    return str_make(bytes, 5 + n);
}

/* Reads the output, as a socket would. */
static inline void touch(const struct grpc_output *output) {
    static volatile char sink;
    for (size_t i = 0; i < output->n; i++) {
        const char *bytes = output->pieces[i].data;
        sink = bytes[0];
        sink = bytes[output->pieces[i].n_bytes - 1];
    }
    (void)sink;
}

#endif

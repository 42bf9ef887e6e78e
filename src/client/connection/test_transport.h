/* For client tests: a toy TLS, the client's side as a transport and the peer's side by hand. Either
 * side may require a reply before it continues, at any point:
 *
 *     H, answered by h    the client's greeting, which comes first
 *     R, answered by A    renegotiation, which either side may start at any time
 *     D and a byte        a byte of data
 *     E                   end of data
 *
 * The transport moves few bytes at a time and returns WANT_WRITE at random. */
#ifndef SLUICE_CLIENT_CONNECTION_TEST_TRANSPORT_H
#define SLUICE_CLIENT_CONNECTION_TEST_TRANSPORT_H

#include "client/test_peer.h"

enum { TOY_BYTES = 1 << 16 };

struct toy {
    int fd; /* -1: not started */
    uint32_t seed;
    int n_starts, n_stops;
    char out[2]; /* a record being sent */
    size_t n_out, n_out_sent;
    bool data_out;       /* it contains data of an unfinished write */
    const void *data_at; /* of that write */
    bool has_greeted, was_greeted;
    bool awaits;  /* R is sent, A not received */
    bool in_data; /* the next byte is data */
    bool ended;
    bool calm;          /* returns WANT_WRITE only when it must */
    char in[TOY_BYTES]; /* data received early */
    size_t n_in, n_in_taken;
};

static inline uint32_t toy_random(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 16) % below;
}

/* ---- the transport --------------------------------------------------------------------------- */

static inline int32_t toy_start(void *context, int fd, const char *host) {
    struct toy *toy = context;
    int small = 1; /* the smallest send buffer, so that sending blocks */
    assert(toy->fd == -1 && strcmp(host, "localhost") == 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    *toy = (struct toy){
        .fd = fd, .seed = toy->seed, .n_starts = toy->n_starts + 1, .n_stops = toy->n_stops};
    return 0;
}

static inline void toy_stop(void *context) {
    struct toy *toy = context;
    assert(toy->fd >= 0);
    toy->fd = -1;
    toy->n_stops++;
}

/* Sends pending bytes. Returns: 0 when none are left. */
static inline int64_t toy_flush(struct toy *toy) {
    while (toy->n_out_sent < toy->n_out) {
        ssize_t n = send(toy->fd, toy->out + toy->n_out_sent, 1, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN ? SLUICE_TRANSPORT_WANT_WRITE : SLUICE_TRANSPORT_FAILED;
        }
        toy->n_out_sent += (size_t)n;
    }
    toy->n_out = toy->n_out_sent = 0;
    return 0;
}

static inline int64_t toy_put(struct toy *toy, char kind) {
    int64_t result = toy_flush(toy);
    if (result == 0) {
        toy->out[0] = kind;
        toy->n_out = 1;
        result = toy_flush(toy);
    }
    return result;
}

/* Reads a byte from the socket. Returns: 1; 0 at the end; or a WANT value. */
static inline int64_t toy_take(struct toy *toy) {
    char byte;
    int64_t result = toy_flush(toy);
    if (result != 0 || toy->ended) {
        return result;
    }
    ssize_t n = recv(toy->fd, &byte, 1, 0);
    if (n < 0) {
        return errno == EAGAIN ? SLUICE_TRANSPORT_WANT_READ : SLUICE_TRANSPORT_FAILED;
    }
    if (n == 0) {
        return SLUICE_TRANSPORT_FAILED; /* closed without E: truncated */
    }
    if (toy->in_data) {
        assert(toy->n_in < TOY_BYTES);
        toy->in[toy->n_in++] = byte;
        toy->in_data = false;
        return 1;
    }
    assert(strchr("hADER", byte));
    toy->was_greeted |= byte == 'h';
    toy->awaits &= byte != 'A';
    toy->in_data = byte == 'D';
    toy->ended = byte == 'E';
    if (byte == 'R') {
        result = toy_put(toy, 'A');
        return result == 0 ? 1 : result;
    }
    return 1;
}

/* Completes greeting and renegotiation before data moves. Returns: 0 when complete. */
static inline int64_t toy_agree(struct toy *toy) {
    if (!toy->calm && toy_random(&toy->seed, 4) == 0) {
        return SLUICE_TRANSPORT_WANT_WRITE;
    }
    if (!toy->has_greeted) {
        toy->has_greeted = true;
        int64_t result = toy_put(toy, 'H');
        if (result != 0) {
            return result;
        }
    }
    while (!toy->was_greeted) {
        int64_t result = toy_take(toy);
        if (result <= 0) {
            return result == 0 ? SLUICE_TRANSPORT_FAILED : result;
        }
    }
    return toy_flush(toy);
}

static inline int64_t toy_read(void *context, void *data, size_t n_bytes) {
    struct toy *toy = context;
    assert(toy->fd >= 0 && n_bytes > 0);
    int64_t result = toy->data_out ? toy_flush(toy) : toy_agree(toy);
    if (result != 0) {
        return result;
    }
    while (toy->n_in_taken == toy->n_in) {
        result = toy_take(toy);
        if (result <= 0) {
            return result;
        }
    }
    size_t n = 1 + toy_random(&toy->seed, 3);
    size_t n_ready = toy->n_in - toy->n_in_taken;
    n = n < n_ready ? n : n_ready;
    n = n < n_bytes ? n : n_bytes;
    memcpy(data, toy->in + toy->n_in_taken, n);
    toy->n_in_taken += n;
    if (toy->n_in_taken == toy->n_in) {
        toy->n_in = toy->n_in_taken = 0;
    }
    return (int64_t)n;
}

static inline int64_t toy_write(void *context, const void *data, size_t n_bytes) {
    struct toy *toy = context;
    assert(toy->fd >= 0 && n_bytes > 0);
    if (!toy->data_out) {
        int64_t result = toy_agree(toy);
        if (result == 0 && !toy->awaits && toy_random(&toy->seed, 20) == 0) {
            toy->awaits = true;
            result = toy_put(toy, 'R');
        }
        while (result == 0 && toy->awaits) { /* a write that needs to read */
            result = toy_take(toy);
            result = result == 1 ? 0 : result == 0 ? SLUICE_TRANSPORT_FAILED : result;
        }
        if (result != 0) {
            return result;
        }
        memcpy(toy->out, "D", 1);
        memcpy(toy->out + 1, data, 1);
        toy->n_out = 2;
        toy->data_out = true;
        toy->data_at = data;
    }
    /* the caller repeats an unfinished write with the same data */
    assert(toy->data_at == data && memcmp(toy->out + 1, data, 1) == 0);
    int64_t result = toy_flush(toy);
    toy->data_out = result != 0;
    return result == 0 ? 1 : result;
}

static inline sluice_client_transport toy_transport(struct toy *toy) {
    return (sluice_client_transport){.size = sizeof(sluice_client_transport),
                                     .context = toy,
                                     .start = toy_start,
                                     .read = toy_read,
                                     .write = toy_write,
                                     .stop = toy_stop};
}

/* ---- the peer -------------------------------------------------------------------------------- */

struct toy_peer {
    uint32_t seed;
    bool in_data;
    int n_awaited; /* R sent, A not received */
    char in[TOY_BYTES];
    size_t n_in;
};

/* Reads a few bytes and answers R. Returns: false if there were none. */
static inline bool toy_peer_pump(struct toy_peer *toy, struct peer *peer) {
    char bytes[64];
    size_t max = 1 + toy_random(&toy->seed, sizeof(bytes));
    ssize_t n = recv(peer->fd, bytes, max, MSG_DONTWAIT);
    for (ssize_t i = 0; i < n; i++) {
        if (toy->in_data) {
            assert(toy->n_in < TOY_BYTES);
            toy->in[toy->n_in++] = bytes[i];
            toy->in_data = false;
            continue;
        }
        assert(strchr("HRAD", bytes[i]));
        toy->in_data = bytes[i] == 'D';
        toy->n_awaited -= bytes[i] == 'A';
        assert(toy->n_awaited >= 0);
        if (bytes[i] == 'H' || bytes[i] == 'R') {
            peer_send(peer, bytes[i] == 'H' ? "h" : "A", 1);
        }
    }
    return n > 0;
}

static inline void toy_peer_agree(struct toy_peer *toy, struct peer *peer) {
    peer_send(peer, "R", 1);
    toy->n_awaited++;
}

static inline void toy_peer_send(struct toy_peer *toy, struct peer *peer, const char *data,
                                 size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        if (toy_random(&toy->seed, 20) == 0) {
            toy_peer_agree(toy, peer);
        }
        peer_send(peer, "D", 1);
        peer_send(peer, data + i, 1);
    }
}

#endif

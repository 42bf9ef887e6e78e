/* For client tests: the server's side of a connection, in the test's own thread, on a Unix
 * socket in a directory of its own. The test controls, byte by byte, what the server does while
 * the call is stepped. */
#ifndef SLUICE_CLIENT_TEST_PEER_H
#define SLUICE_CLIENT_TEST_PEER_H

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sluice/client.h"

enum { PEER_BYTES = 1 << 16, PEER_TIMEOUT_MS = 20000 };

struct peer {
    char folder[32];
    struct sockaddr_un address;
    char url[128];
    int listener;
    int fd;              /* the last accepted connection; -1: none */
    char in[PEER_BYTES]; /* received bytes */
    size_t n_in;
    bool ended; /* the client closed it */
};

static inline void peer_listen(struct peer *peer, int backlog) {
    peer->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed =
        peer->listener < 0 ||
        bind(peer->listener, (const struct sockaddr *)&peer->address, sizeof(peer->address)) != 0 ||
        listen(peer->listener, backlog) != 0;
    assert(!failed);
}

static inline void peer_open(struct peer *peer, bool mip) {
    memset(peer, 0, sizeof(*peer));
    memcpy(peer->folder, "/tmp/sluice-peer-XXXXXX", 24);
    char *made = mkdtemp(peer->folder);
    assert(made);
    peer->address.sun_family = AF_UNIX;
    snprintf(peer->address.sun_path, sizeof(peer->address.sun_path), "%s/s", peer->folder);
    snprintf(peer->url, sizeof(peer->url), "%s%s",
             mip ? "unix://" : "http+unix:", peer->address.sun_path);
    peer->fd = -1;
    peer_listen(peer, 16);
}

static inline void peer_disconnect(struct peer *peer) {
    if (peer->fd >= 0) {
        close(peer->fd);
    }
    peer->fd = -1;
}

static inline void peer_close(struct peer *peer) {
    peer_disconnect(peer);
    close(peer->listener);
    unlink(peer->address.sun_path);
    rmdir(peer->folder);
}

/* Accepts pending connections and keeps the last. Returns: false if there is none. */
static inline bool peer_accept(struct peer *peer) {
    struct pollfd fd = {.fd = peer->listener, .events = POLLIN};
    bool any = false;
    while (poll(&fd, 1, 0) > 0) {
        peer_disconnect(peer);
        peer->fd = accept(peer->listener, NULL, NULL);
        assert(peer->fd >= 0);
        any = true;
    }
    peer->n_in = any ? 0 : peer->n_in;
    peer->ended = any ? false : peer->ended;
    return any;
}

/* Reads the available bytes, of which at most PEER_BYTES are kept. Returns: number of bytes
 * kept. */
static inline size_t peer_read(struct peer *peer) {
    size_t n_read = 0;
    ssize_t n = 1;
    while (n > 0) {
        static char drop[PEER_BYTES];
        size_t n_free = PEER_BYTES - peer->n_in;
        n = recv(peer->fd, n_free > 0 ? peer->in + peer->n_in : drop,
                 n_free > 0 ? n_free : sizeof(drop), MSG_DONTWAIT);
        n_read += n > 0 ? (size_t)n : 0;
        peer->n_in += n > 0 && n_free > 0 ? (size_t)n : 0;
    }
    peer->ended = n == 0 || errno == ECONNRESET;
    return n_read;
}

static inline void peer_send(struct peer *peer, const void *data, size_t n_bytes) {
    ssize_t n = send(peer->fd, data, n_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    assert(n == (ssize_t)n_bytes);
}

/* ---- the client's side ----------------------------------------------------------------------- */

/* Must the client be stepped now, or within `ms`? */
static inline bool client_is_ready(const sluice_client *client, int ms) {
    struct pollfd fd = {.fd = sluice_client_fd(client), .events = POLLIN};
    return sluice_client_timeout_ns(client) == 0 || poll(&fd, 1, ms) > 0;
}

/* Steps until the client would block. Returns: the status of the call. */
static inline sluice_client_status client_step_until_blocked(sluice_client *client,
                                                             const sluice_call *call,
                                                             sluice_client_error *error) {
    sluice_client_status status;
    do {
        sluice_client_step(client);
        status = sluice_call_status(call, error);
    } while (status == SLUICE_CLIENT_PENDING && client_is_ready(client, 0));
    return status;
}

/* Steps and polls until the call is done. */
static inline sluice_client_status client_run_to_end(sluice_client *client, const sluice_call *call,
                                                     sluice_client_error *error) {
    sluice_client_step(client);
    while (sluice_call_status(call, error) == SLUICE_CLIENT_PENDING) {
        uint64_t ms = sluice_client_timeout_ns(client) / 1000000 + 1;
        (void)client_is_ready(client, ms < PEER_TIMEOUT_MS ? (int)ms : PEER_TIMEOUT_MS);
        sluice_client_step(client);
    }
    return sluice_call_status(call, error);
}

#endif

/* For client tests: a scripted server. It accepts a number of connections; on each it reads
 * requests and sends the script's texts, regardless of the request. It listens on a free port of
 * loopback, or on a given socket. */
#ifndef SLUICE_CLIENT_TEST_SERVER_H
#define SLUICE_CLIENT_TEST_SERVER_H

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "codec/mip/packet.h"
#include "core/base/num.h"

enum { SCRIPT_STEPS = 8, REQUEST_BYTES = 65536, URL_BYTES = 64 };

/* The script of a connection: a request is read before each text is sent; NULL closes the
 * connection. */
struct script {
    const char *texts[SCRIPT_STEPS];
    size_t n_bytes[SCRIPT_STEPS]; /* size of each text; 0: NUL-terminated */
    bool mip;                     /* requests are MIP packets; else HTTP */
    bool forever;                 /* repeats the first text for every request */
    bool dribble;                 /* sends one byte at a time */
    bool read_nothing;            /* sends the first text without reading a request */
    bool hold;                    /* waits until the client has closed the connection */
};

struct test_server {
    int listener;
    pthread_t thread;
    const struct script *scripts;
    size_t n_scripts;
    size_t n_requests;
    char request[REQUEST_BYTES]; /* the last request; tests read it after the thread has ended */
    size_t n_request;
};

/* Reads the next `n` bytes of the request. Returns: false if the connection is closed before. */
static bool read_bytes(struct test_server *server, int fd, uint64_t n) {
    assert(n <= REQUEST_BYTES - server->n_request);
    if (n > 0 && recv(fd, server->request + server->n_request, n, MSG_WAITALL) != (ssize_t)n) {
        return false;
    }
    server->n_request += n;
    return true;
}

/* The body's length from the head; 0: none. */
static uint64_t body_bytes(const struct test_server *server) {
    static const char name[] = "\r\nContent-Length: ";
    uint64_t n = 0;
    const char *field = memmem(server->request, server->n_request, name, sizeof(name) - 1);
    if (field) {
        const char *value = field + sizeof(name) - 1;
        struct str rest = str_make(value, (size_t)(server->request + server->n_request - value));
        bool ok = num_parse_u64(str_cut(&rest, '\r'), &n);
        assert(ok);
    }
    return n;
}

/* Reads a packet. Returns: false if the connection is closed. */
static bool read_packet(struct test_server *server, int fd) {
    struct mip_header header;
    server->n_request = 0;
    if (!read_bytes(server, fd, MIP_HEADER_BYTES)) {
        return false;
    }
    mip_header_decode(server->request, &header);
    return read_bytes(server, fd, header.n_bytes);
}

/* Reads a head and its body. Returns: false if the connection is closed. */
static bool read_request(struct test_server *server, int fd, bool mip) {
    static const char end[] = "\r\n\r\n";
    if (mip) {
        return read_packet(server, fd);
    }
    server->n_request = 0;
    do {
        if (!read_bytes(server, fd, 1)) {
            return false;
        }
    } while (server->n_request < 4 || memcmp(server->request + server->n_request - 4, end, 4) != 0);
    return read_bytes(server, fd, body_bytes(server));
}

/* Returns: false if the client has closed the connection. */
static bool send_text(int fd, const char *text, size_t n_bytes, bool dribble) {
    int yes = 1;
    if (dribble) { /* fails on a Unix socket, where it is not needed */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    while (n_bytes > 0) {
        size_t n = dribble ? 1 : n_bytes;
        if (send(fd, text, n, MSG_NOSIGNAL) != (ssize_t)n) {
            return false;
        }
        text += n;
        n_bytes -= n;
    }
    return true;
}

static void play(struct test_server *server, int fd, const struct script *script) {
    for (size_t i = 0; i < SCRIPT_STEPS && script->texts[i]; i += !script->forever) {
        if (!script->read_nothing && !read_request(server, fd, script->mip)) {
            return;
        }
        server->n_requests++;
        size_t n = script->n_bytes[i] > 0 ? script->n_bytes[i] : strlen(script->texts[i]);
        if (!send_text(fd, script->texts[i], n, script->dribble)) {
            return;
        }
    }
    if (script->read_nothing) {
        /* discard the rest of the request: half-close, then read */
        char drop[REQUEST_BYTES];
        shutdown(fd, SHUT_WR);
        while (recv(fd, drop, sizeof(drop), 0) > 0) {
        }
    }
    if (script->hold) {
        while (read_request(server, fd, script->mip)) {
        }
    }
}

static void *serve(void *argument) {
    struct test_server *server = argument;
    for (size_t i = 0; i < server->n_scripts; i++) {
        int fd = accept(server->listener, NULL, NULL);
        if (fd < 0) {
            break;
        }
        play(server, fd, &server->scripts[i]);
        close(fd);
    }
    return NULL;
}

static void test_server_start_at(struct test_server *server, const struct sockaddr *address,
                                 socklen_t n_bytes, const struct script *scripts,
                                 size_t n_scripts) {
    memset(server, 0, sizeof(*server));
    server->scripts = scripts;
    server->n_scripts = n_scripts;
    server->listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = server->listener < 0 || bind(server->listener, address, n_bytes) != 0 ||
                 listen(server->listener, SCRIPT_STEPS) != 0 ||
                 pthread_create(&server->thread, NULL, serve, server) != 0;
    assert(!failed);
}

/* Writes the server's URL to `url`; the first script decides the scheme. */
static inline void test_server_start(struct test_server *server, char url[URL_BYTES],
                                     const struct script *scripts, size_t n_scripts) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof(address);
    test_server_start_at(server, (const struct sockaddr *)&address, n_bytes, scripts, n_scripts);
    int failed = getsockname(server->listener, (struct sockaddr *)&address, &n_bytes);
    assert(!failed);
    snprintf(url, URL_BYTES, "%s://127.0.0.1:%u", n_scripts > 0 && scripts->mip ? "tcp" : "http",
             (unsigned)ntohs(address.sin_port));
}

/* Waits until all scripts have ended; stops one that waits for a connection. */
static inline void test_server_stop(struct test_server *server) {
    shutdown(server->listener, SHUT_RDWR);
    int failed = pthread_join(server->thread, NULL);
    assert(!failed);
    close(server->listener);
}

#endif

/* The event loop of the load generator: plain epoll, so that it shares nothing with the servers it
 * measures. It reads in large pieces and writes as much as the kernel takes. */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, HEAD_BYTES = 4096 };

struct conn {
    int fd;
    size_t request;     /* the index of the one being sent */
    size_t sent;        /* of its bytes */
    size_t n_head;      /* bytes of an incomplete head */
    uint64_t body_left; /* of the answer being read */
    bool in_body;
    bool renew; /* answered: the next request gets a new connection */
    uint64_t started_ns;
    char head[HEAD_BYTES];
};

struct request {
    char *bytes;
    size_t n;
};

struct load {
    const struct load_options *options;
    struct load_result *result;
    struct request *requests;
    size_t n_requests;
    char *buffer;
    int epoll;
    uint64_t measure_from_ns;
    struct conn *conns;
};

static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int complain(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    return 1;
}

static int read_request(const char *path, struct request *request) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        return complain(path);
    }
    request->n = (size_t)st.st_size;
    request->bytes = malloc(request->n + 1);
    size_t got = 0;
    while (got < request->n) {
        ssize_t n = read(fd, request->bytes + got, request->n - got);
        if (n <= 0) {
            return complain("reading the request");
        }
        got += (size_t)n;
    }
    close(fd);
    return 0;
}

static int read_requests(struct load *load) {
    char *paths = strdup(load->options->request_files);
    int rc = 0;
    load->requests = calloc(strlen(paths) + 1, sizeof *load->requests);
    for (char *path = paths, *next; rc == 0 && path; path = next) {
        next = strchr(path, ',');
        if (next) {
            *next++ = '\0';
        }
        rc = read_request(path, &load->requests[load->n_requests++]);
    }
    free(paths);
    return rc;
}

static int connect_to(const struct load_options *options) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (getaddrinfo(options->host, options->port, &hints, &found) != 0) {
        return -1;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    if (fd >= 0) {
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (options->reconnect) { /* else the ports are used up within seconds */
            struct linger none = {.l_onoff = 1, .l_linger = 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        }
        fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return fd;
}

/* Writes what is left of the request. Returns: false when the connection broke. */
static bool send_more(struct load *load, struct conn *conn) {
    const struct request *request = &load->requests[conn->request];
    while (conn->sent < request->n) {
        ssize_t n = write(conn->fd, request->bytes + conn->sent, request->n - conn->sent);
        if (n < 0) {
            return errno == EAGAIN;
        }
        conn->sent += (size_t)n;
        load->result->bytes_out += (uint64_t)n;
    }
    return true;
}

static bool send_next(struct load *load, struct conn *conn) {
    conn->request = (conn->request + 1) % load->n_requests;
    conn->sent = 0;
    conn->started_ns = now_ns();
    return send_more(load, conn);
}

static bool answered(struct load *load, struct conn *conn) {
    uint64_t now = now_ns();
    if (now >= load->measure_from_ns) {
        load->result->answers++;
        histogram_add(&load->result->latency, now - conn->started_ns);
    }
    conn->in_body = false;
    if (load->options->reconnect) {
        conn->renew = true;
        return true;
    }
    return send_next(load, conn);
}

/* Takes bytes of a head. Returns: how many belong to it, 0 when the connection makes no sense. */
static size_t take_head(struct load *load, struct conn *conn, const char *data, size_t n) {
    size_t had = conn->n_head;
    size_t room = HEAD_BYTES - had;
    size_t taken = n < room ? n : room;
    memcpy(conn->head + had, data, taken);
    size_t head_bytes = 0;
    int status = 0;
    bool whole =
        load->requests[0].bytes[0] == 0
            ? load_packet_parse(conn->head, had + taken, &head_bytes, &conn->body_left, &status)
            : load_head_parse(conn->head, had + taken, &head_bytes, &conn->body_left, &status);
    if (!whole) {
        conn->n_head = had + taken;
        return conn->n_head < HEAD_BYTES ? taken : 0;
    }
    load->result->failures += status != 200;
    conn->n_head = 0;
    conn->in_body = true;
    return head_bytes - had;
}

static bool take(struct load *load, struct conn *conn, const char *data, size_t n) {
    while (n > 0) {
        size_t used;
        if (conn->in_body) {
            used = n < conn->body_left ? n : (size_t)conn->body_left;
            conn->body_left -= used;
        } else {
            used = take_head(load, conn, data, n);
            if (used == 0) {
                return false;
            }
        }
        data += used;
        n -= used;
        if (conn->in_body && conn->body_left == 0 && !answered(load, conn)) {
            return false;
        }
    }
    return true;
}

static bool on_event(struct load *load, struct conn *conn, uint32_t events) {
    if ((events & EPOLLOUT) && conn->sent < load->requests[conn->request].n &&
        !send_more(load, conn)) {
        return false;
    }
    while (events & EPOLLIN) {
        ssize_t n = read(conn->fd, load->buffer, READ_BYTES);
        if (n == 0) {
            return false;
        }
        if (n < 0) {
            return errno == EAGAIN;
        }
        load->result->bytes_in += (uint64_t)n;
        if (!take(load, conn, load->buffer, (size_t)n)) {
            return false;
        }
        if (n < READ_BYTES) {
            break;
        }
    }
    return true;
}

static int open_one(struct load *load, struct conn *conn) {
    conn->renew = false;
    conn->fd = connect_to(load->options);
    if (conn->fd < 0) {
        return complain("connecting");
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = conn};
    if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, conn->fd, &event) != 0) {
        return complain("epoll_ctl");
    }
    return send_next(load, conn) ? 0 : complain("sending");
}

static int open_all(struct load *load) {
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    load->conns = calloc(load->options->connections, sizeof *load->conns);
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < load->options->connections; i++) {
        load->conns[i].request = i % load->n_requests;
        rc = open_one(load, &load->conns[i]);
    }
    return rc;
}

static int loop_until(struct load *load, uint64_t end_ns) {
    struct epoll_event events[256];
    while (now_ns() < end_ns) {
        int n = epoll_wait(load->epoll, events, 256, 100);
        for (int i = 0; i < n; i++) {
            struct conn *conn = events[i].data.ptr;
            if (!on_event(load, conn, events[i].events)) {
                fprintf(stderr, "load: the server closed a connection\n");
                return 1;
            }
            if (conn->renew) {
                close(conn->fd);
                if (open_one(load, conn) != 0) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

static void close_all(struct load *load) {
    for (unsigned i = 0; load->conns && i < load->options->connections; i++) {
        if (load->conns[i].fd > 0) {
            close(load->conns[i].fd);
        }
    }
    close(load->epoll);
    free(load->conns);
    free(load->buffer);
    for (size_t i = 0; i < load->n_requests; i++) {
        free(load->requests[i].bytes);
    }
    free(load->requests);
}

int load_run(const struct load_options *options, struct load_result *result) {
    struct load load = {.options = options, .result = result, .buffer = malloc(READ_BYTES)};
    int rc = read_requests(&load);
    if (rc == 0) {
        rc = open_all(&load);
    }
    uint64_t start = now_ns();
    load.measure_from_ns = start + (uint64_t)(options->warmup * 1e9);
    if (rc == 0) {
        rc = loop_until(&load, load.measure_from_ns);
    }
    uint64_t bytes_in = result->bytes_in;
    uint64_t bytes_out = result->bytes_out;
    uint64_t from = now_ns();
    if (rc == 0) {
        rc = loop_until(&load, from + (uint64_t)(options->seconds * 1e9));
    }
    result->seconds = (double)(now_ns() - from) / 1e9;
    result->bytes_in -= bytes_in;
    result->bytes_out -= bytes_out;
    close_all(&load);
    return rc;
}

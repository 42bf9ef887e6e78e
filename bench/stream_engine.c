/* A stand-in for an LLM server: every POST is answered by a stream of TOKENS events
 * (text/event-stream, chunked), the first one in a write of its own, the others in ten writes;
 * every other request by a small JSON. One thread, epoll. It prints the port that it listens on and
 * ends with its standard input. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "load.h"

enum { HEAD_BYTES = 16384, EVENT_BYTES = 96, WRITES = 10, EVENTS = 64 };

static const char PAGE[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"model\",\"object\":\"model\"}],\"status\":"
    "\"ready\",\"model_path\":\"model\"}";

struct conn {
    int fd;
    size_t n_head;      /* bytes of the head that are here */
    uint64_t body_left; /* bytes of the body that are not */
    bool in_body, is_post;
    char head[HEAD_BYTES];
};

static char *stream_text;
static size_t first_bytes, stream_bytes;

static void make_stream(unsigned n_tokens) {
    static const char HEAD[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                               "transfer-encoding: chunked\r\n\r\n";
    size_t most = sizeof(HEAD) + (size_t)n_tokens * EVENT_BYTES + 16;
    stream_text = malloc(most);
    if (!stream_text) {
        exit(1);
    }
    size_t n = (size_t)snprintf(stream_text, most, "%s", HEAD);
    for (unsigned i = 0; i < n_tokens; i++) {
        char event[EVENT_BYTES - 8];
        int len =
            snprintf(event, sizeof(event), "data: {\"choices\":[{\"text\":\" t%03u\"}]}\n\n", i);
        n += (size_t)snprintf(stream_text + n, most - n, "%x\r\n%s\r\n", (unsigned)len, event);
        first_bytes = i == 0 ? n : first_bytes;
    }
    n += (size_t)snprintf(stream_text + n, most - n, "0\r\n\r\n");
    stream_bytes = n;
}

/* Answers are small: a peer that does not read them stops this server. */
static bool send_all(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, 1000);
        } else if (sent <= 0) {
            return false;
        } else {
            data += sent;
            n -= (size_t)sent;
        }
    }
    return true;
}

static bool answer(const struct conn *conn) {
    if (!conn->is_post) {
        char page[512];
        int n = snprintf(
            page, sizeof(page),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
            sizeof(PAGE) - 1, PAGE);
        return send_all(conn->fd, page, (size_t)n);
    }
    bool ok = send_all(conn->fd, stream_text, first_bytes);
    size_t step = (stream_bytes - first_bytes) / WRITES + 1;
    for (size_t at = first_bytes; ok && at < stream_bytes; at += step) {
        ok = send_all(conn->fd, stream_text + at,
                      stream_bytes - at < step ? stream_bytes - at : step);
    }
    return ok;
}

/* Returns: false: the connection ends. */
static bool receive(struct conn *conn) {
    static char data[1 << 18];
    ssize_t n = recv(conn->fd, data, sizeof(data), 0);
    if (n <= 0) {
        return n < 0 && errno == EAGAIN;
    }
    for (size_t at = 0; at < (size_t)n;) {
        size_t here = (size_t)n - at;
        if (!conn->in_body) {
            size_t fit = sizeof(conn->head) - conn->n_head, head_bytes;
            size_t before = conn->n_head, taken = here < fit ? here : fit;
            int status;
            memcpy(conn->head + before, data + at, taken);
            conn->n_head += taken;
            if (!load_head_parse(conn->head, conn->n_head, &head_bytes, &conn->body_left,
                                 &status)) {
                return conn->n_head < sizeof(conn->head);
            }
            at += head_bytes - before;
            conn->is_post = memcmp(conn->head, "POST", 4) == 0;
            conn->in_body = true;
            here = (size_t)n - at;
        }
        size_t taken = here < conn->body_left ? here : (size_t)conn->body_left;
        conn->body_left -= taken;
        at += taken;
        if (conn->body_left == 0) {
            conn->in_body = false;
            conn->n_head = 0;
            if (!answer(conn)) {
                return false;
            }
        }
    }
    return true;
}

static void accept_all(int listener, int poller) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *conn = calloc(1, sizeof(*conn));
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (!conn) {
            exit(1);
        }
        conn->fd = fd;
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof(address);
    make_stream(argc > 1 ? (unsigned)atoi(argv[1]) : 200);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event of_listener = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event of_input = {.events = EPOLLIN, .data.ptr = &of_input};
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, len) != 0 ||
        listen(listener, 4096) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) != 0) {
        perror("stream_engine");
        return 1;
    }
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &of_listener);
    epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &of_input);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct conn *conn = events[i].data.ptr;
            if (events[i].data.ptr == &of_input) {
                return 0;
            }
            if (!conn) {
                accept_all(listener, poller);
            } else if (!receive(conn)) {
                close(conn->fd);
                free(conn);
            }
        }
    }
}

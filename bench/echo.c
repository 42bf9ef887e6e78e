/* The floor for large tensors: a server that stores a whole request and sends its body back, and
 * does nothing else. One thread, plain epoll, read straight into one buffer per connection; it
 * knows no more HTTP than a Content-Length. `echo` prints the port it listens on and ends with its
 * standard input. */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096 };

struct conn {
    int fd;
    size_t n_in;       /* bytes of the request that are here */
    size_t head_bytes; /* 0: head not complete */
    size_t total;      /* head and body */
    size_t n_out;      /* bytes of the answer that are sent */
    bool answering;
    char reply_head[128];
    size_t n_reply_head;
    size_t cap;
    char *data;
};

static bool grow(struct conn *conn, size_t cap) {
    if (cap <= conn->cap) {
        return true;
    }
    char *data = realloc(conn->data, cap);
    if (!data) {
        return false;
    }
    conn->data = data;
    conn->cap = cap;
    return true;
}

/* Returns: false to close. */
static bool send_answer(struct conn *conn) {
    size_t body = conn->total - conn->head_bytes;
    while (conn->n_out < conn->n_reply_head + body) {
        size_t head_sent = conn->n_out < conn->n_reply_head ? conn->n_out : conn->n_reply_head;
        size_t body_sent = conn->n_out - head_sent;
        struct iovec iov[2] = {{conn->reply_head + head_sent, conn->n_reply_head - head_sent},
                               {conn->data + conn->head_bytes + body_sent, body - body_sent}};
        ssize_t n = writev(conn->fd, iov, 2);
        if (n < 0) {
            return errno == EAGAIN;
        }
        conn->n_out += (size_t)n;
    }
    conn->answering = false;
    conn->n_in = conn->head_bytes = conn->total = conn->n_out = 0;
    return true;
}

static bool request_complete(struct conn *conn) {
    uint64_t body = 0;
    int status;
    if (!conn->head_bytes) {
        if (!load_head_parse(conn->data, conn->n_in, &conn->head_bytes, &body, &status)) {
            return false;
        }
        conn->total = conn->head_bytes + (size_t)body;
        if (!grow(conn, conn->total)) {
            return false;
        }
    }
    return conn->n_in >= conn->total;
}

static bool on_readable(struct conn *conn) {
    while (!conn->answering) {
        if (!grow(conn, HEAD_BYTES)) {
            return false;
        }
        size_t end = conn->head_bytes ? conn->total : HEAD_BYTES;
        ssize_t n = read(conn->fd, conn->data + conn->n_in, end - conn->n_in);
        if (n == 0) {
            return false;
        }
        if (n < 0) {
            return errno == EAGAIN;
        }
        conn->n_in += (size_t)n;
        if (!request_complete(conn)) {
            continue;
        }
        conn->answering = true;
        conn->n_reply_head = (size_t)snprintf(conn->reply_head, sizeof conn->reply_head,
                                              "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                                              conn->total - conn->head_bytes);
        if (!send_answer(conn)) {
            return false;
        }
    }
    return true;
}

static void accept_one(int listener, int epoll) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return;
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct conn *conn = calloc(1, sizeof *conn);
    conn->fd = fd;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = conn};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void on_event(struct epoll_event *event) {
    struct conn *conn = event->data.ptr;
    bool alive = true;
    if (conn->answering && (event->events & EPOLLOUT)) {
        alive = send_answer(conn);
    }
    if (alive) {
        alive = on_readable(conn);
    }
    if (!alive) {
        close(conn->fd);
        free(conn->data);
        free(conn);
    }
}

static int listen_any(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
        return -1;
    }
    printf("%u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(void) {
    signal(SIGPIPE, SIG_IGN); /* the load ends in the middle of an answer */
    int listener = listen_any();
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event on_listener = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event on_stdin = {.events = EPOLLIN, .data.ptr = &listener};
    if (listener < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &on_listener) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &on_stdin) != 0) {
        perror("echo");
        return 1;
    }
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) {
                accept_one(listener, epoll);
            } else if (events[i].data.ptr == &listener) {
                return 0;
            } else {
                on_event(&events[i]);
            }
        }
    }
}

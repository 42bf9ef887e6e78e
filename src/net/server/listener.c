/* Listening sockets on uv_poll: accept4 sets the flags in one call, and the descriptor can move to
 * another worker's loop. */
#include "net/server/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "net/server/limits.h"
#include "net/server/socket_memory.h"

enum {
    BACKLOG = 4096,             /* the kernel caps it (net.core.somaxconn) */
    ACCEPTS_PER_ITERATION = 64, /* then other events of the loop run */
    ACCEPT_PAUSE_MS = 100,
    ROOM_PAUSE_MS = 1,
    KEEPALIVE_PROBES = 4,
};

#ifndef SO_BUF_LOCK /* headers of a kernel before 5.15 */
#define SO_BUF_LOCK 72
#endif

static const uint64_t LOG_EVERY_NS = 60000000000u;

struct listener {
    uv_poll_t poll;
    uv_timer_t accept_pause;
    int fd;
    int family;
    unsigned n_handles; /* open or closing */
    bool closing;
    uint64_t logged_ns; /* when a failure was last logged */
    struct address bound;
    struct listener_events events;
};

static const char *unix_path(const struct address *address) {
    return ((const struct sockaddr_un *)&address->storage)->sun_path;
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum status listen_error(const struct address *address, const char *what, int error,
                                struct error *err) {
    char text[ADDRESS_TEXT_BYTES];
    bool is_unix = address_is_unix(address);
    const char *hint = "";
    if (error == EADDRINUSE) {
        hint = is_unix ? "; another process listens there"
                       : "; another process listens there: choose another port (0: a free one)";
    } else if (error == EADDRNOTAVAIL) {
        hint = "; this machine does not have that address (0.0.0.0: all that it has)";
    } else if (error == EACCES && !is_unix) {
        hint = "; ports below 1024 need root or CAP_NET_BIND_SERVICE: choose a higher one";
    }
    return error_set(err, ST_IO, "cannot listen on %s: %s: %s%s", address_print(address, text),
                     what, strerror(error), hint);
}

/* Removes the file of a Unix socket on which no process listens. */
static enum status stale_remove(const struct address *address, struct error *err) {
    struct stat info;
    if (lstat(unix_path(address), &info) != 0) {
        return ST_OK; /* there is none, or bind reports the error */
    }
    if (!S_ISSOCK(info.st_mode)) {
        return listen_error(address, "the file exists and is not a socket", EEXIST, err);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return listen_error(address, "socket", errno, err);
    }
    int rc = connect(fd, (const struct sockaddr *)&address->storage, address->len);
    int error = errno;
    close(fd);
    if (rc == 0 || error == EAGAIN) {
        return listen_error(address, "another process listens there already", EADDRINUSE, err);
    }
    if (error == ECONNREFUSED && unlink(unix_path(address)) != 0) {
        return listen_error(address, "the stale socket cannot be removed", errno, err);
    }
    return ST_OK;
}

/* Without IPv6 on the machine, the wildcard address is that of IPv4. */
static int socket_open(struct address *address) {
    int family = address->storage.ss_family;
    int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int fd = socket(family, type, 0);
    const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&address->storage;
    if (fd < 0 && errno == EAFNOSUPPORT && family == AF_INET6 &&
        IN6_IS_ADDR_UNSPECIFIED(&sin6->sin6_addr)) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = sin6->sin6_port};
        *address = (struct address){.len = sizeof(any)};
        memcpy(&address->storage, &any, sizeof(any));
        fd = socket(AF_INET, type, 0);
    }
    return fd;
}

/* Returns: at least 1, which is the least that the kernel takes. */
static int whole_seconds(uint64_t time_ns) {
    const uint64_t second = 1000000000u, most = 32767; /* the kernel's */
    uint64_t n = time_ns / second + (time_ns % second > 0);
    return (int)(n < 1 ? 1 : n < most ? n : most);
}

/* Accepted sockets inherit it. Of a client that does not answer, the kernel gives up bytes that it
 * sends after TCP_USER_TIMEOUT; so it does of one whose window stays closed, which has
 * write_timeout. */
static void keepalive_set(int fd, const struct net_limits *limits) {
    int on = 1, n_probes = KEEPALIVE_PROBES;
    int idle = whole_seconds(limits->keepalive_time_ns);
    int interval = whole_seconds(limits->keepalive_time_ns / KEEPALIVE_PROBES);
    uint64_t user_ms = (uint64_t)(idle + n_probes * interval) * 1000;
    uint64_t write_ms = limits->write_timeout_ns / 1000000 + 1;
    unsigned user = (unsigned)(user_ms > write_ms ? user_ms : write_ms);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user, sizeof(user));
}

/* Accepted sockets begin with a receive buffer of `n_bytes`, as the kernel counts, and so with a
 * small window. The kernel lets it grow with what is read, as it does its own default: the lock
 * that SO_RCVBUF sets would prevent that. A kernel that does not take it off again (before 5.15)
 * keeps its default, and one whose default is smaller. */
static void receive_buffer_set(int fd, int n_bytes) {
    int half = n_bytes / 2; /* the kernel doubles it */
    int unlocked = 0, usual = 0, lock;
    socklen_t len = sizeof(usual), lock_len = sizeof(lock);
    if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &usual, &len) == 0 && usual > n_bytes &&
        getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &lock, &lock_len) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &half, sizeof(half)) == 0) {
        setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof(unlocked));
    }
}

static void socket_prepare(int fd, int family, const struct net_limits *limits,
                           struct socket_bytes sizes) {
    int on = 1, off = 0;
    if (family != AF_UNIX) {
        if (sizes.unsent > 0) { /* inherited */
            setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &sizes.unsent, sizeof(sizes.unsent));
        }
        if (sizes.receive > 0) {
            receive_buffer_set(fd, sizes.receive);
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (limits->reuse_port) {
            setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* inherited by connections */
        if (limits->keepalive_time_ns > 0) {
            keepalive_set(fd, limits);
        }
    }
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
}

static enum status socket_listen(struct listener *listener, const struct address *wanted,
                                 const struct net_limits *limits, struct socket_bytes sizes,
                                 struct error *err) {
    struct address address = *wanted;
    enum status st = address_is_unix(&address) ? stale_remove(&address, err) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    listener->fd = socket_open(&address);
    if (listener->fd < 0) {
        return listen_error(&address, "socket", errno, err);
    }
    listener->family = address.storage.ss_family;
    socket_prepare(listener->fd, listener->family, limits, sizes);
    if (bind(listener->fd, (const struct sockaddr *)&address.storage, address.len) != 0) {
        return listen_error(&address, "bind", errno, err);
    }
    if (listen(listener->fd, BACKLOG) != 0) {
        return listen_error(&address, "listen", errno, err);
    }
    listener->bound = address;
    if (!address_is_unix(&address)) {
        listener->bound.len = sizeof(listener->bound.storage);
        getsockname(listener->fd, (struct sockaddr *)&listener->bound.storage,
                    &listener->bound.len);
    }
    return ST_OK;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_accept_pause_over(uv_timer_t *timer) {
    struct listener *listener = timer->data;
    uv_poll_start(&listener->poll, UV_READABLE, on_readable);
}

/* New connections wait in the backlog. */
static void accept_pause(struct listener *listener, uint64_t ms) {
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->accept_pause, on_accept_pause_over, ms, 0);
}

/* Out of descriptors or memory. */
static void accept_failed(struct listener *listener, int error) {
    uint64_t now_ns = clock_now_ns();
    if (listener->logged_ns == 0 || now_ns - listener->logged_ns >= LOG_EVERY_NS) {
        listener->logged_ns = now_ns;
        log_event(LOG_WARNING, "accept failed, pausing", LOG_CSTR("reason", strerror(error)));
    }
    accept_pause(listener, ACCEPT_PAUSE_MS);
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct listener *listener = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_ITERATION && !listener->closing; i++) {
        if (listener->events.may_accept && !listener->events.may_accept(listener->events.user)) {
            accept_pause(listener, ROOM_PAUSE_MS);
            return;
        }
        struct address peer = {.len = sizeof(peer.storage)};
        int fd = accept4(listener->fd, (struct sockaddr *)&peer.storage, &peer.len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            listener->events.on_accept(listener->events.user, fd, listener->family,
                                       address_peer_hash(&peer));
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            int error = errno;
            if ((error == EMFILE || error == ENFILE) && listener->events.on_no_descriptors) {
                listener->events.on_no_descriptors(listener->events.user);
            }
            accept_failed(listener, error);
            return;
        }
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle) {
    struct listener *listener = handle->data;
    if (--listener->n_handles > 0) {
        return;
    }
    struct listener_events events = listener->events;
    if (listener->fd >= 0) {
        close(listener->fd);
    }
    free(listener);
    if (events.on_closed) {
        events.on_closed(events.user);
    }
}

void listener_close(struct listener *listener) {
    if (listener->closing) {
        return;
    }
    listener->closing = true;
    address_unlink(&listener->bound);
    uv_close((uv_handle_t *)&listener->poll, on_handle_closed);
    uv_close((uv_handle_t *)&listener->accept_pause, on_handle_closed);
}

enum status listener_open(uv_loop_t *loop, const struct address *address,
                          const struct net_limits *limits, struct socket_bytes sizes,
                          const struct listener_events *events, struct listener **out,
                          struct address *bound, struct error *err) {
    struct listener *listener = calloc(1, sizeof(*listener));
    if (!listener) {
        return error_no_memory(err, "a listener");
    }
    *listener = (struct listener){.fd = -1, .n_handles = 2, .events = *events};
    enum status st = socket_listen(listener, address, limits, sizes, err);
    if (st == ST_OK) {
        int rc = uv_poll_init(loop, &listener->poll, listener->fd);
        if (rc != 0) {
            st = listen_error(address, "poll", -rc, err);
        }
    }
    if (st != ST_OK) {
        if (listener->fd >= 0) {
            close(listener->fd);
        }
        free(listener);
        return st;
    }
    uv_timer_init(loop, &listener->accept_pause); /* cannot fail */
    listener->poll.data = listener;
    listener->accept_pause.data = listener;
    uv_poll_start(&listener->poll, UV_READABLE, on_readable);
    *bound = listener->bound;
    *out = listener;
    return ST_OK;
}

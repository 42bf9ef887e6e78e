/* The socket of a client. Every descriptor is non-blocking and closed on exec; a broken pipe is an
 * error, never a signal. */
#include "client/client_connection.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SEND_PIECES = 64 };

uint64_t client_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void client_connection_init(struct client_connection *connection, const struct client_url *url) {
    *connection = (struct client_connection){.url = url, .fd = -1};
}

static void forget_addresses(struct client_connection *connection) {
    if (connection->found) {
        freeaddrinfo(connection->found);
    }
    connection->found = connection->next = NULL;
}

static void close_socket(struct client_connection *connection) {
    if (connection->fd >= 0) {
        close(connection->fd);
    }
    connection->fd = -1;
    connection->connecting = false;
}

void client_connection_close(struct client_connection *connection) {
    close_socket(connection);
    forget_addresses(connection);
}

static enum status failed(const struct client_connection *connection, int error,
                          struct error *err) {
    const struct client_url *url = connection->url;
    struct str where = url->is_unix ? url->path : url->authority;
    return error_set(err, ST_IO, "no connection to %.*s: %s", STR_ARG(where), strerror(error));
}

static enum status connect_to(struct client_connection *connection, int family,
                              const struct sockaddr *address, socklen_t n_bytes,
                              struct error *err) {
    close_socket(connection);
    connection->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) {
        return failed(connection, errno, err);
    }
    int yes = 1;
    if (family != AF_UNIX) { /* a request leaves at once; without it nothing is lost but time */
        (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    connection->connecting = true;
    if (connect(connection->fd, address, n_bytes) == 0) {
        connection->connecting = false;
        return ST_OK;
    }
    if (errno == EINPROGRESS || errno == EINTR) {
        return ST_OK;
    }
    int error = errno;
    close_socket(connection);
    return failed(connection, error, err);
}

/* Tries the addresses from `next` on, until one is under way. */
static enum status connect_next(struct client_connection *connection, struct error *err) {
    enum status status = ST_IO;
    while (connection->next && status != ST_OK) {
        struct addrinfo *address = connection->next;
        connection->next = address->ai_next;
        status =
            connect_to(connection, address->ai_family, address->ai_addr, address->ai_addrlen, err);
    }
    if (status != ST_OK || !connection->connecting) {
        forget_addresses(connection);
    }
    return status;
}

static enum status start_unix(struct client_connection *connection, struct error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* client_url_parse has checked that it fits */
    memcpy(address.sun_path, connection->url->path.ptr, connection->url->path.len + 1);
    return connect_to(connection, AF_UNIX, (const struct sockaddr *)&address, sizeof(address), err);
}

enum status client_connection_start(struct client_connection *connection, struct error *err) {
    const struct client_url *url = connection->url;
    client_connection_close(connection);
    if (url->is_unix) {
        return start_unix(connection, err);
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    char port[8];
    snprintf(port, sizeof(port), "%u", (unsigned)url->port);
    int error = getaddrinfo(url->host.ptr, port, &hints, &connection->found);
    if (error == EAI_NONAME || error == EAI_ADDRFAMILY || error == EAI_NODATA) {
        /* AI_ADDRCONFIG leaves out loopback's addresses on a machine without others. */
        hints.ai_flags = AI_NUMERICSERV;
        error = getaddrinfo(url->host.ptr, port, &hints, &connection->found);
    }
    if (error != 0) {
        connection->found = NULL;
        return error_set(err, ST_IO, "no address of %s: %s", url->host.ptr, gai_strerror(error));
    }
    connection->next = connection->found;
    return connect_next(connection, err);
}

enum status client_connection_proceed(struct client_connection *connection, struct error *err) {
    int error = 0;
    socklen_t n_bytes = sizeof(error);
    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &n_bytes) != 0) {
        error = errno;
    }
    if (error == 0) {
        connection->connecting = false;
        forget_addresses(connection);
        return ST_OK;
    }
    enum status status = failed(connection, error, err);
    close_socket(connection);
    return connection->next ? connect_next(connection, err) : status;
}

bool client_connection_is_idle(const struct client_connection *connection) {
    struct pollfd fd = {.fd = connection->fd, .events = POLLIN};
    return connection->fd >= 0 && poll(&fd, 1, 0) == 0;
}

enum status client_connection_send(struct client_connection *connection, const struct iovec *pieces,
                                   size_t n_pieces, size_t *n_sent, struct error *err) {
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces,
                             .msg_iovlen = n_pieces < SEND_PIECES ? n_pieces : SEND_PIECES};
    ssize_t n = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
    *n_sent = n > 0 ? (size_t)n : 0;
    if (n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
        return ST_OK;
    }
    return error_set(err, ST_IO, "sending failed: %s", strerror(errno));
}

enum status client_connection_receive(struct client_connection *connection, char *at,
                                      size_t n_bytes, size_t *n_received, bool *ended,
                                      struct error *err) {
    ssize_t n = recv(connection->fd, at, n_bytes, 0);
    *n_received = n > 0 ? (size_t)n : 0;
    *ended = n == 0;
    if (n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
        return ST_OK;
    }
    return error_set(err, ST_IO, "receiving failed: %s", strerror(errno));
}

enum status client_connection_wait(const struct client_connection *connection, bool read,
                                   bool write, uint64_t deadline_ns) {
    struct pollfd fd = {.fd = connection->fd,
                        .events = (short)((read ? POLLIN : 0) | (write ? POLLOUT : 0))};
    for (;;) {
        uint64_t now = client_now_ns();
        if (now >= deadline_ns) {
            return ST_DEADLINE_EXCEEDED;
        }
        uint64_t ms = (deadline_ns - now) / 1000000 + 1;
        if (poll(&fd, 1, ms > 3600000 ? 3600000 : (int)ms) > 0) {
            return ST_OK;
        }
    }
}

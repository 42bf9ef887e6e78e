/* Connecting a socket, and bytes over the socket or the caller's transport. Every descriptor is
 * non-blocking and closed on exec; a broken pipe is an error, never a signal. */
#include "client/connection/connection.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/connection/tls.h"
#include "core/event/clock.h"

/* Pieces below SMALL_BYTES are joined with the following ones before a transport gets them: each
 * of its writes costs a TLS record. */
enum { GATHER_BYTES = 16384, SMALL_BYTES = 4096 };

enum status client_connection_init(struct client_connection *connection,
                                   const struct client_url *url,
                                   const sluice_client_transport *transport, struct error *err) {
    *connection = (struct client_connection){.url = url, .fd = -1};
    if (!transport) {
        return ST_OK;
    }
    connection->transport = *transport;
    connection->gather_buffer = malloc(GATHER_BYTES);
    return connection->gather_buffer ? ST_OK : error_no_memory(err, "a client");
}

void client_connection_fini(struct client_connection *connection) {
    client_connection_close(connection);
    free(connection->gather_buffer);
    connection->gather_buffer = NULL;
}

/* ---- the transport --------------------------------------------------------------------------- */

/* A server that does not accept the client's certificate may say so after the handshake; for the
 * caller that is a failed handshake too. */
static enum status transport_failed(struct client_connection *connection, const char *doing,
                                    struct error *err) {
    const sluice_client_transport *transport = &connection->transport;
    const char *reason = transport->reason ? transport->reason(transport->context) : NULL;
    if (connection->tls && client_tls_is_refused(connection->tls)) {
        connection->phase = CLIENT_AGREEING;
    }
    return error_set(err, ST_IO, "%s %.*s failed: %s",
                     connection->phase == CLIENT_CONNECTED ? doing : "the handshake with",
                     STR_ARG(client_url_endpoint(connection->url)),
                     reason ? reason : "the transport gave no reason");
}

/* The result of a transport's read or write of `n_bytes`. */
static enum status transport_result(struct client_connection *connection, int64_t n, size_t n_bytes,
                                    const char *doing, struct client_io_result *out,
                                    struct error *err) {
    if (n > 0) {
        if ((uint64_t)n > n_bytes) {
            return error_set(err, ST_IO, "the transport reported %lld of %zu bytes", (long long)n,
                             n_bytes);
        }
        connection->established = true;
        connection->phase = CLIENT_CONNECTED;
        out->n_bytes = (size_t)n;
        return ST_OK;
    }
    out->wants_read = n == SLUICE_TRANSPORT_WANT_READ;
    out->wants_write = n == SLUICE_TRANSPORT_WANT_WRITE;
    return out->wants_read || out->wants_write ? ST_OK : transport_failed(connection, doing, err);
}

/* Joins pieces into one for the transport. Bytes that it does not take are joined the same way
 * again. */
static struct iovec gather_pieces(const struct client_connection *connection,
                                  const struct iovec *pieces, size_t n_pieces) {
    struct iovec all = {connection->gather_buffer, 0};
    if (!connection->is_shared && (n_pieces == 1 || pieces[0].iov_len >= SMALL_BYTES)) {
        return pieces[0];
    }
    for (size_t i = 0; i < n_pieces && all.iov_len < GATHER_BYTES; i++) {
        size_t n = GATHER_BYTES - all.iov_len;
        n = pieces[i].iov_len < n ? pieces[i].iov_len : n;
        memcpy(connection->gather_buffer + all.iov_len, pieces[i].iov_base, n);
        all.iov_len += n;
    }
    return all;
}

static enum status transport_send(struct client_connection *connection, const struct iovec *pieces,
                                  size_t n_pieces, struct client_io_result *out,
                                  struct error *err) {
    const sluice_client_transport *transport = &connection->transport;
    struct iovec piece = gather_pieces(connection, pieces, n_pieces);
    int64_t n = transport->write(transport->context, piece.iov_base, piece.iov_len);
    return transport_result(connection, n, piece.iov_len, "sending to", out, err);
}

static enum status transport_receive(struct client_connection *connection,
                                     const struct iovec *piece, struct client_io_result *out,
                                     struct error *err) {
    const sluice_client_transport *transport = &connection->transport;
    int64_t n = transport->read(transport->context, piece->iov_base, piece->iov_len);
    if (n == 0) {
        out->ended = true;
        return ST_OK;
    }
    return transport_result(connection, n, piece->iov_len, "receiving from", out, err);
}

/* ---- the socket ------------------------------------------------------------------------------ */

static bool would_block(int error) {
    return error == EAGAIN || error == EWOULDBLOCK;
}

static enum status socket_failed(const struct client_connection *connection, const char *doing,
                                 struct error *err) {
    return error_set(err, ST_IO, "%s %.*s failed: %s", doing,
                     STR_ARG(client_url_endpoint(connection->url)), strerror(errno));
}

enum status client_connection_send(struct client_connection *connection, struct iovec *pieces,
                                   size_t n_pieces, struct client_io_result *out,
                                   struct error *err) {
    struct msghdr message = {.msg_iov = pieces,
                             .msg_iovlen = n_pieces < IOV_MAX ? n_pieces : IOV_MAX};
    ssize_t n;
    *out = (struct client_io_result){0};
    if (connection->transport.read) {
        return transport_send(connection, pieces, n_pieces, out, err);
    }
    do {
        n = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    out->n_bytes = n > 0 ? (size_t)n : 0;
    out->wants_write = n <= 0;
    return n >= 0 || would_block(errno) ? ST_OK : socket_failed(connection, "sending to", err);
}

enum status client_connection_receive(struct client_connection *connection, struct iovec *pieces,
                                      size_t n_pieces, struct client_io_result *out,
                                      struct error *err) {
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = n_pieces};
    ssize_t n;
    *out = (struct client_io_result){0};
    if (connection->transport.read) {
        return transport_receive(connection, pieces, out, err);
    }
    do {
        n = recvmsg(connection->fd, &message, 0);
    } while (n < 0 && errno == EINTR);
    out->n_bytes = n > 0 ? (size_t)n : 0;
    out->ended = n == 0;
    out->wants_read = n < 0;
    return n >= 0 || would_block(errno) ? ST_OK : socket_failed(connection, "receiving from", err);
}

bool client_connection_is_reusable(struct client_connection *connection) {
    struct pollfd fd = {.fd = connection->fd, .events = POLLIN};
    struct client_io_result moved;
    char byte;
    struct iovec piece = {&byte, 1};
    if (connection->fd < 0) {
        return false;
    }
    if (!connection->transport.read) {
        return poll(&fd, 1, 0) == 0;
    }
    /* poll is not enough: a transport has bytes of its own on the socket (a new TLS session
     * ticket), and may buffer some of the peer's. */
    return client_connection_receive(connection, &piece, 1, &moved, NULL) == ST_OK &&
           moved.n_bytes == 0 && moved.wants_read;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* connect to a Unix socket with a full backlog fails at once, and no event reports when there is
 * space. */
enum { FIRST_RETRY_PAUSE_NS = 1000000, MAX_RETRY_PAUSE_NS = 64000000 };

static void free_addresses(struct client_connection *connection) {
    client_resolver_free(connection->resolver);
    connection->resolver = NULL;
    connection->next_address = 0;
}

static void close_socket(struct client_connection *connection) {
    if (connection->transport_started && connection->transport.stop) {
        connection->transport.stop(connection->transport.context);
    }
    if (connection->fd >= 0 && !connection->is_resolving) {
        close(connection->fd);
    }
    connection->fd = -1;
    connection->is_resolving = false;
    connection->connecting = connection->transport_started = connection->established = false;
    connection->retry_at_ns = 0;
}

void client_connection_close(struct client_connection *connection) {
    close_socket(connection);
    free_addresses(connection);
    connection->retry_pause_ns = FIRST_RETRY_PAUSE_NS;
}

static enum status connect_failed(const struct client_connection *connection, int error,
                                  struct error *err) {
    return error_set(err, ST_IO, "no connection to %.*s: %s",
                     STR_ARG(client_url_endpoint(connection->url)), strerror(error));
}

/* The socket is connected: start the transport. */
static enum status on_connected(struct client_connection *connection, struct error *err) {
    const sluice_client_transport *transport = &connection->transport;
    connection->connecting = false;
    connection->retry_at_ns = 0;
    free_addresses(connection);
    connection->phase = transport->read ? CLIENT_AGREEING : CLIENT_CONNECTED;
    if (!transport->read) {
        connection->established = true;
        return ST_OK;
    }
    if (transport->start(transport->context, connection->fd, connection->url->host.ptr) == 0) {
        connection->transport_started = true;
        return ST_OK;
    }
    const char *reason = transport->reason ? transport->reason(transport->context) : NULL;
    return error_set(err, ST_IO, "no connection to %.*s: the transport did not start: %s",
                     STR_ARG(client_url_endpoint(connection->url)),
                     reason ? reason : "no reason given");
}

/* An idle peer is probed, and one that acknowledges nothing is given up. Failure is harmless. */
static void set_keepalive(int fd) {
    enum { IDLE_S = 20, INTERVAL_S = 10, UNACKNOWLEDGED_MS = 30000 };
    int yes = 1, idle = IDLE_S, interval = INTERVAL_S, unacknowledged = UNACKNOWLEDGED_MS;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof(unacknowledged));
}

static enum status connect_to(struct client_connection *connection, int family,
                              const struct sockaddr *address, socklen_t n_bytes,
                              struct error *err) {
    close_socket(connection);
    connection->phase = CLIENT_DIALING;
    connection->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) {
        return connect_failed(connection, errno, err);
    }
    connection->n_sockets++;
    int yes = 1;
    if (family != AF_UNIX) { /* low latency; failure is harmless */
        (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    if (family != AF_UNIX && connection->is_shared) {
        set_keepalive(connection->fd);
    }
    connection->connecting = true;
    if (connect(connection->fd, address, n_bytes) == 0) {
        return on_connected(connection, err);
    }
    if (errno == EINPROGRESS || errno == EINTR) {
        return ST_OK;
    }
    int error = errno;
    if (family == AF_UNIX && (error == EAGAIN || error == EWOULDBLOCK)) { /* its queue is full */
        connection->retry_at_ns = clock_now_ns() + connection->retry_pause_ns;
        connection->retry_pause_ns *= connection->retry_pause_ns < MAX_RETRY_PAUSE_NS ? 2 : 1;
        return ST_OK;
    }
    close_socket(connection);
    return connect_failed(connection, error, err);
}

/* Tries the addresses from next_address on, until one is connecting. */
static enum status connect_next(struct client_connection *connection, struct error *err) {
    enum status status = ST_IO;
    const struct client_address *address;
    while (status != ST_OK &&
           (address = client_resolver_address(connection->resolver, connection->next_address))) {
        connection->next_address++;
        status = connect_to(connection, address->socket.ss_family,
                            (const struct sockaddr *)&address->socket, address->n_bytes, err);
    }
    return status;
}

static enum status connect_unix(struct client_connection *connection, struct error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* client_url_parse has checked the length */
    memcpy(address.sun_path, connection->url->path.ptr, connection->url->path.len + 1);
    return connect_to(connection, AF_UNIX, (const struct sockaddr *)&address, sizeof(address), err);
}

static enum status continue_resolving(struct client_connection *connection, struct error *err) {
    bool done = false;
    enum status status = client_resolver_step(connection->resolver, &done, err);
    if (status != ST_OK || done) {
        close_socket(connection);
        return status == ST_OK ? connect_next(connection, err) : status;
    }
    connection->n_sockets += !connection->is_resolving;
    connection->is_resolving = connection->connecting = true;
    connection->fd = client_resolver_fd(connection->resolver);
    connection->retry_at_ns = client_resolver_due_ns(connection->resolver);
    return ST_OK;
}

enum status client_connection_start(struct client_connection *connection, struct error *err) {
    const struct client_url *url = connection->url;
    client_connection_close(connection);
    connection->phase = CLIENT_RESOLVING;
    if (url->is_unix) {
        return connect_unix(connection, err);
    }
    enum status status = client_resolver_start(url->host.ptr, url->port, connection->resolving,
                                               &connection->resolver, err);
    return status == ST_OK ? continue_resolving(connection, err) : status;
}

enum status client_connection_continue(struct client_connection *connection, struct error *err) {
    if (connection->is_resolving) {
        return continue_resolving(connection, err);
    }
    if (connection->retry_at_ns > 0) {
        return clock_now_ns() < connection->retry_at_ns ? ST_OK : connect_unix(connection, err);
    }
    struct pollfd fd = {.fd = connection->fd, .events = POLLOUT};
    if (poll(&fd, 1, 0) == 0) {
        return ST_OK;
    }
    int error = 0;
    socklen_t n_bytes = sizeof(error);
    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &n_bytes) != 0) {
        error = errno;
    }
    if (error == 0) {
        return on_connected(connection, err);
    }
    close_socket(connection);
    return client_resolver_address(connection->resolver, connection->next_address)
               ? connect_next(connection, err)
               : connect_failed(connection, error, err);
}

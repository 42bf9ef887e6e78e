/* Bytes over the socket or the transport. A broken pipe is an error, never a signal. */
#include "client/connection.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* A piece that is smaller is put together with those behind it before a transport gets it: each of
 * its writes costs a record of its own. */
enum { GATHER_BYTES = 16384, SMALL_BYTES = 4096 };

uint64_t client_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

enum status client_connection_init(struct client_connection *connection,
                                   const struct client_url *url,
                                   const sluice_client_transport *transport, struct error *err) {
    *connection = (struct client_connection){.url = url, .fd = -1};
    if (!transport) {
        return ST_OK;
    }
    connection->transport = *transport;
    connection->gather_buffer = malloc(GATHER_BYTES);
    return connection->gather_buffer ? ST_OK
                                     : error_set(err, ST_NO_MEMORY, "no memory for a client");
}

void client_connection_fini(struct client_connection *connection) {
    client_connection_close(connection);
    free(connection->gather_buffer);
    connection->gather_buffer = NULL;
}

/* ---- the transport --------------------------------------------------------------------------- */

static enum status transport_failed(const struct client_connection *connection, const char *doing,
                                    struct error *err) {
    const sluice_client_transport *transport = &connection->transport;
    const char *reason = transport->reason ? transport->reason(transport->context) : NULL;
    return error_set(err, ST_IO, "%s %.*s failed: %s",
                     connection->established ? doing : "the handshake with",
                     STR_ARG(client_url_endpoint(connection->url)),
                     reason ? reason : "the transport gives no reason");
}

/* What a function of the transport answered, when it was given `n_bytes`. */
static enum status transport_result(struct client_connection *connection, int64_t n, size_t n_bytes,
                                    const char *doing, struct client_io_result *out,
                                    struct error *err) {
    if (n > 0) {
        if ((uint64_t)n > n_bytes) {
            return error_set(err, ST_IO, "the transport says that %lld of %zu bytes moved",
                             (long long)n, n_bytes);
        }
        connection->established = true;
        out->n_bytes = (size_t)n;
        return ST_OK;
    }
    out->wants_read = n == SLUICE_TRANSPORT_WANT_READ;
    out->wants_write = n == SLUICE_TRANSPORT_WANT_WRITE;
    return out->wants_read || out->wants_write ? ST_OK : transport_failed(connection, doing, err);
}

/* One piece for the transport. What is not taken is put together in the same way again. */
static struct iovec gather_pieces(const struct client_connection *connection,
                                  const struct iovec *pieces, size_t n_pieces) {
    struct iovec all = {connection->gather_buffer, 0};
    if (n_pieces == 1 || pieces[0].iov_len >= SMALL_BYTES) {
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
    /* The socket does not tell: a transport has bytes of its own on it (a new ticket of TLS), and
     * may hold some of the peer's. */
    return client_connection_receive(connection, &piece, 1, &moved, NULL) == ST_OK &&
           moved.n_bytes == 0 && moved.wants_read;
}

/* From a URL to a connected socket. Every descriptor is non-blocking and closed on exec. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/connection.h"

/* A Unix socket whose queue is full says so at once, and no descriptor tells when it is not. */
enum { FIRST_RETRY_PAUSE_NS = 1000000, MAX_RETRY_PAUSE_NS = 64000000 };

static void free_addresses(struct client_connection *connection) {
    if (connection->addresses) {
        freeaddrinfo(connection->addresses);
    }
    connection->addresses = connection->next_address = NULL;
}

static void close_socket(struct client_connection *connection) {
    if (connection->transport_started && connection->transport.stop) {
        connection->transport.stop(connection->transport.context);
    }
    if (connection->fd >= 0) {
        close(connection->fd);
    }
    connection->fd = -1;
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

/* The socket is connected: the transport's turn. */
static enum status on_connected(struct client_connection *connection, struct error *err) {
    const sluice_client_transport *transport = &connection->transport;
    connection->connecting = false;
    connection->retry_at_ns = 0;
    free_addresses(connection);
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
                     reason ? reason : "it gives no reason");
}

static bool has_full_queue(int family, int error) {
    return family == AF_UNIX && (error == EAGAIN || error == EWOULDBLOCK);
}

static enum status connect_to(struct client_connection *connection, int family,
                              const struct sockaddr *address, socklen_t n_bytes,
                              struct error *err) {
    close_socket(connection);
    connection->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) {
        return connect_failed(connection, errno, err);
    }
    int yes = 1;
    if (family != AF_UNIX) { /* a request leaves at once; without it nothing is lost but time */
        (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    connection->connecting = true;
    if (connect(connection->fd, address, n_bytes) == 0) {
        return on_connected(connection, err);
    }
    if (errno == EINPROGRESS || errno == EINTR) {
        return ST_OK;
    }
    int error = errno;
    if (has_full_queue(family, error)) {
        connection->retry_at_ns = client_now_ns() + connection->retry_pause_ns;
        connection->retry_pause_ns *= connection->retry_pause_ns < MAX_RETRY_PAUSE_NS ? 2 : 1;
        return ST_OK;
    }
    close_socket(connection);
    return connect_failed(connection, error, err);
}

/* Tries the addresses from `next` on, until one is under way. */
static enum status connect_next(struct client_connection *connection, struct error *err) {
    enum status status = ST_IO;
    while (connection->next_address && status != ST_OK) {
        const struct addrinfo *address = connection->next_address;
        connection->next_address = address->ai_next;
        status =
            connect_to(connection, address->ai_family, address->ai_addr, address->ai_addrlen, err);
    }
    return status;
}

static enum status connect_unix(struct client_connection *connection, struct error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* client_url_parse has checked that it fits */
    memcpy(address.sun_path, connection->url->path.ptr, connection->url->path.len + 1);
    return connect_to(connection, AF_UNIX, (const struct sockaddr *)&address, sizeof(address), err);
}

enum status client_connection_start(struct client_connection *connection, struct error *err) {
    const struct client_url *url = connection->url;
    client_connection_close(connection);
    if (url->is_unix) {
        return connect_unix(connection, err);
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    char port[8];
    snprintf(port, sizeof(port), "%u", (unsigned)url->port);
    int error = getaddrinfo(url->host.ptr, port, &hints, &connection->addresses);
    if (error == EAI_NONAME || error == EAI_ADDRFAMILY || error == EAI_NODATA) {
        /* AI_ADDRCONFIG leaves out loopback's addresses on a machine without others. */
        hints.ai_flags = AI_NUMERICSERV;
        error = getaddrinfo(url->host.ptr, port, &hints, &connection->addresses);
    }
    if (error != 0) {
        connection->addresses = NULL;
        return error_set(err, ST_IO, "no address of %s: %s", url->host.ptr, gai_strerror(error));
    }
    connection->next_address = connection->addresses;
    return connect_next(connection, err);
}

enum status client_connection_continue(struct client_connection *connection, struct error *err) {
    if (connection->retry_at_ns > 0) {
        return client_now_ns() < connection->retry_at_ns ? ST_OK : connect_unix(connection, err);
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
    return connection->next_address ? connect_next(connection, err)
                                    : connect_failed(connection, error, err);
}

/* TLS by OpenSSL: a context for all connections of a client, and a transport (connection.h) over
 * the socket of each. */
#include "client/connection/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct client_tls {
    SSL_CTX *ssl;
    const struct tls_peer_hints *hints;
    char *server_name; /* NULL: the host of the URL */
    BIO_METHOD *bio;   /* a socket BIO that does not raise SIGPIPE */
    bool is_http2;
};

struct client_tls_transport {
    const struct client_tls *tls;
    SSL *ssl; /* of the current connection */
    int fd;
    bool refused; /* the server did not accept the client's certificate */
    char reason[ERROR_TEXT_BYTES];
};

/* ---- the socket ------------------------------------------------------------------------------ */

static int fd_of(BIO *bio) {
    return ((const struct client_tls_transport *)BIO_get_data(bio))->fd;
}

static int on_read(BIO *bio, char *data, size_t n_bytes, size_t *n_read) {
    BIO_clear_retry_flags(bio);
    ssize_t n = recv(fd_of(bio), data, n_bytes, 0);
    *n_read = n > 0 ? (size_t)n : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_read(bio);
    }
    return n > 0;
}

static int on_write(BIO *bio, const char *data, size_t n_bytes, size_t *n_written) {
    BIO_clear_retry_flags(bio);
    ssize_t n = send(fd_of(bio), data, n_bytes, MSG_NOSIGNAL);
    *n_written = n > 0 ? (size_t)n : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_write(bio);
    }
    return n > 0;
}

static long on_ctrl(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method_new(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");
    if (method &&
        (BIO_meth_set_read_ex(method, on_read) != 1 ||
         BIO_meth_set_write_ex(method, on_write) != 1 || BIO_meth_set_ctrl(method, on_ctrl) != 1)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- a connection ---------------------------------------------------------------------------- */

static const unsigned char HTTP1[] = "\x08http/1.1", HTTP2[] = "\x02h2";

static int32_t start_tls(void *context, int fd, const char *host) {
    struct client_tls_transport *self = context;
    ERR_clear_error();
    self->fd = fd;
    self->refused = false;
    const unsigned char *protocols = self->tls->is_http2 ? HTTP2 : HTTP1;
    unsigned n_protocols = self->tls->is_http2 ? sizeof(HTTP2) - 1 : sizeof(HTTP1) - 1;
    host = self->tls->server_name ? self->tls->server_name : host;
    self->ssl = SSL_new(self->tls->ssl);
    BIO *bio = BIO_new(self->tls->bio);
    if (!self->ssl || !bio || !tls_peer_set_host(self->ssl, host) ||
        SSL_set_alpn_protos(self->ssl, protocols, n_protocols) != 0) {
        BIO_free(bio);
        SSL_free(self->ssl); /* `stop` is not called after a failed start */
        self->ssl = NULL;
        return SLUICE_TRANSPORT_FAILED;
    }
    BIO_set_data(bio, self);
    BIO_set_init(bio, 1);
    SSL_set_bio(self->ssl, bio, bio);
    SSL_set_connect_state(self->ssl); /* the first read or write performs the handshake */
    return 0;
}

static void stop_tls(void *context) {
    struct client_tls_transport *self = context;
    ERR_clear_error();
    SSL_shutdown(self->ssl); /* sends close_notify and does not wait for the peer's */
    SSL_free(self->ssl);
    self->ssl = NULL;
    ERR_clear_error();
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int64_t io_result(struct client_tls_transport *self, int rc, size_t n_moved) {
    int system_error = errno;
    struct error err;
    switch (SSL_get_error(self->ssl, rc)) {
    case SSL_ERROR_NONE:
        return (int64_t)n_moved;
    case SSL_ERROR_WANT_READ:
        return SLUICE_TRANSPORT_WANT_READ;
    case SSL_ERROR_WANT_WRITE:
        return SLUICE_TRANSPORT_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        self->refused = tls_peer_is_refused();
        tls_peer_explain(self->ssl, system_error, self->tls->hints, &err);
        snprintf(self->reason, ERROR_TEXT_BYTES, "%s", err.text);
        return SLUICE_TRANSPORT_FAILED;
    }
}

/* Only a read after the handshake may report the end of the connection. */
static int64_t ended_early(struct client_tls_transport *self) {
    snprintf(self->reason, ERROR_TEXT_BYTES, "the server ended the connection");
    return SLUICE_TRANSPORT_FAILED;
}

/* RFC 7301, 3.2; RFC 9113, 3.2: HTTP/2 over TLS is not assumed. */
static bool has_protocol(struct client_tls_transport *self) {
    const unsigned char *selected;
    unsigned n;
    SSL_get0_alpn_selected(self->ssl, &selected, &n);
    bool is_h2 = n == sizeof(HTTP2) - 2 && memcmp(selected, HTTP2 + 1, n) == 0;
    if (self->tls->is_http2 && !is_h2) {
        snprintf(self->reason, ERROR_TEXT_BYTES,
                 "the server does not offer HTTP/2, which gRPC needs (ALPN \"h2\")");
        return false;
    }
    return true;
}

/* Returns: 1 when the handshake is done, else the result for the caller. */
static int64_t shake_hands(struct client_tls_transport *self) {
    ERR_clear_error();
    errno = 0;
    if (SSL_is_init_finished(self->ssl)) {
        return 1;
    }
    int rc = SSL_do_handshake(self->ssl);
    if (rc != 1) {
        int64_t result = io_result(self, rc, 0);
        return result == 0 ? ended_early(self) : result;
    }
    return has_protocol(self) ? 1 : SLUICE_TRANSPORT_FAILED;
}

static int64_t read_plain(void *context, void *data, size_t n_bytes) {
    struct client_tls_transport *self = context;
    size_t n = 0;
    int64_t ready = shake_hands(self);
    if (ready != 1) {
        return ready;
    }
    int rc = SSL_read_ex(self->ssl, data, n_bytes, &n);
    return io_result(self, rc, n);
}

static int64_t write_plain(void *context, const void *data, size_t n_bytes) {
    struct client_tls_transport *self = context;
    size_t n = 0;
    int64_t ready = shake_hands(self);
    if (ready != 1) {
        return ready;
    }
    int rc = SSL_write_ex(self->ssl, data, n_bytes, &n);
    int64_t moved = io_result(self, rc, n);
    return moved == 0 ? ended_early(self) : moved;
}

static const char *failure_reason(void *context) {
    const struct client_tls_transport *self = context;
    return self->reason[0] != '\0' ? self->reason : NULL;
}

/* ---- new and free ---------------------------------------------------------------------- */

struct client_tls_transport *client_tls_transport_new(const struct client_tls *tls,
                                                      sluice_client_transport *functions) {
    struct client_tls_transport *self = calloc(1, sizeof(*self));
    if (self) {
        self->tls = tls;
        *functions = (sluice_client_transport){.size = sizeof(*functions),
                                               .context = self,
                                               .start = start_tls,
                                               .read = read_plain,
                                               .write = write_plain,
                                               .stop = stop_tls,
                                               .reason = failure_reason};
    }
    return self;
}

void client_tls_transport_free(void *transport) {
    free(transport);
}

bool client_tls_is_refused(const struct client_tls_transport *transport) {
    return transport->refused;
}

/* ---- settings -------------------------------------------------------------------------------- */

enum status client_tls_new(const struct client_tls_options *options, struct client_tls **out,
                           struct error *err) {
    *out = NULL;
    ERR_clear_error();
    struct client_tls *client = calloc(1, sizeof(*client));
    if (client) {
        client->hints = options->hints;
        client->is_http2 = options->is_http2;
        client->ssl = SSL_CTX_new(TLS_client_method());
        client->bio = bio_method_new();
        client->server_name = options->server_name ? strdup(options->server_name) : NULL;
    }
    bool made =
        client && client->ssl && client->bio && (client->server_name || !options->server_name);
    enum status st =
        made ? tls_peer_configure(client->ssl, &options->files, err) : error_no_memory(err, "TLS");
    if (st != ST_OK) {
        client_tls_free(client);
        return st;
    }
    *out = client;
    return ST_OK;
}

void client_tls_free(struct client_tls *tls) {
    if (tls) {
        SSL_CTX_free(tls->ssl);
        BIO_meth_free(tls->bio);
        free(tls->server_name);
        free(tls);
    }
}

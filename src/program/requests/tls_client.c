/* TLS for the commands: the OpenSSL context made of the command line, and a transport for a client
 * of libsluice. */
#include "program/requests/tls_client.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

struct tls_client {
    SSL_CTX *ssl;
    BIO_METHOD *bio; /* a socket BIO that does not raise SIGPIPE */
};

struct tls_transport {
    const struct tls_client *client;
    SSL *ssl; /* of the current connection */
    int fd;
    char reason[ERROR_TEXT_BYTES];
};

/* ---- the socket ------------------------------------------------------------------------------ */

static int fd_of(BIO *bio) {
    return ((const struct tls_transport *)BIO_get_data(bio))->fd;
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

static int32_t start_tls(void *context, int fd, const char *host) {
    static const unsigned char HTTP1[] = "\x08http/1.1";
    struct tls_transport *self = context;
    ERR_clear_error();
    self->fd = fd;
    self->ssl = SSL_new(self->client->ssl);
    BIO *bio = BIO_new(self->client->bio);
    if (!self->ssl || !bio || !tls_peer_set_host(self->ssl, host) ||
        SSL_set_alpn_protos(self->ssl, HTTP1, sizeof(HTTP1) - 1) != 0) {
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
    struct tls_transport *self = context;
    ERR_clear_error();
    SSL_shutdown(self->ssl); /* sends close_notify and does not wait for the peer's */
    SSL_free(self->ssl);
    self->ssl = NULL;
    ERR_clear_error();
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int64_t io_result(struct tls_transport *self, int rc, size_t n_moved) {
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
        tls_peer_explain(self->ssl, system_error, &err);
        snprintf(self->reason, ERROR_TEXT_BYTES, "%s", err.text);
        return SLUICE_TRANSPORT_FAILED;
    }
}

static int64_t read_plain(void *context, void *data, size_t n_bytes) {
    struct tls_transport *self = context;
    size_t n = 0;
    ERR_clear_error();
    errno = 0;
    int rc = SSL_read_ex(self->ssl, data, n_bytes, &n);
    return io_result(self, rc, n);
}

static int64_t write_plain(void *context, const void *data, size_t n_bytes) {
    struct tls_transport *self = context;
    size_t n = 0;
    ERR_clear_error();
    errno = 0;
    int rc = SSL_write_ex(self->ssl, data, n_bytes, &n);
    int64_t moved = io_result(self, rc, n);
    if (moved == 0) { /* only a read may report the end of the connection */
        snprintf(self->reason, ERROR_TEXT_BYTES, "the server ended the connection");
        return SLUICE_TRANSPORT_FAILED;
    }
    return moved;
}

static const char *failure_reason(void *context) {
    const struct tls_transport *self = context;
    return self->reason[0] != '\0' ? self->reason : NULL;
}

/* ---- new and free ---------------------------------------------------------------------- */

struct tls_transport *tls_transport_new(const struct tls_client *client,
                                        sluice_client_transport *functions) {
    struct tls_transport *self = calloc(1, sizeof(*self));
    if (self) {
        self->client = client;
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

void tls_transport_free(void *transport) {
    free(transport);
}

/* ---- TLS settings ---------------------------------------------------------------------------- */

/* Options without effect are most likely a mistake in the URL. */
enum status tls_client_check(const struct tls_client_options *options, const struct client_url *url,
                             struct error *err) {
    const char *given = options->cacert     ? "cacert"
                        : options->cert     ? "cert"
                        : options->key      ? "key"
                        : options->insecure ? "insecure"
                                            : NULL;
    if (given && !url->is_tls) {
        return error_set(err, ST_BAD_CONFIG,
                         "--%s is for https://HOST:PORT and grpcs://HOST:PORT, not for %s", given,
                         url->text.ptr);
    }
    return options->key && !options->cert ? error_set(err, ST_BAD_CONFIG, "--key needs --cert FILE")
                                          : ST_OK;
}

struct tls_peer_options tls_client_files(const struct tls_client_options *options) {
    return (struct tls_peer_options){.ca = {"--cacert", options->cacert},
                                     .cert = {"--cert", options->cert},
                                     .key = {"--key", options->key},
                                     .insecure = options->insecure};
}

enum status tls_client_new(const struct tls_client_options *options, const struct client_url *url,
                           struct tls_client **out, struct error *err) {
    *out = NULL;
    if (!url->is_tls) {
        return ST_OK;
    }
    struct tls_peer_options files = tls_client_files(options);
    ERR_clear_error();
    struct tls_client *client = calloc(1, sizeof(*client));
    if (client) {
        client->ssl = SSL_CTX_new(TLS_client_method());
        client->bio = bio_method_new();
    }
    enum status st = client && client->ssl && client->bio
                         ? tls_peer_configure(client->ssl, &files, err)
                         : error_no_memory(err, "TLS");
    if (st != ST_OK) {
        tls_client_free(client);
        return st;
    }
    *out = client;
    return ST_OK;
}

void tls_client_free(struct tls_client *client) {
    if (client) {
        SSL_CTX_free(client->ssl);
        BIO_meth_free(client->bio);
        free(client);
    }
}

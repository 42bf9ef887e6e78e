/* OpenSSL with two buffers in memory in place of a socket. */
#include "net/client/grpc/tls.h"

#include <limits.h>
#include <openssl/err.h>
#include <string.h>

#include "net/transport/tls/peer.h"

static const unsigned char ALPN[] = "\x02h2";

static struct tls_peer_options options_of(const struct grpc_client_tls *files) {
    return (struct tls_peer_options){.ca = {files->ca_setting, files->ca},
                                     .cert = {files->cert_setting, files->cert},
                                     .key = {files->key_setting, files->key}};
}

static void explain(const struct grpc_tls *self, struct error *err) {
    const struct grpc_client_tls *files = self->files;
    const struct tls_peer_hints hints = {files->ca_setting, files->cert_setting,
                                         files->cert_setting};
    tls_peer_explain(self->ssl, 0, &hints, err);
}

static SSL_CTX *context_new(const struct grpc_client_tls *files, struct error *err) {
    const struct tls_peer_options options = options_of(files);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    enum status st =
        context ? tls_peer_configure(context, &options, err) : error_no_memory(err, "TLS");
    if (st != ST_OK) {
        SSL_CTX_free(context);
        return NULL;
    }
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    return context;
}

enum status grpc_client_tls_check(const struct grpc_client_tls *files, struct error *err) {
    *err = (struct error){.status = ST_OK};
    SSL_CTX_free(context_new(files, err));
    return err->status;
}

enum status grpc_tls_init(struct grpc_tls *self, const struct grpc_client_tls *files,
                          const char *host, struct error *err) {
    ERR_clear_error();
    self->files = files;
    self->context = context_new(files, err);
    if (!self->context) {
        return err->status;
    }
    self->ssl = SSL_new(self->context);
    self->in = BIO_new(BIO_s_mem());
    self->out = BIO_new(BIO_s_mem());
    if (!self->ssl || !self->in || !self->out || !tls_peer_set_host(self->ssl, host) ||
        SSL_set_alpn_protos(self->ssl, ALPN, sizeof(ALPN) - 1) != 0) {
        BIO_free(self->in);
        BIO_free(self->out);
        return error_no_memory(err, "TLS");
    }
    BIO_set_mem_eof_return(self->in, -1); /* empty is not its end */
    SSL_set_bio(self->ssl, self->in, self->out);
    SSL_set_connect_state(self->ssl);
    return ST_OK;
}

void grpc_tls_fini(struct grpc_tls *self) {
    SSL_free(self->ssl); /* with its buffers */
    SSL_CTX_free(self->context);
    *self = (struct grpc_tls){0};
}

bool grpc_tls_receive(struct grpc_tls *self, struct str bytes) {
    return bytes.len <= INT_MAX && BIO_write(self->in, bytes.ptr, (int)bytes.len) == (int)bytes.len;
}

/* RFC 7301, 3.2; RFC 9113, 3.2: HTTP/2 over TLS is not assumed. */
static enum status check_protocol(const struct grpc_tls *self, struct error *err) {
    const unsigned char *selected;
    unsigned n;
    SSL_get0_alpn_selected(self->ssl, &selected, &n);
    return n == sizeof(ALPN) - 2 && memcmp(selected, ALPN + 1, n) == 0
               ? ST_OK
               : error_set(err, ST_IO,
                           "the server does not offer HTTP/2, which gRPC needs (ALPN \"h2\")");
}

enum status grpc_tls_handshake(struct grpc_tls *self, bool *done, struct error *err) {
    ERR_clear_error();
    int rc = SSL_do_handshake(self->ssl);
    *done = rc == 1;
    if (*done) {
        return check_protocol(self, err);
    }
    if (SSL_get_error(self->ssl, rc) == SSL_ERROR_WANT_READ) {
        return ST_OK;
    }
    explain(self, err);
    return err->status;
}

enum status grpc_tls_read(struct grpc_tls *self, char *data, size_t n_bytes, size_t *n_read,
                          struct error *err) {
    ERR_clear_error();
    *n_read = 0;
    int rc = SSL_read_ex(self->ssl, data, n_bytes, n_read);
    int why = rc == 1 ? SSL_ERROR_NONE : SSL_get_error(self->ssl, rc);
    if (why == SSL_ERROR_NONE || why == SSL_ERROR_WANT_READ) {
        return ST_OK;
    }
    if (why == SSL_ERROR_ZERO_RETURN) {
        return error_set(err, ST_IO, "the server closed the connection");
    }
    explain(self, err);
    return err->status;
}

enum status grpc_tls_write(struct grpc_tls *self, struct str data, struct error *err) {
    ERR_clear_error();
    while (data.len > 0) {
        size_t n = 0;
        if (SSL_write_ex(self->ssl, data.ptr, data.len, &n) != 1 || n == 0) {
            explain(self, err);
            return err->status;
        }
        data = str_make(data.ptr + n, data.len - n);
    }
    return ST_OK;
}

void grpc_tls_explain_end(struct grpc_tls *self, struct error *err) {
    ERR_clear_error();
    explain(self, err);
}

size_t grpc_tls_pending(const struct grpc_tls *self) {
    return BIO_ctrl_pending(self->out);
}

void grpc_tls_take(struct grpc_tls *self, char *out, size_t n_bytes) {
    size_t n = 0;
    (void)!BIO_read_ex(self->out, out, n_bytes, &n);
}

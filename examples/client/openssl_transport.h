/* TLS for a sluice_client by OpenSSL 3, to be copied into a program. The SSL_CTX has the trusted
 * certificates. OpenSSL's writes raise SIGPIPE when the peer has closed the connection: ignore
 * that signal. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sluice/client.h>

struct openssl {
    SSL_CTX *settings; /* the caller's */
    SSL *ssl;          /* of the current connection */
};

static int32_t openssl_start(void *context, int fd, const char *host) {
    struct openssl *tls = context;
    tls->ssl = SSL_new(tls->settings);
    if (!tls->ssl || SSL_set_fd(tls->ssl, fd) != 1 || SSL_set1_host(tls->ssl, host) != 1 ||
        SSL_set_tlsext_host_name(tls->ssl, host) != 1) {
        SSL_free(tls->ssl); /* stop is not called after a failed start */
        tls->ssl = NULL;
        return SLUICE_TRANSPORT_FAILED;
    }
    SSL_set_mode(tls->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_set_connect_state(tls->ssl); /* the handshake is done by the first reads and writes */
    return 0;
}

static int64_t openssl_outcome(const struct openssl *tls, int done, const size_t *n_moved) {
    int why = SSL_get_error(tls->ssl, done);
    return why == SSL_ERROR_NONE          ? (int64_t)*n_moved
           : why == SSL_ERROR_WANT_READ   ? SLUICE_TRANSPORT_WANT_READ
           : why == SSL_ERROR_WANT_WRITE  ? SLUICE_TRANSPORT_WANT_WRITE
           : why == SSL_ERROR_ZERO_RETURN ? 0
                                          : SLUICE_TRANSPORT_FAILED;
}

static int64_t openssl_read(void *context, void *data, size_t n_bytes) {
    struct openssl *tls = context;
    size_t n = 0;
    ERR_clear_error();
    return openssl_outcome(tls, SSL_read_ex(tls->ssl, data, n_bytes, &n), &n);
}

static int64_t openssl_write(void *context, const void *data, size_t n_bytes) {
    struct openssl *tls = context;
    size_t n = 0;
    ERR_clear_error();
    return openssl_outcome(tls, SSL_write_ex(tls->ssl, data, n_bytes, &n), &n);
}

static void openssl_stop(void *context) {
    struct openssl *tls = context;
    SSL_shutdown(tls->ssl); /* sends close_notify, and does not wait for the peer's */
    SSL_free(tls->ssl);
    tls->ssl = NULL;
}

static const char *openssl_reason(void *context) {
    const struct openssl *tls = context;
    long verified = tls->ssl ? SSL_get_verify_result(tls->ssl) : X509_V_OK;
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    return verified != X509_V_OK ? X509_verify_cert_error_string(verified) : reason;
}

static sluice_client_transport openssl_transport(struct openssl *tls) {
    sluice_client_transport transport = {.size = sizeof(transport), .context = tls};
    transport.start = openssl_start;
    transport.read = openssl_read;
    transport.write = openssl_write;
    transport.stop = openssl_stop;
    transport.reason = openssl_reason;
    return transport;
}

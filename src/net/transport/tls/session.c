/* OpenSSL between two buffers: its BIO reads the peer's bytes and writes ours in the caller's
 * memory, without buffering.
 *
 * Failures are explained by a table of frequent reasons, else by OpenSSL's own text. */
#include "net/transport/tls/session.h"

#include <assert.h>
#include <openssl/err.h>

enum { ALERTS = SSL_AD_REASON_OFFSET }; /* reasons from here on are alerts received from the peer */

static_assert(TLS_CLIENT_CERTS_BYTES == 16384, "a text below says so");
static const struct {
    int reason;
    enum tls_failure failure;
    const char *text;
} REASONS[] = {
    {SSL_R_NO_APPLICATION_PROTOCOL, TLS_FAILURE_ALPN,
     "no protocol (ALPN) in common with the client"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, TLS_FAILURE_CERTIFICATE,
     "the client sent no certificate, but one is required"},
    {SSL_R_UNSUPPORTED_PROTOCOL, TLS_FAILURE_PROTOCOL,
     "the client offers no version of TLS from 1.2 on"},
    {SSL_R_VERSION_TOO_LOW, TLS_FAILURE_PROTOCOL,
     "the client offers no version of TLS from 1.2 on"},
    {SSL_R_NO_SHARED_CIPHER, TLS_FAILURE_PROTOCOL, "no cipher in common with the client"},
    {SSL_R_WRONG_VERSION_NUMBER, TLS_FAILURE_PROTOCOL, "the client does not use TLS"},
    {SSL_R_EXCESSIVE_MESSAGE_SIZE, TLS_FAILURE_PROTOCOL,
     "a message of the handshake is too large (of certificates a client may send 16 KiB)"},
    {SSL_R_UNEXPECTED_EOF_WHILE_READING, TLS_FAILURE_DISCONNECTED, "the client disconnected"},
};

/* Explains the first error in OpenSSL's queue, and clears the queue. */
static enum tls_failure tls_failure_explain(const struct tls_session *session, struct error *err) {
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    const char *words = ERR_reason_error_string(error);
    long verdict = SSL_get_verify_result(session->ssl);
    ERR_clear_error();
    if (verdict != X509_V_OK) {
        error_set(err, ST_UNAUTHENTICATED, "the client's certificate is refused: %s",
                  X509_verify_cert_error_string(verdict));
        return TLS_FAILURE_CERTIFICATE;
    }
    for (size_t i = 0; i < sizeof(REASONS) / sizeof(REASONS[0]); i++) {
        if (ERR_GET_LIB(error) == ERR_LIB_SSL && REASONS[i].reason == reason) {
            error_set(err, ST_BAD_REQUEST, "%s", REASONS[i].text);
            return REASONS[i].failure;
        }
    }
    if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= ALERTS) {
        error_set(err, ST_BAD_REQUEST, "the client sent a TLS alert: %s",
                  words ? words : "no reason given");
        return TLS_FAILURE_REFUSED;
    }
    error_set(err, ST_BAD_REQUEST, "%s", words ? words : "the client violated the TLS protocol");
    return TLS_FAILURE_PROTOCOL;
}

/* ---- messages of TLS itself ------------------------------------------------------------------ */

/* OpenSSL calls this for each record and each message, in both directions. */
void tls_session_on_message(int is_ours, int version, int type, const void *data, size_t n_bytes,
                            SSL *ssl, void *user) {
    struct tls_session *session = SSL_get_app_data(ssl);
    (void)is_ours, (void)version, (void)data, (void)n_bytes, (void)user;
    if (session->established && (type == SSL3_RT_HANDSHAKE || type == SSL3_RT_ALERT)) {
        session->n_extra++;
    }
}

static bool has_too_many_extra(const struct tls_session *session) {
    return session->n_extra > TLS_EXTRA_MAX;
}

/* ---- BIO for OpenSSL ------------------------------------------------------------------------- */

static struct tls_io *io_of(BIO *bio) {
    return ((struct tls_session *)BIO_get_data(bio))->io;
}

static int on_bio_read(BIO *bio, char *data, size_t n_bytes, size_t *n_read) {
    struct tls_io *io = io_of(bio);
    size_t n = io->in.len < n_bytes ? io->in.len : n_bytes;
    BIO_clear_retry_flags(bio);
    if (n == 0 || has_too_many_extra(BIO_get_data(bio))) {
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(data, io->in.ptr, n);
    io->in = str_make(io->in.ptr + n, io->in.len - n);
    if (io->in.len == 0) {
        io->in = io->in_after;
        io->in_after = str_make(NULL, 0);
    }
    *n_read = n;
    return 1;
}

static int on_bio_write(BIO *bio, const char *data, size_t n_bytes, size_t *n_written) {
    struct tls_io *io = io_of(bio);
    size_t capacity = io->out_cap - io->out_len;
    size_t n = capacity < n_bytes ? capacity : n_bytes;
    BIO_clear_retry_flags(bio);
    if (n == 0) {
        BIO_set_retry_write(bio);
        return 0;
    }
    memcpy(io->out + io->out_len, data, n);
    io->out_len += n;
    *n_written = n;
    return 1;
}

static long on_bio_ctrl(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH; /* nothing is buffered; other commands do not apply */
}

BIO_METHOD *tls_session_bio_method(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "sluice");
    if (method && (BIO_meth_set_read_ex(method, on_bio_read) != 1 ||
                   BIO_meth_set_write_ex(method, on_bio_write) != 1 ||
                   BIO_meth_set_ctrl(method, on_bio_ctrl) != 1)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- ALPN ------------------------------------------------------------------------------------ */

/* The server's order of preference decides. OpenSSL does not call this for a client without ALPN.
 * (RFC 7301, 3.2) */
int tls_session_on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                        const unsigned char *in, unsigned in_len, void *user) {
    const struct tls_session *session = SSL_get_app_data(ssl);
    unsigned char *chosen;
    (void)user;
    if (session->alpn.len == 0) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    if (SSL_select_next_proto(&chosen, out_len, (const unsigned char *)session->alpn.ptr,
                              (unsigned)session->alpn.len, in, in_len) != OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* ---- creating and freeing a session ---------------------------------------------------------- */

bool tls_session_init(struct tls_session *session, struct tls_context *context, struct str alpn) {
    session->context = context;
    session->alpn = alpn;
    session->ssl = SSL_new(context->ssl);
    BIO *bio = BIO_new(context->bio);
    if (!session->ssl || !bio) {
        BIO_free(bio);
        ERR_clear_error();
        return false;
    }
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio);
    SSL_set_app_data(session->ssl, session);
    SSL_set_accept_state(session->ssl);
    return true;
}

void tls_session_fini(struct tls_session *session) {
    SSL_free(session->ssl);
    tls_context_unref(session->context);
    session->ssl = NULL;
    session->context = NULL;
}

/* ---- handshake, read, write ------------------------------------------------------------------ */

static void begin_call(struct tls_session *session, struct tls_io *io) {
    session->io = io;
    if (ERR_peek_error() != 0) { /* peeking is much cheaper than clearing */
        ERR_clear_error();
    }
}

/* Maps OpenSSL's return value. */
static enum tls_result end_call(struct tls_session *session, int rc) {
    switch (rc > 0 ? SSL_ERROR_NONE : SSL_get_error(session->ssl, rc)) {
    case SSL_ERROR_NONE:
        return TLS_DONE;
    case SSL_ERROR_WANT_READ:
        return TLS_WANT_READ;
    case SSL_ERROR_WANT_WRITE:
        return TLS_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_CLOSED;
    default:
        session->broken = true;
        return TLS_FAILED;
    }
}

enum tls_result tls_session_handshake(struct tls_session *session, struct tls_io *io,
                                      enum tls_failure *why, struct error *err) {
    begin_call(session, io);
    enum tls_result result = end_call(session, SSL_do_handshake(session->ssl));
    if (result == TLS_CLOSED) {
        session->broken = true;
        *why = TLS_FAILURE_DISCONNECTED;
        error_set(err, ST_BAD_REQUEST, "the client closed the connection during the handshake");
        return TLS_FAILED;
    }
    if (result == TLS_FAILED) {
        *why = tls_failure_explain(session, err);
    }
    session->established = result == TLS_DONE;
    return result;
}

enum tls_result tls_session_read(struct tls_session *session, struct tls_io *io, char *data,
                                 size_t n_bytes, size_t *n_read, struct error *err) {
    enum tls_result result = TLS_DONE;
    *n_read = 0;
    while (result == TLS_DONE && *n_read < n_bytes) {
        size_t n = 0;
        if (io->in.len == 0 && SSL_has_pending(session->ssl) == 0) {
            return TLS_WANT_READ; /* OpenSSL would take much longer to find out */
        }
        begin_call(session, io);
        result =
            end_call(session, SSL_read_ex(session->ssl, data + *n_read, n_bytes - *n_read, &n));
        *n_read += n;
        session->n_since += n;
        if (session->n_since >= TLS_EXTRA_BYTES) {
            session->n_since = session->n_extra = 0;
        }
        if (has_too_many_extra(session)) {
            session->broken = true;
            error_set(err, ST_BAD_REQUEST,
                      "the client sent more than %d messages of TLS itself (updates of keys, "
                      "renegotiations) within 1 MiB of data",
                      TLS_EXTRA_MAX);
            return TLS_FAILED;
        }
    }
    if (result == TLS_FAILED) {
        (void)tls_failure_explain(session, err);
    }
    return result;
}

enum tls_result tls_session_write(struct tls_session *session, struct tls_io *io, struct str data) {
    size_t n;
    if (io->out_cap - io->out_len < TLS_ENCRYPTED_RECORD_MAX_BYTES) {
        return TLS_WANT_WRITE;
    }
    begin_call(session, io);
    enum tls_result result = end_call(session, SSL_write_ex(session->ssl, data.ptr, data.len, &n));
    /* There was capacity for the whole record and nothing had to come first: it was encrypted, or
     * it cannot be. */
    if (result != TLS_DONE || n != data.len) {
        session->broken = true;
        return TLS_FAILED;
    }
    return TLS_DONE;
}

void tls_session_send_close_notify(struct tls_session *session, struct tls_io *io) {
    if (!session->broken && SSL_is_init_finished(session->ssl)) {
        begin_call(session, io);
        SSL_shutdown(session->ssl); /* does not wait for the peer's close_notify */
        ERR_clear_error();
    }
}

/* ---- for the log ----------------------------------------------------------------------------- */

const char *tls_session_version(const struct tls_session *session) {
    return SSL_get_version(session->ssl);
}

const char *tls_session_cipher(const struct tls_session *session) {
    return SSL_get_cipher_name(session->ssl);
}

bool tls_session_is_resumed(const struct tls_session *session) {
    return SSL_session_reused(session->ssl) == 1;
}

/* Every TLS message begins with a byte below 'A', or (SSL 2) above 'Z'. */
bool tls_looks_like_plaintext(struct str first) {
    return first.len > 0 && first.ptr[0] >= 'A' && first.ptr[0] <= 'Z';
}

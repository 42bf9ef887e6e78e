/* One row for each reason that people meet; OpenSSL's own words for the rest. */
#include "net/transport/tls/failure.h"

#include <openssl/err.h>

#include "net/transport/tls/peer.h"

enum { ALERTS = SSL_AD_REASON_OFFSET }; /* from here on, reasons are alerts that the peer sent */

static const struct {
    int reason;
    enum tls_failure failure;
    const char *text;
} REASONS[] = {
    {SSL_R_NO_APPLICATION_PROTOCOL, TLS_FAILURE_ALPN,
     "the client offers only protocols (ALPN) that are not spoken here"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, TLS_FAILURE_CERTIFICATE,
     "the client has no certificate, and here it needs one"},
    {SSL_R_UNSUPPORTED_PROTOCOL, TLS_FAILURE_PROTOCOL,
     "the client offers no version of TLS from 1.2 on"},
    {SSL_R_VERSION_TOO_LOW, TLS_FAILURE_PROTOCOL,
     "the client offers no version of TLS from 1.2 on"},
    {SSL_R_NO_SHARED_CIPHER, TLS_FAILURE_PROTOCOL, "no cipher in common with the client"},
    {SSL_R_WRONG_VERSION_NUMBER, TLS_FAILURE_PROTOCOL, "what came is no TLS"},
    {SSL_R_UNEXPECTED_EOF_WHILE_READING, TLS_FAILURE_DISCONNECTED, "the client went away"},
};

/* The client's certificate was looked at, and refused. */
static enum tls_failure explain_certificate(long verdict, struct error *err) {
    error_set(err, ST_UNAUTHENTICATED, "the client's certificate is refused: %s",
              X509_verify_cert_error_string(verdict));
    return TLS_FAILURE_CERTIFICATE;
}

enum tls_failure tls_failure_explain(const struct tls_session *session, struct error *err) {
    if (!SSL_is_server(session->ssl)) {
        tls_peer_explain(session->ssl, 0, err);
        return TLS_FAILURE_PROTOCOL;
    }
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    const char *words = ERR_reason_error_string(error);
    long verdict = SSL_get_verify_result(session->ssl);
    ERR_clear_error();
    if (verdict != X509_V_OK) {
        return explain_certificate(verdict, err);
    }
    for (size_t i = 0; i < sizeof(REASONS) / sizeof(REASONS[0]); i++) {
        if (ERR_GET_LIB(error) == ERR_LIB_SSL && REASONS[i].reason == reason) {
            error_set(err, ST_BAD_REQUEST, "%s", REASONS[i].text);
            return REASONS[i].failure;
        }
    }
    if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= ALERTS) {
        error_set(err, ST_BAD_REQUEST, "the client gave up: %s",
                  words ? words : "it does not say why");
        return TLS_FAILURE_REFUSED;
    }
    error_set(err, ST_BAD_REQUEST, "%s",
              words ? words : "the client's bytes are not what TLS demands");
    return TLS_FAILURE_PROTOCOL;
}

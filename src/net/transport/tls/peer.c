/* Configures OpenSSL from a client's TLS files, and explains its errors. */
#include "net/transport/tls/peer.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- places of trusted certificates ---------------------------------------------------------- */

const char *tls_trust_first(const char *const *paths, size_t n) {
    size_t i = 0;
    while (i < n && access(paths[i], R_OK) != 0) {
        i++;
    }
    return i < n ? paths[i] : NULL;
}

struct tls_trust tls_trust_system(void) {
    const char *const bundles[] = {
        X509_get_default_cert_file(),
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Alpine, Arch */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem", /* openSUSE */
        "/etc/ssl/cert.pem",
    };
    struct tls_trust trust = {.file = getenv(X509_get_default_cert_file_env()),
                              .directory = getenv(X509_get_default_cert_dir_env())};
    if (!trust.file && !trust.directory) {
        trust.file = tls_trust_first(bundles, sizeof(bundles) / sizeof(bundles[0]));
    }
    return trust;
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char *openssl_reason(void) {
    unsigned long error = ERR_peek_error();
    bool system = error != 0 && ERR_SYSTEM_ERROR(error);
    const char *text = system ? strerror(ERR_GET_REASON(error)) : ERR_reason_error_string(error);
    ERR_clear_error();
    return text ? text : "OpenSSL gives no reason";
}

static enum status use_ca(SSL_CTX *ssl, const struct tls_file *ca, struct error *err) {
    if (!ca->path) {
        /* Without a CA, verification fails later with its own error. */
        const char *file = tls_trust_system().file;
        SSL_CTX_set_default_verify_paths(ssl);
        if (file && strcmp(file, X509_get_default_cert_file()) != 0) {
            SSL_CTX_load_verify_locations(ssl, file, NULL);
        }
        ERR_clear_error();
        return ST_OK;
    }
    if (SSL_CTX_load_verify_locations(ssl, ca->path, NULL) != 1) {
        return error_set(err, ST_BAD_CONFIG, "%s %s: expected certificates in PEM: %s", ca->setting,
                         ca->path, openssl_reason());
    }
    return ST_OK;
}

/* Refuses to ask for a passphrase: there is no terminal. */
static int on_passphrase(char *out, int n_bytes, int writing, void *asked) {
    (void)out, (void)n_bytes, (void)writing;
    *(bool *)asked = true;
    return -1;
}

static enum status refuse_key(const struct tls_peer_options *options, bool encrypted,
                              struct error *err) {
    const struct tls_file *cert = &options->cert;
    const struct tls_file *key = options->key.path ? &options->key : cert;
    const char *why = openssl_reason();
    if (encrypted) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s %s: the key is encrypted; `openssl pkey -in FILE -out NEW` writes it "
                         "without a passphrase",
                         key->setting, key->path);
    }
    if (key == cert) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s %s: expected the private key in the same file, in PEM, or in one of "
                         "its own (%s FILE): %s",
                         cert->setting, cert->path, options->key.setting, why);
    }
    return error_set(err, ST_BAD_CONFIG, "%s %s: expected the private key of %s, in PEM: %s",
                     key->setting, key->path, cert->setting, why);
}

static enum status use_cert(SSL_CTX *ssl, const struct tls_peer_options *options,
                            struct error *err) {
    const struct tls_file *cert = &options->cert;
    const char *key = options->key.path ? options->key.path : cert->path;
    bool asked = false;
    if (!cert->path) {
        return ST_OK;
    }
    if (SSL_CTX_use_certificate_chain_file(ssl, cert->path) != 1) {
        return error_set(err, ST_BAD_CONFIG, "%s %s: expected a certificate in PEM: %s",
                         cert->setting, cert->path, openssl_reason());
    }
    SSL_CTX_set_default_passwd_cb(ssl, on_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, &asked);
    bool used = SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    SSL_CTX_set_default_passwd_cb(ssl, NULL);
    return used ? ST_OK : refuse_key(options, asked, err);
}

enum status tls_peer_configure(SSL_CTX *ssl, const struct tls_peer_options *options,
                               struct error *err) {
    ERR_clear_error();
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_verify(ssl, options->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    enum status st = options->insecure ? ST_OK : use_ca(ssl, &options->ca, err);
    return st == ST_OK ? use_cert(ssl, options, err) : st;
}

/* ---- one connection -------------------------------------------------------------------------- */

/* RFC 6066, 3: SNI has no addresses. */
bool tls_peer_set_host(SSL *ssl, const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    }
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

/* Returns: whether the server refused the client certificate. */
static bool is_client_cert_refused(int why) {
    static const int REASONS[] = {
        SSL_R_TLSV1_ALERT_UNKNOWN_CA,          SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
        SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED,
        SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
        SSL_R_TLSV1_ALERT_ACCESS_DENIED,
    };
    size_t i = 0, n = sizeof(REASONS) / sizeof(REASONS[0]);
    while (i < n && REASONS[i] != why) {
        i++;
    }
    return i < n;
}

/* Returns: whether other trusted CAs may change the verdict. */
static bool is_about_trust(long verdict) {
    return verdict != X509_V_ERR_HOSTNAME_MISMATCH && verdict != X509_V_ERR_IP_ADDRESS_MISMATCH &&
           verdict != X509_V_ERR_CERT_HAS_EXPIRED && verdict != X509_V_ERR_CERT_NOT_YET_VALID;
}

/* The check that failed. */
static void explain_verdict(long verdict, const struct tls_peer_hints *hints, struct error *err) {
    const char *words = X509_verify_cert_error_string(verdict);
    if (is_about_trust(verdict)) {
        error_set(err, ST_IO, "the server's certificate is refused: %s (%s sets the trusted CAs)",
                  words, hints->ca);
    } else {
        error_set(err, ST_IO, "the server's certificate is refused: %s", words);
    }
}

bool tls_peer_is_refused(void) {
    unsigned long error = ERR_peek_error();
    int why = error != 0 ? ERR_GET_REASON(error) : 0;
    return why == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED || is_client_cert_refused(why);
}

void tls_peer_explain(const SSL *ssl, int system_error, const struct tls_peer_hints *hints,
                      struct error *err) {
    static const struct tls_peer_hints flags = {"--cacert FILE", "--cert FILE",
                                                "--cert FILE --key FILE"};
    long verdict = SSL_get_verify_result(ssl);
    unsigned long error = ERR_peek_error();
    const char *words = ERR_reason_error_string(error);
    int why = error != 0 ? ERR_GET_REASON(error) : 0;
    ERR_clear_error();
    hints = hints ? hints : &flags;
    if (verdict != X509_V_OK && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE) {
        explain_verdict(verdict, hints, err);
    } else if (why == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED) {
        error_set(err, ST_IO, "the server requires a client certificate (%s)", hints->cert_and_key);
    } else if (is_client_cert_refused(why)) {
        error_set(err, ST_IO, "the server refused the client certificate (%s): %s", hints->cert,
                  words);
    } else if (why == SSL_AD_REASON_OFFSET + SSL_AD_NO_APPLICATION_PROTOCOL) {
        error_set(err, ST_IO,
                  "the server speaks another protocol on that port: HTTP and gRPC have "
                  "one each");
    } else if (why == SSL_R_WRONG_VERSION_NUMBER) {
        error_set(err, ST_IO, "the server does not use TLS: is it http:// or grpc://?");
    } else if (words) {
        error_set(err, ST_IO, "%s", words);
    } else {
        error_set(err, ST_IO, "%s%s",
                  system_error != 0 ? strerror(system_error) : "the server ended the connection",
                  SSL_is_init_finished(ssl)
                      ? ""
                      : " within the TLS handshake; does the server speak TLS?");
    }
}

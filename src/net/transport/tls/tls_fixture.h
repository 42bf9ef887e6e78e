/* Fixture for the TLS tests: certificates made on the fly, and a client in memory. */
#ifndef SLUICE_NET_TRANSPORT_TLS_TLS_FIXTURE_H
#define SLUICE_NET_TRANSPORT_TLS_TLS_FIXTURE_H

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/str.h"
#include "net/transport/tls/session.h"

/* ---- certificates ---------------------------------------------------------------------------- */

struct test_identity {
    EVP_PKEY *key;
    X509 *cert;
    char *cert_pem, *key_pem;
};

static inline char *test_pem_of(BIO *bio) {
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);
    char *text = malloc((size_t)n + 1);
    assert_non_null(text);
    memcpy(text, data, (size_t)n);
    text[n] = '\0';
    BIO_free(bio);
    return text;
}

static inline void test_extend(X509 *cert, X509 *issuer, int nid, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* A certificate for `name`, valid in this range of seconds from now, signed by `issuer` (NULL:
 * itself). Each may sign others. */
static inline void test_identity_init_at(struct test_identity *self, const char *name,
                                         const struct test_identity *issuer, long from,
                                         long until) {
    static long serial;
    const struct test_identity *by = issuer ? issuer : self;
    self->key = EVP_EC_gen("P-256");
    self->cert = X509_new();
    assert_true(self->key && self->cert);
    X509_set_version(self->cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(self->cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(self->cert), from);
    X509_gmtime_adj(X509_getm_notAfter(self->cert), until);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(self->cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(self->cert, X509_get_subject_name(by->cert));
    X509_set_pubkey(self->cert, self->key);
    test_extend(self->cert, by->cert, NID_basic_constraints, "CA:TRUE");
    test_extend(self->cert, by->cert, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    assert_true(X509_sign(self->cert, by->key, EVP_sha256()) > 0);
    BIO *cert = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(cert, self->cert);
    PEM_write_bio_PrivateKey(key, self->key, NULL, NULL, 0, NULL, NULL);
    self->cert_pem = test_pem_of(cert);
    self->key_pem = test_pem_of(key);
}

static inline void test_identity_init(struct test_identity *self, const char *name,
                                      const struct test_identity *issuer) {
    test_identity_init_at(self, name, issuer, -3600, 3600);
}

static inline void test_identity_fini(struct test_identity *self) {
    EVP_PKEY_free(self->key);
    X509_free(self->cert);
    free(self->cert_pem);
    free(self->key_pem);
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* `client_ca` NULL: no client certificates. */
static inline struct tls_context *test_tls_context(const struct test_identity *server,
                                                   const struct test_identity *client_ca) {
    struct tls_texts texts = {.cert = {"cert", str_of(server->cert_pem)},
                              .key = {"key", str_of(server->key_pem)}};
    if (client_ca) {
        texts.client_ca = (struct tls_text){"ca", str_of(client_ca->cert_pem)};
    }
    struct tls_context *context;
    struct error err;
    if (tls_context_new(&texts, &context, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    return context;
}

/* Trusts `server`; presents `identity`, if it is not NULL. */
static inline SSL_CTX *test_client_context(const struct test_identity *server,
                                           const struct test_identity *identity) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), server->cert);
    if (identity) {
        assert_int_equal(SSL_CTX_use_certificate(context, identity->cert), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(context, identity->key), 1);
    }
    return context;
}

/* A client with memory BIOs. */
static inline SSL *test_client_new(SSL_CTX *context) {
    SSL *ssl = SSL_new(context);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl);
    return ssl;
}

#endif

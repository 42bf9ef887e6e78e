/* Makes an EC key on P-256 and a self-signed X.509 v3 certificate. */
#include "net/transport/tls/self_signed.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdlib.h>

#include "net/transport/tls/context.h"

enum { SERIAL_BYTES = 16, DAY = 24 * 3600, DAYS = 3650 };

static const char NAMES[] = "DNS:localhost,IP:127.0.0.1,IP:::1";

static bool add_extension(X509 *cert, int id, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, id, value);
    bool added = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

/* A new serial number each time, so that clients can tell the certificates apart. */
static bool set_serial(X509 *cert) {
    unsigned char bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof bytes) != 1) {
        return false;
    }
    bytes[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL;
    BN_free(number);
    return set;
}

static bool fill_cert(X509 *cert, EVP_PKEY *key, time_t now) {
    X509_NAME *name = X509_get_subject_name(cert);
    const unsigned char *who = (const unsigned char *)"sluice";
    time_t from = now - DAY;
    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           ASN1_TIME_adj(X509_getm_notBefore(cert), from, 0, 0) != NULL &&
           ASN1_TIME_adj(X509_getm_notAfter(cert), from, DAYS, 0) != NULL &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, who, -1, -1, 0) == 1 &&
           X509_set_issuer_name(cert, name) == 1 && X509_set_pubkey(cert, key) == 1 &&
           add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, NID_subject_alt_name, NAMES) &&
           X509_sign(cert, key, EVP_sha256()) > 0;
}

static bool copy_out(BIO *bio, struct str *out) {
    char *text;
    long n = BIO_get_mem_data(bio, &text);
    char *pem = n > 0 ? malloc((size_t)n) : NULL;
    if (pem) {
        memcpy(pem, text, (size_t)n);
        *out = str_make(pem, (size_t)n);
    }
    return pem != NULL;
}

enum status tls_self_signed_new(time_t now, struct str *out, struct error *err) {
    BIO *bio = BIO_new(BIO_s_secmem());
    X509 *cert = X509_new();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    bool made =
        bio && cert && key && fill_cert(cert, key, now) && PEM_write_bio_X509(bio, cert) == 1 &&
        PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1 && copy_out(bio, out);
    BIO_free(bio);
    X509_free(cert);
    EVP_PKEY_free(key);
    return made ? ST_OK
                : error_set(err, ST_INTERNAL, "OpenSSL can't make a certificate: %s",
                            tls_pem_reason());
}

void tls_self_signed_free(struct str *pem) {
    if (pem->ptr) {
        OPENSSL_cleanse((char *)pem->ptr, pem->len);
        free((char *)pem->ptr);
        *pem = str_make(NULL, 0);
    }
}

/* TLS settings made from the files. What differs from OpenSSL's defaults: TLS 1.2 or later; with
 * 1.2 only ciphers that HTTP/2 allows (RFC 9113, appendix A): forward secrecy and authenticated
 * encryption; no renegotiation, no compression; sessions resume by tickets, which need no memory on
 * the server. */
#include "net/transport/tls/context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/transport/tls/session.h"

static const char BEGIN[] = "-----BEGIN ";

const char *tls_pem_reason(void) {
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return reason ? reason : "OpenSSL gives no reason";
}

/* ---- errors of file contents ----------------------------------------------------------------- */

/* Returns: the label of the first PEM block, "CERTIFICATE"; empty: there is none. */
static struct str first_label(struct str text) {
    const char *begin = text.len > 0 ? memmem(text.ptr, text.len, BEGIN, sizeof(BEGIN) - 1) : NULL;
    if (!begin) {
        return STR("");
    }
    begin += sizeof(BEGIN) - 1;
    struct str rest = str_make(begin, text.len - (size_t)(begin - text.ptr));
    return str_cut(&rest, '-');
}

/* The file has no block that could be read as `wanted`. */
static enum status wrong_content_error(const struct tls_text *file, const char *wanted,
                                       struct error *err) {
    struct str label = first_label(file->text);
    if (file->text.len == 0) {
        return error_set(err, ST_BAD_CONFIG, "%s: expected %s, the file is empty", file->name,
                         wanted);
    }
    if (label.len > 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected %s, the file holds \"%.*s\" (are two files swapped?)",
                         file->name, wanted, STR_ARG(label));
    }
    return error_set(err, ST_BAD_CONFIG,
                     "%s: expected %s in PEM, a text with lines that begin with -----BEGIN; from "
                     "DER it is made with `openssl x509` or `openssl pkey` and -inform DER, from "
                     "PKCS#12 with `openssl pkcs12 -nodes`",
                     file->name, wanted);
}

/* Returns: whether the last error was the end of the PEM blocks. */
static bool is_no_block(void) {
    unsigned long error = ERR_peek_last_error();
    return error == 0 ||
           (ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE);
}

static BIO *open_text(struct str text) {
    ERR_clear_error();
    return BIO_new_mem_buf(text.ptr, (int)text.len); /* files are at most a few MiB */
}

static enum status certificate_no_memory(struct error *err) {
    ERR_clear_error();
    return error_no_memory(err, "a certificate");
}

/* ---- certificates ---------------------------------------------------------------------------- */

static enum status read_certs(const struct tls_text *file, BIO *bio, STACK_OF(X509) * certs,
                              struct error *err) {
    X509 *cert;
    while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        if (sk_X509_push(certs, cert) == 0) {
            X509_free(cert);
            return certificate_no_memory(err);
        }
    }
    int n = sk_X509_num(certs);
    if (!is_no_block()) {
        return error_set(err, ST_BAD_CONFIG, "%s: certificate %d of the file is damaged: %s",
                         file->name, n + 1, tls_pem_reason());
    }
    ERR_clear_error();
    return n > 0 ? ST_OK : wrong_content_error(file, "a certificate", err);
}

/* Reads all certificates of the file, at least one. Returns: ST_BAD_CONFIG. Owns: *out. */
static enum status tls_pem_certs(const struct tls_text *file, STACK_OF(X509) * *out,
                                 struct error *err) {
    BIO *bio = open_text(file->text);
    STACK_OF(X509) *certs = sk_X509_new_null();
    enum status st = bio && certs ? read_certs(file, bio, certs, err) : certificate_no_memory(err);
    BIO_free(bio);
    if (st != ST_OK) {
        sk_X509_pop_free(certs, X509_free);
        certs = NULL;
    }
    *out = certs;
    return st;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Refuses to ask for a passphrase: there is no terminal. */
static int on_passphrase(char *out, int n_bytes, int writing, void *asked) {
    (void)out, (void)n_bytes, (void)writing;
    *(bool *)asked = true;
    return -1;
}

/* OpenSSL reports the same error for a missing and for a damaged key. */
static bool has_key(struct str text) {
    static const char LABEL[] = "PRIVATE KEY-----";
    return text.len > 0 && memmem(text.ptr, text.len, LABEL, sizeof(LABEL) - 1) != NULL;
}

/* Reads the first private key of the file. Returns: ST_BAD_CONFIG. Owns: *out. */
static enum status tls_pem_key(const struct tls_text *file, EVP_PKEY **out, struct error *err) {
    bool asked = false;
    if (!has_key(file->text)) {
        return wrong_content_error(file, "a private key", err);
    }
    BIO *bio = open_text(file->text);
    if (!bio) {
        return certificate_no_memory(err);
    }
    *out = PEM_read_bio_PrivateKey(bio, NULL, on_passphrase, &asked);
    BIO_free(bio);
    if (*out) {
        ERR_clear_error();
        return ST_OK;
    }
    if (asked) {
        ERR_clear_error();
        return error_set(err, ST_BAD_CONFIG,
                         "%s: the key is encrypted, and a server cannot enter its passphrase; "
                         "`openssl pkey -in FILE -out NEW` writes it without one",
                         file->name);
    }
    return error_set(err, ST_BAD_CONFIG, "%s: the private key is damaged: %s", file->name,
                     tls_pem_reason());
}

#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20" /* for TLS 1.2 */
enum { SUITES_BYTES = 2048, SUITE_NAME_BYTES = 64 };

/* ---- certificate and key --------------------------------------------------------------------- */

/* Returns: the index of the certificate that matches the key; -1: none. */
static int find_cert_of_key(EVP_PKEY *key, const STACK_OF(X509) * certs) {
    int n = sk_X509_num(certs), i = 0;
    while (i < n && X509_check_private_key(sk_X509_value(certs, i), key) != 1) {
        i++;
    }
    ERR_clear_error();
    return i < n ? i : -1;
}

static enum status check_key_matches(const struct tls_texts *texts, EVP_PKEY *key,
                                     const STACK_OF(X509) * certs, struct error *err) {
    int owner = find_cert_of_key(key, certs);
    if (owner < 0) {
        char subject[128] = "?";
        X509_NAME_oneline(X509_get_subject_name(sk_X509_value(certs, 0)), subject, sizeof(subject));
        return error_set(err, ST_BAD_CONFIG,
                         "%s: the key does not belong to the certificate \"%s\" of %s",
                         texts->key.name, subject, texts->cert.name);
    }
    if (owner > 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected the server's own certificate first, then its chain; "
                         "the key belongs to certificate %d of the file",
                         texts->cert.name, owner + 1);
    }
    return ST_OK;
}

static enum status openssl_error(const struct tls_text *file, struct error *err) {
    return error_set(err, ST_BAD_CONFIG, "%s: OpenSSL rejects it: %s", file->name,
                     tls_pem_reason());
}

static enum status use_certs(SSL_CTX *ssl, const struct tls_texts *texts,
                             const STACK_OF(X509) * certs, EVP_PKEY *key, struct error *err) {
    enum status st = check_key_matches(texts, key, certs, err);
    if (st != ST_OK) {
        return st;
    }
    if (SSL_CTX_use_certificate(ssl, sk_X509_value(certs, 0)) != 1) {
        return openssl_error(&texts->cert, err);
    }
    for (int i = 1; i < sk_X509_num(certs); i++) {
        if (SSL_CTX_add1_chain_cert(ssl, sk_X509_value(certs, i)) != 1) {
            return openssl_error(&texts->cert, err);
        }
    }
    return SSL_CTX_use_PrivateKey(ssl, key) == 1 ? ST_OK : openssl_error(&texts->key, err);
}

static enum status use_cert_and_key(SSL_CTX *ssl, const struct tls_texts *texts,
                                    struct error *err) {
    STACK_OF(X509) *certs = NULL;
    EVP_PKEY *key = NULL;
    enum status st = tls_pem_certs(&texts->cert, &certs, err);
    if (st == ST_OK) {
        st = tls_pem_key(&texts->key, &key, err);
    }
    if (st == ST_OK) {
        st = use_certs(ssl, texts, certs, key, err);
    }
    sk_X509_pop_free(certs, X509_free);
    EVP_PKEY_free(key);
    return st;
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Requires a client certificate signed by one of these CAs. */
static enum status require_client_certs(SSL_CTX *ssl, const struct tls_text *file,
                                        struct error *err) {
    STACK_OF(X509) * certs;
    enum status st = tls_pem_certs(file, &certs, err);
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    for (int i = 0; st == ST_OK && i < sk_X509_num(certs); i++) {
        X509 *cert = sk_X509_value(certs, i);
        if (X509_STORE_add_cert(store, cert) != 1 || SSL_CTX_add_client_CA(ssl, cert) != 1) {
            st = openssl_error(file, err);
        }
    }
    sk_X509_pop_free(certs, X509_free);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_max_cert_list(ssl, TLS_CLIENT_CERTS_BYTES);
    return st;
}

/* ---- creating and freeing a context ---------------------------------------------------------- */

/* The suites of TLS 1.2 by OpenSSL's names, separated by colons. Returns: ST_BAD_CONFIG with the
 * name that is none, or of a suite that OpenSSL has not built. */
static enum status suites_translate(const struct tls_text *suites, char out[SUITES_BYTES],
                                    struct error *err) {
    struct str rest = suites->text;
    size_t n = 0;
    out[0] = '\0';
    while (rest.ptr) {
        char name[SUITE_NAME_BYTES];
        struct str word = str_trim(str_cut(&rest, ','));
        snprintf(name, sizeof(name), "%.*s", STR_ARG(word));
        const char *ours = OPENSSL_cipher_name(name);
        if (word.len >= sizeof(name) || strcmp(ours, "(NONE)") == 0) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s: expected names of suites, as "
                             "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, separated by commas, got "
                             "\"%.*s\"",
                             suites->name, STR_ARG(word));
        }
        if (!strstr(ours, "ECDHE") || !(strstr(ours, "GCM") || strstr(ours, "CHACHA20"))) {
            continue; /* of TLS 1.3, or one that HTTP/2 forbids */
        }
        int printed = snprintf(out + n, SUITES_BYTES - n, "%s%s", n > 0 ? ":" : "", ours);
        if (printed < 0 || (size_t)printed >= SUITES_BYTES - n) {
            return error_set(err, ST_BAD_CONFIG, "%s: is too long", suites->name);
        }
        n += (size_t)printed;
    }
    return ST_OK;
}

static enum status choose_versions(SSL_CTX *ssl, const struct tls_texts *texts, struct error *err) {
    char list[SUITES_BYTES] = CIPHERS;
    enum status st = texts->suites.name ? suites_translate(&texts->suites, list, err) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    bool only_1_3 = texts->only_1_3 || list[0] == '\0';
    if (SSL_CTX_set_min_proto_version(ssl, only_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION) == 1 &&
        (only_1_3 || SSL_CTX_set_cipher_list(ssl, list) == 1)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG, "%s: OpenSSL has none of these suites",
                     texts->suites.name ? texts->suites.name : "TLS");
}

static bool context_configure(SSL_CTX *ssl) {
    static const unsigned char WHOSE_SESSIONS[] = "sluice";
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    /* An idle connection keeps no buffers; a record may be retried from another address. */
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_msg_callback(ssl, tls_session_on_message);
    SSL_CTX_set_alpn_select_cb(ssl, tls_session_on_alpn, NULL);
    return SSL_CTX_set_session_id_context(ssl, WHOSE_SESSIONS, sizeof(WHOSE_SESSIONS) - 1) == 1;
}

enum status tls_context_new(const struct tls_texts *texts, struct tls_context **out,
                            struct error *err) {
    struct tls_context *context = calloc(1, sizeof(*context));
    if (!context) {
        return error_no_memory(err, "TLS");
    }
    ERR_clear_error();
    atomic_init(&context->n_refs, 1);
    context->ssl = SSL_CTX_new(TLS_server_method());
    context->bio = tls_session_bio_method();
    enum status st = ST_OK;
    if (!context->ssl || !context->bio || !context_configure(context->ssl)) {
        st = error_set(err, ST_INTERNAL, "OpenSSL can't be set up for TLS: %s", tls_pem_reason());
    }
    if (st == ST_OK) {
        st = choose_versions(context->ssl, texts, err);
    }
    if (st == ST_OK) {
        st = use_cert_and_key(context->ssl, texts, err);
    }
    if (st == ST_OK && texts->client_ca.name) {
        st = require_client_certs(context->ssl, &texts->client_ca, err);
    }
    if (st != ST_OK) {
        tls_context_unref(context);
        return st;
    }
    *out = context;
    return ST_OK;
}

struct tls_context *tls_context_ref(struct tls_context *context) {
    atomic_fetch_add_explicit(&context->n_refs, 1, memory_order_relaxed);
    return context;
}

void tls_context_unref(struct tls_context *context) {
    if (context && atomic_fetch_sub_explicit(&context->n_refs, 1, memory_order_acq_rel) == 1) {
        SSL_CTX_free(context->ssl);
        BIO_meth_free(context->bio);
        free(context);
    }
}

/* ---- dates ----------------------------------------------------------------------------------- */

static const char *date_print(const ASN1_TIME *date, char out[TLS_DATE_BYTES]) {
    struct tm tm;
    if (ASN1_TIME_to_tm(date, &tm) != 1 ||
        strftime(out, TLS_DATE_BYTES, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0) {
        memcpy(out, "?", sizeof("?"));
    }
    return out;
}

enum status tls_context_check_dates(const struct tls_context *context, time_t now,
                                    struct error *err) {
    const X509 *cert = SSL_CTX_get0_certificate(context->ssl);
    const ASN1_TIME *from = X509_get0_notBefore(cert), *until = X509_get0_notAfter(cert);
    char date[TLS_DATE_BYTES];
    if (X509_cmp_time(until, &now) < 0) {
        return error_set(err, ST_BAD_CONFIG, "it expired on %s", date_print(until, date));
    }
    if (X509_cmp_time(from, &now) > 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "it is not valid before %s: is this machine's clock "
                         "right?",
                         date_print(from, date));
    }
    return ST_OK;
}

const char *tls_context_expiry(const struct tls_context *context, char out[TLS_DATE_BYTES]) {
    return date_print(X509_get0_notAfter(SSL_CTX_get0_certificate(context->ssl)), out);
}

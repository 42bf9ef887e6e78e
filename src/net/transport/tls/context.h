/* What the TLS connections of a listener share: certificate chain, private key, trusted client CAs.
 * Made from the files' bytes (server.c reads them) and immutable; each connection keeps the one it
 * began with.
 *
 * Thread: any. */
#ifndef SLUICE_NET_TRANSPORT_TLS_CONTEXT_H
#define SLUICE_NET_TRANSPORT_TLS_CONTEXT_H

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <time.h>

#include "core/base/status.h"
#include "core/base/str.h"

/* A file's content, and its name for error messages: "--http-tls-cert /etc/sluice/tls.crt". */
struct tls_text {
    const char *name;
    struct str text;
};

struct tls_texts {
    struct tls_text cert; /* PEM: the server's certificate, then its chain */
    struct tls_text key;  /* PEM, not encrypted */
    /* PEM: CAs of client certificates; name NULL: no client certificates. */
    struct tls_text client_ca;
    bool only_1_3; /* TLS 1.2 is refused */
    /* Of TLS 1.2: names of suites (as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), separated by commas;
     * `name` is the setting, NULL: all that HTTP/2 allows. Others are left out; where none is left
     * TLS 1.2 is refused. Those of TLS 1.3 are always on. */
    struct tls_text suites;
};

/* What a client may send of certificates, its own and those of intermediate CAs. OpenSSL reads them
 * on the event loop, and takes up to 0.3 ms for one of 285 bytes with an ECDSA key. */
enum { TLS_CLIENT_CERTS_BYTES = 16384 };

struct tls_context {
    atomic_uint n_refs;
    SSL_CTX *ssl;
    BIO_METHOD *bio; /* I/O of the sessions, see session.c */
};

/* Returns: ST_BAD_CONFIG with the file, what is wrong and what is expected; ST_NO_MEMORY. Owns:
 * *out until tls_context_unref. */
enum status tls_context_new(const struct tls_texts *texts, struct tls_context **out,
                            struct error *err) SLUICE_MUST_USE;
struct tls_context *tls_context_ref(struct tls_context *context);
/* NULL is allowed. */
void tls_context_unref(struct tls_context *context);
/* Checks whether the certificate is valid at `now`. Returns: ST_BAD_CONFIG with the date from or
 * until which it is not. */
enum status tls_context_check_dates(const struct tls_context *context, time_t now,
                                    struct error *err) SLUICE_MUST_USE;
/* The expiry date, "2027-03-01 12:00:00 UTC". Returns: `out`. */
enum { TLS_DATE_BYTES = 64 };
const char *tls_context_expiry(const struct tls_context *context, char out[TLS_DATE_BYTES]);
/* Returns: OpenSSL's text for the first error in its queue, which is cleared. */
const char *tls_pem_reason(void);

#endif

/* What TLS connections of a listener share: certificate chain, private key, and whom to trust as a
 * client; made from the bytes of files, then never changed. Each connection keeps the one it began
 * with. It refuses to read files: server.c does.
 *
 * Thread: any. */
#ifndef SLUICE_NET_TRANSPORT_TLS_CONTEXT_H
#define SLUICE_NET_TRANSPORT_TLS_CONTEXT_H

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <time.h>

#include "core/base/status.h"
#include "core/base/str.h"

/* A file's bytes, and what messages call it: "--http-tls-cert /etc/sluice/tls.crt". */
struct tls_text {
    const char *name;
    struct str text;
};

struct tls_texts {
    struct tls_text cert;      /* PEM: the server's own certificate, then those that vouch for it */
    struct tls_text key;       /* PEM, not encrypted */
    struct tls_text client_ca; /* PEM: whoever signs clients' certificates; name NULL: clients need
                                  none */
};

struct tls_context {
    atomic_uint n_refs;
    SSL_CTX *ssl;
    BIO_METHOD *bio; /* how a session's bytes move, see session.c */
};

/* Returns: ST_BAD_CONFIG with the file, what is wrong with it, and what would be right;
 * ST_NO_MEMORY. Owns: tls_context_unref. */
enum status tls_context_new(const struct tls_texts *texts, struct tls_context **out,
                            struct error *err) __attribute__((warn_unused_result));
struct tls_context *tls_context_ref(struct tls_context *context);
/* NULL is allowed. */
void tls_context_unref(struct tls_context *context);
/* Is the certificate valid at that time? Returns: ST_BAD_CONFIG: since or until when it is not. */
enum status tls_context_check_dates(const struct tls_context *context, time_t now,
                                    struct error *err) __attribute__((warn_unused_result));
/* When it expires, "2027-03-01 12:00:00 UTC". Returns: `out`. */
enum { TLS_DATE_BYTES = 64 };
const char *tls_context_expiry(const struct tls_context *context, char out[TLS_DATE_BYTES]);
/* OpenSSL's words for the first error that waits in its queue, which is emptied. */
const char *tls_pem_reason(void);

#endif

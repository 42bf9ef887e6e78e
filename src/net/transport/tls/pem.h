/* Certificates and keys from PEM, with a sentence for each way in which a file can be the wrong
 * one. For the tls_*.c files of this room only. */
#ifndef SLUICE_NET_TRANSPORT_TLS_PEM_H
#define SLUICE_NET_TRANSPORT_TLS_PEM_H

#include <openssl/ssl.h>

#include "core/base/status.h"
#include "net/transport/tls/context.h"

/* All certificates of the file, at least one. Returns: ST_BAD_CONFIG. Owns: *out. */
enum status tls_pem_certs(const struct tls_text *file, STACK_OF(X509) * *out, struct error *err)
    __attribute__((warn_unused_result));
/* The first private key of the file. Returns: ST_BAD_CONFIG. Owns: *out. */
enum status tls_pem_key(const struct tls_text *file, EVP_PKEY **out, struct error *err)
    __attribute__((warn_unused_result));
/* OpenSSL's words for the first error that waits in its queue, which is emptied. */
const char *tls_pem_reason(void);

#endif

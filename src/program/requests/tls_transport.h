/* What tls_client.c and tls_transport.c share. */
#ifndef SLUICE_PROGRAM_REQUESTS_TLS_TRANSPORT_H
#define SLUICE_PROGRAM_REQUESTS_TLS_TRANSPORT_H

#include <openssl/ssl.h>

#include "program/requests/tls_client.h"

struct tls_client {
    SSL_CTX *ssl;
    BIO_METHOD *bio; /* a socket that never raises SIGPIPE */
};

/* Returns: NULL when out of memory. */
BIO_METHOD *tls_transport_bio_method(void);

#endif

/* TLS as a client: whom to trust and what to show, whose certificate it has to be, and why a
 * connection failed, in words that say what to do.
 *
 * Thread: settings are made once and then read by all. */
#ifndef SLUICE_NET_TRANSPORT_TLS_PEER_H
#define SLUICE_NET_TRANSPORT_TLS_PEER_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "core/base/status.h"
#include "net/transport/tls/server.h"

/* Paths may be NULL; the settings are what messages call them ("--cacert"). */
struct tls_peer_options {
    struct tls_file ca;   /* PEM: whom to trust; without: whom the system trusts */
    struct tls_file cert; /* PEM: shown to a server that asks for one */
    struct tls_file key;  /* PEM; without: in the same file */
    bool insecure;        /* trusts whoever answers */
};

/* Reads the files into OpenSSL's settings. Returns: ST_BAD_CONFIG for one that can't be used. */
enum status tls_peer_configure(SSL_CTX *ssl, const struct tls_peer_options *options,
                               struct error *err) __attribute__((warn_unused_result));
/* From now on `ssl` takes the certificate of that name, or numeric address, only (unless nobody
 * shall be checked), and tells the server the name. Returns: false when out of memory. */
bool tls_peer_set_host(SSL *ssl, const char *host) __attribute__((warn_unused_result));
/* Why it failed: fills `err` with ST_IO and a sentence, and empties OpenSSL's queue of errors.
 * `system_error` is an errno, or 0. */
void tls_peer_explain(const SSL *ssl, int system_error, struct error *err);

#endif

/* TLS as a client: trusted CAs, client certificate, the expected name of the server, and
 * explanations of failures.
 *
 * Thread: options are set once and then read by all. */
#ifndef SLUICE_NET_TRANSPORT_TLS_PEER_H
#define SLUICE_NET_TRANSPORT_TLS_PEER_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"
#include "net/transport/tls/server.h"

/* The certificates that are trusted where no setting names others. A build of OpenSSL or libcurl
 * knows one place, that of the distribution it was made for; a program that runs on any looks at
 * the places of each. */
struct tls_trust {
    const char *file;      /* certificates in PEM; NULL: none was found */
    const char *directory; /* certificates under the hashes of their subjects; NULL: none */
};

/* SSL_CERT_FILE and SSL_CERT_DIR where one is set, else the first bundle of OpenSSL's own,
 * Debian's, Fedora's, Alpine's and OpenSUSE's places that can be read. Owns: static and
 * environment's. */
struct tls_trust tls_trust_system(void);

/* Returns: the first of `n` paths that can be read; NULL: none can. */
const char *tls_trust_first(const char *const *paths, size_t n);

/* Paths may be NULL; the settings are their names in messages ("--cacert"). */
struct tls_peer_options {
    struct tls_file ca;   /* PEM: trusted CAs; without: the system's */
    struct tls_file cert; /* PEM: client certificate */
    struct tls_file key;  /* PEM; without: in the same file */
    bool insecure;        /* does not verify the server's certificate */
};

/* Configures `ssl` from the files. Returns: ST_BAD_CONFIG for a file that can't be used. */
enum status tls_peer_configure(SSL_CTX *ssl, const struct tls_peer_options *options,
                               struct error *err) SLUICE_MUST_USE;
/* Requires a certificate for this name or numeric address (unless insecure), and sends the name in
 * SNI. Returns: false when out of memory. */
bool tls_peer_set_host(SSL *ssl, const char *host) SLUICE_MUST_USE;
/* What sets the files, in messages about a failed handshake. */
struct tls_peer_hints {
    const char *ca, *cert, *cert_and_key;
};

/* Fills `err` with ST_IO and the reason of a failure, and clears OpenSSL's error queue.
 * `system_error` is an errno, or 0; `hints` NULL: the flags of the commands. */
void tls_peer_explain(const SSL *ssl, int system_error, const struct tls_peer_hints *hints,
                      struct error *err);
/* Does the failure, which tls_peer_explain has not explained yet, mean that the server did not
 * accept the client's certificate, or the lack of one? With TLS 1.3 that comes after the handshake
 * (RFC 8446, 4.4.3). */
bool tls_peer_is_refused(void);

#endif

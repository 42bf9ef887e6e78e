/* The certificates that are trusted where no setting names others. A build of OpenSSL or libcurl
 * knows one place, that of the distribution it was made for; a program that runs on any looks at
 * the places of each. */
#ifndef SLUICE_NET_TRANSPORT_TLS_TRUST_H
#define SLUICE_NET_TRANSPORT_TLS_TRUST_H

#include <stddef.h>

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

#endif

/* Places of trusted certificates. */
#include "net/transport/tls/trust.h"

#include <openssl/x509.h>
#include <stdlib.h>
#include <unistd.h>

const char *tls_trust_first(const char *const *paths, size_t n) {
    size_t i = 0;
    while (i < n && access(paths[i], R_OK) != 0) {
        i++;
    }
    return i < n ? paths[i] : NULL;
}

struct tls_trust tls_trust_system(void) {
    const char *const bundles[] = {
        X509_get_default_cert_file(),
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Alpine, Arch */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem", /* openSUSE */
        "/etc/ssl/cert.pem",
    };
    struct tls_trust trust = {.file = getenv(X509_get_default_cert_file_env()),
                              .directory = getenv(X509_get_default_cert_dir_env())};
    if (!trust.file && !trust.directory) {
        trust.file = tls_trust_first(bundles, sizeof(bundles) / sizeof(bundles[0]));
    }
    return trust;
}

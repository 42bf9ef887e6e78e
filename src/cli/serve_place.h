/* Where a server listens, as --http and --grpc say it: an address, and in front of it, if anything,
 * a scheme that says whether TLS is spoken there. What the ready file has can be written too. */
#ifndef SLUICE_CLI_SERVE_PLACE_H
#define SLUICE_CLI_SERVE_PLACE_H

#include <stdbool.h>

#include "net/address.h"

/* What one protocol's addresses are read by. */
struct serve_scheme {
    const char *flag;  /* "http" */
    const char *plain; /* "http": http://ADDR, http+unix:/path */
    const char *tls;   /* "https": https://ADDR */
    bool has_cert;     /* --http-tls-cert is given */
};

struct serve_place {
    struct address address;
    bool tls;
    bool said; /* by a scheme */
};

/* Without a scheme, TLS is spoken where there is a certificate, but not on a Unix socket. Returns:
 * ST_BAD_CONFIG with the flag and what would be right. */
enum status serve_place_parse(const struct serve_scheme *scheme, const char *text,
                              struct serve_place *out, struct error *err)
    __attribute__((warn_unused_result));
/* Can nobody but this machine reach it? */
bool serve_place_is_local(const struct address *address);

#endif

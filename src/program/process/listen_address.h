/* Where a server listens, as --http and --grpc say it: an address, and in front of it, if anything,
 * a scheme that says whether TLS is spoken there. What the ready file has can be written too. */
#ifndef SLUICE_PROGRAM_PROCESS_LISTEN_ADDRESS_H
#define SLUICE_PROGRAM_PROCESS_LISTEN_ADDRESS_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "net/transport/address.h"

struct grpc_server;
struct tls_server;

/* What one protocol's addresses are read by. */
struct listen_scheme {
    const char *flag;  /* "http" */
    const char *plain; /* "http": http://ADDR, http+unix:/path */
    const char *tls;   /* "https": https://ADDR */
    bool has_cert;     /* --http-tls-cert is given */
};

struct listen_address {
    struct address address;
    bool tls;
    bool scheme_given; /* by a scheme */
};

/* Do the files of --FLAG-tls-cert, -key and -client-ca fit together? NULL: not given. Returns:
 * ST_BAD_CONFIG. */
enum status listen_address_check_tls_files(const char *flag, const char *cert, const char *key,
                                           const char *ca, struct error *err)
    __attribute__((warn_unused_result));
/* Without a scheme, TLS is spoken where there is a certificate, but not on a Unix socket. Returns:
 * ST_BAD_CONFIG with the flag and what would be right. */
enum status listen_address_parse(const struct listen_scheme *scheme, const char *text,
                                 struct listen_address *out, struct error *err)
    __attribute__((warn_unused_result));
/* One listens there: says so in the log, and warns where it is without TLS for all the world to
 * hear though others (`any_tls`) have it. */
void listen_address_log(const struct listen_scheme *scheme,
                        const struct listen_address *listen_address, bool any_tls);
/* As `sluice infer` takes it: "http://127.0.0.1:8000". Returns: NULL when out of memory. */
const char *listen_address_url(struct arena *arena, const struct listen_scheme *scheme,
                               const struct listen_address *listen_address);

/* Listens at `text`, an item of the setting, and says so in the log. `tls` may be NULL where
 * `scheme` has no certificate; `any_tls`: as of listen_address_log. Fills `place`, with the real
 * port. Returns: why it can't, with the flag. Thread: the server's acceptor. */
enum status grpc_listen(struct grpc_server *server, const struct listen_scheme *scheme,
                        const char *text, const struct tls_server *tls, bool any_tls,
                        struct listen_address *listen_address, struct error *err)
    __attribute__((warn_unused_result));

#endif

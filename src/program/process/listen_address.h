/* A listen address of --http or --grpc: an address with an optional scheme that selects TLS. */
#ifndef SLUICE_PROGRAM_PROCESS_LISTEN_ADDRESS_H
#define SLUICE_PROGRAM_PROCESS_LISTEN_ADDRESS_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "net/transport/address.h"

struct grpc_server;
struct tls_server;

/* The schemes of one protocol. */
struct listen_scheme {
    const char *flag;  /* "http" */
    const char *plain; /* "http": http://ADDR, http+unix:/path */
    const char *tls;   /* "https": https://ADDR */
    bool has_cert;     /* --http-tls-cert is given */
};

struct listen_address {
    struct address address;
    bool tls;
    bool scheme_given; /* `tls` is from a scheme */
};

/* Checks that --FLAG-tls-cert, -key and -client-ca are a valid combination. NULL: not given.
 * Returns: ST_BAD_CONFIG. */
enum status listen_address_check_tls_files(const char *flag, const char *cert, const char *key,
                                           const char *ca, struct error *err) SLUICE_MUST_USE;
/* Parses an address. Without a scheme, TLS is used where there is a certificate, but not on a Unix
 * socket. Returns: ST_BAD_CONFIG with the flag and the expected form. */
enum status listen_address_parse(const struct listen_scheme *scheme, const char *text,
                                 struct listen_address *out, struct error *err) SLUICE_MUST_USE;
/* Logs the address, with a warning when it is reachable from other machines without TLS though
 * other addresses (`any_tls`) have it. */
void listen_address_log(const struct listen_scheme *scheme,
                        const struct listen_address *listen_address, bool any_tls);
/* The URL that `sluice infer` accepts: "http://127.0.0.1:8000". */
const char *listen_address_url(struct arena *arena, const struct listen_scheme *scheme,
                               const struct listen_address *listen_address);

/* Listens at `text`, an item of the setting, and logs the address. `tls` may be NULL where `scheme`
 * has no certificate; `any_tls`: as for listen_address_log. Sets *listen_address, with the actual
 * port. Returns: why it cannot, with the flag. Thread: the server's acceptor. */
enum status grpc_listen(struct grpc_server *server, const struct listen_scheme *scheme,
                        const char *text, const struct tls_server *tls, bool any_tls,
                        struct listen_address *listen_address, struct error *err) SLUICE_MUST_USE;

#endif

/* The addresses of a host, without blocking: a numeric address is there at once, a name is looked
 * up with c-ares, which reads /etc/hosts first. A build with SLUICE_CLIENT_CARES=OFF has
 * resolver_libc.c in place of resolver.c: there the C library looks up names, and only within
 * functions that may block. */
#ifndef SLUICE_CLIENT_CONNECTION_RESOLVER_H
#define SLUICE_CLIENT_CONNECTION_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/status.h"

struct client_resolver;

struct client_resolver_options {
    const char *servers; /* "127.0.0.1:5353"; NULL: the system's */
    int timeout_ms;      /* of the first of 3 tries, doubled for each further one; 0: 1000 */
    bool may_block;      /* for resolver_libc.c: the caller waits anyway */
};

struct client_address {
    struct sockaddr_storage socket;
    socklen_t n_bytes;
};

/* Starts looking up `host`. `options` NULL: the system's servers, and it may block. Returns: ST_IO
 * with the reason, ST_NO_MEMORY. Owns: *out until client_resolver_free. */
enum status client_resolver_start(const char *host, uint16_t port,
                                  const struct client_resolver_options *options,
                                  struct client_resolver **out, struct error *err) SLUICE_MUST_USE;
/* Proceeds without blocking. Returns: ST_OK with *done or not yet; ST_IO with name and reason. Once
 * done the descriptor is closed. */
enum status client_resolver_step(struct client_resolver *resolver, bool *done,
                                 struct error *err) SLUICE_MUST_USE;
/* While not done: the descriptor that is readable when a step has something to do, and when one is
 * due without that. */
int client_resolver_fd(const struct client_resolver *resolver);
uint64_t client_resolver_due_ns(const struct client_resolver *resolver);
/* When done. Returns: the address at `index`, in the order in which to try them; NULL: there is no
 * other. */
const struct client_address *client_resolver_address(const struct client_resolver *resolver,
                                                     size_t index);
/* NULL is allowed. */
void client_resolver_free(struct client_resolver *resolver);

#endif

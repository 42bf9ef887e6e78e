/* What resolver.c is in a build without c-ares (SLUICE_CLIENT_CARES=OFF). */
#include "client/connection/resolver.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct client_resolver {
    struct addrinfo *found;
    struct client_address address; /* the last one asked for */
};

static int look_up(const char *host, const char *port, bool may_block, struct addrinfo **found) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    int error = getaddrinfo(host, port, &hints, found);
    if (error == EAI_NONAME && may_block) {
        hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
        error = getaddrinfo(host, port, &hints, found);
    }
    if (may_block && (error == EAI_NONAME || error == EAI_ADDRFAMILY || error == EAI_NODATA)) {
        hints.ai_flags = AI_NUMERICSERV; /* AI_ADDRCONFIG omits loopback addresses on a machine
                                            without others */
        error = getaddrinfo(host, port, &hints, found);
    }
    return error;
}

enum status client_resolver_start(const char *host, uint16_t port,
                                  const struct client_resolver_options *options,
                                  struct client_resolver **out, struct error *err) {
    bool may_block = !options || options->may_block;
    struct client_resolver *resolver = calloc(1, sizeof(*resolver));
    char text[8];
    if (!resolver) {
        return error_no_memory(err, "the addresses of %s", host);
    }
    snprintf(text, sizeof(text), "%u", (unsigned)port);
    int error = look_up(host, text, may_block, &resolver->found);
    if (error == 0) {
        *out = resolver;
        return ST_OK;
    }
    free(resolver);
    return error == EAI_NONAME && !may_block
               ? error_set(err, ST_IO,
                           "no address of %s: this build looks up names in functions that block "
                           "only (SLUICE_CLIENT_CARES=OFF)",
                           host)
               : error_set(err, ST_IO, "no address of %s: %s", host, gai_strerror(error));
}

enum status client_resolver_step(struct client_resolver *resolver, bool *done, struct error *err) {
    (void)resolver, (void)err;
    *done = true;
    return ST_OK;
}

int client_resolver_fd(const struct client_resolver *resolver) {
    (void)resolver;
    return -1;
}

uint64_t client_resolver_due_ns(const struct client_resolver *resolver) {
    (void)resolver;
    return 0;
}

const struct client_address *client_resolver_address(const struct client_resolver *resolver,
                                                     size_t index) {
    struct client_resolver *own = (struct client_resolver *)(uintptr_t)resolver;
    const struct addrinfo *at = resolver->found;
    for (; at && index > 0; index--) {
        at = at->ai_next;
    }
    if (!at || at->ai_addrlen > sizeof(own->address.socket)) {
        return NULL;
    }
    memcpy(&own->address.socket, at->ai_addr, at->ai_addrlen);
    own->address.n_bytes = at->ai_addrlen;
    return &own->address;
}

void client_resolver_free(struct client_resolver *resolver) {
    if (resolver) {
        freeaddrinfo(resolver->found);
        free(resolver);
    }
}

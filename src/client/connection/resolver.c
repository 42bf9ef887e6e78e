/* c-ares in an epoll set of its own, which is one descriptor for all of its sockets. A channel
 * lives as long as a lookup, so that changes of the system's configuration are seen. Without
 * ares_library_init: it changes global state, and is needed on Windows only. */
#include "client/connection/resolver.h"

/* Functions deprecated in 1.34 are the only ones that 1.18 has. */
#define CARES_NO_DEPRECATED
#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/event/clock.h"

enum {
    TIMEOUT_MS = 1000,
    TRIES = 3,
    MAX_EVENTS = 16,
    NS_PER_MS = 1000000,
    US_PER_S = 1000000,
    NS_PER_US = 1000,
    PORT_BYTES = 8,
};

struct client_resolver {
    ares_channel channel; /* NULL: none, or it has ended */
    int epoll_fd;         /* -1: none */
    uint64_t due_ns;
    const char *host;
    bool ended; /* with `code` */
    int code;
    struct client_address *addresses;
    size_t n_addresses;
};

/* ---- results --------------------------------------------------------------------------------- */

static void add_address(struct client_resolver *resolver, const struct sockaddr *from,
                        socklen_t n_bytes) {
    struct client_address *to = &resolver->addresses[resolver->n_addresses];
    if (n_bytes <= sizeof(to->socket)) {
        memcpy(&to->socket, from, n_bytes);
        to->n_bytes = n_bytes;
        resolver->n_addresses++;
    }
}

static void on_addresses(void *user, int code, int n_timeouts, struct ares_addrinfo *info) {
    struct client_resolver *resolver = user;
    size_t n = 0;
    (void)n_timeouts;
    resolver->ended = true;
    resolver->code = code;
    if (!info) {
        return;
    }
    for (const struct ares_addrinfo_node *node = info->nodes; node; node = node->ai_next) {
        n++;
    }
    resolver->addresses = calloc(n + 1, sizeof(*resolver->addresses));
    if (!resolver->addresses) {
        resolver->code = ARES_ENOMEM;
    } else {
        for (const struct ares_addrinfo_node *node = info->nodes; node; node = node->ai_next) {
            add_address(resolver, node->ai_addr, (socklen_t)node->ai_addrlen);
        }
    }
    ares_freeaddrinfo(info);
}

static const char *reason(int code) {
    switch (code) {
    case ARES_ENOTFOUND:
        return "there is no such name";
    case ARES_SUCCESS:
    case ARES_ENODATA:
        return "the name has no addresses";
    case ARES_ETIMEOUT:
        return "no DNS server answered in time";
    case ARES_ECONNREFUSED: /* 1.18 reports this for SERVFAIL and other error responses too */
        return "no DNS server answered, or each with an error";
    default:
        return ares_strerror(code);
    }
}

static enum status lookup_failed(const struct client_resolver *resolver, int code,
                                 struct error *err) {
    return code == ARES_ENOMEM
               ? error_no_memory(err, "the addresses of %s", resolver->host)
               : error_set(err, ST_IO, "no address of %s: %s", resolver->host, reason(code));
}

/* ---- sockets and time ------------------------------------------------------------------------ */

/* c-ares tells which sockets to watch; for nothing: it is about to be closed. One that can't be
 * watched appears as one that never answers. */
static void on_socket(void *user, ares_socket_t fd, int readable, int writable) {
    const struct client_resolver *resolver = user;
    struct epoll_event event = {.events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u),
                                .data.fd = fd};
    if (event.events == 0) {
        (void)epoll_ctl(resolver->epoll_fd, EPOLL_CTL_DEL, fd, &event);
    } else if (epoll_ctl(resolver->epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0) {
        (void)epoll_ctl(resolver->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static void update_due(struct client_resolver *resolver) {
    struct timeval buffer, *wait = ares_timeout(resolver->channel, NULL, &buffer);
    uint64_t us = wait ? (uint64_t)wait->tv_sec * US_PER_S + (uint64_t)wait->tv_usec : 0;
    resolver->due_ns = clock_now_ns() + us * NS_PER_US + NS_PER_MS; /* never too early */
}

static void stop(struct client_resolver *resolver) {
    if (resolver->channel) {
        ares_destroy(resolver->channel);
    }
    if (resolver->epoll_fd >= 0) {
        close(resolver->epoll_fd);
    }
    resolver->channel = NULL;
    resolver->epoll_fd = -1;
}

/* ---- lookups --------------------------------------------------------------------------------- */

/* Returns: true if `host` is a numeric address, or there is no memory. */
static bool take_numeric(struct client_resolver *resolver, const char *host, const char *port) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo *found;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        resolver->code = ARES_ENOMEM;
        resolver->ended = error == EAI_MEMORY;
        return resolver->ended;
    }
    resolver->ended = true;
    resolver->addresses = calloc(1, sizeof(*resolver->addresses));
    if (resolver->addresses) {
        add_address(resolver, found->ai_addr, found->ai_addrlen);
    }
    resolver->code = resolver->addresses ? ARES_SUCCESS : ARES_ENOMEM;
    freeaddrinfo(found);
    return true;
}

static enum status make_channel(struct client_resolver *resolver,
                                const struct client_resolver_options *options, struct error *err) {
    bool has_timeout = options && options->timeout_ms > 0;
    struct ares_options settings = {.timeout = has_timeout ? options->timeout_ms : TIMEOUT_MS,
                                    .tries = TRIES,
                                    .sock_state_cb = on_socket,
                                    .sock_state_cb_data = resolver};
    resolver->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (resolver->epoll_fd < 0) {
        return error_set(err, ST_IO, "no address of %s: %s", resolver->host, strerror(errno));
    }
    int code = ares_init_options(&resolver->channel, &settings,
                                 ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
    if (code != ARES_SUCCESS) {
        resolver->channel = NULL;
    } else if (options && options->servers) {
        code = ares_set_servers_ports_csv(resolver->channel, options->servers);
    }
    return code == ARES_SUCCESS ? ST_OK : lookup_failed(resolver, code, err);
}

enum status client_resolver_start(const char *host, uint16_t port,
                                  const struct client_resolver_options *options,
                                  struct client_resolver **out, struct error *err) {
    struct client_resolver *resolver = calloc(1, sizeof(*resolver));
    struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char text[PORT_BYTES];
    if (!resolver) {
        return error_no_memory(err, "the addresses of %s", host);
    }
    resolver->epoll_fd = -1;
    resolver->host = host;
    snprintf(text, sizeof(text), "%u", (unsigned)port);
    if (!take_numeric(resolver, host, text)) {
        enum status status = make_channel(resolver, options, err);
        if (status != ST_OK) {
            client_resolver_free(resolver);
            return status;
        }
        ares_getaddrinfo(resolver->channel, host, text, &hints, on_addresses, resolver);
    }
    *out = resolver;
    return ST_OK;
}

static void run_ares(struct client_resolver *resolver) {
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_wait(resolver->epoll_fd, events, MAX_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd;
        bool writable = (events[i].events & EPOLLOUT) != 0;
        bool readable = (events[i].events & ~(uint32_t)EPOLLOUT) != 0; /* also an error */
        ares_process_fd(resolver->channel, readable ? fd : ARES_SOCKET_BAD,
                        writable ? fd : ARES_SOCKET_BAD);
    }
    if (n <= 0) {
        ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    }
}

enum status client_resolver_step(struct client_resolver *resolver, bool *done, struct error *err) {
    if (!resolver->ended) {
        run_ares(resolver);
    }
    *done = resolver->ended;
    if (!resolver->ended) {
        update_due(resolver);
        return ST_OK;
    }
    stop(resolver);
    return resolver->code == ARES_SUCCESS && resolver->n_addresses > 0
               ? ST_OK
               : lookup_failed(resolver, resolver->code, err);
}

int client_resolver_fd(const struct client_resolver *resolver) {
    return resolver->epoll_fd;
}

uint64_t client_resolver_due_ns(const struct client_resolver *resolver) {
    return resolver->due_ns;
}

const struct client_address *client_resolver_address(const struct client_resolver *resolver,
                                                     size_t index) {
    return index < resolver->n_addresses ? &resolver->addresses[index] : NULL;
}

void client_resolver_free(struct client_resolver *resolver) {
    if (resolver) {
        stop(resolver);
        free(resolver->addresses);
        free(resolver);
    }
}

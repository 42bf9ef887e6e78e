/* c-ares on a worker's loop: c-ares reports which sockets to watch and when to call it, the loop
 * reports events. c-ares cannot cancel a single query, so a cancelled lookup runs to its end
 * without a callback. */
#include "net/client/dns.h"

/* Functions deprecated in 1.34 are the only ones that 1.18 has. */
#define CARES_NO_DEPRECATED
#include <ares.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/client/socket_watcher.h"

enum {
    TIMEOUT_MS = 1000,
    TRIES = 3,
    NS_PER_MS = 1000000,
    US_PER_S = 1000000,
    NS_PER_US = 1000,
    CLASS_IN = 1,
    TYPE_SRV = 33,
};

struct dns_resolver {
    struct worker *worker;
    ares_channel channel;
    struct timer timer;
    struct socket_watcher_set sockets;
    void (*done)(void *user);
    void *user;
};

struct dns_lookup {
    void (*done)(void *user, const struct dns_answer *answer); /* NULL: cancelled */
    void *user;
};

/* ---- results --------------------------------------------------------------------------------- */

static void set_ares_error(int code, struct error *err) {
    switch (code) {
    case ARES_ENOTFOUND:
        error_set(err, ST_NOT_FOUND, "there is no such name");
        break;
    case ARES_ENODATA:
        error_set(err, ST_NOT_FOUND, "the name has no such records");
        break;
    case ARES_ETIMEOUT:
        error_set(err, ST_DEADLINE_EXCEEDED, "no server answered in time");
        break;
    case ARES_ECONNREFUSED: /* 1.18 reports this for SERVFAIL and other error responses too */
        error_set(err, ST_IO, "no server answered, or each with an error");
        break;
    case ARES_ESERVFAIL:
        error_set(err, ST_REFUSED, "the server answered that it failed (SERVFAIL)");
        break;
    case ARES_EREFUSED:
        error_set(err, ST_REFUSED, "the server refused (REFUSED)");
        break;
    case ARES_EFORMERR:
    case ARES_ENOTIMP:
        error_set(err, ST_REFUSED, "the server did not understand the question");
        break;
    case ARES_EBADRESP:
        error_set(err, ST_BAD_ANSWER, "answered with something that is no DNS");
        break;
    case ARES_EBADNAME:
        error_set(err, ST_BAD_CONFIG, "not a valid name");
        break;
    case ARES_ENOMEM:
        error_no_memory(err, "the answer");
        break;
    case ARES_ECANCELLED:
    case ARES_EDESTRUCTION:
        error_set(err, ST_CANCELLED, "given up");
        break;
    default:
        error_set(err, ST_IO, "%s", ares_strerror(code));
        break;
    }
}

static void finish_lookup(struct dns_lookup *lookup, const struct dns_answer *answer) {
    if (lookup->done) {
        lookup->done(lookup->user, answer);
    }
    free(lookup);
}

static void fail_lookup(struct dns_lookup *lookup, int code) {
    struct dns_answer answer = {.error.status = ST_OK};
    set_ares_error(code, &answer.error);
    finish_lookup(lookup, &answer);
}

static struct dns_address address_of(const struct ares_addrinfo_node *node) {
    struct dns_address address = {.is_ip6 = node->ai_family == AF_INET6};
    if (address.is_ip6) {
        const struct sockaddr_in6 *ip6 = (const void *)node->ai_addr;
        memcpy(address.bytes, &ip6->sin6_addr, sizeof(ip6->sin6_addr));
    } else {
        const struct sockaddr_in *ip4 = (const void *)node->ai_addr;
        memcpy(address.bytes, &ip4->sin_addr, sizeof(ip4->sin_addr));
    }
    return address;
}

/* RFC 2181, 8: a TTL with the highest bit set counts as 0. */
static uint32_t min_ttl(uint32_t ttl_s, int other) {
    uint32_t other_s = other > 0 ? (uint32_t)other : 0;
    return other_s < ttl_s ? other_s : ttl_s;
}

/* The TTL includes those of the CNAMEs on the way. */
static void finish_addresses(struct dns_lookup *lookup, const struct ares_addrinfo *info) {
    struct dns_answer answer = {.error.status = ST_OK, .ttl_s = UINT32_MAX};
    size_t n = 0;
    for (const struct ares_addrinfo_node *node = info->nodes; node; node = node->ai_next) {
        n++;
    }
    struct dns_address *addresses = calloc(n + 1, sizeof(*addresses));
    if (n == 0 || !addresses) {
        fail_lookup(lookup, n == 0 ? ARES_ENODATA : ARES_ENOMEM);
        free(addresses);
        return;
    }
    for (const struct ares_addrinfo_node *node = info->nodes; node; node = node->ai_next) {
        addresses[answer.n_addresses++] = address_of(node);
        answer.ttl_s = min_ttl(answer.ttl_s, node->ai_ttl);
    }
    for (const struct ares_addrinfo_cname *name = info->cnames; name; name = name->next) {
        answer.ttl_s = min_ttl(answer.ttl_s, name->ttl);
    }
    answer.addresses = addresses;
    finish_lookup(lookup, &answer);
    free(addresses);
}

static void on_addresses(void *user, int code, int n_timeouts, struct ares_addrinfo *info) {
    (void)n_timeouts;
    if (code == ARES_SUCCESS) {
        finish_addresses(user, info);
    } else {
        fail_lookup(user, code);
    }
    ares_freeaddrinfo(info);
}

static void on_message(void *user, int code, int n_timeouts, unsigned char *message, int len) {
    (void)n_timeouts;
    if (code == ARES_SUCCESS) {
        struct dns_answer answer = {.error.status = ST_OK,
                                    .message = str_make((const char *)message, (size_t)len)};
        finish_lookup(user, &answer);
    } else {
        fail_lookup(user, code);
    }
}

/* ---- sockets and time ------------------------------------------------------------------------ */

static struct dns_resolver *resolver_of_sockets(struct socket_watcher_set *sockets) {
    return CONTAINER_OF(sockets, struct dns_resolver, sockets);
}

/* Sets the timer to the next timeout of c-ares. */
static void update_timer(struct dns_resolver *resolver) {
    struct loop_timers *timers = worker_timers(resolver->worker);
    struct timeval buffer, *wait = ares_timeout(resolver->channel, NULL, &buffer);
    if (!wait) {
        timer_stop(timers, &resolver->timer);
        return;
    }
    uint64_t us = (uint64_t)wait->tv_sec * US_PER_S + (uint64_t)wait->tv_usec;
    /* Rounded up, so that it never fires too early. */
    timer_start(timers, &resolver->timer, clock_now_ns() + us * NS_PER_US + NS_PER_MS);
}

static void run_ares(struct dns_resolver *resolver, ares_socket_t readable,
                     ares_socket_t writable) {
    struct timeval buffer;
    ares_process_fd(resolver->channel, readable, writable);
    if (!ares_timeout(resolver->channel, NULL, &buffer)) {
        /* No query is in progress. A timed-out query may have left a dead connection, which 1.34
         * would use for the next query; processing timeouts now closes it. */
        ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    }
    update_timer(resolver);
}

static void on_timeout(struct timer *timer) {
    run_ares(CONTAINER_OF(timer, struct dns_resolver, timer), ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

/* A broken socket is readable: reading it returns the error. */
static void on_ready(struct socket_watcher_set *sockets, int fd, bool readable, bool writable,
                     bool broken) {
    run_ares(resolver_of_sockets(sockets), readable || broken ? fd : ARES_SOCKET_BAD,
             writable ? fd : ARES_SOCKET_BAD);
}

/* c-ares callback: watch this socket; for nothing: it is about to be closed. A socket that cannot
 * be watched appears as one that never answers. */
static void on_socket(void *user, ares_socket_t fd, int readable, int writable) {
    struct dns_resolver *resolver = user;
    struct socket_watcher *polled = socket_watcher_find(&resolver->sockets, fd);
    if (readable || writable) {
        socket_watcher_update(&resolver->sockets, polled, fd, readable, writable);
    } else if (polled) {
        socket_watcher_close(polled);
    }
}

/* ---- the resolver ---------------------------------------------------------------------------- */

static int make_channel(struct dns_resolver *resolver, const struct dns_resolver_options *options) {
    struct ares_options settings = {
        .timeout = options->timeout_ms > 0 ? (int)options->timeout_ms : TIMEOUT_MS,
        .tries = options->n_tries > 0 ? (int)options->n_tries : TRIES,
        .sock_state_cb = on_socket,
        .sock_state_cb_data = resolver,
    };
    int given = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB;
    char *file = options->system_file ? strdup(options->system_file) : NULL;
    if (options->system_file && !file) {
        return ARES_ENOMEM;
    }
    if (file) {
        settings.resolvconf_path = file; /* c-ares copies it */
        given |= ARES_OPT_RESOLVCONF;
    }
#ifdef ARES_OPT_QUERY_CACHE /* since 1.31; 0 disables it */
    given |= ARES_OPT_QUERY_CACHE;
#endif
    int code = ares_init_options(&resolver->channel, &settings, given);
    free(file);
    if (code != ARES_SUCCESS) {
        resolver->channel = NULL;
        return code;
    }
    return options->servers && options->servers[0]
               ? ares_set_servers_ports_csv(resolver->channel, options->servers)
               : ARES_SUCCESS;
}

enum status dns_resolver_new(const struct dns_resolver_options *options, struct dns_resolver **out,
                             struct error *err) {
    struct dns_resolver *resolver = calloc(1, sizeof(*resolver));
    if (!resolver) {
        return error_no_memory(err, "a DNS lookup");
    }
    int code = ares_library_init(ARES_LIB_INIT_ALL);
    if (code == ARES_SUCCESS) {
        resolver->worker = options->worker;
        resolver->timer.on_expire = on_timeout;
        resolver->sockets =
            (struct socket_watcher_set){.worker = options->worker, .on_ready = on_ready};
        code = make_channel(resolver, options);
        if (code != ARES_SUCCESS) {
            if (resolver->channel) {
                ares_destroy(resolver->channel);
            }
            ares_library_cleanup();
        }
    }
    if (code != ARES_SUCCESS) {
        free(resolver);
        return error_set(err, code == ARES_ENOMEM ? ST_NO_MEMORY : ST_IO,
                         "the DNS resolver can't be set up: %s", ares_strerror(code));
    }
    *out = resolver;
    return ST_OK;
}

static void on_sockets_closed(struct socket_watcher_set *sockets) {
    struct dns_resolver *resolver = resolver_of_sockets(sockets);
    resolver->done(resolver->user);
}

void dns_resolver_stop(struct dns_resolver *resolver, void (*done)(void *user), void *user) {
    resolver->done = done;
    resolver->user = user;
    ares_destroy(resolver->channel);
    resolver->channel = NULL;
    timer_stop(worker_timers(resolver->worker), &resolver->timer);
    socket_watcher_set_close(&resolver->sockets, on_sockets_closed);
}

void dns_resolver_free(struct dns_resolver *resolver) {
    if (resolver) {
        free(resolver);
        ares_library_cleanup();
    }
}

/* ---- lookups --------------------------------------------------------------------------------- */

enum status dns_lookup_start(struct dns_resolver *resolver, const char *name, enum dns_kind kind,
                             void (*done)(void *user, const struct dns_answer *answer), void *user,
                             struct dns_lookup **out, struct error *err) {
    struct dns_lookup *lookup = calloc(1, sizeof(*lookup));
    if (!lookup) {
        return error_no_memory(err, "a DNS lookup");
    }
    *lookup = (struct dns_lookup){.done = done, .user = user};
    *out = lookup; /* before the callback may free it */
    if (kind == DNS_SRV) {
        ares_search(resolver->channel, name, CLASS_IN, TYPE_SRV, on_message, lookup);
    } else {
        struct ares_addrinfo_hints hints = {.ai_flags = ARES_AI_NOSORT,
                                            .ai_family = kind == DNS_A ? AF_INET : AF_INET6,
                                            .ai_socktype = SOCK_STREAM};
        ares_getaddrinfo(resolver->channel, name, NULL, &hints, on_addresses, lookup);
    }
    update_timer(resolver);
    return ST_OK;
}

void dns_lookup_cancel(struct dns_lookup *lookup) {
    lookup->done = NULL;
}

/* The admin listener of --metrics. It runs on a worker that serves no requests, so that they do not
 * delay it. */
#ifndef SLUICE_TELEMETRY_ADMIN_LISTENER_H
#define SLUICE_TELEMETRY_ADMIN_LISTENER_H

#include "core/base/arena.h"
#include "net/server/http/server.h"
#include "net/transport/tls/server.h"

struct admin_listener_options {
    const char *where; /* the value of --metrics */
    struct net_limits limits;
    struct http_router router;
    struct worker *worker;
    struct tls_server *tls;      /* NULL: without TLS. At a Unix socket it is not used */
    uint64_t reload_interval_ns; /* with `tls`: how often its files are checked; 0: never */
    bool is_internal;            /* of no interest to operators: its address is not logged */
};

struct admin_listener {
    /* Its own, so that it can be reached when the server is at its connection limit. */
    struct net_budget budget;
    struct http_server *server; /* NULL: --metrics none */
    struct address address;     /* the bound address */
    /* internal */
    struct worker *worker, *main;
    struct tls_server *tls; /* NULL: without TLS */
    uint64_t reload_interval_ns;
    struct timer reload_timer;
    atomic_bool reload_posted;
    struct worker_msg reload_msg;
    struct worker_msg stop_msg, stopped_msg; /* to the worker, and back to `main` */
    void (*stopped)(void *user);
    void *stopped_user;
};

/* Returns: whether `where`, the value of --metrics, enables it. */
bool admin_listener_is_enabled(const char *where);
/* Initialises zeroed memory; no effect when it is disabled. Returns: the reason it can't listen,
 * with the setting. Owns: admin_listener_free, also after a failure; the caller keeps `tls`, which
 * is the worker's from now on. Thread: the worker's, or before its loop runs. */
enum status admin_listener_open(struct admin_listener *listener,
                                const struct admin_listener_options *options,
                                struct error *err) SLUICE_MUST_USE;
/* Checks the files of `tls` soon. Thread: that of `main`, before admin_listener_stop. */
void admin_listener_reload(struct admin_listener *listener);
/* Returns: its URL for the ready file; NULL when out of memory. */
const char *admin_listener_url(const struct admin_listener *listener, struct arena *arena);
/* As net_server_stop, of the server, which there is; `stopped` runs on `main`. Thread: that of
 * `main`. */
void admin_listener_stop(struct admin_listener *listener, struct worker *main,
                         void (*stopped)(void *user), void *user);
/* After the server, if there is one, has stopped. */
void admin_listener_free(struct admin_listener *listener);

#endif

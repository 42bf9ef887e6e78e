/* An HTTP server with a budget of its own. */
#include "telemetry/admin/listener.h"

#include <time.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "net/server/shutdown.h"

/* While as many idle connections as MAX_LEAVING have lost their place and are not closed yet, new
 * ones wait in the backlog. So a health check finds another idle one: at most ADMIN_MAX_PAGES and
 * ADMIN_MAX_REPORTS are busy. */
enum { MAX_CONNECTIONS = 256, MAX_LEAVING = 64 };

static const uint64_t BODY_BYTES = 65536; /* requests need no body */

bool admin_listener_is_enabled(const char *where) {
    return !str_is(str_of(where), "none");
}

/* ---- the files of TLS ------------------------------------------------------------------------ */

static void start_reload_timer(struct admin_listener *listener) {
    if (listener->tls && listener->reload_interval_ns > 0) {
        timer_start(worker_timers(listener->worker), &listener->reload_timer,
                    clock_now_ns() + listener->reload_interval_ns);
    }
}

static void on_reload_timer(struct timer *timer) {
    struct admin_listener *listener = CONTAINER_OF(timer, struct admin_listener, reload_timer);
    tls_server_reload(listener->tls, time(NULL), false);
    start_reload_timer(listener);
}

/* Thread: the worker's. */
static void run_reload(struct worker_msg *msg) {
    struct admin_listener *listener = CONTAINER_OF(msg, struct admin_listener, reload_msg);
    atomic_store(&listener->reload_posted, false);
    tls_server_reload(listener->tls, time(NULL), true);
}

void admin_listener_reload(struct admin_listener *listener) {
    if (listener->server && listener->tls && !atomic_exchange(&listener->reload_posted, true)) {
        worker_post(listener->worker, &listener->reload_msg);
    }
}

/* ---- open ------------------------------------------------------------------------------------ */

static enum status make_server(struct admin_listener *listener,
                               const struct admin_listener_options *given, struct error *err) {
    struct worker *const workers[] = {given->worker};
    listener->budget.body_memory = BODY_BYTES;
    listener->budget.max_connections = MAX_CONNECTIONS;
    listener->budget.max_refusals = MAX_LEAVING;
    struct http_server_options options = {.limits = given->limits,
                                          .budget = &listener->budget,
                                          .router = given->router,
                                          .workers = workers,
                                          .n_workers = 1,
                                          .acceptor = given->worker,
                                          .server_name = "sluice/" SLUICE_VERSION};
    options.limits.max_body_size = BODY_BYTES;
    return http_server_new(&options, &listener->server, err);
}

enum status admin_listener_open(struct admin_listener *listener,
                                const struct admin_listener_options *options, struct error *err) {
    struct address address;
    if (!admin_listener_is_enabled(options->where)) {
        return ST_OK;
    }
    listener->worker = options->worker;
    listener->reload_interval_ns = options->reload_interval_ns;
    listener->reload_timer.on_expire = on_reload_timer;
    listener->reload_msg.run = run_reload;
    if (make_server(listener, options, err) != ST_OK ||
        address_parse(str_of(options->where), &address, err) != ST_OK) {
        return error_prefix(err, "--metrics %s", options->where);
    }
    listener->tls = address_is_unix(&address) ? NULL : options->tls;
    if (http_server_listen(listener->server, &address, listener->tls, &listener->address, err) !=
        ST_OK) {
        return error_prefix(err, "--metrics %s", options->where);
    }
    start_reload_timer(listener);
    char text[ADDRESS_TEXT_BYTES];
    log_event(options->is_internal ? LOG_DEBUG : LOG_INFO, "listening",
              LOG_CSTR("metrics", address_print(&listener->address, text)));
    return ST_OK;
}

const char *admin_listener_url(const struct admin_listener *listener, struct arena *arena) {
    char text[ADDRESS_TEXT_BYTES];
    bool local = address_is_unix(&listener->address);
    return arena_printf(arena, "%s%s%s",
                        local           ? "http+"
                        : listener->tls ? "https://"
                                        : "http://",
                        address_print(&listener->address, text), local ? "" : "/metrics")
        .ptr;
}

static void run_stopped(struct worker_msg *msg) {
    struct admin_listener *listener = CONTAINER_OF(msg, struct admin_listener, stopped_msg);
    listener->stopped(listener->stopped_user);
}

/* Thread: the worker's. */
static void on_stopped(void *user) {
    struct admin_listener *listener = user;
    worker_post(listener->main, &listener->stopped_msg);
}

/* Thread: the worker's. */
static void run_stop(struct worker_msg *msg) {
    struct admin_listener *listener = CONTAINER_OF(msg, struct admin_listener, stop_msg);
    timer_stop(worker_timers(listener->worker), &listener->reload_timer);
    net_server_stop(http_server_net(listener->server), on_stopped, listener);
}

void admin_listener_stop(struct admin_listener *listener, struct worker *main,
                         void (*stopped)(void *user), void *user) {
    listener->main = main;
    listener->stopped = stopped;
    listener->stopped_user = user;
    listener->stop_msg.run = run_stop;
    listener->stopped_msg.run = run_stopped;
    worker_post(listener->worker, &listener->stop_msg);
}

void admin_listener_free(struct admin_listener *listener) {
    http_server_free(listener->server);
}

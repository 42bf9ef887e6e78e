/* Starts the picker, and stops it in order. */
#include "program/picker/process.h"

#include <stdio.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/plural.h"
#include "core/must/must.h"
#include "core/os/ready_file.h"
#include "program/picker/discovery.h"
#include "program/picker/grpc.h"
#include "program/picker/routes.h"
#include "program/process/memory_share.h"

/* This share of --client-memory is for small requests only, so that a few large ones, or
 * connections that do not read, don't keep others out. */
enum { KEPT_SHARE = 8 };
/* Of the arena of a stream: less would leave a proxy with few requests no memory beside others that
 * use up the budget with streams of theirs. */
enum { UNCOUNTED_BYTES = 16384 };

struct pick_process {
    const struct pick_settings *settings;
    struct process process;
    struct arena *arena;
    struct net_budget budget;
    struct pool_set *pools;
    struct tls_server *tls; /* NULL: no TLS */
    struct pick_discovery discovery;
    struct pick_grpc grpc;
    struct pick_admin admin;
    struct listen_address *listen_addresses; /* of --grpc, then of --health */
    size_t n_listen_addresses;
    size_t n_stopping; /* components that have not stopped */
    void (*stopped)(void *user);
    void *stopped_user;
};

/* ---- process handlers ------------------------------------------------------------------------ */

static uint64_t count_in_flight(void *user) {
    const struct pick_process *self = user;
    return pick_grpc_in_flight(&self->grpc);
}

static void log_state(void *user) {
    struct pick_process *self = user;
    pick_admin_log_state(&self->admin);
}

static void reload_files(void *user) {
    struct pick_process *self = user;
    pick_discovery_refresh(&self->discovery);
    admin_listener_reload(&self->admin.listener);
}

static void start_drain(void *user) {
    struct pick_process *self = user;
    pick_discovery_resign(&self->discovery);
    pick_grpc_drain(&self->grpc);
}

/* Thread: the watchdog's. */
static void refresh_health(void *user) {
    struct pick_process *self = user;
    pick_grpc_refresh_health(&self->grpc);
}

static bool can_stop(void *user) {
    (void)user;
    return true;
}

static void on_stopped(void *user) {
    struct pick_process *self = user;
    if (--self->n_stopping == 0) {
        self->stopped(self->stopped_user);
    }
}

static void stop_picker(void *user, void (*stopped)(void *), void *stopped_user) {
    struct pick_process *self = user;
    self->stopped = stopped;
    self->stopped_user = stopped_user;
    self->n_stopping = 2; /* this function itself, and discovery */
    pick_discovery_stop(&self->discovery, on_stopped, self);
    self->n_stopping += pick_grpc_stop(&self->grpc, on_stopped, self);
    if (self->admin.listener.server) {
        self->n_stopping++;
        pick_admin_stop(&self->admin, self->process.threads.main, on_stopped, self);
    }
    on_stopped(self);
}

static void unlink_sockets(void *user) {
    const struct pick_process *self = user;
    for (size_t i = 0; i < self->n_listen_addresses; i++) {
        address_unlink(&self->listen_addresses[i].address);
    }
    address_unlink(&self->admin.listener.address);
}

static const struct process_handlers handlers = {
    .in_flight = count_in_flight,
    .log_state = log_state,
    .reload = reload_files,
    .drain = start_drain,
    .health_changed = refresh_health,
    .can_stop = can_stop,
    .stop = stop_picker,
    .unlink = unlink_sockets,
};

/* ---- ready file ------------------------------------------------------------------------------ */

/* Returns: a line of the ready file; health's ends with /health. */
static const char *url_of(struct pick_process *self, size_t i) {
    static const struct listen_scheme health = {.flag = "health", .plain = "grpc"};
    struct listen_scheme grpc = pick_grpc_scheme(self->settings);
    const struct listen_address *listen_address = &self->listen_addresses[i];
    if (i < self->settings->grpc.n) {
        return listen_address_url(self->arena, &grpc, listen_address);
    }
    const char *url = listen_address_url(self->arena, &health, listen_address);
    return address_is_unix(&listen_address->address)
               ? url
               : arena_printf(self->arena, "%s/health", url).ptr;
}

static enum status write_ready_file(struct pick_process *self, struct error *err) {
    size_t n = 0;
    const char **urls = arena_calloc(self->arena, self->n_listen_addresses + 1, sizeof(*urls));
    for (size_t i = 0; i < self->n_listen_addresses; i++) {
        urls[n++] = url_of(self, i);
    }
    if (self->admin.listener.server) {
        urls[n++] = admin_listener_url(&self->admin.listener, self->arena);
    }
    return ready_file_write(&self->process.ready_file, urls, n, err);
}

/* Prints to a terminal where a proxy finds the picker, and what to look at. */
static void greet(struct pick_process *self, const struct pool_stats *numbers) {
    struct buf text;
    if (self->settings->log_format != LOG_TEXT || !isatty(STDERR_FILENO)) {
        return;
    }
    const char *grpc = self->settings->grpc.n > 0 ? url_of(self, 0) : NULL;
    const struct admin_listener *admin = &self->admin.listener;
    char address[ADDRESS_TEXT_BYTES];
    buf_init(&text, self->arena, 0);
    buf_printf(&text, "\nready: %u of %u endpoint%s; for a proxy's ext-proc filter",
               numbers->n_ready, numbers->n_endpoints, plural_s(numbers->n_endpoints));
    if (grpc) {
        buf_printf(&text, " at %s", grpc);
    }
    if (admin->server && !address_is_unix(&admin->address)) {
        address_print(&admin->address, address);
        const char *scheme = self->settings->metrics_tls_cert ? "https" : "http";
        buf_printf(&text, "; status page %s://%s/\ntry:   curl %s://%s/debug/pick", scheme, address,
                   scheme, address);
    }
    buf_add_str(&text, STR("\nstop:  Ctrl-C\n\n"));
    fwrite(text.data, 1, text.len, stderr);
}

static void log_ready(struct pick_process *self) {
    struct pool_stats numbers;
    struct error err;
    pool_set_get_stats(self->pools, &numbers);
    log_event(LOG_INFO, "ready", LOG_U64("endpoints", numbers.n_endpoints),
              LOG_U64("ready", numbers.n_ready));
    greet(self, &numbers);
    process_set_ready(&self->process, "ready");
    if (self->settings->ready_file && write_ready_file(self, &err) != ST_OK) {
        log_event(LOG_ERROR, "cannot write the ready file", LOG_CSTR("reason", err.text));
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

static void on_pools_changed(void *user) {
    struct pick_process *self = user;
    pick_grpc_refresh_pools(&self->grpc);
    pick_admin_refresh_pools(&self->admin);
}

static enum status open_pools(struct pick_process *self, struct error *err) {
    struct prefix_table *prefixes = NULL;
    enum status st = pool_set_new(&self->pools, err);
    if (st == ST_OK) {
        st = prefix_table_new(self->settings->prefix_memory, 0, &prefixes, err);
    }
    if (st == ST_OK) {
        pool_set_attach_prefix_table(self->pools, prefixes);
        prefix_table_unref(prefixes); /* the pools hold it now */
        st = pick_discovery_open(&self->discovery, self->settings, self->pools, err);
    }
    return st == ST_OK ? pick_tls_open(self->settings, &self->tls, err) : st;
}

static enum status open_admin(struct pick_process *self, struct error *err) {
    struct pick_admin *admin = &self->admin;
    admin->workers = self->grpc.workers;
    enum status st =
        pick_admin_init(admin, self->pools, &self->budget, self->process.threads.admin, err);
    if (st != ST_OK) {
        return st;
    }
    pick_admin_add_server(admin, "grpc", grpc_server_net(self->grpc.server));
    if (self->grpc.health_server) {
        pick_admin_add_server(admin, "health", grpc_server_net(self->grpc.health_server));
    }
    return pick_admin_open(admin, self->settings, err);
}

static enum status open_listeners(struct pick_process *self, struct error *err) {
    const struct pick_settings *settings = self->settings;
    const struct process_threads *threads = &self->process.threads;
    self->budget.memory = settings->client_memory.n_bytes;
    self->budget.kept_memory = settings->client_memory.n_bytes / KEPT_SHARE;
    self->budget.body_memory = settings->body_memory.n_bytes;
    net_budget_count_arenas(&self->budget, UNCOUNTED_BYTES);
    process_limit_connections(&self->budget, settings->max_connections);
    self->n_listen_addresses = settings->grpc.n + settings->health.n;
    self->listen_addresses =
        arena_calloc(self->arena, self->n_listen_addresses, sizeof(*self->listen_addresses));
    self->grpc.ready = &self->discovery.ready;
    enum status st = pick_grpc_open(&self->grpc, settings, self->pools, threads, &self->budget,
                                    self->tls, self->listen_addresses, err);
    return st == ST_OK ? open_admin(self, err) : st;
}

static enum status start_picker(struct pick_process *self, struct error *err) {
    self->arena = must_arena_new("the endpoint picker");
    if (process_start(&self->process, self->settings->workers, err) != ST_OK ||
        open_pools(self, err) != ST_OK || open_listeners(self, err) != ST_OK) {
        return err->status;
    }
    /* Removed only now: the addresses are bound, so the file is not another picker's. */
    ready_file_remove_stale(self->settings->ready_file);
    enum status st = pick_discovery_start(&self->discovery, self->process.threads.main, self->tls,
                                          on_pools_changed, self, err);
    pick_admin_show_discovery(&self->admin, &self->discovery);
    if (st == ST_OK) { /* connections are accepted by the kernel, and wait */
        watchdog_add(&self->process.watchdog, self->discovery.worker);
        pick_discovery_wait_known(&self->discovery);
    }
    return st;
}

enum status pick_process_run(const struct pick_settings *settings, struct error *err) {
    struct pick_process self = {
        .settings = settings,
        .process = {.handlers = &handlers,
                    .user = &self,
                    .drain_timeout_ns = settings->drain_timeout_ns,
                    .loop_unready_after_ns = settings->loop_unready_after_ns,
                    .loop_dead_after_ns = settings->loop_dead_after_ns,
                    .ready_file = {.path = settings->ready_file}},
    };
    enum status st = start_picker(&self, err);
    if (st == ST_OK) {
        memory_share_log("client memory", &settings->client_memory, &settings->memory_limit);
        memory_share_log("body memory", &settings->body_memory, &settings->memory_limit);
        log_ready(&self);
        process_run(&self.process);
    } else {
        process_abort(&self.process);
    }
    process_join(&self.process);
    pick_grpc_free(&self.grpc);
    pick_admin_free(&self.admin);
    pick_discovery_free(&self.discovery);
    pool_set_free(self.pools);
    tls_server_free(self.tls);
    process_free(&self.process);
    arena_free(self.arena);
    if (st == ST_OK) {
        log_message(LOG_INFO, "ended");
    }
    return st;
}

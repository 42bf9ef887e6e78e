/* Starts and stops the picker in an Envoy. The list of instances is the process's: Envoy's
 * interface has no object of its own for a library. */
#include "program/envoy/instance.h"

#include <stdlib.h>
#include <threads.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/must/must.h"
#include "core/os/ready_file.h"
#include "program/envoy/settings.h"
#include "program/picker/discovery.h"
#include "program/picker/grpc.h"
#include "program/picker/routes.h"

/* How often the times of requests that wait are checked. */
static const uint64_t TICK_NS = 10000000;

struct envoy_instance {
    LIST_ENTRY(envoy_instance) link;
    struct envoy_arguments arguments;
    unsigned n_refs;
    struct arena *arena;
    struct pick_settings settings;
    struct pool_set *pools;
    struct otel_settings traces;
    struct span_writer *span_writer; /* NULL: no --tracing, or nothing is exported */
    struct pick_workers *shared;
    struct envoy_workers *workers;
    struct worker *main; /* for timers, and what discovery reports */
    struct pick_discovery discovery;
    struct net_budget budget; /* of the operators' listener, which has no other clients beside it */
    struct worker *pages;     /* serves that listener; NULL: --metrics none */
    struct pick_admin admin;
    struct ready_file ready_file;
    unsigned n_stopping; /* components that have not stopped */
    struct worker_msg tick_msg, turn_msg;
    atomic_bool tick_posted, turn_posted;
    struct timer tick;
};

static struct {
    once_flag once;
    struct lock lock; /* of the list */
    LIST_HEAD(, envoy_instance) items;
} instances = {.once = ONCE_FLAG_INIT};

static void init_instances(void) {
    lock_init(&instances.lock);
    LIST_INIT(&instances.items);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void on_tick(struct timer *timer) {
    struct envoy_instance *self = CONTAINER_OF(timer, struct envoy_instance, tick);
    if (envoy_workers_tick(self->workers)) {
        timer_start(worker_timers(self->main), &self->tick, clock_now_ns() + TICK_NS);
    }
}

static void run_tick(struct worker_msg *msg) {
    struct envoy_instance *self = CONTAINER_OF(msg, struct envoy_instance, tick_msg);
    atomic_store(&self->tick_posted, false);
    timer_start(worker_timers(self->main), &self->tick, clock_now_ns() + TICK_NS);
}

static void on_waiting(void *user) {
    struct envoy_instance *self = user;
    if (!atomic_exchange(&self->tick_posted, true)) {
        worker_post(self->main, &self->tick_msg);
    }
}

static void run_turns(struct worker_msg *msg) {
    struct envoy_instance *self = CONTAINER_OF(msg, struct envoy_instance, turn_msg);
    atomic_store(&self->turn_posted, false);
    envoy_workers_call_turns(self->workers);
}

static void on_turn(void *user) {
    struct envoy_instance *self = user;
    if (!atomic_exchange(&self->turn_posted, true)) {
        worker_post(self->main, &self->turn_msg);
    }
}

/* Envoy's workers refresh their readers with their next request. */
static void on_pools_changed(void *user) {
    struct envoy_instance *self = user;
    if (self->pages) {
        pick_admin_refresh_pools(&self->admin);
    }
}

struct starting {
    struct envoy_instance *self;
    enum status st;
    struct error *err;
};

static void start_discovery(void *user) {
    struct starting *starting = user;
    struct envoy_instance *self = starting->self;
    starting->st = pick_discovery_start(&self->discovery, self->main, NULL, on_pools_changed, self,
                                        starting->err);
}

static void on_stopped(void *user) {
    struct envoy_instance *self = user;
    if (--self->n_stopping == 0) {
        worker_stop(self->main);
    }
}

static void run_stop(void *user) {
    struct envoy_instance *self = user;
    timer_stop(worker_timers(self->main), &self->tick);
    self->n_stopping = 1 + (self->admin.listener.server != NULL);
    pick_discovery_stop(&self->discovery, on_stopped, self);
    if (self->admin.listener.server) {
        pick_admin_stop(&self->admin, self->main, on_stopped, self);
    }
}

/* ---- start and stop -------------------------------------------------------------------------- */

static enum status open_pools(struct envoy_instance *self, struct error *err) {
    struct prefix_table *prefixes = NULL;
    enum status st = pool_set_new(&self->pools, err);
    if (st == ST_OK) {
        st = prefix_table_new(self->settings.prefix_memory, 0, &prefixes, err);
    }
    if (st == ST_OK) {
        pool_set_attach_prefix_table(self->pools, prefixes);
        prefix_table_unref(prefixes); /* the pools hold it now */
        st = pick_discovery_open(&self->discovery, &self->settings, self->pools, err);
    }
    return st;
}

static enum status start_worker(const char *name, struct worker **out, struct error *err) {
    enum status st = worker_new(name, out, err);
    st = st == ST_OK ? worker_start(*out, err) : st;
    if (st != ST_OK) {
        worker_free(*out);
        *out = NULL;
    }
    return st;
}

static enum status open_workers(struct envoy_instance *self, struct error *err) {
    struct envoy_workers_options options = {
        .on_waiting = on_waiting, .on_turn = on_turn, .user = self};
    enum status st =
        pick_traces_open(&self->settings, self->arena, &self->traces, &self->span_writer, err);
    if (st == ST_OK) {
        struct pick_workers_options shared =
            pick_workers_options(&self->settings, self->pools, &self->traces, self->span_writer);
        shared.proxy_keeps_body = true;
        st = pick_workers_new(&shared, &self->shared, err);
    }
    options.shared = self->shared;
    return st == ST_OK ? envoy_workers_new(&options, &self->workers, err) : st;
}

static enum status open_pages(struct envoy_instance *self, struct error *err) {
    if (!admin_listener_is_enabled(self->settings.metrics)) {
        return ST_OK;
    }
    self->admin.workers = self->shared;
    enum status st = start_worker("pages", &self->pages, err);
    if (st == ST_OK) {
        st = pick_admin_init(&self->admin, self->pools, &self->budget, self->pages, err);
    }
    return st == ST_OK ? pick_admin_open(&self->admin, &self->settings, err) : st;
}

static enum status start_main(struct envoy_instance *self, struct error *err) {
    struct starting starting = {.self = self, .err = err};
    worker_call(self->main, start_discovery, &starting);
    if (starting.st == ST_OK && self->pages) {
        pick_admin_show_discovery(&self->admin, &self->discovery);
    }
    return starting.st;
}

/* Its one address is that of the pages. */
static void write_ready_file(struct envoy_instance *self) {
    struct error err;
    const char *url = self->pages ? admin_listener_url(&self->admin.listener, self->arena) : NULL;
    self->ready_file.path = self->settings.ready_file;
    if (self->settings.ready_file &&
        ready_file_write(&self->ready_file, &url, url != NULL, &err) != ST_OK) {
        log_event(LOG_ERROR, "cannot write the ready file", LOG_CSTR("reason", err.text));
    }
}

static enum status start(struct envoy_instance *self, struct error *err) {
    enum status st = envoy_settings_read(&self->arguments, &self->settings, err);
    if (st != ST_OK) {
        return st;
    }
    log_configure((enum log_level)self->settings.log_level,
                  (enum log_format)self->settings.log_format);
    self->tick_msg.run = run_tick;
    self->turn_msg.run = run_turns;
    self->tick.on_expire = on_tick;
    self->budget.memory = self->settings.client_memory.n_bytes;
    self->budget.body_memory = self->settings.body_memory.n_bytes;
    self->budget.max_connections = 1;
    st = start_worker("picker", &self->main, err);
    st = st == ST_OK ? open_pools(self, err) : st;
    st = st == ST_OK ? open_workers(self, err) : st;
    st = st == ST_OK ? open_pages(self, err) : st;
    return st == ST_OK ? start_main(self, err) : st;
}

static void instance_free(struct envoy_instance *self) {
    envoy_workers_free(self->workers);
    pick_workers_free(self->shared);
    pick_admin_free(&self->admin);
    pick_discovery_free(&self->discovery);
    pool_set_free(self->pools);
    span_writer_free(self->span_writer);
    worker_free(self->pages);
    worker_free(self->main);
    arena_free(self->arena);
    free(self);
}

/* Also after a start that has failed at any step. */
static void stop(struct envoy_instance *self) {
    if (self->main) {
        worker_call(self->main, run_stop, self);
        worker_join(self->main);
    }
    if (self->pages) {
        worker_stop(self->pages);
        worker_join(self->pages);
    }
    ready_file_remove(&self->ready_file);
}

/* Owns: takes the arena. */
static enum status instance_new(const struct envoy_arguments *arguments,
                                struct envoy_instance **out, struct error *err) {
    struct envoy_instance *self = must_calloc(1, sizeof(*self), "the picker");
    struct pool_stats numbers;
    self->arena = arguments->arena;
    self->arguments = *arguments;
    self->n_refs = 1;
    enum status st = start(self, err);
    if (st != ST_OK) {
        stop(self);
        instance_free(self);
        return st;
    }
    pick_discovery_wait_known(&self->discovery);
    pool_set_get_stats(self->pools, &numbers);
    log_event(LOG_INFO, "picker in Envoy: ready", LOG_U64("endpoints", numbers.n_endpoints),
              LOG_U64("ready", numbers.n_ready));
    write_ready_file(self);
    *out = self;
    return ST_OK;
}

static struct envoy_instance *find_instance(struct str text) {
    struct envoy_instance *found;
    LIST_FOREACH(found, &instances.items, link) {
        if (str_eq(found->arguments.text, text)) {
            break;
        }
    }
    return found;
}

enum status envoy_instance_get(struct str config, struct envoy_instance **out, struct error *err) {
    struct arena *arena = must_arena_new("the picker");
    struct envoy_arguments arguments;
    enum status st = envoy_arguments_read(config, arena, &arguments, err);
    if (st != ST_OK) {
        arena_free(arena);
        return st;
    }
    call_once(&instances.once, init_instances);
    lock_acquire(&instances.lock);
    struct envoy_instance *found = find_instance(arguments.text);
    if (found) {
        found->n_refs++;
        arena_free(arena);
    } else {
        st = instance_new(&arguments, &found, err);
        if (st == ST_OK) {
            LIST_INSERT_HEAD(&instances.items, found, link);
        }
    }
    lock_release(&instances.lock);
    *out = found;
    return st;
}

void envoy_instance_unref(struct envoy_instance *instance) {
    lock_acquire(&instances.lock);
    bool is_last = --instance->n_refs == 0;
    if (is_last) {
        LIST_REMOVE(instance, link);
    }
    lock_release(&instances.lock);
    if (is_last) {
        stop(instance);
        instance_free(instance);
        log_message(LOG_INFO, "picker in Envoy: stopped");
    }
}

struct envoy_workers *envoy_instance_workers(struct envoy_instance *instance) {
    return instance->workers;
}

/* Runs the queries of DNS names on a worker, and notifies its owner of changes. The lock guards the
 * names, which other threads read for reports; no callback runs with it held. */
#include "pick/discovery/dns/watch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/event/lock.h"
#include "core/os/log_limit.h"
#include "core/os/watched_file.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t TOGETHER_NS = 10000000;
/* The system's resolver configuration, read again when it changes. */
static const char SYSTEM_FILE[] = "/etc/resolv.conf";

/* A resolver, with the parameters that it was made with. */
struct source {
    struct dns_watch *watch;
    LIST_ENTRY(source) link; /* in watch->sources */
    struct dns_resolver *resolver;
    char servers[DNS_SERVERS_BYTES]; /* empty: the system's */
    uint64_t timeout_ns;
};

/* A name whose query is running. */
struct running_query {
    struct dns_watch *watch;
    struct dns_name *name;
    struct source *source;
    LIST_ENTRY(running_query) link; /* in watch->running */
};

struct dns_watch {
    struct dns_watch_options options;
    struct lock lock; /* guards `names` */
    struct dns_names names;
    struct timer query_timer;  /* the next query is due */
    struct timer notify_timer; /* calls on_addresses_changed, or on_all_resolved */
    LIST_HEAD(, running_query) running;
    LIST_HEAD(, source) sources;
    struct watched_file system;
    struct log_limit log;
    bool has_changed;          /* since the last on_addresses_changed */
    bool all_resolved_pending; /* on_all_resolved is to be called */
    bool stopping;
    size_t n_retiring; /* resolvers that are being stopped */
    void (*done)(void *user);
    void *user;
};

/* ---- notifications --------------------------------------------------------------------------- */

static void on_notify_timer(struct timer *timer) {
    struct dns_watch *watch = CONTAINER_OF(timer, struct dns_watch, notify_timer);
    if (watch->has_changed) {
        watch->has_changed = false;
        watch->options.on_addresses_changed(watch->options.user);
    }
    if (watch->all_resolved_pending && watch->names.n_unresolved == 0 && !watch->has_changed) {
        watch->all_resolved_pending = false;
        watch->options.on_all_resolved(watch->options.user);
    }
}

/* Schedules the callbacks: never within a call of the owner, and changes that are close together
 * once. */
static void schedule_notification(struct dns_watch *watch, uint64_t wait_ns) {
    if (!timer_is_started(&watch->notify_timer)) {
        timer_start(worker_timers(watch->options.worker), &watch->notify_timer,
                    clock_now_ns() + wait_ns);
    }
}

/* The log line for a name's state. */
static const struct line {
    enum log_level level;
    const char *event;
} LINES[] = {
    [DNS_STATE_UNRESOLVED] = {LOG_INFO, "DNS name not resolved yet"},
    [DNS_STATE_RESOLVED] = {LOG_INFO, "DNS name resolved"},
    [DNS_STATE_PARTIAL] = {LOG_WARNING, "DNS name resolved in part: other addresses are kept"},
    [DNS_STATE_EMPTY] = {LOG_WARNING, "DNS name has no addresses"},
    [DNS_STATE_FAILING] = {LOG_WARNING, "DNS resolution failed: the last addresses are kept"},
};

static void log_change(struct dns_watch *watch, const struct dns_name *name) {
    const struct line *line = &LINES[name->state];
    struct log_field fields[5] = {
        LOG_CSTR("name", name->name),
        LOG_CSTR("records", DNS_RECORDS_TEXTS[name->records]),
        LOG_U64(name->state == DNS_STATE_RESOLVED || name->state == DNS_STATE_PARTIAL ? "addresses"
                                                                                      : "kept",
                name->n_found),
    };
    unsigned n = 3;
    if (!log_enabled(line->level) || !log_limit_allow(&watch->log)) {
        return;
    }
    if (name->state != DNS_STATE_RESOLVED) {
        fields[n++] = LOG_CSTR("reason", name->error.text);
    }
    if (watch->log.n_suppressed > 0) {
        fields[n++] = LOG_U64("left_out", watch->log.n_suppressed);
    }
    log_write(line->level, line->event, fields, n);
    watch->log.n_suppressed = 0;
}

/* ---- queries --------------------------------------------------------------------------------- */

static void set_timer(struct dns_watch *watch, uint64_t due_ns);

static const enum metric METRICS[] = {
    [DNS_FOUND] = METRIC_PICK_DNS_OK,
    [DNS_PARTIAL] = METRIC_PICK_DNS_PARTIAL,
    [DNS_EMPTY] = METRIC_PICK_DNS_EMPTY,
    [DNS_FAILED] = METRIC_PICK_DNS_FAILED,
};

static void unlink_query(struct running_query *running) {
    LIST_REMOVE(running, link);
    free(running);
}

/* Stores the result. That of a removed name is discarded. */
static void finish_query(struct dns_watch *watch, struct dns_name *name,
                         const struct dns_result *result) {
    enum dns_state before = name->state;
    bool gone = name->removed;
    lock_acquire(&watch->lock);
    bool changed = dns_names_finish(&watch->names, name, result, clock_now_ns());
    lock_release(&watch->lock);
    metric_add(METRICS[result->outcome], 1);
    if (gone) {
        return;
    }
    if (changed || name->state != before) {
        log_change(watch, name);
    }
    watch->has_changed = watch->has_changed || changed;
    if (watch->has_changed || watch->names.n_unresolved == 0) {
        schedule_notification(watch, watch->names.n_unresolved == 0 ? 0 : TOGETHER_NS);
    }
}

static void on_done(void *user, const struct dns_result *result) {
    struct running_query *running = user;
    struct dns_watch *watch = running->watch;
    struct dns_name *name = running->name;
    unlink_query(running);
    finish_query(watch, name, result);
    set_timer(watch, clock_now_ns());
}

/* Ends a query that could not be started. */
static void finish_failed(struct dns_watch *watch, struct dns_name *name, const struct error *err) {
    struct dns_result result = {.outcome = DNS_FAILED, .error = *err};
    finish_query(watch, name, &result);
}

static struct source *source_of(struct dns_watch *watch, const struct dns_name *name,
                                struct error *err);

static void start_query(struct dns_watch *watch, struct dns_name *name) {
    struct error err;
    struct source *source = source_of(watch, name, &err);
    struct running_query *running = source ? calloc(1, sizeof(*running)) : NULL;
    if (!running) {
        if (source) {
            error_no_memory(&err, "a DNS query");
        }
        finish_failed(watch, name, &err);
        return;
    }
    *running = (struct running_query){.watch = watch, .name = name, .source = source};
    LIST_INSERT_HEAD(&watch->running, running, link);
    struct dns_query_options question = {.resolver = source->resolver,
                                         .name = name->name,
                                         .records = name->records,
                                         .known = name->found,
                                         .n_known = name->n_found,
                                         .done = on_done,
                                         .user = running};
    if (dns_query_start(&question, &name->query, &err) != ST_OK) {
        unlink_query(running);
        finish_failed(watch, name, &err);
    }
}

/* Queries are started by the timer, as a query may end at once, within dns_query_start. */
static void set_timer(struct dns_watch *watch, uint64_t due_ns) {
    struct loop_timers *timers = worker_timers(watch->options.worker);
    if (due_ns == UINT64_MAX) {
        timer_stop(timers, &watch->query_timer);
    } else {
        timer_start(timers, &watch->query_timer, due_ns);
    }
}

static void on_query_timer(struct timer *timer) {
    struct dns_watch *watch = CONTAINER_OF(timer, struct dns_watch, query_timer);
    for (;;) {
        lock_acquire(&watch->lock);
        struct dns_name *name = dns_names_pop_due(&watch->names, clock_now_ns());
        lock_release(&watch->lock);
        if (!name) {
            break;
        }
        start_query(watch, name);
    }
    set_timer(watch, dns_names_next_ns(&watch->names));
}

/* ---- resolvers ------------------------------------------------------------------------------- */

static void end_if_over(struct dns_watch *watch) {
    if (watch->stopping && watch->n_retiring == 0) {
        watch->done(watch->user);
    }
}

static void on_retired(void *user) {
    struct source *source = user;
    struct dns_watch *watch = source->watch;
    dns_resolver_free(source->resolver);
    free(source);
    watch->n_retiring--;
    end_if_over(watch);
}

/* Cancels the resolver's queries; their names are due at once. */
static void retire_source(struct source *source) {
    struct dns_watch *watch = source->watch;
    for (struct running_query *running = LIST_FIRST(&watch->running), *next; running;
         running = next) {
        struct dns_name *name = running->name;
        next = LIST_NEXT(running, link);
        if (running->source == source) {
            dns_query_cancel(name->query);
            unlink_query(running);
            lock_acquire(&watch->lock);
            dns_names_requeue(&watch->names, name, clock_now_ns());
            lock_release(&watch->lock);
        }
    }
    LIST_REMOVE(source, link);
    watch->n_retiring++;
    dns_resolver_stop(source->resolver, on_retired, source);
}

static struct source *source_new(struct dns_watch *watch, const struct dns_name *name,
                                 struct error *err) {
    struct source *source = calloc(1, sizeof(*source));
    struct dns_resolver_options options = {.worker = watch->options.worker,
                                           .servers = name->servers,
                                           .timeout_ms = (unsigned)(name->timeout_ns / NS_PER_MS),
                                           .system_file = watch->options.system_file};
    if (!source) {
        error_no_memory(err, "a DNS query");
        return NULL;
    }
    *source = (struct source){.watch = watch, .timeout_ns = name->timeout_ns};
    memcpy(source->servers, name->servers, sizeof(source->servers));
    if (dns_resolver_new(&options, &source->resolver, err) != ST_OK) {
        free(source);
        return NULL;
    }
    LIST_INSERT_HEAD(&watch->sources, source, link);
    return source;
}

static bool source_fits(const struct source *source, const struct dns_name *name) {
    return source->timeout_ns == name->timeout_ns && strcmp(source->servers, name->servers) == 0;
}

/* Returns: the resolver for the name, made if needed; NULL with the reason in `err`. */
static struct source *source_of(struct dns_watch *watch, const struct dns_name *name,
                                struct error *err) {
    struct source *source;
    LIST_FOREACH(source, &watch->sources, link) {
        if (source_fits(source, name)) {
            return source;
        }
    }
    return source_new(watch, name, err);
}

/* Stops the resolvers that no name uses. */
static void retire_unwanted(struct dns_watch *watch) {
    for (struct source *source = LIST_FIRST(&watch->sources), *next; source; source = next) {
        bool wanted = false;
        next = LIST_NEXT(source, link);
        for (size_t i = 0; !wanted && i < watch->names.n; i++) {
            wanted = source_fits(source, watch->names.items[i]);
        }
        if (!wanted) {
            retire_source(source);
        }
    }
}

/* Returns: the system's resolver configuration has changed. */
static bool system_has_changed(struct dns_watch *watch) {
    bool changed = false, known = watch->system.read;
    struct error err;
    (void)!watched_file_read(&watch->system, &changed,
                             &err); /* a missing file is another content */
    watched_file_clear(&watch->system);
    return changed && known;
}

/* ---- plans ----------------------------------------------------------------------------------- */

void dns_watch_set_pools(struct dns_watch *watch, const struct pool_specs *specs) {
    lock_acquire(&watch->lock);
    bool good = dns_names_set_pools(&watch->names, specs, clock_now_ns());
    lock_release(&watch->lock);
    if (!good) {
        log_message(LOG_ERROR, "out of memory for the names of the pools");
    }
    retire_unwanted(watch);
    watch->all_resolved_pending = true;
    dns_watch_check_system_file(watch);
    schedule_notification(watch, 0);
}

void dns_watch_check_system_file(struct dns_watch *watch) {
    if (watch->stopping) {
        return;
    }
    if (watch->names.n > 0 && system_has_changed(watch)) {
        for (struct source *source = LIST_FIRST(&watch->sources), *next; source; source = next) {
            next = LIST_NEXT(source, link);
            if (source->servers[0] == '\0') {
                retire_source(source);
            }
        }
    }
    set_timer(watch, dns_names_next_ns(&watch->names));
}

void dns_watch_add_endpoints(const struct dns_watch *watch, struct pool_spec *spec) {
    dns_names_add_endpoints(&watch->names, spec);
}

/* ---- reports --------------------------------------------------------------------------------- */

static bool report_name(const struct dns_name *name, struct arena *arena, struct dns_report *out) {
    bool fails = name->state != DNS_STATE_UNRESOLVED && name->state != DNS_STATE_RESOLVED;
    struct endpoint_address *addresses = arena_calloc(arena, name->n_found + 1, sizeof(*addresses));
    *out = (struct dns_report){.name = arena_dup(arena, str_of(name->name)),
                               .records = name->records,
                               .state = name->state,
                               .error = arena_dup(arena, str_of(fails ? name->error.text : "")),
                               .addresses = addresses,
                               .n_addresses = name->n_found,
                               .answered_ns = name->answered_ns};
    for (size_t i = 0; addresses && i < name->n_found; i++) {
        addresses[i] = name->found[i].address;
    }
    return addresses && out->name.ptr && out->error.ptr;
}

size_t dns_watch_report(struct dns_watch *watch, struct arena *arena, struct dns_report **out) {
    lock_acquire(&watch->lock);
    size_t n = watch->names.n, i = 0;
    *out = arena_calloc(arena, n + 1, sizeof(**out));
    while (*out && i < n && report_name(watch->names.items[i], arena, &(*out)[i])) {
        i++;
    }
    lock_release(&watch->lock);
    return i;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status dns_watch_new(const struct dns_watch_options *options, struct dns_watch **out,
                          struct error *err) {
    struct dns_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        return error_no_memory(err, "resolving names");
    }
    lock_init(&watch->lock);
    watch->options = *options;
    watch->query_timer.on_expire = on_query_timer;
    watch->notify_timer.on_expire = on_notify_timer;
    watch->names.prng.state = uv_hrtime();
    watch->system.path = options->system_file ? options->system_file : SYSTEM_FILE;
    *out = watch;
    return ST_OK;
}

void dns_watch_stop(struct dns_watch *watch, void (*done)(void *user), void *user) {
    struct loop_timers *timers = worker_timers(watch->options.worker);
    watch->done = done;
    watch->user = user;
    watch->stopping = true;
    watch->n_retiring++; /* the call of this function itself */
    while (!LIST_EMPTY(&watch->sources)) {
        retire_source(LIST_FIRST(&watch->sources));
    }
    timer_stop(timers, &watch->query_timer);
    timer_stop(timers, &watch->notify_timer);
    watch->n_retiring--;
    end_if_over(watch);
}

void dns_watch_free(struct dns_watch *watch) {
    if (watch) {
        dns_names_fini(&watch->names);
        lock_fini(&watch->lock);
        free(watch);
    }
}

/* Runs the checks that are due, and reports their results to the pools. */
#include "pick/discovery/probe/prober.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/os/log_limit.h"
#include "pick/discovery/probe/probe_check.h"
#include "pick/pool/set.h"

/* With more endpoints than idle connections none is kept: the connection that is closed would be
 * the one that is needed next. */
enum { MAX_RUNNING = 512, MAX_IDLE_CONNECTIONS = 1024 };

struct checked_pool {
    struct per_pool per_pool; /* first: the table's item is cast to it */
    struct probe_group group;
};

struct prober {
    struct prober_options options;
    struct pool_set_reader *pools;
    struct probe_set set;
    struct per_pool_table checked;
    struct http_fetcher *fetcher;
    LIST_HEAD(, probe_check) running;
    struct timer timer;
    struct log_limit log;
    uint64_t local_log_due_ns; /* of log_local_failure */
    bool starting;           /* checks are being started; one that ends at once starts no others */
    bool all_probed_pending; /* on_all_probed is to be called */
    bool stopping;
    bool fetcher_stopped;
    void (*done)(void *user);
    void *user;
};

static const uint64_t LOCAL_LOG_NS = UINT64_C(60000000000);

static void start_due_checks(struct prober *prober);

/* ---- reports to the pool --------------------------------------------------------------------- */

static const enum metric METRICS[] = {
    [PROBE_OK] = METRIC_PICK_PROBES_OK,           [PROBE_REFUSED] = METRIC_PICK_PROBES_REFUSED,
    [PROBE_TIMEOUT] = METRIC_PICK_PROBES_TIMEOUT, [PROBE_STATUS] = METRIC_PICK_PROBES_STATUS,
    [PROBE_BROKEN] = METRIC_PICK_PROBES_BROKEN,   [PROBE_LOCAL] = METRIC_PICK_PROBES_LOCAL,
};

static void log_change(struct prober *prober, const struct endpoint *endpoint, bool ready,
                       const char *why) {
    struct log_field fields[3] = {LOG_STR("endpoint", endpoint_text(endpoint))};
    unsigned n = 1;
    enum log_level level = ready ? LOG_INFO : LOG_WARNING;
    if (!log_enabled(level) || !log_limit_allow(&prober->log)) {
        return;
    }
    if (!ready) {
        fields[n++] = LOG_CSTR("reason", why);
    }
    if (prober->log.n_suppressed > 0) {
        fields[n++] = LOG_U64("left_out", prober->log.n_suppressed);
    }
    log_write(level, ready ? "an endpoint is ready" : "an endpoint is not ready", fields, n);
    prober->log.n_suppressed = 0;
}

/* The check is repeated when it is due again. */
static void log_local_failure(struct prober *prober, const char *why) {
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= prober->local_log_due_ns) {
        prober->local_log_due_ns = now_ns + LOCAL_LOG_NS;
        log_event(LOG_WARNING, "health checks cannot be carried out", LOG_CSTR("reason", why));
    }
}

static void report_to_pool(const struct probe_check *check, struct endpoint *endpoint,
                           enum probe_verdict verdict, enum probe_result result) {
    char *group = (char *)check->probe->group;
    const struct checked_pool *checked =
        (struct checked_pool *)(void *)(group - offsetof(struct checked_pool, group));
    struct pool *pool = checked->per_pool.pool;
    pool_set_ready(pool, endpoint, verdict == PROBE_READY);
    if (check->at_request_port && result == PROBE_REFUSED) {
        pool_report_refused(pool, endpoint);
    }
    if (check->at_request_port && result == PROBE_OK && check->was_refused) {
        pool_report_answered(pool, endpoint);
    }
    if (result == PROBE_OK) {
        pool_report_healthy(pool, endpoint, check->begun_ns);
    }
}

static void notify_if_all_probed(struct prober *prober) {
    if (prober->all_probed_pending && prober->set.n_unknown == 0) {
        prober->all_probed_pending = false;
        if (prober->options.on_all_probed) {
            prober->options.on_all_probed(prober->options.user);
        }
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

static const struct probe_method *method_of(enum pool_health_kind kind) {
    switch (kind) {
    case POOL_HEALTH_HTTP:
        return &PROBE_HTTP;
    case POOL_HEALTH_GRPC:
        return &PROBE_GRPC;
    case POOL_HEALTH_TCP:
    case POOL_HEALTH_NONE:
        break;
    }
    return &PROBE_TCP;
}

static void fill_check(struct prober *prober, struct probe_check *check, struct probe *probe) {
    const struct pool_health *health = &probe->group->health;
    struct endpoint_address address = probe->address;
    check->at_request_port = health->port == 0 || health->port == address.port;
    address.port = health->port > 0 ? health->port : address.port;
    endpoint_address_print(&address, check->target);
    check->prober = prober;
    check->probe = probe;
    check->method = method_of(health->kind);
    check->worker = prober->options.worker;
    check->fetcher = prober->fetcher;
    check->keep_alive = prober->set.n <= MAX_IDLE_CONNECTIONS;
    check->was_refused = endpoint_is_refused(probe->endpoint);
    check->timeout_ns = health->timeout_ns;
    check->begun_ns = clock_now_ns();
    LIST_INSERT_HEAD(&prober->running, check, link);
}

static void notify_if_stopped(struct prober *prober) {
    if (prober->stopping && prober->fetcher_stopped && LIST_EMPTY(&prober->running)) {
        prober->done(prober->user);
    }
}

/* Whether the check failed only because this process stood still for longer than its timeout
 * (SIGSTOP, a throttled control group): the time was over, or the server gave up, before it went
 * on. A second time in a row the check counts. */
static bool is_late(struct probe_check *check, enum probe_result result) {
    bool late = result != PROBE_OK && !check->probe->was_late &&
                timer_is_late(check->begun_ns + check->timeout_ns, clock_now_ns());
    check->probe->was_late = late;
    return late;
}

static void finish_check(struct prober *prober, struct probe_check *check, enum probe_result result,
                         const char *why) {
    struct probe *probe = check->probe;
    struct endpoint *endpoint = probe->endpoint;
    if (is_late(check, result)) {
        result = PROBE_LOCAL;
        why = "the process stood still for longer than the timeout of a check";
    }
    metric_add(METRICS[result], 1);
    if (result == PROBE_LOCAL) {
        log_local_failure(prober, why);
        probe_set_skip(&prober->set, probe, clock_now_ns());
        return;
    }
    bool changed = probe_set_finish(&prober->set, probe, result == PROBE_OK, clock_now_ns());
    if (endpoint) { /* otherwise the probe has been freed */
        report_to_pool(check, endpoint, probe->verdict, result);
    }
    if (changed) {
        log_change(prober, endpoint, probe->verdict == PROBE_READY, why);
    }
}

void probe_check_finish(struct probe_check *check, enum probe_result result, const char *why) {
    struct prober *prober = check->prober;
    LIST_REMOVE(check, link);
    if (prober->stopping) {
        probe_set_finish(&prober->set, check->probe, false, clock_now_ns());
        free(check);
        notify_if_stopped(prober);
        return;
    }
    finish_check(prober, check, result, why);
    free(check);
    notify_if_all_probed(prober);
    if (!prober->starting) {
        start_due_checks(prober);
    }
}

enum probe_result probe_result_of(const struct error *err, bool refused) {
    return refused                               ? PROBE_REFUSED
           : err->status == ST_DEADLINE_EXCEEDED ? PROBE_TIMEOUT
           : err->status == ST_BAD_ANSWER        ? PROBE_STATUS
           : err->status == ST_REFUSED           ? PROBE_STATUS
           : err->status == ST_OVERLOADED        ? PROBE_LOCAL
           : err->status == ST_NO_MEMORY         ? PROBE_LOCAL
                                                 : PROBE_BROKEN;
}

void probe_check_fail(struct probe_check *check, const struct error *err, bool refused) {
    probe_check_finish(check, probe_result_of(err, refused), err->text);
}

static void start_check(struct prober *prober, struct probe *probe) {
    struct probe_check *check = calloc(1, sizeof(*check));
    struct error err;
    if (!check) { /* the probe is rescheduled */
        metric_add(METRIC_PICK_PROBES_LOCAL, 1);
        log_local_failure(prober, "out of memory");
        probe_set_skip(&prober->set, probe, clock_now_ns());
        return;
    }
    fill_check(prober, check, probe);
    if (check->method->begin(check, &probe->group->health, &err) != ST_OK) {
        probe_check_fail(check, &err, false);
    }
}

static void start_due_checks(struct prober *prober) {
    struct loop_timers *timers = worker_timers(prober->options.worker);
    struct probe *probe;
    prober->starting = true;
    while ((probe = probe_set_pop_due(&prober->set, clock_now_ns()))) {
        start_check(prober, probe);
    }
    prober->starting = false;
    uint64_t next_ns = probe_set_next_ns(&prober->set);
    if (next_ns == UINT64_MAX) {
        timer_stop(timers, &prober->timer);
    } else {
        timer_start(timers, &prober->timer, next_ns);
    }
}

static void on_timer_expired(struct timer *timer) {
    start_due_checks(CONTAINER_OF(timer, struct prober, timer));
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void free_checked_pool(void *user, struct per_pool *item) {
    struct prober *prober = user;
    struct checked_pool *checked = (struct checked_pool *)(void *)item;
    probe_set_remove_group(&prober->set, &checked->group);
    free(checked);
}

/* Returns: the pool has changed. */
static bool sync_pool(struct prober *prober, const struct pool_entry *entry) {
    struct checked_pool *checked =
        (struct checked_pool *)(void *)prober->checked.items[entry->slot];
    struct pool_reader *reader = pool_set_reader_get(prober->pools, entry);
    const struct pool_snapshot *snapshot = reader ? pool_reader_refresh(reader) : NULL;
    if (!snapshot || snapshot->generation == checked->per_pool.generation) {
        return false;
    }
    checked->per_pool.generation = snapshot->generation;
    prober->all_probed_pending = true;
    if (!probe_set_update_group(&prober->set, &checked->group, snapshot, clock_now_ns())) {
        log_message(LOG_ERROR, "out of memory for health checks");
    }
    struct error err; /* without a fetcher the HTTP checks fail */
    if (checked->group.health.kind == POOL_HEALTH_HTTP && !prober->fetcher &&
        http_fetcher_new(prober->options.worker, NULL, MAX_IDLE_CONNECTIONS, &prober->fetcher,
                         &err) != ST_OK) {
        log_event(LOG_ERROR, "health checks can't start", LOG_CSTR("reason", err.text));
    }
    return true;
}

void prober_refresh(struct prober *prober) {
    if (prober->stopping) {
        return;
    }
    const struct pool_list *list = pool_set_reader_refresh(prober->pools);
    bool changed = list->generation != prober->checked.generation;
    if (!per_pool_table_sync(&prober->checked, list)) {
        log_message(LOG_ERROR, "out of memory for health checks");
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        changed = sync_pool(prober, &list->entries[i]) || changed;
    }
    if (changed) {
        start_due_checks(prober);
        notify_if_all_probed(prober);
    }
}

/* ---- new, stop, free ------------------------------------------------------------------------- */

enum status prober_new(const struct prober_options *options, struct prober **out,
                       struct error *err) {
    struct prober *prober = calloc(1, sizeof(*prober));
    if (!prober) {
        return error_no_memory(err, "health checks");
    }
    prober->options = *options;
    prober->timer.on_expire = on_timer_expired;
    prober->checked = (struct per_pool_table){
        .item_bytes = sizeof(struct checked_pool), .free_item = free_checked_pool, .user = prober};
    prober->set.max_running = options->max_running > 0 ? options->max_running : MAX_RUNNING;
    prober->set.prng.state = uv_hrtime();
    enum status st = pool_set_reader_new(options->pools, &prober->pools, err);
    if (st != ST_OK) {
        free(prober);
        return st;
    }
    *out = prober;
    return ST_OK;
}

static void on_fetcher_stopped(void *user) {
    struct prober *prober = user;
    prober->fetcher_stopped = true;
    notify_if_stopped(prober);
}

void prober_stop(struct prober *prober, void (*done)(void *user), void *user) {
    prober->done = done;
    prober->user = user;
    timer_stop(worker_timers(prober->options.worker), &prober->timer);
    prober->stopping = true;
    for (struct probe_check *check = LIST_FIRST(&prober->running), *next; check; check = next) {
        next = LIST_NEXT(check, link);
        check->method->cancel(check);
    }
    if (prober->fetcher) {
        http_fetcher_stop(prober->fetcher, on_fetcher_stopped, prober);
    } else {
        on_fetcher_stopped(prober);
    }
}

void prober_free(struct prober *prober) {
    if (prober) {
        http_fetcher_free(prober->fetcher);
        per_pool_table_fini(&prober->checked);
        probe_set_fini(&prober->set);
        pool_set_reader_free(prober->pools);
        free(prober);
    }
}

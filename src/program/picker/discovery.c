/* The discovery thread, its sources, and the messages between it and main. */
#include "program/picker/discovery.h"

#include <stddef.h>
#include <time.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "net/transport/tls/server.h"

static const uint64_t MAX_PROBE_WAIT_NS = 250000000;
/* A DNS query has been repeated once by then. An API server may take longer: gRPC health is
 * NOT_SERVING until it has answered. */
static const uint64_t MAX_SOURCE_WAIT_NS = UINT64_C(3000000000);
enum { NS_PER_MS = 1000000 };

static void on_store_changed(void *user);

enum status pick_discovery_open(struct pick_discovery *self, const struct pick_settings *settings,
                                struct pool_set *pools, struct error *err) {
    struct pool_watch_options options = pick_pool_options(settings);
    lock_init(&self->lock);
    lock_cond_init(&self->cond);
    self->settings = settings;
    self->pools = pools;
    self->cluster_known = self->has_pool = !settings->kube;
    self->is_leader = !settings->leader_election;
    atomic_store(&self->ready, !settings->kube);
    enum status st = ST_OK;
    if (settings->kube) {
        struct kube_source_options cluster = pick_cluster_options(settings);
        cluster.on_store_changed = on_store_changed;
        cluster.user = self;
        st = kube_source_new(&cluster, &self->cluster, err);
    }
    if (st == ST_OK) {
        options.cluster = self->cluster ? kube_source_store(self->cluster) : NULL;
        st = pool_watch_new(&options, pools, &self->watch, err);
    }
    return st;
}

/* ---- file and timer -------------------------------------------------------------------------- */

static void post_change(struct pick_discovery *self) {
    if (!atomic_exchange(&self->change_posted, true)) {
        worker_post(self->main, &self->change_msg);
    }
}

/* The pools have been published again: all their readers are notified. */
static void on_pool_changed(struct pick_discovery *self) {
    lock_acquire(&self->lock);
    self->endpoints_known = false; /* until the prober reports for the new pools */
    lock_release(&self->lock);
    post_change(self);
    prober_refresh(self->prober);
    scraper_refresh(self->scraper);
}

static void on_addresses_changed(void *user) {
    struct pick_discovery *self = user;
    if (pool_watch_rebuild(self->watch)) {
        on_pool_changed(self);
    }
}

static void check_files(struct pick_discovery *self, bool now) {
    if (pool_watch_check(self->watch, now)) {
        on_pool_changed(self);
    }
    dns_watch_check_system_file(self->dns);
    prober_refresh(self->prober);
    scraper_refresh(self->scraper);
}

static void on_timer_expired(struct timer *reload_timer) {
    struct pick_discovery *self = CONTAINER_OF(reload_timer, struct pick_discovery, reload_timer);
    check_files(self, false);
    uint64_t next_ns = clock_now_ns() + self->settings->reload_interval_ns;
    timer_start(worker_timers(self->worker), reload_timer, next_ns);
}

static void run_begin(struct worker_msg *msg) {
    struct pick_discovery *self = CONTAINER_OF(msg, struct pick_discovery, begin_msg);
    struct error err;
    if (self->cluster && kube_source_start(self->cluster, &err) != ST_OK) {
        log_event(LOG_ERROR, "cluster watch can't start", LOG_CSTR("reason", err.text));
    }
    pool_watch_set_dns(self->watch, self->dns);
    on_timer_expired(&self->reload_timer);
}

static void run_refresh(struct worker_msg *msg) {
    struct pick_discovery *self = CONTAINER_OF(msg, struct pick_discovery, refresh_msg);
    atomic_store(&self->refresh_posted, false);
    check_files(self, true);
}

static void notify_known(struct pick_discovery *self, bool *what) {
    lock_acquire(&self->lock);
    *what = true;
    lock_cond_broadcast(&self->cond);
    lock_release(&self->lock);
}

/* ---- cluster --------------------------------------------------------------------------------- */

static void log_cluster(struct pick_discovery *self, bool has_pool) {
    const char *name = self->settings->pool_name;
    struct pool_stats numbers;
    pool_set_get_stats(self->pools, &numbers);
    name = name ? name : self->settings->pod_selector;
    bool other = has_pool != self->has_pool;
    if (!has_pool && (other || !self->cluster_known)) {
        log_event(LOG_WARNING, "InferencePool not found in the cluster", LOG_CSTR("name", name));
    } else {
        log_event(other ? LOG_INFO : LOG_DEBUG, "pool updated from the cluster",
                  LOG_CSTR("name", name), LOG_U64("generation", numbers.generation),
                  LOG_U64("endpoints", numbers.n_endpoints));
    }
}

/* Of several pickers the leader writes the status. */
static void update_status(struct pick_discovery *self) {
    if (self->has_pool && self->is_leader) {
        kube_status_update(self->status);
    }
}

static void on_store_changed(void *user) {
    struct pick_discovery *self = user;
    bool has_pool = kube_store_has_pool(kube_source_store(self->cluster));
    if (pool_watch_rebuild(self->watch)) {
        log_cluster(self, has_pool);
        self->has_pool = has_pool;
        atomic_store(&self->ready, has_pool && self->is_leader);
        on_pool_changed(self);
        update_status(self);
    }
    notify_known(self, &self->cluster_known);
}

static void on_leadership_changed(void *user, bool is_leader) {
    struct pick_discovery *self = user;
    self->is_leader = is_leader;
    atomic_store(&self->ready, is_leader && self->has_pool);
    post_change(self);
    if (is_leader) {
        update_status(self);
    } else {
        kube_status_pause(self->status);
    }
}

/* ---- DNS, probes, stop ----------------------------------------------------------------------- */

static void on_all_resolved(void *user) {
    struct pick_discovery *self = user;
    notify_known(self, &self->names_known);
}

static void on_all_probed(void *user) {
    struct pick_discovery *self = user;
    notify_known(self, &self->endpoints_known);
}

static void on_source_stopped(void *user) {
    struct pick_discovery *self = user;
    if (--self->n_running == 0) {
        worker_stop(self->worker);
        worker_post(self->main, &self->ended_msg);
    }
}

static void run_resign_lease(struct worker_msg *msg) {
    struct pick_discovery *self = CONTAINER_OF(msg, struct pick_discovery, resign_msg);
    kube_leader_resign(self->leader);
}

/* The lease has been released, so the client is no longer needed. */
static void on_leader_stopped(void *user) {
    struct pick_discovery *self = user;
    worker_post(self->worker, &self->leader_stopped_msg);
}

static void run_leader_stopped(struct worker_msg *msg) {
    struct pick_discovery *self = CONTAINER_OF(msg, struct pick_discovery, leader_stopped_msg);
    kube_source_stop(self->cluster, on_source_stopped, self);
}

static void run_end(struct worker_msg *msg) {
    struct pick_discovery *self = CONTAINER_OF(msg, struct pick_discovery, end_msg);
    timer_stop(worker_timers(self->worker), &self->reload_timer);
    self->n_running = 3 + (self->cluster != NULL);
    if (self->cluster) {
        kube_status_stop(self->status);
        if (self->leader) {
            kube_leader_stop(self->leader, on_leader_stopped, self);
        } else {
            kube_source_stop(self->cluster, on_source_stopped, self);
        }
    }
    dns_watch_stop(self->dns, on_source_stopped, self);
    prober_stop(self->prober, on_source_stopped, self);
    scraper_stop(self->scraper, on_source_stopped, self);
}

/* ---- main ------------------------------------------------------------------------------------ */

static void run_change(struct worker_msg *msg) {
    struct pick_discovery *self = CONTAINER_OF(msg, struct pick_discovery, change_msg);
    atomic_store(&self->change_posted, false);
    if (self->running) {
        self->on_pools_changed(self->on_pools_changed_user);
    }
}

static void check_tls_files(struct pick_discovery *self, bool at_once) {
    if (self->tls) {
        tls_server_reload(self->tls, time(NULL), at_once);
    }
}

static void on_tls_timer(uv_timer_t *timer) {
    check_tls_files(timer->data, false);
}

void pick_discovery_refresh(struct pick_discovery *self) {
    check_tls_files(self, true);
    if (self->running && !atomic_exchange(&self->refresh_posted, true)) {
        worker_post(self->worker, &self->refresh_msg);
    }
}

static void start_tls_timer(struct pick_discovery *self) {
    uint64_t ms = self->settings->reload_interval_ns / NS_PER_MS;
    uv_timer_init(worker_loop(self->main), &self->tls_timer); /* cannot fail */
    self->tls_timer.data = self;
    uv_timer_start(&self->tls_timer, on_tls_timer, ms, ms);
}

static enum status attach_cluster(struct pick_discovery *self, struct error *err) {
    struct kube_leader_options leader = {
        .worker = self->worker, .on_leadership_changed = on_leadership_changed, .user = self};
    struct kube_status_options status = {.worker = self->worker,
                                         .store = kube_source_store(self->cluster)};
    struct kube_source_report report;
    enum status st = kube_source_set_worker(self->cluster, self->worker, err);
    if (st != ST_OK) {
        return st;
    }
    kube_source_report(self->cluster, &report);
    leader.client = status.client = kube_source_client(self->cluster);
    leader.name_space = status.name_space = report.name_space;
    leader.pool = report.pool;
    st = kube_status_new(&status, &self->status, err);
    return st == ST_OK && self->settings->leader_election
               ? kube_leader_new(&leader, &self->leader, err)
               : st;
}

static enum status make_sources(struct pick_discovery *self, struct error *err) {
    struct prober_options options = {
        .pools = self->pools, .on_all_probed = on_all_probed, .user = self};
    struct dns_watch_options names = {.on_addresses_changed = on_addresses_changed,
                                      .on_all_resolved = on_all_resolved,
                                      .user = self};
    enum status st = self->cluster ? attach_cluster(self, err) : ST_OK;
    if (st == ST_OK) {
        names.worker = self->worker;
        st = dns_watch_new(&names, &self->dns, err);
    }
    if (st == ST_OK) {
        options.worker = self->worker;
        st = prober_new(&options, &self->prober, err);
    }
    return st == ST_OK ? scraper_new(self->worker, self->pools, &self->scraper, err) : st;
}

struct making {
    struct pick_discovery *self;
    enum status st;
    struct error *err;
};

static void run_make_sources(void *user) {
    struct making *making = user;
    making->st = make_sources(making->self, making->err);
}

/* Made on their thread: they set timers, which nothing could stop if it could not be started. */
static enum status start_worker(struct pick_discovery *self, struct error *err) {
    struct making making = {.self = self, .err = err};
    enum status st = worker_new("discovery", &self->worker, err);
    if (st == ST_OK) {
        st = worker_start(self->worker, err);
    }
    if (st == ST_OK) {
        worker_call(self->worker, run_make_sources, &making);
        st = making.st;
        if (st != ST_OK) {
            worker_stop(self->worker);
            worker_join(self->worker);
        }
    }
    return st;
}

static void on_stopped(struct pick_discovery *self) {
    if (--self->n_stopping == 0) {
        self->stopped(self->stopped_user);
    }
}

static void run_ended(struct worker_msg *msg) {
    struct pick_discovery *self = CONTAINER_OF(msg, struct pick_discovery, ended_msg);
    worker_join(self->worker);
    on_stopped(self);
}

enum status pick_discovery_start(struct pick_discovery *self, struct worker *main,
                                 struct tls_server *tls, void (*on_pools_changed)(void *user),
                                 void *user, struct error *err) {
    self->main = main;
    self->tls = tls;
    self->on_pools_changed = on_pools_changed;
    self->on_pools_changed_user = user;
    self->reload_timer.on_expire = on_timer_expired;
    self->begin_msg.run = run_begin;
    self->resign_msg.run = run_resign_lease;
    self->leader_stopped_msg.run = run_leader_stopped;
    self->end_msg.run = run_end;
    self->refresh_msg.run = run_refresh;
    self->change_msg.run = run_change;
    self->ended_msg.run = run_ended;
    enum status st = start_worker(self, err);
    if (st == ST_OK) {
        start_tls_timer(self);
        self->running = true;
        worker_post(self->worker, &self->begin_msg);
    }
    return st;
}

static void wait_until_known(struct pick_discovery *self, const bool *what, uint64_t longest_ns) {
    uint64_t until_ns = clock_now_ns() + longest_ns;
    bool in_time = true;
    lock_acquire(&self->lock);
    while (!*what && in_time) {
        in_time = lock_cond_wait_until_ns(&self->lock, &self->cond, until_ns);
    }
    lock_release(&self->lock);
}

void pick_discovery_wait_known(struct pick_discovery *self) {
    wait_until_known(self, &self->cluster_known, MAX_SOURCE_WAIT_NS);
    wait_until_known(self, &self->names_known, MAX_SOURCE_WAIT_NS);
    wait_until_known(self, &self->endpoints_known, MAX_PROBE_WAIT_NS);
}

static void on_tls_timer_closed(uv_handle_t *handle) {
    on_stopped(handle->data);
}

void pick_discovery_resign(struct pick_discovery *self) {
    if (self->running && self->leader) {
        worker_post(self->worker, &self->resign_msg);
    }
}

void pick_discovery_stop(struct pick_discovery *self, void (*stopped)(void *user), void *user) {
    if (!self->running) {
        stopped(user);
        return;
    }
    self->running = false;
    self->stopped = stopped;
    self->stopped_user = user;
    self->n_stopping = 2;
    uv_close((uv_handle_t *)&self->tls_timer, on_tls_timer_closed);
    worker_post(self->worker, &self->end_msg);
}

void pick_discovery_free(struct pick_discovery *self) {
    prober_free(self->prober);
    scraper_free(self->scraper);
    dns_watch_free(self->dns);
    kube_leader_free(self->leader);
    kube_status_free(self->status);
    kube_source_free(self->cluster);
    worker_free(self->worker);
    pool_watch_free(self->watch);
    if (self->settings) {
        lock_cond_fini(&self->cond);
        lock_fini(&self->lock);
    }
}

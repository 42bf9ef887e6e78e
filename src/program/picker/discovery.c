/* A thread that looks and asks, and the few messages between it and main. */
#include "program/picker/discovery.h"

#include <stddef.h>
#include <time.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "net/transport/tls/server.h"

static const uint64_t LONGEST_WAIT_NS = 250000000;
/* A server of the DNS that does not answer is asked once more by then. Of a cluster's API server,
 * too, it is no more than a matter of politeness: health waits as long as it takes. */
static const uint64_t LONGEST_WAIT_FOR_OTHERS_NS = UINT64_C(3000000000);
enum { NS_PER_MS = 1000000 };

#define OF_MEMBER(pointer, member)                                                                 \
    ((struct pick_discovery *)(void *)((char *)(pointer)-offsetof(struct pick_discovery, member)))

static void on_cluster(void *cookie);

static enum status open_cluster(struct pick_discovery *self, struct error *err) {
    struct kube_source_options options = pick_cluster_options(self->settings);
    options.changed = on_cluster;
    options.cookie = self;
    return kube_source_new(&options, &self->cluster, err);
}

enum status pick_discovery_open(struct pick_discovery *self, const struct pick_settings *settings,
                                struct pool_set *pools, struct error *err) {
    struct pool_watch_options options = pick_pool_options(settings);
    lock_init(&self->lock);
    lock_cond_init(&self->cond);
    self->settings = settings;
    self->pools = pools;
    self->told = self->has_pool = !settings->kube;
    self->leads = !settings->leader_election;
    atomic_store(&self->ready, !settings->kube);
    enum status st = settings->kube ? open_cluster(self, err) : ST_OK;
    if (st == ST_OK) {
        options.cluster = self->cluster ? kube_source_store(self->cluster) : NULL;
        st = pool_watch_new(&options, pools, &self->watch, err);
    }
    return st;
}

/* ---- its own thread -------------------------------------------------------------------------- */

static void tell_main(struct pick_discovery *self) {
    if (!atomic_exchange(&self->has_news, true)) {
        worker_post(self->main, &self->news);
    }
}

/* The pool is another now. */
static void spread(struct pick_discovery *self) {
    lock_take(&self->lock);
    self->settled = false; /* until the prober says so of this one */
    lock_drop(&self->lock);
    tell_main(self);
    prober_look(self->prober);
    scraper_look(self->scraper);
}

static void on_names(void *cookie) {
    struct pick_discovery *self = cookie;
    if (pool_watch_renew(self->watch)) {
        spread(self);
    }
}

static void look(struct pick_discovery *self) {
    if (pool_watch_check(self->watch)) {
        spread(self);
    }
    dns_watch_look(self->dns);
    prober_look(self->prober);
    scraper_look(self->scraper);
}

static void ring(struct alarm *alarm) {
    struct pick_discovery *self = OF_MEMBER(alarm, alarm);
    look(self);
    uint64_t next_ns = clock_now_ns() + self->settings->reload_interval_ns;
    if (!alarm_set(worker_alarms(self->worker), alarm, next_ns)) {
        log_plain(LOG_ERROR, "no memory for a timer: the pool's configuration stays as it is");
    }
}

static void run_begin(struct worker_msg *msg) {
    struct pick_discovery *self = OF_MEMBER(msg, begin);
    struct error err;
    if (self->cluster && kube_source_start(self->cluster, &err) != ST_OK) {
        log_event(LOG_ERROR, "the cluster can't be watched", LOG_TEXT_OF("reason", err.text));
    }
    pool_watch_resolve(self->watch, self->dns);
    ring(&self->alarm);
}

static void run_again(struct worker_msg *msg) {
    struct pick_discovery *self = OF_MEMBER(msg, again);
    atomic_store(&self->asked_again, false);
    look(self);
}

static void say(struct pick_discovery *self, bool *what) {
    lock_take(&self->lock);
    *what = true;
    lock_wake_all(&self->cond);
    lock_drop(&self->lock);
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static void log_cluster(struct pick_discovery *self, bool has_pool) {
    const char *name = self->settings->pool_name;
    struct pool_numbers numbers;
    pool_set_read(self->pools, &numbers);
    name = name ? name : self->settings->pod_selector;
    bool other = has_pool != self->has_pool;
    if (!has_pool && (other || !self->told)) {
        log_event(LOG_WARNING, "the cluster has no such InferencePool", LOG_TEXT_OF("name", name));
    } else {
        log_event(other ? LOG_INFO : LOG_DEBUG, "the pool is what the cluster knows of it",
                  LOG_TEXT_OF("name", name), LOG_U64("generation", numbers.generation),
                  LOG_U64("endpoints", numbers.n_endpoints));
    }
}

/* Of several the leader writes it. */
static void look_at_status(struct pick_discovery *self) {
    if (self->has_pool && self->leads) {
        kube_status_look(self->status);
    }
}

static void on_cluster(void *cookie) {
    struct pick_discovery *self = cookie;
    bool has_pool = kube_store_has_pool(kube_source_store(self->cluster));
    if (pool_watch_renew(self->watch)) {
        log_cluster(self, has_pool);
        self->has_pool = has_pool;
        atomic_store(&self->ready, has_pool && self->leads);
        spread(self);
        look_at_status(self);
    }
    say(self, &self->told);
}

static void on_leads(void *cookie, bool leads) {
    struct pick_discovery *self = cookie;
    self->leads = leads;
    atomic_store(&self->ready, leads && self->has_pool);
    tell_main(self);
    if (leads) {
        look_at_status(self);
    } else {
        kube_status_rest(self->status);
    }
}

/* ---- what the others say --------------------------------------------------------------------- */

static void on_named(void *cookie) {
    struct pick_discovery *self = cookie;
    say(self, &self->named);
}

static void on_settled(void *cookie) {
    struct pick_discovery *self = cookie;
    say(self, &self->settled);
}

static void on_part_stopped(void *cookie) {
    struct pick_discovery *self = cookie;
    if (--self->n_asking == 0) {
        worker_stop(self->worker);
        worker_post(self->main, &self->parted);
    }
}

static void run_resign(struct worker_msg *msg) {
    struct pick_discovery *self = OF_MEMBER(msg, resign);
    kube_leader_resign(self->leader);
}

/* The lease is given back, so that nobody asks the cluster any more. */
static void on_left(void *cookie) {
    struct pick_discovery *self = cookie;
    worker_post(self->worker, &self->left);
}

static void run_left(struct worker_msg *msg) {
    struct pick_discovery *self = OF_MEMBER(msg, left);
    kube_source_stop(self->cluster, on_part_stopped, self);
}

static void stop_cluster(struct pick_discovery *self) {
    kube_status_stop(self->status);
    if (self->leader) {
        kube_leader_stop(self->leader, on_left, self);
    } else {
        kube_source_stop(self->cluster, on_part_stopped, self);
    }
}

static void run_end(struct worker_msg *msg) {
    struct pick_discovery *self = OF_MEMBER(msg, end);
    alarm_clear(worker_alarms(self->worker), &self->alarm);
    self->n_asking = 3 + (self->cluster != NULL);
    if (self->cluster) {
        stop_cluster(self);
    }
    dns_watch_stop(self->dns, on_part_stopped, self);
    prober_stop(self->prober, on_part_stopped, self);
    scraper_stop(self->scraper, on_part_stopped, self);
}

/* ---- main ------------------------------------------------------------------------------------ */

static void run_news(struct worker_msg *msg) {
    struct pick_discovery *self = OF_MEMBER(msg, news);
    atomic_store(&self->has_news, false);
    if (self->running) {
        self->changed(self->changed_cookie);
    }
}

static void look_at_tls(struct pick_discovery *self) {
    if (self->tls) {
        tls_server_check(self->tls, time(NULL));
    }
}

static void on_timer(uv_timer_t *timer) {
    look_at_tls(timer->data);
}

void pick_discovery_look(struct pick_discovery *self) {
    look_at_tls(self);
    if (self->running && !atomic_exchange(&self->asked_again, true)) {
        worker_post(self->worker, &self->again);
    }
}

static void start_timer(struct pick_discovery *self) {
    uint64_t ms = self->settings->reload_interval_ns / NS_PER_MS;
    uv_timer_init(worker_loop(self->main), &self->timer); /* cannot fail */
    self->timer.data = self;
    uv_timer_start(&self->timer, on_timer, ms, ms);
}

static enum status use_cluster(struct pick_discovery *self, struct error *err) {
    struct kube_leader_options leader = {
        .worker = self->worker, .changed = on_leads, .cookie = self};
    struct kube_status_options status = {.worker = self->worker,
                                         .store = kube_source_store(self->cluster)};
    struct kube_source_report report;
    enum status st = kube_source_use(self->cluster, self->worker, err);
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

static enum status make_parts(struct pick_discovery *self, struct error *err) {
    struct prober_options options = {.pools = self->pools, .settled = on_settled, .cookie = self};
    struct dns_watch_options names = {.changed = on_names, .settled = on_named, .cookie = self};
    enum status st = worker_new("discovery", &self->worker, err);
    if (st == ST_OK && self->cluster) {
        st = use_cluster(self, err);
    }
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

static void on_stopped(struct pick_discovery *self) {
    if (--self->n_stopping == 0) {
        self->stopped(self->stopped_cookie);
    }
}

static void run_parted(struct worker_msg *msg) {
    struct pick_discovery *self = OF_MEMBER(msg, parted);
    worker_join(self->worker);
    on_stopped(self);
}

enum status pick_discovery_start(struct pick_discovery *self, struct worker *main,
                                 struct tls_server *tls, void (*changed)(void *cookie),
                                 void *cookie, struct error *err) {
    self->main = main;
    self->tls = tls;
    self->changed = changed;
    self->changed_cookie = cookie;
    self->alarm.ring = ring;
    self->begin.run = run_begin;
    self->resign.run = run_resign;
    self->left.run = run_left;
    self->end.run = run_end;
    self->again.run = run_again;
    self->news.run = run_news;
    self->parted.run = run_parted;
    enum status st = make_parts(self, err);
    if (st == ST_OK) {
        st = worker_start(self->worker, err);
    }
    if (st == ST_OK) {
        start_timer(self);
        self->running = true;
        worker_post(self->worker, &self->begin);
    }
    return st;
}

static void wait_for(struct pick_discovery *self, const bool *what, uint64_t longest_ns) {
    uint64_t until_ns = clock_now_ns() + longest_ns;
    bool in_time = true;
    lock_take(&self->lock);
    while (!*what && in_time) {
        in_time = lock_wait_until_ns(&self->lock, &self->cond, until_ns);
    }
    lock_drop(&self->lock);
}

void pick_discovery_wait(struct pick_discovery *self) {
    wait_for(self, &self->told, LONGEST_WAIT_FOR_OTHERS_NS);
    wait_for(self, &self->named, LONGEST_WAIT_FOR_OTHERS_NS);
    wait_for(self, &self->settled, LONGEST_WAIT_NS);
}

static void on_closed(uv_handle_t *handle) {
    on_stopped(handle->data);
}

void pick_discovery_drain(struct pick_discovery *self) {
    if (self->running && self->leader) {
        worker_post(self->worker, &self->resign);
    }
}

void pick_discovery_stop(struct pick_discovery *self, void (*stopped)(void *cookie), void *cookie) {
    if (!self->running) {
        stopped(cookie);
        return;
    }
    self->running = false;
    self->stopped = stopped;
    self->stopped_cookie = cookie;
    self->n_stopping = 2;
    uv_close((uv_handle_t *)&self->timer, on_closed);
    worker_post(self->worker, &self->end);
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

/* Runs a source on its own worker until it is synced or has failed, and stops it. */
#include "program/picker/cluster.h"

#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "core/event/timer.h"
#include "core/event/worker.h"
#include "core/must/must.h"

static const uint64_t MAX_LOAD_NS = UINT64_C(10000000000);

struct pick_cluster {
    struct worker *worker;
    struct kube_source *source;
    struct timer limit;
    struct worker_msg begin, end;
    bool stop_posted;
    enum status status;
    struct error err;
};

/* ---- on the worker --------------------------------------------------------------------------- */

/* The source can't be stopped within its callbacks. */
static void schedule_stop(struct pick_cluster *self) {
    if (!self->stop_posted) {
        self->stop_posted = true;
        worker_post(self->worker, &self->end);
    }
}

static void on_store_changed(void *user) {
    schedule_stop(user);
}

/* Errors end the load: it does not wait until a server is back. Kinds that may be missing are
 * skipped by the source. */
static void on_watch_status(void *user) {
    struct pick_cluster *self = user;
    struct kube_source_report report;
    kube_source_report(self->source, &report);
    for (int i = 0; i < N_KUBE_KINDS && !self->stop_posted; i++) {
        const struct kube_source_kind *kind = &report.kinds[i];
        enum kube_phase phase = kind->state.phase;
        if (kind->watched && (phase == KUBE_FAILING || (phase == KUBE_DENIED && i == KUBE_POD))) {
            const char *pods = i == KUBE_POD ? report.pods : NULL;
            self->status =
                error_set(&self->err, ST_IO, "%s: %s of namespace %s%s%s: %s", report.server,
                          KUBE_KINDS[i].resource, report.name_space, pods ? " with " : "",
                          pods ? pods : "", kind->state.error.text);
            schedule_stop(self);
        }
    }
}

static void on_limit_expired(struct timer *timer) {
    struct pick_cluster *self = CONTAINER_OF(timer, struct pick_cluster, limit);
    struct kube_source_report report;
    kube_source_report(self->source, &report);
    self->status = error_set(&self->err, ST_DEADLINE_EXCEEDED,
                             "%s: objects not listed within ten seconds", report.server);
    schedule_stop(self);
}

static void run_begin(struct worker_msg *msg) {
    struct pick_cluster *self = CONTAINER_OF(msg, struct pick_cluster, begin);
    self->status = kube_source_start(self->source, &self->err);
    if (self->status == ST_OK) {
        timer_start(worker_timers(self->worker), &self->limit, clock_now_ns() + MAX_LOAD_NS);
    } else {
        schedule_stop(self);
    }
}

static void on_stopped(void *user) {
    struct pick_cluster *self = user;
    worker_stop(self->worker);
}

static void run_end(struct worker_msg *msg) {
    struct pick_cluster *self = CONTAINER_OF(msg, struct pick_cluster, end);
    timer_stop(worker_timers(self->worker), &self->limit);
    kube_source_stop(self->source, on_stopped, self);
}

/* ---- on main --------------------------------------------------------------------------------- */

static enum status load_cluster(struct pick_cluster *self, const struct pick_settings *settings,
                                struct error *err) {
    struct kube_source_options options = pick_cluster_options(settings);
    options.on_store_changed = on_store_changed;
    options.on_watch_status = on_watch_status;
    options.user = self;
    if (kube_source_new(&options, &self->source, err) != ST_OK ||
        worker_new("cluster", &self->worker, err) != ST_OK ||
        kube_source_set_worker(self->source, self->worker, err) != ST_OK ||
        worker_start(self->worker, err) != ST_OK) {
        return err->status;
    }
    worker_post(self->worker, &self->begin);
    worker_join(self->worker);
    *err = self->err;
    return self->status;
}

enum status pick_cluster_load(const struct pick_settings *settings, struct pick_cluster **out,
                              struct error *err) {
    *out = NULL;
    if (!settings->kube) {
        return ST_OK;
    }
    struct pick_cluster *self = must_calloc(1, sizeof(*self), "the cluster's objects");
    self->limit.on_expire = on_limit_expired;
    self->begin.run = run_begin;
    self->end.run = run_end;
    enum status st = load_cluster(self, settings, err);
    if (st != ST_OK) {
        pick_cluster_free(self);
        return st;
    }
    *out = self;
    return ST_OK;
}

void pick_cluster_free(struct pick_cluster *cluster) {
    if (cluster) {
        kube_source_free(cluster->source);
        worker_free(cluster->worker);
        free(cluster);
    }
}

const struct kube_store *pick_cluster_store(const struct pick_cluster *cluster) {
    return cluster ? kube_source_store(cluster->source) : NULL;
}

void pick_cluster_print(const struct pick_cluster *cluster, struct buf *out) {
    struct kube_source_report report;
    kube_source_report(cluster->source, &report);
    buf_printf(out, "cluster     %s, namespace %s%s%s\n", report.server, report.name_space,
               report.pods ? ", pods with " : "", report.pods ? report.pods : "");
    for (int i = 0; i < N_KUBE_KINDS; i++) {
        const struct kube_source_kind *kind = &report.kinds[i];
        const struct kube_kind_info *info = &KUBE_KINDS[i];
        if (!kind->watched) {
            continue;
        }
        buf_printf(out, "            %s%s%s: ", info->kind, *info->group ? " of " : "",
                   info->group);
        if (kind->state.phase == KUBE_DENIED) {
            buf_printf(out, "may not be read: %s\n", kind->state.error.text);
        } else if (!kind->counts.served) {
            buf_printf(out, "not served\n");
        } else {
            buf_printf(out, "%zu, of the pool %zu\n", kind->counts.n_objects,
                       kind->counts.n_matching);
        }
    }
    if (!report.group) {
        buf_printf(out, "note        there is no InferencePool %s\n", report.pool);
    }
}

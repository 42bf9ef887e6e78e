/* A queue in front of the exporter, under a lock that is held for some instructions. */
#include "telemetry/trace/span_writer.h"

#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/lock.h"
#include "core/event/worker.h"

enum { MAX_QUEUED = 1024 };

STAILQ_HEAD(span_queue, span_set);

struct span_writer {
    struct lock lock;
    struct span_queue queue;
    size_t n_queued;
    bool posted; /* `msg` is on its way to the thread */
    bool ending;
    struct worker_msg msg;
    struct worker *worker;
    struct trace_export *collector; /* the thread's */
};

static void on_sent(void *user) {
    struct span_writer *writer = user;
    worker_stop(writer->worker);
}

/* Thread: the writer's. */
static void on_wake(struct worker_msg *msg) {
    struct span_writer *writer = CONTAINER_OF(msg, struct span_writer, msg);
    struct span_queue sets = STAILQ_HEAD_INITIALIZER(sets);
    struct span_set *set;
    lock_acquire(&writer->lock);
    STAILQ_CONCAT(&sets, &writer->queue);
    writer->n_queued = 0;
    writer->posted = false;
    bool ending = writer->ending;
    lock_release(&writer->lock);
    while ((set = STAILQ_FIRST(&sets))) {
        STAILQ_REMOVE_HEAD(&sets, link);
        trace_export_add_spans(writer->collector, &set->spans);
        arena_free(set->arena);
    }
    if (ending) {
        trace_export_stop(writer->collector, on_sent, writer);
    }
}

/* The lock is held. */
static void wake(struct span_writer *writer) {
    lock_assert_held(&writer->lock);
    if (!writer->posted) {
        writer->posted = true;
        worker_post(writer->worker, &writer->msg);
    }
}

void span_writer_add(struct span_writer *writer, struct span_set *set) {
    lock_acquire(&writer->lock);
    bool is_full = writer->n_queued >= MAX_QUEUED;
    if (!is_full) {
        STAILQ_INSERT_TAIL(&writer->queue, set, link);
        writer->n_queued++;
        wake(writer);
    }
    lock_release(&writer->lock);
    if (is_full) {
        metric_add(METRIC_TRACES_DROPPED, 1);
        arena_free(set->arena);
    }
}

enum status span_writer_new(const struct trace_export_options *options, struct span_writer **out,
                            struct error *err) {
    struct span_writer *writer = calloc(1, sizeof(*writer));
    if (!writer) {
        return error_no_memory(err, "traces");
    }
    lock_init(&writer->lock);
    STAILQ_INIT(&writer->queue);
    writer->msg.run = on_wake;
    enum status st = worker_new("traces", &writer->worker, err);
    if (st == ST_OK) {
        st = trace_export_new(writer->worker, options, &writer->collector, err);
    }
    if (st == ST_OK) {
        st = worker_start(writer->worker, err);
    }
    if (st != ST_OK) {
        worker_free(writer->worker);
        trace_export_free(writer->collector);
        lock_fini(&writer->lock);
        free(writer);
        return st;
    }
    *out = writer;
    return ST_OK;
}

void span_writer_free(struct span_writer *writer) {
    if (!writer) {
        return;
    }
    lock_acquire(&writer->lock);
    writer->ending = true;
    wake(writer);
    lock_release(&writer->lock);
    worker_join(writer->worker);
    worker_free(writer->worker);
    trace_export_free(writer->collector);
    lock_fini(&writer->lock);
    free(writer);
}

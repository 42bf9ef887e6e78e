/* A request's session (pick/session/session.h) with what is known of it to operators: statistics,
 * log lines and traces; and what the sessions of a worker share. The ext-proc service and the
 * module in Envoy embed both. They have the connection or the filter, the loop and the timers.
 *
 * Thread: a worker's own for its state and its streams; any for struct pick_workers, but new and
 * free. */
#ifndef SLUICE_PICK_STREAM_STREAM_H
#define SLUICE_PICK_STREAM_STREAM_H

#include <stdatomic.h>

#include "core/os/log_limit.h"
#include "pick/stream/stream_stats.h"
#include "pick/stream/stream_trace.h"

struct pick_workers_options {
    struct pool_set *pools;
    struct pick_limits limits;
    /* --fairness-id-metric-label-limit: further ones are `other`:
     * pick/session/label_names.c:pick_label_names_admit. */
    uint64_t fairness_id_metric_label_limit;
    bool emits_scores, proxy_keeps_body; /* of struct pick_context */
    /* --tracing; NULL: trace contexts are passed on unchanged, and nothing is recorded. */
    const struct otel_sampler *sampler;
    struct span_writer *span_writer; /* NULL: nothing is exported */
};

/* What all workers share. */
struct pick_workers;
enum { PICK_MAX_WORKERS = 1024 };

/* Returns: ST_NO_MEMORY. Owns: *out until pick_workers_free, after each worker's end. */
enum status pick_workers_new(const struct pick_workers_options *options, struct pick_workers **out,
                             struct error *err) SLUICE_MUST_USE;
void pick_workers_free(struct pick_workers *workers);
/* The statistics of each worker. Returns: their number. */
size_t pick_workers_stats(struct pick_workers *workers,
                          const struct pick_stats *out[PICK_MAX_WORKERS]);

/* Zeroed at first. */
struct pick_worker {
    struct pick_context context;
    struct stats_context stats;
    struct trace_context traces; /* sampler NULL: no --tracing */
    struct log_limit log;
    uint64_t now_ns; /* the last time that the clock was read for a pick */
    struct pool_wakeup wakeup;
    struct pool_waited waited; /* the pools that requests are queued for */
};

/* `notify`: of struct pool_wakeup. The worker stays until pick_workers_free. Returns: ST_NO_MEMORY;
 * ST_BAD_CONFIG for too many. Owns: pick_worker_fini, also after a failure. */
enum status pick_worker_init(struct pick_worker *worker, struct pick_workers *workers,
                             void (*notify)(void *user), void *user,
                             struct error *err) SLUICE_MUST_USE;
void pick_worker_fini(struct pick_worker *worker);
/* Requests that wait were notified, or have picked again, since then. */
void pick_worker_count_dispatch(struct pick_worker *worker, uint64_t begun_ns);

/* Zeroed at first. The fields that the end of a stream reads come first. */
struct pick_stream {
    struct pick_session *session;
    struct pick_worker *worker;
    struct stream_stats stats;
    struct stream_trace *trace; /* NULL: none is recorded */
    uint64_t headers_ns;        /* when the request's headers were received */
    uint64_t message_ns;        /* when the part being processed was received; 0: not to be
                                   counted */
    uint64_t came_ns;           /* the same, counted or not */
    enum pick_phase_time phase; /* once picked: of the pick */
    struct arena *arena;
};

/* Makes the session. `out` has the callbacks that are the caller's; its user becomes `stream`.
 * Returns: false when out of memory; there is nothing to close. */
bool pick_stream_open(struct pick_stream *stream, struct pick_worker *worker, struct arena *arena,
                      struct pick_callbacks *out) SLUICE_MUST_USE;
/* Around each step of the session with a part that was received at that time. Between the two the
 * thread's clock is frozen; a caller that does more in between unfreezes it. */
void pick_stream_begin_step(struct pick_stream *stream, uint64_t came_ns);
void pick_stream_end_step(struct pick_stream *stream);
/* The stream ended at that time, with this status: frees the session. */
void pick_stream_close(struct pick_stream *stream, int grpc_code, uint64_t came_ns);

#endif

/* Sends traces to a collector of OpenTelemetry's, in batches, over HTTP. What the collector can't
 * take now it is sent again, a few times; what waits meanwhile is bounded, and dropped past that.
 *
 * Thread: trace_export_new before the worker runs, trace_export_free after; the rest the
 * worker's. */
#ifndef SLUICE_TELEMETRY_TRACE_EXPORT_H
#define SLUICE_TELEMETRY_TRACE_EXPORT_H

#include "codec/trace/otlp_trace.h"
#include "core/event/worker.h"

struct trace_export;

enum { TRACE_MAX_RESOURCES = 32 };

/* The texts must outlive it. */
struct trace_export_options {
    const char *url;
    struct otlp_attribute resource[TRACE_MAX_RESOURCES];
    size_t n_resource;
    uint32_t max_queue; /* spans that wait, being sent or not */
    uint32_t max_batch; /* spans in one request */
    uint32_t delay_ms;  /* from the first span of a batch until it is sent at the latest */
};

enum status trace_export_new(struct worker *worker, const struct trace_export_options *options,
                             struct trace_export **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. */
void trace_export_free(struct trace_export *self);
/* Takes a copy. `parent` NULL: nobody has begun the trace before. */
void trace_export_add(struct trace_export *self, const struct trace_record *record,
                      const struct traceparent *parent, struct str state);
/* Sends what there is, for a few seconds at most; `ended` when nothing is under way any more. */
void trace_export_stop(struct trace_export *self, void (*stopped)(void *user), void *user);

#endif

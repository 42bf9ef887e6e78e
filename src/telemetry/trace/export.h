/* Exports traces to an OpenTelemetry collector (OTLP over HTTP) in batches. A failed batch is
 * retried a few times.
 *
 * Back pressure: a slow collector delays no request; up to max_queue spans wait, further ones are
 * dropped and counted.
 *
 * Thread: trace_export_new before the worker runs, trace_export_free after; the rest on the
 * worker. */
#ifndef SLUICE_TELEMETRY_TRACE_EXPORT_H
#define SLUICE_TELEMETRY_TRACE_EXPORT_H

#include "codec/trace/otlp_trace.h"
#include "core/event/worker.h"

struct trace_export;

enum { TRACE_MAX_RESOURCES = 32 };

/* The texts must outlive the exporter. */
struct trace_export_options {
    const char *url;
    struct otlp_attribute resource[TRACE_MAX_RESOURCES];
    size_t n_resource;
    uint32_t max_queue; /* spans in all batches, including the one being sent */
    uint32_t max_batch; /* spans in one request */
    uint32_t delay_ms;  /* from the first span of a batch until it is sent */
};

enum status trace_export_new(struct worker *worker, const struct trace_export_options *options,
                             struct trace_export **out, struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void trace_export_free(struct trace_export *self);
/* Copies a trace into the current batch. `parent` NULL: the trace begins here. */
void trace_export_add(struct trace_export *self, const struct trace_record *record,
                      const struct traceparent *parent, struct str state);
/* Sends what is queued, for a few seconds at most; calls `stopped` when no request is in
 * progress. */
void trace_export_stop(struct trace_export *self, void (*stopped)(void *user), void *user);

#endif

/* Exports traces to an OpenTelemetry collector in batches: OTLP over HTTP, in JSON or protobuf, or
 * over gRPC. A failed batch is retried a few times.
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
#include "net/client/grpc/grpc_client.h"
#include "net/client/http_fetch.h"
#include "net/transport/grpc/message.h"

struct trace_export;

enum { TRACE_MAX_RESOURCES = 32, TRACE_MAX_FIELDS = 16 };

enum trace_protocol { TRACE_HTTP_JSON, TRACE_HTTP_PROTOBUF, TRACE_GRPC };

/* The texts must outlive the exporter. */
struct trace_export_options {
    enum trace_protocol protocol;
    const char *url;                            /* TRACE_GRPC: "HOST:PORT" */
    struct grpc_field fields[TRACE_MAX_FIELDS]; /* metadata, or header fields */
    size_t n_fields;
    bool is_tls;                /* the URL is of https, or gRPC is over TLS */
    struct grpc_client_tls tls; /* with is_tls */
    uint64_t timeout_ns;        /* of one try; 0: 10 s */
    struct otlp_attribute resource[TRACE_MAX_RESOURCES];
    size_t n_resource;
    uint32_t max_queue; /* spans in all batches, including the one being sent */
    uint32_t max_batch; /* spans in one request */
    uint32_t delay_ms;  /* from the first span of a batch until it is sent */
};

/* The spans of a trace, at most max_batch of them. */
struct trace_spans {
    const struct otlp_span *items;
    size_t n;
};

enum status trace_export_new(struct worker *worker, const struct trace_export_options *options,
                             struct trace_export **out, struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void trace_export_free(struct trace_export *self);
/* Copies a trace of the model server into the current batch. */
void trace_export_add(struct trace_export *self, const struct trace_record *record,
                      const struct otlp_ids *ids);
/* Copies the spans of a trace into the current batch. */
void trace_export_add_spans(struct trace_export *self, const struct trace_spans *spans);
/* Sends what is queued, for a few seconds at most; calls `stopped` when no request is in
 * progress. */
void trace_export_stop(struct trace_export *self, void (*stopped)(void *user), void *user);

#endif

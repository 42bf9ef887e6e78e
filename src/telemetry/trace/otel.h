/* What OpenTelemetry's environment variables (OTEL_…) say about traces: whether and where they are
 * exported, and which requests are sampled. Variables that are empty count as unset. */
#ifndef SLUICE_TELEMETRY_TRACE_OTEL_H
#define SLUICE_TELEMETRY_TRACE_OTEL_H

#include "telemetry/trace/export.h"

/* Which traces are recorded. */
struct otel_sampler {
    bool is_parent_based; /* the caller's decision counts, where there is one */
    uint64_t bound;       /* of the upper 63 bits of the second half of a trace's id; 2^63: all */
};

struct otel_settings {
    bool exports; /* OTEL_TRACES_EXPORTER=none: trace contexts go on, and nothing is exported */
    struct otel_sampler sampler;
    struct trace_export_options collector; /* with `exports` */
};

/* The smallest OTEL_BSP_MAX_EXPORT_BATCH_SIZE and OTEL_BSP_MAX_QUEUE_SIZE: the spans of a trace. */
enum { OTEL_MIN_BATCH = 16 };

/* Reads the variables. `service`: service.name where they do not say. Invalid values of samplers
 * and numbers are logged, and the defaults used, as OpenTelemetry's specification asks for.
 * Returns: ST_BAD_CONFIG with the variable, for an endpoint, protocol, exporter or header that
 * can't be used; ST_NO_MEMORY. Owns: texts are in `arena` and in the environment. */
enum status otel_settings_read(struct arena *arena, const char *service, struct otel_settings *out,
                               struct error *err) SLUICE_MUST_USE;

/* Whether the trace is recorded. `parent`: the caller's context; NULL: the trace begins here.
 * Clause: OpenTelemetry, TraceIdRatioBased: all programs with one ratio decide alike. */
bool otel_is_sampled(const struct otel_sampler *sampler, const struct traceparent *parent,
                     const unsigned char trace[TRACE_ID_BYTES]);

#endif

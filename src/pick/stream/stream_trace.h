/* The trace of a request: its spans, from its headers to the end of its stream. Names of spans and
 * attributes are the upstream project's and OpenTelemetry's semantic conventions for generative AI;
 * docs/tracing.md lists them.
 *
 *     gateway.request                        the stream
 *       gateway.request_orchestration        from the first choice to the pick
 *         llm_d.epp.flow_control.queue       a wait in the queue
 *         run_scheduler_profile              one for each stage
 *       chat MODEL                           the model server: from the pick to the response's end
 *
 * The last one is the parent of the server's own spans.
 *
 * Thread: the worker's. Internal to pick/stream. */
#ifndef SLUICE_PICK_STREAM_STREAM_TRACE_H
#define SLUICE_PICK_STREAM_STREAM_TRACE_H

#include "core/base/random.h"
#include "pick/session/session.h"
#include "pick/stream/stream_stats.h"
#include "telemetry/trace/otel.h"
#include "telemetry/trace/span_writer.h"

/* Per worker. */
struct trace_context {
    const struct otel_sampler *sampler;
    struct span_writer *writer; /* NULL: nothing is recorded */
    struct prng prng;
    size_t n_open; /* traces that have begun and not ended */
};

/* Of a worker, so that memory is bounded: some kilobytes each. Further ones are dropped. */
enum { STREAM_TRACE_MOST_OPEN = 4096 };

struct stream_trace;

/* A request's headers. `arena`: of the stream. `*out` is NULL when the trace is not recorded. */
struct pick_trace_choice stream_trace_begin(struct trace_context *context, struct arena *arena,
                                            const struct ext_proc_headers *fields,
                                            struct stream_trace **out);
/* `trace` is not NULL, also below. */
void stream_trace_on_stage(struct stream_trace *trace, const struct pick_stage_event *event);
void stream_trace_on_queue(struct stream_trace *trace, const struct pick_queue_event *event);
void stream_trace_on_outcome(struct stream_trace *trace, const struct pick_outcome *outcome);
/* A message of the response, which was received at that time. */
void stream_trace_on_response(struct stream_trace *trace, const struct ext_proc_request *message,
                              uint64_t now_ns);
/* The stream has ended: passes the spans on. Owns: takes the trace. */
void stream_trace_end(struct stream_trace *trace, struct trace_context *context,
                      const struct response_meter *response, uint64_t now_ns);

#endif

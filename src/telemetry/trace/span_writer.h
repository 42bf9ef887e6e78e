/* Exports the spans of requests on a thread of its own. Requests never wait for it: of the traces
 * that it has not taken yet, so many are queued; further ones are dropped and counted.
 *
 * Thread: span_writer_new and _free the main thread, before and after requests are traced; adding
 * any. */
#ifndef SLUICE_TELEMETRY_TRACE_SPAN_WRITER_H
#define SLUICE_TELEMETRY_TRACE_SPAN_WRITER_H

#include <sys/queue.h>

#include "core/base/arena.h"
#include "telemetry/trace/export.h"

struct span_writer;

/* The spans of one trace; all of it is in `arena`. */
struct span_set {
    struct arena *arena;
    struct trace_spans spans;
    STAILQ_ENTRY(span_set) link;
};

/* Starts the thread. The texts of `options` must outlive the writer. Returns: ST_NO_MEMORY, ST_IO,
 * ST_BAD_CONFIG. Owns: *out until span_writer_free. */
enum status span_writer_new(const struct trace_export_options *options, struct span_writer **out,
                            struct error *err) SLUICE_MUST_USE;
/* Sends what is queued, for a few seconds at most, and joins the thread. NULL is allowed. */
void span_writer_free(struct span_writer *writer);
/* Owns: takes the set, and frees its arena. */
void span_writer_add(struct span_writer *writer, struct span_set *set);

#endif

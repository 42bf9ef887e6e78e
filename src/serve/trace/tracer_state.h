/* What the files of the tracer share. Everything but the writer's own is under the lock. */
#ifndef SLUICE_SERVE_TRACE_TRACER_STATE_H
#define SLUICE_SERVE_TRACE_TRACER_STATE_H

#include "codec/trace/trace_record.h"
#include "core/event/lock.h"
#include "core/event/worker.h"
#include "serve/trace/tracer.h"
#include "telemetry/trace/file.h"

enum {
    TRACE_MAX_QUEUED = 8192,
    TRACE_MAX_TENSOR_BYTES = 64 * 1024 * 1024, /* of tensors in traces that are not written yet */
    TRACE_MAX_TEXT_BYTES = 16 * 1024 * 1024,   /* that waits for its file to be full */
};

/* Settings as they applied for a while: a change makes new ones, and these go when the last trace
 * that was begun under them has been written. */
struct trace_setting {
    struct v2_trace_values values; /* the count is what is left of it */
    bool is_set[V2_TRACE_KEYS];    /* not taken over from those it falls back on */
    bool replaced;
    char *model;         /* NULL: the server's */
    uint64_t n_requests; /* requests, since it applies */
    size_t n_unwritten;  /* traces that have begun and are neither written nor dropped */
    struct trace_setting *next;
    /* the writer's own */
    struct arena *arena; /* of the text; NULL: there is none */
    struct buf text;     /* the traces of a file that is not full yet */
    uint64_t n_buffered;
};

struct tracer_core {
    struct tracer *tracer;
    struct lock lock;
    struct v2_trace_values defaults; /* what the server's settings fall back on */
    struct trace_setting *server;
    struct trace_setting *settings; /* all of them, with the server's and those replaced */
    struct trace *queue;            /* ended, not yet written */
    struct trace **queue_end;
    size_t n_queued;
    size_t n_bytes; /* of copied tensors, of traces that are not written yet */
    uint64_t last_id;
    bool posted; /* the writer has been told and has not looked yet */
    bool ending;
    struct worker_msg msg;
    struct worker *writer;          /* NULL: there is nowhere to write to */
    struct trace_file file;         /* the writer's own */
    struct trace_export *collector; /* instead of it; the writer's own */
    struct arena *shown_arena;
    struct v2_trace_option *shown; /* what is told of the collector */
    size_t n_shown;
};

/* tracer_writer.c: makes the thread, which sends to `collector` unless that is NULL; ends it when
 * all is written. */
enum status tracer_writer_start(struct tracer_core *core,
                                const struct trace_export_options *collector, struct error *err)
    __attribute__((warn_unused_result));
void tracer_writer_stop(struct tracer_core *core);
/* The writer has to look. The lock is held. */
void tracer_writer_wake(struct tracer_core *core);

#endif

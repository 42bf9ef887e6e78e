/* A trace on its way, for the files of the tracer. */
#ifndef SLUICE_SERVE_TRACE_STATE_H
#define SLUICE_SERVE_TRACE_STATE_H

#include "serve/trace/tracer_state.h"

/* Lives in its own arena. */
struct trace {
    struct trace_record record;
    struct trace_tensor *tensors; /* the record's */
    struct tracer_core *core;
    struct trace_setting *setting; /* that it was begun under */
    uint32_t level;
    struct arena *arena;
    size_t n_bytes;  /* of copied tensors */
    bool incomplete; /* there was no memory for a part of it */
    bool has_parent; /* who has begun it: */
    struct traceparent parent;
    struct str state;
    struct trace *next;
};

struct trace_setting *tracer_setting_find(struct tracer_core *core, struct str model);
/* Unlinks and frees it. The lock is held. */
void tracer_setting_remove(struct tracer_core *core, struct trace_setting **at);
/* Neither written nor in the queue any more. */
void trace_free(struct trace *trace);

#endif

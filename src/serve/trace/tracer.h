/* Which requests are traced, and where their traces go. Settings are the server's, and those of
 * models which have their own; what a model has not set is the server's. Whether a request is
 * traced is decided when it begins, and its trace keeps to the settings of that moment. Traces are
 * handed to a thread of their own, which writes them; what it can't keep up with is dropped and
 * counted.
 *
 * Thread: tracer_open and tracer_close on the main thread, when no request is traced; the rest
 * any. */
#ifndef SLUICE_SERVE_TRACE_TRACER_H
#define SLUICE_SERVE_TRACE_TRACER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codec/kserve/trace.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "serve/repository/repository.h"
#include "telemetry/trace/export.h"

struct tracer_core;

/* Zeroed, it traces nothing. */
struct tracer {
    atomic_bool on; /* somebody's requests are traced */
    struct tracer_core *core;
};

struct tracer_options {
    struct v2_trace_values values; /* of the server, until somebody changes them */
    const char *file;              /* where traces go; NULL: nowhere */
    bool opentelemetry;            /* they go to a collector instead */
    struct trace_export_options collector;
};

/* Reads "level=TIMESTAMPS", "rate=100", "count=-1", "mode=triton", "triton,file=FILE",
 * "triton,log-frequency=50", `n` of them, of which later ones win; levels add up. What is not said
 * has the reference's defaults. Returns: ST_BAD_CONFIG. Owns: *out refers to the texts. */
enum status trace_config_parse(const char *const *items, size_t n, struct tracer_options *out,
                               struct error *err) __attribute__((warn_unused_result));

/* The texts must outlive it. Returns: ST_BAD_CONFIG for values that can't work, ST_NO_MEMORY,
 * ST_IO. */
enum status tracer_open(struct tracer *tracer, const struct tracer_options *options,
                        struct error *err) __attribute__((warn_unused_result));
/* Writes what there is, and ends the thread. Idempotent. */
void tracer_close(struct tracer *tracer);

static inline bool tracer_is_on(const struct tracer *tracer) {
    return atomic_load_explicit(&tracer->on, memory_order_relaxed);
}

/* Changes the settings of a model (`model` empty: the server's), all of it or nothing. Returns:
 * ST_BAD_FIELD for what can't work, ST_NO_MEMORY. */
enum status tracer_change_settings(struct tracer *tracer, struct str model,
                                   const struct v2_trace_update *wanted, struct error *err)
    __attribute__((warn_unused_result));
/* What applies to the model. */
struct v2_trace_settings tracer_get_settings(struct tracer *tracer, struct str model);

/* Those that are served; empty: the server. Returns: ST_UNKNOWN_MODEL; ST_BAD_REQUEST for one that
 * is not ready. Clause: trace extension. */
enum status trace_model_check(struct repository *repository, struct str model, struct error *err);

#endif

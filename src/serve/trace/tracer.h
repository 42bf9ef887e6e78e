/* Which requests are traced, and where their traces are written. There are settings of the server
 * and of models; a value that a model has not set is the server's. Sampling is decided when a
 * request begins, and its trace keeps the settings of that moment. A thread writes the traces; when
 * its queue is full, traces are dropped and counted.
 *
 * Thread: tracer_open and tracer_close on the main thread, when no request is traced; the rest any.
 */
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

/* A zeroed tracer traces nothing. */
struct tracer {
    atomic_bool on; /* some setting has tracing on */
    struct tracer_core *core;
};

struct tracer_options {
    struct v2_trace_values values; /* the server settings until a client changes them */
    const char *file;              /* where traces are written; NULL: nowhere */
    uint64_t max_size;             /* of the files together, enforced by trace_file; 0: no limit */
    bool opentelemetry;            /* traces are exported to `collector` instead */
    struct trace_export_options collector;
};

/* config.c: parses `n` items of --trace-config, the reference server's form: "level=TIMESTAMPS",
 * "rate=100", "count=-1", "mode=triton", "triton,file=FILE", "triton,log-frequency=50". Later items
 * win; levels add up. Missing settings have the reference's defaults. Returns: ST_BAD_CONFIG. Owns:
 * *out borrows from the texts. */
enum status trace_config_parse(const char *const *items, size_t n, struct tracer_options *out,
                               struct error *err) SLUICE_MUST_USE;

/* Starts the writer thread. The texts of `options` must outlive the tracer. Returns: ST_BAD_CONFIG
 * for settings that are not possible, ST_NO_MEMORY, ST_IO. */
enum status tracer_open(struct tracer *tracer, const struct tracer_options *options,
                        struct error *err) SLUICE_MUST_USE;
/* Writes the queued traces and joins the writer thread. Idempotent. */
void tracer_close(struct tracer *tracer);

static inline bool tracer_is_on(const struct tracer *tracer) {
    return atomic_load_explicit(&tracer->on, memory_order_relaxed);
}

/* Changes the settings of a model (`model` empty: of the server), all of them or none. Returns:
 * ST_BAD_FIELD for settings that are not possible, ST_NO_MEMORY. */
enum status tracer_change_settings(struct tracer *tracer, struct str model,
                                   const struct v2_trace_update *wanted,
                                   struct error *err) SLUICE_MUST_USE;
/* The settings that apply to the model (empty: the server). */
struct v2_trace_settings tracer_get_settings(struct tracer *tracer, struct str model);

/* May the model have trace settings? Yes when it is ready; empty means the server. Returns:
 * ST_UNKNOWN_MODEL; ST_BAD_REQUEST for a model that is not ready. Clause: trace extension. */
enum status trace_model_check(struct repository *repository, struct str model, struct error *err);

#endif

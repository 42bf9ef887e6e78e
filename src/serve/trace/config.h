/* How the command line says what is traced: the reference server's --trace-config. */
#ifndef SLUICE_SERVE_TRACE_CONFIG_H
#define SLUICE_SERVE_TRACE_CONFIG_H

#include <stddef.h>

#include "serve/trace/tracer.h"

/* Reads "level=TIMESTAMPS", "rate=100", "count=-1", "mode=triton", "triton,file=FILE",
 * "triton,log-frequency=50", `n` of them, of which later ones win; levels add up. What is not said
 * has the reference's defaults. Returns: ST_BAD_CONFIG. Owns: *out refers to the texts. */
enum status trace_config_parse(const char *const *items, size_t n, struct tracer_options *out,
                               struct error *err) __attribute__((warn_unused_result));

#endif

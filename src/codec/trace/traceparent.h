/* The trace context of a caller: W3C Trace Context. */
#ifndef SLUICE_CODEC_TRACE_TRACEPARENT_H
#define SLUICE_CODEC_TRACE_TRACEPARENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/random.h"
#include "core/base/str.h"

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8, TRACESTATE_MAX_BYTES = 512 };

struct traceparent {
    unsigned char trace[TRACE_ID_BYTES];
    unsigned char span[SPAN_ID_BYTES];
    bool sampled;
};

/* Returns: false for an invalid field, which must be ignored. Clause: W3C Trace Context, 3.2. */
bool traceparent_parse(struct str text, struct traceparent *out);
/* May it be forwarded? Its members are not parsed. Clause: W3C Trace Context, 3.3. */
bool tracestate_is_valid(struct str text);
/* Fills in an id, or several: a multiple of SPAN_ID_BYTES. None is 0, which would be invalid. */
void trace_id_fill(struct prng *prng, unsigned char *out, size_t n_bytes);

#endif

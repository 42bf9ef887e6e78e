/* The record of one traced request, and its text in the format of the reference server's trace
 * files. */
#ifndef SLUICE_CODEC_TRACE_TRACE_RECORD_H
#define SLUICE_CODEC_TRACE_TRACE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/tensor/tensor.h"

#define TIMESTAMP(name) TRACE_##name,
enum trace_timestamp {
#include "codec/trace/timestamp.def"
    TRACE_TIMESTAMPS
};
#undef TIMESTAMP

/* A tensor as it entered the queue, or as the backend returned it. */
struct trace_tensor {
    bool is_output;
    struct tensor tensor;
};

struct trace_record {
    uint64_t id;        /* unique in this process */
    uint64_t parent_id; /* of the inference that this one ran inside of; 0: none */
    struct str model;
    uint64_t version;
    struct str request_id;         /* empty: none */
    struct str failure;            /* why the model gave no response; empty: it gave one, or was not
                              called */
    uint64_t ns[TRACE_TIMESTAMPS]; /* on the monotonic clock; 0: not taken */
    const struct trace_tensor *tensors;
    size_t n_tensors;
};

/* The reference server's name: "HTTP_RECV_START". */
const char *trace_timestamp_name(enum trace_timestamp mark);

/* Appends the objects of a trace file's array, separated by commas: one of the request, one of each
 * timestamp when `times`, one of each tensor. BYTES that are not UTF-8 have no data. Clause:
 * reference, trace: JSON trace output. */
void trace_record_print(struct buf *out, const struct trace_record *record, bool times);

#endif

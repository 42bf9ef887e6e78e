/* The settings of the trace extension, as JSON and as protobuf: what a client wants changed, and
 * what is said of the state. What they act on is not known here. */
#ifndef SLUICE_CODEC_KSERVE_TRACE_H
#define SLUICE_CODEC_KSERVE_TRACE_H

#include "codec/kserve/request.h"
#include "core/base/buf.h"

/* In the order in which they are looked at. */
enum v2_trace_key {
    V2_TRACE_FILE,
    V2_TRACE_LEVEL,
    V2_TRACE_RATE,
    V2_TRACE_COUNT,
    V2_TRACE_FREQUENCY,
    V2_TRACE_KEYS,
};

/* What a level has; none of them: off. */
enum { V2_TRACE_TIMESTAMPS = 1, V2_TRACE_TENSORS = 2 };

enum v2_trace_change {
    V2_TRACE_KEEP,
    V2_TRACE_CLEAR, /* what applies without it shall apply again */
    V2_TRACE_SET,
};

struct v2_trace_values {
    uint32_t level;
    uint32_t rate;          /* one request of so many; 0: only those whose caller traces them */
    int32_t count;          /* further traces; -1: any number */
    uint32_t log_frequency; /* traces in a file; 0: all of them */
};

struct v2_trace_update {
    enum v2_trace_change change[V2_TRACE_KEYS]; /* of the file always V2_TRACE_KEEP */
    struct v2_trace_values values;              /* of what is V2_TRACE_SET */
    struct str model;                           /* of protobuf's; empty: the server */
};

/* A setting that is only shown. */
struct v2_trace_option {
    const char *name;
    const char *value;
};

/* What is said of the state. */
struct v2_trace_settings {
    struct v2_trace_values values;
    bool opentelemetry;
    const char *file;                      /* unless opentelemetry */
    const struct v2_trace_option *options; /* of the mode */
    size_t n_options;
};

/* The body of POST …/trace/setting: an object; other names, and words that are no level, are passed
 * over. Returns: ST_BAD_JSON; ST_INTERNAL for an empty body and for another type, ST_UNSUPPORTED
 * for a file, ST_BAD_FIELD for text that is no number or out of range and for OFF among others, all
 * as the reference server has it.
 * Clause: trace extension. */
enum status v2_trace_decode(struct arena *arena, struct str body, const struct json_limits *limits,
                            struct v2_trace_update *out, struct error *err)
    __attribute__((warn_unused_result));
/* TraceSettingRequest, the same; no value clears. Returns: ST_BAD_REQUEST, ST_BAD_FIELD,
 * ST_UNSUPPORTED. Owns: the name of the model is a view of `message`. */
enum status v2_grpc_trace_decode(struct str message, struct v2_trace_update *out, struct error *err)
    __attribute__((warn_unused_result));

void v2_trace_print(struct buf *out, const struct v2_trace_settings *settings);
void v2_grpc_trace_encode(struct buf *out, const struct v2_trace_settings *settings);

/* ---- between the two codecs, and for who reads settings elsewhere ---------------------------- */

const char *v2_trace_key_name(enum v2_trace_key key);
/* One of the `n` words of a level. Returns: ST_BAD_FIELD for OFF among others. */
enum status v2_trace_parse_level(struct str word, size_t n, struct v2_trace_update *out,
                                 struct error *err) __attribute__((warn_unused_result));
/* The value of V2_TRACE_RATE, _COUNT or _FREQUENCY. Returns: ST_BAD_FIELD. */
enum status v2_trace_parse_number(enum v2_trace_key key, struct str text,
                                  struct v2_trace_update *out, struct error *err)
    __attribute__((warn_unused_result));
/* The file is not a client's to choose. Returns: ST_UNSUPPORTED. */
enum status v2_trace_file_error(struct error *err);

#endif

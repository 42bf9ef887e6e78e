/* The settings of the trace extension, as JSON and as protobuf: requested changes and the
 * current state. */
#ifndef SLUICE_CODEC_KSERVE_TRACE_H
#define SLUICE_CODEC_KSERVE_TRACE_H

#include "codec/kserve/request.h"
#include "core/base/buf.h"

/* In the order in which they are read. */
enum v2_trace_key {
    V2_TRACE_FILE,
    V2_TRACE_LEVEL,
    V2_TRACE_RATE,
    V2_TRACE_COUNT,
    V2_TRACE_FREQUENCY,
    V2_TRACE_KEYS,
};

/* Bits of a level; none: off. */
enum { V2_TRACE_TIMESTAMPS = 1, V2_TRACE_TENSORS = 2 };

enum v2_trace_change {
    V2_TRACE_KEEP,
    V2_TRACE_CLEAR, /* the default applies again */
    V2_TRACE_SET,
};

struct v2_trace_values {
    uint32_t level;
    uint32_t rate;          /* traces one request of `rate`; 0: only requests with a sampled trace
                               context */
    int32_t count;          /* traces still to be written; -1: unlimited */
    uint32_t log_frequency; /* traces per file; 0: unlimited */
};

struct v2_trace_update {
    enum v2_trace_change change[V2_TRACE_KEYS]; /* of the file always V2_TRACE_KEEP */
    struct v2_trace_values values;              /* valid where `change` is V2_TRACE_SET */
    struct str model;                           /* in gRPC requests; empty: the server's settings */
};

/* A read-only setting. */
struct v2_trace_option {
    const char *name;
    const char *value;
};

/* The current state. */
struct v2_trace_settings {
    struct v2_trace_values values;
    bool opentelemetry;
    const char *file;                      /* unless opentelemetry */
    const struct v2_trace_option *options; /* of the mode */
    size_t n_options;
};

/* Decodes the body of POST …/trace/setting: an object; unknown names and unknown levels are
 * ignored. Returns: ST_BAD_JSON, for an empty body too; ST_UNSUPPORTED for a file; ST_BAD_FIELD for
 * a wrong type (where the reference server has 500), for text that is not a number or out of range
 * and for OFF among other levels.
 * Clause: trace extension. */
enum status v2_trace_decode(struct arena *arena, struct str body, const struct json_limits *limits,
                            struct v2_trace_update *out, struct error *err) SLUICE_MUST_USE;
/* The same for TraceSettingRequest; a key without values clears the setting. Returns:
 * ST_BAD_REQUEST, ST_BAD_FIELD, ST_UNSUPPORTED. Owns: the name of the model is a view of
 * `message`. */
enum status v2_grpc_trace_decode(struct str message, struct v2_trace_update *out,
                                 struct error *err) SLUICE_MUST_USE;

void v2_trace_print(struct buf *out, const struct v2_trace_settings *settings);
void v2_grpc_trace_encode(struct buf *out, const struct v2_trace_settings *settings);

/* ---- for other parsers of settings (--trace-config) ------------------------------------------ */

const char *v2_trace_key_name(enum v2_trace_key key);
/* Parses one of the `n` words of a level. Returns: ST_BAD_FIELD for OFF among other levels. */
enum status v2_trace_parse_level(struct str word, size_t n, struct v2_trace_update *out,
                                 struct error *err) SLUICE_MUST_USE;
/* Parses the value of V2_TRACE_RATE, _COUNT or _FREQUENCY. Returns: ST_BAD_FIELD. */
enum status v2_trace_parse_number(enum v2_trace_key key, struct str text,
                                  struct v2_trace_update *out, struct error *err) SLUICE_MUST_USE;
/* Clients can't choose the file. Returns: ST_UNSUPPORTED. */
enum status v2_trace_file_error(struct error *err);

#endif

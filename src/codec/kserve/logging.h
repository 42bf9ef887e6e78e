/* The settings of the logging extension, as JSON and as protobuf: what a client wants changed, and
 * what is said of the state. What they act on is not known here. */
#ifndef SLUICE_CODEC_KSERVE_LOGGING_H
#define SLUICE_CODEC_KSERVE_LOGGING_H

#include "codec/kserve/request.h"
#include "core/base/buf.h"

/* In the order in which they are looked at. */
enum v2_log_key {
    V2_LOG_FILE,
    V2_LOG_INFO,
    V2_LOG_WARNING,
    V2_LOG_ERROR,
    V2_LOG_VERBOSE_LEVEL,
    V2_LOG_FORMAT,
    V2_LOG_KEYS,
};

struct v2_log_settings {
    bool given[V2_LOG_KEYS]; /* of a request: what it changes; file and format change nothing */
    bool info, warning, error;
    uint32_t verbose_level;
};

/* The body of POST /v2/logging: an object. null and other names are passed over. Keys are looked at
 * one after the other up to the first that is wrong: what stands in *out then was before it, and is
 * to be done all the same. Returns: ST_BAD_JSON; ST_INTERNAL for an empty body and for another
 * type, ST_UNSUPPORTED for a file, ST_NOT_READY for another format than ISO8601, all as the
 * reference server has it.
 * Clause: logging extension. */
enum status v2_log_decode(struct arena *arena, struct str body, const struct json_limits *limits,
                          struct v2_log_settings *out, struct error *err)
    __attribute__((warn_unused_result));
/* LogSettingsRequest, the same: a message without settings only asks. A key without a value is
 * refused. Returns: ST_BAD_REQUEST; ST_BAD_FIELD for another type or format; ST_UNSUPPORTED. */
enum status v2_grpc_log_decode(struct str message, struct v2_log_settings *out, struct error *err)
    __attribute__((warn_unused_result));

/* All of them: there is no file, and times are ISO 8601. */
void v2_log_print(struct buf *out, const struct v2_log_settings *settings);
void v2_grpc_log_encode(struct buf *out, const struct v2_log_settings *settings);

#endif

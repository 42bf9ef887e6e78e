/* The settings of the logging extension, as JSON and as protobuf: requested changes and the
 * current state. */
#ifndef SLUICE_CODEC_KSERVE_LOGGING_H
#define SLUICE_CODEC_KSERVE_LOGGING_H

#include "codec/kserve/request.h"
#include "core/base/buf.h"

/* In the order in which they are read. */
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
    bool given[V2_LOG_KEYS]; /* in a request: the keys present; a file changes nothing */
    bool info, warning, error;
    uint32_t verbose_level;
    bool iso8601; /* which of the two names of the format is shown */
};

/* Decodes the body of POST /v2/logging: an object. null and unknown names are ignored. Keys are
 * read in order up to the first invalid one; the caller applies those in *out even then.
 * Returns: ST_BAD_JSON, for an empty body too; ST_UNSUPPORTED for a file; ST_BAD_FIELD for a wrong
 * type and for a format other than default and ISO8601, where the reference server has 500 and 503.
 * Clause: logging extension. */
enum status v2_log_decode(struct arena *arena, struct str body, const struct json_limits *limits,
                          struct v2_log_settings *out, struct error *err) SLUICE_MUST_USE;
/* The same for LogSettingsRequest: a message without settings is a query. A key without a value
 * is an error. Returns: ST_BAD_REQUEST; ST_BAD_FIELD for a wrong type or format; ST_UNSUPPORTED. */
enum status v2_grpc_log_decode(struct str message, struct v2_log_settings *out,
                               struct error *err) SLUICE_MUST_USE;

/* Write all settings: the file is "". */
void v2_log_print(struct buf *out, const struct v2_log_settings *settings);
void v2_grpc_log_encode(struct buf *out, const struct v2_log_settings *settings);

#endif

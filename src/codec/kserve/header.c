/* The value of Inference-Header-Content-Length, which says where the JSON of a body ends. It
 * refuses everything but decimal digits: a length that two programs read differently is a hole. */
#include <inttypes.h>

#include "codec/kserve/request.h"
#include "core/base/num.h"

enum status v2_header_length_parse(size_t n_fields, struct str value, enum v2_header_kind *kind,
                                   uint64_t *json_bytes, struct error *err) {
    *kind = V2_HEADER_ABSENT;
    *json_bytes = 0;
    if (n_fields == 0) {
        return ST_OK;
    }
    if (n_fields > 1) {
        return error_set(err, ST_BAD_FRAMING,
                         "expected one Inference-Header-Content-Length, got %zu", n_fields);
    }
    uint64_t length;
    if (!num_parse_u64(value, &length) || length > INT64_MAX) {
        return error_set(err, ST_BAD_FRAMING,
                         "Inference-Header-Content-Length: expected a whole number from 0 to "
                         "%" PRId64 " in decimal digits, got \"%.*s\"",
                         INT64_MAX, STR_ARG(value));
    }
    /* 0 announces a raw request: binary-tensor-data, "Raw Binary Request". */
    *kind = length == 0 ? V2_HEADER_RAW : V2_HEADER_JSON;
    *json_bytes = length;
    return ST_OK;
}

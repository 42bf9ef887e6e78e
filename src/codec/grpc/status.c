/* The tables of gRPC's documents. */
#include "codec/grpc/status.h"

#include "core/base/num.h"

static const char *const NAMES[GRPC_CODES] = {
    [GRPC_CODE_OK] = "OK",
    [GRPC_CODE_CANCELLED] = "CANCELLED",
    [GRPC_CODE_UNKNOWN] = "UNKNOWN",
    [GRPC_CODE_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [GRPC_CODE_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [GRPC_CODE_NOT_FOUND] = "NOT_FOUND",
    [GRPC_CODE_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [GRPC_CODE_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [GRPC_CODE_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [GRPC_CODE_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [GRPC_CODE_ABORTED] = "ABORTED",
    [GRPC_CODE_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [GRPC_CODE_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [GRPC_CODE_INTERNAL] = "INTERNAL",
    [GRPC_CODE_UNAVAILABLE] = "UNAVAILABLE",
    [GRPC_CODE_DATA_LOSS] = "DATA_LOSS",
    [GRPC_CODE_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

const char *grpc_code_name(int code) {
    return NAMES[code >= 0 && code < GRPC_CODES ? code : GRPC_CODE_UNKNOWN];
}

bool grpc_code_parse(struct str text, int *out) {
    uint64_t value;
    if (!num_parse_u64(text, &value)) {
        return false;
    }
    *out = value < GRPC_CODES ? (int)value : GRPC_CODE_UNKNOWN;
    return true;
}

int grpc_code_from_http(int http_status) {
    switch (http_status) {
    case 400:
        return GRPC_CODE_INTERNAL;
    case 401:
        return GRPC_CODE_UNAUTHENTICATED;
    case 403:
        return GRPC_CODE_PERMISSION_DENIED;
    case 404:
        return GRPC_CODE_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_CODE_UNAVAILABLE;
    default:
        return GRPC_CODE_UNKNOWN;
    }
}

int grpc_code_from_reset(uint32_t error_code) {
    enum { REFUSED_STREAM = 7, CANCEL = 8, ENHANCE_YOUR_CALM = 11, INADEQUATE_SECURITY = 12 };
    switch (error_code) {
    case REFUSED_STREAM:
        return GRPC_CODE_UNAVAILABLE;
    case CANCEL:
        return GRPC_CODE_CANCELLED;
    case ENHANCE_YOUR_CALM:
        return GRPC_CODE_RESOURCE_EXHAUSTED;
    case INADEQUATE_SECURITY:
        return GRPC_CODE_PERMISSION_DENIED;
    default:
        return GRPC_CODE_INTERNAL;
    }
}

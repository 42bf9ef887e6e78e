/* The status codes of gRPC: their names, and the code that a client assumes when a server or a
 * proxy sent none. (core/base/status.def maps our own reasons to codes.)
 *
 * gRPC, "Status codes and their use"; gRPC over HTTP2, "Errors"; "HTTP to gRPC Status Code
 * Mapping". */
#ifndef SLUICE_CODEC_GRPC_STATUS_H
#define SLUICE_CODEC_GRPC_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

enum grpc_code {
    GRPC_CODE_OK,
    GRPC_CODE_CANCELLED,
    GRPC_CODE_UNKNOWN,
    GRPC_CODE_INVALID_ARGUMENT,
    GRPC_CODE_DEADLINE_EXCEEDED,
    GRPC_CODE_NOT_FOUND,
    GRPC_CODE_ALREADY_EXISTS,
    GRPC_CODE_PERMISSION_DENIED,
    GRPC_CODE_RESOURCE_EXHAUSTED,
    GRPC_CODE_FAILED_PRECONDITION,
    GRPC_CODE_ABORTED,
    GRPC_CODE_OUT_OF_RANGE,
    GRPC_CODE_UNIMPLEMENTED,
    GRPC_CODE_INTERNAL,
    GRPC_CODE_UNAVAILABLE,
    GRPC_CODE_DATA_LOSS,
    GRPC_CODE_UNAUTHENTICATED,
    GRPC_CODES,
};

/* "INVALID_ARGUMENT"; "UNKNOWN" for a number that is no code. */
const char *grpc_code_name(int code);
/* Parses grpc-status. Returns: false when it is no number; a number that is no code becomes
 * UNKNOWN. */
bool grpc_code_parse(struct str text, int *out);
/* The code of a response that is not 200 and has no grpc-status. */
int grpc_code_from_http(int http_status);
/* The code of a stream that was reset (RFC 9113, 7) before it had a status. */
int grpc_code_from_reset(uint32_t error_code);

#endif

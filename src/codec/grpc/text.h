/* The values of gRPC's header fields: the timeout, the status message, binary metadata, names of
 * codings; and the prefix of each message. Sans I/O.
 *
 * gRPC over HTTP2, "Requests", "Responses", "Length-Prefixed-Message". */
#ifndef SLUICE_CODEC_GRPC_TEXT_H
#define SLUICE_CODEC_GRPC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/http1/content_coding.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Parses grpc-timeout: up to 8 digits and one of H, M, S, m, u, n. Returns: false for anything
 * else; a timeout that does not fit is UINT64_MAX. */
bool grpc_timeout_parse(struct str text, uint64_t *ns);
enum { GRPC_TIMEOUT_BYTES = 12 };
/* Prints the timeout, rounded up to what 8 digits can express. Returns: its length. */
size_t grpc_timeout_print(uint64_t ns, char out[GRPC_TIMEOUT_BYTES]);

/* Is it application/grpc, optionally with "+proto" and parameters? Another suffix ("+json") is a
 * format that is not supported. */
bool grpc_content_type_ok(struct str value);

/* Prints grpc-message: percent-encodes everything but printable ASCII without '%'. */
void grpc_status_message_print(struct buf *out, struct str text);
/* Decodes grpc-message; a '%' that is not followed by two hexadecimal digits stays as it is.
 * Returns: ptr NULL when out of memory. Owns: in `arena`, or `text` itself. */
struct str grpc_status_message_parse(struct arena *arena, struct str text);

/* Binary metadata ("…-bin") is base64 (core/base/base64.h), parsed with or without padding.
 * Returns: ST_BAD_REQUEST for invalid base64, ST_NO_MEMORY. */
enum status grpc_binary_metadata_parse(struct arena *arena, struct str text, struct str *out,
                                       struct error *err) SLUICE_MUST_USE;

/* grpc-encoding: identity, gzip, deflate. Returns: false for others. */
bool grpc_coding_parse(struct str name, enum http_coding *out);
const char *grpc_coding_name(enum http_coding coding);
/* Chooses from grpc-accept-encoding, a list of names. Returns: the supported coding that is
 * cheapest for the peer to decode; HTTP_IDENTITY when none is supported. */
enum http_coding grpc_coding_choose(struct str accepted);

/* The prefix of a message: a byte that is 1 when it is compressed, and its length. */
enum { GRPC_PREFIX_BYTES = 5 };
struct grpc_prefix {
    bool compressed;
    uint32_t n_bytes;
};
/* Returns: ST_BAD_REQUEST when the flag is neither 0 nor 1. */
enum status grpc_prefix_decode(const char bytes[GRPC_PREFIX_BYTES], struct grpc_prefix *out,
                               struct error *err) SLUICE_MUST_USE;
void grpc_prefix_encode(struct grpc_prefix prefix, char out[GRPC_PREFIX_BYTES]);

#endif

/* The header fields of gRPC, of server and client: received ones, collected and decoded, and those
 * to send, encoded.
 *
 * gRPC over HTTP2, "Requests", "Custom-Metadata". */
#ifndef SLUICE_NET_TRANSPORT_GRPC_FIELDS_H
#define SLUICE_NET_TRANSPORT_GRPC_FIELDS_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>

#include "codec/grpc/text.h"
#include "net/transport/grpc/message.h"

enum { GRPC_MAX_FIELDS = 256 };

/* A growing list in an arena. Zeroed memory is empty. */
struct grpc_fields {
    struct grpc_field *items;
    size_t n, cap;
};

/* Adds a copy; binary values joined by commas become one field each. Returns: false when there are
 * too many, or out of memory. */
bool grpc_fields_add(struct arena *arena, struct grpc_fields *fields, struct str name,
                     struct str value);
/* Returns: whether a received field can be dropped without changing what grpc_fields_decode
 * returns: binary values are valid. */
bool grpc_field_is_valid(struct str name, struct str value);
/* Decodes values whose names end in "-bin". Returns: ST_BAD_REQUEST naming the field,
 * ST_NO_MEMORY. */
enum status grpc_fields_decode(struct arena *arena, struct grpc_fields *fields,
                               struct error *err) SLUICE_MUST_USE;
/* Adds a copy of a field to send, encoded where the name ends in "-bin". It is dropped if the list
 * has `most` fields, or when out of memory. */
void grpc_fields_add_encoded(struct arena *arena, struct grpc_fields *fields, size_t most,
                             struct str name, struct str value);
/* Returns: the first value of a field, or an empty string; *n (may be NULL) is the number of
 * values. */
struct str grpc_fields_find(const struct grpc_field *items, size_t n_items, const char *name,
                            size_t *n);

/* ---- for nghttp2 ----------------------------------------------------------------------------- */

/* nghttp2 does not copy texts that are static, or that outlive the frame. */
enum {
    GRPC_NV_NO_COPY = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE,
    GRPC_NV_NO_COPY_NAME = NGHTTP2_NV_FLAG_NO_COPY_NAME,
    GRPC_NV_COPY = NGHTTP2_NV_FLAG_NONE,
};

static inline nghttp2_nv grpc_nv(struct str name, struct str value, unsigned flags) {
    /* nghttp2's type has no const; it does not write there. */
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.ptr,
                        .value = (uint8_t *)(uintptr_t)value.ptr,
                        .namelen = name.len,
                        .valuelen = value.len,
                        .flags = (uint8_t)flags};
}

#endif

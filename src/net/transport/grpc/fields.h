/* The header fields of gRPC: those that came, gathered and decoded, and those to be sent, encoded;
 * a server's as a client's. For the grpc_*.c files of this room only.
 *
 * gRPC over HTTP2, "Requests", "Custom-Metadata". */
#ifndef SLUICE_NET_TRANSPORT_GRPC_FIELDS_H
#define SLUICE_NET_TRANSPORT_GRPC_FIELDS_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>

#include "codec/protobuf/grpc_text.h"
#include "net/transport/grpc/message.h"

enum { GRPC_MAX_FIELDS = 256 };

/* A growing list in an arena. Zeroed memory is an empty one. */
struct grpc_fields {
    struct grpc_field *items;
    size_t n, cap;
};

/* Keeps a copy, of joined binary values one each. Returns: false when there are too many, or out of
 * memory. */
bool grpc_fields_add(struct arena *arena, struct grpc_fields *fields, struct str name,
                     struct str value);
/* Decodes values whose names end in "-bin". Returns: ST_BAD_REQUEST naming the field,
 * ST_NO_MEMORY. */
enum status grpc_fields_decode(struct arena *arena, struct grpc_fields *fields, struct error *err)
    __attribute__((warn_unused_result));
/* Keeps a copy of one that is to be sent, encoded where the name ends in "-bin". One that does not
 * fit `most`, or for which there is no memory, is dropped. */
void grpc_fields_add_encoded(struct arena *arena, struct grpc_fields *fields, size_t most,
                             struct str name, struct str value);
/* The value of a field; *n (may be NULL) is how many there are. Returns: the first one, or an empty
 * string. */
struct str grpc_fields_find(const struct grpc_field *items, size_t n_items, const char *name,
                            size_t *n);

/* ---- for nghttp2 ----------------------------------------------------------------------------- */

/* Texts that live for ever, or as long as the frame waits, are not copied by it. */
enum {
    GRPC_NV_NO_COPY = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE,
    GRPC_NV_NO_COPY_NAME = NGHTTP2_NV_FLAG_NO_COPY_NAME,
    GRPC_NV_COPY = NGHTTP2_NV_FLAG_NONE,
};

static inline nghttp2_nv grpc_nv(struct str name, struct str value, unsigned flags) {
    /* nghttp2's type has no const; nobody writes there. */
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.ptr,
                        .value = (uint8_t *)(uintptr_t)value.ptr,
                        .namelen = name.len,
                        .valuelen = value.len,
                        .flags = (uint8_t)flags};
}

#endif

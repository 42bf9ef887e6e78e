/* Protocol buffers to JSON, by the descriptors of their messages: proto3's JSON mapping, with the
 * names of the .proto file, and with numbers of 64 bits as numbers, as the reference server writes
 * them.
 *
 * Protocol buffers, "ProtoJSON Format". */
#ifndef SLUICE_CODEC_PROTOBUF_PB_JSON_H
#define SLUICE_CODEC_PROTOBUF_PB_JSON_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

struct pb_json_options {
    struct str descriptors; /* a FileDescriptorSet: our own, and well formed */
    const char *type;       /* of the message: "inference.ModelConfig" */
    /* Fields that are absent are printed too, with their default; not messages and not the members
     * of a oneof. */
    bool with_defaults;
    uint64_t max_bytes; /* of the JSON */
};

/* Appends the message. Unknown fields are skipped; of a repeated single field the last counts.
 * Returns: ST_BAD_REQUEST for a message that is malformed, ST_BAD_FIELD for a field of another type
 * and for text that is not UTF-8; ST_BODY_TOO_LARGE, ST_NO_MEMORY. The buffer is not JSON then. */
enum status pb_json_print(struct buf *out, const struct pb_json_options *options,
                          struct str message, struct error *err) SLUICE_MUST_USE;

#endif

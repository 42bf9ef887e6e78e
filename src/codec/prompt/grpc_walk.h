/* Reads fields out of gRPC messages that arrive in chunks, which may be cut anywhere: by a table of
 * the messages' fields, without the whole message and without memory for it. Fields that the table
 * does not have are skipped. (codec/protobuf/pb.h reads whole messages; model_scan_grpc.h also
 * knows where a field is.)
 *
 * gRPC, "Length-Prefixed-Message"; Protocol buffers, "Encoding". */
#ifndef SLUICE_CODEC_PROMPT_GRPC_WALK_H
#define SLUICE_CODEC_PROMPT_GRPC_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum grpc_walk_result {
    GRPC_WALK_MORE,
    GRPC_WALK_END, /* of one message */
    GRPC_WALK_COMPRESSED,
    GRPC_WALK_MALFORMED,
};

enum grpc_field_kind {
    GRPC_FIELD_MESSAGE, /* `id` is that of the message */
    GRPC_FIELD_BYTES,
    GRPC_FIELD_NUMBER, /* also a packed list of them */
};

/* A field that is read. The outermost message has the id 0. */
struct grpc_walk_field {
    uint8_t message; /* that has the field */
    uint8_t kind;    /* enum grpc_field_kind */
    uint8_t id;      /* for the callbacks */
    uint32_t number;
};

struct grpc_walk_callbacks {
    /* Bytes of a GRPC_FIELD_BYTES; `ended`: the last ones, perhaps none. NULL: the table has no
     * such field. */
    void (*on_bytes)(void *user, uint8_t id, struct str bytes, bool ended);
    void (*on_number)(void *user, uint8_t id, uint64_t number);
    void *user;
};

enum { GRPC_WALK_MAX_DEPTH = 4 };

struct grpc_walk {
    const struct grpc_walk_field *fields;
    size_t n_fields;
    bool is_stream; /* of messages: a further one may follow, and GRPC_WALK_END is never reached */
    enum grpc_walk_result result;
    const char *error_text; /* of GRPC_WALK_MALFORMED */
    /* state */
    uint8_t state; /* enum state of grpc_walk.c */
    uint8_t n_value, depth;
    const struct grpc_walk_field *field; /* the current one; NULL: it is skipped */
    uint64_t value;                      /* of the varint being read */
    uint64_t left;                       /* of the current field */
    struct {
        uint8_t message;
        uint64_t left; /* bytes of it that were not read */
    } open[GRPC_WALK_MAX_DEPTH];
};

void grpc_walk_init(struct grpc_walk *walk, const struct grpc_walk_field *fields, size_t n_fields,
                    bool is_stream);
/* Reads the next bytes. Returns: walk->result; once that is not GRPC_WALK_MORE, further bytes are
 * ignored. */
enum grpc_walk_result grpc_walk_feed(struct grpc_walk *walk, struct str chunk,
                                     const struct grpc_walk_callbacks *callbacks);
/* Whether the bytes may end here: no message has begun, or all have ended. */
bool grpc_walk_may_end(const struct grpc_walk *walk);

#endif

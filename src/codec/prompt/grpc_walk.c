/* A state machine with a small stack of the messages that are open. */
#include "codec/prompt/grpc_walk.h"

#include "codec/protobuf/pb.h"

enum state {
    IN_PREFIX,
    IN_TAG,
    IN_NUMBER, /* a varint field */
    IN_LENGTH,
    IN_BYTES,  /* read or skipped */
    IN_PACKED, /* a list of varints */
};

enum { PREFIX_BYTES = 5 };

static void begin_varint(struct grpc_walk *walk, enum state state) {
    walk->value = 0;
    walk->n_value = 0;
    walk->state = (uint8_t)state;
}

void grpc_walk_init(struct grpc_walk *walk, const struct grpc_walk_field *fields, size_t n_fields,
                    bool is_stream) {
    *walk = (struct grpc_walk){.fields = fields, .n_fields = n_fields, .is_stream = is_stream};
    begin_varint(walk, IN_PREFIX);
}

static void fail_walk(struct grpc_walk *walk, const char *why) {
    walk->error_text = why;
    walk->result = GRPC_WALK_MALFORMED;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Ends the messages whose bytes were read: between fields. */
static void end_messages(struct grpc_walk *walk) {
    while (walk->depth > 0 && walk->open[walk->depth - 1].left == 0) {
        walk->depth--;
    }
    if (walk->depth > 0) {
        return;
    }
    if (walk->is_stream) {
        begin_varint(walk, IN_PREFIX);
    } else {
        walk->result = GRPC_WALK_END;
    }
}

static void end_field(struct grpc_walk *walk) {
    begin_varint(walk, IN_TAG);
    end_messages(walk);
}

/* The next `n` bytes are read, of all open messages. Returns: false where the innermost one ends
 * before. */
static bool take(struct grpc_walk *walk, uint64_t n) {
    for (uint8_t i = 0; i < walk->depth; i++) {
        if (walk->open[i].left < n) {
            fail_walk(walk, "a field runs past the end of its message");
            return false;
        }
        walk->open[i].left -= n;
    }
    return true;
}

static void open_message(struct grpc_walk *walk, uint8_t message, uint64_t n_bytes) {
    walk->open[walk->depth].message = message;
    walk->open[walk->depth++].left = n_bytes;
    begin_varint(walk, IN_TAG);
    end_messages(walk);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static const struct grpc_walk_field *find_field(const struct grpc_walk *walk, uint32_t number) {
    uint8_t message = walk->open[walk->depth - 1].message;
    for (size_t i = 0; i < walk->n_fields; i++) {
        if (walk->fields[i].message == message && walk->fields[i].number == number) {
            return &walk->fields[i];
        }
    }
    return NULL;
}

static bool is_read(const struct grpc_walk_field *field, enum grpc_field_kind kind) {
    return field && field->kind == (uint8_t)kind;
}

static void begin_bytes(struct grpc_walk *walk, uint64_t n_bytes,
                        const struct grpc_walk_callbacks *callbacks) {
    const struct grpc_walk_field *field = walk->field;
    if (n_bytes > walk->open[walk->depth - 1].left) {
        fail_walk(walk, "a field runs past the end of its message");
        return;
    }
    walk->left = n_bytes;
    if (field && field->kind == GRPC_FIELD_MESSAGE && walk->depth < GRPC_WALK_MAX_DEPTH) {
        open_message(walk, field->id, n_bytes);
        return;
    }
    if (is_read(field, GRPC_FIELD_NUMBER) && n_bytes > 0) {
        begin_varint(walk, IN_PACKED);
        return;
    }
    walk->state = IN_BYTES;
    if (n_bytes == 0) {
        if (field && field->kind == GRPC_FIELD_BYTES) {
            callbacks->on_bytes(callbacks->user, field->id, str_make("", 0), true);
        }
        end_field(walk);
    }
}

static void end_tag(struct grpc_walk *walk, const struct grpc_walk_callbacks *callbacks) {
    uint32_t number;
    unsigned type;
    if (!pb_split_tag(walk->value, &number, &type)) {
        fail_walk(walk, "a field's number is out of range");
        return;
    }
    walk->field = find_field(walk, number);
    if (walk->field && type != PB_BYTES && walk->field->kind != GRPC_FIELD_NUMBER) {
        fail_walk(walk, "a field has another type than its own");
        return;
    }
    switch (type) {
    case PB_VARINT:
        begin_varint(walk, IN_NUMBER);
        break;
    case PB_BYTES:
        begin_varint(walk, IN_LENGTH);
        break;
    case PB_FIXED64:
    case PB_FIXED32:
        walk->field = NULL;
        begin_bytes(walk, type == PB_FIXED64 ? 8 : 4, callbacks);
        break;
    default:
        fail_walk(walk, "a field has a type that does not exist");
        break;
    }
}

static void end_varint(struct grpc_walk *walk, const struct grpc_walk_callbacks *callbacks) {
    switch ((enum state)walk->state) {
    case IN_TAG:
        end_tag(walk, callbacks);
        break;
    case IN_LENGTH:
        begin_bytes(walk, walk->value, callbacks);
        break;
    case IN_NUMBER:
        if (is_read(walk->field, GRPC_FIELD_NUMBER)) {
            callbacks->on_number(callbacks->user, walk->field->id, walk->value);
        }
        end_field(walk);
        break;
    case IN_PACKED:
        callbacks->on_number(callbacks->user, walk->field->id, walk->value);
        begin_varint(walk, IN_PACKED);
        if (walk->left == 0) {
            end_field(walk);
        }
        break;
    case IN_PREFIX:
    case IN_BYTES:
        break;
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void read_prefix_byte(struct grpc_walk *walk, unsigned char byte) {
    if (walk->n_value++ == 0) {
        if (byte == 1) {
            walk->result = GRPC_WALK_COMPRESSED;
        } else if (byte != 0) {
            fail_walk(walk, "the prefix of a message begins with neither 0 nor 1");
        }
        return;
    }
    walk->value = walk->value << 8 | byte;
    if (walk->n_value == PREFIX_BYTES) {
        open_message(walk, 0, walk->value);
    }
}

/* Encoding, "Base 128 Varints": at most ten bytes; the tenth has one bit. */
static void read_varint_byte(struct grpc_walk *walk, unsigned char byte,
                             const struct grpc_walk_callbacks *callbacks) {
    if (walk->n_value == PB_MAX_VARINT_BYTES - 1 && byte > 1) {
        fail_walk(walk, "a number has more than 64 bits");
        return;
    }
    if (!take(walk, 1)) {
        return;
    }
    walk->left -= walk->state == IN_PACKED;
    walk->value |= (uint64_t)(byte & 0x7f) << (7 * walk->n_value++);
    if (byte < 0x80) {
        end_varint(walk, callbacks);
    } else if (walk->state == IN_PACKED && walk->left == 0) {
        fail_walk(walk, "a number is cut off");
    }
}

static size_t read_bytes(struct grpc_walk *walk, struct str bytes,
                         const struct grpc_walk_callbacks *callbacks) {
    size_t n = bytes.len < walk->left ? bytes.len : (size_t)walk->left;
    walk->left -= n;
    if (!take(walk, n)) {
        return n;
    }
    if (is_read(walk->field, GRPC_FIELD_BYTES)) {
        callbacks->on_bytes(callbacks->user, walk->field->id, str_make(bytes.ptr, n),
                            walk->left == 0);
    }
    if (walk->left == 0) {
        end_field(walk);
    }
    return n;
}

enum grpc_walk_result grpc_walk_feed(struct grpc_walk *walk, struct str chunk,
                                     const struct grpc_walk_callbacks *callbacks) {
    size_t at = 0;
    while (walk->result == GRPC_WALK_MORE && at < chunk.len) {
        unsigned char byte = (unsigned char)chunk.ptr[at];
        if (walk->state == IN_BYTES) {
            at += read_bytes(walk, str_make(chunk.ptr + at, chunk.len - at), callbacks);
        } else if (walk->state == IN_PREFIX) {
            read_prefix_byte(walk, byte);
            at++;
        } else {
            read_varint_byte(walk, byte, callbacks);
            at++;
        }
    }
    return walk->result;
}

bool grpc_walk_may_end(const struct grpc_walk *walk) {
    return walk->result == GRPC_WALK_END ||
           (walk->result == GRPC_WALK_MORE && walk->state == IN_PREFIX && walk->n_value == 0);
}

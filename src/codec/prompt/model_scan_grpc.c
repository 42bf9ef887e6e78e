/* Scans the fields of a message in chunks, up to model_name. The reader in codec/protobuf/pb.h
 * needs the whole message. */
#include "codec/prompt/model_scan_grpc.h"

#include <inttypes.h>

#include "codec/protobuf/pb.h"
#include "core/base/utf8.h"

enum state { IN_PREFIX, IN_TAG, IN_NUMBER, IN_LENGTH, IN_SKIPPED, IN_NAME };

enum {
    PREFIX_BYTES = 5,
    MODEL_NAME = 1, /* ModelInferRequest.model_name */
};

void model_scan_grpc_init(struct model_scan_grpc *scan, struct arena *arena, bool prefixed) {
    *scan = (struct model_scan_grpc){.result = MODEL_SCAN_MORE,
                                     .state = prefixed ? IN_PREFIX : IN_TAG,
                                     .message_bytes = UINT64_MAX};
    buf_init(&scan->name, arena, 0);
}

static void fail_scan(struct model_scan_grpc *scan, const char *why) {
    scan->error_text = why;
    scan->result = MODEL_SCAN_MALFORMED;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void begin_field(struct model_scan_grpc *scan) {
    scan->value = 0;
    scan->n_value = 0;
    scan->state = IN_TAG;
}

static void end_name(struct model_scan_grpc *scan) {
    scan->field_bytes = scan->at - scan->field_at;
    scan->result = MODEL_SCAN_FOUND;
    if (!utf8_is_valid(scan->name.data, scan->name.len)) {
        fail_scan(scan, "model_name is not UTF-8");
    }
}

/* Starts the value of a field, `n_bytes` bytes long. */
static void begin_bytes(struct model_scan_grpc *scan, uint64_t n_bytes) {
    bool is_name = scan->number == MODEL_NAME;
    scan->left = n_bytes;
    if (scan->message_bytes != UINT64_MAX &&
        n_bytes > scan->message_bytes - (scan->at - scan->message_at)) {
        fail_scan(scan, "a field runs past the end of its message");
    } else if (is_name && n_bytes > MODEL_SCAN_MAX_BYTES) {
        scan->result = MODEL_SCAN_TOO_LONG;
    } else if (n_bytes > 0) {
        scan->state = is_name ? IN_NAME : IN_SKIPPED;
    } else if (is_name) {
        end_name(scan);
    } else {
        begin_field(scan);
    }
}

static void end_tag(struct model_scan_grpc *scan) {
    unsigned type;
    if (!pb_split_tag(scan->value, &scan->number, &type)) {
        fail_scan(scan, "a field's number is out of range");
        return;
    }
    scan->value = 0;
    scan->n_value = 0;
    if (scan->number == MODEL_NAME && type != PB_BYTES) {
        scan->result = MODEL_SCAN_OTHER_TYPE;
        return;
    }
    switch (type) {
    case PB_VARINT:
        scan->state = IN_NUMBER;
        break;
    case PB_BYTES:
        scan->state = IN_LENGTH;
        break;
    case PB_FIXED64:
        begin_bytes(scan, sizeof(uint64_t));
        break;
    case PB_FIXED32:
        begin_bytes(scan, sizeof(uint32_t));
        break;
    default:
        fail_scan(scan, "a field has a type that does not exist");
        break;
    }
}

/* Encoding, "Base 128 Varints": at most ten bytes; the tenth has one bit. */
static void scan_number_byte(struct model_scan_grpc *scan, unsigned char byte) {
    if (scan->n_value == PB_MAX_VARINT_BYTES - 1 && byte > 1) {
        fail_scan(scan, "a number has more than 64 bits");
        return;
    }
    scan->value |= (uint64_t)(byte & 0x7f) << (7 * scan->n_value++);
    if (byte >= 0x80) {
        return;
    }
    if (scan->state == IN_TAG) {
        end_tag(scan);
    } else if (scan->state == IN_LENGTH) {
        begin_bytes(scan, scan->value);
    } else {
        begin_field(scan);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void scan_prefix_byte(struct model_scan_grpc *scan, unsigned char byte) {
    if (scan->n_value++ == 0) {
        if (byte == 1) {
            scan->result = MODEL_SCAN_COMPRESSED;
        } else if (byte != 0) {
            fail_scan(scan, "the prefix of a message begins with neither 0 nor 1");
        }
        return;
    }
    scan->value = scan->value << 8 | byte;
    if (scan->n_value == PREFIX_BYTES) {
        scan->message_bytes = scan->value;
        scan->message_at = scan->at;
        begin_field(scan);
    }
}

/* Consumes bytes of a field's value. Returns: how many. */
static size_t consume_bytes(struct model_scan_grpc *scan, struct str bytes) {
    size_t n = bytes.len < scan->left ? bytes.len : (size_t)scan->left;
    scan->at += n;
    scan->left -= n;
    if (scan->state == IN_NAME) {
        buf_add(&scan->name, bytes.ptr, n);
    }
    if (scan->name.failed) {
        scan->result = MODEL_SCAN_NO_MEMORY;
    } else if (scan->left == 0 && scan->state == IN_NAME) {
        end_name(scan);
    } else if (scan->left == 0) {
        begin_field(scan);
    }
    return n;
}

static void scan_byte(struct model_scan_grpc *scan, unsigned char byte) {
    scan->at++;
    if (scan->state == IN_PREFIX) {
        scan_prefix_byte(scan, byte);
        return;
    }
    if (scan->state == IN_TAG && scan->n_value == 0) {
        scan->field_at = scan->at - 1;
    }
    scan_number_byte(scan, byte);
}

/* Checks at the end of the message, which the prefix defines, that no field is truncated. */
static void check_message_end(struct model_scan_grpc *scan) {
    if (scan->state == IN_PREFIX || scan->at - scan->message_at < scan->message_bytes) {
        return;
    }
    if (scan->state == IN_TAG && scan->n_value == 0) {
        scan->result = MODEL_SCAN_ABSENT;
    } else {
        fail_scan(scan, "a field is cut off");
    }
}

enum model_scan_result model_scan_grpc_feed(struct model_scan_grpc *scan, struct str chunk) {
    size_t at = 0;
    while (scan->result == MODEL_SCAN_MORE && at < chunk.len) {
        if (scan->state == IN_NAME || scan->state == IN_SKIPPED) {
            at += consume_bytes(scan, str_make(chunk.ptr + at, chunk.len - at));
        } else {
            scan_byte(scan, (unsigned char)chunk.ptr[at++]);
        }
        if (scan->result == MODEL_SCAN_MORE) {
            check_message_end(scan);
        }
    }
    return scan->result;
}

void model_scan_grpc_init_rest(struct model_scan_grpc *rest, const struct model_scan_grpc *scan) {
    *rest = *scan;
    buf_init(&rest->name, scan->name.arena, 0);
    rest->result = MODEL_SCAN_MORE;
    begin_field(rest);
    check_message_end(rest);
}

bool model_scan_grpc_feed_rest(struct model_scan_grpc *rest, struct str chunk) {
    enum model_scan_result result = model_scan_grpc_feed(rest, chunk);
    return result == MODEL_SCAN_FOUND || result == MODEL_SCAN_OTHER_TYPE ||
           result == MODEL_SCAN_TOO_LONG || result == MODEL_SCAN_NO_MEMORY;
}

enum model_scan_result model_scan_grpc_finish(struct model_scan_grpc *scan) {
    if (scan->result != MODEL_SCAN_MORE) {
        return scan->result;
    }
    if (scan->state == IN_TAG && scan->n_value == 0 && scan->message_bytes == UINT64_MAX) {
        scan->result = MODEL_SCAN_ABSENT;
    } else {
        fail_scan(scan, "it ends too early");
    }
    return scan->result;
}

enum status model_scan_grpc_check(const struct model_scan_grpc *scan, struct error *err) {
    switch (scan->result) {
    case MODEL_SCAN_FOUND:
        return ST_OK;
    case MODEL_SCAN_MORE:
    case MODEL_SCAN_ABSENT:
        return error_set(err, ST_BAD_FIELD,
                         "model_name: expected a name, got a message without it");
    case MODEL_SCAN_OTHER_TYPE:
        return error_set(err, ST_BAD_FIELD, "model_name: expected a string, got a number");
    case MODEL_SCAN_TOO_LONG:
        return error_set(err, ST_BAD_FIELD, "model_name: expected at most %d bytes, got %" PRIu64,
                         (int)MODEL_SCAN_MAX_BYTES, scan->left);
    case MODEL_SCAN_NOT_OBJECT: /* never from gRPC */
    case MODEL_SCAN_MALFORMED:
        return error_set(err, ST_BAD_REQUEST,
                         "this is not a ModelInferRequest: %s, at byte %" PRIu64, scan->error_text,
                         scan->at);
    case MODEL_SCAN_COMPRESSED:
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "expected an uncompressed message: the model's name can't be read");
    case MODEL_SCAN_NO_MEMORY:
        break;
    }
    return error_no_memory(err, "the model's name");
}

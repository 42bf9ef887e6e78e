/* Typed contents: eight lists, of which a tensor uses the one of its datatype, as bytes in the form
 * that every tensor has. The list may be packed, unpacked, or in several parts, as protocol buffers
 * allow; it is counted first, so that memory is taken once and for what is there. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "codec/kserve/grpc/fields.h"
#include "core/tensor/bytes.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "elements are stored as they are in memory");

enum list { BOOLS = 1, INTS, INT64S, UINTS, UINT64S, FP32S, FP64S, BYTES_LIST, N_LISTS };

static const char *const LIST_NAMES[N_LISTS] = {
    [BOOLS] = "bool_contents", [INTS] = "int_contents",         [INT64S] = "int64_contents",
    [UINTS] = "uint_contents", [UINT64S] = "uint64_contents",   [FP32S] = "fp32_contents",
    [FP64S] = "fp64_contents", [BYTES_LIST] = "bytes_contents",
};

/* Which list a datatype's elements are in; 0: only raw. */
static const struct kind {
    enum list list;
    int64_t low; /* of integers whose list is wider */
    uint64_t high;
} KINDS[DT_COUNT_] = {
    [DT_BOOL] = {BOOLS, 0, 0},
    [DT_INT8] = {INTS, INT8_MIN, INT8_MAX},
    [DT_INT16] = {INTS, INT16_MIN, INT16_MAX},
    [DT_INT32] = {INTS, INT32_MIN, INT32_MAX},
    [DT_INT64] = {INT64S, INT64_MIN, INT64_MAX},
    [DT_UINT8] = {UINTS, 0, UINT8_MAX},
    [DT_UINT16] = {UINTS, 0, UINT16_MAX},
    [DT_UINT32] = {UINTS, 0, UINT32_MAX},
    [DT_UINT64] = {UINT64S, 0, UINT64_MAX},
    [DT_FP32] = {FP32S, 0, 0},
    [DT_FP64] = {FP64S, 0, 0},
    [DT_BYTES] = {BYTES_LIST, 0, 0},
};

/* What is being read, and how far. */
struct contents {
    struct v2_grpc_path_prefix prefix;
    enum datatype datatype;
    const struct kind *kind;
    uint64_t n; /* elements */
    size_t n_bytes;
    unsigned char *out; /* NULL while counting */
    size_t at;
};

/* The type of a list's elements when they are not packed. */
static enum pb_type wire_type_of(enum list list) {
    switch ((int)list) {
    case FP32S:
        return PB_FIXED32;
    case FP64S:
        return PB_FIXED64;
    case BYTES_LIST:
        return PB_BYTES;
    default:
        return PB_VARINT;
    }
}

static enum status contents_error(const struct contents *contents, enum status st, const char *why,
                                  struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    enum list list = contents->kind->list;
    return error_set(err, st, "%s.%s: %s", v2_grpc_path_print(contents->prefix, "contents", path),
                     list ? LIST_NAMES[list] : "", why);
}

/* ---- one element ----------------------------------------------------------------------------- */

/* An int32 comes as 64 bits with its sign, an uint32 as 32 bits; writers that get this wrong are
 * refused rather than cut. */
static bool in_range(const struct kind *kind, uint64_t value) {
    bool negative = (int64_t)value < 0 && kind->list != UINTS && kind->list != UINT64S;
    return negative ? (int64_t)value >= kind->low : value <= kind->high;
}

static enum status out_of_range(const struct contents *contents, uint64_t value,
                                struct error *err) {
    bool is_unsigned = contents->kind->list == UINTS || contents->kind->list == UINT64S;
    const char *name = datatype_name(contents->datatype);
    size_t at = contents->at / datatype_size(contents->datatype);
    char why[96];
    if (is_unsigned) {
        snprintf(why, sizeof why, "element %zu is %" PRIu64 ", out of the range of %s", at, value,
                 name);
    } else {
        snprintf(why, sizeof why, "element %zu is %" PRId64 ", out of the range of %s", at,
                 (int64_t)value, name);
    }
    return contents_error(contents, ST_BAD_FIELD, why, err);
}

static enum status store_number(struct contents *contents, uint64_t value, struct error *err) {
    size_t size = datatype_size(contents->datatype);
    if (contents->kind->list == BOOLS) {
        value = value != 0;
    } else if (contents->kind->high != 0 && !in_range(contents->kind, value)) {
        return out_of_range(contents, value, err);
    }
    memcpy(contents->out + contents->at, &value, size);
    contents->at += size;
    return ST_OK;
}

static void store_bytes(struct contents *contents, struct str element) {
    bytes_encode_length(contents->out + contents->at, (uint32_t)element.len);
    contents->at += sizeof(uint32_t);
    if (element.len > 0) {
        memcpy(contents->out + contents->at, element.ptr, element.len);
    }
    contents->at += element.len;
}

/* ---- a list ---------------------------------------------------------------------------------- */

static enum status count_elements(struct contents *contents, uint64_t n, size_t n_bytes) {
    contents->n += n; /* no overflow: each element has at least a bit of the message */
    contents->n_bytes += n_bytes;
    return ST_OK;
}

static enum status decode_packed_list(struct contents *contents, struct str list,
                                      struct error *err) {
    size_t size = datatype_size(contents->datatype);
    struct pb_reader reader = pb_read(list);
    uint64_t value, n = 0;
    enum status st = ST_OK;
    if (wire_type_of(contents->kind->list) != PB_VARINT) {
        if (list.len % size != 0) {
            return contents_error(contents, ST_BAD_REQUEST,
                                  "its bytes are no whole number of elements", err);
        }
        if (!contents->out) {
            return count_elements(contents, list.len / size, list.len);
        }
        memcpy(contents->out + contents->at, list.ptr, list.len);
        contents->at += list.len;
        return ST_OK;
    }
    while (st == ST_OK && pb_next_varint(&reader, &value)) {
        n++;
        st = contents->out ? store_number(contents, value, err) : ST_OK;
    }
    if (st == ST_OK && reader.error_text) {
        return contents_error(contents, ST_BAD_REQUEST, reader.error_text, err);
    }
    return st == ST_OK && !contents->out ? count_elements(contents, n, n * size) : st;
}

static enum status decode_list(struct contents *contents, const struct pb_field *field,
                               struct error *err) {
    enum list list = contents->kind->list;
    if (list == BYTES_LIST) {
        if (field->type != PB_BYTES || field->bytes.len > UINT32_MAX) {
            return contents_error(contents, ST_BAD_FIELD, "expected bytes", err);
        }
        if (!contents->out) {
            return count_elements(contents, 1, sizeof(uint32_t) + field->bytes.len);
        }
        store_bytes(contents, field->bytes);
        return ST_OK;
    }
    if (field->type == PB_BYTES) {
        return decode_packed_list(contents, field->bytes, err);
    }
    if (field->type != wire_type_of(list)) {
        return contents_error(contents, ST_BAD_FIELD, "an element has a wrong type", err);
    }
    return contents->out ? store_number(contents, field->value, err)
                         : count_elements(contents, 1, datatype_size(contents->datatype));
}

static enum status wrong_list(const struct contents *contents, uint32_t number, struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    v2_grpc_path_print(contents->prefix, "contents", path);
    if (!contents->kind->list) {
        return error_set(err, ST_BAD_FIELD, "%s: %s travels in raw_input_contents only", path,
                         datatype_name(contents->datatype));
    }
    return error_set(err, ST_BAD_FIELD, "%s: expected %s for %s, got %s", path,
                     LIST_NAMES[contents->kind->list], datatype_name(contents->datatype),
                     LIST_NAMES[number]);
}

/* An empty packed list is as good as none. */
static bool is_empty(const struct pb_field *field) {
    return field->type == PB_BYTES && field->bytes.len == 0 && field->number != BYTES_LIST;
}

static enum status decode_contents(struct contents *contents, struct str message,
                                   struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == 0 || field.number >= N_LISTS || is_empty(&field)) {
            continue;
        }
        st = field.number == (uint32_t)contents->kind->list
                 ? decode_list(contents, &field, err)
                 : wrong_list(contents, field.number, err);
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, "InferTensorContents", err)
                                            : st;
}

/* All fields `number` of the message: a repeated one is merged. */
static enum status decode_all_contents(struct contents *contents, struct str message,
                                       uint32_t number, bool *present, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *present = false;
    while (st == ST_OK && pb_next(&reader, &field)) {
        struct str inner;
        if (field.number == number) {
            *present = true;
            st = v2_grpc_get_message(&field, contents->prefix, "contents", &inner, err);
            st = st == ST_OK ? decode_contents(contents, inner, err) : st;
        }
    }
    return st;
}

enum status v2_grpc_contents_read(struct arena *arena, struct str message, uint32_t number,
                                  const struct json_limits *limits,
                                  struct v2_grpc_path_prefix prefix, struct tensor *tensor,
                                  bool *present, struct error *err) {
    struct contents contents = {
        .prefix = prefix, .datatype = tensor->datatype, .kind = &KINDS[tensor->datatype]};
    enum status st = decode_all_contents(&contents, message, number, present, err);
    if (st != ST_OK || !*present) {
        return st;
    }
    if (contents.n > limits->max_tensor_elements) {
        char path[V2_GRPC_PATH_BYTES];
        return error_set(
            err, ST_TOO_MANY_ELEMENTS,
            "%s: expected at most %" PRIu64 " elements, got %" PRIu64 " (--max-tensor-elements)",
            v2_grpc_path_print(prefix, "contents", path), limits->max_tensor_elements, contents.n);
    }
    struct piece *piece = arena_alloc(arena, sizeof *piece);
    contents.out = arena_alloc(arena, contents.n_bytes);
    if (!piece || !contents.out) {
        return error_set(err, ST_NO_MEMORY, "no memory for the contents of a tensor");
    }
    st = decode_all_contents(&contents, message, number, present, err);
    *piece = (struct piece){contents.out, contents.n_bytes};
    tensor->pieces = piece;
    tensor->n_pieces = contents.n_bytes > 0;
    tensor->n_bytes = contents.n_bytes;
    return st;
}

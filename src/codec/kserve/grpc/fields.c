/* What several messages have in common: paths, strings, map entries, shapes, parameters and typed
 * contents. */
#include "codec/kserve/grpc/fields.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "codec/kserve/json_elements_print.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"

/* ---- paths, strings, maps -------------------------------------------------------------------- */

const char *v2_grpc_path_print(struct v2_grpc_path_prefix prefix, const char *field,
                               char out[V2_GRPC_PATH_BYTES]) {
    if (prefix.list) {
        snprintf(out, V2_GRPC_PATH_BYTES, "%s[%zu].%s", prefix.list, prefix.index, field);
    } else {
        snprintf(out, V2_GRPC_PATH_BYTES, "%s", field);
    }
    return out;
}

enum status v2_grpc_get_string(const struct pb_field *field, struct v2_grpc_path_prefix prefix,
                               const char *name, struct str *out, struct error *err) {
    if (field->type == PB_BYTES && utf8_is_valid(field->bytes.ptr, field->bytes.len)) {
        *out = field->bytes;
        return ST_OK;
    }
    char path[V2_GRPC_PATH_BYTES];
    return pb_get_string(field, v2_grpc_path_print(prefix, name, path), out, err);
}

enum status v2_grpc_get_message(const struct pb_field *field, struct v2_grpc_path_prefix prefix,
                                const char *name, struct str *out, struct error *err) {
    if (field->type != PB_BYTES) {
        char path[V2_GRPC_PATH_BYTES];
        return error_set(err, ST_BAD_FIELD, "%s: expected a message, got a number",
                         v2_grpc_path_print(prefix, name, path));
    }
    *out = field->bytes;
    return ST_OK;
}

enum status v2_grpc_get_map_entry(const struct pb_field *field, const char *name, struct str *key,
                                  struct str *value, struct error *err) {
    enum { KEY = 1, VALUE = 2 };
    struct pb_reader reader = pb_read(field->bytes);
    struct pb_field part;
    enum status st = ST_OK;
    *key = *value = STR("");
    if (field->type != PB_BYTES) {
        return error_set(err, ST_BAD_FIELD, "%s: expected a map entry, got a number", name);
    }
    while (st == ST_OK && pb_next(&reader, &part)) {
        if (part.number == KEY) {
            st = pb_get_string(&part, name, key, err);
        } else if (part.number == VALUE && part.type == PB_BYTES) {
            *value = part.bytes;
        }
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, name, err) : st;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

struct dims {
    int64_t *items;
    size_t n;
    int64_t least;
    struct v2_grpc_path_prefix prefix;
};

static enum status add_dim(struct dims *dims, uint64_t value, struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    if (dims->n == SHAPE_MAX_RANK) {
        return error_set(err, ST_BAD_SHAPE, "%s: expected at most %d dimensions, got more",
                         v2_grpc_path_print(dims->prefix, "shape", path), SHAPE_MAX_RANK);
    }
    if ((int64_t)value < dims->least) {
        return error_set(err, ST_BAD_SHAPE, "%s[%zu]: expected a number from %d on, got %" PRId64,
                         v2_grpc_path_print(dims->prefix, "shape", path), dims->n, (int)dims->least,
                         (int64_t)value);
    }
    dims->items[dims->n++] = (int64_t)value;
    return ST_OK;
}

static enum status add_packed(struct dims *dims, struct str list, struct error *err) {
    struct pb_reader reader = pb_read(list);
    uint64_t value;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next_varint(&reader, &value)) {
        st = add_dim(dims, value, err);
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, "list of int64", err) : st;
}

static enum status read_dims(struct str message, uint32_t number, struct dims *dims,
                             struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number != number) {
            continue;
        }
        char path[V2_GRPC_PATH_BYTES];
        if (field.type == PB_BYTES) {
            st = add_packed(dims, field.bytes, err);
        } else if (field.type == PB_VARINT) {
            st = add_dim(dims, field.value, err);
        } else {
            st = error_set(err, ST_BAD_FIELD, "%s: expected int64, got another type",
                           v2_grpc_path_print(dims->prefix, "shape", path));
        }
    }
    return st;
}

enum status v2_grpc_shape_read(struct arena *arena, struct str message, uint32_t number,
                               struct v2_grpc_path_prefix prefix, int64_t least, struct shape *out,
                               struct error *err) {
    int64_t found[SHAPE_MAX_RANK];
    struct dims dims = {.items = found, .least = least, .prefix = prefix};
    enum status st = read_dims(message, number, &dims, err);
    if (st != ST_OK) {
        return st;
    }
    int64_t *copy = arena_alloc(arena, dims.n * sizeof *copy);
    if (!copy) {
        return error_no_memory(err, "a shape");
    }
    memcpy(copy, found, dims.n * sizeof *copy);
    *out = (struct shape){copy, dims.n};
    return ST_OK;
}

/* ---- parameters ------------------------------------------------------------------------------ */

enum { KEY = 1, VALUE = 2, BOOL = 1, INT64 = 2, STRING = 3, DOUBLE = 4, UINT64 = 5 };

enum v2_grpc_contents v2_grpc_contents_parse(struct str text) {
    return str_is(text, "raw")     ? V2_GRPC_CONTENTS_RAW
           : str_is(text, "typed") ? V2_GRPC_CONTENTS_TYPED
           : str_is(text, "same")  ? V2_GRPC_CONTENTS_SAME
                                   : V2_GRPC_CONTENTS_DEFAULT;
}

static enum status check_key(const struct param *param, enum v2_grpc_params_of of,
                             struct v2_grpc_path_prefix prefix, struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    if (of == V2_GRPC_OF_REQUEST && str_eq(param->name, V2_GRPC_EMPTY_FINAL)) {
        return param->kind == PARAM_BOOL
                   ? ST_OK
                   : error_set(err, ST_BAD_FIELD, "%s: expected a bool_param for \"%.*s\"",
                               v2_grpc_path_print(prefix, "parameters", path),
                               STR_ARG(param->name));
    }
    if (of == V2_GRPC_OF_REQUEST && str_eq(param->name, V2_GRPC_OUTPUT_CONTENTS)) {
        return param->kind == PARAM_STRING &&
                       v2_grpc_contents_parse(param->string) != V2_GRPC_CONTENTS_DEFAULT
                   ? ST_OK
                   : error_set(
                         err, ST_BAD_FIELD,
                         "%s: expected a string_param \"raw\", \"typed\" or \"same\" for \"%.*s\"",
                         v2_grpc_path_print(prefix, "parameters", path), STR_ARG(param->name));
    }
    if (of != V2_GRPC_OF_RESPONSE && str_starts_with(param->name, STR("triton_"))) {
        return error_set(err, ST_BAD_FIELD, "%s: names that begin with \"triton_\" are reserved",
                         v2_grpc_path_print(prefix, "parameters", path));
    }
    return ST_OK;
}

/* InferParameter is a oneof of five; the last member counts. Returns: false for a wrong type. */
static bool read_choice(const struct pb_field *field, struct param *out, bool *found) {
    static const enum pb_type types[] = {[BOOL] = PB_VARINT,
                                         [INT64] = PB_VARINT,
                                         [STRING] = PB_BYTES,
                                         [DOUBLE] = PB_FIXED64,
                                         [UINT64] = PB_VARINT};
    if (field->number < BOOL || field->number > UINT64) {
        return true;
    }
    if (field->type != types[field->number]) {
        return false;
    }
    *found = true;
    out->int64 = (int64_t)field->value;
    out->uint64 = field->value;
    switch (field->number) {
    case BOOL:
        out->kind = PARAM_BOOL;
        out->boolean = field->value != 0;
        break;
    case INT64:
        out->kind = PARAM_INT64;
        break;
    case UINT64:
        out->kind = field->value > INT64_MAX ? PARAM_UINT64 : PARAM_INT64;
        break;
    case DOUBLE:
        out->kind = PARAM_DOUBLE;
        memcpy(&out->number, &field->value, sizeof out->number);
        break;
    default:
        out->kind = PARAM_STRING;
        out->string = field->bytes;
        break;
    }
    return true;
}

static enum status read_value(struct str message, struct v2_grpc_path_prefix prefix,
                              struct param *out, bool *found, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    char path[V2_GRPC_PATH_BYTES];
    while (pb_next(&reader, &field)) {
        if (!read_choice(&field, out, found)) {
            return error_set(err, ST_BAD_FIELD, "%s: field %u of a value has a wrong type",
                             v2_grpc_path_print(prefix, "parameters", path), field.number);
        }
        if (field.number == STRING) {
            enum status st = v2_grpc_get_string(&field, prefix, "parameters", &out->string, err);
            if (st != ST_OK) {
                return st;
            }
        }
    }
    return reader.error_text ? pb_reader_error(&reader, "InferParameter", err) : ST_OK;
}

static enum status read_entry(struct str message, struct v2_grpc_path_prefix prefix,
                              struct param *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    bool found = false;
    out->name = STR(""); /* the default of a map's key */
    while (st == ST_OK && pb_next(&reader, &field)) {
        struct str value = {NULL, 0};
        if (field.number == KEY) {
            st = v2_grpc_get_string(&field, prefix, "parameters", &out->name, err);
        } else if (field.number == VALUE) {
            st = v2_grpc_get_message(&field, prefix, "parameters", &value, err);
            if (st == ST_OK) {
                st = read_value(value, prefix, out, &found, err);
            }
        }
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "map of parameters", err);
    }
    if (st == ST_OK && !found) {
        char path[V2_GRPC_PATH_BYTES];
        st = error_set(err, ST_BAD_FIELD, "%s: \"%.*s\" has no value",
                       v2_grpc_path_print(prefix, "parameters", path), STR_ARG(out->name));
    }
    return st;
}

enum status v2_grpc_params_read(struct arena *arena, struct str message, uint32_t number, size_t n,
                                enum v2_grpc_params_of of, struct v2_grpc_path_prefix prefix,
                                struct params *out, struct error *err) {
    *out = (struct params){NULL, 0};
    if (n == 0) {
        return ST_OK;
    }
    struct param *items = arena_calloc(arena, n, sizeof *items);
    if (!items) {
        return error_no_memory(err, "parameters");
    }
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    while (st == ST_OK && out->n < n && pb_next(&reader, &field)) {
        struct str entry = {NULL, 0};
        if (field.number != number) {
            continue;
        }
        st = v2_grpc_get_message(&field, prefix, "parameters", &entry, err);
        if (st == ST_OK) {
            st = read_entry(entry, prefix, &items[out->n], err);
        }
        if (st == ST_OK) {
            st = check_key(&items[out->n++], of, prefix, err);
        }
    }
    if (st == ST_OK && out->n > 1 && !params_dedup(arena, items, &out->n, PARAMS_KEEP_LAST)) {
        return error_no_memory(err, "parameters");
    }
    out->items = items;
    return st;
}

/* ---- regions --------------------------------------------------------------------------------- */

static enum status read_number(const struct param *param, struct v2_grpc_path_prefix prefix,
                               uint64_t *out, struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    if (param && (param->kind != PARAM_INT64 || param->int64 < 0)) {
        return error_set(err, ST_BAD_FIELD,
                         "%s: expected \"%.*s\" to be a whole number from 0 to 2^63-1",
                         v2_grpc_path_print(prefix, "parameters", path), STR_ARG(param->name));
    }
    *out = param ? (uint64_t)param->int64 : 0;
    return ST_OK;
}

enum status v2_grpc_region_read(struct params params, struct v2_grpc_path_prefix prefix,
                                struct infer_region *out, struct error *err) {
    const struct param *region = params_find(params, "shared_memory_region");
    const struct param *offset = params_find(params, "shared_memory_offset");
    const struct param *n_bytes = params_find(params, "shared_memory_byte_size");
    char path[V2_GRPC_PATH_BYTES];
    *out = (struct infer_region){{NULL, 0}, 0, 0};
    if (!region && !offset && !n_bytes) {
        return ST_OK;
    }
    if (!region || region->kind != PARAM_STRING || !n_bytes) {
        return error_set(err, ST_BAD_FIELD,
                         "%s: expected shared_memory_region, a string, and "
                         "shared_memory_byte_size together",
                         v2_grpc_path_print(prefix, "parameters", path));
    }
    out->name = region->string.ptr ? region->string : STR("");
    enum status st = read_number(offset, prefix, &out->offset, err);
    return st == ST_OK ? read_number(n_bytes, prefix, &out->n_bytes, err) : st;
}

/* ---- parameters: encoding -------------------------------------------------------------------- */

static void print_value(struct buf *out, const struct param *param) {
    size_t value = pb_begin(out, VALUE);
    switch (param->kind) {
    case PARAM_BOOL:
        pb_add_varint(out, BOOL, param->boolean);
        break;
    case PARAM_INT64:
        pb_add_varint(out, INT64, (uint64_t)param->int64);
        break;
    case PARAM_UINT64:
        pb_add_varint(out, UINT64, param->uint64);
        break;
    case PARAM_DOUBLE:
        pb_add_double(out, DOUBLE, param->number);
        break;
    case PARAM_STRING:
        pb_add_bytes(out, STRING, param->string);
        break;
    }
    pb_end(out, value);
}

static void print_entry(struct buf *out, uint32_t number, const struct param *param) {
    size_t entry = pb_begin(out, number);
    pb_add_bytes(out, KEY, param->name);
    print_value(out, param);
    pb_end(out, entry);
}

void v2_grpc_params_encode(struct buf *out, uint32_t number, struct params params) {
    for (size_t i = 0; i < params.n; i++) {
        print_entry(out, number, &params.items[i]);
    }
}

void v2_grpc_param_bool_encode(struct buf *out, uint32_t number, struct str name, bool value) {
    print_entry(out, number, &(struct param){.name = name, .kind = PARAM_BOOL, .boolean = value});
}

/* ---- typed contents -------------------------------------------------------------------------- */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "elements are stored as they are in memory");

enum list { BOOLS = 1, INTS, INT64S, UINTS, UINT64S, FP32S, FP64S, BYTES_LIST, N_LISTS };

static const char *const LIST_NAMES[N_LISTS] = {
    [BOOLS] = "bool_contents", [INTS] = "int_contents",         [INT64S] = "int64_contents",
    [UINTS] = "uint_contents", [UINT64S] = "uint64_contents",   [FP32S] = "fp32_contents",
    [FP64S] = "fp64_contents", [BYTES_LIST] = "bytes_contents",
};

/* The list that carries a datatype; 0: raw contents only. */
static const struct kind {
    enum list list;
    int64_t low; /* range of integers that are narrower than their list */
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

/* Position in the contents. */
struct contents {
    struct v2_grpc_path_prefix prefix;
    enum datatype datatype;
    const struct kind *kind;
    uint64_t n; /* number of elements */
    size_t n_bytes;
    unsigned char *out; /* NULL while counting */
    size_t at;
};

/* The wire type of unpacked elements. */
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

/* An int32 is sent as 64 bits with sign extension, a uint32 as 32 bits. Values that do not fit
 * are errors; they are not truncated. */
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
                                  "its size is not a multiple of the element size", err);
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
        bytes_encode_length(contents->out + contents->at, (uint32_t)field->bytes.len);
        contents->at += sizeof(uint32_t);
        if (field->bytes.len > 0) {
            memcpy(contents->out + contents->at, field->bytes.ptr, field->bytes.len);
        }
        contents->at += field->bytes.len;
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
        return error_set(err, ST_BAD_FIELD, "%s: %s is allowed in raw_input_contents only", path,
                         datatype_name(contents->datatype));
    }
    return error_set(err, ST_BAD_FIELD, "%s: expected %s for %s, got %s", path,
                     LIST_NAMES[contents->kind->list], datatype_name(contents->datatype),
                     LIST_NAMES[number]);
}

static enum status decode_contents(struct contents *contents, struct str message,
                                   struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next(&reader, &field)) {
        bool is_empty = field.type == PB_BYTES && field.bytes.len == 0; /* packed: as absent */
        if (field.number == 0 || field.number >= N_LISTS ||
            (is_empty && field.number != BYTES_LIST)) {
            continue;
        }
        st = field.number == (uint32_t)contents->kind->list
                 ? decode_list(contents, &field, err)
                 : wrong_list(contents, field.number, err);
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, "InferTensorContents", err)
                                            : st;
}

/* Decodes all fields `number` of the message: a repeated one is merged. */
static enum status decode_all_contents(struct contents *contents, struct str message,
                                       uint32_t number, bool *present, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *present = false;
    while (st == ST_OK && pb_next(&reader, &field)) {
        struct str inner = {NULL, 0};
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
        return error_no_memory(err, "the contents of a tensor");
    }
    st = decode_all_contents(&contents, message, number, present, err);
    *piece = (struct piece){contents.out, contents.n_bytes};
    tensor->pieces = piece;
    tensor->n_pieces = contents.n_bytes > 0;
    tensor->n_bytes = contents.n_bytes;
    return st;
}

/* ---- typed contents: encoding ---------------------------------------------------------------- */

bool v2_grpc_contents_have(enum datatype datatype) {
    return KINDS[datatype].list != 0;
}

/* Packed numbers of fixed width are little-endian. */
bool v2_grpc_contents_are_bytes(enum datatype datatype) {
    return datatype == DT_FP32 || datatype == DT_FP64;
}

static size_t varint_bytes(uint64_t value) {
    return (size_t)(70 - __builtin_clzll(value | 1)) / 7; /* the bits, in groups of 7 */
}

static char *put_varint(char *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        *out++ = (char)(value | 0x80);
    }
    *out++ = (char)value;
    return out;
}

/* The integer at `data` as its list sends it: an int32 with its sign in 64 bits. */
static inline uint64_t load_integer(const char *data, size_t size, bool is_signed) {
    uint64_t bits = 0;
    memcpy(&bits, data, size);
    unsigned shift = (unsigned)(64 - 8 * size);
    return is_signed ? (uint64_t)((int64_t)(bits << shift) >> shift) : bits;
}

/* A backend may return any byte for true. */
static bool encode_bools(struct arena *arena, struct str all, struct piece *out) {
    char *data = arena_alloc(arena, all.len);
    for (size_t i = 0; data && i < all.len; i++) {
        data[i] = all.ptr[i] != 0;
    }
    *out = (struct piece){data, all.len};
    return data != NULL;
}

/* Encodes packed varints. */
static bool encode_integers(struct arena *arena, struct str all, enum datatype datatype,
                            struct piece *out) {
    size_t size = datatype_size(datatype), n_bytes = 0, n = all.len / size;
    bool is_signed = KINDS[datatype].list == INTS || KINDS[datatype].list == INT64S;
    for (size_t i = 0; i < n; i++) {
        n_bytes += varint_bytes(load_integer(all.ptr + i * size, size, is_signed));
    }
    char *data = arena_alloc(arena, n_bytes), *to = data;
    for (size_t i = 0; data && i < n; i++) {
        to = put_varint(to, load_integer(all.ptr + i * size, size, is_signed));
    }
    *out = (struct piece){data, n_bytes};
    return data != NULL;
}

/* Encodes the fields of bytes_contents, each with its tag. Returns: ST_BAD_OUTPUT where the framing
 * of BYTES is broken. */
static enum status encode_strings(struct arena *arena, const struct tensor *tensor, struct str all,
                                  struct piece *out, struct error *err) {
    struct str element, rest = all;
    size_t n_bytes = 0;
    while (bytes_next(&rest, &element)) {
        n_bytes += pb_head_bytes(BYTES_LIST, element.len) + element.len;
    }
    if (rest.len > 0) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_BAD_OUTPUT, "output %s: its last BYTES element is cut",
                         quote_name(tensor->name, name));
    }
    char *data = arena_alloc(arena, n_bytes), *to = data;
    if (!data) {
        return error_no_memory(err, "the contents of a tensor");
    }
    for (rest = all; bytes_next(&rest, &element);) {
        to = put_varint(put_varint(to, BYTES_LIST << 3 | PB_BYTES), element.len);
        if (element.len > 0) {
            memcpy(to, element.ptr, element.len);
        }
        to += element.len;
    }
    *out = (struct piece){data, n_bytes};
    return ST_OK;
}

/* Encodes the elements, which are in `all`. */
static enum status convert(struct arena *arena, const struct tensor *tensor, struct str all,
                           struct piece *out, struct error *err) {
    if (tensor->datatype == DT_BYTES) {
        return encode_strings(arena, tensor, all, out, err);
    }
    bool done = tensor->datatype == DT_BOOL ? encode_bools(arena, all, out)
                                            : encode_integers(arena, all, tensor->datatype, out);
    return done ? ST_OK : error_no_memory(err, "the contents of a tensor");
}

enum status v2_grpc_contents_encode(struct arena *arena, const struct tensor *tensor,
                                    char head[V2_GRPC_LIST_HEAD_BYTES], size_t *n_head,
                                    struct tensor *payload, struct error *err) {
    assert(v2_grpc_contents_have(tensor->datatype));
    *payload = *tensor;
    *n_head = 0;
    if (tensor->n_bytes > 0 && !v2_grpc_contents_are_bytes(tensor->datatype)) {
        struct piece *piece = arena_alloc(arena, sizeof *piece);
        struct str all = element_gather(arena, tensor);
        if (!piece || !all.ptr) {
            return error_no_memory(err, "the contents of a tensor");
        }
        enum status st = convert(arena, tensor, all, piece, err);
        if (st != ST_OK) {
            return st;
        }
        payload->pieces = piece;
        payload->n_pieces = piece->n_bytes > 0;
        payload->n_bytes = piece->n_bytes;
    }
    if (payload->n_bytes > 0 && tensor->datatype != DT_BYTES) {
        uint64_t tag = (uint64_t)KINDS[tensor->datatype].list << 3 | PB_BYTES;
        *n_head = (size_t)(put_varint(put_varint(head, tag), payload->n_bytes) - head);
    }
    return ST_OK;
}

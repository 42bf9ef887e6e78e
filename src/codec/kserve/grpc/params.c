/* Parameters over gRPC: map<string, InferParameter>, read and written. Which keys are the wire's
 * own is the same as over HTTP, but for those that only speak of JSON and binary. */
#include "codec/kserve/grpc/fields.h"

enum { KEY = 1, VALUE = 2, BOOL = 1, INT64 = 2, STRING = 3, DOUBLE = 4, UINT64 = 5 };

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
    if (of != V2_GRPC_OF_RESPONSE && str_starts_with(param->name, STR("triton_"))) {
        return error_set(err, ST_BAD_FIELD, "%s: names that begin with \"triton_\" are reserved",
                         v2_grpc_path_print(prefix, "parameters", path));
    }
    return ST_OK;
}

/* InferParameter: one of five; the last that is there counts. Returns: false for another type. */
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
    out->name = STR(""); /* a map's key that is left out is the default */
    while (st == ST_OK && pb_next(&reader, &field)) {
        struct str value;
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
        return error_set(err, ST_NO_MEMORY, "no memory for parameters");
    }
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    while (st == ST_OK && out->n < n && pb_next(&reader, &field)) {
        struct str entry;
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
        return error_set(err, ST_NO_MEMORY, "no memory for parameters");
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

/* ---- writing --------------------------------------------------------------------------------- */

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

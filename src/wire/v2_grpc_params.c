/* Parameters over gRPC: map<string, InferParameter>, read and written. Which keys are the wire's
 * own is the same as over HTTP, but for those that only speak of JSON and binary. */
#include "wire/v2_grpc_fields.h"

enum { KEY = 1, VALUE = 2, BOOL = 1, INT64 = 2, STRING = 3, DOUBLE = 4, UINT64 = 5 };

/* Keys of extensions that are not there (yet). */
static const struct str UNSUPPORTED[] = {
    {"shared_memory_region", 20},
    {"shared_memory_offset", 20},
    {"shared_memory_byte_size", 23},
};

static enum status check_key(const struct param *param, enum v2_grpc_params_of of,
                             struct v2_grpc_place place, struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    if (of != V2_GRPC_OF_ANSWER && str_starts(param->name, STR("triton_"))) {
        return error_set(err, ST_BAD_FIELD, "%s: names that begin with \"triton_\" are reserved",
                         v2_grpc_path(place, "parameters", path));
    }
    for (size_t i = 0; of == V2_GRPC_OF_TENSOR && i < sizeof UNSUPPORTED / sizeof UNSUPPORTED[0];
         i++) {
        if (str_eq(param->name, UNSUPPORTED[i])) {
            return error_set(err, ST_UNSUPPORTED, "%s: the extension of \"%.*s\" is not supported",
                             v2_grpc_path(place, "parameters", path), STR_ARG(param->name));
        }
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

static enum status read_value(struct str message, struct v2_grpc_place place, struct param *out,
                              bool *found, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    char path[V2_GRPC_PATH_BYTES];
    while (pb_next(&reader, &field)) {
        if (!read_choice(&field, out, found)) {
            return error_set(err, ST_BAD_FIELD, "%s: field %u of a value has a wrong type",
                             v2_grpc_path(place, "parameters", path), field.number);
        }
        if (field.number == STRING) {
            enum status st = v2_grpc_take_string(&field, place, "parameters", &out->string, err);
            if (st != ST_OK) {
                return st;
            }
        }
    }
    return reader.broken ? pb_broken(&reader, "InferParameter", err) : ST_OK;
}

static enum status read_entry(struct str message, struct v2_grpc_place place, struct param *out,
                              struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    bool found = false;
    out->name = STR(""); /* a map's key that is left out is the default */
    while (st == ST_OK && pb_next(&reader, &field)) {
        struct str value;
        if (field.number == KEY) {
            st = v2_grpc_take_string(&field, place, "parameters", &out->name, err);
        } else if (field.number == VALUE) {
            st = v2_grpc_take_message(&field, place, "parameters", &value, err);
            if (st == ST_OK) {
                st = read_value(value, place, out, &found, err);
            }
        }
    }
    if (st == ST_OK && reader.broken) {
        st = pb_broken(&reader, "map of parameters", err);
    }
    if (st == ST_OK && !found) {
        char path[V2_GRPC_PATH_BYTES];
        st = error_set(err, ST_BAD_FIELD, "%s: \"%.*s\" has no value",
                       v2_grpc_path(place, "parameters", path), STR_ARG(out->name));
    }
    return st;
}

enum status v2_grpc_params_read(struct arena *arena, struct str message, uint32_t number, size_t n,
                                enum v2_grpc_params_of of, struct v2_grpc_place place,
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
        st = v2_grpc_take_message(&field, place, "parameters", &entry, err);
        if (st == ST_OK) {
            st = read_entry(entry, place, &items[out->n], err);
        }
        if (st == ST_OK) {
            st = check_key(&items[out->n++], of, place, err);
        }
    }
    if (st == ST_OK && out->n > 1 && !params_unique(arena, items, &out->n, PARAMS_KEEP_LAST)) {
        return error_set(err, ST_NO_MEMORY, "no memory for parameters");
    }
    out->items = items;
    return st;
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

void v2_grpc_params_print(struct buf *out, uint32_t number, struct params params) {
    for (size_t i = 0; i < params.n; i++) {
        print_entry(out, number, &params.items[i]);
    }
}

void v2_grpc_param_print_bool(struct buf *out, uint32_t number, struct str name, bool value) {
    print_entry(out, number, &(struct param){.name = name, .kind = PARAM_BOOL, .boolean = value});
}

/* Parameters: JSON members to named values. One table lists the keys of the protocol itself. */
#include "codec/kserve/params.h"

#include "codec/json/tree.h"

enum wire_key {
    KEY_SIZE,
    KEY_FORM,
    KEY_CLASSIFICATION,
    KEY_REGION,
    KEY_OFFSET,
    KEY_BYTES,
    KEY_NON_FINITE
};

/* The protocol's own keys, by the object that has them. */
static const struct wire_row {
    enum v2_params_of of;
    struct str name;
    enum wire_key key;
} wire_rows[] = {
    {V2_PARAMS_OF_REQUEST, {"binary_data_output", 18}, KEY_FORM},
    {V2_PARAMS_OF_REQUEST, {"non_finite", 10}, KEY_NON_FINITE},
    {V2_PARAMS_OF_INPUT, {"binary_data_size", 16}, KEY_SIZE},
    {V2_PARAMS_OF_INPUT, {"shared_memory_region", 20}, KEY_REGION},
    {V2_PARAMS_OF_INPUT, {"shared_memory_offset", 20}, KEY_OFFSET},
    {V2_PARAMS_OF_INPUT, {"shared_memory_byte_size", 23}, KEY_BYTES},
    {V2_PARAMS_OF_REQUESTED_OUTPUT, {"binary_data", 11}, KEY_FORM},
    {V2_PARAMS_OF_REQUESTED_OUTPUT, {"classification", 14}, KEY_CLASSIFICATION},
    {V2_PARAMS_OF_REQUESTED_OUTPUT, {"shared_memory_region", 20}, KEY_REGION},
    {V2_PARAMS_OF_REQUESTED_OUTPUT, {"shared_memory_offset", 20}, KEY_OFFSET},
    {V2_PARAMS_OF_REQUESTED_OUTPUT, {"shared_memory_byte_size", 23}, KEY_BYTES},
    {V2_PARAMS_OF_OUTPUT, {"binary_data_size", 16}, KEY_SIZE},
};

enum { N_WIRE_ROWS = sizeof(wire_rows) / sizeof(wire_rows[0]) };

static const struct wire_row *wire_row_find(enum v2_params_of of, struct str name) {
    for (size_t i = 0; i < N_WIRE_ROWS; i++) {
        if (wire_rows[i].of == of && str_eq(name, wire_rows[i].name)) {
            return &wire_rows[i];
        }
    }
    return NULL;
}

/* Of equal keys the first counts; *first is its value. */
static enum status read_count(const struct json_tree *tree, yyjson_val *val, yyjson_val **first,
                              uint64_t *out, struct error *err) {
    uint64_t count;
    enum status status = json_read_u64(tree, val, &count, err);
    if (status == ST_OK && !*first) {
        *first = val;
        *out = count;
    }
    return status;
}

static enum status read_form(const struct json_tree *tree, yyjson_val *val,
                             struct v2_protocol_params *wire, struct error *err) {
    bool binary;
    enum status status = json_read_bool(tree, val, &binary, err);
    if (status == ST_OK && wire->form == V2_FORM_DEFAULT) {
        wire->form = binary ? V2_FORM_BINARY : V2_FORM_JSON;
    }
    return status;
}

enum status v2_non_finite_read(const struct json_tree *tree, yyjson_val *val,
                               enum v2_non_finite *out, struct error *err) {
    enum v2_non_finite non_finite =
        json_is_string(val) ? v2_non_finite_parse(json_str(val)) : V2_NON_FINITE_DEFAULT;
    if (non_finite == V2_NON_FINITE_DEFAULT) {
        return json_error_got(tree, val, ST_BAD_FIELD, err,
                              "expected \"words\", \"null\" or \"strings\"");
    }
    *out = *out == V2_NON_FINITE_DEFAULT ? non_finite : *out;
    return ST_OK;
}

/* A region needs its size, and is the only place of the tensor's bytes. */
static enum status check_region(const struct json_tree *tree, yyjson_val *object,
                                const struct v2_protocol_params *wire, struct error *err) {
    if (!wire->region.name.ptr && (wire->offset || wire->bytes)) {
        return json_error_missing(tree, object, "shared_memory_region", "a string", err);
    }
    if (wire->region.name.ptr && !wire->bytes) {
        return json_error_missing(tree, object, "shared_memory_byte_size", "a whole number", err);
    }
    if (wire->region.name.ptr &&
        (wire->size || wire->form == V2_FORM_BINARY || wire->n_classes > 0)) {
        return json_error(tree, object, ST_BAD_FIELD, err,
                          "shared_memory_region: expected none of binary_data_size, binary_data "
                          "and classification beside it");
    }
    return ST_OK;
}

static enum status read_wire(const struct json_tree *tree, yyjson_val *val, enum wire_key key,
                             struct v2_protocol_params *wire, struct error *err) {
    enum status status = ST_OK;
    struct str region;
    switch (key) {
    case KEY_SIZE:
        status = read_count(tree, val, &wire->size, &wire->n_bytes, err);
        break;
    case KEY_FORM:
        status = read_form(tree, val, wire, err);
        break;
    case KEY_CLASSIFICATION:
        status = read_count(tree, val, &wire->classification, &wire->n_classes, err);
        break;
    case KEY_REGION:
        status = json_read_string(tree, val, &region, err);
        if (status == ST_OK && !wire->region.name.ptr) {
            wire->region.name = region;
        }
        break;
    case KEY_OFFSET:
        status = read_count(tree, val, &wire->offset, &wire->region.offset, err);
        break;
    case KEY_BYTES:
        status = read_count(tree, val, &wire->bytes, &wire->region.n_bytes, err);
        break;
    case KEY_NON_FINITE:
        status = v2_non_finite_read(tree, val, &wire->non_finite, err);
        break;
    }
    return status;
}

enum status v2_param_value_read(const struct json_tree *tree, yyjson_val *val, struct param *out,
                                struct error *err) {
    switch (json_kind_of(val)) {
    case JSON_BOOL:
        out->kind = PARAM_BOOL;
        out->boolean = json_bool(val);
        return ST_OK;
    case JSON_UINT:
        out->kind = val->uni.u64 > INT64_MAX ? PARAM_UINT64 : PARAM_INT64;
        out->uint64 = val->uni.u64;
        out->int64 = val->uni.i64;
        return ST_OK;
    case JSON_SINT:
        out->kind = PARAM_INT64;
        out->int64 = val->uni.i64;
        return ST_OK;
    case JSON_REAL:
        out->kind = PARAM_DOUBLE;
        out->number = val->uni.f64;
        return ST_OK;
    case JSON_STRING:
        out->kind = PARAM_STRING;
        out->string = json_str(val);
        return ST_OK;
    case JSON_RAW:
        return json_error_got(tree, val, ST_BAD_FIELD, err,
                              "expected a finite number that fits 64 bits");
    case JSON_ABSENT:
    case JSON_NULL:
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    return json_error_got(tree, val, ST_BAD_FIELD, err, "expected a string, a number or a boolean");
}

/* ---- all parameters of an object ------------------------------------------------------------- */

enum status v2_params_read(const struct json_tree *tree, yyjson_val *object, enum v2_params_of of,
                           struct v2_protocol_params *wire, struct params *out, struct error *err) {
    *wire = (struct v2_protocol_params){0};
    *out = (struct params){0};
    enum status status = json_expect_object(tree, object, err);
    size_t n = status == ST_OK ? json_count(object) : 0;
    struct param *items = NULL;
    yyjson_val *key = n > 0 ? json_first(object) : NULL;
    for (size_t i = 0; status == ST_OK && i < n; i++, key = json_next(json_value(key))) {
        struct str name = json_str(key);
        yyjson_val *val = json_value(key);
        const struct wire_row *row = wire_row_find(of, name);
        if (json_is_null(val)) {
            continue;
        }
        if (row) {
            status = read_wire(tree, val, row->key, wire, err);
        } else if (str_starts_with(name, STR("triton_"))) {
            status = json_error(tree, val, ST_BAD_FIELD, err,
                                "parameters whose names begin with \"triton_\" are reserved");
        } else if (of != V2_PARAMS_OF_OUTPUT) {
            if (!items) { /* most objects have only the protocol's own */
                items = arena_calloc(tree->arena, n - i, sizeof(*items));
            }
            if (!items) {
                return error_no_memory(err, "parameters");
            }
            items[out->n].name = name;
            status = v2_param_value_read(tree, val, &items[out->n++], err);
        }
    }
    if (status == ST_OK) {
        status = check_region(tree, object, wire, err);
    }
    if (status == ST_OK && items && out->n > 1 &&
        !params_dedup(tree->arena, items, &out->n, PARAMS_KEEP_FIRST)) {
        return error_no_memory(err, "parameters");
    }
    out->items = items;
    return status;
}

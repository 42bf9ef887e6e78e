/* Parameters, tensor heads and pieces of encoded requests and responses. */
#include "codec/kserve/encode.h"

#include <assert.h>
#include <math.h>

#include "codec/kserve/json_elements_print.h"
#include "core/base/utf8.h"

enum status v2_param_write(struct json_writer *json, const struct param *param, struct error *err) {
    char name[QUOTED_NAME_BYTES];
    switch (param->kind) {
    case PARAM_BOOL:
        json_write_bool(json, JSON_ELEMENT, param->boolean);
        break;
    case PARAM_INT64:
        json_write_i64(json, JSON_ELEMENT, param->int64);
        break;
    case PARAM_UINT64:
        json_write_u64(json, JSON_ELEMENT, param->uint64);
        break;
    case PARAM_DOUBLE:
        if (!isfinite(param->number)) {
            return error_set(err, ST_BAD_DATA, "parameter %s: JSON can't represent %g",
                             quote_name(param->name, name), param->number);
        }
        v2_data_print_doubles(json_write_begin(json, JSON_ELEMENT),
                              (const unsigned char *)&param->number, 1);
        json->out->len -= !json->out->failed; /* the comma after it */
        break;
    case PARAM_STRING:
        if (!utf8_is_valid(param->string.ptr, param->string.len)) {
            return error_set(err, ST_BAD_DATA, "parameter %s: its text is not UTF-8",
                             quote_name(param->name, name));
        }
        json_write_string(json, JSON_ELEMENT, param->string);
        break;
    }
    return ST_OK;
}

enum status v2_params_write(struct json_writer *json, struct params params, struct error *err) {
    enum status status = ST_OK;
    for (size_t i = 0; status == ST_OK && i < params.n; i++) {
        const struct param *param = &params.items[i];
        if (!utf8_is_valid(param->name.ptr, param->name.len)) {
            return error_set(err, ST_BAD_DATA, "the name of parameter %zu is not UTF-8", i);
        }
        json_write_key_str(json, param->name);
        status = v2_param_write(json, param, err);
    }
    return status;
}

void v2_tensor_head_write(struct json_writer *json, const struct tensor *tensor) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_key(json, "name");
    json_write_string(json, JSON_ELEMENT, tensor->name);
    json_write_key(json, "datatype");
    json_write_string(json, JSON_ELEMENT, str_of(datatype_name(tensor->datatype)));
    json_write_key(json, "shape");
    json_write_i64s(json, JSON_ELEMENT, tensor->shape.dims, tensor->shape.rank);
}

enum status v2_tensor_check_size(const char *kind, const struct tensor *tensor, struct error *err) {
    uint64_t n_bytes;
    if (tensor->datatype == DT_BYTES ||
        (shape_bytes(tensor->shape, tensor->datatype, &n_bytes) && n_bytes == tensor->n_bytes)) {
        return ST_OK;
    }
    char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_DATA, "%s %s: %zu bytes don't fit %s of shape %s", kind,
                     quote_name(tensor->name, name), tensor->n_bytes,
                     datatype_name(tensor->datatype), shape_print(tensor->shape, shape));
}

enum status v2_output_error(enum status status, struct error *err) {
    if (status != ST_BAD_DATA && status != ST_NOT_UTF8) {
        return status;
    }
    if (err) {
        err->status = ST_BAD_OUTPUT;
    }
    return ST_BAD_OUTPUT;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

bool v2_pieces_init(struct v2_pieces *pieces, struct arena *arena, size_t n_tensor_pieces) {
    size_t max = n_tensor_pieces + 1;
    *pieces = (struct v2_pieces){.n = 1, .max = max};
    pieces->items = arena_calloc(arena, max, sizeof(*pieces->items));
    return pieces->items != NULL;
}

void v2_pieces_add(struct v2_pieces *pieces, const struct tensor *tensor) {
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        if (tensor->pieces[i].n_bytes > 0) {
            assert(pieces->n < pieces->max);
            pieces->items[pieces->n++] = tensor->pieces[i];
            pieces->n_bytes += tensor->pieces[i].n_bytes;
        }
    }
}

const struct piece *v2_pieces_finish(struct v2_pieces *pieces, struct str json) {
    pieces->n_bytes += json.len;
    if (json.len == 0) {
        pieces->n--;
        return pieces->items + 1;
    }
    pieces->items[0] = (struct piece){json.ptr, json.len};
    return pieces->items;
}

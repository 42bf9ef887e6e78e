/* Requests of generate: one walk over the members, in the order of the text; the shape of the
 * elements follows from the model. Answers: the few members are sorted before they are printed. */
#include "codec/kserve/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json/tree.h"
#include "codec/kserve/encode.h"
#include "codec/kserve/json_elements.h"
#include "codec/kserve/json_elements_print.h"
#include "codec/kserve/params.h"
#include "core/base/checked.h"
#include "core/base/plural.h"
#include "core/base/utf8.h"

/* ---- requests -------------------------------------------------------------------------------- */

struct reader {
    struct json_tree tree;
    const struct model_spec *model;
    const struct json_limits *limits;
    uint64_t max_bytes;
    struct infer_request *out;
    struct infer_input *inputs; /* capacity: one per input of the model */
    size_t n_bytes;             /* sum of all tensors */
    struct param *params;       /* capacity: one per member */
    size_t n_params;
    enum v2_non_finite *non_finite;
    struct json_span *floats; /* where NaN and infinities are allowed; capacity as `inputs` */
    size_t n_floats;
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* Counts the elements in `val`, one element or a flat array of them. */
static enum status count_elements(const struct reader *reader, yyjson_val *val, uint64_t *n,
                                  struct error *err) {
    *n = 1;
    if (json_is_object(val)) {
        return json_error_got(&reader->tree, val, ST_BAD_FIELD, err,
                              "expected an element of the input, or an array of elements");
    }
    if (!json_is_array(val)) {
        return ST_OK;
    }
    *n = json_count(val);
    yyjson_val *element = *n > 0 ? json_first(val) : NULL;
    for (uint64_t i = 0; i < *n; i++, element = json_next(element)) {
        if (json_is_container(element)) {
            return json_error_got(&reader->tree, element, ST_BAD_FIELD, err,
                                  "expected an element: the array must be flat");
        }
    }
    return ST_OK;
}

static enum status wrong_count(const struct reader *reader, yyjson_val *val,
                               const struct tensor_spec *spec, uint64_t n, struct error *err) {
    char text[SHAPE_TEXT_BYTES], origin[ORIGIN_TEXT_BYTES];
    return json_error(&reader->tree, val, ST_BAD_DATA, err,
                      "%" PRIu64 " element%s don't make the input's shape %s (-1: any size)%s", n,
                      plural_s(n), shape_print(spec->shape, text),
                      tensor_origin_print(reader->model, spec->origin, origin));
}

/* The innermost -1 becomes the quotient of the element count and the fixed dimensions. */
static enum status deduce_shape(const struct reader *reader, yyjson_val *val,
                                const struct tensor_spec *spec, uint64_t n, struct shape *out,
                                struct error *err) {
    size_t rank = spec->shape.rank, variable = SIZE_MAX;
    int64_t *dims = arena_alloc(reader->tree.arena, rank * sizeof(*dims));
    uint64_t fixed;
    if (!dims) {
        return json_error(&reader->tree, val, ST_NO_MEMORY, err, "out of memory for the shape");
    }
    for (size_t i = 0; i < rank; i++) {
        bool any = spec->shape.dims[i] < 0;
        dims[i] = any ? 1 : spec->shape.dims[i];
        variable = any ? i : variable;
    }
    *out = (struct shape){dims, rank};
    if (!shape_elements(*out, &fixed) || (variable == SIZE_MAX && fixed != n) ||
        (variable != SIZE_MAX && (fixed == 0 || n % fixed != 0))) {
        return wrong_count(reader, val, spec, n, err);
    }
    if (variable != SIZE_MAX) {
        dims[variable] = (int64_t)(n / fixed);
    }
    return ST_OK;
}

static enum status read_tensor(struct reader *reader, size_t i, yyjson_val *val,
                               struct error *err) {
    const struct tensor_spec *spec = &reader->model->inputs[i];
    struct infer_input *input = &reader->inputs[reader->out->n_inputs];
    struct tensor *tensor = &input->tensor;
    uint64_t n;
    for (size_t k = 0; k < reader->out->n_inputs; k++) {
        if (str_eq(reader->inputs[k].tensor.name, spec->name)) {
            return json_error(&reader->tree, val, ST_BAD_INPUTS, err, "duplicate input");
        }
    }
    *input = (struct infer_input){.tensor = {.name = spec->name, .datatype = spec->datatype}};
    if (spec->datatype == DT_FP16 || spec->datatype == DT_BF16) {
        return json_error(&reader->tree, val, ST_BAD_FIELD, err,
                          "generate does not support %s inputs, infer does",
                          datatype_name(spec->datatype));
    }
    enum status st = count_elements(reader, val, &n, err);
    if (st == ST_OK) {
        st = deduce_shape(reader, val, spec, n, &tensor->shape, err);
    }
    if (st == ST_OK) {
        st = v2_shape_count(&reader->tree, val, tensor->shape, reader->limits, &n, err);
    }
    if (st == ST_OK) {
        st = v2_data_read_counted(&reader->tree, val, n, tensor, err);
    }
    if (st == ST_OK && (!checked_add(reader->n_bytes, tensor->n_bytes, &reader->n_bytes) ||
                        reader->n_bytes > reader->max_bytes)) {
        st = json_error(&reader->tree, val, ST_BODY_TOO_LARGE, err,
                        "the inputs take more than %" PRIu64 " bytes (--max-body-size)",
                        reader->max_bytes);
    }
    if (st == ST_OK && datatype_is_float(spec->datatype)) {
        reader->floats[reader->n_floats++] = json_value_span(val);
    }
    reader->out->n_inputs++;
    return st;
}

/* ---- members --------------------------------------------------------------------------------- */

static enum status read_param(struct reader *reader, struct str name, yyjson_val *val,
                              struct error *err) {
    if (str_starts_with(name, STR("triton_"))) {
        return json_error(&reader->tree, val, ST_BAD_FIELD, err,
                          "parameters whose names begin with \"triton_\" are reserved");
    }
    if (str_is(name, "non_finite")) {
        return v2_non_finite_read(&reader->tree, val, reader->non_finite, err);
    }
    struct param *param = &reader->params[reader->n_params++];
    param->name = name;
    return v2_param_value_read(&reader->tree, val, param, err);
}

static enum status read_member(struct reader *reader, struct str name, yyjson_val *val,
                               struct error *err) {
    size_t i = tensor_spec_find(reader->model->inputs, reader->model->n_inputs, name);
    if (i != SIZE_MAX) {
        return read_tensor(reader, i, val, err);
    }
    if (str_is(name, "id")) {
        struct str id;
        enum status st = json_read_string(&reader->tree, val, &id, err);
        if (st != ST_OK) {
            return st;
        }
        reader->out->id = reader->out->id.ptr ? reader->out->id : id;
    }
    return read_param(reader, name, val, err);
}

static bool is_parameters(const struct reader *reader, struct str name) {
    return str_is(name, "parameters") &&
           tensor_spec_find(reader->model->inputs, reader->model->n_inputs, name) == SIZE_MAX;
}

/* The members of "parameters". */
static enum status read_parameters(struct reader *reader, yyjson_val *object, struct error *err) {
    enum status st = json_expect_object(&reader->tree, object, err);
    size_t n = st == ST_OK ? json_count(object) : 0;
    yyjson_val *key = n > 0 ? json_first(object) : NULL;
    for (size_t i = 0; st == ST_OK && i < n; i++, key = json_next(json_value(key))) {
        if (!json_is_null(json_value(key))) {
            st = read_member(reader, json_str(key), json_value(key), err);
        }
    }
    return st;
}

/* The members of the body. */
static enum status read_members(struct reader *reader, yyjson_val *object, struct error *err) {
    enum status st = ST_OK;
    size_t n = json_count(object);
    yyjson_val *key = n > 0 ? json_first(object) : NULL;
    for (size_t i = 0; st == ST_OK && i < n; i++, key = json_next(json_value(key))) {
        yyjson_val *val = json_value(key);
        if (json_is_null(val)) {
            continue;
        }
        st = is_parameters(reader, json_str(key)) ? read_parameters(reader, val, err)
                                                  : read_member(reader, json_str(key), val, err);
    }
    return st;
}

/* Every member may be a parameter. */
static bool alloc_arrays(struct reader *reader) {
    struct arena *arena = reader->tree.arena;
    size_t n_inputs = reader->model->n_inputs;
    size_t n_members = 0;
    yyjson_val *root = reader->tree.root;
    yyjson_val *key = json_count(root) > 0 ? json_first(root) : NULL;
    for (size_t i = 0; i < json_count(root); i++, key = json_next(json_value(key))) {
        yyjson_val *val = json_value(key);
        n_members += 1 + (json_is_object(val) ? json_count(val) : 0);
    }
    reader->inputs = arena_calloc(arena, n_inputs, sizeof(*reader->inputs));
    reader->floats = arena_calloc(arena, n_inputs, sizeof(*reader->floats));
    reader->params = arena_calloc(arena, n_members, sizeof(*reader->params));
    return reader->inputs && reader->floats && reader->params;
}

static enum status read_request(struct reader *reader, struct error *err) {
    enum status st = json_expect_object(&reader->tree, reader->tree.root, err);
    if (st == ST_OK && !alloc_arrays(reader)) {
        return error_no_memory(err, "the request");
    }
    if (st == ST_OK) {
        st = read_members(reader, reader->tree.root, err);
    }
    if (st == ST_OK && reader->tree.non_finite) {
        st = json_tree_check_finite(&reader->tree, reader->floats, reader->n_floats, err);
    }
    if (st == ST_OK && reader->n_params > 1 &&
        !params_dedup(reader->tree.arena, reader->params, &reader->n_params, PARAMS_KEEP_FIRST)) {
        return error_no_memory(err, "the request");
    }
    reader->out->inputs = reader->inputs;
    reader->out->params = (struct params){reader->params, reader->n_params};
    return st;
}

enum status v2_generate_decode(struct arena *arena, struct str body, const struct model_spec *model,
                               const struct json_limits *limits, uint64_t max_bytes,
                               struct infer_request *out, enum v2_non_finite *non_finite,
                               struct error *err) {
    struct reader reader = {.model = model,
                            .limits = limits,
                            .max_bytes = max_bytes,
                            .out = out,
                            .non_finite = non_finite};
    *non_finite = V2_NON_FINITE_DEFAULT;
    *out = (struct infer_request){.arena = arena, .batch = 1, .params_are_opaque = true};
    enum status st = json_tree_parse(&reader.tree, "the request", arena, body, limits, err);
    if (st == ST_OK) {
        st = read_request(&reader, err);
        json_tree_free_values(&reader.tree);
    }
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Of equal names, the first kind in this order is printed. */
enum member_kind { OUTPUT, PARAM, TEXT };

struct member {
    struct str name;
    enum member_kind kind;
    const struct tensor *output;
    const struct param *param;
    struct str text;
};

static int compare_members(const void *left, const void *right) {
    const struct member *a = left, *b = right;
    size_t n = a->name.len < b->name.len ? a->name.len : b->name.len;
    int order = n > 0 ? memcmp(a->name.ptr, b->name.ptr, n) : 0;
    if (order == 0 && a->name.len != b->name.len) {
        order = a->name.len < b->name.len ? -1 : 1;
    }
    return order != 0 ? order : (int)a->kind - (int)b->kind;
}

static size_t list_members(struct member *members, const struct model_spec *model, struct str id,
                           const struct infer_response *response) {
    size_t n = 0;
    if (id.len > 0) {
        members[n++] = (struct member){.name = STR("id"), .kind = TEXT, .text = id};
    }
    members[n++] = (struct member){.name = STR("model_name"), .kind = TEXT, .text = model->name};
    members[n++] =
        (struct member){.name = STR("model_version"), .kind = TEXT, .text = model->version_text};
    for (size_t i = 0; i < response->params.n; i++) {
        const struct param *param = &response->params.items[i];
        members[n++] = (struct member){.name = param->name, .kind = PARAM, .param = param};
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        const struct tensor *output = &response->outputs[i];
        members[n++] = (struct member){.name = output->name, .kind = OUTPUT, .output = output};
    }
    qsort(members, n, sizeof(*members), compare_members);
    return n;
}

/* One element is printed bare, several as an array. */
static enum status print_output(struct buf *out, const struct tensor *output,
                                enum v2_non_finite non_finite, struct error *err) {
    struct element_print print;
    uint64_t n;
    enum status st = element_print_start(&print, out->arena, output, "", err);
    if (st != ST_OK) {
        return st;
    }
    print.non_finite = non_finite;
    if (!shape_elements(output->shape, &n)) {
        n = UINT64_MAX; /* BYTES of an impossible shape: no tensor has as many */
    }
    if (n != 1) {
        buf_add_char(out, '[');
    }
    st = element_print_next(&print, out, n, err);
    if (st == ST_OK) {
        st = element_print_finish(&print, err);
    }
    if (st == ST_OK && n > 0 && !out->failed) {
        out->len--; /* the last comma */
    }
    if (n != 1) {
        buf_add_char(out, ']');
    }
    return st;
}

/* Writes the value after its key. */
static enum status print_member(struct json_writer *json, const struct member *member,
                                enum v2_non_finite non_finite, struct error *err) {
    switch (member->kind) {
    case OUTPUT:
        return print_output(json_write_begin(json, JSON_ELEMENT), member->output, non_finite, err);
    case PARAM:
        return v2_param_write(json, member->param, err);
    case TEXT:
        break;
    }
    json_write_string(json, JSON_ELEMENT, member->text);
    return ST_OK;
}

enum status v2_generate_print(struct buf *out, const struct model_spec *model, struct str id,
                              const struct infer_response *response, enum v2_non_finite non_finite,
                              struct error *err) {
    enum { OTHERS = 3 };
    size_t most = OTHERS + response->params.n + response->n_outputs;
    struct member *members = arena_calloc(out->arena, most, sizeof(*members));
    if (!members) {
        return error_no_memory(err, "the answer");
    }
    enum status st = ST_OK;
    struct json_writer json = {.out = out};
    size_t n = list_members(members, model, id, response);
    json_write_open(&json, JSON_ELEMENT, '{');
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        if (i > 0 && str_eq(members[i].name, members[i - 1].name)) {
            continue;
        }
        if (!utf8_is_valid(members[i].name.ptr, members[i].name.len)) {
            return error_set(err, ST_BAD_OUTPUT, "the name of a parameter is not UTF-8");
        }
        json_write_key_str(&json, members[i].name);
        st = print_member(&json, &members[i], non_finite, err);
    }
    json_write_close(&json, '}');
    if (st != ST_OK) {
        return v2_output_error(st, err);
    }
    return out->failed ? error_no_memory(err, "the answer") : ST_OK;
}

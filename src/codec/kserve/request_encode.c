/* Encoding of an inference request. Sizes that don't fit their shapes, which a server would
 * reject, are errors. */
#include "codec/kserve/request_encode.h"

#include "codec/kserve/encode.h"
#include "codec/kserve/json_elements_print.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"

enum { FIRST_BYTES = 448 };

const enum v2_form *v2_forms_all(struct arena *arena, size_t n, enum v2_form form) {
    enum v2_form *forms = arena_calloc(arena, n, sizeof(*forms));
    for (size_t i = 0; forms && i < n; i++) {
        forms[i] = form;
    }
    return forms;
}

static bool is_json(const enum v2_form *forms, size_t i) {
    return forms && forms[i] == V2_FORM_JSON;
}

static enum status check_shape(const struct tensor *tensor, struct error *err) {
    char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
    uint64_t n_elements;
    if (tensor->shape.rank <= SHAPE_MAX_RANK && shape_elements(tensor->shape, &n_elements)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_SHAPE,
                     "input %s: expected at most %d dimensions of 0 or more and 2^63-1 elements, "
                     "got shape %s",
                     quote_name(tensor->name, name), SHAPE_MAX_RANK,
                     shape_print(tensor->shape, shape));
}

/* Writes the parameters of a range in shared memory.
 * Clause: reference, shared memory, 4. */
static void write_region(struct json_writer *json, const struct infer_region *region) {
    json_write_string(json, "shared_memory_region", region->name);
    json_write_u64(json, "shared_memory_byte_size", region->n_bytes);
    if (region->offset > 0) {
        json_write_u64(json, "shared_memory_offset", region->offset);
    }
}

/* Clause: binary-tensor-data, "binary_data_size". */
static enum status print_input(struct json_writer *json, const struct infer_input *input,
                               bool as_json, struct v2_pieces *pieces, struct error *err) {
    const struct tensor *tensor = &input->tensor;
    bool is_elsewhere = input->region.name.ptr != NULL;
    bool is_binary = !as_json && !is_elsewhere;
    enum status status = check_shape(tensor, err);
    if (status == ST_OK && is_binary) {
        status = v2_tensor_check_size("input", tensor, err);
    }
    if (status != ST_OK) {
        return status;
    }
    v2_tensor_head_write(json, tensor);
    if (!as_json || is_elsewhere || input->params.n > 0) {
        json_write_open(json, "parameters", '{');
        if (is_elsewhere) {
            write_region(json, &input->region);
        } else if (is_binary) {
            json_write_u64(json, "binary_data_size", tensor->n_bytes);
            v2_pieces_add(pieces, tensor);
        }
        status = v2_params_write(json, input->params, err);
        json_write_close(json, '}');
    }
    if (status == ST_OK && as_json && !is_elsewhere) {
        status = v2_data_print(json_write_begin(json, "data"), tensor, V2_NON_FINITE_WORDS, err);
    }
    json_write_close(json, '}');
    return status;
}

/* Clause: binary-tensor-data, "binary_data". Servers differ in whether binary_data_output covers
 * listed outputs, so it is written for each. */
static enum status print_wanted(struct json_writer *json, const struct v2_request *request,
                                struct error *err) {
    enum status status = ST_OK;
    json_write_open(json, "outputs", '[');
    for (size_t i = 0; status == ST_OK && i < request->infer.n_wanted; i++) {
        const struct infer_requested_output *wanted = &request->infer.wanted[i];
        enum v2_form form = request->forms ? request->forms[i] : V2_FORM_DEFAULT;
        bool binary = form == V2_FORM_DEFAULT ? request->binary_default : form == V2_FORM_BINARY;
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_string(json, "name", wanted->name);
        json_write_open(json, "parameters", '{');
        if (wanted->region.name.ptr) {
            write_region(json, &wanted->region);
        } else {
            json_write_bool(json, "binary_data", binary);
        }
        if (wanted->n_classes > 0) {
            json_write_u64(json, "classification", wanted->n_classes);
        }
        status = v2_params_write(json, wanted->params, err);
        json_write_close(json, '}');
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
    return status;
}

/* The id, and the parameters of the request. Clause: binary-tensor-data, "binary_data_output". */
static enum status print_head(struct json_writer *json, const struct v2_request *request,
                              struct error *err) {
    enum status status = ST_OK;
    if (request->infer.id.len > 0) {
        json_write_string(json, "id", request->infer.id);
    }
    if (request->binary_default || request->infer.params.n > 0) {
        json_write_open(json, "parameters", '{');
        if (request->binary_default) {
            json_write_bool(json, "binary_data_output", true);
        }
        status = v2_params_write(json, request->infer.params, err);
        json_write_close(json, '}');
    }
    return status;
}

/* Names and the id must be UTF-8: JSON can't carry other text. */
static enum status check_names(const struct infer_request *infer, struct error *err) {
    bool good = utf8_is_valid(infer->id.ptr, infer->id.len);
    for (size_t i = 0; good && i < infer->n_inputs; i++) {
        struct str name = infer->inputs[i].tensor.name;
        good = utf8_is_valid(name.ptr, name.len);
    }
    for (size_t i = 0; good && i < infer->n_wanted; i++) {
        good = utf8_is_valid(infer->wanted[i].name.ptr, infer->wanted[i].name.len);
    }
    return good ? ST_OK
                : error_set(err, ST_BAD_DATA, "expected an id and names of tensors in UTF-8");
}

enum status v2_request_encode(struct arena *arena, const struct v2_request *request,
                              const enum v2_form *forms, struct v2_request_body *out,
                              struct error *err) {
    struct buf text;
    struct json_writer json = {.out = &text};
    struct v2_pieces pieces;
    size_t n_pieces = 0;
    *out = (struct v2_request_body){0};
    for (size_t i = 0; i < request->infer.n_inputs; i++) {
        n_pieces += request->infer.inputs[i].tensor.n_pieces;
        out->binary |= !is_json(forms, i);
    }
    if (!v2_pieces_init(&pieces, arena, n_pieces)) {
        return error_no_memory(err, "the request");
    }
    buf_init(&text, arena, FIRST_BYTES);
    json_write_open(&json, JSON_ELEMENT, '{');
    enum status status = check_names(&request->infer, err);
    if (status == ST_OK) {
        status = print_head(&json, request, err);
    }
    if (status == ST_OK) {
        json_write_open(&json, "inputs", '[');
        for (size_t i = 0; status == ST_OK && i < request->infer.n_inputs; i++) {
            status = print_input(&json, &request->infer.inputs[i], is_json(forms, i), &pieces, err);
        }
        json_write_close(&json, ']');
    }
    if (status == ST_OK && request->infer.n_wanted > 0) {
        status = print_wanted(&json, request, err);
    }
    json_write_close(&json, '}');
    if (status != ST_OK) {
        return status;
    }
    if (text.failed) {
        return error_no_memory(err, "the request");
    }
    out->json = buf_str(&text);
    out->pieces = v2_pieces_finish(&pieces, out->json);
    out->n_pieces = pieces.n;
    out->n_bytes = pieces.n_bytes;
    return ST_OK;
}

/* The inference response. The JSON is written in one pass over the outputs; binary outputs add
 * their pieces, which are not copied. */
#include "codec/kserve/response.h"

#include <assert.h>

#include "codec/kserve/encode.h"
#include "codec/kserve/json_elements_print.h"

enum { FIRST_BYTES = 448 }; /* most responses with binary outputs fit */

/* Clause: binary-tensor-data: binary_data_output applies to all outputs, listed or not; "If
 * binary_data is specified on an output it overrides this setting". */
static bool is_binary(const struct v2_request *request, size_t i) { /* i: the output's place */
    if (v2_request_output_in_shared_memory(request, i)) {
        return false;
    }
    enum v2_form form = i < request->infer.n_wanted ? request->forms[i] : V2_FORM_DEFAULT;
    return form == V2_FORM_DEFAULT ? request->binary_default : form == V2_FORM_BINARY;
}

/* V2_FORM_DEFAULT: the data is already in the client's shared memory. */
static enum status print_output(struct json_writer *json, const struct tensor *output,
                                enum v2_form form, enum v2_non_finite non_finite,
                                struct v2_pieces *pieces, struct error *err) {
    enum status status = ST_OK;
    v2_tensor_head_write(json, output);
    if (form == V2_FORM_BINARY) {
        status = v2_tensor_check_size("output", output, err);
        json_write_key(json, "parameters");
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_key(json, "binary_data_size");
        json_write_u64(json, JSON_ELEMENT, output->n_bytes);
        json_write_close(json, '}');
        v2_pieces_add(pieces, output);
    } else if (form == V2_FORM_JSON) {
        json_write_key(json, "data");
        status = v2_data_print(json_write_begin(json, JSON_ELEMENT), output, non_finite, err);
    }
    json_write_close(json, '}');
    return status;
}

static enum status print_head(struct json_writer *json, const struct model_spec *model,
                              const struct v2_request *request,
                              const struct infer_response *response, struct error *err) {
    enum status status = ST_OK;
    if (request->infer.id.len > 0) {
        json_write_key(json, "id");
        json_write_string(json, JSON_ELEMENT, request->infer.id);
    }
    json_write_key(json, "model_name");
    json_write_string(json, JSON_ELEMENT, model->name);
    json_write_key(json, "model_version");
    json_write_string(json, JSON_ELEMENT, model->version_text);
    if (response->params.n > 0) {
        json_write_open(json, "parameters", '{');
        status = v2_params_write(json, response->params, err);
        json_write_close(json, '}');
    }
    return status;
}

uint64_t v2_response_json_bytes(const struct v2_request *request,
                                const struct infer_response *response) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < response->n_outputs; i++) {
        size_t place = infer_response_place(response, i);
        bool is_json =
            !is_binary(request, place) && !v2_request_output_in_shared_memory(request, place);
        n_bytes += is_json ? response->outputs[i].n_bytes : 0;
    }
    return n_bytes;
}

enum status v2_response_encode(struct arena *arena, const struct model_spec *model,
                               const struct v2_request *request,
                               const struct infer_response *response, struct v2_response *out,
                               struct error *err) {
    struct buf text;
    struct json_writer json = {.out = &text};
    struct v2_pieces pieces;
    size_t n_pieces = 0;
    assert(request->infer.n_wanted == 0 || response->places ||
           request->infer.n_wanted == response->n_outputs);
    for (size_t i = 0; i < response->n_outputs; i++) {
        n_pieces += is_binary(request, infer_response_place(response, i))
                        ? response->outputs[i].n_pieces
                        : 0;
    }
    if (!v2_pieces_init(&pieces, arena, n_pieces)) {
        return error_no_memory(err, "the answer");
    }
    buf_init(&text, arena, FIRST_BYTES);
    json_write_open(&json, JSON_ELEMENT, '{');
    enum status status = print_head(&json, model, request, response, err);
    json_write_key(&json, "outputs");
    json_write_open(&json, JSON_ELEMENT, '[');
    for (size_t i = 0; status == ST_OK && i < response->n_outputs; i++) {
        size_t place = infer_response_place(response, i);
        enum v2_form form = v2_request_output_in_shared_memory(request, place) ? V2_FORM_DEFAULT
                            : is_binary(request, place)                        ? V2_FORM_BINARY
                                                                               : V2_FORM_JSON;
        status =
            print_output(&json, &response->outputs[i], form, request->non_finite, &pieces, err);
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    if (status != ST_OK) {
        /* The client can ask for the output as binary. */
        return status == ST_NOT_UTF8 ? status : v2_output_error(status, err);
    }
    if (text.failed) {
        return error_no_memory(err, "the answer");
    }
    out->json = buf_str(&text);
    out->binary = pieces.n_bytes > 0;
    out->pieces = v2_pieces_finish(&pieces, out->json);
    out->n_pieces = pieces.n;
    out->n_bytes = pieces.n_bytes;
    return ST_OK;
}

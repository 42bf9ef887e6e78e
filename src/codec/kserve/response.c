/* The inference response. The JSON is written in one pass over the outputs; binary outputs add
 * their pieces, which are not copied. */
#include "codec/kserve/response.h"

#include <assert.h>

#include "codec/kserve/data_print.h"
#include "codec/kserve/json.h"
#include "core/base/buf.h"

enum { FIRST_BYTES = 448 }; /* most responses with binary outputs fit */

/* Clause: binary-tensor-data: binary_data_output applies to all outputs, listed or not; "If
 * binary_data is specified on an output it overrides this setting". */
static bool is_binary(const struct v2_request *request, size_t i) {
    if (v2_request_output_in_shared_memory(request, i)) {
        return false;
    }
    enum v2_form form = i < request->infer.n_wanted ? request->forms[i] : V2_FORM_DEFAULT;
    return form == V2_FORM_DEFAULT ? request->binary_default : form == V2_FORM_BINARY;
}

static enum status print_output(struct buf *json, const struct tensor *output, bool first,
                                enum v2_form form, struct v2_pieces *pieces, struct error *err) {
    enum status status = ST_OK;
    v2_json_tensor_head(json, output, first);
    if (form == V2_FORM_DEFAULT) { /* already in the client's shared memory */
        buf_add_char(json, '}');
    } else if (form == V2_FORM_BINARY) {
        status = v2_json_check_size("output", output, err);
        v2_json_add(json, ",\"parameters\":{\"binary_data_size\":");
        buf_add_u64(json, output->n_bytes);
        v2_json_add(json, "}}");
        v2_pieces_add(pieces, output);
    } else {
        v2_json_add(json, ",\"data\":");
        status = v2_data_print(json, output, err);
        buf_add_char(json, '}');
    }
    return status;
}

static enum status print_head(struct buf *json, const struct model_spec *model,
                              const struct v2_request *request,
                              const struct infer_response *response, struct error *err) {
    enum status status = ST_OK;
    if (request->infer.id.len > 0) {
        v2_json_add(json, "{\"id\":");
        buf_add_json_string(json, request->infer.id);
        v2_json_add(json, ",\"model_name\":");
    } else {
        v2_json_add(json, "{\"model_name\":");
    }
    buf_add_json_string(json, model->name);
    v2_json_add(json, ",\"model_version\":");
    buf_add_json_string(json, model->version_text);
    if (response->params.n > 0) {
        v2_json_add(json, ",\"parameters\":{");
        status = v2_json_params(json, response->params, err);
        buf_add_char(json, '}');
    }
    return status;
}

enum status v2_response_encode(struct arena *arena, const struct model_spec *model,
                               const struct v2_request *request,
                               const struct infer_response *response, struct v2_response *out,
                               struct error *err) {
    struct buf json;
    struct v2_pieces pieces;
    size_t n_pieces = 0;
    assert(request->infer.n_wanted == 0 || request->infer.n_wanted == response->n_outputs);
    for (size_t i = 0; i < response->n_outputs; i++) {
        n_pieces += is_binary(request, i) ? response->outputs[i].n_pieces : 0;
    }
    if (!v2_pieces_init(&pieces, arena, n_pieces)) {
        return error_no_memory(err, "the answer");
    }
    buf_init(&json, arena, FIRST_BYTES);
    enum status status = print_head(&json, model, request, response, err);
    v2_json_add(&json, ",\"outputs\":[");
    for (size_t i = 0; status == ST_OK && i < response->n_outputs; i++) {
        enum v2_form form = v2_request_output_in_shared_memory(request, i) ? V2_FORM_DEFAULT
                            : is_binary(request, i)                        ? V2_FORM_BINARY
                                                                           : V2_FORM_JSON;
        status = print_output(&json, &response->outputs[i], i == 0, form, &pieces, err);
    }
    v2_json_add(&json, "]}");
    if (status != ST_OK) {
        /* The client can ask for the output as binary. */
        return status == ST_NOT_UTF8 ? status : v2_json_output_error(status, err);
    }
    if (json.failed) {
        return error_no_memory(err, "the answer");
    }
    out->json = buf_str(&json);
    out->binary = pieces.n_bytes > 0;
    out->pieces = v2_pieces_finish(&pieces, out->json);
    out->n_pieces = pieces.n;
    out->n_bytes = pieces.n_bytes;
    return ST_OK;
}

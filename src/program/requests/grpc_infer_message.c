/* The messages of ModelInfer. */
#include "program/requests/grpc_infer_message.h"

#include <inttypes.h>

#include "core/tensor/bytes.h"

enum status grpc_infer_message_encode(struct arena *arena, const struct client_infer *infer,
                                      struct v2_grpc_message *out, struct error *err) {
    struct v2_grpc_request request = {.infer = infer->request->infer,
                                      .model = infer->model,
                                      .version = infer->version.ptr ? infer->version : STR("")};
    return v2_grpc_request_encode(arena, &request, out, err);
}

/* Checks the number of bytes, or of framed elements, against the shape. */
static enum status check_output(const struct tensor *tensor, struct error *err) {
    uint64_t expected = 0;
    if (tensor->datatype == DT_BYTES && shape_elements(tensor->shape, &expected)) {
        struct str data =
            tensor->n_pieces > 0 ? str_make(tensor->pieces[0].data, tensor->n_bytes) : STR("");
        return bytes_check(data, expected, tensor->name, err);
    }
    if (shape_bytes(tensor->shape, tensor->datatype, &expected) && expected == tensor->n_bytes) {
        return ST_OK;
    }
    char shape[SHAPE_TEXT_BYTES], name[TENSOR_NAME_TEXT_BYTES];
    return error_set(
        err, ST_BAD_DATA, "the answer's output %s: expected %" PRIu64 " bytes for %s %s, got %zu",
        tensor_name_print(tensor->name, name), expected, datatype_name(tensor->datatype),
        shape_print(tensor->shape, shape), (size_t)tensor->n_bytes);
}

enum status grpc_infer_message_decode(struct arena *arena, struct str message,
                                      struct v2_client_response *out, struct error *err) {
    struct v2_grpc_client_response answer;
    enum status status = v2_grpc_client_response_decode(arena, message, false, &answer, err);
    if (status != ST_OK) {
        return error_prefix(err, "the answer is not a ModelInferResponse");
    }
    for (size_t i = 0; i < answer.n_outputs && status == ST_OK; i++) {
        status = check_output(&answer.outputs[i], err);
    }
    *out = (struct v2_client_response){.id = answer.id,
                                       .model_name = answer.model,
                                       .model_version = answer.version,
                                       .infer = {.params = answer.params,
                                                 .outputs = answer.outputs,
                                                 .n_outputs = answer.n_outputs}};
    out->forms = v2_forms_all(arena, answer.n_outputs, V2_FORM_BINARY);
    if (status == ST_OK && !out->forms) {
        return error_no_memory(err, "the answer");
    }
    return status;
}

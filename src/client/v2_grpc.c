/* The messages of inference.GRPCInferenceService. */
#include "client/v2_grpc.h"

#include <inttypes.h>

#include "codec/kserve/encode.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"

/* ---- requests -------------------------------------------------------------------------------- */

static struct str query_path(enum client_query query) {
    switch (query) {
    case CLIENT_LIVE:
        return CLIENT_GRPC_PATH("ServerLive");
    case CLIENT_READY:
        return CLIENT_GRPC_PATH("ServerReady");
    case CLIENT_MODEL_READY:
        return CLIENT_GRPC_PATH("ModelReady");
    case CLIENT_SERVER:
        return CLIENT_GRPC_PATH("ServerMetadata");
    case CLIENT_MODEL:
        return CLIENT_GRPC_PATH("ModelMetadata");
    case CLIENT_CONFIG:
        return CLIENT_GRPC_PATH("ModelConfig");
    case CLIENT_STATISTICS:
        return CLIENT_GRPC_PATH("ModelStatistics");
    case CLIENT_INDEX:
        return CLIENT_GRPC_PATH("RepositoryIndex");
    case CLIENT_LOAD:
        return CLIENT_GRPC_PATH("RepositoryModelLoad");
    case CLIENT_UNLOAD:
        return CLIENT_GRPC_PATH("RepositoryModelUnload");
    case CLIENT_SHM_REGISTER:
        return CLIENT_GRPC_PATH("SystemSharedMemoryRegister");
    case CLIENT_SHM_UNREGISTER:
        return CLIENT_GRPC_PATH("SystemSharedMemoryUnregister");
    case CLIENT_GENERATE:
    case CLIENT_GENERATE_STREAM:
        break;
    }
    return str_make(NULL, 0);
}

static bool is_utf8(struct str text) {
    return utf8_is_valid(text.ptr, text.len);
}

static struct str text_or_empty(struct str text) {
    return text.ptr ? text : STR("");
}

enum status client_grpc_query_encode(struct arena *arena, const struct client_query_args *args,
                                     struct client_grpc_request *out, struct error *err) {
    struct buf message;
    enum status status = client_query_check(args, err);
    if (status == ST_OK && (!is_utf8(args->model) || !is_utf8(args->version))) {
        status = error_set(err, ST_BAD_FIELD, "the model's name or version is not UTF-8");
    }
    if (status == ST_OK && !query_path(args->query).ptr) {
        status = error_set(err, ST_UNSUPPORTED,
                           "generate is an extension of http://; over gRPC there is "
                           "sluice_client_start_stream");
    }
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    if (status != ST_OK) {
        return status;
    }
    buf_init(&message, arena, 0);
    if (args->query == CLIENT_LOAD || args->query == CLIENT_UNLOAD) {
        v2_grpc_repository_encode(&message, args->model, args->config);
    } else if (args->query == CLIENT_SHM_REGISTER) {
        v2_grpc_shared_memory_register_encode(&message, &args->region);
    } else if (args->query == CLIENT_SHM_UNREGISTER) {
        v2_grpc_named_encode(&message, text_or_empty(args->region.name), STR(""));
    } else {
        v2_grpc_named_encode(&message, text_or_empty(args->model), text_or_empty(args->version));
    }
    if (!piece || message.failed) {
        return error_no_memory(err, "a request");
    }
    *piece = (struct piece){message.data, message.len};
    *out = (struct client_grpc_request){query_path(args->query), piece, 1};
    return ST_OK;
}

static enum status check_input(const struct tensor *tensor, struct error *err) {
    char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
    uint64_t n_elements;
    if (!is_utf8(tensor->name)) {
        return error_set(err, ST_BAD_DATA, "expected names of tensors in UTF-8");
    }
    if (!shape_elements(tensor->shape, &n_elements)) {
        return error_set(err, ST_BAD_SHAPE,
                         "input %s: expected dimensions of 0 or more and 2^63-1 elements, got "
                         "shape %s",
                         quote_name(tensor->name, name), shape_print(tensor->shape, shape));
    }
    return ST_OK;
}

static enum status check_params(struct params params, struct error *err) {
    for (size_t i = 0; i < params.n; i++) {
        const struct param *param = &params.items[i];
        if (!is_utf8(param->name) || (param->kind == PARAM_STRING && !is_utf8(param->string))) {
            return error_set(err, ST_BAD_DATA, "parameter %zu is not UTF-8", i);
        }
    }
    return ST_OK;
}

static enum status check_infer(const struct client_infer *infer, struct error *err) {
    const struct infer_request *request = &infer->request->infer;
    bool good = is_utf8(infer->model) && is_utf8(infer->version) && is_utf8(request->id);
    if (infer->model.len == 0) {
        return error_set(err, ST_BAD_FIELD, "the model's name is empty");
    }
    if (infer->raw || infer->forms) {
        return error_set(err, ST_UNSUPPORTED, "over gRPC tensors are binary, in no other form");
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        good = good && is_utf8(request->wanted[i].name);
    }
    if (!good) {
        return error_set(err, ST_BAD_DATA, "expected an id, a model and names of outputs in UTF-8");
    }
    enum status status = check_params(request->params, err);
    for (size_t i = 0; i < request->n_inputs && status == ST_OK; i++) {
        status = check_input(&request->inputs[i].tensor, err);
        if (status == ST_OK && !request->inputs[i].region.name.ptr) {
            status = v2_tensor_check_size("input", &request->inputs[i].tensor, err);
        }
    }
    return status;
}

enum status client_grpc_infer_message(struct arena *arena, const struct client_infer *infer,
                                      struct v2_grpc_message *out, struct error *err) {
    const struct v2_grpc_request request = {.infer = infer->request->infer,
                                            .model = infer->model,
                                            .version = text_or_empty(infer->version)};
    return v2_grpc_request_encode(arena, &request, out, err);
}

enum status client_grpc_infer_encode(struct arena *arena, const struct client_infer *infer,
                                     struct client_grpc_request *out, struct error *err) {
    struct v2_grpc_message message;
    enum status status = check_infer(infer, err);
    if (status == ST_OK) {
        status = client_grpc_infer_message(arena, infer, &message, err);
    }
    if (status == ST_OK) {
        *out = (struct client_grpc_request){CLIENT_GRPC_PATH("ModelInfer"), message.pieces,
                                            message.n_pieces};
    }
    return status;
}

enum status client_grpc_request_join(const struct client_grpc_request *request, struct piece *out,
                                     struct error *err) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < request->n_pieces; i++) {
        n_bytes += request->pieces[i].n_bytes;
    }
    char *data = malloc(n_bytes + 1);
    if (!data) {
        return error_no_memory(err, "a request");
    }
    pieces_copy(request->pieces, request->n_pieces, data, n_bytes);
    *out = (struct piece){data, n_bytes};
    return ST_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Makes a decoding error one of the server's answer. */
static enum status malformed(enum status status, struct error *err) {
    if (status == ST_OK || status == ST_NO_MEMORY || status == ST_BODY_TOO_LARGE) {
        return status;
    }
    error_prefix(err, "the server's answer");
    err->status = ST_BAD_ANSWER;
    return ST_BAD_ANSWER;
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
    char shape[SHAPE_TEXT_BYTES], name[QUOTED_NAME_BYTES];
    return error_set(err, ST_BAD_DATA, "output %s: expected %" PRIu64 " bytes for %s %s, got %zu",
                     quote_name(tensor->name, name), expected, datatype_name(tensor->datatype),
                     shape_print(tensor->shape, shape), (size_t)tensor->n_bytes);
}

/* `stream`: of a ModelStreamInferResponse. */
static enum status decode_infer(struct arena *arena, struct str message, bool stream,
                                bool may_lack_data, struct v2_client_response *out,
                                struct str *server_error, struct error *err) {
    struct v2_grpc_client_response answer;
    enum status status = v2_grpc_client_response_decode(arena, message, stream, &answer, err);
    *server_error = status == ST_OK ? answer.error_message : str_make(NULL, 0);
    if (status != ST_OK) {
        return status;
    }
    enum v2_form *forms = arena_calloc(arena, answer.n_outputs, sizeof(*forms));
    if (!forms) {
        return error_no_memory(err, "the answer");
    }
    for (size_t i = 0; i < answer.n_outputs && status == ST_OK; i++) {
        bool is_absent = may_lack_data && answer.outputs[i].n_bytes == 0;
        forms[i] = is_absent ? V2_FORM_DEFAULT : V2_FORM_BINARY;
        status = is_absent ? ST_OK : check_output(&answer.outputs[i], err);
    }
    *out = (struct v2_client_response){.id = text_or_empty(answer.id),
                                       .model_name = text_or_empty(answer.model),
                                       .model_version = text_or_empty(answer.version),
                                       .infer = {.params = answer.params,
                                                 .outputs = answer.outputs,
                                                 .n_outputs = answer.n_outputs},
                                       .forms = forms};
    return status;
}

enum status client_grpc_infer_decode(struct arena *arena, struct str message, bool may_lack_data,
                                     struct v2_client_response *out, struct error *err) {
    struct str none;
    return malformed(decode_infer(arena, message, false, may_lack_data, out, &none, err), err);
}

enum status client_grpc_stream_decode(struct arena *arena, struct str message, bool may_lack_data,
                                      struct v2_client_response *out, struct error *err) {
    struct str text;
    enum status status =
        malformed(decode_infer(arena, message, true, may_lack_data, out, &text, err), err);
    return status == ST_OK && text.len > 0 ? error_set(err, ST_REFUSED, "%.*s", STR_ARG(text))
                                           : status;
}

static enum status check_specs(const struct tensor_spec *specs, size_t n, struct error *err) {
    for (size_t i = 0; i < n; i++) {
        bool good = specs[i].datatype != DT_INVALID;
        for (size_t j = 0; j < specs[i].shape.rank; j++) {
            good = good && specs[i].shape.dims[j] >= -1;
        }
        if (!good) {
            char name[QUOTED_NAME_BYTES];
            return error_set(err, ST_BAD_ANSWER,
                             "tensor %s: an unknown datatype, or a dimension "
                             "below -1",
                             quote_name(specs[i].name, name));
        }
    }
    return ST_OK;
}

enum status client_grpc_model_decode(struct arena *arena, struct str message,
                                     struct model_spec *out, struct error *err) {
    struct v2_grpc_model_metadata metadata;
    enum status status = v2_grpc_model_metadata_decode(arena, message, &metadata, err);
    if (status == ST_OK) {
        status = check_specs(metadata.inputs, metadata.n_inputs, err);
    }
    if (status == ST_OK) {
        status = check_specs(metadata.outputs, metadata.n_outputs, err);
    }
    if (status != ST_OK) {
        return malformed(status, err);
    }
    *out = (struct model_spec){.name = metadata.name,
                               .version_text = metadata.n_versions > 0
                                                   ? metadata.versions[metadata.n_versions - 1]
                                                   : STR(""),
                               .platform = metadata.platform,
                               .inputs = metadata.inputs,
                               .n_inputs = metadata.n_inputs,
                               .outputs = metadata.outputs,
                               .n_outputs = metadata.n_outputs};
    return ST_OK;
}

enum status client_grpc_server_decode(struct arena *arena, struct str message,
                                      struct v2_server_metadata *out, struct error *err) {
    return malformed(v2_grpc_server_metadata_decode(arena, message, out, err), err);
}

enum status client_grpc_yes_decode(struct str message, bool *yes, struct error *err) {
    return malformed(v2_grpc_bool_decode(message, yes, err), err);
}

enum status client_grpc_text_decode(struct arena *arena, enum client_query query,
                                    struct str message, uint64_t max_bytes, struct str *out,
                                    struct error *err) {
    enum v2_grpc_document document = query == CLIENT_CONFIG       ? V2_GRPC_CONFIG
                                     : query == CLIENT_STATISTICS ? V2_GRPC_STATISTICS
                                                                  : V2_GRPC_INDEX;
    return malformed(v2_grpc_document_print(arena, document, message, max_bytes, out, err), err);
}

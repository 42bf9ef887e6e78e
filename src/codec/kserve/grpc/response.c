/* ModelInferResponse and ModelStreamInferResponse. Everything but the outputs' bytes is written
 * into one block; the pieces alternate between the block and the bytes where the backend left
 * them. */
#include <inttypes.h>

#include "codec/kserve/grpc/fields.h"
#include "codec/kserve/grpc/v2_grpc.h"

enum {
    FIRST_BYTES = 512, /* most responses fit */
    /* protobuf's own limit: larger messages can't be parsed */
    MOST_MESSAGE_BYTES = INT32_MAX,
};

static const struct str FINAL = {"triton_final_response", 21};

static void print_tensor_head(struct buf *out, const struct tensor *tensor) {
    pb_add_string(out, V2_GRPC_TENSOR_NAME, tensor->name);
    pb_add_string(out, V2_GRPC_TENSOR_DATATYPE, str_of(datatype_name(tensor->datatype)));
    pb_add_packed_i64(out, V2_GRPC_TENSOR_SHAPE, tensor->shape.dims, tensor->shape.rank);
}

static void print_head(struct buf *out, const struct model_spec *model, struct str id,
                       const struct infer_response *response, int final) {
    pb_add_string(out, V2_GRPC_MODEL_NAME, model->name);
    pb_add_string(out, V2_GRPC_MODEL_VERSION, model->version_text);
    pb_add_string(out, V2_GRPC_ID, id);
    v2_grpc_params_encode(out, V2_GRPC_PARAMETERS, response->params);
    if (final >= 0) {
        v2_grpc_param_bool_encode(out, V2_GRPC_PARAMETERS, FINAL, final != 0);
    }
}

/* A message whose large fields are not copied. `heads` has all other bytes; cuts[i] is the
 * offset in it where the bytes of tensor i belong. */
struct scattered {
    struct buf heads;
    size_t *cuts;
    uint64_t n_bytes;
    size_t n_pieces;
};

static void add_raw(struct scattered *message, uint32_t number, size_t i,
                    const struct tensor *tensor) {
    pb_add_head(&message->heads, number, tensor->n_bytes);
    message->cuts[i] = message->heads.len;
    message->n_bytes += tensor->n_bytes;
    message->n_pieces += tensor->n_pieces;
}

/* Lists the pieces in order; `what` names the message in errors; `wrap` != 0 puts the message into
 * that field of another message. */
static enum status gather_pieces(struct arena *arena, const char *what, struct scattered *message,
                                 uint32_t wrap, const struct tensor *tensors, size_t n,
                                 struct v2_grpc_message *out, struct error *err) {
    struct buf outer;
    buf_init(&outer, arena, wrap ? 16 : 0);
    message->n_bytes += message->heads.len;
    if (message->n_bytes > MOST_MESSAGE_BYTES) {
        return error_set(err, ST_BAD_OUTPUT, "%s has %" PRIu64 " bytes, a gRPC message at most %d",
                         what, message->n_bytes, (int)MOST_MESSAGE_BYTES);
    }
    if (wrap) {
        pb_add_head(&outer, wrap, message->n_bytes);
    }
    struct piece *pieces = arena_alloc(arena, (message->n_pieces + n + 2) * sizeof(struct piece));
    if (!pieces || outer.failed || message->heads.failed) {
        return error_no_memory(err, "%s", what);
    }
    size_t at = 0, k = 0;
    if (wrap) {
        pieces[k++] = (struct piece){outer.data, outer.len};
    }
    for (size_t i = 0; i < n; i++) {
        pieces[k++] = (struct piece){message->heads.data + at, message->cuts[i] - at};
        at = message->cuts[i];
        for (size_t j = 0; j < tensors[i].n_pieces; j++) {
            pieces[k++] = tensors[i].pieces[j];
        }
    }
    if (message->heads.len > at) {
        pieces[k++] = (struct piece){message->heads.data + at, message->heads.len - at};
    }
    *out = (struct v2_grpc_message){pieces, k, message->n_bytes + outer.len};
    return ST_OK;
}

static bool message_init(struct arena *arena, struct scattered *message, size_t n_tensors) {
    *message = (struct scattered){.cuts = arena_alloc(arena, n_tensors * sizeof(size_t))};
    buf_init(&message->heads, arena, FIRST_BYTES);
    return message->cuts != NULL;
}

/* ---- outputs with typed contents ------------------------------------------------------------- */

static bool all_have_lists(const struct infer_response *response) {
    for (size_t i = 0; i < response->n_outputs; i++) {
        if (!v2_grpc_contents_have(response->outputs[i].datatype)) {
            return false;
        }
    }
    return true;
}

uint64_t v2_grpc_typed_elements(const struct infer_response *response) {
    uint64_t n = 0;
    for (size_t i = 0; i < response->n_outputs; i++) {
        const struct tensor *output = &response->outputs[i];
        size_t size = datatype_size(output->datatype);
        if (!v2_grpc_contents_are_bytes(output->datatype)) {
            n += output->n_bytes / (size > 0 ? size : sizeof(uint32_t)); /* BYTES: their lengths */
        }
    }
    return n;
}

/* Adds an output whose elements are in it. `payload`: the elements as they are sent. */
static enum status add_typed(struct arena *arena, struct scattered *message, size_t i,
                             const struct tensor *output, struct tensor *payload,
                             struct error *err) {
    struct buf *heads = &message->heads;
    char list_head[V2_GRPC_LIST_HEAD_BYTES];
    size_t n_head, start = pb_begin(heads, V2_GRPC_RESPONSE_OUTPUTS);
    enum status st = v2_grpc_contents_encode(arena, output, list_head, &n_head, payload, err);
    if (st != ST_OK) {
        return st;
    }
    print_tensor_head(heads, output);
    size_t *cut = &message->cuts[i];
    if (payload->n_bytes > 0) {
        size_t contents = pb_begin(heads, V2_GRPC_TENSOR_CONTENTS);
        buf_add(heads, list_head, n_head);
        *cut = heads->len;
        pb_end_scattered(heads, contents, cut, payload->n_bytes);
    } else { /* no elements, or they are in shared memory */
        *cut = heads->len;
    }
    pb_end_scattered(heads, start, cut, payload->n_bytes);
    message->n_bytes += payload->n_bytes;
    message->n_pieces += payload->n_pieces;
    return ST_OK;
}

enum status v2_grpc_response_encode(struct arena *arena, const struct model_spec *model,
                                    struct str id, const struct infer_response *response,
                                    struct v2_grpc_response_form form, struct v2_grpc_message *out,
                                    struct error *err) {
    struct scattered message;
    const struct tensor *sent = response->outputs;
    struct tensor *payloads = NULL;
    enum status st = ST_OK;
    bool typed = form.typed && all_have_lists(response);
    if (typed) {
        sent = payloads = arena_alloc(arena, response->n_outputs * sizeof *payloads);
    }
    if (!message_init(arena, &message, response->n_outputs) || (typed && !payloads)) {
        return error_no_memory(err, "the answer");
    }
    print_head(&message.heads, model, id, response, form.final);
    for (size_t i = 0; i < response->n_outputs; i++) {
        const struct tensor *output = &response->outputs[i];
        if (payloads && st == ST_OK) {
            st = add_typed(arena, &message, i, output, &payloads[i], err);
        } else if (!payloads) {
            size_t start = pb_begin(&message.heads, V2_GRPC_RESPONSE_OUTPUTS);
            print_tensor_head(&message.heads, output);
            pb_end(&message.heads, start);
        }
    }
    for (size_t i = 0; !payloads && i < response->n_outputs; i++) {
        add_raw(&message, V2_GRPC_RAW_OUTPUTS, i, &response->outputs[i]);
    }
    return st == ST_OK ? gather_pieces(arena, "the answer", &message,
                                       form.stream ? V2_GRPC_STREAM_RESPONSE : 0, sent,
                                       response->n_outputs, out, err)
                       : st;
}

/* ---- an error of a stream -------------------------------------------------------------------- */

void v2_grpc_stream_error_encode(struct buf *out, const struct error *error, struct str id,
                                 struct str model, struct str version, int final) {
    const char *text = error->text[0] ? error->text : status_text(error->status);
    pb_add_string(out, V2_GRPC_STREAM_ERROR, str_of(text));
    size_t start = pb_begin(out, V2_GRPC_STREAM_RESPONSE);
    pb_add_string(out, V2_GRPC_MODEL_NAME, model);
    pb_add_string(out, V2_GRPC_MODEL_VERSION, version);
    pb_add_string(out, V2_GRPC_ID, id);
    if (final >= 0) {
        v2_grpc_param_bool_encode(out, V2_GRPC_PARAMETERS, FINAL, final != 0);
    }
    pb_end(out, start);
}

/* ---- the client's request -------------------------------------------------------------------- */

static void encode_number(struct buf *out, uint32_t field, struct str name, uint64_t value) {
    const struct param param = {.name = name,
                                .kind = PARAM_INT64,
                                .int64 = (int64_t)(value < INT64_MAX ? value : INT64_MAX)};
    v2_grpc_params_encode(out, field, (struct params){&param, 1});
}

/* The parameters of a range in shared memory, if there is one. */
static void encode_region(struct buf *out, uint32_t field, const struct infer_region *region) {
    const struct param name = {
        .name = STR("shared_memory_region"), .kind = PARAM_STRING, .string = region->name};
    if (region->name.ptr) {
        v2_grpc_params_encode(out, field, (struct params){&name, 1});
        encode_number(out, field, STR("shared_memory_byte_size"), region->n_bytes);
        encode_number(out, field, STR("shared_memory_offset"), region->offset);
    }
}

static void print_wanted(struct buf *out, const struct infer_requested_output *wanted) {
    size_t start = pb_begin(out, V2_GRPC_OUTPUTS);
    pb_add_string(out, V2_GRPC_REQUESTED_OUTPUT_NAME, wanted->name);
    v2_grpc_params_encode(out, V2_GRPC_REQUESTED_OUTPUT_PARAMETERS, wanted->params);
    encode_region(out, V2_GRPC_REQUESTED_OUTPUT_PARAMETERS, &wanted->region);
    if (wanted->n_classes > 0) {
        encode_number(out, V2_GRPC_REQUESTED_OUTPUT_PARAMETERS, STR("classification"),
                      wanted->n_classes);
    }
    pb_end(out, start);
}

enum status v2_grpc_request_encode(struct arena *arena, const struct v2_grpc_request *request,
                                   struct v2_grpc_message *out, struct error *err) {
    const struct infer_request *infer = &request->infer;
    struct scattered message;
    struct tensor *tensors = arena_alloc(arena, infer->n_inputs * sizeof *tensors);
    size_t n_raw = 0; /* the other inputs are in shared memory */
    if (!tensors || !message_init(arena, &message, infer->n_inputs)) {
        return error_no_memory(err, "the request");
    }
    pb_add_string(&message.heads, V2_GRPC_MODEL_NAME, request->model);
    pb_add_string(&message.heads, V2_GRPC_MODEL_VERSION, request->version);
    pb_add_string(&message.heads, V2_GRPC_ID, infer->id);
    v2_grpc_params_encode(&message.heads, V2_GRPC_PARAMETERS, infer->params);
    for (size_t i = 0; i < infer->n_inputs; i++) {
        const struct infer_input *input = &infer->inputs[i];
        size_t start = pb_begin(&message.heads, V2_GRPC_INPUTS);
        print_tensor_head(&message.heads, &input->tensor);
        v2_grpc_params_encode(&message.heads, V2_GRPC_TENSOR_PARAMETERS, input->params);
        encode_region(&message.heads, V2_GRPC_TENSOR_PARAMETERS, &input->region);
        pb_end(&message.heads, start);
        if (!input->region.name.ptr) {
            tensors[n_raw++] = input->tensor;
        }
    }
    for (size_t i = 0; i < infer->n_wanted; i++) {
        print_wanted(&message.heads, &infer->wanted[i]);
    }
    for (size_t i = 0; i < n_raw; i++) {
        add_raw(&message, V2_GRPC_RAW_INPUTS, i, &tensors[i]);
    }
    return gather_pieces(arena, "the request", &message, 0, tensors, n_raw, out, err);
}

/* ModelInferRequest. One pass counts fields, a second one decodes them, so that arrays are
 * allocated once and the order of fields does not matter. Then inputs get their bytes. */
#include <inttypes.h>

#include "codec/kserve/grpc/fields.h"
#include "codec/kserve/grpc/v2_grpc.h"

static const char WHAT[] = "ModelInferRequest";
static const struct v2_grpc_path_prefix WHOLE = {NULL, 0};

struct counts {
    size_t inputs, wanted, raw, params;
};

struct decoder {
    struct arena *arena;
    const struct json_limits *limits;
    struct counts n;
    struct str *messages; /* of each input, for its contents */
    struct str *raw;
};

static enum status count_fields(struct str message, struct counts *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    *out = (struct counts){0};
    while (pb_next(&reader, &field)) {
        out->inputs += field.number == V2_GRPC_INPUTS;
        out->wanted += field.number == V2_GRPC_OUTPUTS;
        out->raw += field.number == V2_GRPC_RAW_INPUTS;
        out->params += field.number == V2_GRPC_PARAMETERS;
    }
    return reader.error_text ? pb_reader_error(&reader, WHAT, err) : ST_OK;
}

/* ---- an input -------------------------------------------------------------------------------- */

static enum status read_datatype(const struct pb_field *field, struct v2_grpc_path_prefix prefix,
                                 struct tensor *tensor, struct error *err) {
    struct str name;
    enum status st = v2_grpc_get_string(field, prefix, "datatype", &name, err);
    if (st == ST_OK) {
        tensor->datatype = datatype_parse(name);
        if (tensor->datatype == DT_INVALID) {
            char path[V2_GRPC_PATH_BYTES];
            st = error_set(err, ST_BAD_DATATYPE,
                           "%s: expected BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, "
                           "INT64, FP16, FP32, FP64, BF16 or BYTES, got \"%.*s\"",
                           v2_grpc_path_print(prefix, "datatype", path), STR_ARG(name));
        }
    }
    return st;
}

static enum status check_input(const struct decoder *decoder, const struct tensor *tensor,
                               struct v2_grpc_path_prefix prefix, struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    if (tensor->name.len == 0) {
        return error_set(err, ST_BAD_FIELD, "%s: expected a name, got none",
                         v2_grpc_path_print(prefix, "name", path));
    }
    if (tensor->datatype == DT_INVALID) {
        return error_set(err, ST_BAD_DATATYPE, "%s: expected the name of a datatype, got none",
                         v2_grpc_path_print(prefix, "datatype", path));
    }
    uint64_t n_elements;
    if (!shape_elements(tensor->shape, &n_elements)) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BAD_SHAPE, "%s: the product of %s does not fit 63 bits",
                         v2_grpc_path_print(prefix, "shape", path),
                         shape_print(tensor->shape, text));
    }
    if (n_elements > decoder->limits->max_tensor_elements) {
        return error_set(err, ST_TOO_MANY_ELEMENTS,
                         "%s: expected at most %" PRIu64 " elements, got %" PRIu64
                         " (--max-tensor-elements)",
                         v2_grpc_path_print(prefix, "shape", path),
                         decoder->limits->max_tensor_elements, n_elements);
    }
    return ST_OK;
}

static enum status read_input(const struct decoder *decoder, struct str message,
                              struct v2_grpc_path_prefix prefix, struct infer_input *out,
                              struct error *err) {
    struct tensor *tensor = &out->tensor;
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    size_t n_params = 0;
    enum status st = ST_OK;
    *tensor = (struct tensor){.name = STR("")};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == V2_GRPC_TENSOR_NAME) {
            st = v2_grpc_get_string(&field, prefix, "name", &tensor->name, err);
        } else if (field.number == V2_GRPC_TENSOR_DATATYPE) {
            st = read_datatype(&field, prefix, tensor, err);
        } else if (field.number == V2_GRPC_TENSOR_PARAMETERS) {
            n_params++;
        }
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "InferInputTensor", err);
    }
    if (st == ST_OK) {
        st = v2_grpc_shape_read(decoder->arena, message, V2_GRPC_TENSOR_SHAPE, prefix, 0,
                                &tensor->shape, err);
    }
    if (st == ST_OK) {
        st = v2_grpc_params_read(decoder->arena, message, V2_GRPC_TENSOR_PARAMETERS, n_params,
                                 V2_GRPC_OF_TENSOR, prefix, &out->params, err);
    }
    if (st == ST_OK) {
        st = v2_grpc_region_read(out->params, prefix, &out->region, err);
    }
    return st == ST_OK ? check_input(decoder, tensor, prefix, err) : st;
}

/* ---- a requested output ---------------------------------------------------------------------- */

/* Clause: reference, classification, 1: a number above 0. */
static enum status read_classification(struct v2_grpc_path_prefix prefix,
                                       struct infer_requested_output *wanted, struct error *err) {
    const struct param *param = params_find(wanted->params, "classification");
    char path[V2_GRPC_PATH_BYTES];
    if (!param) {
        return ST_OK;
    }
    if (param->kind != PARAM_INT64 || param->int64 < 1) {
        return error_set(err, ST_BAD_FIELD,
                         "%s: expected classification to be a whole number from 1 to 2^63-1",
                         v2_grpc_path_print(prefix, "parameters", path));
    }
    wanted->n_classes = (uint64_t)param->int64;
    return wanted->region.name.ptr
               ? error_set(err, ST_BAD_FIELD,
                           "%s: expected either classification or shared_memory_region",
                           v2_grpc_path_print(prefix, "parameters", path))
               : ST_OK;
}

static enum status read_wanted(const struct decoder *decoder, struct str message,
                               struct v2_grpc_path_prefix prefix,
                               struct infer_requested_output *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    size_t n_params = 0;
    enum status st = ST_OK;
    out->name = STR("");
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == V2_GRPC_REQUESTED_OUTPUT_NAME) {
            st = v2_grpc_get_string(&field, prefix, "name", &out->name, err);
        } else if (field.number == V2_GRPC_REQUESTED_OUTPUT_PARAMETERS) {
            n_params++;
        }
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "InferRequestedOutputTensor", err);
    }
    if (st == ST_OK) {
        st = v2_grpc_params_read(decoder->arena, message, V2_GRPC_REQUESTED_OUTPUT_PARAMETERS,
                                 n_params, V2_GRPC_OF_TENSOR, prefix, &out->params, err);
    }
    if (st == ST_OK) {
        st = v2_grpc_region_read(out->params, prefix, &out->region, err);
    }
    return st == ST_OK ? read_classification(prefix, out, err) : st;
}

/* ---- the message ----------------------------------------------------------------------------- */

static enum status read_input_field(struct decoder *decoder, const struct pb_field *field,
                                    struct infer_request *infer, struct error *err) {
    struct v2_grpc_path_prefix prefix = {"inputs", infer->n_inputs};
    struct str *message = &decoder->messages[infer->n_inputs];
    enum status st = v2_grpc_get_message(field, WHOLE, "inputs", message, err);
    if (st == ST_OK) {
        st = read_input(decoder, *message, prefix, &infer->inputs[infer->n_inputs], err);
        infer->n_inputs++;
    }
    return st;
}

static enum status read_wanted_field(struct decoder *decoder, const struct pb_field *field,
                                     struct infer_request *infer, struct error *err) {
    struct v2_grpc_path_prefix prefix = {"outputs", infer->n_wanted};
    struct str message;
    enum status st = v2_grpc_get_message(field, WHOLE, "outputs", &message, err);
    if (st == ST_OK) {
        st = read_wanted(decoder, message, prefix, &infer->wanted[infer->n_wanted], err);
        infer->n_wanted++;
    }
    return st;
}

static enum status read_field(struct decoder *decoder, const struct pb_field *field, size_t *n_raw,
                              struct v2_grpc_request *out, struct error *err) {
    switch (field->number) {
    case V2_GRPC_MODEL_NAME:
        return v2_grpc_get_string(field, WHOLE, "model_name", &out->model, err);
    case V2_GRPC_MODEL_VERSION:
        return v2_grpc_get_string(field, WHOLE, "model_version", &out->version, err);
    case V2_GRPC_ID:
        return v2_grpc_get_string(field, WHOLE, "id", &out->infer.id, err);
    case V2_GRPC_INPUTS:
        return read_input_field(decoder, field, &out->infer, err);
    case V2_GRPC_OUTPUTS:
        return read_wanted_field(decoder, field, &out->infer, err);
    case V2_GRPC_RAW_INPUTS:
        return v2_grpc_get_message(field, WHOLE, "raw_input_contents", &decoder->raw[(*n_raw)++],
                                   err);
    default:
        return ST_OK;
    }
}

/* The protocol's own parameters are not passed to the model. */
static enum status take_own_params(struct arena *arena, struct v2_grpc_request *out,
                                   struct error *err) {
    struct params all = out->infer.params;
    const struct param *final = params_find(all, V2_GRPC_EMPTY_FINAL.ptr);
    const struct param *contents = params_find(all, V2_GRPC_OUTPUT_CONTENTS.ptr);
    if (!final && !contents) {
        return ST_OK;
    }
    struct param *items = arena_calloc(arena, all.n, sizeof *items);
    if (!items) {
        return error_no_memory(err, "parameters");
    }
    out->empty_final = final && final->boolean;
    out->output_contents =
        contents ? v2_grpc_contents_parse(contents->string) : V2_GRPC_CONTENTS_DEFAULT;
    out->infer.params = (struct params){items, 0};
    for (size_t i = 0; i < all.n; i++) {
        if (&all.items[i] != final && &all.items[i] != contents) {
            items[out->infer.params.n++] = all.items[i];
        }
    }
    return ST_OK;
}

static enum status read_fields(struct decoder *decoder, struct str message,
                               struct v2_grpc_request *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    size_t n_raw = 0;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next(&reader, &field)) {
        st = read_field(decoder, &field, &n_raw, out, err);
    }
    if (st == ST_OK) {
        st = v2_grpc_params_read(decoder->arena, message, V2_GRPC_PARAMETERS, decoder->n.params,
                                 V2_GRPC_OF_REQUEST, WHOLE, &out->infer.params, err);
    }
    return st == ST_OK ? take_own_params(decoder->arena, out, err) : st;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static enum status bind_raw(const struct decoder *decoder, struct infer_request *infer,
                            struct error *err) {
    size_t n_here = 0, at = 0;
    for (size_t i = 0; i < infer->n_inputs; i++) {
        n_here += !infer->inputs[i].region.name.ptr; /* else in shared memory: no bytes here */
    }
    if (decoder->n.raw != n_here) {
        return error_set(err, ST_BAD_INPUTS,
                         "raw_input_contents: expected %zu entries, one for each input, got %zu",
                         n_here, decoder->n.raw);
    }
    struct piece *pieces = arena_alloc(decoder->arena, infer->n_inputs * sizeof *pieces);
    if (!pieces) {
        return error_no_memory(err, "the request");
    }
    for (size_t i = 0; i < infer->n_inputs; i++) {
        if (infer->inputs[i].region.name.ptr) {
            continue;
        }
        pieces[i] = (struct piece){decoder->raw[at].ptr, decoder->raw[at].len};
        infer->inputs[i].tensor.pieces = &pieces[i];
        infer->inputs[i].tensor.n_pieces = pieces[i].n_bytes > 0;
        infer->inputs[i].tensor.n_bytes = pieces[i].n_bytes;
        at++;
    }
    return ST_OK;
}

static enum status bind_contents(const struct decoder *decoder, struct v2_grpc_request *out,
                                 struct error *err) {
    struct infer_request *infer = &out->infer;
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < infer->n_inputs; i++) {
        struct tensor *tensor = &infer->inputs[i].tensor;
        struct v2_grpc_path_prefix prefix = {"inputs", i};
        bool present;
        st = v2_grpc_contents_read(decoder->arena, decoder->messages[i], V2_GRPC_TENSOR_CONTENTS,
                                   decoder->limits, prefix, tensor, &present, err);
        uint64_t n_elements = 0;
        out->has_contents = out->has_contents || (st == ST_OK && present);
        shape_elements(tensor->shape, &n_elements); /* cannot fail: check_input */
        bool elsewhere = infer->inputs[i].region.name.ptr != NULL;
        if (st == ST_OK && present && elsewhere) {
            st = error_set(err, ST_BAD_INPUTS,
                           "inputs[%zu].contents: expected nothing here when shared_memory_region "
                           "is used",
                           i);
        }
        if (st == ST_OK && !present && !elsewhere && n_elements > 0) {
            st = error_set(err, ST_BAD_INPUTS,
                           "inputs[%zu] has no data: expected `contents`, or an entry for each "
                           "input in raw_input_contents",
                           i);
        }
    }
    return st;
}

/* Raw and typed contents exclude each other (ModelInferRequest, raw_input_contents). */
static enum status mixed_contents_error(const struct decoder *decoder, size_t n_inputs,
                                        struct error *err) {
    for (size_t i = 0; i < n_inputs; i++) {
        struct pb_reader reader = pb_read(decoder->messages[i]);
        struct pb_field field;
        while (pb_next(&reader, &field)) {
            if (field.number == V2_GRPC_TENSOR_CONTENTS) {
                return error_set(err, ST_BAD_INPUTS,
                                 "inputs[%zu].contents: expected nothing here when "
                                 "raw_input_contents is used",
                                 i);
            }
        }
    }
    return ST_OK;
}

enum status v2_grpc_request_decode(struct arena *arena, struct str message,
                                   const struct json_limits *limits, struct v2_grpc_request *out,
                                   struct error *err) {
    struct decoder decoder = {.arena = arena, .limits = limits};
    *out = (struct v2_grpc_request){.infer.arena = arena, .infer.batch = 1};
    enum status st = count_fields(message, &decoder.n, err);
    if (st != ST_OK) {
        return st;
    }
    out->infer.inputs = arena_calloc(arena, decoder.n.inputs, sizeof *out->infer.inputs);
    out->infer.wanted = arena_calloc(arena, decoder.n.wanted, sizeof *out->infer.wanted);
    decoder.messages = arena_calloc(arena, decoder.n.inputs, sizeof(struct str));
    decoder.raw = arena_calloc(arena, decoder.n.raw, sizeof(struct str));
    if (!out->infer.inputs || !out->infer.wanted || !decoder.messages || !decoder.raw) {
        return error_no_memory(err, "the request");
    }
    st = read_fields(&decoder, message, out, err);
    if (st == ST_OK && decoder.n.raw > 0) {
        st = mixed_contents_error(&decoder, out->infer.n_inputs, err);
        st = st == ST_OK ? bind_raw(&decoder, &out->infer, err) : st;
    } else if (st == ST_OK) {
        st = bind_contents(&decoder, out, err);
    }
    return st;
}

size_t v2_grpc_request_walked_bytes(struct str message) {
    enum { MAX_FIELDS = 64 };
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    size_t n_bytes = message.len;
    for (size_t i = 0; i < MAX_FIELDS && pb_next(&reader, &field); i++) {
        if (field.number == V2_GRPC_RAW_INPUTS && field.type == PB_BYTES) {
            n_bytes -= field.bytes.len;
        }
    }
    return n_bytes;
}

/* Most often the message is cut inside the raw tensor: pb_next would fail there, so tags and
 * lengths are read one by one. */
static size_t find_raw(struct str beginning, uint32_t number) {
    struct pb_reader reader = pb_read(beginning);
    uint64_t tag, n_bytes;
    while (pb_next_varint(&reader, &tag) && (tag & 7) == PB_BYTES &&
           pb_next_varint(&reader, &n_bytes)) {
        if (tag >> 3 == number) {
            return (size_t)(reader.at - beginning.ptr);
        }
        if (n_bytes > (uint64_t)(reader.end - reader.at)) {
            break;
        }
        reader.at += n_bytes;
    }
    return 0;
}

size_t v2_grpc_raw_offset(struct str beginning) {
    return find_raw(beginning, V2_GRPC_RAW_INPUTS);
}

size_t v2_grpc_raw_output_offset(struct str beginning) {
    return find_raw(beginning, V2_GRPC_RAW_OUTPUTS);
}

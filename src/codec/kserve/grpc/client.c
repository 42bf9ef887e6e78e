/* Client side: decoding of inference responses and metadata. */
#include <inttypes.h>

#include "codec/kserve/grpc/fields.h"
#include "codec/kserve/grpc/v2_grpc.h"

/* Of a message, repeated ones too: a field of two bytes may become a hundred in memory. */
enum { MAX_FIELDS = 100000 };

static const struct v2_grpc_path_prefix WHOLE = {NULL, 0};

static size_t count_fields(struct str message, uint32_t number) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    size_t n = 0;
    while (pb_next(&reader, &field)) {
        n += field.number == number;
    }
    return n;
}

static enum status check_fields(struct str message, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    size_t n = 0;
    while (n <= MAX_FIELDS && pb_next(&reader, &field)) {
        n++;
    }
    return n <= MAX_FIELDS
               ? ST_OK
               : error_set(err, ST_BAD_ANSWER, "the message has over %d fields", (int)MAX_FIELDS);
}

static enum status read_tensor_head(struct arena *arena, struct str message,
                                    struct v2_grpc_path_prefix prefix, int64_t least,
                                    struct str *name, enum datatype *datatype, struct shape *shape,
                                    struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    struct str text = STR("");
    *name = STR("");
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == V2_GRPC_TENSOR_NAME) {
            st = v2_grpc_get_string(&field, prefix, "name", name, err);
        } else if (field.number == V2_GRPC_TENSOR_DATATYPE) {
            st = v2_grpc_get_string(&field, prefix, "datatype", &text, err);
        }
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "tensor", err);
    }
    if (st == ST_OK) {
        *datatype = datatype_parse(text);
        st = v2_grpc_shape_read(arena, message, V2_GRPC_TENSOR_SHAPE, prefix, least, shape, err);
    }
    return st;
}

/* ---- inference ------------------------------------------------------------------------------- */

static enum status read_output(struct arena *arena, struct str message,
                               struct v2_grpc_path_prefix prefix, struct tensor *out,
                               struct error *err) {
    static const struct json_limits limits = {.max_tensor_elements = UINT64_MAX};
    bool present;
    enum status st =
        read_tensor_head(arena, message, prefix, 0, &out->name, &out->datatype, &out->shape, err);
    if (st == ST_OK && out->datatype == DT_INVALID) {
        return error_set(err, ST_BAD_DATATYPE, "outputs[%zu]: unknown datatype", prefix.index);
    }
    return st == ST_OK ? v2_grpc_contents_read(arena, message, V2_GRPC_TENSOR_CONTENTS, &limits,
                                               prefix, out, &present, err)
                       : st;
}

static enum status bind_raw(struct arena *arena, struct tensor *tensor, struct str bytes,
                            struct error *err) {
    struct piece *piece = arena_alloc(arena, sizeof *piece);
    if (!piece) {
        return error_no_memory(err, "the answer");
    }
    *piece = (struct piece){bytes.ptr, bytes.len};
    tensor->pieces = piece;
    tensor->n_pieces = bytes.len > 0;
    tensor->n_bytes = bytes.len;
    return ST_OK;
}

static enum status read_answer_field(struct arena *arena, const struct pb_field *field,
                                     struct v2_grpc_client_response *out, struct error *err) {
    struct v2_grpc_path_prefix prefix = {"outputs", out->n_outputs};
    struct str message;
    switch (field->number) {
    case V2_GRPC_MODEL_NAME:
        return v2_grpc_get_string(field, WHOLE, "model_name", &out->model, err);
    case V2_GRPC_MODEL_VERSION:
        return v2_grpc_get_string(field, WHOLE, "model_version", &out->version, err);
    case V2_GRPC_ID:
        return v2_grpc_get_string(field, WHOLE, "id", &out->id, err);
    case V2_GRPC_RESPONSE_OUTPUTS: {
        enum status st = v2_grpc_get_message(field, WHOLE, "outputs", &message, err);
        return st == ST_OK
                   ? read_output(arena, message, prefix, &out->outputs[out->n_outputs++], err)
                   : st;
    }
    default:
        return ST_OK;
    }
}

/* Raw contents belong to the outputs in order, wherever they are in the message. */
static enum status read_raw(struct arena *arena, struct str message,
                            struct v2_grpc_client_response *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    size_t n = 0;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next(&reader, &field)) {
        struct str bytes;
        if (field.number != V2_GRPC_RAW_OUTPUTS) {
            continue;
        }
        if (n == out->n_outputs) {
            return error_set(err, ST_BAD_ANSWER, "more raw_output_contents than outputs");
        }
        st = v2_grpc_get_message(&field, WHOLE, "raw_output_contents", &bytes, err);
        st = st == ST_OK ? bind_raw(arena, &out->outputs[n++], bytes, err) : st;
    }
    return st;
}

static enum status read_answer(struct arena *arena, struct str message,
                               struct v2_grpc_client_response *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = check_fields(message, err);
    if (st != ST_OK) {
        return st;
    }
    out->outputs =
        arena_calloc(arena, count_fields(message, V2_GRPC_RESPONSE_OUTPUTS), sizeof *out->outputs);
    if (!out->outputs) {
        return error_no_memory(err, "the answer");
    }
    while (st == ST_OK && pb_next(&reader, &field)) {
        st = read_answer_field(arena, &field, out, err);
    }
    if (st == ST_OK && reader.error_text) {
        st = pb_reader_error(&reader, "ModelInferResponse", err);
    }
    if (st == ST_OK) {
        st = v2_grpc_params_read(arena, message, V2_GRPC_PARAMETERS,
                                 count_fields(message, V2_GRPC_PARAMETERS), V2_GRPC_OF_RESPONSE,
                                 WHOLE, &out->params, err);
    }
    return st == ST_OK ? read_raw(arena, message, out, err) : st;
}

enum status v2_grpc_client_response_decode(struct arena *arena, struct str message, bool stream,
                                           struct v2_grpc_client_response *out, struct error *err) {
    struct str inner = message;
    enum status st = ST_OK;
    *out = (struct v2_grpc_client_response){.error_message = STR("")};
    if (stream) {
        struct pb_reader reader = pb_read(message);
        struct pb_field field;
        inner = STR("");
        while (st == ST_OK && pb_next(&reader, &field)) {
            if (field.number == V2_GRPC_STREAM_ERROR) {
                st = v2_grpc_get_string(&field, WHOLE, "error_message", &out->error_message, err);
            } else if (field.number == V2_GRPC_STREAM_RESPONSE) {
                st = v2_grpc_get_message(&field, WHOLE, "infer_response", &inner, err);
            }
        }
        st = st == ST_OK && reader.error_text
                 ? pb_reader_error(&reader, "ModelStreamInferResponse", err)
                 : st;
    }
    return st == ST_OK ? read_answer(arena, inner, out, err) : st;
}

/* ---- metadata -------------------------------------------------------------------------------- */

static enum status read_spec(struct arena *arena, const struct pb_field *field, const char *list,
                             struct tensor_spec *specs, size_t *n, struct error *err) {
    struct str message;
    struct v2_grpc_path_prefix prefix = {list, *n};
    struct tensor_spec *spec = &specs[(*n)++];
    enum status st = v2_grpc_get_message(field, WHOLE, list, &message, err);
    return st == ST_OK ? read_tensor_head(arena, message, prefix, INT64_MIN, &spec->name,
                                          &spec->datatype, &spec->shape, err)
                       : st;
}

static enum status read_metadata_field(struct arena *arena, const struct pb_field *field,
                                       struct v2_grpc_model_metadata *out, struct error *err) {
    switch (field->number) {
    case 1:
        return v2_grpc_get_string(field, WHOLE, "name", &out->name, err);
    case 2:
        return v2_grpc_get_string(field, WHOLE, "versions", &out->versions[out->n_versions++], err);
    case 3:
        return v2_grpc_get_string(field, WHOLE, "platform", &out->platform, err);
    case 4:
        return read_spec(arena, field, "inputs", out->inputs, &out->n_inputs, err);
    case 5:
        return read_spec(arena, field, "outputs", out->outputs, &out->n_outputs, err);
    default:
        return ST_OK;
    }
}

enum status v2_grpc_model_metadata_decode(struct arena *arena, struct str message,
                                          struct v2_grpc_model_metadata *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = check_fields(message, err);
    if (st != ST_OK) {
        return st;
    }
    *out = (struct v2_grpc_model_metadata){
        .name = STR(""),
        .platform = STR(""),
        .versions = arena_calloc(arena, count_fields(message, 2), sizeof(struct str)),
        .inputs = arena_calloc(arena, count_fields(message, 4), sizeof(struct tensor_spec)),
        .outputs = arena_calloc(arena, count_fields(message, 5), sizeof(struct tensor_spec)),
    };
    if (!out->versions || !out->inputs || !out->outputs) {
        return error_no_memory(err, "the answer");
    }
    while (st == ST_OK && pb_next(&reader, &field)) {
        st = read_metadata_field(arena, &field, out, err);
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, "ModelMetadataResponse", err)
                                            : st;
}

enum status v2_grpc_server_metadata_decode(struct arena *arena, struct str message,
                                           struct v2_server_metadata *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = check_fields(message, err);
    if (st != ST_OK) {
        return st;
    }
    struct str *extensions = arena_calloc(arena, count_fields(message, 3), sizeof(*extensions));
    *out =
        (struct v2_server_metadata){.name = STR(""), .version = STR(""), .extensions = extensions};
    if (!extensions) {
        return error_no_memory(err, "the answer");
    }
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == 1) {
            st = v2_grpc_get_string(&field, WHOLE, "name", &out->name, err);
        } else if (field.number == 2) {
            st = v2_grpc_get_string(&field, WHOLE, "version", &out->version, err);
        } else if (field.number == 3) {
            st = v2_grpc_get_string(&field, WHOLE, "extensions", &extensions[out->n_extensions++],
                                    err);
        }
    }
    return st == ST_OK && reader.error_text
               ? pb_reader_error(&reader, "ServerMetadataResponse", err)
               : st;
}

enum status v2_grpc_bool_decode(struct str message, bool *yes, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    *yes = false;
    while (pb_next(&reader, &field)) {
        if (field.number == 1 && field.type == PB_VARINT) {
            *yes = field.value != 0;
        }
    }
    return reader.error_text ? pb_reader_error(&reader, "the answer", err) : ST_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

void v2_grpc_named_encode(struct buf *out, struct str name, struct str version) {
    pb_add_string(out, 1, name);
    pb_add_string(out, 2, version);
}

void v2_grpc_repository_encode(struct buf *out, struct str model, struct str config) {
    enum { MODEL = 2, PARAMETERS = 3, KEY = 1, VALUE = 2, STRING_PARAM = 3 };
    pb_add_string(out, MODEL, model);
    if (config.ptr) {
        size_t entry = pb_begin(out, PARAMETERS);
        pb_add_string(out, KEY, STR("config"));
        size_t value = pb_begin(out, VALUE);
        pb_add_bytes(out, STRING_PARAM, config);
        pb_end(out, value);
        pb_end(out, entry);
    }
}

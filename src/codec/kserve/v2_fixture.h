/* For the tests and fuzzers of the v2 codec: tensors, requests and responses printed as one line
 * of text, so that a row of a table has an input and its meaning. */
#ifndef SLUICE_CODEC_KSERVE_V2_FIXTURE_H
#define SLUICE_CODEC_KSERVE_V2_FIXTURE_H

#include "codec/kserve/request.h"
#include "codec/kserve/response_decode.h"
#include "core/base/buf.h"

static const struct json_limits fixture_limits = {
    .max_json_size = 1 << 20, .max_json_depth = 100, .max_tensor_elements = 100000};

static inline void fixture_params(struct buf *out, struct params params) {
    for (size_t i = 0; i < params.n; i++) {
        const struct param *p = &params.items[i];
        buf_printf(out, " %.*s=", STR_ARG(p->name));
        switch (p->kind) {
        case PARAM_BOOL:
            buf_printf(out, "%s", p->boolean ? "true" : "false");
            break;
        case PARAM_INT64:
            buf_printf(out, "i%lld", (long long)p->int64);
            break;
        case PARAM_UINT64:
            buf_printf(out, "u%llu", (unsigned long long)p->uint64);
            break;
        case PARAM_DOUBLE:
            buf_printf(out, "d%.17g", p->number);
            break;
        case PARAM_STRING:
            buf_printf(out, "\"%.*s\"", STR_ARG(p->string));
            break;
        }
    }
}

/* NAME DATATYPE[dims] and the bytes in hexadecimal. */
static inline void fixture_tensor(struct buf *out, const struct tensor *tensor) {
    char shape[SHAPE_TEXT_BYTES];
    buf_printf(out, "%.*s %s%s ", STR_ARG(tensor->name), datatype_name(tensor->datatype),
               shape_print(tensor->shape, shape));
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const unsigned char *data = tensor->pieces[i].data;
        for (size_t k = 0; k < tensor->pieces[i].n_bytes; k++) {
            buf_printf(out, "%02x", data[k]);
        }
    }
}

/* "id=I p=i1; NAME FP32[1] 0000803f p=true; OUTPUT binary p=…", NUL-terminated. */
static inline const char *fixture_request(struct arena *arena, const struct v2_request *request) {
    static const char *const forms[] = {"", " json", " binary"};
    const struct infer_request *infer = &request->infer;
    struct buf out;
    buf_init(&out, arena, 256);
    if (infer->id.len > 0) {
        buf_printf(&out, "id=%.*s", STR_ARG(infer->id));
    }
    if (request->binary_default) {
        buf_printf(&out, " binary");
    }
    fixture_params(&out, infer->params);
    for (size_t i = 0; i < infer->n_inputs; i++) {
        buf_printf(&out, "; ");
        fixture_tensor(&out, &infer->inputs[i].tensor);
        fixture_params(&out, infer->inputs[i].params);
    }
    for (size_t i = 0; i < infer->n_wanted; i++) {
        buf_printf(&out, "; %.*s%s", STR_ARG(infer->wanted[i].name), forms[request->forms[i]]);
        if (infer->wanted[i].n_classes > 0) {
            buf_printf(&out, " best=%llu", (unsigned long long)infer->wanted[i].n_classes);
        }
        fixture_params(&out, infer->wanted[i].params);
    }
    buf_add_char(&out, '\0');
    return out.data;
}

/* "id=I MODEL/VERSION p=…; NAME FP32[1] json 0000803f", NUL-terminated. */
static inline const char *fixture_response(struct arena *arena,
                                           const struct v2_client_response *answer) {
    struct buf out;
    buf_init(&out, arena, 256);
    if (answer->id.len > 0) {
        buf_printf(&out, "id=%.*s ", STR_ARG(answer->id));
    }
    buf_printf(&out, "%.*s/%.*s", STR_ARG(answer->model_name), STR_ARG(answer->model_version));
    fixture_params(&out, answer->infer.params);
    for (size_t i = 0; i < answer->infer.n_outputs; i++) {
        buf_printf(&out, answer->forms[i] == V2_FORM_BINARY ? "; binary " : "; json ");
        fixture_tensor(&out, &answer->infer.outputs[i]);
    }
    buf_add_char(&out, '\0');
    return out.data;
}

/* Returns: the pieces of a body in one allocation. */
static inline struct str fixture_gather(struct arena *arena, const struct piece *pieces, size_t n) {
    struct buf out;
    buf_init(&out, arena, 1);
    for (size_t i = 0; i < n; i++) {
        buf_add(&out, pieces[i].data, pieces[i].n_bytes);
    }
    return buf_str(&out);
}

#endif

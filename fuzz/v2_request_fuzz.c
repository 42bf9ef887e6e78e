/* Requests: JSON, a NUL, tensor bytes. A decoded request is encoded in every form and decoded
 * again, and must have the same meaning; requests that a model accepts are aligned and answered. */
#include "codec/kserve/fuzz_fixture.h"
#include "codec/kserve/request_encode.h"
#include "codec/kserve/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool sizes_fit(const struct infer_request *infer) {
    for (size_t i = 0; i < infer->n_inputs; i++) {
        const struct tensor *tensor = &infer->inputs[i].tensor;
        uint64_t n_bytes;
        if (tensor->datatype != DT_BYTES &&
            !(shape_bytes(tensor->shape, tensor->datatype, &n_bytes) &&
              n_bytes == tensor->n_bytes)) {
            return false;
        }
    }
    return true;
}

/* An output without a form is the same as one with the request's default. */
static void resolve_forms(struct arena *arena, struct v2_request *request) {
    size_t n = request->infer.n_wanted;
    enum v2_form *forms = arena_calloc(arena, n, sizeof(*forms));
    for (size_t i = 0; i < n; i++) {
        forms[i] = request->forms[i];
        if (forms[i] == V2_FORM_DEFAULT) {
            forms[i] = request->binary_default ? V2_FORM_BINARY : V2_FORM_JSON;
        }
    }
    request->forms = forms;
}

static struct v2_request decode(struct arena *arena, const struct v2_request_body *body,
                                struct error *err) {
    struct v2_request request;
    struct str all = fixture_gather(arena, body->pieces, body->n_pieces);
    check(all.len == body->n_bytes, err);
    check(v2_request_decode(arena, all, body->json.len, &fuzz_limits, &request, err) == ST_OK, err);
    return request;
}

static void encode_binary(struct arena *arena, const struct v2_request *request) {
    struct v2_request_body body;
    struct error err = {0};
    check(v2_request_encode(arena, request, NULL, &body, &err) == ST_OK, &err);
    struct v2_request again = decode(arena, &body, &err);
    check(strcmp(fixture_request(arena, request), fixture_request(arena, &again)) == 0, &err);
}

/* A NaN loses its payload in JSON and a BOOL of 2 becomes a 1: so the second text must equal the
 * first. */
static void encode_json(struct arena *arena, const struct v2_request *request) {
    struct v2_request_body body, again;
    struct error err = {0};
    enum v2_form *forms = arena_calloc(arena, request->infer.n_inputs, sizeof(*forms));
    for (size_t i = 0; i < request->infer.n_inputs; i++) {
        forms[i] = V2_FORM_JSON;
    }
    enum status status = v2_request_encode(arena, request, forms, &body, &err);
    check(status == ST_OK || status == ST_BAD_DATA || status == ST_NOT_UTF8, &err);
    if (status == ST_OK) {
        struct v2_request back = decode(arena, &body, &err);
        check(v2_request_encode(arena, &back, forms, &again, &err) == ST_OK, &err);
        check(str_eq(body.json, again.json), &err);
    }
}

/* A model that accepts exactly this request, and returns its inputs. */
static void encode_echo_response(struct arena *arena, struct v2_request *request) {
    size_t n = request->infer.n_inputs;
    struct tensor_spec *specs = arena_calloc(arena, n, sizeof(*specs));
    struct tensor *outputs = arena_calloc(arena, n, sizeof(*outputs));
    struct error err = {0};
    for (size_t i = 0; i < n; i++) {
        const struct tensor *tensor = &request->infer.inputs[i].tensor;
        specs[i] = (struct tensor_spec){
            .name = tensor->name, .datatype = tensor->datatype, .shape = tensor->shape};
    }
    struct model_spec model = {.name = STR("m"),
                               .version_text = STR("1"),
                               .inputs = specs,
                               .n_inputs = n,
                               .outputs = specs,
                               .n_outputs = n};
    request->infer.n_wanted = 0;
    if (infer_check(&request->infer, &model, &err) != ST_OK ||
        infer_align_copy(&request->infer, &err) != ST_OK) {
        check(err.text[0] != '\0', &err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        outputs[i] = request->infer.inputs[i].tensor;
    }
    struct infer_response response = {.outputs = outputs, .n_outputs = n};
    struct v2_response encoded;
    for (int binary = 0; binary < 2; binary++) {
        request->binary_default = binary;
        enum status status = v2_response_encode(arena, &model, request, &response, &encoded, &err);
        check(status == ST_OK || ((status == ST_BAD_OUTPUT || status == ST_NOT_UTF8) && !binary),
              &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    size_t json_bytes, n_bytes;
    char *body = fuzz_body(data, size, &json_bytes, &n_bytes);
    struct v2_request request;
    struct error err = {0};
    if (v2_request_decode(arena, str_make(body, n_bytes), json_bytes, &fixture_limits, &request,
                          &err) == ST_OK) {
        resolve_forms(arena, &request);
        if (sizes_fit(&request.infer)) {
            encode_binary(arena, &request);
            encode_json(arena, &request);
        }
        encode_echo_response(arena, &request);
    } else {
        check(err.text[0] != '\0', &err);
    }
    arena_free(arena);
    free(body);
    return 0;
}

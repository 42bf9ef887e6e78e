/* Requests of generate: the first byte selects the model, the rest is the body. infer_check
 * handles every decoded request, and an accepted one prints as a response that decodes again. */
#include "codec/kserve/fuzz_fixture.h"
#include "codec/kserve/generate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json_limits limits = {
    .max_json_size = 1 << 16, .max_json_depth = 16, .max_tensor_elements = 1 << 12};

enum { N_TENSORS = 2, MAX_BYTES = 1 << 16 };

/* A response whose outputs are the inputs and whose parameters are the request's. It is not read
 * again if one is named "parameters", which has another meaning in a request. */
static void print_response(struct arena *arena, const struct infer_request *request,
                           const struct model_spec *model) {
    struct tensor outputs[N_TENSORS];
    struct infer_response response = {
        .params = request->params, .outputs = outputs, .n_outputs = request->n_inputs};
    for (size_t i = 0; i < request->n_inputs; i++) {
        outputs[i] = request->inputs[i].tensor;
    }
    struct buf out;
    struct infer_request again;
    enum v2_non_finite non_finite;
    struct error err = {0};
    buf_init(&out, arena, 0);
    check(v2_generate_print(&out, model, request->id, &response, V2_NON_FINITE_WORDS, &err) ==
              ST_OK,
          &err);
    if (params_find(request->params, "parameters")) {
        return;
    }
    check(v2_generate_decode(arena, buf_str(&out), model, &fuzz_limits, UINT64_MAX, &again,
                             &non_finite, &err) == ST_OK,
          &err);
    check(again.n_inputs == request->n_inputs, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int64_t SHAPES[][2] = {{-1, 0}, {1, 0}, {2, -1}, {-1, -1}, {0, -1}};
    enum { N_SHAPES = sizeof(SHAPES) / sizeof(SHAPES[0]) };
    if (size < 1) {
        return 0;
    }
    enum datatype datatype = (enum datatype)(1 + data[0] % (DT_COUNT_ - 1));
    size_t shape = data[0] / DT_COUNT_ % N_SHAPES;
    struct tensor_spec specs[N_TENSORS] = {
        {.name = STR("a"), .datatype = datatype, .shape = {SHAPES[shape], shape < 2 ? 1 : 2}},
        {.name = STR("b"), .datatype = DT_BYTES, .shape = {SHAPES[0], 1}, .optional = true}};
    struct model_spec model = {
        .name = STR("m"), .version_text = STR("1"), .inputs = specs, .n_inputs = N_TENSORS};
    size_t json_bytes, n_bytes;
    char *body = fuzz_body(data + 1, size - 1, &json_bytes, &n_bytes);
    struct arena *arena = arena_new(NULL, 0);
    struct infer_request request;
    enum v2_non_finite non_finite;
    struct error err = {0};
    if (v2_generate_decode(arena, str_make(body, json_bytes), &model, &limits, MAX_BYTES, &request,
                           &non_finite, &err) != ST_OK ||
        infer_check(&request, &model, &err) != ST_OK || infer_align_copy(&request, &err) != ST_OK) {
        check(err.text[0] != '\0', &err);
    } else {
        print_response(arena, &request, &model);
    }
    arena_free(arena);
    free(body);
    return 0;
}

/* Raw requests: the first bytes define the model's input, the rest is the body. A decoded
 * request has exactly the body's bytes and passes infer_check; the client's encoder gives the
 * body back. */
#include <stdio.h>
#include <stdlib.h>

#include "codec/kserve/raw.h"
#include "codec/kserve/request_encode.h"
#include "codec/kserve/v2_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json_limits limits = {.max_tensor_elements = 1 << 16};

static void check(bool holds, const struct error *err) {
    if (!holds) {
        fprintf(stderr, "%s\n", err->text);
        __builtin_trap();
    }
}

enum { HEAD_BYTES = 7, MAX_RANK = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD_BYTES) {
        return 0;
    }
    int64_t dims[MAX_RANK];
    size_t rank = data[2] % (MAX_RANK + 1);
    uint64_t max_batch_size = rank > 0 ? data[1] % 3 : 0;
    for (size_t i = 0; i < MAX_RANK; i++) { /* -1 to 6, or very large */
        dims[i] = data[3 + i] < 250 ? data[3 + i] % 8 - 1 : INT64_MAX >> (data[3 + i] % 60);
    }
    if (max_batch_size > 0) {
        dims[0] = -1;
    }
    struct tensor_spec spec = {.name = STR("x"),
                               .datatype = (enum datatype)(1 + data[0] % (DT_COUNT_ - 1)),
                               .shape = {dims, rank}};
    struct model_spec model = {
        .name = STR("m"), .max_batch_size = max_batch_size, .inputs = &spec, .n_inputs = 1};
    size_t n_bytes = size - HEAD_BYTES;
    char *body = malloc(n_bytes + (n_bytes == 0));
    memcpy(body, data + HEAD_BYTES, n_bytes);
    struct arena *arena = arena_new(NULL, 0);
    struct v2_request request;
    struct v2_request_body encoded;
    struct error err = {0};
    if (v2_raw_decode(arena, str_make(body, n_bytes), &model, &limits, &request, &err) == ST_OK) {
        const struct tensor *tensor = &request.infer.inputs[0].tensor;
        check(v2_raw_encode(arena, tensor, &encoded, &err) == ST_OK, &err);
        struct str back = fixture_gather(arena, encoded.pieces, encoded.n_pieces);
        check(str_eq(back, str_make(body, n_bytes)) && encoded.n_bytes == n_bytes, &err);
        enum status status = infer_check(&request.infer, &model, &err);
        /* Only bytes of a BOOL can still be invalid. */
        check(status == ST_OK || (status == ST_BAD_DATA && spec.datatype == DT_BOOL), &err);
    } else {
        check(err.text[0] != '\0', &err);
    }
    arena_free(arena);
    free(body);
    return 0;
}

/* Responses decoded by a client: JSON, a NUL, tensor bytes. A decoded response is encoded by the
 * server's half and decoded again, and must have the same meaning. */
#include "codec/kserve/fuzz_fixture.h"
#include "codec/kserve/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reencode_response(struct arena *arena, const struct v2_client_response *answer) {
    struct model_spec model = {.name = answer->model_name, .version_text = answer->model_version};
    size_t n = answer->infer.n_outputs;
    struct v2_request request = {
        .infer = {.id = answer->id,
                  .wanted = arena_calloc(arena, n, sizeof(struct infer_requested_output)),
                  .n_wanted = n},
        .forms = answer->forms};
    struct v2_response encoded;
    struct v2_client_response back;
    struct error err = {0};
    check(v2_response_encode(arena, &model, &request, &answer->infer, &encoded, &err) == ST_OK,
          &err);
    struct str body = fixture_gather(arena, encoded.pieces, encoded.n_pieces);
    check(body.len == encoded.n_bytes, &err);
    check(encoded.binary == (body.len > encoded.json.len), &err);
    check(v2_response_decode(arena, body, encoded.json.len, false, &fuzz_limits, &back, &err) ==
              ST_OK,
          &err);
    check(strcmp(fixture_response(arena, answer), fixture_response(arena, &back)) == 0, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    size_t json_bytes, n_bytes;
    char *body = fuzz_body(data, size, &json_bytes, &n_bytes);
    struct v2_client_response answer;
    struct error err = {0};
    if (v2_response_decode(arena, str_make(body, n_bytes), json_bytes, false, &fixture_limits,
                           &answer, &err) == ST_OK) {
        reencode_response(arena, &answer);
    } else {
        check(err.text[0] != '\0', &err);
    }
    arena_free(arena);
    free(body);
    return 0;
}

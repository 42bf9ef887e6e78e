/* Errors and metadata decoded by a client; metadata is printed by the server's half and must
 * read back the same. */
#include "codec/json/error_body.h"
#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/metadata.h"
#include "codec/kserve/v2_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static struct str print_metadata(struct arena *arena, const struct model_spec *model) {
    struct buf message, out;
    struct error err;
    buf_init(&message, arena, 256);
    buf_init(&out, arena, 256);
    v2_grpc_model_metadata_encode(&message, model, &model->version, 1);
    check(!message.failed);
    check(v2_grpc_document_add(&out, V2_GRPC_MODEL_METADATA, buf_str(&message), UINT64_MAX, &err) ==
          ST_OK);
    return buf_str(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct str body = str_make((const char *)data, size);
    struct model_spec model, back;
    struct error err = {0};
    if (v2_model_metadata_decode(arena, body, &fixture_limits, &model, &err) == ST_OK) {
        struct str text = print_metadata(arena, &model);
        struct json_limits fuzz_limits = {1 << 26, 1000, 1 << 26};
        check(v2_model_metadata_decode(arena, text, &fuzz_limits, &back, &err) == ST_OK);
        check(str_eq(text, print_metadata(arena, &back)));
    } else {
        check(err.text[0] != '\0');
    }
    struct str sentence = v2_error_decode(arena, body);
    if (sentence.ptr) {
        struct buf out;
        error_set(&err, ST_INTERNAL, "%.*s", STR_ARG(sentence));
        buf_init(&out, arena, 64);
        json_error_body_print(&out, &err);
        struct str again = v2_error_decode(arena, buf_str(&out));
        check(again.ptr && str_is(again, err.text));
    }
    arena_free(arena);
    return 0;
}

/* Responses of inference.GRPCInferenceService, to the byte as foreign code writes them, and
 * decoded again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/grpc/v2_grpc_fixture.h"
#include "codec/protobuf/pb.h"
#include "core/base/arena_fixture.h"

static struct error err;

static const float VALUES[] = {1, 2};
static const int64_t DIMS[] = {1, 2}, EMPTY_DIMS[] = {0};
static const struct piece PIECES[] = {{VALUES, 4}, {VALUES + 1, 4}};
static const struct model_spec SPEC = {
    .name = STR("m"), .version = 1, .version_text = STR("1"), .platform = STR("p")};

static struct infer_response two_outputs(struct tensor out[2]) {
    out[0] = (struct tensor){.name = STR("O"),
                             .datatype = DT_FP32,
                             .shape = {DIMS, 2},
                             .pieces = PIECES,
                             .n_pieces = 2,
                             .n_bytes = 8};
    out[1] = (struct tensor){.name = STR("E"), .datatype = DT_INT8, .shape = {EMPTY_DIMS, 1}};
    return (struct infer_response){.outputs = out, .n_outputs = 2};
}

static struct str join(const struct v2_grpc_message *message) {
    struct buf whole;
    buf_init(&whole, arena, 64);
    for (size_t i = 0; i < message->n_pieces; i++) {
        buf_add(&whole, message->pieces[i].data, message->pieces[i].n_bytes);
    }
    assert_int_equal(whole.len, message->n_bytes);
    return buf_str(&whole);
}

static void assert_message(struct str got, struct str want) {
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.ptr, want.ptr, want.len);
}

static void v2_grpc_response_encode_matches_foreign_bytes(void **state) {
    (void)state;
    struct tensor outputs[2];
    struct infer_response response = two_outputs(outputs);
    struct v2_grpc_message out;
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR("abc"), &response, false, 1, &out, &err), ST_OK);
    assert_message(join(&out), MESSAGE(ANSWER));
    bool in_place = false;
    for (size_t i = 0; i < out.n_pieces; i++) {
        in_place = in_place || out.pieces[i].data == VALUES;
    }
    assert_true(in_place);
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR("abc"), &response, true, 1, &out, &err), ST_OK);
    assert_message(join(&out), MESSAGE(STREAM_ANSWER));
}

static void v2_grpc_response_encode_over_max_message_is_refused(void **state) {
    (void)state;
    struct tensor outputs[2];
    struct infer_response response = two_outputs(outputs);
    outputs[0].n_bytes = INT32_MAX;
    struct v2_grpc_message out;
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR(""), &response, false, -1, &out, &err),
        ST_BAD_OUTPUT);
}

static void v2_grpc_stream_error_encode_matches_foreign_bytes(void **state) {
    (void)state;
    struct error error = {ST_BAD_SHAPE, "no"};
    struct buf out;
    buf_init(&out, arena, 64);
    v2_grpc_stream_error_encode(&out, &error, STR("abc"), STR("m"), STR("1"), 0);
    assert_message(buf_str(&out), MESSAGE(STREAM_ERROR));
    struct v2_grpc_client_response answer;
    error.text[0] = 0; /* an empty text would look like success */
    out.len = 0;
    v2_grpc_stream_error_encode(&out, &error, STR(""), STR(""), STR(""), -1);
    assert_int_equal(v2_grpc_client_response_decode(arena, buf_str(&out), true, &answer, &err),
                     ST_OK);
    assert_true(str_is(answer.error_message, "wrong shape"));
}

static void v2_grpc_model_metadata_roundtrips(void **state) {
    (void)state;
    static const int64_t a[] = {-1, 2}, b[] = {-1};
    static const struct tensor_spec in = {.name = STR("A"), .datatype = DT_FP32, .shape = {a, 2}},
                                    out_spec = {
                                        .name = STR("B"), .datatype = DT_BYTES, .shape = {b, 1}};
    static const uint64_t versions[] = {1, 3};
    struct model_spec spec = SPEC;
    spec.inputs = &in;
    spec.outputs = &out_spec;
    spec.n_inputs = spec.n_outputs = 1;
    struct buf out;
    buf_init(&out, arena, 64);
    v2_grpc_model_metadata_encode(&out, &spec, versions, 2);
    assert_message(buf_str(&out), MESSAGE(METADATA));
    struct v2_grpc_model_metadata read;
    assert_int_equal(v2_grpc_model_metadata_decode(arena, buf_str(&out), &read, &err), ST_OK);
    assert_int_equal(read.n_versions, 2);
    assert_true(str_is(read.versions[1], "3") && str_is(read.platform, "p"));
    assert_true(str_is(read.inputs[0].name, "A") && read.inputs[0].shape.dims[0] == -1);
    assert_int_equal(read.outputs[0].datatype, DT_BYTES);
}

static void v2_grpc_client_answer_of_many_fields_is_refused(void **state) {
    enum { MANY = 100001 };
    struct v2_grpc_client_response answer;
    struct v2_grpc_model_metadata model;
    struct v2_server_metadata server;
    (void)state;
    char *fields = malloc(2 * MANY);
    assert_non_null(fields);
    for (size_t i = 0; i < MANY; i++) {
        fields[2 * i] = 0x2a; /* an empty message as field 5 */
        fields[2 * i + 1] = 0;
    }
    struct str message = str_make(fields, 2 * MANY);
    assert_int_equal(v2_grpc_client_response_decode(arena, message, false, &answer, &err),
                     ST_BAD_ANSWER);
    assert_non_null(strstr(err.text, "over 100000 fields"));
    assert_int_equal(v2_grpc_model_metadata_decode(arena, message, &model, &err), ST_BAD_ANSWER);
    assert_int_equal(v2_grpc_server_metadata_decode(arena, message, &server, &err), ST_BAD_ANSWER);
    message = str_make(fields, 2 * MANY - 2);
    assert_int_equal(v2_grpc_server_metadata_decode(arena, message, &server, &err), ST_OK);
    free(fields);
}

static void v2_grpc_client_response_decode_reads_outputs(void **state) {
    (void)state;
    struct v2_grpc_client_response answer;
    assert_int_equal(
        v2_grpc_client_response_decode(arena, MESSAGE(STREAM_ANSWER), true, &answer, &err), ST_OK);
    assert_true(str_is(answer.id, "abc") && str_is(answer.version, "1"));
    assert_true(params_find(answer.params, "triton_final_response")->boolean);
    assert_int_equal(answer.n_outputs, 2);
    assert_int_equal(answer.outputs[0].n_bytes, 8);
    assert_memory_equal(answer.outputs[0].pieces[0].data, VALUES, 8);
    for (size_t n = 0; n < sizeof ANSWER - 1; n++) { /* nothing is read past the end */
        char *copy = malloc(n ? n : 1);
        memcpy(copy, ANSWER, n);
        enum status st =
            v2_grpc_client_response_decode(arena, str_make(copy, n), false, &answer, &err);
        assert_true(st == ST_OK || st == ST_BAD_REQUEST);
        free(copy);
    }
    struct buf out;
    buf_init(&out, arena, 64);
    pb_add_bytes(&out, 6, STR("x"));
    assert_int_equal(v2_grpc_client_response_decode(arena, buf_str(&out), false, &answer, &err),
                     ST_BAD_ANSWER);
}

static void v2_grpc_small_messages_match_bytes(void **state) {
    (void)state;
    static const char *const extensions[] = {"binary_tensor_data", NULL};
    struct str name, version;
    struct buf out;
    buf_init(&out, arena, 64);
    v2_grpc_bool_encode(&out, true);
    assert_message(buf_str(&out), STR("\x08\x01"));
    out.len = 0;
    v2_grpc_bool_encode(&out, false);
    assert_int_equal(out.len, 0);
    v2_grpc_server_metadata_encode(&out, "s", "1", extensions);
    assert_message(buf_str(&out), STR("\x0a\x01s\x12\x01"
                                      "1\x1a\x12"
                                      "binary_tensor_data"));
    assert_int_equal(v2_grpc_named_decode(arena,
                                          STR("\x0a\x01m\x12\x01"
                                              "2"),
                                          &name, &version, &err),
                     ST_OK);
    assert_true(str_is(name, "m") && str_is(version, "2"));
    assert_int_equal(v2_grpc_named_decode(arena, STR("\x0a\x09m"), &name, &version, &err),
                     ST_BAD_REQUEST);
    assert_int_equal(v2_grpc_empty_decode(STR(""), &err), ST_OK);
    assert_int_equal(v2_grpc_empty_decode(STR("\x0f"), &err), ST_BAD_REQUEST);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(v2_grpc_response_encode_matches_foreign_bytes),
        TEST(v2_grpc_response_encode_over_max_message_is_refused),
        TEST(v2_grpc_stream_error_encode_matches_foreign_bytes),
        TEST(v2_grpc_model_metadata_roundtrips),
        TEST(v2_grpc_client_answer_of_many_fields_is_refused),
        TEST(v2_grpc_client_response_decode_reads_outputs),
        TEST(v2_grpc_small_messages_match_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Responses of inference.GRPCInferenceService, to the byte as foreign code writes them, and
 * decoded again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/grpc/v2_grpc_fixture.h"
#include "codec/kserve/json_elements_print.h"
#include "codec/protobuf/pb.h"
#include "core/base/arena_fixture.h"

static struct error err;

static const float VALUES[] = {1, 2};
static const int64_t DIMS[] = {1, 2}, EMPTY_DIMS[] = {0};
static const struct piece PIECES[] = {{VALUES, 4}, {VALUES + 1, 4}};
static const struct model_spec SPEC = {
    .name = STR("m"), .version = 1, .version_text = STR("1"), .platform = STR("p")};

static const struct v2_grpc_response_form RAW_FORM = {.final = -1}, RAW_FINAL_FORM = {.final = 1},
                                          RAW_STREAM_FORM = {.stream = true, .final = 1},
                                          TYPED_FORM = {.typed = true, .final = -1};

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
        v2_grpc_response_encode(arena, &SPEC, STR("abc"), &response, RAW_FINAL_FORM, &out, &err),
        ST_OK);
    assert_message(join(&out), MESSAGE(ANSWER));
    bool in_place = false;
    for (size_t i = 0; i < out.n_pieces; i++) {
        in_place = in_place || out.pieces[i].data == VALUES;
    }
    assert_true(in_place);
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR("abc"), &response, RAW_STREAM_FORM, &out, &err),
        ST_OK);
    assert_message(join(&out), MESSAGE(STREAM_ANSWER));
}

/* Elements of each datatype that has a list, with the values at which a varint grows. */
static const struct typed_row {
    enum datatype datatype;
    struct str bytes;
    size_t n;
} typed_rows[] = {
    {DT_BOOL, {"\0\1\1", 3}, 3},
    {DT_INT8, {"\x00\x01\x7f\x80\xff", 5}, 5},
    {DT_UINT8, {"\x00\x7f\x80\xff", 4}, 4},
    {DT_INT16, {"\xff\x7f\x00\x80\xff\xff\x80\x00", 8}, 4},
    {DT_UINT16, {"\xff\xff\x00\x00\xff\x3f\x00\x40", 8}, 4},
    {DT_INT32, {"\xff\xff\xff\x7f\x00\x00\x00\x80\xff\xff\xff\xff", 12}, 3},
    {DT_UINT32, {"\xff\xff\xff\xff\x00\x00\x00\x80", 8}, 2},
    {DT_INT64, {"\xff\xff\xff\xff\xff\xff\xff\x7f\0\0\0\0\0\0\0\x80", 16}, 2},
    {DT_UINT64, {"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0", 16}, 2},
    {DT_FP32, {"\0\0\xc0\x7f\0\0\0\x80\0\0\x80\x3f", 12}, 3},
    {DT_FP64, {"\0\0\0\0\0\0\xf0\x7f\0\0\0\0\0\0\0\x80", 16}, 2},
    {DT_BYTES, {"\1\0\0\0a\0\0\0\0\3\0\0\0\xff\0b", 16}, 3},
    {DT_FP32, {"", 0}, 0},
    {DT_INT8, {"", 0}, 0},
    {DT_BYTES, {"", 0}, 0},
};
enum { N_TYPED_ROWS = sizeof(typed_rows) / sizeof(typed_rows[0]) };

static bool has_field(struct str message, uint32_t number) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        if (field.number == number) {
            return true;
        }
    }
    return false;
}

/* The message decoded again, and each of its prefixes, which must not be read beyond its end. */
static void check_typed_answer(struct str message, bool stream, const struct tensor *outputs,
                               size_t n) {
    struct v2_grpc_client_response answer;
    assert_int_equal(v2_grpc_client_response_decode(arena, message, stream, &answer, &err), ST_OK);
    assert_int_equal(answer.n_outputs, n);
    for (size_t i = 0; i < n; i++) {
        const struct tensor *got = &answer.outputs[i];
        struct str bytes = element_gather(arena, &outputs[i]);
        assert_int_equal(got->datatype, outputs[i].datatype);
        assert_true(str_eq(got->name, outputs[i].name) && shape_eq(got->shape, outputs[i].shape));
        assert_int_equal(got->n_bytes, bytes.len);
        assert_true(str_eq(element_gather(arena, got), bytes));
    }
    for (size_t len = 0; len < message.len; len++) {
        char *copy = malloc(len + 1);
        memcpy(copy, message.ptr, len);
        enum status st =
            v2_grpc_client_response_decode(arena, str_make(copy, len), stream, &answer, &err);
        assert_true(st == ST_OK || st == ST_BAD_REQUEST || st == ST_BAD_FIELD);
        free(copy);
    }
}

static void v2_grpc_response_encode_typed_roundtrips(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TYPED_ROWS; i++) {
        const struct typed_row *row = &typed_rows[i];
        for (size_t at = 0; at <= row->bytes.len; at++) {
            int64_t dims[] = {1, (int64_t)row->n};
            struct piece pieces[] = {{row->bytes.ptr, at},
                                     {row->bytes.ptr + at, row->bytes.len - at}};
            struct tensor outputs[] = {
                {.name = STR("first"),
                 .datatype = row->datatype,
                 .shape = {dims, 2},
                 .pieces = pieces,
                 .n_pieces = 2,
                 .n_bytes = row->bytes.len},
                {.name = STR("E"), .datatype = DT_INT8, .shape = {EMPTY_DIMS, 1}},
                {.name = STR("O"),
                 .datatype = DT_FP32,
                 .shape = {DIMS, 2},
                 .pieces = PIECES,
                 .n_pieces = 2,
                 .n_bytes = 8}};
            struct infer_response response = {.outputs = outputs, .n_outputs = 3};
            struct v2_grpc_message out;
            struct v2_grpc_response_form form = {.typed = true, .stream = at % 2 == 1, .final = 1};
            assert_int_equal(
                v2_grpc_response_encode(arena, &SPEC, STR("abc"), &response, form, &out, &err),
                ST_OK);
            struct str message = join(&out);
            check_typed_answer(message, at % 2 == 1, outputs, 3);
            assert_true(at % 2 == 1 || !has_field(message, 6));
        }
    }
}

/* A large output, whose lengths take several bytes. */
static void v2_grpc_response_encode_typed_large_roundtrips(void **state) {
    enum { N = 70000 };
    (void)state;
    int32_t *numbers = malloc(N * sizeof *numbers);
    assert_non_null(numbers);
    for (int i = 0; i < N; i++) {
        numbers[i] = i % 3 == 0 ? -i : i;
    }
    int64_t dims[] = {N};
    struct piece piece = {numbers, N * sizeof *numbers};
    struct tensor output = {.name = STR("O"),
                            .datatype = DT_INT32,
                            .shape = {dims, 1},
                            .pieces = &piece,
                            .n_pieces = 1,
                            .n_bytes = piece.n_bytes};
    struct infer_response response = {.outputs = &output, .n_outputs = 1};
    struct v2_grpc_message out;
    struct v2_grpc_client_response answer;
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR(""), &response, TYPED_FORM, &out, &err), ST_OK);
    assert_int_equal(v2_grpc_client_response_decode(arena, join(&out), false, &answer, &err),
                     ST_OK);
    assert_int_equal(answer.outputs[0].n_bytes, piece.n_bytes);
    assert_memory_equal(answer.outputs[0].pieces[0].data, numbers, piece.n_bytes);
    assert_int_equal(v2_grpc_typed_elements(&response), N);
    free(numbers);
}

/* FP16 has no list: then all outputs are raw. A byte that is no BOOL is true. */
static void v2_grpc_response_encode_typed_without_list_is_raw(void **state) {
    (void)state;
    static const int64_t three[] = {3};
    static const struct piece bools = {"\0\xff\2", 3}, halves = {"\0\1\2\3\4\5", 6};
    struct tensor outputs[] = {{.name = STR("B"),
                                .datatype = DT_BOOL,
                                .shape = {three, 1},
                                .pieces = &bools,
                                .n_pieces = 1,
                                .n_bytes = 3},
                               {.name = STR("H"),
                                .datatype = DT_FP16,
                                .shape = {three, 1},
                                .pieces = &halves,
                                .n_pieces = 1,
                                .n_bytes = 6}};
    struct infer_response response = {.outputs = outputs, .n_outputs = 2};
    struct v2_grpc_message out;
    struct v2_grpc_client_response answer;
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR(""), &response, TYPED_FORM, &out, &err), ST_OK);
    assert_true(has_field(join(&out), 6));
    assert_int_equal(v2_grpc_client_response_decode(arena, join(&out), false, &answer, &err),
                     ST_OK);
    assert_int_equal(answer.outputs[1].n_bytes, 6);
    response.n_outputs = 1;
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR(""), &response, TYPED_FORM, &out, &err), ST_OK);
    assert_false(has_field(join(&out), 6));
    assert_int_equal(v2_grpc_client_response_decode(arena, join(&out), false, &answer, &err),
                     ST_OK);
    assert_memory_equal(answer.outputs[0].pieces[0].data, "\0\1\1", 3);
    outputs[0].datatype = DT_BYTES; /* broken framing */
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR(""), &response, TYPED_FORM, &out, &err),
        ST_BAD_OUTPUT);
}

static void v2_grpc_response_encode_over_max_message_is_refused(void **state) {
    (void)state;
    struct tensor outputs[2];
    struct infer_response response = two_outputs(outputs);
    outputs[0].n_bytes = INT32_MAX;
    struct v2_grpc_message out;
    assert_int_equal(
        v2_grpc_response_encode(arena, &SPEC, STR(""), &response, RAW_FORM, &out, &err),
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
        TEST(v2_grpc_response_encode_typed_roundtrips),
        TEST(v2_grpc_response_encode_typed_large_roundtrips),
        TEST(v2_grpc_response_encode_typed_without_list_is_raw),
        TEST(v2_grpc_response_encode_over_max_message_is_refused),
        TEST(v2_grpc_stream_error_encode_matches_foreign_bytes),
        TEST(v2_grpc_model_metadata_roundtrips),
        TEST(v2_grpc_client_answer_of_many_fields_is_refused),
        TEST(v2_grpc_client_response_decode_reads_outputs),
        TEST(v2_grpc_small_messages_match_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

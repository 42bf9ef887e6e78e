/* Requests of KServe v2 as messages, and answers as they are checked, without a connection. */
#include "client/v2_grpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"

static struct error err;

static void expect_text(const char *says) {
    if (!strstr(err.text, says)) {
        fail_msg("\"%s\" lacks \"%s\"", err.text, says);
    }
}

static struct str join(const struct client_grpc_request *request) {
    struct buf whole;
    buf_init(&whole, arena, 64);
    for (size_t i = 0; i < request->n_pieces; i++) {
        buf_add(&whole, request->pieces[i].data, request->pieces[i].n_bytes);
    }
    return buf_str(&whole);
}

/* ---- queries --------------------------------------------------------------------------------- */

static void query_has_path_and_message(void **state) {
    (void)state;
    static const struct {
        struct client_query_args args;
        const char *method;
        struct str message;
    } rows[] = {
        {{.query = CLIENT_LIVE}, "ServerLive", STR("")},
        {{.query = CLIENT_READY}, "ServerReady", STR("")},
        {{.query = CLIENT_SERVER}, "ServerMetadata", STR("")},
        {{.query = CLIENT_MODEL_READY, .model = STR("m"), .version = STR("2")},
         "ModelReady",
         STR("\x0a\1m\x12\1\x32")},
        {{.query = CLIENT_MODEL, .model = STR("m")}, "ModelMetadata", STR("\x0a\1m")},
        {{.query = CLIENT_CONFIG, .model = STR("m")}, "ModelConfig", STR("\x0a\1m")},
        {{.query = CLIENT_STATISTICS}, "ModelStatistics", STR("")},
        {{.query = CLIENT_INDEX}, "RepositoryIndex", STR("")},
        {{.query = CLIENT_UNLOAD, .model = STR("m")}, "RepositoryModelUnload", STR("\x12\1m")},
        {{.query = CLIENT_SHM_REGISTER, .region = {STR("r"), STR("/k"), 3, 100}},
         "SystemSharedMemoryRegister",
         STR("\x0a\1r\x12\2/k\x18\3\x20\x64")},
        {{.query = CLIENT_SHM_UNREGISTER, .region.name = STR("r")},
         "SystemSharedMemoryUnregister",
         STR("\x0a\1r")},
        {{.query = CLIENT_SHM_UNREGISTER}, "SystemSharedMemoryUnregister", STR("")},
        {{.query = CLIENT_LOAD, .model = STR("m"), .config = STR("{}")},
         "RepositoryModelLoad",
         STR("\x12\1m\x1a\x0e\x0a\6config\x12\4\x1a\2{}")},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct client_grpc_request request;
        assert_int_equal(client_grpc_query_encode(arena, &rows[i].args, &request, &err), ST_OK);
        assert_true(str_starts_with(request.path, STR("/inference.GRPCInferenceService/")));
        assert_true(str_ends_with(request.path, str_of(rows[i].method)));
        struct str message = join(&request);
        assert_int_equal(message.len, rows[i].message.len);
        assert_memory_equal(message.ptr, rows[i].message.ptr, message.len);
    }
}

static void query_bad_arguments_are_refused(void **state) {
    (void)state;
    static const struct {
        struct client_query_args args;
        const char *says;
    } rows[] = {
        {{.query = CLIENT_MODEL, .model = STR("")}, "the model's name is empty"},
        {{.query = CLIENT_CONFIG}, "the model's name is empty"},
        {{.query = CLIENT_SHM_REGISTER, .region.name = STR("r")}, "a name and a key"},
        {{.query = CLIENT_MODEL, .model = STR("\xff")}, "not UTF-8"},
        {{.query = CLIENT_MODEL, .model = STR("m"), .version = STR("\xff")}, "not UTF-8"},
        {{.query = CLIENT_LOAD, .model = STR("m"), .config = STR("\xff")}, "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct client_grpc_request request;
        assert_int_equal(client_grpc_query_encode(arena, &rows[i].args, &request, &err),
                         ST_BAD_FIELD);
        expect_text(rows[i].says);
    }
}

/* ---- inferences ------------------------------------------------------------------------------ */

static const int64_t TWO[] = {2}, NEGATIVE[] = {-2}, HUGE_DIMS[] = {INT64_MAX, INT64_MAX};
static const struct piece DATA = {"12345678", 8};

static struct v2_request one_input(struct infer_input *input) {
    *input = (struct infer_input){.tensor = {.name = STR("I"),
                                             .datatype = DT_FP32,
                                             .shape = {TWO, 1},
                                             .pieces = &DATA,
                                             .n_pieces = 1,
                                             .n_bytes = 8}};
    return (struct v2_request){.infer = {.id = STR("a"), .inputs = input, .n_inputs = 1}};
}

static enum status encode(const struct v2_request *request, bool raw, struct str model) {
    const struct client_infer infer = {.model = model, .request = request, .raw = raw};
    struct client_grpc_request out;
    enum status status = client_grpc_infer_encode(arena, &infer, &out, &err);
    if (status == ST_OK) {
        struct str message = join(&out);
        assert_true(str_is(out.path, "/inference.GRPCInferenceService/ModelInfer"));
        assert_true(str_starts_with(message, STR("\x0a\1m\x1a\1"
                                                 "a")));
        assert_true(str_ends_with(message, STR("\x3a\x08"
                                               "12345678")));
        assert_true(out.pieces[out.n_pieces - 1].data == DATA.data); /* not copied */
    }
    return status;
}

static void infer_is_encoded_with_its_bytes_in_place(void **state) {
    (void)state;
    struct infer_input input;
    struct v2_request request = one_input(&input);
    assert_int_equal(encode(&request, false, STR("m")), ST_OK);
}

static void infer_bad_arguments_are_refused(void **state) {
    (void)state;
    struct infer_input input;
    struct v2_request request = one_input(&input);
    assert_int_equal(encode(&request, false, STR("")), ST_BAD_FIELD);
    expect_text("name is empty");
    assert_int_equal(encode(&request, true, STR("m")), ST_UNSUPPORTED);
    expect_text("binary");
    assert_int_equal(encode(&request, false, STR("\xff")), ST_BAD_DATA);
    input.tensor.n_bytes = 7;
    assert_int_equal(encode(&request, false, STR("m")), ST_BAD_DATA);
    expect_text("7 bytes don't fit FP32 of shape [2]");
    input.tensor.shape.dims = NEGATIVE;
    assert_int_equal(encode(&request, false, STR("m")), ST_BAD_SHAPE);
    input.tensor.shape = (struct shape){HUGE_DIMS, 2};
    assert_int_equal(encode(&request, false, STR("m")), ST_BAD_SHAPE);
    request = one_input(&input);
    input.tensor.name = STR("\xff");
    assert_int_equal(encode(&request, false, STR("m")), ST_BAD_DATA);
    request = one_input(&input);
    struct infer_requested_output wanted = {.name = STR("\xff")};
    request.infer.wanted = &wanted;
    request.infer.n_wanted = 1;
    assert_int_equal(encode(&request, false, STR("m")), ST_BAD_DATA);
    request = one_input(&input);
    struct param param = {.name = STR("p"), .kind = PARAM_STRING, .string = STR("\xff")};
    request.infer.params = (struct params){&param, 1};
    assert_int_equal(encode(&request, false, STR("m")), ST_BAD_DATA);
    expect_text("parameter 0");
}

/* ---- answers --------------------------------------------------------------------------------- */

/* ModelInferResponse {model_name: "m", outputs: [{name: "O", datatype, shape}], raw…} */
static enum status decode(struct str output, struct str rest, struct v2_client_response *out) {
    struct buf message;
    buf_init(&message, arena, 64);
    buf_add_str(&message, STR("\x0a\1m"));
    buf_add_str(&message, output);
    buf_add_str(&message, rest);
    return client_grpc_infer_decode(arena, buf_str(&message), false, out, &err);
}

#define FP32_OF_2 STR("\x2a\x0c\x0a\1O\x12\4FP32\x1a\1\2")
#define BYTES_OF_1 STR("\x2a\x0d\x0a\1O\x12\5BYTES\x1a\1\1")

static void infer_answer_is_checked(void **state) {
    (void)state;
    struct v2_client_response out;
    assert_int_equal(decode(FP32_OF_2,
                            STR("\x32\x08"
                                "12345678"),
                            &out),
                     ST_OK);
    assert_true(str_is(out.model_name, "m") && out.id.len == 0);
    assert_int_equal(out.infer.n_outputs, 1);
    assert_int_equal(out.infer.outputs[0].n_bytes, 8);
    assert_int_equal(decode(BYTES_OF_1, STR("\x32\5\1\0\0\0x"), &out), ST_OK);
    static const struct {
        struct str output, rest;
        const char *says;
    } rows[] = {
        {FP32_OF_2,
         STR("\x32\7"
             "1234567"),
         "expected 8 bytes"},
        {FP32_OF_2, STR(""), "expected 8 bytes"},
        {FP32_OF_2,
         STR("\x32\x08"
             "12345678\x32\0"),
         "more raw_output_contents than outputs"},
        {BYTES_OF_1, STR("\x32\5\2\0\0\0x"), "O"},
        {STR("\x2a\x0c\x0a\1O\x12\4FP99\x1a\1\2"), STR(""), "datatype"},
        {STR("\x2a\x15\x0a\1O\x12\4FP32\x1a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"), STR(""),
         "shape"},
        {STR("\x2a\x0c\x0a"), STR(""), "past the end"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(decode(rows[i].output, rows[i].rest, &out), ST_BAD_ANSWER);
        expect_text(rows[i].says);
        expect_text("the server's answer");
    }
}

static void other_answers_are_checked(void **state) {
    (void)state;
    struct v2_server_metadata server;
    struct model_spec model;
    struct str text;
    bool yes;
    struct str cut = STR("\x0a\5m");
    assert_int_equal(client_grpc_server_decode(arena, cut, &server, &err), ST_BAD_ANSWER);
    assert_int_equal(client_grpc_model_decode(arena, cut, &model, &err), ST_BAD_ANSWER);
    assert_int_equal(client_grpc_yes_decode(STR("\x08"), &yes, &err), ST_BAD_ANSWER);
    assert_int_equal(client_grpc_text_decode(arena, CLIENT_INDEX, cut, 100, &text, &err),
                     ST_BAD_ANSWER);
    assert_int_equal(
        client_grpc_text_decode(arena, CLIENT_STATISTICS, STR("\x0a\0"), 8, &text, &err),
        ST_BODY_TOO_LARGE);
    /* ModelMetadataResponse with an input of an unknown datatype, and with one of shape [-2] */
    assert_int_equal(client_grpc_model_decode(arena, STR("\x22\3\x0a\1I"), &model, &err),
                     ST_BAD_ANSWER);
    expect_text("tensor \"I\"");
    assert_int_equal(
        client_grpc_model_decode(
            arena, STR("\x22\x15\x0a\1I\x12\4FP32\x1a\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"),
            &model, &err),
        ST_BAD_ANSWER);
    assert_int_equal(client_grpc_model_decode(arena,
                                              STR("\x0a\1m\x12\1\x31\x22\x15\x0a\1I\x12\4FP32\x1a"
                                                  "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"),
                                              &model, &err),
                     ST_OK);
    assert_true(str_is(model.version_text, "1") && model.inputs[0].shape.dims[0] == -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(query_has_path_and_message),
        TEST(query_bad_arguments_are_refused),
        TEST(infer_is_encoded_with_its_bytes_in_place),
        TEST(infer_bad_arguments_are_refused),
        TEST(infer_answer_is_checked),
        TEST(other_answers_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

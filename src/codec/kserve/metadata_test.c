/* Metadata, health and error bodies, to the byte, and decoded by a client. */
#include "codec/kserve/metadata.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/json/error_body.h"
#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/v2_fixture.h"

static void assert_text(const struct buf *buf, const char *want) {
    assert_false(buf->failed);
    if (!str_is(buf_str(buf), want)) {
        fail_msg("expected %s\ngot      %.*s", want, STR_ARG(buf_str(buf)));
    }
}

/* Asserts the JSON of a message. */
static void assert_document(enum v2_grpc_document document, const struct buf *message,
                            const char *want) {
    struct buf json;
    struct error err;
    buf_init(&json, message->arena, 0);
    assert_int_equal(v2_grpc_document_add(&json, document, buf_str(message), UINT64_MAX, &err),
                     ST_OK);
    assert_text(&json, want);
}

static void v2_small_bodies_print_matches(void **state) {
    static const char *const some[] = {"binary_tensor_data", "x\"y", NULL};
    static const char *const none[] = {NULL};
    struct arena *arena = arena_new(NULL, 0);
    struct buf buf;
    struct error err;
    (void)state;
    buf_init(&buf, arena, 0);
    error_set(&err, ST_BAD_JSON, "say \"no\"\\ caf\xc3\xa9 \n");
    json_error_body_print(&buf, &err);
    assert_text(&buf, "{\"error\":\"say \\\"no\\\"\\\\ caf\xc3\xa9 ?\"}");
    buf_init(&buf, arena, 0);
    v2_grpc_server_metadata_encode(&buf, "sluice", "0.1", some);
    assert_document(V2_GRPC_SERVER_METADATA, &buf,
                    "{\"name\":\"sluice\",\"version\":\"0.1\",\"extensions\":"
                    "[\"binary_tensor_data\",\"x\\\"y\"]}");
    buf_init(&buf, arena, 0);
    v2_grpc_server_metadata_encode(&buf, "", "", none);
    assert_document(V2_GRPC_SERVER_METADATA, &buf,
                    "{\"name\":\"\",\"version\":\"\",\"extensions\":[]}");
    buf_init(&buf, arena, 0);
    v2_live_print(&buf, true);
    v2_live_print(&buf, false);
    v2_ready_print(&buf, true);
    v2_ready_print(&buf, false);
    v2_model_ready_print(&buf, STR("m\t"), true);
    v2_model_ready_print(&buf, STR("m"), false);
    assert_text(&buf, "{\"live\":true}{\"live\":false}{\"live\":true,\"ready\":true}"
                      "{\"live\":false,\"ready\":false}{\"name\":\"m\\t\",\"ready\":true}"
                      "{\"name\":\"m\",\"ready\":false}");
    arena_free(arena);
}

static const int64_t first_dims[] = {-1, 16};
static const struct tensor_spec inputs[] = {
    {.name = {"INPUT0", 6}, .datatype = DT_FP32, .shape = {first_dims, 2}},
    {.name = {"s", 1}, .datatype = DT_BYTES, .shape = {NULL, 0}},
};
static const struct model_spec model = {
    .name = {"identity", 8},
    .version = 3,
    .version_text = {"3", 1},
    .platform = {"onnxruntime_onnx", 16},
    .inputs = inputs,
    .n_inputs = 2,
    .outputs = inputs,
    .n_outputs = 1,
};
static const char metadata[] =
    "{\"name\":\"identity\",\"versions\":[\"1\",\"3\"],\"platform\":\"onnxruntime_onnx\","
    "\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[-1,16]},"
    "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[]}],"
    "\"outputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[-1,16]}]}";

static void v2_model_metadata_document_matches(void **state) {
    static const uint64_t versions[] = {1, 3};
    struct arena *arena = arena_new(NULL, 0);
    struct buf buf;
    (void)state;
    buf_init(&buf, arena, 0);
    v2_grpc_model_metadata_encode(&buf, &model, versions, 2);
    assert_document(V2_GRPC_MODEL_METADATA, &buf, metadata);
    arena_free(arena);
}

static void v2_model_metadata_decode_reads_all_members(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_spec got;
    struct error err;
    (void)state;
    assert_int_equal(v2_model_metadata_decode(arena, str_of(metadata), &fixture_limits, &got, &err),
                     ST_OK);
    assert_true(str_is(got.name, "identity"));
    assert_true(str_is(got.platform, "onnxruntime_onnx"));
    assert_true(str_is(got.version_text, "3"));
    assert_int_equal(got.version, 3);
    assert_int_equal(got.n_inputs, 2);
    assert_int_equal(got.n_outputs, 1);
    assert_true(str_is(got.inputs[0].name, "INPUT0"));
    assert_int_equal(got.inputs[0].datatype, DT_FP32);
    assert_true(shape_eq(got.inputs[0].shape, inputs[0].shape));
    assert_int_equal(got.inputs[1].shape.rank, 0);
    arena_free(arena);
}

static void v2_model_metadata_decode_foreign_rows_match(void **state) {
    static const struct {
        const char *json;
        enum status status;
        const char *sentence;
    } rows[] = {
        {"{\"name\":\"m\"}", ST_OK, ""},
        {"{\"name\":\"m\",\"versions\":[\"v1\"],\"properties\":{}}", ST_OK, ""},
        {"{\"name\":\"m\",\"versions\":[],\"inputs\":[]}", ST_OK, ""},
        {"[]", ST_BAD_FIELD, "the metadata: expected an object"},
        {"{}", ST_BAD_FIELD, "name: missing"},
        {"{\"name\":1}", ST_BAD_FIELD, "name: expected a string, got 1"},
        {"{\"name\":\"m\",\"platform\":1}", ST_BAD_FIELD, "platform: expected a string"},
        {"{\"name\":\"m\",\"versions\":\"1\"}", ST_BAD_FIELD, "versions: expected an array"},
        {"{\"name\":\"m\",\"versions\":[1]}", ST_BAD_FIELD, "versions[0]: expected a string"},
        {"{\"name\":\"m\",\"inputs\":{}}", ST_BAD_FIELD, "inputs: expected an array"},
        {"{\"name\":\"m\",\"inputs\":[1]}", ST_BAD_FIELD, "inputs[0]: expected an object"},
        {"{\"name\":\"m\",\"outputs\":[{}]}", ST_BAD_FIELD, "outputs[0].name: missing"},
        {"{\"name\":\"m\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-2]}]}",
         ST_BAD_FIELD, "inputs[0].shape[0]: expected a whole number from -1"},
        {"{\"name\":\"m\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP\",\"shape\":[]}]}",
         ST_BAD_DATATYPE, "inputs[0].datatype"},
        {"{\"name\":", ST_BAD_JSON, "malformed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct model_spec got;
        struct error err = {0};
        enum status status =
            v2_model_metadata_decode(arena, str_of(rows[i].json), &fixture_limits, &got, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].sentence)) {
            fail_msg("%s: %s %s", rows[i].json, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

static void v2_error_decode_rows_match(void **state) {
    static const struct {
        const char *json;
        const char *sentence; /* NULL: not an error body */
    } rows[] = {
        {"{\"error\":\"no \\\"x\\\"\"}", "no \"x\""},
        {"{\"x\":1,\"error\":\"\"}", ""},
        {"{\"error\":1}", NULL},
        {"{}", NULL},
        {"[\"error\"]", NULL},
        {"<html>", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str got = v2_error_decode(arena, str_of(rows[i].json));
        assert_int_equal(got.ptr != NULL, rows[i].sentence != NULL);
        if (rows[i].sentence) {
            assert_true(str_is(got, rows[i].sentence));
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_small_bodies_print_matches),
        cmocka_unit_test(v2_model_metadata_document_matches),
        cmocka_unit_test(v2_model_metadata_decode_reads_all_members),
        cmocka_unit_test(v2_model_metadata_decode_foreign_rows_match),
        cmocka_unit_test(v2_error_decode_rows_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

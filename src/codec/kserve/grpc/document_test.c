/* Documents as JSON, and the other messages of a client, to the byte as foreign code writes them:
 * the bytes come from the generated classes of the reference's Python client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/grpc/v2_grpc_fixture.h"
#include "core/base/arena_fixture.h"

static const char CONFIG[] =
    "\x0a\x54\x0a\x03\x6e\x22\x78\x12\x01\x70\x1a\x0b\x1a\x09\x0a\x07\x01\x80\x80\x80\x80\x80"
    "\x20\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x2a\x15\x0a\x01\x41\x10\x0b\x18\x02\x22"
    "\x0c\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xac\x02\x5a\x11\x3a\x0f\x08\x80\x80\x80\x80"
    "\x80\x80\x80\x80\x80\x01\x12\x02\x20\x04\x72\x08\x0a\x01\x62\x12\x03\x0a\x01\x76";
static const char SEQUENCE[] =
    "\x0a\x15\x6a\x13\x12\x11\x0a\x01\x63\x12\x0c\x08\x02\x1a\x08\x00\x00\x00\x3f\x00\x00\x80"
    "\x3f";
static const char STATISTICS[] =
    "\x0a\x2d\x0a\x01\x6d\x12\x01\x31\x18\x85\x80\x80\x80\x80\x80\x80\x80\x80\x01\x32\x0b\x0a"
    "\x09\x08\x02\x10\x80\x80\x80\x80\x80\x20\x3a\x02\x08\x03\x4a\x09\x0a\x01\x30\x12\x04\x1a"
    "\x02\x08\x01";
static const char INDEX[] =
    "\x0a\x0d\x0a\x01\x61\x12\x01\x31\x1a\x05\x52\x45\x41\x44\x59\x0a\x05\x0a\x03\xe2\x98\x83";
static const char SERVER[] = "\x0a\x01\x73\x12\x03\x31\x2e\x32\x1a\x01\x78\x1a\x01\x79";
static const char LOAD[] =
    "\x12\x01\x6d\x1a\x0e\x0a\x06\x63\x6f\x6e\x66\x69\x67\x12\x04\x1a\x02\x7b\x7d";

enum { MAX_BYTES = 1 << 16 };

static struct error err;

static void expect(enum v2_grpc_document document, struct str message, const char *json) {
    struct str out;
    assert_int_equal(v2_grpc_document_print(arena, document, message, MAX_BYTES, &out, &err),
                     ST_OK);
    assert_string_equal(out.ptr, json);
    assert_int_equal(out.len, strlen(json));
}

static uint64_t max_bytes = MAX_BYTES;

static void expect_error(enum v2_grpc_document document, struct str message, enum status status,
                         const char *says) {
    struct str out;
    assert_int_equal(v2_grpc_document_print(arena, document, message, max_bytes, &out, &err),
                     status);
    if (!strstr(err.text, says)) {
        fail_msg("\"%s\" lacks \"%s\"", err.text, says);
    }
}

static void document_config_has_all_members_of_a_message(void **state) {
    (void)state;
    expect(V2_GRPC_CONFIG, MESSAGE(CONFIG),
           "{\"name\":\"n\\\"x\",\"platform\":\"p\",\"backend\":\"\",\"runtime\":\"\","
           "\"version_policy\":{\"specific\":{\"versions\":[1,1099511627776]}},"
           "\"max_batch_size\":-1,"
           "\"input\":[{\"name\":\"A\",\"data_type\":\"TYPE_FP32\",\"format\":\"FORMAT_NCHW\","
           "\"dims\":[-1,300],\"is_shape_tensor\":false,\"allow_ragged_batch\":false,"
           "\"optional\":false,\"is_non_linear_format_io\":false}],"
           "\"output\":[],\"batch_input\":[],\"batch_output\":[],"
           "\"dynamic_batching\":{\"preferred_batch_size\":[],\"max_queue_delay_microseconds\":0,"
           "\"preserve_ordering\":false,\"priority_levels\":0,\"default_priority_level\":0,"
           "\"priority_queue_policy\":{\"9223372036854775808\":{\"timeout_action\":\"REJECT\","
           "\"default_timeout_microseconds\":0,\"allow_timeout_override\":false,"
           "\"max_queue_size\":4}}},"
           "\"instance_group\":[],\"default_model_filename\":\"\","
           "\"cc_model_filenames\":{},\"metric_tags\":{},"
           "\"parameters\":{\"b\":{\"string_value\":\"v\"}},\"model_warmup\":[]}");
}

static void document_config_packed_floats_and_enums(void **state) {
    (void)state;
    struct str out;
    assert_int_equal(
        v2_grpc_document_print(arena, V2_GRPC_CONFIG, MESSAGE(SEQUENCE), MAX_BYTES, &out, &err),
        ST_OK);
    assert_non_null(strstr(out.ptr, "{\"kind\":\"CONTROL_SEQUENCE_END\",\"int32_false_true\":[],"
                                    "\"fp32_false_true\":[0.5,1],"));
}

static void document_floats_have_the_digits_they_need(void **state) {
    (void)state;
    struct str out;
    assert_int_equal(v2_grpc_document_print(arena, V2_GRPC_CONFIG,
                                            STR("\x0a\x09\x6a\x07\x1a\x05\x15\xcd\xcc\xcc\x3d"),
                                            MAX_BYTES, &out, &err),
                     ST_OK);
    assert_non_null(strstr(out.ptr, "\"minimum_slot_utilization\":0.1}"));
}

static void document_statistics_are_those_of_http(void **state) {
    (void)state;
    expect(V2_GRPC_STATISTICS, MESSAGE(STATISTICS),
           "{\"model_stats\":[{\"name\":\"m\",\"version\":\"1\","
           "\"last_inference\":9223372036854775813,\"inference_count\":0,\"execution_count\":0,"
           "\"inference_stats\":{\"success\":{\"count\":2,\"ns\":1099511627776}},"
           "\"response_stats\":{\"0\":{\"success\":{\"count\":1,\"ns\":0}}},"
           "\"batch_stats\":[{\"batch_size\":3}],\"memory_usage\":[]}]}");
    expect(V2_GRPC_STATISTICS, STR(""), "{\"model_stats\":[]}");
}

static void document_index_is_an_array(void **state) {
    (void)state;
    expect(V2_GRPC_INDEX, MESSAGE(INDEX),
           "[{\"name\":\"a\",\"version\":\"1\",\"state\":\"READY\"},{\"name\":\"\xe2\x98\x83\"}]");
    expect(V2_GRPC_INDEX, STR(""), "[]");
}

static void document_unknown_fields_are_skipped(void **state) {
    (void)state;
    /* fields 100 (a string) and 101 (a number) in an entry, and in the message */
    expect(V2_GRPC_INDEX, STR("\x0a\x0a\x0a\x01\x61\xa2\x06\x01x\xa8\x06\x05\xaa\x06\x00"),
           "[{\"name\":\"a\"}]");
}

static void document_bad_messages_are_refused(void **state) {
    (void)state;
    expect_error(V2_GRPC_CONFIG, STR(""), ST_BAD_FIELD, "config");
    expect_error(V2_GRPC_CONFIG, STR("\x08\x01"), ST_BAD_FIELD, "config");
    expect_error(V2_GRPC_INDEX, STR("\x0a\x05\x0a"), ST_BAD_REQUEST, "past the end");
    expect_error(V2_GRPC_INDEX, STR("\x0a\x02\x0a\x05"), ST_BAD_REQUEST, "past the end");
    expect_error(V2_GRPC_INDEX, STR("\x0a\x03\x0a\x01\xff"), ST_BAD_FIELD, "UTF-8");
    expect_error(V2_GRPC_INDEX, STR("\x08\x01"), ST_BAD_FIELD, "models");
    expect_error(V2_GRPC_INDEX, STR("\x0a\x02\x08\x01"), ST_BAD_FIELD, "name");
    max_bytes = 64;
    expect_error(V2_GRPC_STATISTICS, MESSAGE(STATISTICS), ST_BODY_TOO_LARGE, "64 bytes");
    max_bytes = MAX_BYTES;
    /* ModelConfig.input[0].dims, packed and cut off */
    expect_error(V2_GRPC_CONFIG, STR("\x0a\x05\x2a\x03\x22\x01\xff"), ST_BAD_FIELD, "dims");
}

/* ---- other messages -------------------------------------------------------------------------- */

static void server_metadata_decode_foreign_bytes(void **state) {
    (void)state;
    struct v2_server_metadata out;
    assert_int_equal(v2_grpc_server_metadata_decode(arena, MESSAGE(SERVER), &out, &err), ST_OK);
    assert_true(str_is(out.name, "s") && str_is(out.version, "1.2"));
    assert_int_equal(out.n_extensions, 2);
    assert_true(str_is(out.extensions[0], "x") && str_is(out.extensions[1], "y"));
    assert_int_equal(v2_grpc_server_metadata_decode(arena, STR("\x0a"), &out, &err),
                     ST_BAD_REQUEST);
}

static void bool_decode(void **state) {
    (void)state;
    bool yes;
    assert_int_equal(v2_grpc_bool_decode(STR("\x08\x01"), &yes, &err), ST_OK);
    assert_true(yes);
    assert_int_equal(v2_grpc_bool_decode(STR(""), &yes, &err), ST_OK);
    assert_false(yes);
    assert_int_equal(v2_grpc_bool_decode(STR("\x08"), &yes, &err), ST_BAD_REQUEST);
}

static void repository_encode_matches_foreign_bytes(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, arena, 0);
    v2_grpc_repository_encode(&out, STR("m"), STR("{}"));
    assert_int_equal(out.len, sizeof(LOAD) - 1);
    assert_memory_equal(out.data, LOAD, out.len);
}

static void raw_output_offset_of_a_message_and_its_beginning(void **state) {
    (void)state;
    size_t at = v2_grpc_raw_output_offset(MESSAGE(ANSWER));
    assert_memory_equal(ANSWER + at, "\0\0\x80\x3f", 4);
    assert_int_equal(v2_grpc_raw_output_offset(str_make(ANSWER, at + 1)), at);
    assert_int_equal(v2_grpc_raw_output_offset(str_make(ANSWER, at - 1)), 0);
    assert_int_equal(v2_grpc_raw_output_offset(STR("")), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(document_config_has_all_members_of_a_message),
        TEST(document_config_packed_floats_and_enums),
        TEST(document_floats_have_the_digits_they_need),
        TEST(document_statistics_are_those_of_http),
        TEST(document_index_is_an_array),
        TEST(document_unknown_fields_are_skipped),
        TEST(document_bad_messages_are_refused),
        TEST(server_metadata_decode_foreign_bytes),
        TEST(bool_decode),
        TEST(repository_encode_matches_foreign_bytes),
        TEST(raw_output_offset_of_a_message_and_its_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The values of gRPC's header fields: all that the specification allows, both ways, and nothing
 * else. */
#include "codec/grpc/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"

static void grpc_timeout_parse_accepts_specified_forms(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {
        {"1n", 1},
        {"20u", 20000},
        {"100m", 100000000},
        {"1S", UINT64_C(1000000000)},
        {"2M", UINT64_C(120000000000)},
        {"1H", UINT64_C(3600000000000)},
        {"0S", 0},
        {"99999999H", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t ns;
        assert_true(grpc_timeout_parse(str_of(good[i].text), &ns));
        assert_true(ns == good[i].ns);
    }
    static const char *const bad[] = {"",    "S",    "1",   "1s",         "1h",  "-1S",
                                      "+1S", "1.5S", "1 S", "123456789S", "1SS", "0x1S"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t ns;
        assert_false(grpc_timeout_parse(str_of(bad[i]), &ns));
    }
}

static void grpc_timeout_print_rounds_up(void **state) {
    (void)state;
    for (uint64_t ns = 1; ns < UINT64_MAX / 7; ns = ns * 3 + 1) {
        char text[GRPC_TIMEOUT_BYTES];
        uint64_t back;
        size_t n = grpc_timeout_print(ns, text);
        assert_true(n <= 9);
        assert_true(grpc_timeout_parse(str_make(text, n), &back));
        assert_true(back >= ns && back - ns <= ns / 100000);
    }
    char text[GRPC_TIMEOUT_BYTES];
    assert_true(str_is(str_make(text, grpc_timeout_print(0, text)), "0n"));
}

static void grpc_content_type_ok_accepts_proto_only(void **state) {
    (void)state;
    static const char *const good[] = {"application/grpc", "application/grpc+proto",
                                       "Application/GRPC", "application/grpc; charset=utf-8"};
    static const char *const bad[] = {"", "application/grpc-web", "application/grpc+json",
                                      "application/json", "application/grp"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(grpc_content_type_ok(str_of(good[i])));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(grpc_content_type_ok(str_of(bad[i])));
    }
}

static void grpc_status_message_percent_encoding_roundtrips(void **state) {
    (void)state;
    static const struct {
        const char *text, *wire;
    } rows[] = {
        {"plain text ~!", "plain text ~!"},
        {"100%", "100%25"},
        {"a\r\nb", "a%0D%0Ab"},
        {"\xc3\xa9", "%C3%A9"},
        {"", ""},
        {"\x7f", "%7F"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out;
        buf_init(&out, arena, 8);
        grpc_status_message_print(&out, str_of(rows[i].text));
        assert_true(str_is(buf_str(&out), rows[i].wire));
        assert_true(str_is(grpc_status_message_parse(arena, buf_str(&out)), rows[i].text));
    }
    assert_true(
        str_is(grpc_status_message_parse(arena, STR("50% off %4 %zz %")), "50% off %4 %zz %"));
    assert_true(str_is(grpc_status_message_parse(arena, STR("%c3%a9")), "\xc3\xa9"));
}

static void grpc_binary_metadata_parse_names_wrong_byte(void **state) {
    (void)state;
    struct str bytes;
    struct error err;
    assert_int_equal(grpc_binary_metadata_parse(arena, STR("Zm8="), &bytes, &err), ST_OK);
    assert_true(str_is(bytes, "fo"));
    assert_int_equal(grpc_binary_metadata_parse(arena, STR("Zm 9"), &bytes, &err), ST_BAD_REQUEST);
    assert_string_equal(err.text, "binary metadata is not base64 at its byte 2");
}

static void grpc_coding_choose_prefers_cheapest_accepted(void **state) {
    (void)state;
    static const struct {
        const char *accepted;
        enum http_coding want;
    } rows[] = {
        {"", HTTP_IDENTITY},
        {"identity", HTTP_IDENTITY},
        {"identity,deflate,gzip", HTTP_GZIP},
        {"gzip, deflate", HTTP_GZIP},
        {" deflate ,snappy", HTTP_DEFLATE},
        {"snappy", HTTP_IDENTITY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(grpc_coding_choose(str_of(rows[i].accepted)), rows[i].want);
    }
    enum http_coding coding;
    assert_false(grpc_coding_parse(STR("GZIP"), &coding));
    for (int i = HTTP_IDENTITY; i <= HTTP_DEFLATE; i++) {
        assert_true(grpc_coding_parse(str_of(grpc_coding_name((enum http_coding)i)), &coding));
        assert_int_equal(coding, i);
    }
}

static void grpc_prefix_roundtrips_and_refuses_bad_flag(void **state) {
    (void)state;
    static const uint32_t sizes[] = {0, 1, 255, 65536, UINT32_C(1) << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char bytes[GRPC_PREFIX_BYTES];
        struct grpc_prefix back;
        grpc_prefix_encode((struct grpc_prefix){i % 2, sizes[i]}, bytes);
        assert_int_equal(grpc_prefix_decode(bytes, &back, NULL), ST_OK);
        assert_true(back.n_bytes == sizes[i] && back.compressed == i % 2);
    }
    struct grpc_prefix back;
    struct error err;
    assert_int_equal(grpc_prefix_decode("\2\0\0\0\1", &back, &err), ST_BAD_REQUEST);
    assert_int_equal(grpc_prefix_decode("\xff\0\0\0\1", &back, &err), ST_BAD_REQUEST);
    assert_non_null(strstr(err.text, "255"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(grpc_timeout_parse_accepts_specified_forms),
        TEST(grpc_timeout_print_rounds_up),
        TEST(grpc_content_type_ok_accepts_proto_only),
        TEST(grpc_status_message_percent_encoding_roundtrips),
        TEST(grpc_binary_metadata_parse_names_wrong_byte),
        TEST(grpc_coding_choose_prefers_cheapest_accepted),
        TEST(grpc_prefix_roundtrips_and_refuses_bad_flag),
    };
    return cmocka_run_group_tests_name("codec/grpc/text", tests, NULL, NULL);
}

/* The documents' tables, and grpc-status as servers send it. */
#include "codec/grpc/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void grpc_code_name_unknown_number_is_unknown(void **state) {
    (void)state;
    assert_string_equal(grpc_code_name(0), "OK");
    assert_string_equal(grpc_code_name(1), "CANCELLED");
    assert_string_equal(grpc_code_name(3), "INVALID_ARGUMENT");
    assert_string_equal(grpc_code_name(14), "UNAVAILABLE");
    assert_string_equal(grpc_code_name(16), "UNAUTHENTICATED");
    assert_string_equal(grpc_code_name(17), "UNKNOWN");
    assert_string_equal(grpc_code_name(-1), "UNKNOWN");
}

static void grpc_code_parse_accepts_decimal_numbers_only(void **state) {
    static const struct {
        const char *text;
        int code; /* -1: an error */
    } cases[] = {
        {"0", 0},    {"5", 5},   {"16", 16}, {"17", 2},  {"18446744073709551615", 2},
        {"", -1},    {" 0", -1}, {"-1", -1}, {"OK", -1}, {"0x1", -1},
        {"1.0", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int code = -1;
        bool parsed = grpc_code_parse(str_of(cases[i].text), &code);
        assert_int_equal(parsed, cases[i].code >= 0);
        assert_int_equal(code, cases[i].code);
    }
}

static void grpc_code_from_http_follows_mapping_table(void **state) {
    static const int cases[][2] = {{400, 13}, {401, 16}, {403, 7}, {404, 12}, {429, 14}, {502, 14},
                                   {503, 14}, {504, 14}, {500, 2}, {505, 2},  {200, 2},  {0, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(grpc_code_from_http(cases[i][0]), cases[i][1]);
    }
}

static void grpc_code_from_reset_follows_mapping_table(void **state) {
    static const int cases[][2] = {{0, 13}, {1, 13}, {2, 13},  {3, 13}, {4, 13}, {6, 13}, {7, 14},
                                   {8, 1},  {9, 13}, {10, 13}, {11, 8}, {12, 7}, {13, 13}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(grpc_code_from_reset((uint32_t)cases[i][0]), cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grpc_code_name_unknown_number_is_unknown),
        cmocka_unit_test(grpc_code_parse_accepts_decimal_numbers_only),
        cmocka_unit_test(grpc_code_from_http_follows_mapping_table),
        cmocka_unit_test(grpc_code_from_reset_follows_mapping_table),
    };
    return cmocka_run_group_tests_name("codec/grpc/status", tests, NULL, NULL);
}

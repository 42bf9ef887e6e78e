/* Names and sizes, both ways; the numbers are part of the backend ABI. */
#include "core/tensor/datatype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    const char *name;
    const char *config;
    int id;
    size_t size;
    bool is_float;
} rows[] = {
    {"BOOL", "TYPE_BOOL", 1, 1, false},     {"UINT8", "TYPE_UINT8", 2, 1, false},
    {"UINT16", "TYPE_UINT16", 3, 2, false}, {"UINT32", "TYPE_UINT32", 4, 4, false},
    {"UINT64", "TYPE_UINT64", 5, 8, false}, {"INT8", "TYPE_INT8", 6, 1, false},
    {"INT16", "TYPE_INT16", 7, 2, false},   {"INT32", "TYPE_INT32", 8, 4, false},
    {"INT64", "TYPE_INT64", 9, 8, false},   {"FP16", "TYPE_FP16", 10, 2, true},
    {"FP32", "TYPE_FP32", 11, 4, true},     {"FP64", "TYPE_FP64", 12, 8, true},
    {"BYTES", "TYPE_STRING", 13, 0, false}, {"BF16", "TYPE_BF16", 14, 2, true},
};

static void datatype_names_round_trip(void **state) {
    (void)state;
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), DT_COUNT_ - 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum datatype datatype = datatype_parse(str_of(rows[i].name));
        assert_int_equal(datatype, rows[i].id);
        assert_int_equal(datatype_parse_config(str_of(rows[i].config)), rows[i].id);
        assert_string_equal(datatype_name(datatype), rows[i].name);
        assert_string_equal(datatype_config_name(datatype), rows[i].config);
        assert_int_equal(datatype_size(datatype), rows[i].size);
        assert_int_equal(datatype_is_float(datatype), rows[i].is_float);
    }
}

static void datatype_parse_unknown_is_invalid(void **state) {
    static const char *const names[] = {"",        "fp32",   "FP3",       "FP32 ",   " FP32",
                                        "FLOAT32", "STRING", "TYPE_FP32", "INVALID", "FP32x"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(datatype_parse(str_of(names[i])), DT_INVALID);
    }
    assert_int_equal(datatype_parse(STR("FP32\0")), DT_INVALID);
    assert_int_equal(datatype_parse(str_make(NULL, 0)), DT_INVALID);
    assert_int_equal(datatype_parse_config(STR("TYPE_BYTES")), DT_INVALID);
    assert_int_equal(datatype_parse_config(STR("TYPE_INVALID")), DT_INVALID);
    assert_int_equal(datatype_parse_config(STR("FP32")), DT_INVALID);
    assert_int_equal(datatype_size(DT_INVALID), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datatype_names_round_trip),
        cmocka_unit_test(datatype_parse_unknown_is_invalid),
    };
    return cmocka_run_group_tests_name("core/tensor/datatype", tests, NULL, NULL);
}

/* JSON arrays as tensor data: for every datatype the accepted values, to the bit, and errors
 * with their path; nesting; counts; memory proportional to the text. */
#include "codec/kserve/json_elements.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"

static enum status parse(struct arena *arena, enum datatype datatype, struct shape shape,
                         struct str text, struct tensor *tensor, struct error *err) {
    *tensor = (struct tensor){.name = STR("x"), .datatype = datatype, .shape = shape};
    return v2_data_text_parse(arena, text, &fixture_limits, tensor, err);
}

static void check_taken(enum datatype datatype, int64_t n, struct str text, const char *hex) {
    struct arena *arena = arena_new(NULL, 0);
    struct tensor tensor;
    struct error err = {0};
    struct buf got;
    enum status status = parse(arena, datatype, (struct shape){&n, 1}, text, &tensor, &err);
    if (status != ST_OK) {
        fail_msg("%s %.*s: %s", datatype_name(datatype), STR_ARG(text), err.text);
    }
    tensor.name = STR("x");
    buf_init(&got, arena, 0);
    fixture_tensor(&got, &tensor);
    buf_add_char(&got, '\0');
    const char *bytes = strrchr(got.data, ' ') + 1;
    if (strcmp(bytes, hex) != 0) {
        fail_msg("%s %.*s: expected %s, got %s", datatype_name(datatype), STR_ARG(text), hex,
                 bytes);
    }
    assert_int_equal(tensor.n_bytes, strlen(hex) / 2);
    assert_int_equal((uintptr_t)tensor.pieces[0].data % 16, 0);
    arena_free(arena);
}

static void v2_data_text_parse_each_datatype_is_decoded(void **state) {
    static const struct {
        enum datatype datatype;
        int64_t n;
        const char *text;
        const char *hex;
    } rows[] = {
        {DT_BOOL, 3, "[true,false,true]", "010001"},
        {DT_UINT8, 3, "[0,128,255]", "0080ff"},
        {DT_UINT16, 2, "[1,65535]", "0100ffff"},
        {DT_UINT32, 2, "[1,4294967295]", "01000000ffffffff"},
        {DT_UINT64, 2, "[9007199254740993,18446744073709551615]",
         "0100000000002000ffffffffffffffff"},
        {DT_INT8, 3, "[-128,127,-1]", "807fff"},
        {DT_INT16, 2, "[-32768,32767]", "0080ff7f"},
        {DT_INT32, 2, "[-2147483648,2147483647]", "00000080ffffff7f"},
        {DT_INT64, 3, "[-9223372036854775808,9223372036854775807,-9007199254740993]",
         "0000000000000080ffffffffffffff7fffffffffffffdfff"},
        {DT_INT32, 1, "[-0]", "00000000"},
        {DT_UINT8, 1, "[-0]", "00"},
        {DT_FP32, 4, "[1.0,0.1,-2,1e3]", "0000803fcdcccc3d000000c000007a44"},
        {DT_FP32, 3, "[NaN,Infinity,-Infinity]", "0000c07f0000807f000080ff"},
        {DT_FP32, 3, "[-0,-0.0,-0e5]", "000000800000008000000080"},
        {DT_FP32, 1, "[3.4028235e38]", "ffff7f7f"},
        {DT_FP32, 1, "[3.4028235677973362e38]", "ffff7f7f"}, /* just below half a step above */
        {DT_FP32, 2, "[1e-46,1e-300]", "0000000000000000"},
        {DT_FP32, 1, "[1e-45]", "01000000"},
        {DT_FP32, 1, "[18446744073709551615]", "0000805f"},
        {DT_FP32, 1, "[100000000000000000000000000000]", "088fa16f"}, /* more than 64 bits */
        {DT_FP64, 2, "[0.1,123456789012345678901234567890]", "9a9999999999b93f3e376cff90eef845"},
        {DT_FP64, 3, "[NaN,-Infinity,-0]", "000000000000f87f000000000000f0ff0000000000000080"},
        {DT_FP64, 2, "[5e-324,1.7976931348623157e308]", "0100000000000000ffffffffffffef7f"},
        {DT_FP16, 5, "[1,-2.5,65504,65519,6e-8]", "003c00c1ff7bff7b0100"},
        {DT_FP16, 3, "[NaN,Infinity,-Infinity]", "007e007c00fc"},
        {DT_BF16, 3, "[1,-2.5,3.3895e38]", "803f20c07f7f"},
        {DT_BF16, 3, "[NaN,Infinity,-Infinity]", "c07f807f80ff"},
        {DT_BYTES, 3, "[\"a\",\"\",\"\\u00e9\"]", "01000000610000000002000000c3a9"},
        {DT_BYTES, 2, "[\"\\u0000\",\"\\ud83d\\ude00\"]", "010000000004000000f09f9880"},
        {DT_INT32, 0, "[]", ""},
        {DT_BYTES, 0, "[]", ""},
        {DT_FP32, 0, "[[],[[]]]", ""},
        /* nested in any way, or flat */
        {DT_UINT8, 4, "[[1,2],[3,4]]", "01020304"},
        {DT_UINT8, 4, "[[[1],2,[[3]]],4,[]]", "01020304"},
        {DT_BYTES, 2, "[[\"a\"],[[\"b\"]]]", "01000000610100000062"},
        {DT_UINT8, 2, " [ 1 , 2 ] \r\n", "0102"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_taken(rows[i].datatype, rows[i].n, str_of(rows[i].text), rows[i].hex);
    }
}

static void v2_data_text_parse_invalid_element_is_refused(void **state) {
    static const struct {
        enum datatype datatype;
        int64_t n;
        const char *text;
        enum status status;
        const char *sentence;
    } rows[] = {
        {DT_BOOL, 1, "[1]", ST_BAD_FIELD, "data[0]: expected true or false, got 1"},
        {DT_BOOL, 1, "[\"true\"]", ST_BAD_FIELD, "got a string \"true\""},
        {DT_UINT8, 2, "[0,256]", ST_BAD_FIELD,
         "data[1]: expected a whole number from 0 to 255, got 256"},
        {DT_UINT8, 1, "[-1]", ST_BAD_FIELD, "got -1"},
        {DT_UINT16, 1, "[65536]", ST_BAD_FIELD, "from 0 to 65535, got 65536"},
        {DT_UINT32, 1, "[4294967296]", ST_BAD_FIELD, "from 0 to 4294967295"},
        {DT_UINT64, 1, "[18446744073709551616]", ST_BAD_FIELD,
         "from 0 to 18446744073709551615, got 18446744073709551616"},
        {DT_UINT64, 1, "[-1]", ST_BAD_FIELD, "got -1"},
        {DT_INT8, 1, "[128]", ST_BAD_FIELD, "from -128 to 127, got 128"},
        {DT_INT8, 1, "[-129]", ST_BAD_FIELD, "got -129"},
        {DT_INT16, 1, "[32768]", ST_BAD_FIELD, "from -32768 to 32767"},
        {DT_INT32, 1, "[2147483648]", ST_BAD_FIELD, "from -2147483648 to 2147483647"},
        {DT_INT64, 1, "[9223372036854775808]", ST_BAD_FIELD, "got 9223372036854775808"},
        {DT_INT64, 1, "[-9223372036854775809]", ST_BAD_FIELD, "got -9223372036854775809"},
        {DT_INT32, 2, "[1,1.0]", ST_BAD_FIELD,
         "data[1]: expected a whole number from -2147483648 "
         "to 2147483647, got 1.0"},
        {DT_INT32, 1, "[1e3]", ST_BAD_FIELD, "got 1000.0"},
        {DT_INT32, 1, "[NaN]", ST_BAD_FIELD, "got NaN"},
        {DT_UINT8, 1, "[-Infinity]", ST_BAD_FIELD, "got -Infinity"},
        {DT_INT32, 1, "[true]", ST_BAD_FIELD, "got true"},
        {DT_INT32, 1, "[\"1\"]", ST_BAD_FIELD, "got a string \"1\""},
        {DT_INT32, 1, "[null]", ST_BAD_FIELD, "got null"},
        {DT_INT32, 1, "[{}]", ST_BAD_FIELD, "got an object of 0"},
        {DT_FP32, 2, "[[1,1e39]]", ST_BAD_FIELD,
         "data[0][1]: expected a number within the range of FP32, got 1e39"},
        {DT_FP32, 1, "[-3.4028235677973366e38]", ST_BAD_FIELD, "within the range of FP32"},
        {DT_FP32, 1, "[1e400]", ST_BAD_FIELD, "within the range of FP32, got 1e400"},
        {DT_FP32, 2, "[NaN,1e400]", ST_BAD_FIELD, "got 1e400"},
        {DT_FP32, 1, "[\"NaN\"]", ST_BAD_FIELD, "got a string \"NaN\""},
        {DT_FP32, 1, "[true]", ST_BAD_FIELD, "got true"},
        {DT_FP32, 1, "[null]", ST_BAD_FIELD, "got null"},
        {DT_FP32, 1, "[{\"a\":1}]", ST_BAD_FIELD, "got an object of 1"},
        {DT_FP64, 1, "[-1e400]", ST_BAD_FIELD, "within the range of FP64, got -1e400"},
        {DT_FP16, 1, "[65520]", ST_BAD_FIELD, "within the range of FP16, got 65520"},
        {DT_FP16, 1, "[-70000]", ST_BAD_FIELD, "within the range of FP16, got -70000"},
        {DT_BF16, 1, "[3.4e38]", ST_BAD_FIELD, "within the range of BF16, got 3.4e38"},
        {DT_BYTES, 1, "[1]", ST_BAD_FIELD, "data[0]: expected a string, got 1"},
        {DT_BYTES, 1, "[null]", ST_BAD_FIELD, "got null"},
        {DT_BYTES, 1, "[\"\\ud800\"]", ST_BAD_JSON, "surrogate"},
        {DT_BYTES, 1, "[NaN]", ST_BAD_FIELD, "got NaN"},
        {DT_FP32, 16, "[1,2,3]", ST_BAD_DATA, "data: expected 16 elements for shape [16], got 3"},
        {DT_FP32, 3, "[[1,2],[3,4]]", ST_BAD_DATA,
         "data: expected 3 elements for shape [3], got 4"},
        {DT_FP32, 2, "[1]", ST_BAD_DATA, "expected 2 elements for shape [2], got 1"},
        {DT_FP32, 1, "[]", ST_BAD_DATA, "expected 1 element for shape [1], got 0"},
        {DT_FP32, 2, "[[],[],[],[1]]", ST_BAD_DATA, "got 1"},
        {DT_FP32, 0, "[1]", ST_BAD_DATA, "expected 0 elements for shape [0], got 1"},
        {DT_BYTES, 3, "[\"a\",\"b\"]", ST_BAD_DATA, "expected 3 elements for shape [3], got 2"},
        {DT_BYTES, 1, "[\"a\",\"b\"]", ST_BAD_DATA, "expected 1 element for shape [1], got 2"},
        {DT_FP32, 1, "1", ST_BAD_FIELD, "data: expected an array, got 1"},
        {DT_FP32, 1, "{}", ST_BAD_FIELD, "data: expected an array, got an object of 0"},
        {DT_BYTES, 1, "\"a\"", ST_BAD_FIELD, "data: expected an array, got a string \"a\""},
        {DT_FP32, 1, "[1", ST_BAD_JSON, "data: malformed JSON at byte 2"},
        {DT_FP32, 100001, "[1]", ST_TOO_MANY_ELEMENTS,
         "data: shape [100001] has 100001 elements; the limit is 100000 (--max-tensor-elements)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct tensor tensor;
        struct error err = {0};
        enum status status = parse(arena, rows[i].datatype, (struct shape){&rows[i].n, 1},
                                   str_of(rows[i].text), &tensor, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].sentence)) {
            fail_msg("%s %s: %s %s", datatype_name(rows[i].datatype), rows[i].text,
                     status_name(status), err.text);
        }
        arena_free(arena);
    }
}

static void v2_data_text_parse_element_count_must_fit_shape(void **state) {
    static const struct {
        int64_t dims[4];
        size_t rank;
        const char *text;
        enum status status;
    } rows[] = {
        {{0}, 0, "[7]", ST_OK}, /* a scalar */
        {{0}, 0, "[]", ST_BAD_DATA},
        {{0}, 0, "7", ST_BAD_FIELD},
        {{1, 1, 1, 1}, 4, "[7]", ST_OK},
        {{1, 1, 1, 1}, 4, "[[[[7]]]]", ST_OK},
        {{2, 0, 5}, 3, "[[],[]]", ST_OK},
        {{INT64_MAX, INT64_MAX, 0}, 3, "[]", ST_OK},
        {{INT64_MAX, 2}, 2, "[]", ST_BAD_SHAPE},
        {{1ll << 31, 1ll << 32}, 2, "[]", ST_BAD_SHAPE},
        {{1ll << 31}, 1, "[7]", ST_TOO_MANY_ELEMENTS},
        {{1ll << 32}, 1, "[7]", ST_TOO_MANY_ELEMENTS},
        {{1ll << 32, (1ll << 32) + 1}, 2, "[7]", ST_BAD_SHAPE},
        {{100000}, 1, "[7]", ST_BAD_DATA},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct tensor tensor;
        struct error err = {0};
        enum status status = parse(arena, DT_UINT64, (struct shape){rows[i].dims, rows[i].rank},
                                   str_of(rows[i].text), &tensor, &err);
        if (status != rows[i].status) {
            fail_msg("%zu: %s %s", i, status_name(status), err.text);
        }
        /* A large shape with little data needs little memory. */
        assert_true(arena_bytes(arena) < 16384);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_data_text_parse_each_datatype_is_decoded),
        cmocka_unit_test(v2_data_text_parse_invalid_element_is_refused),
        cmocka_unit_test(v2_data_text_parse_element_count_must_fit_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

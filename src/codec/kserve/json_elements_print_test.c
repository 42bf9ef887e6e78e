/* Tensor data as JSON: every datatype to the byte, with pieces cut anywhere and any alignment,
 * and data that cannot be printed. */
#include "codec/kserve/json_elements_print.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/json_elements.h"
#include "codec/kserve/v2_fixture.h"

static const struct row {
    enum datatype datatype;
    int64_t n;
    struct str bytes;
    const char *json;
} rows[] = {
    {DT_BOOL, 3, {"\0\1\2", 3}, "[false,true,true]"},
    {DT_UINT8, 3, {"\0\x80\xff", 3}, "[0,128,255]"},
    {DT_INT8, 3, {"\0\x80\xff", 3}, "[0,-128,-1]"},
    {DT_UINT16, 2, {"\1\0\xff\xff", 4}, "[1,65535]"},
    {DT_INT16, 2, {"\0\x80\xff\xff", 4}, "[-32768,-1]"},
    {DT_UINT32, 2, {"\1\0\0\0\xff\xff\xff\xff", 8}, "[1,4294967295]"},
    {DT_INT32, 2, {"\0\0\0\x80\xff\xff\xff\xff", 8}, "[-2147483648,-1]"},
    {DT_UINT64,
     2,
     {"\1\0\0\0\0\0\x20\0\xff\xff\xff\xff\xff\xff\xff\xff", 16},
     "[9007199254740993,18446744073709551615]"},
    {DT_INT64,
     2,
     {"\0\0\0\0\0\0\0\x80\xff\xff\xff\xff\xff\xff\xdf\xff", 16},
     "[-9223372036854775808,-9007199254740993]"},
    {DT_FP32,
     4,
     {"\0\0\x80\x3f\xcd\xcc\xcc\x3d\0\0\0\x80\xff\xff\x7f\x7f", 16},
     "[1.0,0.1,-0.0,3.4028235e38]"},
    {DT_FP32, 3, {"\0\0\xc0\x7f\0\0\x80\x7f\0\0\x80\xff", 12}, "[NaN,Infinity,-Infinity]"},
    {DT_FP64, 2, {"\x9a\x99\x99\x99\x99\x99\xb9\x3f\1\0\0\0\0\0\0\0", 16}, "[0.1,5e-324]"},
    {DT_FP64,
     3,
     {"\0\0\0\0\0\0\xf8\x7f\0\0\0\0\0\0\xf0\xff\0\0\0\0\0\0\0\x80", 24},
     "[NaN,-Infinity,-0.0]"},
    {DT_FP16, 4, {"\0\x3c\x66\x2e\xff\x7b\1\0", 8}, "[1.0,0.099975586,65504.0,5.9604645e-8]"},
    {DT_FP16, 3, {"\0\x7e\0\x7c\0\xfc", 6}, "[NaN,Infinity,-Infinity]"},
    {DT_BF16, 3, {"\x80\x3f\xcd\x3d\x7f\x7f", 6}, "[1.0,0.100097656,3.3895314e38]"},
    {DT_BYTES,
     3,
     {"\1\0\0\0a\0\0\0\0\4\0\0\0\"\n\xc3\xa9", 17},
     "[\"a\",\"\",\"\\\"\\n\xc3\xa9\"]"},
    {DT_BYTES, 1, {"\1\0\0\0\0", 5}, "[\"\\u0000\"]"},
    {DT_FP32, 0, {"", 0}, "[]"},
    {DT_BYTES, 0, {"", 0}, "[]"},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static enum status print(struct arena *arena, const struct row *row, const struct piece *pieces,
                         size_t n_pieces, struct buf *out, struct error *err) {
    struct tensor tensor = {.name = STR("x"),
                            .datatype = row->datatype,
                            .shape = {&row->n, 1},
                            .pieces = pieces,
                            .n_pieces = n_pieces,
                            .n_bytes = row->bytes.len};
    buf_init(out, arena, 0);
    return v2_data_print(out, &tensor, V2_NON_FINITE_DEFAULT, err);
}

/* Cut into three at every pair of places, each piece in its own allocation at an odd address. */
static void v2_data_print_at_each_piece_boundary_matches_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t len = rows[i].bytes.len;
        for (size_t a = 0; a <= len; a++) {
            for (size_t b = a; b <= len; b++) {
                struct arena *arena = arena_new(NULL, 0);
                size_t cuts[4] = {0, a, b, len};
                struct piece pieces[3];
                struct buf out;
                struct error err = {0};
                for (size_t k = 0; k < 3; k++) {
                    size_t n = cuts[k + 1] - cuts[k];
                    char *data = (char *)arena_alloc(arena, n + 1) + 1;
                    memcpy(data, rows[i].bytes.ptr + cuts[k], n);
                    pieces[k] = (struct piece){n > 0 ? data : NULL, n};
                }
                if (print(arena, &rows[i], pieces, 3, &out, &err) != ST_OK) {
                    fail_msg("row %zu: %s", i, err.text);
                }
                if (!str_is(buf_str(&out), rows[i].json)) {
                    fail_msg("row %zu cut at %zu, %zu: expected %s, got %.*s", i, a, b,
                             rows[i].json, STR_ARG(buf_str(&out)));
                }
                arena_free(arena);
            }
        }
    }
}

/* The printed text parses back to the same bytes. */
static void v2_data_print_output_parses_back(void **state) {
    (void)state;
    for (size_t i = 1; i < N_ROWS; i++) { /* BOOL bytes of row 0 are not all 0 or 1 */
        struct arena *arena = arena_new(NULL, 0);
        struct tensor tensor = {
            .name = STR("x"), .datatype = rows[i].datatype, .shape = {&rows[i].n, 1}};
        struct error err = {0};
        assert_int_equal(
            v2_data_text_parse(arena, str_of(rows[i].json), &fixture_limits, &tensor, &err), ST_OK);
        assert_true(str_eq(fixture_gather(arena, tensor.pieces, tensor.n_pieces), rows[i].bytes));
        arena_free(arena);
    }
}

/* All 65536 halves, and doubles of many magnitudes, more than a chunk of the printers. */
static void v2_data_print_floats_parse_back(void **state) {
    static const enum datatype datatypes[] = {DT_FP16, DT_BF16, DT_FP32, DT_FP64};
    int64_t n = 65536;
    struct json_limits wide = {1 << 24, 10, 65536};
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        struct arena *arena = arena_new(NULL, 0);
        size_t size = datatype_size(datatypes[k]);
        unsigned char *data = arena_alloc(arena, (size_t)n * size);
        for (uint64_t i = 0; i < (uint64_t)n; i++) {
            uint64_t bits = size == 2 ? i : i * UINT64_C(0x9e3779b97f4a7c15) >> (64 - 8 * size);
            memcpy(data + i * size, &bits, size);
        }
        struct piece piece = {data, (size_t)n * size};
        struct tensor tensor = {.name = STR("x"),
                                .datatype = datatypes[k],
                                .shape = {&n, 1},
                                .pieces = &piece,
                                .n_pieces = 1,
                                .n_bytes = piece.n_bytes};
        struct buf out, again;
        struct error err = {0};
        buf_init(&out, arena, 0);
        assert_int_equal(v2_data_print(&out, &tensor, V2_NON_FINITE_WORDS, &err), ST_OK);
        struct tensor back = tensor;
        assert_int_equal(v2_data_text_parse(arena, buf_str(&out), &wide, &back, &err), ST_OK);
        /* NaNs lose their payload: compare the texts, and the bytes of all others. */
        buf_init(&again, arena, 0);
        assert_int_equal(v2_data_print(&again, &back, V2_NON_FINITE_WORDS, &err), ST_OK);
        assert_true(str_eq(buf_str(&out), buf_str(&again)));
        const unsigned char *got = back.pieces[0].data;
        uint64_t n_equal = 0;
        for (size_t i = 0; i < (size_t)n; i++) {
            n_equal += memcmp(got + i * size, data + i * size, size) == 0;
        }
        assert_true(n_equal >= (uint64_t)n * 96 / 100);
        arena_free(arena);
    }
}

/* NaN and infinities among finite numbers, at each boundary of pieces. */
static void v2_data_print_non_finite_is_replaced(void **state) {
    static const float f32[] = {NAN, 0.5F, INFINITY, -INFINITY, -0.0F, 1e30F, -NAN};
    static const double f64[] = {(double)NAN, 0.5, (double)INFINITY, -(double)INFINITY, -0.0,
                                 1e300,       2};
    static const uint16_t f16[] = {0x7e00, 0x3800, 0x7c00, 0xfc00, 0x8000, 0x7bff, 0xfe01};
    static const uint16_t bf16[] = {0x7fc0, 0x3f00, 0x7f80, 0xff80, 0x8000, 0x3f80, 0xffff};
    static const struct {
        enum datatype datatype;
        const void *data;
        enum v2_non_finite non_finite;
        const char *text;
    } cases[] = {
        {DT_FP32, f32, V2_NON_FINITE_WORDS, "[NaN,0.5,Infinity,-Infinity,-0.0,1e30,NaN]"},
        {DT_FP32, f32, V2_NON_FINITE_NULL, "[null,0.5,null,null,-0.0,1e30,null]"},
        {DT_FP32, f32, V2_NON_FINITE_STRINGS,
         "[\"NaN\",0.5,\"Infinity\",\"-Infinity\",-0.0,1e30,\"NaN\"]"},
        {DT_FP64, f64, V2_NON_FINITE_NULL, "[null,0.5,null,null,-0.0,1e300,2.0]"},
        {DT_FP64, f64, V2_NON_FINITE_STRINGS,
         "[\"NaN\",0.5,\"Infinity\",\"-Infinity\",-0.0,1e300,2.0]"},
        {DT_FP16, f16, V2_NON_FINITE_STRINGS,
         "[\"NaN\",0.5,\"Infinity\",\"-Infinity\",-0.0,65504.0,\"NaN\"]"},
        {DT_BF16, bf16, V2_NON_FINITE_NULL, "[null,0.5,null,null,-0.0,1.0,null]"},
    };
    int64_t n = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n_bytes = 7 * datatype_size(cases[i].datatype);
        for (size_t at = 0; at <= n_bytes; at++) {
            struct arena *arena = arena_new(NULL, 0);
            const char *data = cases[i].data;
            struct piece pieces[] = {{data, at}, {data + at, n_bytes - at}};
            struct tensor tensor = {.name = STR("x"),
                                    .datatype = cases[i].datatype,
                                    .shape = {&n, 1},
                                    .pieces = pieces,
                                    .n_pieces = 2,
                                    .n_bytes = n_bytes};
            struct buf out;
            struct error err = {0};
            buf_init(&out, arena, 0);
            assert_int_equal(v2_data_print(&out, &tensor, cases[i].non_finite, &err), ST_OK);
            if (!str_is(buf_str(&out), cases[i].text)) {
                fail_msg("row %zu at %zu: %.*s", i, at, STR_ARG(buf_str(&out)));
            }
            arena_free(arena);
        }
    }
}

static void v2_data_print_not_utf8_is_refused(void **state) {
    static const struct {
        struct row row;
        const char *sentence;
        enum status status;
    } bad[] = {
        {{DT_BYTES, 3, {"\1\0\0\0a\2\0\0\0b\xff\0\0\0\0", 15}, NULL},
         "tensor \"x\": element 1 is not UTF-8 (byte 1 of 2)",
         ST_NOT_UTF8},
        {{DT_BYTES, 1, {"\3\0\0\0\xed\xa0\x80", 7}, NULL}, "\"binary_data\": true", ST_NOT_UTF8},
        {{DT_BYTES, 2, {"\1\0\0\0a", 5}, NULL},
         "1 whole BYTES elements and 0 bytes more",
         ST_BAD_DATA},
        {{DT_BYTES, 1, {"\1\0\0\0a\1", 6}, NULL},
         "1 whole BYTES elements and 1 bytes more",
         ST_BAD_DATA},
        {{DT_BYTES, 1, {"\2\0\0\0a", 5}, NULL},
         "0 whole BYTES elements and 5 bytes more",
         ST_BAD_DATA},
        {{DT_BYTES, 1, {"\xff\xff\xff\xff", 4}, NULL}, "0 whole BYTES elements", ST_BAD_DATA},
        {{DT_FP32, 2, {"1234567", 7}, NULL},
         "tensor \"x\": 7 bytes don't fit FP32 of shape [2]",
         ST_BAD_DATA},
        {{DT_UINT8, 1, {"12", 2}, NULL}, "2 bytes don't fit UINT8 of shape [1]", ST_BAD_DATA},
        {{DT_UINT8, -1, {"", 0}, NULL}, "don't fit", ST_BAD_DATA},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct piece piece = {bad[i].row.bytes.ptr, bad[i].row.bytes.len};
        struct buf out;
        struct error err = {0};
        enum status status = print(arena, &bad[i].row, &piece, 1, &out, &err);
        if (status != bad[i].status || err.status != status || !strstr(err.text, bad[i].sentence)) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

static void v2_data_print_out_of_memory_is_reported(void **state) {
    int64_t n = 4000;
    (void)state;
    for (int datatype = DT_BOOL; datatype < DT_COUNT_; datatype++) {
        struct arena *arena = arena_new(NULL, 40000);
        static const char zeros[32000];
        size_t size = datatype == DT_BYTES ? 4 : datatype_size((enum datatype)datatype);
        struct piece piece = {zeros, 4000 * size};
        struct row row = {(enum datatype)datatype, n, {zeros, 4000 * size}, NULL};
        struct buf out;
        struct error err = {0};
        assert_non_null(arena_alloc(arena, 32000));
        assert_int_equal(print(arena, &row, &piece, 1, &out, &err), ST_NO_MEMORY);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_data_print_at_each_piece_boundary_matches_rows),
        cmocka_unit_test(v2_data_print_output_parses_back),
        cmocka_unit_test(v2_data_print_floats_parse_back),
        cmocka_unit_test(v2_data_print_non_finite_is_replaced),
        cmocka_unit_test(v2_data_print_not_utf8_is_refused),
        cmocka_unit_test(v2_data_print_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

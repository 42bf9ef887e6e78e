/* Tensors as items: every datatype, nested as its shape, to the byte, with pieces cut anywhere;
 * texts that read back; and data without a representation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"
#include "codec/mip/item.h"

enum { MAX_RANK = 5 };

static const struct row {
    enum datatype datatype;
    size_t rank;
    int64_t dims[MAX_RANK];
    struct str bytes;
    const char *json;
} rows[] = {
    {DT_BOOL, 0, {0}, {"\1", 1}, "true"},
    {DT_BOOL, 2, {1, 3}, {"\0\1\1", 3}, "[[false,true,true]]"},
    {DT_UINT8, 2, {2, 3}, {"\0\1\2\3\x80\xff", 6}, "[[0,1,2],[3,128,255]]"},
    {DT_INT8, 3, {2, 1, 2}, {"\0\1\x80\xff", 4}, "[[[0,1]],[[-128,-1]]]"},
    {DT_INT8, 3, {2, 2, 1}, {"\0\1\x80\xff", 4}, "[[[0],[1]],[[-128],[-1]]]"},
    {DT_UINT16, 1, {2}, {"\1\0\xff\xff", 4}, "[1,65535]"},
    {DT_INT16, 5, {1, 1, 1, 1, 1}, {"\0\x80", 2}, "[[[[[-32768]]]]]"},
    {DT_UINT32, 0, {0}, {"\xff\xff\xff\xff", 4}, "4294967295"},
    {DT_INT32, 1, {1}, {"\0\0\0\x80", 4}, "[-2147483648]"},
    {DT_UINT64, 0, {0}, {"\xff\xff\xff\xff\xff\xff\xff\xff", 8}, "18446744073709551615"},
    {DT_INT64, 0, {0}, {"\0\0\0\0\0\0\0\x80", 8}, "-9223372036854775808"},
    {DT_FP16, 2, {2, 1}, {"\0\x3c\0\xfc", 4}, "[[1.0],[-Infinity]]"},
    {DT_BF16, 2, {1, 2}, {"\x80\x3f\xc0\x7f", 4}, "[[1.0,NaN]]"},
    {DT_FP32, 0, {0}, {"\xcd\xcc\xcc\x3d", 4}, "0.1"},
    {DT_FP32, 2, {2, 1}, {"\0\0\xc0\x7f\0\0\x80\x7f", 8}, "[[NaN],[Infinity]]"},
    {DT_FP64, 0, {0}, {"\x9a\x99\x99\x99\x99\x99\xb9\x3f", 8}, "0.1"},
    {DT_FP64, 2, {2, 1}, {"\0\0\0\0\0\0\xf8\x7f\1\0\0\0\0\0\0\0", 16}, "[[NaN],[5e-324]]"},
    {DT_BYTES, 1, {2}, {"\1\0\0\0a\3\0\0\0\"\n]", 12}, "[\"a\",\"\\\"\\n]\"]"},
    {DT_BYTES,
     2,
     {2, 2},
     {"\1\0\0\0,\0\0\0\0\2\0\0\0\xc3\xa9\1\0\0\0\0", 20},
     "[[\",\",\"\"],[\"\xc3\xa9\",\"\\u0000\"]]"},
    /* empty, as the shape */
    {DT_FP32, 1, {0}, {"", 0}, "[]"},
    {DT_BYTES, 1, {0}, {"", 0}, "[]"},
    {DT_FP64, 2, {0, 3}, {"", 0}, "[]"},
    {DT_INT8, 2, {2, 0}, {"", 0}, "[[],[]]"},
    {DT_BYTES, 3, {2, 0, 7}, {"", 0}, "[[],[]]"},
    {DT_INT8, 4, {2, 1, 0, 7}, {"", 0}, "[[[]],[[]]]"},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static struct tensor tensor_of(const struct row *row, const struct piece *pieces, size_t n) {
    return (struct tensor){.name = STR("y"),
                           .datatype = row->datatype,
                           .shape = {row->dims, row->rank},
                           .pieces = pieces,
                           .n_pieces = n,
                           .n_bytes = row->bytes.len};
}

/* In two pieces, cut anywhere, each in its own allocation at an odd address. */
static void mip_item_print_at_each_piece_boundary_matches_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        for (size_t cut = 0; cut <= rows[i].bytes.len; cut++) {
            struct arena *arena = arena_new(NULL, 0);
            struct str bytes = rows[i].bytes;
            char *first = (char *)arena_alloc(arena, cut + 1) + 1;
            char *second = (char *)arena_alloc(arena, bytes.len - cut + 1) + 1;
            memcpy(first, bytes.ptr, cut);
            memcpy(second, bytes.ptr + cut, bytes.len - cut);
            struct piece pieces[2] = {{cut > 0 ? first : NULL, cut}, {second, bytes.len - cut}};
            struct tensor tensor = tensor_of(&rows[i], pieces, 2);
            struct buf out;
            struct error err = {0};
            buf_init(&out, arena, 0);
            buf_add_str(&out, STR("before "));
            if (mip_item_print_json(&out, &tensor, V2_NON_FINITE_WORDS, &err) != ST_OK) {
                fail_msg("row %zu: %s", i, err.text);
            }
            struct str got = str_make(out.data + 7, out.len - 7);
            if (!str_is(got, rows[i].json)) {
                fail_msg("row %zu cut at %zu: expected %s, got %.*s", i, cut, rows[i].json,
                         STR_ARG(got));
            }
            arena_free(arena);
        }
    }
}

/* Printed items read back to the same bytes, also if a dimension is unknown. */
static void mip_item_print_output_reads_back(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        for (size_t any = 0; any <= rows[i].rank; any++) { /* the unknown dimension */
            struct arena *arena = arena_new(NULL, 0);
            struct tensor tensor = {.name = STR("y")};
            struct error err = {0};
            int64_t dims[MAX_RANK];
            memcpy(dims, rows[i].dims, sizeof(dims));
            if (any < rows[i].rank) {
                dims[any] = -1;
            }
            if (mip_item_read_json(arena, str_of(rows[i].json), "y", rows[i].datatype,
                                   (struct shape){dims, rows[i].rank}, &fixture_limits, &tensor,
                                   &err) != ST_OK) {
                fail_msg("row %zu: %s", i, err.text);
            }
            assert_true(
                str_eq(fixture_gather(arena, tensor.pieces, tensor.n_pieces), rows[i].bytes));
            /* After an empty array the shape is unknown. */
            if (rows[i].bytes.len > 0) {
                assert_true(shape_eq(tensor.shape, (struct shape){rows[i].dims, rows[i].rank}));
            }
            arena_free(arena);
        }
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

static void mip_item_of_tensor_returns_json_item(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct piece piece = {rows[i].bytes.ptr, rows[i].bytes.len};
        struct tensor tensor = tensor_of(&rows[i], &piece, 1);
        struct mip_item item;
        struct error err = {0};
        assert_int_equal(mip_item_of_tensor(arena, &tensor, V2_NON_FINITE_WORDS, &item, &err),
                         ST_OK);
        assert_int_equal(item.type, MIP_JSON);
        assert_true(str_is(item.data, rows[i].json));
        arena_free(arena);
    }
}

/* One BYTES element is sent unchanged. */
static void mip_item_of_tensor_single_bytes_element_returns_text_view(void **state) {
    static const struct row good[] = {
        {DT_BYTES, 0, {0}, {"\6\0\0\0KUBEMO", 10}, "KUBEMO"},
        {DT_BYTES, 1, {1}, {"\0\0\0\0", 4}, ""},
        {DT_BYTES, 3, {1, 1, 1}, {"\4\0\0\0\"\xc3\xa9\n", 8}, "\"\xc3\xa9\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        for (size_t cut = 0; cut <= good[i].bytes.len; cut++) {
            struct arena *arena = arena_new(NULL, 0);
            struct str bytes = good[i].bytes;
            struct piece pieces[2] = {{bytes.ptr, cut}, {bytes.ptr + cut, bytes.len - cut}};
            struct tensor tensor =
                cut == bytes.len ? tensor_of(&good[i], pieces, 1) : tensor_of(&good[i], pieces, 2);
            struct mip_item item;
            struct error err = {0};
            assert_int_equal(mip_item_of_tensor(arena, &tensor, V2_NON_FINITE_WORDS, &item, &err),
                             ST_OK);
            assert_int_equal(item.type, MIP_TEXT);
            assert_true(str_is(item.data, good[i].json));
            if (cut == bytes.len) {
                assert_ptr_equal(item.data.ptr, bytes.ptr + 4); /* not copied */
            }
            arena_free(arena);
        }
    }
}

/* ---- data without a representation ----------------------------------------------------------- */

static void mip_item_print_invalid_tensor_is_refused(void **state) {
    static const struct row bad[] = {
        {DT_BYTES,
         0,
         {0},
         {"\1\0\0\0\xff", 5},
         "tensor \"y\": its element is not UTF-8 (byte 0 of 1)"},
        {DT_BYTES, 1, {1}, {"\1\0\0\0", 4}, "tensor \"y\": 4 bytes are not one BYTES element"},
        {DT_BYTES, 1, {1}, {"\1\0\0\0ab", 6}, "6 bytes are not one BYTES element"},
        {DT_BYTES, 1, {1}, {"", 0}, "0 bytes are not one BYTES element"},
        {DT_BYTES,
         2,
         {2, 1},
         {"\1\0\0\0a\2\0\0\0b\xff", 11},
         "tensor \"y\": element 1 is not UTF-8 (byte 1 of 2), which JSON can't carry"},
        {DT_BYTES, 1, {2}, {"\1\0\0\0a", 5}, "1 whole BYTES elements and 0 bytes more don't fit"},
        {DT_BYTES, 1, {2}, {"\0\0\0\0\0\0\0\0\1", 9}, "2 whole BYTES elements and 1 bytes more"},
        {DT_BYTES, 1, {0}, {"\0\0\0\0", 4}, "1 whole BYTES elements and 0 bytes more"},
        {DT_BYTES, 2, {INT32_MAX, INT32_MAX}, {"", 0}, "0 whole BYTES elements"},
        {DT_BYTES, 1, {-1}, {"", 0}, "tensor \"y\": [-1] is no shape of an output"},
        {DT_BYTES, 2, {INT64_MAX, 2}, {"", 0}, "is no shape of an output"},
        {DT_FP32, 1, {2}, {"1234567", 7}, "tensor \"y\": 7 bytes don't fit FP32 of shape [2]"},
        {DT_INT8, 0, {0}, {"", 0}, "0 bytes don't fit INT8 of shape []"},
        {DT_INT8, 1, {-1}, {"1", 1}, "1 bytes don't fit INT8 of shape [-1]"},
        {DT_INT8, 2, {65537, 0}, {"", 0}, "has no elements and more than 65536 rows"},
        {DT_BYTES, 4, {257, 256, 0, 9}, {"", 0}, "shape [257,256,0,9] has no elements"},
        {DT_INT8, 4, {INT64_MAX, INT64_MAX, 3, 0}, {"", 0}, "more than 65536 rows"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct piece piece = {bad[i].bytes.ptr, bad[i].bytes.len};
        struct tensor tensor = tensor_of(&bad[i], &piece, 1);
        struct mip_item item;
        struct error err = {0};
        enum status status = mip_item_of_tensor(arena, &tensor, V2_NON_FINITE_WORDS, &item, &err);
        if (status != ST_BAD_OUTPUT || err.status != status || !strstr(err.text, bad[i].json)) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
        assert_null(strstr(err.text, "binary_data")); /* a parameter of another protocol */
        assert_int_equal(mip_item_of_tensor(arena, &tensor, V2_NON_FINITE_WORDS, &item, NULL),
                         ST_BAD_OUTPUT);
        arena_free(arena);
    }
}

static void mip_item_print_empty_rows_within_limit_are_printed(void **state) {
    static const struct row none = {DT_INT8, 3, {256, 256, 0}, {"", 0}, NULL};
    struct arena *arena = arena_new(NULL, 0);
    struct tensor tensor = tensor_of(&none, NULL, 0);
    struct mip_item item;
    struct error err = {0};
    (void)state;
    assert_int_equal(mip_item_of_tensor(arena, &tensor, V2_NON_FINITE_WORDS, &item, &err), ST_OK);
    assert_int_equal(item.data.len, 2 + 256 * 3 - 1 + 256 * (256 * 3 - 1));
    arena_free(arena);
}

static void mip_item_of_tensor_out_of_memory_is_reported(void **state) {
    static const char zeros[32000];
    static const int64_t dims[] = {2000, 2};
    (void)state;
    for (int datatype = DT_BOOL; datatype < DT_COUNT_; datatype++) {
        struct arena *arena = arena_new(NULL, 40000);
        size_t size = datatype == DT_BYTES ? 4 : datatype_size((enum datatype)datatype);
        struct piece piece = {zeros, 4000 * size};
        struct tensor tensor = {.name = STR("y"),
                                .datatype = (enum datatype)datatype,
                                .shape = {dims, 2},
                                .pieces = &piece,
                                .n_pieces = 1,
                                .n_bytes = piece.n_bytes};
        struct mip_item item;
        struct error err = {0};
        assert_non_null(arena_alloc(arena, 32000));
        assert_int_equal(mip_item_of_tensor(arena, &tensor, V2_NON_FINITE_WORDS, &item, &err),
                         ST_NO_MEMORY);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_item_print_at_each_piece_boundary_matches_rows),
        cmocka_unit_test(mip_item_print_output_reads_back),
        cmocka_unit_test(mip_item_of_tensor_returns_json_item),
        cmocka_unit_test(mip_item_of_tensor_single_bytes_element_returns_text_view),
        cmocka_unit_test(mip_item_print_invalid_tensor_is_refused),
        cmocka_unit_test(mip_item_print_empty_rows_within_limit_are_printed),
        cmocka_unit_test(mip_item_of_tensor_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

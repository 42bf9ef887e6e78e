/* Raw requests: the models that allow them, the shape of a body, and that a client's encoding
 * decodes to the same tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/raw.h"
#include "codec/kserve/request_encode.h"
#include "codec/kserve/v2_fixture.h"

static const struct row {
    enum datatype datatype;
    uint64_t max_batch_size;
    int64_t dims[4];
    size_t rank;
    struct str body;
    enum status status;
    const char *says; /* the shape, or a part of the error text */
} rows[] = {
    {DT_UINT8, 0, {4}, 1, {"abcd", 4}, ST_OK, "[4]"},
    {DT_UINT8, 8, {-1, 4}, 2, {"abcd", 4}, ST_OK, "[1,4]"},
    {DT_UINT16, 8, {-1, 2}, 2, {"abcd", 4}, ST_OK, "[1,2]"},
    {DT_UINT16, 8, {-1, -1}, 2, {"abcdef", 6}, ST_OK, "[1,3]"},
    {DT_UINT16, 0, {-1}, 1, {"abcdef", 6}, ST_OK, "[3]"},
    {DT_UINT8, 0, {2, -1, 3}, 3, {"abcdefabcdef", 12}, ST_OK, "[2,2,3]"},
    {DT_UINT8, 0, {2, -1, 3}, 3, {"", 0}, ST_OK, "[2,0,3]"},
    {DT_UINT8, 0, {0, -1}, 2, {"", 0}, ST_OK, "[0,0]"},
    {DT_UINT8, 0, {0, 3}, 2, {"", 0}, ST_OK, "[0,3]"},
    {DT_FP64, 0, {0}, 0, {"abcdefgh", 8}, ST_OK, "[]"},
    {DT_FP32, 8, {-1}, 1, {"abcd", 4}, ST_OK, "[1]"},
    {DT_FP32,
     8,
     {-1, 16},
     2,
     {"abcd", 4},
     ST_BAD_DATA,
     "expected 64 bytes for input \"x\" (FP32 of shape [-1,16], batch 1 where it batches), got 4"},
    {DT_UINT16, 0, {-1}, 1, {"abc", 3}, ST_BAD_DATA, "expected a multiple of 2 bytes"},
    {DT_UINT8, 0, {0, -1}, 2, {"a", 1}, ST_BAD_DATA, "expected 0 bytes"},
    {DT_UINT8, 0, {4}, 1, {"abcde", 5}, ST_BAD_DATA, "expected 4 bytes"},
    {DT_UINT8, 0, {4}, 1, {"", 0}, ST_BAD_DATA, "expected 4 bytes"},
    {DT_UINT8,
     0,
     {-1, -1},
     2,
     {"abcd", 4},
     ST_BAD_INPUTS,
     "more than one variable-sized dimension: it is [-1,-1], of which 2 are variable"},
    {DT_UINT8,
     4,
     {-1, -1, -1},
     3,
     {"abcd", 4},
     ST_BAD_INPUTS,
     "of which 2 beside the batch's are variable"},
    {DT_UINT8,
     0,
     {-1},
     1,
     {"0123456789012345678901234567890123456789", 40},
     ST_TOO_MANY_ELEMENTS,
     "gets 40 elements; the limit is 32 (--max-tensor-elements)"},
    {DT_UINT16,
     0,
     {INT64_MAX / 2, 2},
     2,
     {"abcd", 4},
     ST_BAD_SHAPE,
     "takes more than 2^63-1 bytes"},
    {DT_UINT8, 0, {INT64_MAX, 2}, 2, {"abcd", 4}, ST_BAD_SHAPE, "takes more than 2^63-1 bytes"},
    /* BYTES: the whole body is the one element */
    {DT_BYTES, 0, {1}, 1, {"abc", 3}, ST_OK, "[1]"},
    {DT_BYTES, 8, {-1, 1}, 2, {"abc", 3}, ST_OK, "[1,1]"},
    {DT_BYTES, 8, {-1}, 1, {"abc", 3}, ST_OK, "[1]"},
    {DT_BYTES, 0, {1, 1}, 2, {"\0\xff", 2}, ST_OK, "[1,1]"},
    {DT_BYTES, 0, {1}, 1, {"", 0}, ST_OK, "[1]"},
    {DT_BYTES,
     0,
     {2},
     1,
     {"abc", 3},
     ST_BAD_INPUTS,
     "For BYTE datatype raw input 'x', the model must have input shape [1]; it has [2]"},
    {DT_BYTES, 0, {0}, 1, {"", 0}, ST_BAD_INPUTS, "must have input shape [1]; it has [0]"},
    {DT_BYTES,
     8,
     {-1, -1},
     2,
     {"abc", 3},
     ST_BAD_INPUTS,
     "For BYTE datatype raw input 'x', the model must have input shape [1]; it has [-1,-1]"},
};

static const struct json_limits limits = {
    .max_json_size = 0, .max_json_depth = 0, .max_tensor_elements = 32};

static enum status decode(struct arena *arena, const struct row *row, size_t n_inputs,
                          struct v2_request *request, struct error *err) {
    struct tensor_spec specs[2] = {
        {.name = STR("x"), .datatype = row->datatype, .shape = {row->dims, row->rank}},
        {.name = STR("y"), .datatype = row->datatype, .shape = {row->dims, row->rank}},
    };
    struct model_spec model = {.name = STR("m"),
                               .max_batch_size = row->max_batch_size,
                               .inputs = specs,
                               .n_inputs = n_inputs};
    return v2_raw_decode(arena, row->body, &model, &limits, request, err);
}

static void v2_raw_decode_shape_follows_body_size(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request;
        struct error err = {0};
        char shape[SHAPE_TEXT_BYTES] = "";
        enum status status = decode(arena, &rows[i], 1, &request, &err);
        if (status == ST_OK) {
            shape_print(request.infer.inputs[0].tensor.shape, shape);
        }
        if (status != rows[i].status ||
            (status == ST_OK ? strcmp(shape, rows[i].says) != 0
                             : strstr(err.text, rows[i].says) == NULL)) {
            fail_msg("row %zu: expected %s %s, got %s %s%s", i, status_name(rows[i].status),
                     rows[i].says, status_name(status), shape, err.text);
        }
        assert_true(request.binary_default);
        arena_free(arena);
    }
}

/* The tensor's bytes are the body, not a copy; the client's encoder gives it back. */
static void v2_raw_encode_reverses_decode(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request;
        struct v2_request_body body;
        struct error err = {0};
        if (decode(arena, &rows[i], 1, &request, &err) != ST_OK) {
            arena_free(arena);
            continue;
        }
        const struct tensor *tensor = &request.infer.inputs[0].tensor;
        const struct piece *last = &tensor->pieces[tensor->n_pieces - 1];
        if (rows[i].body.len > 0) {
            assert_ptr_equal(last->data, rows[i].body.ptr);
        }
        size_t frame = rows[i].datatype == DT_BYTES ? 4 : 0;
        assert_int_equal(tensor->n_bytes, rows[i].body.len + frame);
        assert_int_equal(v2_raw_encode(arena, tensor, &body, &err), ST_OK);
        struct str bytes = fixture_gather(arena, body.pieces, body.n_pieces);
        assert_true(str_eq(bytes, rows[i].body));
        assert_int_equal(body.n_bytes, rows[i].body.len);
        assert_int_equal(body.json.len, 0);
        assert_true(body.binary);
        arena_free(arena);
    }
}

static void v2_raw_decode_not_one_input_is_refused(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct v2_request request;
    struct error err = {0};
    (void)state;
    assert_int_equal(decode(arena, &rows[0], 2, &request, &err), ST_BAD_INPUTS);
    assert_non_null(strstr(err.text, "but got 2 inputs in 'm' model configuration"));
    assert_int_equal(decode(arena, &rows[0], 0, &request, &err), ST_BAD_INPUTS);
    assert_non_null(strstr(err.text, "but got 0 inputs"));
    arena_free(arena);
}

/* BYTES in pieces cut anywhere, with valid and invalid framing. */
static void v2_raw_encode_bytes_element_is_unframed(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
        int64_t dim;
        enum status status;
    } elements[] = {
        {"\3\0\0\0abc", 7, 1, ST_OK},
        {"\0\0\0\0", 4, 1, ST_OK},
        {"\3\0\0\0ab", 6, 1, ST_BAD_DATA},
        {"\3\0\0\0abcd", 8, 1, ST_BAD_DATA},
        {"\1\0\0\0a\1\0\0\0b", 10, 2, ST_BAD_DATA},
        {"\0\0\0", 3, 1, ST_BAD_DATA},
        {"", 0, 0, ST_BAD_DATA},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
        for (size_t cut = 0; cut <= elements[i].n; cut++) {
            struct arena *arena = arena_new(NULL, 0);
            struct piece pieces[3] = {{elements[i].bytes, cut},
                                      {NULL, 0},
                                      {elements[i].bytes + cut, elements[i].n - cut}};
            struct tensor tensor = {.name = STR("x"),
                                    .datatype = DT_BYTES,
                                    .shape = {&elements[i].dim, 1},
                                    .pieces = pieces,
                                    .n_pieces = 3,
                                    .n_bytes = elements[i].n};
            struct v2_request_body body;
            struct error err = {0};
            assert_int_equal(v2_raw_encode(arena, &tensor, &body, &err), elements[i].status);
            if (elements[i].status == ST_OK) {
                struct str got = fixture_gather(arena, body.pieces, body.n_pieces);
                assert_true(str_eq(got, str_make(elements[i].bytes + 4, elements[i].n - 4)));
                assert_int_equal(body.n_bytes, got.len);
            }
            arena_free(arena);
        }
    }
}

static void v2_raw_encode_wrong_size_is_refused(void **state) {
    static const int64_t dims[] = {2};
    struct arena *arena = arena_new(NULL, 0);
    struct piece piece = {"abc", 3};
    struct tensor tensor = {.name = STR("x"),
                            .datatype = DT_INT16,
                            .shape = {dims, 1},
                            .pieces = &piece,
                            .n_pieces = 1,
                            .n_bytes = 3};
    struct v2_request_body body;
    struct error err = {0};
    (void)state;
    assert_int_equal(v2_raw_encode(arena, &tensor, &body, &err), ST_BAD_DATA);
    assert_non_null(strstr(err.text, "input \"x\": 3 bytes don't fit INT16 of shape [2]"));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_raw_decode_shape_follows_body_size),
        cmocka_unit_test(v2_raw_encode_reverses_decode),
        cmocka_unit_test(v2_raw_decode_not_one_input_is_refused),
        cmocka_unit_test(v2_raw_encode_bytes_element_is_unframed),
        cmocka_unit_test(v2_raw_encode_wrong_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

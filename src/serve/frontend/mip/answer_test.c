/* Outputs as items: the rows of a call's outputs, and the packet made of them. */
#include "serve/frontend/mip/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/tensor/bytes.h"

/* A tensor on the test's stack. */
struct given {
    struct tensor tensor;
    struct piece piece;
    int64_t dims[3];
};

static void give(struct given *given, enum datatype datatype, const void *data, size_t n_bytes,
                 size_t rank, const int64_t *dims) {
    given->piece = (struct piece){data, n_bytes};
    for (size_t i = 0; i < rank; i++) {
        given->dims[i] = dims[i];
    }
    given->tensor = (struct tensor){.name = STR("y"),
                                    .datatype = datatype,
                                    .shape = {given->dims, rank},
                                    .pieces = &given->piece,
                                    .n_pieces = n_bytes > 0 ? 1 : 0,
                                    .n_bytes = n_bytes};
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void mip_rows_numbers_are_views(void **state) {
    (void)state;
    static const int16_t data[] = {1, 2, 3, 4, 5, 6};
    struct given given;
    struct mip_rows rows;
    struct tensor row;
    struct error err;
    give(&given, DT_INT16, data, sizeof(data), 2, (int64_t[]){3, 2});
    assert_int_equal(mip_rows_init(&rows, &given.tensor, 3, &err), ST_OK);
    for (size_t i = 0; i < 3; i++) {
        mip_rows_next(&rows, &row);
        assert_int_equal(row.shape.rank, 1);
        assert_int_equal(row.shape.dims[0], 2);
        assert_int_equal(row.n_bytes, 4);
        assert_ptr_equal(row.pieces[0].data, data + 2 * i); /* a view */
    }
    assert_int_equal(mip_rows_init(&rows, &given.tensor, 0, &err), ST_OK); /* one row */
    mip_rows_next(&rows, &row);
    assert_int_equal(row.shape.rank, 2);
    assert_int_equal(row.n_bytes, sizeof(data));
}

static void mip_rows_strings_have_own_sizes(void **state) {
    (void)state;
    static const char data[] = "\1\0\0\0a\0\0\0\0\3\0\0\0bcd\1\0\0\0e";
    static const size_t expected[] = {9, 12};
    struct given given;
    struct mip_rows rows;
    struct tensor row;
    struct error err;
    give(&given, DT_BYTES, data, sizeof(data) - 1, 2, (int64_t[]){2, 2});
    assert_int_equal(mip_rows_init(&rows, &given.tensor, 2, &err), ST_OK);
    for (size_t i = 0; i < 2; i++) {
        mip_rows_next(&rows, &row);
        assert_int_equal(row.n_bytes, expected[i]);
    }
}

static void mip_rows_empty_tensor_has_empty_rows(void **state) {
    (void)state;
    struct given given;
    struct mip_rows rows;
    struct tensor row;
    struct error err;
    give(&given, DT_FP32, NULL, 0, 2, (int64_t[]){2, 0});
    assert_int_equal(mip_rows_init(&rows, &given.tensor, 2, &err), ST_OK);
    mip_rows_next(&rows, &row);
    mip_rows_next(&rows, &row);
    assert_int_equal(row.n_pieces, 0);
}

static void mip_rows_other_batch_dimension_is_refused(void **state) {
    (void)state;
    static const float data[3] = {1, 2, 3};
    struct given given;
    struct mip_rows rows;
    struct error err;
    give(&given, DT_FP32, data, sizeof(data), 1, (int64_t[]){3});
    assert_int_equal(mip_rows_init(&rows, &given.tensor, 2, &err), ST_BAD_OUTPUT);
    assert_non_null(strstr(err.text, "expected the batch of 2 as its first dimension"));
    give(&given, DT_FP32, data, 4, 0, NULL);
    assert_int_equal(mip_rows_init(&rows, &given.tensor, 1, &err), ST_BAD_OUTPUT);
}

/* ---- packets --------------------------------------------------------------------------------- */

/* A model with one output, and an answer to a packet of `batch` elements with two inputs. */
struct answer {
    struct arena *arena;
    struct tensor_spec spec;
    struct model_spec model;
    struct mip_output output;
    struct mip_plan plan;
    struct mip_infer request;
    struct mip_answer_writer writer;
    const struct piece *pieces;
    size_t n_pieces;
    struct error err;
};

static void begin(struct answer *answer, uint16_t batch) {
    *answer = (struct answer){.arena = arena_new(NULL, 0)};
    answer->model.n_outputs = 1;
    answer->model.outputs = &answer->spec;
    answer->output.spec = &answer->spec;
    answer->plan = (struct mip_plan){.spec = &answer->model, .outputs = &answer->output};
    answer->request = (struct mip_infer){.n_inputs = 2, .batch = batch};
    assert_int_equal(mip_answer_begin(&answer->writer, answer->arena, &answer->plan,
                                      V2_NON_FINITE_WORDS, &answer->err),
                     ST_OK);
}

static void add(struct answer *answer, const struct given *given, bool may_view) {
    assert_int_equal(
        mip_answer_add(&answer->writer, 0, &given->tensor, may_view, answer->arena, &answer->err),
        ST_OK);
}

/* Ends the answer and joins its pieces. */
static struct str end(struct answer *answer) {
    struct buf all;
    assert_int_equal(mip_answer_end(&answer->writer, &answer->request, &answer->pieces,
                                    &answer->n_pieces, &answer->err),
                     ST_OK);
    buf_init(&all, answer->arena, 0);
    for (size_t i = 0; i < answer->n_pieces; i++) {
        buf_add(&all, answer->pieces[i].data, answer->pieces[i].n_bytes);
    }
    return buf_str(&all);
}

static void mip_answer_numbers_become_json_items(void **state) {
    (void)state;
    static const char expected[] = "\0\2\1\0\0\0\0\x22"
                                   "\2\1\0\2"
                                   "\0\0\0\2\0\0\0\5[1,2]"
                                   "\0\0\0\2\0\0\0\x9[-30,400]";
    static const int32_t numbers[2][2] = {{1, 2}, {-30, 400}};
    struct answer answer;
    struct given given;
    begin(&answer, 2);
    for (size_t i = 0; i < 2; i++) {
        give(&given, DT_INT32, numbers[i], sizeof(numbers[i]), 1, (int64_t[]){2});
        add(&answer, &given, true);
    }
    struct str packet = end(&answer);
    assert_int_equal(answer.n_pieces, 1);
    assert_int_equal(packet.len, sizeof(expected) - 1);
    assert_memory_equal(packet.ptr, expected, packet.len);
    arena_free(answer.arena);
}

/* One BYTES element becomes TEXT: a short one is copied, a long one is a view if its memory stays.
 */
static void mip_answer_long_text_is_not_copied(void **state) {
    (void)state;
    enum { LONG = MIP_VIEW_MIN_BYTES };
    char *data = malloc(4 + LONG);
    assert_non_null(data);
    memset(data + 4, 'x', LONG);
    static const struct {
        uint32_t n;
        bool may_view;
        size_t n_pieces;
    } cases[] = {
        {6, true, 1}, {LONG - 1, true, 1}, {LONG, true, 2}, {LONG, false, 1}, {0, true, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct answer answer;
        struct given given;
        struct mip_infer decoded;
        begin(&answer, 1);
        bytes_encode_length(data, cases[i].n);
        give(&given, DT_BYTES, data, 4 + cases[i].n, 1, (int64_t[]){1});
        add(&answer, &given, cases[i].may_view);
        struct str packet = end(&answer);
        assert_int_equal(answer.n_pieces, cases[i].n_pieces);
        struct str payload = str_make(packet.ptr + MIP_HEADER_BYTES, packet.len - MIP_HEADER_BYTES);
        assert_int_equal(mip_infer_decode(answer.arena, payload, true, &decoded, &answer.err),
                         ST_OK);
        assert_int_equal(decoded.items[0].type, MIP_TEXT);
        assert_int_equal(decoded.items[0].data.len, cases[i].n);
        arena_free(answer.arena);
    }
    free(data);
}

/* Views and JSON alternate: the order is that of the items. */
static void mip_answer_views_keep_item_order(void **state) {
    (void)state;
    enum { LONG = MIP_VIEW_MIN_BYTES + 1, N = 12 };
    static char data[4 + LONG];
    static const int64_t number = 7;
    struct answer answer;
    struct given text, json;
    struct mip_infer decoded;
    memset(data, 'x', sizeof(data));
    bytes_encode_length(data, LONG);
    give(&text, DT_BYTES, data, sizeof(data), 0, NULL);
    give(&json, DT_INT64, &number, sizeof(number), 0, NULL);
    begin(&answer, N);
    for (size_t i = 0; i < N; i++) {
        add(&answer, i % 3 == 2 ? &json : &text, true);
    }
    struct str packet = end(&answer);
    struct str payload = str_make(packet.ptr + MIP_HEADER_BYTES, packet.len - MIP_HEADER_BYTES);
    assert_int_equal(mip_infer_decode(answer.arena, payload, true, &decoded, &answer.err), ST_OK);
    for (size_t i = 0; i < N; i++) {
        bool is_json = i % 3 == 2;
        assert_int_equal(decoded.items[i].type, is_json ? MIP_JSON : MIP_TEXT);
        assert_int_equal(decoded.items[i].data.len, is_json ? 1 : LONG);
    }
    arena_free(answer.arena);
}

static void mip_answer_unencodable_output_is_refused(void **state) {
    (void)state;
    struct answer answer;
    struct given given;
    begin(&answer, 1);
    give(&given, DT_BYTES, "\1\0\0\0\xff", 5, 1, (int64_t[]){1});
    assert_int_equal(
        mip_answer_add(&answer.writer, 0, &given.tensor, true, answer.arena, &answer.err),
        ST_BAD_OUTPUT);
    arena_free(answer.arena);
    /* out of memory */
    static double many[4096];
    struct arena *small = arena_new(NULL, 8192);
    begin(&answer, 1);
    assert_int_equal(
        mip_answer_begin(&answer.writer, small, &answer.plan, V2_NON_FINITE_WORDS, &answer.err),
        ST_OK);
    give(&given, DT_FP64, many, sizeof(many), 1, (int64_t[]){4096});
    assert_int_equal(
        mip_answer_add(&answer.writer, 0, &given.tensor, true, answer.arena, &answer.err),
        ST_NO_MEMORY);
    arena_free(small);
    arena_free(answer.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_rows_numbers_are_views),
        cmocka_unit_test(mip_rows_strings_have_own_sizes),
        cmocka_unit_test(mip_rows_empty_tensor_has_empty_rows),
        cmocka_unit_test(mip_rows_other_batch_dimension_is_refused),
        cmocka_unit_test(mip_answer_numbers_become_json_items),
        cmocka_unit_test(mip_answer_long_text_is_not_copied),
        cmocka_unit_test(mip_answer_views_keep_item_order),
        cmocka_unit_test(mip_answer_unencodable_output_is_refused),
    };
    return cmocka_run_group_tests_name("serve/frontend/mip/answer", tests, NULL, NULL);
}

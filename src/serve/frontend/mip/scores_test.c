/* Softmax and top-k: every datatype, ties, labels, and values without a rank. */
#include "serve/frontend/mip/scores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/tensor/float16.h"

enum { MAX_VALUES = 6 };

#define NOT_A_NUMBER __builtin_nan("")
#define INFINITE __builtin_inf()

/* The bytes of `value` in `datatype`. Returns: how many. */
static size_t put(enum datatype datatype, double value, char *out) {
    size_t size = datatype_size(datatype);
    bool whole = !datatype_is_float(datatype);
    int64_t bits = whole ? (int64_t)value : 0; /* little-endian: the first bytes are the shorter
                                                  integers */
    float f32 = (float)value;
    uint16_t half = datatype == DT_FP16 ? half_from_double(value) : bfloat_from_double(value);
    const void *from = &bits;
    if (datatype == DT_FP32) {
        from = &f32;
    } else if (datatype == DT_FP64) {
        from = &value;
    } else if (datatype == DT_FP16 || datatype == DT_BF16) {
        from = &half;
    }
    memcpy(out, from, size);
    return size;
}

struct row {
    enum datatype datatype;
    double values[MAX_VALUES];
    size_t n;
    bool softmax;
    size_t top_k;
    size_t n_labels;
    const char *expected; /* or NULL, and */
    const char *says;
};

static const struct row rows[] = {
    {DT_FP32, {1, 3, 2}, 3, false, 3, 0, "{\"1\":3.0,\"2\":2.0,\"0\":1.0}", NULL},
    {DT_FP32, {1, 3, 2}, 3, false, 2, 0, "{\"1\":3.0,\"2\":2.0}", NULL},
    {DT_FP32, {1, 3, 2}, 3, false, 9, 0, "{\"1\":3.0,\"2\":2.0,\"0\":1.0}", NULL},
    {DT_FP32, {1, 3, 2}, 3, false, 1, 4, "{\"one\":3.0}", NULL},
    {DT_FP32, {1, 3, 2, 9}, 4, false, 2, 4, "{\"q\\\"uote\":9.0,\"one\":3.0}", NULL},
    /* equal values are in order of their index */
    {DT_FP32, {5, 7, 5, 7}, 4, false, 3, 0, "{\"1\":7.0,\"3\":7.0,\"0\":5.0}", NULL},
    {DT_FP32, {2, 2, 2}, 3, false, 2, 0, "{\"0\":2.0,\"1\":2.0}", NULL},
    /* values that softmax makes equal keep their order */
    {DT_FP64, {-2000, -1000, 0}, 3, true, 3, 0, "{\"2\":1.0,\"1\":0.0,\"0\":0.0}", NULL},
    {DT_FP32, {4, 4}, 2, true, 2, 0, "{\"0\":0.5,\"1\":0.5}", NULL},
    {DT_FP32, {0, 0, 0, 0}, 4, true, 0, 0, "[0.25,0.25,0.25,0.25]", NULL},
    {DT_FP64, {1000, 1000}, 2, true, 0, 0, "[0.5,0.5]", NULL},
    {DT_FP64, {-INFINITE, 3}, 2, true, 0, 0, "[0.0,1.0]", NULL},
    {DT_FP32, {0}, 0, true, 0, 0, "[]", NULL},
    {DT_FP32, {0}, 0, true, 3, 0, "{}", NULL},
    /* every datatype; values are printed as the model returned them */
    {DT_UINT8, {1, 200}, 2, false, 2, 0, "{\"1\":200,\"0\":1}", NULL},
    {DT_INT8, {1, -100}, 2, false, 2, 0, "{\"0\":1,\"1\":-100}", NULL},
    {DT_UINT16, {1, 60000}, 2, false, 1, 0, "{\"1\":60000}", NULL},
    {DT_INT16, {-3, -30000}, 2, false, 1, 0, "{\"0\":-3}", NULL},
    {DT_UINT32, {1, 4e9}, 2, false, 1, 0, "{\"1\":4000000000}", NULL},
    {DT_INT32, {-3, -2e9}, 2, false, 2, 0, "{\"0\":-3,\"1\":-2000000000}", NULL},
    {DT_UINT64, {1, 4e18}, 2, false, 1, 0, "{\"1\":4000000000000000000}", NULL},
    {DT_INT64, {-3, 4e18}, 2, false, 1, 0, "{\"1\":4000000000000000000}", NULL},
    {DT_FP16, {0.5, 1.5}, 2, false, 1, 0, "{\"1\":1.5}", NULL},
    {DT_BF16, {0.5, 1.5}, 2, false, 1, 0, "{\"1\":1.5}", NULL},
    {DT_FP64, {0.1, 0.2}, 2, false, 1, 0, "{\"1\":0.2}", NULL},
    {DT_INT64, {7, 7}, 2, true, 1, 0, "{\"0\":0.5}", NULL},
    {DT_FP32, {INFINITE, 1}, 2, false, 1, 0, "{\"0\":Infinity}", NULL},
    /* no rank, no softmax, no label */
    {DT_FP32, {1, NOT_A_NUMBER}, 2, false, 1, 0, NULL, "value 1 of the element is NaN"},
    {DT_FP32, {1, NOT_A_NUMBER}, 2, true, 0, 0, NULL, "NaN"},
    {DT_FP16, {NOT_A_NUMBER}, 1, true, 1, 0, NULL, "NaN"},
    {DT_FP32, {1, INFINITE}, 2, true, 1, 0, NULL, "a value is infinite, which has no softmax"},
    {DT_FP64, {-INFINITE, -INFINITE}, 2, true, 0, 0, NULL, "all are -infinite"},
    {DT_FP32, {1, 2, 3, 4, 5}, 5, false, 1, 4, NULL, "value 4 of the element has no label"},
};

static void check_row(size_t i, const struct row *row) {
    static const struct str labels[] = {STR("zero"), STR("one"), STR("two"), STR("q\"uote")};
    struct arena *arena = arena_new(NULL, 0);
    char data[MAX_VALUES * 8];
    int64_t dims[1] = {(int64_t)row->n};
    struct piece piece = {data, 0};
    struct error err = {0};
    struct buf out;
    for (size_t k = 0; k < row->n; k++) {
        piece.n_bytes += put(row->datatype, row->values[k], data + piece.n_bytes);
    }
    struct tensor element = {.name = STR("y"),
                             .datatype = row->datatype,
                             .shape = {dims, 1},
                             .pieces = &piece,
                             .n_pieces = row->n > 0 ? 1 : 0,
                             .n_bytes = piece.n_bytes};
    struct mip_output output = {
        .softmax = row->softmax, .top_k = row->top_k, .labels = {labels, row->n_labels}};
    buf_init(&out, arena, 0);
    enum status st = mip_scores_print(&out, arena, &output, &element, V2_NON_FINITE_WORDS, &err);
    buf_add_char(&out, '\0');
    if (row->expected && (st != ST_OK || strcmp(out.data, row->expected) != 0)) {
        fail_msg("row %zu: expected %s, got %s", i, row->expected, st ? err.text : out.data);
    }
    if (row->says && (st != ST_BAD_OUTPUT || !strstr(err.text, row->says))) {
        fail_msg("row %zu: expected \"%s\", got %s", i, row->says, st ? err.text : out.data);
    }
    arena_free(arena);
}

static void scores_each_output_prints_expected_json(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_row(i, &rows[i]);
    }
}

/* Softmax keeps the element's shape. */
static void scores_softmax_keeps_shape(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    const float data[4] = {1, 1, 1, 1};
    const int64_t dims[2] = {2, 2};
    struct piece piece = {data, sizeof(data)};
    struct tensor element = {.datatype = DT_FP32,
                             .shape = {dims, 2},
                             .pieces = &piece,
                             .n_pieces = 1,
                             .n_bytes = sizeof(data)};
    struct mip_output output = {.softmax = true};
    struct error err;
    struct buf out;
    buf_init(&out, arena, 0);
    assert_int_equal(mip_scores_print(&out, arena, &output, &element, V2_NON_FINITE_WORDS, &err),
                     ST_OK);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data, "[[0.25,0.25],[0.25,0.25]]");
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores_each_output_prints_expected_json),
                                       cmocka_unit_test(scores_softmax_keeps_shape)};
    return cmocka_run_group_tests_name("serve/frontend/mip/scores", tests, NULL, NULL);
}

/* Requests that fit a model and those that do not, row by row, with the text of the error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/tensor/bytes.h"
#include "core/tensor/infer.h"

#define P31 (INT64_C(1) << 31)
#define P32 (INT64_C(1) << 32)
#define P62 (INT64_C(1) << 62)

static const int64_t free_16[] = {-1, 16}, free_free[] = {-1, -1}, one_free[] = {-1},
                     two_three[] = {2, 3}, zero_four[] = {0, 4}, four_free[] = {-1, -1, -1, -1};

/* "batching": the first dimension is the batch, at most 8. */
static const struct tensor_spec batching_inputs[] = {
    {.name = STR("x"),
     .datatype = DT_FP32,
     .shape = {free_16, 2},
     .origin = STR("max_batch_size 8, and dims in config.pbtxt, line 4")},
    {.name = STR("mask"), .datatype = DT_BOOL, .shape = {free_free, 2}, .optional = true},
};
/* "plain": no batch dimension. */
static const struct tensor_spec plain_inputs[] = {
    {.name = STR("a"), .datatype = DT_INT64, .shape = {two_three, 2}},
    {.name = STR("h"), .datatype = DT_FP16, .shape = {one_free, 1}},
    {.name = STR("t"), .datatype = DT_BYTES, .shape = {one_free, 1}, .optional = true},
    {.name = STR("e"), .datatype = DT_FP32, .shape = {zero_four, 2}, .optional = true},
    {.name = STR("s"), .datatype = DT_UINT8, .shape = {NULL, 0}, .optional = true},
    {.name = STR("d"), .datatype = DT_FP64, .shape = {four_free, 4}, .optional = true},
};
static const struct tensor_spec two_outputs[] = {
    {.name = STR("y"), .datatype = DT_FP32, .shape = {free_16, 2}},
    {.name = STR("z"), .datatype = DT_FP32, .shape = {free_16, 2}},
};
static const struct model_spec batching = {.name = STR("batching"),
                                           .max_batch_size = 8,
                                           .batch_origin =
                                               STR("max_batch_size is 8 in config.pbtxt"),
                                           .inputs = batching_inputs,
                                           .n_inputs = 2,
                                           .outputs = two_outputs,
                                           .n_outputs = 2};
static const struct model_spec plain = {.name = STR("plain"),
                                        .inputs = plain_inputs,
                                        .n_inputs = 6,
                                        .outputs = two_outputs,
                                        .n_outputs = 2};

struct given {
    const char *name;
    enum datatype datatype;
    int64_t dims[4];
    size_t rank;
    size_t n_bytes;
};

struct row {
    const struct model_spec *model;
    struct given inputs[4];
    const char *wanted[4];
    const char *message; /* NULL: it fits */
    enum status status;
    uint64_t batch; /* where it fits */
};

#define A_GOOD                                                                                     \
    { "a", DT_INT64, {2, 3}, 2, 48 }
#define H_GOOD                                                                                     \
    { "h", DT_FP16, {5}, 1, 10 }

static const struct row rows[] = {
    /* what fits */
    {&batching, {{"x", DT_FP32, {1, 16}, 2, 64}}, {0}, NULL, ST_OK, 1},
    {&batching, {{"x", DT_FP32, {8, 16}, 2, 512}}, {"y"}, NULL, ST_OK, 8},
    {&batching,
     {{"mask", DT_BOOL, {3, 2}, 2, 6}, {"x", DT_FP32, {3, 16}, 2, 192}},
     {"z", "y"},
     NULL,
     ST_OK,
     3},
    {&batching,
     {{"x", DT_FP32, {2, 16}, 2, 128}, {"mask", DT_BOOL, {2, 0}, 2, 0}},
     {0},
     NULL,
     ST_OK,
     2},
    {&plain, {A_GOOD, H_GOOD}, {0}, NULL, ST_OK, 1},
    {&plain, {H_GOOD, A_GOOD, {"e", DT_FP32, {0, 4}, 2, 0}}, {0}, NULL, ST_OK, 1},
    {&plain, {A_GOOD, {"h", DT_FP16, {0}, 1, 0}, {"t", DT_BYTES, {0}, 1, 0}}, {0}, NULL, ST_OK, 1},
    {&plain, {A_GOOD, H_GOOD, {"t", DT_BYTES, {3}, 1, 12}}, {0}, NULL, ST_OK, 1},
    {&plain, {A_GOOD, H_GOOD, {"s", DT_UINT8, {0}, 0, 1}}, {0}, NULL, ST_OK, 1},
    {&plain, {A_GOOD, H_GOOD, {"d", DT_FP64, {P62, P62, 0, P62}, 4, 0}}, {0}, NULL, ST_OK, 1},
    /* names */
    {&batching,
     {{0}},
     {0},
     "expected number of inputs between 1 and 2 but got 0 inputs for model 'batching'. Got "
     "input(s) [], but missing required "
     "input(s) ['x']. Please provide all required input(s).",
     ST_BAD_INPUTS,
     0},
    {&plain,
     {{0}},
     {0},
     "expected number of inputs between 2 and 6 but got 0 inputs for model 'plain'. Got "
     "input(s) [], but missing required input(s) ['a','h']. Please provide all required "
     "input(s).",
     ST_BAD_INPUTS,
     0},
    {&plain,
     {H_GOOD},
     {0},
     "expected number of inputs between 2 and 6 but got 1 inputs for model 'plain'. Got input(s) "
     "['h'], but missing required input(s) ['a']. Please provide all required input(s).",
     ST_BAD_INPUTS,
     0},
    {&batching,
     {{"X", DT_FP32, {1, 16}, 2, 64}},
     {0},
     "unexpected inference input 'X' for model 'batching', which has inputs \"x\", \"mask\"",
     ST_BAD_INPUTS,
     0},
    {&batching,
     {{"x", DT_FP32, {1, 16}, 2, 64}, {"x", DT_FP32, {1, 16}, 2, 64}},
     {0},
     "input 'x' already exists in request",
     ST_BAD_INPUTS,
     0},
    {&batching,
     {{"x", DT_FP32, {1, 16}, 2, 64}},
     {"y", "w"},
     "unexpected inference output 'w' for model 'batching', which has outputs \"y\", \"z\"",
     ST_BAD_INPUTS,
     0},
    {&batching,
     {{"x", DT_FP32, {1, 16}, 2, 64}},
     {"y", "z", "y"},
     "output 'y' already exists in request",
     ST_BAD_INPUTS,
     0},
    /* datatypes */
    {&batching,
     {{"x", DT_FP64, {1, 16}, 2, 128}},
     {0},
     "input \"x\": expected datatype FP32, got FP64",
     ST_BAD_DATATYPE,
     0},
    {&plain,
     {A_GOOD, {"h", DT_BF16, {5}, 1, 10}},
     {0},
     "input \"h\": expected datatype FP16, got BF16",
     ST_BAD_DATATYPE,
     0},
    /* shapes */
    {&batching,
     {{"x", DT_FP32, {1, 17}, 2, 68}},
     {0},
     "input \"x\": expected shape [-1,16] (-1: any size), got [1,17] "
     "(model \"batching\": max_batch_size 8, and dims in config.pbtxt, line 4)",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {16}, 1, 64}},
     {0},
     "input \"x\": expected shape [-1,16] (-1: any size), got [16]: the batch dimension is "
     "missing, "
     "send [1,16] (model \"batching\": max_batch_size 8, and dims in config.pbtxt, line 4)",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {0}, 0, 4}},
     {0},
     "input \"x\": expected shape [-1,16] (-1: any size), got [] (model "
     "\"batching\": max_batch_size 8, and dims in config.pbtxt, line 4)",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {{"a", DT_INT64, {2, 3, 1}, 3, 48}, H_GOOD},
     {0},
     "input \"a\": expected shape [2,3] (-1: any size), got [2,3,1] (model \"plain\")",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {{"a", DT_INT64, {0, 3}, 2, 0}, H_GOOD},
     {0},
     "input \"a\": expected shape [2,3] (-1: any size), got [0,3] (model \"plain\")",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {{"a", DT_INT64, {1, 2, 3}, 3, 48}, H_GOOD},
     {0},
     "input \"a\": expected shape [2,3] (-1: any size), got [1,2,3]: the model has no batch "
     "dimension, send [2,3] (model \"plain\")",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {{"a", DT_INT64, {2, 2, 3}, 3, 96}, H_GOOD},
     {0},
     "input \"a\": expected shape [2,3] (-1: any size), got [2,2,3] (model \"plain\")",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {17}, 1, 68}},
     {0},
     "input \"x\": expected shape [-1,16] (-1: any size), got [17] (model \"batching\": "
     "max_batch_size 8, and dims in config.pbtxt, line 4)",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {1, 16}, 2, 64}, {"mask", DT_BOOL, {3}, 1, 3}},
     {0},
     "input \"mask\": expected shape [-1,-1] (-1: any size), got [3]: the batch dimension is "
     "missing, send [1,3] (model \"batching\")",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"s", DT_UINT8, {1}, 1, 1}},
     {0},
     "input \"s\": expected shape [] (-1: any size), got [1]: the model has no batch dimension, "
     "send [] (model \"plain\")",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"e", DT_FP32, {1, 4}, 2, 16}},
     {0},
     "input \"e\": expected shape [0,4] (-1: any size), got [1,4] (model \"plain\")",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {-1, 16}, 2, 64}},
     {0},
     "input \"x\": expected dimensions of 0 or more, got -1 at index 0 of shape [-1,16]",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {A_GOOD, {"h", DT_FP16, {INT64_MIN}, 1, 0}},
     {0},
     "input \"h\": expected dimensions of 0 or more, got -9223372036854775808 at index 0 of shape "
     "[-9223372036854775808]",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"d", DT_FP64, {P32, P32, 1, 1}, 4, 0}},
     {0},
     "input \"d\": shape [4294967296,4294967296,1,1] causes total element count to exceed maximum "
     "size of "
     "9223372036854775807, or the byte size",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"d", DT_FP64, {P62 + 1, 4, 1, 1}, 4, 32}},
     {0},
     "input \"d\": shape [4611686018427387905,4,1,1] causes total element count to exceed maximum "
     "size of "
     "9223372036854775807, or the byte size",
     ST_BAD_SHAPE,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"d", DT_FP64, {P31, P31, 1, 1}, 4, 0}},
     {0},
     "input \"d\": shape [2147483648,2147483648,1,1] causes total element count to exceed maximum "
     "size of "
     "9223372036854775807, or the byte size",
     ST_BAD_SHAPE,
     0},
    /* batches */
    {&batching,
     {{"x", DT_FP32, {9, 16}, 2, 576}},
     {0},
     "input \"x\": expected a batch size (the first dimension) from 1 to 8, the model's "
     "max_batch_size; got shape [9,16] (model \"batching\": max_batch_size is 8 in "
     "config.pbtxt)",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {0, 16}, 2, 0}},
     {0},
     "input \"x\": expected a batch size (the first dimension) from 1 to 8, the model's "
     "max_batch_size; got shape [0,16] (model \"batching\": max_batch_size is 8 in "
     "config.pbtxt)",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {INT64_MAX / 64, 16}, 2, 0}},
     {0},
     "input \"x\": expected a batch size (the first dimension) from 1 to 8, the model's "
     "max_batch_size; got shape [144115188075855871,16] (model \"batching\": max_batch_size is 8 "
     "in "
     "config.pbtxt)",
     ST_BAD_SHAPE,
     0},
    {&batching,
     {{"x", DT_FP32, {2, 16}, 2, 128}, {"mask", DT_BOOL, {3, 1}, 2, 3}},
     {0},
     "input \"mask\": expected batch size 2 (the first dimension) as in input \"x\", got shape "
     "[3,1]",
     ST_BAD_SHAPE,
     0},
    /* sizes */
    {&batching,
     {{"x", DT_FP32, {1, 16}, 2, 63}},
     {0},
     "input byte size mismatch for input 'x' for model 'batching'. Expected 64, got 63 "
     "(shape [1,16] of FP32)",
     ST_BAD_DATA,
     0},
    {&batching,
     {{"x", DT_FP32, {1, 16}, 2, 68}},
     {0},
     "input byte size mismatch for input 'x' for model 'batching'. Expected 64, got 68 "
     "(shape [1,16] of FP32)",
     ST_BAD_DATA,
     0},
    {&plain,
     {A_GOOD, {"h", DT_FP16, {P32}, 1, 2}},
     {0},
     "input byte size mismatch for input 'h' for model 'plain'. Expected 8589934592, got 2 "
     "(shape [4294967296] of FP16)",
     ST_BAD_DATA,
     0},
    {&plain,
     {A_GOOD, {"h", DT_FP16, {0}, 1, 2}},
     {0},
     "input byte size mismatch for input 'h' for model 'plain'. Expected 0, got 2 "
     "(shape [0] of FP16)",
     ST_BAD_DATA,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"s", DT_UINT8, {0}, 0, 0}},
     {0},
     "input byte size mismatch for input 's' for model 'plain'. Expected 1, got 0 "
     "(shape [] of UINT8)",
     ST_BAD_DATA,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"t", DT_BYTES, {2}, 1, 12}},
     {0},
     "tensor \"t\": expected 2 BYTES elements as its shape says, got 3",
     ST_BAD_DATA,
     0},
    {&plain,
     {A_GOOD, H_GOOD, {"t", DT_BYTES, {P62}, 1, 4}},
     {0},
     "tensor \"t\": expected 4611686018427387904 BYTES elements as its shape says, got 1",
     ST_BAD_DATA,
     0},
};

/* A request made of a row; its bytes are zeros. */
struct made {
    struct infer_request request;
    struct infer_input inputs[4];
    struct piece pieces[4];
    struct infer_requested_output wanted[4];
};

static void make_request(struct made *made, const struct given *inputs, const char *const *wanted) {
    static const unsigned char zeros[1024];
    memset(made, 0, sizeof(*made));
    made->request.arena = arena_new(NULL, 0);
    made->request.inputs = made->inputs;
    made->request.wanted = made->wanted;
    for (size_t i = 0; i < 4 && inputs[i].name; i++) {
        made->pieces[i] = (struct piece){zeros, inputs[i].n_bytes};
        made->inputs[i].tensor = (struct tensor){.name = str_of(inputs[i].name),
                                                 .datatype = inputs[i].datatype,
                                                 .shape = {inputs[i].dims, inputs[i].rank},
                                                 .pieces = &made->pieces[i],
                                                 .n_pieces = inputs[i].n_bytes > 0,
                                                 .n_bytes = inputs[i].n_bytes};
        made->request.n_inputs++;
    }
    for (size_t i = 0; i < 4 && wanted[i]; i++) {
        made->wanted[i].name = str_of(wanted[i]);
        made->request.n_wanted++;
    }
}

static void infer_check_rows_match_expected_status(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct made made;
        struct error err = {.text = "it fits"};
        make_request(&made, rows[i].inputs, rows[i].wanted);
        enum status status = infer_check(&made.request, rows[i].model, &err);
        assert_string_equal(err.text, rows[i].message ? rows[i].message : "it fits");
        assert_int_equal(status, rows[i].status);
        for (size_t k = 0; status == ST_OK && k < made.request.n_inputs; k++) {
            struct str name = rows[i].model->inputs[made.inputs[k].spec].name;
            assert_true(str_is(name, rows[i].inputs[k].name));
        }
        for (size_t k = 0; status == ST_OK && k < made.request.n_wanted; k++) {
            struct str name = rows[i].model->outputs[made.wanted[k].spec].name;
            assert_true(str_is(name, rows[i].wanted[k]));
        }
        if (status == ST_OK) {
            assert_true(made.request.batch == rows[i].batch);
        }
        arena_free(made.request.arena);
    }
}

static enum status check_again(struct arena *arena, struct tensor *tensor, uint64_t n_checked,
                               struct error *err) {
    struct tensor_spec spec = {
        .name = tensor->name, .datatype = tensor->datatype, .shape = {one_free, 1}};
    struct model_spec model = {.name = STR("m"), .inputs = &spec, .n_inputs = 1};
    struct infer_input input = {.tensor = *tensor, .n_checked = n_checked};
    struct infer_request request = {.arena = arena, .inputs = &input, .n_inputs = 1};
    enum status status = infer_check(&request, &model, err);
    *tensor = input.tensor;
    return status;
}

static enum status check_one(struct arena *arena, struct tensor *tensor, struct error *err) {
    return check_again(arena, tensor, 0, err);
}

/* What was checked is looked at again only where the tensor has another number of elements. */
static void infer_check_checked_elements_are_trusted(void **state) {
    static const unsigned char wrong[] = {0, 0, 0, 9};
    static const enum datatype datatypes[] = {DT_BYTES, DT_BOOL};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        int64_t dims[] = {datatypes[i] == DT_BYTES ? 1 : 4};
        struct piece piece = {wrong, sizeof(wrong)};
        struct tensor tensor = {.name = STR("t"),
                                .datatype = datatypes[i],
                                .shape = {dims, 1},
                                .pieces = &piece,
                                .n_pieces = 1,
                                .n_bytes = sizeof(wrong)};
        struct arena *arena = arena_new(NULL, 0);
        struct error err;
        uint64_t n = (uint64_t)dims[0];
        assert_int_equal(check_again(arena, &tensor, 0, &err), ST_BAD_DATA);
        assert_int_equal(check_again(arena, &tensor, n, &err), ST_OK);
        assert_int_equal(check_again(arena, &tensor, n + 1, &err), ST_BAD_DATA);
        arena_free(arena);
    }
}

/* One wrong byte at each offset of each length, in one piece and in two. */
static void infer_check_bool_above_1_is_rejected(void **state) {
    (void)state;
    for (size_t n = 1; n <= 40; n++) {
        for (size_t wrong = 0; wrong <= n; wrong++) {
            for (size_t cut = 0; cut < n; cut += n / 3 + 1) {
                unsigned char data[40];
                int64_t dims[] = {(int64_t)n};
                struct piece pieces[] = {{data, cut}, {data + cut, n - cut}};
                struct tensor tensor = {.name = STR("b"),
                                        .datatype = DT_BOOL,
                                        .shape = {dims, 1},
                                        .pieces = pieces,
                                        .n_pieces = 2,
                                        .n_bytes = n};
                struct error err;
                struct arena *arena = arena_new(NULL, 0);
                memset(data, 1, n);
                data[n / 2] = 0;
                if (wrong < n) {
                    data[wrong] = (unsigned char)(2 + wrong * 6);
                }
                enum status status = check_one(arena, &tensor, &err);
                assert_int_equal(status, wrong < n ? ST_BAD_DATA : ST_OK);
                if (wrong < n) {
                    char want[120];
                    snprintf(want, sizeof(want),
                             "input \"b\": expected the byte 0 or 1 for each BOOL, got %zu at "
                             "element %zu",
                             2 + wrong * 6, wrong);
                    assert_string_equal(err.text, want);
                }
                arena_free(arena);
            }
        }
    }
}

/* "ab", "", "c\0d", split in three at every pair of places; short of bytes at every length. */
static void infer_check_bytes_split_anywhere_are_checked(void **state) {
    static const char data[] = "\x02\0\0\0ab\0\0\0\0\x03\0\0\0c\0d";
    const size_t n = sizeof(data) - 1;
    int64_t dims[] = {3};
    (void)state;
    for (size_t all = 0; all <= n; all++) {
        for (size_t a = 0; a <= all; a++) {
            for (size_t b = a; b <= all; b++) {
                struct piece pieces[] = {{data, a}, {data + a, b - a}, {data + b, all - b}};
                struct tensor tensor = {.name = STR("t"),
                                        .datatype = DT_BYTES,
                                        .shape = {dims, 1},
                                        .pieces = pieces,
                                        .n_pieces = 3,
                                        .n_bytes = all};
                struct arena *arena = arena_new(NULL, 0);
                struct error err;
                int64_t copied = metric_read(METRIC_COPIED_BYTES_TOTAL);
                assert_int_equal(check_one(arena, &tensor, &err), all == n ? ST_OK : ST_BAD_DATA);
                assert_int_equal(metric_read(METRIC_COPIED_BYTES_TOTAL) - copied, all);
                assert_int_equal(tensor.n_pieces, 1);
                assert_int_equal(tensor.pieces[0].n_bytes, all);
                assert_memory_equal(tensor.pieces[0].data, data, all);
                arena_free(arena);
            }
        }
    }
    struct piece whole = {data, n};
    struct tensor tensor = {.name = STR("t"),
                            .datatype = DT_BYTES,
                            .shape = {dims, 1},
                            .pieces = &whole,
                            .n_pieces = 1,
                            .n_bytes = n};
    struct arena *arena = arena_new(NULL, 0);
    int64_t copied = metric_read(METRIC_COPIED_BYTES_TOTAL);
    assert_int_equal(check_one(arena, &tensor, NULL), ST_OK);
    assert_int_equal(metric_read(METRIC_COPIED_BYTES_TOTAL), copied);
    assert_ptr_equal(tensor.pieces, &whole);
    arena_free(arena);
}

static void infer_check_bytes_out_of_memory_is_reported(void **state) {
    size_t n = 100004;
    unsigned char *data = calloc(1, n);
    int64_t dims[] = {1};
    (void)state;
    assert_non_null(data);
    bytes_encode_length(data, 100000);
    struct piece pieces[] = {{data, 7}, {data + 7, n - 7}};
    struct tensor tensor = {.name = STR("t"),
                            .datatype = DT_BYTES,
                            .shape = {dims, 1},
                            .pieces = pieces,
                            .n_pieces = 2,
                            .n_bytes = n};
    struct arena *arena = arena_new(NULL, 50000);
    struct error err;
    assert_int_equal(check_one(arena, &tensor, &err), ST_NO_MEMORY);
    arena_free(arena);
    free(data);
}

static void infer_check_rank_over_limit_is_rejected(void **state) {
    static const unsigned char byte[1];
    int64_t dims[SHAPE_MAX_RANK + 1], wild[SHAPE_MAX_RANK + 1];
    struct piece piece = {byte, 1};
    (void)state;
    for (size_t i = 0; i <= SHAPE_MAX_RANK; i++) {
        dims[i] = 1;
        wild[i] = -1;
    }
    for (size_t rank = SHAPE_MAX_RANK; rank <= SHAPE_MAX_RANK + 1; rank++) {
        struct tensor_spec spec = {.name = STR("x"), .datatype = DT_UINT8, .shape = {wild, rank}};
        struct model_spec model = {.name = STR("m"), .inputs = &spec, .n_inputs = 1};
        struct infer_input input = {.tensor = {.name = STR("x"),
                                               .datatype = DT_UINT8,
                                               .shape = {dims, rank},
                                               .pieces = &piece,
                                               .n_pieces = 1,
                                               .n_bytes = 1}};
        struct infer_request request = {.inputs = &input, .n_inputs = 1};
        struct error err = {.text = ""};
        enum status status = infer_check(&request, &model, &err);
        assert_int_equal(status, rank <= SHAPE_MAX_RANK ? ST_OK : ST_BAD_SHAPE);
        assert_string_equal(err.text, rank <= SHAPE_MAX_RANK
                                          ? ""
                                          : "input \"x\": expected at most 64 dimensions, got 65");
    }
}

/* More inputs and outputs than fit a word: in reverse order, then with one missing, then one
 * twice. */
static void infer_check_many_tensors_are_matched(void **state) {
    enum { N = 200 };
    static const unsigned char byte[1];
    static char names[N][8];
    struct tensor_spec specs[N];
    struct infer_input inputs[N];
    struct infer_requested_output wanted[N];
    struct piece piece = {byte, 1};
    struct error err;
    (void)state;
    memset(inputs, 0, sizeof(inputs));
    memset(wanted, 0, sizeof(wanted));
    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "n%zu", i);
        specs[i] = (struct tensor_spec){.name = str_of(names[i]), .datatype = DT_INT8};
        size_t at = N - 1 - i;
        inputs[at].tensor = (struct tensor){.name = str_of(names[i]),
                                            .datatype = DT_INT8,
                                            .pieces = &piece,
                                            .n_pieces = 1,
                                            .n_bytes = 1};
        wanted[at].name = str_of(names[i]);
    }
    struct model_spec model = {
        .name = STR("m"), .inputs = specs, .n_inputs = N, .outputs = specs, .n_outputs = N};
    struct infer_request request = {.arena = arena_new(NULL, 0),
                                    .inputs = inputs,
                                    .n_inputs = N,
                                    .wanted = wanted,
                                    .n_wanted = N};
    assert_int_equal(infer_check(&request, &model, &err), ST_OK);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(inputs[i].spec, N - 1 - i);
        assert_int_equal(wanted[i].spec, N - 1 - i);
    }
    request.n_inputs = N - 1;
    assert_int_equal(infer_check(&request, &model, &err), ST_BAD_INPUTS);
    assert_non_null(strstr(err.text, "but missing required input(s) ['n0']. Please"));
    request.n_inputs = 0; /* more names than a message holds */
    assert_int_equal(infer_check(&request, &model, &err), ST_BAD_INPUTS);
    assert_non_null(strstr(err.text, "Got input(s) [], but missing required input(s) ['n0','n1',"));
    assert_non_null(strstr(err.text, "',…]. Please provide all required input(s)."));
    request.n_inputs = N;
    inputs[N - 1].tensor.name = STR("n130");
    assert_int_equal(infer_check(&request, &model, &err), ST_BAD_INPUTS);
    assert_string_equal(err.text, "input 'n130' already exists in request");
    inputs[N - 1].tensor.name = STR("n0");
    wanted[N - 1].name = STR("n199");
    assert_int_equal(infer_check(&request, &model, &err), ST_BAD_INPUTS);
    assert_string_equal(err.text, "output 'n199' already exists in request");
    arena_free(request.arena);
}

/* A long name of a peer must not push the rest out of the message. */
static void infer_check_hostile_name_is_cut_in_error(void **state) {
    char *name = malloc(65536);
    struct error err;
    (void)state;
    assert_non_null(name);
    memset(name, 'n', 65536);
    struct infer_input input = {.tensor = {.name = {name, 65536}, .datatype = DT_FP32}};
    struct infer_request request = {.inputs = &input, .n_inputs = 1};
    assert_int_equal(infer_check(&request, &batching, &err), ST_BAD_INPUTS);
    assert_non_null(
        strstr(err.text, "nnn…' for model 'batching', which has inputs \"x\", \"mask\""));
    input.tensor.name = STR("x\0\r\n\xff");
    assert_int_equal(infer_check(&request, &batching, &err), ST_BAD_INPUTS);
    assert_ptr_equal(strstr(err.text, "unexpected inference input 'x\?\?\?\?' for model"),
                     err.text);
    free(name);
}

static void infer_check_model_without_tensors(void **state) {
    struct model_spec model = {.name = STR("none")};
    struct infer_input input = {.tensor = {.name = STR("x"), .datatype = DT_FP32}};
    struct infer_requested_output wanted = {.name = STR("y")};
    struct infer_request request = {.inputs = &input, .wanted = &wanted};
    struct error err;
    (void)state;
    assert_int_equal(infer_check(&request, &model, &err), ST_OK);
    assert_int_equal(request.batch, 1);
    request.n_wanted = 1;
    assert_int_equal(infer_check(&request, &model, &err), ST_BAD_INPUTS);
    assert_string_equal(err.text,
                        "unexpected inference output 'y' for model 'none', which has no outputs");
    request.n_inputs = 1;
    assert_int_equal(infer_check(&request, &model, &err), ST_BAD_INPUTS);
    assert_string_equal(err.text,
                        "unexpected inference input 'x' for model 'none', which has no inputs");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_check_rows_match_expected_status),
        cmocka_unit_test(infer_check_checked_elements_are_trusted),
        cmocka_unit_test(infer_check_bool_above_1_is_rejected),
        cmocka_unit_test(infer_check_bytes_split_anywhere_are_checked),
        cmocka_unit_test(infer_check_bytes_out_of_memory_is_reported),
        cmocka_unit_test(infer_check_rank_over_limit_is_rejected),
        cmocka_unit_test(infer_check_many_tensors_are_matched),
        cmocka_unit_test(infer_check_hostile_name_is_cut_in_error),
        cmocka_unit_test(infer_check_model_without_tensors),
    };
    return cmocka_run_group_tests_name("core/tensor/infer_check", tests, NULL, NULL);
}

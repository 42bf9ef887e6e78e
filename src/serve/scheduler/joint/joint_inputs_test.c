/* Inputs of joint requests, with the numbers worked out by hand. */
#include "serve/scheduler/joint/joint_inputs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"

/* ---- requests -------------------------------------------------------------------------------- */

enum { MAX_REQUESTS = 4, MAX_INPUTS = 3, MAX_VALUES = 16, MAX_PIECES = 3 };

/* One input of FP32 or INT64, in up to MAX_PIECES pieces. */
struct sent {
    int64_t dims[3];
    size_t rank;
    const void *data;
    size_t n_bytes;
    size_t pieces[MAX_PIECES]; /* bytes of each; none: one piece */
};

static sluice_input make_input(uint32_t index, sluice_datatype datatype, const struct sent *sent) {
    size_t at = 0, n = 0;
    sluice_piece *pieces = arena_calloc(arena, MAX_PIECES, sizeof(*pieces));
    for (; n < MAX_PIECES && sent->pieces[n] > 0; n++) {
        pieces[n] = (sluice_piece){(const char *)sent->data + at, sent->pieces[n]};
        at += sent->pieces[n];
    }
    if (n == 0 && sent->data && sent->n_bytes > 0) {
        pieces[n++] = (sluice_piece){sent->data, sent->n_bytes};
    }
    return (sluice_input){.index = index,
                          .datatype = datatype,
                          .name = "x",
                          .dims = sent->dims,
                          .rank = sent->rank,
                          .n_bytes = sent->n_bytes,
                          .pieces = pieces,
                          .n_pieces = n};
}

static const sluice_request *const *requests_of(const struct sent *sents, size_t n,
                                                sluice_datatype datatype) {
    sluice_request *requests = arena_calloc(arena, n, sizeof(*requests));
    const sluice_request **all = arena_calloc(arena, n, sizeof(sluice_request *));
    for (size_t i = 0; i < n; i++) {
        sluice_input *input = arena_calloc(arena, 1, sizeof(*input));
        *input = make_input(0, datatype, &sents[i]);
        requests[i] =
            (sluice_request){.inputs = input, .n_inputs = 1, .batch = (uint64_t)sents[i].dims[0]};
        all[i] = &requests[i];
    }
    return all;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static const int64_t FREE[] = {-1, -1}, FREE_2[] = {-1, -1, -1}, FREE_FIRST[] = {-1, -1, 2};

static struct layout_input ragged = {.kind = INPUT_RAGGED, .shape = {FREE, 2}};
static struct layout_input padded = {.kind = INPUT_PADDED, .shape = {FREE, 2}};

static struct error err;
static sluice_input *out;
static size_t n_out;

static void make(const struct batch_layout *layout, const sluice_request *const *requests,
                 size_t n) {
    if (joint_inputs_make(arena, layout, requests, n, &out, &n_out, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
}

static void assert_dims(const sluice_input *input, const char *expected) {
    char text[SHAPE_TEXT_BYTES];
    assert_string_equal(shape_print((struct shape){input->dims, input->rank}, text), expected);
}

static void assert_floats(const sluice_input *input, const float *values, size_t n) {
    assert_int_equal(input->n_bytes, n * sizeof(*values));
    assert_int_equal(input->n_pieces, n > 0 ? 1 : 0);
    if (n > 0) {
        assert_memory_equal(input->pieces[0].data, values, n * sizeof(*values));
    }
}

/* The requests of the reference's test: 2, 4, 1 and 3 elements. */
static const float TWOS[] = {2, 2}, FOURS[] = {4, 4, 4, 4}, ONES[] = {1}, THREES[] = {3, 3, 3};
static const struct sent FOUR[] = {
    {{1, 2}, 2, TWOS, sizeof(TWOS), {0}},
    {{1, 4}, 2, FOURS, sizeof(FOURS), {0}},
    {{1, 1}, 2, ONES, sizeof(ONES), {0}},
    {{1, 3}, 2, THREES, sizeof(THREES), {4, 8}},
};

/* ---- ragged ---------------------------------------------------------------------------------- */

static void ragged_inputs_become_one_dimension(void **state) {
    (void)state;
    static const float all[] = {2, 2, 4, 4, 4, 4, 1, 3, 3, 3};
    const struct batch_layout layout = {.inputs = &ragged, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(FOUR, 4, SLUICE_FP32), 4);
    assert_int_equal(n_out, 1);
    assert_dims(&out[0], "[10]");
    assert_floats(&out[0], all, 10);
}

static void ragged_request_alone_is_not_copied(void **state) {
    (void)state;
    const struct batch_layout layout = {.inputs = &ragged, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(&FOUR[3], 1, SLUICE_FP32), 1);
    assert_dims(&out[0], "[3]");
    assert_int_equal(out[0].n_pieces, 2);
    assert_ptr_equal(out[0].pieces[0].data, THREES);
}

static void ragged_empty_requests_have_no_elements(void **state) {
    (void)state;
    static const struct sent sents[] = {
        {{1, 0}, 2, NULL, 0, {0}}, {{1, 2}, 2, TWOS, sizeof(TWOS), {0}}, {{0, 7}, 2, NULL, 0, {0}}};
    const struct batch_layout layout = {.inputs = &ragged, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(sents, 3, SLUICE_FP32), 3);
    assert_dims(&out[0], "[2]");
    assert_floats(&out[0], TWOS, 2);
    make(&layout, requests_of(sents, 1, SLUICE_FP32), 1);
    assert_dims(&out[0], "[0]");
    assert_int_equal(out[0].n_bytes, 0);
}

static void ragged_texts_keep_their_frames(void **state) {
    (void)state;
    static const char first[] = "\x01\0\0\0a\0\0\0\0", second[] = "\x02\0\0\0bc";
    static const struct sent sents[] = {{{1, 2}, 2, first, sizeof(first) - 1, {5, 4}},
                                        {{1, 1}, 2, second, sizeof(second) - 1, {0}}};
    const struct batch_layout layout = {.inputs = &ragged, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(sents, 2, SLUICE_BYTES), 2);
    assert_dims(&out[0], "[3]");
    assert_memory_equal(out[0].pieces[0].data, "\x01\0\0\0a\0\0\0\0\x02\0\0\0bc", out[0].n_bytes);
    assert_int_equal(out[0].n_bytes, 15);
}

/* ---- batch_input ----------------------------------------------------------------------------- */

static void made_values_of_every_kind(void **state) {
    (void)state;
    static const struct {
        enum model_batch_input_kind kind;
        const char *dims;
        float values[MAX_VALUES];
        size_t n;
    } rows[] = {
        {BATCH_ELEMENT_COUNT, "[4]", {2, 4, 1, 3}, 4},
        {BATCH_ACCUMULATED_ELEMENT_COUNT, "[4]", {2, 6, 7, 10}, 4},
        {BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO, "[5]", {0, 2, 6, 7, 10}, 5},
        {BATCH_MAX_ELEMENT_COUNT_AS_SHAPE, "[4]", {0, 0, 0, 0}, 4},
        {BATCH_ITEM_SHAPE, "[4,1]", {2, 4, 1, 3}, 4},
        {BATCH_ITEM_SHAPE_FLATTEN, "[4]", {2, 4, 1, 3}, 4},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct layout_made made = {
            .index = 1, .kind = rows[i].kind, .datatype = DT_FP32, .name = "made"};
        const struct batch_layout layout = {
            .inputs = &ragged, .n_inputs = 1, .made = &made, .n_made = 1, .pad_multiple = 1};
        make(&layout, requests_of(FOUR, 4, SLUICE_FP32), 4);
        assert_int_equal(n_out, 2);
        assert_dims(&out[1], rows[i].dims);
        assert_floats(&out[1], rows[i].values, rows[i].n);
    }
}

/* Two rows of [3,1] and one of [2,2]: the example of the reference's documentation. */
static void made_shapes_are_of_each_row(void **state) {
    (void)state;
    static const float x[6] = {0};
    static const int32_t shapes[] = {3, 1, 3, 1, 2, 2};
    static const struct sent sents[] = {{{2, 3, 1}, 3, x, 24, {0}}, {{1, 2, 2}, 3, x, 16, {0}}};
    static const struct layout_input input = {.kind = INPUT_RAGGED, .shape = {FREE_2, 3}};
    struct layout_made made[] = {
        {.index = 1, .kind = BATCH_ITEM_SHAPE, .datatype = DT_INT32, .name = "shapes"},
        {.index = 2, .kind = BATCH_ITEM_SHAPE_FLATTEN, .datatype = DT_INT32, .name = "flat"},
        {.index = 3, .kind = BATCH_ELEMENT_COUNT, .datatype = DT_INT32, .name = "count"}};
    const struct batch_layout layout = {
        .inputs = &input, .n_inputs = 1, .made = made, .n_made = 3, .pad_multiple = 1};
    make(&layout, requests_of(sents, 2, SLUICE_FP32), 2);
    assert_dims(&out[0], "[10]");
    assert_dims(&out[1], "[3,2]");
    assert_memory_equal(out[1].pieces[0].data, shapes, sizeof(shapes));
    assert_dims(&out[2], "[6]");
    assert_memory_equal(out[2].pieces[0].data, shapes, sizeof(shapes));
    assert_dims(&out[3], "[2]"); /* of a request, its rows together */
    assert_memory_equal(out[3].pieces[0].data, ((int32_t[]){6, 4}), 8);
}

static void made_inputs_are_in_the_models_order(void **state) {
    (void)state;
    struct layout_input inputs[2] = {{0}, ragged};
    struct layout_made made = {
        .index = 0, .kind = BATCH_ELEMENT_COUNT, .datatype = DT_INT32, .name = "n", .source = 1};
    const struct batch_layout layout = {
        .inputs = inputs, .n_inputs = 2, .made = &made, .n_made = 1, .pad_multiple = 1};
    const sluice_request *const *requests = requests_of(FOUR, 2, SLUICE_FP32);
    for (size_t i = 0; i < 2; i++) {
        ((sluice_input *)(uintptr_t)requests[i]->inputs)->index = 1;
    }
    make(&layout, requests, 2);
    assert_int_equal(out[0].index, 0);
    assert_string_equal(out[0].name, "n");
    assert_int_equal(out[1].index, 1);
}

static void made_value_beyond_datatype_is_refused(void **state) {
    (void)state;
    static const struct sent sents[] = {{{1, INT64_C(1) << 40, 0}, 3, NULL, 0, {0}}};
    static const struct layout_input input = {.kind = INPUT_RAGGED, .shape = {FREE_2, 3}};
    struct layout_made made = {
        .index = 1, .kind = BATCH_ITEM_SHAPE, .datatype = DT_INT32, .name = "shapes"};
    const struct batch_layout layout = {
        .inputs = &input, .n_inputs = 1, .made = &made, .n_made = 1, .pad_multiple = 1};
    assert_int_equal(joint_inputs_make(arena, &layout, requests_of(sents, 1, SLUICE_FP32), 1, &out,
                                       &n_out, &err),
                     ST_BAD_SHAPE);
    assert_non_null(strstr(err.text, "input \"shapes\" of a batch would contain 1099511627776"));
}

/* ---- padding --------------------------------------------------------------------------------- */

static void padded_rows_are_as_long_as_the_longest(void **state) {
    (void)state;
    static const float all[] = {2, 2, 9, 9, 4, 4, 4, 4, 1, 9, 9, 9, 3, 3, 3, 9};
    struct layout_input input = padded;
    float nine = 9;
    memcpy(input.pad, &nine, sizeof(nine));
    const struct batch_layout layout = {.inputs = &input, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(FOUR, 4, SLUICE_FP32), 4);
    assert_dims(&out[0], "[4,4]");
    assert_floats(&out[0], all, 16);
}

static void padded_lengths_are_multiples(void **state) {
    (void)state;
    static const float all[] = {2, 2, 0};
    const struct batch_layout layout = {.inputs = &padded, .n_inputs = 1, .pad_multiple = 3};
    make(&layout, requests_of(FOUR, 1, SLUICE_FP32), 1);
    assert_dims(&out[0], "[1,3]");
    assert_floats(&out[0], all, 3);
    make(&layout, requests_of(&FOUR[3], 1, SLUICE_FP32), 1);
    assert_dims(&out[0], "[1,3]");
    assert_ptr_equal(out[0].pieces[0].data, THREES); /* long enough: not copied */
}

static void padded_rows_of_several_dimensions(void **state) {
    (void)state;
    static const float wide[] = {1, 2, 3, 4, 5, 6}, high[] = {7, 8};
    static const float all[] = {1, 2, 3, 4, 5, 6, 7, 0, 0, 8, 0, 0};
    static const struct sent sents[] = {{{1, 2, 3}, 3, wide, sizeof(wide), {4, 16, 4}},
                                        {{1, 2, 1}, 3, high, sizeof(high), {0}}};
    static const struct layout_input both = {.kind = INPUT_PADDED, .shape = {FREE_2, 3}};
    const struct batch_layout layout = {.inputs = &both, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(sents, 2, SLUICE_FP32), 2);
    assert_dims(&out[0], "[2,2,3]");
    assert_floats(&out[0], all, 12);
}

static void padded_rows_of_vectors_with_two_rows_in_a_request(void **state) {
    (void)state;
    static const float two[] = {1, 2, 3, 4}, longer[] = {5, 6, 7, 8};
    static const float all[] = {1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 7, 8};
    static const struct sent sents[] = {{{2, 1, 2}, 3, two, sizeof(two), {0}},
                                        {{1, 2, 2}, 3, longer, sizeof(longer), {0}}};
    static const struct layout_input first = {.kind = INPUT_PADDED, .shape = {FREE_FIRST, 3}};
    const struct batch_layout layout = {.inputs = &first, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(sents, 2, SLUICE_FP32), 2);
    assert_dims(&out[0], "[3,2,2]");
    assert_floats(&out[0], all, 12);
}

/* A request without rows does not make those of others longer. */
static void padded_empty_rows_and_no_rows(void **state) {
    (void)state;
    static const float all[] = {0, 0, 2, 2};
    static const struct sent sents[] = {{{1, 0}, 2, NULL, 0, {0}},
                                        {{1, 2}, 2, TWOS, sizeof(TWOS), {0}},
                                        {{0, INT64_MAX}, 2, NULL, 0, {0}}};
    const struct batch_layout layout = {.inputs = &padded, .n_inputs = 1, .pad_multiple = 1};
    make(&layout, requests_of(sents, 3, SLUICE_FP32), 3);
    assert_dims(&out[0], "[2,2]");
    assert_floats(&out[0], all, 4);
    make(&layout, requests_of(&sents[2], 1, SLUICE_FP32), 1);
    assert_dims(&out[0], "[0,9223372036854775807]");
    make(&layout, requests_of(sents, 1, SLUICE_FP32), 1);
    assert_dims(&out[0], "[1,0]");
}

static void padding_far_beyond_what_was_sent_is_refused(void **state) {
    (void)state;
    static const struct sent sents[] = {{{1, INT64_MAX, 0}, 3, NULL, 0, {0}},
                                        {{1, 1, 1}, 3, ONES, sizeof(ONES), {0}}};
    static const struct sent large[] = {{{1, 1, 1 << 21}, 3, NULL, 0, {0}},
                                        {{1, 4, 1}, 3, FOURS, sizeof(FOURS), {0}}};
    static const struct layout_input both = {.kind = INPUT_PADDED, .shape = {FREE_2, 3}};
    const struct batch_layout layout = {.inputs = &both, .n_inputs = 1, .pad_multiple = 1};
    assert_int_equal(joint_inputs_make(arena, &layout, requests_of(sents, 2, SLUICE_FP32), 2, &out,
                                       &n_out, &err),
                     ST_BAD_SHAPE);
    assert_int_equal(joint_inputs_make(arena, &layout, requests_of(large, 2, SLUICE_FP32), 2, &out,
                                       &n_out, &err),
                     ST_BAD_SHAPE);
    assert_non_null(strstr(err.text, "67108864 bytes"));
    const struct batch_layout rounded = {.inputs = &both, .n_inputs = 1, .pad_multiple = INT32_MAX};
    assert_int_equal(joint_inputs_make(arena, &rounded, requests_of(&sents[1], 1, SLUICE_FP32), 1,
                                       &out, &n_out, &err),
                     ST_BAD_SHAPE);
}

/* ---- masks and lengths ----------------------------------------------------------------------- */

/* ids is input 1, its mask input 0, its length input 2. */
static const int64_t ONE[] = {-1, 1};
static const struct layout_input ENCODER[] = {
    {.kind = INPUT_PADDED, .shape = {FREE, 2}, .fill = FILL_MASK, .source = 1},
    {.kind = INPUT_PADDED, .shape = {FREE, 2}},
    {.kind = INPUT_ROWS, .shape = {ONE, 2}, .fill = FILL_LENGTH, .source = 1},
};
static const struct batch_layout ENCODER_LAYOUT = {
    .inputs = ENCODER, .n_inputs = 3, .pad_multiple = 1};
static const struct tensor_spec SPECS[] = {
    {.name = {"mask", 4}, .datatype = DT_INT64, .shape = {FREE, 2}},
    {.name = {"ids", 3}, .datatype = DT_FP32, .shape = {FREE, 2}},
    {.name = {"len", 3}, .datatype = DT_INT32, .shape = {ONE, 2}}};
static const struct plan_tensor PLANS[] = {{.index = 0}, {.index = 1}, {.index = 2}};

/* With the mask that the request sends, if any. */
static const sluice_request *encoder_request(const struct sent *ids, const struct sent *mask) {
    const struct model_plan plan = {
        .spec = {.inputs = SPECS, .n_inputs = 3}, .inputs = PLANS, .layout = &ENCODER_LAYOUT};
    sluice_request *request = arena_calloc(arena, 1, sizeof(*request));
    sluice_input *inputs = arena_calloc(arena, MAX_INPUTS, sizeof(*inputs));
    if (mask) {
        inputs[request->n_inputs++] = make_input(0, SLUICE_INT64, mask);
    }
    inputs[request->n_inputs++] = make_input(1, SLUICE_FP32, ids);
    assert_true(joint_inputs_describe(arena, &plan, inputs, &request->n_inputs));
    request->inputs = inputs;
    request->batch = (uint64_t)ids->dims[0];
    return request;
}

static void mask_and_length_are_made_where_left_out(void **state) {
    (void)state;
    static const int64_t own[] = {1, 0, 1, 1};
    static const struct sent mask = {{1, 4}, 2, own, sizeof(own), {0}};
    static const int64_t masks[] = {1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0};
    static const int32_t lengths[] = {2, 4, 1};
    const sluice_request *requests[] = {encoder_request(&FOUR[0], NULL),
                                        encoder_request(&FOUR[1], &mask),
                                        encoder_request(&FOUR[2], NULL)};
    assert_int_equal(requests[0]->n_inputs, 3);
    make(&ENCODER_LAYOUT, requests, 3);
    assert_dims(&out[0], "[3,4]");
    assert_memory_equal(out[0].pieces[0].data, masks, sizeof(masks));
    assert_dims(&out[2], "[3,1]");
    assert_memory_equal(out[2].pieces[0].data, lengths, sizeof(lengths));
    make(&ENCODER_LAYOUT, requests, 1);
    assert_dims(&out[0], "[1,2]");
    assert_memory_equal(out[0].pieces[0].data, masks, 2 * sizeof(masks[0]));
}

static void mask_of_empty_row_is_empty(void **state) {
    (void)state;
    static const struct sent empty = {{1, 0}, 2, NULL, 0, {0}};
    static const int64_t masks[] = {0, 0, 1, 1};
    const sluice_request *requests[] = {encoder_request(&empty, NULL),
                                        encoder_request(&FOUR[0], NULL)};
    make(&ENCODER_LAYOUT, requests, 2);
    assert_memory_equal(out[0].pieces[0].data, masks, sizeof(masks));
    make(&ENCODER_LAYOUT, requests, 1);
    assert_dims(&out[0], "[1,0]");
    assert_memory_equal(out[2].pieces[0].data, ((int32_t[]){0}), 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(ragged_inputs_become_one_dimension),
        TEST(ragged_request_alone_is_not_copied),
        TEST(ragged_empty_requests_have_no_elements),
        TEST(ragged_texts_keep_their_frames),
        TEST(made_values_of_every_kind),
        TEST(made_shapes_are_of_each_row),
        TEST(made_inputs_are_in_the_models_order),
        TEST(made_value_beyond_datatype_is_refused),
        TEST(padded_rows_are_as_long_as_the_longest),
        TEST(padded_lengths_are_multiples),
        TEST(padded_rows_of_several_dimensions),
        TEST(padded_rows_of_vectors_with_two_rows_in_a_request),
        TEST(padded_empty_rows_and_no_rows),
        TEST(padding_far_beyond_what_was_sent_is_refused),
        TEST(mask_and_length_are_made_where_left_out),
        TEST(mask_of_empty_row_is_empty),
    };
    return cmocka_run_group_tests_name("serve/scheduler/joint_inputs", tests, NULL, NULL);
}

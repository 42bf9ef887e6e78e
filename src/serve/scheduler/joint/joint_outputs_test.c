/* Outputs of joint requests, divided: values worked out by hand. */
#include "serve/scheduler/joint/joint_outputs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"
#include "core/base/metric/metric.h"

enum { MAX_REQUESTS = 3 };

/* Requests of one input of shape [rows, length], which was padded to `joint_length`. */
struct sizes {
    int64_t rows, length;
};

struct batch {
    int64_t dims[MAX_REQUESTS][2], joint_dims[2];
    sluice_input inputs[MAX_REQUESTS], joint_input;
    sluice_request requests[MAX_REQUESTS], joint;
    const sluice_request *all[MAX_REQUESTS];
    size_t n;
};

static struct batch batch;

static void batch_make(const struct sizes *sizes, size_t n, int64_t joint_length) {
    batch = (struct batch){.n = n, .joint_dims = {0, joint_length}};
    for (size_t i = 0; i < n; i++) {
        batch.dims[i][0] = sizes[i].rows;
        batch.dims[i][1] = sizes[i].length;
        batch.inputs[i] = (sluice_input){.name = "ids", .dims = batch.dims[i], .rank = 2};
        batch.requests[i] = (sluice_request){
            .inputs = &batch.inputs[i], .n_inputs = 1, .batch = (uint64_t)sizes[i].rows};
        batch.all[i] = &batch.requests[i];
        batch.joint_dims[0] += sizes[i].rows;
    }
    batch.joint_input = (sluice_input){.name = "ids", .dims = batch.joint_dims, .rank = 2};
    batch.joint = (sluice_request){.inputs = &batch.joint_input, .n_inputs = 1};
}

static const int64_t FREE[] = {-1, -1}, WIDE[] = {-1, -1, 2}, SQUARE[] = {-1, -1, -1};
static const struct layout_input IDS = {.kind = INPUT_PADDED, .shape = {FREE, 2}};

static sluice_output *parts;
static struct error err;

static enum status divide(struct layout_output target, const int64_t *dims, size_t rank,
                          sluice_datatype datatype, const void *data, size_t n_bytes) {
    const struct batch_layout layout = {
        .inputs = &IDS, .n_inputs = 1, .outputs = &target, .n_outputs = 1};
    const sluice_output output = {
        .datatype = datatype, .dims = dims, .rank = rank, .data = data, .n_bytes = n_bytes};
    const sluice_response response = {.outputs = &output, .n_outputs = 1};
    target.name = "y";
    return joint_outputs_divide(arena, &layout, &batch.joint, batch.all, batch.n, &response, &parts,
                                &err);
}

static void assert_part(size_t i, const char *dims, const float *values, size_t n) {
    char text[SHAPE_TEXT_BYTES];
    assert_string_equal(shape_print((struct shape){parts[i].dims, parts[i].rank}, text), dims);
    assert_int_equal(parts[i].n_bytes, n * sizeof(*values));
    if (n > 0) {
        assert_memory_equal(parts[i].data, values, n * sizeof(*values));
    }
}

static void assert_fails(enum status st, const char *says) {
    assert_int_equal(st, ST_BACKEND_FAILED);
    if (!strstr(err.text, says)) {
        fail_msg("\"%s\" lacks \"%s\"", err.text, says);
    }
}

static const float TEN[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

/* ---- rows ------------------------------------------------------------------------------------ */

static const struct layout_output ROWS = {.kind = OUTPUT_ROWS};

static void rows_follow_each_other(void **state) {
    (void)state;
    batch_make((struct sizes[]){{2, 1}, {0, 1}, {1, 1}}, 3, 1);
    assert_int_equal(divide(ROWS, (int64_t[]){3, 2}, 2, SLUICE_FP32, TEN, 24), ST_OK);
    assert_part(0, "[2,2]", TEN, 4);
    assert_part(1, "[0,2]", TEN, 0);
    assert_part(2, "[1,2]", TEN + 4, 2);
    assert_ptr_equal(parts[2].data, TEN + 4); /* not copied */
}

static void rows_of_texts_are_found_by_their_lengths(void **state) {
    (void)state;
    static const char texts[] = "\x01\0\0\0a\0\0\0\0\x02\0\0\0bc";
    batch_make((struct sizes[]){{2, 1}, {1, 1}}, 2, 1);
    assert_int_equal(divide(ROWS, (int64_t[]){3}, 1, SLUICE_BYTES, texts, 15), ST_OK);
    assert_int_equal(parts[0].n_bytes, 9);
    assert_int_equal(parts[1].n_bytes, 6);
    assert_ptr_equal(parts[1].data, texts + 9);
}

static void rows_in_wrong_number_are_refused_unless_alone(void **state) {
    (void)state;
    batch_make((struct sizes[]){{1, 1}, {1, 1}}, 2, 1);
    assert_fails(divide(ROWS, (int64_t[]){3}, 1, SLUICE_FP32, TEN, 12),
                 "output \"y\" of a batch: expected 2 rows, got 3");
    assert_fails(divide(ROWS, NULL, 0, SLUICE_FP32, TEN, 4), "expected 2 rows, got 0");
    batch_make((struct sizes[]){{1, 1}}, 1, 1);
    assert_int_equal(divide(ROWS, (int64_t[]){3}, 1, SLUICE_FP32, TEN, 12), ST_OK);
    assert_part(0, "[3]", TEN, 3);
}

/* ---- scattered ------------------------------------------------------------------------------- */

static const struct layout_output SCATTERED = {.kind = OUTPUT_SCATTERED, .shape = {FREE, 2}};

static void scattered_elements_have_the_shapes_of_the_source(void **state) {
    (void)state;
    batch_make((struct sizes[]){{1, 2}, {2, 4}, {1, 0}}, 3, 4);
    assert_int_equal(divide(SCATTERED, (int64_t[]){10}, 1, SLUICE_FP32, TEN, 40), ST_OK);
    assert_part(0, "[1,2]", TEN, 2);
    assert_part(1, "[2,4]", TEN + 2, 8);
    assert_part(2, "[1,0]", TEN, 0);
    batch_make((struct sizes[]){{1, 3}}, 1, 3);
    assert_int_equal(divide(SCATTERED, (int64_t[]){3}, 1, SLUICE_FP32, TEN, 12), ST_OK);
    assert_part(0, "[1,3]", TEN, 3);
}

static void scattered_elements_in_wrong_number_are_refused(void **state) {
    (void)state;
    batch_make((struct sizes[]){{1, 2}, {1, 4}}, 2, 4);
    assert_fails(divide(SCATTERED, (int64_t[]){5}, 1, SLUICE_FP32, TEN, 20),
                 "fewer elements than the shapes of input \"ids\"");
    assert_fails(divide(SCATTERED, (int64_t[]){7}, 1, SLUICE_FP32, TEN, 28), "more elements");
    assert_fails(divide(SCATTERED, (int64_t[]){0}, 1, SLUICE_FP32, NULL, 0), "fewer elements");
}

/* ---- cut ------------------------------------------------------------------------------------- */

static void cut_row_is_a_view_of_its_beginning(void **state) {
    (void)state;
    static const struct layout_output target = {.kind = OUTPUT_CUT, .shape = {WIDE, 3}};
    static const float padded[] = {1, 2, 0, 0, 3, 4, 5, 6};
    int64_t copied = metric_read(METRIC_COPIED_BYTES_TOTAL);
    batch_make((struct sizes[]){{1, 1}, {1, 2}}, 2, 2);
    assert_int_equal(divide(target, (int64_t[]){2, 2, 2}, 3, SLUICE_FP32, padded, 32), ST_OK);
    assert_part(0, "[1,1,2]", padded, 2);
    assert_part(1, "[1,2,2]", padded + 4, 4);
    assert_ptr_equal(parts[0].data, padded);
    assert_int_equal(metric_read(METRIC_COPIED_BYTES_TOTAL), copied);
}

static void cut_rows_of_one_request_are_copied_together(void **state) {
    (void)state;
    static const struct layout_output target = {.kind = OUTPUT_CUT, .shape = {FREE, 2}};
    static const float padded[] = {1, 2, 0, 3, 4, 0, 5, 6, 7}, two[] = {1, 2, 3, 4};
    int64_t copied = metric_read(METRIC_COPIED_BYTES_TOTAL);
    batch_make((struct sizes[]){{2, 2}, {1, 3}}, 2, 3);
    assert_int_equal(divide(target, (int64_t[]){3, 3}, 2, SLUICE_FP32, padded, 36), ST_OK);
    assert_part(0, "[2,2]", two, 4);
    assert_part(1, "[1,3]", padded + 6, 3);
    assert_int_equal(metric_read(METRIC_COPIED_BYTES_TOTAL), copied + 16);
}

/* As of attention: both dimensions are the length. */
static void cut_in_two_dimensions(void **state) {
    (void)state;
    static const struct layout_output target = {.kind = OUTPUT_CUT, .shape = {SQUARE, 3}};
    static const float padded[] = {1, 2, 0, 3, 4, 0, 0, 0, 0}, small[] = {1, 2, 3, 4};
    batch_make((struct sizes[]){{1, 2}}, 1, 3);
    assert_int_equal(divide(target, (int64_t[]){1, 3, 3}, 3, SLUICE_FP32, padded, 36), ST_OK);
    assert_part(0, "[1,2,2]", small, 4);
    batch_make((struct sizes[]){{1, 0}}, 1, 3);
    assert_int_equal(divide(target, (int64_t[]){1, 3, 3}, 3, SLUICE_FP32, padded, 36), ST_OK);
    assert_part(0, "[1,0,0]", small, 0);
}

static void cut_of_another_length_is_refused(void **state) {
    (void)state;
    static const struct layout_output target = {.kind = OUTPUT_CUT, .shape = {FREE, 2}};
    batch_make((struct sizes[]){{1, 2}, {1, 3}}, 2, 3);
    assert_fails(divide(target, (int64_t[]){2, 2}, 2, SLUICE_FP32, TEN, 16),
                 "dimension 1 is 2, input \"ids\" was padded to 3");
    assert_fails(divide(target, (int64_t[]){2, 3, 1}, 3, SLUICE_FP32, TEN, 24),
                 "expected 2 dimensions, got 3");
    assert_fails(divide(target, (int64_t[]){1, 3}, 2, SLUICE_FP32, TEN, 12),
                 "expected 2 rows, got 1");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(rows_follow_each_other),
        TEST(rows_of_texts_are_found_by_their_lengths),
        TEST(rows_in_wrong_number_are_refused_unless_alone),
        TEST(scattered_elements_have_the_shapes_of_the_source),
        TEST(scattered_elements_in_wrong_number_are_refused),
        TEST(cut_row_is_a_view_of_its_beginning),
        TEST(cut_rows_of_one_request_are_copied_together),
        TEST(cut_in_two_dimensions),
        TEST(cut_of_another_length_is_refused),
    };
    return cmocka_run_group_tests_name("serve/scheduler/joint_outputs", tests, NULL, NULL);
}

/* Weights and resizing against Pillow's results for small pictures, and invariants for all sizes.
 * tests/interop/mip/test_picture_decoding.py compares real pictures. */
#include "serve/picture/resize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { OLD_WIDTH = 5, OLD_HEIGHT = 4, MOST = 7 * 3 * 3 };

static const enum picture_filter filters[] = {PICTURE_NEAREST, PICTURE_BILINEAR, PICTURE_BICUBIC,
                                              PICTURE_LANCZOS};
enum { N_FILTERS = 4 };

static struct weights_axis axis(uint32_t n_in, uint32_t n_out) {
    return (struct weights_axis){.n_in = n_in, .to = (float)n_in, .n_out = n_out};
}

/* ---- vectors --------------------------------------------------------------------------------- */

struct vector {
    enum picture_filter filter;
    uint32_t width, height;
    uint8_t pixels[MOST];
};

/* Pillow's results for pixels (37 x + 91 y + 13 channel) modulo 256: resize to the new width, then
 * to the new height. Up to version 12 that equals one resize to both; version 13 swaps the passes
 * where that is less work, which changes the rounding. */
static const struct vector vectors[] = {
    {PICTURE_NEAREST, 2, 2, {128, 141, 154, 202, 215, 228, 54, 67, 80, 128, 141, 154}},
    {PICTURE_BILINEAR, 2, 2, {92, 105, 118, 141, 154, 132, 105, 118, 131, 105, 118, 119}},
    {PICTURE_BICUBIC, 2, 2, {88, 101, 117, 148, 161, 133, 106, 119, 133, 101, 114, 116}},
    {PICTURE_LANCZOS, 2, 2, {88, 101, 121, 148, 161, 132, 107, 120, 135, 102, 115, 115}},
    {PICTURE_NEAREST, 7, 3, {0,   13,  26,  37,  50,  63,  37,  50,  63,  74,  87,  100, 111,
                             124, 137, 111, 124, 137, 148, 161, 174, 182, 195, 208, 219, 232,
                             245, 219, 232, 245, 0,   13,  26,  37,  50,  63,  37,  50,  63,
                             74,  87,  100, 17,  30,  43,  54,  67,  80,  54,  67,  80,  91,
                             104, 117, 128, 141, 154, 128, 141, 154, 165, 178, 191}},
    {PICTURE_BILINEAR, 7, 3, {27,  40,  53,  48,  61,  74,  75,  88,  101, 101, 114, 127, 127,
                              140, 153, 154, 167, 147, 175, 188, 125, 137, 150, 163, 158, 171,
                              184, 148, 161, 174, 83,  96,  109, 109, 122, 135, 136, 149, 107,
                              157, 170, 55,  66,  79,  92,  87,  100, 113, 92,  105, 118, 64,
                              77,  90,  90,  103, 116, 117, 130, 143, 138, 151, 164}},
    {PICTURE_BICUBIC, 7, 3, {17,  28,  41,  34,  47,  60,  69,  82,  95,  106, 119, 132, 132,
                             145, 164, 162, 175, 154, 182, 195, 127, 143, 157, 170, 173, 186,
                             199, 160, 173, 186, 83,  96,  109, 105, 118, 141, 139, 152, 104,
                             159, 172, 42,  61,  74,  87,  86,  99,  112, 92,  105, 118, 59,
                             72,  85,  83,  96,  108, 115, 128, 148, 135, 148, 176}},
    {PICTURE_LANCZOS, 7, 3, {11,  22,  35,  24,  37,  50,  68,  81,  93,  114, 127, 140, 140,
                             153, 179, 170, 183, 155, 190, 203, 125, 147, 160, 173, 185, 198,
                             211, 165, 178, 190, 83,  96,  109, 96,  109, 144, 143, 156, 103,
                             159, 172, 34,  61,  73,  86,  91,  104, 117, 92,  105, 118, 51,
                             64,  77,  69,  82,  91,  111, 124, 150, 127, 140, 184}},
};

struct result {
    uint32_t n_rows;
    uint32_t row_bytes;
    uint8_t *pixels;
};

static void on_row(void *user, uint32_t y, const uint8_t *rgb) {
    struct result *result = user;
    assert_int_equal(y, result->n_rows); /* in order, each once */
    memcpy(result->pixels + (size_t)y * result->row_bytes, rgb, result->row_bytes);
    result->n_rows++;
}

/* Resizes `old`; the caller frees the result. */
static uint8_t *resized(const uint8_t *old, struct weights_axis x, struct weights_axis y,
                        enum picture_filter filter) {
    struct result result = {.row_bytes = x.n_out * 3,
                            .pixels = malloc((size_t)y.n_out * x.n_out * 3)};
    struct resample_plan plan = {
        .x = x, .y = y, .filter = filter, .n_channels = 3, .row = on_row, .user = &result};
    struct resample *resample = NULL;
    struct error err;
    assert_int_equal(resample_new(&plan, &resample, &err), ST_OK);
    for (uint32_t i = 0; i < y.n_in; i++) {
        resample_row(resample, old + (size_t)i * x.n_in * 3);
    }
    assert_int_equal(result.n_rows, y.n_out);
    resample_free(resample);
    return result.pixels;
}

static void resample_vectors_match_pillow(void **state) {
    (void)state;
    uint8_t old[OLD_WIDTH * OLD_HEIGHT * 3];
    for (int y = 0; y < OLD_HEIGHT; y++) {
        for (int x = 0; x < OLD_WIDTH; x++) {
            for (int c = 0; c < 3; c++) {
                old[(y * OLD_WIDTH + x) * 3 + c] = (uint8_t)(37 * x + 91 * y + 13 * c);
            }
        }
    }
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        const struct vector *v = &vectors[i];
        uint8_t *got =
            resized(old, axis(OLD_WIDTH, v->width), axis(OLD_HEIGHT, v->height), v->filter);
        assert_memory_equal(got, v->pixels, v->width * v->height * 3);
        free(got);
    }
}

/* ---- invariants for all sizes ---------------------------------------------------------------- */

static void check_weights(struct weights_axis of, enum picture_filter filter) {
    struct weights weights;
    assert_true(weights_init(&weights, &of, filter));
    uint32_t first = 0, end = 1;
    for (uint32_t i = 0; i < of.n_out; i++) {
        struct weights_span span = weights.spans[i];
        int64_t sum = 0, magnitude = 0;
        assert_true(span.n >= 1 && span.n <= weights.stride && span.first + span.n <= of.n_in);
        assert_true(span.first >= first && span.first + span.n >= end);
        first = span.first;
        end = span.first + span.n;
        for (uint32_t k = 0; k < span.n; k++) {
            sum += weights_of(&weights, i)[k];
            magnitude += labs(weights_of(&weights, i)[k]);
        }
        /* The weights add up to one, except for rounding. */
        assert_true(labs(sum - (INT64_C(1) << WEIGHT_BITS)) <= span.n);
        /* Ensures that sums fit an int32_t. */
        assert_true(magnitude * 255 + (INT64_C(1) << (WEIGHT_BITS - 1)) <= INT32_MAX);
    }
    weights_fini(&weights);
}

static void weights_of_each_sample_sum_to_one(void **state) {
    (void)state;
    for (int f = 0; f < N_FILTERS; f++) {
        for (uint32_t n_in = 1; n_in <= 40; n_in++) {
            for (uint32_t n_out = 1; n_out <= 90; n_out++) {
                check_weights(axis(n_in, n_out), filters[f]);
            }
        }
        check_weights(axis(65535, 1), filters[f]);
        check_weights(axis(1, 5000), filters[f]);
        check_weights(axis(65535, 224), filters[f]);
        check_weights(axis(65535, 65534), filters[f]);
        struct weights_axis window = {.n_in = 300, .from = 17.25F, .to = 17.75F, .n_out = 64};
        check_weights(window, filters[f]);
    }
}

static void resample_uniform_color_is_unchanged(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 7, 16, 33};
    enum { N = 6 };
    uint8_t old[33 * 33 * 3];
    memset(old, 201, sizeof(old));
    for (int i = 0; i < N * N * N * N; i++) {
        uint32_t width = sizes[i % N], height = sizes[i / N % N];
        uint32_t to_width = sizes[i / (N * N) % N], to_height = sizes[i / (N * N * N)];
        for (int f = 0; f < N_FILTERS; f++) {
            uint8_t *got = resized(old, axis(width, to_width), axis(height, to_height), filters[f]);
            for (uint32_t k = 0; k < to_width * to_height * 3; k++) {
                assert_int_equal(got[k], 201);
            }
            free(got);
        }
    }
}

static void resample_same_size_is_identity(void **state) {
    (void)state;
    uint8_t old[16 * 9 * 3];
    for (size_t i = 0; i < sizeof(old); i++) {
        old[i] = (uint8_t)(i * i * 7);
    }
    for (int f = 0; f < N_FILTERS; f++) {
        uint8_t *got = resized(old, axis(16, 16), axis(9, 9), filters[f]);
        assert_memory_equal(got, old, sizeof(old));
        free(got);
    }
}

/* Rows outside the window are skipped. */
static void resample_window_is_cropped(void **state) {
    (void)state;
    uint8_t old[6 * 6 * 3];
    for (size_t i = 0; i < sizeof(old); i++) {
        old[i] = (uint8_t)i;
    }
    struct weights_axis middle = {.n_in = 6, .from = 2, .to = 4, .n_out = 2};
    for (int f = 0; f < N_FILTERS; f++) {
        uint8_t *got = resized(old, middle, middle, filters[f]);
        for (int y = 0; y < 2; y++) {
            assert_memory_equal(got + y * 6, old + ((2 + y) * 6 + 2) * 3, 6);
        }
        free(got);
    }
}

static void resample_overshoot_is_clamped(void **state) {
    (void)state;
    /* A step overshoots with filters that have negative weights. */
    uint8_t old[8 * 1 * 3];
    memset(old, 0, 12);
    memset(old + 12, 255, 12);
    uint8_t *got = resized(old, axis(8, 64), axis(1, 1), PICTURE_LANCZOS);
    for (int i = 0; i < 32; i++) {
        assert_true(got[i * 3] <= 128 && got[(63 - i) * 3] >= 127);
    }
    free(got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resample_vectors_match_pillow),
        cmocka_unit_test(weights_of_each_sample_sum_to_one),
        cmocka_unit_test(resample_uniform_color_is_unchanged),
        cmocka_unit_test(resample_same_size_is_identity),
        cmocka_unit_test(resample_window_is_cropped),
        cmocka_unit_test(resample_overshoot_is_clamped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Windows and positions as Pillow's ImageOps.fit and ImageOps.pad compute them. */
#include "serve/picture/resize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct row {
    enum picture_fit fit;
    uint32_t width, height, to_width, to_height;
    double left, right, top, bottom; /* in the original */
    uint32_t x, y, n_x, n_y;         /* in the result */
};

static const struct row rows[] = {
    {PICTURE_STRETCH, 640, 480, 224, 224, 0, 640, 0, 480, 0, 0, 224, 224},
    {PICTURE_CROP, 640, 480, 224, 224, 80, 560, 0, 480, 0, 0, 224, 224},
    {PICTURE_CROP, 480, 640, 224, 224, 0, 480, 80, 560, 0, 0, 224, 224},
    {PICTURE_CROP, 100, 100, 20, 10, 0, 100, 25, 75, 0, 0, 20, 10},
    {PICTURE_CROP, 50, 50, 224, 224, 0, 50, 0, 50, 0, 0, 224, 224},
    {PICTURE_CROP, 1, 65535, 2, 1, 0, 1, 32767.25, 32767.75, 0, 0, 2, 1},
    {PICTURE_PAD, 640, 480, 224, 224, 0, 640, 0, 480, 0, 28, 224, 168},
    {PICTURE_PAD, 480, 640, 224, 224, 0, 480, 0, 640, 28, 0, 168, 224},
    {PICTURE_PAD, 100, 100, 28, 28, 0, 100, 0, 100, 0, 0, 28, 28},
    {PICTURE_PAD, 200, 5, 20, 20, 0, 200, 0, 5, 0, 10, 20, 1}, /* 0.5 rows: at least 1 */
    /* 7.5 rounds to 8, 8.5 above is 8 */
    {PICTURE_PAD, 100, 30, 25, 25, 0, 100, 0, 30, 0, 8, 25, 8},
    {PICTURE_PAD, 100, 34, 25, 25, 0, 100, 0, 34, 0, 8, 25, 8}, /* 8.5 rounds to 8 */
    {PICTURE_PAD, 65535, 1, 3, 3, 0, 65535, 0, 1, 0, 1, 3, 1},
};

/* torchvision's Resize(256) and CenterCrop(224). */
static void fit_short_side_is_resized_before_crop(void **state) {
    (void)state;
    static const struct {
        uint32_t width, height, all_x, skip_x, all_y, skip_y;
    } crops[] = {
        {640, 480, 341, 58, 256, 16}, /* 341.3; 58.5 rounds to even */
        {480, 640, 256, 16, 341, 58},
        {256, 256, 256, 16, 256, 16},
        {50, 51, 256, 16, 261, 18},
        {50, 52, 256, 16, 266, 21},
        {1, 65535, 256, 16, 16776960, 8388368},
        {333, 500, 256, 16, 384, 80},
    };
    struct picture_plan plan = {
        .width = 224, .height = 224, .fit = PICTURE_CROP, .short_side = 256};
    for (size_t i = 0; i < sizeof(crops) / sizeof(crops[0]); i++) {
        struct fit fit = fit_compute(&plan, crops[i].width, crops[i].height);
        assert_int_equal(fit.x.n_all, crops[i].all_x);
        assert_int_equal(fit.x.skip, crops[i].skip_x);
        assert_int_equal(fit.y.n_all, crops[i].all_y);
        assert_int_equal(fit.y.skip, crops[i].skip_y);
        assert_int_equal(fit.x.n_out, 224);
        assert_int_equal(fit.y.n_out, 224);
        assert_int_equal(fit_is_identity(&fit), crops[i].width == 256 && crops[i].height == 256);
    }
}

static void fit_largest_short_side_does_not_overflow(void **state) {
    (void)state;
    struct picture_plan plan = {
        .width = 65535, .height = 1, .fit = PICTURE_CROP, .short_side = 65535};
    struct fit fit = fit_compute(&plan, 1, 65535);
    assert_int_equal(fit.x.n_all, 65535);
    assert_int_equal(fit.x.skip, 0);
    assert_int_equal(fit.y.n_all, UINT32_C(4294836225));
    assert_int_equal(fit.y.skip, UINT32_C(2147418112));
}

static void check_axis(struct weights_axis axis, uint32_t n_in, double from, double to,
                       uint32_t n_out) {
    assert_int_equal(axis.n_in, n_in);
    assert_int_equal(axis.n_out, n_out);
    assert_true(fabs(axis.from - from) < 0.01 && fabs(axis.to - to) < 0.01);
    assert_true(axis.from >= 0 && axis.from < axis.to && axis.to <= (float)n_in);
}

static void fit_windows_and_offsets_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct picture_plan plan = {
            .width = row->to_width, .height = row->to_height, .fit = row->fit};
        struct fit fit = fit_compute(&plan, row->width, row->height);
        check_axis(fit.x, row->width, row->left, row->right, row->n_x);
        check_axis(fit.y, row->height, row->top, row->bottom, row->n_y);
        assert_int_equal(fit.left, row->x);
        assert_int_equal(fit.top, row->y);
    }
}

/* For any sizes the window is not empty and the result fits. */
static void fit_any_size_stays_within_picture(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 28, 333, 65535};
    enum { N = 6 };
    for (int i = 0; i < N * N * N * N * 3; i++) {
        struct picture_plan plan = {.width = sizes[i % N],
                                    .height = sizes[i / N % N],
                                    .fit = (enum picture_fit)(i / (N * N * N * N))};
        uint32_t width = sizes[i / (N * N) % N], height = sizes[i / (N * N * N) % N];
        struct fit fit = fit_compute(&plan, width, height);
        assert_true(fit.x.from >= 0 && fit.x.from < fit.x.to && fit.x.to <= (float)width);
        assert_true(fit.y.from >= 0 && fit.y.from < fit.y.to && fit.y.to <= (float)height);
        assert_true(fit.x.n_out >= 1 && fit.left + fit.x.n_out <= plan.width);
        assert_true(fit.y.n_out >= 1 && fit.top + fit.y.n_out <= plan.height);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_windows_and_offsets_by_table),
        cmocka_unit_test(fit_short_side_is_resized_before_crop),
        cmocka_unit_test(fit_largest_short_side_does_not_overflow),
        cmocka_unit_test(fit_any_size_stays_within_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

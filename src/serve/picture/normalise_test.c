/* Elements of every datatype, and their positions. */
#include "serve/picture/pixels.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/tensor/float16.h"

/* A plan of one grey pixel. */
static struct picture_plan plan_of(enum datatype datatype, double scale, double mean, double std) {
    return (struct picture_plan){.width = 1,
                                 .height = 1,
                                 .color = PICTURE_GREY,
                                 .datatype = datatype,
                                 .scale = scale,
                                 .mean = {mean, mean, mean},
                                 .std = {std, std, std}};
}

/* ---- values ---------------------------------------------------------------------------------- */

struct value {
    enum datatype datatype;
    double scale, mean;
    uint8_t pixel;
    int64_t expected;
};

static const struct value values[] = {
    {DT_UINT8, 1, 0, 0, 0},
    {DT_UINT8, 1, 0, 255, 255},
    {DT_UINT8, 2, 0, 128, 255},        /* clamped to the maximum */
    {DT_UINT8, 1, 200, 100, 0},        /* clamped to the minimum */
    {DT_UINT8, 0.5, 0, 3, 2},          /* 1.5 */
    {DT_UINT8, 0.5, 0, 1, 1},          /* 0.5: away from zero */
    {DT_INT8, 1, 128, 255, 127},       /* 127 */
    {DT_INT8, 1, 128, 0, -128},        /* -128 */
    {DT_INT8, 1, 0, 255, 127},         /* clamped */
    {DT_INT8, 1, 200, 0, -128},        /* clamped */
    {DT_INT8, 0.5, 1, 1, -1},          /* -0.5: away from zero */
    {DT_BOOL, 1, 0, 200, 1},           /* not above one */
    {DT_UINT16, 257, 0, 255, 65535},   /* */
    {DT_UINT16, 258, 0, 255, 65535},   /* clamped */
    {DT_INT16, 257, 32768, 0, -32768}, /* */
    {DT_INT16, 1000, 0, 255, 32767},   /* clamped */
    {DT_UINT32, 1e9, 0, 255, 4294967295},
    {DT_INT32, 1e9, 0, 255, 2147483647},
    {DT_INT32, 1, 3e9, 0, -2147483648},
    {DT_INT64, 1e30, 0, 255, INT64_MAX},
    {DT_INT64, 1, 1e30, 0, INT64_MIN},
    {DT_INT64, 1e15, 0, 255, 255000000000000000},
    {DT_UINT64, 1e30, 0, 1, -1}, /* maximum */
    {DT_UINT64, 1, 1, 0, 0},
};

static int64_t read_integer(const void *element, enum datatype datatype) {
    bool is_signed = datatype == DT_INT8 || datatype == DT_INT16 || datatype == DT_INT32;
    uint64_t bits = 0;
    size_t n = datatype_size(datatype);
    memcpy(&bits, element, n);
    if (is_signed && (bits >> (n * 8 - 1)) != 0) {
        bits |= UINT64_MAX << (n * 8 - 1);
    }
    return (int64_t)bits;
}

static void normalise_integers_are_rounded_and_clamped(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const struct value *v = &values[i];
        struct picture_plan plan = plan_of(v->datatype, v->scale, v->mean, 1);
        uint8_t rgb[3] = {v->pixel, v->pixel, v->pixel};
        struct normalise normalise;
        uint64_t out = 0;
        normalise_init(&normalise, &plan);
        normalise_row(&normalise, &out, 0, 0, 1, rgb);
        if (read_integer(&out, v->datatype) != v->expected) {
            fail_msg("row %zu: expected %lld, got %lld", i, (long long)v->expected,
                     (long long)read_integer(&out, v->datatype));
        }
    }
}

static double read_float(const void *element, enum datatype datatype) {
    uint16_t bits;
    float single;
    double value;
    memcpy(&bits, element, sizeof(bits));
    memcpy(&single, element, sizeof(single));
    memcpy(&value, element, sizeof(value));
    switch ((int)datatype) {
    case DT_FP16:
        return half_to_float(bits);
    case DT_BF16:
        return bfloat_to_float(bits);
    case DT_FP32:
        return single;
    default:
        return value;
    }
}

static void normalise_floats_are_exact_or_near(void **state) {
    (void)state;
    static const struct {
        enum datatype datatype;
        double error; /* relative error */
    } kinds[] = {{DT_FP16, 1.0 / 2048}, {DT_BF16, 1.0 / 256}, {DT_FP32, FLT_EPSILON}, {DT_FP64, 0}};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct picture_plan plan = plan_of(kinds[k].datatype, 1.0 / 255, 0.485, 0.229);
        struct normalise normalise;
        normalise_init(&normalise, &plan);
        for (int i = 0; i < 256; i++) {
            uint8_t rgb[3] = {(uint8_t)i, (uint8_t)i, (uint8_t)i};
            double expected = (i * (1.0 / 255) - 0.485) / 0.229;
            uint64_t out[2] = {0};
            normalise_row(&normalise, out, 0, 0, 1, rgb);
            double got = read_float(out, kinds[k].datatype);
            assert_true(fabs(got - expected) <= kinds[k].error * fabs(expected));
        }
    }
}

static void normalise_nan_becomes_zero(void **state) {
    (void)state;
    /* Configurations refuse such numbers; the code must still not misbehave. */
    struct picture_plan plan = plan_of(DT_INT32, 0, 0, 0); /* 0 / 0 */
    struct normalise normalise;
    int32_t out = 5;
    uint8_t rgb[3] = {1, 2, 3};
    normalise_init(&normalise, &plan);
    normalise_row(&normalise, &out, 0, 0, 1, rgb);
    assert_int_equal(out, 0);
}

/* ---- positions ------------------------------------------------------------------------------- */

static void normalise_grey_uses_bt601(void **state) {
    (void)state;
    static const uint8_t pixels[][4] = {{255, 0, 0, 76},     {0, 255, 0, 150},     {0, 0, 255, 29},
                                        {1, 2, 3, 2},        {255, 255, 255, 255}, {0, 0, 0, 0},
                                        {100, 100, 100, 100}};
    struct picture_plan plan = plan_of(DT_UINT8, 1, 0, 1);
    struct normalise normalise;
    normalise_init(&normalise, &plan);
    for (size_t i = 0; i < sizeof(pixels) / sizeof(pixels[0]); i++) {
        uint8_t out = 0;
        normalise_row(&normalise, &out, 0, 0, 1, pixels[i]);
        assert_int_equal(out, pixels[i][3]);
    }
}

/* Two rows of two pixels as text, one letter per element. */
static void check_layout(enum picture_color color, enum picture_layout layout,
                         const char *expected) {
    static const uint8_t pixels[2][6] = {{'a', 'b', 'c', 'd', 'e', 'f'},
                                         {'g', 'h', 'i', 'j', 'k', 'l'}};
    static const enum datatype datatypes[] = {DT_UINT8, DT_INT16, DT_FP32, DT_UINT64};
    for (size_t d = 0; d < sizeof(datatypes) / sizeof(datatypes[0]); d++) {
        struct picture_plan plan = {.width = 2,
                                    .height = 2,
                                    .color = color,
                                    .layout = layout,
                                    .datatype = datatypes[d],
                                    .scale = 1,
                                    .std = {1, 1, 1}};
        struct normalise normalise;
        uint64_t out[12];
        char text[13] = "";
        size_t size = datatype_size(datatypes[d]);
        normalise_init(&normalise, &plan);
        normalise_row(&normalise, out, 0, 0, 2, pixels[0]);
        normalise_row(&normalise, out, 0, 1, 2, pixels[1]);
        for (size_t i = 0; i < 12; i++) {
            const char *element = (const char *)out + i * size;
            float value = 0;
            memcpy(&value, element, sizeof(value) <= size ? sizeof(value) : 0);
            text[i] = datatypes[d] == DT_FP32 ? (char)value : *element;
        }
        assert_string_equal(text, expected);
    }
}

static void normalise_layouts_place_channels(void **state) {
    (void)state;
    check_layout(PICTURE_RGB, PICTURE_NHWC, "abcdefghijkl");
    check_layout(PICTURE_BGR, PICTURE_NHWC, "cbafedihglkj");
    check_layout(PICTURE_RGB, PICTURE_NCHW, "adgjbehkcfil");
    check_layout(PICTURE_BGR, PICTURE_NCHW, "cfilbehkadgj");
}

/* mean and std are per channel of the tensor, not of the picture. */
static void normalise_channels_have_own_mean(void **state) {
    (void)state;
    static const uint8_t rgb[3] = {10, 20, 30};
    for (int color = PICTURE_RGB; color <= PICTURE_BGR; color++) {
        struct picture_plan plan = {.width = 1,
                                    .height = 1,
                                    .color = (enum picture_color)color,
                                    .datatype = DT_INT32,
                                    .scale = 1,
                                    .mean = {1, 2, 3},
                                    .std = {1, 1, 0.5}};
        struct normalise normalise;
        int32_t out[3];
        normalise_init(&normalise, &plan);
        normalise_row(&normalise, out, 0, 0, 1, rgb);
        assert_int_equal(out[0], color == PICTURE_RGB ? 9 : 29);
        assert_int_equal(out[1], 18);
        assert_int_equal(out[2], color == PICTURE_RGB ? 54 : 14);
    }
}

static void normalise_pad_value_is_normalised(void **state) {
    (void)state;
    for (int layout = PICTURE_NCHW; layout <= PICTURE_NHWC; layout++) {
        struct picture_plan plan = {.width = 3,
                                    .height = 2,
                                    .layout = (enum picture_layout)layout,
                                    .datatype = DT_INT16,
                                    .scale = 1,
                                    .mean = {0, 1, 2},
                                    .std = {1, 1, 1},
                                    .pad = 100};
        struct normalise normalise;
        int16_t out[18];
        normalise_init(&normalise, &plan);
        normalise_pad(&normalise, out);
        for (int i = 0; i < 18; i++) {
            int channel = layout == PICTURE_NCHW ? i / 6 : i % 3;
            assert_int_equal(out[i], 100 - channel);
        }
    }
}

static void picture_plan_bytes_by_plan(void **state) {
    (void)state;
    size_t n = 0;
    struct picture_plan plan = {.width = 28, .height = 20, .datatype = DT_FP32};
    assert_true(picture_plan_bytes(&plan, &n));
    assert_int_equal(n, 28 * 20 * 3 * 4);
    plan.color = PICTURE_GREY;
    assert_true(picture_plan_bytes(&plan, &n));
    assert_int_equal(n, 28 * 20 * 4);
    plan.datatype = DT_BYTES;
    assert_false(picture_plan_bytes(&plan, &n));
    plan.datatype = DT_UINT8;
    plan.width = 0;
    assert_false(picture_plan_bytes(&plan, &n));
    plan.width = plan.height = UINT32_MAX;
    plan.datatype = DT_FP64;
    assert_false(picture_plan_bytes(&plan, &n));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalise_integers_are_rounded_and_clamped),
        cmocka_unit_test(normalise_floats_are_exact_or_near),
        cmocka_unit_test(normalise_nan_becomes_zero),
        cmocka_unit_test(normalise_grey_uses_bt601),
        cmocka_unit_test(normalise_layouts_place_channels),
        cmocka_unit_test(normalise_channels_have_own_mean),
        cmocka_unit_test(normalise_pad_value_is_normalised),
        cmocka_unit_test(picture_plan_bytes_by_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

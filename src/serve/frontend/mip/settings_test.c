/* The values of the MIP settings: valid and invalid texts of each parser. */
#include "serve/frontend/mip/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    mip_value_read *read;
    const char *good[7]; /* terminated by NULL */
    const char *bad[12];
} readers[] = {
    {mip_value_color, {"grey", "rgb", "bgr"}, {"", "gray", "RGB", "grey ", "rgba"}},
    {mip_value_fit, {"stretch", "crop", "pad"}, {"", "cover", "Crop"}},
    {mip_value_filter,
     {"auto", "nearest", "bilinear", "bicubic", "lanczos"},
     {"", "cubic", "lanczos3"}},
    {mip_value_layout, {"auto", "nchw", "nhwc"}, {"", "NCHW", "hwc"}},
    {mip_value_softmax, {"true", "false"}, {"", "1", "yes", "True"}},
    {mip_value_scale,
     {"1", "0.5", "-2", "1/255", "1 / 255", "1e-3"},
     {"", "0", "0/3", "1/0", "x", "1/", "/2", "1/2/3", "inf", "nan", "0x10"}},
    {mip_value_mean,
     {"0", "0.5", "1,2,3", "0.1, 0.2, 0.3", "1/2,1/3,1/4"},
     {"", "1,2", "1,2,3,4", "1,,3", "1 2 3", ",", "a"}},
    {mip_value_std, {"1", "0.5,0.5,0.5"}, {"", "0", "1,0,1", "1,2", "x"}},
    {mip_value_size,
     {"1", "224", "320x240", "65535x1"},
     {"", "0", "0x1", "1x0", "65536", "1x65536", "-1", "1x", "x1", "1x2x3", "1 x 2"}},
    {mip_value_pad, {"0", "255"}, {"", "256", "-1", "1.5", "0,0,0"}},
    {mip_value_top_k, {"0", "1", "1000"}, {"", "1001", "-1", "all", "3.0"}},
    {mip_value_labels, {"labels.txt"}, {""}},
};

static void value_each_text_is_accepted_or_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        struct mip_settings settings = {0};
        struct error err;
        for (size_t k = 0; k < 6 && readers[i].good[k]; k++) {
            if (readers[i].read(str_of(readers[i].good[k]), &settings, &err) != ST_OK) {
                fail_msg("reader %zu refused \"%s\": %s", i, readers[i].good[k], err.text);
            }
        }
        for (size_t k = 0; k < 12 && readers[i].bad[k]; k++) {
            if (readers[i].read(str_of(readers[i].bad[k]), &settings, &err) != ST_BAD_CONFIG) {
                fail_msg("reader %zu took \"%s\"", i, readers[i].bad[k]);
            }
        }
    }
}

static void value_parsed_text_is_stored(void **state) {
    (void)state;
    struct mip_settings settings = {0};
    struct error err;
    assert_int_equal(mip_value_scale(STR("1/4"), &settings, &err), ST_OK);
    assert_true(settings.scale == 0.25);
    assert_int_equal(mip_value_mean(STR("1,2,1/2"), &settings, &err), ST_OK);
    assert_int_equal(settings.mean.n, 3);
    assert_true(settings.mean.values[2] == 0.5);
    assert_int_equal(mip_value_size(STR("320x240"), &settings, &err), ST_OK);
    assert_int_equal(settings.width, 320);
    assert_int_equal(settings.height, 240);
    assert_int_equal(mip_value_size(STR("7"), &settings, &err), ST_OK);
    assert_int_equal(settings.width, 7);
    assert_int_equal(settings.height, 7);
    assert_int_equal(mip_value_color(STR("bgr"), &settings, &err), ST_OK);
    assert_true(settings.has_color);
    assert_int_equal(settings.color, PICTURE_BGR);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(value_each_text_is_accepted_or_refused),
                                       cmocka_unit_test(value_parsed_text_is_stored)};
    return cmocka_run_group_tests_name("serve/frontend/mip/settings", tests, NULL, NULL);
}

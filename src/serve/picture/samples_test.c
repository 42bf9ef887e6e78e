/* RGBA and CMYK conversions against Pillow's. */
#include "serve/picture/pixels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 6 };

static const uint8_t rgba[N][4] = {{255, 128, 1, 255}, {255, 128, 1, 128}, {10, 200, 77, 1},
                                   {255, 255, 255, 0}, {90, 60, 30, 254},  {1, 2, 3, 127}};

static void samples_multiply_by_table(void **state) {
    (void)state;
    static const uint8_t wanted[N][4] = {{255, 128, 1, 255}, {128, 64, 1, 128}, {0, 1, 0, 1},
                                         {0, 0, 0, 0},       {90, 60, 30, 254}, {0, 1, 1, 127}};
    uint8_t got[N][4];
    samples_multiply(rgba[0], N, got[0]);
    assert_memory_equal(got, wanted, sizeof(wanted));
}

/* Resizing overshoots: a premultiplied colour can exceed its alpha. */
static void samples_divide_by_table(void **state) {
    (void)state;
    static const uint8_t from[N][4] = {{128, 64, 1, 128},  {200, 0, 3, 100}, {9, 8, 7, 0},
                                       {254, 60, 30, 254}, {1, 0, 1, 1},     {1, 100, 126, 127}};
    static const uint8_t wanted[N][3] = {{255, 127, 1}, {255, 0, 7},   {9, 8, 7},
                                         {255, 60, 30}, {255, 0, 255}, {2, 200, 252}};
    uint8_t got[N][3];
    samples_divide(from[0], N, got[0]);
    assert_memory_equal(got, wanted, sizeof(wanted));
}

static void samples_opaque_pixels_are_unchanged(void **state) {
    (void)state;
    for (int color = 0; color < 256; color++) {
        uint8_t pixel[4] = {(uint8_t)color, (uint8_t)(255 - color), 7, 255}, there[4], back[3];
        samples_multiply(pixel, 1, there);
        assert_memory_equal(there, pixel, 4);
        samples_divide(there, 1, back);
        assert_memory_equal(back, pixel, 3);
    }
}

static void samples_drop_alpha_keeps_rgb(void **state) {
    (void)state;
    uint8_t got[N][3];
    samples_drop_alpha(rgba[0], N, got[0]);
    for (int i = 0; i < N; i++) {
        assert_memory_equal(got[i], rgba[i], 3);
    }
}

static void samples_from_cmyk_by_table(void **state) {
    (void)state;
    static const uint8_t from[N][4] = {{0, 0, 0, 0},      {255, 255, 255, 255}, {0, 0, 0, 255},
                                       {10, 200, 77, 30}, {1, 2, 3, 128},       {255, 0, 127, 1}};
    static const uint8_t wanted[N][3] = {{255, 255, 255}, {0, 0, 0},       {0, 0, 0},
                                         {216, 49, 157},  {127, 126, 126}, {0, 254, 127}};
    uint8_t got[N][3];
    samples_from_cmyk(from[0], N, got[0]);
    assert_memory_equal(got, wanted, sizeof(wanted));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_multiply_by_table),
        cmocka_unit_test(samples_divide_by_table),
        cmocka_unit_test(samples_opaque_pixels_are_unchanged),
        cmocka_unit_test(samples_drop_alpha_keeps_rgb),
        cmocka_unit_test(samples_from_cmyk_by_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

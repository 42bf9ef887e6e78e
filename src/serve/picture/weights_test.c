/* Weights of a part of the new axis. */
#include "serve/picture/resize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void weights_of_a_part_are_those_of_the_whole(void **state) {
    (void)state;
    static const enum picture_filter filters[] = {PICTURE_NEAREST, PICTURE_BILINEAR,
                                                  PICTURE_BICUBIC, PICTURE_LANCZOS};
    static const uint32_t sizes[][2] = {{500, 341}, {100, 256}, {256, 256}, {7, 1000}};
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            struct weights_axis all = {
                .n_in = sizes[k][0], .from = 0, .to = (float)sizes[k][0], .n_out = sizes[k][1]};
            struct weights_axis middle = all;
            middle.n_all = all.n_out, middle.skip = 16, middle.n_out = 224;
            struct weights whole, part;
            assert_true(weights_init(&whole, &all, filters[i]));
            assert_true(weights_init(&part, &middle, filters[i]));
            assert_int_equal(part.n_out, 224);
            for (uint32_t n = 0; n < part.n_out; n++) {
                const struct weights_span *span = &part.spans[n];
                assert_memory_equal(span, &whole.spans[n + 16], sizeof(*span));
                assert_memory_equal(weights_of(&part, n), weights_of(&whole, n + 16),
                                    span->n * sizeof(int32_t));
            }
            weights_fini(&whole);
            weights_fini(&part);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_a_part_are_those_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The fewest waiting is 1, the most is 0, and so on between. */
#include "pool/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/plugin_fixture.h"

static void between_least_and_most(void **state) {
    static const uint32_t values[] = {2, 10, 4, 6};
    static const float wanted[] = {1, 0, 0.75f, 0.5f};
    (void)state;
    ASSERT_SCORES(&plugin_queue_scorer, n_waiting, values, wanted);
}

static void all_alike(void **state) {
    static const uint32_t values[] = {7, 7, 7};
    static const float wanted[] = {1, 1, 1};
    (void)state;
    ASSERT_SCORES(&plugin_queue_scorer, n_waiting, values, wanted);
}

static void a_long_way(void **state) {
    static const uint32_t values[] = {0, UINT32_MAX};
    static const float wanted[] = {1, 0};
    (void)state;
    ASSERT_SCORES(&plugin_queue_scorer, n_waiting, values, wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_least_and_most),
        cmocka_unit_test(all_alike),
        cmocka_unit_test(a_long_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

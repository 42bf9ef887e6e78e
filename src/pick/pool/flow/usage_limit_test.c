/* The ceilings of upstream's usage limit policies, and when a soft one is open. */
#include "pick/pool/flow/usage_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    struct usage_limit limit;
    int64_t priorities[4];
    double expected[4];
    size_t n;
} ROWS[] = {
    {{USAGE_WHOLE, 0, 0}, {5, 0}, {1, 1}, 2},
    {{USAGE_STATIC, 0, 0.9}, {5, 0, -1}, {0.9, 0.9, 0.9}, 3},
    {{USAGE_HOLDBACK_RANK, 0.5, 1}, {100, 60, 0}, {1, 0.75, 0.5}, 3},
    {{USAGE_HOLDBACK_RANK, 0.5, 0.9}, {3}, {0.9}, 1},
    {{USAGE_HOLDBACK_VALUE, 0.5, 1}, {100, 60, -100, 0}, {1, 0.9, 0.5, 0.75}, 3},
    {{USAGE_HOLDBACK_VALUE, 0.2, 0.8}, {10, -10}, {0.8, 0.2}, 2},
    {{USAGE_SOFT_REFLECTIVE, 0, 0}, {7}, {1}, 1},
    {{USAGE_SOFT_REFLECTIVE, 0, 0}, {9, 0, -1}, {1, 2.0 / 3, 0.5}, 3},
};

static void usage_ceilings_follow_the_policy(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct usage_ceiling ceilings[4] = {{0}};
        for (size_t k = 0; k < ROWS[i].n; k++) {
            ceilings[k].priority = ROWS[i].priorities[k];
        }
        usage_ceilings_fill(&ROWS[i].limit, ceilings, ROWS[i].n);
        for (size_t k = 0; k < ROWS[i].n; k++) {
            assert_float_equal(ceilings[k].share, ROWS[i].expected[k], 1e-9);
        }
    }
}

static void usage_ceiling_of_unlisted_priority_is_the_next_lower_one(void **state) {
    static const struct usage_ceiling ceilings[] = {{10, 1}, {0, 0.8}, {-5, 0.5}};
    (void)state;
    assert_float_equal(usage_ceilings_find(ceilings, 3, 11), 1, 0);
    assert_float_equal(usage_ceilings_find(ceilings, 3, 10), 1, 0);
    assert_float_equal(usage_ceilings_find(ceilings, 3, 9), 0.8, 0);
    assert_float_equal(usage_ceilings_find(ceilings, 3, -5), 0.5, 0);
    assert_float_equal(usage_ceilings_find(ceilings, 3, -6), 0.5, 0);
    assert_float_equal(usage_ceilings_find(NULL, 0, 3), 1, 0);
}

/* Of 600 cycles a priority above its ceiling is admitted in one of used / (1 - used). */
static void usage_soft_ceiling_is_open_in_a_share_of_cycles(void **state) {
    static const struct {
        double used;
        unsigned n_open;
    } rows[] = {{0.49, 600}, {0.5, 600}, {2.0 / 3, 300}, {0.75, 200}, {0.8, 150}, {1, 0}, {1.5, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned n_open = 0;
        for (uint64_t cycle = 0; cycle < 600; cycle++) {
            n_open += !usage_is_over(USAGE_SOFT_REFLECTIVE, 0.5, rows[i].used, cycle);
            assert_int_equal(usage_is_over(USAGE_HOLDBACK_RANK, 0.5, rows[i].used, cycle),
                             rows[i].used >= 0.5);
        }
        assert_int_equal(n_open, rows[i].n_open);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_ceilings_follow_the_policy),
        cmocka_unit_test(usage_ceiling_of_unlisted_priority_is_the_next_lower_one),
        cmocka_unit_test(usage_soft_ceiling_is_open_in_a_share_of_cycles),
    };
    return cmocka_run_group_tests_name("pick/pool/flow/usage_limit", tests, NULL, NULL);
}

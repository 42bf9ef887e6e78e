/* Top-k: order, ties, NaN, both zeros, integers beyond a double's precision, and lists of all
 * lengths compared with a sort. */
#include "serve/frontend/top_k.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "core/base/random.h"

static void expect(enum datatype datatype, const void *data, size_t n, const size_t *order) {
    struct top_k_item best[8];
    for (size_t max = 0; max <= n; max++) {
        top_k_find(datatype, data, n, max, best);
        for (size_t i = 0; i < max; i++) {
            if (best[i].index != order[i]) {
                fail_msg("%s, best %zu of %zu: index %zu at %zu, expected %zu",
                         datatype_name(datatype), max, n, best[i].index, i, order[i]);
            }
        }
    }
}

static void top_k_each_datatype_is_ordered(void **state) {
    (void)state;
    expect(DT_FP32, (float[]){1, -2, 3, 3, -INFINITY, INFINITY}, 6, (size_t[]){5, 2, 3, 0, 1, 4});
    expect(DT_FP64, (double[]){NAN, -1, -NAN, -INFINITY}, 4, (size_t[]){1, 3, 0, 2});
    expect(DT_FP64, (double[]){-0.0, 0.0, -1e-320, 1e-320}, 4, (size_t[]){3, 0, 1, 2});
    expect(DT_INT8, (int8_t[]){-128, 127, 0, -1}, 4, (size_t[]){1, 2, 3, 0});
    expect(DT_UINT8, (uint8_t[]){128, 127, 255}, 3, (size_t[]){2, 0, 1});
    /* 2^53 + 1 has no double */
    expect(DT_INT64, (int64_t[]){1LL << 53, (1LL << 53) + 1, INT64_MIN, INT64_MAX, INT64_MIN + 1},
           5, (size_t[]){3, 1, 0, 4, 2});
    expect(DT_UINT64, (uint64_t[]){UINT64_MAX - 1, UINT64_MAX, 0}, 3, (size_t[]){1, 0, 2});
    expect(DT_FP16, (uint16_t[]){0x3c00, 0xbc00, 0x4000}, 3, (size_t[]){2, 0, 1});
}

static int compare(const void *left, const void *right) {
    const struct top_k_item *a = left, *b = right;
    if (a->rank != b->rank) {
        return a->rank > b->rank ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

static void top_k_random_values_match_qsort(void **state) {
    (void)state;
    enum { N = 60 };
    struct prng prng = {.state = 7};
    for (size_t n = 1; n <= N; n++) {
        uint64_t values[N];
        struct top_k_item sorted[N], best[N];
        for (size_t i = 0; i < n; i++) {
            values[i] = prng_below(&prng, 10);
            sorted[i] = (struct top_k_item){values[i], i};
        }
        qsort(sorted, n, sizeof(*sorted), compare);
        for (size_t max = 1; max <= n; max++) {
            top_k_find(DT_UINT64, (const char *)values, n, max, best);
            for (size_t i = 0; i < max; i++) {
                assert_int_equal(best[i].index, sorted[i].index);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(top_k_each_datatype_is_ordered),
                                       cmocka_unit_test(top_k_random_values_match_qsort)};
    return cmocka_run_group_tests_name("serve/frontend/top_k", tests, NULL, NULL);
}

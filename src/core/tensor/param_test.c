/* Finding and deduplicating parameters by name. */
#include "core/tensor/param.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void params_find_returns_first(void **state) {
    const struct param items[] = {
        {.name = STR("priority"), .kind = PARAM_INT64, .int64 = 3},
        {.name = STR("binary_data"), .kind = PARAM_BOOL, .boolean = true},
        {.name = STR("binary_data"), .kind = PARAM_BOOL, .boolean = false},
    };
    struct params params = {items, 3};
    (void)state;
    assert_ptr_equal(params_find(params, "priority"), &items[0]);
    assert_ptr_equal(params_find(params, "binary_data"), &items[1]); /* the first counts */
    assert_null(params_find(params, "binary_data_size"));
    assert_null(params_find(params, ""));
    assert_null(params_find((struct params){NULL, 0}, "priority"));
}

static void params_dedup_keeps_first_or_last(void **state) {
    (void)state;
    for (int keep = PARAMS_KEEP_FIRST; keep <= PARAMS_KEEP_LAST; keep++) {
        struct arena *arena = arena_new(NULL, 0);
        struct param items[] = {
            {.name = STR("b"), .int64 = 0}, {.name = STR("a"), .int64 = 1},
            {.name = STR("b"), .int64 = 2}, {.name = STR(""), .int64 = 3},
            {.name = STR("b"), .int64 = 4}, {.name = STR(""), .int64 = 5},
        };
        static const int64_t want[2][3] = {{0, 1, 3}, {1, 4, 5}};
        size_t n = 6;
        assert_true(params_dedup(arena, items, &n, (enum params_keep)keep));
        assert_int_equal(n, 3);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(items[i].int64, want[keep][i]);
        }
        arena_free(arena);
    }
}

static void param_is_reserved_knows_names(void **state) {
    (void)state;
    assert_true(param_is_reserved(STR("priority")));
    assert_true(param_is_reserved(STR("binary_data_output")));
    assert_true(param_is_reserved(STR("triton_")));
    assert_false(param_is_reserved(STR("triton")));
    assert_false(param_is_reserved(STR("Priority")));
    assert_false(param_is_reserved(STR("")));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(param_is_reserved_knows_names),
                                       cmocka_unit_test(params_find_returns_first),
                                       cmocka_unit_test(params_dedup_keeps_first_or_last)};
    return cmocka_run_group_tests_name("core/tensor/param", tests, NULL, NULL);
}

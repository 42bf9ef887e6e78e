/* Finding a parameter. */
#include "tensor/param.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void finding(void **state) {
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

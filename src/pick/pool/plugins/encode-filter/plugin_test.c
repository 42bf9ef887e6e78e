/* The roles that the filter keeps. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/role_fixture.h"

static void filter_keeps_encode_roles(void **state) {
    (void)state;
    assert_roles(&plugin_encode_filter, 1u << 0 | 1u << 3 | 1u << 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_encode_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The roles that the filter keeps. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/role_fixture.h"

static void filter_keeps_decode_roles(void **state) {
    (void)state;
    assert_roles(&plugin_decode_filter, 1u << 2 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_decode_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The bytes of a response are released once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/tensor/infer.h"

static void count(void *user) {
    ++*(int *)user;
}

static void infer_response_release_is_idempotent(void **state) {
    int n = 0;
    struct infer_response response = {.release = count, .user = &n}, none = {.user = &n};
    (void)state;
    infer_response_release(&response);
    infer_response_release(&response);
    infer_response_release(&none);
    assert_int_equal(n, 1);
    assert_null(response.release);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(infer_response_release_is_idempotent)};
    return cmocka_run_group_tests_name("core/tensor/infer_response", tests, NULL, NULL);
}

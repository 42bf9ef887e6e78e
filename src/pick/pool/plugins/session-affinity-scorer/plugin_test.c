/* The endpoint that the request's token names is preferred; a token that names none changes
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/session_token_fixture.h"

static void expect_preferred(struct plugin_fixture *fixture, uint32_t endpoint) {
    float wanted[SESSION_ENDPOINTS] = {0};
    wanted[endpoint] = 1;
    assert_scores(fixture, &plugin_session_affinity_scorer, wanted);
}

static void scorer_token_names_an_endpoint(void **state) {
    (void)state;
    assert_tokens_name_endpoints(&plugin_session_affinity_scorer, expect_preferred);
}

static void expect_none_preferred(struct plugin_fixture *fixture) {
    static const float wanted[SESSION_ENDPOINTS] = {0};
    assert_scores(fixture, &plugin_session_affinity_scorer, wanted);
}

static void scorer_other_tokens_change_nothing(void **state) {
    (void)state;
    assert_other_tokens(&plugin_session_affinity_scorer, expect_none_preferred);
}

static void scorer_invalid_parameters_are_rejected(void **state) {
    (void)state;
    assert_session_parameters_refused(&plugin_session_affinity_scorer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_token_names_an_endpoint),
        cmocka_unit_test(scorer_other_tokens_change_nothing),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Keeps the session's endpoint, the same that the scorer prefers; all without a session. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

enum { N = 8 };

static void filter_keeps_endpoint_of_session(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_session_hash_filter, N);
    for (int i = 0; i < 100; i++) {
        char session[32];
        snprintf(session, sizeof(session), "session-%d", i);
        fixture.candidates.session = str_of(session);
        fixture.candidates.n = N;
        for (uint32_t k = 0; k < N; k++) {
            fixture.member[k] = k;
            fixture.score[k] = 0;
        }
        plugin_session_hash_scorer.score(NULL, &fixture.candidates, 1);
        plugin_session_hash_filter.filter(NULL, &fixture.candidates);
        assert_int_equal(fixture.candidates.n, 1);
        assert_near(fixture.score[fixture.member[0]], 1);
    }
    plugin_fixture_close(&fixture);
}

static void filter_without_session_keeps_all(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_session_hash_filter, N);
    plugin_session_hash_filter.filter(NULL, &fixture.candidates);
    assert_int_equal(fixture.candidates.n, N);
    fixture.candidates.session = STR("");
    plugin_session_hash_filter.filter(NULL, &fixture.candidates);
    assert_int_equal(fixture.candidates.n, N);
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_endpoint_of_session),
        cmocka_unit_test(filter_without_session_keeps_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

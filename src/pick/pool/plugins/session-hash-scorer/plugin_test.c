/* Each session has one endpoint, sessions are spread, and few move when an endpoint is removed. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

enum { N = 8, SESSIONS = 2000 };

/* The member of the first `n` that session `i` prefers. */
static uint32_t prefers(struct plugin_fixture *fixture, int i, uint32_t n) {
    char session[32];
    uint32_t n_preferred = 0, member = 0;
    snprintf(session, sizeof(session), "session-%d", i);
    fixture->candidates.session = str_of(session);
    fixture->candidates.n = n;
    for (uint32_t k = 0; k < n; k++) {
        fixture->member[k] = k;
        fixture->score[k] = 0;
    }
    plugin_session_hash_scorer.score(fixture->parameters, &fixture->candidates, 1);
    for (uint32_t k = 0; k < n; k++) {
        if (fixture->score[k] > 0) {
            assert_near(fixture->score[k], 1);
            member = k;
            n_preferred++;
        }
    }
    assert_int_equal(n_preferred, 1);
    return member;
}

static void scorer_sessions_spread_over_endpoints(void **state) {
    struct plugin_fixture fixture;
    uint32_t n_of[N] = {0};
    (void)state;
    plugin_fixture_open(&fixture, &plugin_session_hash_scorer, N);
    for (int i = 0; i < SESSIONS; i++) {
        n_of[prefers(&fixture, i, N)]++;
    }
    for (uint32_t k = 0; k < N; k++) {
        assert_in_range(n_of[k], SESSIONS / N * 8 / 10, SESSIONS / N * 12 / 10);
    }
    plugin_fixture_close(&fixture);
}

static void scorer_removed_endpoint_moves_only_its_sessions(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_session_hash_scorer, N);
    for (int i = 0; i < SESSIONS; i++) {
        uint32_t before = prefers(&fixture, i, N);
        if (before != N - 1) {
            assert_int_equal(prefers(&fixture, i, N - 1), before);
        }
    }
    plugin_fixture_close(&fixture);
}

/* The member of all that the session "s" prefers. */
static uint32_t preferred(struct plugin_fixture *fixture) {
    fixture->candidates.session = STR("s");
    plugin_session_hash_scorer.score(fixture->parameters, &fixture->candidates, 1);
    for (uint32_t k = 0; k < N; k++) {
        if (fixture->score[k] > 0) {
            return k;
        }
    }
    return N;
}

/* To one other endpoint, and back. */
static void scorer_session_leaves_busy_endpoint(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_session_hash_scorer, N);
    plugin_fixture_load(&fixture, 0, 0);
    uint32_t first = preferred(&fixture);
    plugin_fixture_load(&fixture, first, 3);
    assert_int_equal(preferred(&fixture), first);
    plugin_fixture_load(&fixture, first, 4);
    uint32_t second = preferred(&fixture);
    assert_true(second != first && second < N);
    plugin_fixture_load(&fixture, first, 400);
    assert_int_equal(preferred(&fixture), second);
    plugin_fixture_load(&fixture, first, 1);
    assert_int_equal(preferred(&fixture), first);
    plugin_fixture_close(&fixture);
}

static void scorer_without_session_scores_zero(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_session_hash_scorer, N);
    plugin_session_hash_scorer.score(fixture.parameters, &fixture.candidates, 1);
    for (uint32_t k = 0; k < N; k++) {
        assert_near(fixture.score[k], 0);
    }
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_sessions_spread_over_endpoints),
        cmocka_unit_test(scorer_removed_endpoint_moves_only_its_sessions),
        cmocka_unit_test(scorer_session_leaves_busy_endpoint),
        cmocka_unit_test(scorer_without_session_scores_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

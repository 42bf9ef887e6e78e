/* Probes with a clock that the test drives: when they are due, which verdicts their results lead
 * to, and endpoints that are added and removed meanwhile. */
#include "pick/discovery/probe/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pick/pool/pool_fixture.h"

static const uint64_t SECOND = 1000000000, MS = 1000000, BEGIN_NS = 123456789012;
enum { N_MANY = 10000 };

static struct pool_spec *checked(struct pool_spec *spec, unsigned n_healthy, unsigned n_unhealthy) {
    spec->health = (struct pool_health){.kind = POOL_HEALTH_TCP,
                                        .interval_ns = SECOND,
                                        .timeout_ns = SECOND,
                                        .n_healthy = n_healthy,
                                        .n_unhealthy = n_unhealthy};
    return spec;
}

/* The group of the pool; each test has one. */
static struct probe_group group;

static void open_set(struct probe_set *set, struct fixture *f, struct pool_spec *spec) {
    *set = (struct probe_set){.prng.state = 7, .max_running = 100};
    group = (struct probe_group){.n = 0};
    fixture_open(f, spec);
    assert_true(probe_set_update_group(set, &group, pool_reader_refresh(f->reader), BEGIN_NS));
}

static void update_group(struct probe_set *set, struct fixture *f, struct pool_spec *spec,
                         uint64_t now_ns) {
    fixture_update(f->pool, spec);
    assert_true(probe_set_update_group(set, &group, pool_reader_refresh(f->reader), now_ns));
}

static void close_set(struct probe_set *set, struct fixture *f) {
    probe_set_remove_group(set, &group);
    probe_set_fini(set);
    fixture_close(f);
}

/* Runs the next check when it is due, not before `*now_ns`. Returns: its probe. */
static struct probe *run_next_check(struct probe_set *set, uint64_t *now_ns) {
    uint64_t due_ns = probe_set_next_ns(set);
    assert_true(due_ns != UINT64_MAX);
    if (due_ns > *now_ns) {
        assert_null(probe_set_pop_due(set, due_ns - 1));
        *now_ns = due_ns;
    }
    struct probe *probe = probe_set_pop_due(set, *now_ns);
    assert_non_null(probe);
    return probe;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Results, good (+) or bad (-), and the verdict after each: ready (R), not ready (U). */
static const struct verdict_row {
    unsigned n_healthy, n_unhealthy;
    const char *answers, *verdicts;
} VERDICTS[] = {
    {1, 1, "+-+-", "RURU"},
    {1, 1, "-+", "UR"},
    {1, 2, "+-+--+", "RRRRUR"},
    {2, 2, "-+-++", "UUUUR"},
    {3, 3, "+--+---++-+++", "RRRRRRUUUUUUR"},
    {3, 1, "+-++-+++", "RUUUUUUR"},
};

static void probe_thresholds_decide_verdict(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(VERDICTS) / sizeof(VERDICTS[0]); i++) {
        const struct verdict_row *row = &VERDICTS[i];
        struct probe_set set;
        struct fixture f;
        uint64_t now_ns = BEGIN_NS;
        char before = 0;
        open_set(&set, &f, checked(fixture_spec_of(1), row->n_healthy, row->n_unhealthy));
        assert_int_equal(set.n_unknown, 1);
        for (size_t k = 0; row->answers[k]; k++) {
            struct probe *probe = run_next_check(&set, &now_ns);
            bool changed = probe_set_finish(&set, probe, row->answers[k] == '+', now_ns);
            assert_int_equal(probe->verdict, row->verdicts[k] == 'R' ? PROBE_READY : PROBE_UNREADY);
            assert_int_equal(changed, row->verdicts[k] != before);
            assert_int_equal(set.n_unknown, 0);
            before = row->verdicts[k];
        }
        close_set(&set, &f);
    }
}

/* ---- due times ------------------------------------------------------------------------------- */

/* From the second interval on each hundredth of it has about as many checks; the first checks take
 * less than a second. */
static void probe_many_endpoints_are_spread(void **state) {
    enum { PARTS = 100, ROUNDS = 5, EXPECTED = N_MANY / PARTS };
    (void)state;
    struct probe_set set;
    struct fixture f;
    uint64_t now_ns = BEGIN_NS;
    unsigned counts[PARTS * ROUNDS] = {0};
    open_set(&set, &f, checked(fixture_spec_of(N_MANY), 1, 1));
    while (set.n_unknown > 0) {
        probe_set_finish(&set, run_next_check(&set, &now_ns), true, now_ns);
    }
    assert_true(now_ns <= BEGIN_NS + SECOND);
    uint64_t begin_ns = BEGIN_NS + 2 * SECOND;
    while (now_ns < begin_ns + ROUNDS * SECOND) {
        struct probe *probe = run_next_check(&set, &now_ns);
        uint64_t part = now_ns < begin_ns ? PARTS * ROUNDS : (now_ns - begin_ns) / (10 * MS);
        if (part < PARTS * ROUNDS) {
            counts[part]++;
        }
        probe_set_finish(&set, probe, true, now_ns);
    }
    for (int i = 0; i < PARTS * ROUNDS; i++) {
        assert_in_range(counts[i], EXPECTED / 2, EXPECTED * 3 / 2); /* 5 standard deviations */
    }
    close_set(&set, &f);
}

/* Each endpoint is checked once in an interval, give or take the jitter. */
static void probe_interval_has_one_check_each(void **state) {
    enum { N = 20, ROUNDS = 50 };
    (void)state;
    struct probe_set set;
    struct fixture f;
    uint64_t now_ns = BEGIN_NS, last_ns[N] = {0};
    unsigned n_checks[N] = {0};
    open_set(&set, &f, checked(fixture_spec_of(N), 1, 1));
    while (now_ns < BEGIN_NS + ROUNDS * SECOND) {
        struct probe *probe = run_next_check(&set, &now_ns);
        size_t i = (size_t)(probe->address.low & 0xff);
        if (n_checks[i]++ > 1) { /* the second one is at the endpoint's offset */
            assert_in_range(now_ns - last_ns[i], SECOND * 9 / 10, SECOND * 11 / 10);
        }
        last_ns[i] = now_ns;
        probe_set_finish(&set, probe, true, now_ns + MS);
    }
    for (int i = 0; i < N; i++) {
        assert_in_range(n_checks[i], ROUNDS - 1, ROUNDS + 2);
    }
    close_set(&set, &f);
}

/* A slow check is not made up for. */
static void probe_slow_check_delays_next(void **state) {
    (void)state;
    struct probe_set set;
    struct fixture f;
    uint64_t now_ns = BEGIN_NS;
    open_set(&set, &f, checked(fixture_spec_of(1), 1, 1));
    struct probe *probe = run_next_check(&set, &now_ns);
    assert_true(probe_set_next_ns(&set) == UINT64_MAX);
    now_ns += 10 * SECOND;
    probe_set_finish(&set, probe, true, now_ns);
    assert_true(probe_set_next_ns(&set) > now_ns);
    assert_true(probe_set_next_ns(&set) <= now_ns + SECOND * 11 / 10);
    close_set(&set, &f);
}

static void probe_concurrent_checks_are_limited(void **state) {
    enum { MOST = 3 };
    (void)state;
    struct probe_set set;
    struct fixture f;
    struct probe *running[MOST];
    uint64_t now_ns = BEGIN_NS + SECOND; /* all are due */
    open_set(&set, &f, checked(fixture_spec_of(10), 1, 1));
    set.max_running = MOST;
    for (int i = 0; i < MOST; i++) {
        running[i] = probe_set_pop_due(&set, now_ns);
        assert_non_null(running[i]);
    }
    assert_null(probe_set_pop_due(&set, now_ns));
    assert_true(probe_set_next_ns(&set) == UINT64_MAX);
    probe_set_finish(&set, running[1], true, now_ns);
    assert_true(probe_set_next_ns(&set) <= now_ns);
    running[1] = probe_set_pop_due(&set, now_ns);
    assert_non_null(running[1]);
    assert_null(probe_set_pop_due(&set, now_ns));
    for (int i = 0; i < MOST; i++) {
        probe_set_finish(&set, running[i], true, now_ns);
    }
    close_set(&set, &f);
}

/* ---- changes of the pool --------------------------------------------------------------------- */

static void probe_update_keeps_verdicts(void **state) {
    (void)state;
    struct probe_set set;
    struct fixture f;
    uint64_t now_ns = BEGIN_NS;
    open_set(&set, &f, checked(fixture_spec_of(2), 1, 3));
    for (int i = 0; i < 2; i++) {
        probe_set_finish(&set, run_next_check(&set, &now_ns), true, now_ns);
    }
    update_group(&set, &f, checked(fixture_spec_of(3), 1, 3), now_ns); /* one endpoint more */
    assert_int_equal(set.n, 3);
    assert_int_equal(set.n_unknown, 1);
    struct probe *fresh = run_next_check(&set, &now_ns); /* the new one is first */
    assert_int_equal(fresh->verdict, PROBE_UNKNOWN);
    assert_int_equal(fresh->address.low & 0xff, 2);
    probe_set_finish(&set, fresh, false, now_ns);
    assert_int_equal(group.items[0]->verdict, PROBE_READY);
    assert_int_equal(group.items[1]->verdict, PROBE_READY);
    assert_int_equal(group.items[2]->verdict, PROBE_UNREADY);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(group.items[i]->endpoint,
                         pool_reader_refresh(f.reader)->members[i].endpoint);
    }
    close_set(&set, &f);
}

static void probe_removed_endpoint_ends_with_its_check(void **state) {
    (void)state;
    struct probe_set set;
    struct fixture f;
    uint64_t now_ns = BEGIN_NS;
    open_set(&set, &f, checked(fixture_spec_of(2), 1, 1));
    struct probe *first = run_next_check(&set, &now_ns), *second = run_next_check(&set, &now_ns);
    update_group(&set, &f, checked(fixture_spec(), 1, 1), now_ns);
    assert_null(first->endpoint);
    assert_int_equal(set.n_running, 2); /* they count until they have ended */
    assert_int_equal(set.n_unknown, 0);
    update_group(&set, &f, checked(fixture_spec_of(1), 1, 1),
                 now_ns); /* the endpoint is added again, as a new one */
    struct probe *again = run_next_check(&set, &now_ns);
    assert_ptr_not_equal(again, first);
    assert_false(probe_set_finish(&set, first, true, now_ns));
    assert_false(probe_set_finish(&set, second, true, now_ns));
    assert_true(probe_set_finish(&set, again, true, now_ns));
    assert_int_equal(set.n_running, 0);
    close_set(&set, &f);
}

static void probe_disabled_checks_empty_group(void **state) {
    (void)state;
    struct probe_set set;
    struct fixture f;
    uint64_t now_ns = BEGIN_NS;
    open_set(&set, &f, checked(fixture_spec_of(3), 1, 1));
    struct probe *running = run_next_check(&set, &now_ns);
    update_group(&set, &f, fixture_spec_of(3), now_ns);
    assert_int_equal(set.n, 0);
    assert_true(probe_set_next_ns(&set) == UINT64_MAX);
    assert_false(probe_set_finish(&set, running, true, now_ns));
    update_group(&set, &f, checked(fixture_spec_of(3), 1, 1), now_ns);
    assert_int_equal(set.n_unknown, 3);
    close_set(&set, &f);
}

static void probe_changed_interval_reschedules(void **state) {
    (void)state;
    struct probe_set set;
    struct fixture f;
    uint64_t now_ns = BEGIN_NS;
    struct pool_spec *spec = checked(fixture_spec_of(1), 1, 1);
    spec->health.interval_ns = 1000 * SECOND;
    open_set(&set, &f, spec);
    probe_set_finish(&set, run_next_check(&set, &now_ns), true, now_ns);
    update_group(&set, &f, checked(fixture_spec_of(1), 1, 1), now_ns);
    assert_true(probe_set_next_ns(&set) <= now_ns + SECOND * 11 / 10);
    close_set(&set, &f);
}

/* Two pools share the limit of running checks, and removing one leaves the other's probes. */
static void probe_groups_share_limit(void **state) {
    (void)state;
    struct probe_set set;
    struct fixture f, other;
    struct probe_group others = {.n = 0};
    uint64_t now_ns = BEGIN_NS;
    open_set(&set, &f, checked(fixture_spec_of(2), 1, 1));
    set.max_running = 3;
    fixture_open(&other, checked(fixture_spec_of(3), 1, 1)); /* two addresses are in both */
    assert_true(probe_set_update_group(&set, &others, pool_reader_refresh(other.reader), BEGIN_NS));
    assert_int_equal(set.n, 5);
    assert_int_equal(set.n_unknown, 5);
    struct probe *running[3];
    for (size_t i = 0; i < 3; i++) {
        running[i] = run_next_check(&set, &now_ns);
    }
    assert_null(probe_set_pop_due(&set, now_ns + SECOND));
    assert_true(probe_set_next_ns(&set) == UINT64_MAX);
    probe_set_remove_group(&set, &others);
    assert_int_equal(set.n, 2);
    for (size_t i = 0; i < 3; i++) {
        probe_set_finish(&set, running[i], true, now_ns);
    }
    while (set.n_unknown > 0) {
        struct probe *probe = run_next_check(&set, &now_ns);
        assert_ptr_equal(probe->group, &group);
        probe_set_finish(&set, probe, true, now_ns);
    }
    close_set(&set, &f);
    fixture_close(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probe_thresholds_decide_verdict),
        cmocka_unit_test(probe_many_endpoints_are_spread),
        cmocka_unit_test(probe_interval_has_one_check_each),
        cmocka_unit_test(probe_slow_check_delays_next),
        cmocka_unit_test(probe_concurrent_checks_are_limited),
        cmocka_unit_test(probe_update_keeps_verdicts),
        cmocka_unit_test(probe_removed_endpoint_ends_with_its_check),
        cmocka_unit_test(probe_disabled_checks_empty_group),
        cmocka_unit_test(probe_changed_interval_reschedules),
        cmocka_unit_test(probe_groups_share_limit),
    };
    return cmocka_run_group_tests_name("pick/discovery/probe/probe", tests, NULL, NULL);
}

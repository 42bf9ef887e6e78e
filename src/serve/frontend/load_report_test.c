/* Load reports: how often the totals of many models are counted. */
#include "serve/frontend/load_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct counter {
    unsigned n;
    struct load_totals *totals; /* asks again while it counts */
    uint64_t now_ns;
};

static struct load_counts count(void *context) {
    struct counter *counter = context;
    counter->n++;
    if (counter->totals) {
        struct load_totals *totals = counter->totals;
        counter->totals = NULL;
        struct load_counts before = load_totals_get(totals, counter->now_ns, count, counter);
        assert_int_equal(before.queued, 1);
    }
    return (struct load_counts){counter->n, 10 + counter->n, 20 + counter->n};
}

static void totals_are_counted_once_in_their_time(void **state) {
    struct load_totals totals = {0};
    struct counter counter = {0};
    (void)state;
    for (uint64_t now_ns = 100; now_ns < 100 + LOAD_TOTALS_NS; now_ns += LOAD_TOTALS_NS / 4) {
        struct load_counts got = load_totals_get(&totals, now_ns, count, &counter);
        assert_int_equal(got.queued, 1);
        assert_int_equal(got.running, 11);
        assert_int_equal(got.instances, 21);
    }
    assert_int_equal(counter.n, 1);
    struct load_counts got = load_totals_get(&totals, 100 + LOAD_TOTALS_NS, count, &counter);
    assert_int_equal(counter.n, 2);
    assert_int_equal(got.queued, 2);
}

static void totals_while_counted_are_those_before(void **state) {
    struct load_totals totals = {0};
    struct counter counter = {0};
    (void)state;
    load_totals_get(&totals, 1, count, &counter);
    counter.totals = &totals;
    counter.now_ns = 1 + LOAD_TOTALS_NS;
    load_totals_get(&totals, counter.now_ns, count, &counter);
    assert_int_equal(counter.n, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_counted_once_in_their_time),
        cmocka_unit_test(totals_while_counted_are_those_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

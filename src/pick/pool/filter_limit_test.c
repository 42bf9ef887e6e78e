/* Picks on several threads at once, by filters that limit the requests in flight of an endpoint:
 * each endpoint gets as many as it may have, and no more. For the thread sanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/pool.h"
#include "pick/pool/profile/filter_fixture.h"

enum { N = 2, PICKERS = 4, LIMIT = 2, MOST_PICKS = N * LIMIT + 1, ROUNDS = 10000 };

/* ---- pickers --------------------------------------------------------------------------------- */

struct picker {
    struct pool *pool;
    struct pool_reader *reader;
    pthread_barrier_t *begin, *end;
    struct pool_ticket tickets[MOST_PICKS];
    size_t n;
    unsigned n_wrong;
};

/* Picks until no endpoint is left; then all stop, and release. */
static void *run_picker(void *argument) {
    struct picker *picker = argument;
    for (int i = 0; i < ROUNDS; i++) {
        struct error err = {.status = ST_OK};
        pthread_barrier_wait(picker->begin);
        for (picker->n = 0; err.status == ST_OK && picker->n < MOST_PICKS;) {
            struct pool_request request = {.n_tokens = 10};
            struct pool_pick pick;
            if (pool_pick(picker->reader, &request, &pick, &err) == ST_OK) {
                picker->tickets[picker->n++] = pick.ticket;
            }
        }
        picker->n_wrong += err.status != ST_NO_ENDPOINT;
        pthread_barrier_wait(picker->end); /* the test looks at the counts */
        pthread_barrier_wait(picker->begin);
        for (size_t k = 0; k < picker->n; k++) {
            pool_release_ticket(picker->pool, &picker->tickets[k]);
        }
        pthread_barrier_wait(picker->end);
    }
    return NULL;
}

static void expect_limit(const struct plugin *plugin, const char *parameters) {
    struct fixture fixture;
    pthread_barrier_t begin, end;
    pthread_t threads[PICKERS];
    static struct picker pickers[PICKERS];
    struct error err;
    fixture_open(&fixture, fixture_spec_with_filter(N, plugin, parameters));
    pthread_barrier_init(&begin, NULL, PICKERS + 1);
    pthread_barrier_init(&end, NULL, PICKERS + 1);
    for (int i = 0; i < PICKERS; i++) {
        pickers[i] = (struct picker){.pool = fixture.pool, .begin = &begin, .end = &end};
        assert_int_equal(pool_reader_new(fixture.pool, (uint64_t)i, &pickers[i].reader, &err),
                         ST_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run_picker, &pickers[i]), 0);
    }
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture.reader);
    unsigned n_other = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        for (uint32_t k = 0; k < N; k++) {
            n_other += endpoint_in_flight(snapshot->members[k].endpoint) != LIMIT;
        }
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
    }
    assert_int_equal(n_other, 0);
    for (int i = 0; i < PICKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(pickers[i].n_wrong, 0);
        pool_reader_unref(pickers[i].reader);
    }
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(endpoint_in_flight(snapshot->members[k].endpoint), 0);
    }
    pthread_barrier_destroy(&begin);
    pthread_barrier_destroy(&end);
    fixture_close(&fixture);
}

static void concurrency_detector_limit_holds(void **state) {
    (void)state;
    expect_limit(&plugin_concurrency_detector, "{maxConcurrency: 1, headroom: 1}");
}

static void concurrency_detector_limit_of_tokens_holds(void **state) {
    (void)state;
    expect_limit(&plugin_concurrency_detector,
                 "{concurrencyMode: tokens, maxTokenConcurrency: 20}");
}

static void utilization_filter_limit_holds(void **state) {
    (void)state;
    expect_limit(&plugin_utilization_filter,
                 "{conditions: [{metric: active-requests, maxValue: 1}]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concurrency_detector_limit_holds),
        cmocka_unit_test(concurrency_detector_limit_of_tokens_holds),
        cmocka_unit_test(utilization_filter_limit_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

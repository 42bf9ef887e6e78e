/* When endpoints are scraped, with a clock that the test drives: how often, how evenly, within the
 * limit in each second, and less often without answers. */
#include "pick/discovery/scrape/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t MS = 1000000;
static const uint64_t S = 1000000000;

struct asked {
    struct scrape_job job; /* first: a job is cast to it */
    uint64_t last_ns, shortest_ns, longest_ns;
    unsigned n;
    bool silent;
};

struct world {
    struct scrape_schedule schedule;
    struct scrape_rate rate;
    struct asked *endpoints;
    size_t n;
    uint64_t now_ns;
    uint64_t *times; /* of all taken jobs */
    size_t n_times;
};

enum { MOST_TIMES = 200000 };

static void open_world(struct world *world, size_t n, uint64_t interval_ns, uint32_t most) {
    *world = (struct world){.schedule.prng.state = 7, .n = n, .now_ns = 100 * S};
    world->endpoints = calloc(n, sizeof(*world->endpoints));
    world->times = calloc(MOST_TIMES, sizeof(*world->times));
    assert_true(world->endpoints && world->times);
    scrape_schedule_set_rate(&world->schedule, interval_ns, most);
    scrape_rate_set(&world->rate, interval_ns, most);
    for (size_t i = 0; i < n; i++) {
        struct scrape_job *job = &world->endpoints[i].job;
        assert_true(scrape_schedule_add(&world->schedule, job, &world->rate, world->now_ns));
    }
}

static void close_world(struct world *world) {
    scrape_schedule_fini(&world->schedule);
    free(world->endpoints);
    free(world->times);
}

static void scrape_endpoint(struct world *world, struct asked *asked) {
    uint64_t gap_ns = world->now_ns - asked->last_ns;
    if (asked->n++ > 0) {
        bool shorter = asked->shortest_ns == 0 || gap_ns < asked->shortest_ns;
        asked->shortest_ns = shorter ? gap_ns : asked->shortest_ns;
        asked->longest_ns = gap_ns > asked->longest_ns ? gap_ns : asked->longest_ns;
    }
    asked->last_ns = world->now_ns;
    assert_true(world->n_times < MOST_TIMES);
    world->times[world->n_times++] = world->now_ns;
}

/* Runs the schedule as the scraper does; each answer takes a millisecond. */
static void run_schedule(struct world *world, uint64_t for_ns) {
    uint64_t end_ns = world->now_ns + for_ns;
    while (world->now_ns < end_ns) {
        struct scrape_job *job;
        while ((job = scrape_schedule_pop_due(&world->schedule, world->now_ns))) {
            struct asked *asked = (struct asked *)(void *)job;
            scrape_endpoint(world, asked);
            assert_true(scrape_schedule_put_back(&world->schedule, job, world->now_ns,
                                                 world->now_ns + MS, !asked->silent));
        }
        uint64_t next_ns = scrape_schedule_next_ns(&world->schedule, world->now_ns);
        assert_true(next_ns > world->now_ns);
        world->now_ns = next_ns;
    }
}

/* Returns: the largest number of scrapes in any second. */
static size_t most_in_a_second(const struct world *world) {
    size_t most = 0;
    for (size_t i = 0, first = 0; i < world->n_times; i++) {
        while (world->times[i] - world->times[first] >= S) {
            first++;
        }
        most = i - first + 1 > most ? i - first + 1 : most;
    }
    return most;
}

static void schedule_interval_is_kept(void **state) {
    (void)state;
    static const size_t counts[] = {1, 2, 10, 90};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct world world;
        open_world(&world, counts[i], 200 * MS, 500);
        run_schedule(&world, 20 * S);
        for (size_t k = 0; k < world.n; k++) {
            const struct asked *asked = &world.endpoints[k];
            assert_true(asked->shortest_ns >= 200 * MS);
            assert_true(asked->longest_ns <=
                        260 * MS); /* a tenth, and the time until others are due */
            assert_in_range(asked->n, 20000 / 260, 100);
        }
        close_world(&world);
    }
}

static void schedule_rate_limit_is_kept(void **state) {
    (void)state;
    static const struct {
        size_t n;
        uint32_t most;
    } cases[] = {{100, 500}, {1000, 500}, {10000, 500}, {100, 20}, {3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world world;
        open_world(&world, cases[i].n, 200 * MS, cases[i].most);
        run_schedule(&world, 60 * S);
        assert_true(most_in_a_second(&world) <= cases[i].most);
        /* the limit is used up */
        assert_true(world.n_times >= (size_t)60 * cases[i].most * 85 / 100);
        for (size_t k = 0; k < world.n; k++) {
            assert_true(world.endpoints[k].n >= 60 * cases[i].most / cases[i].n * 3 / 4);
        }
        close_world(&world);
    }
}

static void schedule_pause_is_not_caught_up(void **state) {
    struct world world;
    (void)state;
    open_world(&world, 1000, 200 * MS, 500);
    run_schedule(&world, 5 * S);
    world.now_ns += 3600 * S; /* the process was stopped, or the clock jumped */
    run_schedule(&world, 5 * S);
    assert_true(most_in_a_second(&world) <= 500);
    close_world(&world);
}

static void schedule_silent_endpoint_backs_off(void **state) {
    struct world world;
    (void)state;
    open_world(&world, 2, 200 * MS, 500);
    world.endpoints[0].silent = true;
    run_schedule(&world, 120 * S);
    assert_in_range(world.endpoints[0].n, 12, 25);
    assert_in_range(world.endpoints[0].longest_ns, 10 * S, 11 * S + 100 * MS);
    assert_true(world.endpoints[1].n > 450);
    world.endpoints[0].silent = false; /* one answer resets the wait */
    unsigned before = world.endpoints[0].n;
    run_schedule(&world, 31 * S);
    assert_true(world.endpoints[0].n - before > 80);
    close_world(&world);
}

/* Two pickers that start together do not scrape at the same times. */
static void schedule_times_are_jittered(void **state) {
    (void)state;
    struct world one, other;
    size_t n_same = 0;
    open_world(&one, 10, 200 * MS, 500);
    open_world(&other, 10, 200 * MS, 500);
    other.schedule.prng.state = 8;
    run_schedule(&one, 10 * S);
    run_schedule(&other, 10 * S);
    for (size_t i = 0, k = 0; i < one.n_times && k < other.n_times;) {
        n_same += one.times[i] == other.times[k];
        *(one.times[i] <= other.times[k] ? &i : &k) += 1;
    }
    assert_true(n_same < one.n_times / 10);
    close_world(&one);
    close_world(&other);
}

static void schedule_removed_job_is_not_run(void **state) {
    struct world world;
    (void)state;
    open_world(&world, 3, 200 * MS, 500);
    scrape_schedule_remove(&world.schedule, &world.endpoints[1].job);
    run_schedule(&world, S);
    assert_int_equal(world.endpoints[1].n, 0);
    assert_true(world.endpoints[2].n >= 3);
    scrape_schedule_remove(&world.schedule, &world.endpoints[0].job);
    scrape_schedule_remove(&world.schedule, &world.endpoints[2].job);
    assert_null(scrape_schedule_pop_due(&world.schedule, world.now_ns + 10 * S));
    assert_true(scrape_schedule_next_ns(&world.schedule, world.now_ns) == UINT64_MAX);
    close_world(&world);
}

/* Two pools in one schedule: each has its own interval and limit, and the higher limit holds for
 * both together. */
static void schedule_two_rates_are_kept(void **state) {
    (void)state;
    enum { N = 300, LAST = 40 }; /* the last ones are in the other pool */
    struct world world;
    struct scrape_rate other = {.n_jobs = 0};
    open_world(&world, N, 200 * MS, 500);
    scrape_rate_set(&other, 100 * MS, 20);
    scrape_schedule_set_rate(&world.schedule, 100 * MS, 500);
    for (size_t i = N - LAST; i < N; i++) {
        struct scrape_job *job = &world.endpoints[i].job;
        scrape_schedule_remove(&world.schedule, job);
        assert_true(scrape_schedule_add(&world.schedule, job, &other, world.now_ns));
    }
    assert_int_equal(world.rate.n_jobs, N - LAST);
    assert_int_equal(other.n_jobs, LAST);
    run_schedule(&world, 60 * S);
    assert_in_range(most_in_a_second(&world), 300, 500);
    for (size_t i = 0; i < N; i++) {
        bool is_other = i >= N - LAST; /* 2 s at their limit; the others 0.6 s at the common one */
        assert_in_range(world.endpoints[i].n, is_other ? 24 : 80, is_other ? 32 : 102);
    }
    close_world(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule_interval_is_kept),
        cmocka_unit_test(schedule_rate_limit_is_kept),
        cmocka_unit_test(schedule_two_rates_are_kept),
        cmocka_unit_test(schedule_pause_is_not_caught_up),
        cmocka_unit_test(schedule_silent_endpoint_backs_off),
        cmocka_unit_test(schedule_times_are_jittered),
        cmocka_unit_test(schedule_removed_job_is_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

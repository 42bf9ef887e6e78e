/* The goals of the picker's judgement, in simulated time, which is exact: while a server, a client
 * or the load misbehaves, at most two of a hundred good requests fail that an oracle would have
 * served, and capacity is back within two seconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "faults.h"

static const uint32_t SIZES[] = {3, 10, 100};
enum { N_SIZES = sizeof(SIZES) / sizeof(SIZES[0]) };

/* Each is run once: several tests look at it. */
static struct sim_fault_result run(const char *name, enum sim_judge judge, uint32_t n_servers) {
    static struct sim_fault_result results[32][SIM_N_JUDGES][128];
    const struct sim_fault_scenario *scenario = sim_fault_scenario_find(name);
    assert_non_null(scenario);
    assert_true(SIM_N_FAULT_SCENARIOS <= 32 && n_servers < 128);
    struct sim_fault_result *done = &results[scenario - SIM_FAULT_SCENARIOS][judge][n_servers];
    if (done->n == 0) {
        sim_faults_run(scenario, judge, n_servers, 1, done);
    }
    assert_true(done->n > 0 && done->n_good <= done->n);
    return *done;
}

static double share_of(const struct sim_fault_result *done) {
    return (double)done->n_good / done->n;
}

static void faults_lose_two_percent_at_most(void **state) {
    (void)state;
    for (size_t i = 0; i < SIM_N_FAULT_SCENARIOS * N_SIZES; i++) {
        const char *name = SIM_FAULT_SCENARIOS[i / N_SIZES].name;
        struct sim_fault_result ours = run(name, SIM_JUDGE_POOL, SIZES[i % N_SIZES]);
        struct sim_fault_result best = run(name, SIM_JUDGE_ORACLE, SIZES[i % N_SIZES]);
        assert_int_equal(ours.n, best.n);
        assert_true(share_of(&ours) > share_of(&best) - 0.02);
    }
}

/* Two of three servers, at a fifth of their capacity, get 336 requests while they fail: those by
 * which they are judged and tried are nearly 2 % of all, and more with some random numbers. */
static void faults_of_most_lose_two_percent_on_average(void **state) {
    const struct sim_fault_scenario *scenario = sim_fault_scenario_find("most-500");
    enum { N_SEEDS = 8 };
    double lost = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        struct sim_fault_result ours;
        sim_faults_run(scenario, SIM_JUDGE_POOL, 3, seed, &ours);
        lost += 1 - share_of(&ours);
        assert_true(share_of(&ours) > 1 - 0.025);
    }
    assert_true(lost / N_SEEDS < 0.02);
}

/* Also after a hang: a trial without an answer is followed by others. When that is, chance decides:
 * of 40 runs six took more than 2 s, whether equal scores go to the fewest requests or to any. */
static void faults_end_and_capacity_is_back(void **state) {
    enum { N_SEEDS = 4 };
    (void)state;
    for (size_t i = 0; i < SIM_N_FAULT_SCENARIOS * N_SIZES; i++) {
        const struct sim_fault_scenario *scenario = &SIM_FAULT_SCENARIOS[i / N_SIZES];
        bool hangs = scenario->fault == SIM_HANGS;
        size_t n = hangs ? N_SEEDS : 1;
        double sum = 0;
        for (uint64_t seed = 1; seed <= n; seed++) {
            struct sim_fault_result ours;
            sim_faults_run(scenario, SIM_JUDGE_POOL, SIZES[i % N_SIZES], seed, &ours);
            assert_true(ours.back_s < (hangs ? 2.5 : 2));
            sum += ours.back_s;
        }
        assert_true(sum / (double)n < 2);
    }
}

static void faults_leave_latency_near_the_oracle(void **state) {
    (void)state;
    for (size_t i = 0; i < SIM_N_FAULT_SCENARIOS * N_SIZES; i++) {
        const struct sim_fault_scenario *scenario = &SIM_FAULT_SCENARIOS[i / N_SIZES];
        struct sim_fault_result ours = run(scenario->name, SIM_JUDGE_POOL, SIZES[i % N_SIZES]);
        struct sim_fault_result best = run(scenario->name, SIM_JUDGE_ORACLE, SIZES[i % N_SIZES]);
        if (scenario->fault != SIM_IS_SLOW) {
            assert_true(ours.p99_s < 1.25 * best.p99_s);
        }
    }
}

/* A server that fails at once has the fewest requests in flight. */
static void faults_fast_failures_do_not_attract(void **state) {
    static const char *const names[] = {"one-500", "one-502", "one-503", "one-401",
                                        "one-403", "one-404", "one-429"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) * N_SIZES; i++) {
        struct sim_fault_result ours = run(names[i / N_SIZES], SIM_JUDGE_POOL, SIZES[i % N_SIZES]);
        struct sim_fault_result theirs =
            run(names[i / N_SIZES], SIM_JUDGE_LLM_D, SIZES[i % N_SIZES]);
        assert_true(ours.n_of_first < theirs.n_of_first / 20);
    }
}

/* Time-outs are long, so that no failure shows that the server hangs; its page says that it has
 * room. */
static void faults_hang_without_time_outs_attracts_nothing(void **state) {
    struct sim_fault_scenario scenario = *sim_fault_scenario_find("one-hangs");
    (void)state;
    scenario.hang_ms = 60000;
    for (size_t i = 0; i < N_SIZES; i++) {
        struct sim_fault_result ours;
        sim_faults_run(&scenario, SIM_JUDGE_POOL, SIZES[i], 1, &ours);
        assert_true(share_of(&ours) > 0.98);
    }
}

static void faults_same_seed_repeats_exactly(void **state) {
    (void)state;
    for (size_t i = 0; i < SIM_N_FAULT_SCENARIOS; i++) {
        struct sim_fault_result one = run(SIM_FAULT_SCENARIOS[i].name, SIM_JUDGE_POOL, 5), two;
        sim_faults_run(&SIM_FAULT_SCENARIOS[i], SIM_JUDGE_POOL, 5, 1, &two);
        assert_memory_equal(&one, &two, sizeof(one));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_lose_two_percent_at_most),
        cmocka_unit_test(faults_of_most_lose_two_percent_on_average),
        cmocka_unit_test(faults_end_and_capacity_is_back),
        cmocka_unit_test(faults_leave_latency_near_the_oracle),
        cmocka_unit_test(faults_fast_failures_do_not_attract),
        cmocka_unit_test(faults_hang_without_time_outs_attracts_nothing),
        cmocka_unit_test(faults_same_seed_repeats_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Properties of profiles that must hold, in simulated time, which is exact; and of the simulated
 * servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "events.h"
#include "run.h"

enum { SEEDS = 3 };

static struct sim_result run(const char *scenario, const char *profile, uint32_t n_servers,
                             uint64_t seed) {
    struct sim_setting setting = {.scenario = sim_scenario_find(scenario),
                                  .profile = sim_profile_find(profile),
                                  .n_servers = n_servers,
                                  .seconds = 20,
                                  .seed = seed};
    static struct sim_result result;
    assert_non_null(setting.scenario);
    assert_non_null(setting.profile);
    sim_run(&setting, &result);
    assert_true(result.n > 0 && result.mean_s > 0 && result.p99_s >= result.mean_s);
    return result;
}

/* ---- profiles -------------------------------------------------------------------------------- */

static void simulate_same_seed_repeats_exactly(void **state) {
    (void)state;
    for (size_t i = 0; i < SIM_N_PROFILES; i++) {
        for (size_t k = 0; k < SIM_N_SCENARIOS; k++) {
            const char *scenario = SIM_SCENARIOS[k].name, *profile = SIM_PROFILES[i].name;
            struct sim_result one = run(scenario, profile, 4, 1),
                              two = run(scenario, profile, 4, 1);
            assert_memory_equal(&one, &two, sizeof(one));
        }
    }
    struct sim_result one = run("even", "default", 4, 1), other = run("even", "default", 4, 2);
    assert_true(one.mean_s != other.mean_s);
}

/* In each scenario the waiting time is shorter than with random picks. Round robin is as good only
 * where all servers and all requests are alike. */
static void simulate_default_profile_beats_random_and_round_robin(void **state) {
    static const uint32_t sizes[] = {8, 40};
    (void)state;
    for (size_t k = 0; k < SIM_N_SCENARIOS * 2; k++) {
        const struct sim_scenario *scenario = &SIM_SCENARIOS[k / 2];
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct sim_result ours = run(scenario->name, "default", sizes[k % 2], seed);
            struct sim_result chance = run(scenario->name, "random", sizes[k % 2], seed);
            struct sim_result turns = run(scenario->name, "round-robin", sizes[k % 2], seed);
            assert_true(ours.mean_s < chance.mean_s && ours.p99_s < chance.p99_s);
            if (scenario->n_slow > 0 || scenario->prefixes_per_server > 0) {
                assert_true(ours.mean_s < turns.mean_s && ours.p99_s < turns.p99_s);
            }
        }
    }
}

/* It gets what it can process; round robin gives it an eighth. */
static void simulate_slow_server_gets_fewer_requests(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_result ours = run("slow", "default", 8, seed);
        struct sim_result turns = run("slow", "round-robin", 8, seed);
        uint32_t n = 0;
        for (uint32_t i = 0; i < 8; i++) {
            n += turns.n_of[i];
        }
        assert_int_equal(turns.n_of[0], n / 8);
        assert_true(ours.n_of[0] < n / 16);
        for (uint32_t i = 1; i < 8; i++) {
            assert_true(ours.n_of[i] > n / 9);
        }
    }
}

static void simulate_shared_prefixes_reach_their_cache(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_result ours = run("prefixes", "default", 8, seed);
        struct sim_result blind = run("prefixes", "no-prefix", 8, seed);
        assert_true(ours.hits > 0.9);
        assert_true(blind.hits < 0.8);
        assert_true(ours.mean_s < blind.mean_s / 2 && ours.p99_s < blind.p99_s);
    }
}

/* Reports are old when a burst arrives: a profile that uses reports only sends a burst to one
 * server; our own in-flight counts prevent that. */
static void simulate_bursts_do_not_herd(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_result ours = run("bursts", "default", 8, seed);
        struct sim_result cache = run("bursts", "kv", 8, seed);
        assert_true(ours.p99_s < cache.p99_s / 2);
    }
}

/* ---- servers --------------------------------------------------------------------------------- */

static const struct sim_request SHORT = {.n_prompt = 2000, .n_answer = 100};

static void simulate_server_computes_prompts_one_by_one(void **state) {
    struct sim_server server = {.speed = 1};
    struct sim_request requests[2] = {SHORT, SHORT};
    (void)state;
    sim_server_take(&server, &requests[0]);
    sim_server_take(&server, &requests[1]);
    assert_ptr_equal(sim_server_begin(&server, 1000), &requests[0]);
    assert_ptr_equal(sim_server_begin(&server, 1000), &requests[1]);
    assert_null(sim_server_begin(&server, 1000));
    assert_int_equal(requests[0].first_ns, 1000 + 100000000); /* 2,000 of 20,000 per second */
    assert_int_equal(requests[0].end_ns - requests[0].first_ns, 100 * SERVER_TOKEN_NS);
    assert_int_equal(requests[1].first_ns, 1000 + 200000000);
    assert_true(requests[1].end_ns - requests[1].first_ns > 100 * SERVER_TOKEN_NS);
}

static void simulate_server_queues_when_slots_or_cache_are_full(void **state) {
    struct sim_server server = {.speed = 1};
    struct sim_request requests[SERVER_SLOTS + 1], large[3];
    struct endpoint_load load = {0};
    (void)state;
    for (int i = 0; i <= SERVER_SLOTS; i++) {
        requests[i] = (struct sim_request){.n_prompt = 10, .n_answer = 10};
        sim_server_take(&server, &requests[i]);
        assert_true((sim_server_begin(&server, 1) != NULL) == (i < SERVER_SLOTS));
    }
    sim_server_say(&server, &load);
    assert_int_equal(load.n_running, SERVER_SLOTS);
    assert_int_equal(load.n_waiting, 1);
    sim_server_end(&server, &requests[5]);
    assert_ptr_equal(sim_server_begin(&server, 2), &requests[SERVER_SLOTS]);
    server = (struct sim_server){.speed = 1};
    for (int i = 0; i < 3; i++) {
        large[i] = (struct sim_request){.n_prompt = SERVER_KV_TOKENS / 2, .n_answer = 0};
        sim_server_take(&server, &large[i]);
        assert_true((sim_server_begin(&server, 1) != NULL) == (i < 2));
    }
    sim_server_say(&server, &load);
    assert_true(load.kv_cache_used == 1);
}

static void simulate_server_skips_cached_prefixes(void **state) {
    struct sim_server server = {.speed = 0.25};
    struct sim_request requests[SERVER_PREFIXES + 2];
    (void)state;
    for (uint32_t i = 0; i < SERVER_PREFIXES + 2; i++) {
        uint32_t prefix = i < 2 ? 1 : i; /* the first one twice, then so many others that it is
                                            replaced */
        requests[i] = (struct sim_request){.n_prompt = 1100, .prefix = prefix, .n_prefix = 1000};
        server.prompts_until_ns = 0;
        sim_server_take(&server, &requests[i]);
        assert_ptr_equal(sim_server_begin(&server, 1 + i), &requests[i]);
        uint64_t n_computed = i == 1 ? 100 : 1100;
        assert_int_equal(requests[i].first_ns - (1 + i), n_computed * 200000); /* a quarter of the
                                                                                  speed */
    }
    assert_int_equal(server.n_hits, 1);
    sim_server_take(&server, &requests[0]);
    sim_server_begin(&server, 100);
    assert_int_equal(server.n_hits, 1);
}

static void simulate_events_are_in_order(void **state) {
    struct sim_events events = {.n = 0};
    struct sim_event event;
    struct prng prng = {9};
    uint64_t last_ns = 0, last_order = 0;
    (void)state;
    for (uint32_t i = 0; i < 2000; i++) {
        sim_events_add(&events, prng_below(&prng, 100), SIM_END, i);
    }
    for (uint32_t i = 0; i < 2000; i++) {
        assert_true(sim_events_next(&events, &event));
        assert_true(event.at_ns > last_ns || (event.at_ns == last_ns && event.order >= last_order));
        assert_int_equal(event.index, event.order);
        last_ns = event.at_ns;
        last_order = event.order;
    }
    assert_false(sim_events_next(&events, &event));
    sim_events_fini(&events);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulate_same_seed_repeats_exactly),
        cmocka_unit_test(simulate_default_profile_beats_random_and_round_robin),
        cmocka_unit_test(simulate_slow_server_gets_fewer_requests),
        cmocka_unit_test(simulate_shared_prefixes_reach_their_cache),
        cmocka_unit_test(simulate_bursts_do_not_herd),
        cmocka_unit_test(simulate_server_computes_prompts_one_by_one),
        cmocka_unit_test(simulate_server_queues_when_slots_or_cache_are_full),
        cmocka_unit_test(simulate_server_skips_cached_prefixes),
        cmocka_unit_test(simulate_events_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What programs have been served, and the order of those that wait. */
#include "pick/pool/flow/programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t S = 1000000000;

static struct keyed_hash id_of(uint64_t i) {
    return (struct keyed_hash){i * UINT64_C(0x9e3779b97f4a7c15), i};
}

static void programs_service_halves_every_half_life(void **state) {
    static const struct program_rules rules = {
        .weight_service = 0.8, .weight_head_wait = 0.2, .half_life_s = 60, .ttl_s = 3600};
    static const struct program_rules lasting = {
        .weight_service = 0.8, .weight_head_wait = 0.2, .half_life_s = 0, .ttl_s = 3600};
    struct programs programs;
    (void)state;
    programs_init(&programs);
    assert_float_equal(programs_service(&programs, &rules, id_of(1)), 0, 0);
    programs_add(&programs, &rules, id_of(1), 100, 10 * S);
    programs_add(&programs, &rules, id_of(2), 8, 70 * S); /* a half-life later */
    assert_float_equal(programs_service(&programs, &rules, id_of(1)), 50, 1e-9);
    assert_float_equal(programs_service(&programs, &lasting, id_of(1)), 100, 1e-9);
    programs_add(&programs, &rules, id_of(1), 7, 130 * S);
    assert_float_equal(programs_service(&programs, &rules, id_of(1)), 32, 1e-9);
    assert_float_equal(programs_service(&programs, &rules, id_of(2)), 4, 1e-9);
    programs_add(&programs, &rules, id_of(2), 1, 100 * S); /* an older time */
    assert_float_equal(programs_service(&programs, &rules, id_of(2)), 5, 1e-9);
    programs_fini(&programs);
}

static void programs_without_requests_are_forgotten(void **state) {
    static const struct program_rules rules = {
        .weight_service = 0.8, .weight_head_wait = 0.2, .half_life_s = 0, .ttl_s = 3600};
    struct programs programs;
    (void)state;
    programs_init(&programs);
    for (uint64_t i = 0; i < 3; i++) {
        programs_add(&programs, &rules, id_of(i), 1, i * S);
    }
    programs_add(&programs, &rules, id_of(2), 1, 3601 * S);
    assert_int_equal(programs.n, 2);
    assert_float_equal(programs_service(&programs, &rules, id_of(1)), 1, 0);
    programs_add(&programs, &rules, id_of(2), 1, 3602 * S);
    assert_int_equal(programs.n, 1);
    programs_fini(&programs);
}

/* However many ids clients make up: the one that was served longest ago gives way. */
static void programs_are_bounded(void **state) {
    static const struct program_rules rules = {
        .weight_service = 0.8, .weight_head_wait = 0.2, .half_life_s = 60, .ttl_s = 0};
    struct programs programs;
    (void)state;
    programs_init(&programs);
    for (uint64_t i = 0; i < PROGRAMS_MAX; i++) {
        programs_add(&programs, &rules, id_of(i), 1, S);
    }
    programs_add(&programs, &rules, id_of(0), 1, S);
    programs_add(&programs, &rules, id_of(PROGRAMS_MAX), 1, S);
    assert_int_equal(programs.n, PROGRAMS_MAX);
    assert_float_equal(programs_service(&programs, &rules, id_of(1)), 0, 0);
    assert_float_equal(programs_service(&programs, &rules, id_of(0)), 2, 0);
    assert_float_equal(programs_service(&programs, &rules, id_of(PROGRAMS_MAX)), 1, 0);
    programs_fini(&programs);
}

static void program_score_weighs_service_and_wait(void **state) {
    static const struct program_rules rules = {
        .weight_service = 0.8, .weight_head_wait = 0.2, .half_life_s = 60, .ttl_s = 3600};
    struct program_range services = {100, 300}, queued = {5, 25}, none = {7, 7};
    (void)state;
    assert_float_equal(program_score(&rules, 100, 5, services, queued), 1, 1e-6);
    assert_float_equal(program_score(&rules, 300, 25, services, queued), 0, 1e-6);
    assert_float_equal(program_score(&rules, 150, 20, services, queued), 0.65, 1e-6);
    assert_float_equal(program_score(&rules, 7, 5, none, queued), 0.6, 1e-6);
}

/* The turn that the next request is, and less by the weight for each second that it came later. */
static void programs_depth_counts_turns_and_wait(void **state) {
    static const struct program_rules rules = {
        .ttl_s = 3600, .strategy = PROGRAMS_DEEPEST, .time_weight = 0.5, .inactivity_s = 120};
    struct programs programs;
    (void)state;
    programs_init(&programs);
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 0), 1, 0);
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 4 * S), -1, 1e-9);
    for (int i = 0; i < 3; i++) {
        programs_begin_turn(&programs, &rules, id_of(1), 10 * S);
    }
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 0), 4, 1e-9);
    /* In flight, it is not idle however long that takes; nor is it forgotten. */
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 1000 * S), 4 - 500, 1e-9);
    programs_add(&programs, &rules, id_of(2), 1, 5000 * S);
    programs_add(&programs, &rules, id_of(1), 1, 5000 * S);
    programs_end_turn(&programs, &rules, id_of(1), 5000 * S);
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 5200 * S), 4 - 2600, 1e-9);
    programs_add(&programs, &rules, id_of(1), 1, 5000 * S);
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 5120 * S), 4 - 2560, 1e-9);
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 5121 * S), 1 - 2560.5, 1e-9);
    programs_end_turn(&programs, &rules, id_of(1), 5000 * S); /* one too many */
    programs_end_turn(&programs, &rules, id_of(3), 5000 * S); /* unknown */
    programs_begin_turn(&programs, &rules, id_of(1), 5121 * S);
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 0), 5, 1e-9);
    programs_fini(&programs);
}

static void programs_without_inactivity_count_turns_on(void **state) {
    static const struct program_rules rules = {.strategy = PROGRAMS_DEEPEST, .time_weight = 0};
    struct programs programs;
    (void)state;
    programs_init(&programs);
    programs_begin_turn(&programs, &rules, id_of(1), S);
    programs_add(&programs, &rules, id_of(1), 1, S);
    assert_float_equal(programs_depth(&programs, &rules, id_of(1), 1000000 * S), 2, 1e-9);
    programs_fini(&programs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_service_halves_every_half_life),
        cmocka_unit_test(programs_without_requests_are_forgotten),
        cmocka_unit_test(programs_are_bounded),
        cmocka_unit_test(programs_depth_counts_turns_and_wait),
        cmocka_unit_test(programs_without_inactivity_count_turns_on),
        cmocka_unit_test(program_score_weighs_service_and_wait),
    };
    return cmocka_run_group_tests_name("pick/pool/flow/programs", tests, NULL, NULL);
}

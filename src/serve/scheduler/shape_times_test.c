/* Times are kept by shapes: what identifies shapes, and which keep their place. */
#include "serve/scheduler/shape_times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MAX_INPUTS = 3, MAX_RANK = 3 };

static struct arena *arena;

static int begin(void **state) {
    (void)state;
    arena = arena_new(NULL, 0);
    return arena ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

static void init(struct shape_times *times, bool is_fixed, bool is_batched) {
    struct error err;
    *times = (struct shape_times){0};
    assert_int_equal(shape_times_init(times, arena, is_fixed, is_batched, &err), ST_OK);
}

/* A request with inputs 0, 1, …; rank -1: the input is left out. */
struct shapes {
    uint64_t batch;
    int rank[MAX_INPUTS];
    int64_t dims[MAX_INPUTS][MAX_RANK];
};

static uint64_t shapes_of(const struct shape_times *times, const struct shapes *shapes) {
    sluice_input inputs[MAX_INPUTS];
    size_t n = 0;
    for (size_t i = 0; i < MAX_INPUTS; i++) {
        if (shapes->rank[i] >= 0) {
            inputs[n++] = (sluice_input){
                .index = (uint32_t)i, .dims = shapes->dims[i], .rank = (size_t)shapes->rank[i]};
        }
    }
    const sluice_request request = {.batch = shapes->batch, .inputs = inputs, .n_inputs = n};
    return shape_times_shapes_of(times, &request);
}

static void shape_times_equal_shapes_are_equal_by_table(void **state) {
    static const struct {
        struct shapes a, b;
        bool is_batched, equal;
    } rows[] = {
        {{1, {1, -1, -1}, {{3}}}, {1, {1, -1, -1}, {{3}}}, false, true},
        {{1, {1, -1, -1}, {{3}}}, {1, {1, -1, -1}, {{4}}}, false, false},
        {{1, {2, -1, -1}, {{3, 4}}}, {1, {2, -1, -1}, {{4, 3}}}, false, false},
        {{1, {1, 1, -1}, {{3}, {4}}}, {1, {1, 1, -1}, {{4}, {3}}}, false, false},
        {{1, {1, -1, -1}, {{3}}}, {1, {-1, 1, -1}, {{0}, {3}}}, false, false},
        {{1, {2, 1, -1}, {{3, 4}, {5}}}, {1, {1, 2, -1}, {{3}, {4, 5}}}, false, false},
        {{1, {0, -1, -1}, {{0}}}, {1, {-1, -1, -1}, {{0}}}, false, false},
        {{1, {2, -1, -1}, {{1, 4}}}, {8, {2, -1, -1}, {{8, 4}}}, true, true},
        {{1, {2, -1, -1}, {{1, 4}}}, {8, {2, -1, -1}, {{8, 4}}}, false, false},
        {{1, {2, -1, -1}, {{1, 4}}}, {8, {2, -1, -1}, {{8, 5}}}, true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct shape_times times;
        init(&times, false, rows[i].is_batched);
        uint64_t a = shapes_of(&times, &rows[i].a), b = shapes_of(&times, &rows[i].b);
        assert_true(a >= SHAPES_HASHED && b >= SHAPES_HASHED);
        assert_int_equal(a == b, rows[i].equal);
    }
}

static void shape_times_zero_dimension_is_never(void **state) {
    static const struct shapes zero = {1, {2, 2, -1}, {{3, 4}, {3, 0}}};
    static const struct shapes no_rows = {0, {2, -1, -1}, {{0, 4}}};
    static const struct shapes one = {1, {2, -1, -1}, {{1, 4}}};
    struct shape_times times;
    (void)state;
    init(&times, false, false);
    assert_int_equal(shapes_of(&times, &zero), SHAPES_NEVER);
    init(&times, true, true);
    assert_int_equal(shapes_of(&times, &no_rows), SHAPES_NEVER);
    assert_int_equal(shapes_of(&times, &one), SHAPES_FIXED);
    assert_ptr_equal(shape_times_find(&times, SHAPES_FIXED), &times.fixed);
    assert_null(shape_times_find(&times, SHAPES_NEVER));
    assert_null(shape_times_get(&times, SHAPES_NEVER));
}

static void shape_times_too_many_numbers_is_never(void **state) {
    enum { RANK = 64, N = 2 };
    int64_t dims[RANK];
    struct shape_times times;
    (void)state;
    for (size_t i = 0; i < RANK; i++) {
        dims[i] = 1;
    }
    const sluice_input inputs[N] = {{.dims = dims, .rank = RANK}, {.dims = dims, .rank = RANK}};
    sluice_request request = {.batch = 1, .inputs = inputs, .n_inputs = N};
    init(&times, false, false);
    assert_int_equal(shape_times_shapes_of(&times, &request), SHAPES_NEVER);
    request.n_inputs = 1;
    assert_true(shape_times_shapes_of(&times, &request) >= SHAPES_HASHED);
}

/* Shapes of the same set. */
static uint64_t nth(uint64_t i) {
    return (i + 1) * SHAPE_TIMES_SETS;
}

static void make_fast(struct shape_times *times, uint64_t shapes) {
    for (int i = 0; i < EXEC_FAST_MIN_COUNT; i++) {
        exec_time_stats_add(shape_times_get(times, shapes), 1000, 1, NULL);
    }
    assert_true(exec_time_stats_is_fast(shape_times_find(times, shapes)));
}

static void shape_times_shapes_have_times_of_their_own(void **state) {
    struct shape_times times;
    (void)state;
    init(&times, false, false);
    make_fast(&times, nth(0));
    assert_null(shape_times_find(&times, nth(1)));
    struct exec_time_stats *other = shape_times_get(&times, nth(1));
    assert_false(exec_time_stats_is_fast(other));
    assert_ptr_equal(shape_times_find(&times, nth(1)), other);
}

/* Those that are not fast give way at once, fast ones after many others, those in use never. */
static void shape_times_fast_shapes_keep_their_place(void **state) {
    struct shape_times times;
    (void)state;
    init(&times, false, false);
    for (uint64_t i = 0; i < SHAPE_TIMES_WAYS; i++) {
        assert_non_null(shape_times_get(&times, nth(i)));
    }
    make_fast(&times, nth(0));
    for (uint64_t i = 0; i < 1000; i++) {
        assert_non_null(shape_times_get(&times, nth(100 + i)));
        assert_non_null(shape_times_find(&times, nth(0)));
    }
    for (uint64_t i = 1; i < SHAPE_TIMES_WAYS; i++) {
        assert_null(shape_times_find(&times, nth(i)));
    }
    init(&times, false, false);
    for (uint64_t i = 0; i < SHAPE_TIMES_WAYS; i++) {
        make_fast(&times, nth(i));
    }
    uint64_t n = 0;
    while (!shape_times_get(&times, nth(100 + n))) {
        assert_non_null(shape_times_find(&times, nth(0)));
        n++;
    }
    assert_in_range(n, SHAPE_TIMES_KEPT - SHAPE_TIMES_WAYS, SHAPE_TIMES_KEPT);
    assert_non_null(shape_times_find(&times, nth(0)));
    assert_false(exec_time_stats_is_fast(shape_times_find(&times, nth(100 + n)))); /* a new start */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_times_equal_shapes_are_equal_by_table),
        cmocka_unit_test(shape_times_zero_dimension_is_never),
        cmocka_unit_test(shape_times_too_many_numbers_is_never),
        cmocka_unit_test(shape_times_shapes_have_times_of_their_own),
        cmocka_unit_test(shape_times_fast_shapes_keep_their_place),
    };
    return cmocka_run_group_tests_name("serve/scheduler/shape_times", tests, begin, end);
}

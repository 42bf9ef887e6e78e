/* Values of states: first values from zeros and files, what counts in the budget, and which answers
 * become the values of a sequence. */
#include "serve/scheduler/sequence/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/repository/test_dir.h"
#include "serve/scheduler/sequence/sequence.h"
#include "serve/scheduler/version.h"

enum { LIMIT_BYTES = 1 << 20 };

/* A budget that tells what is taken. */
struct counter {
    uint64_t n_taken, limit;
};

static bool take(void *user, uint64_t n_bytes) {
    struct counter *counter = user;
    if (n_bytes > counter->limit - counter->n_taken) {
        return false;
    }
    counter->n_taken += n_bytes;
    return true;
}

static void give(void *user, uint64_t n_bytes) {
    struct counter *counter = user;
    assert_true(counter->n_taken >= n_bytes);
    counter->n_taken -= n_bytes;
}

/* A version with one state, "s" → "s_out" of [-1, 2], a sequence, and a call of it. */
struct rig {
    struct test_dir dir;
    char path[PATH_MAX];
    struct counter counter;
    struct shared_budget budget;
    struct model_version *version;
    struct model_state state;
    struct plan_state plan;
    int64_t dims[2], first_dims[2];
    struct sequence *sequence;
    struct call call;
    struct call_run run;
    struct infer_request request;
    sluice_input inputs[1];
    sluice_response response;
    sluice_output output;
    int64_t out_dims[2];
};

static void rig_open(struct rig *rig, enum datatype datatype, const char *file) {
    memset(rig, 0, sizeof(*rig));
    test_dir_make(&rig->dir);
    struct arena *arena = arena_new(NULL, 0);
    rig->counter.limit = LIMIT_BYTES;
    rig->budget = (struct shared_budget){take, give, &rig->counter};
    rig->dims[0] = -1;
    rig->dims[1] = 2;
    rig->first_dims[0] = 1;
    rig->first_dims[1] = 2;
    rig->state = (struct model_state){.input_name = STR("s"),
                                      .output_name = STR("s_out"),
                                      .datatype = datatype,
                                      .dims = {rig->dims, 2},
                                      .initial_file = str_of(file),
                                      .origin = STR("state[0]")};
    rig->plan = (struct plan_state){
        .state = &rig->state,
        .spec = {.name = STR("s_out"), .datatype = datatype, .shape = {rig->dims, 2}},
        .first_shape = {rig->first_dims, 2}};
    rig->version = arena_alloc_aligned(arena, sizeof(*rig->version), CACHE_LINE_BYTES);
    memset(rig->version, 0, sizeof(*rig->version));
    rig->version->arena = arena;
    rig->version->budget = &rig->budget;
    rig->version->directory = str_of(test_dir_path(&rig->dir, "m", rig->path));
    rig->version->plan.states = &rig->plan;
    rig->version->plan.n_states = 1;
}

/* After states_open: a call that starts its sequence. */
static void rig_start_call(struct rig *rig) {
    size_t n = 0;
    rig->request.arena = arena_new(NULL, 0);
    rig->call.request = &rig->request;
    rig->call.run = &rig->run;
    rig->run.version = rig->version;
    rig->run.sequence_params.start = true;
    rig->sequence = calloc(1, sizeof(*rig->sequence));
    assert_non_null(rig->sequence);
    assert_true(sequence_states_init(rig->sequence, 1));
    rig->run.sequence = rig->sequence;
    assert_true(call_states_add(&rig->call, rig->inputs, &n));
    assert_int_equal(n, 1);
    assert_true(call_states_want(&rig->call));
    assert_int_equal(rig->run.backend_request.n_wanted, 1);
    call_states_bind(&rig->call, rig->sequence);
    call_states_start(&rig->call, rig->sequence);
}

/* The next call of the sequence, whose answers before are released. */
static void rig_next_call(struct rig *rig) {
    call_states_release(&rig->call);
    rig->run.sequence_params.start = false;
    call_states_bind(&rig->call, rig->sequence);
    call_states_start(&rig->call, rig->sequence);
}

static enum status rig_answer(struct rig *rig, int64_t rows, int64_t columns, const void *data,
                              size_t n_bytes, struct error *err) {
    rig->out_dims[0] = rows;
    rig->out_dims[1] = columns;
    rig->output = (sluice_output){.datatype = (sluice_datatype)rig->state.datatype,
                                  .dims = rig->out_dims,
                                  .rank = 2,
                                  .data = data,
                                  .n_bytes = n_bytes};
    rig->response = (sluice_response){.size = sizeof(rig->response),
                                      .status = SLUICE_OK,
                                      .outputs = &rig->output,
                                      .n_outputs = 1};
    return call_states_update(&rig->call, &rig->response, err);
}

static const void *shown(const struct rig *rig) {
    return rig->run.states[0].piece.data;
}

static void rig_close(struct rig *rig) {
    if (rig->request.arena) {
        call_states_release(&rig->call);
        sequence_states_fini(rig->sequence);
        free(rig->sequence);
        arena_free(rig->request.arena);
    }
    states_close(rig->version);
    assert_int_equal(rig->counter.n_taken, 0);
    arena_free(rig->version->arena);
    test_dir_remove(&rig->dir);
}

/* ---- first values ---------------------------------------------------------------------------- */

static void states_open_makes_zeros(void **state) {
    static const unsigned char zeros[8];
    static struct rig rig;
    struct error err;
    (void)state;
    rig_open(&rig, DT_FP32, "");
    assert_int_equal(states_open(rig.version, &err), ST_OK);
    assert_true(rig.counter.n_taken >= 8);
    rig_start_call(&rig);
    assert_int_equal(rig.inputs[0].n_bytes, 8);
    assert_int_equal(rig.inputs[0].dims[0], 1);
    assert_int_equal((uintptr_t)shown(&rig) % 64, 0);
    assert_memory_equal(shown(&rig), zeros, 8);
    rig_close(&rig);
}

static void states_open_reads_files_and_refuses_wrong_ones(void **state) {
    static const struct {
        enum datatype datatype;
        const char *data;
        size_t n_bytes;
        const char *reason; /* NULL: it fits */
    } rows[] = {
        {DT_INT32, "abcdefgh", 8, NULL},
        {DT_INT32, "abcdefg", 7, "has 7 bytes; expected 8"},
        {DT_INT32, "abcdefghi", 9, "has 9 bytes; expected 8"},
        {DT_BYTES, "\1\0\0\0a\0\0\0\0", 9, NULL},
        {DT_BYTES, "\1\0\0\0a", 5, "expected 2 BYTES elements"},
        {DT_BYTES, "\xff\xff\xff\xff", 4, "initial_state/f"},
        {DT_BYTES, "", 0, "expected 2 BYTES elements"},
        {DT_INT32, NULL, 0, "cannot open"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static struct rig rig;
        struct error err;
        rig_open(&rig, rows[i].datatype, "f");
        if (rows[i].data) {
            test_dir_add_bytes(&rig.dir, "m/initial_state/f", rows[i].data, rows[i].n_bytes);
        }
        enum status st = states_open(rig.version, &err);
        assert_int_equal(st == ST_OK, rows[i].reason == NULL);
        if (rows[i].reason &&
            (!strstr(err.text, rows[i].reason) || !strstr(err.text, "state[0]"))) {
            fail_msg("row %zu: %s", i, err.text);
        }
        if (st == ST_OK) {
            rig_start_call(&rig);
            assert_memory_equal(shown(&rig), rows[i].data, rows[i].n_bytes);
        }
        rig_close(&rig);
    }
}

static void states_open_over_budget_or_size_is_refused(void **state) {
    static struct rig rig;
    struct error err;
    (void)state;
    rig_open(&rig, DT_FP64, "");
    rig.first_dims[0] = LIMIT_BYTES / 16;
    assert_int_equal(states_open(rig.version, &err), ST_OVERLOADED);
    assert_non_null(strstr(err.text, "--client-memory"));
    rig_close(&rig);
    static const int64_t sizes[] = {INT64_C(1) << 28, INT64_C(1) << 61, INT64_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rig_open(&rig, DT_FP64, "");
        rig.first_dims[0] = sizes[i];
        assert_int_equal(states_open(rig.version, &err), ST_BAD_CONFIG);
        assert_non_null(strstr(err.text, "its first value is larger than"));
        rig_close(&rig);
    }
}

/* ---- values of a sequence -------------------------------------------------------------------- */

static void call_states_update_makes_the_next_value(void **state) {
    static struct rig rig;
    struct error err;
    (void)state;
    rig_open(&rig, DT_UINT8, "");
    assert_int_equal(states_open(rig.version, &err), ST_OK);
    uint64_t first = rig.counter.n_taken;
    rig_start_call(&rig);
    assert_int_equal(rig_answer(&rig, 2, 2, "abcd", 4, &err), ST_OK); /* it grows */
    const void *before = shown(&rig); /* what was shown stays as it was */
    assert_memory_equal(before, "\0\0", 2);
    rig_next_call(&rig);
    assert_int_equal(rig.inputs[0].n_bytes, 4);
    assert_int_equal(rig.inputs[0].dims[0], 2);
    assert_memory_equal(shown(&rig), "abcd", 4);
    assert_int_equal(rig_answer(&rig, 0, 2, NULL, 0, &err), ST_OK);
    rig_next_call(&rig);
    assert_int_equal(rig.inputs[0].n_bytes, 0);
    assert_int_equal(rig.inputs[0].n_pieces, 0);
    rig.run.sequence_params.start = true; /* a start drops what there was */
    call_states_release(&rig.call);
    call_states_bind(&rig.call, rig.sequence);
    call_states_start(&rig.call, rig.sequence);
    assert_memory_equal(shown(&rig), "\0\0", 2);
    assert_int_equal(rig.counter.n_taken, first);
    rig_close(&rig);
}

static void call_states_update_refused_answer_keeps_the_value(void **state) {
    static struct rig rig;
    struct error err;
    (void)state;
    rig_open(&rig, DT_UINT8, "");
    assert_int_equal(states_open(rig.version, &err), ST_OK);
    rig_start_call(&rig);
    assert_int_equal(rig_answer(&rig, 1, 2, "ab", 2, &err), ST_OK);
    uint64_t taken = rig.counter.n_taken;
    static unsigned char large[LIMIT_BYTES];
    assert_int_equal(rig_answer(&rig, 1, 3, "abc", 3, &err), ST_BACKEND_FAILED);
    assert_non_null(strstr(err.text, "state \"s_out\": its shape is [1,3]"));
    assert_int_equal(rig_answer(&rig, 1, 2, "abc", 3, &err), ST_BACKEND_FAILED);
    assert_int_equal(rig_answer(&rig, 1, 2, NULL, 2, &err), ST_BACKEND_FAILED);
    assert_int_equal(rig_answer(&rig, -1, 2, "ab", 2, &err), ST_BACKEND_FAILED);
    assert_int_equal(rig_answer(&rig, LIMIT_BYTES / 2, 2, large, sizeof(large), &err),
                     ST_OVERLOADED);
    assert_int_equal(rig.counter.n_taken, taken);
    rig.response.status = SLUICE_INTERNAL; /* the answer of a failed execution */
    rig.output.data = "cd";
    assert_int_equal(call_states_update(&rig.call, &rig.response, &err), ST_OK);
    rig_next_call(&rig);
    assert_memory_equal(shown(&rig), "ab", 2);
    rig_close(&rig);
}

static void call_states_update_at_the_end_keeps_nothing(void **state) {
    static struct rig rig;
    struct error err;
    (void)state;
    rig_open(&rig, DT_UINT8, "");
    assert_int_equal(states_open(rig.version, &err), ST_OK);
    rig_start_call(&rig);
    uint64_t taken = rig.counter.n_taken;
    rig.run.sequence_params.end = true;
    assert_int_equal(rig_answer(&rig, 1, 2, "ab", 2, &err), ST_OK);
    assert_int_equal(rig.counter.n_taken, taken);
    assert_null(rig.sequence->states[0]);
    rig_close(&rig);
}

/* An answer that is still being sent may refer to the input. */
static void call_states_hold_outlives_the_call(void **state) {
    static struct rig rig;
    struct error err;
    struct state_value **held;
    (void)state;
    rig_open(&rig, DT_UINT8, "");
    assert_int_equal(states_open(rig.version, &err), ST_OK);
    rig_start_call(&rig);
    assert_int_equal(rig_answer(&rig, 1, 2, "ab", 2, &err), ST_OK);
    rig_next_call(&rig);
    const void *bytes = shown(&rig);
    assert_true(call_states_hold(&rig.call, rig.version->arena, &held));
    uint64_t taken = rig.counter.n_taken;
    assert_int_equal(rig_answer(&rig, 1, 2, "cd", 2, &err), ST_OK);
    rig_next_call(&rig);
    assert_true(rig.counter.n_taken > taken);
    assert_memory_equal(bytes, "ab", 2);
    call_states_unhold(held, rig.version);
    assert_int_equal(rig.counter.n_taken, taken);
    call_states_release(&rig.call);
    assert_true(call_states_hold(&rig.call, rig.version->arena, &held));
    assert_null(held); /* nothing to be held */
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_open_makes_zeros),
        cmocka_unit_test(states_open_reads_files_and_refuses_wrong_ones),
        cmocka_unit_test(states_open_over_budget_or_size_is_refused),
        cmocka_unit_test(call_states_update_makes_the_next_value),
        cmocka_unit_test(call_states_update_refused_answer_keeps_the_value),
        cmocka_unit_test(call_states_update_at_the_end_keeps_nothing),
        cmocka_unit_test(call_states_hold_outlives_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

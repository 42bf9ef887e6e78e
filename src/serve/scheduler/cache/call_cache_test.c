/* Models with the response cache: which calls are equal, which are never cached, and that a hit
 * returns the model's answer. */
#include "serve/scheduler/cache/call_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

enum { LIMIT = 1 << 20 };

static const struct model_config plain = {.run_on = RUN_ON_INSTANCE, .response_cache = true};
static const struct model_config in_order = {
    .run_on = RUN_ON_INSTANCE, .response_cache = true, .preserve_ordering = true};

static struct response_cache *begin(struct rig *rig, const struct model_config *config) {
    struct response_cache *cache;
    struct error err;
    rig_open(rig, config, 0);
    assert_int_equal(response_cache_new(LIMIT, &cache, &err), ST_OK);
    cache_scope_open(&rig->version->cache, cache);
    return cache;
}

static void end(struct rig *rig, struct response_cache *cache) {
    rig_await_unused(rig);
    assert_int_equal(atomic_load(&rig->model->n_released), atomic_load(&rig->model->n_started));
    rig_close(rig);
    response_cache_free(cache);
    assert_int_equal(metric_read(METRIC_RESPONSE_CACHE_BYTES), 0);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

static struct model_statistics counted(const struct rig *rig) {
    struct model_statistics statistics;
    model_version_statistics(rig->version, &statistics);
    return statistics;
}

static void assert_echoed(const struct rig_call *call) {
    assert_int_equal(call->n_done, 1);
    assert_int_equal(call->error.status, ST_OK);
    assert_int_equal(call->y_rank, 2);
    assert_int_equal(call->y_dims[0], call->dims[0]);
    assert_int_equal(call->y_dims[1], RIG_WIDTH);
    assert_memory_equal(call->y, call->x, call->piece.n_bytes);
}

/* ---- hits ------------------------------------------------------------------------------------ */

static int64_t rows_asked;

static void ask(struct rig *rig) {
    rig_submit(rig_make(rig, 0, rows_asked, 5));
}

static void cache_hit_returns_model_response(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &plain);
    (void)state;
    for (rows_asked = 1; rows_asked <= 3; rows_asked++) {
        for (int i = 0; i < 3; i++) {
            rig_run(&rig, ask, 1);
            assert_echoed(&rig.calls[0]);
            assert_int_equal(rig.calls[0].n_outputs, 2);
            assert_int_equal(rig.calls[0].call.cached, i == 0 ? CALL_CACHE_MISS : CALL_CACHE_HIT);
        }
    }
    struct model_statistics statistics = counted(&rig);
    assert_int_equal(statistics.n_executions, 3);
    assert_int_equal(statistics.success.count, 9);
    assert_int_equal(statistics.queue.count, 9);
    assert_int_equal(statistics.n_computed, 3);
    assert_int_equal(statistics.n_inferences, 1 + 2 + 3);
    assert_int_equal(statistics.cache_hit.count, 6);
    assert_int_equal(statistics.cache_miss.count, 3);
    assert_true(statistics.caches);
    end(&rig, cache);
}

/* ---- misses ---------------------------------------------------------------------------------- */

static const struct param params[] = {
    {.name = STR("a"), .kind = PARAM_INT64, .int64 = 1},
    {.name = STR("a"), .kind = PARAM_INT64, .int64 = 2},
    {.name = STR("a"), .kind = PARAM_UINT64, .uint64 = UINT64_MAX},
    {.name = STR("a"), .kind = PARAM_BOOL, .boolean = true},
    {.name = STR("a"), .kind = PARAM_BOOL, .boolean = false},
    {.name = STR("a"), .kind = PARAM_DOUBLE, .number = 1},
    {.name = STR("a"), .kind = PARAM_STRING, .string = STR("1")},
    {.name = STR("a"), .kind = PARAM_STRING, .string = STR("")},
    {.name = STR("b"), .kind = PARAM_INT64, .int64 = 1},
};
enum { N_PARAMS = sizeof(params) / sizeof(params[0]) };

static struct infer_requested_output wanted[] = {{.name = STR("rows")}, {.name = STR("y")}};

/* Sends each call once, then each again. */
static void ask_all(struct rig *rig) {
    size_t at = 0;
    for (size_t i = 0; i < N_PARAMS; i++) {
        struct rig_call *call = rig_make(rig, at++, 1, 5);
        call->request.params = (struct params){&params[i], 1};
        rig_submit(call);
    }
    struct rig_call *both = rig_make(rig, at++, 1, 5);
    both->request.params = (struct params){params + 7, 2};
    rig_submit(both);
    for (size_t n = 0; n < 4; n++) { /* none (means y and rows); rows, y; rows; y */
        struct rig_call *call = rig_make_unchecked(rig, at++, 1, 5);
        struct error err;
        call->request.wanted = wanted + (n == 3);
        call->request.n_wanted = n == 0 ? 0 : n == 1 ? 2 : 1;
        assert_int_equal(infer_check(&call->request, model_version_spec(rig->version), &err),
                         ST_OK);
        rig_submit(call);
    }
    rig_submit(rig_make(rig, at++, 1, 6));
    rig_submit(rig_make(rig, at++, 2, 5));
    rig_submit(rig_make(rig, at++, 3, 5));
}

enum { N_ALL = N_PARAMS + 1 + 4 + 3 };

static void cache_differing_requests_have_own_entries(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &plain);
    (void)state;
    for (int round = 0; round < 2; round++) {
        rig_run(&rig, ask_all, N_ALL);
        for (int i = 0; i < N_ALL; i++) {
            assert_int_equal(rig.calls[i].error.status, ST_OK);
            assert_int_equal(rig.calls[i].call.cached,
                             round == 0 ? CALL_CACHE_MISS : CALL_CACHE_HIT);
        }
    }
    assert_int_equal(metric_read(METRIC_RESPONSE_CACHE_ENTRIES), N_ALL);
    assert_int_equal(rig.calls[N_PARAMS + 3].n_outputs, 1); /* rows only */
    assert_int_equal(rig.calls[N_PARAMS + 3].y_rank, 1);
    assert_echoed(&rig.calls[N_PARAMS + 4]);
    end(&rig, cache);
}

/* Calls that differ in id and scheduling parameters only. */
static void ask_otherwise(struct rig *rig) {
    static const struct param reserved = {.name = STR("priority"), .kind = PARAM_INT64, .int64 = 1};
    struct rig_call *call = rig_make(rig, 0, 1, 5);
    call->request.id = STR("another");
    call->request.params = (struct params){&reserved, 1};
    rig_submit(call);
}

static void cache_key_ignores_id_and_reserved_params(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &plain);
    (void)state;
    rows_asked = 1;
    rig_run(&rig, ask, 1);
    rig_run(&rig, ask_otherwise, 1);
    assert_int_equal(rig.calls[0].call.cached, CALL_CACHE_HIT);
    assert_echoed(&rig.calls[0]);
    end(&rig, cache);
}

/* ---- answers --------------------------------------------------------------------------------- */

static const sluice_param answered[] = {
    {.name = "text",
     .name_bytes = 4,
     .kind = SLUICE_PARAM_STRING,
     .string = "kept",
     .string_bytes = 4},
    {.name = "n", .name_bytes = 1, .kind = SLUICE_PARAM_INT64, .int64 = 7},
};

static void add_params(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs;
    (void)dims;
    response->params = answered;
    response->n_params = 2;
}

static void cache_hit_keeps_response_params(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &plain);
    (void)state;
    rig.model->corrupt_response = add_params;
    rows_asked = 2;
    for (int i = 0; i < 2; i++) {
        rig_run(&rig, ask, 1);
        assert_echoed(&rig.calls[0]);
        assert_int_equal(rig.calls[0].n_params, 2);
        assert_string_equal(rig.calls[0].text, "kept");
    }
    assert_int_equal(rig.calls[0].call.cached, CALL_CACHE_HIT);
    end(&rig, cache);
}

static void say_no(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs;
    (void)dims;
    response->status = SLUICE_INTERNAL;
    response->error = "not today";
}

static void cache_failed_response_is_not_stored(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &plain);
    (void)state;
    rows_asked = 1;
    rig.model->corrupt_response = say_no;
    for (int i = 0; i < 2; i++) {
        rig_run(&rig, ask, 1);
        assert_int_equal(rig.calls[0].error.status, ST_BACKEND_FAILED);
    }
    assert_int_equal(metric_read(METRIC_RESPONSE_CACHE_ENTRIES), 0);
    rig.model->corrupt_response = NULL;
    rig_run(&rig, ask, 1);
    assert_echoed(&rig.calls[0]);
    assert_int_equal(counted(&rig).cache_miss.count, 3);
    assert_int_equal(counted(&rig).fail.count, 2);
    end(&rig, cache);
}

/* ---- ordering and shutdown ------------------------------------------------------------------- */

/* Call 1 is cached; call 0 is sent before it and is not. */
static void ask_known_behind_unknown(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    rig_submit(rig_make(rig, 0, 1, 9));
    rig_submit(rig_make(rig, 1, 1, 5));
    assert_int_equal(rig->calls[1].n_done, 0);
    atomic_store(&rig->model->gate_closed, false);
}

static void cache_hit_with_preserve_ordering_keeps_order(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &in_order);
    (void)state;
    rows_asked = 1;
    rig_run(&rig, ask, 1);
    rig_run(&rig, ask_known_behind_unknown, 2);
    assert_int_equal(rig.calls[1].call.cached, CALL_CACHE_HIT);
    assert_int_equal(rig.calls[0].done_index, 0);
    assert_int_equal(rig.calls[1].done_index, 1);
    assert_echoed(&rig.calls[1]);
    end(&rig, cache);
}

static struct helper_pool *helpers;
static struct helper_job keeps_busy;
static atomic_bool helper_is_free;

static void wait_until_free(struct helper_job *job) {
    (void)job;
    while (!atomic_load(&helper_is_free)) {
        rig_pause();
    }
}

static void done_with_nothing(struct helper_job *job) {
    (void)job;
}

static void refuse_large(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs;
    if (dims[0] > RIG_ROWS_MAX) {
        response->status = SLUICE_INTERNAL;
        response->error = "large";
    }
}

static void free_the_helper(struct rig *rig) {
    assert_int_equal(rig->calls[1].n_done, 0);
    assert_int_equal(rig->calls[2].n_done, 0);
    atomic_store(&helper_is_free, true);
}

/* Call 0 is not hashed: its job ends before the one that keeps the helper busy, which must have
 * ended before the worker. */
static void cancel_and_free_the_helper(struct rig *rig) {
    call_cancel(&rig->calls[0].call);
    free_the_helper(rig);
    helper_pool_free(helpers);
    helpers = NULL;
}

static void done_then_open(struct call *done) {
    struct rig *rig = ((struct rig_call *)(void *)done)->rig;
    rig_done(done);
    atomic_store(&rig->model->gate_closed, false);
}

/* Call 3 runs and call 4 fills the queue, so that call 0 is refused. */
static void fill_the_queue_and_free_the_helper(struct rig *rig) {
    rig->calls[0].call.done = done_then_open;
    atomic_store(&rig->model->gate_closed, true);
    rig_submit(rig_make(rig, 3, 1, 7));
    rig_await_started(rig, 3);
    rig_submit(rig_make(rig, 4, 1, 8));
    free_the_helper(rig);
}

static void (*free_helper)(struct rig *rig);

static void keep_the_helper_busy(struct rig *rig) {
    atomic_store(&helper_is_free, false);
    keeps_busy = (struct helper_job){
        .worker = rig->worker, .run = wait_until_free, .done = done_with_nothing};
    helper_pool_submit(helpers, &keeps_busy);
}

/* Call 0, which is hashed on a helper thread. */
static struct rig_call *make_large(struct rig *rig) {
    static float large[1 << 18];
    struct rig_call *call = rig_make(rig, 0, 1, 9);
    call->dims[0] = (int64_t)(sizeof(large) / sizeof(float) / RIG_WIDTH);
    call->input.tensor.n_bytes = sizeof(large);
    call->piece = (struct piece){large, sizeof(large)};
    call->call.helpers = helpers;
    return call;
}

/* Call 0 is hashed on a helper thread, which is busy. Call 1 is cached, call 2 is executed. */
static void ask_behind_one_that_is_hashed(struct rig *rig) {
    keep_the_helper_busy(rig);
    rig_submit(make_large(rig));
    rig_submit(rig_make(rig, 1, 1, 5));
    rig_submit(rig_make(rig, 2, 1, 6));
    while (call_state(&rig->calls[2].call) != CALL_ANSWERED) {
        rig_pause();
    }
    rig_then(rig, free_helper);
}

static void run_behind_one_that_is_hashed(struct rig *rig, void (*then)(struct rig *rig), int n) {
    struct error err;
    assert_int_equal(helper_pool_new(1, &helpers, &err), ST_OK);
    free_helper = then;
    rig->model->corrupt_response = refuse_large;
    rows_asked = 1;
    rig_run(rig, ask, 1);
    rig_run(rig, ask_behind_one_that_is_hashed, n);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig->calls[i].done_index, i);
    }
    assert_int_equal(rig->calls[1].call.cached, CALL_CACHE_HIT);
    assert_echoed(&rig->calls[1]);
    assert_echoed(&rig->calls[2]);
    helper_pool_free(helpers);
}

static void cache_hash_on_helper_with_preserve_ordering_keeps_order(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &in_order);
    (void)state;
    run_behind_one_that_is_hashed(&rig, free_the_helper, 3);
    assert_string_equal(rig.calls[0].error.text, "large");
    end(&rig, cache);
}

static void cache_cancel_while_hashed_with_preserve_ordering_does_not_block(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &in_order);
    int64_t n_skipped = metric_read(METRIC_HELPER_JOBS_CANCELLED_WAITING);
    (void)state;
    run_behind_one_that_is_hashed(&rig, cancel_and_free_the_helper, 3);
    assert_int_equal(rig.calls[0].error.status, ST_CANCELLED);
    assert_int_equal(metric_read(METRIC_HELPER_JOBS_CANCELLED_WAITING), n_skipped + 1);
    end(&rig, cache);
}

static void cache_queue_full_after_hash_with_preserve_ordering_does_not_block(void **state) {
    static struct rig rig;
    struct model_config config = in_order;
    config.queue.max_size = 1;
    struct response_cache *cache = begin(&rig, &config);
    (void)state;
    run_behind_one_that_is_hashed(&rig, fill_the_queue_and_free_the_helper, 5);
    assert_int_equal(rig.calls[0].error.status, ST_QUEUE_FULL);
    end(&rig, cache);
}

enum { BEGIN_NS = 1000000000, HASH_NS = 5000000 };

static void move_clock_and_free_the_helper(struct rig *rig) {
    (void)rig;
    clock_set_fake_ns(BEGIN_NS + HASH_NS);
    atomic_store(&helper_is_free, true);
}

static void ask_pipelined_that_is_hashed(struct rig *rig) {
    keep_the_helper_busy(rig);
    make_large(rig)->call.run_immediately = true;
    rig_submit(&rig->calls[0]);
    rig_then(rig, move_clock_and_free_the_helper);
}

/* A call that runs as soon as its lookup has ended did not compute meanwhile. */
static void cache_lookup_before_immediate_run_counts_as_queue_time(void **state) {
    static struct rig rig;
    static const struct model_config on_worker = {.run_on = RUN_ON_WORKER, .response_cache = true};
    struct response_cache *cache = begin(&rig, &on_worker);
    struct error err;
    (void)state;
    clock_set_fake_ns(BEGIN_NS);
    assert_int_equal(helper_pool_new(1, &helpers, &err), ST_OK);
    rig.model->corrupt_response = refuse_large;
    rig_run(&rig, ask_pipelined_that_is_hashed, 1);
    assert_string_equal(rig.calls[0].error.text, "large");
    assert_int_equal(rig.calls[0].call.queued_ns, BEGIN_NS);
    assert_int_equal(rig.calls[0].call.started_ns, BEGIN_NS + HASH_NS);
    helper_pool_free(helpers);
    clock_set_fake_ns(0);
    end(&rig, cache);
}

static void ask_what_is_stopped(struct rig *rig) {
    version_reject_calls(rig->version);
    ask(rig);
}

static void cache_stopped_version_returns_not_ready(void **state) {
    static struct rig rig;
    struct response_cache *cache = begin(&rig, &plain);
    (void)state;
    rows_asked = 1;
    rig_run(&rig, ask, 1);
    rig_run(&rig, ask_what_is_stopped, 1);
    assert_int_equal(rig.calls[0].error.status, ST_NOT_READY);
    end(&rig, cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_hit_returns_model_response),
        cmocka_unit_test(cache_differing_requests_have_own_entries),
        cmocka_unit_test(cache_key_ignores_id_and_reserved_params),
        cmocka_unit_test(cache_hit_keeps_response_params),
        cmocka_unit_test(cache_failed_response_is_not_stored),
        cmocka_unit_test(cache_hit_with_preserve_ordering_keeps_order),
        cmocka_unit_test(cache_hash_on_helper_with_preserve_ordering_keeps_order),
        cmocka_unit_test(cache_cancel_while_hashed_with_preserve_ordering_does_not_block),
        cmocka_unit_test(cache_queue_full_after_hash_with_preserve_ordering_does_not_block),
        cmocka_unit_test(cache_lookup_before_immediate_run_counts_as_queue_time),
        cmocka_unit_test(cache_stopped_version_returns_not_ready),
    };
    return cmocka_run_group_tests_name("serve/scheduler/cache/call_cache", tests, NULL, NULL);
}

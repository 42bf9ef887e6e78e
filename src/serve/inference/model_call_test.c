/* Calls of models by models: what a backend gets by sluice_calls, from threads of its own and for a
 * request, what it is refused, and that nothing is held afterwards. */
#include "serve/inference/model_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/inference/models_fixture.h"

enum { N_MODELS = 2, N_CALLS = 4, TEXT_BYTES = 128 };

/* Of each model: its backend's part; set when it is opened. */
static struct opened {
    sluice_model *model;
    const sluice_calls *calls;
    void (*handle_request)(sluice_model *model, const sluice_request *request);
} opened[N_MODELS];

/* A call and what became of it. `respond` writes, the test reads when it has ended. */
struct got {
    sluice_call *call;
    char steps[TEXT_BYTES]; /* "partial" and "last", as they came */
    sluice_status status;
    char text[512];
    const void *y; /* where the bytes of output y are */
    char name[8];  /* of the first output */
    size_t n_outputs;
    bool keeps; /* the last response, for the test to release */
    sluice_call_response *kept;
    atomic_bool responded, ended;
    /* its input: one row of x */
    int64_t dims[2];
    sluice_piece piece;
    sluice_input input;
    float x[RIG_WIDTH];
};

static struct test {
    struct test_dir dir;
    sluice_backend backend;
    const sluice_backend *builtin[1];
    struct repository *repository;
    struct worker *worker;
    struct helper_pool *helpers;
    struct net_budget budget;
    struct model_calls calls;
    atomic_bool stopped;
    struct got got[N_CALLS];
} test;

/* ---- the test's server ----------------------------------------------------------------------- */

/* "m" and "n", by the first letter of their file. */
static sluice_status open_model(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    sluice_status status = rig_model_open(args, model, error);
    struct opened *at = &opened[strstr(args->path, "/n/") ? 1 : 0];
    at->model = *model;
    at->calls = args->calls;
    (*model)->handle_request = at->handle_request;
    return status;
}

static void open_calls(void) {
    struct error err;
    const struct model_calls_options options = {
        .services = {.repository = test.repository, .helpers = test.helpers},
        .budget = &test.budget,
        .workers = &test.worker,
        .n_workers = 1};
    assert_int_equal(model_calls_open(&test.calls, &options, &err), ST_OK);
}

/* `of_m`: what handles a request of the model "m"; NULL: it is answered at once. */
static void open_unopened(const char *config,
                          void (*of_m)(sluice_model *model, const sluice_request *request)) {
    struct error err;
    memset(&test, 0, sizeof(test));
    memset(opened, 0, sizeof(opened));
    opened[0].handle_request = of_m;
    test_dir_make(&test.dir);
    test.backend = rig_backend;
    test.backend.model_open = open_model;
    test.builtin[0] = &test.backend;
    models_fixture_add(&test.dir, "m", "");
    models_fixture_add(&test.dir, "n", config);
    assert_int_equal(worker_new("test", &test.worker, &err), ST_OK);
    assert_int_equal(worker_start(test.worker, &err), ST_OK);
    assert_int_equal(helper_pool_new(2, &test.helpers, &err), ST_OK);
    model_calls_init(&test.calls);
    test.repository = models_fixture_open(&test.dir, test.builtin, &test.worker, &test.calls.table);
    models_fixture_load(test.repository);
}

static void open_server(const char *config,
                        void (*of_m)(sluice_model *model, const sluice_request *request)) {
    open_unopened(config, of_m);
    open_calls();
}

static void note_stopped(void *user) {
    (void)user;
    atomic_store(&test.stopped, true);
}

static void await_flag(const atomic_bool *flag) {
    while (!atomic_load(flag)) {
        rig_pause();
    }
}

static void close_server(void) {
    for (size_t i = 0; i < N_CALLS; i++) {
        if (test.got[i].call) {
            test.calls.table.unref(test.got[i].call);
        }
    }
    if (!test.calls.stop_worker) {
        model_calls_stop(&test.calls, test.worker, note_stopped, NULL);
    }
    await_flag(&test.stopped);
    model_calls_close(&test.calls);
    repository_drain(test.repository);
    worker_stop(test.worker);
    worker_join(test.worker);
    repository_stop(test.repository);
    repository_free(test.repository);
    helper_pool_free(test.helpers);
    worker_free(test.worker);
    model_calls_fini(&test.calls);
    test_dir_remove(&test.dir);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    assert_int_equal(atomic_load(&test.budget.n_bytes), 0);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static void on_response(void *user, sluice_call_response *response) {
    struct got *got = user;
    size_t len = strlen(got->steps);
    (void)snprintf(got->steps + len, TEXT_BYTES - len, "%s%s", len > 0 ? " " : "",
                   response->final ? "last" : "partial");
    got->status = response->status;
    (void)snprintf(got->text, sizeof(got->text), "%s", response->error ? response->error : "");
    got->n_outputs = response->n_outputs;
    if (response->n_outputs > 0) {
        got->y = response->outputs[0].pieces[0].data;
        (void)snprintf(got->name, sizeof(got->name), "%s", response->outputs[0].name);
    }
    bool final = response->final != 0;
    if (final && got->keeps) {
        got->kept = response;
    } else {
        test.calls.table.release(response);
    }
    if (final) {
        atomic_store(&got->responded, true);
    }
}

static void on_ended(void *user) {
    atomic_store(&((struct got *)user)->ended, true);
}

static sluice_call_args args_of(struct got *got, const char *model) {
    got->dims[0] = 1;
    got->dims[1] = RIG_WIDTH;
    got->piece = (sluice_piece){got->x, sizeof(got->x)};
    got->input = (sluice_input){.datatype = SLUICE_FP32,
                                .name = "x",
                                .dims = got->dims,
                                .rank = 2,
                                .n_bytes = sizeof(got->x),
                                .pieces = &got->piece,
                                .n_pieces = 1};
    return (sluice_call_args){.size = sizeof(sluice_call_args),
                              .model = model,
                              .version = "",
                              .id = "",
                              .inputs = &got->input,
                              .n_inputs = 1,
                              .why = "one is expected",
                              .respond = on_response,
                              .ended = on_ended,
                              .user = got};
}

static sluice_status try_start(struct got *got, const sluice_call_args *args, sluice_error *error) {
    return test.calls.table.start(&test.calls.table, args, &got->call, error);
}

static struct got *start(size_t i, const char *model) {
    struct got *got = &test.got[i];
    sluice_call_args args = args_of(got, model);
    sluice_error error;
    assert_int_equal(try_start(got, &args, &error), SLUICE_OK);
    return got;
}

static void await_end(struct got *got) {
    await_flag(&got->responded);
    await_flag(&got->ended);
}

static void assert_ended(struct got *got, sluice_status status, const char *steps) {
    await_end(got);
    assert_string_equal(got->steps, steps);
    if (got->status != status) {
        fail_msg("%d: %s", (int)got->status, got->text);
    }
}

/* ---- responses ------------------------------------------------------------------------------- */

static void calls_bring_outputs_by_reference(void **state) {
    (void)state;
    open_server("", NULL);
    assert_ptr_equal(opened[0].calls, &test.calls.table);
    struct got *got = start(0, "n");
    assert_ended(got, SLUICE_OK, "last");
    assert_int_equal(got->n_outputs, 2);
    assert_string_equal(got->name, "y");
    assert_ptr_equal(got->y, got->x);
    close_server();
}

static void calls_name_outputs_and_version(void **state) {
    const char *wanted[] = {"y"};
    sluice_error error;
    (void)state;
    open_server("", NULL);
    sluice_call_args args = args_of(&test.got[0], "n");
    args.version = "1";
    args.wanted = wanted;
    args.n_wanted = 1;
    assert_int_equal(try_start(&test.got[0], &args, &error), SLUICE_OK);
    assert_ended(&test.got[0], SLUICE_OK, "last");
    assert_int_equal(test.got[0].n_outputs, 1);
    close_server();
}

static void calls_of_what_is_not_there_are_not_found(void **state) {
    sluice_error error;
    (void)state;
    open_server("", NULL);
    assert_ended(start(0, "nothing"), SLUICE_NOT_FOUND, "last");
    sluice_call_args args = args_of(&test.got[1], "n");
    args.version = "7";
    assert_int_equal(try_start(&test.got[1], &args, &error), SLUICE_OK);
    assert_ended(&test.got[1], SLUICE_NOT_FOUND, "last");
    args = args_of(&test.got[2], "n");
    test.got[2].input.name = "other";
    assert_int_equal(try_start(&test.got[2], &args, &error), SLUICE_OK);
    assert_ended(&test.got[2], SLUICE_INVALID_ARGUMENT, "last");
    close_server();
}

static void answer_thrice(sluice_model *model, const sluice_request *request) {
    rig_answer(model, request, 0);
    rig_answer(model, request, 0);
    rig_answer(model, request, 1);
}

static void calls_of_decoupled_models_say_that_they_take_many(void **state) {
    sluice_error error;
    (void)state;
    open_unopened("model_transaction_policy { decoupled: true }", NULL);
    opened[1].model->handle_request = answer_thrice;
    open_calls();
    assert_ended(start(0, "n"), SLUICE_UNSUPPORTED, "last");
    assert_non_null(strstr(test.got[0].text, "is decoupled"));
    assert_non_null(strstr(test.got[0].text, "one is expected"));
    sluice_call_args args = args_of(&test.got[1], "n");
    args.takes_many = 1;
    assert_int_equal(try_start(&test.got[1], &args, &error), SLUICE_OK);
    assert_ended(&test.got[1], SLUICE_OK, "partial partial last");
    close_server();
}

static uint64_t used_bytes(void) {
    struct net_budget_use use = {0};
    assert_true(net_budget_add_use(&test.budget, "calls", &use));
    return use.n_response_bytes;
}

/* The inputs are used until the response is released. */
static void calls_end_with_their_last_response(void **state) {
    (void)state;
    open_server("", NULL);
    test.got[0].keeps = true;
    struct got *got = start(0, "n");
    await_flag(&got->responded);
    assert_false(atomic_load(&got->ended));
    assert_true(atomic_load(&test.budget.n_bytes) > 0);
    assert_true(used_bytes() >= sizeof(got->x));
    assert_int_equal(model_calls_count(&test.calls), 1);
    test.calls.table.release(got->kept);
    await_flag(&got->ended);
    assert_int_equal(used_bytes(), 0);
    close_server();
}

/* ---- parents --------------------------------------------------------------------------------- */

/* Calls "n" for the request, and answers when the call has ended. */
static void call_and_answer(sluice_model *model, const sluice_request *request) {
    struct got *got = &test.got[1];
    sluice_call_args args = args_of(got, "n");
    sluice_error error;
    args.parent = request;
    sluice_status status = try_start(got, &args, &error);
    assert(status == SLUICE_OK);
    (void)status;
    await_flag(&got->ended);
    rig_echo(model, request);
}

static void calls_run_inside_of_their_request(void **state) {
    (void)state;
    open_server("", call_and_answer);
    assert_ended(start(0, "m"), SLUICE_OK, "last");
    assert_string_equal(test.got[1].steps, "last");
    assert_int_equal(test.got[1].status, SLUICE_OK);
    close_server();
}

enum { PARENT_TIMEOUT_US = 60 * 1000000 };

/* Of the latest requests: [0] the one of "m", [1] that of "n" inside of it. */
static uint64_t deadlines_ns[N_MODELS], call_timeout_us;

static void note_deadline_and_echo(sluice_model *model, const sluice_request *request) {
    deadlines_ns[1] = request->deadline_ns;
    rig_echo(model, request);
}

static void note_deadline_and_call(sluice_model *model, const sluice_request *request) {
    struct got *got = &test.got[1];
    sluice_call_args args = args_of(got, "n");
    sluice_error error;
    args.parent = request;
    args.timeout_us = call_timeout_us;
    deadlines_ns[0] = request->deadline_ns;
    sluice_status status = try_start(got, &args, &error);
    assert(status == SLUICE_OK);
    (void)status;
    await_flag(&got->ended);
    rig_echo(model, request);
}

/* A call of "n" with that timeout, for a request of "m" with one of PARENT_TIMEOUT_US. */
static void call_with_timeout(uint64_t timeout_us) {
    sluice_error error;
    open_unopened("", note_deadline_and_call);
    opened[1].model->handle_request = note_deadline_and_echo;
    open_calls();
    call_timeout_us = timeout_us;
    sluice_call_args args = args_of(&test.got[0], "m");
    args.timeout_us = PARENT_TIMEOUT_US;
    assert_int_equal(try_start(&test.got[0], &args, &error), SLUICE_OK);
    assert_ended(&test.got[0], SLUICE_OK, "last");
    assert_int_equal(test.got[1].status, SLUICE_OK);
    close_server();
    assert_true(deadlines_ns[0] > 0);
}

static void calls_have_at_most_the_deadline_of_their_request(void **state) {
    (void)state;
    call_with_timeout(0);
    assert_int_equal(deadlines_ns[1], deadlines_ns[0]);
    call_with_timeout(2 * (uint64_t)PARENT_TIMEOUT_US);
    assert_int_equal(deadlines_ns[1], deadlines_ns[0]);
    call_with_timeout(PARENT_TIMEOUT_US / 2);
    assert_true(deadlines_ns[1] > 0 && deadlines_ns[1] < deadlines_ns[0]);
}

/* Calls "n" for the request, which it answers meanwhile. */
static void call_and_leave(sluice_model *model, const sluice_request *request) {
    sluice_call_args args = args_of(&test.got[1], "n");
    sluice_error error;
    args.parent = request;
    sluice_status status = try_start(&test.got[1], &args, &error);
    assert(status == SLUICE_OK);
    (void)status;
    rig_echo(model, request);
}

static void await_started(size_t model) {
    while (atomic_load(&opened[model].model->n_started) == 0) {
        rig_pause();
    }
}

static void calls_of_an_answered_request_are_cancelled(void **state) {
    (void)state;
    open_server("", call_and_leave);
    atomic_store(&opened[1].model->gate_closed, true);
    start(2, "n"); /* so that the one of "m" waits */
    await_started(1);
    assert_ended(start(0, "m"), SLUICE_OK, "last");
    assert_ended(&test.got[1], SLUICE_CANCELLED, "last");
    atomic_store(&opened[1].model->gate_closed, false);
    assert_ended(&test.got[2], SLUICE_OK, "last");
    close_server();
}

static void calls_are_cancelled_with_their_parent(void **state) {
    (void)state;
    open_server("", call_and_answer);
    atomic_store(&opened[1].model->gate_closed, true);
    start(0, "m");
    await_started(1);
    start(2, "n"); /* waits for the instance */
    test.calls.table.cancel(test.got[0].call);
    test.calls.table.cancel(test.got[2].call);
    assert_ended(&test.got[2], SLUICE_CANCELLED, "last");
    atomic_store(&opened[1].model->gate_closed, false);
    await_end(&test.got[0]);
    await_end(&test.got[1]);
    close_server();
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void assert_refused(const sluice_request *parent) {
    sluice_call_args args = args_of(&test.got[3], "n");
    sluice_error error;
    args.parent = parent;
    assert_int_equal(try_start(&test.got[3], &args, &error), SLUICE_UNAVAILABLE);
    assert_non_null(strstr(error.text, "shutting down"));
    assert_null(test.got[3].call);
}

static void calls_are_refused_until_they_are_open(void **state) {
    (void)state;
    open_unopened("", NULL);
    assert_refused(NULL);
    open_calls();
    assert_ended(start(0, "n"), SLUICE_OK, "last");
    model_calls_drain(&test.calls);
    assert_refused(NULL);
    close_server();
}

static void calls_hold_the_stop_until_the_last_has_ended(void **state) {
    (void)state;
    open_server("", NULL);
    atomic_store(&opened[1].model->gate_closed, true);
    struct got *got = start(0, "n");
    model_calls_stop(&test.calls, test.worker, note_stopped, NULL);
    assert_refused(NULL);
    assert_false(atomic_load(&test.stopped));
    atomic_store(&opened[1].model->gate_closed, false);
    await_end(got);
    assert_int_equal(model_calls_count(&test.calls), 1); /* the backend's reference */
    assert_false(atomic_load(&test.stopped));
    test.calls.table.unref(got->call);
    got->call = NULL;
    await_flag(&test.stopped);
    close_server();
}

/* ---- models ---------------------------------------------------------------------------------- */

static struct changed {
    sluice_status status;
    char text[512];
    atomic_bool done;
} changed;

static void on_changed(void *user, sluice_status status, const char *error) {
    (void)user;
    changed.status = status;
    (void)snprintf(changed.text, sizeof(changed.text), "%s", error);
    atomic_store(&changed.done, true);
}

static void assert_changes(sluice_model_action action, const char *model, sluice_status status) {
    const sluice_model_change change = {
        .size = sizeof(change), .action = action, .model = model, .done = on_changed};
    sluice_error error;
    atomic_store(&changed.done, false);
    assert_int_equal(test.calls.table.change(&test.calls.table, &change, &error), SLUICE_OK);
    await_flag(&changed.done);
    if (changed.status != status) {
        fail_msg("%d: %s", (int)changed.status, changed.text);
    }
}

static int is_ready(const char *model, const char *version) {
    return test.calls.table.is_ready(&test.calls.table, model, version);
}

static void models_are_loaded_and_unloaded(void **state) {
    (void)state;
    open_server("", NULL);
    assert_true(is_ready("n", "") && is_ready("n", "1"));
    assert_false(is_ready("n", "2") || is_ready("nothing", ""));
    assert_changes(SLUICE_MODEL_UNLOAD, "n", SLUICE_OK);
    assert_false(is_ready("n", ""));
    assert_changes(SLUICE_MODEL_LOAD, "n", SLUICE_OK);
    assert_true(is_ready("n", ""));
    assert_changes(SLUICE_MODEL_LOAD, "nothing", SLUICE_NOT_FOUND);
    assert_ended(start(0, "n"), SLUICE_OK, "last");
    close_server();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_bring_outputs_by_reference),
        cmocka_unit_test(calls_name_outputs_and_version),
        cmocka_unit_test(calls_of_what_is_not_there_are_not_found),
        cmocka_unit_test(calls_of_decoupled_models_say_that_they_take_many),
        cmocka_unit_test(calls_end_with_their_last_response),
        cmocka_unit_test(calls_run_inside_of_their_request),
        cmocka_unit_test(calls_have_at_most_the_deadline_of_their_request),
        cmocka_unit_test(calls_of_an_answered_request_are_cancelled),
        cmocka_unit_test(calls_are_cancelled_with_their_parent),
        cmocka_unit_test(calls_are_refused_until_they_are_open),
        cmocka_unit_test(calls_hold_the_stop_until_the_last_has_ended),
        cmocka_unit_test(models_are_loaded_and_unloaded),
    };
    return cmocka_run_group_tests_name("serve/inference/model_call", tests, NULL, NULL);
}

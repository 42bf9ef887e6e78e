/* Inferences that the server itself starts, on a worker that runs, with models of a repository:
 * what they answer and where, and that nothing is held afterwards. */
#include "serve/inference/inner.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/inference/models_fixture.h"

enum { N_MODELS = 2, N_CALLS = INNER_MAX_DEPTH + 2, TEXT_BYTES = 128, BUDGET = 65536 };

/* Of each model: its backend's part; set when it is opened. */
static struct opened {
    sluice_model *model;
    void (*handle_request)(sluice_model *model, const sluice_request *request);
    atomic_uint_fast64_t deadline_ns; /* of the latest request */
    atomic_int n_refused;             /* requests that were cancelled before the gate opened */
} opened[N_MODELS];

/* One inference and what became of it. `respond` writes, the test reads when it has ended. */
struct got {
    struct inner_inference *inference;
    char steps[TEXT_BYTES]; /* "partial" and "last", as they came */
    struct error error;
    const void *y;    /* where the bytes of output y are */
    size_t n_outputs; /* of the last response */
    int n_on_worker, n_on_others;
    atomic_int n_inside; /* calls of `respond` at a time */
    bool overlapped;
    bool keeps;                  /* the last response, for the test to release */
    struct inner_response *kept; /* with `keeps` */
    atomic_bool ended;
    /* its request: one row of x */
    struct infer_input input;
    struct piece piece;
    int64_t dims[2];
    float x[RIG_WIDTH];
};

static struct test {
    struct test_dir dir;
    sluice_backend backend;
    const sluice_backend *builtin[1];
    struct repository *repository;
    struct worker *worker;
    struct inner_services services;
    struct net_budget budget;
    struct memory_quota quota;
    struct memory_account *account; /* with open_account */
    atomic_uint_fast64_t now_ns;    /* of the quota */
    struct got got[N_CALLS];
} test;

/* ---- the models ------------------------------------------------------------------------------ */

/* "m" and "n", by the first letter of their file. */
static sluice_status open_model(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    sluice_status status = rig_model_open(args, model, error);
    struct opened *at = &opened[strstr(args->path, "/n/") ? 1 : 0];
    at->model = *model;
    (*model)->handle_request = at->handle_request;
    return status;
}

static void note_deadline(sluice_model *model, const sluice_request *request) {
    atomic_store(&opened[model == opened[1].model].deadline_ns, request->deadline_ns);
    rig_echo(model, request);
}

static void answer_thrice(sluice_model *model, const sluice_request *request) {
    rig_answer(model, request, 0);
    rig_answer(model, request, 0);
    rig_answer(model, request, 1);
}

/* As backends do with a request that was cancelled while it ran. */
static void answer_unless_cancelled(sluice_model *model, const sluice_request *request) {
    if (!backend_host()->is_cancelled(request)) {
        rig_echo(model, request);
        return;
    }
    atomic_fetch_add(&opened[model == opened[1].model].n_refused, 1);
    backend_host()->respond(request, &(sluice_response){.size = sizeof(sluice_response),
                                                        .status = SLUICE_CANCELLED,
                                                        .error = "stopped",
                                                        .final = 1});
}

/* ---- the test's server ----------------------------------------------------------------------- */

static void open_unloaded(const char *config) {
    struct error err;
    memset(&test, 0, sizeof(test));
    memset(opened, 0, sizeof(opened));
    test_dir_make(&test.dir);
    test.backend = rig_backend;
    test.backend.model_open = open_model;
    test.builtin[0] = &test.backend;
    models_fixture_add(&test.dir, "m", config);
    models_fixture_add(&test.dir, "n", config);
    assert_int_equal(worker_new("test", &test.worker, &err), ST_OK);
    assert_int_equal(worker_start(test.worker, &err), ST_OK);
    assert_int_equal(helper_pool_new(2, &test.services.helpers, &err), ST_OK);
    test.repository = models_fixture_open(&test.dir, test.builtin, &test.worker, NULL);
    test.services.repository = test.repository;
}

static void open_server(const char *config) {
    open_unloaded(config);
    models_fixture_load(test.repository);
}

struct unloading {
    struct repository_change change;
    atomic_bool done;
};

static void note_unloaded(struct repository_change *change) {
    atomic_store(&CONTAINER_OF(change, struct unloading, change)->done, true);
}

/* The model "m" is not found any more; requests that found it before run on. */
static void unload(void) {
    struct unloading unloading = {.change = {.action = REPOSITORY_UNLOAD,
                                             .model = STR("m"),
                                             .worker = test.worker,
                                             .done = note_unloaded}};
    repository_change(test.repository, &unloading.change);
    while (!atomic_load(&unloading.done)) {
        rig_pause();
    }
}

static void do_nothing(void *arg) {
    (void)arg;
}

/* The messages that were posted to the worker before have run. */
static void pass_worker(void) {
    worker_call(test.worker, do_nothing, NULL);
}

static void close_account(void *arg) {
    (void)arg;
    memory_account_close(test.account);
    if (test.account) {
        memory_quota_fini(&test.quota);
    }
}

static void close_server(void) {
    for (size_t i = 0; i < N_CALLS; i++) {
        if (test.got[i].inference) {
            inner_inference_unref(test.got[i].inference);
        }
    }
    pass_worker();
    worker_call(test.worker, close_account, NULL);
    repository_drain(test.repository);
    worker_stop(test.worker);
    worker_join(test.worker);
    repository_stop(test.repository);
    repository_free(test.repository);
    helper_pool_free(test.services.helpers);
    worker_free(test.worker);
    test_dir_remove(&test.dir);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    assert_int_equal(atomic_load(&test.budget.n_bytes), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t test_now_ns(void) {
    return atomic_load(&test.now_ns);
}

static void ignore_schedule(void *user, uint64_t due_ns) {
    (void)user;
    (void)due_ns;
}

static void make_account(void *max_unsent_size) {
    memory_quota_init(&test.quota, &(struct memory_quota_options){
                                       .budget = &test.budget,
                                       .max_unsent_size = *(const uint64_t *)max_unsent_size,
                                       .now_ns = test_now_ns,
                                       .schedule = ignore_schedule,
                                       .relieve = ignore_schedule});
    test.account = memory_account_new(&test.quota, NULL);
}

static void open_account(uint64_t budget, uint64_t max_unsent_size) {
    test.budget.memory = budget;
    atomic_store(&test.now_ns, 1);
    worker_call(test.worker, make_account, &max_unsent_size);
}

static void run_quota(void *arg) {
    (void)arg;
    memory_quota_run(&test.quota, test_now_ns());
}

static struct memory_reservation other;

static void hold_all(void *arg) {
    (void)arg;
    memory_hold(test.account, &other, (uint64_t)BUDGET * 2);
}

static void release_all(void *arg) {
    (void)arg;
    memory_release(&other, true);
}

/* ---- an inference ---------------------------------------------------------------------------- */

static void note_response(struct got *got, const struct infer_response *response, bool last) {
    size_t len = strlen(got->steps);
    (void)snprintf(got->steps + len, TEXT_BYTES - len, "%s%s", len > 0 ? " " : "",
                   last ? "last" : "partial");
    got->error = response->error;
    got->n_outputs = response->n_outputs;
    got->y = NULL;
    if (response->error.status == ST_OK && response->n_outputs > 0) {
        got->y = response->outputs[0].pieces[0].data;
    }
}

static void respond(struct inner_response *response, void *user) {
    struct got *got = user;
    bool last = response->last;
    bool on_worker = worker_is_current(test.worker);
    got->overlapped = atomic_fetch_add(&got->n_inside, 1) > 0 || got->overlapped;
    got->n_on_worker += on_worker;
    got->n_on_others += !on_worker;
    note_response(got, response->response, last);
    atomic_fetch_sub(&got->n_inside, 1);
    if (last && got->keeps) {
        got->kept = response;
    } else {
        inner_response_release(response);
    }
    if (last) {
        atomic_store(&got->ended, true);
    }
}

static struct inner_options options_of(struct got *got, const char *model) {
    got->dims[0] = 1;
    got->dims[1] = RIG_WIDTH;
    got->piece = (struct piece){got->x, sizeof(got->x)};
    got->input.tensor = (struct tensor){.name = STR("x"),
                                        .datatype = DT_FP32,
                                        .shape = {got->dims, 2},
                                        .pieces = &got->piece,
                                        .n_pieces = 1,
                                        .n_bytes = sizeof(got->x)};
    return (struct inner_options){.services = &test.services,
                                  .worker = test.worker,
                                  .account = test.account,
                                  .model = str_of(model),
                                  .inputs = &got->input,
                                  .n_inputs = 1,
                                  .respond = respond,
                                  .user = got};
}

static struct got *make(size_t i, const struct inner_options *options) {
    struct error err;
    if (inner_inference_new(options, &test.got[i].inference, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    return &test.got[i];
}

static struct got *make_of(size_t i, const char *model) {
    struct inner_options options = options_of(&test.got[i], model);
    return make(i, &options);
}

/* Inside of test.got[parent]. */
static struct got *make_inside(size_t i, const char *model, size_t parent) {
    struct inner_options options = options_of(&test.got[i], model);
    options.worker = NULL;
    options.account = NULL;
    options.parent = inner_inference_base(test.got[parent].inference);
    return make(i, &options);
}

static void start(struct got *got) {
    inner_inference_start(got->inference);
}

static void await(struct got *got) {
    while (!atomic_load(&got->ended)) {
        rig_pause();
    }
}

static void await_started(size_t model, int n) {
    while (atomic_load(&opened[model].model->n_started) < n) {
        rig_pause();
    }
}

static void set_gate(size_t model, bool closed) {
    atomic_store(&opened[model].model->gate_closed, closed);
}

static void assert_ended(struct got *got, enum status status, const char *steps) {
    await(got);
    if (got->error.status != status) {
        fail_msg("%s: %s", status_name(got->error.status), got->error.text);
    }
    assert_string_equal(got->steps, steps);
    assert_false(got->overlapped);
}

/* A good request of the model "m". */
static void assert_serves(size_t i) {
    struct got *got = make_of(i, "m");
    start(got);
    assert_ended(got, ST_OK, "last");
}

/* ---- responses ------------------------------------------------------------------------------- */

static void inner_tensors_go_in_and_come_out_by_reference(void **state) {
    (void)state;
    open_server("");
    struct got *got = make_of(0, "m");
    start(got);
    assert_ended(got, ST_OK, "last");
    assert_int_equal(got->n_outputs, 2);
    assert_ptr_equal(got->y, got->x);
    close_server();
}

static void inner_wanted_outputs_and_version_are_chosen(void **state) {
    struct infer_requested_output wanted = {.name = STR("y")};
    (void)state;
    open_server("");
    struct inner_options options = options_of(&test.got[0], "m");
    options.version = STR("1");
    options.wanted = &wanted;
    options.n_wanted = 1;
    struct got *got = make(0, &options);
    start(got);
    assert_ended(got, ST_OK, "last");
    assert_int_equal(got->n_outputs, 1);
    close_server();
}

static void inner_responses_come_in_order_on_chosen_thread(void **state) {
    static const enum inner_thread threads[] = {INNER_ON_WORKER, INNER_ON_HELPER};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        open_unloaded("model_transaction_policy { decoupled: true }");
        opened[0].handle_request = answer_thrice;
        models_fixture_load(test.repository);
        struct inner_options options = options_of(&test.got[0], "m");
        options.thread = threads[i];
        struct got *got = make(0, &options);
        start(got);
        assert_ended(got, ST_OK, "partial partial last");
        assert_int_equal(got->n_on_worker, threads[i] == INNER_ON_WORKER ? 3 : 0);
        assert_int_equal(got->n_on_others, threads[i] == INNER_ON_HELPER ? 3 : 0);
        close_server();
    }
}

static bool was_submitted;

static void start_and_see(void *arg) {
    struct got *got = arg;
    start(got);
    was_submitted = inference_was_submitted(inner_inference_base(got->inference));
}

static void inner_started_on_worker_is_submitted_at_once(void **state) {
    (void)state;
    open_server("");
    struct got *got = make_of(0, "m");
    worker_call(test.worker, start_and_see, got);
    assert_true(was_submitted);
    assert_ended(got, ST_OK, "last");
    assert_int_equal(got->n_on_worker, 1);
    close_server();
}

/* The owner has dropped its reference, the model is unloaded, and another thread releases. */
static void inner_kept_response_outlives_reference_and_model(void **state) {
    (void)state;
    open_server("");
    struct got *got = make_of(0, "m");
    got->keeps = true;
    start(got);
    assert_ended(got, ST_OK, "last");
    inner_inference_unref(got->inference);
    got->inference = NULL;
    unload();
    struct infer_response *response = got->kept->response;
    assert_true(str_is(response->outputs[0].name, "y"));
    assert_ptr_equal(response->outputs[0].pieces[0].data, got->x);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 1);
    inner_response_release(got->kept);
    pass_worker();
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    close_server();
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void assert_refused(const char *model, const char *version, enum status status) {
    static const enum inner_thread threads[] = {INNER_ON_WORKER, INNER_ON_HELPER};
    for (size_t i = 0; i < 2; i++) {
        memset(&test.got[0], 0, sizeof(test.got[0]));
        struct inner_options options = options_of(&test.got[0], model);
        options.version = str_of(version);
        options.thread = threads[i];
        struct got *got = make(0, &options);
        start(got);
        assert_ended(got, status, "last");
        assert_int_equal(got->n_on_worker, threads[i] == INNER_ON_WORKER);
        inner_inference_unref(got->inference);
        got->inference = NULL;
    }
}

static void inner_unknown_or_unready_model_is_refused(void **state) {
    (void)state;
    open_unloaded("");
    assert_refused("m", "", ST_NOT_READY); /* no name is known before the scan */
    models_fixture_load(test.repository);
    assert_refused("none", "", ST_UNKNOWN_MODEL);
    assert_refused("m", "7", ST_UNKNOWN_VERSION);
    assert_serves(1);
    close_server();
}

static void inner_request_that_does_not_fit_is_refused(void **state) {
    (void)state;
    open_server("");
    struct inner_options options = options_of(&test.got[0], "m");
    test.got[0].dims[1] = RIG_WIDTH - 1;
    struct got *got = make(0, &options);
    start(got);
    assert_ended(got, ST_BAD_SHAPE, "last");
    assert_int_equal(atomic_load(&opened[0].model->n_started), 0);
    assert_serves(1);
    close_server();
}

static void inner_passed_deadline_is_refused(void **state) {
    (void)state;
    open_server("");
    struct inner_options options = options_of(&test.got[0], "m");
    options.deadline_ns = 1;
    struct got *got = make(0, &options);
    start(got);
    assert_ended(got, ST_DEADLINE_EXCEEDED, "last");
    assert_int_equal(atomic_load(&opened[0].model->n_started), 0);
    assert_serves(1);
    close_server();
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void inner_more_than_budget_is_refused(void **state) {
    (void)state;
    open_server("");
    open_account(64, 0);
    assert_refused("m", "", ST_OVERLOADED);
    assert_int_equal(atomic_load(&opened[0].model->n_started), 0);
    close_server();
}

/* The first is granted, the second refused when it has waited long enough. */
static void inner_waits_for_budget(void **state) {
    (void)state;
    for (int granted = 0; granted < 2; granted++) {
        open_server("");
        open_account(BUDGET, 0);
        worker_call(test.worker, hold_all, NULL);
        struct got *got = make_of(0, "m");
        start(got);
        pass_worker();
        assert_int_equal(atomic_load(&test.quota.n_waiting_for_budget), 1);
        assert_false(atomic_load(&got->ended));
        if (granted) {
            worker_call(test.worker, release_all, NULL);
        } else {
            atomic_fetch_add(&test.now_ns, MEMORY_WAIT_NS + 1);
        }
        worker_call(test.worker, run_quota, NULL);
        assert_ended(got, granted ? ST_OK : ST_OVERLOADED, "last");
        worker_call(test.worker, release_all, NULL);
        close_server();
    }
}

static void inner_that_waits_for_budget_is_cancelled(void **state) {
    (void)state;
    open_server("");
    open_account(BUDGET, 0);
    worker_call(test.worker, hold_all, NULL);
    struct got *got = make_of(0, "m");
    start(got);
    pass_worker();
    inner_inference_cancel(got->inference);
    assert_ended(got, ST_CANCELLED, "last");
    worker_call(test.worker, release_all, NULL);
    assert_serves(1);
    close_server();
}

/* The parent holds what the account may: its client would wait, and the child must not. */
static void inner_child_does_not_wait_for_account_of_parent(void **state) {
    (void)state;
    open_server("");
    open_account(1 << 20, 1);
    set_gate(0, true);
    struct got *parent = make_of(0, "m");
    start(parent);
    await_started(0, 1);
    struct got *waits = make_of(1, "n");
    start(waits);
    pass_worker();
    assert_int_equal(atomic_load(&test.quota.n_waiting_for_account), 1);
    struct got *child = make_inside(2, "n", 0);
    start(child);
    assert_ended(child, ST_OK, "last");
    assert_false(atomic_load(&waits->ended));
    set_gate(0, false);
    assert_ended(parent, ST_OK, "last");
    pass_worker(); /* its memory is released */
    worker_call(test.worker, run_quota, NULL);
    assert_ended(waits, ST_OK, "last");
    close_server();
}

/* ---- cancellation ---------------------------------------------------------------------------- */

static void inner_cancelled_before_start_does_not_run(void **state) {
    (void)state;
    open_server("");
    struct got *got = make_of(0, "m");
    inner_inference_cancel(got->inference);
    start(got);
    assert_ended(got, ST_CANCELLED, "last");
    assert_int_equal(atomic_load(&opened[0].model->n_started), 0);
    assert_serves(1);
    close_server();
}

static void inner_cancelled_in_queue_is_removed(void **state) {
    (void)state;
    open_server("");
    set_gate(0, true);
    struct got *runs = make_of(0, "m");
    start(runs);
    await_started(0, 1);
    struct got *waits = make_of(1, "m");
    start(waits);
    inner_inference_cancel(waits->inference);
    inner_inference_cancel(waits->inference); /* idempotent */
    assert_ended(waits, ST_CANCELLED, "last");
    set_gate(0, false);
    assert_ended(runs, ST_OK, "last");
    inner_inference_cancel(runs->inference); /* no effect */
    assert_serves(2);
    assert_int_equal(atomic_load(&opened[0].model->n_started), 2);
    close_server();
}

static void inner_cancelled_while_running_tells_backend(void **state) {
    (void)state;
    open_unloaded("");
    opened[0].handle_request = answer_unless_cancelled;
    models_fixture_load(test.repository);
    set_gate(0, true);
    struct got *got = make_of(0, "m");
    start(got);
    await_started(0, 1);
    inner_inference_cancel(got->inference);
    pass_worker();
    set_gate(0, false);
    assert_ended(got, ST_CANCELLED, "last");
    assert_int_equal(atomic_load(&opened[0].n_refused), 1);
    assert_serves(1);
    close_server();
}

/* ---- an inference inside of another ---------------------------------------------------------- */

static void inner_depth_is_bounded_and_cancellation_goes_down(void **state) {
    struct error err;
    struct inner_inference *none = NULL;
    (void)state;
    open_unloaded("");
    opened[0].handle_request = answer_unless_cancelled;
    models_fixture_load(test.repository);
    set_gate(0, true);
    start(make_of(0, "m"));
    await_started(0, 1);
    for (size_t i = 1; i <= INNER_MAX_DEPTH; i++) {
        start(make_inside(i, "m", i - 1));
        pass_worker();
    }
    struct inner_options options = options_of(&test.got[N_CALLS - 1], "m");
    options.worker = NULL;
    options.parent = inner_inference_base(test.got[INNER_MAX_DEPTH].inference);
    assert_int_equal(inner_inference_new(&options, &none, &err), ST_UNSUPPORTED);
    assert_string_equal(err.text, "model \"m\" is called inside of 16 others, which is the most: "
                                  "models call each other");
    inner_inference_cancel(test.got[0].inference);
    for (size_t i = 1; i <= INNER_MAX_DEPTH; i++) {
        assert_ended(&test.got[i], ST_CANCELLED, "last");
    }
    /* Its backend still runs: no other begins inside of it. */
    inner_inference_unref(test.got[1].inference);
    memset(&test.got[1], 0, sizeof(test.got[1]));
    start(make_inside(1, "n", 0));
    assert_ended(&test.got[1], ST_CANCELLED, "last");
    set_gate(0, false);
    assert_ended(&test.got[0], ST_CANCELLED, "last");
    assert_int_equal(atomic_load(&opened[0].model->n_started), 1);
    close_server();
}

static void inner_end_of_parent_cancels_child(void **state) {
    (void)state;
    open_unloaded("");
    opened[1].handle_request = answer_unless_cancelled;
    models_fixture_load(test.repository);
    set_gate(0, true);
    set_gate(1, true);
    struct got *parent = make_of(0, "m");
    start(parent);
    await_started(0, 1);
    struct got *child = make_inside(1, "n", 0);
    start(child);
    await_started(1, 1);
    set_gate(0, false);
    assert_ended(parent, ST_OK, "last");
    pass_worker();
    set_gate(1, false);
    assert_ended(child, ST_CANCELLED, "last");
    assert_int_equal(atomic_load(&opened[1].n_refused), 1);
    close_server();
}

/* Inside of test.got[0]. Thread: the worker's. */
static void make_none(void *arg) {
    struct error err;
    (void)arg;
    struct inner_inference *none = NULL;
    struct inner_options options = options_of(&test.got[N_CALLS - 1], "n");
    options.worker = NULL;
    options.account = NULL;
    options.parent = inner_inference_base(test.got[0].inference);
    assert_int_equal(inner_inference_new(&options, &none, &err), ST_NOT_READY);
    assert_string_equal(err.text, "model \"n\" is called for a request that is not with a model");
    assert_null(none);
}

static void assert_none_is_made(void) {
    worker_call(test.worker, make_none, NULL);
}

/* Before it is submitted its request may not be known; one that is refused ends at once. */
static void inner_none_is_made_inside_of_parent_that_was_not_submitted(void **state) {
    (void)state;
    open_server("");
    struct got *parent = make_of(0, "none");
    parent->keeps = true;
    assert_none_is_made();
    start(parent);
    assert_ended(parent, ST_UNKNOWN_MODEL, "last");
    pass_worker();
    assert_none_is_made();
    inner_response_release(parent->kept);
    assert_serves(1);
    close_server();
}

static void inner_none_begins_inside_of_parent_that_has_ended(void **state) {
    (void)state;
    open_server("");
    set_gate(0, true);
    struct got *parent = make_of(0, "m");
    parent->keeps = true;
    start(parent);
    await_started(0, 1);
    struct got *child = make_inside(1, "n", 0);
    set_gate(0, false);
    assert_ended(parent, ST_OK, "last");
    start(child);
    assert_ended(child, ST_CANCELLED, "last");
    assert_int_equal(atomic_load(&opened[1].model->n_started), 0);
    inner_response_release(parent->kept);
    assert_serves(2);
    close_server();
}

static struct inference *executed; /* whose request call_other has got last */

/* A model that calls another one from inside of `execute`, and waits for it. */
static void call_other(sluice_model *model, const sluice_request *request) {
    executed = inference_of_request(request);
    if (executed) {
        struct inner_options options = options_of(&test.got[1], "n");
        options.worker = NULL;
        options.account = NULL;
        options.parent = executed;
        start(make(1, &options));
        await(&test.got[1]);
    }
    rig_echo(model, request);
}

static void inner_backend_calls_another_model_from_execute(void **state) {
    (void)state;
    open_unloaded("");
    opened[0].handle_request = call_other;
    models_fixture_load(test.repository);
    struct got *got = make_of(0, "m");
    start(got);
    assert_ended(got, ST_OK, "last");
    assert_ptr_equal(executed, inner_inference_base(got->inference));
    assert_ended(&test.got[1], ST_OK, "last");
    assert_int_equal(atomic_load(&opened[1].model->n_started), 1);
    close_server();
}

static void inner_request_of_warmup_has_no_inference(void **state) {
    (void)state;
    struct inference unknown;
    executed = &unknown;
    open_unloaded("model_warmup { name: \"w\" batch_size: 1 inputs { key: \"x\" value { data_type: "
                  "TYPE_FP32 dims: 4 zero_data: true } } }");
    opened[0].handle_request = call_other;
    models_fixture_load(test.repository);
    assert_int_equal(atomic_load(&opened[0].model->n_started), 1);
    assert_null(executed);
    close_server();
}

/* Starts test.got[2] when test.got[1] has ended. */
static void respond_and_start_next(struct inner_response *response, void *user) {
    start_and_see(&test.got[2]);
    respond(response, user);
}

static void inner_none_begins_inside_of_cancelled_parent(void **state) {
    (void)state;
    open_server("");
    set_gate(0, true);
    start(make_of(0, "m"));
    await_started(0, 1);
    struct inner_options options = options_of(&test.got[1], "m");
    options.worker = NULL;
    options.account = NULL;
    options.parent = inner_inference_base(test.got[0].inference);
    options.respond = respond_and_start_next;
    make_inside(2, "m", 0);
    start(make(1, &options));
    pass_worker(); /* it waits in the queue */
    was_submitted = true;
    inner_inference_cancel(test.got[0].inference);
    assert_ended(&test.got[1], ST_CANCELLED, "last");
    assert_ended(&test.got[2], ST_CANCELLED, "last");
    assert_false(was_submitted);
    set_gate(0, false);
    await(&test.got[0]);
    assert_serves(3);
    close_server();
}

static void inner_child_has_earlier_deadline(void **state) {
    static const uint64_t hour_ns = UINT64_C(3600000000000);
    uint64_t now_ns = clock_now_ns();
    const struct {
        uint64_t parent, child, expected;
    } rows[] = {{0, 0, 0},
                {now_ns + hour_ns, 0, now_ns + hour_ns},
                {0, now_ns + hour_ns, now_ns + hour_ns},
                {now_ns + hour_ns, now_ns + 2 * hour_ns, now_ns + hour_ns},
                {now_ns + 2 * hour_ns, now_ns + hour_ns, now_ns + hour_ns}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_unloaded("");
        opened[1].handle_request = note_deadline;
        models_fixture_load(test.repository);
        set_gate(0, true);
        struct inner_options options = options_of(&test.got[0], "m");
        options.deadline_ns = rows[i].parent;
        start(make(0, &options));
        await_started(0, 1);
        options = options_of(&test.got[1], "n");
        options.worker = NULL;
        options.parent = inner_inference_base(test.got[0].inference);
        options.deadline_ns = rows[i].child;
        start(make(1, &options));
        assert_ended(&test.got[1], ST_OK, "last");
        assert_int_equal(atomic_load(&opened[1].deadline_ns), rows[i].expected);
        set_gate(0, false);
        assert_ended(&test.got[0], ST_OK, "last");
        close_server();
    }
}

/* ---- many at once ---------------------------------------------------------------------------- */

enum { N_STARTERS = 4, N_EACH = 200 };

struct starter {
    pthread_t thread;
    struct got got[N_EACH];
};

/* Every third is cancelled, every other one answers on a helper thread. */
static void *start_many(void *arg) {
    struct starter *starter = arg;
    for (size_t i = 0; i < N_EACH; i++) {
        struct got *got = &starter->got[i];
        struct inner_options options = options_of(got, i % 5 == 0 ? "n" : "m");
        struct error err;
        options.thread = i % 2 == 0 ? INNER_ON_WORKER : INNER_ON_HELPER;
        if (inner_inference_new(&options, &got->inference, &err) == ST_OK) {
            start(got);
            if (i % 3 == 0) {
                inner_inference_cancel(got->inference);
            }
            inner_inference_unref(got->inference);
        }
    }
    return NULL;
}

static void inner_many_of_several_threads_all_end_once(void **state) {
    static struct starter starters[N_STARTERS];
    (void)state;
    memset(starters, 0, sizeof(starters));
    open_server("");
    open_account((uint64_t)1 << 30, 0);
    for (size_t i = 0; i < N_STARTERS; i++) {
        assert_int_equal(pthread_create(&starters[i].thread, NULL, start_many, &starters[i]), 0);
    }
    for (size_t i = 0; i < N_STARTERS; i++) {
        pthread_join(starters[i].thread, NULL);
        for (size_t k = 0; k < N_EACH; k++) {
            struct got *got = &starters[i].got[k];
            bool may_be_cancelled = k % 3 == 0;
            await(got);
            assert_string_equal(got->steps, "last");
            assert_true(got->error.status == ST_OK ||
                        (may_be_cancelled && got->error.status == ST_CANCELLED));
            assert_int_equal(got->n_on_worker, k % 2 == 0);
        }
    }
    assert_serves(0);
    close_server();
}

/* ---- trace ----------------------------------------------------------------------------------- */

static void inner_inferences_are_traced_with_their_parent(void **state) {
    char file[PATH_MAX], setting[PATH_MAX + 16], text[4096];
    const char *items[] = {"level=TIMESTAMPS", "rate=1", setting};
    struct tracer_options options;
    struct tracer tracer = {.core = NULL};
    struct error err;
    (void)state;
    open_server("");
    (void)snprintf(setting, sizeof(setting), "triton,file=%s",
                   test_dir_path(&test.dir, "traces", file));
    assert_int_equal(trace_config_parse(items, 3, &options, &err), ST_OK);
    assert_int_equal(tracer_open(&tracer, &options, &err), ST_OK);
    test.services.tracer = &tracer;
    set_gate(0, true);
    start(make_of(0, "m"));
    await_started(0, 1);
    start(make_inside(1, "n", 0));
    assert_ended(&test.got[1], ST_OK, "last");
    set_gate(0, false);
    assert_ended(&test.got[0], ST_OK, "last");
    pass_worker(); /* the traces end with the release of the responses */
    tracer_close(&tracer);
    FILE *stream = fopen(file, "r");
    assert_non_null(stream);
    text[fread(text, 1, sizeof(text) - 1, stream)] = '\0';
    (void)fclose(stream);
    assert_non_null(strstr(text, "{\"id\":1,\"model_name\":\"m\",\"model_version\":1}"));
    assert_non_null(
        strstr(text, "{\"id\":2,\"model_name\":\"n\",\"model_version\":1,\"parent_id\":1}"));
    assert_non_null(strstr(text, "COMPUTE_START"));
    close_server();
}

/* ---- queue and unload ------------------------------------------------------------------------ */

static void inner_priority_goes_first(void **state) {
    static const uint64_t priorities[] = {0, 2, 1};
    (void)state;
    open_server("dynamic_batching { priority_levels: 2 default_priority_level: 2 "
                "preferred_batch_size: [ 1 ] }");
    set_gate(0, true);
    for (size_t i = 0; i < 3; i++) {
        struct inner_options options = options_of(&test.got[i], "m");
        options.priority = priorities[i];
        test.got[i].x[0] = (float)i;
        start(make(i, &options));
        pass_worker();
        if (i == 0) {
            await_started(0, 1);
        }
    }
    set_gate(0, false);
    for (size_t i = 0; i < 3; i++) {
        assert_ended(&test.got[i], ST_OK, "last");
        assert_int_equal(atomic_load(&opened[0].model->order[i]), i == 0 ? 0 : 3 - (int)i);
    }
    close_server();
}

static void inner_survives_unload_while_it_runs(void **state) {
    (void)state;
    open_server("");
    set_gate(0, true);
    struct got *got = make_of(0, "m");
    start(got);
    await_started(0, 1);
    unload();
    struct got *late = make_of(1, "m");
    start(late);
    await(late);
    assert_int_equal(late->error.status, ST_UNKNOWN_MODEL);
    set_gate(0, false);
    assert_ended(got, ST_OK, "last");
    close_server();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inner_tensors_go_in_and_come_out_by_reference),
        cmocka_unit_test(inner_wanted_outputs_and_version_are_chosen),
        cmocka_unit_test(inner_responses_come_in_order_on_chosen_thread),
        cmocka_unit_test(inner_started_on_worker_is_submitted_at_once),
        cmocka_unit_test(inner_kept_response_outlives_reference_and_model),
        cmocka_unit_test(inner_unknown_or_unready_model_is_refused),
        cmocka_unit_test(inner_request_that_does_not_fit_is_refused),
        cmocka_unit_test(inner_passed_deadline_is_refused),
        cmocka_unit_test(inner_more_than_budget_is_refused),
        cmocka_unit_test(inner_waits_for_budget),
        cmocka_unit_test(inner_that_waits_for_budget_is_cancelled),
        cmocka_unit_test(inner_child_does_not_wait_for_account_of_parent),
        cmocka_unit_test(inner_cancelled_before_start_does_not_run),
        cmocka_unit_test(inner_cancelled_in_queue_is_removed),
        cmocka_unit_test(inner_cancelled_while_running_tells_backend),
        cmocka_unit_test(inner_depth_is_bounded_and_cancellation_goes_down),
        cmocka_unit_test(inner_end_of_parent_cancels_child),
        cmocka_unit_test(inner_none_is_made_inside_of_parent_that_was_not_submitted),
        cmocka_unit_test(inner_none_begins_inside_of_parent_that_has_ended),
        cmocka_unit_test(inner_backend_calls_another_model_from_execute),
        cmocka_unit_test(inner_request_of_warmup_has_no_inference),
        cmocka_unit_test(inner_none_begins_inside_of_cancelled_parent),
        cmocka_unit_test(inner_child_has_earlier_deadline),
        cmocka_unit_test(inner_many_of_several_threads_all_end_once),
        cmocka_unit_test(inner_inferences_are_traced_with_their_parent),
        cmocka_unit_test(inner_priority_goes_first),
        cmocka_unit_test(inner_survives_unload_while_it_runs),
    };
    return cmocka_run_group_tests_name("serve/inference/inner", tests, NULL, NULL);
}

/* Thousands of requests of random sizes, shapes, parameters, priorities and timeouts, from several
 * workers to several instances; some are cancelled, some fail, some are answered asynchronously.
 * The backend gathers its inputs, as real ones do, and computes on the copy: an answer must match
 * its own input, whichever requests shared its batch. For the sanitizers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

enum { WORKERS = 3, IN_FLIGHT = 24, PER_WORKER = 8000, MAX_WIDTH = 16, ROWS = 4 };

/* ---- backend --------------------------------------------------------------------------------- */

/* Errors counted on threads that cannot assert. */
static atomic_int n_unfit, n_at_once, n_batched;

/* The outputs of a batch, freed with the last reference. */
struct block {
    atomic_size_t refs;
    float y[];
};

static void block_unref(void *cookie) {
    struct block *block = cookie;
    if (atomic_fetch_sub(&block->refs, 1) == 1) {
        free(block);
    }
}

static int64_t k_of(const sluice_request *request) {
    for (size_t i = 0; i < request->n_params; i++) {
        if (strcmp(request->params[i].name, "k") == 0) {
            return request->params[i].int64;
        }
    }
    return 0;
}

/* Copies the input's bytes to `out`. Returns: the number of elements. */
static size_t gather(const sluice_request *request, float *out) {
    const sluice_input *x = &request->inputs[0];
    size_t n = 0;
    for (size_t i = 0; i < x->n_pieces; i++) {
        memcpy(out + n, x->pieces[i].data, x->pieces[i].n_bytes);
        n += x->pieces[i].n_bytes / sizeof(float);
    }
    return n;
}

/* An answer to be sent later, perhaps from another thread. */
struct deferred_answer {
    struct deferred_answer *next;
    const sluice_request *request;
    struct block *block;
    float *y;
};

static void answer(const struct deferred_answer *deferred_answer) {
    const sluice_input *x = &deferred_answer->request->inputs[0];
    char text[40];
    float first = x->n_bytes > 0 ? *(const float *)x->pieces[0].data : 1;
    sluice_output output = {.index = 0,
                            .datatype = SLUICE_FP32,
                            .dims = x->dims,
                            .rank = x->rank,
                            .data = x->n_bytes > 0 ? deferred_answer->y : NULL,
                            .n_bytes = x->n_bytes};
    sluice_response response = {.size = sizeof(response),
                                .outputs = &output,
                                .n_outputs = 1,
                                .final = 1,
                                .release = block_unref,
                                .cookie = deferred_answer->block};
    if (first < 0) {
        snprintf(text, sizeof(text), "fails %.0f", (double)first);
        response.status = SLUICE_INTERNAL;
        response.error = text;
    }
    backend_host()->respond(deferred_answer->request, &response);
}

/* The thread that sends deferred answers. */
struct answerer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct deferred_answer *first;
    bool ending;
};

static struct answerer answerer = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                   .wake = PTHREAD_COND_INITIALIZER};

static void *answerer_main(void *arg) {
    (void)arg;
    pthread_mutex_lock(&answerer.lock);
    while (answerer.first || !answerer.ending) {
        struct deferred_answer *deferred_answer = answerer.first;
        if (!deferred_answer) {
            pthread_cond_wait(&answerer.wake, &answerer.lock);
            continue;
        }
        answerer.first = deferred_answer->next;
        pthread_mutex_unlock(&answerer.lock);
        answer(deferred_answer);
        free(deferred_answer);
        pthread_mutex_lock(&answerer.lock);
    }
    pthread_mutex_unlock(&answerer.lock);
    return NULL;
}

static void answer_later(const struct deferred_answer *deferred_answer) {
    struct deferred_answer *copy = malloc(sizeof(*copy));
    assert(copy);
    *copy = *deferred_answer;
    pthread_mutex_lock(&answerer.lock);
    copy->next = answerer.first;
    answerer.first = copy;
    pthread_cond_signal(&answerer.wake);
    pthread_mutex_unlock(&answerer.lock);
}

/* Returns: whether the requests may share a batch. */
static bool requests_fit(const sluice_request *const *requests, size_t n) {
    uint64_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        rows += requests[i]->batch;
        if (requests[i]->inputs[0].dims[1] != requests[0]->inputs[0].dims[1] ||
            k_of(requests[i]) != k_of(requests[0])) {
            return false;
        }
    }
    return n == 1 || rows <= RIG_ROWS_MAX;
}

static void mixed_execute(sluice_instance *instance, const sluice_request *const *requests,
                          size_t n) {
    atomic_fetch_add(&n_at_once, atomic_exchange(&instance->running, true));
    if (atomic_fetch_add(&instance->model->n_executions, 1) % 4 == 0) {
        rig_pause();
    }
    struct block *block = malloc(sizeof(*block) + n * ROWS * MAX_WIDTH * sizeof(float));
    float *slices[64];
    size_t at = 0;
    int64_t k = k_of(requests[0]);
    assert(block);
    atomic_init(&block->refs, n);
    atomic_fetch_add(&n_unfit, !requests_fit(requests, n));
    atomic_fetch_add(&n_batched, n > 1);
    for (size_t i = 0; i < n; i++) {
        slices[i] = block->y + at;
        at += gather(requests[i], slices[i]);
    }
    for (size_t i = 0; i < at; i++) { /* all of the batch together */
        block->y[i] = block->y[i] * 2 + (float)k;
    }
    for (size_t i = 0; i < n; i++) {
        struct deferred_answer deferred_answer = {NULL, requests[i], block, slices[i]};
        if ((at + i) % 7 == 0) {
            answer_later(&deferred_answer);
        } else {
            answer(&deferred_answer);
        }
    }
    atomic_store(&instance->running, false);
}

static sluice_status mixed_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    static const int64_t any[2] = {-1, -1};
    static const char *const symbols[2] = {"N", ""};
    static const sluice_tensor_info inputs[1] = {
        {.name = "x", .datatype = SLUICE_FP32, .dims = any, .rank = 2, .symbols = symbols}};
    static const sluice_tensor_info outputs[1] = {
        {.name = "y", .datatype = SLUICE_FP32, .dims = any, .rank = 2, .symbols = symbols}};
    (void)model;
    (void)error;
    info->inputs = inputs;
    info->n_inputs = 1;
    info->outputs = outputs;
    info->n_outputs = 1;
    return SLUICE_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

enum { N_PARAMS = 3 };

struct client_worker;

/* A slot for a request; its arena is NULL while it is free. */
struct slot {
    struct call call;
    struct client_worker *client;
    struct infer_request request;
    struct infer_input input;
    struct piece pieces[2];
    int64_t dims[2];
    struct param params[N_PARAMS];
    float x[ROWS * MAX_WIDTH];
    int64_t k;
    unsigned serial;
    bool fails, cancelled, may_time_out;
};

/* A worker that keeps some requests in flight. */
struct client_worker {
    struct worker *worker;
    struct model_version *version;
    bool preserve_ordering;
    struct slot slots[IN_FLIGHT];
    unsigned n_sent, n_done, n_wrong;
    unsigned last_serial; /* of the executed ones */
    int64_t n_by_status[ST_INTERNAL + 1];
    struct worker_msg refill_msg; /* sends requests in free slots */
    bool refill_posted;
    uint32_t number, prng;
};

static uint32_t next_random(struct client_worker *client, uint32_t sides) {
    client->prng = client->prng * 1664525u + 1013904223u;
    return (client->prng >> 8) % sides;
}

static bool output_is_right(const struct slot *slot, const struct tensor *y) {
    size_t n = (size_t)(slot->dims[0] * slot->dims[1]);
    if (y->shape.rank != 2 || y->shape.dims[0] != slot->dims[0] ||
        y->shape.dims[1] != slot->dims[1] || y->n_bytes != n * sizeof(float)) {
        return false;
    }
    const float *got = n > 0 ? y->pieces[0].data : NULL;
    for (size_t i = 0; i < n; i++) {
        if (got[i] != slot->x[i] * 2 + (float)slot->k) {
            return false;
        }
    }
    return true;
}

/* Returns: whether the request may end with this status. */
static bool outcome_is_expected(const struct slot *slot) {
    const struct infer_response *response = &slot->call.response;
    char text[40];
    switch ((int)response->error.status) {
    case ST_OK:
        return !slot->fails && output_is_right(slot, &response->outputs[0]);
    case ST_BACKEND_FAILED:
        snprintf(text, sizeof(text), "fails -%u", slot->serial + 1);
        return slot->fails && strcmp(response->error.text, text) == 0;
    case ST_CANCELLED:
        return slot->cancelled && slot->call.started_ns == 0;
    case ST_QUEUE_FULL:
        return slot->call.started_ns == 0;
    case ST_QUEUE_TIMEOUT:
        return slot->call.started_ns == 0 &&
               (slot->may_time_out || slot->client->version->config.queue.timeout_us > 0);
    case ST_DEADLINE_EXCEEDED:
        return slot->call.started_ns == 0 && slot->request.deadline_ns > 0;
    default:
        return false;
    }
}

static void check_outcome(struct client_worker *client, const struct slot *slot) {
    enum status status = slot->call.response.error.status;
    bool wrong = !outcome_is_expected(slot);
    if (slot->call.started_ns > 0) {
        wrong = wrong || (client->preserve_ordering && slot->serial < client->last_serial);
        client->last_serial = slot->serial;
    }
    if (wrong && client->n_wrong++ == 0) {
        print_message("request %u: %s: %s\n", slot->serial, status_name(status),
                      slot->call.response.error.text);
    }
    client->n_by_status[status]++;
}

static void on_done(struct call *call) {
    struct slot *slot = (struct slot *)(void *)call;
    struct client_worker *client = slot->client;
    check_outcome(client, slot);
    infer_response_release(&call->response);
    arena_free(slot->request.arena);
    slot->request.arena = NULL;
    client->n_done++;
    if (client->n_done == PER_WORKER) {
        worker_stop(client->worker);
    } else if (!client->refill_posted) {
        client->refill_posted = true;
        worker_post(client->worker, &client->refill_msg);
    }
}

static void set_param(struct slot *slot, const char *name, int64_t value) {
    struct param *param = &slot->params[slot->request.params.n++];
    *param = (struct param){.name = str_of(name), .kind = PARAM_INT64, .int64 = value};
}

/* Values unique to the request, to detect answers to other requests. */
static void fill(struct client_worker *client, struct slot *slot) {
    static const int64_t widths[] = {1, 3, MAX_WIDTH};
    slot->dims[0] = 1 + next_random(client, ROWS);
    slot->dims[1] = widths[next_random(client, 3)];
    slot->fails = next_random(client, 10) == 0;
    size_t n = (size_t)(slot->dims[0] * slot->dims[1]);
    for (size_t i = 0; i < n; i++) {
        slot->x[i] = (float)((client->number * PER_WORKER + slot->serial) * 64 + i);
    }
    if (slot->fails) {
        slot->x[0] = -(float)(slot->serial + 1);
    }
    size_t split = n > 0 ? next_random(client, (uint32_t)n) : 0;
    slot->pieces[0] = (struct piece){slot->x, (n - split) * sizeof(float)};
    slot->pieces[1] = (struct piece){slot->x + (n - split), split * sizeof(float)};
    slot->input.tensor = (struct tensor){.name = STR("x"),
                                         .datatype = DT_FP32,
                                         .shape = {slot->dims, 2},
                                         .pieces = slot->pieces,
                                         .n_pieces = n == 0      ? 0
                                                     : split > 0 ? 2
                                                                 : 1,
                                         .n_bytes = n * sizeof(float)};
}

static void add_params(struct client_worker *client, struct slot *slot) {
    slot->k = next_random(client, 3);
    if (slot->k > 0) {
        set_param(slot, "k", slot->k);
    }
    if (next_random(client, 2) == 0) {
        set_param(slot, "priority", next_random(client, 5));
    }
    if (next_random(client, 8) == 0) {
        set_param(slot, "timeout", 1 + next_random(client, 2000));
        slot->may_time_out = true;
    }
    if (next_random(client, 16) == 0) {
        slot->request.deadline_ns = clock_now_ns() + next_random(client, 2000) * 1000;
    }
}

static void send_in(struct client_worker *client, struct slot *slot) {
    struct error err;
    memset(slot, 0, sizeof(*slot));
    slot->client = client;
    slot->serial = client->n_sent++;
    slot->request.arena = arena_new(worker_arenas(client->worker), 0);
    slot->request.params.items = slot->params;
    slot->request.inputs = &slot->input;
    slot->request.n_inputs = 1;
    slot->call = (struct call){.request = &slot->request,
                               .worker = client->worker,
                               .run_immediately = next_random(client, 12) == 0,
                               .done = on_done};
    fill(client, slot);
    add_params(client, slot);
    if (infer_check(&slot->request, model_version_spec(client->version), &err) != ST_OK) {
        print_error("%s\n", err.text); /* assertions are not possible on this thread */
        abort();
    }
    model_version_ref(client->version);
    call_submit(&slot->call, client->version);
    struct slot *victim =
        next_random(client, 2) == 0 ? slot : &client->slots[next_random(client, IN_FLIGHT)];
    if (victim->request.arena && next_random(client, 8) == 0) {
        victim->cancelled = true;
        call_cancel(&victim->call);
    }
}

static void on_refill(struct worker_msg *msg) {
    struct client_worker *client = CONTAINER_OF(msg, struct client_worker, refill_msg);
    client->refill_posted = false;
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        if (!client->slots[i].request.arena && client->n_sent < PER_WORKER) {
            send_in(client, &client->slots[i]);
        }
    }
}

static void *run_client(void *arg) {
    struct client_worker *client = arg;
    client->refill_msg.run = on_refill;
    client->refill_posted = true;
    worker_post(client->worker, &client->refill_msg);
    worker_run(client->worker);
    return NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Counters of requests that no instance took, and the status of their answers. */
static const struct {
    enum metric metric;
    enum status status;
} counters[] = {
    {METRIC_DROPPED_QUEUE_FULL, ST_QUEUE_FULL},
    {METRIC_DROPPED_QUEUE_TIMEOUT, ST_QUEUE_TIMEOUT},
    {METRIC_DROPPED_DEADLINE, ST_DEADLINE_EXCEEDED},
    {METRIC_DROPPED_CANCELLED, ST_CANCELLED},
};
enum { N_COUNTERS = sizeof(counters) / sizeof(counters[0]) };

static struct client_worker clients[WORKERS];

static void run_clients(struct rig *rig) {
    pthread_t threads[WORKERS];
    struct error err;
    answerer.ending = false;
    assert_int_equal(pthread_create(&answerer.thread, NULL, answerer_main, NULL), 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        clients[i] =
            (struct client_worker){.version = rig->version,
                                   .preserve_ordering = rig->version->config.preserve_ordering,
                                   .number = i,
                                   .prng = i};
        assert_int_equal(worker_new("crowd", &clients[i].worker, &err), ST_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_mutex_lock(&answerer.lock);
    answerer.ending = true;
    pthread_cond_signal(&answerer.wake);
    pthread_mutex_unlock(&answerer.lock);
    pthread_join(answerer.thread, NULL);
    for (int i = 0; i < WORKERS; i++) {
        worker_free(clients[i].worker);
    }
}

/* Returns: the number of successful executions. */
static int64_t check_counts(const int64_t before[N_COUNTERS]) {
    int64_t n_ok = 0;
    for (int w = 0; w < WORKERS; w++) {
        assert_int_equal(clients[w].n_wrong, 0);
        assert_int_equal(clients[w].n_done, PER_WORKER);
        n_ok += clients[w].n_by_status[ST_OK];
    }
    for (size_t i = 0; i < N_COUNTERS; i++) {
        int64_t n = 0;
        for (int w = 0; w < WORKERS; w++) {
            n += clients[w].n_by_status[counters[i].status];
        }
        assert_int_equal(metric_read(counters[i].metric), before[i] + n);
    }
    return n_ok;
}

static void run_mixed_load(const struct model_config *config) {
    static struct rig rig;
    int64_t before[N_COUNTERS];
    struct model_statistics counted;
    struct error err;
    sluice_backend backend = rig_backend;
    backend.model_describe = mixed_describe;
    backend.execute = mixed_execute;
    for (size_t i = 0; i < N_COUNTERS; i++) {
        before[i] = metric_read(counters[i].metric);
    }
    assert_int_equal(rig_open_with(&rig, &backend, config, 60, &err), ST_OK);
    run_clients(&rig);
    int64_t n_ok = check_counts(before);
    assert_true(n_ok > 0);
    rig_await_unused(&rig);
    model_version_statistics(rig.version, &counted);
    assert_int_equal(counted.success.count, n_ok);
    assert_int_equal(counted.n_queued + counted.n_running, 0);
    rig_close(&rig);
    assert_int_equal(atomic_load(&n_unfit) + atomic_load(&n_at_once), 0);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static const uint64_t three[] = {3};

static void mixed_load_default_config_outputs_are_right(void **state) {
    (void)state;
    run_mixed_load(&(struct model_config){.instance_count = 2});
}

static void mixed_load_on_workers_batches_inline(void **state) {
    (void)state;
    atomic_store(&n_batched, 0);
    int64_t before = metric_read(METRIC_INLINE_EXECUTIONS_TOTAL);
    run_mixed_load(&(struct model_config){.instance_count = 2, .run_on = RUN_ON_WORKER});
    assert_true(metric_read(METRIC_INLINE_EXECUTIONS_TOTAL) > before);
    assert_true(atomic_load(&n_batched) > 0);
}

/* One instance for three workers: many inline calls move to the short queue. */
static void mixed_load_on_workers_with_priorities_and_timeouts(void **state) {
    (void)state;
    static const struct model_config_level delays[] = {
        {3, {.timeout_us = 300, .allow_override = true, .delay_on_timeout = true, .max_size = 5}}};
    int64_t before = metric_read(METRIC_INLINE_EXECUTIONS_TOTAL);
    run_mixed_load(&(struct model_config){.run_on = RUN_ON_WORKER,
                                          .priority_levels = 3,
                                          .default_priority = 2,
                                          .queue = {.allow_override = true, .max_size = 12},
                                          .levels = delays,
                                          .n_levels = 1});
    assert_true(metric_read(METRIC_INLINE_EXECUTIONS_TOTAL) > before);
}

/* A model whose speed changes. */
static void mixed_load_auto_placement_outputs_are_right(void **state) {
    (void)state;
    run_mixed_load(&(struct model_config){.run_on = RUN_AUTO, .queue = {.timeout_us = 2000}});
}

static void mixed_load_on_instances_with_priorities_and_timeouts(void **state) {
    (void)state;
    static const struct model_config_level delays[] = {
        {3, {.timeout_us = 500, .allow_override = true, .delay_on_timeout = true, .max_size = 9}}};
    atomic_store(&n_batched, 0);
    run_mixed_load(&(struct model_config){.instance_count = 3,
                                          .run_on = RUN_ON_INSTANCE,
                                          .priority_levels = 3,
                                          .default_priority = 2,
                                          .queue = {.allow_override = true},
                                          .levels = delays,
                                          .n_levels = 1});
    assert_true(atomic_load(&n_batched) > 0);
}

static void mixed_load_with_queue_delay_and_preferred_size(void **state) {
    (void)state;
    run_mixed_load(&(struct model_config){.instance_count = 2,
                                          .run_on = RUN_ON_INSTANCE,
                                          .max_queue_delay_us = 200,
                                          .preferred_batch_sizes = three,
                                          .n_preferred = 1});
}

static void mixed_load_in_order(void **state) {
    (void)state;
    run_mixed_load(&(struct model_config){.instance_count = 3,
                                          .preserve_ordering = true,
                                          .queue = {.timeout_us = 4000, .allow_override = true}});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_load_default_config_outputs_are_right),
        cmocka_unit_test(mixed_load_on_workers_batches_inline),
        cmocka_unit_test(mixed_load_on_workers_with_priorities_and_timeouts),
        cmocka_unit_test(mixed_load_auto_placement_outputs_are_right),
        cmocka_unit_test(mixed_load_on_instances_with_priorities_and_timeouts),
        cmocka_unit_test(mixed_load_with_queue_delay_and_preferred_size),
        cmocka_unit_test(mixed_load_in_order),
    };
    return cmocka_run_group_tests_name("serve/scheduler/mixed_load", tests, NULL, NULL);
}

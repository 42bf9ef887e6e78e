/* For tests: a backend whose behaviour a test sets, and a rig that sends requests through a version
 * of it from a worker. The model has input x and outputs y (a copy of x) and rows (one INT64 per
 * row), all batched by "N". */
#ifndef SLUICE_SERVE_REPOSITORY_TEST_RIG_H
#define SLUICE_SERVE_REPOSITORY_TEST_RIG_H

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/call.h"
#include "serve/scheduler/version.h"

/* ---- backend --------------------------------------------------------------------------------- */

enum { RIG_ROWS_MAX = 8, RIG_WIDTH = 4, RIG_CALLS = 64 };

/* What a test controls and observes of the model. */
struct sluice_model {
    /* handles one request; NULL: rig_echo */
    void (*handle_request)(struct sluice_model *model, const sluice_request *request);
    void (*corrupt_response)(sluice_response *response, sluice_output *outputs, int64_t *dims);
    uint64_t execution_ns;       /* each execution advances the driven clock by this */
    atomic_int n_started;        /* requests that reached execute */
    atomic_int n_executions;     /* calls of execute */
    atomic_int sizes[RIG_CALLS]; /* requests per execution */
    atomic_int n_released;
    atomic_bool gate_closed;     /* execute blocks while this is true */
    atomic_int order[RIG_CALLS]; /* the first value of x of each request */
    const sluice_request *kept;  /* by rig_keep */
    uint64_t max_batch_size;     /* passed to model_open */
    uint32_t n_threads;
    int n_instances;
};

struct sluice_instance {
    sluice_model *model;
    atomic_bool running; /* to detect concurrent calls of execute */
};

static inline void rig_pause(void) {
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000}, NULL);
}

static inline void rig_release(void *cookie) {
    sluice_model *model = cookie;
    atomic_fetch_add(&model->n_released, 1);
}

/* Answers with the request's own bytes as y. */
static inline void rig_answer(sluice_model *model, const sluice_request *request, int32_t final) {
    static const int64_t numbers[RIG_ROWS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    const sluice_input *x = &request->inputs[0];
    int64_t dims[4] = {x->dims[0], x->rank > 1 ? x->dims[1] : 0, 1, 1};
    sluice_output outputs[2];
    for (size_t i = 0; i < request->n_wanted; i++) {
        outputs[i] = request->wanted[i] == 0
                         ? (sluice_output){.index = 0,
                                           .datatype = SLUICE_FP32,
                                           .dims = dims,
                                           .rank = x->rank,
                                           .data = x->n_pieces ? x->pieces[0].data : NULL,
                                           .n_bytes = x->n_bytes}
                         : (sluice_output){.index = 1,
                                           .datatype = SLUICE_INT64,
                                           .dims = dims,
                                           .rank = 1,
                                           .data = numbers,
                                           .n_bytes = (size_t)dims[0] * sizeof(int64_t)};
    }
    sluice_response response = {.size = sizeof(response),
                                .outputs = outputs,
                                .n_outputs = request->n_wanted,
                                .final = final,
                                .release = rig_release,
                                .cookie = model};
    if (model->corrupt_response) {
        model->corrupt_response(&response, outputs, dims);
    }
    backend_host()->respond(request, &response);
}

static inline void rig_echo(sluice_model *model, const sluice_request *request) {
    rig_answer(model, request, 1);
}

/* Answers nothing; the test does it later. */
static inline void rig_keep(sluice_model *model, const sluice_request *request) {
    model->kept = request;
}

static inline sluice_status rig_model_open(const sluice_model_args *args, sluice_model **model,
                                           sluice_error *error) {
    (void)error;
    *model = calloc(1, sizeof(**model));
    assert(*model);
    (*model)->max_batch_size = args->max_batch_size;
    (*model)->n_threads = args->n_threads;
    return SLUICE_OK;
}

static inline sluice_status rig_describe(sluice_model *model, sluice_model_info *info,
                                         sluice_error *error) {
    static const int64_t wide[2] = {-1, RIG_WIDTH};
    static const char *const symbols[2] = {"N", ""};
    static const sluice_tensor_info inputs[1] = {
        {.name = "x", .datatype = SLUICE_FP32, .dims = wide, .rank = 2, .symbols = symbols}};
    static const sluice_tensor_info outputs[2] = {
        {.name = "y", .datatype = SLUICE_FP32, .dims = wide, .rank = 2, .symbols = symbols},
        {.name = "rows", .datatype = SLUICE_INT64, .dims = wide, .rank = 1, .symbols = symbols}};
    (void)model;
    (void)error;
    info->inputs = inputs;
    info->n_inputs = 1;
    info->outputs = outputs;
    info->n_outputs = 2;
    info->time_follows_shapes = 1;
    return SLUICE_OK;
}

static inline void rig_model_close(sluice_model *model) {
    free(model);
}

static inline sluice_status rig_instance_open(sluice_model *model, uint32_t index,
                                              sluice_instance **instance, sluice_error *error) {
    (void)index;
    (void)error;
    *instance = calloc(1, sizeof(**instance));
    assert(*instance);
    (*instance)->model = model;
    model->n_instances++;
    return SLUICE_OK;
}

static inline void rig_instance_close(sluice_instance *instance) {
    instance->model->n_instances--;
    free(instance);
}

static inline void rig_execute(sluice_instance *instance, const sluice_request *const *requests,
                               size_t n) {
    sluice_model *model = instance->model;
    int execution = atomic_fetch_add(&model->n_executions, 1);
    atomic_store(&model->sizes[execution % RIG_CALLS], (int)n);
    for (size_t i = 0; i < n; i++) {
        int at = atomic_fetch_add(&model->n_started, 1);
        if (requests[i]->n_inputs > 0 && requests[i]->inputs[0].n_bytes > 0) {
            const float *x = requests[i]->inputs[0].pieces[0].data;
            atomic_store(&model->order[at % RIG_CALLS], (int)x[0]);
        }
        while (atomic_load(&model->gate_closed)) {
            rig_pause();
        }
        if (model->execution_ns > 0) {
            clock_set_fake_ns(clock_now_ns() + model->execution_ns);
        }
        (model->handle_request ? model->handle_request : rig_echo)(model, requests[i]);
    }
}

static const char *const rig_extensions[] = {".fake", NULL};

static const sluice_backend rig_backend = {
    .size = sizeof(rig_backend),
    .abi = SLUICE_BACKEND_ABI,
    .name = "fake",
    .version = "1",
    .extensions = rig_extensions,
    .model_open = rig_model_open,
    .model_describe = rig_describe,
    .model_close = rig_model_close,
    .instance_open = rig_instance_open,
    .instance_close = rig_instance_close,
    .execute = rig_execute,
};

/* ---- requests -------------------------------------------------------------------------------- */

struct rig;

/* A request with one row (or `rows`) of x, and its result. */
struct rig_call {
    struct call call;
    struct rig *rig;
    struct infer_request request;
    struct infer_input input;
    struct piece piece;
    int64_t dims[2];
    float x[RIG_ROWS_MAX * RIG_WIDTH];
    /* set by done */
    int n_done;
    int done_index; /* order of completion, from 0 */
    struct error error;
    size_t n_outputs;
    int64_t y_dims[8];
    size_t y_rank;
    float y[RIG_ROWS_MAX * RIG_WIDTH];
    size_t n_params;
    char text[64]; /* the first parameter, if it is text */
};

/* A version, a worker (the calling thread, while rig_run runs), and its requests. */
struct rig {
    struct model_version *version;
    sluice_model *model;
    struct worker *worker;
    struct rig_call calls[RIG_CALLS];
    int n_done;
    int expected; /* the worker's loop ends after this many calls */
    void (*step)(struct rig *rig);
    struct worker_msg msg;
};

static inline void rig_take_output(struct rig_call *call, const struct tensor *y) {
    call->y_rank = y->shape.rank;
    for (size_t d = 0; d < y->shape.rank && d < 8; d++) {
        call->y_dims[d] = y->shape.dims[d];
    }
    if (y->n_pieces > 0 && y->n_bytes <= sizeof(call->y)) {
        memcpy(call->y, y->pieces[0].data, y->n_bytes);
    }
}

static inline void rig_done(struct call *done) {
    struct rig_call *call = (struct rig_call *)(void *)done;
    struct rig *rig = call->rig;
    const struct infer_response *response = &done->response;
    call->n_done++;
    call->done_index = rig->n_done;
    call->error = response->error;
    call->n_outputs = response->n_outputs;
    if (response->error.status == ST_OK && response->n_outputs > 0) {
        rig_take_output(call, &response->outputs[0]);
    }
    call->n_params = response->params.n;
    if (response->params.n > 0 && response->params.items[0].kind == PARAM_STRING) {
        strncpy(call->text, response->params.items[0].string.ptr, sizeof(call->text) - 1);
    }
    infer_response_release(&done->response);
    arena_free(call->request.arena);
    call->request.arena = NULL;
    rig->n_done++;
    if (rig->n_done == rig->expected) {
        worker_stop(rig->worker);
    }
}

/* Fills calls[i] with `rows` rows whose numbers begin with `first`, without infer_check. On the
 * worker's thread. */
static inline struct rig_call *rig_make_unchecked(struct rig *rig, size_t i, int64_t rows,
                                                  float first) {
    struct rig_call *call = &rig->calls[i];
    memset(call, 0, sizeof(*call));
    for (size_t n = 0; n < (size_t)rows * RIG_WIDTH && n < RIG_ROWS_MAX * RIG_WIDTH; n++) {
        call->x[n] = first + (float)n;
    }
    call->rig = rig;
    call->dims[0] = rows;
    call->dims[1] = RIG_WIDTH;
    call->piece = (struct piece){call->x, (size_t)rows * RIG_WIDTH * sizeof(float)};
    call->input.tensor = (struct tensor){.name = STR("x"),
                                         .datatype = DT_FP32,
                                         .shape = {call->dims, 2},
                                         .pieces = &call->piece,
                                         .n_pieces = rows > 0 ? 1 : 0,
                                         .n_bytes = call->piece.n_bytes};
    call->request.arena = arena_new(worker_arenas(rig->worker), 0);
    call->request.inputs = &call->input;
    call->request.n_inputs = 1;
    call->call.request = &call->request;
    call->call.worker = rig->worker;
    call->call.done = rig_done;
    return call;
}

static inline struct rig_call *rig_make(struct rig *rig, size_t i, int64_t rows, float first) {
    struct rig_call *call = rig_make_unchecked(rig, i, rows, first);
    struct error err;
    enum status st = infer_check(&call->request, model_version_spec(rig->version), &err);
    assert(st == ST_OK);
    (void)st;
    return call;
}

static inline void rig_submit(struct rig_call *call) {
    model_version_ref(call->rig->version);
    call_submit(&call->call, call->rig->version);
}

static inline struct rig_call *rig_send(struct rig *rig, size_t i) {
    struct rig_call *call = rig_make(rig, i, 1, (float)i);
    rig_submit(call);
    return call;
}

static inline void rig_on_step(struct worker_msg *msg) {
    struct rig *rig = CONTAINER_OF(msg, struct rig, msg);
    rig->step(rig);
}

/* Runs `step` on a worker, and its loop until `expected` calls are done (0: until the step
 * returned). */
static inline void rig_run(struct rig *rig, void (*step)(struct rig *rig), int expected) {
    struct error err;
    enum status st = worker_new("test", &rig->worker, &err);
    assert(st == ST_OK);
    (void)st;
    rig->n_done = 0;
    rig->expected = expected;
    rig->step = step;
    rig->msg = (struct worker_msg){.run = rig_on_step};
    worker_post(rig->worker, &rig->msg);
    if (expected == 0) {
        worker_stop(rig->worker);
    }
    worker_run(rig->worker);
    worker_free(rig->worker);
}

/* Called from a step: runs the next one in the worker's next loop iteration. */
static inline void rig_then(struct rig *rig, void (*step)(struct rig *rig)) {
    rig->step = step;
    worker_post(rig->worker, &rig->msg);
}

/* Waits, without a worker's loop, until `n` requests have reached execute. */
static inline void rig_await_started(struct rig *rig, int n) {
    while (atomic_load(&rig->model->n_started) < n) {
        rig_pause();
    }
}

/* Waits until only the rig uses the version: an instance's thread leaves it after its last answer,
 * which a worker may see before. */
static inline void rig_await_unused(struct rig *rig) {
    while (atomic_load(&rig->version->n_in_flight) > 0) {
        rig_pause();
    }
    assert_int_equal(atomic_load(&rig->version->refs), 1);
}

/* ---- version --------------------------------------------------------------------------------- */

/* Opens a version of `backend` with `config` (NULL: none). */
static inline enum status rig_open_with(struct rig *rig, const sluice_backend *backend,
                                        const struct model_config *config, uint64_t max_queue,
                                        struct error *err) {
    static const struct model_config none = {.latest_count = 1};
    struct model_config copy = config ? *config : none;
    copy.backend = str_of(backend->name);
    struct version_options options = {.backend = backend,
                                      .config = &copy,
                                      .name = STR("m"),
                                      .version = 3,
                                      .path = STR("m.fake"),
                                      .directory = STR(""),
                                      .default_max_batch_size = RIG_ROWS_MAX,
                                      .max_queue_size = max_queue,
                                      .usable_cpus = 2};
    memset(rig, 0, sizeof(*rig));
    enum status st = version_open(&options, &rig->version, err);
    if (st == ST_OK) {
        rig->model = rig->version->model;
    }
    return st;
}

static inline void rig_open(struct rig *rig, const struct model_config *config,
                            uint64_t max_queue) {
    struct error err;
    enum status st = rig_open_with(rig, &rig_backend, config, max_queue, &err);
    assert(st == ST_OK);
    (void)st;
}

static inline void rig_close(struct rig *rig) {
    version_stop(rig->version);
    version_close(rig->version);
}

#endif

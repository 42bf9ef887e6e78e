/* Inner inferences: the table of functions for the pipeline, and what lets other threads start,
 * cancel and release. All of it is done on the worker; another thread sends a message.
 *
 * References: the caller's, one of the pipeline until all responses are released, one of each
 * message and of each job. */
#include "serve/inference/inner.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/compiler.h"
#include "serve/scheduler/version.h"

/* In its own arena, without a cache: any thread may free it. */
struct inner_inference {
    struct inference base;
    struct infer_request request;
    struct inner_options options;
    struct arena *arena;
    atomic_size_t n_refs;
    struct worker_msg start_msg, cancel_msg;
    atomic_bool cancel_posted;
    /* of the worker */
    bool is_started;
    bool cancel_early;   /* cancelled before the start was carried out */
    bool partial_lost;   /* a response before the last was lost for lack of memory */
    size_t n_unreleased; /* responses that `respond` has got */
    bool last_released;
    struct inner_response last;
};

/* What a response before the last takes besides: its own arena, and one of its receiver. */
enum { INNER_RESPONSE_BYTES = 8192 };

static struct inner_inference *inner_of(struct inference *base) {
    return CONTAINER_OF(base, struct inner_inference, base);
}

static void ref(struct inner_inference *self) {
    atomic_fetch_add_explicit(&self->n_refs, 1, memory_order_relaxed);
}

void inner_inference_unref(struct inner_inference *self) {
    if (atomic_fetch_sub_explicit(&self->n_refs, 1, memory_order_acq_rel) == 1) {
        arena_free(self->arena); /* `self`, too */
    }
}

struct inference *inner_inference_base(struct inner_inference *self) {
    return &self->base;
}

/* ---- responses ------------------------------------------------------------------------------- */

/* Thread: the worker's. */
static void release_response(struct inner_response *response) {
    struct inner_inference *self = response->inference;
    if (response->is_running) { /* on_responded does it */
        response->is_released = true;
        return;
    }
    if (response->last) {
        infer_response_release(&self->base.call.response);
        self->last_released = true;
    } else {
        outgoing_response_free(response->outgoing); /* `response`, too */
    }
    self->n_unreleased--;
    if (self->last_released && self->n_unreleased == 0) {
        inference_fini(&self->base, false);
        inner_inference_unref(self);
    }
}

static void on_release(struct worker_msg *msg) {
    release_response(CONTAINER_OF(msg, struct inner_response, msg));
}

void inner_response_release(struct inner_response *response) {
    struct worker *worker = response->inference->base.call.worker;
    if (worker_is_current(worker)) {
        release_response(response);
        return;
    }
    response->msg = (struct worker_msg){.run = on_release};
    worker_post(worker, &response->msg);
}

static void run_respond(struct helper_job *job) {
    struct inner_response *response = CONTAINER_OF(job, struct inner_response, job);
    const struct inner_options *options = &response->inference->options;
    options->respond(response, options->user);
}

static void on_responded(struct helper_job *job) {
    struct inner_response *response = CONTAINER_OF(job, struct inner_response, job);
    struct inner_inference *self = response->inference;
    bool last = response->last;
    response->is_running = false;
    if (response->is_released) {
        release_response(response);
    }
    if (!last) {
        inference_deliver_next(&self->base);
    }
    inner_inference_unref(self);
}

/* Returns: whether `respond` has returned. */
static bool hand_over(struct inner_response *response) {
    struct inner_inference *self = response->inference;
    self->n_unreleased++;
    if (self->options.thread == INNER_ON_WORKER) {
        self->options.respond(response, self->options.user);
        return true;
    }
    ref(self);
    response->is_running = true;
    response->job = (struct helper_job){.worker = self->base.call.worker,
                                        .run = run_respond,
                                        .done = on_responded,
                                        .client = self->base.call.client,
                                        .ns = HELPER_MIN_NS};
    helper_pool_submit(self->base.call.helpers, &response->job);
    return false;
}

/* Counted until it is released: a caller that does not read may have many calls open. */
static void count_partial(struct outgoing_response *outgoing) {
    struct inference *base = outgoing->inference;
    outgoing->n_bytes = arena_bytes(outgoing->arena) + INNER_RESPONSE_BYTES +
                        infer_response_bytes(outgoing->response);
    base->partial_bytes += outgoing->n_bytes;
    memory_add(&base->memory, outgoing->n_bytes);
}

static bool deliver_partial(struct inner_inference *self, struct outgoing_response *outgoing) {
    struct inner_response *response =
        outgoing->arena ? arena_calloc(outgoing->arena, 1, sizeof(*response)) : NULL;
    if (response) {
        count_partial(outgoing);
        *response = (struct inner_response){
            .inference = self, .response = outgoing->response, .outgoing = outgoing};
        return hand_over(response);
    }
    self->partial_lost = true; /* the others would be of no use */
    if (outgoing->arena) {
        outgoing_response_free(outgoing);
    } else {
        infer_response_release(outgoing->response);
    }
    inference_cancel(&self->base);
    return true;
}

static bool deliver(struct inference *base, struct outgoing_response *outgoing) {
    struct inner_inference *self = inner_of(base);
    if (!outgoing->last) {
        return deliver_partial(self, outgoing);
    }
    if (base->state != INFERENCE_REFUSED) {
        inference_set_state(base, INFERENCE_ANSWERED);
    }
    if (base->served_version) {
        inference_keep_version(base); /* the outputs' names are the version's */
    }
    if (self->partial_lost) {
        infer_response_release(&base->call.response);
        base->call.response = (struct infer_response){.error.status = ST_OK};
        error_no_memory(&base->call.response.error, "a response of the model");
    }
    self->last = (struct inner_response){
        .inference = self, .response = &base->call.response, .last = true, .outgoing = outgoing};
    return hand_over(&self->last);
}

/* ---- the request ----------------------------------------------------------------------------- */

static struct trace *begin_trace(struct inference *base) {
    const struct inner_inference *self = inner_of(base);
    struct tracer *tracer = self->options.services->tracer;
    if (base->parent && base->parent->trace) {
        return trace_sample_inside(base->parent->trace, base->spec);
    }
    return tracer && tracer_is_on(tracer) ? trace_sample(tracer, base->spec, &self->options.trace)
                                          : NULL;
}

static enum status find_version(struct inference *base, bool on_worker, struct error *err) {
    const struct inner_options *options = &inner_of(base)->options;
    if (options->found) {
        return inference_use_version(base, options->found, err);
    }
    struct str version = options->version.len > 0 ? options->version : str_make(NULL, 0);
    return inference_find_model(base, options->services->repository, on_worker, options->model,
                                version, err);
}

/* An inference that all instances of its model wait for would never run. */
static enum status prepare(struct inference *base, bool on_worker, struct error *err) {
    size_t n_waiting = 0;
    enum status st = find_version(base, on_worker, err);
    for (const struct inference *at = base; st == ST_OK && at->parent && at->holds_instance;
         at = at->parent) {
        n_waiting += at->parent->served_version == base->served_version;
    }
    if (n_waiting > 0 && n_waiting >= base->served_version->n_instances) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_UNSUPPORTED,
                         "model %s is called inside of itself and would wait for ever: all its "
                         "instances (%zu) wait for such calls (instance_group says how many)",
                         quote_name(base->spec->name, name), n_waiting);
    }
    return st;
}

static const struct inference_ops inner_ops = {
    .begin_trace = begin_trace,
    .prepare = prepare,
    .deliver = deliver,
};

/* Returns: the earlier one; 0 is none. */
static uint64_t earlier_ns(uint64_t a, uint64_t b) {
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* The parameters, before them the priority, which the scheduler reads from them. */
static bool fill_params(struct inner_inference *self) {
    const struct inner_options *options = &self->options;
    size_t n = options->params.n + 1;
    self->request.params = options->params;
    if (options->priority == 0) {
        return true;
    }
    struct param *params = arena_alloc_array(self->arena, n, sizeof(*params));
    if (params) {
        params[0] = (struct param){
            .name = STR("priority"), .kind = PARAM_UINT64, .uint64 = options->priority};
        if (options->params.n > 0) {
            memcpy(params + 1, options->params.items, options->params.n * sizeof(*params));
        }
        self->request.params = (struct params){params, n};
    }
    return params != NULL;
}

/* The check writes to inputs and wanted outputs: they are copied, the tensors' bytes are not. */
static bool fill_request(struct inner_inference *self) {
    const struct inner_options *options = &self->options;
    struct infer_request *request = &self->request;
    uint64_t parents_ns = options->parent ? options->parent->call.request->deadline_ns : 0;
    request->arena = self->arena;
    request->id = options->id.ptr ? options->id : STR("");
    request->params_are_opaque = options->params_are_opaque;
    request->deadline_ns = earlier_ns(options->deadline_ns, parents_ns);
    request->n_inputs = options->n_inputs;
    request->n_wanted = options->n_wanted;
    request->inputs = arena_alloc_array(self->arena, options->n_inputs, sizeof(*request->inputs));
    request->wanted = arena_alloc_array(self->arena, options->n_wanted, sizeof(*request->wanted));
    if (!request->inputs || !request->wanted || !fill_params(self)) {
        return false;
    }
    if (options->n_inputs > 0) {
        memcpy(request->inputs, options->inputs, options->n_inputs * sizeof(*request->inputs));
    }
    if (options->n_wanted > 0) {
        memcpy(request->wanted, options->wanted, options->n_wanted * sizeof(*request->wanted));
    }
    return true;
}

enum status inner_inference_new(const struct inner_options *options, struct inner_inference **out,
                                struct error *err) {
    struct inference *parent = options->parent;
    if (parent && parent->depth >= INNER_MAX_DEPTH) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_UNSUPPORTED,
                         "model %s is called inside of %d others, which is the most: models call "
                         "each other",
                         quote_name(options->model, name), INNER_MAX_DEPTH);
    }
    /* Its request may not be decoded. Its worker alone may look; on another thread the start
     * does. */
    if (parent && worker_is_current(parent->call.worker) && parent->state != INFERENCE_RUNNING) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_NOT_READY,
                         "model %s is called for a request that is not with a model",
                         quote_name(options->model, name));
    }
    assert(options->thread == INNER_ON_WORKER || options->services->helpers);
    assert(!parent || (!options->account && !options->worker));
    struct arena *arena = arena_new(NULL, 0);
    struct inner_inference *self = arena ? arena_calloc(arena, 1, sizeof(*self)) : NULL;
    if (!self) {
        arena_free(arena);
        return error_no_memory(err, "an inference inside of the server");
    }
    self->arena = arena;
    self->options = *options;
    inference_init(&self->base, &inner_ops, parent ? parent->call.worker : options->worker,
                   options->services->helpers, parent ? parent->account : options->account);
    self->base.arena = arena;
    self->base.carries_one = options->carries_one;
    self->base.holds_instance = options->holds_instance;
    self->base.call.request = &self->request;
    if (!fill_request(self)) {
        arena_free(arena);
        return error_no_memory(err, "an inference inside of the server");
    }
    if (parent) {
        self->base.call.client = parent->call.client;
    }
    atomic_init(&self->n_refs, 1);
    atomic_init(&self->cancel_posted, false);
    *out = self;
    return ST_OK;
}

/* ---- start and cancel ------------------------------------------------------------------------ */

/* Returns: whether another inference may begin inside of it. */
static bool takes_children(const struct inference *parent) {
    return parent->state == INFERENCE_RUNNING && !parent->no_children &&
           !inference_was_cancelled(parent);
}

static void start(struct inner_inference *self) {
    struct inference *parent = self->options.parent;
    assert(!self->is_started);
    self->is_started = true;
    if (self->cancel_early || (parent && !takes_children(parent))) {
        inference_abandon(&self->base); /* inference_run refuses it */
    } else if (parent) {
        inference_set_parent(&self->base, parent);
    }
    inference_run(&self->base);
}

static void on_start(struct worker_msg *msg) {
    struct inner_inference *self = CONTAINER_OF(msg, struct inner_inference, start_msg);
    start(self);
    inner_inference_unref(self);
}

void inner_inference_start(struct inner_inference *self) {
    ref(self); /* the pipeline's */
    if (worker_is_current(self->base.call.worker)) {
        start(self);
        return;
    }
    ref(self);
    self->start_msg = (struct worker_msg){.run = on_start};
    worker_post(self->base.call.worker, &self->start_msg);
}

static void cancel(struct inner_inference *self) {
    if (self->is_started) {
        inference_cancel(&self->base);
    } else {
        self->cancel_early = true;
    }
}

static void on_cancel(struct worker_msg *msg) {
    struct inner_inference *self = CONTAINER_OF(msg, struct inner_inference, cancel_msg);
    cancel(self);
    inner_inference_unref(self);
}

void inner_inference_cancel(struct inner_inference *self) {
    if (worker_is_current(self->base.call.worker)) {
        cancel(self);
    } else if (!atomic_exchange_explicit(&self->cancel_posted, true, memory_order_relaxed)) {
        ref(self);
        self->cancel_msg = (struct worker_msg){.run = on_cancel};
        worker_post(self->base.call.worker, &self->cancel_msg);
    }
}

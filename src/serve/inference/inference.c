/* The steps that all inferences share, in their order. */
#include "serve/inference/inference.h"

#include <assert.h>
#include <stddef.h>

#include "core/base/checked.h"
#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/base/transition.h"
#include "core/event/clock.h"

/* ---- states ---------------------------------------------------------------------------------- */

#define TO(state) STATE_SET(INFERENCE_##state)

bool inference_state_follows(enum inference_state from, enum inference_state to) {
    static const uint32_t NEXT[] = {
        [INFERENCE_NEW] = TO(QUEUED) | TO(PREPARING) | TO(WAITING) | TO(REFUSED) | TO(RUNNING),
        [INFERENCE_QUEUED] = TO(PREPARING) | TO(WAITING) | TO(REFUSED) | TO(RUNNING),
        [INFERENCE_PREPARING] = TO(WAITING) | TO(REFUSED) | TO(RUNNING),
        [INFERENCE_WAITING] = TO(REFUSED) | TO(RUNNING),
        [INFERENCE_REFUSED] = 0,
        [INFERENCE_RUNNING] = TO(ENCODING),
        [INFERENCE_ENCODING] = TO(ANSWERED),
        [INFERENCE_ANSWERED] = 0,
    };
    return transition_is_legal(NEXT, from, to);
}

void inference_set_state(struct inference *self, enum inference_state to) {
    assert(inference_state_follows(self->state, to));
    self->state = to;
}

static void set_cancelled(struct inference *self) {
    atomic_store_explicit(&self->cancelled, true, memory_order_relaxed);
}

bool inference_was_cancelled(const struct inference *self) {
    return inference_is_abandoned(self) ||
           (self->state == INFERENCE_RUNNING && call_was_cancelled(&self->call));
}

static void on_done(struct call *call);

struct inference *inference_of_request(const sluice_request *request) {
    return inference_of_call(request->host);
}

struct inference *inference_of_call(struct call *call) {
    return call->done == on_done ? CONTAINER_OF(call, struct inference, call) : NULL;
}

/* Set field by field, because zeroing the call would be expensive. */
void inference_init(struct inference *self, const struct inference_ops *ops, struct worker *worker,
                    struct helper_pool *helpers, struct memory_account *account) {
    self->ops = ops;
    self->carries_one = NULL;
    self->call.request = NULL;
    self->call.worker = worker;
    self->call.helpers = helpers;
    self->call.client = net_peer_client(memory_account_peer(account));
    self->call.run_immediately = self->call.batch_apart = false;
    self->call.request_stream = NULL;
    self->call.response.release = NULL;
    self->version = self->served_version = NULL;
    self->spec = NULL;
    self->account = account;
    self->order = NULL;
    self->memory.state = MEMORY_NONE;
    self->memory.is_inner = false;
    self->partial_bytes = 0;
    self->trace = NULL;
    self->size_unknown = false;
    self->state = INFERENCE_NEW;
    self->no_children = false;
    self->depth = 0;
    self->holds_instance = false;
    self->parent = NULL;
    LIST_INIT(&self->children);
    self->arena = self->helper_arena = NULL;
    self->job = NULL;
    self->current = NULL;
    STAILQ_INIT(&self->outgoing);
    atomic_init(&self->cancelled, false);
}

/* ---- an inference inside of another ---------------------------------------------------------- */

void inference_set_parent(struct inference *self, struct inference *parent) {
    assert(self->state == INFERENCE_NEW && self->call.worker == parent->call.worker);
    assert(parent->state == INFERENCE_RUNNING);
    self->parent = parent;
    self->depth = parent->depth + 1;
    self->memory.is_inner = true;
    LIST_INSERT_HEAD(&parent->children, self, child_link);
}

static void leave_parent(struct inference *self) {
    if (self->parent) {
        LIST_REMOVE(self, child_link);
        self->parent = NULL;
    }
}

/* Those that are delivered meanwhile may start others, which find their parent cancelled, or
 * ended. */
static void cancel_children(struct inference *self) {
    struct inference *child;
    while ((child = LIST_FIRST(&self->children))) {
        leave_parent(child);
        inference_cancel(child);
    }
}

/* ---- helper threads -------------------------------------------------------------------------- */

bool inference_get_helper(struct inference *self, const char *work, uint64_t ns) {
    if (!self->helper_arena && self->call.helpers && self->arena) {
        self->helper_arena = arena_new_beside(self->arena);
        if (self->helper_arena) {
            arena_set_cancelled(self->helper_arena, &self->cancelled);
        }
    }
    if (self->helper_arena) {
        return true;
    }
    loop_iteration_note(worker_loop_iteration(self->call.worker), work, ns);
    return false;
}

void inference_submit_job(struct inference *self, struct inference_job *job, uint64_t ns,
                          void (*run)(struct helper_job *job),
                          void (*done)(struct helper_job *job)) {
    *job = (struct inference_job){.job = {.worker = self->call.worker,
                                          .run = run,
                                          .done = done,
                                          .client = self->call.client,
                                          .ns = ns},
                                  .inference = self};
    self->job = job;
    helper_pool_submit(self->call.helpers, &job->job);
}

struct inference *inference_end_job(struct helper_job *job) {
    struct inference *self = inference_of_job(job);
    self->job = NULL;
    return self;
}

static void cancel_job(struct inference *self) {
    set_cancelled(self);
    helper_pool_cancel(self->call.helpers, &self->job->job);
}

static enum status error_cancelled(struct error *err) {
    return error_set(err, ST_CANCELLED, "the request was cancelled before it ran");
}

/* ---- the model ------------------------------------------------------------------------------- */

enum status inference_refuse_decoupled(const struct model_spec *spec, const char *carries_one,
                                       struct error *err) {
    char name[QUOTED_NAME_BYTES];
    return error_set(err, ST_UNSUPPORTED,
                     "model %s is decoupled: it gives any number of answers, and %s",
                     quote_name(spec->name, name), carries_one);
}

/* Takes the caller's reference on `version`. */
static enum status set_version(struct inference *self, struct model_version *version,
                               struct error *err) {
    self->version = self->served_version = version;
    self->spec = model_version_spec(version);
    self->trace = self->ops->begin_trace ? self->ops->begin_trace(self) : NULL;
    if (self->spec->decoupled && self->carries_one) {
        return inference_refuse_decoupled(self->spec, self->carries_one, err);
    }
    return ST_OK;
}

enum status inference_find_model(struct inference *self, struct repository *repository,
                                 bool on_worker, struct str model, struct str version_text,
                                 struct error *err) {
    struct model_version *version;
    enum status st = on_worker
                         ? repository_find(repository, model, version_text, &version, err)
                         : repository_find_locked(repository, model, version_text, &version, err);
    return st == ST_OK ? set_version(self, version, err) : st;
}

enum status inference_use_version(struct inference *self, struct model_version *version,
                                  struct error *err) {
    model_version_ref(version);
    return set_version(self, version, err);
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum status prepare_request(struct inference *self, bool on_worker, struct error *err) {
    return self->ops->prepare ? self->ops->prepare(self, on_worker, err) : ST_OK;
}

static enum status check_request(struct inference *self, struct error *err) {
    return self->ops->check ? self->ops->check(self, err) : inference_check(self, err);
}

/* Estimates for a slow core, in ns for 16 bytes; only their order of magnitude matters. */
enum { COPY_16_NS = 8, WALK_16_NS = 16, COPY_MIN_BYTES = 65536 };

/* Returns: the estimated time of check_request: for walks over elements, copies from shared memory
 * and of misaligned bytes. */
static uint64_t check_ns(const struct inference *self) {
    const struct infer_request *request = self->call.request;
    uint64_t ns = 0;
    for (size_t i = 0; i < request->n_inputs; i++) {
        const struct infer_input *input = &request->inputs[i];
        const struct tensor *tensor = &input->tensor;
        if (input->region.name.ptr) {
            ns += input->region.n_bytes / 16 * COPY_16_NS;
        } else if (tensor->datatype == DT_BYTES || tensor->datatype == DT_BOOL) {
            ns += tensor->n_bytes / 16 * WALK_16_NS;
        } else if (tensor->n_bytes >= COPY_MIN_BYTES &&
                   (tensor->n_pieces != 1 ||
                    (uintptr_t)tensor->pieces[0].data % sizeof(uint64_t) != 0)) { /* misaligned */
            ns += tensor->n_bytes / 16 * COPY_16_NS;
        }
    }
    return ns;
}

/* ---- responses ------------------------------------------------------------------------------- */

static struct outgoing_response *pop_outgoing(struct inference *self) {
    struct outgoing_response *outgoing = STAILQ_FIRST(&self->outgoing);
    if (outgoing) {
        STAILQ_REMOVE_HEAD(&self->outgoing, link);
    }
    return outgoing;
}

/* Delivers `outgoing` and those that wait after it, until one of them takes longer. After the last
 * one `self` may be freed. */
static void deliver_all(struct inference *self, struct outgoing_response *outgoing) {
    for (; outgoing; outgoing = pop_outgoing(self)) {
        bool last = outgoing->last;
        self->current = outgoing;
        if (!self->ops->deliver(self, outgoing) || last) {
            return;
        }
    }
    self->current = NULL;
}

void inference_deliver_next(struct inference *self) {
    deliver_all(self, pop_outgoing(self));
}

/* Responses leave in their order: one that comes while another is delivered waits. */
static void add_outgoing(struct outgoing_response *outgoing) {
    struct inference *self = outgoing->inference;
    if (self->current) {
        STAILQ_INSERT_TAIL(&self->outgoing, outgoing, link);
    } else {
        deliver_all(self, outgoing);
    }
}

/* call.response has the last response, or the error of a request that was refused. */
static void set_last(struct inference *self) {
    const struct infer_request *request = self->call.request; /* NULL: it was not decoded */
    self->last = (struct outgoing_response){.inference = self,
                                            .response = &self->call.response,
                                            .last = true,
                                            .arena = request ? request->arena : NULL};
}

void outgoing_response_free(struct outgoing_response *outgoing) {
    struct inference *self = outgoing->inference;
    assert(!outgoing->last);
    if (outgoing->response) {
        infer_response_release(outgoing->response);
    }
    self->partial_bytes -= outgoing->n_bytes;
    memory_subtract(&self->memory, outgoing->n_bytes);
    arena_free(outgoing->arena); /* `outgoing`, too */
}

/* ---- the scheduler --------------------------------------------------------------------------- */

/* For how long a client that failed is batched apart. */
static const uint64_t BATCH_APART_NS = UINT64_C(30000000000);

/* The model refused what the client sent. */
static void note_failure(const struct inference *self) {
    struct net_peer *peer = memory_account_peer(self->account);
    const struct call *call = &self->call;
    enum status st = call->response.error.status;
    if (peer && self->spec->max_batch_size > 1 && call->started_ns > 0 && st != ST_CANCELLED) {
        uint64_t until_ns = call->finished_ns + BATCH_APART_NS;
        peer->batch_apart_until_ns = until_ns;
        model_version_note_failing_host(self->served_version, peer->host, until_ns);
    }
}

/* A new connection is taken for that of its host's client that failed, until a request of it
 * succeeds. */
static bool is_batched_apart(const struct inference *self) {
    const struct net_peer *peer = memory_account_peer(self->account);
    if (net_peer_is_trusted(peer)) {
        return false;
    }
    uint64_t now_ns = clock_now_ns();
    return peer->batch_apart_until_ns > now_ns ||
           (!peer->has_inferred &&
            model_version_has_failing_host(self->served_version, peer->host, now_ns));
}

static uint64_t deliver_ns(const struct inference *self, const struct infer_response *response) {
    return self->ops->deliver_ns ? self->ops->deliver_ns(self, response) : 0;
}

static void on_done(struct call *call) {
    struct inference *self = CONTAINER_OF(call, struct inference, call);
    inference_set_state(self, INFERENCE_ENCODING);
    cancel_children(self);
    leave_parent(self);
    if (call->response.error.status != ST_OK) {
        note_failure(self);
    } else {
        net_peer_note_success(memory_account_peer(self->account));
    }
    trace_add_response(self->trace, call);
    if (self->size_unknown && call->response.error.status == ST_OK) {
        model_version_note_response_bytes(self->served_version,
                                          infer_response_bytes(&call->response));
    }
    set_last(self);
    self->last.ns = deliver_ns(self, &call->response);
    add_outgoing(&self->last);
}

static void on_partial_response(struct call *call, struct infer_response *response) {
    struct inference *self = CONTAINER_OF(call, struct inference, call);
    uint64_t ns = deliver_ns(self, response);
    bool may_leave = ns >= HELPER_MIN_NS && call->helpers; /* this thread */
    struct arena *arena = arena_new(may_leave ? NULL : worker_arenas(call->worker), 0);
    struct outgoing_response *outgoing = arena ? arena_alloc(arena, sizeof(*outgoing)) : NULL;
    trace_add_partial_response(self->trace, response);
    if (!outgoing) {
        struct outgoing_response lost = {.inference = self, .response = response};
        arena_free(arena);
        (void)self->ops->deliver(self, &lost);
        return;
    }
    if (may_leave) {
        arena_set_cancelled(arena, &self->cancelled);
    }
    *outgoing = (struct outgoing_response){
        .inference = self, .response = response, .arena = arena, .ns = ns};
    add_outgoing(outgoing);
}

/* The request did not reach the scheduler: its error is in call.response. */
static void finish_unsubmitted(struct inference *self) {
    struct call *call = &self->call;
    call->response = (struct infer_response){.error = call->response.error};
    inference_set_state(self, INFERENCE_REFUSED);
    leave_parent(self);
    set_last(self);
    self->ops->deliver(self, &self->last);
}

static void submit(struct inference *self) {
    struct call *call = &self->call;
    struct model_version *version = self->version;
    self->version = NULL;
    call->done = on_done;
    call->on_partial_response = self->carries_one ? NULL : on_partial_response;
    call->batch_apart = is_batched_apart(self);
    inference_set_state(self, INFERENCE_RUNNING);
    trace_add_request(self->trace, call->request);
    call_submit(call, version);
}

/* ---- memory for the response ----------------------------------------------------------------- */

/* A larger size is taken for unknown, so that the sum over the outputs cannot wrap. */
#define MAX_KNOWN_BYTES (UINT32_MAX * UINT64_C(1024))

/* Returns: bytes of an output that follow from its specification; UINT64_MAX: they don't. */
static uint64_t output_bytes(const struct tensor_spec *spec, uint64_t batch, bool batches) {
    size_t first = batches ? 1 : 0;
    struct shape row = {spec->shape.dims + first, spec->shape.rank - first};
    uint64_t n_bytes;
    bool is_known = shape_bytes(row, spec->datatype, &n_bytes) &&
                    checked_mul_u64(n_bytes, batches ? batch : 1, &n_bytes) &&
                    n_bytes <= MAX_KNOWN_BYTES;
    return is_known ? n_bytes : UINT64_MAX;
}

/* The response's size from the specification; for an output without a fixed size what the version
 * answered of late, at first as much as came in. */
static uint64_t expected_response_bytes(struct inference *self) {
    const struct infer_request *request = self->call.request;
    const struct model_spec *spec = self->spec;
    size_t n = request->n_wanted > 0 ? request->n_wanted : spec->n_outputs;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = request->n_wanted > 0 ? request->wanted[i].spec : i;
        uint64_t n_output =
            output_bytes(&spec->outputs[at], request->batch, spec->max_batch_size > 0);
        if (n_output == UINT64_MAX) {
            self->size_unknown = true;
            uint64_t known = model_version_response_bytes(self->version), n_input = 0;
            for (size_t j = 0; known == 0 && j < request->n_inputs; j++) {
                n_input += request->inputs[j].tensor.n_bytes;
            }
            return known > 0 ? known : n_input;
        }
        n_bytes += n_output;
    }
    return n_bytes;
}

static void on_memory(struct memory_reservation *reservation, bool reserved) {
    struct inference *self = CONTAINER_OF(reservation, struct inference, memory);
    if (reserved) {
        submit(self);
        return;
    }
    metric_add(METRIC_DROPPED_MEMORY, 1);
    error_set(
        &self->call.response.error, ST_OVERLOADED,
        "no memory for the response: those of other requests wait to be read by their clients "
        "(--client-memory)");
    finish_unsubmitted(self);
}

/* A decoupled model's responses are counted as they come, those of an ensemble with its
 * members'. */
static void reserve_memory(struct inference *self) {
    struct arena *arena = self->call.request->arena;
    uint64_t n_bytes = arena_bytes(arena);
    arena_stop_counting(arena); /* the reservation counts it */
    bool counts_later = self->spec->decoupled || self->spec->is_ensemble;
    n_bytes += counts_later ? 0 : expected_response_bytes(self);
    switch (memory_reserve(self->account, self->order ? &self->order->memory : NULL, &self->memory,
                           n_bytes, on_memory)) {
    case MEMORY_GRANTED:
        submit(self);
        break;
    case MEMORY_WAITS:
        inference_set_state(self, INFERENCE_WAITING);
        break;
    case MEMORY_REFUSED:
        metric_add(METRIC_DROPPED_MEMORY, 1);
        error_set(&self->call.response.error, ST_OVERLOADED,
                  "the response takes %llu bytes, more than all clients together may use "
                  "(--client-memory)",
                  (unsigned long long)n_bytes);
        finish_unsubmitted(self);
        break;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static void submit_if_ok(struct inference *self, enum status st) {
    if (st == ST_OK && inference_is_abandoned(self)) {
        st = error_cancelled(&self->call.response.error);
    }
    if (st == ST_OK) {
        reserve_memory(self);
    } else {
        finish_unsubmitted(self);
    }
}

/* All steps before the scheduler that may take long. Reserving memory and submitting are the
 * worker's: its account and its queue of inline calls have no lock. call.response.error has the
 * result. */
static void run_prepare(struct helper_job *job) {
    struct inference *self = inference_of_job(job);
    struct error *err = &self->call.response.error;
    bool is_decoded = self->call.request != NULL;
    err->status = ST_OK;
    enum status st = is_decoded ? ST_OK : prepare_request(self, false, err);
    if (st == ST_OK) {
        st = check_request(self, err);
    }
    assert(st == err->status);
    (void)st;
}

static void on_prepared(struct helper_job *job);

/* Returns: a job for a step of that time; NULL when the worker runs it. */
static struct inference_job *job_for(struct inference *self, const char *work, uint64_t ns) {
    return inference_wants_helper(self, work, ns)
               ? arena_alloc(self->helper_arena, sizeof(struct inference_job))
               : NULL;
}

/* Returns: whether the request went to a helper thread; else it may be freed. Those of the same
 * order that come meanwhile wait. */
static bool prepare(struct inference *self) {
    struct error *err = &self->call.response.error;
    uint64_t ns = self->ops->prepare_ns ? self->ops->prepare_ns(self) : 0;
    struct inference_job *job = job_for(self, "decoding a request", ns);
    if (!job) {
        enum status st = prepare_request(self, true, err);
        ns = st == ST_OK ? check_ns(self) : 0;
        job = job_for(self, "checking inputs", ns);
        if (!job) {
            submit_if_ok(self, st == ST_OK ? check_request(self, err) : st);
            return false;
        }
        self->call.request->arena = self->helper_arena;
    }
    inference_set_state(self, INFERENCE_PREPARING);
    if (self->order) {
        TAILQ_INSERT_HEAD(&self->order->preparing, self, link);
    }
    inference_submit_job(self, job, ns, run_prepare, on_prepared);
    return true;
}

/* Runs those that waited, until one of them goes to a helper thread. As long as one waits the order
 * is valid, and those that come meanwhile wait after it; the last one may end the order. */
static void run_queued(struct inference_order *order) {
    for (bool is_last = false; !is_last;) {
        struct inference *next = TAILQ_FIRST(&order->preparing);
        TAILQ_REMOVE(&order->preparing, next, link);
        is_last = TAILQ_EMPTY(&order->preparing);
        if (inference_is_abandoned(next)) {
            submit_if_ok(next, ST_OK);
        } else if (prepare(next)) {
            return;
        }
    }
}

static void on_prepared(struct helper_job *job) {
    struct inference *self = inference_end_job(job);
    struct inference_order *order = self->order;
    bool others_wait = false;
    if (order) {
        TAILQ_REMOVE(&order->preparing, self, link);
        others_wait = !TAILQ_EMPTY(&order->preparing);
    }
    /* What a job that was stopped returned is not used. */
    submit_if_ok(self, inference_is_abandoned(self) ? ST_OK : self->call.response.error.status);
    if (others_wait) {
        run_queued(order);
    }
}

void inference_run(struct inference *self) {
    assert(self->state == INFERENCE_NEW);
    if (self->order && !TAILQ_EMPTY(&self->order->preparing)) {
        inference_set_state(self, INFERENCE_QUEUED);
        TAILQ_INSERT_TAIL(&self->order->preparing, self, link);
        return;
    }
    prepare(self);
}

void inference_cancel(struct inference *self) {
    self->no_children = true;
    cancel_children(self);
    switch (self->state) {
    case INFERENCE_QUEUED: /* it ends when it is its turn */
        set_cancelled(self);
        break;
    case INFERENCE_PREPARING:
        cancel_job(self);
        break;
    case INFERENCE_WAITING:
        memory_release(&self->memory, false);
        error_cancelled(&self->call.response.error);
        finish_unsubmitted(self);
        break;
    case INFERENCE_RUNNING:
        call_cancel(&self->call);
        break;
    case INFERENCE_NEW:
    case INFERENCE_REFUSED:
    case INFERENCE_ENCODING:
    case INFERENCE_ANSWERED:
        break;
    }
}

void inference_abandon(struct inference *self) {
    set_cancelled(self);
    if (self->job) {
        cancel_job(self);
    }
    inference_cancel(self);
}

void inference_keep_version(struct inference *self) {
    if (!self->version) {
        self->version = self->served_version;
        model_version_ref(self->version);
    }
}

void inference_fini(struct inference *self, bool sent) {
    assert(self->state == INFERENCE_NEW || self->state == INFERENCE_REFUSED ||
           self->state == INFERENCE_ANSWERED);
    assert(!self->job && !memory_is_waiting(&self->memory) && LIST_EMPTY(&self->children));
    leave_parent(self); /* of one that was never run */
    memory_release(&self->memory, sent);
    if (self->version) {
        model_version_unref(self->version);
        self->version = NULL;
    }
    trace_end(&self->trace);
    arena_free(self->helper_arena);
    self->helper_arena = NULL;
}

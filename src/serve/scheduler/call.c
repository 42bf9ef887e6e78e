/* The life of a call: submitted by a front end, run on an instance by its worker or queued,
 * completed, and delivered back on its worker.
 *
 * Two counts keep a version alive. `n_in_flight` counts from call_submit to the answer;
 * version_stop waits for it. The reference lasts until `done` has returned and the answer's bytes
 * are released. A call that runs on its worker takes no lock.
 *
 * The backend's view of the request and the memory for the answer are allocated from the request's
 * arena before the call leaves its worker: an arena has no lock and belongs to the worker's
 * thread. */
#include "serve/scheduler/call_run.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/base/transition.h"
#include "core/event/clock.h"
#include "core/event/timer.h"
#include "serve/config/resolve_config.h"
#include "serve/config/sequence_params.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/cache/call_cache.h"
#include "serve/scheduler/ensemble_call.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/joint/joint_inputs.h"
#include "serve/scheduler/sequence/state.h"
#include "serve/scheduler/version.h"

/* ---- states and completion ------------------------------------------------------------------- */

#define TO(state) STATE_SET(CALL_##state)

void call_set_state(struct call *call, enum call_state to) {
    static const uint32_t NEXT[] = {
        [CALL_NEW] = TO(INLINE_QUEUED) | TO(QUEUED) | TO(RUNNING) | TO(ANSWERED),
        [CALL_INLINE_QUEUED] = TO(QUEUED) | TO(RUNNING) | TO(ANSWERED),
        [CALL_QUEUED] = TO(RUNNING) | TO(ANSWERED),
        [CALL_RUNNING] = TO(PARTIAL) | TO(ANSWERED) | TO(QUEUED),
        [CALL_PARTIAL] = TO(ANSWERED) | TO(QUEUED),
        [CALL_ANSWERED] = 0,
    };
    assert(transition_is_legal(NEXT, atomic_load_explicit(&call->run->state, memory_order_relaxed),
                               to));
    atomic_store_explicit(&call->run->state, to, memory_order_release);
}

void call_deliver(struct call *call) {
    struct model_version *version = call->run->version;
    if (call->cached == CALL_CACHE_MISS) {
        call_cache_store_copy(call);
    }
    if (call->queued_ns > 0) {
        statistics_count_call(&version->statistics, call);
    }
    timer_stop(worker_timers(call->worker), &call->run->timer);
    response_stream_close(call->run->stream);
    call->run->stream = NULL;
    bool held = call->response.release != NULL;
    call->run->release_unrefs_version = held;
    call->done(call);
    if (!held) {
        model_version_unref(version);
    }
}

static void on_completion(struct worker_msg *msg) {
    call_deliver(CONTAINER_OF(msg, struct call_run, msg)->call);
}

void call_complete(struct call *call) {
    call->finished_ns = clock_now_ns();
    call_set_state(call, CALL_ANSWERED);
    /* `on_worker` may be read on the worker's own thread only. */
    if (worker_is_current(call->worker) && call->run->on_worker == CALL_RUNS_INLINE) {
        call->run->on_worker = CALL_ANSWERED_INLINE; /* delivered when the backend has returned */
        return;
    }
    struct model_version *version = call->run->version;
    if (call->cached == CALL_CACHE_MISS) {
        call_cache_store_copy(call); /* most often on the instance's thread, not on the worker */
    }
    if (call->run->states && !call->response.release) {
        call_states_release(call);
    }
    if (call->run->sequence) {
        scheduler_sequence_resume(&version->scheduler, call);
    }
    if (call->run->order != CALL_NOT_ORDERED) {
        scheduler_complete_in_order(&version->scheduler, call);
        return;
    }
    worker_post(call->worker, &call->run->msg);
    version_leave(version); /* the version must not be used after this */
}

/* The call is in no queue. */
static void call_reject(struct call *call) {
    call->finished_ns = clock_now_ns();
    if (call->run->order != CALL_NOT_ORDERED) {
        scheduler_leave_order(&call->run->version->scheduler, call);
    }
    call_deliver(call);
}

/* What `done` and the reports of the front ends read, which need no call_run. */
static void clear_result(struct call *call) {
    call->response.error.status = ST_OK;
    call->response.error.text[0] = '\0';
    call->response.params = (struct params){NULL, 0};
    call->response.outputs = NULL;
    call->response.n_outputs = 0;
    call->response.places = NULL;
    call->response.release = NULL;
    call->response.user = NULL;
    call->queued_ns = call->started_ns = call->finished_ns = 0;
    call->compute_start_ns = call->compute_end_ns = 0;
    call->cached = CALL_NOT_CACHED;
}

/* Set field by field, because zeroing the deadline and the backend's request would be expensive. */
enum status call_init(struct call *call, struct model_version *version, struct error *err) {
    clear_result(call);
    struct call_run *run = arena_alloc(call->request->arena, sizeof(*run));
    call->run = run;
    if (!run) {
        return error_no_memory(err, "handing the request to the model (--request-memory)");
    }
    run->call = call;
    run->version = version;
    run->cache_ns = 0;
    run->timer = (struct timer){0};
    run->order = CALL_NOT_ORDERED;
    run->sequence_params = (struct sequence_params){.start = true, .end = true};
    run->sequence = NULL;
    run->states = NULL;
    run->n_iterations = 0;
    run->role = CALL_OF_CLIENT;
    run->msg = (struct worker_msg){.run = on_completion};
    run->on_worker = CALL_NOT_INLINE;
    run->release_unrefs_version = false;
    run->backend_release = NULL;
    run->backend_cookie = NULL;
    run->extra_arena = NULL;
    run->stream = NULL;
    run->lookup = NULL;
    run->n_answers = run->answered_ns = run->first_answered_ns = 0;
    run->loss = CALL_LOST_NOTHING;
    run->is_stored = false;
    run->ensemble_run = NULL;
    run->has_ensemble_compute = false;
    atomic_init(&run->cancelled, false);
    atomic_init(&run->state, CALL_NEW);
    return ST_OK;
}

/* ---- the request as the backend sees it ------------------------------------------------------ */

/* Returns: whether the parameter is for the scheduler or the protocol and is hidden from the
 * model. */
static bool is_reserved_param(const struct infer_request *request, const struct param *param) {
    return !request->params_are_opaque && param_is_reserved(param->name);
}

/* The scheduler has acted on them; backends get them for models that want to know. */
static bool note_reserved_param(struct arena *arena, const struct param *param,
                                sluice_request *out) {
    bool is_number = param->kind == PARAM_INT64 || param->kind == PARAM_UINT64;
    uint64_t number = param->kind == PARAM_INT64 && param->int64 < 0 ? 0
                      : param->kind == PARAM_INT64                   ? (uint64_t)param->int64
                                                                     : param->uint64;
    bool is_true = param->kind == PARAM_BOOL && param->boolean;
    if (str_is(param->name, "sequence_id") && param->kind == PARAM_STRING) {
        struct str name = backend_text(arena, param->string);
        out->sequence_name = name.ptr;
        out->sequence_name_bytes = name.len;
    } else if (str_is(param->name, "sequence_id") && is_number) {
        out->sequence_id = number;
    } else if (str_is(param->name, "sequence_start") && is_true) {
        out->sequence_flags |= SLUICE_SEQUENCE_START;
    } else if (str_is(param->name, "sequence_end") && is_true) {
        out->sequence_flags |= SLUICE_SEQUENCE_END;
    } else if (str_is(param->name, "priority") && is_number) {
        out->priority = number;
    } else if (str_is(param->name, "timeout") && is_number) {
        out->timeout_us = number;
    }
    return out->sequence_name != NULL;
}

static bool fill_params(const struct infer_request *request, sluice_request *backend_request) {
    struct arena *arena = request->arena;
    struct params params = request->params;
    size_t n = 0;
    backend_request->params = NULL;
    backend_request->n_params = 0;
    for (size_t i = 0; i < params.n; i++) {
        bool reserved = is_reserved_param(request, &params.items[i]);
        n += !reserved;
        if (reserved && !note_reserved_param(arena, &params.items[i], backend_request)) {
            return false;
        }
    }
    if (n == 0) {
        return true;
    }
    sluice_param *out = arena_calloc(arena, n, sizeof(*out));
    for (size_t i = 0; out && i < params.n; i++) {
        const struct param *param = &params.items[i];
        if (is_reserved_param(request, param)) {
            continue;
        }
        if (!backend_param_fill(arena, param, &out[backend_request->n_params++])) {
            return false;
        }
    }
    backend_request->params = out;
    return out != NULL;
}

/* The shape that the model receives. Returns: NULL when out of memory. */
static const int64_t *input_dims(struct arena *arena, const struct tensor_spec *spec,
                                 const struct plan_tensor *plan, struct shape shape) {
    if (!plan->reshaped) {
        return shape.dims;
    }
    int64_t *dims = arena_calloc(arena, plan->reshape.rank, sizeof(*dims));
    /* infer_check matched the shape with the specification. */
    return dims && reshape_apply(spec->shape, plan->reshape, shape, dims) ? dims : NULL;
}

static bool fill_input(struct arena *arena, const struct tensor_spec *spec,
                       const struct plan_tensor *plan, const struct tensor *tensor,
                       sluice_input *out) {
    sluice_piece *pieces = arena_alloc_array(arena, tensor->n_pieces, sizeof(*pieces));
    const int64_t *dims = input_dims(arena, spec, plan, tensor->shape);
    if (!pieces || (!dims && tensor->shape.rank > 0)) {
        return false;
    }
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        pieces[i] = (sluice_piece){tensor->pieces[i].data, tensor->pieces[i].n_bytes};
    }
    *out = (sluice_input){
        .index = plan->index,
        .datatype = (sluice_datatype)tensor->datatype,
        .name = spec->name.ptr,
        .dims = dims,
        .rank = plan->reshaped ? plan->reshape.rank : tensor->shape.rank,
        .n_bytes = tensor->n_bytes,
        .pieces = pieces,
        .n_pieces = tensor->n_pieces,
    };
    return true;
}

static bool fill_inputs(struct call *call, const struct model_plan *plan) {
    struct infer_request *request = call->request;
    size_t n_specs = plan->spec.n_inputs;
    const struct tensor **given = arena_calloc(request->arena, n_specs, sizeof(*given));
    sluice_input *inputs = arena_alloc_array(
        request->arena, n_specs + plan->n_controls + plan->n_states, sizeof(*inputs));
    if (!given || !inputs) {
        return false;
    }
    for (size_t i = 0; i < request->n_inputs; i++) {
        given[request->inputs[i].spec] = &request->inputs[i].tensor;
        call->run->input_bytes += request->inputs[i].tensor.n_bytes;
    }
    size_t n = 0;
    for (size_t i = 0; i < n_specs; i++) {
        uint32_t spec = plan->input_order[i];
        if (!given[spec]) {
            continue; /* infer_check ensured that it is optional */
        }
        if (!fill_input(request->arena, &plan->spec.inputs[spec], &plan->inputs[spec], given[spec],
                        &inputs[n])) {
            return false;
        }
        n++;
    }
    if (plan->layout && !joint_inputs_describe(request->arena, plan, inputs, &n)) {
        return false;
    }
    if (plan->n_controls > 0 &&
        !controls_fill(request->arena, plan, &call->run->sequence_params, inputs, &n)) {
        return false;
    }
    if (plan->n_states > 0 && !call_states_add(call, inputs, &n)) {
        return false;
    }
    call->run->backend_request.inputs = inputs;
    call->run->backend_request.n_inputs = n;
    return true;
}

/* The wanted outputs, and memory for their descriptions: one block, as each allocation counts in a
 * small request. */
static bool fill_wanted(struct call *call, const struct model_plan *plan) {
    const struct infer_request *request = call->request;
    struct call_run *run = call->run;
    size_t n = request->n_wanted > 0 ? request->n_wanted : plan->spec.n_outputs;
    size_t n_dims = plan->max_output_rank + 1;
    run->outputs = arena_alloc_array(request->arena, n,
                                     sizeof(*run->outputs) + sizeof(*run->output_pieces) +
                                         n_dims * sizeof(*run->output_dims) + sizeof(uint32_t));
    if (!run->outputs) {
        return false;
    }
    run->output_pieces = (struct piece *)(void *)(run->outputs + n);
    run->output_dims = (int64_t *)(void *)(run->output_pieces + n);
    uint32_t *wanted = (uint32_t *)(void *)(run->output_dims + n * n_dims);
    for (size_t i = 0; i < n; i++) {
        wanted[i] = plan->outputs[request->n_wanted > 0 ? request->wanted[i].spec : i].index;
    }
    run->backend_request.wanted = wanted;
    run->backend_request.n_wanted = n;
    run->n_client_outputs = n;
    return !run->states || call_states_want(call);
}

enum status call_prepare(struct call *call, struct error *err) {
    struct infer_request *request = call->request;
    struct call_run *run = call->run;
    const struct model_plan *plan = &run->version->plan;
    run->backend_request = (sluice_request){
        .size = sizeof(run->backend_request),
        .host = call,
        .batch = request->batch,
        .deadline_ns = request->deadline_ns,
        .sequence_name = "",
    };
    run->input_bytes = 0;
    struct str id = backend_text(request->arena, request->id);
    run->backend_request.id = id.ptr;
    run->backend_request.id_bytes = id.len;
    if (!id.ptr || !fill_inputs(call, plan) || !fill_wanted(call, plan) ||
        !fill_params(request, &run->backend_request)) {
        return error_no_memory(err, "handing the request to the model (--request-memory)");
    }
    if (run->version->run_on == RUN_AUTO) {
        run->shapes = shape_times_shapes_of(&run->version->shape_times, &run->backend_request);
    }
    return ST_OK;
}

/* ---- queueing and cancelling ----------------------------------------------------------------- */

static void set_queue_timer(struct call *call) {
    uint64_t due_ns = queue_deadline_next_ns(&call->run->queue_deadline);
    if (due_ns < UINT64_MAX) {
        timer_start(worker_timers(call->worker), &call->run->timer, due_ns);
    }
}

/* Completes a call that was removed from the queue without running. */
static void reject_queued(struct call *call, enum metric reason) {
    struct model_version *version = call->run->version;
    metric_add(reason, 1);
    if (call->run->n_iterations > 0) { /* partial responses may be on their way to the worker */
        call->finished_ns = clock_now_ns();
        worker_post(call->worker, &call->run->msg);
        version_leave(version);
        return;
    }
    call_reject(call);
    version_leave(version);
}

void call_expire(struct call *call) {
    char name[QUOTED_NAME_BYTES];
    struct error *err = &call->response.error;
    uint64_t waited_us = (call->run->queue_deadline.expires_ns - call->queued_ns) / 1000;
    quote_name(call->run->version->plan.spec.name, name);
    if (call->run->queue_deadline.expires_ns == call->request->deadline_ns) {
        error_set(err, ST_DEADLINE_EXCEEDED,
                  "the request's deadline passed while it waited for an instance of model %s",
                  name);
        reject_queued(call, METRIC_DROPPED_DEADLINE);
    } else {
        error_set(
            err, ST_QUEUE_TIMEOUT,
            "Request timeout expired: the request waited %llu us for an instance of model %s: "
            "queue timeout (its "
            "parameter timeout, or default_timeout_microseconds in the model's configuration)",
            (unsigned long long)waited_us, name);
        reject_queued(call, METRIC_DROPPED_QUEUE_TIMEOUT);
    }
}

static void on_timer_expired(struct timer *timer) {
    struct call *call = CONTAINER_OF(timer, struct call_run, timer)->call;
    struct scheduler *scheduler = &call->run->version->scheduler;
    bool over = queue_deadline_passed(&call->run->queue_deadline, clock_now_ns());
    if (!over && scheduler_deprioritize(scheduler, call)) { /* else an instance took it */
        set_queue_timer(call);
    } else if (over && scheduler_remove_expired(scheduler, call)) {
        call_expire(call);
    }
}

static enum status call_apply_policy(struct call *call, uint64_t now_ns, struct error *err) {
    const struct queue_policy *policy = &call->run->version->scheduler.policy;
    enum status st =
        queue_policy_apply(policy, call->request, now_ns, &call->run->queue_deadline, err);
    if (st == ST_OK && call->run->version->scheduler.sequences) {
        st = sequence_params_parse(&call->run->version->config, call->request,
                                   &call->run->version->scheduler.n_iterative,
                                   &call->run->sequence_params, err);
    }
    if (st == ST_DEADLINE_EXCEEDED) {
        metric_add(METRIC_DROPPED_DEADLINE, 1);
    }
    return st;
}

static enum status enqueue_call(struct call *call, struct error *err) {
    call->run->timer.on_expire = on_timer_expired;
    set_queue_timer(call);
    enum status st = scheduler_push(&call->run->version->scheduler, call, err);
    if (st == ST_QUEUE_FULL) {
        metric_add(METRIC_DROPPED_QUEUE_FULL, 1);
    }
    return st; /* on failure, call_reject stops the timer */
}

bool call_enqueue(struct call *call) {
    struct model_version *version = call->run->version;
    if (enqueue_call(call, &call->response.error) == ST_OK) {
        return true;
    }
    call->queued_ns = 0;
    call_set_state(call, CALL_ANSWERED);
    version_leave(version);
    call_reject(call);
    return false;
}

/* Returns: false when a backend has the call. */
static bool remove_from_queues(struct call *call) {
    if (call_state(call) == CALL_INLINE_QUEUED) {
        inline_queue_remove(call);
        return true;
    }
    return scheduler_remove(&call->run->version->scheduler, call);
}

/* A lookup whose inputs are hashed on a helper thread; in the request's arena. */
struct lookup {
    struct helper_job job;
    struct call *call;
};

void call_cancel(struct call *call) {
    atomic_store_explicit(&call->run->cancelled, true, memory_order_relaxed);
    response_stream_stop(call->run->stream);
    if (call->run->lookup) {
        helper_pool_cancel(call->helpers, &call->run->lookup->job);
    }
    if (call->run->ensemble_run) {
        call->run->version->ensemble_ops->cancel(call);
    } else if (remove_from_queues(call)) {
        error_set(&call->response.error, ST_CANCELLED,
                  "the request was cancelled while it waited in the queue");
        reject_queued(call, METRIC_DROPPED_CANCELLED);
    }
}

bool call_was_cancelled(const struct call *call) {
    return atomic_load_explicit(&call->run->cancelled, memory_order_relaxed);
}

/* ---- submitting ------------------------------------------------------------------------------ */

/* Delivers a cached answer, after earlier calls where preserve_ordering demands it. */
static void deliver_cached(struct call *call) {
    struct model_version *version = call->run->version;
    if (version->config.preserve_ordering) {
        scheduler_complete_in_order(&version->scheduler, call);
        return;
    }
    version_leave(version);
    call_deliver(call);
}

/* Runs a call that is not in the cache. */
static void run_call(struct call *call) {
    const struct model_version *version = call->run->version;
    if (version->ensemble_ops) {
        version->ensemble_ops->run(call, version->ensemble);
    } else if (!call_run_inline(call) && call_enqueue(call)) {
        scheduler_notify(&call->run->version->scheduler, 1);
    }
}

static void run_hash(struct helper_job *job) {
    call_cache_hash(CONTAINER_OF(job, struct lookup, job)->call);
}

static void on_hashed(struct helper_job *job) {
    struct call *call = CONTAINER_OF(job, struct lookup, job)->call;
    call->run->lookup = NULL;
    if (atomic_load_explicit(&call->run->cancelled, memory_order_relaxed)) {
        error_set(&call->response.error, ST_CANCELLED,
                  "the request was cancelled while its inputs were hashed");
        call_set_state(call, CALL_ANSWERED);
        reject_queued(call, METRIC_DROPPED_CANCELLED);
    } else if (call_cache_find(call)) {
        deliver_cached(call);
    } else {
        run_call(call);
    }
}

/* Returns: false when the worker shall hash the inputs. The requests of a sequence keep their
 * order.
 */
static bool hash_on_helper(struct call *call) {
    enum { HASH_NS = 2, MIN_BYTES = HELPER_MIN_NS / HASH_NS }; /* SipHash: up to 2 ns a byte */
    bool wanted = call->helpers && call->run->input_bytes >= MIN_BYTES &&
                  !call->run->version->scheduler.sequences;
    struct lookup *lookup = wanted ? arena_alloc(call->request->arena, sizeof(*lookup)) : NULL;
    if (!lookup) {
        return false;
    }
    lookup->call = call;
    lookup->job = (struct helper_job){.worker = call->worker,
                                      .run = run_hash,
                                      .done = on_hashed,
                                      .client = call->client,
                                      .ns = call->run->input_bytes * HASH_NS};
    call->run->lookup = lookup;
    if (call->run->version->config.preserve_ordering) {
        scheduler_enter_order(&call->run->version->scheduler, call);
    }
    helper_pool_submit(call->helpers, &lookup->job);
    return true;
}

void call_submit(struct call *call, struct model_version *version) {
    struct error *err = &call->response.error;
    assert(worker_is_current(call->worker));
    if (call_init(call, version, err) != ST_OK) {
        call->finished_ns = clock_now_ns();
        call->done(call);
        model_version_unref(version);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    if (call_apply_policy(call, now_ns, err) != ST_OK || call_prepare(call, err) != ST_OK ||
        response_stream_new(call, now_ns, err) != ST_OK || !version_enter(version, err)) {
        call_set_state(call, CALL_ANSWERED);
        call_reject(call);
        return;
    }
    call->queued_ns = now_ns;
    if (version->cache.cache) {
        if (hash_on_helper(call)) {
            return;
        }
        call_cache_hash(call);
        if (call_cache_find(call)) {
            deliver_cached(call);
            return;
        }
    }
    run_call(call);
}

/* A joint request is one arena with references: of the thread that executes it, of the backend
 * until its final answer, and of each answer whose bytes are not released. The bytes of an answer
 * may be those of the joint inputs, which therefore live as long.
 *
 * A backend may answer later, on another thread. Only a failure that arrives before `execute`
 * returns can be followed by another execution, as the instance is busy no longer than that. */
#include "serve/scheduler/joint/joint_request.h"

#include <stdio.h>
#include <string.h>

#include "core/base/compiler.h"
#include "serve/config/batch_layout.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/joint/joint_inputs.h"
#include "serve/scheduler/joint/joint_outputs.h"
#include "serve/scheduler/padding_request.h"
#include "serve/scheduler/version.h"

enum joint_phase {
    JOINT_EXECUTING, /* `execute` has not returned */
    JOINT_FAILED,    /* it failed before that: its calls are executed again */
    JOINT_RETURNED,  /* the backend answers, or has answered, by itself */
};

struct joint_request {
    struct call call; /* the host's part of the backend's request */
    struct call_run run;
    struct arena *arena; /* contains everything here, this struct included */
    atomic_size_t refs;
    _Atomic(enum joint_phase) phase;
    bool answered; /* a response was passed on */
    size_t n;
    struct call **calls;
    const sluice_request **requests; /* of those calls */
    uint32_t *given;                 /* by index of the model's outputs: 1 + the place in
                                        the response; 0: not in it */
};

/* The bytes of one response, which its parts share. */
struct joint_response {
    struct joint_request *joint; /* a reference */
    atomic_size_t refs;          /* a part each */
    void (*release)(void *cookie);
    void *cookie;
};

static struct joint_request *joint_of(struct call *call) {
    return CONTAINER_OF(call, struct joint_request, call);
}

static void joint_unref(struct joint_request *joint) {
    if (atomic_fetch_sub_explicit(&joint->refs, 1, memory_order_acq_rel) == 1) {
        arena_free(joint->arena); /* frees the joint request too */
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Every output that any of the requests wants, once. Returns: false when out of memory. */
static bool select_outputs(struct joint_request *joint, sluice_request *request) {
    const struct model_plan *plan = &joint->run.version->plan;
    size_t n_outputs = plan->layout->n_outputs;
    uint32_t *wanted = arena_calloc(joint->arena, n_outputs, sizeof(*wanted));
    joint->given = arena_calloc(joint->arena, n_outputs, sizeof(*joint->given));
    if (!wanted || !joint->given) {
        return false;
    }
    for (size_t i = 0; i < joint->n; i++) {
        for (size_t k = 0; k < joint->requests[i]->n_wanted; k++) {
            uint32_t index = joint->requests[i]->wanted[k];
            if (joint->given[index] == 0) {
                wanted[request->n_wanted++] = index;
                joint->given[index] = 1; /* it is in `wanted` */
            }
        }
    }
    request->wanted = wanted;
    return true;
}

/* The parameters of all requests are equal. The latest deadline is that of the batch. */
static void fill_request(const struct joint_request *joint, sluice_request *request) {
    const sluice_request *first = joint->requests[0];
    request->size = sizeof(*request);
    request->host = (void *)(uintptr_t)&joint->call;
    request->id = joint->n == 1 ? first->id : "";
    request->id_bytes = joint->n == 1 ? first->id_bytes : 0;
    request->params = first->params;
    request->n_params = first->n_params;
    request->deadline_ns = first->deadline_ns;
    for (size_t i = 0; i < joint->n; i++) {
        uint64_t deadline_ns = joint->requests[i]->deadline_ns;
        bool later = request->deadline_ns > 0 && deadline_ns > request->deadline_ns;
        request->deadline_ns = later || deadline_ns == 0 ? deadline_ns : request->deadline_ns;
        request->batch += joint->requests[i]->batch;
    }
}

static bool joint_init(struct joint_request *joint, struct instance *instance,
                       struct call *const *calls, size_t n) {
    joint->call.run = &joint->run;
    joint->run.call = &joint->call;
    joint->run.role = CALL_JOINT;
    joint->run.version = instance->version;
    joint->run.instance = instance->index;
    atomic_init(&joint->run.state, CALL_RUNNING);
    atomic_init(&joint->refs, 2); /* the backend's and the executing thread's */
    atomic_init(&joint->phase, JOINT_EXECUTING);
    joint->n = n;
    joint->calls = arena_calloc(joint->arena, n, sizeof(struct call *));
    joint->requests = arena_calloc(joint->arena, n, sizeof(sluice_request *));
    for (size_t i = 0; joint->calls && joint->requests && i < n; i++) {
        joint->calls[i] = calls[i];
        joint->requests[i] = &calls[i]->run->backend_request;
    }
    return joint->calls && joint->requests && select_outputs(joint, &joint->run.backend_request);
}

/* The memory counts as states do, and is given back when the answers are released. Returns: as
 * joint_inputs_make; ST_OVERLOADED. */
static enum status joint_new(struct instance *instance, struct call *const *calls, size_t n,
                             struct joint_request **out, struct error *err) {
    struct arena *arena = arena_new(NULL, 0); /* no worker's cache: any thread */
    struct joint_request *joint = arena ? arena_calloc(arena, 1, sizeof(*joint)) : NULL;
    if (!joint) {
        arena_free(arena);
        return error_no_memory(err, "a batch");
    }
    joint->arena = arena;
    arena_set_budget(arena, &instance->version->joint_budget);
    if (!joint_init(joint, instance, calls, n)) {
        arena_free(arena);
        return error_no_memory(err, "a batch");
    }
    sluice_input *inputs = NULL;
    sluice_request *request = &joint->run.backend_request;
    enum status st = joint_inputs_make(arena, instance->version->plan.layout, joint->requests, n,
                                       &inputs, &request->n_inputs, err);
    if (arena_is_over_budget(arena)) {
        st = error_set(err, ST_OVERLOADED,
                       "a batch of %zu does not fit into the memory that is left, which counts as "
                       "what clients hold (--client-memory)",
                       n);
    }
    if (st != ST_OK) {
        arena_free(arena);
        return st;
    }
    request->inputs = inputs;
    fill_request(joint, request);
    *out = joint;
    return ST_OK;
}

/* ---- answering ------------------------------------------------------------------------------- */

static void release_part(void *cookie) {
    struct joint_response *shared = cookie;
    if (atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) == 1) {
        if (shared->release) {
            shared->release(shared->cookie);
        }
        joint_unref(shared->joint);
    }
}

/* Gives every call an error. */
static void deliver_error(struct joint_request *joint, const sluice_response *response) {
    for (size_t i = 0; i < joint->n; i++) {
        sluice_response own = {.size = sizeof(own),
                               .status = response->status,
                               .error = response->error,
                               .final = response->final};
        host_respond(joint->requests[i], &own);
    }
}

/* Gives each call its outputs. `outputs` has room for those of one call. After a final response
 * that call is not valid. */
static void deliver_parts(struct joint_request *joint, const sluice_response *response,
                          struct joint_response *shared, const sluice_output *parts,
                          sluice_output *outputs) {
    for (size_t i = 0; i < joint->n; i++) {
        const sluice_request *request = joint->requests[i];
        sluice_response own = {.size = sizeof(own),
                               .outputs = outputs,
                               .params = response->params,
                               .n_params = response->n_params,
                               .final = response->final,
                               .release = release_part,
                               .cookie = shared};
        for (size_t k = 0; response->n_outputs > 0 && k < request->n_wanted; k++) {
            uint32_t given = joint->given[request->wanted[k]];
            if (given > 0) { /* else the model has left it out */
                outputs[own.n_outputs++] = parts[i * response->n_outputs + given - 1];
            }
        }
        host_respond(request, &own);
    }
}

/* The outputs must be as the backend was asked for: the parts are cut by their sizes. */
static enum status check_outputs(struct joint_request *joint, const sluice_response *response,
                                 struct error *err) {
    const sluice_request *request = &joint->run.backend_request;
    const struct model_version *version = joint->run.version;
    const struct model_plan *plan = &version->plan;
    if (response->n_outputs > request->n_wanted ||
        (response->n_outputs > 0 && !response->outputs)) {
        return error_set(err, ST_BACKEND_FAILED,
                         "backend %s was asked for %zu outputs and gave %zu%s",
                         version->backend->name, request->n_wanted, response->n_outputs,
                         response->outputs ? "" : " at no address");
    }
    enum status st = ST_OK;
    size_t place = 0;
    memset(joint->given, 0, plan->layout->n_outputs * sizeof(*joint->given));
    for (size_t k = 0; st == ST_OK && k < response->n_outputs; k++, place++) {
        size_t spec = 0;
        st = backend_output_find(request, version->backend->name, &response->outputs[k], &place,
                                 err);
        if (st != ST_OK) {
            return st;
        }
        uint32_t index = request->wanted[place];
        while (plan->outputs[spec].index != index) {
            spec++;
        }
        st = backend_output_check(&response->outputs[k], index, &plan->spec.outputs[spec], err);
        if (st != ST_OK) {
            error_prefix(err, "output \"%s\" of backend %s", plan->layout->outputs[index].name,
                         version->backend->name);
        }
        joint->given[index] = (uint32_t)k + 1;
    }
    return st;
}

/* Passes the outputs on. Returns: as joint_outputs_divide; nothing was passed on then. */
static enum status respond_parts(struct joint_request *joint, const sluice_response *response,
                                 struct error *err) {
    const sluice_request *request = &joint->run.backend_request;
    bool says_only_end = response->n_outputs == 0 && joint->answered;
    sluice_output *parts = NULL;
    struct joint_response *shared = arena_calloc(joint->arena, 1, sizeof(*shared));
    sluice_output *outputs = arena_calloc(joint->arena, request->n_wanted, sizeof(*outputs));
    enum status st = ST_OK;
    if (!shared || !outputs) {
        return error_no_memory(err, "the outputs of a batch");
    }
    if (!says_only_end) {
        st = check_outputs(joint, response, err);
    }
    if (st == ST_OK && !says_only_end) {
        st = joint_outputs_divide(joint->arena, joint->run.version->plan.layout, request,
                                  joint->requests, joint->n, response, &parts, err);
    }
    if (st != ST_OK) {
        return st;
    }
    *shared = (struct joint_response){
        .joint = joint, .release = response->release, .cookie = response->cookie};
    atomic_init(&shared->refs, joint->n);
    atomic_fetch_add_explicit(&joint->refs, 1, memory_order_relaxed);
    deliver_parts(joint, response, shared, parts, outputs);
    return ST_OK;
}

/* Returns: whether the executing thread runs the calls again. */
static bool leave_to_executor(struct joint_request *joint, const sluice_response *response) {
    enum joint_phase phase = JOINT_EXECUTING;
    return response->final && !joint->answered && joint->n > 1 &&
           response->status != SLUICE_CANCELLED &&
           atomic_compare_exchange_strong_explicit(&joint->phase, &phase, JOINT_FAILED,
                                                   memory_order_acq_rel, memory_order_acquire);
}

static void respond_error(struct joint_request *joint, const sluice_response *response) {
    if (!leave_to_executor(joint, response)) {
        deliver_error(joint, response);
    }
}

void joint_respond(struct call *call, const sluice_response *response) {
    struct joint_request *joint = joint_of(call);
    struct error err;
    bool final = response->final;
    if (response->status != SLUICE_OK) {
        respond_error(joint, response);
        backend_response_release(response);
    } else if (respond_parts(joint, response, &err) != ST_OK) {
        sluice_response failure = {.size = sizeof(failure),
                                   .status = err.status == ST_NO_MEMORY ? SLUICE_NO_MEMORY
                                                                        : SLUICE_INTERNAL,
                                   .error = err.text,
                                   .final = response->final};
        respond_error(joint, &failure);
        backend_response_release(response);
    }
    joint->answered = true;
    if (final) {
        joint_unref(joint);
    }
}

bool joint_is_cancelled(struct call *call) {
    const struct joint_request *joint = joint_of(call);
    size_t n = 0;
    while (n < joint->n &&
           (joint->calls[n]->run->role == CALL_PADDING || host_is_cancelled(joint->requests[n]))) {
        n++;
    }
    return n == joint->n;
}

const sluice_request *const *joint_requests(struct call *call, size_t *n) {
    const struct joint_request *joint = joint_of(call);
    *n = joint->n;
    return joint->requests;
}

/* ---- executing ------------------------------------------------------------------------------- */

/* Fails one call before it reaches the backend. */
static void fail_call(struct call *call, const struct error *err) {
    if (call->run->role == CALL_PADDING) {
        padding_request_free(call);
        return;
    }
    call->response.error = *err;
    call_complete(call);
}

/* Recursion: as deep as the batch can be halved. */
static void execute_calls(struct instance *instance, struct call *const *calls, size_t n) {
    struct joint_request *joint = NULL;
    struct error err;
    enum joint_phase phase = JOINT_EXECUTING;
    bool failed = joint_new(instance, calls, n, &joint, &err) != ST_OK || !joint;
    if (failed && n == 1) {
        fail_call(calls[0], &err);
        return;
    }
    if (!failed) {
        const sluice_request *request = &joint->run.backend_request;
        instance->version->backend->execute(instance->handle, &request, 1);
        failed = !atomic_compare_exchange_strong_explicit(
            &joint->phase, &phase, JOINT_RETURNED, memory_order_acq_rel, memory_order_acquire);
        joint_unref(joint);
    }
    if (failed) {
        execute_calls(instance, calls, n / 2);
        execute_calls(instance, calls + n / 2, n - n / 2);
    }
}

static void cancel_call(const struct call *call) {
    sluice_response response = {.size = sizeof(response),
                                .status = SLUICE_CANCELLED,
                                .error = "cancelled before it was run",
                                .final = 1};
    host_respond(&call->run->backend_request, &response);
}

static bool must_be_alone(const struct call *call) {
    const sluice_request *request = &call->run->backend_request;
    const struct batch_layout *layout = call->run->version->plan.layout;
    for (size_t i = 0; i < request->n_inputs; i++) {
        if (layout->inputs[request->inputs[i].index].alone) {
            return true;
        }
    }
    return false;
}

void joint_execute(struct instance *instance, struct call *const *calls, size_t n) {
    struct call *shared[INSTANCE_REQUESTS_MAX];
    size_t n_shared = 0;
    for (size_t i = 0; i < n; i++) {
        if (host_is_cancelled(&calls[i]->run->backend_request)) {
            cancel_call(calls[i]);
        } else if (must_be_alone(calls[i])) {
            execute_calls(instance, &calls[i], 1);
        } else {
            shared[n_shared++] = calls[i];
        }
    }
    if (n_shared > 0) {
        execute_calls(instance, shared, n_shared);
    }
}

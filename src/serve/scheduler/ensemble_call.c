/* Runs, and completes, the calls of ensembles. */
#include "serve/scheduler/ensemble_call.h"

#include "core/event/clock.h"
#include "serve/config/resolve_config.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/statistics/count.h"
#include "serve/scheduler/version.h"

void ensemble_call_set_run(struct call *call, void *run) {
    call->run->ensemble_run = run;
    call->started_ns = call->queued_ns;
    call_set_state(call, CALL_RUNNING);
}

void *ensemble_call_run(const struct call *call) {
    return call->run->ensemble_run;
}

const sluice_request *ensemble_call_request(const struct call *call) {
    return &call->run->backend_request;
}

size_t ensemble_call_output(const struct call *call, size_t i) {
    return call->run->backend_request.wanted[i];
}

struct shape ensemble_call_inner_shape(const struct call *call, size_t output) {
    const struct model_plan *plan = &call->run->version->plan;
    return plan->outputs[output].reshaped ? plan->outputs[output].reshape
                                          : plan->spec.outputs[output].shape;
}

enum status ensemble_call_shape(const struct call *call, size_t output, struct shape given,
                                struct arena *arena, struct shape *out, struct error *err) {
    const struct model_plan *plan = &call->run->version->plan;
    const struct plan_tensor *tensor = &plan->outputs[output];
    const struct tensor_spec *spec = &plan->spec.outputs[output];
    *out = given;
    if (!tensor->reshaped) {
        return ST_OK;
    }
    int64_t *dims = arena_calloc(arena, spec->shape.rank + 1, sizeof(*dims));
    if (!dims) {
        return error_no_memory(err, "the ensemble's answer");
    }
    if (!reshape_apply(tensor->reshape, spec->shape, given, dims)) {
        char name[QUOTED_NAME_BYTES], got[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BACKEND_FAILED,
                         "output %s: expected shape %s, to be reshaped, got %s",
                         quote_name(spec->name, name), shape_print(tensor->reshape, expected),
                         shape_print(given, got));
    }
    *out = (struct shape){dims, spec->shape.rank};
    return ST_OK;
}

/* As for the responses of a backend: since the one before, or since the start. */
static void count_response(struct call *call, enum statistics_outcome outcome) {
    uint64_t since_ns = call->run->answered_ns > 0 ? call->run->answered_ns : call->started_ns;
    call->run->answered_ns = clock_now_ns();
    statistics_response_add(&call->run->version->statistics.responses, call->run->n_answers++,
                            outcome, call->run->answered_ns - since_ns, 0);
}

void ensemble_call_send(struct call *call, struct infer_response *response) {
    count_response(call, RESPONSE_SUCCESS);
    if (call_state(call) == CALL_RUNNING) {
        call_set_state(call, CALL_PARTIAL);
    }
    if (call->on_partial_response) {
        call->on_partial_response(call, response);
    } else {
        infer_response_release(response);
    }
}

static enum statistics_outcome outcome_of(const struct call *call) {
    enum status status = call->response.error.status;
    return status == ST_CANCELLED          ? RESPONSE_CANCEL
           : status != ST_OK               ? RESPONSE_FAIL
           : call->response.n_outputs == 0 ? RESPONSE_EMPTY
                                           : RESPONSE_SUCCESS;
}

void ensemble_call_end(struct call *call, void (*release)(void *cookie), void *cookie,
                       const struct statistics_compute *compute, bool later) {
    struct model_version *version = call->run->version;
    call->run->ensemble_run = NULL;
    call->run->has_ensemble_compute = true;
    call->run->ensemble_compute = *compute;
    if (release) {
        call_hold_outputs(call, release, cookie);
    }
    if (version->plan.spec.decoupled) {
        count_response(call, outcome_of(call));
    }
    call->finished_ns = clock_now_ns();
    call_set_state(call, CALL_ANSWERED);
    if (call->response.error.status == ST_OK) {
        statistics_count_execution(&version->statistics, call);
    }
    if (later) {
        worker_post(call->worker, &call->run->msg);
        version_leave(version);
    } else {
        version_leave(version);
        call_deliver(call);
    }
}

/* What a backend calls to answer. A protocol that carries one answer gets the first, and an error
 * when the backend gives a second with outputs; either way it is told only when the backend has
 * said that it is done with the request. Of a decoupled model each answer goes its way (part.c). */
#include "serve/scheduler/respond.h"

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/filler.h"
#include "serve/scheduler/part.h"
#include "serve/scheduler/version.h"

void respond_give_back(const sluice_response *response) {
    if (response->release) {
        response->release(response->cookie);
    }
}

/* The `release` of call->response. */
static void release_answer(void *cookie) {
    struct call *call = cookie;
    struct model_version *version = call->release_unrefs ? call->version : NULL;
    if (call->backend_release) {
        call->backend_release(call->backend_cookie);
        metric_add(METRIC_OUTPUTS_HELD, -1);
    }
    arena_free(call->extra);
    call->extra = NULL;
    if (version) {
        model_version_unref(version);
    }
}

void respond_hold(struct call *call, void (*release)(void *cookie), void *cookie) {
    call->backend_release = release;
    call->backend_cookie = cookie;
    if (release) {
        metric_add(METRIC_OUTPUTS_HELD, 1);
    }
    if (release || call->extra) {
        call->response.release = release_answer;
        call->response.cookie = call;
    }
}

static void first_answer(struct call *call, const sluice_response *response) {
    struct error *err = &call->response.error;
    struct answer answer = {
        .call = call,
        .response = &call->response,
        .outputs = call->outputs,
        .pieces = call->output_pieces,
        .dims = call->output_dims,
        .extra = &call->extra,
    };
    if (response->status != SLUICE_OK) {
        backend_error(err, call->version->backend, response->status, response->error);
        respond_give_back(response);
    } else if (answer_take(&answer, response, err) == ST_OK) {
        respond_hold(call, response->release, response->cookie);
    } else {
        call->response.outputs = NULL;
        call->response.n_outputs = 0;
        arena_free(call->extra);
        call->extra = NULL;
        respond_give_back(response);
    }
}

static void further_answer(struct call *call, const sluice_response *response) {
    struct error *err = &call->response.error;
    bool says_only_end =
        response->status == SLUICE_OK && response->n_outputs == 0 && response->final;
    if (err->status == ST_OK && !says_only_end) {
        infer_response_release(&call->response);
        call->response.params = (struct params){0};
        call->response.outputs = NULL;
        call->response.n_outputs = 0;
        if (response->status != SLUICE_OK) {
            backend_error(err, call->version->backend, response->status, response->error);
        } else {
            error_set(
                err, ST_UNSUPPORTED,
                "the model gave more than one answer to the request, and this protocol carries "
                "one");
        }
    }
    respond_give_back(response);
}

/* One of any number of answers. The last may say only that it is the last. */
static enum statistics_outcome take_decoupled(struct call *call, const sluice_response *response) {
    bool says_only_end = response->status == SLUICE_OK && response->n_outputs == 0;
    if (!response->final) {
        return part_send(call, response);
    }
    if (call->lost) {
        error_set(&call->response.error, ST_NO_MEMORY, "out of memory for an answer of the model");
        respond_give_back(response);
        return RESPONSE_FAIL;
    }
    if (says_only_end) {
        respond_give_back(response);
        return RESPONSE_EMPTY;
    }
    first_answer(call, response);
    return call->response.error.status == ST_OK ? RESPONSE_SUCCESS : RESPONSE_FAIL;
}

static void decoupled_answer(struct call *call, const sluice_response *response) {
    uint64_t began_ns = clock_now_ns();
    uint64_t since_ns = call->answered_ns > 0 ? call->answered_ns : call->started_ns;
    bool cancelled = response->status == SLUICE_CANCELLED;
    enum statistics_outcome outcome = take_decoupled(call, response);
    call->answered_ns = clock_now_ns();
    statistics_response_add(&call->version->statistics.responses, call->n_answers++,
                            cancelled ? RESPONSE_CANCEL : outcome, began_ns - since_ns,
                            call->answered_ns - began_ns);
}

static void throw_away(struct call *filler, const sluice_response *response) {
    bool final = response->final;
    respond_give_back(response);
    if (final) {
        filler_end(filler);
    }
}

void host_respond(const sluice_request *request, const sluice_response *response) {
    struct call *call = request->host;
    if (call->filler) {
        throw_away(call, response);
        return;
    }
    enum call_state state = call_state(call);
    if ((state == CALL_RUNNING || state == CALL_HELD) && call->version->plan.spec.decoupled) {
        decoupled_answer(call, response);
    } else if (state == CALL_RUNNING) {
        first_answer(call, response);
    } else if (state == CALL_HELD) {
        further_answer(call, response);
    } else {
        /* Seen by luck: the request of a final answer is usually gone. */
        log_event(LOG_ERROR, "the backend answered a request again after its final answer",
                  LOG_TEXT_OF("backend", call->version->backend->name));
        respond_give_back(response);
        return;
    }
    if (response->final) {
        call_answer(call);
    } else if (state == CALL_RUNNING) {
        call_move(call, CALL_HELD);
    }
}

int host_is_cancelled(const sluice_request *request) {
    struct call *call = request->host;
    return atomic_load_explicit(&call->cancelled, memory_order_relaxed) ? 1 : 0;
}

void host_computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                   uint64_t ended_ns) {
    if (n > 0) {
        const struct call *call = requests[0]->host;
        statistics_computed(&call->version->statistics, call->instance, requests, n, began_ns,
                            ended_ns);
    }
}

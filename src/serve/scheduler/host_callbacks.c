/* The functions of the host that a backend calls to answer. A model that is not decoupled has one
 * answer: a second one with outputs turns into an error, and the call completes when the backend
 * marks a response as final. A decoupled model's responses are sent one by one
 * (partial_response.c). */
#include "serve/scheduler/host_callbacks.h"

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/padding_request.h"
#include "serve/scheduler/partial_response.h"
#include "serve/scheduler/version.h"

void backend_response_release(const sluice_response *response) {
    if (response->release) {
        response->release(response->cookie);
    }
}

/* The `release` function of call->response. */
static void release_response(void *cookie) {
    struct call *call = cookie;
    struct model_version *version = call->run->release_unrefs_version ? call->run->version : NULL;
    if (call->run->backend_release) {
        call->run->backend_release(call->run->backend_cookie);
        metric_add(METRIC_OUTPUTS_HELD, -1);
    }
    arena_free(call->run->extra_arena);
    call->run->extra_arena = NULL;
    if (version) {
        model_version_unref(version);
    }
}

void call_hold_outputs(struct call *call, void (*release)(void *cookie), void *cookie) {
    call->run->backend_release = release;
    call->run->backend_cookie = cookie;
    if (release) {
        metric_add(METRIC_OUTPUTS_HELD, 1);
    }
    if (release || call->run->extra_arena) {
        call->response.release = release_response;
        call->response.user = call;
    }
}

static void store_first_response(struct call *call, const sluice_response *response) {
    struct error *err = &call->response.error;
    struct response_target target = {
        .call = call,
        .response = &call->response,
        .outputs = call->run->outputs,
        .pieces = call->run->output_pieces,
        .dims = call->run->output_dims,
        .extra_arena = &call->run->extra_arena,
    };
    if (response->status != SLUICE_OK) {
        backend_error(err, call->run->version->backend, response->status, response->error);
        backend_response_release(response);
    } else if (response_target_store(&target, response, err) == ST_OK) {
        call_hold_outputs(call, response->release, response->cookie);
    } else {
        call->response.outputs = NULL;
        call->response.n_outputs = 0;
        arena_free(call->run->extra_arena);
        call->run->extra_arena = NULL;
        backend_response_release(response);
    }
}

static void reject_further_response(struct call *call, const sluice_response *response) {
    struct error *err = &call->response.error;
    bool says_only_end =
        response->status == SLUICE_OK && response->n_outputs == 0 && response->final;
    if (err->status == ST_OK && !says_only_end) {
        infer_response_release(&call->response);
        call->response.params = (struct params){0};
        call->response.outputs = NULL;
        call->response.n_outputs = 0;
        if (response->status != SLUICE_OK) {
            backend_error(err, call->run->version->backend, response->status, response->error);
        } else {
            error_set(
                err, ST_UNSUPPORTED,
                "the model gave more than one answer to the request, and this protocol carries "
                "one");
        }
    }
    backend_response_release(response);
}

/* A response of a decoupled model. The final one may have no outputs. */
static enum statistics_outcome store_decoupled_response(struct call *call,
                                                        const sluice_response *response) {
    bool says_only_end = response->status == SLUICE_OK && response->n_outputs == 0;
    if (!response->final) {
        return partial_response_send(call, response);
    }
    if (call->run->reader_slow) {
        error_set(
            &call->response.error, ST_SLOW_READER,
            "the client read the answers too slowly while other requests waited for the model; "
            "further ones are not sent (--slow-reader-timeout)");
        backend_response_release(response);
        return RESPONSE_CANCEL;
    }
    if (call->run->partial_lost) {
        error_no_memory(&call->response.error, "an answer of the model");
        backend_response_release(response);
        return RESPONSE_FAIL;
    }
    if (says_only_end) {
        backend_response_release(response);
        return RESPONSE_EMPTY;
    }
    store_first_response(call, response);
    return call->response.error.status == ST_OK ? RESPONSE_SUCCESS : RESPONSE_FAIL;
}

static void on_decoupled_response(struct call *call, const sluice_response *response) {
    uint64_t began_ns = clock_now_ns();
    uint64_t since_ns = call->run->answered_ns > 0 ? call->run->answered_ns : call->started_ns;
    bool cancelled = response->status == SLUICE_CANCELLED;
    enum statistics_outcome outcome = store_decoupled_response(call, response);
    call->run->answered_ns = clock_now_ns();
    response_stream_answered(call->run->stream, call->run->answered_ns);
    statistics_response_add(&call->run->version->statistics.responses, call->run->n_answers++,
                            cancelled ? RESPONSE_CANCEL : outcome, began_ns - since_ns,
                            call->run->answered_ns - began_ns);
}

static void discard_response(struct call *padding, const sluice_response *response) {
    bool final = response->final;
    backend_response_release(response);
    if (final) {
        padding_request_free(padding);
    }
}

void host_respond(const sluice_request *request, const sluice_response *response) {
    struct call *call = request->host;
    if (call->run->is_padding) {
        discard_response(call, response);
        return;
    }
    enum call_state state = call_state(call);
    if ((state == CALL_RUNNING || state == CALL_PARTIAL) &&
        call->run->version->plan.spec.decoupled) {
        on_decoupled_response(call, response);
    } else if (state == CALL_RUNNING) {
        store_first_response(call, response);
    } else if (state == CALL_PARTIAL) {
        reject_further_response(call, response);
    } else {
        /* Detected only by chance: after a final answer the request is usually freed. */
        log_event(LOG_ERROR, "the backend answered a request again after its final answer",
                  LOG_CSTR("backend", call->run->version->backend->name));
        backend_response_release(response);
        return;
    }
    if (response->final) {
        call_complete(call);
    } else if (state == CALL_RUNNING) {
        call_set_state(call, CALL_PARTIAL);
    }
}

int host_is_cancelled(const sluice_request *request) {
    struct call *call = request->host;
    return atomic_load_explicit(&call->run->cancelled, memory_order_relaxed) ? 1 : 0;
}

void host_computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                   uint64_t ended_ns) {
    if (n > 0) {
        const struct call *call = requests[0]->host;
        statistics_computed(&call->run->version->statistics, call->run->instance, requests, n,
                            began_ns, ended_ns);
    }
}

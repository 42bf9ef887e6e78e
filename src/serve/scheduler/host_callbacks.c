/* The functions of the host that a backend calls to answer, and the check of its answers. A model
 * that is not decoupled has one answer: a second one with outputs turns into an error, and the call
 * completes when the backend marks a response as final. A decoupled model's responses are sent one
 * by one (partial_response.c). */
#include "serve/scheduler/host_callbacks.h"

#include <assert.h>
#include <inttypes.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/base/utf8.h"
#include "core/event/clock.h"
#include "core/tensor/bytes.h"
#include "serve/config/resolve_config.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/joint/joint_request.h"
#include "serve/scheduler/padding_request.h"
#include "serve/scheduler/sequence/state.h"
#include "serve/scheduler/version.h"

/* ---- checking an answer ---------------------------------------------------------------------- */

/* Answers are checked because the protocols' encoders rely on consistent sizes, shapes and framing.
 * Dimensions that are consistent but differ from the model's description are passed on and logged
 * once: clients may know better than a careless exporter. */

static struct arena *get_extra_arena(const struct response_target *target) {
    if (!*target->extra_arena) {
        *target->extra_arena = arena_new(NULL, 0); /* no worker's cache: any thread */
    }
    return *target->extra_arena;
}

static int64_t *output_dims_buffer(const struct response_target *target, size_t i, size_t rank) {
    size_t prepared = target->call->run->version->plan.max_output_rank;
    if (rank <= prepared) {
        return target->dims + i * prepared;
    }
    struct arena *arena = get_extra_arena(target);
    return arena ? arena_calloc(arena, rank, sizeof(int64_t)) : NULL;
}

/* Checks that it is the wanted output, with usable datatype and dimensions. */
static enum status check_output_header(const sluice_output *output, uint32_t wanted,
                                       const struct tensor_spec *spec, struct error *err) {
    if (output->index != wanted) {
        return error_set(err, ST_BACKEND_FAILED,
                         "output number %" PRIu32 " was returned in its place", output->index);
    }
    if (output->datatype != (sluice_datatype)spec->datatype) {
        return error_set(err, ST_BACKEND_FAILED, "expected datatype %s, got number %d",
                         datatype_name(spec->datatype), (int)output->datatype);
    }
    if (output->rank > SHAPE_MAX_RANK || (output->rank > 0 && !output->dims)) {
        return error_set(err, ST_BACKEND_FAILED, "expected at most %d dimensions, got %zu%s",
                         SHAPE_MAX_RANK, output->rank, output->dims ? "" : " without their sizes");
    }
    return ST_OK;
}

/* Checks that the bytes match the dimensions. */
static enum status check_output_bytes(const sluice_output *output, const struct tensor_spec *spec,
                                      struct error *err) {
    struct shape shape = {output->dims, output->rank};
    char text[SHAPE_TEXT_BYTES];
    uint64_t elements, expected;
    size_t size = datatype_size(spec->datatype);
    if (!(size > 0 ? shape_bytes(shape, spec->datatype, &expected)
                   : shape_elements(shape, &elements))) {
        return error_set(err, ST_BACKEND_FAILED, "shape %s is not possible",
                         shape_print(shape, text));
    }
    if (output->n_bytes > 0 && !output->data) {
        return error_set(err, ST_BACKEND_FAILED, "%zu bytes at no address", output->n_bytes);
    }
    if (size == 0) {
        enum status st =
            bytes_check(str_make(output->data, output->n_bytes), elements, spec->name, err);
        return st == ST_OK ? ST_OK : (err->status = ST_BACKEND_FAILED);
    }
    if (output->n_bytes != expected) {
        return error_set(err, ST_BACKEND_FAILED, "%s of shape %s is %" PRIu64 " bytes, got %zu",
                         datatype_name(spec->datatype), shape_print(shape, text), expected,
                         output->n_bytes);
    }
    if (output->n_bytes > 0 && (uintptr_t)output->data % size != 0) {
        return error_set(err, ST_BACKEND_FAILED, "its bytes are not aligned to %zu", size);
    }
    return ST_OK;
}

enum status backend_output_check(const sluice_output *output, uint32_t wanted,
                                 const struct tensor_spec *spec, struct error *err) {
    enum status st = check_output_header(output, wanted, spec, err);
    return st == ST_OK ? check_output_bytes(output, spec, err) : st;
}

static void log_unexpected_shape(struct call *call, const struct tensor_spec *spec,
                                 struct shape shape) {
    struct model_version *version = call->run->version;
    const struct model_spec *model = &version->plan.spec;
    bool batch_ok = model->max_batch_size == 0 ||
                    (shape.rank > 0 && (uint64_t)shape.dims[0] == call->run->backend_request.batch);
    if ((batch_ok && shape_matches(shape, spec->shape)) ||
        atomic_flag_test_and_set(&version->shape_reported)) {
        return;
    }
    char got[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
    log_event(LOG_WARNING, "model output differs from the model's description (logged once)",
              LOG_STR("model", model->name), LOG_STR("output", spec->name),
              LOG_CSTR("described", shape_print(spec->shape, expected)),
              LOG_CSTR("got", shape_print(shape, got)),
              LOG_U64("batch", call->run->backend_request.batch));
}

/* Stores the shape that clients see, of output `i` of the response. */
static enum status store_output_shape(const struct response_target *target, size_t i,
                                      const struct tensor_spec *spec,
                                      const struct plan_tensor *plan, const sluice_output *output,
                                      struct error *err) {
    struct shape given = {output->dims, output->rank};
    assert(given.rank == 0 || given.dims); /* checked by check_output_header */
    if (plan->may_be_scalar && given.rank == 0) {
        given = spec->shape;
    }
    size_t rank = plan->reshaped ? spec->shape.rank : given.rank;
    int64_t *dims = output_dims_buffer(target, i, rank);
    if (!dims) {
        return error_no_memory(err, "the model's answer");
    }
    if (!plan->reshaped) {
        for (size_t d = 0; d < rank; d++) {
            dims[d] = given.dims[d];
        }
    } else if (!reshape_apply(plan->reshape, spec->shape, given, dims)) {
        char got[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BACKEND_FAILED, "expected shape %s, to be reshaped, got %s",
                         shape_print(plan->reshape, expected), shape_print(given, got));
    }
    target->outputs[i].shape = (struct shape){dims, rank};
    log_unexpected_shape(target->call, spec, target->outputs[i].shape);
    return ST_OK;
}

/* Stores output `i` of the response, which is that of place `place` in `wanted`. */
static enum status store_output(const struct response_target *target, size_t i, size_t place,
                                const sluice_output *output, struct error *err) {
    struct call *call = target->call;
    const struct infer_request *request = call->request;
    const struct model_plan *plan = &call->run->version->plan;
    size_t at = request->n_wanted > 0 ? request->wanted[place].spec : place;
    const struct tensor_spec *spec = &plan->spec.outputs[at];
    enum status st =
        backend_output_check(output, call->run->backend_request.wanted[place], spec, err);
    if (st == ST_OK) {
        st = store_output_shape(target, i, spec, &plan->outputs[at], output, err);
    }
    if (st != ST_OK) {
        char name[QUOTED_NAME_BYTES];
        return error_prefix(err, "output %s of backend %s", quote_name(spec->name, name),
                            call->run->version->backend->name);
    }
    struct tensor *tensor = &target->outputs[i];
    target->pieces[i] = (struct piece){output->data, output->n_bytes};
    tensor->name = spec->name;
    tensor->datatype = spec->datatype;
    tensor->pieces = &target->pieces[i];
    tensor->n_pieces = output->n_bytes > 0 ? 1 : 0;
    tensor->n_bytes = output->n_bytes;
    return ST_OK;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static bool param_is_valid(const sluice_param *param) {
    return param->name && utf8_is_valid(param->name, param->name_bytes) &&
           param->kind >= SLUICE_PARAM_BOOL && param->kind <= SLUICE_PARAM_STRING &&
           (param->kind != SLUICE_PARAM_STRING ||
            (param->string && utf8_is_valid(param->string, param->string_bytes)));
}

static enum status store_params(const struct response_target *target,
                                const sluice_response *response, struct error *err) {
    const struct call *call = target->call;
    if (response->n_params == 0) {
        return ST_OK;
    }
    if (!response->params) {
        return error_set(err, ST_BACKEND_FAILED,
                         "backend %s gave %zu response parameters at no "
                         "address",
                         call->run->version->backend->name, response->n_params);
    }
    struct arena *arena = get_extra_arena(target);
    struct param *items = arena ? arena_calloc(arena, response->n_params, sizeof(*items)) : NULL;
    if (!items) {
        return error_no_memory(err, "the model's answer");
    }
    for (size_t i = 0; i < response->n_params; i++) {
        if (!param_is_valid(&response->params[i])) {
            return error_set(
                err, ST_BACKEND_FAILED,
                "backend %s gave response parameter %zu without a proper name, kind or "
                "text",
                call->run->version->backend->name, i);
        }
        if (!backend_param_copy(arena, &response->params[i], &items[i])) {
            return error_no_memory(err, "the model's answer");
        }
    }
    target->response->params = (struct params){items, response->n_params};
    return ST_OK;
}

/* The values of a request may decide how large an output is, so the limit is the client's error. */
static enum status check_response_size(const struct model_version *version,
                                       const sluice_response *response, struct error *err) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < response->n_outputs; i++) {
        if (__builtin_add_overflow(n_bytes, response->outputs[i].n_bytes, &n_bytes)) {
            n_bytes = UINT64_MAX;
            break;
        }
    }
    if (version->max_output_size > 0 && n_bytes > version->max_output_size) {
        return error_set(err, ST_OUTPUT_TOO_LARGE,
                         "the outputs are %" PRIu64 " bytes together; at most %" PRIu64
                         " are allowed (--max-output-size)",
                         n_bytes, version->max_output_size);
    }
    return ST_OK;
}

static enum status check_output_count(const struct call *call, const sluice_response *response,
                                      struct error *err) {
    if (response->n_outputs > call->run->backend_request.n_wanted) {
        return error_set(err, ST_BACKEND_FAILED,
                         "backend %s was asked for %zu outputs and gave %zu",
                         call->run->version->backend->name, call->run->backend_request.n_wanted,
                         response->n_outputs);
    }
    if (response->n_outputs > 0 && !response->outputs) {
        return error_set(err, ST_BACKEND_FAILED, "backend %s gave %zu outputs at no address",
                         call->run->version->backend->name, response->n_outputs);
    }
    return ST_OK;
}

enum status backend_output_find(const sluice_request *request, const char *backend,
                                const sluice_output *output, size_t *place, struct error *err) {
    while (*place < request->n_wanted && request->wanted[*place] != output->index) {
        (*place)++;
    }
    return *place < request->n_wanted
               ? ST_OK
               : error_set(err, ST_BACKEND_FAILED,
                           "backend %s gave output number %" PRIu32 " where it is not expected: "
                           "outputs are given once, in the order of the request",
                           backend, output->index);
}

/* Stores the outputs that are for the client; states are taken by call_states_update. */
static enum status store_outputs(const struct response_target *target,
                                 const sluice_response *response, struct error *err) {
    const struct call_run *run = target->call->run;
    const sluice_request *request = &run->backend_request;
    uint32_t *places = NULL;
    size_t n = 0, place = 0;
    if (response->n_outputs < request->n_wanted) {
        struct arena *arena = get_extra_arena(target);
        places = arena ? arena_calloc(arena, response->n_outputs, sizeof(*places)) : NULL;
        if (!places) {
            return error_no_memory(err, "the model's answer");
        }
    }
    for (size_t i = 0; i < response->n_outputs; i++, place++) {
        const sluice_output *output = &response->outputs[i];
        enum status st =
            backend_output_find(request, run->version->backend->name, output, &place, err);
        if (st == ST_OK && place < run->n_client_outputs) {
            st = store_output(target, n, place, output, err);
            if (places) {
                places[n] = (uint32_t)place;
            }
            n++;
        }
        if (st != ST_OK) {
            return st;
        }
    }
    target->response->outputs = target->outputs;
    target->response->n_outputs = n;
    target->response->places = places;
    return ST_OK;
}

enum status response_target_store(const struct response_target *target,
                                  const sluice_response *response, struct error *err) {
    const struct call *call = target->call;
    if (check_output_count(call, response, err) != ST_OK) {
        return err->status;
    }
    enum status too_large = check_response_size(call->run->version, response, err);
    if (too_large != ST_OK) {
        return too_large;
    }
    enum status st = store_outputs(target, response, err);
    return st == ST_OK ? store_params(target, response, err) : st;
}

/* ---- responses ------------------------------------------------------------------------------- */

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
    if (call->run->states) {
        call_states_release(call);
    }
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
    if (release || call->run->extra_arena || call_holds_states(call->run)) {
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
    } else if (response_target_store(&target, response, err) == ST_OK &&
               (call->run->version->plan.spec.decoupled ||
                call_states_update(call, response, err) == ST_OK)) {
        call_hold_outputs(call, response->release, response->cookie);
    } else {
        call->response.outputs = NULL;
        call->response.n_outputs = 0;
        call->response.places = NULL;
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
        call->response.places = NULL;
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
    if (call->run->loss == CALL_LOST_READER) {
        error_set(
            &call->response.error, ST_SLOW_READER,
            "the client read the answers too slowly while other requests waited for the model; "
            "further ones are not sent (--slow-reader-timeout)");
        backend_response_release(response);
        return RESPONSE_CANCEL;
    }
    if (call->run->loss == CALL_LOST_PARTIAL) {
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
    struct error err;
    sluice_response failed = {.size = sizeof(failed), .error = err.text, .final = response->final};
    enum status st = call_states_update(call, response, &err);
    if (st != ST_OK) { /* instead of the response; its outputs would not fit its successor's */
        failed.status = st == ST_BACKEND_FAILED ? SLUICE_INTERNAL : SLUICE_NO_MEMORY;
        backend_response_release(response);
        response = &failed;
    }
    enum statistics_outcome outcome = store_decoupled_response(call, response);
    call->run->answered_ns = clock_now_ns();
    if (call->run->n_answers == 0) {
        call->run->first_answered_ns = call->run->answered_ns;
    }
    response_stream_answered(call->run->stream, call->run->answered_ns);
    statistics_response_add(&call->run->version->statistics.responses, call->run->n_answers++,
                            cancelled ? RESPONSE_CANCEL : outcome, began_ns - since_ns,
                            call->run->answered_ns - began_ns);
}

/* ---- iterative sequences --------------------------------------------------------------------- */

/* A later member of the interface. */
static bool asks_to_be_run_again(const sluice_response *response) {
    return response->size >= offsetof(sluice_response, run_again) + sizeof(response->run_again) &&
           response->run_again && !response->final && response->status == SLUICE_OK;
}

/* Takes what the response brings besides the wish to be run again. Returns: why the call ends
 * instead. */
static enum status store_iteration(struct call *call, const sluice_response *response,
                                   struct error *err) {
    const struct model_version *version = call->run->version;
    if (!version->config.sequences.iterative) {
        backend_response_release(response);
        return error_set(err, ST_BACKEND_FAILED,
                         "backend %s asks to run the request again, which needs "
                         "sequence_batching { iterative_sequence: true } in the model's "
                         "configuration",
                         version->backend->name);
    }
    if (response->n_outputs > 0 && version->plan.spec.decoupled) {
        on_decoupled_response(call, response);
        return ST_OK;
    }
    enum status st = response->n_outputs > 0 ? check_output_count(call, response, err) : ST_OK;
    if (st == ST_OK) {
        st = call_states_update(call, response, err);
    }
    backend_response_release(response);
    return st;
}

static void end_cancelled_iteration(struct call *call) {
    if (call->run->version->plan.spec.decoupled) { /* it knows why */
        on_decoupled_response(call, &(sluice_response){.final = 1});
    }
    if (call->response.error.status == ST_OK) {
        error_set(&call->response.error, ST_CANCELLED,
                  "the request was cancelled before its next iteration");
    }
    call_complete(call);
}

/* A warm-up runs one iteration: it is in no sequence. */
static void run_again(struct call *call, const sluice_response *response) {
    enum status st = store_iteration(call, response, &call->response.error);
    if (st != ST_OK || !call->run->sequence) {
        call_complete(call);
    } else if (!scheduler_run_again(&call->run->version->scheduler, call)) {
        end_cancelled_iteration(call);
    }
}

/* ---- responses of all kinds ------------------------------------------------------------------ */

static void respond_without_client(struct call *call, const sluice_response *response) {
    bool final = response->final || asks_to_be_run_again(response); /* an empty row is done */
    if (call->run->role == CALL_JOINT && asks_to_be_run_again(response)) {
        const sluice_response refused = {.size = sizeof(refused),
                                         .status = SLUICE_INTERNAL,
                                         .error =
                                             "the backend asks to run requests again that were "
                                             "joined in a batch of unequal shapes",
                                         .final = 1};
        backend_response_release(response);
        joint_respond(call, &refused);
        return;
    }
    if (call->run->role == CALL_JOINT) {
        joint_respond(call, response);
        return;
    }
    backend_response_release(response);
    if (final) {
        padding_request_free(call);
    }
}

void host_respond(const sluice_request *request, const sluice_response *response) {
    struct call *call = request->host;
    if (call->run->role != CALL_OF_CLIENT) {
        respond_without_client(call, response);
        return;
    }
    enum call_state state = call_state(call);
    if ((state == CALL_RUNNING || state == CALL_PARTIAL) && asks_to_be_run_again(response)) {
        run_again(call, response);
        return;
    }
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
    if (call->run->role == CALL_JOINT) {
        return joint_is_cancelled(call) ? 1 : 0;
    }
    return atomic_load_explicit(&call->run->cancelled, memory_order_relaxed) ? 1 : 0;
}

void host_computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                   uint64_t ended_ns) {
    if (n > 0) {
        struct call *call = requests[0]->host;
        if (call->run->role == CALL_JOINT) {
            requests = joint_requests(call, &n);
        }
        statistics_computed(&call->run->version->statistics, call->run->instance, requests, n,
                            began_ns, ended_ns);
    }
}

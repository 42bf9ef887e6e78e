/* ModelInfer, and what ModelInfer and ModelStreamInfer share: a message is decoded, checked, run on
 * the same worker, and encoded. */
#include "serve/frontend/grpc/infer.h"

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "serve/frontend/classify.h"
#include "serve/frontend/header_forward.h"
#include "serve/frontend/labels.h"

/* ---- both methods ----------------------------------------------------------------- */

static struct grpc_infer *infer_of(struct call *call) {
    return CONTAINER_OF(call, struct grpc_infer, call);
}

struct grpc_infer *grpc_infer_new(struct grpc_call *rpc, struct grpc_message *message,
                                  void (*done)(struct grpc_infer *infer)) {
    struct grpc_infer *infer = arena_calloc(message->arena, 1, sizeof *infer);
    if (infer) {
        infer->rpc = rpc;
        infer->message = message;
        infer->done = done;
    }
    return infer;
}

static void on_done(struct call *call) {
    struct grpc_infer *infer = infer_of(call);
    infer->submitted = false;
    trace_add_response(infer->trace, call);
    shm_request_finish_outputs(&infer->shm, &infer->request.infer, &call->response);
    infer->done(infer);
}

static void on_partial_response(struct call *call, struct infer_response *response) {
    struct grpc_infer *infer = infer_of(call);
    trace_add_partial_response(infer->trace, response);
    infer->on_partial_response(infer, response);
}

/* A decoupled model may send any number of responses; ModelInfer carries one. */
static enum status check_decoupled_allowed(const struct grpc_infer *infer, struct error *err) {
    if (!infer->spec->decoupled || infer->on_partial_response) {
        return ST_OK;
    }
    char name[TENSOR_NAME_TEXT_BYTES];
    return error_set(
        err, ST_UNSUPPORTED,
        "model %s is decoupled: it gives any number of answers, and ModelInfer carries "
        "one; ModelStreamInfer carries all",
        tensor_name_print(infer->spec->name, name));
}

/* Each response would overwrite the one before it. */
static enum status check_decoupled_outputs(const struct grpc_infer *infer, struct error *err) {
    for (size_t i = 0; infer->spec->decoupled && i < infer->shm.n; i++) {
        if (infer->shm.regions[i]) {
            return error_set(err, ST_UNSUPPORTED,
                             "the outputs of a decoupled model cannot be in shared memory");
        }
    }
    return ST_OK;
}

static enum status prepare_request(struct grpc_infer *infer, struct model_version **version,
                                   struct error *err) {
    const struct grpc_api_options *options = &grpc_method_context_of(infer->rpc)->api->options;
    struct v2_grpc_request *request = &infer->request;
    enum status st = v2_grpc_request_decode(infer->message->arena, infer->message->data,
                                            &options->limits, request, err);
    if (st != ST_OK) {
        return st;
    }
    st = header_forward_grpc(options->forward, infer->message->arena, infer->rpc,
                             &request->infer.params, err);
    if (st != ST_OK) {
        return st;
    }
    struct str version_text = request->version.len > 0 ? request->version : str_make(NULL, 0);
    st = repository_find(options->repository, request->model, version_text, version, err);
    if (st != ST_OK) {
        return st;
    }
    infer->spec = model_version_spec(*version);
    infer->labels = model_labels(*version);
    infer->trace = trace_begin_grpc(options->tracer, infer->spec, infer->rpc);
    trace_timestamp_set(infer->trace, TRACE_GRPC_WAITREAD_START);
    trace_timestamp_set(infer->trace, TRACE_GRPC_WAITREAD_END);
    st = check_decoupled_allowed(infer, err);
    if (st == ST_OK) {
        st = shm_request_read_inputs(options->shared, &request->infer, &infer->shm, err);
    }
    if (st == ST_OK) {
        st = check_decoupled_outputs(infer, err);
    }
    if (st == ST_OK) {
        st = infer_check(&request->infer, infer->spec, err);
    }
    if (st == ST_OK) {
        st = classify_check(&request->infer, infer->spec, err);
    }
    if (st == ST_OK) {
        st = infer_align_copy(&request->infer, err);
    }
    if (st != ST_OK) {
        shm_request_finish_outputs(&infer->shm, &request->infer,
                                   &(struct infer_response){.error = *err});
        model_version_unref(*version);
    }
    return st;
}

void grpc_infer_start(struct grpc_infer *infer) {
    struct model_version *version;
    struct error *err = &infer->call.response.error;
    if (prepare_request(infer, &version, err) != ST_OK) {
        infer->done(infer);
        return;
    }
    infer->request.infer.deadline_ns = infer->rpc->deadline_ns;
    infer->call.request = &infer->request.infer;
    infer->call.worker = infer->rpc->worker;
    infer->call.done = on_done;
    infer->call.on_partial_response = infer->on_partial_response ? on_partial_response : NULL;
    infer->submitted = infer->queued = true;
    trace_add_request(infer->trace, &infer->request.infer);
    call_submit(&infer->call, version);
}

void grpc_infer_cancel(struct grpc_infer *infer) {
    if (infer->submitted) {
        call_cancel(&infer->call);
    }
}

void grpc_infer_fini(struct grpc_infer *infer) {
    shm_request_fini(&infer->shm);
    trace_timestamp_set(infer->trace, TRACE_GRPC_SEND_END);
    trace_end(&infer->trace);
}

enum status grpc_infer_encode(struct grpc_infer *infer, bool stream, struct v2_grpc_message *out,
                              struct error *err) {
    struct infer_response *response = &infer->call.response;
    enum status st = response->error.status;
    if (st != ST_OK) {
        *err = response->error;
    } else {
        st = classify_outputs(&infer->request.infer, infer->spec, infer->labels, response, err);
    }
    if (st == ST_OK) {
        st = v2_grpc_response_encode(infer->message->arena, infer->spec, infer->request.infer.id,
                                     response, stream, stream ? 1 : -1, out, err);
    }
    metric_add(st == ST_OK ? METRIC_INFERENCES_TOTAL : METRIC_INFERENCE_FAILURES_TOTAL, 1);
    trace_timestamp_set(infer->trace, TRACE_GRPC_SEND_START);
    return st;
}

/* ---- ModelInfer ------------------------------------------------------------------------------ */

static void release_response(void *user) {
    infer_response_release(user);
}

static void answer_infer(struct grpc_infer *infer) {
    struct v2_grpc_message out;
    struct error err;
    if (grpc_infer_encode(infer, false, &out, &err) != ST_OK) {
        infer_response_release(&infer->call.response);
        grpc_finish(infer->rpc, &err);
        return;
    }
    grpc_send(infer->rpc, out.pieces, out.n_pieces, release_response, &infer->call.response);
    grpc_finish(infer->rpc, NULL);
}

static void begin_infer(struct grpc_call *call) {
    struct grpc_infer *infer = grpc_infer_new(call, call->message, answer_infer);
    if (!infer) {
        struct error err;
        grpc_message_free(call->message);
        error_set(&err, ST_NO_MEMORY, "no memory for the request");
        grpc_finish(call, &err);
        return;
    }
    call->user = infer;
    grpc_infer_start(infer);
}

static void step_infer(struct grpc_call *call, enum grpc_event event) {
    struct grpc_infer *infer = call->user;
    if (event == GRPC_MESSAGE) {
        begin_infer(call);
    } else if (event == GRPC_CANCELLED && infer) {
        grpc_infer_cancel(infer); /* its `done` is still called, and finishes the call */
    } else if (event == GRPC_END && infer) {
        grpc_infer_fini(infer);
        grpc_message_free(infer->message);
    }
}

/* The offset of the first tensor's bytes, which the server aligns for the backend. */
static size_t align_at(struct str beginning) {
    return v2_grpc_raw_offset(beginning);
}

const struct grpc_method_entry *grpc_infer_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = "/inference.GRPCInferenceService/ModelInfer",
         .group = KEYS_INFER,
         .on_event = step_infer,
         .align_at = align_at},
        {.path = "/inference.GRPCInferenceService/ModelStreamInfer",
         .group = KEYS_INFER,
         .on_event = grpc_infer_stream_step,
         .streams = true,
         .align_at = align_at},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}

/* The steps of an inference that all protocols share, in their order. */
#include "serve/frontend/inference.h"

#include <assert.h>

#include "core/base/compiler.h"
#include "serve/frontend/classify.h"
#include "serve/frontend/labels.h"

/* ---- the model ------------------------------------------------------------------------------- */

/* Set field by field, because zeroing the call would be expensive. */
void inference_init(struct inference *self, const struct inference_protocol *protocol,
                    const struct inference_services *services, struct worker *worker) {
    self->protocol = protocol;
    self->services = services;
    self->call.request = NULL;
    self->call.worker = worker;
    self->call.run_immediately = false;
    self->call.response.release = NULL;
    self->model = self->version_text = str_make(NULL, 0);
    self->version = self->served_version = NULL;
    self->spec = NULL;
    self->labels = NULL;
    self->shm = (struct shm_request){0};
    self->trace = NULL;
    self->submitted = self->in_flight = false;
}

enum status inference_refuse_decoupled(const struct model_spec *spec, const char *carries_one,
                                       struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES];
    return error_set(err, ST_UNSUPPORTED,
                     "model %s is decoupled: it gives any number of answers, and %s",
                     tensor_name_print(spec->name, name), carries_one);
}

/* Takes the caller's reference on `version`. */
static enum status set_version(struct inference *self, struct model_version *version,
                               struct error *err) {
    self->version = self->served_version = version;
    self->spec = model_version_spec(version);
    self->labels = model_labels(version);
    struct tracer *tracer = self->services->tracer;
    self->trace = tracer ? self->protocol->begin_trace(self, tracer) : NULL;
    if (self->spec->decoupled && self->protocol->carries_one) {
        return inference_refuse_decoupled(self->spec, self->protocol->carries_one, err);
    }
    return ST_OK;
}

enum status inference_find_model(struct inference *self, struct str model, struct str version_text,
                                 struct error *err) {
    struct model_version *version;
    enum status st =
        repository_find(self->services->repository, model, version_text, &version, err);
    return st == ST_OK ? set_version(self, version, err) : st;
}

enum status inference_use_version(struct inference *self, struct model_version *version,
                                  struct error *err) {
    model_version_ref(version);
    return set_version(self, version, err);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Each response would overwrite the one before it. */
static enum status check_decoupled_outputs(const struct inference *self, struct error *err) {
    for (size_t i = 0; self->spec->decoupled && i < self->shm.n; i++) {
        if (self->shm.regions[i]) {
            return error_set(err, ST_UNSUPPORTED,
                             "the outputs of a decoupled model cannot be in shared memory");
        }
    }
    return ST_OK;
}

static enum status prepare_request(struct inference *self, struct error *err) {
    const struct inference_protocol *protocol = self->protocol;
    enum status st = protocol->decode(self, err);
    if (st == ST_OK && !self->spec) {
        st = inference_find_model(self, self->model, self->version_text, err);
    }
    if (st != ST_OK) {
        return st;
    }
    struct infer_request *request = self->call.request;
    if (protocol->forward_headers) {
        st = protocol->forward_headers(self, &request->params, err);
    }
    if (st == ST_OK && self->services->shared) {
        st = shm_request_read_inputs(self->services->shared, request, &self->shm, err);
    }
    if (st == ST_OK) {
        st = check_decoupled_outputs(self, err);
    }
    if (st == ST_OK) {
        st = infer_check(request, self->spec, err);
    }
    if (st == ST_OK) {
        st = classify_check(request, self->spec, err);
    }
    return st == ST_OK ? infer_align_copy(request, err) : st;
}

/* ---- the scheduler --------------------------------------------------------------------------- */

static void on_done(struct call *call) {
    struct inference *self = CONTAINER_OF(call, struct inference, call);
    self->in_flight = false;
    trace_add_response(self->trace, call);
    shm_request_finish_outputs(&self->shm, call->request, &call->response);
    self->protocol->done(self);
}

static void on_partial_response(struct call *call, struct infer_response *response) {
    struct inference *self = CONTAINER_OF(call, struct inference, call);
    trace_add_partial_response(self->trace, response);
    self->protocol->on_partial_response(self, response);
}

/* The request did not reach the scheduler: its error is in call.response. */
static void finish_unsubmitted(struct inference *self) {
    struct call *call = &self->call;
    call->response = (struct infer_response){.error = call->response.error};
    shm_request_finish_outputs(&self->shm, call->request, &call->response);
    self->protocol->done(self);
}

void inference_run(struct inference *self) {
    struct call *call = &self->call;
    assert(!self->submitted);
    if (prepare_request(self, &call->response.error) != ST_OK) {
        finish_unsubmitted(self);
        return;
    }
    struct model_version *version = self->version;
    self->version = NULL;
    call->done = on_done;
    call->on_partial_response = self->protocol->on_partial_response ? on_partial_response : NULL;
    self->submitted = self->in_flight = true;
    trace_add_request(self->trace, call->request);
    call_submit(call, version);
}

void inference_cancel(struct inference *self) {
    if (self->in_flight) {
        call_cancel(&self->call);
    }
}

/* ---- responses ------------------------------------------------------------------------------- */

static enum status encode_response(struct inference *self, struct infer_response *response,
                                   struct arena *arena, bool last, void *out, struct error *err) {
    if (response->error.status != ST_OK) {
        *err = response->error;
        return err->status;
    }
    enum status st =
        classify_outputs(arena, self->call.request, self->spec, self->labels, response, err);
    return st == ST_OK ? self->protocol->encode(self, response, arena, last, out, err) : st;
}

enum status inference_encode(struct inference *self, void *out, struct error *err) {
    const struct infer_request *request = self->call.request; /* NULL: it was not decoded */
    struct arena *arena = request ? request->arena : NULL;
    enum status st = encode_response(self, &self->call.response, arena, true, out, err);
    if (st == ST_OK) {
        trace_timestamp_set(self->trace, self->protocol->send_start);
    }
    return st;
}

enum status inference_encode_partial(struct inference *self, struct infer_response *response,
                                     struct arena *arena, void *out, struct error *err) {
    return encode_response(self, response, arena, false, out, err);
}

void inference_fini(struct inference *self) {
    assert(!self->in_flight);
    if (self->version) {
        model_version_unref(self->version);
        self->version = NULL;
    }
    shm_request_fini(&self->shm);
    trace_timestamp_set(self->trace, self->protocol->send_end);
    trace_end(&self->trace);
}

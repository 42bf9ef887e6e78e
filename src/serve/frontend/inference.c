/* The steps of an inference that all protocols share, in their order. */
#include "serve/frontend/inference.h"

#include <assert.h>

#include "core/base/checked.h"
#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/frontend/classify.h"
#include "serve/frontend/labels.h"

/* ---- the model ------------------------------------------------------------------------------- */

/* Set field by field, because zeroing the call would be expensive. */
void inference_init(struct inference *self, const struct inference_protocol *protocol,
                    const struct inference_services *services, struct worker *worker,
                    struct memory_account *account) {
    self->protocol = protocol;
    self->services = services;
    self->call.request = NULL;
    self->call.worker = worker;
    self->call.run_immediately = self->call.batch_apart = false;
    self->call.response.release = NULL;
    self->model = self->version_text = str_make(NULL, 0);
    self->version = self->served_version = NULL;
    self->spec = NULL;
    self->labels = NULL;
    self->shm = (struct shm_request){0};
    self->account = account;
    self->order = NULL;
    self->memory.state = MEMORY_NONE;
    self->partial_bytes = 0;
    self->trace = NULL;
    self->size_unknown = self->submitted = self->in_flight = false;
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

/* For how long a client that failed is batched apart. */
static const uint64_t BATCH_APART_NS = UINT64_C(30000000000);

/* The model refused what the client sent. */
static void note_failure(const struct inference *self) {
    const struct call *call = &self->call;
    enum status st = call->response.error.status;
    if (self->account && self->spec->max_batch_size > 1 && call->started_ns > 0 && st != ST_OK &&
        st != ST_CANCELLED) {
        self->account->batch_apart_until_ns = call->finished_ns + BATCH_APART_NS;
    }
}

static bool is_batched_apart(const struct inference *self) {
    const struct memory_account *account = self->account;
    return account && account->batch_apart_until_ns > 0 &&
           account->batch_apart_until_ns > clock_now_ns();
}

static void on_done(struct call *call) {
    struct inference *self = CONTAINER_OF(call, struct inference, call);
    self->in_flight = false;
    if (call->response.error.status != ST_OK) {
        note_failure(self);
    }
    trace_add_response(self->trace, call);
    if (self->size_unknown && call->response.error.status == ST_OK) {
        model_version_note_response_bytes(self->served_version,
                                          infer_response_bytes(&call->response));
    }
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

static void submit(struct inference *self) {
    struct call *call = &self->call;
    struct model_version *version = self->version;
    self->version = NULL;
    call->done = on_done;
    call->on_partial_response = self->protocol->on_partial_response ? on_partial_response : NULL;
    call->batch_apart = is_batched_apart(self);
    self->submitted = self->in_flight = true;
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

uint64_t infer_response_bytes(const struct infer_response *response) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < response->n_outputs; i++) {
        n_bytes += response->outputs[i].n_bytes;
    }
    return n_bytes;
}

static uint64_t input_bytes(const struct infer_request *request) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < request->n_inputs; i++) {
        n_bytes += request->inputs[i].tensor.n_bytes;
    }
    return n_bytes;
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
            uint64_t known = model_version_response_bytes(self->version);
            return known > 0 ? known : input_bytes(request);
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

/* A decoupled model's responses are counted as they come. */
static void reserve_memory(struct inference *self) {
    uint64_t n_bytes = arena_bytes(self->call.request->arena);
    n_bytes += self->spec->decoupled ? 0 : expected_response_bytes(self);
    switch (memory_reserve(self->account, self->order, &self->memory, n_bytes, on_memory)) {
    case MEMORY_GRANTED:
        submit(self);
        break;
    case MEMORY_WAITS:
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

/* The real size, with the text that the encoding made, where it is larger than expected. */
static void count_response(struct inference *self) {
    const struct infer_request *request = self->call.request;
    uint64_t n_bytes = infer_response_bytes(&self->call.response);
    assert(request); /* a response without an error */
    memory_raise(&self->memory, n_bytes + arena_bytes(request->arena) + self->partial_bytes);
}

void inference_run(struct inference *self) {
    assert(!self->submitted);
    if (prepare_request(self, &self->call.response.error) == ST_OK) {
        reserve_memory(self);
    } else {
        finish_unsubmitted(self);
    }
}

void inference_cancel(struct inference *self) {
    if (self->in_flight) {
        call_cancel(&self->call);
    } else if (memory_is_waiting(&self->memory)) {
        memory_release(&self->memory, false);
        error_set(&self->call.response.error, ST_CANCELLED,
                  "the request was cancelled before it ran");
        finish_unsubmitted(self);
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
        count_response(self);
        trace_timestamp_set(self->trace, self->protocol->send_start);
    }
    return st;
}

enum status inference_encode_partial(struct inference *self, struct infer_response *response,
                                     struct arena *arena, void *out, struct error *err) {
    return encode_response(self, response, arena, false, out, err);
}

void inference_fini(struct inference *self, bool sent) {
    assert(!self->in_flight && !memory_is_waiting(&self->memory));
    memory_release(&self->memory, sent);
    if (self->version) {
        model_version_unref(self->version);
        self->version = NULL;
    }
    shm_request_fini(&self->shm);
    trace_timestamp_set(self->trace, self->protocol->send_end);
    trace_end(&self->trace);
}

/* The steps of an inference that are the same for the clients of all protocols. */
#include "serve/frontend/client_inference.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "serve/frontend/classify.h"
#include "serve/frontend/member_labels.h"

/* ---- the request ----------------------------------------------------------------------------- */

static struct trace *begin_trace(struct inference *base) {
    struct client_inference *self = client_inference_of(base);
    struct tracer *tracer = self->services->tracer;
    return tracer ? self->protocol->begin_trace(self, tracer) : NULL;
}

/* Decodes, finds the model where it is not known yet, and adds the forwarded headers. */
static enum status prepare(struct inference *base, bool on_worker, struct error *err) {
    struct client_inference *self = client_inference_of(base);
    const struct inference_protocol *protocol = self->protocol;
    if (protocol->decode(self, err) != ST_OK ||
        (!base->spec && inference_find_model(base, self->services->repository, on_worker,
                                             self->model, self->version_text, err) != ST_OK)) {
        return err->status;
    }
    return protocol->forward_headers
               ? protocol->forward_headers(self, &base->call.request->params, err)
               : ST_OK;
}

static uint64_t prepare_ns(const struct inference *base) {
    const struct client_inference *self = CONTAINER_OF(base, struct client_inference, base);
    return self->protocol->decode_ns ? self->protocol->decode_ns(self) : 0;
}

/* Copies inputs and checks their bytes. */
static enum status check(struct inference *base, struct error *err) {
    struct client_inference *self = client_inference_of(base);
    struct infer_request *request = base->call.request;
    if (self->services->shared &&
        shm_request_read_inputs(self->services->shared, request, &self->shm, err) != ST_OK) {
        return err->status;
    }
    for (size_t i = 0; base->spec->decoupled && i < self->shm.n; i++) {
        if (self->shm.regions[i]) { /* each response would overwrite the one before it */
            return error_set(err, ST_UNSUPPORTED,
                             "the outputs of a decoupled model cannot be in shared memory");
        }
    }
    return inference_check(base, err) == ST_OK ? classify_check(request, base->spec, err)
                                               : err->status;
}

/* ---- responses ------------------------------------------------------------------------------- */

/* What a helper thread has encoded; in the response's arena. */
struct encoded {
    struct inference_job job;
    enum status st;
    struct error err;
    max_align_t out[]; /* the protocol's struct */
};

/* Estimates for a slow core, in ns for 16 bytes; only their order of magnitude matters. */
enum { COPY_16_NS = 8, WALK_16_NS = 16, SMALL_BYTES = 32768 };

/* Returns: the estimated time until the response can be sent: to write outputs to shared memory, to
 * find the top classes, to encode. */
static uint64_t response_ns(const struct inference *base, const struct infer_response *response) {
    const struct client_inference *self = CONTAINER_OF(base, struct client_inference, base);
    const struct infer_request *request = base->call.request;
    uint64_t n_bytes = response->error.status == ST_OK ? infer_response_bytes(response) : 0;
    if (n_bytes < SMALL_BYTES) {
        return 0;
    }
    uint64_t ns = self->shm.n > 0 ? n_bytes / 16 * COPY_16_NS : 0;
    for (size_t i = 0; i < request->n_wanted; i++) {
        ns += request->wanted[i].n_classes > 0 ? n_bytes / 16 * WALK_16_NS : 0;
    }
    return ns + (self->protocol->encode_ns ? self->protocol->encode_ns(self, response) : 0);
}

/* Of a response without an error. Thread: the worker's, or a helper. */
static enum status encode_response(const struct outgoing_response *outgoing, void *out,
                                   struct error *err) {
    struct client_inference *self = client_inference_of(outgoing->inference);
    struct infer_response *response = outgoing->response;
    struct arena *arena = outgoing->arena;
    const struct infer_request *request = self->base.call.request;
    struct response_labels labels;
    enum status st = response_labels_find(self->services->repository, self->base.served_version,
                                          request, arena, &labels, err);
    if (st == ST_OK) {
        st = classify_outputs(arena, request, self->base.spec, labels.outputs, response, err);
    }
    response_labels_release(&labels);
    return st == ST_OK ? self->protocol->encode(self, response, arena, outgoing->last, out, err)
                       : st;
}

static void run_encode(struct helper_job *job) {
    struct client_inference *self = client_inference_of(inference_of_job(job));
    struct outgoing_response *outgoing = self->base.current;
    struct encoded *encoded = outgoing->delivery;
    if (outgoing->last) {
        shm_request_finish_outputs(&self->shm, self->base.call.request, outgoing->response);
    }
    if (outgoing->response->error.status == ST_OK) { /* else client_inference_encode returns it */
        encoded->st = encode_response(outgoing, encoded->out, &encoded->err);
    }
}

/* The outputs of a response that is not needed are not copied. */
static void finish_shared_memory(struct client_inference *self, struct infer_response *response) {
    struct infer_response unneeded = {.error.status = ST_CANCELLED};
    shm_request_finish_outputs(&self->shm, self->base.call.request,
                               inference_is_abandoned(&self->base) ? &unneeded : response);
}

/* After the last one `self` may be freed. */
static void respond(struct outgoing_response *outgoing) {
    struct client_inference *self = client_inference_of(outgoing->inference);
    if (outgoing->last) {
        if (self->shm.n > 0) { /* not where run_encode did it */
            finish_shared_memory(self, outgoing->response);
        }
        if (self->base.state != INFERENCE_REFUSED) {
            inference_set_state(&self->base, INFERENCE_ANSWERED);
        }
    }
    self->protocol->respond(self, outgoing);
}

static void on_encoded(struct helper_job *job) {
    struct inference *base = inference_end_job(job);
    bool last = base->current->last;
    respond(base->current);
    if (!last) {
        inference_deliver_next(base);
    }
}

/* Returns: whether a helper thread encodes the response. */
static bool encode_on_helper(struct outgoing_response *outgoing) {
    struct inference *base = outgoing->inference;
    size_t n_bytes = client_inference_of(base)->protocol->encoded_bytes;
    if (inference_is_abandoned(base) ||
        !inference_wants_helper(base, "encoding a response", outgoing->ns) || n_bytes == 0) {
        return false;
    }
    struct arena *arena = outgoing->last ? base->helper_arena : outgoing->arena;
    struct encoded *encoded = arena_calloc(arena, 1, sizeof(*encoded) + n_bytes);
    if (!encoded) {
        return false;
    }
    outgoing->arena = arena;
    outgoing->delivery = encoded;
    inference_keep_version(base); /* the call may end before: `spec` is the version's */
    inference_submit_job(base, &encoded->job, outgoing->ns, run_encode, on_encoded);
    return true;
}

static bool deliver(struct inference *base, struct outgoing_response *outgoing) {
    (void)base;
    if (encode_on_helper(outgoing)) {
        return false;
    }
    respond(outgoing);
    return true;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* The code that ran out of memory knows the request's arena, and not the setting that limits it. */
static void name_memory_setting(const struct inference *self, const struct arena *arena,
                                struct error *err) {
    struct error named = *err;
    bool is_models_error =
        inference_was_submitted(self) && self->call.response.error.status != ST_OK;
    if (err->status != ST_NO_MEMORY || is_models_error || !arena) {
        return;
    }
    if (arena_is_over_budget(arena)) {
        metric_add(METRIC_DROPPED_MEMORY, 1);
        error_set(err, ST_NO_MEMORY,
                  "%s; the requests and responses in flight use up the memory of all clients "
                  "(--client-memory)",
                  named.text);
        return;
    }
    error_set(err, ST_NO_MEMORY,
              "%s; the request holds %zu bytes besides its body (--request-memory)", named.text,
              arena_bytes(arena));
}

/* The real size, with the text that the encoding made, where it is larger than expected. The
 * outputs of an ensemble are counted with its members' responses. */
static void count_response(struct outgoing_response *outgoing) {
    struct inference *self = outgoing->inference;
    const struct infer_request *request = self->call.request;
    uint64_t n_bytes = arena_bytes(outgoing->arena);
    n_bytes += self->spec->is_ensemble ? 0 : infer_response_bytes(outgoing->response);
    if (!outgoing->last) {
        outgoing->n_bytes = n_bytes;
        self->partial_bytes += n_bytes;
        memory_add(&self->memory, n_bytes);
        return;
    }
    n_bytes += outgoing->arena != request->arena ? arena_bytes(request->arena) : 0;
    memory_raise(&self->memory, n_bytes + self->partial_bytes);
}

enum status client_inference_encode(struct outgoing_response *outgoing, void *out,
                                    struct error *err) {
    struct inference *base = outgoing->inference;
    const struct inference_protocol *protocol = client_inference_of(base)->protocol;
    const struct encoded *encoded = outgoing->delivery;
    enum status st;
    if (outgoing->response->error.status != ST_OK) {
        *err = outgoing->response->error;
        st = err->status;
    } else if (inference_is_abandoned(
                   base)) { /* a job that was cancelled has encoded nothing, or a part */
        st = error_set(err, ST_CANCELLED, "the request was cancelled before its response was sent");
    } else if (!encoded) {
        st = encode_response(outgoing, out, err);
    } else if (encoded->st != ST_OK) {
        *err = encoded->err;
        st = encoded->st;
    } else {
        memcpy(out, encoded->out, protocol->encoded_bytes);
        st = ST_OK;
    }
    if (st == ST_OK) {
        count_response(outgoing);
        if (outgoing->last) {
            trace_timestamp_set(base->trace, protocol->send_start);
        }
    } else if (outgoing->last) {
        name_memory_setting(base, base->call.request ? base->call.request->arena : NULL, err);
    }
    return st;
}

/* ---- the beginning and the end --------------------------------------------------------------- */

void client_inference_init(struct client_inference *self, const struct inference_protocol *protocol,
                           const struct inference_services *services, struct worker *worker,
                           struct memory_account *account) {
    static const struct inference_ops ops = {
        .begin_trace = begin_trace,
        .prepare = prepare,
        .prepare_ns = prepare_ns,
        .check = check,
        .deliver_ns = response_ns,
        .deliver = deliver,
    };
    inference_init(&self->base, &ops, worker, services->helpers, account);
    self->base.carries_one = protocol->carries_one;
    self->protocol = protocol;
    self->services = services;
    self->model = self->version_text = str_make(NULL, 0);
    self->shm = (struct shm_request){0};
}

void client_inference_fini(struct client_inference *self, bool sent) {
    shm_request_fini(&self->shm);
    trace_timestamp_set(self->base.trace, self->protocol->send_end);
    inference_fini(&self->base, sent);
}

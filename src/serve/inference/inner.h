/* An inference that the server itself starts: a step of an ensemble, or a model that calls another
 * one. It takes the same way as that of a client (serve/inference/inference.h), without a
 * connection, a protocol or an encoding. Tensors go in and come out by reference.
 *
 *     inner_inference_new ─→ inner_inference_start ─→ respond … ─→ inner_response_release of each
 *     inner_inference_unref, at any time after inner_inference_new
 *
 * An inner inference may run inside of another inference, its parent: a client's or an inner one,
 * which is in the scheduler (inference_was_submitted) and has not ended; a backend finds it by
 * inference_of_request, until its last response. Then the inner one has the parent's worker, memory
 * account and client, at most the parent's deadline, and is cancelled with the parent and when the
 * parent ends. At most INNER_MAX_DEPTH run inside of each
 * other, so that models which call each other in a circle come to an end.
 *
 * Memory: what the responses take is reserved in the account before the model runs, as for a
 * client. Where the budget is used up it waits for MEMORY_WAIT_NS at most, and is refused with
 * ST_OVERLOADED then. One with a parent does not wait for the account's own limit
 * (max_unsent_size), which the parent takes part of. */
#ifndef SLUICE_SERVE_INFERENCE_INNER_H
#define SLUICE_SERVE_INFERENCE_INNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/inference/inference.h"

enum { INNER_MAX_DEPTH = 16 };

struct inner_inference;

/* A response or an error, until inner_response_release. */
struct inner_response {
    struct inner_inference *inference;
    /* Outputs in the order of `wanted`, or of the model. Their shapes have no dimension of -1; a
     * dimension may be 0. Where the model batches, the first one is the batch. Of a decoupled model
     * the last response may have no outputs: it marks the end. */
    struct infer_response *response;
    bool last; /* no other follows */
    /* internal */
    struct outgoing_response *outgoing;
    struct helper_job job;
    struct worker_msg msg;
    bool is_running; /* with a helper thread */
    bool is_released;
};

/* Where `respond` runs. */
enum inner_thread {
    INNER_ON_WORKER, /* options.worker: it must not take long */
    INNER_ON_HELPER, /* a helper thread, one response after the other; the next one waits. It may
                        start others, and does not wait for them: there are few helper threads */
};

/* What all inner inferences use. */
struct inner_services {
    struct repository *repository;
    struct helper_pool *helpers; /* NULL: the worker does what takes long; not with
                                    INNER_ON_HELPER */
    struct tracer *tracer;       /* NULL: no traces */
};

/* What the members point to is not copied: it lives until the last response is released. */
struct inner_options {
    const struct inner_services *services;
    /* Runs all that needs a worker; one of those of the repository. With a parent: NULL. */
    struct worker *worker;
    /* In the scheduler, and its memory stays until inner_inference_start is carried out. If it has
     * ended by then, the inference is answered with ST_CANCELLED. NULL: none. */
    struct inference *parent;
    /* Of `worker`. NULL: memory is not counted. With a parent: NULL. */
    struct memory_account *account;
    struct str model, version; /* `version`: decimal digits; empty: the highest that is ready */
    /* The version that the model and its version are, if the caller has a reference on it until
     * inner_inference_start is carried out: nothing is looked up. NULL: it is found by their
     * names, in services->repository. */
    struct model_version *found;
    struct str id; /* "": none */
    struct params params;
    /* By the names of the model's inputs, in any order. The bytes are row-major, little-endian, in
     * pieces; dimensions as of a client: with the batch where the model batches, none is -1. */
    const struct infer_input *inputs;
    size_t n_inputs;
    const struct infer_requested_output *wanted; /* none: all outputs of the model */
    size_t n_wanted;
    bool params_are_opaque;  /* as in struct infer_request */
    const char *carries_one; /* NULL: a decoupled model's responses are all given; else as the
                                member of struct inference */
    bool holds_instance;     /* as in struct inference */
    uint64_t priority;       /* a level of the model, 1 is the highest; 0: the model's default */
    uint64_t deadline_ns;    /* on the monotonic clock (clock_now_ns); 0: none but the parent's */
    /* Of what it is a part of; zeroed: none. Inside of a parent that is traced it is traced, too,
     * and this is not used. */
    struct trace_context trace;
    enum inner_thread thread;
    /* Called for each response in the model's order, possibly before inner_inference_start returns:
     * exactly once with `last`. An error is a last response with response->error set:
     * ST_UNKNOWN_MODEL, ST_UNKNOWN_VERSION, ST_NOT_READY; those of infer_check; ST_OVERLOADED,
     * ST_NO_MEMORY; ST_CANCELLED, ST_DEADLINE_EXCEEDED; those of the scheduler and of the
     * backend. */
    void (*respond)(struct inner_response *response, void *user);
    void *user;
};

/* Makes an inference that is not started. Returns: ST_NO_MEMORY; ST_UNSUPPORTED inside of
 * INNER_MAX_DEPTH others; ST_NOT_READY, on the parent's worker, inside of one that is not in the
 * scheduler. Owns: *out until
 * inner_inference_unref. Thread: any; the parent does not end meanwhile. */
enum status inner_inference_new(const struct inner_options *options, struct inner_inference **out,
                                struct error *err) SLUICE_MUST_USE;
/* Starts it, once. On another thread than the worker's this is a message to the worker. Thread:
 * any. */
void inner_inference_start(struct inner_inference *self);
/* Cancels it, if it waits or is in flight: a request that waits is removed, a backend that runs is
 * told to stop. `respond` is still called with a last response, which may be one without an error.
 * Idempotent. Thread: any. */
void inner_inference_cancel(struct inner_inference *self);
/* Drops the caller's reference. The inference goes on, and is freed when it has ended and all its
 * responses are released. Thread: any. */
void inner_inference_unref(struct inner_inference *self);
/* Returns the outputs' bytes to the backend, which may block until then: responses before the last
 * that are not released are bounded. Call it exactly once for each response, within `respond` or
 * later. Thread: any. */
void inner_response_release(struct inner_response *response);
/* Returns: what another one takes as its parent. */
struct inference *inner_inference_base(struct inner_inference *self);

#endif

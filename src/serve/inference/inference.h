/* One inference of a client, or of the server itself: find the model, prepare the request, check
 * it, reserve memory for the response, submit to the scheduler, deliver the responses in their
 * order. It knows no connection and no protocol: what is particular to a kind of inference is a
 * table of functions, one for those of clients (serve/frontend/client_inference.h) and one for
 * those that the server itself starts (serve/inference/inner.h). Both embed the struct.
 *
 *     inference_init
 *     inference_find_model, or inference_use_version; else `prepare` does
 *     inference_run ─→ prepare, check ─→ the scheduler ─→ deliver …
 *     inference_fini
 *
 * Steps that take long for the size of their data run on a helper thread
 * (core/event/helper_pool.h): other requests are served meanwhile.
 *
 * Thread: the inference's worker. */
#ifndef SLUICE_SERVE_INFERENCE_INFERENCE_H
#define SLUICE_SERVE_INFERENCE_INFERENCE_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "core/event/helper_pool.h"
#include "net/transport/memory_account.h"
#include "serve/repository/repository.h"
#include "serve/scheduler/call.h"
#include "serve/trace/trace.h"

struct inference;
TAILQ_HEAD(inference_list, inference);

/* Inferences that must run in the order in which they come, such as those of a stream: while one is
 * decoded or checked on a helper thread, or waits for memory, those after it wait, too. Must live
 * as long as one of them is not done. */
struct inference_order {
    struct reservation_order memory;
    struct inference_list preparing; /* the first is INFERENCE_PREPARING, or runs now; the others
                                        are INFERENCE_QUEUED */
};

static inline void inference_order_init(struct inference_order *order) {
    reservation_order_init(&order->memory);
    TAILQ_INIT(&order->preparing);
}

/* States of an inference. Only inference_set_state changes them;
 * docs/decisions/046-states-of-an-inference.md has the picture. */
enum inference_state {
    INFERENCE_NEW,       /* inference_run was not called */
    INFERENCE_QUEUED,    /* in its order, after one that is INFERENCE_PREPARING */
    INFERENCE_PREPARING, /* a helper thread decodes or checks the request */
    INFERENCE_WAITING,   /* for memory for its response */
    INFERENCE_REFUSED,   /* before the scheduler: `deliver` was called with an error */
    INFERENCE_RUNNING,   /* in the scheduler; errors from then on are the model's */
    INFERENCE_ENCODING,  /* the call has ended; its last response waits for those before it, or is
                            with a helper thread */
    INFERENCE_ANSWERED,  /* the model's last response or error is delivered */
};

/* A response on its way to the one that waits for it. One before the last has an arena of its own,
 * which holds this struct, too: the request's would grow with each. */
struct outgoing_response {
    struct inference *inference;
    struct infer_response *response; /* of the last, and of a refusal: call.response */
    bool last;                       /* no other follows */
    struct arena *arena; /* for its encoding; NULL: out of memory, or the request was not decoded */
    uint64_t ns;         /* `deliver_ns` of it */
    void *delivery;      /* what `deliver` has made of it; NULL at first */
    /* internal */
    uint64_t n_bytes; /* of one before the last: counted in the request's memory */
    STAILQ_ENTRY(outgoing_response) link; /* in inference->outgoing */
};

/* What a kind of inference does. */
struct inference_ops {
    /* The version is known: begins the trace. NULL: not traced. Thread: as `prepare`. */
    struct trace *(*begin_trace)(struct inference *self);
    /* Sets call.request, and finds the model (inference_find_model) if it is not known yet.
     * `on_worker`: else on a helper thread. NULL: both were done before inference_run. Thread: the
     * worker, or a helper. */
    enum status (*prepare)(struct inference *self, bool on_worker, struct error *err);
    /* Returns: the estimated time of `prepare`, in ns. NULL: it never runs on a helper thread. */
    uint64_t (*prepare_ns)(const struct inference *self);
    /* In place of inference_check. NULL: that. Thread: as `prepare`. */
    enum status (*check)(struct inference *self, struct error *err);
    /* Returns: the estimated time until the response can be delivered, in ns. NULL: it takes
     * little. */
    uint64_t (*deliver_ns)(const struct inference *self, const struct infer_response *response);
    /* Called for each response in the model's order, possibly before inference_run returns: exactly
     * once with `last`, with a response or the reason why there is none; the state is
     * INFERENCE_REFUSED then, or INFERENCE_ENCODING, which it changes to INFERENCE_ANSWERED. Others
     * come only where `carries_one` is NULL, without an arena when out of memory; they are valid
     * then until `deliver` returns. The callee calls outgoing_response_free when one before the
     * last is not needed any more, and releases call.response. Returns: whether it has finished
     * with the response; else it calls inference_deliver_next later, unless it is the last. */
    bool (*deliver)(struct inference *self, struct outgoing_response *outgoing);
};

struct inference_job {
    struct helper_job job;
    struct inference *inference;
};

struct inference {
    struct call call; /* call.request is set by `prepare` */
    const struct inference_ops *ops;
    /* What carries the response, where exactly one is carried: the end of the message that refuses
     * a decoupled model. NULL: a decoupled model's responses are all carried. */
    const char *carries_one;
    struct model_version *version;        /* a reference, until the scheduler takes it */
    struct model_version *served_version; /* the same version; valid until the last `deliver`
                                             returns, or inference_keep_version */
    const struct model_spec *spec;        /* of the version; NULL: not found yet */
    struct memory_account *account;       /* of the connection; NULL: memory is not counted */
    struct inference_order *order;        /* NULL: none. Set after inference_init */
    struct memory_reservation memory;     /* of request and response, until inference_fini */
    uint64_t partial_bytes;               /* of responses before the last, part of `memory` */
    struct trace *trace;                  /* NULL: not traced */
    bool size_unknown;                    /* the response's size does not follow from the model's
                                             specification */
    enum inference_state state;
    bool no_children;                /* cancelled: no other begins inside of it */
    bool holds_instance;             /* the parent's instance is not free before this has ended */
    unsigned depth;                  /* 0: not inside of another inference (inference_set_parent) */
    struct inference *parent;        /* NULL: none, or it has ended */
    LIST_HEAD(, inference) children; /* inside of this one, not delivered */
    LIST_ENTRY(inference) child_link;
    TAILQ_ENTRY(inference) link; /* in order->preparing */
    struct inference_job *job;   /* submitted to a helper thread; NULL: none */
    struct arena *arena;         /* the request's, of the worker; NULL: nothing runs on a helper
                                    thread. Set after inference_init */
    struct arena *helper_arena;  /* for what a helper thread allocates; NULL: none */
    struct outgoing_response last;
    struct outgoing_response *current;         /* `deliver` has not finished with it; NULL: none */
    STAILQ_HEAD(, outgoing_response) outgoing; /* after `current`, in the order of the model */
    /* No response will be needed: a helper thread that works for it stops. Cancelled before the
     * scheduler, or abandoned. Read by helper threads. */
    atomic_bool cancelled;
};

/* Returns: whether `to` may follow `from`:
 *     NEW → QUEUED → PREPARING → WAITING → RUNNING, each of the first four optional,
 *     NEW, QUEUED, PREPARING or WAITING → REFUSED,
 *     RUNNING → ENCODING → ANSWERED. */
bool inference_state_follows(enum inference_state from, enum inference_state to);
/* Changes the state. Asserts that it follows the present one. */
void inference_set_state(struct inference *self, enum inference_state to);
/* Returns: whether the request has reached the scheduler, which responses and errors came from. */
static inline bool inference_was_submitted(const struct inference *self) {
    return self->state >= INFERENCE_RUNNING;
}
/* Returns: whether no response will be needed. Thread: any. */
static inline bool inference_is_abandoned(const struct inference *self) {
    return atomic_load_explicit(&self->cancelled, memory_order_relaxed);
}

/* Returns: the arena for what `prepare` allocates. */
static inline struct arena *inference_arena(const struct inference *self) {
    return self->helper_arena ? self->helper_arena : self->arena;
}

/* Returns: whether the model is known, and decoupled; until a helper thread has prepared the
 * request, false. */
static inline bool inference_is_decoupled(const struct inference *self) {
    return self->state != INFERENCE_PREPARING && self->spec && self->spec->decoupled;
}

/* Initializes `self`; `call` may be uninitialized. `ops` must outlive it; `helpers` NULL: the
 * worker does what takes long; `account`: as the member. */
void inference_init(struct inference *self, const struct inference_ops *ops, struct worker *worker,
                    struct helper_pool *helpers, struct memory_account *account);
/* The inference runs inside of another one, on the same worker, which is INFERENCE_RUNNING: it is
 * cancelled with its parent, and when that ends. Its memory does not wait for that of the parent's
 * client, which the parent holds. Before inference_run. */
void inference_set_parent(struct inference *self, struct inference *parent);
/* Returns: the inference of a request that a backend has got; NULL: it is of none, as those of a
 * warm-up and those that pad a batch. Thread: any, until the backend's last response. */
struct inference *inference_of_request(const sluice_request *request);
/* The same of a call. */
struct inference *inference_of_call(struct call *call);
/* Finds the model and begins the trace. `version` empty or without a pointer: the default version;
 * `on_worker`: false on a helper thread. Returns: ST_UNKNOWN_MODEL, ST_UNKNOWN_VERSION,
 * ST_NOT_READY; ST_UNSUPPORTED for a decoupled model where one response is carried. */
enum status inference_find_model(struct inference *self, struct repository *repository,
                                 bool on_worker, struct str model, struct str version,
                                 struct error *err) SLUICE_MUST_USE;
/* As inference_find_model, for a version that the caller has a reference on; takes another. */
enum status inference_use_version(struct inference *self, struct model_version *version,
                                  struct error *err) SLUICE_MUST_USE;
/* Checks the request against the model and aligns its inputs. Thread: as `prepare`. */
static inline SLUICE_MUST_USE enum status inference_check(struct inference *self,
                                                          struct error *err) {
    enum status st = infer_check(self->call.request, self->spec, err);
    return st == ST_OK ? infer_align_copy(self->call.request, err) : st;
}
/* Prepares, checks and submits the request. Where there is no memory for its response, it waits,
 * and is refused with ST_OVERLOADED when there is none for MEMORY_WAIT_NS. An error is reported
 * through `deliver`, as the model's responses are. */
void inference_run(struct inference *self);
/* Cancels the inference, and those inside of it, if it waits or is in flight; `deliver` is still
 * called, with a response where there is one already. */
void inference_cancel(struct inference *self);
/* As inference_cancel, where no response can be sent any more. */
void inference_abandon(struct inference *self);
/* Returns: whether it was cancelled or abandoned before its call ended. Thread: the worker's. */
bool inference_was_cancelled(const struct inference *self);
/* Releases a response before the last, and its memory. `response` NULL: it was released. */
void outgoing_response_free(struct outgoing_response *outgoing);
/* The last response is used after `deliver` has returned: keeps the version until
 * inference_fini. */
void inference_keep_version(struct inference *self);
/* The response was sent (`sent`: the client has read it) or is not needed, and was released:
 * releases what else the request holds. Call it exactly once, when the inference is not in flight.
 */
void inference_fini(struct inference *self, bool sent);

/* Returns: bytes of the response's outputs. */
static inline uint64_t infer_response_bytes(const struct infer_response *response) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < response->n_outputs; i++) {
        n_bytes += response->outputs[i].n_bytes;
    }
    return n_bytes;
}

/* Fails with ST_UNSUPPORTED: a decoupled model gives any number of responses. `carries_one`: as the
 * member. */
enum status inference_refuse_decoupled(const struct model_spec *spec, const char *carries_one,
                                       struct error *err);

/* ---- for `deliver` --------------------------------------------------------------------------- */

/* Makes helper_arena; where it cannot, the worker's iteration is told what it does itself. Returns:
 * whether there is one. */
bool inference_get_helper(struct inference *self, const char *work, uint64_t ns);
/* Returns: whether work of that time should run on a helper thread, and can: there is helper_arena
 * for it. */
static inline bool inference_wants_helper(struct inference *self, const char *work, uint64_t ns) {
    return ns >= HELPER_MIN_NS && inference_get_helper(self, work, ns);
}
/* Runs `run` on a helper thread, then `done` on the worker, which calls inference_end_job first.
 * The job is in memory of the caller; there is one at a time. */
void inference_submit_job(struct inference *self, struct inference_job *job, uint64_t ns,
                          void (*run)(struct helper_job *job),
                          void (*done)(struct helper_job *job));
struct inference *inference_end_job(struct helper_job *job);
static inline struct inference *inference_of_job(struct helper_job *job) {
    return CONTAINER_OF(job, struct inference_job, job)->inference;
}
/* `deliver` returned false for a response before the last, and has finished with it now: delivers
 * those that have come meanwhile. */
void inference_deliver_next(struct inference *self);

#endif

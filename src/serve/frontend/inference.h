/* One inference in the front end, by the same steps for every protocol: find the model, decode,
 * forward headers, copy inputs from shared memory, check, reserve memory for the response, submit
 * to the scheduler, encode. A
 * protocol embeds the struct in its request and supplies a table of the steps that are its own.
 *
 *     inference_init
 *     inference_find_model, or inference_use_version; else inference_run finds the model that
 *         `decode` named
 *     inference_run ─→ decode, forward_headers ─→ the scheduler ─→ respond …
 *     inference_encode, of each response
 *     inference_fini
 *
 * Nothing here reads or writes a socket. Steps that take long for the size of their data run on a
 * helper thread (core/event/helper_pool.h): requests of other clients are served meanwhile.
 *
 * Thread: the request's worker. */
#ifndef SLUICE_SERVE_FRONTEND_INFERENCE_H
#define SLUICE_SERVE_FRONTEND_INFERENCE_H

#include <sys/queue.h>

#include "codec/kserve/request.h"
#include "core/event/helper_pool.h"
#include "core/event/loop_health.h"
#include "net/transport/memory_account.h"
#include "serve/frontend/shared_page.h"
#include "serve/frontend/shm_registry.h"
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
    INFERENCE_REFUSED,   /* before the scheduler: `respond` was called with an error */
    INFERENCE_RUNNING,   /* in the scheduler; errors from then on are the model's */
    INFERENCE_ENCODING,  /* the call has ended; its last response waits for those before it, or is
                            encoded by a helper thread */
    INFERENCE_ANSWERED,  /* `respond` was called with the model's last response or error */
};

/* What the inferences of all protocols use. */
struct inference_services {
    struct repository *repository;
    struct shm_registry *shared; /* regions of shared memory; NULL: requests name none */
    struct tracer *tracer;       /* NULL: no traces */
    struct json_limits limits;
    enum v2_non_finite non_finite;   /* of JSON answers whose request has no `non_finite` */
    struct helper_pool *helpers;     /* for what would hold the worker; NULL: the worker does it */
    const struct loop_health *loops; /* for health checks; may be NULL */
    struct shared_pages *pages;      /* of metrics and of many models; NULL: none is shared */
};

/* A response on its way to the client. One before the last has an arena of its own, which holds
 * this struct, too: the request's would grow with each. */
struct outgoing_response {
    struct inference *inference;
    struct infer_response *response; /* of the last, and of a refusal: call.response */
    bool last;                       /* no other follows */
    struct arena *arena; /* for its encoding; NULL: out of memory, or the request was not decoded */
    /* internal */
    uint64_t ns;             /* estimated, until it can be sent */
    uint64_t n_bytes;        /* of one before the last: counted in the request's memory */
    struct encoded *encoded; /* by a helper thread; NULL: not yet */
    STAILQ_ENTRY(outgoing_response) link; /* in inference->outgoing */
};

/* The steps of a protocol. */
struct inference_protocol {
    /* What carries the response, for a protocol that carries exactly one: the end of the message
     * that refuses a decoupled model. NULL: a decoupled model's responses are all carried. */
    const char *carries_one;
    enum trace_timestamp send_start, send_end;
    /* Begins the trace of a request whose model is known. Thread: as `decode`. */
    struct trace *(*begin_trace)(struct inference *self, struct tracer *tracer);
    /* Sets call.request from the received bytes; sets `model` and `version_text` where the message
     * has them and the model is not known yet. Allocates in inference_arena. Thread: the request's
     * worker, or a helper. */
    enum status (*decode)(struct inference *self, struct error *err);
    /* Appends the headers that match the server's pattern to the request's parameters. NULL: the
     * protocol has no headers. Memory and thread: as `decode`. */
    enum status (*forward_headers)(struct inference *self, struct params *params,
                                   struct error *err);
    /* Returns: the estimated time of `decode`. NULL: it never runs on a helper thread. */
    uint64_t (*decode_ns)(const struct inference *self);
    /* Encodes a response without an error into `out`, the protocol's own struct; memory is in
     * `arena`. `last`: no other follows. */
    enum status (*encode)(struct inference *self, struct infer_response *response,
                          struct arena *arena, bool last, void *out, struct error *err);
    /* Returns: the estimated time of `encode`. NULL: it takes little. */
    uint64_t (*encode_ns)(const struct inference *self, const struct infer_response *response);
    size_t encoded_bytes; /* size of `out`, which may be moved in memory; 0: it never runs on a
                             helper thread */
    /* Called for each response in the model's order, possibly before inference_run returns: exactly
     * once with `last`, with a response or the reason why there is none. Others come only where
     * `carries_one` is NULL, without an arena when out of memory. The callee calls
     * outgoing_response_free when one before the last was sent, and releases call.response. */
    void (*respond)(struct inference *self, struct outgoing_response *outgoing);
};

struct inference_job {
    struct helper_job job;
    struct inference *inference;
};

struct inference {
    struct call call; /* call.request is set by `decode` */
    const struct inference_protocol *protocol;
    const struct inference_services *services;
    struct str model, version_text;       /* set by `decode`, until the model is found */
    struct model_version *version;        /* a reference, until the scheduler takes it */
    struct model_version *served_version; /* the same version; valid until the last `respond`
                                             returns, or inference_keep_version */
    const struct model_spec *spec;        /* of the version; NULL: not found yet */
    const struct labels *labels;          /* one per output of the model */
    struct shm_request shm;               /* shared memory of the client */
    struct memory_account *account;       /* of the connection; NULL: memory is not counted */
    struct inference_order *order;        /* NULL: none. Set by the protocol after
                                             inference_init */
    struct memory_reservation memory;     /* of request and response, until inference_fini */
    uint64_t partial_bytes;               /* of responses before the last, part of `memory` */
    struct trace *trace;                  /* NULL: not traced */
    bool size_unknown;                    /* the response's size does not follow from the model's
                                             specification */
    enum inference_state state;
    TAILQ_ENTRY(inference) link; /* in order->preparing */
    struct inference_job *job;   /* submitted to a helper thread; NULL: none */
    struct arena *arena;         /* the request's, of the worker; set by the protocol where it has
                                    decode_ns or encode_ns */
    struct arena *helper_arena;  /* for what a helper thread allocates; NULL: none */
    struct outgoing_response last;
    struct outgoing_response *current; /* is encoded by a helper thread, or `respond` has it; NULL:
                                          none */
    STAILQ_HEAD(, outgoing_response) outgoing; /* after `current`, in the order of the model */
    /* No response will be needed: a helper thread that works for it stops, and none is encoded.
     * Cancelled before the scheduler, or abandoned. Read by helper threads. */
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

/* Returns: the arena for `decode` and `forward_headers`. */
static inline struct arena *inference_arena(const struct inference *self) {
    return self->helper_arena ? self->helper_arena : self->arena;
}

/* Returns: whether the model is known, and decoupled; until a helper thread has prepared the
 * request, false. */
static inline bool inference_is_decoupled(const struct inference *self) {
    return self->state != INFERENCE_PREPARING && self->spec && self->spec->decoupled;
}

/* Initializes `self`; `call` may be uninitialized. The protocol and the services must outlive it;
 * `account`: of the connection. */
void inference_init(struct inference *self, const struct inference_protocol *protocol,
                    const struct inference_services *services, struct worker *worker,
                    struct memory_account *account);
/* Finds the model and begins the trace. `version` empty or without a pointer: the default version.
 * Returns: ST_NOT_FOUND, ST_NOT_READY; ST_UNSUPPORTED for a decoupled model where the protocol
 * carries one response. */
enum status inference_find_model(struct inference *self, struct str model, struct str version,
                                 struct error *err) SLUICE_MUST_USE;
/* As inference_find_model, for a version that the caller has a reference on; takes another. */
enum status inference_use_version(struct inference *self, struct model_version *version,
                                  struct error *err) SLUICE_MUST_USE;
/* Decodes, checks and submits the request. Where there is no memory for its response, it waits, and
 * is refused with ST_OVERLOADED when there is none for MEMORY_WAIT_NS. An error is reported through
 * `respond`, as the model's responses are. */
void inference_run(struct inference *self);
/* Cancels the inference if it waits or is in flight; `respond` is still called, with a response
 * where there is one already. */
void inference_cancel(struct inference *self);
/* As inference_cancel, where no response can be sent any more: none is encoded. */
void inference_abandon(struct inference *self);
/* Within `respond` or, of the last response, after it: encodes the response into `out`, and counts
 * its memory. Returns: the model's error, or the reason why it cannot be encoded. */
enum status inference_encode(struct outgoing_response *outgoing, void *out,
                             struct error *err) SLUICE_MUST_USE;
/* Releases a response before the last, and its memory. `response` NULL: it was released. */
void outgoing_response_free(struct outgoing_response *outgoing);
/* The last response is encoded after `respond` has returned: keeps the version until
 * inference_fini. */
void inference_keep_version(struct inference *self);
/* The response was sent (`sent`: the client has read it) or is not needed, and was released:
 * releases what else the request holds. Call it exactly once, when the inference is not in flight.
 */
void inference_fini(struct inference *self, bool sent);

/* Returns: bytes of the response's outputs. */
uint64_t infer_response_bytes(const struct infer_response *response);

/* Fails with ST_UNSUPPORTED: a decoupled model gives any number of responses. `carries_one`: as in
 * the protocol's table. */
enum status inference_refuse_decoupled(const struct model_spec *spec, const char *carries_one,
                                       struct error *err);

#endif

/* The inference of a client, by the same steps for every protocol: find the model, decode, forward
 * headers, copy inputs from shared memory, check; then those of serve/inference/inference.h;
 * encode. A protocol embeds the struct in its request and supplies a table of the steps that are
 * its own.
 *
 *     client_inference_init
 *     client_inference_find_model, or inference_use_version; else inference_run finds the model
 *         that `decode` named
 *     inference_run ─→ decode, forward_headers ─→ the scheduler ─→ respond …
 *     client_inference_encode, of each response
 *     client_inference_fini
 *
 * Nothing here reads or writes a socket.
 *
 * Thread: the request's worker. */
#ifndef SLUICE_SERVE_FRONTEND_CLIENT_INFERENCE_H
#define SLUICE_SERVE_FRONTEND_CLIENT_INFERENCE_H

#include "codec/kserve/request.h"
#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/loop_health.h"
#include "serve/frontend/shared_page.h"
#include "serve/frontend/shm_registry.h"
#include "serve/inference/inference.h"

struct client_inference;

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

/* The header of the endpoint picker protocol, which proxies forward: an endpoint picker had chosen
 * this server for the request. Behind a proxy that asks one, requests without it went past the
 * picker. */
#define PICKED_FIELD "x-gateway-destination-endpoint"

/* Once for each inference request over HTTP, and each call over gRPC. */
static inline void picked_count(bool picked) {
    metric_add(picked ? METRIC_REQUESTS_PICKED : METRIC_REQUESTS_NOT_PICKED, 1);
}

/* Once for each inference request (over MIP: each packet), with the status of its answer; also for
 * one that is refused before it is an inference, or cancelled. */
static inline void inference_count_answer(enum status st) {
    metric_add(st == ST_OK ? METRIC_INFERENCES_TOTAL : METRIC_INFERENCE_FAILURES_TOTAL, 1);
}

/* The steps of a protocol. */
struct inference_protocol {
    /* What carries the response, for a protocol that carries exactly one: the end of the message
     * that refuses a decoupled model. NULL: a decoupled model's responses are all carried. */
    const char *carries_one;
    enum trace_timestamp send_start, send_end;
    /* Begins the trace of a request whose model is known. Thread: as `decode`. */
    struct trace *(*begin_trace)(struct client_inference *self, struct tracer *tracer);
    /* Sets call.request from the received bytes; sets `model` and `version_text` where the message
     * has them and the model is not known yet. Allocates in client_inference_arena. Thread: the
     * request's worker, or a helper. */
    enum status (*decode)(struct client_inference *self, struct error *err);
    /* Appends the headers that match the server's pattern to the request's parameters. NULL: the
     * protocol has no headers. Memory and thread: as `decode`. */
    enum status (*forward_headers)(struct client_inference *self, struct params *params,
                                   struct error *err);
    /* Returns: the estimated time of `decode`. NULL: it never runs on a helper thread. */
    uint64_t (*decode_ns)(const struct client_inference *self);
    /* Encodes a response without an error into `out`, the protocol's own struct; memory is in
     * `arena`. `last`: no other follows. */
    enum status (*encode)(struct client_inference *self, struct infer_response *response,
                          struct arena *arena, bool last, void *out, struct error *err);
    /* Returns: the estimated time of `encode`. NULL: it takes little. */
    uint64_t (*encode_ns)(const struct client_inference *self,
                          const struct infer_response *response);
    size_t encoded_bytes; /* size of `out`, which may be moved in memory; 0: it never runs on a
                             helper thread */
    /* Called for each response in the model's order, possibly before inference_run returns: exactly
     * once with `last`, with a response or the reason why there is none. Others come only where
     * `carries_one` is NULL, without an arena when out of memory. The callee calls
     * outgoing_response_free when one before the last was sent, and releases call.response. */
    void (*respond)(struct client_inference *self, struct outgoing_response *outgoing);
};

struct client_inference {
    struct inference base; /* base.arena is set by the protocol where it has decode_ns or
                              encode_ns; base.order, where there is one */
    const struct inference_protocol *protocol;
    const struct inference_services *services;
    struct str model, version_text; /* set by `decode`, until the model is found */
    struct shm_request shm;         /* shared memory of the client */
};

static inline struct client_inference *client_inference_of(struct inference *inference) {
    return CONTAINER_OF(inference, struct client_inference, base);
}

/* Initializes `self`; `base.call` may be uninitialized. The protocol and the services must outlive
 * it; `account`: of the connection. */
void client_inference_init(struct client_inference *self, const struct inference_protocol *protocol,
                           const struct inference_services *services, struct worker *worker,
                           struct memory_account *account);
/* Before the request is decoded: inference_find_model. */
static inline enum status client_inference_find_model(struct client_inference *self,
                                                      struct str model, struct str version,
                                                      struct error *err) {
    return inference_find_model(&self->base, self->services->repository, true, model, version, err);
}
/* Within `respond` or, of the last response, after it: encodes the response into `out`, and counts
 * its memory. Returns: the model's error, or the reason why it cannot be encoded. */
enum status client_inference_encode(struct outgoing_response *outgoing, void *out,
                                    struct error *err) SLUICE_MUST_USE;
/* Releases the shared memory and ends the trace, then as inference_fini. */
void client_inference_fini(struct client_inference *self, bool sent);

#endif

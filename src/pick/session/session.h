/* One stream of ext-proc: one HTTP request that a proxy asks about, from its headers to the end of
 * its answer. Messages of the proxy go in, answers come out through `out`. Sans I/O, without a
 * clock: who runs it has the socket and the time (pick/ext_proc/service.c, and the tests).
 *
 * When the pick leaves:
 *     the model is not needed, or known at the headers    with the answer to the headers
 *     FULL_DUPLEX: the model is in the body               with the held answer to the headers, as
 *                                                         soon as the scan has found it
 *     BUFFERED, BUFFERED_PARTIAL: it is in the body       with the answer to the body
 *     NONE, STREAMED, GRPC: it is in the body             at the headers, without the model; that
 *                                                         answer asks for the body (mode_override
 *                                                         BUFFERED), and if it comes the model is
 *                                                         checked and rewritten then
 * A model is needed only where the pool's configuration makes a difference between models.
 *
 * Where the pool is full a request may wait (pick/pool/flow/wait.h): what it says then is said
 * later. What the proxy sends of the request meanwhile is held, within max_body_size, behind which
 * no more of it is wanted. An answer of the proxy's own, and any end of the stream, end the wait.
 *
 * In flight: a ticket is taken with the pick and given back when the answer has ended, or the
 * stream, whichever is first; exactly once.
 *
 * Illegal orders of messages end the stream with a gRPC status and touch nothing else. Messages of
 * a proxy newer than this list are skipped. With observability_mode nothing is ever answered.
 *
 * Thread: one at a time, that of the reader. Clauses: ext-proc, ProcessingRequest and
 * ProcessingResponse; the endpoint picker protocol, all of it. */
#ifndef SLUICE_PICK_SESSION_SESSION_H
#define SLUICE_PICK_SESSION_SESSION_H

#include "codec/prompt/model_location.h"
#include "core/base/buf.h"
#include "core/tensor/tensor.h"
#include "pick/pool/flow/wait.h"
#include "pick/pool/set.h"

/* Each is a setting (program/model_server/settings.def). */
struct pick_limits {
    uint64_t max_body_size;     /* of one body that is held or looked through: 413 */
    uint64_t answer_timeout_ns; /* until what the proxy waits for has left: 408. For who has the
                                   time: the session does not look */
};

/* What all sessions of a worker share. Which pool a request is for is found out at its headers:
 * that of `pools`, or, where this is NULL, `reader`'s. */
struct pick_context {
    struct pool_set_reader *pools;
    struct pool_wakeup *wakeup;             /* of requests that wait for room; NULL: none does */
    struct model_location_cache *last_path; /* may be NULL */
    struct pool *pool;
    struct pool_reader *reader;
    struct pick_limits limits;
};

/* A message as it came; its bytes stay until `release` has been called, which may be NULL. */
struct pick_message {
    struct str data;
    void (*release)(void *cookie);
    void *cookie;
};

/* What became of a request. The texts and `why` are read during the call only. */
struct pick_outcome {
    struct str request_line;         /* "POST /v1/completions" */
    struct str id;                   /* the proxy's number for it; ptr NULL: it sent none */
    struct str model;                /* ptr NULL: none is named, or it makes no difference */
    struct str pool;                 /* len 0: it has no name, or none takes it */
    struct str target;               /* what it is sent on as; ptr NULL: the same */
    const struct pool_pick *pick;    /* NULL: there is none */
    const struct pool_trace *trace;  /* why that one; NULL: the log does not want to know */
    bool known;                      /* the configuration has the model's name */
    bool at_body;                    /* with `pick`: the body had to be waited for */
    const struct endpoint *endpoint; /* NULL: there is none */
    const struct error *why; /* it was refused, or the stream ends; NULL: it was picked for */
};

/* What a session says. None of these may call back into the session. */
struct pick_callbacks {
    /* A message of these pieces, behind those before. The array is read during the call only; the
     * bytes stay until `release` (may be NULL: until the session's end) is called, exactly once. */
    void (*send)(void *user, const struct piece *pieces, size_t n_pieces,
                 void (*release)(void *cookie), void *cookie);
    /* The stream ends with this status, NULL: OK. At most once; nothing follows. */
    void (*finish)(void *user, const struct error *err);
    /* It went on without a message of the proxy's: more of them may be wanted now, and the clock be
     * another. May be NULL. */
    void (*resumed)(void *user);
    /* For the log; may be NULL. */
    void (*outcome)(void *user, const struct pick_outcome *outcome);
    void *user;
};

struct pick_session;

/* Its memory is of `arena`, which must outlive pick_session_free and all that was sent. Returns:
 * NULL when out of memory. */
struct pick_session *pick_session_new(struct arena *arena, const struct pick_context *context,
                                      const struct pick_callbacks *out)
    __attribute__((warn_unused_result));
/* The stream has ended, however it did: gives the ticket back, releases what is held. */
void pick_session_free(struct pick_session *session);

/* The proxy's next message. Owns: takes it; it is released when no byte of it is wanted any
 * more. */
void pick_session_on_message(struct pick_session *session, const struct pick_message *message);
/* The proxy sends no more. */
void pick_session_half_close(struct pick_session *session);
/* The proxy's next message can't be taken: an answer to the client, where one can still be given,
 * and the stream's end. */
void pick_session_on_message_rejected(struct pick_session *session, const struct error *why);
/* The request waits for room at an endpoint: until then at most (clock_now_ns). 0: it does not. */
uint64_t pick_session_queue_deadline_ns(const struct pick_session *session);
/* It holds as much as it may: the proxy's messages can wait. */
bool pick_session_is_buffer_full(const struct pick_session *session);
/* What the bell has: the request picks again, and goes on or waits on. */
void pick_session_resume(struct pool_waiter *waiter);
/* Nobody wants the answer any more; the session's end may take a while. */
void pick_session_cancel_wait(struct pick_session *session);
/* Time has passed for those that wait in the pool of this one. */
void pick_session_tick(const struct pick_session *session, uint64_t gap_ns);
/* What the proxy waits for has not left in time: it gets an answer now. */
void pick_session_on_timeout(struct pick_session *session);
/* The proxy may be waiting for something that needs more of its messages: the clock should run. */
bool pick_session_is_response_pending(const struct pick_session *session);

/* What it is doing, for people: "POST /v2/models/digits/infer → 10.0.0.1:8000, in the answer". */
void pick_session_describe(const struct pick_session *session, struct buf *out);

#endif

/* One ext-proc stream, which is one HTTP request, from its headers to the end of its response.
 * Messages of the proxy go in, responses come out through struct pick_callbacks. Sans I/O: the
 * caller has the socket and the timers (pick/ext_proc/service.c, pick/envoy/stream.c, and the
 * tests).
 *
 * The caller is either on the other side of a connection (pick_session_on_message, `send`), or in
 * the proxy itself (pick_session_on_part, `respond`): then nothing is encoded or decoded. Where the
 * proxy keeps the body (pick_context.proxy_keeps_body) the session only reads it.
 *
 * Which response carries the pick:
 * - The model is not needed, or known from the headers: the response to the headers.
 * - FULL_DUPLEX, and the body names the model: the response to the headers, which is held until the
 *   model is found.
 * - BUFFERED, BUFFERED_PARTIAL, and the body names it: the response to the body.
 * - NONE, STREAMED, GRPC, and the body names it: the response to the headers, without the model. It
 *   asks for the body (mode_override BUFFERED), and a body that is received is checked and
 *   rewritten.
 *
 * The model is needed only where the pool's configuration treats models differently.
 *
 * Queueing: where every endpoint is full the request may wait (pick/pool/flow/wait.h), and its
 * response is sent after admission. Back pressure: messages received meanwhile are buffered; from
 * max_body_size on pick_session_is_buffer_full tells the caller to stop reading. A local reply of
 * the proxy, and any end of the stream, end the wait.
 *
 * Stages: a pick is a list of stages (stages.h), each with an endpoint and a ticket. A
 * configuration without a profile handler makes one, the destination.
 *
 * In-flight count: the ticket of a stage is taken with its pick and released exactly once, at the
 * end of the stage or of the stream, whichever is first.
 *
 * Messages in an illegal order end the stream with a gRPC status. Messages of unknown kinds are
 * skipped. With observability_mode nothing is sent.
 *
 * Thread: the reader's. Clauses: ext-proc, ProcessingRequest and ProcessingResponse; the endpoint
 * picker protocol, all of it. */
#ifndef SLUICE_PICK_SESSION_SESSION_H
#define SLUICE_PICK_SESSION_SESSION_H

#include "codec/ext_proc/response.h"
#include "codec/prompt/model_location.h"
#include "core/base/buf.h"
#include "core/base/piece.h"
#include "core/event/loop_iteration.h"
#include "pick/pool/flow/wait.h"
#include "pick/pool/set.h"

/* Each is a setting (program/picker/settings.def). */
struct pick_limits {
    /* --max-body-size of one body that is buffered or scanned, 413:
     * session_request.c:check_size. */
    uint64_t max_body_size;
    /* --answer-timeout for a response that the proxy waits for: 408. The caller has the timer:
     * pick/ext_proc/service.c:update_timer. */
    uint64_t answer_timeout_ns;
};

/* Until when the endpoint of a stage is occupied by the request. */
enum pick_stage_end {
    PICK_STAGE_LASTS_FOR_RESPONSE, /* to the end of the response */
    PICK_STAGE_LASTS_TO_RESPONSE,  /* to its first part: the endpoint prepares what it is made of */
};

/* A choice of an endpoint that each request needs. */
struct pick_stage_plan {
    enum stage_role role; /* with a profile handler */
    struct str header;    /* of the request: names the endpoint to the destination. Not used for the
                          first stage, the destination */
    const struct subset *candidates; /* NULL: all endpoints that the request may be sent to */
    enum pick_stage_end end;
};
enum { PICK_MAX_STAGES = 4 };

/* Shared by all sessions of a worker. The pool of a request is found at its headers: one of
 * `pools`, or `reader`'s where `pools` is NULL. */
struct pick_context {
    struct pool_set_reader *pools;
    struct pool_wakeup *wakeup; /* of requests that wait for capacity; NULL: requests never wait */
    struct pool_waited *waited; /* with `wakeup`: the pools that requests wait for; may be NULL */
    const struct pick_stage_plan *stages; /* of tests; at most PICK_MAX_STAGES */
    size_t n_stages;                      /* 0: as the pool's profile handler says; without one a
                                             single stage, the destination */
    struct pool *pool;
    struct pool_reader *reader;
    struct pick_limits limits;
    bool emits_scores; /* --emit-endpoint-scores: response.c:metadata_entries */
    /* The caller keeps the bodies, and sends them on itself; it changes that of the request by the
     * `edits` of the response. Parts of a body are valid during the call only. The request's body
     * has the mode FULL_DUPLEX; while the request is queued the caller keeps further parts, and
     * passes them after on_resumed. */
    bool proxy_keeps_body;
};

/* A received message; its bytes stay valid until `release` is called, which may be NULL. */
struct pick_message {
    struct str data;
    void (*release)(void *user);
    void *user;
};

/* `n_bytes` of the body from offset `at` are replaced by `with`. */
struct pick_edit {
    uint64_t at, n_bytes;
    struct str with;
};
/* Sorted by offset. */
struct pick_edits {
    struct pick_edit items[2];
    size_t n;
    int64_t growth; /* change of the body's length, in bytes */
};

/* What a request is counted under. The texts are valid during the call only. */
struct pick_counted {
    struct str pool;        /* len 0: the pool has no name, or no pool matches */
    struct str model;       /* ptr NULL: none is named, or models make no difference */
    struct str target;      /* of the configuration; ptr NULL: unchanged */
    struct str fairness_id; /* ptr NULL: none */
    int64_t priority;
    bool known;    /* the configuration has the model's name */
    bool is_queue; /* the pool has flow control */
};

/* A change of a request's wait in the queue. */
struct pick_queue_event {
    enum { PICK_QUEUE_BEGUN, PICK_QUEUE_GROWN, PICK_QUEUE_ENDED } what;
    struct pick_counted counted; /* PICK_QUEUE_BEGUN */
    uint64_t n_bytes;            /* PICK_QUEUE_BEGUN: of the request; PICK_QUEUE_GROWN: more */
    enum flow_outcome outcome;   /* PICK_QUEUE_ENDED */
    uint64_t waited_ns;          /* PICK_QUEUE_ENDED */
};

/* The outcome of a pick. The texts and `why` are valid during the call only. */
struct pick_outcome {
    struct str request_line;         /* "POST /v1/completions" */
    struct str id;                   /* the request id of the proxy; ptr NULL: none */
    struct str target;               /* the model that the endpoint is asked for; ptr NULL:
                                        unchanged */
    const struct pool_pick *pick;    /* NULL: not picked */
    const struct pool_trace *trace;  /* why this endpoint; NULL: not logged */
    bool at_body;                    /* with `pick`: it was made at the body */
    const struct endpoint *endpoint; /* NULL: none */
    struct str stages; /* with several, and debug logs: "prefill=10.0.0.2:8000 encode=left-out" */
    enum pick_decision decision;
    const struct error *why; /* the refusal, or the error that ends the stream; NULL: picked */
    struct pick_counted counted;
    enum prompt_format format; /* of the request's body, where the pool's parsers say */
    bool is_streamed;          /* the body asks for a stream */
};

/* What becomes of a request's trace context. */
struct pick_trace_choice {
    struct str traceparent; /* sent on instead of the client's; valid as long as the stream. ptr
                               NULL: the client's is passed on, if there is one */
    bool is_recorded;       /* `on_stage` is called */
};

/* A stage was picked for. The texts are valid during the call only. */
struct pick_stage_event {
    enum stage_role role;
    struct str model; /* ptr NULL: none is named */
    const struct endpoint *endpoint;
    const struct pool_trace *trace; /* `n` 0: no profile chose */
    uint64_t begun_ns, ended_ns;    /* of the last try, if it waited */
};

/* The output of a session. None of these may call back into the session. */
struct pick_callbacks {
    /* Sends a message of these pieces after those before. The array is valid during the call only;
     * the bytes stay valid until `release` is called, exactly once (NULL: until the session is
     * freed). */
    void (*send)(void *user, const struct piece *pieces, size_t n_pieces,
                 void (*release)(void *release_user), void *release_user);
    /* In place of `send`, where `respond` is not NULL: the response as it is, valid during the call
     * only. `edits`: of the body so far, where the caller keeps it; NULL: unchanged. */
    void (*respond)(void *user, const struct ext_proc_response *response,
                    const struct pick_edits *edits);
    void (*respond_immediate)(void *user, const struct ext_proc_immediate *response);
    /* Ends the stream with this status; NULL: OK. At most once, and last. */
    void (*finish)(void *user, const struct error *err);
    /* The session continued without a message of the proxy: read interest and the timer may have
     * changed. May be NULL. */
    void (*on_resumed)(void *user);
    /* For the log and statistics; may be NULL. */
    void (*on_outcome)(void *user, const struct pick_outcome *outcome);
    /* Likewise: of requests that are queued. */
    void (*on_queue)(void *user, const struct pick_queue_event *event);
    /* Likewise: a message of the response of a picked request. */
    void (*on_response)(void *user, const struct ext_proc_request *message);
    /* For traces; NULL: none are recorded, and trace contexts are passed on unchanged. The headers
     * of the request were received. */
    struct pick_trace_choice (*on_request)(void *user, const struct ext_proc_headers *fields);
    void (*on_stage)(void *user, const struct pick_stage_event *event);
    void *user;
};

struct pick_session;

/* Allocates in `arena`, which must outlive pick_session_free and all messages sent. Returns: NULL
 * when out of memory. */
struct pick_session *pick_session_new(struct arena *arena, const struct pick_context *context,
                                      const struct pick_callbacks *out) SLUICE_MUST_USE;
/* The stream has ended: releases the ticket and all buffers. */
void pick_session_free(struct pick_session *session);

/* The next message of the proxy. Owns: takes it, and releases it when its bytes are no longer
 * used. */
void pick_session_on_message(struct pick_session *session, const struct pick_message *message);
/* The same, decoded: `message` has the bytes that `part` has views of, but for those of a body that
 * the caller keeps. */
void pick_session_on_part(struct pick_session *session, const struct ext_proc_request *part,
                          const struct pick_message *message);
/* Of a large body message only a first slice was scanned, or of the messages that were buffered
 * while the request was queued only the first were processed: the caller passes no further message,
 * and lets other events have their turn, until pick_session_go_on has done the rest, a slice with
 * each call. */
bool pick_session_has_more(const struct pick_session *session);
void pick_session_go_on(struct pick_session *session);
/* The proxy closed its side of the stream. */
void pick_session_half_close(struct pick_session *session);
/* The next message of the proxy was rejected (too large, no memory): sends the client a response,
 * where that is still possible, and ends the stream. */
void pick_session_on_message_rejected(struct pick_session *session, const struct error *why);
/* Nothing more is sent, and messages are ignored: `finish` was called. */
bool pick_session_has_ended(const struct pick_session *session);
/* When the caller is to call pick_session_on_timeout (clock_now_ns): the queue deadline of a queued
 * request, or the time of a response that the proxy waits for; 0: it is neither. */
uint64_t pick_session_deadline_ns(const struct pick_session *session);
/* The request waits in the queue; `on_resumed` is called when that may have changed. */
bool pick_session_is_queued(const struct pick_session *session);
/* The session may go on without a message of the proxy: by pick_session_resume_some or
 * pick_session_on_timeout. */
bool pick_session_may_resume(const struct pick_session *session);
/* The buffer is full: the caller stops reading messages. */
bool pick_session_is_buffer_full(const struct pick_session *session);
/* Called for a waiter of struct pool_wakeup: the request picks again, and continues or waits on. */
void pick_session_resume(struct pool_waiter *waiter);
/* Resumes the waiters of `wakeup`, in the order in which they were notified: at least one, and as
 * many as fit into `time`, LOOP_MESSAGES_NS. Returns: whether more wait for that. */
bool pick_session_resume_some(struct pool_wakeup *wakeup, struct loop_share *time);
/* The call was cancelled, and the session is freed later, as sent messages may be in use: ends the
 * stream with `why`, unless it has ended, and releases what the request holds. */
void pick_session_cancel(struct pick_session *session, const struct error *why);
/* Of the request's pool; the same from its headers to the end of the session, which has a
 * reference. */
struct pool_reader *pick_session_reader(const struct pick_session *session);
/* The tokens that a response has shown so far. */
struct pick_usage {
    bool is_known; /* its body is read */
    bool has_cached;
    uint64_t n_prompt, n_output; /* 0: unknown */
    uint64_t n_cached;           /* of the prompt, with has_cached */
};
/* To be called by `on_response`. */
void pick_session_note_usage(struct pick_session *session, const struct pick_usage *usage);
/* The deadline has passed: sends a response now. */
void pick_session_on_timeout(struct pick_session *session);
/* The proxy may be waiting for a response that needs more of its messages: answer_timeout_ns
 * applies. */
bool pick_session_is_response_pending(const struct pick_session *session);
/* Parts of the request's body are read, and not only counted. */
bool pick_session_scans_body(const struct pick_session *session);

/* Returns: memory that the stream takes besides what --body-memory counts: its arena, copies of
 * small pieces, and what a buffered message takes whatever its size. Unsent responses are not
 * included. */
uint64_t pick_session_held_bytes(const struct pick_session *session);

/* Bytes of the request's body: content-length, or more where so many were received. */
uint64_t pick_session_body_bytes(const struct pick_session *session);

/* For debug pages: "POST /v2/models/digits/infer → 10.0.0.1:8000, in the response". */
void pick_session_describe(const struct pick_session *session, struct buf *out);

#endif

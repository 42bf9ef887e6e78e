/* Internal to pick/session: struct pick_session and the functions that session.c,
 * session_request.c, stages.c, response.c and queue.c share. Other modules use session.h. */
#ifndef SLUICE_PICK_SESSION_STATE_H
#define SLUICE_PICK_SESSION_STATE_H

#include "codec/prompt/model_scan_grpc.h"
#include "pick/session/body_buffer.h"
#include "pick/session/metrics.h"
#include "pick/session/request.h"
#include "pick/session/session.h"
#include "pick/session/stages.h"

/* States of a pick. Only pick_session_set_state changes them;
 * docs/decisions/049-states-of-a-pick.md has the picture. */
enum pick_state {
    PICK_HEADERS_EXPECTED, /* no request headers received */
    PICK_OBSERVED,         /* observability_mode: nothing is sent */
    PICK_HEADERS_HELD,     /* the headers are not answered until the body names the model */
    PICK_BODY_PENDING,     /* headers answered without a pick; the pick is in the response to the
                              body */
    PICK_QUEUED,           /* the model is known, and a stage has no endpoint with capacity */
    PICK_UNCHECKED,        /* picked at the headers; the body, which has not been received, is to be
                              inspected */
    PICK_CHECKING,    /* likewise, and the body arrives in pieces, some of which were inspected */
    PICK_PICKED,      /* the pick was sent, and the model is checked or need not be */
    PICK_LOCAL_REPLY, /* the proxy replied to the client itself before the pick */
    PICK_ENDED,       /* refused, or the stream has ended: nothing more is sent */
};

/* Of the request and of the response: how much of it the proxy has shown. It only increases. */
enum pick_half {
    PICK_HALF_EXPECTED,
    PICK_HALF_STARTED, /* a part was received */
    PICK_HALF_ENDED,
};

/* A message received while the request is queued; a list in the order of arrival. */
struct pick_buffered_message {
    STAILQ_ENTRY(pick_buffered_message) link;
    struct pick_message_ref *message_ref;
};

struct pick_queue_entry {
    struct pool_waiter waiter;
    struct pick_session *session;
    enum pick_state reply_state; /* before PICK_QUEUED: which response carries the pick */
    STAILQ_HEAD(, pick_buffered_message) buffered;
    uint64_t n_bytes; /* memory of the buffered messages, overhead included */
    size_t n_buffered;
    struct burst_member burst;
    uint64_t hold_until_ns; /* with is_held: the end of the window; 0: it has passed */
    bool is_held; /* it waits for others with its prompt (pick/pool/prefix/burst.h), and not
                               for capacity */
    bool was_held;
    bool is_queue;     /* the pool has, or had, flow control */
    uint64_t begun_ns; /* of the wait; 0: it was reported as ended */
    bool was_displaced;
};

/* The search for the model in a body of JSON or of gRPC. */
struct pick_scan {
    bool is_grpc;
    bool is_optional; /* a body of JSON without a model is right */
    union {
        struct model_scan json;
        struct model_scan_grpc grpc;
    } of;
    union {
        struct model_scan json;
        struct model_scan_grpc grpc;
    } rest;           /* of what follows the name */
    bool is_repeated; /* it has another name */
};

/* The scan of the request's body message that was received last, in slices. */
struct pick_body_scan {
    struct pick_message_ref *message_ref; /* while slices are left; NULL: none are */
    size_t at;                            /* bytes of it that were scanned */
    bool for_model, for_prompt;
    bool is_first;  /* of a body that is inspected after the pick: no earlier piece was sent on */
    bool timed_out; /* meanwhile: the time of a response that the proxy waits for */
};

/* The fields that each message and the end of the stream read come first: with many streams, the
 * rest of the struct is in no near cache by the next event. */
struct pick_session {
    enum pick_state state;
    enum pick_half request_half, response_half;
    /* What is found once and does not change. */
    bool is_not_grpc;          /* by the request's headers; false where none were received */
    bool configured;           /* a message had a protocol_config */
    bool needs_model;          /* the body must name the model, or the name in it is replaced */
    bool response_has_headers; /* the proxy shows them */
    enum pick_model_source model_source;
    enum prompt_format body_format; /* by the pool's parsers, where they are listed */
    struct ext_proc_config config;  /* how bodies are sent; without protocol_config STREAMED */
    struct pick_stages stages;
    uint64_t client; /* hash of the client's address, where pool_wants_clients; 0: unknown */
    uint64_t n_body_bytes, n_body_received; /* content-length, or 0; bytes of it so far */
    struct pick_context context; /* `pool` and `reader` are the request's; holds a reference */
    struct pick_body_buffer body_buffer;
    struct pick_send_queue send_queue;

    /* The request's headers, until the pick or the refusal was sent. */
    struct pick_message_ref *headers;
    struct pick_request *request; /* NULL: not read yet, or released */

    /* The message being processed, and its reference, if one was taken. */
    const struct pick_message *message;
    struct pick_message_ref *message_ref;

    struct arena *arena;
    struct model_location model_path;
    struct str requested;       /* the model to match; ptr NULL: not known */
    struct str body_model;      /* the model named by the body; ptr NULL: not known */
    struct pick_scan *scan;     /* NULL: the body is not searched for the model */
    struct pick_prompt *prompt; /* NULL: no plugin needs the prompt, or the proxy sends no body */
    struct str target;          /* picked at the headers: the name for the body; ptr NULL: none */
    struct pick_queue_entry *queue_entry; /* NULL: the request was never prepared to wait */
    struct pick_usage usage;              /* of the response */
    bool has_reported;                    /* it was reported to the proxy */
    uint64_t answer_until_ns; /* in PICK_HEADERS_HELD: when the proxy has waited long enough */
    struct pick_body_scan body_scan;
    struct str request_line; /* for pick_session_describe */
    struct pick_trace_choice trace;
};

/* The request's headers; empty before they are received and after they are released. */
static inline const struct pick_request *pick_session_request(const struct pick_session *session) {
    static const struct pick_request nothing = {.has_hint = false};
    return session->request ? session->request : &nothing;
}

/* The proxy sends body pieces without waiting, and forwards only what is sent back. */
static inline bool pick_mode_is_duplex(enum ext_proc_body_mode mode) {
    return mode == EXT_PROC_BODY_FULL_DUPLEX;
}
static inline bool pick_mode_is_buffered(enum ext_proc_body_mode mode) {
    return mode == EXT_PROC_BODY_BUFFERED || mode == EXT_PROC_BODY_BUFFERED_PARTIAL;
}

/* ---- session.c ------------------------------------------------------------------------------- */

/* Returns: whether `to` may follow `from`. */
bool pick_state_follows(enum pick_state from, enum pick_state to);
/* Changes the state. Asserts that it follows the present one. */
void pick_session_set_state(struct pick_session *session, enum pick_state to);
/* Changes `*half`. Asserts that it increases. */
void pick_half_advance(enum pick_half *half, enum pick_half to);
/* The pick was sent, and the stream has not ended. */
static inline bool pick_session_is_picked(const struct pick_session *session) {
    return session->state == PICK_UNCHECKED || session->state == PICK_CHECKING ||
           session->state == PICK_PICKED;
}
/* The state that decides which response carries the pick; for a queued request, the one before. */
static inline enum pick_state pick_session_reply_state(const struct pick_session *session) {
    return session->state == PICK_QUEUED ? session->queue_entry->reply_state : session->state;
}
/* Processes one message of the proxy. */
void pick_session_step(struct pick_session *session, struct str data);
/* The configuration of the request's pool, as of the newest snapshot. */
const struct pool_spec *pick_session_spec(struct pick_session *session);
/* Takes a reference to the message being processed. Returns: NULL when out of memory; the stream
 * has then ended. */
struct pick_message_ref *pick_session_ref_message(struct pick_session *session);
/* Switches to the pool that the headers match. Returns: ST_NO_POOL (the session then has a pool
 * without endpoints); ST_NO_MEMORY. */
enum status pick_session_select_pool(struct pick_session *session,
                                     const struct ext_proc_request *message,
                                     struct error *err) SLUICE_MUST_USE;

/* Each ends the request: refuse with a response to the client, the others with the stream. */
void pick_session_refuse(struct pick_session *session, const struct error *why);
void pick_session_abort(struct pick_session *session, const struct error *why);
void pick_session_protocol_error(struct pick_session *session, const char *what);
/* Drops the reference to the headers and all views of them. */
void pick_session_release_headers(struct pick_session *session);
/* What the request is counted under; `pick` NULL: it was not picked for. */
struct pick_counted pick_session_counted(struct pick_session *session, struct str model,
                                         const struct pool_pick *pick);
/* Passes the outcome to the `on_outcome` callback, with the request and its endpoint filled in. */
void pick_session_report(struct pick_session *session, struct str model,
                         struct pick_outcome *outcome);
/* Sends the response "nothing changed" to a message of `kind`. */
void pick_session_send_continue(struct pick_session *session, enum ext_proc_kind kind);

/* ---- reporter.c ------------------------------------------------------------------------------ */

/* Before the last response to a message of the response: it gets what is computed from the
 * usage. */
void pick_session_report_usage(struct pick_session *session);

/* ---- session_request.c ----------------------------------------------------------------------- */

/* Whether the proxy expects this piece of a body, of the request or the response, to be sent back;
 * otherwise it expects to be told whether the piece changed. */
bool pick_session_needs_echo(const struct pick_session *session, enum ext_proc_body_mode mode,
                             const struct ext_proc_request *message);
/* Sends the piece back; `edits` may be NULL. Returns: false when the stream has ended instead. */
bool pick_session_echo_body(struct pick_session *session, const struct ext_proc_request *message,
                            enum ext_proc_body_mode mode, const struct pick_edits *edits);

/* Each picks for a request of which everything needed is known, and sends the response. */
void pick_session_pick_at_headers(struct pick_session *session);
void pick_session_pick_at_body(struct pick_session *session,
                               const struct ext_proc_request *message);
/* State PICK_HEADERS_HELD: picks, answers the headers and sends the buffered body. */
void pick_session_pick_and_flush(struct pick_session *session);
/* Whether the model is known or not needed. */
bool pick_session_can_pick(const struct pick_session *session);

void pick_session_on_headers(struct pick_session *session, const struct ext_proc_request *message);
void pick_session_on_body(struct pick_session *session, const struct ext_proc_request *message);
void pick_session_on_trailers(struct pick_session *session);
/* Scans a slice of the body message; the last one is followed by what the message leads to. */
void pick_session_scan_body(struct pick_session *session, const struct ext_proc_request *message);

/* `prefixed`: as model_scan_grpc_init. */
void pick_scan_init(struct pick_scan *scan, struct arena *arena, bool is_grpc, bool prefixed);
/* The next bytes of the body. `is_compressed`: the flag of ext-proc for a gRPC message. Returns:
 * whether the search is over: the model was found, or the body names none. */
bool pick_scan_feed(struct pick_scan *scan, struct str bytes, bool is_compressed);
/* The model that the scan found. */
struct str pick_scan_name(const struct pick_scan *scan);

/* The stage's prompt as far as it was read. Returns: NULL when there is none. */
struct pool_prompt *pick_session_get_prompt(const struct pick_session *session,
                                            const struct pick_stage *stage);
/* Memory that the prompt occupies. */
uint64_t pick_session_prompt_bytes(const struct pick_session *session);
/* Whether the prompt has pictures, sound or video, as far as it was read. */
bool pick_session_has_media(const struct pick_session *session);
/* Whether the body asks for a stream, as far as it was read. */
bool pick_session_asks_for_stream(const struct pick_session *session);
/* Estimate of the tokens of the prompt, and what the request asks for; 0: unknown. */
uint32_t pick_session_prompt_tokens(const struct pick_session *session);
uint32_t pick_session_max_output_tokens(const struct pick_session *session);

/* ---- stages.c -------------------------------------------------------------------------------- */

/* Makes the stages that the context says. Returns: false when out of memory. */
bool pick_stages_init(struct pick_session *session) SLUICE_MUST_USE;
/* The pool is known: makes the stages of its profile handler; NULL: it has none. `needs`: of its
 * profiles. Returns: false when out of memory. */
bool pick_stages_plan(struct pick_session *session, const struct profile_handler *handler,
                      const struct pool_request_needs *needs) SLUICE_MUST_USE;
/* Reports to outlier detection how a response ended to which several endpoints contributed: to the
 * destination's, and where the response does not say which of them failed to all. */
void pick_stages_report(struct pick_session *session, const struct pool_result *result,
                        bool is_answered);
/* Which stages the request has. */
enum pick_decision pick_stages_decision(const struct pick_session *session);
/* For logs: the other stages. Returns: ptr NULL: there are none, or out of memory. */
struct str pick_stages_print(const struct pick_session *session);
/* What the stage asks the pool for. */
struct pool_request pick_stage_request(const struct pick_session *session,
                                       const struct pick_stage *stage, struct str model);
/* Picks for the stages that have not been picked for, up to one that has to wait: then the result
 * is ST_OK, and the request is PICK_QUEUED. `*pick` and `trace` (NULL: not needed): of the
 * destination; their views are valid until the reader is refreshed. Returns: as pool_pick. */
enum status pick_stages_run(struct pick_session *session, struct str model, struct pool_pick *pick,
                            struct pool_trace *trace, struct error *err) SLUICE_MUST_USE;
static inline bool pick_stages_are_picked(const struct pick_stages *stages) {
    return stages->n_picked == stages->n;
}
/* The first part of the response was received: the endpoints have the prompt if `taken`, and the
 * stages that last until then end. */
void pick_stages_response_started(struct pick_session *session, bool taken);
/* The first bytes of the response's body are seen: the prompts are processed. */
void pick_stages_body_started(struct pick_session *session);
/* Ends all stages: releases each ticket that is left. */
void pick_stages_end(struct pick_session *session);

/* ---- response.c ------------------------------------------------------------------------------ */

/* What the response to the request's headers or body changes. */
struct pick_mutation {
    enum ext_proc_kind kind;
    const struct pick_stages *stages;             /* picked; NULL: sent before */
    struct str path;                              /* the new ":path"; ptr NULL: unchanged */
    struct str content_length;                    /* the new one; ptr NULL: unchanged */
    const struct ext_proc_processing_mode *modes; /* NULL: as configured */
    const struct piece *body;                     /* replaces the body; NULL: unchanged */
    size_t n_body;
    struct pick_message_ref *ref;   /* the message that `body` points into */
    const struct pick_edits *edits; /* of a body that the proxy keeps; NULL: none */
};

/* A response that carries the pick. */
struct pick_pending_response {
    struct pick_edits edits; /* of the body in which the model was found */
    struct pick_mutation mutation;
};

/* The items of `edits` need not be set before they count. */
static inline void pick_pending_init(struct pick_pending_response *pending,
                                     enum ext_proc_kind kind) {
    pending->edits.n = 0;
    pending->edits.growth = 0;
    pending->mutation = (struct pick_mutation){.kind = kind};
}

/* Picks for `model` (ptr NULL: none is named) and fills in the mutation: the destination, and a new
 * name of the model. Returns: false when the request was refused or is queued. */
bool pick_session_pick_endpoint(struct pick_session *session, struct str model,
                                struct pick_pending_response *pending);
/* The body names the model of a request that was picked for without it: checks the model and fills
 * in a new name. Returns: false when the request was refused. */
bool pick_session_check_model(struct pick_session *session, struct pick_pending_response *pending);
/* Sends it. Returns: false when the stream has ended instead. */
bool pick_session_send_response(struct pick_session *session,
                                const struct pick_pending_response *pending);
/* The edits that replace the model found in the body by `model`. Returns: ST_NO_MEMORY;
 * ST_BODY_TOO_LARGE when a gRPC message would exceed 2^32 - 1 bytes. Owns: in `arena`. */
enum status pick_scan_edit(const struct pick_scan *scan, struct arena *arena, struct str model,
                           struct pick_edits *out, struct error *err) SLUICE_MUST_USE;
/* Sends the client an immediate response with the error, as JSON or as grpc-message, by the kind of
 * request. Returns: as pick_send_queue_push. */
enum status pick_send_refusal(struct pick_send_queue *send_queue, struct arena *arena,
                              const struct pool_spec *spec, const struct pick_request *request,
                              const struct error *why, struct error *err) SLUICE_MUST_USE;

/* ---- queue.c --------------------------------------------------------------------------------- */

/* Allocates the queue entry, where the request may be queued, and sets it in `requested`. Returns:
 * ST_NO_MEMORY. */
enum status pick_queue_prepare(struct pick_session *session, struct pool_request *requested,
                               struct error *err) SLUICE_MUST_USE;
/* The pool has queued the request, or it is held: enters PICK_QUEUED. `pick`: as pool_pick filled
 * it in. */
void pick_queue_start_wait(struct pick_session *session, const struct pool_pick *pick);
/* There is capacity: the request joins a window, which it waits for. Returns: false where it is not
 * held. */
bool pick_queue_hold(struct pick_session *session, const struct pool_request *requested);
/* The wait has ended, if the request was queued: calls `on_queue`. */
void pick_queue_report_end(struct pick_session *session, enum flow_outcome outcome);
/* Buffers the message being processed. The request is refused where the queue's byte limit
 * (flow_control.max_bytes) is exceeded. */
void pick_queue_push_message(struct pick_session *session);
/* Removes the request from the queue, if it is queued, and drops the buffered messages. */
void pick_queue_stop_wait(struct pick_session *session, enum flow_outcome outcome);
/* The pick is about to be sent: the request may be evicted from now on (pick/pool/flow/evict.h), to
 * the end of its response or of the stream. */
void pick_queue_hold_lease(struct pick_session *session, int64_t priority);
void pick_queue_end_lease(struct pick_session *session);
/* Whether the request is queued no longer, and buffered messages are left. */
static inline bool pick_queue_is_replaying(const struct pick_session *session) {
    return session->queue_entry && session->state != PICK_QUEUED &&
           !STAILQ_EMPTY(&session->queue_entry->buffered);
}
/* After admission: processes some buffered messages, up to one whose scan has further slices. */
void pick_queue_replay(struct pick_session *session);
/* A message that the session has kept becomes the one being processed, and the reference, which is
 * taken over, its reference. */
void pick_session_set_message(struct pick_session *session, struct pick_message_ref *message_ref);
void pick_session_clear_message(struct pick_session *session);

#endif

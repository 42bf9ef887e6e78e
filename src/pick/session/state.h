/* Internal to pick/session: struct pick_session and the functions that session.c,
 * session_request.c, pick.c and queue.c share. Other modules use session.h. */
#ifndef SLUICE_PICK_SESSION_STATE_H
#define SLUICE_PICK_SESSION_STATE_H

#include "codec/prompt/model_scan_grpc.h"
#include "pick/session/body_buffer.h"
#include "pick/session/metrics.h"
#include "pick/session/request.h"
#include "pick/session/session.h"

/* How far the request has been processed. */
enum pick_phase {
    PICK_HEADERS_EXPECTED, /* no request headers received */
    PICK_HEADERS_HELD,     /* the headers are not answered until the body names the model */
    PICK_BODY_PENDING,     /* headers answered without a pick; the pick is in the response to the
                              body */
    PICK_QUEUED,           /* the model is known, and no endpoint has capacity */
    PICK_PICKED,           /* the pick was sent */
    PICK_LOCAL_REPLY,      /* the proxy replied to the client itself before the pick */
    PICK_ENDED,            /* refused, or the stream has ended: nothing more is sent */
};

/* A message received while the request is queued; a list in the order of arrival. */
struct pick_buffered_message {
    STAILQ_ENTRY(pick_buffered_message) link;
    struct pick_message_ref *message_ref;
};

/* Which response carries the pick of a queued request. */
enum pick_point { PICK_AT_HEADERS, PICK_AT_HEADERS_HELD, PICK_AT_BODY };

struct pick_queue_entry {
    struct pool_waiter waiter;
    struct pick_session *session;
    enum pick_point reply_point;
    STAILQ_HEAD(, pick_buffered_message) buffered;
    uint64_t n_bytes; /* memory of the buffered messages, overhead included */
    size_t n_buffered;
};

/* The search for the model in a body of JSON or of gRPC. */
struct pick_scan {
    bool is_grpc;
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
    bool is_first;  /* with mode_overridden: no earlier piece of the body was sent on */
    bool timed_out; /* meanwhile: the time of a response that the proxy waits for */
};

/* The fields that each message and the end of the stream read come first: with many streams, the
 * rest of the struct is in no near cache by the next event. */
struct pick_session {
    enum pick_phase phase;
    bool is_not_grpc;   /* by the request's headers; false where no headers were received */
    bool request_ended; /* the request's body has ended */
    bool was_picked;
    bool response_started; /* a part of the response was received */
    bool response_headers_seen;
    bool response_ended;
    bool observed; /* observability_mode: nothing is sent */
    bool configured;
    bool needs_model;     /* the body must name the model, or the name in it must be replaced */
    bool mode_overridden; /* picked at the headers; a body that is received is inspected */
    bool is_body_split;   /* with mode_overridden: the body arrives in pieces */
    bool body_received;   /* a part of the request's body */
    enum pick_model_source model_source;
    struct ext_proc_config config; /* how bodies are sent; without protocol_config STREAMED */
    struct pool_ticket ticket;
    uint64_t client; /* hash of the client's address, where pool_wants_clients; 0: unknown */
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
    struct str target; /* with mode_overridden: the name chosen at the headers; ptr NULL: none */
    /* The endpoints that the proxy was told to try after the picked one, in order. */
    struct endpoint_address *fallbacks;
    size_t n_fallbacks;
    struct pick_queue_entry *queue_entry; /* NULL: the request was never prepared to wait */
    struct pick_body_scan body_scan;
    struct str request_line; /* for pick_session_describe */
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

/* The only function that changes the phase. */
void pick_session_set_phase(struct pick_session *session, enum pick_phase phase);
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
/* Passes the outcome to the `outcome` callback, with the request and its endpoint filled in. */
void pick_session_report(struct pick_session *session, struct pick_outcome *outcome);
/* Sends the response "nothing changed" to a message of `kind`. */
void pick_session_send_continue(struct pick_session *session, enum ext_proc_kind kind);

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
/* Phase PICK_HEADERS_HELD: picks, answers the headers and sends the buffered body. */
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

/* The prompt as far as it was read. Returns: NULL when there is none. */
struct pool_prompt *pick_session_get_prompt(struct pick_session *session);
/* Memory that the prompt occupies. */
uint64_t pick_session_prompt_bytes(const struct pick_session *session);
/* The first part of the response. `taken`: the ticket's endpoint has taken the prompt. */
void pick_session_prompt_answered(struct pick_session *session, bool taken);
/* Before the ticket is released: a prompt without a response is no longer in flight. */
void pick_session_prompt_ended(struct pick_session *session);
/* An estimate of the request's tokens, prompt and output; 0: unknown. */
uint32_t pick_session_estimate_tokens(const struct pick_session *session);

/* ---- pick.c ---------------------------------------------------------------------------------- */

/* The picked endpoints as the response names them, in the stream's arena: the views of struct
 * pool_pick are valid only until the reader is refreshed. */
struct pick_destination {
    struct str endpoint; /* for header and metadata; with FALLBACK_LIST all, separated by commas */
    struct str fallback; /* FALLBACK_KEY; ptr NULL: none */
};

/* What the response to the request's headers or body changes. */
struct pick_mutation {
    enum ext_proc_kind kind;
    const struct pick_destination *destination;   /* NULL: sent before */
    struct str path;                              /* the new ":path"; ptr NULL: unchanged */
    struct str content_length;                    /* the new one; ptr NULL: unchanged */
    const struct ext_proc_processing_mode *modes; /* NULL: as configured */
    const struct piece *body;                     /* replaces the body; NULL: unchanged */
    size_t n_body;
    struct pick_message_ref *ref; /* the message that `body` points into */
};

/* A response that carries the pick. */
struct pick_pending_response {
    struct pick_destination destination;
    struct pick_edits edits; /* of the body in which the model was found */
    struct pick_mutation mutation;
};

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
/* The pool has queued the request: enters phase PICK_QUEUED. */
void pick_queue_start_wait(struct pick_session *session);
/* Buffers the message being processed. The request is refused where the queue's byte limit
 * (flow_control.max_bytes) is exceeded. */
void pick_queue_push_message(struct pick_session *session);
/* Removes the request from the queue, if it is queued, and drops the buffered messages. */
void pick_queue_stop_wait(struct pick_session *session, enum flow_outcome outcome);
/* Whether the request is queued no longer, and buffered messages are left. */
bool pick_queue_is_replaying(const struct pick_session *session);
/* After admission: processes some buffered messages, up to one whose scan has further slices. */
void pick_queue_replay(struct pick_session *session);
/* A message that the session has kept becomes the one being processed, and the reference, which is
 * taken over, its reference. */
void pick_session_set_message(struct pick_session *session, struct pick_message_ref *message_ref);
void pick_session_clear_message(struct pick_session *session);

#endif

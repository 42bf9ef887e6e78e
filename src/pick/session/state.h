/* What the files of a session share. For session*.c only; everybody else uses session.h. */
#ifndef SLUICE_PICK_SESSION_STATE_H
#define SLUICE_PICK_SESSION_STATE_H

#include "pick/session/body_buffer.h"
#include "pick/session/metrics.h"
#include "pick/session/processing_response.h"
#include "pick/session/scan.h"
#include "pick/session/session.h"

/* How far the request is. */
enum pick_phase {
    PICK_HEADERS_EXPECTED, /* its headers have not come */
    PICK_HEADERS_HELD,     /* the answer to its headers is held until the body names the model */
    PICK_BODY_PENDING,     /* its headers are answered, without a pick: the body's answer will have
                          it */
    PICK_QUEUED,           /* it is known what is asked for, and no endpoint has room */
    PICK_PICKED,           /* an endpoint was told */
    PICK_LOCAL_REPLY,      /* the proxy answered by itself before there was one */
    PICK_ENDED,            /* it was refused, or the stream has ended: nothing more is said */
};

/* What came while a request waited, in its order. */
struct pick_buffered_message {
    struct pick_buffered_message *next;
    struct pick_message_ref *message_ref;
};

/* With which message the pick leaves that a request waits for. */
enum pick_point { PICK_AT_HEADERS, PICK_AT_HEADERS_HELD, PICK_AT_BODY };

struct pick_queue_entry {
    struct pool_waiter waiter;
    struct pick_session *session;
    enum pick_point reply_point;
    struct pick_buffered_message *first, **end;
    uint64_t n_bytes; /* of memory that these cost */
};

/* What each message and the end look at stands in front: streams are many, and by the time of the
 * next one's turn this has left the nearer caches. */
struct pick_session {
    enum pick_phase phase;
    bool is_not_grpc;      /* as the request's headers say; they may not be shown */
    bool request_ended;    /* no more of the request's body comes */
    bool response_started; /* something of the answer came */
    bool response_ended;
    bool observed; /* observability_mode: nothing is said at all */
    bool configured;
    bool needs_model;     /* the body has to name it, or to name another */
    bool mode_overridden; /* picked at the headers, the body is looked at if it comes */
    bool is_body_split;   /* with `raised`: it came, but not as a whole */
    enum pick_model_source model_source;
    struct ext_proc_config config; /* how bodies are sent; without protocol_config STREAMED */
    struct pool_ticket ticket;
    struct pick_context context; /* `pool` and `reader` are the request's, with a reference */
    struct pick_body_buffer body_buffer;
    struct pick_send_queue send_queue;

    /* The request's headers, as long as a pick or a refusal may need them. */
    struct pick_message_ref *headers;
    struct pick_request *request; /* NULL: nothing is known of it, or no longer */

    /* The message at hand, and who keeps it. */
    const struct pick_message *message;
    struct pick_message_ref *message_ref;

    struct arena *arena;
    struct model_location model_path;
    struct str requested;       /* the model to match, where it is known already; ptr NULL: it
                                   isn't */
    struct str body_model;      /* the model as the body named it; ptr NULL: it has not */
    struct pick_scan *scan;     /* of the body; NULL: it isn't looked into for its model */
    struct pick_prompt *prompt; /* NULL: nobody wants to know it, or it isn't shown */
    struct str target; /* with `raised`: the name chosen at the headers; ptr NULL: none was */
    struct pick_queue_entry *queue_entry; /* NULL: it has not been asked to */
    struct str request_line;              /* for pick_session_describe */
};

/* What is known of the request; of one without headers, or whose headers are wanted no more,
 * nothing. */
static inline const struct pick_request *pick_session_request(const struct pick_session *session) {
    static const struct pick_request nothing = {.has_hint = false};
    return session->request ? session->request : &nothing;
}

/* The only function that changes the phase. */
void pick_session_set_phase(struct pick_session *session, enum pick_phase phase);

/* The message at hand is kept until its users have let go of it. Returns: NULL when out of memory,
 * and the stream has ended. */
struct pick_message_ref *pick_session_ref_message(struct pick_session *session);
/* The names of the protocol, and all else of the configuration as it is now. */
const struct pool_spec *pick_session_spec(struct pick_session *session);

/* ---- pool.c -------------------------------------------------------------------------- */

/* Until the headers have come: the pool for all, or one without endpoints. */
void pick_session_init_pool(struct pick_session *session);
/* From now on the pool is the one that the headers say. Returns: ST_NO_POOL, where it is one
 * without endpoints; ST_NO_MEMORY. */
enum status pick_session_select_pool(struct pick_session *session,
                                     const struct ext_proc_request *message, struct error *err)
    __attribute__((warn_unused_result));

/* ---- session.c ------------------------------------------------------------------------------- */

/* Each ends the request: with an answer to the client, or with the stream. */
void pick_session_refuse(struct pick_session *session, const struct error *why);
void pick_session_abort(struct pick_session *session, const struct error *why);
void pick_session_protocol_error(struct pick_session *session, const char *what);
/* The request is on its way or over: nothing of its headers is wanted any more, and what points
 * into them is forgotten. */
void pick_session_release_headers(struct pick_session *session);
void pick_session_release_ticket(struct pick_session *session);
/* For the log; what the session knows of the request and its endpoint is filled in. */
void pick_session_report(struct pick_session *session, struct pick_outcome *outcome);
/* "Nothing is changed", in answer to `kind`. */
void pick_session_send_continue(struct pick_session *session, enum ext_proc_kind kind);

/* The proxy sends what it shows without waiting, and takes only what is sent back. */
static inline bool pick_mode_is_duplex(enum ext_proc_body_mode mode) {
    return mode == EXT_PROC_BODY_FULL_DUPLEX;
}
static inline bool pick_mode_is_buffered(enum ext_proc_body_mode mode) {
    return mode == EXT_PROC_BODY_BUFFERED || mode == EXT_PROC_BODY_BUFFERED_PARTIAL;
}

/* ---- body_mode.c -------------------------------------------------------------------------- */

/* Does the proxy want this part of a body, request's or answer's, sent back to it? Else it wants to
 * be told whether it is changed. */
bool pick_session_needs_echo(const struct pick_session *session, enum ext_proc_body_mode mode,
                             const struct ext_proc_request *message);
/* Sends it back; `edits` may be NULL. Returns: false where the stream has ended instead. */
bool pick_session_echo_body(struct pick_session *session, const struct ext_proc_request *message,
                            enum ext_proc_body_mode mode, const struct pick_edits *edits);

/* ---- pick.c -------------------------------------------------------------------------- */

/* An answer that has the pick, and what it is made of. */
struct pick_pending_response {
    struct pick_destination destination;
    struct pick_edits edits; /* of the body, where its model was found */
    struct pick_mutation mutation;
};

/* Picks for `model` (ptr NULL: it names none); the draft's news then have the choice and what
 * belongs to a new name. Returns: false where the request has ended instead, or waits. */
bool pick_session_pick_endpoint(struct pick_session *session, struct str model,
                                struct pick_pending_response *pending);
/* The body names the model of a request that was picked for without knowing it. Returns: as
 * above. */
bool pick_session_check_model(struct pick_session *session, struct pick_pending_response *pending);
/* Says it. Returns: as above. */
bool pick_session_send_response(struct pick_session *session,
                                const struct pick_pending_response *pending);

/* ---- prompt.c ------------------------------------------------------------------------ */

/* At the request's headers, with `needs_model` as it is: the body will be looked into for its
 * prompt if the profile wants it and the body comes. Returns: the pick is to wait for it. */
bool pick_session_start_prompt_scan(struct pick_session *session);
/* The next bytes of the body. Returns: no more of them are waited for. */
bool pick_session_scan_prompt(struct pick_session *session, struct str bytes);
/* So much of the body has come that nothing more is held for its prompt's sake. */
bool pick_session_is_prompt_limit_reached(const struct pick_session *session);
/* As much of it as is known. Returns: NULL where there is none. */
struct pool_prompt *pick_session_get_prompt(struct pick_session *session);
/* What is kept of it. */
uint64_t pick_session_prompt_bytes(const struct pick_session *session);
/* Another endpoint than the picked one, the ticket's, took the request. */
void pick_session_record_moved_prompt(struct pick_session *session);
/* How much work the request is, about: tokens to read and to make; 0 where nothing is known. */
uint32_t pick_session_estimate_tokens(const struct pick_session *session);

/* ---- queue.c -------------------------------------------------------------------------- */

/* Has what a pick of it needs where it may have to wait. Returns: ST_NO_MEMORY. */
enum status pick_queue_prepare(struct pick_session *session, struct pool_request *requested,
                               struct error *err) __attribute__((warn_unused_result));
/* The pool has it wait: so does the session, wherever it is. */
void pick_queue_start_wait(struct pick_session *session);
/* The message at hand is for later. */
void pick_queue_push_message(struct pick_session *session);
/* It waits no more, if it did, and what was put off is forgotten. */
void pick_queue_stop_wait(struct pick_session *session, enum flow_outcome outcome);

/* ---- session.c, session_request.c, body.c, response.c ------------------------ */

void pick_session_step(struct pick_session *session, struct str data);
/* Each picks, for a request that has all for it, and says so. */
void pick_session_pick_at_headers(struct pick_session *session);
void pick_session_pick_at_body(struct pick_session *session,
                               const struct ext_proc_request *message);
/* Returns: ST_BODY_TOO_LARGE. */
enum status pick_body_too_large(uint64_t n_bytes, uint64_t max_bytes, struct error *err);
/* Is all known that a pick can't do without? */
bool pick_session_can_pick(const struct pick_session *session);
/* Picks, in phase PICK_HEADERS_HELD, with what is known, and sends on what was held. */
void pick_session_pick_and_flush(struct pick_session *session);
void pick_session_on_headers(struct pick_session *session, const struct ext_proc_request *message);
void pick_session_on_body(struct pick_session *session, const struct ext_proc_request *message);
void pick_session_on_trailers(struct pick_session *session);
void pick_session_on_response_headers(struct pick_session *session,
                                      const struct ext_proc_request *message);
void pick_session_on_response_body(struct pick_session *session,
                                   const struct ext_proc_request *message);
void pick_session_on_response_trailers(struct pick_session *session,
                                       const struct ext_proc_request *message);

#endif

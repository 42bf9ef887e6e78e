/* The request's body and trailers, in each mode that proxies send them in. */
#include "pick/session/state.h"

#include <inttypes.h>

/* ---- what the scan says ---------------------------------------------------------------------- */

static bool scan_model_name(struct pick_session *session, const struct ext_proc_request *message,
                            bool is_all) {
    bool known =
        !session->scan || (!message->end_without_message &&
                           pick_scan_feed(session->scan, message->body, message->is_compressed));
    if (!known && is_all) {
        pick_scan_end(session->scan);
    }
    return known || is_all;
}

/* Looks at what came. `is_all`: nothing of the body comes behind it. Returns: it is known now what
 * the body names, if anything, and what is wanted of its prompt. */
static bool scan_body(struct pick_session *session, const struct ext_proc_request *message,
                      bool is_all) {
    bool is_named = scan_model_name(session, message, is_all);
    bool is_seen = pick_session_scan_prompt(session, message->body) || is_all;
    return (is_seen && is_named) || pick_session_is_prompt_limit_reached(session);
}

/* Returns: false where the body names no model but has to, and the client was told. */
static bool check_model_name(struct pick_session *session) {
    struct error err;
    if (session->needs_model && pick_scan_check(session->scan, &err) != ST_OK) {
        pick_session_refuse(session, &err);
        return false;
    }
    return true;
}

bool pick_session_can_pick(const struct pick_session *session) {
    struct error err;
    return !session->needs_model || pick_scan_check(session->scan, &err) == ST_OK;
}

/* The model to match, as far as the body is known. */
static struct str known_model_of(struct pick_session *session) {
    struct error err;
    if (session->requested.ptr || !session->scan || pick_scan_check(session->scan, &err) != ST_OK) {
        return session->requested;
    }
    session->model_source = PICK_MODEL_FROM_BODY;
    return pick_scan_name(session->scan);
}

enum status pick_body_too_large(uint64_t n_bytes, uint64_t max_bytes, struct error *err) {
    return error_set(err, ST_BODY_TOO_LARGE,
                     "the body has %" PRIu64
                     " bytes, and one that names the model may have %" PRIu64 " (--max-body-size)",
                     n_bytes, max_bytes);
}

/* A whole body may not be larger than one that is held. Returns: as check_name. */
static bool check_size(struct pick_session *session, const struct ext_proc_request *message) {
    struct error err;
    uint64_t max_bytes = session->context.limits.max_body_size;
    if (message->body.len <= max_bytes) {
        return true;
    }
    (void)pick_body_too_large(message->body.len, max_bytes, &err);
    pick_session_refuse(session, &err);
    return false;
}

/* ---- FULL_DUPLEX ----------------------------------------------------------------------------- */

/* The answer to the headers leaves, and behind it what was held. */
void pick_session_pick_and_flush(struct pick_session *session) {
    struct pick_pending_response pending = {.mutation = {.kind = EXT_PROC_REQUEST_HEADERS}};
    struct error err;
    if (!check_model_name(session) ||
        !pick_session_pick_endpoint(session, known_model_of(session), &pending) ||
        !pick_session_send_response(session, &pending)) {
        return;
    }
    pick_session_set_phase(session, PICK_PICKED);
    pick_session_release_headers(session);
    if (pick_body_buffer_flush(&session->body_buffer, &session->send_queue, EXT_PROC_REQUEST_BODY,
                               &pending.edits, &err) != ST_OK) {
        pick_session_abort(session, &err);
    }
}

static void buffer_body(struct pick_session *session, const struct ext_proc_request *message) {
    bool known = scan_body(session, message, session->request_ended);
    bool is_nothing = message->body.len == 0 && !session->request_ended;
    bool copied = pick_body_buffer_would_copy(&session->body_buffer, message->body.len);
    struct pick_message_ref *message_ref =
        is_nothing || copied ? NULL : pick_session_ref_message(session);
    struct error err;
    enum status st = ST_OK;
    if (message_ref || (copied && !is_nothing)) {
        struct pick_body_chunk chunk = pick_body_chunk_of(message, message_ref);
        st = pick_body_buffer_append(&session->body_buffer, &session->send_queue, &chunk, &err);
    }
    if (session->phase != PICK_HEADERS_HELD) {
        return; /* no memory to keep it */
    }
    if (st == ST_OK && !known) {
        st = pick_body_buffer_check_limit(&session->body_buffer, &err);
        known = st != ST_OK && pick_session_can_pick(session);
        st = known ? ST_OK : st;
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    } else if (known) {
        pick_session_pick_and_flush(session);
    }
}

/* ---- BUFFERED, BUFFERED_PARTIAL -------------------------------------------------------------- */

/* Says the draft in answer to this message, with what its body becomes. */
static bool send_with_body(struct pick_session *session, const struct ext_proc_request *message,
                           struct pick_pending_response *pending) {
    struct piece pieces[PICK_MAX_PIECES];
    if (pending->edits.n > 0) {
        struct pick_body_chunk chunk =
            pick_body_chunk_of(message, pick_session_ref_message(session));
        if (!chunk.ref) {
            return false;
        }
        pending->mutation.body = pieces;
        pending->mutation.n_body = pick_body_chunk_pieces(&chunk, 0, &pending->edits, pieces);
        pending->mutation.ref = chunk.ref;
    }
    bool told = pick_session_send_response(session, pending);
    pending->mutation.body = NULL; /* the array ends here */
    return told;
}

/* A proxy that cuts bodies off where its buffer ends does not say so, but says that more comes. */
static void refuse_partial(struct pick_session *session, const struct ext_proc_request *message) {
    struct error err;
    error_set(&err, ST_BODY_TOO_LARGE,
              "the model must be named within what the proxy's buffer takes of the body: in its "
              "first %zu bytes it is not (per_connection_buffer_limit_bytes)",
              message->body.len);
    pick_session_refuse(session, &err);
}

void pick_session_pick_at_body(struct pick_session *session,
                               const struct ext_proc_request *message) {
    struct pick_pending_response pending = {.mutation = {.kind = EXT_PROC_REQUEST_BODY}};
    if (check_model_name(session) &&
        pick_session_pick_endpoint(session, known_model_of(session), &pending) &&
        send_with_body(session, message, &pending)) {
        pick_session_set_phase(session, PICK_PICKED);
        pick_session_release_headers(session);
    }
}

static void pick_at_buffered_body(struct pick_session *session,
                                  const struct ext_proc_request *message) {
    bool partial =
        session->config.request_body == EXT_PROC_BODY_BUFFERED_PARTIAL && !session->request_ended;
    if (session->needs_model && !check_size(session, message)) {
        return;
    }
    if (message->body.len <= session->context.limits.max_body_size &&
        !scan_body(session, message, !partial) && !pick_session_can_pick(session)) {
        refuse_partial(session, message);
        return;
    }
    pick_session_pick_at_body(session, message);
}

/* ---- raised from NONE, STREAMED or GRPC ------------------------------------------------------ */

/* Of a message of gRPC there is only one before its model is known, and that is whole. */
static bool is_body_whole(const struct pick_session *session) {
    enum ext_proc_body_mode mode = session->config.request_body;
    bool at_once =
        mode == EXT_PROC_BODY_GRPC || (mode == EXT_PROC_BODY_NONE && session->configured);
    return !session->is_body_split && (session->request_ended || at_once);
}

/* The name can't be changed in a body that is on its way already. */
static bool check_can_rename(struct pick_session *session,
                             const struct pick_pending_response *pending, bool whole) {
    struct error err;
    if (pending->edits.n == 0 || whole) {
        return true;
    }
    error_set(&err, ST_INTERNAL,
              "the model is to be sent on under another name, but the proxy sends the body in "
              "pieces: it must allow mode_override (allow_mode_override: true)");
    pick_session_refuse(session, &err);
    return false;
}

/* Clause: ext-proc, mode_override: a proxy that does not allow it goes on as configured. With NONE
 * that is without the body; with STREAMED its pieces come, each of which is answered; with GRPC its
 * messages. */
static void inspect_overridden_body(struct pick_session *session,
                                    const struct ext_proc_request *message) {
    enum ext_proc_body_mode mode = session->config.request_body;
    bool back = pick_session_needs_echo(session, mode, message), whole = is_body_whole(session);
    struct pick_pending_response pending = {.mutation = {.kind = EXT_PROC_REQUEST_BODY}};
    session->is_body_split = !whole;
    if (whole && !check_size(session, message)) {
        return;
    }
    if (back) { /* without a prefix */
        pick_scan_init(session->scan, session->arena,
                       session->model_path.kind == MODEL_LOCATION_GRPC_BODY, false);
    }
    if (!scan_body(session, message, whole || session->request_ended)) {
        pick_session_send_continue(session, EXT_PROC_REQUEST_BODY);
        return;
    }
    if (check_model_name(session) && pick_session_check_model(session, &pending) &&
        check_can_rename(session, &pending, whole) &&
        (back ? pick_session_echo_body(session, message, mode, &pending.edits)
              : send_with_body(session, message, &pending))) {
        pick_session_release_headers(session);
    }
}

static void on_body_after_pick(struct pick_session *session,
                               const struct ext_proc_request *message) {
    enum ext_proc_body_mode mode = session->config.request_body;
    if (session->mode_overridden) {
        inspect_overridden_body(session, message);
    } else if (pick_session_needs_echo(session, mode, message)) {
        pick_session_echo_body(session, message, mode, NULL);
    } else {
        pick_session_send_continue(session, EXT_PROC_REQUEST_BODY);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns: false where it can't come now. */
static bool check_order(struct pick_session *session, const char *ended) {
    if (session->phase == PICK_HEADERS_EXPECTED) {
        pick_session_protocol_error(session,
                                    "the request's headers must come first: the picker needs "
                                    "them (request_header_mode: SEND)");
    } else if (session->request_ended) {
        pick_session_protocol_error(session, ended);
    }
    return session->phase != PICK_ENDED;
}

/* Clause: "Endpoint Subset". What the first message said holds for the stream, whether or not later
 * ones repeat it; where it said nothing, a later one counts as long as nothing is picked. Returns:
 * false when out of memory. */
static bool read_late_subset(struct pick_session *session, const struct ext_proc_request *message) {
    bool late = session->phase == PICK_HEADERS_HELD || session->phase == PICK_BODY_PENDING;
    struct error err;
    if (!late || session->request->has_hint || message->metadata.len == 0) {
        return true;
    }
    if (pick_request_read_subset(session->arena, &pick_session_spec(session)->protocol, message,
                                 session->request, &err) != ST_OK) {
        pick_session_abort(session, &err);
        return false;
    }
    return true;
}

void pick_session_on_body(struct pick_session *session, const struct ext_proc_request *message) {
    if (session->phase == PICK_QUEUED) {
        pick_queue_push_message(session);
        return;
    }
    if (!check_order(session, "a part of the request's body came behind its end")) {
        return;
    }
    session->request_ended = message->end_of_stream || message->end_without_message;
    if (!read_late_subset(session, message)) {
        return;
    }
    switch (session->phase) {
    case PICK_HEADERS_HELD:
        buffer_body(session, message);
        break;
    case PICK_BODY_PENDING:
        pick_at_buffered_body(session, message);
        break;
    case PICK_PICKED:
        on_body_after_pick(session, message);
        break;
    case PICK_HEADERS_EXPECTED:
    case PICK_QUEUED:
    case PICK_LOCAL_REPLY: /* nobody waits for it */
    case PICK_ENDED:
        break;
    }
}

/* A body that was to come whole did not come: the answer to trailers can't say where to send it. */
static void refuse_missing_body(struct pick_session *session) {
    struct error err;
    enum status st = session->scan ? pick_scan_check(session->scan, &err) : ST_OK;
    if (st == ST_OK) {
        error_set(&err, ST_BAD_REQUEST, "the proxy sent a request's trailers and not its body");
    }
    pick_session_refuse(session, &err);
}

/* Trailers end a body that has no other end. Without a body there may have been none; of one in
 * mode NONE nothing is known. */
void pick_session_on_trailers(struct pick_session *session) {
    if (session->phase == PICK_QUEUED) {
        pick_queue_push_message(session);
        return;
    }
    if (!check_order(session, "the request's trailers came behind its end")) {
        return;
    }
    session->request_ended = true;
    bool is_body_split = session->mode_overridden && session->is_body_split;
    if (session->scan && (session->phase == PICK_HEADERS_HELD ||
                          session->phase == PICK_BODY_PENDING || is_body_split)) {
        pick_scan_end(session->scan);
    }
    if (session->phase == PICK_HEADERS_HELD) {
        pick_session_pick_and_flush(session);
    } else if (is_body_split) {
        check_model_name(session);
    } else if (session->phase == PICK_BODY_PENDING) {
        refuse_missing_body(session);
    }
    if (session->phase == PICK_PICKED) {
        pick_session_send_continue(session, EXT_PROC_REQUEST_TRAILERS);
    } else if (session->phase == PICK_QUEUED) { /* they are answered behind the headers */
        session->request_ended = false;
        pick_queue_push_message(session);
    }
}

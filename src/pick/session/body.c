/* The request's body and trailers, in each mode that proxies send them in. */
#include "pick/session/state.h"

#include <inttypes.h>

/* ---- what the scan says ---------------------------------------------------------------------- */

static bool look_for_name(struct pick_session *session, const struct ext_proc_request *message,
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
static bool look(struct pick_session *session, const struct ext_proc_request *message,
                 bool is_all) {
    bool is_named = look_for_name(session, message, is_all);
    bool is_seen = pick_session_look_for_prompt(session, message->body) || is_all;
    return (is_seen && is_named) || pick_session_waits_in_vain(session);
}

/* Returns: false where the body names no model but has to, and the client was told. */
static bool check_name(struct pick_session *session) {
    struct error err;
    if (session->needs_model && pick_scan_check(session->scan, &err) != ST_OK) {
        pick_session_refuse(session, &err);
        return false;
    }
    return true;
}

bool pick_session_is_ready(const struct pick_session *session) {
    struct error err;
    return !session->needs_model || pick_scan_check(session->scan, &err) == ST_OK;
}

/* The model to match, as far as the body is known. */
static struct str model_of(struct pick_session *session) {
    struct error err;
    if (session->asked.ptr || !session->scan || pick_scan_check(session->scan, &err) != ST_OK) {
        return session->asked;
    }
    session->found = PICK_FOUND_BODY;
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
    uint64_t max_bytes = session->means.limits.max_body_bytes;
    if (message->body.len <= max_bytes) {
        return true;
    }
    (void)pick_body_too_large(message->body.len, max_bytes, &err);
    pick_session_refuse(session, &err);
    return false;
}

/* ---- FULL_DUPLEX ----------------------------------------------------------------------------- */

/* The answer to the headers leaves, and behind it what was held. */
void pick_session_conclude(struct pick_session *session) {
    struct pick_draft draft = {.news = {.kind = EXT_PROC_REQUEST_HEADERS}};
    struct error err;
    if (!check_name(session) || !pick_session_choose(session, model_of(session), &draft) ||
        !pick_session_tell(session, &draft)) {
        return;
    }
    pick_session_enter(session, PICK_PICKED);
    pick_session_drop_headers(session);
    if (pick_held_send(&session->held, &session->outbox, EXT_PROC_REQUEST_BODY, &draft.edits,
                       &err) != ST_OK) {
        pick_session_break(session, &err);
    }
}

static void hold(struct pick_session *session, const struct ext_proc_request *message) {
    bool known = look(session, message, session->request_ended);
    bool is_nothing = message->body.len == 0 && !session->request_ended;
    bool copied = pick_held_copies(&session->held, message->body.len);
    struct pick_kept *kept = is_nothing || copied ? NULL : pick_session_keep(session);
    struct error err;
    enum status st = ST_OK;
    if (kept || (copied && !is_nothing)) {
        struct pick_part part = pick_part_of(message, kept);
        st = pick_held_add(&session->held, &session->outbox, &part, &err);
    }
    if (session->phase != PICK_HELD) {
        return; /* no memory to keep it */
    }
    if (st == ST_OK && !known) {
        st = pick_held_check(&session->held, &err);
        known = st != ST_OK && pick_session_is_ready(session);
        st = known ? ST_OK : st;
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    } else if (known) {
        pick_session_conclude(session);
    }
}

/* ---- BUFFERED, BUFFERED_PARTIAL -------------------------------------------------------------- */

/* Says the draft in answer to this message, with what its body becomes. */
static bool tell_with_body(struct pick_session *session, const struct ext_proc_request *message,
                           struct pick_draft *draft) {
    struct piece pieces[PICK_MOST_PIECES];
    if (draft->edits.n > 0) {
        struct pick_part part = pick_part_of(message, pick_session_keep(session));
        if (!part.of) {
            return false;
        }
        draft->news.body = pieces;
        draft->news.n_body = pick_part_pieces(&part, 0, &draft->edits, pieces);
        draft->news.of = part.of;
    }
    bool told = pick_session_tell(session, draft);
    draft->news.body = NULL; /* the array ends here */
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

void pick_session_at_body(struct pick_session *session, const struct ext_proc_request *message) {
    struct pick_draft draft = {.news = {.kind = EXT_PROC_REQUEST_BODY}};
    if (check_name(session) && pick_session_choose(session, model_of(session), &draft) &&
        tell_with_body(session, message, &draft)) {
        pick_session_enter(session, PICK_PICKED);
        pick_session_drop_headers(session);
    }
}

static void pick_at_body(struct pick_session *session, const struct ext_proc_request *message) {
    bool partial =
        session->config.request_body == EXT_PROC_BODY_BUFFERED_PARTIAL && !session->request_ended;
    if (session->needs_model && !check_size(session, message)) {
        return;
    }
    if (message->body.len <= session->means.limits.max_body_bytes &&
        !look(session, message, !partial) && !pick_session_is_ready(session)) {
        refuse_partial(session, message);
        return;
    }
    pick_session_at_body(session, message);
}

/* ---- raised from NONE, STREAMED or GRPC ------------------------------------------------------ */

/* Of a message of gRPC there is only one before its model is known, and that is whole. */
static bool comes_whole(const struct pick_session *session) {
    enum ext_proc_body_mode mode = session->config.request_body;
    bool at_once =
        mode == EXT_PROC_BODY_GRPC || (mode == EXT_PROC_BODY_NONE && session->configured);
    return !session->in_pieces && (session->request_ended || at_once);
}

/* The name can't be changed in a body that is on its way already. */
static bool check_whole(struct pick_session *session, const struct pick_draft *draft, bool whole) {
    struct error err;
    if (draft->edits.n == 0 || whole) {
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
static void look_at_raised(struct pick_session *session, const struct ext_proc_request *message) {
    enum ext_proc_body_mode mode = session->config.request_body;
    bool back = pick_session_is_sent_back(session, mode, message), whole = comes_whole(session);
    struct pick_draft draft = {.news = {.kind = EXT_PROC_REQUEST_BODY}};
    session->in_pieces = !whole;
    if (whole && !check_size(session, message)) {
        return;
    }
    if (back) { /* without a prefix */
        pick_scan_init(session->scan, session->arena, session->where.kind == PICK_PATH_GRPC, false);
    }
    if (!look(session, message, whole || session->request_ended)) {
        pick_session_nod(session, EXT_PROC_REQUEST_BODY);
        return;
    }
    if (check_name(session) && pick_session_match(session, &draft) &&
        check_whole(session, &draft, whole) &&
        (back ? pick_session_send_back(session, message, mode, &draft.edits)
              : tell_with_body(session, message, &draft))) {
        pick_session_drop_headers(session);
    }
}

static void on_picked(struct pick_session *session, const struct ext_proc_request *message) {
    enum ext_proc_body_mode mode = session->config.request_body;
    if (session->raised) {
        look_at_raised(session, message);
    } else if (pick_session_is_sent_back(session, mode, message)) {
        pick_session_send_back(session, message, mode, NULL);
    } else {
        pick_session_nod(session, EXT_PROC_REQUEST_BODY);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns: false where it can't come now. */
static bool is_legal(struct pick_session *session, const char *ended) {
    if (session->phase == PICK_NEW) {
        pick_session_illegal(session, "the request's headers must come first: the picker needs "
                                      "them (request_header_mode: SEND)");
    } else if (session->request_ended) {
        pick_session_illegal(session, ended);
    }
    return session->phase != PICK_OVER;
}

/* Clause: "Endpoint Subset". What the first message said holds for the stream, whether or not later
 * ones repeat it; where it said nothing, a later one counts as long as nothing is picked. Returns:
 * false when out of memory. */
static bool heed_hint(struct pick_session *session, const struct ext_proc_request *message) {
    bool late = session->phase == PICK_HELD || session->phase == PICK_AWAITED;
    struct error err;
    if (!late || session->request->has_hint || message->metadata.len == 0) {
        return true;
    }
    if (pick_request_hint(session->arena, &pick_session_spec(session)->protocol, message,
                          session->request, &err) != ST_OK) {
        pick_session_break(session, &err);
        return false;
    }
    return true;
}

void pick_session_on_body(struct pick_session *session, const struct ext_proc_request *message) {
    if (session->phase == PICK_WAITING) {
        pick_session_put_off(session);
        return;
    }
    if (!is_legal(session, "a part of the request's body came behind its end")) {
        return;
    }
    session->request_ended = message->end_of_stream || message->end_without_message;
    if (!heed_hint(session, message)) {
        return;
    }
    switch (session->phase) {
    case PICK_HELD:
        hold(session, message);
        break;
    case PICK_AWAITED:
        pick_at_body(session, message);
        break;
    case PICK_PICKED:
        on_picked(session, message);
        break;
    case PICK_NEW:
    case PICK_WAITING:
    case PICK_PASSED: /* nobody waits for it */
    case PICK_OVER:
        break;
    }
}

/* A body that was to come whole did not come: the answer to trailers can't say where to send it. */
static void refuse_empty(struct pick_session *session) {
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
    if (session->phase == PICK_WAITING) {
        pick_session_put_off(session);
        return;
    }
    if (!is_legal(session, "the request's trailers came behind its end")) {
        return;
    }
    session->request_ended = true;
    bool in_pieces = session->raised && session->in_pieces;
    if (session->scan &&
        (session->phase == PICK_HELD || session->phase == PICK_AWAITED || in_pieces)) {
        pick_scan_end(session->scan);
    }
    if (session->phase == PICK_HELD) {
        pick_session_conclude(session);
    } else if (in_pieces) {
        check_name(session);
    } else if (session->phase == PICK_AWAITED) {
        refuse_empty(session);
    }
    if (session->phase == PICK_PICKED) {
        pick_session_nod(session, EXT_PROC_REQUEST_TRAILERS);
    } else if (session->phase == PICK_WAITING) { /* they are answered behind the headers */
        session->request_ended = false;
        pick_session_put_off(session);
    }
}

/* The pick of a session: the pool is asked, and what a new name of the model changes is worked out.
 * Nobody looks at the pool between the two, so that names of its configuration stay. */
#include "core/base/log.h"
#include "core/base/num.h"
#include "pick/session/state.h"

static struct str find_header(const void *of, struct str name) {
    const struct pick_request *request = of;
    return ext_proc_header_find(&request->fields, name);
}

static struct pool_request make_pool_request(struct pick_session *session, struct str model,
                                             size_t n_fallbacks) {
    const struct pick_request *request = pick_session_request(session);
    return (struct pool_request){.model = model,
                                 .objective = request->objective,
                                 .session = request->session,
                                 .prompt = pick_session_get_prompt(session),
                                 .headers = {.find = find_header, .of = request},
                                 .n_tokens = pick_session_estimate_tokens(session),
                                 .subset = request->has_hint ? &request->hint : NULL,
                                 .selection = request->has_selection ? &request->selection : NULL,
                                 .n_fallbacks = n_fallbacks,
                                 .fairness_id = request->fairness_id};
}

/* ---- another name ---------------------------------------------------------------------------- */

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for the model's new name");
}

static enum status rename_path(struct pick_session *session, struct str name,
                               struct pick_pending_response *pending, struct error *err) {
    struct str old = pick_session_request(session)->path;
    struct buf path;
    if (str_eq(name, session->model_path.model)) {
        return ST_OK;
    }
    buf_init(&path, session->arena, old.len + name.len);
    model_location_print_path(&path, &session->model_path, old, name);
    pending->mutation.path = buf_str(&path);
    metric_add(METRIC_PICK_REWRITTEN_TOTAL, 1);
    return path.failed ? no_memory(err) : ST_OK;
}

/* The client's Content-Length stays right; where it sent none, none is made. */
static enum status update_content_length(struct pick_session *session,
                                         struct pick_pending_response *pending, struct error *err) {
    struct str sent = pick_session_request(session)->content_length;
    uint64_t length;
    if (pending->edits.growth == 0 || !num_parse_u64(sent, &length)) {
        return ST_OK;
    }
    length += (uint64_t)pending->edits.growth;
    pending->mutation.content_length =
        arena_printf(session->arena, "%llu", (unsigned long long)length);
    return pending->mutation.content_length.ptr ? ST_OK : no_memory(err);
}

static enum status rename_body(struct pick_session *session, struct str name,
                               struct pick_pending_response *pending, struct error *err) {
    if (str_eq(name, pick_scan_name(session->scan))) {
        return ST_OK;
    }
    metric_add(METRIC_PICK_REWRITTEN_TOTAL, 1);
    enum status st = pick_scan_edit(session->scan, session->arena, name, &pending->edits, err);
    return st == ST_OK ? update_content_length(session, pending, err) : st;
}

/* `name`: ptr NULL: the one that the request has. */
static enum status rename_model(struct pick_session *session, struct str name,
                                struct pick_pending_response *pending, struct error *err) {
    if (!name.ptr) {
        return ST_OK;
    }
    if (session->model_path.kind == MODEL_LOCATION_PATH) {
        return rename_path(session, name, pending, err);
    }
    if (session->scan && !session->mode_overridden) {
        return rename_body(session, name, pending, err);
    }
    if (session->scan) { /* the body is still to come */
        session->target = arena_dup(session->arena, name);
        return session->target.ptr ? ST_OK : no_memory(err);
    }
    return ST_OK;
}

/* What the request is sent on as: the configuration's name, else that of the header. */
static struct str target_model(const struct pick_session *session, const struct pool_pick *pick) {
    return pick->target.ptr ? pick->target : pick_session_request(session)->rewrite;
}

/* ---- picks ----------------------------------------------------------------------------------- */

static bool is_headers_held(const struct pick_session *session) {
    return session->phase == PICK_HEADERS_HELD ||
           (session->phase == PICK_QUEUED &&
            session->queue_entry->reply_point == PICK_AT_HEADERS_HELD);
}

bool pick_session_pick_endpoint(struct pick_session *session, struct str model,
                                struct pick_pending_response *pending) {
    const struct pool_spec *spec = pick_session_spec(session);
    const struct protocol *protocol = &spec->protocol;
    enum protocol_fallback fallback = protocol->fallback;
    struct pool_request requested =
        make_pool_request(session, model, fallback == FALLBACK_NONE ? 0 : protocol->n_fallbacks);
    struct pool_pick pick;
    struct pool_trace trace = {.n = 0};
    struct error err;
    bool at_body = pending->mutation.kind == EXT_PROC_REQUEST_BODY || is_headers_held(session);
    session->body_model = model;
    requested.trace = log_enabled(LOG_DEBUG) ? &trace : NULL;
    enum status st = ST_OK;
    /* Should waiting be switched on in this moment, this one does not wait. */
    if (session->queue_entry || (session->context.wakeup && spec->flow_control.on)) {
        st = pick_queue_prepare(session, &requested, &err);
    }
    if (st == ST_OK) {
        st = pool_pick(session->context.reader, &requested, &pick, &err);
    }
    if (st == ST_OK && !pick.ticket.endpoint) {
        pick_queue_start_wait(session);
        return false;
    }
    if (st == ST_OK) {
        session->ticket = pick.ticket;
        st = pick_destination_print(session->arena, &pick, fallback, &pending->destination, &err);
    }
    if (st == ST_OK) {
        st = rename_model(session, target_model(session, &pick), pending, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
        return false;
    }
    pending->mutation.destination = &pending->destination;
    pick_session_report(session, &(struct pick_outcome){.model = model,
                                                        .target = target_model(session, &pick),
                                                        .pick = &pick,
                                                        .trace = requested.trace,
                                                        .at_body = at_body});
    pick_count_pick(at_body, pick.picked_by);
    if (model.ptr || !session->mode_overridden) {
        pick_count_model(session->model_source);
    }
    return true;
}

bool pick_session_check_model(struct pick_session *session, struct pick_pending_response *pending) {
    struct pool_pick pick = {.target = session->target};
    struct error err;
    enum status st = ST_OK;
    session->mode_overridden = false;
    session->body_model = pick_scan_name(session->scan);
    if (!session->requested.ptr) {
        struct pool_request requested =
            make_pool_request(session, pick_scan_name(session->scan), 0);
        st = pool_check_picked(session->context.reader, &requested, &session->ticket, &pick, &err);
        pick_count_model(PICK_MODEL_FROM_BODY);
    }
    if (st == ST_OK) {
        st = rename_model(session, target_model(session, &pick), pending, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    }
    return st == ST_OK;
}

bool pick_session_send_response(struct pick_session *session,
                                const struct pick_pending_response *pending) {
    struct error err;
    enum status st = pick_send_mutation(&session->send_queue, &pick_session_spec(session)->protocol,
                                        &pending->mutation, &err);
    if (st != ST_OK) {
        pick_session_abort(session, &err);
    }
    return st == ST_OK;
}

/* The pick of a session: the pool is asked, and what a new name of the model changes is worked out.
 * Nobody looks at the pool between the two, so that names of its configuration stay. */
#include "core/base/log.h"
#include "core/base/num.h"
#include "pick/session/state.h"

static struct str find_header(const void *of, struct str name) {
    const struct pick_request *request = of;
    return ext_proc_header_find(&request->fields, name);
}

static struct pool_request question(struct pick_session *session, struct str model,
                                    size_t n_fallbacks) {
    const struct pick_request *request = pick_session_request(session);
    return (struct pool_request){.model = model,
                                 .objective = request->objective,
                                 .session = request->session,
                                 .prompt = pick_session_prompt(session),
                                 .headers = {.find = find_header, .of = request},
                                 .n_tokens = pick_session_tokens(session),
                                 .subset = request->has_hint ? &request->hint : NULL,
                                 .selection = request->has_selection ? &request->selection : NULL,
                                 .n_fallbacks = n_fallbacks,
                                 .fairness = request->fairness};
}

/* ---- another name ---------------------------------------------------------------------------- */

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for the model's new name");
}

static enum status rename_path(struct pick_session *session, struct str name,
                               struct pick_draft *draft, struct error *err) {
    struct str old = pick_session_request(session)->path;
    struct buf path;
    if (str_eq(name, session->where.model)) {
        return ST_OK;
    }
    buf_init(&path, session->arena, old.len + name.len);
    pick_path_print(&path, &session->where, old, name);
    draft->news.path = buf_str(&path);
    metric_add(METRIC_PICK_REWRITTEN_TOTAL, 1);
    return path.failed ? no_memory(err) : ST_OK;
}

/* The client's Content-Length stays right; where it sent none, none is made. */
static enum status fit_length(struct pick_session *session, struct pick_draft *draft,
                              struct error *err) {
    struct str said = pick_session_request(session)->content_length;
    uint64_t length;
    if (draft->edits.growth == 0 || !num_parse_u64(said, &length)) {
        return ST_OK;
    }
    length += (uint64_t)draft->edits.growth;
    draft->news.content_length = arena_printf(session->arena, "%llu", (unsigned long long)length);
    return draft->news.content_length.ptr ? ST_OK : no_memory(err);
}

static enum status rename_body(struct pick_session *session, struct str name,
                               struct pick_draft *draft, struct error *err) {
    if (str_eq(name, pick_scan_name(session->scan))) {
        return ST_OK;
    }
    metric_add(METRIC_PICK_REWRITTEN_TOTAL, 1);
    enum status st = pick_scan_edit(session->scan, session->arena, name, &draft->edits, err);
    return st == ST_OK ? fit_length(session, draft, err) : st;
}

/* `name`: ptr NULL: the one that the request has. */
static enum status call_it(struct pick_session *session, struct str name, struct pick_draft *draft,
                           struct error *err) {
    if (!name.ptr) {
        return ST_OK;
    }
    if (session->where.kind == PICK_PATH_V2) {
        return rename_path(session, name, draft, err);
    }
    if (session->scan && !session->raised) {
        return rename_body(session, name, draft, err);
    }
    if (session->scan) { /* the body is still to come */
        session->target = arena_dup(session->arena, name);
        return session->target.ptr ? ST_OK : no_memory(err);
    }
    return ST_OK;
}

/* What the request is sent on as: the configuration's name, else that of the header. */
static struct str new_name(const struct pick_session *session, const struct pool_pick *pick) {
    return pick->target.ptr ? pick->target : pick_session_request(session)->rewrite;
}

/* ---- picks ----------------------------------------------------------------------------------- */

static bool is_of_held(const struct pick_session *session) {
    return session->phase == PICK_HELD ||
           (session->phase == PICK_WAITING && session->wait->point == PICK_AT_HELD);
}

bool pick_session_choose(struct pick_session *session, struct str model, struct pick_draft *draft) {
    const struct pool_spec *spec = pick_session_spec(session);
    const struct protocol *protocol = &spec->protocol;
    enum protocol_fallback fallback = protocol->fallback;
    struct pool_request asked =
        question(session, model, fallback == FALLBACK_NONE ? 0 : protocol->n_fallbacks);
    struct pool_pick pick;
    struct pool_trace trace = {.n = 0};
    struct error err;
    bool at_body = draft->news.kind == EXT_PROC_REQUEST_BODY || is_of_held(session);
    session->named = model;
    asked.trace = log_enabled(LOG_DEBUG) ? &trace : NULL;
    enum status st = ST_OK;
    /* Should waiting be switched on in this moment, this one does not wait. */
    if (session->wait || (session->means.bell && spec->flow_control.on)) {
        st = pick_session_may_wait(session, &asked, &err);
    }
    if (st == ST_OK) {
        st = pool_pick(session->means.reader, &asked, &pick, &err);
    }
    if (st == ST_OK && !pick.ticket.endpoint) {
        pick_session_wait(session);
        return false;
    }
    if (st == ST_OK) {
        session->ticket = pick.ticket;
        st = pick_choice_print(session->arena, &pick, fallback, &draft->choice, &err);
    }
    if (st == ST_OK) {
        st = call_it(session, new_name(session, &pick), draft, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
        return false;
    }
    draft->news.choice = &draft->choice;
    pick_session_note(session, &(struct pick_note){.model = model,
                                                   .target = new_name(session, &pick),
                                                   .pick = &pick,
                                                   .trace = asked.trace,
                                                   .at_body = at_body});
    pick_count_pick(at_body, pick.way);
    if (model.ptr || !session->raised) {
        pick_count_model(session->found);
    }
    return true;
}

bool pick_session_match(struct pick_session *session, struct pick_draft *draft) {
    struct pool_pick pick = {.target = session->target};
    struct error err;
    enum status st = ST_OK;
    session->raised = false;
    session->named = pick_scan_name(session->scan);
    if (!session->asked.ptr) {
        struct pool_request asked = question(session, pick_scan_name(session->scan), 0);
        st = pool_check(session->means.reader, &asked, &session->ticket, &pick, &err);
        pick_count_model(PICK_FOUND_BODY);
    }
    if (st == ST_OK) {
        st = call_it(session, new_name(session, &pick), draft, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    }
    return st == ST_OK;
}

bool pick_session_tell(struct pick_session *session, const struct pick_draft *draft) {
    struct error err;
    enum status st =
        pick_tell(&session->outbox, &pick_session_spec(session)->protocol, &draft->news, &err);
    if (st != ST_OK) {
        pick_session_break(session, &err);
    }
    return st == ST_OK;
}

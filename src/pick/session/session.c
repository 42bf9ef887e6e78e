/* A session's life: which message goes where, how it ends. */
#include "pick/session/state.h"

#include <assert.h>

/* ---- phases ---------------------------------------------------------------------------------- */

void pick_session_enter(struct pick_session *session, enum pick_phase phase) {
    static const unsigned before[] = {
        [PICK_HELD] = 1u << PICK_NEW,
        [PICK_AWAITED] = 1u << PICK_NEW,
        [PICK_WAITING] = 1u << PICK_NEW | 1u << PICK_HELD | 1u << PICK_AWAITED,
        [PICK_PICKED] = 1u << PICK_NEW | 1u << PICK_HELD | 1u << PICK_AWAITED | 1u << PICK_WAITING,
        [PICK_PASSED] = 1u << PICK_HELD | 1u << PICK_AWAITED | 1u << PICK_WAITING,
        [PICK_OVER] = ~0u,
    };
    assert(before[phase] >> session->phase & 1);
    session->phase = phase;
}

const struct pool_spec *pick_session_spec(struct pick_session *session) {
    return pool_look(session->means.reader)->spec;
}

void pick_session_give_back(struct pick_session *session) {
    pool_give_back(session->means.pool, &session->ticket);
}

void pick_session_drop_headers(struct pick_session *session) {
    if (session->headers) {
        pick_let_go(session->headers);
        session->headers = NULL;
    }
    session->asked = session->named = str_make(NULL, 0);
    session->request = NULL;
}

void pick_session_note(struct pick_session *session, struct pick_note *note) {
    const struct pick_out *out = &session->outbox.out;
    if (out->note) {
        note->line = session->line;
        note->id = pick_session_request(session)->id;
        note->pool = pool_name(session->means.pool);
        if (note->pick) { /* which may not be looked past */
            note->known = note->pick->known_model;
            note->pool = note->pool.len > 0 ? note->pool : note->pick->pool;
        } else {
            const struct pool_snapshot *snapshot = pool_look(session->means.reader);
            note->known = note->model.ptr && pool_snapshot_name(snapshot, note->model);
            note->pool = note->pool.len > 0 ? note->pool : snapshot->spec->name;
        }
        note->endpoint = session->ticket.endpoint;
        out->note(out->user, note);
    }
}

/* For the note of a request that gets no endpoint. */
static struct str model_of(const struct pick_session *session) {
    return session->named.ptr ? session->named : session->asked;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Nothing more is said. */
static void end(struct pick_session *session, const struct error *why) {
    pick_session_stop_waiting(session, FLOW_REFUSED);
    pick_session_enter(session, PICK_OVER);
    pick_held_drop(&session->held);
    pick_session_drop_headers(session);
    pick_session_give_back(session);
    pick_outbox_finish(&session->outbox, why);
}

void pick_session_break(struct pick_session *session, const struct error *why) {
    if (session->phase != PICK_OVER) {
        if (why) {
            pick_session_note(session, &(struct pick_note){.model = model_of(session), .why = why});
        }
        end(session, why);
    }
}

void pick_session_illegal(struct pick_session *session, const char *what) {
    struct error err;
    error_set(&err, ST_BAD_REQUEST, "%s", what);
    metric_add(METRIC_PICK_ILLEGAL_TOTAL, 1);
    pick_session_break(session, &err);
}

void pick_session_refuse(struct pick_session *session, const struct error *why) {
    struct error err;
    pick_session_note(session, &(struct pick_note){.model = model_of(session), .why = why});
    enum status st = pick_refuse(&session->outbox, session->arena, pick_session_spec(session),
                                 pick_session_request(session), why, &err);
    end(session, st == ST_OK ? NULL : &err);
}

void pick_session_nod(struct pick_session *session, enum ext_proc_kind kind) {
    struct error err;
    if (pick_tell_nothing(&session->outbox, kind, &err) != ST_OK) {
        pick_session_break(session, &err);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

struct pick_kept *pick_session_keep(struct pick_session *session) {
    if (!session->kept) {
        session->kept = pick_keep(&session->outbox, session->message);
    }
    if (!session->kept) {
        struct error err;
        error_set(&err, ST_NO_MEMORY, "no memory to hold a message of the proxy's");
        pick_session_break(session, &err);
    }
    return session->kept;
}

/* Clause: ext-proc, ProcessingRequest: messages of a proxy newer than this list are left alone. */
static void dispatch(struct pick_session *session, const struct ext_proc_request *message) {
    switch (message->kind) {
    case EXT_PROC_NONE:
        break;
    case EXT_PROC_REQUEST_HEADERS:
        pick_session_on_headers(session, message);
        break;
    case EXT_PROC_REQUEST_BODY:
        pick_session_on_body(session, message);
        break;
    case EXT_PROC_REQUEST_TRAILERS:
        pick_session_on_trailers(session);
        break;
    case EXT_PROC_RESPONSE_HEADERS:
        pick_session_on_answer_headers(session, message);
        break;
    case EXT_PROC_RESPONSE_BODY:
        pick_session_on_answer_body(session, message);
        break;
    case EXT_PROC_RESPONSE_TRAILERS:
        pick_session_on_answer_trailers(session, message);
        break;
    }
}

/* protocol_config comes with the first message, whatever it is. */
static void configure(struct pick_session *session, const struct ext_proc_request *message) {
    if (message->has_config && !session->configured) {
        session->config = message->config;
        session->configured = true;
    }
}

void pick_session_step(struct pick_session *session, struct str data) {
    struct ext_proc_request message;
    struct error err;
    if (ext_proc_request_decode(data, &message, &err) != ST_OK) {
        metric_add(METRIC_PICK_ILLEGAL_TOTAL, 1);
        pick_session_break(session, &err);
        return;
    }
    if (message.observes && !session->observed) {
        session->observed = true;
        metric_add(METRIC_PICK_OBSERVED_TOTAL, 1);
    }
    if (!session->observed) {
        configure(session, &message);
        dispatch(session, &message);
    }
}

void pick_session_take(struct pick_session *session, const struct pick_message *message) {
    session->message = message;
    if (session->phase != PICK_OVER) {
        pick_session_step(session, message->data);
    }
    if (session->kept) {
        pick_let_go(session->kept);
    } else if (message->release) {
        message->release(message->cookie);
    }
    session->message = NULL;
    session->kept = NULL;
}

void pick_session_half_close(struct pick_session *session) {
    pick_session_break(session, NULL);
}

/* Until the request's body has ended its messages are parts of that, or large answers would be. */
void pick_session_untaken(struct pick_session *session, const struct error *why) {
    bool awaited = session->phase == PICK_HELD || session->phase == PICK_AWAITED ||
                   session->phase == PICK_WAITING ||
                   (session->phase == PICK_PICKED && session->raised);
    if (awaited && !session->answer_begun && !session->request_ended) {
        pick_session_refuse(session, why);
    } else {
        pick_session_break(session, why);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

bool pick_session_owes(const struct pick_session *session) {
    return session->phase == PICK_HELD;
}

/* Returns: ST_WAIT_EXPIRED; ST_NO_ENDPOINT where it is not for their load that nobody takes it. */
static enum status say_expired(struct pick_session *session, struct error *err) {
    const struct pool_flow_control *flow = &pick_session_spec(session)->flow_control;
    unsigned long long ms = flow->max_wait_ns / 1000000;
    struct pool_numbers numbers;
    pool_read(session->means.pool, &numbers);
    if (numbers.n_ready + numbers.n_unchecked == 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "none of the pool's %u endpoints is ready any more, after a wait of %llu "
                         "ms (flow_control: max_wait in the picker's configuration)",
                         numbers.n_endpoints, ms);
    }
    return error_set(err, ST_WAIT_EXPIRED,
                     "every endpoint was full for as long as a request may wait, which is %llu ms "
                     "(flow_control: max_wait in the picker's configuration)",
                     ms);
}

static void expire(struct pick_session *session) {
    struct error err;
    (void)say_expired(session, &err);
    pick_session_stop_waiting(session, FLOW_EXPIRED);
    pick_session_refuse(session, &err);
}

void pick_session_time_out(struct pick_session *session) {
    struct error err;
    if (session->phase == PICK_WAITING) {
        expire(session);
    } else if (pick_session_owes(session) && pick_session_is_ready(session)) {
        pick_session_conclude(session);
    } else if (pick_session_owes(session)) {
        error_set(&err, ST_REQUEST_TIMEOUT,
                  "the model must be named within the first part of the body: after %llu ms and "
                  "%llu bytes it was not (--answer-timeout)",
                  (unsigned long long)(session->means.limits.answer_timeout_ns / 1000000),
                  (unsigned long long)session->held.n_bytes);
        pick_session_refuse(session, &err);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

struct pick_session *pick_session_new(struct arena *arena, const struct pick_means *means,
                                      const struct pick_out *out) {
    struct pick_session *session = arena_alloc(arena, sizeof(*session));
    if (session) {
        *session = (struct pick_session){.arena = arena, .means = *means};
        session->config.request_body = session->config.response_body = EXT_PROC_BODY_STREAMED;
        pick_outbox_init(&session->outbox, arena, out);
        pick_held_init(&session->held, means->limits.max_body_bytes);
        pick_session_begin_pool(session);
        pick_count_begin();
    }
    return session;
}

void pick_session_free(struct pick_session *session) {
    if (session) {
        pick_count_end(session->phase == PICK_HELD || session->phase == PICK_WAITING);
        pick_session_stop_waiting(session, FLOW_ABORTED);
        pick_held_drop(&session->held);
        if (session->headers) {
            pick_session_drop_headers(session);
        }
        pick_session_give_back(session);
        pick_outbox_fini(&session->outbox);
        pool_reader_free(session->means.reader);
    }
}

/* ---- for people ------------------------------------------------------------------------------ */

static const char *what_of(const struct pick_session *session) {
    switch (session->phase) {
    case PICK_NEW:
        return session->observed ? "observed" : "before its headers";
    case PICK_HELD:
    case PICK_AWAITED:
        return "until its body names the model";
    case PICK_WAITING:
        return "until an endpoint has room";
    case PICK_PICKED:
        return session->answer_ended   ? "answered"
               : session->answer_begun ? "in the answer"
                                       : "in the request";
    case PICK_PASSED:
        return "answered by the proxy";
    case PICK_OVER:
        break;
    }
    return "over";
}

void pick_session_describe(const struct pick_session *session, struct buf *out) {
    const struct endpoint *endpoint = session->ticket.endpoint;
    buf_add_str(out, session->line);
    if (endpoint) {
        buf_printf(out, " → %.*s", STR_ARG(endpoint_text(endpoint)));
    }
    buf_printf(out, "%s%s", session->line.len > 0 ? ", " : "", what_of(session));
}

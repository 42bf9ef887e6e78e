/* A session's life: which message goes where, how it ends. */
#include "pick/session/state.h"

#include <assert.h>

/* ---- phases ---------------------------------------------------------------------------------- */

void pick_session_set_phase(struct pick_session *session, enum pick_phase phase) {
    static const unsigned before[] = {
        [PICK_HEADERS_HELD] = 1u << PICK_HEADERS_EXPECTED,
        [PICK_BODY_PENDING] = 1u << PICK_HEADERS_EXPECTED,
        [PICK_QUEUED] =
            1u << PICK_HEADERS_EXPECTED | 1u << PICK_HEADERS_HELD | 1u << PICK_BODY_PENDING,
        [PICK_PICKED] = 1u << PICK_HEADERS_EXPECTED | 1u << PICK_HEADERS_HELD |
                        1u << PICK_BODY_PENDING | 1u << PICK_QUEUED,
        [PICK_LOCAL_REPLY] = 1u << PICK_HEADERS_HELD | 1u << PICK_BODY_PENDING | 1u << PICK_QUEUED,
        [PICK_ENDED] = ~0u,
    };
    assert(before[phase] >> session->phase & 1);
    session->phase = phase;
}

const struct pool_spec *pick_session_spec(struct pick_session *session) {
    return pool_reader_refresh(session->context.reader)->spec;
}

void pick_session_release_ticket(struct pick_session *session) {
    pool_release_ticket(session->context.pool, &session->ticket);
}

void pick_session_release_headers(struct pick_session *session) {
    if (session->headers) {
        pick_message_unref(session->headers);
        session->headers = NULL;
    }
    session->requested = session->body_model = str_make(NULL, 0);
    session->request = NULL;
}

void pick_session_report(struct pick_session *session, struct pick_outcome *outcome) {
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    if (out->outcome) {
        outcome->request_line = session->request_line;
        outcome->id = pick_session_request(session)->id;
        outcome->pool = pool_name(session->context.pool);
        if (outcome->pick) { /* which may not be looked past */
            outcome->known = outcome->pick->known_model;
            outcome->pool = outcome->pool.len > 0 ? outcome->pool : outcome->pick->pool;
        } else {
            const struct pool_snapshot *snapshot = pool_reader_refresh(session->context.reader);
            outcome->known =
                outcome->model.ptr && pool_snapshot_find_name(snapshot, outcome->model);
            outcome->pool = outcome->pool.len > 0 ? outcome->pool : snapshot->spec->name;
        }
        outcome->endpoint = session->ticket.endpoint;
        out->outcome(out->user, outcome);
    }
}

/* For the note of a request that gets no endpoint. */
static struct str last_known_model(const struct pick_session *session) {
    return session->body_model.ptr ? session->body_model : session->requested;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Nothing more is said. */
static void end_session(struct pick_session *session, const struct error *why) {
    pick_queue_stop_wait(session, FLOW_REFUSED);
    pick_session_set_phase(session, PICK_ENDED);
    pick_body_buffer_clear(&session->body_buffer);
    pick_session_release_headers(session);
    pick_session_release_ticket(session);
    pick_send_queue_finish(&session->send_queue, why);
}

void pick_session_abort(struct pick_session *session, const struct error *why) {
    if (session->phase != PICK_ENDED) {
        if (why) {
            pick_session_report(
                session, &(struct pick_outcome){.model = last_known_model(session), .why = why});
        }
        end_session(session, why);
    }
}

void pick_session_protocol_error(struct pick_session *session, const char *what) {
    struct error err;
    error_set(&err, ST_BAD_REQUEST, "%s", what);
    metric_add(METRIC_PICK_ILLEGAL_TOTAL, 1);
    pick_session_abort(session, &err);
}

void pick_session_refuse(struct pick_session *session, const struct error *why) {
    struct error err;
    pick_session_report(session,
                        &(struct pick_outcome){.model = last_known_model(session), .why = why});
    enum status st =
        pick_send_refusal(&session->send_queue, session->arena, pick_session_spec(session),
                          pick_session_request(session), why, &err);
    end_session(session, st == ST_OK ? NULL : &err);
}

void pick_session_send_continue(struct pick_session *session, enum ext_proc_kind kind) {
    struct error err;
    if (pick_send_continue(&session->send_queue, kind, &err) != ST_OK) {
        pick_session_abort(session, &err);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

struct pick_message_ref *pick_session_ref_message(struct pick_session *session) {
    if (!session->message_ref) {
        session->message_ref = pick_message_ref_new(&session->send_queue, session->message);
    }
    if (!session->message_ref) {
        struct error err;
        error_set(&err, ST_NO_MEMORY, "no memory to hold a message of the proxy's");
        pick_session_abort(session, &err);
    }
    return session->message_ref;
}

/* Clause: ext-proc, ProcessingRequest: messages of a proxy newer than this list are left alone. */
static void dispatch_message(struct pick_session *session, const struct ext_proc_request *message) {
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
        pick_session_on_response_headers(session, message);
        break;
    case EXT_PROC_RESPONSE_BODY:
        pick_session_on_response_body(session, message);
        break;
    case EXT_PROC_RESPONSE_TRAILERS:
        pick_session_on_response_trailers(session, message);
        break;
    }
}

/* protocol_config comes with the first message, whatever it is. */
static void set_config(struct pick_session *session, const struct ext_proc_request *message) {
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
        pick_session_abort(session, &err);
        return;
    }
    if (message.observability_mode && !session->observed) {
        session->observed = true;
        metric_add(METRIC_PICK_OBSERVED_TOTAL, 1);
    }
    if (!session->observed) {
        set_config(session, &message);
        dispatch_message(session, &message);
    }
}

void pick_session_on_message(struct pick_session *session, const struct pick_message *message) {
    session->message = message;
    if (session->phase != PICK_ENDED) {
        pick_session_step(session, message->data);
    }
    if (session->message_ref) {
        pick_message_unref(session->message_ref);
    } else if (message->release) {
        message->release(message->cookie);
    }
    session->message = NULL;
    session->message_ref = NULL;
}

void pick_session_half_close(struct pick_session *session) {
    pick_session_abort(session, NULL);
}

/* Until the request's body has ended its messages are parts of that, or large answers would be. */
void pick_session_on_message_rejected(struct pick_session *session, const struct error *why) {
    bool awaited = session->phase == PICK_HEADERS_HELD || session->phase == PICK_BODY_PENDING ||
                   session->phase == PICK_QUEUED ||
                   (session->phase == PICK_PICKED && session->mode_overridden);
    if (awaited && !session->response_started && !session->request_ended) {
        pick_session_refuse(session, why);
    } else {
        pick_session_abort(session, why);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

bool pick_session_is_response_pending(const struct pick_session *session) {
    return session->phase == PICK_HEADERS_HELD;
}

/* Returns: ST_WAIT_EXPIRED; ST_NO_ENDPOINT where it is not for their load that nobody takes it. */
static enum status queue_timeout_error(struct pick_session *session, struct error *err) {
    const struct pool_flow_control *flow = &pick_session_spec(session)->flow_control;
    unsigned long long ms = flow->max_wait_ns / 1000000;
    struct pool_stats pool_counts;
    pool_get_stats(session->context.pool, &pool_counts);
    if (pool_counts.n_ready + pool_counts.n_unchecked == 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "none of the pool's %u endpoints is ready any more, after a wait of %llu "
                         "ms (flow_control: max_wait in the picker's configuration)",
                         pool_counts.n_endpoints, ms);
    }
    return error_set(err, ST_WAIT_EXPIRED,
                     "every endpoint was full for as long as a request may wait, which is %llu ms "
                     "(flow_control: max_wait in the picker's configuration)",
                     ms);
}

static void expire_wait(struct pick_session *session) {
    struct error err;
    (void)queue_timeout_error(session, &err);
    pick_queue_stop_wait(session, FLOW_EXPIRED);
    pick_session_refuse(session, &err);
}

void pick_session_on_timeout(struct pick_session *session) {
    struct error err;
    if (session->phase == PICK_QUEUED) {
        expire_wait(session);
    } else if (pick_session_is_response_pending(session) && pick_session_can_pick(session)) {
        pick_session_pick_and_flush(session);
    } else if (pick_session_is_response_pending(session)) {
        error_set(&err, ST_REQUEST_TIMEOUT,
                  "the model must be named within the first part of the body: after %llu ms and "
                  "%llu bytes it was not (--answer-timeout)",
                  (unsigned long long)(session->context.limits.answer_timeout_ns / 1000000),
                  (unsigned long long)session->body_buffer.n_bytes);
        pick_session_refuse(session, &err);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

struct pick_session *pick_session_new(struct arena *arena, const struct pick_context *context,
                                      const struct pick_callbacks *out) {
    struct pick_session *session = arena_alloc(arena, sizeof(*session));
    if (session) {
        *session = (struct pick_session){.arena = arena, .context = *context};
        session->config.request_body = session->config.response_body = EXT_PROC_BODY_STREAMED;
        pick_send_queue_init(&session->send_queue, arena, out);
        pick_body_buffer_init(&session->body_buffer, context->limits.max_body_size);
        pick_session_init_pool(session);
        pick_count_stream_start();
    }
    return session;
}

void pick_session_free(struct pick_session *session) {
    if (session) {
        pick_count_stream_end(session->phase == PICK_HEADERS_HELD || session->phase == PICK_QUEUED);
        pick_queue_stop_wait(session, FLOW_ABORTED);
        pick_body_buffer_clear(&session->body_buffer);
        if (session->headers) {
            pick_session_release_headers(session);
        }
        pick_session_release_ticket(session);
        pick_send_queue_fini(&session->send_queue);
        pool_reader_unref(session->context.reader);
    }
}

/* ---- for people ------------------------------------------------------------------------------ */

static const char *phase_text(const struct pick_session *session) {
    switch (session->phase) {
    case PICK_HEADERS_EXPECTED:
        return session->observed ? "observed" : "before its headers";
    case PICK_HEADERS_HELD:
    case PICK_BODY_PENDING:
        return "until its body names the model";
    case PICK_QUEUED:
        return "until an endpoint has room";
    case PICK_PICKED:
        return session->response_ended     ? "answered"
               : session->response_started ? "in the answer"
                                           : "in the request";
    case PICK_LOCAL_REPLY:
        return "answered by the proxy";
    case PICK_ENDED:
        break;
    }
    return "over";
}

void pick_session_describe(const struct pick_session *session, struct buf *out) {
    const struct endpoint *endpoint = session->ticket.endpoint;
    buf_add_str(out, session->request_line);
    if (endpoint) {
        buf_printf(out, " → %.*s", STR_ARG(endpoint_text(endpoint)));
    }
    buf_printf(out, "%s%s", session->request_line.len > 0 ? ", " : "", phase_text(session));
}

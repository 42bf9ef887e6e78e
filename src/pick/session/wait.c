/* A request that waits for room. What it would have said is said when it is called; what comes of
 * it until then is put off, whole messages as they are, and taken behind that. */
#include <inttypes.h>

#include "pick/session/state.h"

/* What a stream costs besides its bytes, and what a message does: each has memory of its own, some
 * KiB, whatever is in it. */
enum { STREAM_BYTES = 4096, MESSAGE_BYTES = 4096 + 256 };

/* What the request holds, as the queue counts it. */
static uint64_t weight_of(const struct pick_session *session) {
    uint64_t n_message = session->message ? session->message->data.len : 0;
    uint64_t n_headers = session->headers ? session->headers->message.data.len : 0;
    return STREAM_BYTES + n_message + n_headers + session->held.n_bytes +
           pick_session_prompt_bytes(session);
}

static uint64_t cost_of(const struct pick_kept *kept) {
    return MESSAGE_BYTES + kept->message.data.len;
}

/* ---- what comes meanwhile -------------------------------------------------------------------- */

/* Returns: false when out of memory, and the stream has ended. */
static bool keep_for_later(struct pick_session *session) {
    struct pick_wait *wait = session->wait;
    struct pick_later *later = arena_alloc(session->arena, sizeof(*later));
    struct pick_kept *kept = later ? pick_session_keep(session) : NULL;
    if (!later) {
        struct error err;
        error_set(&err, ST_NO_MEMORY, "no memory to hold a message of the proxy's");
        pick_session_break(session, &err);
    }
    if (!kept) {
        return false;
    }
    kept->n_users++;
    *later = (struct pick_later){.kept = kept};
    *wait->end = later;
    wait->end = &later->next;
    wait->n_bytes += cost_of(kept);
    metric_add(METRIC_PICK_HELD_BYTES, (int64_t)kept->message.data.len);
    return true;
}

void pick_session_put_off(struct pick_session *session) {
    uint64_t n_bytes = session->message->data.len + MESSAGE_BYTES;
    struct error err;
    if (!keep_for_later(session) ||
        pool_waiter_grow(session->means.pool, &session->wait->waiter, n_bytes)) {
        return;
    }
    error_set(&err, ST_SATURATED,
              "every endpoint is full, and what comes of this request while it waits is more than "
              "the queue may hold, which is %" PRIu64 " bytes (flow_control: max_bytes in the "
              "picker's configuration)",
              pick_session_spec(session)->flow_control.limits.max_bytes);
    pick_session_refuse(session, &err);
}

/* The next of what was put off, which is the caller's now. Returns: NULL when there is none. */
static struct pick_kept *take_later(struct pick_wait *wait) {
    struct pick_later *later = wait->first;
    if (!later) {
        return NULL;
    }
    wait->first = later->next;
    wait->end = wait->first ? wait->end : &wait->first;
    wait->n_bytes -= cost_of(later->kept);
    metric_add(METRIC_PICK_HELD_BYTES, -(int64_t)later->kept->message.data.len);
    return later->kept;
}

/* ---- waiting --------------------------------------------------------------------------------- */

enum status pick_session_may_wait(struct pick_session *session, struct pool_request *asked,
                                  struct error *err) {
    struct pick_wait *wait = session->wait;
    if (!wait) {
        wait = arena_calloc(session->arena, 1, sizeof(*wait));
        if (!wait) {
            return error_set(err, ST_NO_MEMORY, "no memory for a request that may have to wait");
        }
        wait->waiter.bell = session->means.bell;
        wait->session = session;
        wait->end = &wait->first;
        session->wait = wait;
    }
    asked->waiter = &wait->waiter;
    asked->n_bytes = weight_of(session);
    return ST_OK;
}

/* The headers are needed for another pick; of a buffered body, too, the message at hand. */
void pick_session_wait(struct pick_session *session) {
    struct pick_wait *wait = session->wait;
    if (session->phase == PICK_WAITING) {
        return;
    }
    wait->point = session->phase == PICK_HELD      ? PICK_AT_HELD
                  : session->phase == PICK_AWAITED ? PICK_AT_BODY
                                                   : PICK_AT_HEADERS;
    pick_session_enter(session, PICK_WAITING);
    if (wait->point == PICK_AT_BODY) {
        keep_for_later(session);
    } else if (!session->headers) {
        session->headers = pick_session_keep(session);
        if (session->headers) {
            session->headers->n_users++;
        }
    }
}

void pick_session_stop_waiting(struct pick_session *session, enum flow_outcome outcome) {
    struct pick_kept *kept;
    if (session->phase != PICK_WAITING) {
        return;
    }
    pool_leave(session->means.pool, &session->wait->waiter, outcome);
    while ((kept = take_later(session->wait))) {
        pick_let_go(kept);
    }
}

void pick_session_abandon(struct pick_session *session) {
    if (session->phase == PICK_WAITING) {
        pool_leave(session->means.pool, &session->wait->waiter, FLOW_ABORTED);
    }
}

uint64_t pick_session_waits_until(const struct pick_session *session) {
    return session->phase == PICK_WAITING ? session->wait->waiter.until_ns : 0;
}

bool pick_session_is_stuffed(const struct pick_session *session) {
    return session->phase == PICK_WAITING &&
           session->wait->n_bytes + session->held.n_bytes > session->means.limits.max_body_bytes;
}

void pick_session_tick(const struct pick_session *session, uint64_t gap_ns) {
    pool_tick(session->means.pool, gap_ns);
}

/* ---- going on -------------------------------------------------------------------------------- */

/* What was put off is the message at hand now. */
static void take_up(struct pick_session *session, struct pick_kept *kept) {
    session->message = &kept->message;
    session->kept = kept;
}

static void put_down(struct pick_session *session, struct pick_kept *kept) {
    session->message = NULL;
    session->kept = NULL;
    pick_let_go(kept);
}

/* The body's message is the first of what was put off, and stays there should it wait on. */
static void pick_at_body(struct pick_session *session) {
    struct pick_kept *kept = session->wait->first->kept;
    struct ext_proc_request message;
    struct error err;
    kept->n_users++;
    take_up(session, kept);
    if (ext_proc_request_decode(kept->message.data, &message, &err) == ST_OK) { /* as before */
        pick_session_at_body(session, &message);
    }
    put_down(session, kept);
    if (session->phase == PICK_PICKED) {
        pick_let_go(take_later(session->wait));
    }
}

static void pick_again(struct pick_session *session) {
    switch (session->wait->point) {
    case PICK_AT_HEADERS:
        pick_session_at_headers(session);
        break;
    case PICK_AT_HELD:
        pick_session_conclude(session);
        break;
    case PICK_AT_BODY:
        pick_at_body(session);
        break;
    }
}

static void replay(struct pick_session *session) {
    struct pick_kept *kept;
    while ((kept = take_later(session->wait))) {
        take_up(session, kept);
        if (session->phase != PICK_OVER) {
            pick_session_step(session, kept->message.data);
        }
        put_down(session, kept);
    }
}

void pick_session_resume(struct pool_waiter *waiter) {
    struct pick_session *session = ((struct pick_wait *)(void *)waiter)->session;
    const struct pick_out *out = &session->outbox.out;
    pick_again(session);
    if (session->phase != PICK_WAITING) {
        if (session->phase == PICK_PICKED && !session->raised) {
            pick_session_drop_headers(session);
        }
        replay(session);
    }
    if (out->went_on) {
        out->went_on(out->user);
    }
}

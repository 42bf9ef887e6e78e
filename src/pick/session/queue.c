/* Queueing: a request for which no endpoint has capacity waits here until the pool admits it.
 * Messages that the proxy sends meanwhile are buffered and processed in order after admission. */
#include <inttypes.h>

#include "core/event/clock.h"
#include "pick/session/state.h"

/* Charged against flow_control.max_bytes besides the payload, for a stream of any size; messages
 * cost PICK_MESSAGE_OVERHEAD_BYTES each. */
enum { STREAM_OVERHEAD_BYTES = 4096 };

/* The memory of the request, as flow control counts it. */
static uint64_t request_bytes(const struct pick_session *session) {
    uint64_t n_message = session->message ? session->message->data.len : 0;
    uint64_t n_headers = session->headers ? session->headers->message.data.len : 0;
    if (session->state == PICK_QUEUED) { /* a former stage has waited: the message is buffered */
        n_message = session->queue_entry->n_bytes;
    }
    return STREAM_OVERHEAD_BYTES + n_message + n_headers + session->body_buffer.n_bytes +
           pick_session_prompt_bytes(session);
}

static uint64_t message_bytes(const struct pick_message_ref *message_ref) {
    return PICK_MESSAGE_OVERHEAD_BYTES + message_ref->message.data.len;
}

/* For statistics. */
static void report(const struct pick_session *session, const struct pick_queue_event *event) {
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    if (out->on_queue) {
        out->on_queue(out->user, event);
    }
}

/* ---- buffered messages ----------------------------------------------------------------------- */

/* Returns: false when out of memory; the stream has ended. */
static bool buffer_message(struct pick_session *session) {
    struct pick_queue_entry *entry = session->queue_entry;
    struct pick_buffered_message *buffered = arena_alloc(session->arena, sizeof(*buffered));
    struct pick_message_ref *message_ref = buffered ? pick_session_ref_message(session) : NULL;
    if (!buffered) {
        struct error err;
        error_no_memory(&err, "a message of the proxy");
        pick_session_abort(session, &err);
    }
    if (!message_ref) {
        return false;
    }
    message_ref->n_refs++;
    *buffered = (struct pick_buffered_message){.message_ref = message_ref};
    STAILQ_INSERT_TAIL(&entry->buffered, buffered, link);
    entry->n_bytes += message_bytes(message_ref);
    entry->n_buffered++;
    metric_add(METRIC_PICK_HELD_BYTES, (int64_t)message_ref->message.data.len);
    return true;
}

void pick_queue_push_message(struct pick_session *session) {
    uint64_t n_bytes = session->message->data.len + PICK_MESSAGE_OVERHEAD_BYTES;
    struct error err;
    report(session, &(struct pick_queue_event){.what = PICK_QUEUE_GROWN, .n_bytes = n_bytes});
    if (!buffer_message(session) ||
        pool_waiter_add_bytes(session->context.pool, &session->queue_entry->waiter, n_bytes)) {
        return;
    }
    error_set(&err, ST_SATURATED,
              "request queue full: buffered messages exceed flow_control.max_bytes (%" PRIu64
              " bytes)",
              pick_session_spec(session)->flow_control.limits.max_bytes);
    pick_session_refuse(session, &err);
}

/* Removes the first buffered message; its reference passes to the caller. Returns: NULL when there
 * is none. */
static struct pick_message_ref *pop_buffered(struct pick_queue_entry *entry) {
    struct pick_buffered_message *buffered = STAILQ_FIRST(&entry->buffered);
    if (!buffered) {
        return NULL;
    }
    STAILQ_REMOVE_HEAD(&entry->buffered, link);
    entry->n_bytes -= message_bytes(buffered->message_ref);
    entry->n_buffered--;
    metric_add(METRIC_PICK_HELD_BYTES, -(int64_t)buffered->message_ref->message.data.len);
    return buffered->message_ref;
}

/* ---- waiting --------------------------------------------------------------------------------- */

enum status pick_queue_prepare(struct pick_session *session, struct pool_request *requested,
                               struct error *err) {
    struct pick_queue_entry *entry = session->queue_entry;
    if (!entry) {
        entry = arena_calloc(session->arena, 1, sizeof(*entry));
        if (!entry) {
            return error_no_memory(err, "a queue entry");
        }
        entry->waiter.wakeup = session->context.wakeup;
        entry->session = session;
        STAILQ_INIT(&entry->buffered);
        session->queue_entry = entry;
    }
    requested->waiter = &entry->waiter;
    requested->n_bytes = request_bytes(session);
    return ST_OK;
}

static void report_begin(struct pick_session *session, const struct pool_pick *pick) {
    struct pick_queue_entry *entry = session->queue_entry;
    entry->begun_ns = entry->waiter.item.queued_ns;
    report(session, &(struct pick_queue_event){
                        .what = PICK_QUEUE_BEGUN,
                        .counted = pick_session_counted(session, session->body_model, pick),
                        .n_bytes = request_bytes(session)});
}

/* Only the first report of a wait counts. */
void pick_queue_report_end(struct pick_session *session, enum flow_outcome outcome) {
    struct pick_queue_entry *entry = session->queue_entry;
    if (entry->begun_ns > 0) {
        report(session, &(struct pick_queue_event){
                            .what = PICK_QUEUE_ENDED,
                            .outcome = entry->was_displaced ? FLOW_DISPLACED : outcome,
                            .waited_ns = clock_between_ns(entry->begun_ns, clock_now_ns())});
        entry->begun_ns = 0;
    }
}

/* The next pick needs the headers, and for a buffered body the body message too. */
void pick_queue_start_wait(struct pick_session *session, const struct pool_pick *pick) {
    struct pick_queue_entry *entry = session->queue_entry;
    if (!entry->is_held && entry->begun_ns == 0) {
        report_begin(session, pick);
    }
    if (session->state == PICK_QUEUED) {
        return;
    }
    entry->reply_state = session->state;
    pick_session_set_state(session, PICK_QUEUED);
    if (entry->reply_state == PICK_BODY_PENDING) {
        buffer_message(session);
    } else if (!session->headers) {
        session->headers = pick_session_ref_message(session);
        if (session->headers) {
            session->headers->n_refs++;
        }
    }
}

bool pick_queue_hold(struct pick_session *session, const struct pool_request *requested) {
    struct pick_queue_entry *entry = session->queue_entry;
    entry->burst.wakeup = session->context.wakeup;
    entry->was_held = true;
    entry->hold_until_ns = burst_join(session->context.reader, requested, &entry->burst);
    entry->is_held = entry->hold_until_ns != 0;
    return entry->is_held;
}

static void end_hold(struct pick_session *session) {
    if (session->queue_entry && session->queue_entry->is_held) {
        burst_leave(session->context.pool, &session->queue_entry->burst);
        session->queue_entry->is_held = false;
    }
}

void pick_queue_stop_wait(struct pick_session *session, enum flow_outcome outcome) {
    struct pick_message_ref *message_ref;
    end_hold(session);
    if (session->state == PICK_QUEUED) {
        pool_dequeue(session->context.pool, &session->queue_entry->waiter, outcome);
        pick_queue_report_end(session, outcome);
    }
    while (session->queue_entry && (message_ref = pop_buffered(session->queue_entry))) {
        pick_message_unref(message_ref);
    }
}

bool pick_session_is_buffer_full(const struct pick_session *session) {
    return session->state == PICK_QUEUED &&
           session->queue_entry->n_bytes + session->body_buffer.n_bytes >
               session->context.limits.max_body_size;
}

uint64_t pick_session_held_bytes(const struct pick_session *session) {
    uint64_t n_messages = session->queue_entry ? session->queue_entry->n_buffered : 0;
    n_messages += session->headers != NULL;
    return arena_bytes(session->arena) + session->body_buffer.n_held_bytes +
           n_messages * PICK_MESSAGE_OVERHEAD_BYTES;
}

struct pool_reader *pick_session_reader(const struct pick_session *session) {
    return session->context.reader;
}

/* ---- admission ------------------------------------------------------------------------------- */

void pick_session_set_message(struct pick_session *session, struct pick_message_ref *message_ref) {
    session->message = &message_ref->message;
    session->message_ref = message_ref;
}

void pick_session_clear_message(struct pick_session *session) {
    struct pick_message_ref *message_ref = session->message_ref;
    session->message = NULL;
    session->message_ref = NULL;
    pick_message_unref(message_ref);
}

/* The body message is the first buffered one, and stays buffered if the request waits on. */
static void pick_at_queued_body(struct pick_session *session) {
    struct pick_message_ref *message_ref =
        STAILQ_FIRST(&session->queue_entry->buffered)->message_ref;
    struct ext_proc_request message;
    struct error err;
    message_ref->n_refs++;
    pick_session_set_message(session, message_ref);
    if (ext_proc_request_decode(message_ref->message.data, &message, &err) == ST_OK) { /* it was
                                                                                          decoded
                                                                                          before */
        pick_session_pick_at_body(session, &message);
    }
    pick_session_clear_message(session);
    if (session->state == PICK_PICKED) {
        pick_message_unref(pop_buffered(session->queue_entry));
    }
}

static void pick_again(struct pick_session *session) {
    enum pick_state reply_state = session->queue_entry->reply_state;
    if (reply_state == PICK_HEADERS_HELD) {
        pick_session_pick_and_flush(session);
    } else if (reply_state == PICK_BODY_PENDING) {
        pick_at_queued_body(session);
    } else {
        pick_session_pick_at_headers(session);
    }
}

/* How many buffered messages are processed in one go: a client may send a body in thousands of
 * pieces while its request waits. */
enum { REPLAYED_MESSAGES = 32 };

void pick_queue_replay(struct pick_session *session) {
    struct pick_message_ref *message_ref;
    for (int n = 0; n < REPLAYED_MESSAGES && !session->body_scan.message_ref &&
                    (message_ref = pop_buffered(session->queue_entry));
         n++) {
        pick_session_set_message(session, message_ref);
        pick_session_step(session, message_ref->message.data);
        pick_session_clear_message(session);
    }
}

/* ---- eviction -------------------------------------------------------------------------------- */

/* `priority`: of the pick. */
void pick_queue_hold_lease(struct pick_session *session, int64_t priority) {
    if (session->queue_entry && pick_session_spec(session)->flow_control.evicts) {
        pool_hold_lease(session->context.pool, &session->queue_entry->waiter, priority);
    }
}

void pick_queue_end_lease(struct pick_session *session) {
    if (session->queue_entry) {
        pool_end_lease(session->context.pool, &session->queue_entry->waiter);
    }
}

/* Clause: the body is that of the upstream project's picker. The response has not ended: the lease
 * would have. */
static void evict(struct pick_session *session) {
    struct error err;
    error_set(&err, ST_EVICTED, "request evicted by flow control");
    pick_session_refuse(session, &err);
}

/* ---- resuming -------------------------------------------------------------------------------- */

static void resume(struct pick_session *session) {
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    pick_again(session);
    if (session->state != PICK_QUEUED) {
        if (session->state == PICK_PICKED) {
            pick_session_release_headers(session);
        }
        pick_queue_replay(session);
    }
    if (out->on_resumed) {
        out->on_resumed(out->user);
    }
}

void pick_session_resume(struct pool_waiter *waiter) {
    struct pick_session *session = ((struct pick_queue_entry *)(void *)waiter)->session;
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    if (waiter->lease.is_revoked) {
        evict(session);
        if (out->on_resumed) {
            out->on_resumed(out->user);
        }
        return;
    }
    session->queue_entry->was_displaced = waiter->displaced;
    resume(session);
}

/* The request's window has ended. */
static void resume_held(struct burst_member *member) {
    size_t at = offsetof(struct pick_queue_entry, burst);
    struct pick_queue_entry *entry = (struct pick_queue_entry *)(void *)((char *)member - at);
    struct pick_session *session = entry->session;
    const struct pick_stage *stage = &session->stages.items[session->stages.order[0]];
    if (stage->prompt && member->is_assigned) {
        stage->prompt->text->is_assigned = true;
        stage->prompt->text->assigned = member->target;
    }
    end_hold(session);
    resume(session);
}

/* The first slice of a long prompt, or a pick among thousands of endpoints, takes a tenth of a
 * millisecond: a number of requests would be no limit. */
bool pick_session_resume_some(struct pool_wakeup *wakeup, struct loop_share *time) {
    struct pool_waiter *waiter;
    struct burst_member *member;
    while ((member = pool_wakeup_pop_released(wakeup))) {
        resume_held(member);
        if (loop_share_check(time, LOOP_MESSAGES_NS)) {
            return true;
        }
    }
    while ((waiter = pool_wakeup_pop(wakeup))) {
        pick_session_resume(waiter);
        if (loop_share_check(time, LOOP_MESSAGES_NS)) {
            return true; /* there may be none */
        }
    }
    return false;
}

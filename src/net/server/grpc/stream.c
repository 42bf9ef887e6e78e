/* A call's life: begun by its head, ended by whichever of its three parties (method, client, time)
 * is first, freed when all are through with it. */
#include <assert.h>
#include <stdlib.h>

#include "core/base/metric/metric.h"
#include "net/server/grpc/session.h"

struct grpc_stream *grpc_stream_new(struct grpc_session *session, int32_t id) {
    struct grpc_core *core = session->core;
    struct arena *arena =
        arena_new(worker_arenas(core->worker), (size_t)core->options->limits.request_memory);
    struct grpc_stream *stream = arena ? arena_calloc(arena, 1, sizeof(*stream)) : NULL;
    if (!stream) {
        arena_free(arena);
        return NULL;
    }
    stream->core = core;
    stream->session = session;
    stream->id = id;
    stream->call.arena = arena;
    stream->call.worker = core->worker;
    stream->in.receiver_options = &core->receiver_options;
    stream->next = session->streams;
    if (stream->next) {
        stream->next->prev = stream;
    }
    session->streams = stream;
    session->n_alive++;
    session->n_open++;
    ++*core->n_alive;
    return stream;
}

/* Leaves the session, unless that was closed before. */
static void unlink_stream(struct grpc_stream *stream) {
    struct grpc_session *session = stream->session;
    if (!session) {
        return;
    }
    *(stream->prev ? &stream->prev->next : &session->streams) = stream->next;
    if (stream->next) {
        stream->next->prev = stream->prev;
    }
    session->n_alive--;
    stream->session = NULL;
}

bool grpc_stream_can_free(const struct grpc_stream *stream) {
    return stream->method_state != GRPC_METHOD_ACTIVE && stream->closed &&
           stream->out.n_in_write == 0;
}

void grpc_stream_schedule_sweep(struct grpc_stream *stream) {
    if (!stream->in_sweep_list) {
        stream->in_sweep_list = true;
        stream->ended_next = stream->core->ended;
        stream->core->ended = stream;
    }
    grpc_core_schedule_write(stream->core, stream->session);
}

void grpc_stream_free(struct grpc_stream *stream) {
    struct grpc_core *core = stream->core;
    assert(grpc_stream_can_free(stream) && !stream->in_sweep_list && !stream->out.first);
    unlink_stream(stream);
    if (stream->method_state == GRPC_METHOD_FINISHED) {
        grpc_stream_emit(stream, GRPC_END);
    }
    if (stream->counted) {
        atomic_fetch_sub_explicit(core->n_calls, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, -1);
    }
    --*core->n_alive;
    arena_free(stream->call.arena); /* with the stream itself */
}

/* ---- states ---------------------------------------------------------------------------------- */

#define FROM(answer) (1u << GRPC_RESPONSE_##answer)

void grpc_stream_set_response_state(struct grpc_stream *stream, enum grpc_response_state answer) {
    static const unsigned PREDECESSORS[] = {
        [GRPC_RESPONSE_NONE] = 0,
        [GRPC_RESPONSE_OPEN] = FROM(NONE),
        [GRPC_RESPONSE_ENDING] = FROM(NONE) | FROM(OPEN),
        [GRPC_RESPONSE_SENT] = FROM(ENDING),
    };
    assert(PREDECESSORS[answer] & (1u << stream->response_state));
    if (answer == GRPC_RESPONSE_ENDING && stream->counted) {
        metric_add(METRIC_REQUESTS_TOTAL, 1);
    }
    stream->response_state = (uint8_t)answer;
}

void grpc_stream_update_timer(struct grpc_stream *stream) {
    struct timer_list *timeouts = &stream->core->stream_timers;
    bool sends = stream->out.n_bytes > 0 || stream->response_state == GRPC_RESPONSE_ENDING;
    if (!stream->closed && (sends || grpc_receive_is_waiting(stream))) {
        timer_list_start(timeouts, &stream->timeout, sends ? GRPC_WAIT_WINDOW : GRPC_WAIT_MESSAGE,
                         grpc_core_now(stream->core));
    } else {
        timer_list_stop(timeouts, &stream->timeout);
    }
}

void grpc_stream_emit(struct grpc_stream *stream, enum grpc_event event) {
    bool inner = stream->in_callback;
    stream->in_callback = true;
    stream->call.method->on_event(&stream->call, event);
    stream->in_callback = inner;
    if (!inner && stream->in.n_reads_wanted > 0 && stream->call.method->streams) {
        grpc_receive_deliver(stream); /* it asked from within its step */
    }
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void count_in_flight(struct grpc_stream *stream) {
    stream->counted = true;
    atomic_fetch_add_explicit(stream->core->n_calls, 1, memory_order_relaxed);
    metric_add(METRIC_REQUESTS_IN_FLIGHT, 1);
}

static enum status check_call(struct grpc_stream *stream, struct error *err) {
    const struct grpc_server_options *options = stream->core->options;
    enum status st = grpc_head_check(stream, err);
    if (st == ST_OK && stream->call.deadline_ns != 0 &&
        !timer_heap_set(&stream->core->deadlines, &stream->deadline, stream->call.deadline_ns)) {
        st = error_set(err, ST_NO_MEMORY, "no memory for a deadline");
    }
    if (st == ST_OK && options->admit) {
        st = options->admit(&stream->call, options->admit_context, err);
    }
    return st;
}

void grpc_stream_on_head(struct grpc_stream *stream) {
    struct error err;
    count_in_flight(stream);
    if (check_call(stream, &err) != ST_OK) {
        if (stream->is_plain) {
            grpc_plain_refuse(stream, &err);
        } else {
            grpc_stream_cancel(stream, &err);
        }
        return;
    }
    stream->call.context = stream->call.method->context;
    stream->in.align_at = stream->call.method->align_at;
    if (stream->call.method->streams) {
        grpc_stream_start_method(stream);
    } else {
        stream->in.arena = stream->call.arena;
        stream->in.n_reads_wanted = 1; /* the method sees the call when its message is there */
    }
    grpc_stream_update_timer(stream);
}

void grpc_stream_start_method(struct grpc_stream *stream) {
    stream->method_state = GRPC_METHOD_ACTIVE;
    grpc_stream_emit(stream, GRPC_BEGIN);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* The status is decided. It leaves behind what was sent, or as the whole answer. */
static void finish_response(struct grpc_stream *stream, const struct error *err) {
    bool whole = stream->response_state == GRPC_RESPONSE_NONE;
    if (err) {
        const char *text = err->text[0] ? err->text : status_text(err->status);
        metric_add_error(METRIC_GRPC, err->status);
        stream->status = status_grpc(err->status);
        stream->message = arena_dup(stream->call.arena, str_of(text));
    }
    grpc_stream_set_response_state(stream, GRPC_RESPONSE_ENDING);
    stream->response_started = true;
    if (stream->closed) {
        return;
    }
    if (whole) {
        grpc_head_submit(stream, true);
    } else {
        grpc_send_status(stream);
    }
    if (stream->out.n_bytes == 0) {
        grpc_stream_update_timer(stream); /* else the wait began when the message was queued */
    }
    grpc_core_schedule_write(stream->core, stream->session);
}

/* No status can be said (any more). */
static void reset_stream(struct grpc_stream *stream) {
    nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_CANCEL);
    grpc_core_schedule_write(stream->core, stream->session);
}

/* From now on nobody waits. Returns: false when that is known already. */
static bool mark_cancelled(struct grpc_stream *stream, const struct error *err) {
    struct grpc_call *call = &stream->call;
    if (call->is_cancelled) {
        return false;
    }
    call->is_cancelled = true;
    call->cancel_error = *err;
    timer_heap_remove(&stream->core->deadlines, &stream->deadline);
    grpc_receive_discard(stream);
    return true;
}

static void notify_method(struct grpc_stream *stream) {
    if (stream->method_state == GRPC_METHOD_ACTIVE) {
        grpc_stream_emit(stream, GRPC_CANCELLED);
    }
}

void grpc_stream_cancel(struct grpc_stream *stream, const struct error *err) {
    const struct grpc_core *core = stream->core;
    if (!mark_cancelled(stream, err)) {
        return;
    }
    if (!stream->closed && stream->response_state < GRPC_RESPONSE_ENDING) {
        if (stream->method_state == GRPC_METHOD_NOT_STARTED && core->on_refused) {
            core->on_refused(stream->session, err, false);
        }
        /* What was sent before something went wrong is still worth reading; what comes too late is
         * not. */
        bool late = err->status == ST_DEADLINE_EXCEEDED;
        if (late && grpc_send_queue_is_mid_message(&stream->out)) {
            reset_stream(stream);
        } else {
            if (late) {
                grpc_send_clear(stream);
            }
            finish_response(stream, err);
        }
    }
    notify_method(stream);
}

void grpc_stream_timed_out(struct grpc_stream *stream, enum grpc_wait wait) {
    struct error err;
    if (wait == GRPC_WAIT_MESSAGE && stream->is_plain) {
        grpc_plain_answer(stream); /* it is known already */
        return;
    }
    if (wait == GRPC_WAIT_MESSAGE) {
        error_set(&err, ST_REQUEST_TIMEOUT, "the message did not come in time (--body-timeout)");
        grpc_stream_cancel(stream, &err);
        return;
    }
    error_set(&err, ST_CANCELLED, "the client did not take the answer in time (--write-timeout)");
    reset_stream(stream);
    if (mark_cancelled(stream, &err)) {
        notify_method(stream);
    }
}

void grpc_stream_closed(struct grpc_stream *stream) {
    struct grpc_session *session = stream->session;
    struct error err;
    stream->closed = true;
    session->n_open--;
    if (session->recent == stream) {
        session->recent = NULL; /* nghttp2 forgets its streams by itself */
    }
    timer_heap_remove(&stream->core->deadlines, &stream->deadline);
    timer_list_stop(&stream->core->stream_timers, &stream->timeout);
    grpc_receive_discard(stream);
    grpc_send_clear(stream);
    if (stream->method_state == GRPC_METHOD_ACTIVE) {
        error_set(&err, ST_CANCELLED, "the client went away before its answer");
        grpc_stream_cancel(stream, &err);
    }
    grpc_stream_schedule_sweep(stream);
}

/* ---- for methods ----------------------------------------------------------------------------- */

void grpc_finish(struct grpc_call *call, const struct error *err) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    assert(stream->method_state == GRPC_METHOD_ACTIVE);
    stream->method_state = GRPC_METHOD_FINISHED;
    timer_heap_remove(&stream->core->deadlines, &stream->deadline);
    grpc_receive_discard(stream);
    if (stream->response_state < GRPC_RESPONSE_ENDING && !call->is_cancelled) {
        finish_response(stream, err);
    }
    if (stream->closed) {
        grpc_stream_schedule_sweep(stream);
    }
}

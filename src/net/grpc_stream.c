/* A call's life: begun by its head, ended by whichever of its three parties (method, client,
 * deadline) is first, freed when all are through with it. */
#include <stdlib.h>

#include "base/metric.h"
#include "loop/clock.h"
#include "net/grpc_session.h"

enum { CANCELLED_CODE = NGHTTP2_CANCEL };

struct grpc_stream *grpc_stream_new(struct grpc_session *session, int32_t id) {
    struct grpc_core *core = session->core;
    struct arena *arena =
        arena_new(worker_arenas(core->worker), (size_t)core->options->limits.request_memory_bytes);
    struct grpc_stream *stream = arena ? arena_calloc(arena, 1, sizeof *stream) : NULL;
    if (!stream) {
        arena_free(arena);
        return NULL;
    }
    stream->core = core;
    stream->session = session;
    stream->id = id;
    stream->call.arena = arena;
    stream->call.worker = core->worker;
    stream->finished = true; /* until a method has it */
    stream->next = session->streams;
    if (stream->next) {
        stream->next->prev = stream;
    }
    session->streams = stream;
    session->n_streams++;
    core->n_streams++;
    metric_add(METRIC_ARENAS, 1);
    return stream;
}

/* Leaves the session, which may be gone before the call is over. */
static void unlink_stream(struct grpc_stream *stream) {
    struct grpc_session *session = stream->session;
    if (!session) {
        return;
    }
    struct grpc_stream **before = stream->prev ? &stream->prev->next : &session->streams;
    *before = stream->next;
    if (stream->next) {
        stream->next->prev = stream->prev;
    }
    session->n_streams--;
    stream->session = NULL;
}

void grpc_stream_ask_sweep(struct grpc_stream *stream) {
    if (!stream->sweeping) {
        stream->sweeping = true;
        stream->ended_next = stream->core->ended;
        stream->core->ended = stream;
    }
    stream->core->ask_turn(stream->core, stream->session);
}

void grpc_stream_step(struct grpc_stream *stream, enum grpc_event event) {
    stream->call.method->step(&stream->call, event);
}

void grpc_stream_free(struct grpc_stream *stream) {
    struct grpc_core *core = stream->core;
    grpc_receive_stop(stream);
    grpc_send_drop(stream);
    unlink_stream(stream);
    deadlines_remove(&core->deadlines, &stream->deadline);
    if (stream->begun) {
        grpc_stream_step(stream, GRPC_END);
    }
    if (stream->counted) {
        atomic_fetch_sub_explicit(core->n_calls, 1, memory_order_relaxed);
        metric_add(METRIC_REQUESTS_IN_FLIGHT, -1);
        metric_add(METRIC_REQUESTS_TOTAL, 1);
    }
    core->n_streams--;
    metric_add(METRIC_ARENAS, -1);
    arena_free(stream->call.arena); /* with the stream itself */
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void count(struct grpc_stream *stream) {
    stream->counted = true;
    atomic_fetch_add_explicit(stream->core->n_calls, 1, memory_order_relaxed);
    metric_add(METRIC_REQUESTS_IN_FLIGHT, 1);
}

static enum status check(struct grpc_stream *stream, int *http, struct error *err) {
    const struct grpc_server_options *options = stream->core->options;
    enum status st = grpc_head_check(stream, http, err);
    if (st == ST_OK && stream->call.deadline_ns != 0 &&
        !deadlines_set(&stream->core->deadlines, &stream->deadline, stream->call.deadline_ns)) {
        st = error_set(err, ST_NO_MEMORY, "no memory for a deadline");
    }
    if (st == ST_OK && options->admit) {
        st = options->admit(&stream->call, options->admit_context, err);
    }
    return st;
}

void grpc_stream_begin(struct grpc_stream *stream) {
    struct error err;
    int http = 200;
    count(stream);
    if (check(stream, &http, &err) != ST_OK) {
        if (http != 200) {
            stream->ending = true;
            grpc_receive_stop(stream);
            grpc_head_submit(stream, true, http);
        } else {
            grpc_stream_refuse(stream, &err);
        }
        return;
    }
    stream->call.context = stream->call.method->context;
    if (stream->call.method->streams) {
        grpc_stream_give(stream);
    } else {
        stream->n_wanted = 1; /* the method sees the call when its message is there */
    }
}

void grpc_stream_give(struct grpc_stream *stream) {
    stream->begun = true;
    stream->finished = false;
    grpc_stream_step(stream, GRPC_BEGIN);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Decides the status. */
static void set_status(struct grpc_stream *stream, const struct error *err) {
    const char *text = err ? (err->text[0] ? err->text : status_text(err->status)) : "";
    stream->ending = true;
    stream->status = err ? status_grpc(err->status) : 0;
    stream->message = arena_dup(stream->call.arena, str_of(text));
}

/* The status leaves: behind what was sent, or as the whole answer. */
static void send_status(struct grpc_stream *stream) {
    if (stream->closed || !stream->session) {
        return;
    }
    if (!stream->submitted) {
        grpc_head_submit(stream, !stream->out, 200);
    } else if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->session->h2, stream->id);
    }
    stream->core->ask_turn(stream->core, stream->session);
}

void grpc_stream_refuse(struct grpc_stream *stream, const struct error *err) {
    if (!stream->ending) {
        set_status(stream, err);
        grpc_receive_stop(stream);
        send_status(stream);
    }
}

/* A message of which a part has left can't be followed by a status. */
static bool is_in_message(const struct grpc_stream *stream) {
    return stream->out_piece > 0 || stream->out_at > 0;
}

void grpc_stream_cancel(struct grpc_stream *stream, enum status status, const char *why) {
    struct grpc_call *call = &stream->call;
    if (call->gone) {
        return;
    }
    deadlines_remove(&stream->core->deadlines, &stream->deadline);
    bool tell = stream->begun && !stream->finished;
    call->gone = true;
    error_set(&call->cancelled, status, "%s", why);
    grpc_receive_stop(stream);
    if (!stream->closed && !stream->ending) {
        bool broken = is_in_message(stream);
        set_status(stream, &call->cancelled);
        if (broken) {
            nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id,
                                      CANCELLED_CODE);
            stream->core->ask_turn(stream->core, stream->session);
        } else {
            grpc_send_drop(stream);
            send_status(stream);
        }
    }
    if (tell) {
        grpc_stream_step(stream, GRPC_CANCELLED);
    }
}

void grpc_stream_closed(struct grpc_stream *stream) {
    struct grpc_session *session = stream->session;
    stream->closed = true;
    if (session && session->h2) {
        nghttp2_session_set_stream_user_data(session->h2, stream->id, NULL);
    }
    deadlines_remove(&stream->core->deadlines, &stream->deadline);
    grpc_receive_stop(stream);
    if (!stream->finished) {
        grpc_stream_cancel(stream, ST_CANCELLED, "the client went away before its answer");
    }
    if (session && !session->writing) {
        unlink_stream(stream);
    }
    grpc_stream_ask_sweep(stream);
}

/* ---- for methods ----------------------------------------------------------------------------- */

void grpc_finish(struct grpc_call *call, const struct error *err) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    if (!stream->ending) {
        set_status(stream, err);
        send_status(stream);
    }
    stream->finished = true;
    deadlines_remove(&stream->core->deadlines, &stream->deadline);
    grpc_receive_stop(stream);
    if (stream->closed) {
        grpc_stream_ask_sweep(stream);
    }
}

struct str grpc_find(const struct grpc_call *call, const char *name, size_t *n) {
    struct str found = {NULL, 0}, wanted = str_of(name);
    size_t count = 0;
    for (size_t i = 0; i < call->n_fields; i++) {
        if (str_eq(call->fields[i].name, wanted)) {
            found = count++ == 0 ? call->fields[i].value : found;
        }
    }
    if (n) {
        *n = count;
    }
    return found;
}

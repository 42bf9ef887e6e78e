/* Partial responses of decoupled models. Back pressure: the backend blocks in `respond`, with no
 * lock held, while too many of its responses are in flight, until the client's connection has sent
 * some or the call is cancelled. No response of a live call is dropped.
 *
 * A thread that is blocked cannot serve other calls. So a call whose client lags is ended once
 * another one has waited for it as long as a client may lag. One waiting call ends one other
 * at a time. Streams of a host that was slow before may lag for a shorter time (hosts.h). */
#include "serve/scheduler/host_callbacks.h"

#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/event/worker.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/sequence/state.h"
#include "serve/scheduler/version.h"

struct response_stream {
    atomic_size_t refs;
    TAILQ_ENTRY(response_stream) link; /* in version->streams, from new to close */
    struct call *call;                 /* valid while it is in that list */
    atomic_uint_least32_t instance;    /* that executes the call; NO_INSTANCE: none yet */
    _Atomic uint64_t progress_ns;      /* when it was submitted, was answered last, or another call
                                          was ended for it */
    atomic_bool blocked;               /* by its own client: it waits for no other call */

    struct lock lock; /* protects the fields below */
    struct lock_cond changed;
    size_t n_bytes, n_responses; /* in flight */
    uint64_t n_released;
    /* While a thread is blocked: n_released becomes `window_end` when all responses that were in
     * flight at the start of the window are sent, which is due at `window_due_ns`; 0: no window */
    uint64_t window_end, window_due_ns;
    bool stopped;
};

enum { NO_INSTANCE = UINT32_MAX };

/* One partial response, in an arena of its own. */
struct partial_response {
    struct infer_response response;
    struct worker_msg msg;
    struct arena *arena;
    struct arena *extra;
    struct call *call; /* until it was delivered */
    struct response_stream *stream;
    struct model_version *version; /* referenced: it owns the outputs' bytes */
    size_t n_bytes;
    void (*backend_release)(void *cookie);
    void *backend_cookie;
    struct state_value **states; /* of the inputs, which the outputs may be part of; NULL: none */
};

/* ---- limit on responses in flight ------------------------------------------------------------ */

enum status response_stream_new(struct call *call, uint64_t now_ns, struct error *err) {
    struct model_version *version = call->run->version;
    if (!call->on_partial_response || !version->plan.spec.decoupled || version->ensemble_ops) {
        return ST_OK; /* an ensemble's members have streams of their own */
    }
    struct response_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return error_no_memory(err, "the answers of a decoupled model");
    }
    stream->call = call;
    atomic_init(&stream->refs, 1);
    atomic_init(&stream->instance, NO_INSTANCE);
    atomic_init(&stream->progress_ns, now_ns);
    lock_init(&stream->lock);
    lock_cond_init(&stream->changed);
    lock_acquire(&version->streams_lock);
    TAILQ_INSERT_TAIL(&version->streams, stream, link);
    lock_release(&version->streams_lock);
    call->run->stream = stream;
    return ST_OK;
}

static void response_stream_unref(struct response_stream *stream) {
    if (atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) == 1) {
        lock_cond_fini(&stream->changed);
        lock_fini(&stream->lock);
        free(stream);
    }
}

void response_stream_close(struct response_stream *stream) {
    if (stream) {
        struct model_version *version = stream->call->run->version;
        lock_acquire(&version->streams_lock);
        TAILQ_REMOVE(&version->streams, stream, link);
        lock_release(&version->streams_lock);
        response_stream_unref(stream);
    }
}

void response_stream_run(struct response_stream *stream, uint32_t instance) {
    if (stream) {
        atomic_store_explicit(&stream->instance, instance, memory_order_relaxed);
    }
}

void response_stream_answered(struct response_stream *stream, uint64_t now_ns) {
    if (stream) {
        atomic_store_explicit(&stream->progress_ns, now_ns, memory_order_relaxed);
    }
}

void response_stream_stop(struct response_stream *stream) {
    if (stream) {
        lock_acquire(&stream->lock);
        stream->stopped = true;
        lock_cond_broadcast(&stream->changed);
        lock_release(&stream->lock);
    }
}

static bool stream_is_full(const struct response_stream *stream, size_t n_bytes) {
    return stream->n_responses > 0 && (stream->n_responses >= RESPONSE_STREAM_MAX_RESPONSES ||
                                       stream->n_bytes >= RESPONSE_STREAM_MAX_BYTES ||
                                       n_bytes > RESPONSE_STREAM_MAX_BYTES - stream->n_bytes);
}

/* ---- slow readers ---------------------------------------------------------------------------- */

/* Does `other` wait for the thread that `stream` blocks? Where that is not an instance's thread but
 * one of the backend, any running call may. The requests of one client's stream don't count. */
static bool waits_for(const struct response_stream *other, const struct response_stream *stream,
                      bool on_instance, uint64_t since_ns) {
    struct call *call = other->call;
    enum call_state state = call_state(call);
    bool is_queued = state == CALL_QUEUED || state == CALL_INLINE_QUEUED;
    bool same_thread =
        !on_instance || atomic_load_explicit(&other->instance, memory_order_relaxed) ==
                            atomic_load_explicit(&stream->instance, memory_order_relaxed);
    bool same_client = call->request_stream && call->request_stream == stream->call->request_stream;
    return other != stream && !same_client && state != CALL_NEW && state != CALL_ANSWERED &&
           (is_queued || same_thread) &&
           !atomic_load_explicit(&call->run->cancelled, memory_order_relaxed) &&
           !atomic_load_explicit(&other->blocked, memory_order_relaxed) &&
           atomic_load_explicit(&other->progress_ns, memory_order_relaxed) <= since_ns;
}

/* Has another call waited for this thread long enough? The one that is found does not count again
 * before it has waited as long once more. */
static bool find_waiting(struct model_version *version, const struct response_stream *stream,
                         uint64_t timeout_ns, uint64_t now_ns) {
    uintptr_t executor = atomic_load_explicit(
        &version->instances[stream->call->run->instance].executor, memory_order_relaxed);
    bool on_instance = executor == (uintptr_t)&lock_thread_marker, found = false;
    struct response_stream *other;
    lock_acquire(&version->streams_lock);
    TAILQ_FOREACH(other, &version->streams, link) {
        if (waits_for(other, stream, on_instance, now_ns - timeout_ns)) {
            response_stream_answered(other, now_ns);
            found = true;
            break;
        }
    }
    lock_release(&version->streams_lock);
    return found;
}

static void end_slow_reader(struct response_stream *stream, uint64_t now_ns) {
    struct call *call = stream->call;
    stream->stopped = true;
    call->run->loss = CALL_LOST_READER;
    atomic_store_explicit(&call->run->cancelled, true, memory_order_relaxed);
    slow_hosts_note(&call->run->version->slow_hosts, call->client.host, now_ns);
    metric_add(METRIC_SLOW_STREAMS_ENDED_TOTAL, 1);
    log_event(LOG_WARNING, "answers ended: their client reads slowly, and other requests wait",
              LOG_STR("model", call->run->version->plan.spec.name),
              LOG_U64("answers", call->run->n_answers),
              LOG_U64("ms", (now_ns - call->started_ns) / 1000000),
              LOG_CSTR("setting", "--slow-reader-timeout"));
}

/* Waits for a change; ends the call if its client lags and others wait. The lock is held. */
static void wait_for_reader(struct response_stream *stream) {
    enum { LOOKS = 4, LOOK_MIN_NS = 1000000 };
    struct model_version *version = stream->call->run->version;
    if (version->slow_reader_timeout_ns == 0) {
        lock_cond_wait(&stream->lock, &stream->changed);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t timeout_ns = slow_hosts_timeout_ns(&version->slow_hosts, stream->call->client.host,
                                                version->slow_reader_timeout_ns, now_ns);
    if (stream->window_due_ns == 0) {
        /* The responses that are in flight now shall be sent in time; of one larger than the limit,
         * each RESPONSE_STREAM_MAX_BYTES. */
        uint64_t n_times = 1 + stream->n_bytes / (RESPONSE_STREAM_MAX_BYTES + 1);
        stream->window_end = stream->n_released + stream->n_responses;
        stream->window_due_ns = now_ns + timeout_ns * n_times;
    }
    if (now_ns < stream->window_due_ns) {
        (void)lock_cond_wait_until_ns(&stream->lock, &stream->changed, stream->window_due_ns);
    } else if (find_waiting(version, stream, timeout_ns, now_ns)) {
        end_slow_reader(stream, now_ns);
    } else {
        uint64_t look_ns = timeout_ns / LOOKS > LOOK_MIN_NS ? timeout_ns / LOOKS : LOOK_MIN_NS;
        (void)lock_cond_wait_until_ns(&stream->lock, &stream->changed, now_ns + look_ns);
    }
}

/* Waits until the limits allow another response. Returns: false when the call was cancelled or
 * ended. */
static bool response_stream_reserve(struct response_stream *stream, size_t n_bytes) {
    lock_acquire(&stream->lock);
    while (!stream->stopped && stream_is_full(stream, n_bytes)) {
        atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
        wait_for_reader(stream);
    }
    atomic_store_explicit(&stream->blocked, false, memory_order_relaxed);
    bool taken = !stream->stopped;
    if (taken) {
        stream->n_bytes += n_bytes;
        stream->n_responses++;
    }
    lock_release(&stream->lock);
    return taken;
}

static void response_stream_release(struct response_stream *stream, size_t n_bytes) {
    lock_acquire(&stream->lock);
    stream->n_bytes -= n_bytes;
    stream->n_responses--;
    stream->n_released++;
    if (stream->n_released >= stream->window_end) {
        stream->window_due_ns = 0;
    }
    lock_cond_broadcast(&stream->changed);
    lock_release(&stream->lock);
}

/* ---- responses ------------------------------------------------------------------------------- */

/* The `release` function of a partial response. */
static void partial_response_release(void *cookie) {
    struct partial_response *partial = cookie;
    struct model_version *version = partial->version;
    if (partial->backend_release) {
        partial->backend_release(partial->backend_cookie);
        metric_add(METRIC_OUTPUTS_HELD, -1);
    }
    call_states_unhold(partial->states, version);
    response_stream_release(partial->stream, partial->n_bytes);
    response_stream_unref(partial->stream);
    arena_free(partial->extra);
    arena_free(partial->arena); /* frees the partial response too */
    model_version_unref(version);
}

static void on_partial_message(struct worker_msg *msg) {
    struct partial_response *partial = CONTAINER_OF(msg, struct partial_response, msg);
    partial->call->on_partial_response(partial->call, &partial->response);
}

/* Allocates descriptions for the wanted outputs and stores them. Returns: false when out of
 * memory. */
static bool store_outputs(struct partial_response *partial, const sluice_response *response,
                          struct error *err) {
    struct call *call = partial->call;
    size_t n = call->run->backend_request.n_wanted, rank = call->run->version->plan.max_output_rank;
    struct response_target target = {
        .call = call,
        .response = &partial->response,
        .outputs = arena_calloc(partial->arena, n, sizeof(*target.outputs)),
        .pieces = arena_calloc(partial->arena, n, sizeof(*target.pieces)),
        .dims = arena_calloc(partial->arena, n, (rank + 1) * sizeof(*target.dims)),
        .extra_arena = &partial->extra,
    };
    if (!target.outputs || !target.pieces || !target.dims) {
        error_no_memory(err, "the model's answer");
        return false;
    }
    return response_target_store(&target, response, err) == ST_OK;
}

static void fill_response(struct partial_response *partial, const sluice_response *response) {
    struct error *err = &partial->response.error;
    bool held = false;
    if (response->status != SLUICE_OK) {
        backend_error(err, partial->call->run->version->backend, response->status, response->error);
    } else if (store_outputs(partial, response, err)) {
        held = true;
    } else {
        partial->response.outputs = NULL;
        partial->response.n_outputs = 0;
        partial->response.places = NULL;
    }
    if (held && response->release) {
        partial->backend_release = response->release;
        partial->backend_cookie = response->cookie;
        metric_add(METRIC_OUTPUTS_HELD, 1);
    } else {
        backend_response_release(response);
    }
}

static struct partial_response *partial_response_new(struct call *call, size_t n_bytes) {
    struct arena *arena = arena_new(NULL, 0); /* no worker's cache: any thread */
    struct partial_response *partial = arena ? arena_calloc(arena, 1, sizeof(*partial)) : NULL;
    if (!partial || !call_states_hold(call, arena, &partial->states)) {
        arena_free(arena);
        return NULL;
    }
    partial->response.release = partial_response_release;
    partial->response.user = partial;
    partial->msg.run = on_partial_message;
    partial->arena = arena;
    partial->call = call;
    partial->stream = call->run->stream;
    partial->version = call->run->version;
    partial->n_bytes = n_bytes;
    atomic_fetch_add_explicit(&call->run->stream->refs, 1, memory_order_relaxed);
    model_version_ref(call->run->version);
    return partial;
}

static size_t response_bytes(const sluice_response *response) {
    size_t n_bytes = 0;
    size_t n = response->status == SLUICE_OK && response->outputs ? response->n_outputs : 0;
    for (size_t i = 0; i < n; i++) {
        size_t more = response->outputs[i].n_bytes;
        n_bytes = more < SIZE_MAX - n_bytes ? n_bytes + more : SIZE_MAX;
    }
    return n_bytes;
}

enum statistics_outcome partial_response_send(struct call *call, const sluice_response *response) {
    size_t n_bytes = response_bytes(response);
    if (!call->run->stream || !response_stream_reserve(call->run->stream, n_bytes)) {
        backend_response_release(response);
        return RESPONSE_CANCEL;
    }
    struct partial_response *partial = partial_response_new(call, n_bytes);
    if (!partial) { /* a missing response would be silent data loss: the call fails */
        response_stream_release(call->run->stream, n_bytes);
        response_stream_stop(call->run->stream);
        call->run->loss = CALL_LOST_PARTIAL;
        atomic_store_explicit(&call->run->cancelled, true, memory_order_relaxed);
        backend_response_release(response);
        return RESPONSE_FAIL;
    }
    fill_response(partial, response);
    bool ok = partial->response.error.status == ST_OK;
    worker_post(call->worker, &partial->msg);
    return ok ? RESPONSE_SUCCESS : RESPONSE_FAIL;
}

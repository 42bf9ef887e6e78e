/* Partial responses of decoupled models. Back pressure: the backend blocks in `respond`, with no
 * lock held, while too many of its responses are in flight, until the client's connection has sent
 * some or the call is cancelled. No response of a live call is dropped. */
#include "serve/scheduler/partial_response.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/worker.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/version.h"

struct response_stream {
    atomic_size_t refs;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    size_t n_bytes, n_responses; /* in flight */
    bool stopped;
};

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
};

/* ---- limit on responses in flight ------------------------------------------------------------ */

enum status response_stream_new(struct call *call, struct error *err) {
    if (!call->on_partial_response || !call->version->plan.spec.decoupled) {
        return ST_OK;
    }
    struct response_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return error_no_memory(err, "the answers of a decoupled model");
    }
    atomic_init(&stream->refs, 1);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    call->stream = stream;
    return ST_OK;
}

void response_stream_unref(struct response_stream *stream) {
    if (stream && atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) == 1) {
        pthread_cond_destroy(&stream->changed);
        pthread_mutex_destroy(&stream->lock);
        free(stream);
    }
}

void response_stream_stop(struct response_stream *stream) {
    if (stream) {
        pthread_mutex_lock(&stream->lock);
        stream->stopped = true;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
    }
}

static bool stream_is_full(const struct response_stream *stream, size_t n_bytes) {
    return stream->n_responses > 0 && (stream->n_responses >= RESPONSE_STREAM_MAX_RESPONSES ||
                                       stream->n_bytes >= RESPONSE_STREAM_MAX_BYTES ||
                                       n_bytes > RESPONSE_STREAM_MAX_BYTES - stream->n_bytes);
}

/* Waits until the limits allow another response. Returns: false when the call was cancelled. */
static bool response_stream_reserve(struct response_stream *stream, size_t n_bytes) {
    pthread_mutex_lock(&stream->lock);
    while (!stream->stopped && stream_is_full(stream, n_bytes)) {
        pthread_cond_wait(&stream->changed, &stream->lock);
    }
    bool taken = !stream->stopped;
    if (taken) {
        stream->n_bytes += n_bytes;
        stream->n_responses++;
    }
    pthread_mutex_unlock(&stream->lock);
    return taken;
}

static void response_stream_release(struct response_stream *stream, size_t n_bytes) {
    pthread_mutex_lock(&stream->lock);
    stream->n_bytes -= n_bytes;
    stream->n_responses--;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
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
    size_t n = call->backend_request.n_wanted, rank = call->version->plan.max_output_rank;
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
        backend_error(err, partial->call->version->backend, response->status, response->error);
    } else if (store_outputs(partial, response, err)) {
        held = true;
    } else {
        partial->response.outputs = NULL;
        partial->response.n_outputs = 0;
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
    if (!partial) {
        arena_free(arena);
        return NULL;
    }
    partial->response.release = partial_response_release;
    partial->response.user = partial;
    partial->msg.run = on_partial_message;
    partial->arena = arena;
    partial->call = call;
    partial->stream = call->stream;
    partial->version = call->version;
    partial->n_bytes = n_bytes;
    atomic_fetch_add_explicit(&call->stream->refs, 1, memory_order_relaxed);
    model_version_ref(call->version);
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
    if (!call->stream || !response_stream_reserve(call->stream, n_bytes)) {
        backend_response_release(response);
        return RESPONSE_CANCEL;
    }
    struct partial_response *partial = partial_response_new(call, n_bytes);
    if (!partial) { /* a missing response would be silent data loss: the call fails */
        response_stream_release(call->stream, n_bytes);
        response_stream_stop(call->stream);
        call->partial_lost = true;
        atomic_store_explicit(&call->cancelled, true, memory_order_relaxed);
        backend_response_release(response);
        return RESPONSE_FAIL;
    }
    fill_response(partial, response);
    bool ok = partial->response.error.status == ST_OK;
    worker_post(call->worker, &partial->msg);
    return ok ? RESPONSE_SUCCESS : RESPONSE_FAIL;
}

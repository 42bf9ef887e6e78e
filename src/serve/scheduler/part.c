/* Answers under way. A backend that is faster than its reader waits in `respond`, with no lock
 * held, until the reader has taken enough, or is gone. It refuses to drop an answer that somebody
 * waits for, and to hold more than was said. */
#include "serve/scheduler/part.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/base/metric/metric.h"
#include "core/event/worker.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/respond.h"
#include "serve/scheduler/version.h"

struct flow {
    atomic_size_t refs;
    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t changed;
    size_t n_bytes, n_parts; /* under way */
    bool stopped;
};

/* An answer, in an arena of its own. */
struct part {
    struct infer_response response;
    struct worker_msg msg;
    struct arena *arena;
    struct arena *extra;
    struct call *call; /* until it was handed over */
    struct flow *flow;
    struct model_version *version; /* referenced: it owns the outputs' bytes */
    size_t n_bytes;
    void (*backend_release)(void *cookie);
    void *backend_cookie;
};

/* ---- how much is under way ------------------------------------------------------------------- */

enum status flow_new(struct call *call, struct error *err) {
    if (!call->part || !call->version->plan.spec.decoupled) {
        return ST_OK;
    }
    struct flow *flow = calloc(1, sizeof(*flow));
    if (!flow) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the answers of a decoupled model");
    }
    atomic_init(&flow->refs, 1);
    pthread_mutex_init(&flow->lock, NULL);
    pthread_cond_init(&flow->changed, NULL);
    call->flow = flow;
    return ST_OK;
}

void flow_unref(struct flow *flow) {
    if (flow && atomic_fetch_sub_explicit(&flow->refs, 1, memory_order_acq_rel) == 1) {
        pthread_cond_destroy(&flow->changed);
        pthread_mutex_destroy(&flow->lock);
        free(flow);
    }
}

void flow_stop(struct flow *flow) {
    if (flow) {
        pthread_mutex_lock(&flow->lock);
        flow->stopped = true;
        pthread_cond_broadcast(&flow->changed);
        pthread_mutex_unlock(&flow->lock);
    }
}

static bool is_full(const struct flow *flow, size_t n_bytes) {
    return flow->n_parts > 0 && (flow->n_parts >= FLOW_PARTS || flow->n_bytes >= FLOW_BYTES ||
                                 n_bytes > FLOW_BYTES - flow->n_bytes);
}

/* Waits for room. Returns: false when nobody waits for the answer any more. */
static bool flow_take(struct flow *flow, size_t n_bytes) {
    pthread_mutex_lock(&flow->lock);
    while (!flow->stopped && is_full(flow, n_bytes)) {
        pthread_cond_wait(&flow->changed, &flow->lock);
    }
    bool taken = !flow->stopped;
    if (taken) {
        flow->n_bytes += n_bytes;
        flow->n_parts++;
    }
    pthread_mutex_unlock(&flow->lock);
    return taken;
}

static void flow_give(struct flow *flow, size_t n_bytes) {
    pthread_mutex_lock(&flow->lock);
    flow->n_bytes -= n_bytes;
    flow->n_parts--;
    pthread_cond_broadcast(&flow->changed);
    pthread_mutex_unlock(&flow->lock);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The `release` of a part's response; the last that is done with it. */
static void release_part(void *cookie) {
    struct part *part = cookie;
    struct model_version *version = part->version;
    if (part->backend_release) {
        part->backend_release(part->backend_cookie);
        metric_add(METRIC_OUTPUTS_HELD, -1);
    }
    flow_give(part->flow, part->n_bytes);
    flow_unref(part->flow);
    arena_free(part->extra);
    arena_free(part->arena); /* with the part itself */
    model_version_unref(version);
}

static void on_worker(struct worker_msg *msg) {
    struct part *part = (struct part *)(void *)((char *)msg - offsetof(struct part, msg));
    part->call->part(part->call, &part->response);
}

/* Room for as many outputs as are wanted. Returns: false when out of memory. */
static bool take_outputs(struct part *part, const sluice_response *response, struct error *err) {
    struct call *call = part->call;
    size_t n = call->abi.n_wanted, rank = call->version->plan.max_output_rank;
    struct answer answer = {
        .call = call,
        .response = &part->response,
        .outputs = arena_calloc(part->arena, n, sizeof(*answer.outputs)),
        .pieces = arena_calloc(part->arena, n, sizeof(*answer.pieces)),
        .dims = arena_calloc(part->arena, n, (rank + 1) * sizeof(*answer.dims)),
        .extra = &part->extra,
    };
    if (!answer.outputs || !answer.pieces || !answer.dims) {
        error_set(err, ST_NO_MEMORY, "out of memory for the model's answer");
        return false;
    }
    return answer_take(&answer, response, err) == ST_OK;
}

static void fill(struct part *part, const sluice_response *response) {
    struct error *err = &part->response.error;
    bool held = false;
    if (response->status != SLUICE_OK) {
        backend_error(err, part->call->version->backend, response->status, response->error);
    } else if (take_outputs(part, response, err)) {
        held = true;
    } else {
        part->response.outputs = NULL;
        part->response.n_outputs = 0;
    }
    if (held && response->release) {
        part->backend_release = response->release;
        part->backend_cookie = response->cookie;
        metric_add(METRIC_OUTPUTS_HELD, 1);
    } else {
        respond_give_back(response);
    }
}

static struct part *part_new(struct call *call, size_t n_bytes) {
    struct arena *arena = arena_new(NULL, 0); /* this is not the worker */
    struct part *part = arena ? arena_calloc(arena, 1, sizeof(*part)) : NULL;
    if (!part) {
        arena_free(arena);
        return NULL;
    }
    part->response.release = release_part;
    part->response.cookie = part;
    part->msg.run = on_worker;
    part->arena = arena;
    part->call = call;
    part->flow = call->flow;
    part->version = call->version;
    part->n_bytes = n_bytes;
    atomic_fetch_add_explicit(&call->flow->refs, 1, memory_order_relaxed);
    model_version_ref(call->version);
    return part;
}

static size_t bytes_of(const sluice_response *response) {
    size_t n_bytes = 0;
    size_t n = response->status == SLUICE_OK && response->outputs ? response->n_outputs : 0;
    for (size_t i = 0; i < n; i++) {
        size_t more = response->outputs[i].n_bytes;
        n_bytes = more < SIZE_MAX - n_bytes ? n_bytes + more : SIZE_MAX;
    }
    return n_bytes;
}

enum statistics_outcome part_send(struct call *call, const sluice_response *response) {
    size_t n_bytes = bytes_of(response);
    if (!call->flow || !flow_take(call->flow, n_bytes)) {
        respond_give_back(response);
        return RESPONSE_CANCEL;
    }
    struct part *part = part_new(call, n_bytes);
    if (!part) { /* an answer that is left out would be a lie: the call fails */
        flow_give(call->flow, n_bytes);
        flow_stop(call->flow);
        call->lost = true;
        atomic_store_explicit(&call->cancelled, true, memory_order_relaxed);
        respond_give_back(response);
        return RESPONSE_FAIL;
    }
    fill(part, response);
    bool ok = part->response.error.status == ST_OK;
    worker_post(call->worker, &part->msg);
    return ok ? RESPONSE_SUCCESS : RESPONSE_FAIL;
}

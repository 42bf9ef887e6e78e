/* A padding request is one arena, freed when the backend has answered it: that may be after the
 * other requests of its batch are freed, so it refers to none of them. */
#include "serve/scheduler/padding_request.h"

#include <string.h>

#include "serve/config/sequence_params.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/version.h"

/* Copies the shape of `like`. An empty BYTES element is four zero bytes. */
static bool fill_input(struct arena *arena, const sluice_input *like, sluice_input *out) {
    size_t size = datatype_size((enum datatype)like->datatype), n_bytes = size > 0 ? size : 4;
    int64_t *dims = arena_calloc(arena, like->rank + 1, sizeof(*dims));
    for (size_t i = 0; dims && i < like->rank; i++) {
        dims[i] = like->dims[i];
        n_bytes *= (size_t)like->dims[i]; /* cannot overflow: the tensor exists, unless it is
                                             BYTES */
    }
    sluice_piece *piece = arena_alloc(arena, sizeof(*piece));
    void *bytes = arena_alloc_aligned(arena, n_bytes, CACHE_LINE_BYTES);
    if (!dims || !piece || !bytes) {
        return false;
    }
    memset(bytes, 0, n_bytes);
    *piece = (sluice_piece){bytes, n_bytes};
    *out = *like;
    out->dims = dims;
    out->n_bytes = n_bytes;
    out->pieces = piece;
    out->n_pieces = n_bytes > 0 ? 1 : 0;
    return true;
}

static bool fill_inputs(struct arena *arena, const struct call *like, struct call_run *padding) {
    const struct model_plan *plan = &like->run->version->plan;
    size_t n = like->run->backend_request.n_inputs, n_clients = 0;
    sluice_input *inputs = arena_calloc(arena, n, sizeof(*inputs));
    if (!inputs) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const sluice_input *input = &like->run->backend_request.inputs[i];
        if (control_find(plan, input->index)) {
            continue;
        }
        if (!fill_input(arena, input, &inputs[n_clients++])) {
            return false;
        }
    }
    padding->backend_request.inputs = inputs;
    padding->backend_request.n_inputs = n_clients;
    return controls_fill(arena, plan, NULL, inputs, &padding->backend_request.n_inputs);
}

struct padding_request {
    struct call call;
    struct call_run run;
};

static struct call *padding_request_new(const struct call *like) {
    struct arena *arena = arena_new(NULL, 0); /* no worker's cache: any thread */
    struct padding_request *self = arena ? arena_calloc(arena, 1, sizeof(*self)) : NULL;
    size_t n_wanted = like->run->backend_request.n_wanted;
    uint32_t *wanted = self ? arena_calloc(arena, n_wanted, sizeof(*wanted)) : NULL;
    if (!wanted || !fill_inputs(arena, like, &self->run)) {
        arena_free(arena);
        return NULL;
    }
    struct call *padding = &self->call;
    struct call_run *run = &self->run;
    padding->run = run;
    run->call = padding;
    memcpy(wanted, like->run->backend_request.wanted, n_wanted * sizeof(*wanted));
    run->backend_request.size = sizeof(run->backend_request);
    run->backend_request.host = padding;
    run->backend_request.id = "";
    run->backend_request.batch = 1;
    run->backend_request.wanted = wanted;
    run->backend_request.n_wanted = n_wanted;
    run->version = like->run->version;
    run->role = CALL_PADDING;
    run->extra_arena = arena;
    atomic_init(&run->state, CALL_RUNNING);
    return padding;
}

void padding_request_free(struct call *padding) {
    struct model_version *version = padding->run->version;
    arena_free(padding->run->extra_arena); /* frees the padding request too */
    version_leave(version);
}

static void remove_padding(struct call **batch, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (batch[i] && batch[i]->run->role == CALL_PADDING) {
            padding_request_free(batch[i]);
            batch[i] = NULL;
        }
    }
}

enum status padding_requests_add(struct model_version *version, struct call **batch, size_t n,
                                 struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (batch[i]) {
            continue;
        }
        batch[i] = padding_request_new(batch[n - 1]);
        if (!batch[i]) {
            remove_padding(batch, i);
            return error_no_memory(err, "the empty rows of a batch");
        }
        /* Other requests of the batch are in flight, so the version is not closing. */
        atomic_fetch_add_explicit(&version->n_in_flight, 1, memory_order_relaxed);
    }
    return ST_OK;
}

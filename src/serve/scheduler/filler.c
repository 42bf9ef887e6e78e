/* Each filler is one arena, which goes when the backend is through with it: that may be after the
 * requests that it was executed with are gone, so it has nothing of theirs. */
#include "serve/scheduler/filler.h"

#include <string.h>

#include "serve/config/control.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/version.h"

static const sluice_piece *zeros(struct arena *arena, size_t n_bytes) {
    sluice_piece *piece = arena_alloc(arena, sizeof(*piece));
    void *bytes = arena_alloc_aligned(arena, n_bytes, CACHE_LINE_BYTES);
    if (!piece || !bytes) {
        return NULL;
    }
    memset(bytes, 0, n_bytes);
    *piece = (sluice_piece){bytes, n_bytes};
    return piece;
}

/* The shape is that of `like`, and a BYTES element of no bytes is four zeros. */
static bool fill_input(struct arena *arena, const sluice_input *like, sluice_input *out) {
    size_t size = datatype_size((enum datatype)like->datatype), n_bytes = size > 0 ? size : 4;
    int64_t *dims = arena_calloc(arena, like->rank + 1, sizeof(*dims));
    for (size_t i = 0; dims && i < like->rank; i++) {
        dims[i] = like->dims[i];
        n_bytes *= (size_t)like->dims[i]; /* of a tensor that exists, if it is not of BYTES */
    }
    const sluice_piece *piece = dims ? zeros(arena, n_bytes) : NULL;
    *out = *like;
    out->dims = dims;
    out->n_bytes = n_bytes;
    out->pieces = piece;
    out->n_pieces = n_bytes > 0 ? 1 : 0;
    return piece != NULL;
}

static bool fill_inputs(struct arena *arena, const struct call *like, struct call *filler) {
    const struct model_plan *plan = &like->version->plan;
    size_t n = like->abi.n_inputs, n_clients = 0;
    sluice_input *inputs = arena_calloc(arena, n, sizeof(*inputs));
    if (!inputs) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const sluice_input *input = &like->abi.inputs[i];
        if (control_find(plan, input->index)) {
            continue;
        }
        if (!fill_input(arena, input, &inputs[n_clients++])) {
            return false;
        }
    }
    filler->abi.inputs = inputs;
    filler->abi.n_inputs = n_clients;
    return controls_fill(arena, plan, NULL, inputs, &filler->abi.n_inputs);
}

static struct call *filler_new(const struct call *like) {
    struct arena *arena = arena_new(NULL, 0); /* this is not the worker */
    struct call *filler = arena ? arena_calloc(arena, 1, sizeof(*filler)) : NULL;
    size_t n_wanted = like->abi.n_wanted;
    uint32_t *wanted = filler ? arena_calloc(arena, n_wanted, sizeof(*wanted)) : NULL;
    if (!wanted || !fill_inputs(arena, like, filler)) {
        arena_free(arena);
        return NULL;
    }
    memcpy(wanted, like->abi.wanted, n_wanted * sizeof(*wanted));
    filler->abi.size = sizeof(filler->abi);
    filler->abi.host = filler;
    filler->abi.id = "";
    filler->abi.batch = 1;
    filler->abi.wanted = wanted;
    filler->abi.n_wanted = n_wanted;
    filler->version = like->version;
    filler->filler = true;
    filler->extra = arena;
    atomic_init(&filler->state, CALL_RUNNING);
    return filler;
}

/* Requests that are executed with it are in flight: the version is not about to end. */
static void enter(struct model_version *version) {
    atomic_fetch_add_explicit(&version->n_in_flight, 1, memory_order_relaxed);
}

void filler_end(struct call *filler) {
    struct model_version *version = filler->version;
    arena_free(filler->extra); /* with the filler itself */
    version_leave(version);
}

static void take_out(struct call **batch, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (batch[i] && batch[i]->filler) {
            filler_end(batch[i]);
            batch[i] = NULL;
        }
    }
}

enum status fillers_put(struct model_version *version, struct call **batch, size_t n,
                        struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (batch[i]) {
            continue;
        }
        batch[i] = filler_new(batch[n - 1]);
        if (!batch[i]) {
            take_out(batch, i);
            return error_set(err, ST_NO_MEMORY, "out of memory for the empty rows of a batch");
        }
        enter(version);
    }
    return ST_OK;
}

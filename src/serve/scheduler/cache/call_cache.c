/* Hashes calls, and stores an answer as one block of bytes: outputs and parameters, then dimensions
 * and texts, then the outputs' bytes, each aligned. The hashed text is unambiguous: every part of
 * variable length is preceded by its length. */
#include "serve/scheduler/cache/call_cache.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/tensor/tensor.h"
#include "serve/scheduler/cache/call_hash.h"
#include "serve/scheduler/cache/response_cache.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/version.h"

/* ---- key of a call --------------------------------------------------------------------------- */

static void add_text(struct call_hash *hash, const char *text, size_t n_bytes) {
    call_hash_add_u64(hash, n_bytes);
    call_hash_add(hash, text, n_bytes);
}

static void add_param(struct call_hash *hash, const sluice_param *param) {
    uint64_t bits = 0;
    add_text(hash, param->name, param->name_bytes);
    call_hash_add_u64(hash, (uint64_t)param->kind);
    switch (param->kind) {
    case SLUICE_PARAM_BOOL:
        bits = param->boolean != 0;
        break;
    case SLUICE_PARAM_INT64:
        bits = (uint64_t)param->int64;
        break;
    case SLUICE_PARAM_UINT64:
        bits = param->uint64;
        break;
    case SLUICE_PARAM_DOUBLE:
        memcpy(&bits, &param->number, sizeof(bits));
        break;
    case SLUICE_PARAM_STRING:
        add_text(hash, param->string, param->string_bytes);
        return;
    }
    call_hash_add_u64(hash, bits);
}

/* Returns: false when the hash could not be computed. */
static bool hash_call(const struct call *call, struct keyed_hash *key) {
    const struct cache_scope *scope = &call->run->version->cache;
    const sluice_request *request = &call->run->backend_request;
    struct call_hash hash;
    call_hash_begin(&hash, scope->keyed);
    call_hash_add_u64(&hash, scope->generation);
    call_hash_add_u64(&hash, request->batch);
    call_hash_add_u64(&hash, request->n_wanted);
    call_hash_add(&hash, request->wanted, request->n_wanted * sizeof(*request->wanted));
    call_hash_add_u64(&hash, request->n_params);
    for (size_t i = 0; i < request->n_params; i++) {
        add_param(&hash, &request->params[i]);
    }
    call_hash_add_u64(&hash, request->n_inputs);
    for (size_t i = 0; i < request->n_inputs; i++) {
        if (atomic_load_explicit(&call->run->cancelled, memory_order_relaxed)) {
            return false;
        }
        const sluice_input *input = &request->inputs[i];
        call_hash_add_u64(&hash, input->index);
        call_hash_add_u64(&hash, (uint64_t)input->datatype);
        call_hash_add_u64(&hash, input->rank);
        call_hash_add(&hash, input->dims, input->rank * sizeof(*input->dims));
        call_hash_add_u64(&hash, input->n_bytes);
        for (size_t j = 0; j < input->n_pieces; j++) {
            call_hash_add(&hash, input->pieces[j].data, input->pieces[j].n_bytes);
        }
    }
    return call_hash_final(&hash, key);
}

/* ---- cached response ------------------------------------------------------------------------- */

struct cached_output {
    const int64_t *dims;
    size_t rank;
    const void *data;
    size_t n_bytes;
};

/* At the start of the block; all pointers point into the block. */
struct cached_response {
    const struct cached_output *outputs;
    const uint32_t *places; /* as in infer_response */
    size_t n_outputs;
    const struct param *params;
    size_t n_params;
};

/* Allocates parts of a block one after the other, or only counts their size. */
struct layout {
    char *block; /* NULL: count only */
    size_t at;
    bool too_large;
};

static void *layout_reserve(struct layout *layout, size_t n_bytes, size_t alignment) {
    size_t begin, end;
    if (!checked_add(layout->at, alignment - 1, &begin) ||
        !checked_add(begin - begin % alignment, n_bytes, &end)) {
        layout->too_large = true;
        return NULL;
    }
    begin -= begin % alignment;
    layout->at = end;
    return layout->block ? layout->block + begin : NULL;
}

static struct str put_text(struct layout *layout, struct str text) {
    char *copy = layout_reserve(layout, text.len + 1, 1);
    if (copy) {
        memcpy(copy, text.len > 0 ? text.ptr : "", text.len);
        copy[text.len] = '\0';
    }
    return str_make(copy, text.len);
}

static void put_params(struct layout *layout, struct params params) {
    struct param *copies =
        layout_reserve(layout, params.n * sizeof(*copies), alignof(struct param));
    for (size_t i = 0; i < params.n; i++) {
        struct str name = put_text(layout, params.items[i].name);
        struct str string = put_text(layout, params.items[i].string);
        if (copies) {
            copies[i] = params.items[i];
            copies[i].name = name;
            copies[i].string = string;
        }
    }
    if (layout->block) {
        struct cached_response *cached = (struct cached_response *)(void *)layout->block;
        cached->params = copies;
        cached->n_params = params.n;
    }
}

static void put_places(struct layout *layout, const struct infer_response *response) {
    uint32_t *places =
        response->places
            ? layout_reserve(layout, response->n_outputs * sizeof(*places), alignof(uint32_t))
            : NULL;
    for (size_t i = 0; places && i < response->n_outputs; i++) {
        places[i] = response->places[i];
    }
    if (layout->block) {
        struct cached_response *cached = (struct cached_response *)(void *)layout->block;
        cached->places = places;
    }
}

static void put_output(struct layout *layout, const struct tensor *tensor,
                       struct cached_output *cached) {
    struct shape shape = tensor->shape;
    int64_t *dims = layout_reserve(layout, shape.rank * sizeof(*dims), alignof(int64_t));
    char *data = layout_reserve(layout, tensor->n_bytes, RESPONSE_CACHE_ALIGNMENT);
    if (cached && dims && data) {
        for (size_t d = 0; d < shape.rank; d++) {
            dims[d] = shape.dims[d];
        }
        size_t n_bytes = pieces_copy(tensor->pieces, tensor->n_pieces, data, tensor->n_bytes);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)n_bytes);
        *cached = (struct cached_output){dims, shape.rank, data, tensor->n_bytes};
    }
}

/* Counts or fills the block. */
static void layout_response(struct layout *layout, const struct infer_response *response) {
    struct cached_response *cached =
        layout_reserve(layout, sizeof(*cached), alignof(struct cached_response));
    struct cached_output *outputs = layout_reserve(layout, response->n_outputs * sizeof(*outputs),
                                                   alignof(struct cached_output));
    if (cached) {
        *cached = (struct cached_response){.outputs = outputs, .n_outputs = response->n_outputs};
    }
    put_places(layout, response);
    put_params(layout, response->params);
    for (size_t i = 0; i < response->n_outputs; i++) {
        put_output(layout, &response->outputs[i], outputs ? &outputs[i] : NULL);
    }
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static void release_entry(void *user) {
    cache_entry_unref(user);
}

/* Fills the response from the cached copy, in the call's prepared memory. */
static void fill_response(struct call *call, struct cache_entry *entry) {
    const struct cached_response *cached = cache_entry_data(entry);
    const struct infer_request *request = call->request;
    const struct model_spec *spec = &call->run->version->plan.spec;
    assert(cached->places || cached->n_outputs == call->run->backend_request.n_wanted);
    for (size_t i = 0; i < cached->n_outputs; i++) {
        const struct cached_output *output = &cached->outputs[i];
        size_t place = cached->places ? cached->places[i] : i;
        size_t at = request->n_wanted > 0 ? request->wanted[place].spec : place;
        call->run->output_pieces[i] = (struct piece){output->data, output->n_bytes};
        call->run->outputs[i] = (struct tensor){
            .name = spec->outputs[at].name,
            .datatype = spec->outputs[at].datatype,
            .shape = {output->dims, output->rank},
            .pieces = &call->run->output_pieces[i],
            .n_pieces = output->n_bytes > 0 ? 1 : 0,
            .n_bytes = output->n_bytes,
        };
    }
    call->response.outputs = call->run->outputs;
    call->response.n_outputs = cached->n_outputs;
    call->response.places = cached->places;
    call->response.params = (struct params){cached->params, cached->n_params};
    call_hold_outputs(call, release_entry, entry);
}

void call_cache_hash(struct call *call) {
    uint64_t began_ns = clock_now_ns();
    bool hashed = hash_call(call, &call->run->cache_key);
    call->cached = hashed ? CALL_CACHE_MISS : CALL_NOT_CACHED;
    call->finished_ns = clock_now_ns();
    call->run->cache_ns = call->finished_ns - began_ns;
}

bool call_cache_find(struct call *call) {
    struct cache_scope *scope = &call->run->version->cache;
    uint64_t began_ns = call->finished_ns;
    if (call->cached != CALL_CACHE_MISS) {
        return false;
    }
    struct cache_entry *entry = cache_find(scope, call->run->cache_key);
    if (entry) {
        call->cached = CALL_CACHE_HIT;
        fill_response(call, entry);
        call_set_state(call, CALL_ANSWERED);
    }
    call->finished_ns = clock_now_ns();
    call->run->cache_ns += call->finished_ns - began_ns;
    return entry != NULL;
}

/* ---- store ----------------------------------------------------------------------------------- */

static void store_copy(struct call *call) {
    struct cache_scope *scope = &call->run->version->cache;
    struct layout layout = {.block = NULL};
    layout_response(&layout, &call->response);
    struct cache_entry *entry = layout.too_large ? NULL : cache_reserve(scope, layout.at);
    if (entry) {
        layout = (struct layout){.block = cache_entry_data(entry)};
        layout_response(&layout, &call->response);
        cache_store(scope, call->run->cache_key, entry);
    }
}

void call_cache_store_copy(struct call *call) {
    if (call->cached == CALL_CACHE_MISS && !call->run->is_stored &&
        call->response.error.status == ST_OK) {
        call->run->is_stored = true;
        uint64_t began_ns = clock_now_ns();
        store_copy(call);
        call->run->cache_ns += clock_now_ns() - began_ns;
    }
}

/* The request as a backend sees it, and room for its answer. All of it is taken from the request's
 * arena by the worker before the call leaves it: an arena has no lock and belongs to its worker's
 * thread, so an instance must not take from it later. */
#include <string.h>

#include "serve/config/reshape.h"
#include "serve/config/sequence_control.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/version.h"

/* A copy with a NUL behind it, as the interface promises; nothing is taken for what is empty. */
static struct str text_dup(struct arena *arena, struct str text) {
    return text.len > 0 ? arena_dup(arena, text) : STR("");
}

static bool fill_param(struct arena *arena, const struct param *param, sluice_param *out) {
    static const sluice_param_kind kinds[] = {
        [PARAM_BOOL] = SLUICE_PARAM_BOOL,     [PARAM_INT64] = SLUICE_PARAM_INT64,
        [PARAM_UINT64] = SLUICE_PARAM_UINT64, [PARAM_DOUBLE] = SLUICE_PARAM_DOUBLE,
        [PARAM_STRING] = SLUICE_PARAM_STRING,
    };
    struct str name = text_dup(arena, param->name);
    struct str string = text_dup(arena, param->string);
    *out = (sluice_param){
        .name = name.ptr,
        .name_bytes = name.len,
        .kind = kinds[param->kind],
        .boolean = param->boolean,
        .int64 = param->int64,
        .uint64 = param->uint64,
        .number = param->number,
        .string = string.ptr,
        .string_bytes = string.len,
    };
    return name.ptr && string.ptr;
}

/* Is it the scheduler's or a protocol's, and not the model's business? */
static bool is_reserved_param(const struct infer_request *request, const struct param *param) {
    return !request->params_are_opaque && param_is_reserved(param->name);
}

static bool fill_params(const struct infer_request *request, sluice_request *abi) {
    struct arena *arena = request->arena;
    struct params params = request->params;
    size_t n = 0;
    abi->params = NULL;
    abi->n_params = 0;
    for (size_t i = 0; i < params.n; i++) {
        n += !is_reserved_param(request, &params.items[i]);
    }
    if (n == 0) {
        return true;
    }
    sluice_param *out = arena_calloc(arena, n, sizeof(*out));
    for (size_t i = 0; out && i < params.n; i++) {
        const struct param *param = &params.items[i];
        if (is_reserved_param(request, param)) {
            continue;
        }
        if (!fill_param(arena, param, &out[abi->n_params++])) {
            return false;
        }
    }
    abi->params = out;
    return out != NULL;
}

static bool fill_id(struct arena *arena, struct str id, sluice_request *abi) {
    struct str copy = text_dup(arena, id);
    abi->id = copy.ptr;
    abi->id_bytes = copy.len;
    return copy.ptr != NULL;
}

/* The dimensions the model sees. Returns: NULL when out of memory. */
static const int64_t *input_dims(struct arena *arena, const struct tensor_spec *spec,
                                 const struct plan_tensor *plan, struct shape shape) {
    if (!plan->reshaped) {
        return shape.dims;
    }
    int64_t *dims = arena_calloc(arena, plan->reshape.rank, sizeof(*dims));
    /* infer_check has matched the shape with the specification already. */
    return dims && reshape_apply(spec->shape, plan->reshape, shape, dims) ? dims : NULL;
}

static bool fill_input(struct arena *arena, const struct tensor_spec *spec,
                       const struct plan_tensor *plan, const struct tensor *tensor,
                       sluice_input *out) {
    sluice_piece *pieces = arena_calloc(arena, tensor->n_pieces, sizeof(*pieces));
    const int64_t *dims = input_dims(arena, spec, plan, tensor->shape);
    if (!pieces || (!dims && tensor->shape.rank > 0)) {
        return false;
    }
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        pieces[i] = (sluice_piece){tensor->pieces[i].data, tensor->pieces[i].n_bytes};
    }
    *out = (sluice_input){
        .index = plan->index,
        .datatype = (sluice_datatype)tensor->datatype,
        .name = spec->name.ptr,
        .dims = dims,
        .rank = plan->reshaped ? plan->reshape.rank : tensor->shape.rank,
        .n_bytes = tensor->n_bytes,
        .pieces = pieces,
        .n_pieces = tensor->n_pieces,
    };
    return true;
}

static bool fill_inputs(struct call *call, const struct model_plan *plan) {
    struct infer_request *request = call->request;
    size_t n_specs = plan->spec.n_inputs;
    const struct tensor **given = arena_calloc(request->arena, n_specs, sizeof(*given));
    sluice_input *inputs =
        arena_calloc(request->arena, n_specs + plan->n_controls, sizeof(*inputs));
    if (!given || !inputs) {
        return false;
    }
    for (size_t i = 0; i < request->n_inputs; i++) {
        given[request->inputs[i].spec] = &request->inputs[i].tensor;
        call->input_bytes += request->inputs[i].tensor.n_bytes;
    }
    size_t n = 0;
    for (size_t i = 0; i < n_specs; i++) {
        uint32_t spec = plan->input_order[i];
        if (!given[spec]) {
            continue; /* optional, or infer_check would have refused */
        }
        if (!fill_input(request->arena, &plan->spec.inputs[spec], &plan->inputs[spec], given[spec],
                        &inputs[n])) {
            return false;
        }
        n++;
    }
    if (plan->n_controls > 0 &&
        !controls_fill(request->arena, plan, &call->sequence_params, inputs, &n)) {
        return false;
    }
    call->abi.inputs = inputs;
    call->abi.n_inputs = n;
    return true;
}

/* Which outputs, and the room for them. */
static bool fill_wanted(struct call *call, const struct model_plan *plan) {
    struct infer_request *request = call->request;
    struct arena *arena = request->arena;
    size_t n = request->n_wanted > 0 ? request->n_wanted : plan->spec.n_outputs;
    uint32_t *wanted = arena_calloc(arena, n, sizeof(*wanted));
    call->outputs = arena_calloc(arena, n, sizeof(*call->outputs));
    call->output_pieces = arena_calloc(arena, n, sizeof(*call->output_pieces));
    call->output_dims =
        arena_calloc(arena, n, (plan->max_output_rank + 1) * sizeof(*call->output_dims));
    if (!wanted || !call->outputs || !call->output_pieces || !call->output_dims) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        wanted[i] = plan->outputs[request->n_wanted > 0 ? request->wanted[i].spec : i].index;
    }
    call->abi.wanted = wanted;
    call->abi.n_wanted = n;
    return true;
}

enum status call_prepare(struct call *call, struct error *err) {
    struct infer_request *request = call->request;
    const struct model_plan *plan = &call->version->plan;
    call->abi = (sluice_request){
        .size = sizeof(call->abi),
        .host = call,
        .batch = request->batch,
        .deadline_ns = request->deadline_ns,
    };
    call->input_bytes = 0;
    if (!fill_id(request->arena, request->id, &call->abi) || !fill_inputs(call, plan) ||
        !fill_wanted(call, plan) || !fill_params(request, &call->abi)) {
        return error_set(err, ST_NO_MEMORY,
                         "out of memory while handing the request to the model (--request-memory)");
    }
    return ST_OK;
}

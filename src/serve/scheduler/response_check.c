/* Checks an answer, because the protocols' encoders rely on consistent sizes, shapes and framing.
 * Dimensions that are consistent but differ from the model's description are passed on and logged
 * once: clients may know better than a careless exporter. */
#include <assert.h>
#include <inttypes.h>

#include "core/base/log.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"
#include "serve/config/reshape.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/version.h"

static struct arena *get_extra_arena(const struct response_target *target) {
    if (!*target->extra_arena) {
        *target->extra_arena = arena_new(NULL, 0); /* no worker's cache: any thread */
    }
    return *target->extra_arena;
}

static int64_t *output_dims_buffer(const struct response_target *target, size_t i, size_t rank) {
    size_t prepared = target->call->run->version->plan.max_output_rank;
    if (rank <= prepared) {
        return target->dims + i * prepared;
    }
    struct arena *arena = get_extra_arena(target);
    return arena ? arena_calloc(arena, rank, sizeof(int64_t)) : NULL;
}

/* Checks that it is the wanted output, with usable datatype and dimensions. */
static enum status check_output_header(const sluice_output *output, uint32_t wanted,
                                       const struct tensor_spec *spec, struct error *err) {
    if (output->index != wanted) {
        return error_set(err, ST_BACKEND_FAILED,
                         "output number %" PRIu32 " was returned in its place", output->index);
    }
    if (output->datatype != (sluice_datatype)spec->datatype) {
        return error_set(err, ST_BACKEND_FAILED, "expected datatype %s, got number %d",
                         datatype_name(spec->datatype), (int)output->datatype);
    }
    if (output->rank > SHAPE_MAX_RANK || (output->rank > 0 && !output->dims)) {
        return error_set(err, ST_BACKEND_FAILED, "expected at most %d dimensions, got %zu%s",
                         SHAPE_MAX_RANK, output->rank, output->dims ? "" : " without their sizes");
    }
    return ST_OK;
}

/* Checks that the bytes match the dimensions. */
static enum status check_output_bytes(const sluice_output *output, const struct tensor_spec *spec,
                                      struct error *err) {
    struct shape shape = {output->dims, output->rank};
    char text[SHAPE_TEXT_BYTES];
    uint64_t elements, expected;
    size_t size = datatype_size(spec->datatype);
    if (!(size > 0 ? shape_bytes(shape, spec->datatype, &expected)
                   : shape_elements(shape, &elements))) {
        return error_set(err, ST_BACKEND_FAILED, "shape %s is not possible",
                         shape_print(shape, text));
    }
    if (output->n_bytes > 0 && !output->data) {
        return error_set(err, ST_BACKEND_FAILED, "%zu bytes at no address", output->n_bytes);
    }
    if (size == 0) {
        enum status st =
            bytes_check(str_make(output->data, output->n_bytes), elements, spec->name, err);
        return st == ST_OK ? ST_OK : (err->status = ST_BACKEND_FAILED);
    }
    if (output->n_bytes != expected) {
        return error_set(err, ST_BACKEND_FAILED, "%s of shape %s is %" PRIu64 " bytes, got %zu",
                         datatype_name(spec->datatype), shape_print(shape, text), expected,
                         output->n_bytes);
    }
    if (output->n_bytes > 0 && (uintptr_t)output->data % size != 0) {
        return error_set(err, ST_BACKEND_FAILED, "its bytes are not aligned to %zu", size);
    }
    return ST_OK;
}

static void log_unexpected_shape(struct call *call, const struct tensor_spec *spec,
                                 struct shape shape) {
    struct model_version *version = call->run->version;
    const struct model_spec *model = &version->plan.spec;
    bool batch_ok = model->max_batch_size == 0 ||
                    (shape.rank > 0 && (uint64_t)shape.dims[0] == call->run->backend_request.batch);
    if ((batch_ok && shape_matches(shape, spec->shape)) ||
        atomic_flag_test_and_set(&version->shape_reported)) {
        return;
    }
    char got[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
    log_event(LOG_WARNING, "model output differs from the model's description (logged once)",
              LOG_STR("model", model->name), LOG_STR("output", spec->name),
              LOG_CSTR("described", shape_print(spec->shape, expected)),
              LOG_CSTR("got", shape_print(shape, got)),
              LOG_U64("batch", call->run->backend_request.batch));
}

/* Stores the shape that clients see. */
static enum status store_output_shape(const struct response_target *target, size_t i,
                                      const struct tensor_spec *spec,
                                      const struct plan_tensor *plan, const sluice_output *output,
                                      struct error *err) {
    struct shape given = {output->dims, output->rank};
    assert(given.rank == 0 || given.dims); /* checked by check_output_header */
    if (plan->may_be_scalar && given.rank == 0) {
        given = spec->shape;
    }
    size_t rank = plan->reshaped ? spec->shape.rank : given.rank;
    int64_t *dims = output_dims_buffer(target, i, rank);
    if (!dims) {
        return error_no_memory(err, "the model's answer");
    }
    if (!plan->reshaped) {
        for (size_t d = 0; d < rank; d++) {
            dims[d] = given.dims[d];
        }
    } else if (!reshape_apply(plan->reshape, spec->shape, given, dims)) {
        char got[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BACKEND_FAILED, "expected shape %s, to be reshaped, got %s",
                         shape_print(plan->reshape, expected), shape_print(given, got));
    }
    target->outputs[i].shape = (struct shape){dims, rank};
    log_unexpected_shape(target->call, spec, target->outputs[i].shape);
    return ST_OK;
}

static enum status store_output(const struct response_target *target, size_t i,
                                const sluice_output *output, struct error *err) {
    struct call *call = target->call;
    const struct infer_request *request = call->request;
    const struct model_plan *plan = &call->run->version->plan;
    size_t at = request->n_wanted > 0 ? request->wanted[i].spec : i;
    const struct tensor_spec *spec = &plan->spec.outputs[at];
    enum status st = check_output_header(output, call->run->backend_request.wanted[i], spec, err);
    if (st == ST_OK) {
        st = check_output_bytes(output, spec, err);
    }
    if (st == ST_OK) {
        st = store_output_shape(target, i, spec, &plan->outputs[at], output, err);
    }
    if (st != ST_OK) {
        char name[QUOTED_NAME_BYTES];
        return error_prefix(err, "output %s of backend %s", quote_name(spec->name, name),
                            call->run->version->backend->name);
    }
    struct tensor *tensor = &target->outputs[i];
    target->pieces[i] = (struct piece){output->data, output->n_bytes};
    tensor->name = spec->name;
    tensor->datatype = spec->datatype;
    tensor->pieces = &target->pieces[i];
    tensor->n_pieces = output->n_bytes > 0 ? 1 : 0;
    tensor->n_bytes = output->n_bytes;
    return ST_OK;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static bool param_is_valid(const sluice_param *param) {
    return param->name && utf8_is_valid(param->name, param->name_bytes) &&
           param->kind >= SLUICE_PARAM_BOOL && param->kind <= SLUICE_PARAM_STRING &&
           (param->kind != SLUICE_PARAM_STRING ||
            (param->string && utf8_is_valid(param->string, param->string_bytes)));
}

static bool copy_param(struct arena *arena, const sluice_param *param, struct param *out) {
    static const enum param_kind kinds[] = {
        [SLUICE_PARAM_BOOL] = PARAM_BOOL,     [SLUICE_PARAM_INT64] = PARAM_INT64,
        [SLUICE_PARAM_UINT64] = PARAM_UINT64, [SLUICE_PARAM_DOUBLE] = PARAM_DOUBLE,
        [SLUICE_PARAM_STRING] = PARAM_STRING,
    };
    bool is_string = param->kind == SLUICE_PARAM_STRING;
    *out = (struct param){
        .name = arena_dup(arena, str_make(param->name, param->name_bytes)),
        .kind = kinds[param->kind],
        .boolean = param->boolean != 0,
        .int64 = param->int64,
        .uint64 = param->uint64,
        .number = param->number,
        .string =
            arena_dup(arena, is_string ? str_make(param->string, param->string_bytes) : STR("")),
    };
    return out->name.ptr && out->string.ptr;
}

static enum status store_params(const struct response_target *target,
                                const sluice_response *response, struct error *err) {
    const struct call *call = target->call;
    if (response->n_params == 0) {
        return ST_OK;
    }
    if (!response->params) {
        return error_set(err, ST_BACKEND_FAILED,
                         "backend %s gave %zu response parameters at no "
                         "address",
                         call->run->version->backend->name, response->n_params);
    }
    struct arena *arena = get_extra_arena(target);
    struct param *items = arena ? arena_calloc(arena, response->n_params, sizeof(*items)) : NULL;
    if (!items) {
        return error_no_memory(err, "the model's answer");
    }
    for (size_t i = 0; i < response->n_params; i++) {
        if (!param_is_valid(&response->params[i])) {
            return error_set(
                err, ST_BACKEND_FAILED,
                "backend %s gave response parameter %zu without a proper name, kind or "
                "text",
                call->run->version->backend->name, i);
        }
        if (!copy_param(arena, &response->params[i], &items[i])) {
            return error_no_memory(err, "the model's answer");
        }
    }
    target->response->params = (struct params){items, response->n_params};
    return ST_OK;
}

/* The values of a request may decide how large an output is, so the limit is the client's error. */
static enum status check_response_size(const struct model_version *version,
                                       const sluice_response *response, struct error *err) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < response->n_outputs; i++) {
        if (__builtin_add_overflow(n_bytes, response->outputs[i].n_bytes, &n_bytes)) {
            n_bytes = UINT64_MAX;
            break;
        }
    }
    if (version->max_output_size > 0 && n_bytes > version->max_output_size) {
        return error_set(err, ST_OUTPUT_TOO_LARGE,
                         "the outputs are %" PRIu64 " bytes together; at most %" PRIu64
                         " are allowed (--max-output-size)",
                         n_bytes, version->max_output_size);
    }
    return ST_OK;
}

enum status response_target_store(const struct response_target *target,
                                  const sluice_response *response, struct error *err) {
    const struct call *call = target->call;
    if (response->n_outputs != call->run->backend_request.n_wanted) {
        return error_set(err, ST_BACKEND_FAILED,
                         "backend %s was asked for %zu outputs and gave %zu",
                         call->run->version->backend->name, call->run->backend_request.n_wanted,
                         response->n_outputs);
    }
    if (!response->outputs) {
        return error_set(err, ST_BACKEND_FAILED, "backend %s gave %zu outputs at no address",
                         call->run->version->backend->name, response->n_outputs);
    }
    enum status too_large = check_response_size(call->run->version, response, err);
    if (too_large != ST_OK) {
        return too_large;
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        enum status st = store_output(target, i, &response->outputs[i], err);
        if (st != ST_OK) {
            return st;
        }
    }
    target->response->outputs = target->outputs;
    target->response->n_outputs = response->n_outputs;
    return store_params(target, response, err);
}

/* Runs OpenVINO once over the requests of a batch and splits the outputs. common/batch.c decides
 * which requests are in it. Inputs are views of the request's or the instance's memory (the library
 * does not write to them, though its function takes a writable pointer). Outputs stay in the memory
 * of the pooled request that ran them, which returns to the pool when the last of them is released.
 * The library computes every output, wanted or not. */
#include "openvino/execute.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "openvino/datatype.h"

/* ---- inputs ---------------------------------------------------------------------------------- */

static sluice_status refuse_wide(const sluice_input *input, int64_t value, sluice_error *error) {
    char text[32];
    if (input->datatype == SLUICE_UINT64) {
        snprintf(text, sizeof(text), "%" PRIu64, (uint64_t)value);
    } else {
        snprintf(text, sizeof(text), "%" PRId64, value);
    }
    return error_set(error, SLUICE_INVALID_ARGUMENT,
                     "input \"%.100s\" has %s, and OpenVINO computes 64-bit numbers as 32-bit "
                     "ones: values from %ld to %ld are expected",
                     input->name, text, input->datatype == SLUICE_UINT64 ? 0L : (long)INT32_MIN,
                     (long)INT32_MAX);
}

/* The CPU device silently keeps the lower half of a 64-bit number; an error is better than a wrong
 * answer. */
static sluice_status width_check(const sluice_input *input, const void *data, size_t n_bytes,
                                 sluice_error *error) {
    if (input->datatype != SLUICE_INT64 && input->datatype != SLUICE_UINT64) {
        return SLUICE_OK;
    }
    int64_t min = input->datatype == SLUICE_UINT64 ? 0 : INT32_MIN;
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n_bytes; i += sizeof(int64_t)) {
        int64_t value;
        memcpy(&value, bytes + i, sizeof(value));
        if (value < min || value > INT32_MAX) {
            return refuse_wide(input, value, error);
        }
    }
    return SLUICE_OK;
}

static sluice_status input_set(sluice_instance *instance, struct pooled_request *pooled,
                               const sluice_request *const *requests, size_t n, size_t index,
                               sluice_error *error) {
    static const char input_failure[] = "an input could not be handed to OpenVINO";
    const sluice_input *input = &requests[0]->inputs[index];
    int64_t room[GATHER_MAX_RANK];
    const int64_t *dims = gather_dims(requests, n, index, room);
    const ov_shape_t shape = {(int64_t)input->rank, (int64_t *)(uintptr_t)dims};
    size_t n_bytes = 0;
    const void *data = gather_input(&instance->gather, requests, n, index, &n_bytes);
    sluice_status status = width_check(input, data, n_bytes, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status =
        ov_check(ov_tensor_create_from_host_ptr(datatype_of_ours(input->datatype)->theirs, shape,
                                                (void *)(uintptr_t)data, &instance->inputs[index]),
                 input_failure, error);
    if (status != SLUICE_OK) {
        return status;
    }
    return ov_check(ov_infer_request_set_input_tensor_by_index(pooled->request, input->index,
                                                               instance->inputs[index]),
                    input_failure, error);
}

static sluice_status inputs_set(sluice_instance *instance, struct pooled_request *pooled,
                                const sluice_request *const *requests, size_t n,
                                sluice_error *error) {
    if (!gather_begin(&instance->gather, requests, n)) {
        return error_no_memory(error, "gathering the inputs");
    }
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; status == SLUICE_OK && i < requests[0]->n_inputs; i++) {
        status = input_set(instance, pooled, requests, n, i, error);
    }
    return status;
}

static void inputs_release(sluice_instance *instance) {
    for (size_t i = 0; i < instance->model->signature.n_inputs; i++) {
        ov_tensor_free(instance->inputs[i]);
        instance->inputs[i] = NULL;
    }
}

/* ---- outputs --------------------------------------------------------------------------------- */

static const char output_failure[] = "an output could not be read from OpenVINO";

/* The library returns no shape for a scalar. */
static sluice_status shape_read(struct result *result, const sluice_tensor_info *info,
                                sluice_error *error) {
    ov_shape_t shape = {0};
    if (info->rank == 0) {
        return SLUICE_OK;
    }
    sluice_status status =
        ov_check(ov_tensor_get_shape(result->value, &shape), output_failure, error);
    if (status != SLUICE_OK) {
        return status;
    }
    result->rank = (size_t)shape.rank;
    if (result->rank > RESULT_MAX_RANK) {
        status = error_set(error, SLUICE_INVALID_ARGUMENT, "an output has more than 64 dimensions");
    } else {
        memcpy(result->dims, shape.dims, result->rank * sizeof(*result->dims));
    }
    ov_shape_free(&shape);
    return status;
}

static sluice_status bytes_find(struct result *result, const struct gather *gather,
                                sluice_error *error) {
    void *data = NULL;
    size_t count = 0;
    if (!result_count(result, &count)) {
        return error_set(error, SLUICE_INTERNAL, "an output is larger than memory");
    }
    sluice_status status =
        count > 0 ? ov_check(ov_tensor_data(result->value, &data), output_failure, error)
                  : SLUICE_OK;
    return status == SLUICE_OK ? result_set_data(result, data, count, gather, error) : status;
}

static sluice_status result_init(struct result *result, const sluice_tensor_info *info,
                                 const struct gather *gather, sluice_error *error) {
    const struct datatype *datatype = datatype_of_ours(info->datatype);
    ov_element_type_e element = DYNAMIC;
    sluice_status status =
        ov_check(ov_tensor_get_element_type(result->value, &element), output_failure, error);
    if (status == SLUICE_OK && element != datatype->theirs) {
        status = error_set(error, SLUICE_INTERNAL,
                           "output \"%.100s\" came with elements of type %s, not as the model "
                           "describes it",
                           info->name, datatype_word(element));
    }
    if (status == SLUICE_OK) {
        status = shape_read(result, info, error);
    }
    result->datatype = info->datatype;
    result->n_element_bytes = datatype->n_bytes;
    return status == SLUICE_OK ? bytes_find(result, gather, error) : status;
}

static void tensors_free(struct results *results) {
    for (size_t i = 0; i < results->n; i++) {
        ov_tensor_free(results->items[i].value);
    }
}

static void outputs_drop(struct results *results) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < results->n; i++) {
        n_bytes += results->items[i].n_all_bytes;
    }
    tensors_free(results);
    request_pool_put(results->owner_ref, n_bytes);
}

static sluice_status results_fill(sluice_instance *instance, struct results *results,
                                  const sluice_request *const *requests, size_t n,
                                  sluice_error *error) {
    const struct output_map *output_map = &instance->output_map;
    struct pooled_request *pooled = results->owner_ref;
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; status == SLUICE_OK && i < results->n; i++) {
        struct result *result = &results->items[i];
        const sluice_tensor_info *info = &instance->model->signature.outputs[output_map->chosen[i]];
        ov_tensor_t *tensor = NULL;
        status = ov_check(ov_infer_request_get_output_tensor_by_index(
                              pooled->request, output_map->chosen[i], &tensor),
                          output_failure, error);
        result->value = tensor;
        if (status == SLUICE_OK) {
            status = result_init(result, info, &instance->gather, error);
        }
        if (status == SLUICE_OK && n > 1) {
            status = result_split(result, info->name, batch_rows(requests, n), error);
        }
    }
    return status;
}

static sluice_status outputs_get(sluice_instance *instance, struct pooled_request *pooled,
                                 const sluice_request *const *requests, size_t n,
                                 struct results **results, sluice_error *error) {
    struct results *made = results_new(instance->output_map.n_chosen, n);
    if (!made) {
        return error_no_memory(error, "the outputs");
    }
    made->free_values = tensors_free; /* on failure the pooled request remains the caller's */
    made->owner_ref = pooled;
    sluice_status status = results_fill(instance, made, requests, n, error);
    if (status != SLUICE_OK) {
        results_free(made);
        return status;
    }
    made->free_values = outputs_drop;
    *results = made;
    return SLUICE_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* ov_infer_request_infer cannot be used: with one thread, when shapes are incompatible it swallows
 * the exception, returns OK, and leaves the outputs of the run before, which belong to another
 * request (2026.4.1). On the library's own thread the error is reported. */
static ov_status_e infer(ov_infer_request_t *request) {
    ov_status_e result = ov_infer_request_start_async(request);
    return result == OK ? ov_infer_request_wait(request) : result;
}

static sluice_status run_model(sluice_instance *instance, struct pooled_request *pooled,
                               const sluice_request *const *requests, size_t n,
                               sluice_error *error) {
    const sluice_host *host = instance->model->ov->host;
    sluice_status status = inputs_set(instance, pooled, requests, n, error);
    if (status != SLUICE_OK) {
        return status;
    }
    uint64_t began_ns = host->now_ns();
    ov_status_e result = infer(pooled->request);
    host->computed(requests, n, began_ns, host->now_ns());
    return ov_check(result, "the model could not be run", error);
}

sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error) {
    sluice_instance *instance = runner;
    struct results *results = NULL;
    struct pooled_request *pooled = NULL;
    output_map_select(&instance->output_map, requests, n);
    sluice_status status = request_pool_get(instance->pool, &pooled, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run_model(instance, pooled, requests, n, error);
    if (status == SLUICE_OK) {
        status = outputs_get(instance, pooled, requests, n, &results, error);
    }
    inputs_release(instance);
    gather_trim(&instance->gather);
    if (status == SLUICE_OK) {
        output_map_respond(&instance->output_map, instance->model->ov->host, results, requests, n);
    } else {
        request_pool_put(pooled, SIZE_MAX); /* its state is unknown */
    }
    return status;
}

void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    batch_execute(&instance->batch, requests, n);
}

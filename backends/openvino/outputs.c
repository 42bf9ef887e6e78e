/* Outputs stay in the memory of the lane that ran them, which goes back when the last of them was
 * released. */
#include "openvino/outputs.h"

#include <string.h>

#include "openvino/datatype.h"

static const char doing[] = "an output could not be read from OpenVINO";

/* Of a scalar the library has no shape to give. */
static sluice_status shape_read(struct result *result, const sluice_tensor_info *info,
                                sluice_error *error) {
    ov_shape_t shape = {0};
    if (info->rank == 0) {
        return SLUICE_OK;
    }
    sluice_status status = ov_check(ov_tensor_get_shape(result->value, &shape), doing, error);
    if (status != SLUICE_OK) {
        return status;
    }
    result->rank = (size_t)shape.rank;
    if (result->rank > RESULT_MAX_RANK) {
        status = error_set(error, SLUICE_INTERNAL, "an output has more than 64 dimensions");
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
        count > 0 ? ov_check(ov_tensor_data(result->value, &data), doing, error) : SLUICE_OK;
    return status == SLUICE_OK ? result_set_data(result, data, count, gather, error) : status;
}

static sluice_status result_init(struct result *result, const sluice_tensor_info *info,
                                 const struct gather *gather, sluice_error *error) {
    const struct datatype *datatype = datatype_of_ours(info->datatype);
    ov_element_type_e element = DYNAMIC;
    sluice_status status =
        ov_check(ov_tensor_get_element_type(result->value, &element), doing, error);
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
                          doing, error);
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

sluice_status outputs_get(sluice_instance *instance, struct pooled_request *pooled,
                          const sluice_request *const *requests, size_t n, struct results **results,
                          sluice_error *error) {
    struct results *made = results_new(instance->output_map.n_chosen, n);
    if (!made) {
        return error_set(error, SLUICE_NO_MEMORY, "no memory for the outputs");
    }
    made->free_values = tensors_free; /* the lane is the caller's until all went well */
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

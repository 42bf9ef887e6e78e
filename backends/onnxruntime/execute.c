/* Runs ONNX Runtime once over the requests of a batch and splits the outputs. common/batch.c
 * decides which requests are in it. */
#include "onnxruntime/execute.h"

#include "onnxruntime/inputs.h"
#include "onnxruntime/results.h"

/* Selects the outputs for Run, with preallocated values where possible. Returns: whether there are
 * any. */
static int select_outputs(sluice_instance *instance, const sluice_request *const *requests,
                          size_t n) {
    struct sluice_model *model = instance->model;
    const struct output_map *output_map = &instance->output_map;
    int any = 0,
        may = n == 1 && !atomic_load_explicit(&model->shape_mismatch, memory_order_relaxed);
    for (size_t i = 0; i < output_map->n_chosen; i++) {
        const sluice_tensor_info *info = &model->signature.outputs[output_map->chosen[i]];
        const struct prealloc_output *prealloc =
            may ? prealloc_find(&instance->prealloc, model->ort, &model->signature,
                                output_map->chosen[i], requests[0])
                : NULL;
        instance->output_names[i] = info->name;
        instance->output_values[i] = prealloc ? prealloc->value : NULL;
        instance->prealloc_outputs[i] = prealloc;
        instance->infos[i] = info;
        any = any || prealloc;
    }
    return any;
}

static OrtStatus *run_once(const sluice_instance *instance, size_t n_inputs) {
    const struct sluice_model *model = instance->model;
    memory_begin_run(model->max_output_bytes);
    OrtStatus *result = model->ort->api->Run(
        model->session, model->options.run, instance->input_names,
        (const OrtValue *const *)instance->input_values, n_inputs, instance->output_names,
        instance->output_map.n_chosen, instance->output_values);
    memory_end_run();
    return result;
}

/* A run fails when the model makes another shape than a preallocated value has. Runs again without
 * them; success shows that this was the reason. */
static OrtStatus *run_without_prealloc(const sluice_instance *instance, size_t n_inputs) {
    struct sluice_model *model = instance->model;
    for (size_t i = 0; i < instance->output_map.n_chosen; i++) {
        instance->output_values[i] = NULL;
        instance->prealloc_outputs[i] = NULL;
    }
    OrtStatus *result = run_once(instance, n_inputs);
    if (!result) {
        atomic_store_explicit(&model->shape_mismatch, 1, memory_order_relaxed);
    }
    return result;
}

static sluice_status run_model(const sluice_instance *instance,
                               const sluice_request *const *requests, size_t n, size_t n_inputs,
                               int any_prealloc, sluice_error *error) {
    const struct ort *ort = instance->model->ort;
    uint64_t began_ns = ort->host->now_ns();
    OrtStatus *result = run_once(instance, n_inputs);
    if (result && any_prealloc) {
        ort->api->ReleaseStatus(result);
        result = run_without_prealloc(instance, n_inputs);
    }
    ort->host->computed(requests, n, began_ns, ort->host->now_ns());
    return ort_check_run(ort, result, error);
}

sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error) {
    sluice_instance *instance = runner;
    const struct ort *ort = instance->model->ort;
    struct results *results = NULL;
    size_t n_inputs = 0;
    output_map_select(&instance->output_map, requests, n);
    int any_prealloc = select_outputs(instance, requests, n);
    sluice_status status = inputs_make(ort, &instance->gather, requests, n, instance->input_names,
                                       instance->input_values, &n_inputs, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run_model(instance, requests, n, n_inputs, any_prealloc, error);
    if (status == SLUICE_OK) {
        const struct run_outputs run_outputs = {.values = instance->output_values,
                                                .prealloc = instance->prealloc_outputs,
                                                .infos = instance->infos,
                                                .n = instance->output_map.n_chosen,
                                                .n_requests = n,
                                                .n_rows = batch_rows(requests, n),
                                                .gather = &instance->gather};
        status = results_make(ort, &run_outputs, &results, error);
    }
    inputs_release(ort, instance->input_values, n_inputs);
    gather_trim(&instance->gather);
    if (status == SLUICE_OK) {
        output_map_respond(&instance->output_map, ort->host, results, requests, n);
    }
    return status;
}

/* An optional input replaces a value of the model for the whole run, so requests that have one
 * cannot share it. */
int can_share(const void *runner, const sluice_request *const *requests, size_t n) {
    const sluice_instance *instance = runner;
    const struct signature *signature = &instance->model->signature;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < requests[i]->n_inputs; k++) {
            if (signature->inputs[requests[i]->inputs[k].index].optional) {
                return 0;
            }
        }
    }
    return 1;
}

void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    batch_execute(&instance->batch, requests, n);
}

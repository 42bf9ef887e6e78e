/* One run of ONNX Runtime over the requests of a batch, the outputs shared out. Who is in the batch
 * is decided in common/batch.c. */
#include "onnxruntime/execute.h"

#include "onnxruntime/inputs.h"
#include "onnxruntime/results.h"

/* What Run is asked for: the chosen outputs, into those values that are there already. Returns: are
 * there any? */
static int outputs_name(sluice_instance *instance, const sluice_request *const *requests,
                        size_t n) {
    struct sluice_model *model = instance->model;
    const struct shares *shares = &instance->shares;
    int any = 0, may = n == 1 && !atomic_load_explicit(&model->lies, memory_order_relaxed);
    for (size_t i = 0; i < shares->n_chosen; i++) {
        const sluice_tensor_info *info = &model->signature.outputs[shares->chosen[i]];
        const struct early_output *early =
            may ? early_find(&instance->early, model->ort, &model->signature, shares->chosen[i],
                             requests[0])
                : NULL;
        instance->output_names[i] = info->name;
        instance->output_values[i] = early ? early->value : NULL;
        instance->early_outputs[i] = early;
        instance->infos[i] = info;
        any = any || early;
    }
    return any;
}

static OrtStatus *run_once(const sluice_instance *instance, size_t n_inputs) {
    const struct sluice_model *model = instance->model;
    return model->ort->api->Run(model->session, model->options.run, instance->input_names,
                                (const OrtValue *const *)instance->input_values, n_inputs,
                                instance->output_names, instance->shares.n_chosen,
                                instance->output_values);
}

/* A run into values of another shape than the model makes fails: whether that was it shows when it
 * is run without them. */
static OrtStatus *run_without(const sluice_instance *instance, size_t n_inputs) {
    struct sluice_model *model = instance->model;
    for (size_t i = 0; i < instance->shares.n_chosen; i++) {
        instance->output_values[i] = NULL;
        instance->early_outputs[i] = NULL;
    }
    OrtStatus *result = run_once(instance, n_inputs);
    if (!result) {
        atomic_store_explicit(&model->lies, 1, memory_order_relaxed);
    }
    return result;
}

static sluice_status run(const sluice_instance *instance, const sluice_request *const *requests,
                         size_t n, size_t n_inputs, int any_early, sluice_error *error) {
    const struct ort *ort = instance->model->ort;
    uint64_t began_ns = ort->host->now_ns();
    OrtStatus *result = run_once(instance, n_inputs);
    if (result && any_early) {
        ort->api->ReleaseStatus(result);
        result = run_without(instance, n_inputs);
    }
    ort->host->computed(requests, n, began_ns, ort->host->now_ns());
    return ort_check(ort, result, "the model could not be run", error);
}

sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error) {
    sluice_instance *instance = runner;
    const struct ort *ort = instance->model->ort;
    struct results *results = NULL;
    size_t n_inputs = 0;
    shares_choose(&instance->shares, requests, n);
    int any_early = outputs_name(instance, requests, n);
    sluice_status status = inputs_make(ort, &instance->gather, requests, n, instance->input_names,
                                       instance->input_values, &n_inputs, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run(instance, requests, n, n_inputs, any_early, error);
    if (status == SLUICE_OK) {
        const struct outcome outcome = {.values = instance->output_values,
                                        .early = instance->early_outputs,
                                        .infos = instance->infos,
                                        .n = instance->shares.n_chosen,
                                        .n_requests = n,
                                        .n_rows = batch_rows(requests, n),
                                        .gather = &instance->gather};
        status = results_make(ort, &outcome, &results, error);
    }
    inputs_release(ort, instance->input_values, n_inputs);
    gather_trim(&instance->gather);
    if (status == SLUICE_OK) {
        shares_answer(&instance->shares, ort->host, results, requests, n);
    }
    return status;
}

/* An optional input replaces a value of the model for the whole run: requests that have one can't
 * share it. */
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

/* One run of ONNX Runtime over the requests of a batch, the outputs shared out. Who is in the batch
 * is decided in common/batch.c. */
#include "onnxruntime/execute.h"

#include "onnxruntime/inputs.h"
#include "onnxruntime/results.h"

/* What Run is asked for: the chosen outputs. */
static void outputs_name(sluice_instance *instance) {
    const struct shares *shares = &instance->shares;
    for (size_t i = 0; i < shares->n_chosen; i++) {
        const sluice_tensor_info *info = &instance->model->signature.outputs[shares->chosen[i]];
        instance->output_names[i] = info->name;
        instance->output_values[i] = NULL;
        instance->infos[i] = info;
    }
}

static sluice_status run(sluice_instance *instance, const sluice_request *const *requests, size_t n,
                         size_t n_inputs, sluice_error *error) {
    const struct sluice_model *model = instance->model;
    const sluice_host *host = model->ort->host;
    uint64_t began_ns = host->now_ns();
    OrtStatus *result = model->ort->api->Run(
        model->session, model->options.run, instance->input_names,
        (const OrtValue *const *)instance->input_values, n_inputs, instance->output_names,
        instance->shares.n_chosen, instance->output_values);
    host->computed(requests, n, began_ns, host->now_ns());
    return ort_check(model->ort, result, "the model could not be run", error);
}

sluice_status run_together(void *runner, const sluice_request *const *requests, size_t n,
                           sluice_error *error) {
    sluice_instance *instance = runner;
    const struct ort *ort = instance->model->ort;
    struct results *results = NULL;
    size_t n_inputs = 0;
    shares_choose(&instance->shares, requests, n);
    outputs_name(instance);
    sluice_status status = inputs_make(ort, &instance->gather, requests, n, instance->input_names,
                                       instance->input_values, &n_inputs, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run(instance, requests, n, n_inputs, error);
    if (status == SLUICE_OK) {
        const struct outcome outcome = {.values = instance->output_values,
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

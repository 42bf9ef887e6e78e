/* A batch on its way: those who still wait, one Run over all of them, the outputs shared out. When
 * the batch can't be run as one, each request is run alone, so that one that does not fit the model
 * fails by itself. */
#include "onnxruntime/execute.h"

#include <stdlib.h>

#include "onnxruntime/inputs.h"
#include "onnxruntime/results.h"

static void refuse(const sluice_instance *instance, const sluice_request *request,
                   sluice_status status, const char *sentence) {
    sluice_response response = {
        .size = sizeof(response), .status = status, .error = sentence, .final = 1};
    instance->model->ort->host->respond(request, &response);
}

/* Every output that any of the requests wants, once. Returns: how many. */
static size_t outputs_choose(sluice_instance *instance, const sluice_request *const *requests,
                             size_t n_requests) {
    const struct signature *signature = &instance->model->signature;
    size_t n = 0;
    for (size_t i = 0; i < signature->n_outputs; i++) {
        instance->slots[i] = NO_SLOT;
    }
    for (size_t i = 0; i < n_requests; i++) {
        for (size_t k = 0; k < requests[i]->n_wanted; k++) {
            uint32_t index = requests[i]->wanted[k];
            if (instance->slots[index] == NO_SLOT) {
                instance->slots[index] = (uint32_t)n;
                instance->output_names[n] = signature->outputs[index].name;
                instance->output_values[n] = NULL;
                instance->infos[n++] = &signature->outputs[index];
            }
        }
    }
    return n;
}

/* Rows of every result are taken for every request, wanted or not, so that the next one finds its
 * own. */
static void outputs_take(sluice_instance *instance, struct results *results,
                         const sluice_request *request, int split) {
    for (size_t i = 0; i < results->n; i++) {
        result_take(&results->items[i], split, request->batch, &instance->taken[i]);
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        instance->outputs[i] = instance->taken[instance->slots[request->wanted[i]]];
        instance->outputs[i].index = request->wanted[i];
    }
}

static void answer(sluice_instance *instance, struct results *results,
                   const sluice_request *const *requests, size_t n_requests) {
    for (size_t i = 0; i < n_requests; i++) {
        outputs_take(instance, results, requests[i], n_requests > 1);
        sluice_response response = {.size = sizeof(response),
                                    .outputs = instance->outputs,
                                    .n_outputs = requests[i]->n_wanted,
                                    .final = 1,
                                    .release = results_release,
                                    .cookie = results};
        instance->model->ort->host->respond(requests[i], &response);
    }
}

static sluice_status run(sluice_instance *instance, const sluice_request *const *requests, size_t n,
                         size_t n_inputs, size_t n_outputs, sluice_error *error) {
    const struct sluice_model *model = instance->model;
    const sluice_host *host = model->ort->host;
    uint64_t began_ns = host->now_ns();
    OrtStatus *result =
        model->ort->api->Run(model->session, model->options.run, instance->input_names,
                             (const OrtValue *const *)instance->input_values, n_inputs,
                             instance->output_names, n_outputs, instance->output_values);
    host->computed(requests, n, began_ns, host->now_ns());
    return ort_check(model->ort, result, "the model could not be run", error);
}

static uint64_t rows_of(const sluice_request *const *requests, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += requests[i]->batch;
    }
    return sum;
}

/* Runs the requests as one. Returns: SLUICE_OK when all were answered, else none was. */
static sluice_status run_together(sluice_instance *instance, const sluice_request *const *requests,
                                  size_t n, sluice_error *error) {
    const struct ort *ort = instance->model->ort;
    struct results *results = NULL;
    size_t n_inputs = 0, n_outputs = outputs_choose(instance, requests, n);
    sluice_status status = inputs_make(ort, &instance->gather, requests, n, instance->input_names,
                                       instance->input_values, &n_inputs, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = run(instance, requests, n, n_inputs, n_outputs, error);
    if (status == SLUICE_OK) {
        const struct outcome outcome = {.values = instance->output_values,
                                        .infos = instance->infos,
                                        .n = n_outputs,
                                        .n_requests = n,
                                        .n_rows = rows_of(requests, n),
                                        .gather = &instance->gather};
        status = results_make(ort, &outcome, &results, error);
    }
    inputs_release(ort, instance->input_values, n_inputs);
    gather_trim(&instance->gather);
    if (status == SLUICE_OK) {
        answer(instance, results, requests, n);
    }
    return status;
}

static void run_alone(sluice_instance *instance, const sluice_request *request) {
    sluice_error error;
    sluice_status status = run_together(instance, &request, 1, &error);
    if (status != SLUICE_OK) {
        refuse(instance, request, status, error.text);
    }
}

/* An optional input replaces a value of the model for the whole run: requests that have one can't
 * share it. */
static int can_share(const sluice_instance *instance, const sluice_request *const *requests,
                     size_t n) {
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

static int live_reserve(sluice_instance *instance, size_t n) {
    if (instance->n_live < n) {
        const sluice_request **grown = realloc(instance->live, n * sizeof(*grown));
        if (!grown) {
            return 0;
        }
        instance->live = grown;
        instance->n_live = n;
    }
    return 1;
}

/* Answers those for whom nobody waits any more. Returns: how many are left, in instance->live. */
static size_t live_collect(sluice_instance *instance, const sluice_request *const *requests,
                           size_t n) {
    const struct ort *ort = instance->model->ort;
    size_t n_live = 0;
    for (size_t i = 0; i < n; i++) {
        if (ort->host->is_cancelled(requests[i])) {
            refuse(instance, requests[i], SLUICE_CANCELLED, "cancelled before it was run");
        } else {
            instance->live[n_live++] = requests[i];
        }
    }
    return n_live;
}

void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    if (!live_reserve(instance, n)) {
        for (size_t i = 0; i < n; i++) {
            refuse(instance, requests[i], SLUICE_NO_MEMORY, "no memory for the batch");
        }
        return;
    }
    sluice_error error;
    n = live_collect(instance, requests, n);
    if (n > 1 && can_share(instance, instance->live, n) &&
        run_together(instance, instance->live, n, &error) == SLUICE_OK) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        run_alone(instance, instance->live[i]);
    }
}

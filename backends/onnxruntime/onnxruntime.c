/* The onnxruntime backend: ONNX models on the CPU. This file has the entry and the function table;
 * README.md describes the others. */
#include "onnxruntime/execute.h"
#include "onnxruntime/model.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

/* The library, once per process because its environment is global, set by sluice_backend_entry; the
 * other functions do not receive the host. */
static struct ort the_ort;

static sluice_status open_model(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    return model_open(&the_ort, args, model, error);
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)error;
    info->platform = "onnxruntime_onnx";
    info->inputs = model->signature.inputs;
    info->n_inputs = model->signature.n_inputs;
    info->outputs = model->signature.outputs;
    info->n_outputs = model->signature.n_outputs;
    /* An older server has no such member. */
    if (info->size >= offsetof(sluice_model_info, data_dependent) + sizeof(info->data_dependent)) {
        info->data_dependent = model->is_data_dependent;
    }
    return SLUICE_OK;
}

static const char *const extensions[] = {".onnx", NULL};

static sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "onnxruntime",
    .extensions = extensions,
    .model_open = open_model,
    .model_describe = model_describe,
    .model_close = model_close,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
};

const sluice_backend *sluice_backend_entry(const sluice_host *host) {
    sluice_error error;
    if (!text_check_host_abi(host, "onnxruntime")) {
        return NULL;
    }
    if (ort_init(&the_ort, host, &error) != SLUICE_OK) {
        host->log(SLUICE_LOG_ERROR, "", error.text);
        return NULL;
    }
    table.version = the_ort.version;
    return &table;
}

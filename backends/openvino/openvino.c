/* The openvino backend: ONNX and IR models, run by OpenVINO on the CPU. This file is the entry and
 * the table of functions; README.md says what the others do. */
#include <stdlib.h>

#include "openvino/execute.h"
#include "openvino/model.h"
#include "openvino/ov.h"
#include "sluice/backend.h"

/* The library, once per process. sluice_backend_entry is called once, before everything else, and
 * the functions of the table are not given the host again. */
static struct ov the_ov;

static sluice_status open_model(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    return model_open(&the_ov, args, model, error);
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)error;
    info->platform = "openvino";
    info->inputs = model->signature.inputs;
    info->n_inputs = model->signature.n_inputs;
    info->outputs = model->signature.outputs;
    info->n_outputs = model->signature.n_outputs;
    return SLUICE_OK;
}

static const char *const extensions[] = {".xml", ".onnx", NULL};

static sluice_backend table = {
    .size = sizeof(table),
    .abi = SLUICE_BACKEND_ABI,
    .name = "openvino",
    .extensions = extensions,
    .model_open = open_model,
    .model_describe = model_describe,
    .model_close = model_close,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
};

/* The library keeps the code that it makes for each shape, a thousand of them and up to half a
 * megabyte each, beside what CPU_RUNTIME_CACHE_CAPACITY bounds. Clients decide which shapes there
 * are. Only the variable is heard; one that is set already is the operator's word. As a change of
 * the environment before the library's threads it frees no text that another thread may be
 * reading. */
static void shapes_bound(void) {
    setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64", 0);
}

const sluice_backend *sluice_backend_entry(const sluice_host *host) {
    sluice_error error;
    if (!text_check_host_abi(host, "openvino")) {
        return NULL;
    }
    shapes_bound();
    if (ov_init(&the_ov, host, &error) != SLUICE_OK) {
        host->log(SLUICE_LOG_ERROR, "", error.text);
        return NULL;
    }
    table.version = the_ov.version;
    return &table;
}

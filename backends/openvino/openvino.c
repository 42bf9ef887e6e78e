/* The openvino backend: ONNX and IR models on the CPU. This file has the entry and the function
 * table; README.md describes the others. */
#include <stdlib.h>

#include "openvino/model.h"
#include "openvino/ov.h"
#include "sluice/backend.h"

/* The library, once per process, set by sluice_backend_entry; the other functions do not receive
 * the host. */
static struct ov the_ov;

static sluice_status open_model(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    return model_open(&the_ov, args, model, error);
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)error;
    signature_describe(&model->signature, "openvino", model->follows_shapes, info);
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

const sluice_backend *sluice_backend_entry(const sluice_host *host) {
    sluice_error error;
    if (!text_check_host_abi(host, "openvino")) {
        return NULL;
    }
    /* The library caches generated code for each shape: a thousand entries of up to half a
     * megabyte, not bounded by CPU_RUNTIME_CACHE_CAPACITY. Clients choose the shapes, so the cache
     * is bounded here. It can be set by an environment variable only; a value set by the operator
     * is kept. It is set before the library starts threads that could read the environment. */
    setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64", 0);
    if (ov_init(&the_ov, host, &error) != SLUICE_OK) {
        host->log(SLUICE_LOG_ERROR, "", error.text);
        return NULL;
    }
    table.version = the_ov.version;
    return &table;
}

/* The onnxruntime backend: ONNX models on the CPU. This file has the entry and the function table;
 * README.md describes the others. */
#include <pthread.h>
#include <string.h>

#include "common/text.h"
#include "onnxruntime/model.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

/* The library, once per process because its environment is global; the other functions do not
 * receive the host. The lock is held to load it. */
static struct ort the_ort;
static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;

/* What could not be loaded with the backend may be there by now. */
static sluice_status ensure_library(const sluice_model_args *args, sluice_error *error) {
    sluice_error reason;
    pthread_mutex_lock(&the_lock);
    sluice_status status = the_ort.api ? SLUICE_OK : ort_init(&the_ort, &reason);
    pthread_mutex_unlock(&the_lock);
    if (status != SLUICE_OK) {
        const char *slash = strrchr(args->path, '/');
        return error_set(error, status,
                         "%.100s needs backend onnxruntime, which could not be loaded: %s",
                         slash ? slash + 1 : args->path, reason.text);
    }
    return SLUICE_OK;
}

static sluice_status open_model(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error) {
    sluice_status status = ensure_library(args, error);
    return status == SLUICE_OK ? model_open(&the_ort, args, model, error) : status;
}

static sluice_status model_describe(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error) {
    (void)error;
    signature_describe(&model->signature, "onnxruntime_onnx", model->follows_shapes, info);
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
    ort_prepare(&the_ort, host);
    /* A failure is the error of the model that needs the library. */
    table.version = ort_init(&the_ort, &error) == SLUICE_OK ? the_ort.version : "none";
    return &table;
}

/* Opens and closes models and instances. */
#include "onnxruntime/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/onnx_external.h"
#include "common/onnx_graph.h"
#include "common/path.h"
#include "onnxruntime/execute.h"
#include "onnxruntime/load_check.h"

/* Nothing can be opened below it. */
static const char no_folder[] = "/dev/null/none";

/* The library gets the model and its external data from memory, and as the folder of other external
 * data one that does not exist: whatever it reads in the model, it has no file to open. */
static OrtStatus *session_create(struct sluice_model *model, const struct onnx_file *file) {
    const OrtApi *api = model->ort->api;
    OrtSessionOptions *options = model->options.session;
    OrtStatus *result = api->AddSessionConfigEntry(
        options, "session.model_external_initializers_file_folder_path", no_folder);
    if (!result) { /* not a format that onnx_file_read does not read */
        result = api->AddSessionConfigEntry(options, "session.load_model_format", "ONNX");
    }
    for (size_t i = 0; !result && i < file->n_externals; i++) {
        const struct onnx_external *external = &file->externals[i];
        const char *name = external->name;
        result = api->AddExternalInitializersFromFilesInMemory(options, &name, &external->file.data,
                                                               &external->file.n_bytes, 1);
    }
    return result ? result
                  : api->CreateSessionFromArray(model->ort->env, file->model.data,
                                                file->model.n_bytes, options, &model->session);
}

/* The file of external data that is missing is named; this adds what it is. */
static sluice_status external_check(sluice_status status, const char *path, sluice_error *error) {
    char text[sizeof(error->text)];
    if (status != SLUICE_NOT_FOUND || access(path, F_OK) != 0) {
        return status;
    }
    snprintf(text, sizeof(text), "%s", error->text);
    return error_set(error, status, "%.*s; %.150s keeps weights there: copy it beside the model",
                     300, text, path);
}

static sluice_status session_open(struct sluice_model *model, const sluice_model_args *args,
                                  sluice_error *error) {
    const struct ort *ort = model->ort;
    struct onnx_file file = {0};
    char text[4096];
    const char *path = model_file_path(args->path, "model.onnx", text, sizeof(text));
    sluice_status status = options_init(&model->options, ort, args, error);
    if (status == SLUICE_OK) {
        status =
            external_check(onnx_file_read(&file, path, ONNX_EXTERNAL_FILES, error), path, error);
    }
    if (file.zipmap[0] != '\0') {
        ort->host->log(SLUICE_LOG_INFO, args->name, file.zipmap);
    }
    if (status == SLUICE_OK) {
        status = ort_check_load(ort, session_create(model, &file), path, error);
    }
    model->follows_shapes =
        status == SLUICE_OK &&
        onnx_graph_follows_shapes((struct bytes){file.model.data, file.model.n_bytes});
    onnx_file_fini(&file); /* the session has copies */
    return status;
}

/* An older server has no limit. */
static size_t max_output_bytes_of(const sluice_model_args *args) {
    size_t end = offsetof(sluice_model_args, max_output_bytes) + sizeof(args->max_output_bytes);
    return args->size >= end ? (size_t)args->max_output_bytes : 0;
}

sluice_status model_open(const struct ort *ort, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error) {
    *model = NULL;
    struct sluice_model *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "the model");
    }
    opened->ort = ort;
    opened->max_output_bytes = max_output_bytes_of(args);
    sluice_status status = session_open(opened, args, error);
    if (status == SLUICE_OK) {
        status = signature_init(&opened->signature, ort, opened->session, error);
    }
    if (status != SLUICE_OK) {
        model_close(opened);
        return status;
    }
    *model = opened;
    return SLUICE_OK;
}

void model_close(sluice_model *model) {
    signature_fini(&model->signature);
    model->ort->api->ReleaseSession(model->session);
    options_fini(&model->options, model->ort);
    free(model);
}

/* Returns: 0 when out of memory; instance_close frees what was allocated. */
static int arrays_make(struct sluice_instance *instance, size_t n_inputs, size_t n_outputs) {
    instance->input_names = calloc(n_inputs + 1, sizeof(*instance->input_names));
    instance->input_values = calloc(n_inputs + 1, sizeof(*instance->input_values));
    instance->output_names = calloc(n_outputs + 1, sizeof(*instance->output_names));
    instance->output_values = calloc(n_outputs + 1, sizeof(*instance->output_values));
    instance->prealloc_outputs = calloc(n_outputs + 1, sizeof(*instance->prealloc_outputs));
    instance->infos = calloc(n_outputs + 1, sizeof(*instance->infos));
    return instance->input_names && instance->input_values && instance->output_names &&
           instance->output_values && instance->prealloc_outputs && instance->infos &&
           output_map_init(&instance->output_map, n_outputs) &&
           prealloc_init(&instance->prealloc, &instance->model->signature);
}

sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error) {
    *instance = NULL;
    struct sluice_instance *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "instance %u", (unsigned)index);
    }
    opened->model = model;
    opened->batch = (struct batch){
        .host = model->ort->host, .run = run_together, .can_share = can_share, .runner = opened};
    if (!arrays_make(opened, model->signature.n_inputs, model->signature.n_outputs)) {
        instance_close(opened);
        return error_no_memory(error, "instance %u", (unsigned)index);
    }
    *instance = opened;
    return SLUICE_OK;
}

void instance_close(sluice_instance *instance) {
    gather_fini(&instance->gather);
    prealloc_fini(&instance->prealloc, instance->model->ort);
    free(instance->input_names);
    free(instance->input_values);
    free(instance->output_names);
    free(instance->output_values);
    free(instance->prealloc_outputs);
    free(instance->infos);
    output_map_fini(&instance->output_map);
    batch_fini(&instance->batch);
    free(instance);
}

/* Opens and closes models and instances. */
#include "openvino/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/onnx_external.h"
#include "common/onnx_graph.h"
#include "common/path.h"
#include "openvino/execute.h"
#include "openvino/ir.h"

static int ends_with(const char *file, const char *extension) {
    size_t n = strlen(file), n_extension = strlen(extension);
    return n >= n_extension && strcmp(file + n - n_extension, extension) == 0;
}

static int is_ir(const char *file) {
    return ends_with(file, ".xml");
}

/* The library opens the weights beside an IR model, model.bin of model.xml; of a pipe it would wait
 * for the writer. */
static sluice_status check_weights(const char *file, sluice_error *error) {
    char path[4096];
    struct stat info;
    size_t n = strlen(file);
    if (!is_ir(file) || n >= sizeof(path)) {
        return SLUICE_OK;
    }
    snprintf(path, sizeof(path), "%.*s.bin", (int)(n - 4), file);
    return stat(path, &info) != 0 || S_ISREG(info.st_mode)
               ? SLUICE_OK
               : error_set(error, SLUICE_INVALID_ARGUMENT, "%s: expected a regular file", path);
}

/* A step of loading that can fail. */
typedef sluice_status (*load_step)(const struct sluice_model *model, const char *file, void *made,
                                   sluice_error *error);

/* The library has one text for the last error of the whole process, so a step that fails beside
 * another model's may get that one's text: it is repeated until it fails twice with the same. */
static sluice_status run_step(load_step step, const struct sluice_model *model, const char *file,
                              void *made, sluice_error *error) {
    enum { MAX_REPEATS = 4 };
    sluice_status status = step(model, file, made, error);
    for (int i = 0; status != SLUICE_OK && i < MAX_REPEATS; i++) {
        sluice_error before = *error;
        status = step(model, file, made, error);
        if (strcmp(before.text, error->text) == 0) {
            break;
        }
    }
    return status;
}

static ov_status_e call_read(const struct sluice_model *model, const char *file,
                             ov_model_t **made) {
    const struct file *onnx = &model->onnx.model;
    return onnx->data ? ov_core_read_model_from_memory_buffer(model->ov->core, onnx->data,
                                                              onnx->n_bytes, NULL, made)
                      : ov_core_read_model(model->ov->core, file, NULL, made);
}

/* *made: ov_model_t *. */
static sluice_status read_model(const struct sluice_model *model, const char *file, void *made,
                                sluice_error *error) {
    return ov_check(call_read(model, file, made), "OpenVINO can't load the model", error);
}

/* *made: ov_compiled_model_t *. */
static sluice_status compile_model(const struct sluice_model *model, const char *file, void *made,
                                   sluice_error *error) {
    (void)file;
    return ov_check(ov_core_compile_model_props(model->ov->core, model->model, "CPU",
                                                model->options.n, model->options.properties, made),
                    "OpenVINO can't compile the model", error);
}

/* The error for an unknown file format lists the supported ones. */
static sluice_status read_file(struct sluice_model *model, const char *file, sluice_error *error) {
    sluice_status status = run_step(read_model, model, file, &model->model, error);
    if (status != SLUICE_OK && strstr(error->text, "Unable to read the model")) {
        return error_set(error, SLUICE_INVALID_ARGUMENT,
                         "OpenVINO can't load the model: the file is neither an ONNX model nor an "
                         "IR model of a version that OpenVINO %s reads",
                         model->ov->version);
    }
    return status;
}

/* The CPU device computes 64-bit integers as 32-bit (README.md); logs a warning for a model that
 * outputs them. */
static void warn_of_width(const struct sluice_model *model, const sluice_model_args *args) {
    const struct signature *signature = &model->signature;
    for (size_t i = 0; i < signature->n_inputs + signature->n_outputs; i++) {
        const sluice_tensor_info *info = i < signature->n_inputs
                                             ? &signature->inputs[i]
                                             : &signature->outputs[i - signature->n_inputs];
        if (info->datatype == SLUICE_FP64) {
            model->ov->host->log(SLUICE_LOG_WARNING, args->name,
                                 "OpenVINO computes FP64 as FP32 on the CPU");
            return;
        }
    }
}

/* The library generates code for shapes that it sees for the first time, or that have left its
 * cache, so only a model whose shapes are all fixed, the batch dimension's too, has equal times. */
static int follows_shapes(const struct sluice_model *model, const char *file) {
    if (ov_model_is_dynamic(model->model)) {
        return 0;
    }
    return is_ir(file) ? ir_follows_shapes(file)
                       : onnx_graph_follows_shapes(
                             (struct bytes){model->onnx.model.data, model->onnx.model.n_bytes});
}

static sluice_status load_model(struct sluice_model *model, const sluice_model_args *args,
                                sluice_error *error) {
    char text[4096];
    const char *file = model_file_path(args->path, "model.onnx", text, sizeof(text));
    sluice_status status = options_init(&model->options, model->ov->host, args, error);
    if (status == SLUICE_OK) {
        status = check_weights(file, error);
    }
    if (status == SLUICE_OK && ends_with(file, ".onnx")) { /* the library opens no weights of it */
        status = onnx_file_read(&model->onnx, file, ONNX_EXTERNAL_EMBED, error);
        if (status == SLUICE_OK && model->onnx.zipmap[0] != '\0') {
            model->ov->host->log(SLUICE_LOG_INFO, args->name, model->onnx.zipmap);
        }
    }
    if (status == SLUICE_OK) {
        status = read_file(model, file, error);
    }
    if (status == SLUICE_OK) {
        status = signature_init(&model->signature, model->model, error);
    }
    if (status == SLUICE_OK) {
        model->follows_shapes = follows_shapes(model, file);
    }
    onnx_file_fini(&model->onnx);
    return status == SLUICE_OK ? run_step(compile_model, model, file, &model->spare, error)
                               : status;
}

sluice_status model_open(const struct ov *ov, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error) {
    *model = NULL;
    struct sluice_model *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "the model");
    }
    opened->ov = ov;
    sluice_status status = load_model(opened, args, error);
    if (status != SLUICE_OK) {
        model_close(opened);
        return status;
    }
    warn_of_width(opened, args);
    *model = opened;
    return SLUICE_OK;
}

void model_close(sluice_model *model) {
    signature_fini(&model->signature);
    ov_compiled_model_free(model->spare);
    ov_model_free(model->model);
    free(model);
}

static sluice_status request_pool_open(sluice_model *model, struct sluice_instance *instance,
                                       sluice_error *error) {
    ov_compiled_model_t *compiled = model->spare;
    sluice_status status =
        compiled ? SLUICE_OK : run_step(compile_model, model, NULL, &compiled, error);
    model->spare = NULL;
    if (status == SLUICE_OK) {
        instance->pool = request_pool_new(compiled);
    }
    if (status == SLUICE_OK && !instance->pool) {
        status = error_no_memory(error, "an instance");
    }
    return status;
}

sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error) {
    *instance = NULL;
    struct sluice_instance *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "instance %u", (unsigned)index);
    }
    opened->model = model;
    opened->batch = (struct batch){.host = model->ov->host, .run = run_together, .runner = opened};
    opened->inputs = calloc(model->signature.n_inputs + 1, sizeof(*opened->inputs));
    int whole = output_map_init(&opened->output_map, model->signature.n_outputs) && opened->inputs;
    sluice_status status = whole ? request_pool_open(model, opened, error)
                                 : error_no_memory(error, "instance %u", (unsigned)index);
    if (status != SLUICE_OK) {
        instance_close(opened);
        return status;
    }
    *instance = opened;
    return SLUICE_OK;
}

void instance_close(sluice_instance *instance) {
    if (instance->pool) {
        request_pool_unref(instance->pool);
    }
    gather_fini(&instance->gather);
    free(instance->inputs);
    output_map_fini(&instance->output_map);
    batch_fini(&instance->batch);
    free(instance);
}

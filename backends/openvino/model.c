/* Opens and closes models: reading the file, its inputs and outputs, compiling. OpenVINO has no
 * names for free dimensions. */
#include "openvino/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openvino/c/ov_node.h>
#include <openvino/c/ov_partial_shape.h>

#include "common/text.h"

/* ---- datatypes ------------------------------------------------------------------------------- */

/* Strings are not supported: the library's C interface reads them only up to a NUL and cannot
 * return them. */
static const struct datatype table[] = {
    {SLUICE_BOOL, BOOLEAN, 1}, {SLUICE_UINT8, U8, 1},   {SLUICE_UINT16, U16, 2},
    {SLUICE_UINT32, U32, 4},   {SLUICE_UINT64, U64, 8}, {SLUICE_INT8, I8, 1},
    {SLUICE_INT16, I16, 2},    {SLUICE_INT32, I32, 4},  {SLUICE_INT64, I64, 8},
    {SLUICE_FP16, F16, 2},     {SLUICE_FP32, F32, 4},   {SLUICE_FP64, F64, 8},
    {SLUICE_BF16, BF16, 2},
};

enum { N_ROWS = sizeof(table) / sizeof(table[0]) };

/* In the order of ov_element_type_e. */
static const char *const words[] = {
    "dynamic", "boolean", "bf16", "f16",    "f32",    "f64",    "i4",     "i8",     "i16",
    "i32",     "i64",     "u1",   "u2",     "u3",     "u4",     "u6",     "u8",     "u16",
    "u32",     "u64",     "nf4",  "f8e4m3", "f8e5m2", "string", "f4e2m1", "f8e8m0",
};

const struct datatype *datatype_of_ours(sluice_datatype ours) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (table[i].ours == ours) {
            return &table[i];
        }
    }
    return NULL;
}

const struct datatype *datatype_of_theirs(ov_element_type_e theirs) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (table[i].theirs == theirs) {
            return &table[i];
        }
    }
    return NULL;
}

const char *datatype_word(ov_element_type_e theirs) {
    size_t index = (size_t)theirs;
    return index < sizeof(words) / sizeof(words[0]) ? words[index] : "of a newer kind";
}

/* ---- signature ------------------------------------------------------------------------------- */

/* The inputs or outputs of a model. */
struct list {
    const char *word; /* "input" */
    ov_status_e (*count)(const ov_model_t *model, size_t *n);
    ov_status_e (*port)(const ov_model_t *model, const size_t index, ov_output_const_port_t **port);
};

/* Common arguments of the functions below. */
struct reader {
    struct signature *signature;
    const ov_model_t *model;
    sluice_error *error;
};

static sluice_status check_status(const struct reader *reader, ov_status_e result) {
    return ov_check(result, "the model's inputs and outputs could not be read", reader->error);
}

/* A tensor of an IR model may have no name; its number is used then. */
static sluice_status name_read(const struct reader *reader, const struct list *list, size_t index,
                               const ov_output_const_port_t *port, sluice_tensor_info *info) {
    char numbered[32], *theirs = NULL;
    if (ov_port_get_any_name(port, &theirs) != OK) {
        theirs = NULL;
    }
    snprintf(numbered, sizeof(numbered), "%s%zu", list->word, index);
    info->name = signature_strdup(reader->signature, theirs ? theirs : numbered, reader->error);
    ov_free(theirs);
    return info->name ? SLUICE_OK : SLUICE_NO_MEMORY;
}

static sluice_status datatype_read(const struct reader *reader, const struct list *list,
                                   const ov_output_const_port_t *port, sluice_tensor_info *info) {
    ov_element_type_e element = DYNAMIC;
    sluice_status status = check_status(reader, ov_port_get_element_type(port, &element));
    if (status != SLUICE_OK) {
        return status;
    }
    if (element == STRING) {
        return error_set(reader->error, SLUICE_UNSUPPORTED,
                         "%s \"%.100s\" is of strings, which OpenVINO's C interface can't hand "
                         "over: serve the model with the onnxruntime backend",
                         list->word, info->name);
    }
    const struct datatype *datatype = datatype_of_theirs(element);
    if (!datatype) {
        return signature_refuse_type(reader->error, list->word, info->name, datatype_word(element));
    }
    info->datatype = datatype->ours;
    return SLUICE_OK;
}

/* A bounded dimension is reported as free: OpenVINO refuses sizes outside the bounds. */
static sluice_status dims_read(const struct reader *reader, const struct list *list,
                               const ov_partial_shape_t *shape, sluice_tensor_info *info) {
    if (shape->rank.min != shape->rank.max) { /* ov_rank_is_dynamic also returns true for a
                                                 scalar */
        return error_set(reader->error, SLUICE_UNSUPPORTED,
                         "%s \"%.100s\" may have any number of dimensions: give it a shape when "
                         "exporting the model",
                         list->word, info->name);
    }
    info->rank = (size_t)shape->rank.max;
    if (info->rank > MAX_RANK) {
        return error_set(reader->error, SLUICE_UNSUPPORTED,
                         "%s \"%.100s\" has %zu dimensions; at most %d can be served", list->word,
                         info->name, info->rank, MAX_RANK);
    }
    int64_t *dims = signature_alloc(reader->signature, info->rank, sizeof(*dims), reader->error);
    if (!dims) {
        return SLUICE_NO_MEMORY;
    }
    for (size_t i = 0; i < info->rank; i++) {
        dims[i] = ov_dimension_is_dynamic(shape->dims[i]) ? -1 : shape->dims[i].max;
    }
    info->dims = dims;
    return SLUICE_OK;
}

static sluice_status tensor_info_read(const struct reader *reader, const struct list *list,
                                      size_t index, sluice_tensor_info *info) {
    ov_output_const_port_t *port = NULL;
    ov_partial_shape_t shape = {0};
    sluice_status status = check_status(reader, list->port(reader->model, index, &port));
    if (status != SLUICE_OK) {
        return status;
    }
    status = name_read(reader, list, index, port, info);
    if (status == SLUICE_OK) {
        status = datatype_read(reader, list, port, info);
    }
    if (status == SLUICE_OK) {
        status = check_status(reader, ov_port_get_partial_shape(port, &shape));
    }
    if (status == SLUICE_OK) {
        status = dims_read(reader, list, &shape, info);
        ov_partial_shape_free(&shape);
    }
    ov_output_const_port_free(port);
    return status;
}

static sluice_status list_read(const struct reader *reader, const struct list *list,
                               sluice_tensor_info **infos, size_t *n) {
    sluice_status status = check_status(reader, list->count(reader->model, n));
    if (status != SLUICE_OK) {
        return status;
    }
    *infos = signature_alloc(reader->signature, *n, sizeof(**infos), reader->error);
    if (!*infos) {
        return SLUICE_NO_MEMORY;
    }
    for (size_t i = 0; status == SLUICE_OK && i < *n; i++) {
        status = tensor_info_read(reader, list, i, &(*infos)[i]);
    }
    return status;
}

/* A tensor of unknown rank or of another datatype is refused (SLUICE_UNSUPPORTED) with a remedy. */
static sluice_status signature_read(struct signature *signature, const ov_model_t *model,
                                    sluice_error *error) {
    static const struct list inputs = {"input", ov_model_inputs_size,
                                       ov_model_const_input_by_index};
    static const struct list outputs = {"output", ov_model_outputs_size,
                                        ov_model_const_output_by_index};
    const struct reader reader = {signature, model, error};
    sluice_status status = list_read(&reader, &inputs, &signature->inputs, &signature->n_inputs);
    return status == SLUICE_OK
               ? list_read(&reader, &outputs, &signature->outputs, &signature->n_outputs)
               : status;
}

/* ---- models ---------------------------------------------------------------------------------- */

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

/* *made: ov_model_t *. */
static sluice_status read_model(const struct sluice_model *model, const char *file, void *made,
                                sluice_error *error) {
    const struct file *onnx = &model->onnx.model;
    ov_status_e result = onnx->data ? ov_core_read_model_from_memory_buffer(
                                          model->ov->core, onnx->data, onnx->n_bytes, NULL, made)
                                    : ov_core_read_model(model->ov->core, file, NULL, made);
    return ov_check(result, "OpenVINO can't load the model", error);
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
        status = signature_read(&model->signature, model->model, error);
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

sluice_status model_compile(sluice_model *model, ov_compiled_model_t **compiled,
                            sluice_error *error) {
    *compiled = model->spare;
    model->spare = NULL;
    return *compiled ? SLUICE_OK : run_step(compile_model, model, NULL, compiled, error);
}

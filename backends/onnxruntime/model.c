/* Opens and closes models: the session, and its inputs and outputs. */
#include "onnxruntime/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/onnx_file.h"
#include "common/text.h"
#include "onnxruntime/tensors.h"

/* ---- signature ------------------------------------------------------------------------------- */

/* The inputs, outputs or initializers of a session. */
struct list {
    const char *word; /* "input" */
    int32_t optional;
    OrtStatus *(*count)(const OrtSession *session, size_t *n);
    OrtStatus *(*name)(const OrtSession *session, size_t index, OrtAllocator *allocator,
                       char **name);
    OrtStatus *(*type)(const OrtSession *session, size_t index, OrtTypeInfo **type);
};

/* Common arguments of the functions below. */
struct reader {
    struct signature *signature;
    const struct ort *ort;
    const OrtSession *session;
    sluice_error *error;
};

static const char doing[] = "the model's inputs and outputs could not be read";

static sluice_status check_status(const struct reader *reader, OrtStatus *result) {
    return ort_check(reader->ort, result, doing, reader->error);
}

static void *alloc(const struct reader *reader, size_t n, size_t n_bytes) {
    return signature_alloc(reader->signature, n, n_bytes, reader->error);
}

static char *text_dup(const struct reader *reader, const char *text) {
    return signature_strdup(reader->signature, text, reader->error);
}

static sluice_status name_read(const struct reader *reader, const struct list *list, size_t index,
                               sluice_tensor_info *info) {
    OrtAllocator *allocator = reader->ort->allocator;
    char *theirs = NULL;
    sluice_status status =
        check_status(reader, list->name(reader->session, index, allocator, &theirs));
    if (status != SLUICE_OK) {
        return status;
    }
    info->name = text_dup(reader, theirs);
    allocator->Free(allocator, theirs);
    return info->name ? SLUICE_OK : SLUICE_NO_MEMORY;
}

/* The error for a value that is not a tensor, with the remedy. */
static sluice_status error_unsupported_type(const struct reader *reader, const struct list *list,
                                            const char *name, ONNXType type) {
    const char *is = "of a kind that is unknown here";
    const char *instead = "have the model take and give tensors";
    switch (type) {
    case ONNX_TYPE_SEQUENCE:
    case ONNX_TYPE_MAP:
        is = type == ONNX_TYPE_MAP ? "a map" : "a sequence";
        instead = "convert the model without it (skl2onnx: options={'zipmap': False})";
        break;
    case ONNX_TYPE_OPTIONAL:
        is = "of ONNX's optional type";
        instead = "give it a tensor type, and a default in an initializer of the same name";
        break;
    case ONNX_TYPE_SPARSETENSOR:
        is = "a sparse tensor";
        instead = "make it a dense one";
        break;
    case ONNX_TYPE_UNKNOWN:
    case ONNX_TYPE_TENSOR:
    case ONNX_TYPE_OPAQUE:
        break;
    }
    return error_set(reader->error, SLUICE_UNSUPPORTED,
                     "%s \"%.100s\" is %s, and only tensors can be served: %s", list->word, name,
                     is, instead);
}

static sluice_status symbols_read(const struct reader *reader,
                                  const OrtTensorTypeAndShapeInfo *theirs,
                                  sluice_tensor_info *info) {
    const char *symbols[MAX_RANK] = {0};
    const char **copies = alloc(reader, info->rank, sizeof(*copies));
    if (!copies) {
        return SLUICE_NO_MEMORY;
    }
    sluice_status status =
        check_status(reader, reader->ort->api->GetSymbolicDimensions(theirs, symbols, info->rank));
    for (size_t i = 0; status == SLUICE_OK && i < info->rank; i++) {
        copies[i] = text_dup(reader, info->dims[i] < 0 && symbols[i] ? symbols[i] : "");
        if (!copies[i]) {
            return SLUICE_NO_MEMORY;
        }
    }
    info->symbols = copies;
    return status;
}

static sluice_status dims_read(const struct reader *reader, const struct list *list,
                               const OrtTensorTypeAndShapeInfo *theirs, sluice_tensor_info *info) {
    const OrtApi *api = reader->ort->api;
    sluice_status status = check_status(reader, api->GetDimensionsCount(theirs, &info->rank));
    if (status != SLUICE_OK) {
        return status;
    }
    if (info->rank > MAX_RANK) {
        return error_set(reader->error, SLUICE_UNSUPPORTED,
                         "%s \"%.100s\" has %zu dimensions; at most %d can be served", list->word,
                         info->name, info->rank, MAX_RANK);
    }
    int64_t *dims = alloc(reader, info->rank, sizeof(*dims));
    if (!dims) {
        return SLUICE_NO_MEMORY;
    }
    info->dims = dims;
    status = check_status(reader, api->GetDimensions(theirs, dims, info->rank));
    return status == SLUICE_OK ? symbols_read(reader, theirs, info) : status;
}

static sluice_status tensor_read(const struct reader *reader, const struct list *list,
                                 const OrtTypeInfo *type, sluice_tensor_info *info) {
    const OrtApi *api = reader->ort->api;
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    enum ONNXType kind = ONNX_TYPE_UNKNOWN;
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    sluice_status status = check_status(reader, api->GetOnnxTypeFromTypeInfo(type, &kind));
    if (status == SLUICE_OK) {
        status = check_status(reader, api->CastTypeInfoToTensorInfo(type, &tensor));
    }
    if (status == SLUICE_OK && (kind != ONNX_TYPE_TENSOR || !tensor)) {
        return error_unsupported_type(reader, list, info->name, kind);
    }
    if (status == SLUICE_OK) {
        status = check_status(reader, api->GetTensorElementType(tensor, &element));
    }
    if (status != SLUICE_OK) {
        return status;
    }
    const struct datatype *datatype = datatype_of_theirs(element);
    if (!datatype) {
        return signature_refuse_type(reader->error, list->word, info->name, datatype_word(element));
    }
    info->datatype = datatype->ours;
    return dims_read(reader, list, tensor, info);
}

static sluice_status tensor_info_read(const struct reader *reader, const struct list *list,
                                      size_t index, sluice_tensor_info *info) {
    OrtTypeInfo *type = NULL;
    *info = (sluice_tensor_info){.optional = list->optional};
    sluice_status status = name_read(reader, list, index, info);
    if (status == SLUICE_OK) {
        status = check_status(reader, list->type(reader->session, index, &type));
    }
    if (status == SLUICE_OK) {
        status = tensor_read(reader, list, type, info);
        reader->ort->api->ReleaseTypeInfo(type);
    }
    return status;
}

/* Appends a list to `infos`, which has capacity for it. */
static sluice_status list_read(const struct reader *reader, const struct list *list, size_t count,
                               sluice_tensor_info *infos, size_t *n) {
    for (size_t i = 0; i < count; i++) {
        sluice_status status = tensor_info_read(reader, list, i, &infos[*n]);
        if (status == SLUICE_OK) {
            (*n)++;
        } else if (status != SLUICE_UNSUPPORTED || !list->optional) {
            return status;
        }
    }
    return SLUICE_OK;
}

/* Required inputs, then overridable initializers as optional inputs. A required input or an output
 * that is not a tensor of one of our datatypes is refused (SLUICE_UNSUPPORTED) with a remedy; an
 * optional one is left out. */
static sluice_status inputs_read(const struct reader *reader) {
    const OrtApi *api = reader->ort->api;
    const struct list required = {"input", 0, api->SessionGetInputCount, api->SessionGetInputName,
                                  api->SessionGetInputTypeInfo};
    const struct list optional = {"input", 1, api->SessionGetOverridableInitializerCount,
                                  api->SessionGetOverridableInitializerName,
                                  api->SessionGetOverridableInitializerTypeInfo};
    struct signature *signature = reader->signature;
    size_t n_required = 0, n_optional = 0;
    sluice_status status = check_status(reader, required.count(reader->session, &n_required));
    if (status == SLUICE_OK) {
        status = check_status(reader, optional.count(reader->session, &n_optional));
    }
    if (status != SLUICE_OK) {
        return status;
    }
    signature->inputs = alloc(reader, n_required + n_optional, sizeof(*signature->inputs));
    if (!signature->inputs) {
        return SLUICE_NO_MEMORY;
    }
    status = list_read(reader, &required, n_required, signature->inputs, &signature->n_inputs);
    if (status != SLUICE_OK) {
        return status;
    }
    return list_read(reader, &optional, n_optional, signature->inputs, &signature->n_inputs);
}

static sluice_status outputs_read(const struct reader *reader) {
    const OrtApi *api = reader->ort->api;
    const struct list list = {"output", 0, api->SessionGetOutputCount, api->SessionGetOutputName,
                              api->SessionGetOutputTypeInfo};
    struct signature *signature = reader->signature;
    size_t n = 0;
    sluice_status status = check_status(reader, list.count(reader->session, &n));
    if (status != SLUICE_OK) {
        return status;
    }
    signature->outputs = alloc(reader, n, sizeof(*signature->outputs));
    if (!signature->outputs) {
        return SLUICE_NO_MEMORY;
    }
    return list_read(reader, &list, n, signature->outputs, &signature->n_outputs);
}

/* ---- models ---------------------------------------------------------------------------------- */

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

static sluice_status session_open(struct sluice_model *model, const sluice_model_args *args,
                                  sluice_error *error) {
    const struct ort *ort = model->ort;
    struct onnx_file file = {0};
    char text[4096];
    const char *path = model_file_path(args->path, "model.onnx", text, sizeof(text));
    sluice_status status = options_init(&model->options, ort, args, error);
    if (status == SLUICE_OK) {
        status = onnx_file_read(&file, path, ONNX_EXTERNAL_FILES, error);
        if (status == SLUICE_NOT_FOUND && access(path, F_OK) == 0) { /* external data is missing */
            const sluice_error missing = *error;
            status = error_set(error, status,
                               "%.300s; %.150s keeps weights there: copy it beside the model",
                               missing.text, path);
        }
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

sluice_status model_open(const struct ort *ort, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error) {
    *model = NULL;
    struct sluice_model *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_no_memory(error, "the model");
    }
    opened->ort = ort;
    if (args->size >=
        offsetof(sluice_model_args, max_output_bytes) + sizeof(args->max_output_bytes)) {
        opened->max_output_bytes = (size_t)args->max_output_bytes; /* an older server has none */
    }
    sluice_status status = session_open(opened, args, error);
    if (status == SLUICE_OK) {
        const struct reader reader = {&opened->signature, ort, opened->session, error};
        status = inputs_read(&reader);
        if (status == SLUICE_OK) {
            status = outputs_read(&reader);
        }
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

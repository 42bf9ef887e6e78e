/* Reads names, types, dimensions and their symbols of a session, copied into blocks that are freed
 * together. */
#include "onnxruntime/signature.h"

#include <string.h>

#include "onnxruntime/datatype.h"

enum { MAX_RANK = 64 };

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

static void *signature_alloc(const struct reader *reader, size_t n, size_t n_bytes) {
    return block_alloc(&reader->signature->blocks, n, n_bytes, reader->error);
}

static char *text_dup(const struct reader *reader, const char *text) {
    return block_strdup(&reader->signature->blocks, text, reader->error);
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
    const char **copies = signature_alloc(reader, info->rank, sizeof(*copies));
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
    int64_t *dims = signature_alloc(reader, info->rank, sizeof(*dims));
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
        return error_set(reader->error, SLUICE_UNSUPPORTED,
                         "%s \"%.100s\" has elements of type %s, which the protocols have no "
                         "datatype for: cast it inside the model",
                         list->word, info->name, datatype_word(element));
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
    signature->inputs =
        signature_alloc(reader, n_required + n_optional, sizeof(*signature->inputs));
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
    signature->outputs = signature_alloc(reader, n, sizeof(*signature->outputs));
    if (!signature->outputs) {
        return SLUICE_NO_MEMORY;
    }
    return list_read(reader, &list, n, signature->outputs, &signature->n_outputs);
}

sluice_status signature_init(struct signature *signature, const struct ort *ort,
                             const OrtSession *session, sluice_error *error) {
    *signature = (struct signature){0};
    const struct reader reader = {signature, ort, session, error};
    sluice_status status = inputs_read(&reader);
    if (status == SLUICE_OK) {
        status = outputs_read(&reader);
    }
    if (status != SLUICE_OK) {
        signature_fini(signature);
    }
    return status;
}

void signature_fini(struct signature *signature) {
    blocks_free(&signature->blocks);
    *signature = (struct signature){0};
}

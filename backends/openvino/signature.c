/* Reads names, types and dimensions of a model, copied into blocks that are freed together.
 * OpenVINO has no names for free dimensions. */
#include "openvino/signature.h"

#include <stdio.h>

#include <openvino/c/ov_node.h>
#include <openvino/c/ov_partial_shape.h>

#include "openvino/datatype.h"

enum { MAX_RANK = 64 };

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
    info->name =
        block_strdup(&reader->signature->blocks, theirs ? theirs : numbered, reader->error);
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
        return error_set(reader->error, SLUICE_UNSUPPORTED,
                         "%s \"%.100s\" has elements of type %s, which the protocols have no "
                         "datatype for: cast it inside the model",
                         list->word, info->name, datatype_word(element));
    }
    info->datatype = datatype->ours;
    return SLUICE_OK;
}

/* A bounded dimension is reported as free: OpenVINO refuses sizes outside the bounds. */
static sluice_status dims_copy(const struct reader *reader, const struct list *list,
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
    int64_t *dims =
        block_alloc(&reader->signature->blocks, info->rank, sizeof(*dims), reader->error);
    if (!dims) {
        return SLUICE_NO_MEMORY;
    }
    for (size_t i = 0; i < info->rank; i++) {
        dims[i] = ov_dimension_is_dynamic(shape->dims[i]) ? -1 : shape->dims[i].max;
    }
    info->dims = dims;
    return SLUICE_OK;
}

static sluice_status dims_read(const struct reader *reader, const struct list *list,
                               const ov_output_const_port_t *port, sluice_tensor_info *info) {
    ov_partial_shape_t shape = {0};
    sluice_status status = check_status(reader, ov_port_get_partial_shape(port, &shape));
    if (status == SLUICE_OK) {
        status = dims_copy(reader, list, &shape, info);
        ov_partial_shape_free(&shape);
    }
    return status;
}

static sluice_status tensor_info_read(const struct reader *reader, const struct list *list,
                                      size_t index, sluice_tensor_info *info) {
    ov_output_const_port_t *port = NULL;
    sluice_status status = check_status(reader, list->port(reader->model, index, &port));
    if (status != SLUICE_OK) {
        return status;
    }
    status = name_read(reader, list, index, port, info);
    if (status == SLUICE_OK) {
        status = datatype_read(reader, list, port, info);
    }
    if (status == SLUICE_OK) {
        status = dims_read(reader, list, port, info);
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
    *infos = block_alloc(&reader->signature->blocks, *n, sizeof(**infos), reader->error);
    if (!*infos) {
        return SLUICE_NO_MEMORY;
    }
    for (size_t i = 0; status == SLUICE_OK && i < *n; i++) {
        status = tensor_info_read(reader, list, i, &(*infos)[i]);
    }
    return status;
}

sluice_status signature_init(struct signature *signature, const ov_model_t *model,
                             sluice_error *error) {
    static const struct list inputs = {"input", ov_model_inputs_size,
                                       ov_model_const_input_by_index};
    static const struct list outputs = {"output", ov_model_outputs_size,
                                        ov_model_const_output_by_index};
    *signature = (struct signature){0};
    const struct reader reader = {signature, model, error};
    sluice_status status = list_read(&reader, &inputs, &signature->inputs, &signature->n_inputs);
    if (status == SLUICE_OK) {
        status = list_read(&reader, &outputs, &signature->outputs, &signature->n_outputs);
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

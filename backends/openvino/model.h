/* A loaded model, its parameters (options.c), and its instances, which execute batches
 * (instance.c). */
#ifndef SLUICE_OPENVINO_MODEL_H
#define SLUICE_OPENVINO_MODEL_H

#include <stddef.h>

#include <openvino/c/ov_compiled_model.h>
#include <openvino/c/ov_model.h>
#include <openvino/c/ov_property.h>

#include "common/onnx_file.h"
#include "common/signature.h"
#include "openvino/ov.h"
#include "sluice/backend.h"

/* Parameters of config.pbtxt, under the names that Triton's backend and OpenVINO use. */
enum { OPTIONS_MAX = 16, OPTION_BYTES = 16 };

/* Properties to compile a model with. Never moved: they point into it. */
struct options {
    ov_property_t properties[OPTIONS_MAX];
    size_t n;
    char values[OPTIONS_MAX][OPTION_BYTES];
};

/* Built from the server's defaults (threads) and args->params, which override them. An unknown key
 * is logged as a warning. Returns: SLUICE_INVALID_ARGUMENT with a text that names the key. */
sluice_status options_init(struct options *options, const sluice_host *host,
                           const sluice_model_args *args, sluice_error *error);

/* A datatype of ours and OpenVINO's, one row each. */
struct datatype {
    sluice_datatype ours;
    ov_element_type_e theirs;
    size_t n_bytes; /* of an element */
};

/* `ours` is a datatype of a model's signature. */
const struct datatype *datatype_of_ours(sluice_datatype ours);
/* Returns: NULL when clients have no such datatype or the C interface cannot access its
 * elements. */
const struct datatype *datatype_of_theirs(ov_element_type_e theirs);
/* OpenVINO's name of an element type that is not supported: "f8e4m3". */
const char *datatype_word(ov_element_type_e theirs);

/* Whether the operators of an IR model have a time that follows from the shapes of their tensors,
 * as onnx_graph_follows_shapes for an ONNX file. Returns: 1 when each layer of the XML file `path`,
 * and of a body in it, is a known operator that neither loops nor branches nor has a time that
 * depends on values. 0: another model, also when the file cannot be read. */
int ir_follows_shapes(const char *path);

/* Each instance has its own compiled model, which has one stream and runs one request at a time. */
struct sluice_model {
    const struct ov *ov;
    ov_model_t *model;
    ov_compiled_model_t *spare; /* compiled in model_open, for the first instance */
    struct options options;
    struct onnx_file onnx; /* of an .onnx file, while it is loaded */
    struct signature signature;
    int follows_shapes; /* sluice_model_info.time_follows_shapes */
};

/* Functions of sluice_backend (instances: instance.c). `ov` must outlive the model. */
sluice_status model_open(const struct ov *ov, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error);
void model_close(sluice_model *model);
/* Compiles the model, or takes what model_open compiled. Owns: on success *compiled. */
sluice_status model_compile(sluice_model *model, ov_compiled_model_t **compiled,
                            sluice_error *error);
sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error);
void instance_close(sluice_instance *instance);
/* Every request is answered on return. */
void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n);

#endif

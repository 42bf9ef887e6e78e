/* External data: weights that an ONNX model keeps in files of their own. ONNX Runtime would map
 * these files for as long as the model is served, so that a change of a file would change the
 * answers, and its truncation would kill the process. They are read into memory instead. */
#ifndef SLUICE_COMMON_ONNX_EXTERNAL_H
#define SLUICE_COMMON_ONNX_EXTERNAL_H

#include "common/file.h"
#include "sluice/backend.h"

/* A file of external data. */
struct external_file {
    char *location; /* as the model names it, relative to the model's directory */
    struct file file;
};

struct external {
    char *directory; /* of the model's file */
    struct external_file *files;
    size_t n_files;
    /* The model with the data that ONNX Runtime would map all the same (tensors that are not
     * initializers of the main graph) stored within; data NULL: there is none. */
    struct file model;
};

/* Reads the external data of the model file `path`. A file that is not an ONNX model has none: its
 * error is ONNX Runtime's. Returns: as file_read, and SLUICE_INVALID_ARGUMENT for a location that
 * is out of range or leaves the model's directory. Owns: *external until external_fini, also after
 * an error. */
sluice_status external_read(struct external *external, const char *path, sluice_error *error);
void external_fini(struct external *external);

#endif

/* ONNX files and their external data, the weights that a model keeps in files of its own. A library
 * would open these files by paths of the model's choice, and map them for as long as the model is
 * served, so that a change of a file would change the answers and its truncation would kill the
 * process. They are checked and read here, and the library gets memory and no path. */
#ifndef SLUICE_COMMON_ONNX_EXTERNAL_H
#define SLUICE_COMMON_ONNX_EXTERNAL_H

#include "common/file.h"
#include "sluice/backend.h"

/* A file of external data. */
struct onnx_external {
    char *location; /* as the model names it, relative to the model's directory */
    char name[24];  /* as `onnx_file.model` names it */
    struct file file;
};

/* Where external data goes. */
enum onnx_external_mode {
    /* Initializers of the main graph refer to `externals`; the data of other tensors (attributes,
     * subgraphs, functions) is stored in the model. */
    ONNX_EXTERNAL_FILES,
    /* All is stored in the model. */
    ONNX_EXTERNAL_EMBED,
};

struct onnx_file {
    struct file model; /* well-formed (onnx_check), and without a reference to another file */
    struct onnx_external *externals;
    size_t n_externals;
    char zipmap[320]; /* a line for the log where ZipMap was replaced (onnx_zipmap.h); else "" */
};

/* Reads the model file `path` and its external data. A location is relative to the directory of
 * `path`, or else to that of the file that `path` links to; the file that it leads to must be below
 * one of the two: hub caches link `model.onnx` and its weights to files of other names.
 * Returns: as file_read, SLUICE_INVALID_ARGUMENT for a file that is no well-formed ONNX model or
 * has a location that is out of range or leaves these directories, SLUICE_UNSUPPORTED for more
 * than 2 GiB of stored data. Owns: *file until onnx_file_fini, also after an error. */
sluice_status onnx_file_read(struct onnx_file *file, const char *path, enum onnx_external_mode mode,
                             sluice_error *error);
void onnx_file_fini(struct onnx_file *file);

#endif

/* The files of a model: finding one, reading it into memory so that a later change cannot reach it,
 * and what is wrong with one that a library refused. */
#ifndef SLUICE_COMMON_MODEL_FILE_H
#define SLUICE_COMMON_MODEL_FILE_H

#include <stddef.h>

#include "sluice/backend.h"

/* A model with external weights may be a directory that contains `name`. Returns: `path`, or the
 * path of that file, written to `text`. */
const char *model_file_path(const char *path, const char *name, char *text, size_t n_bytes);

struct file {
    char *data; /* freed by the owner of the struct */
    size_t n_bytes;
};

/* What a file must be. */
struct file_rules {
    size_t max_bytes;          /* 0: no limit */
    const char *too_large;     /* ends the sentence of the error: "is larger than …" */
    const char *const *inside; /* `n_inside` directories, without symbolic links, of which one must
                                  contain the file after symbolic links are followed */
    size_t n_inside;           /* 0: anywhere */
};

/* Reads all of a regular file; opens nothing else, as a device or a pipe. `real` (NULL: not wanted)
 * becomes the path of the opened file without symbolic links, allocated, NULL when it is not known.
 * Returns: SLUICE_NOT_FOUND, SLUICE_INVALID_ARGUMENT (not a regular file, too large, outside, or
 * changed while it was read), SLUICE_INTERNAL (an I/O error), SLUICE_NO_MEMORY; the text names the
 * path. */
sluice_status file_read(struct file *file, const char *path, const struct file_rules *rules,
                        char **real, sluice_error *error);

/* Says what is wrong with a file that a library refused as a model: libraries say only that they
 * could not parse it. Recognises what is no model: an empty file, a Git LFS pointer, a web page, a
 * ZIP archive (which PyTorch writes); with `onnx` also an ONNX file that ends too early, is larger
 * than protobuf reads, or is none. Returns: 1: a sentence that begins with `path` is in `out`; 0:
 * nothing was found. */
int load_error_explain(const char *path, int onnx, char *out, size_t n_bytes);

#endif

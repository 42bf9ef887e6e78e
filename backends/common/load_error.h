/* Says what is wrong with a file that a library refused as a model: libraries say only that they
 * could not parse it. */
#ifndef SLUICE_COMMON_LOAD_ERROR_H
#define SLUICE_COMMON_LOAD_ERROR_H

#include <stddef.h>

/* Recognises what is no model: an empty file, a Git LFS pointer, a web page, a ZIP archive (which
 * PyTorch writes); with `onnx` also an ONNX file that ends too early, is larger than protobuf
 * reads, or is none. Returns: 1: a sentence that begins with `path` is in `out`; 0: nothing was
 * found. */
int load_error_explain(const char *path, int onnx, char *out, size_t n_bytes);

#endif

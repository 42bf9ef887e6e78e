/* ZipMap, with which converters of scikit-learn classifiers end: it turns the tensor of
 * probabilities [n, classes] into a list of maps from class to probability, which the protocols
 * cannot carry. The model is changed so that the output of that name is the tensor. */
#ifndef SLUICE_COMMON_ONNX_ZIPMAP_H
#define SLUICE_COMMON_ONNX_ZIPMAP_H

#include "common/file.h"
#include "sluice/backend.h"

/* Replaces each ZipMap of the main graph by an Identity, and the type of its output by FP32
 * [n, classes]. A model that uses the maps in another node is left as it is, and so is
 * one without ZipMap. `model` is a file that onnx_check has passed; it is written anew, once.
 * `text`: a line for the log, "" where nothing was changed. Returns: SLUICE_NO_MEMORY, and `model`
 * is as it was. */
sluice_status onnx_zipmap_replace(struct file *model, char *text, size_t n_bytes,
                                  sluice_error *error);

#endif

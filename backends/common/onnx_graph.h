/* Decides whether the shapes of an ONNX model's inputs determine how long an execution takes. */
#ifndef SLUICE_COMMON_ONNX_GRAPH_H
#define SLUICE_COMMON_ONNX_GRAPH_H

#include "common/protobuf.h"

/* Returns: 1 when each tensor of the graph in the file `model` has a shape that follows from the
 * shapes of the inputs, and each operator a time that follows from the shapes of its tensors. Only
 * known operators of ai.onnx and ai.onnx.ml are such, and those with an input that decides about a
 * shape or a time (the second of Reshape, the sequence lengths of LSTM) only where that input is
 * constant or computed from constants and shapes. 0: for any other model (with subgraphs,
 * functions, strings to parse, operators that are not known), also when the file is not read as an
 * ONNX model. */
int onnx_graph_follows_shapes(struct bytes model);

#endif

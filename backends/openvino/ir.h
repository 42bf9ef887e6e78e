/* Finds the operators of an IR model whose time does not follow from the shapes of the inputs, as
 * common/onnx_graph.h does for an ONNX file. */
#ifndef SLUICE_OPENVINO_IR_H
#define SLUICE_OPENVINO_IR_H

/* Returns: 1 when a layer of the XML file `path`, or of a body in it, loops or branches, or has an
 * output whose size can be a value of an input; also when the file cannot be read. 0: none. */
int ir_is_data_dependent(const char *path);

#endif

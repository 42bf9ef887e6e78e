/* Decides whether the operators of an IR model have a time that follows from the shapes of their
 * tensors, as common/onnx_graph.h does for an ONNX file. */
#ifndef SLUICE_OPENVINO_IR_H
#define SLUICE_OPENVINO_IR_H

/* Returns: 1 when each layer of the XML file `path`, and of a body in it, is a known operator that
 * neither loops nor branches nor has a time that depends on values. 0: another model, also when the
 * file cannot be read. */
int ir_follows_shapes(const char *path);

#endif

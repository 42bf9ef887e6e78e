/* Finds the operators of an ONNX file whose time does not follow from the shapes of the inputs. */
#ifndef SLUICE_COMMON_ONNX_GRAPH_H
#define SLUICE_COMMON_ONNX_GRAPH_H

/* Returns: 1 when the graph, a subgraph or a function of the model in file `path` has an operator
 * that loops or branches (Loop, If, Scan), or whose output's size depends on values of its inputs;
 * also when the file cannot be read as an ONNX model. 0: it has none. */
int onnx_graph_is_data_dependent(const char *path);

#endif

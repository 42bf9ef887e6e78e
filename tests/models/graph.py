"""A graph written down in a line per part, and made into a checked ONNX model."""

import onnx
from onnx import helper, numpy_helper

# Old enough for every runtime that people have, new enough for float 8.
OPSET, IR_VERSION = 19, 9


class Graph:
    """Each method but `model` returns the graph, so that calls can be chained."""

    def __init__(self):
        self.nodes, self.inputs, self.outputs, self.constants = [], [], [], []

    def input(self, name, datatype, shape):
        """A dimension is a number, a symbol, or None."""
        self.inputs.append(helper.make_tensor_value_info(name, datatype, shape))
        return self

    def output(self, name, datatype, shape):
        self.outputs.append(helper.make_tensor_value_info(name, datatype, shape))
        return self

    def input_of(self, name, kind):
        self.inputs.append(helper.make_value_info(name, kind))
        return self

    def output_of(self, name, kind):
        self.outputs.append(helper.make_value_info(name, kind))
        return self

    def constant(self, name, value):
        """An initializer; with an input of the same name it is a default that requests replace."""
        self.constants.append(numpy_helper.from_array(value, name))
        return self

    def node(self, operator, inputs, outputs, **attributes):
        """Names are separated by blanks."""
        node = helper.make_node(operator, inputs.split(), outputs.split(), **attributes)
        node.name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(node)
        return self

    def graph(self, name):
        """For an attribute of a node: a subgraph."""
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)

    def model(self, name):
        domains = {node.domain for node in self.nodes} - {""}
        imports = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
        model = helper.make_model(self.graph(name), opset_imports=imports, producer_name="sluice")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model

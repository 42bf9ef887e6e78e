"""Models whose execution time follows from the shapes of their inputs (follows_…), and others (values_…)."""

import numpy
import onnx
from onnx import TensorProto, helper

from graph import IR_VERSION, OPSET, Graph

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ONES = numpy.ones(1, numpy.int64)


def pairs():
    """y[i] = the least x[j] - x[i]: [n, n] differences of n values."""
    graph = Graph().input("x", FLOAT, [None]).output("y", FLOAT, [None])
    graph.constant("zero", 0 * ONES).constant("one", ONES)
    graph.node("Unsqueeze", "x zero", "row").node("Unsqueeze", "x one", "column").node("Sub", "row column", "square")
    return graph.node("Mul", "square square", "squared").node("ReduceMin", "squared one", "y", keepdims=0)


def kernel():
    """y = the convolution of x with a kernel, both of the request."""
    graph = Graph().input("x", FLOAT, [1, 1, "h", "w"]).input("kernel", FLOAT, ["m", 1, "kh", "kw"])
    return graph.output("y", FLOAT, [1, "m", None, None]).node("Conv", "x kernel", "y")


def reshape_by_shape():
    """As PyTorch exports view(x.size(0), -1)."""
    graph = Graph().input("x", FLOAT, ["n", 2, 2]).output("y", FLOAT, ["n", None])
    graph.constant("zero", 0 * ONES).constant("rest", -ONES)
    graph.node("Shape", "x", "shape").node("Gather", "shape zero", "first").node("Concat", "first rest", "to", axis=0)
    return graph.node("Reshape", "x to", "y")


def known_range():
    """A range as long as x is: a position for each."""
    graph = Graph().input("x", FLOAT, ["n"]).output("y", FLOAT, ["n"])
    graph.constant("zero", numpy.array(0, numpy.int64)).constant("one", numpy.array(1, numpy.int64))
    graph.node("Size", "x", "n").node("Range", "zero n one", "at").node("Cast", "at", "position", to=FLOAT)
    return graph.node("Add", "x position", "y")


def linear():
    """A linear model of ai.onnx.ml, as scikit-learn's are."""
    graph = Graph().input("x", FLOAT, [None, 2]).output("y", FLOAT, [None, 2])
    return graph.node("LinearRegressor", "x", "y", domain="ai.onnx.ml", coefficients=[1.0, 2.0, 3.0, 4.0],
                      intercepts=[0.0, 1.0], targets=2)


def reshape_by_value():
    """The request says the shape."""
    graph = Graph().input("x", FLOAT, ["n"]).input("shape", INT64, [2]).output("y", FLOAT, [None, None])
    return graph.node("Identity", "shape", "to").node("Reshape", "x to", "y")


def expand_by_default():
    """The size is an initializer that a request may replace."""
    graph = Graph().input("x", FLOAT, [1]).input("n", INT64, [1]).output("y", FLOAT, [None])
    return graph.constant("n", 3 * ONES).node("Expand", "x n", "y")


def expand_by_sum():
    """The size is computed of values: 8 bytes ask for any output."""
    graph = Graph().input("n", INT64, [1]).output("y", FLOAT, [None])
    graph.constant("one", ONES).constant("x", numpy.ones(1, numpy.float32))
    return graph.node("Add", "n one", "size").node("Expand", "x size", "y")


def range_after_dropout():
    """Values that are random although all inputs are constant."""
    graph = Graph().input("x", FLOAT, ["n"]).output("y", FLOAT, ["n"]).output("z", INT64, [None])
    graph.constant("many", numpy.array([5], numpy.float32)).constant("half", numpy.array(0.5, numpy.float32))
    graph.constant("yes", numpy.array(True)).node("Dropout", "many half yes", "some")
    graph.node("Cast", "some", "size", to=INT64).node("ConstantOfShape", "size", "z", value=helper.make_tensor(
        "v", INT64, [1], [1]))
    return graph.node("Relu", "x", "y")


def recurrent():
    """The steps that are run are a value of the request."""
    graph = Graph().input("x", FLOAT, ["t", 1, 1]).input("steps", TensorProto.INT32, [1]).output("y", FLOAT, [1, 1, 1])
    for name in ("w", "r"):
        graph.constant(name, numpy.ones((1, 1, 1), numpy.float32))
    graph.nodes.append(helper.make_node("RNN", ["x", "w", "r", "", "steps"], ["", "y"], hidden_size=1))
    return graph


def steps():
    """All shapes are fixed, and how often the Loop runs is a value of the request."""
    body = Graph().input("i", INT64, []).input("more", TensorProto.BOOL, []).input("a", FLOAT, [4])
    body.output("go_on", TensorProto.BOOL, []).output("b", FLOAT, [4])
    body.node("Identity", "more", "go_on").node("Add", "a a", "b")
    graph = Graph().input("x", FLOAT, [4]).input("n", INT64, [1]).output("y", FLOAT, [4])
    graph.constant("true", numpy.array(True)).node("Loop", "n true x", "y", body=body.graph("body"))
    return graph


def branches():
    """If: the larger branch is chosen by a value."""
    then, other = Graph().output("a", FLOAT, [1]), Graph().output("b", FLOAT, [1])
    then.constant("a", numpy.ones(1, numpy.float32))
    other.constant("b", numpy.zeros(1, numpy.float32))
    graph = Graph().input("which", TensorProto.BOOL, []).output("y", FLOAT, [1])
    return graph.node("If", "which", "y", then_branch=then.graph("then"), else_branch=other.graph("else"))


def contrib():
    """An operator of another domain."""
    graph = Graph().input("x", FLOAT, ["n"]).output("y", FLOAT, ["n"])
    return graph.node("Gelu", "x", "y", domain="com.microsoft")


class Function:
    """A function of the model, of its own domain or in place of an operator."""

    def __init__(self, domain, name):
        self.domain, self.name = domain, name

    def model(self, name):
        body = [helper.make_node("Relu", ["a"], ["b"])]
        opset = [helper.make_opsetid("", OPSET)]
        function = helper.make_function(self.domain, self.name, ["a"], ["b"], body, opset)
        graph = Graph().input("x", FLOAT, ["n"]).output("y", FLOAT, ["n"])
        graph.node(self.name, "x", "y", domain=self.domain)
        imports = opset + [helper.make_opsetid(self.domain, 1)] * bool(self.domain)
        model = helper.make_model(graph.graph(name), opset_imports=imports, functions=[function],
                                  producer_name="sluice")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model


MODELS = {
    "follows_pairs": pairs, "follows_kernel": kernel, "follows_reshape": reshape_by_shape,
    "follows_range": known_range, "follows_linear": linear,
    "values_reshape": reshape_by_value, "values_default": expand_by_default, "values_expand": expand_by_sum,
    "values_random": range_after_dropout, "values_recurrent": recurrent, "values_if": branches, "values_steps": steps,
    "values_contrib": contrib, "values_function": lambda: Function("local", "Mine"),
}

"""The two networks that are measured: random weights, the same each time. What they answer means
nothing; how long they take does."""

import numpy

from onnx import TensorProto

from graph import Graph

FLOAT = TensorProto.FLOAT


def weights(seed, *shape):
    """Scaled so that values neither vanish nor grow from layer to layer."""
    fan_in = int(numpy.prod(shape[1:])) if len(shape) > 2 else shape[0]
    random = numpy.random.RandomState(seed)
    return (random.standard_normal(shape) / numpy.sqrt(fan_in)).astype(numpy.float32)


def dense(graph, seed, n_in, n_out, source, target):
    graph.constant(f"w{seed}", weights(seed, n_in, n_out))
    graph.constant(f"b{seed}", numpy.zeros(n_out, numpy.float32))
    graph.node("Gemm", f"{source} w{seed} b{seed}", target)


def mlp():
    """A small MLP, 784-128-10, with probabilities."""
    graph = Graph().input("x", FLOAT, ["batch", 784]).output("y", FLOAT, ["batch", 10])
    dense(graph, 1, 784, 128, "x", "h")
    graph.node("Relu", "h", "r")
    dense(graph, 2, 128, 10, "r", "z")
    return graph.node("Softmax", "z", "y", axis=1)


# (channels, stride) of each 3x3 convolution; about 0.7 ms a row on one thread of a modern core.
CNN_LAYERS = ((32, 2), (64, 1), (96, 2), (96, 1), (128, 2), (128, 1), (192, 2))


def cnn():
    """A mid-size CNN on [3, 64, 64], 10 classes."""
    graph = Graph().input("x", FLOAT, ["batch", 3, 64, 64]).output("y", FLOAT, ["batch", 10])
    source, n_in = "x", 3
    for i, (n_out, stride) in enumerate(CNN_LAYERS):
        graph.constant(f"k{i}", weights(10 + i, n_out, n_in, 3, 3))
        graph.constant(f"c{i}", numpy.zeros(n_out, numpy.float32))
        graph.node("Conv", f"{source} k{i} c{i}", f"v{i}", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                   strides=[stride, stride])
        graph.node("Relu", f"v{i}", f"a{i}")
        source, n_in = f"a{i}", n_out
    graph.node("GlobalAveragePool", source, "pooled").node("Flatten", "pooled", "flat")
    dense(graph, 30, n_in, 10, "flat", "z")
    return graph.node("Softmax", "z", "y", axis=1)

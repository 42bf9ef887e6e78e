#!/usr/bin/env python3
"""Trains a small network on the handwritten digits that come with scikit-learn, and writes it as ONNX.

usage: make.py OUT.onnx [--heldout FILE.npz]

The model takes `image`, FP32 [batch, 8, 8] with ink from 0 to 16, and gives `probabilities`, FP32
[batch, 10], and `label`, INT64 [batch]. A quarter of the data is held out; --heldout saves it (images,
labels), for requests with digits that the model has not seen. Runs for a few seconds and
makes the same model each time on the same machine."""

import argparse
import warnings

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

INK = 16.0
HIDDEN = 64


def data():
    digits = load_digits()
    images = digits.images.astype(numpy.float32)
    return train_test_split(images, digits.target.astype(numpy.int64), test_size=0.25,
                            random_state=0, stratify=digits.target)


def train(images, labels):
    network = MLPClassifier(hidden_layer_sizes=(HIDDEN,), alpha=0.1, learning_rate_init=0.005,
                            batch_size=64, max_iter=60, n_iter_no_change=60, tol=0, random_state=0)
    # It warns that it was stopped after max_iter, which is what was asked for.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return network.fit(images.reshape(-1, 64) / INK, labels)


def export(network):
    """The network's two layers as a graph: scale, flatten, dense, relu, dense, softmax, arg max."""
    value = helper.make_tensor_value_info
    constants = {"ink": numpy.float32(INK)}
    for i, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_)):
        constants[f"weights{i}"] = weights.astype(numpy.float32)
        constants[f"bias{i}"] = bias.astype(numpy.float32)
    nodes = [
        helper.make_node("Div", ["image", "ink"], ["scaled"]),
        helper.make_node("Flatten", ["scaled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weights0", "bias0"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "weights1", "bias1"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "digits", [value("image", TensorProto.FLOAT, ["batch", 8, 8])],
        [value("probabilities", TensorProto.FLOAT, ["batch", 10]),
         value("label", TensorProto.INT64, ["batch"])],
        [numpy_helper.from_array(numpy.asarray(array), name) for name, array in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                              producer_name="sluice")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT.onnx")
    parser.add_argument("--heldout", metavar="FILE.npz")
    options = parser.parse_args()
    train_images, test_images, train_labels, test_labels = data()
    network = train(train_images, train_labels)
    accuracy = network.score(test_images.reshape(-1, 64) / INK, test_labels)
    onnx.save(export(network), options.out)
    if options.heldout:
        numpy.savez(options.heldout, images=test_images, labels=test_labels)
    print(f"{options.out}: trained on {len(train_labels)} digits, "
          f"{accuracy:.1%} right of {len(test_labels)} it has not seen")
    if accuracy < 0.95:
        raise SystemExit("make.py: the network did not learn: expected at least 95 %")


if __name__ == "__main__":
    main()

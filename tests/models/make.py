#!/usr/bin/env python3
"""Makes the ONNX models that tests and measurements run: the same bytes each time.

usage: make.py OUTDIR [--refused DIR] [--list]

OUTDIR becomes a repository in Triton's layout, NAME/1/model.onnx, without configurations: the server
takes everything from the models. With --refused, DIR becomes another one, of files that must not
load. --list says what each model is and makes none."""

import argparse
import pathlib

import numpy
import onnx
from onnx import TensorProto, helper

import networks
import shapes
from graph import Graph

DATATYPES = {
    "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64, "int8": TensorProto.INT8,
    "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
    "fp16": TensorProto.FLOAT16, "fp32": TensorProto.FLOAT, "fp64": TensorProto.DOUBLE,
    "bytes": TensorProto.STRING, "bf16": TensorProto.BFLOAT16,
}
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def identity(datatype):
    """y = x, [batch, 4]; for each datatype."""
    graph = Graph().input("x", datatype, ["batch", 4]).output("y", datatype, ["batch", 4])
    return graph.node("Identity", "x", "y")


def string():
    """y = x of strings, both dimensions free: empty ones and NULs must come back."""
    graph = Graph().input("x", STRING, ["batch", "n"]).output("y", STRING, ["batch", "n"])
    return graph.node("Identity", "x", "y")


def add():
    """sum = a + b, diff = a - b."""
    graph = Graph()
    for name in ("a", "b"):
        graph.input(name, FLOAT, ["batch", 4])
    for name in ("sum", "diff"):
        graph.output(name, FLOAT, ["batch", 4])
    return graph.node("Add", "a b", "sum").node("Sub", "a b", "diff")


def optional():
    """y = x * scale; scale is 2 where the request leaves it out."""
    graph = Graph().input("x", FLOAT, [4]).input("scale", FLOAT, [1]).output("y", FLOAT, [4])
    graph.constant("scale", numpy.array([2], numpy.float32))
    return graph.node("Mul", "x scale", "y")


def optional_rows():
    """The same of [batch, 4]: requests with a scale of their own can't be run together."""
    graph = Graph().input("x", FLOAT, ["batch", 4]).output("y", FLOAT, ["batch", 4])
    graph.input("scale", FLOAT, [1]).constant("scale", numpy.array([2], numpy.float32))
    return graph.node("Mul", "x scale", "y")


def dynamic():
    """y = x turned on its side: the first dimensions are not one symbol, so it does not batch."""
    graph = Graph().input("x", FLOAT, ["rows", "columns"]).output("y", FLOAT, ["columns", "rows"])
    return graph.node("Transpose", "x", "y", perm=[1, 0])


def unnamed():
    """y = -x, [-1, 4] without a symbol: nothing says that the free dimensions are the same."""
    graph = Graph().input("x", FLOAT, [None, 4]).output("y", FLOAT, [None, 4])
    return graph.node("Neg", "x", "y")


def scalar_fixed():
    """y = x + 1, [1, 4] and nothing free."""
    graph = Graph().input("x", FLOAT, [1, 4]).output("y", FLOAT, [1, 4])
    graph.constant("one", numpy.array(1, numpy.float32))
    return graph.node("Add", "x one", "y")


def rank0():
    """y = x * x of a scalar, shape []."""
    graph = Graph().input("x", TensorProto.DOUBLE, []).output("y", TensorProto.DOUBLE, [])
    return graph.node("Mul", "x x", "y")


def three_outputs():
    """doubled, rounded (INT64) and positive (BOOL) of one FP32 input."""
    graph = Graph().input("x", FLOAT, ["batch", 4]).output("doubled", FLOAT, ["batch", 4])
    graph.output("rounded", INT64, ["batch", 4]).output("positive", TensorProto.BOOL, ["batch", 4])
    graph.constant("zero", numpy.array(0, numpy.float32))
    graph.node("Add", "x x", "doubled").node("Round", "x", "whole")
    return graph.node("Cast", "whole", "rounded", to=INT64).node("Greater", "x zero", "positive")


def mixed():
    """Three datatypes in, three out: text unchanged, number + 1, and whether count > 0."""
    graph = Graph().input("text", STRING, ["batch", 1]).input("number", TensorProto.DOUBLE,
                                                              ["batch", 2])
    graph.input("count", TensorProto.INT32, ["batch", 1]).output("text_out", STRING, ["batch", 1])
    graph.output("number_out", TensorProto.DOUBLE, ["batch", 2])
    graph.output("any", TensorProto.BOOL, ["batch", 1])
    graph.constant("one", numpy.array(1, numpy.float64))
    graph.constant("zero", numpy.array(0, numpy.int32))
    graph.node("Identity", "text", "text_out").node("Add", "number one", "number_out")
    return graph.node("Greater", "count zero", "any")


def upper():
    """y = x in upper case, a list of strings."""
    graph = Graph().input("x", STRING, ["n"]).output("y", STRING, ["n"])
    return graph.node("StringNormalizer", "x", "y", case_change_action="UPPER",
                      is_case_sensitive=1, locale="C")


def lookup():
    """y = table[x]; an index over 7 makes the run fail."""
    graph = Graph().input("x", INT64, ["batch", 2]).output("y", FLOAT, ["batch", 2, 3])
    graph.constant("table", numpy.arange(24, dtype=numpy.float32).reshape(8, 3))
    return graph.node("Gather", "table x", "y")


def broadcast():
    """y = a + b; shapes that don't broadcast are only found out in the graph."""
    graph = Graph().input("a", FLOAT, ["batch", "n"]).input("b", FLOAT, ["batch", "m"])
    return graph.output("y", FLOAT, ["batch", "k"]).node("Add", "a b", "y")


def fill():
    """y = n ones: a request of 8 bytes asks for an output of any size."""
    graph = Graph().input("n", INT64, [1]).output("y", FLOAT, ["m"])
    one = helper.make_tensor("one", FLOAT, [1], [1])
    return graph.node("ConstantOfShape", "n", "y", value=one)


def loop():
    """y = 1 added n times in a Loop: how long it takes is a value of the request."""
    body = Graph().input("i", INT64, []).input("more", TensorProto.BOOL, []).input("a", FLOAT, [])
    body.output("go_on", TensorProto.BOOL, []).output("b", FLOAT, [])
    body.constant("one", numpy.array(1, numpy.float32)).node("Identity", "more", "go_on")
    body.node("Add", "a one", "b")
    graph = Graph().input("n", INT64, [1]).output("y", FLOAT, [])
    graph.constant("true", numpy.array(True)).constant("zero", numpy.array(0, numpy.float32))
    return graph.node("Loop", "n true zero", "y", body=body.graph("body"))


def passthrough():
    """The input itself is an output, beside y = x + x."""
    graph = Graph().input("x", FLOAT, ["batch", 4]).output("x", FLOAT, ["batch", 4])
    return graph.output("y", FLOAT, ["batch", 4]).node("Add", "x x", "y")


def positive():
    """y = those of x that are above 0, [n]: fewer than the model says, most of the time."""
    graph = Graph().input("x", FLOAT, ["n"]).output("y", FLOAT, ["n"])
    graph.constant("zero", numpy.array(0, numpy.float32)).node("Greater", "x zero", "above")
    return graph.node("Compress", "x above", "y")


def constant_output():
    """An initializer is an output, beside y = x + x."""
    graph = Graph().input("x", FLOAT, ["batch", 4]).output("k", FLOAT, [1, 3])
    graph.output("y", FLOAT, ["batch", 4]).constant("k", numpy.array([[7, 8, 9]], numpy.float32))
    return graph.node("Add", "x x", "y")


def wide():
    """y = x twice, side by side, [n, 1200]: a row is more than a page."""
    graph = Graph().input("x", FLOAT, ["n", 600]).output("y", FLOAT, ["n", 1200])
    return graph.node("Concat", "x x", "y", axis=1)


def total():
    """y = the sum over the whole batch, a scalar: an output that can't be shared out."""
    graph = Graph().input("x", FLOAT, ["batch", 4]).output("y", FLOAT, [])
    return graph.node("ReduceSum", "x", "y", keepdims=0)


def pair():
    """y = a + b, [batch, 2]: the protocol's example of two inputs."""
    graph = Graph().output("y", FLOAT, ["batch", 2])
    for name in ("a", "b"):
        graph.input(name, FLOAT, ["batch", 2])
    return graph.node("Add", "a b", "y")


def two_three():
    """Two inputs, three outputs: a text as it came, numbers doubled, and whether they are positive."""
    graph = Graph().input("text", STRING, ["batch", 1]).input("numbers", INT64, ["batch", 2])
    graph.output("text_out", STRING, ["batch", 1]).output("doubled", INT64, ["batch", 2])
    graph.output("positive", TensorProto.BOOL, ["batch", 2])
    graph.constant("zero", numpy.array(0, numpy.int64)).node("Identity", "text", "text_out")
    graph.node("Add", "numbers numbers", "doubled")
    return graph.node("Greater", "numbers zero", "positive")


def rows():
    """y = x + x, [batch, n]: elements of different lengths can't be one batch."""
    graph = Graph().input("x", FLOAT, ["batch", "n"]).output("y", FLOAT, ["batch", "n"])
    return graph.node("Add", "x x", "y")


def one_each():
    """y = x + 1 of one number, [batch]: the smallest element there is."""
    graph = Graph().input("x", FLOAT, ["batch"]).output("y", FLOAT, ["batch"])
    return graph.constant("one", numpy.array(1, numpy.float32)).node("Add", "x one", "y")


def picture_scores(*shape):
    """Ten scores of a picture: weights without a meaning, that any change of a pixel shows in."""
    size = int(numpy.prod(shape))
    weights = numpy.random.default_rng(size).normal(0, 4 / size ** 0.5, (size, 10))
    graph = Graph().input("image", FLOAT, ["batch", *shape]).output("scores", FLOAT, ["batch", 10])
    graph.constant("weights", weights.astype(numpy.float32)).node("Flatten", "image", "flat")
    return graph.node("MatMul", "flat weights", "scores")


def folder(path):
    """y = x + 10, with the ten in a file of its own; model.onnx is a folder of both."""
    graph = Graph().input("x", FLOAT, ["batch", 4]).output("y", FLOAT, ["batch", 4])
    graph.constant("ten", numpy.full(4, 10, numpy.float32)).node("Add", "x ten", "y")
    path.mkdir(parents=True, exist_ok=True)
    path.joinpath("weights").unlink(missing_ok=True)  # it would be appended to
    onnx.save(graph.model("onnx_folder"), path / "model.onnx", save_as_external_data=True,
              location="weights", size_threshold=0)


MODELS = {
    **{f"onnx_identity_{name}": lambda kind=kind: identity(kind)
       for name, kind in DATATYPES.items()},
    "onnx_string": string, "onnx_add": add, "onnx_optional": optional,
    "onnx_optional_rows": optional_rows, "onnx_dynamic": dynamic,
    "onnx_unnamed": unnamed, "onnx_scalar_fixed": scalar_fixed, "onnx_rank0": rank0,
    "onnx_three_outputs": three_outputs, "onnx_mixed": mixed, "onnx_upper": upper,
    "onnx_lookup": lookup, "onnx_broadcast": broadcast, "onnx_passthrough": passthrough,
    "onnx_positive": positive, "onnx_constant_output": constant_output, "onnx_wide": wide,
    "onnx_total": total, "onnx_pair": pair, "onnx_two_three": two_three, "onnx_rows": rows,
    "onnx_one_each": one_each, "onnx_fill": fill, "onnx_loop": loop, "onnx_grey28": lambda: picture_scores(28, 28),
    "onnx_rgb32": lambda: picture_scores(3, 32, 32), "mlp": networks.mlp, "cnn": networks.cnn,
}


def sequence():
    """An output that is a sequence of tensors."""
    graph = Graph().input("x", FLOAT, ["batch", 4])
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    return graph.output_of("y", kind).node("SequenceConstruct", "x", "y")


def optional_type():
    """An input of ONNX's optional type."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [4]))
    graph = Graph().input_of("x", kind).output("y", FLOAT, [4])
    return graph.node("OptionalGetElement", "x", "y")


def float8():
    """Elements that the protocols have no datatype for."""
    graph = Graph().input("x", TensorProto.FLOAT8E4M3FN, [4]).output("y", FLOAT, [4])
    return graph.node("Cast", "x", "y", to=FLOAT)


REFUSED = {"refused_sequence": sequence, "refused_optional_type": optional_type,
           "refused_float8": float8}


def write(folder, models):
    for name, make in models.items():
        path = pathlib.Path(folder, name, "1", "model.onnx")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make().model(name).SerializeToString(deterministic=True))


def write_refused(folder):
    """And files that are no model, or only the beginning of one."""
    write(folder, REFUSED)
    begun = networks.mlp().model("mlp").SerializeToString(deterministic=True)[:5000]
    for name, content in (("refused_text", b"this is no model\n"), ("refused_cut", begun)):
        path = pathlib.Path(folder, name, "1", "model.onnx")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outdir", nargs="?")
    parser.add_argument("--refused", metavar="DIR")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, make in {**MODELS, **shapes.MODELS, "onnx_folder": folder, **REFUSED}.items():
            doc = (shapes.Function if name == "values_function" else
                   identity if name.startswith("onnx_identity_") else
                   picture_scores if name in ("onnx_grey28", "onnx_rgb32") else make).__doc__
            print(f"{name:22} {' '.join(doc.split())}")
    elif not options.outdir:
        parser.error("OUTDIR is missing")
    else:
        write(options.outdir, {**MODELS, **shapes.MODELS})
        folder(pathlib.Path(options.outdir, "onnx_folder", "1", "model.onnx"))
        if options.refused:
            write_refused(options.refused)


if __name__ == "__main__":
    main()

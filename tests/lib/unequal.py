"""Models whose requests have unequal lengths in one batch: ragged inputs, and padded ones."""
import os

import numpy
from onnx import TensorProto, helper

from lib.repository import save_onnx

N_TOKENS, WIDTH = 16, 4
TABLE = numpy.random.default_rng(7).standard_normal((N_TOKENS, WIDTH)).astype(numpy.float32)


def tensor(name, datatype, *dims):
    return helper.make_tensor_value_info(name, datatype, dims)


def constant(name, *values):
    return name, numpy.array(values, numpy.int64)


def save_sums(path):
    """x: all elements. ends: where each request's begin and end (..._WITH_ZERO). sum: of each request, [B,1];
    twice: 2x."""
    save_onnx(path, "sums", [
        helper.make_node("CumSum", ["x", "axis"], ["running"]),
        helper.make_node("Concat", ["zeros", "running"], ["from_zero"], axis=0),
        helper.make_node("Cast", ["ends"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["from_zero", "index"], ["at"]),
        helper.make_node("Slice", ["at", "one", "last"], ["upper"]),
        helper.make_node("Slice", ["at", "zeros", "minus"], ["lower"]),
        helper.make_node("Sub", ["upper", "lower"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "one"], ["sum"]),
        helper.make_node("Add", ["x", "x"], ["twice"]),
    ], [tensor("x", TensorProto.INT64, "n"), tensor("ends", TensorProto.INT32, "b")],
        [tensor("sum", TensorProto.INT64, "r", 1), tensor("twice", TensorProto.INT64, "n")],
        [constant("zeros", 0), constant("one", 1), constant("minus", -1), constant("last", 1 << 40),
         ("axis", numpy.array(0, numpy.int64))])


SUMS = """
max_batch_size: 8
input { name: "x" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true }
output [ { name: "sum" data_type: TYPE_INT64 dims: [ 1 ] }, { name: "twice" data_type: TYPE_INT64 dims: [ -1 ] } ]
batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO target_name: "ends" data_type: TYPE_INT32
              source_input: "x" }
batch_output { target_name: "twice" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }
"""


def save_encoder(path):
    """ids, mask: [B,L]. states: ids looked up, each mixed with the row's others by attention, [B,L,WIDTH]; weights:
    of that attention, [B,L,L]; pooled: the mean of the states, [B,WIDTH]."""
    save_onnx(path, "encoder", [
        helper.make_node("Gather", ["table", "ids"], ["embedded"]),
        helper.make_node("Transpose", ["embedded"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["embedded", "turned"], ["scores"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["kept", "one"], ["below"]),
        helper.make_node("Mul", ["below", "large"], ["penalty"]),
        helper.make_node("Unsqueeze", ["penalty", "axis1"], ["penalties"]),
        helper.make_node("Add", ["scores", "penalties"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "embedded"], ["states"]),
        helper.make_node("Unsqueeze", ["kept", "axis2"], ["columns"]),
        helper.make_node("Mul", ["states", "columns"], ["own"]),
        helper.make_node("ReduceSum", ["own", "axis1"], ["total"], keepdims=0),
        helper.make_node("ReduceSum", ["kept", "axis1"], ["count"], keepdims=1),
        helper.make_node("Div", ["total", "count"], ["pooled"]),
    ], [tensor("ids", TensorProto.INT64, "batch", "length"), tensor("mask", TensorProto.INT64, "batch", "length")],
        [tensor("states", TensorProto.FLOAT, "batch", "length", WIDTH),
         tensor("weights", TensorProto.FLOAT, "batch", "length", "length"),
         tensor("pooled", TensorProto.FLOAT, "batch", WIDTH)],
        [("table", TABLE), constant("axis1", 1), constant("axis2", 2),
         ("one", numpy.array(1, numpy.float32)), ("large", numpy.array(1e9, numpy.float32))])


def encoded(ids, mask=None):
    """What the encoder says of one row: states, weights, pooled."""
    embedded = TABLE[numpy.asarray(ids)].astype(numpy.float64)
    kept = numpy.ones(len(embedded)) if mask is None else numpy.asarray(mask, float)
    scores = embedded @ embedded.T + (kept - 1) * 1e9
    weights = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    states = weights @ embedded
    return states, weights, (states * kept[:, None]).sum(axis=0) / kept.sum()


def save_lengths(path):
    """x: [B,L]; length: [B,1]. y: the sum of the first `length` elements of each row, [B,1]."""
    save_onnx(path, "lengths", [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "scalar_one"], ["columns"]),
        helper.make_node("Range", ["scalar_zero", "columns", "scalar_one"], ["places"]),
        helper.make_node("Less", ["places", "length"], ["inside"]),
        helper.make_node("Where", ["inside", "x", "nothing"], ["own"]),
        helper.make_node("ReduceSum", ["own", "axis"], ["y"], keepdims=1),
    ], [tensor("x", TensorProto.FLOAT, "batch", "n"), tensor("length", TensorProto.INT64, "batch", 1)],
        [tensor("y", TensorProto.FLOAT, "batch", 1)],
        [constant("axis", 1), ("scalar_one", numpy.array(1, numpy.int64)),
         ("scalar_zero", numpy.array(0, numpy.int64)), ("nothing", numpy.array(0, numpy.float32))])


def parameters(**values):
    return "".join(f'parameters {{ key: "sluice.{key}" value {{ string_value: "{value}" }} }}\n'
                   for key, value in values.items())


PADDED = "max_batch_size: 8\n" + parameters(**{
    "pad.ids": 0, "pad_mask.mask": "ids", "pad_cut.states": "ids", "pad_cut.weights": "ids", "pad_multiple": 4})
LENGTHS = "max_batch_size: 8\n" + parameters(**{"pad.x": 7.5, "pad_length.length": "x"})


def write(folder, name, save, config):
    """A model of a repository."""
    save(os.path.join(folder, name, "1", "model.onnx"))
    with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
        file.write(config)

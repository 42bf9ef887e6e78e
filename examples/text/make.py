#!/usr/bin/env python3
"""Makes a repository of models that turn a text into an embedding: examples/text/make.py FOLDER

`tokenizer` is one operator of onnxruntime-extensions, with a vocabulary of word pieces; `encoder` looks up a vector
for each token, takes their mean and normalises it; `embed` is an ensemble of both. Vectors of a real model would be
trained; these are made from the token's number, so that texts with the same words have similar embeddings."""
import os
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS = ("[PAD] [UNK] [CLS] [SEP] [MASK] a an the this that is are was were in on at of to and or not with "
         "cat dog bird house car tree river city sea sun moon red blue green old new small large "
         "run walk sit eat drink see hear write read like ##s ##ed ##ing ##er . , ! ?").split()
SIZE = 16
EMBED = """platform: "ensemble"
input  { name: "text" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "embedding" data_type: TYPE_FP32 dims: [ 16 ] }
ensemble_scheduling {
  step {
    model_name: "tokenizer"
    input_map  { key: "text" value: "text" }
    output_map { key: "input_ids" value: "ids" }
    output_map { key: "attention_mask" value: "mask" }
  }
  step {
    model_name: "encoder"
    input_map  { key: "input_ids" value: "ids" }
    input_map  { key: "attention_mask" value: "mask" }
    output_map { key: "embedding" value: "embedding" }
  }
}
"""
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def make_model(name, nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


def make_tokenizer():
    """A text becomes the numbers of its tokens, between those of [CLS] and [SEP]."""
    outputs = ["input_ids", "token_type_ids", "attention_mask"]
    node = helper.make_node("BertTokenizer", ["text"], outputs, domain="ai.onnx.contrib",
                            vocab_file="\n".join(WORDS), do_lower_case=1)
    return make_model("tokenizer", [node], [value("text", TensorProto.STRING, [1])],
                      [value(output, TensorProto.INT64, ["tokens"]) for output in outputs])


def make_encoder():
    """The mean of the tokens' vectors where the mask is 1, with length 1."""
    table = numpy.random.default_rng(1).standard_normal((len(WORDS), SIZE)).astype(numpy.float32)
    nodes = [helper.make_node(*row[:3], **row[3]) for row in (
        ("Gather", ["table", "input_ids"], ["vectors"], {}),
        ("Cast", ["attention_mask"], ["mask"], {"to": TensorProto.FLOAT}),
        ("Unsqueeze", ["mask", "last"], ["column"], {}),
        ("Mul", ["vectors", "column"], ["masked"], {}),
        ("ReduceSum", ["masked", "first"], ["sum"], {"keepdims": 0}),
        ("ReduceSum", ["mask", "first"], ["n"], {"keepdims": 1}),
        ("Div", ["sum", "n"], ["mean"], {}),
        ("LpNormalization", ["mean"], ["embedding"], {"axis": 0, "p": 2}))]
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(numpy.array([0]), "first"),
                 numpy_helper.from_array(numpy.array([1]), "last")]
    return make_model("encoder", nodes, [value("input_ids", TensorProto.INT64, ["tokens"]),
                                         value("attention_mask", TensorProto.INT64, ["tokens"])],
                      [value("embedding", TensorProto.FLOAT, [SIZE])], constants)


def write_config(folder, name, text):
    with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
        file.write(text)


def write(folder, name, model, library=None):
    """`library`: of its operators, as config.pbtxt names it."""
    os.makedirs(os.path.join(folder, name, "1"))
    onnx.save(model, os.path.join(folder, name, "1", "model.onnx"))
    if library:
        write_config(folder, name,
                     f'backend: "onnxruntime"\nmodel_operations {{ op_library_filename: "{library}" }}\n')


def write_embed(folder):
    os.makedirs(os.path.join(folder, "embed", "1"))
    write_config(folder, "embed", EMBED)


def main(folder):
    from onnxruntime_extensions import get_library_path
    library = get_library_path()
    write(folder, "tokenizer", make_tokenizer(), library)
    write(folder, "encoder", make_encoder())
    write_embed(folder)
    print(os.path.dirname(library))


if __name__ == "__main__":
    main(*sys.argv[1:])

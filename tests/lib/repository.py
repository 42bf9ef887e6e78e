"""The models that scripts and clients ask: a repository in Triton's layout, written anew for each run.
Most are `identity` models, where what comes back is what was sent; the ONNX ones are made by
tests/models/make.py, and the two of the document's examples here."""
import os
import subprocess
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

DATATYPES = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
             "FP16", "FP32", "FP64", "BF16", "BYTES")

FREE = [-1]


class Identity:
    """An identity model: OUTPUTi is INPUTi. `tensors` are (datatype, dims) pairs."""

    def __init__(self, name, tensors, max_batch_size=0, versions=("1",), parameters=(), more=""):
        self.name = name
        self.tensors = tensors
        self.max_batch_size = max_batch_size
        self.versions = versions
        self.parameters = dict(parameters)
        self.more = more

    def config(self):
        lines = ['backend: "identity"', f"max_batch_size: {self.max_batch_size}"]
        for kind, prefix in (("input", "INPUT"), ("output", "OUTPUT")):
            for number, (datatype, dims) in enumerate(self.tensors):
                name = {"BYTES": "STRING"}.get(datatype, datatype)
                lines.append(f'{kind} {{ name: "{prefix}{number}" data_type: TYPE_{name}'
                             f' dims: [ {", ".join(map(str, dims))} ] }}')
        for key, value in self.parameters.items():
            lines.append(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}')
        return "\n".join([*lines, self.more, ""])

    def write(self, folder):
        for version in self.versions:
            os.makedirs(os.path.join(folder, self.name, version))
        with open(os.path.join(folder, self.name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write(self.config())


# One per datatype, of any length, and one per thing that a rule distinguishes.
IDENTITIES = [Identity(f"id_{datatype.lower()}", [(datatype, FREE)]) for datatype in DATATYPES] + [
    Identity("id_fixed", [("FP32", [2, 2])]),
    Identity("id_one_free", [("FP32", [2, -1])]),
    Identity("id_two_free", [("FP32", [-1, -1])]),
    Identity("id_batch", [("FP32", [4])], max_batch_size=8),
    Identity("id_batch_free", [("FP32", FREE)], max_batch_size=8),
    Identity("id_string", [("BYTES", [1])]),
    Identity("id_string_batch", [("BYTES", [1])], max_batch_size=8),
    Identity("id_strings", [("BYTES", [2])]),
    Identity("id_two", [("FP32", FREE), ("INT32", FREE)]),
    Identity("id_two_batch", [("FP32", [2]), ("INT32", [2])], max_batch_size=8),
    Identity("id_mixed", [("UINT8", FREE), ("FP64", FREE), ("BYTES", FREE)]),
    Identity("id_versions", [("FP32", FREE)], versions=("1", "2", "10"),
             more="version_policy { all { } }"),
    Identity("id_latest", [("FP32", FREE)], versions=("3", "12")),
    Identity("id_slow", [("FP32", FREE)], parameters={"delay_us": 400000}),
    Identity("id_slowest", [("FP32", FREE)], parameters={"delay_us": 10000000}),
    Identity("id_later", [("FP32", FREE)], parameters={"respond_from": "thread"}),
    Identity("id_twice", [("FP32", FREE)], parameters={"responses": 2}),
    Identity("id_failing", [("FP32", FREE)], parameters={"fail": "out of ink"}),
    Identity("id with space", [("FP32", FREE)]),
    Identity("id_ümlaut", [("FP32", FREE)]),
    Identity("stats", [("FP32", FREE)]),
]


# Models with one instance that a request keeps busy until its client goes away, and with a queue each.
ENDLESS = {"delay_us": 10000000}
QUEUES = [
    Identity("levels", [("FP32", FREE)], parameters=ENDLESS, more="""
dynamic_batching { priority_levels: 2 default_priority_level: 2
  priority_queue_policy { key: 1 value { max_queue_size: 1 } } }"""),
    Identity("rejects", [("FP32", FREE)], parameters=ENDLESS, more="""
dynamic_batching { default_queue_policy {
  default_timeout_microseconds: 20000 allow_timeout_override: true max_queue_size: 2 } }"""),
    Identity("overrides", [("FP32", FREE)], parameters=ENDLESS, more="""
dynamic_batching { default_queue_policy { allow_timeout_override: true } }"""),
    Identity("delays", [("FP32", FREE)], parameters=ENDLESS, more="""
dynamic_batching { default_queue_policy { timeout_action: DELAY
  default_timeout_microseconds: 3600000000 allow_timeout_override: true } }"""),
]


# Models that answer as often as a request's parameter `responses` says, and one that answers once.
AS_ASKED = {"responses_by_request": "true"}
DECOUPLE = "model_transaction_policy { decoupled: true }"
DECOUPLED = [
    Identity("many", [("FP32", FREE)], parameters=AS_ASKED, more=DECOUPLE),
    Identity("many_apart", [("FP32", FREE)], parameters={**AS_ASKED, "end_apart": "true"},
             more=DECOUPLE),
    Identity("many_slow", [("FP32", FREE)], parameters={**AS_ASKED, "interval_us": 5000},
             more=DECOUPLE),
    Identity("many_threaded", [("FP32", FREE)],
             parameters={**AS_ASKED, "respond_from": "thread"}, more=DECOUPLE),
    Identity("many_batched", [("FP32", [1])], max_batch_size=4, parameters=AS_ASKED,
             more=DECOUPLE + "\ndynamic_batching { }"),
    Identity("one", [("FP32", FREE)]),
]


def save_onnx(path, name, nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, name, inputs, outputs,
                              [numpy_helper.from_array(value, key) for key, value in constants])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    os.makedirs(os.path.dirname(path))
    onnx.save(model, path)


def write_document_binary(folder):
    """`mymodel` of the first example: UINT32 [2,2] and BOOL [3] in, FP32 [3,2] out. Row i of the
    output is the sum of input0's rows where input1[i] is true, else 0."""
    value = helper.make_tensor_value_info
    save_onnx(
        os.path.join(folder, "mymodel", "1", "model.onnx"), "mymodel",
        [helper.make_node("Cast", ["input0"], ["matrix"], to=TensorProto.FLOAT),
         helper.make_node("ReduceSum", ["matrix", "rows"], ["sum"], keepdims=1),
         helper.make_node("Cast", ["input1"], ["flags"], to=TensorProto.FLOAT),
         helper.make_node("Reshape", ["flags", "column"], ["flag"]),
         helper.make_node("Mul", ["flag", "sum"], ["output0"])],
        [value("input0", TensorProto.UINT32, [2, 2]), value("input1", TensorProto.BOOL, [3])],
        [value("output0", TensorProto.FLOAT, [3, 2])],
        [("rows", numpy.array([0])), ("column", numpy.array([3, 1]))])


def write_document_raw(folder):
    """`mymodel` of the second: 16 bytes in, two FP32 [3,1] out: the first three elements of the
    input, and the last three."""
    value = helper.make_tensor_value_info
    nodes = []
    for name, first in (("output0", 0), ("output1", 1)):
        nodes += [helper.make_node("Slice", ["input", f"from{first}", f"to{first}"], [f"{name}_row"]),
                  helper.make_node("Reshape", [f"{name}_row", "column"], [name])]
    save_onnx(
        os.path.join(folder, "mymodel", "1", "model.onnx"), "mymodel", nodes,
        [value("input", TensorProto.FLOAT, [4])],
        [value("output0", TensorProto.FLOAT, [3, 1]), value("output1", TensorProto.FLOAT, [3, 1])],
        [(f"{word}{first}", numpy.array([first + more]))
         for first in (0, 1) for word, more in (("from", 0), ("to", 3))] +
        [("column", numpy.array([3, 1]))])


def write_identities(folder, names=None):
    for model in IDENTITIES:
        if names is None or model.name in names:
            model.write(folder)


def write_default(folder):
    write_identities(folder)


def write_documents_binary(folder):
    write_identities(folder, ["id_fp32"])
    write_document_binary(folder)


def write_documents_raw(folder):
    write_identities(folder, ["id_fp32"])
    write_document_raw(folder)


def write_queues(folder):
    write_identities(folder, ["id_fp32"])
    for model in QUEUES:
        model.write(folder)


def write_slow(folder):
    """One that takes long enough for the test to look, on a busy machine, while a request is in flight."""
    write_identities(folder, ["id_fp32"])
    Identity("id_slower", [("FP32", FREE)], parameters={"delay_us": 3000000}).write(folder)


def write_onnx_only(folder):
    """What tests/models/make.py makes."""
    make = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models",
                        "make.py")
    subprocess.run([sys.executable, make, folder], check=True)


def write_onnx(folder):
    """The same, and one model for the runner's good request."""
    write_onnx_only(folder)
    write_identities(folder, ["id_fp32"])


def write_broken(folder):
    """One that serves, one without a backend that exists, one whose file is no model."""
    write_identities(folder, ["id_fp32"])
    for name, config in (("no_backend", 'backend: "absent"\nmax_batch_size: 0\n'
                          'input { name: "I" data_type: TYPE_FP32 dims: [ 1 ] }\n'
                          'output { name: "O" data_type: TYPE_FP32 dims: [ 1 ] }\n'),
                         ("bad_field", 'backend: "identity"\nmax_batch_sise: 3\n')):
        os.makedirs(os.path.join(folder, name, "1"))
        with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write(config)
    os.makedirs(os.path.join(folder, "not_onnx", "1"))
    with open(os.path.join(folder, "not_onnx", "1", "model.onnx"), "wb") as file:
        file.write(b"this is no model")


# What a script's `repository` names.
KINDS = {
    "default": write_default,
    "document-binary": write_documents_binary,
    "document-raw": write_documents_raw,
    "queues": write_queues,
    "slow": write_slow,
    "onnx": write_onnx,
    "onnx-only": write_onnx_only,
    "broken": write_broken,
}


def write(kind, folder):
    """Writes a repository into a new folder. Returns: the folder."""
    os.makedirs(folder)
    KINDS[kind](str(folder))
    return str(folder)

"""Models whose state the server keeps: an output of one request is an input of the next of its
sequence."""
import importlib.util
import os
import shutil

import numpy
import onnx
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from onnx import TensorProto, helper

ANSWER_US = 60000000


def state(input_name, output_name, datatype, dims, more=""):
    sizes = ", ".join(map(str, dims))
    return (f'state {{ input_name: "{input_name}" output_name: "{output_name}" '
            f"data_type: TYPE_{datatype} dims: [ {sizes} ] {more} }}")


def initial(datatype, dims, source="zero_data: true"):
    sizes = ", ".join(map(str, dims))
    return f'initial_state {{ name: "first" data_type: TYPE_{datatype} dims: [ {sizes} ] {source} }}'


def config(states, max_batch_size=4, strategy="direct { }", idle_us=ANSWER_US, more=""):
    return "\n".join([f"max_batch_size: {max_batch_size}",
                      f"sequence_batching {{ max_sequence_idle_microseconds: {idle_us}", strategy, *states,
                      "}", more, ""])


def write(folder, name, model, text, files=(), version="1"):
    """`files`: name → bytes, in the folder initial_state. Returns: the model's folder."""
    place = os.path.join(folder, name)
    os.makedirs(os.path.join(place, version))
    onnx.save(model, os.path.join(place, version, "model.onnx"))
    with open(os.path.join(place, "config.pbtxt"), "w", encoding="utf-8") as file:
        file.write(text)
    for file_name, content in dict(files).items():
        os.makedirs(os.path.join(place, "initial_state"), exist_ok=True)
        with open(os.path.join(place, "initial_state", file_name), "wb") as file:
            file.write(content)
    return place


def graph(nodes, inputs, outputs, opset=20):
    """`inputs`, `outputs`: (name, datatype, shape)."""
    infos = [[helper.make_tensor_value_info(*item) for item in side] for side in (inputs, outputs)]
    model = helper.make_model(helper.make_graph(nodes, "stateful", *infos),
                              opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def batched(batch, *dims):
    return ["N", *dims] if batch else list(dims)


def adder(datatype=TensorProto.INT32, batch=True, first="SUM"):
    """SUM = INPUT + TOTAL, LAST = the input before: states TOTAL → NEW_TOTAL and BEFORE → NEW_BEFORE. The
    outputs are in an order of their own. A negative INPUT of an INT32 model fails."""
    shape = batched(batch, 1)
    nodes = [helper.make_node("Add", ["INPUT", "TOTAL"], ["SUM"]),
             helper.make_node("Identity", ["SUM"], ["NEW_TOTAL"]),
             helper.make_node("Identity", ["INPUT"], ["NEW_BEFORE"]),
             helper.make_node("Identity", ["BEFORE"], ["LAST"])]
    names = ["NEW_BEFORE", "SUM", "LAST", "NEW_TOTAL"]
    names.sort(key=lambda name: name != first)
    return graph(nodes, [(name, datatype, shape) for name in ("BEFORE", "INPUT", "TOTAL")],
                 [(name, datatype, shape) for name in names])


ADDER_STATES = [state("TOTAL", "NEW_TOTAL", "INT32", [1]), state("BEFORE", "NEW_BEFORE", "INT32", [1])]


def picker():
    """OUT is the element of [10, 20, 30] at INPUT + OLD, NEW that index: others fail."""
    nodes = [helper.make_node("Constant", [], ["table"], value_ints=[10, 20, 30]),
             helper.make_node("Add", ["INPUT", "OLD"], ["NEW"]),
             helper.make_node("Gather", ["table", "NEW"], ["OUT"], axis=0)]
    return graph(nodes, [(name, TensorProto.INT64, ["N", 1]) for name in ("INPUT", "OLD")],
                 [(name, TensorProto.INT64, ["N", 1]) for name in ("OUT", "NEW")])


def collector(batch=False, datatype=TensorProto.FLOAT):
    """ALL = OLD and INPUT, one behind the other; it is the state too."""
    axis = 1 if batch else 0
    nodes = [helper.make_node("Concat", ["OLD", "INPUT"], ["NEW"], axis=axis),
             helper.make_node("Identity", ["NEW"], ["ALL"])]
    return graph(nodes, [("INPUT", datatype, batched(batch, "k")), ("OLD", datatype, batched(batch, "m"))],
                 [("ALL", datatype, batched(batch, "n")), ("NEW", datatype, batched(batch, "n"))])


def speaker():
    """TEXT = OLD and INPUT joined, per row."""
    nodes = [helper.make_node("StringConcat", ["OLD", "INPUT"], ["TEXT"]),
             helper.make_node("Identity", ["TEXT"], ["NEW"])]
    return graph(nodes, [(name, TensorProto.STRING, ["N", 2]) for name in ("INPUT", "OLD")],
                 [(name, TensorProto.STRING, ["N", 2]) for name in ("TEXT", "NEW")])


def scalar():
    """Tensors without dimensions."""
    nodes = [helper.make_node("Add", ["INPUT", "OLD"], ["NEW"]), helper.make_node("Identity", ["NEW"], ["OUT"])]
    return graph(nodes, [(name, TensorProto.FLOAT, []) for name in ("INPUT", "OLD")],
                 [(name, TensorProto.FLOAT, []) for name in ("OUT", "NEW")])


class Client:
    """tritonclient, over HTTP or gRPC."""

    def __init__(self, protocol, server):
        self.triton = {"http": triton_http, "grpc": triton_grpc}[protocol]
        address = server.address if protocol == "http" else server.grpc_address
        self.client = self.triton.InferenceServerClient(address.removeprefix("http://"))

    def __call__(self, model, sequence, array, start=False, end=False, wanted=(), **options):
        """The answer, by the names of its outputs."""
        datatype = {"object": "BYTES"}.get(array.dtype.name) or array.dtype.name.upper().replace("FLOAT", "FP")
        tensor = self.triton.InferInput("INPUT", list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        outputs = [self.triton.InferRequestedOutput(name) for name in wanted] or None
        result = self.client.infer(model, [tensor], outputs=outputs, sequence_id=sequence, sequence_start=start,
                                   sequence_end=end, **options)
        said = result.get_response()
        names = ([item["name"] for item in said["outputs"]] if isinstance(said, dict)
                 else [item.name for item in said.outputs])
        return {name: result.as_numpy(name) for name in names}

    def add(self, model, sequence, value, dtype=numpy.int32, **flags):
        shape = (1,) if "_one" in model else (1, 1)
        said = self(model, sequence, numpy.full(shape, value, dtype), **flags)
        return [said["SUM"].item(), said["LAST"].item()]

    def close(self):
        self.client.close()


def voice_detector(name):
    """The path of a detector that PyPI's silero-vad has."""
    package = importlib.util.find_spec("silero_vad").submodule_search_locations[0]
    return os.path.join(package, "data", name)


def write_voice_detector(folder, name, file, text):
    place = os.path.join(folder, name)
    os.makedirs(os.path.join(place, "1"))
    shutil.copy(voice_detector(file), os.path.join(place, "1", "model.onnx"))
    with open(os.path.join(place, "config.pbtxt"), "w", encoding="utf-8") as out:
        out.write(text)

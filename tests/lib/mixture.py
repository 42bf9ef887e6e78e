"""Requests made at random for models that batch, as each protocol writes them, and what may be answered to
each. No two requests hold the same numbers, and no two failures say the same, so that an answer that is
somebody else's is seen. It knows nothing of connections."""
import json
import os
import shutil
import struct

import numpy
from tritonclient.grpc import service_pb2 as proto

from lib import mip
from lib.repository import Identity

ROWS, WIDTHS = 4, (1, 3, 16)
INK = "out of ink"


# ---- the models ----------------------------------------------------------------------------------

def settings(max_batch_size, instances, batching="", run_on="auto"):
    return (f"max_batch_size: {max_batch_size} instance_group {{ count: {instances} }}\n"
            f"dynamic_batching {{ {batching} }}\n"
            f'parameters {{ key: "sluice.run_on" value {{ string_value: "{run_on}" }} }}\n')


# Of tests/models/make.py; each waits, orders and is run in another way.
ONNX = {
    "rows": ("onnx_rows", settings(16, 3, """max_queue_delay_microseconds: 500 priority_levels: 3
        default_priority_level: 2 default_queue_policy { allow_timeout_override: true }""")),
    "text": ("onnx_string", settings(8, 2, "max_queue_delay_microseconds: 1000 preferred_batch_size: 6")),
    "lookup": ("onnx_lookup", settings(32, 2, "max_queue_delay_microseconds: 300 preserve_ordering: true")),
    "int8": ("onnx_identity_int8", settings(8, 2)),
    "fp64": ("onnx_identity_fp64", settings(8, 2, run_on="worker")),
    "int32": ("onnx_identity_int32", settings(8, 1, run_on="instance")),
}
IDENTITIES = [
    Identity("later", [("UINT8", [-1])], 8, parameters={"respond_from": "thread", "delay_us": 1500},
             more="""instance_group { count: 2 } dynamic_batching { priority_levels: 2
             default_priority_level: 1 default_queue_policy { allow_timeout_override: true } }"""),
    Identity("failing", [("FP32", [-1])], 8, parameters={"fail": INK, "delay_us": 500},
             more="dynamic_batching { default_queue_policy { max_queue_size: 6 } }"),
]
MAY_BE_LATE, MAY_BE_FULL = ("rows", "later"), ("failing",)
NAMES = [*ONNX, *(model.name for model in IDENTITIES)]


def write_models(folder, onnx_models):
    """A repository of them in a new folder. Returns: the folder."""
    for name, (source, config) in ONNX.items():
        os.makedirs(os.path.join(folder, name, "1"))
        shutil.copy(os.path.join(onnx_models, source, "1", "model.onnx"), os.path.join(folder, name, "1"))
        with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write(config)
    for model in IDENTITIES:
        model.write(folder)
    return str(folder)


# ---- a request -----------------------------------------------------------------------------------

NUMBERED = {"rows": ("FP32", numpy.float32, None), "int32": ("INT32", numpy.int32, 4),
            "fp64": ("FP64", numpy.float64, 4), "failing": ("FP32", numpy.float32, None)}
RANDOM = {"int8": ("INT8", numpy.int8, 4), "later": ("UINT8", numpy.uint8, None)}
TABLE = numpy.arange(24, dtype=numpy.float32).reshape(8, 3)

# What may be wrong with a request → what it says instead.
WRONG = {
    "shape": lambda ask: {"shape": [ask.x.shape[0] + 1, *ask.x.shape[1:]]},
    "name": lambda ask: {"name": "nobody's"},
    "datatype": lambda ask: {"datatype": "INT16"},
    "model": lambda ask: {"model": "nobody"},
}


class Ask:
    """`x` is asked, `y` the right answer; `fault`, where there is one, what the model must refuse it with.
    `wrong` says what the request gets wrong, if anything. `serial` is nobody else's. It is `hurried` where
    its protocol gave it a deadline."""

    def __init__(self, rng, serial, model=None, good=False):
        self.model = model or rng.choice(NAMES)
        self.serial, self.fault, self.wrong, self.parameters = serial, None, None, {}
        self.hurried = False
        self.fill(rng, rng.randint(1, ROWS), rng.choice(WIDTHS))
        if self.model == "failing":
            self.fault = INK
        elif self.model == "lookup" and not good and rng.random() < 0.15:
            self.x[rng.randrange(len(self.x)), rng.randrange(2)] = 8 + serial
            self.fault = f"idx={8 + serial} "
        if not good:
            self.vary(rng)

    def fill(self, rng, rows, width):
        """Random numbers where they are too short to hold the request's own."""
        if self.model in NUMBERED:
            self.datatype, dtype, fixed = NUMBERED[self.model]
            shape = (rows, fixed or width)
            self.x = (self.serial * 64 + numpy.arange(rows * shape[1])).reshape(shape).astype(dtype)
        elif self.model in RANDOM:
            self.datatype, dtype, fixed = RANDOM[self.model]
            shape = (rows, fixed or width)
            self.x = numpy.frombuffer(rng.randbytes(rows * shape[1]), dtype).reshape(shape)
        elif self.model == "lookup":
            self.datatype = "INT64"
            self.x = numpy.array([rng.randrange(8) for _ in range(2 * rows)]).reshape(rows, 2)
        else:
            self.datatype = "BYTES"
            texts = [rng.choice((b"", b"%d/%d" % (self.serial, i), "ü☃\0".encode() * rng.randrange(9)))
                     for i in range(rows * width)]
            self.x = numpy.array(texts, numpy.object_).reshape(rows, width)
        tables = {"rows": lambda: self.x * 2, "lookup": lambda: TABLE[self.x]}
        self.y = tables.get(self.model, lambda: self.x)()

    def vary(self, rng):
        if rng.random() < 0.3:
            self.parameters["k"] = rng.randrange(2)  # apart from those who say otherwise
        if rng.random() < 0.5:
            self.parameters["priority"] = rng.randrange(5)
        if rng.random() < 0.2:
            self.parameters["timeout"] = rng.randrange(1, 3000)
        if rng.random() < 0.08:
            self.wrong = rng.choice(list(WRONG))

    def says(self):
        """What the request says of itself."""
        in_out = ("INPUT0", "OUTPUT0") if self.model in ("later", "failing") else ("x", "y")
        said = {"model": self.model, "name": in_out[0], "datatype": self.datatype, "shape": [*self.x.shape]}
        return said | (WRONG[self.wrong](self) if self.wrong else {})

    def check(self, text, shape=None, data=None):
        """`text` is of an error, or None. Returns: what became of the request, "ok", "failed", "late",
        "full", "wrong" or (not to be seen from here) "unsure", where that may be."""
        if self.hurried and text and "deadline" in text.lower():
            return "unsure"
        if self.wrong:
            assert text, (self, "was answered")
            return "wrong"
        if text is None:
            assert not self.fault, (self, "did not fail")
            assert (list(shape), data) == ([*self.y.shape], bytes_of(self.y)), (self, self.y, shape, data)
            return "ok"
        if "timeout" in self.parameters and self.model in MAY_BE_LATE and "waited" in text:
            return "late"
        if self.model in MAY_BE_FULL and "is full" in text:
            return "full"
        assert self.fault and self.fault in text + " ", (self, text)
        return "failed"

    def __repr__(self):
        return f"request {self.serial} of {self.says()} {self.parameters} fault={self.fault}"


def bytes_of(array):
    """As in a binary tensor."""
    if array.dtype == numpy.object_:
        return b"".join(struct.pack("<I", len(item)) + item for item in array.flatten())
    return array.tobytes()


def array_of(values, like):
    """JSON's values as what `like` is an array of."""
    if like.dtype == numpy.object_:
        return numpy.array([value.encode() for value in numpy.array(values, object).flatten()], object)
    return numpy.array(values, like.dtype)


# ---- HTTP ----------------------------------------------------------------------------------------

def code_of(ask, end, codes):
    """`codes` are of what ends well, is bad, is of nobody, fails, finds no room, and is out of time."""
    ok, bad, nobody, failed, busy, deadline = codes
    if end == "wrong":
        return nobody if ask.wrong == "model" else bad
    # What a graph finds wrong with a value is the request's fault.
    return {"ok": ok, "failed": bad if ask.model == "lookup" else failed, "late": busy,
            "full": busy, "unsure": deadline}[end]


HTTP_CODES = (200, 400, 404, 500, 503, None)


def values_of(array):
    if array.dtype == numpy.object_:
        return [item.decode() for item in array.flatten()]
    return array.tolist()


def to_http(ask, rng):
    """As JSON, binary or raw. Returns: the request's bytes."""
    said = ask.says()
    tensor = {key: said[key] for key in ("name", "datatype", "shape")}
    may_be_raw = len(ask.x) == 1 and not ask.wrong and not ask.parameters and ask.datatype != "BYTES"
    way = "raw" if may_be_raw else rng.choice(("json", "binary"))
    fields, data = [], b""
    if way == "raw":
        fields, head, data = ["Inference-Header-Content-Length: 0"], b"", bytes_of(ask.x)
    else:
        if way == "json":
            tensor["data"] = values_of(ask.x)
        else:
            data = bytes_of(ask.x)
            tensor["parameters"] = {"binary_data_size": len(data)}
        head = json.dumps({"inputs": [tensor], "id": str(ask.serial), "parameters": ask.parameters | {
            "binary_data_output": rng.random() < 0.5}}).encode()
        if data:
            fields = [f"Inference-Header-Content-Length: {len(head)}"]
    lines = [f"POST /v2/models/{said['model']}/infer HTTP/1.1", "Host: here", *fields,
             f"Content-Length: {len(head) + len(data)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + head + data


def from_http(ask, answer):
    """Returns: what became of it."""
    if answer.status != 200:
        end = ask.check(json.loads(answer.body)["error"])
    else:
        n_bytes = int(answer.get("Inference-Header-Content-Length") or len(answer.body))
        head, data = json.loads(answer.body[:n_bytes]), answer.body[n_bytes:]
        [output] = head["outputs"]
        if "data" in output:
            assert not data, answer
            data = bytes_of(array_of(output["data"], ask.y))
        assert head.get("id", str(ask.serial)) == str(ask.serial), (ask, head)
        end = ask.check(None, output["shape"], data)
    assert answer.status == code_of(ask, end, HTTP_CODES), (ask, str(answer))
    return end


# ---- gRPC ----------------------------------------------------------------------------------------

GRPC_CODES = (0, 3, 5, 13, 14, 4)
CONTENTS = {"FP32": "fp32_contents", "FP64": "fp64_contents", "INT64": "int64_contents",
            "INT32": "int_contents", "INT8": "int_contents", "UINT8": "uint_contents",
            "BYTES": "bytes_contents"}


def to_grpc(ask, rng):
    """Its data raw or as numbers. Returns: the message."""
    said = ask.says()
    made = proto.ModelInferRequest(model_name=said["model"], id=str(ask.serial))
    tensor = made.inputs.add(name=said["name"], datatype=said["datatype"], shape=said["shape"])
    if rng.random() < 0.5:
        made.raw_input_contents.append(bytes_of(ask.x))
    else:
        getattr(tensor.contents, CONTENTS[ask.datatype]).extend(ask.x.flatten().tolist())
    for key, value in ask.parameters.items():
        made.parameters[key].int64_param = value
    return made.SerializeToString()


def from_answer(ask, answer):
    """A ModelInferResponse. Returns: what became of it."""
    assert answer.id == str(ask.serial), (ask, answer)
    [output], [data] = answer.outputs, answer.raw_output_contents
    return ask.check(None, output.shape, data)


def from_unary(ask, ended):
    """`ended` is a lib.h2 Stream. Returns: what became of it."""
    if ended.status == 0:
        [data] = ended.messages()
        end = from_answer(ask, proto.ModelInferResponse.FromString(data))
    else:
        end = ask.check(ended.text)
    assert ended.status == code_of(ask, end, GRPC_CODES), (ask, str(ended))
    return end


def from_stream(ask, data):
    """One answer of a stream. Returns: what became of it."""
    message = proto.ModelStreamInferResponse.FromString(data)
    if message.error_message:
        return ask.check(message.error_message)
    return from_answer(ask, message.infer_response)


# ---- MIP -----------------------------------------------------------------------------------------

def to_mip(ask):
    """A row is an element. What is wrong is always the count."""
    elements = [[mip.as_json(row)] for row in ask.x.tolist()]
    return mip.infer_request(elements, batch=len(elements) + bool(ask.wrong))


def from_mip(ask, packet):
    """`packet` is what lib.mip reads. Returns: what became of it."""
    kind, subtype, payload = packet
    if kind == mip.ERROR:
        name = mip.ERRORS[subtype]
        assert name == ("SHAPE" if ask.wrong else "INTERNAL"), (ask, name)
        return ask.check(ask.fault or name)  # it says no more than that
    n_inputs, elements = mip.parse_answer(payload)
    assert kind == mip.INFER and n_inputs == 1, (ask, packet)
    y = array_of([mip.value_of(item) for [item] in elements], ask.y)
    return ask.check(None, y.shape, bytes_of(y))

"""Models that keep a sum for each sequence, and clients of theirs."""
import json
import os

import numpy
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from lib import backends

FLAGS = {"START": "CONTROL_SEQUENCE_START", "END": "CONTROL_SEQUENCE_END",
         "READY": "CONTROL_SEQUENCE_READY"}


def control(name, kind, value):
    return f'control_input {{ name: "{name}" control {{ kind: {kind} {value} }} }}'


def adder(strategy="direct { }", max_batch_size=4, corrid=None, pair="int32_false_true: [ 0, 1 ]",
          idle_us=60000000, more=""):
    """config.pbtxt of a model. `corrid` is the data_type of its identifiers; None: it is not told."""
    controls = [control(name, kind, pair) for name, kind in FLAGS.items()]
    if corrid:
        controls.append(control("CORRID", "CONTROL_SEQUENCE_CORRID", f"data_type: {corrid}"))
    outputs = [f'output {{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ] }}'
               for name in ("SUM", "ROW", "ROWS", "INSTANCE")]
    return "\n".join(['backend: "adder"', f"max_batch_size: {max_batch_size}",
                      'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }', *outputs,
                      f"sequence_batching {{ max_sequence_idle_microseconds: {idle_us}",
                      strategy, *controls, "}", more, ""])


def write(folder, models):
    """A repository of models, name → config.pbtxt."""
    for name, config in models.items():
        os.makedirs(os.path.join(folder, name, "1"))
        with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write(config)
    return str(folder)


def make(folder, models):
    """What serves them in `folder`. Returns: arguments of `sluice serve`."""
    return ["--model-repository", write(os.path.join(folder, "models"), models),
            "--backend-dir", backends.make(folder, "adder")]


class Client:
    """tritonclient, over HTTP or gRPC."""

    def __init__(self, protocol, server):
        self.protocol, self.server = protocol, server
        self.triton = {"http": triton_http, "grpc": triton_grpc}[protocol]
        address = server.address if protocol == "http" else server.grpc_address
        self.client = self.triton.InferenceServerClient(address.removeprefix("http://"))

    def again(self):
        """Another one of the same kind."""
        return Client(self.protocol, self.server)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.client.close()

    def inputs(self, model, value, rows=1):
        shape = (1,) if model.endswith("_one") else (rows, 1)
        array = numpy.full(shape, value, numpy.int32)
        tensor = self.triton.InferInput("INPUT", list(array.shape), "INT32")
        tensor.set_data_from_numpy(array)
        return [tensor]

    def add(self, model, sequence, value, start=False, end=False, **options):
        """What the model says, by the names of its outputs."""
        result = self.client.infer(model, self.inputs(model, value), sequence_id=sequence,
                                   sequence_start=start, sequence_end=end, **options)
        return {name: int(result.as_numpy(name).ravel()[0])
                for name in ("SUM", "ROW", "ROWS", "INSTANCE")}


def body_of(sequence, **parameters):
    return json.dumps({"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1]}],
                       "parameters": {"sequence_id": sequence, **parameters}}).encode()

"""Clients that make a server hold memory: they ask for large answers and do not read them. Good clients
beside them are answered."""
import contextlib
import socket
import threading
import time

import numpy
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from onnx import TensorProto, helper

from lib import grpc_live, h2, http1, repository

MB = 1 << 20
ANSWER = 4 * MB
TENSOR = b'"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[1]}]'
BINARY = b'"parameters":{"binary_data_output":true}'


def write_models(folder):
    """`large` answers one number with 4 MB of it, in a shape that its metadata has; `unknown` the same
    in a shape that only its answer has; `medium` with 1 MB. `small` is for good clients."""
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, [1])
    for name, size, dims in (("large", ANSWER, [ANSWER // 4]), ("unknown", ANSWER, ["N"]),
                             ("medium", MB, [MB // 4])):
        shape = numpy.array([size // 4], "<i8")
        repository.save_onnx(str(folder / name / "1" / "model.onnx"), name,
                             [helper.make_node("Expand", ["X", "shape"], ["Y"])], [x],
                             [helper.make_tensor_value_info("Y", TensorProto.FLOAT, dims)],
                             [("shape", shape)])
    repository.Identity("small", [("FP32", repository.FREE)]).write(str(folder))
    return folder


def check_good(live):
    """Clients of both protocols, of small and large answers."""
    over_http = triton_http.InferenceServerClient(live.address, network_timeout=http1.PATIENCE)
    over_grpc = triton_grpc.InferenceServerClient(live.grpc_address)
    with contextlib.closing(over_http), contextlib.closing(over_grpc):
        for module, client in ((triton_http, over_http), (triton_grpc, over_grpc)):
            for model, name, n in (("small", "INPUT0", 1), ("large", "X", ANSWER // 4)):
                asked = module.InferInput(name, [1], "FP32").set_data_from_numpy(
                    numpy.ones(1, "<f4"))
                answer = client.infer(model, [asked])
                assert answer.as_numpy("OUTPUT0" if model == "small" else "Y").size == n


class Good:
    """Clients that go on asking while the body of the `with` runs, and were answered each time."""

    def __init__(self, live):
        self.live = live
        self.ended = threading.Event()
        self.failures = []
        self.n = 0
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        try:
            while not self.ended.is_set():
                check_good(self.live)
                self.n += 1
        except Exception as failure:  # pylint: disable=broad-except
            self.failures.append(f"{failure!r}: {failure}")

    def wait(self, more):
        """Until they were answered `more` times."""
        until = self.n + more
        while self.n < until and not self.failures:
            self.ended.wait(0.01)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join(http1.PATIENCE)
        assert not self.failures and self.n > 0, self.failures


def wait_for_memory(live, base, seconds, slack=8 * MB):
    """Until resident memory is within a fifth of what it was at the start."""
    end = time.monotonic() + seconds
    while live.rss_bytes() > base * 1.2 + slack:
        assert time.monotonic() < end, (live.rss_bytes(), base)
        time.sleep(0.1)


def infer_message(model):
    request = grpc_live.proto.ModelInferRequest(model_name=model)
    request.inputs.add(name="X", datatype="FP32", shape=[1])
    request.raw_input_contents.append(numpy.ones(1, "<f4").tobytes())
    return h2.message(request.SerializeToString())


def unread_stream(stack, address, model, n):
    """Sends n requests on one ModelStreamInfer whose window is closed."""
    connection = stack.enter_context(h2.Connection(address, own=[(h2.INITIAL_WINDOW, 0)]))
    stream = connection.begin(b"/inference.GRPCInferenceService/ModelStreamInfer")
    connection.send_data(stream, infer_message(model) * n)


def unread_calls(stack, address, n):
    """Sends n calls on a connection whose windows are closed. Returns: the connection."""
    connection = stack.enter_context(h2.Connection(address, own=[(h2.INITIAL_WINDOW, 0)]))
    for _ in range(n):
        stream = connection.begin(b"/inference.GRPCInferenceService/ModelInfer")
        connection.send_data(stream, infer_message("large"), end=True)
    return connection


def unread_request(stack, address, receive_buffer=4096):
    """Asks for a large answer over HTTP/1.1, four times, and reads nothing. Returns: the
    socket."""
    host, port = address.rsplit(":", 1)
    sock = stack.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect((host, int(port)))
    body = b"{" + BINARY + b"," + TENSOR + b"}"
    sock.sendall(http1.post(b"/v2/models/large/infer", body) * 4)
    return sock

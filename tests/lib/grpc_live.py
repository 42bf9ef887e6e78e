"""A server under attack over gRPC, and what must be true of it afterwards: a good request is answered, and
its own numbers are back to nothing. Also the messages to attack it with, whole and field by field."""
import re
import struct

from tritonclient.grpc import service_pb2 as proto

from lib import h2, http1, metrics
from lib.server import Server

SERVICE = b"/inference.GRPCInferenceService/"
INFER, STREAM = SERVICE + b"ModelInfer", SERVICE + b"ModelStreamInfer"
OK, CANCELLED, _, INVALID, DEADLINE, NOT_FOUND, _, _, EXHAUSTED = range(9)
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 12, 13, 14


# ---- messages ------------------------------------------------------------------------------------

def varint(value):
    """A number as a varint; a negative one in its 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def tag(number, kind):
    return varint(number << 3 | kind)


def number_field(number, value):
    return tag(number, 0) + varint(value)


def bytes_field(number, data):
    return tag(number, 2) + varint(len(data)) + data


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def tensor(name="INPUT0", datatype="FP32", shape=(1,), **more):
    return proto.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, **more)


def request(model="id_fp32", inputs=None, raw=(floats(1),), **more):
    return proto.ModelInferRequest(model_name=model, inputs=[tensor()] if inputs is None else inputs,
                                   raw_input_contents=raw, **more).SerializeToString()


GOOD = request()
SLOW = request("id_slow")


def parse_answer(data):
    answer = proto.ModelInferResponse()
    answer.ParseFromString(data)
    return answer


# ---- the server ----------------------------------------------------------------------------------

class Live:
    """A server of its own with gRPC, HTTP and the page for operators."""

    def __init__(self, folder, repository, *flags):
        self.server = Server(folder, ["--model-repository", repository, *flags],
                             grpc=("127.0.0.1:0", f"unix:{folder}/grpc"), metrics_at="127.0.0.1:0")
        self.tcp, self.unix = self.server.grpc_addresses

    def connect(self, **options):
        return h2.Connection(self.tcp, **options)

    def check_good(self, connection=None):
        """A good request is answered, on this connection or a new one."""
        if connection is None:
            with self.connect() as made:
                return self.check_good(made)
        ended = connection.call(INFER, GOOD)
        assert ended.status == OK, str(ended)
        assert parse_answer(ended.messages()[0]).raw_output_contents[0] == floats(1)
        return None

    def numbers(self):
        return metrics.read(self.server.metrics_address)

    def state(self):
        answer = http1.request(self.server.metrics_address, "GET", "/debug/state")
        return answer.body.decode()

    def is_at_rest(self):
        """No connection, no call, no queue, nothing that runs."""
        numbers, state = self.numbers(), self.state()
        of_grpc = state[state.index("\ngrpc: "):state.index("\nmetrics: ")]
        return (numbers["sluice_queued_requests"] == numbers["sluice_running_requests"] == 0
                and not any(value for name, value in numbers.items()
                            if name.startswith(("sluice_model_queued", "sluice_model_running",
                                                "sluice_model_busy_instances")))
                and state.startswith("idle: ") and set(re.findall(r"\d+ (?:requests|connections)",
                                                                     of_grpc))
                == {"0 requests", "0 connections"})

    def check_at_rest(self):
        """What was begun has ended, and nothing of it is kept."""
        self.server.wait_at_rest()
        self.server.wait_for(self.is_at_rest, "a server at rest")
        self.server.check_log()

    def check_unharmed(self):
        """It lives, answers, and is as it was."""
        assert self.server.process.poll() is None, self.server.log_text()
        self.check_good()
        self.check_at_rest()

"""The connections of a worker take turns: what many of them send at once does not keep the loop from other events, such
as the answer of an instance, until all of it is handled. The answer of one request must come before those of a crowd
that came right after it, each of which takes a good part of a millisecond on the worker."""
import contextlib
import gzip
import json
import select
import socket
import struct

import pytest

from lib import backends, grpc_live, h2, http1, metrics, mip
from lib.repository import FREE, Identity

N = 400
SO_TIMESTAMPNS = 35  # Linux
WIDE = 20000  # elements, the last of which is none of the type


def of_http():
    data = b"1," * (WIDE - 1) + b"300"
    return http1.post(b"/v2/models/bytes/infer", b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","data":[%s]}]}'
                      % (WIDE, data))


def of_grpc():
    tensor = grpc_live.tensor("INPUT0", "INT8", [WIDE], contents={"int_contents": [1] * (WIDE - 1) + [300]})
    data = h2.message(grpc_live.request("bytes", [tensor], ()))
    head = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.block(h2.call_fields(grpc_live.INFER)))
    pieces = [data[at:at + h2.DEFAULT_FRAME] for at in range(0, len(data), h2.DEFAULT_FRAME)]
    frames = [h2.frame(h2.DATA, h2.END_STREAM if piece is pieces[-1] else 0, 1, piece) for piece in pieces]
    return h2.PREFACE + h2.settings() + head + b"".join(frames)


def of_mip():
    return mip.infer_request([[mip.as_json([1] * (WIDE // 3) + ["300"])]])


GATED = """
backend: "gate"
input {{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }}
parameters {{ key: "gate" value {{ string_value: "/" }} }}
parameters {{ key: "execute_gate" value {{ string_value: "{gate}" }} }}
parameters {{ key: "sluice.run_on" value {{ string_value: "{where}" }} }}
"""
GATED_REQUEST = b'{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}'


class HeldServer:
    """A server of one worker, which executes a model until `release()`: all that clients send meanwhile waits."""

    def __init__(self, start_server, tmp_path, *flags):
        backends.make(tmp_path, "gate")
        self.folder = tmp_path
        self.write_gated("gated", "worker")
        self.server = start_server("--workers", "1", "--model-repository", tmp_path / "models", "--backend-dir",
                                   tmp_path / "backends", *flags, metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",))
        self.admin = self.server.metrics_address
        self.gated = http1.Connection(self.server.address)

    def write_gated(self, name, where):
        (self.folder / "models" / name / "1").mkdir(parents=True)
        (self.folder / "models" / name / "config.pbtxt").write_text(GATED.format(gate=self.folder / f"open_{name}",
                                                                                 where=where))

    def open_gate(self, name):
        (self.folder / f"open_{name}").touch()

    def release(self):
        self.open_gate("gated")

    def connect(self, protocol, n):
        before = metrics.read(self.admin)["sluice_connections"]
        address = self.server.grpc_address if protocol == "grpc" else self.server.address
        crowd = [http1.Connection(address) for _ in range(n)]
        metrics.wait_until(self.admin, lambda now: now["sluice_connections"] >= before + n, "all connections")
        return crowd

    def hold(self):
        self.gated.send(http1.post(b"/v2/models/gated/infer", GATED_REQUEST))
        self.server.wait_for(lambda: json.loads(http1.request(self.admin, "GET", "/status.json").body)["memory"]
                             ["busy_workers"], "a worker that is held")

    def n_handled(self):
        """Requests and messages of the crowd, each of which is an error."""
        now = metrics.read(self.admin)
        return sum(value for name, value in now.items() if name.startswith("sluice_errors_total{"))

    def end(self):
        assert self.gated.read_answer("POST").status == 503  # the backend's answer
        self.gated.close()
        self.server.wait_at_rest()


class ServerWithInstance(HeldServer):
    """Its model `apart` has an instance, which executes until its own gate is open."""

    def __init__(self, start_server, tmp_path):
        Identity("bytes", [("INT8", FREE)]).write(tmp_path / "models")
        self.folder = tmp_path
        self.write_gated("apart", "instance")
        super().__init__(start_server, tmp_path, "--mip", "tcp://127.0.0.1:0=bytes")
        self.apart = http1.Connection(self.server.address)

    def hold_instance(self):
        self.apart.send(http1.post(b"/v2/models/apart/infer", GATED_REQUEST))
        metrics.wait_until(self.admin, lambda now: now['sluice_model_busy_instances{model="apart",version="1"}'] == 1,
                           "an instance that executes")


def wait_for_timestamps():
    """The kernel begins to note times a while after the first socket asks for them: what it receives until then has
    none. Returns: a pair of connected sockets, which keeps it noting until they are closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    receiver.settimeout(http1.PATIENCE)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    noted = False
    while not noted:
        sender.sendall(b"x")
        _, ancillary, _, _ = receiver.recvmsg(1, 64)
        noted = any(kind == SO_TIMESTAMPNS for _, kind, _ in ancillary)
    return sender, receiver


def receive_at(sock):
    """Returns: when the kernel received the first bytes of what is there, in its own time. What came before it noted
    times is left out."""
    while True:
        assert select.select([sock], [], [], http1.PATIENCE)[0]
        data, ancillary, _, _ = sock.recvmsg(65536, 64)
        assert data
        for _, kind, value in ancillary:
            if kind == SO_TIMESTAMPNS:
                return struct.unpack("qq", value[:16])


@pytest.mark.parametrize("protocol", ["http", "grpc", "mip"])
def test_turns_answer_of_instance_does_not_wait_for_crowd(start_server, tmp_path, protocol):
    """The worker is held while the crowd sends its requests, and goes on. When the first is answered, the instance may
    answer: that is sent before the last of the crowd is. The kernel's times of arrival tell, however late this process
    reads them."""
    held = ServerWithInstance(start_server, tmp_path)
    connect, request = {
        "http": (lambda: http1.connect(held.server.address), of_http()),
        "grpc": (lambda: http1.connect(held.server.grpc_address), of_grpc()),
        "mip": (lambda: mip.connect(held.server.mip_urls[0]), of_mip()),
    }[protocol]
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(contextlib.closing(connect())) for _ in range(N)]
        metrics.wait_until(held.admin, lambda now: now["sluice_connections"] >= N + 2, "all connections")
        held.hold_instance()
        held.hold()
        for sock in wait_for_timestamps():
            stack.enter_context(contextlib.closing(sock))
        for sock in (*crowd, held.apart.sock):
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for sock in crowd:
            sock.sendall(request)
        held.release()
        assert select.select(crowd, [], [], http1.PATIENCE)[0]
        held.open_gate("apart")
        answered_at = receive_at(held.apart.sock)
        times = [receive_at(sock) for sock in crowd]  # nothing is lost
        n_before = sum(time < answered_at for time in times)
        print(n_before, "of the crowd were answered before")
        # Without turns all of the crowd of HTTP and MIP. Calls of gRPC, of several reads each, give way in any case.
        assert n_before < (N if protocol == "grpc" else N / 2)
    held.apart.close()
    held.end()


# ---- what a connection sends ahead ---------------------------------------------------------------

AHEAD = 1500  # requests of each connection, in one piece
STREAM = b"/inference.GRPCInferenceService/ModelStreamInfer"
AHEAD_OF = {
    "http": (b"GET /v2/models/unknown HTTP/1.1\r\nHost: a\r\n\r\n") * AHEAD,
    "grpc": (h2.PREFACE + h2.settings() +
             h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.block(h2.call_fields(STREAM))) +
             h2.frame(h2.DATA, 0, 1, h2.message(b"") * AHEAD)),
}


@pytest.fixture
def held(start_server, tmp_path):
    return HeldServer(start_server, tmp_path)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_turns_of_clients_that_have_gone_do_no_work(held, protocol):
    """Each has sent 1,500 requests, and reset its connection before the worker looked at them."""
    crowd = held.connect(protocol, 200)
    held.hold()
    for one in crowd:
        one.send(AHEAD_OF[protocol])
        one.reset()
    held.release()
    metrics.wait_until(held.admin, lambda now: now["sluice_connections"] <= 2, "the crowd's connections closed")
    assert held.n_handled() < 200 * AHEAD / 4
    held.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_turns_request_comes_before_what_a_crowd_sent_ahead(held, protocol):
    """It comes last. The crowd's first requests are answered before it, not all of them."""
    crowd = held.connect(protocol, 200)
    last = http1.Connection(held.server.address)
    metrics.wait_until(held.admin, lambda now: now["sluice_connections"] >= 202, "all connections")
    held.hold()
    for one in crowd:
        one.send(AHEAD_OF[protocol])
    last.send(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
    held.release()
    assert last.read_answer().status == 200
    assert held.n_handled() < 200 * AHEAD * 3 / 4
    for one in crowd:
        one.reset()
    last.close()
    held.end()


# ---- bodies that wait for a turn -------------------------------------------------------------------

ONE = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
BLANKS = gzip.compress(b" " * (12 << 20), 9)  # 12 KB that cost the worker milliseconds


def test_turns_body_that_waits_for_its_turn_is_not_slow(start_server, tmp_path):
    """All of it has been sent, and others are before it for longer than a body may pause."""
    Identity("m", [("FP32", FREE)]).write(tmp_path / "models")
    live = start_server("--workers", "1", "--model-repository", tmp_path / "models", "--body-timeout", "10ms",
                        "--min-body-rate", "1GiB")
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(http1.Connection(live.address)) for _ in range(24)]
        for connection in crowd:
            connection.send(http1.post(b"/v2/models/m/infer", BLANKS, b"Content-Encoding: gzip"))
        for connection in crowd:
            answer = connection.read_answer("POST")
            assert answer.status == 400, answer.body
    assert http1.request(live.address, "POST", "/v2/models/m/infer", ONE).status == 200
    live.wait_at_rest()

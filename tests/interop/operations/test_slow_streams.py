"""Decoupled models whose clients read slowly, or not at all: while no other request waits for the model they keep
their stream; while others wait they are ended with an error, logged and counted. Over HTTP and gRPC, for models that
answer in execute and from a thread of their own, with batches, sequences and several instances."""
import contextlib
import http.client
import json
import socket
import threading
import time

import numpy
import pytest

from lib import grpc_live, h2, http1, metrics
from lib.repository import DECOUPLE, FREE, Identity

AS_ASKED = {"responses_by_request": "true"}
ONE = DECOUPLE + "\ninstance_group [ { count: 1 } ]"
TWO = DECOUPLE + "\ninstance_group [ { count: 2 } ]"
MODELS = [
    Identity("execute", [("FP32", FREE)], parameters=AS_ASKED, more=ONE),
    Identity("thread", [("FP32", FREE)], parameters={**AS_ASKED, "respond_from": "thread"}, more=ONE),
    Identity("batch", [("FP32", FREE)], max_batch_size=4, parameters=AS_ASKED,
             more=ONE + "\ndynamic_batching { max_queue_delay_microseconds: 20000 }"),
    Identity("two", [("FP32", FREE)], parameters=AS_ASKED, more=TWO),
    Identity("one", [("FP32", FREE)]),
]
KINDS = ["execute", "thread", "batch"]
ENDED = "sluice_slow_streams_ended_total"
LARGE = 1 << 18  # elements: 1 MiB
MANY = 100_000   # answers of that size
LOG_LINE = "answers ended: their client reads slowly, and other requests wait"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    for model in MODELS:
        model.write(str(folder))
    return str(folder)


@pytest.fixture
def start(start_server, models):
    started = []

    def start(*args):
        live = start_server("--model-repository", models, *args, grpc=("127.0.0.1:0",))
        started.append(live)
        return live
    yield start
    for live in started:
        for kind in KINDS + ["two"]:
            assert answers(live, kind, 3) == 3
        metrics.wait_at_rest(live.address, live.arenas)


def body_of(kind, width, responses):
    data = [1.5] * width
    return json.dumps({"INPUT0": data, "responses": responses}, separators=(",", ":")).encode()


def answers(live, kind, n):
    """A good client's request. Returns: how many answers came, without an error."""
    connection = http.client.HTTPConnection(live.address, timeout=http1.PATIENCE)
    with contextlib.closing(connection):
        connection.request("POST", f"/v2/models/{kind}/generate_stream", body_of(kind, 1, n))
        answer = connection.getresponse()
        text = answer.read()
    assert answer.status == 200 and b'"error"' not in text, text
    return text.count(b"data: ")


class OverHttp:
    """A client of generate_stream, which reads what it is told to."""

    def __init__(self, live, kind, width=LARGE, responses=MANY):
        host, port = live.address.rsplit(":", 1)
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.sock.settimeout(http1.PATIENCE)
        self.sock.connect((host, int(port)))
        self.sock.sendall(http1.post(f"/v2/models/{kind}/generate_stream".encode(), body_of(kind, width, responses)))
        assert self.sock.recv(1) == b"H"  # the model answers

    def read(self, n):
        return self.sock.recv(n)

    def read_to_end(self):
        """Returns: the last bytes."""
        last = b""
        while piece := self.sock.recv(1 << 20):
            last = (last + piece)[-2000:]
            if last.endswith(b"0\r\n\r\n"):
                break
        return last

    def close(self):
        self.sock.close()


class OverGrpc:
    """A client of ModelStreamInfer, which opens its window for what it is told to read."""

    def __init__(self, live, kind, width=LARGE, responses=MANY, n_requests=1):
        self.connection = h2.Connection(live.grpc_address, own=[(h2.INITIAL_WINDOW, 65535)])
        self.stream = self.connection.begin(b"/inference.GRPCInferenceService/ModelStreamInfer")
        shape = (1, width) if kind == "batch" else (width,)
        message = grpc_live.proto.ModelInferRequest(model_name=kind)
        message.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
        message.raw_input_contents.append(numpy.full(width, 1.5, "<f4").tobytes())
        message.parameters["responses"].int64_param = responses
        for _ in range(n_requests):
            self.connection.send_data(self.stream, h2.message(message.SerializeToString()))
        self.connection.run_until(lambda: self.connection.streams[self.stream].data)

    def read(self, n):
        self.connection.send(h2.window_update(0, n) + h2.window_update(self.stream, n))
        self.connection.turn(0)

    def read_to_end(self):
        self.connection.send_data(self.stream, b"", end=True)
        self.connection.send(h2.window_update(0, (1 << 31) - (1 << 20)) +
                             h2.window_update(self.stream, (1 << 31) - (1 << 20)))
        self.connection.run_until(lambda: self.connection.streams[self.stream].is_over)
        return bytes(self.connection.streams[self.stream].data[-2000:])

    def close(self):
        self.connection.close()


CLIENTS = [OverHttp, OverGrpc]
FEW = {OverHttp: 60, OverGrpc: 6}  # more than the buffers between model and client take


def ended(live):
    return metrics.read(live.address)[ENDED]


def wait_for_ended(live, n):
    metrics.wait_until(live.address, lambda now: now[ENDED] >= n, f"{n} ended")


def lines_of(live):
    return [line for line in live.log_lines() if line.get("event") == LOG_LINE]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_slow_reader_is_ended_while_others_wait(start, client, kind):
    """The client reads nothing after the head; another one's request is answered, and a good one's after it."""
    live = start("--slow-reader-timeout", "200ms", "--write-timeout", "10m")
    with contextlib.closing(client(live, kind)) as slow:
        assert answers(live, kind, 3) == 3
        wait_for_ended(live, 1)
        assert answers(live, kind, 3) == 3
        assert ended(live) == 1
        assert b"--slow-reader-timeout" in slow.read_to_end()
    assert live.log_text().count(LOG_LINE) == 1
    failures = 'nv_inference_request_failure{model="%s",' % kind
    assert sum(value for name, value in metrics.read(live.address).items() if name.startswith(failures)) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_slow_reader_alone_keeps_its_stream(start, client, kind):
    """It lags for many times the timeout, and no other request waits: the stream goes on to its end."""
    live = start("--slow-reader-timeout", "10ms", "--write-timeout", "10m")
    with contextlib.closing(client(live, kind, responses=FEW[client])) as slow:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            assert answers(live, "one", 1) == 1  # of another model
        assert b"error" not in slow.read_to_end()
    assert ended(live) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_slow_readers_do_not_take_model_away(start, kind):
    """Two clients at 3 KB/s and 200 KB/s, as often as they are ended, and a good one beside them."""
    live = start("--slow-reader-timeout", "200ms")
    over = threading.Event()

    def read_slowly(client, n):
        while not over.is_set():
            with contextlib.closing(client(live, kind)) as slow, contextlib.suppress(OSError, h2.Ended):
                for _ in range(20):
                    slow.read(n // 20)
                    if over.wait(0.05):
                        break
    threads = [threading.Thread(target=read_slowly, args=args) for args in ((OverHttp, 3000), (OverGrpc, 200_000))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert answers(live, kind, 3) == 3
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_slow_readers_of_one_host_get_less_time(start):
    """Each that is ended halves the time of the next: twelve before a good client cost it eight seconds, not 48. Eleven
    end for each other."""
    live = start("--slow-reader-timeout", "4s", "--write-timeout", "10m")
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            connection = stack.enter_context(http1.Connection(live.address))
            connection.send(http1.post(b"/v2/models/execute/generate_stream", body_of("execute", LARGE, MANY)))
        wait_for_ended(live, 11)
        assert answers(live, "execute", 3) == 3
        wait_for_ended(live, 12)
    times = [line["ms"] for line in lines_of(live)]
    assert len(times) == 12 and times[0] >= 4000 > min(times[6:]), times


def test_slow_reader_is_kept_without_timeout(start):
    live = start("--slow-reader-timeout", "0", "--write-timeout", "10m")
    with contextlib.closing(OverHttp(live, "execute", responses=60)) as slow:
        other = threading.Thread(target=answers, args=(live, "execute", 3))
        other.start()
        metrics.wait_until(live.address, lambda now: now["sluice_queued_requests"] == 1, "the other one waits")
        other.join(0.5)
        assert other.is_alive() and ended(live) == 0
        assert b"error" not in slow.read_to_end()
        other.join(http1.PATIENCE)


def test_slow_reader_beside_idle_instance_is_kept(start):
    """Of two instances one is free: no request waits."""
    live = start("--slow-reader-timeout", "500ms", "--write-timeout", "10m")
    with contextlib.closing(OverHttp(live, "two", responses=60)) as slow:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert answers(live, "two", 3) == 3
        assert ended(live) == 0
        with contextlib.closing(OverGrpc(live, "two", responses=10)) as second:
            assert answers(live, "two", 3) == 3
            wait_for_ended(live, 1)
            second.read_to_end()
        slow.read_to_end()
    assert ended(live) == 1  # one is enough for one that waits


def test_slow_reader_waits_for_itself(start):
    """Requests of one stream wait for each other: that is not another client's trouble."""
    live = start("--slow-reader-timeout", "10ms", "--write-timeout", "10m")
    with contextlib.closing(OverGrpc(live, "execute", responses=6, n_requests=2)) as slow:
        metrics.wait_until(live.address, lambda now: now["sluice_queued_requests"] == 1, "one waits")
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            assert answers(live, "one", 1) == 1
        assert ended(live) == 0
        slow.read_to_end()
    assert ended(live) == 0


def test_client_that_reads_at_once_is_never_ended(start):
    """Many answers to a good reader, while others wait all the time. The time is longer than a busy machine stops it."""
    live = start("--slow-reader-timeout", "30s")
    with contextlib.closing(OverHttp(live, "execute", responses=100)) as reader:
        waiting = [threading.Thread(target=answers, args=(live, "execute", 3)) for _ in range(20)]
        for thread in waiting:
            thread.start()
        assert b"error" not in reader.read_to_end()
        for thread in waiting:
            thread.join()
    assert ended(live) == 0


def test_gone_and_slow_clients_leave_nothing(start):
    live = start("--slow-reader-timeout", "50ms")
    for kind in ("execute", "thread"):
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(contextlib.closing(client(live, kind))) for client in CLIENTS[:1]]
            queued = []
            for _ in range(4):
                connection = stack.enter_context(http1.Connection(live.address))
                connection.send(http1.post(f"/v2/models/{kind}/generate_stream".encode(), body_of(kind, LARGE, MANY)))
                queued.append(connection)
            for connection in queued[::2]:
                connection.reset()
            assert answers(live, kind, 3) == 3
            slow[0].close()

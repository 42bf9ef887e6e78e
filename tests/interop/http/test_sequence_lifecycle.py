"""The life of sequences: places that are waited for, rests that are too long, requests that are given up,
models that go. Nothing that a client leaves behind stays."""
import asyncio
import json
import queue
import threading

import numpy
import pytest
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, sequences
from lib.sequences import Client, adder, body_of
from lib.server import is_sanitized

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

FOREVER_US = 3600 * 1000000
MODELS = {
    "place_one": adder(max_batch_size=0, idle_us=FOREVER_US),
    "short_one": adder(max_batch_size=0, idle_us=100000),
    "direct": adder(idle_us=FOREVER_US),
    "oldest": adder("oldest { max_candidate_sequences: 2 }", idle_us=FOREVER_US,
                    corrid="TYPE_UINT64"),
}
PATIENCE = http1.PATIENCE


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return sequences.make(tmp_path_factory.mktemp("sequences"), MODELS)


@pytest.fixture
def begin(start_server, models):
    """Starts a server, whose gauges are looked at when the test is over."""
    started = []

    def start(*args):
        started.append(start_server(*models, *args, grpc=("127.0.0.1:0",)))
        return started[-1]
    yield start
    for server in started:
        metrics.wait_at_rest(server.address, server.arenas)


@pytest.fixture(params=["http", "grpc"])
def client(request, begin):
    with Client(request.param, begin()) as client:
        yield client


class Later(threading.Thread):
    """A request of a client of its own, whose answer is waited for later."""

    def __init__(self, client, *args, **options):
        super().__init__(daemon=True)
        self.client, self.args, self.options = client.again(), args, options
        self.said = self.failed = None
        self.start()

    def run(self):
        try:
            with self.client as client:
                self.said = client.add(*self.args, **self.options)
        except InferenceServerException as why:
            self.failed = why

    def result(self):
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.failed:
            raise self.failed
        return self.said


def wait_queued(client, n):
    """Until so many requests wait."""
    metrics.wait_until(client.server.address, lambda numbers: numbers["sluice_queued_requests"] == n,
                       f"{n} requests that wait")


# ---- places --------------------------------------------------------------------------------------

def test_sequence_waits_for_slot(client):
    client.add("place_one", 1, 5, start=True)
    first = Later(client, "place_one", 2, 70, start=True)
    wait_queued(client, 1)
    second = Later(client, "place_one", 2, 7, end=True)
    wait_queued(client, 2)
    assert client.add("place_one", 1, 6)["SUM"] == 11
    assert client.add("place_one", 1, 7, end=True)["SUM"] == 18
    assert first.result()["SUM"] == 70
    assert second.result()["SUM"] == 77


def test_sequence_idle_timeout_frees_slot(client):
    """Else the second would never be answered."""
    client.add("short_one", 1, 5, start=True)
    assert Later(client, "short_one", 2, 70, start=True, end=True).result()["SUM"] == 70
    with pytest.raises(InferenceServerException, match=r"max_sequence_idle_microseconds \(100000"):
        client.add("short_one", 1, 6)
    assert client.add("short_one", 1, 6, start=True, end=True)["SUM"] == 6


def test_sequence_queue_timeout_is_refused(client):
    client.add("place_one", 1, 5, start=True)
    with pytest.raises(InferenceServerException, match="its parameter timeout") as caught:
        client.add("place_one", 2, 70, start=True, timeout=1000)
    assert caught.value.status() in ("503", "StatusCode.UNAVAILABLE")
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        client.add("place_one", 2, 7, end=True)
    assert client.add("place_one", 1, 6, end=True)["SUM"] == 11


def test_sequence_restart_keeps_slot(client):
    client.add("direct", 1, 5, start=True)
    place = client.add("direct", 1, 5)
    assert place["SUM"] == 10
    again = client.add("direct", 1, 3, start=True)
    assert (again["SUM"], again["ROW"]) == (3, place["ROW"])
    assert "sequence_start for a sequence that is open" in client.server.log_text()
    client.add("direct", 1, 0, end=True)


# ---- what is given up ----------------------------------------------------------------------------

SLOW = {"delay_us": 60 * 1000000}  # until its client goes away


def leave_waiting(client, model, *bodies):
    """Connections with a request each, of which the first runs and the others wait."""
    connections = []
    for n_waiting, body in enumerate(bodies):
        connections.append(http1.Connection(client.server.address))
        connections[-1].send(b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                             % (model.encode(), len(body)) + body)
        metrics.wait_until(client.server.address, lambda numbers, n=n_waiting: (
            numbers["sluice_queued_requests"], numbers["sluice_running_requests"]) == (n, 1),
            "one that runs, the others behind it")
    return connections


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_sequence_cancel_fails_following_requests(client, model):
    runs, leaves, follows = leave_waiting(
        client, model, body_of(1, sequence_start=True, **SLOW), body_of(1), body_of(1))
    leaves.reset()
    answer = follows.read_answer("POST")
    assert answer.status == 499
    assert "an earlier request of its sequence was cancelled" in json.loads(answer.body)["error"]
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        client.add(model, 1, 1)
    runs.reset()  # the backend sees that nobody waits, and goes on
    assert client.add(model, 1, 4, start=True, end=True)["SUM"] == 4
    follows.close()


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_sequence_cancel_of_running_keeps_sequence(client, model):
    runs, = leave_waiting(client, model, body_of(1, sequence_start=True, **SLOW))
    runs.reset()
    assert client.add(model, 1, 4, end=True)["SUM"] == 5


def test_sequence_model_failure_keeps_sequence(client):
    client.add("direct", 1, 5, start=True)
    with pytest.raises(InferenceServerException, match="as it was told to"):
        client.add("direct", 1, 1, parameters={"fail": 1})
    assert client.add("direct", 1, 4, end=True)["SUM"] == 10


# ---- bounds --------------------------------------------------------------------------------------

N_REFUSED = 100000
AT_ONCE = 500


def test_sequences_hundred_thousand_are_bounded(begin):
    """All of them begin and none ends: what is kept is what has a place, or waits within the limit."""
    server = begin("--max-queue-size", 3)
    with Client("grpc", server) as client:
        client.add("place_one", 1, 5, start=True)
        waiting = [Later(client, "place_one", 2 + i, i, start=True, end=True) for i in range(3)]
        wait_queued(client, 3)
        before = metrics.read(server.address)["sluice_resident_memory_bytes"]
        with http1.Connection(server.address) as connection:
            for first in range(0, N_REFUSED, AT_ONCE):
                bodies = [body_of(f"{first + i} {'x' * 100}", sequence_start=True)
                          .replace(b"[1, 1]", b"[1]") for i in range(AT_ONCE)]
                connection.send(b"".join(
                    b"POST /v2/models/place_one/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                    % len(body) + body for body in bodies))
                while connection.pending.count(b"3 requests wait already") < AT_ONCE:
                    assert connection.more()
                assert connection.pending.count(b"HTTP/1.1 503 ") == AT_ONCE
                connection.pending = b""
        numbers = metrics.read(server.address)
        assert numbers["sluice_sequences"] == 4
        grown = numbers["sluice_resident_memory_bytes"] - before
        assert grown < 16 << 20 or is_sanitized()  # which keeps what is freed
        assert client.add("place_one", 1, 6, end=True)["SUM"] == 11
        assert sorted(later.result()["SUM"] for later in waiting) == [0, 1, 2]


# ---- models that go ------------------------------------------------------------------------------

def test_sequence_reload_ends_sequences(begin):
    server = begin("--model-control-mode", "explicit", "--load-model", "*")
    with Client("http", server) as client:
        client.add("direct", 1, 5, start=True)
        config = client.client.get_model_config("direct")
        config["sequence_batching"]["max_sequence_idle_microseconds"] = str(FOREVER_US // 2)
        client.client.load_model("direct", config=json.dumps(config))
        with pytest.raises(InferenceServerException, match="when the model is loaded again"):
            client.add("direct", 1, 6)
        assert client.add("direct", 1, 6, start=True)["SUM"] == 6
        client.client.unload_model("direct")
        with pytest.raises(InferenceServerException, match="404"):
            client.add("direct", 1, 6)
        metrics.wait_until(server.address, lambda numbers: numbers["sluice_sequences"] == 0, "no sequence is left")
        client.client.load_model("direct")
        with pytest.raises(InferenceServerException, match="must specify the START flag"):
            client.add("direct", 1, 6)


def test_shutdown_with_open_sequences(begin):
    server = begin()
    with Client("grpc", server) as client:
        for number in range(1, 5):
            client.add("direct", number, 1, start=True)
    metrics.wait_at_rest(server.address, server.arenas)


# ---- other ways to ask ---------------------------------------------------------------------------

def test_sequence_over_stream(begin):
    """Sequences side by side on one stream: each is answered in its own order."""
    results = queue.Queue()
    with Client("grpc", begin()) as client:
        client.client.start_stream(lambda result, error: results.put((result, error)))
        for turn in range(20):
            for number in range(1, 5):
                client.client.async_stream_infer(
                    "direct", client.inputs("direct", number), request_id=str(number),
                    sequence_id=number, sequence_start=turn == 0, sequence_end=turn == 19)
        sums = {number: [] for number in range(1, 5)}
        for _ in range(80):
            result, error = results.get(timeout=PATIENCE)
            assert error is None, str(error)
            sums[int(result.get_response().id)].append(int(result.as_numpy("SUM")[0, 0]))
        client.client.stop_stream()
    for number, found in sums.items():
        assert found == [number * (turn + 1) for turn in range(20)]


@pytest.mark.parametrize("protocol, triton", [("http", triton_http_aio), ("grpc", triton_grpc_aio)])
def test_sequence_asyncio_clients(begin, protocol, triton):
    server = begin()

    async def one(client, number):
        tensor = triton.InferInput("INPUT", [1, 1], "INT32")
        tensor.set_data_from_numpy(numpy.full((1, 1), number, numpy.int32))
        sums = []
        for turn in range(5):
            result = await client.infer("direct", [tensor], sequence_id=f"a {number}",
                                        sequence_start=turn == 0, sequence_end=turn == 4)
            sums.append(int(result.as_numpy("SUM")[0, 0]))
        return sums

    async def ask():
        address = server.address if protocol == "http" else server.grpc_address
        async with triton.InferenceServerClient(address.removeprefix("http://")) as client:
            return await asyncio.gather(*(one(client, number) for number in range(1, 13)))
    for number, sums in enumerate(asyncio.run(ask()), 1):
        assert sums == [number * turn for turn in range(1, 6)]


def test_sequence_generate_is_refused(begin):
    answer = http1.request(begin().address, "POST", "/v2/models/direct/generate",
                           b'{"INPUT": 1, "sequence_id": 1, "sequence_start": true}')
    assert answer.status == 400
    assert "belong to sequences" in json.loads(answer.body)["error"]

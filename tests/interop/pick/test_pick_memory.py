"""What proxies and their clients can make the picker hold: bodies without a model, responses that are not
read, requests that wait, prompts, hints. A good proxy beside the flood is answered, the memory of the
process stays within --client-memory and what it started with, and all gauges return to zero."""
import contextlib
import json
import threading
import time

import pytest

from lib import h2, http1, pick_client
from lib.pick_client import Proxy, body, endpoint_of, headers
from lib.server import is_sanitized, peak_memory_of

pytestmark = pytest.mark.plain

MB = 1 << 20
BUDGET, BODIES = 64 * MB, 48 * MB
# Besides the budget: what the allocator keeps, connections, streams that are refused.
SLACK = 24 * MB
A, B = "10.0.0.1:8000", "10.0.0.2:8000"
POOL = f"""
endpoints: [{A}, {B}]
models:
  - {{name: old, targets: [{{model: new}}]}}
"""
FULL = POOL + """
saturation: {max_in_flight: 1}
flow_control: {max_requests: 100000, max_bytes: 1GiB, max_wait: 5m}
"""
PROMPTS = f"""
endpoints: [{A}, {B}]
profile:
  plugins: [{{type: prefix-cache-scorer, parameters: {{blockSize: 32, maxPrefixBlocksToMatch: 4096}}}}]
  schedulingProfiles: [{{name: default, plugins: [{{pluginRef: prefix-cache-scorer}}]}}]
"""
PATH = pick_client.PROCESS.encode()
DUPLEX = "FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED"
UNREAD = [(h2.INITIAL_WINDOW, 0)]
STALL = 0.2  # seconds without a window, after which a client sends no more of what is not read


def start(start_picker, pool=POOL, *args):
    return start_picker(pool, "--client-memory", BUDGET, "--body-memory", BODIES, "--workers", 2, *args)


class Good:
    """A proxy that goes on asking while the body of the `with` runs, and gets an endpoint each time."""

    def __init__(self, picker, hint=None):
        self.address, self.hint = picker.grpc_addresses[0], hint
        self.ended = threading.Event()
        self.failures = []
        self.n = 0
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        try:
            with Proxy(self.address) as proxy:
                while not self.ended.wait(0.002):
                    assert proxy.pick("/", end=True, hint=self.hint) in (A, B)
                    self.n += 1
        except Exception as failure:  # pylint: disable=broad-except
            self.failures.append(failure)

    def wait(self, more):
        """Until it was answered `more` times."""
        until = self.n + more
        while self.n < until and not self.failures:
            self.ended.wait(0.01)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.wait(10)
        self.ended.set()
        self.thread.join(http1.PATIENCE)
        assert not self.failures and self.n > 0, self.failures


@contextlib.contextmanager
def flood(picker, hint=None):
    """connect(own): a connection of the flood. The bounds are checked when the body has run."""
    base = peak_memory_of(picker)
    with contextlib.ExitStack() as connections:
        with Good(picker, hint):
            yield lambda own=(): connections.enter_context(h2.Connection(picker.grpc_addresses[0], own=own))
        if not is_sanitized():
            assert peak_memory_of(picker) < base + BUDGET + SLACK
    picker.wait_at_rest()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.pick("/", end=True) in (A, B)


def encoded(*messages):
    return b"".join(h2.message(one.SerializeToString()) for one in messages)


def push(connection, stream, data, stall=10):
    """Sends as much as the picker reads, until there was no window for `stall` seconds. Returns: the number of
    bytes."""
    at = 0
    here = connection.streams[stream]
    while at < len(data) and not here.is_over and not connection.gone:
        end = time.monotonic() + stall
        while min(connection.window, connection.windows[stream]) <= 0 and not here.is_over:
            if time.monotonic() > end:
                return at
            connection.turn(0.01)
        n = min(len(data) - at, connection.window, connection.windows[stream], h2.DEFAULT_FRAME)
        if n > 0:
            connection.send_data(stream, data[at:at + n])
            at += n
    return at


def open_streams(connection, n, data):
    """Begins that many streams with the same messages."""
    for _ in range(n // 100):
        frames = b""
        for _ in range(100):
            stream, head = connection.open(h2.call_fields(PATH))
            frames += head + h2.frame(h2.DATA, 0, stream, data)
            connection.window -= len(data)
        connection.send(frames)
        connection.run_until(lambda: connection.window > MB)
    connection.ping()


def refusal_in(stream):
    """The last message of a stream as an immediate response."""
    said = pick_client.classes()["ProcessingResponse"].FromString(stream.messages()[-1])
    return pick_client.refusal_of(said)


def test_bodies_without_model_are_refused_over_the_budget(start_picker):
    picker = start(start_picker)
    data = encoded(headers("/v1/completions", config=DUPLEX)) + encoded(body(b" " * 60000)) * 400
    with flood(picker) as connect:
        refused = []
        for _ in range(6):
            connection = connect()
            stream = connection.begin(PATH)
            if push(connection, stream, data) < len(data):
                refused.append(refusal_in(connection.answer(stream)))
        assert len(refused) >= 4
        for status, fields, text in refused:
            assert status == 503 and "retry-after" in fields and "-memory" in json.loads(text)["error"]["message"]


def test_memory_returns_after_flood(start_picker):
    """What bodies took goes back to the system, also when no request follows."""
    picker = start(start_picker)
    with flood(picker):
        pass  # what a few picks take stays
    before = picker.rss_bytes()
    data = encoded(headers("/v1/completions", config=DUPLEX)) + encoded(body(b" " * 60000)) * 400
    with flood(picker) as connect:
        for _ in range(3):
            connection = connect()
            push(connection, connection.begin(PATH), data)
        assert picker.rss_bytes() > before + BODIES // 2  # else nothing is shown
    if is_sanitized():  # a sanitizer keeps what was freed
        return
    picker.wait_for(lambda: picker.rss_bytes() < before * 1.2 + 4 * MB,
                    f"the memory of before, {before} bytes")


def test_small_pieces_of_bodies_count_what_they_take(start_picker):
    picker = start(start_picker, POOL)
    data = encoded(headers("/v1/completions", config=DUPLEX)) + encoded(body(b" " * 40)) * 60000
    with flood(picker) as connect:
        for _ in range(6):
            connection = connect()
            stream = connection.begin(PATH)
            n = push(connection, stream, data)
        assert n < len(data)  # those before it hold the memory
        status, _, text = refusal_in(connection.answer(stream))
        assert status == 503 and "--client-memory" in json.loads(text)["error"]["message"]


def test_unread_small_responses_stop_reading(start_picker):
    """Empty pieces of a body, each of which gets a response of a few bytes."""
    picker = start(start_picker)
    data = encoded(headers("/", config="STREAMED NONE")) + encoded(body()) * 200000
    with flood(picker) as connect:
        connection = connect(UNREAD)
        for _ in range(10):
            assert push(connection, connection.begin(PATH), data, STALL) < len(data)


def test_unread_bodies_stop_reading(start_picker):
    """Pieces of a body that are sent back, on many streams of a connection, are limited together."""
    picker = start(start_picker)
    data = encoded(headers("/", config=DUPLEX)) + encoded(body(b" " * 60000)) * 30
    with flood(picker) as connect:
        connection = connect(UNREAD)
        assert push(connection, connection.begin(PATH), data, 2) > MB
        sent = [push(connection, connection.begin(PATH), data, STALL) for _ in range(40)]
        assert sent[-1] < MB / 2


def test_slow_stream_does_not_stop_others_of_its_proxy(start_picker):
    """The unread responses of a connection are over its limit, and its other requests are served."""
    picker = start(start_picker, POOL, "--max-unsent-size", MB)
    data = encoded(headers("/", config=DUPLEX)) + encoded(body(b" " * 60000)) * 30
    with flood(picker) as connect:
        connection = connect(UNREAD)
        for _ in range(4):
            push(connection, connection.begin(PATH), data, STALL)
        stream = connection.begin(PATH)
        connection.send_data(stream, encoded(headers("/")))
        connection.send(h2.window_update(stream, 1 << 20))
        connection.run_until(lambda: connection.streams[stream].messages())


@pytest.mark.parametrize("own", [(), UNREAD], ids=["read", "unread"])
def test_open_requests_fit_the_budget(start_picker, own):
    picker = start(start_picker)
    with flood(picker) as connect:
        for _ in range(4):
            open_streams(connect(own), 4000, encoded(headers("/")))
        # Fewer where a sanitizer makes arenas larger, or where connections that read nothing were
        # closed for those that came later.
        assert 0 < picker.numbers()["sluice_pick_open_streams"] < 9500


def test_unread_connections_are_closed_for_refused_requests(start_picker):
    picker = start(start_picker)
    data = [headers("/v1/completions", config=DUPLEX), body(b'{"model":"old","prompt":"' + b"x" * 100000)]
    with flood(picker) as connect:
        for n_streams in [4000] * 4 + [300] * 8:  # the latter: as much as each of them gets
            open_streams(connect(UNREAD), n_streams, encoded(headers("/")))
        with Proxy(picker.grpc_addresses[0]) as proxy:
            end = time.monotonic() + http1.PATIENCE
            while (said := proxy.stream(*data).next()).WhichOneof("response") == "immediate_response":
                assert pick_client.refusal_of(said)[0] == 503
                assert time.monotonic() < end
                time.sleep(0.02)
            assert endpoint_of(said) in (A, B)
        assert picker.numbers()["sluice_slow_readers_closed_total"] > 0


def test_waiting_requests_fit_the_budget(start_picker):
    """Requests that may use only a full endpoint, each with pieces of its body."""
    picker = start(start_picker, FULL)
    waiting = encoded(headers("/", config="STREAMED NONE", hint=A), body(b"x"), body(b"x"), body(b"x"))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = proxy.stream(headers("/", hint=A))
        assert endpoint_of(busy.next()) == A
        with flood(picker, hint=B) as connect:
            for _ in range(3):
                open_streams(connect(), 4000, waiting)
            assert 1000 < picker.numbers()["sluice_pick_open_streams"] < 9500
            busy.reset()


def test_long_hints_count_what_they_take(start_picker):
    picker = start(start_picker)
    data = encoded(headers("/v1/completions", config=DUPLEX, hint=[A] * 200000))
    with flood(picker) as connect:
        connection = connect()
        streams = [connection.begin(PATH) for _ in range(12)]
        for stream in streams:
            push(connection, stream, data, STALL)
        connection.run_until(lambda: any(connection.streams[stream].is_over for stream in streams))


def test_shared_long_prefixes_fit_their_table(start_picker):
    picker = start(start_picker, PROMPTS, "--prefix-memory", 4 * MB)
    with flood(picker) as connect:
        for number in range(60):
            connection = connect()
            for turn in range(10):
                prompt = b"shared " * 4000 + b"%d %d " % (number, turn) * 8000
                stream = connection.begin(PATH)
                push(connection, stream, encoded(headers("/v1/completions", config=DUPLEX),
                                                 body(b'{"model":"m","prompt":"' + prompt + b'"}')))

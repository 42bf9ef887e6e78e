"""Memory that clients make the server hold: clients that ask for large answers and do not read them.
A good client beside them is answered, and the memory of the process stays within the budget. The
same with full sizes is tests/soak/test_slow_readers.py."""
import contextlib
import json
import re
import signal
import struct
import threading
import time

import pytest

from lib import browser, grpc_live, h2, http1, metrics, mip
from lib.server import is_sanitized, peak_memory_of
from lib.slow_readers import (ANSWER, Good, MB, check_good, infer_message, unread_calls,
                              unread_request, unread_stream, write_models)

pytestmark = pytest.mark.plain

BUDGET = 48 * MB
# Besides the budget: the answers that instances are making, what the allocator keeps, the sockets.
SLACK = 80 * MB
WAITING_FOR_MEMORY = 'sluice_requests_waiting_for_memory{protocol="http",limit="client_memory"}'


@pytest.fixture(name="live")
def start_live(start_server, tmp_path):
    live = start_server("--model-repository", write_models(tmp_path / "models"),
                        "--client-memory", BUDGET, "--max-unsent-size", 8 * MB,
                        metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",))
    check_good(live)
    yield live
    check_good(live)
    live.wait_at_rest()


def check_peak(live, base):
    if not is_sanitized():
        assert peak_memory_of(live) < base + BUDGET + SLACK


@pytest.mark.parametrize("model", ["large", "unknown"])
def test_unread_stream_stops_being_served(live, model):
    """A thousand requests on one ModelStreamInfer, of which nothing is read."""
    base = peak_memory_of(live)
    before = metrics.read(live.address)["sluice_inferences_total"]
    with contextlib.ExitStack() as stack, Good(live) as good:
        unread_stream(stack, live.grpc_address, model, 1000)
        good.wait(20)
        ran = metrics.read(live.address)["sluice_inferences_total"] - before - 4 * good.n
        assert ran < 20
    check_peak(live, base)


# What a few bytes each become when they are decoded.
MANY = {"values": b'{"inputs":[{"name":"INPUT0","shape":[9000000],"datatype":"FP32","data":['
                  + b"1," * 8999999 + b"1]}]}",
        "ignored": b'{"more":[' + b"[]," * 6999999 + b"[]]}",
        "objects": b'{"inputs":[' + b"{}," * 6999999 + b"{}]}"}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY)
def test_decoded_json_counts(live, body):
    """A tree of JSON takes up to ten times its text: it is refused before it is built."""
    base = peak_memory_of(live)
    answer = http1.request(live.address, "POST", "/v2/models/small/infer", body)
    assert answer.status == 503 and b"--client-memory" in answer.body
    check_peak(live, base)


def test_decoded_messages_count(live):
    """Eight million empty entries of a message."""
    base = peak_memory_of(live)
    named = grpc_live.proto.ModelInferRequest(model_name="small").SerializeToString()
    with h2.Connection(live.grpc_address) as connection:
        refused = connection.call(b"/inference.GRPCInferenceService/ModelInfer",
                                  named + b"\x3a\x00" * (8 * MB))
        assert refused.status == 8 and "--client-memory" in refused.text
    check_peak(live, base)


def test_unread_calls_of_a_connection_wait_for_each_other(live):
    base = peak_memory_of(live)
    with contextlib.ExitStack() as stack, Good(live) as good:
        for _ in range(10):
            unread_calls(stack, live.grpc_address, 50)
        good.wait(20)
    check_peak(live, base)


def test_unread_calls_of_a_proxy_are_ended_alone(live):
    """Of a connection, which may have the calls of several clients, the unread ones are ended."""
    before = metrics.read(live.address)["sluice_slow_readers_closed_total"]
    with contextlib.ExitStack() as stack, Good(live):
        connections = [unread_calls(stack, live.grpc_address, 2) for _ in range(14)]
        metrics.wait_until(live.address, lambda n: n["sluice_slow_readers_closed_total"] > before,
                           "closed slow readers")
        for connection in connections:
            connection.ping()


def test_open_calls_are_not_refused_for_unread_answers(live):
    """A client with many calls open beside clients whose unread answers take more than half of the
    budget: open calls are limited to a half of it among themselves."""
    with contextlib.ExitStack() as stack:
        connections = [unread_calls(stack, live.grpc_address, 2) for _ in range(9)]
        metrics.wait_until(live.address, lambda n: n[series("responses", "grpc")] > BUDGET * 0.6,
                           "unread answers")
        with h2.Connection(live.grpc_address) as connection:
            streams = [connection.begin(b"/grpc.health.v1.Health/Watch") for _ in range(90)]
            for stream in streams:
                connection.send_data(stream, h2.message(b""), end=True)
            connection.ping()
            refused = [connection.streams[stream].text for stream in streams
                       if connection.streams[stream].is_over]
            assert not refused
        assert connections


def test_unread_answers_over_http_are_closed_for_others(live):
    base = peak_memory_of(live)
    with contextlib.ExitStack() as stack:
        with Good(live) as good:
            for _ in range(150):
                unread_request(stack, live.address)
            good.wait(20)
        metrics.wait_until(live.address, lambda n: n["sluice_slow_readers_closed_total"] > 0,
                           "closed slow readers")
    check_peak(live, base)


def test_workers_share_what_is_wanted(start_server, tmp_path):
    """Eleven answers fit; one reader must go for the twelfth, and not one of each worker."""
    n_workers = 8
    live = start_server("--model-repository", write_models(tmp_path / "models"), "--workers", n_workers,
                        "--client-memory", BUDGET, metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",))
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            unread_request(stack, live.address)
        numbers = metrics.wait_until(live.metrics_address,
                                     lambda n: n["sluice_slow_readers_closed_total"] > 0
                                     and n[WAITING_FOR_MEMORY] == 0, "closed slow readers")
        assert numbers["sluice_slow_readers_closed_total"] <= n_workers // 4
    check_good(live)
    live.wait_at_rest()


def read_slowly(sock, n_bytes):
    """Reads at about 1 MB/s."""
    n_left = n_bytes
    while n_left > 0:
        got = sock.recv(min(n_left, 32768))
        assert got, f"closed with {n_left} of {n_bytes} bytes unread"
        n_left -= len(got)
        time.sleep(len(got) / MB)


def test_slow_network_is_not_taken_for_a_client_that_does_not_read(live):
    """A client that takes its answers at 1 MB/s, while others that read nothing make memory short. The
    kernel takes its bytes in jumps of a third of the socket's buffer."""
    stopped = threading.Event()

    def keep_memory_short():
        with contextlib.ExitStack() as stack:
            while not stopped.wait(0.02):
                unread_request(stack, live.address)

    before = metrics.read(live.address)["sluice_slow_readers_closed_total"]
    others = threading.Thread(target=keep_memory_short)
    with contextlib.ExitStack() as stack:
        sock = unread_request(stack, live.address, receive_buffer=65536)
        others.start()
        try:
            read_slowly(sock, 3 * ANSWER)
        finally:
            stopped.set()
            others.join(http1.PATIENCE)
    assert metrics.read(live.address)["sluice_slow_readers_closed_total"] > before


# ---- who holds what ------------------------------------------------------------------------------

def memory_of(live):
    return json.loads(http1.request(live.metrics_address, "GET", "/status.json").body)["memory"]


def wait_for_memory(live, fits):
    end = time.monotonic() + http1.PATIENCE
    while not fits(memory := memory_of(live)):
        assert time.monotonic() < end, memory
        time.sleep(0.01)
    return memory


def text_of(sock):
    return "%s:%d" % sock.getsockname()[:2]


def series(kind, protocol):
    return f'sluice_client_memory_bytes{{kind="{kind}",protocol="{protocol}"}}'


@contextlib.contextmanager
def holders(live):
    """A gRPC client that holds three unread answers of 1 MB, and one of HTTP that has sent 64 KB of a
    body."""
    with h2.Connection(live.grpc_address, own=[(h2.INITIAL_WINDOW, 0)]) as reader, \
            http1.Connection(live.address) as sender:
        for _ in range(3):
            stream = reader.begin(b"/inference.GRPCInferenceService/ModelInfer")
            reader.send_data(stream, infer_message("medium"), end=True)
        sender.send(b"POST /v2/models/large/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
                    + b" " * 65536)
        yield text_of(reader.sock), text_of(sender.sock)


def test_holders_are_shown_until_they_are_gone(live):
    before = metrics.read(live.metrics_address)["sluice_inferences_total"]
    with holders(live) as (reader, sender):
        # A response is counted before it is encoded, and may grow then.
        metrics.wait_until(live.metrics_address, lambda n: n["sluice_inferences_total"] == before + 3,
                           "three responses")
        memory = wait_for_memory(live, lambda memory: len(memory["holders"]) == 2
                                 and memory["holders"][0].get("unread_ms", 0) > 0
                                 and memory["responses"] == memory["holders"][0]["responses"] >= 3 * MB)
        first, second = memory["holders"]
        assert (first["peer"], first["server"], first["bodies"]) == (reader, "grpc", 0)
        assert 3 * MB <= first["responses"] < 3 * MB + 65536
        assert (second["peer"], second["server"], second["responses"]) == (sender, "http", 0)
        assert 60000 < second["bodies"] <= 1000000 and "unread_ms" not in second
        assert memory["limit"] == BUDGET and memory["bodies"] == second["bodies"]
        assert {one["name"]: (one["responses"], one["bodies"]) for one in memory["servers"]} == {
            "http": (0, second["bodies"]), "grpc": (first["responses"], 0)}
        text = http1.request(live.metrics_address, "GET", "/debug/state").body.decode()
        assert f"memory of clients: {first['responses']} bytes in responses, " in text
        assert re.search(rf"^  held by {reader}, grpc: {first['responses']} in responses, 0 in bodies, "
                         rf"{first['open_calls']} in open calls, nothing read for [0-9.e-]+ s\n  held by {sender}, http: 0 in responses, "
                         rf"{second['bodies']} in bodies$", text, re.MULTILINE), text
        live.signal(signal.SIGUSR2)
        live.wait_for(lambda: any(line.get("line", "").startswith(f"  held by {reader}, grpc: ")
                                  for line in live.log_lines()), "the state in the log")
        numbers = metrics.read(live.metrics_address)
        assert numbers["sluice_client_memory_limit_bytes"] == BUDGET
        assert numbers[series("responses", "grpc")] == first["responses"]
        assert numbers[series("responses", "http")] == 0
        assert numbers[series("bodies", "http")] == second["bodies"] and numbers[series("bodies", "grpc")] == 0
    # The list and the sums of one page are read one after another, while the clients' workers free what they held.
    wait_for_memory(live, lambda memory: not memory["holders"] and memory["responses"] == memory["bodies"] == 0)
    live.wait_at_rest()


def test_holders_are_the_largest_of_all_workers(live):
    """Six gRPC clients with one to six unread answers of 1 MB, and one of HTTP with one of 4 MB."""
    with contextlib.ExitStack() as stack:
        peers = []
        for n in range(1, 7):
            connection = stack.enter_context(h2.Connection(live.grpc_address, own=[(h2.INITIAL_WINDOW, 0)]))
            for _ in range(n):
                stream = connection.begin(b"/inference.GRPCInferenceService/ModelInfer")
                connection.send_data(stream, infer_message("medium"), end=True)
            peers.append((text_of(connection.sock), n))
        unread_request(stack, live.address)

        def settled(memory):
            held = memory["holders"]
            grpc = [(one["peer"], one["responses"] // MB) for one in held if one["server"] == "grpc"]
            return (grpc == peers[:1:-1] and [one["responses"] // MB for one in held] == [6, 5, 4, 4, 3]
                    and all(one.get("unread_ms", 0) > 0 for one in held))
        wait_for_memory(live, settled)
    live.wait_at_rest()


def test_requests_that_wait_for_memory_are_counted(live):
    """Of five answers of 4 MB two may be unread; then a body that does not fit the budget."""
    waiting = 'sluice_requests_waiting_for_memory{protocol="grpc",limit="max_unsent_size"}'
    dropped = 'sluice_requests_dropped_total{reason="memory"}'
    with h2.Connection(live.grpc_address, own=[(h2.INITIAL_WINDOW, 0)]) as connection:
        for _ in range(5):
            stream = connection.begin(b"/inference.GRPCInferenceService/ModelInfer")
            connection.send_data(stream, infer_message("large"), end=True)
        metrics.wait_until(live.address, lambda n: n[waiting] >= 3, "three that wait")
        assert [one["waiting"] for one in memory_of(live)["servers"] if one["name"] == "grpc"][0] >= 3
        assert metrics.read(live.address)[dropped] == 0
    live.wait_at_rest()
    with h2.Connection(live.grpc_address) as connection:
        stream = connection.begin(b"/inference.GRPCInferenceService/ModelInfer")
        connection.send_data(stream, b"\0" + struct.pack(">I", BUDGET + 4096) + b"x" * 2000)
        metrics.wait_until(live.address, lambda n: n[dropped] == 1, "a refused body")


def test_status_page_shows_holders(live, tmp_path):
    with holders(live) as (reader, sender), browser.Browser(str(tmp_path / "profile")) as page:
        page.open(f"http://{live.metrics_address}/")
        page.wait("document.querySelectorAll('#holder-rows tr').length === 2")
        cells = "[...document.querySelectorAll('#holder-rows td')].map(one => one.textContent)"
        shown = page.run(cells)
        assert shown[:6] == [reader, "grpc", "3 MiB", "0 B", "10 KiB", "0 B"] and shown[6].endswith(" s"), shown
        assert shown[7:10] == [sender, "http", "0 B"] and shown[13] == "–", shown
        assert page.run("document.getElementById('memory-used').textContent").endswith(" of 48 MiB")
        page.picture(tmp_path / "page.png")
        assert page.complaints() == []


def test_bodies_are_counted_by_protocol(start_server, repositories):
    """Half a body of each protocol. Without a limit of their own, bodies may take no more than all."""
    server = start_server("--model-repository", repositories("default"), "--client-memory", "64MiB",
                          "--mip", "tcp://127.0.0.1:0=id_string", grpc=("127.0.0.1:0",))
    assert any(line["event"] == "body memory" and line["bytes"] == 64 << 20 for line in server.log_lines())
    bodies = {protocol: series("bodies", protocol) for protocol in ("http", "grpc", "mip")}
    assert metrics.read(server.address)['sluice_client_memory_bytes{kind="shared_memory"}'] == 0
    with http1.Connection(server.address) as over_http, h2.Connection(server.grpc_address) as over_grpc, \
            mip.Connection(server.mip_urls[0]) as over_mip:
        half = bytes(100000)
        waits = [(bodies["http"], lambda: over_http.send(
            b"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + half)),
                 (bodies["grpc"], lambda: over_grpc.send_data(over_grpc.begin(
                b"/inference.GRPCInferenceService/ModelInfer"), h2.message(half, 0, 200000))),
                 (bodies["mip"], lambda: over_mip.send(mip.header(mip.INFER, 200000) + half))]
        held = set()
        for name, send in waits:
            send()
            held.add(name)
            numbers = metrics.wait_until(server.address, lambda n: all(n[one] >= 100000 for one in held), name)
            assert all(numbers[one] == 0 for one in set(bodies.values()) - held)
    metrics.wait_until(server.address, lambda n: all(n[one] == 0 for one in held), "the end of all")

"""REST over HTTP/2 at the port of --http: the same answers as over HTTP/1.1, beside gRPC on the same connection; with
real clients (curl, nghttp, h2load, tritonclient through Envoy); and bad input, slow readers, resets and many streams at
once, after each of which a good request is answered and nothing is held."""
import contextlib
import gzip
import http.client
import json
import os
import re
import subprocess

import numpy
import pytest
import tritonclient.http

from lib import h2, http1, metrics
from lib.envoy import Envoy
from lib.events import parse_events
from lib.grpc_live import GOOD, INFER, OK, floats
from lib.repository import DECOUPLED, FREE, Identity
from lib.tls_client import Pki, client_context, connect

pytestmark = pytest.mark.tsan

JSON = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [3], "data": [1, 2.5, -3]}]}).encode()
HEAD = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [3],
                               "parameters": {"binary_data_size": 12}}],
                   "parameters": {"binary_data_output": True}}).encode()
BINARY = HEAD + floats(1, 2.5, -3)
BINARY_FIELDS = ((b"inference-header-content-length", str(len(HEAD)).encode()),)
GZIP = (b"content-encoding", b"gzip")
ID = b"/v2/models/id_fp32/infer"
MODELS = [Identity("id_fp32", [("FP32", FREE)]), Identity("id_slow", [("FP32", FREE)], parameters={"delay_us": 300000}),
          Identity("id_slowest", [("FP32", FREE)], parameters={"delay_us": 60000000}), *DECOUPLED]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http2")
    for model in MODELS:
        model.write(str(folder))
    return str(folder)


@pytest.fixture
def run_server(start_server, models):
    def start(*flags, **options):
        options.setdefault("grpc", ("127.0.0.1:0",))
        options.setdefault("metrics_at", "127.0.0.1:0")
        return start_server("--model-repository", models, "--model-control-mode", "explicit", "--load-model", "*",
                            *flags, **options)
    return start


def check_good(server, connection=None):
    """A good request of REST and a call of gRPC are answered, on this connection or a new one."""
    if connection is None:
        with h2.Connection(server.address) as made:
            check_good(server, made)
        return
    answer = connection.request(b"POST", ID, body=JSON)
    assert answer.http_status == 200, str(answer)
    assert json.loads(answer.data)["outputs"][0]["data"] == [1.0, 2.5, -3.0]
    assert connection.call(INFER, GOOD).status == OK


def check_unharmed(server):
    check_good(server)
    server.wait_at_rest()
    server.check_log()


# ---- the same answers as over HTTP/1.1 -----------------------------------------------------------

def plain_answer(address, method, path, body, fields):
    """Over HTTP/1.1. Returns: status, fields by their names in lower case, body."""
    host, _, port = address.rpartition(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=http1.PATIENCE)) as connection:
        connection.putrequest(method.decode(), path.decode(), skip_host=True, skip_accept_encoding=True)
        for name, value in ((b"Host", b"localhost"), *fields, *([(b"Content-Length", str(len(body)).encode())] * bool(body))):
            connection.putheader(name.decode(), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


IGNORED = {"date", "connection", ":status", "transfer-encoding"}


def check_same(server, method, path, body=b"", fields=(), hide=None):
    """Sends it over both versions. Returns: the status."""
    status, theirs, plain_data = plain_answer(server.address, method, path, body, fields)
    with h2.Connection(server.address) as connection:
        answer = connection.request(method, path, *fields, body=body)
    assert answer.ended and answer.http_status == status, f"{path} {answer} {status} {plain_data}"
    ours, data = dict(answer.heads[0]), answer.data
    for name in IGNORED:
        ours.pop(name, None)
        theirs.pop(name, None)
    if hide:
        data, plain_data = re.sub(hide, b"#", data), re.sub(hide, b"#", plain_data)
        ours.pop("content-length")
        theirs.pop("content-length")
    assert (ours, data) == (theirs, plain_data)
    return answer.http_status


NUMBERS = rb"\d+"
REGISTER = json.dumps({"key": "/none", "offset": 0, "byte_size": 64}).encode()
SAME = [
    (200, b"GET", b"/v2"), (200, b"HEAD", b"/v2"), (405, b"DELETE", b"/v2"), (405, b"PUT", b"/v2", b"xyz"),
    (405, b"OPTIONS", b"/v2"), (404, b"GET", b"/"), (404, b"GET", b"/nothing/there"), (404, b"OPTIONS", b"*"),
    (200, b"GET", b"/v2/health/live"), (200, b"GET", b"/v2/health/ready"), (200, b"HEAD", b"/v2/health/ready"),
    (200, b"GET", b"/v2/models/id_fp32"), (200, b"GET", b"/v2/models/id_fp32/ready"),
    (200, b"GET", b"/v2/models/id_fp32/versions/1"), (200, b"GET", b"/v2/models/id_fp32/config"),
    (200, b"GET", b"/v2/models/id_fp32/config?x=1"), (404, b"GET", b"/v2/models/none"),
    (400, b"GET", b"/v2/models/%zz"), (200, b"POST", ID, JSON), (405, b"GET", ID), (400, b"POST", ID),
    (400, b"POST", ID, b"{"), (404, b"POST", b"/v2/models/none/infer", JSON),
    (200, b"POST", ID, BINARY, BINARY_FIELDS), (400, b"POST", ID, BINARY, ((BINARY_FIELDS[0][0], b"7"),)),
    (400, b"POST", ID, BINARY, ((BINARY_FIELDS[0][0], b"999999"),)),
    (400, b"POST", ID, BINARY, ((BINARY_FIELDS[0][0], b"-1"),)), (400, b"POST", ID, BINARY, BINARY_FIELDS * 2),
    (200, b"POST", ID, gzip.compress(JSON, mtime=0), (GZIP,)),
    (200, b"POST", ID, JSON, ((b"accept-encoding", b"gzip"),)),
    (400, b"POST", ID, gzip.compress(JSON, mtime=0)[:-9], (GZIP,)), (400, b"POST", ID, JSON, (GZIP,)),
    (415, b"POST", ID, JSON, ((b"content-encoding", b"br"),)),
    (200, b"POST", ID, JSON, ((b"endpoint-load-metrics-format", b"json"),)),
    (417, b"POST", ID, JSON, ((b"expect", b"tea"),)),
    (200, b"POST", b"/v2/repository/index"), (400, b"POST", b"/v2/repository/index", b"["),
    (200, b"POST", b"/v2/repository/models/one/load"), (404, b"POST", b"/v2/repository/models/none/load"),
    (200, b"GET", b"/v2/systemsharedmemory/status"),
    (400, b"POST", b"/v2/systemsharedmemory/region/r/register", REGISTER),
    (200, b"POST", b"/v2/systemsharedmemory/unregister"), (200, b"GET", b"/v2/cudasharedmemory/status"),
    (200, b"GET", b"/v2/logging"), (200, b"GET", b"/v2/trace/setting"),
    (200, b"POST", b"/v2/models/one/generate", b'{"INPUT0": [1, 2]}'),
    (400, b"POST", b"/v2/models/one/generate", b'{"INPUT1": [1, 2]}'),
    (200, b"POST", b"/v2/models/many/generate_stream", b'{"INPUT0": 1, "responses": 5}'),
    (200, b"POST", b"/v2/models/many/generate_stream", b'{"INPUT0": 1, "responses": 0}'),
    (400, b"POST", b"/v2/models/many/generate_stream", b'{"INPUT0": [[1]'),
    (404, b"GET", b"/v1/models/id_fp32:predict"),
    (403, b"GET", b"/v2", b"", ((b"origin", b"https://evil.example"),)),
    (200, b"GET", b"/v2", b"", ((b"origin", b"https://app.example"),)),
    (200, b"OPTIONS", b"/v2", b"", ((b"origin", b"https://app.example"), (b"access-control-request-method", b"GET"))),
]


def test_answers_are_those_of_http1(run_server):
    server = run_server("--allowed-origin", "https://app.example", "--allow-client-shm", "true")
    wrong = []
    for status, *asked in SAME:
        if check_same(server, *asked) != status:
            wrong.append((status, asked))
    assert not wrong
    check_same(server, b"GET", b"/v2/models/id_fp32/stats", hide=NUMBERS)
    check_same(server, b"GET", b"/v2/models/stats", hide=NUMBERS)
    check_same(server, b"GET", b"/v2/load", hide=NUMBERS)
    assert check_same(server, b"GET", b"/metrics", hide=rb"[0-9.e+-]+") == 200
    with h2.Connection(server.address) as connection:
        answer = connection.request(b"GET", b"/", (b"accept", b"text/html"))
        assert answer.http_status == 200 and b"<html" in answer.data
    check_unharmed(server)


def test_keys_and_restrictions_hold(run_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("infer: [0123456789abcdef0123456789abcdef]\n", encoding="utf-8")
    key = (b"authorization", b"Bearer 0123456789abcdef0123456789abcdef")
    server = run_server("--keys", keys)
    for more, status in (((), 401), (((b"authorization", b"Bearer no"),), 401), ((key,), 200)):
        assert check_same(server, b"POST", ID, JSON, more) == status
    server = run_server("--http-restricted-api", "inference:http-key=one")
    for more, status in (((), 403), (((b"http-key", b"two"),), 403), (((b"http-key", b"one"),), 200)):
        assert check_same(server, b"POST", ID, JSON, more) == status
    assert check_same(server, b"GET", b"/v2/health/ready") == 200


def test_routes_of_platforms(run_server):
    server = run_server("--platform", "sagemaker", "--platform-model", "id_fp32")
    assert check_same(server, b"GET", b"/ping") == 200
    assert check_same(server, b"POST", b"/invocations", JSON) == 200


def test_traces_record_requests(run_server, tmp_path):
    file = tmp_path / "trace"
    server = run_server("--trace-config", f"triton,file={file}", "--trace-config", "level=TIMESTAMPS", "--trace-config",
                        "rate=1")
    with h2.Connection(server.address) as connection:
        assert connection.request(b"POST", ID, body=JSON).http_status == 200
    server.wait_at_rest()
    server.stop()
    names = [stamp["name"] for line in json.loads(file.read_text()) for stamp in line.get("timestamps", [])]
    assert {"HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"} <= set(names), names


# ---- one connection ------------------------------------------------------------------------------

def test_calls_and_requests_share_a_connection(run_server):
    server = run_server()
    with h2.Connection(server.address) as connection:
        slow = connection.begin_request(b"POST", b"/v2/models/id_slow/infer")
        connection.send_data(slow, JSON, end=True)
        streams = []
        for number in range(100):
            if number % 2:
                streams.append((connection.begin(INFER), h2.message(GOOD)))
            else:
                streams.append((connection.begin_request(b"POST", ID), JSON))
        for stream, data in reversed(streams):
            connection.send_data(stream, data, end=True)
        for number, (stream, _) in enumerate(streams):
            answer = connection.answer(stream)
            assert answer.status == OK if number % 2 else answer.http_status == 200, str(answer)
        assert connection.answer(slow).http_status == 200
        state = http1.request(server.metrics_address, "GET", "/debug/state").body.decode()
        assert f"to {server.address}" in state[state.index("\ngrpc: "):], state
    check_unharmed(server)


def test_body_in_pieces(run_server):
    """DATA of one byte each, with a length and without one."""
    server = run_server()
    with h2.Connection(server.address) as connection:
        for more in ((), ((b"content-length", str(len(BINARY)).encode()),)):
            stream = connection.begin_request(b"POST", ID, *BINARY_FIELDS, *more)
            for at in range(len(BINARY)):
                connection.send_data(stream, BINARY[at:at + 1])
            connection.send_data(stream, b"", end=True)
            assert connection.answer(stream).data.endswith(floats(1, 2.5, -3))
    check_unharmed(server)


def test_large_body_both_ways(run_server):
    server = run_server()
    tensor = numpy.arange(4_000_000, dtype=numpy.float32).tobytes()
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [4_000_000],
                                   "parameters": {"binary_data_size": len(tensor)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    with h2.Connection(server.address) as connection:
        for more in ((), ((b"content-length", str(len(head + tensor)).encode()),)):
            answer = connection.request(b"POST", ID, (BINARY_FIELDS[0][0], str(len(head)).encode()), *more,
                                        body=head + tensor)
            assert answer.http_status == 200 and answer.data.endswith(tensor)
            assert int(answer.heads[0]["content-length"]) == len(answer.data)
    check_unharmed(server)


def test_compressed_body_of_large_size(run_server):
    server = run_server()
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [300_000],
                                   "data": [0.5] * 300_000}]}).encode()
    with h2.Connection(server.address) as connection:
        answer = connection.request(b"POST", ID, GZIP, (b"accept-encoding", b"gzip"), body=gzip.compress(body))
        assert answer.http_status == 200 and answer.heads[0]["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(answer.data))["outputs"][0]["data"] == [0.5] * 300_000
    check_unharmed(server)


def test_expect_continue(run_server):
    server = run_server()
    expect = (b"expect", b"100-continue")
    with h2.Connection(server.address) as connection:
        stream = connection.begin_request(b"POST", ID, expect)
        connection.run_until(lambda: connection.streams[stream].heads)
        assert connection.streams[stream].heads == [{":status": "100"}]
        connection.send_data(stream, JSON, end=True)
        assert connection.answer(stream).http_status == 200
        stream = connection.begin_request(b"POST", b"/v2/models/none/infer", expect)  # refused: no 100
        assert [head[":status"] for head in connection.answer(stream).heads] == ["404"]
        check_good(server, connection)
    check_unharmed(server)


def test_cookies_in_pieces_and_header_names(run_server):
    server = run_server()
    with h2.Connection(server.address) as connection:
        answer = connection.request(b"POST", ID, (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"te", b"trailers"),
                                    body=JSON)
        assert answer.http_status == 200
        assert all(name == name.lower() for name in answer.heads[0])
    check_unharmed(server)


# ---- streamed responses --------------------------------------------------------------------------

def test_generate_stream_sends_events_as_they_come(run_server):
    server = run_server()
    with h2.Connection(server.address) as connection:
        stream = connection.begin_request(b"POST", b"/v2/models/many_slow/generate_stream")
        connection.send_data(stream, b'{"INPUT0": 1, "responses": 50}', end=True)
        connection.run_until(lambda: connection.streams[stream].data)
        assert not connection.streams[stream].ended  # the first event came before the last one
        answer = connection.answer(stream)
        assert answer.heads[0]["content-type"] == "text/event-stream; charset=utf-8"
        assert "content-length" not in answer.heads[0] and len(parse_events(answer.data)) == 50
        check_good(server, connection)
    check_unharmed(server)


def test_reset_ends_stream_of_events(run_server):
    server = run_server()
    with h2.Connection(server.address) as connection:
        stream = connection.begin_request(b"POST", b"/v2/models/many_slow/generate_stream")
        connection.send_data(stream, b'{"INPUT0": 1, "responses": 1000000}', end=True)
        connection.run_until(lambda: connection.streams[stream].data)
        connection.send(h2.reset(stream))
        check_good(server, connection)
    check_unharmed(server)


def test_events_that_are_not_read_end_after_write_timeout(run_server):
    """The window is closed: the stream is reset, and others of the connection go on."""
    server = run_server("--write-timeout", "500ms")
    with h2.Connection(server.address, own=((h2.INITIAL_WINDOW, 200),), opens=False) as connection:
        stream = connection.begin_request(b"POST", b"/v2/models/many/generate_stream")
        connection.send_data(stream, b'{"INPUT0": 1, "responses": 10000}', end=True)
        connection.run_until(lambda: connection.streams[stream].is_over)
        assert connection.streams[stream].reset == "CANCEL"
        assert connection.request(b"GET", b"/v2/health/live").http_status == 200
    check_unharmed(server)


# ---- the end of a request ------------------------------------------------------------------------

def test_reset_cancels_inference(run_server):
    server = run_server()
    with h2.Connection(server.address) as connection:
        stream = connection.begin_request(b"POST", b"/v2/models/id_slowest/infer")
        connection.send_data(stream, JSON, end=True)
        server.wait_for(lambda: metrics.read(server.metrics_address)["sluice_running_requests"] == 1, "a running one")
        connection.send(h2.reset(stream))
        check_good(server, connection)
        server.wait_for(lambda: metrics.read(server.metrics_address)["sluice_running_requests"] == 0, "its end")
    check_unharmed(server)


def test_disconnect_in_each_state(run_server):
    server = run_server()
    for begin in (
            lambda c: c.begin_request(b"POST", ID),
            lambda c: c.send_data(c.begin_request(b"POST", ID), JSON[:10]),
            lambda c: c.send_data(c.begin_request(b"POST", ID, GZIP), gzip.compress(JSON)[:20]),
            lambda c: c.send_data(c.begin_request(b"POST", b"/v2/models/id_slowest/infer"), JSON, end=True),
            lambda c: c.send_data(c.begin_request(b"POST", b"/v2/models/many_slow/generate_stream"),
                                  b'{"INPUT0": 1, "responses": 1000000}', end=True)):
        for leave in (h2.Connection.close, h2.Connection.abort):
            connection = h2.Connection(server.address)
            begin(connection)
            connection.ping()
            leave(connection)
    check_unharmed(server)


def test_drain_finishes_requests(run_server):
    server = run_server()
    with h2.Connection(server.address) as running, h2.Connection(server.address) as idle:
        stream = running.begin_request(b"POST", b"/v2/models/id_slow/infer")
        running.send_data(stream, JSON, end=True)
        running.ping()
        assert idle.request(b"GET", b"/v2/health/live").http_status == 200
        server.signal()
        assert idle.read_end() == "NO_ERROR"
        assert running.answer(stream).http_status == 200
        assert running.read_end() == "NO_ERROR"
    assert server.wait_exit() == 0
    server.check_log()


# ---- bad input -----------------------------------------------------------------------------------

def length(n):
    return (b"content-length", str(n).encode())


MALFORMED = [  # a stream error of HTTP/2, RFC 9113, 8.1.1
    ((length(len(JSON) + 1),), JSON), ((length(len(JSON) - 1),), JSON),
    (((b"content-length", b"12x"),), JSON), ((length(len(JSON)), length(len(JSON))), JSON),
    (((b"connection", b"close"),), JSON), (((b"transfer-encoding", b"chunked"),), JSON),
    (((b"Accept", b"*/*"),), JSON), (((b":made-up", b"x"),), JSON),
]


@pytest.mark.parametrize("more, body", MALFORMED)
def test_malformed_request_resets_stream_alone(run_server, more, body):
    server = run_server()
    with h2.Connection(server.address) as connection:
        answer = connection.request(b"POST", ID, *more, body=body)
        assert answer.reset == "PROTOCOL_ERROR", str(answer)
        check_good(server, connection)
    check_unharmed(server)


def test_body_behind_a_length_of_zero(run_server):
    """The request is whole with its head: its answer may leave before the body arrives, which is an error."""
    server = run_server()
    with h2.Connection(server.address) as connection:
        answer = connection.request(b"POST", ID, length(0), body=JSON)
        assert answer.http_status == 400 or answer.reset == "PROTOCOL_ERROR", str(answer)
        check_good(server, connection)
    check_unharmed(server)


def test_limits_of_body(run_server):
    server = run_server("--max-body-size", "100KiB")
    with h2.Connection(server.address) as connection:
        for more in ((), (length(200_000),)):  # found by its bytes; by its head
            answer = connection.request(b"POST", ID, *more, body=b" " * 200_000)
            assert answer.http_status == 413 and b"--max-body-size" in answer.data, str(answer)
            check_good(server, connection)
        bomb = gzip.compress(b" " * 50_000_000)
        answer = connection.request(b"POST", ID, GZIP, *BINARY_FIELDS, body=bomb)
        assert answer.http_status == 413 and b"after decompression" in answer.data, str(answer)
        check_good(server, connection)
    check_unharmed(server)


def test_rest_of_refused_body_is_dropped(run_server):
    """Up to --discard-size its client sees no reset; one that sends more is told to stop."""
    server = run_server("--discard-size", "100KiB")
    with h2.Connection(server.address) as connection:
        stream = connection.begin_request(b"POST", b"/v2/models/none/infer")
        connection.run_until(lambda: connection.streams[stream].ended)
        for _ in range(10):
            connection.send(h2.frame(h2.DATA, 0, stream, bytes(10_000)))
            connection.window -= 10_000
        check_good(server, connection)
        assert connection.streams[stream].http_status == 404 and connection.streams[stream].reset is None
        connection.send(h2.frame(h2.DATA, 0, stream, bytes(10_000)))
        connection.window -= 10_000
        connection.run_until(lambda: connection.streams[stream].reset)
        assert connection.streams[stream].reset == "NO_ERROR"
        check_good(server, connection)
    check_unharmed(server)


def test_rest_that_does_not_come_is_ended(run_server):
    server = run_server("--body-timeout", "300ms")
    with h2.Connection(server.address) as connection:
        stream = connection.begin_request(b"POST", b"/v2/models/none/infer", length(10))
        connection.run_until(lambda: connection.streams[stream].reset)
        assert (connection.streams[stream].http_status, connection.streams[stream].reset) == (404, "NO_ERROR")
        check_good(server, connection)
    check_unharmed(server)


def test_head_over_limit(run_server):
    server = run_server("--max-header-size", "8KiB")
    with h2.Connection(server.address) as connection:
        answer = connection.request(b"GET", b"/v2/health/live", (b"x", b"y" * 9000))
        assert answer.http_status == 431 and b"--max-header-size" in answer.data, str(answer)
        answer = connection.request(b"POST", ID, *[(b"x-%d" % n, b"y") for n in range(300)], body=JSON)
        assert answer.http_status == 431, str(answer)
        check_good(server, connection)
    check_unharmed(server)


def test_body_that_stops_times_out(run_server):
    server = run_server("--body-timeout", "300ms")
    with h2.Connection(server.address) as connection:
        for more in ((), (GZIP,), (length(100),)):
            stream = connection.begin_request(b"POST", ID, *more)
            connection.send_data(stream, gzip.compress(JSON)[:5] if more == (GZIP,) else JSON[:5])
            answer = connection.answer(stream)
            assert answer.http_status == 408 and b"--body-timeout" in answer.data, str(answer)
        check_good(server, connection)
    check_unharmed(server)


def test_800_streams_at_once(run_server):
    server = run_server()
    with h2.Connection(server.address) as connection:
        frames, streams = b"", []
        for number in range(800):
            path = ID if number % 2 else b"/v2/models/none/infer"
            stream, head = connection.open(h2.request_fields(b"POST", path))
            frames += head + h2.frame(h2.DATA, h2.END_STREAM, stream, JSON)
            streams.append(stream)
        connection.window -= 800 * len(JSON)
        connection.send(frames)
        for number, stream in enumerate(streams):
            assert connection.answer(stream).http_status == (200 if number % 2 else 404)
        check_good(server, connection)
    check_unharmed(server)


def test_slow_reader_bounds_memory(run_server):
    """Large responses behind closed windows: memory is limited. Other connections are served, or told that it is full,
    and served again once the connection has ended."""
    server = run_server("--write-timeout", "2s", "--client-memory", "96MiB")
    tensor = bytes(8_000_000)
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2_000_000],
                                   "parameters": {"binary_data_size": len(tensor)}}],
                       "parameters": {"binary_data_output": True}}).encode()

    def answer():
        with h2.Connection(server.address) as other:
            return other.request(b"POST", ID, body=JSON)
    with h2.Connection(server.address, opens=False) as connection:
        streams = []
        for _ in range(20):
            stream = connection.begin_request(b"POST", ID, (BINARY_FIELDS[0][0], str(len(head)).encode()))
            with contextlib.suppress(h2.Ended):
                connection.send_data(stream, head + tensor, end=True)
            streams.append(stream)
            got = answer()
            assert got.http_status == 200 or b"out of memory" in got.data, str(got)
        with contextlib.suppress(h2.Ended):
            connection.run_until(lambda: all(connection.streams[stream].is_over for stream in streams))
        assert all(connection.streams[stream].reset or connection.streams[stream].http_status in (200, 503)
                   for stream in streams) or connection.gone
    server.wait_for(lambda: answer().http_status == 200, "memory")
    check_unharmed(server)


def test_rapid_reset_of_requests(run_server):
    """The connection is ended, or the client was slower than the counter (src/net/server/grpc/session_attack_test.c:
    one that is not), and nothing is left."""
    server = run_server()
    with h2.Connection(server.address) as connection:
        for _ in range(300):
            frames = b""
            for _ in range(100):
                stream, head = connection.open(h2.request_fields(b"POST", ID))
                frames += head + h2.frame(h2.DATA, h2.END_STREAM, stream, JSON) + h2.reset(stream)
            connection.window -= 100 * len(JSON)
            connection.run_until(lambda: connection.window > 0 or connection.gone)
            connection.send(frames)
            if connection.gone:
                break
        if not connection.gone:
            check_good(server, connection)
    check_unharmed(server)


def test_continuation_flood_of_requests_ends_connection(run_server):
    server = run_server()
    with h2.Connection(server.address) as connection:
        connection.send(h2.frame(h2.HEADERS, 0, 1, h2.block(h2.request_fields(b"GET", b"/v2"))))
        with contextlib.suppress(h2.Ended):
            for _ in range(2000):
                connection.send(h2.frame(h2.CONTINUATION, 0, 1, b""))
        assert connection.read_end() in ("ENHANCE_YOUR_CALM", "INTERNAL_ERROR", "PROTOCOL_ERROR")
    check_unharmed(server)


# ---- clients -------------------------------------------------------------------------------------

def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, timeout=2 * http1.PATIENCE, check=False)


def test_curl(run_server, tmp_path):
    server = run_server()
    url = f"http://{server.address}"
    curl = ("curl", "-sS", "--http2-prior-knowledge", "-w", "\n%{http_version} %{http_code}")
    done = run(*curl, "-d", JSON.decode(), f"{url}{ID.decode()}")
    assert done.stdout.endswith(b"\n2 200") and b'"data":[1.0,2.5,-3.0]' in done.stdout, done
    done = run(*curl, "-I", f"{url}/v2/health/ready")
    assert done.stdout.endswith(b"\n2 200"), done
    done = run(*curl, "-N", "-d", '{"INPUT0": 1, "responses": 20}', f"{url}/v2/models/many/generate_stream")
    assert done.stdout.count(b"data: ") == 20 and done.stdout.endswith(b"\n2 200"), done
    large = tmp_path / "large"
    large.write_bytes(bytes(30_000_000))
    done = run(*curl, "-T", large, "-X", "POST", f"{url}/v2/models/none/infer")
    assert done.stdout.endswith(b"\n2 404") and done.returncode == 0, done
    check_unharmed(server)


def test_nghttp_and_h2load(run_server, tmp_path):
    server = run_server()
    body = tmp_path / "body"
    body.write_bytes(JSON)
    done = run("nghttp", "-d", body, "-H", ":method: POST", f"http://{server.address}{ID.decode()}")
    assert b'"data":[1.0,2.5,-3.0]' in done.stdout, done
    done = run("h2load", "-n", 2000, "-c", 4, "-m", 100, "-d", body, f"http://{server.address}{ID.decode()}")
    assert b"2000 succeeded, 0 failed" in done.stdout and b"status codes: 2000 2xx" in done.stdout, done
    check_unharmed(server)


def test_alpn(run_server, tmp_path):
    """A client that offers HTTP/2 alone gets it, one that knows both HTTP/1.1."""
    pki = Pki(tmp_path)
    cert, key = pki.server_files
    server = run_server("--http-tls-cert", cert, "--http-tls-key", key, listen=("http://127.0.0.1:0", "127.0.0.1:0"))
    port = int(server.addresses[1].rpartition(":")[2])
    for offered, chosen in ((["h2"], "h2"), (["h2", "http/1.1"], "http/1.1")):
        context = client_context(pki)
        context.set_alpn_protocols(offered)
        with connect(pki, port, context) as sock:
            assert sock.selected_alpn_protocol() == chosen
            if chosen == "h2":
                head = h2.block(h2.request_fields(b"GET", b"/v2/health/ready"))
                sock.sendall(h2.PREFACE + h2.settings()
                             + h2.frame(h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, 1, head))
                received = b""
                while b'{"live":true,"ready":true}' not in received:
                    piece = sock.recv(65536)
                    assert piece, received
                    received += piece
    server.wait_at_rest()


ENVOY = """
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          codec_type: AUTO
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: sluice, timeout: 60s}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: sluice
    connect_timeout: 60s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: sluice
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: HOST, port_value: PORT}}}
"""


def test_tritonclient_through_envoy_with_h2c_upstream(run_server, tmp_path):
    """REST and gRPC clients of one Envoy, whose cluster speaks HTTP/2 to the one port."""
    server = run_server()
    host, _, port = server.address.rpartition(":")
    folder = tmp_path / "envoy"
    os.mkdir(folder)
    with contextlib.ExitStack() as stack:
        envoy = Envoy(str(folder), ENVOY.replace("HOST", host).replace("PORT", port))
        stack.callback(envoy.kill)
        client = stack.enter_context(
            tritonclient.http.InferenceServerClient(envoy.address, network_timeout=http1.PATIENCE))
        values = numpy.arange(1_000_000, dtype=numpy.float32)
        assert client.is_server_ready() and client.get_model_metadata("id_fp32")["name"] == "id_fp32"
        for compressed in (None, "gzip"):
            for binary in (True, False):
                data = values if binary else values[:1000]
                tensor = tritonclient.http.InferInput("INPUT0", [len(data)], "FP32")
                tensor.set_data_from_numpy(data, binary_data=binary)
                answer = client.infer("id_fp32", [tensor], request_compression_algorithm=compressed,
                                      response_compression_algorithm=compressed)
                assert (answer.as_numpy("OUTPUT0") == data).all()
        with pytest.raises(tritonclient.http.InferenceServerException, match="unknown model"):
            client.infer("none", [tensor])
        with h2.Connection(envoy.address) as connection:
            assert connection.call(INFER, GOOD).status == OK
            assert len(parse_events(connection.request(b"POST", b"/v2/models/many/generate_stream",
                                                       body=b'{"INPUT0": 1, "responses": 9}').data)) == 9
        assert envoy.counter("cluster.sluice.upstream_cx_http2_total") > 0
        assert envoy.counter("cluster.sluice.upstream_cx_http1_total") == 0
    check_unharmed(server)

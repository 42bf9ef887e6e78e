"""generate and generate_stream, asked by Python's own HTTP client and by curl: forms, errors before and
after the first answer, slow readers and clients that leave. A server afterwards answers a good request
and holds nothing."""
import http.client
import json
import socket
import subprocess

import pytest

from lib import http1, metrics
from lib.events import parse_events
from lib.repository import DECOUPLED, FREE, Identity
from lib.server import is_sanitized, peak_memory_of

pytestmark = pytest.mark.plain

MODELS = DECOUPLED + [
    Identity("texts", [("BYTES", FREE), ("INT32", [2, -1])]),
    Identity("flag", [("BOOL", [1])], max_batch_size=4),
    Identity("halves", [("FP16", FREE)]),
    Identity("failing", [("FP32", FREE)], parameters={"fail": "out of ink"}),
    Identity("echoing", [("FP32", FREE)], parameters={"echo_parameters": "true"}),
    Identity("twice", [("FP32", FREE)], parameters={"responses": 2}),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    for model in MODELS:
        model.write(str(folder))
    return str(folder)


@pytest.fixture
def running(start_server, models):
    server = start_server("--model-repository", models, "--max-body-size", "64MiB")
    yield server
    status, _, body = ask(server, "one", {"INPUT0": 2.5})
    assert (status, json.loads(body)["OUTPUT0"]) == (200, 2.5)
    metrics.wait_at_rest(server.address, server.arenas)


def connect(server):
    host, port = server.address.rsplit(":", 1)
    return http.client.HTTPConnection(host, int(port), timeout=http1.PATIENCE)


def ask(server, model, body, verb="generate", method="POST", headers=None):
    """Returns: status, content type, body."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = connect(server)
    try:
        connection.request(method, f"/v2/models/{model}/{verb}", text, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


def events(server, model, body):
    status, kind, text = ask(server, model, body, "generate_stream")
    assert (status, kind) == (200, "text/event-stream; charset=utf-8"), text
    return parse_events(text)


# ---- forms ---------------------------------------------------------------------------------------

def test_generate_single_response(running):
    status, kind, body = ask(running, "one", {"INPUT0": [1, 2.5], "id": "x"})
    assert (status, kind) == (200, "application/json")
    assert body == b'{"OUTPUT0":[1.0,2.5],"id":"x","model_name":"one","model_version":"1"}'
    assert ask(running, "one/versions/1", {"INPUT0": 7})[2] == \
        b'{"OUTPUT0":7.0,"model_name":"one","model_version":"1"}'
    assert json.loads(ask(running, "one", {"INPUT0": []})[2])["OUTPUT0"] == []


def test_generate_shape_comes_from_model(running):
    status, _, body = ask(running, "texts", {"INPUT0": "grüß \"dich\"\n", "parameters": {
        "INPUT1": [1, 2, 3, 4]}})
    assert status == 200, body
    assert json.loads(body) == {"OUTPUT0": "grüß \"dich\"\n", "OUTPUT1": [1, 2, 3, 4],
                                "model_name": "texts", "model_version": "1"}
    assert json.loads(ask(running, "flag", {"INPUT0": True})[2])["OUTPUT0"] is True


@pytest.mark.parametrize("count", [0, 1, 2, 300])
@pytest.mark.parametrize("model", ["many", "many_apart", "many_threaded"])
def test_generate_stream_events(running, model, count):
    found = events(running, model, {"INPUT0": 1, "responses": count, "id": "e"})
    assert found == [{"OUTPUT0": 1.0, "id": "e", "model_name": model,
                      "model_version": "1"}] * count


def test_generate_stream_of_non_decoupled_model(running):
    assert [item["OUTPUT0"] for item in events(running, "one", {"INPUT0": [1, 2]})] == [[1.0, 2.0]]


def test_generate_of_a_decoupled_model(running):
    for model in ("many", "many_apart"):
        body = {"INPUT0": 1, "parameters": {"responses": 1}}
        assert json.loads(ask(running, model, body)[2])["OUTPUT0"] == 1.0
        for count in (0, 2, 1000):
            status, kind, text = ask(running, model, {"INPUT0": 1, "responses": count})
            assert (status, kind) == (200, "application/json")
            assert "exactly one answer" in json.loads(text)["error"]


def test_generate_reserved_names_are_parameters(running):
    own = {"priority": "high", "timeout": -1, "sequence_id": 3, "sequence_start": True, "id": "x"}
    status, _, body = ask(running, "echoing", {"INPUT0": 1, **own, "x": 1.5})
    assert status == 200, body
    assert json.loads(body) == {"OUTPUT0": 1.0, "model_name": "echoing", "model_version": "1",
                                "x": 1.5, **own}


def test_generate_stream_http_1_0_closes(running):
    host, port = running.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), http1.PATIENCE) as client:
        body = b'{"INPUT0":1,"responses":3}'
        client.sendall(b"POST /v2/models/many/generate_stream HTTP/1.0\r\nContent-Length: "
                       + str(len(body)).encode() + b"\r\n\r\n" + body)
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    head, _, text = answer.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head and b"Connection: close" in head
    assert len(parse_events(text)) == 3


def test_generate_stream_keeps_connection(running):
    connection = connect(running)
    for count in (3, 0, 1):
        connection.request("POST", "/v2/models/many/generate_stream",
                           json.dumps({"INPUT0": 1, "responses": count}))
        assert len(parse_events(connection.getresponse().read())) == count
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().status == 200
    connection.close()


def test_generate_stream_pipelined_requests_in_order(running):
    host, port = running.address.rsplit(":", 1)
    body = b'{"INPUT0":1,"responses":2}'
    one = (b"POST /v2/models/many_slow/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: "
           + str(len(body)).encode() + b"\r\n\r\n" + body)
    with socket.create_connection((host, int(port)), http1.PATIENCE) as client:
        client.sendall(one * 3)
        answer = b""
        while answer.count(b"\r\n0\r\n\r\n") < 3:
            piece = client.recv(65536)
            assert piece
            answer += piece
    assert answer.count(b"HTTP/1.1 200") == 3 and answer.count(b"data: ") == 6


def test_generate_stream_curl(running):
    url = f"http://{running.address}/v2/models/many/generate_stream"
    done = subprocess.run(["curl", "-sN", "--fail", "-d", '{"INPUT0": 3, "responses": 4}', url],
                          capture_output=True, check=True, timeout=http1.PATIENCE)
    assert [item["OUTPUT0"] for item in parse_events(done.stdout)] == [3.0] * 4


# ---- errors --------------------------------------------------------------------------------------

BAD = [
    (b"", "the request"),
    (b"[1]", "object"),
    (b'"x"', "object"),
    (b'{"INPUT0":1', "JSON"),
    (b'{"INPUT0":1,"INPUT0":2}', "duplicate input"),
    (b'{"INPUT0":1,"parameters":{"INPUT0":2}}', "duplicate input"),
    (b'{"INPUT0":null}', "INPUT0"),
    (b'{"INPUT0":{}}', "INPUT0"),
    (b'{"INPUT0":[[1]]}', "flat"),
    (b'{"INPUT0":[1,null]}', "INPUT0[1]"),
    (b'{"INPUT0":"x"}', "number"),
    (b'{"INPUT0":1e300}', "FP32"),
    (b'{}', "INPUT0"),
    (b'{"INPUT0":1,"p":[1]}', "p"),
    (b'{"INPUT0":1,"p":{}}', "p"),
    (b'{"INPUT0":1,"p":NaN}', "NaN"),
    (b'{"p":{}}', "p"),
    (b'{"INPUT0":1,"parameters":3}', "parameters"),
    (b'{"INPUT0":1,"parameters":{"p":{}}}', "p"),
    (b'{"INPUT0":1,"id":7}', "id"),
    (b'{"INPUT0":1,"triton_x":7}', "reserved"),
]


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
@pytest.mark.parametrize("body,words", BAD)
def test_generate_invalid_body_is_400(running, verb, body, words):
    status, kind, text = ask(running, "one", body, verb)
    assert (status, kind) == (400, "application/json"), text
    assert words in json.loads(text)["error"]


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_generate_refusals(running, verb):
    for model, body, status in (("nope", {}, 404), ("one/versions/9", {}, 404),
                                ("texts", {"INPUT0": "a", "INPUT1": [1, 2, 3]}, 400),
                                ("flag", {"INPUT0": 1}, 400),
                                ("halves", {"INPUT0": 1}, 400), ("failing", {"INPUT0": 1}, 500),
                                ("twice", {"INPUT0": 1}, 501)):
        found, kind, text = ask(running, model, body, verb)
        assert (found, kind) == (status, "application/json"), (model, text)
        assert json.loads(text)["error"]
    found, _, text = ask(running, "one", b"", verb, headers={"Content-Encoding": "gzip"})
    assert found == 400 and b"Content-Encoding" in text
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert ask(running, "one", b"", verb, method)[0] == 405


def test_generate_stream_error_after_events(running):
    body = {"INPUT0": 1, "responses": 9, "fail_at": 3}
    found = events(running, "many", body)
    assert [list(item) for item in found[:2]] == [["OUTPUT0", "model_name", "model_version"]] * 2
    assert len(found) == 3 and "was to fail" in found[2]["error"]
    status, _, text = ask(running, "many", {**body, "fail_at": 1}, "generate_stream")
    assert status == 500 and "was to fail" in json.loads(text)["error"]
    status, _, text = ask(running, "many", {**body, "fail_at": 2})
    assert status == 200 and "error" in json.loads(text)


# ---- who does not read, or leaves ----------------------------------------------------------------

def begin(server, model, body):
    connection = connect(server)
    connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps(body))
    return connection, connection.getresponse()


def test_generate_stream_slow_reader_bounds_memory(running):
    """About 1 GB of events, whose reader stops after the first; all of them come in the end."""
    connection, answer = begin(running, "many", {"INPUT0": [1.5] * 50000, "responses": 5000})
    first = answer.readline()
    metrics.wait_until(running.address, lambda now: now["sluice_requests_in_flight"] >= 2, "the request under way")
    assert peak_memory_of(running) < 256 * 1024 * 1024 or is_sanitized()  # which keeps what is freed
    count, size = 1, len(first)
    while line := answer.readline():
        count += line.startswith(b"data: ")
        size += len(line)
    assert count == 5000 and size > 900_000_000
    assert peak_memory_of(running) < 256 * 1024 * 1024 or is_sanitized()  # which keeps what is freed
    connection.close()


@pytest.mark.parametrize("model,width", [("many", 100000), ("many_slow", 1), ("many_threaded", 10)])
def test_generate_stream_client_disconnect_cancels(running, model, width):
    for _ in range(5):
        connection, answer = begin(running, model, {"INPUT0": [1] * width, "responses": 1000000})
        answer.readline()
        answer.close()
        connection.close()


def test_generate_client_disconnect_while_queued_cancels(running):
    connection = connect(running)
    connection.request("POST", "/v2/models/many_slow/generate",
                       json.dumps({"INPUT0": 1, "responses": 1}))
    connection.close()


def test_generate_stream_server_shutdown_ends_stream(start_server, models):
    server = start_server("--model-repository", models, "--drain-timeout", "300ms")
    connection, answer = begin(server, "many_slow", {"INPUT0": 1, "responses": 1000000})
    assert answer.readline().startswith(b"data: ")
    server.signal()
    server.wait_exit()
    connection.close()
    assert "Sanitizer" not in server.log_text()

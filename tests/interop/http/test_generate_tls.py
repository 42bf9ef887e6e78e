"""generate_stream over TLS: the same events as in plain, sent as they come; readers that are slow, leave, or
break off in the middle of a record; and what the server holds afterwards."""
import contextlib
import json
import ssl
import subprocess

import pytest

from lib import http1, metrics
from lib.events import parse_events
from lib.repository import DECOUPLED
from lib.tls_client import Pki, connect

LARGE = 65536  # elements


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


class Secure:
    """A server of decoupled models in plain, for the metrics, and over TLS."""

    def __init__(self, pki, server):
        self.pki = pki
        self.server = server
        self.port = int(server.addresses[1].rsplit(":", 1)[1])

    def open(self, model, body, version="1.1", **options):
        """Returns: a connection on which that was asked."""
        text = json.dumps(body).encode()
        made = connect(self.pki, self.port, **options)
        made.settimeout(http1.PATIENCE)
        made.sendall(f"POST /v2/models/{model}/generate_stream HTTP/{version}\r\nHost: localhost\r\n"
                     f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        return made


@pytest.fixture
def secure(start_server, pki, tmp_path):
    for model in DECOUPLED:
        model.write(str(tmp_path / "models"))
    cert, key = pki.server_files
    server = start_server("--model-repository", tmp_path / "models", "--http-tls-cert", cert,
                          "--http-tls-key", key,
                          listen=("http://127.0.0.1:0", "https://127.0.0.1:0"))
    made = Secure(pki, server)
    yield made
    assert len(read_events(made.open("many", {"INPUT0": 1, "responses": 2}))) == 2
    metrics.wait_at_rest(server.address, server.arenas)


def read_chunk(file):
    """Returns: b"" of the last."""
    size = int(file.readline(), 16)
    data = file.read(size)
    assert len(data) == size and file.readline() == b"\r\n"
    return data


def read_head(file):
    lines = list(iter(file.readline, b"\r\n"))
    assert lines[0].startswith(b"HTTP/1.1 200 ")
    assert b"Content-Type: text/event-stream; charset=utf-8\r\n" in lines
    return lines


def read_events(made):
    with made, made.makefile("rb") as file:
        read_head(file)
        return parse_events(b"".join(iter(lambda: read_chunk(file), b"")))


def test_generate_tls_event_is_not_delayed(secure):
    """The next is asked of the model only by time: none is held back until another comes."""
    with secure.open("many_slow", {"INPUT0": 7, "responses": 20}) as made, made.makefile("rb") as file:
        read_head(file)
        for _ in range(20):
            event, = parse_events(read_chunk(file))
            assert event["OUTPUT0"] == 7.0
        assert read_chunk(file) == b""


def test_generate_tls_connection_is_reused(secure):
    text = json.dumps({"INPUT0": [1, 2], "responses": 3}).encode()
    one = (b"POST /v2/models/many/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: "
           + str(len(text)).encode() + b"\r\n\r\n" + text)
    with connect(secure.pki, secure.port) as made, made.makefile("rb") as file:
        made.sendall(one * 3 + b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(3):
            assert b"Transfer-Encoding: chunked\r\n" in read_head(file)
            events = parse_events(b"".join(iter(lambda: read_chunk(file), b"")))
            assert [event["OUTPUT0"] for event in events] == [[1.0, 2.0]] * 3
        assert file.readline().startswith(b"HTTP/1.1 200 ")


def test_generate_tls_http_1_0_ends_with_close_notify(secure):
    """The end of the body is the end of the connection: an attacker's would be no close_notify."""
    with secure.open("many", {"INPUT0": 1, "responses": 5}, "1.0",
                     suppress_ragged_eofs=False) as made:
        answer = b""
        while piece := made.recv(65536):
            answer += piece
    head, _, text = answer.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head and len(parse_events(text)) == 5


def test_generate_tls_large_events_to_slow_reader(secure):
    """Much more than sockets hold, in order and whole, read bit by bit."""
    body = {"INPUT0": [float(number % 100) for number in range(LARGE)], "responses": 30}
    with secure.open("many", body) as made, made.makefile("rb", buffering=1000) as file:
        read_head(file)
        for _ in range(30):
            event, = parse_events(read_chunk(file))
            assert event["OUTPUT0"] == body["INPUT0"]
        assert read_chunk(file) == b""


@pytest.mark.parametrize("how", ["after an event", "within a record", "at once"])
@pytest.mark.parametrize("model", ["many", "many_slow"])
def test_generate_tls_client_disconnect_cancels(secure, model, how):
    """The model is told, and nothing is left of an endless stream."""
    n = LARGE if model == "many" else 1
    made = secure.open(model, {"INPUT0": [1.0] * n, "responses": 1000000})
    if how == "at once":
        made.close()
        return
    with made.makefile("rb") as file:
        read_head(file)
        if how == "after an event":
            read_chunk(file)
        else:
            file.readline()
    if how == "after an event":
        with contextlib.suppress(ssl.SSLError):  # events come until the server has seen it
            made.unwrap()
    made.close()


def test_generate_tls_error_after_events(secure):
    events = read_events(secure.open("many", {"INPUT0": 1, "responses": 9, "fail_at": 3}))
    assert [set(event) == {"error"} for event in events] == [False, False, True]


def test_generate_tls_untrusted_server_is_refused(secure, pki):
    context = ssl.create_default_context(cafile=pki.client_ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        secure.open("many", {"INPUT0": 1}, context=context)


def test_generate_tls_curl(secure, pki):
    url = f"https://localhost:{secure.port}/v2/models/many/generate_stream"
    done = subprocess.run(["curl", "-sN", "--fail", "--cacert", pki.ca, "--noproxy", "*",
                           "--connect-to", f"localhost:{secure.port}:127.0.0.1:{secure.port}",
                           "-d", '{"INPUT0": 3, "responses": 4}', url],
                          capture_output=True, check=True, timeout=http1.PATIENCE)
    assert [event["OUTPUT0"] for event in parse_events(done.stdout)] == [3.0] * 4

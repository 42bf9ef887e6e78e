"""libsluice over gRPC: the programs of examples/client with grpc://, grpcs:// and grpc+unix: URLs against
`sluice serve`, and against servers whose answers are wrong. src/client/channel_test.c has what needs the server's
frames at a certain moment: GOAWAY, refused streams, connections that end between two calls."""
import json
import os
import socket
import subprocess
import threading

import pytest

from lib import h2, http1, metrics, server
from lib.tls_client import Pki
from lib.tls_proxy import TlsProxy, make_certificate

MODELS = os.path.join(server.ROOT, "examples", "client", "models")


def program(name):
    return os.path.join(server.build(), "examples", "client", name)


def run(name, *args):
    """Returns: (exit code, standard output, standard error)."""
    done = subprocess.run([program(name), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=2 * http1.PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def says(name, *args):
    code, out, err = run(name, *args)
    assert (code, err) == (0, ""), err
    return out


def fails(name, *args):
    code, out, err = run(name, *args)
    assert (code, out) == (1, ""), (out, err)
    return err


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grpc")
    with server.Server(folder, ["--model-repository", MODELS],
                       grpc=("127.0.0.1:0", f"unix:{folder}/grpc")) as started:
        yield started


@pytest.fixture
def url(live):
    yield f"grpc://{live.grpc_address}"
    live.wait_at_rest()


# ---- against sluice ------------------------------------------------------------------------------

def test_grpc_calls(live, url):
    assert says("http_model", url, "text") == (
        "text version 1, ready\ninput IN: BYTES, shape [-1,1]\noutput OUT: BYTES, shape [-1,1]\n")
    assert says("http_binary", url, "numbers", "IN", 1, 2.5, -3e10) == "1 2.5 -3e+10\n"
    assert says("http_half", url, "half", "IN", 1, -2.5, 0.1) == "1 -2.5 0.0999756\n"
    assert says("http_binary", f"grpc+{live.grpc_addresses[1]}", "numbers", "IN", 7) == "7\n"


@pytest.mark.parametrize("command, reason", [
    (("http_model", "absent"), "(gRPC NOT_FOUND)"),
    (("http_binary", "numbers", "WRONG", "1"), "WRONG"),
    (("http_json", "text", "IN", "x"), "binary"),
])
def test_grpc_errors_are_printed(url, command, reason):
    assert reason in fails(command[0], url, *command[1:])


def test_grpc_documents_are_those_of_http(start_server):
    live = start_server("--model-repository", MODELS, "--model-control-mode", "explicit", "--load-model", "text",
                        grpc=("127.0.0.1:0",))
    urls = [f"grpc://{live.grpc_address}", f"http://{live.address}"]
    assert says("http_repository", urls[0], "load", "numbers") == ""
    assert says("http_binary", urls[0], "numbers", "IN", 7) == "7\n"
    for question in (("index",), ("statistics", "numbers"), ("config", "numbers")):
        ours, theirs = [json.loads(says("http_repository", url, *question)) for url in urls]
        assert ours == theirs
    config = {"backend": "identity", "input": [{"name": "OTHER", "data_type": "TYPE_FP32", "dims": [-1]}],
              "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]}
    assert says("http_repository", urls[0], "load", "numbers", json.dumps(config)) == ""
    assert says("http_binary", urls[0], "numbers", "OTHER", 7) == "7\n"
    assert says("http_repository", urls[0], "unload", "numbers") == ""
    assert "absent" in fails("http_repository", urls[0], "load", "absent")
    assert "absent" in fails("http_repository", urls[0], "config", "absent")


def test_grpc_many_calls_are_streams_of_one_connection(live, url):
    name = "sluice_accepted_connections_total"
    before = metrics.read(live.address)[name]
    assert says("many_calls", url, "numbers", "IN", 1000) == "499500\n"
    assert metrics.read(live.address)[name] - before <= 1 + 1  # its own, and that of the metrics
    assert sorted(says("uv_loop", url, "numbers", "half", *6 * ["picture"]).splitlines()) == sorted(
        ["numbers: 1", "half: 1", *6 * ["picture: 1"]])
    assert "WRONG" in fails("many_calls", url, "numbers", "WRONG", 100)


def test_grpc_key(tmp_path, start_server):
    keys = tmp_path / "keys.yaml"
    keys.write_text("metadata: [my-own-key]\n")
    live = start_server("--model-repository", MODELS, "--keys", keys, wait="listening", grpc=("127.0.0.1:0",))
    live.wait_for(lambda: os.path.exists(live.ready_file), "a ready file")
    url = f"grpc://{server.grpc_addresses_in(live.ready_file)[0]}"
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert says("http_key", url, "text", "my-own-key", traceparent) == (
        "text version 1\ncontent-type: application/grpc\n")
    code, _, err = run("http_key", url, "text", "another-key", traceparent)
    assert code == 1 and "(gRPC UNAUTHENTICATED)" in err and "another-key" not in err


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_client_survives_a_restart(tmp_path, start_server, protocol):
    """One client; the server is stopped, started again, and killed, between two calls."""
    path = tmp_path / "socket"
    option = {"grpc": (f"unix:{path}",)} if protocol == "grpc" else {"listen": ("127.0.0.1:0", f"unix:{path}")}

    def start():
        return start_server("--model-repository", MODELS, **option)
    live = start()
    with subprocess.Popen([program("reconnect"), f"{protocol}+unix:{path}"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as asked:
        def ask():
            asked.stdin.write("\n")
            asked.stdin.flush()
            return asked.stdout.readline()
        assert ask().startswith("sluice ")
        live.stop()
        assert ask().startswith("SLUICE_CLIENT_CONNECT: ")
        live = start()
        assert [ask().split()[0] for _ in range(3)] == 3 * ["sluice"]
        live.kill()
        assert ask().startswith("SLUICE_CLIENT_CONNECT: ")
        start()
        assert ask().startswith("sluice ")
        asked.stdin.close()
        assert asked.wait(http1.PATIENCE) == 0


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_client_waits_for_a_server(tmp_path, start_server, protocol):
    """By a retry policy: the question is asked before there is a server."""
    path = tmp_path / "socket"
    option = {"grpc": (f"unix:{path}",)} if protocol == "grpc" else {"listen": ("127.0.0.1:0", f"unix:{path}")}
    with subprocess.Popen([program("reconnect"), f"{protocol}+unix:{path}", str(http1.PATIENCE)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asked:
        asked.stdin.write("\n")
        asked.stdin.close()
        start_server("--model-repository", MODELS, **option)
        assert asked.stdout.readline().startswith("sluice ")
        assert asked.wait(http1.PATIENCE) == 0
    done = subprocess.run([program("reconnect"), f"{protocol}+unix:{path}2", "0.3"], input="\n", check=True, text=True,
                          stdout=subprocess.PIPE)
    # a busy machine has not ended the last try when the time is over
    assert done.stdout.startswith(("SLUICE_CLIENT_CONNECT: ", "SLUICE_CLIENT_TIMEOUT: timed out connecting",
                                   "SLUICE_CLIENT_TIMEOUT: timed out waiting for one of "))


# ---- TLS -----------------------------------------------------------------------------------------

def test_grpc_tls(tmp_path, start_server):
    pki = Pki(tmp_path)
    live = start_server("--model-repository", MODELS, "--grpc-tls-cert", pki.server_files[0],
                        "--grpc-tls-key", pki.server_files[1], "--grpc-tls-client-ca", pki.client_ca,
                        "--http-tls-cert", pki.server_files[0], "--http-tls-key", pki.server_files[1],
                        "--grpc-on-http", "false", listen=("http://127.0.0.1:0", "https://127.0.0.1:0"), grpc=("grpcs://127.0.0.1:0",))
    port = live.grpc_addresses[0].rsplit(":", 1)[1]
    plain, with_http = [f"localhost:{address.rsplit(':', 1)[1]}" for address in live.addresses]
    url, good = f"grpcs://localhost:{port}", (pki.ca, "-", *pki.client_files)
    assert says("https", url, *good).startswith("sluice ")
    for status, reason, args in [
            ("TLS", "unable to get local issuer certificate", (url,)),
            ("TLS", "hostname mismatch", (url, pki.ca, "elsewhere", *pki.client_files)),
            ("TLS", "requires a client certificate", (url, pki.ca)),
            ("TLS", "refused the client certificate", (url, pki.ca, "-", *pki.stranger_files)),
            ("TLS", "the server speaks another protocol on that port", (f"grpcs://{with_http}", pki.ca)),
            ("TLS", "the server does not use TLS", (f"grpcs://{plain}", pki.ca)),
            ("CONNECT", "refused", ("grpcs://localhost:1", pki.ca))]:
        code, out, err = run("https", *args)
        assert (code, out) == (1, "")
        assert err.startswith(f"https: SLUICE_CLIENT_{status}: ") and reason in err, err
    assert says("https", url, *good).startswith("sluice ")


def test_grpc_server_without_alpn_is_refused(live, tmp_path):
    files = make_certificate(tmp_path, "localhost")
    with TlsProxy(live.grpc_address, *files) as proxy:
        code, out, err = run("https", f"grpcs://localhost:{proxy.port}", files[0])
    assert (code, out) == (1, "")
    assert err.startswith("https: SLUICE_CLIENT_TLS: ") and "does not offer HTTP/2" in err


# ---- bad servers ---------------------------------------------------------------------------------

OK_HEAD = h2.frame(h2.HEADERS, h2.END_HEADERS, 1,
                   h2.block([(b":status", b"200"), (b"content-type", b"application/grpc")]))
GZIP_HEAD = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.block(
    [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-encoding", b"gzip")]))
OK_TRAILERS = h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.block([(b"grpc-status", b"0")]))


def data(payload, flags=0):
    return b"".join(h2.frame(h2.DATA, flags if at + 16384 >= len(payload) else 0, 1, payload[at:at + 16384])
                    for at in range(0, len(payload), 16384))


def many_headers():
    """A head that does not end: 16 MiB of CONTINUATION."""
    field = h2.field(b"x", 8000 * b"a")
    return h2.frame(h2.HEADERS, 0, 1, h2.block([(b":status", b"200")])) + 2000 * h2.frame(h2.CONTINUATION, 0, 1, field)


def has_request(came):
    """Is there a DATA frame that ends its stream?"""
    at = len(h2.PREFACE)
    while at + 9 <= len(came):
        if came[at + 3] == h2.DATA and came[at + 4] & h2.END_STREAM:
            return True
        at += 9 + int.from_bytes(came[at:at + 3], "big")
    return False


class BadServer:
    """Sends its SETTINGS and an answer to the first request of its connection, and then closes it."""

    def __init__(self, answer):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.thread.join(http1.PATIENCE)
        assert not self.thread.is_alive()

    def run(self):
        connection, _ = self.listener.accept()
        with connection:
            connection.settimeout(http1.PATIENCE)
            try:
                came = b""
                while not has_request(came):
                    came += connection.recv(1 << 16)
                connection.sendall(h2.settings() + self.answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            except OSError:  # the client has seen enough
                pass


@pytest.mark.parametrize("answer, status, reason", [
    pytest.param(b"", "CLOSED", "closed the connection", id="none"),
    pytest.param(OK_HEAD, "CLOSED", "closed the connection", id="half an answer"),
    pytest.param(OK_HEAD + data(h2.message(b"", n_bytes=100) + b"x"), "CLOSED", "closed the connection",
                 id="half a message"),
    pytest.param(b"HTTP/1.1 400 x\r\n\r\n", "PROTOCOL", "", id="another protocol behind the settings"),
    pytest.param(h2.reset(1, "INTERNAL_ERROR"), "SERVER_ERROR", "INTERNAL", id="reset"),
    pytest.param(OK_HEAD + h2.reset(1, "ENHANCE_YOUR_CALM"), "SERVER_ERROR", "RESOURCE_EXHAUSTED", id="reset later"),
    pytest.param(h2.frame(h2.GOAWAY, 0, 0, bytes([0, 0, 0, 1, 0, 0, 0, 11]) + b"calm"), "CLOSED", "calm", id="goaway"),
    pytest.param(h2.frame(h2.DATA, 0, 1, b"x"), "PROTOCOL", "", id="data before a head"),
    pytest.param(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), "PROTOCOL", "", id="bad HPACK"),
    pytest.param(many_headers(), "PROTOCOL", "", id="endless header"),
    pytest.param(OK_HEAD + data(h2.message(b"", n_bytes=1 << 31)), "TOO_LARGE", "max_answer_bytes", id="2 GiB"),
    pytest.param(OK_HEAD + data(h2.message(b"\x0a\x05a")) + OK_TRAILERS, "PROTOCOL", "the server's answer", id="cut off"),
    pytest.param(GZIP_HEAD + data(h2.message(b"no gzip", 1)) + OK_TRAILERS, "PROTOCOL", "", id="bad gzip"),
])
def test_bad_answer_has_its_status(answer, status, reason):
    with BadServer(answer) as bad:
        err = fails("http_repository", bad.url, "index")
    assert err.startswith(f"http_repository: SLUICE_CLIENT_{status}: ") and reason in err, err


def test_no_grpc_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "Connection refused" in fails("http_model", f"grpc://127.0.0.1:{port}", "text")


def test_http_server_is_told_apart(start_server):
    alone = start_server("--model-repository", MODELS, "--grpc-on-http", "false")
    assert "HTTP/1.1" in fails("http_model", f"grpc://{alone.address}", "text")

"""The programs in examples/client, as their README says, against what they are for. SLUICE_WRAP is a
command that they run under (make valgrind)."""
import json
import os
import shlex
import socket
import struct
import subprocess
import threading

import pytest
from PIL import Image

from lib import http1, metrics, mip_server, server
from lib.mip_server import MipServer, Refuse
from lib.tls_proxy import TlsProxy, make_certificate

pytestmark = pytest.mark.tsan

MODELS = os.path.join(server.ROOT, "examples", "client", "models")
EXAMPLES = sorted(name[:-2] for name in os.listdir(os.path.dirname(MODELS)) if name.endswith(".c"))


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A server with the models of the examples: over HTTP and MIP, TCP and Unix sockets."""
    folder = tmp_path_factory.mktemp("examples")
    live = server.Server(folder, ["--model-repository", MODELS, "--mip", "tcp://127.0.0.1:0=text",
                                  "--mip", f"unix://{folder}/mip=numbers",
                                  "--mip", "tcp://127.0.0.1:0=picture"],
                         listen=("127.0.0.1:0", f"unix:{folder}/http"))
    with live:
        yield live


@pytest.fixture
def url(live):
    yield f"http://{live.address}"
    live.wait_at_rest()


def program(name):
    return os.path.join(server.build(), "examples", "client", name)


def run(name, *args, stdin=b"", **env):
    """Returns: (exit code, standard output, standard error), both as bytes."""
    command = [*shlex.split(os.environ.get("SLUICE_WRAP", "")), program(name), *map(str, args)]
    done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=2 * http1.PATIENCE, env=os.environ | env, check=False)
    return done.returncode, done.stdout, done.stderr


def says(name, *args, **options):
    """Returns: what a run that must succeed says, as text."""
    code, out, err = run(name, *args, **options)
    assert (code, err) == (0, b""), err.decode()
    return out.decode()


def fails(name, *args, **options):
    """Returns: the one line of a run that must fail, without the program's name."""
    code, out, err = run(name, *args, **options)
    assert (code, out) == (1, b""), (out, err)
    assert err.startswith(f"{name}: ".encode()) and err.count(b"\n") == 1, err
    return err.decode()[len(name) + 2:-1]


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_without_arguments_prints_usage(name):
    code, out, err = run(name)
    assert (code, out) == (2, b"")
    assert err.startswith(f"usage: {name} ".encode())


@pytest.mark.parametrize("name", [f"{name}.c" for name in EXAMPLES] + ["health.cpp"])
def test_example_has_under_80_lines(name):
    with open(os.path.join(os.path.dirname(MODELS), name), encoding="utf-8") as file:
        assert len(file.readlines()) < 80


# ---- HTTP ----------------------------------------------------------------------------------------

def test_http_model(url):
    assert says("http_model", url, "text") == (
        "text version 1, ready\ninput IN: BYTES, shape [-1,1]\n"
        "output OUT: BYTES, shape [-1,1]\n")


def test_http_binary(url):
    assert says("http_binary", url, "numbers", "IN", "1", "2.5", "-3e10") == "1 2.5 -3e+10\n"


def test_http_half(url):
    """65519 is the largest number that becomes one of FP16 and not infinity; 0.1 is rounded."""
    assert says("http_half", url, "half", "IN", "1", "-2.5", "0.1", "65519", "65520") == (
        "1 -2.5 0.0999756 65504 inf\n")
    assert "FP32" in fails("http_half", url, "numbers", "IN", "1")


def test_http_json(url):
    assert says("http_json", url, "text", "IN", "one", "", "zwölf ☃") == (
        "OUT: one\nOUT: \nOUT: zwölf ☃\n")


def test_http_raw(url):
    data = bytes(range(256)) * 5000
    code, out, err = run("http_raw", url, "text", stdin=data)
    assert (code, err, out == data) == (0, b"", True)


def test_http_binary_over_unix_socket(live):
    assert live.addresses[1].startswith("unix:/")
    assert says("http_binary", f"http+{live.addresses[1]}", "numbers", "IN", "7") == "7\n"


@pytest.mark.parametrize("command, reason", [
    (("http_model", "absent"), "absent"),
    (("http_binary", "numbers", "WRONG", "1"), "WRONG"),
    (("http_json", "numbers", "IN", "x"), "FP32"),
    (("http_raw", "absent"), "absent"),
])
def test_http_server_error_is_printed(url, command, reason):
    assert reason in fails(command[0], url, *command[1:])


def test_http_no_server_fails():
    address = f"http://127.0.0.1:{closed_port()}"
    assert "Connection refused" in fails("http_model", address, "text")


def test_http_missing_scheme_is_refused():
    assert "did you mean http://localhost:8000?" in fails("http_model", "localhost:8000", "text")


# ---- the repository ------------------------------------------------------------------------------

def test_http_repository(start_server):
    live = start_server("--model-repository", MODELS, "--model-control-mode", "explicit", "--load-model", "text")
    at = f"http://{live.address}"
    states = {entry["name"]: entry.get("state", "") for entry in json.loads(says("http_repository", at, "index"))}
    assert (states["text"], states["numbers"]) == ("READY", "")
    assert says("http_repository", at, "load", "numbers") == ""
    assert says("http_binary", at, "numbers", "IN", "7") == "7\n"
    assert json.loads(says("http_repository", at, "config", "numbers"))["backend"] == "identity"
    [statistics] = json.loads(says("http_repository", at, "statistics", "numbers"))["model_stats"]
    assert statistics["inference_count"] == 1
    assert len(json.loads(says("http_repository", at, "statistics"))["model_stats"]) == 2
    assert says("http_repository", at, "unload", "numbers") == ""
    assert "numbers" in fails("http_binary", at, "numbers", "IN", "7")
    config = {"backend": "identity", "input": [{"name": "OTHER", "data_type": "TYPE_FP32", "dims": [-1]}],
              "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]}
    assert says("http_repository", at, "load", "numbers", json.dumps(config)) == ""
    assert says("http_binary", at, "numbers", "OTHER", "7") == "7\n"
    assert "absent" in fails("http_repository", at, "load", "absent")
    assert "absent" in fails("http_repository", at, "config", "absent")
    assert says("http_binary", at, "numbers", "OTHER", "8") == "8\n"


# ---- headers -------------------------------------------------------------------------------------

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(name="guarded", scope="module")
def start_guarded(tmp_path_factory):
    """The URL of a server that wants a key for metadata."""
    folder = tmp_path_factory.mktemp("guarded")
    keys = folder / "keys.yaml"
    keys.write_text("metadata: [my-own-key]\n")
    with server.Server(folder, ["--model-repository", MODELS, "--keys", keys], wait="listening") as live:
        live.wait_for(lambda: os.path.exists(live.ready_file), "a ready file")
        yield f"http://{live.address}"


def test_http_key(guarded):
    assert says("http_key", guarded, "text", "my-own-key", TRACEPARENT) == (
        "text version 1\nContent-Type: application/json\n")


def test_http_wrong_key_is_refused_with_header(guarded):
    code, out, err = run("http_key", guarded, "text", "another-key", TRACEPARENT)
    assert (code, out.decode()) == (1, 'WWW-Authenticate: Bearer realm="sluice"\n')
    assert "(HTTP 401)" in err.decode() and "another-key" not in err.decode()


@pytest.mark.parametrize("key, traceparent, reason", [
    ("a key", TRACEPARENT, "bearer_token"),
    ("my-own-key\r\nX: y", TRACEPARENT, "bearer_token"),
    ("my-own-key", TRACEPARENT.upper(), "traceparent"),
])
def test_http_invalid_header_is_refused(guarded, key, traceparent, reason):
    assert reason in fails("http_key", guarded, "text", key, traceparent)
    assert says("http_key", guarded, "text", "my-own-key", TRACEPARENT)


# ---- MIP -----------------------------------------------------------------------------------------

def upper(items):
    """Upper-cases texts; a JSON value is answered in two items."""
    outputs = []
    for kind, data in items:
        if kind == mip_server.TEXT:
            outputs.append((kind, data.decode().upper().encode()))
        else:
            outputs += [(kind, data), (mip_server.TEXT, str(len(data)).encode())]
    return outputs


@pytest.fixture(params=["tcp", "unix"])
def mip(request, tmp_path):
    """The address of a server that upper-cases."""
    with MipServer(upper, tmp_path / "s" if request.param == "unix" else None) as live:
        yield live.url


def test_mip(mip):
    assert says("mip", mip, "text", "one", "", "zwölf") == "0: ONE\n1: \n2: ZWÖLF\n"
    assert says("mip", mip, "json", "[1, 2]", "{}") == "0: [1, 2] 6\n1: {} 2\n"


def test_mip_against_sluice(live):
    texts, numbers, _ = live.mip_urls
    assert says("mip", texts, "text", *"abcdefghijk") == "".join(
        f"{i}: {text}\n" for i, text in enumerate("abcdefghijk"))
    assert says("mip", numbers, "json", "[1, 2.5]", "[-3]") == "0: [1.0,2.5]\n1: [-3.0]\n"
    assert "INTERNAL" in fails("mip", numbers, "text", "x")


@pytest.mark.parametrize("error", mip_server.ERRORS)
def test_mip_errors(error):
    def refuse(_):
        raise Refuse(error)
    with MipServer(refuse) as live:
        assert error in fails("mip", live.url, "text", "x").upper()


def test_mip_without_a_server(tmp_path):
    assert "Connection refused" in fails("mip", f"tcp://127.0.0.1:{closed_port()}", "text", "x")
    assert "No such file" in fails("mip", f"unix://{tmp_path}/absent", "text", "x")


def test_mip_image(tmp_path):
    """The server gets the files byte for byte, each on a connection of its own, as it closes them."""
    came = []

    def look(items):
        came.extend(items)
        return [(mip_server.JSON, b'{"cat": %d}' % len(items[0][1]))]
    pictures = [tmp_path / "a.jpg", tmp_path / "b.png"]
    pictures[0].write_bytes(b"\xff\xd8\xff\xe0" + bytes(1000))
    pictures[1].write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(3_000_000))
    with MipServer(look) as live:
        assert says("mip_image", live.url, *pictures) == (
            f'{pictures[0]}: {{"cat": 1004}}\n{pictures[1]}: {{"cat": 3000008}}\n')
        assert live.n_requests == 2
        absent = fails("mip_image", live.url, tmp_path / "absent")
        assert absent == f"{tmp_path}/absent can't be read"
    assert came == [(mip_server.IMAGE, picture.read_bytes()) for picture in pictures]


def test_mip_image_against_sluice(live, tmp_path):
    """A picture whose left half is black and whose right half is white, and a file that is none."""
    picture = Image.new("RGB", (40, 20))
    picture.paste((255, 255, 255), (20, 0, 40, 20))
    paths = [tmp_path / name for name in ("a.png", "a.jpg", "a.webp", "a.gif")]
    for path in paths:
        picture.save(path)
    said = says("mip_image", live.mip_urls[2], *paths).splitlines()
    for path, line in zip(paths, said, strict=True):
        [[left, right], _] = json.loads(line.removeprefix(f"{path}: "))[0]
        assert left < 64 < 192 < right
    assert "INTERNAL" in fails("mip_image", live.mip_urls[2], __file__)


# ---- many at once --------------------------------------------------------------------------------

def answering_together(n):
    """A server that pings back only when all `n` connections have asked. Returns: (URL, its thread)."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(http1.PATIENCE)

    def serve():
        with listener:
            connections = [listener.accept()[0] for _ in range(n)]
        for connection in connections:
            connection.settimeout(http1.PATIENCE)
            assert connection.recv(8, socket.MSG_WAITALL) == struct.pack("!BBBBL", 0, 1, 0, 0, 0)
        for connection in connections:
            connection.sendall(struct.pack("!BBBBL", 0, 1, 1, 0, 0))
            connection.close()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return f"tcp://127.0.0.1:{listener.getsockname()[1]}", thread


def test_event_loop(url):
    together, thread = answering_together(3)
    nobody = f"http://127.0.0.1:{closed_port()}"
    said = says("event_loop", url, together, nobody, together, together).splitlines()
    thread.join(http1.PATIENCE)
    assert not thread.is_alive()
    assert sorted(line for line in said if line.endswith(": ok")) == sorted(
        [f"{url}: ok"] + 3 * [f"{together}: ok"])
    assert [line for line in said if line.startswith(nobody) and "refused" in line]
    assert len(said) == 5


def test_uv_loop(url):
    lines = says("uv_loop", url, "numbers", "half", "text", *8 * ["picture"]).splitlines()
    assert sorted(lines) == sorted(["numbers: 1", "half: 1", "text: 1", *8 * ["picture: 1"]])


def test_uv_loop_failures(url):
    code, out, err = run("uv_loop", url, "numbers", "absent")
    lines = sorted(out.decode().splitlines())
    assert (code, err, lines[1], len(lines)) == (1, b"", "numbers: 1", 2)
    assert lines[0].startswith("absent: ") and "(HTTP 404)" in lines[0]
    code, out, err = run("uv_loop", f"http://127.0.0.1:{closed_port()}", "numbers", "half")
    assert (code, err, out.count(b"Connection refused")) == (1, b"", 2)


def test_many_calls(live, url):
    """A thousand inferences in flight, over sixteen connections at most."""
    name = "sluice_accepted_connections_total"
    before = metrics.read(live.address)[name]
    assert says("many_calls", url, "numbers", "IN", 1000) == "499500\n"
    assert metrics.read(live.address)[name] - before <= 16 + 1
    assert says("many_calls", url, "numbers", "IN", 1) == "0\n"
    assert says("many_calls", f"http+{live.addresses[1]}", "numbers", "IN", 100) == "4950\n"


def test_many_calls_failures():
    assert "Connection refused" in fails("many_calls", f"http://127.0.0.1:{closed_port()}", "numbers", "IN", 100)


def test_many_calls_server_error(url):
    assert "WRONG" in fails("many_calls", url, "numbers", "WRONG", 100)
    assert says("many_calls", url, "numbers", "IN", 10) == "45\n"


# ---- TLS -----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), "localhost")


def address_of(url):
    return url.removeprefix("http://")


def test_tls_large_bodies_over_one_connection(url, certificate):
    """Bodies of less and of more than a record of TLS, over one connection."""
    with TlsProxy(address_of(url), *certificate) as proxy:
        assert says("tls_openssl", f"https://localhost:{proxy.port}", "numbers", "IN",
                    1, 3, 5000, 1_000_000, 3, SSL_CERT_FILE=str(certificate[0])) == 5 * "the same\n"
        assert proxy.n_connections == 1


def test_tls_untrusted_certificate_is_refused(url, certificate):
    with TlsProxy(address_of(url), *certificate) as proxy:
        assert "self-signed certificate" in fails(
            "tls_openssl", f"https://localhost:{proxy.port}", "numbers", "IN", 3)


def test_tls_hostname_mismatch_is_refused(url, tmp_path):
    other = make_certificate(tmp_path, "elsewhere")
    with TlsProxy(address_of(url), *other) as proxy:
        assert "ostname mismatch" in fails("tls_openssl", f"https://localhost:{proxy.port}", "numbers",
                                           "IN", 3, SSL_CERT_FILE=str(other[0]))


@pytest.mark.parametrize("after", [0, 100_000])
def test_tls_truncated_answer_fails(url, certificate, after):
    with TlsProxy(address_of(url), *certificate, cut_after=after) as proxy:
        fails("tls_openssl", f"https://localhost:{proxy.port}", "numbers", "IN", 1_000_000,
              SSL_CERT_FILE=str(certificate[0]))


def test_tls_plaintext_server_fails(url):
    fails("tls_openssl", url.replace("http://127.0.0.1", "https://localhost"), "numbers", "IN", 3)

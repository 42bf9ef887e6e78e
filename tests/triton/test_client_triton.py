"""The programs of examples/client against a real Triton, whose models are in models/ here: make test-triton, which
sets TRITON to the folder of its server. The rows of the table in docs/client.md, what differs between Triton and
`sluice serve`, are run against both."""
import json
import os
import re
import signal
import subprocess

import pytest

from lib import http1, server
from lib.ports import free_ports
from lib.tls_client import Pki
from lib.tls_proxy import TlsProxy, make_certificate
from lib.triton import START_S, triton

EXAMPLES = os.path.join(server.ROOT, "examples", "client")
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    ports = free_ports(2)
    with triton(*ports, tmp_path_factory.mktemp("triton") / "log", models=MODELS):
        yield {"http": f"http://127.0.0.1:{ports[0]}", "grpc": f"grpc://127.0.0.1:{ports[1]}"}


@pytest.fixture(params=["http", "grpc"])
def url(request, live):
    return live[request.param]


def program(name):
    return os.path.join(server.build(), "examples", "client", name)


def run(name, *args, stdin="", **env):
    """Returns: (exit code, standard output, standard error)."""
    done = subprocess.run([program(name), *map(str, args)], input=stdin, capture_output=True, text=True,
                          env=os.environ | env, timeout=2 * http1.PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A Triton that wants a key for health and metadata, over HTTP and over gRPC, where it has TLS."""
    folder = tmp_path_factory.mktemp("guarded")
    pki = Pki(folder)
    ports = free_ports(2)
    (folder / "models").mkdir()
    with triton(*ports, folder / "log", "--http-restricted-api=health,metadata:authorization=Bearer my-own-key",
                "--grpc-restricted-protocol=metadata:key=my-own-key", "--grpc-use-ssl=true",
                f"--grpc-server-cert={pki.server_files[0]}", f"--grpc-server-key={pki.server_files[1]}",
                models=folder / "models", key="Bearer my-own-key"):
        yield ports, pki


def cpp(name, folder):
    """Builds a C++ example, with the command in its first lines. Returns: the program."""
    with open(os.path.join(EXAMPLES, f"{name}.cpp"), encoding="utf-8") as source:
        command = re.search(r"^ \*     (c\+\+ .*) \$\(pkg-config .*\)$", source.read(), re.MULTILINE)[1].split()
    libraries = os.path.join(server.build(), "lib")
    subprocess.run([*command[:-1], folder / name, "-I", os.path.join(server.ROOT, "include"), "-L", libraries, "-lsluice",
                    f"-Wl,-rpath,{libraries}"], check=True, cwd=EXAMPLES)
    return folder / name


def test_health_with_a_key_over_tls(guarded, tmp_path):
    """Over HTTP, where Triton has no TLS of its own, it has a proxy in front of it. Over gRPC its key is a header of
    another name."""
    (http, grpc), pki = guarded
    files = make_certificate(tmp_path, "localhost")
    with TlsProxy(f"127.0.0.1:{http}", *files) as proxy:
        for health in (program("health"), cpp("health", tmp_path)):
            url = f"https://localhost:{proxy.port}"
            assert run(health, url, files[0], "my-own-key") == (0, "ready\n", "")
            assert run(health, url, files[0], "another-key") == (1, "not ready\n", "")
            code, out, err = run(health, url, pki.ca, "my-own-key")
            assert (code, out) == (1, "") and err.startswith("health: SLUICE_CLIENT_TLS: "), err
            assert run(health, f"grpcs://localhost:{grpc}", pki.ca, "my-own-key") == (0, "ready\n", "")
            code, out, err = run(health, f"grpcs://localhost:{grpc}", files[0], "my-own-key")
            assert (code, out) == (1, "") and err.startswith("health: SLUICE_CLIENT_TLS: "), err


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_reconnect(protocol, tmp_path):
    """One client; the server is stopped, started again, killed, and started again, between two calls."""
    ports = free_ports(2)
    (tmp_path / "models").mkdir()

    def start():
        return triton(*ports, tmp_path / "log", models=tmp_path / "models")
    with subprocess.Popen([program("reconnect"), f"{protocol}://127.0.0.1:{ports[protocol == 'grpc']}"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asked:
        def ask():
            asked.stdin.write("\n")
            asked.stdin.flush()
            return asked.stdout.readline()
        with start():
            assert ask().startswith("triton ")
        assert ask().startswith("SLUICE_CLIENT_CONNECT: ")
        with start() as process:
            assert [ask().split()[0] for _ in range(3)] == 3 * ["triton"]
            process.send_signal(signal.SIGKILL)
            process.wait(START_S)
            assert ask().startswith("SLUICE_CLIENT_CONNECT: ")
        with start():
            assert ask().startswith("triton ")
        asked.stdin.close()
        assert asked.wait(http1.PATIENCE) == 0


def test_deadlines(url):
    assert run("deadline", url, "slow", "IN", 20, 60000, 20) == (
        0, "20 ms: too late\n60000 ms: in time\n20 ms: too late\n", "")


def test_a_thousand_calls(url):
    assert run("many_calls", url, "numbers", "IN", 1000) == (0, "499500\n", "")


def test_strings(live):
    assert run("http_json", live["http"], "text", "IN", "one", "", "zwölf ☃") == (
        0, "OUT: one\nOUT: \nOUT: zwölf ☃\n", "")


def test_numbers_and_half(url):
    assert run("http_binary", url, "numbers", "IN", 1, 2.5, -3e10) == (0, "1 2.5 -3e+10\n", "")
    assert run("http_half", url, "half", "IN", 1, -2.5, 0.1) == (0, "1 -2.5 0.0999756\n", "")


def test_metadata(url):
    assert run("http_model", url, "numbers") == (
        0, "numbers version 1, ready\ninput IN: FP32, shape [-1]\noutput OUT: FP32, shape [-1]\n", "")
    code, out, err = run("http_model", url, "absent")
    assert (code, out) == (1, "") and "absent" in err


def test_tokens(live):
    assert run("tokens", live["grpc"], "tokens", "IN", "OUT", "a b", 3) == (0, 3 * "a b\n", "")


def test_shared_memory(url):
    assert run("shared_memory", url, "numbers", "IN", "OUT", 1, 2.5) == (0, "1\n2.5\n", "")


def test_classes(url):
    assert run("classes", url, "numbers", "IN", "OUT", 2, 0.5, 7, 3)[:2] == (0, "7: 1 \n3: 2 \n")


# ---- what differs from `sluice serve`: the table in docs/client.md -------------------------------

class Both:
    """Runs a program against Triton and `sluice serve`. Both answer, afterwards, a good request."""

    def __init__(self, triton_urls, sluice):
        self.urls = {"http": (triton_urls["http"], f"http://{sluice.address}"),
                     "grpc": (triton_urls["grpc"], f"grpc://{sluice.grpc_address}")}

    def run(self, protocol, name, *args, stdin=""):
        """Returns: what Triton, and what Sluice made of it."""
        answers = [run(name, url, *args, stdin=stdin) for url in self.urls[protocol]]
        for url in self.urls[protocol]:
            assert run("http_binary", url, "numbers", "IN", 1) == (0, "1\n", "")
        return answers

    def status(self, protocol, name, *args, stdin=""):
        """Returns: in what both errors end, as "(HTTP 400)"; None where there was none."""
        return [err.strip().rsplit(" (")[-1].rstrip(")") if code else None
                for code, _, err in self.run(protocol, name, *args, stdin=stdin)]


@pytest.fixture(scope="module")
def both(live, tmp_path_factory):
    with server.Server(tmp_path_factory.mktemp("sluice"), ["--model-repository", os.path.join(EXAMPLES, "models")],
                       grpc=("127.0.0.1:0",)) as sluice:
        yield Both(live, sluice)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_same_statuses(both, protocol):
    bad, absent, twofold = {"http": ("HTTP 400", "HTTP 404", "HTTP 501"),
                            "grpc": ("gRPC INVALID_ARGUMENT", "gRPC NOT_FOUND", "gRPC UNIMPLEMENTED")}[protocol]
    load = {"http": "HTTP 503", "grpc": "gRPC UNAVAILABLE"}[protocol]
    for status, command in [(absent, ("http_model", "absent")), (absent, ("http_binary", "absent", "IN", 1)),
                            (bad, ("http_binary", "numbers", "WRONG", 1)), (bad, ("http_binary", "text", "IN", 1)),
                            (bad, ("classes", "numbers", "IN", "WRONG", 2, 0.5, 7)),
                            (twofold, ("http_binary", "tokens", "IN", 1)),
                            (load, ("http_repository", "load", "numbers")), (load, ("http_repository", "unload", "numbers"))]:
        assert both.status(protocol, *command) == [status, status], command


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_error_text_of_unknown_model(both, protocol):
    (_, _, triton_says), (_, _, sluice_says) = both.run(protocol, "http_model", "absent")
    assert "Request for unknown model: 'absent' is not found" in triton_says
    assert "Request for unknown model: 'absent' is not found" in sluice_says


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_differs_server_name(both, protocol):
    assert [out.split()[0] for _, out, _ in both.run(protocol, "reconnect", stdin="\n")] == ["triton", "sluice"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_differs_shared_memory(both, protocol):
    """Triton has it unless a server is started otherwise, Sluice the other way round."""
    triton_answer, (code, out, err) = both.run(protocol, "shared_memory", "numbers", "IN", "OUT", 1)
    assert triton_answer == (0, "1\n", "")
    assert (code, out) == (1, "") and err.endswith({"http": "(HTTP 501)\n", "grpc": "(gRPC UNIMPLEMENTED)\n"}[protocol])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_differs_model_config(both, protocol):
    configs = [json.loads(out) for _, out, _ in both.run(protocol, "http_repository", "config", "numbers")]
    assert [config["backend"] for config in configs] == ["python", "identity"]
    assert [config["instance_group"][0]["count"] for config in configs] == [1, 2]
    for field in ("name", "input", "output", "max_batch_size", "version_policy"):
        assert configs[0][field] == configs[1][field]


def test_differs_raw_requests(both):
    """Triton takes one only where the model's shape is [1] for BYTES, and fixed for numbers."""
    (_, _, triton_says), sluice_answer = both.run("http", "http_raw", "text", stdin="a text")
    assert "the model must have input shape [1]" in triton_says and sluice_answer == (0, "a text", "")


def test_differs_keys(guarded, tmp_path, start_server):
    """Triton's key is a header of any name and value: the one of `bearer_token` over HTTP. Over gRPC the name begins
    with `triton-grpc-protocol-`, so the program sends it as a header."""
    (http, grpc), pki = guarded
    keys = tmp_path / "keys.yaml"
    keys.write_text("metadata: [my-own-key]\n")
    sluice = start_server("--model-repository", os.path.join(EXAMPLES, "models"), "--keys", keys, wait="listening",
                          grpc=("127.0.0.1:0",))
    sluice.wait_for(lambda: os.path.exists(sluice.ready_file), "a ready file")

    def ask(url, key, **env):
        return run("http_key", url, "numbers", key, TRACEPARENT, **env)
    code, out, err = ask(f"http://127.0.0.1:{http}", "another-key")
    assert (code, out) == (1, "") and err.endswith("(HTTP 403)\n")
    assert "404" in ask(f"http://127.0.0.1:{http}", "my-own-key")[2]  # it has no models
    code, out, err = ask(f"http://{sluice.address}", "another-key")
    assert (code, out) == (1, 'WWW-Authenticate: Bearer realm="sluice"\n') and err.endswith("(HTTP 401)\n")
    assert ask(f"http://{sluice.address}", "my-own-key")[0] == 0
    url = f"grpc://{server.grpc_addresses_in(sluice.ready_file)[0]}"
    assert "(gRPC UNAUTHENTICATED)" in ask(url, "another-key")[2] and ask(url, "my-own-key")[0] == 0
    assert "(gRPC UNAVAILABLE)" in ask(f"grpcs://localhost:{grpc}", "my-own-key", SSL_CERT_FILE=pki.ca)[2]

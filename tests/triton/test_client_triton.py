"""The programs of examples/client against a real Triton, whose models are in models/ here: make test-triton, which
sets TRITON to the folder of its server."""
import contextlib
import os
import socket
import subprocess
import time
import urllib.request

import pytest

from lib import http1, server
from lib.tls_proxy import TlsProxy, make_certificate

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
TRITON = os.environ["TRITON"]
START_S = 120


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def triton(http, grpc, log):
    """A server that is ready: its ports are given, as it can't choose them itself."""
    with open(log, "ab") as out:
        started = subprocess.Popen(
            [f"{TRITON}/bin/tritonserver", f"--model-repository={MODELS}", f"--backend-directory={TRITON}/backends",
             "--http-address=127.0.0.1", f"--http-port={http}", "--grpc-address=127.0.0.1", f"--grpc-port={grpc}",
             "--allow-metrics=false"], stdout=out, stderr=out,
            env=os.environ | {"LD_LIBRARY_PATH": os.path.join(TRITON, "..", "..", "nvidia_pytriton.libs")})
    try:
        end = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{http}/v2/health/ready"):
                break
            assert started.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.1)
        yield
    finally:
        started.terminate()
        started.wait(START_S)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    ports = free_port(), free_port()
    with triton(*ports, tmp_path_factory.mktemp("triton") / "log"):
        yield {"http": f"http://127.0.0.1:{ports[0]}", "grpc": f"grpc://127.0.0.1:{ports[1]}"}


@pytest.fixture(params=["http", "grpc"])
def url(request, live):
    return live[request.param]


def program(name):
    return os.path.join(server.build(), "examples", "client", name)


def run(name, *args):
    """Returns: (exit code, standard output, standard error)."""
    done = subprocess.run([program(name), *map(str, args)], capture_output=True, text=True,
                          timeout=2 * http1.PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def test_health_over_tls(live, tmp_path):
    files = make_certificate(tmp_path, "localhost")
    with TlsProxy(live["http"].removeprefix("http://"), *files) as proxy:
        assert run("health", f"https://localhost:{proxy.port}", files[0], "a-key") == (0, "ready\n", "")


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

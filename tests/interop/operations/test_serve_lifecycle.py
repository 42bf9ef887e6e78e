"""The life of `sluice serve`: starting, not being able to, listening before it is ready, ending."""
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

from lib import http1, repository, server
from lib.http1 import Connection

pytestmark = pytest.mark.plain

HALF = (b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: localhost\r\n"
        b'Content-Length: 71\r\n\r\n{"inputs":')
OTHER_HALF = b'[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'


def get(running, target):
    answer = http1.request(running.address, "GET", target)
    return answer.status, json.loads(answer.body)


def fail_to_serve(*args):
    """Runs `sluice serve`, which must refuse. Returns: what it said. Other tests may use the default ports."""
    done = server.run("serve", "--grpc", "none", "--metrics", "none", *args)
    assert done.returncode not in (0, None) and done.returncode > 0, done
    assert not server.SANITIZER.search(done.stderr), done.stderr
    return done.stderr


# ---- starting ------------------------------------------------------------------------------------

@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_start_with_closed_descriptors(start_server, repositories, closed):
    """Other files would get their numbers. The log cannot be read then, but the ready file."""
    running = start_server("--model-repository", repositories("default"),
                           prefix=("sh", "-c", f'exec "$@" {closed}', "sh"))
    for fd in range(3):
        target = os.readlink(f"/proc/{running.pid}/fd/{fd}")
        assert target == "/dev/null" or target.endswith("/log"), (fd, target)
    assert get(running, "/v2/health/ready") == (200, {"live": True, "ready": True})
    running.signal()
    assert running.wait_exit() == 0


def test_ready_file_lists_each_address(start_server, repositories, tmp_path):
    running = start_server("--model-repository", repositories("default"),
                           listen=("127.0.0.1:0", "[::1]:0", f"unix:{tmp_path}/s"))
    assert len(running.addresses) == 3
    assert running.addresses[0].startswith("127.0.0.1:") and running.addresses[0][-2:] != ":0"
    assert running.addresses[1].startswith("[::1]:")
    assert running.addresses[2] == f"unix:{tmp_path}/s"
    for address in running.addresses:
        assert http1.request(address, "GET", "/v2/health/ready").status == 200


def test_start_port_in_use_fails(repositories):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        said = fail_to_serve("--model-repository", repositories("default"), "--http", address)
        lines = fail_to_serve("--model-repository", repositories("default"), "--http", address,
                              "--log-format", "json").splitlines()
    assert address in said and "in use" in said
    assert [json.loads(line)["level"] for line in lines][-1] == "error"


def test_start_unix_socket_in_use_fails_stale_is_replaced(start_server, repositories, tmp_path):
    path = f"unix:{tmp_path}/s"
    first = start_server("--model-repository", repositories("default"), listen=(path,))
    said = fail_to_serve("--model-repository", repositories("default"), "--http", path)
    assert str(tmp_path) in said
    assert http1.request(path, "GET", "/v2/health/ready").status == 200
    first.kill()  # leaves its file behind
    second = start_server("--model-repository", repositories("default"), listen=(path,))
    assert http1.request(second.address, "GET", "/v2/health/ready").status == 200


@pytest.fixture
def digits(tmp_path, repositories):
    """Two model files of one name in different folders."""
    paths = []
    for folder in ("a", "b"):
        os.makedirs(tmp_path / folder)
        paths.append(str(tmp_path / folder / "digits.onnx"))
        shutil.copy(os.path.join(repositories("onnx-only"), "onnx_add", "1", "model.onnx"),
                    paths[-1])
    return paths


def test_start_duplicate_model_name_fails(digits):
    said = fail_to_serve("--http", "127.0.0.1:0", *digits)
    assert "digits" in said
    said = fail_to_serve("--http", "127.0.0.1:0", f"x={digits[0]}", f"x={digits[1]}")
    assert "x" in said


def test_start_model_file_gets_name(start_server, digits):
    running = start_server(digits[0], f"other={digits[1]}")
    assert get(running, "/v2/models/digits")[1]["name"] == "digits"
    assert get(running, "/v2/models/other")[1]["versions"] == ["1"]


@pytest.mark.parametrize("args, words", [
    (["/nowhere/model.onnx"], "/nowhere/model.onnx"),
    (["--model-repository", "/nowhere"], "/nowhere"),
    (["--http", "nonsense"], "nonsense"),
    (["--http", "127.0.0.1:99999"], "99999"),
    (["--frobnicate"], "--frobnicate"),
    (["--max-body-size", "lots"], "--max-body-size"),
])
def test_start_invalid_model_fails(args, words, tmp_path):
    listener = [] if "--http" in args else ["--http", "127.0.0.1:0"]
    assert words in fail_to_serve("--model-repository", tmp_path, *listener, *args)


def test_start_empty_repository_is_ready(start_server, tmp_path):
    os.makedirs(tmp_path / "empty")
    running = start_server("--model-repository", tmp_path / "empty")
    assert get(running, "/v2/health/ready")[0] == 200
    assert get(running, "/v2/models/any")[0] == 404


def test_start_broken_model_keeps_others_serving(start_server, repositories):
    """Its script is 060-broken-models; here: no ready file, and --strict-readiness false."""
    strict = start_server("--model-repository", repositories("broken"), wait="loaded")
    for running in (strict,):
        running.expect_error("no_backend")
        running.expect_error("bad_field")
        running.expect_error("not_onnx")
    assert not os.path.exists(strict.ready_file)
    assert get(strict, "/v2/models/id_fp32/ready")[0] == 200
    loose = start_server("--model-repository", repositories("broken"), "--strict-readiness",
                         "false")
    loose.expected_errors += strict.expected_errors
    assert get(loose, "/v2/health/ready")[0] == 200
    assert get(loose, "/v2/models/not_onnx/ready")[0] == 503


def test_run_writes_nothing_to_home(start_server, digits, tmp_path, monkeypatch):
    """ONNX Runtime would report to its makers, and keep an identifier for it, if it were let. It
    reports nothing where it finds signs of a CI: those are taken away."""
    home = tmp_path / "home"
    home.mkdir()
    for name in list(os.environ):
        if name not in ("PATH", "SLUICE_BUILD") and not name.endswith("SAN_OPTIONS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    start_server(digits[0]).stop()
    assert not list(home.rglob("*"))


# ---- before it is ready --------------------------------------------------------------------------

def test_start_listens_before_models_are_loaded(start_server, gate):
    running = start_server(*gate.args, wait="listening")
    assert get(running, "/v2/health/live") == (200, {"live": True})
    assert get(running, "/v2/health/ready") == (503, {"live": False, "ready": False})
    assert get(running, "/v2/models/gated/ready") == (503, {"name": "gated", "ready": False})
    assert get(running, "/v2/models/gated")[0] == 503
    # Which models there are is known when the repository was scanned, which is after the listeners.
    running.wait_for(lambda: get(running, "/v2/models/nope")[0] == 404, "404 of a model that is not there")
    assert get(running, "/v2/models/gated")[0] == 503
    body = b'{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}'
    answer = http1.request(running.address, "POST", "/v2/models/gated/infer", body)
    assert answer.status == 503 and b"gated" in answer.body
    assert not os.path.exists(running.ready_file)
    gate.open()
    running.wait_ready()
    assert get(running, "/v2/health/ready") == (200, {"live": True, "ready": True})
    assert get(running, "/v2/models/gated/ready") == (200, {"name": "gated", "ready": True})


def test_start_removes_stale_ready_file(gate, tmp_path):
    """A server that was killed could not remove it."""
    def wait_until(fits):
        end = time.monotonic() + http1.PATIENCE
        while not fits():
            assert child.poll() is None and time.monotonic() < end
            time.sleep(0.01)

    ready = tmp_path / "ready"
    ready.write_text("http://127.0.0.1:1\n")
    child = subprocess.Popen([server.binary(), "serve", *gate.args, "--http", "127.0.0.1:0",
                              "--grpc", "none", "--metrics", "none", "--ready-file", ready])
    try:
        wait_until(lambda: not ready.exists())
        gate.open()
        wait_until(ready.exists)
        assert server.addresses_in(ready) != ["127.0.0.1:1"]
        assert ready.stat().st_mode & 0o444
    finally:
        child.terminate()
        assert child.wait(http1.PATIENCE) == 0


def test_infer_backend_error_is_reported(start_server, gate):
    gate.open()
    running = start_server(*gate.args)
    body = b'{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}'
    answer = http1.request(running.address, "POST", "/v2/models/gated/infer", body)
    assert answer.status == 503 and b"nothing behind the gate" in answer.body


def test_sigterm_while_loading_exits(start_server, gate):
    running = start_server(*gate.args, "--drain-timeout", "200ms", wait="listening")
    running.signal(signal.SIGTERM)
    assert running.wait_exit() == 0


# ---- ending --------------------------------------------------------------------------------------

def test_sigterm_at_rest_exits(start_server, repositories):
    running = start_server("--model-repository", repositories("default"))
    running.signal(signal.SIGTERM)
    assert running.wait_exit() == 0
    assert not os.path.exists(running.ready_file)


def test_ready_file_of_successor_stays(start_server, repositories, tmp_path):
    old = start_server("--model-repository", repositories("default"))
    held = open(old.ready_file, "rb")  # so that its inode is not used again
    first = os.stat(old.ready_file).st_ino
    written = lambda: os.path.exists(old.ready_file) and os.stat(old.ready_file).st_ino != first
    new = subprocess.Popen([server.binary(), "serve", "--model-repository", repositories("default"),
                            "--http", "127.0.0.1:0", "--grpc", "none", "--metrics", "none",
                            "--ready-file", old.ready_file], stderr=subprocess.DEVNULL)
    try:
        old.wait_for(written, "the ready file of the other")
        old.stop()
        assert written()
        new.terminate()
        assert new.wait(http1.PATIENCE) == 0
        assert not os.path.exists(old.ready_file)
    finally:
        held.close()
        new.kill()
        new.wait()


def test_sigusr1_is_ignored(start_server, repositories):
    running = start_server("--model-repository", repositories("default"))
    running.signal(signal.SIGUSR1)
    assert get(running, "/v2/health/ready")[0] == 200


def test_sigterm_does_not_wait_for_trace_pipe(start_server, repositories, tmp_path):
    os.mkfifo(tmp_path / "traces")
    running = start_server("--model-repository", repositories("default"), "--trace-config",
                           f"triton,file={tmp_path}/traces", "--trace-config", "level=TIMESTAMPS",
                           "--trace-config", "rate=1", "--drain-timeout", "1h")
    running.expect_error("cannot write traces")
    assert http1.request(running.address, "POST", "/v2/models/id_fp32/infer",
                         HALF.split(b"\r\n\r\n")[1] + OTHER_HALF).status == 200
    running.signal(signal.SIGTERM)
    assert running.wait_exit() == 0
    assert "cannot write traces" in running.log_text()


def test_second_signal_exits_at_once(start_server, repositories):
    running = start_server("--model-repository", repositories("default"),
                           "--drain-timeout", "1h")
    with Connection(running.address) as connection:
        connection.send(HALF)
        running.wait_for(lambda: server.metrics.read(running.address)
                         ["sluice_requests_in_flight"] == 2, "the request in flight")
        running.signal(signal.SIGTERM)
        http1.wait_for_status(running.address, 503, "/v2/health/ready")
        running.signal(signal.SIGTERM)
        assert running.wait_exit() == 128 + signal.SIGTERM


def test_drain_timeout_removes_unix_socket(start_server, repositories, tmp_path):
    path = tmp_path / "s"
    running = start_server("--model-repository", repositories("default"), "--drain-timeout", "10ms",
                           listen=(f"unix:{path}",))
    with Connection(running.address) as connection:
        connection.send(HALF)
        running.wait_for(lambda: server.metrics.read(running.address)
                         ["sluice_requests_in_flight"] == 2, "the request in flight")
        running.signal(signal.SIGTERM)
        assert running.wait_exit() == 0
    assert "requests in flight are aborted" in running.log_text()
    assert not path.exists()


def test_drain_answers_whole_or_closes(start_server, repositories):
    """Clients that keep asking: each request is answered whole or its connection is closed before an
    answer begins; never half."""
    running = start_server("--model-repository", repositories("default"))
    connections = [Connection(running.address) for _ in range(50)]
    for connection in connections:
        connection.send(HALF)
    running.wait_for(lambda: server.metrics.read(running.address)
                     ["sluice_requests_in_flight"] == 51, "all in flight")
    running.signal(signal.SIGTERM)
    http1.wait_for_status(running.address, 503, "/v2/health/ready")
    for connection in connections:
        connection.send(OTHER_HALF)
    for connection in connections:
        answer = connection.read_answer("POST")
        assert answer.status == 200 and answer.says_close()
        assert connection.read_end() == b""
        connection.close()
    assert running.wait_exit() == 0


# ---- --check -------------------------------------------------------------------------------------

def test_check_prints_each_model(repositories):
    done = server.run("serve", "--check", "--model-repository", repositories("onnx-only"))
    assert done.returncode == 0, done.stderr
    for word in ("onnx_add", "FP32", "sum", "diff", "64", "onnx_dynamic", "BYTES"):
        assert word in done.stdout, done.stdout


def test_check_broken_model_fails(repositories):
    done = server.run("serve", "--check", "--model-repository", repositories("broken"))
    assert done.returncode == 1
    said = done.stdout + done.stderr
    for word in ("no_backend", "bad_field", "not_onnx", "id_fp32", "max_batch_sise"):
        assert word in said, said
    assert not server.SANITIZER.search(said)


def test_check_opens_no_listener(repositories):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        done = server.run("serve", "--check", "--http", address, "--model-repository",
                          repositories("default"))
    assert done.returncode == 0, done.stderr


def test_scenario_models_are_ready(start_server, repositories):
    """What the scripts rely on: no model of theirs is quietly missing."""
    running = start_server("--model-repository", repositories("default"))
    for model in repository.IDENTITIES:
        name = model.name.replace(" ", "%20").replace("ü", "%C3%BC")
        assert get(running, f"/v2/models/{name}/ready") == (200, {"name": model.name, "ready": True})

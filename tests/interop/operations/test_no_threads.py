"""No thread can be started (RLIMIT_NPROC, pids.max of a control group): at the start, by each of the threads that
are started there, and at a load. No descriptor is left at a load."""
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest

from lib import http1, repository
from lib.server import ROOT, binary, is_sanitized

WORDS = "no more threads can be started (ulimit -u, pids.max of the control group)"
POOL = "endpoints: [127.0.0.1:9]\nhealth: {tcp: true}\nmetrics: {preset: sglang}\n"

pytestmark = [pytest.mark.plain,
              pytest.mark.skipif(is_sanitized(), reason="a sanitizer's library must be loaded first")]


@pytest.fixture(scope="module", name="preload")
def preload_fixture(tmp_path_factory):
    """The library that lets no thread be started."""
    out = tmp_path_factory.mktemp("preload") / "no_threads.so"
    subprocess.run(["cc", "-std=c17", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-o", out,
                    os.path.join(ROOT, "tests", "lib", "no_threads.c"), "-ldl"], check=True)
    return out


@pytest.fixture(name="models")
def models_fixture(tmp_path):
    repository.Identity("m", [("FP32", [-1])], max_batch_size=4, more="instance_group { count: 2 }").write(
        tmp_path / "models")
    return tmp_path / "models"


def start_with(most, preload, folder, command):
    """Runs it with at most so many threads, until it has ended or says that it is ready, and then ends it.
    Returns: whether all of it was there; its log."""
    ready = folder / f"ready{most}"
    with open(folder / f"log{most}", "w+", encoding="utf-8") as log:
        process = subprocess.Popen([binary(), *command, "--ready-file", ready], stderr=log,
                                   env={**os.environ, "LD_PRELOAD": str(preload), "MOST_THREADS": str(most)})
        end = time.monotonic() + http1.PATIENCE
        whole = failed = False
        while process.poll() is None and not whole and not failed:
            assert time.monotonic() < end, "it neither starts nor ends"
            time.sleep(0.005)
            failed = "model failed to load" in (folder / f"log{most}").read_text(encoding="utf-8")
            whole = ready.exists()
        started = process.poll() is None
        if started:
            process.send_signal(signal.SIGTERM)
        assert process.wait(http1.PATIENCE) == (0 if started else 1)
        log.seek(0)
        text = log.read()
    assert whole and not failed or WORDS in text, text
    return whole and not failed, text


@pytest.mark.parametrize("kind", ["serve", "pick"])
def test_start_without_threads_says_so(preload, models, tmp_path, kind):
    (tmp_path / "pool.yaml").write_text(POOL)
    command = {"serve": ["serve", "--model-repository", models, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                         "--metrics", "127.0.0.1:0", "--workers", "1", "--keep-going"],
               "pick": ["pick", "--config", tmp_path / "pool.yaml", "--grpc", "127.0.0.1:0", "--metrics",
                        "127.0.0.1:0", "--workers", "2"]}[kind]
    for most in range(30):
        whole, text = start_with(most, preload, tmp_path, command)
        if whole:
            return
    raise AssertionError(text)


def test_load_without_threads_is_refused(start_server, preload, models, tmp_path):
    """Other models are served meanwhile, and the load succeeds when there are threads again."""
    forbidden = tmp_path / "no-threads"
    server = start_server("--model-repository", models, "--model-control-mode", "explicit", "--workers", "1",
                          prefix=["env", f"LD_PRELOAD={preload}", f"NO_THREADS={forbidden}"])
    server.expect_error("model failed to load")

    def change(how):
        return http1.request(server.address, "POST", f"/v2/repository/models/m/{how}")

    forbidden.touch()  # the thread that scanned at the start loads, and an instance gets none
    answer = change("load")
    assert answer.status == 503 and WORDS.encode() in answer.body, str(answer)
    assert http1.request(server.address, "GET", "/v2/health/live").status == 200
    forbidden.unlink()
    assert change("load").status == 200
    assert http1.request(server.address, "GET", "/v2/models/m/ready").status == 200


def test_load_without_descriptors_is_refused(start_server, models):
    server = start_server("--model-repository", models, "--model-control-mode", "explicit")
    server.expect_error("model failed to load")
    pid = server.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with http1.Connection(server.address) as connection:
        def load():
            connection.send(http1.post(b"/v2/repository/models/m/load", b"{}"))
            return connection.read_answer("POST")

        connection.send(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.read_answer().status == 200
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(set(range(len(used) + 1)) - used), before[1]))
        answer = load()
        assert answer.status == 503 and b"Too many open files" in answer.body, str(answer)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert load().status == 200
    assert http1.request(server.address, "GET", "/v2/models/m/ready").status == 200


@pytest.mark.parametrize("kind", ["identity", "onnx"])
def test_poll_loads_again_when_there_are_threads(start_server, preload, models, repositories, tmp_path, kind):
    """A load that failed for what the process lacked does not wait for the files to change."""
    if kind == "onnx":
        shutil.rmtree(models)
        shutil.copytree(os.path.join(repositories("onnx-only"), "cnn"), models / "m")
    waits, forbidden = tmp_path / "waits", tmp_path / "no-threads"
    (models / "m").rename(waits)
    repository.Identity("first", [("FP32", [-1])]).write(models)  # by a thread that loads, which stays
    server = start_server("--model-repository", models, "--model-control-mode", "poll", "--repository-poll-secs", "1",
                          "--workers", "1", prefix=["env", f"LD_PRELOAD={preload}", f"NO_THREADS={forbidden}"])
    server.expect_error("model failed to load")
    forbidden.touch()
    waits.rename(models / "m")
    server.wait_for(lambda: WORDS in server.log_text(), "a load that fails")
    forbidden.unlink()
    server.wait_for(lambda: http1.request(server.address, "GET", "/v2/models/m/ready").status == 200, "the model")

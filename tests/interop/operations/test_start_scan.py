"""The start looks for models after the listeners are open: whatever that takes, health is answered and
SIGTERM ends the process. What it finds wrong ends the process with the error's own words."""
import json
import os
import re
import shutil

import pytest

from lib import backends, http1, mip, server


PACKET = mip.infer_request([[mip.as_json("text")]])


class SlowScan:
    """A model file makes the scan load the backends, to see which of them takes it: the one of the test
    waits for a file."""

    def __init__(self, tmp_path, monkeypatch):
        self.gate = tmp_path / "gate-is-open"
        monkeypatch.setenv("ENTRY_GATE", str(self.gate))
        self.backends = backends.make(tmp_path, "gate")
        self.file = tmp_path / "one.onnx"
        self.file.write_bytes(b"")
        self.args = [self.file, "--backend-dir", self.backends]

    def open(self):
        self.gate.write_text("")


@pytest.fixture
def slow_scan(tmp_path, monkeypatch):
    return SlowScan(tmp_path, monkeypatch)


def status(running, path):
    return http1.request(running.address, "GET", path).status


def change(running, what):
    return http1.request(running.address, "POST", f"/v2/repository/{what}", b"{}")


def assert_scanning(running):
    assert status(running, "/v2/health/live") == 200
    assert status(running, "/v2/health/ready") == 503
    answer = http1.request(running.address, "GET", "/v2/models/one")
    assert answer.status == 503 and "still being scanned" in json.loads(answer.body)["error"]
    assert json.loads(change(running, "index").body) == []
    assert not says_ready(running)


def says_ready(running):
    return [line for line in running.log_lines() if line.get("event") == "ready"]


def add_onnx(slow_scan, repositories):
    for name in ("libsluice_onnxruntime.so", "libonnxruntime.so.1"):
        os.symlink(os.path.join(server.build(), "backends", name),
                   os.path.join(slow_scan.backends, name))
    shutil.copy(os.path.join(repositories("onnx-only"), "onnx_add", "1", "model.onnx"),
                slow_scan.file)


def test_slow_scan_leaves_health_and_sigterm(slow_scan, start_server):
    running = start_server(*slow_scan.args, wait="listening")
    assert_scanning(running)
    running.stop()  # while the scan goes on
    assert not says_ready(running)


def test_slow_scan_then_model_is_served(slow_scan, start_server, repositories):
    add_onnx(slow_scan, repositories)
    running = start_server(*slow_scan.args, "--mip", "tcp://127.0.0.1:0=one", wait="listening")
    assert_scanning(running)
    running.wait_for(lambda: "tcp://" in running.log_text(), "the listener of MIP")
    with mip.Connection(re.search(r"tcp://[0-9.:]+", running.log_text())[0]) as connection:
        assert connection.refusal(PACKET) == "INTERNAL"
    slow_scan.open()
    running.wait_ready()
    assert len(says_ready(running)) == 1
    assert status(running, "/v2/health/ready") == 200
    assert status(running, "/v2/models/one/ready") == 200
    with mip.Connection(running.mip_urls[0]) as connection:
        assert connection.refusal(PACKET) == "SHAPE"  # by the model


def test_slow_scan_changes_wait_or_say_so(slow_scan, start_server, repositories):
    add_onnx(slow_scan, repositories)
    running = start_server(*slow_scan.args, "--model-control-mode", "explicit", wait="listening")
    assert_scanning(running)
    answer = change(running, "models/one/unload")
    assert answer.status == 503 and b"still being scanned" in answer.body
    with http1.Connection(running.address) as connection:
        connection.send(b"POST /v2/repository/models/one/load HTTP/1.1\r\nHost: localhost\r\n"
                        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        assert_scanning(running)
        slow_scan.open()
        assert connection.read_answer().status == 200
    assert status(running, "/v2/models/one/ready") == 200


@pytest.mark.parametrize("more, words", [
    ((), "one.onnx: no installed backend knows files of this kind"),
    (("--model-control-mode", "explicit", "--load-model", "two"),
     "--load-model two: there is no such model"),
    (("--mip", "tcp://127.0.0.1:0=two"), '--mip tcp://127.0.0.1:0=two: unknown model "two"'),
])
def test_error_of_slow_scan_ends_the_process(slow_scan, start_server, repositories, more, words):
    if more:
        add_onnx(slow_scan, repositories)
    running = start_server(*slow_scan.args, *more, wait="listening")
    assert status(running, "/v2/health/live") == 200
    slow_scan.open()
    assert running.wait_exit() == 1
    running.expect_error("cannot serve")
    running.check_log()
    assert words in [line.get("reason") for line in running.log_lines()][-1]


def test_scan_past_time_limit_ends_the_process(slow_scan, start_server):
    running = start_server(*slow_scan.args, "--model-load-timeout", "1s", wait="listening")
    assert running.wait_exit() == 1
    running.expect_error("looking for models took longer than --model-load-timeout (1 s)")
    running.check_log()
    assert "--model-load-timeout" in running.log_text()

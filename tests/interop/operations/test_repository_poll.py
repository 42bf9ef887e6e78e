"""--model-control-mode poll: what is written into the repository, as people write it (slowly, in place, not
in one step), is what is served in the end."""
import itertools
import json
import os
import shutil
import signal
import tempfile
import time

import pytest

from lib import http1, metrics, repository


class Polled:
    def __init__(self, start_server, folder):
        self.folder = folder
        repository.Identity("a", [("FP32", [4])], max_batch_size=4).write(folder)
        self.server = start_server("--model-repository", folder, "--model-control-mode", "poll",
                                   "--repository-poll-secs", "1")
        self.server.expect_error("model failed to load")

    def index(self):
        """{name: {version: state}}"""
        rows = json.loads(http1.request(self.server.address, "POST", "/v2/repository/index").body)
        found = {}
        for row in rows:
            found.setdefault(row["name"], {})[row.get("version")] = row.get("state")
        return found

    def wait_index(self, expected):
        self.server.wait_for(lambda: self.index() == expected, f"the index {expected}")

    def metadata(self, name):
        return json.loads(http1.request(self.server.address, "GET", f"/v2/models/{name}").body)


@pytest.fixture
def polled(start_server, tmp_path):
    return Polled(start_server, tmp_path / "models")


READY = {"1": "READY"}


def test_poll_follows_added_changed_removed_models(polled):
    polled.wait_index({"a": READY})
    repository.Identity("b", [("FP32", [4])], max_batch_size=4).write(polled.folder)
    polled.wait_index({"a": READY, "b": READY})
    repository.Identity("x", [("FP32", [8])], max_batch_size=2).write(polled.folder / "..")
    shutil.copy(polled.folder / ".." / "x" / "config.pbtxt", polled.folder / "a")
    config = polled.folder / "a" / "config.pbtxt"
    config.write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    polled.server.wait_for(lambda: polled.metadata("a")["inputs"][0]["shape"] == [-1, 8],
                           "the new configuration")
    shutil.rmtree(polled.folder / "b")
    polled.wait_index({"a": READY})
    gone = lambda: http1.request(polled.server.address, "GET", "/v2/models/b").status == 404
    polled.server.wait_for(gone, "the end of b")
    os.mkdir(polled.folder / "a" / "4")
    polled.wait_index({"a": {"4": "READY"}})
    os.rmdir(polled.folder / "a" / "4")
    polled.wait_index({"a": READY})
    assert http1.request(polled.server.address, "GET", "/v2/health/ready").status == 200


def test_poll_waits_for_slow_writes(polled, repositories):
    source = os.path.join(repositories("onnx-only"), "onnx_identity_fp32", "1", "model.onnx")
    with open(source, "rb") as file:
        whole = file.read()
    os.makedirs(polled.folder / "m" / "1")
    with open(polled.folder / "m" / "1" / "model.onnx", "wb", buffering=0) as file:
        for at in range(0, len(whole), len(whole) // 3 + 1):
            file.write(whole[at:at + len(whole) // 3 + 1])
            time.sleep(1.2)  # so that it is looked at in between
    polled.wait_index({"a": READY, "m": READY})
    os.mkdir(polled.folder / "m" / "2")  # the version's directory is there before its file
    time.sleep(1.2)
    assert polled.index()["m"] == READY
    with open(polled.folder / "m" / "2" / "model.onnx", "wb", buffering=0) as file:
        file.write(whole[:50])
        time.sleep(1.2)
        assert http1.request(polled.server.address, "GET", "/v2/models/m/ready").status == 200
        file.write(whole[50:])
    polled.wait_index({"a": READY, "m": {"2": "READY"}})
    metrics.wait_at_rest(polled.server.address)


def test_poll_invalid_configuration_keeps_model(polled):
    config = polled.folder / "a" / "config.pbtxt"
    good = config.read_text(encoding="utf-8")
    config.write_text(good[:len(good) // 2], encoding="utf-8")

    def row():
        return json.loads(http1.request(polled.server.address, "POST", "/v2/repository/index").body)[0]
    polled.server.wait_for(lambda: "model failed to load" in polled.server.log_text(), "a failure")
    polled.server.wait_for(lambda: "config.pbtxt" in row().get("reason", ""), "its reason")
    assert row()["state"] == "READY"
    config.write_text(good.replace("max_batch_size: 4", "max_batch_size: 3"), encoding="utf-8")

    def is_new():
        answer = http1.request(polled.server.address, "GET", "/v2/models/a/config")
        return json.loads(answer.body)["max_batch_size"] == 3
    polled.server.wait_for(is_new, "the new configuration")
    rows = json.loads(http1.request(polled.server.address, "POST", "/v2/repository/index").body)
    assert "reason" not in rows[0]


UNAVAILABLE = "model repository unavailable"


def wait_unavailable(polled, n):
    metrics.wait_until(polled.server.address,
                       lambda page: page["sluice_model_repositories_unavailable"] == n,
                       f"{n} unavailable repositories")


def test_poll_unreadable_repository_keeps_models(polled):
    polled.server.expect_error(UNAVAILABLE)
    moved = str(polled.folder) + ".away"
    os.rename(polled.folder, moved)
    wait_unavailable(polled, 1)
    assert http1.request(polled.server.address, "GET", "/v2/models/a/ready").status == 200
    os.mkdir(polled.folder)  # as where a volume was mounted
    polled.server.wait_for(lambda: polled.index() == {"a": READY}, "the model still")
    time.sleep(2.2)  # so that it is looked at twice
    wait_unavailable(polled, 1)
    assert http1.request(polled.server.address, "GET", "/v2/models/a/ready").status == 200
    os.rmdir(polled.folder)
    os.rename(moved, polled.folder)
    wait_unavailable(polled, 0)
    polled.wait_index({"a": READY})
    assert [line["level"] for line in polled.server.log_lines() if line["event"].startswith(UNAVAILABLE)
            ] == ["error"]


def test_poll_other_device_keeps_models(start_server, tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        assert os.stat(other).st_dev != os.stat(tmp_path).st_dev, "needs two file systems"
        repository.Identity("a", [("FP32", [4])]).write(tmp_path / "volume")
        repository.Identity("b", [("FP32", [4])]).write(other)
        os.symlink(tmp_path / "volume", tmp_path / "models")
        server = start_server("--model-repository", tmp_path / "models", "--model-control-mode",
                              "poll", "--repository-poll-secs", "1")
        server.expect_error(UNAVAILABLE)
        os.symlink(other, tmp_path / "next")
        os.rename(tmp_path / "next", tmp_path / "models")
        server.wait_for(lambda: http1.request(server.address, "GET", "/v2/models/b/ready").status
                        == 200, "the model of the other device")
        assert "another device" in server.log_text()
        assert http1.request(server.address, "GET", "/v2/models/a/ready").status == 200


def test_poll_replaced_directory_is_reloaded_without_gap(start_server, tmp_path):
    """The model is missing in one look: `rm -r m && mv m.new m`. A look is taken at SIGHUP."""
    folder = tmp_path / "models"
    repository.Identity("a", [("FP32", [4])]).write(folder)
    server = start_server("--model-repository", folder, "--model-control-mode", "poll",
                          "--repository-poll-secs", "3600")
    ready = lambda name: http1.request(server.address, "GET", f"/v2/models/{name}/ready").status

    counter = itertools.count()

    def look():
        name = f"new{next(counter)}"
        repository.Identity(name, [("FP32", [4])]).write(folder)
        server.signal(signal.SIGHUP)
        server.wait_for(lambda: ready(name) == 200, "a look")
    os.rename(folder / "a", tmp_path / "old")
    look()
    assert ready("a") == 200
    repository.Identity("a", [("FP32", [8])]).write(folder)
    look()
    server.wait_for(lambda: b"[8]" in http1.request(server.address, "GET", "/v2/models/a").body,
                    "the new model")
    shutil.rmtree(folder / "a")
    look()
    assert ready("a") == 200
    look()
    server.wait_for(lambda: ready("a") == 404, "the end of the model")


LINKS = {"cycles": [(str(i), ".") for i in range(6)], "root": [("root", "/")], "proc": [("fd", "/proc/self/fd")]}


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_links_in_model_directory_do_not_hold_walks(start_server, tmp_path, links, mode):
    """bug-43: a walk that followed links to directories did not end: no listener, no poll, no SIGTERM."""
    folder = tmp_path / "models"
    for name in ("m", "o"):
        repository.Identity(name, [("FP32", [1])]).write(folder)
    for name, target in LINKS[links]:
        os.symlink(target, folder / "m" / "1" / name)
    more = {"poll": ["--repository-poll-secs", "1"], "explicit": ["--model-load-timeout", "5s"], "none": []}[mode]
    server = start_server("--model-repository", folder, "--model-control-mode", mode, *more)
    post = lambda path: http1.request(server.address, "POST", path)
    if mode == "explicit":
        for name in ("m", "o"):
            assert post(f"/v2/repository/models/{name}/load").status == 200
    if mode == "poll":
        for name in ("m", "o"):
            repository_file = folder / name / "config.pbtxt"
            text = repository_file.read_text(encoding="utf-8")
            repository_file.write_text(text.replace("max_batch_size: 0", "max_batch_size: 7"), encoding="utf-8")
        for name in ("m", "o"):
            server.wait_for(lambda: b'"max_batch_size":7' in http1.request(
                server.address, "GET", f"/v2/models/{name}/config").body, f"the new configuration of {name}")
    metrics.wait_at_rest(server.address)

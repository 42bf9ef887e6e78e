"""Which ONNX Runtime the backend loads, and what the model's error says when there is none."""
import glob
import json
import os
import shutil
import subprocess

import pytest

from lib import http1, repository, server

LIBRARY = os.path.realpath(os.path.join(server.build(), "backends", "libonnxruntime.so.1"))
TOO_OLD = """
static const void *get_api(unsigned version) { (void)version; return 0; }
static const char *get_version(void) { return "1.20.1"; }
static const struct { const void *(*api)(unsigned); const char *(*version)(void); } base = {get_api, get_version};
const void *OrtGetApiBase(void) { return &base; }
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("SLUICE_ONNXRUNTIME", raising=False)


@pytest.fixture
def backends(tmp_path):
    """A folder of backends without the library."""
    folder = tmp_path / "backends"
    folder.mkdir()
    for name in ("identity", "onnxruntime"):
        shutil.copy(os.path.join(server.build(), "backends", f"libsluice_{name}.so"), folder)
    return folder


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    repository.write("onnx-only", folder)
    repository.write_identities(folder, ["id_fp32"])
    return folder


def start(start_server, backends, models):
    return start_server("--backend-dir", backends, "--model-repository", models,
                        "--model-control-mode", "explicit", "--load-model", "id_fp32")


def load(live, name="onnx_add"):
    return http1.request(live.address, "POST", f"/v2/repository/models/{name}/load", b"{}")


def is_served(live, name, body):
    reply = http1.request(live.address, "POST", f"/v2/models/{name}/infer", json.dumps(body).encode())
    assert reply.status == 200, str(reply)
    return True


def identity_answers(live):
    return is_served(live, "id_fp32", {"inputs": [
        {"name": "INPUT0", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}]})


def add_answers(live):
    rows = [{"name": name, "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]} for name in "ab"]
    return is_served(live, "onnx_add", {"inputs": rows})


def loaded_from(live):
    lines = [line["text"] for line in live.log_lines() if line.get("text", "").startswith("ONNX Runtime 1.")]
    return [line.split(": ", 1)[1] for line in lines]


def test_missing_library_is_error_of_its_model_until_installed(start_server, backends, models):
    """With no library at all the error says what to install, and 503 that the server lacks it, not the request;
    other models serve, and the model is loaded once the library is there."""
    live = start(start_server, backends, models)
    live.expected_errors.append("could not be loaded")
    reply = load(live)
    assert reply.status == 503, str(reply)
    assert "model.onnx needs backend onnxruntime, which could not be loaded: no ONNX Runtime" in reply.body.decode()
    assert "pip install onnxruntime" in reply.body.decode()
    assert identity_answers(live)
    os.symlink(LIBRARY, backends / "libonnxruntime.so.1")
    assert load(live).status == 200
    assert add_answers(live)
    assert loaded_from(live) == [str(backends / "libonnxruntime.so.1")]


def test_setting_is_the_only_place(start_server, backends, models, tmp_path, monkeypatch):
    """A file that is no library is named, although there is one beside the backend."""
    os.symlink(LIBRARY, backends / "libonnxruntime.so.1")
    (tmp_path / "page.so").write_text("<html>")
    monkeypatch.setenv("SLUICE_ONNXRUNTIME", str(tmp_path / "page.so"))
    live = start(start_server, backends, models)
    live.expected_errors.append("could not be loaded")
    reply = load(live)
    assert f"{tmp_path}/page.so: " in reply.body.decode() and "SLUICE_ONNXRUNTIME" in reply.body.decode()
    assert identity_answers(live)


def test_setting_names_file_or_directory(start_server, backends, models, tmp_path, monkeypatch):
    folder = tmp_path / "with [brackets]*"
    folder.mkdir()
    os.symlink(LIBRARY, folder / "libonnxruntime.so.1.31.1")
    for setting in (folder, folder / "libonnxruntime.so.1.31.1"):
        monkeypatch.setenv("SLUICE_ONNXRUNTIME", str(setting))
        live = start(start_server, backends, models)
        assert load(live).status == 200
        assert loaded_from(live) == [str(folder / "libonnxruntime.so.1.31.1")]
        assert add_answers(live)
        live.stop()


def test_library_of_python_environment_is_found(start_server, backends, models, tmp_path, monkeypatch):
    """Of the active one, and of the one that the backend is installed in."""
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (packages / "onnxruntime" / "capi").mkdir(parents=True)
    os.symlink(LIBRARY, packages / "onnxruntime" / "capi" / "libonnxruntime.so.1.31.1")
    (packages / "sluice_server").mkdir()
    shutil.copytree(backends, packages / "sluice_server" / "backends")
    installed = start(start_server, packages / "sluice_server" / "backends", models)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    for live in (installed, start(start_server, backends, models)):
        assert load(live).status == 200
        assert loaded_from(live) == glob.glob(f"{packages}/onnxruntime/capi/*")


def test_library_that_is_too_old_is_refused_by_version(start_server, backends, models, tmp_path):
    (tmp_path / "old.c").write_text(TOO_OLD)
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "old.c", "-o", backends / "libonnxruntime.so.1"], check=True)
    live = start(start_server, backends, models)
    live.expected_errors.append("could not be loaded")
    reply = load(live)
    assert "libonnxruntime.so.1: is version 1.20.1; 1.21 or newer is needed" in reply.body.decode()
    assert identity_answers(live)


def test_file_whose_backend_cannot_be_loaded_names_it(tmp_path):
    """A backend that is no library, and the only one that could know the file."""
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends" / "libsluice_onnxruntime.so").write_text("")
    (tmp_path / "cnn.onnx").write_text("")
    done = subprocess.run([server.binary(), "serve", "--backend-dir", tmp_path / "backends", tmp_path / "cnn.onnx"],
                          text=True, capture_output=True, timeout=http1.PATIENCE, check=False)
    assert done.returncode != 0
    assert "cnn.onnx needs a backend" in done.stderr and "libsluice_onnxruntime.so): " in done.stderr, done.stderr

"""deploy/kserve: what KServe would start with the runtime's arguments, over the folders that its storage initializer
leaves behind."""
import os
import shutil
import subprocess

import pytest
import yaml

from lib import http1, repository
from lib.server import ROOT, binary

RUNTIME = os.path.join(ROOT, "deploy", "kserve", "runtime.yaml")
NAME = "digits"

# What is at the storage's address: the files, of which MODEL is a model.
LAYOUTS = {
    "file": ["model.onnx=MODEL"],
    "version": ["1/model.onnx=MODEL"],
    "versions": ["1/model.onnx=MODEL", "3/model.onnx=MODEL"],
    "file of another name": ["net-v3.onnx=MODEL"],
    "folder beside it": ["model.onnx=MODEL", "docs/README.md=text", ".cache/1/x=text", "README.md=text"],
    "version and folder beside it": ["1/model.onnx=MODEL", "docs/README.md=text"],
    "folder of the model": ["net/1/model.onnx=MODEL"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "onnx"
    repository.write("onnx-only", folder)
    return next(os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
                if name.endswith(".onnx"))


def arguments(models):
    """Of the container, with KServe's placeholder and its folder replaced, and free ports."""
    with open(RUNTIME, encoding="utf-8") as file:
        (container,) = yaml.safe_load(file)["spec"]["containers"]
    assert container["name"] == "kserve-container" and container["command"] == ["sluice", "serve"]
    args = [arg.replace("{{.Name}}", NAME).replace("/mnt/models", str(models)) for arg in container["args"]]
    return [arg for arg in args if arg.split("=")[0] not in ("--http", "--grpc", "--metrics", "--log-format")]


def lay_out(folder, files, model):
    for file in files:
        path, text = file.split("=")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if text == "MODEL":
            shutil.copy(model, folder / path)
        else:
            (folder / path).write_text(text)


@pytest.mark.parametrize("linked", [False, True], ids=["copied", "linked"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_runtime_serves_what_storage_leaves(start_server, tmp_path, model, layout, linked):
    there = tmp_path / "there"
    lay_out(there, LAYOUTS[layout], model)
    models = tmp_path / "models"
    if linked:  # a modelcar's volume is a link to the files of another container
        models.symlink_to(there)
    else:
        there.rename(models)
    server = start_server(*arguments(models))
    assert http1.request(server.address, "GET", f"/v2/models/{NAME}/ready").status == 200
    assert http1.request(server.address, "GET", "/v2/health/ready").status == 200


@pytest.mark.parametrize("files, says", [
    (["a.onnx=MODEL", "b.onnx=MODEL"], "NAME=PATH is for one model, and there are several: "),
    (["README.md=text"], "NAME=PATH is for one model, and there is none"),
])
def test_runtime_refuses_what_is_not_one_model(tmp_path, model, files, says):
    lay_out(tmp_path / "models", files, model)
    done = subprocess.run([binary(), "serve", *arguments(tmp_path / "models"), "--http=127.0.0.1:0", "--grpc=none",
                           "--metrics=none"], capture_output=True, text=True, timeout=http1.PATIENCE, check=False)
    assert done.returncode == 1 and says in done.stderr


def test_runtime_ports_and_probes_fit():
    with open(RUNTIME, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    container = document["spec"]["containers"][0]
    ports = {arg.split("=")[0]: int(arg.rsplit(":", 1)[1]) for arg in container["args"] if "=:" in arg}
    assert container["ports"][0]["containerPort"] == ports["--http"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == ports["--http"]
    assert int(document["spec"]["annotations"]["prometheus.kserve.io/port"]) == ports["--metrics"]

"""Files of a served model change, vanish or are no files: what is served stays as it was loaded, and a
file that cannot be read is the error of its model alone."""
import json
import os
import shutil

import numpy
import onnx
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper

from lib import http1, metrics, repository

N = 4096  # elements of each weight, so that a file has several pages


def external(folder, name, value, location="weights"):
    """A tensor of N elements whose data is appended to the file `weights` of the folder."""
    tensor = numpy_helper.from_array(numpy.full(N, value, numpy.float32), name)
    path = folder / "weights"
    offset = path.stat().st_size if path.exists() else 0
    with open(path, "ab") as file:
        file.write(tensor.raw_data)
    onnx.external_data_helper.set_external_data(tensor, location, offset, len(tensor.raw_data))
    tensor.ClearField("raw_data")
    return tensor


def write_external(folder, name, location="weights"):
    """y = x + 1 + 2 + 4: an initializer, a Constant and an initializer of a subgraph, each with its data
    in the file `weights`."""
    folder = folder / name / "1"
    os.makedirs(folder)
    vector = lambda text: helper.make_tensor_value_info(text, TensorProto.FLOAT, [N])
    inner = helper.make_graph([helper.make_node("Add", ["two", "deep"], ["then"])], "inner", [],
                              [vector("then")], [external(folder, "deep", 4)])
    other = helper.make_graph([helper.make_node("Identity", ["two"], ["else"])], "other", [],
                              [vector("else")])
    weight = external(folder, "w", 1, location)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["one"]),
         helper.make_node("Constant", [], ["c"], value=external(folder, "c", 2)),
         helper.make_node("Add", ["one", "c"], ["two"]),
         helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=other)],
        name, [vector("x"), helper.make_tensor_value_info("yes", TensorProto.BOOL, [1])],
        [vector("y")], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def ask(address, name):
    """Returns: the distinct elements of the answer to zeros."""
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [N], "data": [0] * N},
                       {"name": "yes", "datatype": "BOOL", "shape": [1], "data": [True]}]}
    answer = http1.request(address, "POST", f"/v2/models/{name}/infer", json.dumps(body).encode())
    assert answer.status == 200, answer
    return set(json.loads(answer.body)["outputs"][0]["data"])


def mapped(pid, path):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return [line for line in file if str(path) in line]


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_external_weights_truncated_keep_answers(start_server, tmp_path, backend):
    weights = write_external(tmp_path / "models", "m") / "weights"
    (tmp_path / "models" / "m" / "config.pbtxt").write_text(
        f'backend: "{backend}"\ndefault_model_filename: "model.onnx"\n', encoding="utf-8")
    server = start_server("--model-repository", tmp_path / "models")
    assert ask(server.address, "m") == {7.0}
    assert not mapped(server.pid, weights)
    size = weights.stat().st_size
    with open(weights, "r+b") as file:  # as rsync --inplace does
        file.write(bytes(size))
    assert ask(server.address, "m") == {7.0}
    os.truncate(weights, 0)  # as cp does
    assert ask(server.address, "m") == {7.0}
    metrics.wait_at_rest(server.address)


@pytest.mark.parametrize("location", ["../weights", "outside", "/etc/passwd"])
def test_external_weights_outside_model_fail_load(start_server, tmp_path, location):
    folder = write_external(tmp_path / "models", "m", location)
    shutil.copy(folder / "weights", folder.parent / "weights")
    os.symlink(folder.parent / "weights", folder / "outside")
    repository.Identity("good", [("FP32", [1])]).write(tmp_path / "models")
    server = start_server("--model-repository", tmp_path / "models", wait="loaded")
    server.expect_error("in the directory of the model's file")
    assert http1.request(server.address, "GET", "/v2/models/m/ready").status != 200
    assert http1.request(server.address, "GET", "/v2/models/good/ready").status == 200
    server.wait_for(lambda: "in the directory of the model's file" in server.log_text(), "a reason")


@pytest.mark.parametrize("kind", ["model.onnx", "weights", "model.bin"])
def test_fifo_among_model_files_fails_load(start_server, tmp_path, kind):
    folder = write_external(tmp_path / "models", "m")
    if kind == "model.bin":
        openvino.save_model(openvino.Core().read_model(folder / "model.onnx"), folder / "model.xml")
        os.remove(folder / "model.onnx")
    os.remove(folder / kind)
    os.mkfifo(folder / kind)
    repository.Identity("zero", [("FP32", [1])]).write(tmp_path / "models")
    server = start_server("--model-repository", tmp_path / "models", wait="loaded")
    server.expect_error("expected a regular file")
    assert http1.request(server.address, "GET", "/v2/models/zero/ready").status == 200
    server.wait_for(lambda: "expected a regular file" in server.log_text(), "a reason")

"""Tensors without dimensions: config.pbtxt describes them by `dims: [ 1 ]` or [1,1], as for Triton; metadata and
answers say so, over every protocol. Without dims they keep the model's shape, []."""
import json

import numpy
import pytest
import tritonclient.grpc
from onnx import TensorProto, helper

from lib import http1, mip
from lib.repository import save_onnx
from lib.server import run

TENSOR = '{{ name: "{}" data_type: TYPE_FP32 dims: [ {} ] {} }}'
EMPTY = "reshape { shape: [ ] }"
#      name        backend        dims, reshape of x, of y and the shapes that clients see of both
GOOD = [
    ("ones", "onnxruntime", "1", "", "1", "", [1], [1]),
    ("pairs", "onnxruntime", "1, 1", "", "1, 1, 1", "", [1, 1], [1, 1, 1]),
    ("reshaped", "onnxruntime", "1", EMPTY, "1", EMPTY, [1], [1]),
    ("openvino", "openvino", "1", "", "1", "", [1], [1]),
]
BAD = [("two", "onnxruntime", "2", "", "1", ""), ("free", "onnxruntime", "-1", "", "1", ""),
       ("openvino_two", "openvino", "2", "", "1", "")]


def write(models, name, backend=None, *dims):
    """y = x + x of a tensor without dimensions."""
    values = [helper.make_tensor_value_info(key, TensorProto.FLOAT, []) for key in "xy"]
    save_onnx(str(models / name / "1" / "model.onnx"), name, [helper.make_node("Add", ["x", "x"], ["y"])],
              values[:1], values[1:])
    if backend:
        (models / name / "config.pbtxt").write_text(
            f'backend: "{backend}" input {TENSOR.format("x", *dims[:2])} output {TENSOR.format("y", *dims[2:4])}')


def post(server, model, body):
    return http1.request(server.address, "POST", f"/v2/models/{model}/infer", json.dumps(body).encode())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scalars")
    write(folder, "plain")
    for row in GOOD:
        write(folder, *row)
    values = [helper.make_tensor_value_info(key, TensorProto.FLOAT, ["n"]) for key in "xy"]
    save_onnx(str(folder / "rows" / "1" / "model.onnx"), "rows", [helper.make_node("Add", ["x", "x"], ["y"])],
              values[:1], values[1:])
    (folder / "rows" / "config.pbtxt").write_text(
        f'max_batch_size: 4 input {TENSOR.format("x", 1, EMPTY)} output {TENSOR.format("y", 1, EMPTY)}')
    return folder


def test_scalar_by_dims_has_them_over_each_protocol(start_server, models):
    listeners = [argument for row in GOOD for argument in ("--mip", f"tcp://127.0.0.1:0={row[0]}")]
    server = start_server("--model-repository", models, *listeners, grpc=["127.0.0.1:0"])
    client = tritonclient.grpc.InferenceServerClient(server.grpc_address)
    cases = [(row[0], row[6], row[7]) for row in GOOD] + [("plain", [], []), ("rows", [3, 1], [3, 1])]
    for model, seen, answered in cases:
        n = 3 if model == "rows" else 1
        metadata = json.loads(http1.request(server.address, "GET", f"/v2/models/{model}").body)
        free = [-1, 1] if model == "rows" else None
        assert metadata["inputs"][0]["shape"] == (free or seen)
        assert metadata["outputs"][0]["shape"] == (free or answered)
        answer = post(server, model, {"inputs": [{"name": "x", "shape": seen, "datatype": "FP32", "data": [2.5] * n}]})
        output = json.loads(answer.body)["outputs"][0]
        assert (output["shape"], output["data"]) == (answered, [5.0] * n)
        given = tritonclient.grpc.InferInput("x", seen, "FP32")
        given.set_data_from_numpy(numpy.full(seen, 2.5, numpy.float32))
        result = client.infer(model, [given]).as_numpy("y")
        assert result.shape == tuple(answered) and (result == 5).all()
    client.close()
    for row, url in zip(GOOD, server.mip_urls):
        nested = numpy.full(row[7], 5.0).tolist()
        assert mip.infer(url, [[mip.as_json(2.5)]]) == [[nested]], row[0]
    for model in ("ones", "openvino"):
        wrong = post(server, model, {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]})
        assert wrong.status == 400 and "expected shape [1]" in wrong.body.decode(), str(wrong)


@pytest.mark.parametrize("row", BAD, ids=[row[0] for row in BAD])
def test_scalar_with_more_elements_is_refused(tmp_path, row):
    write(tmp_path, *row)
    done = run("serve", "--check", "--model-repository", tmp_path, "--http", "127.0.0.1:0")
    assert done.returncode == 1, done
    assert f'its shape [{row[2]}], the model has []' in done.stdout + done.stderr, done

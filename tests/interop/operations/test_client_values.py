"""Values that a model cannot compute with: an error of the client's, never the end of the server."""
import json

import pytest
from onnx import TensorProto, helper

from lib import http1
from lib.repository import save_onnx

INTEGERS = {"INT32": TensorProto.INT32, "INT64": TensorProto.INT64}
BITS = {"INT32": 32, "INT64": 64}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for operator in ("Div", "Mod"):
        for name, kind in INTEGERS.items():
            values = [helper.make_tensor_value_info(key, kind, ["n"]) for key in "abc"]
            save_onnx(str(folder / f"{operator}_{name}" / "1" / "model.onnx"), operator,
                      [helper.make_node(operator, ["a", "b"], ["c"])], values[:2], values[2:])
    save_onnx(str(folder / "Cast" / "1" / "model.onnx"), "Cast",
              [helper.make_node("Cast", ["a"], ["c"], to=TensorProto.INT64)],
              [helper.make_tensor_value_info("a", TensorProto.STRING, ["n"])],
              [helper.make_tensor_value_info("c", TensorProto.INT64, ["n"])])
    return folder


def infer(server, model, datatype, **inputs):
    body = {"inputs": [{"name": name, "shape": [len(data)], "datatype": datatype, "data": data}
                       for name, data in inputs.items()]}
    return http1.request(server.address, "POST", f"/v2/models/{model}/infer", json.dumps(body).encode())


def outputs(answer):
    assert answer.status == 200, str(answer)
    return json.loads(answer.body)["outputs"][0]["data"]


def test_division_that_overflows_wraps(start_server, models):
    server = start_server("--model-repository", models)
    for datatype, bits in BITS.items():
        least = -(1 << (bits - 1))
        for operator, wrapped, plain in (("Div", least, -3), ("Mod", 0, 0)):
            answer = infer(server, f"{operator}_{datatype}", datatype, a=[least, 3] * 32, b=[-1] * 64)
            assert outputs(answer) == [wrapped, plain] * 32


@pytest.mark.parametrize("model, datatype, bad, good", [
    ("Div_INT32", "INT32", {"a": [1], "b": [0]}, {"a": [4], "b": [2]}),
    ("Mod_INT64", "INT64", {"a": [1], "b": [0]}, {"a": [7], "b": [5]}),
    ("Cast", "BYTES", {"a": ["no number"]}, {"a": ["2"]}),
    ("Cast", "BYTES", {"a": ["99999999999999999999"]}, {"a": ["2"]})])
def test_value_that_operator_refuses_is_client_error(start_server, models, model, datatype, bad, good):
    server = start_server("--model-repository", models)
    answer = infer(server, model, datatype, **bad)
    assert answer.status == 400 and b"returned while running" in answer.body, str(answer)
    assert outputs(infer(server, model, datatype, **good)) == [2]


def test_output_with_too_many_dimensions_is_client_error(start_server, tmp_path):
    """Its input says how many there are."""
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, ["rank"])
    filled = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a"])
    save_onnx(str(tmp_path / "models" / "fill" / "1" / "model.onnx"), "fill",
              [helper.make_node("ConstantOfShape", ["s"], ["y"])], [shape], [filled])
    server = start_server("--model-repository", tmp_path / "models")

    def fill(rank):
        return http1.request(server.address, "POST", "/v2/models/fill/infer", json.dumps(
            {"inputs": [{"name": "s", "datatype": "INT64", "shape": [rank], "data": [1] * rank}]}).encode())
    answer = fill(65)
    assert answer.status == 400 and b"more than 64 dimensions" in answer.body, str(answer)
    answer = fill(64)
    assert answer.status == 200 and json.loads(answer.body)["outputs"][0]["data"] == [0], str(answer)

"""What a client reads when it sends a wrong shape: the input, all dimensions that were expected and
received, the model and where the expectation comes from, and the shape to send where only the batch
dimension is wrong. The texts are the same over HTTP, gRPC and `sluice infer`."""
import json
import subprocess

import numpy
import pytest
import tritonclient.grpc
from onnx import TensorProto, helper

from lib import http1
from lib.repository import save_onnx
from lib.server import binary

CONFIG = """backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32
  dims: [ 1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
"""
BATCH = ('input "INPUT0": expected shape [-1,1] (-1: any size), got [1]: the batch dimension is missing,'
         ' send [1,1] (model "ones": max_batch_size 8, and dims in config.pbtxt, line 4)')


@pytest.fixture
def running(start_server, tmp_path):
    models = tmp_path / "models"
    (models / "ones" / "1").mkdir(parents=True)
    (models / "ones" / "config.pbtxt").write_text(CONFIG)
    for name, first in (("fixed", 2), ("batches", "n")):
        values = [helper.make_tensor_value_info(key, TensorProto.FLOAT, [first, 3]) for key in "xy"]
        save_onnx(str(models / name / "1" / "model.onnx"), name,
                  [helper.make_node("Identity", ["x"], ["y"])], values[:1], values[1:])
    return start_server("--model-repository", models, "--model-control-mode", "explicit",
                        "--load-model", "*", grpc=["127.0.0.1:0"])


def infer(server, model, name, shape):
    n = int(numpy.prod(shape, dtype=numpy.int64))
    body = {"inputs": [{"name": name, "shape": shape, "datatype": "FP32", "data": [0] * n}]}
    return http1.request(server.address, "POST", f"/v2/models/{model}/infer", json.dumps(body).encode())


def refusal(server, model, name, shape):
    answer = infer(server, model, name, shape)
    assert answer.status == 400, str(answer)
    return json.loads(answer.body)["error"]


def test_shape_without_batch_dimension_shows_the_one_to_send(running):
    assert refusal(running, "ones", "INPUT0", [1]) == BATCH
    given = tritonclient.grpc.InferInput("INPUT0", [1], "FP32")
    given.set_data_from_numpy(numpy.zeros(1, numpy.float32))
    with tritonclient.grpc.InferenceServerClient(running.grpc_address) as client:
        with pytest.raises(Exception) as raised:
            client.infer("ones", [given])
    assert BATCH in str(raised.value)
    for url in (f"http://{running.address}", f"grpc://{running.grpc_address}"):
        done = subprocess.run([binary(), "infer", url, "ones", "--input", "INPUT0=[1]", "--shape", "INPUT0=1"],
                              capture_output=True, text=True, check=False, timeout=http1.PATIENCE)
        assert done.returncode == 1 and BATCH in done.stderr, done.stderr
    assert infer(running, "ones", "INPUT0", [1, 1]).status == 200


@pytest.mark.parametrize("model, name, shape, text", [
    ("fixed", "x", [1, 2, 3], 'expected shape [2,3] (-1: any size), got [1,2,3]: the model has no batch dimension,'
     ' send [2,3] (model "fixed": dimensions in the model\'s file)'),
    ("fixed", "x", [2, 4], 'expected shape [2,3] (-1: any size), got [2,4]'
     ' (model "fixed": dimensions in the model\'s file)'),
    ("batches", "x", [3], 'got [3]: the batch dimension is missing, send [1,3]'
     ' (model "batches": max_batch_size 64, and dimensions in the model\'s file)'),
    ("batches", "x", [65, 3], 'max_batch_size; got shape [65,3] (model "batches": the first dimension of every input'
     ' and output is dynamic and named "n"; 64 is --default-max-batch-size)'),
    ("ones", "INPUT0", [9, 1], '(model "ones": max_batch_size is 8 in config.pbtxt)'),
    ("ones", "INPUT0", [1] * 64, 'got [1,1'),
])
def test_wrong_shape_names_model_and_origin(running, model, name, shape, text):
    error = refusal(running, model, name, shape)
    assert error.startswith(f'input "{name}": expected') and text in error, error


def test_wrong_shape_of_loaded_configuration_names_it(running):
    config = {"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2, 2]}],
              "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [2, 2]}]}
    loaded = http1.request(running.address, "POST", "/v2/repository/models/ones/load",
                           json.dumps({"parameters": {"config": json.dumps(config)}}).encode())
    assert loaded.status == 200, str(loaded)
    assert refusal(running, "ones", "INPUT0", [4]) == (
        'input "INPUT0": expected shape [2,2] (-1: any size), got [4]'
        ' (model "ones": dims in the configuration given)')

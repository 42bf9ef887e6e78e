"""grpcio with stubs made from our own .proto, as one makes them who has only that: the compiler's output is
used in a process of its own, because the clients' stubs beside it have the same names."""
import os
import subprocess
import sys

import pytest

from lib import http1
from lib.server import ROOT

SCRIPT = '''
import sys, grpc
import grpc_service_pb2 as kserve, health_pb2 as health
channel = grpc.insecure_channel(sys.argv[1])

def method(kind, name, asked, answered, service="inference.GRPCInferenceService"):
    return getattr(channel, kind)(f"/{service}/{name}", asked.SerializeToString, answered.FromString)

infer = method("unary_unary", "ModelInfer", kserve.ModelInferRequest, kserve.ModelInferResponse)
stream = method("stream_stream", "ModelStreamInfer", kserve.ModelInferRequest, kserve.ModelStreamInferResponse)
metadata = method("unary_unary", "ModelMetadata", kserve.ModelMetadataRequest, kserve.ModelMetadataResponse)
config = method("unary_unary", "ModelConfig", kserve.ModelConfigRequest, kserve.ModelConfigResponse)
check = method("unary_unary", "Check", health.HealthCheckRequest, health.HealthCheckResponse, "grpc.health.v1.Health")

model = metadata(kserve.ModelMetadataRequest(name="id_two"), timeout=60)
assert [(item.name, item.datatype, list(item.shape)) for item in model.inputs] == [
    ("INPUT0", "FP32", [-1]), ("INPUT1", "INT32", [-1])], model
assert config(kserve.ModelConfigRequest(name="id_two"), timeout=60).config.backend == "identity"
assert check(health.HealthCheckRequest(service="id_two"), timeout=60).status == 1

def asked(number):
    made = kserve.ModelInferRequest(model_name="id_two", id=str(number))
    made.parameters["own"].int64_param = number
    one = made.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
    one.contents.fp32_contents.extend([number, 0.5])
    other = made.inputs.add(name="INPUT1", datatype="INT32", shape=[1])
    other.contents.int_contents.append(-number)
    made.outputs.add(name="OUTPUT1")
    return made

def check_answer(answer, number):
    assert answer.id == str(number) and answer.model_version == "1", answer
    assert [item.name for item in answer.outputs] == ["OUTPUT1"]
    assert list(answer.raw_output_contents) == [(-number).to_bytes(4, "little", signed=True)]

check_answer(infer(asked(7), timeout=60), 7)
for number, answer in enumerate(stream(iter([asked(n) for n in range(100)]), timeout=60)):
    assert answer.error_message == ""
    check_answer(answer.infer_response, number)
    assert answer.infer_response.parameters["triton_final_response"].bool_param is True
assert number == 99
try:
    infer(kserve.ModelInferRequest(model_name="nope"), timeout=60)
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND and "nope" in error.details()
else:
    raise AssertionError("answered")
channel.close()
'''


@pytest.fixture
def stubs(tmp_path):
    folder = os.path.join(ROOT, "proto")
    subprocess.run(["protoc", f"-I{folder}", f"--python_out={tmp_path}", "grpc_service.proto",
                    "model_config.proto", "health.proto"], check=True)
    return tmp_path


def test_generated_stubs_work(client_server, stubs):
    done = subprocess.run([sys.executable, "-c", SCRIPT, client_server.grpc_address], cwd=stubs, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=4 * http1.PATIENCE, check=False)
    assert done.returncode == 0, done.stdout

"""The extensions that the server's metadata lists are exactly those that work: each that the reference has
is tried, over HTTP and gRPC, and what came of it is held against the list, and the list against the page."""
import json
import os
import re
import uuid

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from lib import http1
from lib.repository import Identity
from lib.server import ROOT, Server

SEQUENCES = """sequence_batching { control_input { name: "START"
  control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }"""
LEVELS = """dynamic_batching { priority_levels: 2 default_priority_level: 1
  default_queue_policy { allow_timeout_override: true } }"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extensions")
    models = [Identity("m", [("FP32", [3])], parameters={"echo_parameters": "true"}),
              Identity("slow", [("FP32", [3])], max_batch_size=1, parameters={"delay_us": "300000"},
                       more=LEVELS + " instance_group { count: 1 }"),
              Identity("seq", [("FP32", [3])], more=SEQUENCES)]
    for model in models:
        model.write(str(folder / "models"))
    with Server(folder, ["--model-repository", folder / "models", "--allow-client-shm", "true",
                         "--model-control-mode", "explicit", "--load-model", "*"],
                grpc=("127.0.0.1:0",)) as server:
        yield server


class Asking:
    def __init__(self, module, address):
        self.module = module
        self.client = module.InferenceServerClient(address)

    def infer(self, model="m", outputs=None, shape=(3,), **options):
        given = self.module.InferInput("INPUT0", shape, "FP32")
        given.set_data_from_numpy(numpy.array([1, 3, 2], numpy.float32).reshape(shape))
        return self.client.infer(model, [given], outputs=outputs, **options)


@pytest.fixture(params=["http", "grpc"])
def asking(request, running):
    if request.param == "http":
        made = Asking(triton_http, running.address)
    else:
        made = Asking(triton_grpc, running.grpc_address)
    made.http_address = running.address
    with made.client:
        yield made


# ---- one try for each ----------------------------------------------------------------------------

def classification(asking):
    wanted = asking.module.InferRequestedOutput("OUTPUT0", class_count=1)
    assert asking.infer(outputs=[wanted]).as_numpy("OUTPUT0").tolist() == [b"3.000000:1"]


def model_repository(asking):
    asking.client.unload_model("m")
    with pytest.raises(InferenceServerException):
        asking.infer()
    asking.client.load_model("m")
    asking.infer()


def unload_dependents(asking):
    asking.client.unload_model("nope", unload_dependents=True)


def model_configuration(asking):
    told = asking.client.get_model_config("m")
    assert (told if asking.module is triton_http else told.config)


def binary_tensor_data(asking):
    """Of HTTP; gRPC has its own way."""
    assert asking.infer().as_numpy("OUTPUT0").tolist() == [1, 3, 2]


def parameters(asking):
    answer = asking.infer(parameters={"k": "v"}).get_response()
    if asking.module is triton_http:
        assert answer["parameters"] == {"k": "v"}
    else:
        assert answer.parameters["k"].string_param == "v"


def statistics(asking):
    told = asking.client.get_inference_statistics("m")
    assert told["model_stats"] if asking.module is triton_http else told.model_stats


def logging(asking):
    asking.client.update_log_settings({"log_verbose_level": 0})


def trace(asking):
    asking.client.update_trace_settings(settings={"trace_rate": "1000"})


def system_shared_memory(asking):
    key = f"/sluice-extensions-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region("region", key, 12)
    try:
        asking.client.register_system_shared_memory("region", key, 12)
        wanted = asking.module.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("region", 12)
        asking.infer(outputs=[wanted])
        assert shm.get_contents_as_numpy(handle, numpy.float32, [3]).tolist() == [1, 3, 2]
    finally:
        asking.client.unregister_system_shared_memory("region")
        shm.destroy_shared_memory_region(handle)


def cuda_shared_memory(asking):
    asking.client.register_cuda_shared_memory("region", b"A" * 64, 0, 64)


def sequence(asking):
    """A request in the middle of a sequence that nobody began is refused."""
    with pytest.raises(InferenceServerException, match="sequence"):
        asking.infer("seq", sequence_id=5)
    asking.infer("seq", sequence_id=5, sequence_start=True, sequence_end=True)


def schedule_policy(asking):
    """A request that may not wait is refused while another runs; one without a limit is answered."""
    given = asking.module.InferInput("INPUT0", (1, 3), "FP32")
    given.set_data_from_numpy(numpy.zeros((1, 3), numpy.float32))
    results = []
    if asking.module is triton_http:
        with triton_http.InferenceServerClient(asking.http_address, concurrency=2) as other:
            promise = other.async_infer("slow", [given])
            refused(asking)
            promise.get_result()
    else:
        asking.client.async_infer("slow", [given], lambda result, error: results.append(error))
        refused(asking)
    asking.infer("slow", shape=(1, 3), priority=1)


def refused(asking):
    """Until one comes while the other runs."""
    for _ in range(200):
        try:
            asking.infer("slow", shape=(1, 3), priority=2, timeout=1000)
        except InferenceServerException as error:
            assert "timeout" in error.message()
            return
    raise AssertionError("no request was refused for its timeout")


TRIED = {"classification": classification, "model_repository": model_repository,
         "model_repository(unload_dependents)": unload_dependents,
         "model_configuration": model_configuration, "binary_tensor_data": binary_tensor_data,
         "parameters": parameters, "statistics": statistics, "logging": logging, "trace": trace,
         "system_shared_memory": system_shared_memory, "cuda_shared_memory": cuda_shared_memory,
         "sequence": sequence, "schedule_policy": schedule_policy}


def listed(running):
    with triton_http.InferenceServerClient(running.address) as client:
        by_http = client.get_server_metadata()["extensions"]
    with triton_grpc.InferenceServerClient(running.grpc_address) as client:
        assert list(client.get_server_metadata().extensions) == by_http
    return by_http


@pytest.mark.parametrize("name", TRIED)
def test_extension_is_listed_when_it_works(running, asking, name):
    try:
        TRIED[name](asking)
        works = True
    except InferenceServerException as error:
        assert error.status() in ("501", "StatusCode.UNIMPLEMENTED"), str(error)
        works = False
    assert works == (name in listed(running))


def test_extension_list_is_covered(running):
    assert set(listed(running)) <= set(TRIED)


def test_extension_list_equals_docs_page(running):
    with open(os.path.join(ROOT, "docs", "extensions.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| (`.*?) \| .* \| (.*?) \|$", file.read().split("\n## ")[0], re.M)
    names = [name for row, _ in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(names) == sorted(listed(running))
    for _, tests in rows:
        for test in re.findall(r"`([^`]+)`", tests):
            assert os.path.exists(os.path.join(ROOT, test)), test


def test_infer_without_extensions_succeeds(running):
    body = {"inputs": [{"name": "INPUT0", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}]}
    answer = http1.request(running.address, "POST", "/v2/models/m/infer", json.dumps(body).encode())
    assert json.loads(answer.body)["outputs"][0]["data"] == [1, 2, 3]

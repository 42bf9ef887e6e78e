"""Every method that the reference's four clients have, against one server. The methods are asked of the
classes themselves, so that one that a later version adds has no test here and fails."""
import asyncio
import base64
import contextlib
import inspect
import json
import queue
import time
import uuid

import numpy
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.grpc.auth
import tritonclient.http
import tritonclient.http.aio
import tritonclient.http.auth
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from lib import http1, metrics
from lib.repository import DECOUPLED, Identity
from lib.server import Server

KINDS = {
    "http": (tritonclient.http, tritonclient.http),
    "http.aio": (tritonclient.http.aio, tritonclient.http),
    "grpc": (tritonclient.grpc, tritonclient.grpc),
    "grpc.aio": (tritonclient.grpc.aio, tritonclient.grpc),
}
VALUES = numpy.array([[1, 5, 3]], numpy.float32)


def methods_of(kind):
    client = KINDS[kind][0].InferenceServerClient
    return [name for name in dir(client) if name[0] != "_" and callable(getattr(client, name))]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    models = [Identity("m", [("FP32", [3])], max_batch_size=4, parameters={"echo_parameters": "true"}),
              Identity("other", [("FP32", [3])], versions=("1", "2"),
                       more="version_policy { all { } }"),
              *(model for model in DECOUPLED if model.name == "many")]
    for model in models:
        model.write(str(folder / "models"))
    with Server(folder, ["--model-repository", folder / "models", "--model-control-mode", "explicit",
                         "--load-model", "m", "--load-model", "other", "--load-model", "many",
                         "--allow-client-shm", "true", "--http-header-forward-pattern", "^authorization$",
                         "--grpc-header-forward-pattern", "^authorization$"],
                grpc=("127.0.0.1:0",)) as server:
        yield server


class Client:
    """One of the four, for code that is the same for all."""

    def __init__(self, kind, running):
        self.kind, self.running = kind, running
        self.own, self.module = KINDS[kind]
        self.is_grpc = kind.startswith("grpc")
        self.address = running.grpc_address if self.is_grpc else running.address
        self.called = set()
        self.loop = asyncio.new_event_loop() if kind.endswith("aio") else None
        self.client = self.run(self.make) if self.loop else self.open()

    def open(self):
        return self.own.InferenceServerClient(self.address)

    async def make(self):
        return self.open()

    def run(self, function, *args, **options):
        """In the loop, where there is one: some of its calls want to be made there."""
        async def inside():
            result = function(*args, **options)
            return await result if inspect.isawaitable(result) else result
        return self.loop.run_until_complete(inside())

    def __getattr__(self, name):
        """client.infer(…): its result, awaited."""
        method = getattr(self.client, name)
        self.called.add(name)
        return (lambda *args, **options: self.run(method, *args, **options)) if self.loop else method

    def told(self, name, *args, **options):
        """The answer as JSON, where it is a message too."""
        more = {"as_json": True} if self.is_grpc else {}
        return getattr(self, name)(*args, **options, **more)

    def inputs(self, values=VALUES):
        made = self.module.InferInput("INPUT0", list(values.shape), "FP32")
        return [made.set_data_from_numpy(values)]

    def outputs(self, **options):
        return [self.module.InferRequestedOutput("OUTPUT0", **options)]

    def refused(self, status, code, method, *args):
        with pytest.raises(InferenceServerException) as caught:
            getattr(self, method)(*args)
        assert caught.value.status() == (f"StatusCode.{code}" if self.is_grpc else str(status))
        return caught.value.message()

    def end(self):
        if "close" not in self.called:
            self.close()
        if self.loop:
            self.loop.close()


def is_at_rest(page):
    """A connection of grpc.aio's ends some time after its client was closed."""
    return all(page[name] <= own for name, own in metrics.AT_REST.items()
               if name != "sluice_connections")


@pytest.fixture
def client(request, running):
    made = Client(request.param, running)
    yield made
    made.end()
    metrics.wait_until(running.address, is_at_rest, "nothing in flight or held")
    running.check_log()


@pytest.mark.parametrize("client,method", [(kind, name) for kind in KINDS for name in methods_of(kind)],
                         indirect=["client"])
def test_client_method_works(client, method):
    check = CHECKS.get(method)
    assert check, f"there is no test of {method}, which the client {client.kind} has"
    check(client)
    assert method in client.called, f"the test of {method} does not call it"


def test_client_method_checks_are_complete():
    assert set(CHECKS) == {name for kind in KINDS for name in methods_of(kind)}


# ---- what is there -------------------------------------------------------------------------------

def is_server_live(client):
    assert client.is_server_live() is True


def is_server_ready(client):
    assert client.is_server_ready() is True


def is_ready(client, *args):
    """Over gRPC what is not there is an error."""
    try:
        return client.is_model_ready(*args)
    except InferenceServerException as error:
        assert client.is_grpc and error.status() == "StatusCode.NOT_FOUND"
        return False


def is_model_ready(client):
    assert is_ready(client, "m") is True
    assert is_ready(client, "other", "2") is True
    assert is_ready(client, "other", "3") is False
    assert is_ready(client, "nope") is False


def get_server_metadata(client):
    told = client.told("get_server_metadata")
    assert told["name"] == "sluice" and told["version"]
    assert {"statistics", "model_repository", "model_configuration"} <= set(told["extensions"])


def get_model_metadata(client):
    told = client.told("get_model_metadata", "m")
    shape = [str(n) for n in (-1, 3)] if client.is_grpc else [-1, 3]
    assert (told["name"], told["versions"], told["platform"]) == ("m", ["1"], "identity")
    assert told["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": shape}]
    assert told["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": shape}]
    assert client.told("get_model_metadata", "other", "2")["versions"] == ["2"]
    assert "nope" in client.refused(404, "NOT_FOUND", "get_model_metadata", "nope")


def get_model_config(client):
    told = client.told("get_model_config", "m")
    told = told["config"] if client.is_grpc else told
    assert (told["name"], told["backend"], told["max_batch_size"]) == ("m", "identity", 4)
    assert told["input"][0]["data_type"] == "TYPE_FP32"
    client.told("get_model_config", "other", "1")
    client.refused(404, "NOT_FOUND", "get_model_config", "nope")


# ---- inference -----------------------------------------------------------------------------------

OPTIONS = {"request_id": "one", "priority": 1, "timeout": 1000000, "sequence_id": 7,
           "sequence_start": True, "sequence_end": True, "parameters": {"k": "v", "n": 3}}


def same(result, values=VALUES):
    return numpy.array_equal(result.as_numpy("OUTPUT0"), values)


def parameters_of(client, result):
    answer = result.get_response()
    if not client.is_grpc:
        return answer.get("parameters", {})
    return {key: getattr(value, value.WhichOneof("parameter_choice"))
            for key, value in answer.parameters.items()}


def infer(client):
    result = client.infer("m", client.inputs(), outputs=client.outputs(), model_version="1",
                          **OPTIONS)
    answer = result.get_response()
    assert same(result) and parameters_of(client, result) == {"k": "v", "n": 3}
    assert (answer.id if client.is_grpc else answer["id"]) == "one"
    best = client.infer("m", client.inputs(), outputs=client.outputs(class_count=1))
    assert best.as_numpy("OUTPUT0").tolist() == [[b"5.000000:1"]]
    for coding in ("gzip", "deflate"):
        packed = {"compression_algorithm": coding} if client.is_grpc else {
            "request_compression_algorithm": coding, "response_compression_algorithm": coding}
        assert same(client.infer("m", client.inputs(), **packed))
    assert "nope" in client.refused(404, "NOT_FOUND", "infer", "nope", client.inputs())
    client.refused(400, "INVALID_ARGUMENT", "infer", "m", client.inputs(VALUES[0]))
    client.refused(501, "UNIMPLEMENTED", "infer", "many", client.inputs(VALUES[0]))


def async_infer(client):
    """Only where there is no asyncio: a promise over HTTP, a callback over gRPC."""
    results = queue.Queue()

    def ask(model):
        if client.is_grpc:
            client.async_infer(model, client.inputs(), callback=lambda result, error:
                               results.put((result, error)), **OPTIONS)
            result, error = results.get(timeout=http1.PATIENCE)
            if error:
                raise error
            return result
        return client.async_infer(model, client.inputs(), **OPTIONS).get_result()
    assert same(ask("m"))
    with pytest.raises(InferenceServerException, match="nope"):
        ask("nope")


def generate_request_body(client):
    """A body for who has an HTTP client of their own, and what comes of it."""
    body, json_size = client.generate_request_body(client.inputs(), outputs=client.outputs(),
                                                   request_id="one")
    fields = [("Inference-Header-Content-Length", str(json_size))] if json_size else []
    answer = http1.request(client.running.address, "POST", "/v2/models/m/infer", body, fields)
    assert answer.status == 200, str(answer)
    size = answer.get("Inference-Header-Content-Length")
    result = client.parse_response_body(answer.body, header_length=int(size) if size else None)
    assert same(result) and result.get_response()["id"] == "one"


parse_response_body = generate_request_body


# ---- streams -------------------------------------------------------------------------------------

def stream(client):
    results = queue.Queue()

    def take():
        result, error = results.get(timeout=http1.PATIENCE)
        assert error is None, str(error)
        return result
    client.start_stream(lambda result, error: results.put((result, error)))
    client.async_stream_infer("many", client.inputs(VALUES[0]), parameters={"responses": 3},
                              enable_empty_final_response=True)
    found = [take() for _ in range(3)]
    assert all(same(result, VALUES[0]) for result in found)
    finals = [parameters_of(client, result)["triton_final_response"] for result in found]
    assert finals == [False, False, True]
    client.async_stream_infer("m", client.inputs(), request_id="two")
    assert take().get_response().id == "two"
    client.stop_stream()
    client.start_stream(lambda result, error: None)
    client.async_stream_infer("many", client.inputs(VALUES[0]), parameters={"responses": 1000000})
    client.stop_stream(cancel_requests=True)


start_stream = async_stream_infer = stop_stream = stream


def stream_infer(client):
    async def requests():
        yield {"model_name": "many", "inputs": client.inputs(VALUES[0]), "parameters": {"responses": 2}}
        yield {"model_name": "m", "inputs": client.inputs()}

    async def ask(results):
        return [result.get_response().model_name async for result, error in results if not error]
    assert sorted(client.run(ask, client.stream_infer(requests()))) == ["m", "many", "many"]


# ---- models --------------------------------------------------------------------------------------

def index_of(client):
    told = client.told("get_model_repository_index")
    return {(one["name"], one.get("version")): one.get("state")
            for one in (told["models"] if client.is_grpc else told)}


def get_model_repository_index(client):
    told = index_of(client)
    assert told[("m", "1")] == told[("other", "2")] == told[("many", "1")] == "READY"


def unload_and_load(client):
    client.unload_model("other")
    assert is_ready(client, "other") is False
    end = time.monotonic() + http1.PATIENCE
    while {state for (name, _), state in index_of(client).items() if name == "other"} != {"UNAVAILABLE"}:
        assert time.monotonic() < end, index_of(client)  # it is while its last requests end
    client.unload_model("nope", unload_dependents=True)
    client.load_model("other")
    assert is_ready(client, "other") is True
    config = json.dumps({"backend": "identity", "max_batch_size": 9,
                         "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [3]}],
                         "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [3]}]})
    client.load_model("other", config=config, files={"file:7/kept": b"x"})
    told = client.told("get_model_config", "other", "7")
    assert (told["config"] if client.is_grpc else told)["max_batch_size"] == 9
    client.load_model("other")
    assert is_ready(client, "other", "7") is False
    assert is_ready(client, "other", "2") is True
    client.refused(404, "NOT_FOUND", "load_model", "nope")


load_model = unload_model = unload_and_load


# ---- numbers and settings ------------------------------------------------------------------------

def get_inference_statistics(client):
    def count():
        one, = client.told("get_inference_statistics", "m", "1")["model_stats"]
        return int(one.get("inference_count", 0))
    before = count()
    client.infer("m", client.inputs())
    assert count() == before + 1
    assert {one["name"] for one in client.told("get_inference_statistics")["model_stats"]} == {
        "m", "other", "many"}
    client.refused(400, "INVALID_ARGUMENT", "get_inference_statistics", "nope")


def setting(told, client, name):
    """Over gRPC each is wrapped up."""
    value = told["settings"][name] if client.is_grpc else told[name]
    if client.is_grpc:
        value = value.get("value", list(value.values())[0] if value else [])
    return value


def trace_settings(client):
    before = client.told("get_trace_settings")
    assert setting(before, client, "trace_level") == ["OFF"]
    told = client.told("update_trace_settings", settings={"trace_rate": "7"})
    assert setting(told, client, "trace_rate") in ("7", ["7"])
    told = client.told("update_trace_settings", model_name="m", settings={"trace_rate": "9"})
    assert setting(told, client, "trace_rate") in ("9", ["9"])
    assert setting(client.told("get_trace_settings", "m"), client, "trace_rate") in ("9", ["9"])
    client.told("update_trace_settings", model_name="m", settings={"trace_rate": None})
    client.told("update_trace_settings", settings={"trace_rate": None})
    assert client.told("get_trace_settings") == before


get_trace_settings = update_trace_settings = trace_settings


def log_settings(client):
    before = client.told("get_log_settings")
    told = client.told("update_log_settings", {"log_verbose_level": 1})
    assert setting(told, client, "log_verbose_level") == 1
    assert client.told("get_log_settings") == told
    client.told("update_log_settings", {"log_verbose_level": 0})
    assert client.told("get_log_settings") == before


get_log_settings = update_log_settings = log_settings


# ---- shared memory -------------------------------------------------------------------------------

def regions_of(client, *name):
    told = client.told("get_system_shared_memory_status", *name)
    return told.get("regions", {}) if client.is_grpc else {one["name"]: one for one in told}


def system_shared_memory(client):
    key = f"/sluice-calls-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region("region", key, 64)
    try:
        shm.set_shared_memory_region(handle, [VALUES])
        client.register_system_shared_memory("region", key, 64)
        assert set(regions_of(client)) == set(regions_of(client, "region")) == {"region"}
        given = client.module.InferInput("INPUT0", [1, 3], "FP32")
        given.set_shared_memory("region", 12)
        wanted = client.module.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("region", 12, 16)
        client.infer("m", [given], outputs=[wanted])
        assert shm.get_contents_as_numpy(handle, numpy.float32, [1, 3], 16).tolist() == VALUES.tolist()
        client.unregister_system_shared_memory("region")
        client.unregister_system_shared_memory()
        assert regions_of(client) == {}
        client.refused(404, "NOT_FOUND", "get_system_shared_memory_status", "region")
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(handle)


get_system_shared_memory_status = system_shared_memory
register_system_shared_memory = unregister_system_shared_memory = system_shared_memory


def cuda_shared_memory(client):
    """There are no GPUs here: there is no region, and none can be registered."""
    told = client.told("get_cuda_shared_memory_status")
    assert not (told.get("regions") if client.is_grpc else told)
    client.unregister_cuda_shared_memory()
    assert "CUDA" in client.refused(501, "UNIMPLEMENTED", "register_cuda_shared_memory", "region",
                                    base64.b64encode(b"x" * 64), 0, 64)


get_cuda_shared_memory_status = cuda_shared_memory
register_cuda_shared_memory = unregister_cuda_shared_memory = cuda_shared_memory


# ---- the client itself ---------------------------------------------------------------------------

def plugins(client):
    assert client.plugin() is None
    made = client.module.auth.BasicAuth("me", "word")  # a plugin that adds a header
    client.register_plugin(made)
    assert client.plugin() is made
    assert parameters_of(client, client.infer("m", client.inputs())) == {
        "authorization": "Basic " + base64.b64encode(b"me:word").decode()}
    assert client.is_server_live() is True
    client.unregister_plugin()
    assert parameters_of(client, client.infer("m", client.inputs())) == {}


plugin = register_plugin = unregister_plugin = plugins


def close(client):
    assert client.is_server_live() is True
    before = metrics.read(client.running.address)["sluice_connections"]
    client.close()
    if client.kind != "grpc.aio":
        metrics.wait_until(client.running.address, lambda page: page["sluice_connections"] < before,
                           "a connection less")
    with contextlib.suppress(InferenceServerException, ValueError, RuntimeError):
        client.close()  # once more is no harm


CHECKS = {name: globals()[name] for kind in KINDS for name in methods_of(kind) if name in globals()}

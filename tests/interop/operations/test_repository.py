"""The model repository and model configuration extensions, asked for by the reference's own clients over
HTTP, gRPC and asyncio: what is there, loads with and without a configuration and files, unloads, and what
is refused in which form."""
import asyncio
import base64
import http.client
import json
import os
import shutil

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from google.protobuf import json_format
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, repository

EXTENSIONS = {"model_repository", "model_repository(unload_dependents)", "model_configuration"}
ARRAY = numpy.array([1, 2, 3, 4], "<f4")


class Explicit:
    """A server that loads what it is told to, its folder of models, and a client for each protocol."""

    def __init__(self, start_server, tmp_path, *args):
        self.folder = tmp_path / "models"
        for name in ("a", "b", "c"):
            repository.Identity(name, [("FP32", [4])], max_batch_size=4).write(self.folder)
        self.server = start_server("--model-repository", self.folder, "--model-control-mode",
                                   "explicit", *args, grpc=("127.0.0.1:0",))
        self.clients = {"http": triton_http.InferenceServerClient(self.server.address),
                        "grpc": triton_grpc.InferenceServerClient(self.server.grpc_address)}

    def index(self, protocol="http"):
        """As JSON, whichever protocol is asked."""
        client = self.clients[protocol]
        if protocol == "http":
            return client.get_model_repository_index()
        return client.get_model_repository_index(as_json=True).get("models", [])

    def state(self, name):
        """(version, state, reason) of the model's one version."""
        rows = [row for row in self.index() if row["name"] == name]
        assert len(rows) == 1, rows
        return tuple(rows[0].get(key, "") for key in ("version", "state", "reason"))

    def wait_state(self, name, state):
        self.server.wait_for(lambda: self.state(name)[1:] == state, f"{name}: {state}")

    def post(self, path, body=None):
        """Returns: the status, and the body as JSON (None: it is empty). The path goes as it is."""
        host, port = self.server.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=http1.PATIENCE)
        connection.request("POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if data else None

    def infer(self, name, protocol="http", array=ARRAY):
        module = {"http": triton_http, "grpc": triton_grpc}[protocol]
        made = module.InferInput("INPUT0", [1, len(array)], "FP32")
        made.set_data_from_numpy(array.reshape(1, -1))
        return self.clients[protocol].infer(name, [made]).as_numpy("OUTPUT0").ravel().tolist()


@pytest.fixture
def explicit(start_server, tmp_path):
    made = Explicit(start_server, tmp_path, "--load-model", "b")
    yield made
    for client in made.clients.values():
        client.close()
    metrics.wait_at_rest(made.server.address)  # models that were loaded have memory of their own


# ---- what is there -------------------------------------------------------------------------------

@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_index_lists_models(explicit, protocol):
    assert explicit.index(protocol) == [{"name": "a"},
                                        {"name": "b", "version": "1", "state": "READY"},
                                        {"name": "c"}]
    repository.Identity("later", [("FP32", [4])]).write(explicit.folder)
    shutil.rmtree(explicit.folder / "c")
    assert [row["name"] for row in explicit.index(protocol)] == ["a", "b", "later"]


def test_index_ready_only(explicit):
    ready = [{"name": "b", "version": "1", "state": "READY"}]
    assert explicit.post("/v2/repository/index", {"ready": True}) == (200, ready)
    assert explicit.post("/v2/repository/any/index", {"ready": True}) == (200, ready)
    assert len(explicit.post("/v2/repository/index", {"ready": False})[1]) == 3
    request = triton_grpc.service_pb2.RepositoryIndexRequest(ready=True)
    answer = explicit.clients["grpc"]._client_stub.RepositoryIndex(request)
    assert [model.name for model in answer.models] == ["b"]


def test_repository_extensions_are_listed(explicit):
    assert EXTENSIONS <= set(explicit.clients["http"].get_server_metadata()["extensions"])
    assert EXTENSIONS <= set(explicit.clients["grpc"].get_server_metadata().extensions)


# ---- loading and unloading -----------------------------------------------------------------------

@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_load_and_unload_model(explicit, protocol):
    client = explicit.clients[protocol]
    assert client.is_model_ready("b") is True
    client.load_model("a")
    assert client.is_model_ready("a") is True
    assert explicit.infer("a", protocol) == ARRAY.tolist()
    assert explicit.state("a") == ("1", "READY", "")
    client.load_model("a")  # nothing has changed
    client.unload_model("a")
    explicit.wait_state("a", ("UNAVAILABLE", "unloaded"))
    with pytest.raises(InferenceServerException, match="not loaded") as caught:
        explicit.infer("a", protocol)
    assert caught.value.status() in ("404", "StatusCode.NOT_FOUND")
    client.unload_model("a", unload_dependents=True)
    client.unload_model("nobody")
    client.load_model("a")
    assert explicit.infer("a", protocol) == ARRAY.tolist()


def test_load_asyncio_clients(explicit):
    async def over_http():
        async with triton_http_aio.InferenceServerClient(explicit.server.address) as client:
            await client.load_model("a")
            names = [row["name"] for row in await client.get_model_repository_index()]
            config = await client.get_model_config("a")
            await client.unload_model("a")
            return names, config["max_batch_size"]

    async def over_grpc():
        async with triton_grpc_aio.InferenceServerClient(explicit.server.grpc_address) as client:
            await client.load_model("c")
            index = await client.get_model_repository_index()
            config = await client.get_model_config("c")
            await client.unload_model("c")
            return [model.name for model in index.models], config.config.max_batch_size
    assert asyncio.run(over_http()) == (["a", "b", "c"], 4)
    assert asyncio.run(over_grpc()) == (["a", "b", "c"], 4)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_load_with_configuration(explicit, protocol):
    client = explicit.clients[protocol]
    config = explicit.clients["http"].get_model_config("b")
    config["max_batch_size"] = 16
    config["dynamic_batching"] = {"max_queue_delay_microseconds": "0", "priority_levels": "2",
                                  "default_priority_level": 1,
                                  "priority_queue_policy": {"2": {"max_queue_size": 7}}}
    config["parameters"] = {"delay_us": {"string_value": "1"}}
    client.load_model("b", config=json.dumps(config))
    told = explicit.clients["http"].get_model_config("b")
    assert told["max_batch_size"] == 16
    assert told["parameters"] == {"delay_us": {"string_value": "1"}}
    assert told["dynamic_batching"]["priority_queue_policy"]["2"]["max_queue_size"] == 7
    assert explicit.infer("b", protocol) == ARRAY.tolist()
    client.load_model("b")  # back to what its file says
    assert explicit.clients["http"].get_model_config("b")["max_batch_size"] == 4


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_load_with_files(explicit, repositories, protocol):
    client = explicit.clients[protocol]
    path = os.path.join(repositories("onnx-only"), "onnx_identity_fp32", "1", "model.onnx")
    with open(path, "rb") as file:
        model = file.read()
    client.load_model("given", config='{"backend": "onnxruntime"}',
                      files={"file:3/model.onnx": model})
    assert client.is_model_ready("given", "3") is True
    assert explicit.state("given") == ("3", "READY", "")  # although it lies in no repository
    client.load_model("b", config='{"backend": "onnxruntime"}', files={"file:2/model.onnx": model})
    assert explicit.state("b") == ("2", "READY", "")
    client.load_model("b")
    assert explicit.state("b") == ("1", "READY", "")
    with pytest.raises(InferenceServerException, match="together with `config`"):
        explicit.clients["http"].load_model("b", files={"file:2/model.onnx": model})
    client.unload_model("given")
    explicit.server.wait_for(lambda: "given" not in [row["name"] for row in explicit.index()],
                             "an index without it")


def test_unload_removes_files_of_load(explicit, tmp_path, start_server, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    own = start_server("--model-repository", explicit.folder, "--model-control-mode", "explicit")
    client = triton_http.InferenceServerClient(own.address)
    config = json.dumps(explicit.clients["http"].get_model_config("b") | {"name": "x"})
    left = lambda: [name for name in os.listdir(tmp_path) if name.startswith("sluice-model-")]
    client.load_model("x", config=config, files={"file:1/weights": b"\0" * 100})
    assert len(left()) == 1
    client.load_model("x", config=config, files={"file:1/weights": b"\1" * 100})
    own.wait_for(lambda: len(left()) == 1, "one folder")
    client.unload_model("x")
    own.expect_error("model failed to load")
    with pytest.raises(InferenceServerException):
        client.load_model("x", config='{"backend": "absent"}', files={"file:1/weights": b"\1"})
    client.close()
    own.stop()
    assert left() == []


def test_files_of_killed_server_are_removed(explicit, tmp_path, start_server, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    start = lambda: start_server("--model-repository", explicit.folder, "--model-control-mode",
                                 "explicit")
    config = json.dumps(explicit.clients["http"].get_model_config("b") | {"name": "x"})
    left = lambda: {name for name in os.listdir(tmp_path) if name.startswith("sluice-model-")}

    def load(server):
        before = left()
        with triton_http.InferenceServerClient(server.address) as client:
            client.load_model("x", config=config, files={"file:1/weights": b"\0" * 100})
        return left() - before
    os.makedirs(tmp_path / "sluice-model-ABCDEF" / "1")
    os.symlink("/", tmp_path / "sluice-model-link00")  # another name, and no directory
    killed, living = start(), start()
    assert left() == {"sluice-model-link00"}
    of_killed, of_living = load(killed), load(living)
    killed.kill()
    assert left() == {"sluice-model-link00"} | of_killed | of_living
    start()
    assert left() == {"sluice-model-link00"} | of_living


# ---- what fails ----------------------------------------------------------------------------------

@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_load_failure_keeps_old_model(explicit, protocol):
    explicit.server.expect_error("model failed to load")
    client = explicit.clients[protocol]
    for config, why in (('{"backend": "absent"}', "no backend absent is installed"),
                        ('{"backend": "../identity"}', "not the name of a backend"),
                        ('{"backend": "identity", "max_batch_sise": 3}', "max_batch_sise"),
                        ('{"name": "other", "backend": "identity"}', "name of the model's"),
                        ('{"sequence_batching": {"state": [{}]}}', "has no input_name"),
                        ("[]", "expected a JSON object"), ("{", "expected a JSON object"),
                        ("[" * 100 + "]" * 100, "expected a JSON object"),
                        ('{"input":' + "[" * 100 + "]" * 100 + "}", "nested deeper")):
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("b", config=config)
        assert why in caught.value.message()
        assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
        version, state, reason = explicit.state("b")
        assert (version, state) == ("1", "READY") and why in reason
        assert explicit.infer("b", protocol) == ARRAY.tolist()
    client.load_model("b", config=json.dumps(explicit.clients["http"].get_model_config("b")))
    assert explicit.state("b") == ("1", "READY", "")


def test_load_torn_file_and_missing_model_fail(explicit, repositories):
    explicit.server.expect_error("model failed to load")
    path = os.path.join(repositories("onnx-only"), "onnx_identity_fp32", "1", "model.onnx")
    with open(path, "rb") as file:
        whole = file.read()
    os.makedirs(explicit.folder / "torn" / "1")
    torn = explicit.folder / "torn" / "1" / "model.onnx"
    torn.write_bytes(whole[:len(whole) // 2])
    status, error = explicit.post("/v2/repository/models/torn/load")
    assert status == 400 and "version 1: " in error["error"]
    assert explicit.state("torn")[1] == "UNAVAILABLE" and explicit.state("torn")[2]
    torn.write_bytes(whole)
    assert explicit.post("/v2/repository/models/torn/load") == (200, None)
    torn.write_bytes(whole[:-20])
    assert explicit.post("/v2/repository/models/torn/load")[0] == 400
    assert explicit.state("torn")[1] == "READY"
    shutil.rmtree(explicit.folder / "torn")
    status, error = explicit.post("/v2/repository/models/torn/load")
    assert status == 404 and "not found in any model repository" in error["error"]
    assert explicit.clients["http"].is_model_ready("torn") is True
    assert explicit.post("/v2/repository/models/torn/unload") == (200, None)
    status, error = explicit.post("/v2/repository/models/torn/load")
    assert status == 404


NAMES = ("..", "%2e%2e", ".", "%2e", "%00", "a%00", "a%2fb", "%2fetc%2fpasswd", "..%2fmodels%2fa",
         "%2e%2e%2f%2e%2e%2fetc", "a%0ab", "%ff")


@pytest.mark.parametrize("name", NAMES)
def test_load_path_traversal_name_over_http_is_refused(explicit, name):
    for verb in ("load", "unload"):
        status, error = explicit.post(f"/v2/repository/models/{name}/{verb}")
        assert status == 400 and list(error) == ["error"]
        assert "exist" not in error["error"] and str(explicit.folder) not in error["error"]
    assert explicit.infer("b") == ARRAY.tolist()


@pytest.mark.parametrize("name", ["", "..", ".", "/etc", "../models/a", "a/1", "a\0", "a\n"])
def test_load_path_traversal_name_over_grpc_is_refused(explicit, name):
    for call in (explicit.clients["grpc"].load_model, explicit.clients["grpc"].unload_model):
        with pytest.raises(InferenceServerException) as caught:
            call(name)
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        assert str(explicit.folder) not in caught.value.message()


@pytest.mark.parametrize("path", ["../1/x", "1/../../x", "/1/x", "1//x", "1/", "1", "", "0/x", "01/x",
                                  "v/x", "1/a\0b", "1/./x", "-1/x", "1/" + "x" * 300])
def test_load_path_traversal_file_is_refused(explicit, path):
    body = {"parameters": {"config": "{}", f"file:{path}": base64.b64encode(b"x").decode()}}
    status, error = explicit.post("/v2/repository/models/b/load", body)
    assert status == 400 and "does not name a file of the model" in error["error"]
    with pytest.raises(InferenceServerException) as caught:
        explicit.clients["grpc"].load_model("b", config="{}", files={f"file:{path}": b"x"})
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert explicit.state("b") == ("1", "READY", "")


@pytest.mark.parametrize("path, body, status, says", [
    ("models/nope/load", None, 404, "not found in any model repository"),
    ("models/b/load", {"parameters": {"config": 3}}, 400, "expected text"),
    ("models/b/load", {"parameters": {"config": ["{}"]}}, 400, "expected text"),
    ("models/b/load", {"parameters": {"config": {"backend": "absent"}, "file:1/x": {}}}, 400, "expected text"),
    ("models/b/load", {"parameters": {"other": "x"}}, 400, "expected config"),
    ("models/b/load", {"parameters": {"config": "{}", "file:1/x": "%"}}, 400, "base64"),
    ("models/b/load", {"parameters": []}, 400, "parameters"),
    ("models/b/load", [], 400, "object"),
    ("models/b/unload", {"parameters": {"unload_dependents": 1}}, 400, "unload_dependents"),
    ("index", {"ready": 1}, 400, "ready"),
    ("index", {"ready": "yes"}, 400, "ready"),
    ("r/models/b/load", None, 501, "repository"),
    ("r/models/b/unload", None, 501, "repository"),
    ("models/b/reload", None, 404, "no resource"),
])
def test_repository_http_refusals(explicit, path, body, status, says):
    got, error = explicit.post(f"/v2/repository/{path}", body)
    assert got == status and list(error) == ["error"] and says in error["error"], error
    assert explicit.state("b") == ("1", "READY", "")


def test_repository_grpc_refusals(explicit):
    pb = triton_grpc.service_pb2
    stub = explicit.clients["grpc"]._client_stub
    text = pb.ModelRepositoryParameter(string_param="x")
    flag = pb.ModelRepositoryParameter(bool_param=True)
    for call, request, code in (
            (stub.RepositoryIndex, pb.RepositoryIndexRequest(repository_name="r"), "UNIMPLEMENTED"),
            (stub.RepositoryModelLoad,
             pb.RepositoryModelLoadRequest(repository_name="r", model_name="b"), "UNIMPLEMENTED"),
            (stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name="nope"), "NOT_FOUND"),
            (stub.RepositoryModelLoad,
             pb.RepositoryModelLoadRequest(model_name="b", parameters={"other": text}),
             "INVALID_ARGUMENT"),
            (stub.RepositoryModelLoad,
             pb.RepositoryModelLoadRequest(model_name="b", parameters={"config": flag}),
             "INVALID_ARGUMENT"),
            (stub.RepositoryModelLoad,
             pb.RepositoryModelLoadRequest(model_name="b", parameters={"file:1/x": text}),
             "INVALID_ARGUMENT"),
            (stub.RepositoryModelUnload,
             pb.RepositoryModelUnloadRequest(model_name="b",
                                             parameters={"unload_dependents": text}),
             "INVALID_ARGUMENT")):
        with pytest.raises(Exception) as caught:
            call(request)
        assert caught.value.code().name == code, caught.value
    assert explicit.state("b") == ("1", "READY", "")


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_load_in_other_modes_is_unavailable(start_server, repositories, mode):
    running = start_server("--model-repository", repositories("default"), "--model-control-mode",
                           mode, grpc=("127.0.0.1:0",))
    with triton_grpc.InferenceServerClient(running.grpc_address) as client:
        for call in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException) as caught:
                call("id_fp32")
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
    answer = http1.request(running.address, "POST", "/v2/repository/models/id_fp32/load")
    assert answer.status == 503 and b"--model-control-mode explicit" in answer.body


# ---- the configuration ---------------------------------------------------------------------------

def test_model_config_json_equals_protobuf(client_server):
    with triton_http.InferenceServerClient(client_server.address) as client:
        told = client.get_model_config("id_batch")
        version = client.get_model_config("id_versions", "2")
        with pytest.raises(InferenceServerException) as caught:
            client.get_model_config("nope")
        assert caught.value.status() == "404"
    with triton_grpc.InferenceServerClient(client_server.grpc_address) as client:
        message = client.get_model_config("id_batch").config
    assert told["name"] == message.name == "id_batch"
    assert told["backend"] == message.backend == "identity"
    assert told["max_batch_size"] == message.max_batch_size == 8
    assert told["version_policy"] == {"latest": {"num_versions": 1}}
    assert version["version_policy"] == {"all": {}}
    tensor = {"name": "INPUT0", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [4],
              "is_shape_tensor": False, "allow_ragged_batch": False, "optional": False,
              "is_non_linear_format_io": False}
    assert told["input"] == [tensor]
    assert list(message.input[0].dims) == [4]
    group = told["instance_group"][0]
    assert group["kind"] == "KIND_CPU" and group["count"] == message.instance_group[0].count >= 1
    for key, empty in (("runtime", ""), ("batch_input", []), ("batch_output", []),
                       ("default_model_filename", ""), ("cc_model_filenames", {}),
                       ("metric_tags", {}), ("model_warmup", [])):
        assert told[key] == empty
    assert "dynamic_batching" not in told


def test_configurations_of_http_and_grpc_are_the_same_message(client_server):
    """HTTP prints what gRPC sends: its JSON, read by the reference's descriptors, is the same message."""
    with triton_http.InferenceServerClient(client_server.address) as http, \
            triton_grpc.InferenceServerClient(client_server.grpc_address) as grpc:
        rows = [row for row in http.get_model_repository_index() if row["state"] == "READY"]
        assert len(rows) > 10
        for row in rows:
            told = http.get_model_config(row["name"], row["version"])
            message = grpc.get_model_config(row["name"], row["version"]).config
            assert json_format.ParseDict(told, type(message)()) == message, row
            told = http.get_model_metadata(row["name"], row["version"])
            message = grpc.get_model_metadata(row["name"], row["version"])
            assert json_format.ParseDict(told, type(message)()) == message, row
        message = grpc.get_model_repository_index()
        assert json_format.ParseDict({"models": http.get_model_repository_index()}, type(message)()) == message
        message = grpc.get_inference_statistics()
        assert json_format.ParseDict(http.get_inference_statistics(), type(message)()) == message


# ---- the start -----------------------------------------------------------------------------------

def test_start_loads_all_models(start_server, tmp_path):
    made = Explicit(start_server, tmp_path, "--load-model", "*")
    assert [row["state"] for row in made.index()] == ["READY"] * 3


@pytest.mark.parametrize("args, says", [
    (("--model-control-mode", "explicit", "--load-model", "nope"), "no such model"),
    (("--model-control-mode", "explicit", "--load-model", "*", "--load-model", "id_fp32"), "alone"),
    (("--load-model", "id_fp32"), "--model-control-mode explicit"),
    (("--model-control-mode", "sometimes"), "explicit"),
    (("--repository-poll-secs", "-1"), "repository-poll-secs"),
])
def test_start_invalid_flags_are_refused(repositories, args, says):
    from lib import server
    done = server.run("serve", "--model-repository", repositories("default"), *args, "--http",
                      "127.0.0.1:0", "--grpc", "none", "--metrics", "none")
    assert done.returncode in (1, 2) and says in done.stderr


def test_metrics_follow_load_and_unload(explicit):
    series = 'nv_inference_request_success{model="a",version="1"}'
    assert series not in metrics.read(explicit.server.address)
    explicit.clients["http"].load_model("a")
    assert metrics.read(explicit.server.address)[series] == 0
    explicit.infer("a")
    assert metrics.read(explicit.server.address)[series] == 1
    explicit.clients["http"].unload_model("a")
    metrics.wait_until(explicit.server.address, lambda page: series not in page, "no series")
    page = metrics.wait_until(explicit.server.address,
                              lambda page: page['sluice_models{state="unloaded"}'] == 1, "unloaded")
    assert page['sluice_models{state="ready"}'] == 1
    assert page['sluice_models{state="untouched"}'] == 1

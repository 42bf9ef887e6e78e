"""SageMaker's multi-model endpoints: models that are registered by their directory while the server runs, under names of
the platform's choice, invoked and unloaded by them. The platform goes by the statuses."""
import json
import struct
import sys
import threading

import pytest

from lib import http1, metrics

TENSORS = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }'
IDENTITY = f'backend: "identity" {TENSORS}'
TENSOR = {"name": "INPUT0", "shape": [2], "datatype": "FP32"}
IN_JSON = json.dumps({"inputs": [{**TENSOR, "data": [1, 2]}]}).encode()
KIND = "application/vnd.sagemaker-triton.binary+json;json-header-size="


def model(folder, config=IDENTITY, versions=("1",)):
    for version in versions:
        (folder / version).mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    return folder


class Endpoint:
    """What the platform asks of a container."""

    def __init__(self, server, models):
        self.server, self.models = server, models

    def ask(self, method, path, body=b"", *fields):
        return http1.request(self.server.address, method, path, body, fields)

    def load(self, name, url=None):
        url = f"{self.models}/{name}/model" if url is None else url
        return self.ask("POST", "/models", json.dumps({"model_name": name, "url": str(url)}).encode())

    def listed(self, query=""):
        return json.loads(self.ask("GET", f"/models{query}").body)

    def names(self):
        return [entry["modelName"] for entry in self.listed()["models"]]

    def invoke(self, name, body=IN_JSON, *fields):
        return self.ask("POST", f"/models/{name}/invoke", body, *fields)

    def unload(self, name):
        return self.ask("DELETE", f"/models/{name}")

    def check(self):
        """A good model is served, and nothing is left of it."""
        model(self.models / "last" / "model")
        assert self.load("last").status == 200
        assert json.loads(self.invoke("last").body)["outputs"][0]["data"] == [1.0, 2.0]
        for name in self.names():
            assert self.unload(name).status == 200
        assert self.invoke("last").status == 404
        self.server.wait_at_rest()


def error_of(answer):
    return json.loads(answer.body)["error"]


@pytest.fixture
def endpoint(start_server, tmp_path):
    def start(*flags):
        (tmp_path / "models").mkdir()
        return Endpoint(start_server("--platform", "sagemaker", "--model-control-mode", "explicit", "--platform-models",
                                     tmp_path / "models", *flags), tmp_path / "models")
    return start


def test_models_are_registered_invoked_and_unloaded(endpoint):
    at = endpoint()
    for name in ("b", "a"):
        model(at.models / name / "model")
    assert at.listed() == {"models": []} and at.invoke("a").status == 404
    assert at.load("a").status == 200 and at.load("b").status == 200
    assert at.load("a").status == 409
    # the platform's server itself names the directory above that of the model
    assert at.listed() == {"models": [{"modelName": name, "modelUrl": f"{at.models}/{name}"} for name in "ab"]}
    assert json.loads(at.ask("GET", "/models/a").body) == {"modelName": "a", "modelUrl": f"{at.models}/a"}
    answer = at.invoke("a")
    assert answer.status == 200 and json.loads(answer.body)["model_name"] == "a"
    head = json.dumps({"inputs": [{**TENSOR, "parameters": {"binary_data_size": 8}}],
                       "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    values = struct.pack("<2f", 1, 2)
    answer = at.invoke("b", head + values, ("Content-Type", f"{KIND}{len(head)}"))
    assert answer.status == 200 and answer.body.endswith(values) and answer.get("Content-Type").startswith(KIND)
    # at the other paths it is a model as any other
    assert http1.request(at.server.address, "GET", "/v2/models/a/ready").status == 200
    assert metrics.read(at.server.address)['nv_inference_request_success{model="a",version="1"}'] == 1
    assert at.unload("a").status == 200 and at.unload("a").status == 404
    assert at.ask("GET", "/models/a").status == 404 and at.invoke("a").status == 404 and at.names() == ["b"]
    assert at.load("a").status == 200 and at.names() == ["a", "b"]
    at.check()


def test_directory_with_one_model_and_ensemble_beside_its_steps(endpoint):
    at = endpoint()
    model(at.models / "one" / "model" / "inner")
    step = '{ model_name: "%s" model_version: -1 input_map { key: "INPUT0" value: "%s" } output_map { key: "OUTPUT0" value: "%s" } }'
    several = at.models / "several" / "model"
    model(several / "first")
    model(several / "second")
    model(several / "whole", f'name: "whole" platform: "ensemble" {TENSORS} ensemble_scheduling {{ step [ '
                             f'{step % ("first", "INPUT0", "between")}, {step % ("second", "between", "OUTPUT0")} ] }}')
    assert at.load("one").status == 200
    assert at.load("several").status == 200
    assert at.listed()["models"] == [{"modelName": name, "modelUrl": f"{at.models}/{name}/model"} for name in ("one", "several")]
    assert json.loads(at.invoke("several").body)["outputs"][0]["data"] == [1.0, 2.0]
    assert at.invoke("first").status == 404  # a step is no model of the endpoint,
    assert at.ask("GET", "/v2/models/first/ready").status == 200  # but one of the server
    # the same steps again, under another name: their names are taken
    answer = at.load("again", several)
    assert answer.status == 400 and "there already" in error_of(answer)
    assert json.loads(at.invoke("several").body)["outputs"][0]["data"] == [1.0, 2.0]
    assert at.unload("several").status == 200 and at.names() == ["one"]
    assert at.ask("GET", "/v2/models/first/ready").status != 200
    assert at.load("again", several).status == 200 and at.unload("again").status == 200
    at.check()


@pytest.mark.parametrize("body, says", [
    (b"", ""), (b"[]", "object"), (b"{", ""), (b'{"url": "%s/a"}', "model_name"), (b'{"model_name": "a"}', "url"),
    (b'{"model_name": 1, "url": "%s/a"}', "model_name"), (b'{"model_name": "a", "url": null}', "url"),
    (b'{"model_name": "a", "url": "/dev/null"}', "below"), (b'{"model_name": "a", "url": "%s"}', "below"),
    (b'{"model_name": "a", "url": "%s/../models/a"}', "below"), (b'{"model_name": "a", "url": "%s-else/a"}', "below"),
    (b'{"model_name": "a", "url": "%s/a\\u0000b"}', ""), (b'{"model_name": "a", "url": "%s/absent"}', "No such file"),
    (b'{"model_name": "a", "url": "%s/empty"}', "one model"), (b'{"model_name": "a", "url": "%s/file"}', ""),
    (b'{"model_name": "a", "url": "%s/two"}', "2 models and 0 ensembles"), (b'{"model_name": "a/b", "url": "%s/bad"}', "a/b"),
    (b'{"model_name": "", "url": "%s/bad"}', "empty"), (b'{"model_name": "a", "url": "%s/bad"}', "backend"),
    (b'{"model_name": "a", "url": "%s/broken"}', "config.pbtxt"), (b'{"model_name": "a", "url": "%s/brokens"}', "config.pbtxt"),
])
def test_wrong_loads_are_refused_and_leave_nothing(endpoint, body, says):
    at = endpoint()
    (at.models / "empty").mkdir()
    (at.models / "file").write_bytes(b"")
    model(at.models / "bad", f'backend: "absent" {TENSORS}')
    model(at.models / "broken", "backend: {")
    for name in "ab":
        model(at.models / "two" / name)
        model(at.models / "brokens" / name, "backend: {")
    at.server.expect_error("model failed to load")
    answer = at.ask("POST", "/models", body.replace(b"%s", str(at.models).encode()))
    assert answer.status == 400 and says in error_of(answer), answer.body
    assert at.names() == [] and at.ask("GET", "/models/a").status == 404
    model(at.models / "a" / "model")
    assert at.load("a").status == 200  # the name is free
    at.check()


@pytest.mark.parametrize("text", ["CUDA out of memory", "MemoryError: 2 GiB", "std::bad_alloc", "No space left on device"])
def test_lack_of_memory_is_507(endpoint, text):
    at = endpoint("--python", sys.executable)
    at.server.expect_error(text)
    program = model(at.models / "large" / "model", f'backend: "python" {TENSORS}') / "1" / "model.py"
    program.write_text("class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
                       f"    def initialize(self, args):\n        raise RuntimeError({text!r})\n", encoding="utf-8")
    answer = at.load("large")
    assert answer.status == 507 and text in error_of(answer), answer.body
    assert at.names() == []
    at.check()


def test_paths_and_methods(endpoint):
    at = endpoint()
    for method, path, status in (("PUT", "/models", 405), ("DELETE", "/models", 405), ("POST", "/models/a", 405),
                                 ("GET", "/models/a/invoke", 404), ("GET", "/models/a/b", 404), ("GET", "/models/%zz", 404),
                                 ("GET", "/modelsx", 404), ("DELETE", "/models/a", 404), ("POST", "/models/%2e%2e/invoke", 404),
                                 ("GET", "/models/", 200)):
        assert at.ask(method, path).status == status, (method, path)
    assert at.ask("POST", "/models", b" " * 100000).status == 413
    at.check()


def test_list_comes_in_pages(endpoint):
    at = endpoint()
    shared = model(at.models / "shared" / "model")
    names = sorted(f"m {number}" for number in range(501))
    for name in names:
        assert at.load(name, shared).status == 200
    first = at.listed()
    assert [entry["modelName"] for entry in first["models"]] == names[:500]
    token = first["nextPageToken"].replace(" ", "%20")
    assert at.listed(f"?x=1&next_page_token={token}") == {"models": [{"modelName": names[500], "modelUrl": f"{at.models}/shared"}]}
    assert at.ask("GET", "/models?next_page_token=%zz").status == 400
    for name in names:
        assert at.unload(name.replace(" ", "%20")).status == 200
    assert at.names() == []
    at.check()


def test_unload_cancels_a_load_and_leaves_requests_alone(endpoint):
    at = endpoint()
    slow = IDENTITY + ' parameters { key: "creation_delay_sec" value { string_value: "3" } }'
    model(at.models / "slow" / "model", slow)
    answers = []
    loading = threading.Thread(target=lambda: answers.append(at.load("slow")))
    loading.start()
    at.server.wait_for(lambda: at.ask("GET", "/models/slow").status == 200, "the model is registered")
    assert at.names() == []  # it is not ready
    assert at.unload("slow").status == 200
    loading.join()
    assert answers[0].status == 503 and "cancelled" in error_of(answers[0])
    assert at.load("slow").status == 200 and at.names() == ["slow"]
    at.check()


def test_crowd_of_loads_and_unloads_of_one_name(endpoint):
    at = endpoint()
    model(at.models / "a" / "model")
    seen = set()

    def turn(number):
        for _ in range(20):
            seen.add((number % 2, (at.load("a") if number % 2 else at.unload("a")).status))

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= {(0, 200), (0, 404), (1, 200), (1, 409), (1, 503)}, seen
    at.unload("a")
    assert at.load("a").status == 200 and at.invoke("a").status == 200
    at.check()


def test_keys_divide_invocations_from_control(endpoint, tmp_path):
    key = "0123456789abcdef0123456789abcdef"
    keys = tmp_path / "keys"
    keys.write_text(f"infer: [{key}]\ncontrol: [{key[::-1]}]\n", encoding="utf-8")
    at = endpoint("--keys", keys)
    model(at.models / "a" / "model")
    body = json.dumps({"model_name": "a", "url": f"{at.models}/a/model"}).encode()
    infer, control = (("Authorization", f"Bearer {text}") for text in (key, key[::-1]))
    assert at.ask("POST", "/models", body).status == 401 and at.ask("POST", "/models", body, infer).status == 401
    assert at.ask("POST", "/models", body, control).status == 200
    assert at.invoke("a").status == 401 and at.invoke("a", IN_JSON, infer).status == 200
    assert at.ask("DELETE", "/models/a", b"", infer).status == 401
    assert at.ask("DELETE", "/models/a", b"", control).status == 200


@pytest.mark.parametrize("flags, says", [
    (("--platform-models", "/x"), "--platform-models needs --platform sagemaker and --model-control-mode explicit"),
    (("--platform", "sagemaker", "--platform-models", "/x"), "--platform-models needs"),
    (("--platform", "sagemaker", "--model-control-mode", "explicit", "--platform-models", "x"), "expected a directory's path"),
])
def test_settings_that_do_not_fit_are_refused(start_server, flags, says):
    server = start_server(*flags, wait="nothing")
    assert server.wait_exit() == 2
    assert says in server.log_text(), server.log_text()

"""The two paths that Vertex AI and SageMaker know of a container: health, and a model, whose binary tensors are
named by Content-Type alone. What Vertex AI redirects by a header reads, and changes nothing."""
import json
import struct

import pytest

from lib import http1, metrics

HEALTH, PREDICT = "/v1/endpoints/7/healthy", "/v1/endpoints/7:predict"
VERTEX = ("--platform", "vertex-ai", "--platform-health-route", HEALTH, "--platform-predict-route", PREDICT)
SAGEMAKER = ("--platform", "sagemaker")
TYPES = {"vertex-ai": "application/vnd.vertex-ai-triton.binary+json;json-header-size=",
         "sagemaker": "application/vnd.sagemaker-triton.binary+json;json-header-size="}
TENSOR = {"name": "INPUT0", "shape": [2], "datatype": "FP32"}
IN_JSON = json.dumps({"inputs": [{**TENSOR, "data": [1, 2]}]}).encode()
BINARY_HEAD = json.dumps({"inputs": [{**TENSOR, "parameters": {"binary_data_size": 8}}],
                          "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
VALUES = struct.pack("<2f", 1, 2)


@pytest.fixture
def platform(start_server, repositories):
    def start(*flags, kind="default"):
        return start_server("--model-repository", repositories(kind), *flags)
    return start


def post(server, path, body, *fields):
    return http1.request(server.address, "POST", path, body, fields)


def error_of(answer):
    return json.loads(answer.body)["error"]


@pytest.mark.parametrize("flags, health, predict", [(VERTEX, HEALTH, PREDICT), (SAGEMAKER, "/ping", "/invocations")])
def test_platform_has_health_and_model(platform, flags, health, predict):
    server = platform(*flags, "--platform-model", "id_fp32")
    assert http1.request(server.address, "GET", health).status == 200
    assert post(server, health, b"").status == 405
    answer = post(server, predict, IN_JSON)
    assert answer.status == 200 and json.loads(answer.body)["outputs"][0]["data"] == [1.0, 2.0]
    assert http1.request(server.address, "GET", predict).status == 405
    kind = TYPES[flags[1]]
    answer = post(server, predict, BINARY_HEAD + VALUES, ("Content-Type", f"{kind}{len(BINARY_HEAD)}"))
    assert answer.status == 200
    length = answer.get("Content-Type").removeprefix(kind)
    assert answer.get("Inference-Header-Content-Length") is None
    assert json.loads(answer.body[:int(length)])["model_name"] == "id_fp32" and answer.body[int(length):] == VALUES
    # the server's own paths are as they were
    answer = post(server, "/v2/models/id_fp32/infer", BINARY_HEAD + VALUES,
                  ("Inference-Header-Content-Length", str(len(BINARY_HEAD))))
    assert answer.get("Content-Type") == "application/octet-stream"
    server.wait_at_rest()


@pytest.mark.parametrize("length", ["", "x", "-1", "12x", "99999999999999999999", "1000000"])
def test_platform_refuses_bad_length(platform, length):
    server = platform(*VERTEX, "--platform-model", "id_fp32")
    answer = post(server, PREDICT, BINARY_HEAD + VALUES, ("Content-Type", TYPES["vertex-ai"] + length))
    assert answer.status == 400 and error_of(answer)
    assert post(server, PREDICT, IN_JSON).status == 200


def test_platform_without_model_takes_the_only_one(start_server, repositories, tmp_path):
    several = start_server("--model-repository", repositories("default"), *SAGEMAKER)
    answer = post(several, "/invocations", IN_JSON)
    assert answer.status == 400 and "--platform-model" in error_of(answer)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/id_fp32").symlink_to(f"{repositories('default')}/id_fp32")
    one = start_server("--model-repository", tmp_path / "models", *SAGEMAKER)
    assert post(one, "/invocations", IN_JSON).status == 200
    absent = start_server("--model-repository", repositories("default"), *SAGEMAKER, "--platform-model", "absent")
    assert post(absent, "/invocations", IN_JSON).status == 404


def test_platform_asks_for_life_and_generates(platform):
    server = platform(*SAGEMAKER, "--platform-health", "live", "--platform-model", "id_string", "--platform-inference",
                      "generate")
    assert http1.request(server.address, "GET", "/ping").body == http1.request(server.address, "GET",
                                                                               "/v2/health/live").body
    answer = post(server, "/invocations", b'{"INPUT0": "a"}')
    assert answer.status == 200 and json.loads(answer.body)["OUTPUT0"] == "a"


@pytest.mark.parametrize("where, path", [
    ("v2", "/v2"), ("v2/health/live", "/v2/health/live"), ("v2/models/id_fp32", "/v2/models/id_fp32"),
    ("v2/models/id_fp32/versions/1/ready", "/v2/models/id_fp32/versions/1/ready"),
    ("v2/models/id_fp32/config", "/v2/models/id_fp32/config"),
    ("v2/systemsharedmemory/status", "/v2/systemsharedmemory/status")])
def test_vertex_ai_redirects_what_reads(platform, where, path):
    server = platform(*VERTEX)
    answer = post(server, PREDICT, b"{}", ("X-Vertex-Ai-Triton-Redirect", where))
    assert answer.status == 200 and answer.body == http1.request(server.address, "GET", path).body
    assert http1.request(server.address, "GET", PREDICT, b"", (("X-Vertex-Ai-Triton-Redirect", where),)).status == 405


def test_vertex_ai_redirects_to_models_and_metrics(platform):
    server = platform(*VERTEX)
    there = ("X-Vertex-Ai-Triton-Redirect", "v2/models/id_fp32/infer")
    assert post(server, PREDICT, IN_JSON, there).status == 200
    answer = post(server, PREDICT, BINARY_HEAD + VALUES, there,
                  ("Content-Type", f"{TYPES['vertex-ai']}{len(BINARY_HEAD)}"))
    assert answer.body.endswith(VALUES) and answer.get("Content-Type").startswith(TYPES["vertex-ai"])
    assert b"nv_inference_request_success" in post(server, PREDICT, b"", ("X-Vertex-Ai-Triton-Redirect", "metrics")).body
    assert post(server, PREDICT, b"", ("X-Vertex-Ai-Triton-Redirect", "v2/repository/index")).status == 200
    assert metrics.read(server.address)['nv_inference_request_success{model="id_fp32",version="1"}'] == 2


@pytest.mark.parametrize("where, status", [
    ("v2/repository/models/id_fp32/unload", 403), ("v2/repository/models/id_fp32/load", 403),
    ("v2/systemsharedmemory/region/a/register", 403), ("v2/systemsharedmemory/unregister", 403),
    ("v2/logging", 403), ("v2/trace/setting", 403), ("", 404), ("nothing", 404), ("/v2", 404), ("v2/%zz", 404),
    ("../v2", 404), (PREDICT[1:], 404)])
def test_vertex_ai_redirects_nothing_that_changes(platform, where, status):
    server = platform(*VERTEX, "--platform-model", "id_fp32")
    answer = post(server, PREDICT, b"{}", ("X-Vertex-Ai-Triton-Redirect", where))
    assert answer.status in (status, 400) and error_of(answer)
    assert post(server, PREDICT, IN_JSON).status == 200


def test_keys_hold_at_paths_of_a_platform(platform, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("infer: [0123456789abcdef0123456789abcdef]\n", encoding="utf-8")
    server = platform(*SAGEMAKER, "--platform-model", "id_fp32", "--keys", keys)
    assert post(server, "/invocations", IN_JSON).status == 401
    key = ("Authorization", "Bearer 0123456789abcdef0123456789abcdef")
    assert post(server, "/invocations", IN_JSON, key).status == 200


@pytest.mark.parametrize("flags, says", [
    (("--platform", "vertex-ai"), "--platform-health-route: expected a path"),
    (("--platform", "vertex-ai", "--platform-health-route", "/a", "--platform-predict-route", "b"),
     '--platform-predict-route: expected a path, as /predict, got "b"'),
    (("--platform", "sagemaker", "--platform-health-route", "/ping?a"),
     '--platform-health-route: expected a path, as /predict, got "/ping?a"'),
    (("--platform", "vertex-ai", "--platform-health-route", "/same", "--platform-predict-route", "/same"),
     '--platform-health-route and --platform-predict-route are both "/same"'),
    (("--platform-model", "m"), "need --platform"), (("--platform", "azure"), "expected one of none|vertex-ai|sagemaker"),
])
def test_bad_settings_of_a_platform_are_refused(start_server, repositories, flags, says):
    server = start_server("--model-repository", repositories("default"), *flags, wait="nothing")
    assert server.wait_exit() == 2
    assert says in server.log_text(), server.log_text()

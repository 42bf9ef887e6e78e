"""Fields of config.pbtxt whose effect is in what is loaded: checksums of files, instances that are written for
GPUs, and the level of ONNX Runtime's graph optimization."""
import hashlib
import json
import os

import numpy
import pytest
import tritonclient.http
from onnx import TensorProto, helper

from lib import http1, repository

AGENTS = "model_repository_agents { agents [ %s ] }\n"


def agent(folder, *files, **wrong):
    """A checksum agent for files of the model's folder. `wrong`: a digest for the file of that name."""
    digests = {file: hashlib.md5((folder / file).read_bytes()).hexdigest() for file in files}
    entries = " ".join(f'parameters {{ key: "MD5:{file}" value: "{digest}" }}'
                       for file, digest in {**digests, **wrong}.items())
    return f'{{ name: "checksum" {entries} }}'


def write(folder, name, more=""):
    """An identity model with two files."""
    repository.Identity(name, [("FP32", [-1])], more=more).write(folder)
    (folder / name / "1" / "weights").write_bytes(os.urandom(3 << 20))
    (folder / name / "labels.txt").write_text("a\nb\n", encoding="utf-8")
    return folder / name


def append(folder, text):
    with open(folder / "config.pbtxt", "a", encoding="utf-8") as file:
        file.write(text)


def post(server, path, body=None):
    return http1.request(server.address, "POST", path, json.dumps(body or {}).encode())


def status(server, name):
    return http1.request(server.address, "GET", f"/v2/models/{name}/ready").status


def reason(server, name):
    rows = json.loads(post(server, "/v2/repository/index").body)
    return next(row.get("reason", "") for row in rows if row["name"] == name)


def test_checksum_of_every_agent_is_verified(start_server, tmp_path):
    models = tmp_path / "models"
    good = write(models, "good")
    append(good, AGENTS % ", ".join([agent(good, "1/weights", "labels.txt"), agent(good, "labels.txt")]))
    zeros = "0" * 32
    wrong = write(models, "wrong")
    append(wrong, AGENTS % ", ".join([agent(wrong, "1/weights"), agent(wrong, **{"labels.txt": zeros})]))
    missing = write(models, "missing")
    append(missing, AGENTS % agent(missing, **{"1/nothing": zeros}))
    other = write(models, "other", more='model_repository_agents { agents { name: "decrypt" } }')
    os.mkfifo(write(models, "fifo") / "pipe")
    append(models / "fifo", AGENTS % agent(other, pipe=zeros))
    server = start_server("--model-repository", models, wait="loaded")
    server.expect_error("model failed to load")
    assert status(server, "good") == 200
    digest = hashlib.md5(b"a\nb\n").hexdigest()
    for name, said in {"wrong": [f"{wrong}/labels.txt has the MD5 digest {digest}, expected {zeros}", "config.pbtxt:"],
                       "missing": [f"{missing}/1/nothing can't be read", zeros],
                       "other": ['no repository agent "decrypt" here; the only one is checksum'],
                       "fifo": ["pipe can't be read"]}.items():
        assert status(server, name) != 200
        for text in said:
            assert text in reason(server, name)


def test_checksum_wrong_at_reload_keeps_served_model(start_server, tmp_path):
    models = tmp_path / "models"
    folder = write(models, "m")
    append(folder, AGENTS % agent(folder, "1/weights"))
    server = start_server("--model-repository", models, "--model-control-mode", "explicit", "--load-model", "m")
    server.expect_error("model failed to load")
    (folder / "1" / "weights").write_bytes(b"other")
    refused = post(server, "/v2/repository/models/m/load")
    assert refused.status == 400 and "has the MD5 digest" in refused.body.decode()
    assert status(server, "m") == 200
    config = (folder / "config.pbtxt").read_text(encoding="utf-8").splitlines()
    (folder / "config.pbtxt").write_text("\n".join(config[:-1]) + "\n" + AGENTS % agent(folder, "1/weights"),
                                         encoding="utf-8")
    assert post(server, "/v2/repository/models/m/load").status == 200
    told = json.loads(http1.request(server.address, "GET", "/v2/models/m/config").body)
    digest = hashlib.md5(b"other").hexdigest()
    assert told["model_repository_agents"] == {
        "agents": [{"name": "checksum", "parameters": {"MD5:1/weights": digest}}]}


def test_checksum_in_configuration_of_request_reads_no_private_file(start_server, tmp_path):
    """A digest in an error would tell a client what is in config.pbtxt."""
    models = tmp_path / "models"
    write(models, "m")
    server = start_server("--model-repository", models, "--model-control-mode", "explicit")
    server.expect_error("model failed to load")
    config = {"backend": "identity", "model_repository_agents": {
        "agents": [{"name": "checksum", "parameters": {"MD5:config.pbtxt": "0" * 32}}]}}
    refused = post(server, "/v2/repository/models/m/load", {"parameters": {"config": json.dumps(config)}})
    assert refused.status == 400 and "may name only files" in refused.body.decode()
    assert post(server, "/v2/repository/models/m/load").status == 200


GPUS = "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]"


def test_gpu_model_runs_on_cpu_only_by_the_setting(start_server, tmp_path):
    models = tmp_path / "models"
    repository.Identity("gpu", [("FP32", [-1])], more=GPUS).write(models)
    repository.Identity("cpu", [("FP32", [-1])]).write(models)
    server = start_server("--model-repository", models, wait="loaded")
    server.expect_error("model failed to load")
    assert (status(server, "gpu"), status(server, "cpu")) == (503, 200)
    assert "config.pbtxt:5: instance_group[0].kind" in reason(server, "gpu")
    assert "--gpu-models-on-cpu" in reason(server, "gpu")
    server.stop()
    server = start_server("--model-repository", models, "--gpu-models-on-cpu", "true")
    assert (status(server, "gpu"), status(server, "cpu")) == (200, 200)
    lines = [line for line in server.log_lines() if "written for GPUs" in str(line)]
    assert len(lines) == 1 and "gpu" in str(lines[0])
    group = json.loads(http1.request(server.address, "GET", "/v2/models/gpu/config").body)["instance_group"]
    assert [(one["count"], one["kind"]) for one in group] == [(2, "KIND_CPU")]


# What becomes of 3e38 * 1e38 * 1e-38, and of 3e38 * (1 + erf) / 2, tells which nodes were fused: ConvMul is of
# the basic optimizations, Gelu of the extended ones. Both overflow where each node is computed.
LEVELS = {2: (False, False), -1: (True, False), 1: (True, True), 0: (True, True)}


def save_levels(models, name, more):
    constant = lambda values, shape=(): numpy.full(shape, values, numpy.float32)
    value = lambda text: helper.make_tensor_value_info(text, TensorProto.FLOAT, [1, 1, 1, 1])
    repository.save_onnx(
        models / name / "1" / "model.onnx", name,
        [helper.make_node(operator, given, [made]) for operator, given, made in (
            ("Conv", ["x", "w"], "c"), ("Mul", ["c", "s"], "y"), ("Div", ["x", "r"], "d"), ("Erf", ["d"], "e"),
            ("Add", ["e", "one"], "f"), ("Mul", ["x", "f"], "g"), ("Mul", ["g", "half"], "z"))],
        [value("x")], [value("y"), value("z")],
        [("w", constant(1e38, (1, 1, 1, 1))), ("s", constant(1e-38, (1, 1, 1))), ("r", constant(1.4142135)),
         ("one", constant(1)), ("half", constant(0.5))])
    (models / name / "config.pbtxt").write_text(f'backend: "onnxruntime"\n{more}\n', encoding="utf-8")


def is_finite(client, name):
    x = tritonclient.http.InferInput("x", [1, 1, 1, 1], "FP32")
    x.set_data_from_numpy(numpy.full((1, 1, 1, 1), 3e38, numpy.float32))
    answer = client.infer(name, [x])
    return tuple(bool(numpy.isfinite(answer.as_numpy(name)).all()) for name in ("y", "z"))


def test_graph_level_is_that_of_the_session(start_server, tmp_path):
    models = tmp_path / "models"
    for level in LEVELS:
        save_levels(models, f"level{level}", f"optimization {{ graph {{ level: {level} }} }}")
    save_levels(models, "unset", "")
    save_levels(models, "word", "optimization { graph { level: 1 } }\n"
                'parameters { key: "graph_optimization_level" value { string_value: "disabled" } }')
    server = start_server("--model-repository", models)
    with tritonclient.http.InferenceServerClient(server.address) as client:
        for level, expected in LEVELS.items():
            assert is_finite(client, f"level{level}") == expected, level
        assert is_finite(client, "unset") == (True, True)
        assert is_finite(client, "word") == (False, False)
        assert client.get_model_config("level-1")["optimization"] == {"graph": {"level": -1}}


@pytest.mark.parametrize("level", ["3", '"all"'])
def test_graph_level_unknown_fails_load(start_server, tmp_path, level):
    models = tmp_path / "models"
    save_levels(models, "m", f"optimization {{ graph {{ level: {level} }} }}")
    repository.Identity("good", [("FP32", [-1])]).write(models)
    server = start_server("--model-repository", models, wait="loaded")
    server.expect_error("model failed to load")
    assert (status(server, "m"), status(server, "good")) == (503, 200)
    assert "config.pbtxt:2: optimization.graph.level" in reason(server, "m")

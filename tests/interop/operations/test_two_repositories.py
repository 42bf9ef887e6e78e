"""A model that two repositories have: it is not served, as with Triton, and the others are."""
import json
import shutil

from lib import http1, repository

REASON = "model appears in two or more repositories"


def write(folder, *names):
    for name in names:
        repository.Identity(name, [("FP32", [-1])]).write(folder)


def two(tmp_path, first="both one", second="both two"):
    write(tmp_path / "a", *first.split())
    write(tmp_path / "b", *second.split())
    return ["--model-repository", tmp_path / "a", "--model-repository", tmp_path / "b"]


def post(server, path):
    return http1.request(server.address, "POST", path)


def index(server):
    rows = json.loads(post(server, "/v2/repository/index").body)
    return {row["name"]: (row.get("state", ""), row.get("reason", "")) for row in rows}


def ready(server, name=None):
    return http1.request(server.address, "GET", f"/v2/models/{name}/ready" if name else "/v2/health/ready").status == 200


def test_model_of_two_repositories_is_left_out(start_server, tmp_path):
    server = start_server(*two(tmp_path), "--model-repository", tmp_path / "b" / ".." / "b")
    server.expect_error("model is in two repositories")
    server.expect_error("model failed to load")
    assert ready(server)  # as Triton, with strict readiness
    assert [ready(server, name) for name in ("one", "two", "both")] == [True, True, False]
    assert index(server) == {"one": ("READY", ""), "two": ("READY", ""), "both": ("UNAVAILABLE", REASON)}
    lines = [line for line in server.log_lines() if line["event"] == "model is in two repositories"]
    assert [(line["model"], line["path"], line["other"]) for line in lines] == [
        ("both", str(tmp_path / "a" / "both"), str(tmp_path / "b" / "both"))]
    refused = http1.request(server.address, "POST", "/v2/models/both/infer", b"{}")
    assert refused.status == 503 and REASON in refused.body.decode()


def test_exit_on_error_ends_the_start(start_server, tmp_path):
    server = start_server(*two(tmp_path), "--exit-on-error=true", wait="nothing")
    assert server.wait_exit() == 1
    assert f"both: {REASON}" in server.log_text()


def test_nothing_else_to_serve_ends_the_start(start_server, tmp_path):
    server = start_server(*two(tmp_path, "both", "both"), wait="nothing")
    assert server.wait_exit() == 1
    assert f"both: {REASON}" in server.log_text()


def test_requested_load_is_refused_until_one_is_removed(start_server, tmp_path):
    server = start_server(*two(tmp_path, "both one", "two"), "--model-control-mode", "explicit", "--load-model", "both")
    server.expect_error("model is in two repositories")
    server.expect_error("model failed to load")
    write(tmp_path / "b", "both", "one")
    assert index(server)["one"] == ("UNAVAILABLE", REASON)  # without a load
    refused = post(server, "/v2/repository/models/both/load")
    assert refused.status >= 400 and "failed to load 'both'" in refused.body.decode() and REASON in refused.body.decode()
    assert ready(server, "both")  # the loaded one is served on
    shutil.rmtree(tmp_path / "a" / "both")
    assert post(server, "/v2/repository/models/both/unload").status == 200
    assert post(server, "/v2/repository/models/both/load").status == 200 and ready(server, "both")
    assert ready(server)


def test_polling_unloads_and_loads_again(start_server, tmp_path):
    server = start_server(*two(tmp_path, "both one", "two"), "--model-control-mode", "poll", "--repository-poll-secs", "1")
    server.expect_error("model is in two repositories")
    server.expect_error("model failed to load")
    write(tmp_path / "b", "both")
    server.wait_for(lambda: index(server)["both"] == ("UNAVAILABLE", REASON), "an ambiguous model")
    assert not ready(server, "both") and ready(server, "one") and ready(server)
    shutil.rmtree(tmp_path / "a" / "both")
    server.wait_for(lambda: index(server)["both"] == ("READY", ""), "a model in one repository")
    assert ready(server, "both")

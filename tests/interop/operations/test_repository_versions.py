"""Versions that are added to a model, changed and removed while others are served: those that did not change go on,
with their requests, their instances and their statistics."""
import contextlib
import json
import os
import shutil

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lib import http1, metrics, repository
from lib.load import Load

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

ALL = "version_policy { all { } }"
BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
PATIENCE = 200  # requests of a version after each change


class Versions:
    """A server with a model `m`, of which a version is asked all the time."""

    def __init__(self, start_server, folder, mode, policy=ALL, version="1"):
        self.folder = folder / "m"
        repository.Identity("m", [("FP32", [4])], max_batch_size=4, more=policy).write(folder)
        self.server = start_server("--model-repository", folder, "--model-control-mode", mode,
                                   *(["--load-model", "*"] if mode == "explicit" else ["--repository-poll-secs", "1"]))
        self.mode = mode
        path = f"/v2/models/m/versions/{version}/infer" if version else "/v2/models/m/infer"
        self.load = Load(self.server.address, 4, "POST", path, BODY)

    def add(self, version):
        """A directory that is moved in whole."""
        new = self.folder.parent.parent / "new"
        os.makedirs(new)
        (new / "data").write_text(version, encoding="utf-8")
        os.rename(new, self.folder / version)

    def post(self, action, parameters=None):
        body = json.dumps({"parameters": parameters} if parameters else {}).encode()
        return http1.request(self.server.address, "POST", f"/v2/repository/models/m/{action}", body)

    def apply(self):
        """Polling sees the change by itself."""
        if self.mode == "explicit":
            assert self.post("load").status == 200

    def versions(self):
        answer = http1.request(self.server.address, "GET", "/v2/models/m")
        return json.loads(answer.body).get("versions") if answer.status == 200 else None

    def wait_versions(self, *expected):
        self.server.wait_for(lambda: self.versions() == list(expected), f"versions {expected}")

    def counts(self):
        """{version: inferences}"""
        rows = json.loads(http1.request(self.server.address, "GET", "/v2/models/m/stats").body)["model_stats"]
        return {row["version"]: row["inference_count"] for row in rows}

    def n_loads(self, version):
        return sum(line["event"] == "model loaded" and line["version"] == version for line in self.server.log_lines())


@pytest.fixture
def start(start_server, tmp_path):
    return lambda *args, **more: Versions(start_server, tmp_path / "models", *args, **more)


@contextlib.contextmanager
def without_failure(served):
    """Version 1 is asked all the time, and counted from its load to the end."""
    with served.load as load:
        load.wait_more(PATIENCE)
        yield load
        load.wait_more(PATIENCE)
    assert load.n() == load.n(200), load.outcomes


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_version_added_and_removed_leaves_others_running(start, mode):
    served = start(mode)
    with without_failure(served) as load:
        for version in ("2", "3"):
            before = served.counts()["1"]
            served.add(version)
            served.apply()
            served.wait_versions(*map(str, range(1, int(version) + 1)))
            load.wait_more(PATIENCE)
            assert served.counts()["1"] >= before + PATIENCE
        shutil.rmtree(served.folder / "2")
        served.apply()
        served.wait_versions("1", "3")
    metrics.wait_at_rest(served.server.address)
    assert served.counts()["1"] == load.n(200)
    assert [served.n_loads(version) for version in (1, 2, 3)] == [1, 1, 1]


def test_changed_version_alone_is_loaded_again(start):
    served = start("explicit")
    served.add("2")
    served.apply()
    with without_failure(served):
        (served.folder / "2" / "data").write_text("changed", encoding="utf-8")
        served.apply()
        assert [served.n_loads(version) for version in (1, 2)] == [1, 2]
        served.apply()  # nothing changed
        assert [served.n_loads(version) for version in (1, 2)] == [1, 2]


@pytest.mark.parametrize("change", ["config.pbtxt", "labels.txt"])
def test_change_of_common_file_loads_all_again(start, change):
    served = start("explicit")
    served.add("2")
    served.apply()
    with without_failure(served):
        with open(served.folder / change, "a", encoding="utf-8") as file:
            file.write("# changed\n")
        before = served.load.n()
        served.apply()
        assert [served.n_loads(version) for version in (1, 2)] == [2, 2]
    assert served.counts()["1"] <= served.load.n() - before + 4  # those that the four clients had sent


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_latest_version_replaces_the_one_before(start, mode):
    served = start(mode, policy="version_policy { latest { num_versions: 1 } }", version=None)
    with without_failure(served):
        served.add("2")
        served.apply()
        served.wait_versions("2")
    assert [served.n_loads(version) for version in (1, 2)] == [1, 1]


def test_one_version_is_unloaded_and_loaded(start):
    served = start("explicit")
    served.add("2")
    served.add("3")
    served.apply()
    with without_failure(served):
        assert served.post("unload", {"version": 3}).status == 200
        served.wait_versions("1", "2")
        answer = http1.request(served.server.address, "POST", "/v2/models/m/versions/3/infer", BODY)
        assert answer.status == 404 and "it serves 1, 2" in answer.body.decode()
        assert served.post("unload", {"version": "3"}).status == 200  # it is not served
        assert served.post("load", {"version": "3"}).status == 200
        served.wait_versions("1", "2", "3")
        assert served.post("load", {"version": 3}).status == 200  # nothing changed
        assert [served.n_loads(version) for version in (1, 2, 3)] == [1, 1, 2]
        assert served.post("unload", {"version": 2}).status == 200
        served.wait_versions("1", "3")
        served.apply()  # back to the policy
        served.wait_versions("1", "2", "3")
        assert [served.n_loads(version) for version in (1, 2, 3)] == [1, 2, 2]
    assert served.counts()["1"] == served.load.n(200)
    for version in (1, 2, 3):
        assert served.post("unload", {"version": version}).status == 200
    assert http1.request(served.server.address, "GET", "/v2/models/m/ready").status == 404
    metrics.wait_at_rest(served.server.address)
    assert served.post("load", {"version": 2}).status == 200
    served.wait_versions("2")


def test_one_version_over_grpc(start_server, tmp_path):
    repository.Identity("m", [("FP32", [4])], versions=("1", "2"), more=ALL).write(tmp_path / "models")
    server = start_server("--model-repository", tmp_path / "models", "--model-control-mode", "explicit",
                          "--load-model", "*", grpc=("127.0.0.1:0",))
    change = service_pb2.RepositoryModelUnloadRequest(model_name="m")
    change.parameters["version"].int64_param = 1
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stub.RepositoryModelUnload(change)
        assert list(stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="m")).versions) == ["2"]
        change = service_pb2.RepositoryModelLoadRequest(model_name="m")
        change.parameters["version"].string_param = "1"
        stub.RepositoryModelLoad(change)
        assert list(stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="m")).versions) == ["1", "2"]
        change.parameters["version"].string_param = "one"
        with pytest.raises(grpc.RpcError) as refused:
            stub.RepositoryModelLoad(change)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_one_version_wrong_requests_are_refused(start):
    served = start("explicit")
    served.server.expect_error("model failed to load")
    config = json.dumps({"backend": "identity"})
    for parameters, status, said in [({"version": 0}, 400, "a version's number"),
                                     ({"version": "x"}, 400, "a version's number"),
                                     ({"version": [1]}, 400, "a version's number"),
                                     ({"version": 7}, 404, "has no version 7"),
                                     ({"version": 1, "config": config}, 400, "stands alone")]:
        answer = served.post("load", parameters)
        assert (answer.status, said in answer.body.decode()) == (status, True), answer
    config = json.dumps({"backend": "identity", "version_policy": {"all": {}}, "max_batch_size": 4,
                         "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
                         "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}]})
    assert served.post("load", {"config": config, "file:1/a": "", "file:2/a": ""}).status == 200
    answer = served.post("load", {"version": 1})
    assert answer.status == 400 and "the files of a request" in answer.body.decode()
    assert served.post("unload", {"version": 1}).status == 200
    assert served.versions() == ["2"]
    assert served.post("unload").status == 200
    metrics.wait_at_rest(served.server.address)

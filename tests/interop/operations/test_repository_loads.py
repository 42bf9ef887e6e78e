"""Loads that take long or never end: nothing else waits for them, and they can be cancelled and have a time
limit. The models of tests/lib/gate_backend.c are open when a file exists."""
import json
import os
import shutil
import threading

import pytest

from lib import backends, http1, metrics, repository


@pytest.fixture(scope="module")
def gate_backend(tmp_path_factory):
    return backends.make(tmp_path_factory.mktemp("gate"), "gate")


class Gated:
    """A repository with a quick model `m`, and models that wait for their gate."""

    def __init__(self, start_server, tmp_path, backend_dir):
        self.start_server = start_server
        self.backend_dir = backend_dir
        self.folder = tmp_path / "models"
        self.gates = tmp_path / "gates"
        self.gates.mkdir()
        self.server = None
        repository.Identity("m", [("FP32", [1])]).write(self.folder)

    def add(self, name):
        os.makedirs(self.folder / name / "1")
        (self.folder / name / "config.pbtxt").write_text(
            f'backend: "gate"\nparameters {{ key: "gate" value {{ string_value: '
            f'"{self.gates / name}" }} }}\n'
            'input { name: "I" data_type: TYPE_FP32 dims: [ 1 ] }\n'
            'output { name: "O" data_type: TYPE_FP32 dims: [ 1 ] }\n', encoding="utf-8")

    def open(self, name):
        (self.gates / name).touch()

    def start(self, *more, **options):
        self.server = self.start_server("--backend-dir", self.backend_dir, "--model-repository",
                                        self.folder, *more, **options)

    def post(self, path):
        return http1.request(self.server.address, "POST", path)

    def load(self, name):
        """Asks in a thread. Returns: what waits for the answer."""
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(self.post(f"/v2/repository/models/{name}/load")))
        thread.start()

        def join():
            thread.join(http1.PATIENCE)
            return answers[0]
        return join

    def states(self):
        rows = json.loads(self.post("/v2/repository/index").body)
        return {row["name"]: (row.get("state"), row.get("reason", "")) for row in rows}

    def wait_state(self, name, state):
        self.server.wait_for(lambda: self.states().get(name, (None,))[0] == state,
                             f"{name} to be {state}")

    def end(self):
        for name in os.listdir(self.folder):
            self.open(name)
        metrics.wait_at_rest(self.server.address)


@pytest.fixture
def gated(start_server, tmp_path, gate_backend):
    made = Gated(start_server, tmp_path, gate_backend)
    yield made
    made.end()


EXPLICIT = ("--model-control-mode", "explicit", "--load-model", "m")


def test_index_unload_load_do_not_wait_for_loads(gated):
    names = [f"stuck{i}" for i in range(4)]
    for name in [*names, "other"]:
        gated.add(name)
    gated.start(*EXPLICIT)
    loads = [gated.load(name) for name in names]  # as many as --model-load-thread-count
    for name in names:
        gated.wait_state(name, "LOADING")
    assert gated.post("/v2/repository/models/m/unload").status == 200
    assert gated.states()["m"][0] != "READY"
    other = gated.load("other")  # waits for a place
    assert gated.post("/v2/repository/models/stuck0/unload").status == 200
    answer = loads[0]()
    assert answer.status == 503 and b"was cancelled" in answer.body
    gated.wait_state("other", "LOADING")
    gated.open("other")
    assert other().status == 200
    assert gated.load("m")().status == 200
    again = gated.load("stuck0")  # beside its own cancelled load
    gated.wait_state("stuck0", "LOADING")
    for name in names:
        gated.open(name)
    assert [load().status for load in [again, *loads[1:]]] == [200] * 4
    assert {state for state, _ in gated.states().values()} == {"READY"}


def test_load_past_time_limit_fails(gated):
    gated.add("stuck")
    gated.start(*EXPLICIT, "--model-load-timeout", "1s")
    gated.server.expect_error("model failed to load")
    answer = gated.load("stuck")()
    assert answer.status >= 400 and b"--model-load-timeout" in answer.body
    state, reason = gated.states()["stuck"]
    assert state == "UNAVAILABLE" and "--model-load-timeout" in reason
    gated.open("stuck")
    assert gated.load("stuck")().status == 200
    gated.wait_state("stuck", "READY")


def test_start_serves_other_models_while_one_loads(gated):
    gated.add("a_stuck")
    gated.start(wait="listening")
    gated.wait_state("m", "READY")
    assert gated.states()["a_stuck"][0] == "LOADING"
    assert http1.request(gated.server.address, "GET", "/v2/health/ready").status == 503
    gated.open("a_stuck")
    gated.server.wait_ready()


def test_poll_follows_files_while_one_model_loads(gated):
    gated.start("--model-control-mode", "poll", "--repository-poll-secs", "1")
    gated.add("a_stuck")
    gated.wait_state("a_stuck", "LOADING")
    repository.Identity("new", [("FP32", [1])]).write(gated.folder)
    gated.wait_state("new", "READY")
    shutil.rmtree(gated.folder / "a_stuck")
    gated.server.wait_for(lambda: "a_stuck" not in gated.states(), "the end of the hung load")
    gated.open("a_stuck")


def test_shutdown_does_not_wait_for_load(gated):
    gated.add("stuck")
    gated.start(*EXPLICIT)
    load = gated.load("stuck")
    gated.wait_state("stuck", "LOADING")
    assert gated.post("/v2/repository/models/stuck/unload").status == 200
    assert load().status == 503
    gated.server.signal()
    assert gated.server.wait_exit() == 0
    gated.end = lambda: None


REFUSED_LABELS = ["1/model.onnx", "1/notes.txt", "out.txt", "link/lines.txt", "version.txt", "config.pbtxt", "/etc/passwd",
                  "../lines.txt"]


@pytest.mark.parametrize("named_by", ["label_filename", "mip.labels", "input_data_file"])
def test_configuration_of_request_reads_no_other_files(start_server, tmp_path, named_by):
    """bug-43: the lines of any file of a model's directory could be read as labels."""
    folder = tmp_path / "models"
    repository.Identity("m", [("FP32", [4])], max_batch_size=8).write(folder)
    for path in ("1/model.onnx", "1/notes.txt", "labels.txt", "deep/labels.txt"):
        os.makedirs((folder / "m" / path).parent, exist_ok=True)
        (folder / "m" / path).write_text("secret\nof\nthe\noperator\n", encoding="utf-8")
    os.makedirs(tmp_path / "outside")
    for path in ("lines.txt", "outside/lines.txt"):
        (tmp_path / path).write_text("secret\nof\nothers\n!\n", encoding="utf-8")
    for name, target in (("out.txt", "../../lines.txt"), ("link", "../../outside"), ("version.txt", "1/notes.txt"),
                         ("inside.txt", "labels.txt"), ("warmup", ".")):
        os.symlink(target, folder / "m" / name)
    server = start_server("--model-repository", folder, "--model-control-mode", "explicit", "--load-model", "m",
                          "--mip", "tcp://127.0.0.1:0=m")
    server.expect_error("model failed to load")
    config = json.loads(http1.request(server.address, "GET", "/v2/models/m/config").body)

    def load(path):
        changed = json.loads(json.dumps(config))
        if named_by == "label_filename":
            changed["output"][0]["label_filename"] = path
        elif named_by == "mip.labels":
            changed["parameters"] = {"mip.labels": {"string_value": path}, "mip.top_k": {"string_value": "2"}}
        else:
            changed["model_warmup"] = [{"name": "w", "batch_size": 1, "inputs": {"INPUT0": {
                "data_type": "TYPE_FP32", "dims": [4], "input_data_file": path}}}]
        body = json.dumps({"parameters": {"config": json.dumps(changed)}}).encode()
        return http1.request(server.address, "POST", "/v2/repository/models/m/load", body)

    for path in REFUSED_LABELS:
        answer = load(path)
        assert answer.status >= 400 and b"secret" not in answer.body, (path, answer.body)
        if path[0] not in "/.":
            assert b"a configuration given by a request may name only files" in answer.body, (path, answer.body)
    for path in ("labels.txt", "deep/labels.txt", "inside.txt"):
        answer = load(path)
        # as a sample the text is too long or short
        assert answer.status == 200 or (named_by == "input_data_file" and b"expected 16" in answer.body), answer.body
    assert http1.request(server.address, "GET", "/v2/models/m/ready").status == 200


def test_configuration_on_disk_reads_linked_labels(start_server, tmp_path):
    folder = tmp_path / "models"
    repository.Identity("m", [("FP32", [2])]).write(folder)
    (tmp_path / "lines.txt").write_text("cat\ndog\n", encoding="utf-8")
    os.symlink("../../lines.txt", folder / "m" / "labels.txt")
    place = folder / "m" / "config.pbtxt"
    place.write_text(place.read_text(encoding="utf-8").replace(
        'name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "labels.txt"'), encoding="utf-8")
    server = start_server("--model-repository", folder)
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [0, 1]}],
                       "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}]}).encode()
    answer = http1.request(server.address, "POST", "/v2/models/m/infer", body)
    assert answer.status == 200 and b"dog" in answer.body, answer.body


# ---- models that no directory has ------------------------------------------------------------------

def test_load_with_files_is_forgotten_after_others(start_server, tmp_path, monkeypatch):
    """A client can load models by any name, with files of its own: of those that were unloaded some names are known
    for a while, and nothing else is kept."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    repository.Identity("m", [("FP32", [1])]).write(tmp_path / "models")
    server = start_server("--model-repository", tmp_path / "models", "--model-control-mode", "explicit", "--load-model",
                          "m")
    tensor = [{"name": "T", "data_type": "TYPE_FP32", "dims": [1]}]
    config = json.dumps({"backend": "identity", "input": tensor, "output": [{**tensor[0], "name": "O"}]})
    body = json.dumps({"parameters": {"config": config, "file:1/kept": "AAAA"}}).encode()

    def change(name, how, sent=b""):
        assert http1.request(server.address, "POST", f"/v2/repository/models/{name}/{how}", sent).status == 200

    def index():
        answer = http1.request(server.address, "POST", "/v2/repository/index", b"")
        return [(model["name"], model.get("reason", model["state"])) for model in json.loads(answer.body)]

    names = [f"given-{i:03}" for i in range(400)]
    for name in names:
        change(name, "load", body)
        change(name, "unload")
    def error_of(name):
        answer = http1.request(server.address, "GET", f"/v2/models/{name}")
        assert answer.status == 404
        return json.loads(answer.body)["error"].replace(f"Request for unknown model: '{name}' ", "")

    server.wait_for(lambda: not os.listdir(tmp_path / "tmp"), "the removal of the files")
    server.wait_for(lambda: error_of(names[-257]) == "is not found", "that names are forgotten")
    assert error_of(names[0]) == "is not found"
    assert error_of(names[-256]) == error_of(names[-1]) == "has no available versions: it is not loaded"
    assert index() == [("m", "READY")]
    for name in (names[0], names[-1]):  # they can be loaded again
        change(name, "load", body)
        assert (name, "READY") in index()
    assert http1.request(server.address, "GET", f"/v2/models/{names[0]}/ready").status == 200
    server.arenas = metrics.read(server.address)["sluice_arenas"]  # with those of names that are kept
    server.wait_at_rest()

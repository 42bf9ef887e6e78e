"""Models in Python (backends/python): what they get and what they answer, by the reference's own clients; and what
becomes of wrong answers, of workers that end, and of other models beside them."""
import json
import os
import queue
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import urllib.request

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1, python_models, server as servers
from lib.python_models import DOES, FLAGS, Client, parameter, tensor, wait_restarted
from lib.repository import DATATYPES

NUMPY = {"BOOL": numpy.bool_, "FP16": numpy.float16, "FP32": numpy.float32, "FP64": numpy.float64, "BYTES": numpy.object_,
         **{kind: numpy.dtype(kind.lower()) for kind in DATATYPES if "INT" in kind}}


@pytest.fixture
def running(start_server, tmp_path):
    """run(name=(source, config), …): a server of these models."""
    def run(*flags, wait="ready", **models):
        for name, (source, config) in models.items():
            python_models.write(tmp_path / "models", name, source, config)
        return start_server("--model-repository", tmp_path / "models", *FLAGS, *flags, grpc=("127.0.0.1:0",), wait=wait)
    return run


def some(datatype, n):
    """An array of n elements."""
    if datatype == "BYTES":
        return numpy.array([b"x" * (i % 7) for i in range(n)], dtype=object)
    if datatype == "BOOL":
        return numpy.arange(n) % 3 == 0
    return (numpy.arange(n) % 100).astype(NUMPY[datatype])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_every_datatype_and_size_comes_back(running, protocol):
    kinds = [datatype for datatype in DATATYPES if datatype != "BF16"]
    server = running(**{f"echo_{kind.lower()}": ("echo", tensor("input", "INPUT0", kind, [-1])
                                                 + tensor("output", "OUTPUT0", kind, [-1])) for kind in kinds})
    client = Client(server, protocol)
    for kind in kinds:
        for n in (0, 1, 100, 20_000, 300_000):  # in the message, and in shared memory
            array = some(kind, n)
            answer = client.infer(f"echo_{kind.lower()}", {"INPUT0": array}).as_numpy("OUTPUT0")
            assert answer.dtype == array.dtype and answer.shape == array.shape
            assert (answer == array).all()


def test_requested_outputs_are_in_their_order(running):
    server = running(two=("echo", "".join(tensor(kind, f"{kind.upper()}{i}", "FP32", [-1])
                                          for kind in ("input", "output") for i in range(2))))
    client = Client(server)
    arrays = {f"INPUT{i}": numpy.full(3 + i, i, numpy.float32) for i in range(2)}
    wanted = [tritonclient.http.InferRequestedOutput(name) for name in ("OUTPUT1", "OUTPUT0")]
    answer = client.infer("two", arrays, outputs=wanted)
    assert [output["name"] for output in answer.get_response()["outputs"]] == ["OUTPUT1", "OUTPUT0"]
    assert (answer.as_numpy("OUTPUT1") == arrays["INPUT1"]).all()
    only = client.infer("two", arrays, outputs=wanted[:1])
    assert [output["name"] for output in only.get_response()["outputs"]] == ["OUTPUT1"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_have_what_the_client_gave(running, protocol):
    server = running(does=("does", DOES + "dynamic_batching { priority_levels: 5 default_priority_level: 3 }\n"))
    client = Client(server, protocol)
    told = json.loads(client.ask("does", "describe", request_id="seven", sequence_id=12, sequence_start=True, priority=2,
                                 timeout=30_000_000, parameters={"a": "b", "n": 5, "yes": True}))
    assert told == {"id": "seven", "correlation": 12, "flags": 1, "priority": 2, "timeout": 30_000_000,
                    "parameters": {"a": "b", "n": 5, "yes": True}, "outputs": ["OUT"], "model": "does", "version": 1,
                    "cancelled": False}
    told = json.loads(client.ask("does", "describe", sequence_id="text", sequence_end=True))
    assert (told["correlation"], told["flags"], told["id"], told["timeout"]) == ("text", 2, "", 0)


def test_responses_have_parameters(running):
    server = running(does=("does", DOES))
    client = Client(server)
    arrays = {"DO": numpy.array([[b"parameters"]], dtype=object)}
    answer = client.infer("does", arrays).get_response()
    assert answer["parameters"] == {"text": "a", "number": 7, "large": 1 << 63, "half": 0.5, "true": True}


def test_initialize_gets_the_configuration(running, tmp_path):
    server = running(does=("does", DOES + parameter("of the model", "its own")))
    told = json.loads(Client(server).ask("does", "arguments"))
    served = json.loads(http1.request(server.address, "GET", "/v2/models/does/config").body)
    assert told["model_config"] == served
    assert served["parameters"]["of the model"] == {"string_value": "its own"}
    assert told["model_instance_name"] == "does_0" and told["model_instance_kind"] == "CPU"
    assert told["model_version"] == "1" and told["model_name"] == "does"
    assert told["model_repository"] == str(tmp_path / "models" / "does")
    assert told["directory"] == str(tmp_path / "models" / "does" / "1")
    executable = subprocess.check_output([FLAGS[1], "-c", "import sys; print(sys.executable)"], text=True).strip()
    assert os.path.realpath(told["executable"]) == os.path.realpath(executable)


WRONG = {
    "execute raises": "ValueError: as asked (does.py:",
    "no text": "NoText: its text cannot be made (does.py:",
    "too few": "execute returned 0 responses to 1 requests",
    "not a list": "execute must return a list of InferenceResponse, it returned int",
    "other datatype": "output 'OUT' is INT32, the configuration says BYTES",
    "other kind": "it contains str",
    "strange parameter": "parameter 'list': expected bool, int, float or str, got list",
    "error:1": "500 as asked",
    "error:2": "404 as asked",
    "error:3": "400 as asked",
    "error:4": "503 as asked",
    "error:5": "501 as asked",
}


def test_wrong_answers_are_errors_of_their_requests(running):
    server = running(does=("does", DOES))
    client = Client(server)
    pid = client.ask("does", "pid")
    for word, expected in WRONG.items():
        error = client.error_of("does", word)
        assert expected.replace("does.py", "model.py") in error, (word, error)
        assert client.ask("does", "fine") == "fine"
    assert client.ask("does", "pid") == pid


def test_outputs_over_the_limit_are_refused(running):
    server = running("--max-output-size", "1MiB", does=("does", DOES))
    client = Client(server)
    assert len(client.ask("does", "large:1000000")) == 1_000_000
    assert "--max-output-size" in client.error_of("does", "large:2000000")
    assert client.ask("does", "fine") == "fine"


@pytest.mark.parametrize("word,expected", [
    ("exit", "503 the Python worker of model does exited with code 3"),
    ("end", "503 the Python worker of model does exited with code 4"),
    ("kill", "503 the Python worker of model does was ended by signal 9 (Killed)"),
    ("close files", "something in this process closes descriptors that are not its own"),
    ("few files", "this process has all files open that it may (RLIMIT_NOFILE)"),
])
def test_worker_that_ends_is_started_again(running, word, expected):
    server = running(does=("does", DOES), other=("does", DOES))
    server.expect_error("worker of instance 0")
    client = Client(server)
    before = client.ask("does", "pid")
    others = client.ask("other", "pid")
    error = client.error_of("does", word)
    assert expected in error, error
    assert client.ask("other", "pid") == others
    wait_restarted(server, client)
    assert client.ask("does", "pid") != before
    assert len(python_models.workers(server.pid)) == 2


def test_crowd_of_which_half_leaves_is_answered(running):
    """200 connections at one instance, each with several requests; those of clients that left are of no effect."""
    server = running(does=("does", DOES + "dynamic_batching {}\n"), other=("does", DOES))
    body = json.dumps({"inputs": [{"name": "DO", "datatype": "BYTES", "shape": [1, 1], "data": ["fine"]}]}).encode()
    request = (b"POST /v2/models/does/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
    connections = [http1.connect(server.address) for _ in range(200)]
    for turn in range(3):
        for connection in connections:
            connection.sendall(request)
        if turn == 1:
            for connection in connections[::2]:
                connection.close()
            connections = connections[1::2]
        for connection in connections:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 "), turn
        assert Client(server).ask("other", "fine") == "fine"
    for connection in connections:
        connection.close()
    server.wait_at_rest()


def test_idle_worker_that_is_killed_is_started_again(running):
    server = running(does=("does", DOES))
    server.expect_error("was ended by signal 9")
    client = Client(server)
    os.kill(int(client.ask("does", "pid")), signal.SIGKILL)
    server.wait_for(lambda: "was ended by signal 9" in server.log_text(), "a line about the end")
    wait_restarted(server, client)


def test_model_without_a_worker_is_not_ready(running, tmp_path):
    """The second start of the worker fails, as its file is another one now."""
    server = running(does=("does", DOES), other=("does", DOES))
    server.expect_error("worker of instance 0")
    path = tmp_path / "models" / "does" / "1" / "model.py"
    source = path.read_text()
    path.write_text("raise RuntimeError('broken')\n")
    clients = [Client(server, protocol).client for protocol in ("http", "grpc")]
    assert all(client.is_model_ready("does") for client in clients)
    os.kill(int(Client(server).ask("does", "pid")), signal.SIGKILL)
    server.wait_for(lambda: not any(client.is_model_ready("does") for client in clients), "a model that is not ready")
    assert all(client.is_model_ready("other") and client.is_server_ready() for client in clients)
    server.wait_for(lambda: "could not be started again" in server.log_text(), "a line about the start that failed")
    error = Client(server).error_of("does", "fine")
    assert "could not be started again: import failed: RuntimeError: broken" in error
    path.write_text(source)
    server.wait_for(lambda: all(client.is_model_ready("does") for client in clients), "a model that is ready again")
    assert Client(server).ask("does", "fine") == "fine"


def test_worker_beside_its_instance_keeps_serving(running):
    """Requests are those of the instance that works, while the other is started again."""
    server = running(does=("does", DOES + "instance_group { count: 2 }\n"))
    server.expect_error("worker of instance")
    client = Client(server)
    for _ in range(3):
        os.kill(python_models.workers(server.pid)[0], signal.SIGKILL)
        for _ in range(50):
            try:
                assert client.ask("does", "fine") == "fine"
            except InferenceServerException as error:  # it was with the worker that was killed
                assert "signal 9" in error.message()
        server.wait_for(lambda: len(python_models.workers(server.pid)) == 2, "two workers")


def test_worker_whose_child_lives_on_and_writes_is_started_again(running):
    server = running(does=("does", DOES))
    server.expect_error("worker of instance 0")
    client = Client(server)
    assert "exited with code 4" in client.error_of("does", "end before child")
    wait_restarted(server, client)


def test_execute_that_blocks_is_ended(running):
    server = running(does=("does", DOES + parameter("execute_timeout_s", "1")))
    server.expect_error("execute_timeout_s")
    client = Client(server)
    assert "execute has not returned after 1 s (parameter execute_timeout_s)" in client.error_of("does", "sleep:1000")
    wait_restarted(server, client)


def test_memory_limit_is_of_the_model(running):
    server = running(does=("does", DOES + parameter("memory_limit_mb", "3000")))
    client = Client(server)
    assert "MemoryError" in client.error_of("does", f"memory:{4 << 30}")
    assert client.ask("does", f"memory:{1 << 20}") == str(1 << 20)


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return [line.decode() for line in file.read().split(b"\0")]


def test_threads_of_a_worker_are_limited_by_its_environment(running, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    server = running(does=("does", DOES + parameter("threads", "2")), free=("does", DOES))
    client = Client(server)
    limited, free = (environment_of(client.ask(model, "pid")) for model in ("does", "free"))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        assert [line for line in limited if line.startswith(name + "=")] == [f"{name}=2"]
    assert "OMP_NUM_THREADS=7" in free and not [line for line in free if line.startswith("MKL_NUM_THREADS")]


def test_finalize_runs_and_nothing_is_left(running):
    server = running("--model-control-mode", "explicit", "--load-model", "*", does=("does", DOES),
                     endless=("does", DOES + parameter("finalize_timeout_s", "1")))
    client = Client(server)
    client.ask("does", "child")
    own = python_models.workers(server.pid)
    children = int(client.ask("endless", "child"))
    client.client.unload_model("does")
    client.client.unload_model("endless")
    server.wait_for(lambda: not python_models.workers(server.pid), "the end of all workers")
    python_models.wait_gone(children)
    assert len(own) == 2
    assert server.log_text().count('"finalized"') == 2
    assert "finalize has not returned after 1 s (parameter finalize_timeout_s)" in server.log_text()
    left = [os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{server.pid}/fd")]
    assert not [name for name in left if "sluice-python" in name]


def test_workers_get_no_descriptor_of_the_server(running):
    server = running(does=("does", DOES))
    pid = int(Client(server).ask("does", "pid"))
    links = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert sorted(links, key=int)[:4] == ["0", "1", "2", "3"]
    assert not [link for fd, link in links.items() if int(fd) > 3 and ("socket" in link or "eventpoll" in link)], links


def test_workers_end_with_a_server_that_is_killed(running):
    server = running(does=("does", DOES))
    pid = int(Client(server).ask("does", "pid"))
    server.kill()
    python_models.wait_gone(pid)


def test_inputs_that_a_model_keeps_do_not_change(running):
    server = running(does=("does", DOES))
    client = Client(server)
    for i in range(20):
        told = json.loads(client.ask("does", "keep", numpy.full((1, 50_000), i, numpy.float32)))
        assert told == [[k, k] for k in range(i + 1)]
    assert client.ask("does", "forget") == "forgotten"
    assert json.loads(client.ask("does", "keep", numpy.full((1, 50_000), 7, numpy.float32))) == [[7, 7]]


def test_what_a_model_writes_is_in_the_log(running):
    server = running(does=("does", DOES))
    server.expect_error("an error")
    client = Client(server)
    client.ask("does", "log")
    client.ask("does", "show:3")
    server.wait_for(lambda: '"line 2"' in server.log_text(), "the lines")
    lines = {line.get("text"): line for line in server.log_lines() if line.get("model") == "does"}
    assert lines["line 0"]["level"] == "info"
    assert (lines["an info"]["level"], lines["a warning"]["level"], lines["an error"]["level"]) == (
        "info", "warning", "error")
    client.ask("does", "show:100000")
    client.ask("does", "fine")
    assert server.log_text().count('"line ') < 5000


LOADS = {
    "no_class": ("x = 1\n", "expected a class TritonPythonModel"),
    "no_execute": ("class TritonPythonModel:\n    pass\n", "class TritonPythonModel has no method execute"),
    "syntax": ("class TritonPythonModel\n", "SyntaxError"),
    "missing": ("import no_such_package.part\n", "-m pip install no_such_package"),
    "raises": ("class TritonPythonModel:\n    def initialize(self, args):\n        raise RuntimeError('no weights')\n"
               "    def execute(self, requests):\n        pass\n",
               "initialize failed: RuntimeError: no weights (model.py:3)"),
    "ends": ("import os\nprint('last words', flush=True)\nos._exit(9)\n", "exited with code 9: last words"),
    "slow": ("import time\ntime.sleep(1000)\n", "initialize has not returned after 1 s (parameter start_timeout_s)"),
}


def test_models_that_do_not_load_say_why(running):
    config = tensor("input", "DO", "BYTES", [1]) + tensor("output", "OUT", "BYTES", [1])
    models = {name: (source, config + parameter("start_timeout_s", "1" if name == "slow" else "60"))
              for name, (source, _) in LOADS.items()}
    server = running(wait="loaded", does=("does", DOES), nowhere=("does", DOES + parameter("python", "/no/python")),
                     negative=("does", DOES + parameter("start_timeout_s", "-1")),
                     threads=("does", DOES + parameter("threads", "many")), unlisted=("does", ""), **models)
    server.expect_error("model failed to load")
    reasons = {line["model"]: line["reason"] for line in server.log_lines() if line.get("msg") == "model failed to load"
               or "reason" in line and "model" in line}
    for name, (_, expected) in LOADS.items():
        assert expected in reasons[name], reasons[name]
    assert "parameter python: expected a Python interpreter, or a directory that has bin/python3, got /no/python" in \
        reasons["nowhere"]
    assert 'parameter threads: expected a whole number from 0 to 4096, got "many"' in reasons["threads"]
    assert "parameter start_timeout_s: expected a whole number from 1" in reasons["negative"]
    assert "are listed in config.pbtxt, or added by a method of its class" in reasons["unlisted"]
    assert Client(server).ask("does", "fine") == "fine"
    assert len(python_models.workers(server.pid)) == 1


def test_interpreter_without_numpy_says_what_to_install(running, tmp_path):
    """A program in place of an interpreter, which hides numpy as a bare environment does."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "numpy.py").write_text("raise ImportError('No module named numpy')\n")
    python = tmp_path / "bare_python"
    python.write_text(f"#!/bin/sh\nPYTHONPATH={bare} exec {sys.executable} \"$@\"\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    server = running(wait="loaded", does=("does", DOES), bare=("does", DOES + parameter("python", str(python))))
    server.expect_error("model failed to load")
    assert "models need numpy" in server.log_text() and "-m pip install numpy" in server.log_text()
    assert Client(server).ask("does", "fine") == "fine"


def test_environment_of_the_model_is_a_directory_beside_it(running, tmp_path):
    environment = tmp_path / "models" / "does" / "env"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python3"
    python.write_text(f"#!/bin/sh\nOF=environment exec {sys.executable} \"$@\"\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    config = DOES + parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/env")
    server = running(does=("does", config))
    pid = int(Client(server).ask("does", "pid"))
    with open(f"/proc/{pid}/environ", "rb") as file:
        assert b"OF=environment" in file.read()
    assert f"runs with {python} (parameter EXECUTION_ENV_PATH)" in server.log_text()


@pytest.mark.parametrize("active", [False, True])
def test_environment_that_sluice_is_installed_in_runs_models(start_server, tmp_path, monkeypatch, active):
    """As the wheel does: bin/sluice beside bin/python3. An environment that is active counts more."""
    for name in ("own", "other"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "pyvenv.cfg").touch()
        python = tmp_path / name / "bin" / "python3"
        python.write_text(f"#!/bin/sh\nexec {sys.executable} \"$@\"\n")
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    if active:
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "other"))
    shutil.copy(servers.binary(), tmp_path / "own" / "bin" / "sluice")
    python_models.write(tmp_path / "models", "does", "does", DOES)
    server = start_server("--model-repository", tmp_path / "models", "--backend-dir", os.path.join(servers.build(), "backends"),
                          prefix=["sh", "-c", 'shift; exec "$0" "$@"', tmp_path / "own" / "bin" / "sluice"])
    assert Client(server).ask("does", "fine") == "fine"
    said = "other/bin/python3 ($VIRTUAL_ENV)" if active else "own/bin/python3 (the environment of sluice)"
    assert f"runs with {tmp_path}/{said}" in server.log_text()


def test_files_beside_the_model_are_imported(running, tmp_path):
    source = textwrap.dedent("""
        import json
        import helper
        from . import helper as same
        import triton_python_backend_utils as pb_utils
        import numpy as np

        class TritonPythonModel:
            def execute(self, requests):
                text = json.dumps([helper.NUMBER, same.NUMBER]).encode()
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[text]], dtype=object))])
                        for _ in requests]
        """)
    python_models.write(tmp_path / "models", "helped", source, DOES, helper="NUMBER = 5\n")
    server = running()
    assert Client(server).ask("helped", "x") == "[5, 5]"
    assert not os.path.exists(tmp_path / "models" / "helped" / "1" / "__pycache__")


def test_requests_may_not_bring_programs(running):
    server = running("--model-control-mode", "explicit", "--load-model", "does", does=("does", DOES))
    server.expect_error("model failed to load")
    client = Client(server)
    config = {"backend": "python", "max_batch_size": 0,
              "input": [{"name": "DO", "data_type": "TYPE_STRING", "dims": [1]}],
              "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}]}
    for files in ({}, {"file:1/model.py": b"import os\nos._exit(1)\n"}):
        with pytest.raises(InferenceServerException) as caught:
            client.client.load_model("does" if not files else "new", config=json.dumps(config), files=files or None)
        assert "are not loaded with a configuration or files of a request" in caught.value.message()
    assert client.ask("does", "fine") == "fine"


def test_requests_bring_programs_where_that_is_allowed(running):
    server = running("--model-control-mode", "explicit", "--programs-from-requests", "true", does=("does", DOES))
    client = Client(server)
    config = {"backend": "python", "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
              "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]}
    program = """
import triton_python_backend_utils as pb_utils
import helper

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", helper.twice(request.inputs()[0].as_numpy()))])
                for request in requests]
"""
    files = {"file:1/model.py": program.encode(), "file:1/helper.py": b"def twice(x):\n    return 2 * x\n"}
    client.client.load_model("new", config=json.dumps(config), files=files)
    assert client.infer("new", {"IN": numpy.array([1, 2], numpy.float32)}).as_numpy("OUT").tolist() == [2, 4]
    (worker,) = python_models.workers(server.pid, "new")
    client.client.unload_model("new")
    python_models.wait_gone(worker)
    files["file:1/helper.py"] = b"this is no program"
    server.expect_error("model failed to load")
    with pytest.raises(InferenceServerException) as caught:
        client.client.load_model("new", config=json.dumps(config), files=files)
    assert "SyntaxError" in caught.value.message()


def test_a_directory_with_programs_has_no_models_of_them(start_server, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "make_models.py").write_text("raise SystemExit\n")
    server = start_server(tmp_path / "files", wait="nothing")
    assert server.wait_exit() == 1
    assert "neither a model nor a directory of models" in server.log_text()


class Stream:
    """A stream of tritonclient, and what came over it."""

    def __init__(self, server):
        self.answers = queue.Queue()
        self.client = tritonclient.grpc.InferenceServerClient(server.grpc_address)
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def ask(self, n, how=""):
        inputs = [tritonclient.grpc.InferInput("N", [1], "INT32")]
        inputs[0].set_data_from_numpy(numpy.array([n], numpy.int32))
        if how:
            inputs.append(tritonclient.grpc.InferInput("HOW", [1], "BYTES"))
            inputs[1].set_data_from_numpy(numpy.array([how.encode()], dtype=object))
        self.client.async_stream_infer("stream", inputs, enable_empty_final_response=True)

    def all(self):
        """What came up to the final response: numbers, and texts of errors."""
        came = []
        while True:
            result, error = self.answers.get(timeout=http1.PATIENCE)
            if error is not None:
                return [*came, error.message()]
            if len(result.get_response().outputs) > 0:
                came.append(int(result.as_numpy("I")[0]))
            if result.get_response().parameters["triton_final_response"].bool_param:
                return came


def test_decoupled_model_sends_any_number_of_responses(running):
    server = running(stream=("stream", None))
    stream = Stream(server)
    for how in ("", "thread"):
        for n in (0, 1, 100):
            stream.ask(n, how)
            assert stream.all() == list(range(n))
    assert "send: the request has got its final response" in server.log_text()
    stream.client.stop_stream()
    several = [Stream(server) for _ in range(8)]
    for one in several:
        one.ask(50, "thread")
    assert [one.all() for one in several] == [list(range(50))] * 8
    for one in several:
        one.client.stop_stream()


def test_decoupled_model_that_fails_answers_its_requests(running):
    server = running(stream=("stream", None))
    stream = Stream(server)
    stream.ask(3, "raises")
    assert "ValueError: as asked" in stream.all()[0]
    stream.ask(3, "returns")
    assert "a decoupled model sends its responses by get_response_sender" in stream.all()[0]
    stream.ask(2, "error")
    assert stream.all() == [0, 1, "in the middle"]
    stream.client.stop_stream(cancel_requests=True)
    stream = Stream(server)
    stream.ask(3)
    assert stream.all() == [0, 1, 2]
    stream.client.stop_stream()


def test_decoupled_model_hears_of_a_client_that_left(running):
    server = running(stream=("stream", None))
    stream = Stream(server)
    stream.ask(1, "cancel")
    assert int(stream.answers.get(timeout=http1.PATIENCE)[0].as_numpy("I")[0]) == 0
    stream.client.stop_stream(cancel_requests=True)
    server.wait_for(lambda: "was cancelled" in server.log_text(), "the model's line")
    stream = Stream(server)
    stream.ask(3)
    assert stream.all() == [0, 1, 2]
    stream.client.stop_stream()


def test_generate_stream_has_an_event_for_each_response(running):
    server = running(stream=("stream", None))
    url = f"http://{server.address}/v2/models/stream/generate_stream"
    with urllib.request.urlopen(url, b'{"N": [3]}', timeout=http1.PATIENCE) as answer:
        events = [json.loads(line[5:]) for line in answer.read().decode().splitlines() if line.startswith("data:")]
    assert [event["I"] for event in events] == [0, 1, 2]


def test_requests_of_an_async_model_run_at_the_same_time(running):
    config = (tensor("input", "INPUT0", "FP32", [1]) + tensor("output", "OUTPUT0", "FP32", [1]) + "max_batch_size: 8\n")
    server = running(sleeps=("sleeps", config))
    client = Client(server)
    array = numpy.array([[0.01]], numpy.float32)
    for _ in range(5):
        assert (client.infer("sleeps", {"INPUT0": array}).as_numpy("OUTPUT0") == array).all()


ADDS = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        {}
        return config
    def execute(self, requests):
        import triton_python_backend_utils as pb_utils
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests]
"""
IN = 'config.add_input({"name": "DO", "data_type": "TYPE_STRING", "dims": [1]})'
OUT = 'config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})'
GIVEN = tensor("input", "DO", "BYTES", [1]) + tensor("output", "OUT", "BYTES", [1])


def test_auto_complete_config_adds_to_the_configuration(running):
    server = running(
        alone=(ADDS.format(f"{IN}; {OUT}; config.set_max_batch_size(4); config.set_dynamic_batching()"), None),
        half=(ADDS.format(OUT), tensor("input", "DO", "BYTES", [1]) + "max_batch_size: 2\n"),
        same=(ADDS.format(f"{IN}; {OUT}"), GIVEN + "max_batch_size: 8\n"))
    client = Client(server)
    for name, size in (("alone", 4), ("half", 2), ("same", 8)):
        assert client.ask(name, "echo") == "echo"
        assert client.client.get_model_config(name)["max_batch_size"] == size
    assert "dynamic_batching" in client.client.get_model_config("alone")
    metadata = client.client.get_model_metadata("alone")
    assert metadata["inputs"] == [{"name": "DO", "datatype": "BYTES", "shape": [-1, 1]}]


UNFIT = {
    "adds_nothing": ("pass", None, "auto_complete_config(config): config.add_input({"),
    "no_name": ('config.add_input({"dims": [1], "data_type": "TYPE_FP32"})', None, "has no 'name'"),
    "strange": ('config.add_input({"shape": [1]})', None, "input has an unknown property 'shape'"),
    "bad_type": (f'{IN}; config.add_output({{"name": "OUT", "data_type": "FP32", "dims": [1]}})', None,
                 "output 'OUT': 'FP32' is no data_type"),
    "differs": ('config.add_input({"name": "DO", "data_type": "TYPE_FP32", "dims": [1]})', GIVEN,
                "input 'DO': data_type is TYPE_FP32, and TYPE_STRING in config.pbtxt"),
    "smaller": ("config.set_max_batch_size(2)", GIVEN + "max_batch_size: 4\n",
                "max_batch_size 2 is below that of config.pbtxt, 4"),
    "raises": ("raise RuntimeError('as asked')", None, "auto_complete_config failed: RuntimeError: as asked"),
    "returns": ("return 7", None, "must return the ModelConfig that it is given, it returned int"),
    "negative": (f'{IN}; config.add_output({{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-2]}})', None,
                 "dimension 0 is -2"),
    "twice": (f"{OUT}; config._model_config['output'] *= 2; {IN}", None, "there are two of that name"),
}


def test_auto_complete_config_that_does_not_fit_is_the_models_error(running):
    server = running(wait="loaded", does=("does", DOES),
                     **{name: (ADDS.format(line), config) for name, (line, config, _) in UNFIT.items()})
    server.expect_error("model failed to load")
    reasons = {line["model"]: line["reason"] for line in server.log_lines() if "reason" in line and "model" in line}
    for name, (_, _, expected) in UNFIT.items():
        assert expected in reasons[name], (name, reasons[name])
    assert Client(server).ask("does", "fine") == "fine"


def test_auto_complete_config_can_be_turned_off(running):
    server = running("--disable-auto-complete-config", wait="loaded", does=("does", DOES), alone=("stream", None),
                     given=(ADDS.format("raise RuntimeError('was called')"), GIVEN + "max_batch_size: 8\n"))
    server.expect_error("model failed to load")
    assert Client(server).ask("given", "echo") == "echo"
    assert "expected a config.pbtxt, as --disable-auto-complete-config was given" in server.log_text()


def test_one_file_is_served_by_its_name(start_server, tmp_path):
    path = tmp_path / "upper.py"
    path.write_text(ADDS.format(f"{IN}; {OUT}; config.set_max_batch_size(4)"))
    server = start_server(path, *FLAGS)
    assert Client(server).ask("upper", "echo") == "echo"


HOSTILE = {
    "garbage": "s.sendall(b'\\xff' * 100000)",
    "endless": "s.sendall(struct.pack('<II', (1 << 26) + 1, 66))",
    "short": "s.sendall(struct.pack('<II', 4, 66))",
    "results": "ready(); message(66, struct.pack('<IBQQIII', 1, 1, 0, 0, 1000000, 48, 0))",
    "tokens": "ready(); message(66, struct.pack('<IBQQIII', 0, 0, 0, 0, 1, 48, 0), struct.pack('<QBB', 7, 1, 0), bytes(8))",
    "final": "ready(); message(66, struct.pack('<IBQQIII', 0, 0, 0, 0, 1, 48, 0), struct.pack('<QBB', 7, 3, 0), bytes(8))",
    "again": "ready(); message(66, struct.pack('<IBQQIII', 0, 0, 0, 0, 1, 48, 0), struct.pack('<QBB', 7, 2, 1), bytes(8))",
    "blocks": "ready(); message(66, struct.pack('<IBQQIII', 0, 0, 0, 0, 0, 48, 9), bytes(16))",
    "freed": "ready(); message(69, struct.pack('<II', 1, 1))",
    "init": "ready(); message(1, b'')",
    "checked": "ready(); message(72, bytes(5))",
    "ends": "ready(); os._exit(5)",
    "silent": "ready()",
    "asks, and no reading": "ready(); [message(70, struct.pack('<IQ', i, 0)) for i in range(1000000)]",
    "needs, and no reading": "ready(); [message(67, struct.pack('<IQ', i, 1)) for i in range(1000000)]",
    "metrics, and no reading": "ready(); [message(73, struct.pack('<IBI', i, 9, 0), bytes(4)) for i in range(1000000)]",
    "fails": "message(65, struct.pack('<I', 5), b'\\xff\\x00\\nab')",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_worker_harms_its_model_alone(running, tmp_path, kind):
    """A program in place of an interpreter, which speaks to the server as it likes."""
    python = python_models.hostile(tmp_path, HOSTILE[kind])
    config = DOES + parameter("python", python) + parameter("execute_timeout_s", "1")
    wait = "ready" if "ready()" in HOSTILE[kind] else "loaded"
    server = running(wait=wait, does=("does", DOES), hostile=("does", config))
    for text in ("model failed to load", "worker of instance 0"):
        server.expect_error(text)
    client = Client(server)
    for _ in range(2):
        with pytest.raises(InferenceServerException):
            client.ask("hostile", "fine")
        assert client.ask("does", "fine") == "fine"

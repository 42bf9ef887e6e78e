"""Models in Python that call other models: what such a call gives and counts, and what becomes of it when one of its two
sides ends, blocks or is wrong."""
import json
import os
import signal
import subprocess
import textwrap
import threading

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, python_models, server as servers
from lib.python_models import DOES, FLAGS, parameter, tensor
from lib.repository import DATATYPES

CALLER = tensor("input", "DO", "BYTES", [1]) + tensor("output", "OUT", "BYTES", [1]) + "max_batch_size: 8\n"
TWO = "".join(tensor(kind, f"{kind.upper()}{i}", "FP32", [-1]) for kind in ("input", "output") for i in range(2))
INPUTS = [["INPUT0", [1, 2], "float32"], ["INPUT1", [3], "float32"]]


class Client:
    def __init__(self, server):
        self.client = tritonclient.http.InferenceServerClient(
            server.address.removeprefix("http://"), network_timeout=http1.PATIENCE, connection_timeout=http1.PATIENCE)

    def ask(self, word, *, caller="caller", options=None, **arguments):
        """What the model `caller` answers."""
        given = tritonclient.http.InferInput("DO", [1, 1], "BYTES")
        given.set_data_from_numpy(numpy.array([[f"{word}:{json.dumps(arguments)}".encode()]], dtype=object))
        return json.loads(self.client.infer(caller, [given], **(options or {})).as_numpy("OUT")[0, 0])

    def count(self, model):
        """The requests of the model that have ended: those that succeeded, and others."""
        told = self.client.get_inference_statistics(model)["model_stats"][0]["inference_stats"]
        return told["success"]["count"], told["fail"]["count"] + told.get("cancel", {}).get("count", 0)


@pytest.fixture
def running(start_server, tmp_path):
    """run(name=(source, config), …): a server of these models."""
    def run(*flags, wait="ready", **models):
        for name, (source, config) in models.items():
            python_models.write(tmp_path / "models", name, source, config)
        return start_server("--model-repository", tmp_path / "models", *FLAGS, *flags, grpc=("127.0.0.1:0",), wait=wait)
    return run


def word(text):
    """The input of a model `does`."""
    return [["DO", [[text]], "object"]]


def stream(n, how=""):
    """The inputs of a model `stream`."""
    return [["N", [n], "int32"]] + ([["HOW", [how], "object"]] if how else [])


def said(told):
    """What a model `does` answered to a call."""
    return told["outputs"]["OUT"][2][0] if "outputs" in told else told


# ---- one response ----------------------------------------------------------------------------------


def test_call_gives_the_outputs_of_the_model(running):
    server = running(caller=("caller", CALLER), two=("echo", TWO))
    client = Client(server)
    told = client.ask("call", model="two", inputs=INPUTS)
    assert told["outputs"] == {"OUTPUT0": ["float32", [2], [1, 2]], "OUTPUT1": ["float32", [1], [3]]}
    told = client.ask("call", model="two", inputs=INPUTS, outputs=["OUTPUT1", "OUTPUT0"])
    assert list(told["outputs"]) == ["OUTPUT1", "OUTPUT0"]
    assert list(client.ask("call", model="two", inputs=INPUTS, outputs=["OUTPUT1"])["outputs"]) == ["OUTPUT1"]
    assert client.ask("times", n=100, model="two", inputs=INPUTS)["outputs"]["OUTPUT1"] == ["float32", [1], [3]]
    assert client.count("two") == (103, 0)


NAMES_OF_BYTES = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        request = requests[0]
        name = pb_utils.get_input_tensor_by_name(request, "NAME").as_numpy()[0]
        assert isinstance(name, bytes) and pb_utils.is_model_ready(name)
        answer = pb_utils.InferenceRequest(model_name=name, requested_output_names=[b"OUTPUT1"], request_id=b"a", inputs=[
            pb_utils.Tensor(b"INPUT0", np.array([1], np.float32)), pb_utils.Tensor("INPUT1", np.array([2], np.float32))]).exec()
        out = pb_utils.get_output_tensor_by_name(answer, b"OUTPUT1")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out.as_numpy())])]
"""


def test_elements_of_bytes_are_names(running):
    """As in Triton's own examples, which call the model that an input names."""
    server = running(two=("echo", TWO), caller=(NAMES_OF_BYTES, tensor("input", "NAME", "BYTES", [1])
                                                + tensor("output", "OUT", "FP32", [1])))
    answer = python_models.Client(server).infer("caller", {"NAME": numpy.array([b"two"], dtype=object)})
    assert answer.as_numpy("OUT").tolist() == [2]


def test_every_datatype_and_size_goes_and_comes_back(running):
    kinds = [datatype for datatype in DATATYPES if datatype != "BF16"]
    server = running(caller=("caller", CALLER), **{
        f"echo_{kind.lower()}": ("echo", tensor("input", "INPUT0", kind, [-1]) + tensor("output", "OUTPUT0", kind, [-1]))
        for kind in kinds})
    client = Client(server)
    for kind in kinds:
        dtype = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "object"}.get(kind, kind.lower())
        for n in (0, 1, 100, 20_000, 300_000):  # in the message, and in shared memory
            assert client.ask("echo", model=f"echo_{kind.lower()}", dtype=dtype, n=n) is True, (kind, n)


def test_responses_that_a_model_keeps_do_not_change(running):
    server = running(caller=("caller", CALLER),
                     one=("echo", tensor("input", "INPUT0", "FP32", [-1]) + tensor("output", "OUTPUT0", "FP32", [-1])))
    client = Client(server)
    for i in range(20):
        assert client.ask("keep", model="one", value=i) == [[k, k] for k in range(i + 1)]


def test_model_of_another_backend_is_called(running, tmp_path):
    (tmp_path / "models" / "same" / "1").mkdir(parents=True)
    (tmp_path / "models" / "same" / "config.pbtxt").write_text(
        'backend: "identity"\n' + tensor("input", "INPUT0", "FP32", [-1]) + tensor("output", "OUTPUT0", "FP32", [-1]))
    server = running(caller=("caller", CALLER))
    client = Client(server)
    for n in (1, 300_000):
        assert client.ask("echo", model="same", dtype="float32", n=n) is True
    assert client.count("same") == (2, 0)


def test_request_has_what_the_caller_gives(running):
    server = running(caller=("caller", CALLER),
                     does=("does", DOES + "dynamic_batching { priority_levels: 5 default_priority_level: 3 }\n"))
    client = Client(server)
    told = json.loads(said(client.ask(
        "call", model="does", inputs=word("describe"), request_id="seven", correlation_id=12, flags=1, priority=2,
        timeout=30_000_000, parameters={"a": "b", "n": 5, "yes": True})))
    assert (told["id"], told["correlation"], told["flags"], told["priority"], told["timeout"]) == (
        "seven", 12, 1, 2, 30_000_000)
    assert told["parameters"] == {"a": "b", "n": 5, "yes": True}
    told = json.loads(said(client.ask("call", model="does", inputs=word("describe"), correlation_id="text", flags=2)))
    assert (told["correlation"], told["flags"]) == ("text", 2)


def test_call_has_the_priority_of_its_parent(running):
    levels = "dynamic_batching { priority_levels: 5 default_priority_level: 3 }\n"
    server = running(caller=("caller", CALLER + levels), does=("does", DOES + levels))
    client = Client(server)
    told = json.loads(said(client.ask("call", options={"priority": 4}, model="does", inputs=word("describe"))))
    assert told["priority"] == 4


def test_response_parameters_come_back(running):
    server = running(caller=("caller", CALLER), does=("does", DOES))
    told = Client(server).ask("call", model="does", inputs=word("parameters"))
    assert told["parameters"] == {"text": "a", "number": 7, "large": 1 << 63, "half": 0.5, "true": True}


ERRORS = {
    "unknown model": (dict(model="nothing", inputs=INPUTS), 2, "nothing"),
    "unknown version": (dict(model="two", inputs=INPUTS, model_version=7), 2, "7"),
    "unknown input": (dict(model="two", inputs=[["OTHER", [1], "float32"]]), 3, "OTHER"),
    "input left out": (dict(model="two", inputs=INPUTS[:1]), 3, "INPUT1"),
    "other datatype": (dict(model="two", inputs=[["INPUT0", [1], "int32"], INPUTS[1]]), 3, "INPUT0"),
    "other rank": (dict(model="two", inputs=[["INPUT0", [[1]], "float32"], INPUTS[1]]), 3, "INPUT0"),
    "unknown output": (dict(model="two", inputs=INPUTS, outputs=["OTHER"]), 3, "OTHER"),
    "error of the model": (dict(model="does", inputs=word("error:2")), 2, "as asked"),
    "exception of the model": (dict(model="does", inputs=word("execute raises")), 1, "ValueError: as asked"),
    "model that is decoupled": (dict(model="stream", inputs=stream(1)), 5, "call it with decoupled=True"),
}


def test_errors_of_calls_are_errors_of_their_response(running):
    server = running(caller=("caller", CALLER), two=("echo", TWO), does=("does", DOES), stream=("stream", None))
    client = Client(server)
    for name, (arguments, code, expected) in ERRORS.items():
        told = client.ask("call", **arguments)
        assert expected in told.get("error", ""), (name, told)
        assert told["code"] == code, (name, told)
        assert "outputs" in client.ask("call", model="two", inputs=INPUTS)


def test_requests_that_cannot_be_made_raise(running):
    server = running(caller=("caller", CALLER), two=("echo", TWO))
    client = Client(server)
    for expected, arguments in (("correlation_id: -1 is out of range", dict(correlation_id=-1)),
                                ("timeout: -5 is out of range", dict(timeout=-5)),
                                ("model: expected a name", dict(model="")),
                                ("model: expected a name", dict(model="a\0b")),
                                ("requested_output_names: expected names", dict(outputs=[7])),
                                ("over 1 MiB together", dict(parameters={"a": "x" * (1 << 20)})),
                                ("parameters must be a dict", dict(parameters=[1]))):
        told = client.ask("raises", kind="TritonModelException", **{"model": "two", "inputs": INPUTS, **arguments})
        assert told[0] and expected in told[1], told
    told = client.ask("raises", kind="TypeError", model="two", inputs=INPUTS, parameters={"list": [1]})
    assert told[0] and "expected bool, int, float or str" in told[1]
    assert "outputs" in client.ask("call", model="two", inputs=INPUTS)


def test_sequences_are_those_of_the_call(running):
    config = DOES + 'sequence_batching { max_sequence_idle_microseconds: 60000000 }\n'
    server = running(caller=("caller", CALLER), does=("does", config))
    client = Client(server)
    assert "sequence" in client.ask("call", model="does", inputs=word("fine"))["error"]
    assert said(client.ask("call", model="does", inputs=word("fine"), correlation_id=5, flags=1)) == "fine"
    assert said(client.ask("call", model="does", inputs=word("fine"), correlation_id=5, flags=2)) == "fine"
    assert "error" in client.ask("call", model="does", inputs=word("fine"), correlation_id=5)


# ---- models that call models -----------------------------------------------------------------------


def test_model_calls_itself_by_another_instance(running):
    server = running(caller=("caller", CALLER + "instance_group { count: 2 }\n"))
    told = Client(server).ask("call", model="caller", inputs=word("pid:"))
    assert int(json.loads(said(told))) in python_models.workers(server.pid)


def test_calls_inside_of_calls_end_at_a_depth(running):
    """Each model of a chain calls the next one."""
    models = {f"m{i}": ("caller", CALLER) for i in range(20)}
    server = running(**models)
    client = Client(server)

    def chain(first, last):
        asked = "pid:"
        for i in range(last, first, -1):
            asked = "call:" + json.dumps({"model": f"m{i}", "inputs": word(asked)})
        return asked.partition(":")

    method, _, arguments = chain(0, 5)
    told = client.ask(method, caller="m0", **json.loads(arguments))
    for _ in range(5):
        told = json.loads(said(told))
    assert told in python_models.workers(server.pid)
    method, _, arguments = chain(0, 19)
    assert "is called inside of 16 others" in json.dumps(client.ask(method, caller="m0", **json.loads(arguments)))


@pytest.mark.parametrize("count", [1, 2])
def test_call_that_would_wait_for_itself_is_refused(running, count):
    """By itself, and by a call of another model: of two instances each has a part of the circle."""
    server = running(caller=("caller", CALLER + f"instance_group {{ count: {count} }}\n"), other=("caller", CALLER))
    client = Client(server)

    def circle(*models):
        asked = "pid:"
        for model in reversed(models):
            asked = "call:" + json.dumps({"model": model, "inputs": word(asked)})
        told = client.ask("call", **json.loads(asked.partition(":")[2]))
        for _ in models[1:]:
            told = json.loads(said(told))
        return told

    for models in (["caller"] * count, ["caller"] * (count - 1) + ["other", "caller"]):
        told = circle(*models)
        assert told["code"] == 5 and f"all its instances ({count}) wait for such calls" in told["error"], told
        assert client.ask("pid") in python_models.workers(server.pid)
    if count > 1:
        assert int(json.loads(said(circle("caller")))) in python_models.workers(server.pid)


def test_model_that_awaits_itself_on_one_instance_ends_with_its_timeout(running):
    server = running(caller=("caller", CALLER))
    told = Client(server).ask("gather", n=1, model="caller", inputs=word("pid:"), timeout=200_000)
    assert "timeout of 200000 microseconds" in json.dumps(told) or "deadline passed" in json.dumps(told), told
    assert Client(server).ask("pid") in python_models.workers(server.pid)


# ---- from where ------------------------------------------------------------------------------------


def test_models_are_called_from_initialize(running):
    """The model that is called is loaded before."""
    config = CALLER + parameter("initially", "call:" + json.dumps(
        {"model": "does", "inputs": word("describe")}).replace('"', '\\"'))
    server = running("--model-control-mode", "explicit", "--load-model", "does", caller=("caller", config),
                     does=("does", DOES))
    client = Client(server)
    client.client.load_model("caller")
    assert json.loads(said(client.ask("initially")))["model"] == "does"


def test_models_are_not_called_where_they_are_only_checked(tmp_path):
    source = textwrap.dedent("""
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def initialize(self, args):
                response = pb_utils.InferenceRequest(model_name="two").exec()
                raise ValueError(response.error().message())

            def execute(self, requests):
                pass
        """)
    python_models.write(tmp_path, "asks", source, CALLER)
    done = subprocess.run([servers.binary(), "serve", "--check", "--model-repository", tmp_path, "--backend-dir",
                           os.path.join(servers.build(), "backends"), *FLAGS], capture_output=True, text=True,
                          timeout=http1.PATIENCE, check=False)
    assert "ValueError: models cannot be called here" in done.stdout + done.stderr
    assert done.returncode != 0


def test_models_are_called_from_threads(running):
    server = running(caller=("caller", CALLER), two=("echo", TWO))
    client = Client(server)
    for told in client.ask("threads", n=20, model="two", inputs=INPUTS):
        assert told["outputs"]["OUTPUT1"] == ["float32", [1], [3]]
    assert client.count("two") == (20, 0)


def test_many_calls_at_a_time_are_awaited(running):
    server = running(caller=("caller", CALLER), two=("echo", TWO), does=("does", DOES + "instance_group { count: 4 }\n"))
    client = Client(server)
    for told in client.ask("gather", n=200, model="two", inputs=INPUTS):
        assert told["outputs"]["OUTPUT1"] == ["float32", [1], [3]]
    assert [said(told) for told in client.ask("gather", n=4, model="does", inputs=word("sleep:0.2"))] == ["slept"] * 4
    assert client.count("two") == (200, 0)


def test_calls_beyond_the_most_at_a_time_are_refused(running):
    server = running("--max-queue-size", "5000", caller=("caller", CALLER), two=("echo", TWO))
    client = Client(server)
    told = client.ask("gather", n=1500, model="two", inputs=INPUTS)
    refused = [one for one in told if "error" in one]
    assert not [one for one in refused if "too many calls of models at a time" not in one["error"]]
    assert client.count("two") == (1500 - len(refused), 0)
    assert "outputs" in client.ask("call", model="two", inputs=INPUTS)


# ---- several responses -----------------------------------------------------------------------------


def numbers(answers):
    """The responses of a model `stream`; None: the empty last one."""
    return [one["outputs"]["I"][2][0] if one.get("outputs") else one.get("error") for one in answers]


@pytest.mark.parametrize("how", ["many", "many_async"])
def test_responses_of_a_decoupled_model_are_iterated(running, how):
    server = running(caller=("caller", CALLER), stream=("stream", None), two=("echo", TWO))
    client = Client(server)
    for n in (0, 1, 5, 300):
        assert numbers(client.ask(how, model="stream", inputs=stream(n))) == [*range(n), None]
    assert numbers(client.ask(how, model="stream", inputs=stream(3, "thread"))) == [0, 1, 2, None]
    assert numbers(client.ask(how, model="stream", inputs=stream(2, "error"))) == [0, 1, "in the middle"]
    assert "ValueError: as asked" in numbers(client.ask(how, model="stream", inputs=stream(1, "raises")))[-1]
    assert "outputs" in client.ask(how, model="two", inputs=INPUTS)[0]  # one that is not decoupled
    assert "nothing" in client.ask(how, model="nothing")[0]["error"]


def test_responses_of_async_exec_are_iterated_without_await(running):
    server = running(caller=("caller", CALLER), stream=("stream", None))
    assert numbers(Client(server).ask("many_async", sync=True, model="stream", inputs=stream(4))) == [0, 1, 2, 3, None]


@pytest.mark.parametrize("how", ["many", "many_async"])
def test_iterator_that_is_dropped_cancels_its_call(running, how):
    server = running(caller=("caller", CALLER), stream=("stream", None))
    client = Client(server)
    told = client.ask(how, stop_after=2, model="stream", inputs=stream(3, "cancel"))
    assert numbers(told) == [0, 1]
    server.wait_for(lambda: '"was cancelled"' in server.log_text(), "the end of the call")
    assert numbers(client.ask(how, model="stream", inputs=stream(2))) == [0, 1, None]


def test_responses_that_are_not_asked_for_slow_their_model(running):
    """The model that is called makes responses faster than they are read: all of them come."""
    server = running(caller=("caller", CALLER), stream=("stream", None))
    told = Client(server).ask("many", pause=0.0005, model="stream", inputs=stream(2500))
    assert numbers(told) == [*range(2500), None]


# ---- the end of calls ------------------------------------------------------------------------------


def test_timeout_ends_a_call(running):
    server = running(caller=("caller", CALLER), does=("does", DOES))
    client = Client(server)
    for how in ("call", "gather"):
        told = client.ask(how, model="does", inputs=word("sleep:3"), timeout=100_000, **({"n": 1} if how == "gather" else {}))
        told = told[0] if how == "gather" else told
        assert told["code"] == 4, told
        assert "timeout of 100000 microseconds" in told["error"] or "deadline passed" in told["error"], told
    assert said(client.ask("call", model="does", inputs=word("fine"))) == "fine"


def test_call_is_cancelled_with_its_parent(running):
    """The client leaves: the model that is called sees it."""
    server = running(caller=("caller", CALLER), stream=("stream", None))
    with pytest.raises(InferenceServerException):
        triton = tritonclient.grpc.InferenceServerClient(server.grpc_address)
        given = tritonclient.grpc.InferInput("DO", [1, 1], "BYTES")
        text = "many:" + json.dumps({"model": "stream", "inputs": stream(1, "cancel")})
        given.set_data_from_numpy(numpy.array([[text.encode()]], dtype=object))
        triton.infer("caller", [given], client_timeout=1)
    server.wait_for(lambda: '"was cancelled"' in server.log_text(), "the end of the call")
    assert numbers(Client(server).ask("many", model="stream", inputs=stream(2))) == [0, 1, None]


def test_task_that_is_cancelled_cancels_its_call(running):
    server = running(caller=("caller", CALLER), waits=("caller", CALLER), two=("echo", TWO))
    client = Client(server)
    waits = [["DO", [["many:" + json.dumps({"model": "two", "inputs": INPUTS})]], "object"]]
    assert client.ask("give_up", seconds=0, model="waits", inputs=waits) == "cancelled"
    assert "outputs" in client.ask("call", model="two", inputs=INPUTS)


def test_call_in_the_background_outlives_its_request(running):
    server = running(caller=("caller", CALLER), does=("does", DOES))
    client = Client(server)
    assert client.ask("in_background", model="does", inputs=word("sleep:0.3")) == "started"
    server.wait_for(lambda: client.ask("background"), "the end of the call")
    assert said(client.ask("background")[0]) == "slept"


def test_worker_that_is_called_is_killed(running):
    server = running(caller=("caller", CALLER), does=("does", DOES))
    server.expect_error("was ended by signal 9")
    client = Client(server)
    told = client.ask("call", model="does", inputs=word("kill"))
    assert told["code"] == 4 and "was ended by signal 9 (Killed)" in told["error"], told
    server.wait_for(lambda: said(client.ask("call", model="does", inputs=word("fine"))) == "fine", "the restart")


def test_worker_that_calls_is_killed(running):
    """Its calls are cancelled, and others are served."""
    server = running(caller=("caller", CALLER), stream=("stream", None), two=("echo", TWO), does=("does", DOES))
    server.expect_error("was ended by signal 9")
    client = Client(server)
    with pytest.raises(InferenceServerException, match="signal 9"):
        client.ask("die_while", seconds=0.5, model="does", inputs=word("sleep:3"))
    server.wait_for(lambda: client.client.is_model_ready("caller"), "the restart")
    with pytest.raises(InferenceServerException, match="signal 9"):
        client.ask("die_after", model="stream", inputs=stream(2, "cancel"))
    server.wait_for(lambda: '"was cancelled"' in server.log_text(), "the end of the call")

    def answers():
        try:
            return client.ask("call", model="two", inputs=INPUTS)
        except InferenceServerException:
            return None
    server.wait_for(answers, "an answer after the restart")


def test_shutdown_waits_for_calls_and_leaves_nothing(running):
    """What the server's end checks holds while a call without a parent runs."""
    server = running(caller=("caller", CALLER), does=("does", DOES))
    client = Client(server)
    client.ask("in_background", model="does", inputs=word("sleep:1"))
    server.stop()
    assert not python_models.workers(server.pid)


def test_worker_that_hangs_with_calls_makes_no_other_wait(running):
    """It does not read the responses of its calls; there is no execute_timeout_s."""
    server = running(caller=("caller", CALLER), two=("echo", TWO))
    server.expect_error("was ended by signal 9")
    client = Client(server)
    pid = client.ask("pid")
    failed = threading.Thread(target=lambda: pytest.raises(
        InferenceServerException, lambda: Client(server).ask("times", n=1_000_000, model="two", inputs=INPUTS)))
    failed.start()
    server.wait_for(lambda: Client(server).count("two")[0] > 10, "calls")
    os.kill(pid, signal.SIGSTOP)
    other = Client(server)
    given = [tritonclient.http.InferInput(name, [1], "FP32").set_data_from_numpy(numpy.zeros(1, numpy.float32))
             for name in ("INPUT0", "INPUT1")]
    for _ in range(20):
        other.client.infer("two", given)
    os.kill(pid, signal.SIGKILL)
    failed.join()
    server.wait_for(lambda: other.client.is_model_ready("caller"), "the restart")


# ---- models ----------------------------------------------------------------------------------------


def test_models_are_loaded_unloaded_and_asked_for(running):
    server = running("--model-control-mode", "explicit", "--load-model", "caller", caller=("caller", CALLER),
                     two=("echo", TWO), broken=("raise ValueError('as asked')\n", TWO))
    client = Client(server)
    assert client.ask("ready", model_name="two") is False
    assert "error" in client.ask("call", model="two", inputs=INPUTS)
    assert client.ask("load", model_name="two") == "done"
    assert client.ask("ready", model_name="two") is True
    assert client.ask("ready", model_name="two", model_version="1") is True
    assert client.ask("ready", model_name="two", model_version="2") is False
    assert "outputs" in client.ask("call", model="two", inputs=INPUTS)
    assert client.ask("unload", model_name="two") == "done"
    assert client.ask("ready", model_name="two") is False
    server.expect_error("broken")
    assert "ValueError: as asked" in client.ask("load", model_name="broken")
    assert "nothing" in client.ask("load", model_name="nothing")
    assert client.ask("ready", model_name="nothing") is False


def test_models_are_loaded_with_a_configuration_and_files(running):
    server = running("--model-control-mode", "explicit", "--load-model", "caller", caller=("caller", CALLER))
    client = Client(server)
    config = {"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
              "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]}
    files = {"file:1/model.identity": "x"}
    assert client.ask("load", model_name="made", config=json.dumps(config), files=files) == "done"
    assert client.ask("echo", model="made", dtype="float32", n=100_000) is True
    config["backend"] = "python"
    server.expect_error("models in Python are not loaded with a configuration")
    told = client.ask("load", model_name="program", config=json.dumps(config), files={"file:1/model.py": "x = 1"})
    assert "models in Python are not loaded with a configuration or files of a request" in told
    assert "files need a config" in client.ask("load", model_name="made", files=files)
    assert "expected a key" in client.ask("load", model_name="made", config="{}", files={"1/model.onnx": "x"})


def test_models_are_not_loaded_where_the_repository_is_fixed(running):
    server = running(caller=("caller", CALLER), two=("echo", TWO))
    client = Client(server)
    assert "explicit" in client.ask("load", model_name="two")
    assert client.ask("ready", model_name="two") is True


def test_auto_complete_config_calls_no_models(running):
    source = textwrap.dedent("""
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                response = pb_utils.InferenceRequest(model_name="two").exec()
                raise ValueError(response.error().message())

            def execute(self, requests):
                pass
        """)
    server = running(wait="loaded", asks=(source, None), two=("echo", TWO))
    server.expect_error("model failed to load")
    assert "auto_complete_config cannot call models" in server.log_text()


# ---- what they count in ----------------------------------------------------------------------------


def test_calls_are_a_part_of_the_trace_of_their_request(running, tmp_path):
    trace = tmp_path / "trace.json"
    server = running("--trace-config", f"triton,file={trace}", "--trace-config", "rate=1", "--trace-config",
                     "level=TIMESTAMPS", caller=("caller", CALLER), two=("echo", TWO))
    Client(server).ask("call", model="two", inputs=INPUTS)
    server.stop()
    events = json.loads(trace.read_text())
    ids = {event["model_name"]: event["id"] for event in events if "model_name" in event}
    parents = {event["id"]: event.get("parent_id") for event in events if "model_name" in event}
    assert parents[ids["two"]] == ids["caller"]


@pytest.mark.parametrize("how", ["call", "threads"])
def test_calls_count_in_the_memory_of_clients(running, how):
    """Those of a request, and those of none."""
    server = running("--client-memory", "8MiB", caller=("caller", CALLER), two=("echo", TWO))
    client = Client(server)
    arguments = {"model": "two", "n": 1} if how == "threads" else {"model": "two"}
    told = client.ask(how, inputs=[["INPUT0", 4_000_000, "zeros"], INPUTS[1]], **arguments)
    told = told[0] if how == "threads" else told
    assert told["code"] == 4 and "--client-memory" in told["error"], told
    told = client.ask(how, inputs=INPUTS, **arguments)
    assert "outputs" in (told[0] if how == "threads" else told)


def test_responses_that_are_not_read_count_in_the_memory_of_clients(running):
    server = running(caller=("caller", CALLER), stream=("stream", None))
    server.expect_error("worker of instance 0")
    first = Client(server)
    pid = first.ask("pid")
    first.client.close()
    ended = []

    def call():
        own = Client(server)
        with pytest.raises(InferenceServerException) as caught:
            own.ask("many", pause=1000, model="stream", inputs=stream(3000, "thread"))
        ended.append(caught.value.message())
        own.client.close()

    thread = threading.Thread(target=call)
    thread.start()
    numbers = metrics.wait_until(server.address, lambda numbers: numbers["sluice_outputs_held"] > 1000, "responses that wait")
    counted = sum(value for name, value in numbers.items() if name.startswith("sluice_client_memory_bytes{"))
    os.kill(pid, signal.SIGKILL)
    thread.join()
    assert "signal 9" in ended[0]
    assert counted > 1000 * 8192, numbers
    last = python_models.Client(server)
    python_models.wait_restarted(server, last, "caller", "pid")
    last.client.close()
    server.wait_at_rest()


# ---- workers that are not ours ---------------------------------------------------------------------


CALL = ("def call(tag, n_inputs=0, n_outputs=0, n_parameters=0, tail=48, block=0, rest=b''): "
        "message(80, struct.pack('<IQBQIQQIIIII', tag, 0, 0, 0, 0, 0, 0, n_inputs, n_outputs, n_parameters, tail, block), "
        "struct.pack('<I4s', 4, b'does'), bytes(12), rest)\n")

HOSTILE = {
    "many inputs": "call(1, n_inputs=0xffffffff)",
    "many outputs": "call(1, n_outputs=0xffffffff)",
    "many parameters": "call(1, n_parameters=0xffffffff)",
    "a tail that is not there": "call(1, tail=1 << 20)",
    "a block that is not there": "call(1, block=9)",
    "an input that is not there":
        "call(1, n_inputs=1, rest=struct.pack('<I2sIBBQQQ', 2, b'DO', 0, 13, 1, 0, 1 << 40, 1))",
    "an input of a negative size":
        "call(1, n_inputs=1, rest=struct.pack('<I2sIBBQQq', 2, b'DO', 0, 11, 1, 0, 0, -1))",
    "an unknown datatype": "call(1, n_inputs=1, rest=struct.pack('<I2sIBBQQQ', 2, b'DO', 0, 99, 1, 0, 0, 0))",
    "an unknown action": "message(83, struct.pack('<IBB', 1, 7, 0), bytes(16))",
    "a cut change": "message(83, struct.pack('<IBB', 1, 1, 0), struct.pack('<I', 100))",
    "calls without end, and no reading": "[call(i) for i in range(100000)]",
    "changes without end, and no reading": "[message(83, struct.pack('<IBB', i, 2, 0), bytes(16)) for i in range(100000)]",
    "other tags": "message(81, struct.pack('<I', 5)); message(82, struct.pack('<I', 5)); os._exit(3)",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_worker_harms_its_model_alone(running, tmp_path, kind):
    python = python_models.hostile(tmp_path, CALL + "            ready(); " + HOSTILE[kind])
    server = running(does=("does", DOES), hostile=("does", DOES + parameter("python", python)))
    server.expect_error("worker of instance 0")
    client = Client(server)
    for _ in range(2):
        with pytest.raises(InferenceServerException) as caught:
            client.ask("fine", caller="hostile")
        assert "protocol" in caught.value.message() or \
            "exited with code" in caught.value.message(), caught.value.message()
    given = tritonclient.http.InferInput("DO", [1, 1], "BYTES")
    given.set_data_from_numpy(numpy.array([[b"fine"]], dtype=object))
    assert client.client.infer("does", [given]).as_numpy("OUT")[0, 0] == b"fine"

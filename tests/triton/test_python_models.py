"""The same models in Python (python_repository.py) behind a real Triton and behind `sluice tritonserver`: metadata,
configurations, answers and errors are the same, but for what DIFFERS has with its reason."""
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import python_repository
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from lib import http1, server
from lib.ports import free_ports
from lib.triton import triton

FLAGS = ("--exit-on-error=false", "--allow-metrics=false")

# Models that a server does not load: neither has metadata, configuration and answers of them.
NOT_LOADED = ("no_class", "bad_syntax", "bad_import", "bad_initialize")
FP16 = "Triton refuses FP16 in JSON, as datatypes without numbers of their own"
OLD = "this version of Triton's backend has no parameters of responses"

# (model, what): why. `what` is "metadata", "config", "index", a request's number, or its number and protocol.
DIFFERS = {
    **{("echo_fp16", (number, "JSON")): FP16 for number in range(4)},
    **{("add_sub", (2, protocol)): "outputs come in the order that the client asked for; Triton's in that of the model"
       for protocol in ("JSON", "binary", "gRPC", "stream")},
    ("response_parameters", 0): OLD,
    **{("errors", (0, protocol)): "UNKNOWN is an internal error, as the model failed; in Triton HTTP 400, gRPC UNKNOWN"
       for protocol in ("JSON", "binary", "gRPC")},
    **{("errors", (7, protocol)): "a cancelled request is HTTP 499, in Triton 400" for protocol in ("JSON", "binary")},
    ("wrong", 1): "another datatype than the configuration's is an error here; Triton passes it on",
    ("calls_decoupled", 4): "the error of a decoupled model that is called is its last response; Triton drops it",
    ("dlpack", 0): "this version of Triton's backend cannot be read by numpy.from_dlpack",
    ("no_execute", "metadata"): "a model without execute is not loaded; Triton fails its requests",
    ("no_execute", "config"): "likewise",
    ("no_execute", "index"): "likewise",
    **{(model, what): "503 with the reason, as the model is there and is not ready; Triton says 404"
       for model in NOT_LOADED for what in ("metadata", "config")},
}


class Side:
    """A server and its clients."""

    def __init__(self, http, grpc):
        self.address = f"127.0.0.1:{http}"
        self.http = tritonclient.http.InferenceServerClient(self.address, network_timeout=http1.PATIENCE,
                                                            connection_timeout=http1.PATIENCE)
        self.grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{grpc}")

    def get(self, path):
        """Returns: status and document."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/v2/{path}", timeout=http1.PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, None

    @staticmethod
    def arguments(library, request, **how):
        inputs = []
        for name, array in request["inputs"].items():
            inputs.append(library.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array, **how)
        outputs = [library.InferRequestedOutput(name, **how) for name in request["outputs"]] if "outputs" in request else None
        return inputs, outputs, {key: value for key, value in request.items() if key not in ("inputs", "outputs")}

    @staticmethod
    def outcome(answer, names):
        return [(name, [] if answer.as_numpy(name) is None else answer.as_numpy(name).tolist()) for name in names]

    def over_http(self, model, request, binary):
        inputs, outputs, options = self.arguments(tritonclient.http, request, binary_data=binary)
        if outputs is None and not binary:
            inputs, outputs, options = self.arguments(
                tritonclient.http, {**request, "outputs": [output["name"] for output in self.get(f"models/{model}")[1]["outputs"]]},
                binary_data=False)
        try:
            answer = self.http.infer(model, inputs, outputs=outputs, **options)
        except InferenceServerException as error:
            return f"error {error.status()}"
        head = answer.get_response()
        arrays = self.outcome(answer, [output["name"] for output in head.get("outputs", [])])
        head["outputs"] = [{key: output[key] for key in ("name", "datatype", "shape")} for output in head.get("outputs", [])]
        return head, arrays

    def over_grpc(self, model, request):
        inputs, outputs, options = self.arguments(tritonclient.grpc, request)
        try:
            answer = self.grpc.infer(model, inputs, outputs=outputs, client_timeout=http1.PATIENCE, **options)
        except InferenceServerException as error:
            return f"error {error.status()}"
        return self.grpc_answer(answer)

    def grpc_answer(self, answer):
        head = answer.get_response(as_json=True)
        for output in head.get("outputs", []):
            output.pop("contents", None)
        head.pop("raw_output_contents", None)
        return head, self.outcome(answer, [output["name"] for output in head.get("outputs", [])])

    def over_stream(self, model, request):
        """All responses, with their parameters, to the final one."""
        got = []
        inputs, outputs, options = self.arguments(tritonclient.grpc, request)

        def add(result, error):
            got.append((result, error))

        def is_over():
            return got and (got[-1][1] is not None or "triton_final_response" in str(got[-1][0].get_response().parameters)
                            and got[-1][0].get_response().parameters["triton_final_response"].bool_param)
        self.grpc.start_stream(add)
        try:
            self.grpc.async_stream_infer(model, inputs, outputs=outputs, enable_empty_final_response=True, **options)
            end = time.monotonic() + http1.PATIENCE
            while not is_over() and time.monotonic() < end:
                time.sleep(0.005)
        finally:
            self.grpc.stop_stream()
        return [f"error {error.status()}" if error else self.grpc_answer(result) for result, error in got]

    def answers(self, model, request):
        """By protocol."""
        return {"JSON": self.over_http(model, request, False), "binary": self.over_http(model, request, True),
                "gRPC": self.over_grpc(model, request), "stream": self.over_stream(model, request)}


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Triton and Sluice, each with a repository of its own: Triton writes into it."""
    folders = [tmp_path_factory.mktemp(name) for name in ("triton", "sluice")]
    ports = [free_ports(2), free_ports(2)]
    for folder in folders:
        python_repository.write(folder / "models")
    with triton(*ports[0], folders[0] / "log", *FLAGS[:1], models=folders[0] / "models", at="live"), \
            open(folders[1] / "log", "ab") as log:
        ours = subprocess.Popen(
            [server.binary(), "tritonserver", f"--model-repository={folders[1]}/models", *FLAGS, "--http-address=127.0.0.1",
             f"--http-port={ports[1][0]}", "--grpc-address=127.0.0.1",
             f"--grpc-port={ports[1][1]}"], stdout=log, stderr=log,
            env=os.environ | {"VIRTUAL_ENV": os.path.dirname(os.path.dirname(sys.executable))})
        found = [Side(*each) for each in ports]
        try:
            for side in found:
                end = time.monotonic() + http1.PATIENCE
                while not is_loaded(side):
                    assert ours.poll() is None and time.monotonic() < end, (folders[1] / "log").read_text()[-5000:]
                    time.sleep(0.1)
            yield found
        finally:
            ours.send_signal(signal.SIGTERM)
            assert ours.wait(http1.PATIENCE) == 0, (folders[1] / "log").read_text()[-5000:]


def is_loaded(side):
    """Whether every model is ready, or said to have failed."""
    try:
        request = urllib.request.Request(f"http://{side.address}/v2/repository/index", data=b"{}")
        with urllib.request.urlopen(request, timeout=http1.PATIENCE) as answer:
            index = json.load(answer)
    except OSError:
        return False
    return len({row["name"] for row in index}) == len(python_repository.MODELS) and all(
        row.get("state") in ("READY", "UNAVAILABLE") for row in index)


def assert_same(model, what, theirs, ours):
    if (model, what) in DIFFERS:
        assert theirs != ours, f"{model}, {what}: no difference any more: {DIFFERS[model, what]}"
    else:
        assert theirs == ours, f"\nTriton: {theirs}\nSluice: {ours}"


@pytest.mark.parametrize("model", python_repository.MODELS)
def test_metadata(sides, model):
    assert_same(model, "metadata", *(side.get(f"models/{model}") for side in sides))


# Of a configuration what a model's author and its clients can see the effect of.
FIELDS = ("name", "platform", "backend", "max_batch_size", "input", "output", "parameters", "version_policy",
          "model_transaction_policy", "ensemble_scheduling")


def without_presets(node):
    """Triton lists members that have their presets, too."""
    if isinstance(node, dict):
        kept = {key: without_presets(value) for key, value in node.items()}
        return {key: value for key, value in kept.items() if value not in ("", "FORMAT_NONE", False, 0, None, {}, [])}
    return [without_presets(item) for item in node] if isinstance(node, list) else node


@pytest.mark.parametrize("model", python_repository.MODELS)
def test_config(sides, model):
    configs = [side.get(f"models/{model}/config") for side in sides]
    assert_same(model, "config", *((status, config and without_presets({field: config.get(field) for field in FIELDS}))
                                   for status, config in configs))


@pytest.mark.parametrize("model,number", [(model, number) for model, (_, _, requests) in python_repository.MODELS.items()
                                          if model not in (*NOT_LOADED, "no_execute") for number in range(len(requests))])
def test_answers(sides, model, number):
    request = python_repository.MODELS[model][2][number]
    theirs, ours = (side.answers(model, request) for side in sides)
    if (model, number) in DIFFERS:
        assert_same(model, number, theirs, ours)
        return
    for protocol in theirs:
        assert_same(model, (number, protocol), theirs[protocol], ours[protocol])


def test_index(sides):
    """Which models are served, and of each version the state."""
    indexes = []
    for side in sides:
        request = urllib.request.Request(f"http://{side.address}/v2/repository/index", data=b"{}")
        with urllib.request.urlopen(request, timeout=http1.PATIENCE) as answer:
            indexes.append({(row["name"], row.get("version")): (row.get("state"), bool(row.get("reason")))
                            for row in json.load(answer)})
    theirs, ours = indexes
    assert set(theirs) == set(ours)
    for name, version in theirs:
        assert_same(name, "index", theirs[name, version], ours[name, version])


def test_no_stale_difference():
    """Each row of DIFFERS belongs to a test."""
    for model, what in DIFFERS:
        number = what[0] if isinstance(what, tuple) else what
        assert number in ("metadata", "config", "index") or number in range(len(python_repository.MODELS[model][2])), model

"""Outputs that a model leaves out of its response are left out of the client's: over each protocol, with each way an
output can be asked for, in batches, from the response cache and in ensembles."""
import json
import queue
import threading

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, mip, python_models
from lib.ensembles import ensemble, step, write_ensemble
from lib.python_models import FLAGS, tensor

BATCHES = "max_batch_size: 8\n"
PARTS = (tensor("input", "IN", "FP32", [2]) + tensor("input", "WANT", "BYTES", [1]) + tensor("output", "A", "FP32", [2])
         + tensor("output", "B", "FP32", [2]))
IN = numpy.array([[1, 2]], numpy.float32)


class Live:
    def __init__(self, server):
        self.server = server
        self.http = triton_http.InferenceServerClient(server.address, concurrency=8, network_timeout=http1.PATIENCE)
        self.grpc = triton_grpc.InferenceServerClient(server.grpc_address)

    def infer(self, model, want, names=None, protocol="http", value=IN, binary=True, **options):
        """Returns: name → array of the outputs that the response has."""
        module = {"http": triton_http, "grpc": triton_grpc}[protocol]
        text = {"binary_data": binary} if protocol == "http" else {}
        inputs = [module.InferInput("IN", list(value.shape), "FP32"),
                  module.InferInput("WANT", [len(value), 1], "BYTES")]
        inputs[0].set_data_from_numpy(value, **text)
        inputs[1].set_data_from_numpy(numpy.array([[want.encode()]] * len(value), dtype=object), **text)
        outputs = names and [module.InferRequestedOutput(name, **text, **options) for name in names]
        got = getattr(self, protocol).infer(model, inputs, outputs=outputs)
        response = got.get_response()
        given = response["outputs"] if protocol == "http" else response.outputs
        order = [output["name"] if protocol == "http" else output.name for output in given]
        return {name: got.as_numpy(name) for name in order}

    def error_of(self, *args, **options):
        with pytest.raises(InferenceServerException) as caught:
            self.infer(*args, **options)
        return caught.value.message()


@pytest.fixture(name="running")
def start(start_server, tmp_path):
    """run(*flags, name=config, …): a server of models of tests/models/python/parts.py, where no `source` is named."""
    made = []

    def run(*flags, ensembles=(), **models):
        for name, config in models.items():
            source, config = config if isinstance(config, tuple) else ("parts", config)
            python_models.write(tmp_path / "models", name, source, config)
        for name, config in ensembles:
            write_ensemble(tmp_path / "models", name, config)
        made.append(Live(start_server("--model-repository", tmp_path / "models", *FLAGS, *flags, grpc=("127.0.0.1:0",))))
        return made[-1]
    yield run
    for live in made:
        live.http.close()
        live.grpc.close()
        metrics.wait_at_rest(live.server.address)


CASES = [  # what the model returns, what the client asks for, and what it gets
    ("A B", None, ["A", "B"]),
    ("A", None, ["A"]),
    ("B", None, ["B"]),
    ("", None, []),
    ("B A", None, ["A", "B"]),
    ("ELSE", None, []),
    ("B ELSE", None, ["B"]),
    ("A", ["B"], []),
    ("A", ["B", "A"], ["A"]),
    ("A B", ["B", "A"], ["B", "A"]),
    ("A B", ["B"], ["B"]),
]


def assert_has(got, names, value=IN):
    assert list(got) == names
    for name, array in got.items():
        assert (array == value * {"A": 2, "B": 3}[name]).all()


@pytest.mark.parametrize("protocol,binary", [("http", True), ("http", False), ("grpc", True)])
@pytest.mark.parametrize("more", ["", "dynamic_batching { }\n"])
def test_response_has_the_outputs_that_the_model_gives(running, protocol, binary, more):
    live = running(parts=PARTS + BATCHES + more)
    for want, names, expected in CASES:
        assert_has(live.infer("parts", want, names, protocol, binary=binary), expected)
    assert live.server.log_text().count("returns an output 'ELSE', which its configuration does not have") == 1


def test_forms_are_those_of_the_outputs_that_are_there(running):
    """One output as binary, and one as JSON."""
    live = running(parts=PARTS + BATCHES)
    for want, expected in (("A B", [("A", True), ("B", False)]), ("A", [("A", True)]), ("B", [("B", False)])):
        request = {"inputs": [{"name": "IN", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]},
                              {"name": "WANT", "shape": [1, 1], "datatype": "BYTES", "data": [want]}],
                   "outputs": [{"name": "A", "parameters": {"binary_data": True}}, {"name": "B"}]}
        answer = http1.request(live.server.address, "POST", "/v2/models/parts/infer", json.dumps(request).encode())
        size = answer.get("Inference-Header-Content-Length")
        head = json.loads(answer.body[:int(size)] if size else answer.body)
        assert [(output["name"], "data" not in output) for output in head["outputs"]] == expected
        if want == "B":
            assert head["outputs"][0]["data"] == [3, 6] and size is None


def test_requests_of_one_batch_have_their_own_outputs(running):
    live = running(parts=PARTS + BATCHES + "dynamic_batching { max_queue_delay_microseconds: 200000 }\n")
    got = {}

    def ask(i, want):
        got[i] = live.infer("parts", want, value=IN + i)
    threads = [threading.Thread(target=ask, args=(i, want)) for i, (want, _, _) in enumerate(CASES[:4] * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (_, _, expected) in enumerate(CASES[:4] * 2):
        assert_has(got[i], expected, IN + i)


def test_batch_of_unequal_lengths_has_the_outputs_that_the_model_gives(running):
    """Requests that are joined to one: the model sees one request of them."""
    config = (tensor("input", "IN", "FP32", [-1]).replace(" }\n", " allow_ragged_batch: true }\n")
              + tensor("input", "WANT", "BYTES", [1]) + tensor("output", "A", "FP32", [-1])
              + tensor("output", "B", "FP32", [-1]) + BATCHES + "dynamic_batching { }\n")
    live = running(parts=config)
    for want, names, expected in CASES:
        assert list(live.infer("parts", want, names)) == expected


def test_shared_memory_of_an_output_that_is_left_out_stays_as_it_was(running):
    live = running("--allow-client-shm", "true", parts=PARTS + BATCHES)
    handle = shm.create_shared_memory_region("own", f"/sluice-left-out-{live.server.pid}", 16)
    try:
        live.http.register_system_shared_memory("own", f"/sluice-left-out-{live.server.pid}", 16)
        for want, expected in (("A B", [[2, 4], [3, 6]]), ("A", [[2, 4], [9, 9]]), ("B", [[9, 9], [3, 6]]),
                               ("", [[9, 9], [9, 9]])):
            shm.set_shared_memory_region(handle, [numpy.full(4, 9, numpy.float32)])
            outputs = [triton_http.InferRequestedOutput(name) for name in "AB"]
            for i, output in enumerate(outputs):
                output.set_shared_memory("own", 8, 8 * i)
            inputs = [triton_http.InferInput("IN", [1, 2], "FP32"), triton_http.InferInput("WANT", [1, 1], "BYTES")]
            inputs[0].set_data_from_numpy(IN)
            inputs[1].set_data_from_numpy(numpy.array([[want.encode()]], dtype=object))
            live.http.infer("parts", inputs, outputs=outputs)
            assert shm.get_contents_as_numpy(handle, numpy.float32, [2, 2]).tolist() == expected
        live.http.unregister_system_shared_memory()
    finally:
        shm.destroy_shared_memory_region(handle)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_classes_are_of_the_outputs_that_are_there(running, protocol):
    live = running(parts=PARTS + BATCHES)
    got = live.infer("parts", "B", ["A", "B"], protocol, class_count=1)
    assert list(got) == ["B"] and got["B"].ravel().tolist() == [b"6.000000:1"]


def test_mip_has_null_in_the_place_of_an_output(running):
    live = running("--mip", "tcp://127.0.0.1:0=parts", parts=PARTS + BATCHES)
    url = live.server.mip_urls[0]
    for want, expected in (("A B", [[2, 4], [3, 6]]), ("A", [[2, 4], None]), ("B", [None, [3, 6]]), ("", [None, None])):
        assert mip.infer(url, [[mip.as_json([1, 2]), mip.text(want)]]) == [expected]
    assert mip.infer(url, [[mip.as_json([1, 2]), mip.text("B")]] * 3) == [[None, [3, 6]]] * 3


def test_response_cache_keeps_which_outputs_are_there(running):
    live = running("--cache-size", "1MiB", parts=PARTS + BATCHES + "response_cache { enable: true }\n")
    for want, names, expected in CASES * 2:
        assert_has(live.infer("parts", want, names), expected)
    assert live.http.get_inference_statistics("parts")["model_stats"][0]["inference_stats"]["cache_hit"]["count"] == len(CASES)


def test_decoupled_model_may_leave_out_outputs(running):
    live = running(parts=PARTS + "model_transaction_policy { decoupled: true }\n")
    answers = queue.Queue()
    live.grpc.start_stream(lambda result, error: answers.put((result, error)))
    for want, names, expected in CASES:
        inputs = [triton_grpc.InferInput("IN", [2], "FP32"), triton_grpc.InferInput("WANT", [1], "BYTES")]
        inputs[0].set_data_from_numpy(IN[0])
        inputs[1].set_data_from_numpy(numpy.array([want.encode()], dtype=object))
        live.grpc.async_stream_infer("parts", inputs, outputs=names and [triton_grpc.InferRequestedOutput(name)
                                                                        for name in names])
        result, error = answers.get(timeout=http1.PATIENCE)
        assert error is None
        assert [output.name for output in result.get_response().outputs] == expected
    live.grpc.stop_stream()


JOINS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            names = " ".join(tensor.name() for tensor in request.inputs())
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("NAMES", np.array([[names]], dtype=object))]))
        return responses
"""


def ensemble_of(outputs, *more):
    ends = (tensor("input", "IN", "FP32", [2]) + tensor("input", "WANT", "BYTES", [1])
            + "".join(tensor("output", *output) for output in outputs))
    return ensemble(ends, *more)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_ensemble_goes_on_without_optional_inputs(running, protocol):
    parts = step("parts", {"IN": "IN", "WANT": "WANT"}, {"A": "a", "B": "b"})
    joins = (JOINS, tensor("input", "LEFT", "FP32", [2])
             + tensor("input", "RIGHT", "FP32", [2]).replace(" }\n", " optional: true }\n")
             + tensor("output", "NAMES", "BYTES", [1]) + BATCHES)
    live = running(parts=PARTS + BATCHES, joins=joins, ensembles=[
        ("joined", ensemble_of([("NAMES", "BYTES", [1])], parts,
                               step("joins", {"LEFT": "a", "RIGHT": "b"}, {"NAMES": "NAMES"}))),
        ("both", ensemble_of([("A", "FP32", [2]), ("B", "FP32", [2])],
                             step("parts", {"IN": "IN", "WANT": "WANT"}, {"A": "A", "B": "B"})))])
    for want, expected in (("A B", "LEFT RIGHT"), ("A", "LEFT")):
        assert live.infer("joined", want, protocol=protocol)["NAMES"].ravel().tolist() == [expected.encode()]
    for want in ("B", ""):
        error = live.error_of("joined", want, protocol=protocol)
        assert 'the model has left out output "A", which is tensor "a"' in error and "step 0" in error
    assert_has(live.infer("both", "A B", protocol=protocol), ["A", "B"])
    assert_has(live.infer("both", "A", ["A"], protocol=protocol), ["A"])
    for want, output in (("A", "B"), ("B", "A"), ("", "A")):
        error = live.error_of("both", want, protocol=protocol)
        assert f'the model has left out output "{output}", which is tensor "{output}"' in error
    assert_has(live.infer("both", "A B", protocol=protocol), ["A", "B"])

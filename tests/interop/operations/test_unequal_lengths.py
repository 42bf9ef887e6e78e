"""Requests of unequal lengths in one batch: ragged inputs as the reference has them, and padding. The numbers are
those of each request alone, by the reference's own clients."""
import concurrent.futures
import json
import os
import threading

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from lib import http1, metrics, unequal
from lib.repository import save_onnx

N_CLIENTS, N_CALLS, LONGEST = 32, 12, 40
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
WAIT = "dynamic_batching { max_queue_delay_microseconds: 3000000000 }\n"
BATCHES = "instance_group { count: 1 }\n"


class Client:
    """tritonclient, over HTTP or gRPC."""

    def __init__(self, protocol, server):
        self.triton = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
        address = server.address if protocol == "http" else server.grpc_address
        self.client = self.triton.InferenceServerClient(address.removeprefix("http://"), **(
            {"network_timeout": http1.PATIENCE, "connection_timeout": http1.PATIENCE} if protocol == "http" else {}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def infer(self, model, arrays, **options):
        inputs = []
        for name, array in arrays.items():
            inputs.append(self.triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array)
        return self.client.infer(model, inputs, **options)


@pytest.fixture(params=["http", "grpc"])
def protocol(request):
    return request.param


@pytest.fixture
def running(start_server, tmp_path):
    """run(name=(save, config), …): a server of these models."""
    def run(*flags, **models):
        for name, (save, config) in models.items():
            unequal.write(tmp_path / "models", name, save, config)
        return start_server("--model-repository", tmp_path / "models", *flags, grpc=("127.0.0.1:0",))
    return run


def together(server, protocol, model, requests):
    """Sends requests at once, each on a connection of its own. Returns: what each gets, an answer or an error."""
    def one(arrays):
        with Client(protocol, server) as client:
            try:
                return client.infer(model, arrays)
            except InferenceServerException as error:
                return error
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests))


def executions(server, model):
    return metrics.read(server.address)[f'nv_inference_exec_count{{model="{model}",version="1"}}']


def row_of(*values):
    return numpy.array([values], numpy.int64)


# ---- ragged --------------------------------------------------------------------------------------

def check_sums(result, x):
    assert result.as_numpy("twice").tolist() == (2 * x).tolist()
    assert result.as_numpy("sum")[0].tolist() == [x.sum()]


def test_ragged_requests_are_one_execution(running, protocol):
    server = running(sums=(unequal.save_sums, unequal.SUMS.replace("max_batch_size: 8", "max_batch_size: 5") +
                           WAIT + BATCHES))
    xs = [row_of(1, 2, 3), row_of(4), row_of(), numpy.array([[5, 6], [7, 8]], numpy.int64)]
    for x, result in zip(xs, together(server, protocol, "sums", [{"x": x} for x in xs])):
        if len(x) == 1:
            check_sums(result, x)
    assert executions(server, "sums") == 1
    server.wait_at_rest()


def test_ragged_input_and_what_the_server_makes_of_it_are_shown_as_configured(running):
    server = running(sums=(unequal.save_sums, unequal.SUMS))
    metadata = json.loads(http1.request(server.address, "GET", "/v2/models/sums").body)
    assert metadata["inputs"] == [{"name": "x", "datatype": "INT64", "shape": [-1, -1]}]
    config = json.loads(http1.request(server.address, "GET", "/v2/models/sums/config").body)
    assert config["input"][0]["allow_ragged_batch"] is True
    assert config["batch_input"] == [{"kind": "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "target_name": ["ends"],
                                      "data_type": "TYPE_INT32", "source_input": ["x"]}]
    assert config["batch_output"] == [{"target_name": ["twice"], "kind": "BATCH_SCATTER_WITH_INPUT_SHAPE",
                                       "source_input": ["x"]}]
    with Client("grpc", server) as client:
        with pytest.raises(InferenceServerException, match="unexpected inference input 'ends'"):
            client.infer("sums", {"x": row_of(1), "ends": numpy.array([0], numpy.int32)})
        check_sums(client.infer("sums", {"x": row_of(1, 2)}), row_of(1, 2))


def test_ragged_requests_of_many_clients(running, protocol):
    server = running(sums=(unequal.save_sums, unequal.SUMS))
    storm(server, protocol, "sums", lambda random: {"x": random.integers(-9, 9, (1, random.integers(0, LONGEST)))},
          lambda arrays, result: check_sums(result, arrays["x"]))


def storm(server, protocol, model, make, check):
    """Clients at once, each with requests of random lengths."""
    begin = threading.Barrier(N_CLIENTS, timeout=http1.PATIENCE)

    def run(seed):
        random = numpy.random.default_rng(seed)
        with Client(protocol, server) as client:
            begin.wait()
            for _ in range(N_CALLS):
                arrays = make(random)
                check(arrays, client.infer(model, arrays))
    with concurrent.futures.ThreadPoolExecutor(N_CLIENTS) as pool:
        list(pool.map(run, range(N_CLIENTS)))
    assert executions(server, model) <= N_CLIENTS * N_CALLS
    server.wait_at_rest()


def test_ragged_texts(running, protocol):
    """BYTES, by the backend that takes any tensors: the elements of all requests, scattered again."""
    config = """
        backend: "identity" max_batch_size: 2
        input { name: "INPUT0" data_type: TYPE_STRING dims: [ -1 ] allow_ragged_batch: true }
        output { name: "OUTPUT0" data_type: TYPE_STRING dims: [ -1 ] }
        batch_output { target_name: "OUTPUT0" source_input: "INPUT0" }
        """ + WAIT
    server = running(texts=(lambda path: os.makedirs(os.path.dirname(path)), config))
    rows = [numpy.array([[b"a", b"", b"long text"]], object), numpy.array([["ü".encode()]], object)]
    for row, result in zip(rows, together(server, protocol, "texts", [{"INPUT0": row} for row in rows])):
        assert result.as_numpy("OUTPUT0").tolist() == row.tolist()
    assert executions(server, "texts") == 1


SEQUENCES = [("direct { }", 3), ("oldest { max_candidate_sequences: 4 }", 4)]


@pytest.mark.parametrize("strategy, n", SEQUENCES)
def test_ragged_requests_of_sequences(running, protocol, strategy, n):
    """With the strategy "direct" a row may be empty between others: then it has the shape of another one."""
    server = running(sums=(unequal.save_sums, unequal.SUMS + f"sequence_batching {{ {strategy} }}\n"))

    def run(sequence):
        with Client(protocol, server) as client:
            for step in range(6):
                x = row_of(*range(sequence + 3 * step % 5))
                check_sums(client.infer("sums", {"x": x}, sequence_id=sequence + 1, sequence_start=step == 0,
                                        sequence_end=step == 5), x)
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        list(pool.map(run, range(n)))
    server.wait_at_rest()


def test_warm_up_of_a_ragged_model_and_its_response_cache(running, protocol):
    server = running("--cache-size", "1MiB", sums=(unequal.save_sums, unequal.SUMS + """
        response_cache { enable: true }
        model_warmup { name: "first" batch_size: 2 inputs { key: "x" value { data_type: TYPE_INT64 dims: 3
                       zero_data: true } } }"""))
    with Client(protocol, server) as client:
        for x in (row_of(1, 2), row_of(1, 2, 3), row_of(1, 2)):
            check_sums(client.infer("sums", {"x": x}), x)
    assert metrics.read(server.address)['nv_cache_num_hits_per_model{model="sums",version="1"}'] == 1


# ---- padding -------------------------------------------------------------------------------------

def check_encoded(arrays, result):
    for i, ids in enumerate(arrays["ids"]):
        mask = arrays["mask"][i] if "mask" in arrays else None
        states, weights, pooled = unequal.encoded(ids, mask)
        numpy.testing.assert_allclose(result.as_numpy("states")[i], states, **CLOSE)
        numpy.testing.assert_allclose(result.as_numpy("weights")[i], weights, **CLOSE)
        numpy.testing.assert_allclose(result.as_numpy("pooled")[i], pooled, **CLOSE)


def random_ids(random):
    shape = (random.integers(1, 3), random.integers(1, LONGEST))
    arrays = {"ids": random.integers(0, unequal.N_TOKENS, shape)}
    if random.integers(2):
        arrays["mask"] = (random.random(shape) < 0.7).astype(numpy.int64)
        arrays["mask"][:, 0] = 1
    return arrays


BACKENDS = [pytest.param("onnxruntime"), pytest.param("openvino", marks=pytest.mark.plain)]


@pytest.fixture
def leaks(monkeypatch):
    monkeypatch.setenv("LSAN_OPTIONS", os.environ.get("LSAN_OPTIONS", "") + ":use_tls=0")


@pytest.mark.parametrize("backend", BACKENDS)
def test_padded_requests_are_one_execution(running, protocol, backend, leaks):
    """Some with a mask of their own, some without; one with two rows."""
    config = unequal.PADDED.replace("max_batch_size: 8", "max_batch_size: 5")
    server = running(encoder=(unequal.save_encoder, f'backend: "{backend}"\n' + config + WAIT + BATCHES))
    requests = [{"ids": row_of(1, 2, 3)}, {"ids": row_of(4), "mask": row_of(1)},
                {"ids": row_of(5, 6, 7, 8, 9), "mask": row_of(1, 1, 0, 1, 0)},
                {"ids": numpy.array([[1, 2], [3, 4]], numpy.int64)}]
    for arrays, result in zip(requests, together(server, protocol, "encoder", requests)):
        check_encoded(arrays, result)
    assert executions(server, "encoder") == 1
    server.wait_at_rest()


def test_padded_request_alone_and_its_outputs_by_name(running, protocol):
    server = running(encoder=(unequal.save_encoder, unequal.PADDED))
    with Client(protocol, server) as client:
        arrays = {"ids": row_of(3, 2, 1)}
        check_encoded(arrays, client.infer("encoder", arrays))
        outputs = [client.triton.InferRequestedOutput(name) for name in ("pooled", "states")]
        result = client.infer("encoder", arrays, outputs=outputs)
        assert result.as_numpy("states").shape == (1, 3, unequal.WIDTH)
        assert result.as_numpy("weights") is None
        with pytest.raises(InferenceServerException, match="missing required input\\(s\\) \\['ids'\\]"):
            client.infer("encoder", {"mask": row_of(1)})


@pytest.mark.parametrize("backend", BACKENDS)
def test_padded_requests_of_many_clients(running, protocol, backend, leaks):
    server = running(encoder=(unequal.save_encoder, f'backend: "{backend}"\n' + unequal.PADDED))
    storm(server, protocol, "encoder", random_ids, check_encoded)


def test_padded_requests_with_lengths(running, protocol):
    server = running(lengths=(unequal.save_lengths, unequal.LENGTHS.replace(": 8", ": 3") + WAIT))
    rows = [numpy.array([values], numpy.float32) for values in ([1, 2, 3], [], [4, 5, 6, 7, 8])]
    requests = [{"x": row} for row in rows]
    requests[2]["length"] = row_of(2)  # the client's own
    results = together(server, protocol, "lengths", requests)
    assert [result.as_numpy("y").tolist() for result in results] == [[[6]], [[0]], [[9]]]
    assert executions(server, "lengths") == 1


def test_bad_request_of_a_padded_batch_fails_alone(running, protocol):
    server = running(encoder=(unequal.save_encoder, unequal.PADDED.replace(": 8", ": 4") + WAIT))
    requests = [{"ids": row_of(1, 2, 3)}, {"ids": row_of(99, 1)}, {"ids": row_of(4)}, {"ids": row_of(5, 6)}]
    results = together(server, protocol, "encoder", requests)
    for i in (0, 2, 3):
        check_encoded(requests[i], results[i])
    assert isinstance(results[1], InferenceServerException)
    assert "out of" in str(results[1])
    server.wait_at_rest()


def test_batch_with_a_row_that_is_much_longer_runs_in_parts(running):
    """Seven rows of one element beside one of 2 MiB elements: they are not all padded to that."""
    server = running(lengths=(unequal.save_lengths, unequal.LENGTHS + WAIT))
    rows = [numpy.ones((1, 1), numpy.float32)] * 7 + [numpy.ones((1, 1 << 21), numpy.float32)]
    results = together(server, "http", "lengths", [{"x": row} for row in rows])
    assert [result.as_numpy("y").item() for result in results] == [1.0] * 7 + [float(1 << 21)]
    assert executions(server, "lengths") == 1


# ---- refused at load -----------------------------------------------------------------------------

def save_fixed(path):
    save_onnx(path, "fixed", [helper.make_node("Identity", ["x"], ["y"])],
              [unequal.tensor("x", TensorProto.INT64, "n", 2)], [unequal.tensor("y", TensorProto.INT64, "n", 2)])


X = 'input { name: "x" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true }\n'
REFUSED = {
    "not_batching": (unequal.save_sums, unequal.SUMS.replace("max_batch_size: 8", "max_batch_size: 0"),
                     'allow_ragged_batch of input \\"x\\" needs a model that batches'),
    "no_target": (unequal.save_sums, unequal.SUMS.replace('"ends"', '"begins"'),
                  'config.pbtxt:5: batch_input: target_name \\"begins\\": the model has no input of that name'),
    "no_source": (unequal.save_sums, unequal.SUMS.replace('source_input: "x" }\nbatch', 'source_input: "y" }\nbatch'),
                  'config.pbtxt:5: batch_input: source_input \\"y\\" is no input that clients send'),
    "datatype": (unequal.save_sums, unequal.SUMS.replace("TYPE_INT32", "TYPE_INT64"),
                 "config.pbtxt:5: batch_input.data_type"),
    "two_dimensions": (save_fixed, 'max_batch_size: 2 input { name: "x" dims: 2 allow_ragged_batch: true }',
                       "the shape [-1]; the model has [-1,2]"),
    "not_padded": (unequal.save_encoder, unequal.PADDED.replace("sluice.pad.ids", "sluice.pad.mask"),
                   'parameter \\"sluice.pad_mask.mask\\": input \\"ids\\" is not padded'),
    "no_number": (unequal.save_lengths, unequal.LENGTHS.replace("7.5", "seven"),
                  'parameter \\"sluice.pad.x\\": \\"seven\\" is no number of TYPE_FP32'),
    "decoupled": (unequal.save_sums, unequal.SUMS + "model_transaction_policy { decoupled: true }",
                  "one response for each request"),
    "own_parameter": (unequal.save_lengths, unequal.LENGTHS + unequal.parameters(padding="0"),
                      'unknown parameter \\"sluice.padding\\"'),
}


def test_contradictions_fail_their_model_alone(start_server, tmp_path):
    for name, (save, config, _) in REFUSED.items():
        unequal.write(tmp_path / "models", name, save, config)
    unequal.write(tmp_path / "models", "sums", unequal.save_sums, unequal.SUMS)
    server = start_server("--model-repository", tmp_path / "models", wait="loaded")
    log = server.log_text()
    for name, (_, _, says) in REFUSED.items():
        server.expect_error(name)
        assert says in log, f"{name}: {says}"
    with Client("http", server) as client:
        check_sums(client.infer("sums", {"x": row_of(1, 2)}), row_of(1, 2))

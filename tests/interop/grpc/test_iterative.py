"""Iterative sequences: requests that their backend asks to run again until they are done, batched with others that
begin or go on. tests/lib/countdown_backend.c counts down from INPUT, one less in each execution."""
import json
import queue
import threading
import urllib.request

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lib import backends, http1, metrics, sequences
from lib.stateful import state

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

PATIENCE = http1.PATIENCE
FOREVER = {"forever": 1}


def counter(strategy="direct { }", max_batch_size=4, corrid="TYPE_INT32", decoupled=False, iterative=True, more=""):
    """config.pbtxt of a model."""
    outputs = [f'output {{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ] }}' for name in ("LEFT", "COUNT", "ROWS", "ID")]
    batching = ["sequence_batching {", strategy, f"iterative_sequence: {str(iterative).lower()}",
                sequences.control("START", "CONTROL_SEQUENCE_START", "int32_false_true: [ 0, 1 ]"),
                sequences.control("CORRID", "CONTROL_SEQUENCE_CORRID", f"data_type: {corrid}"),
                state("OLD_LEFT", "NEW_LEFT", "INT32", [1]), state("OLD_COUNT", "NEW_COUNT", "INT32", [1]), "}"]
    return "\n".join(['backend: "countdown"', f"max_batch_size: {max_batch_size}",
                      'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }', *outputs, *batching,
                      f"model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}", more, ""])


OLDEST = "oldest { max_candidate_sequences: 8 }"
MODELS = {
    "direct": counter(),
    "oldest": counter(OLDEST),
    "one_one": counter(max_batch_size=0),
    "stream": counter(decoupled=True),
    "stream_oldest": counter(OLDEST, decoupled=True),
    "text_ids": counter(corrid="TYPE_STRING"),
    "asks_in_vain": counter(iterative=False),
    "warm": counter(more='model_warmup { name: "w" batch_size: 1 inputs { key: "INPUT" value { data_type: TYPE_INT32 '
                         "dims: [ 1 ] zero_data: true } } }"),
}


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("iterative")
    return ["--model-repository", sequences.write(folder / "models", MODELS),
            "--backend-dir", backends.make(folder, "countdown")]


@pytest.fixture
def server(start_server, arguments):
    server = start_server(*arguments, "--model-control-mode", "explicit", "--load-model", "*", grpc=("127.0.0.1:0",))
    yield server
    with Counter("http", server) as last:
        assert last("direct", 3)["COUNT"] == 3
    metrics.wait_until(server.address, lambda numbers: numbers["sluice_sequences"] == 0, "no sequence is left")
    metrics.wait_at_rest(server.address, server.arenas)


class Counter:
    def __init__(self, protocol, server):
        self.triton = {"http": triton_http, "grpc": triton_grpc}[protocol]
        address = server.address.removeprefix("http://") if protocol == "http" else server.grpc_address
        self.client = self.triton.InferenceServerClient(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def inputs(self, model, n):
        array = numpy.full((1,) if model.endswith("_one") else (1, 1), n, numpy.int32)
        tensor = self.triton.InferInput("INPUT", list(array.shape), "INT32")
        tensor.set_data_from_numpy(array)
        return [tensor]

    def __call__(self, model, n, **options):
        result = self.client.infer(model, self.inputs(model, n), **options)
        return {name: result.as_numpy(name).item() for name in ("LEFT", "COUNT", "ROWS", "ID")}


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    with Counter(request.param, server) as client:
        yield client


# ---- until it is done ----------------------------------------------------------------------------

@pytest.mark.parametrize("model", ["direct", "oldest", "one_one", "warm"])
def test_iterative_request_runs_until_done(client, model):
    """Without sequence parameters, and the state is carried from one execution to the next."""
    for n in (1, 2, 50, 1000):
        said = client(model, n)
        assert (said["LEFT"], said["COUNT"]) == (0, n)


def test_iterative_requests_have_ids_of_their_own(client):
    ids = [client("direct", 2)["ID"] for _ in range(5)]
    assert len(set(ids)) == 5 and min(ids) > 0
    assert client("direct", 3, sequence_id=77) == {"LEFT": 0, "COUNT": 3, "ROWS": 1, "ID": 77}
    assert client("direct", 3, sequence_id=77, sequence_start=True)["COUNT"] == 3
    assert client("text_ids", 3)["COUNT"] == 3
    assert client("text_ids", 3, sequence_id="mine")["COUNT"] == 3


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_iterative_requests_are_batched_while_others_go_on(server, model):
    """Short ones join and leave the batches of a long one."""
    done, said = [], {}

    def ask(number, n):
        with Counter("grpc", server) as client:
            said[number] = client(model, n, parameters={"delay_us": 1000})
        done.append(number)

    threads = [threading.Thread(target=ask, args=(0, 2000), daemon=True)]
    threads[0].start()
    metrics.wait_until(server.address, lambda numbers: numbers["sluice_sequences"] == 1, "the long one runs")
    for number in range(1, 10):
        threads.append(threading.Thread(target=ask, args=(number, number), daemon=True))
        threads[-1].start()
    for thread in threads[1:] + threads[:1]:
        thread.join()
    assert {number: item["COUNT"] for number, item in said.items()} == {0: 2000, **{i: i for i in range(1, 10)}}
    assert done[-1] == 0
    assert max(item["ROWS"] for item in said.values()) > 1


def test_iterative_requests_that_go_on_are_not_in_the_queue(start_server, arguments):
    """The limit of the queue is for those that have not begun."""
    server = start_server(*arguments, "--max-queue-size", 6, grpc=("127.0.0.1:0",))
    said = queue.Queue()
    with Counter("grpc", server) as long, Counter("http", server) as short:
        for _ in range(6):
            long.client.async_infer("oldest", long.inputs("oldest", 3000), lambda result, error: said.put((result, error)))
        for n in range(1, 40):
            assert short("oldest", n)["COUNT"] == n
        for _ in range(6):
            result, error = said.get(timeout=PATIENCE)
            assert error is None and result.as_numpy("COUNT").item() == 3000
    metrics.wait_at_rest(server.address, server.arenas)


def test_iterative_executions_are_counted(server):
    with Counter("http", server) as client:
        before = client.client.get_inference_statistics("direct")["model_stats"][0]
        client("direct", 7)
        after = client.client.get_inference_statistics("direct")["model_stats"][0]
    assert after["execution_count"] - before["execution_count"] == 7
    assert after["inference_count"] - before["inference_count"] == 1
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"].get("count", 0) == 1


# ---- decoupled -----------------------------------------------------------------------------------

@pytest.mark.parametrize("model", ["stream", "stream_oldest"])
def test_iterative_decoupled_sends_each_iteration(server, model):
    results = queue.Queue()
    with Counter("grpc", server) as client:
        client.client.start_stream(lambda result, error: results.put((result, error)))
        for i, n in enumerate((5, 1, 40)):
            client.client.async_stream_infer(model, client.inputs(model, n), request_id=str(i))
        said = {str(i): [] for i in range(3)}
        for _ in range(5 + 1 + 40):
            result, error = results.get(timeout=PATIENCE)
            assert error is None
            said[result.get_response().id].append((result.as_numpy("LEFT").item(), result.as_numpy("COUNT").item()))
        client.client.stop_stream()
    assert said == {str(i): [(n - k, k) for k in range(1, n + 1)] for i, n in enumerate((5, 1, 40))}


def test_iterative_decoupled_generate_stream(server):
    with urllib.request.urlopen(f"http://{server.address}/v2/models/stream/generate_stream", b'{"INPUT": 4}',
                                timeout=PATIENCE) as answer:
        events = [json.loads(line.removeprefix(b"data: ")) for line in answer.read().split(b"\n\n") if line]
    assert [event["LEFT"] for event in events] == [3, 2, 1, 0]


# ---- requests that are given up ------------------------------------------------------------------

@pytest.mark.parametrize("model", ["direct", "oldest", "one_one"])
def test_iterative_cancel_between_executions(server, model):
    """Its slot is free then: the model has fewer slots than that."""
    with Counter("grpc", server) as client:
        for _ in range(10):
            ended = threading.Event()
            call = client.client.async_infer(model, client.inputs(model, 5), lambda result, error: ended.set(),
                                             parameters=FOREVER)
            metrics.wait_until(server.address, lambda numbers: numbers["sluice_sequences"] == 1, "it runs")
            call.cancel()
            assert ended.wait(PATIENCE)
            metrics.wait_until(server.address, lambda numbers: numbers["sluice_sequences"] == 0, "it has ended")
        assert client(model, 4)["COUNT"] == 4


def test_iterative_cancel_of_stream(server):
    for _ in range(10):
        with Counter("grpc", server) as client:
            results = queue.Queue()
            client.client.start_stream(lambda result, error: results.put((result, error)))
            client.client.async_stream_infer("stream", client.inputs("stream", 1000000), request_id="a")
            for _ in range(3):
                assert results.get(timeout=PATIENCE)[1] is None
            client.client.stop_stream(cancel_requests=True)
        metrics.wait_until(server.address, lambda numbers: numbers["sluice_sequences"] == 0, "it has ended")


def test_iterative_timeout_ends_with_first_execution(client):
    """A request that has begun is not dropped from the queue."""
    assert client("direct", 30, parameters={"delay_us": 2000}, timeout=20000)["COUNT"] == 30


def test_iterative_unload_waits_for_requests(server):
    with Counter("http", server) as client, Counter("grpc", server) as other:
        said = queue.Queue()
        other.client.async_infer("oldest", other.inputs("oldest", 200), lambda result, error: said.put((result, error)),
                                 parameters={"delay_us": 1000})
        metrics.wait_until(server.address, lambda numbers: numbers["sluice_sequences"] == 1, "it runs")
        client.client.unload_model("oldest")
        result, error = said.get(timeout=PATIENCE)
        assert error is None and result.as_numpy("COUNT").item() == 200
        client.client.load_model("oldest")
        assert client("oldest", 2)["COUNT"] == 2


# ---- what does not fit ---------------------------------------------------------------------------

def test_iterative_backend_that_does_not_ask_is_refused(start_server, arguments):
    server = start_server(*arguments, "--model-control-mode", "explicit", "--load-model", "*")
    with Counter("http", server) as client:
        for backend in ("countdown", "identity"):
            config = {"backend": backend, "max_batch_size": 4,
                      "input": [{"name": "INPUT", "data_type": "TYPE_INT32", "dims": [1]}],
                      "output": [{"name": "LEFT", "data_type": "TYPE_INT32", "dims": [1]}],
                      "parameters": {"iterative": {"string_value": "no"}},
                      "sequence_batching": {"iterative_sequence": True}}
            with pytest.raises(InferenceServerException) as caught:
                client.client.load_model("direct", config=json.dumps(config))
            assert "iterative_sequence" in caught.value.message()
            assert f"backend {backend} does not ask" in caught.value.message()
        server.expect_error("does not ask to run requests of this model again")
        assert client("direct", 2)["COUNT"] == 2


def test_iterative_model_without_setting_fails_its_requests(client):
    with pytest.raises(InferenceServerException, match="iterative_sequence: true"):
        client("asks_in_vain", 3, sequence_id=1, sequence_start=True)
    assert client("asks_in_vain", 1, sequence_id=1, sequence_start=True, sequence_end=True)["COUNT"] == 1

"""Decoupled models, which give 0 or more answers to a request, asked by the reference's own client over
ModelStreamInfer: all answers in order, how the end is said, failures in the middle, slow readers and
clients that leave. Where only one answer fits, they are refused."""
import asyncio
import json
import queue
from multiprocessing import shared_memory

import grpc
import numpy
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lib import http1, metrics
from lib.repository import DECOUPLED
from lib.server import is_sanitized, peak_memory_of

pytestmark = pytest.mark.plain

PATIENCE = http1.PATIENCE


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoupled")
    for model in DECOUPLED:
        model.write(str(folder))
    return str(folder)


@pytest.fixture
def running(start_server, models):
    """A server whose gauges are looked at when the test is over, and which answers then."""
    server = start_server("--model-repository", models, grpc=("127.0.0.1:0",))
    yield server
    assert answers_of(server, "many", responses=2) == [(False, 1.0), (True, 1.0)]
    metrics.wait_at_rest(server.address, server.arenas)


def make_inputs(array):
    return [triton.InferInput("INPUT0", list(array.shape), "FP32").set_data_from_numpy(array)]


ONE = numpy.ones(1, numpy.float32)


class Stream:
    """A client with a stream whose results are a queue of (result, error)."""

    def __init__(self, server, **options):
        self.client = triton.InferenceServerClient(server.grpc_address)
        self.results = queue.Queue()
        self.client.start_stream(lambda result, error: self.results.put((result, error)), **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def ask(self, model, array=ONE, parameters=None, **options):
        self.client.async_stream_infer(model, make_inputs(array), parameters=parameters or {},
                                       **options)

    def next(self):
        return self.results.get(timeout=PATIENCE)

    def answer(self):
        result, error = self.next()
        assert error is None, str(error)
        return result.get_response()

    def failure(self):
        result, error = self.next()
        assert result is None
        return error.message()


def is_final(response):
    return response.parameters["triton_final_response"].bool_param


def first_value(response):
    return float(numpy.frombuffer(response.raw_output_contents[0], numpy.float32)[0])


def answers_of(server, model, **parameters):
    """Until the end is said: (final, first value) of each."""
    with Stream(server) as stream:
        stream.ask(model, parameters=parameters)
        found = []
        while not found or not found[-1][0]:
            response = stream.answer()
            found.append((is_final(response), first_value(response)))
        return found


# ---- answers -------------------------------------------------------------------------------------

@pytest.mark.parametrize("model", ["many", "many_threaded", "many_batched"])
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_decoupled_all_responses_arrive_in_order(running, model, count):
    if model == "many_batched":
        with Stream(running) as stream:
            stream.ask(model, numpy.ones((1, 1), numpy.float32), {"responses": count})
            finals = [is_final(stream.answer()) for _ in range(count)]
    else:
        finals = [final for final, _ in answers_of(running, model, responses=count)]
    assert finals == [False] * (count - 1) + [True]


def test_decoupled_empty_final_response_only_on_request(running):
    with Stream(running) as stream:
        stream.ask("many_apart", parameters={"responses": 2}, request_id="silent")
        stream.ask("many_apart", parameters={"responses": 2}, request_id="told", model_version="1",
                   enable_empty_final_response=True)
        found = [stream.answer() for _ in range(5)]
        assert stream.results.empty()
    by_id = {name: [item for item in found if item.id == name] for name in ("silent", "told")}
    assert [is_final(item) for item in by_id["silent"]] == [False, False]
    assert [is_final(item) for item in by_id["told"]] == [False, False, True]
    end = by_id["told"][-1]
    assert (end.model_name, end.model_version, len(end.outputs)) == ("many_apart", "1", 0)


def test_decoupled_zero_responses(running):
    with Stream(running) as stream:
        stream.ask("many", parameters={"responses": 0}, enable_empty_final_response=True)
        end = stream.answer()
        assert is_final(end) and len(end.outputs) == 0 and end.model_version == ""
        stream.ask("many", parameters={"responses": 0})
        stream.ask("many", parameters={"responses": 1}, request_id="next")
        assert stream.answer().id == "next"


def test_decoupled_final_response_parameter_is_reserved(running):
    with Stream(running) as stream:
        with pytest.raises(InferenceServerException, match="reserved"):
            stream.ask("many", parameters={"triton_enable_empty_final_response": 1})
        stream.ask("one", enable_empty_final_response=True)
        assert is_final(stream.answer())


def test_decoupled_each_response_is_classified(running):
    wanted = [triton.InferRequestedOutput("OUTPUT0", class_count=1)]
    with Stream(running) as stream:
        stream.ask("many", numpy.array([1, 3, 2], numpy.float32), {"responses": 500},
                   outputs=wanted)
        for _ in range(500):
            assert stream.answer().raw_output_contents[0][4:] == b"3.000000:1"


def test_decoupled_slow_model_does_not_delay_others(running):
    """The answers of a slow decoupled model and those of others share a stream."""
    with Stream(running) as stream:
        stream.ask("many_slow", parameters={"responses": 1000}, request_id="slow")
        assert stream.answer().id == "slow"
        stream.ask("one", request_id="one")
        seen = set()
        while "one" not in seen:
            seen.add(stream.answer().id)


def test_decoupled_error_after_responses_keeps_stream_open(running):
    with Stream(running) as stream:
        stream.ask("many", parameters={"responses": 9, "fail_at": 3}, request_id="bad")
        assert [is_final(stream.answer()) for _ in range(2)] == [False, False]
        assert "was to fail" in stream.failure()
        stream.ask("many", parameters={"responses": 1})
        assert is_final(stream.answer())


def test_decoupled_error_ends_strict_stream(running):
    with Stream(running, headers={"triton_grpc_error": "true"}) as stream:
        stream.ask("many", parameters={"responses": 9, "fail_at": 2})
        stream.answer()
        assert "was to fail" in stream.failure()  # as a message, and then as the stream's end
        result, error = stream.next()
        assert result is None and error.status() == "StatusCode.INTERNAL"


def test_decoupled_asyncio_client(running):
    async def ask():
        async with triton_aio.InferenceServerClient(running.grpc_address) as client:
            async def requests():
                yield {"model_name": "many", "inputs": make_inputs(ONE),
                       "parameters": {"responses": 5}, "enable_empty_final_response": True}
            finals = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                finals.append(is_final(result.get_response()))
            return finals
    assert asyncio.run(ask()) == [False] * 4 + [True]


# ---- who does not read, or leaves ----------------------------------------------------------------

def test_decoupled_slow_reader_bounds_memory(running):
    """1 GiB of answers, whose reader stops: what is held stays small, and all of it comes in the end."""
    count, array = 1024, numpy.ones(256 * 1024, numpy.float32)
    stub = grpc.insecure_channel(running.grpc_address, options=[
        ("grpc.max_receive_message_length", -1)])
    with stub:
        calls = triton.service_pb2_grpc.GRPCInferenceServiceStub(stub)
        request = triton.service_pb2.ModelInferRequest(model_name="many")
        tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[array.size])
        assert tensor.name
        request.raw_input_contents.append(array.tobytes())
        request.parameters["responses"].int64_param = count
        answers = calls.ModelStreamInfer(iter([request]))
        first = next(answers)
        assert not first.error_message
        metrics.wait_until(running.address, lambda now: metrics.others_in_flight(now) >= 1,
                           "the request under way")
        resident = peak_memory_of(running)
        assert resident < 256 * 1024 * 1024 or is_sanitized()  # which keeps what is freed
        assert sum(1 for _ in answers) == count - 1
    assert peak_memory_of(running) < 256 * 1024 * 1024 or is_sanitized()


def test_decoupled_client_disconnect_cancels(running):
    stream = Stream(running)
    stream.ask("many", numpy.ones(65536, numpy.float32), {"responses": 1000000})
    stream.ask("many_slow", parameters={"responses": 1000000})
    stream.answer()
    stream.client.stop_stream(cancel_requests=True)
    stream.client.close()


def test_decoupled_deadline_ends_stream(running):
    with Stream(running, stream_timeout=3) as stream:
        stream.ask("many_slow", parameters={"responses": 1000000})
        stream.answer()
        while True:
            result, error = stream.next()
            if error is not None:
                break
        assert error.status() == "StatusCode.DEADLINE_EXCEEDED"


# ---- where one answer fits -----------------------------------------------------------------------

def test_decoupled_model_infer_is_unimplemented(running):
    with triton.InferenceServerClient(running.grpc_address) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer("many", make_inputs(ONE))
        assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
        assert "decoupled" in caught.value.message()


def test_decoupled_http_infer_is_501(running):
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32",
                                   "data": [1]}]}).encode()
    answer = http1.request(running.address, "POST", "/v2/models/many/infer", body)
    assert answer.status == 501
    assert "decoupled" in json.loads(answer.body)["error"]


def test_decoupled_shared_memory_output_is_refused(start_server, models):
    """Each answer would overwrite the one before it; one that is only the end has nothing to write."""
    server = start_server("--model-repository", models, "--allow-client-shm", "true",
                          grpc=("127.0.0.1:0",))
    region = shared_memory.SharedMemory(create=True, size=64)
    try:
        with Stream(server) as stream:
            stream.client.register_system_shared_memory("region", region.name, 64)
            wanted = triton.InferRequestedOutput("OUTPUT0")
            wanted.set_shared_memory("region", 64)
            for count in (0, 2):
                stream.ask("many", parameters={"responses": count}, outputs=[wanted])
                assert "decoupled" in stream.failure()
            stream.ask("one", outputs=[wanted])
            assert is_final(stream.answer())
    finally:
        region.close()
        region.unlink()


def test_decoupled_policy_is_in_configuration(running):
    with triton.InferenceServerClient(running.grpc_address) as client:
        assert client.get_model_config("many").config.model_transaction_policy.decoupled is True
        assert client.get_model_config("one").config.model_transaction_policy.decoupled is False
    for model, decoupled in (("many", True), ("one", False)):
        answer = http1.request(running.address, "GET", f"/v2/models/{model}/config")
        assert json.loads(answer.body)["model_transaction_policy"] == {"decoupled": decoupled}


# ---- statistics ----------------------------------------------------------------------------------

def response_stats(running, model):
    """By place: counts of what became of the answers there; both protocols say the same."""
    with triton_http.InferenceServerClient(running.address) as client:
        stats, = client.get_inference_statistics(model)["model_stats"]
    with triton.InferenceServerClient(running.grpc_address) as client:
        other, = client.get_inference_statistics(model).model_stats
    told = {}
    for place, parts in stats["response_stats"].items():
        assert list(parts) == ["compute_infer", "compute_output", "success", "fail",
                               "empty_response", "cancel"]
        for key, part in parts.items():
            same = getattr(other.response_stats[place], key)
            assert (same.count, same.ns) == (part["count"], part["ns"])
            assert part["count"] > 0 or part["ns"] == 0
        told[place] = {key: part["count"] for key, part in parts.items() if part["count"]}
    assert list(told) == sorted(told, key=int) and len(other.response_stats) == len(told)
    return told


def answered(n, outcome="success"):
    return {"compute_infer": n, "compute_output": n, outcome: n}


def test_decoupled_responses_are_counted_by_index(start_server, models):
    server = start_server("--model-repository", models, grpc=("127.0.0.1:0",))
    for n in (1, 3, 3):
        answers_of(server, "many", responses=n)
    assert response_stats(server, "many") == {
        "0": answered(3), "1": answered(2), "2": answered(2)}
    with Stream(server) as stream:
        stream.ask("many_apart", parameters={"responses": 1}, enable_empty_final_response=True)
        assert [is_final(stream.answer()) for _ in range(2)] == [False, True]
    assert response_stats(server, "many_apart") == {
        "0": answered(1), "1": {"compute_infer": 1, "empty_response": 1}}
    with Stream(server) as stream:
        stream.ask("many", parameters={"responses": 2, "fail_at": 2})
        stream.answer()
        stream.failure()
    assert response_stats(server, "many")["1"] == {**answered(3), "success": 2, "fail": 1}
    assert response_stats(server, "one") == {}


def test_decoupled_responses_after_cancel_are_counted(start_server, models):
    server = start_server("--model-repository", models, grpc=("127.0.0.1:0",))
    stream = Stream(server)
    stream.ask("many_slow", parameters={"responses": 1000000})
    stream.answer()
    stream.client.stop_stream(cancel_requests=True)
    stream.client.close()
    metrics.wait_at_rest(server.address, server.arenas)
    told = response_stats(server, "many_slow")
    assert told["0"] == answered(1)
    assert sum(one.get("cancel", 0) for one in told.values()) >= 1

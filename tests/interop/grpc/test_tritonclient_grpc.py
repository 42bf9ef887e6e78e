"""The reference's own client over gRPC, blocking: every call of it that the server claims, every
datatype both ways, streams, deadlines, cancelling. What it sends is its own business; nothing here
looks at bytes on the wire."""
import queue
import time

import grpc
import numpy
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from lib import samples

pytestmark = pytest.mark.plain


@pytest.fixture
def client(client_server):
    with triton.InferenceServerClient(client_server.grpc_address) as made:
        yield made


def make_input(name, datatype, array):
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


def ask_identity(client, model, names, array, **options):
    made = make_input(names[0], samples.datatype_of(model), array)
    return client.infer(model, [made], **options).as_numpy(names[1])


# ---- what is there -------------------------------------------------------------------------------

def test_live_and_ready(client):
    assert client.is_server_live() is True
    assert client.is_server_ready() is True


def test_model_ready(client):
    assert client.is_model_ready("id_fp32") is True
    assert client.is_model_ready("id_versions", "2") is True
    for name, version in (("nope", ""), ("id_fp32", "7")):
        assert client.is_model_ready(name, version) is False


def test_server_metadata(client):
    metadata = client.get_server_metadata()
    assert metadata.name == "sluice"
    assert "binary_tensor_data" in metadata.extensions
    assert metadata.version


def test_model_metadata(client):
    metadata = client.get_model_metadata("onnx_add", as_json=True)
    assert metadata["platform"] == "onnxruntime_onnx"
    assert [item["name"] for item in metadata["inputs"]] == ["a", "b"]
    assert metadata["inputs"][0]["shape"] == ["-1", "4"]
    assert list(client.get_model_metadata("id_versions", "2").versions) == ["2"]


def test_model_config(client):
    config = client.get_model_config("onnx_add").config
    assert config.name == "onnx_add" and config.backend == "onnxruntime"
    assert [item.name for item in config.input] == ["a", "b"]
    assert list(config.input[0].dims) == [4]
    assert config.max_batch_size == 64
    assert config.output[0].data_type == 11  # TYPE_FP32


def test_infer_over_unix_socket(client_server):
    address = next(item for item in client_server.grpc_addresses if item.startswith("unix:"))
    with triton.InferenceServerClient(address) as client:
        array = samples.ARRAYS["FP32"]
        samples.assert_same_bits(ask_identity(client, "id_fp32", ("INPUT0", "OUTPUT0"), array),
                                 array)


# ---- infer ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("model, first, last, batched", samples.MODELS,
                         ids=[row[0] for row in samples.MODELS])
def test_infer_datatypes(client, model, first, last, batched):
    array = samples.shaped(samples.ARRAYS[samples.datatype_of(model)], batched)
    samples.assert_same_bits(ask_identity(client, model, (first, last), array), array)


@pytest.mark.parametrize("datatype", samples.NOT_FINITE)
def test_infer_non_finite_values(client, datatype):
    array = samples.NOT_FINITE[datatype]
    got = ask_identity(client, f"id_{datatype.lower()}", ("INPUT0", "OUTPUT0"), array)
    samples.assert_same_bits(got, array)


def test_infer_bytes_of_each_kind(client):
    array = numpy.array([[b"", b"a\0b", b"\xff\xfe"], ["ü".encode(), b"", b"x" * 70000]],
                        numpy.object_)
    result = client.infer("onnx_string", [make_input("x", "BYTES", array)])
    samples.assert_same_bits(result.as_numpy("y"), array)


def test_infer_empty_tensor(client):
    array = numpy.empty([0], numpy.float32)
    samples.assert_same_bits(ask_identity(client, "id_fp32", ("INPUT0", "OUTPUT0"), array), array)


def test_infer_all_options(client):
    array = samples.ARRAYS["FP32"]
    result = client.infer(
        "id_versions", [make_input("INPUT0", "FP32", array)], model_version="2", request_id="all",
        priority=3, timeout=30_000_000, headers={"x-own": "header"}, client_timeout=30,
        parameters={"text": "t", "number": 1.5, "whole": 7, "flag": True})
    assert result.get_response().model_version == "2"
    assert result.get_response().id == "all"
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)


def test_infer_outputs_in_requested_order(client):
    array, count = samples.ARRAYS["FP32"], samples.ARRAYS["INT32"]
    result = client.infer(
        "id_two", [make_input("INPUT1", "INT32", count), make_input("INPUT0", "FP32", array)],
        outputs=[triton.InferRequestedOutput("OUTPUT1"), triton.InferRequestedOutput("OUTPUT0")])
    assert [item.name for item in result.get_response().outputs] == ["OUTPUT1", "OUTPUT0"]
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    samples.assert_same_bits(result.as_numpy("OUTPUT1"), count)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_infer_compression(client, algorithm):
    array = numpy.arange(20000, dtype=numpy.float32)
    got = ask_identity(client, "id_fp32", ("INPUT0", "OUTPUT0"), array,
                       compression_algorithm=algorithm)
    samples.assert_same_bits(got, array)


def test_infer_compressed_answer(start_server, repositories):
    server = start_server("--model-repository", repositories("default"),
                          "--grpc-infer-response-compression-level", "high",
                          grpc=("127.0.0.1:0",))
    with triton.InferenceServerClient(server.grpc_address) as client:
        array = numpy.zeros(200000, dtype=numpy.float32)
        got = ask_identity(client, "id_fp32", ("INPUT0", "OUTPUT0"), array)
        samples.assert_same_bits(got, array)


def test_infer_large_tensor(client):
    array = numpy.arange(16 << 20, dtype=numpy.float32)  # 64 MB each way
    got = ask_identity(client, "id_fp32", ("INPUT0", "OUTPUT0"), array)
    samples.assert_same_bits(got, array)


def test_async_infer_concurrent_requests(client):
    answers = queue.Queue()
    for number in range(200):
        array = numpy.full([100], number, numpy.float32)
        model = "id_slow" if number % 50 == 0 else "id_fp32"
        client.async_infer(model, [make_input("INPUT0", "FP32", array)],
                           lambda result, error: answers.put((result, error)),
                           request_id=str(number))
    seen = set()
    for _ in range(200):
        result, error = answers.get(timeout=60)
        assert error is None
        number = int(result.get_response().id)
        samples.assert_same_bits(result.as_numpy("OUTPUT0"),
                                 numpy.full([100], number, numpy.float32))
        seen.add(number)
    assert len(seen) == 200


# ---- errors --------------------------------------------------------------------------------------

def test_infer_error_message(client):
    array = samples.ARRAYS["FP32"]
    for model, made, status, words in (
            ("nope", make_input("INPUT0", "FP32", array), "NOT_FOUND", "nope"),
            ("id_fp32", make_input("NOPE", "FP32", array), "INVALID_ARGUMENT", "NOPE"),
            ("id_fp32", make_input("INPUT0", "FP64", samples.ARRAYS["FP64"]), "INVALID_ARGUMENT",
             "FP64"),
            ("id_fixed", make_input("INPUT0", "FP32", array), "INVALID_ARGUMENT", r"\[2,2\]"),
            ("id_failing", make_input("INPUT0", "FP32", array), "INTERNAL", "out of ink")):
        with pytest.raises(InferenceServerException, match=words) as caught:
            client.infer(model, [made])
        assert caught.value.status() == f"StatusCode.{status}"


def test_cuda_shared_memory_cannot_be_registered(client):
    assert not client.get_cuda_shared_memory_status().regions
    with pytest.raises(InferenceServerException) as caught:
        client.register_cuda_shared_memory("one", b"x" * 64, 0, 64)
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def test_infer_deadline(client, client_server):
    array = samples.ARRAYS["FP32"]
    with pytest.raises(InferenceServerException) as caught:
        client.infer("id_slowest", [make_input("INPUT0", "FP32", array)], client_timeout=0.05)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"


def test_infer_cancel(client):
    answers = queue.Queue()
    context = client.async_infer("id_slowest",
                                 [make_input("INPUT0", "FP32", samples.ARRAYS["FP32"])],
                                 lambda result, error: answers.put((result, error)))
    time.sleep(0.05)
    context.cancel()
    result, error = answers.get(timeout=30)
    assert result is None and error.status() == "StatusCode.CANCELLED"


# ---- streams -------------------------------------------------------------------------------------

class Stream:
    """ModelStreamInfer through the client's callback."""

    def __init__(self, client, **options):
        self.client = client
        self.answers = queue.Queue()
        client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def ask(self, model, array, **options):
        self.client.async_stream_infer(model, [make_input("INPUT0", "FP32", array)], **options)

    def take(self):
        return self.answers.get(timeout=60)


def test_stream_answers_in_order(client):
    stream = Stream(client)
    for number in range(300):
        model = "id_slow" if number % 60 == 0 else "id_fp32"
        stream.ask(model, numpy.full([10], number, numpy.float32), request_id=str(number))
    for number in range(300):
        result, error = stream.take()
        assert error is None
        assert result.get_response().id == str(number)
        assert result.get_response().parameters["triton_final_response"].bool_param is True
        samples.assert_same_bits(result.as_numpy("OUTPUT0"),
                                 numpy.full([10], number, numpy.float32))
    client.stop_stream()


def test_stream_request_failure_keeps_stream(client):
    stream = Stream(client)
    array = samples.ARRAYS["FP32"]
    stream.ask("id_fp32", array, request_id="1")
    stream.ask("nope", array, request_id="2")
    stream.ask("id_failing", array, request_id="3")
    stream.ask("id_fp32", array, request_id="4")
    result, error = stream.take()
    assert error is None and result.get_response().id == "1"
    _, error = stream.take()
    assert "nope" in error.message()
    _, error = stream.take()
    assert "out of ink" in error.message()
    result, error = stream.take()
    assert error is None and result.get_response().id == "4"
    client.stop_stream()


def test_stream_strict_ends_at_model_failure(client):
    stream = Stream(client, headers={"triton_grpc_error": "true"})
    array = samples.ARRAYS["FP32"]
    stream.ask("nope", array)  # refused before a model had it: that is no failure of one
    _, error = stream.take()
    assert "nope" in error.message()
    stream.ask("id_failing", array)
    errors = [stream.take()[1]]
    if errors[0].status() is None:
        errors.append(stream.take()[1])
    assert errors[-1].status() == "StatusCode.INTERNAL"
    client.stop_stream()


def test_stream_cancel(client):
    stream = Stream(client)
    for _ in range(20):
        stream.ask("id_slowest", samples.ARRAYS["FP32"])
    time.sleep(0.05)
    client.stop_stream(cancel_requests=True)


def test_infer_over_body_limit_is_resource_exhausted(client_server):
    """The limit is one for all protocols; the error names the setting."""
    with triton.InferenceServerClient(client_server.grpc_address) as client:
        array = numpy.zeros((256 << 20) // 4 + 1024, numpy.float32)
        with pytest.raises(InferenceServerException, match="max-body-size") as caught:
            client.infer("id_fp32", [make_input("INPUT0", "FP32", array)])
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


# ---- health and reflection -----------------------------------------------------------------------

def test_health_check_and_watch(client_server):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    with grpc.insecure_channel(client_server.grpc_address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "inference.GRPCInferenceService", "id_fp32"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=60)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="nope"), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


def test_health_watch_over_load_and_drain(start_server, repositories):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    server = start_server("--model-repository", repositories("default"), "--drain-timeout", "10m",
                          grpc=("127.0.0.1:0",))
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=""), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        server.signal()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.RpcError) as caught:  # who watches does not hold a drain
            next(watch)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert server.wait_exit() == 0


def test_connection_that_comes_during_drain_is_served(start_server, repositories):
    """A client that is told at once to go connects again for the same call, without end."""
    server = start_server("--model-repository", repositories("default"), "--drain-timeout", "10m",
                          grpc=("127.0.0.1:0",))
    answers = queue.Queue()
    made = make_input("INPUT0", "FP32", numpy.zeros(1, numpy.float32))
    with triton.InferenceServerClient(server.grpc_address) as busy:
        busy.start_stream(lambda result, error: answers.put((result, error)))
        busy.async_stream_infer("id_fp32", [made])
        assert answers.get(timeout=60)[1] is None
        server.signal()
        server.wait_for(lambda: "draining" in server.log_text(), "the signal's effect")
        with triton.InferenceServerClient(server.grpc_address) as late:
            assert late.infer("id_fp32", [made], client_timeout=60).as_numpy("OUTPUT0").shape == (1,)
            assert late.is_server_live(client_timeout=60)
        busy.stop_stream()
    assert server.wait_exit() == 0


def test_reflection(client_server):
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase)
    with grpc.insecure_channel(client_server.grpc_address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"inference.GRPCInferenceService", "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection"} <= set(database.get_services())
        pool = DescriptorPool(database)
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        assert "ModelInfer" in [method.name for method in service.methods]
        request = pool.FindMessageTypeByName("inference.ModelInferRequest")
        assert request.fields_by_name["raw_input_contents"].number == 7
        assert pool.FindMessageTypeByName("inference.ModelInferRequest.InferInputTensor")

"""The reference's client for asyncio over gRPC: calls, streams that are read while they are written,
and callers who give up."""
import asyncio

import numpy
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as aio
from tritonclient.utils import InferenceServerException

from lib import samples


@pytest.fixture
def run(client_server):
    """run(test) awaits test(client)."""
    def play(test):
        async def with_client():
            async with aio.InferenceServerClient(client_server.grpc_address) as client:
                await test(client)
        asyncio.run(with_client())
    return play


def make_input(name, datatype, array):
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


def test_aio_metadata(run):
    async def test(client):
        assert await client.is_server_live() is True
        assert await client.is_server_ready() is True
        assert await client.is_model_ready("id_versions", "2") is True
        metadata = await client.get_server_metadata()
        assert "binary_tensor_data" in metadata.extensions
        assert list((await client.get_model_metadata("onnx_add")).inputs[0].shape) == [-1, 4]
        assert (await client.get_model_config("onnx_add")).config.name == "onnx_add"
    run(test)


def test_aio_datatypes(run):
    async def test(client):
        for model, first, last, batched in samples.MODELS:
            datatype = samples.datatype_of(model)
            array = samples.shaped(samples.ARRAYS[datatype], batched)
            result = await client.infer(model, [make_input(first, datatype, array)])
            samples.assert_same_bits(result.as_numpy(last), array)
    run(test)


def test_aio_concurrent_requests(run):
    async def test(client):
        arrays = [numpy.full([100], number, numpy.float32) for number in range(300)]
        results = await asyncio.gather(*(
            client.infer("id_slow" if number % 100 == 0 else "id_fp32",
                         [make_input("INPUT0", "FP32", array)], request_id=str(number))
            for number, array in enumerate(arrays)))
        for number, (array, result) in enumerate(zip(arrays, results)):
            assert result.get_response().id == str(number)
            samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    run(test)


def test_aio_cancel(run):
    async def test(client):
        array = samples.ARRAYS["FP32"]
        waiting = asyncio.ensure_future(client.infer("id_slowest", [make_input("INPUT0", "FP32", array)]))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        result = await client.infer("id_fp32", [make_input("INPUT0", "FP32", array)])
        samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    run(test)


def test_aio_deadline_storm(run):
    """10 ms for a model that takes ten seconds: all are cut off, and good calls beside them are answered."""
    async def test(client):
        array = samples.ARRAYS["FP32"]

        async def hopeless():
            try:
                await client.infer("id_slowest", [make_input("INPUT0", "FP32", array)],
                                   client_timeout=0.01)
            except InferenceServerException as error:
                return error.status()
            return "answered"

        async def good():
            result = await client.infer("id_fp32", [make_input("INPUT0", "FP32", array)])
            samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
        for _ in range(20):
            ended = await asyncio.gather(*(hopeless() for _ in range(20)),
                                         *(good() for _ in range(5)))
            assert set(ended[:20]) == {"StatusCode.DEADLINE_EXCEEDED"}
    run(test)


def test_aio_stream(run):
    async def test(client):
        async def requests():
            for number in range(100):
                yield {"model_name": "nope" if number == 50 else "id_fp32",
                       "inputs": [make_input("INPUT0", "FP32",
                                             numpy.full([10], number, numpy.float32))],
                       "request_id": str(number)}
        number = 0
        async for result, error in client.stream_infer(requests()):
            if number == 50:
                assert "nope" in error.message()
            else:
                assert error is None and result.get_response().id == str(number)
                assert result.as_numpy("OUTPUT0")[0] == number
            number += 1
        assert number == 100
    run(test)


def test_aio_error_message(run):
    async def failure(client, model):
        """Status and text. The exception itself would keep the client's connection open."""
        made = make_input("INPUT0", "FP32", samples.ARRAYS["FP32"])
        try:
            await client.infer(model, [made])
        except InferenceServerException as error:
            return error.status(), error.message()
        return "answered", ""

    async def test(client):
        for model, status, words in (("nope", "NOT_FOUND", "nope"),
                                     ("id_fixed", "INVALID_ARGUMENT", "[2,2]"),
                                     ("id_failing", "INTERNAL", "out of ink")):
            got, text = await failure(client, model)
            assert got == f"StatusCode.{status}" and words in text
    run(test)

"""The reference's client for asyncio: the same server, seen through another HTTP library (aiohttp), which
asks for compression on every call and only unpacks it of infer."""
import asyncio

import numpy
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException

from lib import samples


@pytest.fixture
def run(client_server):
    """run(test) awaits test(client)."""
    def play(test):
        async def with_client():
            async with aio.InferenceServerClient(client_server.address) as client:
                await test(client)
        asyncio.run(with_client())
    return play


def make_input(name, datatype, array, binary=True):
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(
        array, binary_data=binary)


def test_aio_metadata(run):
    async def test(client):
        assert await client.is_server_live() is True
        assert await client.is_server_ready() is True
        assert await client.is_model_ready("id_fp32") is True
        assert await client.is_model_ready("id_versions", "2") is True
        assert await client.is_model_ready("nope") is False
        metadata = await client.get_server_metadata()
        assert "binary_tensor_data" in metadata["extensions"]
        assert (await client.get_model_metadata("onnx_add"))["inputs"][0]["shape"] == [-1, 4]
        assert (await client.get_model_metadata("id_versions", "2"))["versions"] == ["2"]
    run(test)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_aio_datatypes(run, binary_in, binary_out):
    async def test(client):
        for model, first, last, batched in samples.MODELS:
            datatype = samples.datatype_of(model)
            if datatype == "BF16" and not binary_in:
                continue  # the client itself refuses that
            array = samples.shaped(samples.ARRAYS[datatype], batched)
            outputs = None if binary_out is None else [
                triton.InferRequestedOutput(last, binary_out)]
            result = await client.infer(model, [make_input(first, datatype, array, binary_in)],
                                        outputs=outputs)
            samples.assert_same_bits(result.as_numpy(last), array)
    run(test)


@pytest.mark.parametrize("up", [None, "gzip", "deflate"])
@pytest.mark.parametrize("down", [None, "gzip", "deflate"])
def test_aio_compression(run, up, down):
    async def test(client):
        array = numpy.arange(20000, dtype=numpy.float32)
        for binary in (True, False):
            result = await client.infer(
                "id_fp32", [make_input("INPUT0", "FP32", array, binary)],
                outputs=[triton.InferRequestedOutput("OUTPUT0", binary)],
                request_compression_algorithm=up, response_compression_algorithm=down)
            samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    run(test)


def test_aio_onnx_strings(run):
    async def test(client):
        array = numpy.array([[b"", b"a\0b", b"\xff"]], numpy.object_)
        result = await client.infer("onnx_string", [make_input("x", "BYTES", array)])
        samples.assert_same_bits(result.as_numpy("y"), array)
    run(test)


def test_aio_concurrent_requests(run):
    async def test(client):
        async def one(number):
            array = numpy.full([50], number, numpy.float32)
            model = "id_slow" if number % 50 == 0 else "id_fp32"
            result = await client.infer(model, [make_input("INPUT0", "FP32", array)],
                                        request_id=str(number))
            assert result.get_response()["id"] == str(number)
            samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
        await asyncio.gather(*(one(number) for number in range(200)))
    run(test)


def test_aio_client_timeout_cancels(run):
    """The connection is dropped while the model works; the fixture sees that nothing is held."""
    async def test(client):
        array = samples.ARRAYS["FP32"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                client.infer("id_slowest", [make_input("INPUT0", "FP32", array)]), 0.05)
        result = await client.infer("id_fp32", [make_input("INPUT0", "FP32", array)])
        samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    run(test)


def test_aio_error_message(run):
    async def test(client):
        array = samples.ARRAYS["FP32"]
        for model, made, status, words in (
                ("nope", make_input("INPUT0", "FP32", array), "404", "nope"),
                ("id_fp32", make_input("NOPE", "FP32", array), "400", "NOPE"),
                ("id_failing", make_input("INPUT0", "FP32", array), "500", "out of ink")):
            with pytest.raises(InferenceServerException, match=words) as caught:
                await client.infer(model, [made])
            assert caught.value.status() == status
        with pytest.raises(InferenceServerException, match="nope"):
            await client.get_model_metadata("nope")
    run(test)

"""The reference's asyncio client over gRPC, once more for what its connection is made of: in plain, over
TLS, and over TLS where the server wants to know the client. On each: answers of every size, streams,
compression both ways, deadlines, callers who give up."""
import asyncio

import grpc
import numpy
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as aio
from tritonclient.utils import InferenceServerException

from lib import metrics, samples
from lib.certificates import Identity

WAYS = ("plain", "tls", "mutual")


class Pki:
    def __init__(self, folder):
        root, client_root = (Identity(name, authority=True) for name in ("root", "client root"))
        self.ca, self.client_ca = root.write_cert(folder / "ca"), client_root.write_cert(folder / "client-ca")
        self.server = Identity("server", root).write(folder / "server")
        self.client = Identity("client", client_root).write(folder / "client")
        self.stranger = Identity("stranger", Identity("other root", authority=True)).write(folder / "stranger")


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


class Way:
    """A server, and how its clients connect."""

    def __init__(self, way, start_server, repository, pki):
        flags = ["--model-repository", repository, "--grpc-infer-response-compression-level", "low"]
        if way != "plain":
            flags += ["--grpc-tls-cert", pki.server[0], "--grpc-tls-key", pki.server[1]]
        if way == "mutual":
            flags += ["--grpc-tls-client-ca", pki.client_ca]
        self.pki, self.way = pki, way
        self.server = start_server(*flags, grpc=("127.0.0.1:0",))
        self.address = self.server.grpc_address.removeprefix("grpcs://")

    def client(self, ca=None, identity=None):
        if self.way == "plain":
            return aio.InferenceServerClient(self.address)
        if identity is None and self.way == "mutual":
            identity = self.pki.client
        cert, key = identity or (None, None)
        return aio.InferenceServerClient(self.address, ssl=True, root_certificates=ca or self.pki.ca,
                                         certificate_chain=cert, private_key=key)

    def play(self, test):
        async def with_client():
            async with self.client() as client:
                await test(client)
        asyncio.run(with_client())


@pytest.fixture(params=WAYS)
def way(request, start_server, repositories, pki):
    made = Way(request.param, start_server, repositories("default"), pki)
    yield made
    made.server.wait_at_rest()


def make_input(array, name="INPUT0", datatype="FP32"):
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


async def status_of(call):
    """Of a call that fails. The exception itself would keep the client's connection open."""
    try:
        await call
    except InferenceServerException as error:
        return error.status()
    return "answered"


async def check_good(client):
    array = samples.ARRAYS["FP32"]
    result = await client.infer("id_fp32", [make_input(array)])
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)


def test_aio_infer_each_size(way):
    async def test(client):
        assert await client.is_server_live() and await client.is_model_ready("id_fp32")
        for n in (0, 1, 1000, 100_000, 4_000_000):
            array = numpy.random.default_rng(n).random(n, numpy.float32)
            result = await client.infer("id_fp32", [make_input(array)])
            samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    way.play(test)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_aio_compression_both_ways(way, algorithm):
    """4 MB of nothing each way, of which hardly a byte travels."""
    async def test(client):
        for array in (numpy.zeros(1_000_000, numpy.float32), numpy.arange(1000, dtype=numpy.float32)):
            result = await client.infer("id_fp32", [make_input(array)], compression_algorithm=algorithm)
            samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    way.play(test)
    numbers = metrics.read(way.server.address)  # that page is sent, too: a quarter of a megabyte
    assert numbers["sluice_received_bytes_total"] < 1_000_000 and numbers["sluice_sent_bytes_total"] < 1_000_000


def test_aio_stream_in_order(way):
    async def test(client):
        async def requests():
            for number in range(200):
                yield {"model_name": "nope" if number == 50 else "id_fp32", "request_id": str(number),
                       "inputs": [make_input(numpy.full([number + 1], number, numpy.float32))]}
        number = 0
        async for result, error in client.stream_infer(requests()):
            assert (error is not None) == (number == 50)
            assert number == 50 or result.get_response().id == str(number)
            number += 1
        assert number == 200
    way.play(test)


def test_aio_deadline_and_cancel(way):
    async def test(client):
        slow = [make_input(samples.ARRAYS["FP32"])]
        for _ in range(5):
            ended = await asyncio.gather(*(status_of(client.infer("id_slowest", slow, client_timeout=0.01))
                                           for _ in range(20)), check_good(client))
            assert set(ended[:-1]) == {"StatusCode.DEADLINE_EXCEEDED"}
        waiting = [asyncio.ensure_future(client.infer("id_slowest", slow)) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in ended} == {asyncio.CancelledError}
        await check_good(client)
    way.play(test)


def test_aio_stream_cancel(way):
    async def test(client):
        async def requests():
            while True:
                yield {"model_name": "id_slow", "inputs": [make_input(samples.ARRAYS["FP32"])]}
                await asyncio.sleep(0.001)
        answers = client.stream_infer(requests())
        result, error = await anext(answers)
        assert error is None and result is not None
        answers.cancel()
        with pytest.raises((asyncio.CancelledError, InferenceServerException, grpc.RpcError)):
            while True:
                await anext(answers)
        await check_good(client)
    way.play(test)


def test_aio_untrusted_server_is_refused(start_server, repositories, pki):
    way = Way("tls", start_server, repositories("default"), pki)

    async def test():
        async with way.client(ca=pki.client_ca) as client:
            assert await status_of(client.is_server_live(client_timeout=5)) in (
                "StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
    asyncio.run(test())
    way.server.wait_at_rest()


def test_aio_unknown_client_certificate_is_refused(start_server, repositories, pki):
    way = Way("mutual", start_server, repositories("default"), pki)

    async def test():
        async with way.client(identity=pki.stranger) as client:
            assert await status_of(client.is_server_live(client_timeout=5)) in (
                "StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
        async with way.client() as client:
            await check_good(client)
    asyncio.run(test())
    way.server.wait_at_rest()

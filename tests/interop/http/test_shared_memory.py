"""Shared memory by the reference's own clients, over HTTP and gRPC: regions come and go, tensors are read
from them and written to them; and everything that can be wrong with a region, on a server that answers
a good request afterwards and holds nothing."""
import contextlib
import os
import threading
import uuid
from http.client import HTTPConnection

import numpy
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from lib import metrics
from lib.server import Server

pytestmark = pytest.mark.tsan

BIG = (1 << 63) - 1


@pytest.fixture(scope="module")
def prefix():
    return f"sluice-test-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory, repositories, prefix):
    with Server(tmp_path_factory.mktemp("shared"),
                ["--model-repository", repositories("default"), "--allow-client-shm", "true",
                 "--client-shm-prefix", prefix], grpc=("127.0.0.1:0",)) as made:
        yield made


@pytest.fixture
def live(shared):
    """Afterwards a good request is answered, and no region, descriptor or mapping is left."""
    assert shared.process.poll() is None, shared.log_text()
    yield shared
    assert shared.process.poll() is None, shared.log_text()
    with http.InferenceServerClient(shared.address) as client:
        made = http.InferInput("INPUT0", [1], "FP32").set_data_from_numpy(numpy.ones(1, numpy.float32))
        assert client.infer("id_fp32", [made]).as_numpy("OUTPUT0")[0] == 1
        client.unregister_system_shared_memory()
    shared.wait_at_rest()
    assert metrics.read(shared.address)["sluice_shared_memory_regions"] == 0
    with open(f"/proc/{shared.pid}/maps", encoding="utf-8") as maps:
        assert "sluice-test-" not in maps.read()
    links = [f"/proc/{shared.pid}/fd/{name}" for name in os.listdir(f"/proc/{shared.pid}/fd")]
    assert not [link for link in links if os.path.islink(link) and "sluice-test-" in os.readlink(link)]
    shared.check_log()


@pytest.fixture(params=["http", "grpc"])
def kind(request):
    return request.param


@pytest.fixture
def module(kind):
    return {"http": http, "grpc": grpc}[kind]


@pytest.fixture
def client(live, kind, module):
    with module.InferenceServerClient(live.address if kind == "http" else live.grpc_address) as made:
        yield made


@pytest.fixture
def make(prefix):
    """make(bytes, name): an object of the test's own. Returns: (handle, key)."""
    made = []

    def do(n_bytes, name="a"):
        key = f"/{prefix}-{name}"
        made.append(shm.create_shared_memory_region(name, key, n_bytes))
        return made[-1], key
    yield do
    for handle in made:
        with contextlib.suppress(shm.SharedMemoryException, FileNotFoundError):
            shm.destroy_shared_memory_region(handle)


def status_is(kind, caught, code, name):
    assert caught.value.status() == {"http": str(code), "grpc": f"StatusCode.{name}"}[kind]


def regions(client, kind, name=""):
    got = client.get_system_shared_memory_status(name)
    if kind == "http":
        return [(item["name"], item["key"], item["offset"], item["byte_size"]) for item in got]
    return sorted((item.name, item.key, item.offset, item.byte_size) for item in got.regions.values())


def read_from(module, array, datatype, region, n_bytes=None, offset=0, name="INPUT0"):
    made = module.InferInput(name, list(array.shape), datatype)
    made.set_shared_memory(region, array.nbytes if n_bytes is None else n_bytes, offset)
    return made


def write_to(module, region, n_bytes, offset=0, name="OUTPUT0"):
    made = module.InferRequestedOutput(name)
    made.set_shared_memory(region, n_bytes, offset)
    return made


# ---- regions -------------------------------------------------------------------------------------

def test_region_register_status_unregister(client, kind, make):
    _, key = make(64)
    make(64, "b")
    assert regions(client, kind) == []
    client.register_system_shared_memory("one", key, 64)
    client.register_system_shared_memory("two ü", key.strip("/"), 16, offset=8)
    assert regions(client, kind) == [("one", key, 0, 64), ("two ü", key.strip("/"), 8, 16)]
    assert regions(client, kind, "two ü") == [("two ü", key.strip("/"), 8, 16)]
    with pytest.raises(InferenceServerException) as caught:
        client.register_system_shared_memory("one", key, 64)
    status_is(kind, caught, 400, "ALREADY_EXISTS")
    client.unregister_system_shared_memory("one")
    client.unregister_system_shared_memory("one")  # it is no error
    assert len(regions(client, kind)) == 1
    with pytest.raises(InferenceServerException, match="no such") as caught:
        regions(client, kind, "one")
    status_is(kind, caught, 404, "NOT_FOUND")
    client.unregister_system_shared_memory()
    assert regions(client, kind) == []


@pytest.mark.parametrize("suffix, n_bytes, offset, http_status, grpc_status", [
    ("absent", 64, 0, 400, "INVALID_ARGUMENT"),
    ("a", 65, 0, 400, "INVALID_ARGUMENT"),
    ("a", 64, 1, 400, "INVALID_ARGUMENT"),
    ("a", 1, 64, 400, "INVALID_ARGUMENT"),
    ("a", 0, 0, 400, "INVALID_ARGUMENT"),
    ("a", BIG, 0, 400, "INVALID_ARGUMENT"),
    ("a", BIG, BIG, 400, "INVALID_ARGUMENT"),
    ("a", 1, BIG, 400, "INVALID_ARGUMENT"),
    ("a/../a", 64, 0, 400, "INVALID_ARGUMENT"),
])
def test_region_invalid_range_is_refused(client, kind, make, prefix, suffix, n_bytes, offset, http_status,
                                  grpc_status):
    make(64)
    with pytest.raises(InferenceServerException) as caught:
        client.register_system_shared_memory("one", f"/{prefix}-{suffix}", n_bytes, offset=offset)
    status_is(kind, caught, http_status, grpc_status)
    assert prefix not in str(caught.value) and "one" not in str(caught.value).split()
    assert regions(client, kind) == []


def test_region_offset_overflow_is_refused(client, kind, make):
    """All 64 bits, which only protobuf can say."""
    if kind == "grpc":
        _, key = make(64)
        for n_bytes, offset in (((1 << 64) - 1, 1), (1, (1 << 64) - 1), ((1 << 64) - 1, (1 << 64) - 1)):
            with pytest.raises(InferenceServerException, match="exceed the size"):
                client.register_system_shared_memory("one", key, n_bytes, offset=offset)


@pytest.mark.parametrize("key", ["", "/", "///", "/another", "another",
                                 "/triton_python_backend_shm_region_1", "x" * 300, "/..", "a\0b"])
def test_region_invalid_key_is_refused(client, kind, key):
    with pytest.raises(InferenceServerException, match="key") as caught:
        client.register_system_shared_memory("one", key, 64)
    status_is(kind, caught, 400, "INVALID_ARGUMENT")
    assert "another" not in str(caught.value)


def test_shared_memory_is_off_by_default(start_server, repositories, make, module, kind):
    started = start_server("--model-repository", repositories("default"), grpc=("127.0.0.1:0",))
    _, key = make(64)
    with module.InferenceServerClient(
            started.address if kind == "http" else started.grpc_address) as client:
        assert regions(client, kind) == []
        for call in (lambda: client.register_system_shared_memory("one", key, 64),
                     client.unregister_system_shared_memory):
            with pytest.raises(InferenceServerException, match="--allow-client-shm") as caught:
                call()
            status_is(kind, caught, 501, "UNIMPLEMENTED")
        array = numpy.ones(1, numpy.float32)
        with pytest.raises(InferenceServerException, match="no such") as caught:
            client.infer("id_fp32", [read_from(module, array, "FP32", "one")])
        status_is(kind, caught, 404, "NOT_FOUND")


def test_cuda_shared_memory_has_no_regions(client, kind):
    """Clients that share memory of one kind unregister that of the other before they begin."""
    status = client.get_cuda_shared_memory_status()
    assert (status if kind == "http" else list(status.regions)) == []
    client.unregister_cuda_shared_memory()
    client.unregister_cuda_shared_memory("one")
    with pytest.raises(InferenceServerException, match="no such CUDA shared memory region") as caught:
        client.get_cuda_shared_memory_status("one")
    status_is(kind, caught, 404, "NOT_FOUND")
    with pytest.raises(InferenceServerException, match="CUDA shared memory is not supported") as caught:
        client.register_cuda_shared_memory("one", b"x" * 64, 0, 64)
    status_is(kind, caught, 501, "UNIMPLEMENTED")


def test_region_without_name_is_400(live, make):
    """There is a route without one, for the others."""
    _, key = make(64)
    body = '{"key":"%s","byte_size":64}' % key
    for path in ("/v2/systemsharedmemory/register", "/v2/systemsharedmemory/region//register"):
        connection = HTTPConnection(live.address)
        connection.request("POST", path, body)
        answer = connection.getresponse()
        assert answer.status == 400 and b"expected a name" in answer.read()
        connection.close()


# ---- tensors -------------------------------------------------------------------------------------

def test_infer_inputs_and_outputs_in_regions(client, kind, module, make):
    """Two inputs at offsets of one region, one of them misaligned; outputs in another."""
    floats, whole = numpy.arange(5, dtype=numpy.float32), numpy.array([7, -8], numpy.int32)
    handle, key = make(64)
    shm.set_shared_memory_region(handle, [floats], offset=8 + 3)
    shm.set_shared_memory_region(handle, [whole], offset=8 + 40)
    result, out_key = make(4096, "b")
    client.register_system_shared_memory("in", key, 56, offset=8)
    client.register_system_shared_memory("out", out_key, 4096)
    got = client.infer("id_two", [read_from(module, floats, "FP32", "in", offset=3),
                                  read_from(module, whole, "INT32", "in", offset=40, name="INPUT1")],
                       outputs=[write_to(module, "out", 100, 4), write_to(module, "out", 8, 2048, "OUTPUT1")])
    assert numpy.array_equal(shm.get_contents_as_numpy(result, numpy.float32, [5], offset=4), floats)
    assert numpy.array_equal(shm.get_contents_as_numpy(result, numpy.int32, [2], offset=2048), whole)
    said = got.get_output("OUTPUT0")
    if kind == "http":
        assert said == {"name": "OUTPUT0", "datatype": "FP32", "shape": [5]}
    else:
        assert list(said.shape) == [5] and list(got.get_response().raw_output_contents) == [b"", b""]


def test_infer_regions_mixed_with_plain_tensors(client, kind, module, make):
    """One input from a region, one in the request; one output there, one in the answer; text, too."""
    texts = numpy.array([b"one", b"", b"\xff"], dtype=object)
    serial = serialize_byte_tensor(texts)
    handle, key = make(64)
    shm.set_shared_memory_region(handle, [serialize_byte_tensor(texts)])
    client.register_system_shared_memory("r", key, 64)
    first = read_from(module, texts, "BYTES", "r", len(serial.item()), name="INPUT2")
    numbers = numpy.array([1, 2], numpy.float64)
    small = numpy.array([3], numpy.uint8)
    got = client.infer("id_mixed", [
        module.InferInput("INPUT0", [1], "UINT8").set_data_from_numpy(small),
        module.InferInput("INPUT1", [2], "FP64").set_data_from_numpy(numbers), first],
        outputs=[module.InferRequestedOutput("OUTPUT2"), write_to(module, "r", 16, 40, "OUTPUT1"),
                 module.InferRequestedOutput("OUTPUT0")])
    assert list(got.as_numpy("OUTPUT2")) == list(texts)
    assert list(got.as_numpy("OUTPUT0")) == [3]
    assert list(shm.get_contents_as_numpy(handle, numpy.float64, [2], offset=40)) == [1, 2]


@pytest.mark.parametrize("n_bytes, offset, http_status, grpc_status, words", [
    (4, 64, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    (4, 61, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    (65, 0, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    (BIG, 1, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    (4, BIG, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    (BIG, BIG, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    (8, 0, 400, "INVALID_ARGUMENT", "Expected 4, got"),
    (0, 4, 400, "INVALID_ARGUMENT", "Expected 4, got"),
])
def test_infer_invalid_region_input_is_refused(client, kind, module, make, n_bytes, offset, http_status,
                                 grpc_status, words):
    _, key = make(128)
    client.register_system_shared_memory("r", key, 64)
    array = numpy.ones(1, numpy.float32)
    with pytest.raises(InferenceServerException, match=words) as caught:
        client.infer("id_fp32", [read_from(module, array, "FP32", "r", n_bytes, offset)])
    status_is(kind, caught, http_status, grpc_status)


def test_infer_invalid_bytes_frames_are_refused(client, kind, module, make):
    handle, key = make(64)
    shm.set_shared_memory_region(handle, [numpy.array([60, 1, 2, 3], numpy.uint32)])
    client.register_system_shared_memory("r", key, 64)
    for elements, n_bytes in ((1, 16), (1, 3), (2, 64)):
        made = read_from(module, numpy.zeros(elements, numpy.int8), "BYTES", "r", n_bytes)
        with pytest.raises(InferenceServerException) as caught:
            client.infer("id_bytes", [made])
        status_is(kind, caught, 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("region, n_bytes, offset, http_status, grpc_status, words", [
    ("none", 8, 0, 404, "NOT_FOUND", "no such"),
    ("r", 8, 60, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    ("r", BIG, BIG, 400, "INVALID_ARGUMENT", "exceed the size of the region"),
    ("r", 7, 0, 400, "INVALID_ARGUMENT", "more than its shared_memory_byte_size"),
])
def test_infer_invalid_region_output_is_refused(client, kind, module, make, region, n_bytes, offset, http_status,
                                  grpc_status, words):
    handle, key = make(64)
    client.register_system_shared_memory("r", key, 64)
    made = module.InferInput("INPUT0", [2], "FP32").set_data_from_numpy(numpy.ones(2, numpy.float32))
    with pytest.raises(InferenceServerException, match=words) as caught:
        client.infer("id_fp32", [made], outputs=[write_to(module, region, n_bytes, offset)])
    status_is(kind, caught, http_status, grpc_status)


# ---- memory that changes -------------------------------------------------------------------------

def truncate(key, n_bytes):
    os.truncate("/dev/shm/" + key.strip("/"), n_bytes)


def test_infer_truncated_object_is_refused(client, kind, module, make):
    """After it was registered: an error, for what is read and for what is written; and it does not grow."""
    _, key = make(8192)
    client.register_system_shared_memory("r", key, 8192)
    truncate(key, 100)
    array = numpy.zeros(2048, numpy.float32)
    with pytest.raises(InferenceServerException, match="shorter than it was") as caught:
        client.infer("id_fp32", [read_from(module, array, "FP32", "r")])
    status_is(kind, caught, 400, "INVALID_ARGUMENT")
    made = module.InferInput("INPUT0", [2], "FP32").set_data_from_numpy(numpy.ones(2, numpy.float32))
    with pytest.raises(InferenceServerException, match="cannot be written") as caught:
        client.infer("id_fp32", [made], outputs=[write_to(module, "r", 8, 4096)])
    status_is(kind, caught, 400, "INVALID_ARGUMENT")
    assert os.stat("/dev/shm/" + key.strip("/")).st_size == 100
    got = client.infer("id_fp32", [read_from(module, numpy.zeros(25, numpy.float32), "FP32", "r")])
    assert got.as_numpy("OUTPUT0").shape == (25,)


def test_infer_region_changing_while_read(client, kind, module, make):
    """A client that rewrites lengths and cuts the object all the time gets answers or errors."""
    handle, key = make(1 << 16)
    texts = numpy.array([b"x" * 28] * 512, dtype=object)
    shm.set_shared_memory_region(handle, [serialize_byte_tensor(texts)])
    client.register_system_shared_memory("r", key, 1 << 16)
    ended = threading.Event()

    def disturb():
        with open("/dev/shm/" + key.strip("/"), "r+b") as file:
            while not ended.is_set():
                os.pwrite(file.fileno(), b"\xff\xff\xff\x7f", 32 * 256)
                os.pwrite(file.fileno(), b"\x1c\0\0\0", 32 * 256)
                os.ftruncate(file.fileno(), 8192 - 100)
                os.ftruncate(file.fileno(), 1 << 16)
                ended.wait(0.0005)
    thread = threading.Thread(target=disturb)
    thread.start()
    outcomes = set()
    try:
        for _ in range(300):
            try:
                client.infer("id_bytes", [read_from(module, texts, "BYTES", "r", 512 * 32)],
                             outputs=[write_to(module, "r", 1 << 15, 1 << 15)])
                outcomes.add("answered")
            except InferenceServerException as error:
                assert error.status() in ("400", "StatusCode.INVALID_ARGUMENT"), error
                outcomes.add("refused")
    finally:
        ended.set()
        thread.join()
    assert outcomes  # which of them is chance; that the server is there is the fixture's to see


def test_unregister_during_request(live, client, kind, module, make):
    """The request that has begun still writes there; then the object is let go."""
    handle, key = make(64)
    made = module.InferInput("INPUT0", [1], "FP32").set_data_from_numpy(
        numpy.array([42], numpy.float32))
    answers = []

    def ask():
        with module.InferenceServerClient(
                live.address if kind == "http" else live.grpc_address) as other:
            answers.append(other.infer("id_slow", [made], outputs=[write_to(module, "r", 4)]))

    def unregistered_while_it_runs():
        """False: the request had ended before, on a busy machine."""
        client.register_system_shared_memory("r", key, 64)
        thread = threading.Thread(target=ask)
        thread.start()
        metrics.wait_until(live.address, lambda numbers: numbers["sluice_running_requests"] == 1 or not thread.is_alive(),
                           "it runs")
        client.unregister_system_shared_memory("r")
        assert regions(client, kind) == []
        numbers = metrics.read(live.address)
        thread.join()
        if numbers["sluice_running_requests"] == 0:
            return False
        assert numbers["sluice_shared_memory_regions"] == 1
        return True
    assert any(unregistered_while_it_runs() for _ in range(20))
    assert answers and shm.get_contents_as_numpy(handle, numpy.float32, [1])[0] == 42
    metrics.wait_until(live.address, lambda numbers: numbers["sluice_shared_memory_regions"] == 0, "the object is let go")


def test_infer_region_inputs_count_as_body_memory(start_server, repositories, make, module, kind):
    """A few bytes that name many: they have no more memory than bodies that are sent."""
    started = start_server("--model-repository", repositories("default"), "--allow-client-shm", "true",
                           "--body-memory", "1MiB", "--request-memory", "2MiB", grpc=("127.0.0.1:0",))
    address = started.address if kind == "http" else started.grpc_address
    _, key = make(4 << 20)
    array = numpy.zeros(150000, numpy.float32)

    def ask(client, n_bytes, model="id_fp32"):
        return client.infer(model, [read_from(module, array, "FP32", "r", n_bytes)],
                            outputs=[write_to(module, "r", 600000)])

    def refused_beside_another():
        """Whether one is refused while another holds the memory; not, if that one ended too early."""
        thread = threading.Thread(target=ask, args=(other, 600000, "id_slow"))
        thread.start()
        metrics.wait_until(started.address, lambda numbers: numbers["sluice_running_requests"] == 1 or not thread.is_alive(),
                           "it runs")
        held = metrics.read(started.address)["sluice_body_bytes_in_flight"]
        try:
            ask(client, 600000)
        except InferenceServerException as error:
            assert "--body-memory" in error.message() and held >= 600000
            return True
        else:
            assert metrics.read(started.address)["sluice_running_requests"] == 0
            return False  # it had ended
        finally:
            thread.join()
    with module.InferenceServerClient(address) as client, module.InferenceServerClient(address) as other:
        client.register_system_shared_memory("r", key, 4 << 20)
        for n_bytes in ((1 << 20) + 1, 4 << 20):
            with pytest.raises(InferenceServerException, match="--body-memory") as caught:
                ask(client, n_bytes)
            status_is(kind, caught, 503, "RESOURCE_EXHAUSTED")
        assert any(refused_beside_another() for _ in range(10))
        for _ in range(10):
            metrics.wait_until(started.address, lambda numbers: numbers["sluice_body_bytes_in_flight"] == 0,
                               "given back")
            ask(client, 600000)
    started.wait_at_rest()


def test_shared_memory_extension_is_listed(live):
    with http.InferenceServerClient(live.address) as client:
        assert "system_shared_memory" in client.get_server_metadata()["extensions"]

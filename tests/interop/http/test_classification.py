"""Classification by the reference's own clients: class_count= over HTTP, gRPC and asyncio, with the labels
of config.pbtxt, and what is wrong with a file of labels."""
import asyncio

import numpy
import pytest
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

from lib import samples, server
from lib.repository import DATATYPES, Identity
from lib.server import Server

RANKED = [name for name in DATATYPES if name not in ("BOOL", "FP16", "BF16", "BYTES")]
LABELS = "cat\ndog\n\nbïrd\r\n"


def write(folder, identity, label_filename=None, labels=None):
    identity.write(str(folder))
    place = folder / identity.name / "config.pbtxt"
    if label_filename:
        place.write_text(place.read_text().replace(
            'name: "OUTPUT0"', f'name: "OUTPUT0" label_filename: "{label_filename}"'))
    if labels is not None:
        (folder / identity.name / "labels.txt").write_bytes(
            labels if isinstance(labels, bytes) else labels.encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("classes")
    write(made, Identity("labelled", [("FP32", [-1])], max_batch_size=8), "labels.txt", LABELS)
    write(made, Identity("square", [("INT64", [2, 3])], max_batch_size=8))
    for datatype in DATATYPES:
        write(made, Identity(f"id_{datatype.lower()}", [(datatype, [-1])]))
    write(made, Identity("failing", [("FP32", [-1])], parameters={"fail": "out of ink"}))
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory, folder):
    with Server(tmp_path_factory.mktemp("server"), ["--model-repository", str(folder)],
                grpc=("127.0.0.1:0",)) as made:
        yield made


@pytest.fixture
def live(shared):
    assert shared.process.poll() is None, shared.log_text()
    yield shared
    shared.wait_at_rest()
    shared.check_log()


def form(kind, array, datatype, count, **options):
    """An input and an output for any of the clients."""
    module = http if kind.startswith("http") else grpc
    made = module.InferInput("INPUT0", list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return [made], [module.InferRequestedOutput("OUTPUT0", class_count=count, **options)]


def ask(asked, kind, model, array, datatype, count, **options):
    """What one of the four clients makes of it."""
    inputs, outputs = form(kind, array, datatype, count, **options)
    if kind in ("http", "grpc"):
        address = asked.address if kind == "http" else asked.grpc_address
        with {"http": http, "grpc": grpc}[kind].InferenceServerClient(address) as client:
            return client.infer(model, inputs, outputs=outputs).as_numpy("OUTPUT0")

    async def play():
        module, address = {"http-aio": (http_aio, asked.address),
                           "grpc-aio": (grpc_aio, asked.grpc_address)}[kind]
        async with module.InferenceServerClient(address) as client:
            return (await client.infer(model, inputs, outputs=outputs)).as_numpy("OUTPUT0")
    return asyncio.run(play())


KINDS = ["http", "http-aio", "grpc", "grpc-aio"]


def texts(array):
    return [item.decode() if isinstance(item, bytes) else item for item in array.ravel()]


@pytest.mark.parametrize("kind", KINDS)
def test_classification_top_k_with_labels(live, kind):
    """A batch of two; the third line is empty and there are only four."""
    array = numpy.array([[0.25, 1, 3, 2, 9], [1, 1, -2, 1, -3]], numpy.float32)
    got = ask(live, kind, "labelled", array, "FP32", 4)
    assert got.shape == (2, 4)
    assert texts(got) == ["9.000000:4", "3.000000:2", "2.000000:3:bïrd", "1.000000:1:dog",
                          "1.000000:0:cat", "1.000000:1:dog", "1.000000:3:bïrd", "-2.000000:2"]


@pytest.mark.parametrize("kind", ["http", "http-aio"])
def test_classification_json_output(live, kind):
    array = numpy.array([[1, 2]], numpy.float32)
    got = ask(live, kind, "labelled", array, "FP32", 1, binary_data=False)
    assert got.shape == (1, 1) and texts(got) == ["2.000000:1:dog"]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_classification_element_is_flattened(live, kind):
    """[2,3] of INT64, flattened; the numbers are no doubles."""
    array = numpy.array([[[1, 2, 3], [1 << 53, (1 << 53) + 1, -9]]], numpy.int64)
    assert texts(ask(live, kind, "square", array, "INT64", 3)) == [
        "9007199254740993:4", "9007199254740992:3", "3:2"]


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize("datatype", RANKED)
def test_classification_each_datatype_is_ranked(live, kind, datatype):
    array = numpy.array([1, 3, 2], samples.ARRAYS[datatype].dtype)
    point = ".000000" if datatype.startswith("FP") else ""
    assert texts(ask(live, kind, f"id_{datatype.lower()}", array, datatype, 2)) == [
        f"3{point}:1", f"2{point}:2"]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_classification_non_finite_values_are_ranked(live, kind):
    array = numpy.array([numpy.nan, 1, -numpy.inf, numpy.inf, -numpy.nan], numpy.float64)
    assert texts(ask(live, kind, "id_fp64", array, "FP64", 9)) == [
        "inf:3", "1.000000:1", "-inf:2", "nan:0", "nan:4"]
    large = numpy.array([-1.5, 1e300], numpy.float64)
    best = texts(ask(live, kind, "id_fp64", large, "FP64", 1))[0]
    assert best == f"{1e300:f}:1"


@pytest.mark.parametrize("kind", ["http", "http-aio", "grpc"])
@pytest.mark.parametrize("datatype", ["BOOL", "FP16", "BF16", "BYTES"])
def test_classification_unordered_datatype_is_refused(live, kind, datatype):
    with pytest.raises(InferenceServerException, match=f"classification.*{datatype}") as caught:
        ask(live, kind, f"id_{datatype.lower()}", samples.ARRAYS[datatype], datatype, 1)
    assert caught.value.status() == {"http": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}[kind[:4]]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_classification_over_million_values_is_refused(live, kind):
    array = numpy.zeros(1000001, numpy.uint8)
    array[-2] = 1
    assert texts(ask(live, kind, "id_uint8", array[:-1], "UINT8", 1)) == ["1:999999"]
    assert len(ask(live, kind, "id_uint8", array[:-1], "UINT8", 100000)) == 100000
    with pytest.raises(InferenceServerException, match="at most 1000000 values") as caught:
        ask(live, kind, "id_uint8", array, "UINT8", 1)
    assert caught.value.status() == {"http": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}[kind]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_classification_model_failure_is_reported(live, kind):
    with pytest.raises(InferenceServerException, match="out of ink"):
        ask(live, kind, "failing", numpy.zeros(2, numpy.float32), "FP32", 1)


def test_classification_over_stream(live):
    inputs, outputs = form("grpc", numpy.array([[1, 2]], numpy.float32), "FP32", 1)
    bad, worse = form("grpc", numpy.array([True]), "BOOL", 1)
    got = []
    with grpc.InferenceServerClient(live.grpc_address) as client:
        client.start_stream(lambda result, error: got.append(error or result))
        for model, first, last in (("labelled", inputs, outputs), ("id_bool", bad, worse),
                                   ("labelled", inputs, outputs)):
            client.async_stream_infer(model, first, outputs=last)
        client.stop_stream()
    assert [texts(item.as_numpy("OUTPUT0")) for item in (got[0], got[2])] == [["2.000000:1:dog"]] * 2
    assert "BOOL" in got[1].message()


def test_classification_extension_is_listed(live):
    with http.InferenceServerClient(live.address) as client:
        assert "classification" in client.get_server_metadata()["extensions"]


# ---- labels --------------------------------------------------------------------------------------

def test_classification_labels_are_reread_on_load(tmp_path, start_server):
    write(tmp_path, Identity("m", [("FP32", [-1])]), "labels.txt", "old\n")
    started = start_server("--model-repository", str(tmp_path), "--model-control-mode", "explicit",
                          "--load-model", "m", grpc=("127.0.0.1:0",))
    array = numpy.ones(1, numpy.float32)
    (tmp_path / "m" / "labels.txt").write_text("new\n")
    assert texts(ask(started, "http", "m", array, "FP32", 1)) == ["1.000000:0:old"]
    with http.InferenceServerClient(started.address) as client:
        client.load_model("m")
        assert texts(ask(started, "http", "m", array, "FP32", 1)) == ["1.000000:0:new"]
        (tmp_path / "m" / "labels.txt").unlink()
        with pytest.raises(InferenceServerException, match="labels of output"):
            client.load_model("m")
    assert texts(ask(started, "grpc", "m", array, "FP32", 1)) == ["1.000000:0:new"]
    started.expect_error("labels of output")


@pytest.mark.parametrize("name, labels, words", [
    ("labels.txt", None, "No such file"),
    ("labels.txt", b"a\nb\xff\n", "labels.txt:2: expected UTF-8"),
    ("../other/labels.txt", "a", "must not lead out of the model's directory"),
    ("/etc/passwd", "a", "must not begin with /"),
    ("1", "a", "directory"),
])
def test_classification_invalid_labels_fail_load(tmp_path, name, labels, words):
    write(tmp_path, Identity("m", [("FP32", [-1])]), name, labels)
    done = server.run("serve", "--check", "--model-repository", str(tmp_path))
    assert done.returncode != 0 and words in done.stdout + done.stderr, done

"""The openvino backend on live servers, beside onnxruntime: the same models through HTTP and gRPC by the
reference's own clients, and what differs between the two."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import metrics
from lib.server import ROOT, Server

pytestmark = pytest.mark.plain

# Both compute in FP32, each in its own order.
TOLERANCE = 2e-5
MODELS = ("mlp", "cnn", "onnx_rgb32", "onnx_grey28", "digits")
N_CALLERS, N_CALLS = 8, 25


@pytest.fixture(scope="module", autouse=True)
def leaks():
    """The leak sanitizer falls over the thread-local memory of the library's threads; without looking there
    it must be told what libc keeps in it (tools/lsan.supp)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSAN_OPTIONS", os.environ.get("LSAN_OPTIONS", "") + ":use_tls=0")
        yield


def made(*command):
    subprocess.run([sys.executable, os.path.join(ROOT, *command[0]), *command[1:]], check=True,
                   stdout=subprocess.DEVNULL)


def adopt(folder, source, name, config=""):
    """MODELS/name/1 with the files of another model's version, and a configuration."""
    shutil.copytree(source, os.path.join(folder, name, "1"))
    if config:
        with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write(config)


@pytest.fixture(scope="module")
def sources(tmp_path_factory, leaks):
    """Models of all kinds, and handwritten digits that one of them has not seen."""
    folder = tmp_path_factory.mktemp("sources")
    made(("tests", "models", "make.py"), folder, "--refused", folder)
    made(("tests", "models", "ir.py"), folder, "--refused", folder)
    os.makedirs(folder / "digits" / "1")
    made(("examples", "digits", "make.py"), folder / "digits" / "1" / "model.onnx", "--heldout",
         folder / "heldout.npz")
    return folder


@pytest.fixture(scope="module")
def live(tmp_path_factory, sources):
    """Each model twice: as it is, and as ov_NAME of the backend under test."""
    folder = tmp_path_factory.mktemp("live")
    models = folder / "models"
    for name in MODELS:
        adopt(models, sources / name / "1", name)
        adopt(models, sources / name / "1", f"ov_{name}",
              'backend: "openvino" max_batch_size: 16 instance_group { count: 2 }')
    adopt(models, sources / "ir_mlp" / "1", "ir_mlp")
    adopt(models, sources / "onnx_lookup" / "1", "ov_lookup", 'platform: "openvino"')
    adopt(models, sources / "onnx_dynamic" / "1", "ov_dynamic", 'backend: "openvino"')
    adopt(models, sources / "onnx_broadcast" / "1", "ov_broadcast", 'backend: "openvino" instance_group'
          ' { count: 1 } parameters { key: "INFERENCE_NUM_THREADS" value { string_value: "1" } }')
    with Server(folder, ["--model-repository", models], grpc=("127.0.0.1:0",)) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def client(request, live):
    """(module, client) of one protocol; nothing may be in flight or held when the test has ended."""
    if request.param == "http":
        module, address = tritonclient.http, live.address
    else:
        module, address = tritonclient.grpc, live.grpc_address
    with module.InferenceServerClient(address) as connected:
        yield module, connected
    live.wait_at_rest()
    live.check_log()


def infer(client, model, values, name="x", datatype="FP32"):
    """Returns: the first output."""
    module, connected = client
    tensor = module.InferInput(name, list(values.shape), datatype)
    result = connected.infer(model, [tensor.set_data_from_numpy(values)])
    answer = result.get_response()
    output = (answer["outputs"][0]["name"] if isinstance(answer, dict)
              else answer.outputs[0].name)
    return result.as_numpy(output)


def inputs_of(client, model):
    """The input's name, and its shape without the batch."""
    metadata = client[1].get_model_metadata(model)
    tensors = metadata["inputs"] if isinstance(metadata, dict) else metadata.inputs
    first = tensors[0]
    if isinstance(first, dict):
        return first["name"], first["shape"][1:]
    return first.name, list(first.shape)[1:]


@pytest.mark.parametrize("model", MODELS)
def test_openvino_outputs_equal_onnxruntime(client, model):
    name, shape = inputs_of(client, model)
    random = numpy.random.default_rng(7)
    for rows in (1, 5, 16):
        values = random.random((rows, *shape), dtype=numpy.float32)
        theirs, ours = (infer(client, each, values, name) for each in (model, f"ov_{model}"))
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        numpy.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=TOLERANCE)


def test_openvino_digits_are_recognised(client, sources):
    heldout = numpy.load(sources / "heldout.npz")
    images, labels = (heldout[key] for key in ("images", "labels"))
    images = images[:16].astype(numpy.float32)
    name, _ = inputs_of(client, "ov_digits")
    theirs, ours = (infer(client, model, images, name) for model in ("digits", "ov_digits"))
    assert (ours.argmax(-1) == theirs.argmax(-1)).all()
    assert (ours.argmax(-1) == labels[:16]).mean() > 0.8


def test_openvino_ir_model_needs_no_configuration(client):
    values = numpy.random.default_rng(1).random((3, 784), dtype=numpy.float32)
    numpy.testing.assert_allclose(infer(client, "ir_mlp", values), infer(client, "mlp", values),
                                  rtol=1e-4, atol=TOLERANCE)


def test_openvino_weights_are_not_mapped(live):
    """Who writes over model.bin while it is served changes nothing and ends nobody."""
    with open(f"/proc/{live.pid}/maps", encoding="ascii") as maps:
        assert "model.bin" not in maps.read()


def test_openvino_failed_request_keeps_model_serving(client):
    module, connected = client

    def add(a, b):
        tensors = [module.InferInput(name, list(values.shape), "FP32").set_data_from_numpy(values)
                   for name, values in (("a", a), ("b", b))]
        return connected.infer("ov_broadcast", tensors).as_numpy("y")
    three, two = numpy.ones((1, 3), numpy.float32), numpy.ones((1, 2), numpy.float32)
    assert (add(three, three) == 2).all()
    with pytest.raises(InferenceServerException) as refused:
        add(three, two)
    assert "the model could not be run: " in refused.value.message()
    assert refused.value.status() in ("500", "StatusCode.INTERNAL")
    assert (add(three, three) == 2).all()


def test_openvino_changing_shapes(client):
    for rows, columns in ((2, 3), (3, 2), (1, 600), (0, 4), (600, 1), (2, 3)):
        values = numpy.arange(rows * columns, dtype=numpy.float32).reshape(rows, columns)
        assert (infer(client, "ov_dynamic", values) == values.T).all()


def test_openvino_int64_overflow_is_refused(client):
    good = numpy.array([[1, 7]], numpy.int64)
    with pytest.raises(InferenceServerException) as refused:
        infer(client, "ov_lookup", numpy.array([[1, 1 << 32]], numpy.int64), datatype="INT64")
    assert 'input "x" has 4294967296, and OpenVINO computes 64-bit numbers as 32-bit ones' in \
        refused.value.message()
    assert refused.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert infer(client, "ov_lookup", good, datatype="INT64")[0, 1, 2] == 23


def test_openvino_concurrent_callers_are_batched(live):
    """Rows of many callers are batched, and each gets its own."""
    before = metrics.read(live.address)
    random = numpy.random.default_rng(3)
    values = random.random((N_CALLERS, 784), dtype=numpy.float32)

    def call(row):
        with tritonclient.http.InferenceServerClient(live.address) as connected:
            client = (tritonclient.http, connected)
            wanted = infer(client, "mlp", values[row:row + 1])
            for _ in range(N_CALLS):
                numpy.testing.assert_allclose(infer(client, "ov_mlp", values[row:row + 1]), wanted,
                                              rtol=1e-4, atol=TOLERANCE)
    with concurrent.futures.ThreadPoolExecutor(N_CALLERS) as pool:
        for done in [pool.submit(call, row) for row in range(N_CALLERS)]:
            done.result()
    live.wait_at_rest()
    labels = '{model="ov_mlp",version="1"}'
    after = metrics.read(live.address)
    name = "nv_inference_request_success" + labels
    assert after[name] - before.get(name, 0) == N_CALLERS * N_CALLS
    assert after["nv_inference_compute_infer_duration_us" + labels] > 0


def count_threads(folder, sources, n_cpus, more=""):
    """How many the process has when a model has computed, and how many its log says an instance may have.
    As many CPUs are the server's as a quota of the cgroup would leave it."""
    adopt(folder / "models", sources / "cnn" / "1", "cnn", f'backend: "openvino" max_batch_size: 16 {more}')
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, sorted(before)[:n_cpus])
        server = Server(folder, ["--model-repository", folder / "models", "--workers", "2"])
    finally:
        os.sched_setaffinity(0, before)
    with server, tritonclient.http.InferenceServerClient(server.address) as connected:
        client = tritonclient.http, connected
        name, shape = inputs_of(client, "cnn")
        for _ in range(5):
            infer(client, "cnn", numpy.zeros([8, *shape], numpy.float32), name)
        said = re.search('"model loaded".*"threads":([0-9]+)', server.log_text())
        return len(os.listdir(f"/proc/{server.pid}/task")), int(said[1])


def test_openvino_thread_count(sources, tmp_path):
    """All CPUs for one instance, whose own thread is one of them, or its share for each of several."""
    n_cpus = min(len(os.sched_getaffinity(0)), 2)
    shares = f"instance_group {{ count: {n_cpus} }}"
    said = 'parameters { key: "INFERENCE_NUM_THREADS" value { string_value: "1" } }'
    counts = []
    for n, more, n_threads in ((1, "", 1), (n_cpus, "", n_cpus), (n_cpus, shares, 1), (n_cpus, shares + said, 1)):
        folder = tmp_path / str(len(counts))
        folder.mkdir()
        count, n_told = count_threads(folder, sources, n, more)
        assert n_told == n_threads
        counts.append(count)
    assert counts[0] <= counts[1] <= counts[0] + n_cpus - 1
    assert counts[2] == counts[3]


def test_openvino_load_failure_is_reported(start_server, sources, tmp_path):
    """And leaves the others serving."""
    models = tmp_path / "models"
    for name in ("refused_cut", "refused_ir_cut", "refused_ir_newer", "refused_ir_weights",
                 "onnx_mixed"):
        adopt(models, sources / name / "1", name, 'backend: "openvino"')
    adopt(models, sources / "ir_mlp" / "1", "ir_mlp",
          'parameters { key: "INFERENCE_NUM_THREADS" value { string_value: "1" } }')
    adopt(models, sources / "mlp" / "1", "streams", 'backend: "openvino" parameters'
          ' { key: "NUM_STREAMS" value { string_value: "2" } }')
    server = start_server("--model-repository", models, wait="loaded")
    said = {line["model"]: line["reason"] for line in server.log_lines()
            if line.get("reason")}
    for name, part in (("refused_cut", "ends in the middle"),
                       ("refused_ir_cut", "Start-end tags mismatch"),
                       ("refused_ir_newer", "IR model of a version that OpenVINO"),
                       ("refused_ir_weights", "Incorrect weights in bin file"),
                       ("onnx_mixed", "serve the model with the onnxruntime backend"),
                       ("streams", "parameter NUM_STREAMS: expected 1, as each instance")):
        assert part in said[name], said
    with tritonclient.http.InferenceServerClient(server.address) as connected:
        answer = infer((tritonclient.http, connected), "ir_mlp",
                       numpy.zeros((1, 784), numpy.float32))
    assert abs(answer.sum() - 1) < 1e-5
    server.expect_error("model failed to load")

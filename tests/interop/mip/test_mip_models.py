"""Models over MIP: what their settings come to, from config.pbtxt and from the configuration file; what
is wrong with them is said at the start; and that a model answers the same whatever it is asked by."""
import json
import os
import shutil
import signal
import threading

import numpy
import pytest

from lib import http1, metrics, mip, server
from lib.server import Server

pytestmark = pytest.mark.tsan

DATATYPES = {"onnx_identity_fp32": ("FP32", "<f4"), "onnx_identity_fp64": ("FP64", "<f8"),
             "onnx_identity_fp16": ("FP16", "<f2"), "onnx_identity_int8": ("INT8", "i1"),
             "onnx_identity_int16": ("INT16", "<i2"), "onnx_identity_int32": ("INT32", "<i4"),
             "onnx_identity_int64": ("INT64", "<i8"), "onnx_identity_uint8": ("UINT8", "u1"),
             "onnx_identity_uint16": ("UINT16", "<u2"), "onnx_identity_uint32": ("UINT32", "<u4"),
             "onnx_identity_uint64": ("UINT64", "<u8"), "onnx_identity_bool": ("BOOL", "?")}


def model_file(repositories, name):
    return os.path.join(repositories("onnx-only"), name, "1", "model.onnx")


@pytest.fixture
def write(tmp_path, repositories):
    """write(name, source, params, labels): a model in a repository of the test's own."""
    def do(name, source, params=(), labels=None, more=""):
        folder = tmp_path / "models" / name
        (folder / "1").mkdir(parents=True)
        shutil.copy(model_file(repositories, source), folder / "1" / "model.onnx")
        if labels is not None:
            (folder / "labels.txt").write_text("".join(label + "\n" for label in labels))
        (folder / "config.pbtxt").write_text(more + "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in dict(params).items()))
        return str(tmp_path / "models")
    return do


def check(*args, code=0):
    """Runs `sluice serve --check`. Returns: what it printed."""
    done = server.run("serve", "--check", *args)
    assert done.returncode == code, done
    assert not server.SANITIZER.search(done.stderr), done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


# ---- settings ------------------------------------------------------------------------------------

def test_check_prints_item_conversion(write):
    write("grey", "onnx_grey28", {"mip.scale": "1/255", "mip.softmax": "true", "mip.top_k": "3",
                                  "mip.labels": "labels.txt"}, "abcdefghij")
    models = write("text", "onnx_upper")
    out = check("--model-repository", models, "--mip", "tcp://127.0.0.1:9=grey", "--mip",
                "unix:///tmp/x=text:1")
    assert "MIP  tcp://127.0.0.1:9=grey\n" in out and "MIP  unix:///tmp/x=text:1\n" in out
    assert "pictures become 28x28 grey (stretch, filter auto, scale 0.00392157)" in out
    assert "scores  JSON, the 3 best after softmax by 10 labels" in out
    assert "x  TEXT, JSON; pictures as the files they are" in out


def test_check_warns_without_picture_part(write, tmp_path):
    models = write("grey", "onnx_grey28")
    args = ("--model-repository", models, "--mip", "tcp://127.0.0.1:9=grey")
    assert "cannot be decoded" not in check(*args)
    assert "warning    pictures cannot be decoded here: " in check(*args, "--parts-dir", tmp_path)


@pytest.mark.parametrize("params, labels, words", [
    ({"mip.colour": "grey"}, None, 'did you mean \\"color\\"?'),
    ({"mip.scores.softmaxx": "true"}, None, 'did you mean \\"softmax\\"?'),
    ({"mip.imag.fit": "crop"}, None, 'did you mean \\"image\\"?'),
    ({"mip.color": "rgb"}, None, "rgb needs 3 channels"),
    ({"mip.top_k": "3", "mip.labels": "labels.txt"}, "abc", "the output has 10 values"),
    ({"mip.top_k": "3", "mip.labels": "labels.txt"}, None, "No such file"),
    ({"mip.top_k": "3", "mip.labels": "/etc/passwd"}, None, "inside its directory"),
    ({"mip.labels": "labels.txt"}, "abcdefghij", "top_k must be set"),
])
def test_load_invalid_setting_fails(start_server, write, params, labels, words):
    """The others are served, and so it is for any other reason to fail."""
    write("wrong", "onnx_grey28", params, labels)
    models = write("right", "onnx_upper")
    out = check("--model-repository", models, code=1)
    assert "wrong  FAILED" in out and words.replace("\\", "") in out
    running = start_server("--model-repository", models, "--strict-readiness", "false", "--mip",
                           "tcp://127.0.0.1:0=wrong", "--mip", "tcp://127.0.0.1:0=right")
    running.expect_error("model failed to load")
    assert words in running.log_text()
    assert mip.refusal(running.mip_urls[0], mip.infer_request([[mip.text("a")]])) == "INTERNAL"
    assert mip.infer(running.mip_urls[1], [[mip.text("a")]]) == [["A"]]
    assert http1.request(running.address, "GET", "/v2/models/wrong/ready").status == 503


def test_load_yaml_parameters_override_pbtxt(start_server, write, tmp_path):
    """They are merged over config.pbtxt's; a file of labels may lie anywhere then."""
    (tmp_path / "other.txt").write_text("".join(f"label {n}\n" for n in range(10)))
    models = write("grey", "onnx_grey28", {"mip.top_k": "2", "mip.scale": "1/255"}, "abcdefghij",
                   'output { name: "scores" label_filename: "labels.txt" }\n')
    image = mip.as_json(numpy.ones((28, 28)).tolist())
    plain = start_server("--model-repository", models, "--mip", "tcp://127.0.0.1:0=grey")
    [[before]] = mip.infer(plain.mip_urls[0], [[image]])
    assert len(before) == 2 and set(before) < set("abcdefghij")
    (tmp_path / "sluice.yaml").write_text(f"""
models:
  - path: {models}/grey
    parameters:
      mip.top_k: 3
      mip.softmax: true
      mip.labels: {tmp_path}/other.txt
      mip.image.mean: 0.5
mip: tcp://127.0.0.1:0=grey
""")
    running = start_server("--config", tmp_path / "sluice.yaml")
    [[best]] = mip.infer(running.mip_urls[0], [[image]])
    assert [label[0:6] for label in best] == ["label "] * 3
    assert "abcdefghij"[int(list(best)[0][6:])] == list(before)[0]
    assert sum(best.values()) <= 1 and list(best.values()) == sorted(best.values(), reverse=True)
    out = check("--config", tmp_path / "sluice.yaml")
    assert "scale 0.00392157, mean 0.5)" in out


@pytest.mark.parametrize("yaml, words", [
    ("models: [{path: MODELS/grey, parameters: {mip.scael: 1}}]", 'did you mean "scale"?'),
    ("models: [{path: MODELS/grey, parameters: {sluice.run_on: gpu}}]", "auto, worker or instance"),
    ("models: [{path: MODELS/grey, parameters: {a: {b: c}}}]", "expected text, a number"),
    ("models: [{path: MODELS/grey, parametres: {a: b}}]", 'did you mean "parameters"?'),
    ("models: [{path: MODELS, parameters: {a: b}}]", "they are for one model"),
    ("models: [MODELS]\nmip: [tcp://127.0.0.1:1]", "names no model"),
    ("models: [MODELS]\nmip: [tcp://127.0.0.1:1=gray]", 'unknown model "gray"'),
])
def test_start_invalid_yaml_fails(write, tmp_path, yaml, words):
    models = write("grey", "onnx_grey28")
    write("other", "onnx_upper")
    (tmp_path / "sluice.yaml").write_text(yaml.replace("MODELS", models) + "\n")
    done = server.run("serve", "--check", "--config", tmp_path / "sluice.yaml")
    assert done.returncode in (1, 2) and words in done.stdout + done.stderr, done


@pytest.mark.parametrize("softmax, k", [("true", 10), ("false", 10), ("true", 3), ("false", 1)])
def test_infer_top_k_scores(start_server, write, repositories, softmax, k):
    """Best first, and what the plain answer says."""
    models = write("best", "onnx_grey28", {"mip.softmax": softmax, "mip.top_k": k}, None)
    write("plain", "onnx_grey28")
    running = start_server("--model-repository", models, "--mip", "tcp://127.0.0.1:0=best", "--mip",
                           "tcp://127.0.0.1:0=plain")
    images = numpy.random.default_rng(1).normal(0, 1, (70, 28, 28))
    elements = [[mip.as_json(image.tolist())] for image in images]
    for [best], [scores] in zip(mip.infer(running.mip_urls[0], elements),
                                mip.infer(running.mip_urls[1], elements)):
        scores = numpy.array(scores, numpy.float32).astype(numpy.float64)
        if softmax == "true":
            scores = numpy.exp(scores - scores.max()) / numpy.exp(scores - scores.max()).sum()
        expected = numpy.argsort(-scores, kind="stable")[:k]
        assert list(best) == [str(i) for i in expected]
        got = numpy.array(list(best.values()))
        if softmax == "false":
            got = got.astype(numpy.float32)
        assert numpy.allclose(got, scores[expected], rtol=1e-12, atol=0)


def test_infer_nan_score_is_internal_error(start_server, write):
    """NaN has no rank: the packet is refused, and JSON never says it."""
    models = write("m", "onnx_identity_fp32", {"mip.top_k": "2"})
    running = start_server("--model-repository", models, "--mip", "tcp://127.0.0.1:0=m")
    with mip.Connection(running.mip_urls[0]) as connection:
        bad = mip.infer_request([[(mip.JSON, b"[1, NaN, 2, 3]")]])
        assert connection.refusal(bad) == "INTERNAL"
        assert connection.infer([[mip.as_json([1, 4, 2, 4])]]) == [[{"1": 4.0, "3": 4.0}]]


# ---- the start and the end -----------------------------------------------------------------------

@pytest.mark.parametrize("flag, words", [
    ("127.0.0.1:0=onnx_add", "begins with no scheme of MIP"),
    ("tcp://127.0.0.1:0", "names no model"),
    ("tcp://127.0.0.1:0=nobody", 'unknown model "nobody"'),
    ("tcp://127.0.0.1:0=nobody:1", 'unknown model "nobody"'),
    ("tcp://example.com:0=onnx_add", "not an address"),
    ("unix:///nowhere/at/all=onnx_add", "/nowhere/at/all"),
])
def test_start_invalid_listener_fails(repositories, flag, words):
    done = server.run("serve", "--model-repository", repositories("onnx-only"), "--http",
                      "127.0.0.1:0", "--grpc", "none", "--metrics", "none", "--mip", flag)
    assert done.returncode in (1, 2) and words in done.stderr and "--mip" in done.stderr, done


def test_infer_missing_version_is_internal_error(start_server, repositories):
    """It is not known before the models are loaded."""
    models = repositories("onnx-only")
    assert "'onnx_add' version 7 is not found" in check("--model-repository", models, "--mip",
                                           "tcp://127.0.0.1:9=onnx_add:7", code=1)
    running = start_server("--model-repository", models, "--mip", "tcp://127.0.0.1:0=onnx_add:7")
    running.expect_error("MIP listener without a model to serve")
    mip.ping(running.mip_urls[0])
    assert mip.refusal(running.mip_urls[0], mip.infer_request([[mip.text("a")]])) == "INTERNAL"


def test_infer_model_versions(start_server, tmp_path, repositories):
    for version in ("1", "3"):
        folder = tmp_path / "models" / "m" / version
        folder.mkdir(parents=True)
        shutil.copy(model_file(repositories, "onnx_pair" if version == "1" else "onnx_add"),
                    folder / "model.onnx")
    (tmp_path / "models" / "m" / "config.pbtxt").write_text("version_policy { all { } }\n")
    running = start_server(tmp_path / "models", "--mip", "tcp://127.0.0.1:0=m:1", "--mip",
                           f"unix://{tmp_path}/s=m")
    assert mip.infer(running.mip_urls[0], [[mip.as_json([1, 2]), mip.as_json([3, 4])]]) == \
        [[[4.0, 6.0]]]
    four = mip.as_json([1, 2, 3, 4])
    assert mip.infer(running.mip_urls[1], [[four, four]]) == [[[2.0, 4.0, 6.0, 8.0], [0.0] * 4]]
    lines = server.lines_of(running.ready_file)
    assert lines[1].startswith("tcp://127.0.0.1:") and lines[1].endswith("=m:1")
    assert lines[2] == f"unix://{tmp_path}/s=m"


def test_unix_socket_removed_unless_in_use(start_server, repositories, tmp_path):
    flag = f"unix://{tmp_path}/s=onnx_pair"
    first = start_server("--model-repository", repositories("onnx-only"), "--mip", flag)
    done = server.run("serve", "--model-repository", repositories("onnx-only"), "--http",
                      "127.0.0.1:0", "--grpc", "none", "--metrics", "none", "--mip", flag)
    assert done.returncode == 1 and flag in done.stderr
    mip.ping(first.mip_urls[0])
    first.stop()
    assert not os.path.exists(tmp_path / "s")


def test_unix_socket_relative_path(start_server, repositories):
    running = start_server("--model-repository", repositories("onnx-only"), "--mip",
                           "unix://here=onnx_pair")
    assert running.mip_urls == ["unix://here"]
    mip.ping(f"unix://{running.folder}/here")


def test_infer_while_model_loads_is_internal_error(start_server, gate, tmp_path):
    """The listener is there before the model is; what it can't do yet is INTERNAL."""
    url = f"unix://{tmp_path}/s"
    running = start_server(*gate.args, "--mip", f"{url}=gated", wait="listening")
    running.wait_for(lambda: any("mip" in line for line in running.log_lines()), "a MIP listener")
    with mip.Connection(url) as connection:
        connection.ping()

        def is_being_loaded():  # the scan before it may last
            assert connection.refusal(mip.infer_request([[mip.as_json(1)]])) == "INTERNAL"
            return "still being loaded" in running.log_text()
        running.wait_for(is_being_loaded, "a load that has begun")
        malformed = mip.infer_request([[mip.as_json(1)]], batch=2)
        assert connection.refusal(malformed) == "SHAPE"
        gate.open()
        running.wait_ready()
        assert connection.refusal(mip.infer_request([[mip.as_json(1)]])) == "INTERNAL"
        assert "nothing behind the gate" in running.log_text()  # the model itself


def slow_model(tmp_path):
    """Takes two seconds for each call."""
    folder = tmp_path / "slow"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text("""backend: "identity"
max_batch_size: 0
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
parameters { key: "delay_us" value { string_value: "2000000" } }
""")
    return folder


def is_under_way(numbers):
    """Besides the request that asks for the numbers."""
    return numbers["sluice_requests_in_flight"] == 2


def test_drain_answers_running_packet(start_server, tmp_path):
    running = start_server(slow_model(tmp_path), "--mip", "tcp://127.0.0.1:0=slow")
    with mip.Connection(running.mip_urls[0]) as connection, \
            mip.Connection(running.mip_urls[0]) as idle:
        idle.ping()
        connection.send(mip.infer_request([[mip.as_json([1, 2])]]))
        metrics.wait_until(running.address, is_under_way, "a packet under way")
        running.signal(signal.SIGTERM)
        assert connection.read_inference(1, 1) == [[(mip.JSON, b"[1.0,2.0]")]]
        connection.read_end()
        idle.read_end()
    assert running.wait_exit() == 0


def test_disconnect_cancels_queued_elements(start_server, tmp_path):
    """What has not begun by then never runs: hours of it would keep the end waiting."""
    running = start_server(slow_model(tmp_path), "--mip", "tcp://127.0.0.1:0=slow")
    with mip.Connection(running.mip_urls[0]) as connection:
        connection.send(mip.infer_request([[mip.as_json([1, 2])]] * 10_000))
        metrics.wait_until(running.address, is_under_way, "a packet under way")
        connection.reset()
    running.wait_at_rest()


# ---- the same by every protocol ------------------------------------------------------------------

def http_json(address, model, name, datatype, values, dtype=None):
    body = json.dumps({"inputs": [{"name": name, "shape": list(values.shape), "datatype": datatype,
                                   "data": values.ravel().tolist()}]}).encode()
    answer = http1.request(address, "POST", f"/v2/models/{model}/infer", body)
    assert answer.status == 200, answer
    output = json.loads(answer.body)["outputs"][0]
    return numpy.array(output["data"], dtype).reshape(output["shape"])


def http_binary(address, model, name, datatype, values, dtype):
    data = values.astype(dtype).tobytes()
    head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [
        {"name": name, "shape": list(values.shape), "datatype": datatype,
         "parameters": {"binary_data_size": len(data)}}]}).encode()
    return binary_output(address, model, head, data, dtype)


def http_raw(address, model, values, dtype):
    """Nothing but the elements of one input: the model says what they are, and it is a batch of one."""
    return numpy.concatenate([binary_output(address, model, b"", row.astype(dtype).tobytes(), dtype)
                              for row in values])


def binary_output(address, model, head, data, dtype):
    answer = http1.request(address, "POST", f"/v2/models/{model}/infer", head + data,
                           [("Inference-Header-Content-Length", len(head))])
    assert answer.status == 200, answer
    length = int(answer.get("Inference-Header-Content-Length"))
    output = json.loads(answer.body[:length])["outputs"][0]
    return numpy.frombuffer(answer.body[length:], dtype).reshape(output["shape"])


def grpc_raw(address, model, name, datatype, values, dtype):
    import tritonclient.grpc as triton
    made = triton.InferInput(name, list(values.shape), datatype).set_data_from_numpy(
        values.astype(dtype))
    with triton.InferenceServerClient(address) as client:
        answer = client.infer(model, [made]).get_response()
    return numpy.frombuffer(answer.raw_output_contents[0], dtype).reshape(
        list(answer.outputs[0].shape))


# Where elements may be in a message of their own; there is no such place for FP16 and BF16.
CONTENTS = {"BOOL": "bool", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int64",
            "UINT8": "uint", "UINT16": "uint", "UINT32": "uint", "UINT64": "uint64",
            "FP32": "fp32", "FP64": "fp64"}


def grpc_typed(address, model, name, datatype, values, dtype):
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc
    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name=name, datatype=datatype, shape=values.shape)
    getattr(tensor.contents, f"{CONTENTS[datatype]}_contents").extend(values.ravel().tolist())
    with grpc.insecure_channel(address) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    return numpy.frombuffer(answer.raw_output_contents[0], dtype).reshape(
        list(answer.outputs[0].shape))


@pytest.fixture(scope="module")
def every_datatype(tmp_path_factory, repositories):
    args = ["--model-repository", repositories("onnx-only")]
    models = [*DATATYPES, "mlp"]
    for model in models:
        args += ["--mip", f"tcp://127.0.0.1:0={model}"]
    running = Server(tmp_path_factory.mktemp("every"), args, grpc=("127.0.0.1:0",))
    with running:
        yield running, dict(zip(models, running.mip_urls))


def values_of(dtype, shape):
    random = numpy.random.default_rng(7)
    kind = numpy.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind.kind == "f":
        values = random.normal(0, 1000, shape).astype(kind)
        values.flat[:2] = numpy.finfo(kind).max, numpy.finfo(kind).smallest_subnormal
        return values
    info = numpy.iinfo(kind)
    values = random.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    values.flat[:2] = info.min, info.max
    return values


@pytest.mark.parametrize("model", DATATYPES)
def test_model_answers_equal_over_each_protocol(every_datatype, model):
    running, urls = every_datatype
    datatype, dtype = DATATYPES[model]
    values = values_of(dtype, (50, 4))
    by_mip = [outputs[0] for outputs in
              mip.infer(urls[model], [[mip.as_json(row.tolist())] for row in values])]
    by_mip = numpy.array(by_mip, dtype if dtype != "?" else bool)
    by_json = http_json(running.address, model, "x", datatype, values, dtype)
    by_binary = http_binary(running.address, model, "x", datatype, values, dtype)
    by_raw = http_raw(running.address, model, values, dtype)
    by_grpc = grpc_raw(running.grpc_address, model, "x", datatype, values, dtype)
    assert by_mip.tobytes() == by_json.tobytes() == by_binary.tobytes() == values.tobytes()
    assert by_raw.tobytes() == by_grpc.tobytes() == values.tobytes()
    if datatype in CONTENTS:
        by_typed = grpc_typed(running.grpc_address, model, "x", datatype, values, dtype)
        assert by_typed.tobytes() == values.tobytes()


def test_network_answers_equal_over_each_protocol(every_datatype):
    running, urls = every_datatype
    metadata = json.loads(http1.request(running.address, "GET", "/v2/models/mlp").body)
    spec, = metadata["inputs"]
    shape = [20, *spec["shape"][1:]]
    values = numpy.random.default_rng(3).normal(0, 1, shape).astype(numpy.float32)
    by_mip = mip.infer(urls["mlp"], [[mip.as_json(row.tolist())] for row in values])
    by_mip = numpy.array([outputs[0] for outputs in by_mip], numpy.float32)
    by_binary = http_binary(running.address, "mlp", spec["name"], "FP32", values, "<f4")
    by_json = http_json(running.address, "mlp", spec["name"], "FP32", values)
    by_grpc = grpc_raw(running.grpc_address, "mlp", spec["name"], "FP32", values, "<f4")
    assert numpy.array_equal(by_json.astype(numpy.float32), by_binary)
    assert numpy.array_equal(by_grpc, by_binary)
    by_raw = http_raw(running.address, "mlp", values, "<f4")
    by_typed = grpc_typed(running.grpc_address, "mlp", spec["name"], "FP32", values, "<f4")
    assert numpy.array_equal(by_typed, by_binary)
    for other in (by_mip, by_raw):
        assert numpy.allclose(other, by_binary, rtol=1e-5, atol=1e-7)  # sums of other batches


def test_protocols_concurrent_answers_are_not_mixed(every_datatype):
    """They share scheduler and memory: nobody gets another's answer."""
    running, urls = every_datatype
    wrong = []

    def by_mip(first):
        with mip.Connection(urls["onnx_identity_int64"]) as connection:
            for n in range(first, first + 200):
                if connection.infer([[mip.as_json([n] * 4)]] * 3) != [[[n] * 4]] * 3:
                    wrong.append(n)

    def by_http(first):
        for n in range(first, first + 100):
            values = numpy.full((2, 4), n)
            if (http_json(running.address, "onnx_identity_int64", "x", "INT64", values) != n).any():
                wrong.append(n)
    threads = [threading.Thread(target=work, args=(i * 1000,))
               for i, work in enumerate([by_mip, by_http] * 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    running.wait_at_rest()

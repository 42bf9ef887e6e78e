"""The reference's own client, blocking: every call of it that the server claims, every datatype both
ways. What it sends and reads is its own business; nothing here looks at bytes on the wire."""
import numpy
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from lib import http1, samples

pytestmark = pytest.mark.plain


@pytest.fixture
def client(client_server):
    with triton.InferenceServerClient(client_server.address, concurrency=8) as made:
        yield made


def make_input(name, datatype, array, binary=True):
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(
        array, binary_data=binary)


def ask_identity(client, model, names, array, binary_in, outputs, **options):
    made = make_input(names[0], samples.datatype_of(model), array, binary_in)
    return client.infer(model, [made], outputs=outputs, **options).as_numpy(names[1])


# ---- what is there -------------------------------------------------------------------------------

def test_live_and_ready(client):
    assert client.is_server_live() is True
    assert client.is_server_ready() is True


def test_model_ready(client):
    assert client.is_model_ready("id_fp32") is True
    assert client.is_model_ready("id_versions", "2") is True
    assert client.is_model_ready("nope") is False
    assert client.is_model_ready("id_fp32", "7") is False


def test_server_metadata(client):
    metadata = client.get_server_metadata()
    assert metadata["name"] == "sluice"
    assert "binary_tensor_data" in metadata["extensions"]
    assert metadata["version"]


def test_model_metadata(client):
    metadata = client.get_model_metadata("onnx_add")
    assert metadata["platform"] == "onnxruntime_onnx"
    assert [item["name"] for item in metadata["inputs"]] == ["a", "b"]
    assert metadata["inputs"][0]["shape"] == [-1, 4]
    assert client.get_model_metadata("id_versions", "2")["versions"] == ["2"]


def test_infer_encoded_model_name(client):
    assert client.is_model_ready("id with space")
    assert client.get_model_metadata("id_ümlaut")["name"] == "id_ümlaut"
    array = samples.ARRAYS["FP32"]
    result = client.infer("id with space", [make_input("INPUT0", "FP32", array)])
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)


# ---- infer ---------------------------------------------------------------------------------------

FORMS = {
    "binary to binary": (True, lambda name: [triton.InferRequestedOutput(name, True)]),
    "binary to JSON": (True, lambda name: [triton.InferRequestedOutput(name, False)]),
    "JSON to binary": (False, lambda name: [triton.InferRequestedOutput(name, True)]),
    "JSON to JSON": (False, lambda name: [triton.InferRequestedOutput(name, False)]),
    "binary, outputs not named": (True, lambda name: None),
    "JSON, outputs not named": (False, lambda name: None),
}


@pytest.mark.parametrize("model, first, last, batched", samples.MODELS,
                         ids=[row[0] for row in samples.MODELS])
@pytest.mark.parametrize("form", FORMS)
def test_infer_datatypes(client, model, first, last, batched, form):
    binary_in, outputs = FORMS[form]
    datatype = samples.datatype_of(model)
    if datatype == "BF16" and not binary_in:
        with pytest.raises(InferenceServerException, match="BF16"):  # the client's own refusal
            ask_identity(client, model, (first, last), samples.ARRAYS["BF16"], False, None)
        return
    array = samples.shaped(samples.ARRAYS[datatype], batched)
    got = ask_identity(client, model, (first, last), array, binary_in, outputs(last))
    samples.assert_same_bits(got, array)


@pytest.mark.parametrize("datatype", samples.NOT_FINITE)
@pytest.mark.parametrize("form", FORMS)
def test_infer_non_finite_values(client, datatype, form):
    binary_in, outputs = FORMS[form]
    array = samples.NOT_FINITE[datatype]
    got = ask_identity(client, f"id_{datatype.lower()}", ("INPUT0", "OUTPUT0"), array, binary_in,
                       outputs("OUTPUT0"))
    samples.assert_same_values(got, array)


@pytest.mark.parametrize("model, names", [("id_bytes", ("INPUT0", "OUTPUT0")),
                                          ("onnx_string", ("x", "y"))])
def test_infer_non_utf8_bytes(client, model, names):
    array = samples.shaped(samples.NOT_UTF8, model == "onnx_string")
    made = make_input(names[0], "BYTES", array)
    got = client.infer(model, [made]).as_numpy(names[1])
    samples.assert_same_bits(got, array)
    with pytest.raises(InferenceServerException, match="binary_data"):
        client.infer(model, [made], outputs=[triton.InferRequestedOutput(names[1], False)])


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infer_onnx_strings_with_nul_and_empty(client, binary_in, binary_out):
    array = numpy.array([[b"", b"a\0b", b"\0"], ["ü".encode(), b"", b"x" * 70000]], numpy.object_)
    made = make_input("x", "BYTES", array, binary_in)
    result = client.infer("onnx_string", [made],
                          outputs=[triton.InferRequestedOutput("y", binary_out)])
    samples.assert_same_bits(result.as_numpy("y"), array)


def test_infer_empty_tensor(client):
    array = numpy.empty([0], numpy.float32)
    for binary in (True, False):
        got = ask_identity(client, "id_fp32", ("INPUT0", "OUTPUT0"), array, binary,
                           [triton.InferRequestedOutput("OUTPUT0", binary)])
        samples.assert_same_bits(got, array)


def test_infer_mixed_forms_and_output_order(client):
    array, count = samples.ARRAYS["FP32"], samples.ARRAYS["INT32"]
    result = client.infer(
        "id_two", [make_input("INPUT1", "INT32", count, False), make_input("INPUT0", "FP32", array)],
        outputs=[triton.InferRequestedOutput("OUTPUT1", True),
                 triton.InferRequestedOutput("OUTPUT0", False)], request_id="mixed 1")
    assert [item["name"] for item in result.get_response()["outputs"]] == ["OUTPUT1", "OUTPUT0"]
    assert result.get_response()["id"] == "mixed 1"
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)
    samples.assert_same_bits(result.as_numpy("OUTPUT1"), count)
    assert result.as_numpy("OUTPUT2") is None
    assert result.get_output("OUTPUT1")["parameters"]["binary_data_size"] == 16


def test_infer_all_options(client):
    array = samples.ARRAYS["FP32"]
    result = client.infer(
        "id_versions", [make_input("INPUT0", "FP32", array)], model_version="2", request_id="all",
        priority=3, timeout=30_000_000, headers={"X-Own": "header"}, query_params={"a": ["b", "c"]},
        parameters={"text": "t", "number": 1.5, "whole": 7, "flag": True})
    assert result.get_response()["model_version"] == "2"
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("up", [None, "gzip", "deflate"])
@pytest.mark.parametrize("down", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_infer_compression(client, up, down, binary):
    array = numpy.arange(20000, dtype=numpy.float32)
    made = make_input("INPUT0", "FP32", array, binary)
    result = client.infer("id_fp32", [made],
                          outputs=[triton.InferRequestedOutput("OUTPUT0", binary)],
                          request_compression_algorithm=up, response_compression_algorithm=down)
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)


def test_async_infer_concurrent_requests(client):
    waiting = []
    for number in range(200):
        array = numpy.full([100], number, numpy.float32)
        model = "id_slow" if number % 50 == 0 else "id_fp32"
        waiting.append((array, client.async_infer(model, [make_input("INPUT0", "FP32", array)],
                                                  request_id=str(number))))
    for number, (array, promise) in enumerate(waiting):
        result = promise.get_result()
        assert result.get_response()["id"] == str(number)
        samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)


def test_async_infer_with_limited_pool(client_server):
    with triton.InferenceServerClient(client_server.address, concurrency=2,
                                      max_greenlets=2) as client:
        array = samples.ARRAYS["FP32"]
        promises = [client.async_infer("id_fp32", [make_input("INPUT0", "FP32", array)])
                    for _ in range(20)]
        for promise in promises:
            samples.assert_same_bits(promise.get_result().as_numpy("OUTPUT0"), array)


def test_infer_generated_body_and_parsed_response(client_server):
    """generate_request_body and parse_response_body, with another HTTP client in between."""
    array = samples.ARRAYS["FP32"]
    body, header = triton.InferenceServerClient.generate_request_body(
        [make_input("INPUT0", "FP32", array)], request_id="by hand")
    answer = http1.request(client_server.address, "POST", "/v2/models/id_fp32/infer", body,
                           [("Inference-Header-Content-Length", header)])
    result = triton.InferenceServerClient.parse_response_body(
        answer.body, header_length=int(answer.get("Inference-Header-Content-Length")))
    assert result.get_response()["id"] == "by hand"
    samples.assert_same_bits(result.as_numpy("OUTPUT0"), array)


# ---- errors --------------------------------------------------------------------------------------

def test_infer_error_message(client):
    array = samples.ARRAYS["FP32"]
    for model, made, status, words in (
            ("nope", make_input("INPUT0", "FP32", array), "404", "nope"),
            ("id_fp32", make_input("NOPE", "FP32", array), "400", "NOPE"),
            ("id_fp32", make_input("INPUT0", "FP64", samples.ARRAYS["FP64"]), "400", "FP64"),
            ("id_fixed", make_input("INPUT0", "FP32", array), "400", r"\[2,2\]"),
            ("id_failing", make_input("INPUT0", "FP32", array), "500", "out of ink")):
        with pytest.raises(InferenceServerException, match=words) as caught:
            client.infer(model, [made])
        assert caught.value.status() == status


def test_async_infer_error(client):
    promise = client.async_infer("nope", [make_input("INPUT0", "FP32", samples.ARRAYS["FP32"])])
    with pytest.raises(InferenceServerException, match="nope"):
        promise.get_result()


def test_infer_unregistered_region_is_404(client):
    made = triton.InferInput("INPUT0", [1], "FP32")
    made.set_shared_memory("region", 4)
    with pytest.raises(InferenceServerException, match="shared") as caught:
        client.infer("id_fp32", [made])
    assert caught.value.status() == "404"

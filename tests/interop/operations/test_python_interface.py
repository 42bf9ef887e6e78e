"""What a model in Python finds in triton_python_backend_utils besides requests and responses: tensors by DLPack and of BF16,
requests that are executed again, and all names that Triton's module has."""
import queue

import ml_dtypes
import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1, python_models
from lib.python_models import DOES, FLAGS, Client, tensor


@pytest.fixture
def running(start_server, tmp_path):
    def run(*flags, **models):
        for name, (source, config) in models.items():
            python_models.write(tmp_path / "models", name, source, config)
        python_models.write(tmp_path / "models", "other", "does", DOES)
        return start_server("--model-repository", tmp_path / "models", *FLAGS, *flags, grpc=("127.0.0.1:0",))
    return run


# ---- requests that are executed again ------------------------------------------------------------

AGAIN = (tensor("input", "N", "INT32", [1]) + tensor("output", "OUT", "INT32", [1]))
ITERATIVE = "sequence_batching { iterative_sequence: true }\n"


def ask_again(client, model, n, identifier):
    return client.infer(model, {"N": numpy.array([n], numpy.int32)}, request_id=identifier).as_numpy("OUT").tolist()


def test_requests_are_executed_again(running):
    server = running(again=("again", AGAIN + ITERATIVE))
    for protocol in ("http", "grpc"):
        client = Client(server, protocol)
        for n in (1, 2, 50):
            assert ask_again(client, "again", n, f"{protocol}{n}") == [n]


def test_decoupled_requests_are_executed_again(running):
    server = running(again=("again", AGAIN + ITERATIVE + "model_transaction_policy { decoupled: true }\n"))
    client = tritonclient.grpc.InferenceServerClient(server.grpc_address)
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for n in (1, 3, 20):
        inputs = [tritonclient.grpc.InferInput("N", [1], "INT32")]
        inputs[0].set_data_from_numpy(numpy.array([n], numpy.int32))
        client.async_stream_infer("again", inputs, request_id=str(n))
        for i in range(n):
            result, error = answers.get(timeout=http1.PATIENCE)
            assert error is None and result.as_numpy("OUT").tolist() == [i + 1]
    client.stop_stream()


def test_requests_that_cannot_be_executed_again_are_errors(running):
    server = running(plain=("again", AGAIN), it_flags=("again", AGAIN + ITERATIVE), it_response=("again", AGAIN + ITERATIVE))
    client = Client(server)
    for model, expected in (("plain", "iterative_sequence: true"), ("it_flags", "set_release_flags: expected"),
                            ("it_response", "a request that is rescheduled has no response yet")):
        with pytest.raises(InferenceServerException) as caught:
            ask_again(client, model, 2, model)
        assert expected in caught.value.message()
    assert ask_again(client, "plain", 1, "one") == [1] and client.ask("other", "fine") == "fine"


# ---- tensors -------------------------------------------------------------------------------------

BF16 = """
import ml_dtypes
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            assert array.dtype == ml_dtypes.bfloat16 and request.inputs()[0].triton_dtype() == 14
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", (array * 2).astype(array.dtype))]))
        return responses
"""


@pytest.mark.parametrize("n", [0, 3, 100_000])  # in the message, and in shared memory
def test_bf16_has_the_dtype_of_ml_dtypes(running, n):
    server = running(bf16=(BF16, tensor("input", "IN", "BF16", [-1]) + tensor("output", "OUT", "BF16", [-1])))
    values = (numpy.arange(n) % 100).astype(ml_dtypes.bfloat16)
    for protocol in ("http", "grpc"):
        got = Client(server, protocol).infer("bf16", {"IN": values}).as_numpy("OUT")
        assert got.dtype == ml_dtypes.bfloat16 and got.shape == (n,) and (got == values * 2).all()


DLPACK = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = request.inputs()[0]
            assert tensor.is_cpu() and tensor.__dlpack_device__() == (1, 0)
            taken = np.from_dlpack(tensor)
            assert np.shares_memory(taken, tensor.as_numpy()) and taken.dtype == tensor.as_numpy().dtype
            again = pb_utils.Tensor.from_dlpack("AGAIN", tensor.to_dlpack())  # a capsule
            made = pb_utils.Tensor.from_dlpack("OUT", taken * np.array(2, taken.dtype))
            assert again.name() == "AGAIN" and np.shares_memory(again.as_numpy(), taken)
            assert made.shape() == tensor.shape() and made.triton_dtype() == tensor.triton_dtype()
            for text in ("BYTES", "BF16"):
                try:
                    pb_utils.Tensor._of("T", {"BYTES": 13, "BF16": 14}[text], np.array([b"x"])).to_dlpack()
                except pb_utils.TritonModelException as error:
                    assert text in str(error)
                else:
                    raise AssertionError(text)
            responses.append(pb_utils.InferenceResponse([made]))
        return responses
"""


@pytest.mark.parametrize("kind", ["FP16", "FP32", "FP64", "INT8", "INT64", "UINT16", "UINT64"])
def test_tensors_go_by_dlpack_both_ways(running, kind):
    server = running(dlpack=(DLPACK, tensor("input", "IN", kind, [-1, 2]) + tensor("output", "OUT", kind, [-1, 2])))
    dtype = {"FP": "float", "IN": "int", "UI": "uint"}[kind[:2]] + kind.lstrip("FPUINT")
    for n in (1, 20_000):
        array = (numpy.arange(2 * n) % 50).astype(dtype).reshape(n, 2)
        assert (Client(server).infer("dlpack", {"IN": array}).as_numpy("OUT") == array * 2).all()


# ---- what Triton takes, too ----------------------------------------------------------------------

CONVERTS = """
import numpy as np
import triton_python_backend_utils as pb_utils

MADE = {"sum": np.array([1, 2], np.int32).sum(keepdims=True), "mean": np.array([0.5], np.float64),
        "unsigned": np.array([7], np.uint64), "too large": np.array([1 << 40]), "negative": np.array([-1]),
        "infinite": np.array([1e300]), "float": np.array([1.5]), "text": np.array(["x"], dtype=object)}


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(b"OUT", MADE[pb_utils.get_input_tensor_by_name(
            request, b"IN").as_numpy()[0].decode()])]) for request in requests]
"""


def test_outputs_of_the_same_kind_are_converted(running):
    """numpy makes INT64 of a sum and FP64 of a mean. What would lose values is an error, as another kind is."""
    config = tensor("input", "IN", "BYTES", [1])
    server = running(**{f"as_{kind.lower()}": (CONVERTS, config + tensor("output", "OUT", kind, [1]))
                        for kind in ("INT32", "UINT8", "FP32", "INT64")})
    client = Client(server)

    def ask(kind, word):
        return client.infer(f"as_{kind}", {"IN": numpy.array([word.encode()], dtype=object)}).as_numpy("OUT")
    for kind, word, value in (("int32", "sum", 3), ("int32", "unsigned", 7), ("uint8", "unsigned", 7), ("fp32", "mean", 0.5),
                              ("fp32", "sum", 3), ("int64", "sum", 3), ("int64", "unsigned", 7)):
        answer = ask(kind, word)
        assert answer.dtype == numpy.dtype(kind.replace("fp", "float")) and answer.tolist() == [value], (kind, word)
    for kind, word in (("int32", "too large"), ("uint8", "negative"), ("int32", "float"), ("fp32", "infinite"),
                       ("fp32", "text"), ("int64", "text")):
        with pytest.raises(InferenceServerException, match="the configuration says"):
            ask(kind, word)
    assert ask("int32", "sum").tolist() == [3]
    said = [line for line in server.log_text().splitlines() if "it is converted (logged once)" in line and '"as_int32"' in line]
    assert len(said) == 1, said


# ---- names ---------------------------------------------------------------------------------------

# What Triton's module exports, and the methods of its classes.
NAMES = """
InferenceRequest InferenceResponse Logger MetricFamily ModelConfig PreferredMemory Tensor TritonError TritonModelException
TRITONSERVER_MEMORY_CPU TRITONSERVER_MEMORY_GPU TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START TRITONSERVER_REQUEST_RELEASE_ALL TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
TRITONSERVER_RESPONSE_COMPLETE_FINAL TRITON_STRING_TO_NUMPY deserialize_bytes_tensor get_input_config_by_name
get_input_tensor_by_name get_model_dir get_output_config_by_name get_output_tensor_by_name numpy_to_triton_type
serialize_byte_tensor triton_string_to_numpy triton_to_numpy_type using_decoupled_model_transaction_policy
InferenceRequest.correlation_id InferenceRequest.flags InferenceRequest.get_response_sender InferenceRequest.inputs
InferenceRequest.is_cancelled InferenceRequest.parameters InferenceRequest.request_id
InferenceRequest.requested_output_names InferenceRequest.set_flags InferenceRequest.set_release_flags
InferenceRequest.timeout InferenceRequest.trace InferenceResponse.error InferenceResponse.has_error
InferenceResponse.output_tensors InferenceResponse.parameters Logger.ERROR Logger.INFO Logger.VERBOSE Logger.WARNING
Logger.log Logger.log_error Logger.log_info Logger.log_verbose Logger.log_warn MetricFamily.COUNTER MetricFamily.GAUGE
MetricFamily.HISTOGRAM MetricFamily.Metric ModelConfig.add_input ModelConfig.add_output ModelConfig.as_dict
ModelConfig.set_dynamic_batching ModelConfig.set_max_batch_size ModelConfig.set_model_transaction_policy
Tensor.__dlpack__ Tensor.__dlpack_device__ Tensor.as_numpy Tensor.from_dlpack Tensor.is_cpu Tensor.name Tensor.shape
Tensor.to_dlpack Tensor.triton_dtype TritonError.ALREADY_EXISTS TritonError.CANCELLED TritonError.INTERNAL
TritonError.INVALID_ARG TritonError.NOT_FOUND TritonError.UNAVAILABLE TritonError.UNKNOWN TritonError.UNSUPPORTED
TritonError.code TritonError.message
""".split()

HAS = """
import numpy as np
import triton_python_backend_utils as pb_utils

def has(name):
    found = pb_utils
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            names = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy().ravel()[0].decode().split()
            missing = [name for name in names if not has(name)]
            assert request.trace().get_context() is None
            pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)
            assert pb_utils.TRITON_STRING_TO_NUMPY["TYPE_FP32"] is np.float32
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[" ".join(missing)]], object))]))
        return responses
"""


def test_every_name_of_tritons_module_is_there(running):
    server = running(has=(HAS, DOES))
    assert Client(server).ask("has", " ".join(NAMES)) == ""
    assert Client(server).ask("has", "TritonError.NO_SUCH no_such") == "TritonError.NO_SUCH no_such"

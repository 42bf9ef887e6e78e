"""Models for tests of ensembles, and a server of them with a client for each protocol."""
import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from lib import metrics, repository
from lib.repository import Identity


# ---- models --------------------------------------------------------------------------------------

def write_affine(folder, name, scale, offset, max_batch_size=8, version="1"):
    """y = x * scale + offset, for rows of four."""
    value = helper.make_tensor_value_info
    repository.save_onnx(
        str(folder / name / version / "model.onnx"), name,
        [helper.make_node("Mul", ["x", "scale"], ["scaled"]),
         helper.make_node("Add", ["scaled", "offset"], ["y"])],
        [value("x", TensorProto.FLOAT, ["N", 4])], [value("y", TensorProto.FLOAT, ["N", 4])],
        [("scale", numpy.array([scale], numpy.float32)),
         ("offset", numpy.array([offset], numpy.float32))])
    (folder / name / "config.pbtxt").write_text(
        f'platform: "onnxruntime_onnx"\nmax_batch_size: {max_batch_size}\n'
        'version_policy { all { } }\n')


def write_sum(folder, name):
    """total = left + right, and difference = left - right, for rows of four."""
    value = helper.make_tensor_value_info
    row = [TensorProto.FLOAT, ["N", 4]]
    repository.save_onnx(
        str(folder / name / "1" / "model.onnx"), name,
        [helper.make_node("Add", ["left", "right"], ["total"]),
         helper.make_node("Sub", ["left", "right"], ["difference"])],
        [value("left", *row), value("right", *row)],
        [value("total", *row), value("difference", *row)])
    (folder / name / "config.pbtxt").write_text(
        'platform: "onnxruntime_onnx"\nmax_batch_size: 8\n')


def tensor(kind, name, datatype="FP32", dims="4", more=""):
    return f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ] {more} }}\n'


def step(model, inputs, outputs, version=-1):
    """`inputs` and `outputs`: the member's tensor → the ensemble's."""
    maps = [f'{kind} {{ key: "{key}" value: "{value}" }}'
            for kind, entries in (("input_map", inputs), ("output_map", outputs))
            for key, value in entries.items()]
    return f'  step {{ model_name: "{model}" model_version: {version}\n    ' + "\n    ".join(maps) + " }\n"


def ensemble(ends, *steps, max_batch_size=8, more="", scheduling=""):
    return (f'platform: "ensemble"\nmax_batch_size: {max_batch_size}\n{ends}{more}'
            f'ensemble_scheduling {{\n{scheduling}{"".join(steps)}}}\n')


def write_ensemble(folder, name, config, versions=("1",)):
    for version in versions:
        (folder / name / version).mkdir(parents=True, exist_ok=True)
    (folder / name / "config.pbtxt").write_text(config)


ENDS = tensor("input", "IN") + tensor("output", "OUT")
CHAIN = ensemble(ENDS, step("double", {"x": "IN"}, {"y": "doubled"}),
                 step("add_one", {"x": "doubled"}, {"y": "OUT"}))
# IN goes to two members at once, and what they make to a third.
DIAMOND = ensemble(tensor("input", "IN") + tensor("output", "TOTAL") + tensor("output", "DIFFERENCE"),
                   step("double", {"x": "IN"}, {"y": "left"}),
                   step("add_one", {"x": "IN"}, {"y": "right"}),
                   step("sum", {"left": "left", "right": "right"},
                        {"total": "TOTAL", "difference": "DIFFERENCE"}))
ROW = numpy.array([[1, 2, 3, 4]], numpy.float32)


def write_models(folder):
    write_affine(folder, "double", 2, 0)
    write_affine(folder, "add_one", 1, 1)
    write_sum(folder, "sum")
    Identity("pass", [("FP32", [4])], max_batch_size=8).write(folder)
    write_ensemble(folder, "chain", CHAIN)  # before its members in the alphabet
    write_ensemble(folder, "diamond", DIAMOND)


class Live:
    def __init__(self, start_server, folder, *args):
        self.folder = folder
        self.server = start_server("--model-repository", folder, *args, grpc=("127.0.0.1:0",))
        self.http = triton_http.InferenceServerClient(self.server.address, concurrency=4)
        self.grpc = triton_grpc.InferenceServerClient(self.server.grpc_address)

    def close(self):
        self.http.close()
        self.grpc.close()

    def infer(self, name, inputs, outputs=None, protocol="http", class_count=0, **more):
        """`inputs`: name → array. Returns: name → array."""
        module = {"http": triton_http, "grpc": triton_grpc}[protocol]
        made = []
        for key, array in inputs.items():
            datatype = "BYTES" if array.dtype == numpy.object_ else \
                {"float32": "FP32", "int32": "INT32", "int64": "INT64"}[array.dtype.name]
            made.append(module.InferInput(key, array.shape, datatype))
            made[-1].set_data_from_numpy(array)
        wanted = outputs and [module.InferRequestedOutput(key, class_count=class_count) for key in outputs]
        got = getattr(self, protocol).infer(name, made, outputs=wanted, **more)
        response = got.get_response()
        names = [output["name"] if protocol == "http" else output.name
                 for output in (response["outputs"] if protocol == "http" else response.outputs)]
        return {key: got.as_numpy(key) for key in names}

    def refusal(self, name, inputs=None, **more):
        with pytest.raises(InferenceServerException) as failure:
            self.infer(name, {"IN": ROW} if inputs is None else inputs, **more)
        return failure.value

    def statistics(self, name):
        return self.http.get_inference_statistics(name)["model_stats"][0]

    def index(self, name):
        rows = [row for row in self.http.get_model_repository_index() if row["name"] == name]
        return rows[0].get("state", ""), rows[0].get("reason", "")


def write_stream(folder, **parameters):
    Identity("many", [("FP32", [4])], max_batch_size=8,
             parameters={"responses_by_request": "true", **parameters},
             more=repository.DECOUPLE).write(folder)


def starts(start_server, tmp_path):
    """Starts a server with what a function writes into its folder."""
    opened = []

    def start(write, *args):
        folder = tmp_path / "models"
        folder.mkdir(exist_ok=True)
        write(folder)
        opened.append(Live(start_server, folder, *args))
        return opened[-1]

    yield start
    for made in opened:
        made.close()
        metrics.wait_at_rest(made.server.address)

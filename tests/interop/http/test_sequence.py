"""Sequences, as the reference's own clients ask for them: requests of one sequence reach one row of one
instance, in order, and the model is told where in its sequence each is."""
import json
import os

import onnx
import pytest
from google.protobuf import json_format
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, sequences
from lib.sequences import Client, adder
from lib.server import run

OLDEST = "oldest { max_candidate_sequences: 4 }"
MODELS = {
    "direct": adder(more="instance_group { count: 2 }"),
    "direct_fp32": adder(pair="fp32_false_true: [ 0, 1 ]", corrid="TYPE_INT64"),
    "direct_bool": adder(pair="bool_false_true: [ false, true ]", corrid="TYPE_UINT32"),
    "direct_one": adder(max_batch_size=0, corrid="TYPE_UINT64"),
    "direct_text": adder(corrid="TYPE_STRING"),
    "oldest": adder(OLDEST, corrid="TYPE_UINT64", more="instance_group { count: 2 }"),
    "oldest_text": adder(OLDEST, corrid="TYPE_STRING"),
}
TEXT = ("direct_text", "oldest_text")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return sequences.make(tmp_path_factory.mktemp("sequences"), MODELS)


@pytest.fixture
def running(start_server, models):
    """A server whose gauges are looked at when the test is over, and which answers then."""
    server = start_server(*models, grpc=("127.0.0.1:0",))
    yield server
    last = Client("http", server)
    assert last.add("direct", 99, 1, start=True)["SUM"] == 1
    assert last.add("direct", 99, 2, end=True)["SUM"] == 3
    last.close()
    metrics.wait_at_rest(server.address, server.arenas)


@pytest.fixture(params=["http", "grpc"])
def client(request, running):
    client = Client(request.param, running)
    yield client
    client.close()


def identifier(model, number):
    return f"number {number}" if model in TEXT else number


def test_check_prints_sequence_batching(models):
    done = run("serve", "--check", *models)
    assert done.returncode == 0
    for line in ("sequences  direct: 4 per instance, closed after 60000000 us without a request",
                 "sequences  oldest: 4 per instance", "sequences  direct: 1 per instance",
                 "START  INT32, whether a request begins its sequence", "READY  BOOL, whether there is a request",
                 "CORRID  BYTES, the sequence's identifier"):
        assert line in done.stdout


# ---- sums ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("model", MODELS)
def test_sequence_start_to_end(client, model):
    one = identifier(model, 1)
    assert client.add(model, one, 5, start=True)["SUM"] == 5
    assert client.add(model, one, 6)["SUM"] == 11
    assert client.add(model, one, 7, end=True)["SUM"] == 18
    assert client.add(model, one, 1, start=True, end=True)["SUM"] == 1


@pytest.mark.parametrize("model", [name for name in MODELS if name != "direct_one"])
def test_sequences_interleaved(client, model):
    """Each has a place of its own, wherever the one before it left a hole."""
    for number in range(1, 5):
        assert client.add(model, identifier(model, number), number, start=True)["SUM"] == number
    for _ in range(3):
        for number in range(4, 0, -1):
            client.add(model, identifier(model, number), 10)
    client.add(model, identifier(model, 2), 0, end=True)
    assert client.add(model, identifier(model, 5), 500, start=True)["SUM"] == 500
    assert client.add(model, identifier(model, 4), 0, end=True)["SUM"] == 34
    assert client.add(model, identifier(model, 5), 0, end=True)["SUM"] == 500
    assert client.add(model, identifier(model, 1), 0, end=True)["SUM"] == 31
    assert client.add(model, identifier(model, 3), 0, end=True)["SUM"] == 33


def test_sequence_direct_keeps_row(client):
    """Direct: those before it in the batch are filled up when they have nothing to say."""
    places = {}
    for number in range(1, 9):
        said = client.add("direct", number, number, start=True)
        places[number] = said["INSTANCE"], said["ROW"]
    assert sorted(places.values()) == [(i, row) for i in range(2) for row in range(4)]
    for number in range(8, 0, -1):
        said = client.add("direct", number, 1, end=True)
        assert (said["INSTANCE"], said["ROW"]) == places[number]
        assert said["ROWS"] == said["ROW"] + 1
        assert said["SUM"] == number + 1


def test_sequence_64_bit_id(client):
    for number in (2**32 + 1, 2**32 + 2, 2**63 - 1):
        assert client.add("direct_one", number, 3, start=True)["SUM"] == 3
        assert client.add("direct_one", number, 4, end=True)["SUM"] == 7


# ---- ONNX ----------------------------------------------------------------------------------------

def write_onnx(folder):
    """A model without memory that tells what it was told: SUM = INPUT + 1000 START + 2000 END + 4000 READY
    + 10000 CORRID, in INT32."""
    names, weights = ("START", "END", "READY", "CORRID"), (1000, 2000, 4000, 10000)
    nodes, last = [], "INPUT"
    for name, weight in zip(names, weights):
        nodes += [helper.make_node("Constant", [], [f"{name}_weight"], value_int=weight),
                  helper.make_node("Cast", [f"{name}_weight"], [f"{name}_cast"], to=TensorProto.INT32),
                  helper.make_node("Mul", [name, f"{name}_cast"], [f"{name}_part"]),
                  helper.make_node("Add", [last, f"{name}_part"], [f"{name}_sum"])]
        last = f"{name}_sum"
    nodes.append(helper.make_node("Identity", [last], ["SUM"]))
    tensors = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N", 1])
               for name in ("INPUT", *names, "SUM")]
    model = helper.make_model(helper.make_graph(nodes, "told", tensors[:-1], tensors[-1:]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    os.makedirs(os.path.join(folder, "told", "1"))
    onnx.save(model, os.path.join(folder, "told", "1", "model.onnx"))
    controls = [sequences.control(name, kind, "int32_false_true: [ 0, 1 ]")
                for name, kind in sequences.FLAGS.items()]
    controls.append(sequences.control("CORRID", "CONTROL_SEQUENCE_CORRID", "data_type: TYPE_INT32"))
    with open(os.path.join(folder, "told", "config.pbtxt"), "w", encoding="utf-8") as file:
        file.write("\n".join(["max_batch_size: 4", "sequence_batching {", *controls, "}", ""]))


def test_sequence_onnx_control_inputs(start_server, tmp_path):
    write_onnx(tmp_path / "models")
    server = start_server("--model-repository", tmp_path / "models", grpc=("127.0.0.1:0",))
    with Client("http", server) as client:
        def ask(sequence, **flags):
            result = client.client.infer("told", client.inputs("told", 7), sequence_id=sequence,
                                         **flags)
            return result.as_numpy("SUM").ravel().tolist()
        assert ask(3, sequence_start=True) == [35007]
        assert ask(4, sequence_start=True) == [45007]
        assert ask(4) == [44007]  # a filler before it
        assert ask(3, sequence_end=True) == [36007]
        assert ask(4, sequence_end=True) == [46007]
        assert [tensor["name"] for tensor in client.client.get_model_metadata("told")["inputs"]] \
            == ["INPUT"]
    metrics.wait_at_rest(server.address, server.arenas)


# ---- configuration -------------------------------------------------------------------------------

def test_sequence_config_json_equals_protobuf(running):
    """What the server tells can be read again, by it and by protobuf."""
    http, grpc = Client("http", running), Client("grpc", running)
    for model in MODELS:
        told = http.client.get_model_config(model)["sequence_batching"]
        message = grpc.client.get_model_config(model).config.sequence_batching
        whole = json_format.Parse(json.dumps(told), type(message)())
        assert whole == message
        assert message.max_sequence_idle_microseconds == 60000000
    metadata = http.client.get_model_metadata("oldest")
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["INPUT"]
    assert "sequence" in http.client.get_server_metadata()["extensions"]
    assert "sequence" in grpc.client.get_server_metadata().extensions
    http.close(), grpc.close()


# ---- what is refused -----------------------------------------------------------------------------

REFUSED = [
    ("direct", 0, {}, "sequence_id"),
    ("direct", "", {}, "sequence_id"),
    ("direct", 7, {}, "inference request for sequence 7 to model 'direct' must specify the START flag"),
    ("direct", "seven", {}, "sequence \"seven\" to model"),
    ("direct", 7, {"end": True}, "sequence_start"),
    ("direct", "x" * 129, {"start": True}, "128 bytes"),
    ("direct_text", 7, {"start": True}, "is a number"),
    ("oldest", "seven", {"start": True}, "is text"),
]


@pytest.mark.parametrize("model, sequence, flags, words", REFUSED)
def test_request_without_sequence_is_refused(client, model, sequence, flags, words):
    with pytest.raises(InferenceServerException) as caught:
        client.add(model, sequence, 1, **flags)
    assert words in caught.value.message()
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_sequence_ended_is_not_open(client):
    client.add("oldest", 7, 1, start=True, end=True)
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        client.add("oldest", 7, 1)


def test_sequence_request_of_two_rows_is_refused(client):
    with pytest.raises(InferenceServerException, match="batch-size 1 .*; this one has 2 rows"):
        client.client.infer("direct", client.inputs("direct", 1, rows=2), sequence_id=7,
                            sequence_start=True)


@pytest.mark.parametrize("parameters, words", [
    ({"sequence_id": -1, "sequence_start": True}, "not negative"),
    ({"sequence_id": 1.5, "sequence_start": True}, "whole number"),
    ({"sequence_id": True, "sequence_start": True}, "whole number"),
    ({"sequence_id": 1, "sequence_start": 1}, "true or false"),
    ({"sequence_id": 1, "sequence_start": True, "sequence_end": "yes"}, "true or false"),
    ({}, "must specify a non-zero"),
])
def test_sequence_parameter_of_wrong_type_is_400(running, parameters, words):
    body = {"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1]}],
            "parameters": parameters}
    answer = http1.request(running.address, "POST", "/v2/models/direct/infer",
                           json.dumps(body).encode())
    assert answer.status == 400
    assert words in json.loads(answer.body)["error"]

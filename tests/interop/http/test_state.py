"""State that the server keeps for the sequences of a model: what one request leaves is an input of the next,
of the same sequence, in whatever batch; clients do not see it."""
import struct

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from google.protobuf import json_format
from onnx import TensorProto
from tritonclient.utils import InferenceServerException

from lib import stateful
from lib.server import Server, run
from lib.stateful import Client, config, initial, state

OLDEST = "oldest { max_candidate_sequences: 4 }"
TYPES = {"INT8": TensorProto.INT8, "UINT16": TensorProto.UINT16, "INT64": TensorProto.INT64, "UINT64": TensorProto.UINT64,
         "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE}
FIRST_TEXTS = b"".join(struct.pack("<I", len(text)) + text for text in (b"a", b""))


def strategies(name, model, states, batch=True, **options):
    """The same model with each strategy and each setting of the buffers."""
    rows = 4 if batch else 0
    same = [text.replace(" }", " use_same_buffer_for_input_output: true use_growable_memory: true }", 1)
            if "initial_state" not in text else text for text in states]
    return {f"{name}_direct": (model, config(states, rows, **options)),
            f"{name}_oldest": (model, config(same, rows, OLDEST, **options))}


def typed(name, number):
    states = [state("TOTAL", "NEW_TOTAL", name, [1]), state("BEFORE", "NEW_BEFORE", name, [1])]
    return stateful.adder(number), config(states)


MODELS = {
    **strategies("sum", stateful.adder(), stateful.ADDER_STATES),
    **strategies("sum_one", stateful.adder(batch=False), stateful.ADDER_STATES, batch=False),
    **strategies("order", stateful.adder(first="NEW_TOTAL"), stateful.ADDER_STATES[::-1]),
    **{f"sum_{name.lower()}": typed(name, number) for name, number in TYPES.items()},
    "two": (stateful.adder(), config(stateful.ADDER_STATES, more="instance_group { count: 2 }")),
    "picks": (stateful.picker(), config([state("OLD", "NEW", "INT64", [1])])),
    "grows": (stateful.collector(), config([state("OLD", "NEW", "FP32", [-1])], 0)),
    "grows_rows": (stateful.collector(True), config([state("OLD", "NEW", "FP32", [-1])], 4, OLDEST)),
    "grows_from_file": (stateful.collector(True), config(
        [state("OLD", "NEW", "FP32", [-1], initial("FP32", [3], 'data_file: "three"'))])),
    "grows_from_zeros": (stateful.collector(True), config([state("OLD", "NEW", "FP32", [-1], initial("FP32", [2]))])),
    "texts": (stateful.speaker(), config([state("OLD", "NEW", "STRING", [2])])),
    "texts_from_file": (stateful.speaker(), config(
        [state("OLD", "NEW", "STRING", [2], initial("STRING", [2], 'data_file: "texts"'))])),
    "scalar": (stateful.scalar(), config([state("OLD", "NEW", "FP32", [1])], 0)),
    "shown": (stateful.adder(), config(stateful.ADDER_STATES, more="\n".join(
        ['input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }',
         *(f'output {{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ] }}' for name in ("SUM", "NEW_TOTAL"))]))),
}
ENSEMBLE = """platform: "ensemble"
max_batch_size: 4
input { name: "VALUE" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "TOTAL" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling { step { model_name: "sum_direct" model_version: -1
  input_map { key: "INPUT" value: "VALUE" } output_map { key: "SUM" value: "TOTAL" } } }
"""
FILES = {"grows_from_file": {"three": struct.pack("<3f", 1, 2, 3)}, "texts_from_file": {"texts": FIRST_TEXTS}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, (model, text) in MODELS.items():
        stateful.write(folder, name, model, text, FILES.get(name, {}))
    (folder / "ensemble" / "1").mkdir(parents=True)
    (folder / "ensemble" / "config.pbtxt").write_text(ENSEMBLE)
    return folder


@pytest.fixture(scope="module")
def running(tmp_path_factory, folder):
    with Server(tmp_path_factory.mktemp("server"), ["--model-repository", folder], grpc=("127.0.0.1:0",)) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def client(request, running):
    client = Client(request.param, running)
    yield client
    assert client.add("sum_direct", 99, 1, start=True) == [1, 0]
    assert client.add("sum_direct", 99, 2, end=True) == [3, 1]
    client.close()
    running.wait_at_rest()


# ---- values --------------------------------------------------------------------------------------

@pytest.mark.parametrize("model", [name for name in MODELS if name.startswith(("sum_", "order_", "two"))
                                   and name.rpartition("_")[2].upper() not in TYPES])
def test_state_of_interleaved_sequences_is_their_own(client, model):
    n = 1 if model == "sum_one_direct" else 4
    for i in range(1, n + 1):
        assert client.add(model, i, i, start=True) == [i, 0]
    for turn in range(1, 4):
        for i in range(n, 0, -1):
            assert client.add(model, i, 10) == [i + 10 * turn, i if turn == 1 else 10]
    for i in range(1, n + 1):
        assert client.add(model, i, 1, end=True) == [i + 31, 10]


@pytest.mark.parametrize("name", TYPES)
def test_state_has_any_datatype(client, name):
    dtype = numpy.dtype(name.lower().replace("fp", "float"))
    assert client.add(f"sum_{name.lower()}", 1, 3, dtype, start=True) == [3, 0]
    assert client.add(f"sum_{name.lower()}", 1, 4, dtype) == [7, 3]
    assert client.add(f"sum_{name.lower()}", 1, 5, dtype, end=True) == [12, 4]


@pytest.mark.parametrize("model", ["sum_direct", "sum_oldest"])
def test_state_start_gives_first_value(client, model):
    """Also where the sequence is open, and where its last request has ended it."""
    assert client.add(model, 7, 5, start=True) == [5, 0]
    assert client.add(model, 7, 5) == [10, 5]
    assert client.add(model, 7, 1, start=True) == [1, 0]
    assert client.add(model, 7, 1, end=True) == [2, 1]
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        client.add(model, 7, 1)
    assert client.add(model, 7, 3, start=True, end=True) == [3, 0]


def test_state_failed_execution_leaves_it(client):
    def pick(value, **flags):
        said = client("picks", 3, numpy.full((1, 1), value, numpy.int64), **flags)
        assert list(said) == ["OUT"]
        return said["OUT"].item()

    assert pick(1, start=True) == 20
    with pytest.raises(InferenceServerException, match="indices element out of data bounds"):
        pick(5)
    assert pick(0) == 20
    assert pick(1) == 30
    with pytest.raises(InferenceServerException, match="indices element out of data bounds"):
        pick(9, start=True)  # it began, so the value is the first one
    assert pick(0) == 10
    assert pick(2, end=True) == 30


def test_state_grows(client):
    sent = []
    for i in range(20):
        part = numpy.arange(i, dtype=numpy.float32)
        sent.append(part)
        said = client("grows", 1, part, start=i == 0, end=i == 19)
        assert list(said) == ["ALL"]
        numpy.testing.assert_array_equal(said["ALL"], numpy.concatenate([[0], *sent]))


@pytest.mark.parametrize("model, first", [("grows_rows", [0]), ("grows_from_file", [1, 2, 3]), ("grows_from_zeros", [0, 0])])
def test_state_of_unequal_shapes_beside_each_other(client, model, first):
    """Only rows with equal shapes share a batch."""
    for sequence in (1, 2, 3):
        said = client(model, sequence, numpy.full((1, sequence), sequence, numpy.float32), start=True)
        assert said["ALL"].ravel().tolist() == first + [sequence] * sequence
    for sequence in (1, 2, 3):
        said = client(model, sequence, numpy.full((1, 1), 9, numpy.float32), end=True)
        assert said["ALL"].ravel().tolist() == first + [sequence] * sequence + [9]


@pytest.mark.parametrize("model, first", [("texts", [b"", b""]), ("texts_from_file", [b"a", b""])])
def test_state_of_texts(client, model, first):
    said, expected = None, first
    for i, pair in enumerate([["x", ""], ["yy", "☃"], ["", "z" * 1000]]):
        expected = [old + new.encode() for old, new in zip(expected, pair)]
        said = client(model, 5, numpy.array([[text.encode() for text in pair]], numpy.object_), start=i == 0, end=i == 2)
        assert said["TEXT"].ravel().tolist() == expected


def test_state_without_dimensions(client):
    for i, total in enumerate([1, 3, 6]):
        said = client("scalar", 1, numpy.array(i + 1, numpy.float32), start=i == 0, end=i == 2)
        assert said["OUT"].tolist() == total


def test_state_of_a_member_of_an_ensemble(client):
    tensor = client.triton.InferInput("VALUE", [1, 1], "INT32")
    for i in range(1, 5):
        tensor.set_data_from_numpy(numpy.full((1, 1), i, numpy.int32))
        result = client.client.infer("ensemble", [tensor], sequence_id=5, sequence_start=i == 1, sequence_end=i == 4)
        assert result.as_numpy("TOTAL").item() == i * (i + 1) // 2


# ---- what clients see ----------------------------------------------------------------------------

def test_state_is_shown_in_configuration_only(running):
    client = triton_http.InferenceServerClient(running.address.removeprefix("http://"))
    metadata = client.get_model_metadata("sum_direct")
    assert [item["name"] for item in metadata["inputs"]] == ["INPUT"]
    assert sorted(item["name"] for item in metadata["outputs"]) == ["LAST", "SUM"]
    assert client.get_model_config("grows_from_file")["sequence_batching"]["state"] == [{
        "input_name": "OLD", "output_name": "NEW", "data_type": "TYPE_FP32", "dims": [-1],
        "initial_state": [{"data_type": "TYPE_FP32", "dims": [3], "data_file": "three", "name": "first"}],
        "use_same_buffer_for_input_output": False, "use_growable_memory": False}]
    grpc = triton_grpc.InferenceServerClient(running.grpc_address)
    message = grpc.get_model_config("sum_oldest").config.sequence_batching
    assert [item.input_name for item in message.state] == ["TOTAL", "BEFORE"]
    assert message.state[0].use_same_buffer_for_input_output and message.state[0].use_growable_memory
    said = json_format.MessageToDict(grpc.get_model_config("grows_from_zeros").config.sequence_batching.state[0])
    assert said["initialState"] == [{"dataType": "TYPE_FP32", "dims": ["2"], "zeroData": True, "name": "first"}]
    client.close()
    grpc.close()


def test_state_is_refused_as_input_and_output(client):
    with pytest.raises(InferenceServerException, match="NEW_TOTAL"):
        client("sum_direct", 1, numpy.zeros((1, 1), numpy.int32), start=True, end=True, wanted=["NEW_TOTAL"])
    tensors = []
    for name in ("INPUT", "TOTAL"):
        tensors.append(client.triton.InferInput(name, [1, 1], "INT32"))
        tensors[-1].set_data_from_numpy(numpy.zeros((1, 1), numpy.int32))
    with pytest.raises(InferenceServerException, match="TOTAL"):
        client.client.infer("sum_direct", tensors, sequence_id=1, sequence_start=True, sequence_end=True)


@pytest.mark.parametrize("wanted", [(), ("NEW_TOTAL", "SUM"), ("NEW_TOTAL",), ("SUM",)])
def test_state_that_is_an_output_is_shown(client, wanted):
    """As in Triton: an output of the configuration may be the output of a state, too."""
    total = 0
    for i in range(1, 5):
        total += i
        said = client("shown", 1, numpy.full((1, 1), i, numpy.int32), start=i == 1, end=i == 4, wanted=wanted)
        assert list(said) == list(wanted or ("SUM", "NEW_TOTAL"))
        assert {array.item() for array in said.values()} == {total}


def test_state_is_printed_by_check(folder):
    done = run("serve", "--check", "--model-repository", folder)
    assert done.returncode == 0, done.stderr
    assert "states     NEW  FP32 [-1,-1], becomes OLD" in done.stdout


# ---- configurations that do not fit --------------------------------------------------------------

BAD = {
    "input": (stateful.ADDER_STATES, 'input { name: "TOTAL" data_type: TYPE_INT32 dims: [ 1 ] }', {},
              ["config.pbtxt:", "sequence_batching.state[0]", '"TOTAL" is an input that clients send']),
    "control": ([*stateful.ADDER_STATES, 'control_input { name: "BEFORE" control { kind: CONTROL_SEQUENCE_START '
                 "int32_false_true: [ 0, 1 ] } }"], "", {}, ["state[1]", '"BEFORE" is a control_input']),
    "twice": ([stateful.ADDER_STATES[0]] * 2, "", {}, ["state[1]", "another state has the same"]),
    "nameless": (['state { output_name: "NEW_TOTAL" data_type: TYPE_INT32 dims: [ 1 ] }'], "", {},
                 ["sequence_batching.state", "has no input_name"]),
    "untyped": (['state { input_name: "TOTAL" output_name: "NEW_TOTAL" dims: [ 1 ] }'], "", {}, ["sequence_batching.state", "has no data_type"]),
    "no_dims": (['state { input_name: "TOTAL" output_name: "NEW_TOTAL" data_type: TYPE_INT32 }'], "", {},
                ["sequence_batching.state", "has no dims"]),
    "unknown_input": ([state("TOTALS", "NEW_TOTAL", "INT32", [1])], "", {},
                      ["sequence_batching.state[0] in config.pbtxt, line 4", 'input_name "TOTALS"', "no input of that name",
                       '"BEFORE", "INPUT", "TOTAL"']),
    "unknown_output": ([state("TOTAL", "NEW", "INT32", [1])], "", {}, ['output_name "NEW"', "no output of that name"]),
    "datatype": ([state("TOTAL", "NEW_TOTAL", "FP32", [1])], "", {}, ["TYPE_FP32, the model has TYPE_INT32"]),
    "shape": ([state("TOTAL", "NEW_TOTAL", "INT32", [2])], "", {}, ["shape [-1,2]", "the model has [-1,1]"]),
    "rank": ([state("TOTAL", "NEW_TOTAL", "INT32", [1, 1])], "", {}, ["shape [-1,1,1]", "the model has [-1,1]"]),
    "no_file": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [1], 'data_file: "none"'))], "", {},
                ["state[0] in config.pbtxt, line 4", "initial_state/none", "No such file"]),
    "short_file": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [1], 'data_file: "short"'))], "",
                   {"short": b"abc"}, ["initial_state/short has 3 bytes; expected 4"]),
    "long_file": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [1], 'data_file: "long"'))], "",
                  {"long": b"12345"}, ["initial_state/long has 5 bytes; expected 4"]),
    "outside": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [1], 'data_file: "../config.pbtxt"'))], "", {},
                ["data_file", "must not lead out of the model's directory"]),
    "two_sources": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [1], 'zero_data: true data_file: "x"'))], "", {},
                    ["initial_state", "expected one of zero_data: true and data_file"]),
    "no_source": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [1], ""))], "", {},
                  ["initial_state", "expected one of zero_data: true and data_file"]),
    "initial_type": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT64", [1]))], "", {},
                     ["initial_state", "data_type is TYPE_INT64, that of the state TYPE_INT32"]),
    "initial_dims": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [2]))], "", {},
                     ["initial_state", "dims are [2]", "the state, [1]"]),
    "initial_free": ([state("TOTAL", "NEW_TOTAL", "INT32", [-1], initial("INT32", [-1]))], "", {}, ["must be fixed, not -1"]),
    "initial_twice": ([state("TOTAL", "NEW_TOTAL", "INT32", [1], initial("INT32", [1]) * 2)], "", {},
                      ["initial_state", "expected at most one"]),
    "missing_input": ([stateful.ADDER_STATES[0]], 'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }', {},
                      ['needs input "BEFORE"']),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """The log of a server that has all of them, and a good one."""
    folder = tmp_path_factory.mktemp("bad")
    for name, (states, more, files, _) in BAD.items():
        stateful.write(folder, f"bad_{name}", stateful.adder(), config(states, more=more), files)
    large = [state("OLD", "NEW", "FP32", [-1], initial("FP32", [1 << 40]))]
    stateful.write(folder, "bad_large", stateful.collector(), config(large, 0))
    stateful.write(folder, "bad_texts", stateful.speaker(), config(
        [state("OLD", "NEW", "STRING", [2], initial("STRING", [2], 'data_file: "texts"'))]), {"texts": FIRST_TEXTS[:-1]})
    stateful.write(folder, "good", stateful.adder(), config(stateful.ADDER_STATES))
    with Server(tmp_path_factory.mktemp("server"), ["--model-repository", folder, "--strict-readiness", "false"]) as server:
        server.expect_error("model failed to load")
        yield server


@pytest.mark.parametrize("name, parts", [*((name, item[3]) for name, item in BAD.items()),
                                         ("large", ["first value is larger than 1073741824 bytes"]),
                                         ("texts", ["initial_state/texts", "OLD"])])
def test_state_bad_configuration_is_one_sentence(refused, name, parts):
    client = triton_http.InferenceServerClient(refused.address.removeprefix("http://"))
    reasons = {item["name"]: item.get("reason", "") for item in client.get_model_repository_index()}
    for part in parts:
        assert part in reasons[f"bad_{name}"]
    client.close()
    assert Client("http", refused).add("good", 1, 4, start=True, end=True) == [4, 0]

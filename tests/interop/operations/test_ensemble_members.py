"""Ensembles and their members: loaded in the right order, not ready while a member is missing or does not fit,
and ready again; loads and unloads by request; graphs that are wrong, each with its sentence, beside models
that serve."""
import json

import pytest
from tritonclient.utils import InferenceServerException

from lib import ensembles, http1
from lib.ensembles import (ENDS, ROW, Live, ensemble, step, tensor, write_ensemble, write_models, write_stream)
from lib.server import Server

EXPLICIT = ("--model-control-mode", "explicit")


@pytest.fixture(name="start")
def starter(start_server, tmp_path):
    yield from ensembles.starts(start_server, tmp_path)


def good(live, name="chain"):
    return (live.infer(name, {"IN": ROW})["OUT"] == ROW * 2 + 1).all()


def wait_index(live, name, state):
    live.server.wait_for(lambda: live.index(name)[0] == state, f"{name}: {state}")


def load_error(live, name, **more):
    with pytest.raises(InferenceServerException) as failure:
        live.http.load_model(name, **more)
    return failure.value.message()


# ---- members that come and go --------------------------------------------------------------------

def test_ensemble_is_not_ready_while_a_member_is_unloaded(start):
    live = start(write_models, *EXPLICIT, "--load-model", "*")
    assert good(live)
    live.http.unload_model("add_one")
    assert not live.http.is_model_ready("chain") and live.http.is_model_ready("diamond") is False
    state, reason = live.index("chain")
    assert state == "UNAVAILABLE"
    assert "config.pbtxt:9: ensemble_scheduling.step[1]: " in reason and "'add_one' has no available versions" in reason
    refused = live.refusal("chain")
    assert refused.status() == "503" and "'add_one' has no available versions" in refused.message()
    refused = live.refusal("chain", protocol="grpc")
    assert refused.status() == "StatusCode.UNAVAILABLE"
    live.http.load_model("add_one")
    assert live.http.is_model_ready("chain") and good(live)
    assert live.statistics("chain")["inference_count"] == 2  # they stay


def test_readiness_goes_through_ensembles_of_ensembles(start):
    def write(folder):
        write_models(folder)
        write_ensemble(folder, "a_outer", ensemble(ENDS, step("chain", {"IN": "IN"}, {"OUT": "OUT"})))

    live = start(write, *EXPLICIT, "--load-model", "*")
    assert good(live, "a_outer")
    live.http.unload_model("double")
    assert not live.http.is_model_ready("a_outer")
    assert 'ensemble "chain" is not ready: ' in live.index("a_outer")[1]
    live.http.load_model("double")
    assert good(live, "a_outer")


def test_member_that_no_longer_fits_makes_it_unready(start):
    live = start(write_models, *EXPLICIT, "--load-model", "*")
    path = live.folder / "pass" / "config.pbtxt"
    write_ensemble(live.folder, "relay", ensemble(ENDS, step("pass", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})))
    live.http.load_model("relay")
    was = path.read_text()
    path.write_text(was.replace("INPUT0", "OTHER"))
    live.http.load_model("pass")
    assert 'input_map: model "pass" has no input "INPUT0"' in live.index("relay")[1]
    path.write_text(was)
    live.http.load_model("pass")
    assert live.http.is_model_ready("relay")
    path.write_text(was + "model_transaction_policy { decoupled: true }")
    live.http.load_model("pass")
    assert "is decoupled now" in live.index("relay")[1]
    live.http.load_model("relay")
    assert live.http.get_model_config("relay")["model_transaction_policy"]["decoupled"] is True


def test_polling_sees_members_go_and_come(start):
    live = start(write_models, "--model-control-mode", "poll", "--repository-poll-secs", "1")
    assert good(live)
    (live.folder / "add_one").rename(live.folder.parent / "kept")
    live.server.wait_for(lambda: not live.http.is_model_ready("chain"), "chain without add_one")
    (live.folder.parent / "kept").rename(live.folder / "add_one")
    live.server.wait_for(lambda: live.http.is_model_ready("chain"), "chain with add_one")
    assert good(live)


def test_ensemble_that_failed_is_loaded_when_its_member_comes(start):
    def write(folder):
        write_models(folder)
        (folder / "add_one").rename(folder.parent / "kept")

    live = start(write, "--model-control-mode", "poll", "--repository-poll-secs", "1",
                 "--strict-readiness", "false")
    live.server.expect_error("model failed to load")
    assert 'unknown model "add_one"' in live.index("chain")[1]
    (live.folder.parent / "kept").rename(live.folder / "add_one")
    wait_index(live, "chain", "READY")
    assert good(live)


# ---- loads and unloads by request ----------------------------------------------------------------

def test_load_of_an_ensemble_loads_its_members(start):
    live = start(write_models, *EXPLICIT)
    assert not live.http.is_model_ready("double")
    live.http.load_model("diamond")
    assert [live.http.is_model_ready(name) for name in ("diamond", "double", "add_one", "sum", "chain")] \
        == [True, True, True, True, False]
    live.http.load_model("chain")
    assert good(live)


def test_unload_dependents_keeps_what_others_use_or_was_loaded_by_name(start):
    live = start(write_models, *EXPLICIT, "--load-model", "double")
    live.http.load_model("diamond")
    live.http.load_model("chain")
    live.http.unload_model("diamond", unload_dependents=True)
    ready = {name: live.http.is_model_ready(name) for name in ("double", "add_one", "sum", "chain")}
    assert ready == {"double": True, "add_one": True, "sum": False, "chain": True}
    live.grpc.unload_model("chain", unload_dependents=True)
    ready = {name: live.http.is_model_ready(name) for name in ("double", "add_one", "chain")}
    assert ready == {"double": True, "add_one": False, "chain": False}


def test_unload_without_dependents_keeps_members(start):
    live = start(write_models, *EXPLICIT)
    live.http.load_model("chain")
    live.http.unload_model("chain")
    assert live.http.is_model_ready("double") and not live.http.is_model_ready("chain")


def test_load_with_a_configuration_of_the_request(start):
    live = start(write_models, *EXPLICIT, "--load-model", "*")
    config = {"platform": "ensemble", "max_batch_size": 8,
              "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}],
              "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]}],
              "ensemble_scheduling": {"step": [
                  {"model_name": "double", "model_version": "-1", "input_map": {"x": "IN"},
                   "output_map": {"y": "OUT"}}]}}
    live.http.load_model("chain", config=json.dumps(config))
    assert (live.infer("chain", {"IN": ROW})["OUT"] == ROW * 2).all()
    live.http.unload_model("double")
    live.http.load_model("double")
    assert (live.infer("chain", {"IN": ROW})["OUT"] == ROW * 2).all()  # not what the directory has
    printed = live.http.get_model_config("chain")  # as printed, it can be given back
    live.http.load_model("chain", config=json.dumps(printed))
    assert (live.infer("chain", {"IN": ROW})["OUT"] == ROW * 2).all()


def test_one_loading_thread_loads_many_ensembles_in_any_order(start):
    def write(folder):
        write_models(folder)
        below = "chain"
        for number in range(12, 0, -1):  # each has the next one as its member
            name = f"a{number:02}"
            write_ensemble(folder, name, ensemble(ENDS, step(below, {"IN": "IN"}, {"OUT": "OUT"})))
            below = name

    live = start(write, "--model-load-thread-count", "1")
    assert good(live, "a01")


# ---- what is wrong with a graph ------------------------------------------------------------------

WIDE = tensor("input", "IN", dims="5") + tensor("output", "OUT")
WHOLE = tensor("input", "IN", "INT32") + tensor("output", "OUT")
IN_OUT = ({"x": "IN"}, {"y": "OUT"})
BROKEN = {
    "no step": (ensemble(ENDS), "ensemble_scheduling: expected at least one step"),
    "no scheduling": ('platform: "ensemble"\n' + ENDS, "expected at least one step"),
    "other platform": ('backend: "identity"\n' + ENDS + "ensemble_scheduling { step { model_name: \"double\" } }",
                       'expected platform: "ensemble"'),
    "unknown member": (ensemble(ENDS, step("doubel", *IN_OUT)),
                       'config.pbtxt:6: ensemble_scheduling.step: unknown model "doubel"; did you mean "double"?'),
    "unknown version": (ensemble(ENDS, step("double", *IN_OUT, version=3)),
                        "'double' version 3 is not found; it serves 1"),
    "unknown input": (ensemble(ENDS, step("double", {"xx": "IN"}, {"y": "OUT"})),
                      'step.input_map: model "double" has no input "xx"; did you mean "x"?'),
    "unknown output": (ensemble(ENDS, step("sum", {"left": "IN", "right": "IN"}, {"totl": "OUT"})),
                       'step.output_map: model "sum" has no output "totl"; did you mean "total"?'),
    "datatype": (ensemble(WHOLE, step("double", *IN_OUT)),
                 'tensor "IN" is INT32 in the ensemble and FP32 in model "double"'),
    "shape": (ensemble(WIDE, step("double", *IN_OUT)),
              'tensor "IN" has shape [-1,5] in the ensemble and [-1,4] in model "double"'),
    "batch size": (ensemble(ENDS, step("double", *IN_OUT), max_batch_size=9),
                   "the ensemble's max_batch_size is 9, that of model \"double\" is 8"),
    "batching member": (ensemble(tensor("input", "IN", dims="2, 2, 4") + tensor("output", "OUT"),
                                 step("double", *IN_OUT), max_batch_size=0),
                        "[-1,4] (with the batch dimension) in model \"double\""),
    "missing input": (ensemble(ENDS, step("sum", {"left": "IN"}, {"total": "OUT"})),
                      'model "sum" needs input "right", which no entry has'),
    "no such tensor": (ensemble(ENDS, step("double", {"x": "INN"}, {"y": "OUT"})),
                       '"INN" is no input of the ensemble, and no step makes it; did you mean "IN"?'),
    "output not made": (ensemble(ENDS + tensor("output", "MORE"), step("double", *IN_OUT)),
                        'no step makes output "MORE" of the ensemble'),
    "input not used": (ensemble(ENDS + tensor("input", "MORE"), step("double", *IN_OUT)),
                       'no step uses input "MORE" of the ensemble'),
    "made twice": (ensemble(ENDS, step("double", *IN_OUT), step("add_one", *IN_OUT)),
                   'step[1]: output_map: "OUT" is made by step[0] already'),
    "unused": (ensemble(ENDS, step("double", *IN_OUT), step("add_one", {"x": "IN"}, {"y": "idle"})),
               '"idle" is no output of the ensemble, and no step uses it'),
    "circle": (ensemble(ENDS, step("sum", {"left": "IN", "right": "b"}, {"total": "OUT", "difference": "a"}),
                        step("double", {"x": "a"}, {"y": "b"})), "a circle"),
    "itself": (ensemble(ENDS, step("bad", {"IN": "IN"}, {"OUT": "OUT"})),
               "an ensemble cannot be a member of itself"),
    "instances": (ensemble(ENDS, step("double", *IN_OUT), more="instance_group { count: 2 }\n"),
                  "instance_group: an ensemble has no instances of its own"),
    "batching": (ensemble(ENDS, step("double", *IN_OUT), more="dynamic_batching { }\n"),
                 "dynamic_batching: an ensemble has no instances of its own"),
    "decoupled twice": (ensemble(ENDS, step("many", {"INPUT0": "IN"}, {"OUTPUT0": "a"}),
                                 step("many", {"INPUT0": "IN"}, {"OUTPUT0": "b"}),
                                 step("sum", {"left": "a", "right": "b"}, {"total": "OUT"})),
                        'the inputs of model "sum" come from different decoupled models'),
    "cache of decoupled": (ensemble(ENDS, step("many", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"}),
                                    more="response_cache { enable: true }\n"), "can't be cached"),
    "no type": (ensemble('input { name: "IN" }\n' + tensor("output", "OUT"), step("double", *IN_OUT)),
                "input: an ensemble's input needs data_type and dims"),
    "long names": (ensemble(ENDS, step("d" * 300, {"x" * 300: "IN"}, {"y": "OUT"})), "unknown model"),
}


@pytest.fixture(name="explicit", scope="module")
def serve_explicit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensembles")
    models = folder / "models"
    write_models(models)
    write_stream(models)
    (folder / "server").mkdir()
    with Server(folder / "server", ["--model-repository", models, *EXPLICIT, "--load-model", "*"],
                grpc=("127.0.0.1:0",)) as server:
        live = Live(lambda *args, **options: server, models)
        yield live
        live.close()


@pytest.mark.parametrize("what", BROKEN)
def test_broken_graph_is_one_sentence_with_its_place(explicit, what):
    config, sentence = BROKEN[what]
    write_ensemble(explicit.folder, "bad", config)
    explicit.server.expect_error("model failed to load")
    message = load_error(explicit, "bad")
    assert sentence in message, message
    assert not explicit.http.is_model_ready("bad")
    assert sentence in explicit.index("bad")[1]
    assert good(explicit)


def test_circle_of_ensembles_is_found(explicit):
    for name, member in (("one", "two"), ("two", "three"), ("three", "one")):
        write_ensemble(explicit.folder, name, ensemble(ENDS, step(member, {"IN": "IN"}, {"OUT": "OUT"})))
    explicit.server.expect_error("model failed to load")
    names = ("one", "two", "three")
    for name in names:
        message = load_error(explicit, name)
        reasons = [message] + [explicit.index(other)[1] for other in names]  # a long chain is cut
        assert any("a circle" in reason for reason in reasons), reasons
    assert good(explicit)


def test_one_broken_ensemble_serves_the_others_at_start(start):
    def write(folder):
        write_models(folder)
        write_ensemble(folder, "bad", ensemble(ENDS, step("absent", *IN_OUT)))

    live = start(write, "--strict-readiness", "false")
    live.server.expect_error("model failed to load")
    assert good(live) and 'unknown model "absent"' in live.index("bad")[1]
    assert http1.request(live.server.address, "GET", "/v2/models/bad/ready").status != 200


# ---- labels of classes ---------------------------------------------------------------------------

def write_labelled(folder, name, labels):
    """`double` whose output has labels."""
    ensembles.write_affine(folder, name, 2, 0)
    (folder / name / "labels.txt").write_text("\n".join(labels), encoding="utf-8")
    with open(folder / name / "config.pbtxt", "a", encoding="utf-8") as config:
        config.write(tensor("input", "x") + tensor("output", "y", more='label_filename: "labels.txt"'))


@pytest.mark.parametrize("protocol", ("http", "grpc"))
def test_labels_of_members_are_those_of_outputs(start, protocol):
    def write(folder):
        write_models(folder)
        write_labelled(folder, "labelled", "abcd")
        middle = step("labelled", {"x": "IN"}, {"y": "MIDDLE"})
        last = step("add_one", {"x": "MIDDLE"}, {"y": "OUT"})
        write_ensemble(folder, "inner", ensemble(ENDS, step("labelled", {"x": "IN"}, {"y": "OUT"})))
        write_ensemble(folder, "outer", ensemble(ENDS, step("inner", {"IN": "IN"}, {"OUT": "OUT"})))
        write_ensemble(folder, "two", ensemble(ENDS + tensor("output", "MIDDLE"), middle, last))
        own = ENDS.replace('name: "OUT"', 'name: "OUT" label_filename: "own.txt"')
        write_ensemble(folder, "own", ensemble(own, step("labelled", {"x": "IN"}, {"y": "OUT"})))
        (folder / "own" / "own.txt").write_text("e\nf\ng\nh\n", encoding="utf-8")

    def classes(name, *outputs):
        got = live.infer(name, {"IN": ROW}, outputs or ("OUT",), protocol=protocol, class_count=1)
        return [got[output][0][0].decode() for output in outputs or ("OUT",)]

    live = start(write, *EXPLICIT, "--load-model", "*")
    assert classes("inner") == classes("outer") == ["8.000000:3:d"]
    assert classes("two", "MIDDLE", "OUT") == ["8.000000:3:d", "9.000000:3"]  # the last member has no labels
    assert classes("own") == ["8.000000:3:h"]
    (live.folder / "labelled" / "labels.txt").write_text("A\nB\nC\nD", encoding="utf-8")
    live.http.load_model("labelled")
    assert classes("outer") == ["8.000000:3:D"]

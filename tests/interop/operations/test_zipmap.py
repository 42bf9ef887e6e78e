"""Classifiers of scikit-learn as converters write them by default: ZipMap turns the probabilities into maps. The
output of that name is the tensor that goes into ZipMap, and the values are those that ONNX Runtime computes."""
import json

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from lib import http1
from lib.server import run

ROWS = [[1.0, 2.0], [-3.0, 0.5], [0.0, 0.0]]
REMEDY = "options={'zipmap': False}"
FLOAT = TensorProto.FLOAT


def maps(key):
    return helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, None)))


def classifier(name, labels, outputs=("label", "raw"), x="x"):
    """LinearClassifier of three classes."""
    return helper.make_node("LinearClassifier", [x], list(outputs), name=name, domain="ai.onnx.ml", multi_class=0,
                            post_transform="SOFTMAX", coefficients=[1.0, -1, 0.5, 0.5, -1, 1],
                            intercepts=[0.1, 0.2, 0.3], **labels)


INTEGERS = {"classlabels_ints": [0, 1, 2]}
STRINGS = {"classlabels_strings": ["a", "b", "c"]}


def zipmap(labels, given="raw", output="probabilities"):
    name = {"classlabels_ints": "classlabels_int64s"}
    return helper.make_node("ZipMap", [given], [output], name=f"zip_{output}", domain="ai.onnx.ml",
                            **{name.get(key, key): value for key, value in labels.items()})


def model(nodes, outputs, first=None, default_domain=True, **more):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", FLOAT, [first, 2])], outputs, **more)
    domains = [helper.make_opsetid("ai.onnx.ml", 3)] + [helper.make_opsetid("", 17)] * default_domain
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def label(first=None, kind=TensorProto.INT64):
    return helper.make_tensor_value_info("label", kind, [first])


def zipped(name="probabilities", key=TensorProto.INT64):
    return helper.make_value_info(name, maps(key))


def plain_if(name, value):
    """An If whose branches give that value of the outer graph."""
    def branch(output):
        made = helper.make_graph([helper.make_node("Identity", [value], [output])], output, [],
                                 [helper.make_tensor_value_info(output, FLOAT, None)])
        return made
    return helper.make_node("If", ["yes"], [name], then_branch=branch("then"), else_branch=branch("else"))


def yes():
    return helper.make_node("Constant", [], ["yes"],
                            value=helper.make_tensor("v", TensorProto.BOOL, [1], [True]))


def many():
    """Two classifiers and their ZipMap nodes, of which one is inside of the list of nodes and has a value_info; the
    tensor of the other is used by a subgraph, too."""
    nodes = [classifier("one", INTEGERS), zipmap(INTEGERS, output="first"),
             classifier("two", STRINGS, ("names", "raw2")), zipmap(STRINGS, "raw2", "second"),
             yes(), plain_if("third", "raw2")]
    return model(nodes, [label(), zipped("first"), zipped("second", TensorProto.STRING),
                         helper.make_tensor_value_info("third", FLOAT, [None, 3])], value_info=[zipped("first")])


SERVED = {
    "integers": (model([classifier("c", INTEGERS), zipmap(INTEGERS)], [label(), zipped()]), ["probabilities"], False),
    "strings": (model([classifier("c", STRINGS), zipmap(STRINGS)],
                      [label(kind=TensorProto.STRING), zipped(key=TensorProto.STRING)]), ["probabilities"], False),
    "batches": (model([classifier("c", INTEGERS), zipmap(INTEGERS)], [label("n"), zipped()], "n"),
                ["probabilities"], True),
    "alone": (model([classifier("c", INTEGERS), zipmap(INTEGERS)], [zipped()], default_domain=False),
              ["probabilities"], False),
    "many": (many(), ["first", "second"], False),
}


def in_subgraph():
    inner = helper.make_graph([zipmap(INTEGERS, "raw", "then")], "then", [], [zipped("then")])
    other = helper.make_graph([zipmap(INTEGERS, "raw", "else")], "else", [], [zipped("else")])
    return model([classifier("c", INTEGERS), yes(),
                  helper.make_node("If", ["yes"], ["probabilities"], then_branch=inner, else_branch=other)],
                 [label(), zipped()])


REFUSED = {"in_subgraph": in_subgraph()}


def expected(built, outputs):
    session = onnxruntime.InferenceSession(built.SerializeToString(), providers=["CPUExecutionProvider"])
    values = dict(zip([item.name for item in session.get_outputs()],
                      session.run(None, {"x": numpy.array(ROWS, numpy.float32)})))
    return {name: [list(row.values()) for row in values[name]] for name in outputs}


def test_zipmap_output_is_tensor_of_probabilities(start_server, tmp_path):
    for name, (built, _, _) in SERVED.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        onnx.save(built, str(tmp_path / "models" / name / "1" / "model.onnx"))
    server = start_server("--model-repository", tmp_path / "models")
    for name, (built, outputs, batches) in SERVED.items():
        metadata = json.loads(http1.request(server.address, "GET", f"/v2/models/{name}").body)
        shapes = {item["name"]: (item["datatype"], item["shape"]) for item in metadata["outputs"]}
        config = json.loads(http1.request(server.address, "GET", f"/v2/models/{name}/config").body)
        assert (config["max_batch_size"] > 0) == batches
        body = {"inputs": [{"name": "x", "shape": [3, 2], "datatype": "FP32", "data": ROWS}]}
        answer = http1.request(server.address, "POST", f"/v2/models/{name}/infer", json.dumps(body).encode())
        assert answer.status == 200, (name, answer)
        got = {item["name"]: item for item in json.loads(answer.body)["outputs"]}
        for output, values in expected(built, outputs).items():
            assert shapes[output] == ("FP32", [-1, 3]), (name, shapes)
            assert got[output]["shape"] == [3, 3]
            numpy.testing.assert_allclose(numpy.reshape(got[output]["data"], (3, 3)), values, rtol=1e-6)
    lines = [line for line in server.log_text().splitlines() if "ZipMap" in line]
    assert len(lines) == len(SERVED), lines
    for name in SERVED:
        assert sum(f'"model":"{name}"' in line for line in lines) == 1, lines


@pytest.mark.parametrize("name", REFUSED)
def test_zipmap_that_cannot_be_replaced_is_refused_with_remedy(tmp_path, name):
    onnx.save(REFUSED[name], str(tmp_path / f"{name}.onnx"))
    done = run("serve", "--check", tmp_path / f"{name}.onnx")
    assert done.returncode == 1 and REMEDY in done.stdout + done.stderr, done

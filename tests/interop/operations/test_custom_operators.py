"""Libraries of operators that a model names (model_operations): a tokenizer of onnxruntime-extensions serves texts,
and a library from anywhere else than the model's directory or one that the operator allows is not loaded."""
import base64
import importlib.util
import json
import os
import shutil
import sysconfig

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from onnxruntime_extensions import get_library_path

from lib import http1, metrics, repository, server as servers

LIBRARY = get_library_path()
# The library of the wheel expects Python's own to be there.
PRELOAD = ["env", "LD_PRELOAD=" + os.path.join(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))]
TEXTS = ["The cat sat on the mat.", "A dog was running", "", "ZEBRA"]


@pytest.fixture(scope="module")
def text():
    """examples/text/make.py"""
    path = os.path.join(servers.ROOT, "examples", "text", "make.py")
    spec = importlib.util.spec_from_file_location("make_text", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tokens_of(text, words):
    """By hand, of texts whose words are all in the vocabulary, or pieces of it, or unknown."""
    pieces = {"running": ["run", "[UNK]"], "sat": ["[UNK]"], "mat": ["[UNK]"]}
    number = {word: i for i, word in enumerate(words)}
    inner = [piece for word in text.lower().replace(".", " .").split() for piece in pieces.get(word, [word])]
    return [number["[CLS]"], *(number.get(piece, number["[UNK]"]) for piece in inner), number["[SEP]"]]


def infer(kind, address, model, inputs, output):
    """`inputs`: {name: array}. Returns: the output's array."""
    with kind.InferenceServerClient(address) as client:
        given = []
        for name, array in inputs.items():
            datatype = "BYTES" if array.dtype == object else "INT64"
            given.append(kind.InferInput(name, list(array.shape), datatype))
            given[-1].set_data_from_numpy(array)
        return client.infer(model, given).as_numpy(output)


def as_input(text):
    return {"text": numpy.array([text.encode()], dtype=object)}


def test_tokenizer_serves_over_http_and_grpc(start_server, tmp_path, text):
    models = tmp_path / "models"
    text.write(models, "tokenizer", text.make_tokenizer(), "ops.so")
    shutil.copy(LIBRARY, models / "tokenizer" / "ops.so")
    text.write(models, "of_version", text.make_tokenizer(), "ops.so")
    shutil.copy(LIBRARY, models / "of_version" / "1" / "ops.so")
    server = start_server("--model-repository", models, grpc=["127.0.0.1:0"], prefix=PRELOAD)
    for asked in ["the cat is in a house .", "", "zebra"]:
        expected = tokens_of(asked, text.WORDS)
        for model in ("tokenizer", "of_version"):
            for kind, address in ((tritonclient.http, server.address), (tritonclient.grpc, server.grpc_address)):
                assert infer(kind, address, model, as_input(asked), "input_ids").tolist() == expected
    metrics.wait_at_rest(server.address)


def test_text_becomes_embedding_in_ensemble(start_server, tmp_path, text):
    models = tmp_path / "models"
    text.write(models, "tokenizer", text.make_tokenizer(), LIBRARY)
    text.write(models, "encoder", text.make_encoder())
    text.write_embed(models)
    server = start_server("--model-repository", models, "--op-library-dir", tmp_path / "nothing",
                          "--op-library-dir", os.path.dirname(LIBRARY), grpc=["127.0.0.1:0"], prefix=PRELOAD)
    ask = lambda *args: infer(tritonclient.http, server.address, *args)
    found = {}
    for asked in TEXTS:
        ids = ask("tokenizer", as_input(asked), "input_ids")
        two = ask("encoder", {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}, "embedding")
        found[asked] = ask("embed", as_input(asked), "embedding")
        assert numpy.array_equal(found[asked], two)
        over_grpc = infer(tritonclient.grpc, server.grpc_address, "embed", as_input(asked), "embedding")
        assert numpy.array_equal(over_grpc, two)
        assert found[asked].shape == (text.SIZE,) and abs(numpy.linalg.norm(found[asked]) - 1) < 1e-5
    near, far = ask("embed", as_input("the cat on a mat"), "embedding"), found["A dog was running"]
    assert near @ found["The cat sat on the mat."] > far @ found["The cat sat on the mat."]


def write_refused(models, outside, text):
    """Returns: {model: what its error says}."""
    outside.mkdir()
    shutil.copy(LIBRARY, outside / "ops.so")
    neither = f"{outside}/ops.so, which is neither in the model's directory nor in one of --op-library-dir"
    cases = {"absolute": (str(outside / "ops.so"), neither),
             "dots": ("../../outside/ops.so", neither),
             "link": ("link.so", neither),
             "folder_link": ("folder/ops.so", neither),
             "missing": ("nothing.so", '"nothing.so": No such file'),
             "directory": ("1", "expected a regular file"),
             "pipe": ("pipe", "expected a regular file"),
             "broken": ("broken.so", "can't be used as a library of operators: "),
             "cut": ("cut.so", "cut.so is cut off: it has "),
             "other": ("other.so", "can't be used as a library of operators: ")}
    for name, (library, _) in cases.items():
        text.write(models, name, text.make_tokenizer(), library)
    os.symlink(outside / "ops.so", models / "link" / "link.so")
    os.symlink(outside, models / "folder_link" / "folder")
    os.mkfifo(models / "pipe" / "pipe")
    (models / "broken" / "broken.so").write_text("not a library", encoding="utf-8")
    with open(LIBRARY, "rb") as library:  # dlopen would map what is not there
        (models / "cut" / "cut.so").write_bytes(library.read(100000))
    shutil.copy(os.path.join(servers.build(), "backends", "libsluice_identity.so"), models / "other" / "other.so")
    text.write(models, "none", text.make_tokenizer())
    return {name: said for name, (_, said) in cases.items()} | {
        "none": "name its library in config.pbtxt (model_operations)"}


def test_library_elsewhere_or_broken_fails_its_model_alone(start_server, tmp_path, text):
    models = tmp_path / "models"
    expected = write_refused(models, tmp_path / "outside", text)
    repository.Identity("good", [("FP32", [-1])]).write(models)
    server = start_server("--model-repository", models, wait="loaded", prefix=PRELOAD)
    server.expect_error("model failed to load")
    server.expect_error("backend")
    rows = json.loads(http1.request(server.address, "POST", "/v2/repository/index").body)
    reasons = {row["name"]: row.get("reason", "") for row in rows}
    for name, said in expected.items():
        assert said in reasons[name], (name, reasons[name])
    assert "config.pbtxt:2: model_operations.op_library_filename: " in reasons["absolute"]
    assert http1.request(server.address, "GET", "/v2/models/good/ready").status == 200


def load(server, name, **parameters):
    return http1.request(server.address, "POST", f"/v2/repository/models/{name}/load",
                         json.dumps({"parameters": parameters}).encode())


def test_request_brings_no_library(start_server, tmp_path, text):
    """A client that may load models with files of its own could run code otherwise."""
    models, allowed = tmp_path / "models", tmp_path / "allowed"
    allowed.mkdir()
    shutil.copy(LIBRARY, allowed / "allowed.so")
    text.write(models, "mine", text.make_tokenizer(), "ops.so")
    shutil.copy(LIBRARY, models / "mine" / "ops.so")
    server = start_server("--model-repository", models, "--model-control-mode", "explicit",
                          "--op-library-dir", allowed, prefix=PRELOAD)
    server.expect_error("model failed to load")
    config = lambda library: json.dumps({"backend": "onnxruntime",
                                         "model_operations": {"op_library_filename": [library]}})
    encode = lambda data: base64.b64encode(data).decode()
    model = {"file:1/model.onnx": encode(text.make_tokenizer().SerializeToString())}
    brought = load(server, "new", config=config("ops.so"), **model, **{"file:1/ops.so": encode(b"\x7fELF")})
    assert brought.status == 400 and '\\"ops.so\\": No such file' in brought.body.decode()
    named = load(server, "mine", config=config("ops.so"))
    assert named.status == 400 and '\\"ops.so\\": No such file' in named.body.decode()
    assert load(server, "new", config=config("allowed.so"), **model).status == 200
    for _ in range(3):
        assert load(server, "mine").status == 200
        assert infer(tritonclient.http, server.address, "mine", as_input("a cat"), "input_ids").tolist() == \
            tokens_of("a cat", text.WORDS)
        assert http1.request(server.address, "POST", "/v2/repository/models/mine/unload").status == 200

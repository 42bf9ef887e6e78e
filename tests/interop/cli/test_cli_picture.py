"""`sluice infer --input image=@FILE.jpg`: the tensor and the top five are those of Pillow and numpy."""
import json
import os
import subprocess

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from lib import pictures
from lib.server import binary, build

pytestmark = pytest.mark.skipif(
    not os.path.exists(os.path.join(build(), "parts", "libsluice_pictures.so")),
    reason="built without pictures")
SIDE, CLASSES = 16, 40
MEAN, STD = numpy.array([0.485, 0.456, 0.406]), numpy.array([0.229, 0.224, 0.225])


def save(path, dims, nodes, constants, outputs):
    graph = helper.make_graph(nodes, "m", [helper.make_tensor_value_info("image", TensorProto.FLOAT, dims)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.fixture(name="models", scope="module")
def models_fixture(tmp_path_factory):
    """`same` and `last` answer the pixels, `classes` a linear function of them."""
    folder = tmp_path_factory.mktemp("models")
    same = [helper.make_node("Identity", ["image"], ["y"])]
    save(folder / "same.onnx", ["n", 3, SIDE, SIDE], same, {}, ["n", 3, SIDE, SIDE])
    save(folder / "last.onnx", ["n", "h", "w", 3], same, {}, ["n", "h", "w", 3])
    weights = numpy.random.default_rng(7).normal(size=(3 * SIDE * SIDE, CLASSES)).astype(numpy.float32)
    save(folder / "classes.onnx", ["n", 3, SIDE, SIDE],
         [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])],
         {"w": weights}, ["n", CLASSES])
    return folder, weights


@pytest.fixture(name="files", scope="module")
def files_fixture(tmp_path_factory):
    """Twenty JPEG files of many sizes."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = []
    for number in range(20):
        path = folder / f"{number}.jpg"
        Image.fromarray(pictures.pixels(40 + 13 * number, 200 - 7 * number, number)).save(path, quality=92)
        paths.append(path)
    return paths


def infer(server, *args):
    done = subprocess.run([binary(), "infer", f"http://{server.address}", *map(str, args)],
                          capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def pixels_of(server, *args):
    code, out, err = infer(server, *args)
    assert code == 0, err
    output = json.loads(out)["outputs"][0]
    return numpy.array(output["data"], numpy.float64).reshape(output["shape"])


def imagenet(path):
    """Scaled to cover the size, cropped around the centre, normalised: [1, 3, SIDE, SIDE]."""
    from PIL import ImageOps
    fitted = ImageOps.fit(Image.open(path).convert("RGB"), (SIDE, SIDE), Image.Resampling.BILINEAR)
    return ((numpy.asarray(fitted) / 255 - MEAN) / STD).transpose(2, 0, 1)[None].astype(numpy.float32)


def test_pixels_are_those_of_pillow(models, files, start_server):
    server = start_server(models[0])
    got = pixels_of(server, "same", "--input", f"image=@{files[3]}", "--preset", "imagenet")
    assert numpy.abs(got - imagenet(files[3])).max() < 0.06  # two levels of 255, over the deviation
    got = pixels_of(server, "last", "--input", f"image=@{files[3]}", "--size", "8x6", "--mean", "0.5", "--std",
                    "0.5,0.5,0.25")
    wanted = numpy.asarray(Image.open(files[3]).convert("RGB").resize((8, 6), Image.Resampling.BICUBIC))
    assert got.shape == (1, 6, 8, 3)
    assert numpy.abs(got[0] - (wanted / 255 - 0.5) / [0.5, 0.5, 0.25]).max() < 0.06


def test_top_five_of_twenty_pictures(models, files, start_server, tmp_path):
    folder, weights = models
    server = start_server(folder)
    names = [f"class {i}" for i in range(CLASSES)]
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(names) + "\n")
    for path in files:
        code, out, err = infer(server, "classes", "--input", f"image=@{path}", "--preset", "imagenet", "--top", 5,
                               "--labels", labels)
        assert code == 0, err
        scores = imagenet(path).reshape(-1) @ weights
        wanted = [names[i] for i in numpy.argsort(-scores)[:5]]
        assert [line.split(maxsplit=2)[2] for line in out.splitlines()] == wanted


def test_picture_mistakes(models, files, start_server, tmp_path):
    server = start_server(models[0])
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    for args, code, words in (
            (["last", "--input", f"image=@{files[0]}"], 1, "the model takes pictures of any size; give --size"),
            (["same", "--input", f"image=@{broken}"], 1, "broken.jpg: "),
            (["same", "--input", f"image=@{files[0]}", "--mean", "1,2"], 2, "--mean 1,2: expected one number"),
            (["same", "--input", f"image=@{files[0]}", "--size", "big"], 2, "--size big: expected WIDTHxHEIGHT"),
            (["same", "--input", f"image=@{files[0]}", "--labels", "x"], 2, "--labels needs --top N")):
        got, out, err = infer(server, *args)
        assert (got, out) == (code, "") and words in err, err

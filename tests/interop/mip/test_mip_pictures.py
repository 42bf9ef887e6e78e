"""Pictures over MIP: KubeMo's example by configuration alone, against what Pillow and ONNX Runtime make
of the same files; every setting of a picture; files that are none; a server without the part that
decodes them."""
import io
import os
import shutil
import subprocess
import sys

import numpy
import onnxruntime
import pytest
from PIL import Image

from lib import mip, pictures
from lib.server import ROOT, Server

pytestmark = pytest.mark.plain

LABELS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
# What KubeMo's example writes as code, `preprocess` and `postprocess`.
KUBEMO = {"mip.color": "grey", "mip.fit": "stretch", "mip.scale": "1/255",
          "mip.softmax": "true", "mip.top_k": "3", "mip.labels": "labels.txt"}
SCORES_MAY_DIFFER = 0.005
MAX_PIXELS = 4_000_000


def write_model(folder, source, parameters):
    """A model in Triton's layout, with parameters in its config.pbtxt."""
    os.makedirs(os.path.join(folder, "1"))
    shutil.copy(source, os.path.join(folder, "1", "model.onnx"))
    with open(os.path.join(folder, "labels.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(LABELS) + "\n")
    with open(os.path.join(folder, "config.pbtxt"), "w", encoding="utf-8") as file:
        for key, value in parameters.items():
            file.write(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n')


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The model of the demo, trained for [8, 8] with ink from 0 to 16, and digits it has not seen."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, os.path.join(ROOT, "examples", "digits", "make.py"),
                    folder / "digits.onnx", "--heldout", folder / "heldout.npz"], check=True,
                   stdout=subprocess.DEVNULL)
    return folder


RGB = {"mip.scale": "1/255", "mip.mean": "0.485,0.456,0.406", "mip.std": "0.229,0.224,0.225"}


class Running:
    def __init__(self, folder, models, digits_folder):
        def source(name):
            return os.path.join(models, name, "1", "model.onnx")
        self.repository = os.path.join(folder, "models")
        self.paths = {"grey28": source("onnx_grey28"), "rgb32": source("onnx_rgb32"),
                      "bgr32": source("onnx_rgb32"), "crop32": source("onnx_rgb32"),
                      "digits": str(digits_folder / "digits.onnx")}
        settings = {"grey28": KUBEMO, "rgb32": RGB, "bgr32": {**RGB, "mip.color": "bgr"},
                    "crop32": {"mip.fit": "crop", "mip.filter": "bilinear"},
                    "digits": {"mip.scale": "16/255", "mip.probabilities.top_k": "3",
                               "mip.probabilities.labels": "labels.txt"}}
        for name, path in self.paths.items():
            write_model(os.path.join(self.repository, name), path, settings[name])
        args = ["--model-repository", self.repository, "--max-picture-pixels", MAX_PIXELS]
        for name in self.paths:
            args += ["--mip", f"tcp://127.0.0.1:0={name}"]
        self.server = Server(folder, args)
        self.urls = dict(zip(self.paths, self.server.mip_urls))

    def session(self, model):
        return onnxruntime.InferenceSession(self.paths[model], providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory, repositories, digits):
    running = Running(str(tmp_path_factory.mktemp("pictures")), repositories("onnx-only"), digits)
    with running.server:
        yield running


@pytest.fixture
def running(shared):
    assert shared.server.process.poll() is None, shared.server.log_text()
    yield shared
    shared.server.wait_at_rest()
    shared.server.check_log()


def encode(array, kind, **options):
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind, **options)
    return out.getvalue()


def files():
    """Pictures of several kinds and sizes, smaller and larger than what the models want."""
    found = [encode(pictures.pixels(w, h, w), kind, **options)
             for w, h in ((28, 28), (61, 43), (5, 9), (300, 200), (1, 1), (640, 3))
             for kind, options in (("PNG", {}), ("JPEG", {"quality": 90}), ("WEBP", {}),
                                   ("GIF", {}))]
    for photo in pictures.photos():
        with open(photo, "rb") as file:
            found.append(file.read())
    return found


# ---- KubeMo's example ----------------------------------------------------------------------------

def grey(data, side):
    """As it is opened, whatever its mode: Pillow decides how to resize it."""
    picture = Image.open(io.BytesIO(data)).resize((side, side))
    return numpy.asarray(picture.convert("L"), numpy.float32)


def kubemo_preprocess(data):
    """The steps of KubeMo's example, with Pillow's own resize."""
    return grey(data, 28)[None] / 255


def kubemo_postprocess(scores):
    exp = numpy.exp(scores.astype(numpy.float64) - scores.max())
    probabilities = exp / exp.sum()
    best = numpy.argsort(-probabilities, kind="stable")[:3]
    return [(LABELS[i], probabilities[i]) for i in best]


def check_best(answer, expected):
    """The same labels in the same order; scores may differ by a little."""
    assert list(answer) == [label for label, _ in expected], (answer, expected)
    for label, score in expected:
        assert abs(answer[label] - score) <= SCORES_MAY_DIFFER, (answer, expected)


def test_kubemo_example_by_configuration(running):
    data = [*files(), *pictures.every_kind().values()]
    scores = running.session("grey28").run(
        None, {"image": numpy.concatenate([kubemo_preprocess(file) for file in data])})[0]
    answer = mip.infer(running.urls["grey28"], [[mip.image(file)] for file in data])
    for [best], row in zip(answer, scores):
        check_best(best, kubemo_postprocess(row))


def test_digits_from_pictures_are_recognised(running, digits):
    """Digits drawn large, as files of several kinds: what the model says of them is what it says after
    Pillow has made them small again, and it still reads most of them."""
    heldout = numpy.load(digits / "heldout.npz")
    n = 60
    drawn = [numpy.kron(image * 255 / 16, numpy.ones((zoom, zoom))).round().astype(numpy.uint8)
             for image, zoom in zip(heldout["images"][:n], [1, 2, 5, 16] * n)]
    data = [encode(array, kind) for array, kind in zip(drawn, ["PNG", "GIF", "WEBP"] * n)]
    small = [grey(file, 8) * 16 / 255 for file in data]
    probabilities, _ = running.session("digits").run(None, {"image": numpy.stack(small)})
    answer = mip.infer(running.urls["digits"], [[mip.image(file)] for file in data])
    right = 0
    for (best, label), row, truth in zip(answer, probabilities, heldout["labels"]):
        expected = numpy.argsort(-row, kind="stable")[:3]
        check_best(best, [(LABELS[i], row[i]) for i in expected])
        assert LABELS[label] == next(iter(best))
        right += label == truth
    assert right >= 0.9 * n


# ---- settings ------------------------------------------------------------------------------------

def resized(data, kind, box=None):
    """To the new width, then to the new height, as Pillow does it in one step up to version 12: [3,
    32, 32]."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    left, top, right, bottom = box or (0, 0, *picture.size)
    narrow = picture.resize((32, picture.height), kind, (left, 0, right, picture.height))
    small = narrow.resize((32, 32), kind, (0, top, 32, bottom))
    return numpy.asarray(small, numpy.float32).transpose(2, 0, 1)


def normalised(data, bgr=False):
    array = resized(data, Image.BICUBIC)[::-1 if bgr else 1] / 255
    return ((array.transpose(1, 2, 0) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(
        2, 0, 1)


def cut(data):
    """Scaled until it covers, and cut around the centre."""
    width, height = Image.open(io.BytesIO(data)).size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return resized(data, Image.BILINEAR, (left, top, left + side, top + side))


@pytest.mark.parametrize("model, preprocess, scale", [
    ("rgb32", normalised, 1), ("bgr32", lambda data: normalised(data, bgr=True), 1),
    ("crop32", cut, 255)])
def test_preprocess_settings_match_pillow(running, model, preprocess, scale):
    data = [encode(pictures.pixels(w, h, w + h), "PNG") for w, h in ((64, 64), (61, 43), (40, 90))]
    expected = running.session(model).run(
        None, {"image": numpy.stack([preprocess(file) for file in data]).astype(numpy.float32)})[0]
    answer = mip.infer(running.urls[model], [[mip.image(file)] for file in data])
    assert numpy.abs(numpy.array(answer)[:, 0] - expected).max() < 0.001 * scale


def test_batch_mixes_pictures_and_numbers(running):
    """One batch: some elements are pictures, others the same values as JSON."""
    data = [encode(pictures.pixels(28, 28, n), "PNG") for n in range(100)]
    elements = [[mip.image(file)] if n % 3 else [mip.as_json(kubemo_preprocess(file)[0].tolist())]
                for n, file in enumerate(data)]
    expected = mip.infer(running.urls["grey28"], [[mip.image(file)] for file in data])
    answer = mip.infer(running.urls["grey28"], elements)
    for [best], [other] in zip(answer, expected):
        check_best(best, list(other.items()))


def test_pictures_thousand_concurrent(running):
    """1000 in one packet, and in many packets over connections of their own."""
    data = encode(pictures.pixels(100, 100), "JPEG")
    [[best]] = mip.infer(running.urls["grey28"], [[mip.image(data)]])
    assert mip.infer(running.urls["grey28"], [[mip.image(data)]] * 1000) == [[best]] * 1000
    connections = [mip.Connection(running.urls["grey28"]) for _ in range(50)]
    for connection in connections:
        connection.send(mip.infer_request([[mip.image(data)]] * 20))
    for connection in connections:
        assert [[mip.value_of(item) for item in element]
                for element in connection.read_inference(1, 20)] == [[best]] * 20
        connection.close()


# ---- files that are none -------------------------------------------------------------------------

def hostile():
    whole = encode(pictures.pixels(), "PNG")
    photo = encode(pictures.pixels(), "JPEG")
    return {
        "empty": ("INTERNAL", b""),
        "text": ("INTERNAL", b"this is no picture"),
        "png cut off": ("INTERNAL", whole[:len(whole) // 2]),
        "jpeg cut off in its head": ("INTERNAL", photo[:20]),
        "only a signature": ("INTERNAL", whole[:8]),
        "svg": ("INTERNAL", b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'),
        # a bomb: 40,000 x 40,000 by what its head says
        "too many pixels": ("MEMORY", pictures.png(40000, 40000, 8, 2, [b"\0"])),
    }


@pytest.mark.parametrize("kind", hostile())
def test_non_picture_file_is_refused(running, kind):
    error, data = hostile()[kind]
    fine = encode(pictures.pixels(), "PNG")
    with mip.Connection(running.urls["grey28"]) as connection:
        for elements in ([[mip.image(data)]], [[mip.image(fine)]] * 50 + [[mip.image(data)]]):
            assert connection.refusal(mip.infer_request(elements)) == error
            assert len(connection.infer([[mip.image(fine)]])[0][0]) == 3


def test_disconnect_while_decoding(running):
    data = encode(pictures.pixels(1500, 1500), "PNG")
    for _ in range(5):
        with mip.Connection(running.urls["grey28"]) as connection:
            connection.send(mip.infer_request([[mip.image(data)]] * 10))
    assert mip.infer(running.urls["grey28"], [[mip.image(data)]])


# ---- without the part ----------------------------------------------------------------------------

def test_image_without_picture_part_is_internal_error(start_server, shared, tmp_path):
    """The server says so at the start; IMAGE is INTERNAL, everything else is served."""
    running = start_server("--model-repository", shared.repository, "--parts-dir", tmp_path,
                           "--mip", "tcp://127.0.0.1:0=grey28")
    warnings = [line for line in running.log_lines() if line.get("level") == "warning"]
    assert any("pictures cannot be decoded" in line["event"] and line["model"] == "grey28"
               for line in warnings), warnings
    data = encode(pictures.pixels(28, 28), "PNG")
    with mip.Connection(running.mip_urls[0]) as connection:
        assert connection.refusal(mip.infer_request([[mip.image(data)]])) == "INTERNAL"
        [[best]] = connection.infer([[mip.as_json(kubemo_preprocess(data)[0].tolist())]])
        assert len(best) == 3

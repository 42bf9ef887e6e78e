"""`sluice infer --input image=@FILE.jpg`: the tensor and the top five are those of Pillow and numpy."""
import http.server
import io
import json
import os
import subprocess
import threading

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageOps

from lib import pictures
from lib.server import binary, build

pytestmark = pytest.mark.skipif(
    not os.path.exists(os.path.join(build(), "parts", "libsluice_pictures.so")),
    reason="built without pictures")
LEVEL = 1 / 255
SIDE, POOL, CLASSES = 224, 28, 40
MEAN, STD = numpy.array([0.485, 0.456, 0.406]), numpy.array([0.229, 0.224, 0.225])


def save(path, dims, nodes, constants, outputs, element=TensorProto.FLOAT):
    graph = helper.make_graph(nodes, "m", [helper.make_tensor_value_info("image", element, dims)],
                              [helper.make_tensor_value_info("y", element, outputs)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.fixture(name="models", scope="module")
def models_fixture(tmp_path_factory):
    """`same`, `open` and `last` answer the pixels, `classes` a linear function of means of them."""
    folder = tmp_path_factory.mktemp("models")
    same = [helper.make_node("Identity", ["image"], ["y"])]
    save(folder / "same.onnx", ["n", 3, SIDE, SIDE], same, {}, ["n", 3, SIDE, SIDE])
    save(folder / "last.onnx", ["n", "h", "w", 3], same, {}, ["n", "h", "w", 3])
    save(folder / "open.onnx", ["n", 3, "h", "w"], same, {}, ["n", 3, "h", "w"])
    save(folder / "half.onnx", ["n", 3, 16, "w"], same, {}, ["n", 3, 16, "w"])
    save(folder / "bytes.onnx", ["n", 3, 16, 16], same, {}, ["n", 3, 16, 16], TensorProto.UINT8)
    save(folder / "signed.onnx", ["n", 3, 16, 16], same, {}, ["n", 3, 16, 16], TensorProto.INT8)
    save(folder / "small.onnx", ["n", 3, 16, 16], same, {}, ["n", 3, 16, 16])
    weights = numpy.random.default_rng(7).normal(size=(3 * (SIDE // POOL) ** 2, CLASSES)).astype(numpy.float32)
    save(folder / "classes.onnx", ["n", 3, SIDE, SIDE],
         [helper.make_node("AveragePool", ["image"], ["means"], kernel_shape=[POOL, POOL], strides=[POOL, POOL]),
          helper.make_node("Flatten", ["means"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])],
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


def infer(server, *args, url=None):
    done = subprocess.run([binary(), "infer", url or f"http://{server.address}", *map(str, args)],
                          capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def pixels_of(server, *args, **options):
    binary_form = () if options.get("url") else ("--binary",)
    code, out, err = infer(server, *args, *binary_form, "--format", "npy", "-o", "-", **options)
    assert code == 0, err
    return numpy.load(io.BytesIO(out))


def imagenet(path, side=SIDE, short=256):
    """What torchvision's Resize(short), CenterCrop(side), ToTensor and Normalize make of Pillow's pictures:
    [1, 3, side, side]."""
    picture = Image.open(path).convert("RGB")
    width, height = picture.size
    size = (short, int(short * height / width)) if width < height else (int(short * width / height), short)
    picture = picture.resize(size, Image.Resampling.BILINEAR)
    left, top = (int(round((length - side) / 2.0)) for length in picture.size)
    picture = picture.crop((left, top, left + side, top + side))
    return ((numpy.asarray(picture) / 255 - MEAN) / STD).transpose(2, 0, 1)[None].astype(numpy.float32)


def test_imagenet_is_that_of_torchvision(models, files, start_server, tmp_path):
    """To the bit for files without loss. Decoders of JPEG differ by a level of 255."""
    server = start_server(models[0])
    for number, model in enumerate(["same", "open", "same", "open"]):
        path = tmp_path / f"{number}.png"
        Image.fromarray(pictures.pixels(300 + 41 * number, 200 + 53 * number, number)).save(path)
        got = pixels_of(server, model, "--input", f"image=@{path}", "--preset", "imagenet")
        assert got.shape == (1, 3, SIDE, SIDE)
        numpy.testing.assert_allclose(got, imagenet(path), atol=1e-6)
    got = pixels_of(server, "open", "--input", f"image=@{path}", "--preset", "imagenet", "--size", 299)
    numpy.testing.assert_allclose(got, imagenet(path, 299, 342), atol=1e-6)
    got = pixels_of(server, "small", "--input", f"image=@{path}", "--preset", "imagenet")
    numpy.testing.assert_allclose(got, imagenet(path, 16, 18), atol=1e-6)
    got = pixels_of(server, "same", "--input", f"image=@{files[3]}", "--preset", "imagenet")
    numpy.testing.assert_allclose(got, imagenet(files[3]), atol=1.01 * LEVEL / STD.min())


def test_flags_set_size_and_numbers(models, files, start_server):
    server = start_server(models[0])
    got = pixels_of(server, "last", "--input", f"image=@{files[3]}", "--size", "8x6", "--mean", "0.5", "--std",
                    "0.5,0.5,0.25")
    wanted = numpy.asarray(Image.open(files[3]).convert("RGB").resize((8, 6), Image.Resampling.BICUBIC))
    assert got.shape == (1, 6, 8, 3)
    numpy.testing.assert_allclose(got[0], (wanted / 255 - 0.5) / [0.5, 0.5, 0.25], atol=1.01 * LEVEL / 0.25)


def test_whole_numbers_keep_the_pixels(models, files, start_server, tmp_path):
    """Normalised ones do not fit UINT8: refused, and not cut off."""
    server = start_server(models[0])
    path = tmp_path / "small.png"
    Image.open(files[3]).resize((16, 16)).save(path)
    pixels = numpy.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)[None]
    numpy.testing.assert_array_equal(pixels_of(server, "bytes", "--input", f"image=@{path}"), pixels)
    got = pixels_of(server, "signed", "--input", f"image=@{path}", "--mean", "128")
    numpy.testing.assert_array_equal(got, pixels.astype(int) - 128)
    advice = "leave that out if the model normalises its input itself"
    for model, flags, words in (
            ("bytes", ["--preset", "imagenet"], "(UINT8), and --preset imagenet would make its pixels -2.12 to 2.64"),
            ("bytes", ["--mean", "128"], "(UINT8), and --mean would make its pixels -128.00 to 127.00"),
            ("signed", ["--mean", "128", "--std", "128"],
             "(INT8), and --mean with --std would make its pixels -1.00 to 0.99")):
        code, out, err = infer(server, model, "--input", f"image=@{path}", *flags)
        assert (code, out) == (1, b"") and err == (
            f'sluice infer: input "image" holds whole numbers {words}: {advice}\n')


@pytest.fixture(name="repository", scope="module")
def repository_fixture(tmp_path_factory):
    """`own` has settings for MIP; `digits` and `planes` take grey pictures."""
    folder = tmp_path_factory.mktemp("repository")
    same = [helper.make_node("Identity", ["image"], ["y"])]
    for name, dims in (("own", ["n", "h", "w", 3]), ("digits", ["n", 28, 28]), ("planes", ["n", 1, 28, 28])):
        (folder / name / "1").mkdir(parents=True)
        save(folder / name / "1" / "model.onnx", dims, same, {}, dims)
    settings = {"mip.image.size": "24x20", "mip.fit": "crop", "mip.filter": "bilinear", "mip.scale": "1/128",
                "mip.mean": "0.5,1,0.25", "mip.std": "0.5", "mip.layout": "nhwc", "mip.top_k": "3"}
    (folder / "own" / "config.pbtxt").write_text('backend: "onnxruntime"\n' + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in settings.items()))
    return folder


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_settings_of_the_model_itself(repository, files, start_server, protocol):
    server = start_server("--model-repository", repository, grpc=("127.0.0.1:0",))
    url = {"http": f"http://{server.address}", "grpc": f"grpc://{server.grpc_address}"}[protocol]

    def get(*args):
        return pixels_of(server, "own", "--input", f"image=@{files[5]}", *args, url=url)[0]

    def fit(*size):
        return numpy.asarray(ImageOps.fit(Image.open(files[5]).convert("RGB"), size, Image.Resampling.BILINEAR))
    numpy.testing.assert_allclose(get(), (fit(24, 20) / 128 - [0.5, 1, 0.25]) / 0.5, atol=1e-6)
    got = get("--size", "10x12", "--mean", "0", "--std", "1/2,1,1")  # the others stay
    numpy.testing.assert_allclose(got, fit(10, 12) / 128 / [0.5, 1, 1], atol=1e-6)
    got = get("--preset", "imagenet")  # none stays
    numpy.testing.assert_allclose(got, imagenet(files[5])[0].transpose(1, 2, 0), atol=1e-6)


def test_grey_pictures(repository, files, start_server, tmp_path):
    """[N,H,W] and [N,1,H,W]: the shape says so."""
    server = start_server("--model-repository", repository)
    path = tmp_path / "grey.png"
    Image.open(files[12]).convert("L").save(path)
    wanted = numpy.asarray(Image.open(path).resize((28, 28), Image.Resampling.BICUBIC)) / 255
    for model, shape in (("digits", (1, 28, 28)), ("planes", (1, 1, 28, 28))):
        got = pixels_of(server, model, "--input", f"image=@{path}")
        assert got.shape == shape
        numpy.testing.assert_allclose(got.reshape(28, 28), wanted, atol=1e-6)
        got = pixels_of(server, model, "--input", f"image=@{path}", "--mean", "0.1307", "--std", "0.3081")
        numpy.testing.assert_allclose(got.reshape(28, 28), (wanted - 0.1307) / 0.3081, atol=1e-5)
    code, out, err = infer(server, "digits", "--input", f"image=@{path}", "--mean", "1,2,3")
    assert (code, out) == (1, b"") and "--mean has 3 numbers, for one channel" in err
    code, out, err = infer(server, "digits", "--input", f"image=@{path}", "--preset", "imagenet")
    assert (code, out) == (1, b"") and "--preset imagenet: mean has 3 numbers, for one channel" in err


class Plain(http.server.BaseHTTPRequestHandler):
    """A server of KServe v2 with one model, and without the model configuration extension."""

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        tensor = {"datatype": "FP32", "shape": [-1, 28, 28]}
        metadata = {"name": "digits", "versions": ["1"], "platform": "", "inputs": [{"name": "image", **tensor}],
                    "outputs": [{"name": "y", **tensor}]}
        refusal = self.server.config_status, {"error": "no configuration"}
        self.answer(*refusal if self.path.endswith("/config") else (200, metadata))

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(200, {"model_name": "digits", "outputs": [{**request["inputs"][0], "name": "y"}]})

    def log_message(self, *_):
        pass


def test_grey_picture_without_a_configuration(files):
    """A server that is busy may have one: the picture is not sent without its settings."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Plain) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        args, url = ("digits", "--input", f"image=@{files[2]}"), f"http://127.0.0.1:{server.server_port}"
        try:
            server.config_status = 503
            assert infer(None, *args, url=url) == (1, b"", "sluice infer: no configuration (HTTP 503)\n")
            server.config_status = 404
            got = pixels_of(None, *args, url=url)
        finally:
            server.shutdown()
            thread.join()
    assert got.shape == (1, 28, 28) and 0 <= got.min() < 0.5 < got.max() <= 1


def test_top_five_of_twenty_pictures(models, files, start_server, tmp_path):
    folder, weights = models
    server = start_server(folder)
    names = [f"class {i}" for i in range(CLASSES)]
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(names) + "\n")
    for path in files:
        code, out, err = infer(server, "classes", "--input", f"image=@{path}", "--preset", "imagenet", "--top", 5,
                               "--labels", labels, "--binary")
        assert code == 0, err
        means = imagenet(path).reshape(3, SIDE // POOL, POOL, SIDE // POOL, POOL).mean((2, 4))
        scores = means.reshape(-1) @ weights
        wanted = [names[i] for i in numpy.argsort(-scores)[:5]]
        assert [line.split(maxsplit=2)[2] for line in out.decode().splitlines()] == wanted


def test_picture_mistakes(models, files, start_server, tmp_path):
    server = start_server(models[0])
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    for args, code, words in (
            (["last", "--input", f"image=@{files[0]}"], 1, "its shape does not set the height of a picture; set --size"),
            (["half", "--input", f"image=@{files[0]}", "--preset", "imagenet"], 1,
             "its shape does not set the width of a picture; set --size"),
            (["same", "--input", f"image=@{broken}"], 1, "broken.jpg: "),
            (["open", "--input", f"image=@{files[0]}", "--size", "65535"], 1,
             "65535 x 65535 pixels is a tensor of more than 1073741824 bytes, which is the limit (--max-input-size)"),
            (["same", "--input", f"image=@{files[0]}", "--size", "20x224"], 1, "--size makes the width 20, its shape has 224"),
            (["same", "--input", f"image=@{files[0]}", "--std", "0"], 2, "--std 0: expected one number other than 0"),
            (["same", "--input", f"image=@{files[0]}", "--mean", "1,2"], 2, "--mean 1,2: expected one number"),
            (["same", "--input", f"image=@{files[0]}", "--size", "big"], 2, "--size big: expected WIDTHxHEIGHT"),
            (["same", "--input", f"image=@{files[0]}", "--labels", "x"], 2, "--labels needs --top N")):
        got, out, err = infer(server, *args)
        assert (got, out) == (code, b"") and words in err, err

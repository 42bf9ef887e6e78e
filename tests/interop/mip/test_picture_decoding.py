"""Pictures against Pillow: the room picture has no command line, so a little program of the tests decodes
with it (tests/picture/decode.c). Pixels are to be Pillow's, byte for byte. What depends on the decoder is tested with
both parts, parts/pictures (libvips) and parts/codecs."""
import os
import random
import subprocess
import sys

import ml_dtypes
import numpy
import pytest
from PIL import Image, ImageOps

from lib import http1, pictures, server

pytestmark = pytest.mark.plain

FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC,
           "lanczos": Image.LANCZOS}
DTYPES = {"UINT8": "u1", "INT8": "i1", "UINT16": "u2", "INT16": "i2", "UINT32": "u4", "INT32": "i4",
          "UINT64": "u8", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
          "BF16": ml_dtypes.bfloat16}
MAX_PIXELS = 1 << 26
# Runs a program, and fails if it had more than that many KiB. A process of its own: the peak of a child begins with
# the size of its parent, and that of pytest says nothing.
WITH_PEAK = ("import resource, subprocess, sys\n"
             "code = subprocess.call(sys.argv[2:])\n"
             "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
             "sys.exit(code or (peak > int(sys.argv[1]) and f'peak: {peak} KiB'))")


BOTH_PARTS = pytest.mark.parametrize("decoder", ["pictures", "codecs"], indirect=True)


def part_of(name):
    return os.path.join(server.build(), "parts", f"libsluice_{name}.so")


class Decoder:
    """Runs jobs in a process of their own, which must end well and hold nothing."""

    def __init__(self, folder, part):
        self.folder = folder
        self.program = os.path.join(server.build(), "unit", "picture", "decode")
        self.part = part_of(part)
        self.n_files = 0

    def file(self, data):
        self.n_files += 1
        path = self.folder / f"{self.n_files}"
        path.write_bytes(data)
        return path

    def run(self, jobs, threads=2, max_pixels=MAX_PIXELS, part=None, peak=None):
        """jobs: dicts of the program's words. Returns: (status, sentence or bytes) for each, and what
        the last line says."""
        lines = []
        for i, job in enumerate(jobs):
            out = self.folder / f"out{i}"
            out.unlink(missing_ok=True)
            lines.append(" ".join(f"{k}={v}" for k, v in (job | {"out": out}).items()) + "\n")
        limit = [sys.executable, "-c", WITH_PEAK, str(peak)] if peak else []
        done = subprocess.run([*limit, self.program, part or self.part, str(threads), str(max_pixels)],
                              input="".join(lines), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=10 * http1.PATIENCE, check=False)
        assert done.returncode == 0, done.stderr[-5000:]
        # Nothing but the room's own line: a file's damage is no news.
        assert all("pictures can be decoded" in line for line in done.stderr.splitlines())
        *answers, last = done.stdout.splitlines()
        assert len(answers) == len(jobs)
        results = []
        for i, answer in enumerate(answers):
            status, _, text = answer.partition(" ")
            results.append((status, (self.folder / f"out{i}").read_bytes() if status == "OK" else text))
        return results, last

    def results(self, jobs, **options):
        results, last = self.run(jobs, **options)
        assert last == "held 0"
        return results

    def arrays(self, jobs, **options):
        """Of jobs that must succeed, with layout=nhwc and 8 bits: [height, width, 3] each."""
        arrays = []
        for job, (status, out) in zip(jobs, self.results(jobs, **options)):
            assert status == "OK", (job, out)
            arrays.append(numpy.frombuffer(out, numpy.uint8).reshape(job["height"], job["width"], 3))
        return arrays


@pytest.fixture(scope="module")
def decoder(request, tmp_path_factory):
    return Decoder(tmp_path_factory.mktemp("pictures"), getattr(request, "param", "pictures"))


@pytest.fixture(scope="module")
def kinds(decoder):
    """name → path."""
    return {name: decoder.file(data) for name, data in pictures.every_kind().items()}


def sized(path, width, height, **words):
    return {"file": path, "width": width, "height": height, "layout": "nhwc"} | words


def rgb_of(path):
    with Image.open(path) as image:
        return image.convert("RGB")


# ---- pixels --------------------------------------------------------------------------------------

@BOTH_PARTS
def test_decode_each_format_equals_pillow(decoder, kinds):
    wanted = {name: rgb_of(path) for name, path in kinds.items()}
    jobs = [sized(kinds[name], *image.size) for name, image in wanted.items()]
    for name, got in zip(wanted, decoder.arrays(jobs)):
        assert numpy.array_equal(got, numpy.asarray(wanted[name])), name


@BOTH_PARTS
def test_decode_grey_16_bit_drops_low_byte(decoder):
    """As 16-bit colour does. Pillow's own convert would make white of everything over 255."""
    deep = pictures.pixels()[..., 0].astype(numpy.uint16) * 257
    path = decoder.file(pictures.png_of(deep, 0))
    got, = decoder.arrays([sized(path, pictures.WIDTH, pictures.HEIGHT)])
    assert numpy.array_equal(got, numpy.dstack([deep >> 8] * 3))


@BOTH_PARTS
def test_decode_concurrent_equals_sequential(decoder, kinds):
    jobs = [sized(path, 20 + i % 7, 30) for i, path in enumerate(list(kinds.values()) * 6)]
    together = decoder.results(jobs, threads=8)
    assert together == decoder.results(jobs, threads=1)


# ---- sizes ---------------------------------------------------------------------------------------

USUAL = [(28, 28), (224, 224), (320, 240)]
SIZES = [*USUAL, (1, 1), (3, 500), (700, 20), (640, 427), (900, 700), (61, 300)]


def in_two_steps(image, width, height, kind):
    """To the new width, then to the new height: what Pillow's resize does in one step up to version
    12. Version 13 turns the two round where it expects less work, and rounds other sums then."""
    return numpy.asarray(image.resize((width, image.height), kind).resize((width, height), kind))


def assert_near(got, wanted, name):
    """For one step: equal but for rounding, and where an overshoot was cut between the passes."""
    apart = abs(got.astype(int) - numpy.asarray(wanted).astype(int))
    assert apart.max() <= {"nearest": 0, "bilinear": 1, "bicubic": 2, "lanczos": 4}[name]
    assert (apart > 1).mean() <= 0.001


@pytest.mark.parametrize("name", FILTERS)
def test_resize_equals_pillow(decoder, kinds, name):
    paths = [*pictures.photos(), kinds["rgb.png"], kinds["444.jpg"], kinds["frame.gif"]]
    jobs = [sized(path, *size, filter=name) for path in paths for size in SIZES]
    for job, got in zip(jobs, decoder.arrays(jobs)):
        image, size = rgb_of(job["file"]), (job["width"], job["height"])
        assert numpy.array_equal(got, in_two_steps(image, *size, FILTERS[name])), job
        if size in USUAL and job["file"] in pictures.photos():
            assert_near(got, image.resize(size, FILTERS[name]), name)


def window_of(image, width, height):
    """What ImageOps.fit cuts out: (left, top, right, bottom)."""
    across, down = image.size
    if across / down >= width / height:
        across = width / height * image.height
    else:
        down = image.width / (width / height)
    left, top = (image.width - across) * 0.5, (image.height - down) * 0.5
    return left, top, left + across, top + down


@pytest.mark.parametrize("name", FILTERS)
def test_crop_equals_pillow_fit(decoder, name):
    jobs = [sized(path, *size, filter=name, fit="crop") for path in pictures.photos()
            for size in SIZES]
    for job, got in zip(jobs, decoder.arrays(jobs)):
        image, size, kind = rgb_of(job["file"]), (job["width"], job["height"]), FILTERS[name]
        left, top, right, bottom = window_of(image, *size)
        narrow = image.resize((size[0], image.height), kind, (left, 0, right, image.height))
        wanted = narrow.resize(size, kind, (0, top, size[0], bottom))
        assert numpy.array_equal(got, numpy.asarray(wanted)), job
        if size in USUAL:
            assert_near(got, ImageOps.fit(image, size, kind), name)


@pytest.mark.parametrize("name", FILTERS)
def test_pad_equals_pillow_pad(decoder, name):
    jobs = [sized(path, *size, filter=name, fit="pad", pad=90) for path in pictures.photos()
            for size in SIZES]
    for job, got in zip(jobs, decoder.arrays(jobs)):
        image, size, kind = rgb_of(job["file"]), (job["width"], job["height"]), FILTERS[name]
        inner = ImageOps.contain(image, size, kind).size
        wanted = Image.new("RGB", size, (90, 90, 90))
        wanted.paste(Image.fromarray(in_two_steps(image, *inner, kind)),
                     (round((size[0] - inner[0]) * 0.5), round((size[1] - inner[1]) * 0.5)))
        assert numpy.array_equal(got, numpy.asarray(wanted)), job
        if size in USUAL:
            assert_near(got, ImageOps.pad(image, size, kind, color=(90, 90, 90)), name)


MULTIPLIED = {"RGBA": "RGBa", "LA": "La"}  # by their alpha


def default_in_two_steps(image, width, height):
    """What resize does of itself, to the new width, then to the new height: the nearest pixel of an
    indexed picture, colours weighted by their opacity, inks before they are colours; RGB in the end."""
    mode = image.mode
    if (width, height) != image.size:
        image = image.convert(MULTIPLIED.get(mode, mode))
        image = image.resize((width, image.height)).resize((width, height)).convert(mode)
    return numpy.asarray(image.convert("RGB"))


def test_resize_default_filter_equals_pillow(decoder, kinds):
    sizes = [*SIZES, (pictures.WIDTH, pictures.HEIGHT)]
    for name, path in kinds.items():
        jobs = [sized(path, *size) for size in sizes]
        with Image.open(path) as image:
            for size, got in zip(sizes, decoder.arrays(jobs)):
                assert numpy.array_equal(got, default_in_two_steps(image, *size)), (name, size)


@pytest.mark.parametrize("name", ["palette.png", "1.png", "palette.gif", "greys.gif"])
def test_crop_and_pad_default_filter_equal_pillow(decoder, kinds, name):
    """The nearest pixel of three of them, and of the last not."""
    crop, pad = decoder.arrays([sized(kinds[name], 30, 30, fit=fit) for fit in ("crop", "pad")])
    with Image.open(kinds[name]) as image:
        assert numpy.array_equal(crop, ImageOps.fit(image, (30, 30)).convert("RGB"))
        inner = numpy.asarray(ImageOps.contain(image, (30, 30)).convert("RGB"))
    top = round((30 - len(inner)) * 0.5)
    assert numpy.array_equal(pad[top:top + len(inner)], inner)
    assert not pad[:top].any() and not pad[top + len(inner):].any()


def test_kubemo_preprocessing_matches_training(decoder, kinds):
    """KubeMo's example: stretched to 28 x 28, made grey, divided by 255."""
    paths = [*pictures.photos(), *kinds.values()]
    jobs = [{"file": path, "width": 28, "height": 28, "color": "grey", "datatype": "FP32",
             "scale": repr(1 / 255)} for path in paths]
    for path, (status, out) in zip(paths, decoder.results(jobs)):
        assert status == "OK", (path, out)
        with Image.open(path) as image:
            wanted = numpy.asarray(image.resize((28, 28)).convert("L"), numpy.float32) / 255
        got = numpy.frombuffer(out, numpy.float32).reshape(28, 28)
        assert abs(got - wanted).max() < 1.5 / 255, path


# ---- elements ------------------------------------------------------------------------------------

def normalised(image, color, layout, scale, mean, std):
    array = numpy.asarray(image.convert("L"))[..., None] if color == "grey" else numpy.asarray(image)
    array = array[..., ::-1] if color == "bgr" else array
    n = array.shape[-1]
    values = (array.astype(float) * scale - numpy.array(mean[:n])) / numpy.array(std[:n])
    return values.transpose(2, 0, 1) if layout == "nchw" else values


def as_elements(values, dtype):
    dtype = numpy.dtype(dtype)
    if dtype.kind not in "iu":
        return values.astype(dtype)
    rounded = numpy.copysign(numpy.floor(abs(values) + 0.5), values)
    info = numpy.iinfo(dtype)
    return numpy.clip(rounded, info.min, info.max).astype(dtype)


def test_elements_each_datatype(decoder, kinds):
    image = rgb_of(kinds["rgb.png"])
    jobs, looks = [], []
    for datatype in DTYPES:
        for color in ("rgb", "bgr", "grey"):
            for layout in ("nchw", "nhwc"):
                for scale, mean, std in ((1, (0, 0, 0), (1, 1, 1)),
                                         (0.5, (10, 20, 30), (0.5, 1, 3)),
                                         (1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))):
                    looks.append((datatype, (image, color, layout, scale, mean, std)))
                    jobs.append({"file": kinds["rgb.png"], "width": image.width,
                                 "height": image.height, "color": color, "layout": layout,
                                 "datatype": datatype, "scale": repr(scale),
                                 "mean": ",".join(map(repr, mean)), "std": ",".join(map(repr, std))})
    for (datatype, look), (status, out) in zip(looks, decoder.results(jobs)):
        assert status == "OK", out
        got = numpy.frombuffer(out, DTYPES[datatype])
        wanted = as_elements(normalised(*look), DTYPES[datatype])
        assert numpy.array_equal(got, wanted.ravel()), (datatype, look[1:])


# ---- files that are cut off, damaged, or worse ---------------------------------------------------

def cuts(n):
    """Lengths of a file of `n` bytes: all at both ends, some between."""
    return sorted({*range(min(n, 40)), *range(0, n, max(1, n // 50)), *range(max(0, n - 16), n)})


@BOTH_PARTS
def test_truncated_file_is_refused(decoder, kinds):
    """Or nothing that counts was cut off: then the picture is the whole one."""
    for name, path in kinds.items():
        n = path.stat().st_size
        jobs = [sized(path, 40, 30, bytes=cut) for cut in [*cuts(n), n]]
        *results, (status, whole) = decoder.results(jobs)
        assert status == "OK", (name, whole)
        refused = [text for status, text in results if status == "BAD_PICTURE"]
        assert all(out == whole for status, out in results if status == "OK"), name
        assert len(refused) + sum(status == "OK" for status, _ in results) == len(results)
        assert len(refused) >= len(results) / 3 and all(refused), name


def test_damaged_file_does_not_affect_others(decoder, kinds):
    rng = random.Random(4)
    paths = []
    for path in kinds.values():
        for _ in range(12):
            data = bytearray(path.read_bytes())
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            paths.append(decoder.file(data))
    whole = sized(kinds["rgb.png"], 40, 30)
    jobs = [job for path in paths for job in (sized(path, 40, 30), whole)]
    results = decoder.results(jobs, threads=4)
    assert {status for status, _ in results} <= {"OK", "BAD_PICTURE", "BODY_TOO_LARGE"}
    assert {out for out in results[1::2]} == {results[1]}, "another file's damage is seen here"
    others = decoder.results(jobs, threads=4, part=part_of("codecs"))
    pairs = [(ours, theirs) for ours, theirs in zip(others, results) if ours[0] == theirs[0]]
    assert all(ours == theirs for ours, theirs in pairs if ours[0] == "OK")
    assert len(pairs) >= 0.95 * len(jobs)  # what is bearable differs between versions of libraries


@pytest.mark.parametrize("size", [(65535, 65535), (65535, 2000), (8193, 8192)])
def test_bomb_is_refused_by_header(decoder, size):
    files = pictures.heads(*size)
    jobs = [sized(decoder.file(data), 28, 28) for data in files.values()]
    for status, text in decoder.results(jobs):
        assert status == "BODY_TOO_LARGE"
        assert f"{size[0]} x {size[1]} = {size[0] * size[1]} pixels, at most {MAX_PIXELS}" in text
        assert "--max-picture-pixels" in text


@BOTH_PARTS
def test_header_without_pixels_is_refused(decoder):
    """Not too large, but next to nothing is there. JPEG and GIF have a code for the end of data, and one
    that comes early leaves the rest of the picture empty, for Pillow's JPEG decoder too."""
    files = pictures.heads(4000, 4000)
    jobs = [sized(decoder.file(data), 28, 28) for data in files.values()]
    for name, (status, text) in zip(files, decoder.results(jobs)):
        if name in ("head.jpg", "head.gif"):
            assert status == "OK"
        else:
            assert status == "BAD_PICTURE" and "of its 4000 rows could be decoded" in text


def test_side_over_65535_is_refused(decoder):
    jobs = [sized(decoder.file(pictures.png(width, height, 1, 0, [])), 28, 28)
            for width, height in ((65536, 1), (1, 65536), (2**31 - 1, 1), (2**32 - 1, 0))]
    statuses = [status for status, _ in decoder.results(jobs, max_pixels=2**40)]
    assert statuses == ["BODY_TOO_LARGE"] * 3 + ["BAD_PICTURE"]


@BOTH_PARTS
def test_side_of_65535_is_decoded(decoder):
    for width, height in ((65535, 1), (1, 65535)):
        path = decoder.file(pictures.png(width, height, 8, 0, [b"\x80" * width] * height))
        got, = decoder.arrays([sized(path, 9, 7, filter="lanczos")])
        assert (got == 0x80).all()


@BOTH_PARTS
def test_png_text_chunks_are_not_unpacked(decoder):
    """7 MB of compressed text that would be 7 GB."""
    text = pictures.zlib.compress(b"a" * 7_900_000, 9)
    notes = b"".join(pictures.chunk(b"zTXt", b"k%d\0\0" % i + text) for i in range(900))
    array = pictures.pixels()
    path = decoder.file(pictures.png_of(array, 2, between=notes))
    got, = decoder.arrays([sized(path, pictures.WIDTH, pictures.HEIGHT)], peak=1_500_000)
    assert numpy.array_equal(got, array)


def test_progressive_scans_are_limited(decoder, kinds):
    """Each costs the sender a dozen bytes, and a decoder a pass over the whole picture."""
    data = kinds["progressive.jpg"].read_bytes()
    again = data[data.rindex(b"\xff\xda"):-2]
    path = decoder.file(data[:-2] + again * 120 + data[-2:])
    (status, text), = decoder.results([sized(path, 28, 28)])
    assert status == "BAD_PICTURE" and "scans, at most 100 are decoded" in text


def test_other_formats_are_refused(decoder):
    files = pictures.other_kinds()
    jobs = [sized(decoder.file(data), 28, 28) for data in files.values()]
    for name, (status, text) in zip(files, decoder.results(jobs)):
        assert status == "BAD_PICTURE", name
        assert "expected a JPEG, PNG, WebP or GIF file" in text or name == "empty", text


@BOTH_PARTS
def test_trailing_bytes_are_ignored(decoder, kinds):
    tail = b"<script>alert(1)</script>PK\x05\x06" + b"\0" * 18
    plain, tailed = [], []
    for path in kinds.values():
        plain.append(sized(path, 40, 30))
        tailed.append(sized(decoder.file(path.read_bytes() + tail), 40, 30))
    assert decoder.results(plain) == decoder.results(tailed)


def test_decode_without_part_is_unsupported(decoder, kinds):
    results, last = decoder.run([sized(kinds["rgb.png"], 28, 28)] * 3, part="/nowhere/part.so")
    assert {status for status, _ in results} == {"UNSUPPORTED"}
    sentence = "pictures cannot be decoded without /nowhere/part.so"
    assert all(text.startswith(sentence) for _, text in results)
    assert last.startswith("missing " + sentence) and "tools/bootstrap pictures" in last

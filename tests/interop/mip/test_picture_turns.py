"""Decoders of pictures are shared by all clients: a small file of many pixels takes memory and time by its head, and its
sender waits for itself (docs/pictures.md, "Limits")."""
import io
import os
import select
import struct
import time
import zlib

import pytest
from PIL import Image

from lib import metrics, mip
from lib.repository import Identity
from lib.server import build, peak_memory_of

SIDE = 4096  # of a WebP file of a few hundred bytes; decoding it takes half a second
HELD = 'sluice_client_memory_bytes{kind="pictures",protocol="mip"}'
NEEDED = 17 * SIDE * SIDE
MEMORY_WAIT_S = 5


def encode(side):
    out = io.BytesIO()
    Image.new("RGB", (side, side), (7, 8, 9)).save(out, "WEBP", lossless=True, quality=0, method=0)
    return out.getvalue()


SMALL = encode(8)


@pytest.fixture(scope="module")
def large():
    data = encode(SIDE)
    assert len(data) < 10000
    return data


@pytest.fixture
def start(start_server, tmp_path):
    Identity("picture", [("UINT8", [3, 8, 8])], max_batch_size=8).write(tmp_path / "models")

    def start(*args):
        return start_server("--model-repository", tmp_path / "models", "--mip", "tcp://127.0.0.1:0=picture", *args,
                            metrics_at="127.0.0.1:0")
    return start


def is_answered(connection):
    return bool(select.select([connection.sock], [], [], 0)[0])


def good_is_answered(url):
    [[pixels]] = mip.infer(url, [[mip.image(SMALL)]])
    return len(pixels) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_pictures_of_one_client_do_not_keep_others_waiting(start, large, threads):
    server = start("--picture-threads", threads)
    with mip.Connection(server.mip_urls[0]) as busy:
        busy.send(mip.infer_request([[mip.image(large)]] * 12))
        metrics.wait_until(server.metrics_address, lambda now: now[HELD] >= NEEDED, "a picture that is decoded")
        assert good_is_answered(server.mip_urls[0])
        assert metrics.read(server.metrics_address)[HELD] >= NEEDED and not is_answered(busy)
        busy.reset()
    server.wait_at_rest()


def test_decoder_memory_counts_as_client_memory(start, large):
    server = start("--picture-threads", 4, "--client-memory", "400MiB")
    admin, most = server.metrics_address, 0
    with mip.Connection(server.mip_urls[0]) as busy:  # two do not fit at a time: each waits for the one before it
        busy.send(mip.infer_request([[mip.image(large)]] * 4))
        begun = time.monotonic()
        while not is_answered(busy):
            most = max(most, metrics.read(admin)[HELD])
        try:
            assert len(busy.read_inference(1, 4)) == 4
        except mip.Refused as refused:  # where decoding one takes longer than the other may wait
            assert refused.name == "MEMORY" and time.monotonic() - begun >= MEMORY_WAIT_S
    assert NEEDED <= most < 2 * NEEDED
    assert good_is_answered(server.mip_urls[0])
    server.wait_at_rest()


def test_picture_larger_than_client_memory_is_refused(start, large):
    server = start("--client-memory", "100MiB")
    with mip.Connection(server.mip_urls[0]) as connection:
        assert connection.refusal(mip.infer_request([[mip.image(large)]] * 3)) == "MEMORY"
    assert good_is_answered(server.mip_urls[0])
    server.wait_at_rest()


# ---- what decoders take ----------------------------------------------------------------------------

N = 2048


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png16(interlaced):
    """16 bits of each of four channels, all 0."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    packed = zlib.compressobj(1)
    data = b""
    for left, top, right, down in passes if interlaced else [(0, 0, 1, 1)]:
        row = bytes(1 + 8 * len(range(left, N, right)))  # with the filter's byte
        data += b"".join(packed.compress(row) for _ in range(top, N, down))
    head = struct.pack(">IIBBBBB", N, N, 16, 6, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data + packed.flush()) + chunk(b"IEND", b"")


def saved(form, mode="RGB", **options):
    """A picture of many colours: one of few is smaller within a decoder, too."""
    ramp = Image.linear_gradient("L").resize((N, N))
    bands = (ramp, ramp.transpose(Image.Transpose.ROTATE_90), ramp.transpose(Image.Transpose.ROTATE_180), ramp)
    out = io.BytesIO()
    Image.merge(mode, bands[:len(mode)]).save(out, form, **options)
    return out.getvalue()


def jpeg_of_one_component():
    """Of three; its only scan has the first, and ends at once. The decoder keeps the picture for further scans."""
    data = saved("JPEG", subsampling=0)
    at = data.index(b"\xff\xda")
    return data[:at] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\xff\xd9"


WHOLE, WEBP, ROWS = 9 * N * N, 17 * N * N, 0
LARGE = {  # the file, and what is counted for its pixels
    "PNG, 16 bits": (lambda: png16(0), WHOLE),
    "PNG, 16 bits, interlaced": (lambda: png16(1), WHOLE),
    "JPEG": (lambda: saved("JPEG"), ROWS),
    "JPEG, progressive": (lambda: saved("JPEG", progressive=True), WHOLE),
    "JPEG, four inks, progressive": (lambda: saved("JPEG", "CMYK", progressive=True), WHOLE),
    "JPEG, a scan of one component": (jpeg_of_one_component, WHOLE),
    "WebP, lossless": (lambda: saved("WEBP", lossless=True, quality=0, method=0), WEBP),
    "WebP, lossless, alpha": (lambda: saved("WEBP", "RGBA", lossless=True, quality=0, method=0), WEBP),
    "WebP, lossy": (lambda: saved("WEBP", quality=10, method=0), WEBP),
    "WebP, lossy, alpha": (lambda: saved("WEBP", "RGBA", quality=10, method=0), WEBP),
    "WebP, animated": (lambda: saved("WEBP", save_all=True, append_images=[Image.new("RGB", (N, N))],
                                     quality=10, method=0), WEBP),
    "GIF": (lambda: saved("GIF"), WHOLE),
}


@pytest.mark.programs  # a sanitizer has memory of its own
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("part", ["pictures", "codecs"])
def test_decoder_takes_no_more_than_is_counted(start, tmp_path, part, name):
    make, counted = LARGE[name]
    data = make()
    (tmp_path / "libsluice_pictures.so").symlink_to(os.path.join(build(), "parts", f"libsluice_{part}.so"))
    server = start("--picture-threads", 1, "--parts-dir", tmp_path)
    packet = mip.infer_request([[mip.image(data)]])
    assert good_is_answered(server.mip_urls[0])
    before = peak_memory_of(server)
    with mip.Connection(server.mip_urls[0]) as connection:
        connection.send(packet)
        assert len(connection.read_inference(1, 1)) == 1
    took = peak_memory_of(server) - before
    assert took <= counted + (8 << 20) + 3 * len(data), (took, counted)
    assert good_is_answered(server.mip_urls[0])
    server.wait_at_rest()
    if counted:  # this much is too little
        tight = start("--parts-dir", tmp_path, "--client-memory", counted)
        with mip.Connection(tight.mip_urls[0]) as connection:
            assert connection.refusal(packet) == "MEMORY"

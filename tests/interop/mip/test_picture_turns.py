"""Decoders of pictures are shared by all clients: a small file of many pixels takes memory and time by its head, and its
sender waits for itself (docs/pictures.md, "Limits")."""
import io
import select

import pytest
from PIL import Image

from lib import metrics, mip
from lib.repository import Identity

SIDE = 4096  # of a WebP file of a few hundred bytes; decoding it takes half a second
HELD = 'sluice_client_memory_bytes{kind="pictures",protocol="mip"}'
NEEDED = 9 * SIDE * SIDE


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
    server = start("--picture-threads", 4, "--client-memory", "256MiB")
    admin, most = server.metrics_address, 0
    with mip.Connection(server.mip_urls[0]) as busy:  # two do not fit at a time: each waits for the one before it
        busy.send(mip.infer_request([[mip.image(large)]] * 4))
        while not is_answered(busy):
            most = max(most, metrics.read(admin)[HELD])
        assert len(busy.read_inference(1, 4)) == 4
    assert NEEDED <= most < 2 * NEEDED
    assert good_is_answered(server.mip_urls[0])
    server.wait_at_rest()


def test_picture_larger_than_client_memory_is_refused(start, large):
    server = start("--client-memory", "100MiB")
    with mip.Connection(server.mip_urls[0]) as connection:
        assert connection.refusal(mip.infer_request([[mip.image(large)]] * 3)) == "MEMORY"
    assert good_is_answered(server.mip_urls[0])
    server.wait_at_rest()

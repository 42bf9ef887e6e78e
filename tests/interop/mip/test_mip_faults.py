"""MIP when things go badly: peers that are slow or don't read, the end in the middle of everything, and
pictures that are damaged or far too large. Others are served meanwhile, and when it is over nothing is
in flight or held."""
import io
import os
import shutil
import signal
import socket
import struct
import threading
import zlib

import numpy
import pytest
from PIL import Image

from lib import http1, metrics, mip, pictures
from lib.server import Server

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

PAIR = [mip.as_json([1, 2]), mip.as_json([3, 4])]
GOOD = mip.infer_request([PAIR])
SOON = "300ms"


def is_served(url):
    assert mip.infer(url, [PAIR]) == [[[4.0, 6.0]]]


# ---- slow peers ----------------------------------------------------------------------------------

@pytest.fixture
def impatient(start_server, repositories):
    return start_server("--model-repository", repositories("onnx-only"), "--mip",
                        "tcp://127.0.0.1:0=onnx_pair", "--header-timeout", SOON, "--body-timeout",
                        SOON, "--idle-timeout", SOON, "--write-timeout", SOON)


SILENT = {
    "at once": (b"", None),
    "after a ping": (mip.PING_REQUEST, "pong"),
    "after a byte": (GOOD[:1], None),
    "before the last byte of a header": (GOOD[:7], None),
    "before a payload": (GOOD[:8], "INTERNAL"),
    "before the last byte of a payload": (GOOD[:-1], "INTERNAL"),
    "while it is skipped": (mip.header(9, 1000) + b"x" * 10, "METHOD"),
}


@pytest.mark.parametrize("where", SILENT)
def test_silent_peer_times_out(impatient, where):
    """A payload that does not come is answered; half a header has nothing to be answered to."""
    url, (sent, answer) = impatient.mip_urls[0], SILENT[where]
    impatient.signal(signal.SIGSTOP)  # what a late client sends is there before its time is up
    silent = [mip.Connection(url) for _ in range(100)]
    for connection in silent:
        connection.send(sent)
    impatient.signal(signal.SIGCONT)
    is_served(url)
    for connection in silent:
        if answer == "pong":
            connection.read_answer(mip.PING)
        elif answer:
            assert mip.ERRORS[connection.read_packet()[1]] == answer
        connection.read_end()
        connection.close()
    impatient.wait_at_rest()


def test_trickling_peer_times_out(impatient):
    """A byte now and then is no progress: neither of a header nor of a payload."""
    url = impatient.mip_urls[0]
    slow = mip.infer_request([PAIR] * 100)
    ended = []

    def trickle(data, wait):
        with mip.Connection(url) as connection:
            connection.sock.settimeout(wait)
            got = b""
            for at in range(len(data)):
                connection.send(data[at:at + 1])
                try:
                    more = connection.sock.recv(100)
                except (socket.timeout, TimeoutError):
                    continue
                except ConnectionResetError:
                    more = b""
                if not more:
                    break
                got += more
            ended.append(got)

    threads = [threading.Thread(target=trickle, args=(slow, wait))
               for wait in (0.05, 0.01) for _ in range(20)]
    for thread in threads:
        thread.start()
    is_served(url)
    for thread in threads:
        thread.join()
    error = mip.header(mip.ERROR, 0, subtype=mip.ERRORS.index("INTERNAL"))
    assert sorted(set(ended)) in ([b""], [b"", error], [error])
    impatient.wait_at_rest()


def test_peer_not_reading_times_out(impatient):
    """Pings without end: the server stops reading, and then it has waited long enough."""
    url = impatient.mip_urls[0]
    with mip.Connection(url) as connection:
        connection.sock.settimeout(20)
        with pytest.raises((ConnectionError, TimeoutError)):
            while True:
                connection.sock.sendall(mip.PING_REQUEST * 10_000)
    is_served(url)
    impatient.wait_at_rest()


def test_answers_wait_for_late_reader(start_server, repositories):
    """Pings until the server takes no more; then all of them are answered, however slowly they are read."""
    running = start_server("--model-repository", repositories("onnx-only"), "--mip",
                           "tcp://127.0.0.1:0=onnx_pair", "--write-timeout", "1h")
    with mip.Connection(running.mip_urls[0]) as connection:
        connection.sock.settimeout(1)
        n_sent = 0
        try:
            while True:
                n_sent += connection.sock.send(mip.PING_REQUEST * 10_000)
        except TimeoutError:
            pass
        is_served(running.mip_urls[0])
        n_pings, cut = divmod(n_sent, 8)
        connection.sock.settimeout(http1.PATIENCE)
        got = bytearray()
        while len(got) < n_pings * len(mip.PING_ANSWER):  # many at once: a call for each takes a busy machine minutes
            piece = connection.sock.recv(1 << 20)
            assert piece, f"{len(got)} bytes of {n_pings} answers"
            got += piece
        assert got == mip.PING_ANSWER * n_pings
        if cut:
            connection.sock.sendall(mip.PING_REQUEST[cut:])
            connection.read_answer(mip.PING)
    running.wait_at_rest()


# ---- the end in the middle of it -----------------------------------------------------------------

def write_slow(folder):
    """Takes half a second for each call, with its input as its output."""
    os.makedirs(folder / "slow" / "1")
    (folder / "slow" / "config.pbtxt").write_text("""backend: "identity"
max_batch_size: 0
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
parameters { key: "delay_us" value { string_value: "500000" } }
""")
    return folder / "slow"


def test_drain_in_each_state(start_server, tmp_path):
    """What is whole is answered, what is not is given up, and what follows is not begun."""
    running = start_server(write_slow(tmp_path), "--mip", "tcp://127.0.0.1:0=slow",
                           "--drain-timeout", "20s", "--body-timeout", SOON)
    url = running.mip_urls[0]
    whole = mip.infer_request([[mip.as_json([1, 2])]] * 2)
    sent = {"nothing": b"", "header": whole[:5], "payload": whole[:-1], "whole": whole,
            "pipelined": whole * 3, "skipped": mip.header(9, 60_000) + b"x",
            "over": mip.header(1, 0, version=2)}
    connections = {name: mip.Connection(url) for name in sent}
    for name, data in sent.items():
        connections[name].send(data)
    metrics.wait_until(running.address, lambda numbers: all((
        numbers["sluice_requests_in_flight"] == 4,  # besides three packets, the one that asks
        numbers['sluice_mip_errors_total{code="METHOD"}'] == 1,
        numbers['sluice_mip_errors_total{code="PROTOCOL"}'] == 1)), "packets under way")
    running.signal(signal.SIGTERM)
    assert connections["whole"].read_inference(1, 2) == [[(mip.JSON, b"[1.0,2.0]")]] * 2
    connections["whole"].read_end()
    assert len(connections["pipelined"].read_inference(1, 2)) == 2
    connections["nothing"].read_end()
    connections["header"].read_end()
    for name in ("payload", "skipped", "over"):
        assert connections[name].read_packet()[0] == mip.ERROR
    assert running.wait_exit() == 0
    for connection in connections.values():
        connection.close()


def test_drain_timeout_ends_server(start_server, tmp_path):
    """A packet of an hour does not keep the server."""
    running = start_server(write_slow(tmp_path), "--mip", "tcp://127.0.0.1:0=slow",
                           "--drain-timeout", SOON)
    with mip.Connection(running.mip_urls[0]) as connection:
        connection.send(mip.infer_request([[mip.as_json([1, 2])]] * 7200))
        metrics.wait_until(running.address, lambda n: n["sluice_requests_in_flight"] == 2,
                           "a packet under way")
        running.signal(signal.SIGTERM)
        assert running.wait_exit() == 0


def test_sigterm_while_model_loads_exits(start_server, gate):
    running = start_server(*gate.args, "--mip", "tcp://127.0.0.1:0=gated", "--drain-timeout", SOON,
                           wait="listening")
    running.wait_for(lambda: any("mip" in line for line in running.log_lines()), "a MIP listener")
    url, = [line["mip"] for line in running.log_lines() if "mip" in line]
    with mip.Connection(url) as connection:
        connection.ping()
        connection.send(GOOD[:20])
        running.signal(signal.SIGTERM)
        gate.open()
        assert running.wait_exit() == 0


# ---- pictures ------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def shown(tmp_path_factory, repositories):
    folder = tmp_path_factory.mktemp("shown")
    shutil.copytree(os.path.join(repositories("onnx-only"), "onnx_grey28"), folder / "grey28")
    running = Server(folder, [folder / "grey28", "--mip", "tcp://127.0.0.1:0=grey28"])
    with running:
        yield running


@pytest.fixture
def gallery(shown):
    assert shown.process.poll() is None, shown.log_text()
    yield shown
    shown.wait_at_rest()
    shown.check_log()


def small(kind, **options):
    out = io.BytesIO()
    Image.fromarray(pictures.pixels(8, 6)).save(out, kind, **options)
    return out.getvalue()


SMALL = {"png": small("PNG"), "jpeg": small("JPEG"), "webp": small("WEBP"), "gif": small("GIF"),
         "progressive": small("JPEG", progressive=True), "lossless": small("WEBP", lossless=True)}


def answers(url, files):
    """One packet for each file, one behind the other. Returns: for each an error or the outputs."""
    got = []
    with mip.Connection(url) as connection:
        sender = threading.Thread(target=connection.send, args=(
            b"".join(mip.infer_request([[mip.image(file)]]) for file in files),))
        sender.start()
        for _ in files:
            try:
                got.append(mip.value_of(connection.read_inference(1, 1)[0][0]))
            except mip.Refused as refused:
                got.append(refused.name)
        sender.join()
    return got


@pytest.mark.parametrize("kind", SMALL)
def test_picture_truncated_at_each_byte(gallery, kind):
    """It is refused; where all pixels were there already it may be seen as what it is."""
    file = SMALL[kind]
    got = answers(gallery.mip_urls[0], [file[:n] for n in range(len(file) + 1)])
    assert len(got[-1]) == 10 and got[0] == "INTERNAL"
    assert all(answer in ("INTERNAL", got[-1]) for answer in got)
    assert got.count("INTERNAL") > len(file) // 2


@pytest.mark.parametrize("kind", SMALL)
def test_picture_each_byte_changed(gallery, kind):
    """It becomes some picture, or none, or one that is too large."""
    file = SMALL[kind]
    files = [file[:n] + bytes([file[n] ^ change]) + file[n + 1:]
             for n in range(len(file)) for change in (1, 0x80, 0xff)]
    for answer in answers(gallery.mip_urls[0], files):
        assert answer in ("INTERNAL", "MEMORY") or len(answer) == 10
    assert len(answers(gallery.mip_urls[0], [file])[0]) == 10


@pytest.mark.parametrize("width, height", [(8193, 8193), (65535, 65535), (16383, 16383)])
def test_picture_over_pixel_limit_is_memory_error(gallery, width, height):
    """Over 64 million pixels: refused by what their heads say, each kind."""
    files = list(pictures.heads(min(width, 16384), min(height, 16384)).values()) * 20
    assert set(answers(gallery.mip_urls[0], files)) == {"MEMORY"}


def large_png(side):
    """A small file of a picture that is large, and within the limit."""
    deflate = zlib.compressobj(9)
    row = b"\0" * (1 + 3 * side)
    data = b"".join([*(deflate.compress(row) for _ in range(side)), deflate.flush()])
    return b"".join([b"\x89PNG\r\n\x1a\n",
                     pictures.chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
                     pictures.chunk(b"IDAT", data), pictures.chunk(b"IEND", b"")])


def test_large_picture_does_not_block_others(gallery):
    """They are decoded off the loops; a client that is gone leaves nothing running."""
    url = gallery.mip_urls[0]
    data = large_png(6000)
    zeros = mip.as_json(numpy.zeros((28, 28)).tolist())
    clients = [mip.Connection(url) for _ in range(8)]
    for client in clients:
        client.send(mip.infer_request([[mip.image(data)]] * 200))
    for _ in range(20):
        mip.ping(url)
        assert mip.infer(url, [[zeros]]) == [[[0.0] * 10]]
    for client in clients:
        client.reset()

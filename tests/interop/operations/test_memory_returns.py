"""The memory that requests take: a small request can't make a model write an output of any size, and
after a flood of large bodies and outputs resident memory is what it was before."""
import gzip
import re
import struct
import threading
import time

import grpc
import pytest

from lib import http1
from lib.grpc_live import EXHAUSTED, INFER, INVALID, Live, request, tensor
from lib.server import is_sanitized

pytestmark = pytest.mark.plain

MIB = 1 << 20
RETURNS_S = 10  # a claim of docs/running.md
SLACK_BYTES = 16 * MIB  # of heaps and stacks of threads that the flood started


@pytest.fixture
def live(tmp_path, repositories):
    made = Live(tmp_path, repositories("default"),
                f"onnx_fill={repositories('onnx')}/onnx_fill/1/model.onnx",
                "--max-output-size", "256MiB")
    try:
        yield made
        made.check_unharmed()
        made.server.stop()
    finally:
        made.server.kill()


def fill_body(n):
    return (b'{"parameters":{"binary_data_output":true},'
            b'"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[%d]}]}' % n)


def http_fill(live, n):
    return http1.request(live.server.address, "POST", "/v2/models/onnx_fill/infer", fill_body(n))


def fill_message(n):
    return request("onnx_fill", [tensor("n", "INT64")], (struct.pack("<q", n),))


def grpc_fill(live, n):
    with live.connect() as connection:
        return connection.call(INFER, fill_message(n))


def http_echo(live, n_bytes):
    answer = http1.request(live.server.address, "POST", "/v2/models/id_uint8/infer", b"x" * n_bytes,
                           [("Inference-Header-Content-Length", "0")])
    assert answer.status == 200 and len(answer.body) > n_bytes, str(answer)[:500]


def grpc_call(live, asked):
    """By grpcio, whose windows grow with the size of what is sent."""
    with grpc.insecure_channel(live.tcp, options=[("grpc.max_receive_message_length", -1),
                                                  ("grpc.max_send_message_length", -1)]) as channel:
        return channel.unary_unary(INFER.decode())(asked, timeout=http1.PATIENCE)


def grpc_echo(live, n_bytes):
    asked = request("id_uint8", [tensor("INPUT0", "UINT8", (n_bytes,))], (b"x" * n_bytes,))
    assert len(grpc_call(live, asked)) > n_bytes


def http_output(live, n_bytes):
    answer = http_fill(live, n_bytes // 4)
    assert answer.status == 200 and len(answer.body) > n_bytes, str(answer)[:500]


def grpc_output(live, n_bytes):
    assert len(grpc_call(live, fill_message(n_bytes // 4))) > n_bytes


KINDS = (http_echo, grpc_echo, http_output, grpc_output)


def peak_bytes(live):
    with open(f"/proc/{live.server.pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024


# ---- outputs -------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", (300_000_000, 1 << 40, 1 << 60))
def test_output_over_limit_takes_no_memory(live, n):
    """8 bytes that ask for 1.2 GB, and for more than any machine has."""
    assert http_fill(live, 1000).status == 200
    before = peak_bytes(live)
    answer = http_fill(live, n)
    assert answer.status == 400 and b"--max-output-size" in answer.body, str(answer)
    ended = grpc_fill(live, n)
    assert ended.status == EXHAUSTED, str(ended)
    assert peak_bytes(live) - before < SLACK_BYTES or is_sanitized()


def test_bad_value_in_graph_is_client_error(live):
    assert http_fill(live, -1).status == 400
    assert grpc_fill(live, -1).status == INVALID


def test_outputs_of_identity_over_limit_are_refused(start_server, repositories):
    """A backend that can't know the limit: its response is refused."""
    running = start_server("--model-repository", repositories("default"), "--max-output-size", "1KiB")
    for n_bytes, status in ((1024, 200), (1025, 400), (1024, 200)):
        answer = http1.request(running.address, "POST", "/v2/models/id_uint8/infer", b"x" * n_bytes,
                               [("Inference-Header-Content-Length", "0")])
        assert answer.status == status, str(answer)
        assert status == 200 or b"1025 bytes together; at most 1024" in answer.body, str(answer)


# ---- afterwards ----------------------------------------------------------------------------------

def flood(live):
    """Bodies and outputs of 20 to 50 MB over both protocols, several at once."""
    failed = []

    def ask(kind):
        try:
            for n_bytes in (20_000_000, 33_000_000, 50_000_000):
                kind(live, n_bytes)
        except BaseException as why:
            failed.append(why)

    threads = [threading.Thread(target=ask, args=(kind,), daemon=True) for kind in KINDS * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def wait_for_memory(live, before, most):
    end = time.monotonic() + RETURNS_S
    while (now := live.server.rss_bytes()) > most:
        assert time.monotonic() < end, f"before {before}, peak {peak_bytes(live)}, now {now}"
        time.sleep(0.1)


def test_memory_returns_after_flood(live):
    for kind in KINDS:
        kind(live, 4000)
    live.check_at_rest()
    before = live.server.rss_bytes()
    flood(live)
    assert peak_bytes(live) > before + 100 * MIB  # else nothing was measured
    if not is_sanitized():  # a sanitizer keeps what was freed
        wait_for_memory(live, before, before * 1.2 + SLACK_BYTES)


@pytest.mark.skipif(is_sanitized(), reason="a sanitizer keeps what was freed")
def test_memory_returns_after_refused_body(live):
    """The answer comes while the body does, and the connection stays open and idle."""
    http_echo(live, 4000)
    before = live.server.rss_bytes()
    bomb = gzip.compress(bytes(60 * MIB))[:-8] + b"x" * 100
    with http1.Connection(live.server.address) as connection:
        connection.send(http1.post(b"/v2/models/id_uint8/infer", bomb, b"Content-Encoding: gzip",
                                   b"Inference-Header-Content-Length: 0"))
        answer = connection.read_answer("POST")
        assert answer.status == 400, str(answer)
        assert peak_bytes(live) > before + 50 * MIB
        wait_for_memory(live, before, before + SLACK_BYTES)

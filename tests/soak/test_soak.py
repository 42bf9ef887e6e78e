"""A hundred thousand requests of every kind, good and bad, answered and abandoned: afterwards the server
holds nothing and is not larger than it was. `make soak`; SOAK_REQUESTS changes the number."""
import gzip
import itertools
import os
import struct
import time

from lib import http1, server
from lib.http1 import post

N = int(os.environ.get("SOAK_REQUESTS", "100000"))
N_WARM = N // 5
N_CONNECTIONS = 32
# What an allocator that is done growing may still move by, whatever the number of requests.
MAX_GROWTH_BYTES = 2 << 20

JSON = b'{"inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1,2,3]}]}'
NAMED = b'{"id":"a","inputs":[{"name":"INPUT0","shape":[%d],"datatype":"%s","parameters":' \
        b'{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}'


def get(path):
    return b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path


def binary(model, datatype, n, tensor):
    header = NAMED % (n, datatype, len(tensor))
    return post(b"/v2/models/%s/infer" % model, header + tensor,
                b"Inference-Header-Content-Length: %d" % len(header))


INFER = b"/v2/models/id_fp32/infer"
RAW = b"Inference-Header-Content-Length: 0"
CHUNKED = (b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
           b"a\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (INFER, JSON[:10], len(JSON) - 10, JSON[10:]))
FLOATS = struct.pack("<1000f", *range(1000))
TEXTS = b"".join(struct.pack("<I", n) + b"t" * n for n in range(50))

# (bytes, status): each kind on every connection, in turn.
KINDS = [
    (post(INFER, JSON), 200),
    (binary(b"id_fp32", b"FP32", 1000, FLOATS), 200),
    (post(INFER, FLOATS, RAW), 200),
    (binary(b"id_bytes", b"BYTES", 50, TEXTS), 200),
    (binary(b"id_uint8", b"UINT8", 100000, b"u" * 100000), 200),
    (post(INFER, gzip.compress(JSON), b"Content-Encoding: gzip", b"Accept-Encoding: gzip"), 200),
    (CHUNKED, 200),
    (binary(b"id_later", b"FP32", 1000, FLOATS), 200),
    (get(b"/v2"), 200),
    (get(b"/v2/models/id_mixed"), 200),
    (get(b"/v2/health/ready"), 200),
    (get(b"/v2/models/nope"), 404),
    (get(b"/v2/models/%2e%2e"), 404),
    (get(b"/v2/models/%zz"), 400),
    (get(INFER), 405),
    (post(INFER, JSON[:-1]), 400),
    (post(INFER, b"[" * 10000), 400),
    (binary(b"id_fp32", b"FP32", 999, FLOATS), 400),
    (post(INFER, FLOATS[:-1], RAW), 400),
    (post(INFER, JSON, b"Content-Encoding: br"), 415),
    (post(INFER, JSON, b"Content-Encoding: gzip"), 400),
    (post(b"/v2/models/id_failing/infer", JSON), 500),
    (post(b"/v2/models/nope/infer", FLOATS, RAW), 404),
]
# What a client leaves behind that goes away in the middle.
ABANDONED = [
    post(INFER, JSON)[:-5],
    get(b"/v2")[:-2],
    CHUNKED[:-20],
    binary(b"id_uint8", b"UINT8", 100000, b"u" * 100000)[:-1],
]
# One whose model is slow: after a reset nobody waits for it, and it is dropped.
SLOW = post(b"/v2/models/id_slow/infer", JSON)


class Client:
    """One connection: asks, reads one whole answer, asks the next. Begins anew where it was closed."""

    def __init__(self, address, offset):
        self.address = address
        self.kinds = itertools.cycle(KINDS[offset % len(KINDS):] + KINDS[:offset % len(KINDS)])
        self.n_asked = 0
        self.connection = None

    def ask(self):
        if self.connection is None:
            self.connection = http1.Connection(self.address)
        sent, self.status = next(self.kinds)
        self.connection.send(sent)
        self.n_asked += 1

    def read(self):
        answer = self.connection.read_answer("GET")
        assert answer.status == self.status, f"expected {self.status}, got {answer}"
        if answer.says_close():
            self.connection.close()
            self.connection = None


def ask_many(address, n, offset):
    """n requests over N_CONNECTIONS connections, all waiting at the same time."""
    clients = [Client(address, offset + number) for number in range(N_CONNECTIONS)]
    for _ in range(n // N_CONNECTIONS):
        for client in clients:
            client.ask()
        for client in clients:
            client.read()
    for client in clients:
        if client.connection:
            client.connection.close()


def abandon_some(address):
    for sent, reset in [*itertools.product(ABANDONED, (True, False)), (SLOW, True)]:
        connection = http1.Connection(address)
        connection.send(sent)
        if reset:
            connection.reset()
        else:
            connection.close()


def test_soak_memory_does_not_grow(start_server, repositories):
    running = start_server("--model-repository", repositories("default"))
    began, asked, before = time.monotonic(), 0, None
    while asked < N_WARM + N:
        ask_many(running.address, 1024, asked)
        abandon_some(running.address)
        asked += 1024
        if before is None and asked >= N_WARM:
            running.wait_at_rest()
            before = running.rss_bytes()
    numbers = running.wait_at_rest()
    assert numbers["sluice_requests_total"] >= asked
    grown = running.rss_bytes() - before
    print(f"{asked} requests in {time.monotonic() - began:.0f} s; resident memory"
          f" {before / 1e6:.1f} MB, {grown / 1e3:+.0f} kB")
    if not server.is_sanitized():  # a sanitizer keeps what was freed
        assert grown <= MAX_GROWTH_BYTES

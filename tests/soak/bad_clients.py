"""Clients that do everything wrong, at a server and a picker, for a time; a program of its own, so that it does
not take the good clients' turn. Each kind of it runs in a thread, again and again.
Usage: bad_clients.py HTTP GRPC MIP PICKER SECONDS SEED [KIND…]"""
import contextlib
import gzip
import os
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from lib import h2, http1, mip, pick_client, slow_readers  # noqa: E402
from lib.ext_proc import PACKAGE  # noqa: E402

MB = 1 << 20
PAUSE = float(os.environ.get("SOAK_PAUSE", "8"))  # between two attacks of a kind: seconds, at most
PROCESS = f"/{PACKAGE}.ExternalProcessor/Process".encode()
INFER = b"/inference.GRPCInferenceService/ModelInfer"
ONE = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
FAULTS = (OSError, AssertionError, mip.BadAnswer, mip.Refused)


def post(model, body, *fields):
    return http1.post(b"/v2/models/%s/infer" % model, body, *fields)


class Bad:
    """What the bad clients do. Each method is one of them; `wait` is for how long it stays."""

    def __init__(self, http, grpc, mip_url, picker, rng):
        self.http, self.grpc, self.mip, self.picker, self.rng = http, grpc, mip_url, picker, rng

    def wait(self, most=1.0):
        time.sleep(self.rng.random() * most)

    # ---- they ask and do not read -----------------------------------------------------------------

    def unread_stream(self):
        with contextlib.ExitStack() as stack:
            slow_readers.unread_stream(stack, self.grpc, "large", 200)
            self.wait(3)

    def unread_calls(self):
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                slow_readers.unread_calls(stack, self.grpc, 30)
            self.wait(3)

    def unread_requests(self):
        with contextlib.ExitStack() as stack:
            for _ in range(30):
                slow_readers.unread_request(stack, self.http)
            self.wait(3)

    # ---- they go ----------------------------------------------------------------------------------

    def gone_from_slow_model(self):
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(http1.Connection(self.http)).send(post(b"slow", ONE))
            self.wait(0.3)

    def resets(self):
        for sent in (post(b"small", ONE)[:-3], b"GET /v2 HTTP/1.1\r\n", post(b"slow", ONE)):
            connection = http1.Connection(self.http)
            connection.send(sent)
            connection.reset()

    def rapid_resets(self):
        with h2.Connection(self.grpc) as connection:
            for _ in range(300):
                stream = connection.begin(INFER)
                connection.send(h2.reset(stream))

    # ---- they are slow ----------------------------------------------------------------------------

    def trickle(self):
        request = post(b"small", ONE + b" " * 2000)
        with http1.Connection(self.http) as connection:
            connection.send(request[:-20])
            for byte in request[-20:-1]:
                connection.send(bytes([byte]))
                self.wait(0.3)

    def idle(self):
        with contextlib.ExitStack() as stack:
            for address in (self.http, self.grpc, self.picker) * 20:
                stack.enter_context(http1.Connection(address))
            self.wait(3)

    # ---- they are wrong ---------------------------------------------------------------------------

    def malformed(self):
        for sent in (post(b"small", ONE[:-1]), post(b"small", b"[" * 5000), post(b"nope", ONE),
                     post(b"small", ONE, b"Content-Encoding: gzip"), post(b"failing", ONE),
                     self.rng.randbytes(200) + b"\r\n\r\n"):
            with http1.Connection(self.http) as connection:
                connection.send(sent)
                connection.read_answer("POST")

    def malformed_frames(self):
        for address in (self.grpc, self.picker):
            with h2.Connection(address) as connection:
                connection.send(h2.frame(self.rng.randrange(12), self.rng.randrange(256), self.rng.randrange(9),
                                         self.rng.randbytes(self.rng.randrange(64))))
                connection.ping()

    def malformed_packets(self):
        with mip.Connection(self.mip) as connection:
            connection.send(struct.pack("!4BL", 0, self.rng.randrange(4), 0, self.rng.randrange(2), 8)
                            + self.rng.randbytes(8))
            connection.read_packet()

    def bad_batches(self):
        """Half of them have an index that the table lacks."""
        with contextlib.ExitStack() as stack:
            asked = [stack.enter_context(http1.Connection(self.http)) for _ in range(16)]
            for n, connection in enumerate(asked):
                connection.send(post(b"lookup", b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"INT64",'
                                     b'"data":[%d]}]}' % (1 if n % 2 else 1000)))
            for connection in asked:
                connection.read_answer("POST")

    # ---- they are large ---------------------------------------------------------------------------

    def bomb(self):
        with http1.Connection(self.http) as connection:
            connection.send(post(b"small", BOMB, b"Content-Encoding: gzip"))
            connection.read_answer("POST")

    def large_json(self):
        with http1.Connection(self.http) as connection:
            connection.send(post(b"small", LARGE))
            connection.read_answer("POST")

    def large_bodies(self):
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                connection = stack.enter_context(http1.Connection(self.http))
                connection.send(post(b"small", b" " * (8 * MB))[:-1])

    # ---- at the picker ----------------------------------------------------------------------------

    def unread_picks(self):
        with h2.Connection(self.picker, own=[(h2.INITIAL_WINDOW, 0)]) as connection:
            for _ in range(100):
                stream = connection.begin(PROCESS)
                connection.send_data(stream, h2.message(pick_client.headers("/").SerializeToString()))
            self.wait(3)

    def large_picks(self):
        with h2.Connection(self.picker) as connection:
            stream = connection.begin(PROCESS)
            parts = [pick_client.headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"),
                     *[pick_client.body(b" " * 60000)] * 100]
            connection.send_data(stream, b"".join(h2.message(part.SerializeToString()) for part in parts))
            self.wait(1)


BOMB = gzip.compress(b" " * (64 * MB))
LARGE = b'{"inputs":[{"name":"INPUT0","shape":[1000000],"datatype":"FP32","data":[' + b"1.5," * 999999 + b"1]}]}"
KINDS = [name for name, what in vars(Bad).items() if callable(what) and name not in ("__init__", "wait")]


def run(kind, bad, end, counts):
    while time.monotonic() < end:
        try:
            getattr(bad, kind)()
        except FAULTS:  # it was refused, or its connection closed: both are right
            pass
        counts[kind] += 1
        bad.wait(PAUSE)


def main():
    *addresses, seconds, seed = sys.argv[1:7]
    kinds = sys.argv[7:] or KINDS
    socket.setdefaulttimeout(http1.PATIENCE)
    end = time.monotonic() + float(seconds)
    counts = dict.fromkeys(kinds, 0)
    threads = [threading.Thread(target=run, args=(kind, Bad(*addresses, random.Random(f"{seed}/{kind}")), end, counts))
               for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("  ".join(f"{kind} {n}" for kind, n in counts.items()))
    assert all(counts.values())


if __name__ == "__main__":
    main()

"""Clients who give up, all at once and for as long as it goes: 10 ms deadlines for models that take longer,
told by the header or by a reset, connections lost at every point. Beside them somebody asks a model
that is quick, and is always answered. When it is over the server's own numbers are back to nothing, and
it is not larger than it was. STORM_SECONDS changes how long (10); `make storm` makes it minutes, under
the thread sanitizer."""
import asyncio
import os
import random
import threading
import time

import grpc
import pytest

from lib import h2, http1, server
from lib.grpc_live import (CANCELLED, DEADLINE, GOOD, INFER, OK, SERVICE, SLOW, STREAM, UNAVAILABLE, Live,
                           request, tensor)

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

SECONDS = float(os.environ.get("STORM_SECONDS", "10"))
# What an allocator that is done growing may still move by, however long the storm.
MAX_GROWTH_BYTES = 4 << 20
LATER = request("id_later")
LARGE = request("id_uint8", [tensor("INPUT0", "UINT8", [300000])], [bytes(300000)])
TEN_MS = (b"grpc-timeout", b"10m")


@pytest.fixture
def live(tmp_path, repositories):
    made = Live(tmp_path, repositories("default"))
    with made.server:
        yield made
        if made.server.process.poll() is None:  # a test may have ended it
            made.check_unharmed()


class Worker(threading.Thread):
    """Does `turn` until the time is over; what it met is counted by name."""

    def __init__(self, turn, until):
        super().__init__(daemon=True)
        self.turn, self.until = turn, until
        self.seen, self.failed = {}, None

    def run(self):
        rng = random.Random(self.name)
        try:
            while time.monotonic() < self.until:
                for what in self.turn(rng):
                    self.seen[what] = self.seen.get(what, 0) + 1
        except BaseException as why:
            self.failed = why

    def result(self):
        self.join()
        if self.failed:
            raise self.failed
        return self.seen


# ---- who gives up, and how ------------------------------------------------------------------------

def deadlines(live):
    """A hundred calls at a time with a deadline in their heads: all are answered with that, or well."""
    def turn(rng):
        with live.connect() as connection:
            for _ in range(20):
                streams = [connection.begin(rng.choice((INFER, STREAM)), TEN_MS) for _ in range(100)]
                for stream in streams:
                    connection.send_data(stream, h2.message(rng.choice((SLOW, SLOW, LATER, GOOD))),
                                         end=True)
                for stream in streams:
                    yield connection.answer(stream).status
    return turn


def resets(live):
    """The same, and the client ends them itself, some at once and some while they wait or are answered."""
    def turn(rng):
        with live.connect() as connection:
            for _ in range(20):
                streams = [connection.begin(rng.choice((INFER, STREAM))) for _ in range(50)]
                for stream in streams:
                    data = h2.message(rng.choice((SLOW, LATER, GOOD, LARGE)))
                    n_bytes = rng.choice((0, 3, 20, len(data), len(data)))
                    connection.send_data(stream, data[:n_bytes], end=n_bytes == len(data))
                if rng.random() < 0.5:
                    time.sleep(0.01)
                for stream in streams:
                    if not connection.streams[stream].is_over:
                        connection.send(h2.reset(stream))
                        yield "reset"
                    else:
                        yield connection.streams[stream].status
            connection.ping()
    return turn


def lost_connections(live):
    def turn(rng):
        connection = live.connect(opens=False)
        for _ in range(rng.randrange(1, 10)):
            stream = connection.begin(rng.choice((INFER, STREAM)))
            data = h2.message(rng.choice((SLOW, LATER, LARGE)))
            connection.send_data(stream, data, end=rng.random() < 0.5)
        if rng.random() < 0.5:
            connection.abort()
        else:
            connection.close()
        yield "lost"
    return turn


def grpcio(live):
    """gRPC's own client, with callers whose patience is 10 ms."""
    async def some(rng):
        async with grpc.aio.insecure_channel(live.tcp) as channel:
            ask = channel.unary_unary(INFER.decode())

            async def hopeless():
                try:
                    await ask(rng.choice((SLOW, LATER)), timeout=0.01)
                except grpc.aio.AioRpcError as error:
                    return error.code().value[0]
                return OK

            async def cancelled():
                call = ask(SLOW)
                await asyncio.sleep(0.01)
                call.cancel()
                try:
                    await call
                except asyncio.CancelledError:
                    pass
                return CANCELLED
            return await asyncio.gather(*(rng.choice((hopeless, cancelled))() for _ in range(200)))

    def turn(rng):
        yield from asyncio.run(some(rng))
    return turn


def good(live):
    """The one who is always answered."""
    def turn(rng):
        with live.connect() as connection:
            for _ in range(100):
                ended = connection.call(rng.choice((INFER, STREAM)), GOOD)
                assert ended.status == OK, str(ended)
                yield OK
            assert connection.call(SERVICE + b"ServerReady", b"").status == OK
    return turn


# ---- the storms -----------------------------------------------------------------------------------

def warm(live, kinds):
    """What caches and pools take is taken before it is measured."""
    run(live, kinds, min(SECONDS, 5))
    live.check_at_rest()
    return live.server.rss_bytes()


def run(live, kinds, seconds):
    until = time.monotonic() + seconds
    workers = [Worker(kind(live), until) for kind in kinds]
    for worker in workers:
        worker.start()
    return [worker.result() for worker in workers]


def test_cancel_storm_leaves_server_at_rest(live):
    kinds = (deadlines, deadlines, resets, lost_connections, grpcio, good)
    before = warm(live, kinds)
    seen = run(live, kinds, SECONDS)
    live.check_at_rest()
    grown = live.server.rss_bytes() - before
    print(f"{SECONDS:.0f} s: {list(zip((kind.__name__ for kind in kinds), seen))};"
          f" resident memory {before / 1e6:.1f} MB, {grown / 1e3:+.0f} kB")
    for which in (0, 1):
        assert seen[which][DEADLINE] > 0 and set(seen[which]) <= {OK, DEADLINE, UNAVAILABLE}
    assert seen[2]["reset"] > 0 and seen[2][OK] > 0 and set(seen[2]) <= {"reset", OK, UNAVAILABLE}
    assert seen[3]["lost"] > 0
    assert seen[4][DEADLINE] > 0 and set(seen[4]) <= {OK, CANCELLED, DEADLINE, UNAVAILABLE}
    assert seen[5][OK] > 0
    dropped = live.numbers()
    for reason in ("deadline", "cancelled"):
        assert dropped[f'sluice_requests_dropped_total{{reason="{reason}"}}'] > 0
    if not server.is_sanitized():  # a sanitizer keeps what was freed
        assert grown <= MAX_GROWTH_BYTES


def test_cancel_storm_shutdown_is_clean(live):
    """SIGTERM while it blows: what is in flight is answered or cut off, and the exit is clean."""
    until = time.monotonic() + 60
    workers = [Worker(kind(live), until) for kind in (deadlines, resets, lost_connections)]
    for worker in workers:
        worker.start()
    live.server.wait_for(lambda: live.numbers()["sluice_requests_total"] > 1000, "a storm")
    live.server.stop()
    for worker in workers:
        worker.join()
        # Whoever finds nobody there any more ends so; anything else is a defect.
        assert isinstance(worker.failed, (h2.Ended, OSError)), worker.failed


def test_shutdown_with_blocked_health_watch_is_clean(live):
    """A Watch whose time is over, and whose last words wait because the client takes no bytes: what changes
    then is not told there any more."""
    data = h2.message(request("id_uint8", [tensor("INPUT0", "UINT8", [1 << 18])], [bytes(1 << 18)]))
    with live.connect(own=[(h2.INITIAL_WINDOW, (1 << 31) - 1)], opens=False) as connection:
        connection.ping()
        connection.send(h2.window_update(0, (1 << 31) - 1 - h2.DEFAULT_WINDOW))
        connection.sock.settimeout(http1.PATIENCE)
        for _ in range(60):  # more than both ends' kernels take
            stream, frames = connection.open(h2.call_fields(INFER))
            for at in range(0, len(data), h2.DEFAULT_FRAME):
                last = h2.END_STREAM if at + h2.DEFAULT_FRAME >= len(data) else 0
                frames += h2.frame(h2.DATA, last, stream, data[at:at + h2.DEFAULT_FRAME])
            connection.sock.sendall(frames)
        stream, frames = connection.open(h2.call_fields(b"/grpc.health.v1.Health/Watch", TEN_MS))
        connection.sock.sendall(frames + h2.frame(h2.DATA, h2.END_STREAM, stream, h2.message(b"")))
        live.server.wait_for(lambda: "/Watch writing the status" in live.state(),
                             "the end of the Watch's time")
        live.server.signal()
        live.server.wait_for(lambda: "draining" in live.server.log_text(), "the signal's effect")
        live.server.wait_for(live.state, "a turn of each worker")
        connection.abort()
    assert live.server.wait_exit() == 0

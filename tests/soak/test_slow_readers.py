"""Clients that make the server hold memory, in full size: each row is what held gigabytes before answers
counted. The peak stays below 600 MB with a budget of 256 MiB, good clients are answered throughout,
and afterwards the memory comes back. `make soak`."""
import contextlib
import os
import resource
import socket
import time

import pytest

from lib import http1, metrics
from lib.server import peak_memory_of
from lib.slow_readers import (Good, MB, check_good, unread_calls, unread_request, unread_stream,
                              write_models)

MAX_PEAK = 600_000_000
FLOODED_SECONDS = 10
GROWTH = 1.2  # of the memory at the start, once it came back
SMALL = 8 * MB


@pytest.fixture(name="start")
def start_live(start_server, tmp_path):
    def start(*args, **options):
        live = start_server("--model-repository", write_models(tmp_path / "models"), *args,
                            grpc=("127.0.0.1:0",), **options)
        for _ in range(5):
            check_good(live)
        return live
    return start


def unread_bodies(stack, address, n, n_bytes):
    """Sends bodies but for their last byte."""
    host, port = address.rsplit(":", 1)
    for _ in range(n):
        sock = stack.enter_context(socket.create_connection((host, int(port)), http1.PATIENCE))
        with contextlib.suppress(OSError):  # refused
            sock.sendall(b"POST /v2/models/small/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                         % n_bytes)
            block = bytes(MB)
            for _ in range(n_bytes // MB - 1):
                sock.sendall(block)


def flood_stream(stack, live):
    unread_stream(stack, live.grpc_address, "large", 3000)


def flood_calls(stack, live):
    for _ in range(10):
        unread_calls(stack, live.grpc_address, 100)


def flood_http(stack, live):
    for _ in range(500):
        unread_request(stack, live.address)


def flood_bodies(stack, live):
    unread_bodies(stack, live.address, 60, 200 * MB)
    for _ in range(300):
        unread_request(stack, live.address)


FLOODS = [flood_stream, flood_calls, flood_http, flood_bodies]


def wait_for_memory(live, base):
    end = time.monotonic() + 10
    while live.rss_bytes() > base * GROWTH + SMALL:
        assert time.monotonic() < end, (live.rss_bytes(), base)
        time.sleep(0.1)


@pytest.mark.parametrize("flood", FLOODS)
def test_client_memory_of_flood(start, flood):
    live = start("--client-memory", "256MiB", "--body-memory", "192MiB")
    base = live.rss_bytes()
    with contextlib.ExitStack() as stack, Good(live) as good:
        flood(stack, live)
        end = time.monotonic() + FLOODED_SECONDS
        while time.monotonic() < end:
            good.wait(10)
    peak = peak_memory_of(live)
    print(f"{flood.__name__}: at the start {base >> 20} MiB, at most {peak >> 20} MiB, good answers {4 * good.n}")
    assert peak < MAX_PEAK
    check_good(live)
    live.wait_at_rest()
    wait_for_memory(live, base)


def test_client_memory_of_small_process(start):
    """Default settings, and all floods at once, in a process that may have 512 MiB of address space."""
    live = start(limits={resource.RLIMIT_AS: 512 << 20})
    with contextlib.ExitStack() as stack:
        for flood in FLOODS:
            flood(stack, live)
        time.sleep(FLOODED_SECONDS)
        assert live.process.poll() is None
    live.wait_at_rest()
    check_good(live)
    metrics.read(live.address)
    print(f"small process: at most {peak_memory_of(live) >> 20} MiB; {os.cpu_count()} CPUs")

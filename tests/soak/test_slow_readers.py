"""Clients that make the server hold memory, in full size: each row is what held gigabytes before answers
counted. The peak stays below 600 MB with a budget of 256 MiB, good clients are answered throughout,
and afterwards the memory comes back. `make soak`."""
import contextlib
import gzip
import os
import resource
import socket
import time

import pytest

from lib import h2, http1, metrics, pick_client
from lib.pick_client import Proxy, body, endpoint_of, headers
from lib.repository import DECOUPLED
from lib.server import peak_memory_of
from lib.slow_readers import (Good, MB, check_good, unread_calls, unread_request, unread_stream,
                              wait_for_memory, write_models)

MAX_PEAK = 600_000_000
FLOODED_SECONDS = 10
SMALL_INFER = b"/v2/models/small/infer"
ENDPOINT = "10.0.0.1:8000"
DUPLEX = "FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED"
PICKER = f"""
endpoints: [{ENDPOINT}]
profile:
  plugins: [{{type: prefix-cache-scorer, parameters: {{blockSize: 32, maxPrefixBlocksToMatch: 4096}}}}]
  schedulingProfiles: [{{name: default, plugins: [{{pluginRef: prefix-cache-scorer}}]}}]
"""


@pytest.fixture(name="start")
def start_live(start_server, tmp_path):
    models = write_models(tmp_path / "models")
    DECOUPLED[0].write(str(models))

    def start(*args, **options):
        live = start_server("--model-repository", models, *args,
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
            sock.sendall(http1.post_head(SMALL_INFER, n_bytes))
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


def flood_decoupled(stack, live):
    """Events that are not read."""
    body = b'{"INPUT0":[%s],"responses":10000}' % b",".join([b"1.5"] * 50000)
    for _ in range(200):
        connection = stack.enter_context(http1.Connection(live.address))
        with contextlib.suppress(OSError):
            connection.send(http1.post(b"/v2/models/many/generate_stream", body))


def ask_at_once(stack, live, n, body, *fields):
    """So many requests with the same body, each on a connection of its own; their answers are not read."""
    for _ in range(n):
        connection = stack.enter_context(http1.Connection(live.address))
        with contextlib.suppress(OSError):  # refused
            connection.send(http1.post(SMALL_INFER, body, *fields))


def flood_bombs(stack, live):
    ask_at_once(stack, live, 40, gzip.compress(b" " * (64 * MB)), b"Content-Encoding: gzip")


def flood_json(stack, live):
    """A tree takes sixteen bytes for two of these."""
    ask_at_once(stack, live, 8, b'{"inputs":[{"name":"INPUT0","shape":[20000000],"datatype":"FP32","data":['
                + b"1," * 19999999 + b"1]}]}")


FLOODS = [flood_stream, flood_calls, flood_http, flood_bodies, flood_decoupled, flood_bombs, flood_json]


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
    wait_for_memory(live, base, 10)


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


def test_client_memory_of_small_picker(start_picker):
    """Default settings, in a picker that may have 512 MiB of address space: prompts with a long common beginning,
    and bodies that name no model."""
    picker = start_picker(PICKER, limits={resource.RLIMIT_AS: (512 << 20, 512 << 20)})
    pieces = [b'{"prompt":"' + b"shared " * 4000 + b"%d " % n * 8000 for n in range(50)]
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(h2.Connection(picker.grpc_addresses[0]))
            for piece in pieces:
                stream = connection.begin(pick_client.PROCESS.encode())
                for message in (headers("/v1/completions", config=DUPLEX), body(piece), body(b'","model":"m"}')):
                    data = h2.message(message.SerializeToString())
                    if min(connection.window, connection.windows[stream]) > len(data):
                        connection.send_data(stream, data)
                connection.turn(0)
        assert picker.process.poll() is None
        with Proxy(picker.grpc_addresses[0]) as proxy:
            assert endpoint_of(proxy.ask("/", end=True)) == ENDPOINT
    picker.wait_at_rest()
    print(f"small picker: at most {peak_memory_of(picker) >> 20} MiB")

"""Ten thousand MIP clients that have pinged once and stay, and are served all the same."""
import resource
import selectors
import struct

import pytest

from lib import http1, mip, server
from lib.idle_connections import MAX_BYTES_EACH, N, N_FIRST

pytestmark = pytest.mark.plain

PONG = struct.pack("!4BL", 0, mip.PING, mip.RESPONSE, 0, 0)


def ping_all(connections):
    """Pings on each, a hundred at a time."""
    for at in range(0, len(connections), 100):
        batch = connections[at:at + 100]
        for connection in batch:
            connection.sock.sendall(mip.PING_REQUEST)
        with selectors.DefaultSelector() as selector:
            for connection in batch:
                selector.register(connection.sock, selectors.EVENT_READ)
            waiting = len(batch)
            while waiting:
                ready = selector.select(http1.PATIENCE)
                assert ready, f"{waiting} connections wait for their answer"
                for key, _ in ready:
                    assert key.fileobj.recv(64) == PONG
                    selector.unregister(key.fileobj)
                    waiting -= 1


def open_all(url, n):
    connections = []
    for _ in range(0, n, 100):
        connections += [mip.Connection(url) for _ in range(100)]
        ping_all(connections[-100:])
    return connections


def test_idle_connections_ten_thousand_are_served(start_server, repositories, many_descriptors):
    running = start_server("--model-repository", repositories("onnx-only"), "--mip",
                           "tcp://127.0.0.1:0=onnx_pair", "--idle-timeout", "1h",
                           limits={resource.RLIMIT_NOFILE: 1024})
    url = running.mip_urls[0]
    connections = open_all(url, N_FIRST)
    before = running.rss_bytes()
    connections += open_all(url, N)
    each = (running.rss_bytes() - before) / N
    print(f"{each:.0f} bytes per idle connection")
    if not server.is_sanitized():  # a sanitizer's own memory is no measure
        assert each <= MAX_BYTES_EACH
    ping_all(connections)
    for connection in connections[::500]:
        assert connection.infer([[mip.as_json([1, 2]), mip.as_json([3, 4])]]) == [[[4.0, 6.0]]]
    for connection in connections:
        connection.close()
    running.wait_at_rest()

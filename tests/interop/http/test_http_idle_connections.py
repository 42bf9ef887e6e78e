"""Ten thousand clients that have asked once and stay. Each may cost the server 4 KiB at most."""
import resource
import selectors
import socket

import pytest

from lib import http1, server
from lib.idle_connections import MAX_BYTES_EACH, N, N_FIRST

pytestmark = pytest.mark.plain

ASK = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def ask_all(address, n):
    """Opens n connections, asks on each, and waits for all the answers."""
    host, port = address.rsplit(":", 1)
    connections = []
    for at in range(0, n, 100):
        batch = [socket.create_connection((host, int(port)), http1.PATIENCE)
                 for _ in range(min(100, n - at))]
        for connection in batch:
            connection.sendall(ASK)
        with selectors.DefaultSelector() as selector:
            for connection in batch:
                selector.register(connection, selectors.EVENT_READ)
            waiting = len(batch)
            while waiting:
                ready = selector.select(http1.PATIENCE)
                assert ready, f"{waiting} connections wait for their answer"
                for key, _ in ready:
                    answer = key.fileobj.recv(4096)
                    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"}"), answer
                    selector.unregister(key.fileobj)
                    waiting -= 1
        connections += batch
    return connections


def test_idle_connection_costs_at_most_4_kib(start_server, repositories, many_descriptors):
    # A shell's usual limit: the server has to raise it by itself.
    running = start_server("--model-repository", repositories("default"), "--idle-timeout", "1h",
                           limits={resource.RLIMIT_NOFILE: 1024})
    connections = ask_all(running.address, N_FIRST)
    before = running.rss_bytes()
    connections += ask_all(running.address, N)
    each = (running.rss_bytes() - before) / N
    print(f"{each:.0f} bytes per idle connection")
    if not server.is_sanitized():  # a sanitizer's own memory is no measure
        assert each <= MAX_BYTES_EACH
    for connection in (connections[0], connections[-1]):
        connection.sendall(ASK)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    for connection in connections:
        connection.close()
    running.wait_at_rest()

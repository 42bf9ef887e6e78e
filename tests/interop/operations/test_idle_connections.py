"""Connections up to --max-connections that do nothing, or hardly anything, take nothing from others: whatever the
listener, an idle one goes for each new one, and one with an open request stays."""
import contextlib

import pytest

from lib import grpc_live, h2, http1, metrics, mip
from lib.repository import FREE, Identity

MOST = 50
CROWD = 60
ONE = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
INFER = "/v2/models/m/infer"


@pytest.fixture
def server(start_server, tmp_path):
    Identity("m", [("FP32", FREE)]).write(tmp_path / "models")
    return start_server("--model-repository", tmp_path / "models", "--max-connections", MOST, "--mip",
                        "tcp://127.0.0.1:0=m", metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",))


def closed_idle(server):
    return metrics.read(server.metrics_address)["sluice_idle_connections_closed_total"]


def check_good(server):
    """A new connection of each protocol is served."""
    assert http1.request(server.address, "GET", "/v2/health/ready").status == 200
    assert http1.request(server.address, "POST", INFER, ONE).status == 200
    with h2.Connection(server.grpc_address) as connection:
        assert connection.call(grpc_live.INFER, grpc_live.request("m")).status == grpc_live.OK
    mip.ping(server.mip_urls[0])


CROWDS = {
    "idle on --http": lambda server: (server.address, b""),
    "half heads on --http": lambda server: (server.address, b"GET /v2/health/live HTTP/1.1\r\nHo"),
    "idle on --grpc": lambda server: (server.grpc_address, b""),
    "greeted on --grpc": lambda server: (server.grpc_address, h2.PREFACE + h2.settings()),
    "half heads on --grpc": lambda server: (server.grpc_address, h2.PREFACE + h2.settings() + h2.frame(h2.HEADERS, 0, 1)),
    "idle on --mip": lambda server: (server.mip_urls[0].removeprefix("tcp://"), b""),
    "half heads on --mip": lambda server: (server.mip_urls[0].removeprefix("tcp://"), mip.PING_REQUEST[:5]),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_idle_connections_crowd_leaves_room_for_others(server, crowd):
    address, sent = CROWDS[crowd](server)
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(http1.Connection(server.address))
        busy.send(http1.post_head(INFER.encode(), len(ONE)) + ONE[:10])
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_requests_in_flight"] >= 1, "an open request")
        for _ in range(CROWD):
            sock = stack.enter_context(contextlib.closing(http1.connect(address)))
            sock.sendall(sent)
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_accepted_connections_total"] >= CROWD,
                           "the crowd")
        for _ in range(3):
            check_good(server)
        assert closed_idle(server) > 0
        busy.send(ONE[10:])
        assert busy.read_answer("POST").status == 200
    server.wait_at_rest()


def test_idle_connections_next_answer_of_one_that_stays_is_right(server):
    """Those that are used go last: the others are idle for longer."""
    with contextlib.ExitStack() as stack:
        used, *idle = [stack.enter_context(http1.Connection(server.address)) for _ in range(MOST)]
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_connections"] >= MOST, "all connections")
        for _ in idle:
            used.send(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert used.read_answer().status == 200
            assert http1.request(server.address, "GET", "/v2/health/live").status == 200
    server.wait_at_rest()

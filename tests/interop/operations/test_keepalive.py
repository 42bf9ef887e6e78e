"""Clients whose machine vanishes: no FIN and no reset comes, and a PING of HTTP/2 is not answered. (That the
kernel probes too is shown by src/net/server/listener_test.c.)"""
import pytest

from lib import h2, http1, metrics
from lib.pick_client import Proxy, headers, endpoint_of
from lib.server import defaults_of

A = "10.0.0.1:8000"
FULL = f"endpoints: [{A}]\nsaturation: {{max_in_flight: 1}}\n"
WATCH = b"/grpc.health.v1.Health/Watch"
CLOSED = "sluice_keepalive_timeouts_total"


def watch(address, **options):
    """Returns: a connection with an open Watch that has answered."""
    connection = h2.Connection(address, **options)
    stream = connection.begin(WATCH)
    connection.send_data(stream, h2.message(b""))
    connection.run_until(lambda: connection.streams[stream].data)
    return connection


def test_vanished_client_is_closed(start_server, repositories):
    server = start_server("--model-repository", repositories("default"), "--keepalive-time", "50ms",
                          grpc=("127.0.0.1:0",))
    with watch(server.grpc_addresses[0]) as vanished:
        metrics.wait_until(server.address, lambda n: n[CLOSED] == 1, "a closed connection")
        server.wait_at_rest()
        assert vanished.read_end() is None
    assert http1.request(server.address, "GET", "/v2/health/ready").status == 200


def test_client_that_answers_ping_is_kept(start_server, repositories):
    server = start_server("--model-repository", repositories("default"), "--keepalive-time", "500ms",
                          grpc=("127.0.0.1:0",))
    with watch(server.grpc_addresses[0]) as alive:
        alive.run_until(lambda: alive.n_pings == 2)
        alive.ping()
    assert metrics.read(server.address)[CLOSED] == 0


def test_vanished_proxy_releases_its_picks(start_picker):
    picker = start_picker(FULL, "--keepalive-time", "50ms")
    with h2.Connection(picker.grpc_addresses[0]) as vanished, Proxy(picker.grpc_addresses[0]) as proxy:
        stream = vanished.begin(b"/envoy.service.ext_proc.v3.ExternalProcessor/Process")
        vanished.send_data(stream, h2.message(headers("/").SerializeToString()))
        vanished.run_until(lambda: vanished.streams[stream].data)
        picker.wait_until(lambda n: n[CLOSED] == 1, "a closed connection")
        picker.wait_until(lambda n: n["sluice_pick_pool_requests_in_flight"] == 0, "its end")
        assert endpoint_of(proxy.stream(headers("/")).next()) == A


@pytest.mark.parametrize("command", ["serve", "pick"])
def test_idle_connections_outlast_those_of_proxies(command):
    """Which close an idle one first then: Envoy after an hour, AWS' load balancers after 4,000 seconds at most."""
    minutes = defaults_of(command)["--idle-timeout"]
    assert minutes.endswith("m") and int(minutes[:-1]) * 60 > 4000

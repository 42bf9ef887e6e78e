"""The real thing once: an Envoy, the picker, and three model servers of which one takes a hundred times as
long as the others. What its metrics say and what is in flight there keep requests away from it. Requests are
counted, not timed."""
import contextlib

import pytest

from lib.gateway import IN_PROCESS, Gateway
from lib.load import Load
from lib.repository import Identity
from lib.server import Server

pytestmark = pytest.mark.plain

INFER = "/v2/models/digits/infer"
BODY = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'
N_CLIENTS = 12
DELAYS_US = (2000, 200000, 2000)
ROUNDS = "profile: {plugins: [{type: round-robin-picker}]}\n"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with contextlib.ExitStack() as ending:
        started = []
        for delay_us in DELAYS_US:
            repository = tmp_path_factory.mktemp("models")
            Identity("digits", [("FP32", [-1])], parameters={"delay_us": delay_us}).write(repository)
            started.append(ending.enter_context(
                Server(tmp_path_factory.mktemp("server"), ["--model-repository", repository])))
        yield started


@pytest.fixture
def share_of_slow(tmp_path, servers):
    """share_of_slow(config, n, more): sends `n` requests, or a few more, through a gateway whose pool file has
    `more`. Returns: the share that the slow server got of them."""
    def send(config, n, more=""):
        gateway = Gateway(tmp_path, config, [server.address for server in servers], change=lambda pool:
                          pool + "metrics: {preset: sluice, interval: 100ms}\n" + more)
        try:
            gateway.picker.wait_loads(3)
            with Load(gateway.address, N_CLIENTS, "POST", INFER, BODY,
                      {"content-type": "application/json"}) as load:
                load.wait_more(n)
            assert set(load.outcomes) == {200}
            picks = gateway.picker.picks()
            assert sum(picks.values()) == load.n() and len(picks) == 3
            gateway.stop()
            return picks[servers[1].address] / load.n()
        finally:
            gateway.kill()
    return send


@pytest.mark.parametrize("config", ["headers-only.yaml", "full-duplex.yaml", IN_PROCESS])
def test_default_profile_avoids_slow_server(share_of_slow, config):
    assert share_of_slow(config, 300) < 1 / 6


def test_round_robin_does_not_avoid_slow_server(share_of_slow):
    """That it is slow is no accident of the test: one request in three is what turns give it."""
    assert abs(share_of_slow("headers-only.yaml", 90, ROUNDS) - 1 / 3) < 0.02

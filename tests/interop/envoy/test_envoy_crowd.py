"""What docs/envoy.md promises at 3,000 requests at once: every one is picked, none is refused by a limit of Envoy's
own, and a server that dies costs none where a second choice is promised. tests/soak has the other configurations."""
import contextlib
import os

import pytest
import yaml

from lib.crowd import Gate, ask_all
from lib.envoy import FOLDER
from lib.gateway import IN_PROCESS, Gateway
from lib.server import ROOT

SIDECAR = os.path.join(ROOT, "deploy", "kubernetes", "envoy-sidecar", "envoy.yaml")
EVERY = [os.path.join(FOLDER, name) for name in sorted(os.listdir(FOLDER)) if not name.startswith("pool")]
N = 3000


@pytest.fixture
def gate():
    made = Gate(N)
    yield made
    made.close()


@pytest.fixture
def start(tmp_path, gate):
    started = []

    def begin(config, **more):
        started.append(Gateway(tmp_path, config, more.pop("gate", gate).addresses, **more))
        return started[-1]
    yield begin
    for one in started:
        one.kill()


@pytest.mark.parametrize("path", [*EVERY, SIDECAR], ids=os.path.basename)
def test_envoy_cluster_limits_are_set(path):
    """For each cluster that requests go to: without them Envoy has its own."""
    with open(path, encoding="utf-8") as file:
        clusters = yaml.safe_load(file)["static_resources"]["clusters"]
    for cluster in clusters:
        if cluster["name"] != "admin":
            limits = cluster["circuit_breakers"]["thresholds"][0]
            assert min(limits[name] for name in ("max_connections", "max_pending_requests", "max_requests",
                                                 "max_retries")) > N, cluster["name"]


@pytest.mark.parametrize("config", ["headers-only.yaml", IN_PROCESS])
def test_envoy_3000_requests_at_once_are_all_picked(start, gate, config):
    gateway = start(config)
    assert ask_all(gateway.address, N, gate.open) == {200: N}
    assert sum(gateway.picker.picks().values()) == N
    gateway.stop()


def test_envoy_server_exit_at_3000_requests_loses_none(start, gate):
    """Without health checks: a third of the requests at once is tried again at the second choice."""
    gateway = start("override-host.yaml")
    gate.refuse(0)
    assert ask_all(gateway.address, N, gate.open) == {200: N}
    assert gateway.envoy.counter("cluster.models.upstream_rq_retry_success") > N // 4
    gateway.stop()


@pytest.mark.parametrize("retry_on", ["connect-failure,refused-stream", "connect-failure,refused-stream,reset"])
def test_envoy_server_exit_loses_only_requests_it_had_received(start, retry_on):
    """With `reset` not even these, as long as it had not begun to answer."""
    with contextlib.closing(Gate(300, dies=0)) as gate:
        gateway = start("override-host.yaml", gate=gate, more=lambda text: text.replace(
            "connect-failure,refused-stream", retry_on))
        outcomes = ask_all(gateway.address, 300, gate.open)
        assert gate.n_cut > 0
        n_lost = 0 if "reset" in retry_on else gate.n_cut
        assert (outcomes[503], outcomes[200]) == (n_lost, 300 - n_lost)
        gateway.stop()

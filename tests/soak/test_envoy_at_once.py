"""Each configuration of deploy/envoy with a real Envoy and the real picker at 3,000 requests at once: every one is
picked, none is refused by a limit of Envoy's own."""
import contextlib
import os

import pytest

from lib.crowd import Gate, ask_all
from lib.envoy import FOLDER
from lib.gateway import Gateway

N = 3000


@pytest.mark.parametrize("config", sorted(name for name in os.listdir(FOLDER) if not name.startswith("pool")))
def test_envoy_at_once_3000_requests_are_picked(tmp_path, config):
    with contextlib.closing(Gate(N)) as gate:
        gateway = Gateway(tmp_path, config, gate.addresses)
        try:
            assert ask_all(gateway.address, N, gate.open) == {200: N}
            assert sum(gateway.picker.picks().values()) == N
            gateway.stop()
        finally:
            gateway.kill()

"""A real Envoy whose running requests are evicted by `sluice pick`: what its clients get, and that it ends its own
requests to the servers."""
import contextlib
import re
import threading

import pytest

from lib import echo, http1
from lib.gateway import IN_PROCESS, Gateway

OBJECTIVE = "x-gateway-inference-objective"
PATH = "/v2/models/digits/infer"
PICKER = """---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: active-request-scorer}
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
featureGates: [flowControl]
flowControl: {enableEviction: true, saturationDetector: {pluginRef: concurrency-detector}}
"""


def objectives(pool):
    """The pool's own settings, without a profile, and upstream's."""
    pool = re.sub(r"^(saturation|flow_control):.*\n", "", pool, flags=re.M)
    return (pool.rstrip("\n") + "\nobjectives: [{name: interactive, priority: 20}, {name: batch, priority: -1}]\n"
            + PICKER)


def trusted(text):
    """This proxy's clients may set a priority (docs/picker/profiles.md)."""
    return re.sub(r" *- {remove: x-[a-z-]*-inference-objective}\n", "", text)


@pytest.fixture(params=["full-duplex.yaml", "buffered.yaml", IN_PROCESS])
def gateway(request, tmp_path):
    with contextlib.ExitStack() as ending:
        echoes = ending.enter_context(echo.three())
        started = Gateway(tmp_path, request.param, [one.address for one in echoes], change=objectives, more=trusted)
        ending.callback(started.kill)
        started.echoes = echoes
        yield started


class Asked:
    """A request in a thread of its own."""

    def __init__(self, gateway, wish, objective, http2=False):
        self.reply = self.error = None

        def run():
            try:
                self.reply = gateway.curl(PATH, "-H", f"x-answer: {wish}", "-H", f"{OBJECTIVE}: {objective}",
                                          body=b"{}", http2=http2)
            except AssertionError as error:
                self.error = str(error)
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def join(self):
        self.thread.join(http1.PATIENCE)
        assert not self.thread.is_alive()
        return self


def wait_running(gateway, n):
    gateway.picker.wait_until(lambda now: now["sluice_pick_pool_requests_in_flight"] == n
                              and sum(one.n_now for one in gateway.echoes) == n, f"{n} at the servers")


def test_envoy_evicted_before_the_response_is_429(gateway):
    """The client gets the picker's answer; Envoy ends the request to the server, and another one is served."""
    busy = [Asked(gateway, "silence", "batch") for _ in range(3)]
    wait_running(gateway, 3)
    urgent = Asked(gateway, "status=200", "interactive").join()
    assert urgent.reply.status == 200
    gateway.picker.wait_until(lambda _: sum(not one.thread.is_alive() for one in busy) == 1, "one that was evicted")
    ended = next(one for one in busy if not one.thread.is_alive())
    assert ended.reply.status == 429 and ended.reply.body == b"request evicted by flow control"
    assert ended.reply.headers["x-llm-d-request-dropped-reason"] == "evicted"
    assert ended.reply.headers["content-type"] == "text/plain"
    gateway.picker.wait_until(lambda now: now["sluice_pick_pool_requests_in_flight"] == 2, "two in flight")
    for one in gateway.echoes:
        one.let_go()
    assert sorted(one.join().reply.status for one in busy) == [200, 200, 429]
    gateway.stop()


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_envoy_evicted_while_it_streams_is_reset(gateway, http2):
    """A part of the response has left: it can only break off, with an error that the client sees."""
    busy = [Asked(gateway, "pause", "batch", http2) for _ in range(3)]
    wait_running(gateway, 3)
    urgent = Asked(gateway, "status=200", "interactive").join()
    assert urgent.reply.status == 200
    gateway.picker.wait_until(lambda _: sum(not one.thread.is_alive() for one in busy) == 1, "one that was evicted")
    ended = next(one for one in busy if not one.thread.is_alive())
    assert ended.reply is None and ended.error, ended.reply
    gateway.picker.wait_until(lambda now: now["sluice_pick_pool_requests_in_flight"] == 2, "two in flight")
    for one in gateway.echoes:
        one.let_go()
    assert sum(one.join().reply is not None for one in busy) == 2
    gateway.stop()

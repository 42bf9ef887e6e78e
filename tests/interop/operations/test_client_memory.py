"""Memory that clients make the server hold: clients that ask for large answers and do not read them.
A good client beside them is answered, and the memory of the process stays within the budget. The
same with full sizes is tests/soak/test_slow_readers.py."""
import contextlib

import pytest

from lib import metrics
from lib.server import is_sanitized, peak_memory_of
from lib.slow_readers import (Good, MB, check_good, unread_calls, unread_request, unread_stream,
                              write_models)

BUDGET = 48 * MB
# Besides the budget: the answers that instances are making, what the allocator keeps, the sockets.
SLACK = 80 * MB


@pytest.fixture(name="live")
def start_live(start_server, tmp_path):
    live = start_server("--model-repository", write_models(tmp_path / "models"),
                        "--client-memory", BUDGET, "--max-unsent-size", 8 * MB, grpc=("127.0.0.1:0",))
    check_good(live)
    yield live
    check_good(live)
    live.wait_at_rest()


def check_peak(live, base):
    if not is_sanitized():
        assert peak_memory_of(live) < base + BUDGET + SLACK


@pytest.mark.parametrize("model", ["large", "unknown"])
def test_unread_stream_stops_being_served(live, model):
    """A thousand requests on one ModelStreamInfer, of which nothing is read."""
    base = peak_memory_of(live)
    before = metrics.read(live.address)["sluice_inferences_total"]
    with contextlib.ExitStack() as stack, Good(live) as good:
        unread_stream(stack, live.grpc_address, model, 1000)
        good.wait(20)
        ran = metrics.read(live.address)["sluice_inferences_total"] - before - 4 * good.n
        assert ran < 20
    check_peak(live, base)


def test_unread_calls_of_a_connection_wait_for_each_other(live):
    base = peak_memory_of(live)
    with contextlib.ExitStack() as stack, Good(live) as good:
        for _ in range(10):
            unread_calls(stack, live.grpc_address, 50)
        good.wait(20)
    check_peak(live, base)


def test_unread_answers_over_http_are_closed_for_others(live):
    base = peak_memory_of(live)
    with contextlib.ExitStack() as stack:
        with Good(live) as good:
            for _ in range(150):
                unread_request(stack, live.address)
            good.wait(20)
        metrics.wait_until(live.address, lambda n: n["sluice_slow_readers_closed_total"] > 0,
                           "closed slow readers")
    check_peak(live, base)

"""Three faults that users report of another picker, in issues that are open, shown of a live `sluice pick` with
configurations of llm-d's guides: a burst does not go to one endpoint, metrics that stop do not stop the requests, and no
count is left of endpoints and proxies that have gone. src/pick/pool/promises_test.c has the same of a pool."""
import contextlib
import os

import pytest
import yaml

from lib.metric_pages import MetricPages
from lib.pick_client import Proxy, answer_headers, endpoint_of, headers
from lib.pick_config import with_endpoints

pytestmark = pytest.mark.plain

GUIDES = os.path.join(os.path.dirname(__file__), "llm_d", "guides.yaml")
PAGE = "vllm:num_requests_waiting {}\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0.1\n"
BUSY, IDLE = PAGE.format(50), PAGE.format(0)
N_SERVERS, N_PROXIES, BURST = 4, 6, 4 * 9 + 3
METRICS = {"preset": "vllm", "interval": "50ms", "timeout": "3s", "max_age": "3s"}
QUICK = ("--workers", "3", "--reload-interval", "50ms")


def guide_config(guide, servers, **ours):
    with open(GUIDES, encoding="utf-8") as file:
        return with_endpoints(yaml.safe_load(file)[guide], servers, **ours)


def open_proxies(stack, picker):
    return [stack.enter_context(Proxy(picker.grpc_addresses[0])) for _ in range(N_PROXIES)]


def burst(proxies):
    """Requests that stay open. Returns: them, and how many each endpoint got."""
    streams = [proxies[i % N_PROXIES].stream(headers("/v1/models")) for i in range(BURST)]
    return streams, [endpoint_of(stream.next()) for stream in streams]


def spread_of(picked, servers):
    counts = [picked.count(server) for server in servers]
    return max(counts) - min(counts)


def finish(streams):
    for stream in streams:
        stream.send(answer_headers(end=True))
        stream.next()
        assert stream.close() == []


@pytest.mark.parametrize("guide", ["chart-default", "optimized-baseline", "wide-ep-aggregated"])
def test_burst_on_equal_endpoints_spreads(start_picker, guide):
    """They all report the same once, and nothing after it. Workers that choose at the same time may each choose the same
    one: there are three."""
    with contextlib.ExitStack() as stack:
        pages = [stack.enter_context(MetricPages(IDLE)) for _ in range(N_SERVERS)]
        servers = [page.address for page in pages]
        picker = start_picker(guide_config(guide, servers, metrics=METRICS), *QUICK)
        picker.wait_loads(N_SERVERS)
        for page in pages:
            page.says("", "hang")
        streams, picked = burst(open_proxies(stack, picker))
        assert set(picked) == set(servers)
        assert spread_of(picked, servers) <= 3, picked
        finish(streams)
        picker.wait_at_rest()


def test_metrics_that_stop_do_not_stop_requests(start_picker):
    """Under flow control all endpoints report that they are saturated, and then nothing any more."""
    with contextlib.ExitStack() as stack:
        pages = [stack.enter_context(MetricPages(BUSY)) for _ in range(N_SERVERS)]
        servers = [page.address for page in pages]
        picker = start_picker(guide_config("agentic-serving", servers, metrics=METRICS), *QUICK)
        picker.wait_loads(N_SERVERS)
        proxies = open_proxies(stack, picker)
        first = proxies[0].stream(headers("/v1/models"))
        picker.wait_waiting(1)
        for page in pages:
            page.says("", "hang")
        assert endpoint_of(first.next()) in servers
        streams, picked = burst(proxies)
        assert set(picked) == set(servers)
        finish([first, *streams])
        picker.wait_at_rest()


def test_counts_do_not_drift(start_picker):
    """Endpoints leave and come back while streams are open, and proxies vanish with theirs."""
    servers = [f"10.0.0.{i}:8000" for i in range(1, N_SERVERS + 1)]
    picker = start_picker(guide_config("optimized-baseline", servers), *QUICK)
    for n in (1, 3, 2, N_SERVERS):
        with contextlib.ExitStack() as stack:
            proxies = open_proxies(stack, picker)
            streams, _ = burst(proxies)
            picker.write_pool(guide_config("optimized-baseline", servers[:n]))
            picker.wait_ready_endpoints(n)
            _, picked = burst(proxies[3:] * 2)
            assert set(picked) <= set(servers[:n])
            finish(streams[::N_PROXIES])  # of one proxy; the others vanish
        picker.wait_at_rest()
    with contextlib.ExitStack() as stack:
        streams, picked = burst(open_proxies(stack, picker))
        assert spread_of(picked, servers) <= 3, picked
        finish(streams)
    picker.wait_at_rest()

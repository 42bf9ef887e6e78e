"""GET /metrics at --http: one page for all clients, printed on a thread that serves no requests, at most once in
--metrics-interval. Its bytes count as long as a response holds them."""
import contextlib
import json
import select
import signal
import socket

import pytest

from lib import http1, metrics
from lib.repository import FREE, Identity

ALWAYS = "1h"  # no page is too old within a test
GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
PAGES = 'sluice_client_memory_bytes{kind="pages",protocol="http"}'
PRINTED = "sluice_shared_pages_total"
ONE = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
N = 800
N_AT_METRICS = 100


def write_models(folder, n, name):
    for i in range(n):
        Identity(name(i), [("FP32", FREE)]).write(folder)
    return folder


@pytest.fixture(name="start")
def start_with_models(start_server, tmp_path):
    def start(interval, n_models=60, name="m{:03}".format, flags=()):
        return start_server("--model-repository", write_models(str(tmp_path / "models"), n_models, name),
                            "--workers", "1", "--metrics-interval", interval, *flags, metrics_at="127.0.0.1:0")
    return start


def page_of(live, fields=()):
    answer = http1.request(live.address, "GET", "/metrics", fields=fields)
    assert answer.status == 200, str(answer)
    return answer.body


def infer(live, model="m000"):
    return http1.request(live.address, "POST", f"/v2/models/{model}/infer", ONE)


def printed(live):
    return metrics.read(live.metrics_address)[PRINTED]


def rest(live):
    """The page that is kept for the next client counts, too."""
    metrics.wait_until(live.metrics_address, lambda n: n["sluice_requests_in_flight"] == 1
                       and n['sluice_client_memory_bytes{kind="connections",protocol="http"}'] == 0, "no client")


# ---- how often it is printed ---------------------------------------------------------------------

def test_page_within_interval_is_the_same(start):
    live = start(ALWAYS)
    first = page_of(live)
    before = printed(live)
    assert infer(live).status == 200
    assert page_of(live) == first and printed(live) == before
    opened = [("Accept", "application/openmetrics-text; version=1.0.0")]
    other = page_of(live, opened)
    assert other != first and other == page_of(live, opened) and printed(live) == before + 1
    head = http1.request(live.address, "HEAD", "/metrics")
    assert head.status == 200 and int(head.get("Content-Length")) == len(first)
    with_body = http1.request(live.address, "GET", "/metrics", b"x" * 1000)
    assert with_body.status == 200 and with_body.body == first
    # At --metrics each request gets current numbers.
    assert metrics.read(live.metrics_address)["sluice_inferences_total"] == 1


def test_page_after_interval_is_new(start):
    live = start("50ms")
    assert infer(live).status == 200
    metrics.wait_until(live.address, lambda n: n["sluice_inferences_total"] == 1, "a page after the inference")
    before = printed(live)
    metrics.wait_until(live.address, lambda n: n[PRINTED] > before, "another page")


def test_page_without_interval_is_current(start):
    live = start("0")
    for n in range(1, 6):
        before = printed(live)
        assert infer(live).status == 200
        assert metrics.read(live.address)["sluice_inferences_total"] == n
        assert printed(live) == before + 1


# ---- crowds --------------------------------------------------------------------------------------

@contextlib.contextmanager
def crowd(live, n=N):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(http1.Connection(live.address)) for _ in range(n)]
        metrics.wait_until(live.metrics_address, lambda now: now["sluice_connections"] >= n, "all connections")
        yield connections


@pytest.mark.parametrize("interval, most", [(ALWAYS, 1), ("0", N / 2)])
def test_page_of_a_crowd_is_printed_once(start, interval, most):
    """All requests come while the process is stopped; a good client of the same worker is answered among them."""
    live = start(interval)
    before = printed(live) if interval == "0" else 0
    with crowd(live) as connections, http1.Connection(live.address) as good:
        live.signal(signal.SIGSTOP)
        for connection in connections:
            connection.send(GET)
        good.send(http1.post(b"/v2/models/m000/infer", ONE))
        live.signal(signal.SIGCONT)
        assert good.read_answer("POST").status == 200
        for connection in connections:
            answer = connection.read_answer()
            assert answer.status == 200 and PRINTED.encode() in answer.body
    assert printed(live) - before <= most
    rest(live)


def test_page_of_the_metrics_listener_is_shared_by_a_crowd(start):
    """Each page has another number of bytes sent. One that was begun before a request does not answer it."""
    live = start("0")
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(http1.Connection(live.metrics_address)) for _ in range(N_AT_METRICS)]
        metrics.wait_until(live.metrics_address, lambda n: n["sluice_connections"] > N_AT_METRICS, "all connections")
        live.signal(signal.SIGSTOP)
        for connection in connections:
            connection.send(GET)
        live.signal(signal.SIGCONT)
        pages = [connection.read_answer() for connection in connections]
        assert {page.status for page in pages} == {200}
        assert len({page.body for page in pages}) <= N_AT_METRICS / 4
    assert infer(live).status == 200
    before = metrics.read(live.metrics_address)["sluice_inferences_total"]
    assert infer(live).status == 200
    assert metrics.read(live.metrics_address)["sluice_inferences_total"] == before + 1
    live.wait_at_rest()


def test_page_waiting_clients_that_have_gone_hold_nothing(start):
    live = start("0")
    with crowd(live) as connections:
        live.signal(signal.SIGSTOP)
        for connection in connections:
            connection.send(GET)
            connection.reset()
        live.signal(signal.SIGCONT)
    assert infer(live).status == 200
    live.wait_at_rest()


def test_page_waiting_clients_are_answered_by_a_server_that_stops(start):
    live = start("0")
    with crowd(live, 100) as connections:
        live.signal(signal.SIGSTOP)
        for connection in connections:
            connection.send(GET)
        live.signal(signal.SIGTERM)
        live.signal(signal.SIGCONT)
        for connection in connections:
            assert connection.read_answer().status == 200
        assert live.wait_exit() == 0
    live.check_log()


# ---- memory --------------------------------------------------------------------------------------

LONG = ("m{:03}" + "x" * 150).format  # 400 of these make a page of 8 MB, more than sockets take


def unread(stack, live):
    sock = stack.enter_context(contextlib.closing(socket.socket()))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, _, port = live.address.rpartition(":")
    sock.connect((host, int(port)))
    sock.sendall(GET)
    return sock


def test_page_unread_counts_until_clients_have_gone(start):
    live = start("0", 400, LONG)
    n_bytes = len(page_of(live))
    assert n_bytes > 7 << 20
    assert metrics.read(live.metrics_address)[PAGES] == 0
    with contextlib.ExitStack() as stack:
        for i in range(1, 4):  # each has a page of its own
            sock = unread(stack, live)
            assert select.select([sock], [], [], http1.PATIENCE)[0]
            numbers = metrics.wait_until(live.metrics_address, lambda n, i=i: n[PAGES] > i * n_bytes, "unread pages")
            assert numbers[PAGES] < i * (n_bytes + 4096)
        holders = json.loads(http1.request(live.metrics_address, "GET", "/status.json").body)["memory"]["holders"]
        assert [one["pages"] > n_bytes - 4096 for one in holders] == [True] * 3
    metrics.wait_until(live.metrics_address, lambda n: n[PAGES] == 0, "no page")
    live.wait_at_rest()


def test_page_unread_by_many_counts_once(start):
    live = start(ALWAYS, 400, LONG)
    n_bytes = len(page_of(live))
    with contextlib.ExitStack() as stack:
        socks = [unread(stack, live) for _ in range(50)]
        for sock in socks:
            assert select.select([sock], [], [], http1.PATIENCE)[0]
        assert n_bytes < metrics.read(live.metrics_address)[PAGES] < n_bytes + 4096
    rest(live)


def test_page_unread_for_long_makes_room_for_another(start):
    """The page of a client that does not read takes the part of all pages."""
    live = start("0", 400, LONG, ["--client-memory", "64MiB"])
    n_bytes = len(page_of(live))
    with contextlib.ExitStack() as stack:
        unread(stack, live)
        metrics.wait_until(live.metrics_address, lambda n: n[PAGES] > n_bytes, "an unread page")
        refused = http1.request(live.address, "GET", "/metrics")
        assert refused.status == 503 and b"--client-memory" in refused.body and refused.get("Retry-After") == "1"
        assert infer(live, LONG(0)).status == 200
        http1.wait_for_status(live.address, 200, "/metrics")
        assert metrics.read(live.metrics_address)["sluice_slow_readers_closed_total"] == 1
    live.wait_at_rest()

"""The process stands still for longer than its time-outs (SIGSTOP here; a throttled control group and a
migrated machine are the same): what clients sent meanwhile is read before they are timed out."""
import contextlib
import os
import signal
import time

import pytest

from lib import h2, http1, metrics
from lib.metric_pages import MetricPages

N = 10
TIMEOUT = 1.0
BODY = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
REQUEST = (b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: localhost\r\n"
           b"Content-Length: %d\r\n\r\n" % len(BODY)) + BODY
# Where a request is cut by the stop: in the head, before the body, in the body, before its first byte.
CUTS = [10, REQUEST.index(b"\r\n\r\n") + 4, len(REQUEST) - 5, 0]
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
READY = b"/inference.GRPCInferenceService/ServerReady"


@contextlib.contextmanager
def stopped(process):
    """The process is stopped for longer than the time-outs, except for what the body does."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
        time.sleep(TIMEOUT + 0.2)
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.fixture
def server(start_server, repositories):
    value = f"{TIMEOUT}s"
    return start_server("--model-repository", repositories("default"), "--header-timeout", value,
                        "--body-timeout", value, "--min-body-rate", "1MiB", "--idle-timeout", value, "--write-timeout", value,
                        grpc=("127.0.0.1:0",))


def begin_requests(server, opened):
    """Returns: connections with a half of a request and where it is cut, and gRPC connections with half a message."""
    halves = [(opened.enter_context(http1.Connection(server.address)), at) for at in CUTS for _ in range(N)]
    calls = []
    for _ in range(N):
        connection = opened.enter_context(h2.Connection(server.grpc_addresses[0]))
        calls.append((connection, connection.begin(READY)))
        connection.send_data(calls[-1][1], h2.message(b"")[:2])
    for connection, at in halves:
        if at == 0:
            connection.send(LIVE)
            assert connection.read_answer("GET").status == 200
        connection.send(REQUEST[:at])
    assert http1.request(server.address, "GET", "/v2/health/live").status == 200
    return halves, calls


def test_requests_completed_while_stopped_are_answered(server):
    with contextlib.ExitStack() as opened:
        end = time.monotonic() + http1.PATIENCE
        while True:
            began = time.monotonic()
            assert began < end, "the requests never began fast enough"
            with contextlib.ExitStack() as these, contextlib.suppress(AssertionError, OSError):
                halves, calls = begin_requests(server, these)
                if time.monotonic() - began < TIMEOUT / 2:  # else the first of them time out before the stop
                    opened.enter_context(these.pop_all())
                    break
        with stopped(server.process):
            for connection, at in halves:
                connection.send(REQUEST[at:])
            for connection, stream in calls:
                connection.send_data(stream, h2.message(b"")[2:], end=True)
        for connection, at in halves:
            answer = connection.read_answer("POST")
            assert answer.status == 200, (at, str(answer))
        for connection, stream in calls:
            assert connection.answer(stream).status == 0


def test_requests_not_completed_time_out_after_a_stop(server):
    """One more look at the sockets, not another time-out that a slow client could get again and again."""
    with http1.Connection(server.address) as connection:
        connection.send(REQUEST[:10])
        assert http1.request(server.address, "GET", "/v2/health/live").status == 200
        with stopped(server.process):
            pass
        assert connection.read_answer("POST").status == 408


def test_event_loops_are_not_held_by_a_stop(start_server, repositories):
    server = start_server("--model-repository", repositories("default"), "--loop-unready-after", "3s",
                          "--loop-dead-after", "3s", metrics_at="127.0.0.1:0")
    with stopped(server.process):
        time.sleep(2)
    for address in (server.address, server.metrics_address):
        for what in ("live", "ready"):
            assert http1.request(address, "GET", f"/v2/health/{what}").status == 200
    assert "does not respond" not in server.log_text()


def send_body_around_a_stop(server):
    """Returns: the answer, and the seconds that it took besides the stop."""
    third = 200000
    in_flight = "sluice_body_bytes_in_flight"
    began = time.monotonic()
    with http1.Connection(server.address) as connection:
        connection.send(b"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: localhost\r\n"
                        b"Inference-Header-Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % (3 * third))
        connection.send(bytes(third))
        metrics.wait_until(server.address, lambda now: now[in_flight] in (0, third), "the first third, or its end")
        with stopped(server.process):
            stop = time.monotonic()
            connection.send(bytes(third))
        began += time.monotonic() - stop
        metrics.wait_until(server.address, lambda now: now[in_flight] in (0, 2 * third), "the second third, or its end")
        with contextlib.suppress(OSError):
            connection.send(bytes(third))
        return connection.read_answer("POST"), time.monotonic() - began


def test_body_rate_does_not_count_a_stop(server):
    """The client was as fast as --min-body-rate until the stop, and is again after it."""
    end = time.monotonic() + http1.PATIENCE
    while (answer := send_body_around_a_stop(server))[0].status != 200:
        assert answer[1] > TIMEOUT / 2, str(answer[0])  # else this machine was too busy to be fast enough
        assert time.monotonic() < end, "never fast enough"


# ---- the picker ----------------------------------------------------------------------------------

@pytest.mark.parametrize("what, page", [
    ("health: {http: /, interval: 50ms, timeout: 1s, unhealthy: 1}", "ok"),
    ("metrics: {preset: sglang, interval: 50ms, timeout: 1s}", "sglang:num_queue_reqs 5.0\n")])
def test_endpoint_is_not_blamed_for_a_stop(start_picker, what, page):
    """It answered in time, as far as it can know; the picker saw that when the time was over."""
    kind = "probes" if what.startswith("health") else "scrapes"
    result = f'sluice_pick_{kind}_total{{result="%s"}}'
    with MetricPages(page) as server:
        picker = start_picker(f"endpoints: [{server.address}]\n{what}\n")
        picker.wait_until(lambda now: now[result % "ok"] >= 1, "a good answer")
        server.says(page, "gate")
        n = server.n_requests
        picker.wait_until(lambda _: server.n_requests > n, "a question")
        with stopped(picker.process):
            server.opened.set()
        server.says(page)
        ok = picker.numbers()[result % "ok"]
        numbers = picker.wait_until(lambda now: now[result % "ok"] > ok + 1, "two more good answers")
        assert numbers[result % "timeout"] == 0 == numbers[result % "broken"]
        assert "not ready" not in picker.log_text() and "scrape failed" not in picker.log_text()

"""`sluice pick` checks its endpoints: servers that become unready, die, hang and come back, asked over HTTP,
over gRPC and by a connection alone; the pick goes elsewhere, and the log says why."""
import concurrent.futures
import contextlib
import resource
import socket
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from lib import http1
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy, answer_headers, endpoint_of, headers

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

UNCHECKED = 'sluice_pick_pool_endpoints{state="unchecked"}'
READY_NOW = 'sluice_pick_pool_endpoints{state="ready"}'
QUICK = ("--reload-interval", "50ms")
SERVING, NOT_SERVING = (health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING)


@pytest.fixture
def start(start_picker):
    """start(pool): a picker of the test's own."""
    return lambda pool, *args: start_picker(pool, *QUICK, *args)


def pool_of(addresses, check, more=""):
    """A check without a time limit of its own has one that a busy machine keeps."""
    listed = "".join(f"- {address}\n" for address in addresses)
    check += "" if "timeout:" in check else ", timeout: 30s"
    return f"endpoints:\n{listed}health: {{{check}, interval: 20ms}}\n{more}"


def picked(picker, n=20):
    """The endpoints of so many requests, one after the other, once all endpoints were checked."""
    picker.wait_until(lambda now: now[UNCHECKED] == 0, "all to be checked")
    return picked_now(picker, n)


def picked_now(picker, n=20):
    with Proxy(picker.grpc_addresses[0]) as proxy:
        return {proxy.pick() for _ in range(n)}


def answer_with(proxy, status, address):
    """A request that only this endpoint may get, and the response that it sends."""
    stream = proxy.stream(headers(hint=address))
    assert endpoint_of(stream.next()) == address
    answer = answer_headers(status, end=True)
    answer.response_headers.headers.headers.add(key="x-envoy-upstream-service-time", raw_value=b"1")
    stream.send(answer)
    stream.close()


def results(picker, result):
    return picker.numbers()[f'sluice_pick_probes_total{{result="{result}"}}']


def reasons_now(picker, address):
    return [line["reason"] for line in picker.log_lines()
            if line.get("event") == "an endpoint is not ready" and line["endpoint"] == address]


def reasons(picker, address):
    """Why the log says that it was not ready, in this order: what it says comes a moment after the gauge."""
    end = time.monotonic() + http1.PATIENCE
    while True:
        found = reasons_now(picker, address)
        if found or time.monotonic() > end:
            return found
        time.sleep(0.01)


@contextlib.contextmanager
def silent():
    """An address at which connections are made, and nothing is ever said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def closed():
    """An address that refuses connections, and that nobody else takes."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


# ---- over HTTP -----------------------------------------------------------------------------------

def test_health_not_ready_server_is_avoided(start):
    with MetricPages("ok") as one, MetricPages("ok") as other:
        picker = start(pool_of([one.address, other.address], "http: /v2/health/ready"))
        assert one.heads[0].startswith("GET /v2/health/ready HTTP/1.1\r\n")
        assert picked(picker) == {one.address, other.address}
        one.says("not yet", "status")
        picker.wait_ready_endpoints(1)
        assert picked(picker) == {other.address}
        assert reasons(picker, one.address) == ["answered 503"]
        other.says("", "redirect")
        picker.wait_ready_endpoints(0)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            status, _, text = proxy.refuse()
        assert status == 503 and "none of the pool's 2 endpoints is ready" in text
        assert reasons(picker, other.address) == ["answered 302"]
        one.says("ok")
        picker.wait_ready_endpoints(1)
        assert picked(picker) == {one.address}
        other.says("ok")
        picker.wait_ready_endpoints(2)
        assert picked(picker) == {one.address, other.address}


def test_health_server_exit_and_return(start):
    with MetricPages("ok") as one:
        other = MetricPages("ok")
        picker = start(pool_of([one.address, other.address], "http: /ready"))
        assert picked(picker) == {one.address, other.address}
        other.close()
        picker.wait_ready_endpoints(1)
        assert picked(picker) == {one.address}
        assert reasons(picker, other.address) == ["refused the connection"]
        assert results(picker, "refused") >= 1
        with MetricPages("ok", other.address):
            picker.wait_ready_endpoints(2)
            assert picked(picker) == {one.address, other.address}


def test_health_hanging_server_times_out(start):
    with MetricPages("ok") as one, MetricPages("ok") as other:
        picker = start(pool_of([one.address, other.address], "http: /ready, timeout: 1s"))
        other.says("", "hang")
        picker.wait_ready_endpoints(1)
        assert picked(picker) == {one.address}
        assert reasons(picker, other.address) == ["timed out"]
        assert results(picker, "timeout") >= 2


@pytest.mark.parametrize("how, why", [
    ("garbage", "answered with something that is not HTTP"),
    ("hang", "timed out"),
    ("status", "answered 503"),
])
def test_health_known_before_first_request(start, how, why):
    """A picker that says it is ready has asked everybody once, but for those that take their time."""
    with MetricPages("ok") as one, MetricPages("no") as other, closed() as refusing, silent() as mute:
        other.says("no", how)
        for _ in range(10):  # on a busy machine the quarter of a second that it waits may be too short
            picker = start(pool_of([mute, refusing, other.address, one.address], "http: /ready, timeout: 2s"))
            numbers = picker.numbers()
            if numbers[READY_NOW] == 1 and numbers[UNCHECKED] > 0:
                break
        assert numbers[READY_NOW] == 1 and numbers[UNCHECKED] > 0
        assert picked_now(picker) == picked(picker) == {one.address}
        for address, reason in ((other.address, why), (refusing, "refused the connection"), (mute, "timed out")):
            assert reasons(picker, address) == [reason]


def test_health_thresholds(start):
    """After so many answers in a row, and not before."""
    with MetricPages("ok") as one:
        picker = start(pool_of([one.address], "http: /ready, healthy: 4, unhealthy: 5"))
        assert picked(picker, 1) == {one.address}  # the first check decides
        one.says("no", "status")
        before = one.n_requests
        picker.wait_ready_endpoints(0)
        assert one.n_requests >= before + 5 - 1  # one may have been under way
        one.says("ok")
        before = one.n_requests
        picker.wait_ready_endpoints(1)
        assert one.n_requests >= before + 4 - 1


def test_health_connection_is_kept(start):
    with MetricPages("ok") as one:
        picker = start(pool_of([one.address], "http: /ready"))
        picker.wait_until(lambda _: one.n_requests >= 10, "ten checks")
        assert one.n_connections == 1


def test_health_separate_port(start):
    """Requests go to one port, checks to another."""
    with MetricPages("ok") as one, closed() as requests:
        picker = start(pool_of([requests], f"http: /ready, port: {one.port}"))
        assert picked(picker, 1) == {requests}


# ---- over gRPC, and by a connection --------------------------------------------------------------

@contextlib.contextmanager
def grpc_server(address="127.0.0.1:0"):
    """A server of grpc.health.v1. Yields: its address and what sets states."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}", servicer
    finally:
        server.stop(None).wait()


def test_health_grpc_states(start):
    with grpc_server() as (one, _), grpc_server() as (other, states):
        picker = start(pool_of([one, other], "grpc: ''"))
        assert picked(picker) == {one, other}
        states.set("", NOT_SERVING)
        picker.wait_ready_endpoints(1)
        assert picked(picker) == {one}
        assert reasons(picker, other) == ["answered NOT_SERVING"]
        states.set("", SERVING)
        picker.wait_ready_endpoints(2)


def test_health_grpc_service_name(start):
    """A service that the server does not know is not ready."""
    with grpc_server() as (one, states):
        picker = start(pool_of([one], "grpc: llama"))
        picker.wait_until(lambda now: now[UNCHECKED] == 0, "a check")
        assert reasons(picker, one)[0].startswith("answered NOT_FOUND")
        states.set("llama", SERVING)
        picker.wait_ready_endpoints(1)


def test_health_grpc_missing_is_not_ready(start):
    with MetricPages("ok") as one, closed() as refusing, silent() as mute, grpc_server() as (good, _):
        picker = start(pool_of([one.address, refusing, mute, good], "grpc: '', timeout: 2s"))
        assert picked(picker) == {good}
        assert "refused" in reasons(picker, refusing)[0]
        assert len(reasons(picker, one.address)) == len(reasons(picker, mute)) == 1


def test_health_tcp_connection_is_ready(start):
    """A server that takes connections is ready by `tcp`, whatever it says."""
    with silent() as mute, closed() as refusing:
        picker = start(pool_of([mute, refusing], "tcp: true"))
        assert picked(picker) == {mute}
        assert reasons(picker, refusing) == ["refused the connection"]


@pytest.mark.parametrize("check", ["http: /v2/health/ready", "grpc: inference.GRPCInferenceService",
                                   "grpc: id_fp32", "tcp: true"])
def test_health_of_sluice_server(start, start_server, repositories, check):
    """A server of ours that drains, ends, and is started again where it was."""
    kind = "grpc" if check.startswith("grpc") else "listen"
    def serve(address):
        return start_server("--model-repository", repositories("default"), **{kind: (address,)})
    def address_of(server):
        return server.grpc_address if kind == "grpc" else server.address
    one, other = serve("127.0.0.1:0"), serve("127.0.0.1:0")
    picker = start(pool_of([address_of(one), address_of(other)], check))
    assert picked(picker) == {address_of(one), address_of(other)}
    other.stop()
    picker.wait_ready_endpoints(1)
    assert picked(picker) == {address_of(one)}
    serve(address_of(other))
    picker.wait_ready_endpoints(2)


# ---- changes -------------------------------------------------------------------------------------

def test_health_check_change_is_applied(start):
    with MetricPages("no") as one:
        one.says("no", "status")
        picker = start(pool_of([one.address], "http: /ready"))
        picker.wait_until(lambda now: now['sluice_pick_pool_endpoints{state="not_ready"}'] == 1, "a check")
        picker.write_pool(pool_of([one.address], "tcp: true"))
        picker.wait_ready_endpoints(1)
        picker.write_pool(pool_of([one.address], "http: /ready"))
        picker.wait_ready_endpoints(0)
        picker.write_pool(f"endpoints: [{one.address}]\n")
        picker.wait_ready_endpoints(1)


@pytest.mark.parametrize("how", ["cut", "endless"])
def test_health_status_decides_without_its_body(start, how):
    """200 with a body that breaks off, or does not end."""
    with MetricPages("ok " * 100) as one:
        one.says("ok " * 100, how)
        picker = start(pool_of([one.address], "http: /ready, timeout: 1s"))
        picker.wait_ready_endpoints(1)
        picker.wait_until(lambda _: one.n_requests >= 3, "three checks")
        assert picked(picker) == {one.address} and picker.numbers()[READY_NOW] == 1
        one.says("", "status")
        picker.wait_ready_endpoints(0)


def test_health_check_goes_on_while_pool_changes(start):
    """A check takes longer than it takes the pool to change: its answer counts."""
    with MetricPages("ok") as slow, MetricPages("ok") as other:
        slow.says("ok", "gate")
        picker = start(pool_of([slow.address], "http: /ready, timeout: 30s"))
        picker.wait_until(lambda _: slow.n_requests == 1, "a check")
        for generation in range(2, 5):
            listed = [slow.address, other.address] if generation % 2 == 0 else [slow.address]
            picker.write_pool(pool_of(listed, "http: /ready, timeout: 30s"))
            picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == generation, "the pool")
        assert (slow.n_requests, slow.n_connections) == (1, 1)
        slow.opened.set()
        picker.wait_ready_endpoints(2)
        assert slow.n_connections == 1


def test_health_check_that_succeeds_ends_ejection(start):
    """A server fails five requests in a row, is ejected, and is well again. Too few requests are picked for a trial, and the
    ejection lasts for half an hour: the health check, which succeeds all the time, is what brings it back."""
    with MetricPages("ok") as one, MetricPages("ok") as other:
        picker = start(pool_of([one.address, other.address], "http: /ready",
                               "outlier_detection: {base_ejection_time: 30m, max_ejection_time: 30m}\n"))
        picker.wait_ready_endpoints(2)
        ejected = f'sluice_pick_endpoint_ejected{{endpoint="{one.address}"}}'
        with Proxy(picker.grpc_addresses[0]) as proxy:
            for _ in range(5):
                answer_with(proxy, 500, one.address)
            picker.wait_until(lambda now: now[ejected] == 1 or now["sluice_pick_ejections_total"] == 1, "an ejection")
            picker.wait_until(lambda now: now[ejected] == 0, "the end of the ejection")
            answer_with(proxy, 500, one.address)  # the trial fails: two checks are needed
            picker.wait_until(lambda now: now[ejected] == 0, "the end of the ejection")
            answer_with(proxy, 200, one.address)
        picker.wait_until(lambda _: any(line.get("event") == "endpoint recovered after an ejection"
                                        for line in picker.log_lines()), "a recovery")
        assert picker.numbers()["sluice_pick_ejections_total"] == 1


def test_health_new_endpoint_is_checked_at_once(start):
    """A new one is asked at once, however long the interval; one that was away begins anew."""
    with MetricPages("ok") as one, MetricPages("ok") as other:
        def pool(*servers):
            listed = ", ".join(server.address for server in servers)
            return f"endpoints: [{listed}]\nhealth: {{http: /ready, interval: 1h, timeout: 30s}}\n"
        picker = start(pool(one))
        picker.wait_ready_endpoints(1)
        picker.write_pool(pool(one, other))
        picker.wait_ready_endpoints(2)
        other.says("no", "status")
        picker.write_pool(pool(one))
        picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == 3, "the pool without it")
        picker.write_pool(pool(one, other))
        picker.wait_until(lambda now: now['sluice_pick_probes_total{result="status"}'] == 1, "a check")
        picker.wait_ready_endpoints(1)
        assert picked(picker) == {one.address}


def test_health_success_clears_refused_connection(start):
    """A refused connection makes an endpoint the last choice; a check that succeeds takes that back."""
    with MetricPages("ok") as one:
        other = MetricPages("ok")
        picker = start(pool_of([one.address, other.address], "tcp: true, unhealthy: 100", "refused_for: 1h\n"))
        other.close()
        refused = f'sluice_pick_endpoint_refused{{endpoint="{other.address}"}}'
        picker.wait_until(lambda now: now[refused] == 1, "a refusal")
        assert picked(picker) == {one.address}
        with MetricPages("ok", other.address):
            picker.wait_until(lambda now: now[refused] == 0, "no refusal")
            picker.wait_ready_endpoints(2)
            assert picked(picker) == {one.address, other.address}


def test_health_thousand_endpoints(start):
    """All are asked at the start, and again; those that fall silent are found out one by one."""
    with MetricPages("ok", "0.0.0.0:0") as one:
        addresses = [f"127.0.{1 + n // 250}.{1 + n % 250}:{one.port}" for n in range(1000)]
        picker = start(pool_of(addresses, "http: /ready, timeout: 10m").replace("20ms", "3s"))
        picker.wait_ready_endpoints(1000)
        picker.wait_until(lambda now: now['sluice_pick_probes_total{result="ok"}'] >= 2000, "two rounds")
        one.says("no", "status")
        picker.wait_ready_endpoints(0)
        state = http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()
        assert state.count(": not ready, 0 in flight") == 1000


# ---- what the picker lacks ------------------------------------------------------------------------

@contextlib.contextmanager
def no_descriptors(process):
    """It gets no new one meanwhile."""
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def closing_server():
    """Ready, on a connection for each request."""
    def answer(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("check", ["http: /", "tcp: true"])
def test_health_check_without_descriptors_says_nothing_of_endpoints(start, check):
    with closing_server() as address:
        picker = start(pool_of([address], f"{check}, unhealthy: 1"))
        picker.wait_ready_endpoints(1)
        with no_descriptors(picker.process):
            picker.wait_for(lambda: "health checks cannot be carried out" in picker.log_text(), "a reason")
        assert "too many open files" in picker.log_text().lower()
        good = results(picker, "ok")
        picker.wait_until(lambda now: now['sluice_pick_probes_total{result="ok"}'] > good + 2, "checks")
        assert picked(picker) == {address}
        assert results(picker, "local") > 0 and not reasons_now(picker, address)

"""Health and metrics are answered when all other connections are taken, and when their own listener is full
of idle ones."""
import contextlib
import os
import resource
import signal
import time

import grpc
import pytest

from lib import h2, http1, metrics, mip

POOL = "endpoints: [10.0.0.1:8000]\n"
CHECK = b"/grpc.health.v1.Health/Check"
CHECKED = 'sluice_pick_probes_total{result="ok"}'
REFUSED = "sluice_connections_refused_total"
N = 300  # over what the listeners of health and metrics accept at once


def health_address(picker):
    with open(picker.ready_file, encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if line.endswith("/health")]
    return lines[0].removeprefix("grpc://").removesuffix("/health")


def check_health(address):
    with h2.Connection(address) as connection:
        answer = connection.call(CHECK, b"")
        assert answer.status == 0 and answer.messages() == [b"\x08\x01"], str(answer)


def test_health_and_metrics_beyond_max_connections(start_picker):
    picker = start_picker(POOL, "--health", "127.0.0.1:0", "--max-connections", "2")
    with contextlib.ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(h2.Connection(picker.grpc_addresses[0])).ping()
        check_health(health_address(picker))
        assert http1.request(picker.metrics_address, "GET", "/metrics").status == 200


def test_idle_connections_do_not_keep_probes_out(start_picker):
    picker = start_picker(POOL, "--health", "127.0.0.1:0")
    with contextlib.ExitStack() as opened:
        idle = [opened.enter_context(h2.Connection(health_address(picker))) for _ in range(N)]
        for connection in idle[-10:]:
            connection.ping()
        check_health(health_address(picker))
        assert idle[0].read_end() in (None, "NO_ERROR")


@pytest.mark.parametrize("kind", ["serve", "pick"])
def test_idle_connections_do_not_keep_metrics_out(start_server, start_picker, repositories, kind):
    if kind == "pick":
        address = start_picker(POOL).metrics_address
    else:
        address = start_server("--model-repository", repositories("default"),
                               metrics_at="127.0.0.1:0").metrics_address
    with contextlib.ExitStack() as opened:
        idle = [opened.enter_context(http1.Connection(address)) for _ in range(N)]
        for _ in range(3):
            assert http1.request(address, "GET", "/metrics").status == 200
        assert idle[0].read_end() == b""


@pytest.mark.parametrize("path", [b"/metrics", b"/debug/state", b"/status.json"])
@pytest.mark.parametrize("kind", ["serve", "pick"])
def test_crowd_at_metrics_leaves_health_checks(start_server, start_picker, repositories, kind, path):
    """All places of the listener have a request for a page, of the same host, when the probe comes. All is sent while the
    process is stopped. (The picker's probe is gRPC elsewhere; at this listener it has the page /.)"""
    if kind == "pick":
        server = start_picker(POOL)
    else:
        server = start_server("--model-repository", repositories("default"), metrics_at="127.0.0.1:0")
    probe = b"/v2/health/live" if kind == "serve" else b"/none"
    with contextlib.ExitStack() as opened:
        server.signal(signal.SIGSTOP)
        for _ in range(2 * N):
            client = opened.enter_context(http1.Connection(server.metrics_address))
            client.send(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        probes = [opened.enter_context(http1.Connection(server.metrics_address)) for _ in range(20)]
        for one in probes:
            one.send(b"GET " + probe + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        server.signal(signal.SIGCONT)
        assert [one.read_answer().status for one in probes] == 20 * [200 if kind == "serve" else 404]
    server.wait_for(lambda: http1.request(server.metrics_address, "GET", path.decode()).status == 200, "a page")


def n_files(n):
    """The hard limit too: the program raises its soft one to that."""
    return {resource.RLIMIT_NOFILE: (n, n)}


def idle_connections(opened, address, n):
    """Opens so many; the server may have closed some of them, or not accepted them yet."""
    return [opened.enter_context(contextlib.closing(http1.connect(address))) for _ in range(n)]


def test_low_descriptor_limit_leaves_a_reserve(start_server, repositories):
    """Twice as many connections as descriptors: health, metrics and models have theirs, and the listeners
    recover."""
    server = start_server("--model-repository", repositories("default"), "--workers", 2,
                          metrics_at="127.0.0.1:0", limits=n_files(200))
    assert "fewer connections than --max-connections" in server.log_text()
    with contextlib.ExitStack() as opened:
        idle_connections(opened, server.address, 400)
        metrics.wait_until(server.metrics_address, lambda n: n["sluice_connections"] > 20, "connections")
        assert http1.request(server.metrics_address, "GET", "/v2/health/ready").status == 200
    server.wait_at_rest()
    assert "accept failed" not in server.log_text()


def test_low_descriptor_limit_leaves_checks(start_picker, start_server, repositories):
    """Idle connections do not make endpoints look dead."""
    endpoint = start_server("--model-repository", repositories("default")).address
    picker = start_picker(f"""
endpoints: ["{endpoint}"]
health: {{http: /v2/health/ready, interval: 20ms, timeout: 5s, unhealthy: 1}}
""", "--workers", 2, "--health", "127.0.0.1:0", limits=n_files(100))
    with contextlib.ExitStack() as opened:
        idle_connections(opened, picker.grpc_addresses[0], 200)
        picker.wait_until(lambda n: n["sluice_connections"] > 5, "connections")
        before = picker.numbers()[CHECKED]
        picker.wait_until(lambda n: n[CHECKED] > before + 10, "checks")
        check_health(health_address(picker))
    failed = {name: value for name, value in picker.numbers().items()
              if name.startswith("sluice_pick_probes_total") and name != CHECKED and value > 0}
    assert failed == {} and "accept failed" not in picker.log_text()


@contextlib.contextmanager
def no_descriptors(process):
    """The process can open none."""
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (min(set(range(len(used) + 1)) - used), hard))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", ["serve", "pick"])
def test_listeners_recover_from_want_of_descriptors(start_server, start_picker, repositories, kind):
    """EMFILE at each listener: the connections wait, and are accepted when there are descriptors, without a line of
    the log for each attempt."""
    with contextlib.ExitStack() as opened:
        if kind == "pick":
            server = start_picker(POOL, "--health", "127.0.0.1:0")
            clients = [(address, lambda address=address: opened.enter_context(h2.Connection(address)).ping())
                       for address in (server.grpc_addresses[0], health_address(server))]
        else:
            server = start_server("--model-repository", repositories("default"), "--mip", "tcp://127.0.0.1:0=id_string",
                                  grpc=("127.0.0.1:0",), metrics_at="127.0.0.1:0")
            clients = [(server.address, lambda: http1.request(server.address, "GET", "/v2/health/live")),
                       (server.grpc_addresses[0],
                        lambda: opened.enter_context(h2.Connection(server.grpc_addresses[0])).ping()),
                       (server.mip_urls[0].removeprefix("tcp://"), lambda: mip.ping(server.mip_urls[0]))]
        clients.append((server.metrics_address, lambda: http1.request(server.metrics_address, "GET", "/metrics")))
        with no_descriptors(server.process):
            for address, _ in clients * 4:  # some may find a descriptor that was just closed
                opened.enter_context(contextlib.closing(http1.connect(address)))
            server.wait_for(lambda: server.log_text().count("accept failed") >= len(clients), "a line for each listener")
            time.sleep(0.35)  # three more attempts of each, which add no lines
        for _, ask in clients:
            ask()
        assert server.log_text().count("accept failed") == len(clients)


# ---- connections over the limit ------------------------------------------------------------------

def test_refused_grpc_client_does_not_reconnect_at_once(start_picker):
    """A gRPC client that is refused with GOAWAY connects again at once, 400 times a second, as its connection was
    established. So further ones are closed before: then it waits for a second and more."""
    picker = start_picker(POOL, "--max-connections", "1", "--workers", "1")
    address = picker.grpc_addresses[0]
    with h2.Connection(address) as other, grpc.insecure_channel(address) as channel:
        watch = other.begin(b"/grpc.health.v1.Health/Watch")  # an idle one would go
        other.send_data(watch, h2.message(b""), end=True)
        other.run_until(lambda: other.streams[watch].messages())
        check = channel.unary_unary(CHECK.decode())
        with pytest.raises(grpc.RpcError) as refused:
            check(b"", timeout=1.5, wait_for_ready=True)
        assert refused.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
        assert 1 <= picker.numbers()[REFUSED] <= 20
        other.close()
    # Rarely grpc-core goes on using a connection that was closed after a GOAWAY right behind the SETTINGS: another one.
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = channel.unary_unary(CHECK.decode())
        assert check(b"", timeout=http1.PATIENCE, wait_for_ready=True) == b"\x08\x01"

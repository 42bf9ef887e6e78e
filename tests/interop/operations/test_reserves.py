"""Health and metrics are answered when all other connections are taken, and when their own listener is full
of idle ones."""
import contextlib

import pytest

from lib import h2, http1

POOL = "endpoints: [10.0.0.1:8000]\n"
CHECK = b"/grpc.health.v1.Health/Check"
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

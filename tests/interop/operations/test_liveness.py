"""A held event loop: health checks at every listener say so, the log names the model, and all is well when it answers."""
import contextlib
import json
import os
import select

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lib import backends, h2, http1, metrics
from lib.service_manager import hung, threads_of

TIMES = ("--loop-unready-after", "50ms", "--loop-dead-after", "300ms")
INFER = b'{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}'
CONFIG = """
backend: "gate"
input {{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }}
parameters {{ key: "gate" value {{ string_value: "/" }} }}
parameters {{ key: "execute_gate" value {{ string_value: "{gate}" }} }}
parameters {{ key: "sluice.run_on" value {{ string_value: "worker" }} }}
"""
SERVICE = b"/inference.GRPCInferenceService/"
NAME = "model_that_holds_the_worker"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def server(start_server, tmp_path):
    """`open_gate()` lets the model's executions end, which hold their worker."""
    backends.make(tmp_path, "gate")
    os.makedirs(tmp_path / "models" / NAME / "1")
    (tmp_path / "models" / NAME / "config.pbtxt").write_text(CONFIG.format(gate=tmp_path / "open"))
    started = start_server("--model-repository", tmp_path / "models", "--backend-dir", tmp_path / "backends",
                           "--workers", "2", *TIMES, metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",))
    started.open_gate = (tmp_path / "open").touch
    started.expected_errors.append("event loop does not respond")
    return started


def health(address, what):
    answer = http1.request(address, "GET", f"/v2/health/{what}")
    return answer.status, json.loads(answer.body)[what]


def page_says_ready(admin):
    return json.loads(http1.request(admin, "GET", "/status.json").body)["server"]["ready"]


def held_lines(server):
    """On a busy machine another loop may be late, too."""
    return [(line["level"], line["thread"], line["model"], line["health"]) for line in server.log_lines()
            if line.get("event") == "event loop does not respond"]


def is_healthy(address):
    return health(address, "ready") == health(address, "live") == (200, True)


def first_with_answer(connections):
    """One of a worker that is not held."""
    readable = select.select([one.sock for one in connections], [], [], http1.PATIENCE)[0]
    return next(one for one in connections if one.sock in readable)


def check_http(server, what):
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(http1.Connection(server.address)) for _ in range(8)]
        for one in connections:
            one.send(f"GET /v2/health/{what} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        answer = first_with_answer(connections).read_answer()
        return answer.status, json.loads(answer.body)[what]


def check_grpc(connections, path, message=b""):
    """Asks on all of them. Returns: the first answer, and the connections that are left to ask."""
    streams = {one: one.begin(path) for one in connections}
    for one, stream in streams.items():
        one.send_data(stream, h2.message(message), end=True)
    free = first_with_answer(connections)
    return free.answer(streams[free]).messages(), [free]


def test_liveness_worker_held_by_a_model(server):
    admin = server.metrics_address
    with contextlib.ExitStack() as opened:
        grpcs = [opened.enter_context(h2.Connection(server.grpc_address)) for _ in range(8)]
        for one in grpcs:
            assert one.call(SERVICE + b"ServerMetadata", b"").status == 0
        server.wait_for(lambda: is_healthy(admin), "ready")
        slow = opened.enter_context(http1.Connection(server.address))
        slow.send(http1.post(f"/v2/models/{NAME}/infer".encode(), INFER))
        server.wait_for(lambda: health(admin, "ready") == (503, False), "not ready")
        assert page_says_ready(admin) is False
        server.wait_for(lambda: health(admin, "live") == (503, False), "not live")
        server.wait_for(lambda: ("error", "worker", NAME, "not live") in held_lines(server), "a line of the log")
        assert any(line[0] == "warning" and line[3] == "not ready" for line in held_lines(server))
        assert metrics.read(admin)["sluice_event_loops_held"] >= 1
        assert check_http(server, "live") == check_http(server, "ready") == (503, False)
        for method in (b"ServerLive", b"ServerReady"):
            messages, grpcs = check_grpc(grpcs, SERVICE + method)
            assert messages == [b""]  # false is not written
        messages, grpcs = check_grpc(grpcs, b"/grpc.health.v1.Health/Check")
        assert messages == [b"\x08%c" % NOT_SERVING]

        server.open_gate()
        server.wait_for(lambda: is_healthy(admin), "ready again")
        server.wait_for(lambda: page_says_ready(admin), "the status page to say ready")
        assert slow.read_answer("POST").status == 503  # the backend's answer
    server.wait_for(lambda: "event loop responds again" in server.log_text(), "a line of the log")
    metrics.wait_until(admin, lambda now: now["sluice_event_loops_held"] == 0, "no loop held")
    server.wait_for(lambda: is_healthy(server.address), "ready at the other listener")


def test_liveness_watch_of_grpc_health_is_told(server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        states = (state.status for state in health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), timeout=http1.PATIENCE))
        assert SERVING in states
        admin = next(thread for thread, name in threads_of(server.pid).items() if name == "admin")
        with hung(admin):  # whichever loop is held
            assert NOT_SERVING in states
        assert SERVING in states


def test_liveness_picker_loop_held(start_picker):
    picker = start_picker("endpoints: [10.0.0.1:8000]\n", "--workers", "2", "--health", "127.0.0.1:0", *TIMES)
    picker.expected_errors.append("event loop does not respond")
    with open(picker.ready_file, encoding="utf-8") as file:
        apart = next(line for line in file.read().split() if line.endswith("/health"))
    with grpc.insecure_channel(apart.removeprefix("grpc://").removesuffix("/health")) as channel:
        def check(name):
            request = health_pb2.HealthCheckRequest(service=name)
            return health_pb2_grpc.HealthStub(channel).Check(request, timeout=http1.PATIENCE).status
        picker.wait_for(lambda: check("liveness") == check("readiness") == SERVING, "ready")
        worker = next(thread for thread, name in threads_of(picker.pid).items() if name == "worker")
        with hung(worker):
            picker.wait_for(lambda: check("liveness") == NOT_SERVING, "not live")
            assert check("readiness") == NOT_SERVING
        picker.wait_for(lambda: check("liveness") == check("readiness") == SERVING, "ready again")

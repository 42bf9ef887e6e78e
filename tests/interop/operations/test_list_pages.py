"""Lists of many models (the index, statistics, the load report) are printed once for all clients that wait for them, on
a thread that serves no requests: over HTTP and gRPC. Lists of few models are printed by the worker."""
import json
import signal

import pytest

from lib import grpc_live, h2, http1, metrics
from lib.repository import FREE, Identity

PRINTED = "sluice_shared_pages_total"
SERVICE = b"/inference.GRPCInferenceService/"
N_MODELS = 300
N_CLIENTS = 200


def get(path):
    return b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path


INDEX_BODY = b'{"ready":true}'
# name → request over HTTP, and the models of the answer
LISTS = {
    "index": (get(b"/v2/models"), lambda body: body),
    "ready": (http1.post(b"/v2/repository/index", INDEX_BODY), lambda body: body),
    "load": (get(b"/v2/load"), lambda body: body["models"]),
    "statistics": (get(b"/v2/models/stats"), lambda body: body["model_stats"]),
}


def write(folder, n):
    for i in range(n):
        Identity(f"m{i:03}", [("FP32", FREE)]).write(folder)
    return folder


@pytest.fixture(name="start")
def start_with_models(start_server, tmp_path):
    def start(n_models, *flags):
        return start_server("--model-repository", write(str(tmp_path / "models"), n_models), "--workers", "1", *flags,
                            metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",))
    return start


def printed(live):
    return metrics.read(live.metrics_address)[PRINTED]


def names_of(live, name):
    request, models_of = LISTS[name]
    with http1.Connection(live.address) as connection:
        connection.send(request)
        answer = connection.read_answer()
    assert answer.status == 200 and answer.get("Content-Type") == "application/json", str(answer)
    return [one["name"] for one in models_of(json.loads(answer.body))]


def grpc_names_of(live, method, message=b""):
    with h2.Connection(live.grpc_address) as connection:
        answer = connection.call(SERVICE + method, message)
    assert answer.status == 0, answer.text
    kind = {b"RepositoryIndex": "RepositoryIndexResponse", b"ModelStatistics": "ModelStatisticsResponse"}[method]
    read = getattr(grpc_live.proto, kind).FromString(answer.messages()[0])
    return [one.name for one in (read.models if method == b"RepositoryIndex" else read.model_stats)]


def test_lists_of_many_models_are_shared(start):
    live = start(N_MODELS)
    names = [f"m{i:03}" for i in range(N_MODELS)]
    for name in LISTS:
        before = printed(live)
        assert names_of(live, name) == names
        assert printed(live) == before + 1
    ready = grpc_live.proto.RepositoryIndexRequest(ready=True).SerializeToString()
    for method, message in ((b"RepositoryIndex", b""), (b"RepositoryIndex", ready), (b"ModelStatistics", b"")):
        before = printed(live)
        assert grpc_names_of(live, method, message) == names
        assert printed(live) == before + 1
    before = printed(live)
    one = grpc_live.proto.ModelStatisticsRequest(name="m007").SerializeToString()
    assert grpc_names_of(live, b"ModelStatistics", one) == ["m007"]
    assert http1.request(live.address, "GET", "/v2/models/m007/stats").status == 200
    assert printed(live) == before


def test_lists_of_few_models_are_printed_by_the_worker(start):
    live = start(10)
    names = [f"m{i:03}" for i in range(10)]
    before = printed(live)
    for name in LISTS:
        assert names_of(live, name) == names
    assert grpc_names_of(live, b"RepositoryIndex") == grpc_names_of(live, b"ModelStatistics") == names
    assert printed(live) == before


@pytest.mark.parametrize("name", LISTS)
def test_lists_for_a_crowd_are_printed_a_few_times(start, name):
    """All requests come while the process is stopped. (Those for the index of the repository extension wait for a scan of
    the directories first, which they share, too.)"""
    live = start(N_MODELS)
    connections = [http1.Connection(live.address) for _ in range(N_CLIENTS)]
    metrics.wait_until(live.metrics_address, lambda n: n["sluice_connections"] >= N_CLIENTS, "all connections")
    before = printed(live)
    live.signal(signal.SIGSTOP)
    for connection in connections:
        connection.send(LISTS[name][0])
    live.signal(signal.SIGCONT)
    for connection in connections:
        answer = connection.read_answer()
        assert answer.status == 200 and len(LISTS[name][1](json.loads(answer.body))) == N_MODELS
        connection.close()
    assert printed(live) - before <= N_CLIENTS / 2
    live.wait_at_rest()


def test_lists_are_current(start):
    live = start(N_MODELS, "--model-control-mode", "explicit", "--load-model", "*")
    for _ in range(3):
        assert http1.request(live.address, "POST", "/v2/repository/models/m000/unload").status == 200
        assert "m000" not in names_of(live, "ready") and "m000" not in names_of(live, "load")
        assert http1.request(live.address, "POST", "/v2/repository/models/m000/load", b"{}").status == 200
        assert "m000" in names_of(live, "ready") and "m000" in names_of(live, "statistics")


def test_lists_unread_over_grpc_count_as_pages(start):
    live = start(N_MODELS)
    series = 'sluice_client_memory_bytes{kind="pages",protocol="grpc"}'
    with h2.Connection(live.grpc_address, own=[(h2.INITIAL_WINDOW, 0)]) as connection:
        for n in range(1, 4):
            stream = connection.begin(SERVICE + b"ModelStatistics")
            connection.send_data(stream, h2.message(b""), end=True)
            numbers = metrics.wait_until(live.metrics_address, lambda now, n=n: now[series] > n * 8000, "unread pages")
        assert numbers[series] < 1 << 20
    metrics.wait_until(live.metrics_address, lambda now: now[series] == 0, "no page")
    live.wait_at_rest()


def test_lists_whose_clients_have_gone_hold_nothing(start):
    live = start(N_MODELS)
    connections = [http1.Connection(live.address) for _ in range(N_CLIENTS)]
    calls = [h2.Connection(live.grpc_address) for _ in range(20)]
    live.signal(signal.SIGSTOP)
    for i, connection in enumerate(connections):
        connection.send(list(LISTS.values())[i % len(LISTS)][0])
        connection.reset()
    for i, call in enumerate(calls):
        stream = call.begin(SERVICE + (b"ModelStatistics", b"RepositoryIndex")[i % 2])
        call.send_data(stream, h2.message(b""), end=True)
        call.sock.close()
    live.signal(signal.SIGCONT)
    live.wait_at_rest()
    assert len(names_of(live, "index")) == N_MODELS

"""The statistics extension, asked over HTTP and gRPC by the reference's own client: what it says after
requests that are known, and that both protocols say the same."""
import json
import time

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1

BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()


@pytest.fixture
def fresh(start_server, repositories):
    """A server that nobody has asked yet."""
    return start_server("--model-repository", repositories("default"), "--max-queue-size", "1",
                        grpc=("127.0.0.1:0",))


def over_http(running, *args):
    with tritonclient.http.InferenceServerClient(running.address) as client:
        return client.get_inference_statistics(*args)["model_stats"]


def numbers(value):
    """64-bit numbers of protobuf's JSON are text."""
    if isinstance(value, dict):
        return {key: item if key in ("name", "version") else numbers(item)
                for key, item in value.items()}
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return int(value)


def over_grpc(running, *args):
    with tritonclient.grpc.InferenceServerClient(running.grpc_address) as client:
        return numbers(client.get_inference_statistics(*args, as_json=True).get("model_stats", []))


def infer(running, model, rows, width=4):
    with tritonclient.http.InferenceServerClient(running.address) as client:
        made = tritonclient.http.InferInput("INPUT0", [rows, width], "FP32")
        made.set_data_from_numpy(numpy.zeros((rows, width), numpy.float32))
        client.infer(model, [made])


def wait_for(fits):
    end = time.monotonic() + http1.PATIENCE
    while not (found := fits()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.01)
    return found


def same(by_http, by_grpc):
    """Is everything that gRPC says, which leaves out what is 0, said over HTTP, and nothing more?"""
    if isinstance(by_http, dict):
        return by_grpc.keys() <= by_http.keys() and all(
            same(item, by_grpc.get(key, type(item)())) for key, item in by_http.items())
    if isinstance(by_http, list):
        return len(by_http) == len(by_grpc) and all(map(same, by_http, by_grpc))
    return by_http == by_grpc


def test_statistics_after_known_requests(fresh):
    before = time.time() * 1000
    for rows in (1, 2, 2, 3):
        infer(fresh, "id_batch", rows)
    stats, = wait_for(lambda: [one for one in over_http(fresh, "id_batch")
                               if one["execution_count"] == 4])
    assert list(stats) == ["name", "version", "last_inference", "inference_count", "execution_count",
                           "inference_stats", "response_stats", "batch_stats", "memory_usage"]
    assert (stats["name"], stats["version"]) == ("id_batch", "1")
    assert stats["inference_count"] == 8
    assert before - 1000 < stats["last_inference"] < time.time() * 1000 + 1000
    parts = stats["inference_stats"]
    assert list(parts) == ["success", "fail", "queue", "compute_input", "compute_infer",
                           "compute_output", "cache_hit", "cache_miss"]
    assert {key: part["count"] for key, part in parts.items()} == {
        "success": 4, "fail": 0, "queue": 4, "compute_input": 4, "compute_infer": 4,
        "compute_output": 4, "cache_hit": 0, "cache_miss": 0}
    spent = sum(parts[key]["ns"] for key in ("queue", "compute_input", "compute_infer",
                                             "compute_output"))
    assert parts["success"]["ns"] == spent > 0
    assert [(one["batch_size"], one["compute_infer"]["count"]) for one in stats["batch_stats"]] == [
        (1, 1), (2, 2), (3, 1)]
    assert (stats["response_stats"], stats["memory_usage"]) == ({}, [])
    assert same([stats], over_grpc(fresh, "id_batch"))


def test_statistics_of_all_models_and_versions(fresh):
    infer(fresh, "id_batch", 1)
    everything = over_http(fresh)
    names = [(one["name"], int(one["version"])) for one in everything]
    assert names == sorted(names, key=lambda pair: (pair[0].encode(), pair[1]))
    assert [pair for pair in names if pair[0] == "id_versions"] == [
        ("id_versions", 1), ("id_versions", 2), ("id_versions", 10)]
    assert ("id_latest", 12) in names and ("id_latest", 3) not in names
    assert [one["version"] for one in over_http(fresh, "id_versions")] == ["1", "2", "10"]
    assert [one["version"] for one in over_http(fresh, "id_versions", "2")] == ["2"]
    assert [one["version"] for one in over_grpc(fresh, "id_versions", "2")] == ["2"]
    wait_for(lambda: same(over_http(fresh), over_grpc(fresh)))


def test_statistics_unknown_model_is_400(fresh):
    for args in (("nope",), ("id_fp32", "7"), ("id_latest", "3")):
        with pytest.raises(InferenceServerException) as caught:
            over_http(fresh, *args)
        assert caught.value.status() == "400"
        with pytest.raises(InferenceServerException) as caught:
            over_grpc(fresh, *args)
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_statistics_count_failures_not_refusals(fresh):
    fresh.expect_error("out of ink")
    for _ in range(3):
        assert http1.request(fresh.address, "POST", "/v2/models/id_failing/infer", BODY).status == 500
    wrong = BODY.replace(b"FP32", b"INT8")
    assert http1.request(fresh.address, "POST", "/v2/models/id_failing/infer", wrong).status == 400
    stats, = wait_for(lambda: [one for one in over_http(fresh, "id_failing")
                               if one["execution_count"] == 3])
    parts = stats["inference_stats"]
    assert parts["fail"]["count"] == 3 and parts["fail"]["ns"] > 0
    assert parts["success"]["count"] == parts["queue"]["count"] == stats["inference_count"] == 0


def test_statistics_cancelled_and_queue_full_requests(fresh):
    """A queue for one: the first runs, the second waits, the third is refused, the second leaves."""
    request = (b"POST /v2/models/id_slowest/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
               % len(BODY)) + BODY

    def load():
        answer = http1.request(fresh.address, "GET", "/v2/load")
        return {one["name"]: one for one in json.loads(answer.body)["models"]}["id_slowest"]

    with http1.Connection(fresh.address) as first, http1.Connection(fresh.address) as second:
        first.send(request)
        wait_for(lambda: load()["running"] == 1)
        second.send(request)
        wait_for(lambda: load()["queued"] == 1)
        answer = http1.request(fresh.address, "POST", "/v2/models/id_slowest/infer", BODY)
        assert answer.status == 503 and b"queue" in answer.body
        second.reset()
        wait_for(lambda: load()["queued"] == 0)
        first.reset()
        wait_for(lambda: load()["running"] == 0)
    stats, = wait_for(lambda: [one for one in over_http(fresh, "id_slowest")
                               if one["inference_stats"]["fail"]["count"] >= 2])
    assert stats["inference_stats"]["fail"]["count"] == 2  # the refused one is nowhere
    assert stats["inference_stats"]["success"]["count"] == 0

"""Requests that wait for a batch, beside clients whose requests fail and models that go away."""
import json
import signal

import numpy
import pytest
from onnx import TensorProto, helper

from lib import http1, metrics, sequences
from lib.repository import save_onnx

BATCHES_OF_TWO = """
max_batch_size: 2
dynamic_batching { max_queue_delay_microseconds: 3000000000 }
instance_group { count: 1 }
"""
GOOD, BAD = 1, 8  # of a table of 8 rows
LABELS = '{model="lookup",version="1"}'


@pytest.fixture
def server(start_server, tmp_path):
    """A model that batches two requests, and waits 3,000 s for the second."""
    folder = tmp_path / "models" / "lookup"
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["n", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1, 1])
    table = numpy.arange(8, dtype=numpy.float32).reshape(8, 1)
    save_onnx(str(folder / "1" / "model.onnx"), "lookup",
              [helper.make_node("Gather", ["table", "x"], ["y"], axis=0)], [x], [y], [("table", table)])
    (folder / "config.pbtxt").write_text(BATCHES_OF_TWO, encoding="utf-8")
    return start_server("--model-repository", tmp_path / "models", "--model-control-mode", "explicit",
                        "--load-model", "lookup")


class Client:
    """A connection, with at most one request under way."""

    def __init__(self, server):
        self.server = server
        self.connection = http1.Connection(server.address)

    def send(self, index):
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT64",
                                       "data": [index]}]}).encode()
        self.connection.send(b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\n"
                             b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def status(self):
        return self.connection.read_answer().status


def wait_pending(server, n):
    name = "nv_inference_pending_request_count" + LABELS
    metrics.wait_until(server.address, lambda numbers: numbers[name] == n, f"{n} requests that wait")


@pytest.mark.parametrize("reconnects", [False, True])
def test_client_whose_requests_fail_is_batched_apart(server, reconnects):
    good, other, bad, worse = (Client(server) for _ in range(4))
    for pair, index, status in (((good, other), GOOD, 200), ((bad, worse), BAD, 400)):
        for client in pair:
            client.send(index)
        assert [client.status() for client in pair] == [status, status]
    if reconnects:  # it is known by its host
        bad.connection.close()
        worse.connection.close()
        bad, worse = Client(server), Client(server)
    bad.send(BAD)
    wait_pending(server, 1)
    good.send(GOOD)  # with the bad one it would be a full batch
    wait_pending(server, 2)
    worse.send(GOOD)
    assert [client.status() for client in (bad, worse)] == [400, 200]
    wait_pending(server, 1)
    other.send(GOOD)
    assert [client.status() for client in (good, other)] == [200, 200]
    for client in (good, other, bad, worse):
        client.connection.close()


@pytest.mark.parametrize("how", ["unload", "load", "drain"])
def test_lone_request_is_executed_when_its_version_goes(server, how):
    client = Client(server)
    client.send(GOOD)
    wait_pending(server, 1)
    if how == "drain":
        server.signal(signal.SIGTERM)
        assert client.status() == 200
        assert server.wait_exit() == 0
        return
    if how == "load":  # a changed configuration: the version is replaced
        config = f"{server.folder}/../models/lookup/config.pbtxt"
        with open(config, "a", encoding="utf-8") as file:
            file.write('parameters { key: "changed" value { string_value: "yes" } }\n')
    assert http1.request(server.address, "POST", f"/v2/repository/models/lookup/{how}").status == 200
    assert client.status() == 200
    client.connection.close()


def test_lone_sequence_is_executed_when_its_version_goes(start_server, tmp_path):
    oldest = "oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 3000000000 preferred_batch_size: [ 2 ] }"
    server = start_server(*sequences.make(tmp_path, {"adder": sequences.adder(oldest)}),
                          "--model-control-mode", "explicit", "--load-model", "adder")
    body = json.dumps({"parameters": {"sequence_id": 1, "sequence_start": True, "sequence_end": True}, "inputs": [
        {"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1]}]}).encode()
    with http1.Connection(server.address) as connection:
        connection.send(b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: a\r\n"
                        b"Content-Length: %d\r\n\r\n" % len(body) + body)
        name = 'nv_inference_pending_request_count{model="adder",version="1"}'
        metrics.wait_until(server.address, lambda numbers: numbers[name] == 1, "a request that waits")
        assert http1.request(server.address, "POST", "/v2/repository/models/adder/unload").status == 200
        assert connection.read_answer().status == 200

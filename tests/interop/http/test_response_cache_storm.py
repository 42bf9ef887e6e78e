"""Models whose answers are kept are loaded anew, unloaded and asked at the same time, by clients of which some
leave: nobody gets another's answer or an old model's, the limit holds, and nothing is left over."""
import json
import socket
import threading
import time

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lib import metrics
from lib.repository import Identity

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

CACHED = "response_cache { enable: true }"
LIMIT = 96 * 1024
ROUNDS = 40  # of loading
LEFT = 2000  # clients that leave: as many as the server may have at once, whatever it still has to do for them
MISSING = ("404", "503", "StatusCode.NOT_FOUND", "StatusCode.UNAVAILABLE")
GAVE_UP = ("StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")


@pytest.fixture
def running(start_server, tmp_path):
    Identity("m", [("FP32", [-1])], more=CACHED).write(tmp_path / "models")
    Identity("batches", [("FP32", [-1])], max_batch_size=4, parameters={"delay_us": 2000},
             more=CACHED).write(tmp_path / "models")
    return start_server("--model-repository", tmp_path / "models", "--model-control-mode", "explicit",
                        "--load-model", "*", "--cache-size", str(LIMIT), grpc=("127.0.0.1:0",))


class Storm:
    """Threads that do one thing over and over until the end."""

    def __init__(self):
        self.ending = threading.Event()
        self.failures = []
        self.counts = {}
        self.threads = []

    def add(self, function, *args):
        def run():
            n = 0
            try:
                while not self.ending.is_set():
                    function(n, *args)
                    n += 1
            except BaseException as error:  # whatever it is, the test is to say it
                self.failures.append(error)
            self.counts[threading.current_thread().name] = n
        self.threads.append(threading.Thread(target=run, name=f"{len(self.threads)}"))
        self.threads[-1].start()

    def end(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures
        assert all(self.counts.values()), self.counts


def values_of(n):
    """Few, so that they come again; together more than fit."""
    return numpy.full((1, 1 + n % 7 * 900), n % 7, numpy.float32)


def ask(n, module, client, model, **options):
    values = values_of(n)
    values = values if model == "batches" else values[0]
    given = module.InferInput("INPUT0", list(values.shape), "FP32")
    given.set_data_from_numpy(values)
    try:
        answer = client.infer(model, [given], **options)
    except InferenceServerException as error:
        allowed = MISSING + (GAVE_UP if options else ())
        assert error.status() in allowed, str(error)
        return
    assert numpy.array_equal(answer.as_numpy("OUTPUT0"), values)


def leave(n, address):
    """Asks, and goes away at once. More than the model answers in that time would take all connections."""
    if n >= LEFT:
        time.sleep(0.01)
        return
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32",
                                   "data": [n, n]}]}).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as made:
        made.sendall(b"POST /v2/models/batches/infer HTTP/1.1\r\nHost: x\r\nContent-Length: "
                     + str(len(body)).encode() + b"\r\n\r\n" + body)


def watch(_, address):
    assert metrics.read(address)["sluice_response_cache_bytes"] <= LIMIT


def test_cache_storm_with_reloads(running):
    storm = Storm()
    clients = [triton_http.InferenceServerClient(running.address) for _ in range(4)]
    over_grpc = [triton_grpc.InferenceServerClient(running.grpc_address) for _ in range(2)]
    for number, client in enumerate(clients[:3]):
        storm.add(ask, triton_http, client, ("m", "batches", "m")[number])
    storm.add(ask, triton_grpc, over_grpc[0], "batches")
    storm.add(lambda n: ask(n, triton_grpc, over_grpc[1], "batches", client_timeout=0.002))
    storm.add(leave, running.address)
    storm.add(watch, running.address)
    loader = clients[3]
    told = {model: loader.get_model_config(model) for model in ("m", "batches")}
    try:
        for number in range(ROUNDS):
            model = ("m", "batches")[number % 2]
            if number % 5 == 4:
                loader.unload_model(model)
            # Another configuration, so that it is another model.
            loader.load_model(model, config=json.dumps({**told[model], "parameters": {
                "delay_us": {"string_value": str(number % 3 * 500)}}}))
    finally:
        storm.end()
    page = metrics.read(running.address)
    assert page["sluice_response_cache_evictions_total"] > 0
    for model in ("m", "batches"):
        loader.unload_model(model)
    metrics.wait_until(running.address, lambda now: now["sluice_response_cache_entries"] == 0,
                       "an empty cache")
    for client in clients + over_grpc:
        client.close()
    running.wait_at_rest()


def test_cache_hits_during_reload(running):
    """A request that is known is answered from the version that it found, or by the model that came then."""
    storm = Storm()
    with triton_http.InferenceServerClient(running.address) as loader, \
            triton_http.InferenceServerClient(running.address) as client:
        storm.add(lambda n: ask(3, triton_http, client, "m"))
        told = loader.get_model_config("m")
        for number in range(ROUNDS):
            loader.load_model("m", config=json.dumps({**told, "parameters": {
                "delay_us": {"string_value": str(number)}}}))
        storm.end()
    metrics.wait_until(running.address, lambda now: now["sluice_response_cache_entries"] <= 1,
                       "the answers of all that was replaced to be gone")
    running.wait_at_rest()

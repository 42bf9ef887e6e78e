"""Models that are replaced, loaded and unloaded under load: nobody's request fails, nothing is left behind,
and the end may come in the middle of it."""
import http.client
import json
import os
import queue
import socket
import threading

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, mip, repository, server
from lib.load import Load

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32",
                               "data": [1, 2, 3, 4]}]})
SLOW = {"delay_us": 200000}  # each execution, and so each of the warm-up's
WARM = """model_warmup { name: "slow" batch_size: 1 count: 4
  inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }"""


class Asking:
    """One thread that asks over and over, until an answer is wrong or the `with` ends."""

    def __init__(self, client, ask):
        self.client = client  # closed at the end
        self.ask = ask
        self.n = 0
        self.failure = None
        self.ending = False
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.ending and not self.failure:
            try:
                self.ask()
                self.n += 1
            except Exception as error:  # whatever it is, the test is to say it
                self.failure = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        self.client.close()


def over_grpc(address, model):
    client = triton_grpc.InferenceServerClient(address)
    array = numpy.array([[1, 2, 3, 4]], "<f4")

    def ask():
        made = triton_grpc.InferInput("INPUT0", [1, 4], "FP32").set_data_from_numpy(array)
        got = client.infer(model, [made]).as_numpy("OUTPUT0")
        assert got.tolist() == array.tolist()
    return Asking(client, ask)


def over_mip(url):
    connection = mip.Connection(url)

    def ask():
        assert connection.infer([[mip.as_json([1, 2, 3, 4])]]) == [[[1.0, 2.0, 3.0, 4.0]]]
    return Asking(connection, ask)


def start(start_server, folder, *models, more=()):
    for model in models:
        model.write(folder)
    return start_server("--model-repository", folder, "--model-control-mode", "explicit",
                        "--load-model", "*", *more, grpc=("127.0.0.1:0",))


def config_of(running, name, **parameters):
    with triton_http.InferenceServerClient(running.address) as client:
        config = client.get_model_config(name)
    config["parameters"] |= {key: {"string_value": str(value)}
                             for key, value in parameters.items()}
    return config


def state_of(running, name):
    answer = http1.request(running.address, "POST", "/v2/repository/index")
    return [row.get("state") for row in json.loads(answer.body) if row["name"] == name]


def test_reload_thousand_times_under_load(start_server, tmp_path):
    n = 100 if server.is_sanitized() else 1000
    running = start(start_server, tmp_path / "models",
                    repository.Identity("m", [("FP32", [4])], max_batch_size=4),
                    more=("--mip", "tcp://127.0.0.1:0=m"))
    config = config_of(running, "m")
    loads = Load(running.address, n_clients=2, method="POST", path="/v2/models/m/infer", body=BODY)
    clients = [triton_http.InferenceServerClient(running.address, network_timeout=http1.PATIENCE),
               triton_grpc.InferenceServerClient(running.grpc_address)]
    with (loads, over_grpc(running.grpc_address, "m") as grpc_asking,
          over_mip(running.mip_urls[0]) as mip_asking):
        for number in range(n):
            if number == n // 10:
                before = running.rss_bytes()
            config["parameters"] = {"sluice.run_on": {
                "string_value": ("auto", "worker", "instance")[number % 3]}}
            clients[number % 2].load_model("m", config=json.dumps(config))
        grown = running.rss_bytes() - before
        loads.wait_more(2)
    for client in clients:
        client.close()
    assert not grpc_asking.failure and not mip_asking.failure, (grpc_asking.failure,
                                                                mip_asking.failure)
    assert set(loads.outcomes) == {200} and grpc_asking.n > 0 and mip_asking.n > 0
    page = running.wait_at_rest()
    assert page["sluice_queued_requests"] == page["sluice_running_requests"] == 0
    print(f"{n} reloads, {loads.n()} requests over HTTP, {grpc_asking.n} over gRPC,"
          f" {mip_asking.n} over MIP; resident memory {grown / 1e3:+.0f} kB")
    assert grown < 64 << 20 or server.is_sanitized()


def test_reload_onnx_model_under_load(start_server, repositories, tmp_path):
    source = os.path.join(repositories("onnx-only"), "onnx_identity_fp32")
    folder = tmp_path / "models"
    folder.mkdir()
    os.symlink(source, folder / "onnx_identity_fp32")
    running = start(start_server, folder)
    tensor = json.loads(http1.request(running.address, "GET",
                                      "/v2/models/onnx_identity_fp32").body)["inputs"][0]
    shape = [2 if size < 0 else size for size in tensor["shape"]]
    body = json.dumps({"inputs": [{"name": tensor["name"], "shape": shape, "datatype": "FP32",
                                   "data": [1] * numpy.prod(shape)}]}, default=int)
    with (triton_http.InferenceServerClient(running.address) as client,
          Load(running.address, n_clients=2, method="POST",
               path="/v2/models/onnx_identity_fp32/infer", body=body) as loads):
        for _ in range(10 if server.is_sanitized() else 60):
            client.load_model("onnx_identity_fp32", config="{}")
        loads.wait_more(2)
    assert set(loads.outcomes) == {200}
    running.wait_at_rest()


# ---- loads that take long ------------------------------------------------------------------------

@pytest.fixture
def slow(start_server, tmp_path):
    """Two models whose loads take 0.8 s, and a quick one. Nothing is loaded yet but that."""
    folder = tmp_path / "models"
    for name in ("one", "two"):
        repository.Identity(name, [("FP32", [4])], max_batch_size=4, parameters=SLOW,
                            more=WARM).write(folder)
    repository.Identity("m", [("FP32", [4])], max_batch_size=4).write(folder)
    return start_server("--model-repository", folder, "--model-control-mode", "explicit",
                        "--load-model", "m", grpc=("127.0.0.1:0",))


def post(running, path):
    """Asks in a thread. Returns: what joins it and gives the status."""
    got = []
    thread = threading.Thread(
        target=lambda: got.append(http1.request(running.address, "POST", path).status))
    thread.start()

    def join():
        thread.join(http1.PATIENCE)
        return got[0] if got else None
    return join


def infer(running, model):
    return http1.request(running.address, "POST", f"/v2/models/{model}/infer",
                         body=BODY.encode()).status


def test_load_two_models_in_parallel(slow):
    asked = [post(slow, f"/v2/repository/models/{name}/load") for name in ("one", "two")]
    slow.wait_for(lambda: state_of(slow, "one") == state_of(slow, "two") == ["LOADING"],
                  "both to load at once")
    assert infer(slow, "m") == 200
    assert infer(slow, "one") == 503
    assert http1.request(slow.address, "GET", "/v2/health/ready").status == 200
    assert [join() for join in asked] == [200, 200]
    assert infer(slow, "one") == 200


def test_unload_cancels_running_load(slow):
    load = post(slow, "/v2/repository/models/one/load")
    slow.wait_for(lambda: state_of(slow, "one") == ["LOADING"], "a load")
    assert post(slow, "/v2/repository/models/one/unload")() == 200
    assert load() == 503
    assert state_of(slow, "one") == ["UNAVAILABLE"]
    slow.wait_for(lambda: "model discarded" in slow.log_text(), "the end of the load")
    assert state_of(slow, "one") == ["UNAVAILABLE"]


def test_unload_running_request_finishes(slow):
    assert post(slow, "/v2/repository/models/one/load")() == 200
    asked = post_infer(slow, "one")
    metrics.wait_until(slow.address, lambda page: page["sluice_running_requests"] > 0, "a request")
    assert post(slow, "/v2/repository/models/one/unload")() == 200
    assert infer(slow, "one") == 404
    assert asked() == 200
    slow.wait_for(lambda: state_of(slow, "one") == ["UNAVAILABLE"], "the end of the model")


HOUR = 3_600_000_000


def test_unload_waits_for_answers_that_wait_in_a_stream(start_server, tmp_path):
    """Two requests of a stream are answered, and wait for the one before them, which waits for a batch."""
    tensors = [("FP32", [4])]
    running = start(start_server, tmp_path / "models", repository.Identity("m", tensors, max_batch_size=4),
                    repository.Identity("fails", tensors, max_batch_size=4, parameters={"fail": "not today"}),
                    repository.Identity("later", tensors, max_batch_size=4),
                    repository.Identity("waits", tensors, max_batch_size=2, more="dynamic_batching {"
                                        f" max_queue_delay_microseconds: {HOUR} }}"))

    def has_counted(name, kind):
        answer = json.loads(http1.request(running.address, "GET", f"/v2/models/{name}/stats").body)
        return int(answer["model_stats"][0]["inference_stats"][kind]["count"]) == 1

    array = numpy.array([[1, 2, 3, 4]], "<f4")
    results = queue.Queue()
    client = triton_grpc.InferenceServerClient(running.grpc_address)
    client.start_stream(lambda result, error: results.put((result, error)))
    try:
        for name in ("waits", "m", "fails"):
            made = triton_grpc.InferInput("INPUT0", [1, 4], "FP32").set_data_from_numpy(array)
            client.async_stream_infer(name, [made], request_id=name)
        running.wait_for(lambda: has_counted("m", "success") and has_counted("fails", "fail"), "both answers")
        for name in ("m", "fails", "later"):  # the last one is freed after those before it
            assert post(running, f"/v2/repository/models/{name}/unload")() == 200
        running.wait_for(lambda: state_of(running, "later") == ["UNAVAILABLE"], "the end of a model")
        assert [state_of(running, name) for name in ("m", "fails")] == [["UNLOADING"]] * 2
        assert results.empty()
        assert infer(running, "waits") == 200
        for name in ("waits", "m"):
            result, error = results.get(timeout=http1.PATIENCE)
            assert error is None, error
            assert result.get_response().id == result.get_response().model_name == name
            assert result.as_numpy("OUTPUT0").tolist() == array.tolist()
        result, error = results.get(timeout=http1.PATIENCE)
        assert result is None and "not today" in error.message()
    finally:
        client.stop_stream(cancel_requests=True)
        client.close()
    running.wait_for(lambda: state_of(running, "m") == state_of(running, "fails") == ["UNAVAILABLE"],
                     "the end of both models")
    assert post(running, "/v2/repository/models/m/load")() == 200
    assert infer(running, "m") == 200
    running.wait_at_rest()


def post_infer(running, model):
    got = []
    thread = threading.Thread(target=lambda: got.append(infer(running, model)))
    thread.start()

    def join():
        thread.join(http1.PATIENCE)
        return got[0]
    return join


def test_shutdown_while_model_loads(slow):
    load = post(slow, "/v2/repository/models/one/load")
    slow.wait_for(lambda: state_of(slow, "one") == ["LOADING"], "a load")
    waiting = post(slow, "/v2/repository/models/one/unload")
    metrics.wait_until(slow.address, lambda numbers: numbers["sluice_requests_in_flight"] >= 3
                       or state_of(slow, "one") != ["LOADING"], "both, and this one, or the first is through")
    slow.signal()
    assert slow.wait_exit() == 0
    assert load() in (200, 503) and waiting() in (200, 503)
    slow.check_log()


def test_disconnect_does_not_stop_load(slow):
    host, port = slow.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v2/repository/models/one/load HTTP/1.1\r\nHost: h\r\n"
                           b"Content-Length: 0\r\n\r\n")
        slow.wait_for(lambda: state_of(slow, "one") == ["LOADING"], "a load")
    with triton_grpc.InferenceServerClient(slow.grpc_address) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("two", client_timeout=0.1)
        assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    slow.wait_for(lambda: state_of(slow, "one") == state_of(slow, "two") == ["READY"], "both models")
    metrics.wait_at_rest(slow.address)


# ---- all of it at once ---------------------------------------------------------------------------

def test_load_and_unload_storm(start_server, tmp_path):
    names = ("p", "q")
    running = start(start_server, tmp_path / "models",
                    *(repository.Identity(name, [("FP32", [4])], max_batch_size=4)
                      for name in names))
    config = json.dumps(config_of(running, "p") | {"name": ""})
    before = metrics.read(running.address)["sluice_arenas"]
    host, port = running.address.rsplit(":", 1)

    def http_storm():
        connection = http.client.HTTPConnection(host, int(port), timeout=http1.PATIENCE)
        for number in range(60):
            name = names[number % 2]
            verb = "unload" if number % 3 == 0 else "load"
            body = json.dumps({"parameters": {"config": config}}) if verb == "load" else None
            connection.request("POST", f"/v2/repository/models/{name}/{verb}", body)
            if number % 5 == 4:  # it does not wait for the answer
                connection.close()
                continue
            answer = connection.getresponse()
            text = answer.read()
            # 503: an unload of another client cancelled it
            assert answer.status == 200 or (answer.status, b"was cancelled" in text) == (503, True), text
        connection.close()

    def grpc_storm():
        with triton_grpc.InferenceServerClient(running.grpc_address) as client:
            for number in range(60):
                try:
                    client.load_model(names[number % 2], config=config,
                                      client_timeout=0.001 if number % 2 else None)
                except InferenceServerException as error:
                    assert "was cancelled" in error.message() or error.status() in (
                        "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED"), error

    def infer_storm():
        for number in range(200):
            # 503: it is loaded anew, after an unload
            assert infer(running, names[number % 2]) in (200, 404, 503)

    failures = []

    def guarded(storm):
        try:
            storm()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(storm,))
               for storm in (http_storm, http_storm, grpc_storm, grpc_storm, infer_storm)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for name in names:
        assert post(running, f"/v2/repository/models/{name}/load")() == 200
        assert infer(running, name) == 200
    page = metrics.wait_at_rest(running.address, before)
    assert page["sluice_queued_requests"] == page["sluice_running_requests"] == 0
    assert page['sluice_models{state="unloading"}'] == 0

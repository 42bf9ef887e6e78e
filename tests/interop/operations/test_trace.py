"""The trace extension, by the reference's own clients: what is traced of whom, what stands in the files,
what is changed by whom, and what is refused."""
import asyncio
import json
import resource
import threading

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, mip
from lib.repository import DECOUPLED
from lib.traces import CLIENTS, HANDLER, TIMES, Live, plain, read

pytestmark = pytest.mark.tsan


@pytest.fixture
def start(start_server, repositories, tmp_path):
    started = []

    def begin(*settings, models=None, **options):
        started.append(Live(start_server, tmp_path, models or repositories("default"), *settings, **options))
        return started[-1]
    yield begin
    for live in started:
        for client in live.clients.values():
            client.close()


def test_trace_extension_is_listed(start):
    live = start()
    assert "trace" in live.clients["http"].get_server_metadata()["extensions"]
    assert "trace" in live.clients["grpc"].get_server_metadata().extensions


# ---- what is written -----------------------------------------------------------------------------

@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_trace_timestamps(start, protocol):
    live = start("level=TIMESTAMPS", "rate=1")
    live.infer(protocol, request_id="the id")
    live.wait_count(1)
    (trace,) = live.traces().values()
    assert trace["request"] == {"model_name": "id_fp32", "model_version": 1, "request_id": "the id"}
    assert [name for name, _ in trace["times"]] == TIMES[protocol]
    at = [ns for _, ns in trace["times"]]
    assert at == sorted(at) and at[0] > 0
    assert trace["tensors"] == []


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_trace_tensors(start, protocol):
    live = start("level=TENSORS", "rate=1")
    live.infer(protocol)
    live.wait_count(1)
    (trace,) = live.traces().values()
    assert trace["times"] == []
    data = {"data": "1.0,2.0,3.0", "shape": "3", "dtype": "FP32"}
    assert trace["tensors"] == [("TENSOR_QUEUE_INPUT", {"name": "INPUT0", **data}),
                                ("TENSOR_BACKEND_OUTPUT", {"name": "OUTPUT0", **data})]
    live.set(trace_level=["TENSORS", "TIMESTAMPS"])
    live.infer(protocol, model="id_batch", array=numpy.zeros((2, 4), "<f4"))
    live.wait_count(2)
    trace = live.traces()[2]
    assert trace["times"] and trace["tensors"][1][1]["shape"] == "2,4"
    assert trace["tensors"][0][1]["data"] == ",".join(["0.0"] * 8)


def test_trace_failed_request(start):
    live = start("level=TIMESTAMPS", "rate=1")
    with pytest.raises(InferenceServerException):
        live.infer(model="id_failing")
    with pytest.raises(InferenceServerException):
        live.infer(model="id_fixed")
    with pytest.raises(InferenceServerException):
        live.infer(model="nope")
    live.wait_count(2)
    failed, refused = ([name for name, _ in trace["times"]] for trace in live.traces().values())
    assert failed == [name for name in TIMES["http"]
                      if name not in ("INFER_RESPONSE_COMPLETE", "HTTP_SEND_START")]
    assert refused == ["HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_END"]
    live.check_alive()


def test_trace_stream_requests(start):
    """Each request of a stream is one."""
    live = start("level=TIMESTAMPS", "rate=1")
    client, done = live.clients["grpc"], threading.Semaphore(0)
    client.start_stream(lambda result, error: done.release())
    made = triton_grpc.InferInput("INPUT0", [3], "FP32").set_data_from_numpy(numpy.zeros(3, "<f4"))
    for number in range(5):
        client.async_stream_infer("id_fp32", [made], request_id=str(number))
    for _ in range(5):
        assert done.acquire(timeout=http1.PATIENCE)
    client.stop_stream()
    live.wait_count(5)
    assert [trace["request"]["request_id"] for trace in live.traces().values()] == list("01234")
    assert all([name for name, _ in trace["times"]] == TIMES["grpc"] for trace in live.traces().values())


def test_trace_decoupled_responses(start, tmp_path):
    models = tmp_path / "models"
    for model in DECOUPLED:
        model.write(str(models))
    live = start("level=TENSORS", "level=TIMESTAMPS", "rate=1", models=models)
    status, events = live.post(json.dumps({"INPUT0": [1.5], "responses": 3}),
                               "/v2/models/many/generate_stream")
    assert status == 200 and events.count(b"data: ") == 3
    live.wait_count(1)
    (trace,) = live.traces().values()
    assert [activity for activity, _ in trace["tensors"]] == ["TENSOR_QUEUE_INPUT"] + 3 * ["TENSOR_BACKEND_OUTPUT"]
    assert [name for name, _ in trace["times"]] == TIMES["http"]


def test_trace_mip_packets(start_server, repositories, tmp_path):
    """What a packet asks of the model is one, or more where it is cut into several."""
    file = tmp_path / "traces.json"
    server = start_server("--model-repository", repositories("default"), "--mip", "tcp://127.0.0.1:0=id_batch", *(
        part for setting in (f"triton,file={file}", "level=TIMESTAMPS", "level=TENSORS", "rate=1")
        for part in ("--trace-config", setting)))
    assert mip.infer(server.mip_urls[0], [[mip.as_json([1, 2, 3, 4])]]) == [[[1, 2, 3, 4]]]
    server.wait_for(file.exists, "traces")
    server.stop()
    (trace,) = read(file).values()
    assert [name for name, _ in trace["times"]] == HANDLER
    assert [activity for activity, _ in trace["tensors"]] == ["TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT"]
    assert trace["tensors"][0][1]["data"] == "1.0,2.0,3.0,4.0"


def test_trace_rate_samples_requests(start):
    live = start("level=TIMESTAMPS", "rate=4")
    live.infer(n=3)
    live.infer("grpc", n=3)
    live.infer(n=6)
    live.wait_count(3)
    assert sorted(live.traces()) == [1, 2, 3]


def test_trace_count_starts_new_file(start):
    live = start("level=TIMESTAMPS", "rate=1", "count=2")
    live.infer(n=5)
    live.wait_count(2)
    assert live.get()["trace_count"] == "0"
    assert sorted(live.traces(".0")) == [1, 2] and not live.file.exists()
    assert live.set("grpc", trace_count="1")["trace_count"] == "1"
    live.infer(n=3)
    live.wait_count(3)
    assert sorted(live.traces(".1")) == [3]


def test_trace_log_frequency_rotates_files(start):
    live = start("level=TIMESTAMPS", "rate=1", "triton,log-frequency=2")
    live.infer(n=5)
    live.wait_count(4)
    assert sorted(live.traces(".0")) == [1, 2] and sorted(live.traces(".1")) == [3, 4]
    live.server.stop()
    assert sorted(live.traces(".2")) == [5] and not live.file.exists()


def test_trace_settings_change_flushes(start):
    live = start("level=TIMESTAMPS", "rate=1", "triton,log-frequency=100")
    live.infer(n=3)
    live.server.wait_for(lambda: live.count("dropped") == 0, "nothing dropped")
    live.set(trace_level=["OFF"])
    live.wait_count(3)
    live.infer(n=3)
    assert sorted(live.traces(".0")) == [1, 2, 3]


def test_trace_shutdown_flushes(start):
    live = start("level=TIMESTAMPS", "rate=1", "count=100")
    live.infer(n=3)
    live.server.stop()
    assert sorted(live.traces()) == [1, 2, 3]


def test_trace_unwritable_file_is_counted(start, tmp_path):
    live = start("level=TIMESTAMPS", "rate=1")
    live.file.mkdir()
    live.server.expect_error("cannot write traces")
    live.infer(n=3)
    live.wait_count(3, "failed")
    assert live.server.log_text().count("cannot write traces") == 1
    live.file.rmdir()
    live.infer()
    live.wait_count(1)
    assert sorted(live.traces()) == [4]


def limit_files(server, n_bytes):
    """How long files may get that it writes. Returns: how long they might."""
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (n_bytes, hard))
    return soft


def test_trace_file_size_limit_drops_traces(start):
    """As on a full disk: what was written stays whole, the rest is counted, and goes on when there is room."""
    live = start("level=TIMESTAMPS", "level=TENSORS", "rate=1")
    live.server.expect_error("cannot write traces")
    large = numpy.arange(5000, dtype="<f4")
    before = limit_files(live.server, 100000)
    live.infer(array=large)
    live.wait_count(1)
    for n_failed in (1, 2):
        live.infer(array=large)
        live.wait_count(n_failed, "failed")
    assert live.count() == 1 and sorted(live.traces()) == [1]
    assert live.server.log_text().count("cannot write traces") == 1
    limit_files(live.server, before)
    live.infer(array=large)
    live.wait_count(2)
    assert sorted(live.traces()) == [1, 4]


def test_trace_file_that_cannot_be_truncated_is_logged_once(repositories, start_server):
    """A device that is full: each trace fails, and the log says so once."""
    server = start_server("--model-repository", repositories("default"), "--trace-config", "triton,file=/dev/full",
                          "--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1")
    server.expect_error("cannot write traces")
    with http1.Connection(server.address) as client:
        for n_failed in range(1, 6):
            client.send(http1.post(b"/v2/models/id_fp32/infer", b'{"inputs":[{"name":"INPUT0","shape":[1],'
                                   b'"datatype":"FP32","data":[1]}]}'))
            assert client.read_answer("POST").status == 200
            server.wait_for(lambda: metrics.read(server.address)['sluice_traces_total{result="failed"}'] == n_failed,
                            f"{n_failed} traces that failed")
    assert server.log_text().count("cannot write traces") == 1
    assert server.log_text().count("a file of traces is torn") == 1


def test_trace_level_raised_by_client_stops_at_max_trace_size(start):
    """The operator has tracing off, a client turns it on, and the disk is not filled."""
    limit = 200000
    live = start("level=OFF", more=("--max-trace-size", str(limit)))
    large = numpy.arange(5000, dtype="<f4")
    live.set(trace_level=["TENSORS"], trace_rate="1")
    for n in range(1, 11):  # what is written at once is dropped at once
        live.infer(array=large)
        live.server.wait_for(lambda n=n: live.count("over_limit") + live.count() == n, "a trace written or dropped")
    n_written = live.count()
    assert 0 < n_written < 10 and sorted(live.traces()) == list(range(1, int(n_written) + 1))
    live.set(log_frequency="1")  # other files count, too
    live.infer(array=large, n=5)
    live.server.wait_for(lambda: live.count("over_limit") + live.count() == 15, "all traces written or dropped")
    assert sum(path.stat().st_size for path in live.file.parent.glob(f"{live.file.name}*")) <= limit
    assert live.count() == n_written
    assert live.server.log_text().count("traces are dropped") == 1
    live.check_alive()


# ---- settings ------------------------------------------------------------------------------------

@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_trace_settings_of_server(start, protocol):
    live = start()
    assert live.get(protocol) == live.at_first
    on = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "5", "log_frequency": "3"}
    assert live.set(protocol, **on) == live.at_first | on
    assert live.get(protocol) == live.at_first | on
    assert live.set(protocol, trace_rate="2") == live.at_first | on | {"trace_rate": "2"}
    assert live.set(protocol) == live.at_first | on | {"trace_rate": "2"}
    assert live.set(protocol, trace_level=None, trace_rate=None, trace_count=None,
                    log_frequency=None) == live.at_first
    live.infer(protocol)
    assert live.count() == 0
    assert live.server.log_text().count("trace settings changed") == 3


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_trace_settings_of_model(start, protocol):
    live = start("level=TIMESTAMPS", "rate=5")
    server = live.at_first | {"trace_level": ["TIMESTAMPS"], "trace_rate": "5"}
    assert live.get(protocol, "id_fp32") == server
    assert live.set(protocol, "id_fp32", trace_rate="1") == server | {"trace_rate": "1"}
    assert live.get(protocol) == server
    live.infer(n=2)
    live.infer(model="id_batch", array=numpy.zeros((1, 4), "<f4"), n=2)
    live.wait_count(2)
    # what the model has not set follows the server
    assert live.set(protocol, log_frequency="9", trace_rate="7")["trace_rate"] == "7"
    assert live.get(protocol, "id_fp32") == server | {"trace_rate": "1", "log_frequency": "9"}
    assert live.set(protocol, "id_fp32", trace_level=["OFF"])["trace_level"] == ["OFF"]
    live.infer(n=2)
    assert live.set(protocol, "id_fp32", trace_level=None, trace_rate=None) == live.get(protocol)
    assert live.set(protocol, trace_rate=None, log_frequency=None) == server
    assert live.count() == 2


def test_trace_asyncio_clients(start):
    live = start()

    async def over_http():
        async with triton_http_aio.InferenceServerClient(live.server.address) as client:
            changed = await client.update_trace_settings("id_fp32", {"trace_rate": "3"})
            return changed, await client.get_trace_settings("id_fp32")

    async def over_grpc():
        async with triton_grpc_aio.InferenceServerClient(live.server.grpc_address) as client:
            changed = await client.update_trace_settings("id_fp32", {"trace_rate": None})
            return plain(changed), plain(await client.get_trace_settings("id_fp32"))
    assert asyncio.run(over_http()) == (live.at_first | {"trace_rate": "3"},) * 2
    assert asyncio.run(over_grpc()) == (live.at_first,) * 2


@pytest.mark.parametrize("body, status, says", [
    ("", 400, "empty body"),
    ('{"trace_file": "/dev/null"}', 501, "trace_file"),
    ('{"trace_file": null}', 501, "trace_file"),
    ('{"trace_level": "TIMESTAMPS"}', 400, "trace_level"),
    ('{"trace_level": [1]}', 400, "trace_level"),
    ('{"trace_level": ["OFF", "TENSORS"]}', 400, "OFF alone"),
    ('{"trace_level": ["TIMESTAMPS"], "trace_rate": "0"}', 400, "at least 1"),
    ('{"trace_rate": 5}', 400, "trace_rate"),
    ('{"trace_rate": "five"}', 400, "whole number"),
    ('{"trace_rate": "2147483648"}', 400, "2147483647"),
    ('{"trace_level": ["TIMESTAMPS"], "trace_count": "-2"}', 400, "from -1"),
    ('{"log_frequency": "-1"}', 400, "log_frequency"),
    ("[]", 400, "object"),
    ('{"trace_rate": "1"', 400, "JSON"),
    ("[" * 60000, 400, ""),
    (" " * 70000 + "{}", 413, ""),
])
def test_trace_http_refusals(start, body, status, says):
    live = start()
    for path in ("/v2/trace/setting", "/v2/models/id_fp32/trace/setting"):
        got, error = live.post(body, path)
        assert got == status and says in error["error"]
    assert live.get() == live.get(model="id_fp32") == live.at_first
    live.check_alive()


@pytest.mark.parametrize("settings, code, says", [
    ({"trace_file": "/dev/null"}, "UNIMPLEMENTED", "trace_file"),
    ({"trace_file": None}, "UNIMPLEMENTED", "trace_file"),
    ({"trace_level": ["OFF", "TIMESTAMPS"]}, "INVALID_ARGUMENT", "OFF alone"),
    ({"trace_rate": ["1", "2"]}, "INVALID_ARGUMENT", "one value"),
    ({"trace_rate": "x"}, "INVALID_ARGUMENT", "whole number"),
    ({"trace_level": "TENSORS", "trace_count": "-2"}, "INVALID_ARGUMENT", "from -1"),
])
def test_trace_grpc_refusals(start, settings, code, says):
    live = start()
    for model in ("", "id_fp32"):
        with pytest.raises(InferenceServerException, match=says) as caught:
            live.set("grpc", model, **settings)
        assert caught.value.status() == f"StatusCode.{code}"
    assert live.get("grpc") == live.get("grpc", "id_fp32") == live.at_first
    live.check_alive()


@pytest.mark.parametrize("protocol, status", [("http", "404"), ("grpc", "StatusCode.NOT_FOUND")])
def test_trace_unknown_model_is_refused(start, protocol, status):
    live = start()
    for call in (lambda: live.get(protocol, "nope"), lambda: live.set(protocol, "nope", trace_rate="1")):
        with pytest.raises(InferenceServerException, match="nope") as caught:
            call()
        assert caught.value.status() == status
    live.check_alive()


def test_trace_without_file_is_off(start):
    live = start(file=False)
    assert live.get() == live.at_first
    status, error = live.post('{"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}')
    assert status == 400 and "--trace-config" in error["error"]
    for number in range(20):
        live.set(trace_rate=str(number + 1))
        live.set(model="id_fp32", trace_count=str(number))
    assert live.get(model="id_fp32")["trace_rate"] == "20"
    live.check_alive()


def test_trace_http_methods(start):
    live = start()
    for path in ("/v2/trace/setting", "/v2/models/id_fp32/trace/setting"):
        for method, status in (("GET", 200), ("HEAD", 200), ("PUT", 405), ("DELETE", 405)):
            assert http1.request(live.server.address, method, path, b"").status == status
    assert http1.request(live.server.address, "GET", "/v2/models/%2e%2e/trace/setting", b"").status == 404


def test_trace_requires_control_key(start_server, repositories, tmp_path):
    keys = tmp_path / "keys.yaml"
    keys.write_text("control: [the-key]\n")
    server = start_server("--model-repository", repositories("default"), "--keys", keys, grpc=("127.0.0.1:0",))
    for module, address in ((triton_http, server.address), (triton_grpc, server.grpc_address)):
        with module.InferenceServerClient(address) as client:
            with pytest.raises(InferenceServerException):
                client.get_trace_settings()
            said = client.get_trace_settings(headers={"authorization": "Bearer the-key"})
            assert plain(said)["trace_level"] == ["OFF"]


def test_trace_concurrent_changes(start):
    """While requests are traced: each is written under the settings it began with, and none is lost."""
    live = start("level=TIMESTAMPS", "rate=1")
    ending = threading.Event()

    def change(number):
        with triton_http.InferenceServerClient(live.server.address) as client:
            at = 0
            while not ending.is_set():
                at += 1
                client.update_trace_settings("id_fp32" if at % 2 else "", {
                    "trace_level": [["TIMESTAMPS"], ["TENSORS"], ["OFF"]][(at + number) % 3],
                    "log_frequency": str(at % 4), "trace_count": str(at % 7 - 1)})

    def infer(protocol):
        with CLIENTS[protocol].InferenceServerClient(
                live.server.address if protocol == "http" else live.server.grpc_address) as client:
            made = CLIENTS[protocol].InferInput("INPUT0", [3], "FP32")
            made.set_data_from_numpy(numpy.zeros(3, "<f4"))
            for _ in range(300):
                client.infer("id_fp32", [made])
    changing = [threading.Thread(target=change, args=(number,)) for number in range(2)]
    asking = [threading.Thread(target=infer, args=(protocol,)) for protocol in ("http", "grpc") * 2]
    for thread in changing + asking:
        thread.start()
    for thread in asking:
        thread.join()
    ending.set()
    for thread in changing:
        thread.join()
    live.check_alive()
    live.server.stop()
    files = [path for path in live.file.parent.glob("traces.json*")]
    ids = sorted(id for path in files for id in read(path))
    assert ids and ids == list(range(1, len(ids) + 1))


@pytest.mark.parametrize("setting, says", [
    ("level=TIMESTAMPS", "triton,file=FILE"),
    ("rate=x", "whole number"),
    ("nope", "expected level="),
    ("triton,file=/nowhere/at/all", "/nowhere/at"),
])
def test_trace_invalid_flags_are_refused(repositories, setting, says):
    from lib.server import run
    done = run("serve", "--model-repository", repositories("default"), "--trace-config", setting)
    assert done.returncode == 2 and says in done.stderr and "--trace-config" in done.stderr

"""An event loop is never held: with one worker, others are answered while one request takes long, whatever makes it
long. A request counts as answered meanwhile when the answer to the long one has not come before."""
import gzip
import http.client
import json
import select

import pytest

from lib import grpc_live, h2, http1, metrics, mip
from lib.events import parse_events
from lib.repository import DECOUPLED, FREE, Identity

LONG = 500000  # iterations: about a second
LOOP = "/v2/models/onnx_loop/infer"


def loop_body(n):
    return b'{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[%d]}]}' % n


@pytest.fixture
def one_worker(start_server, repositories):
    return start_server("--workers", "1", "--model-repository", repositories("default"),
                        f"onnx_loop={repositories('onnx')}/onnx_loop/1/model.onnx")


def test_event_loop_model_with_loop_never_runs_on_worker(one_worker):
    address = one_worker.address
    for _ in range(40):  # enough executions that are short
        answer = http1.request(address, "POST", LOOP, loop_body(3))
        assert (answer.status, b'"data":[3' in answer.body) == (200, True), answer
    before = metrics.read(address)
    assert before["sluice_inline_executions_total"] == 0
    with http1.Connection(address) as slow:
        body = loop_body(LONG)
        slow.send(http1.post(LOOP.encode(), body))
        metrics.wait_until(address, lambda now: now["sluice_requests_in_flight"] == 2, "the slow request in flight")
        assert slow.read_answer("POST").status == 200


def pairs_body(n):
    return json.dumps({"inputs": [{"name": "x", "shape": [n], "datatype": "FP32", "data": [1] * n}]}).encode()


def kernel_body(kernel):
    n = kernel[2] * kernel[3]
    return json.dumps({"inputs": [
        {"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [1] * 64},
        {"name": "kernel", "shape": kernel, "datatype": "FP32", "data": [1] * n}]}).encode()


def n_inline(server):
    return metrics.read(server.metrics_address)["sluice_inline_executions_total"]


def make_quick(server, model, body):
    """Executions of these shapes run on the worker, where the machine is quick enough. Returns: how many have."""
    request = http1.post(f"/v2/models/{model}/infer".encode(), body)
    for _ in range(25):
        with http1.Connection(server.address) as connection:
            for _ in range(40):
                connection.send(request)
                assert connection.read_answer("POST").status == 200
        n = n_inline(server)
        if n > 0:
            break
    return n


@pytest.fixture
def start_with(start_server, repositories):
    """Starts a server of one worker with an ONNX model besides those of the default repository."""
    def start(model, *flags):
        return start_server("--workers", "1", "--model-repository", repositories("default"), *flags,
                            f"{model}={repositories('onnx')}/{model}/1/model.onnx", metrics_at="127.0.0.1:0")
    return start


@pytest.mark.parametrize("model, quick, unseen", [
    pytest.param("follows_pairs", pairs_body(2), pairs_body(6000), id="36 million differences"),
    pytest.param("follows_kernel", kernel_body([1, 1, 3, 3]), kernel_body([1, 1, 2, 2]), id="another kernel"),
])
def test_event_loop_shapes_not_seen_quick_never_run_on_worker(start_with, model, quick, unseen):
    server = start_with(model)
    before = make_quick(server, model, quick)
    with http1.Connection(server.address) as other:
        other.send(http1.post(f"/v2/models/{model}/infer".encode(), unseen))
        assert http1.request(server.address, "GET", "/v2/health/live").status == 200
        answer = other.read_answer("POST")
        assert answer.status == 200, str(answer)
    assert n_inline(server) == before


def test_event_loop_kernel_without_elements_holds_no_worker(start_with):
    """ONNX Runtime never comes back from this convolution: one instance is lost, and nothing else."""
    server = start_with("follows_kernel", "--drain-timeout", "1s")
    make_quick(server, "follows_kernel", kernel_body([1, 1, 3, 3]))
    with http1.Connection(server.address) as stuck:
        stuck.send(http1.post(b"/v2/models/follows_kernel/infer", kernel_body([1, 1, 0, 0])))
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_running_requests"] == 1, "it runs")
        body = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
        assert http1.request(server.address, "POST", "/v2/models/id_fp32/infer", body).status == 200
        assert not is_answered(stuck)
        server.process.terminate()
        assert server.process.wait(http1.PATIENCE) == 0


def is_answered(connection):
    return bool(select.select([connection.sock], [], [], 0)[0])


def test_event_loop_admin_listener_answers_while_worker_is_held(start_server, tmp_path):
    parameters = {"delay_us": 2000000, "sluice.run_on": "worker"}
    Identity("held", [("FP32", FREE)], parameters=parameters).write(tmp_path / "models")
    server = start_server("--workers", "1", "--model-repository", tmp_path / "models", metrics_at="127.0.0.1:0")
    admin = server.metrics_address
    body = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
    with http1.Connection(server.address) as slow, http1.Connection(server.address) as waiting:
        slow.send(http1.post(b"/v2/models/held/infer", body))
        waiting.send(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        busy = 0
        while not busy and not is_answered(slow):
            busy = json.loads(http1.request(admin, "GET", "/status.json").body)["memory"]["busy_workers"]
        assert busy >= 1  # on a busy machine that of the listener may count, too
        for path, member in (("live", "live"), ("ready", "ready")):
            answer = http1.request(admin, "GET", f"/v2/health/{path}")
            assert (answer.status, json.loads(answer.body)[member]) == (200, True), answer
        assert not is_answered(slow)
        assert slow.read_answer("POST").status == waiting.read_answer().status == 200
    numbers = metrics.wait_until(admin, lambda now: now["sluice_event_loop_holds_total"] > 0, "the hold counted")
    assert numbers["sluice_event_loop_longest_hold_milliseconds"] >= 900
    assert any(line.get("event") == "event loop held" and line["by"] == "model held" for line in server.log_lines())


def helper_jobs(admin):
    return metrics.read(admin)["sluice_helper_jobs_total"]


def test_event_loop_large_json_is_parsed_and_printed_on_helpers(start_server, repositories):
    server = start_server("--workers", "1", "--model-repository", repositories("default"), metrics_at="127.0.0.1:0")
    admin, n = server.metrics_address, 12 << 20
    data = b"1," * (n - 1) + b"7"
    body = b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","data":[%s]}]}' % (n, data)
    met = [False, False]  # a health check was answered while the body was parsed, while the answer was printed
    for attempt in range(20):
        with http1.Connection(server.address) as slow:
            slow.send(http1.post(b"/v2/models/id_int8/infer", body))
            for step in (0, 1):
                n_jobs = 2 * attempt + step + 1
                metrics.wait_until(admin, lambda now, n=n_jobs: now["sluice_helper_jobs_total"] >= n, "a job")
                assert http1.request(server.address, "GET", "/v2/health/live").status == 200
                met[step] |= helper_jobs(admin) == n_jobs and not is_answered(slow)
            answer = slow.read_answer("POST")
            assert answer.status == 200 and answer.body.endswith(b'"data":[' + data + b"]}]}")
        if all(met):
            break
    assert all(met)
    before = helper_jobs(admin)
    small = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"INT8","data":[1]}]}'
    assert http1.request(server.address, "POST", "/v2/models/id_int8/infer", small).status == 200
    assert helper_jobs(admin) == before  # a small request needs none
    server.wait_at_rest()


def test_event_loop_client_that_leaves_during_a_job_cancels_its_request(start_server, repositories):
    server = start_server("--workers", "1", "--model-repository", repositories("default"), metrics_at="127.0.0.1:0")
    n = 4 << 20
    body = b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","data":[%s]}]}' % (n, b"1," * (n - 1) + b"7")
    for _ in range(2):
        before = helper_jobs(server.metrics_address)
        with http1.Connection(server.address) as leaving:
            leaving.send(http1.post(b"/v2/models/id_int8/infer", body))
            metrics.wait_until(server.metrics_address, lambda now: now["sluice_helper_jobs_total"] > before, "a job")
            leaving.reset()
    server.wait_at_rest()
    assert http1.request(server.address, "GET", "/v2/health/live").status == 200


def test_event_loop_compressed_body_is_inflated_in_slices(start_server, repositories):
    server = start_server("--workers", "1", "--model-repository", repositories("default"))
    n_bytes = 60 << 20
    body = gzip.compress(b"x" + bytes(n_bytes - 1))  # no JSON; one read of the server's takes it
    request = http1.post(b"/v2/models/id_int8/infer", body, b"Content-Encoding: gzip")

    def is_served_between_slices():
        with http1.Connection(server.address) as slow:
            slow.send(request)
            n = metrics.read(server.address)["sluice_body_bytes_in_flight"]
            assert slow.read_answer("POST").status == 400
        return 0 < n < n_bytes
    assert any(is_served_between_slices() for _ in range(20))
    server.wait_at_rest()


def test_event_loop_files_in_load_request_are_decoded_on_helper(start_server, tmp_path):
    Identity("id_fp32", [("FP32", FREE)]).write(tmp_path / "models")
    server = start_server("--workers", "1", "--model-repository", tmp_path / "models", "--model-control-mode",
                          "explicit", "--load-model", "id_fp32", metrics_at="127.0.0.1:0")
    config = json.dumps({"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
                         "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]})

    def load(file):
        body = json.dumps({"parameters": {"config": config, "file:1/kept": file}}).encode()
        return http1.request(server.address, "POST", "/v2/repository/models/given/load", body)
    assert load("AAAA").status == 200
    server.arenas = metrics.read(server.address)["sluice_arenas"]  # with that of the model
    assert load("AAAA" * (N_LARGE // 4)).status == 200
    assert helper_jobs(server.metrics_address) == 1
    answer = load("AAAA" * (N_LARGE // 4) + "*")
    assert (answer.status, b"is not base64" in answer.body) == (400, True), answer
    assert helper_jobs(server.metrics_address) == 2
    body = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
    assert http1.request(server.address, "POST", "/v2/models/given/infer", body).status == 200
    server.wait_at_rest()


def test_event_loop_pipelined_requests_take_turns(one_worker):
    """All are answered. With a sanitizer, the server logs an error where one iteration answers all of them."""
    n = 1400
    with http1.Connection(one_worker.address) as connection:
        connection.send(b"GET /v2/models/stats HTTP/1.1\r\nHost: a\r\n\r\n" * n)
        for _ in range(n):
            answer = connection.read_answer()
            assert (answer.status, b"model_stats" in answer.body) == (200, True), answer
    one_worker.wait_at_rest()


# ---- gRPC ----------------------------------------------------------------------------------------

N_LARGE = 1000000  # estimated at milliseconds


@pytest.fixture
def live(tmp_path, repositories):
    """A server with one worker, and the helper jobs of it."""
    started = grpc_live.Live(tmp_path, repositories("default"), "--workers", "1")
    with started.server:
        yield started
        started.check_unharmed()


def typed(values, name="a"):
    inputs = [grpc_live.tensor("INPUT0", "INT8", [len(values)], contents={"int_contents": values})]
    return grpc_live.request("id_int8", inputs, (), id=name)


def texts(n):
    """A request of texts of one byte, each with its length."""
    inputs = [grpc_live.tensor("INPUT0", "BYTES", [n])]
    return grpc_live.request("id_bytes", inputs, [b"\1\0\0\0x" * n], outputs=[{"name": "OUTPUT0"}])


def classes(n):
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": {"int64_param": 2}}}]
    return grpc_live.request("id_fp32", [grpc_live.tensor(shape=[n])], [bytes(4 * n)], outputs=outputs)


@pytest.mark.parametrize("request_, n_jobs", [
    pytest.param(typed([1] * N_LARGE), 1, id="typed contents"),
    pytest.param(texts(N_LARGE), 1, id="texts to check"),
    pytest.param(classes(N_LARGE), 1, id="classes of a large output"),
    pytest.param(typed([1] * 1000), 0, id="a small request"),
    pytest.param(grpc_live.request(inputs=[grpc_live.tensor(shape=[N_LARGE])], raw=[bytes(4 * N_LARGE)]), 0,
                 id="raw contents"),
])
@pytest.mark.parametrize("path", [grpc_live.INFER, grpc_live.STREAM], ids=["ModelInfer", "ModelStreamInfer"])
def test_event_loop_large_grpc_message_is_decoded_on_helper(live, request_, n_jobs, path):
    with live.connect() as connection:
        ended = connection.call(path, request_)
        assert (ended.status, len(ended.messages())) == (grpc_live.OK, 1), str(ended)
        if path == grpc_live.STREAM:
            stream_answers(ended)
    assert helper_jobs(live.server.metrics_address) == n_jobs


def stream_answers(ended):
    answers = []
    for data in ended.messages():
        answer = grpc_live.proto.ModelStreamInferResponse()
        answer.ParseFromString(data)
        assert answer.error_message == "", answer
        answers.append((answer.infer_response.id, answer.infer_response.raw_output_contents[0]))
    return answers


def test_event_loop_grpc_stream_keeps_order_while_one_is_on_helper(live):
    sent = [[1] * N_LARGE, [2], [3] * N_LARGE, [4] * N_LARGE, [5], [6]]
    with live.connect() as connection:
        ended = connection.call(grpc_live.STREAM, *(typed(values, str(i)) for i, values in enumerate(sent)))
        assert ended.status == grpc_live.OK, ended
        assert stream_answers(ended) == [(str(i), bytes(values)) for i, values in enumerate(sent)]
    assert helper_jobs(live.server.metrics_address) == 3


def test_event_loop_grpc_client_that_leaves_during_a_job_cancels_its_requests(live):
    """Also where an error waits for the answer to the request with the job."""
    large, wrong = h2.message(typed([1] * N_LARGE)), h2.message(grpc_live.request("absent"))
    for path, messages in ((grpc_live.INFER, large), (grpc_live.STREAM, 4 * large),
                           (grpc_live.STREAM, large + wrong), (grpc_live.STREAM, wrong + large + wrong + large)):
        before = helper_jobs(live.server.metrics_address)
        with live.connect() as leaving:
            stream = leaving.begin(path)
            leaving.send_data(stream, messages, end=True)
            metrics.wait_until(live.server.metrics_address, lambda now: now["sluice_helper_jobs_total"] > before,
                               "a job")
            leaving.abort()


GZIP = (b"grpc-encoding", b"gzip")


@pytest.mark.parametrize("path", [grpc_live.INFER, grpc_live.STREAM], ids=["ModelInfer", "ModelStreamInfer"])
def test_event_loop_compressed_grpc_message_is_inflated_in_slices(live, path):
    n_bytes = 60 << 20
    message = h2.message(gzip.compress(b"x" + bytes(n_bytes - 1)), flag=1)  # no protobuf; one or two reads take it
    address = live.server.address

    def is_served_between_slices():
        with live.connect() as slow:
            stream = slow.begin(path, GZIP)
            slow.send_data(stream, message, end=True)
            n = metrics.read(address)["sluice_body_bytes_in_flight"]
            assert slow.answer(stream).is_over
        return 0 < n < n_bytes
    assert any(is_served_between_slices() for _ in range(20))


@pytest.mark.parametrize("path", [grpc_live.INFER, grpc_live.STREAM], ids=["ModelInfer", "ModelStreamInfer"])
def test_event_loop_compressed_grpc_messages_are_whole_and_in_order(live, path):
    sizes = [3 << 20] if path == grpc_live.INFER else [3 << 20, 1, 1 << 20, 5 << 20, 2]
    values = [bytes(n - 1) + bytes([i]) for i, n in enumerate(sizes)]
    messages = [grpc_live.request("id_int8", [grpc_live.tensor("INPUT0", "INT8", [len(data)])], [data], id=str(i))
                for i, data in enumerate(values)]
    with live.connect() as connection:
        stream = connection.begin(path, GZIP)
        packed = b"".join(h2.message(gzip.compress(data), flag=1) for data in messages)
        connection.send_data(stream, packed, end=True)
        ended = connection.answer(stream)
        assert ended.status == grpc_live.OK, str(ended)
        if path == grpc_live.INFER:
            assert grpc_live.parse_answer(ended.messages()[0]).raw_output_contents[0] == values[0]
        else:
            assert stream_answers(ended) == [(str(i), data) for i, data in enumerate(values)]
        cut = connection.begin(path, GZIP)
        connection.send_data(cut, packed[:-1], end=True)
        assert connection.answer(cut).status == grpc_live.INVALID
        if path == grpc_live.INFER:
            twice = connection.begin(path, GZIP)
            connection.send_data(twice, packed * 2, end=True)
            assert "takes one message" in connection.answer(twice).text


@pytest.mark.parametrize("path", [grpc_live.INFER, grpc_live.STREAM], ids=["ModelInfer", "ModelStreamInfer"])
def test_event_loop_large_grpc_answer_is_compressed_on_helper(tmp_path, repositories, path):
    live = grpc_live.Live(tmp_path, repositories("default"), "--workers", "1",
                          "--grpc-infer-response-compression-level", "low")
    values = [bytes(n - 1) + b"\1" for n in ([3 << 20] if path == grpc_live.INFER else [3 << 20, 5000, 1 << 20])]
    messages = [grpc_live.request("id_int8", [grpc_live.tensor("INPUT0", "INT8", [len(data)])], [data])
                for data in values]
    with live.server:
        with live.connect() as connection:
            ended = connection.call(path, *messages, more=[(b"grpc-accept-encoding", b"gzip")])
            assert ended.status == grpc_live.OK, str(ended)
            assert len(ended.data) < sum(map(len, values)) / 10
            answers = [gzip.decompress(data) for data in ended.messages()]
            assert len(answers) == len(values) and all(map(bytes.endswith, answers, values))
        assert helper_jobs(live.server.metrics_address) == sum(len(data) > 50000 for data in values)
        live.check_unharmed()


# ---- MIP -----------------------------------------------------------------------------------------

MIP_MODELS = ("id_int8", "id_batch_free", "id_string")


@pytest.fixture
def mip_server(start_server, repositories):
    """A server with one worker, and the address of each model."""
    listeners = [arg for model in MIP_MODELS for arg in ("--mip", f"tcp://127.0.0.1:0={model}")]
    server = start_server("--workers", "1", "--model-repository", repositories("default"), *listeners,
                          metrics_at="127.0.0.1:0")
    yield server, dict(zip(MIP_MODELS, server.mip_urls))
    assert mip.infer(server.mip_urls[0], [[mip.as_json([1, 2])]]) == [[[1, 2]]]
    server.wait_at_rest()


LARGE_ROW = [float(i % 7) for i in range(N_LARGE // 4)]


@pytest.mark.parametrize("model, elements, n_jobs", [
    pytest.param("id_int8", [[[1] * N_LARGE]], 2, id="one element"),
    pytest.param("id_batch_free", [[LARGE_ROW]] * 3, 7, id="a batch, which is gathered"),
    pytest.param("id_batch_free", [[[5.0]], [LARGE_ROW], [LARGE_ROW], [[6.0]]], 6, id="small elements among large ones"),
    pytest.param("id_int8", [[[1] * 1000]], 0, id="a small element"),
    pytest.param("id_string", [["x" * (3 * N_LARGE)]], 3, id="a text"),
])
def test_event_loop_large_mip_item_is_read_and_written_on_helper(mip_server, model, elements, n_jobs):
    server, urls = mip_server
    sent = [[mip.text(value) if isinstance(value, str) else mip.as_json(value) for value in element]
            for element in elements]
    assert mip.infer(urls[model], sent) == elements
    assert helper_jobs(server.metrics_address) == n_jobs


def test_event_loop_error_in_large_mip_item_is_reported(mip_server):
    server, urls = mip_server
    small, large = (mip.infer_request([[(mip.JSON, b"[" + b"1," * n + b"x]")]]) for n in (1, N_LARGE))
    assert mip.refusal(urls["id_int8"], large) == mip.refusal(urls["id_int8"], small)
    assert helper_jobs(server.metrics_address) == 1


def test_event_loop_mip_client_that_leaves_during_a_job_cancels_its_packet(mip_server):
    server, urls = mip_server
    for n in (1, 2):
        with mip.Connection(urls["id_int8"]) as leaving:
            before = helper_jobs(server.metrics_address)
            leaving.send(mip.infer_request([[mip.as_json([1] * N_LARGE)]] * n))
            metrics.wait_until(server.metrics_address, lambda now: now["sluice_helper_jobs_total"] > before, "a job")
            leaving.reset()
        server.wait_at_rest()


# ---- the response cache --------------------------------------------------------------------------

def test_event_loop_large_inputs_are_hashed_on_helper(start_server, tmp_path):
    Identity("m", [("FP32", FREE)], more="response_cache { enable: true }").write(tmp_path / "models")
    server = start_server("--workers", "1", "--model-repository", tmp_path / "models", "--cache-size", "32MiB",
                          metrics_at="127.0.0.1:0")
    head = b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],' \
        b'"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}' % (N_LARGE, 4 * N_LARGE)
    length = b"Inference-Header-Content-Length: %d" % len(head)

    def ask(data):
        with http1.Connection(server.address) as connection:
            connection.send(http1.post(b"/v2/models/m/infer", head + data, length))
            answer = connection.read_answer("POST")
            assert (answer.status, answer.body[-len(data):] == data) == (200, True), answer.status
    for _ in range(3):
        ask(bytes(4 * N_LARGE))
    ask(bytes(4 * N_LARGE - 1) + b"\1")
    numbers = metrics.read(server.metrics_address)
    assert numbers["sluice_helper_jobs_total"] == 4
    assert numbers['nv_cache_num_hits_per_model{model="m",version="1"}'] == 2
    before = helper_jobs(server.metrics_address)
    with http1.Connection(server.address) as leaving:
        leaving.send(http1.post(b"/v2/models/m/infer", head + b"\2" * (4 * N_LARGE), length))
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_helper_jobs_total"] > before, "a job")
        leaving.reset()
    server.wait_at_rest()
    ask(bytes(4 * N_LARGE))


# ---- responses of decoupled models ---------------------------------------------------------------

def generate(server, model, verb, body):
    """Returns: the answers; their event stream is chunked."""
    connection = http.client.HTTPConnection(server.address, timeout=http1.PATIENCE)
    try:
        connection.request("POST", f"/v2/models/{model}/{verb}", json.dumps(body).encode())
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return parse_events(text) if verb == "generate_stream" else [json.loads(text)]
    finally:
        connection.close()


@pytest.fixture
def decoupled(start_server, tmp_path):
    for model in DECOUPLED:
        model.write(tmp_path / "models")
    server = start_server("--workers", "1", "--model-repository", tmp_path / "models", metrics_at="127.0.0.1:0",
                          grpc=("127.0.0.1:0",))
    yield server
    answers = generate(server, "many", "generate_stream", {"INPUT0": 2, "responses": 2})
    assert [one["OUTPUT0"] for one in answers] == [2.0, 2.0]
    server.wait_at_rest()


WIDE = [float(i % 10) for i in range(50000)]  # its text is estimated at more than a millisecond


@pytest.mark.parametrize("model, verb, n, n_jobs", [
    ("many", "generate_stream", 4, 4), ("many_apart", "generate_stream", 4, 4), ("many_threaded", "generate_stream", 4, 4),
    ("one", "generate_stream", 1, 1), ("one", "generate", 1, 1), ("many_apart", "generate", 1, 1),
])
def test_event_loop_large_events_are_printed_on_helper(decoupled, model, verb, n, n_jobs):
    answers = generate(decoupled, model, verb, {"INPUT0": WIDE, "responses": n})
    assert [one["OUTPUT0"] for one in answers] == [WIDE] * n
    assert helper_jobs(decoupled.metrics_address) == n_jobs + 1  # one parses the body


def test_event_loop_classes_of_partial_responses_are_found_on_helper(decoupled):
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": {"int64_param": 2}}}]
    n = N_LARGE // 2
    wide = grpc_live.floats(*(float(i % 1000) for i in range(n)))
    request = grpc_live.request("many_apart", [grpc_live.tensor(shape=[n])], [wide], outputs=outputs,
                                parameters={"responses": {"int64_param": 3}})
    with h2.Connection(decoupled.grpc_address) as connection:
        answers = stream_answers(connection.call(grpc_live.STREAM, request))
    assert len(answers) == 3 and all(b"999.000000:" in data for _, data in answers)
    assert helper_jobs(decoupled.metrics_address) == 3


def test_event_loop_client_that_leaves_during_a_partial_response_is_seen(decoupled):
    body = json.dumps({"INPUT0": WIDE, "responses": 1000000}).encode()
    for model in ("many", "many_slow"):
        before = helper_jobs(decoupled.metrics_address)
        with http1.Connection(decoupled.address) as leaving:
            leaving.send(http1.post(f"/v2/models/{model}/generate_stream".encode(), body))
            metrics.wait_until(decoupled.metrics_address, lambda now: now["sluice_helper_jobs_total"] > before + 2,
                               "a partial response")
            leaving.reset()
        decoupled.wait_at_rest()

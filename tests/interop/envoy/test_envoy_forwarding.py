"""Each configuration of deploy/envoy with a real Envoy and the real picker: requests in every protocol form
over HTTP/1.1, HTTP/2 and gRPC, then answers of every shape. After each test nothing is in flight at the
picker. What goes wrong on purpose is in test_envoy_faults.py."""
import contextlib
import hashlib
import json
import queue

import grpc
import numpy
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.grpc import service_pb2 as proto
from tritonclient.utils import InferenceServerException

from lib import echo, http1, metrics
from lib.gateway import IN_PROCESS, Gateway
from lib.repository import Identity
from lib.server import Server

OPEN = ("headers-only.yaml", "model-in-body.yaml", "buffered.yaml")
CLOSED = ("headers-only-closed.yaml", "metadata.yaml", "full-duplex.yaml", IN_PROCESS)
SEE_BODIES = ("model-in-body.yaml", "buffered.yaml", "full-duplex.yaml", IN_PROCESS)
SECOND_CHOICE = "override-host.yaml"  # of one protocol only: its members have one port each
EVERY = (*OPEN, *CLOSED, SECOND_CHOICE)
MODEL = Identity("digits", [("FP32", [-1])])
INFER = "/v2/models/digits/infer"
MEGABYTE = numpy.arange(1 << 18, dtype=numpy.float32)


def openai(model="digits", size=0):
    """A request for completions; the model comes after the prompt."""
    return json.dumps({"prompt": "a" * size, "model": model, "stream": True}).encode()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Three model servers, their gRPC on the same port of three addresses."""
    repository = tmp_path_factory.mktemp("models")
    MODEL.write(repository)
    started, port = [], 0
    with contextlib.ExitStack() as ending:
        for number in (1, 2, 3):
            host = f"127.0.0.{number}"
            started.append(ending.enter_context(
                Server(tmp_path_factory.mktemp("server"), ["--model-repository", repository],
                       listen=(f"{host}:0",), grpc=(f"{host}:{port}",))))
            port = started[0].grpc_address.rpartition(":")[2]
        yield started


@pytest.fixture(scope="module", params=EVERY)
def served(request, tmp_path_factory, servers):
    """One configuration in front of the model servers."""
    yield from kept(tmp_path_factory.mktemp("gateway"), request.param,
                    [server.address for server in servers], servers[0].grpc_address.rpartition(":")[2])


@pytest.fixture(scope="module", params=EVERY)
def echoed(request, tmp_path_factory, echoes):
    """One configuration in front of servers that say what they were asked."""
    yield from kept(tmp_path_factory.mktemp("gateway"), request.param,
                    [one.address for one in echoes])


def kept(folder, config, endpoints, grpc_port=1, **more):
    gateway = Gateway(folder, config, endpoints, grpc_port, **more)
    gateway.config = config
    try:
        yield gateway
        gateway.stop()
    finally:
        gateway.kill()


@pytest.fixture(autouse=True)
def at_rest(request):
    """Nothing is in flight when a test has ended."""
    yield
    for name in ("served", "echoed"):
        if name in request.fixturenames:
            request.getfixturevalue(name).picker.wait_at_rest()


# ---- KServe --------------------------------------------------------------------------------------

@pytest.mark.parametrize("http2", [False, True])
def test_envoy_kserve_json(served, http2):
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [3], "datatype": "FP32",
                                   "data": [1, 2.5, -3]}]}).encode()
    answer = served.ask(INFER, body=body, http2=http2)
    assert answer["outputs"][0]["data"] == [1, 2.5, -3]
    assert served.ask("/v2/models/digits", http2=http2)["name"] == "digits"


def http_input(values):
    given = over_http.InferInput("INPUT0", values.shape, "FP32")
    given.set_data_from_numpy(values)
    return given


def test_envoy_kserve_binary_megabyte(served):
    with over_http.InferenceServerClient(served.address) as client:
        for _ in range(3):
            assert (client.infer("digits", [http_input(MEGABYTE)]).as_numpy("OUTPUT0") == MEGABYTE).all()


def test_envoy_unknown_model_is_404(served):
    reply = served.curl("/v2/models/unheard/infer", body=b"{}")
    assert reply.status == 404 and "unheard" in json.loads(reply.body)["error"], reply


@pytest.mark.parametrize("host", ["models.example", "models.example:8443", "models"])
def test_envoy_passes_on_host_of_client(served, host):
    """To servers at loopback addresses, which refuse a name with their own port only."""
    assert served.ask("/v2/models/digits", "-H", f"host: {host}")["name"] == "digits"


def test_envoy_passes_on_requests_of_pages(served):
    """Those of the server's own pages behind the proxy are answered, those of another site are not."""
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
    kind = ("-H", "content-type: application/json")
    assert served.ask(INFER, *kind, "-H", f"origin: http://{served.address}", body=body)["outputs"][0]["data"] == [1]
    assert served.ask(INFER, *kind, "-H", "sec-fetch-site: same-origin", body=body)["outputs"][0]["data"] == [1]
    for field in ("origin: https://evil.example", "sec-fetch-site: cross-site"):
        assert served.curl(INFER, *kind, "-H", field, body=body).status == 403


def counts_by_picker(servers):
    """How many requests the servers have had: picked, and not."""
    pages = [metrics.read(server.address) for server in servers]
    return [sum(page[f'sluice_requests_by_picker_total{{picked="{picked}"}}'] for page in pages)
            for picked in ("yes", "no")]


def test_envoy_server_counts_requests_past_the_picker(served, servers):
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
    picked, others = counts_by_picker(servers)
    served.ask(INFER, body=body)
    assert counts_by_picker(servers) == [picked + 1, others]
    with over_http.InferenceServerClient(servers[0].address) as client:
        client.infer("digits", [http_input(MEGABYTE[:3])])
    assert counts_by_picker(servers) == [picked + 1, others + 1]
    if served.config != SECOND_CHOICE:
        with over_grpc.InferenceServerClient(served.address) as client:
            client.infer("digits", [grpc_input(MEGABYTE[:3])])
        assert counts_by_picker(servers) == [picked + 2, others + 1]


# ---- KServe over gRPC ----------------------------------------------------------------------------

on_grpc = pytest.mark.parametrize("served", [*OPEN, *CLOSED], indirect=True)


@pytest.fixture
def client(served):
    with over_grpc.InferenceServerClient(served.address) as made:
        yield made


def grpc_input(values):
    given = over_grpc.InferInput("INPUT0", values.shape, "FP32")
    given.set_data_from_numpy(values)
    return given


@on_grpc
@pytest.mark.parametrize("values", [MEGABYTE[:3], MEGABYTE], ids=["small", "megabyte"])
def test_envoy_kserve_grpc(client, values):
    for _ in range(3):
        answer = client.infer("digits", [grpc_input(values)])
        assert (answer.as_numpy("OUTPUT0") == values).all()
    assert client.get_model_metadata("digits").name == "digits"


@on_grpc
def test_envoy_server_grpc_status_is_forwarded(client):
    given = over_grpc.InferInput("WRONG", [1], "FP32")
    given.set_data_from_numpy(MEGABYTE[:1])
    with pytest.raises(InferenceServerException) as caught:
        client.infer("digits", [given])
    assert "INVALID_ARGUMENT" in caught.value.status() and "WRONG" in caught.value.message()


def test_envoy_kserve_grpc_in_mode_grpc(tmp_path, servers):
    for gateway in kept(tmp_path, "full-duplex.yaml", [server.address for server in servers],
                        servers[0].grpc_address.rpartition(":")[2], more=lambda text: text.replace(
                            "request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: GRPC").replace(
                            "response_body_mode: NONE", "response_body_mode: GRPC")):
        with over_grpc.InferenceServerClient(gateway.address) as client:
            for values in (MEGABYTE[:3], MEGABYTE[:100000]):
                answer = client.infer("digits", [grpc_input(values)])
                assert (answer.as_numpy("OUTPUT0") == values).all()
            assert client.get_model_metadata("digits").name == "digits"


@on_grpc
def test_envoy_picker_refusal_is_grpc_not_found(served):
    """A model that the pool has not: where the body is seen the picker says so, else the server does."""
    with grpc.insecure_channel(served.address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer",
                                    proto.ModelInferRequest.SerializeToString, bytes)
        with pytest.raises(grpc.RpcError) as caught:
            infer(proto.ModelInferRequest(model_name="unheard"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "unheard" in caught.value.details()
    refused = served.picker.numbers().get('sluice_errors_total{protocol="pick",reason="UNKNOWN_MODEL"}', 0)
    assert bool(refused) or served.config not in SEE_BODIES


# Where every body is buffered a stream that waits for answers can't work; Envoy's own rule.
@pytest.mark.parametrize("served", [c for c in (*OPEN, *CLOSED) if c != "buffered.yaml"], indirect=True)
def test_envoy_grpc_stream_is_not_buffered(served):
    """Each request is sent when the answer to the one before has come."""
    with grpc.insecure_channel(served.address) as channel:
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer",
                                       proto.ModelInferRequest.SerializeToString,
                                       proto.ModelStreamInferResponse.FromString)
        come = queue.Queue()
        answers = stream(iter(come.get, None), timeout=http1.PATIENCE)
        for number in range(3):
            given = proto.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1])
            come.put(proto.ModelInferRequest(
                model_name="digits", id=str(number), inputs=[given],
                raw_input_contents=[numpy.float32(number).tobytes()]))
            answer = next(answers)
            assert not answer.error_message and answer.infer_response.id == str(number)
        come.put(None)
        assert list(answers) == [] and answers.code() == grpc.StatusCode.OK


# ---- models in bodies ----------------------------------------------------------------------------

@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/embeddings",
                                  "/v1/responses", "/v1/messages"])
def test_envoy_openai_paths(echoed, path, http2):
    body = openai()
    answer = echoed.ask(path, body=body, http2=http2)
    assert (answer["path"], answer["sha1"]) == (path, hashlib.sha1(body).hexdigest())
    assert answer["server"] in ("a", "b", "c")


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("size", [70000, 1000000, 5000000])
def test_envoy_large_body_is_unchanged(echoed, size, http2):
    body = openai(size=size)
    answer = echoed.ask("/v1/completions", body=body, http2=http2)
    assert (answer["length"], answer["sha1"]) == (len(body), hashlib.sha1(body).hexdigest())


def test_envoy_chunked_request(echoed):
    body = openai(size=100000)
    answer = echoed.ask("/v1/completions", "-H", "transfer-encoding: chunked", body=body)
    assert (answer["length"], answer["sha1"]) == (len(body), hashlib.sha1(body).hexdigest())


def test_envoy_unknown_model_in_body_is_404(echoed):
    """404 where the picker sees it; elsewhere it is the server's business."""
    reply = echoed.curl("/v1/completions", body=openai("unheard"))
    assert reply.status == (404 if echoed.config in SEE_BODIES else 200), reply


def test_envoy_body_without_model_is_400(echoed):
    reply = echoed.curl("/v1/completions", body=b'{"prompt": ""}')
    assert reply.status == (400 if echoed.config in SEE_BODIES else 200), reply


def test_envoy_other_path_is_forwarded(echoed):
    answer = echoed.ask("/anything", body=b"no JSON")
    assert answer["length"] == 7
    assert echoed.curl("/anything", "-I").status == 200


def test_envoy_requests_reach_each_server(echoed):
    assert {echoed.ask("/")["server"] for _ in range(60)} == {"a", "b", "c"}


# ---- answers -------------------------------------------------------------------------------------

def test_envoy_server_sent_events_are_forwarded(echoed):
    reply = echoed.curl("/v1/completions", "-H", "x-answer: sse", body=openai())
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.body == b"".join(b"data: %d\n\n" % i for i in range(5))


def test_envoy_trailers_are_forwarded(echoed):
    with http1.Connection(echoed.address) as connection:
        connection.send(b"GET / HTTP/1.1\r\nhost: here\r\nte: trailers\r\nx-answer: trailers\r\n"
                        b"connection: close\r\n\r\n")
        answer = connection.read_end()
    assert answer.endswith(b"\r\n0\r\nx-checked: yes\r\n\r\n"), answer


@pytest.mark.parametrize("status", [204, 400, 503])
def test_envoy_server_status_is_forwarded(echoed, status):
    assert echoed.curl("/", "-H", f"x-answer: status={status}").status == status


def test_envoy_request_is_in_flight_until_answer_ends(echoed, echoes):
    """As long as the server writes it is counted, and no longer."""
    with http1.Connection(echoed.address) as connection:
        connection.send(b"GET / HTTP/1.1\r\nhost: here\r\nx-answer: pause\r\n\r\n")
        assert connection.read_head().status == 200
        echoed.picker.wait_streams(1)
        for one in echoes:
            one.let_go()
        echoed.picker.wait_at_rest()


@pytest.mark.parametrize("sent", [
    b"POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-length: 99\r\n\r\n{",
    b"GET / HTTP/1.1\r\nhost: here\r\nx-answer: pause\r\n\r\n"], ids=["in the request", "in the answer"])
def test_envoy_client_disconnect_ends_stream(echoed, echoes, sent):
    connection = http1.Connection(echoed.address)
    connection.send(sent)
    echoed.picker.wait_streams(1)
    connection.reset()
    echoed.picker.wait_at_rest()
    for one in echoes:
        one.let_go()


# ---- the destination is the picker's word --------------------------------------------------------

@pytest.mark.parametrize("http2", [False, True])
def test_envoy_client_destination_header_is_ignored(echoed, http2):
    with contextlib.closing(echo.Echo("outside")) as outside:
        named = f"x-gateway-destination-endpoint: {outside.address}"
        assert echoed.ask("/", "-H", named, http2=http2)["server"] in ("a", "b", "c")
        assert outside.n_requests == 0

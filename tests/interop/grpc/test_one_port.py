"""HTTP/1.1 and gRPC at one port, that of --http (REST over HTTP/2 there: http/test_http2.py): what Knative and Cloud Run
give a container. Real clients of both at the same time, in plain and over TLS; first bytes in pieces, that stop, and
that are neither; and what holds for gRPC (keys, restrictions, its own limits) holds for it there, too."""
import contextlib
import json
import ssl
import threading

import grpc
import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lib import h2, http1, metrics
from lib.grpc_live import GOOD, INFER, OK, SERVICE, SLOW, UNAVAILABLE, UNIMPLEMENTED, request
from lib.tls_client import Pki, client_context, connect

pytestmark = pytest.mark.tsan

LIVE = SERVICE + b"ServerLive"
AGES = numpy.arange(4, dtype=numpy.float32)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def one_port(start_server, repositories):
    def start(*flags, **options):
        options.setdefault("grpc", ("127.0.0.1:0",))
        options.setdefault("metrics_at", "127.0.0.1:0")
        return start_server("--model-repository", repositories("default"), *flags, **options)
    return start


def infer_over_http(client, times):
    for _ in range(times):
        tensor = tritonclient.http.InferInput("INPUT0", [4], "FP32")
        tensor.set_data_from_numpy(AGES)
        assert (client.infer("id_fp32", [tensor]).as_numpy("OUTPUT0") == AGES).all()


def infer_over_grpc(client, times):
    for _ in range(times):
        tensor = tritonclient.grpc.InferInput("INPUT0", [4], "FP32")
        tensor.set_data_from_numpy(AGES)
        assert (client.infer("id_fp32", [tensor]).as_numpy("OUTPUT0") == AGES).all()


def stream_over_grpc(channel, times):
    message = service_pb2.ModelInferRequest.FromString(GOOD)
    answers = list(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([message] * times)))
    assert [answer.error_message for answer in answers] == [""] * times


def run_together(*jobs):
    failures = []

    def run(job):
        try:
            job()
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)
    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def check_both(address):
    """A good request of each protocol is answered, on new connections."""
    assert http1.request(address, "GET", "/v2/health/ready").status == 200
    with h2.Connection(address) as connection:
        assert connection.call(INFER, GOOD).status == OK


# ---- clients --------------------------------------------------------------------------------------

def test_one_port_serves_clients_of_both_protocols_at_once(one_port):
    server = one_port()
    with tritonclient.http.InferenceServerClient(server.address) as http, \
            tritonclient.grpc.InferenceServerClient(server.address) as rpc, \
            grpc.insecure_channel(server.address) as channel:
        run_together(lambda: infer_over_http(http, 50), lambda: infer_over_grpc(rpc, 50),
                     lambda: stream_over_grpc(channel, 50))
        state = http1.request(server.metrics_address, "GET", "/debug/state").body.decode()
        of_grpc = state[state.index("\ngrpc: "):state.index("\nmetrics: ")]
        assert f"to {server.address}" in of_grpc, state
    server.wait_at_rest()


def test_one_port_serves_clients_of_both_protocols_over_tls(one_port, pki):
    cert, key = pki.server_files
    server = one_port("--http-tls-cert", cert, "--http-tls-key", key, listen=("http://127.0.0.1:0", "127.0.0.1:0"))
    port = int(server.addresses[1].rpartition(":")[2])
    with open(pki.ca, "rb") as file:
        ca = file.read()
    context = client_context(pki)
    with tritonclient.http.InferenceServerClient(
            f"localhost:{port}", ssl=True, ssl_context_factory=lambda: context) as http, \
            tritonclient.grpc.InferenceServerClient(f"localhost:{port}", ssl=True, root_certificates=pki.ca) as rpc, \
            grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(ca)) as channel:
        run_together(lambda: infer_over_http(http, 20), lambda: infer_over_grpc(rpc, 20),
                     lambda: stream_over_grpc(channel, 20))
    server.wait_at_rest()


def test_alpn_without_common_protocol_is_refused(one_port, pki):
    cert, key = pki.server_files
    server = one_port("--http-tls-cert", cert, "--http-tls-key", key, "--grpc-on-http", "false",
                      listen=("http://127.0.0.1:0", "127.0.0.1:0"))
    context = client_context(pki)
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError):
        connect(pki, int(server.addresses[1].rpartition(":")[2]), context)


def test_two_hundred_connections_of_both_protocols(one_port):
    server = one_port()
    with contextlib.ExitStack() as stack:
        plain = [stack.enter_context(http1.Connection(server.address)) for _ in range(100)]
        calls = [stack.enter_context(h2.Connection(server.address)) for _ in range(100)]
        for connection in plain:
            connection.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        streams = []
        for connection in calls:
            streams.append(connection.begin(INFER))
            connection.send_data(streams[-1], h2.message(GOOD), end=True)
        assert {connection.read_answer().status for connection in plain} == {200}
        assert {connection.answer(stream).status for connection, stream in zip(calls, streams)} == {OK}
        assert metrics.read(server.metrics_address)["sluice_connections"] >= 200
    server.wait_at_rest()
    check_both(server.address)


# ---- first bytes ----------------------------------------------------------------------------------

def test_preface_in_pieces_of_one_byte(one_port):
    server = one_port()
    with h2.Connection(server.address, greet=False) as connection:
        for at in range(len(h2.PREFACE)):
            connection.send(h2.PREFACE[at:at + 1])
        connection.send(h2.settings())
        assert connection.call(INFER, GOOD).status == OK
    with h2.Connection(server.address, greet=False) as connection:
        stream, head = connection.open(h2.call_fields(INFER))
        connection.send(h2.PREFACE + h2.settings() + head)
        connection.send_data(stream, h2.message(GOOD), end=True)
        assert connection.answer(stream).status == OK
    server.wait_at_rest()


BAD = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", b"PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/1.1\r\n\r\n",
       b"PRI\r\n\r\n", b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n", b"PR\x00\x00\r\n\r\n", b"\x00\x01\x02\x03"]


@pytest.mark.parametrize("data", BAD)
@pytest.mark.parametrize("piece", [1, 3, 100])
def test_wrong_preface_is_answered_as_http1(one_port, data, piece):
    server = one_port()
    with http1.Connection(server.address) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for at in range(0, len(data), piece):
                connection.send(data[at:at + piece])
        assert connection.read_answer().status in (400, 501, 505)
        connection.read_end()
    check_both(server.address)


def test_method_that_begins_as_preface_is_http1(one_port):
    server = one_port()
    for method in ("PUT", "PATCH", "POST", "PROPFIND"):
        with http1.Connection(server.address) as connection:
            for byte in f"{method} /v2/health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode():
                connection.send(bytes([byte]))
            assert connection.read_answer().status in (405, 501)
    check_both(server.address)


@pytest.mark.parametrize("data", [b"P", b"PRI", h2.PREFACE[:-1]])
def test_preface_that_stops_is_ended_by_header_timeout(one_port, data):
    server = one_port("--header-timeout", "200ms")
    with http1.Connection(server.address) as connection:
        connection.send(data)
        assert connection.read_answer().status == (505 if len(data) > 16 else 408)
        connection.read_end()
    with h2.Connection(server.address, greet=False, acks=False) as silent:
        silent.send(h2.PREFACE)  # and no SETTINGS
        assert silent.read_end() == "SETTINGS_TIMEOUT"
    check_both(server.address)


def test_connection_that_ends_within_preface(one_port):
    server = one_port()
    for n in (1, 3, 23, 24):
        with h2.Connection(server.address, greet=False) as left:
            left.send(h2.PREFACE[:n])
        with h2.Connection(server.address, greet=False) as reset:
            reset.send(h2.PREFACE[:n])
            reset.abort()
    server.wait_at_rest()
    check_both(server.address)


def test_upgrade_to_h2c_is_not_taken(one_port):
    """Knative's probe: the answer is that of an ordinary request, and the connection goes on in HTTP/1.1."""
    server = one_port()
    with http1.Connection(server.address) as connection:
        connection.send(b"OPTIONS / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
        answer = connection.read_answer("OPTIONS")
        assert answer.status != 101 and answer.get("Upgrade") is None
        connection.send(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.read_answer().status == 200
    check_both(server.address)


# ---- without it -----------------------------------------------------------------------------------

@pytest.mark.parametrize("ports", [("127.0.0.1:0",), ("none",)])
def test_port_of_http_alone_refuses_preface(one_port, ports):
    server = one_port("--grpc-on-http", "false", grpc=ports)
    with http1.Connection(server.address) as connection:
        connection.send(h2.PREFACE + h2.settings())
        assert connection.read_answer().status == 505
    assert http1.request(server.address, "GET", "/v2/health/ready").status == 200


def test_port_without_grpc_serves_rest_over_http2(one_port):
    server = one_port(grpc=("none",))
    with h2.Connection(server.address) as connection:
        assert connection.request(b"GET", b"/v2/health/ready").http_status == 200
        assert connection.call(INFER, GOOD).status == UNIMPLEMENTED
        assert connection.request(b"GET", b"/v2/health/ready").http_status == 200
    server.wait_at_rest()
    server.stop()


# ---- what holds there -----------------------------------------------------------------------------

def test_keys_hold_for_grpc_at_port_of_http(one_port, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("infer: [0123456789abcdef0123456789abcdef]\n", encoding="utf-8")
    server = one_port("--keys", keys)
    with h2.Connection(server.address) as connection:
        assert connection.call(INFER, GOOD).status == 16
        more = ((b"authorization", b"Bearer 0123456789abcdef0123456789abcdef"),)
        assert connection.call(INFER, GOOD, more=more).status == OK


def test_restrictions_of_both_protocols_hold_at_port_of_http(one_port):
    """A category that is closed over HTTP is not open at its port by another protocol."""
    server = one_port("--http-restricted-api", "inference:http-key=one", "--grpc-restricted-protocol",
                      "inference,health:grpc-key=two")
    ours, theirs = (b"http-key", b"one"), (b"triton-grpc-protocol-grpc-key", b"two")
    with h2.Connection(server.address) as connection:
        for more, status in (((), UNAVAILABLE), ((ours,), UNAVAILABLE), ((theirs,), UNAVAILABLE), ((ours, theirs), OK)):
            assert connection.call(INFER, GOOD, more=more).status == status, more
        assert connection.call(LIVE, b"", more=(theirs,)).status == OK
    with h2.Connection(server.grpc_address) as connection:
        assert connection.call(INFER, GOOD, more=(theirs,)).status == OK


def test_connection_age_of_grpc_holds_at_port_of_http(one_port):
    server = one_port("--grpc-max-connection-age", "100ms")
    with h2.Connection(server.address) as connection, http1.Connection(server.address) as plain:
        assert connection.call(INFER, GOOD).status == OK
        assert connection.read_end() == "NO_ERROR"
        plain.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert plain.read_answer().status == 200  # which has no such age
    check_both(server.address)


def test_keepalive_of_grpc_holds_at_port_of_http(one_port):
    server = one_port("--grpc-keepalive-time", "500ms")
    with h2.Connection(server.address) as connection:
        connection.ping()
        connection.run_until(lambda: connection.n_pings >= 2)
    server.wait_at_rest()


def test_limit_of_connections_counts_both(one_port):
    server = one_port("--max-connections", "4")
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            busy = stack.enter_context(h2.Connection(server.address))
            stream = busy.begin(INFER)
            busy.ping()
            assert busy.streams[stream].status is None
        for _ in range(8):  # idle ones give way to each other
            idle = stack.enter_context(h2.Connection(server.address))
            idle.ping()
            assert http1.request(server.address, "GET", "/v2/health/live").status == 200
    server.wait_at_rest()
    check_both(server.address)


def test_drain_ends_connections_of_both(one_port):
    server = one_port()
    with h2.Connection(server.address) as running, h2.Connection(server.address) as idle, \
            http1.Connection(server.address) as plain, http1.Connection(server.address) as begun:
        stream = running.begin(INFER)
        running.send_data(stream, h2.message(SLOW), end=True)
        running.ping()
        idle.ping()
        begun.send(b"PR")
        plain.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert plain.read_answer().status == 200
        server.signal()
        assert idle.read_end() == "NO_ERROR"
        assert running.answer(stream).status == OK
        plain.read_end()
        begun.close()
    assert server.wait_exit() == 0
    server.check_log()


def test_traces_of_grpc_at_port_of_http_name_it(one_port, tmp_path):
    file = tmp_path / "trace"
    server = one_port("--trace-config", f"triton,file={file}", "--trace-config", "level=TIMESTAMPS", "--trace-config",
                      "rate=1")
    with h2.Connection(server.address) as connection:
        assert connection.call(INFER, request()).status == OK
    server.stop()
    names = [stamp["name"] for line in json.loads(file.read_text()) for stamp in line.get("timestamps", [])]
    assert any(name.startswith("GRPC_") for name in names), names

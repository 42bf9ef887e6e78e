"""Connections up to --max-connections that do nothing, or hardly anything, take nothing from others: whatever the
listener, an idle one goes for each new one, and one with an open request stays."""
import contextlib
import select
import socket
import ssl

import pytest

from lib import backends, grpc_live, h2, http1, metrics, mip
from lib.repository import FREE, Identity
from lib.tls_client import Pki, client_context, client_hello, connect

MOST = 50
CROWD = 60
ONE = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
INFER = "/v2/models/m/infer"


@pytest.fixture
def server(start_server, tmp_path):
    Identity("m", [("FP32", FREE)]).write(tmp_path / "models")
    return start_server("--model-repository", tmp_path / "models", "--max-connections", MOST, "--mip",
                        "tcp://127.0.0.1:0=m", metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",))


def closed_idle(server):
    return metrics.read(server.metrics_address)["sluice_idle_connections_closed_total"]


def first_ended(connections):
    """Waits until the server has ended one of them. Returns: what it had sent on that one before."""
    sent = {one.sock: b"" for one in connections}
    while True:
        readable = select.select(list(sent), [], [], http1.PATIENCE)[0]
        assert readable, "none of them has ended"
        for sock in readable:
            piece = sock.recv(1 << 16)
            if not piece:
                return sent[sock]
            sent[sock] += piece


def check_good(server):
    """A new connection of each protocol is served."""
    assert http1.request(server.address, "GET", "/v2/health/ready").status == 200
    assert http1.request(server.address, "POST", INFER, ONE).status == 200
    with h2.Connection(server.grpc_address) as connection:
        assert connection.call(grpc_live.INFER, grpc_live.request("m")).status == grpc_live.OK
    mip.ping(server.mip_urls[0])


CROWDS = {
    "idle on --http": lambda server: (server.address, b""),
    "half heads on --http": lambda server: (server.address, b"GET /v2/health/live HTTP/1.1\r\nHo"),
    "idle on --grpc": lambda server: (server.grpc_address, b""),
    "greeted on --grpc": lambda server: (server.grpc_address, h2.PREFACE + h2.settings()),
    "half heads on --grpc": lambda server: (server.grpc_address, h2.PREFACE + h2.settings() + h2.frame(h2.HEADERS, 0, 1)),
    "idle on --mip": lambda server: (server.mip_urls[0].removeprefix("tcp://"), b""),
    "half heads on --mip": lambda server: (server.mip_urls[0].removeprefix("tcp://"), mip.PING_REQUEST[:5]),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_idle_connections_crowd_leaves_room_for_others(server, crowd):
    address, sent = CROWDS[crowd](server)
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(http1.Connection(server.address))
        busy.send(http1.post_head(INFER.encode(), len(ONE)) + ONE[:10])
        metrics.wait_until(server.metrics_address, lambda now: metrics.others_in_flight(now) >= 1, "an open request")
        for _ in range(CROWD):
            sock = stack.enter_context(contextlib.closing(http1.connect(address)))
            sock.sendall(sent)
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_accepted_connections_total"] >= CROWD,
                           "the crowd")
        for _ in range(3):
            check_good(server)
        assert closed_idle(server) > 0
        busy.send(ONE[10:])
        assert busy.read_answer("POST").status == 200
    server.wait_at_rest()


def test_idle_connections_next_answer_of_one_that_stays_is_right(server):
    """Those that are used go last: the others are idle for longer."""
    with contextlib.ExitStack() as stack:
        used, *idle = [stack.enter_context(http1.Connection(server.address)) for _ in range(MOST)]
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_connections"] >= MOST, "all connections")
        for _ in idle:
            used.send(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert used.read_answer().status == 200
            assert http1.request(server.address, "GET", "/v2/health/live").status == 200
    server.wait_at_rest()


def test_idle_connections_http1_gets_end_of_file(server):
    """Nothing is sent first: a 408 there would be taken for the answer to the next request. A request that the client sends
    at that moment may be repeated, as RFC 9110, 9.2.2 has it for a connection that ends before an answer."""
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(http1.Connection(server.address)) for _ in range(MOST)]
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_connections"] >= MOST, "all connections")
        with http1.Connection(server.address) as another:
            another.send(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert another.read_answer().status == 200
            assert first_ended(idle) == b""
    server.wait_at_rest()


def test_idle_connections_half_handshakes_go(start_server, tmp_path):
    """Those that are not complete are idle, however much of them has come."""
    pki = Pki(tmp_path)
    cert, key = pki.server_files
    Identity("m", [("FP32", FREE)]).write(tmp_path / "models")
    server = start_server("--model-repository", tmp_path / "models", "--max-connections", MOST, "--http-tls-cert", cert,
                          "--http-tls-key", key, "--header-timeout", "1h", metrics_at="127.0.0.1:0",
                          listen=("http://127.0.0.1:0", "https://127.0.0.1:0"))
    port = int(server.addresses[1].rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        half = []
        for sent in [client_hello(pki), client_hello(pki)[:50], b""] * (MOST // 3 + 1):
            half.append(stack.enter_context(http1.Connection(f"127.0.0.1:{port}")))
            half[-1].send(sent)
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_accepted_connections_total"] >= len(half),
                           "the crowd")
        for _ in range(3):
            with connect(pki, port) as good:
                good.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
                assert good.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert closed_idle(server) > 0
        first_ended(half[:MOST // 2])  # the oldest went first
    server.wait_at_rest()


# ---- without idle ones: those whose requests wait for their client ---------------------------------

WAITING = "sluice_waiting_connections_closed_total"
WAITERS = {
    "half bodies on --http": lambda server: (server.address, http1.post_head(INFER.encode(), len(ONE)) + ONE[:10]),
    "open streams on --grpc": lambda server: (server.grpc_address, h2.PREFACE + h2.settings() + h2.frame(
        h2.HEADERS, h2.END_HEADERS, 1, h2.block(h2.call_fields(grpc_live.STREAM)))),
    "half packets on --mip": lambda server: (server.mip_urls[0].removeprefix("tcp://"),
                                             mip.header(mip.INFER, 1000) + bytes(10)),
}


def connect_from(host, address, sent):
    sock = http1.connect(address, source=host)
    sock.sendall(sent)
    return sock


@pytest.mark.parametrize("crowd", WAITERS)
def test_waiting_connections_of_a_large_peer_leave_room_for_others(server, crowd):
    address, sent = WAITERS[crowd](server)
    with contextlib.ExitStack() as stack:
        for n in range(MOST):
            stack.enter_context(contextlib.closing(connect_from("127.0.0.9", address, sent)))
        metrics.wait_until(server.metrics_address, lambda now: now["sluice_accepted_connections_total"] >= MOST
                           and metrics.others_in_flight(now) >= MOST, "requests that wait for their client")
        for _ in range(3):
            check_good(server)
        assert metrics.read(server.metrics_address)[WAITING] > 0
        assert any("closed for another one" in line.get("event", "") for line in server.log_lines())
    server.wait_at_rest()


def test_waiting_connections_of_small_peers_are_kept(server):
    """Of four at most of each host none goes: the new one is refused."""
    address, sent = WAITERS["half bodies on --http"](server)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(contextlib.closing(connect_from(f"127.0.0.{9 + n // 4}", address, sent)))
                   for n in range(MOST)]
        metrics.wait_until(server.metrics_address, lambda now: metrics.others_in_flight(now) >= MOST, "requests")
        assert http1.request(server.address, "GET", "/v2/health/ready").status == 503
        for sock in waiting:
            sock.sendall(ONE[10:])
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
    server.wait_at_rest()


# ---- half-closed ones, whose requests a model runs -------------------------------------------------

GATED = """
backend: "gate"
input {{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }}
parameters {{ key: "gate" value {{ string_value: "/" }} }}
parameters {{ key: "execute_gate" value {{ string_value: "{gate}" }} }}
instance_group {{ count: {instances} kind: KIND_CPU }}
"""
GATED_REQUEST = http1.post(b"/v2/models/gated/infer",
                           b'{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}')
N_GOOD = 5


class Gated:
    """A server with a model that runs MOST requests at once, each until `release()`, and a certificate."""

    def __init__(self, start_server, tmp_path):
        self.pki = Pki(tmp_path)
        cert, key = self.pki.server_files
        backends.make(tmp_path, "gate")
        (tmp_path / "models" / "gated" / "1").mkdir(parents=True)
        (tmp_path / "models" / "gated" / "config.pbtxt").write_text(
            GATED.format(gate=tmp_path / "open", instances=MOST))
        Identity("m", [("FP32", FREE)]).write(tmp_path / "models")
        self.server = start_server(
            "--model-repository", tmp_path / "models", "--backend-dir", tmp_path / "backends", "--max-connections", MOST,
            "--mip", "tcp://127.0.0.1:0=gated", "--mip", "tcp://127.0.0.1:0=m", "--http-tls-cert", cert, "--http-tls-key", key,
            metrics_at="127.0.0.1:0", grpc=("127.0.0.1:0",), listen=("http://127.0.0.1:0", "https://127.0.0.1:0"))
        self.address = self.server.addresses[0].removeprefix("http://")
        self.release = (tmp_path / "open").touch

    def ask_http(self):
        return connect_from("127.0.0.9", self.address, GATED_REQUEST)

    def ask_mip(self):
        return connect_from("127.0.0.9", self.server.mip_urls[0].removeprefix("tcp://"),
                            mip.infer_request([[mip.as_json([1])]]))

    def ask_tls(self):
        port = self.server.addresses[1].rpartition(":")[2]
        plain = http1.connect(f"127.0.0.1:{port}", source="127.0.0.9")
        sock = client_context(self.pki).wrap_socket(plain, server_hostname="localhost")
        sock.sendall(GATED_REQUEST)
        return sock

    def wait_half_closed(self, n):
        def state():
            return http1.request(self.server.metrics_address, "GET", "/debug/state").body.decode()
        self.server.wait_for(lambda: state().count("half-closed by the client") >= n, f"{n} half-closed connections")


# Instances that execute: a request that waits for one ends with its client's side.
BUSY = 'sluice_model_busy_instances{model="gated",version="1"}'


def half_close(sock):
    socket.socket.shutdown(sock, socket.SHUT_WR)  # that of ssl.SSLSocket would end TLS in both directions


def close_notify(sock):
    """The end of the client's side within TLS; TCP stays open."""
    sock.setblocking(False)
    with contextlib.suppress(ssl.SSLWantReadError):
        sock.unwrap()
    sock.settimeout(http1.PATIENCE)


def read_rest(sock):
    """All that comes until the end, or a reset."""
    got = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLZeroReturnError):
        while piece := sock.recv(1 << 16):
            got += piece
    return got


HALF_CLOSED = {"http": (Gated.ask_http, half_close), "mip": (Gated.ask_mip, half_close),
               "https": (Gated.ask_tls, half_close), "https, close_notify": (Gated.ask_tls, close_notify)}


# More than the server reads while the model runs the first: the end of the client's side is behind them.
SENT_AHEAD = {"http": (lambda gated: gated.address, lambda: GATED_REQUEST),
              "mip": (lambda gated: gated.server.mip_urls[0].removeprefix("tcp://"),
                      lambda: mip.infer_request([[mip.as_json([1])]]))}


@pytest.mark.parametrize("how", ["closes its side", "goes"])
@pytest.mark.parametrize("protocol", SENT_AHEAD)
def test_clients_that_left_after_unread_requests_leave_room_for_others(start_server, tmp_path, protocol, how):
    """A model runs the first request of all connections. The server does not read on meanwhile, so it has not seen that
    the clients have left."""
    gated = Gated(start_server, tmp_path)
    address, request = SENT_AHEAD[protocol]
    request = request()
    ahead = request * (1 + (1 << 17) // len(request))
    with contextlib.ExitStack() as stack:
        left = [stack.enter_context(connect_from("127.0.0.9", address(gated), ahead)) for _ in range(MOST)]
        metrics.wait_until(gated.server.metrics_address, lambda now: metrics.others_in_flight(now) >= MOST,
                           "requests that the model runs")
        for sock in left:
            if how == "goes":
                sock.close()
            else:
                half_close(sock)
        for _ in range(N_GOOD):
            assert http1.request(gated.address, "POST", INFER, ONE).status == 200
            with h2.Connection(gated.server.grpc_address) as connection:
                assert connection.call(grpc_live.INFER, grpc_live.request("m")).status == grpc_live.OK
            mip.ping(gated.server.mip_urls[1])
        assert 0 < closed_idle(gated.server) <= 3 * N_GOOD
        gated.release()
    gated.server.wait_at_rest()


@pytest.mark.parametrize("crowd", HALF_CLOSED)
def test_half_closed_connections_leave_room_for_others(start_server, tmp_path, crowd):
    """A model runs the requests of all connections, and cannot be stopped. The client of each has closed its side, and gets
    the answer where no other connection needs the place."""
    gated = Gated(start_server, tmp_path)
    ask, end_side = HALF_CLOSED[crowd]
    admin = gated.server.metrics_address
    with contextlib.ExitStack() as stack:
        left = [stack.enter_context(ask(gated)) for _ in range(MOST)]
        metrics.wait_until(admin, lambda now: now[BUSY] >= MOST, "requests that the model runs")
        for sock in left:
            end_side(sock)
        gated.wait_half_closed(MOST)
        assert closed_idle(gated.server) == 0
        for _ in range(N_GOOD):
            assert http1.request(gated.address, "POST", INFER, ONE).status == 200
            with h2.Connection(gated.server.grpc_address) as connection:
                assert connection.call(grpc_live.INFER, grpc_live.request("m")).status == grpc_live.OK
            mip.ping(gated.server.mip_urls[1])
        n_closed = closed_idle(gated.server)
        assert 0 < n_closed <= 3 * N_GOOD
        assert metrics.read(admin)[WAITING] == 0
        gated.release()
        answers = [read_rest(sock) for sock in left]
        assert sum(answer == b"" for answer in answers) == n_closed
        assert len({len(answer) for answer in answers}) == 2  # nothing, or a whole answer
    gated.server.wait_at_rest()

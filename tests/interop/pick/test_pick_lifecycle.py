"""The life of `sluice pick`: what it reads and rereads, health, TLS, draining, and coming back after kill -9."""
import json
import os
import re
import signal
import ssl
import subprocess
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lib import http1
from lib.certificates import Identity, pem_of
from lib.pick_client import Proxy, answer_headers, body, endpoint_of, headers, refusal_of
from lib.server import ROOT, binary, run

pytestmark = pytest.mark.tsan

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
POOL = f"endpoints: [{A}]\n"
INFER = "/v2/models/digits/infer"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
SERVING, NOT_SERVING = (health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING)
QUICK = ("--reload-interval", "50ms")


@pytest.fixture
def start(start_picker):
    """start(pool, flag, …): a picker of the test's own."""
    return lambda pool=POOL, *args, **options: start_picker(pool, *args, **options)


def ready_lines(picker):
    with open(picker.ready_file, encoding="utf-8") as file:
        return file.read().splitlines()


# ---- starting ------------------------------------------------------------------------------------

@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_start_with_closed_descriptors(start, closed):
    """Other files would get their numbers, and what is printed would go to a client or into a file."""
    picker = start(POOL, prefix=("sh", "-c", f'exec "$@" {closed}', "sh"))
    for fd in range(3):
        target = os.readlink(f"/proc/{picker.pid}/fd/{fd}")
        assert target == "/dev/null" or target == picker.log_file, (fd, target)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.pick(INFER) == A
    picker.signal()
    assert picker.wait_exit() == 0


# ---- the pool, again and again -------------------------------------------------------------------

def test_pool_file_is_reloaded(start):
    picker = start(POOL, *QUICK)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        held = proxy.stream(headers(INFER))
        assert endpoint_of(held.next()) == A
        picker.write_pool(f"endpoints: [{B}]\n")
        picker.wait_until(lambda n: n["sluice_pick_pool_generation"] == 2, "the new pool")
        assert {proxy.pick(INFER) for _ in range(20)} == {B}
        numbers = picker.numbers()
        assert numbers["sluice_pick_pool_requests_in_flight"] >= 1  # to the one that has left
        assert f'sluice_pick_requests_in_flight{{endpoint="{A}"}}' not in numbers
        held.reset()
        picker.wait_until(lambda n: n["sluice_pick_pool_requests_in_flight"] == 0, "its end")


def test_pool_invalid_file_keeps_old(start):
    picker = start(POOL, *QUICK)
    picker.expect_error("the previous one stays in use")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        picker.write_pool("endpoints: [nowhere]\n")
        failures = 'sluice_reload_failures_total{files="pool"}'
        picker.wait_until(lambda n: n[failures] == 1, "a failure")
        assert proxy.pick(INFER) == A
        os.unlink(picker.pool_file)
        picker.wait_until(lambda n: n[failures] == 2, "another failure")
        assert proxy.pick(INFER) == A
        picker.write_pool(f"endpoints: [{B}]\n")
        picker.wait_until(lambda n: n["sluice_pick_pool_generation"] == 2, "the new pool")
        assert proxy.pick(INFER) == B


def test_pool_emptied_file_keeps_endpoints(start):
    picker = start(POOL, *QUICK)
    picker.expect_error("endpoints: []")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        picker.write_pool("")
        picker.wait_until(lambda n: n['sluice_reload_failures_total{files="pool"}'] == 1, "a failure")
        assert proxy.pick(INFER) == A
        picker.write_pool("endpoints: []\n")
        picker.wait_until(lambda n: n["sluice_pick_pool_generation"] == 2, "the empty pool")
        picker.write_pool(POOL)
        picker.wait_until(lambda n: n["sluice_pick_pool_generation"] == 3, "the old pool")
        assert proxy.pick(INFER) == A


def test_endpoints_on_command_line(start):
    picker = start("endpoints: []\n", "--endpoint", A, "--endpoint", "[::1]:8000")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert {proxy.pick(INFER) for _ in range(30)} == {A, "[::1]:8000"}


# ---- health --------------------------------------------------------------------------------------

def check(channel, name):
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=http1.PATIENCE).status


def test_health_service_names(start):
    picker = start(POOL, "--health", "127.0.0.1:0")
    apart = [line for line in ready_lines(picker) if line.endswith("/health")]
    apart = apart[0].removeprefix("grpc://").removesuffix("/health")
    for address in (picker.grpc_addresses[0], apart):
        with grpc.insecure_channel(address) as channel:
            for name in ("", "liveness", "readiness", "inference-extension", SERVICE):
                assert check(channel, name) == SERVING, name
            with pytest.raises(grpc.RpcError) as caught:
                check(channel, "nope")
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND
            assert "readiness" in caught.value.details()
    with grpc.insecure_channel(apart) as channel:  # nothing else is there
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream(f"/{SERVICE}/Process")(iter([b""]), timeout=http1.PATIENCE))
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_grpcurl_reflection_health_and_pick(start):
    """Reflection is all that it takes to look around, to ask for health, and for a pick."""
    picker = start(POOL)

    def grpcurl(*args, text=None):
        done = subprocess.run(
            [os.path.join(ROOT, ".deps", "bin", "grpcurl"), "-plaintext", "-max-time", str(http1.PATIENCE),
             *(("-d", text) if text else ()), picker.grpc_addresses[0], *args],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert set(grpcurl("list").split()) == {
        SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection"}
    assert "rpc Process ( stream" in grpcurl("describe", SERVICE)
    assert json.loads(grpcurl("grpc.health.v1.Health/Check", text='{"service": "readiness"}')) == {
        "status": "SERVING"}
    said = json.loads(grpcurl(f"{SERVICE}/Process", text=json.dumps(
        {"requestHeaders": {"endOfStream": True}, "protocolConfig": {}})))
    fields = said["dynamicMetadata"]["fields"]["envoy.lb"]["structValue"]["fields"]
    assert fields["x-gateway-destination-endpoint"] == {"stringValue": A}


def test_drain_waits_for_streams(start):
    """Streams at hand end as they would have; who asks about health is told; then it ends."""
    picker = start(POOL, "--health", "127.0.0.1:0")
    apart = [line for line in ready_lines(picker) if line.endswith("/health")]
    apart = apart[0].removeprefix("grpc://").removesuffix("/health")
    with Proxy(picker.grpc_addresses[0]) as proxy, grpc.insecure_channel(apart) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=http1.PATIENCE)
        assert next(watch).status == SERVING
        stream = proxy.stream(headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"))
        picker.wait_until(lambda n: n["sluice_pick_open_streams"] == 1, "a stream")
        picker.signal()
        assert next(watch).status == NOT_SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        late = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=http1.PATIENCE)
        assert next(late).status == NOT_SERVING
        assert check(channel, "readiness") == NOT_SERVING and check(channel, "liveness") == SERVING
        stream.send(body(b'{"model":"m"}', end=True))
        assert endpoint_of(stream.next()) == A
        stream.send(answer_headers(200))
        assert stream.next().WhichOneof("response") == "request_body"
        assert stream.next().WhichOneof("response") == "response_headers"
        assert picker.process.poll() is None
        stream.reset()
        assert picker.wait_exit() == 0
    assert not os.path.exists(picker.ready_file)


def test_drain_does_not_wait_for_health_watch(start):
    picker = start(POOL, "--drain-timeout", "10m")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stub = health_pb2_grpc.HealthStub(proxy.channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=http1.PATIENCE)
                   for name in ("readiness", "liveness", "nope")]
        first = [next(watch).status for watch in watches]
        assert first == [SERVING, SERVING, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN]
        picker.signal()
        assert next(watches[0]).status == NOT_SERVING
        for watch in watches:
            with pytest.raises(grpc.RpcError) as caught:
                next(watch)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert picker.wait_exit() == 0
    assert "requests in flight are aborted" not in picker.log_text()


def test_drain_timeout_cuts_off_streams(start):
    picker = start(POOL, "--drain-timeout", "200ms")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers(INFER))
        assert endpoint_of(stream.next()) == A
        picker.signal()
        assert picker.wait_exit() == 0
    assert "requests in flight are aborted" in picker.log_text()


def test_kill_and_restart_serves(start):
    """How long that takes is printed, not asserted."""
    picker = start()
    address = picker.grpc_addresses[0]
    with Proxy(address) as proxy:
        stream = proxy.stream(headers(INFER))
        assert endpoint_of(stream.next()) == A
        picker.crash()
        with pytest.raises(grpc.RpcError):
            stream.next()
    began = time.monotonic()
    picker.start(address)
    print(f"back after {1000 * (time.monotonic() - began):.0f} ms")
    with Proxy(address) as proxy:
        assert proxy.pick(INFER) == A


# ---- TLS -----------------------------------------------------------------------------------------

def served_certificate(address):
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


def tls_address(picker):
    (line,) = [line for line in ready_lines(picker) if line.startswith("grpcs://")]
    return line.removeprefix("grpcs://")


def test_tls_self_signed(start):
    picker = start(POOL, "--grpc-tls-self-signed")
    address = tls_address(picker)
    certificate = served_certificate(address)
    with Proxy(address, grpc.ssl_channel_credentials(certificate)) as proxy:
        assert proxy.pick(INFER) == A
    other = start(POOL, "--grpc-tls-self-signed")
    assert served_certificate(tls_address(other)) != certificate


def test_tls_mutual(start, tmp_path):
    ca = Identity("ca", authority=True)
    cert, key = Identity("picker", ca).write(str(tmp_path / "tls"))
    ca_file = ca.write_cert(str(tmp_path / "ca.pem"))
    picker = start(POOL, "--grpc-tls-cert", cert, "--grpc-tls-key", key, "--grpc-tls-client-ca", ca_file)
    client = Identity("proxy", ca)
    known = grpc.ssl_channel_credentials(ca.cert_pem(), pem_of(client.key), client.cert_pem())
    with Proxy(tls_address(picker), known) as proxy:
        assert proxy.pick(INFER) == A
    with Proxy(tls_address(picker), grpc.ssl_channel_credentials(ca.cert_pem())) as proxy:
        with pytest.raises(grpc.RpcError) as caught:
            proxy.pick(INFER)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_tls_self_signed_with_client_ca(start, tmp_path):
    ca = Identity("ca", authority=True)
    ca_file = ca.write_cert(str(tmp_path / "ca.pem"))
    picker = start(POOL, "--grpc-tls-self-signed", "--grpc-tls-client-ca", ca_file)
    client, stranger = Identity("proxy", ca), Identity("stranger")
    address = tls_address(picker)
    with subprocess.Popen(["openssl", "s_client", "-connect", address, "-showcerts"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as shown:
        text = shown.communicate()[0]
    certificate = text[text.index(b"-----BEGIN"):text.index(b"-----END") + 26]
    for who, fits in ((client, True), (stranger, False)):
        known = grpc.ssl_channel_credentials(certificate, pem_of(who.key), who.cert_pem())
        with Proxy(address, known) as proxy:
            if fits:
                assert proxy.pick(INFER) == A
            else:
                with pytest.raises(grpc.RpcError):
                    proxy.pick(INFER)


# ---- elsewhere -----------------------------------------------------------------------------------

def test_listen_unix_socket(start, tmp_path):
    picker = start(POOL, "--grpc", f"unix:{tmp_path}/picker.socket")
    with Proxy(f"unix:{tmp_path}/picker.socket") as proxy:
        assert proxy.pick(INFER) == A
    picker.stop()
    assert not os.path.exists(tmp_path / "picker.socket")


def test_answer_timeout_is_408(start):
    """A proxy in full-duplex mode has no clock of its own."""
    picker = start(POOL + "models: [m]\n", "--answer-timeout", "2s")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"),
                              body(b'{"prompt":"'))
        status, _, text = refusal_of(stream.next())
        assert status == 408 and "--answer-timeout" in text
        assert stream.close() == []
        stream = proxy.stream(headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"),
                              body(b'{"model":"m","prompt":"'))
        assert endpoint_of(stream.next()) == A  # answered: nothing is waited for
        time.sleep(3)  # more than --answer-timeout
        stream.send(body(b'"}', end=True))
        answers = [stream.next().request_body.response.body_mutation.streamed_response for _ in range(2)]
        assert b"".join(part.body for part in answers) == b'{"model":"m","prompt":""}'
        stream.reset()


def test_body_over_limit_is_413(start):
    picker = start(POOL + "models: [m]\n", "--max-body-size", "100KiB")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"))
        stream.send(*[body(b'{"prompt":"' if i == 0 else b"x" * 50_000) for i in range(4)])
        status, _, text = refusal_of(stream.next())
        assert status == 413 and "--max-body-size" in text
        assert stream.close() == []


def test_content_length_over_limit_is_413(start):
    """A body that is to come whole is refused by its length: as one message it might be more than gRPC takes."""
    picker = start(POOL + "models: [m]\n", "--max-body-size", "100KiB")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for config in ("BUFFERED NONE", "NONE NONE"):
            status, _, text = proxy.refuse("/v1/completions", config=config,
                                           fields={"content-length": "2000000"})
            assert status == 413 and "--max-body-size" in text and "2000000" in text
        assert proxy.pick("/v2/models/m/infer", config="BUFFERED NONE",
                          fields={"content-length": "2000000"}) == A


@pytest.mark.parametrize("config", ["BUFFERED NONE", "NONE NONE", "FULL_DUPLEX_STREAMED NONE"])
def test_message_over_limit_is_413(start, config):
    """More than gRPC takes is told to the client all the same: a proxy that fails open would let it pass."""
    picker = start(POOL + "models: [m]\n", "--max-body-size", "100KiB")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers("/v1/completions", config=config))
        if not config.startswith("FULL"):
            assert stream.next().WhichOneof("response") == "request_headers"
        stream.send(body(b'{"model":"m","prompt":"' + b"x" * 2_000_000, end=True))
        status, _, text = refusal_of(stream.next())
        assert status == 413 and "--max-body-size" in text
        assert stream.close() == []
        stream = proxy.stream(headers("/v2/models/m/infer", config=config))
        assert endpoint_of(stream.next()) == A
        stream.send(body(b"x" * 2_000_000, end=True))  # nothing is said of what nobody looks into
        with pytest.raises(grpc.RpcError) as caught:
            stream.next()
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        picker.wait_at_rest()


def test_body_small_pieces_bound_memory(start):
    """A body in pieces of a byte costs what its bytes cost, and a little."""
    picker = start(POOL + "models: [m]\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"))
        n = 1_000  # each is a message of its own, which takes a busy machine some milliseconds
        stream.send(*[body(b" ") for _ in range(n)])
        held = picker.wait_until(lambda now: now["sluice_pick_held_bytes"] == n, "all of it")
        assert held["sluice_arenas"] < n / 8  # each is of some KiB; a message has one of its own
        stream.send(body(b'{"model":"m"}', end=True))
        assert endpoint_of(stream.next()) == A
        parts = [said.request_body.response.body_mutation.streamed_response for said in stream.close()]
        assert b"".join(part.body for part in parts) == b" " * n + b'{"model":"m"}'


def test_debug_state_and_metrics(start):
    picker = start(POOL + "models: [m]\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"))
        def look():
            return http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()
        # A stream is open a moment before its headers are there.
        waits = "POST /v1/completions, waiting for the model's name in the body"
        picker.wait_for(lambda: waits in look(), "a stream")
        state = look()
        assert f"endpoint {A}: ready, 0 in flight, 0 picks" in state
        assert "grpc: 1 request in flight" in state
        picker.signal(signal.SIGUSR2)
        picker.wait_for(lambda: f"endpoint {A}: ready" in picker.log_text(), "the state in the log")
        stream.reset()
    assert "/debug/pick" in http1.request(picker.metrics_address, "GET", "/").body.decode()
    answer = http1.request(picker.metrics_address, "GET", "/debug/nope")
    assert answer.status == 404
    assert json.loads(answer.body)["error"].endswith("; there are /, /metrics, /status.json, /debug/state and /debug/pick")
    assert http1.request(picker.metrics_address, "POST", "/metrics").status == 405


def test_explain_equals_debug_page(start):
    """The running picker and the command say the same of a pool at rest."""
    picker = start(f"endpoints: [{A}, {B}]\nmodels: [m]\n")
    for query, flags, says in [
            ("path=/v2/models/m/infer", ["--path", "/v2/models/m/infer"], "m, from the path"),
            ("path=%2Fv1%2Fcompletions&model=m", ["--path", "/v1/completions", "--model", "m"],
             "m, from the body"),
            ("path=/v1/completions&model=n", ["--path", "/v1/completions", "--model", "n"],
             "refused with 404 (gRPC: 5) UNKNOWN_MODEL"),
            (f"path=/&subset={B},x", ["--path", "/", "--subset", f"{B},x"], f"outcome     {B}\n"),
            ("subset=", ["--subset", ""], "refused with 503 (gRPC: 14) NO_ENDPOINT"),
            ("method=GET&path=/&selection=10.0.0.1",
             ["--method", "GET", "--path", "/", "--selection", "10.0.0.1"], f"outcome     {A}\n")]:
        answer = http1.request(picker.metrics_address, "GET", f"/debug/pick?{query}")
        assert answer.status == 200 and says in answer.body.decode(), query
        done = run("pick", "--config", picker.pool_file, "--explain", *flags)
        assert done.stdout == answer.body.decode() and done.stderr == ""
        assert done.returncode == (1 if "refused with" in done.stdout else 0)
    answer = http1.request(picker.metrics_address, "GET", "/debug/pick?pfad=/")
    assert answer.status == 400 and "pfad" in json.loads(answer.body)["error"]


def test_metrics_each_name_is_documented(start):
    picker = start()
    with open(os.path.join(ROOT, "docs", "observability.md"), encoding="utf-8") as file:
        text = file.read()
    explained = set(re.findall(r"`((?:nv|sluice|process|inference|llm_d)_[a-z0-9_]+)[`{]", text))
    _, _, table = text.partition("| metric `llm_d_epp_…` |")  # whose rows leave the prefix out
    for row in table.partition("\n\n")[0].splitlines()[2:]:
        explained |= {"llm_d_epp_" + name for name in re.findall(r"`([a-z0-9_]+)[`{]", row.split(" | ")[0])}
    page = http1.request(picker.metrics_address, "GET", "/metrics").body.decode()
    names = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))
    assert names - explained == set()
    assert {name for name in explained if name.startswith("sluice_pick_")} - names == set()


def test_log_lines_per_level(start):
    """A line for each pick at the level debug; for refusals at info, as many a second as one can read, and
    all of them at debug."""
    pool = f"endpoints: [{A}]\nmodels: [{{name: m, targets: [{{model: n}}]}}]\n"
    picker, talker = start(pool), start(pool, "--log-level", "debug")
    for one in (picker, talker):
        with Proxy(one.grpc_addresses[0]) as proxy:
            assert proxy.pick("/v2/models/m/infer") == A
            for _ in range(100):
                assert proxy.refuse("/v2/models/nope/infer")[0] == 404
    lines = talker.log_lines()
    (picked,) = [line for line in lines if line["event"] == "picked"]
    assert picked["request"] == "POST /v2/models/m/infer" and picked["level"] == "debug"
    assert (picked["model"], picked["as"], picked["endpoint"], picked["in_flight"]) == ("m", "n", A, 1)
    assert len([line for line in lines if line["event"] == "refused"]) == 100
    assert "picked" not in picker.log_text()
    refused = [line for line in picker.log_lines() if line["event"] == "refused"]
    assert 1 <= len(refused) < 100 and refused[0]["level"] == "info"
    assert refused[0]["status"] == 404 and "nope" in refused[0]["reason"]


def test_explain_does_not_check_health(tmp_path):
    pool = tmp_path / "pool.yaml"
    pool.write_text(f"endpoints: [{A}]\nhealth: {{tcp: true}}\n")
    done = run("pick", "--config", pool, "--explain")
    assert done.returncode == 0 and f"outcome     {A}\n" in done.stdout
    assert done.stdout.startswith("note        health is not checked here")


# ---- starts that fail ----------------------------------------------------------------------------

@pytest.mark.parametrize("args, says", [
    ([], "nothing to pick from: give --endpoint IP:PORT"),
    (["--endpoint", "model-server"], "expected IP:PORT"),
    (["--endpoint", A, "--gprc", ":1"], "did you mean --grpc?"),
    (["--endpoint", A, "--model", "m"], "it needs --explain"),
    (["--endpoint", A, "--grpc", "grpcs://127.0.0.1:0"], "TLS needs --grpc-tls-cert FILE"),
    (["--endpoint", A, "--grpc-tls-cert", "x"], "--grpc-tls-cert needs --grpc-tls-key FILE"),
    (["--endpoint", A, "--grpc-tls-self-signed", "--grpc-tls-key", "x"], "no --grpc-tls-key"),
    (["--endpoint", A, "--health", "nowhere"], "--health"),
    (["--endpoint", A, "--check", "--explain"], "one of them"),
    (["--endpoint", A, "--port", "9002"], "write --grpc HOST:PORT"),
])
def test_start_usage_errors(args, says):
    done = run("pick", *args)
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr and "Try: sluice pick --help" in done.stderr


@pytest.mark.parametrize("args, says", [
    (["--config", "/nonexistent/pool.yaml"], "/nonexistent/pool.yaml: No such file"),
    (["--endpoint", A, "--grpc-tls-cert", "/nonexistent", "--grpc-tls-key", "/nonexistent"],
     "--grpc-tls-cert /nonexistent"),
])
@pytest.mark.parametrize("check_only", [False, True])
def test_start_unreadable_file_fails(args, says, check_only):
    done = run("pick", *args, "--grpc", "127.0.0.1:0", "--metrics", "none",
               *(["--check"] if check_only else []))
    assert done.returncode == 1 and says in done.stderr


def test_start_address_in_use_fails(start):
    picker = start()
    taken = picker.grpc_addresses[0]
    for flag, address in (("--grpc", taken), ("--health", taken), ("--metrics", taken)):
        others = [("--grpc", "127.0.0.1:0"), ("--metrics", "none")]
        flags = [part for one in others if one[0] != flag for part in one] + [flag, address]
        done = run("pick", "--endpoint", A, *flags)
        assert done.returncode == 1 and f"{flag} {taken}: " in done.stderr, done.stderr
    with Proxy(taken) as proxy:
        assert proxy.pick(INFER) == A


def test_check_prints_configuration(tmp_path):
    pool = tmp_path / "pool.yaml"
    pool.write_text(f"endpoints: [{A}]\nmodels: [digits]\n")
    done = run("pick", "--config", pool, "--check")
    assert done.returncode == 0 and done.stderr == "" and A in done.stdout and "digits" in done.stdout
    pool.write_text("endpoint: [1]\n")
    done = run("pick", "--config", pool, "--check")
    assert done.returncode == 1 and f"{pool}:1: " in done.stderr and "endpoints" in done.stderr
    assert done.stdout == ""


def test_start_failure_is_logged():
    done = subprocess.run([binary(), "pick", "--config", "/nonexistent", "--log-format", "json"],
                          stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and json.loads(done.stderr)["event"] == "cannot pick"


def cpu_ns(picker):
    """Name of a thread → nanoseconds that it has run, of those with one thread of the name."""
    found = {}
    folder = f"/proc/{picker.pid}/task"
    for thread in os.listdir(folder):
        with open(f"{folder}/{thread}/comm", encoding="ascii") as name, \
                open(f"{folder}/{thread}/schedstat", encoding="ascii") as times:
            found["main" if int(thread) == picker.pid else name.read().strip()] = int(times.read().split()[0])
    return found


def test_pages_of_many_endpoints_do_not_run_on_main_thread(start):
    """A page of 10,000 endpoints takes 20 to 50 milliseconds, in which the main thread accepts no connection."""
    picker = start("endpoints:\n" + "".join(f"- 10.0.{n >> 8}.{n & 255}:80\n" for n in range(2000)))
    before = cpu_ns(picker)
    for path in ("/metrics", "/status.json", "/debug/state") * 3:
        assert http1.request(picker.metrics_address, "GET", path).status == 200
    after = cpu_ns(picker)
    assert after["main"] - before["main"] < (after.get("admin", 0) - before.get("admin", 0)) / 4
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.pick().startswith("10.0.")

"""What goes wrong on purpose between a real Envoy, the real picker and the servers behind: each is killed and
comes back while requests come. Afterwards nothing is in flight at the picker."""
import contextlib

import pytest

from lib import echo
from lib.gateway import IN_PROCESS, Gateway, override_host_in_process
from lib.load import Load

pytestmark = pytest.mark.plain

OPEN = ("headers-only.yaml", "model-in-body.yaml", "buffered.yaml", "override-host.yaml")
CLOSED = ("headers-only-closed.yaml", "metadata.yaml", "full-duplex.yaml", IN_PROCESS)
BODY = b'{"model": "digits"}'
HEADERS = 'sluice_pick_responses_total{headers="%s"}'


@pytest.fixture
def echoes():
    with echo.three() as started:
        yield started


@pytest.fixture
def start(tmp_path, echoes):
    """start(config, …): a gateway of the test's own in front of the three."""
    with contextlib.ExitStack() as ending:
        def begin(config, endpoints=None, **more):
            gateway = Gateway(tmp_path, config, endpoints or [one.address for one in echoes], **more)
            ending.callback(gateway.kill)
            begin.gateway = gateway
            return gateway
        yield begin
        begin.gateway.stop()


# ---- servers -------------------------------------------------------------------------------------

def serve_without_first(start, echoes, fallback, config):
    """The first server is away, and the pool has no checks: a request that it was picked for is served by
    another, and tells the picker so. Without a fallback the module names the endpoint by itself, and the cluster's policy must
    not name it again. Returns: the gateway."""
    def more(text):
        if config == IN_PROCESS:
            text = override_host_in_process(text, [one.address for one in echoes])
            text = text.replace("- header: x-gateway-destination-endpoint", "- header: x-unused") if fallback == "none" else text
        return text
    gateway = start(config, pool="pool-fallback.yaml", change=lambda pool: pool.replace(
        "fallback: key", f"fallback: {fallback}") + "refused_for: 1m\n",
        more=more)
    away = echoes[0].address
    echoes[0].close()
    assert {gateway.ask("/")["server"] for _ in range(40)} == {"b", "c"}
    numbers = gateway.picker.numbers()
    assert numbers["sluice_pick_moved_total"] == gateway.picker.picks()[away] == 1
    assert numbers["sluice_pick_connections_refused_total"] == 1
    return gateway


@pytest.mark.parametrize("config", ["override-host.yaml", IN_PROCESS])
@pytest.mark.parametrize("fallback", ["key", "list"])
def test_envoy_fallback_serves_after_server_exit(start, echoes, fallback, config):
    gateway = serve_without_first(start, echoes, fallback, config)
    assert gateway.envoy.counter("cluster.models.upstream_rq_retry_success") == 1
    assert gateway.envoy.counter("cluster.models.upstream_rq_retry") == 1


@pytest.mark.parametrize("config", ["override-host.yaml", IN_PROCESS])
def test_envoy_own_fallback_tells_picker_of_server_exit(start, echoes, config):
    """No second choice of the picker's: Envoy's fallback_policy serves, after one or two attempts."""
    serve_without_first(start, echoes, "none", config)


@pytest.mark.parametrize("config, attributes", [
    ("full-duplex.yaml", "response.flags, response.code_details"), ("full-duplex.yaml", "response.flags"), (IN_PROCESS, "")])
def test_envoy_refusing_endpoint_is_last_choice(start, echoes, config, attributes):
    """Without checks: the picker is told of a refused connection, which is one lost request
    and not a third of them."""
    gateway = start(config, change=lambda pool: pool + "refused_for: 1m\n", more=lambda text: text.replace(
        "response.flags, response.code_details", attributes))
    echoes[0].close()
    statuses = [gateway.curl("/").status for _ in range(60)]
    assert statuses.count(503) <= 1 and set(statuses) <= {200, 503}
    refused = gateway.picker.numbers()["sluice_pick_connections_refused_total"]
    assert refused == statuses.count(503)
    gateway.picker.wait_until(lambda now: now[HEADERS % "yes"] == 60, "the headers of all responses")


def test_envoy_without_headers_of_responses_is_shown(start):
    """With response_header_mode: SKIP the picker learns nothing of its endpoints."""
    gateway = start("headers-only.yaml", more=lambda text: text.replace(
        "response_header_mode: SEND", "response_header_mode: SKIP"))
    assert [gateway.curl("/").status for _ in range(5)] == [200] * 5
    numbers = gateway.picker.wait_until(lambda now: now[HEADERS % "no"] == 5, "responses without headers")
    assert numbers[HEADERS % "yes"] == 0


@pytest.mark.parametrize("config", ["full-duplex.yaml", IN_PROCESS])
def test_envoy_vanished_endpoint_is_last_choice(start, echoes, config):
    """Its machine has gone, so that nothing refuses: the connection is not made in time."""
    with contextlib.closing(echo.Blackhole()) as gone:
        gateway = start(config, endpoints=[gone.address, *(one.address for one in echoes[1:])],
                        change=lambda pool: pool + "refused_for: 1m\n", connect_timeout="1s")
        statuses = [gateway.curl("/").status for _ in range(40)]
        assert statuses.count(503) <= 1 and set(statuses) <= {200, 503}
        refused = gateway.picker.numbers()["sluice_pick_connections_refused_total"]
        assert refused == statuses.count(503)


@pytest.mark.parametrize("config", [*OPEN, *CLOSED])
def test_envoy_server_exit_loses_no_request(start, echoes, config):
    """Once the picker knows, no request fails; when the server is back it gets its share again."""
    gateway = start(config, checked=True)
    with Load(gateway.address, method="POST", path="/v1/completions", body=BODY) as load:
        load.wait_more(50, 200)
        echoes[0].close()
        gateway.picker.wait_ready_endpoints(2)
        load.clear()
        load.wait_more(100)
        assert set(load.outcomes) == {200}
        echoes[0] = echo.Echo("a", echoes[0].address)
        gateway.picker.wait_ready_endpoints(3)
        before = echoes[0].n_requests
        load.wait_more(100)
        assert set(load.outcomes) == {200}
    assert echoes[0].n_requests > before


def test_envoy_failing_server_is_ejected(start, echoes):
    """A server answers 500 at once while its health says 200. It gets the five requests that eject it, then
    one after each ejection; once it is well it gets its share again."""
    gateway = start("model-in-body.yaml", checked=True, change=lambda pool: pool + (
        "outlier_detection: {base_ejection_time: 200ms, max_ejection_time: 200ms}\n"))
    address, ask = echoes[0].address, {"method": "POST", "path": "/v1/completions", "body": BODY}
    echoes[0].status = "500"
    with Load(gateway.address, n_clients=1, **ask) as load:
        load.wait_more(300)
    numbers = gateway.picker.numbers()
    assert load.outcomes[500] == 4 + numbers["sluice_pick_ejections_total"]
    assert set(load.outcomes) == {200, 500}
    warned = [line for line in gateway.picker.log_lines() if line["event"] == "endpoint ejected"]
    assert warned[0]["endpoint"] == address and warned[0]["reason"] == "consecutive_5xx"
    echoes[0].status = "200"
    with Load(gateway.address, n_clients=1, **ask) as load:
        gateway.picker.wait_until(lambda _: any(
            line["event"] == "endpoint recovered after an ejection" for line in gateway.picker.log_lines()),
            "a recovery")
        before = echoes[0].n_requests
        load.wait_more(60)
    assert set(load.outcomes) == {200}
    assert echoes[0].n_requests >= before + 5
    assert gateway.picker.numbers()[f'sluice_pick_endpoint_ejected{{endpoint="{address}"}}'] == 0


@pytest.mark.parametrize("config, status", [
    *(("full-duplex.yaml", status) for status in ("404", "403", "401", "429", "500", "503")),
    *((config, "500") for config in (*OPEN, *CLOSED) if config != "full-duplex.yaml")])
def test_envoy_fast_failures_do_not_attract(start, echoes, config, status):
    """One of three answers so at once, and health checks with 200. It gets some requests at first, and at most one
    trial for each 64 picks; a third of them would be its share."""
    gateway = start(config, checked=True)
    echoes[0].status = status
    with Load(gateway.address, n_clients=8, method="POST", path="/v1/completions", body=BODY) as load:
        load.wait_more(800)
    n_bad = load.outcomes[int(status)]
    assert set(load.outcomes) == {200, int(status)}
    assert n_bad <= 30 + sum(load.outcomes.values()) // 64


@pytest.mark.parametrize("status", ["500", "503"])
def test_envoy_failure_of_all_servers_takes_no_capacity_away(start, echoes, status):
    """All three fail at the same time, then are well: none is ejected, and all serve again. One that still fails when
    another is well already sheds alone, and is tried again a second later."""
    gateway = start("full-duplex.yaml", checked=True)
    with Load(gateway.address, n_clients=6, method="POST", path="/v1/completions", body=BODY) as load:
        load.wait_more(60)
        for one in echoes:
            one.status = status
        load.wait_more(200)
        for one in echoes:
            one.status = "200"
        load.wait_more(100, 200)
        before = [one.n_requests for one in echoes]
        load.clear()
        gateway.picker.wait_until(lambda _: all(one.n_requests >= n + 50 for one, n in zip(echoes, before)),
                                  "50 more requests at each server")
        assert set(load.outcomes) == {200}
    numbers = gateway.picker.numbers()
    assert numbers["sluice_pick_ejections_total"] == 0
    assert numbers['sluice_pick_pool_endpoints{state="ready"}'] == 3


@pytest.mark.parametrize("retry_on, wish", [
    ("retriable-status-codes", "status=429"), ("retriable-status-codes", "status=500"), ("5xx", "status=500"),
    ("5xx", "close"), ("reset", "close")])
@pytest.mark.parametrize("config", ["override-host.yaml", IN_PROCESS])
def test_envoy_retried_request_marks_no_server_refused(start, echoes, retry_on, wish, config):
    """bug-N3: Envoy tries a request again, at each of the servers, because of how they answer it or that they close its
    connection: the picker concludes nothing."""
    gateway = start(config, checked=True, pool="pool-fallback.yaml", more=lambda text: (
        override_host_in_process(text, [one.address for one in echoes]) if config == IN_PROCESS else text).replace(
        'retry_on: "connect-failure,refused-stream"',
        f'retry_on: "connect-failure,refused-stream,{retry_on}", retriable_status_codes: [429, 500]'))
    status = int(wish.partition("=")[2] or 503)
    for _ in range(10):
        assert gateway.curl("/", "-H", f"x-answer: {wish}").status == status
    assert gateway.envoy.counter("cluster.models.upstream_rq_retry") >= 10
    numbers = gateway.picker.numbers()
    assert numbers["sluice_pick_connections_refused_total"] == 0
    assert numbers['sluice_pick_pool_endpoints{state="refused"}'] == 0
    assert {gateway.ask("/")["server"] for _ in range(40)} == {"a", "b", "c"}


# ---- the picker ----------------------------------------------------------------------------------

@pytest.mark.parametrize("config", OPEN)
def test_envoy_fail_open_serves_without_picker(start, config):
    """Killed under load and started again: no request is lost."""
    gateway = start(config, checked=True)
    with Load(gateway.address, method="POST", path="/v1/completions", body=BODY) as load:
        load.wait_more(50, 200)
        gateway.picker.crash()
        load.wait_more(100)
        gateway.picker.start(gateway.places["127.0.0.1:9002"])
        load.wait_more(100)
    assert set(load.outcomes) == {200}
    assert gateway.picker.numbers()["sluice_pick_streams_total"] > 0
    assert gateway.envoy.counter("http.inference.ext_proc.failure_mode_allowed") >= 100 - 8
    if config != "override-host.yaml":  # which has no routes of their own for them
        assert gateway.envoy.counter("cluster.any.upstream_rq_total") >= 100 - 8


@pytest.mark.parametrize("config", CLOSED[:-1])
def test_envoy_fail_closed_errors_without_picker(start, config):
    """Errors while it is away, and none once it is back. Which, is Envoy's in full duplex."""
    error = 500 if config == "full-duplex.yaml" else 503
    gateway = start(config)
    with Load(gateway.address, method="POST", path="/v1/completions", body=BODY) as load:
        load.wait_more(50, 200)
        gateway.picker.crash()
        load.wait_more(50, error)
        gateway.picker.start(gateway.places["127.0.0.1:9002"])
        load.clear()
        load.wait_more(100)
        assert set(load.outcomes) == {200}


@pytest.mark.parametrize("config", OPEN)
def test_envoy_fail_open_ignores_client_destination(start, config):
    gateway = start(config)
    gateway.picker.crash()
    with contextlib.closing(echo.Echo("outside")) as outside:
        for _ in range(5):
            answer = gateway.ask("/", "-H", f"x-gateway-destination-endpoint: {outside.address}")
            assert answer["server"] in ("a", "b", "c")
        assert outside.n_requests == 0
    gateway.picker.start(gateway.places["127.0.0.1:9002"])


# ---- Envoy ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("config", [*OPEN, *CLOSED[:-1]])
def test_envoy_exit_ends_picker_streams(start, config):
    """Killed with requests in flight: their streams end at the picker, and the next Envoy is served."""
    gateway = start(config)
    slow = {"x-answer": "pause"}
    with Load(gateway.address, 4, "POST", "/v1/completions", BODY, slow):
        gateway.picker.wait_streams(4)
        gateway.envoy.kill()
        gateway.picker.wait_at_rest()
        gateway.restart_envoy()
        gateway.picker.wait_streams(4)
        gateway.envoy.kill()
    gateway.restart_envoy()
    assert gateway.curl("/", body=BODY).status == 200


# ---- the pool ------------------------------------------------------------------------------------

@pytest.mark.parametrize("config", [*OPEN, *CLOSED])
def test_envoy_pool_change_loses_no_request(start, echoes, config):
    """An endpoint leaves the file and comes back while requests come: none is lost."""
    gateway = start(config, args=["--reload-interval", "50ms"])
    whole = open(gateway.picker.pool_file, encoding="utf-8").read()
    with Load(gateway.address, method="POST", path="/v1/completions", body=BODY) as load:
        for _ in range(3):
            gateway.picker.write_pool(whole.replace(f"  - {echoes[0].address}\n", ""))
            gateway.picker.wait_ready_endpoints(2)
            load.wait_more(20)
            gateway.picker.write_pool(whole)
            gateway.picker.wait_ready_endpoints(3)
            load.wait_more(20)
    assert set(load.outcomes) == {200}

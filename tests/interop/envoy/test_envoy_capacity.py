"""A pool keeps its capacity while a client, a server or the load misbehaves: a real Envoy, the real picker and three
servers. Requests are counted, not timed; those that are to take long wait for the test (`pause`)."""
import collections
import contextlib
import glob
import os
import time

import pytest
import yaml

from lib import echo, http1
from lib.gateway import IN_PROCESS, Gateway
from lib.load import Load
from lib.server import ROOT

pytestmark = pytest.mark.plain

EVERY = sorted(path for path in (*glob.glob(os.path.join(ROOT, "deploy", "envoy", "*.yaml")),
                                 os.path.join(ROOT, "deploy", "kubernetes", "envoy-sidecar", "envoy.yaml"))
               if not os.path.basename(path).startswith("pool"))
POST = {"method": "POST", "path": "/v1/completions"}
BODY = b'{"model": "digits"}'
LONG_PROMPT = b'{"model": "digits", "prompt": "%s"}' % (b"You are a helpful assistant. " * 300)
PAUSE = {"x-answer": "pause"}
EJECTIONS = "sluice_pick_ejections_total"
IN_FLIGHT = 'sluice_pick_endpoint_requests_in_flight{endpoint="%s"}'
SCRAPED = "metrics: {preset: vllm, interval: 50ms}\n"
PROMPT_FIRST = """profile:
  plugins:
    - {type: queue-scorer}
    - {type: prefix-cache-scorer, name: prompt, parameters: {blockSize: 128}}
  schedulingProfiles:
    - {name: default, plugins: [{pluginRef: prompt, weight: 3}, {pluginRef: queue-scorer, weight: 2}]}
"""
UPSTREAM = """profile:
  plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}]
  schedulingProfiles:
    - name: default
      plugins:
        - {pluginRef: queue-scorer, weight: 2}
        - {pluginRef: kv-cache-utilization-scorer, weight: 2}
        - {pluginRef: prefix-cache-scorer, weight: 3}
"""


@pytest.fixture
def echoes():
    with echo.three() as started:
        yield started


@pytest.fixture(params=["full-duplex.yaml", IN_PROCESS])
def start(request, tmp_path, echoes):
    """start(…): a gateway in front of the three. It ends well, with nothing in flight."""
    with contextlib.ExitStack() as ending:
        def begin(config=request.param, endpoints=None, more_of_pool="", fourth="", **more):
            gateway = Gateway(tmp_path, config, endpoints or [one.address for one in echoes],
                              change=lambda pool: pool.replace("endpoints:\n", "endpoints:\n" + fourth) + more_of_pool,
                              **more)
            ending.callback(gateway.kill)
            started.append(gateway)
            return gateway
        started = []
        yield begin
        for gateway in started:
            gateway.stop()


@contextlib.contextmanager
def held(gateway, echoes, n, body=BODY, among=None, before_next=None):
    """`n` requests that wait at the servers until the end. They come at once, or one after the other, each when
    `before_next` is true of the picker's numbers. Yields: how many of them each server has."""
    loads = [Load(gateway.address, 1, body=body, headers=PAUSE, **POST) for _ in range(n)]
    among = among or echoes
    try:
        for i, load in enumerate(loads):
            load.threads[0].start()
            if before_next:
                gateway.picker.wait_until(lambda now, i=i: sum(one.n_now for one in among) == i + 1 and before_next(now),
                                          f"request {i} at a server, and its load")
        gateway.picker.wait_until(lambda now: now["sluice_pick_pool_requests_in_flight"] == n, f"{n} in flight")
        gateway.picker.wait_until(lambda _: sum(one.n_now for one in among) == n, f"{n} at the servers")
        yield [one.n_now for one in echoes]
    finally:
        for load in loads:
            load.ending = True
        let_go(echoes, [load.threads[0] for load in loads if load.threads[0].ident])
    assert sum((load.outcomes for load in loads), collections.Counter())[200] == n


def let_go(echoes, threads):
    """Until all of these requests have ended."""
    for thread in threads:
        while thread.is_alive():
            for one in echoes:
                one.let_go()
            thread.join(0.02)


def expect_all_serve(gateway, echoes):
    """No request fails, and each of the three gets its part: one that was avoided by a trial, a second after its last
    failure, however many requests a machine serves in that time."""
    before = [one.n_requests for one in echoes]
    with Load(gateway.address, 6, body=BODY, **POST) as load:
        for _ in range(1000):
            load.wait_more(100)
            more = [one.n_requests - n for one, n in zip(echoes, before)]
            if min(more) >= 50:
                break
    assert set(load.outcomes) == {200}, load.outcomes
    assert min(more) >= 50, more


# ---- a client ------------------------------------------------------------------------------------

@pytest.mark.parametrize("wish, status", [("status=500", 500), ("status=504", 504), ("close", 503)])
def test_envoy_client_whose_requests_fail_ejects_none(start, echoes, wish, status):
    """bug-N1: the answers of the others take long, as those of language models do: none comes between the failures
    of this client, which the servers answer at once, or by closing its connection."""
    gateway = start(checked=True)
    with held(gateway, echoes, 12):
        for _ in range(40):
            assert gateway.curl("/v1/completions", "-H", f"x-answer: {wish}", body=BODY).status == status
        assert gateway.picker.numbers()[EJECTIONS] == 0
    expect_all_serve(gateway, echoes)


def test_envoy_known_client_whose_requests_fail_ejects_none(start, echoes):
    """The same among quick answers, by a client that its proxy names."""
    gateway = start(checked=True)
    poison = {"x-answer": "status=500", "x-forwarded-for": "203.0.113.7"}
    with Load(gateway.address, 1, body=BODY, headers={"x-forwarded-for": "203.0.113.8"}, **POST) as good, \
            Load(gateway.address, 4, body=BODY, headers=poison, **POST) as bad:
        bad.wait_more(600)
        good.wait_more(20)
    assert set(bad.outcomes) == {500} and set(good.outcomes) == {200}
    assert gateway.picker.numbers()[EJECTIONS] == 0


# ---- servers -------------------------------------------------------------------------------------

def test_envoy_refusal_of_all_servers_takes_no_capacity_away(start, echoes):
    """bug-N7: all refuse connections for a while, and the pool has no health checks."""
    gateway = start(more_of_pool="refused_for: 1h\n")
    for one in echoes:
        one.close()
    with Load(gateway.address, 6, body=BODY, **POST) as load:
        load.wait_more(100, 503)
        for i, one in enumerate(echoes):
            echoes[i] = echo.Echo(one.name, one.address)
        load.wait_more(10, 200)
    assert set(load.outcomes) == {200, 503}
    expect_all_serve(gateway, echoes)
    assert gateway.picker.numbers()[EJECTIONS] == 0


def test_envoy_servers_that_shed_are_not_ejected(start, echoes):
    """bug-N7b: each takes four requests and answers 503 to all others. Once there is room, all of them serve."""
    gateway = start(checked=True)
    for one in echoes:
        one.sheds_from = 4
    with held(gateway, echoes, 12) as n_there:
        assert n_there == [4, 4, 4]
        for _ in range(60):
            assert gateway.curl("/v1/completions", body=BODY).status == 503
    for one in echoes:
        one.sheds_from = None
    expect_all_serve(gateway, echoes)
    assert gateway.picker.numbers()[EJECTIONS] == 0


def test_envoy_ejected_server_is_tried_before_requests_wait(start, echoes):
    """bug-N7c: the others are full, and there is a queue."""
    gateway = start(checked=True, more_of_pool=(
        "saturation: {max_in_flight: 1}\nflow_control: {max_wait: 15s}\n"
        "outlier_detection: {base_ejection_time: 1h, max_ejection_time: 1h}\n"))
    echoes[0].status = "500"
    with Load(gateway.address, 1, body=BODY, **POST):
        gateway.picker.wait_until(lambda now: now[EJECTIONS] == 1, "an ejection")
    gateway.picker.wait_until(lambda now: now["sluice_pick_pool_requests_in_flight"] == 0, "nothing in flight")
    echoes[0].status = "200"
    with held(gateway, echoes, 2, among=echoes[1:]) as n_there:
        assert n_there == [0, 1, 1]
        assert gateway.ask("/v1/completions", body=BODY)["server"] == "a"


def test_envoy_trials_of_dead_server_are_one_request_each(start, echoes):
    """bug-N16: a machine that has gone, beside servers with twenty requests in flight each."""
    with contextlib.closing(echo.Blackhole()) as gone:
        gateway = start(endpoints=[gone.address, *(one.address for one in echoes[1:])],
                        more_of_pool="refused_for: 1s\n", connect_timeout="1s")
        while gateway.curl("/v1/completions", body=BODY).status == 200:
            pass
        n_before = gateway.picker.picks()[gone.address]
        with held(gateway, echoes, 40, among=echoes[1:]), Load(gateway.address, 30, body=BODY, **POST) as load:
            load.wait_more(1, 503)
            # One, and perhaps others while this machine did something else.
            assert gateway.picker.picks()[gone.address] - n_before <= 5
            load.ending = True
    assert set(load.outcomes) == {200, 503}


def test_envoy_server_that_hangs_and_looks_idle_gets_no_more(start, echoes):
    """bug-N13: it accepts requests and never answers; its health is well and its page says that nothing runs."""
    gateway = start(checked=True, more_of_pool=SCRAPED + UPSTREAM)
    gateway.picker.wait_loads(3)
    echoes[0].page = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n"
    echoes[0].wish = "silence"
    with Load(gateway.address, 30, body=BODY, **POST) as load:
        try:
            load.wait_more(600, 200)
            assert echoes[0].n_now <= 15
        finally:
            load.ending = True
            let_go(echoes, load.threads)


@pytest.mark.parametrize("n_silent", [1, 3])
def test_envoy_server_without_page_gets_its_share(start, echoes, n_silent):
    """bug-N4: the metrics pages of some of four servers hang. The others say that all of their requests run, and none
    waits."""
    with contextlib.closing(echo.Echo("d")) as fourth:
        servers = [*echoes, fourth]
        for one in servers:
            one.slots = 100
        for one in servers[:n_silent]:
            one.page = None
        gateway = start(n_ready=4, more_of_pool=SCRAPED, fourth=f"  - {{address: {fourth.address}}}\n")
        gateway.picker.wait_loads(4 - n_silent)

        def are_pages_read(now):
            return all(now[f'sluice_pick_endpoint_running_requests{{endpoint="{one.address}"}}'] == one.n_now
                       for one in servers[n_silent:])
        try:
            with held(gateway, servers, 24, before_next=are_pages_read) as n_there:
                assert min(n_there) >= 4 and max(n_there) <= 8, n_there
        finally:
            for one in servers:
                one.page = ""
                one.let_go()
        gateway.picker.wait_at_rest()


# ---- load ----------------------------------------------------------------------------------------

def test_envoy_hot_prompt_does_not_wait(start, echoes):
    """bug-N5: all requests have one prompt, whose affinity weighs more than load does."""
    gateway = start(more_of_pool=SCRAPED + PROMPT_FIRST)
    gateway.picker.wait_loads(3)
    with held(gateway, echoes, 24, LONG_PROMPT) as n_there:
        assert max(n_there) <= 1.25 * 24 / 3 + 2, n_there


def test_envoy_slow_uploads_do_not_make_a_server_slow(start, echoes):
    """bug-N15: requests whose bodies take two seconds to arrive, at the one server that is quick."""
    by_latency = "profile: {plugins: [{type: measured-latency-scorer}, {type: %s}]}\n"
    gateway = start(more_of_pool=by_latency % "random-picker", args=["--reload-interval", "50ms"])
    for one in echoes[1:]:
        one.work_s = 0.5
    with Load(gateway.address, 6, body=BODY, **POST) as load:
        while min(one.n_requests for one in echoes) < 10:
            load.wait_more(1)
    before = gateway.picker.numbers()["sluice_pick_pool_generation"]
    with open(gateway.picker.pool_file, encoding="utf-8") as file:
        pool = file.read()
    gateway.picker.write_pool(pool.replace("random-picker", "max-score-picker"))
    gateway.picker.wait_until(lambda now: now["sluice_pick_pool_generation"] > before, "the new profile")
    body = BODY + b" " * 20000
    with contextlib.ExitStack() as ending:
        clients = [ending.enter_context(http1.connect(gateway.address)) for _ in range(20)]
        for client in clients:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
                           b"content-length: %d\r\n\r\n%s" % (len(body), body[:-1]))
        gateway.picker.wait_until(lambda now: now["sluice_pick_pool_requests_in_flight"] == 20, "all in flight")
        time.sleep(2)
        for client in clients:
            client.sendall(body[-1:])
        for client in clients:
            with client.makefile("rb") as answer:
                assert answer.read().startswith(b"HTTP/1.1 200 ")
    gateway.picker.wait_at_rest()
    by = [gateway.ask("/v1/completions", body=BODY)["server"] for _ in range(20)]
    assert by.count("a") >= 10, by


def test_envoy_closes_idle_connections_before_servers(start):
    """A request on a connection that the server closes at the same moment is lost: vLLM closes idle ones after 5 s."""
    gateway = start()
    gateway.ask("/v1/completions", body=BODY)
    closed = "cluster.models.upstream_cx_idle_timeout"
    gateway.picker.wait_until(lambda _: gateway.envoy.counter(closed) == 1, "an idle connection that Envoy closed")
    assert gateway.envoy.counter("cluster.models.upstream_cx_destroy_remote") == 0
    gateway.ask("/v1/completions", body=BODY)


# ---- the files -----------------------------------------------------------------------------------

def found_in(tree, key):
    """All values of that key, at any depth."""
    if isinstance(tree, list):
        return [value for item in tree for value in found_in(item, key)]
    if not isinstance(tree, dict):
        return []
    return [value for name, item in tree.items() for value in ([item] if name == key else []) + found_in(item, key)]


@pytest.mark.parametrize("path", EVERY, ids=lambda path: os.path.relpath(path, ROOT))
def test_envoy_file_shows_responses_and_hides_steering_headers(path):
    """bug-N2b: without the responses the picker sees no failure. bug-N9: the headers that choose are not the clients'."""
    with open(path, encoding="utf-8") as file:
        tree = yaml.safe_load(file)
    modes = found_in(tree, "processing_mode")
    assert bool(modes) != ("sluice_envoy" in found_in(tree, "name"))  # the picker in Envoy sees all of a request
    assert all(mode["response_header_mode"] == mode["response_trailer_mode"] == "SEND" for mode in modes)
    for attributes in found_in(tree, "response_attributes"):
        assert set(attributes) >= {"response.flags", "response.code_details", "upstream.address",
                                   "upstream.request_attempt_count"}
    assert len(found_in(tree, "response_attributes")) == len(modes)
    removed = set(found_in(tree, "remove"))
    for header in ("destination-endpoint", "model-name", "model-name-rewrite", "inference-objective",
                   "inference-fairness-id"):
        assert f"x-gateway-{header}" in removed


@pytest.mark.parametrize("path", EVERY, ids=lambda path: os.path.relpath(path, ROOT))
def test_envoy_file_closes_idle_connections_first(path):
    """To servers over HTTP/1.1; those of HTTP/2 say before they close that no further request is taken."""
    with open(path, encoding="utf-8") as file:
        clusters = yaml.safe_load(file)["static_resources"]["clusters"]
    options = [option for cluster in clusters for option in cluster.get("typed_extension_protocol_options", {}).values()]
    over_http1 = [option for option in options if "http_protocol_options" in option["explicit_http_config"]]
    assert over_http1
    for option in over_http1:
        assert option["common_http_protocol_options"]["idle_timeout"] == "4s"

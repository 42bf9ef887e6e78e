"""`sluice pick` with several pools: which of them takes a request, and that each is a pool of its own: its
models, its checks, its loads, its numbers. Pools come and go with the file."""
import json
import subprocess

import pytest

from lib import echo, http1
from lib.gateway import Gateway
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy, answer_headers, body, endpoint_of, headers, refusal_of
from lib.picker import Picker
from lib.server import binary

QUICK = ("--reload-interval", "50ms")
JSON = {"content-type": "application/json"}
GRPC = {"content-type": "application/grpc"}

# Of each pool the one endpoint says by its address which it is.
SEVERAL = """pools:
- name: exact
  match: {authority: chat.example.com}
  endpoints: [10.0.0.1:80]
- name: suffix
  match: {authority: "*.example.com"}
  endpoints: [10.0.0.2:80]
- name: vision
  match: {path_prefix: /vision}
  endpoints: [10.0.0.3:80]
- name: tenant
  match: {header: {name: x-tenant, value: a}}
  endpoints: [10.0.0.4:80]
- name: filter
  match: {metadata: {namespace: my.filter, key: kind, value: picture}}
  endpoints: [10.0.0.5:80]
- name: both
  match: {path_prefix: /vision, header: {name: x-tenant, value: a}}
  endpoints: [10.0.0.6:80]
"""
REST = "- name: rest\n  endpoints: [10.0.0.9:80]\n"


@pytest.fixture
def start(start_picker):
    return lambda pool, *args: start_picker(pool, *QUICK, *args)


def ask(proxy, authority="x", path="/", fields=None, kind=None, **options):
    """One request; `kind` is what a filter says of it. Returns: the answer."""
    message = headers(path, fields={":authority": authority, **(fields or {})}, **options)
    if kind:
        held = message.metadata_context.filter_metadata["my.filter"].fields["kind"]
        held.string_value = kind
    stream = proxy.stream(message)
    said = stream.next()
    stream.reset()
    return said


def number_of(said):
    """Which of the pools above took it."""
    return int(endpoint_of(said).split(":")[0].rpartition(".")[2])


def wait_gone(picker, text):
    picker.wait_until(lambda now: not any(text in name for name in now), f"no series with {text}")


def debug(picker, query):
    answer = http1.request(picker.metrics_address, "GET", f"/debug/{query}")
    return answer.status, answer.body.decode()


# ---- which takes a request -----------------------------------------------------------------------

@pytest.mark.parametrize("request_of, number", [
    ({"authority": "chat.example.com"}, 1),
    ({"authority": "CHAT.example.com:8443"}, 1),
    ({"authority": "other.example.com"}, 2),
    ({"authority": "a.chat.example.com"}, 2),
    ({"authority": "example.com"}, 9),
    ({"path": "/vision"}, 3),
    ({"path": "/vision/v1/completions?x=1"}, 3),
    ({"path": "/visionary"}, 9),
    ({"authority": "chat.example.com", "path": "/vision"}, 1),
    ({"fields": {"x-tenant": "a"}}, 4),
    ({"fields": {"x-tenant": "b"}}, 9),
    ({"fields": {"x-tenant": "a"}, "path": "/vision/x"}, 6),
    ({"kind": "picture"}, 5),
    ({"kind": "text"}, 9),
    ({"kind": "picture", "fields": {"x-tenant": "a"}}, 4),
    ({}, 9),
], ids=str)
def test_pools_most_specific_match_wins(pools_with_rest, request_of, number):
    assert number_of(ask(pools_with_rest, **request_of)) == number


@pytest.fixture(scope="module")
def pools_with_rest(tmp_path_factory):
    with Picker(tmp_path_factory.mktemp("picker"), SEVERAL + REST) as picker:
        with Proxy(picker.grpc_addresses[0]) as proxy:
            yield proxy
        picker.wait_at_rest()


def test_pools_no_match_is_404(start):
    picker = start(SEVERAL)
    text = ("none of the 6 pools matches this request to \"nobody\" (`match` in the picker's "
            "configuration)")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for fields, path, config in ((JSON, "/v2/models/m/infer", "NONE NONE"),
                                     (JSON, "/v1/completions", "FULL_DUPLEX_STREAMED NONE"),
                                     (GRPC, "/inference.GRPCInferenceService/ModelInfer",
                                      "BUFFERED NONE")):
            said = ask(proxy, "nobody", path, fields, config=config)
            status, sent, told = refusal_of(said)
            assert status == 404
            assert sent["x-llm-d-request-dropped-reason"] == "rejected-no-pool"
            if fields is GRPC:
                assert told == text
                assert said.immediate_response.grpc_status.status == 12
            else:
                error = json.loads(told)["error"]
                assert (error["message"] if "v1" in path else error) == text
        assert number_of(ask(proxy, "chat.example.com")) == 1
        told = refusal_of(ask(proxy, "x" * 20000))[2]
        assert len(told) < 400
    picker.wait_at_rest()
    assert picker.numbers()['sluice_errors_total{protocol="pick",reason="NO_POOL"}'] == 4


# ---- each is a pool of its own -------------------------------------------------------------------

def test_pools_models_are_separate(start):
    picker = start("""pools:
- {name: a, match: {authority: a}, endpoints: [10.0.0.1:80], models: [one]}
- {name: b, match: {authority: b}, endpoints: [10.0.0.2:80], models: [{name: two, targets: [{model: new}]}]}
- {name: c, match: {authority: c}, endpoints: [10.0.0.3:80], protocol: {destination_header: x-go}}
""")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert number_of(ask(proxy, "a", "/v2/models/one/infer")) == 1
        assert refusal_of(ask(proxy, "a", "/v2/models/two/infer"))[0] == 404
        assert refusal_of(ask(proxy, "b", "/v2/models/one/infer"))[0] == 404
        said = ask(proxy, "b", "/v2/models/two/infer")
        assert number_of(said) == 2
        assert b"/v2/models/new/infer" in said.SerializeToString()
        assert b"x-go" in ask(proxy, "c", "/v2/models/any/infer").SerializeToString()
        # the body names the model, and the pool is that of the headers
        stream = proxy.stream(headers("/v1/completions", fields={":authority": "a"},
                                      config="BUFFERED NONE"))
        stream.next()
        stream.send(body(b'{"model": "two"}', end=True))
        assert refusal_of(stream.next())[0] == 404
        stream.close()
    picker.wait_at_rest()


def test_pools_health_and_loads_are_separate(start):
    def page(waiting):
        return f'vllm:num_requests_waiting{{engine="0"}} {waiting}\nvllm:num_requests_running 1\n'
    with MetricPages(page(3)) as one, MetricPages("my_queue 5\n") as two:
        gone = echo.Echo()
        gone.close()
        picker = start(f"""pools:
- name: a
  match: {{authority: a}}
  endpoints: ["{one.address}", "{gone.address}"]
  health: {{tcp: true, interval: 100ms}}
  metrics: {{preset: vllm}}
- name: b
  match: {{authority: b}}
  endpoints: ["{one.address}", "{two.address}"]
  metrics: {{rules: {{waiting: my_queue}}}}
- name: c
  endpoints: ["{gone.address}"]
""")

        def waiting(now, pool, server):
            return now.get("sluice_pick_endpoint_waiting_requests"
                           f'{{pool="{pool}",endpoint="{server.address}"}}')
        numbers = picker.wait_until(
            lambda now: waiting(now, "a", one) == 3 and waiting(now, "b", two) == 5, "loads")
        assert waiting(numbers, "b", one) is None  # its page has no such series
        states = {(pool, state): numbers[f'sluice_pick_pool_endpoints{{pool="{pool}",state="{state}"}}']
                  for pool in "abc" for state in ("ready", "not_ready")}
        assert states == {("a", "ready"): 1, ("a", "not_ready"): 1, ("b", "ready"): 2,
                          ("b", "not_ready"): 0, ("c", "ready"): 1, ("c", "not_ready"): 0}
        with Proxy(picker.grpc_addresses[0]) as proxy:
            for _ in range(10):
                assert endpoint_of(ask(proxy, "a")) == one.address
        assert picker.numbers()[
            f'sluice_pick_endpoint_picks_total{{pool="a",endpoint="{one.address}"}}'] == 10
        two.says("my_queue 6\n")
        picker.wait_until(lambda now: waiting(now, "b", two) == 6, "the next load")
        picker.wait_at_rest()


# ---- pools come and go ---------------------------------------------------------------------------

def pool_text(names):
    return "pools:\n" + "".join(
        f"- {{name: {name}, match: {{authority: {name}}}, endpoints: [10.0.0.{number}:80]}}\n"
        for number, name in enumerate(names, 1))


def test_pools_removed_pool_ends_with_last_request(start):
    picker = start(pool_text(["a", "b"]))
    in_flight = 'sluice_pick_pool_requests_in_flight{{pool="{}"}}'.format
    with Proxy(picker.grpc_addresses[0]) as proxy:
        streams = {}
        for name in "ab":
            streams[name] = proxy.stream(headers(fields={":authority": name}))
            endpoint_of(streams[name].next())
        picker.wait_until(lambda now: now[in_flight("a")] == now[in_flight("b")] == 1, "two streams")
        picker.write_pool(pool_text(["b", "c"]))  # a goes, b is another, c comes
        picker.wait_until(lambda now: in_flight("c") in now, "the other file")
        wait_gone(picker, 'pool_generation{pool="a"')
        assert picker.numbers()[in_flight("b")] == 1  # it is the same pool
        assert refusal_of(ask(proxy, "a"))[0] == 404
        assert number_of(ask(proxy, "b")) == 1
        assert number_of(ask(proxy, "c")) == 2
        for stream in streams.values():
            stream.send(answer_headers(end=True))
            assert stream.next().WhichOneof("response") == "response_headers"
            stream.close()
        picker.write_pool(pool_text(["a"]))  # one of the same name, and new
        picker.wait_until(lambda now: now.get(in_flight("a")) == 0, "the third file")
        assert number_of(ask(proxy, "a")) == 1
        picker.write_pool("endpoints: [10.0.0.7:80]\n")  # one for all
        picker.wait_until(lambda now: "sluice_pick_pool_requests_in_flight" in now, "one pool")
        assert number_of(ask(proxy, "a")) == 7
    picker.wait_at_rest()


def test_pools_invalid_file_keeps_pools(start):
    picker = start(pool_text(["a", "b"]))
    failed = 'sluice_reload_failures_total{files="pool"}'
    bad = [(pool_text(["a", "a"]), 'the pool "a" is there twice; the first is in line 2'),
           ("pools:\n- name: x\n- name: y\n", 'the pool "y" is for the same requests as "x" in line 2'),
           ("pools: []\n", "expected a list of pools, got none"),
           ("pools:\n- {name: x, endpoints: [y]}\n", '(in the pool \\"x\\")')]
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for number, (text, _) in enumerate(bad, 1):
            picker.write_pool(text)
            picker.wait_until(lambda now, n=number: now[failed] == n, "a failure")
            assert number_of(ask(proxy, "b")) == 2
    log = picker.log_text()
    for _, message in bad:
        assert message.replace('"', '\\"').replace('\\\\"', '\\"') in log
    picker.expected_errors = ["pool configuration invalid"]
    picker.wait_at_rest()


# ---- looking at it -------------------------------------------------------------------------------

def test_pools_debug_pages(start):
    picker = start(SEVERAL + REST)
    status, state = debug(picker, "state")
    assert status == 200
    assert "pool exact generation 1: 1 endpoints, 1 ready" in state
    assert "pool rest generation 1" in state
    for query, expected in (
            ("authority=chat.example.com", "pool        exact, for authority chat.example.com\n"),
            ("path=/vision/x&header=X-Tenant:+a",
             "pool        both, for path /vision, header x-tenant = a\n"),
            ("filter-metadata=my.filter/kind=picture",
             "pool        filter, for metadata my.filter/kind = picture\n"),
            ("pool=tenant&path=/", "pool        tenant, by name; it takes header x-tenant = a\n"),
            ("", "pool        rest, for all other requests\n"),
            ("pool=nope", 'pool        there is none called "nope"; there are exact, suffix, ')):
        status, text = debug(picker, f"pick?{query}")
        assert status == 200 and text.startswith(expected), text
    assert "outcome     10.0.0.6:80" in debug(picker, "pick?path=/vision/x&header=x-tenant:a")[1]
    picker.wait_at_rest()


def run(*args):
    return subprocess.run([binary(), "pick", *args], capture_output=True, text=True, check=False)


def test_pools_check_and_explain(tmp_path):
    path = tmp_path / "pools.yaml"
    path.write_text(SEVERAL)
    done = run("--config", path, "--check")
    assert done.returncode == 0
    assert "--- pool 6 of 6\ntakes       path /vision, header x-tenant = a\npool        both\n" in done.stdout
    done = run("--config", path, "--explain", "--authority", "x.example.com")
    assert done.returncode == 0
    assert done.stdout.startswith('pool        suffix, for authority *.example.com\n')
    done = run("--config", path, "--explain")
    assert done.returncode == 1
    assert "outcome     refused with 404 (gRPC: 12) NO_POOL" in done.stdout
    done = run("--config", path, "--explain", "--pool", "nope")
    assert done.returncode == 1
    done = run("--config", path, "--check", "--endpoint", "10.0.0.1:80")
    assert done.returncode == 1
    assert "has a list of pools, so that --endpoint 10.0.0.1:80 belongs to none" in done.stderr
    path.write_text("pools:\n- name: a\n- name: a\n")
    done = run("--config", path, "--check")
    assert done.returncode == 1
    assert done.stderr == f'sluice pick: {path}:3: the pool "a" is there twice; the first is in line 2\n'


# ---- many ----------------------------------------------------------------------------------------

def test_pools_hundred_pools(start):
    """1,000 models and 10,000 endpoints."""
    lines = ["pools:"]
    for pool in range(100):
        lines += [f"- name: p{pool}", f"  match: {{authority: p{pool}.example.com}}",
                  f"  models: [{', '.join(f'm{pool}-{model}' for model in range(10))}]", "  endpoints:"]
        lines += [f"  - 10.{pool}.0.{number}:80" for number in range(100)]
    picker = start("\n".join(lines) + "\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for pool in range(0, 100, 7):
            for model in range(10):
                said = ask(proxy, f"p{pool}.example.com", f"/v2/models/m{pool}-{model}/infer")
                assert endpoint_of(said).startswith(f"10.{pool}.0.")
            assert refusal_of(ask(proxy, f"p{pool}.example.com", "/v2/models/m/infer"))[0] == 404
        picker.write_pool("\n".join(lines[:1 + 50 * 104]) + "\n")
        wait_gone(picker, 'pool_generation{pool="p99"')
        assert refusal_of(ask(proxy, "p99.example.com"))[0] == 404
        assert endpoint_of(ask(proxy, "p49.example.com")).startswith("10.49.0.")
    picker.wait_at_rest()


# ---- with a real proxy ---------------------------------------------------------------------------

@pytest.mark.parametrize("config", ["headers-only-closed.yaml", "full-duplex.yaml"])
def test_pools_two_envoy_hosts(tmp_path, config):
    with echo.three() as servers:
        gateway = Gateway(tmp_path, config, [server.address for server in servers],
                          pool="pool-several.yaml")
        try:
            def served(host, model="digits"):
                return gateway.ask(f"/v2/models/{model}/infer", "-H", f"host: {host}",
                                   body=b'{"inputs": []}')["server"]
            assert {served("digits.example.com") for _ in range(20)} == {"a", "b"}
            assert {served("a.digits.example.com:8080") for _ in range(20)} == {"a", "b"}
            assert {served("other.example.com", "any") for _ in range(5)} == {"c"}
            reply = gateway.curl("/v2/models/any/infer", "-H", "host: digits.example.com", body=b"{}")
            assert reply.status == 404
            gateway.stop()
        finally:
            gateway.kill()

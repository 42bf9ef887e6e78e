"""`sluice pick` asks endpoints for their loads: by each preset, by rules of one's own, and of endpoints that
hang, redirect, break off, or never end."""
import concurrent.futures
import contextlib
import itertools
import random
import re
import ssl
import threading
import time

import pytest

from lib import http1
from lib.certificates import Identity
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy

pytestmark = pytest.mark.tsan

QUICK = ("--reload-interval", "50ms")
VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="llama"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="llama"}} {waiting}
vllm:kv_cache_usage_perc{{engine="0",model_name="llama"}} {used}
"""
PAGES = {
    "triton": 'nv_inference_pending_request_count{model="a"} 2\n'
              'nv_inference_pending_request_count{model="b"} 3\n',
    "vllm": VLLM.format(running="4.0", waiting="5.0", used="0.5"),
    "sglang": 'sglang:num_running_reqs 4.0\nsglang:num_queue_reqs 5.0\nsglang:token_usage 0.5\n',
    "tensorrt-llm": 'nv_trt_llm_request_metrics{model="m",request_type="waiting"} 5\n'
                    'nv_trt_llm_request_metrics{model="m",request_type="scheduled"} 4\n'
                    'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} 0.5\n',
    "trtllm-serve": 'trtllm_num_requests_running 4\ntrtllm_num_requests_waiting 5\n'
                    'trtllm_kv_cache_utilization 0.5\n',
}


@pytest.fixture
def start(start_picker):
    """start(pool): a picker of the test's own."""
    return lambda pool, *args: start_picker(pool, *QUICK, *args)


def pool_of(servers, metrics):
    listed = "".join(f"- {server.address}\n" for server in servers)
    return f"endpoints:\n{listed}metrics: {{{metrics}}}\n"


def said(numbers, what, server):
    return numbers.get(f'sluice_pick_endpoint_{what}{{endpoint="{server.address}"}}')


def load_of(numbers, server):
    """(waiting, running, used), as far as it is known."""
    return tuple(said(numbers, what, server)
                 for what in ("waiting_requests", "running_requests", "kv_cache_used"))


def wait_load(picker, server, load):
    return picker.wait_until(lambda now: load_of(now, server) == load, f"the load {load}")


def results(numbers, result):
    return numbers[f'sluice_pick_scrapes_total{{result="{result}"}}']


# ---- what servers say ----------------------------------------------------------------------------

@pytest.mark.parametrize("preset", PAGES)
def test_scrape_preset(start, preset):
    with MetricPages(PAGES[preset]) as server:
        picker = start(pool_of([server], f"preset: {preset}, port: {server.port}"))
        wait_load(picker, server, (5, None, None) if preset == "triton" else (5, 4, 0.5))
        path = "/prometheus/metrics" if preset == "trtllm-serve" else "/metrics"
        assert server.heads[-1].startswith(f"GET {path} HTTP/1.1\r\n")
        assert "authorization" not in server.heads[-1].lower()


def test_scrape_sluice_server(start, start_server, repositories):
    server = start_server("--model-repository", repositories("default"))
    picker = start(pool_of([server], "preset: sluice"))
    wait_load(picker, server, (0, 0, None))
    state = http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()
    assert f"endpoint {server.address}: ready, 0 in flight, 0 picks, 0 waiting, 0 running\n" in state


def test_scrape_load_changes(start):
    with MetricPages(VLLM.format(running=1, waiting=0, used=0.125)) as server:
        picker = start(pool_of([server], "preset: vllm, interval: 50ms, timeout: 20s"))
        wait_load(picker, server, (0, 1, 0.125))
        server.says(VLLM.format(running=9, waiting=3, used=0.875))
        numbers = wait_load(picker, server, (3, 9, 0.875))
        assert 0 <= said(numbers, "load_age_seconds", server) < http1.PATIENCE
        n = server.n_requests
        picker.wait_until(lambda now: server.n_requests > n + 5, "more requests")
        assert server.n_connections == 1  # kept alive
        numbers = picker.numbers()
        assert numbers["sluice_pick_scrape_seconds_count"] >= results(numbers, "ok") > 5


def test_scrape_less_loaded_is_picked(start):
    with MetricPages(VLLM.format(running=9, waiting=90, used=0.875)) as busy, \
            MetricPages(VLLM.format(running=1, waiting=0, used=0.125)) as idle:
        picker = start(pool_of([busy, idle], "preset: vllm, max_age: 1m"))
        wait_load(picker, busy, (90, 9, 0.875))
        wait_load(picker, idle, (0, 1, 0.125))
        with Proxy(picker.grpc_addresses[0]) as proxy:
            assert {proxy.pick("/v1/completions") for _ in range(20)} == {idle.address}


def test_scrape_without_section_is_off(start):
    with MetricPages(PAGES["vllm"]) as server:
        picker = start(f"endpoints: [{server.address}]\n")
        # A pool with the section asks; one without it, again, stops to.
        time.sleep(0.3)
        assert server.n_connections == 0
        picker.write_pool(pool_of([server], "preset: vllm, interval: 50ms"))
        wait_load(picker, server, (5, 4, 0.5))
        picker.write_pool(f"endpoints: [{server.address}]\n")
        picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == 3, "the third pool")
        wait_load(picker, server, (None, None, None))
        n = server.n_requests
        time.sleep(0.3)
        assert server.n_requests == n


# ---- where, and by which rules -------------------------------------------------------------------

def test_scrape_custom_rules(start, tmp_path):
    page = 'depth{kind="a\\"b"} 3\ndepth{kind="c"} 100\nused_percent 25\nused_percent{of="2"} 50\n'
    token = tmp_path / "token"
    token.write_text("  s3cret\n")
    with MetricPages(page) as metrics, MetricPages() as endpoint:
        picker = start(f"""
endpoints: [{endpoint.address}]
metrics:
  rules:
    waiting: {{series: depth, labels: {{kind: 'a"b'}}}}
    kv_cache: {{series: used_percent, factor: 0.01}}
  port: {metrics.port}
  path: /own?x=1
  token_file: {token}
  interval: 50ms
""")
        wait_load(picker, endpoint, (3, None, 0.5))
        assert endpoint.n_connections == 0
        assert metrics.heads[-1].startswith("GET /own?x=1 HTTP/1.1\r\n")
        assert "Authorization: Bearer s3cret\r\n" in metrics.heads[-1]
        token.write_text("another")
        picker.wait_until(lambda _: "Authorization: Bearer another\r\n" in metrics.heads[-1],
                          "the new token")
        assert "s3cret" not in picker.log_text()


def test_scrape_engine_label_selects_preset(start):
    with MetricPages(PAGES["sglang"]) as first, MetricPages(PAGES["vllm"]) as second, \
            MetricPages(VLLM.format(running=1, waiting=2, used=0.5)) as apart:
        picker = start(f"""
endpoints:
- {{address: {first.address}, labels: {{engine: sglang}}}}
- {{address: {second.address}, labels: {{engine: vllm, metrics-port: "{apart.port}"}}}}
metrics: {{preset_label: engine, port_label: metrics-port}}
""")
        wait_load(picker, first, (5, 4, 0.5))
        wait_load(picker, second, (2, 1, 0.5))


def test_scrape_token_per_endpoint(start, tmp_path):
    """One has its own, one the pool's; one whose file is missing is shown nobody else's."""
    for name in ("own", "all"):
        (tmp_path / name).write_text(f"{name}-s3cret\n")
    with MetricPages(PAGES["vllm"]) as one, MetricPages(PAGES["vllm"]) as two, \
            MetricPages(PAGES["vllm"]) as three:
        picker = start(f"""
endpoints:
- {{address: {one.address}, labels: {{token-file: {tmp_path / "own"}}}}}
- {{address: {two.address}, labels: {{other: label}}}}
- {{address: {three.address}, labels: {{token-file: {tmp_path / "missing"}}}}}
metrics: {{preset: vllm, interval: 50ms, token_file: {tmp_path / "all"}, token_file_label: token-file}}
""")
        for server in (one, two, three):
            wait_load(picker, server, (5, 4, 0.5))

        def shown(server):
            return re.findall(r"Authorization: Bearer (\S+)\r\n", server.heads[-1])
        assert [shown(server) for server in (one, two, three)] == [["own-s3cret"], ["all-s3cret"], []]
        (tmp_path / "own").write_text("another")
        (tmp_path / "missing").write_text("found")
        picker.wait_until(lambda _: (shown(one), shown(three)) == (["another"], ["found"]), "the new tokens")
        text = picker.log_text()
        assert text.count("reading a credential file failed") == 1 and "s3cret" not in text


def test_scrape_counters_become_rates(start):
    with MetricPages("work_total 1000\n") as server:
        picker = start(f"""
endpoints: [{server.address}]
metrics: {{rules: {{running: {{series: work_total, rate: true}}}}, interval: 50ms}}
""")
        wait_load(picker, server, (None, 0, None))
        total = itertools.count(100000, 100000)

        def has_rate(now):
            server.says(f"work_total {next(total)}\n")  # it grows until this is seen
            return (load_of(now, server)[1] or 0) > 1000
        picker.wait_until(has_rate, "a rate")
        wait_load(picker, server, (None, 0, None))
        server.says("work_total 5\n")  # begun anew: nothing negative, nothing huge
        n = server.n_requests
        while server.n_requests < n + 5:
            assert load_of(picker.numbers(), server)[1] in (None, 0)
        wait_load(picker, server, (None, 0, None))


# ---- over TLS ------------------------------------------------------------------------------------

def context_of(identity, folder):
    cert, key = identity.write(str(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def test_scrape_over_tls(start, tmp_path):
    """By an authority of one's own, by nobody, and by those that the system trusts, who don't know this one."""
    authority = Identity("an authority", authority=True)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.cert_pem())
    with MetricPages(PAGES["vllm"], tls=context_of(Identity("server", authority), tmp_path)) as server:
        https = "preset: vllm, interval: 50ms, scheme: https"
        picker = start(pool_of([server], f"{https}, ca_file: {ca}, timeout: 20s"))
        wait_load(picker, server, (5, 4, 0.5))
        picker.wait_until(lambda now: results(now, "ok") > 5, "more answers")
        assert server.n_connections == 1  # kept alive
        # A look at all that the system trusts takes longer under a sanitizer than most timeouts of tests.
        picker.write_pool(pool_of([server], f"{https}, max_age: 2s, timeout: 2s"))
        picker.wait_until(lambda now: results(now, "broken") >= 1, "a failure")
        wait_load(picker, server, (None, None, None))
        picker.write_pool(pool_of([server], f"{https}, insecure_skip_verify: true"))
        wait_load(picker, server, (5, 4, 0.5))
        picker.write_pool(pool_of([server], f"{https}, ca_file: {tmp_path / 'absent.pem'}, max_age: 2s, "
                                            "timeout: 2s"))
        wait_load(picker, server, (None, None, None))
        picker.write_pool(pool_of([server], f"{https}, ca_file: {ca}"))
        wait_load(picker, server, (5, 4, 0.5))


def test_scrape_over_tls_trusts_ssl_cert_file(start, tmp_path, monkeypatch):
    """Without ca_file: SSL_CERT_FILE is in place of the system's authorities."""
    authority = Identity("an authority", authority=True)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with MetricPages(PAGES["vllm"], tls=context_of(Identity("server", authority), tmp_path)) as server:
        picker = start(pool_of([server], "preset: vllm, interval: 50ms, scheme: https"))
        wait_load(picker, server, (5, 4, 0.5))


@pytest.mark.parametrize("wrong", ["another authority", "another host", "expired", "no TLS", "TLS"])
def test_scrape_invalid_tls_fails(start, tmp_path, wrong):
    authority, other = (Identity(name, authority=True) for name in ("an authority", "another"))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.cert_pem())
    identity = {"another authority": Identity("server", other),
                "expired": Identity("server", authority, days=(-9, -2))}.get(wrong, Identity("server", authority))
    address = "127.0.0.2:0" if wrong == "another host" else "127.0.0.1:0"
    tls = None if wrong == "no TLS" else context_of(identity, tmp_path)
    scheme = "" if wrong == "TLS" else f", scheme: https, ca_file: {ca}"
    with MetricPages(PAGES["vllm"], address=address, tls=tls) as broken, \
            MetricPages(PAGES["vllm"], tls=context_of(Identity("well", authority), tmp_path) if scheme else None) as well:
        picker = start(pool_of([broken, well], f"preset: vllm, interval: 50ms{scheme}"))
        wait_load(picker, well, (5, 4, 0.5))
        how = "timeout" if wrong == "no TLS" else "broken"  # a server of HTTP waits for a head
        numbers = picker.wait_until(lambda now: results(now, how) >= 2, "failures")
        assert load_of(numbers, broken) == (None, None, None)
        told = [line for line in picker.log_lines() if "metrics scrape failed" in line.get("event", "")]
        assert [line["endpoint"] for line in told] == [broken.address] and told[0]["reason"]


# ---- endpoints that do not answer ----------------------------------------------------------------

BROKEN = {"hang": "timeout", "drip": "timeout", "redirect": "status", "status": "status",
          "garbage": "broken", "cut": "broken", "endless": "too_large"}


@pytest.mark.parametrize("how", BROKEN)
def test_scrape_broken_endpoint_does_not_affect_others(start, how):
    """It costs the other one nothing, is counted and logged once; when it is well again, so is what is known."""
    with MetricPages(PAGES["vllm"]) as broken, MetricPages(PAGES["vllm"]) as well, \
            MetricPages(PAGES["vllm"]) as elsewhere:
        broken.elsewhere = f"http://{elsewhere.address}/metrics"
        broken.says(PAGES["vllm"], how)
        patient = "3s" if how in ("hang", "drip") else "20s"
        picker = start(pool_of([broken, well], f"preset: vllm, interval: 50ms, timeout: {patient}, "
                                               "max_page_bytes: 1000000"))
        wait_load(picker, well, (5, 4, 0.5))
        numbers = picker.wait_until(lambda now: results(now, BROKEN[how]) >= 2, "failures")
        assert load_of(numbers, broken) == (None, None, None)
        assert numbers['sluice_pick_pool_endpoints{state="ready"}'] == 2
        assert elsewhere.n_connections == 0
        told = [line for line in picker.log_lines() if "metrics scrape failed" in line.get("event", "")]
        assert [line["endpoint"] for line in told] == [broken.address], told
        before = results(numbers, "ok")
        picker.wait_until(lambda now: results(now, "ok") > before + 5, "answers of the other")
        broken.says(PAGES["vllm"])
        wait_load(picker, broken, (5, 4, 0.5))
        assert "metrics scrape recovered" in picker.log_text()


def test_scrape_page_without_series_is_reported(start):
    with MetricPages("<html>") as server:
        picker = start(pool_of([server], "preset: vllm, interval: 50ms"))
        picker.wait_until(lambda now: results(now, "series") >= 2, "failures")
        assert re.search(r"none of the 6 wanted series.*vllm:num_requests_waiting", picker.log_text())


def test_scrape_stale_load_is_ignored(start):
    """A server that said it is full, and then nothing: judged like one that never said anything."""
    with contextlib.ExitStack() as stack:
        full = MetricPages(VLLM.format(running=99, waiting=99, used=1))
        other = stack.enter_context(MetricPages(VLLM.format(running=99, waiting=99, used=1)))
        picker = start(pool_of([full, other], "preset: vllm, interval: 50ms, timeout: 1s, max_age: 2s"))
        wait_load(picker, full, (99, 99, 1))
        wait_load(picker, other, (99, 99, 1))
        full.close()
        other.says("", "hang")
        wait_load(picker, full, (None, None, None))
        wait_load(picker, other, (None, None, None))
        picker.wait_until(lambda now: results(now, "timeout") > 0, "timeouts")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            assert {proxy.pick("/v1/completions") for _ in range(50)} == {full.address, other.address}


def test_scrape_pool_change_during_scrape(start):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(MetricPages(PAGES["vllm"])) for _ in range(6)]
        servers[0].says("", "hang")
        picker = start(pool_of(servers[:3], "preset: vllm, interval: 50ms"))
        for generation in range(2, 12):
            chosen = servers[:3] if generation % 2 else servers[2:] + servers[:1]
            picker.write_pool(pool_of(chosen, f"preset: vllm, interval: {50 + generation}ms"))
            picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == generation, "the pool")
            wait_load(picker, chosen[1], (5, 4, 0.5))


def test_scrape_goes_on_while_pool_changes(start):
    """A page takes longer than it takes the pool to change, three times: it is read all the same, on its
    first connection. A scrape that is changed by its settings begins anew."""
    with MetricPages(PAGES["vllm"]) as slow, MetricPages(PAGES["vllm"]) as other:
        slow.says(PAGES["vllm"], "gate")
        settings = "preset: vllm, interval: 50ms, timeout: 30s"
        picker = start(pool_of([slow], settings))
        picker.wait_until(lambda _: slow.n_requests == 1, "a request")
        for generation in range(2, 5):
            picker.write_pool(pool_of([slow, other] if generation % 2 == 0 else [slow], settings))
            picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == generation, "the pool")
            if generation % 2 == 0:
                wait_load(picker, other, (5, 4, 0.5))
        assert load_of(picker.numbers(), slow) == (None, None, None)
        assert (slow.n_requests, slow.n_connections) == (1, 1)
        slow.opened.set()
        wait_load(picker, slow, (5, 4, 0.5))
        assert slow.n_connections == 1
        slow.opened.clear()
        n = slow.n_requests
        picker.wait_until(lambda _: slow.n_requests > n, "another request")
        picker.write_pool(pool_of([slow], settings.replace("30s", "29s")))
        picker.wait_until(lambda _: slow.n_connections == 2, "a new connection")
        slow.opened.set()


def test_scrape_endpoint_churn(start):
    """Endpoints come and go, break and are well again, while they are asked, picked, and looked at."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(MetricPages(PAGES["vllm"])) for _ in range(9)]
        picker = start(pool_of(servers[:3], "preset: vllm, interval: 50ms, timeout: 2s"))
        dice, over = random.Random(1), threading.Event()

        def look():
            while not over.is_set():
                for path in ("/metrics", "/status.json", "/debug/state", "/debug/pick?path=/"):
                    assert http1.request(picker.metrics_address, "GET", path).status == 200
                time.sleep(0.01)

        def ask():
            with Proxy(picker.grpc_addresses[0]) as proxy:
                while not over.is_set():
                    picked.add(proxy.pick("/v1/completions"))
                    time.sleep(0.002)
        picked = set()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            busy = [pool.submit(job) for job in (look, ask, ask)]
            try:
                for generation in range(2, 22):
                    for server in dice.sample(servers, 2):
                        server.says(PAGES["vllm"], dice.choice(["page", "hang", "cut", "garbage", "status"]))
                    # One of them is well, so that each pool has a load to wait for.
                    chosen = dice.sample(servers[1:], dice.randint(0, 5)) + servers[:1]
                    servers[0].says(PAGES["vllm"])
                    picker.write_pool(pool_of(chosen, f"preset: vllm, interval: {dice.choice([50, 70])}ms, timeout: 2s"))
                    picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == generation, "the pool")
                    wait_load(picker, servers[0], (5, 4, 0.5))
            finally:
                over.set()
            for job in busy:
                job.result()
        assert len(picked) > 3
        picker.wait_at_rest()


def test_scrape_huge_page(start):
    """Huge, with long lines, escapes in labels, values that are no numbers, and what is wanted at its end."""
    junk = "".join(f'other_bucket{{le="{n}",text="a\\\\b\\"c\\nd}}"}} {n}\n' for n in range(40000))
    awkward = ('vllm:num_requests_waiting{model_name="a\\"} 7",engine="\\\\"} 2\n'
               'vllm:num_requests_waiting{model_name="' + "x" * 9000 + '"} 3 1700000000000\n'
               'vllm:num_requests_waiting{model_name="nan"} NaN\nvllm:num_requests_waiting{model_name="inf"} +Inf\n'
               'vllm:num_requests_waiting{model_name="torn 9\nvllm:num_requests_waiting_total 1000\n'
               'vllm:kv_cache_usage_perc 7.5\nvllm:num_requests_running -4\n')
    with MetricPages(junk + awkward) as server:
        assert len(server.page) > 1500000
        picker = start(pool_of([server], "preset: vllm"))
        wait_load(picker, server, (5, None, 1))
        server.says(PAGES["vllm"])
        wait_load(picker, server, (5, 4, 0.5))

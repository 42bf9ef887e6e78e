"""What operators see of `sluice pick`: its numbers under our names and the upstream project's, a line of the
log for each decision, and the status page in a real browser."""
import contextlib
import json
import time

import pytest

from lib import browser, http1
from lib.metric_pages import MetricPages
from lib.pages import assert_one_file
from lib.pick_client import Proxy, answer_headers, body, headers

pytestmark = pytest.mark.tsan

COMPLETIONS, INFER = "/v1/completions", "/v2/models/{}/infer"
A, B = "127.0.0.1:1", "127.0.0.1:2"
PAGE = """vllm:num_requests_running{{m="x"}} {running}
vllm:num_requests_waiting{{m="x"}} {waiting}
vllm:kv_cache_usage_perc{{m="x"}} {used}
"""
POOL_OBJECT = """---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llama-pool}
spec:
  selector: {matchLabels: {app: llama}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: sluice, port: {number: 9002}}
"""
MODELS = """models:
- digits
- {name: llama, targets: [{model: llama-v1}]}
"""


def in_pool(*addresses):
    """The endpoints of POOL_OBJECT."""
    return "endpoints:\n" + "".join(f"- {{address: {one}, labels: {{app: llama}}}}\n" for one in addresses)


def wait_for(fits, what):
    end = time.monotonic() + http1.PATIENCE
    while not (found := fits()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


def by_model(numbers, name, model, target=None, code=None):
    labels = f'model_name="{model}"'
    labels += f',target_model_name="{target or model}"' if name != "running_requests" else ""
    labels += f',error_code="{code}"' if code else ""
    return numbers.get(f"inference_objective_{name}{{{labels}}}", 0)


def with_body(proxy, model, **options):
    """A request whose body names the model. Returns: its stream, behind the first answer."""
    stream = proxy.stream(headers(COMPLETIONS, config="FULL_DUPLEX_STREAMED NONE", **options))
    stream.send(body(json.dumps({"model": model, "prompt": "x"}).encode(), end=True))
    stream.next()
    return stream


# ---- numbers -------------------------------------------------------------------------------------

def test_metrics_pick_time_by_phase(start_picker):
    picker = start_picker(f"endpoints: [{A}]\n{MODELS}")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for _ in range(3):
            proxy.pick(INFER.format("digits"))
        for _ in range(2):
            stream = proxy.stream(headers(COMPLETIONS, config="FULL_DUPLEX_STREAMED NONE"))
            picker.wait_until(lambda now: now["sluice_pick_open_streams"] == 1, "headers that were read")
            stream.send(body(b'{"model":"llama","prompt":"x"}', end=True))
            stream.next()
            stream.reset()
            picker.wait_at_rest()
        assert proxy.refuse(INFER.format("unheard-of"))[0] == 404
    numbers = picker.wait_at_rest()
    counts = {phase: numbers[f'sluice_pick_seconds_count{{phase="{phase}"}}'] for phase in
              ("headers", "body", "wait")}
    assert counts == {"headers": 3, "body": 2, "wait": 2}
    assert all(numbers[f'sluice_pick_seconds_sum{{phase="{phase}"}}'] > 0 for phase in counts)
    assert numbers["inference_extension_scheduler_e2e_duration_seconds_count"] == 5
    assert numbers['sluice_pick_decisions_total{by="fewest"}'] == 5


def test_metrics_requests_by_model(start_picker):
    """Each name that requests have is a label; a request goes on as the configuration says."""
    picker = start_picker(f"endpoints: [{A}]\n{MODELS}unknown_models: pass\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        held = [with_body(proxy, "llama") for _ in range(3)]
        picker.wait_until(lambda now: by_model(now, "running_requests", "llama") == 3, "three that run")
        for n in range(20):
            proxy.pick(INFER.format(f"made-up-{n}"))
        proxy.pick("/metrics")
        proxy.pick(INFER.format("digits"))
        for stream in held:
            stream.send(answer_headers(end=True)).next()
            stream.close()
        numbers = picker.wait_at_rest()
    assert {model: by_model(numbers, "request_total", model, target) for model, target in
            (("llama", "llama-v1"), ("digits", None), ("made-up-0", None), ("made-up-19", None), ("(none)", None))} == {
                "llama": 3, "digits": 1, "made-up-0": 1, "made-up-19": 1, "(none)": 1}
    assert by_model(numbers, "running_requests", "llama") == 0
    assert by_model(numbers, "request_duration_seconds_count", "llama", "llama-v1") == 3
    assert by_model(numbers, "request_duration_seconds_sum", "llama", "llama-v1") > 0


def test_metrics_errors_by_model_and_code(start_picker):
    picker = start_picker(f"endpoints: []\n{MODELS}")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.refuse(INFER.format("digits"))[0] == 503
        assert proxy.refuse(INFER.format("nobody"))[0] == 404
        with_body(proxy, "llama").reset()
    numbers = picker.wait_at_rest()
    assert by_model(numbers, "request_error_total", "digits", code="NO_ENDPOINT") == 1
    assert by_model(numbers, "request_error_total", "llama", code="NO_ENDPOINT") == 1
    assert by_model(numbers, "request_error_total", "other", code="UNKNOWN_MODEL") == 1


def test_metrics_upstream_pool_names(start_picker):
    with MetricPages(PAGE.format(running=1, waiting=4, used=0.5)) as one, \
            MetricPages(PAGE.format(running=1, waiting=1, used=0.25)) as other:
        picker = start_picker(in_pool(one.address, other.address, A) +
                       f"metrics: {{preset: vllm, interval: 50ms, timeout: 20s}}\n{POOL_OBJECT}")
        name = 'name="llama-pool"'
        silent = f'sluice_pick_endpoint_scrape_failures_total{{endpoint="{A}"}}'
        numbers = picker.wait_until(
            lambda now: now.get(f"inference_pool_average_queue_size{{{name}}}") == 2.5 and now[silent] > 1,
            "two loads, and one that is silent")
        assert numbers[f"inference_pool_ready_pods{{{name}}}"] == 3
        assert numbers[f"inference_pool_average_kv_cache_utilization{{{name}}}"] == 0.375
        assert numbers[f"inference_pool_average_running_requests{{{name}}}"] == 1
        queues = {server.address: numbers.get(
            f'inference_pool_per_pod_queue_size{{{name},model_server_pod="{server.address}"}}')
            for server in (one, other)}
        assert queues == {one.address: 4, other.address: 1}
        assert f'inference_pool_per_pod_queue_size{{{name},model_server_pod="{A}"}}' not in numbers
        assert numbers['inference_extension_info{build_ref="sluice 0.1.0"}'] == 1
        assert numbers[silent.replace(A, one.address)] == 0


# ---- the log -------------------------------------------------------------------------------------

def lines_of(picker, event):
    return [line for line in picker.log_lines() if line.get("event") == event]


def test_log_line_per_decision(start_picker):
    with MetricPages(PAGE.format(running=9, waiting=90, used=0.875)) as busy, \
            MetricPages(PAGE.format(running=1, waiting=0, used=0.125)) as idle:
        picker = start_picker(in_pool(busy.address, idle.address) + "metrics: {preset: vllm, max_age: 1m}\n"
                       f"{MODELS}{POOL_OBJECT}", "--log-level", "debug")
        picker.wait_until(lambda now: now.get("inference_pool_average_queue_size{name=\"llama-pool\"}") == 45,
                          "both loads")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            with_body(proxy, "llama", fields={"x-request-id": "mine-1"}).reset()
            for n in range(30):
                proxy.refuse(INFER.format("nobody"), fields={"x-request-id": f"refused-{n}"})
        picked = wait_for(lambda: lines_of(picker, "picked"), "a line")[0]
        assert {name: picked[name] for name in ("request_id", "request", "pool", "model", "as", "endpoint",
                                                "by", "profile", "candidates")} == {
            "request_id": "mine-1", "request": f"POST {COMPLETIONS}", "pool": "llama-pool", "model": "llama",
            "as": "llama-v1", "endpoint": idle.address, "by": "profile", "profile": "default",
            "candidates": 2}
        score, other = picked["score"], picked["others"].split("=")
        assert other[0] == busy.address and score > float(other[1]) and 5 < score <= 6
        refused = wait_for(lambda: (found := lines_of(picker, "refused")) and len(found) == 30 and found,
                           "a line for each refusal")
        assert [line["request_id"] for line in refused] == [f"refused-{n}" for n in range(30)]
        assert {(line["pool"], line["model"], line["status"], line["code"]) for line in refused} == {
            ("llama-pool", "nobody", 404, "UNKNOWN_MODEL")}


def test_log_request_ids_are_escaped(start_picker):
    """None, a name of one's own for the header, one that is much too long, and one with what a log must escape."""
    picker = start_picker(f"endpoints: [{A}]\nprotocol: {{request_id_header: x-trace}}\n", "--log-level", "debug")
    awkward = 'a"b\\c\u00fc{}'
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for fields in ({"x-request-id": "another's"}, {"x-trace": "n" * 5000}, {"x-trace": awkward}):
            proxy.pick("/", fields=fields)
    lines = wait_for(lambda: len(found := lines_of(picker, "picked")) == 3 and found, "three lines")
    assert [line.get("request_id") for line in lines] == [None, "n" * 128, awkward]
    assert all(line["by"] == "fewest in flight" and "score" not in line for line in lines)


# ---- the page ------------------------------------------------------------------------------------

def status(picker):
    answer = http1.request(picker.metrics_address, "GET", "/status.json")
    assert answer.status == 200 and answer.get("Content-Type") == "application/json"
    return json.loads(answer.body)


def test_status_json_numbers(start_picker):
    with MetricPages(PAGE.format(running=3, waiting=4, used=0.5)) as server:
        picker = start_picker(in_pool(server.address, A) + "metrics: {preset: vllm, interval: 50ms}\n" + POOL_OBJECT)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            held = proxy.stream(headers("/", hint=server.address))
            held.next()
            proxy.refuse("/", hint="10.9.9.9:1")

            def settled():
                now = status(picker)
                found = {one["address"]: one for one in now["pools"][0]["endpoints"]}
                return "waiting" in found[server.address] and found[A]["silent"] > 0 and (now, found)
            now, found = wait_for(settled, "a load")
            held.reset()
        age = found[server.address].pop("age_ms")
        assert 0 <= age < http1.PATIENCE * 1000
        assert found[server.address] == {"address": server.address, "state": "ready", "picks": 1, "in_flight": 1,
                                         "silent": 0, "waiting": 4, "running": 3, "kv": 0.5}
        assert set(found[A]) == {"address", "state", "picks", "in_flight", "silent"}
        assert now["server"]["ready"] is True and now["pools"][0]["name"] == "llama-pool"
        assert now["memory"]["limit"] > 0
        (holder,) = now["memory"]["holders"]  # an open request, with its arena
        assert 8192 <= holder["open_calls"] < 32768 and holder["responses"] == 0
        assert [one["name"] for one in now["memory"]["servers"]] == ["grpc"]
        assert {"protocol": "pick", "reason": "NO_ENDPOINT", "count": 1} in now["errors"]
        assert sum(now["times"]["headers"]["buckets"]) == 1 and now["times"]["body"] == {"sum": 0, "buckets": []}
        assert now["picks"]["at headers"] == 1 and now["scrapes"]["ok"] > 0


def test_status_page_is_one_file(start_picker):
    assert_one_file(start_picker(f"endpoints: [{A}]\n").metrics_address)


TEXTS = "[...document.querySelectorAll('#endpoints tr')].map(line => line.children[{}].textContent)"


def test_status_page_in_browser(start_picker, tmp_path):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(MetricPages(PAGE.format(running=1, waiting=n, used=0.125 * n)))
                   for n in range(3)]
        picker = start_picker("endpoints:\n" + "".join(f"- {one.address}\n" for one in servers)
                       + f"metrics: {{preset: vllm, interval: 50ms}}\n{MODELS}")
        picker.wait_until(lambda now: now.get('inference_pool_average_queue_size{name=""}') == 1, "the loads")
        page = stack.enter_context(browser.Browser(str(tmp_path / "profile"), size=(1280, 900)))
        proxy = stack.enter_context(Proxy(picker.grpc_addresses[0]))
        page.open(f"http://{picker.metrics_address}/")
        page.wait("Number(document.body?.dataset.samples) >= 2")
        for _ in range(5):  # it moves while somebody looks
            proxy.pick(INFER.format("digits"))
        with_body(proxy, "llama").reset()
        proxy.refuse(INFER.format("nobody"))
        page.wait("document.querySelector('#error-rows td')?.textContent === 'unknown model'")
        page.wait("document.getElementById('side').textContent.includes('at headers 5')")
        page.wait("document.getElementById('side').textContent.includes('Time of a pick that needs the body')")
        assert page.run("document.getElementById('count').textContent") == "3 of 3 ready"
        # By keyboard: to a head, and twice return.
        page.run("document.querySelectorAll('#heads button')[5].focus()")
        for sort in ("descending", "ascending"):
            for kind in ("keyDown", "keyUp"):
                page.ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r",
                         windowsVirtualKeyCode=13)
            assert page.run("document.querySelectorAll('#heads th')[6].getAttribute('aria-sort')") == sort
            waiting = page.run(TEXTS.format(6))
            assert waiting == sorted(waiting, reverse=sort == "descending") and sorted(waiting) == ["0", "1", "2"]
        for width in (1440, 1200, 1100, 1080, 800):  # pixels: nothing of a table is cut off
            page.size(width, 900)
            assert page.run("[...document.querySelectorAll('.scroll')].every(one => one.scrollWidth <= one.clientWidth)"), width
        page.run("document.getElementById('filter').value = '" + servers[1].address + "'")
        page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
        assert page.run(TEXTS.format(0)) == [servers[1].address]
        page.run("document.getElementById('filter').value = 'x'")
        page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
        assert not page.run("document.getElementById('none').hidden")
        page.picture(tmp_path / "page.png")
        page.size(390, 844)  # a phone: nothing but the table is wider than it
        assert page.run("document.documentElement.scrollWidth") == 390
        assert page.run("document.body.dataset.error") is None
        assert page.complaints() == []
        assert {url.rpartition("/")[2] for url in page.asked_for()} <= {"", "status.json", "about:blank"}
        picker.wait_at_rest()
        picker.stop()
        page.wait("document.getElementById('live').textContent.startsWith('no answer')")
        assert page.run("document.body.classList.contains('gone')")


def test_status_page_thousand_endpoints(start_picker, tmp_path):
    """Ten thousand addresses of a page are not drawn: a hundred rows, the rest when somebody asks."""
    picker = start_picker("endpoints:\n" + "".join(f"- 10.0.{n // 250}.{n % 250 + 1}:8000\n" for n in range(1000)))
    with browser.Browser(str(tmp_path / "profile")) as page, Proxy(picker.grpc_addresses[0]) as proxy:
        page.open(f"http://{picker.metrics_address}/")
        page.wait("Number(document.body?.dataset.samples) >= 1")
        assert page.run("document.getElementById('count').textContent") == "1,000 of 1,000 ready"
        rows = page.run(TEXTS.format(0))
        assert len(rows) == 100 and rows[:10] == [f"10.0.0.{n + 1}:8000" for n in range(10)]
        page.run("document.getElementById('more').click()")
        assert len(page.run(TEXTS.format(0))) == 1000
        page.run("document.getElementById('more').click()")
        for _ in range(20):
            proxy.pick("/", hint="10.0.3.77:8000")
        page.run("document.querySelectorAll('#heads button')[3].click()")  # by share
        page.run("document.querySelector('[name=span][value=all]').click()")
        page.wait("document.querySelector('#endpoints td').textContent === '10.0.3.77:8000'")
        assert page.run(TEXTS.format(4))[:2] == ["100 %", "0 %"]
        page.wait("document.getElementById('spread').textContent.includes('highest 100 %')")
        assert page.run("document.body.dataset.error") is None and page.complaints() == []


def test_status_page_follows_pool_change(start_picker, tmp_path):
    picker = start_picker(f"endpoints: [{A}, {B}]\n", "--reload-interval", "50ms")
    with browser.Browser(str(tmp_path / "profile")) as page:
        page.open(f"http://{picker.metrics_address}/")
        page.wait(TEXTS.format(0) + ".length === 2")
        picker.write_pool("endpoints: []\n")
        page.wait("document.getElementById('none').textContent.startsWith('The pool is empty')")
        picker.write_pool(f"endpoints: [{B}]\n")
        page.wait(TEXTS.format(0) + f".join() === '{B}'")
        assert page.complaints() == []


def test_status_page_several_pools(start_picker, tmp_path):
    """Each by its name: in the numbers under the upstream's names, in the log's lines, and on the page."""
    with MetricPages(PAGE.format(running=1, waiting=4, used=0.5)) as server:
        picker = start_picker(f"""pools:
- name: chat
  match: {{authority: chat}}
  endpoints: [{server.address}]
  metrics: {{preset: vllm, interval: 50ms}}
  models: [llama]
- name: rest
  endpoints: [{A}, {server.address}]
  models: [llama]
""", "--log-level", "debug")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            proxy.pick(INFER.format("llama"), fields={":authority": "chat"})
            proxy.pick(INFER.format("llama"), hint=A)
            proxy.refuse(INFER.format("gpt"))
        numbers = picker.wait_until(lambda now: 'inference_pool_average_queue_size{name="chat"}' in now and
                                    now["sluice_pick_open_streams"] == 0, "a load")
        assert numbers['inference_pool_ready_pods{name="chat"}'] == 1
        assert numbers['inference_pool_ready_pods{name="rest"}'] == 2
        assert 'inference_pool_average_queue_size{name="rest"}' not in numbers
        for pool in ("chat", "rest"):
            labels = f'pool="{pool}",model_name="llama",target_model_name="llama"'
            assert numbers[f"inference_objective_request_total{{{labels}}}"] == 1
        lines = wait_for(lambda: len(found := lines_of(picker, "picked")) == 2 and found, "two lines")
        assert [line["pool"] for line in lines] == ["chat", "rest"]
        assert lines_of(picker, "refused")[0]["pool"] == "rest"
        assert [(pool["name"], len(pool["endpoints"])) for pool in status(picker)["pools"]] == [("chat", 1), ("rest", 2)]
        with browser.Browser(str(tmp_path / "profile")) as page:
            page.open(f"http://{picker.metrics_address}/")
            page.wait(TEXTS.format(0) + ".length === 3")
            shown = page.run(TEXTS.format(0))
            assert sorted(shown) == sorted([f"{server.address} chat", f"{server.address} rest", f"{A} rest"])
            page.run("document.getElementById('filter').value = 'chat'")
            page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
            assert page.run(TEXTS.format(0)) == [f"{server.address} chat"]
            assert page.complaints() == []


def test_status_page_queues(start_picker, tmp_path):
    """They are shown where requests wait for room, by priority, and what became of those that did."""
    picker = start_picker(f"endpoints: [{A}]\nobjectives: [{{name: interactive, priority: 20}}]\n"
                          "saturation: {max_in_flight: 1}\nflow_control: {max_requests: 8, max_wait: 10m}\n")
    with browser.Browser(str(tmp_path / "profile")) as page, Proxy(picker.grpc_addresses[0]) as proxy:
        page.open(f"http://{picker.metrics_address}/")
        page.wait("Number(document.body?.dataset.samples) >= 1")
        assert page.run("document.getElementById('queues').hidden")
        held = proxy.stream(headers("/"))
        held.next()
        wait_of = "x-gateway-inference-objective"
        first = proxy.stream(headers("/", fields={wait_of: "interactive"}))
        second = proxy.stream(headers("/"))
        rows = "[...document.querySelectorAll('#queue-rows tr')].map(line => [...line.children].map(one => one.textContent))"
        page.wait(rows + ".map(line => line.slice(0, 2).join()).join(' ') === '20,1 0,1'")
        queues = status(picker)["pools"][0]["queues"]
        assert [(queue["priority"], queue["waiting"]) for queue in queues] == [(20, 1), (0, 1)]
        held.reset()
        first.next()
        second.reset()  # its client left
        page.run("document.querySelector('[name=span][value=all]').click()")
        page.wait(rows + ".map(line => [line[0], line[1], line[3], line[7]].join()).join(' ') === '20,0,1,0 0,0,0,1'")
        first.reset()
        assert page.run("document.body.dataset.error") is None and page.complaints() == []

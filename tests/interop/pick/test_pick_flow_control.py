"""`sluice pick` when all endpoints are busy: who waits, in which order they go on, and what those are told who do
not. grpcio sends what Envoy would; an endpoint has room again when the answer of a request has ended."""
import collections
import contextlib
import json
import re
import signal
import threading
from concurrent import futures

import pytest

from lib import echo, h2, http1
from lib.gateway import Gateway
from lib.metric_pages import MetricPages
from lib.pick_client import (PROCESS, Proxy, answer_body, answer_headers, body, endpoint_of, headers, refusal_of,
                             set_headers)
from lib.pick_config import upstream_config
from lib.picker import Picker, n_waiting

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
POOL = f"""
endpoints: [{A}, {B}]
models:
  - digits
  - {{name: urgent, criticality: Critical}}
  - {{name: spare, criticality: Sheddable}}
  - {{name: old, targets: [{{model: new}}]}}
objectives:
  - {{name: interactive, priority: 20}}
  - {{name: batch, priority: -1}}
saturation: {{max_in_flight: 1, retry_after: 3s}}
flow_control: {{max_requests: 8, max_bytes: 1MiB, max_wait: 10m, bands: [{{priority: 20, max_requests: 2}}]}}
"""
PATH = "/v2/models/digits/infer"
DUPLEX = "FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED"
REASON = "x-llm-d-request-dropped-reason"
FAIRNESS = "x-gateway-inference-fairness-id"
OBJECTIVE = "x-gateway-inference-objective"


@pytest.fixture
def start(tmp_path):
    """start(pool): a picker that ends well, with nothing waiting and nothing in flight."""
    with contextlib.ExitStack() as ending:
        started = []

        def begin(pool=POOL, *args):
            folder = tmp_path / f"picker{len(started)}"
            folder.mkdir()
            picker = Picker(folder, pool, ["--log-level", "debug", *args])
            ending.callback(picker.kill)
            started.append(picker)
            return picker
        yield begin
        for picker in started:
            if picker.process.poll() is None:
                assert n_waiting(picker.wait_at_rest()) == 0
            picker.stop()


def fill(proxy, n=2):
    """As many requests as there is room for. Returns: their streams."""
    streams = [proxy.stream(headers(PATH)) for _ in range(n)]
    assert len({endpoint_of(stream.next()) for stream in streams}) == n
    return streams


def finish(stream):
    """The answer to a request ends."""
    stream.send(answer_headers(end=True))
    stream.next()
    assert stream.close() == []


def queue(picker, proxy, *requests):
    """One after the other, each once the one before it waits. Returns: their streams."""
    streams = []
    before = n_waiting(picker.numbers())
    for path, fields in requests:
        streams.append(proxy.stream(headers(path, fields=fields)))
        picker.wait_waiting(before + len(streams))
    return streams


def test_queue_order_by_priority_and_fairness(start):
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = queue(picker, proxy,
                       (PATH, {FAIRNESS: "x"}), (PATH, {FAIRNESS: "x"}), (PATH, {"x-llm-d-inference-fairness-id": "y"}),
                       ("/v2/models/urgent/infer", {}), (PATH, {OBJECTIVE: "interactive"}))
        state = http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()
        assert "5 requests queued" in state
        assert state.count("queued until an endpoint has capacity") == 5
        last = busy[0]
        for place in (4, 3, 0, 2, 1):
            finish(last)
            last = queued[place]
            assert endpoint_of(last.next()) in (A, B)
        for stream in (last, busy[1]):
            finish(stream)
    numbers = picker.numbers()
    name = 'inference_extension_flow_control_request_queue_duration_seconds_count{priority="%d",outcome="Dispatched"}'
    assert [numbers[name % priority] for priority in (20, 10, 0)] == [1, 1, 3]


WHOLE = f"""
endpoints: [{A}, {B}]
---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {{type: active-request-scorer}}
- {{type: concurrency-detector, parameters: {{maxConcurrency: 2, headroom: 0.5}}}}
schedulingProfiles: [{{name: default, plugins: [{{pluginRef: active-request-scorer}}]}}]
featureGates: [flowControl]
flowControl: {{saturationDetector: {{pluginRef: concurrency-detector}}}}
"""


def test_pool_as_a_whole_is_full_wherever_its_requests_are(start):
    """Upstream's concurrency-detector: two endpoints of two requests each are four requests, also where all of them are
    at one endpoint; then a request for the idle one waits, too, until any of them ends."""
    picker = start(WHOLE)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = [proxy.stream(headers(PATH, hint=A)) for _ in range(4)]
        assert [endpoint_of(stream.next()) for stream in busy] == [A] * 4
        late = proxy.stream(headers(PATH, hint=B))
        picker.wait_waiting(1)
        assert "saturation of the whole: 1\n" in http1.request(picker.metrics_address, "GET",
                                                               "/debug/state").body.decode()
        finish(busy.pop())
        assert endpoint_of(late.next()) == B
        for stream in [*busy, late]:
            finish(stream)


def test_detector_of_the_pool_is_a_filter_of_the_profile(start):
    """Without profiles, as in llm-d: an endpoint may have half a request more than its share of the pool's four, so a third
    one, and not a fourth, although the pool is not full."""
    picker = start(WHOLE.replace("schedulingProfiles: [{name: default, plugins: [{pluginRef: active-request-scorer}]}]\n", ""))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = [proxy.stream(headers(PATH, hint=A)) for _ in range(3)]
        assert [endpoint_of(stream.next()) for stream in busy] == [A] * 3
        status, _, text = refusal_of(proxy.ask(PATH, hint=A))
        assert status == 503 and "the filters of the profile removed all 1 candidate endpoints" in text
        late = proxy.stream(headers(PATH))
        assert endpoint_of(late.next()) == B
        finish(busy.pop())
        again = proxy.stream(headers(PATH, hint=A))
        assert endpoint_of(again.next()) == A
        for stream in [*busy, late, again]:
            finish(stream)


@pytest.mark.tsan
@pytest.mark.parametrize("plugin, limit", [
    ({"type": "concurrency-detector", "parameters": {"maxConcurrency": 5, "headroom": 0.4}}, 7),
    ({"type": "utilization-filter", "parameters": {"conditions": [{"metric": "active-requests", "maxValue": 4}]}}, 5)])
def test_limits_of_filters_hold_in_a_burst(start_picker, plugin, limit):
    """On four workers at once: each of three endpoints gets as many requests as it may have, the others are refused."""
    endpoints = [f"10.0.0.{i}:8000" for i in range(1, 4)]
    picker = start_picker(upstream_config([plugin, {"type": "random-picker"}], endpoints), "--workers", "4")
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(picker.grpc_addresses[0])) for _ in range(8)]
        for _ in range(5):
            streams = [proxy.stream(headers(PATH)) for _ in range(10) for proxy in proxies]
            answers = [stream.next() for stream in streams]
            refused = [said for said in answers if said.WhichOneof("response") == "immediate_response"]
            picked = collections.Counter(endpoint_of(said) for said in answers if said not in refused)
            assert picked == dict.fromkeys(endpoints, limit) and {refusal_of(said)[0] for said in refused} == {503}
            for stream in streams:
                stream.reset()
            picker.wait_streams(0)


EVICTING = WHOLE.replace("flowControl: {", "flowControl: {enableEviction: true, ").replace(
    "---", "objectives: [{name: interactive, priority: 20}, {name: batch, priority: -1}, {name: rest, priority: -9}]\n---")


def expect_evicted(said):
    status, fields, text = refusal_of(said)
    assert (status, fields[REASON], text) == (429, "evicted", "request evicted by flow control")


def test_running_sheddable_requests_are_ended_for_others(start):
    """The lowest priority first, and the newest of it; in the request, in the response and while its body streams. One
    that waits itself is not ended, nor are any for requests of their priority. Then the queue goes on."""
    picker = start(EVICTING)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        def run(objective):
            stream = proxy.stream(headers(PATH, fields={OBJECTIVE: objective}, config=DUPLEX))
            assert endpoint_of(stream.next()) in (A, B)
            return stream
        batch, first, plain = run("batch"), run("rest"), run("none")
        newest = run("rest")
        first.send(answer_headers())
        first.next()
        batch.send(answer_headers(), answer_body(b"data: 1\n\n"))
        batch.next()
        batch.next()
        rest = queue(picker, proxy, (PATH, {OBJECTIVE: "rest"}))
        assert picker.numbers()['llm_d_epp_flow_control_revocations_total{outcome="confirmed",inference_pool=""}'] == 0
        others = []
        for ended in (newest, first, batch):
            others.append(proxy.stream(headers(PATH, fields={OBJECTIVE: "interactive"})))
            expect_evicted(ended.next())
            assert ended.close() == []
            assert endpoint_of(others[-1].next()) in (A, B)
        state = http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()
        assert "4 running, 0 of these sheddable; 3 evicted, of which 3 have ended and 0 took too long" in state
        others += queue(picker, proxy, (PATH, {OBJECTIVE: "interactive"}))  # there is none left to end
        for stream in (plain, *others[:2]):
            finish(stream)
        assert endpoint_of(others[3].next()) in (A, B)
        assert endpoint_of(rest[0].next()) in (A, B)
        for stream in (*others[2:], *rest):
            finish(stream)
    assert picker.numbers()['llm_d_epp_flow_control_revocations_issued_total{priority="20",inference_pool=""}'] == 3


@pytest.mark.parametrize("queues", [True, False])
def test_session_of_full_endpoint(start, queues):
    """With a queue a session moves while its endpoint is full and another is not: it is no strict affinity. Without
    one it stays."""
    pool = POOL if queues else POOL[:POOL.index("flow_control")]
    picker = start(pool + "profile: {plugins: [{type: session-hash-filter}]}\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        def ask():
            stream = proxy.stream(headers(PATH, fields={"x-session-token": "one"}))
            return stream, endpoint_of(stream.next())
        first, home = ask()
        second, other = ask()
        assert {home, other} == ({A, B} if queues else {home})
        finish(first)
        first, again = ask()
        assert again == home
        finish(first)
        finish(second)


def test_queue_sheddable_and_overflow_are_429(start):
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        for path, fields in (("/v2/models/spare/infer", {}), (PATH, {OBJECTIVE: "batch"})):
            status, said, text = proxy.refuse(path, fields=fields)
            assert status == 429 and said["retry-after"] == "3" and said[REASON] == "rejected-saturated"
            assert "sheddable" in json.loads(text)["error"]
        assert proxy.refuse("/v2/models/none/infer")[0] == 404
        assert proxy.refuse(PATH, hint="10.9.9.9:1")[0] == 503
        queued = queue(picker, proxy, *[(PATH, {OBJECTIVE: "interactive"})] * 2, *[(PATH, {})] * 5)
        status, said, text = proxy.refuse(PATH, fields={OBJECTIVE: "interactive"})
        assert status == 429 and said["retry-after"] == "3" and said[REASON] == "rejected-saturated"
        assert "priority 20 has reached its limit" in text
        queued += queue(picker, proxy, (PATH, {}))
        status, said, text = proxy.refuse(PATH)
        assert status == 429 and "8 requests are waiting" in text and said[REASON] == "rejected-saturated"
        full = 'inference_extension_flow_control_request_queue_duration_seconds_count{priority="%d",outcome="RejectedCapacity"}'
        numbers = picker.numbers()
        assert (numbers[full % 20], numbers[full % 0]) == (1, 1)
        for stream in queued + busy:
            stream.reset()


def test_queue_full_of_low_priority_makes_place(start):
    """A higher priority takes the place of the newest of the lowest, a fairness id with fewer waiting requests that of
    the id with the most. What is displaced is told so, and the picker serves on."""
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = queue(picker, proxy, *[(PATH, {FAIRNESS: "mallory"})] * 8)
        urgent = proxy.stream(headers("/v2/models/urgent/infer"))
        other = proxy.stream(headers(PATH, fields={FAIRNESS: "bob"}))
        for stream in (queued.pop(), queued.pop()):
            status, said, text = refusal_of(stream.next())
            assert status == 429 and said[REASON] == "rejected-saturated" and "took the place of this one" in text
        picker.wait_waiting(8)
        status, _, text = proxy.refuse(PATH, fields={FAIRNESS: "mallory"})
        assert status == 429 and "8 requests are waiting" in text
        finish(busy[0])
        assert endpoint_of(urgent.next()) in (A, B)
        name = 'inference_extension_flow_control_request_queue_duration_seconds_count{priority="0",outcome="%s"}'
        numbers = picker.numbers()
        assert numbers[name % "EvictedOther"] == 2
        assert sum(value for name, value in numbers.items() if "EvictedOther" in name and name.startswith(
            "llm_d_epp_flow_control_request_queue_duration_seconds_count{")) == 2
        for stream in [*queued, urgent, other, busy[1]]:
            stream.reset()


def test_queue_disconnect_passes_slot_on(start):
    """Reset while it waits, or right when it was called: the next one goes on."""
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = queue(picker, proxy, *[(PATH, {})] * 4)
        queued[1].reset()
        picker.wait_waiting(3)
        busy[0].reset()
        queued[0].reset()
        assert endpoint_of(queued[2].next()) in (A, B)
        finish(queued[2])
        assert endpoint_of(queued[3].next()) in (A, B)
        finish(queued[3])
        finish(busy[1])


def test_queue_of_many_ends_with_its_proxy(start):
    """A connection whose thousands of streams are closed in parts: by its reset, and by the end of the picker."""
    n = 1000
    picker = start(f"endpoints: [{A}]\nsaturation: {{max_in_flight: 1}}\n"
                   f"flow_control: {{max_requests: {n}, max_wait: 10m}}\n", "--drain-timeout", "100ms")
    waiting_one = h2.message(headers(PATH).SerializeToString())

    def crowd():
        connection = h2.Connection(picker.grpc_addresses[0])
        for _ in range(n):
            stream, head = connection.open(h2.call_fields(PROCESS.encode()))
            connection.send(head + h2.frame(h2.DATA, 0, stream, waiting_one))
        picker.wait_waiting(n)
        return connection
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream, = fill(proxy, 1)
        crowd().abort()
        picker.wait_waiting(0)
        finish(stream)
        assert proxy.pick(PATH) == A
    picker.wait_at_rest()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        held = fill(proxy, 1)
        with crowd():
            picker.stop()
        assert held and "drain timeout" in picker.log_text()


def test_queue_deadline_is_429(start):
    picker = start(POOL.replace("max_wait: 10m", "max_wait: 200ms"))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = proxy.stream(headers(PATH))
        status, said, text = refusal_of(queued.next())
        assert status == 429 and said["retry-after"] == "3" and said[REASON] == "rejected-ttl-expired"
        assert "200 ms" in json.loads(text)["error"] and "max_wait" in text
        assert queued.close() == []
        grpc_body = proxy.stream(headers("/inference.GRPCInferenceService/ModelInfer", config=DUPLEX,
                                         fields={"content-type": "application/grpc", "x-gateway-model-name": "digits"}))
        assert refusal_of(grpc_body.next())[0] == 429
        for stream in busy:
            finish(stream)
        assert picker.numbers()['inference_extension_flow_control_request_queue_duration_seconds_count'
                                '{priority="0",outcome="EvictedTTL"}'] == 2


UPSTREAM = POOL[:POOL.index("saturation")] + """---
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: queue-scorer}
  - {type: concurrency-detector, parameters: {maxConcurrency: 1}}
featureGates: [flowControl]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  priorityBands: [{priority: -1, maxRequests: 2, defaultRequestTTL: %s}, {priority: 20}]
"""


def test_queue_upstream_negative_band_waits(start):
    """Below the others, up to its maxRequests, and without regard to fairness ids."""
    picker = start(UPSTREAM % "10m")
    batch = {OBJECTIVE: "batch"}
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = queue(picker, proxy, (PATH, batch), ("/v2/models/spare/infer", {}), (PATH, {FAIRNESS: "x"}),
                       (PATH, {FAIRNESS: "x"}), (PATH, {FAIRNESS: "y"}), (PATH, {OBJECTIVE: "interactive"}))
        status, said, text = proxy.refuse(PATH, fields=batch)
        assert status == 429 and said[REASON] == "rejected-saturated"
        assert "priority -1 has reached its limit of requests" in text
        last = busy[0]
        for place in (5, 2, 3, 4, 0, 1):
            finish(last)
            last = queued[place]
            assert endpoint_of(last.next()) in (A, B)
        for stream in (last, busy[1]):
            finish(stream)


def test_queue_upstream_band_has_a_ttl_of_its_own(start):
    picker = start(UPSTREAM % "150ms")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        other = queue(picker, proxy, (PATH, {}))[0]
        queued = proxy.stream(headers(PATH, fields={OBJECTIVE: "batch"}))
        status, said, text = refusal_of(queued.next())
        assert status == 429 and said[REASON] == "rejected-ttl-expired" and "150 ms" in text
        finish(busy[0])
        assert endpoint_of(other.next()) in (A, B)
        for stream in (other, busy[1]):
            finish(stream)


def test_queue_scale_from_zero(start):
    """Requests wait for the first endpoint, and after noEndpointRequestTTL get 503."""
    pool = UPSTREAM.replace("flowControl:\n", "flowControl:\n  noEndpointRequestTTL: %s\n")
    empty = pool.replace(f"[{A}, {B}]", "[]")
    picker = start(empty % ("10m", "10m"), "--reload-interval", "50ms")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        queued = queue(picker, proxy, (PATH, {}), (PATH, {OBJECTIVE: "batch"}), (PATH, {OBJECTIVE: "interactive"}))
        picker.write_pool(pool % ("10m", "10m"))
        for place in (2, 0):
            assert endpoint_of(queued[place].next()) in (A, B)
        finish(queued[2])
        assert endpoint_of(queued[1].next()) in (A, B)
        for place in (0, 1):
            finish(queued[place])
    picker = start(empty % ("150ms", "10m"))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        status, said, text = refusal_of(proxy.stream(headers(PATH)).next())
        assert status == 503 and "150 ms in the request queue (flow_control.no_endpoint_wait)" in text


def test_queue_serves_the_least_served_agent_first(start):
    """Programs by the headers of their agents. What their requests cost is in the responses, or else estimated by the
    bodies' lengths."""
    picker = start(UPSTREAM.replace("  - {type: queue-scorer}\n", "  - {type: queue-scorer}\n"
                                    "  - {type: program-aware-fairness, parameters: {lasWeightHeadWait: 0}}\n"
                                    "  - {type: agent-identity, parameters: {additionalSessionHeaders: [X-Team]}}\n")
                   .replace("flowControl:\n", "flowControl:\n"
                            "  defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}\n") % "10m")
    coder, team = {"x-claude-code-session-id": "1"}, {"x-team": "a", "session-id": "1"}
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for fields, length in ((team, "400"), ({FAIRNESS: "b", "session-id": "1"}, "2000")):
            stream = proxy.stream(headers(PATH, fields={"content-length": length, **fields}))
            assert endpoint_of(stream.next()) in (A, B)
            finish(stream)
        stream = proxy.stream(headers(PATH, fields={"content-length": "4", **coder}))
        assert endpoint_of(stream.next()) in (A, B)
        stream.send(answer_headers())
        stream.send(answer_body(b'{"usage": {"prompt_tokens": 200, "completion_tokens": 900}}', end=True))
        stream.close()
        busy = fill(proxy)
        queued = queue(picker, proxy, (PATH, coder), (PATH, {FAIRNESS: "b"}), (PATH, team), (PATH, {"session_id": "2"}))
        last = busy[0]
        for place in (3, 2, 1, 0):
            finish(last)
            last = queued[place]
            assert endpoint_of(last.next()) in (A, B)
        for stream in (last, busy[1]):
            finish(stream)


def completion(model, size=0):
    return json.dumps({"prompt": "x" * size, "model": model, "stream": True}).encode()


@pytest.mark.parametrize("config", ["NONE NONE", "STREAMED NONE", "BUFFERED NONE", DUPLEX])
def test_queue_model_in_body(start, config):
    """In each mode; what comes of a body while its request waits follows then, as it is."""
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        text = completion("old", 3000)
        stream = proxy.stream(headers("/v1/completions", config=config))
        if config == DUPLEX:
            stream.send(body(text[:3500]))
            picker.wait_waiting(1)
            stream.send(body(text[3500:]), body(b"more", end=True))
            stream.send()
        elif config.startswith("BUFFERED"):
            assert set_headers(stream.next()) == {}
            stream.send(body(text, end=True))
        picker.wait_waiting(1)
        finish(busy[0])
        said = stream.next()
        assert endpoint_of(said) in (A, B)
        if config == DUPLEX:
            got = b""
            while not got.endswith(b"more"):
                said = stream.next().request_body.response.body_mutation.streamed_response
                got += said.body
            assert said.end_of_stream and got == completion("new", 3000) + b"more"
        elif config.startswith("BUFFERED"):
            assert said.request_body.response.body_mutation.body == completion("new", 3000)
        finish(stream)
        finish(busy[1])


def test_queue_long_body_is_bounded(start):
    """It is held up to the limit of a body; then the proxy has to wait with it, too."""
    picker = start(POOL.replace("max_bytes: 1MiB", "max_bytes: 100MiB"), "--max-body-size", "100KiB")
    piece, n = b"x" * 50000, 200
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        stream = proxy.stream(headers(PATH, config=DUPLEX), *[body(piece)] * n, body(b"", end=True))
        picker.wait_waiting(1)
        numbers = picker.wait_until(lambda now: now["sluice_pick_held_bytes"] > 100000, "a body that is held")
        assert numbers["sluice_pick_held_bytes"] < 200000
        finish(busy[0])
        assert endpoint_of(stream.next()) in (A, B)
        length, ended = 0, False
        while not ended:
            said = stream.next().request_body.response.body_mutation.streamed_response
            length += len(said.body)
            ended = said.end_of_stream
        assert length == n * len(piece)
        finish(stream)
        finish(busy[1])


def test_queue_bytes_over_limit_is_429(start):
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        stream = proxy.stream(headers(PATH, config=DUPLEX))
        picker.wait_waiting(1)
        stream.send(*[body(b"x" * 60000)] * 30)
        status, said, text = refusal_of(stream.next())
        assert status == 429 and said[REASON] == "rejected-saturated" and "1048576 bytes" in text
        for one in busy:
            finish(one)


def test_queue_local_reply_leaves_queue(start):
    """Nobody waits for a pick any more: a local reply, or a stream that ends in order."""
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = queue(picker, proxy, (PATH, {}), (PATH, {}))
        queued[0].send(answer_headers(504, end=True))
        assert queued[0].next().WhichOneof("response") == "response_headers"
        assert queued[0].close() == []
        assert queued[1].close() == []
        picker.wait_waiting(0)
        for one in busy:
            finish(one)


def test_queue_full_subset_does_not_block_others(start):
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        first = proxy.stream(headers(PATH, hint=A))
        assert endpoint_of(first.next()) == A
        narrow = proxy.stream(headers(PATH, hint=A))
        picker.wait_waiting(1)
        second = proxy.stream(headers(PATH))
        assert endpoint_of(second.next()) == B
        both = queue(picker, proxy, (PATH, {}))
        finish(second)
        assert endpoint_of(both[0].next()) == B
        finish(first)
        assert endpoint_of(narrow.next()) == A
        finish(narrow)
        finish(both[0])


def test_queue_pool_growth_admits(start):
    picker = start(POOL, "--reload-interval", "50ms")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = queue(picker, proxy, *[(PATH, {})] * 3)
        picker.write_pool(POOL.replace(f", {B}]", f", {B}, 10.0.0.3:8000]"))
        assert endpoint_of(queued[0].next()) == "10.0.0.3:8000"
        picker.wait_waiting(2)
        picker.write_pool("\n".join(line for line in POOL.split("\n") if not line.startswith("flow_control")))
        for stream in queued[1:]:
            assert endpoint_of(stream.next()) in (A, B)
        for stream in queued + busy:
            finish(stream)


def test_queue_drain_admits_waiting(start):
    """Those that wait when it ends go on as there is room."""
    picker = start()
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = queue(picker, proxy, (PATH, {}))
        picker.signal(signal.SIGTERM)
        picker.wait_for(lambda: "draining" in picker.log_text(), "a drain")
        finish(busy[0])
        assert endpoint_of(queued[0].next()) in (A, B)
        finish(queued[0])
        finish(busy[1])
    assert picker.wait_exit() == 0


# ---- loads ---------------------------------------------------------------------------------------

def test_queue_scraped_load_admits(start):
    """By what an endpoint says of its queue: full, and then not."""
    with MetricPages("vllm:num_requests_waiting 5\n") as server:
        picker = start(f"endpoints: [{server.address}]\nmetrics: {{preset: vllm, interval: 50ms, max_age: 1m}}\n"
                       "saturation: {queue_depth: 5}\nflow_control: {max_wait: 10m}\n", "--reload-interval", "50ms")
        picker.wait_until(lambda now: now.get(
            f'sluice_pick_endpoint_waiting_requests{{endpoint="{server.address}"}}') == 5, "a load")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            stream = proxy.stream(headers("/v1/completions"))
            picker.wait_waiting(1)
            page = http1.request(picker.metrics_address, "GET", "/debug/pick?path=/v1/completions").body.decode()
            assert "queued: every endpoint is full (queue_depth)" in page
            server.says("vllm:num_requests_waiting 0\n")
            assert endpoint_of(stream.next()) == server.address
            finish(stream)


# ---- many ----------------------------------------------------------------------------------------

def test_queue_many_fairness_ids(start):
    """Each has its turn; those that are too many are told; long ids cost no more than short ones."""
    picker = start(POOL.replace("max_requests: 8", "max_requests: 300").replace("1MiB", "64MiB"))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = fill(proxy)
        queued = [proxy.stream(headers(PATH, fields={FAIRNESS: f"{i}" + "x" * 2000})) for i in range(300)]
        picker.wait_waiting(300)
        state = http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()
        assert "of 300 fairness ids" in state
        assert proxy.refuse(PATH, fields={FAIRNESS: "late"})[0] == 429

        def go_on(stream):
            assert endpoint_of(stream.next()) in (A, B)
            finish(stream)
        with futures.ThreadPoolExecutor(len(queued)) as threads:  # in whichever order they came in
            done = [threads.submit(go_on, stream) for stream in queued]
            for stream in busy:
                finish(stream)
            for one in done:
                one.result()


# ---- a real proxy --------------------------------------------------------------------------------

@pytest.mark.parametrize("config", ["headers-only.yaml", "full-duplex.yaml"])
def test_queue_with_envoy(tmp_path, config):
    """Three servers, all busy: who waits goes on by priority, a client that leaves waits no more, and what is
    refused reaches the client."""
    def of_pool(pool):
        return pool + ("objectives: [{name: interactive, priority: 20}, {name: batch, priority: -1}]\n"
                       "saturation: {max_in_flight: 1}\nflow_control: {max_requests: 3, max_wait: 10m}\n")

    def trusted(text):
        """This proxy's clients may set a priority (docs/picker/profiles.md)."""
        return re.sub(r" *- {remove: x-[a-z-]*-inference-objective}\n", "", text)
    replies = {}
    with contextlib.ExitStack() as ending:
        echoes = ending.enter_context(echo.three())
        gateway = Gateway(tmp_path, config, [one.address for one in echoes], change=of_pool, more=trusted)
        ending.callback(gateway.kill)

        def ask(name, *args):
            def run():
                replies[name] = gateway.curl("/v2/models/digits/infer", "-H", "x-answer: pause", *args, body=b"{}")
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            return thread

        def wait_queue(low, high):
            size = 'inference_extension_flow_control_queue_size{priority="%d"}'
            gateway.picker.wait_until(lambda now: (now.get(size % 0, 0), now.get(size % 20, 0)) == (low, high),
                                      f"{low} and {high} that wait")
        busy = [ask(f"busy{i}") for i in range(3)]
        gateway.picker.wait_until(lambda _: [one.n_now for one in echoes] == [1, 1, 1], "three at the servers")
        low = ask("low")
        wait_queue(1, 0)
        high = ask("high", "-H", f"{OBJECTIVE}: interactive")
        wait_queue(1, 1)
        with http1.Connection(gateway.address) as client:
            client.send(http1.post(b"/v2/models/digits/infer", b"{}"))
            wait_queue(2, 1)
        wait_queue(1, 1)
        late = ask("late")
        wait_queue(2, 1)
        for args in ((), ("-H", f"{OBJECTIVE}: batch")):
            reply = gateway.curl("/v2/models/digits/infer", *args, body=b"{}")
            assert reply.status == 429 and reply.headers[REASON] == "rejected-saturated", reply
            assert reply.headers["retry-after"] == "1" and json.loads(reply.body)["error"]
        for one, left in ((0, (2, 0)), (1, (1, 0)), (2, (0, 0))):
            echoes[one].let_go()
            wait_queue(*left)
        for thread in (*busy, low, high, late):
            while thread.is_alive():
                for one in echoes:
                    one.let_go()
                thread.join(0.05)
        assert {name: reply.status for name, reply in replies.items()} == dict.fromkeys(replies, 200)
        assert len(replies) == 6
        gateway.picker.wait_at_rest()
        wait_queue(0, 0)
        gateway.stop()


FLOODED = """objectives: [{name: interactive, priority: 100}]
saturation: {max_in_flight: 1}
flow_control: {max_requests: 4, max_wait: 10m}
"""


@pytest.mark.parametrize("crowd, other", [
    ({}, {OBJECTIVE: "interactive"}), ({FAIRNESS: "mallory"}, {FAIRNESS: "bob"})], ids=["priority", "fairness"])
def test_queue_full_of_a_flood_takes_others_with_envoy(tmp_path, crowd, other):
    """bug-N10: the queue is full of one client's requests. Another one's takes the place of the newest, and is served."""
    def trusted(text):
        return re.sub(r" *- {remove: x-[a-z-]*-(inference-objective|inference-fairness-id)}\n", "", text)

    def waiting_now(gateway):
        return gateway.picker.wait_waiting(4)

    def args_of(fields):
        return [arg for name, value in fields.items() for arg in ("-H", f"{name}: {value}")]
    replies = collections.defaultdict(list)
    with contextlib.ExitStack() as ending:
        echoes = ending.enter_context(echo.three())
        gateway = Gateway(tmp_path, "full-duplex.yaml", [one.address for one in echoes],
                          change=lambda pool: pool + FLOODED, more=trusted)
        ending.callback(gateway.kill)
        threads = []

        def ask(name, fields):
            def run():
                replies[name].append(gateway.curl("/v2/models/digits/infer", "-H", "x-answer: pause", *args_of(fields),
                                                  body=b"{}"))
            threads.append(threading.Thread(target=run, daemon=True))
            threads[-1].start()
        for _ in range(3):
            ask("crowd", crowd)
        gateway.picker.wait_until(lambda now: now["sluice_pick_pool_requests_in_flight"] == 3, "three in flight")
        for _ in range(4):
            ask("crowd", crowd)
        waiting_now(gateway)
        for _ in range(2):  # each takes a place
            ask("other", other)
        gateway.picker.wait_until(lambda _: len(replies["crowd"]) == 2, "two refusals")
        assert [reply.status for reply in replies["crowd"]] == [429, 429]
        waiting_now(gateway)
        while any(thread.is_alive() for thread in threads):
            for one in echoes:
                one.let_go()
            threads[0].join(0.02)
        assert [reply.status for reply in replies["other"]] == [200, 200]
        assert [reply.status for reply in replies["crowd"]].count(200) == 5
        gateway.stop()

"""`/metrics` under upstream's names: the list of names, types and labels, and the selectors of the autoscalers, alerts
and dashboards that llm-d's guides have, over the page of a live picker."""
import json
import re

import grpc
import pytest

from lib import http1
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy, answer_body, answer_headers, body, endpoint_of, headers, refusal_of

pytestmark = pytest.mark.tsan

PREFIX = "llm_d_epp_"
A = "127.0.0.1:1"
FAIRNESS, OBJECTIVE = "x-gateway-inference-fairness-id", "x-gateway-inference-objective"
PAGE = """vllm:num_requests_running{{m="x"}} {running}
vllm:num_requests_waiting{{m="x"}} {waiting}
vllm:kv_cache_usage_perc{{m="x"}} {used}
"""
POOL_OBJECT = """---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: chat-pool}
spec:
  selector: {}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: sluice, port: {number: 9002}}
"""
KEDA = f"""profile:
  plugins:
  - {{type: queue-scorer}}
  - {{type: prefix-cache-scorer}}
endpoints: [{A}]
saturation: {{max_in_flight: 1}}
flow_control: {{max_requests: 2}}
objectives: [{{name: urgent, priority: 5}}]
""" + POOL_OBJECT
POOL = """endpoints:
- {{address: {one}, labels: {{llm-d.ai/role: prefill}}}}
- {{address: {other}, labels: {{llm-d.ai/role: decode}}}}
metrics: {{preset: vllm, interval: 50ms, timeout: 20s}}
saturation: {{queue_depth: 5, kv_cache: 0.8}}
""" + POOL_OBJECT.replace("{", "{{").replace("}", "}}")
WHOLE = """endpoints: []
metrics: {preset: vllm}
---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}]
"""

EVICTING = f"""endpoints: [{A}]
objectives: [{{name: spare, priority: -1}}, {{name: urgent, priority: 5}}]
---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {{type: queue-scorer}}
- {{type: concurrency-detector, parameters: {{maxConcurrency: 1}}}}
featureGates: [flowControl]
flowControl: {{enableEviction: true, saturationDetector: {{pluginRef: concurrency-detector}}}}
""" + POOL_OBJECT
REVISION, ROLE = "disaggregatedset.x-k8s.io/revision", "disaggregatedset.x-k8s.io/role"
ROLLOUT = "endpoints:\n" + "".join(
    f'- {{address: "10.0.0.{i}:8000", labels: {{set: a, {REVISION}: {revision}, {ROLE}: {role}}}}}\n'
    for i, (revision, role) in enumerate([("one", "prefill"), ("one", "decode"), ("two", "prefill"), ("two", "decode"),
                                          ("two", "decode"), ("two", "decode"), ("three", "decode")])) + f"""---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {{type: queue-scorer}}
- type: disaggregatedset-rollout-screener
  name: rollout
  parameters:
    scope: {{labelSelector: set=a}}
    revisionGating: {{mode: max-role, requireRoles: {{values: [prefill, decode]}}}}
    headerSelectors: [{{name: revision, headerName: x-revision, labelKey: {REVISION}, mode: strict}}]
"""

MEDIA = f"""endpoints: [{A}, 127.0.0.1:2]
---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {{type: mm-embeddings-cache-producer, name: pictures}}
- {{type: mm-embeddings-cache-scorer, parameters: {{producerName: pictures}}}}
- {{type: queue-scorer}}
"""

REQUEST = "model_name target_model_name fairness_id priority"
QUEUE = "fairness_id priority inference_pool model_name target_model_name"
# Name → type and labels, of pkg/epp/metrics and the in-flight load producer.
FAMILIES = {
    "info": ("gauge", "build_ref"),
    "ready_endpoints": ("gauge", "name"),
    "average_kv_cache_utilization": ("gauge", "name"),
    "average_queue_size": ("gauge", "name"),
    "average_running_requests": ("gauge", "name"),
    "std_dev_kv_cache_utilization": ("gauge", "name"),
    "std_dev_queue_size": ("gauge", "name"),
    "std_dev_running_requests": ("gauge", "name"),
    "per_endpoint_queue_size": ("gauge", "name model_server_endpoint"),
    "inflight_requests": ("gauge", "endpoint_name namespace producer_name fairness_id priority"),
    "inflight_tokens": ("gauge", "endpoint_name namespace producer_name fairness_id priority"),
    "flow_control_pool_saturation": ("gauge", "inference_pool stage"),
    "flow_control_stale_endpoints": ("gauge", "detector"),
    "flow_control_revocations_issued_total": ("counter", "priority inference_pool"),
    "flow_control_revocations_total": ("counter", "outcome inference_pool"),
    "flow_control_reclaim_target": ("gauge", "inference_pool"),
    "flow_control_pending_reclaim": ("gauge", "inference_pool"),
    "flow_control_revocation_confirmation_seconds": ("histogram", "inference_pool"),
    "request_total": ("counter", REQUEST),
    "request_error_total": ("counter", f"{REQUEST} error_code"),
    "request_running": ("gauge", REQUEST),
    "request_duration_seconds": ("histogram", REQUEST),
    "request_size_bytes": ("histogram", REQUEST),
    "response_size_bytes": ("histogram", REQUEST),
    "request_input_tokens": ("histogram", REQUEST),
    "request_output_tokens": ("histogram", REQUEST),
    "request_cached_tokens": ("histogram", REQUEST),
    "request_ntpot_seconds": ("histogram", REQUEST),
    "request_ttft_seconds": ("histogram", f"{REQUEST} streaming"),
    "request_streaming_tpot_seconds": ("histogram", REQUEST),
    "request_streaming_itl_seconds": ("histogram", REQUEST),
    "flow_control_queue_size": ("gauge", QUEUE),
    "flow_control_queue_bytes": ("gauge", QUEUE),
    "flow_control_request_queue_duration_seconds": (
        "histogram", "fairness_id priority outcome inference_pool model_name target_model_name"),
    "flow_control_request_enqueue_duration_seconds": ("histogram", "fairness_id priority outcome"),
    "flow_control_dispatch_cycle_duration_seconds": ("histogram", ""),
    "scheduler_e2e_duration_seconds": ("histogram", ""),
    "scheduler_attempts_total": ("counter", "status target_model_name endpoint_name namespace port"),
    "extproc_streams_total": ("counter", "code"),
    "extproc_streams_inflight": ("gauge", ""),
    "extproc_stream_duration_seconds": ("histogram", ""),
    "datalayer_poll_errors_total": ("counter", "source_type"),
    "datalayer_extract_errors_total": ("counter", "source_type extractor_type"),
    "prefix_indexer_size": ("gauge", "plugin_name plugin_type"),
    "prefix_indexer_hit_ratio": ("histogram", "plugin_name plugin_type"),
    "prefix_indexer_hit_bytes": ("histogram", "plugin_name plugin_type"),
    "plugin_duration_seconds": ("histogram", "extension_point plugin_type plugin_name"),
    "encoder_cache_queries_total": ("counter", "plugin_type plugin_name modality"),
    "encoder_cache_hits_total": ("counter", "plugin_type plugin_name pod modality"),
    "encoder_cache_hit_ratio": ("histogram", "plugin_type plugin_name"),
    "prefix_predicted_cached_tokens": ("histogram", "plugin_name plugin_type"),
    "prefix_prompt_tokens": ("histogram", "plugin_name plugin_type"),
    "disaggregatedset_strict_header_no_match_total": ("counter", "plugin_type plugin_name selector"),
    "disaggregatedset_revision_gating_share": ("gauge", "plugin_type plugin_name mode revision"),
}
# The bounds of histograms, likewise.
LONG_TIMES = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120,
              180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
SHORT_TIMES = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32778, 65536, 131072, 262144, 524288,
          1048576)
BOUNDS = {
    "response_size_bytes": TOKENS[:15],
    "request_input_tokens": TOKENS,
    "request_output_tokens": TOKENS[:12],
    "request_cached_tokens": TOKENS,
    "request_ntpot_seconds": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
    "request_ttft_seconds": LONG_TIMES[:24],
    "request_streaming_tpot_seconds": (0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2,
                                       0.3, 0.4, 0.5, 0.6, 0.8, 1, 2),
    "request_streaming_itl_seconds": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2),
    "request_duration_seconds": LONG_TIMES,
    "request_size_bytes": tuple(64 << n for n in range(25)),
    "flow_control_request_queue_duration_seconds": (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                    2.5, 5, 10, 30, 60),
    "scheduler_e2e_duration_seconds": SHORT_TIMES,
    "flow_control_request_enqueue_duration_seconds": SHORT_TIMES,
    "flow_control_dispatch_cycle_duration_seconds": SHORT_TIMES,
    "flow_control_revocation_confirmation_seconds": (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    "prefix_indexer_hit_ratio": tuple(n / 10 for n in range(11)),
    "encoder_cache_hit_ratio": tuple(n / 10 for n in range(11)),
    "plugin_duration_seconds": SHORT_TIMES,
    "prefix_predicted_cached_tokens": TOKENS,
    "prefix_prompt_tokens": TOKENS,
    "prefix_indexer_hit_bytes": (0, *(16 << n for n in range(13))),
    "extproc_stream_duration_seconds": (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600),
}
SERIES = re.compile(r'([a-zA-Z0-9_]+)(?:\{(.*)\})?$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')
TESTS = {"=": lambda value, text: value == text, "!=": lambda value, text: value != text,
         "=~": lambda value, text: re.fullmatch(text, value), "!~": lambda value, text: not re.fullmatch(text, value)}


def series_of(numbers):
    """Returns: (name, labels, value) of each series."""
    for key, value in numbers.items():
        name, labels = SERIES.match(key).groups()
        yield name, dict(LABEL.findall(labels or "")), value


def select(numbers, selector):
    """The values of the series that a selector of PromQL matches. A label that is absent is empty."""
    name, _, matchers = selector.partition("{")
    matchers = MATCHER.findall(matchers)
    return [value for found, labels, value in series_of(numbers) if found == PREFIX + name and all(
        TESTS[test](labels.get(label, ""), text) for label, test, text in matchers)]


def labels_by_family(numbers, types):
    """Returns: family without the prefix → the names of its labels, le excepted."""
    found = {}
    for name, labels, _ in series_of(numbers):
        if name.startswith(PREFIX):
            family = re.sub("_(bucket|sum|count)$", "", name) if name not in types else name
            found.setdefault(family.removeprefix(PREFIX), set()).add(" ".join(one for one in labels if one != "le"))
    return found


def types_of(picker):
    """Family → its type, of the page's TYPE lines."""
    page = http1.request(picker.metrics_address, "GET", "/metrics").body.decode()
    return dict(line.split(" ")[2:4] for line in page.splitlines() if line.startswith("# TYPE "))


def start_pool(start_picker, one, other, *flags):
    picker = start_picker(POOL.format(one=one.address, other=other.address), *flags)
    picker.wait_loads(2)
    return picker


@pytest.fixture
def pages():
    with MetricPages(PAGE.format(running=1, waiting=4, used=0.5)) as one, \
            MetricPages(PAGE.format(running=3, waiting=1, used=0.2)) as other:
        yield one, other


def bounds_by_family(numbers):
    found = {}
    for name, labels, _ in series_of(numbers):
        if name.startswith(PREFIX) and "le" in labels and labels["le"] != "+Inf":
            found.setdefault(name.removeprefix(PREFIX).removesuffix("_bucket"), set()).add(float(labels["le"]))
    return {name: tuple(sorted(bounds)) for name, bounds in found.items()}


def completion(proxy, model, config="FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED", **fields):
    """A request to OpenAI's API, whose body names the model."""
    stream = proxy.stream(headers("/v1/completions", config=config, fields=fields))
    return stream.send(body(json.dumps({"model": model, "prompt": "x"}).encode(), end=True))


def run_one(picker, proxy):
    """A request that has the endpoint, so that the next one waits."""
    stream = completion(proxy, "m")
    picker.wait_until(lambda now: sum(select(now, "request_running")) == 1, "one that runs")
    return stream


def answer(stream, status=200):
    """The answer of the endpoint, to its end."""
    stream.send(answer_headers(status, end=True))
    return stream.close()


EVENTS = (b'data: {"choices":[{"text":"a"}],"usage":null}\n\n', b'data: {"choices":[{"text":"b"}],"usage":null}\n\n',
          b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":3,"prompt_tok',
          b'ens_details":{"cached_tokens":64}}}\n\ndata: [DONE]\n\n')
JSON = b'{"choices":[{"text":"ab"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'


def answer_stream(stream, pieces, **fields):
    """The answer of the endpoint as the proxy shows it, piece by piece."""
    stream.send(answer_headers(fields={name.replace("_", "-"): value for name, value in fields.items()}))
    stream.send(*(answer_body(piece, end=piece is pieces[-1]) for piece in pieces))
    return stream.close()


def start_keda(start_picker, *flags):
    """The plugins of the guide that scales by the queue; one request at a time."""
    picker = start_picker(KEDA, *flags)
    picker.wait_until(lambda now: select(now, "ready_endpoints") == [1], "an endpoint")
    return picker


def evict_one(picker):
    """A running request is ended for one that waits. Returns: the numbers afterwards."""
    with Proxy(picker.grpc_addresses[0]) as proxy:
        spare = completion(proxy, "m", **{OBJECTIVE: "spare"})
        assert [spare.next().WhichOneof("response") for _ in range(2)] == ["request_headers", "request_body"]
        urgent = completion(proxy, "n", **{OBJECTIVE: "urgent"})
        status, fields, text = refusal_of(spare.next())
        assert spare.close() == []
        assert (status, text) == (429, "request evicted by flow control")
        assert fields["x-llm-d-request-dropped-reason"] == "evicted"
        urgent.next()
        answer(urgent)
        return picker.wait_at_rest()


def test_upstream_evictions(start_picker):
    numbers = evict_one(start_picker(EVICTING))
    pool = 'inference_pool="chat-pool"'
    assert select(numbers, f'flow_control_revocations_issued_total{{priority="5",{pool}}}') == [1]
    assert select(numbers, f'flow_control_revocations_total{{outcome="confirmed",{pool}}}') == [1]
    assert select(numbers, f'flow_control_revocations_total{{outcome="timed_out",{pool}}}') == [0]
    assert select(numbers, f"flow_control_revocation_confirmation_seconds_count{{{pool}}}") == [1]
    assert select(numbers, f"flow_control_reclaim_target{{{pool}}}") == [0]
    assert select(numbers, 'request_error_total{model_name="(none)",priority="-1",error_code="ResourceExhausted"}') == [1]
    assert numbers['sluice_errors_total{protocol="pick",reason="EVICTED"}'] == 1


def test_upstream_times_of_flow_control(start_picker):
    """One request that is sent, two that are queued, of other models, and one that finds the queue full."""
    picker = start_keda(start_picker)
    count = 'flow_control_request_enqueue_duration_seconds_count{fairness_id="%s",priority="0",outcome="%s"}'
    with Proxy(picker.grpc_addresses[0]) as proxy:
        first = run_one(picker, proxy)
        streams = []
        for n, model in enumerate("mo", 1):
            streams.append(completion(proxy, model))
            picker.wait_until(lambda now, n=n: sum(select(now, "flow_control_queue_size")) == n, f"{n} that wait")
        assert refusal_of(completion(proxy, "p").close()[-1])[0] == 429
        numbers = picker.numbers()
        assert select(numbers, count % ("default-flow", "NotYetFinalized")) == [3]
        assert select(numbers, count % ("default-flow", "RejectedCapacity")) == [1]
        answer(first)
        for stream in streams:
            stream.next()
            answer(stream)
        numbers = picker.wait_at_rest()
    assert select(numbers, count % ("default-flow", "NotYetFinalized")) == [3]
    assert select(numbers, "flow_control_dispatch_cycle_duration_seconds_count")[0] >= 2


def test_upstream_names_types_and_labels(start_picker, pages):
    """After requests that are picked for, wait and fail, each family has a series, with upstream's labels and bounds."""
    picker = start_pool(start_picker, *pages)
    types = types_of(picker)
    assert {name.removeprefix(PREFIX): kind for name, kind in types.items() if name.startswith(PREFIX)} == {
        name: kind for name, (kind, _) in FAMILIES.items()}
    found = labels_by_family(picker.numbers(), types)
    picker = start_keda(start_picker)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        first, second = run_one(picker, proxy), completion(proxy, "m")
        picker.wait_until(lambda now: select(now, "flow_control_queue_size") == [1], "one that waits")
        answer(first, 500)
        answer_stream(second, EVENTS, content_type="text/event-stream")
        numbers = picker.wait_at_rest()
    show_media(other := start_picker(MEDIA), ("image_url", "http://a/1"))
    _, media = show_media(other, ("image_url", "http://a/1"))
    for some in (numbers, start_picker(WHOLE).numbers(), start_picker(ROLLOUT).numbers(),
                 evict_one(start_picker(EVICTING)), media):
        for name, labels in labels_by_family(some, types).items():
            found.setdefault(name, set()).update(labels)
    assert found == {name: {labels} for name, (_, labels) in FAMILIES.items()}
    assert bounds_by_family(numbers) | bounds_by_family(media) | bounds_by_family(evict_one(start_picker(EVICTING))) == BOUNDS


def test_upstream_requests_by_model_fairness_and_priority(start_picker):
    picker = start_keda(start_picker)
    labels = '{model_name="Qwen/Qwen3-32B",target_model_name="Qwen/Qwen3-32B",fairness_id="%s",priority="%d"}'
    plain, team = labels % ("default-flow", 0), labels % ("team-a", 5)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        first = completion(proxy, "Qwen/Qwen3-32B")
        picker.wait_until(lambda now: select(now, "request_running" + plain) == [1], "one that runs")
        second = completion(proxy, "Qwen/Qwen3-32B", **{FAIRNESS: "team-a", OBJECTIVE: "urgent"})
        numbers = picker.wait_until(lambda now: select(now, "flow_control_queue_size" + team) == [1], "one that waits")
        assert select(numbers, "request_running" + team) == [0]
        assert select(numbers, "flow_control_queue_bytes" + team)[0] > 4096
        assert select(numbers, 'flow_control_queue_size{inference_pool="chat-pool"}') == [1]
        answer(first)
        picker.wait_until(lambda now: select(now, "request_running" + team) == [1], "the other one runs")
        answer(second, 500)
        numbers = picker.wait_at_rest()
    for one in plain, team:
        assert select(numbers, "request_total" + one) == [1]
        assert select(numbers, "request_running" + one) == [0]
        assert select(numbers, "request_duration_seconds_count" + one) == [1]
        assert select(numbers, "request_size_bytes_sum" + one) == [len('{"model": "Qwen/Qwen3-32B", "prompt": "x"}')]
        waited = "flow_control_request_queue_duration_seconds_count" + one.replace("}", ',outcome="Dispatched"}')
        assert select(numbers, waited) == [1]
    assert select(numbers, "flow_control_queue_size" + team) == select(numbers, "flow_control_queue_bytes" + team) == [0]
    assert select(numbers, "flow_control_request_queue_duration_seconds_sum" + team)[0] > 0
    assert select(numbers, "request_error_total") == [1]
    assert select(numbers, "request_error_total" + team.replace("}", ',error_code="ModelServerError"}')) == [1]


def test_upstream_waits_that_fail_by_outcome(start_picker):
    picker = start_keda(start_picker)
    outcome = 'flow_control_request_queue_duration_seconds_count{outcome="%s"}'
    with Proxy(picker.grpc_addresses[0]) as proxy:
        first = run_one(picker, proxy)
        waiting = [completion(proxy, "m") for _ in range(2)]
        picker.wait_until(lambda now: select(now, "flow_control_queue_size") == [2], "two that wait")
        assert refusal_of(completion(proxy, "m").next())[0] == 429
        assert select(picker.numbers(), outcome % "RejectedCapacity") == [1]
        waiting[0].reset()
        picker.wait_until(lambda now: select(now, outcome % "EvictedContextCancelled") == [1], "one that has gone")
        answer(first)
        answer(waiting[1])
        numbers = picker.wait_at_rest()
    assert select(numbers, outcome % "Dispatched") == [2]
    assert select(numbers, 'request_error_total{error_code="ResourceExhausted"}') == [1]
    assert select(numbers, 'extproc_streams_total{code="Canceled"}') == [1]
    assert select(numbers, 'extproc_streams_total{code="OK"}') == [3]
    assert select(numbers, "extproc_streams_inflight") == [0]
    assert select(numbers, "extproc_stream_duration_seconds_count") == [4]


def test_upstream_tokens_of_streamed_response(start_picker):
    picker = start_keda(start_picker)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        said = answer_stream(completion(proxy, "m"), EVENTS, content_type="text/event-stream; charset=utf-8")
        numbers = picker.wait_at_rest()
    bodies = [one.response_body.response.body_mutation.streamed_response.body for one in said
              if one.WhichOneof("response") == "response_body"]
    assert b"".join(bodies) == b"".join(EVENTS)  # unchanged
    one = {name: select(numbers, name + '{model_name="m"}') for name in (
        "response_size_bytes_sum", "request_input_tokens_sum", "request_output_tokens_sum", "request_cached_tokens_sum",
        "request_ntpot_seconds_count", "request_streaming_tpot_seconds_count", "request_streaming_itl_seconds_count")}
    assert one == {"response_size_bytes_sum": [len(b"".join(EVENTS))], "request_input_tokens_sum": [100],
                   "request_output_tokens_sum": [3], "request_cached_tokens_sum": [64],
                   "request_ntpot_seconds_count": [1], "request_streaming_tpot_seconds_count": [1],
                   "request_streaming_itl_seconds_count": [3]}
    assert select(numbers, 'request_ttft_seconds_count{streaming="true"}') == [1]
    assert select(numbers, 'request_ttft_seconds_count{streaming="false"}') == []
    first, whole = select(numbers, "request_ttft_seconds_sum")[0], select(numbers, "request_duration_seconds_sum")[0]
    rest = select(numbers, "request_streaming_tpot_seconds_sum")[0] * 2  # two tokens after the first
    assert 0 < first <= whole and 0 <= rest <= whole


def test_upstream_tokens_of_whole_response(start_picker):
    """Without a stream the first token comes with the last. A body that is compressed, or that the proxy does not show,
    has no tokens."""
    picker = start_keda(start_picker)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        answer_stream(completion(proxy, "m"), [JSON[:50], JSON[50:]], content_type="application/json")
        answer_stream(completion(proxy, "packed"), [JSON], content_encoding="gzip")
        answer(completion(proxy, "hidden", config="FULL_DUPLEX_STREAMED NONE"))
        numbers = picker.wait_at_rest()
    assert select(numbers, "request_input_tokens_sum") == [7] and select(numbers, "request_output_tokens_sum") == [2]
    assert select(numbers, "request_cached_tokens_count") == []
    assert select(numbers, "request_streaming_tpot_seconds_count") == []
    assert select(numbers, "request_streaming_itl_seconds_count") == []
    counts = {model: (select(numbers, f'request_ttft_seconds_count{{model_name="{model}",streaming="false"}}'),
                      select(numbers, f'response_size_bytes_sum{{model_name="{model}"}}'))
              for model in ("m", "packed", "hidden")}
    assert counts == {"m": ([1], [len(JSON)]), "packed": ([1], [len(JSON)]), "hidden": ([], [])}


def test_upstream_attempts_by_endpoint_and_model(start_picker):
    """Of the models at one endpoint sixteen are told apart."""
    picker = start_picker(f"endpoints: [{A}]\nmodels: [{{name: digits, targets: [{{model: v1}}]}}]\n"
                          "unknown_models: pass\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for _ in range(2):
            proxy.pick("/v2/models/digits/infer")
        for n in range(18):
            proxy.pick(f"/v2/models/m{n}/infer")
        numbers = picker.wait_at_rest()
    one = f'scheduler_attempts_total{{status="success",endpoint_name="{A}",port="1",target_model_name="%s"}}'
    assert select(numbers, one % "v1") == [2] and select(numbers, one % "m0") == [1]
    assert select(numbers, one % "other") == [3]
    assert sum(select(numbers, "scheduler_attempts_total")) == 20
    assert f'inference_extension_scheduler_attempts_total{{status="success",target_model_name="v1",pod_name="{A}"' \
           ',namespace="",port="1"}' in numbers
    picker = start_picker(f"endpoints: []\nmodels: [{{name: a, targets: [{{model: v1}}]}}]\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for team in "x", "y":
            proxy.refuse("/v2/models/a/infer", fields={FAIRNESS: team})
        numbers = picker.wait_at_rest()
    assert select(numbers, 'scheduler_attempts_total{status="failure",endpoint_name=""}') == [2]


def models_in(numbers):
    return {labels["model_name"] for name, labels, _ in series_of(numbers) if name == PREFIX + "request_total"}


def test_upstream_made_up_models_are_bounded(start_picker):
    """Names without a success take a hundred rows at most; a real one gets its own with its first success."""
    picker = start_picker(f"endpoints: [{A}]\nmodels: [{{name: digits, targets: [{{model: v1}}]}}]\nunknown_models: pass\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for n in range(150):
            proxy.pick(f"/v2/models/made-up-{n}/infer")
        numbers = picker.wait_at_rest()
        assert len(models_in(numbers)) == 101 and select(numbers, 'request_total{model_name="other"}') == [50]
        for _ in range(2):
            stream = proxy.stream(headers("/v2/models/real/infer"))
            stream.next()
            answer(stream)
        proxy.pick("/v2/models/digits/infer")
        numbers = picker.wait_at_rest()
    assert select(numbers, 'request_total{model_name="real"}') == [1]
    assert select(numbers, 'request_running{model_name="real"}') == [0]
    assert select(numbers, 'request_total{model_name="other"}') == [51]
    assert select(numbers, 'request_total{model_name="digits"}') == [1]
    assert select(numbers, 'request_total{model_name="made-up-0"}') == [1]


def test_upstream_fairness_ids_are_bounded(start_picker):
    picker = start_picker(f"endpoints: [{A}]\n", "--fairness-id-metric-label-limit", "2")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for name in "a", "b", "c", "d", "a":
            proxy.pick(fields={FAIRNESS: name})
        numbers = picker.wait_at_rest()
    assert {labels["fairness_id"]: value for name, labels, value in series_of(numbers)
            if name == PREFIX + "request_total"} == {"a": 2, "b": 1, "other": 2}


# The selectors of the guides' autoscalers, alerts and dashboards (docs/observability.md); `namespace`, `service` and
# `pod` are labels of Prometheus. A name in brackets is that of a label by which the expression sums.
GUIDES = {
    "keda-epp: the queue": 'flow_control_queue_size{model_name="m"}',
    "wva: scale from zero": 'flow_control_queue_size{target_model_name="m"}',
    "wva: bytes in the queue": 'flow_control_queue_bytes{target_model_name="m"}',
    "keda-epp: saturation": 'flow_control_pool_saturation{inference_pool="chat-pool"}',
    "keda-epp: running": 'request_running{model_name="m"}',
    "wva: picks": 'scheduler_attempts_total{status="success"} [endpoint_name]',
    "token-aware": 'inflight_tokens{producer_name="inflight-load-producer",endpoint_name=~".*:.*"} [endpoint_name]',
    "multi-cluster: cache": 'average_kv_cache_utilization{name="chat-pool"}',
    "multi-cluster: queue": 'average_queue_size{name="chat-pool"}',
    "alert: no ready endpoints, metrics absent": "ready_endpoints [name]",
    "alert: error ratio": "request_error_total",
    "alert: of requests": "request_total",
    "alert: poll errors": "datalayer_poll_errors_total [source_type]",
    "alert: extract errors": "datalayer_extract_errors_total [source_type extractor_type]",
    "alert: stream errors": 'extproc_streams_total{code!~"OK|Canceled"} [code]',
    "dashboard: errors": "request_error_total [error_code model_name]",
    "dashboard: duration": 'request_duration_seconds_bucket{model_name="m"} [le]',
    "dashboard: picks": "scheduler_e2e_duration_seconds_bucket [le]",
    "dashboard: sizes": "request_size_bytes_bucket [le]",
    "dashboard: response sizes": "response_size_bytes_bucket [le]",
    "dashboard: input tokens": "request_input_tokens_bucket [le]",
    "dashboard: output tokens": "request_output_tokens_bucket [le]",
    "slo-aware: first token": 'request_ttft_seconds_bucket{model_name="m"} [le streaming]',
    "slo-aware: per token": 'request_streaming_tpot_seconds_bucket{model_name="m"} [le]',
    "dashboard: queue": "flow_control_queue_size [priority fairness_id]",
    "dashboard: waits": 'flow_control_request_queue_duration_seconds_bucket{outcome="Dispatched"} '
                        '[priority fairness_id le]',
}


def test_upstream_selectors_of_the_guides_match(start_picker):
    picker = start_keda(start_picker)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        answer_stream(completion(proxy, "m"), EVENTS, content_type="text/event-stream")
        first, second = run_one(picker, proxy), completion(proxy, "m")
        picker.wait_until(lambda now: select(now, "flow_control_queue_size") == [1], "one that waits")
        with pytest.raises(grpc.RpcError):
            proxy.stream(body(b"", end=True)).close()
        answer(first, 500)
        answer(second)
        numbers = picker.wait_at_rest()
    for guide, expression in GUIDES.items():
        selector, _, by = expression.partition(" [")
        assert select(numbers, selector), (guide, selector)
        for label in by.rstrip("]").split():
            assert select(numbers, selector.removesuffix("}") + ("," if "{" in selector else "{") + label + '!=""}'), (
                guide, label)


def test_upstream_pool_gauges(start_picker, pages):
    one, other = pages
    numbers = start_pool(start_picker, one, other).numbers()
    pool = '{name="chat-pool"}'
    assert select(numbers, "ready_endpoints" + pool) == [2]
    assert select(numbers, "average_queue_size" + pool) == [2.5]
    assert select(numbers, "average_running_requests" + pool) == [2]
    assert select(numbers, "average_kv_cache_utilization" + pool) == [pytest.approx(0.35, rel=1e-6)]
    assert select(numbers, "std_dev_queue_size" + pool) == [pytest.approx(4.5 ** 0.5)]
    assert select(numbers, f'per_endpoint_queue_size{{model_server_endpoint="{one.address}"}}') == [4]
    saturation = 'flow_control_pool_saturation{inference_pool="chat-pool",stage="%s"}'
    assert select(numbers, saturation % "prefill") == [0.8]
    assert select(numbers, saturation % "decode") == [pytest.approx(0.25)]
    assert select(numbers, saturation % "effective") == [0.8]


def test_upstream_saturation_without_loads_is_full(start_picker):
    """As upstream's detector has it: an endpoint without a current load counts as saturated, and so does an empty
    pool; only the limit of requests in flight needs no load."""
    numbers = start_picker(f"endpoints: [{A}]\nsaturation: {{queue_depth: 5}}\n").numbers()
    assert select(numbers, 'flow_control_pool_saturation{stage="decode"}') == [1]
    numbers = start_picker("endpoints: []\nsaturation: {max_in_flight: 4}\n").numbers()
    assert select(numbers, "flow_control_pool_saturation") == [1]
    picker = start_picker(f"endpoints: [{A}]\nsaturation: {{max_in_flight: 4}}\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers())
        stream.next()
        assert select(picker.numbers(), 'flow_control_pool_saturation{stage="effective"}') == [0.25]
        assert select(picker.numbers(), f'inflight_requests{{endpoint_name="{A}"}}') == [1]
        stream.reset()
    picker.wait_at_rest()


def test_upstream_detector_measures_the_pool_as_a_whole(start_picker, pages):
    """Upstream's detector: what decides is the mean of the loads that are known, and the gauge is that. An endpoint
    that is not scraped is left out."""
    one, other = pages
    text = f"""endpoints: [{one.address}, {other.address}, {A}]
metrics: {{preset: vllm, interval: 50ms, timeout: 20s}}
objectives: [{{name: spare, priority: -1}}]
---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{{type: queue-scorer}}]
"""
    picker = start_picker(text)
    picker.wait_loads(2)
    numbers = picker.numbers()
    assert select(numbers, 'flow_control_pool_saturation{stage="effective"}') == [pytest.approx((0.8 + 0.25) / 2)]
    assert select(numbers, 'flow_control_stale_endpoints{detector="utilization-detector"}') == [1]
    with Proxy(picker.grpc_addresses[0]) as proxy:
        proxy.pick(fields={OBJECTIVE: "spare"})
        one.page = PAGE.format(running=1, waiting=9, used=0.5)
        picker.wait_until(lambda now: select(now, 'flow_control_pool_saturation{stage="effective"}')[0] > 1,
                          "a saturated pool")
        assert proxy.refuse(fields={OBJECTIVE: "spare"})[0] == 429
        proxy.pick()
    assert "saturation of the whole: 1." in http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()


def test_upstream_alerts_find_their_series_from_the_start(start_picker):
    """`absent(…)` fires where there is no series; an error ratio needs both of its counters."""
    numbers = start_picker("endpoints: []\n").numbers()
    assert select(numbers, "ready_endpoints") == [0]
    assert select(numbers, "average_queue_size") == [0] and select(numbers, "average_kv_cache_utilization") == [0]
    assert select(numbers, "datalayer_poll_errors_total") == [0]
    assert select(numbers, "datalayer_extract_errors_total") == [0]


def test_upstream_deprecated_names_by_a_flag(start_picker):
    numbers = start_picker(f"endpoints: [{A}]\n", "--deprecated-metrics", "off").numbers()
    assert select(numbers, "ready_endpoints") == [1]
    assert not [name for name in numbers if name.startswith("inference_")]
    assert "inference_pool_ready_pods" in {name for name, _, _ in series_of(start_picker(f"endpoints: [{A}]\n").numbers())}


def test_upstream_prefix_indexes(start_picker):
    """What the picked endpoint has of a prompt: nothing of the first, all of the second, half of the third."""
    pool = f"""endpoints: [{A}]
---
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {{type: approx-prefix-cache-producer, name: texts, parameters: {{blockSizeTokens: 64, autoTune: false}}}}
- {{type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: texts}}}}
"""
    picker = start_picker(pool)
    same, other, third = "".join(f"{i:0256d}" for i in range(4)), "y" * 512, "z" * 512
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for prompt in (same + other, same + other, same[:512] + third):
            stream = proxy.stream(headers("/v1/completions", config="BUFFERED NONE"))
            stream.send(body(json.dumps({"prompt": prompt}).encode(), end=True))
            stream.next(), stream.next()
            answer(stream)
        numbers = picker.wait_at_rest()
    labels = '{plugin_name="texts",plugin_type="approx-prefix-cache-producer"}'
    assert select(numbers, "prefix_indexer_hit_ratio_count" + labels) == [3]
    assert select(numbers, "prefix_indexer_hit_ratio_sum" + labels) == pytest.approx([1.5])
    assert select(numbers, "prefix_indexer_hit_bytes_sum" + labels) == [1536 + 512]
    assert select(numbers, 'prefix_indexer_hit_ratio_bucket{le=~"0(.0)?"}') == [1]
    assert select(numbers, "prefix_indexer_size" + labels) == [6 + 2]
    assert select(numbers, "prefix_predicted_cached_tokens_sum" + labels) == [(1536 + 512) // 4]
    assert select(numbers, "prefix_prompt_tokens_count" + labels) == [3]
    assert select(numbers, "prefix_prompt_tokens_sum" + labels) == [(1536 + 1536 + 1024) // 4]
    assert numbers["inference_extension_prefix_indexer_hit_ratio_count"] == 3
    assert numbers["inference_extension_prefix_indexer_size"] == 8


def show_media(picker, *parts):
    """A request with these parts, answered. Returns: the endpoint, and the numbers afterwards."""
    with Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers("/v1/chat/completions", config="BUFFERED NONE"))
        message = {"role": "user", "content": [{"type": part, part: {"url": url}} for part, url in parts]}
        stream.send(body(json.dumps({"messages": [message]}).encode(), end=True))
        stream.next()
        endpoint = endpoint_of(stream.next())
        answer(stream)
    return endpoint, picker.wait_at_rest()


def test_upstream_media(start_picker):
    """What endpoints were sent of the pictures, sounds and videos of requests."""
    picker = start_picker(MEDIA)
    plugin = 'plugin_type="mm-embeddings-cache-producer",plugin_name="pictures"'
    first, numbers = show_media(picker, ("image_url", "http://a/1"), ("audio_url", "http://a/2"))
    assert select(numbers, "encoder_cache_hits_total") == []
    again, numbers = show_media(picker, ("image_url", "http://a/1"), ("image_url", "http://a/3"))
    assert again == first
    for modality, n in ("image", 3), ("audio", 1), ("video", None):
        found = select(numbers, f'encoder_cache_queries_total{{{plugin},modality="{modality}"}}')
        assert found == ([n] if n else [])
    assert select(numbers, "encoder_cache_hits_total") == [1]
    assert select(numbers, f'encoder_cache_hits_total{{{plugin},pod="{first}",modality="image"}}') == [1]
    assert select(numbers, f"encoder_cache_hit_ratio_count{{{plugin}}}") == [4]
    assert select(numbers, f"encoder_cache_hit_ratio_sum{{{plugin}}}") == [0.5]


def test_upstream_times_of_plugins(start_picker):
    """The first run of a profile is measured: each plugin has a time, under upstream's two names."""
    _, numbers = show_media(start_picker(MEDIA), ("image_url", "http://a/1"))
    assert {(labels["extension_point"], labels["plugin_type"], labels["plugin_name"]): value
            for name, labels, value in series_of(numbers) if name == PREFIX + "plugin_duration_seconds_count"} == {
        ("DataProducer", "mm-embeddings-cache-producer", "pictures"): 1,
        ("Scorer", "mm-embeddings-cache-scorer", "mm-embeddings-cache-scorer"): 1,
        ("Scorer", "queue-scorer", "queue-scorer"): 1,
        ("Picker", "max-score-picker", "max-score-picker"): 1}
    assert 0 < sum(select(numbers, "plugin_duration_seconds_sum"))
    assert 'inference_extension_plugin_duration_seconds_count{extension_point="Picker",plugin_type="max-score-picker",' \
        'plugin_name="max-score-picker"}' in numbers


def test_upstream_rollouts(start_picker):
    """By the role that most endpoints have, of the revisions that have both; and a header that no endpoint fits."""
    picker = start_picker(ROLLOUT)
    share = 'disaggregatedset_revision_gating_share{plugin_name="rollout",mode="max-role",revision="%s"}'
    unmatched = 'disaggregatedset_strict_header_no_match_total{plugin_name="rollout",selector="revision"}'
    numbers = picker.numbers()
    assert [select(numbers, share % name) for name in ("one", "two", "three")] == [[0.25], [0.75], [0]]
    assert select(numbers, unmatched) == [0]
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.refuse("/v1/completions", fields={"x-revision": "none"})[0] == 503
        proxy.pick("/v1/completions", fields={"x-revision": "two"})
    assert select(picker.numbers(), unmatched) == [1]


def test_process_metrics(start_picker):
    """Under the names of Prometheus's client libraries."""
    picker = start_picker(KEDA)
    with open(f"/proc/{picker.process.pid}/limits", encoding="utf-8") as file:
        most = int(re.search(r"^Max open files +(\d+)", file.read(), re.M)[1])
    before = picker.numbers()
    assert before["process_max_fds"] == most
    assert before["process_resident_memory_bytes"] == before["sluice_resident_memory_bytes"]
    assert before["process_virtual_memory_bytes"] > before["process_resident_memory_bytes"]
    assert before["process_start_time_seconds"] == before["sluice_start_time_seconds"]
    assert before["process_cpu_seconds_total"] == before["sluice_cpu_seconds_total"]
    with http1.Connection(picker.metrics_address), http1.Connection(picker.metrics_address):
        picker.wait_until(lambda now: now["process_open_fds"] >= before["process_open_fds"] + 2, "open connections")

"""`/metrics` under upstream's names: the list of names, types and labels, and the selectors of the autoscalers, alerts
and dashboards that llm-d's guides have, over the page of a live picker."""
import re

import pytest

from lib import http1
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy, headers

pytestmark = pytest.mark.tsan

PREFIX = "llm_d_epp_"
A = "127.0.0.1:1"
PAGE = """vllm:num_requests_running{{m="x"}} {running}
vllm:num_requests_waiting{{m="x"}} {waiting}
vllm:kv_cache_usage_perc{{m="x"}} {used}
"""
POOL = """endpoints:
- {{address: {one}, labels: {{llm-d.ai/role: prefill}}}}
- {{address: {other}, labels: {{llm-d.ai/role: decode}}}}
metrics: {{preset: vllm, interval: 50ms, timeout: 20s}}
saturation: {{queue_depth: 5, kv_cache: 0.8}}
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {{name: chat-pool}}
spec:
  selector: {{}}
  targetPorts: [{{number: 8000}}]
  endpointPickerRef: {{name: sluice, port: {{number: 9002}}}}
"""

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
    "datalayer_poll_errors_total": ("counter", "source_type"),
    "datalayer_extract_errors_total": ("counter", "source_type extractor_type"),
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


def test_upstream_names_types_and_labels(start_picker, pages):
    picker = start_pool(start_picker, *pages)
    types = types_of(picker)
    assert {name.removeprefix(PREFIX): kind for name, kind in types.items() if name.startswith(PREFIX)} == {
        name: kind for name, (kind, _) in FAMILIES.items()}
    assert labels_by_family(picker.numbers(), types) == {name: {labels} for name, (_, labels) in FAMILIES.items()}


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

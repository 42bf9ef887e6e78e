"""Upstream's data layer with servers that stand in for model servers and DCGM exporters: rules by engine in one pool,
attributes of endpoints, and what is chosen by them."""
import os
import ssl

import pytest
import yaml

from lib.certificates import Identity
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy
from lib.pick_config import upstream_config

pytestmark = pytest.mark.tsan

SAMPLES = os.path.join(os.path.dirname(__file__), "llm_d", "router.yaml")
VLLM = 'vllm:num_requests_waiting {}\nvllm:num_requests_running 4\nvllm:kv_cache_usage_perc 0.5\n'
SGLANG = 'sglang:num_queue_reqs {}\nsglang:num_running_reqs 4\nsglang:token_usage 0.5\n'


def labelled_config(endpoints, plugins, sources=None):
    """`endpoints`: pairs of a server and labels."""
    layer = {"dataLayer": {"sources": sources}} if sources else {}
    return upstream_config(plugins, [{"address": server.address, "labels": labels} for server, labels in endpoints],
                           **layer)


def source(**parameters):
    return {"type": "metrics-data-source", "parameters": {"interval": "50ms", **parameters}}


def extractor(**parameters):
    return {"type": "core-metrics-extractor", "parameters": parameters}


def load_of(numbers, server):
    return tuple(numbers.get(f'sluice_pick_endpoint_{what}{{endpoint="{server.address}"}}')
                 for what in ("waiting_requests", "running_requests", "kv_cache_used"))


def attribute_of(numbers, server, name, producer="core-metrics-extractor"):
    return numbers.get(f'sluice_pick_endpoint_attribute{{endpoint="{server.address}",attribute="{name}",'
                       f'producer="{producer}"}}')


def picks(picker, n=12):
    with Proxy(picker.grpc_addresses[0]) as proxy:
        return {proxy.pick() for _ in range(n)}


def test_engines_of_one_pool(start_picker):
    """Three engines, by the labels of their endpoints; the idle one is chosen, whichever it is."""
    own = 'q{state="waiting"} 7\nq{state="other"} 90\nr 2\n'
    with MetricPages(VLLM.format(5)) as vllm, MetricPages(SGLANG.format(6)) as sglang, MetricPages(own) as third, \
            MetricPages(SGLANG.format(9)) as mislabelled:
        label = "llm-d.ai/engine-type"
        engines = [{"name": "own", "queuedRequestsSpec": "q{state=waiting}", "runningRequestsSpec": "r"}]
        picker = start_picker(labelled_config(
            [(vllm, {}), (sglang, {label: "sglang"}), (third, {label: "own"}), (mislabelled, {label: "none"})],
            [source(), extractor(engineConfigs=engines), {"type": "queue-scorer"}]))
        picker.wait_until(lambda now: load_of(now, vllm) == (5, 4, 0.5) and load_of(now, sglang) == (6, 4, 0.5) and
                          load_of(now, third) == (7, 2, None), "the loads of three engines")
        assert load_of(picker.numbers(), mislabelled) == (None, None, None)  # read as vLLM's page
        mislabelled.says(VLLM.format(9))
        picker.wait_until(lambda now: load_of(now, mislabelled) == (9, 4, 0.5), "the fourth load")
        assert picks(picker, 1) == {vllm.address}
        vllm.says(VLLM.format(50))
        third.says('q{state="waiting"} 0\nr 2\n')
        picker.wait_until(lambda now: load_of(now, third)[0] == 0 and load_of(now, vllm)[0] == 50, "the new loads")
        assert picks(picker, 1) == {third.address}


def test_engine_attribute_is_chosen_by(start_picker):
    """The same attribute by different series of two engines; an endpoint without it scores 0, and a value expires."""
    with MetricPages("depth -3\n" + VLLM.format(0)) as deep, MetricPages("own_depth 8\n") as shallow, \
            MetricPages(VLLM.format(0)) as without:
        engines = [{"name": "vllm", "queuedRequestsSpec": "vllm:num_requests_waiting",
                    "customMetrics": [{"attributeKey": "depth", "metricSpec": "depth"}]},
                   {"name": "own", "customMetrics": [{"attributeKey": "depth", "metricSpec": "own_depth"}]}]
        picker = start_picker(labelled_config(
            [(deep, {}), (shallow, {"engine": "own"}), (without, {})],
            [source(), extractor(engineLabelKey="engine", engineConfigs=engines),
             {"type": "endpoint-attribute-scorer", "parameters": {
                 "attributeKey": "depth", "algorithm": {"type": "linear_higher_is_better"}}},
             {"type": "endpoint-attribute-filter", "parameters": {
                 "attribute": "depth", "onMissing": "Fail", "fallbackOnEmpty": True,
                 "algorithm": {"type": "threshold", "threshold": {"operator": "NotEqual", "value": 9}}}}]))
        picker.wait_until(lambda now: attribute_of(now, deep, "depth") == -3 and
                          attribute_of(now, shallow, "depth") == 8, "two attributes")
        assert attribute_of(picker.numbers(), without, "depth") is None
        assert picks(picker) == {shallow.address}
        shallow.says("own_depth 9\n")
        picker.wait_until(lambda now: attribute_of(now, shallow, "depth") == 9, "a value that the filter rejects")
        assert picks(picker) == {deep.address}
        shallow.says("", "status")
        deep.says(VLLM.format(0))  # the series is no longer there
        picker.wait_until(lambda now: attribute_of(now, deep, "depth") is None and
                          attribute_of(now, shallow, "depth") is None, "the values to expire")
        assert picks(picker, 40) == {deep.address, shallow.address, without.address}


def gpu_page(*gpus):
    lines = [f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i}",pod="{pod}"}} {used}' if pod else
             f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i}"}} {used}' for i, (pod, used) in enumerate(gpus)]
    return "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n" + "\n".join(lines) + "\nDCGM_FI_DEV_SM_CLOCK 1410\n"


class Endpoint:
    """One that no request reaches: only its address counts, beside the exporter at the same host."""

    def __init__(self, host):
        self.address = f"{host}:8000"


def test_sample_with_gpus(start_picker):
    """The sample sim-epp-gpu-config of llm-d-router: endpoints of which the exporters say more than 0.9 are left out,
    and the least used one is chosen. The exporters share a port, each at the address of its endpoint."""
    with open(SAMPLES, encoding="utf-8") as file:
        config = yaml.safe_load(file)["sim-epp-gpu-config"]
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    endpoints = [Endpoint(host) for host in hosts]
    with MetricPages(gpu_page((None, 30), (None, 95)), address=f"{hosts[0]}:0") as first, \
            MetricPages(gpu_page((None, 57)), address=f"{hosts[1]}:{first.port}") as second, \
            MetricPages(gpu_page((None, 89)), address=f"{hosts[2]}:{first.port}") as third:
        assert config["plugins"][0]["type"] == "dcgm-data-source"
        config["plugins"][0]["parameters"] = {"port": first.port, "interval": "50ms"}
        own = {"endpoints": [endpoint.address for endpoint in endpoints]}
        picker = start_picker(yaml.safe_dump(config) + "---\n" + yaml.safe_dump(own))

        def used(now):
            return [attribute_of(now, endpoint, "GPUUtilization", "dcgm-extractor") for endpoint in endpoints]
        picker.wait_until(lambda now: used(now) == [0.95, 0.57, 0.89], "the use of three GPUs")
        assert picks(picker) == {endpoints[1].address}
        assert second.heads[-1].startswith("GET /metrics HTTP/1.1\r\n")
        second.says(gpu_page((None, 91)))
        picker.wait_until(lambda now: used(now) == [0.95, 0.91, 0.89], "another use")
        assert picks(picker) == {endpoints[2].address}
        third.says(gpu_page((None, 100)))
        picker.wait_until(lambda now: used(now) == [0.95, 0.91, 1], "all to be used")
        assert picks(picker) == {endpoints[1].address}  # all are above the limit: the filter falls back
        first.says("", "hang")
        second.says("DCGM_FI_DEV_SM_CLOCK 1410\n")
        third.says(gpu_page((None, 40)))
        picker.wait_until(lambda now: used(now) == [None, None, 0.4], "two exporters to be given up")
        assert picks(picker) == {endpoints[2].address}
        failed = [line for line in picker.log_lines() if line.get("event") == "metrics scrape failed"]
        assert sorted((line["endpoint"], line["of"]) for line in failed) == [
            (endpoints[0].address, "gpu"), (endpoints[1].address, "gpu")]


def test_gpus_of_a_pod(start_picker, tmp_path):
    """An exporter of a whole host has the GPUs of other pods; endpoints with a name have those of their own."""
    (tmp_path / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": [
        {"name": f"pod-{i}", "address": f"127.0.0.{i}", "port": "8000"} for i in (1, 2)]}))
    with MetricPages(gpu_page(("pod-1", 80), ("pod-2", 10), ("pod-1", 5), ("other", 100))) as exporter, \
            MetricPages(gpu_page(("pod-1", 80), ("pod-2", 10)), address=f"127.0.0.2:{exporter.port}"):
        plugins = [{"type": "dcgm-data-source", "parameters": {"port": exporter.port, "interval": "50ms"}},
                   {"type": "file-discovery", "parameters": {"path": str(tmp_path / "endpoints.yaml")}},
                   {"type": "endpoint-attribute-scorer", "parameters": {
                       "attributeKey": "GPUUtilization", "producer": "dcgm-extractor",
                       "algorithm": {"type": "linear_lower_is_better"}}}]
        config = {"apiVersion": "llm-d.ai/v1", "kind": "EndpointPickerConfig", "plugins": plugins, "dataLayer": {
            "sources": [{"pluginRef": "dcgm-data-source", "extractors": [{"pluginRef": "dcgm-extractor"}]}],
            "discovery": {"endpoints": {"pluginRef": "file-discovery"}}}}
        picker = start_picker(yaml.safe_dump(config))
        one, two = Endpoint("127.0.0.1"), Endpoint("127.0.0.2")
        picker.wait_until(lambda now: [attribute_of(now, at, "GPUUtilization", "dcgm-extractor")
                                       for at in (one, two)] == [0.8, 0.1], "the use of each pod")
        assert picks(picker) == {two.address}


def test_scrape_with_a_client_certificate(start_picker, tmp_path):
    """The server demands one of its authority; without, there is no load."""
    authority = Identity("an authority", authority=True)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.cert_pem())
    cert, key = Identity("client", authority).write(str(tmp_path))
    (tmp_path / "server").mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Identity("server", authority).write(str(tmp_path / "server")))
    context.load_verify_locations(str(ca))
    context.verify_mode = ssl.CERT_REQUIRED
    secure = {"scheme": "https", "insecureSkipVerify": False, "caCertPath": str(ca)}
    with MetricPages(VLLM.format(5), tls=context) as server:
        def config(**files):
            return labelled_config([(server, {})], [source(**secure, **files), {"type": "queue-scorer"}])
        picker = start_picker(config(), "--reload-interval", "50ms")
        picker.wait_until(lambda now: now['sluice_pick_scrapes_total{result="broken"}'] >= 2, "failures")
        assert load_of(picker.numbers(), server) == (None, None, None)
        picker.write_pool(config(clientCertPath=cert, clientKeyPath=key))
        picker.wait_until(lambda now: load_of(now, server) == (5, 4, 0.5), "a load")

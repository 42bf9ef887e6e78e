"""Metrics as a scraper sees them: both formats, read strictly; what they say after requests that are
known; gauges while requests wait and run, and back at nothing; the load report of pickers."""
import concurrent.futures
import contextlib
import json
import os
import re
import socket
import struct
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lib import http1, mip, prometheus, server
from lib.repository import Identity

OPEN = "application/openmetrics-text; version=1.0.0"
ASK_FORMAT = "endpoint-load-metrics-format"
REPORT = "endpoint-load-metrics"
AWKWARD = 'quo"te \\back ü{a="b"}'


def body(rows=None, datatype="FP32"):
    shape = [1] if rows is None else [rows, 4]
    return json.dumps({"inputs": [{"name": "INPUT0", "shape": shape, "datatype": datatype,
                                   "data": [0] * (1 if rows is None else 4 * rows)}]}).encode()


def infer(running, model, data=None, fields=()):
    return http1.request(running.address, "POST", f"/v2/models/{model}/infer", data or body(), fields)


def wait_for(fits):
    end = time.monotonic() + http1.PATIENCE
    while not (found := fits()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.01)
    return found


class Page:
    """/metrics, read strictly."""

    def __init__(self, address, accept=None):
        fields = [("Accept", accept)] if accept else []
        self.answer = http1.request(address, "GET", "/metrics", fields=fields)
        assert self.answer.status == 200, str(self.answer)
        self.type = self.answer.get("Content-Type")
        self.text = self.answer.body.decode()
        self.families = prometheus.parse(self.text, openmetrics="openmetrics" in self.type)

    def __call__(self, sample, **labels):
        return prometheus.value(self.families, sample, **labels)

    def of(self, sample, model, **labels):
        return self(sample, model=model, version="1", **labels)


@pytest.fixture
def fresh(start_server, repositories):
    """A server without any request so far, with a listener for operators, all protocols and all metrics."""
    return start_server("--model-repository", repositories("default"), "--max-queue-size", "2",
                        "--metrics-config", "histogram_latencies=true", "--metrics-config", "summary_latencies=true",
                        "--mip", "tcp://127.0.0.1:0=id_string", metrics_at="127.0.0.1:0",
                        grpc=("127.0.0.1:0",))


# ---- the formats ---------------------------------------------------------------------------------

def test_metrics_both_formats_at_both_addresses(fresh):
    infer(fresh, "id_batch", body(3))
    for address in (fresh.address, fresh.metrics_address):
        plain, opened = Page(address), Page(address, OPEN)
        assert plain.type == "text/plain; version=0.0.4; charset=utf-8"
        assert opened.type == OPEN + "; charset=utf-8"
        assert [name.removesuffix("_total") if plain.families[name].kind == "counter" else name
                for name in plain.families] == list(opened.families)
        for page in (plain, opened):
            assert wait_for(lambda: Page(address).of("nv_inference_count", "id_batch") == 3)
            for family in page.families.values():
                assert family.help.endswith(".") and family.kind in prometheus.KINDS


def test_metrics_official_parser_reads_openmetrics(fresh):
    infer(fresh, "id_batch", body(3))
    text = Page(fresh.metrics_address, OPEN).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["sluice_requests"].type == "counter"
    assert families["nv_inference_request_success"].type == "unknown"
    assert families["sluice_request_seconds"].type == "histogram"
    assert {sample.name for sample in families["sluice_batch_size"].samples} == {
        "sluice_batch_size_bucket", "sluice_batch_size_count", "sluice_batch_size_sum"}


def test_metrics_format_follows_accept_header(fresh):
    """The Accept fields of Prometheus, of vLLM's and Envoy's scrapers, and of people."""
    for accept, is_open in (
            ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
             "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
             "text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
             "encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3", False),
            ("text/plain", False), ("*/*", False),
            ("application/openmetrics-text;q=0.1,text/plain;q=0.9", False)):
        assert ("openmetrics" in Page(fresh.metrics_address, accept).type) is is_open


def test_metrics_labels_are_escaped(start_server, tmp_path):
    Identity(AWKWARD, [("FP32", [-1])]).write(str(tmp_path / "models"))
    running = start_server("--model-repository", tmp_path / "models", metrics_at="127.0.0.1:0")
    escaped = "".join(f"%{byte:02x}" for byte in AWKWARD.encode())
    assert infer(running, escaped).status == 200
    for accept in (None, OPEN):
        assert wait_for(lambda: Page(running.metrics_address, accept).of(
            "nv_inference_request_success", AWKWARD) == 1)
    assert AWKWARD in [one["name"] for one in load(running)["models"]]


def test_metrics_each_name_is_documented(start_server, tmp_path):
    Identity("cached", [("FP32", [-1])], more="response_cache { enable: true }\n").write(str(tmp_path / "models"))
    Identity("other", [("FP32", [-1])]).write(str(tmp_path / "models"))
    running = start_server("--model-repository", tmp_path / "models", "--cache-size", "1MiB",
                           "--metrics-config", "histogram_latencies=true", "--metrics-config", "summary_latencies=true",
                           metrics_at="127.0.0.1:0")
    with open(os.path.join(server.ROOT, "docs", "observability.md"), encoding="utf-8") as file:
        explained = set(re.findall(r"`((?:nv|sluice|process)_[a-z_]+)[`{]", file.read()))
    # Of other commands: test_pick_lifecycle.py, test_gateway.py.
    explained = {name for name in explained if not name.startswith(("sluice_pick_", "sluice_gateway_"))}
    names = set(Page(running.metrics_address).families)
    assert names - explained == set() and explained - names == set()


# ---- values --------------------------------------------------------------------------------------

def test_metrics_after_known_requests(fresh):
    fresh.expect_error("out of ink")
    for rows in (1, 2, 4, 8):
        assert infer(fresh, "id_batch", body(rows)).status == 200
    for _ in range(3):
        assert infer(fresh, "id_failing").status == 500
    assert infer(fresh, "id_fp32", body(datatype="INT8")).status == 400
    page = wait_for(lambda: [
        page for page in [Page(fresh.metrics_address)]
        if page.of("nv_inference_exec_count", "id_batch") == 4
        and page.of("nv_inference_exec_count", "id_failing") == 3])[0]
    assert page.of("nv_inference_request_success", "id_batch") == 4
    assert page.of("nv_inference_count", "id_batch") == 15
    assert page.of("sluice_batch_size_count", "id_batch") == 4
    assert page.of("sluice_batch_size_sum", "id_batch") == 15
    assert [page.of("sluice_batch_size_bucket", "id_batch", le=bound)
            for bound in ("1.0", "2.0", "4.0", "8.0", "+Inf")] == [1, 2, 3, 4, 4]
    assert page.of("sluice_request_seconds_count", "id_batch") == 4
    assert {reason: page.of("nv_inference_request_failure", "id_failing", reason=reason)
            for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER")} == {
        "REJECTED": 0, "CANCELED": 0, "BACKEND": 3, "OTHER": 0}
    assert page.of("nv_inference_request_success", "id_failing") == 0
    # Refused before it was queued: nowhere among the model's numbers.
    assert page.of("nv_inference_request_failure", "id_fp32", reason="OTHER") == 0
    assert page("sluice_errors_total", protocol="http", reason="BAD_DATATYPE") == 1
    assert page("sluice_errors_total", protocol="http", reason="BACKEND_FAILED") == 3
    times = [page.of(f"nv_inference_{part}_duration_us", "id_batch") for part in (
        "request", "queue", "compute_input", "compute_infer", "compute_output")]
    assert abs(times[0] - sum(times[1:])) <= 4  # each is rounded
    assert page.of("nv_model_load_duration_secs", "id_batch") > 0
    assert page("sluice_models", state="ready") == len(
        [1 for _, labels in page.families["nv_inference_count"].samples
         if dict(labels)["model"] != "id_versions"]) + 3


def test_metrics_errors_of_each_protocol(fresh):
    import tritonclient.grpc as triton
    infer(fresh, "nope")
    with triton.InferenceServerClient(fresh.grpc_address) as client:
        with pytest.raises(Exception):
            client.get_model_metadata("nope")
    with mip.Connection(fresh.mip_urls[0]) as connection:
        connection.send(mip.header(7, 0))
        connection.read_packet()
    page = Page(fresh.metrics_address)
    assert page("sluice_errors_total", protocol="http", reason="UNKNOWN_MODEL") == 1
    assert page("sluice_errors_total", protocol="grpc", reason="UNKNOWN_MODEL") == 1
    assert page("sluice_errors_total", protocol="mip", reason="BAD_KIND") == 1


def test_metrics_concurrent_requests_are_counted(fresh):
    """Nothing is lost and nothing counted twice, while somebody scrapes."""
    def many(_):
        with http1.Connection(fresh.address) as connection:
            for _ in range(100):
                request = body(2)
                connection.send(b"POST /v2/models/id_batch/infer HTTP/1.1\r\nHost: x\r\n"
                                b"Content-Length: %d\r\n\r\n" % len(request) + request)
                assert connection.read_answer().status == 200
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        clients = [pool.submit(many, i) for i in range(8)]
        before = 0
        while not all(client.done() for client in clients):
            now = Page(fresh.metrics_address).of("nv_inference_count", "id_batch")
            assert now >= before
            before = now
        for client in clients:
            client.result()
    page = wait_for(lambda: [page for page in [Page(fresh.metrics_address)] if page.of(
        "sluice_batch_size_sum", "id_batch") == 1600])[0]
    assert page.of("nv_inference_request_success", "id_batch") == 800
    assert page.of("nv_inference_count", "id_batch") == 1600
    assert page.of("sluice_request_seconds_bucket", "id_batch", le="+Inf") == 800


def test_metrics_process_and_machine(fresh):
    page = Page(fresh.metrics_address)
    assert page("sluice_build_info", version=server.run("--version").stdout.split()[1]) == 1
    assert abs(page("sluice_start_time_seconds") - time.time()) < 1000
    assert 1 << 20 < page("sluice_resident_memory_bytes") < 1 << 34
    assert page("nv_cpu_memory_total_bytes") > page("nv_cpu_memory_used_bytes") > 0
    assert 0 <= page("nv_cpu_utilization") <= 1
    assert page("sluice_cpu_seconds_total") > 0


# ---- gauges and load -----------------------------------------------------------------------------

def load(running):
    answer = http1.request(running.address, "GET", "/v2/load")
    assert answer.status == 200 and answer.get("Content-Type") == "application/json"
    return json.loads(answer.body)


def gauges(running):
    page = Page(running.metrics_address)
    return {"queued": (page.of("nv_inference_pending_request_count", "id_slowest"),
                       page("sluice_queued_requests")),
            "running": (page.of("sluice_model_running_requests", "id_slowest"),
                        page("sluice_running_requests"))}


def test_metrics_gauges_while_requests_wait(fresh):
    assert gauges(fresh) == {"queued": (0, 0), "running": (0, 0)}
    request = b"POST /v2/models/id_slowest/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(
        body()) + body()
    clients = [http1.Connection(fresh.address) for _ in range(3)]
    for n_sent, client in enumerate(clients):
        client.send(request)
        wait_for(lambda: gauges(fresh) == {"queued": (n_sent, n_sent), "running": (1, 1)})
    own = {one["name"]: one for one in load(fresh)["models"]}["id_slowest"]
    assert own == {"name": "id_slowest", "version": "1", "queued": 2, "running": 1, "instances": 1}
    assert (load(fresh)["queued"], load(fresh)["running"]) == (2, 1)
    assert Page(fresh.metrics_address).of("sluice_model_busy_instances", "id_slowest") == 1
    # The queue is full: a picker learns it with the refusal.
    refused = infer(fresh, "id_slowest", fields=[(ASK_FORMAT, "JSON")])
    assert refused.status == 503
    word, _, value = refused.get(REPORT).partition(" ")
    report = json.loads(value)
    assert word == "JSON" and report["named_metrics"]["model_queued"] == 2
    assert report["named_metrics"]["model_running"] == 1
    for client in clients:
        client.reset()
    wait_for(lambda: gauges(fresh) == {"queued": (0, 0), "running": (0, 0)})
    wait_for(lambda: Page(fresh.metrics_address).of("nv_inference_request_failure", "id_slowest",
                                                    reason="CANCELED") == 3)


def test_load_report_in_answer_header(fresh):
    assert infer(fresh, "id_fp32").get(REPORT) is None
    assert infer(fresh, "id_fp32", fields=[(ASK_FORMAT, "XML")]).get(REPORT) is None
    value = infer(fresh, "id_fp32", fields=[(ASK_FORMAT, "text")]).get(REPORT)
    word, _, rest = value.partition(" ")
    report = dict(pair.split("=") for pair in rest.split(", "))
    assert word == "TEXT" and float(report.pop("application_utilization")) == 0
    total = load(fresh)
    own = {one["name"]: one for one in total["models"]}["id_fp32"]
    assert {key.removeprefix("named_metrics."): int(number) for key, number in report.items()} == {
        "queued": 0, "running": 0, "instances": total["instances"],
        "model_queued": 0, "model_running": 0, "model_instances": own["instances"]}
    value = infer(fresh, "nope", fields=[(ASK_FORMAT, "JSON")]).get(REPORT)
    assert json.loads(value.partition(" ")[2])["named_metrics"].keys() == {
        "queued", "running", "instances"}


# ---- the listener --------------------------------------------------------------------------------

def test_admin_listener_refusals(fresh):
    answer = http1.request(fresh.metrics_address, "GET", "/v2/models")
    assert answer.status == 404
    assert json.loads(answer.body)["error"].endswith(
        "; there are /, /metrics, /status.json, /debug/state, /v2/health/live and /v2/health/ready")
    answer = http1.request(fresh.metrics_address, "POST", "/metrics", b"x" * 100)
    assert answer.status == 405 and answer.get("Allow") == "GET, HEAD"
    answer = http1.request(fresh.metrics_address, "HEAD", "/metrics")
    assert answer.status == 200 and int(answer.get("Content-Length")) > 1000 and not answer.body


def test_connections_without_bytes_are_in_reports(start_server, repositories):
    """A gRPC connection has no session before its first bytes."""
    running = start_server("--model-repository", repositories("default"), "--mip", "tcp://127.0.0.1:0=id_fp32",
                           grpc=("127.0.0.1:0",), metrics_at="127.0.0.1:0")
    addresses = [running.address, running.grpc_address, running.mip_urls[0].removeprefix("tcp://")]
    with contextlib.ExitStack() as stack:
        for address in addresses:
            host, port = address.rsplit(":", 1)
            stack.enter_context(socket.create_connection((host, int(port))))
        wait_for(lambda: Page(running.metrics_address)("sluice_connections") >= len(addresses))
        for path in ("/debug/state", "/status.json", "/metrics") * 3:
            assert http1.request(running.metrics_address, "GET", path).status == 200
        state = http1.request(running.metrics_address, "GET", "/debug/state").body.decode()
        assert "0 calls" in state, state
    assert http1.request(running.address, "GET", "/v2/health/ready").status == 200


def test_admin_listener_answers_when_server_is_full(start_server, repositories):
    running = start_server("--model-repository", repositories("default"), "--max-connections", "1",
                           metrics_at="127.0.0.1:0")
    with http1.Connection(running.address) as busy:
        busy.send(http1.post_head(b"/v2/models/id_fp32/infer", 10))  # an open request
        wait_for(lambda: Page(running.metrics_address)("sluice_requests_in_flight") == 2)
        assert http1.request(running.address, "GET", "/v2").status == 503
        assert Page(running.metrics_address)(
            "sluice_errors_total", protocol="http", reason="TOO_MANY_CONNECTIONS") == 1


def test_admin_listener_addresses(start_server, repositories, tmp_path):
    none = start_server("--model-repository", repositories("default"))
    assert none.metrics_address is None
    path = f"unix:{tmp_path}/admin"
    start_server("--model-repository", repositories("default"), metrics_at=path)
    assert http1.request(path, "GET", "/metrics").status == 200


def test_admin_listener_address_in_use_fails(start_server, repositories):
    first = start_server("--model-repository", repositories("default"), metrics_at="127.0.0.1:0")
    args = ["serve", "--model-repository", repositories("default"), "--grpc", "none", "--http",
            "127.0.0.1:0", "--metrics"]
    done = server.run(*args, first.metrics_address)
    assert done.returncode == 1 and "--metrics" in done.stderr and "in use" in done.stderr
    done = server.run(*args, "nowhere")
    assert done.returncode == 2 and "--metrics" in done.stderr

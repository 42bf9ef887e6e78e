"""Traces of the picker (--tracing) at a collector of OpenTelemetry's, over each of its protocols: which spans a request
has, how they join those of the client and of the server, which requests are sampled, and a collector that is slow or
not there."""
import contextlib
import json
import pathlib
import re
import socket

import grpc
import pytest

from lib import http1, otlp
from lib.certificates import Identity
from lib.pick_client import Proxy, answer_body, answer_headers, body, endpoint_of, headers, set_headers
from lib.server import run

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
POOL = f"endpoints: [{A}, {B}]\n"
ON = {"OTEL_TRACES_SAMPLER": "parentbased_always_on", "OTEL_BSP_SCHEDULE_DELAY": "10"}
SERVER, INTERNAL, CLIENT = 2, 1, 3
CHAT = b'{"model":"llama","messages":[{"role":"user","content":"hello"}]}'


@pytest.fixture
def start(start_picker):
    """start(pool, collector, flag, …, VARIABLE=…): one of the test's own, with tracing."""
    def begin(pool, collector, *args, **variables):
        protocol = "http/protobuf" if isinstance(collector, otlp.Collector) else "grpc"
        endpoint = collector.url.removesuffix("/v1/traces") if collector else "http://127.0.0.1:1"
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, **ON, **variables}
        return start_picker(pool, "--tracing", *args, prefix=with_variables(env))
    return begin


def with_variables(env):
    return ["env", *(f"{name}={value}" for name, value in env.items())]


def traces(collector):
    """trace → its spans by name."""
    found = {}
    for span in collector.spans():
        found.setdefault(span["traceId"], {})[span["name"]] = span
    return found


def attributes(span):
    return otlp.plain(span.get("attributes", []))


def check_nesting(spans):
    """Each span lies within its parent, if that is the picker's own."""
    by_id = {span["spanId"]: span for span in spans.values()}
    assert len(by_id) == len(spans)
    for span in spans.values():
        outer = by_id.get(span.get("parentSpanId"))
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        if outer:
            assert int(outer["startTimeUnixNano"]) <= int(span["startTimeUnixNano"]), (outer, span)
            assert int(span["endTimeUnixNano"]) <= int(outer["endTimeUnixNano"]), (outer, span)


def chat(proxy, fields=None, status=200):
    """One request and its response. Returns: the answer with the pick."""
    stream = proxy.stream(headers("/v1/chat/completions?a=b", fields={"x-request-id": "r1", **(fields or {})},
                                  config="BUFFERED STREAMED"), body(CHAT, end=True))
    stream.next()
    said = stream.next()
    stream.send(answer_headers(status), answer_body(b'{"usage":{"prompt_tokens":7,"completion_tokens":3}}', end=True))
    stream.next(), stream.next()
    stream.close()
    return said


def collectors():
    return {"grpc": otlp.GrpcCollector, "http/protobuf": otlp.Collector, "http/json": otlp.Collector}


@pytest.mark.parametrize("protocol", list(collectors()))
def test_traces_have_spans_of_a_request(start, protocol):
    with collectors()[protocol]() as collector:
        picker = start(POOL + "models: [{name: llama}]\nsaturation: {max_in_flight: 100}\n", collector,
                       OTEL_EXPORTER_OTLP_PROTOCOL=protocol, OTEL_SERVICE_NAME="picker",
                       OTEL_RESOURCE_ATTRIBUTES="where=here%20there,service.name=other",
                       OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20x,b=2")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            said = chat(proxy, {"traceparent": PARENT, "tracestate": "rojo=1"})
        collector.wait(lambda: len(collector.spans()) == 4, http1.PATIENCE)
        assert collector.requests[0][0].items() >= {"service.name": "picker", "where": "here there"}.items()
        assert "service.version" in collector.requests[0][0]
        assert collector.fields[0]["authorization"] == "Bearer x" and collector.fields[0]["b"] == "2"
        (spans,) = traces(collector).values()
        assert set(spans) == {"gateway.request", "gateway.request_orchestration", "run_scheduler_profile",
                              "chat llama"}
        check_nesting(spans)
        request, server = spans["gateway.request"], spans["chat llama"]
        picking, stage = spans["gateway.request_orchestration"], spans["run_scheduler_profile"]
        assert (request["traceId"], request["parentSpanId"]) == (TRACE, SPAN)
        assert server["parentSpanId"] == picking["parentSpanId"] == request["spanId"]
        assert stage["parentSpanId"] == picking["spanId"]
        assert [span["kind"] for span in (request, picking, stage, server)] == [SERVER, SERVER, INTERNAL, CLIENT]
        assert all(span["traceState"] == "rojo=1" and "status" not in span for span in spans.values())
        picked, _, port = endpoint_of(said).rpartition(":")
        usage = {"gen_ai.usage.input_tokens": "7", "gen_ai.usage.output_tokens": "3"}
        common = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "llama", "http.response.status_code": "200"}
        assert attributes(request) == {**common, **usage, "http.request.method": "POST",
                                       "url.path": "/v1/chat/completions", "gen_ai.request.id": "r1"}
        assert attributes(server) == {**common, **usage, "server.address": picked, "server.port": port}
        assert attributes(picking) == {"target_model": "llama", "request_prio": "0"}
        assert attributes(stage).items() >= {"gen_ai.request.model": "llama", "server.address": picked,
                                             "server.port": port}.items()
        assert [event["name"] for event in server["events"]] == ["response.begin", "response.first_byte"]
        # The server's own spans have this one as their parent.
        assert set_headers(said)["traceparent"] == f"00-{TRACE}-{server['spanId']}-01"
        picker.wait_until(lambda now: now['sluice_traces_total{result="written"}'] == 1, "a trace that was sent")


def test_traces_are_not_sent_without_the_flag(start_picker):
    """The client's context is passed on by the proxy: nothing is set."""
    with otlp.Collector() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **ON}
        picker = start_picker(POOL, prefix=with_variables(env))
        with Proxy(picker.grpc_addresses[0]) as proxy:
            said = proxy.ask("/v1/chat/completions", fields={"traceparent": PARENT})
        assert set(set_headers(said)) == {"x-gateway-destination-endpoint"}
        picker.stop()
        assert collector.n_asked == 0


def sent_on(proxy, fields=None):
    return set_headers(proxy.ask("/", fields=fields)).get("traceparent")


@pytest.mark.parametrize("sampler, argument, of_root, of_sampled, of_unsampled", [
    ("always_on", None, "01", "01", "01"), ("always_off", None, "00", "00", "00"),
    ("parentbased_always_on", None, "01", "01", "00"), ("parentbased_always_off", None, "00", "01", "00"),
    ("traceidratio", "0", "00", "00", "00"), ("traceidratio", "1", "01", "01", "01"),
    ("parentbased_traceidratio", "0", "00", "01", "00"), ("parentbased_traceidratio", "1.0", "01", "01", "00"),
])
def test_traces_samplers(start, sampler, argument, of_root, of_sampled, of_unsampled):
    """Those that are not recorded go on all the same, as not sampled: servers decide alike."""
    with otlp.Collector() as collector:
        more = {"OTEL_TRACES_SAMPLER_ARG": argument} if argument else {}
        picker = start(POOL, collector, OTEL_TRACES_SAMPLER=sampler, **more)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            root = sent_on(proxy)
            sampled = sent_on(proxy, {"traceparent": PARENT})
            unsampled = sent_on(proxy, {"traceparent": PARENT[:-1] + "0"})
            assert re.fullmatch(f"00-[0-9a-f]{{32}}-[0-9a-f]{{16}}-{of_root}", root) and TRACE not in root
            for said, flags in ((sampled, of_sampled), (unsampled, of_unsampled)):
                assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-{flags}", said) and SPAN not in said
        n = (root[-2:], sampled[-2:], unsampled[-2:]).count("01")
        picker.wait_until(lambda now: now['sluice_traces_total{result="written"}'] == n, "the traces")


@pytest.mark.parametrize("parents", [[PARENT.upper()], [""], ["x" * 5000], [PARENT.replace(SPAN, "0" * 16)],
                                     [PARENT, PARENT]])
def test_traces_invalid_contexts_begin_a_new_trace(start, parents):
    with otlp.Collector() as collector:
        picker = start(POOL, collector)
        message = headers("/", fields={"tracestate": "a=b"})
        for parent in parents:
            message.request_headers.headers.headers.add(key="traceparent", raw_value=parent.encode())
        with Proxy(picker.grpc_addresses[0]) as proxy:
            stream = proxy.stream(message)
            said = set_headers(stream.next())["traceparent"]
            stream.reset()
            assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", said) and TRACE not in said
        collector.wait(lambda: collector.spans(), http1.PATIENCE)
        (spans,) = traces(collector).values()
        assert "parentSpanId" not in spans["gateway.request"] and "traceState" not in spans["gateway.request"]
        # The client has left before the response.
        assert spans["gateway.request"]["status"]["code"] == 2


ROLES = """endpoints:
- {address: "10.0.0.1:8000", labels: {llm-d.ai/role: prefill}}
- {address: "10.0.0.2:8000", labels: {llm-d.ai/role: decode}}
profile:
  plugins:
    - type: decode-filter
    - type: prefill-filter
    - type: active-request-scorer
    - type: always-disagg-pd-decider
    - {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
  schedulingProfiles:
    - {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer, weight: 3}]}
    - {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: active-request-scorer}]}
"""


def test_traces_have_a_span_for_each_stage(start):
    with otlp.GrpcCollector() as collector:
        picker = start(ROLES, collector)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            proxy.ask("/v1/completions")
        collector.wait(lambda: len(collector.spans()) == 5, http1.PATIENCE)
        stages = {attributes(span)["llm_d.epp.stage"]: attributes(span) for span in collector.spans()
                  if span["name"] == "run_scheduler_profile"}
        assert stages == {
            role: {"llm_d.epp.stage": role, "llm_d.epp.scheduling.profile.name": role, "server.address": host,
                   "server.port": "8000", "llm_d.epp.picker.candidate_endpoints": "1",
                   "llm_d.epp.picker.top_endpoints": [f"{host}:8000"], "llm_d.epp.picker.top_scores": [weight]}
            for role, host, weight in (("prefill", "10.0.0.1", 1), ("decode", "10.0.0.2", 3))}


QUEUE = f"""endpoints: [{A}]
saturation: {{max_in_flight: 1}}
flow_control: {{max_requests: 2, max_wait: 60s, sheddable_waits: true}}
objectives: [{{name: spare, priority: -1}}]
"""


def test_traces_have_a_span_for_a_wait(start):
    """One that goes on, and one whose client leaves."""
    with otlp.GrpcCollector() as collector:
        picker = start(QUEUE, collector)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            first = proxy.stream(headers("/v1/completions"))
            first.next()
            second = proxy.stream(headers("/v1/completions", fields={"x-gateway-inference-fairness-id": "team",
                                                                       "x-gateway-inference-objective": "spare"}))
            picker.wait_waiting(1)
            third = proxy.stream(headers("/v1/completions"))
            picker.wait_waiting(2)
            third.reset()
            picker.wait_waiting(1)
            first.reset()
            assert endpoint_of(second.next()) == A
            second.reset()
        collector.wait(lambda: len(traces(collector)) == 3, http1.PATIENCE)
        waits = {}
        for spans in traces(collector).values():
            check_nesting(spans)
            wait = spans.get("llm_d.epp.flow_control.queue")
            if wait:
                assert wait["parentSpanId"] == spans["gateway.request_orchestration"]["spanId"]
                waits[attributes(wait)["llm_d.epp.flow_control.outcome"]] = wait, spans
        assert set(waits) == {"dispatched", "aborted"}
        wait, spans = waits["dispatched"]
        assert attributes(wait)["llm_d.epp.flow_control.fairness_id"] == "team" and "status" not in wait
        assert attributes(wait)["llm_d.epp.flow_control.priority"] == "-1"
        assert attributes(spans["gateway.request_orchestration"])["request_prio"] == "-1"
        assert int(wait["endTimeUnixNano"]) <= int(spans["run_scheduler_profile"]["startTimeUnixNano"])
        wait, spans = waits["aborted"]
        assert wait["status"]["code"] == spans["gateway.request_orchestration"]["status"]["code"] == 2
        assert "run_scheduler_profile" not in spans


def test_traces_of_refused_requests_and_errors(start):
    with otlp.GrpcCollector() as collector:
        picker = start(f"endpoints: [{A}]\nunknown_models: refuse\nmodels: [{{name: llama}}]\n", collector)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            status, _, text = proxy.refuse("/v2/models/other/infer")
            assert status == 404
            collector.wait(lambda: len(collector.spans()) == 1, http1.PATIENCE)
            (refused,) = collector.spans()
            assert refused["name"] == "gateway.request" and refused["status"]["code"] == 2
            assert refused["status"]["message"] == json.loads(text)["error"]
            assert attributes(refused).items() >= {"http.response.status_code": "404",
                                                   "error.type": "UNKNOWN_MODEL"}.items()
            chat(proxy, status=503)
        collector.wait(lambda: len(collector.spans()) == 5, http1.PATIENCE)
        failed = {span["name"] for span in collector.spans()[1:] if span.get("status", {}).get("code") == 2}
        assert failed == {"gateway.request", "chat llama"}


def test_traces_without_collector_cost_nothing_but_themselves(start):
    """Its queue is bounded, what is over is counted, and the end does not wait for long."""
    picker = start(POOL, None, OTEL_BSP_MAX_QUEUE_SIZE="16", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="16")
    picker.expected_errors.append("trace export failed")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for _ in range(40):
            assert proxy.pick("/") in (A, B)
        picker.wait_until(lambda now: now['sluice_traces_total{result="dropped"}'] >= 30, "traces that were dropped")
        assert proxy.pick("/") in (A, B)


@pytest.mark.parametrize("answers, result, n_asked", [
    ([grpc.StatusCode.UNAVAILABLE], "written", 2),
    ([grpc.StatusCode.INVALID_ARGUMENT], "failed", 1),
])
def test_traces_grpc_codes_are_retried_or_not(start, answers, result, n_asked):
    with otlp.GrpcCollector(answers) as collector:
        picker = start(POOL, collector)
        picker.expected_errors.extend(["trace export failed"] * (result == "failed"))
        with Proxy(picker.grpc_addresses[0]) as proxy:
            proxy.ask("/")
        picker.wait_until(lambda now: now[f'sluice_traces_total{{result="{result}"}}'] == 1, "the trace")
        assert collector.n_asked == n_asked


def test_traces_grpc_partial_success_is_logged(start):
    response = otlp.classes()["ExportTraceServiceResponse"]()
    response.partial_success.rejected_spans, response.partial_success.error_message = 1, "too old"
    with otlp.GrpcCollector(said=[response.SerializeToString()]) as collector:
        picker = start(POOL, collector)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            proxy.ask("/")
        picker.wait_until(lambda now: now['sluice_traces_total{result="written"}'] == 1, "the trace")
        (line,) = [line for line in picker.log_lines() if line.get("event") == "trace collector rejected spans"]
        assert line["spans"] == 1 and line["reason"] == "too old"


def test_traces_are_sent_at_the_end(start):
    """What a batch has collected leaves before the process ends."""
    with otlp.GrpcCollector() as collector:
        picker = start(POOL, collector, OTEL_BSP_SCHEDULE_DELAY="3600000")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            proxy.ask("/")
            picker.wait_streams(0)
        assert not collector.spans()
        picker.stop()
        assert len(traces(collector)) == 1


@pytest.mark.parametrize("variables, why", [
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "grpc://collector:4317"}, "expected http://HOST:PORT, https or HOST:PORT"),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://"}, "expected http://HOST:PORT, https or HOST:PORT"),
    ({"OTEL_EXPORTER_OTLP_PROTOCOL": "thrift"}, "expected grpc, http/protobuf or http/json"),
    ({"OTEL_TRACES_EXPORTER": "console"}, "expected otlp or none"),
    ({"OTEL_EXPORTER_OTLP_HEADERS": "a"}, "expected NAME=VALUE"),
    ({"OTEL_EXPORTER_OTLP_HEADERS": "a=%0d%0ab"}, "expected NAME=VALUE"),
])
def test_traces_variables_that_cannot_be_used(variables, why):
    done = run("pick", "--endpoint", A, "--tracing", "--grpc", "127.0.0.1:0", "--metrics", "none", env=variables)
    assert done.returncode == 1 and why in done.stderr and list(variables)[0] in done.stderr, done


def test_traces_invalid_samplers_are_logged(start):
    with contextlib.ExitStack() as ending:
        collector = ending.enter_context(otlp.Collector())
        picker = start(POOL, collector, OTEL_TRACES_SAMPLER="jaeger_remote", OTEL_BSP_MAX_QUEUE_SIZE="1")
        said = [line["variable"] for line in picker.log_lines() if "variable" in line]
        assert said == ["OTEL_TRACES_SAMPLER", "OTEL_BSP_MAX_QUEUE_SIZE"]


def test_traces_without_exporter_go_on(start):
    picker = start(POOL, None, OTEL_TRACES_EXPORTER="none")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert sent_on(proxy, {"traceparent": PARENT}).startswith(f"00-{TRACE}-")


# ---- TLS -----------------------------------------------------------------------------------------------------------------

@pytest.fixture
def files(tmp_path):
    """An authority, a collector and a client that it has signed, and another authority: {name: file}."""
    root, other = Identity("root", authority=True), Identity("other", authority=True)
    found = {"root": root.write_cert(tmp_path / "root.crt"), "other": other.write_cert(tmp_path / "other.crt")}
    for name in ("server", "client"):
        found[name], found[name + ".key"] = Identity(name, root).write(tmp_path / name)
    found["stranger"], found["stranger.key"] = Identity("stranger", other).write(tmp_path / "stranger")
    return found


def secured(files, with_client=False):
    return {"cert": files["server"], "key": files["server.key"], "client_ca": files["root"] if with_client else None}


@pytest.mark.parametrize("protocol", list(collectors()))
@pytest.mark.parametrize("with_client", [False, True])
def test_traces_over_tls(start, files, protocol, with_client):
    with collectors()[protocol](tls=secured(files, with_client)) as collector:
        client = {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": files["client"],
                  "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": files["client.key"]} if with_client else {}
        picker = start(POOL, collector, OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                       OTEL_EXPORTER_OTLP_CERTIFICATE=files["other"],
                       OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=files["root"], **client)
        with Proxy(picker.grpc_addresses[0]) as proxy:
            for _ in range(3):
                chat(proxy, {"traceparent": PARENT})
        picker.wait_until(lambda now: now['sluice_traces_total{result="written"}'] == 3, "traces that were sent")
        assert len([span for span in collector.spans() if span["name"] == "gateway.request"]) == 3


@pytest.mark.parametrize("insecure", ["true", "false"])
def test_traces_endpoint_without_scheme(start, files, insecure):
    """The variable decides, TLS by default."""
    with otlp.GrpcCollector(tls=None if insecure == "true" else secured(files)) as collector:
        picker = start(POOL, collector, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url.partition("//")[2],
                       OTEL_EXPORTER_OTLP_CERTIFICATE=files["root"],
                       **({"OTEL_EXPORTER_OTLP_INSECURE": "true"} if insecure == "true" else {}))
        with Proxy(picker.grpc_addresses[0]) as proxy:
            chat(proxy)
        picker.wait_until(lambda now: now['sluice_traces_total{result="written"}'] == 1, "a trace that was sent")


@pytest.mark.parametrize("protocol", list(collectors()))
@pytest.mark.parametrize("wrong, reason", [
    ("authority", "certificate"), ("client", None), ("no client", None), ("plain", None)])
def test_traces_over_tls_that_fails(start, files, protocol, wrong, reason):
    """One line of the log however many batches fail, and requests are answered meanwhile."""
    variables = {"OTEL_EXPORTER_OTLP_CERTIFICATE": files["other" if wrong == "authority" else "root"]}
    if wrong == "client":
        variables |= {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": files["stranger"],
                      "OTEL_EXPORTER_OTLP_CLIENT_KEY": files["stranger.key"]}
    tls = None if wrong == "plain" else secured(files, "client" in wrong)
    with collectors()[protocol](tls=tls) as collector:
        endpoint = collector.url.removesuffix("/v1/traces").replace("http://", "https://")
        picker = start(POOL, collector, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
                       OTEL_BSP_MAX_EXPORT_BATCH_SIZE="16", **variables)
        picker.expect_error("trace export failed")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            assert {proxy.pick() for _ in range(80)} == {A, B}
            picker.wait_streams(0)
        picker.stop()  # the last try of each batch
        (line,) = [line for line in picker.log_lines() if line.get("event") == "trace export failed"]
        assert line["reason"] and (reason or "") in line["reason"], line
        assert collector.n_asked == 0


def test_traces_over_tls_take_a_new_certificate(start, files, tmp_path):
    """The files are read with each connection: what could not be sent is sent then."""
    ca = tmp_path / "ca.crt"
    ca.write_bytes(pathlib.Path(files["other"]).read_bytes())
    with otlp.GrpcCollector(tls=secured(files)) as collector:
        picker = start(POOL, collector, OTEL_EXPORTER_OTLP_CERTIFICATE=str(ca))
        with Proxy(picker.grpc_addresses[0]) as proxy:
            chat(proxy)
            picker.wait_streams(0)
        ca.write_bytes(pathlib.Path(files["root"]).read_bytes())
        picker.wait_until(lambda now: now['sluice_traces_total{result="written"}'] == 1, "the trace")


@pytest.mark.parametrize("variables, message", [
    ({"OTEL_EXPORTER_OTLP_CERTIFICATE": "/none.crt"}, "OTEL_EXPORTER_OTLP_CERTIFICATE /none.crt: expected certificates in PEM"),
    ({"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE": "/none.crt"},
     "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE /none.crt: expected a certificate in PEM"),
    ({"OTEL_EXPORTER_OTLP_CLIENT_KEY": "/none.key"},
     "OTEL_EXPORTER_OTLP_CLIENT_KEY: expected its certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_traces_files_of_tls_that_cannot_be_used(protocol, variables, message):
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, **variables}
    done = run("pick", "--endpoint", A, "--tracing", "--grpc", "127.0.0.1:0", "--metrics", "none", env=env)
    assert done.returncode == 1 and message in done.stderr, done


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_traces_over_tls_to_a_silent_peer(start, protocol):
    """It takes connections, and says nothing in the handshake: requests are answered, and the end does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as peer:
        picker = start(POOL, None, OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                       OTEL_EXPORTER_OTLP_ENDPOINT=f"https://127.0.0.1:{peer.getsockname()[1]}")
        picker.expect_error("trace export failed")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            assert {proxy.pick() for _ in range(40)} == {A, B}
            connection, _ = peer.accept()
            assert {proxy.pick() for _ in range(40)} == {A, B}
            picker.wait_streams(0)
        picker.stop()
        connection.close()
        assert len([line for line in picker.log_lines() if line.get("event") == "trace export failed"]) == 1

"""Traces to a collector of OpenTelemetry's: their form, how they hang on those of callers, and what happens
when the collector is slow, broken or not there."""
import contextlib
import time

import pytest
from tritonclient.utils import InferenceServerException

from lib import http1, otlp
from lib.traces import TIMES, Live

pytestmark = pytest.mark.tsan

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
SOON = "opentelemetry,bsp_schedule_delay=10"


@pytest.fixture
def start(start_server, repositories, tmp_path):
    with contextlib.ExitStack() as stack:
        def begin(*settings, answers=(), said=(), url=None):
            collector = stack.enter_context(otlp.Collector(answers, said))
            live = Live(start_server, tmp_path, repositories("default"), "mode=opentelemetry",
                        "level=TIMESTAMPS", f"opentelemetry,url={url or collector.url}", *settings, file=False)
            for client in live.clients.values():
                stack.callback(client.close)
            return live, collector
        yield begin


def traces(collector):
    """The spans of each trace, the outermost first."""
    found = {}
    for span in collector.spans():
        found.setdefault(span["traceId"], []).append(span)
    for spans in found.values():
        for outer, inner in zip(spans, spans[1:]):
            assert inner["parentSpanId"] == outer["spanId"]
            assert int(outer["startTimeUnixNano"]) <= int(inner["startTimeUnixNano"])
            assert int(inner["endTimeUnixNano"]) <= int(outer["endTimeUnixNano"])
    return found


def test_url_without_scheme_is_http(start_server, repositories, tmp_path):
    """As Triton's users write it."""
    with contextlib.ExitStack() as stack:
        collector = stack.enter_context(otlp.Collector((), ()))
        live = Live(start_server, tmp_path, repositories("default"), "mode=opentelemetry", "level=TIMESTAMPS", "rate=1",
                    "opentelemetry,url=" + collector.url.removeprefix("http://"), SOON, file=False)
        for client in live.clients.values():
            stack.callback(client.close)
        live.infer("http")
        collector.wait(lambda: len(collector.spans()) == 3, http1.PATIENCE)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_export_spans(start, protocol):
    live, collector = start("rate=1", SOON, "opentelemetry,resource=service.name=models",
                            "opentelemetry,resource=where=here=there")
    before = time.time_ns()
    live.infer(protocol, request_id="the id")
    collector.wait(lambda: len(collector.spans()) == 3, http1.PATIENCE)
    assert collector.requests[0][0] == {"service.name": "models", "where": "here=there"}
    (spans,) = traces(collector).values()
    assert [span["name"] for span in spans] == ["InferRequest", "id_fp32", "compute"]
    assert "parentSpanId" not in spans[0] and "status" not in spans[0]
    assert len({span["spanId"] for span in spans}) == 3
    for span in spans[:2]:
        assert otlp.plain(span["attributes"]) == {
            "triton.model_name": "id_fp32", "triton.model_version": "1", "triton.trace_id": "1",
            "triton.trace_parent_id": "0", "triton.request_id": "the id"}
    events = [[event["name"] for event in span["events"]] for span in spans]
    assert sorted(sum(events, [])) == sorted(TIMES[protocol])
    assert events[1] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert before <= int(spans[0]["startTimeUnixNano"]) and int(spans[0]["endTimeUnixNano"]) <= time.time_ns()
    live.wait_count(1)
    live.infer(protocol)
    collector.wait(lambda: len(traces(collector)) == 2, http1.PATIENCE)


def test_export_failed_requests(start):
    live, collector = start("rate=1", SOON)
    with pytest.raises(InferenceServerException):
        live.infer(model="id_failing")
    with pytest.raises(InferenceServerException):
        live.infer(model="id_fixed")
    collector.wait(lambda: len(traces(collector)) == 2, http1.PATIENCE)
    failed, refused = traces(collector).values()
    assert failed[0]["status"]["code"] == 2 and "out of ink" in failed[0]["status"]["message"]
    assert len(failed) == 3 and len(refused) == 1 and refused[0]["status"] == {"code": 2}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_export_sampled_traceparent_continues_trace(start, protocol):
    live, collector = start("rate=0", SOON)
    live.infer(protocol)
    live.infer(protocol, headers={"traceparent": PARENT, "tracestate": "rojo=1,congo=2"})
    collector.wait(lambda: len(collector.spans()) == 3, http1.PATIENCE)
    (spans,) = traces(collector).values()
    assert spans[0]["traceId"] == TRACE and spans[0]["parentSpanId"] == SPAN
    assert all(span["traceState"] == "rojo=1,congo=2" for span in spans)
    live.wait_count(1)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_export_unsampled_traceparent_is_not_traced(start, protocol):
    """What it has decided counts for all of its trace."""
    live, collector = start("rate=1", SOON)
    live.infer(protocol, headers={"traceparent": PARENT[:-1] + "0"}, n=3)
    live.infer(protocol)
    live.wait_count(1)
    assert TRACE not in traces(collector)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("parent", ["", "x", PARENT.upper(), PARENT + "-", PARENT[:-1], f"ff{PARENT[2:]}",
                                    PARENT.replace(SPAN, "0" * 16), PARENT.replace(TRACE, "0" * 32)])
def test_export_invalid_traceparent_is_ignored(start, protocol, parent):
    live, collector = start("rate=1", SOON)
    live.infer(protocol, headers={"traceparent": parent, "tracestate": "rojo=1"})
    collector.wait(lambda: len(collector.spans()) == 3, http1.PATIENCE)
    (spans,) = traces(collector).values()
    assert spans[0]["traceId"] != TRACE and "parentSpanId" not in spans[0] and "traceState" not in spans[0]


def test_export_duplicate_traceparent_is_ignored(start):
    live, collector = start("rate=0", SOON)
    body = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
    for fields in ([PARENT, PARENT], [PARENT]):
        answer = http1.request(live.server.address, "POST", "/v2/models/id_fp32/infer", body,
                               [("traceparent", field) for field in fields])
        assert answer.status == 200
    collector.wait(lambda: collector.spans(), http1.PATIENCE)
    live.wait_count(1)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_export_settings(start, protocol):
    live, collector = start("rate=5", "opentelemetry,resource=a=b")
    shown = {"trace_level": ["TIMESTAMPS"], "trace_rate": "5", "trace_count": "-1",
             "trace_mode": "opentelemetry", "url": collector.url, "resource": "service.name=sluice,a=b",
             "bsp_max_queue_size": "2048", "bsp_max_export_batch_size": "512", "bsp_schedule_delay": "5000"}
    assert live.get(protocol) == live.get(protocol, "id_fp32") == shown
    assert live.set(protocol, trace_rate="1") == shown | {"trace_rate": "1"}
    with pytest.raises(InferenceServerException, match="TENSORS"):
        live.set(protocol, trace_level=["TENSORS"])
    assert live.set(protocol, trace_level=["OFF"]) == shown | {"trace_rate": "1", "trace_level": ["OFF"]}
    live.infer(protocol, headers={"traceparent": PARENT})
    assert live.count() == 0


def test_export_batches(start):
    """Full ones leave at once, what is left at the end."""
    live, collector = start("rate=1", "opentelemetry,bsp_max_export_batch_size=6",
                            "opentelemetry,bsp_schedule_delay=600000")
    live.infer(n=5)
    collector.wait(lambda: len(collector.spans()) == 12, http1.PATIENCE)
    assert [len(spans) for _, spans in collector.requests] == [6, 6]
    live.server.stop()
    assert [len(spans) for _, spans in collector.requests] == [6, 6, 3]
    assert len(traces(collector)) == 5


def test_export_busy_collector_is_retried(start):
    live, collector = start("rate=1", SOON, answers=[(503, {}), (429, {"Retry-After": "1"})])
    live.infer()
    collector.wait(lambda: len(collector.spans()) == 3, http1.PATIENCE)
    assert collector.n_asked == 3
    live.wait_count(1)


def test_export_refusing_collector_is_logged(start):
    live, collector = start("rate=1", SOON, answers=[(400, {}), (500, {})])
    live.server.expect_error("trace export failed")
    for number in range(2):
        live.infer()
        live.wait_count(number + 1, "failed")
    assert live.server.log_text().count("trace export failed") == 1
    live.infer()
    live.wait_count(1)
    assert collector.n_asked == 3


def test_export_partial_success_is_logged(start):
    """What it refuses is told once, and not sent again; what it says besides is nothing."""
    said = [b'{"partialSuccess":{"rejectedSpans":"%d","errorMessage":"too old"}}' % n for n in (2, 1, 3)]
    live, collector = start("rate=1", SOON, said=[*said, b"{" * 5000, b"[" * 100, b"none"])
    live.server.expect_error("trace export failed")
    for n, result in ((1, "written"), (2, "written"), (1, "failed"), (3, "written"), (4, "written"), (5, "written")):
        live.infer()
        live.wait_count(n, result)
    log = live.server.log_text()
    assert log.count("trace collector rejected spans") == 1 and '"spans":2,"of":3,"reason":"too old"' in log
    assert log.count("the collector refused all spans") == 1
    assert collector.n_asked == 6


def test_export_without_collector_is_bounded(start):
    """Requests don't notice; the queue is bounded, and the end does not wait for long."""
    live, _ = start("rate=1", SOON, "opentelemetry,bsp_max_queue_size=9", "opentelemetry,bsp_max_export_batch_size=3",
                    url="http://127.0.0.1:1/v1/traces")
    live.server.expect_error("trace export failed")
    live.infer(n=20)
    live.wait_count(17, "dropped")
    live.check_alive()
    live.server.stop()

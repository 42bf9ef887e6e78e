"""A real Envoy in front of a picker with --tracing: the model server is told of the picker's span, which is a part of
the client's trace, and the spans are at the collector."""
import json
import re

import pytest

from lib import echo, http1, otlp
from lib.gateway import IN_PROCESS, Gateway

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("config", ["headers-only.yaml", "buffered.yaml", "full-duplex.yaml", IN_PROCESS])
def test_envoy_servers_continue_the_trace(tmp_path, monkeypatch, config):
    body = json.dumps({"model": "m", "prompt": "hello"}).encode()
    with otlp.GrpcCollector() as collector, echo.three() as servers:
        for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_SAMPLER_ARG": "0",
                            "OTEL_BSP_SCHEDULE_DELAY": "10"}.items():
            monkeypatch.setenv(name, value)
        addresses = [server.address for server in servers]
        gateway = Gateway(tmp_path, config, addresses, args=["--tracing"],
                          change=lambda _: f"endpoints: {json.dumps(addresses)}\nmodels: [{{name: m}}]\n")
        try:
            said = gateway.ask("/v1/completions", "-H", f"traceparent: {PARENT}", "-H", "tracestate: a=b", body=body)
            told = said["headers"]["traceparent"]
            alone = gateway.ask("/v1/completions", body=body)["headers"]["traceparent"]
            gateway.stop()
        finally:
            gateway.kill()
        collector.wait(lambda: len(collector.spans()) == 4, http1.PATIENCE)
        spans = {span["name"]: span for span in collector.spans()}
        request, server = spans["gateway.request"], spans["text_completion m" if config != "headers-only.yaml" else
                                                          "text_completion"]
        assert told == f"00-{TRACE}-{server['spanId']}-01" and said["headers"]["tracestate"] == "a=b"
        assert (request["traceId"], request["parentSpanId"]) == (TRACE, SPAN)
        status = otlp.plain(request["attributes"])["http.response.status_code"]
        assert status == "200" and "status" not in request
        # The other is not sampled, and its server is told so.
        assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", alone)

"""request-attribute-reporter: a number that is computed from a response's usage is in the dynamic metadata of the last
message that the picker sends for it, as rate limiters of gateways read it."""
import json

import pytest

from lib.pick_client import Proxy, answer_body, answer_headers, endpoint_of, headers
from lib.pick_config import upstream_config

pytestmark = pytest.mark.tsan

NAME = "x-gateway-inference-request-cost"
USAGE = {"prompt_tokens": 32, "completion_tokens": 10, "total_tokens": 42,
         "prompt_tokens_details": {"cached_tokens": 16}}
WHOLE = json.dumps({"object": "chat.completion", "choices": [{"message": {"content": "Hello!"}}], "usage": USAGE})


def reporter(expression, name=NAME, key=None, **more):
    return {"type": "request-attribute-reporter", "name": f"r-{name}-{key}", "parameters": {"attributes": [{
        "key": {"name": name, **({"namespace": key} if key else {})}, "expression": expression, **more}]}}


def reporting_config(*plugins):
    """The plugins are in the profile as well, as upstream's own test has them: they are no steps of it."""
    names = ["openai-parser", *(plugin["name"] for plugin in plugins), "random-picker"]
    return upstream_config([*plugins, {"type": "openai-parser"}, {"type": "random-picker"}], ["10.0.0.1:8000"],
                           schedulingProfiles=[{"name": "default", "plugins": [{"pluginRef": name} for name in names]}])


def metadata_of(said):
    return {space: dict(value.struct_value.fields.items()) for space, value in said.dynamic_metadata.fields.items()}


def numbers_of(said):
    return {space: {name: value.number_value for name, value in fields.items()}
            for space, fields in metadata_of(said).items()}


def respond(proxy, *bodies, mode="BUFFERED", fields=None):
    """Returns: what the picker says to the messages of the response."""
    stream = proxy.stream(headers("/v1/chat/completions", config=f"NONE {mode}"))
    endpoint_of(stream.next())
    said = []
    for message in (answer_headers(fields=fields or {"content-type": "application/json"}),
                    *(answer_body(body.encode(), end=body is bodies[-1]) for body in bodies)):
        stream.send(message)
        said.append(stream.next())
    stream.close()
    return said


def test_reporter_of_a_whole_response(start_picker):
    picker = start_picker(reporting_config(
        reporter("usage.completion_tokens\n", condition="has(usage.completion_tokens)"),
        reporter("usage.prompt_tokens + usage.completion_tokens * 2.0", "weighted"),
        reporter("has(usage.prompt_tokens_details) ? usage.prompt_tokens - "
                 "usage.prompt_tokens_details.cached_tokens : usage.prompt_tokens", "uncached", "own.space"),
        reporter("usage.total_tokens / 4.0", "cut"),
        reporter("usage.total_tokens", "other", condition="usage.total_tokens > 100"),
        reporter("usage.prompt_tokens - 32.0", "nothing"),
        reporter("int(usage.completion_tokens) - 11", "minus-one"),
        reporter("1 / (int(usage.completion_tokens) - 10)", "failing")))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        head, body = respond(proxy, WHOLE)
        assert not head.dynamic_metadata.fields
        assert numbers_of(body) == {"envoy.lb": {NAME: 10, "weighted": 52, "cut": 10}, "own.space": {"uncached": 16}}
        without = json.dumps({"usage": {key: USAGE[key] for key in ("prompt_tokens", "completion_tokens")}})
        assert numbers_of(respond(proxy, without)[-1])["own.space"] == {"uncached": 32}
        # Without a usage all of it is 0: one that comes to 0 is not reported, others are.
        assert numbers_of(respond(proxy, json.dumps({"error": "busy"}))[-1]) == {
            "envoy.lb": {"nothing": -32, "minus-one": -11}}


@pytest.mark.parametrize("mode", ["STREAMED", "FULL_DUPLEX_STREAMED"])
def test_reporter_of_events(start_picker, mode):
    """The usage is in the last event; the number is in the answer to the last message alone."""
    picker = start_picker(reporting_config(reporter("usage.total_tokens")))
    events = ['data: {"choices": [{"delta": {"content": "a"}}]}\n\n', f'data: {json.dumps({"usage": USAGE})}\n\n',
              "data: [DONE]\n\n"]
    with Proxy(picker.grpc_addresses[0]) as proxy:
        *before, last = respond(proxy, *events, mode=mode, fields={"content-type": "text/event-stream"})
        assert not any(said.dynamic_metadata.fields for said in before)
        assert numbers_of(last) == {"envoy.lb": {NAME: 42}}


def test_reporter_needs_the_body(start_picker):
    """A body that the proxy does not show, or that is compressed, has no usage."""
    picker = start_picker(reporting_config(reporter("usage.total_tokens + 1.0")))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        said = respond(proxy, WHOLE, fields={"content-type": "application/json", "content-encoding": "gzip"})
        assert not any(one.dynamic_metadata.fields for one in said)
        assert numbers_of(respond(proxy, WHOLE)[-1]) == {"envoy.lb": {NAME: 43}}

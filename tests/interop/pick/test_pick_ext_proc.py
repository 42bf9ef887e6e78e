"""`sluice pick` as a proxy sees it: grpcio sends what Envoy would, in every mode. After each test no stream is
open and nothing is in flight."""
import json

import grpc
import pytest

from lib import http1, metrics
from lib.ext_proc import DESTINATION
from lib.pick_client import (HINT, HINT_NAMESPACE, Proxy, answer_headers, body, endpoint_of, headers, new_message, refusal_of,
                             set_headers)
from lib.picker import Picker

pytestmark = pytest.mark.tsan

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "[2001:db8::1]:8000"
POOL = f"""
endpoints: [{A}, {B}, "{C}"]
models:
  - digits
  - {{name: llama, targets: [{{model: llama-v2-long}}]}}
  - {{name: spare, criticality: Sheddable}}
saturation: {{max_in_flight: 2, retry_after: 3s}}
"""
DUPLEX = "FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    picker = Picker(tmp_path_factory.mktemp("picker"), POOL, ["--log-level", "debug"])
    with picker:
        yield picker


@pytest.fixture
def picker(shared):
    assert shared.process.poll() is None, shared.log_text()
    yield shared
    wait_at_rest(shared)
    shared.check_log()


@pytest.fixture
def proxy(picker):
    with Proxy(picker.grpc_addresses[0]) as proxy:
        yield proxy


def in_flight(numbers):
    return {name.split('"')[1]: value for name, value in numbers.items()
            if name.startswith("sluice_pick_requests_in_flight{")}


def wait_at_rest(picker):
    def fits(numbers):
        return (not any(in_flight(numbers).values()) and numbers["sluice_pick_open_streams"] == 0
                and numbers["sluice_pick_held_bytes"] == 0
                and numbers["sluice_pick_pool_requests_in_flight"] == 0)
    return metrics.wait_until(picker.metrics_address, fits, "a picker at rest")


def completion(model, size=0):
    return json.dumps({"prompt": "x" * size, "model": model, "stream": True}).encode()


# ---- picks ---------------------------------------------------------------------------------------

def test_pick_at_headers(proxy):
    said = proxy.ask("/v2/models/digits/infer")
    assert endpoint_of(said) in (A, B, C)
    assert said.request_headers.response.clear_route_cache
    assert set(set_headers(said)) == {DESTINATION}
    assert not said.HasField("mode_override")


def test_pick_request_without_model(proxy):
    assert proxy.pick("/metrics", "GET", end=True) in (A, B, C)
    assert proxy.pick("/anything", "POST") in (A, B, C)


def test_pick_fewest_in_flight(picker, proxy):
    streams = [proxy.stream(headers("/v2/models/digits/infer")) for _ in range(6)]
    picked = [endpoint_of(stream.next()) for stream in streams]
    assert sorted(picked) == sorted([A, B, C] * 2)
    assert in_flight(picker.numbers()) == {A: 2, B: 2, C: 2}
    streams[picked.index(B)].reset()
    metrics.wait_until(picker.metrics_address, lambda n: in_flight(n)[B] == 1, "one less")
    assert proxy.pick("/v2/models/digits/infer") == B
    for stream in streams:
        stream.reset()


def test_pick_answer_end_frees_slot(picker, proxy):
    """The stream goes on; the request is over."""
    stream = proxy.stream(headers("/v2/models/digits/infer"))
    picked = endpoint_of(stream.next())
    assert in_flight(picker.numbers())[picked] == 1
    stream.send(answer_headers(204, end=True))
    assert stream.next().WhichOneof("response") == "response_headers"
    metrics.wait_until(picker.metrics_address, lambda n: in_flight(n)[picked] == 0, "an end")
    assert stream.close() == []


@pytest.mark.parametrize("size", [0, 200, 62_000, 220_000, 1_000_000])
def test_body_full_duplex_is_unchanged(proxy, size):
    """The answer to the headers waits for the model; the body goes on byte for byte."""
    sent = completion("digits", size)
    stream = proxy.stream(headers("/v1/completions", config=DUPLEX), body(sent), body(end=True))
    assert endpoint_of(stream.next()) in (A, B, C)
    got, ends = b"", 0
    while ends == 0:
        part = stream.next().request_body.response.body_mutation.streamed_response
        assert len(part.body) <= 62_000
        got, ends = got + part.body, ends + part.end_of_stream
    assert got == sent
    assert stream.close() == []


def test_body_full_duplex_in_small_pieces(proxy):
    sent = completion("llama", 3000)
    stream = proxy.stream(headers("/v1/chat/completions", config=DUPLEX))
    stream.send(*[body(sent[i:i + 7]) for i in range(0, len(sent), 7)], body(end=True))
    assert endpoint_of(stream.next()) in (A, B, C)
    answers = [said.request_body.response.body_mutation.streamed_response for said in stream.close()]
    assert b"".join(part.body for part in answers) == sent.replace(b'"llama"', b'"llama-v2-long"')
    assert [part.end_of_stream for part in answers].count(True) == 1 and answers[-1].end_of_stream


def test_body_buffered_model_is_rewritten(proxy):
    sent = completion("llama")
    stream = proxy.stream(headers("/v1/completions", config="BUFFERED NONE",
                                  fields={"content-length": str(len(sent))}))
    assert stream.next().request_headers.response.header_mutation.set_headers == []
    stream.send(body(sent, end=True))
    said = stream.next()
    assert endpoint_of(said) in (A, B, C)
    changed = said.request_body.response.body_mutation.body
    assert json.loads(changed)["model"] == "llama-v2-long"
    assert set_headers(said)["content-length"] == str(len(changed))
    stream.reset()


def test_body_requested_by_mode_override(proxy):
    """Only the body names the model: the pick leaves at the headers, and the body is asked for."""
    stream = proxy.stream(headers("/v1/completions"))
    said = stream.next()
    assert endpoint_of(said) in (A, B, C)
    assert said.mode_override.request_body_mode == 2  # BUFFERED
    stream.send(body(completion("nobody"), end=True))
    assert refusal_of(stream.next())[0] == 404
    assert stream.close() == []


# ---- the subset ----------------------------------------------------------------------------------

@pytest.mark.parametrize("hint, picked", [
    ([B], {B}), (B, {B}), (f"{A}, {C}", {A, C}), ([A, "1.2.3.4:8000", "junk"], {A}),
    ("[2001:DB8:0::1]:8000", {C}), (None, {A, B, C})])
def test_subset_limits_pick(proxy, hint, picked):
    found = {proxy.pick("/v2/models/digits/infer", hint=hint) for _ in range(30)}
    assert found <= picked


@pytest.mark.parametrize("hint", [[], "", ["10.0.0.1:8001"], ["10.0.0.1"], "junk"])
@pytest.mark.parametrize("config, end", [("NONE NONE", True), ("NONE NONE", False), (DUPLEX, True)])
def test_subset_empty_is_503(proxy, hint, config, end):
    status, fields, text = proxy.refuse("/", hint=hint, config=config, end=end)
    assert status == 503 and "error" in json.loads(text)
    assert fields["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


# ---- refusals ------------------------------------------------------------------------------------

def test_model_unknown_is_404(proxy):
    status, _, text = proxy.refuse("/v2/models/nope/infer")
    assert status == 404 and "nope" in json.loads(text)["error"]
    stream = proxy.stream(headers("/v1/completions", config=DUPLEX), body(completion("nope"), end=True))
    assert refusal_of(stream.next())[0] == 404
    assert stream.close() == []


def test_model_unknown_over_grpc_is_not_found(proxy):
    stream = proxy.stream(headers("/inference.GRPCInferenceService/ModelInfer", config="BUFFERED NONE",
                                  fields={"content-type": "application/grpc"}))
    stream.next()
    message = b"\x0a\x04nope"
    stream.send(body(b"\0" + len(message).to_bytes(4, "big") + message, end=True))
    said = stream.next()
    assert said.immediate_response.grpc_status.status == grpc.StatusCode.NOT_FOUND.value[0]
    assert b"nope" in said.immediate_response.body
    assert stream.close() == []


def test_body_without_model_is_400(proxy):
    stream = proxy.stream(headers("/v1/completions", config=DUPLEX), body(b'{"prompt":"a"}', end=True))
    assert refusal_of(stream.next())[0] == 400
    stream.close()


def test_subset_of_other_type_is_named(proxy):
    """A hint that is a number matches nothing, and the error does not call it empty."""
    message = headers("/v2/models/digits/infer", hint="x")
    message.metadata_context.filter_metadata[HINT_NAMESPACE].fields[HINT].number_value = 8000
    with_number = proxy.stream(message)
    status, _, text = refusal_of(with_number.next())
    with_number.reset()
    assert status == 503 and "none of the 1 endpoints in the request's subset (1 of them not an address)" in text
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)


@pytest.mark.parametrize("path", ["//v2//models/secret/infer", "/v2/models/digits/../secret/infer",
                                  "/v2/models/x/%2e%2E/secret/infer", "/v1//completions"])
def test_model_in_ambiguous_path_is_400(proxy, path):
    """A server that cleans paths would serve a model that the picker did not see."""
    status, _, text = proxy.refuse(path)
    assert status == 400 and "names another model" in text
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)


@pytest.mark.parametrize("config", ["BUFFERED NONE", DUPLEX])
def test_body_with_second_model_is_400(proxy, config):
    """Servers take the last one, which the picker has not seen when it picks."""
    stream = proxy.stream(headers("/v1/completions", config=config))
    if config == DUPLEX:
        stream.send(body(b'{"model": "digits", "prompt": "'), body(b"x" * 70000 + b'", "mod'))
        stream.send(body(b'el": "secret"}', end=True))
    else:
        stream.send(body(b'{"model": "digits", "model": "secret"}', end=True))
    answers = [stream.next()]
    while answers[-1].WhichOneof("response") != "immediate_response":
        answers.append(stream.next())
    status, _, text = refusal_of(answers[-1])
    assert status == 400 and "another one after it" in text
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)


@pytest.mark.parametrize("n_parts", [1, 3])
def test_grpc_body_with_second_model_is_refused(proxy, n_parts):
    """The same in a ModelInferRequest: its field 1 is there twice."""
    message = b"\x0a\x06digits" + b"\x1a\x02id" + b"\x0a\x06secret"
    data = b"\0" + len(message).to_bytes(4, "big") + message
    size = -(-len(data) // n_parts)
    parts = [data[at:at + size] for at in range(0, len(data), size)]
    stream = proxy.stream(headers("/inference.GRPCInferenceService/ModelInfer", config=DUPLEX,
                                  fields={"content-type": "application/grpc"}))
    for part in parts:
        stream.send(body(part, end=part is parts[-1]))
    answers = [stream.next()]
    while answers[-1].WhichOneof("response") != "immediate_response":
        answers.append(stream.next())
    assert answers[-1].immediate_response.grpc_status.status == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)


def test_model_with_nul_is_printed_whole(proxy):
    stream = proxy.stream(headers("/v1/completions", config="STREAMED STREAMED"))
    stream.send(body(b'{"model": "a\\u0000b"}', end=True))
    answers = [stream.next()]
    while answers[-1].WhichOneof("response") != "immediate_response":
        answers.append(stream.next())
    status, _, text = refusal_of(answers[-1])
    assert status == 404 and "a?b" in text
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)


def test_rewrite_header_not_utf8_is_400(proxy):
    message = headers("/v2/models/digits/infer")
    message.request_headers.headers.headers.add(key="x-gateway-model-name-rewrite", raw_value=b"a\xffb")
    stream = proxy.stream(message)
    status, _, text = refusal_of(stream.next())
    stream.reset()
    assert status == 400 and "not UTF-8" in text
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)


def test_pool_saturated_is_429(proxy):
    full = [proxy.stream(headers("/v2/models/digits/infer")) for _ in range(6)]
    for stream in full:
        endpoint_of(stream.next())
    status, fields, _ = proxy.refuse("/v2/models/spare/infer")
    assert status == 429 and fields["retry-after"] == "3"
    assert fields["x-llm-d-request-dropped-reason"] == "rejected-saturated"
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)  # not sheddable
    for stream in full:
        stream.reset()


def test_message_invalid_is_invalid_argument(proxy):
    call = proxy.channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b"\xff\xff"]), timeout=http1.PATIENCE))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert proxy.pick("/v2/models/digits/infer") in (A, B, C)


def test_observability_mode_is_not_answered(proxy):
    message = headers("/v2/models/digits/infer")
    message.observability_mode = True
    assert proxy.stream(message).close() == []


def test_message_unknown_field_is_ignored(proxy):
    stream = proxy.stream(new_message("NONE NONE"), headers("/v2/models/digits/infer"))
    assert endpoint_of(stream.next()) in (A, B, C)
    stream.reset()


# ---- many ----------------------------------------------------------------------------------------

def test_stream_resets_keep_connection(picker, proxy):
    """Envoy resets every stream: a limit on resets would end its connection."""
    before = picker.numbers()["sluice_accepted_connections_total"]
    for _ in range(3000):
        proxy.pick("/v2/models/digits/infer")
    after = picker.numbers()["sluice_accepted_connections_total"]
    assert after - before == 2  # the second one asked for the numbers


def test_streams_over_thousand_concurrent(picker, proxy):
    streams = [proxy.stream(headers("/v2/models/digits/infer")) for _ in range(1100)]
    for stream in streams:
        endpoint_of(stream.next())
    assert picker.numbers()["sluice_pick_open_streams"] == 1100
    assert set(in_flight(picker.numbers()).values()) <= {366, 367}
    for stream in streams:
        stream.reset()

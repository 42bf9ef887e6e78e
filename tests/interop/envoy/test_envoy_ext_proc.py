"""What a real Envoy does with the filter settings of deploy/envoy, seen from the picker's place. The picker
is built on these; docs/envoy.md tells them to people. A newer Envoy that differs fails here first."""
import json
import re

import pytest

from lib import echo, http1
from lib.envoy import LISTENER, PICKER, Envoy, deployed, patient, places_of
from lib.ext_proc import Recorder, answer, attributes_of, headers_of, pick, set_header

pytestmark = pytest.mark.plain

REFUSING = "127.0.0.1:1"  # refuses connections
HEADERS_ONLY = ("headers-only.yaml", "headers-only-closed.yaml", "metadata.yaml")
BODY = b'{"model": "digits"}'


@pytest.fixture(scope="module")
def upstreams():
    with echo.three() as made:
        yield made


@pytest.fixture
def recorder():
    made = Recorder(lambda phase, _: answer(phase))
    yield made
    made.stop()


@pytest.fixture
def start_envoy(tmp_path, recorder):
    """start_envoy(file, text → text, servers): the picker's place is the recorder's."""
    started = []

    def start(name, change=lambda text: text, servers=(REFUSING, REFUSING, REFUSING), connect_timeout="60s"):
        places = {LISTENER: "127.0.0.1:0", PICKER: recorder.address, **places_of(servers)}
        started.append(Envoy(tmp_path, change(patient(deployed(name, places), connect_timeout))))
        return started[-1]
    yield start
    for one in started:
        one.kill()


def send(connection, path="/", method="GET", body=b"", **headers):
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = f"content-length: {len(body)}\r\n" if body else ""
    connection.send(f"{method} {path} HTTP/1.1\r\nhost: here\r\n{length}{fields}\r\n".encode() + body)


def ask(envoy, path="/", method="GET", body=b"", **headers):
    with http1.Connection(envoy.address) as connection:
        send(connection, path, method, body, **headers)
        return connection.read_answer(method)


def said(reply):
    return json.loads(reply.body)


def picks(endpoint, **more):
    """Picks that endpoint at the headers and lets everything else go on."""
    return lambda phase, _: pick(endpoint, **more) if phase == "request_headers" else answer(phase)


# ---- the end of an answer, without its body ------------------------------------------------------

@pytest.mark.parametrize("name", HEADERS_ONLY)
def test_ext_proc_stream_lasts_until_answer_ends(start_envoy, recorder, name):
    """A message for the head of the request and one for that of the answer; then nothing until that has ended."""
    server = echo.Echo()
    recorder.say = picks(server.address)
    envoy = start_envoy(name)
    with http1.Connection(envoy.address) as connection:
        send(connection, x_answer="pause")
        assert connection.read_head().status == 200
        stream = recorder.last()
        assert not stream.ended.is_set()
        server.let_go()
        assert recorder.ended().phases() == ["request_headers", "response_headers"]
    server.close()


@pytest.mark.parametrize("name", HEADERS_ONLY)
def test_ext_proc_client_disconnect_ends_stream(start_envoy, recorder, name):
    server = echo.Echo()
    recorder.say = picks(server.address)
    envoy = start_envoy(name)
    connection = http1.Connection(envoy.address)
    send(connection, x_answer="pause")
    assert connection.read_head().status == 200
    connection.reset()
    assert recorder.ended().phases() == ["request_headers", "response_headers"]
    server.close()


@pytest.mark.parametrize("wish", ["die", "status=503", "sse", ""])
def test_ext_proc_stream_ends_after_each_kind_of_answer(start_envoy, recorder, upstreams, wish):
    recorder.say = picks(upstreams[0].address)
    envoy = start_envoy("headers-only.yaml")
    with http1.Connection(envoy.address) as connection:
        send(connection, x_answer=wish)
        connection.read_head()
        phases = recorder.ended().phases()
        # Of a server that has gone Envoy tells or not: it may end the stream before its own response.
        assert phases == ["request_headers", "response_headers"] or wish == "die" and phases == ["request_headers"]


def test_ext_proc_response_trailers_are_sent(start_envoy, recorder, upstreams):
    recorder.say = picks(upstreams[0].address)
    envoy = start_envoy("headers-only.yaml")
    with http1.Connection(envoy.address) as connection:
        send(connection, te="trailers", x_answer="trailers")
        connection.read_head()
        stream = recorder.ended()
    assert stream.phases() == ["request_headers", "response_headers", "response_trailers"]
    assert headers_of(stream.messages[2]) == {"x-checked": "yes"}


@pytest.mark.parametrize("headers", ["SKIP", "SEND"])
def test_ext_proc_trailers_skip_ends_stream_early(start_envoy, recorder, headers):
    """Why response_trailer_mode is SEND: without it the stream is over before the answer is."""
    server = echo.Echo()
    recorder.say = picks(server.address)
    envoy = start_envoy("headers-only.yaml", lambda text: text.replace(
        "response_trailer_mode: SEND", "response_trailer_mode: SKIP").replace(
        "response_header_mode: SEND", f"response_header_mode: {headers}"))
    with http1.Connection(envoy.address) as connection:
        send(connection, x_answer="pause")
        connection.read_head()
        assert recorder.ended().phases() == ["request_headers"] + (
            ["response_headers"] if headers == "SEND" else [])
    server.close()


@pytest.mark.parametrize("name", [*HEADERS_ONLY, "headers-only.yaml with failure_mode_allow: false"])
def test_ext_proc_picker_exit_keeps_started_answers(start_envoy, recorder, name):
    """But not with failure_mode_allow false, which is why no file for headers has it."""
    name, _, strict = name.partition(" with ")
    server = echo.Echo()
    recorder.say = picks(server.address)
    envoy = start_envoy(name, lambda text: text.replace(strict.replace("false", "true"), strict))
    with http1.Connection(envoy.address) as connection:
        send(connection, x_answer="pause")
        assert connection.read_head().status == 200
        recorder.last()
        recorder.stop()
        if strict:
            assert b"}" not in connection.read_end()
        else:
            server.let_go()
            assert connection.read_body(1) == b"{"
    assert ask(envoy).status == (500 if strict else 503)
    server.close()


# ---- answers that Envoy makes itself -------------------------------------------------------------

RESET = r"upstream_reset_before_response_started"
LOCAL = [("status=503", None, 503, 0, r"via_upstream"),
         ("", REFUSING, 503, 0x20, RESET + r"\{remote_connection_failure\|.*"),
         ("", "gone", 503, 0x20, RESET + r"\{connection_timeout\}"),
         ("close", None, 503, 0x40, RESET + r"\{connection_termination\}"),
         ("garbage", None, 502, 0x800000, RESET + r"\{protocol_error\}"),
         ("silence", None, 504, 0x04, r"response_timeout"),
         ("endless", None, 504, 0x80000, r"upstream_max_stream_duration_reached"),
         ("full", None, 503, 0x80, RESET + r"\{overflow\}"),
         ("", "nonsense", 503, 0x02, r"no_healthy_upstream")]


@pytest.mark.parametrize("wish, endpoint, status, flags, details", LOCAL)
def test_ext_proc_attributes_tell_origin_of_5xx(start_envoy, recorder, upstreams, wish, endpoint, status, flags, details):
    """The table of docs/envoy.md. src/pick/session/attempt.def is what the picker makes of it."""
    gone = echo.Blackhole()
    recorder.say = picks({None: upstreams[0].address, "gone": gone.address}.get(endpoint, endpoint))
    envoy = start_envoy("model-in-body.yaml", lambda text: {
        "silence": text.replace("timeout: 600s", "timeout: 0.2s"),
        "endless": text.replace("idle_timeout: 4s", "idle_timeout: 4s, max_stream_duration: 0.2s"),
        "full": text.replace("circuit_breakers: *many", "circuit_breakers: {thresholds: [{max_connections: 0, "
                             "max_pending_requests: 0}]}")}.get(wish, text), connect_timeout="1s")
    assert ask(envoy, x_answer="silence" if wish == "endless" else wish).status == status
    told = recorder.ended().messages[1]
    upstreams[0].let_go()
    gone.close()
    assert headers_of(told)[":status"] == str(status)
    attributes = attributes_of(told)
    assert int(attributes["response.flags"]) == flags
    assert re.fullmatch(details, attributes["response.code_details"])


# ---- bodies --------------------------------------------------------------------------------------

def test_ext_proc_mode_override_requests_body(start_envoy, recorder, upstreams):
    """The pick may already be in the same answer, and another one in that to the body."""
    recorder.say = lambda phase, _: pick(
        upstreams[phase == "request_body"].address, phase, body_mode="BUFFERED")
    envoy = start_envoy("model-in-body.yaml")
    reply = said(ask(envoy, method="POST", body=BODY))
    assert (reply["server"], reply["length"]) == ("b", len(BODY))
    stream = recorder.ended()
    assert stream.phases() == ["request_headers", "request_body", "response_headers"]
    assert stream.messages[1].request_body.body == BODY
    assert stream.messages[1].request_body.end_of_stream
    assert said(ask(envoy))["server"] == "a"  # no body, nothing to send
    assert recorder.ended().phases() == ["request_headers", "response_headers"]


def test_ext_proc_disallowed_mode_override_is_ignored(start_envoy, recorder, upstreams):
    recorder.say = picks(upstreams[0].address, body_mode="BUFFERED")
    envoy = start_envoy("headers-only.yaml")
    assert said(ask(envoy, method="POST", body=BODY))["server"] == "a"
    assert recorder.ended().phases() == ["request_headers", "response_headers"]


@pytest.mark.parametrize("with_length", [False, True])
def test_ext_proc_replaced_body_needs_content_length(start_envoy, recorder, upstreams, with_length):
    longer = BODY.replace(b"digits", b"digits-of-today")

    def say(phase, _):
        reply = pick(upstreams[0].address, phase, body_mode="BUFFERED")
        if phase == "request_body":
            reply.request_body.response.body_mutation.body = longer
            if with_length:
                set_header(reply, phase, "content-length", str(len(longer)))
        return reply
    recorder.say = say
    envoy = start_envoy("model-in-body.yaml")
    reply = ask(envoy, method="POST", body=BODY)
    assert reply.status == (200 if with_length else 500)
    if with_length:
        assert said(reply)["length"] == len(longer)


def test_ext_proc_fail_open_after_headers_keeps_pick(start_envoy, recorder, upstreams):
    """The picker dies between the headers and the body: what it said at the headers stands."""
    def say(phase, _):
        if phase == "request_body":
            raise RuntimeError("as the test wants it")
        return pick(upstreams[2].address, body_mode="BUFFERED")
    recorder.say = say
    envoy = start_envoy("model-in-body.yaml")
    assert said(ask(envoy, method="POST", body=BODY))["server"] == "c"


@pytest.mark.parametrize("size, status", [(64 << 10, 200), (3 << 20, 200), (3 << 20, 413)])
def test_ext_proc_buffered_body_limit(start_envoy, recorder, upstreams, size, status):
    """Envoy's own is 1 MiB; the files raise it."""
    recorder.say = picks(upstreams[0].address)
    envoy = start_envoy("buffered.yaml", lambda text: text if status == 200 else re.sub(
        r"request_body_buffer_limit.*", "", text))
    assert ask(envoy, method="POST", body=b"a" * size).status == status


def test_ext_proc_mode_grpc_acts_as_buffered(start_envoy, recorder, upstreams):
    """Envoy 1.40 takes the value and does what it does for BUFFERED: the answer to the headers is waited for,
    then the body comes whole. When this fails a newer one has the mode."""
    recorder.say = picks(upstreams[0].address)
    envoy = start_envoy("full-duplex.yaml", lambda text: text.replace(
        "request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: GRPC").replace(
        "message_timeout: 60s", "message_timeout: 5s"))
    assert said(ask(envoy, method="POST", body=BODY))["length"] == len(BODY)
    came = recorder.ended().messages[1].request_body
    assert came.body == BODY and came.end_of_stream
    recorder.say = lambda phase, _: []
    assert ask(envoy, method="POST", body=BODY).status == 504
    assert recorder.ended().phases() == ["request_headers"]


# ---- second choices ------------------------------------------------------------------------------

def start_override(start_envoy, upstreams):
    """Its members: one that refuses, and two."""
    return start_envoy("override-host.yaml",
                       servers=(REFUSING, upstreams[1].address, upstreams[2].address))


def test_ext_proc_fallback_key_is_used_after_refusal(start_envoy, recorder, upstreams):
    envoy = start_override(start_envoy, upstreams)
    recorder.say = picks(REFUSING, fallback=upstreams[2].address)
    assert {said(ask(envoy))["server"] for _ in range(4)} == {"c"}
    served = recorder.ended().messages[1].metadata_context.filter_metadata["envoy.lb"].fields
    assert served["x-gateway-destination-endpoint-served"].string_value == upstreams[2].address


def test_ext_proc_endpoint_list_is_tried_in_order(start_envoy, recorder, upstreams):
    envoy = start_override(start_envoy, upstreams)
    for blank in ("", " "):
        recorder.say = picks(f"{REFUSING},{blank}{upstreams[1].address}")
        assert {said(ask(envoy))["server"] for _ in range(4)} == {"b"}
    recorder.say = picks(f"192.0.2.1:9,{upstreams[2].address}")  # the first is no member
    assert {said(ask(envoy))["server"] for _ in range(4)} == {"c"}


def test_ext_proc_no_pick_uses_cluster_round_robin(start_envoy, recorder, upstreams):
    envoy = start_override(start_envoy, upstreams)
    recorder.say = picks("nonsense", metadata=False)
    assert {said(ask(envoy))["server"] for _ in range(6)} == {"b", "c"}

"""The real picker behind a real Envoy in every mode that ext-proc has, beyond the files of deploy/envoy, and
every answer that the picker has for a request: another model, a refusal, a subset, an endpoint over IPv6;
TLS and a Unix socket between the two."""
import contextlib
import hashlib
import json
import re

import grpc
import pytest
from tritonclient.grpc import service_pb2 as proto

from lib import echo, h2, http1
from lib.certificates import Identity
from lib.gateway import IN_PROCESS, Gateway
from lib.load import Load

BODY = b'{"model": "digits", "prompt": "a"}'
MODES = ("NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "GRPC", "FULL_DUPLEX_STREAMED")
SEE_BODIES = ("model-in-body.yaml", "buffered.yaml", "full-duplex.yaml", IN_PROCESS)


@pytest.fixture
def start(tmp_path, echoes):
    """start(config, …): a gateway in front of the three. It ends well, with nothing in flight."""
    with contextlib.ExitStack() as ending:
        started = []

        def begin(config, endpoints=None, **more):
            gateway = Gateway(tmp_path, config, endpoints or [one.address for one in echoes], **more)
            ending.callback(gateway.kill)
            started.append(gateway)
            return gateway
        yield begin
        for gateway in started:
            gateway.stop()


def in_modes(request, response, headers="SEND", trailers="SEND", more=""):
    """A change of full-duplex.yaml's processing mode."""
    def change(text):
        text = text.replace("request_body_mode: FULL_DUPLEX_STREAMED", f"request_body_mode: {request}")
        text = text.replace("response_body_mode: NONE", f"response_body_mode: {response}")
        text = text.replace("response_header_mode: SEND", f"response_header_mode: {headers}")
        text = text.replace("response_trailer_mode: SEND", f"response_trailer_mode: {trailers}")
        return re.sub(r"( +)failure_mode_allow: \w+", rf"\g<0>\n\1{more}", text) if more else text
    return change


# ---- modes ---------------------------------------------------------------------------------------

def exercise(gateway):
    """Requests and answers of every shape come through whole."""
    assert gateway.ask("/")["length"] == 0
    assert gateway.curl("/", "-I").status == 200
    for http2 in (False, True):
        for size in (0, 300000):
            body = json.dumps({"prompt": "a" * size, "model": "digits"}).encode()
            for args in ((), ("-H", "transfer-encoding: chunked")):
                if args and http2:
                    continue
                answer = gateway.ask("/v1/completions", *args, body=body, http2=http2)
                assert answer["sha1"] == hashlib.sha1(body).hexdigest(), (size, args, http2)
        events = gateway.curl("/v1/completions", "-H", "x-answer: sse", body=BODY, http2=http2)
        assert events.body.count(b"data: ") == 5
    assert gateway.curl("/", "-H", "x-answer: status=204").status == 204
    assert gateway.curl("/", "-H", "x-answer: trailers", "-H", "te: trailers").status == 200


@pytest.mark.parametrize("response", MODES)
@pytest.mark.parametrize("request_body", MODES)
def test_envoy_each_pair_of_body_modes(start, request_body, response):
    exercise(start("full-duplex.yaml", more=in_modes(request_body, response)))


@pytest.mark.parametrize("trailers", ["SEND", "SKIP"])
@pytest.mark.parametrize("headers", ["SEND", "SKIP"])
@pytest.mark.parametrize("request_body", MODES[:-1])
def test_envoy_response_phases_skipped(start, request_body, headers, trailers):
    exercise(start("full-duplex.yaml", more=in_modes(request_body, "NONE", headers, trailers)))


@pytest.mark.parametrize("allowed", [True, False])
def test_envoy_mode_grpc_rewrites_model(start, allowed):
    """What this Envoy shows in mode GRPC (test_envoy_ext_proc.py) is looked into and changed, of gRPC too."""
    change = in_modes("GRPC", "NONE", more="allow_mode_override: true" if allowed else "")
    gateway = start("full-duplex.yaml", change=with_targets, more=change)
    sent = BODY.replace(b'"digits"', b'"digits-of-today-and-tomorrow"')
    assert gateway.ask("/v1/completions", body=BODY)["sha1"] == hashlib.sha1(sent).hexdigest()
    assert gateway.curl("/v1/completions", body=b'{"model": "unheard"}').status == 404
    with grpc.insecure_channel(gateway.address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer",
                                    proto.ModelInferRequest.SerializeToString)
        with pytest.raises(grpc.RpcError) as caught:
            infer(proto.ModelInferRequest(model_name="unheard"))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("config", ["headers-only.yaml", "metadata.yaml"])
def test_envoy_without_bodies_models_are_reported_unchecked(start, config):
    """The proxy does not let the picker see the body: one warning, and a count of all."""
    gateway = start(config)
    for _ in range(3):
        assert gateway.curl("/v1/completions", body=b'{"model": "unheard"}').status == 200
    gateway.picker.wait_until(lambda now: now["sluice_pick_models_unchecked_total"] == 3, "unchecked models")
    assert gateway.picker.log_text().count("models in request bodies are neither checked nor replaced") == 1


def test_envoy_without_response_headers_models_are_reported_unchecked(start):
    """bug-N8: what becomes of the requests is not shown, nor is a body."""
    gateway = start("full-duplex.yaml", more=in_modes("NONE", "NONE", "SKIP"))
    for _ in range(3):
        assert gateway.curl("/v1/completions", body=b'{"model": "unheard"}').status == 200
    gateway.picker.wait_until(lambda now: now["sluice_pick_models_unchecked_total"] == 3, "unchecked models")
    assert gateway.picker.log_text().count("models in request bodies are neither checked nor replaced") == 1


def test_envoy_mode_grpc_body_in_pieces_is_checked_or_reported(start):
    """bug-N8: in mode GRPC this Envoy keeps a body to itself that does not arrive as a whole."""
    gateway = start("full-duplex.yaml", more=in_modes("GRPC", "NONE"))
    body, statuses = b'{"model": "unheard"}', []
    for _ in range(5):
        with http1.Connection(gateway.address) as client:
            client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + body[:8])
            gateway.picker.wait_streams(1)
            client.send(b"\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body) - 8, body[8:]))
            statuses.append(client.read_answer("POST").status)
        gateway.picker.wait_at_rest()
    assert set(statuses) <= {200, 404}
    n_served = statuses.count(200)
    gateway.picker.wait_until(lambda now: now["sluice_pick_models_unchecked_total"] == n_served, "unchecked models")
    assert gateway.picker.log_text().count("models in request bodies are neither checked nor replaced") == (n_served > 0)


def with_trailers(gateway, body):
    """A POST over HTTP/2 whose body is followed by trailers. Returns: (status, its body)."""
    with h2.Connection(gateway.address) as connection:
        stream, head = connection.open([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v1/completions"),
                                        (b":authority", b"here")])
        connection.send(head + h2.frame(h2.DATA, 0, stream, body) + h2.frame(
            h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, stream, h2.block([(b"x-after", b"1")])))
        answer = connection.answer(stream)
        return int(answer.heads[0][":status"]), answer.data


@pytest.mark.parametrize("mode, allowed", [("STREAMED", True), ("STREAMED", False), ("NONE", True),
                                           ("BUFFERED", False), ("BUFFERED_PARTIAL", False)])
def test_envoy_body_with_trailers_is_checked_and_renamed(start, mode, allowed):
    """bug-N8: such a body has no end_of_stream."""
    change = in_modes(mode, "NONE", more="allow_mode_override: true" if allowed else "")
    gateway = start("full-duplex.yaml", change=with_targets, more=change)
    sent = BODY.replace(b'"digits"', b'"digits-of-today-and-tomorrow"')
    status, data = with_trailers(gateway, BODY)
    assert status == 200 and json.loads(data)["sha1"] == hashlib.sha1(sent).hexdigest(), data
    assert with_trailers(gateway, BODY.replace(b"digits", b"unheard"))[0] == 404
    assert with_trailers(gateway, BODY[:5])[0] == 400
    assert gateway.curl("/v1/completions", body=BODY).status == 200


@pytest.mark.parametrize("config", SEE_BODIES)
def test_envoy_with_bodies_no_model_is_unchecked(start, config):
    gateway = start(config)
    assert gateway.curl("/v1/completions", body=b'{"model": "unheard"}').status == 404
    assert gateway.curl("/v1/completions", body=BODY).status == 200
    assert gateway.picker.wait_at_rest()["sluice_pick_models_unchecked_total"] == 0


def test_envoy_body_sent_before_header_response(start):
    exercise(start("full-duplex.yaml", more=in_modes(
        "STREAMED", "STREAMED", more="send_body_without_waiting_for_header_response: true")))


@pytest.mark.parametrize("mode", ["NONE", "STREAMED"])
def test_envoy_observability_mode_changes_nothing(start, mode):
    """The picker is told and says nothing: the request goes where it would have gone without it."""
    gateway = start("buffered.yaml", more=lambda text: text.replace(
        "request_body_mode: BUFFERED", f"request_body_mode: {mode}").replace(
        "failure_mode_allow: true", "observability_mode: true"))
    for _ in range(5):
        assert gateway.ask("/v1/completions", body=BODY)["length"] == len(BODY)
    gateway.picker.wait_until(lambda now: now["sluice_pick_observed_total"] == 5, "five that were observed")


# ---- another model -------------------------------------------------------------------------------

def with_targets(pool):
    return pool.replace("  - digits\n",
                        "  - {name: digits, targets: [{model: digits-of-today-and-tomorrow}]}\n")


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("config", SEE_BODIES)
def test_envoy_target_model_is_written_to_body(start, config, http2):
    gateway = start(config, change=with_targets)
    for args in ((), ("-H", "transfer-encoding: chunked")):
        if args and http2:
            continue
        sent = BODY.replace(b'"digits"', b'"digits-of-today-and-tomorrow"')
        answer = gateway.ask("/v1/completions", *args, body=BODY, http2=http2)
        assert (answer["length"], answer["sha1"]) == (len(sent), hashlib.sha1(sent).hexdigest())


@pytest.mark.parametrize("config", ["headers-only.yaml", "metadata.yaml", "override-host.yaml", *SEE_BODIES])
def test_envoy_target_model_is_written_to_path(start, config):
    gateway = start(config, change=with_targets)
    answer = gateway.ask("/v2/models/digits/versions/3/infer?a=b", body=b"{}")
    assert answer["path"] == "/v2/models/digits-of-today-and-tomorrow/versions/3/infer?a=b"


# ---- the list of models --------------------------------------------------------------------------

@pytest.mark.parametrize("config", SEE_BODIES)
def test_envoy_list_of_models_holds(start, echoes, config):
    """bug-N9: paths as servers read them, headers of clients, and every path that names a model."""
    gateway = start(config)
    before = sum(one.n_requests for one in echoes)
    unheard = BODY.replace(b"digits", b"unheard")
    for path in ("/v1/%63ompletions", "/%761/completions", "/v1%2fcompletions", "/v2/models/unheard/%69nfer",
                 "/v2/m%6fdels/unheard/infer"):
        assert gateway.curl(path, body=unheard).status == 400, path
    for name in ("x-gateway-model-name", "x-gateway-model-name-rewrite", "x-llm-d-model-name-rewrite"):
        reply = gateway.curl("/v1/completions", "-H", f"{name}: digits", body=unheard)
        assert reply.status == 404, (name, reply)
    for path in ("/invocations", "/v1/rerank", "/score", "/pooling", "/classify", "/tokenize", "/v1/audio/speech",
                 "/openai/v1/chat/completions"):
        assert gateway.curl(path, body=unheard).status == 404, path
        assert gateway.ask(path, body=BODY)["path"] == path
    assert sum(one.n_requests for one in echoes) == before + 8
    assert gateway.ask("/v2/models/%64igits/infer", body=b"{}")["path"] == "/v2/models/%64igits/infer"


@pytest.mark.parametrize("config", ["headers-only.yaml", "full-duplex.yaml", IN_PROCESS])
def test_envoy_list_of_models_holds_for_names_in_paths(start, echoes, config):
    """bug-N9: also without bodies: KServe's first protocol, TensorFlow Serving's, Triton's verbs and versions."""
    gateway = start(config)
    before = sum(one.n_requests for one in echoes)
    forms = ("/v1/models/{}:predict", "/v1/models/{}:explain", "/v1/models/{}/versions/2:classify",
             "/v1/models/{}/labels/stable:regress", "/x/v1/models/{}:predict", "/v2/models/{}/generate",
             "/v2/models/{}/generate_stream", "/v2/models/{}/versions/1/infer", "/v2/models/{}/versions/1/generate",
             "/v2/models/{}/explain")
    for form in forms:
        assert gateway.curl(form.format("unheard"), body=b"{}").status == 404, form
        assert gateway.ask(form.format("digits"), body=b"{}")["path"] == form.format("digits")
    for path in ("/v1/models/unheard%3apredict", "/v1/models/digits:%70redict"):
        assert gateway.curl(path, body=b"{}").status == 400, path
    assert sum(one.n_requests for one in echoes) == before + len(forms)


@pytest.mark.parametrize("config", ["full-duplex.yaml", IN_PROCESS])
def test_envoy_model_paths_replace_default(start, config):
    """bug-N9: a server's own paths; those that are not in the list are routed without a model."""
    gateway = start(config, change=lambda pool: pool + "model_paths: [/api/generate, /v1/messages]\n")
    unheard = BODY.replace(b"digits", b"unheard")
    for path in ("/api/generate", "/x/api/generate?a=b", "/v1/messages"):
        assert gateway.curl(path, body=unheard).status == 404, path
        assert gateway.ask(path, body=BODY)["path"] == path
    assert gateway.curl("/api/%67enerate", body=unheard).status == 400
    assert gateway.ask("/v1/completions", body=unheard)["path"] == "/v1/completions"


# ---- refusals ------------------------------------------------------------------------------------

@pytest.mark.parametrize("config", ["headers-only.yaml", "model-in-body.yaml", "full-duplex.yaml", IN_PROCESS])
def test_envoy_saturated_pool_is_429(start, echoes, config):
    """Sheddable, and every endpoint has as many as it may: 429 with its headers; gRPC's 8."""
    gateway = start(config, change=lambda pool: pool.replace(
        "  - digits\n", "  - {name: digits, criticality: Sheddable}\n"
                        "saturation: {max_in_flight: 1, retry_after: 3s}\n"))
    with Load(gateway.address, 3, headers={"x-answer": "pause"}):
        gateway.picker.wait_streams(3)
        reply = gateway.curl("/v2/models/digits/infer", body=b"{}")
        assert reply.status == 429 and reply.headers["retry-after"] == "3", reply
        assert "x-llm-d-request-dropped-reason" in reply.headers and json.loads(reply.body)["error"]
        if config in SEE_BODIES:
            with grpc.insecure_channel(gateway.address) as channel:
                infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer",
                                            proto.ModelInferRequest.SerializeToString)
                with pytest.raises(grpc.RpcError) as caught:
                    infer(proto.ModelInferRequest(model_name="digits"))
                assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        gateway.envoy.kill()
    for one in echoes:
        one.let_go()
    gateway.restart_envoy()


@pytest.mark.parametrize("config", ["headers-only.yaml", "model-in-body.yaml", "full-duplex.yaml", IN_PROCESS])
def test_envoy_empty_pool_is_503(start, config):
    """An empty pool: 503 and gRPC's 14, with and without a body."""
    gateway = start(config, change=lambda pool: re.sub(r"^endpoints:\n(  - .*\n)+", "endpoints: []\n", pool,
                                                       flags=re.M), n_ready=0)
    for args in ({}, {"body": BODY}):
        reply = gateway.curl("/v1/completions", **args)
        assert reply.status == 503 and json.loads(reply.body)["error"], reply
    with grpc.insecure_channel(gateway.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"")
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("config", SEE_BODIES)
def test_envoy_body_over_picker_limit_is_413(start, config):
    """Envoy's buffer takes what the picker doesn't: 413, also where a failure of the picker's would let it pass."""
    gateway = start(config, args=["--max-body-size", "1MiB"], more=lambda text: text.replace(
        "    - name: inference\n", "    - name: inference\n      per_connection_buffer_limit_bytes: 8388608\n"))
    body = json.dumps({"prompt": "a" * 4_000_000, "model": "nobody"}).encode()
    for args in ((), ("-H", "transfer-encoding: chunked")):
        reply = gateway.curl("/v1/completions", *args, body=body)
        assert reply.status == 413 and "--max-body-size" in reply.body.decode(), (args, reply)


# ---- subsets -------------------------------------------------------------------------------------

def hinted(value):
    """The hint, from a filter in front of the picker. `value`: as YAML."""
    def change(text):
        return text.replace("http_filters:\n", f"""http_filters:
                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata:
                        - metadata_namespace: envoy.lb.subset_hint
                          value: {{x-gateway-destination-endpoint-subset: {value}}}
""")
    return change


@pytest.mark.parametrize("config", ["headers-only.yaml", *SEE_BODIES])
@pytest.mark.parametrize("as_list", [True, False])
def test_envoy_subset_limits_pick(start, echoes, config, as_list):
    two = [one.address for one in echoes[:2]]
    gateway = start(config, more=hinted(json.dumps(two if as_list else ",".join(two))))
    served = {gateway.ask("/v1/completions", **args)["server"] for _ in range(15)
              for args in ({}, {"body": BODY})}
    assert served == {"a", "b"}


@pytest.mark.parametrize("value", ["[]", "[127.0.0.1:9]", '""'])
@pytest.mark.parametrize("config", ["headers-only.yaml", IN_PROCESS])
def test_envoy_empty_subset_is_503(start, config, value):
    gateway = start(config, more=hinted(value))
    assert gateway.curl("/").status == 503
    assert gateway.curl("/v1/completions", body=BODY).status == 503


# ---- between the two -----------------------------------------------------------------------------

@pytest.mark.parametrize("config", ["headers-only-closed.yaml", "metadata.yaml", IN_PROCESS])
def test_envoy_endpoint_over_ipv6(start, config):
    with contextlib.closing(echo.Echo("six", "[::1]:0")) as six:
        gateway = start(config, n_ready=1, change=lambda pool: re.sub(
            r"(  - 127.*\n)+", f'  - "{six.address}"\n', pool))
        assert gateway.ask("/")["server"] == "six"


TLS = """
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          common_tls_context: {alpn_protocols: [h2]%s}
"""


def over_tls(more=""):
    return lambda text: text.replace("    - name: picker\n", "    - name: picker" + TLS % more)


def test_envoy_to_picker_self_signed_tls(start):
    gateway = start("model-in-body.yaml", more=over_tls(), args=["--grpc-tls-self-signed"])
    exercise(gateway)
    assert gateway.picker.numbers()["sluice_tls_handshakes_total"] > 0


def test_envoy_to_picker_mutual_tls(start, tmp_path):
    """Envoy has a certificate of its own and looks at the picker's."""
    authority = Identity("authority", authority=True)
    ca = authority.write_cert(tmp_path / "ca.pem")
    cert, key = Identity("picker", authority).write(tmp_path / "picker")
    own_cert, own_key = Identity("proxy", authority).write(tmp_path / "proxy")
    own = (f", tls_certificates: [{{certificate_chain: {{filename: {own_cert}}}, "
           f"private_key: {{filename: {own_key}}}}}], "
           f"validation_context: {{trusted_ca: {{filename: {ca}}}}}")
    args = ["--grpc-tls-cert", cert, "--grpc-tls-key", key, "--grpc-tls-client-ca", ca]
    exercise(start("model-in-body.yaml", more=over_tls(own), args=args))


def test_envoy_to_picker_unix_socket(start, tmp_path):
    path = tmp_path / "picker.socket"
    gateway = start("headers-only.yaml", args=["--grpc", f"unix:{path}"], more=lambda text: re.sub(
        r"(cluster_name: picker\n.*\n.*\n.*endpoint: \{address: )\{socket_address: \{.*?\}\}",
        rf"\g<1>{{pipe: {{path: {path}}}}}", text))
    assert "pipe" in gateway.text
    exercise(gateway)
    assert gateway.picker.numbers()["sluice_pick_streams_total"] > 0

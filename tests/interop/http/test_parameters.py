"""The parameters extension, by the reference's own clients: what a client sends reaches the model, what
the model says comes back, headers and metadata are forwarded where a pattern fits them."""
import asyncio
import http.client
import json

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

from lib import http1, repository
from lib.server import run

ARRAY = numpy.array([1, 2, 3], "<f4")
OWN = {"text": "größe", "empty": "", "whole": -9223372036854775808, "yes": True, "no": False,
       "real": 0.1, "text with \"quotes\"": "a\0b"}
TENSOR = '"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]'


def inputs(module):
    made = module.InferInput("INPUT0", [3], "FP32")
    made.set_data_from_numpy(ARRAY)
    return [made]


def parameters(result):
    """What came back, over either protocol."""
    answer = result.get_response()
    if isinstance(answer, dict):
        return answer.get("parameters", {})
    said = {key: getattr(value, value.WhichOneof("parameter_choice"))
            for key, value in answer.parameters.items()}
    return said


class Live:
    """A server whose model `echo` answers with the parameters it was given."""

    def __init__(self, start_server, folder, *args):
        repository.Identity("echo", [("FP32", repository.FREE)],
                            parameters={"echo_parameters": "true"}).write(folder / "models")
        repository.Identity("quiet", [("FP32", repository.FREE)]).write(folder / "models")
        self.server = start_server("--model-repository", folder / "models", *args,
                                   grpc=("127.0.0.1:0",))
        self.clients = {"http": triton_http.InferenceServerClient(self.server.address),
                        "grpc": triton_grpc.InferenceServerClient(self.server.grpc_address)}

    def infer(self, protocol, model="echo", **more):
        module = {"http": triton_http, "grpc": triton_grpc}[protocol]
        result = self.clients[protocol].infer(model, inputs(module), **more)
        assert result.as_numpy("OUTPUT0").tolist() == ARRAY.tolist()
        return parameters(result)

    def post(self, text, *fields, model="echo"):
        answer = http1.request(self.server.address, "POST", f"/v2/models/{model}/infer",
                               text.encode(), fields)
        return answer.status, json.loads(answer.body)

    def check_alive(self):
        for protocol in self.clients:
            assert self.infer(protocol, parameters={"k": "v"}) == {"k": "v"}


@pytest.fixture
def start(start_server, tmp_path):
    started = []

    def begin(*args):
        started.append(Live(start_server, tmp_path, *args))
        return started[-1]
    yield begin
    for live in started:
        for client in live.clients.values():
            client.close()
        live.server.wait_at_rest()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_parameters_round_trip(start, protocol):
    live = start()
    assert live.infer(protocol, parameters=OWN) == OWN
    assert live.infer(protocol) == {}
    assert live.infer(protocol, "quiet", parameters=OWN) == {}
    assert "parameters" in live.clients["http"].get_server_metadata()["extensions"]
    assert "parameters" in live.clients["grpc"].get_server_metadata().extensions


def test_parameters_asyncio_clients(start):
    live = start("--http-header-forward-pattern", "^x-", "--grpc-header-forward-pattern", "^x-")

    async def over_http():
        async with triton_http_aio.InferenceServerClient(live.server.address) as client:
            return parameters(await client.infer("echo", inputs(triton_http), parameters=OWN,
                                                 headers={"X-Who": "me"}))

    async def over_grpc():
        async with triton_grpc_aio.InferenceServerClient(live.server.grpc_address) as client:
            return parameters(await client.infer("echo", inputs(triton_grpc), parameters=OWN,
                                                 headers={"x-who": "me"}))
    assert asyncio.run(over_http()) == OWN | {"X-Who": "me"}
    assert asyncio.run(over_grpc()) == OWN | {"x-who": "me"}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_parameters_reserved_are_not_passed_to_model(start, protocol):
    live = start()
    assert live.infer(protocol, parameters={"k": 1}, priority=3, timeout=1000000, sequence_id=7,
                      sequence_start=True, sequence_end=True) == {"k": 1}
    for name in ("priority", "timeout", "sequence_id", "binary_data_output", "headers"):
        with pytest.raises(InferenceServerException, match="reserved|Reserved"):
            live.infer(protocol, parameters={name: 1})
    live.check_alive()


def test_parameters_reserved_from_client_are_dropped(start):
    live = start()
    status, answer = live.post('{"parameters":{"headers":"x","sequence_end":true,"k":2},' + TENSOR + "}")
    assert status == 200 and answer["parameters"] == {"k": 2}
    request = triton_grpc.service_pb2.ModelInferRequest(model_name="echo")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[3])
    request.raw_input_contents.append(ARRAY.tobytes())
    for name in ("headers", "binary_data_output", "k"):
        request.parameters[name].bool_param = True
    answer = live.clients["grpc"]._client_stub.ModelInfer(request)
    assert dict(answer.parameters).keys() == {"k"}
    live.check_alive()


@pytest.mark.parametrize("text", ['{"a":[]}', '{"a":{}}', '{"a":NaN}', '{"a":1e999}',
                                  '{"triton_a":1}', '{"a":null,"b":[]}', '[]', '"a"'])
def test_parameters_invalid_are_400(start, text):
    live = start()
    status, answer = live.post('{"parameters":' + text + "," + TENSOR + "}")
    assert status == 400 and "parameters" in answer["error"]
    live.check_alive()


def test_parameters_non_finite_over_grpc(start):
    """It goes through over gRPC; nothing of it is in an answer over HTTP."""
    live = start()
    said = live.infer("grpc", parameters={"nan": float("nan"), "inf": float("inf")})
    assert said["inf"] == float("inf") and said["nan"] != said["nan"]
    live.check_alive()


def test_parameters_uint64(start):
    live = start()
    status, answer = live.post('{"parameters":{"a":18446744073709551615},' + TENSOR + "}")
    assert (status, answer["parameters"]) == (200, {"a": 18446744073709551615})
    request = triton_grpc.service_pb2.ModelInferRequest(model_name="echo")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[3])
    request.raw_input_contents.append(ARRAY.tobytes())
    request.parameters["a"].uint64_param = 18446744073709551615
    answer = live.clients["grpc"]._client_stub.ModelInfer(request)
    assert answer.parameters["a"].uint64_param == 18446744073709551615


# ---- headers -------------------------------------------------------------------------------------

def test_headers_matching_pattern_are_forwarded(start):
    live = start("--http-header-forward-pattern", "^X-|authorization")
    headers = {"X-User": "anna", "x-lower": "b", "Authorization": "Bearer k", "Other": "no"}
    said = live.infer("http", headers=headers, parameters={"k": "v"})
    assert {key.lower(): value for key, value in said.items()} == {
        "k": "v", "x-user": "anna", "x-lower": "b", "authorization": "Bearer k"}
    status, answer = live.post('{"parameters":{"X-User":5},' + TENSOR + "}", ("X-User", "other"),
                               ("X-Two", "first"), ("X-Two", "second"), ("X-Latin", "ü"))
    assert status == 200
    assert answer["parameters"] == {"X-User": 5, "X-Two": "first", "X-Latin": "ü"}
    assert live.infer("grpc", headers={"x-user": "anna"}) == {}  # a pattern of its own
    status, answer = live.post("", ("X-User", "raw"), ("Inference-Header-Content-Length", "0"))
    assert (status, answer["parameters"]) == (200, {"X-User": "raw"})


@pytest.mark.parametrize("method", ["generate", "generate_stream"])
def test_headers_of_generate_are_forwarded(start, method):
    live = start("--http-header-forward-pattern", "^X-")

    def post(body, **headers):
        connection = http.client.HTTPConnection(live.server.address, timeout=http1.PATIENCE)
        connection.request("POST", f"/v2/models/echo/{method}", json.dumps(body),
                           {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode().strip().removeprefix("data: ")
        connection.close()
        return answer.status, json.loads(text)
    status, said = post({"INPUT0": [1, 2, 3], "X-Own": 5}, X_User="anna", X_Own="other", Other="no")
    assert status == 200
    assert (said["X-User"], said["X-Own"], said["OUTPUT0"]) == ("anna", 5, [1, 2, 3])
    assert "Other" not in said
    status, said = post({"INPUT0": [1]}, X_User=b"\xff")
    assert status == 400 and "not UTF-8" in said["error"]
    live.check_alive()


def test_headers_pattern_case_sensitivity(start):
    live = start("--http-header-forward-pattern", "(?-i)^X-")
    status, answer = live.post("{" + TENSOR + "}", ("X-Up", "1"), ("x-down", "2"))
    assert (status, answer["parameters"]) == (200, {"X-Up": "1"})


def test_metadata_matching_pattern_is_forwarded(start):
    live = start("--grpc-header-forward-pattern", "^x-|te|grpc|type")
    said = live.infer("grpc", headers={"x-user": "anna", "x-bytes-bin": b"b", "other": "no"},
                      parameters={"k": "v"})
    assert said == {"k": "v", "x-user": "anna"}
    assert live.infer("http", headers={"x-user": "anna"}) == {}
    results = []
    client = live.clients["grpc"]
    client.start_stream(lambda result, error: results.append((result, error)),
                        headers={"x-stream": "s"})
    for number in range(3):
        client.async_stream_infer("echo", inputs(triton_grpc), parameters={"n": number})
    client.stop_stream()
    assert [error for _, error in results] == [None] * 3
    for number, (result, _) in enumerate(results):
        said = parameters(result)
        said.pop("triton_final_response")
        assert said == {"n": number, "x-stream": "s"}


def test_headers_reserved_name_is_refused(start):
    live = start("--http-header-forward-pattern", "^(x-|timeout|triton_)",
                 "--grpc-header-forward-pattern", "^(x-|timeout|triton_)")
    for name, value in (("timeout", "1"), ("triton_x", "1"), ("X-Bytes", b"\xff\xfe")):
        if isinstance(value, str):
            status, answer = live.post("{" + TENSOR + "}", (name, value))
            with pytest.raises(InferenceServerException, match=f"{name}.*reserved") as caught:
                live.infer("grpc", headers={name: value})
            assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        else:
            with http1.Connection(live.server.address) as connection:
                body = ("{" + TENSOR + "}").encode()
                connection.send(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\nX-Bytes: " + value
                                + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                answer = connection.read_answer("POST")
                status, answer = answer.status, json.loads(answer.body)
        assert status == 400 and name in answer["error"]
        live.check_alive()


@pytest.mark.parametrize("setting", ["http", "grpc"])
def test_headers_invalid_pattern_is_usage_error(setting, repositories):
    done = run("serve", "--model-repository", repositories("default"),
               f"--{setting}-header-forward-pattern", "x-(")
    assert done.returncode == 2
    assert f"--{setting}-header-forward-pattern: expected an extended regular" in done.stderr

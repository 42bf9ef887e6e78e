"""What a client does wrong is never the server's failure: every route with every kind of wrong body and
member, and every method of gRPC with bytes that are no message, is answered with a status below 500 (or 501,
for what this server does not have). Gateways count the others against the server."""
import base64
import json
import os
import uuid

import grpc
import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, repository
from lib.server import Server

# Of each route: the members that it reads, and whether a body is needed.
REGION = "/v2/systemsharedmemory/region/r/"
LOGGING = ("log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format")
TRACE = ("trace_file", "trace_level", "trace_rate", "trace_count", "log_frequency")
ROUTES = {
    "/v2/models/a/infer": (("id", "parameters", "inputs", "outputs"), True),
    "/v2/models/a/versions/1/infer": (("inputs",), True),
    "/v2/models/a/generate": (("id", "parameters", "INPUT0"), True),
    "/v2/models/a/generate_stream": (("id", "parameters", "INPUT0"), True),
    "/v2/models/a/trace/setting": (TRACE, True),
    "/v2/trace/setting": (TRACE, True),
    "/v2/logging": (LOGGING, True),
    "/v2/repository/index": (("ready",), False),
    "/v2/repository/models/c/load": (("parameters",), False),
    "/v2/repository/models/c/unload": (("parameters",), False),
    REGION + "register": (("key", "byte_size", "offset"), True),
}
IGNORE_BODY = (REGION + "unregister", "/v2/systemsharedmemory/unregister")
NOT_JSON = (b"nul", b"{", b'{"a":1', b'{"a":1}}', b"{'a':1}", b"\xff\xfe\x00\x80", b"\x00" * 100, b"\xef\xbb\xbf{}",
            b"inputs=1&x=2", b"<html/>", b'{"a":"\xff"}', b"[" * 300 + b"]" * 300)
NO_OBJECT = (b"[]", b"[{}]", b'"x"', b"3", b"true", b"null")
VALUES = ("true", "3", "-1", "1.5", '""', '"x"', "[]", "[1]", "[null]", "[{}]", '["x"]', "{}", '{"a":1}', '{"a":{}}',
          "1e999", "18446744073709551616", "-9223372036854775809", "NaN", '"\\u0000"')
# What is not there at all is 501, as the reference server has it.
MAY_BE_501 = ("log_file", "trace_file")
GOOD = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A server with all extensions, shared by the tests of this file."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name in ("a", "c"):
        repository.Identity(name, [("FP32", [4])], max_batch_size=4).write(folder / "models")
    server = Server(folder, ["--model-repository", folder / "models", "--model-control-mode", "explicit",
                             "--load-model", "a", "--load-model", "c", "--allow-client-shm", "true",
                             "--trace-config", f"triton,file={folder}/traces"], grpc=("127.0.0.1:0",))
    server.expect_error("model failed to load")
    with server:
        # The latest failure of a model stays in the index beside what serves: from here on, it counts among the arenas.
        assert post(server, "/v2/repository/models/c/load", b'{"parameters":{"config":{"backend":"absent"}}}').status == 400
        server.arenas = metrics.read(server.address)["sluice_arenas"]
        yield server


@pytest.fixture(autouse=True)
def serves_afterwards(live):
    yield
    assert post(live, "/v2/models/a/infer", GOOD).status == 200
    live.wait_at_rest()


def post(live, path, body):
    answer = http1.request(live.address, "POST", path, body)
    if answer.status >= 400:
        assert list(json.loads(answer.body)) == ["error"], str(answer)
    return answer


@pytest.mark.parametrize("path", ROUTES)
def test_body_that_is_no_json_object_is_400(live, path):
    needed = ROUTES[path][1]
    for body in (b"", b" \t "):
        assert post(live, path, body).status == (400 if needed else 200), (path, body)
    for body in NOT_JSON + NO_OBJECT:
        answer = post(live, path, body)
        assert answer.status == 400, (path, body, str(answer))


@pytest.mark.parametrize("path", ROUTES)
def test_members_of_wrong_types_are_no_server_errors(live, path):
    members, _ = ROUTES[path]
    for member in members:
        for value in VALUES:
            answer = post(live, path, f'{{"{member}":{value}}}'.encode())
            assert answer.status < 500 or (answer.status == 501 and member in MAY_BE_501), (member, value, str(answer))


@pytest.mark.parametrize("path", IGNORE_BODY)
def test_body_that_is_not_read_is_ignored(live, path):
    for body in (b"",) + NOT_JSON + NO_OBJECT:
        assert post(live, path, body).status == 200, body


# ---- load ----------------------------------------------------------------------------------------

FILE = base64.b64encode(b"x").decode()
CONFIG = {"backend": "identity"}


@pytest.mark.parametrize("parameters, says", [
    ('"config":3', "expected text"), ('"config":[]', "expected text"), ('"other":"x"', "expected config"),
    ('"config":"{}","file:1/x":{"a":1}', "expected text"),
    (f'"config":"{{}}","file:1/x":"{FILE}","file:1/x":"{FILE}"', "File exists"),
    (f'"config":"{{}}","file:1/x":"{FILE}","file:1/x/y":"{FILE}"', "file:1/x/y cannot be written"),
    (f'"config":"{{}}","file:1/x/y":"{FILE}","file:1/x":"{FILE}"', "file:1/x cannot be written"),
    (f'"file:1/x":"{FILE}"', "together with `config`"),
    ('"config":{"backend":"absent"}', "no backend absent is installed"),
    ('"config":{"max_batch_size":"many"}', "max_batch_size"),
    ('"config":{"name":"other"}', "name of the model's"),
    ('"config":{"output":[{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[4],"label_filename":"no"}]}', ""),
    ('"config":{"model_warmup":[{"name":"w","inputs":{"INPUT0":{"data_type":"TYPE_FP32","dims":[4],'
     '"input_data_file":"no"}}}]}', ""),
    ('"config":{"parameters":{%s}}' % ",".join(f'"p{i}":{{"string_value":"x"}}' for i in range(501)),
     "parameters: expected at most 500 entries, got 501"),
    ('"config":{"input":[%s]}' % ",".join(f'{{"name":"i{i}","data_type":"TYPE_FP32","dims":[1]}}' for i in range(4097)),
     "input: expected at most 4096 entries, got 4097"),
], ids=lambda value: value[:40])
def test_load_with_wrong_parameters_is_400(live, parameters, says):
    answer = post(live, "/v2/repository/models/c/load", f'{{"parameters":{{{parameters}}}}}'.encode())
    assert answer.status == 400 and says in json.loads(answer.body)["error"], str(answer)


def test_load_of_unknown_model_is_404(live):
    for name in ("nope", "n%20o"):
        answer = post(live, f"/v2/repository/models/{name}/load", b"")
        assert answer.status == 404 and "model not found in any model repository" in json.loads(answer.body)["error"], str(answer)
        assert post(live, f"/v2/repository/models/{name}/unload", b"").status == 200
    with triton_grpc.InferenceServerClient(live.grpc_address) as client:
        with pytest.raises(InferenceServerException, match="model not found in any model repository") as caught:
            client.load_model("nope")
        assert caught.value.status() == "StatusCode.NOT_FOUND"
        client.unload_model("nope")


def test_load_with_files_of_one_name_over_grpc_is_invalid_argument(live):
    with triton_grpc.InferenceServerClient(live.grpc_address) as client:
        for names in (("1/x", "1/x/y"), ("1/x/y/z", "1/x/y")):
            with pytest.raises(InferenceServerException, match="cannot be written") as caught:
                client.load_model("c", config="{}", files={f"file:{name}": b"x" for name in names})
            assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_load_configuration_as_object_equals_text(live):
    """The configuration that a client read from …/config goes back as it is, or as text."""
    path = "/v2/repository/models/c/load"
    assert post(live, path, b"").status == 200
    config = json.loads(http1.request(live.address, "GET", "/v2/models/c/config").body)
    for size, form in ((3, lambda value: value), (5, json.dumps)):
        body = json.dumps({"parameters": {"config": form(config | {"max_batch_size": size})}})
        answer = post(live, path, body.encode())
        assert answer.status == 200, str(answer)
        loaded = json.loads(http1.request(live.address, "GET", "/v2/models/c/config").body)
        assert loaded == config | {"max_batch_size": size}
    as_text = json.dumps({"parameters": {"config": json.dumps(config | {"max_batch_size": "6"})}})
    assert post(live, path, as_text.encode()).status == 200  # as protobuf's JSON may have numbers
    assert json.loads(http1.request(live.address, "GET", "/v2/models/c/config").body)["max_batch_size"] == 6
    given = {"config": CONFIG | {"input": [{"name": "INPUT0", "data_type": "TYPE_BOOL", "dims": [1]}],
                                 "output": [{"name": "OUTPUT0", "data_type": "TYPE_BOOL", "dims": [1]}]},
             "file:7/weights": FILE}
    assert post(live, path, json.dumps({"parameters": given}).encode()).status == 200
    assert http1.request(live.address, "GET", "/v2/models/c/versions/7").status == 200
    for absent in ("null", '{"config":null,"file:1/x":null}'):
        assert post(live, path, f'{{"parameters":{absent}}}'.encode()).status == 200
        assert json.loads(http1.request(live.address, "GET", "/v2/models/c/config").body) == config


def test_null_counts_as_absent_in_all_extensions(live):
    for path, body in (("/v2/repository/index", '{"ready":null}'), ("/v2/logging", json.dumps(dict.fromkeys(LOGGING))),
                       ("/v2/trace/setting", json.dumps(dict.fromkeys(TRACE[1:]))),
                       ("/v2/repository/models/c/unload", '{"parameters":null}'),
                       ("/v2/repository/models/c/unload", '{"parameters":{"unload_dependents":null}}'),
                       ("/v2/repository/models/c/load", '{"parameters":null}')):
        answer = post(live, path, body.encode())
        assert answer.status == 200, (path, str(answer))
    key = f"/sluice-{uuid.uuid4().hex}"
    with open("/dev/shm" + key, "wb") as file:
        file.write(b"\0" * 64)
    try:
        body = json.dumps({"key": key, "byte_size": 64, "offset": None}).encode()
        assert post(live, REGION + "register", body).status == 200
        assert post(live, REGION + "unregister", b"").status == 200
    finally:
        os.unlink("/dev/shm" + key)


# ---- shared memory -------------------------------------------------------------------------------

@pytest.fixture(params=["http", "grpc"])
def client(live, request):
    module = {"http": triton_http, "grpc": triton_grpc}[request.param]
    address = {"http": live.address, "grpc": live.grpc_address}[request.param]
    with module.InferenceServerClient(address) as made:
        made.module = module
        yield made
        made.unregister_system_shared_memory()


def is_clients(caught):
    return caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_memory_object_that_cannot_be_opened_is_clients_error(client):
    folder = f"sluice-{uuid.uuid4().hex}"
    os.mkdir("/dev/shm/" + folder)
    os.mkfifo("/dev/shm/" + folder + ".fifo")
    try:
        for key in ("/sluice-absent", "/" + folder, f"/{folder}.fifo", "/" + "n" * 254):
            with pytest.raises(InferenceServerException, match="shared memory object cannot be opened") as caught:
                client.register_system_shared_memory("r", key, 8)
            assert is_clients(caught), (key, caught.value)
    finally:
        os.rmdir("/dev/shm/" + folder)
        os.unlink("/dev/shm/" + folder + ".fifo")


def test_output_larger_than_its_range_is_clients_error(client):
    key = f"/sluice-{uuid.uuid4().hex}"
    with open("/dev/shm" + key, "wb") as file:
        file.write(b"\0" * 64)
    try:
        client.register_system_shared_memory("r", key, 64)
        array = numpy.ones((1, 4), numpy.float32)
        sent = client.module.InferInput("INPUT0", [1, 4], "FP32").set_data_from_numpy(array)
        wanted = client.module.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("r", 15)
        with pytest.raises(InferenceServerException, match="more than its shared_memory_byte_size") as caught:
            client.infer("a", [sent], outputs=[wanted])
        assert is_clients(caught)
        wanted.set_shared_memory("r", 16, 48)
        os.truncate("/dev/shm" + key, 50)
        with pytest.raises(InferenceServerException, match="shared memory cannot be written") as caught:
            client.infer("a", [sent], outputs=[wanted])
        assert is_clients(caught)
    finally:
        os.unlink("/dev/shm" + key)


# ---- gRPC ----------------------------------------------------------------------------------------

METHODS = [method.name for method in triton_grpc.service_pb2.DESCRIPTOR.services_by_name[
    "GRPCInferenceService"].methods]
NO_MESSAGE = (b"\xff" * 20, b"\x0a\x05ab", b"\x08", b"\x0a\x02\xff\xfe", b"\x12\x02\xff\xfe", b"\x1a\x03\x0a\x01\xff",
              b'{"a":1}', b"\x00" * 40)


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message_are_no_server_errors(live, method):
    with grpc.insecure_channel(live.grpc_address) as channel:
        path = f"/inference.GRPCInferenceService/{method}"
        for body in (b"",) + NO_MESSAGE:
            try:
                if method == "ModelStreamInfer":
                    list(channel.stream_stream(path)(iter([body]), timeout=http1.PATIENCE))
                else:
                    channel.unary_unary(path)(body, timeout=http1.PATIENCE)
            except grpc.RpcError as error:
                assert error.code().name in ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"), (body, error)

"""Keys with real clients, over HTTP and gRPC: who may do what, what is said to who may not, and a file
that changes."""
import json
import os
import threading

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1
from lib.server import run

INFER, METADATA, HEALTH = "a-key-to-infer", "a-key-to-look", "a-key-to-probe"
FILE = f"infer: [another-key, {INFER}]\nmetadata: [{METADATA}]\n"
PATHS = {
    "infer": ("POST", "/v2/models/id_fp32/infer"),
    "metadata": ("GET", "/v2/models/id_fp32"),
    "health": ("GET", "/v2/health/ready"),
}
BODY = b'{"inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1,2,3]}]}'


class Guarded:
    """A server with a file of keys."""

    def __init__(self, start_server, repositories, folder, text):
        self.file = folder / "keys.yaml"
        self.file.write_text(text)
        self.server = start_server("--model-repository", repositories("default"), "--keys", self.file,
                                   "--reload-interval", "50ms", grpc=("127.0.0.1:0",), wait="listening")
        self.server.wait_for(lambda: os.path.exists(self.server.ready_file), "a ready file")
        self.grpc_address = [line["grpc"] for line in self.server.log_lines() if "grpc" in line][0]

    def ask(self, group, *fields):
        method, path = PATHS[group]
        return http1.request(self.server.address, method, path,
                             BODY if method == "POST" else b"", fields)

    def status(self, group, key=None):
        return self.ask(group, *([("Authorization", f"Bearer {key}")] if key else [])).status

    def rewrite(self, text, says):
        n = self.server.log_text().count(says)
        self.file.write_text(text)
        self.server.wait_for(lambda: self.server.log_text().count(says) > n, says)


@pytest.fixture
def start_guarded(start_server, repositories, tmp_path):
    return lambda text=FILE: Guarded(start_server, repositories, tmp_path, text)


def test_keys_groups_over_http(start_guarded):
    guarded = start_guarded()
    rows = [
        ("infer", None, 401), ("infer", "wrong", 401), ("infer", METADATA, 401), ("infer", INFER, 200),
        ("infer", "another-key", 200), ("metadata", None, 401), ("metadata", METADATA, 200),
        ("health", None, 200), ("health", "wrong", 200),
    ]
    for group, key, status in rows:
        assert guarded.status(group, key) == status, (group, key)
    assert guarded.status("infer", INFER + "x") == 401


def test_keys_refusal_headers(start_guarded):
    guarded = start_guarded()
    answer = guarded.ask("infer")
    assert answer.get("WWW-Authenticate") == 'Bearer realm="sluice"'
    assert answer.get("Content-Type") == "application/json"
    assert "Bearer KEY" in json.loads(answer.body)["error"]
    answer = guarded.ask("infer", ("Authorization", "Bearer my-own-secret"))
    assert answer.status == 401 and b"my-own-secret" not in answer.body
    assert "my-own-secret" not in guarded.server.log_text()
    # The method and the model are nobody's business without a key.
    answer = http1.request(guarded.server.address, "GET", "/v2/models/nope/infer")
    assert answer.status == 401
    assert http1.request(guarded.server.address, "GET", "/v2/nope").status == 404
    assert http1.request(guarded.server.address, "GET", "/metrics").status == 401


def test_keys_refusal_before_body(start_guarded):
    """Who has no key is answered at the head, and the connection stays where that is cheap."""
    guarded = start_guarded()
    with http1.Connection(guarded.server.address) as connection:
        connection.send(b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
                        % len(BODY))
        assert connection.read_answer().status == 401
        connection.send(BODY + b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n")
        assert connection.read_answer().status == 200
    with http1.Connection(guarded.server.address) as connection:
        connection.send(b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                        b"Content-Length: 100000000\r\n\r\n")
        assert connection.read_answer().status == 401


def ask_grpc(client, key=None):
    array = numpy.arange(3, dtype=numpy.float32)
    asked = tritonclient.grpc.InferInput("INPUT0", [3], "FP32").set_data_from_numpy(array)
    client.infer("id_fp32", [asked], headers={"authorization": f"Bearer {key}"} if key else {})


def test_keys_groups_over_grpc(start_guarded):
    guarded = start_guarded()
    with tritonclient.grpc.InferenceServerClient(guarded.grpc_address) as client:
        ask_grpc(client, INFER)
        for key in (None, "wrong", METADATA):
            with pytest.raises(InferenceServerException) as caught:
                ask_grpc(client, key)
            assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
            assert key is None or key not in caught.value.message()
        assert client.is_server_live() and client.is_model_ready("id_fp32")
        with pytest.raises(InferenceServerException) as caught:
            client.get_server_metadata()
        assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        headers = {"authorization": f"Bearer {METADATA}"}
        assert client.get_server_metadata(headers=headers).name == "sluice"
        assert client.get_model_config("id_fp32", headers=headers).config.name == "id_fp32"


def test_keys_tritonclient_http(start_guarded):
    guarded = start_guarded()
    client = tritonclient.http.InferenceServerClient(guarded.server.address)
    asked = tritonclient.http.InferInput("INPUT0", [3], "FP32").set_data_from_numpy(
        numpy.arange(3, dtype=numpy.float32))
    with pytest.raises(InferenceServerException) as caught:
        client.infer("id_fp32", [asked])
    assert caught.value.status() == "401"
    client.infer("id_fp32", [asked], headers={"Authorization": f"Bearer {INFER}"})
    client.close()


def test_keys_custom_header(start_guarded):
    """As the reference server's restricted protocols have it: a header, and its value."""
    guarded = start_guarded(f"header: triton-grpc-protocol-infer-key\ninfer: [{INFER}]\n")
    assert guarded.status("infer", INFER) == 401
    answer = guarded.ask("infer", ("Triton-Grpc-Protocol-Infer-Key", INFER))
    assert answer.status == 200
    assert guarded.ask("infer").get("WWW-Authenticate") == (
        'ApiKey realm="sluice", header="triton-grpc-protocol-infer-key"')
    with tritonclient.grpc.InferenceServerClient(guarded.grpc_address) as client:
        asked = tritonclient.grpc.InferInput("INPUT0", [3], "FP32").set_data_from_numpy(
            numpy.arange(3, dtype=numpy.float32))
        client.infer("id_fp32", [asked], headers={"triton-grpc-protocol-infer-key": INFER})
        with pytest.raises(InferenceServerException):
            client.infer("id_fp32", [asked])


def test_keys_file_is_reloaded(start_guarded):
    guarded = start_guarded()
    failed = []
    ended = threading.Event()

    def ask_all_the_time():
        while not ended.is_set():
            if guarded.status("infer", INFER) != 200:
                failed.append("refused")
    asking = threading.Thread(target=ask_all_the_time, daemon=True)
    asking.start()
    try:
        guarded.rewrite(f"infer: [{INFER}]\nhealth: [{HEALTH}]\n", "keys file reloaded")
        assert guarded.status("infer", "another-key") == 401
        assert guarded.status("metadata") == 401  # left out, but it had keys
        assert guarded.status("metadata", METADATA) == 200
        assert "lacks groups that had keys" in guarded.server.log_text()
        assert guarded.status("health") == 401 and guarded.status("health", HEALTH) == 200
        guarded.server.expect_error("at least one key")
        guarded.rewrite("infer: []\n", "keys file invalid: the previous keys stay in use")
        assert guarded.status("infer") == 401
        guarded.rewrite(FILE + "health: open\n", '"keys file reloaded"')
        guarded.server.wait_for(lambda: "opens groups to all" in guarded.server.log_text(), "a warning")
        assert guarded.status("health") == 200
    finally:
        ended.set()
        asking.join()
    assert failed == []


def test_keys_invalid_file_is_refused(repositories, tmp_path):
    rows = [
        (None, "No such file"), ("", "expected"), ("infer: []", "at least one key"),
        ("infer: [abc]\nmetdata: [x]", 'did you mean "metadata"'), ("infer: [1234567890]", "quotes"),
        ("header: a b\ninfer: [x]", "name of a header"),
    ]
    for text, says in rows:
        file = tmp_path / "keys.yaml"
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        done = run("serve", "--http", "127.0.0.1:0", "--grpc", "none", "--model-repository",
                   repositories("default"), "--keys", file)
        assert done.returncode == 1 and says in done.stderr and str(file) in done.stderr, done.stderr
        assert "1234567890" not in done.stderr

"""The logging extension, by the reference's own clients: what is said of the log, what is changed in it
and what that does, and what is refused."""
import asyncio
import http.client
import json
import threading

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

from lib import http1

AT_FIRST = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True,
            "log_verbose_level": 0, "log_format": "default"}


class Live:
    """A server, and a client for each protocol."""

    def __init__(self, server):
        self.server = server
        self.clients = {"http": triton_http.InferenceServerClient(server.address),
                        "grpc": triton_grpc.InferenceServerClient(server.grpc_address)}

    def get(self, protocol="http"):
        return plain(self.clients[protocol].get_log_settings())

    def set(self, protocol, **settings):
        return plain(self.clients[protocol].update_log_settings(settings))

    def post(self, body):
        """Returns: the status, and the body as JSON."""
        host, port = self.server.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=http1.PATIENCE)
        connection.request("POST", "/v2/logging", body)
        answer = connection.getresponse()
        data = json.loads(answer.read())
        connection.close()
        return answer.status, data

    def changes(self):
        return self.server.log_text().count("log settings changed")

    def check_alive(self):
        for protocol, module in (("http", triton_http), ("grpc", triton_grpc)):
            made = module.InferInput("INPUT0", [3], "FP32")
            made.set_data_from_numpy(numpy.array([1, 2, 3], "<f4"))
            answer = self.clients[protocol].infer("id_fp32", [made])
            assert answer.as_numpy("OUTPUT0").tolist() == [1, 2, 3]


def plain(said):
    """The settings as HTTP says them."""
    if isinstance(said, dict):
        return said
    return {key: getattr(value, value.WhichOneof("parameter_choice"))
            for key, value in said.settings.items()}


@pytest.fixture
def live(start_server, repositories):
    made = Live(start_server("--model-repository", repositories("default"), grpc=("127.0.0.1:0",)))
    yield made
    for client in made.clients.values():
        client.close()


def test_logging_extension_is_listed(live):
    assert "logging" in live.clients["http"].get_server_metadata()["extensions"]
    assert "logging" in live.clients["grpc"].get_server_metadata().extensions


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_logging_settings_take_effect(live, protocol):
    assert live.get(protocol) == AT_FIRST
    assert live.set(protocol, log_verbose_level=2) == AT_FIRST | {"log_verbose_level": 2}
    assert live.get(protocol) == AT_FIRST | {"log_verbose_level": 2}
    assert live.changes() == 1
    without = live.set(protocol, log_info=False)
    assert without == AT_FIRST | {"log_verbose_level": 2, "log_info": False}
    assert live.changes() == 1  # an event of the level that is off now
    assert live.set(protocol, log_warning=False, log_error=False) == {
        **without, "log_warning": False, "log_error": False}
    assert live.set(protocol, **{key: value for key, value in AT_FIRST.items()
                                 if key != "log_file"}) == AT_FIRST
    assert live.changes() == 2
    assert live.set(protocol) == AT_FIRST
    live.check_alive()


def test_logging_verbose_level_enables_debug(start_server, repositories):
    server = start_server("--model-repository", repositories("default"), "--log-level", "error",
                          grpc=("127.0.0.1:0",), wait="ready")
    live = Live(server)
    off = AT_FIRST | {"log_info": False, "log_warning": False}
    assert live.get() == off
    fail = lambda: live.post('{"log_file": "x"}')  # 501: from 500 on they are logged at debug
    fail()
    assert server.log_text() == ""
    live.set("http", log_verbose_level=1)
    fail()
    server.wait_for(lambda: '"level":"debug"' in server.log_text(), "a line of debug")
    live.set("grpc", log_verbose_level=0)
    assert live.get("grpc") == off


def test_logging_asyncio_clients(live):
    async def over_http():
        async with triton_http_aio.InferenceServerClient(live.server.address) as client:
            changed = await client.update_log_settings({"log_verbose_level": 1})
            return changed, await client.get_log_settings()

    async def over_grpc():
        async with triton_grpc_aio.InferenceServerClient(live.server.grpc_address) as client:
            changed = await client.update_log_settings({"log_verbose_level": 0})
            return plain(changed), plain(await client.get_log_settings())
    assert asyncio.run(over_http()) == (AT_FIRST | {"log_verbose_level": 1},) * 2
    assert asyncio.run(over_grpc()) == (AT_FIRST,) * 2


@pytest.mark.parametrize("body, status, says", [
    ("", 400, "empty body"),
    ('{"log_file": "/dev/null"}', 501, "log_file"),
    ('{"log_info": 1}', 400, "log_info"),
    ('{"log_error": "true"}', 400, "log_error"),
    ('{"log_verbose_level": -1}', 400, "log_verbose_level"),
    ('{"log_verbose_level": true}', 400, "log_verbose_level"),
    ('{"log_verbose_level": 4294967296}', 400, "log_verbose_level"),
    ('{"log_format": "nonsense"}', 400, "ISO8601"),
    ('{"log_format": 1}', 400, "log_format"),
    ("[]", 400, "object"),
    ('{"log_info": false', 400, "JSON"),
    ("[" * 60000, 400, ""),
    (" " * 70000 + "{}", 413, ""),
])
def test_logging_http_refusals(live, body, status, says):
    got, error = live.post(body)
    assert got == status and says in error["error"]
    assert live.get() == AT_FIRST
    live.check_alive()


@pytest.mark.parametrize("settings, code, says", [
    ({"log_file": "/dev/null"}, "UNIMPLEMENTED", "log_file"),
    ({"log_file": None}, "UNIMPLEMENTED", "log_file"),
    ({"log_info": None}, "INVALID_ARGUMENT", "expected bool_param"),
    ({"log_verbose_level": None}, "INVALID_ARGUMENT", "expected uint32_param"),
    ({"log_format": "nonsense"}, "INVALID_ARGUMENT", "ISO8601"),
])
def test_logging_grpc_refusals(live, settings, code, says):
    with pytest.raises(InferenceServerException, match=says) as caught:
        live.set("grpc", **settings)
    assert caught.value.status() == f"StatusCode.{code}"
    assert live.get("grpc") == AT_FIRST
    live.check_alive()


def test_logging_format_has_two_names(live):
    assert live.set("http", log_format="ISO8601") == AT_FIRST | {"log_format": "ISO8601"}
    assert live.get("grpc") == AT_FIRST | {"log_format": "ISO8601"}
    assert live.set("grpc", log_format="default") == AT_FIRST == live.get()


def test_logging_settings_before_bad_key_are_kept(live):
    assert live.post('{"log_verbose_level": -1, "log_error": false}')[0] == 400
    assert live.get() == AT_FIRST | {"log_error": False}
    with pytest.raises(InferenceServerException):
        live.set("grpc", log_verbose_level=3, log_format="nonsense", log_error=True)
    assert live.get() == AT_FIRST | {"log_verbose_level": 3}
    assert live.set("http", log_verbose_level=0, log_info=None) == AT_FIRST


def test_logging_concurrent_changes(live):
    """While lines are written."""
    def change(number):
        client = triton_http.InferenceServerClient(live.server.address)
        for at in range(50):
            client.update_log_settings({"log_info": (at + number) % 2 == 0,
                                        "log_verbose_level": at % 3})
        client.close()
    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.set("http", log_info=True, log_verbose_level=0) == AT_FIRST
    live.check_alive()


def test_logging_http_methods(live):
    for method, status in (("GET", 200), ("HEAD", 200), ("PUT", 405), ("DELETE", 405)):
        answer = http1.request(live.server.address, method, "/v2/logging", b"")
        assert answer.status == status
    assert json.loads(http1.request(live.server.address, "GET", "/v2/logging", b"").body) == AT_FIRST


def test_logging_requires_control_key(start_server, repositories, tmp_path):
    keys = tmp_path / "keys.yaml"
    keys.write_text("control: [the-key]\n")
    server = start_server("--model-repository", repositories("default"), "--keys", keys,
                          grpc=("127.0.0.1:0",))
    live = Live(server)
    for protocol in ("http", "grpc"):
        with pytest.raises(InferenceServerException):
            live.get(protocol)
        headers = {"authorization": "Bearer the-key"}
        assert plain(live.clients[protocol].get_log_settings(headers=headers)) == AT_FIRST

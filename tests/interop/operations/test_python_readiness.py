"""is_ready of models in Python: what health checks say of such a model, and that they do not wait for it."""
import threading

import pytest

from lib import http1, python_models
from lib.python_models import DOES, FLAGS, Client


@pytest.fixture
def running(start_server, tmp_path):
    """run(name, …): a server of models of tests/models/python/readiness.py, the first answer of which is in their name."""
    def run(*names, **options):
        for name in names:
            python_models.write(tmp_path / "models", name, "readiness", DOES)
        python_models.write(tmp_path / "models", "other", "does", DOES)
        return start_server("--model-repository", tmp_path / "models", *FLAGS, grpc=("127.0.0.1:0",), **options)
    return run


def states(server, model):
    """What the health checks of HTTP and gRPC say."""
    return {http1.request(server.address, "GET", f"/v2/models/{model}/ready").status == 200,
            Client(server, "grpc").client.is_model_ready(model)}


def is_ready(server, model):
    return states(server, model) == {True}


def wait_for(server, model, ready):
    server.wait_for(lambda: states(server, model) == {ready}, f"readiness {ready} of model {model}")


NOT_READY = {
    "false": "is_ready returned False",
    "raise": "is_ready failed: RuntimeError: no connection",
    "a text": "is_ready must return True or False, it returned str",
}


def test_model_is_ready_when_is_ready_says_so(running):
    server = running("model")
    client = Client(server)
    assert is_ready(server, "model") and is_ready(server, "other")
    for word, reason in NOT_READY.items():
        assert client.ask("model", word) == word
        wait_for(server, "model", False)
        server.wait_for(lambda expected=reason: f"instance 0 is not ready: {expected}" in server.log_text(), "the reason")
        assert is_ready(server, "other") and client.client.is_server_ready()
        assert client.ask("model", "numpy") == "numpy"  # requests are still served
        wait_for(server, "model", True)
    client.ask("model", "async")
    client.ask("model", "false")
    wait_for(server, "model", False)
    client.ask("model", "async")
    wait_for(server, "model", True)


def test_model_is_not_ready_before_is_ready_was_asked(running):
    server = running("first_false", "first_raise", "first_async")
    assert states(server, "first_false") == {False} and states(server, "first_raise") == {False} and is_ready(server, "first_async")
    assert Client(server).ask("first_false", "true") == "true"
    wait_for(server, "first_false", True)


def test_is_ready_that_hangs_holds_nothing(running):
    server = running("model", "first_hang")
    client = Client(server)
    assert states(server, "first_hang") == {False}
    client.ask("model", "hang")
    wait_for(server, "model", False)
    assert "instance 0 is not ready: is_ready has not returned after 5 s" in server.log_text()
    for _ in range(100):
        assert states(server, "model") == {False} and is_ready(server, "other")
    assert client.ask("other", "fine") == "fine"
    assert client.ask("model", "true") == "true"  # ends the wait in is_ready
    wait_for(server, "model", True)


def test_readiness_is_asked_while_execute_takes_long(running, tmp_path):
    server = running("model")
    client = Client(server)
    client.ask("model", "false")
    wait_for(server, "model", False)
    client.ask("model", "true")
    wait_for(server, "model", True)
    thread = threading.Thread(target=lambda: Client(server).ask("model", f"hold:{tmp_path}/end"))
    thread.start()
    server.wait_for(lambda: (tmp_path / "end.begun").exists(), "a request that runs")
    (tmp_path / "end.not_ready").touch()
    wait_for(server, "model", False)
    (tmp_path / "end.not_ready").unlink()
    wait_for(server, "model", True)
    (tmp_path / "end").touch()
    thread.join()
    assert is_ready(server, "model")


def test_worker_that_ends_in_is_ready_is_started_again(running):
    server = running("model")
    server.expect_error("exited with code 6")
    client = Client(server)
    client.ask("model", "exit")
    server.wait_for(lambda: "exited with code 6" in server.log_text(), "a line about the end")
    wait_for(server, "model", True)
    assert client.ask("model", "true") == "true"

"""Clients that close their connection before the response: their requests are cancelled, not executed, and
nothing of them is kept."""
import json

import pytest

from lib import http1

pytestmark = pytest.mark.plain

N = 200
BODY = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
SLOW = (b"POST /v2/models/id_slowest/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: %d\r\n\r\n" % len(BODY)) + BODY
QUICK = SLOW.replace(b"id_slowest", b"id_fp32")


def executions(server):
    answer = http1.request(server.address, "GET", "/v2/models/id_slowest/stats")
    return json.loads(answer.body)["model_stats"][0]["inference_stats"]["success"]["count"]


@pytest.mark.parametrize("sent", [SLOW, SLOW + QUICK], ids=["one request", "pipelined requests"])
@pytest.mark.parametrize("listener, reset", [(0, True), (0, False), (1, False)],
                         ids=["TCP reset", "TCP closed", "Unix socket closed"])
def test_disconnect_cancels_queued_requests(client_server, listener, reset, sent):
    """One that is executed takes ten seconds, so that a slow machine has cancelled it before."""
    before = executions(client_server)
    for _ in range(N):
        connection = http1.Connection(client_server.addresses[listener])
        connection.send(sent)
        if reset:
            connection.reset()
        else:
            connection.close()
    with http1.Connection(client_server.address) as live:
        live.send(QUICK)
        assert live.read_answer("POST").status == 200
    client_server.wait_at_rest()
    assert executions(client_server) == before


@pytest.mark.parametrize("sent", [SLOW, SLOW + QUICK + QUICK], ids=["one request", "pipelined requests"])
def test_half_close_cancels(client_server, sent):
    """The first request gets its response, that it was cancelled; later ones are dropped."""
    with http1.Connection(client_server.address) as connection:
        connection.send(sent)
        connection.half_close()
        assert connection.read_answer("POST").status == 499
        assert connection.read_end() == b""


def test_half_close_gets_response_that_is_ready(client_server):
    """A request that takes no time is answered before the end of the client's side is seen."""
    with http1.Connection(client_server.address) as connection:
        connection.send(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.half_close()
        assert connection.read_answer("GET").status == 200
        assert connection.read_end() == b""

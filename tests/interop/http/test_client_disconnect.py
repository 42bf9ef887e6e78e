"""Clients that ask something slow and go away: nobody works for them, and nothing of them is kept. Were
their requests still run, one after the other, the fixture's patience would not last."""
import pytest

from lib import http1

N = 200
BODY = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
SLOW = (b"POST /v2/models/id_slow/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: %d\r\n\r\n" % len(BODY)) + BODY


@pytest.mark.parametrize("listener, reset", [(0, True), (1, False)],
                         ids=["a reset over TCP", "a Unix socket closed"])
def test_disconnect_cancels_queued_requests(client_server, listener, reset):
    for _ in range(N):
        connection = http1.Connection(client_server.addresses[listener])
        connection.send(SLOW)
        if reset:
            connection.reset()
        else:
            connection.close()
    client_server.wait_at_rest()


def test_half_close_gets_all_answers(client_server):
    """Three requests in one send, and no more to come: all three are answered, then it is over."""
    quick = SLOW.replace(b"id_slow", b"id_fp32")
    with http1.Connection(client_server.address) as connection:
        connection.send(SLOW + quick + quick)
        connection.half_close()
        for _ in range(3):
            assert connection.read_answer("POST").status == 200
        assert connection.read_end() == b""

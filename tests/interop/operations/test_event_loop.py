"""An event loop is never held: with one worker, others are answered while one request takes long, whatever makes it
long. A request counts as answered meanwhile when the answer to the long one has not come before."""
import pytest

from lib import http1, metrics

LONG = 500000  # iterations: about a second
LOOP = "/v2/models/onnx_loop/infer"


def loop_body(n):
    return b'{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[%d]}]}' % n


@pytest.fixture
def one_worker(start_server, repositories):
    return start_server("--workers", "1", "--model-repository", repositories("default"),
                        f"onnx_loop={repositories('onnx')}/onnx_loop/1/model.onnx")


def head(target, n_bytes, *fields):
    lines = [f"POST {target} HTTP/1.1", "Host: a", f"Content-Length: {n_bytes}", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def test_event_loop_model_with_loop_never_runs_on_worker(one_worker):
    address = one_worker.address
    for _ in range(40):  # enough executions that are short
        answer = http1.request(address, "POST", LOOP, loop_body(3))
        assert (answer.status, b'"data":[3' in answer.body) == (200, True), answer
    before = metrics.read(address)
    assert before["sluice_inline_executions_total"] == 0
    with http1.Connection(address) as slow:
        body = loop_body(LONG)
        slow.send(head(LOOP, len(body)) + body)
        metrics.wait_until(address, lambda now: now["sluice_requests_in_flight"] == 2, "the slow request in flight")
        assert slow.read_answer("POST").status == 200

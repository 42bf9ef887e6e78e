"""The log under clients that cause many lines, and without a reader: lines are left out and counted, and
requests go on."""
import fcntl
import json
import os

from lib import http1, metrics, sequences

N_RESTARTS = 1500
BURST_LINES = 1000  # of one event, from src/core/base/log.h
RESTARTED = "sequence_start for a sequence that is open"
LIMIT, NOT_READ = (f'sluice_log_lines_dropped_total{{reason="{reason}"}}' for reason in ("limit", "not_read"))
INFER = "/v2/models/adder/infer"


def body_of(**parameters):
    return json.dumps({"parameters": {"sequence_id": 7, **parameters}, "inputs": [
        {"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1]}]}).encode()


def restart(address, n):
    """Starts a sequence that is open `n` times; each causes a line."""
    body = body_of(sequence_start=True)
    head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with http1.Connection(address) as connection:
        for _ in range(n // 50):
            connection.send((head + body) * 50)
            for _ in range(50):
                assert connection.read_answer().status == 200


def test_log_lines_of_clients_are_limited(start_server, tmp_path):
    server = start_server(*sequences.make(tmp_path, {"adder": sequences.adder()}))
    assert http1.request(server.address, "POST", INFER, body=body_of(sequence_start=True)).status == 200
    restart(server.address, N_RESTARTS)
    n_lines = server.log_text().count(RESTARTED)
    assert BURST_LINES <= n_lines < N_RESTARTS
    assert metrics.read(server.address)[LIMIT] == N_RESTARTS - n_lines
    # the next line has the number of those before
    metrics.wait_until(server.address, lambda _: restart(server.address, 50) or any(
        "suppressed" in line for line in server.log_lines()), "a line with a count")


def test_log_that_is_not_read_holds_no_request(start_server, tmp_path):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    server = start_server(*sequences.make(tmp_path, {"adder": sequences.adder()}), stderr=writer)
    try:
        assert http1.request(server.address, "POST", INFER, body=body_of(sequence_start=True)).status == 200
        restart(server.address, 500)
        assert metrics.read(server.address)[NOT_READ] > 0
        os.set_blocking(reader, False)
        os.read(reader, 1 << 16)
        restart(server.address, 50)
        assert b"log lines dropped: standard error was not read" in os.read(reader, 1 << 16)
        restart(server.address, 50)  # it is full again, and the server ends all the same
        server.signal()
        assert server.wait_exit() == 0
    finally:
        server.kill()
        os.close(reader)
        os.close(writer)

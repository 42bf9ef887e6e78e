"""Sixty clients that each send a compressed body of much JSON and go, again and again: others are answered, the bodies are
freed, and almost nothing is parsed for those that have gone."""
import gzip
import socket
import time

import pytest

from lib import http1, metrics

N_CLIENTS, N_ROUNDS, STAY_S = 60, 3, 0.3
N = 30 << 20  # elements
LONG = gzip.compress(b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","data":[' % N
                     + b"1," * (N - 1) + b"1]}]}", 9)
GOOD_N = 1 << 19
GOOD = b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","data":[%s]}]}' % (GOOD_N, b"1," * (GOOD_N - 1) + b"7")
SKIPPED = 'sluice_helper_jobs_cancelled_total{state="waiting"}'


@pytest.mark.parametrize("how", ["RST", "FIN"])
def test_clients_that_go_leave_no_work(start_server, repositories, how):
    server = start_server("--model-repository", repositories("default"), metrics_at="127.0.0.1:0")
    admin, longest = server.metrics_address, 0
    for _ in range(N_ROUNDS):
        leaving = [http1.Connection(server.address) for _ in range(N_CLIENTS)]
        for connection in leaving:
            connection.send(http1.post(b"/v2/models/id_int8/infer", LONG, b"Content-Encoding: gzip"))
        time.sleep(STAY_S)
        for connection in leaving:
            if how == "RST":
                connection.reset()
            else:
                connection.sock.shutdown(socket.SHUT_WR)
                connection.sock.close()
        began = time.monotonic()
        assert http1.request(server.address, "POST", "/v2/models/id_int8/infer", GOOD).status == 200
        longest = max(longest, time.monotonic() - began)
        metrics.wait_until(admin, lambda now: now["sluice_body_bytes_in_flight"] == 0, "the bodies freed", 60)
    numbers = metrics.read(admin)
    print(f"{how}: another client's 1 MB took {longest:.2f} s at most; {numbers['sluice_helper_jobs_total']:.0f} jobs,"
          f" {numbers[SKIPPED]:.0f} skipped; peak {server.peak_rss_bytes() / 1e6:.0f} MB")
    server.wait_at_rest()

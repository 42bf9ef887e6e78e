"""Helper threads are shared by all clients: a client that has much work for them waits for itself, and work for clients
that have gone is not done (docs/running.md, "Large requests beside small ones")."""
import gzip
import signal
import socket

import pytest

from lib import grpc_live, h2, http1, metrics, mip
from lib.repository import FREE, Identity

LONG_BYTES = 60 << 20  # of JSON, in 60 KB of gzip; parsing takes hundreds of milliseconds
LONG = gzip.compress(b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","data":[' % (LONG_BYTES // 2)
                     + b"1," * (LONG_BYTES // 2 - 1) + b"1]}]}", 9)
N_LONG = 12
MIP_ELEMENTS = 15 << 20  # of JSON in a packet, likewise
SKIPPED = 'sluice_helper_jobs_cancelled_total{state="waiting"}'
STOPPED = 'sluice_helper_jobs_cancelled_total{state="running"}'


def json_body(n):
    return b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","data":[%s]}]}' % (n, b"1," * (n - 1) + b"7")


GOOD = json_body(1 << 19)  # 1 MB


@pytest.fixture
def server(start_server, repositories):
    return start_server("--workers", "1", "--model-repository", repositories("default"), "--body-memory", "4GiB",
                        "--client-memory", "16GiB", metrics_at="127.0.0.1:0")


def post_long(address):
    connection = http1.Connection(address)
    connection.send(http1.post(b"/v2/models/id_int8/infer", LONG, b"Content-Encoding: gzip"))
    return connection


def leave(connection, how):
    """RST, or FIN: the server cannot tell the latter from a client that waits for its answer with `shutdown`."""
    if how == "RST":
        connection.reset()
    else:
        connection.sock.shutdown(socket.SHUT_WR)
        connection.sock.close()


def get_good(address):
    return http1.request(address, "POST", "/v2/models/id_int8/infer", GOOD)


@pytest.mark.parametrize("how", ["RST", "FIN"])
def test_helper_jobs_of_clients_that_have_gone_do_not_run(server, how):
    admin = server.metrics_address
    server.signal(signal.SIGSTOP)  # a client that is late is not to come when others have been answered
    leaving = [post_long(server.address) for _ in range(N_LONG)]
    server.signal(signal.SIGCONT)
    metrics.wait_until(admin, lambda now: now["sluice_helper_jobs_total"] >= N_LONG, "all parsed or waiting")
    n_done = metrics.read(admin)["sluice_inferences_total"]
    for connection in leaving:
        leave(connection, how)
    numbers = metrics.wait_until(admin, lambda now: now["sluice_body_bytes_in_flight"] == 0, "their bodies freed")
    # One runs at a time. The server may have ended several before it sees the first client leave.
    n_ended = N_LONG - numbers[SKIPPED] - numbers[STOPPED]
    assert numbers[SKIPPED] > 0 and n_ended <= 4 and numbers["sluice_helper_jobs_waiting"] == 0, numbers
    assert numbers["sluice_inferences_total"] - n_done <= n_ended
    assert get_good(server.address).status == 200
    server.wait_at_rest()


def test_helper_jobs_of_mip_clients_that_have_gone_do_not_run(start_server, repositories):
    """Complete packets, of which each is a job; their connections are reset while the jobs wait."""
    live = start_server("--workers", "1", "--model-repository", repositories("default"), "--body-memory", "4GiB",
                        "--client-memory", "16GiB", "--body-timeout", "1h", "--mip", "tcp://127.0.0.1:0=id_int8",
                        metrics_at="127.0.0.1:0")
    packet = mip.infer_request([[(mip.JSON, b"[" + b"1," * MIP_ELEMENTS + b"1]")]])
    leaving = [mip.Connection(live.mip_urls[0]) for _ in range(N_LONG)]
    for connection in leaving:
        connection.send(packet[:-1])
    before = metrics.read(live.metrics_address)
    live.signal(signal.SIGSTOP)
    for connection in leaving:
        connection.send(packet[-1:])
    live.signal(signal.SIGCONT)
    metrics.wait_until(live.metrics_address, lambda now: now["sluice_helper_jobs_total"] >= before["sluice_helper_jobs_total"]
                       + N_LONG, "all parsed or waiting")
    for connection in leaving:
        connection.reset()
    numbers = metrics.wait_until(live.metrics_address, lambda now: now["sluice_body_bytes_in_flight"] == 0, "the packets freed")
    n_ended = N_LONG - numbers[SKIPPED] - numbers[STOPPED]
    assert numbers[SKIPPED] > 0 and n_ended <= 4 and numbers["sluice_helper_jobs_waiting"] == 0, numbers
    assert numbers["sluice_inferences_total"] - before["sluice_inferences_total"] <= n_ended
    assert mip.infer(live.mip_urls[0], [[mip.as_json([1, 2])]]) == [[[1, 2]]]
    live.wait_at_rest()


def test_helper_jobs_of_one_client_do_not_keep_others_waiting(server):
    """The clients stay. The good one has a connection of its own on the same host, as behind a proxy."""
    admin = server.metrics_address
    busy = [post_long(server.address) for _ in range(N_LONG)]
    metrics.wait_until(admin, lambda now: now["sluice_helper_jobs_waiting"] >= N_LONG - 4, "the long ones waiting")
    assert get_good(server.address).status == 200
    assert metrics.read(admin)["sluice_helper_jobs_waiting"] > N_LONG / 2
    for connection in busy:
        connection.reset()
    server.wait_at_rest()


def test_helper_jobs_of_one_grpc_connection_pass_longer_ones(tmp_path, repositories):
    """As behind a proxy that has one connection for many clients."""
    live = grpc_live.Live(tmp_path, repositories("default"), "--workers", "1", "--body-memory", "4GiB",
                          "--body-timeout", "1h")
    long = grpc_live.request("id_int8", [grpc_live.tensor("INPUT0", "INT8", [20 << 20],
                                                          contents={"int_contents": [1] * (20 << 20)})], ())
    short = grpc_live.request("id_int8", [grpc_live.tensor("INPUT0", "INT8", [1 << 19],
                                                           contents={"int_contents": [1] * (1 << 19)})], ())
    with live.server:
        behind = jobs_answered_after_short_one(live, long, short)
        # In the order of their arrival none would be, but those that run beside it.
        assert behind >= 3, behind
        live.check_unharmed()


@pytest.mark.parametrize("how", ["calls", "connection"])
def test_helper_jobs_of_cancelled_grpc_calls_do_not_run(tmp_path, repositories, how):
    """Complete messages whose calls are cancelled, or whose connection ends, before their turn."""
    live = grpc_live.Live(tmp_path, repositories("default"), "--workers", "1", "--body-memory", "4GiB",
                          "--body-timeout", "1h")
    n = 20 << 20
    data = grpc_live.request("id_int8", [grpc_live.tensor("INPUT0", "INT8", [n], contents={"int_contents": [1] * n})], ())
    with live.server:
        admin = live.server.metrics_address
        with live.connect() as connection:
            streams = [connection.begin(grpc_live.INFER) for _ in range(N_LONG)]
            for stream in streams:
                connection.send_data(stream, h2.message(data)[:-1])
            connection.run_until(lambda: not connection.unsent and connection.window > N_LONG
                                 and all(connection.windows[stream] > 0 for stream in streams))
            before = metrics.read(admin)
            live.server.signal(signal.SIGSTOP)
            for stream in streams:
                connection.send_data(stream, data[-1:], end=True)
            connection.run_until(lambda: not connection.unsent)
            if how == "calls":
                connection.send(b"".join(h2.reset(stream) for stream in streams))
            else:
                connection.sock.shutdown(socket.SHUT_WR)
            live.server.signal(signal.SIGCONT)
            numbers = metrics.wait_until(admin, lambda now: now["sluice_body_bytes_in_flight"] == 0, "the bodies freed")
        n_run = numbers["sluice_helper_jobs_total"] - before["sluice_helper_jobs_total"] - numbers[SKIPPED] - numbers[STOPPED]
        assert n_run <= 4 and numbers["sluice_helper_jobs_waiting"] == 0, numbers
        assert numbers["sluice_inferences_total"] - before["sluice_inferences_total"] <= n_run
        live.check_unharmed()


def jobs_answered_after_short_one(live, long, short):
    """The last bytes of all calls, the short one's after those of the long ones, are sent while the server is stopped: it
    finds all of them complete at once. Returns: how many of the long calls are answered after the short one, by the order
    of the heads."""
    admin = live.server.metrics_address
    with live.connect() as connection:
        streams = []
        for data in [long] * N_LONG + [short]:
            streams.append(connection.begin(grpc_live.INFER))
            connection.send_data(streams[-1], h2.message(data)[:-1])
        connection.run_until(lambda: not connection.unsent and connection.window > N_LONG
                             and all(connection.windows[stream] > 0 for stream in streams))
        live.server.signal(signal.SIGSTOP)
        for data, stream in zip([long] * N_LONG + [short], streams):
            connection.send_data(stream, data[-1:], end=True)
        connection.run_until(lambda: not connection.unsent)
        live.server.signal(signal.SIGCONT)
        ended = connection.answer(streams[-1])
        assert (ended.status, len(ended.messages())) == (grpc_live.OK, 1), str(ended)
        connection.abort()
    metrics.wait_until(admin, lambda now: now["sluice_helper_jobs_waiting"] == 0, "none waiting")
    return N_LONG - connection.answered.index(streams[-1])


def test_helper_jobs_that_encode_for_a_client_that_has_gone_are_skipped(start_server, tmp_path):
    """The answers are ready, and wait to be printed."""
    Identity("late", [("INT8", FREE)], parameters={"delay_us": 300000}).write(tmp_path / "models")
    server = start_server("--workers", "1", "--model-repository", tmp_path / "models", metrics_at="127.0.0.1:0")
    admin, n = server.metrics_address, 20 << 20
    header = b'{"inputs":[{"name":"INPUT0","shape":[%d],"datatype":"INT8","parameters":{"binary_data_size":%d}}]}' % (n, n)
    request = http1.post(b"/v2/models/late/infer", header + bytes(n),
                         b"Inference-Header-Content-Length: %d" % len(header))
    leaving = [http1.Connection(server.address) for _ in range(4)]
    for connection in leaving:
        connection.send(request)
    metrics.wait_until(admin, lambda now: now["sluice_helper_jobs_total"] > 0, "an answer that is printed")
    for connection in leaving:
        connection.reset()
    numbers = metrics.wait_until(admin, lambda now: now["sluice_body_bytes_in_flight"] == 0, "their bodies freed")
    assert numbers[STOPPED] + numbers[SKIPPED] + 4 - numbers["sluice_helper_jobs_total"] >= 2, numbers
    server.wait_at_rest()


def test_helper_job_decodes_and_checks_in_one(tmp_path):
    """Once for all steps before the model, also where only the message names it; with the forwarded headers."""
    Identity("echo", [("BOOL", FREE)], parameters={"echo_parameters": "true"}).write(tmp_path / "models")
    live = grpc_live.Live(tmp_path, tmp_path / "models", "--workers", "1", "--grpc-header-forward-pattern", "^x-")

    def bools(model, datatype="BOOL", **more):
        tensor = grpc_live.tensor("INPUT0", datatype, [2 << 20], contents={"bool_contents": [True] * (2 << 20)})
        return grpc_live.request(model, [tensor], (), **more)

    def call(message):
        before = metrics.read(live.server.metrics_address)["sluice_helper_jobs_total"]
        stream = connection.begin(grpc_live.INFER, (b"x-user", b"anna"))
        connection.send_data(stream, h2.message(message), end=True)
        ended = connection.answer(stream)
        return ended, metrics.read(live.server.metrics_address)["sluice_helper_jobs_total"] - before

    with live.server, live.connect() as connection:
        ended, n_jobs = call(bools("echo"))
        assert (ended.status, n_jobs) == (grpc_live.OK, 1), str(ended)
        answer = grpc_live.parse_answer(ended.messages()[0])
        assert answer.parameters["x-user"].string_param == "anna"
        assert answer.raw_output_contents[0] == b"\1" * (2 << 20)
        for message, text in ((bools("none"), "Request for unknown model: 'none' is not found"),
                              (bools("echo", model_version="7"), "version 7 is not found"),
                              (bools("none", "FP32"), "inputs[0].contents")):  # decoded before it is looked up
            ended, n_jobs = call(message)
            assert text in ended.text and n_jobs == 1, str(ended)
        connection.close()
        live.server.wait_at_rest()

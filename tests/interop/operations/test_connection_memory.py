"""What connections make the server hold besides responses, bodies and calls: their own state, TLS handshakes that
stop, records and heads that are not complete, requests sent ahead. All of it is in --client-memory and in the metrics;
a client that was there before is answered meanwhile."""
import contextlib
import socket
import ssl

import pytest

from lib import http1, metrics
from lib.server import is_sanitized
from lib.tls_client import Pki, client_context, connect

MIB = 1 << 20
READY = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_HEAD = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nX: "
CONNECTION_BYTES = 6144
HANDSHAKE_BYTES = 40960
SLOW = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'


def of(numbers, kind, protocol="http"):
    labels = f'kind="{kind}"' + (f',protocol="{protocol}"' if protocol else "")
    return numbers[f"sluice_client_memory_bytes{{{labels}}}"]


def ask(connection):
    connection.send(READY)
    assert connection.read_answer().status == 200


@pytest.fixture
def start(start_server, repositories):
    def one(*flags, **options):
        return start_server("--model-repository", repositories("default"), "--workers", "1", "--idle-timeout", "1h",
                            "--header-timeout", "1h", *flags, metrics_at="127.0.0.1:0", **options)
    return one


@pytest.fixture(name="pki", scope="module")
def make_pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


def start_tls(start, pki, *flags):
    cert, key = pki.server_files
    return start("--http-tls-cert", cert, "--http-tls-key", key, *flags,
                 listen=("http://127.0.0.1:0", "https://127.0.0.1:0"))


def port_of(address):
    return int(address.rpartition(":")[2])


def client_hello(pki):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_context(pki).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_connections_fit_client_memory(start):
    """The start says how many do. Further ones are refused with the setting's name."""
    live = start("--client-memory", "2MiB")
    fitting = MIB // CONNECTION_BYTES
    line = next(line for line in live.log_lines() if line["event"].startswith("fewer connections than"
                                                                              " --max-connections, for half"))
    assert line["used"] == fitting and line["protocol"] == "http" and line["bytes_each"] == CONNECTION_BYTES
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(http1.Connection(live.address)) for _ in range(fitting)]
        for one in begun:
            one.send(http1.post_head(b"/v2/models/id_fp32/infer", 10))
        numbers = metrics.wait_until(live.metrics_address,
                                     lambda n: of(n, "connections") == fitting * CONNECTION_BYTES
                                     and n["sluice_requests_in_flight"] >= fitting, "connections that take their half")
        assert numbers["sluice_connections"] >= fitting
        refused = stack.enter_context(http1.Connection(live.address))
        answer = refused.read_answer()
        assert answer.status == 503 and b"--client-memory" in answer.body, str(answer)
        begun[1].send(b"0123456789")
        assert begun[1].read_answer().status == 400  # idle now: its memory is another one's
        metrics.wait_until(live.metrics_address, lambda n: n["sluice_requests_in_flight"] < fitting, "an idle connection")
        with http1.Connection(live.address) as another:
            ask(another)
    live.wait_at_rest()


def test_incomplete_heads_count(start):
    live = start("--client-memory", "8MiB")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(http1.Connection(live.address)).send(HALF_HEAD + b"a" * 12000)
        # 4 KiB of each are part of the connection.
        metrics.wait_until(live.metrics_address, lambda n: of(n, "requests", None) > 100 * 12000, "heads that count")
        with http1.Connection(live.address) as good:
            ask(good)
    live.wait_at_rest()


def test_requests_sent_ahead_count(start):
    """What follows a request that waits for its model is kept, until the connection ends."""
    live = start()
    with http1.Connection(live.address) as ahead:
        ahead.send(http1.post(b"/v2/models/id_slow/infer", SLOW) * 30 + READY * 500)
        metrics.wait_until(live.metrics_address, lambda n: of(n, "buffers") > 20000, "pending input that counts")
    metrics.wait_until(live.metrics_address, lambda n: of(n, "buffers") == 0, "no pending input")
    live.wait_at_rest()


# ---- TLS -----------------------------------------------------------------------------------------


def test_handshakes_that_stop_fit_client_memory(start, pki):
    """A ClientHello and nothing more. What was 40 KiB in no budget is 40 KiB of the connections' half; without memory the
    longest idle connection is closed, or the new one."""
    live = start_tls(start, pki, "--client-memory", "4MiB")
    hello, port = client_hello(pki), port_of(live.addresses[1])
    with contextlib.ExitStack() as stack:
        stopped = [stack.enter_context(http1.Connection(f"127.0.0.1:{port}")) for _ in range(100)]
        for one in stopped:
            one.send(hello)
        numbers = metrics.wait_until(
            live.metrics_address,
            lambda n: n['sluice_tls_handshake_failures_total{reason="memory"}'] + n["sluice_idle_connections_closed_total"]
            + of(n, "tls") // HANDSHAKE_BYTES >= 100, "handshakes without memory")
        assert 30 * HANDSHAKE_BYTES < of(numbers, "tls") <= 2 * MIB
        if numbers['sluice_tls_handshake_failures_total{reason="memory"}'] > 0:
            assert any(line.get("event") == "TLS handshake failed" and "--client-memory" in line["reason"]
                       for line in live.log_lines())
        good = stack.enter_context(connect(pki, port))
        good.sendall(READY)
        assert good.recv(4096).startswith(b"HTTP/1.1 200 ")
        for one in stopped:
            one.close()
        metrics.wait_until(live.metrics_address, lambda n: of(n, "tls") < 100000, "memory for handshakes")
        stack.enter_context(connect(pki, port))
    live.wait_at_rest()


def test_records_that_stop_take_what_was_sent(start, pki):
    """A record of 16 KiB of which a few bytes come: before and after the handshake."""
    live = start_tls(start, pki)
    port = port_of(live.addresses[1])
    before = live.rss_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(http1.Connection(f"127.0.0.1:{port}")).send(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc")
        metrics.wait_until(live.metrics_address, lambda n: of(n, "tls") >= 300 * 512, "records that have begun")
        grown = live.rss_bytes() - before
        print(f"{grown / 300 / 1024:.1f} KiB each")
        if not is_sanitized():
            assert grown < 300 * 8192  # they were 36 KiB
        good = stack.enter_context(connect(pki, port))
        good.sendall(READY)
        assert good.recv(4096).startswith(b"HTTP/1.1 200 ")
        idle = of(metrics.read(live.metrics_address), "tls")
        with open_record(good) as begun:
            metrics.wait_until(live.metrics_address, lambda n: of(n, "tls") > idle, "a record that has begun")
            begun.close()
    live.wait_at_rest()


@contextlib.contextmanager
def open_record(tls):
    """Sends the beginning of another record on the connection below."""
    plain = socket.socket(fileno=tls.detach())
    try:
        plain.sendall(b"\x17\x03\x03\x40\x00abc")
        yield plain
    finally:
        plain.close()


def test_record_in_pieces_is_decrypted(start, pki):
    """Byte for byte, and with the beginning of the next record."""
    live = start_tls(start, pki)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(pki).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with http1.Connection(f"127.0.0.1:{port_of(live.addresses[1])}") as plain:
        def send(data, n_bytes):
            for at in range(0, len(data), n_bytes):
                plain.send(data[at:at + n_bytes])
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                send(outgoing.read(), 1)
                incoming.write(plain.sock.recv(65536))
        send(outgoing.read(), 1)
        for n_bytes in (1, 7, 30, 1000):
            for _ in range(20):
                client.write(READY)
            send(outgoing.read(), n_bytes)
            text = b""
            while text.count(b"HTTP/1.1 200 ") < 20:
                try:
                    text += client.read(65536)
                except ssl.SSLWantReadError:
                    incoming.write(plain.sock.recv(65536))
    live.wait_at_rest()

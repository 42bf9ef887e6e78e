"""What connections make the server hold besides responses, bodies and calls: their own state, TLS handshakes that
stop, records and heads that are not complete, requests sent ahead. All of it is in --client-memory and in the metrics;
a client that was there before is answered meanwhile."""
import contextlib
import fcntl
import glob
import signal
import socket
import ssl
import struct
import termios
import time

import pytest

from lib import grpc_live, h2, http1, metrics, mip
from lib.server import is_sanitized
from lib.tls_client import Pki, client_context, client_hello, connect

pytestmark = pytest.mark.plain

MIB = 1 << 20
READY = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_HEAD = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nX: "
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
CONNECTION_BYTES = 6144
GRPC_BYTES = 20480
INFER = b"/inference.GRPCInferenceService/ModelInfer"
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


def test_answers_that_are_not_read_count_in_the_kernel(start):
    """What the socket has taken is no longer the server's, and is memory of its control group all the same."""
    live = start()
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            unread = stack.enter_context(http1.Connection(live.address))
            unread.send(METRICS * 100)
        metrics.wait_until(live.metrics_address, lambda n: of(n, "sockets") > 20 * 100000, "answers in the kernel")
        numbers = metrics.read(live.metrics_address)
        assert of(numbers, "sockets") < 20 * 3 * MIB // 2  # the kernel would take megabytes for each
    metrics.wait_until(live.metrics_address, lambda n: of(n, "sockets") == 0, "no answers in the kernel")
    live.wait_at_rest()


def n_taken(sock, n_sent):
    """Of what was sent, the bytes that the server's kernel has."""
    return n_sent - struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]


def send_what_fits(sock):
    """Returns: bytes, those included that wait in the client's kernel."""
    sock.setblocking(False)
    n = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            n += sock.send(bytes(65536))
    return n


def stop_threads(live):
    """Each of them is stopped when this returns: one that runs on another CPU goes on for a moment after the signal."""
    live.signal(signal.SIGSTOP)
    for stat in glob.glob(f"/proc/{live.pid}/task/*/stat"):
        while True:
            with open(stat, encoding="ascii", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] == "T":
                    break
            time.sleep(0.001)


def test_input_that_is_not_read_is_little_of_each_new_connection(start):
    """The server is stopped, as one that gets no CPU: the kernel took 64 KiB of each, which nothing counts before the server
    runs again."""
    live = start("--client-memory", "256MiB")
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(http1.Connection(live.address)) for _ in range(20)]
        stack.callback(live.signal, signal.SIGCONT)
        stop_threads(live)
        sent = [send_what_fits(one.sock) for one in crowd]
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            assert max(n_taken(one.sock, n) for one, n in zip(crowd, sent)) <= 16384
            time.sleep(0.02)
    live.wait_at_rest()


def test_answers_that_are_not_read_hold_further_requests(start):
    """While memory is used up, a connection whose socket holds an answer is not served; others are."""
    live = start("--client-memory", "2MiB")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            unread = stack.enter_context(http1.Connection(live.address))
            unread.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # not all answers are the client's
            unread.send(METRICS * 60)
        metrics.wait_until(live.metrics_address, lambda n: n["sluice_slow_readers_closed_total"] > 0
                           or of(n, "sockets") >= MIB, "memory that is used up")
        for _ in range(20):
            assert of(metrics.read(live.metrics_address), "sockets") < 16 * MIB
            with http1.Connection(live.address, source="127.0.0.9") as good:
                ask(good)
    metrics.wait_until(live.metrics_address, lambda n: of(n, "sockets") == 0, "no answers in the kernel")
    live.wait_at_rest()


def fill_with_body(stack, live, kept):
    """A body that is not complete takes all but `kept` bytes of the memory."""
    numbers = metrics.read(live.metrics_address)
    held = sum(value for name, value in numbers.items() if name.startswith("sluice_client_memory_bytes{"))
    n_bytes = int(numbers["sluice_client_memory_limit_bytes"] - held) - kept
    begun = stack.enter_context(http1.Connection(live.address, source="127.0.2.1"))
    begun.send(http1.post_head(b"/v2/models/id_fp32/infer", n_bytes + MIB) + bytes(n_bytes))
    metrics.wait_until(live.metrics_address, lambda now: of(now, "bodies") >= n_bytes - (64 << 10), "a body in memory")


def test_input_of_a_crowd_leaves_new_connections_and_small_requests_memory(start):
    """Connections of many hosts, which have sent ahead of an answer. All memory is used up and more: the kernel holds
    what is not read. Connections and small requests have extras of their own."""
    live = start("--client-memory", "8MiB", "--body-memory", "8MiB", "--body-timeout", "1h", "--mip",
                 "tcp://127.0.0.1:0=id_fp32", grpc=("127.0.0.1:0",))
    n, ahead = 300, READY * 78
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(http1.Connection(live.address, source=f"127.0.1.{1 + i // 10}")) for i in range(n)]
        for one in crowd:
            one.send(http1.post(b"/v2/models/id_slowest/infer", SLOW))
        metrics.wait_until(live.metrics_address, lambda now: metrics.others_in_flight(now) >= n, "requests that wait")
        fill_with_body(stack, live, 256 << 10)  # and what workers have taken ahead
        for one in crowd:
            one.send(ahead)
        metrics.wait_until(live.metrics_address, lambda now: of(now, "buffers") >= n * len(ahead), "requests sent ahead")
        for one in crowd:
            one.sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.sock.send(bytes(100000))
        metrics.wait_until(live.metrics_address, lambda now: of(now, "sockets") > 4 * MIB, "input in the kernel")
        for _ in range(5):
            with (http1.Connection(live.address) as http, h2.Connection(live.grpc_address) as grpc,
                  mip.Connection(live.mip_urls[0]) as packets):
                http.send(http1.post(b"/v2/models/id_fp32/infer", SLOW))
                assert http.read_answer("POST").status == 200
                stream = grpc.call(INFER, grpc_live.GOOD)
                assert stream.status == 0, str(stream)
                assert packets.infer([[mip.as_json([1.0])]])
    live.kill()  # its model has many requests to answer


def test_idle_connections_go_for_requests_that_wait_for_memory(start):
    """Those of a host that has many. They kept half of the memory, and a request that needed more got 503."""
    live = start("--client-memory", "2MiB", "--body-memory", "1MiB")
    host, _, port = live.address.rpartition(":")
    head = (b'{"inputs":[{"name":"INPUT0","shape":[160000],"datatype":"FP32","parameters":{"binary_data_size":640000}}],'
            b'"parameters":{"binary_data_output":true}}')
    request = http1.post(b"/v2/models/id_fp32/infer", head + bytes(640000),
                         b"Inference-Header-Content-Length: %d" % len(head))
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((host, int(port)), http1.PATIENCE, ("127.0.0.9", 0)))
                for _ in range(MIB // CONNECTION_BYTES - 5)]
        metrics.wait_until(live.metrics_address, lambda n: n["sluice_connections"] >= len(idle), "idle connections")
        good = stack.enter_context(http1.Connection(live.address))
        for _ in range(3):
            good.send(request)
            answer = good.read_answer("POST")
            assert answer.status == 200, str(answer)
        assert metrics.read(live.metrics_address)["sluice_idle_connections_closed_total"] > 0
    live.wait_at_rest()


def test_tables_of_header_fields_count(start):
    """HPACK counts 33 bytes for an entry that takes 170."""
    live = start(grpc=("127.0.0.1:0",))
    entries = b"".join(b"\x40\x01" + bytes([97 + n % 26]) + b"\x00" for n in range(124))
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(h2.Connection(live.grpc_address))
            connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.block(h2.call_fields(grpc_live.STREAM)) + entries))
        metrics.wait_until(live.metrics_address, lambda n: of(n, "connections", "grpc") >= 20 * (GRPC_BYTES + 17000),
                           "tables that count")
    metrics.wait_until(live.metrics_address, lambda n: of(n, "connections", "grpc") == 0, "no connections")
    live.wait_at_rest()


def test_tables_of_header_fields_fit_client_memory(start):
    live = start("--client-memory", "4MiB", grpc=("127.0.0.1:0",))
    entries = b"".join(b"\x40\x01" + bytes([97 + n % 26]) + b"\x00" for n in range(124))
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(h2.Connection(live.grpc_address)) for _ in range(100)]
        for connection in crowd:
            connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.block(h2.call_fields(grpc_live.STREAM)) + entries))
        live.wait_for(lambda: any(line["event"] == "gRPC connection terminated" and "--client-memory" in line["reason"]
                                  for line in live.log_lines()), "a refusal")
        numbers = metrics.wait_until(live.metrics_address, lambda n: of(n, "connections", "grpc") < 3 * MIB, "a bound")
        assert of(numbers, "connections", "grpc") > MIB // 2
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

"""MIP against those who don't keep to it. What must come of any bytes at all is worked out here, from
the document, by `answers_to`; the server is held to that for packets with every field wrong, streams
cut in two at every byte, and streams made at random. After each test nothing may be in flight or
held. It refuses to know how the server does it."""
import random
import resource
import socket
import struct

import pytest

from lib import metrics, mip, server
from lib.server import Server

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

MAX_BODY = 1 << 20
MAX_SKIPPED = 65536  # of a refused payload, to keep the connection
PAIR = [mip.as_json([1, 2]), mip.as_json([3, 4])]
GOOD = mip.infer_request([PAIR])
KNOWN = {mip.as_json([n, n + 1]) for n in range(9)} | {(mip.TEXT, b"[5, 6]")}


class Running:
    def __init__(self, folder, repository):
        flags = ["--model-repository", repository, "--max-body-size", MAX_BODY, "--request-memory",
                 "64MiB", "--header-timeout", "2m", "--body-timeout", "2m",
                 "--mip", "tcp://127.0.0.1:0=onnx_pair", "--mip", f"unix://{folder}/s=onnx_pair"]
        self.server = Server(folder, flags)
        self.tcp, self.unix = self.server.mip_urls


@pytest.fixture(scope="module")
def shared(tmp_path_factory, repositories):
    running = Running(tmp_path_factory.mktemp("attacks"), repositories("onnx-only"))
    with running.server:
        yield running


def is_served(url):
    assert mip.infer(url, [PAIR]) == [[[4.0, 6.0]]]


@pytest.fixture
def running(shared):
    assert shared.server.process.poll() is None, shared.server.log_text()
    yield shared
    is_served(shared.tcp)
    shared.server.wait_at_rest()
    shared.server.check_log()


# ---- what the document says of any bytes ---------------------------------------------------------

def sizes_fit(payload):
    """Returns: the items, or None where payload and counts don't agree."""
    n_inputs, _, batch = struct.unpack("!2BH", payload[:4])
    items, at = [], 4
    if n_inputs == 0 or batch == 0:
        return None
    for _ in range(n_inputs * batch):
        if len(payload) - at < 8:
            return None
        kind, size = struct.unpack("!2L", payload[at:at + 8])
        if len(payload) - at - 8 < size:
            return None
        items.append((kind, payload[at + 8:at + 8 + size]))
        at += 8 + size
    return items if at == len(payload) else None


def answer_to(payload):
    """What an inference of onnx_pair may be answered with: one thing, where its items are known."""
    items = sizes_fit(payload)
    if items is None or payload[0] != 2:
        return {"SHAPE"}
    if all(item in KNOWN for item in items):
        return {len(items) // 2}
    return {len(items) // 2, "SHAPE", "INTERNAL"}


def refusal_of(version, kind, subtype, n_bytes):
    if version != 0:
        return "PROTOCOL"
    if subtype != mip.REQUEST:
        return "SUBTYPE"
    if kind not in (mip.PING, mip.INFER):
        return "METHOD"
    if (kind == mip.PING) != (n_bytes == 0) or (kind == mip.INFER and n_bytes < 4):
        return "SHAPE"
    return "MEMORY" if n_bytes > MAX_BODY else None


def answers_to(stream):
    """Returns: for each answer the set of what it may be: an error's name, "pong", or a batch size."""
    answers = []
    while len(stream) >= 8:
        version, kind, subtype, _, n_bytes = struct.unpack("!4BL", stream[:8])
        refusal = refusal_of(version, kind, subtype, n_bytes)
        rest = stream[8:]
        if refusal:
            answers.append({refusal})
        elif len(rest) < n_bytes:
            break
        else:
            answers.append({"pong"} if kind == mip.PING else answer_to(rest[:n_bytes]))
        if refusal == "PROTOCOL" or refusal and n_bytes > MAX_SKIPPED:
            break
        stream = rest[n_bytes:]
    return answers


def answers_of(data):
    """The server's bytes, as what `answers_to` speaks of."""
    answers = []
    while data:
        version, kind, subtype, reserved, n_bytes = struct.unpack("!4BL", data[:8])
        payload, data = data[8:8 + n_bytes], data[8 + n_bytes:]
        assert (version, reserved, len(payload)) == (0, 0, n_bytes)
        if kind == mip.ERROR:
            assert n_bytes == 0
            answers.append(mip.ERRORS[subtype])
        else:
            assert subtype == mip.RESPONSE
            answers.append("pong" if kind == mip.PING else len(mip.parse_answer(payload)[1]))
    return answers


def fits(answers, expected):
    return len(answers) == len(expected) and all(a in e for a, e in zip(answers, expected))


def read_all(sock):
    """Everything up to the server's end of the connection; it must not be a reset."""
    parts = []
    while data := sock.recv(1 << 20):
        parts.append(data)
    return b"".join(parts)


def ask(url, stream):
    """Half-closes only when all answers are there, as that cancels what is not answered."""
    with mip.Connection(url) as connection:
        connection.send(stream)
        parts = [read_bytes(connection) for _ in answers_to(stream)]
        connection.half_close()
        return b"".join(parts) + read_all(connection.sock)


def read_bytes(connection):
    """Returns: the next packet as it was sent."""
    head = connection.read_exactly(8)
    return head + (connection.read_exactly(int.from_bytes(head[4:])) or b"")


def check(url, stream):
    answers = answers_of(ask(url, stream))
    assert fits(answers, answers_to(stream)), (stream[:200].hex(" "), answers, answers_to(stream))


# ---- wrong in one place --------------------------------------------------------------------------

TWO = mip.infer_request([PAIR, [(mip.TEXT, b"[5, 6]"), mip.as_json([7, 8])]])


@pytest.mark.parametrize("place", range(4))
def test_header_each_byte_value(running, place):
    """As a ping and as an inference; what follows is refused or answered as if nothing had been."""
    for value in range(256):
        for packet in (mip.PING_REQUEST, GOOD):
            check(running.unix, packet[:place] + bytes([value]) + packet[place + 1:] + GOOD)


def test_packet_each_byte_flipped(running):
    for place in range(len(TWO)):
        for change in (1, 2, 0x40, 0x80, 0xff):
            wrong = bytes([TWO[place] ^ change])
            check(running.unix, TWO[:place] + wrong + TWO[place + 1:] + mip.PING_REQUEST)


def test_packet_each_announced_size(running):
    """From nothing to more than there is, the same payload behind it."""
    for n_bytes in range(len(TWO) + 8):
        check(running.unix, mip.header(mip.INFER, n_bytes) + TWO[8:])


def test_packet_each_prefix(running):
    for n_bytes in range(len(TWO) + 1):
        check(running.unix, TWO[:n_bytes])


LARGEST = 0xffffffff


@pytest.mark.parametrize("size", [LARGEST, LARGEST - 7, LARGEST - 8, 1 << 31, (1 << 31) - 1])
@pytest.mark.parametrize("index", range(4))
def test_item_size_overflow_is_refused(running, size, index):
    """The size of one item is such that adding it up in 32 bits would end where the payload does."""
    items = [*PAIR, *PAIR]
    payload = struct.pack("!2BH", 2, 0, 2)
    for i, (kind, data) in enumerate(items):
        payload += struct.pack("!2L", kind, size if i == index else len(data)) + data
    check(running.tcp, mip.header(mip.INFER, len(payload)) + payload + GOOD)


@pytest.mark.parametrize("n_inputs", [1, 2, 3, 255])
@pytest.mark.parametrize("batch", [1, 2, 32767, 32768, 65535])
@pytest.mark.parametrize("n_items", [0, 1, 2, 4])
def test_item_counts_over_payload_are_refused(running, n_inputs, batch, n_items):
    """Nothing is allocated by counts alone; items of nothing are items."""
    for data in (b"", b"[5, 6]"):
        payload = struct.pack("!2BH", n_inputs, 0, batch) + \
            mip.item_bytes((mip.TEXT, data)) * n_items
        check(running.tcp, mip.header(mip.INFER, len(payload)) + payload + GOOD)


def test_infer_65535_empty_elements(running):
    """Well framed, within the limits, and not one of them is JSON."""
    payload = struct.pack("!2BH", 2, 0, 65535) + mip.item_bytes((mip.JSON, b"")) * 65535 * 2
    small = payload[:4] + b"\0" * 16
    assert len(payload) <= MAX_BODY
    check(running.tcp, (mip.header(mip.INFER, len(payload)) + payload + GOOD) * 3)
    check(running.tcp, mip.header(mip.INFER, len(small)) + small + GOOD)


# ---- streams -------------------------------------------------------------------------------------

MIXTURE = b"".join([
    mip.PING_REQUEST, GOOD, mip.header(mip.PING, 3) + b"abc", TWO, mip.header(7, 9) + b"123456789",
    mip.header(mip.INFER, 2, subtype=1) + b"xy", mip.infer_request([PAIR], batch=2), GOOD,
    mip.infer_request([[(9, b""), PAIR[0]]]), mip.PING_REQUEST, mip.infer_request([PAIR[:1]]), TWO,
    mip.header(mip.INFER, 8, version=3) + GOOD])


def test_packets_split_at_each_byte(running):
    """All first halves are there before the first of the second halves comes."""
    whole = ask(running.unix, MIXTURE)
    assert fits(answers_of(whole), answers_to(MIXTURE)) and len(answers_to(MIXTURE)) == 13
    for url in (running.unix, running.tcp):
        halves = [(mip.Connection(url), at) for at in range(len(MIXTURE) + 1)]
        for connection, at in halves:
            connection.sock.sendall(MIXTURE[:at])
        mip.ping(url)
        for connection, at in halves:
            connection.send(MIXTURE[at:])
        for connection, at in halves:
            assert connection.read_exactly(len(whole)) == whole, at
            connection.half_close()
            assert read_all(connection.sock) == b""
            connection.close()


def test_packets_sent_byte_by_byte(running):
    with mip.Connection(running.tcp) as connection:
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(MIXTURE)):
            connection.send(MIXTURE[at:at + 1])
        assert fits(answers_of(read_all(connection.sock)), answers_to(MIXTURE))


def make_packet(rng):
    """Mostly good, in one way or two not."""
    items = sorted(KNOWN)
    elements = [[rng.choice(items), rng.choice(items)] for _ in range(rng.choice((1, 2, 3, 70)))]
    packet = bytearray(rng.choice((mip.PING_REQUEST, mip.infer_request(elements),
                                   mip.infer_request(elements))))
    for _ in range(rng.choice((0, 0, 0, 0, 1, 2))):
        place = min(rng.choice((1, 2, 3, 7, 8, 10, 11, 15, 19, rng.randrange(1 << 12))),
                    len(packet) - 1)
        packet[place] = rng.choice((0, 1, 2, 3, 255, rng.randrange(256)))
    if rng.random() < 0.05:
        del packet[rng.randrange(len(packet)):]
    return bytes(packet)


@pytest.mark.parametrize("seed", range(20))
def test_random_packet_streams(running, seed):
    rng = random.Random(seed)
    for _ in range(30):
        stream = b"".join(make_packet(rng) for _ in range(rng.randrange(1, 40)))
        check(rng.choice((running.tcp, running.unix)), stream)


# ---- peers that stop -----------------------------------------------------------------------------

BIG = mip.infer_request([PAIR] * 20_000)
STATES = {
    "nothing": b"",
    "between": mip.PING_REQUEST,
    "in a header": GOOD[:5],
    "before a payload": GOOD[:8],
    "in a payload": GOOD[:-1],
    "in a large payload": BIG[:-1],
    "before an answer": BIG,
    "in what is skipped": mip.header(9, 60_000) + b"x" * 30_000,
    "in what is discarded": mip.header(mip.INFER, LARGEST) + b"x" * 30_000,
    "after the end": mip.header(mip.PING, 0, version=1) + b"x" * 30_000,
    "in a queue of packets": GOOD * 500,
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("end", [mip.Connection.reset, mip.Connection.close])
def test_disconnect_in_each_state(running, state, end):
    """With what they were answered so far not read."""
    for url in (running.tcp, running.unix):
        for _ in range(10):
            connection = mip.Connection(url)
            connection.send(STATES[state])
            end(connection)


@pytest.mark.parametrize("state", STATES)
def test_half_close_in_each_state(running, state):
    """What was answered is read, and then the connection ends."""
    check(running.tcp, STATES[state])


N_HALF = 2000


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_half_packets_by_thousands(running, many_descriptors):
    """Others are served meanwhile, what is held is what has come, and whoever comes back with the
    other half is answered."""
    halves = [(mip.Connection(running.tcp), n % len(TWO)) for n in range(N_HALF)]
    for connection, at in halves:
        connection.sock.sendall(TWO[:at])
    is_served(running.tcp)
    came = sum(max(0, at - 8) for _, at in halves)
    metrics.wait_until(running.server.address, lambda numbers:
                       numbers["sluice_body_bytes_in_flight"] == came and
                       numbers["sluice_connections"] == N_HALF + 1, "what has come, and nobody else")
    for n, (connection, at) in enumerate(halves):
        if n % 3 == 0:
            connection.reset()
        elif n % 3 == 1:
            connection.half_close()
            assert read_all(connection.sock) == b""
            connection.close()
        else:
            connection.send(TWO[at:])
    for connection, at in halves[2::3]:
        assert connection.read_inference(2, 2) == [[(mip.JSON, b"[4.0,6.0]")],
                                                   [(mip.JSON, b"[12.0,14.0]")]]
        connection.close()


def test_announced_payload_allocates_nothing(start_server, repositories, many_descriptors):
    """A thousand payloads of 256 MiB are announced, and a byte of each comes. (A sanitizer pays for
    what is set aside, used or not.)"""
    n = 20 if server.is_sanitized() else 1000
    running = start_server("--model-repository", repositories("onnx-only"), "--mip",
                           "tcp://127.0.0.1:0=onnx_pair")
    url, before = running.mip_urls[0], running.rss_bytes()
    connections = [mip.Connection(url) for _ in range(n)]
    for connection in connections:
        connection.send(mip.header(mip.INFER, 256 << 20) + b"\2")
    metrics.wait_until(running.address, lambda numbers: numbers["sluice_body_bytes_in_flight"] ==
                       n, "a byte of each")
    is_served(url)
    assert running.rss_bytes() - before < 64 << 20 or server.is_sanitized()
    for connection in connections:
        connection.close()
    running.wait_at_rest()

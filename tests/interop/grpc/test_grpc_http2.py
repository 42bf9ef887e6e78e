"""gRPC against those who don't keep to it, part two: HTTP/2 itself, on a live server. What breaks the
rules ends the connection with RFC 9113's word for it, what is too much of something is cut off, what
stops in the middle is ended in time, and who is reset at whatever point leaves nothing behind. All the
while a call on another connection goes on. How the counting works is shown without a socket in
src/net/server/grpc/session_attack_test.c."""
import random
import struct
import time

import pytest

from lib import h2, http1
from lib.grpc_live import (EXHAUSTED, GOOD, INFER, OK, SERVICE, SLOW, STREAM, UNIMPLEMENTED, Live,
                           request, tensor)

pytestmark = pytest.mark.tsan

MAX_BODY = 4 << 20
WHOLE = h2.message(GOOD)
HEAD = h2.block(h2.call_fields(INFER))


@pytest.fixture(scope="module")
def shared(tmp_path_factory, repositories):
    live = Live(tmp_path_factory.mktemp("frames"), repositories("default"), "--max-body-size", MAX_BODY,
                "--body-memory", "4GiB")  # enough for the windows of 1,000 streams
    with live.server:
        yield live


@pytest.fixture
def live(shared):
    """One who was there before, with a call that is still being answered, is not met by any of it."""
    assert shared.server.process.poll() is None, shared.server.log_text()
    with shared.connect() as other:
        stream = other.begin(INFER)
        other.send_data(stream, h2.message(SLOW), end=True)
        other.ping()
        yield shared
        assert other.answer(stream).status == OK
        shared.check_good(other)
    shared.check_unharmed()


def ends_with(connection, data, error):
    """These bytes are the last that the server reads of this connection."""
    connection.send(data)
    assert connection.read_end() == error, (data[:40], connection.goaways)


# ---- what breaks the rules ------------------------------------------------------------------------

def call_frames(flags=0, stream=1, fields=None):
    head = HEAD if fields is None else h2.block(fields)
    return h2.frame(h2.HEADERS, h2.END_HEADERS | flags, stream, head)


WRONG = [
    ("DATA for no stream", h2.frame(h2.DATA, 0, 0, b"a"), "PROTOCOL_ERROR"),
    ("DATA for a stream not begun", h2.frame(h2.DATA, 0, 1, b"a"), "PROTOCOL_ERROR"),
    ("HEADERS for no stream", call_frames(stream=0), "PROTOCOL_ERROR"),
    ("HEADERS for a server's stream", call_frames(stream=2), "PROTOCOL_ERROR"),
    ("a block that is no HPACK", h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff" * 5),
     "COMPRESSION_ERROR"),
    ("an index of nothing", h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\x80"), "COMPRESSION_ERROR"),
    ("an index far outside", h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.length(1 << 20, 7, 0x80)),
     "COMPRESSION_ERROR"),
    ("a table over what we allow", h2.frame(h2.HEADERS, h2.END_HEADERS, 1,
                                            h2.length(1 << 20, 5, 0x20) + HEAD), "COMPRESSION_ERROR"),
    ("a text past its block", h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\x00\x7fab"),
     "COMPRESSION_ERROR"),
    ("Huffman's code with a wrong end", h2.frame(h2.HEADERS, h2.END_HEADERS, 1,
                                                 HEAD + b"\x00\x01x\x84\xff\xff\xff\xff"),
     "COMPRESSION_ERROR"),
    ("a name of 100 kB in one field", None, "COMPRESSION_ERROR"),
    ("padding of all and more", h2.frame(h2.HEADERS, h2.END_HEADERS | h2.PADDED, 1, b"\xff" + HEAD[:20]),
     "PROTOCOL_ERROR"),
    ("CONTINUATION out of nothing", h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, HEAD),
     "PROTOCOL_ERROR"),
    ("a PING within a head", h2.frame(h2.HEADERS, 0, 1, HEAD) + h2.frame(h2.PING, 0, 0, bytes(8)),
     "PROTOCOL_ERROR"),
    ("another stream within a head", h2.frame(h2.HEADERS, 0, 1, HEAD) + call_frames(stream=3),
     "PROTOCOL_ERROR"),
    ("a PING of 4 bytes", h2.frame(h2.PING, 0, 0, bytes(4)), "FRAME_SIZE_ERROR"),
    ("a PING of a stream", h2.frame(h2.PING, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    ("SETTINGS of 5 bytes", h2.frame(h2.SETTINGS, 0, 0, bytes(5)), "FRAME_SIZE_ERROR"),
    ("SETTINGS of a stream", h2.frame(h2.SETTINGS, 0, 1), "PROTOCOL_ERROR"),
    ("an acknowledgement with settings", h2.frame(h2.SETTINGS, h2.ACK, 0, bytes(6)), "FRAME_SIZE_ERROR"),
    ("a window of 2^31 in SETTINGS", h2.settings((4, 1 << 31)), "FLOW_CONTROL_ERROR"),
    ("a frame size of nothing", h2.settings((5, 0)), "PROTOCOL_ERROR"),
    ("ENABLE_PUSH of 2", h2.settings((2, 2)), "PROTOCOL_ERROR"),
    ("WINDOW_UPDATE of 0", h2.window_update(0, 0), "PROTOCOL_ERROR"),
    ("WINDOW_UPDATE of 0 for a stream", call_frames() + h2.window_update(1, 0), "PROTOCOL_ERROR"),
    ("WINDOW_UPDATE over 2^31", h2.window_update(0, (1 << 31) - 1), "FLOW_CONTROL_ERROR"),
    ("WINDOW_UPDATE of 3 bytes", h2.frame(h2.WINDOW_UPDATE, 0, 0, bytes(3)), "FRAME_SIZE_ERROR"),
    ("WINDOW_UPDATE of a stream not begun", h2.window_update(1, 1), "PROTOCOL_ERROR"),
    ("RST_STREAM of no stream", h2.reset(0), "PROTOCOL_ERROR"),
    ("RST_STREAM of a stream not begun", h2.reset(1), "PROTOCOL_ERROR"),
    ("RST_STREAM of 3 bytes", call_frames() + h2.frame(h2.RST_STREAM, 0, 1, bytes(3)),
     "FRAME_SIZE_ERROR"),
    ("PUSH_PROMISE", h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, struct.pack(">I", 2) + HEAD),
     "PROTOCOL_ERROR"),
    ("PRIORITY of no stream", h2.frame(h2.PRIORITY, 0, 0, bytes(5)), "PROTOCOL_ERROR"),
    ("GOAWAY of 3 bytes", h2.frame(h2.GOAWAY, 0, 0, bytes(3)), "FRAME_SIZE_ERROR"),
    ("GOAWAY of a stream", h2.frame(h2.GOAWAY, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    ("a frame of 16 MiB", b"\xff\xff\xff" + h2.frame(h2.DATA, 0, 1)[3:], "FRAME_SIZE_ERROR"),
]


@pytest.mark.parametrize("data, error", [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_connection_error_ends_connection(live, data, error):
    with live.connect() as connection:
        if data is None:
            data = connection.open(h2.call_fields(INFER, (b"n" * 100000, b"")))[1]
        ends_with(connection, data, error)


STREAM_ERRORS = [
    ("a name in capitals", [*h2.call_fields(INFER), (b"X-Own", b"1")], "PROTOCOL_ERROR"),
    ("no path", [field for field in h2.call_fields(INFER) if field[0] != b":path"], "PROTOCOL_ERROR"),
    ("an empty path", h2.call_fields(b""), "PROTOCOL_ERROR"),
    ("no method", h2.call_fields(INFER)[1:], "PROTOCOL_ERROR"),
    ("two paths", h2.call_fields(INFER) [:3] + h2.call_fields(INFER)[2:], "PROTOCOL_ERROR"),
    ("a pseudo field behind others", [*h2.call_fields(INFER)[1:], (b":method", b"POST")],
     "PROTOCOL_ERROR"),
    ("a pseudo field of an answer", [(b":status", b"200"), *h2.call_fields(INFER)], "PROTOCOL_ERROR"),
    ("an unknown pseudo field", [(b":own", b"1"), *h2.call_fields(INFER)], "PROTOCOL_ERROR"),
    ("a connection field", [*h2.call_fields(INFER), (b"connection", b"close")], "PROTOCOL_ERROR"),
    ("another te", [*h2.call_fields(INFER)[:-1], (b"te", b"gzip")], "PROTOCOL_ERROR"),
    ("a length that is not kept", [*h2.call_fields(INFER), (b"content-length", b"1")], "PROTOCOL_ERROR"),
    ("a length that is none", [*h2.call_fields(INFER), (b"content-length", b"+1")], "PROTOCOL_ERROR"),
]


@pytest.mark.parametrize("fields, error", [row[1:] for row in STREAM_ERRORS],
                         ids=[row[0] for row in STREAM_ERRORS])
def test_header_error_resets_stream(live, fields, error):
    """The stream is reset, and the next call on the same connection answered."""
    with live.connect() as connection:
        stream, frames = connection.open(fields)
        connection.send(frames)
        connection.send_data(stream, WHOLE, end=True)
        assert connection.answer(stream).reset == error
        live.check_good(connection)


def test_stream_error_keeps_connection(live):
    with live.connect() as connection:
        stream = connection.begin(INFER)
        connection.send(h2.window_update(stream, (1 << 31) - 1))
        assert connection.answer(stream).reset == "FLOW_CONTROL_ERROR"
        live.check_good(connection)
        stream = connection.begin(INFER)
        connection.send(call_frames(0, stream))  # trailers that end nothing
        assert connection.answer(stream).reset == "PROTOCOL_ERROR"
        live.check_good(connection)


def test_non_grpc_request_gets_http_status(live):
    """Other requests of HTTP/2 are answered in HTTP's words (gRPC over HTTP2, "Requests")."""
    with live.connect() as connection:
        for method, kind, status in ((b"GET", b"application/grpc", "405"),
                                     (b"PRI", b"application/grpc", "405"),
                                     (b"POST", b"application/json", "415"),
                                     (b"POST", b"application/grpcx", "415"), (b"POST", b"", "415")):
            stream, frames = connection.open([(b":method", method), (b":scheme", b"http"),
                                              (b":path", INFER), (b":authority", b"here"),
                                              (b"content-type", kind)], h2.END_STREAM)
            connection.send(frames)
            assert connection.answer(stream).heads[0][":status"] == status
        live.check_good(connection)


@pytest.mark.parametrize("first, answer", [
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 505 "), (b"\x16\x03\x01\x02\0\x01\0", b""),
    (b"PRI * HTTP/1.1\r\n\r\n", b"HTTP/1.1 505 "), (b"\0" * 24, b""),
    (random.Random(3).randbytes(1000), b"")])
def test_preface_invalid_is_answered(live, first, answer):
    with http1.Connection(live.tcp) as connection:
        connection.send(first)
        got = b""
        try:
            while data := connection.sock.recv(65536):
                got += data
        except ConnectionResetError:
            pass
        assert got.startswith(answer) and bool(got) == bool(answer), got


def test_preface_without_settings_is_protocol_error(live):
    with live.connect(greet=False) as connection:
        ends_with(connection, h2.PREFACE + h2.frame(h2.PING, 0, 0, bytes(8)), "PROTOCOL_ERROR")


def test_preface_then_random_bytes(live):
    rng = random.Random(4)
    for _ in range(200):
        with live.connect() as connection:
            connection.send(b"\0\0\4\0" + rng.randbytes(rng.choice((10, 100, 5000))))
            connection.abort()
    for _ in range(200):  # a good beginning, and then one frame of anything
        with live.connect() as connection:
            stream = connection.begin(INFER)
            connection.send(h2.frame(rng.randrange(10), rng.randrange(256), rng.choice((0, stream)),
                                     rng.randbytes(rng.randrange(40))))
            connection.abort()


# ---- too much -------------------------------------------------------------------------------------

def was_told(connection, error):
    said = connection.read_end()
    assert said == error or (said is None and connection.was_reset), connection.goaways


def was_told_or_kept_up(live, connection, error):
    """Beside much else a client may be slower than the server, to which it is no flood then: nothing of it
    is left. (src/net/server/grpc/session_attack_test.c: one that is.)"""
    try:
        connection.ping()
    except h2.Ended:
        was_told(connection, error)
    else:
        live.check_good(connection)


def flooded(live, data, n, error="ENHANCE_YOUR_CALM", before=b""):
    """The connection is ended before all of them were taken. To who goes on sending for long the last word
    may be lost in TCP's reset."""
    with live.connect(acks=False) as connection:
        connection.send(before)
        for _ in range(n):
            connection.send(data)
            if connection.gone:
                break
        was_told(connection, error)


FLOODS = {
    "pings": h2.frame(h2.PING, 0, 0, bytes(8)),
    "settings": h2.settings((3, 100)),
    "empty settings": h2.settings(),
    "priorities": h2.frame(h2.PRIORITY, 0, 101, b"\0\0\0\0\5"),
    "empty data": h2.frame(h2.DATA, 0, 1),
    "padding": h2.frame(h2.DATA, h2.PADDED, 1, b"\x02\0\0"),
    "window updates": h2.window_update(0, 1),
    "window updates of a stream": h2.window_update(1, 1),
    "goaways": h2.frame(h2.GOAWAY, 0, 0, bytes(8)),
    "unknown frames": h2.frame(0xfa, 0, 0),
    "unknown frames of a stream": h2.frame(0x10, 0xff, 1, b"u=1"),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_frame_flood_ends_connection(live, kind):
    flooded(live, FLOODS[kind] * 100, 1000, before=call_frames())


def test_ping_flood_without_reading_ends_connection(live):
    """Pings, and a client that takes no answer: no memory for them without end."""
    with live.connect(acks=False, opens=False) as connection:
        connection.sock.setblocking(False)
        sent = 0
        try:
            for _ in range(20000):
                sent += connection.sock.send(FLOODS["pings"] * 100)
        except (BlockingIOError, ConnectionError):
            pass
        assert sent > 0
        connection.abort()


NOWHERE = h2.block(h2.call_fields(b"/no.Such/Method"))
READY = h2.block(h2.call_fields(SERVICE + b"ServerReady"))
EMPTY = h2.message(b"")
RESETS = {
    "of unary calls": (HEAD, b"", "CANCEL"),
    "of streaming calls": (h2.block(h2.call_fields(STREAM)), b"", "CANCEL"),
    "of refused calls": (NOWHERE, b"", "CANCEL"),
    "of answered calls": (READY, EMPTY, "CANCEL"),
    "without an error": (HEAD, b"", "NO_ERROR"),
}


@pytest.mark.parametrize("kind", RESETS)
def test_rapid_reset_ends_connection(live, kind):
    """Calls that are reset at once, as fast as it goes; most of them never see their model. An answer that
    is ready before the reset, but was not sent, changes nothing."""
    fields, body, error = RESETS[kind]
    with live.connect() as connection:
        for _ in range(1000):
            frames = b""
            for _ in range(100):
                stream, head = connection.open(fields)
                frames += head + h2.reset(stream, error) if not body else (
                    head + h2.frame(h2.DATA, h2.END_STREAM, stream, body) + h2.reset(stream, error))
            connection.send(frames)
            if connection.gone:
                break
        was_told_or_kept_up(live, connection, "ENHANCE_YOUR_CALM")


def test_provoked_reset_flood_ends_connection(live):
    with live.connect() as connection:
        for _ in range(1000):
            frames = b""
            for _ in range(100):
                stream, head = connection.open(HEAD)
                frames += head + h2.window_update(stream, (1 << 31) - 1)
            connection.send(frames)
            if connection.gone:
                break
        was_told_or_kept_up(live, connection, "ENHANCE_YOUR_CALM")


def test_reset_after_answer_is_not_counted(live):
    """As proxies do."""
    with live.connect() as connection:
        for _ in range(2000):
            stream = connection.begin(INFER)
            connection.send_data(stream, WHOLE, end=True)
            assert connection.answer(stream).status == OK
            connection.send(h2.reset(stream, "NO_ERROR"))
        live.check_good(connection)


def test_window_updates_of_slow_reader_are_not_counted(live):
    """A reader that returns the windows of an answer kilobyte by kilobyte."""
    data = request("id_uint8", [tensor("INPUT0", "UINT8", [1 << 20])], [bytes(1 << 20)])
    with live.connect(opens=False) as connection:
        for _ in range(10):
            stream = connection.begin(INFER)
            connection.send_data(stream, h2.message(data), end=True)
            returned = 0
            while not connection.streams[stream].is_over:
                connection.run_until(lambda: len(connection.streams[stream].data) > returned
                                     or connection.streams[stream].is_over)
                while returned < len(connection.streams[stream].data):
                    n = min(1024, len(connection.streams[stream].data) - returned)
                    returned += n
                    connection.unsent += h2.window_update(0, n) + h2.window_update(stream, n)
                connection.send(b"")
            assert connection.streams[stream].status == OK
        live.check_good(connection)


@pytest.mark.parametrize("n_uses, n_bytes", [(30, 4000), (13, 4000), (100, 400)])
def test_repeated_header_entry_flood_ends_connection(live, n_uses, n_bytes):
    """Heads of a few bytes that mean many: refused for their size, or just within it."""
    with live.connect() as connection:
        for n in range(1000):
            frames = b""
            for i in range(20):
                first = n == 0 and i == 0
                fields = NOWHERE + (h2.field(b"a", b"v" * n_bytes, first=0x40) if first else b"\xbe" * n_uses)
                frames += connection.open(fields, h2.END_STREAM)[1]
            connection.send(frames)
            if connection.gone:
                break
        was_told(connection, "ENHANCE_YOUR_CALM")


@pytest.mark.parametrize("piece", [b"", b"\x00\x01x\x01y", b"\x00\x01x\x7f\x81\x07" + b"v" * 256])
def test_continuation_flood_ends_connection(live, piece):
    flooded(live, h2.frame(h2.CONTINUATION, 0, 1, piece) * 100, 1000,
            before=h2.frame(h2.HEADERS, 0, 1, HEAD))


def test_stream_limit_refuses_excess(live):
    """Who has acknowledged the limit breaks the rules; who may not know it yet is refused, call by call,
    and may try again."""
    with live.connect(acks=False) as connection:
        streams = [connection.begin(STREAM) for _ in range(1200)]
        connection.ping()
        refused = [stream for stream in streams if connection.streams[stream].reset]
        assert len(refused) == 200
        assert {connection.streams[stream].reset for stream in refused} == {"REFUSED_STREAM"}
        for stream in streams:
            if stream not in refused:
                connection.send_data(stream, WHOLE, end=True)
                assert connection.answer(stream).status == OK
        live.check_good(connection)
    with live.connect() as connection:
        connection.ping()
        for _ in range(1001):
            connection.begin(STREAM)
        assert connection.read_end() == "PROTOCOL_ERROR"


def bomb(name_length, n_uses):
    """A field kept in the table, then used again and again: a byte that means a thousand."""
    kept = h2.field(b"a", b"v" * name_length, first=0x40)
    return HEAD + kept + b"\xbe" * n_uses


def test_hpack_bomb_is_refused(live):
    with live.connect() as connection:
        stream, frames = connection.open(bomb(4000, 30))  # over the limit, told to the call
        connection.send(frames)
        connection.send_data(stream, WHOLE, end=True)
        ended = connection.answer(stream)
        assert ended.status == EXHAUSTED and "--max-header-size" in ended.text
        stream, frames = connection.open(HEAD + b"\x90" * 16000)  # fields of nothing
        connection.send(frames)
        connection.send_data(stream, WHOLE, end=True)
        assert connection.read_end() in ("ENHANCE_YOUR_CALM", "PROTOCOL_ERROR")
    with live.connect() as connection:
        ends_with(connection, connection.open(bomb(4000, 16000))[1], "ENHANCE_YOUR_CALM")
    with live.connect() as connection:  # in the trailers
        stream = connection.begin(INFER)
        connection.send(h2.frame(h2.DATA, 0, stream, WHOLE))
        ends_with(connection, h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream,
                                       bomb(4000, 10000)[len(HEAD):]), "ENHANCE_YOUR_CALM")


def test_window_overrun_is_flow_control_error(live):
    """A client that sends what its stream was not allowed to: one that did not take note of the larger
    window has the smaller one."""
    for path in (INFER, STREAM):
        with live.connect(acks=False) as connection:
            stream = connection.begin(path)
            data = h2.message(b"", n_bytes=MAX_BODY) + bytes(h2.DEFAULT_FRAME)
            connection.send(b"".join(h2.frame(h2.DATA, 0, stream, data[at:at + 8000])
                                     for at in range(0, len(data), 8000)) * 20)
            ended = connection.answer(stream)
            assert ended.reset == "FLOW_CONTROL_ERROR" or ended.status is not None, str(ended)
            live.check_good(connection)


def test_closed_window_bounds_memory(live):
    """Windows of nothing: answers wait within their bound, and are let go of with the connection."""
    data = h2.message(request("id_uint8", [tensor("INPUT0", "UINT8", [100000])], [bytes(100000)]))
    for leave in ("abort", "close"):
        with live.connect(own=[(4, 0)], opens=False) as connection:
            for _ in range(30):
                stream = connection.begin(INFER)
                connection.send_data(stream, data, end=True)
            connection.ping()
            assert not any(stream.data for stream in connection.streams.values())
            getattr(connection, leave)()


# ---- gone in the middle ---------------------------------------------------------------------------

LARGE = h2.message(request("id_uint8", [tensor("INPUT0", "UINT8", [MAX_BODY // 2])],
                           [bytes(MAX_BODY // 2)]))


def in_the_middle(connection, stream):
    connection.send_data(stream, LARGE[:1 << 20])


def being_read(connection, stream):
    connection.send_data(stream, LARGE, end=True)
    connection.run_until(lambda: connection.streams[stream].data)


def answered(connection, stream):
    connection.send_data(stream, WHOLE, end=True)
    assert connection.answer(stream).status == OK


STATES = {
    "begun": lambda connection, stream: None,
    "within a prefix": lambda connection, stream: connection.send_data(stream, WHOLE[:3]),
    "behind a prefix": lambda connection, stream: connection.send_data(stream, WHOLE[:5]),
    "within a message": lambda connection, stream: connection.send_data(stream, WHOLE[:-1]),
    "within a large message": in_the_middle,
    "behind a message": lambda connection, stream: connection.send_data(stream, WHOLE),
    "in a model or its queue": lambda connection, stream: connection.send_data(
        stream, h2.message(SLOW), end=True),
    "while the answer is sent": being_read,
    "answered": answered,
}


@pytest.mark.parametrize("how", ["a reset of the stream", "a reset of the connection", "an end"])
@pytest.mark.parametrize("path", [INFER, STREAM])
@pytest.mark.parametrize("state", STATES)
def test_disconnect_in_each_state(live, state, path, how):
    """Many times each. A reset stream leaves the others of its connection alone."""
    for _ in range(10):
        with live.connect(opens=state != "while the answer is sent") as connection:
            for _ in range(1 if how != "a reset of the stream" or state == "while the answer is sent"
                           else 5):
                stream = connection.begin(path)
                STATES[state](connection, stream)
                if how == "a reset of the stream":
                    connection.send(h2.reset(stream))
            if how == "a reset of the stream" and state != "while the answer is sent":
                live.check_good(connection)
            if how == "a reset of the connection":
                connection.abort()


def test_disconnect_with_answers_queued_after_waiting_requests(live):
    """Requests that are in a queue end at once with their stream, and with them the answers behind them."""
    for how in ("a reset of the stream", "a reset of the connection"):
        with live.connect() as connection:
            busy = connection.begin(INFER)
            connection.send_data(busy, h2.message(SLOW), end=True)
            stream = connection.begin(STREAM)
            connection.send_data(stream, (h2.message(SLOW) + h2.message(request("nope")) * 2) * 3)
            connection.ping()
            if how == "a reset of the stream":
                connection.send(h2.reset(stream))
                assert connection.answer(busy).status == OK
            else:
                connection.abort()


# ---- half-open ------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def impatient_server(tmp_path_factory, repositories):
    live = Live(tmp_path_factory.mktemp("impatient"), repositories("default"), "--header-timeout", "3s",
                "--body-timeout", "3s", "--write-timeout", "3s", "--idle-timeout", "6s")
    with live.server:
        yield live


@pytest.fixture
def impatient(impatient_server):
    assert impatient_server.server.process.poll() is None, impatient_server.server.log_text()
    yield impatient_server
    impatient_server.check_unharmed()


BEGINNING = h2.PREFACE + h2.settings() + h2.frame(h2.HEADERS, 0, 1, HEAD)


def test_handshake_unfinished_times_out(impatient):
    """Those that stop at every byte up to the end of a head hold nobody up, and are all ended."""
    halves = []
    for at in range(len(BEGINNING) + 1):
        halves.append(impatient.connect(greet=False, acks=False))
        halves[-1].send(BEGINNING[:at])
        if at % 20 == 0:
            impatient.check_good()
    errors = set()
    for connection in halves:
        errors.add(connection.read_end())
        connection.close()
    assert errors <= {None, "SETTINGS_TIMEOUT", "NO_ERROR"} and "SETTINGS_TIMEOUT" in errors


def test_call_body_pause_times_out(impatient):
    """A message that pauses ends its call, not its connection."""
    with impatient.connect() as connection:
        stopped = []
        for path in (INFER, STREAM):
            for at in range(1, len(WHOLE)):
                stopped.append(connection.begin(path))
                connection.send_data(stopped[-1], WHOLE[:at])
        never = connection.begin(INFER)
        for stream in (*stopped, never):
            ended = connection.answer(stream)
            assert ended.status == 4 and "--body-timeout" in ended.text, str(ended)
        impatient.check_good(connection)


def test_trailers_after_end_are_ignored(impatient):
    """Fields for a call that was over before they came are no head that is still being waited for: nobody else
    of the connection is ended for them."""
    with impatient.connect() as connection:
        kept = connection.begin(STREAM)
        connection.send_data(kept, WHOLE)  # it may be idle from now on
        over = connection.begin(b"/no.Such/Method")
        assert connection.answer(over).status == UNIMPLEMENTED
        connection.send(call_frames(h2.END_STREAM, over, [(b"a", b"late")]))
        time.sleep(5)  # --header-timeout is less
        connection.send_data(kept, WHOLE, end=True)
        assert connection.answer(kept).status == OK
        impatient.check_good(connection)


def test_closed_window_times_out(impatient):
    """Their calls are ended, and the connection goes on."""
    data = h2.message(request("id_uint8", [tensor("INPUT0", "UINT8", [100000])], [bytes(100000)]))
    with impatient.connect(own=[(4, 10)], opens=False) as connection:
        stream = connection.begin(INFER)
        connection.send_data(stream, data, end=True)
        ended = connection.answer(stream)
        assert ended.reset == "CANCEL" and len(ended.data) == 10


def test_unread_answers_stop_reading_and_time_out(impatient):
    """Requests and never a look at their answers: the server stops reading, then ends the connection."""
    frames = []
    for at in range(1, 1000000, 2):
        frames.append(h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, at, NOWHERE))
    with impatient.connect(acks=False, opens=False) as connection:
        sock, sent = connection.sock, 0
        sock.settimeout(http1.PATIENCE)
        try:
            for at in range(0, len(frames), 100):
                sock.sendall(b"".join(frames[at:at + 100]))
                sent += 100
        except ConnectionError:
            pass
        assert 0 < sent < len(frames)
    impatient.check_good()


def test_idle_connection_times_out(impatient):
    connections = [impatient.connect() for _ in range(100)]
    for connection in connections[::2]:
        connection.ping()
    for connection in connections:
        assert connection.read_end() in (None, "NO_ERROR")
        connection.close()

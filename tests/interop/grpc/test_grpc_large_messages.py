"""Large messages in long DATA frames, which the server reads straight into their final place: whatever the frames
are and whenever they come, what is answered is what was sent, and what is wrong ends its own call at most. After
each test a good request is answered and the server's own numbers are back to nothing."""
import random
import struct

import pytest

from lib import h2
from lib.grpc_live import EXHAUSTED, INFER, INVALID, OK, Live, parse_answer, request, tensor

pytestmark = pytest.mark.tsan

MAX_BODY = 16 << 20
N_FLOATS = 1 << 20
LONG_FRAME = 1 << 20
DATA_BYTES = random.Random(49).randbytes(4 * N_FLOATS)


def message_of(data):
    return h2.message(request(inputs=[tensor(shape=[len(data) // 4])], raw=[data]))


LARGE = message_of(DATA_BYTES)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, repositories):
    live = Live(tmp_path_factory.mktemp("large"), repositories("default"), "--max-body-size", MAX_BODY)
    with live.server:
        yield live


@pytest.fixture
def live(shared):
    yield shared
    shared.check_unharmed()


@pytest.fixture
def connection(live):
    """It may send long frames: the server has allowed them, because of a large message."""
    with live.connect() as made:
        made.send(h2.settings((5, LONG_FRAME)))  # in answers, too
        stream = made.begin(INFER)
        made.send_data(stream, LARGE, end=True)
        check_echo(made.answer(stream))
        made.run_until(lambda: made.n_settings >= 2)
        yield made
        if not made.gone:
            live.check_good(made)


def check_echo(ended, data=DATA_BYTES):
    assert ended.status == OK, str(ended)
    assert parse_answer(ended.messages()[0]).raw_output_contents[0] == data


def frames(stream, data, n_bytes, end=True):
    """DATA frames of that length."""
    pieces = [data[at:at + n_bytes] for at in range(0, len(data), n_bytes)]
    return b"".join(h2.frame(h2.DATA, h2.END_STREAM if end and piece is pieces[-1] else 0, stream, piece)
                    for piece in pieces)


def begin(connection):
    """A call, and space for a large message in its windows."""
    stream = connection.begin(INFER)
    connection.run_until(lambda: min(connection.window, connection.windows[stream]) >= (4 << 20) - 65536)
    return stream


def sent(connection, stream, data, n_bytes, end=True):
    """Sends frames of that length, within the windows."""
    at = 0
    while at < len(data):
        connection.run_until(lambda: min(connection.window, connection.windows[stream]) > 0)
        n = min(n_bytes, len(data) - at, connection.window, connection.windows[stream])
        connection.window -= n
        connection.windows[stream] -= n
        last = end and at + n == len(data)
        connection.send(h2.frame(h2.DATA, h2.END_STREAM if last else 0, stream, data[at:at + n]))
        at += n


@pytest.mark.parametrize("n_bytes", [65535, 65536, 70001, 262144, LONG_FRAME])
def test_long_frames_are_echoed(connection, n_bytes):
    for _ in range(3):
        stream = connection.begin(INFER)
        sent(connection, stream, LARGE, n_bytes)
        check_echo(connection.answer(stream))


def test_few_bytes_are_copied(live, connection):
    before = live.numbers()
    for _ in range(4):
        stream = connection.begin(INFER)
        sent(connection, stream, LARGE, LONG_FRAME)
        check_echo(connection.answer(stream))
    after = live.numbers()

    def grown(name):
        return after[name] - before[name]
    assert grown("sluice_body_bytes_total") >= 4 * len(DATA_BYTES)
    assert grown("sluice_copied_bytes_total") < grown("sluice_body_bytes_total") / 8


@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_any_length(connection, seed):
    """Also of one byte, where one frame ends and the next begins."""
    dice = random.Random(seed)
    stream = begin(connection)
    data = LARGE[:1 << 20] if seed % 2 else LARGE
    wire = frames(stream, data, 100000 + seed, end=len(data) == len(LARGE))
    at = 0
    while at < len(wire):
        in_frame = at % (100000 + seed + 9)
        n = 1 if in_frame < 12 or in_frame > 100000 + seed else dice.choice((3, 1000, 65536, 99990))
        n = min(n, len(wire) - at, (-in_frame) % (100000 + seed + 9) or 1)
        connection.sock.setblocking(True)
        connection.sock.sendall(wire[at:at + n])
        at += n
    connection.window -= len(data)
    connection.windows[stream] -= len(data)
    if len(data) < len(LARGE):
        sent(connection, stream, LARGE[len(data):], LONG_FRAME)
    check_echo(connection.answer(stream))


def test_padded_frames(connection):
    stream = begin(connection)
    for at in range(0, len(LARGE), 200000):
        piece = LARGE[at:at + 200000]
        end = h2.END_STREAM if at + 200000 >= len(LARGE) else 0
        connection.run_until(lambda: connection.windows[stream] >= 200300)
        connection.windows[stream] -= len(piece) + 101
        connection.window -= len(piece) + 101
        connection.send(h2.frame(h2.DATA, h2.PADDED | end, stream, b"\x64" + piece + bytes(100)))
    check_echo(connection.answer(stream))


def test_other_calls_within_a_message(connection, live):
    """Whole calls, pings, windows and resets between the frames of a large message, and of another one."""
    streams = [connection.begin(INFER) for _ in range(2)]
    for at in range(0, len(LARGE), 300000):
        for stream in streams:
            last = at + 300000 >= len(LARGE)
            sent(connection, stream, LARGE[at:at + 300000], 150000, end=last)
        live.check_good(connection)
        connection.ping()
        gone = connection.begin(INFER)
        connection.send(h2.frame(h2.DATA, 0, gone, LARGE[:1000]) + h2.reset(gone))
    for stream in streams:
        check_echo(connection.answer(stream))


def test_reset_within_a_long_frame_of_the_next(connection, live):
    """The call is reset between two frames, while the head of another one is expected."""
    for _ in range(20):
        stream = begin(connection)
        sent(connection, stream, LARGE[:1 << 20], LONG_FRAME, end=False)
        connection.send(h2.reset(stream))
        live.check_good(connection)


def test_frames_after_a_refusal_are_dropped(connection, live):
    """The announced length is over the limit: what follows has no place."""
    for n_bytes in (MAX_BODY + 1, 0xffffffff):
        stream = begin(connection)
        connection.send(frames(stream, struct.pack(">BI", 0, n_bytes) + bytes(300000), 150000, end=False))
        ended = connection.answer(stream)
        assert ended.status == EXHAUSTED and "--max-body-size" in ended.text, str(ended)
        live.check_good(connection)


def test_length_that_is_too_small(connection, live):
    """The frame goes on after the end of the message."""
    stream = begin(connection)
    data = h2.message(LARGE[5:200005], n_bytes=100000)
    connection.send(frames(stream, data, len(data)))
    ended = connection.answer(stream)
    assert ended.status == INVALID and "one message, got more" in ended.text, str(ended)


def test_end_within_a_message(connection):
    stream = begin(connection)
    connection.send(frames(stream, LARGE[:500000], 250000))
    ended = connection.answer(stream)
    assert ended.status == INVALID and "within a message" in ended.text, str(ended)


def test_frame_longer_than_allowed(connection):
    stream = begin(connection)
    connection.send(h2.frame(h2.DATA, 0, stream, LARGE[:LONG_FRAME + 1]))
    connection.run_until(lambda: connection.gone)
    assert connection.was_reset or connection.goaways[0][0] == "FRAME_SIZE_ERROR", connection.goaways


def test_bad_window_within_a_message(connection, live):
    """The stream is reset, and the rest of its message, which may be on its way, is dropped."""
    stream = begin(connection)
    wire = frames(stream, LARGE[:3 << 20], 300000, end=False)
    at = 3 * 300009
    connection.send(wire[:at] + h2.window_update(stream, 0x7fffffff) + wire[at:])
    assert connection.answer(stream).reset == "FLOW_CONTROL_ERROR"
    live.check_good(connection)


def test_stopped_clients_hold_what_they_sent(live):
    """Clients that stop in the middle of a long frame: others are served, and nothing stays when they go."""
    stopped = [live.connect() for _ in range(8)]
    for made in stopped:
        stream = made.begin(INFER)
        made.send_data(stream, LARGE[:3 << 20])
        made.ping()
    assert live.numbers()["sluice_body_bytes_in_flight"] <= len(stopped) * (3 << 20)
    live.check_good()
    for made in stopped[::2]:
        made.abort()
    for made in stopped[1::2]:
        made.close()

"""An HTTP/2 client that shows everything: it sends the frames it is given, wrong ones too, and reads what
comes strictly. While it sends it also reads, so that neither side waits for the other. It refuses to
help: no frame is added but what `Connection` is asked for, acknowledgements and windows, and those
only while it is told to."""
import select
import struct
import time

import hpack

from lib import http1

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
(DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE,
 CONTINUATION) = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED = 4, 8
ERRORS = ("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
          "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR",
          "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED")
INITIAL_WINDOW = 4  # the number of that setting
DEFAULT_WINDOW = 65535
DEFAULT_FRAME = 16384


# ---- bytes ---------------------------------------------------------------------------------------

def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def reset(stream, error="CANCEL"):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", ERRORS.index(error)))


def window_update(stream, n_bytes):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", n_bytes))


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def length(value, prefix_bits, first=0):
    """An integer of HPACK (RFC 7541, 5.1)."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(name, value, first=0x00):
    """A literal, neither in the table nor with Huffman's code."""
    return (bytes([first]) + length(len(name), 7) + name + length(len(value), 7) + value)


def block(fields):
    return b"".join(field(name, value) for name, value in fields)


def call_fields(path, *more):
    """The head of a gRPC call."""
    return [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"here"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more]


def request_fields(method, path, *more):
    """The head of a request that is not gRPC."""
    return [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"), *more]


def message(data, flag=0, n_bytes=None):
    """A message of gRPC behind its prefix; `n_bytes` is what the prefix says instead of the truth."""
    return struct.pack(">BI", flag, len(data) if n_bytes is None else n_bytes) + data


# ---- a connection --------------------------------------------------------------------------------

class Ended(AssertionError):
    """The connection ended where an answer was due."""


class Stream:
    """What came on one stream so far."""

    def __init__(self):
        self.heads = []  # of HEADERS, each a dict
        self.data = b""
        self.ended = False
        self.reset = None  # the error's name

    @property
    def is_over(self):
        return self.ended or self.reset is not None

    @property
    def status(self):
        """grpc-status as a number, None where there is none."""
        return int(self.heads[-1]["grpc-status"]) if self.heads and "grpc-status" in self.heads[-1] else None

    @property
    def text(self):
        """grpc-message, as it is on the wire."""
        return self.heads[-1].get("grpc-message", "")

    @property
    def http_status(self):
        """The number in :status of the response; None: there is none yet."""
        final = [head[":status"] for head in self.heads if not head.get(":status", "1").startswith("1")]
        return int(final[0]) if final else None

    def messages(self):
        found, data = [], self.data
        while data:
            assert len(data) >= 5 and data[0] in (0, 1), data[:20]
            n_bytes = struct.unpack(">I", data[1:5])[0]
            assert len(data) >= 5 + n_bytes, (n_bytes, len(data))
            found.append(data[5:5 + n_bytes])
            data = data[5 + n_bytes:]
        return found

    def __str__(self):
        return f"{self.heads} {self.data[:200]!r} ended={self.ended} reset={self.reset}"


class Connection:
    """`greet` sends the preface and SETTINGS with `own` pairs; `acks` acknowledges SETTINGS and answers
    pings; `opens` gives back the windows of what was read."""

    def __init__(self, address, own=(), greet=True, acks=True, opens=True,
                 patience=http1.PATIENCE):
        self.sock = http1.connect(address, patience)
        self.patience = patience
        self.acks, self.opens = acks, opens
        self.decoder = hpack.Decoder(max_header_list_size=1 << 24)
        self.unsent, self.pending = bytearray(), bytearray()
        self.streams = {}
        self.next_id = 1
        self.answered = []  # streams in the order of their first heads
        self.goaways = []  # (error's name, debug text)
        self.n_pings = self.n_pongs = self.n_settings = 0
        self.gone = False  # the server has closed
        self.was_reset = False  # ... so that what it said last may be lost
        self.window = DEFAULT_WINDOW  # what we may send
        self.stream_window = DEFAULT_WINDOW
        self.windows = {}
        if greet:
            self.send(PREFACE + settings(*own))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def abort(self):
        """Goes away at once and unannounced: the server gets a reset of TCP."""
        self.sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER of nothing
        self.sock.close()

    # ---- out

    def send(self, data):
        """Sends all of it, and reads what comes meanwhile."""
        self.unsent += data
        self.run_until(lambda: not self.unsent or self.gone)

    def open(self, fields, flags=0, n_bytes=DEFAULT_FRAME):
        """The frames of a head, in pieces of `n_bytes`. Returns: (stream, bytes to send)."""
        stream, self.next_id = self.next_id, self.next_id + 2
        head = fields if isinstance(fields, bytes) else block(fields)
        pieces = [head[at:at + n_bytes] for at in range(0, len(head), n_bytes)] or [b""]
        frames = b""
        for number, piece in enumerate(pieces):
            last = END_HEADERS if number == len(pieces) - 1 else 0
            frames += (frame(CONTINUATION, last, stream, piece) if number
                       else frame(HEADERS, last | flags, stream, piece))
        self.windows[stream] = self.stream_window
        self.streams[stream] = Stream()
        return stream, frames

    def begin(self, path, *more):
        """Sends the head of a call. Returns: the stream."""
        stream, frames = self.open(call_fields(path, *more))
        self.send(frames)
        return stream

    def send_data(self, stream, data, end=False):
        """DATA within the windows."""
        at = 0
        while at < len(data) or end:
            self.run_until(lambda: self.gone or self.streams[stream].is_over or at == len(data)
                           or min(self.window, self.windows[stream]) > 0)
            if self.gone or self.streams[stream].is_over:
                return
            n = min(len(data) - at, self.window, self.windows[stream], DEFAULT_FRAME)
            last = end and at + n == len(data)
            self.window -= n
            self.windows[stream] -= n
            self.send(frame(DATA, END_STREAM if last else 0, stream, data[at:at + n]))
            at += n
            if last:
                return

    def call(self, path, *messages, more=()):
        """A call with these messages. Returns: its Stream, when it is over."""
        stream = self.begin(path, *more)
        self.send_data(stream, b"".join(message(data) for data in messages), end=True)
        return self.answer(stream)

    def begin_request(self, method, path, *more, end=False):
        """Sends the head of a request that is not gRPC. Returns: the stream."""
        stream, frames = self.open(request_fields(method, path, *more), END_STREAM if end else 0)
        self.send(frames)
        return stream

    def request(self, method, path, *more, body=b""):
        """Such a request, its body in DATA. Returns: its Stream, when it is over."""
        stream = self.begin_request(method, path, *more, end=not body)
        if body:
            self.send_data(stream, body, end=True)
        return self.answer(stream)

    # ---- in

    def run_until(self, fits):
        end = time.monotonic() + self.patience
        self.sock.setblocking(False)
        while not fits():
            if self.gone and not self.unsent:
                raise Ended(f"the server ended the connection: {self.goaways}")
            left = end - time.monotonic()
            assert left > 0, f"nothing more within {self.patience} s: {self.streams}"
            self.turn(left)

    def turn(self, seconds):
        """Sends and reads what can be sent and read, waiting that long for it."""
        writing = [self.sock] if self.unsent else []
        readable, writable, _ = select.select([] if self.gone else [self.sock], writing, [], seconds)
        try:
            if writable:
                sent = self.sock.send(self.unsent[:1 << 18])
                del self.unsent[:sent]
            data = self.sock.recv(1 << 18) if readable else None
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self.was_reset = True
            data = b""
        if data == b"":
            self.gone = True
            self.unsent.clear()
        elif data:
            self.pending += data
            self.take_frames()

    def take_frames(self):
        at = 0
        while len(self.pending) - at >= 9:
            n_bytes = int.from_bytes(self.pending[at:at + 3], "big")
            if len(self.pending) - at - 9 < n_bytes:
                break
            kind, flags, stream = struct.unpack(">BBI", self.pending[at + 3:at + 9])
            self.on_frame(kind, flags, stream, bytes(self.pending[at + 9:at + 9 + n_bytes]))
            at += 9 + n_bytes
        del self.pending[:at]

    def on_frame(self, kind, flags, stream, payload):
        here = self.streams.setdefault(stream, Stream()) if stream else None
        if kind == SETTINGS and not flags & ACK:
            self.on_settings(payload)
        elif kind == PING:
            self.n_pongs += flags & ACK
            self.n_pings += not flags & ACK
            if self.acks and not flags & ACK:
                self.unsent += frame(PING, ACK, 0, payload)
        elif kind == GOAWAY:
            self.goaways.append((ERRORS[struct.unpack(">I", payload[4:8])[0]], payload[8:]))
        elif kind == WINDOW_UPDATE:
            self.on_window(stream, struct.unpack(">I", payload)[0])
        elif kind == RST_STREAM:
            here.reset = ERRORS[struct.unpack(">I", payload)[0]]
        elif kind == HEADERS:
            assert flags & END_HEADERS, "a head in several frames"
            if not here.heads:
                self.answered.append(stream)
            here.heads.append(dict(self.decoder.decode(payload)))
            here.ended = here.ended or bool(flags & END_STREAM)
        elif kind == DATA:
            here.data += payload
            here.ended = here.ended or bool(flags & END_STREAM)
            if self.opens and payload:
                self.unsent += window_update(0, len(payload)) + window_update(stream, len(payload))
        else:
            assert kind == SETTINGS, f"a frame of kind {kind}"

    def on_settings(self, payload):
        self.n_settings += 1
        for at in range(0, len(payload), 6):
            number, value = struct.unpack(">HI", payload[at:at + 6])
            if number == INITIAL_WINDOW:
                grown, self.stream_window = value - self.stream_window, value
                self.windows = {stream: left + grown for stream, left in self.windows.items()}
        if self.acks:
            self.unsent += frame(SETTINGS, ACK)

    def on_window(self, stream, n_bytes):
        if stream == 0:
            self.window += n_bytes
        elif stream in self.windows:
            self.windows[stream] += n_bytes

    def answer(self, stream):
        """Waits until the stream is over. Returns: it."""
        self.run_until(lambda: self.streams[stream].is_over)
        return self.streams[stream]

    def ping(self):
        """What was sent before has been read when this returns."""
        wanted = self.n_pongs + 1
        self.send(frame(PING, 0, 0, b"12345678"))
        self.run_until(lambda: self.n_pongs >= wanted)

    def read_end(self):
        """Waits for the server's end of the connection. Returns: the error of its last GOAWAY, or None."""
        self.run_until(lambda: self.gone)
        return self.goaways[-1][0] if self.goaways else None

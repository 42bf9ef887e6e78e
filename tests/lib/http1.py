"""An HTTP/1.1 client that shows everything: it sends the bytes it is given and reads answers
strictly. It refuses to help: nothing is retried, decoded or followed, and an answer whose framing is
not exactly right is an error, because a real client may be less forgiving than http.client."""
import os
import re
import socket
import struct
import time
import zlib

# Generous, because it bounds a failure and never measures anything: a server under a sanitizer on
# a busy machine is slow.
PATIENCE = float(os.environ.get("SLUICE_TEST_PATIENCE_S", "60"))

STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9]) ([\x20-\x7e]*)")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?[ \t]*")


class BadAnswer(AssertionError):
    """The server's bytes are not an HTTP answer as RFC 9112 has it."""


class Closed(AssertionError):
    """The server ended the connection where an answer was due."""


class Answer:
    """One answer. `fields` are pairs as sent; `body` is as on the wire, still compressed."""

    def __init__(self, version, status, reason, fields):
        self.version = version
        self.status = status
        self.reason = reason
        self.fields = fields
        self.body = b""

    def all(self, name):
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        if len(values) > 1:
            raise BadAnswer(f"{len(values)} fields {name}")
        return values[0] if values else None

    def plain_body(self):
        """The body without its content coding."""
        coding = self.get("Content-Encoding")
        if coding is None:
            return self.body
        if coding == "gzip":
            return inflate(self.body, 31)
        if coding == "deflate":
            return inflate(self.body, 15)
        raise BadAnswer(f"Content-Encoding {coding}")

    def says_close(self):
        return "close" in [word.strip().lower()
                           for value in self.all("Connection") for word in value.split(",")]

    def __str__(self):
        shown = self.body[:1000]
        return f"{self.status} {self.reason} {self.fields} {shown!r}"


def inflate(data, bits):
    stream = zlib.decompressobj(bits)
    try:
        out = stream.decompress(data) + stream.flush()
    except zlib.error as why:
        raise BadAnswer(f"not compressed as it says: {why}") from None
    if not stream.eof or stream.unused_data:
        raise BadAnswer("a compressed body that does not end where Content-Length does")
    return out


def connect(address, patience=PATIENCE, source=None):
    """`address` as in a ready file: HOST:PORT, [V6]:PORT or unix:/path. `source`: the address that it comes from."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(patience)
        sock.connect(address[len("unix:"):])
        return sock
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host.strip("[]"), int(port)), patience, source and (source, 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Connection:
    def __init__(self, address, patience=PATIENCE, source=None):
        self.sock = connect(address, patience, source)
        self.pending = b""
        self.send_failed = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        """Sends all of it, blocking. A server may close while a refused body is still being sent;
        what it answered before is there to be read all the same."""
        if self.send_failed:
            return
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as failed:
            self.send_failed = failed

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """Goes away at once and unannounced: the peer gets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()

    def more(self):
        """Receives. Returns: False at the end of what the server sends."""
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionResetError:
            return False
        self.pending += data
        return bool(data)

    def read_line(self):
        while b"\r\n" not in self.pending:
            if len(self.pending) > 1 << 16:
                raise BadAnswer("a head without an end")
            if not self.more():
                if self.pending:
                    raise BadAnswer(f"closed within a head: {self.pending[:200]!r}")
                raise Closed("closed without an answer")
        line, self.pending = self.pending.split(b"\r\n", 1)
        return line

    def read_head(self):
        line = self.read_line()
        match = STATUS_LINE.fullmatch(line)
        if not match:
            raise BadAnswer(f"not a status line: {line[:200]!r}")
        answer = Answer(int(match[1]), int(match[2]), match[3].decode(), [])
        while line := self.read_line():
            match = FIELD.fullmatch(line)
            if not match:
                raise BadAnswer(f"not a field: {line[:200]!r}")
            answer.fields.append((match[1].decode(), (match[2] or b"").decode()))
        return answer

    def read_body(self, n_bytes):
        parts, have = [self.pending], len(self.pending)
        self.pending = b""
        while have < n_bytes:
            if not self.more():
                raise BadAnswer(f"closed after {have} of {n_bytes} bytes of body")
            parts.append(self.pending)
            have += len(self.pending)
            self.pending = b""
        data = b"".join(parts)
        self.pending = data[n_bytes:]
        return data[:n_bytes]

    def read_answer(self, method="GET"):
        """Reads one answer, an interim one (1xx) too. The server always says Content-Length."""
        answer = self.read_head()
        if answer.all("Transfer-Encoding"):
            raise BadAnswer("Transfer-Encoding where Content-Length is promised")
        length = answer.get("Content-Length")
        if answer.status < 200 or answer.status in (204, 304):
            if length is not None:
                raise BadAnswer(f"{answer.status} with Content-Length")
            return answer
        if length is None or not re.fullmatch(r"[0-9]+", length):
            raise BadAnswer(f"Content-Length is {length!r} in {answer}")
        if method != "HEAD":
            answer.body = self.read_body(int(length))
        return answer

    def read_end(self):
        """Waits until the server ends the connection. Returns: the bytes that came before that."""
        while self.more():
            if len(self.pending) > 1 << 20:
                break
        return self.pending


def wait_for_status(address, status, target):
    """Asks on new connections until the answer has that status. A server that begins to drain closes
    idle connections, and one that has just been opened may be among them. Returns: the answer."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            answer = request(address, "GET", target)
            if answer.status == status:
                return answer
        except Closed as closed:
            answer = closed
        if time.monotonic() > end:
            raise AssertionError(f"expected {status} for {target}, still {answer}")
        time.sleep(0.02)


def request(address, method, target, body=b"", fields=()):
    """One request on a connection of its own."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in fields]
    with Connection(address) as connection:
        connection.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return connection.read_answer(method)


def post_head(target, n_bytes, *fields):
    """The head of a POST, in bytes, as its arguments; `fields` are whole lines."""
    lines = [b"POST %s HTTP/1.1" % target, b"Host: localhost", b"Content-Length: %d" % n_bytes, *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def post(target, body, *fields):
    return post_head(target, len(body), *fields) + body

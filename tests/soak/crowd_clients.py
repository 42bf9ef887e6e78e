"""The crowd of test_memory_crowd.py, as a process of its own: thousands of connections of which each makes the server hold
what it can. Usage: crowd_clients.py KIND SHARE NAME=ADDRESS…; SHARE (1: all) is how many of them come. It prints a line
when all have sent what the server takes, and goes when its input ends. A connection that the server closes comes again,
as often as AGAIN says."""
import base64
import errno
import gzip
import io
import json
import os
import select
import socket
import ssl
import sys
import time

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from lib import h2, http1, mip

AGAIN = 1.0  # of the connections
BATCH = 200  # connections that are opened between two looks at the others
N_HOSTS = 250
QUIET_S = 1.0
KIB, MIB = 1 << 10, 1 << 20
GREETING = h2.PREFACE + h2.settings()
UNREAD_GREETING = h2.PREFACE + h2.settings((h2.INITIAL_WINDOW, 0))
STREAM_INFER = b"/inference.GRPCInferenceService/ModelStreamInfer"
INFER = b"/inference.GRPCInferenceService/ModelInfer"


def tensors(model_input, n, kind=b"FP32"):
    return (b'{"inputs":[{"name":"%s","shape":[%d],"datatype":"%s","data":[' % (model_input, n, kind)
            + b"1," * (n - 1) + b"1]}]}")


def headers(stream, fields, flags=0):
    return h2.frame(h2.HEADERS, h2.END_HEADERS | flags, stream, h2.block(fields))


def indexed_calls(n, path, more=b""):
    """Heads of which all but the first are a few bytes, as HPACK makes them; `more` is another block."""
    first = b"".join(h2.field(name, value, 0x40) for name, value in h2.call_fields(path))
    n_fields = len(h2.call_fields(path))
    again = bytes(0x80 | 62 + n_fields - 1 - i for i in range(n_fields))
    return b"".join(h2.frame(h2.HEADERS, h2.END_HEADERS, 1 + 2 * i, (again if i else first) + more) for i in range(n))


def unary_calls(n, model):
    from lib import grpc_live  # it needs gRPC, which takes a second to load
    request = grpc_live.proto.ModelInferRequest(model_name=model)
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[256])
    request.raw_input_contents.append(bytes(1024))
    message = h2.message(request.SerializeToString())
    return b"".join(headers(1 + 2 * i, h2.call_fields(INFER))
                    + h2.frame(h2.DATA, h2.END_STREAM, 1 + 2 * i, message) for i in range(n))


def picture(side):
    out = io.BytesIO()
    Image.new("RGB", (side, side), (7, 8, 9)).save(out, "WEBP", lossless=True, quality=0, method=0)
    return out.getvalue()


def table_of_tiny_entries():
    """124 entries of 33 bytes by HPACK's count fill its table of 4,096."""
    entries = b"".join(b"\x40\x01" + bytes([97 + i % 26]) + b"\x00" for i in range(124))
    return GREETING + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.block(h2.call_fields(STREAM_INFER)) + entries)


def priorities(n):
    return b"".join(h2.frame(h2.PRIORITY, 0, 2001 + 2 * i, b"\x00\x00\x00\x00\x10") for i in range(n))


def load_request():
    """Half of an upload of a model's file."""
    body = json.dumps({"parameters": {"config": "{}", "file:1/model.onnx": base64.b64encode(bytes(6 * MIB)).decode()}})
    return http1.post(b"/v2/repository/models/uploaded/load", body.encode())[:4 * MIB]


class Kind:
    """`n` connections to the listener `at`, each sending `data`. `again` sends it once more whenever an answer came.
    `receive` is the size of the socket's buffer."""

    def __init__(self, n, at, data, tls=False, again=False, receive=None):
        self.n, self.at, self.data, self.tls, self.again, self.receive = n, at, data, tls, again, receive


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def context():
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


LARGE = b'{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[1]}]}'
SLOW = tensors(b"INPUT0", 256)

KINDS = {
    "streams": lambda: [Kind(13500, "grpc", GREETING + indexed_calls(16, STREAM_INFER))],
    "heads": lambda: [Kind(7000, "http", b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 12000),
                      Kind(1500, "http", b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60000)],
    "handshakes": lambda: [Kind(8000, "https", client_hello())],
    "sessions": lambda: [Kind(5000, "https", b"", tls=True),
                         Kind(1000, "https", b"GET /v2/health/ready HTTP/1.1\r\nX: ", tls=True)],
    "unread": lambda: [Kind(1000, "http", http1.post(b"/v2/models/large/infer", LARGE) * 4, receive=4096),
                       Kind(1000, "grpc", UNREAD_GREETING + unary_calls(16, "small"), receive=4096)],
    "unread_ahead": lambda: [Kind(1500, "http", http1.post(b"/v2/models/large/infer", LARGE) * 2000, receive=4096)],
    "pages": lambda: [Kind(3000, "http", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40, receive=4096),
                      Kind(3000, "http", b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n" * 40, receive=4096),
                      Kind(250, "metrics", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40, receive=4096)],
    "bodies": lambda: [Kind(1500, "http", http1.post(b"/v2/models/slowest/infer", SLOW)
                            + http1.post(b"/v2/models/small/infer", b" " * (2 * MIB))[:-MIB]),
                       Kind(1500, "http", http1.post(b"/v2/models/small/infer", b" " * (2 * MIB))[:-MIB])],
    "gzip": lambda: [Kind(200, "http", http1.post(b"/v2/models/small/infer", gzip.compress(b" " * (60 * MIB)),
                                                  b"Content-Encoding: gzip")[:-8])],
    "pictures": lambda: [Kind(200, "mip", mip.infer_request([[mip.image(picture(4096))]] * 8))],
    "json": lambda: [Kind(800, "http", http1.post(b"/v2/models/small/infer", tensors(b"INPUT0", 10000)), again=True)],
    "metadata": lambda: [Kind(6000, "grpc", GREETING + b"".join(
        headers(1 + 2 * i, h2.call_fields(STREAM_INFER, (b"a", b"m" * 3900))) for i in range(16)))],
    "waiting": lambda: [Kind(3000, "grpc", GREETING + unary_calls(16, "slowest"))],
    "tables": lambda: [Kind(13500, "grpc", table_of_tiny_entries())],
    "floods": lambda: [Kind(1500, "grpc", GREETING + priorities(1900), receive=4096),
                       Kind(1500, "grpc", GREETING + h2.frame(h2.PING, 0, 0, b"12345678") * 1900, receive=4096),
                       Kind(1500, "grpc", GREETING + h2.settings() * 1900, receive=4096)],
    "uploads": lambda: [Kind(200, "http", load_request())],
    "packets": lambda: [Kind(6000, "mip", mip.header(mip.INFER, 4 * MIB) + bytes(1024)),
                        Kind(500, "mip", mip.header(mip.INFER, 4 * MIB) + bytes(MIB)),
                        Kind(6000, "mip", mip.header(mip.INFER, 4 * MIB)[:5])],
}


class Client:
    def __init__(self, kind, number):
        self.kind, self.number = kind, number
        self.plain = self.tls = None
        self.unsent = memoryview(kind.data)

    def connect(self, addresses):
        host, _, port = addresses[self.kind.at].rpartition(":")
        self.plain = socket.socket()
        self.plain.setblocking(False)
        if self.kind.receive:
            self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.kind.receive)
        self.plain.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        self.plain.bind((f"127.0.{1 + self.number % N_HOSTS}.1", 0))
        code = self.plain.connect_ex((host, int(port)))
        assert code in (0, errno.EINPROGRESS), code
        if self.kind.tls:
            self.tls = context_of_all.wrap_socket(self.plain, server_hostname="localhost", do_handshake_on_connect=False)
            self.plain = self.tls
        self.unsent = memoryview(self.kind.data)
        self.in_handshake = self.kind.tls

    def step(self):
        """Returns: the events that it waits for."""
        if self.in_handshake:
            try:
                self.tls.do_handshake()
                self.in_handshake = False
            except ssl.SSLWantReadError:
                return select.EPOLLIN
            except ssl.SSLWantWriteError:
                return select.EPOLLOUT
        while self.unsent:
            try:
                self.unsent = self.unsent[self.plain.send(self.unsent[:256 * KIB]):]
            except (BlockingIOError, ssl.SSLWantWriteError):
                return select.EPOLLOUT
        return 0

    def read(self):
        """For kinds that read: whether an answer began."""
        try:
            return b"HTTP/1.1 " in self.plain.recv(MIB)
        except BlockingIOError:
            return False


context_of_all = context()


class Crowd:
    def __init__(self, kinds, share, addresses):
        self.addresses = addresses
        self.poll = select.epoll()
        self.clients = {}
        self.n_closed = 0
        # Those of all kinds in turns.
        waiting = [[Client(kind, number) for number in range(int(kind.n * share))] for kind in kinds]
        self.to_open = []
        while any(waiting):
            for one in waiting:
                if one:
                    self.to_open.append(one.pop())
        self.to_open.reverse()
        self.n_again = int(len(self.to_open) * AGAIN)

    def open(self):
        client = self.to_open.pop()
        client.connect(self.addresses)
        self.clients[client.plain.fileno()] = client
        self.poll.register(client.plain.fileno(), select.EPOLLOUT | select.EPOLLRDHUP)

    def end(self, number, client):
        self.poll.unregister(number)
        del self.clients[number]
        client.plain.close()
        self.n_closed += 1
        if self.n_again > 0:
            self.n_again -= 1
            self.to_open.insert(0, client)

    def serve(self, number, events):
        client = self.clients[number]
        try:
            if events & select.EPOLLIN and client.kind.again and client.read():
                client.unsent = memoryview(client.kind.data)
            if events & (select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP):
                raise ConnectionResetError
            wanted = client.step()
        except (OSError, ssl.SSLError):
            self.end(number, client)
            return False
        self.poll.modify(number, wanted | select.EPOLLRDHUP | (select.EPOLLIN if client.kind.again else 0))
        return bool(events & select.EPOLLOUT)

    def turn(self, seconds):
        """Returns: whether something was sent or opened."""
        moved = bool(self.to_open)
        for _ in range(min(BATCH, len(self.to_open))):
            self.open()
        for number, events in self.poll.poll(0 if self.to_open else seconds, 1000):
            moved = self.serve(number, events) or moved
        return moved

    def send_all(self, seconds):
        """Until the server has taken nothing for a while, or the time is over."""
        end = quiet = time.monotonic() + seconds
        while time.monotonic() < min(end, quiet):
            if self.turn(0.05) or quiet == end:
                quiet = time.monotonic() + QUIET_S


def main():
    kinds, share, seconds = sys.argv[1].split(","), float(sys.argv[2]), float(sys.argv[3])
    addresses = dict(arg.split("=", 1) for arg in sys.argv[4:])
    crowd = Crowd([one for kind in kinds for one in KINDS[kind]()], share, addresses)
    crowd.send_all(seconds)
    print(f"{len(crowd.clients)} open, {crowd.n_closed} closed by the server", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        crowd.turn(0.05)
    print(f"{len(crowd.clients)} open, {crowd.n_closed} closed by the server", flush=True)


if __name__ == "__main__":
    main()

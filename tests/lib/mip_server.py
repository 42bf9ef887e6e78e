"""A small MIP server for clients to be tested against. Like the reference it takes one connection at a
time, reads one packet, answers it and closes. What it answers is the test's: a function from the items
of one element to that element's outputs."""
import socket
import struct
import threading

# What it speaks of; its users take these from here.
from lib.mip import (ERROR, ERRORS, IMAGE, INFER, JSON, PING,
                     REQUEST, RESPONSE, TEXT)

HEADER = struct.Struct("!BBBBL")  # version, kind, subtype, reserved, remaining size
INFERENCE = struct.Struct("!BBH")  # n-input, n-output, batch size
ITEM = struct.Struct("!LL")  # type, size


class Refuse(Exception):
    """Raised by a model: the answer is that error."""

    def __init__(self, name):
        super().__init__(name)
        self.code = ERRORS.index(name)


class MipServer:
    """Serves until `close`. `model` takes a list of (type, bytes) and returns another. `path` is where
    a Unix socket goes; without one it is a free port of loopback. `url` says where it listens."""

    def __init__(self, model, path=None):
        self.model = model
        self.n_requests = 0
        if path:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(str(path))
            self.url = f"unix://{path}"
        else:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.url = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.listener.listen()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                self.n_requests += 1
                try:
                    connection.sendall(self.answer(stream))
                except (EOFError, ConnectionError):
                    pass  # the client went away

    def answer(self, stream):
        version, kind, subtype, _, remaining = HEADER.unpack(exactly(stream, HEADER.size))
        try:
            if version != 0:
                raise Refuse("PROTOCOL")
            if subtype != REQUEST:
                raise Refuse("SUBTYPE")
            if kind == PING:
                return HEADER.pack(0, PING, RESPONSE, 0, 0)
            if kind != INFER:
                raise Refuse("METHOD")
            return self.infer(exactly(stream, remaining))
        except Refuse as refused:
            return HEADER.pack(0, ERROR, refused.code, 0, 0)

    def infer(self, payload):
        n_inputs, _, batch = INFERENCE.unpack_from(payload)
        elements = decode(payload[INFERENCE.size:], n_inputs, batch)
        answers = [self.model(element) for element in elements]
        body = INFERENCE.pack(n_inputs, len(answers[0]), batch) + b"".join(
            ITEM.pack(kind, len(data)) + data for answer in answers for kind, data in answer)
        return HEADER.pack(0, INFER, RESPONSE, 0, len(body)) + body


def decode(data, n_inputs, batch):
    """Returns: for each element of the batch its items, a list of (type, bytes)."""
    items = []
    while data:
        if len(data) < ITEM.size:
            raise Refuse("SHAPE")
        kind, size = ITEM.unpack_from(data)
        item, data = data[ITEM.size:ITEM.size + size], data[ITEM.size + size:]
        if len(item) != size:
            raise Refuse("SHAPE")
        items.append((kind, item))
    if batch == 0 or n_inputs == 0 or len(items) != batch * n_inputs:
        raise Refuse("SHAPE")
    return [items[first:first + n_inputs] for first in range(0, len(items), n_inputs)]


def exactly(stream, n_bytes):
    data = stream.read(n_bytes)
    if len(data) != n_bytes:
        raise EOFError
    return data

"""A MIP client that shows everything, written from the protocol's document: packets are made and
taken apart here, byte by byte, and an answer that is not exactly right is an error. It refuses to
help: nothing is retried and no connection is reopened."""
import json
import socket
import struct

from lib import http1

ERROR, PING, INFER = 0, 1, 2
REQUEST, RESPONSE = 0, 1
TEXT, JSON, IMAGE = 1, 2, 3
ERRORS = ("PROTOCOL", "SUBTYPE", "METHOD", "MEMORY", "SHAPE", "INTERNAL")


class BadAnswer(AssertionError):
    """The server's bytes are not a packet as the document has it."""


class Refused(Exception):
    """The server answered with an error; `name` is which."""

    def __init__(self, code):
        self.name = ERRORS[code]
        super().__init__(self.name)


# ---- packets -------------------------------------------------------------------------------------

def header(kind, n_bytes, version=0, subtype=REQUEST, reserved=0):
    return struct.pack("!4BL", version, kind, subtype, reserved, n_bytes)


def text(value):
    return TEXT, value.encode()


def as_json(value):
    return JSON, json.dumps(value).encode()


def image(data):
    return IMAGE, data


def item_bytes(item):
    kind, data = item
    return struct.pack("!2L", kind, len(data)) + data


def infer_payload(elements, n_inputs=None, batch=None):
    """`elements` is a list of batch elements, each a list of (type, bytes)."""
    counts = struct.pack("!2BH", len(elements[0]) if n_inputs is None else n_inputs, 0,
                         len(elements) if batch is None else batch)
    return counts + b"".join(item_bytes(item) for element in elements for item in element)


def infer_request(elements, **counts):
    payload = infer_payload(elements, **counts)
    return header(INFER, len(payload)) + payload


PING_REQUEST = header(PING, 0)
PING_ANSWER = header(PING, 0, subtype=RESPONSE)


def parse_answer(payload):
    """Returns: n_inputs and the batch's elements, each a list of (type, bytes)."""
    if len(payload) < 4:
        raise BadAnswer(f"an inference without counts: {payload!r}")
    n_inputs, n_outputs, batch = struct.unpack("!2BH", payload[:4])
    at, elements = 4, []
    for _ in range(batch):
        element = []
        for _ in range(n_outputs):
            if len(payload) - at < 8:
                raise BadAnswer(f"the head of an item is cut off at {at} of {len(payload)}")
            kind, size = struct.unpack("!2L", payload[at:at + 8])
            at += 8
            if len(payload) - at < size:
                raise BadAnswer(f"an item of {size} bytes with {len(payload) - at} left")
            element.append((kind, payload[at:at + size]))
            at += size
        elements.append(element)
    if at != len(payload):
        raise BadAnswer(f"{len(payload) - at} bytes behind the last item")
    return n_inputs, elements


def value_of(item):
    """An item as Python has it: text, or what JSON says (with its NaN and Infinity)."""
    kind, data = item
    if kind == TEXT:
        return data.decode()
    if kind == JSON:
        return json.loads(data)
    raise BadAnswer(f"an item of type {kind} in an answer")


# ---- connections ---------------------------------------------------------------------------------

def connect(url, patience=http1.PATIENCE):
    """tcp://HOST:PORT or unix:///path."""
    if url.startswith("unix://"):
        return http1.connect("unix:" + url[len("unix://"):], patience)
    return http1.connect(url.removeprefix("tcp://"), patience)


class Connection:
    """Keep-alive and pipelining: send and read as you like."""

    def __init__(self, url, patience=http1.PATIENCE):
        self.url = url
        self.sock = connect(url, patience)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with a reset: unlike an end it can't be taken for a client that still reads."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, data):
        """Sends all of it. A server may stop reading a packet it refuses; what it answered is there
        to be read all the same."""
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def read_exactly(self, n):
        """Returns: None when the server has closed before the first byte."""
        parts, have = [], 0
        while have < n:
            data = self.sock.recv(min(n - have, 1 << 20))
            if not data:
                if have:
                    raise BadAnswer(f"closed after {have} of {n} bytes")
                return None
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def read_packet(self):
        """Returns: (kind, subtype, payload), or None at the end."""
        head = self.read_exactly(8)
        if head is None:
            return None
        version, kind, subtype, reserved, n_bytes = struct.unpack("!4BL", head)
        if version != 0 or reserved != 0 or kind not in (ERROR, PING, INFER):
            raise BadAnswer(f"not a header: {head.hex(' ')}")
        payload = self.read_exactly(n_bytes) if n_bytes else b""
        if payload is None:
            raise BadAnswer("closed before the payload")
        if kind != INFER and payload:
            raise BadAnswer(f"a payload of {n_bytes} bytes in a packet of kind {kind}")
        if kind == ERROR and subtype >= len(ERRORS):
            raise BadAnswer(f"an error of code {subtype}")
        if kind != ERROR and subtype != RESPONSE:
            raise BadAnswer(f"an answer of subtype {subtype}")
        return kind, subtype, payload

    def read_answer(self, kind):
        packet = self.read_packet()
        if packet is None:
            raise BadAnswer("closed without an answer")
        if packet[0] == ERROR:
            raise Refused(packet[1])
        if packet[0] != kind:
            raise BadAnswer(f"an answer of kind {packet[0]} to one of kind {kind}")
        return packet[2]

    def read_inference(self, n_inputs, batch):
        """Returns: the elements; what is repeated of the request must be right."""
        answered, elements = parse_answer(self.read_answer(INFER))
        if answered != n_inputs or len(elements) != batch:
            raise BadAnswer(f"{answered} inputs and batch {len(elements)} are answered to"
                            f" {n_inputs} and {batch}")
        return elements

    def read_end(self):
        """Waits until the server ends the connection; nothing may come before that."""
        try:
            packet = self.read_packet()
        except ConnectionResetError:
            return
        if packet is not None:
            raise BadAnswer(f"a packet where the end is due: {packet}")

    def ping(self):
        self.send(PING_REQUEST)
        return self.read_answer(PING)

    def infer(self, elements):
        """Returns: for each element its outputs as values."""
        self.send(infer_request(elements))
        answer = self.read_inference(len(elements[0]), len(elements))
        return [[value_of(item) for item in element] for element in answer]

    def refusal(self, data):
        """Sends bytes that the server must refuse. Returns: the error's name."""
        self.send(data)
        try:
            packet = self.read_packet()
        except Refused as refused:
            return refused.name
        if packet is None or packet[0] != ERROR:
            raise BadAnswer(f"expected an error, got {packet}")
        return ERRORS[packet[1]]


# ---- a connection for each call, as the reference client has it ----------------------------------

def ping(url):
    with Connection(url) as connection:
        connection.ping()


def infer(url, elements):
    with Connection(url) as connection:
        return connection.infer(elements)


def refusal(url, data):
    with Connection(url) as connection:
        return connection.refusal(data)

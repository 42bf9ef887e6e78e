"""The messages between server and worker, as bytes. docs/decisions has the reasons; backends/python/wire.h is the other
side, and says what each field means.

A message is a length of 4 bytes (of all of it), a type of 4 bytes, and its body. Numbers are little-endian and not
aligned; a text is a length of 4 bytes and UTF-8."""
import struct

VERSION = 1

# to the worker
INIT = 1
EXECUTE = 2
GRANT = 3
STATE = 4
FINALIZE = 5
CHECK = 6
TOLD = 7
CALLED = 10
# to the server
READY = 64
FAILED = 65
RESULT = 66
NEED = 67
LOG = 68
FREED = 69
ASK = 70
DESCRIBED = 71
CHECKED = 72
FAMILY = 73
SERIES = 74
CHANGE = 75
VALUE = 76
CALL = 80
NEXT = 81
DROP = 82
MANAGE = 83

HEAD = struct.Struct("<II")
U8 = struct.Struct("<B")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
I64 = struct.Struct("<q")
F64 = struct.Struct("<d")
BLOCK = struct.Struct("<IQ")
EXECUTE_HEAD = struct.Struct("<IIIII")
REQUEST = struct.Struct("<QQIQQIII")
INPUT = struct.Struct("<BBQQ")
RESULT_HEAD = struct.Struct("<IBQQIII")
RESPONSE = struct.Struct("<QBB")
OUTPUT = struct.Struct("<IBBQQ")
CALL_HEAD = struct.Struct("<IQBQIQQIIIII")
FINAL_STATUS = struct.Struct("<BB")
CALLED_HEAD = struct.Struct("<IIII")

# actions of MANAGE
IS_READY, LOAD, UNLOAD = range(3)

MAX_BYTES = 1 << 26  # of a message to the server
MAX_CALL_BYTES = 1 << 20  # of CALL

# kinds of parameters, as sluice_param_kind
BOOL, INT64, UINT64, DOUBLE, STRING = range(5)

# of a response: more follow, it is the last one, the request is executed again
MORE, FINAL, RUN_AGAIN = range(3)

INT64_MAX = (1 << 63) - 1


class Reader:
    """Reads the fields of a message in their order."""

    def __init__(self, message, at=HEAD.size):
        self.message = message
        self.at = at

    def take(self, layout):
        values = layout.unpack_from(self.message, self.at)
        self.at += layout.size
        return values

    def number(self, layout):
        return self.take(layout)[0]

    def text(self):
        return self.raw().decode("utf-8", "replace")

    def raw(self):
        n = self.number(U32)
        value = bytes(self.message[self.at:self.at + n])
        self.at += n
        return value

    def dims(self, rank):
        values = struct.unpack_from(f"<{rank}q", self.message, self.at)
        self.at += 8 * rank
        return values

    def numbers(self, n):
        values = struct.unpack_from(f"<{n}I", self.message, self.at)
        self.at += 4 * n
        return values

    def param(self):
        name = self.text()
        kind = self.number(U8)
        if kind == STRING:
            return name, self.text()
        if kind == DOUBLE:
            return name, self.number(F64)
        value = self.number(U64 if kind == UINT64 else I64)
        return name, bool(value) if kind == BOOL else value


def text(value):
    """A text as the server reads it: no surrogates, which are no UTF-8."""
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
    return U32.pack(len(data)) + data


def param(name, value):
    """One parameter; raises TypeError for a value of another type."""
    head = text(name)
    if isinstance(value, bool):
        return head + U8.pack(BOOL) + I64.pack(value)
    if isinstance(value, int):
        if value > INT64_MAX:
            return head + U8.pack(UINT64) + U64.pack(value)
        return head + U8.pack(INT64) + I64.pack(value)
    if isinstance(value, float):
        return head + U8.pack(DOUBLE) + F64.pack(value)
    if isinstance(value, str):
        return head + U8.pack(STRING) + text(value)
    raise TypeError(f"parameter {name!r}: expected bool, int, float or str, got {type(value).__name__}")


def message(kind, *parts):
    body = b"".join(parts)
    return HEAD.pack(HEAD.size + len(body), kind) + body

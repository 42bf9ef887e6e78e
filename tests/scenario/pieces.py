"""Bytes, as scripts write them: text, JSON, hexadecimal, little-endian values, repeats, chunks,
compressed blocks. Bytes that a script repeats 300 million times are never made at once."""
import ast
import gzip
import struct
import zlib

from language import ScriptError

# word → struct's format of one element
NUMBERS = {
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "f16": "e", "f32": "f", "f64": "d",
}
SEND_AT_ONCE = 1 << 16


class Bytes:
    """A run of bytes: (pattern, times) pairs."""

    def __init__(self, parts=()):
        self.parts = list(parts)

    def __len__(self):
        return sum(len(pattern) * times for pattern, times in self.parts)

    def sends(self):
        """The bytes in portions that are cheap to send."""
        for pattern, times in self.parts:
            if not pattern:
                continue
            at_once = max(1, SEND_AT_ONCE // len(pattern))
            while times > 0:
                yield pattern * min(times, at_once)
                times -= at_once

    def whole(self):
        return b"".join(pattern * times for pattern, times in self.parts)


class Pause:
    def __init__(self, seconds):
        self.seconds = seconds


def fail(line, why):
    raise ScriptError(f"line {line.number}: {why}: {line.text}")


def quoted(text, line):
    """The strings of `"a" "b\\r\\n"` as bytes: \\xff is that byte, a character beyond ASCII is its
    UTF-8."""
    try:
        return [ast.literal_eval("b" + "".join(
            c if ord(c) < 128 else "".join(f"\\x{byte:02x}" for byte in c.encode())
            for c in literal)) for literal in split_quoted(text)]
    except (SyntaxError, ValueError, IndexError):
        return fail(line, 'expected "strings"')


def split_quoted(text):
    """Splits `"a" "b"` into its literals."""
    literals, at = [], 0
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        if text[at] != '"':
            raise ValueError(text)
        end = at + 1
        while text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        literals.append(text[at:end + 1])
        at = end + 1
    return literals


def bf16(text):
    """The upper half of an FP32, rounded to the nearest even as a converter would."""
    bits = struct.unpack("<I", struct.pack("<f", float(text)))[0]
    return struct.pack("<H", (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def elements(word, texts, line):
    """The little-endian bytes of a tensor's elements."""
    try:
        if word == "bool":
            return bytes({"false": 0, "true": 1}[text] for text in texts)
        if word == "bf16":
            return b"".join(map(bf16, texts))
        parse = float if word.startswith("f") else lambda text: int(text, 0)
        return struct.pack(f"<{len(texts)}{NUMBERS[word]}", *map(parse, texts))
    except (KeyError, ValueError, OverflowError, struct.error) as why:
        fail(line, f"not {word} ({why})")


def literal_text(line):
    """`json` and `text`: what follows the word, and the lines of the block, as they stand."""
    def walk(block, depth):
        for inner in block:
            yield "  " * depth + inner.text
            yield from walk(inner.block, depth + 1)
    return "\n".join([line.rest(), *walk(line.block, 0)]).strip("\n").encode()


def repeated(line):
    count, _, rest = line.rest().partition(" ")
    inner = type(line)(line.number, rest)
    inner.block = line.block
    pieces = make(inner) if rest else block_bytes(line)
    whole = b"".join(piece.whole() for piece in pieces)
    return Bytes([(whole, int(count.replace("_", "")))])


def block_bytes(line):
    return [piece for inner in line.block for piece in make(inner)]


def compressed(line):
    plain = b"".join(piece.whole() for piece in block_bytes(line))
    if line.word() == "gzip":
        return Bytes([(gzip.compress(plain, mtime=0), 1)])
    if line.word() == "deflate":
        return Bytes([(zlib.compress(plain), 1)])
    stream = zlib.compressobj(wbits=-15)
    return Bytes([(stream.compress(plain) + stream.flush(), 1)])


def chunk(line):
    """One chunk of a chunked body; what stands after `chunk` is its extension."""
    data = b"".join(piece.whole() for piece in block_bytes(line))
    return Bytes([(b"%x%s\r\n%s\r\n" % (len(data), line.rest().encode(), data), 1)])


def seconds(text):
    if text.endswith("ms"):
        return float(text[:-2]) / 1000
    return float(text.removesuffix("s"))


def make(line):
    """The pieces that a line of a block stands for: Bytes, or a Pause."""
    word = line.word()
    if word.startswith('"'):
        return [Bytes([(text, 1)]) for text in quoted(line.text, line)]
    if word in ("json", "text"):
        return [Bytes([(literal_text(line), 1)])]
    if word == "hex":
        return [Bytes([(bytes.fromhex(line.rest()), 1)])]
    if word in NUMBERS or word in ("bool", "bf16"):
        return [Bytes([(elements(word, line.words()[1:], line), 1)])]
    if word == "string":
        texts = quoted(line.rest(), line)
        return [Bytes([(b"".join(struct.pack("<I", len(t)) + t for t in texts), 1)])]
    if word == "repeat":
        return [repeated(line)]
    if word in ("gzip", "deflate", "bare-deflate"):
        return [compressed(line)]
    if word == "chunk":
        return [chunk(line)]
    if word == "pause":
        return [Pause(seconds(line.rest()))]
    return fail(line, f"expected bytes, got the word {word!r}")


def is_piece(line):
    return line.word().startswith('"') or line.word() in (
        "json", "text", "hex", "bool", "bf16", "string", "repeat", "gzip", "deflate",
        "bare-deflate", "chunk", "pause", *NUMBERS)


def header_length(lines):
    """Bytes of the JSON in front of other pieces; None where there is nothing behind it. A compressed
    block counts as what is in it."""
    if len(lines) == 1 and lines[0].word() in ("gzip", "deflate", "bare-deflate"):
        return header_length(lines[0].block)
    n_json = 0
    while n_json < len(lines) and lines[n_json].word() == "json":
        n_json += 1
    if n_json == 0 or n_json == len(lines):
        return None
    return sum(len(piece) for line in lines[:n_json] for piece in make(line))

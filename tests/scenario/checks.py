"""What a script says of an answer, and what is checked of every answer without being said: its
framing, its type, the form of errors, and that binary sizes add up to the body."""
import json
import math
import re
import struct

import pieces
from language import ScriptError

from lib.http1 import BadAnswer

PATH_PART = re.compile(r"([A-Za-z0-9_]+)|\[([0-9]+)\]|\.")
ABSENT = object()


def no_twins(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise BadAnswer(f"an object with a key twice: {pairs}")
    return dict(pairs)


def parse_json(data):
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=no_twins)
    except ValueError as why:
        raise BadAnswer(f"not JSON ({why}): {data[:500]!r}") from None


def same(got, wanted):
    """Equal as JSON values: true is not 1, but 1.0 is; NaN is NaN."""
    if isinstance(wanted, bool) or isinstance(got, bool):
        return got is wanted
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, dict):
        return isinstance(got, dict) and got.keys() == wanted.keys() and all(
            same(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(got, float) and math.isnan(got)
    return got == wanted


def find(value, path):
    """`outputs[0].shape` in a tree; ABSENT where there is none."""
    at = 0
    while at < len(path):
        match = PATH_PART.match(path, at)
        if not match:
            raise ScriptError(f"not a path: {path}")
        at = match.end()
        key = match[1] if match[1] is not None else match[2] and int(match[2])
        if key is None:
            continue
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return value


class Seen:
    """An answer taken apart: `tree` is its JSON, `tail` the bytes behind that."""

    def __init__(self, answer, method):
        self.answer = answer
        self.head_only = method == "HEAD"
        self.tree = ABSENT
        self.tail = b""
        self.slices = {}
        self.body = answer.plain_body()
        kind = answer.get("Content-Type")
        length = answer.get("Inference-Header-Content-Length")
        if self.head_only or answer.status < 200:
            return
        if length is not None:
            self.need(kind == "application/octet-stream", f"Content-Type {kind} with a tail")
            self.need(re.fullmatch("[0-9]+", length) and int(length) < len(self.body),
                      f"Inference-Header-Content-Length {length} of {len(self.body)} bytes")
            self.tree = parse_json(self.body[:int(length)])
            self.tail = self.body[int(length):]
            self.cut()
        elif kind == "application/json":
            self.tree = parse_json(self.body)
            self.cut()
        else:
            self.need(kind is None or kind.startswith("text/plain"), f"Content-Type {kind}")

    def need(self, true, what):
        if not true:
            raise BadAnswer(f"{what}: {self.answer}")

    def outputs(self):
        outputs = find(self.tree, "outputs")
        return [] if outputs is ABSENT or isinstance(self.tree["outputs"][:1], str) else [
            output for output in outputs if isinstance(output, dict)]

    def cut(self):
        """Gives each output its bytes of the tail, in order, until nothing is left."""
        at = 0
        for output in self.outputs():
            size = find(output, "parameters.binary_data_size")
            if size is not ABSENT:
                self.need(isinstance(size, int) and "data" not in output, f"binary_data_size {size}")
                self.slices[output["name"]] = self.tail[at:at + size]
                at += size
        self.need(at == len(self.tail), f"{at} bytes by the JSON, {len(self.tail)} by the body")

    def check_error(self):
        self.need(isinstance(self.tree, dict) and list(self.tree) == ["error"] and
                  isinstance(self.tree["error"], str) and self.tree["error"],
                  'an error that is not {"error": "…"}')

    def output(self, name):
        for output in self.outputs():
            if output["name"] == name:
                return output
        raise BadAnswer(f"no output {name} in {self.answer}")


def fail(seen, line, got):
    raise AssertionError(f"line {line.number}: expected {line.text}\n  got {got!r}\n"
                         f"  in {seen.answer}")


def expected_json(text, line):
    try:
        return json.loads(text)
    except ValueError:
        raise ScriptError(f"line {line.number}: not JSON: {text}") from None


def check_header(seen, line, rest):
    name, colon, value = rest.partition(":")
    got = seen.answer.get(name.strip())
    if got is None or (colon and got != value.strip()):
        fail(seen, line, got)


def check_no(seen, line, rest):
    word, _, name = rest.partition(" ")
    if word == "header":
        if seen.answer.get(name) is not None:
            fail(seen, line, seen.answer.get(name))
    elif word == "body":
        if seen.answer.body:
            fail(seen, line, seen.answer.body)
    elif word == "tail":
        if seen.tail:
            fail(seen, line, seen.tail)
    elif word == "json":
        if find(seen.tree, name) is not ABSENT:
            fail(seen, line, find(seen.tree, name))
    else:
        raise ScriptError(f"line {line.number}: no what? header, json, body or tail")


def compare(seen, line, got, sign, value):
    """`= JSON` or `~ "strings that it contains"`."""
    if sign == "=":
        if got is ABSENT or not same(got, expected_json(value, line)):
            fail(seen, line, None if got is ABSENT else got)
    elif sign == "~":
        text = got if isinstance(got, str) else ""
        for part in pieces.quoted(value, line):
            if part.decode() not in text:
                fail(seen, line, None if got is ABSENT else got)
    else:
        raise ScriptError(f"line {line.number}: expected = or ~ before the value")


def check_json(seen, line, rest):
    path, sign, value = (rest.split(None, 2) + ["", ""])[:3]
    compare(seen, line, find(seen.tree, path), sign, value)


def check_error(seen, line, rest):
    seen.check_error()
    for part in pieces.quoted(rest, line):
        if part.decode() not in seen.tree["error"]:
            fail(seen, line, seen.tree["error"])


def check_output(seen, line, rest):
    """`output NAME = JSON` for its data, or `output NAME` and bytes, as pieces on the line."""
    name, _, value = rest.partition(" ")
    output = seen.output(name)
    if value.startswith("= "):
        compare(seen, line, output.get("data", ABSENT), "=", value[2:])
        return
    wanted = b"".join(piece.whole() for piece in pieces.make(type(line)(line.number, value)))
    if name not in seen.slices or seen.slices[name] != wanted:
        fail(seen, line, seen.slices.get(name))


def round_to(datatype, value):
    """The bytes of the value nearest to `value` in a float datatype."""
    if datatype == "BF16":
        return pieces.bf16(value)
    return struct.pack({"FP16": "<e", "FP32": "<f", "FP64": "<d"}[datatype], value)


def check_rounded(seen, line, rest):
    """`rounded NAME = JSON`: equal to the bit, once rounded to the output's datatype."""
    name, _, value = rest.split(None, 2)
    output = seen.output(name)
    bits = [[round_to(output["datatype"], float(number)) for number in numbers]
            for numbers in (output.get("data", []), expected_json(value, line))]
    if bits[0] != bits[1]:
        fail(seen, line, output.get("data"))


def check_outputs(seen, line, rest):
    got = [output["name"] for output in seen.outputs()]
    if got != rest.split():
        fail(seen, line, got)


def check_shape(seen, line, rest):
    """`shape NAME = JSON`."""
    name, sign, value = rest.split(None, 2)
    compare(seen, line, seen.output(name).get("shape", ABSENT), sign, value)


def check_body(seen, line, rest):
    """`body = "…"` all of it, `body ~ "…" "…"` parts of it."""
    sign, _, value = rest.partition(" ")
    parts = pieces.quoted(value, line)
    if sign == "=" and seen.body != b"".join(parts):
        fail(seen, line, seen.body)
    if sign == "~" and not all(part in seen.body for part in parts):
        fail(seen, line, seen.body)


def check_tail(seen, line, _):
    wanted = b"".join(piece.whole() for inner in line.block for piece in pieces.make(inner))
    if seen.tail != wanted:
        fail(seen, line, seen.tail)


CHECKS = {
    "header": check_header,
    "no": check_no,
    "json": check_json,
    "error": check_error,
    "output": check_output,
    "rounded": check_rounded,
    "outputs": check_outputs,
    "shape": check_shape,
    "body": check_body,
    "tail": check_tail,
}


def check(answer, method, block):
    """Holds an answer to what is always so, and to the lines of an `expect`."""
    seen = Seen(answer, method)
    speaks_of_json = any(line.word() == "json" for line in block)
    if answer.status >= 400 and not seen.head_only and not speaks_of_json:
        seen.check_error()
    for line in block:
        if line.word() not in CHECKS:
            raise ScriptError(f"line {line.number}: {line.word()!r} is none of"
                              f" {', '.join(CHECKS)}")
        CHECKS[line.word()](seen, line, line.rest())

"""Runs a case: sends what it says on connections of its own, holds the answers to what it expects, and
then proves with the server's own gauges that nothing was lost. README.md is the language's page."""
import operator
import signal
import time

import checks
import pieces
from language import ScriptError

from lib import http1, metrics

GOOD = (b'{"id":"good","inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1,2,3]}]}')
METHODS = ("get", "head", "post", "put", "delete", "patch", "options", "trace", "connect")
SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT}
COMPARE = {"=": operator.eq, ">=": operator.ge, "<": operator.lt}
# A server that takes nothing for so long (seconds) has stopped reading.
TAKES_NO_MORE = 1.0


def good_bytes():
    return (b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: %d\r\n\r\n" % len(GOOD)) + GOOD


def check_good(connection):
    """A good request, which must be answered well on this connection."""
    connection.send(good_bytes())
    answer = connection.read_answer("POST")
    seen = checks.Seen(answer, "POST")
    if answer.status != 200 or not checks.same(seen.output("OUTPUT0")["data"], [1, 2, 3]):
        raise AssertionError(f"a good request was answered with {answer}")


class Request:
    """The block below `post /path`: its fields, its body and how it is sent."""

    def __init__(self, line):
        words = line.words()
        self.method = words[0].upper()
        self.target = words[1]
        self.version = words[2] if len(words) > 2 else "HTTP/1.1"
        self.fields = []
        self.without = set()
        self.chunk_bytes = None
        self.bytewise = False
        self.body_lines = []
        for inner in line.block:
            self.take(inner)

    def take(self, line):
        word = line.word()
        if pieces.is_piece(line):
            self.body_lines.append(line)
        elif word == "header":
            name, _, value = line.rest().partition(":")
            self.fields.append((name.strip(), value.strip()))
        elif word == "without":
            self.without.add(line.rest().lower())
        elif word == "chunked":
            self.chunk_bytes = int(line.rest() or 4096)
        elif word == "bytewise":
            self.bytewise = True
        else:
            raise ScriptError(f"line {line.number}: {word!r} says nothing about a request")

    def default_fields(self, body):
        yield "Host", "localhost"
        length = pieces.header_length(self.body_lines)
        if length is not None:
            yield "Inference-Header-Content-Length", str(length)
        if self.chunk_bytes is not None:
            yield "Transfer-Encoding", "chunked"
        elif self.body_lines or self.method == "POST":
            yield "Content-Length", str(sum(len(piece) for piece in body
                                            if isinstance(piece, pieces.Bytes)))

    def head(self, body):
        given = {name.lower() for name, _ in self.fields}
        fields = [(name, value) for name, value in self.default_fields(body)
                  if name.lower() not in given and name.lower() not in self.without]
        lines = [f"{self.method} {self.target} {self.version}"]
        lines += [f"{name}: {value}" for name, value in fields + self.fields]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def portions(self):
        """What is sent, in portions and pauses."""
        body = [piece for line in self.body_lines for piece in pieces.make(line)]
        if self.bytewise:
            whole = self.head(body) + b"".join(piece.whole() for piece in body)
            yield from (whole[i:i + 1] for i in range(len(whole)))
            return
        yield self.head(body)
        if self.chunk_bytes is not None:
            yield from self.chunks(b"".join(piece.whole() for piece in body))
            return
        for piece in body:
            yield from portions_of(piece)

    def chunks(self, body):
        """Chunks of the size said, many to a send."""
        size = self.chunk_bytes
        out = bytearray()
        for at in range(0, len(body), size):
            data = body[at:at + size]
            out += b"%x\r\n%s\r\n" % (len(data), data)
            if len(out) > pieces.SEND_AT_ONCE:
                yield bytes(out)
                out.clear()
        yield bytes(out) + b"0\r\n\r\n"


def portions_of(piece):
    if isinstance(piece, pieces.Pause):
        yield piece
    else:
        yield from piece.sends()


def send_all(connection, portions):
    for portion in portions:
        if isinstance(portion, pieces.Pause):
            time.sleep(portion.seconds)
        else:
            connection.send(portion)


class Link:
    """A connection of a case and the methods that await an answer on it."""

    def __init__(self, address):
        self.connection = http1.Connection(address)
        self.methods = []


class Run:
    def __init__(self, case, server):
        self.case = case
        self.server = server
        self.links = {}
        self.current = "first"

    def link(self):
        if self.current not in self.links:
            self.links[self.current] = Link(self.server.address)
        return self.links[self.current]

    def run(self):
        try:
            for line in self.case.statements:
                self.step(line)
        finally:
            for link in self.links.values():
                link.connection.close()
        if self.server.process.poll() is None:
            self.check_afterwards()

    def check_afterwards(self):
        """The server is alive, answers well, holds nothing and logged no error."""
        http1.wait_for_status(self.server.address, 200, "/v2/health/live")
        with http1.Connection(self.server.address) as connection:
            check_good(connection)
        self.server.wait_at_rest()
        self.server.check_log()

    def step(self, line):
        word = line.word()
        if word in METHODS:
            request = Request(line)
            self.link().methods.append(request.method)
            send_all(self.link().connection, request.portions())
        elif word in STATEMENTS:
            STATEMENTS[word](self, line)
        else:
            raise ScriptError(f"line {line.number}: {word!r} is no statement")

    def raw(self, line):
        for inner in line.block:
            for piece in pieces.make(inner):
                send_all(self.link().connection, portions_of(piece))

    def connection(self, line):
        self.current = line.rest()

    def expect(self, line):
        words = line.words()[1:]
        link = self.link()
        if words == ["closed"]:
            self.expect_closed(line, link.connection)
            return
        statuses = [int(status) for status in words[0].split("|")]
        method = "HEAD" if "head" in words else "GET"
        if link.methods:
            method = link.methods[0] if statuses[0] < 200 else link.methods.pop(0)
        answer = link.connection.read_answer(method)
        if answer.status not in statuses:
            raise AssertionError(f"line {line.number}: expected {words[0]}, got {answer}")
        checks.check(answer, method, line.block)
        if "closes" in words:
            if not answer.says_close():
                raise AssertionError(f"line {line.number}: no Connection: close in {answer}")
            self.expect_closed(line, link.connection)
        elif "stays" in words:
            if answer.says_close():
                raise AssertionError(f"line {line.number}: Connection: close in {answer}")
            check_good(link.connection)

    def answers(self, line):
        """`answers 100 200`: a hundred answers to GET, each with the status 200."""
        count, status = map(int, line.words()[1:])
        for _ in range(count):
            answer = self.link().connection.read_answer("GET")
            if answer.status != status:
                raise AssertionError(f"line {line.number}: expected {status}, got {answer}")

    def expect_closed(self, line, connection):
        rest = connection.read_end()
        if rest:
            raise AssertionError(f"line {line.number}: expected the end, got {rest[:500]!r}")

    def good(self, _):
        check_good(self.link().connection)

    def hang_up(self, line):
        """`hang-up`: the client goes away; `hang-up reset`: with a reset; `hang-up half`: it only
        ends its own side."""
        connection = self.link().connection
        how = line.rest()
        if how == "half":
            connection.half_close()
            return
        if how == "reset":
            connection.reset()
        else:
            connection.close()
        del self.links[self.current]

    def flood(self, line):
        """`flood N` and a request: sends it N times, or until the server takes no more of it."""
        request = b"".join(portion for inner in line.block for portion in Request(inner).portions())
        n, at_once = int(line.rest()), max(1, pieces.SEND_AT_ONCE // len(request))
        sock = self.link().connection.sock
        sock.settimeout(TAKES_NO_MORE)
        try:
            for sent in range(0, n, at_once):
                sock.sendall(request * min(at_once, n - sent))
        except TimeoutError:
            pass
        sock.settimeout(http1.PATIENCE)

    def metric(self, line):
        """`metric NAME >= N`: waits until it is so."""
        name, sign, value = line.rest().split()
        if sign not in COMPARE:
            raise ScriptError(f"line {line.number}: expected one of {', '.join(COMPARE)}")
        metrics.wait_until(self.server.address,
                           lambda numbers: COMPARE[sign](numbers[name], float(value)), line.text)

    def eventually(self, line):
        """`eventually 503 /path`: the server may need a moment until it answers so."""
        status, target = line.rest().split()
        checks.check(http1.wait_for_status(self.server.address, int(status), target), "GET",
                     line.block)

    def signal(self, line):
        self.server.signal(SIGNALS[line.rest()])

    def exit(self, line):
        """`exit 0`: the server ends by itself, with that code."""
        code = self.server.wait_exit()
        if code != int(line.rest()):
            raise AssertionError(f"line {line.number}: exit code {code}\n{self.server.log_text()}")
        self.server.check_log()

    def pause(self, line):
        time.sleep(pieces.seconds(line.rest()))

    def log(self, line):
        """`log error "text"`: an error that holds it is expected, and must be there."""
        text = pieces.quoted(line.rest().removeprefix("error "), line)[0].decode()
        self.server.expect_error(text)
        self.server.wait_for(lambda: text in self.server.log_text(), line.text)


STATEMENTS = {
    "raw": Run.raw,
    "connection": Run.connection,
    "expect": Run.expect,
    "answers": Run.answers,
    "good": Run.good,
    "hang-up": Run.hang_up,
    "flood": Run.flood,
    "metric": Run.metric,
    "eventually": Run.eventually,
    "signal": Run.signal,
    "exit": Run.exit,
    "pause": Run.pause,
    "log": Run.log,
}

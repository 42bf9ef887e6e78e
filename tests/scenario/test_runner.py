"""The scripts' own test: a server of a few lines says right and wrong things, and the runner must tell
one from the other. A check that cannot fail is worse than none."""
import re
import socket
import threading

import pytest

import language
import pieces
import runner

from lib.http1 import BadAnswer, Closed

GOOD = (b'{"model_name":"id_fp32","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[3],'
        b'"data":[1,2,3]}]}')
ERROR = b'{"error":"inputs[0] is wrong"}'
METRICS = b"".join(b"%s %d\n" % (name.encode(), n) for name, n in (
    ("sluice_requests_in_flight", 1), ("sluice_body_bytes_in_flight", 0),
    ("sluice_outputs_held", 0), ("sluice_connections", 1), ("sluice_arenas", 5)))


def answer(status, body=b"", *fields):
    lines = [f"HTTP/1.1 {status} Reason", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_answer(status, body, *fields):
    return answer(status, body, "Content-Type: application/json", *fields)


class Process:
    def poll(self):
        return None


class FakeServer:
    """Says `canned`, one after the other, to what it is asked, and ends a connection where that is
    None; knows health, /metrics and the runner's good request."""

    def __init__(self, *canned):
        self.canned = list(canned)
        self.heard = []
        self.process = Process()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        pending = b""
        with connection:
            while True:
                while not (request := self.cut(pending)):
                    try:
                        data = connection.recv(65536)
                    except ConnectionResetError:
                        data = b""
                    if not data:
                        return
                    pending += data
                pending = pending[len(request):]
                reply = self.reply(request)
                if reply is None:
                    return
                connection.sendall(reply)
                if b"Connection: close" in reply:
                    return

    @staticmethod
    def cut(data):
        head, end, _ = data.partition(b"\r\n\r\n")
        if not end:
            return b""
        length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)", head)
        whole = len(head) + 4 + (int(length[1]) if length else 0)
        return data[:whole] if len(data) >= whole else b""

    def reply(self, request):
        if request.startswith(b"GET /v2/health/live "):
            return answer(200)
        if request.startswith(b"GET /metrics "):
            return answer(200, METRICS)
        if request == runner.good_bytes():
            return json_answer(200, GOOD)
        self.heard.append(request)
        return self.canned.pop(0) if self.canned else None

    def wait_at_rest(self):
        pass

    def check_log(self):
        pass


@pytest.fixture
def play():
    """play(script, canned answers…) runs a script of one case. Returns: the server."""
    servers = []

    def run(text, *canned):
        server = FakeServer(*canned)
        servers.append(server)
        script = language.read_script("case one\n" + text, "inline")
        runner.Run(script.cases[0], server).run()
        return server
    yield run
    for server in servers:
        server.listener.close()


BINARY = (b'{"outputs":[{"name":"A","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}},'
          b'{"name":"B","datatype":"UINT8","shape":[1],"data":[7]},'
          b'{"name":"C","datatype":"UINT8","shape":[1],"parameters":{"binary_data_size":1}}]}')


def binary_answer(tail, length=len(BINARY), kind="application/octet-stream"):
    return answer(200, BINARY + tail, f"Content-Type: {kind}",
                  f"Inference-Header-Content-Length: {length}")


GET = "    get /x\n"
# (what it is about, the `expect` block, the server's answer, is that answer as expected?)
TABLE = [
    ("status", "expect 200", answer(200), True),
    ("status", "expect 200", answer(204), False),
    ("status", "expect 200", json_answer(400, ERROR), False),
    ("one of two", "expect 400|413", json_answer(413, ERROR), True),
    ("one of two", "expect 400|413", json_answer(431, ERROR), False),
    ("error", 'expect 400\n  error "inputs[0]" "wrong"', json_answer(400, ERROR), True),
    ("error", 'expect 400\n  error "outputs"', json_answer(400, ERROR), False),
    ("error form", "expect 400", json_answer(400, b'{"message":"x"}'), False),
    ("error form", "expect 400", json_answer(400, b'{"error":""}'), False),
    ("error form", "expect 400", json_answer(400, b'{"error":"a","more":1}'), False),
    ("error type", "expect 400", answer(400, ERROR, "Content-Type: text/plain"), False),
    ("error, not JSON", "expect 400", json_answer(400, b'{"error":"\xff"}'), False),
    ("key twice", "expect 200", json_answer(200, b'{"a":1,"a":1}'), False),
    ("header", "expect 200\n  header X-A: b", answer(200, b"", "X-A: b"), True),
    ("header", "expect 200\n  header x-a: b", answer(200, b"", "X-A: b"), True),
    ("header", "expect 200\n  header X-A: b", answer(200, b"", "X-A: c"), False),
    ("header", "expect 200\n  header X-A: b", answer(200), False),
    ("header is there", "expect 200\n  header X-A", answer(200, b"", "X-A: c"), True),
    ("header is there", "expect 200\n  header X-A", answer(200), False),
    ("header twice", "expect 200\n  header X-A: b", answer(200, b"", "X-A: b", "X-A: b"), False),
    ("no header", "expect 200\n  no header X-A", answer(200), True),
    ("no header", "expect 200\n  no header X-A", answer(200, b"", "X-A: b"), False),
    ("json", "expect 200\n  json a.b[1] = true", json_answer(200, b'{"a":{"b":[0,true]}}'), True),
    ("json kind", "expect 200\n  json a = true", json_answer(200, b'{"a":1}'), False),
    ("json kind", "expect 200\n  json a = 1", json_answer(200, b'{"a":true}'), False),
    ("json kind", 'expect 200\n  json a = "1"', json_answer(200, b'{"a":1}'), False),
    ("json order", "expect 200\n  json a = [1,2]", json_answer(200, b'{"a":[2,1]}'), False),
    ("json longer", "expect 200\n  json a = [1]", json_answer(200, b'{"a":[1,2]}'), False),
    ("json more", 'expect 200\n  json a = {"b":1}', json_answer(200, b'{"a":{"b":1,"c":2}}'), False),
    ("json absent", "expect 200\n  json b = 1", json_answer(200, b'{"a":1}'), False),
    ("json 64 bits", "expect 200\n  json a = 9007199254740993",
     json_answer(200, b'{"a":9007199254740992}'), False),
    ("json ~", 'expect 200\n  json a ~ "b" "c"', json_answer(200, b'{"a":"abc"}'), True),
    ("json ~", 'expect 200\n  json a ~ "b" "d"', json_answer(200, b'{"a":"abc"}'), False),
    ("no json", "expect 200\n  no json a", json_answer(200, b"{}"), True),
    ("no json", "expect 200\n  no json a", json_answer(200, b'{"a":null}'), False),
    ("not JSON", "expect 200", json_answer(200, b"{"), False),
    ("body", 'expect 200\n  body = "ab"', answer(200, b"ab"), True),
    ("body", 'expect 200\n  body = "ab"', answer(200, b"abc"), False),
    ("body ~", 'expect 200\n  body ~ "b" "a"', answer(200, b"ab"), True),
    ("body ~", 'expect 200\n  body ~ "c"', answer(200, b"ab"), False),
    ("no body", "expect 200\n  no body", answer(200, b"ab"), False),
    ("binary", "expect 200\n  output A u8 1 2\n  output B = [7]\n  output C u8 3\n  outputs A B C\n"
     "  shape A = [2]\n  tail\n    u8 1 2 3", binary_answer(b"\1\2\3"), True),
    ("binary bytes", "expect 200\n  output A u8 1 2", binary_answer(b"\1\3\3"), False),
    ("binary as JSON", "expect 200\n  output A = [1, 2]", binary_answer(b"\1\2\3"), False),
    ("JSON as binary", "expect 200\n  output B u8 7", binary_answer(b"\1\2\3"), False),
    ("order of outputs", "expect 200\n  outputs A C B", binary_answer(b"\1\2\3"), False),
    ("tail", "expect 200\n  tail\n    u8 1 2", binary_answer(b"\1\2\3"), False),
    ("a byte too few", "expect 200", binary_answer(b"\1\2"), False),
    ("a byte too many", "expect 200", binary_answer(b"\1\2\3\4"), False),
    ("header's length", "expect 200", binary_answer(b"\1\2\3", len(BINARY) + 1), False),
    ("type of binary", "expect 200", binary_answer(b"\1\2\3", kind="application/json"), False),
    ("rounded", "expect 200\n  rounded A = [0.1, -0.0]", json_answer(
        200, b'{"outputs":[{"name":"A","datatype":"FP32","data":[0.10000000149,-0.0]}]}'), True),
    ("rounded", "expect 200\n  rounded A = [0.1]", json_answer(
        200, b'{"outputs":[{"name":"A","datatype":"FP32","data":[0.1000001]}]}'), False),
    ("rounded sign", "expect 200\n  rounded A = [-0.0]", json_answer(
        200, b'{"outputs":[{"name":"A","datatype":"FP32","data":[0]}]}'), False),
    ("stays", "expect 200 stays", answer(200), True),
    ("stays, says close", "expect 200 stays", answer(200, b"", "Connection: close"), False),
    ("closes", "expect 200 closes", answer(200, b"", "Connection: close"), True),
    ("closes, says nothing", "expect 200 closes", answer(200), False),
    ("closed", "expect closed", None, True),
    ("closed, but answers", "expect closed", answer(200, b"", "Connection: close"), False),
    ("answers, but closed", "expect 200", None, False),
    ("a second answer", "expect 200 closes",
     answer(200) + answer(200, b"", "Connection: close"), False),
    ("bare LF", "expect 200", b"HTTP/1.1 200 OK\nConnection: close\nContent-Length: 0\n\n",
     False),
    ("no length", "expect 200 closes", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", False),
    ("short body", "expect 200 closes",
     b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nabc", False),
    ("length twice", "expect 200", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
     False),
    ("wrong coding", "expect 200", answer(200, b"abc", "Content-Encoding: gzip"), False),
]


@pytest.mark.parametrize("what, block, said, fits", TABLE,
                         ids=[f"{row[0]}: {'right' if row[3] else 'wrong'} {number}"
                              for number, row in enumerate(TABLE)])
def test_expectations(play, what, block, said, fits):
    text = GET + "    " + block.replace("\n", "\n    ") + "\n"
    if fits:
        play(text, said)
    else:
        with pytest.raises((AssertionError, BadAnswer, Closed)):
            play(text, said)


def test_what_is_sent(play):
    server = play("""
    post /v2/models/m/infer
        json {"a":
            1}
        f32 1 -0.5
        string "ab" ""
    expect 200
    post /x
        chunked 2
        header Host: other
        "abc\\r\\n\\xff ü"
    expect 200
    """, answer(200), answer(200))
    assert server.heard[0] == (
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Inference-Header-Content-Length: 8\r\nContent-Length: 26\r\n\r\n"
        b'{"a":\n1}\0\0\x80\x3f\0\0\0\xbf\2\0\0\0ab\0\0\0\0')
    assert server.heard[1] == (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                               b"Host: other\r\n\r\n")


def test_a_table_makes_cases():
    script = language.read_script("case <a>, <b>, <c>\n each a | b\n  1 | 2\n  3 |\n each c\n  x\n  y\n"
                                  " get /<a><b><c>\n", "inline")
    assert [case.title for case in script.cases] == ["1, 2, x", "1, 2, y", "3, , x", "3, , y"]
    assert [case.statements[0].text for case in script.cases] == [
        "get /12x", "get /12y", "get /3x", "get /3y"]


@pytest.mark.parametrize("text", [
    "get /x\n", "case a\n", "case a\n\tget /x\n", "case a\n get /x\ncase a\n get /x\n",
    "case a\n each a | b\n  1\n get /x\n", "",
])
def test_scripts_that_are_none(text):
    with pytest.raises(language.ScriptError):
        language.read_script(text, "inline")


@pytest.mark.parametrize("statement", ["frobnicate", "expect 200\n        frobnicate 1",
                                       "get /y\n        frobnicate"])
def test_words_that_are_none(play, statement):
    with pytest.raises(language.ScriptError):
        play(GET + "    " + statement, answer(200))


@pytest.mark.parametrize("line, wanted", [
    ('"a\\x00\\xff\\n" "ü"', b"a\0\xff\n\xc3\xbc"),
    ("hex 00 ff", b"\0\xff"),
    ("u16 1 0x102", b"\1\0\2\1"),
    ("i8 -1", b"\xff"),
    ("f16 1", b"\0\x3c"),
    ("bf16 0.1 -1", b"\xcd\x3d\x80\xbf"),
    ("bool true false", b"\1\0"),
    ('string "a" ""', b"\1\0\0\0a\0\0\0\0"),
    ('repeat 3 "ab"', b"ababab"),
    ("repeat 2 hex 01", b"\1\1"),
    ("repeat 2\n  u8 1\n  u8 2", b"\1\2\1\2"),
    ("chunk ;a=b\n  \"abc\"", b"3;a=b\r\nabc\r\n"),
    ("json {\n  \"a\": 1\n    }", b'{\n"a": 1\n  }'),
])
def test_pieces(line, wanted):
    made = pieces.make(language.read_lines(line, "inline")[0])
    assert b"".join(piece.whole() for piece in made) == wanted

"""`sluice infer` over MIP, against a small server that sees what came: items of each kind from each
source, the answer as lines and as files, errors in words; the dry run's bytes, and its command run by a
shell."""
import json
import os
import re
import socket
import subprocess

import pytest

from lib import http1
from lib.mip_server import (ERROR, HEADER, IMAGE, INFER, INFERENCE, ITEM, JSON, RESPONSE, TEXT,
                            MipServer, Refuse, exactly)
from lib.server import ROOT, binary

PNG = b"\x89PNG\r\n\x1a\nnot much of a picture"
JPEG = b"\xff\xd8\xff\xe0 nor this"


class Echo(MipServer):
    """Answers each item with itself and keeps what came: `elements`, and `packets` in whole."""

    def __init__(self, path=None, outputs=None):
        self.elements = []
        self.packets = []
        self.outputs = outputs or (lambda items: items)
        super().__init__(self.keep, path)

    def keep(self, items):
        self.elements.append(items)
        return self.outputs(items)

    def answer(self, stream):
        head = stream.peek(HEADER.size)[:HEADER.size]
        self.packets.append(head)
        return super().answer(stream)

    def infer(self, payload):
        self.packets[-1] += payload
        return super().infer(payload)


class Fixed(MipServer):
    """Answers whatever comes with these bytes."""

    def __init__(self, reply):
        self.reply = reply
        super().__init__(None)

    def answer(self, stream):
        exactly(stream, HEADER.unpack(exactly(stream, HEADER.size))[4])
        return self.reply


@pytest.fixture
def infer(tmp_path):
    """infer(url, flag, …): `sluice infer` in a folder of the test's own, which holds some files."""
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "it's.jpg").write_bytes(JPEG)
    (tmp_path / "b.txt").write_text("grüße\n", encoding="utf-8")
    (tmp_path / "c.json").write_text('{"k": [1,\n 2.50]}\n')

    def run(url, *args, stdin=b""):
        return subprocess.run([binary(), "infer", url, *map(str, args)], input=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              timeout=http1.PATIENCE, cwd=tmp_path)

    def ok(url, *args, stdin=b""):
        done = run(url, *args, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        return done.stdout.decode()
    run.ok = ok
    run.here = tmp_path
    return run


def refused(done, code, *says):
    assert done.returncode == code and done.stdout == b"", done
    for text in says:
        assert text in done.stderr.decode(), done.stderr


# ---- items there, lines back ----------------------------------------------------------------------


def test_infer_mip_item_is_one_line(infer):
    labels = b'{"7":0.98,\n "1":1e-2}'
    with Echo(outputs=lambda items: [(JSON, labels)]) as server:
        assert infer.ok(server.url, "--image", "a.png") == '{"7": 0.98, "1": 1e-2}\n'
        assert server.elements == [[(IMAGE, PNG)]]


def test_infer_mip_each_kind_from_each_source(infer):
    with Echo() as server:
        out = infer.ok(server.url, "--text", "hello", "--json", "[1,2]", "--text", "@b.txt", "--json",
                       "@c.json", "--text", "-", "--json", '"x"', "--text=",
                       stdin='"ä"\n\\'.encode())
        assert server.elements == [
            [(TEXT, b"hello")], [(JSON, b"[1,2]")], [(TEXT, "grüße\n".encode())],
            [(JSON, b'{"k": [1,\n 2.50]}\n')], [(TEXT, '"ä"\n\\'.encode())], [(JSON, b'"x"')],
            [(TEXT, b"")]]
    assert out == '"hello"\n[1, 2]\n"grüße\\n"\n{"k": [1, 2.50]}\n"\\"ä\\"\\n\\\\"\n"x"\n""\n'
    assert [json.loads(line) for line in out.splitlines()] == [
        "hello", [1, 2], "grüße\n", {"k": [1, 2.5]}, '"ä"\n\\', "x", ""]


def test_infer_mip_picture_is_sent_unchanged(infer):
    with Echo(outputs=lambda items: [(TEXT, b"seen")]) as server:
        out = infer.ok(server.url, "--image", "a.png", "--image", "it's.jpg", "--image", "-",
                       stdin=PNG * 10000)
        assert out == '"seen"\n' * 3
        assert server.elements == [[(IMAGE, PNG)], [(IMAGE, JPEG)], [(IMAGE, PNG * 10000)]]


def test_infer_mip_several_inputs_and_outputs(infer):
    def add(items):
        total = [sum(pair) for pair in zip(*(json.loads(data) for _, data in items))]
        return [(JSON, json.dumps(total).encode()), (TEXT, b"sum")]
    with Echo(outputs=add) as server:
        out = infer.ok(server.url, "--inputs", 2, "--json", "[1,2]", "--json", "[3,4]", "--json",
                       "[5,6]", "--json", "[7,8]")
        assert out == '[[4, 6], "sum"]\n[[12, 14], "sum"]\n'
        assert server.elements == [[(JSON, b"[1,2]"), (JSON, b"[3,4]")],
                                   [(JSON, b"[5,6]"), (JSON, b"[7,8]")]]


def test_infer_mip_large_batch(infer):
    with Echo() as server:
        args = [arg for i in range(10000) for arg in ("--json", i)]
        assert infer.ok(server.url, *args) == "".join(f"{i}\n" for i in range(10000))
        assert len(server.elements) == 10000 and server.n_requests == 1


def test_infer_mip_over_unix_socket(infer, tmp_path):
    with Echo(tmp_path / "socket") as server:
        assert infer.ok(server.url, "--json", "1") == "1\n"
        assert infer.ok("unix://socket", "--json", "2") == "2\n" # relative, as in the reference


# ---- files ----------------------------------------------------------------------------------------


def test_infer_mip_output_to_files(infer):
    with Echo() as server:
        assert infer.ok(server.url, "--json", "[1,2]", "-o", "lines") == ""
        assert (infer.here / "lines").read_text() == "[1, 2]\n"
        raw = ["--format", "raw"]
        assert infer.ok(server.url, "--json", "[1,2]", *raw, "-o", "-") == "[1,2]"
        infer.ok(server.url, "--image", "a.png", *raw, "-o", "back.png")
        assert (infer.here / "back.png").read_bytes() == PNG
        done = infer(server.url, "--inputs", 2, "--image", "a.png", "--text", "1", "--image", "it's.jpg",
                     "--json", "2", *raw, "--output-dir", "out")
        names = ["0-0.png", "0-1.txt", "1-0.jpg", "1-1.json"]
        assert done.returncode == 0 and done.stdout == b""
        assert done.stderr.decode().split() == [f"out/{name}" for name in names]
        assert [(infer.here / "out" / name).read_bytes() for name in names] == [PNG, b"1", JPEG, b"2"]
        refused(infer(server.url, "--text", 1, "--text", 2, *raw, "-o", "one"), 2, "2 items",
                "--output-dir")
        assert not (infer.here / "one").exists()


def test_infer_mip_non_json_output_is_refused(infer):
    for item, says in (((IMAGE, PNG), "picture"), ((TEXT, b"\xff"), "UTF-8"), ((JSON, b"[1,"), "JSON"),
                       ((9, b"x"), "type 9")):
        with Echo(outputs=lambda _, item=item: [item]) as server:
            refused(infer(server.url, "--text", "a"), 1, says, "output 0 of element 0", "--format raw")
            done = infer(server.url, "--text", "a", "--format", "raw", "-o", "-")
            assert (done.returncode, done.stdout) == (0, item[1])


# ---- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, says", [
    ("PROTOCOL", "version"), ("SUBTYPE", "request"), ("METHOD", "inferences"), ("MEMORY", "limits"),
    ("SHAPE", "--inputs"), ("INTERNAL", "log")])
def test_infer_mip_server_error_text(infer, name, says):
    def refuse(_):
        raise Refuse(name)
    with MipServer(refuse) as server:
        refused(infer(server.url, "--text", "a"), 1, f"error {name}: ", says)


def packet(n_inputs, n_outputs, batch, items, n_bytes=None):
    body = INFERENCE.pack(n_inputs, n_outputs, batch) + b"".join(
        ITEM.pack(kind, len(data)) + data for kind, data in items)
    return HEADER.pack(0, INFER, RESPONSE, 0, len(body) if n_bytes is None else n_bytes) + body


@pytest.mark.parametrize("reply", [
    b"", b"\0\2", HEADER.pack(0, ERROR, 6, 0, 0), HEADER.pack(0, ERROR, 255, 0, 0),
    packet(1, 1, 2, [(TEXT, b"a")] * 2), packet(1, 1, 1, []), packet(1, 2, 1, [(TEXT, b"a")]),
    packet(1, 1, 1, [(TEXT, b"a")], 100), packet(1, 1, 1, [(TEXT, b"a")], 2**32 - 1),
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
], ids=repr)
def test_infer_mip_broken_answer_fails(infer, reply):
    with Fixed(reply) as server:
        done = infer(server.url, "--text", "a", "--max-answer-size", "1MiB")
        refused(done, 1, "sluice infer: ")
        assert len(done.stderr.splitlines()) == 1


def test_infer_mip_no_server_and_no_answer(infer):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        refused(infer(url, "--text", "a", "--timeout", "100ms"), 1, "timed out")
    refused(infer(url, "--text", "a"), 1, "Connection refused")
    refused(infer("unix://none", "--text", "a"), 1, "none", "No such file")


@pytest.mark.parametrize("args, code, says", [
    ([], 2, "nothing to send"),
    (["m", "--text", "a"], 2, 'one argument too many: "m"'),
    (["--input", "a=1"], 2, "--input is for HTTP"),
    (["--text", "a", "--raw"], 2, "--raw is for HTTP"),
    (["--text", "a", "--model-version", "1"], 2, "--model-version is for HTTP"),
    (["--text", "a", "--format", "npy", "-o", "f"], 2, "not tensors"),
    (["--text", "a", "--inputs", "2"], 2, "1 item is no whole number of elements of 2 inputs"),
    (["--text", "a", "--inputs", "256"], 2, "from 1 to 255"),
    (["--json", "{'a': 1}"], 1, "malformed JSON"),
    (["--json", "@c.jsn"], 1, "c.jsn: No such file"),
    (["--text", "@a.png"], 2, "--text a.png: it is not UTF-8"),
    (["--image", "none.png"], 1, "opening none.png: No such file"),
    (["--image", "."], 1, "Is a directory"),
    (["--image", "/dev/null"], 2, "it is empty"),
    (["--image", "/dev/zero", "--max-input-size", "1MiB"], 1, "--max-input-size"),
    (["--text", "-", "--json", "-"], 2, "standard input is named twice"),
    (["--file", "a.png"], 2, "write --image FILE"),
])
def test_infer_mip_invalid_arguments_are_refused(infer, args, code, says):
    refused(infer("tcp://127.0.0.1:1", *args), code, says)


def test_infer_mip_flags_are_refused_for_http(infer):
    for args in (["--image", "a.png"], ["--text", "a"], ["--json", "1"], ["--inputs", "1"]):
        refused(infer("http://127.0.0.1:1", "m", *args), 2, f"{args[0]} is for MIP", "--input NAME")
    refused(infer("127.0.0.1:1", "--image", "a.png"), 2, "has no scheme")


# ---- the dry run ----------------------------------------------------------------------------------


def undump(text):
    """The bytes of a hexdump; what stands behind its empty line."""
    dump, _, rest = text.partition("\n\n")
    return bytes.fromhex("".join(line[10:58] for line in dump.splitlines())), rest


def unod(text):
    """The bytes that `od -A x -t x1z` printed."""
    return bytes.fromhex("".join(re.sub("^[0-9a-f]+|>.*$", "", line) for line in text.splitlines()))


def vector(name):
    with open(os.path.join(ROOT, "tests", "vectors", "mip", f"{name}.hex"), encoding="ascii") as file:
        return bytes.fromhex(file.read())


def test_infer_mip_dry_run_equals_vector(infer):
    request = vector("infer-json-2x2-request")
    items = [arg for item in ("[1, 2]", "[3, 4]", "[5, 6]", "[7, 8]") for arg in ("--json", item)]
    assert undump(infer.ok("tcp://127.0.0.1:1", "--inputs", 2, *items, "--dry-run"))[0] == request
    request = vector("infer-text-request")
    text = request[HEADER.size + INFERENCE.size + ITEM.size:].decode()
    assert undump(infer.ok("tcp://127.0.0.1:1", "--text", text, "--dry-run"))[0] == request


@pytest.mark.parametrize("args", [
    ["--text", "100% it's \\ -n"],
    ["--text", "-n", "--image", "a.png", "--text", "€", "--image", "it's.jpg"],
    ["--image", "a.png", "-o", "-p"],
], ids=repr)
def test_infer_mip_dry_run_command_sends_same(infer, tmp_path, args):
    """What the command says is what is sent, and the bytes shown are those."""
    for path in (None, tmp_path / "so cket"):
        with Echo(path) as server:
            shown, command = undump(infer.ok(server.url, *args, "--dry-run"))
            assert server.n_requests == 0
            shell = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.PIPE, cwd=infer.here, check=False,
                                   timeout=http1.PATIENCE)
            assert (shell.returncode, shell.stderr) == (0, "")
            assert server.packets[0] == shown
            answer = unod(shell.stdout)
            assert answer[:3] == bytes([0, INFER, RESPONSE]) and answer[12:] == shown[12:]
            infer(server.url, *[arg for arg in args if arg not in ("-o", "-p")])
            assert server.packets[-1] == shown


def test_infer_mip_long_dry_run_names_output_file(infer):
    long = b"x" * 20000
    out = infer.ok("tcp://127.0.0.1:1", "--text", "-", "--dry-run", stdin=long)
    assert "-o FILE" in out and "nc -q" not in out
    out = infer.ok("tcp://127.0.0.1:1", "--text", "-", "--dry-run", "-o", "packet", stdin=long)
    assert "nc -q 1 127.0.0.1 1 <'packet'" in out
    assert (infer.here / "packet").read_bytes() == undump(out)[0]


# ---- Sluice itself --------------------------------------------------------------------------------


@pytest.fixture
def served(start_server, repositories):
    """served(model, …): the URLs of a server of MIP, one for each model."""
    def serve(*models):
        listeners = [arg for model in models for arg in ("--mip", f"tcp://127.0.0.1:0={model}")]
        return start_server("--model-repository", repositories("default"), *listeners).mip_urls
    return serve


def test_infer_mip_against_sluice(infer, served):
    batch, two, text = served("id_batch", "id_two_batch", "id_string")
    out = infer.ok(batch, "--json", "[1,2,3,4]", "--json", "[5,6,7.5,8]")
    assert out == "[1.0, 2.0, 3.0, 4.0]\n[5.0, 6.0, 7.5, 8.0]\n"
    out = infer.ok(two, "--inputs", 2, "--json", "[0.5,1]", "--json", "[2,3]", "--json", "[4,5]",
                   "--json", "[6,7]")
    assert out == "[[0.5, 1.0], [2, 3]]\n[[4.0, 5.0], [6, 7]]\n"
    assert infer.ok(text, "--text", "@b.txt") == '"grüße\\n"\n'
    out = infer.ok(text, "--text", "-", "--format", "raw", "-o", "-", stdin="ä\n\"".encode())
    assert out == 'ä\n"'
    many = [arg for i in range(1000) for arg in ("--json", f"[{i},0,0,0]")]
    lines = infer.ok(batch, *many).splitlines()
    assert [json.loads(line)[0] for line in lines] == list(range(1000))


def test_infer_mip_sluice_errors(infer, served):
    batch, two = served("id_batch", "id_two_batch")
    refused(infer(batch, "--json", "[1,2,3]"), 1, "error SHAPE: ")
    refused(infer(two, "--json", "[1,2]"), 1, "error SHAPE: ", "--inputs")
    refused(infer(batch, "--text", "four"), 1, "error INTERNAL: ", "log")


def test_infer_mip_dry_run_command_against_sluice(infer, served):
    """The command ends: the server answers who has ended the sending side, and hangs up."""
    [url] = served("id_batch")
    shown, command = undump(infer.ok(url, "--json", "[1,2,3,4]", "--dry-run"))
    shell = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           cwd=infer.here, check=False, timeout=http1.PATIENCE, text=True)
    assert (shell.returncode, shell.stderr) == (0, "")
    answer = unod(shell.stdout)
    assert json.loads(answer[HEADER.size + INFERENCE.size + ITEM.size:]) == [1, 2, 3, 4]
    assert len(shown) == HEADER.size + INFERENCE.size + ITEM.size + len("[1,2,3,4]")

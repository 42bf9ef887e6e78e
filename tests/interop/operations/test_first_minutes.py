"""The first five minutes: what a server in a terminal says, what it lists, and what a browser finds."""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess

import onnx
import pytest
from onnx import TensorProto, helper

from lib import backends, http1
from lib.server import binary, run


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of model files: add, which is small, and square, too large for a command line."""
    folder = tmp_path_factory.mktemp("models")
    for name, dims in (("add", ["n", 2]), ("square", ["n", 3, 32, 32])):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
        node = helper.make_node("Mul" if name == "square" else "Add", ["x", "x"], ["y"])
        graph = helper.make_graph([node], name, [x], [y])
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
                  folder / f"{name}.onnx")
    return folder


class Terminal:
    """A server whose standard error is a terminal."""

    def __init__(self, *args, **environment):
        master, slave = pty.openpty()
        command = args if args[0] == "pick" else ("serve", "--http", "127.0.0.1:0", "--grpc", "none", *args)
        self.process = subprocess.Popen([binary(), *command, "--metrics", "127.0.0.1:0"], stderr=slave,
                                        env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment})
        os.close(slave)
        self.text = b""
        self.master = master

    def read_until(self, words):
        while words not in self.text:
            assert select.select([self.master], [], [], http1.PATIENCE)[0], self.text
            self.text += os.read(self.master, 4096)
        return self.text.decode().replace("\r\n", "\n")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        while True:
            try:
                if not os.read(self.master, 4096):
                    break
            except OSError:  # the terminal has no other side any more
                break
        os.close(self.master)
        return self.process.wait(http1.PATIENCE)


@pytest.mark.parametrize("names", [("add",), ("square",)], ids="".join)
def test_ready_line_has_an_example_that_works(models, names):
    terminal = Terminal(*[str(models / f"{name}.onnx") for name in names])
    try:
        text = terminal.read_until(b"stop:")
        found = re.search(r"\nready: 1 model at (http://[\d.:]+); status page (http://[\d.:]+)/\n"
                          r"try: +sluice (.*)\n", text)
        assert found, text
        assert re.search(r" model loaded .*seconds=\d+\.\d{1,3}(\s|$)", text, re.M), text
        url, page, example = found.groups()
        example += " --requests 10 --warm-up 0" if example.startswith("bench") else ""
        done = subprocess.run(f"{binary()} {example}", shell=True, capture_output=True, check=False,
                              timeout=http1.PATIENCE)
        assert done.returncode == 0, (example, done.stderr)
        status = http1.request(page.removeprefix("http://"), "GET", "/")
        assert status.status == 200 and b"<html" in status.body.lower()
        root = http1.request(url.removeprefix("http://"), "GET", "/", fields=[("Accept", "text/html,*/*")])
        assert root.status == 200 and f"{page}/".encode() in root.body
    finally:
        assert terminal.stop() == 0


def test_greeting_beside_a_model_that_failed(models, tmp_path):
    """What is served can be tried; what is not is named."""
    (tmp_path / "torn.onnx").touch()
    for flags, title, rest in (((), "not ready", "; --strict-readiness false: ready without"),
                               (("--strict-readiness", "false"), "ready", "")):
        terminal = Terminal(str(models / "add.onnx"), str(tmp_path / "torn.onnx"), *flags)
        try:
            text = terminal.read_until(b"stop:")
        finally:
            assert terminal.stop() == 0
        assert re.search(rf"\n{title}: 1 model at http://.*\ntry: +sluice infer .*\n"
                         rf"failed: torn, see the errors above{rest}\nstop:", text), text


def test_picker_greets_with_its_addresses():
    terminal = Terminal("pick", "--endpoint", "127.0.0.1:1", "--grpc", "127.0.0.1:0")
    try:
        text = terminal.read_until(b"stop:")
        found = re.search(r"\nready: 1 of 1 endpoint; for a proxy's ext-proc filter at grpc://127\.0\.0\.1:\d+; "
                          r"status page (http://[\d.:]+)/\ntry: +(curl .*)\nstop:", text)
        assert found, text
        status = http1.request(found[1].removeprefix("http://"), "GET", "/", fields=[("Accept", "text/html")])
        assert status.status == 200 and b"<html" in status.body.lower()
        done = subprocess.run(f"{found[2]} -sS", shell=True, capture_output=True, check=True, timeout=http1.PATIENCE)
        assert b"127.0.0.1:1" in done.stdout
    finally:
        assert terminal.stop() == 0


@pytest.mark.parametrize("environment, coloured", [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
                         ids=["terminal", "no-color", "dumb"])
def test_colours_only_on_a_terminal(models, environment, coloured):
    terminal = Terminal(str(models / "add.onnx"), **environment)
    try:
        text = terminal.read_until(b"stop:")
        assert ("\033[32mINFO\033[0m model loaded" in text, "\033" in text) == (coloured, coloured)
    finally:
        assert terminal.stop() == 0


@pytest.fixture(name="slow_model", scope="module")
def slow_model_fixture(tmp_path_factory):
    """A model whose load waits for a file. Returns: the flags that serve it beside a fast one, the file."""
    folder = tmp_path_factory.mktemp("slow")
    model = ('input { name: "IN" data_type: TYPE_FP32 dims: 1 } output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
             f' parameters {{ key: "gate" value {{ string_value: "{folder}/gate" }} }}')
    for name, backend in (("fast", "identity"), ("slow", "gate")):
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(f'backend: "{backend}" {model}')
    return ["--backend-dir", backends.make(folder, "gate"), "--model-repository", str(folder / "models")], folder / "gate"


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_long_load_is_shown_on_a_terminal(slow_model, term):
    """Its line is redrawn, and the log's next line takes its place."""
    flags, gate = slow_model
    gate.unlink(missing_ok=True)
    terminal = Terminal(*flags, TERM=term)
    try:
        terminal.read_until(b"model loaded")
        shown = term != "dumb"
        while shown and len(set(re.findall(rb"loading slow: \d+ s \(1 of 2 models are done\)", terminal.text))) < 2:
            terminal.text += os.read(terminal.master, 4096)
        gate.touch()
        text = terminal.read_until(b"stop:")
    finally:
        assert terminal.stop() == 0
    assert ("loading slow" in text) == shown
    for line in text.split("\n"):
        kept = ""  # what one sees: each part overwrites the one before from the start of the line
        for part in line.split("\r"):
            kept = part + kept[len(part):]
        assert "loading slow" not in kept and (not shown or re.match(r"2\d{3}-|\s|ready: |try: |stop: |$", kept)), line


def test_no_greeting_without_a_terminal(models, start_server):
    text = start_server(models).log_text()
    assert "try:" not in text and "\033" not in text
    assert "backend loaded" not in text  # it is of interest in debugging alone


def infer(server, *args):
    done = subprocess.run([binary(), "infer", f"http://{server.address}", *args], capture_output=True,
                          timeout=http1.PATIENCE, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_models_are_listed(models, start_server):
    server = start_server(models, grpc=("127.0.0.1:0",))
    for path in ("/v2/models", "/v2/models/"):
        answer = http1.request(server.address, "GET", path)
        assert json.loads(answer.body) == [{"name": "add", "version": "1", "state": "READY"},
                                           {"name": "square", "version": "1", "state": "READY"}]
    for url in (f"http://{server.address}", f"grpc://{server.grpc_address}"):
        done = run("infer", url)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"""\
add  version 1  READY
  inputs  x  FP32  [-1,2]
  outputs y  FP32  [-1,2]
  try     sluice infer {url} add --input 'x=[[0,0]]'
square  version 1  READY
  inputs  x  FP32  [-1,3,32,32]
  outputs y  FP32  [-1,3,32,32]
  try     sluice bench {url} square
""", "")
    assert infer(server, "squar", "--input", "x=1") == (
        1, "", 'sluice infer: Request for unknown model: \'squar\' is not found (HTTP 404); did you mean "square"? (served: add,'
        " square)\n")
    assert infer(server, "add", "--input", "xx=1,2") == (
        1, "", 'sluice infer: model "add" has no input "xx"; did you mean "x"? (it has: x)\n')
    for commas in ("x=1,2", "x= 1, 2", "x=[1,2]"):
        code, out, _ = infer(server, "add", "--input", commas)
        assert (code, json.loads(out)["outputs"][0]["data"]) == (0, [[2, 4]])


def test_mistakes_in_requests(models, start_server):
    """What was meant is in the message: a name that the server has, a form that is understood."""
    server = start_server(models, grpc=("127.0.0.1:0",))
    near = '; did you mean "square"? (served: add, square)'
    for url, says in ((f"http://{server.address}", "Request for unknown model: 'squar' is not found (HTTP 404)"),
                      (f"grpc://{server.grpc_address}", "NOT_FOUND: Request for unknown model: 'squar' is not found")):
        for command, flags in (("infer", ["--input", "x=1"]), ("bench", [])):
            done = run(command, url, "squar", *flags)
            assert (done.returncode, done.stderr) == (1, f"sluice {command}: {says}{near}\n")
    for arguments, code, says in (
            (["add", "--input", "x=one"], 1, 'input "x" takes FP32, not "one": write x=1,2,3, or x=@FILE'),
            (["add", "--input", "x=1"], 1, 'input "x": 1 element cannot be laid out in the model\'s shape [-1,2] '
             "(-1: any size) in one way. Give the shape with --shape x=…"),
            (["add", "x=1,2"], 2, 'one argument too many: "x=1,2"; did you mean --input x=1,2?\nTry: sluice infer --help')):
        assert infer(server, *arguments) == (code, "", f"sluice infer: {says}\n")
    for word in ("version", "-version"):
        assert run(word).stderr == f"sluice: unknown command {word}; did you mean --version?\nTry: sluice --help\n"


def test_poll_finds_new_files(models, start_server, tmp_path):
    shutil.copy(models / "add.onnx", tmp_path)
    server = start_server(tmp_path, "--model-control-mode", "poll", "--repository-poll-secs", "1")
    names = lambda: [row["name"] for row in json.loads(http1.request(server.address, "GET", "/v2/models").body)]
    shutil.copy(models / "square.onnx", tmp_path / "half.tmp")
    (tmp_path / "half.tmp").rename(tmp_path / "square.onnx")
    server.wait_for(lambda: names() == ["add", "square"], "the new file")
    (tmp_path / "add.onnx").unlink()
    gone = lambda: http1.request(server.address, "GET", "/v2/models/add").status == 404
    server.wait_for(gone, "the end of add")
    assert http1.request(server.address, "GET", "/v2/models/square/ready").status == 200


def test_root_without_a_browser(models, start_server):
    server = start_server(models)
    assert http1.request(server.address, "GET", "/").status == 404
    page = http1.request(server.address, "GET", "/", fields=[("Accept", "text/html")])
    assert page.status == 200 and b"The status page is off" in page.body

"""`sluice infer` against a live server: every way data goes in and comes out, over TCP and a Unix socket;
the dry run's curl command, run by a shell, gets the same answer."""
import http.server
import json
import os
import re
import subprocess
import threading

import numpy
import pytest

from lib.server import binary, run

DATATYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16",
    "FP32": "float32", "FP64": "float64",
}
FORMS = {"json": [], "binary": ["--binary"], "raw": ["--raw"]}


class Infer:
    """`sluice infer` of one server. `here` is the folder it runs in."""

    def __init__(self, server, here):
        self.urls = [f"http+{a}" if a.startswith("unix:") else f"http://{a}"
                     for a in server.addresses]
        self.here = here

    def run(self, model, *args, url=None, stdin=None):
        """Returns: (exit code, standard output as bytes, standard error)."""
        command = [binary(), "infer", url or self.urls[0], model, *map(str, args)]
        done = subprocess.run(command, input=stdin if stdin is not None else b"", timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.here,
                              check=False)
        return done.returncode, done.stdout, done.stderr.decode()

    def ok(self, model, *args, **options):
        """Returns: standard output of a run that must succeed."""
        code, out, err = self.run(model, *args, **options)
        assert (code, err) == (0, ""), err
        return out

    def json(self, model, *args, **options):
        return json.loads(self.ok(model, *args, **options))

    def data(self, model, *args, **options):
        """Returns: the data of the one output."""
        outputs = self.json(model, *args, **options)["outputs"]
        assert len(outputs) == 1
        return outputs[0]["data"]


@pytest.fixture
def infer(client_server, tmp_path):
    return Infer(client_server, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_infer_each_form_over_each_address(infer, form):
    for url in infer.urls:
        answer = infer.json("id_batch", "--input", "INPUT0=[[1, 2.5, -3, 0]]", *FORMS[form], url=url)
        assert answer == {
            "model_name": "id_batch", "model_version": "1",
            "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 4],
                         "data": [[1, 2.5, -3, 0]]}]}
    assert len(infer.urls) == 2


def test_infer_json_output_is_indented(infer):
    out = infer.ok("id_two_batch", "--input", "INPUT0=[[1,2],[3,4]]", "--input",
                   "INPUT1=[[5,6],[7,8]]", "--output", "OUTPUT1", "--id", "x")
    assert out.decode() == """{
  "id": "x",
  "model_name": "id_two_batch",
  "model_version": "1",
  "outputs": [
    {
      "name": "OUTPUT1",
      "datatype": "INT32",
      "shape": [2, 2],
      "data": [
        [5, 6],
        [7, 8]
      ]
    }
  ]
}
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("datatype", DATATYPES)
def test_infer_npy_round_trip(infer, datatype, form):
    sent = numpy.arange(24).reshape(2, 3, 4).astype(DATATYPES[datatype]).reshape(-1)
    numpy.save(infer.here / "in.npy", sent)
    infer.ok(f"id_{datatype.lower()}", "--input", "INPUT0=@in.npy", *FORMS[form], "--format", "npy",
             "-o", "out.npy")
    back = numpy.load(infer.here / "out.npy")
    assert back.dtype == sent.dtype and back.tobytes() == sent.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_infer_raw_bytes_round_trip(infer, form):
    sent = bytes(range(256)) * 5
    (infer.here / "in.raw").write_bytes(sent)
    for source in ("@in.raw", "raw:in.raw", "-"):
        back = infer.ok("id_uint8", "--input", f"INPUT0={source}", *FORMS[form], "--format", "raw",
                        "-o", "-", stdin=sent)
        assert back == sent, source


def test_infer_bytes_elements(infer):
    assert infer.data("id_string", "--input", "INPUT0=grüße, \"you\"") == ['grüße, "you"']
    assert infer.data("id_strings", "--input", 'INPUT0=["a", ""]', "--binary") == ["a", ""]
    sent = b"\0\xff\x80[" * 100
    back = infer.ok("id_string", "--input", "INPUT0=raw:-", "--raw", "--format", "raw", "-o", "-",
                    stdin=sent)
    assert back == sent
    code, out, err = infer.run("id_string", "--input", "INPUT0=raw:-", "--binary", stdin=sent)
    assert code == 1 and out == b"" and "--format raw" in err


def test_infer_64_bit_numbers_are_exact(infer):
    big = [9223372036854775807, -9223372036854775808, 9007199254740993]
    assert infer.data("id_int64", "--input", f"INPUT0={json.dumps(big)}") == big
    floats = [0.1, 5e-324, 1.7976931348623157e308]
    assert infer.data("id_fp64", "--input", f"INPUT0={json.dumps(floats)}") == floats


def test_infer_stdin_format_is_detected(infer):
    numpy.save(infer.here / "a.npy", numpy.array([1, 2], dtype="float32"))
    assert infer.data("id_fp32", "--input", "INPUT0=-", stdin=b" [3, 4]\n") == [3, 4]
    assert infer.data("id_fp32", "--input", "INPUT0=-",
                      stdin=(infer.here / "a.npy").read_bytes()) == [1, 2]
    assert infer.data("id_fp32", "--input", "INPUT0=-", stdin=b"\0\0\x80?") == [1]


def test_infer_shape_is_deduced_or_given(infer):
    def shape(model, *args):
        return infer.json(model, *args)["outputs"][0]["shape"]
    assert shape("id_batch", "--input", "INPUT0=[1,2,3,4]") == [1, 4]
    assert shape("id_batch", "--input", "INPUT0=[1,2,3,4,5,6,7,8]") == [2, 4]
    assert shape("id_two_free", "--input", "INPUT0=[[1,2,3],[4,5,6]]") == [2, 3]
    assert shape("id_two_free", "--input", "INPUT0=[1,2,3,4,5,6]", "--shape", "INPUT0=3,2") == [3, 2]
    code, _, err = infer.run("id_batch", "--input", "INPUT0=[1,2,3]")
    assert code == 1 and "[3]" in err and "[-1,4]" in err and "--shape INPUT0=" in err


def test_infer_outputs_are_written_to_folder(infer):
    numpy.save(infer.here / "a.npy", numpy.arange(3, dtype="float32"))
    args = ["--input", "INPUT0=@a.npy", "--input", "INPUT1=[7]", "--binary", "--format", "npy"]
    code, out, err = infer.run("id_two", *args, "--output-dir", "out")
    assert (code, out) == (0, b"") and err.split() == ["out/OUTPUT0.npy", "out/OUTPUT1.npy"]
    assert numpy.load(infer.here / "out" / "OUTPUT0.npy").tolist() == [0, 1, 2]
    assert numpy.load(infer.here / "out" / "OUTPUT1.npy").dtype == numpy.int32
    code, _, err = infer.run("id_two", *args, "-o", "one.npy")
    assert code == 2 and "--output NAME" in err and not (infer.here / "one.npy").exists()


def test_infer_version_id_and_name(infer):
    answer = infer.json("id_versions", "--input", "INPUT0=[1]", "--model-version", "2", "--id", "ä\"")
    assert (answer["model_version"], answer["id"]) == ("2", 'ä"')
    for name in ("id with space", "id_ümlaut"):
        assert infer.json(name, "--input", "INPUT0=[1]")["model_name"] == name
    # Without a version its metadata would be the statistics of all models.
    answer = infer.json("stats", "--input", "INPUT0=[1]", "--model-version", "1")
    assert answer["model_name"] == "stats"


def test_infer_json_file_with_given_datatype(infer):
    (infer.here / "a.json").write_text("[\n 1,\n 2\n]\n")
    assert infer.data("id_int8", "--input", "INPUT0=@a.json", "--datatype", "INPUT0=INT8", "--shape",
                      "INPUT0=[2]") == [1, 2]


def test_infer_prints_server_error(infer, client_server):
    client_server.expect_error("out of ink")
    code, out, err = infer.run("id_failing", "--input", "INPUT0=[1]")
    assert code == 1 and out == b"" and "out of ink" in err and "HTTP 500" in err
    for args, says in ((["nope", "--input", "x=1"], "nope"),
                       (["id_fp32", "--input", "INPUT0=[1]", "--model-version", "77"], "77"),
                       (["id_fp32", "--input", "INPUT0=[1]", "--datatype", "INPUT0=INT8", "--shape",
                         "INPUT0=1"], "INT8")):
        code, out, err = infer.run(*args)
        assert code == 1 and out == b"" and says in err and "HTTP 4" in err, err


def test_infer_invalid_arguments_are_refused(infer):
    numpy.save(infer.here / "f.npy", numpy.asfortranarray(numpy.zeros((2, 3), dtype="float32")))
    numpy.save(infer.here / "d.npy", numpy.zeros(3))
    for args, code, says in (
            (["id_fp32", "--input", "INPUT=[1]"], 1, 'did you mean "INPUT0"'),
            (["id_fp32", "--input", "INPUT0=[1]", "--output", "OUTPUT"], 1, "OUTPUT0"),
            (["id_fp32", "--input", "INPUT0=@none.npy"], 1, "none.npy: No such file"),
            (["id_fp32", "--input", "INPUT0=@f.npy"], 1, "ascontiguousarray"),
            (["id_fp32", "--input", "INPUT0=@d.npy"], 1, "a.astype('float32')"),
            (["id_fp32", "--input", "INPUT0=[1,2"], 1, "INPUT0"),
            (["id_fp32", "--input", "INPUT0=[1,\"a\"]"], 1, "data[1]"),
            (["id_uint8", "--input", "INPUT0=[256]"], 1, "data[0]"),
            (["id_fp32", "--input", "INPUT0"], 2, "NAME=SOURCE"),
            (["id_fp32", "--inptu", "INPUT0=[1]"], 2, "did you mean --input"),
            (["id_fp32", "--input", "INPUT0=[1]", "--raw", "--binary"], 2, "choose one")):
        got, out, err = infer.run(*args)
        assert (got, out) == (code, b"") and says in err, err


def test_infer_no_server_fails(tmp_path):
    for url, says in (("http://127.0.0.1:1", "Connection refused"),
                      (f"http+unix:{tmp_path}/none", "No such file"),
                      ("http://name.invalid:80", "name.invalid")):
        done = run("infer", url, "m", "--input", "x=1")
        assert done.returncode == 1 and says in done.stderr, done.stderr
    for url in ("127.0.0.1:8000", "http://h:x", "tcp://h:1"):
        done = run("infer", url, "m", "--input", "x=1")
        assert done.returncode == 2 and url in done.stderr, done.stderr


class Escapes(http.server.BaseHTTPRequestHandler):
    """A server whose texts have control characters, of which \\x9b is one of two bytes."""
    text = "m\x1b[31m\u009b2J\n\x7f"

    def answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        if self.path.endswith("/infer"):
            self.rfile.read(int(self.headers["Content-Length"]))
            output = {"name": self.text, "datatype": "BYTES", "shape": [1], "data": ["0.5:1:" + self.text]}
            self.answer({"model_name": "m", "outputs": [output, output]})
            return
        self.answer([{"name": self.text, "version": "1", "state": "READY", "reason": self.text},
                     {"name": "é", "version": self.text, "state": self.text}])

    def do_GET(self):
        tensor = {"name": self.text, "datatype": "FP32", "shape": [1]}
        self.answer({"name": self.text, "versions": ["1"], "platform": "", "inputs": [tensor], "outputs": [tensor]})

    def log_message(self, *_):
        pass


def test_list_and_classes_show_no_control_characters():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Escapes) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = run("infer", f"http://127.0.0.1:{server.server_port}")
            classes = run("infer", f"http://127.0.0.1:{server.server_port}", "m", "--input", f"{Escapes.text}=1", "--top", "1")
        finally:
            server.shutdown()
            thread.join()
    text = "m?[31m?2J??"
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{text}  version 1  READY: {text}", f"  inputs  {text}  FP32  [1]",
                                        f"  outputs {text}  FP32  [1]", "  try     ", f"é  version {text}  {text}"]
    assert (classes.stdout, classes.stderr) == (2 * f"{text}\n       0.5      1  {text}\n", "")


def test_infer_timeout_fails(infer):
    code, _, err = infer.run("id_slowest", "--input", "INPUT0=[1]", "--timeout", "20ms")
    assert code == 1 and "timed out" in err


def undump(text):
    """The bytes of a hexdump."""
    lines = [line for line in text.splitlines() if re.match(r"[0-9a-f]{8}  ", line)]
    return b"".join(bytes.fromhex(line[10:59].replace(" ", "")) for line in lines)


CALLS = {
    "json": ["id_two_batch", "--input", "INPUT0=[1,2]", "--input", "INPUT1=[3,4]", "--id", "it's"],
    "binary": ["id_mixed", "--input", "INPUT0=[0,37,92,255]", "--input", "INPUT1=[0.1]", "--input",
               "INPUT2=100% 'quoted' \\n", "--binary"],
    "raw": ["id_uint8", "--input", "INPUT0=[45,0,10,13,255]", "--raw"],
    "file": ["id_uint8", "--input", "INPUT0=raw:big", "--raw", "-o", "body"],
}


@pytest.mark.parametrize("which", CALLS)
def test_infer_dry_run_equals_curl_request(infer, which):
    (infer.here / "big").write_bytes(os.urandom(50000))
    for url in infer.urls:
        out = infer.ok(*CALLS[which], "--dry-run", url=url).decode()
        request = undump(out)
        head, body = request.split(b"\r\n\r\n", 1)
        assert head.startswith(f"POST /v2/models/{CALLS[which][0]}/infer HTTP/1.1\r\n".encode())
        assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
        command = out[out.index("\n\n") + 2:]
        curl = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=infer.here, check=False)
        assert (curl.returncode, curl.stderr) == (0, b""), curl.stderr
        if which == "json":
            want = infer.json(*CALLS[which], url=url)
            got = json.loads(curl.stdout)
            assert got["id"] == want["id"] == "it's"
            assert [o["data"] for o in got["outputs"]] == [sum(o["data"], []) for o in want["outputs"]]
        else: # what came back ends with the bytes that were sent
            tail = body if which != "binary" else body[body.index(b"}]}") + 3:]
            assert len(tail) > 0 and curl.stdout.endswith(tail)


def test_infer_dry_run_needs_no_server(tmp_path):
    args = ["infer", "http://127.0.0.1:1", "m", "--input", "x=[1,2]", "--datatype", "x=UINT8", "--shape",
            "x=2", "--dry-run"]
    done = run(*args)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(undump(done.stdout).split(b"\r\n\r\n")[1])["inputs"][0]["data"] == [1, 2]
    (tmp_path / "big").write_bytes(bytes(20000))
    done = run("infer", "http://127.0.0.1:1", "m", "--input", f"x=raw:{tmp_path}/big", "--raw",
               "--dry-run")
    assert done.returncode == 0 and "-o FILE" in done.stdout and "curl -sS" not in done.stdout


def test_infer_input_over_limit_is_refused(infer):
    args = ["id_uint8", "--input", "INPUT0=raw:/dev/zero", "--max-input-size", "1MiB"]
    code, out, err = infer.run(*args)
    assert code == 1 and out == b"" and "--max-input-size" in err

"""The commands over gRPC, against a live server: `sluice infer` gives what it gives over HTTP, for every
datatype and source; its errors are the server's; the dry run's command, run by a shell, sends the same;
`sluice ping` and `sluice bench` over each scheme."""
import json
import re
import subprocess

import numpy
import pytest

from lib import http1, metrics
from lib.certificates import Identity
from lib.server import binary, run

DATATYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16",
    "FP32": "float32", "FP64": "float64",
}


class Both:
    """`sluice infer` of one server over HTTP and gRPC. `here` is the folder it runs in."""

    def __init__(self, server, here):
        self.http = f"http://{server.address}"
        self.grpc = f"grpc://{server.grpc_address}"
        self.urls = [f"grpc+{a}" if a.startswith("unix:") else f"grpc://{a}"
                     for a in server.grpc_addresses]
        self.here = here

    def run(self, url, *args, stdin=b""):
        return subprocess.run([binary(), "infer", url, *map(str, args)], input=stdin, cwd=self.here,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              timeout=http1.PATIENCE)

    def ok(self, url, *args, **options):
        done = self.run(url, *args, **options)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        return done.stdout

    def same(self, *args, **options):
        """Standard output, which must be the same over both."""
        out = self.ok(self.grpc, *args, **options)
        assert out == self.ok(self.http, *args, **options)
        return out


@pytest.fixture
def both(client_server, tmp_path):
    return Both(client_server, tmp_path)


# ---- infer ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("args", [
    ("id_fp32", "-i", "INPUT0=[1,2.5,-3]"),
    ("id_batch", "-i", "INPUT0=[1,2.5,-3,0]"),
    ("id_two_batch", "-i", "INPUT0=[[1,2],[3,4]]", "-i", "INPUT1=[[5,6],[7,8]]"),
    ("id_two_batch", "-i", "INPUT0=[[1,2]]", "-i", "INPUT1=[[5,6]]", "--output", "OUTPUT1", "--id", "x"),
    ("id_string", "-i", "INPUT0=grüße, \"you\""),
    ("id_strings", "-i", 'INPUT0=["a",""]'),
    ("id_mixed", "-i", "INPUT0=[1,255]", "-i", "INPUT1=[1e300]", "-i", 'INPUT2=["a","","b"]'),
    ("id_versions", "--model-version", "2", "-i", "INPUT0=[1]"),
    ("id_fp32", "-i", "INPUT0=[1]", "-p", "a=1", "-p", "b=true", "-p", "c=text", "-p", "d=1.5"),
    ("id_fp32", "-i", "INPUT0=[1]", "--datatype", "INPUT0=FP32", "--shape", "INPUT0=1"),
    ("id_fp32", "-i", "INPUT0=[]", "--datatype", "INPUT0=FP32", "--shape", "INPUT0=0"),
    ("id with space", "-i", "INPUT0=[1]"),
])
def test_infer_grpc_output_equals_http(both, args):
    assert json.loads(both.same(*args))["outputs"]


@pytest.mark.parametrize("datatype", DATATYPES)
def test_infer_grpc_npy_round_trip(both, datatype):
    sent = numpy.arange(24).reshape(2, 3, 4).astype(DATATYPES[datatype]).reshape(-1)
    numpy.save(both.here / "in.npy", sent)
    both.ok(both.grpc, f"id_{datatype.lower()}", "-i", "INPUT0=@in.npy", "--format", "npy", "-o", "out.npy")
    back = numpy.load(both.here / "out.npy")
    assert back.dtype == sent.dtype and back.tobytes() == sent.tobytes()
    both.same(f"id_{datatype.lower()}", "-i", "INPUT0=@in.npy")


def test_infer_grpc_raw_bytes_over_each_address(both):
    sent = bytes(range(256)) * 5
    for url in both.urls:
        assert both.ok(url, "id_uint8", "-i", "INPUT0=-", "--format", "raw", "-o", "-",
                       stdin=sent) == sent
    assert len(both.urls) == 2


def test_infer_grpc_large_tensor_round_trip(both):
    sent = numpy.arange(20_000_000, dtype="float32")
    numpy.save(both.here / "in.npy", sent)
    both.ok(both.grpc, "id_fp32", "-i", "INPUT0=@in.npy", "--format", "npy", "-o", "out.npy")
    assert numpy.load(both.here / "out.npy").tobytes() == sent.tobytes()


@pytest.mark.parametrize("args, code, says", [
    (("nothing", "-i", "INPUT0=1"), 1, "NOT_FOUND: Request for unknown model: 'nothing' is not found"),
    (("id_fp32", "-i", "INPUT9=1"), 1, 'has no input "INPUT9"'),
    (("id_fp32", "-i", "INPUT0=[1]", "--datatype", "INPUT0=INT8", "--shape", "INPUT0=1"), 1,
     "INVALID_ARGUMENT: input \"INPUT0\": expected datatype FP32"),
    (("id_failing", "-i", "INPUT0=[1]"), 1, "out of ink"),
    (("id_slowest", "-i", "INPUT0=[1]", "--timeout", "50ms"), 1, "DEADLINE_EXCEEDED|timed out"),
    (("id_uint8", "-i", "INPUT0=[1,2,3]", "--max-answer-size", "10"), 1, "--max-answer-size"),
    (("id_fp32", "-i", "INPUT0=[1]", "--binary"), 2, "--binary is for HTTP, and grpc://"),
    (("id_fp32", "-i", "INPUT0=[1]", "--raw"), 2, "--raw is for HTTP, and grpc://"),
    (("id_fp32", "--text", "a"), 2, "--text is for MIP, and grpc://"),
    (("id_fp32", "-i", "INPUT0=[1]", "--metadata", "a"), 2, "--metadata a: expected NAME=VALUE"),
    (("id_fp32", "-i", "INPUT0=[1]", "--metadata", "A=b"), 2, "lower-case name"),
    (("id_fp32", "-i", "INPUT0=[1]", "--cacert", "f"), 2, "--cacert is for https://HOST:PORT and grpcs://"),
    (("-i", "INPUT0=[1]"), 2, "MODEL is missing"),
])
def test_infer_grpc_errors(both, args, code, says):
    done = both.run(both.grpc, *args)
    assert (done.returncode, done.stdout) == (code, b"")
    # Where either end may be the first to see it, both ways of saying it are right.
    assert any(text in done.stderr.decode() for text in says.split("|")), done.stderr


def test_infer_grpc_at_the_address_of_http(both):
    done = both.run(f"grpc://{both.http[7:]}", "id_fp32", "-i", "INPUT0=[1]")
    assert (done.returncode, done.stderr) == (0, b"")


def test_infer_grpc_wrong_server_is_reported(both, start_server, repositories):
    alone = start_server("--model-repository", repositories("default"), "--grpc-on-http", "false")
    done = both.run(f"grpc://{alone.address}", "id_fp32", "-i", "INPUT0=[1]")
    assert done.returncode == 1 and b"HTTP/1.1" in done.stderr
    done = both.run("grpc://127.0.0.1:1", "id_fp32", "-i", "INPUT0=[1]")
    assert done.returncode == 1 and b"no connection to 127.0.0.1:1: Connection refused" in done.stderr
    done = both.run(f"grpcs://{both.grpc[7:]}", "id_fp32", "-i", "INPUT0=[1]")
    assert done.returncode == 1 and b"TLS" in done.stderr


def test_infer_grpc_key_is_sent_as_metadata(start_server, repositories, tmp_path):
    (tmp_path / "keys.yaml").write_text("infer: [a-key-to-infer]\n")
    server = start_server("--model-repository", repositories("default"), "--keys",
                          tmp_path / "keys.yaml", grpc=("127.0.0.1:0",))
    call = ("infer", f"grpc://{server.grpc_address}", "id_fp32", "-i", "INPUT0=[1]")
    done = run(*call)
    assert done.returncode == 1 and "UNAUTHENTICATED: " in done.stderr
    done = run(*call, "--metadata", "authorization=Bearer a-key-to-infer")
    assert (done.returncode, done.stderr) == (0, "")


# ---- the dry run -----------------------------------------------------------------------------------

def answer_of(out):
    """The message in what `curl -i` printed: behind the head, and in front of the trailers."""
    head, rest = out.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/2 200")
    length = int.from_bytes(rest[1:5], "big")
    assert b"grpc-status: 0" in rest[5 + length:]
    return rest[5:5 + length]


@pytest.mark.parametrize("to_file", [False, True])
def test_infer_grpc_dry_run_command_sends_same(both, to_file):
    for url in both.urls:
        flags = ["-o", "it's a body"] if to_file else []
        dry = both.ok(url, "id_two_batch", "-i", "INPUT0=[[1,2]]", "-i", "INPUT1=[[5,6]]", "--id", "it's",
                      "--metadata", "test=a b", "--metadata", "test-bin=\x01", "--dry-run", *flags).decode()
        dump, command = dry.split("\n\n", 1)
        assert dump.startswith("00000000  00 00 00 00 ")
        assert "-H 'test: a b'" in command and "-H 'test-bin: AQ'" in command
        done = subprocess.run(["sh", "-c", command], cwd=both.here, stdout=subprocess.PIPE,
                              timeout=http1.PATIENCE, check=True)
        answer = answer_of(done.stdout)
        assert b"it's" in answer and b"OUTPUT1" in answer
        assert answer.endswith(numpy.array([5, 6], "int32").tobytes())


def test_infer_grpc_long_dry_run_names_output_file(both):
    out = both.ok(both.grpc, "id_uint8", "-i", "INPUT0=-", "--dry-run", stdin=b"x" * 20000)
    assert b"The message is too long for a command line: with -o FILE" in out


# ---- ping ------------------------------------------------------------------------------------------

def test_ping_grpc_succeeds(both):
    for url in both.urls:
        for flags in ([], ["--reconnect"]):
            done = run("ping", "-c", "3", "-i", "2ms", *flags, url)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith(f"PING {url}: ServerLive, ")
            assert len(re.findall(r"^seq=\d+ time=[\d.]+ ms$", done.stdout, re.M)) == 3
            assert "3 sent, 3 answered, 0 lost (0%)" in done.stdout


def test_ping_grpc_no_server_is_lost():
    done = run("ping", "-c", "2", "-i", "2ms", "grpc://127.0.0.1:1")
    assert done.returncode == 1 and done.stderr == ""
    assert "seq=2 lost: no connection to 127.0.0.1:1: Connection refused" in done.stdout


# ---- bench -----------------------------------------------------------------------------------------

def bench(*args, code=0):
    """Returns: the JSON, and the table."""
    done = run("bench", *args, "--json", "-")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def metric(both, name):
    return metrics.read(both.http[7:]).get(name, 0)


def accepted(both):
    """Connections so far, each look at the metrics being one itself."""
    return metric(both, "sluice_accepted_connections_total")


def test_bench_grpc_concurrency_list(both):
    for url in both.urls:
        before = accepted(both)
        result, table = bench(url, "id_two_batch", "--batch", "3", "-c", "1,20", "--connections", "3", "-n", "60", "-w", "0")
        assert len(result["steps"]) == 2 and "calls over 3 connections" in table
        for step in result["steps"]:
            assert step["failed"] == 0 and step["succeeded"] == 60
            assert sum(count for _, _, count in step["histogram_ns"]) == step["succeeded"]
        # The first question, the first try, and what the two steps need: one call, one connection.
        after = accepted(both)
        assert after - before == 1 + 1 + 1 + 3 + 1


def test_bench_grpc_count_equals_server_count(both):
    name = 'nv_inference_request_success{model="id_batch",version="1"}'
    before = metric(both, name)
    result, _ = bench(both.grpc, "id_batch", "-c", "7", "-n", "1000", "-w", "0", "--seed", "3")
    assert result["steps"][0]["succeeded"] == 1000
    assert metric(both, name) - before == 1001 # with the first try


def test_bench_grpc_at_rate(both):
    result, table = bench(both.grpc, "id_fp32", "--rate", "500", "-c", "10", "-d", "200ms", "-w", "0")
    step = result["steps"][0]  # a slow machine sends fewer
    assert step["succeeded"] > 0 and step["succeeded"] + step["not_sent"] == 100 and "on at most 10 calls, calls over a connection" in table


def test_bench_grpc_reconnect_opens_connection_per_request(both):
    before = accepted(both)
    result, _ = bench(both.grpc, "id_fp32", "-c", "2", "-n", "20", "-w", "0", "--reconnect")
    after = accepted(both)
    assert result["steps"][0]["succeeded"] == 20 and after - before == 2 + 20 + 1


def test_bench_grpc_pings_and_large_tensors(both):
    assert bench(both.grpc, "--ping", "-c", "5", "-n", "30", "-w", "0")[0]["steps"][0]["succeeded"] == 30
    result, _ = bench(both.grpc, "id_fp32", "--shape", "INPUT0=1000000", "-c", "4", "-n", "20", "-w", "0")
    assert result["steps"][0]["succeeded"] == 20


def test_bench_grpc_failures_are_counted_by_status(both):
    result, _ = bench(both.grpc, "id_slow", "-c", "16", "-n", "16", "-w", "0", "--timeout", "3s", code=1)
    step = result["steps"][0]
    assert step["succeeded"] + step["failed"] == 16 and step["failed"] > 0
    # The server keeps the deadline as well, and may be first to say so.
    assert {error["reason"] for error in step["errors"]} <= {"timeout", "gRPC DEADLINE_EXCEEDED"}
    done = run("bench", both.grpc, "id_failing", "-c", "1")
    assert done.returncode == 1 and "the first request failed, no load was made: " in done.stderr
    assert "out of ink" in done.stderr


@pytest.mark.parametrize("args, says", [
    (("grpc://h:1", "m", "--form", "json"), "--form is for HTTP, and grpc://h:1 speaks gRPC"),
    (("grpc://h:1", "m", "--text", "a"), "--text is for MIP, and grpc://h:1 speaks gRPC"),
    (("http://h:1", "m", "--connections", "3"), "--connections is for gRPC, and http://h:1 speaks HTTP"),
    (("grpc://h:1", "m", "--connections", "3", "--reconnect"), "no --connections"),
    (("grpc://h:1",), "MODEL is missing"),
    (("grpc://h:1", "m", "--ping"), "one argument too many"),
])
def test_bench_grpc_usage_errors(args, says):
    done = run("bench", *args)
    assert done.returncode == 2 and says in done.stderr, done.stderr


# ---- TLS -------------------------------------------------------------------------------------------

def test_cli_grpc_over_tls(start_server, repositories, tmp_path):
    root, client_root = Identity("root", authority=True), Identity("client root", authority=True)
    cert, key = Identity("server", root).write(tmp_path / "server")
    client_cert, client_key = Identity("client", client_root).write(tmp_path / "client")
    ca = root.write_cert(tmp_path / "ca.pem")
    client_ca = client_root.write_cert(tmp_path / "client-ca.pem")
    server = start_server("--model-repository", repositories("default"), "--grpc-tls-cert", cert,
                          "--grpc-tls-key", key, "--grpc-tls-client-ca", client_ca,
                          grpc=("grpcs://127.0.0.1:0",))
    port = server.grpc_address.rsplit(":", 1)[1]
    mine = ("--cert", client_cert, "--key", client_key)
    call = ("id_fp32", "-i", "INPUT0=[1]")
    for flags, host, says in (
            (("--cacert", ca, *mine), "127.0.0.1", None),
            (("--cacert", ca, *mine), "localhost", None),
            (("--insecure", *mine), "127.0.0.1", None),
            (("--cacert", client_ca, *mine), "127.0.0.1", "the server's certificate is refused: "),
            (mine, "127.0.0.1", "the server's certificate is refused: "),
            (("--cacert", ca), "127.0.0.1", "the server requires a client certificate (--cert FILE --key FILE)")):
        url = f"grpcs://{host}:{port}"
        done = run("infer", url, *call, *flags)
        if says is None:
            assert (done.returncode, done.stderr) == (0, "")
            assert run("ping", "-c", "2", "-i", "2ms", url, *flags).returncode == 0
            assert run("bench", url, "id_fp32", "-c", "3", "-n", "30", "-w", "0", *flags).returncode == 0
        else:
            assert done.returncode == 1 and says in done.stderr, done.stderr
            assert says in run("ping", "-c", "1", url, *flags).stdout

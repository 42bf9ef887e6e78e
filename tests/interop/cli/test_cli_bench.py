"""`sluice bench` against Sluice over HTTP and MIP, and against servers that refuse, stall and go away:
what was measured adds up, every report can be read back, and nothing is said of a load that was not."""
import http.server
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time

import numpy
import pytest

from lib import http1
from lib.mip_server import MipServer, Refuse
from lib.server import binary, run

SHORT = ("-d", "500ms", "-w", "20ms")
PERCENTILES = ("min", "p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "max")


def bench(*args, code=0, **options):
    """Runs `sluice bench ARGS --json -`. Returns: the JSON, and standard error (the table)."""
    done = run("bench", *args, "--json", "-", **options)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def refuse(*args, code):
    """Runs one that says why there is no load. Returns: what it says."""
    done = run("bench", *args)
    assert done.returncode == code and done.stdout == "", done
    return done.stderr


def check_step(step):
    """What must hold of any step."""
    assert step["succeeded"] + step["failed"] == step["requests"]
    assert sum(count for _, _, count in step["histogram_ns"]) == step["succeeded"]
    assert sum(error["count"] for error in step["errors"]) == step["failed"]
    if step["succeeded"] == 0:
        assert step["latency_ms"] is None
        return
    values = [step["latency_ms"][name] for name in PERCENTILES]
    assert values == sorted(values) and values[0] > 0
    low, high = step["histogram_ns"][0][0], step["histogram_ns"][-1][1]
    assert low <= values[0] * 1e6 + 1 and values[-1] * 1e6 <= high + 1
    assert 0 <= step["generator"]["busy"] <= 1 and step["generator"]["threads"] >= 1


def url_of(server):
    return f"http://{server.address}"


class Model(http.server.BaseHTTPRequestHandler):
    """A model `m` of one FP32 [-1,4] input. What an inference gets is `server.behave`: from its number,
    beginning with 0, to a status, or None for silence."""
    protocol_version = "HTTP/1.1"
    tensors = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]

    def do_GET(self):  # noqa: N802
        self.reply(200, {"name": "m", "versions": ["1"], "platform": "test", "inputs": self.tensors,
                         "outputs": self.tensors})

    def do_POST(self):  # noqa: N802
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            number = self.server.n_inferences
            self.server.n_inferences += 1
        status = self.server.behave(number)
        if status is None:
            self.rfile.read(1) # until the client gives up
            self.close_connection = True
        elif status == 200:
            self.reply(200, {"model_name": "m", "outputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})
        else:
            self.reply(status, {"error": f"no <number> {number}"})

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.n_connections += 1
            self.server.sockets.append(self.request)

    def log_message(self, *_):
        pass


class ModelServer(http.server.ThreadingHTTPServer):
    """Serves Model on a free port until it is closed, with all of its connections."""
    daemon_threads = True

    def __init__(self, behave=lambda number: 200):
        self.lock = threading.Lock()
        self.behave = behave
        self.n_inferences = self.n_connections = 0
        self.sockets = []
        super().__init__(("127.0.0.1", 0), Model)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()

    def handle_error(self, *_):
        pass  # clients go away

    def __exit__(self, *_):
        self.die()

    def die(self):
        if self.thread.is_alive():
            self.shutdown()
            self.thread.join()
            self.server_close()
            for sock in self.sockets:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # closed


# ---- closed and open loops --------------------------------------------------------------------------

def test_bench_concurrency_list_runs_each_step(client_server):
    urls = [url_of(client_server), f"http+{client_server.addresses[1]}"]
    for url in urls:
        result, table = bench(url, "id_batch", "-c", "1,3", "-d", "1s", "-w", "20ms")
        assert [step["concurrency"] for step in result["steps"]] == [1, 3]
        for step in result["steps"]:
            check_step(step)
            assert step["failed"] == 0 and step["succeeded"] > 0 and step["rate"] is None
            assert step["requests_per_second"] > 0 and step["payload_bytes_per_second"] > 0
        assert result["model"] == "id_batch" and result["server"] and not result["interrupted"]
        assert result["request"]["inputs"] == [
            {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "bytes": 16}]
        rows = re.findall(r"^ +(\d+) +[\d,.]+ +[\d,.]+", table, re.M)
        assert rows == ["1", "3"] and "Best: " in table


def test_bench_request_count_is_exact(client_server):
    for threads in ("0", "1", "3"):
        result, _ = bench(url_of(client_server), "id_fp32", "-c", "1,5", "-n", "50", "-w", "0", "-t",
                          threads)
        assert [step["requests"] for step in result["steps"]] == [50, 50]
        for step in result["steps"]:
            check_step(step)
        assert result["steps"][1]["generator"]["threads"] == max(int(threads), 1)


@pytest.mark.parametrize("arrival", ["constant", "poisson"])
def test_bench_rate_list_runs_open_loop(client_server, arrival):
    result, table = bench(url_of(client_server), "id_fp32", "--rate", "50,200", "-d", "500ms", "-w",
                          "50ms", "--arrival", arrival)
    assert [step["rate"] for step in result["steps"]] == [50, 200]
    for step in result["steps"]:
        check_step(step)
        if arrival == "constant": # each begins on time, or is said not to have begun
            assert step["requests"] + step["not_sent"] == step["rate"] * 0.5
    assert "wanted/s" in table and result["load"]["loop"] == "open"


def test_bench_rate_with_request_count_is_exact(client_server):
    result, _ = bench(url_of(client_server), "id_fp32", "--rate", "1000", "-n", "30", "-w", "0")
    assert result["steps"][0]["requests"] == 30


def test_bench_overloaded_rate_charges_late_requests():
    """One connection and answers that take 50 ms: at 100 requests a second most can't begin when they
    should, which is charged to those that do and said of those that don't."""
    def slow(_):
        time.sleep(0.05)
        return 200
    with ModelServer(slow) as server:
        result, table = bench(server.url, "m", "--rate", "100", "-c", "1", "-d", "1s", "-w", "0")
    step = result["steps"][0]
    check_step(step)
    assert step["requests"] + step["not_sent"] == 100 and step["not_sent"] > 50
    assert step["latency_ms"]["max"] > 4 * 50
    assert "did not keep up" in table and "never sent" in table


def test_bench_latency_limit_ends_sweep(client_server):
    result, table = bench(url_of(client_server), "id_slow", "-c", "1,2,3", "--max-p99", "1ms", "-n", "1",
                          "-w", "0")
    assert len(result["steps"]) == 1
    assert "No step kept its p99 within 1 ms" in table and "1 of 3 steps were run" in table


# ---- requests ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("form, batch", [("binary", 3), ("json", 3), ("raw", 1)])
def test_bench_each_form_succeeds(client_server, form, batch):
    result, _ = bench(url_of(client_server), "id_batch", "--form", form, "--batch", batch, "-c", "2", "-n",
                      "20", "-w", "0")
    step = result["steps"][0]
    check_step(step)
    assert result["request"]["form"] == form and step["failed"] == 0
    assert result["request"]["inputs"][0]["shape"] == [batch, 4]
    assert step["inferences_per_second"] == pytest.approx(batch * step["requests_per_second"], rel=1e-6)


def test_bench_each_datatype_is_generated(client_server):
    for datatype in ("bool", "uint8", "uint64", "int8", "int64", "fp16", "bf16", "fp64", "bytes"):
        for data in ("random", "zeros"):
            bench(url_of(client_server), f"id_{datatype}", "--shape", "INPUT0=7", "--data", data, "-n",
                  "3", "-w", "0", "-c", "1")


def test_bench_inputs_from_file_and_generated(client_server, tmp_path):
    numpy.save(tmp_path / "a.npy", numpy.array([1, 2, 3], dtype="float32"))
    result, _ = bench(url_of(client_server), "id_two", "--input", "INPUT0=@a.npy", "--shape", "INPUT1:5",
                      "-n", "3", "-w", "0", "-c", "1", cwd=tmp_path)
    assert [(i["name"], i["shape"]) for i in result["request"]["inputs"]] == [
        ("INPUT0", [3]), ("INPUT1", [5])]
    result, _ = bench(url_of(client_server), "id_two_batch", "--input", "INPUT0=[1,2]", "-b", "4",
                      "--output", "OUTPUT1", "-n", "3", "-w", "0", "-c", "1")
    assert [i["shape"] for i in result["request"]["inputs"]] == [[4, 2], [4, 2]]


def test_bench_ping_counts_pings(client_server):
    for url in (url_of(client_server), f"http+{client_server.addresses[1]}"):
        result, table = bench(url, "--ping", "-n", "20", "-w", "0", "-c", "2")
        assert result["request"]["kind"] == "ping" and result["steps"][0]["succeeded"] == 20
        assert "MB/s" not in table


def test_bench_reconnect_opens_connection_per_request():
    with ModelServer() as server:
        bench(server.url, "m", "-n", "20", "-w", "0", "-c", "2")
        kept = server.n_connections
        bench(server.url, "m", "-n", "20", "-w", "0", "-c", "2", "--reconnect")
        assert kept == 2 + 2 and server.n_connections - kept == 2 + 20 # metadata and the first try


# ---- what goes wrong --------------------------------------------------------------------------------

@pytest.mark.parametrize("args, says", [
    (("id_nothing",), "unknown model"),
    (("id_failing",), "the first request failed, no load was made: out of ink"),
    (("id_fixed", "--model-version", "9"), "HTTP 404"),
    (("id_fixed", "--output", "OUTPUT9"), "the first request failed"),
])
def test_bench_invalid_load_is_refused(client_server, args, says, tmp_path):
    page = tmp_path / "page.html"
    said = refuse(url_of(client_server), *args, "--html", page, *SHORT, code=1)
    assert says in said and not page.exists()


@pytest.mark.parametrize("args, says", [
    (("id_fixed", "--shape", "INPUT0=3,3"), "[3,3] does not fit the model's [2,2]"),
    (("id_fixed", "--shape", "INPUT9=3"), 'no input "INPUT9"; did you mean "INPUT0"?'),
    (("id_fixed", "--batch", "2"), "takes no batches"),
    (("id_two", "--form", "raw"), "--form raw sends exactly one input, and the model has 2"),
])
def test_bench_mismatched_inputs_are_refused(client_server, args, says):
    assert says in refuse(url_of(client_server), *args, *SHORT, code=2)


@pytest.mark.parametrize("args, says", [
    (("http://h",), "MODEL is missing: sluice bench http://h MODEL (or --ping)"),
    (("http://h", "m", "more"), "one argument too many"),
    (("h:1", "m"), "h:1"),
    (("tcp://h:1",), "there is nothing to send: give --image FILE"),
    (("tcp://h:1", "m", "--text", "a"), "has no name"),
    (("tcp://h:1", "--text", "a", "--form", "json"), "--form is for HTTP"),
    (("http://h", "m", "--text", "a"), "--text is for MIP"),
    (("http://h", "--ping", "-b", "2"), "--ping sends no inference: no --batch"),
    (("http://h", "m", "-c", "0"), "--concurrency 0: out of range; expected numbers from 1"),
    (("http://h", "m", "-c", "1:x"), "--concurrency 1:x: not a range"),
    (("http://h", "m", "-r", "5", "-c", "1,2"), "the limit of requests in flight"),
    (("http://h", "m", "--arrival", "poisson"), "--arrival is for --rate"),
    (("http://h", "m", "--request-rate-range", "1"), "write --rate FROM:TO:STEP"),
])
def test_bench_usage_errors(args, says):
    said = refuse(*args, code=2)
    assert says in said and "--help" in said


def test_bench_no_server_fails(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert "Connection refused" in refuse(url, "m", code=1)
    assert "No such file" in refuse(f"unix://{tmp_path}/none", "--ping", code=1)


def test_bench_errors_are_counted_by_reason():
    with ModelServer(lambda number: (200, 200, 503, 200, 418)[number % 5]) as server:
        result, table = bench(server.url, "m", "-n", "100", "-w", "0", "-c", "3", code=1)
    step = result["steps"][0]
    check_step(step)
    assert step["requests"] == 100 and step["failed"] == 40
    errors = {error["reason"]: error for error in step["errors"]}
    assert {name: error["count"] for name, error in errors.items()} == {"HTTP 503": 20, "HTTP 418": 20}
    assert re.fullmatch(r"no <number> \d+ \(HTTP 503\)", errors["HTTP 503"]["first"])
    assert re.search(r"concurrency 3: 20 requests failed, HTTP 503: no <number> \d+", table)


def test_bench_missing_answer_is_timeout():
    with ModelServer(lambda number: None if number in (1, 2) else 200) as server:
        result, _ = bench(server.url, "m", "-n", "10", "-w", "0", "-c", "2", "--timeout", "3s",
                          code=1)
    step = result["steps"][0]
    check_step(step)
    assert [(e["reason"], e["count"]) for e in step["errors"]] == [("timeout", 2)]
    assert step["succeeded"] == 8


def test_bench_server_exit_ends_run_with_report(tmp_path):
    """After a while it is not there any more: what it answered is reported, the next step is not tried
    for long, and the page can be read."""
    page = tmp_path / "page.html"
    server = ModelServer()
    process = subprocess.Popen([binary(), "bench", server.url, "m", "-c", "2,3,4", "-d", "3s", "-w", "0",
                                "--json", "-", "--html", page], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    wait_until(lambda: server.n_inferences > 20)
    server.die()
    out, err = process.communicate(timeout=http1.PATIENCE)
    result = json.loads(out)
    for step in result["steps"]:
        check_step(step)
    assert process.returncode == 1 and "connection failed" in err
    assert sum(step["succeeded"] for step in result["steps"]) > 0
    assert result["steps"][-1]["failed"] < 200 # it was not asked without a pause
    assert len(result["steps"]) == 2 and "2 of 3 steps were run" in err
    check_page(page.read_text(encoding="utf-8"))


def wait_until(fits):
    end = time.monotonic() + http1.PATIENCE
    while not fits():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- ending early -----------------------------------------------------------------------------------

def test_bench_interrupt_reports_partial_result():
    with ModelServer() as server:
        process = subprocess.Popen([binary(), "bench", server.url, "m", "-c", "2,3", "-d", "1h", "-w",
                                    "0", "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        wait_until(lambda: server.n_inferences > 50)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=http1.PATIENCE)
    result = json.loads(out)
    step = result["steps"][0]
    check_step(step)
    assert process.returncode == 0 and result["interrupted"] and len(result["steps"]) == 1
    assert step["succeeded"] > 0 and 0 < step["seconds"] < http1.PATIENCE
    assert "1 of 2 steps were run; the last was interrupted" in err


def test_bench_interrupt_abandons_unanswered_request():
    """Two answers never come. The first signal waits for them for a second, the second one not at all."""
    for n_signals in (1, 2):
        with ModelServer(lambda number: None if number == 10 or number >= 50 else 200) as server:
            process = subprocess.Popen([binary(), "bench", server.url, "m", "-c", "2", "-d", "1h", "-w",
                                        "0", "--json", "-"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            wait_until(lambda server=server: server.n_inferences == 51)
            for _ in range(n_signals):
                process.send_signal(signal.SIGINT)
                time.sleep(0.1)
            out, err = process.communicate(timeout=http1.PATIENCE)
        step = json.loads(out)["steps"][0]
        check_step(step)
        assert step["abandoned"] == 2 and "in flight when the run was interrupted" in err


# ---- reports ----------------------------------------------------------------------------------------

def check_page(text):
    """It is whole, and says what was measured. test_bench_page.py opens it. Returns: the run."""
    assert text.startswith("<!DOCTYPE html>\n") and text.endswith("</html>\n")
    run = json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>', text, re.DOTALL)[1])
    for step in run["steps"]:
        check_step(step)
    return run


def test_bench_report_to_standard_output(client_server):
    args = (url_of(client_server), "id_fp32", "-n", "5", "-w", "0", "-c", "1")
    page = run("bench", *args, "--html", "-")
    assert page.returncode == 0 and "requests/s" in page.stderr
    check_page(page.stdout)
    full = subprocess.run([binary(), "bench", *args], stdout=open("/dev/full", "wb"), check=False,
                          stderr=subprocess.PIPE, timeout=http1.PATIENCE)
    assert full.returncode == 1
    nowhere = run("bench", *args, "--json", "/nowhere/x.json")
    assert nowhere.returncode == 1 and "/nowhere/x.json" in nowhere.stderr


def on_a_terminal(*args):
    """Returns: the exit code, standard output, and what the terminal saw on standard error."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([binary(), "bench", *args], stdout=subprocess.PIPE, stderr=theirs,
                          env=dict(os.environ, TERM="xterm"), text=True) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError: # the other side was closed
                piece = b""
            if not piece:
                break
            seen += piece
        os.close(ours)
        return process.wait(), process.stdout.read(), seen.decode()


def test_bench_progress_only_on_terminal(client_server):
    args = (url_of(client_server), "id_fp32", "-c", "1,2", "-d", "1500ms", "-w", "700ms")
    code, out, seen = on_a_terminal(*args)
    assert code == 0 and "requests/s" in out and "\r" not in out
    lines = seen.split("\r")
    assert any(re.match(r"2 of 2  concurrency 2  [\d,.]+/s  p50 [\d,.]+  p99 [\d,.]+ ms  0 errors  "
                        r"\d s left\x1b\[K", line) for line in lines), seen
    assert any("warming up" in line for line in lines)
    assert lines[-1] == "\x1b[K" and "\n" not in seen # nothing of it stays
    code, _, seen = on_a_terminal(*args[:2], "-n", "5", "-q")
    assert code == 0 and seen == ""
    assert run("bench", *args[:2], "-n", "5", "-w", "0").stderr == ""


# ---- MIP --------------------------------------------------------------------------------------------

@pytest.fixture
def mip_server(start_server, repositories, tmp_path):
    return start_server("--model-repository", repositories("default"), "--mip",
                        "tcp://127.0.0.1:0=id_string", "--mip", f"unix://{tmp_path}/s=id_two_batch")


def test_bench_mip_succeeds(mip_server):
    strings, numbers = mip_server.mip_urls
    for args in ((strings, "--text", "hello"), (strings, "--text", "hello", "--batch", "5"),
                 (numbers, "--json-item", "[1,2]", "--json-item", "[3,4]", "--inputs", "2", "-b", "3")):
        result, table = bench(*args, "-c", "1,3", "-n", "30", "-w", "0")
        for step in result["steps"]:
            check_step(step)
            assert step["succeeded"] == 30
        assert result["request"]["protocol"] == "MIP" and result["request"]["batch"] == int(
            args[-1] if args[-1].isdigit() else 1)
        assert "MIP, batch " in table
    for url in (strings, numbers):
        result, _ = bench(url, "--ping", "-c", "4", "-n", "50", "-w", "0", "--reconnect")
        assert result["steps"][0]["succeeded"] == 50


def test_bench_mip_refused_first_request_fails(mip_server):
    numbers = mip_server.mip_urls[1]
    said = refuse(numbers, "--json-item", "[1,2]", *SHORT, code=1)
    assert "the first request failed" in said and "SHAPE" in said
    assert "--json-item {: " in refuse(numbers, "--json-item", "{", *SHORT, code=1)


def test_bench_mip_server_closing_connections_succeeds(tmp_path):
    """The reference closes after each answer, and may refuse some."""
    n_asked = 0

    def model(items):
        nonlocal n_asked
        n_asked += 1
        if n_asked % 5 == 0:
            raise Refuse("MEMORY")
        return items
    for path in (None, tmp_path / "socket"):
        n_asked = 0
        with MipServer(model, path) as server:
            result, table = bench(server.url, "--text", "a", "-c", "1", "-n", "20", "-w", "0", code=1)
        step = result["steps"][0]
        check_step(step)
        assert [(e["reason"], e["count"]) for e in step["errors"]] == [("MIP MEMORY", 4)]
        assert step["succeeded"] == 16 and "MIP MEMORY" in table

"""`sluice ping` against Sluice over HTTP and a small MIP server: lines, summary and exit code; one
connection or many; lost pings and why; Ctrl-C."""
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest

from lib import http1
from lib.mip_server import ERROR, HEADER, PING, RESPONSE, MipServer, exactly
from lib.server import binary, run

PONG = HEADER.pack(0, PING, RESPONSE, 0, 0)
ANSWER = re.compile(r"seq=(\d+) time=(\d+\.\d{3}) ms")
SUMMARY = re.compile(r"""--- (\S+) ping statistics ---
(\d+) sent, (\d+) answered, (\d+) lost \((\S+)%\), time \d+ ms
(?:min/avg/max/stddev = ([\d.]+)/([\d.]+)/([\d.]+)/([\d.]+) ms
)?""")


class Scripted(MipServer):
    """Gives the answers of a list in turn, the last of them for ever: bytes; b"" ends the connection,
    None is silence. Connections are kept."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.n_connections = 0
        super().__init__(None)

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError: # closed
                return
            self.n_connections += 1
            connection.settimeout(http1.PATIENCE)
            with connection, connection.makefile("rb") as stream:
                try:
                    self.serve(connection, stream)
                except (EOFError, OSError):
                    pass  # the client went away

    def serve(self, connection, stream):
        while True:
            exactly(stream, HEADER.size)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer is None:
                stream.read(1) # the client gives up
            if not answer:
                return
            connection.sendall(answer)


def ping(url, *args):
    """Returns: (exit code, lines before the summary but the first, match of the summary)."""
    done = run("ping", "-i", "2ms", *args, url)
    assert done.stderr == ""
    head, rest = done.stdout.split("\n", 1)
    assert head.startswith(f"PING {url}: ")
    summary = SUMMARY.search(rest)
    assert summary and summary.end() == len(rest) and summary[1] == url, done.stdout
    return done.returncode, rest[:summary.start()].splitlines(), summary


def check_answered(url, n):
    code, lines, summary = ping(url, "-c", n)
    answers = [ANSWER.fullmatch(line) for line in lines]
    assert code == 0 and [int(answer[1]) for answer in answers] == list(range(1, n + 1))
    assert summary.groups()[1:5] == (str(n), str(n), "0", "0")
    times = [float(answer[2]) for answer in answers]
    low, mean, high, _ = map(float, summary.groups()[5:])
    assert (low, high) == (min(times), max(times))
    assert abs(mean - sum(times) / n) < 0.002


def test_ping_each_scheme(start_server, repositories, tmp_path):
    server = start_server("--model-repository", repositories("default"), "--mip",
                          "tcp://127.0.0.1:0=id_fp32", "--mip", f"unix://{tmp_path}/mip=id_fp32",
                          listen=("127.0.0.1:0", f"unix:{tmp_path}/http"))
    for address in server.addresses:
        check_answered(f"http+{address}" if address.startswith("unix:") else f"http://{address}", 4)
    assert len(server.mip_urls) == 2
    for url in server.mip_urls:
        check_answered(url, 4)
    for path in (None, tmp_path / "socket"):
        with MipServer(None, path) as server:
            check_answered(server.url, 4)


def test_ping_reconnect_opens_connection_per_ping():
    for flags, n_connections in (([], 1), (["--reconnect"], 3)):
        with Scripted(PONG) as server:
            code, lines, _ = ping(server.url, "-c", 3, *flags)
            assert code == 0 and len(lines) == 3
        assert server.n_connections == n_connections


def test_ping_server_closing_connections_succeeds():
    with MipServer(None) as server:
        code, _, summary = ping(server.url, "-c", 3)
        assert code == 0 and summary[3] == "3"
    assert server.n_requests == 3


def test_ping_any_http_status_is_answer():
    class Nothing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass
    with http.server.HTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            check_answered(f"http://127.0.0.1:{server.server_port}", 2)
        finally:
            server.shutdown()
            thread.join()


def test_ping_lost_prints_reason():
    # A ping on a connection that was used before is sent again when that ends: hence twice b"".
    with Scripted(PONG, b"", b"", HEADER.pack(0, ERROR, 2, 0, 0), b"HTTP/1.1") as server:
        code, lines, summary = ping(server.url, "-c", 4)
    assert code == 0 # one was answered
    assert ANSWER.fullmatch(lines[0])
    for line, seq, why in zip(lines[1:], range(2, 5), ("closed", "METHOD", "")):
        assert re.match(f"seq={seq} lost: .*{why}", line), line
    assert summary.groups()[1:5] == ("4", "1", "3", "75")
    with Scripted(None) as server:
        code, lines, _ = ping(server.url, "-c", 2, "-W", "50ms")
    assert code == 1 and all("lost: timed out" in line for line in lines) and len(lines) == 2


def test_ping_no_server_is_lost(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as there:
        gone = f"tcp://127.0.0.1:{there.getsockname()[1]}"
    for url, why in ((gone, "Connection refused"), (gone.replace("tcp", "http"), "Connection refused"),
                     (f"unix://{tmp_path}/none", "No such file")):
        code, lines, summary = ping(url, "-c", 2)
        assert code == 1 and len(lines) == 2
        assert all("lost: " in line and why in line for line in lines)
        assert summary.groups()[1:5] == ("2", "0", "2", "100") and summary[6] is None


def test_ping_quiet_and_json():
    with MipServer(None) as server:
        code, lines, summary = ping(server.url, "-q", "-c", 2)
        assert code == 0 and lines == [] and summary[2] == "2"
    with Scripted(PONG, b"") as server:
        done = run("ping", "--json", "-c", 2, "-i", "1ms", server.url)
        first, second, last = map(json.loads, done.stdout.splitlines())
        assert done.returncode == 0 and done.stderr == ""
        assert first["seq"] == 1 and first["time_ms"] >= 0 and set(second) == {"seq", "error"}
        assert (last["url"], last["sent"], last["answered"], last["lost"]) == (server.url, 2, 1, 1)
        assert last["min_ms"] == last["avg_ms"] == last["max_ms"] == first["time_ms"]
        done = run("ping", "--json", "-q", "-c", 1, server.url)
        assert done.returncode == 1
        assert json.loads(done.stdout) == {"url": server.url, "sent": 1, "answered": 0, "lost": 1}


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
@pytest.mark.parametrize("answers", ((PONG,), (PONG, None)), ids=("between", "waiting"))
def test_ping_signal_prints_summary(number, answers):
    """Between two pings, and while an answer does not come: that ping counts for nothing."""
    with Scripted(*answers) as server:
        interval = "1h" if answers == (PONG,) else "1ms"
        process = subprocess.Popen([binary(), "ping", "-i", interval, "-W", "1h", server.url],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            head = process.stdout.readline(), process.stdout.readline()
            assert ANSWER.fullmatch(head[1].rstrip()), head
            process.send_signal(number)
            out, err = process.communicate(timeout=http1.PATIENCE)
        finally:
            process.kill()
            process.wait()
        assert (process.returncode, err) == (0, "")
        assert SUMMARY.fullmatch(out) and "1 sent, 1 answered, 0 lost (0%)" in out


@pytest.mark.parametrize("args, says", [
    ([], "URL is missing"),
    (["127.0.0.1:9000"], "no scheme"),
    (["tcp://127.0.0.1"], "port"),
    (["ftp://127.0.0.1:1"], "expected"),
    (["--metadata", "a=b", "http://127.0.0.1:1"], "--metadata is for gRPC"),
    (["--cacert", "f", "http://127.0.0.1:1"], "--cacert is for https://HOST:PORT and grpcs://"),
    (["--key", "f", "https://127.0.0.1:1"], "--key needs --cert"),
    (["-c", "-1", "tcp://127.0.0.1:1"], "whole number"),
    (["-c", "x", "tcp://127.0.0.1:1"], "whole number"),
    (["-i", "0", "tcp://127.0.0.1:1"], "out of range"),
    (["-w", "3", "tcp://127.0.0.1:1"], "-W TIME"),
    (["--count", "1", "--count", "2", "tcp://127.0.0.1:1"], "given twice"),
    (["tcp://127.0.0.1:1", "more"], "one argument too many"),
])
def test_ping_usage_errors(args, says):
    done = run("ping", *args)
    assert done.returncode == 2 and done.stdout == "" and says in done.stderr, done.stderr


def test_ping_to_full_disk_fails():
    with MipServer(None) as server, open("/dev/full", "wb") as full:
        done = subprocess.run([binary(), "ping", "-c", "3", server.url], stdout=full, text=True,
                              stderr=subprocess.PIPE, timeout=http1.PATIENCE, check=False)
    assert done.returncode == 1 and "writing the result" in done.stderr


def test_ping_closed_pipe_exits():
    """`sluice ping … | head -1` ends."""
    with MipServer(None) as server:
        process = subprocess.Popen([binary(), "ping", "-i", "1ms", server.url],
                                   stdout=subprocess.PIPE, restore_signals=True)
        try:
            os.read(process.stdout.fileno(), 1)
            process.stdout.close()
            assert process.wait(http1.PATIENCE) == -signal.SIGPIPE
        finally:
            process.kill()
            process.wait()

"""libsluice against servers whose answers are wrong: each gives its status and reason, and a call to
the same server, which then answers well, succeeds. src/client/call_test.c does the same with one client at
each byte of an answer."""
import os
import socket
import struct
import subprocess
import threading

import pytest

from lib import http1, server

OK = b"HTTP/1.1 200 OK\r\n"
GOOD = OK + b"Content-Length: 2\r\n\r\n[]"


def sized(body, fields=b"", status=OK):
    return status + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Script:
    """A server that gives an answer to each connection, and then ends it, by a reset if so."""

    def __init__(self, answers, reset=False):
        self.answers, self.reset = answers, reset
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(http1.PATIENCE)
        assert not self.thread.is_alive()

    def run(self):
        for answer in self.answers:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed early: the test has failed
                return
            with connection:
                connection.settimeout(http1.PATIENCE)
                while not connection.recv(1 << 16).endswith(b"{}"):
                    pass
                try:
                    connection.sendall(answer)
                except OSError:  # the client has seen enough
                    pass
                if self.reset and answer is not GOOD:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def index(url):
    program = os.path.join(server.build(), "examples", "client", "http_repository")
    done = subprocess.run([program, url, "index"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=2 * http1.PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("answer, status, reason", [
    pytest.param(b"", "CLOSED", "without an answer", id="none"),
    pytest.param(b"SSH-2.0-x\r\n", "PROTOCOL", "not HTTP/1.1", id="another protocol"),
    pytest.param(OK + b"Content-Length: 10\r\n\r\n[", "PROTOCOL", "in the middle", id="half a body"),
    pytest.param(OK + b"X: y\r\n", "PROTOCOL", "in the middle", id="half a head"),
    pytest.param(OK + b"X: " + 100_000 * b"a", "PROTOCOL", "head", id="endless header"),
    pytest.param(OK + 200 * b"X: y\r\n" + b"\r\n", "PROTOCOL", "128 fields", id="many headers"),
    pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n[]", "PROTOCOL", "", id="two lengths"),
    pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "PROTOCOL", "", id="bad chunk"),
    pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n" + 20_000 * b"X: y\r\n", "PROTOCOL", "trailers",
                 id="endless trailers"),
    pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2;" + 100_000 * b"a", "PROTOCOL", "extensions",
                 id="endless extension"),
    pytest.param(OK + b"Content-Length: 2147483648\r\n\r\n[", "TOO_LARGE", "max_answer_bytes", id="2 GiB"),
    pytest.param(sized(b"\x1f\x8b", b"Content-Encoding: gzip\r\n"), "PROTOCOL", "Content-Encoding", id="gzip"),
    pytest.param(sized(100_000 * b"["), "PROTOCOL", "the server's answer", id="deep JSON"),
    pytest.param(sized(b'[{"name": "a'), "PROTOCOL", "the server's answer", id="half JSON"),
    pytest.param(sized(b"<html>no</html>", status=b"HTTP/1.1 503 x\r\n"), "SERVER_ERROR", "<html>no", id="error page"),
    pytest.param(sized(b"", status=b"HTTP/1.1 204 x\r\n"), "SERVER_ERROR", "204", id="another success"),
    pytest.param(100 * b"HTTP/1.1 100 Continue\r\n\r\n", "PROTOCOL", "too many interim", id="interim answers"),
])
def test_bad_answer_has_its_status(answer, status, reason):
    with Script([answer, GOOD]) as script:
        code, out, err = index(script.url)
        assert (code, out) == (1, "")
        assert err.startswith(f"http_repository: SLUICE_CLIENT_{status}: ") and reason in err, err
        assert index(script.url) == (0, "[]\n", "")


@pytest.mark.parametrize("answer, status", [(b"", "CLOSED"), (OK, "PROTOCOL")])
def test_reset_connection_has_its_status(answer, status):
    with Script([answer, GOOD], reset=True) as script:
        code, out, err = index(script.url)
        assert (code, out) == (1, "")
        assert err.startswith(f"http_repository: SLUICE_CLIENT_{status}: "), err
        assert index(script.url) == (0, "[]\n", "")

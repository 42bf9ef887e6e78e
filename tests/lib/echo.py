"""A small HTTP/1.1 server that says what it was asked: JSON with its own name, the path, the body's size and
hash, and the headers. It stands in for a model server whose answers must be known to the byte. How it
answers is the request's wish, in the header `x-answer`:

    status=503   that status            trailers   chunked, with a trailer at the end
    sse          five events            pause      half of the body, then nothing until `let_go`
    die          half of the body, then the end of the connection
    close        the end of the connection, without an answer
    garbage      what is not HTTP
    silence      nothing until `let_go`
    flood        64 MB

`Blackhole` is the address of a machine that has gone: connections to it are neither made nor refused.

Without such a wish it answers with its `status`, or by its own `wish`, which a test may change; health checks always
get 200. It sheds with 503 what comes while `sheds_from` requests are in progress. `/metrics` has vLLM's numbers of
requests, with `slots` that run, unless `page` is another text, or None: then no answer comes.
"""
import contextlib
import hashlib
import json
import socket
import socketserver
import threading
import time


class Echo:
    """`name` is what it calls itself; `address` may fix its port ("127.0.0.1:0")."""

    def __init__(self, name="echo", address="127.0.0.1:0"):
        host, _, port = address.rpartition(":")
        self.name = name
        self.status = "200"
        self.wish = None
        self.sheds_from = None
        self.work_s = 0  # the time of each request but health checks
        self.slots, self.page = 8, ""
        self.models, self.models_status, self.model_keys = None, 200, []  # what /v1/models answers; None: as other paths
        self.n_now = 0  # requests in progress, without health checks
        self.go = threading.Event()
        kind = ListenerV6 if ":" in host else Listener
        self.server = kind((host.strip("[]"), int(port)), Asked)
        self.server.echo = self
        self.address = f"{host}:{self.server.server_address[1]}"
        self.n_requests = 0
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def let_go(self):
        """Those who asked until now pause no longer."""
        with self.lock:
            go, self.go = self.go, threading.Event()
        go.set()

    def close(self):
        """The port refuses connections from here on; those that are open end too."""
        self.let_go()
        self.server.shutdown()
        self.server.close_all()
        self.server.server_close()
        self.thread.join()


class Blackhole:
    """A socket that listens and accepts nothing. Its queue has one place, which is taken: the system drops
    every further SYN."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.first = socket.create_connection(self.listener.getsockname())
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def close(self):
        self.first.close()
        self.listener.close()


@contextlib.contextmanager
def three():
    """a, b and c."""
    started = [Echo(name) for name in "abc"]
    yield started
    for one in started:
        one.close()


class Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 4096  # one that overflows loses connections where accepting is late

    def __init__(self, *args):
        self.connections = set()
        super().__init__(*args)

    def process_request(self, request, client_address):
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self.connections.discard(request)
        super().shutdown_request(request)

    def close_all(self):
        for connection in list(self.connections):
            try:
                connection.shutdown(2)
            except OSError:
                pass


class ListenerV6(Listener):
    address_family = socket.AF_INET6


class Asked(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        try:
            while self.one():
                pass
        except (OSError, ValueError):
            pass  # whoever asked has gone

    def one(self):
        """One request and its answer. Returns: False when the connection is to end."""
        line = self.rfile.readline()
        if not line:
            return False
        method, path, _ = line.decode().split(" ")
        headers = self.read_headers()
        body = self.read_body(headers)
        echo, is_health = self.server.echo, "/health/" in path
        if path == "/metrics":
            return self.answer_metrics()
        if path == "/v1/models" and echo.models is not None:
            echo.model_keys.append(headers.get("authorization"))
            self.send(b"HTTP/1.1 %d Said\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                      % (echo.models_status, len(echo.models), echo.models))
            return True
        with echo.lock:
            go = echo.go
            is_full = echo.sheds_from is not None and echo.n_now >= echo.sheds_from
            echo.n_requests += 1
            echo.n_now += not is_health
        wish = headers.get("x-answer", echo.wish or f"status={echo.status}")
        said = json.dumps({"server": echo.name, "method": method, "path": path, "length": len(body),
                           "sha1": hashlib.sha1(body).hexdigest(), "headers": headers}).encode()
        try:
            time.sleep(0 if is_health else echo.work_s)
            return self.answer("" if is_health else "status=503" if is_full else wish, method, said, go)
        finally:
            with echo.lock:
                echo.n_now -= not is_health

    def answer_metrics(self):
        echo = self.server.echo
        if echo.page is None:
            with echo.lock:
                go = echo.go
            go.wait()
            return False
        with echo.lock:
            n_running = min(echo.n_now, echo.slots)
            page = echo.page or (f"vllm:num_requests_running {n_running}\n"
                                 f"vllm:num_requests_waiting {echo.n_now - n_running}\n"
                                 "vllm:kv_cache_usage_perc 0\n")
        self.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
                  b"content-length: %d\r\n\r\n%s" % (len(page), page.encode()))
        return True

    def read_headers(self):
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return headers

    def read_body(self, headers):
        if "chunked" not in headers.get("transfer-encoding", ""):
            return self.rfile.read(int(headers.get("content-length", 0)))
        parts = []
        while n_bytes := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(n_bytes))
            self.rfile.readline()
        self.read_headers()  # trailers
        return b"".join(parts)

    def answer(self, wish, method, said, go):
        status = wish.partition("=")[2] if wish.startswith("status=") else "200"
        if wish == "sse":
            return self.answer_events()
        if wish == "flood":
            self.send(b"HTTP/1.1 200 Said\r\ncontent-length: %d\r\n\r\n" % (64 << 20))
            for _ in range(64):
                self.send(bytes(1 << 20))
            return True
        if wish == "close":
            return False
        if wish == "garbage":
            self.send(b"no HTTP\r\n\r\n")
            return False
        if wish == "silence":
            go.wait()
        if wish == "trailers":
            self.send_chunked("application/json", [said], "x-checked: yes\r\n")
            return True
        if status == "204":
            self.send(b"HTTP/1.1 204 Said\r\n\r\n")
            return True
        half = len(said) // 2 if wish in ("pause", "die") else len(said)
        self.send(f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n"
                  f"content-length: {len(said)}\r\n\r\n".encode())
        if method == "HEAD":
            return True
        self.send(said[:half])
        if wish == "pause":
            go.wait()
        if wish != "die":
            self.send(said[half:])
        return wish != "die"

    def answer_events(self):
        self.send_chunked("text/event-stream", [b"data: %d\n\n" % i for i in range(5)], "")
        return True

    def send_chunked(self, kind, parts, trailers):
        self.send(f"HTTP/1.1 200 Said\r\ncontent-type: {kind}\r\n"
                  f"transfer-encoding: chunked\r\n\r\n".encode())
        for part in parts:
            self.send(b"%x\r\n%s\r\n" % (len(part), part))
        self.send(f"0\r\n{trailers}\r\n".encode())

    def send(self, data):
        self.wfile.write(data)
        self.wfile.flush()

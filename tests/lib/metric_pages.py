"""A small HTTP/1.1 server of a page of metrics, as a model server has one. It stands in for servers that
need a GPU, and for broken ones: how it answers may change at any time.

    page       the text that `says` was given      hang       takes the request, and says nothing
    endless    lines without an end                redirect   302 to `elsewhere`
    status     503                                 garbage    bytes that are no HTTP
    gate       the page, when `opened` is set
    cut        half of the page, then the end      drip       a byte of its head, and no more
"""
import socketserver
import threading

from lib.http1 import PATIENCE


class MetricPages:
    """`address` may fix its port ("127.0.0.1:0"). `tls`: a context of ssl, for https."""

    def __init__(self, page="", address="127.0.0.1:0", tls=None):
        host, _, port = address.rpartition(":")
        self.server = Listener((host, int(port)), Asked)
        self.server.pages = self
        self.address = f"{host}:{self.server.server_address[1]}"
        self.port = self.server.server_address[1]
        self.ended = threading.Event()
        self.opened = threading.Event()
        self.lock = threading.Lock()
        self.n_requests = self.n_connections = 0
        self.heads = []  # of the last requests
        self.elsewhere = "/"
        self.tls = tls
        self.says(page)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def says(self, page, how="page"):
        self.page, self.how = page, how

    def close(self):
        """The port refuses connections from here on."""
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 4096  # one that overflows loses connections where accepting is late

    def handle_error(self, request, client_address):
        """Who asked has gone: that is part of some tests."""


class Asked(socketserver.StreamRequestHandler):
    def setup(self):
        if self.server.pages.tls:
            self.request = self.server.pages.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self):
        pages = self.server.pages
        with pages.lock:
            pages.n_connections += 1
        while not pages.ended.is_set():
            head = self.read_head()
            if head is None:
                return
            with pages.lock:
                pages.n_requests += 1
                pages.heads = pages.heads[-9:] + [head]
            if not getattr(self, "answer_" + pages.how)(pages):
                return

    def read_head(self):
        lines = []
        while True:
            line = self.rfile.readline(65536)
            if not line:
                return None
            if line == b"\r\n":
                return "".join(lines)
            lines.append(line.decode("latin-1"))

    def send(self, status, body, *fields):
        lines = [f"HTTP/1.1 {status}", "Content-Type: text/plain; version=0.0.4",
                 f"Content-Length: {len(body)}", *fields, "", ""]
        self.wfile.write("\r\n".join(lines).encode() + body)
        return True

    def answer_page(self, pages):
        return self.send("200 OK", pages.page.encode())

    def answer_status(self, pages):
        return self.send("503 Service Unavailable", pages.page.encode())

    def answer_redirect(self, pages):
        return self.send("302 Found", b"", f"Location: {pages.elsewhere}")

    def answer_hang(self, pages):
        pages.ended.wait()

    def answer_gate(self, pages):
        pages.opened.wait(PATIENCE)
        return self.answer_page(pages)

    def answer_drip(self, pages):
        self.wfile.write(b"H")
        pages.ended.wait()

    def answer_garbage(self, pages):
        self.wfile.write(b"\x00\x01SSH-2.0-no\r\n\r\n" * 10)

    def answer_cut(self, pages):
        body = pages.page.encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * len(body)) + body)

    def answer_endless(self, pages):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        line = b'other_bucket{le="1"} 1\n' * 2000
        while not pages.ended.is_set():
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

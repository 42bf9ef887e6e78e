"""A site that is not the server's: pages of its own, and what browsers ask of it."""
import contextlib
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        status, fields, body = self.server.pages.get(self.path.partition("?")[0], (404, {}, b""))
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", "Content-Length": str(len(body)), **fields}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = answer

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serve(**pages):
    """A site with an empty page at `/` and `pages`: name → (status, fields, body). Returns: its port."""
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.pages = {"/": (200, {}, b"<!doctype html><title>elsewhere</title>"),
                  **{f"/{name}": page for name, page in pages.items()}}
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    try:
        yield site.server_address[1]
    finally:
        site.shutdown()
        site.server_close()
        thread.join()

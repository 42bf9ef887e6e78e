"""Starts `sluice serve`, and ends it the way an operator would. A server that a test started must
leave with exit code 0, without a word from a sanitizer and without an error in its log, unless the
test says which error it expects."""
import contextlib
import functools
import json
import os
import re
import resource
import signal
import subprocess
import time

from lib import http1, metrics

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SANITIZER = re.compile(r"(Address|Leak|Thread|Memory|UndefinedBehavior)Sanitizer|runtime error: ")
# What a sanitizer writes for an allocation that has to fail: that of a result over --max-output-size.
FAILED_ALLOCATION = re.compile(r"^==\d+==WARNING: (Address|Thread)Sanitizer failed to allocate .*\n", re.M)


def build():
    """The build under test, from SLUICE_BUILD."""
    return os.path.join(ROOT, os.environ.get("SLUICE_BUILD", "build"))


def binary():
    return os.path.join(build(), "sluice")


class Server:
    """A running server. `folder` is a new folder of the test's own: log and ready file go there.
    `wait` says for what: "ready", "loaded" (ready or not), "listening" or "nothing";
    `limits` are soft resource limits, a dict for setrlimit; `stderr` is a descriptor that takes the log in place
    of the file; `prefix` is a command that runs the server."""

    def __init__(self, folder, args=(), listen=("127.0.0.1:0",), wait="ready", limits=None,
                 grpc=("none",), metrics_at="none", stderr=None, prefix=()):
        self.folder = str(folder)
        self.log_file = os.path.join(self.folder, "log")
        self.ready_file = os.path.join(self.folder, "ready")
        self.expected_errors = []
        self.addresses = []
        self.mip_urls = []
        self.grpc_addresses = []
        self.metrics_address = None
        self.arenas = None
        if os.path.exists(self.ready_file):
            os.unlink(self.ready_file)
        command = [*prefix, binary(), "serve", "--ready-file", self.ready_file, "--log-format", "json"]
        for address in listen:
            command += ["--http", address]
        for address in grpc:
            command += ["--grpc", address]
        command += ["--metrics", metrics_at]
        if not any(str(arg).startswith("--metrics-interval") for arg in args):
            command += ["--metrics-interval", "0"]  # tests see current numbers at --http, too
        if wait == "loaded":
            command.append("--keep-going")
        self.command = command + [str(arg) for arg in args]
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log if stderr is None else stderr,
                                            cwd=self.folder,
                                            preexec_fn=limits and (lambda: lower_limits(limits)))
        wait_until = {"ready": self.wait_ready, "loaded": self.wait_loaded,
                      "listening": self.wait_listening, "nothing": lambda: None}
        try:
            wait_until[wait]()
        except BaseException:
            self.kill()
            raise

    @property
    def address(self):
        return self.addresses[0]

    @property
    def grpc_address(self):
        return self.grpc_addresses[0]

    @property
    def pid(self):
        return self.process.pid

    def wait_for(self, fits, what):
        """Waits until `fits()` is true while the server lives."""
        end = time.monotonic() + http1.PATIENCE
        while not fits():
            if self.process.poll() is not None:
                raise AssertionError(f"expected {what}, but the server ended with"
                                     f" {self.process.returncode}:\n{self.log_text()}")
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"expected {what} within {http1.PATIENCE} s:\n"
                                     f"{self.log_text()}")
            time.sleep(0.01)

    def wait_listening(self):
        """It listens before its models are loaded; the log says where."""
        self.wait_for(lambda: any("http" in line for line in self.log_lines()), "a listener")
        self.addresses = [line["http"] for line in self.log_lines() if "http" in line]

    def wait_ready(self):
        self.wait_for(lambda: os.path.exists(self.ready_file), "a ready file")
        self.addresses = addresses_in(self.ready_file)
        self.mip_urls = mip_urls_in(self.ready_file)
        self.grpc_addresses = grpc_addresses_in(self.ready_file)
        self.metrics_address = metrics_address_in(self.ready_file)
        self.arenas = metrics.read(self.address)["sluice_arenas"]

    def wait_loaded(self):
        """Loading has ended, well or badly: a server that isn't ready writes no ready file."""
        self.wait_for(lambda: "loading has ended" in self.log_text(), "the end of loading")
        self.wait_listening()
        self.arenas = metrics.read(self.address)["sluice_arenas"]

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_exit(self, patience=http1.PATIENCE):
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {patience} s:\n{self.log_text()}") from None

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # one of its threads is traced by the test
                self.process.wait(http1.PATIENCE)

    def stop(self):
        """Ends it with SIGTERM and holds it to what this file promises."""
        if self.process.poll() is None:
            self.signal()
        code = self.wait_exit()
        assert code == 0, f"exit code {code} after SIGTERM:\n{self.log_text()}"
        self.check_log()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Stops it, unless something went wrong before."""
        try:
            if kind is None:
                self.stop()
        finally:
            self.kill()

    def log_text(self):
        with open(self.log_file, encoding="utf-8", errors="replace") as file:
            return FAILED_ALLOCATION.sub("", file.read())

    def log_lines(self):
        """The log as objects. What is not one (a sanitizer's report, a library's own words) is an
        object with `raw`."""
        lines = []
        for line in self.log_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                lines.append({"raw": line})
        return lines

    def expect_error(self, text):
        """An error that holds `text` is what the test is about."""
        self.expected_errors.append(text)

    def check_log(self):
        text = self.log_text()
        assert not SANITIZER.search(text), text
        for line in self.log_lines():
            if "raw" in line:
                raise AssertionError(f"not a line of the log: {line['raw']!r}\n{text}")
            if line.get("level") == "error":
                if not any(wanted in json.dumps(line) for wanted in self.expected_errors):
                    raise AssertionError(f"an error in the log that nobody expects: {line}")

    def rss_bytes(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def peak_rss_bytes(self):
        """The most that was resident since the start."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))

    def wait_at_rest(self):
        return metrics.wait_at_rest(self.address, self.arenas)


def lower_limits(limits):
    """Sets soft limits, or both where a value is a pair (soft, hard), as a shell's ulimit would."""
    for which, limit in limits.items():
        pair = limit if isinstance(limit, tuple) else (limit, resource.getrlimit(which)[1])
        resource.setrlimit(which, pair)


def is_sanitized():
    """Is the build under test one with a sanitizer?"""
    with open(binary(), "rb") as file:
        program = file.read()
    return b"__asan_init" in program or b"__tsan_init" in program


def lines_of(ready_file):
    """A ready file has one bound address a line: http://HOST:PORT, http+unix:/path, or MIP's
    tcp://HOST:PORT=MODEL and unix:///path=MODEL; and of --metrics http://HOST:PORT/metrics."""
    with open(ready_file, encoding="utf-8") as file:
        return file.read().splitlines()


def addresses_in(ready_file):
    """HTTP's, as --http takes them."""
    return [line.removeprefix("http://").removeprefix("http+") for line in lines_of(ready_file)
            if line.startswith("http") and not line.endswith("/metrics")]


def metrics_address_in(ready_file):
    """That of --metrics, if there is one; over TCP, with TLS or without."""
    found = [line.removeprefix("http://").removeprefix("https://").removesuffix("/metrics") for line in lines_of(ready_file)
             if line.endswith("/metrics")]
    return found[0] if found else None


def mip_urls_in(ready_file):
    """MIP's, in the order of the flags."""
    return [line.rpartition("=")[0] for line in lines_of(ready_file)
            if line.startswith(("tcp:", "unix:"))]


def grpc_addresses_in(ready_file):
    """gRPC's, as --grpc and grpcio take them."""
    return [line.removeprefix("grpc://").removeprefix("grpc+") for line in lines_of(ready_file)
            if line.startswith("grpc")]


def run(*args, patience=http1.PATIENCE, **options):
    """Runs `sluice ARGS` to its end. Returns: the CompletedProcess, output as text."""
    return subprocess.run([binary(), *map(str, args)], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=patience,
                          check=False, **options)


@functools.cache
def defaults_of(command):
    """What --help all says of them, by flag."""
    text = " ".join(run(command, "--help", "all").stdout.split())
    return dict(re.findall(r"(--[a-z-]+) [A-Z|]+ (?:(?! --[a-z-]+ [A-Z]).)*?\[default: ([^\]]+)\]", text))


def peak_memory_of(server):
    """Returns: the largest resident memory of the process so far, in bytes."""
    with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024

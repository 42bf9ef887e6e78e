"""Runs the commands of a page as its reader would: python -m lib.page_commands PAGE BUILD FOLDER

The process is in a network namespace of its own, so the ports of the page are free (test_pages.py starts it so). It
works in FOLDER, which looks like a clone: links to everything in the repository, with `build` a link to the build
under test.

- A block ```sh is run by bash, which ends at the first error. A block whose last command starts a server (`sluice
  serve`, `sluice pick`, `envoy`, a stand-in for an engine) goes on in the background until the page ends, or until a server of the same
  address is started: the reader's other terminal.
- A block ```text after it is what it prints; `…` stands for anything.
- A block of another language after a line that ends in "`NAME`:" is that file; ```python without one is run.
- A block after `<!-- not run: WHY -->` is not run. WHY names the test that covers it: where it is "TEST runs …", the
  block is run with PAGE_TEST=TEST."""
import contextlib
import fcntl
import http.client
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time

PATIENCE = 120
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SERVER = re.compile(r"^(sluice (serve|pick|gateway)|envoy|vllm serve|llama-server)\b(?!.*(--check|--explain|--help))")


ENGINES = ("vllm", "llama-server")  # tests/lib/engines has stand-ins for them, and for Slurm


class Block:
    def __init__(self, page, match, text):
        self.kind, self.text = match[1], match[2]
        self.place = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
        before = text[:match.start()].rstrip("\n").rsplit("\n", 1)[-1]
        reason = re.match(r"<!-- not run: (.+) -->$", before)
        name = re.search(r"`([^`\s]+)`:$", before)
        self.not_run = reason[1] if reason else None
        self.file = name[1] if name and self.kind not in ("sh", "text") else None

    def commands(self):
        joined = self.text.replace("\\\n", " ")
        return [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]

    def starts_server(self):
        return self.kind == "sh" and bool(self.commands()) and bool(SERVER.match(self.commands()[-1]))


def blocks_of(page):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    return [Block(page, match, text) for match in BLOCK.finditer(text)]


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


def address_of(command):
    """Where the server of that command answers HTTP: (host, port)."""
    words = shlex.split(command, comments=True)
    if words[0] == "envoy":
        return "127.0.0.1", 8080
    if words[0] in ENGINES:
        return "127.0.0.1", int(words[words.index("--port") + 1])
    if words[1] == "gateway":
        return "127.0.0.1", int(words[words.index("--http") + 1].rpartition(":")[2]) if "--http" in words else 8080
    flag, default = ("--http", "127.0.0.1:8000") if words[1] == "serve" else ("--metrics", "127.0.0.1:9090")
    given = words[words.index(flag) + 1] if flag in words else default
    host, port = given.split("://")[-1].rsplit(":", 1)
    return host if host not in ("", "0.0.0.0") else "127.0.0.1", int(port)


def answers(address, scheme, command):
    with contextlib.suppress(OSError, http.client.HTTPException):
        if scheme == "https":
            with socket.create_connection(address, 5):
                return True
        connection = http.client.HTTPConnection(*address, timeout=5)
        words = command.split()
        is_engine = words[0] in ENGINES
        has_health = is_engine or words[1] in ("serve", "gateway")
        connection.request("GET", "/health" if is_engine else "/v2/health/ready" if has_health else "/")
        status = connection.getresponse().status
        connection.close()
        return status < 300 or not has_health
    return False


class Page:
    def __init__(self, page):
        self.servers = {}
        self.page = page
        self.only = os.environ.get("PAGE_TEST")
        self.last_output = None

    def run(self):
        for block in blocks_of(self.page):
            if block.not_run and not (self.only and block.not_run.startswith(f"{self.only} runs")):
                continue
            try:
                self.run_block(block)
            except Exception as failure:
                raise SystemExit(f"{block.place}: {failure}") from failure

    def run_block(self, block):
        if block.file:
            with open(block.file, "w", encoding="utf-8") as file:
                file.write(block.text)
        elif block.starts_server():
            self.start(block)
        elif block.kind == "sh":
            self.last_output = self.output_of(["bash", "-ec", block.text])
        elif block.kind == "python":
            self.last_output = self.output_of(["python", "-c", block.text])
        elif block.kind == "text" and self.last_output is not None:
            pattern = re.escape(block.text.strip()).replace("…", ".*?")
            if not re.fullmatch(pattern, self.last_output.strip(), re.S):
                raise AssertionError(f"expected the output\n{block.text}\ngot\n{self.last_output}")

    def output_of(self, command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=PATIENCE, check=False)
        if done.returncode:
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return done.stdout

    def start(self, block):
        command = block.commands()[-1]
        address = address_of(command)
        if address in self.servers:
            self.stop(address)
        log = open(f"log-{address[0]}-{address[1]}", "w+", encoding="utf-8")
        child = subprocess.Popen(["bash", "-ec", block.text], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 start_new_session=True)
        self.servers[address] = child, log.name
        end = time.monotonic() + PATIENCE
        scheme = "https" if "tls-cert" in command else "http"
        while not answers(address, scheme, command):
            if child.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the server is not ready\n{self.logs()}")
            time.sleep(0.05)

    def stop(self, address):
        child, _ = self.servers.pop(address)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
                return

    def logs(self):
        return "".join(open(name, encoding="utf-8").read() for _, name in self.servers.values())


def main():
    page, build, folder = (os.path.abspath(path) for path in sys.argv[1:])
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    loopback_up()
    os.chdir(folder)
    for name in os.listdir(root):
        if name not in ("build", ".git"):
            os.symlink(os.path.join(root, name), name)
    os.symlink(build, "build")
    programs = [build, os.path.join(root, ".deps", "venv", "bin"), os.path.join(root, "tests", "lib", "engines")]
    os.environ["PATH"] = os.pathsep.join([*programs, os.environ["PATH"]])
    running = Page(page)
    try:
        running.run()
    finally:
        for address in list(running.servers):
            running.stop(address)
        if os.path.exists("slurm.pid"):  # a job that the page has not ended
            with contextlib.suppress(ProcessLookupError), open("slurm.pid", encoding="ascii") as file:
                os.killpg(int(file.read()), signal.SIGTERM)


if __name__ == "__main__":
    main()

"""Model servers' pages of metrics, for measuring what it costs to ask for them: vLLM's series, 64 kB, most of
it histograms. The servers stand in for vLLM, which needs a GPU; who asks is the real picker."""

import contextlib
import itertools
import os
import pathlib
import re
import selectors
import socket
import statistics
import threading
import time

import lib

PAGE_BYTES = 64 << 10
LABELS = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
GAUGES = {"num_requests_running": 4.0, "num_requests_waiting": 2.0, "kv_cache_usage_perc": 0.25}
HISTOGRAMS = ("time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds",
              "request_prompt_tokens", "request_generation_tokens", "request_queue_time_seconds")


def histogram(name):
    yield from (f"# HELP {name} Histogram of {name}.", f"# TYPE {name} histogram")
    yield from (f'{name}_bucket{{le="{0.001 * 2 ** i}",{LABELS}}} {i * 7}.0' for i in range(20))
    yield from (f"{name}_count{{{LABELS}}} 140.0", f"{name}_sum{{{LABELS}}} 37.25")


def page():
    lines = ['vllm:cache_config_info{block_size="16",num_gpu_blocks="27000",engine="0"} 1.0',
             'vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,poems",waiting_lora_adapters=""} 1.7e9']
    for name, value in GAUGES.items():
        lines += [f"# HELP vllm:{name} A gauge.", f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{LABELS}}} {value}"]
    for i in itertools.count():
        if sum(map(len, lines)) + len(lines) >= PAGE_BYTES:
            return ("\n".join(lines) + "\n").encode()
        lines += histogram(f"vllm:{HISTOGRAMS[i % len(HISTOGRAMS)]}_{i}")


class Pages:
    """`n` servers of a page, each at a port of its own. One thread is all of them: on the loopback who sends
    also pays for waking up who is to read, which on a network is another machine's."""

    def __init__(self, n):
        body = page()
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        self.lock = threading.Lock()
        self.n_asked = self.n_seen = 0
        self.listeners = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(n)]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.serve)

    def serve(self):
        os.sched_setaffinity(0, {int(lib.LOAD_CPU)})  # of this thread
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            for listener in self.listeners:
                selector.register(listener, selectors.EVENT_READ, self.accept)
            while not self.over.is_set():
                for key, _ in selector.select(0.1):
                    key.data(selector, stack, key.fileobj)

    def accept(self, selector, stack, listener):
        sock = stack.enter_context(listener.accept()[0])
        sock.settimeout(10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(self.answer))
        selector.register(sock, selectors.EVENT_READ, self.read)

    def read(self, selector, _stack, sock):
        """A request comes as a whole."""
        try:
            asked = sock.recv(4096)
            if asked:
                sock.sendall(self.answer)
                self.count()
                return
        except OSError:
            pass  # who asked has gone
        selector.unregister(sock)
        sock.close()

    def count(self):
        with self.lock:
            self.n_asked += 1

    def wait(self, n):
        """Until they were asked `n` times more. Returns: how often it was."""
        while self.n_asked - self.n_seen < n:
            time.sleep(0.005)
        with self.lock:
            n, self.n_seen = self.n_asked - self.n_seen, self.n_asked
        return n

    def write_config(self, folder, interval="200ms"):
        """Of a picker that asks all of them. Returns: the file."""
        path = pathlib.Path(folder, "scraped.yaml")
        listed = "".join(f"- 127.0.0.1:{listener.getsockname()[1]}\n" for listener in self.listeners)
        path.write_text(f"endpoints:\n{listed}metrics: {{preset: vllm, interval: {interval}}}\n")
        return path

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for listener in self.listeners:
            listener.close()


def memory_mb(child):
    text = pathlib.Path(f"/proc/{child.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) / 1024


def round_of(pages, child, seconds):
    """Returns: pages a second, the part of a core, and microseconds a page, for so long."""
    began, before = time.monotonic(), lib.cpu_ns(child)
    pages.wait(0)
    time.sleep(seconds)
    n, spent, took = pages.wait(0), (lib.cpu_ns(child) - before) / 1e9, time.monotonic() - began
    return n / took, spent / took, spent / n * 1e6


def idle(n_endpoints, folder, seconds=5):
    """Prints what a picker takes that nobody asks for anything: the median of the rounds, and their spread."""
    ready = pathlib.Path(folder, "scraping")
    ready.unlink(missing_ok=True)
    with Pages(n_endpoints) as pages, lib.process(
            lib.BUILD / "sluice", "pick", "--config", pages.write_config(folder), "--grpc", "127.0.0.1:0",
            "--metrics", "none", "--workers", "1", "--log-level", "warning", "--ready-file", ready) as child:
        lib.wait_for(ready.exists, "sluice pick")
        pages.wait(3 * n_endpoints)
        rates, shares, us = zip(*(round_of(pages, child, seconds) for _ in range(lib.ROUNDS)))
        print(f"{n_endpoints} endpoints, {statistics.median(rates):.0f} pages of 64 kB a second: "
              f"{statistics.median(shares):.1%} of a core [{min(shares):.1%} to {max(shares):.1%}], "
              f"{statistics.median(us):.0f} us a page, {memory_mb(child):.0f} MB"
              + (" (goal: under 3 %)" if n_endpoints == 100 else ""), flush=True)


def rows(_table, folder):
    for n_endpoints in (3, 100, 1000):
        idle(n_endpoints, folder)

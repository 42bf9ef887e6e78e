"""Everything that goes wrong in a night, at once: clients that do everything wrong (bad_clients.py), files and
pools that change, servers that die or stand still, a proxy whose machine vanishes. One good client of each
protocol asks once a millisecond beside it: none of its requests fails. Afterwards the gauges are at zero and the
memory is as at the start. Latencies are printed: without bad clients, with the same bad clients at another server and
picker of the same machine, which is what they cost by taking CPU time, and with them. `make soak`; SOAK_SECONDS
changes how long, SOAK_KINDS which bad clients there are, SOAK_PAUSE how often each attacks."""
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from lib import http1, metrics, server
from lib.echo import Echo
from lib.mixture import write_models as write_mixture
from lib.pick_client import Proxy, endpoint_of, headers
from lib.relay import Relay
from lib.repository import FREE, Identity
from lib.slow_readers import check_good, wait_for_memory, write_models

SECONDS = int(os.environ.get("SOAK_SECONDS", "3600"))
QUIET_SECONDS = min(30, SECONDS)
BESIDE_SECONDS = min(60, SECONDS)
KINDS = os.environ.get("SOAK_KINDS", "").split()
SEED = os.environ.get("SOAK_SEED", "1")
SLACK = 16 << 20
RATE = 1000
FOLDER = os.path.dirname(os.path.abspath(__file__))
PICKER = """
endpoints: [{endpoints}]
health:
  http: /v2/health/ready
  interval: 200ms
"""


class Good:
    """One client of each protocol, at a constant rate, for `seconds`; started when it is made."""

    def __init__(self, folder, live, picker, endpoints, seconds):
        self.folder, self.picker, self.seconds = folder, picker, seconds
        self.endpoints = endpoints
        self.failures, self.times = [], []
        ask = ["-r", RATE, "-d", f"{seconds}s", "-w", "0s", "-q", "--timeout", "10s"]
        self.clients = {
            "http": self.start("http", f"http://{live.address}", "small", *ask),
            "grpc": self.start("grpc", f"grpc://{live.grpc_address}", "small", *ask),
            "mip": self.start("mip", live.mip_urls[0], "--json-item", "[1.0]", *ask)}
        self.thread = threading.Thread(target=self.pick)
        self.thread.start()

    def start(self, name, *args):
        return subprocess.Popen([server.binary(), "bench", *map(str, args), "--json",
                                 os.path.join(self.folder, f"{name}.json")],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def pick(self):
        """One stream after the other."""
        end = time.monotonic() + self.seconds
        try:
            with Proxy(self.picker.grpc_addresses[0]) as proxy:
                while time.monotonic() < end:
                    begin = time.monotonic()
                    stream = proxy.stream(headers("/"))
                    assert endpoint_of(stream.next()) in self.endpoints
                    self.times.append(time.monotonic() - begin)
                    stream.reset()
                    time.sleep(0.001)
        except Exception as failure:  # pylint: disable=broad-except
            self.failures.append(f"{failure!r}: {failure}")

    def wait(self):
        """Returns: protocol → (answers, 99th percentile in microseconds). None failed."""
        found = {}
        for name, client in self.clients.items():
            _, errors = client.communicate(timeout=self.seconds + http1.PATIENCE)
            with open(os.path.join(self.folder, f"{name}.json"), encoding="utf-8") as file:
                step = json.load(file)["steps"][0]
            if client.returncode != 0:
                self.failures.append(f"{name}: {errors} {step['errors']}")
            found[name] = (step["requests"], step["latency_ms"]["p99"] * 1000)
        self.thread.join()
        self.times.sort()
        found["pick"] = (len(self.times), self.times[len(self.times) * 99 // 100] * 1e6)
        assert not self.failures, (self.failures, found)
        return found


def cpu_times():
    """Returns: (all, idle) of the machine, in ticks."""
    with open("/proc/stat", encoding="ascii") as file:
        times = [int(field) for field in file.readline().split()[1:9]]
    return sum(times), times[3] + times[4]


def busy_since(before):
    """Returns: which share of the machine's CPU time was used, in percent."""
    (total, idle), (total_before, idle_before) = cpu_times(), before
    return 100 - 100 * (idle - idle_before) / max(total - total_before, 1)


# ---- what changes --------------------------------------------------------------------------------

class Change(threading.Thread):
    """Calls `step` again and again, with random pauses, until it is told to end."""

    def __init__(self, step, pause):
        super().__init__()
        self.step, self.pause = step, pause
        self.ended, self.failed = threading.Event(), None
        self.rng = random.Random(f"{SEED}/{step.__name__}")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()
        assert not self.failed, self.failed

    def run(self):
        try:
            while True:
                self.step(self.rng)
                if self.ended.wait(self.rng.random() * self.pause):
                    break
        except Exception as failure:  # pylint: disable=broad-except
            self.failed = repr(failure)


def change_files(models):
    """A model that is replaced, broken, cut in the middle, and gone."""
    whole = os.path.join(models, "rows", "1", "model.onnx")
    with open(whole, "rb") as file:
        data = file.read()
    target = os.path.join(models, "changed")

    def changed_files(rng):
        kind = rng.randrange(4)
        if kind == 0:
            shutil.rmtree(target, ignore_errors=True)
            return
        os.makedirs(os.path.join(target, "1"), exist_ok=True)
        with open(os.path.join(target, "1", "model.onnx"), "wb") as file:
            file.write({1: data, 2: data[:len(data) // 2], 3: b""}[kind])
    return changed_files


class Endpoints:
    """Stand-ins for servers; `steady` stay."""

    def __init__(self, stack):
        self.steady = [Echo("steady") for _ in range(2)]
        self.dying = Echo("dying")
        for one in self.steady:
            stack.callback(one.close)
        stack.callback(lambda: self.dying.close())  # whichever it is by then

    def addresses(self):
        return [one.address for one in (*self.steady, self.dying)]

    def died_and_back(self, rng):
        address = self.dying.address
        self.dying.close()
        time.sleep(rng.random())
        self.dying = Echo("dying", address)


def change_pool(picker, addresses):
    def changed_pool(rng):
        n = rng.randrange(2, len(addresses) + 1)
        picker.write_pool(PICKER.format(endpoints=", ".join(addresses[:n])))
    return changed_pool


def stand_still(pid):
    def stood_still(rng):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.random())
        os.kill(pid, signal.SIGCONT)
    return stood_still


def vanish(picker):
    port = int(picker.grpc_addresses[0].rsplit(":", 1)[1])

    def vanished(rng):
        with Relay(port) as relay, Proxy(f"127.0.0.1:{relay.port}") as proxy:
            streams = [proxy.stream(headers("/")) for _ in range(10)]
            for stream in streams:
                stream.next()
            relay.lose()
            time.sleep(rng.random())
            for stream in streams:
                stream.reset()
    return vanished


# ---- the night -----------------------------------------------------------------------------------

@pytest.fixture(name="models")
def models_on_disk(tmp_path, repositories):
    folder = write_models(tmp_path / "models")
    write_mixture(str(folder), repositories("onnx"))
    Identity("slow", [("FP32", FREE)], parameters={"delay_us": 100000}).write(str(folder))
    return folder


def start_bad_clients(live, picker, seconds):
    """They run when nothing else does: elsewhere they would be on machines of their own."""
    return subprocess.Popen([sys.executable, os.path.join(FOLDER, "bad_clients.py"), live.address,
                             live.grpc_address, live.mip_urls[0], picker.grpc_addresses[0],
                             str(seconds), SEED, *KINDS], stdout=subprocess.PIPE, text=True,
                            preexec_fn=lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)))


@pytest.fixture(name="start")
def start_attacked(start_server, start_picker, models):
    """Starts a server and a picker of `addresses`."""
    def start(addresses):
        live = start_server("--model-repository", models, "--client-memory", "256MiB", "--body-timeout", "5s",
                            "--model-control-mode", "poll", "--repository-poll-secs", 1,
                            "--mip", "tcp://127.0.0.1:0=small", grpc=("127.0.0.1:0",))
        live.expect_error("changed")
        picker = start_picker(PICKER.format(endpoints=", ".join(addresses)), "--client-memory", "64MiB")
        picker.wait_ready_endpoints(len(addresses))
        check_good(live)
        return live, picker
    return start


def test_good_clients_are_served_all_night(start, start_server, models, tmp_path):
    with contextlib.ExitStack() as stack:
        endpoints = Endpoints(stack)
        other = start_server("--model-repository", models, grpc=("127.0.0.1:0",))
        addresses = [*endpoints.addresses(), other.address]
        live, picker = start(addresses)
        beside, picker_beside = start(addresses)

        def attacked(at, at_picker, seconds):
            bad, before = start_bad_clients(at, at_picker, seconds), cpu_times()
            with Change(change_files(models), 3), Change(endpoints.died_and_back, 3), \
                    Change(change_pool(at_picker, addresses), 0.4), Change(stand_still(other.pid), 5), \
                    Change(vanish(at_picker), 10):
                found = Good(tmp_path, live, picker, addresses, seconds).wait()
            print(f"CPU time used: {busy_since(before):.0f} %")
            said, _ = bad.communicate(timeout=2 * http1.PATIENCE)
            assert bad.returncode == 0
            print(said)
            return found
        before = cpu_times()
        quiet = Good(tmp_path, live, picker, addresses, QUIET_SECONDS).wait()
        print(f"CPU time used: {busy_since(before):.0f} % without bad clients")
        floor = attacked(beside, picker_beside, BESIDE_SECONDS)
        base, base_picker = live.rss_bytes(), picker.rss_bytes()
        loud = attacked(live, picker, SECONDS)
        for name, (n, p99) in loud.items():
            print(f"{name}: {n} answers, p99 {p99:.0f} us; without bad clients {quiet[name][1]:.0f} us, with them at "
                  f"another server {floor[name][1]:.0f} us")
        check_good(live)
        metrics.wait_at_rest(live.address)  # a changed model has other arenas
        picker.wait_at_rest()
        wait_for_memory(live, base, http1.PATIENCE, SLACK)
        wait_for_memory(picker, base_picker, http1.PATIENCE, SLACK)
        print(f"memory: serve {base >> 20} MiB, {live.rss_bytes() >> 20} after; pick {base_picker >> 20} MiB, "
              f"{picker.rss_bytes() >> 20} after")

"""Starts `sluice pick`, and ends it as an operator would; lib/server.py has what it promises."""
import collections
import os
import signal
import subprocess

from lib import metrics
from lib.server import (Server, binary, grpc_addresses_in, lower_limits,
                        metrics_address_in)


def n_ready(numbers):
    """Endpoints that are ready, of all pools."""
    return sum(value for name, value in numbers.items()
               if name.startswith("sluice_pick_pool_endpoints{") and 'state="ready"' in name)


def n_waiting(numbers):
    """Requests in the queues of flow control, of all pools and priorities."""
    return sum(value for name, value in numbers.items()
               if name.startswith("inference_extension_flow_control_queue_size{"))


class Picker(Server):
    """A running picker. `folder` is the test's own; log and ready file go there. `pool` is the text of
    its configuration, which `write_pool` changes later."""

    def __init__(self, folder, pool, args=(), grpc="127.0.0.1:0", limits=None, prefix=()):
        self.folder = str(folder)
        self.log_file = os.path.join(self.folder, "picker.log")
        self.ready_file = os.path.join(self.folder, "picker.ready")
        self.pool_file = os.path.join(self.folder, "pool.yaml")
        self.expected_errors = []
        self.limits, self.prefix = limits, prefix
        self.args = [str(arg) for arg in args]
        self.write_pool(pool)
        self.start(grpc)

    def start(self, grpc):
        """Also: again, at an address that it had."""
        if os.path.exists(self.ready_file):
            os.unlink(self.ready_file)
        self.command = [*self.prefix, binary(), "pick", *self.flags(grpc), "--ready-file", self.ready_file, *self.args]
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, cwd=self.folder,
                                            preexec_fn=self.limits and
                                            (lambda: lower_limits(self.limits)))
        try:
            self.wait_for(lambda: os.path.exists(self.ready_file), "a ready file")
        except BaseException:
            self.kill()
            raise
        self.grpc_addresses = grpc_addresses_in(self.ready_file)
        self.metrics_address = metrics_address_in(self.ready_file)

    def flags(self, grpc):
        """How it is told about the pool and where it listens."""
        return ["--config", self.pool_file, "--grpc", grpc, "--metrics", "127.0.0.1:0", "--log-format", "json"]

    def write_pool(self, text):
        """Replaces the file whole, as configuration management does."""
        with open(self.pool_file + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(self.pool_file + ".new", self.pool_file)

    def crash(self):
        """Kills it with SIGKILL, without a word."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def numbers(self):
        return metrics.read(self.metrics_address)

    def picks(self):
        """Of its one pool: endpoint → requests that it sent there."""
        prefix = 'sluice_pick_endpoint_picks_total{endpoint="'
        return collections.Counter({name.removeprefix(prefix).rstrip('"}'): int(value)
                                    for name, value in self.numbers().items() if name.startswith(prefix)})

    def wait_loads(self, n):
        """So many endpoints have said what their load is."""
        return self.wait_until(lambda now: sum("_load_age_seconds{" in name for name in now) == n,
                               f"loads of {n} endpoints")

    def wait_until(self, fits, what):
        return metrics.wait_until(self.metrics_address, fits, what)

    def wait_ready_endpoints(self, n):
        """Its checks of health have found so many."""
        return self.wait_until(lambda now: n_ready(now) == n, f"{n} endpoints that are ready")

    def wait_waiting(self, n):
        """So many requests wait in its queues."""
        return self.wait_until(lambda now: n_waiting(now) == n, f"{n} requests that wait")

    def wait_streams(self, n):
        """So many requests are between their headers and the end of their answer."""
        return self.wait_until(lambda now: now["sluice_pick_open_streams"] == n, f"{n} streams")

    def wait_at_rest(self):
        """No stream open, nothing in flight to any endpoint, nothing held."""
        def fits(numbers):
            in_flight = [value for name, value in numbers.items() if "_requests_in_flight" in name
                         and name.startswith("sluice_pick_")]
            return (in_flight and not any(in_flight)
                    and numbers["sluice_pick_open_streams"] == 0
                    and numbers["sluice_pick_held_bytes"] == 0)
        return self.wait_until(fits, "a picker at rest")

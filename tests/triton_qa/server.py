"""Starts `sluice tritonserver` as the test.sh of a suite starts Triton: on ports 8000, 8001 and 8002 of localhost."""
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PORTS = (8000, 8001, 8002)
PATIENCE_S = 60


def check_ports():
    """Ends the run when a port is taken: tests would talk to another program."""
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(('127.0.0.1', port))
            except OSError as error:
                raise SystemExit(f'triton-qa: port {port} of localhost: {error}') from error


class Server:
    """One server. `arguments` are those of tritonserver; `cwd` is the folder of the suite, which they are relative to."""

    def __init__(self, program, arguments, cwd, log, env=None):
        self.log = pathlib.Path(log)
        check_ports()
        with self.log.open('wb') as out:
            self.process = subprocess.Popen([program, 'tritonserver', *arguments], cwd=cwd, stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=subprocess.STDOUT,
                                            env={**os.environ, **(env or {}), 'TRITON_CLOUD_CREDENTIAL_PATH': '',
                                                 'VIRTUAL_ENV': sys.prefix})  # whose Python runs models

    def wait(self, state):
        """Waits until it is `ready` or `live`. Returns whether it is; a server that ended is not."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                return False
            try:
                with urllib.request.urlopen(f'http://localhost:{PORTS[0]}/v2/health/{state}', timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        return False

    def stop(self):
        """Ends it as test.sh does. Returns the exit code, None if it had to be killed."""
        if self.process.poll() is None:
            if 'draining' not in self.log.read_text(errors='replace'):  # a second signal would cut it short
                self.process.terminate()
            try:
                return self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return None
        return self.process.returncode

    def last_lines(self, n=5):
        return '\n'.join(self.log.read_text(errors='replace').splitlines()[-n:])

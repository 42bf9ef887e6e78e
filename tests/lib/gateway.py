"""What deploy/envoy describes, all of it real: an Envoy with one of the files there, `sluice pick` with the
pool file that this one names, and model servers. Only addresses differ from the files."""
import collections
import json
import os
import re
import subprocess

from lib.envoy import FOLDER, LISTENER, PICKER, Envoy, deployed, patient, place, places_of
from lib.http1 import PATIENCE
from lib.picker import Picker
from lib.server import metrics_address_in

Reply = collections.namedtuple("Reply", "status headers body")


IN_PROCESS = "in-process.yaml"  # the configuration in which the picker is a part of Envoy


def pool_file(config):
    """Which pool file a configuration says that the picker has: in the comment at its head, or as the filter's setting."""
    with open(os.path.join(FOLDER, config), encoding="utf-8") as file:
        return re.search(r"^#     sluice pick --config (\S+) |value: {config: (?P<own>\S+)}", file.read(), re.M).expand(
            r"\1\g<own>")


def override_host_in_process(text, endpoints):
    """deploy/envoy/override-host.yaml with the filter of `text`, which has the module, in place of ext-proc."""
    module = re.search(r" +- name: sluice\n(?:.*\n)*?(?= +- name: envoy.filters.http.router)", text)[0]
    places = {LISTENER: "127.0.0.1:0", PICKER: "127.0.0.1:1", **places_of(endpoints)}
    return re.sub(r" +- name: envoy.filters.http.ext_proc\n(?:.*\n)*?(?= +# An answer passes the filters)", lambda _: module,
                  patient(deployed("override-host.yaml", places)))


def filter_settings(ready_file, flags):
    """Flags of `sluice pick` as settings of the filter, which has the operators' pages at a port of its own."""
    given = {}
    for name, value in zip(flags, [*flags[1:], "--"]):
        if name.startswith("--"):
            given.setdefault(name.removeprefix("--"), []).append(True if value.startswith("--") else value)
    return json.dumps({"metrics": "127.0.0.1:0", "log-format": "json", "ready-file": ready_file,
                       **{name: values[0] if values[0] is True else values for name, values in given.items()}})


class PickerInEnvoy(Picker):
    """The picker of an Envoy that is started with `settings` in its filter."""

    def start(self, grpc):
        self.settings = filter_settings(self.ready_file, ["--config", self.pool_file, *self.args])

    def find(self):
        """Envoy has started."""
        self.metrics_address = metrics_address_in(self.ready_file)

    def stop(self):
        """It ends with its Envoy."""
        assert not os.path.exists(self.ready_file)

    def kill(self):
        pass


class Gateway:
    """`endpoints` are three addresses. Unless the pool is `checked` it has no `health:`, and all of them
    are ready at once. `pool` is another pool file than the one that is named there; `change` may rewrite
    its text, `more` Envoy's; `n_ready` is what comes of it. The proxy waits for the picker, and
    `connect_timeout` for a connection, and the picker for a health check, as long as a busy machine needs."""

    def __init__(self, folder, config, endpoints, grpc_port=1, checked=False,
                 change=lambda text: text, more=lambda text: text, args=(), n_ready=3, pool=None,
                 connect_timeout="60s", concurrency=1):
        self.folder = str(folder)
        self.places = {LISTENER: "127.0.0.1:0", **places_of(endpoints, grpc_port)}
        self.endpoints = endpoints
        with open(os.path.join(FOLDER, pool or pool_file(config)), encoding="utf-8") as file:
            pool = file.read()
        if not checked:
            pool = re.sub(r"^ *health:.*\n", "", pool, flags=re.M)
        pool = re.sub(r"^( *health: {.*)}$", r"\1, timeout: 60s}", pool, flags=re.M)
        inside = config == IN_PROCESS
        self.picker = (PickerInEnvoy if inside else Picker)(folder, place(change(pool), self.places), args)
        self.envoy = None
        try:
            if not inside:
                self.places[PICKER] = self.picker.grpc_addresses[0].removeprefix("grpcs://")
            self.text = more(patient(deployed(config, self.places), connect_timeout).replace(
                "upstream_port_override: 8001", f"upstream_port_override: {grpc_port}"))
            if inside:
                self.text = re.sub(r"value: {config: .*}$", lambda _: f"value: {self.picker.settings}", self.text,
                                   flags=re.M)
            self.envoy = Envoy(folder, self.text, concurrency)
            if inside:
                self.picker.find()
            self.picker.wait_ready_endpoints(n_ready)
        except BaseException:
            self.kill()
            raise
        self.address = self.envoy.address

    def restart_envoy(self):
        """Another one at the same address."""
        self.envoy = Envoy(self.folder, self.text.replace(
            "address: 127.0.0.1, port_value: 0", "address: 127.0.0.1, port_value: "
            + self.address.rpartition(":")[2]))
        if isinstance(self.picker, PickerInEnvoy):
            self.picker.find()

    def curl(self, path, *args, body=None, http2=False):
        """One request. Returns: a Reply; the headers' names are in lower case."""
        command = ["curl", "-sS", "-i", "--max-time", str(PATIENCE), "-H", "expect:", *args]
        if body is not None:
            command += ["--data-binary", "@-"]
        if http2:
            command.append("--http2-prior-knowledge")
        done = subprocess.run([*command, f"http://{self.address}{path}"], input=body or b"",
                              capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        headers = dict((name.lower(), value) for name, value in
                       (field.split(": ", 1) for field in fields))
        return Reply(int(status.split()[1]), headers, data)

    def ask(self, path, *args, **options):
        """The same of a request that succeeds. Returns: its JSON."""
        reply = self.curl(path, *args, **options)
        assert reply.status == 200, reply
        return json.loads(reply.body)

    def stop(self):
        """Both end well, and the picker holds nothing before it does."""
        self.picker.wait_at_rest()
        self.envoy.stop()
        self.picker.stop()

    def kill(self):
        if self.envoy:
            self.envoy.kill()
        self.picker.kill()

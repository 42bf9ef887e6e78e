"""What deploy/kubernetes describes, started: the picker with the arguments that stand there, the Envoy of its sidecar
with the configuration that stands there, and model servers. Only addresses, and where files lie, are the test's own."""
import contextlib
import json
import os
import re

from lib import kube_picker, manifests, metrics
from lib.envoy import Envoy
from lib.load import Load
from lib.picker import Picker
from lib.ports import free_port
from lib.server import Server

MODEL = "id_fp32"
SERVERS = ("127.0.0.11", "127.0.0.12", "127.0.0.13")
INPUT = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}
PORTS = {":9002": "127.0.0.1:0", "127.0.0.1:9002": "127.0.0.1:0", ":9003": "127.0.0.1:0", ":9090": "127.0.0.1:0"}


class DeployedPicker(Picker):
    """The picker of these objects. It is told by $KUBECONFIG who it is."""
    health = kube_picker.KubePicker.health
    wait_health = kube_picker.KubePicker.wait_health
    health_address = kube_picker.KubePicker.health_address
    endpoints = kube_picker.KubePicker.endpoints
    wait_endpoints = kube_picker.KubePicker.wait_endpoints

    def __init__(self, folder, objects, namespace):
        self.container = manifests.container(objects, "sluice-pick", "pick")
        self.namespace = namespace
        config = manifests.named(objects)["ConfigMap", "sluice-pick"]["data"]["picker.yaml"]
        super().__init__(folder, config)

    def flags(self, grpc):
        assert self.container["command"] == ["sluice", "pick"]
        return [self.here(arg) for arg in self.container["args"]]

    def here(self, arg):
        flag, equals, value = arg.replace("$(NAMESPACE)", self.namespace).partition("=")
        scheme, _, address = value.rpartition("//")
        if address in PORTS:
            value = (scheme and scheme + "//") + PORTS[address]
        return flag + equals + value.replace("/etc/sluice/picker.yaml", self.pool_file)


def sidecar(folder, picker, server, change=lambda text: text):
    """The Envoy of envoy-sidecar/, whose picker is at that address; `server` is one of the servers. `change` may
    rewrite its configuration."""
    with open(os.path.join(manifests.FOLDER, "envoy-sidecar", "envoy.yaml"), encoding="utf-8") as file:
        text = file.read()
    host, http_port, grpc_port = server
    places = {"0.0.0.0:8080": "127.0.0.1:0", "0.0.0.0:8081": "127.0.0.1:0", "127.0.0.1:9002": picker,
              "127.0.0.1:9901": f"127.0.0.1:{free_port()}", "sluice-serve:8000": f"{host}:{http_port}",
              "sluice-serve:8001": f"{host}:{grpc_port}"}

    def other(found):
        host, _, port = places[f"{found[1]}:{found[2]}"].rpartition(":")
        return f"address: {host}, port_value: {port}"
    text = re.sub(r"address: ([a-z0-9.-]+), port_value: ([0-9]+)", other, text)
    return Envoy(folder, change(text).replace("upstream_port_override: 8001", f"upstream_port_override: {grpc_port}"))


class Deployment:
    """The picker and the Envoy of envoy-sidecar/ on a cluster, and a server for each of SERVERS, all at one port as
    pods are, which is that of the InferencePool. Pods and the pool are the test's to make: `add_pool`, `add_pod`.
    With `with` it all ends well."""

    def __init__(self, folder, cluster, namespace, repository):
        self.folder, self.cluster, self.namespace = str(folder), cluster, namespace
        self.objects = manifests.kustomized("envoy-sidecar")
        self.ending = contextlib.ExitStack()
        self.servers = {}
        with contextlib.ExitStack() as failing:
            failing.push(self.ending.__exit__)
            ports = (0, 0)
            for host in SERVERS:
                self.servers[host] = self.started(Server(self.made(host), ["--model-repository", repository],
                                                         listen=[f"{host}:{ports[0]}"], grpc=[f"{host}:{ports[1]}"]))
                ports = [int(one.rpartition(":")[2]) for one in (self.servers[host].address,
                                                                 self.servers[host].grpc_address)]
            self.port, self.server_place = ports[0], (SERVERS[0], *ports)
            self.picker = self.started(DeployedPicker(self.made("picker"), self.objects, namespace))
            self.envoy = sidecar(self.made("envoy"), self.picker.grpc_addresses[0], self.server_place)
            self.ending.callback(self.envoy.kill)
            failing.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is None:
            self.envoy.stop()
            self.picker.wait_at_rest()
            for one in (self.picker, *self.servers.values()):
                if one.process.returncode is None:
                    one.stop()
        return self.ending.__exit__(kind, *rest)

    def made(self, name):
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        return path

    def started(self, one):
        self.ending.callback(one.kill)
        return one

    def add_pool(self):
        """And the InferenceModel without which a cluster that has such objects refuses the model."""
        pool = manifests.named(self.objects)["InferencePool", "sluice"]
        pool["metadata"]["namespace"] = self.namespace
        pool["spec"]["targetPorts"] = [{"number": self.port}]
        self.cluster.admin.apply(pool)
        model = kube_picker.model(self.namespace, "model", MODEL)
        model["spec"]["poolRef"]["name"] = pool["metadata"]["name"]
        self.cluster.admin.apply(model)

    def add_pod(self, host, ready=True):
        labels = manifests.pods(self.objects)["sluice-serve"]["metadata"]["labels"]
        self.cluster.add_pod(self.namespace, self.pod_of(host), labels, (host,), ready)

    def pod_of(self, host):
        return "server-" + host.replace(".", "-")

    def wait_endpoints(self, *hosts):
        """Until the picker has heard that these, and no others, are the pool."""
        self.picker.wait_endpoints([f"{host}:{self.port}" for host in hosts])

    def load(self, n_clients=8):
        """Inferences through Envoy, over and over."""
        return Load(self.envoy.address, n_clients, "POST", f"/v2/models/{MODEL}/infer",
                    json.dumps({"inputs": [INPUT]}), {"content-type": "application/json"})

    def served(self, host):
        """Inferences that this server has answered."""
        return sum(value for name, value in metrics.read(self.servers[host].address).items()
                   if name.startswith("nv_inference_request_success{"))

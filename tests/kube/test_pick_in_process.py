"""The picker inside a real Envoy (deploy/envoy/in-process.yaml), whose pool is an InferencePool of a real API server."""
import contextlib
import json
import os

import pytest

from lib import echo, http1, kube_picker
from lib.envoy import LISTENER, Envoy, deployed, patient
from lib.gateway import IN_PROCESS, filter_settings
from lib.kube_picker import LABELS, KubePicker
from lib.ports import free_port
from lib.server import metrics_address_in

pytestmark = pytest.mark.programs


class KubePickerInEnvoy(KubePicker):
    """The same picker in an Envoy, `envoy`."""

    def start(self, grpc):
        settings = filter_settings(self.ready_file, [*self.pool_args, *self.args])
        self.envoy = Envoy(self.folder, patient(deployed(IN_PROCESS, {LISTENER: "127.0.0.1:0"})).replace(
            "{config: pool.yaml}", settings))
        self.process = self.envoy.process
        self.log_file = self.envoy.log_file
        self.metrics_address = metrics_address_in(self.ready_file)

    def stop(self):
        self.wait_at_rest()
        self.envoy.stop()
        assert not os.path.exists(self.ready_file)

    def post(self, body):
        with http1.Connection(self.envoy.address) as connection:
            connection.send(http1.post(b"/v1/completions", json.dumps(body).encode()))
            return connection.read_answer("POST")

    def served_by(self, body):
        answer = self.post(body)
        assert answer.status == 200, answer
        return json.loads(answer.body)


@pytest.fixture
def servers():
    """By address: echo servers on one port of several hosts, as pods have it."""
    with contextlib.ExitStack() as started:
        port = free_port()
        yield {host: started.enter_context(contextlib.closing(echo.Echo(host, f"{host}:{port}")))
               for host in ("127.0.0.7", "127.0.0.8", "127.0.0.9")}


def test_kube_in_envoy_picks_ready_pods_of_inference_pool(cluster, namespace, tmp_path, servers):
    """Pods that become ready or leave, and a model that is renamed."""
    port = int(next(iter(servers.values())).address.rpartition(":")[2])
    addresses = {host: f"{host}:{port}" for host in servers}
    cluster.admin.apply(kube_picker.pool(namespace, ports=(port,)))
    cluster.admin.apply(kube_picker.model(namespace, "small", targets=[("small-2", 1)]))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.add_pod(namespace, "two", LABELS, ("127.0.0.8",), ready=False)
    cluster.add_pod(namespace, "other", {"app": "others"}, ("127.0.0.9",))
    with KubePickerInEnvoy(tmp_path, ["--pool-name", "digits", "--pool-namespace", namespace, "--kubeconfig",
                                      cluster.kubeconfig(cluster.admin_user, namespace)]) as picker:
        picker.wait_endpoints([addresses["127.0.0.7"]])
        seen = picker.served_by({"prompt": "a", "model": "small"})
        assert seen["server"] == "127.0.0.7"
        assert seen["headers"]["x-gateway-destination-endpoint"] == addresses["127.0.0.7"]
        assert seen["length"] == len(json.dumps({"prompt": "a", "model": "small-2"}))  # it was renamed

        cluster.set_pod(namespace, "two", ready=True)
        picker.wait_endpoints([addresses["127.0.0.7"], addresses["127.0.0.8"]])
        assert {picker.served_by({"model": "small"})["server"] for _ in range(40)} == {"127.0.0.7", "127.0.0.8"}
        cluster.delete_pod(namespace, "one")
        picker.wait_endpoints([addresses["127.0.0.8"]])
        assert {picker.served_by({"model": "small"})["server"] for _ in range(10)} == {"127.0.0.8"}

        cluster.set_pod(namespace, "two", ready=False)
        picker.wait_endpoints([])
        assert picker.post({"model": "small"}).status == 503
        cluster.set_pod(namespace, "two", ready=True)
        picker.wait_endpoints([addresses["127.0.0.8"]])
        assert picker.post({"model": "small"}).status == 200

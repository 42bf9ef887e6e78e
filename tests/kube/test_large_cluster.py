"""A large pool: five thousand pods, a thousand models, storms of changes, and lists that are asked for again, while
requests are picked for. Whoever is picked is of the pool as it was, or as it is."""
import threading

import pytest

from lib import kube_picker
from lib.kube_crds import ALPHA_GROUP
from lib.kube_picker import KubePicker, LABELS
from lib.pick_client import Proxy

N_PODS = 5000
N_MODELS = 1000
NEVER = "2026-01-01T00:00:00Z"


def address_of(number):
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def meta(namespace, name, number):
    return {"name": name, "namespace": namespace, "creationTimestamp": NEVER,
            "uid": f"00000000-0000-4000-8000-{number:012}"}


def pod(namespace, number, ready=True):
    ip = address_of(number)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {
        **meta(namespace, f"pod-{number:05}", number), "labels": LABELS},
        "spec": {"nodeName": "node", "containers": [{"name": "server", "image": "none"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                   "conditions": [{"type": "Ready", "status": str(ready)}]}}


def model(namespace, number):
    one = kube_picker.model(namespace, f"model-{number:04}", targets=[(f"target-{number:04}", 1)])
    one["metadata"] = meta(namespace, one["metadata"]["name"], number)
    return one


def endpoints(numbers):
    return {f"{address_of(number)}:8000" for number in numbers}


@pytest.fixture
def start(tmp_path):
    """A picker of the pool of this namespace: start(cluster, namespace)."""
    started = []

    def begin(cluster, namespace):
        started.append(KubePicker(tmp_path, ["--pool-name", "digits", "--pool-namespace", namespace, "--kubeconfig",
                                             cluster.kubeconfig(cluster.admin_user, namespace)]))
        return started[-1]
    yield begin
    for one in started:
        with one:
            pass


class Picking:
    """Picks one after the other, of a model, for as long as it is `with`; `seen` is who was picked since `forget`."""

    def __init__(self, picker, name):
        self.picker, self.name = picker, name
        self.seen, self.n, self.ending, self.wrong = set(), 0, False, None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        assert self.wrong is None, self.wrong

    def run(self):
        with Proxy(self.picker.grpc_address) as proxy:
            while not self.ending and self.wrong is None:
                try:
                    self.seen.add(proxy.pick(path=f"/v2/models/{self.name}/infer"))
                    self.n += 1
                except Exception as error:  # whatever it is, the test says so
                    self.wrong = repr(error)

    def forget(self):
        """What is picked from now on is seen, and nothing before."""
        n = self.n + 2
        self.picker.wait_for(lambda: self.n >= n or self.wrong, "two more picks")
        self.seen = set()

    def wait_more(self, n):
        wanted = self.n + n
        self.picker.wait_for(lambda: self.n >= wanted or self.wrong, f"{n} more picks")


def test_large_cluster_pods_and_models(start_cluster, start):
    cluster = start_cluster()
    namespace = cluster.new_namespace()
    cluster.store("pods", [pod(namespace, number) for number in range(N_PODS)], at_once=100)
    cluster.store(f"{ALPHA_GROUP}/inferencemodels", [model(namespace, number) for number in range(N_MODELS)], at_once=100)
    cluster.admin.apply(kube_picker.pool(namespace))
    picker = start(cluster, namespace)
    picker.wait_ready_endpoints(N_PODS)
    everybody, storm = endpoints(range(N_PODS)), range(0, N_PODS, 5)
    with Proxy(picker.grpc_address) as proxy:
        assert proxy.refuse(path="/v2/models/model-1000/infer")[0] == 404
        for number in (0, 500, N_MODELS - 1):
            assert proxy.pick(path=f"/v2/models/model-{number:04}/infer") in everybody
    with Picking(picker, "model-0042") as picking:
        picking.wait_more(100)
        # Storms: a thousand of them become unready, one event each; then they come back.
        for ready in (False, True):
            cluster.store("pods", [pod(namespace, number, ready) for number in storm])
            picker.wait_ready_endpoints(N_PODS if ready else N_PODS - len(storm))
            picking.forget()
            picking.wait_more(100)
            assert picking.seen <= (everybody if ready else everybody - endpoints(storm))
        # Half of them are deleted, and the models change places, while the server is away and forgets how.
        lists = picker.numbers()['sluice_pick_kube_lists_total{kind="Pod",group=""}']
        cluster.crash()
        cluster.unstore("pods", [pod(namespace, number) for number in range(0, N_PODS, 2)], at_once=100)
        cluster.compact()
        picking.wait_more(100)
        cluster.start()
        picker.wait_ready_endpoints(N_PODS // 2)
        assert picker.numbers()['sluice_pick_kube_lists_total{kind="Pod",group=""}'] == lists + 1
        picking.forget()
        picking.wait_more(100)
        assert picking.seen <= endpoints(range(1, N_PODS, 2))
    assert picker.numbers()["sluice_pick_kube_updates_total"] < len(storm)

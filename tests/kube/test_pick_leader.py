"""Leader election among pickers, by a Lease of a real API server."""
import contextlib
import urllib.request

import pytest

from lib import kube_picker
from lib.kube_picker import LABELS, NOT_SERVING, SERVING, KubePicker

LEASES = "coordination.k8s.io/v1"
RIGHTS = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]}


@pytest.fixture
def start(tmp_path, cluster, namespace):
    """Starts a picker that may lead: start(name, user)."""
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))
    with contextlib.ExitStack() as started:
        def one(name, user=None):
            folder = tmp_path / name
            folder.mkdir()
            file = cluster.kubeconfig(user or cluster.admin_user, namespace)
            return started.enter_context(KubePicker(
                folder, ["--pool-name", "digits", "--kubeconfig", file, "--leader-election"],
                ["--health", "127.0.0.1:0"]))
        yield one


def lease_name(namespace):
    return f"epp-{namespace}-digits.llm-d.ai"


def holder(cluster, namespace):
    return cluster.admin.get("Lease", lease_name(namespace), LEASES, namespace)["spec"]["holderIdentity"]


def leads(picker):
    return picker.numbers()["sluice_pick_kube_leads"] == 1


def test_leader_first_gets_lease(cluster, namespace, start):
    """The first one gets the lease; the other is live, and ready as soon as that one has ended."""
    account = cluster.service_account(namespace, rules=[*kube_picker.shipped_rules(), RIGHTS])
    first = start("first", {"token": account.token})
    first.wait_health(SERVING)
    second = start("second", {"token": account.token})
    second.wait_endpoints(["127.0.0.7:8000"])
    for service in ("", "readiness", "inference-extension", "envoy.service.ext_proc.v3.ExternalProcessor"):
        assert (first.health(service), second.health(service)) == (SERVING, NOT_SERVING)
    assert first.health("liveness") == second.health("liveness") == SERVING
    assert leads(first) and not leads(second)
    before = holder(cluster, namespace)
    with urllib.request.urlopen(f"http://{second.metrics_address}/debug/state") as answer:
        assert f"cluster's lease: led by {before}, we are " in answer.read().decode()
    first.stop()
    second.wait_health(SERVING)
    lease = cluster.admin.get("Lease", lease_name(namespace), LEASES, namespace)
    assert lease["spec"]["holderIdentity"] != before and lease["spec"]["leaseTransitions"] == 1
    second.stop()
    assert holder(cluster, namespace) == ""
    asked = {(verb, resource, answer) for verb, _, resource, _, answer in cluster.requests_of(account)
             if resource == "leases"}
    assert {verb for verb, _, _ in asked} == {"get", "create", "patch"}


def test_leader_alone_writes_status(cluster, namespace, start):
    """What is to be said of objects both of them know; after each has had its time to, one has said it."""
    accounts = [cluster.service_account(namespace, rules=[*kube_picker.shipped_rules(), RIGHTS]) for _ in range(2)]
    first = start("first", {"token": accounts[0].token})
    first.wait_health(SERVING)
    second = start("second", {"token": accounts[1].token})
    second.wait_endpoints(["127.0.0.7:8000"])
    for name in ("one", "two", "three"):
        cluster.admin.apply(kube_picker.model(namespace, name))
        first.wait_for(lambda one=name: any(
            condition["status"] == "True" for condition in cluster.admin.get(
                "InferenceModel", one, kube_picker.ALPHA, namespace).get("status", {}).get("conditions", [])), name)
    written = [{one[3] for one in cluster.requests_of(account) if one[2] == "inferencemodels/status"}
               for account in accounts]
    assert written == [{"one", "two", "three"}, set()]


def test_leader_killed_is_replaced(cluster, namespace, start):
    first = start("first")
    first.wait_health(SERVING)
    second = start("second")
    before = holder(cluster, namespace)
    first.crash()
    second.wait_health(SERVING)
    assert holder(cluster, namespace) != before
    first.process.returncode = 0  # the crash was the test's


def test_leader_recreates_deleted_lease(cluster, namespace, start):
    picker = start("one")
    picker.wait_health(SERVING)
    before = holder(cluster, namespace)
    cluster.admin.delete("Lease", lease_name(namespace), LEASES, namespace)

    def is_back():
        with contextlib.suppress(AssertionError):
            return holder(cluster, namespace) == before
        return False
    picker.wait_for(is_back, "the lease")
    picker.wait_health(SERVING)  # the API server has the Lease a moment before the picker knows


def test_leader_taken_lease_stops_leading(cluster, namespace, start):
    """Somebody else writes a name of theirs into it: who led stops, and waits for it to run out."""
    picker = start("one")
    picker.wait_health(SERVING)
    cluster.admin.patch("Lease", lease_name(namespace), {"spec": {"holderIdentity": "me"}}, LEASES, namespace)
    picker.wait_health(NOT_SERVING)
    assert picker.health("liveness") == SERVING
    picker.wait_health(SERVING)


def test_leader_without_rights_is_not_ready(cluster, namespace, start):
    account = cluster.service_account(namespace, rules=kube_picker.shipped_rules())
    picker = start("one", {"token": account.token})
    picker.wait_endpoints(["127.0.0.7:8000"])
    picker.wait_until(lambda now: now["sluice_pick_kube_lease_failures_total"] > 0, "a failure")
    assert picker.health() == NOT_SERVING and picker.health("liveness") == SERVING
    with urllib.request.urlopen(f"http://{picker.metrics_address}/debug/state") as answer:
        text = answer.read().decode()
    assert "cluster's lease: no leader, we are " in text and "403" in text

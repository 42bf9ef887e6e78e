"""The API server that the other tests here rely on: what they ask it for is what it does."""
import pytest

from lib import kube_crds
from lib.kube_client import Refused

PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
POOL = """
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: digits, namespace: NS}
spec:
  selector: {matchLabels: {app: digits}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: picker, port: {number: 9002}}
"""


def names_of(answer):
    return sorted(item["metadata"]["name"] for item in answer["items"])


def pods_at(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def events_until_deleted(client, path):
    """Types of the events of a watch, up to the first that says that an object is gone."""
    found = []
    for one in client.watch(path):
        found.append(one["type"])
        if one["type"] == "DELETED":
            return found


def test_api_server_each_kind_is_served(cluster, namespace):
    for definition in kube_crds.definitions():
        spec = definition["spec"]
        version = f"{spec['group']}/{spec['versions'][0]['name']}"
        where = namespace if spec["scope"] == "Namespaced" else None
        listed = cluster.admin.list(spec["names"]["kind"], version, where)
        assert listed["kind"] == spec["names"]["listKind"] and (listed["items"] == [] or not where), version


def test_api_server_kinds_added_and_removed(start_cluster):
    cluster = start_cluster(kinds=["pool"])
    alpha = kube_crds.ALPHA_GROUP + "/v1alpha2"
    with pytest.raises(Refused) as refused:
        cluster.admin.list("InferenceModel", alpha)
    assert refused.value.status == 404
    cluster.install(kube_crds.definitions(["model"]))
    assert cluster.admin.list("InferenceModel", alpha)["items"] == []
    cluster.remove(kube_crds.definitions(["model"]))
    with pytest.raises(Refused):
        cluster.admin.list("InferenceModel", alpha)


def test_api_server_apply_and_refuse(cluster, namespace):
    text = POOL.replace("NS", namespace)
    version = kube_crds.POOL_GROUP + "/v1"
    cluster.admin.apply(text, dry_run=True)
    assert cluster.admin.list("InferencePool", version, namespace)["items"] == []
    for wrong in (text.replace("number: 8000", "number: 0"), text.replace("matchLabels", "labels")):
        with pytest.raises(Refused):
            cluster.admin.apply(wrong, dry_run=True)
    cluster.admin.apply(text)
    pool = cluster.admin.get("InferencePool", "digits", version, namespace)
    assert pool["spec"]["targetPorts"] == [{"number": 8000}]


def test_api_server_pod_lifecycle(cluster, namespace):
    version = cluster.admin.list("Pod", namespace=namespace)["metadata"]["resourceVersion"]
    cluster.add_pod(namespace, "one", {"app": "digits"}, ips=("127.0.0.7", "::1"))
    cluster.set_pod(namespace, "one", ready=False)
    pod = cluster.admin.get("Pod", "one", namespace=namespace)
    assert [one["ip"] for one in pod["status"]["podIPs"]] == ["127.0.0.7", "::1"]
    assert pod["status"]["conditions"][0]["status"] == "False"
    cluster.delete_pod(namespace, "one", grace=30)
    assert "deletionTimestamp" in cluster.admin.get("Pod", "one", namespace=namespace)["metadata"]
    cluster.delete_pod(namespace, "one")
    assert names_of(cluster.admin.list("Pod", namespace=namespace)) == []
    seen = events_until_deleted(cluster.admin, f"{pods_at(namespace)}?resourceVersion={version}")
    assert seen[:4] == ["ADDED"] + ["MODIFIED"] * 3


def test_api_server_many_pods(cluster, namespace):
    names = [f"pod-{number:03}" for number in range(40)]
    cluster.add_pods(namespace, names, {"app": "digits"}, lambda name: f"10.1.0.{int(name[4:])}")
    assert names_of(cluster.admin.list("Pod", namespace=namespace)) == names


def test_api_server_account_rights(cluster, namespace):
    account = cluster.service_account(namespace, rules=[PODS])
    client = account.client()
    assert client.ask("GET", pods_at(namespace))[0] == 200
    assert client.ask("GET", pods_at("default"))[0] == 403
    assert client.ask("GET", pods_at(namespace) + "?watch=true")[0] == 403
    assert cluster.requests_of(account) == {
        ("list", "", "pods", None, 200), ("list", "", "pods", None, 403), ("watch", "", "pods", None, 403)}
    everywhere = cluster.service_account(namespace, cluster_rules=[PODS]).client()
    assert everywhere.ask("GET", pods_at("default"))[0] == 200


def test_api_server_without_rights_is_refused(cluster):
    assert cluster.client().ask("GET", "/api/v1/pods")[0] == 403
    assert cluster.client(token="made-up").ask("GET", "/api/v1/pods")[0] == 401
    _, by_certificate = cluster.certificate_user("jane")
    status, answer = by_certificate.ask("GET", "/api/v1/pods")
    assert status == 403 and '"jane"' in answer["message"]


def test_api_server_crash_keeps_objects(start_cluster):
    cluster = start_cluster(kinds=())
    namespace = cluster.new_namespace()
    cluster.add_pod(namespace, "one", {})
    cluster.crash()
    with pytest.raises(ConnectionError):
        cluster.admin.ask("GET", pods_at(namespace))
    cluster.start()
    assert names_of(cluster.admin.list("Pod", namespace=namespace)) == ["one"]


def test_api_server_compacted_watch_is_410(start_cluster):
    cluster = start_cluster(kinds=())
    namespace = cluster.new_namespace()
    old = cluster.admin.list("Pod", namespace=namespace)["metadata"]["resourceVersion"]
    for name in ("one", "two"):
        cluster.add_pod(namespace, name, {})
    cluster.compact()
    cluster.crash()
    cluster.start()
    watch = cluster.admin.watch(f"{pods_at(namespace)}?resourceVersion={old}")
    event = next(watch)
    watch.close()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)

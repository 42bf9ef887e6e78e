"""How `sluice pick --kube` shows the API server who it is, in every way that a kubeconfig has, and what it does
when the server no longer takes it, or no longer knows what has happened since."""
import base64
import contextlib
import json
import os
import stat
import sys

import pytest

from lib import kube_picker
from lib.certificates import Identity
from lib.kube import write
from lib.kube_picker import LABELS, KubePicker
from lib.relay import Relay

V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
# What a kubeconfig's program prints is in a file; each run is a line in another.
PROGRAM = """#!{python}
import json, os, sys
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
with open(sys.argv[1] + ".runs", "a") as runs:
    runs.write(json.dumps(told) + "\\n")
with open(sys.argv[1]) as file:
    status = json.load(file)
print(json.dumps({{"kind": "ExecCredential", "apiVersion": told["apiVersion"], "status": status}}))
"""


@pytest.fixture
def start(tmp_path):
    """Starts pickers of the test's own: start(cluster, namespace, kubeconfig's path, flag, …)."""
    with contextlib.ExitStack() as started:
        def one(namespace, file, *args):
            folder = tmp_path / f"picker{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return started.enter_context(KubePicker(
                folder, ["--pool-name", "digits", "--pool-namespace", namespace, "--kubeconfig", file], args))
        yield one


def data(path):
    with open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()


def text(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def with_pool(cluster, namespace):
    cluster.admin.apply(kube_picker.pool(namespace))
    cluster.add_pod(namespace, "one", LABELS, ("127.0.0.7",))


def reader(cluster, namespace):
    """A service account that may do what a picker has to."""
    return cluster.service_account(namespace, rules=kube_picker.shipped_rules())


def expel(cluster, account):
    """The account is gone, and the server, which remembers tokens for some seconds, has noticed."""
    cluster.admin.delete("ServiceAccount", account.name, "v1", account.namespace)
    path = f"/api/v1/namespaces/{account.namespace}/pods?limit=1"
    cluster.api.wait_until(lambda: account.client().ask("GET", path)[0] == 401, "a token that is refused")


def person(cluster, namespace, name):
    """A user by certificate that may do the same. Returns: what kubeconfig calls `user`."""
    user, _ = cluster.certificate_user(name)
    rule = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "namespace": namespace}}
    cluster.admin.apply({**rule, "kind": "Role", "rules": kube_picker.shipped_rules()})
    cluster.admin.apply({**rule, "kind": "RoleBinding", "subjects": [
        {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}], "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}})
    return user


class Program:
    """A program for a kubeconfig, what it says, and how often it was run."""

    def __init__(self, folder, says, version=V1):
        self.folder, self.version = str(folder), version
        path = write(self.folder, "program", PROGRAM.format(python=sys.executable))
        os.chmod(path, stat.S_IRWXU)
        self.say(says)

    def say(self, status):
        write(self.folder, "said.new", json.dumps(status))
        os.replace(os.path.join(self.folder, "said.new"), os.path.join(self.folder, "said"))

    @property
    def user(self):
        return {"exec": {"apiVersion": self.version, "command": os.path.join(self.folder, "program"),
                         "args": [os.path.join(self.folder, "said")], "interactiveMode": "Never"}}

    def runs(self):
        return text(os.path.join(self.folder, "said.runs")).splitlines()


# ---- who we are ------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["files", "data", "program"])
def test_access_by_client_certificate(cluster, namespace, start, tmp_path, how):
    with_pool(cluster, namespace)
    user = person(cluster, namespace, f"person-{how}")
    cert, key = user["client-certificate"], user["client-key"]
    if how == "data":
        user = {"client-certificate-data": data(cert), "client-key-data": data(key)}
    elif how == "program":
        user = Program(tmp_path, {"clientCertificateData": text(cert), "clientKeyData": text(key)}, BETA).user
    start(namespace, cluster.kubeconfig(user)).wait_endpoints(["127.0.0.7:8000"])


def test_access_unknown_client_certificate_is_denied(cluster, namespace, start, tmp_path):
    """The server does not know it: that is said, and the picker lives."""
    with_pool(cluster, namespace)
    cert, key = Identity("nobody", Identity("another", authority=True)).write(str(tmp_path / "nobody"))
    picker = start(namespace, cluster.kubeconfig({"client-certificate": cert, "client-key": key}))
    picker.wait_for(lambda: picker.phase("InferencePool") == "denied", "a refusal")
    assert "API server denies access" in picker.log_text()


def test_access_untrusted_server_gets_no_token(cluster, namespace, start, tmp_path):
    """Whom the kubeconfig does not trust gets no token."""
    with_pool(cluster, namespace)
    account = reader(cluster, namespace)
    file = account.kubeconfig()
    other = Identity("another", authority=True).write_cert(str(tmp_path / "other.crt"))
    wrong = write(str(tmp_path), "config", text(file).replace(cluster.ca_file, other))
    picker = start(namespace, wrong)
    picker.wait_for(lambda: picker.phase("InferencePool") == "failing", "no connection")
    assert "API server request failed" in picker.log_text()
    assert cluster.requests_of(account) == set()
    assert account.token not in picker.log_text()


def test_access_server_name_is_checked(cluster, namespace, start, tmp_path):
    """The certificate is for localhost and 127.0.0.1; the connection goes to 127.0.0.1 in each case."""
    with_pool(cluster, namespace)
    config = text(reader(cluster, namespace).kubeconfig())
    cluster_is = '"cluster": {"server"'
    for name, good in (("localhost", True), ("kubernetes.example", False)):
        file = write(str(tmp_path), f"config-{name}", config.replace(
            cluster_is, f'"cluster": {{"tls-server-name": "{name}", "server"'))
        picker = start(namespace, file)
        if good:
            picker.wait_endpoints(["127.0.0.7:8000"])
        else:
            picker.wait_for(lambda one=picker: one.phase("InferencePool") == "failing", "no connection")
            assert "API server request failed" in picker.log_text()


def test_access_token_file_is_reread(cluster, namespace, start, tmp_path):
    """A token of a file is read again: that of an account that is gone does no good, the next one does."""
    with_pool(cluster, namespace)
    first, second = reader(cluster, namespace), reader(cluster, namespace)
    token = write(str(tmp_path), "token", first.token)
    with Relay(cluster.port) as relay:
        picker = start(namespace, through(relay, cluster, cluster.kubeconfig({"tokenFile": token})))
        picker.wait_endpoints(["127.0.0.7:8000"])
        expel(cluster, first)
        relay.cut()
        cluster.add_pod(namespace, "two", LABELS, ("127.0.0.8",))
        picker.wait_for(lambda: picker.phase("Pod", "") == "denied", "a refusal")
        assert picker.endpoints() == ["127.0.0.7:8000"]  # what is known stays
        write(str(tmp_path), "token", second.token)
        picker.wait_endpoints(["127.0.0.7:8000", "127.0.0.8:8000"])
        assert "API server denies access" in picker.log_text()
    assert first.token not in picker.log_text() and second.token not in picker.log_text()


@pytest.mark.parametrize("version", [V1, BETA])
def test_access_exec_plugin_is_rerun_after_denial(cluster, namespace, start, tmp_path, version):
    """Once for all kinds of objects, and again when the server refuses what it said."""
    with_pool(cluster, namespace)
    first, second = reader(cluster, namespace), reader(cluster, namespace)
    program = Program(tmp_path, {"token": first.token}, version)
    with Relay(cluster.port) as relay:
        picker = start(namespace, through(relay, cluster, cluster.kubeconfig(program.user)))
        picker.wait_endpoints(["127.0.0.7:8000"])
        assert len(program.runs()) == 1
        program.say({"token": second.token, "expirationTimestamp": "2100-01-01T00:00:00Z"})
        expel(cluster, first)
        relay.cut()
        cluster.add_pod(namespace, "two", LABELS, ("127.0.0.8",))
        picker.wait_endpoints(["127.0.0.7:8000", "127.0.0.8:8000"])
        assert len(program.runs()) == 2
        assert "API server denies access" in picker.log_text()


def test_access_in_pod_service_account(cluster, namespace, tmp_path, monkeypatch):
    """The service account of a pod: where the API server is, and the namespace, are not said by any flag; its token is
    another one after a while."""
    with_pool(cluster, namespace)
    first, second = reader(cluster, namespace), reader(cluster, namespace)
    folder = first.folder()
    with Relay(cluster.port) as relay:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(relay.port))
        monkeypatch.setenv("KUBECONFIG", "/none")
        with KubePicker(tmp_path, ["--pool-name", "digits", "--service-account", folder]) as picker:
            picker.wait_endpoints(["127.0.0.7:8000"])
            write(folder, "token", second.token)
            expel(cluster, first)
            relay.cut()
            cluster.add_pod(namespace, "two", LABELS, ("127.0.0.8",))
            picker.wait_endpoints(["127.0.0.7:8000", "127.0.0.8:8000"])
            assert first.token not in picker.log_text() and second.token not in picker.log_text()


# ---- what is lost ----------------------------------------------------------------------------------

def through(relay, cluster, file):
    """The same kubeconfig, by way of a relay."""
    config = text(file).replace(cluster.url, f"https://127.0.0.1:{relay.port}")
    return write(cluster.folder, f"{os.path.basename(file)}-relayed", config)


def test_watch_resumes_after_connection_loss(cluster, namespace, start):
    """What has happened meanwhile is told by the next watch, from where the last one ended: nothing is listed."""
    with_pool(cluster, namespace)
    with Relay(cluster.port) as relay:
        picker = start(namespace, through(relay, cluster, cluster.kubeconfig(cluster.admin_user)))
        picker.wait_endpoints(["127.0.0.7:8000"])
        lists = picker.numbers()['sluice_pick_kube_lists_total{kind="Pod",group=""}']
        for number in (8, 9):
            relay.cut()
            cluster.add_pod(namespace, f"pod{number}", LABELS, (f"127.0.0.{number}",))
            picker.wait_endpoints([f"127.0.0.{one}:8000" for one in range(7, number + 1)])
            picker.wait_for(lambda: picker.phase("Pod", "") == "watching", "a watch")
        assert picker.numbers()['sluice_pick_kube_lists_total{kind="Pod",group=""}'] == lists


def test_watch_dead_connection_is_detected(cluster, namespace, start):
    """Connections on which nothing comes any more, not even an end, are noticed: after half a minute."""
    with_pool(cluster, namespace)
    with Relay(cluster.port) as relay:
        picker = start(namespace, through(relay, cluster, cluster.kubeconfig(cluster.admin_user)))
        picker.wait_endpoints(["127.0.0.7:8000"])
        picker.wait_for(lambda: picker.phase("Pod", "") == "watching", "a watch")
        relay.lose()
        cluster.add_pod(namespace, "two", LABELS, ("127.0.0.8",))
        picker.wait_endpoints(["127.0.0.7:8000", "127.0.0.8:8000"])


def test_watch_compacted_is_relisted(start_cluster, start):
    """The store no longer has what has happened since (410): all is listed anew."""
    cluster = start_cluster(kinds=["pool"], flags=["--watch-cache=false"])
    namespace = cluster.new_namespace()
    with_pool(cluster, namespace)
    with Relay(cluster.port) as relay:
        picker = start(namespace, through(relay, cluster, cluster.kubeconfig(cluster.admin_user)))
        picker.wait_endpoints(["127.0.0.7:8000"])
        relay.open.clear()
        relay.cut()  # it comes back at once, and is kept waiting
        cluster.add_pod(namespace, "two", LABELS, ("127.0.0.8",))
        cluster.delete_pod(namespace, "one")
        cluster.compact()
        assert picker.endpoints() == ["127.0.0.7:8000"]
        relay.open.set()
        picker.wait_endpoints(["127.0.0.8:8000"])
        assert "Kubernetes objects are being listed" in picker.log_text()

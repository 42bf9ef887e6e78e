"""A real Kubernetes API server: kube-apiserver and the etcd it keeps its objects in, on loopback, in a folder
of the test's own. There is no kubelet and no controller: pods get their status from the test, and what is
deleted with no grace is gone at once. It ends only the processes that it started."""
import base64
import collections
import concurrent.futures
import itertools
import json
import os
import signal
import socket
import subprocess
import time

from lib import http1
from lib.certificates import Identity
from lib.kube_client import Client
from lib.kube_crds import definitions
from lib.ports import free_ports
from lib.server import ROOT

ETCD = os.path.join(ROOT, ".deps", "sysroot", "usr", "bin", "etcd")
API_SERVER = os.path.join(ROOT, ".deps", "bin", "kube-apiserver")
EVERYTHING = "system:masters"
SERVICE_ACCOUNTS = "system:serviceaccount"
# The least of a line for each request of a service account: who asked for what, and what was said.
AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
         "rules": [{"level": "Metadata", "userGroups": [SERVICE_ACCOUNTS + "s"]}, {"level": "None"}]}


def write(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    os.chmod(path, 0o600)
    return path


class Process:
    """One of the two, which can be ended and started again with what it has stored."""

    def __init__(self, log_file, command):
        self.log_file = log_file
        self.command = command
        self.running = None

    def start(self):
        with open(self.log_file, "ab") as log:
            self.running = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until(self, fits, what):
        end = time.monotonic() + http1.PATIENCE
        while not fits():
            if self.running.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"expected {what}; exit code {self.running.poll()}:\n{self.log_tail()}")
            time.sleep(0.02)

    def log_tail(self):
        with open(self.log_file, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-40:])

    def end(self, number):
        if self.running is not None and self.running.poll() is None:
            self.running.send_signal(number)
            self.running.wait()


class Cluster:
    """A running API server with the kinds of object `kinds` (lib/kube_crds.py; all of them by default) beside
    its own. `flags` are further ones of kube-apiserver. `admin` may do everything."""

    def __init__(self, folder, kinds=None, flags=()):
        self.folder = str(folder)
        self.authority = Identity("cluster", authority=True)
        self.ca_file = self.authority.write_cert(os.path.join(self.folder, "ca.crt"))
        self.admin_token = base64.b32encode(os.urandom(20)).decode().lower()
        self.names = itertools.count()
        self.flags = list(flags)
        try:
            self.start_somewhere()
            if kinds != ():
                self.install(definitions(kinds))
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    # ---- processes -----------------------------------------------------------------------------

    def start_somewhere(self):
        """Another port is tried when somebody was faster."""
        for attempts_left in reversed(range(3)):
            self.port, self.etcd_port, peer_port = free_ports(3)
            self.url = f"https://127.0.0.1:{self.port}"
            self.etcd = Process(os.path.join(self.folder, "etcd.log"), self.etcd_command(peer_port))
            self.api = Process(os.path.join(self.folder, "api.log"), self.api_command())
            self.admin = self.client(self.admin_token)
            try:
                self.start_store()
                self.start()
                return
            except AssertionError:
                self.kill()
                said = self.etcd.log_tail() + (self.api.log_tail() if self.api.running else "")
                if not attempts_left or "address already in use" not in said:
                    raise

    def etcd_command(self, peer_port):
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peer_port}"
        return [ETCD, "--data-dir", os.path.join(self.folder, f"etcd-{peer_port}"),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", f"default={peer}", "--log-level", "error"]

    def api_command(self):
        cert, key = Identity("kube-apiserver", self.authority).write(os.path.join(self.folder, "tls"))
        tokens = write(self.folder, "tokens", f"{self.admin_token},admin,admin,{EVERYTHING}\n")
        _, signer = Identity("accounts", rsa_bits=2048).write(os.path.join(self.folder, "accounts"))
        policy = write(self.folder, "audit.yaml", json.dumps(AUDIT))
        self.audit_file = os.path.join(self.folder, "audit.log")
        return [API_SERVER, f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
                "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self.port}", f"--tls-cert-file={cert}",
                f"--tls-private-key-file={key}", f"--cert-dir={self.folder}/tls",
                f"--client-ca-file={self.ca_file}", f"--token-auth-file={tokens}",
                f"--service-account-issuer={self.url}", f"--service-account-key-file={signer}",
                f"--service-account-signing-key-file={signer}", "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
                "--endpoint-reconciler-type=none", "--etcd-compaction-interval=0", "--profiling=false",
                f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_file}", *self.flags]

    def start_store(self):
        self.etcd.start()
        self.etcd.wait_until(lambda: self.answers(self.etcd_port), "etcd to listen")

    @staticmethod
    def answers(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def start(self):
        """Also: again, at the same address, with the objects that there were."""
        self.api.start()
        self.api.wait_until(self.is_ready, "the API server to be ready")

    def is_ready(self):
        try:
            return self.admin.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def crash(self):
        """Kills the API server with SIGKILL, without a word; `start` starts it again."""
        self.api.end(signal.SIGKILL)
        self.admin.close()

    def freeze(self):
        """The API server answers nothing until `thaw`; its connections stay."""
        self.api.running.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.api.running.send_signal(signal.SIGCONT)

    def kill(self):
        self.api.end(signal.SIGKILL)
        self.etcd.end(signal.SIGKILL)
        self.admin.close()

    # ---- who may ask ---------------------------------------------------------------------------

    def client(self, token=None, certificate=None):
        return Client("127.0.0.1", self.port, self.ca_file, token, certificate)

    def service_account(self, namespace, rules=(), cluster_rules=(), name=None):
        """A service account that may do what `rules` say in its namespace, `cluster_rules` everywhere."""
        name = name or f"account{next(self.names)}"
        subject = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
        self.admin.apply({"apiVersion": "v1", "kind": "ServiceAccount",
                          "metadata": {"name": name, "namespace": namespace}})
        for prefix, allowed in (("", rules), ("Cluster", cluster_rules)):
            if allowed:
                meta = {"name": f"{namespace}-{name}", **({} if prefix else {"namespace": namespace})}
                role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": meta}
                self.admin.apply({**role, "kind": prefix + "Role", "rules": list(allowed)})
                self.admin.apply({**role, "kind": prefix + "RoleBinding", "subjects": subject, "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": prefix + "Role",
                    "name": meta["name"]}})
        return Account(self, namespace, name)

    def kubeconfig(self, user, namespace="default"):
        """A new file for `user`, what kubeconfig calls so: {"token": …}, {"exec": …}, …; `admin_user` is one.
        Returns: its path."""
        name = f"kubeconfig{next(self.names)}"
        return write(self.folder, name, json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test", "contexts": [
                {"name": "test", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "clusters": [{"name": "c", "cluster": {
                "server": self.url, "certificate-authority": self.ca_file}}],
            "users": [{"name": "u", "user": user}]}))

    @property
    def admin_user(self):
        return {"token": self.admin_token}

    def certificate_user(self, name):
        """`user` of a kubeconfig, and the client, of a user called `name` by certificate."""
        cert, key = Identity(name, self.authority).write(os.path.join(self.folder, f"user-{name}"))
        return ({"client-certificate": cert, "client-key": key}, self.client(certificate=(cert, key)))

    def requests_of(self, account):
        """What a service account has asked for: a set of (verb, group, resource, name or None, answer)."""
        return set(self.count_requests_of(account))

    def count_requests_of(self, account):
        """The same, and how often."""
        found = collections.Counter()
        with open(self.audit_file, encoding="utf-8") as file:
            for line in file:
                event = json.loads(line)
                at = event.get("objectRef", {})
                if event["user"]["username"] == account.user_name and "responseStatus" in event:
                    resource = "/".join(filter(None, (at.get("resource"), at.get("subresource"))))
                    found[event["verb"], at.get("apiGroup", ""), resource or event["requestURI"],
                          at.get("name"), event["responseStatus"].get("code")] += 1
        return found

    # ---- objects -------------------------------------------------------------------------------

    def install(self, wanted):
        """Definitions of kinds of object, until the server serves them, and says so."""
        for one in wanted:
            self.admin.apply(one)
        for one in wanted:
            spec = one["spec"]
            root, plural = f"/apis/{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["plural"]
            path = f"{root}/{plural}?limit=1"
            self.api.wait_until(lambda where=path: self.admin.ask("GET", where)[0] == 200, path)
            self.api.wait_until(lambda where=root, name=plural: self.lists(where, name), f"{plural} in {root}")
        self.admin.forget_kinds()

    def lists(self, root, plural):
        status, answer = self.admin.ask("GET", root)
        return status == 200 and any(one["name"] == plural for one in answer["resources"])

    def remove(self, wanted):
        """The server serves them no longer, and their objects are gone."""
        for one in wanted:
            spec = one["spec"]
            self.admin.delete("CustomResourceDefinition", one["metadata"]["name"], "apiextensions.k8s.io/v1")
            path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}?limit=1"
            self.api.wait_until(lambda where=path: self.admin.ask("GET", where)[0] == 404, f"no {path}")
        self.admin.forget_kinds()

    def new_namespace(self):
        name = f"ns{next(self.names)}-{os.path.basename(self.folder)}"[:60].rstrip("-").replace("_", "-")
        self.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def add_pod(self, namespace, name, labels, ips=("127.0.0.1",), ready=True, annotations=None):
        """A pod as if a kubelet had started it. It belongs to a node, so that a deletion with grace leaves it
        terminating until one without."""
        self.admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": name, "namespace": namespace, "labels": labels, "annotations": annotations or {}},
            "spec": {"nodeName": "node", "containers": [{"name": "server", "image": "none"}]}})
        self.set_pod(namespace, name, ready, ips)

    def set_pod(self, namespace, name, ready, ips=None):
        """Readiness, and addresses: all of a pod's, the first is its `podIP`."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(bool(ready))}]}
        if ips is not None:
            status.update(podIP=ips[0] if ips else None, podIPs=[{"ip": ip} for ip in ips])
        self.admin.patch_status("Pod", name, namespace, status)

    def add_pods(self, namespace, names, labels, address_of, ready=True):
        """Many at once: `address_of` gives the address of a name."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(self.add_pod, namespace, name, labels, (address_of(name),), ready)
                         for name in names]:
                done.result()

    def delete_pod(self, namespace, name, grace=0):
        """With grace it is terminating until it is deleted with none, as no kubelet does it."""
        self.admin.delete("Pod", name, "v1", namespace, {"gracePeriodSeconds": grace})

    def store(self, path, things, at_once=1):
        """Puts objects into etcd past the API server, which tells of them all the same: faster than it takes them.
        `path` is that of their kind there ("pods", "GROUP/PLURAL"). They must be whole, and are not checked.
        Those that are put `at_once` have one resourceVersion, and no watch that breaks off between them can go on:
        where somebody watches it must be 1, as it is with the API server."""
        self.change_store([{"request_put": {"key": self.stored(path, one), "value": base64.b64encode(
            json.dumps(one).encode()).decode()}} for one in things], at_once)

    def unstore(self, path, things, at_once=1):
        """Takes them out again."""
        self.change_store([{"request_delete_range": {"key": self.stored(path, one)}} for one in things], at_once)

    @staticmethod
    def stored(path, thing):
        meta = thing["metadata"]
        return base64.b64encode(f"/registry/{path}/{meta['namespace']}/{meta['name']}".encode()).decode()

    def change_store(self, changes, at_once):
        store = Client("127.0.0.1", self.etcd_port)
        for start in range(0, len(changes), at_once):
            store.call("POST", "/v3/kv/txn", {"success": changes[start:start + at_once]})
        store.close()

    def compact(self):
        """etcd forgets all but the newest state. What the API server itself remembers for watches it keeps:
        flags=["--watch-cache=false"] leaves that out, `crash` and `start` empty it."""
        store = Client("127.0.0.1", self.etcd_port)
        head = store.call("POST", "/v3/kv/range", {"key": base64.b64encode(b"none").decode()})["header"]
        store.call("POST", "/v3/kv/compaction", {"revision": head["revision"], "physical": True})
        store.close()


class Account:
    """A service account of a cluster, with a token of its own."""

    def __init__(self, cluster, namespace, name):
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self.user_name = f"{SERVICE_ACCOUNTS}:{namespace}:{name}"
        self.token = self.new_token()

    def new_token(self, seconds=3600):
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.name}/token"
        return self.cluster.admin.call("POST", path, {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds}})["status"]["token"]

    def client(self):
        return self.cluster.client(self.token)

    def kubeconfig(self):
        return self.cluster.kubeconfig({"token": self.token}, self.namespace)

    def folder(self):
        """What a pod of this account finds under /var/run/secrets/kubernetes.io/serviceaccount."""
        path = os.path.join(self.cluster.folder, f"account{next(self.cluster.names)}")
        os.mkdir(path)
        with open(self.cluster.ca_file, "rb") as file:
            write(path, "ca.crt", file.read())
        write(path, "token", self.token)
        write(path, "namespace", self.namespace)
        return path

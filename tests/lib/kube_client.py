"""A small client of the Kubernetes API: what tests change objects with, and look whether they have changed.
It keeps a connection for each thread."""
import http.client
import json
import ssl
import threading

import yaml

from lib import http1

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class Refused(AssertionError):
    """The server's answer was no; `status` is HTTP's."""

    def __init__(self, what, status, answer):
        super().__init__(f"{what}: {status} {answer.get('reason')}: {answer.get('message')}")
        self.status = status
        self.answer = answer


def documents(text):
    """The objects of a YAML text, which may have several."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(text, loader) if one]


class Client:
    """Asks the server at `host`:`port` as who a token or a certificate, (its file, its key's), says. Without
    `ca_file` it speaks plain HTTP."""

    def __init__(self, host, port, ca_file=None, token=None, certificate=None):
        self.place = (host, port)
        self.token = token
        self.context = None
        if ca_file is not None:
            self.context = ssl.create_default_context(cafile=ca_file)
            if certificate is not None:
                self.context.load_cert_chain(*certificate)
        self.mine = threading.local()
        self.opened = []
        self.kinds = {}

    def close(self):
        while self.opened:
            self.opened.pop().close()

    def connect(self):
        if self.context is None:
            connection = http.client.HTTPConnection(*self.place, timeout=http1.PATIENCE)
        else:
            connection = http.client.HTTPSConnection(*self.place, timeout=http1.PATIENCE,
                                                     context=self.context)
        self.opened.append(connection)
        return connection

    def send(self, connection, method, path, body, content_type):
        fields = {"Accept": "application/json"}
        if self.token is not None:
            fields["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            fields["Content-Type"] = content_type
            body = json.dumps(body)
        connection.request(method, path, body, fields)
        return connection.getresponse()

    def ask(self, method, path, body=None, content_type="application/json"):
        """Returns: status and answer, an object if it is one. A connection that has gone is OSError; one that
        went between two questions is opened again."""
        for attempts_left in (1, 0):
            fresh = getattr(self.mine, "connection", None) is None
            if fresh:
                self.mine.connection = self.connect()
            try:
                answer = self.send(self.mine.connection, method, path, body, content_type)
                text = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                self.mine.connection.close()
                self.mine.connection = None
                if fresh or not attempts_left:
                    raise ConnectionError(f"{method} {path}: {error!r}") from error
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, {"message": text.decode(errors="replace")}

    def call(self, method, path, body=None, content_type="application/json"):
        """The answer, which must be a good one."""
        status, answer = self.ask(method, path, body, content_type)
        if status >= 300:
            raise Refused(f"{method} {path}", status, answer)
        return answer

    # ---- where an object is --------------------------------------------------------------------

    def forget_kinds(self):
        self.kinds.clear()

    def path(self, kind, api_version, namespace=None, name=None):
        """Kinds that the server doesn't serve are Refused with 404."""
        if api_version not in self.kinds:
            root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
            self.kinds[api_version] = (root, {
                one["kind"]: one for one in self.call("GET", root)["resources"] if "/" not in one["name"]})
        root, kinds = self.kinds[api_version]
        if kind not in kinds:
            del self.kinds[api_version]
            raise Refused(f"{api_version} {kind}", 404, {"message": "no such kind is served"})
        if kinds[kind]["namespaced"] and (namespace or name):
            root += f"/namespaces/{namespace or 'default'}"
        return f"{root}/{kinds[kind]['name']}" + (f"/{name}" if name else "")

    def path_of(self, thing, named=True):
        meta = thing["metadata"]
        return self.path(thing["kind"], thing["apiVersion"], meta.get("namespace") or "default",
                         meta["name"] if named else None)

    # ---- what is done with it ------------------------------------------------------------------

    def apply(self, thing, dry_run=False):
        """Server-side apply of one object, or of each in a YAML text. A dry run changes nothing.
        Returns: the object as the server has it, or a list."""
        if isinstance(thing, str):
            return [self.apply(one, dry_run) for one in documents(thing)]
        return self.call("PATCH", self.path_of(thing) + "?fieldManager=test&force=true&fieldValidation=Strict"
                         + ("&dryRun=All" if dry_run else ""), thing, APPLY)

    def create(self, thing):
        return self.call("POST", self.path_of(thing, named=False), thing)

    def get(self, kind, name, api_version="v1", namespace=None):
        return self.call("GET", self.path(kind, api_version, namespace, name))

    def list(self, kind, api_version="v1", namespace=None):
        return self.call("GET", self.path(kind, api_version, namespace))

    def patch(self, kind, name, change, api_version="v1", namespace=None, part=""):
        """A merge patch: null takes away."""
        return self.call("PATCH", self.path(kind, api_version, namespace, name) + part, change, MERGE)

    def patch_status(self, kind, name, namespace, status, api_version="v1"):
        return self.patch(kind, name, {"status": status}, api_version, namespace, "/status")

    def delete(self, kind, name, api_version="v1", namespace=None, options=None):
        return self.call("DELETE", self.path(kind, api_version, namespace, name), options)

    def watch(self, path):
        """Events of a watch, one object after the other; closing the generator closes its connection."""
        connection = self.connect()
        try:
            answer = self.send(connection, "GET", path + ("&" if "?" in path else "?") + "watch=true", None, None)
            if answer.status != 200:
                raise Refused(f"watch {path}", answer.status, json.loads(answer.read()))
            for line in answer:
                yield json.loads(line)
        finally:
            connection.close()

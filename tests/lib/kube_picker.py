"""A picker of a cluster's pool: `sluice pick --kube`, and the objects that such a pool is made of."""
import os

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lib import http1
from lib.kube_crds import ALPHA_GROUP, LLM_D_GROUP, POOL_GROUP
from lib.picker import Picker
from lib.server import ROOT

STABLE, ALPHA, LLM_D = POOL_GROUP + "/v1", ALPHA_GROUP + "/v1alpha2", LLM_D_GROUP + "/v1alpha2"
SERVING, NOT_SERVING = (health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING)
LABELS = {"app": "digits"}
RULES_FILE = os.path.join(ROOT, "deploy", "kubernetes", "helm", "sluice-server", "files", "rules.yaml")


def shipped_rules(name="digits"):
    """What a picker of this pool may do in its namespace, as the chart has it."""
    with open(RULES_FILE, encoding="utf-8") as file:
        return yaml.safe_load(file.read().replace("{{ .Release.Name }}", name))


def pool(namespace, name="digits", ports=(8000,), labels=None, **spec):
    """An InferencePool of the stable group."""
    return {"apiVersion": STABLE, "kind": "InferencePool", "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels or LABELS},
                     "targetPorts": [{"number": port} for port in ports],
                     "endpointPickerRef": {"name": "picker", "port": {"number": 9002}}, **spec}}


def alpha_pool(namespace, name="digits", port=8000, labels=None):
    """The same of the older group."""
    return {"apiVersion": ALPHA, "kind": "InferencePool", "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": labels or LABELS, "targetPortNumber": port, "extensionRef": {"name": "picker"}}}


def pool_ref(name="digits", group=POOL_GROUP):
    return {"group": group, "kind": "InferencePool", "name": name}


def model(namespace, name, model_name=None, targets=(), group=POOL_GROUP, **spec):
    """An InferenceModel; `targets` are (name, weight)."""
    return {"apiVersion": ALPHA, "kind": "InferenceModel", "metadata": {"name": name, "namespace": namespace},
            "spec": {"modelName": model_name or name, "poolRef": pool_ref(group=group), **spec,
                     **({"targetModels": [{"name": to, "weight": weight} for to, weight in targets]}
                        if targets else {})}}


def objective(namespace, name, priority, api_version=ALPHA):
    return {"apiVersion": api_version, "kind": "InferenceObjective",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"priority": priority, "poolRef": pool_ref()}}


def rewrite(namespace, name, model_name, target, api_version=ALPHA):
    return {"apiVersion": api_version, "kind": "InferenceModelRewrite",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"poolRef": pool_ref(), "rules": [
                {"matches": [{"model": {"type": "Exact", "value": model_name}}],
                 "targets": [{"modelRewrite": target, "weight": 1}]}]}}


class KubePicker(Picker):
    """`pool_args`: what says which pool it is, and who the picker is. `text`: a configuration of its own."""

    def __init__(self, folder, pool_args, args=(), text=None, flag="--kube"):
        self.pool_args = [flag, *map(str, pool_args)]
        self.with_file = text is not None
        super().__init__(folder, text or "", args)

    def flags(self, grpc):
        given = super().flags(grpc)
        return [*self.pool_args, *(given if self.with_file else given[2:])]

    @property
    def health_address(self):
        return self.grpc_addresses[-1].removesuffix("/health")

    def health(self, service="readiness", address=None):
        """What health says, as its status."""
        with grpc.insecure_channel(address or self.health_address) as channel:
            return health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=http1.PATIENCE).status

    def wait_health(self, wanted, service="readiness"):
        self.wait_for(lambda: self.health(service) == wanted, f"health {wanted} of {service!r}")

    def endpoints(self):
        """Addresses of the pool, sorted."""
        prefix = 'sluice_pick_endpoint_ready{endpoint="'
        return sorted(name.removeprefix(prefix).rstrip('"}') for name in self.numbers() if name.startswith(prefix))

    def wait_endpoints(self, wanted):
        """Until the pool has these and no others."""
        wanted = sorted(wanted)
        try:
            self.wait_for(lambda: self.endpoints() == wanted, f"the endpoints {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nthe pool has {self.endpoints()}") from None

    def phase(self, kind, group=POOL_GROUP):
        prefix = f'sluice_pick_kube_phase{{kind="{kind}",group="{group}",phase="'
        found = [name.removeprefix(prefix).rstrip('"}') for name, value in self.numbers().items()
                 if name.startswith(prefix) and value == 1]
        assert len(found) == 1, found
        return found[0]

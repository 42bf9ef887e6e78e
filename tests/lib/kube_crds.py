"""Definitions of the kinds of object that a picker reads, and of those that deploy/kubernetes has, as their makers
publish them (.deps/crds; tools/versions says which). The module that publishes those of llm-d's group
(github.com/llm-d/llm-d-router) is none that a module proxy hands out: they are the inference extension's alpha kinds
under another group, and nothing else about them differs."""
import copy
import glob
import os

from lib.kube_client import documents
from lib.server import ROOT

FOLDER = os.path.join(ROOT, ".deps", "crds")
EXTENSION = "sigs.k8s.io/gateway-api-inference-extension"
POOL_GROUP = "inference.networking.k8s.io"
ALPHA_GROUP = "inference.networking.x-k8s.io"
LLM_D_GROUP = "llm-d.ai"
# What a cluster may serve or not, each on its own: name → (module, version, plural, group).
KINDS = {
    "pool": (EXTENSION, "v1.5.0", "inferencepools", POOL_GROUP),
    "pool-alpha": (EXTENSION, "v0.3.0", "inferencepools", ALPHA_GROUP),
    "model": (EXTENSION, "v0.3.0", "inferencemodels", ALPHA_GROUP),
    "objective": (EXTENSION, "v1.5.0", "inferenceobjectives", ALPHA_GROUP),
    "rewrite": (EXTENSION, "v1.5.0", "inferencemodelrewrites", ALPHA_GROUP),
    "objective-llm-d": (EXTENSION, "v1.5.0", "inferenceobjectives", ALPHA_GROUP),
    "rewrite-llm-d": (EXTENSION, "v1.5.0", "inferencemodelrewrites", ALPHA_GROUP),
    "gateway-class": ("sigs.k8s.io/gateway-api", "v1.5.1", "gatewayclasses", "gateway.networking.k8s.io"),
    "gateway": ("sigs.k8s.io/gateway-api", "v1.5.1", "gateways", "gateway.networking.k8s.io"),
    "route": ("sigs.k8s.io/gateway-api", "v1.5.1", "httproutes", "gateway.networking.k8s.io"),
}


# What a gateway or an operator brings that deploy/kubernetes is for.
DEPLOYED_KINDS = {
    "pod-monitor": ("github.com/prometheus-operator/prometheus-operator", "v0.85.0", "podmonitors",
                    "monitoring.coreos.com"),
    "prometheus-rule": ("github.com/prometheus-operator/prometheus-operator", "v0.85.0", "prometheusrules",
                        "monitoring.coreos.com"),
    "scaled-object": ("github.com/kedacore/keda/v2", "v2.21.0", "scaledobjects", "keda.sh"),
    **{plural: ("github.com/kserve/kserve", "v0.20.0", plural, "serving.kserve.io")
       for plural in ("clusterservingruntimes", "inferenceservices")},
    "destination-rule": ("istio.io/api", "v1.31.1", "destinationrules", "networking.istio.io"),
    **{plural: ("github.com/envoyproxy/gateway", "v1.9.1", plural, "gateway.envoyproxy.io")
       for plural in ("envoyextensionpolicies", "backendtrafficpolicies", "clienttrafficpolicies")},
}


def read(module, version, plural, group):
    name = f"{plural}.{group}"
    for path in glob.glob(os.path.join(FOLDER, module, version, "*.yaml")):
        with open(path, encoding="utf-8") as file:
            parts = file.read().split("\n---\n")
        for text in parts:
            if f"\n  name: {name}\n" in text:
                one = documents(text)[0]
                one.pop("status", None)
                return one
    raise AssertionError(f"{module} {version} has no {name}: tools/bootstrap kube brings it")


def of_llm_d(definition):
    """The same kind in llm-d's group."""
    one = copy.deepcopy(definition)
    one["spec"]["group"] = LLM_D_GROUP
    one["metadata"] = {"name": f"{one['spec']['names']['plural']}.{LLM_D_GROUP}"}
    return one


def definitions(kinds=None):
    """Those of the names in `kinds`; by default all that a picker's cluster has."""
    found = []
    for name in KINDS if kinds is None else kinds:
        definition = read(*(KINDS.get(name) or DEPLOYED_KINDS[name]))
        found.append(of_llm_d(definition) if name.endswith("-llm-d") else definition)
    return found

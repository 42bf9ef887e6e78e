"""Definitions of the kinds of object that a picker reads, as their makers publish them (.deps/crds;
tools/versions says which). Those of llm-d's group are no module's that can be had: they are the inference
extension's alpha kinds under another group."""
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


def read(module, version, plural, group):
    for path in glob.glob(os.path.join(FOLDER, module, version, "*.yaml")):
        with open(path, encoding="utf-8") as file:
            for one in documents(file.read()):
                if one["metadata"]["name"] == f"{plural}.{group}":
                    one.pop("status", None)
                    return one
    raise AssertionError(f"{module} {version} has no {plural}.{group}: tools/bootstrap kube brings it")


def of_llm_d(definition):
    """The same kind in llm-d's group; what it says of its pool has that group when nothing else is said."""
    one = copy.deepcopy(definition)
    one["spec"]["group"] = LLM_D_GROUP
    one["metadata"] = {"name": f"{one['spec']['names']['plural']}.{LLM_D_GROUP}"}
    for version in one["spec"]["versions"]:
        fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        fields["poolRef"]["properties"]["group"]["default"] = LLM_D_GROUP
    return one


def definitions(kinds=None):
    """Those of the names in `kinds`; all of them by default."""
    found = []
    for name in KINDS if kinds is None else kinds:
        definition = read(*KINDS[name])
        found.append(of_llm_d(definition) if name.endswith("-llm-d") else definition)
    return found

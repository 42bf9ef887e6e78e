"""What deploy/kubernetes comes to: its folders as kustomize builds them, its chart as helm does, with the real
programs (tools/bootstrap kube). Nothing is taken from elsewhere, and nothing is asked of a cluster."""
import json
import os
import subprocess

from lib.kube_client import documents
from lib.server import ROOT

FOLDER = os.path.join(ROOT, "deploy", "kubernetes")
CHART = os.path.join(FOLDER, "helm", "sluice-server")
PROGRAMS = os.path.join(ROOT, ".deps", "bin")
# What the chart says of its objects beside what the folders say.
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")


def run(*command, stdin=None):
    done = subprocess.run(command, input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def folders():
    """Those that can be built on their own: components can't."""
    found = []
    for name in sorted(os.listdir(FOLDER)):
        path = os.path.join(FOLDER, name, "kustomization.yaml")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                if documents(file.read())[0]["kind"] == "Kustomization":
                    found.append(name)
    return found


def kustomized(name):
    return documents(run(os.path.join(PROGRAMS, "kustomize"), "build", os.path.join(FOLDER, name)))


def composed(folder, resource, *components):
    """A folder with components, as the kustomization of one's own has them; that is written into `folder`."""
    paths = [os.path.relpath(os.path.join(FOLDER, name), folder) for name in (resource, *components)]
    with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as file:
        json.dump({"resources": paths[:1], "components": paths[1:]}, file)
    return documents(run(os.path.join(PROGRAMS, "kustomize"), "build", str(folder)))


def helm(command, *settings, release="sluice"):
    flags = [one for setting in settings for one in ("--set-json", setting)]
    return run(os.path.join(PROGRAMS, "helm"), command, *([release] if command == "template" else []), CHART,
               *flags, "--kube-version", "1.36.3")


def charted(*settings, release="sluice"):
    """The objects of the chart with these settings: KEY=JSON."""
    return documents(helm("template", *settings, release=release))


def named(objects):
    """Objects by kind and name, each once."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects), "two objects have one name"
    return found


def pods(objects):
    """What the pods of the Deployments are made from, by the name of the Deployment."""
    return {one["metadata"]["name"]: one["spec"]["template"] for one in objects if one["kind"] == "Deployment"}


def container(objects, deployment, name):
    template = pods(objects)[deployment]
    return next(one for one in template["spec"]["containers"] if one["name"] == name)

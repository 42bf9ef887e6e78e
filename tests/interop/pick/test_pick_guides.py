"""The configuration of every guide of llm-d, and every sample of llm-d-router: accepted, with nothing ignored that would
change a choice, and a pick is made; or refused, with a sentence for each plugin that is missing."""
import os
import re

import pytest
import yaml

from lib.server import run

FOLDER = os.path.join(os.path.dirname(__file__), "llm_d")
ROLES = ("decode", "prefill", "encode", "decode", "prefill", "encode")
# As the charts pass them, beside the pool's name, which needs a cluster.
FLAGS = ("--zap-encoder", "json", "--grpc-health-port", "9003", "--v=2", "--tracing=false",
         "--metrics-endpoint-auth=false", "--allow-experimental-plugins=true")

# What is refused: plugins, and values of parameters.
NOT_PREDICTED = "latencies are not predicted"
NO_EVENTS = "the blocks that engines report are not read"
ONE_CLUSTER = "a pool is of one cluster"
REFUSED = {
    "predicted-latency-producer": NOT_PREDICTED,
    "slo-headroom-tier-filter": NOT_PREDICTED,
    "latency-slo-admitter": NOT_PREDICTED,
    "latency-scorer": NOT_PREDICTED,
    "latency-observer-producer-hub": NOT_PREDICTED,
    "latency-observation-scorer-hub": NOT_PREDICTED,
    "precise-prefix-cache-producer": NO_EVENTS,
    "precise-prefix-cache-scorer": NO_EVENTS,
    "endpoint-notification-source": NO_EVENTS,
    "lmetric-scorer": "an experiment of upstream's",
    "multicluster-file-discovery": ONE_CLUSTER,
    "multicluster-metrics-data-source": ONE_CLUSTER,
    "multicluster-metrics-extractor": ONE_CLUSTER,
    "multicluster-kv-cache-utilization-scorer": ONE_CLUSTER,
    "multicluster-queue-scorer": ONE_CLUSTER,
}
# What notes may say: none of it is a setting that upstream would choose otherwise by.
NOTED = ("thresholds need `metrics`",
         "the scorers of affinities weigh as much as those of load", "upstream has never used it",
         "loads are scraped as `metrics` configures")


def role_of(address):
    return ROLES[int(address.rpartition(".")[2]) - 1] if address != "10.0.0.9" else "decode"


def configurations():
    found = []
    for kind in ("guides", "router"):
        with open(os.path.join(FOLDER, f"{kind}.yaml"), encoding="utf-8") as file:
            found += [pytest.param(config, id=f"{kind}-{name}") for name, config in yaml.safe_load(file).items()]
    assert len(found) == 93
    return found


def reasons(config):
    """The sentences with which it is refused. `maxTokensInFlightPenalty` is of a draft that was never merged."""
    found = {REFUSED[plugin["type"]] for plugin in config["plugins"] if plugin["type"] in REFUSED}
    for plugin in config["plugins"]:
        values = plugin.get("parameters") or {}
        if plugin["type"] == "token-producer" and ("vllm" in values or "udsTokenizerConfig" in values):
            found.add("prompts are not sent to an engine for their tokens")
        if "cacheSizeInMB" in values:  # a name that upstream does not know, either
            found.add('cacheSizeInMB"; did you mean "cacheSizeInMBPerServer"?')
        if "maxTokensInFlightPenalty" in values:
            found.add('unknown field "plugins[3].parameters.maxTokensInFlightPenalty"')
    return found


def text_of(config, folder):
    endpoints = folder / "endpoints.yaml"
    endpoints.write_text("endpoints: [{name: f, address: 10.0.0.9, port: '8000'}]\n")
    for plugin in config["plugins"]:
        if plugin["type"] == "file-discovery":
            plugin["parameters"]["path"] = str(endpoints)
    scope = {}
    for plugin in config["plugins"]:
        if plugin["type"] == "disaggregatedset-rollout-screener":
            name, _, value = plugin["parameters"]["scope"]["labelSelector"].partition("=")
            scope = {name: value, "disaggregatedset.x-k8s.io/revision": "a"}
    own = {"endpoints": [{"address": f"10.0.0.{i}:8000", "labels": {
        "llm-d.ai/role": role, "disaggregatedset.x-k8s.io/role": role, **scope}} for i, role in enumerate(ROLES, 1)]}
    return yaml.safe_dump(config, sort_keys=False) + "---\n" + yaml.safe_dump(own)


@pytest.mark.parametrize("config", configurations())
def test_llm_d_configuration(config, tmp_path):
    why, text = reasons(config), text_of(config, tmp_path)
    done = run("pick", "--config-text", text, *FLAGS, "--check")
    if why:
        assert done.returncode == 1, done.stdout
        assert all(any(one in line for line in done.stderr.splitlines()) for one in why), done.stderr
        return
    assert done.returncode == 0, done.stderr
    _, _, notes = done.stdout.partition("\nnotes ")
    notes = [line for line in notes.splitlines() if line.strip() and not line[0].isalpha()]
    assert all(any(said in line for said in NOTED) for line in notes), notes
    done = run("pick", "--config-text", text, *FLAGS, "--explain", "--path", "/v1/chat/completions", "--model", "m",
               "--prompt", "a prompt")
    assert done.returncode == 0, done
    if "one of the 6, chosen by random-picker" in done.stdout:
        return
    outcomes = re.findall(r"^(?:outcome +(10\.0\.0\.\d):8000|(prefill|encode) )", done.stdout, re.M)
    assert outcomes and outcomes[0][0], done.stdout
    for (_, stage), (address, _) in zip(outcomes, outcomes[1:]):
        assert not stage or not address or role_of(address) == stage, done.stdout
    filters = {plugin["type"] for plugin in config["plugins"]}
    assert "decode-filter" not in filters or role_of(outcomes[0][0]) == "decode", done.stdout

"""deploy/kubernetes/autoscaling and autoscaling-keda: a real Prometheus scrapes two servers of ten models, of which one
is overloaded, and evaluates the recording rules and the queries that autoscalers ask. The number of servers that
follows from them grows."""
import contextlib
import json
import math
import os
import subprocess
import time
import urllib.parse

import pytest
import yaml

from lib import http1, ports
from lib.load import Load
from lib.repository import FREE, Identity
from lib.server import ROOT

FOLDER = os.path.join(ROOT, "deploy", "kubernetes")
PROGRAM = os.path.join(ROOT, ".deps", "sysroot", "usr", "bin", "prometheus")
BUSY, IDLE = "m4", [f"m{i}" for i in range(10) if i != 4]
BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]})


def manifest(*path):
    with open(os.path.join(FOLDER, *path), encoding="utf-8") as file:
        return yaml.safe_load(file)


class Prometheus:
    """Of the servers' metrics, each with the labels that the operator would add, and of the rules."""

    def __init__(self, folder, addresses, groups):
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yml"],
                  "scrape_configs": [{"job_name": "sluice", "static_configs": [
                      {"targets": [address], "labels": {"namespace": "models", "pod": f"sluice-serve-{i}"}}
                      for i, address in enumerate(addresses)]}]}
        for name, document in (("rules.yml", {"groups": groups}), ("prometheus.yml", config)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                yaml.safe_dump(document, file)
        self.address = f"127.0.0.1:{ports.free_port()}"
        with open(os.path.join(folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={self.address}"], stdout=log, stderr=log)

    def query(self, expression):
        """Returns: (labels, value) of each series; none while it starts."""
        try:
            answer = http1.request(self.address, "GET", "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        except (OSError, http1.Closed):
            return []
        if answer.status == 503:
            return []
        assert answer.status == 200, answer.body
        return [(one["metric"], float(one["value"][1])) for one in json.loads(answer.body)["data"]["result"]]

    def wait_until(self, expression, fits):
        """Returns: the values of an expression that has at most one series for each model, by model ("": without)."""
        end = time.monotonic() + http1.PATIENCE
        while True:
            assert self.process.poll() is None, "it has ended"
            found = {labels.get("model", ""): value for labels, value in self.query(expression)}
            if found and fits(found):
                return found
            assert time.monotonic() < end, (expression, found)
            time.sleep(0.2)


@contextlib.contextmanager
def running_prometheus(*args):
    prometheus = Prometheus(*args)
    try:
        yield prometheus
    finally:
        prometheus.process.kill()
        prometheus.process.wait()


@pytest.fixture
def addresses(start_server, tmp_path):
    """Of two servers, with ten models each: (HTTP, metrics)."""
    for name in (BUSY, *IDLE):
        Identity(name, [("FP32", FREE)], parameters={"delay_us": 50000}).write(tmp_path / "models")
    servers = [start_server("--model-repository", tmp_path / "models", metrics_at="127.0.0.1:0") for _ in range(2)]
    return [(one.address, one.metrics_address) for one in servers]


def wanted_replicas(average, target, now=2):
    """As a HorizontalPodAutoscaler calculates it, with its tolerance."""
    return now if abs(average / target - 1) <= 0.1 else math.ceil(now * average / target)


def test_autoscaling_sees_one_busy_model_of_ten(addresses, tmp_path):
    rules = manifest("autoscaling", "recording-rules.yaml")["spec"]["groups"]
    pods = {metric["pods"]["metric"]["name"]: metric["pods"]["target"]["averageValue"] for metric in
            manifest("autoscaling", "horizontal-pod-autoscaler.yaml")["spec"]["metrics"]}
    triggers = manifest("autoscaling-keda", "scaled-object.yaml")["spec"]["triggers"]
    with contextlib.ExitStack() as stack:
        prometheus = stack.enter_context(running_prometheus(tmp_path, [one for _, one in addresses], rules))
        idle = prometheus.wait_until("namespace_model:sluice_model_utilization_ratio:avg", lambda now: len(now) == 10)
        assert set(idle.values()) == {0.0}
        for address, _ in addresses:
            stack.enter_context(Load(address, 6, "POST", f"/v2/models/{BUSY}/infer", BODY))
        busy = prometheus.wait_until("namespace_model:sluice_model_utilization_ratio:avg", lambda now: now[BUSY] > 0.8)
        assert all(busy[name] == 0 for name in IDLE)
        waits = prometheus.wait_until("namespace_model:sluice_model_queue_time_seconds:max",
                                      lambda now: now[BUSY] > 0.15)
        assert all(waits[name] == 0 for name in IDLE)
        prometheus.wait_until("namespace:sluice_utilization_ratio:avg", lambda now: now[""] > 0.8)
        prometheus.wait_until("namespace:sluice_queue_time_seconds:max", lambda now: now[""] > 0.15)
        # What the autoscaler takes of the pods, and what KEDA asks: more servers, by either metric.
        assert set(pods) == {"sluice_utilization_ratio", "sluice_queue_time_seconds"}
        for name, target in pods.items():
            target = float(target.removesuffix("m")) / 1000
            prometheus.wait_until(f"avg({name})", lambda now, target=target: wanted_replicas(now[""], target) > 2)
        assert len(triggers) == 2
        for trigger in triggers:
            query, threshold = trigger["metadata"]["query"], float(trigger["metadata"]["threshold"])
            prometheus.wait_until(query, lambda now, threshold=threshold: wanted_replicas(now[""] / 2, threshold) > 2)

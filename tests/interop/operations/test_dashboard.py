"""deploy/grafana/sluice.json and the alerts of docs/how-to/prometheus-grafana.md name only metrics that exist:
docs/observability.md lists them, which test_metrics.py compares with the servers."""
import json
import os
import re

from lib import server

METRIC = re.compile(r"\b(?:sluice|nv)_[a-z0-9_]+")


def text_of(path):
    with open(os.path.join(server.ROOT, path), encoding="utf-8") as file:
        return file.read()


def unknown(expressions):
    documented = set(METRIC.findall(text_of("docs/observability.md")))
    used = {re.sub(r"_bucket$", "", name) for expression in expressions for name in METRIC.findall(expression)}
    assert used
    return used - documented


def test_dashboard_metrics_exist():
    dashboard = json.loads(text_of("deploy/grafana/sluice.json"))
    graphs = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert not unknown(target["expr"] for panel in graphs for target in panel["targets"])


def test_alert_metrics_exist():
    assert not unknown(re.findall(r"^ +expr: (.*)$", text_of("docs/how-to/prometheus-grafana.md"), re.M))

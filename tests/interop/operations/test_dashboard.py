"""deploy/grafana/sluice.json and the alerts of docs/how-to/prometheus-grafana.md: each expression is PromQL, and a
live server or picker has the series and the labels that it names. The dashboard has what Grafana's import wants."""
import json
import os
import re
import subprocess
import sys

import promql_parser
import pytest
import yaml

from lib import http1, metrics, server
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy

PAGE = ('vllm:num_requests_running{model_name="m"} 1\nvllm:num_requests_waiting{model_name="m"} 2\n'
        'vllm:kv_cache_usage_perc{model_name="m"} 0.5\n')
BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [0] * 4}]}).encode()
OF_SCRAPE = {"instance", "job"}  # labels that Prometheus adds
LABEL = re.compile(r'([a-zA-Z_]\w*)="')


def text_of(path):
    with open(os.path.join(server.ROOT, path), encoding="utf-8") as file:
        return file.read()


def dashboard_panels():
    dashboard = json.loads(text_of("deploy/grafana/sluice.json"))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    return dashboard, [panel for panel in dashboard["panels"] if panel["type"] != "row"]


COLUMNS = 24  # of Grafana's grid
UNITS = {"short", "s", "bytes", "reqps", "percentunit"}  # those of Grafana's list that we use
BUILT_IN = {"__rate_interval"}


def test_dashboard_fits_the_import():
    """It has a uid of its own and no id, which is a number in one Grafana's database; panels are beside and below each
    other, in the rows that come before them."""
    dashboard, _ = dashboard_panels()
    assert dashboard["uid"] and dashboard["title"] and "id" not in dashboard and "__inputs" not in dashboard
    assert dashboard["schemaVersion"] >= 36  # data sources are objects from there on
    taken = {}
    for panel in dashboard["panels"]:
        at, title = panel["gridPos"], panel["title"]
        assert title and at["w"] > 0 and at["h"] > 0 and 0 <= at["x"] <= COLUMNS - at["w"], title
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(cell, title) == title, (title, taken[cell])
    rows = [(panel["gridPos"]["y"], panel["type"]) for panel in dashboard["panels"]]
    assert rows == sorted(rows, key=lambda row: row[0]) and rows[0] == (0, "row")
    heights = {y for _, y in taken}
    assert heights == set(range(max(heights) + 1))  # Grafana would move panels up


def test_dashboard_panels_ask_the_chosen_source():
    """A panel's variables are the dashboard's or Grafana's own, and its source is the one that is chosen above."""
    dashboard, panels = dashboard_panels()
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(variable["datasource"] == source for variable in variables.values() if variable["type"] == "query")
    for panel in panels:
        assert panel["type"] == "timeseries" and panel["datasource"] == source, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS and panel["fieldConfig"]["overrides"] == []
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(set(references)) == len(references), panel["title"]
        for target in panel["targets"]:
            assert target["datasource"] == source and target["legendFormat"], panel["title"]
            assert set(re.findall(r"\$\{?(\w+)", target["expr"])) <= set(variables) | BUILT_IN, panel["title"]


def test_dashboard_is_the_one_that_is_drawn(tmp_path):
    """tools/draw-dashboard writes the file that is here."""
    drawn = tmp_path / "sluice.json"
    subprocess.run([sys.executable, os.path.join(server.ROOT, "tools", "draw-dashboard"), drawn], check=True)
    assert drawn.read_text(encoding="utf-8") == text_of("deploy/grafana/sluice.json")


def expressions():
    """(where, PromQL) of the dashboard, with Grafana's variables replaced as Grafana does, and of the alerts."""
    dashboard, panels = dashboard_panels()
    for panel in panels:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            yield panel["title"], text
    for variable in dashboard["templating"]["list"]:
        if found := re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]):
            yield f"${variable['name']}", f"sum by ({found[2]}) ({found[1]})"
    for group in yaml.safe_load(re.search(r"^```yaml\n(groups:.*?)^```", text_of("docs/how-to/prometheus-grafana.md"),
                                          re.M | re.S)[1])["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def selectors(node, labels=frozenset()):
    """(name, matchers, labels that are grouped by) of each series in an expression."""
    kind = type(node).__name__
    if kind == "VectorSelector":
        yield node.name, re.findall(r'(\w+)(?:=|=~|!=|!~)"', str(node.matchers)), labels
    elif kind == "MatrixSelector":
        yield from selectors(node.vector_selector, labels)
    elif kind == "AggregateExpr":
        by = node.modifier.labels if node.modifier else []
        yield from selectors(node.expr, labels | set(by))
    elif kind == "BinaryExpr":
        yield from selectors(node.lhs, labels)
        yield from selectors(node.rhs, labels)
    elif kind == "Call":
        for argument in node.args:
            yield from selectors(argument, labels)
    else:
        assert kind in ("NumberLiteral", "StringLiteral"), kind


def add_series(address, out):
    for series in metrics.read(address):
        name, _, labels = series.partition("{")
        out.setdefault(name, set()).update(LABEL.findall(labels))


@pytest.fixture
def live(start_server, start_picker, repositories):
    """The series of a server that has answered and refused, and of a picker that has picked and refused."""
    serving = start_server("--model-repository", repositories("default"), metrics_at="127.0.0.1:0")
    assert http1.request(serving.address, "POST", "/v2/models/id_batch/infer", BODY).status == 200
    assert http1.request(serving.address, "POST", "/v2/models/id_strings/infer", BODY).status == 400
    series = {}
    with MetricPages(PAGE) as pages:
        picker = start_picker(f"endpoints: [{pages.address}]\nmetrics: {{preset: vllm, port: {pages.port}}}\n"
                              "unknown_models: refuse\nmodels: [m]\n")
        with Proxy(picker.grpc_address) as proxy:
            proxy.ask("/v2/models/m/infer")
            proxy.ask("/v2/models/other/infer")
        picker.wait_until(lambda now: any(name.startswith("sluice_pick_endpoint_kv_cache_used{") for name in now),
                          "a load")
        add_series(picker.metrics_address, series)
    add_series(serving.metrics_address, series)
    return series


def test_expressions_name_live_series(live):
    for where, text in expressions():
        for name, matched, labels in selectors(promql_parser.parse(text)):
            assert name in live, (where, name)
            has = live[name] | OF_SCRAPE
            assert labels <= has and set(matched) <= has, (where, name, sorted(labels), sorted(has))


def test_dashboard_legends_are_labels():
    """A legend names a label that its expression keeps."""
    for panel in dashboard_panels()[1]:
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
                by = re.findall(r"by \(([\w, ]+)\)", target["expr"])
                assert not by or any(label in names.split(", ") for names in by), (panel["title"], label)

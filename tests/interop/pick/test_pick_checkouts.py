"""tests/llm_d/check_guides.py on a made-up checkout: each place where a configuration may be is found, with its flags, and
a refusal that is not expected fails the run."""
import os
import subprocess
import sys

import pytest

from lib import server

PROGRAM = os.path.join(server.ROOT, "tests", "llm_d", "check_guides.py")
PLAIN = """apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
"""
REFUSED = PLAIN + "- type: predicted-latency-producer\n"
BROKEN = PLAIN + "- {type: queue-scorer, name: second, parameters: {speed: 3}}\n"


def indented(text, n):
    return "".join(" " * n + line + "\n" for line in text.splitlines())


FILES = {
    "deploy/plain.yaml": PLAIN,
    "guides/one/router.values.yaml": "router:\n  epp:\n    flags: {v: 2, tracing: false}\n    pluginsCustomConfig:\n"
                                     "      a.yaml: |\n" + indented(PLAIN, 8) + "      b.yaml: |\n" + indented(REFUSED, 8),
    "guides/two/objects.yaml": "kind: ConfigMap\ndata:\n  c.yaml: |\n" + indented(PLAIN, 4) + "---\nkind: Deployment\n"
                               "spec: {template: {spec: {containers: [{args: [--config-file, /c.yaml, --pool-name, p, "
                               "--v=4, --zap-encoder, json]}]}}}\n",
    "charts/templates/d.yaml": "{{- if .Values.x }}\n" + PLAIN + "{{- end }}\n",
    "test/testdata/e.yaml": BROKEN,
    "notes.md": PLAIN,
    "other.yaml": "kind: Service\n",
}


def check(folder, files, *more):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run([sys.executable, PROGRAM, str(folder), *more], text=True, capture_output=True, check=False,
                          env=os.environ | {"SLUICE_BUILD": server.build()})
    return done.returncode, done.stdout + done.stderr


def test_checkout_with_expected_results_passes(tmp_path):
    code, said = check(tmp_path, FILES)
    assert code == 0, said
    assert "deploy/plain.yaml [0]: accepted\n" in said
    assert "router.values.yaml [0.router.epp.pluginsCustomConfig.a.yaml]: accepted\n" in said
    assert "router.values.yaml [0.router.epp.pluginsCustomConfig.b.yaml]: refused\n" in said
    assert 'plugins[1].type: "predicted-latency-producer" is not supported: latencies are not predicted' in said
    assert "objects.yaml [0.data.c.yaml]: accepted\n" in said
    assert said.endswith("4 configurations, 0 unexpected results, 1 templates\n"), said


@pytest.mark.parametrize("files,sentence", [
    ({"a.yaml": BROKEN}, 'unknown field "plugins[1].parameters.speed"'),
    ({"a.yaml": PLAIN.replace("plugins:\n", "").replace("- type: queue-scorer\n", "plugins: 3\n")}, "plugins"),
    ({"values.yaml": "epp: {flags: {no-such-flag: 1}}\nconfig: |\n" + indented(PLAIN, 2)}, "no-such-flag"),
    ({"objects.yaml": "args: [--config-text, x, --no-such-flag, '1']\nconfig: |\n" + indented(PLAIN, 2)}, "no-such-flag"),
], ids=["parameter", "no-list", "flag-of-values", "flag-of-container"])
def test_checkout_with_unexpected_refusal_fails(tmp_path, files, sentence):
    code, said = check(tmp_path, files)
    assert code == 1 and "REFUSED" in said and sentence in said, said


def test_checkout_without_configurations_fails(tmp_path):
    assert check(tmp_path, {"a.yaml": "kind: Service\n"})[0] == 1

"""The page of each plugin: its example is a valid configuration, and its table names the parameters."""
import glob
import os
import re

import pytest

from lib.server import ROOT, run

PAGES = sorted(glob.glob(os.path.join(ROOT, "src/pick/pool/plugins/*/README.md")))


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def check(example, folder):
    config = folder / "pool.yaml"
    config.write_text("endpoints: [10.0.0.1:8000]\n" + example)
    done = run("pick", "--config", config, "--check")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=[page.split(os.sep)[-2] for page in PAGES])
def test_plugin_page(page, tmp_path):
    text, name = text_of(page), page.split(os.sep)[-2]
    code = text_of(os.path.join(os.path.dirname(page), "plugin.c"))
    assert text.startswith(f"# {name}\n")
    if "SESSION_PARAMETERS" in code:
        code = text_of(os.path.join(ROOT, "src/pick/pool/profile/session_token.c"))
    table = re.search(r"PARAMETERS\[\] = \{(.*?)\{0\}\};", code, re.S)
    parameters = set() if table is None else set(re.findall(r'\{"(\w+)",', table[1]))
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.M)) == parameters
    if not parameters:
        assert "**Parameters.** None." in text
        return
    example = re.search(r"^```yaml\n(.*?)^```", text, re.M | re.S)[1]
    assert f"type: {name}\n" in example
    assert name in check(example, tmp_path)


def test_profile_page(tmp_path):
    text = text_of(os.path.join(ROOT, "docs/picker/profiles.md"))
    assert "prompt" in check(re.search(r"^```yaml\n(.*?)^```", text, re.M | re.S)[1], tmp_path)
    assert set(re.findall(r"plugins/([\w-]+)/README.md\) \| ", text)) == {page.split(os.sep)[-2] for page in PAGES}

"""What README.md, the tutorial, the how-to pages and a few more tell a reader to type, in their order, with the ports
they name. tests/lib/page_commands.py has the rules."""
import glob
import json
import os
import re
import subprocess
import sys

import pytest

from lib import http1, page_commands, server

pytestmark = pytest.mark.programs

PAGES = ["README.md", "bench/README.md", "docs/install.md", "docs/bench.md", "docs/command-line.md",
         "examples/python/README.md", *sorted(glob.glob("docs/tutorial.md", root_dir=server.ROOT)
                                              + glob.glob("docs/how-to/*.md", root_dir=server.ROOT))]
NAMESPACES = (["unshare", "--net"], ["unshare", "--map-root-user", "--net"])


@pytest.fixture(scope="module")
def demo():
    """Makes build/demo/digits.onnx, as the first command of README does."""
    done = subprocess.run([os.path.join(server.ROOT, "tools", "demo")], text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | {"SLUICE_BUILD": server.build()}, timeout=10 * http1.PATIENCE)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_demo_prints_forms_and_accuracy(demo):
    for title in ("JSON", "Binary tensor data", "Raw binary"):
        assert re.search(rf"^{title}  ", demo, re.MULTILINE), demo
    assert float(re.search(r"of 450 right \(([0-9.]+)%\)", demo)[1]) >= 95, demo
    assert "\x1b" not in demo  # not a terminal
    # lines with a path are as long as the path; a busy machine may have the server log a warning
    lines = [line for line in demo.splitlines() if server.build() not in line and " WARNING " not in line]
    assert max(map(len, lines)) <= 80


def test_site_has_a_folder_for_each_version(tmp_path):
    """The newest release is what a visitor gets; `dev` is last."""
    site, pages = tmp_path / "site", tmp_path / "pages"
    for version in ("0.9.0", "0.10.0", "dev", "0.10.0"):
        site.mkdir(exist_ok=True)
        (site / "index.html").write_text(version)
        pages.mkdir(exist_ok=True)
        subprocess.run([sys.executable, os.path.join(server.ROOT, "tools", "site-versions"), pages, site, version], check=True)
    listed = [row["version"] for row in json.loads((pages / "versions.json").read_text())]
    assert listed == ["0.10.0", "0.9.0", "dev"]
    assert [(pages / version / "index.html").read_text() for version in listed] == listed
    assert 'url=0.10.0/"' in (pages / "index.html").read_text()
    assert (pages / ".nojekyll").read_text() == ""


@pytest.mark.parametrize("page", PAGES)
def test_page_commands_work(demo, page, tmp_path):
    assert demo
    namespace = next(prefix for prefix in NAMESPACES
                     if subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0)
    done = subprocess.run([*namespace, sys.executable, "-m", "lib.page_commands", os.path.join(server.ROOT, page),
                           server.build(), str(tmp_path)], cwd=os.path.join(server.ROOT, "tests"), text=True,
                          check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=20 * http1.PATIENCE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_page_blocks_are_run_or_say_why_not(page):
    """A block without a language would be run by nothing; one that is not run names what covers it, or why
    nothing here can."""
    for block in page_commands.blocks_of(os.path.join(server.ROOT, page)):
        assert block.kind, f"{block.place}: a block without a language"
        if block.not_run:
            names = re.findall(r"(?:tools|tests|bench)/[\w./-]+", block.not_run)
            assert names, f"{block.place}: name the test that covers it"
            for name in names:
                assert os.path.exists(os.path.join(server.ROOT, name)), f"{block.place}: {name} does not exist"

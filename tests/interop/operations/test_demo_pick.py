"""`make demo-pick` without the make: it ends by itself, has served every form, lost nothing after the picker
knew, and fits a terminal of 100 columns."""
import os
import re
import subprocess

import pytest

from lib import http1, server

pytestmark = pytest.mark.programs

FORMS = ("KServe JSON", "KServe binary tensors", "KServe raw binary", "KServe gRPC")


def test_demo_pick_runs_to_end():
    done = subprocess.run([os.path.join(server.ROOT, "tools", "demo"), "pick"], text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | {"SLUICE_BUILD": server.build()},
                          timeout=10 * http1.PATIENCE)
    assert done.returncode == 0, done.stdout
    for form in FORMS:
        assert re.search(rf"^ +{form} .* 127\.0\.0\.[123]:\d+ +it is \d", done.stdout, re.M), done.stdout
    assert done.stdout.count('404: no model is called "gpt"') == 2
    assert "none after it." in done.stdout and "when all had ended: 0." in done.stdout
    shown = done.stdout.replace(server.build(), "build")  # wherever that is
    assert max(map(len, shown.splitlines())) <= 100

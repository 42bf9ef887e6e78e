"""bench/kube runs and prints its table, with few pods and for a short time."""
import os
import re
import subprocess
import sys

from lib import http1, server


def test_bench_kube_prints_a_row_for_each_size():
    done = subprocess.run([sys.executable, os.path.join(server.ROOT, "bench", "kube")], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=10 * http1.PATIENCE,
                          env=os.environ | {"SLUICE_BUILD": server.build(), "BENCH_SECONDS": "0.1", "BENCH_PODS": "5,20"})
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert re.findall(r"^ +(\d+) +\d+\.\d", done.stdout, re.M) == ["5", "20"], done.stdout

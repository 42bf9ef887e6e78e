"""bench/peers prints its table beside the wheel's Triton. tests/interop/operations/test_bench_programs.py has the rest."""
import os
import subprocess
import sys

from lib import http1, server
from lib.tables import number, table_of
from lib.triton import TRITON



def peers(*arguments):
    """The rows of the table: {title: columns}."""
    done = subprocess.run([sys.executable, os.path.join(server.ROOT, "bench", "peers"), *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=10 * http1.PATIENCE,
                          env=os.environ | {"SLUICE_BUILD": server.build(), "BENCH_SECONDS": "1"})
    assert done.returncode == 0, (done.stdout, done.stderr)
    return table_of(done.stdout)


def test_table_beside_triton():
    rows = peers("serve", TRITON, "--python-env", os.path.join(server.ROOT, ".deps", "venv"))
    assert rows.pop("requests a second") == ["Triton", "Sluice", "ratio"]
    titles = {"HTTP, binary tensors, FP32 [1,16], 32 connections", "HTTP, JSON, FP32 [1,16], 32 connections",
              "HTTP, 4 MB each way, 1 connection", "gRPC, FP32 [1,16], 32 calls",
              "Python, FP32 [16], 1 connection, HTTP", "Python, FP32 [1,16] in batches, 32 calls, gRPC",
              "Python, 4 MB each way, 1 call, gRPC", "Python, 100 responses a request, 8 streams, gRPC",
              "Python, two calls of another model, 8 connections, HTTP",
              "resident memory with these models loaded, idle"}  # and those of the README that this Triton has backends for
    assert titles <= set(rows)
    assert all(number(theirs) > 0 and number(ours) > 0 for theirs, ours, _ in rows.values()), rows

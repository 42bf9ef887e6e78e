"""The programs of bench/ run and print their tables, with the inputs that README.md and bench/README.md name and times that
are short. What a figure is depends on the machine; that there is one does not."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from lib import http1, repository, server
from lib.tables import number, table_of

pytestmark = pytest.mark.programs

PARTS = ("health", "infer", "large", "json", "models", "mlp", "backends", "ensemble", "scrape", "mip", "grpc", "tls", "pick",
         "pick_idle", "clients")
ROW = re.compile(r"^(?P<what>\S.*?) +(?:-|<?=?[\d.]+) +(?P<ratio>inf|[\d.]+) +(?:inf|[\d.]+) +(?:inf|[\d.]+)\b", re.M)

# Triton's command line, for a folder that looks like one of Triton's.
STAND_IN = """#!{python}
import os, re, sys
flags = [re.fullmatch("--([a-z-]+)=(.*)", word).groups() for word in sys.argv[1:]]
value = dict(flags)
models = [word for name, path in flags if name == "model-repository" for word in ("--model-repository", path)]
os.execv({sluice!r}, ["sluice", "serve", *models, "--http", "127.0.0.1:" + value["http-port"],
                      "--grpc", "127.0.0.1:" + value["grpc-port"], "--metrics", "none", "--workers", "1"])
"""


@pytest.fixture(scope="module")
def programs():
    """The load generators and the floors, which are built on demand."""
    subprocess.run(["ninja", "-C", server.build(), "--quiet", "bench_programs"], check=True)


def run(program, *arguments, python=sys.executable, may_report="", **environment):
    """Returns: what it prints. bench/ runs as it does for a user, with the Python that its first line names. `may_report`:
    a failure with that text is none here."""
    words = [os.path.join(server.ROOT, "bench", program), *map(str, arguments)]
    done = subprocess.run([python, *words] if python else words, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=20 * http1.PATIENCE,
                          env=os.environ | {"SLUICE_BUILD": server.build(), "BENCH_SECONDS": "0.3", "BENCH_ROUNDS": "1"} | environment)
    reported = may_report and may_report in done.stderr
    assert done.returncode == 0 or reported, (done.stdout, done.stderr)
    return done.stdout


# ---- make bench ----------------------------------------------------------------------------------

@pytest.mark.parametrize("part", PARTS)
def test_part_of_make_bench_prints_rows(programs, part):
    seconds = 2 if part in ("grpc", "tls", "large") else 0.3  # messages of up to 64 MB, on a busy machine
    text = run("run", python="/usr/bin/python3", BENCH_ONLY=part, BENCH_SECONDS=str(seconds))
    rows = re.findall(r"^\d+ endpoints, \d+ pages", text, re.M) if part == "pick_idle" else ROW.findall(text)
    assert rows, text


def test_all_parts_are_run():
    with open(os.path.join(server.ROOT, "bench", "run"), encoding="utf-8") as file:
        names = re.search(r"^PARTS = \{(.*?)\}", file.read(), re.M | re.S)[1]
    assert tuple(re.findall(r'"(\w+)":', names)) == PARTS


def test_envoy_prints_each_file(programs):
    text = run("envoy", python="/usr/bin/python3")
    tables = {title.split(",")[0]: rows for title, rows in re.findall(r"^(\d[^\n]*)\n((?:.+\n)+)", text, re.M)}
    everywhere = {"headers-only", "in-process"}
    by_body = everywhere | {"no picker", "module: nothing", "model-in-body", "buffered", "full-duplex"}
    expected = {"64 bytes each way": by_body, "262144 bytes each way": by_body, "1": everywhere, "2": everywhere}
    assert tables.keys() == expected.keys(), text
    for title, names in expected.items():
        rows = set(re.findall(r"^(\S.*?)  +\d+ +\d+ +[+-]\d+", tables[title], re.M))
        assert names <= rows, (title, text)


def test_gateway_prints_sides_that_are_there(programs, tmp_path):
    text = run("gateway", BENCH_ROUTERS=str(tmp_path))
    for name in ("Envoy alone", "sluice gateway"):
        assert len(re.findall(rf"^{name} +[1-9]\d* +\d", text, re.M)) == 2, text
    assert "smg: smg is not in BENCH_ROUTERS or PATH" in text


def test_compare_prints_ratios(programs):
    text = run("compare", server.build(), server.build(), python="/usr/bin/python3")
    assert {"binary, 32 connections", "ModelInfer, 32 streams", "picks of 3, 32 streams"} <= {
        line.split("  ")[0] for line in text.splitlines()}, text


def test_instructions_counts_the_named_figure(programs):
    """What it is depends on the compiler, and a little on the time that the server runs."""
    text = run("instructions", "health_ready", "choice_default_3", python="/usr/bin/python3",
               may_report="more than 5 % over bench/instructions.json")
    assert len(re.findall(r"^(?:health_ready|choice_default_3) +\d{4,}", text, re.M)) == 2, text


def test_pool_wait_prints_times(programs):
    """The command of bench/README.md."""
    subprocess.run(["ninja", "-C", server.build(), "--quiet", "bench_pool_wait"], check=True)
    text = subprocess.check_output([os.path.join(server.build(), "bench", "pool_wait"), "1000", "1500", "100"], text=True)
    assert re.search(r'"tick_us": [\d.]+', text), text


# ---- bench/peers ---------------------------------------------------------------------------------

@pytest.fixture
def triton(tmp_path):
    """A folder with bin/tritonserver and the backends identity and onnxruntime, as those of NVIDIA's images."""
    for name in ("identity", "onnxruntime"):
        (tmp_path / "triton" / "backends" / name).mkdir(parents=True)
    program = tmp_path / "triton" / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable, sluice=server.binary()))
    program.chmod(0o755)
    return tmp_path / "triton"


def test_peers_serve_prints_the_rows_of_the_readme(programs, triton, tmp_path):
    """With the system's Python, as a user starts it, and with a repository of one's own."""
    made, mine = tmp_path / "made", tmp_path / "models"
    repository.write_onnx_only(made)
    shutil.copytree(made / "mlp", mine / "mine")
    rows = table_of(run("peers", "serve", triton, "--models", mine, python="/usr/bin/python3"))
    assert rows.pop("requests a second") == ["Triton", "Sluice", "ratio"]
    with open(os.path.join(server.ROOT, "README.md"), encoding="utf-8") as file:
        readme = table_of(file.read())
    documented = {title for title in readme if re.match(r"HTTP, (binary|JSON|4 MB)|gRPC, FP32|MLP|CNN", title)}
    assert len(documented) == 6 and documented <= set(rows), (documented, rows)
    assert {"mine, HTTP, 1 connections", "mine, HTTP, 32 connections"} <= set(rows), rows
    for theirs, ours, _ in rows.values():
        assert number(theirs) >= 0 and number(ours) >= 0, rows


def test_peers_serve_without_the_packages_names_the_command(programs, triton, tmp_path):
    copy = tmp_path / "clone"
    shutil.copytree(os.path.join(server.ROOT, "bench"), copy / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(["/usr/bin/python3", copy / "bench" / "peers", "serve", triton], text=True, capture_output=True,
                          check=False, timeout=http1.PATIENCE, env=os.environ | {"SLUICE_BUILD": server.build()})
    assert done.returncode == 1 and "make tools" in done.stderr, done
    assert "Traceback" not in done.stderr, done.stderr


def test_peers_pick_prints_the_rows(programs, tmp_path):
    other = tmp_path / "picker"
    other.write_text(f"""#!/bin/sh
exec {server.binary()} pick --config-file "$2" --grpc 127.0.0.1:$1 --metrics 127.0.0.1:$3 --pool-name p --secure-serving=false --log-level error
""")
    other.chmod(0o755)
    rows = table_of(run("peers", "pick", "--endpoints", 2, "--kb", 1, "--", other, "{port}", "{config}", "{port2}", python="/usr/bin/python3"))
    assert rows.pop("picks a second (p50; CPU each)") == ["theirs", "sluice pick", "ratio (CPU)"]
    assert {"body of 200 bytes", "prompt of 8 kB", "prompt of 220 kB", "prompt of 1 MB",
            "resident memory after that"} == set(rows)
    for theirs, ours, _ in rows.values():  # in so short a time a busy machine may choose no server for a long prompt
        assert number(theirs) >= 0 and number(ours) >= 0, rows

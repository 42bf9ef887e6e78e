"""`make install`, without the make: what lies under another prefix works from there, and holds all that
the author of a backend needs."""
import os
import re
import shutil
import subprocess

import pytest

from lib import http1, server

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix, moved once more after installing: nothing may depend on where it was."""
    stage = tmp_path_factory.mktemp("stage")
    subprocess.run(["cmake", "--install", server.build(), "--prefix", "/opt/sluice"], check=True,
                   stdout=subprocess.DEVNULL, env=os.environ | {"DESTDIR": str(stage)})
    prefix = stage / "moved"
    shutil.move(stage / "opt" / "sluice", prefix)
    return prefix


def check(installed, *args):
    """Returns: what `sluice serve --check` printed."""
    done = subprocess.run([installed / "bin" / "sluice", "serve", "--check", *args], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=http1.PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert server.build() not in done.stderr, done.stderr
    return done.stdout


def test_it_serves_from_where_it_was_put(installed, repositories):
    assert "onnx_add  ready" in check(installed, repositories("onnx-only"))
    assert "(backend identity)" in check(installed, repositories("default"))


def test_no_binary_looks_into_the_build_folder(installed):
    for path in installed.rglob("*"):
        if path.is_file() and ".so" in path.suffixes or path.name == "sluice" and path.is_file():
            dynamic = subprocess.run(["readelf", "-d", path], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout
            for found in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic):
                assert found.startswith("$ORIGIN"), (path, found)


def test_a_backend_is_made_from_the_installed_header(installed, tmp_path):
    """With the command in the header, which is to say nothing but the compiler."""
    header = (installed / "include" / "sluice" / "backend.h").read_text()
    command = re.search(r"^ \*     (cc .*)$", header, re.MULTILINE)[1]
    command = command.replace("PREFIX", str(installed)).replace("libsluice_my.so",
                                                                "libsluice_gate.so")
    command = command.replace("my.c", os.path.join(HERE, "gate_backend.c"))
    subprocess.run(command.split() + ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"], check=True,
                   cwd=tmp_path)
    (tmp_path / "models" / "gated" / "1").mkdir(parents=True)
    (tmp_path / "models" / "gated" / "config.pbtxt").write_text(
        'backend: "gate" input { name: "IN" data_type: TYPE_FP32 dims: 1 }'
        ' output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
        f' parameters {{ key: "gate" value {{ string_value: "{tmp_path}" }} }}')
    assert "gated  ready" in check(installed, "--backend-dir", tmp_path, tmp_path / "models")


def test_no_header_without_its_library(installed):
    assert {path.name for path in (installed / "include" / "sluice").iterdir()} == {"backend.h",
                                                                                  "types.h"}

"""tools/bootstrap asks before it installs packages into the system, on a terminal; apt-get and dpkg-query here are
stand-ins, of a system that lacks everything."""
import contextlib
import os
import pty
import re
import shutil
import subprocess

import pytest

from lib import http1, server

STUBS = {"dpkg-query": "exit 1", "sudo": 'exec "$@"', "apt-get": 'echo "$*" >>"$RECORD"; exit 100'}


@pytest.fixture
def clone(tmp_path):
    """A folder with bootstrap and its list of versions, and programs in place of the system's."""
    (tmp_path / "tools").mkdir()
    for name in ("bootstrap", "versions"):
        shutil.copy(os.path.join(server.ROOT, "tools", name), tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def bootstrap(clone, stdin, **variables):
    """Returns: what it says, and what apt-get was asked for."""
    record = clone / "record"
    record.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "YES"}
    environment |= {"PATH": f"{clone}/bin:{os.environ['PATH']}", "RECORD": str(record)} | variables
    if isinstance(stdin, bytes):
        ours, theirs = pty.openpty()
        os.write(ours, stdin)
        done = subprocess.run([clone / "tools" / "bootstrap"], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True,
                              check=False, env=environment, timeout=http1.PATIENCE)
        os.close(theirs)
        said = done.stdout
        with contextlib.suppress(OSError):  # EIO: all has been read
            while data := os.read(ours, 1 << 16):
                said += data.decode()
        os.close(ours)
    else:
        done = subprocess.run([clone / "tools" / "bootstrap"], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, env=environment, timeout=http1.PATIENCE)
        said = done.stdout
    assert done.returncode == 1  # no package was installed
    return said, record.read_text().splitlines() if record.exists() else []


@pytest.mark.parametrize("answer", [b"n\n", b"what?\n"])
def test_bootstrap_installs_nothing_without_consent(clone, answer):
    said, asked = bootstrap(clone, answer)
    assert re.search(r"missing packages of the distribution: gcc .*libuv1-dev", said)
    assert re.search(r"Install them, .* by apt-get.*\? \[Y/n\]", said)
    assert asked == [] and "nothing was installed. By hand: apt-get install --no-install-recommends gcc" in said


@pytest.mark.parametrize("stdin, variables", [(b"y\n", {}), (b"\n", {}), (b"", {"YES": "1"}), (subprocess.DEVNULL, {})])
def test_bootstrap_installs_with_consent_or_without_a_terminal(clone, stdin, variables):
    said, asked = bootstrap(clone, stdin, **variables)
    assert asked == ["update -q"] and "'apt-get update' failed" in said
    assert ("[Y/n]" in said) == (stdin not in (b"", subprocess.DEVNULL))

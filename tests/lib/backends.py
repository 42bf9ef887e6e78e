"""Backends of a few lines, written from the public header alone, which are compiled for the tests."""
import os
import shutil
import subprocess

from lib import server


def make(folder, name):
    """A folder of backends with tests/lib/NAME_backend.c in it, and identity. Returns: its path."""
    backends = os.path.join(folder, "backends")
    os.makedirs(backends)
    subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden",
                    "-Wall", "-Wextra", "-Werror", "-I", os.path.join(server.ROOT, "include"),
                    os.path.join(server.ROOT, "tests", "lib", name + "_backend.c"), "-o",
                    os.path.join(backends, f"libsluice_{name}.so")], check=True)
    shutil.copy(os.path.join(server.build(), "backends", "libsluice_identity.so"), backends)
    return backends

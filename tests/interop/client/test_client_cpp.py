"""sluice/client.hpp: compiled with warnings as errors by each compiler, with and without exceptions, and run against
`sluice serve`; and the health programs of examples/client, in C and C++17."""
import os
import re
import subprocess

import pytest

from lib import http1, server
from lib.tls_client import Pki

pytestmark = pytest.mark.plain

MODELS = os.path.join(server.ROOT, "examples", "client", "models")
INCLUDE = os.path.join(server.ROOT, "include")
EXAMPLES = os.path.join(server.ROOT, "examples", "client")
WARNINGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-I", INCLUDE]
HERE = os.path.dirname(os.path.abspath(__file__))


def build(source, folder):
    """Returns: the program, linked with the library under test."""
    compiler = ["g++"]
    if server.is_sanitized():
        with open(os.path.join(server.build(), "CMakeCache.txt"), encoding="utf-8") as cache:
            compiler = ["clang++", "-fsanitize=" + re.search(r"^SLUICE_SANITIZE:\w+=(.*)$", cache.read(), re.MULTILINE)[1]]
    program = folder / "program"
    libraries = os.path.join(server.build(), "lib")
    subprocess.run([*compiler, *WARNINGS, source, "-o", program, "-L", libraries, "-lsluice", f"-Wl,-rpath,{libraries}"],
                   check=True)
    return program


def run(program, *args):
    """Returns: (exit code, standard output, standard error)."""
    done = subprocess.run([program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=2 * http1.PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_wrapper_compiles_without_exceptions(compiler):
    subprocess.run([compiler, *WARNINGS, "-fno-exceptions", "-fsyntax-only", "-x", "c++",
                    "-include", "sluice/client.hpp", os.devnull], check=True)
    with open(os.path.join(INCLUDE, "sluice", "client.hpp"), encoding="utf-8") as file:
        assert len(file.readlines()) <= 400


def test_wrapper(tmp_path, start_server):
    live = start_server("--model-repository", MODELS, grpc=("127.0.0.1:0",))
    program = build(os.path.join(HERE, "wrapper.cc"), tmp_path)
    assert run(program, f"http://{live.address}", f"grpc://{live.grpc_address}") == (0, "", "")
    live.wait_at_rest()


def test_health_with_a_key_over_tls(tmp_path, start_server):
    pki = Pki(tmp_path)
    keys = tmp_path / "keys.yaml"
    keys.write_text("health: [my-own-key]\n")
    live = start_server("--model-repository", MODELS, "--keys", keys, "--http-tls-cert", pki.server_files[0],
                        "--http-tls-key", pki.server_files[1], listen=("http://127.0.0.1:0", "https://127.0.0.1:0"), wait="listening")
    live.wait_for(lambda: os.path.exists(live.ready_file), "a ready file")
    port = server.addresses_in(live.ready_file)[1].rsplit(":", 1)[1]
    for program in (os.path.join(server.build(), "examples", "client", "health"),
                    build(os.path.join(EXAMPLES, "health.cpp"), tmp_path)):
        url = f"https://localhost:{port}"
        assert run(program, url, pki.ca, "my-own-key") == (0, "ready\n", "")
        assert run(program, url, pki.ca, "another-key") == (1, "not ready\n", "")  # any answer but 200 is a no
        code, out, err = run(program, url, pki.client_ca, "my-own-key")
        assert (code, out) == (1, "") and err.startswith("health: SLUICE_CLIENT_TLS: "), err
        assert run(program, url, pki.ca, "my-own-key") == (0, "ready\n", "")

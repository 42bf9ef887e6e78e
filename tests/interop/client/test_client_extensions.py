"""Extensions of KServe v2 by the programs of examples/client, over HTTP and gRPC, against `sluice serve`."""
import os
import subprocess

import pytest

from lib import http1, server

MODELS = os.path.join(server.ROOT, "examples", "client", "models")


def run(name, *args):
    """Returns: (exit code, standard output, standard error)."""
    program = os.path.join(server.build(), "examples", "client", name)
    done = subprocess.run([program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=2 * http1.PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with server.Server(tmp_path_factory.mktemp("extensions"), ["--model-repository", MODELS, "--allow-client-shm", "true",
                                                                "--client-shm-prefix", "sluice-"],
                       grpc=("127.0.0.1:0",)) as started:
        yield started


@pytest.fixture(params=["http", "grpc"])
def url(request, live):
    yield f"http://{live.address}" if request.param == "http" else f"grpc://{live.grpc_address}"
    live.wait_at_rest()


def objects():
    return {name for name in os.listdir("/dev/shm") if name.startswith("sluice-")}


def test_shared_memory(url):
    before = objects()
    assert run("shared_memory", url, "numbers", "IN", "OUT", 1, 2.5, -3) == (0, "1\n2.5\n-3\n", "")
    code, out, err = run("shared_memory", url, "numbers", "WRONG", "OUT", 1)
    assert (code, out) == (1, "") and "WRONG" in err
    assert run("shared_memory", url, "numbers", "IN", "OUT", 7) == (0, "7\n", "")
    assert objects() == before


def test_classification(url):
    assert run("classes", url, "numbers", "IN", "OUT", 2, 0.5, 7, -1, 3.25) == (0, "7: 1 \n3.25: 3 \n", "")
    code, out, err = run("classes", url, "text", "IN", "OUT", 2, 1)
    assert (code, out) == (1, "") and err

"""Extensions of KServe v2 by the programs of examples/client, over HTTP and gRPC, against `sluice serve`."""
import json
import os
import subprocess

import pytest

from lib import http1, server

MODELS = os.path.join(server.ROOT, "examples", "client", "models")


def run(name, *args):
    """Returns: (exit code, standard output, standard error)."""
    program = os.path.join(server.build(), "examples", "client", name)
    with subprocess.Popen([program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            out, err = process.communicate(timeout=2 * http1.PATIENCE)
        finally:
            process.kill()
    # Its shared memory has its process id in the name.
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"sluice-{process.pid}-")]
    return process.returncode, out, err


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


def test_deadlines_of_a_slow_model(url):
    """The model takes 200 ms: 20 can't be enough. The client answers afterwards."""
    assert run("deadline", url, "slow", "IN", 20, 60000, 20) == (
        0, "20 ms: too late\n60000 ms: in time\n20 ms: too late\n", "")
    code, out, err = run("deadline", url, "absent", "IN", 60000)
    assert (code, out) == (1, "") and "absent" in err


def test_tokens_of_a_decoupled_model(live):
    url = f"grpc://{live.grpc_address}"
    assert run("tokens", url, "tokens", "IN", "OUT", "a b", 3) == (0, 3 * "a b\n", "")
    assert run("tokens", url, "tokens", "IN", "OUT", "none", 0) == (0, "", "")
    assert run("tokens", url, "tokens", "IN", "OUT", "x", 5000) == (0, 5000 * "x\n", "")
    for args, reason in [(("absent", "IN"), "absent"), (("tokens", "WRONG"), "WRONG")]:
        code, out, err = run("tokens", url, *args, "OUT", "x", 1)
        assert (code, out) == (1, "") and reason in err
    code, out, err = run("tokens", f"http://{live.address}", "tokens", "IN", "OUT", "x", 1)
    assert (code, out) == (1, "") and "grpc://" in err
    live.wait_at_rest()


def test_generate(live):
    url = f"http://{live.address}"

    def generate(**members):
        code, out, err = run("generate", url, "tokens", json.dumps(members))
        return code, [json.loads(line)["OUT"] for line in out.splitlines()], err
    assert generate(IN="a", responses=3) == (0, ["a", "a", "a"], "")
    assert generate(IN="a", responses=0) == (0, [], "")
    assert generate(IN="x", responses=5000) == (0, 5000 * ["x"], "")
    assert generate(IN="a", responses=3, fail_at=2) == (1, ["a"], "generate: the answer that was to fail\n")
    code, outs, err = generate(IM="a")
    assert (code, outs) == (1, []) and "(HTTP 400)" in err
    live.wait_at_rest()


def test_shared_memory(url):
    assert run("shared_memory", url, "numbers", "IN", "OUT", 1, 2.5, -3) == (0, "1\n2.5\n-3\n", "")
    code, out, err = run("shared_memory", url, "numbers", "WRONG", "OUT", 1)
    assert (code, out) == (1, "") and "WRONG" in err
    assert run("shared_memory", url, "numbers", "IN", "OUT", 7) == (0, "7\n", "")


def test_classification(url):
    assert run("classes", url, "numbers", "IN", "OUT", 2, 0.5, 7, -1, 3.25) == (0, "7: 1 \n3.25: 3 \n", "")
    code, out, err = run("classes", url, "text", "IN", "OUT", 2, 1)
    assert (code, out) == (1, "") and err

"""The memory that a server may use: what --check and the log print under a limit, and that a percentage of it bounds
bodies. The limit is a control group's where this machine allows one, and always one on the address space too."""
import functools
import os
import resource
import subprocess

import pytest

from lib import http1, metrics, repository
from lib.server import binary, is_sanitized

pytestmark = pytest.mark.plain

MIB = 1 << 20
LIMIT = 2048 * MIB
A = "10.0.0.1:8000"


@functools.cache
def cgroup_prefix(folder):
    """A command that runs another one under a control group of 512 MiB: systemd's, or files that are mounted where the
    kernel's would be. None: this machine allows neither."""
    with open(os.path.join(folder, "memory.max"), "w", encoding="ascii") as file:
        file.write("536870912\n")
    mount = 'mount --bind "$0" /sys/fs/cgroup && exec "$@"'
    for prefix in (["systemd-run", "--quiet", "--scope", "-p", "MemoryMax=536870912"],
                   ["unshare", "--mount", "sh", "-c", mount, folder],
                   ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, folder]):
        try:
            done = subprocess.run([*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            print(f"the limit is set by: {prefix[0]}")
            return prefix
    return None


@pytest.fixture(scope="module")
def cgroup(tmp_path_factory):
    prefix = cgroup_prefix(str(tmp_path_factory.mktemp("cgroup")))
    if prefix is None:
        pytest.skip("no control group can be made here; the tests with a limit on the address space remain")
    return prefix


@pytest.fixture
def address_space():
    if is_sanitized():
        pytest.skip("a sanitizer reserves terabytes of address space; the tests with a control group remain")
    return ["prlimit", f"--as={LIMIT}"]


def check(prefix, *args):
    """Runs a command with --check under a limit. Returns: the last line."""
    done = subprocess.run([*prefix, binary(), *map(str, args), "--check"], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done
    return done.stdout.splitlines()[-1]


def serve_args(repositories):
    return ["serve", "--model-repository", repositories("default")]


# ---- --check -----------------------------------------------------------------------------------------


def test_memory_check_under_cgroup_prints_share(repositories, cgroup):
    wanted = "body memory 204.8 MiB (40% of 512 MiB, limit of the cgroup)"
    assert check(cgroup, *serve_args(repositories)) == wanted
    assert check(cgroup, "pick", "--endpoint", A) == wanted


def test_memory_check_under_address_space_limit_prints_share(repositories, address_space):
    wanted = "body memory 819.2 MiB (40% of 2 GiB, limit on the address space)"
    assert check(address_space, *serve_args(repositories)) == wanted
    assert check(address_space, "pick", "--endpoint", A) == wanted


def test_memory_check_prints_setting(tmp_path, repositories, cgroup):
    """As a flag, and as a key of the file: a percentage or a size."""
    args = serve_args(repositories)
    assert check(cgroup, *args, "--body-memory", "25%") == "body memory 128 MiB (25% of 512 MiB, limit of the cgroup)"
    assert check(cgroup, *args, "--body-memory", "1GiB") == "body memory 1 GiB (of 512 MiB, limit of the cgroup)"
    file = tmp_path / "sluice.yaml"
    file.write_text("body-memory: 10%\n")
    assert check(cgroup, *args, "--config", file).startswith("body memory 51.2 MiB (10% of 512 MiB")
    assert check(cgroup, *args, "--config", file, "--body-memory", "64MiB").startswith("body memory 64 MiB (of ")
    for command in (args, ["pick", "--endpoint", A]):
        done = subprocess.run([binary(), *command, "--body-memory", "140%"], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, check=False)
        assert done.returncode == 2 and "--body-memory: 140% is out of range: from 1% to 100%" in done.stderr, done


# ---- live servers ------------------------------------------------------------------------------------


def memory_line(running):
    return next(line for line in running.log_lines() if line.get("event") == "body memory")


def test_memory_share_bounds_bodies(start_server, repositories, address_space):
    """A body that does not fit the share is refused with the setting's name; the next request is answered."""
    running = start_server("--model-repository", repositories("default"), "--workers", "2", "--body-memory", "1%",
                           limits={resource.RLIMIT_AS: LIMIT})
    line = memory_line(running)
    assert line["bytes"] == LIMIT // 100
    assert line["limit"] == "20.5 MiB (1% of 2 GiB, limit on the address space)"
    answer = http1.request(running.address, "POST", "/v2/models/id_fp32/infer", b" " * (24 * MIB))
    assert answer.status == 503 and b"--body-memory" in answer.body, answer.body
    body = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
    assert http1.request(running.address, "POST", "/v2/models/id_fp32/infer", body).status == 200
    running.wait_at_rest()


def test_memory_setting_over_limit_warns(start_server, start_picker, repositories):
    running = start_server("--model-repository", repositories("default"), "--body-memory", "16384GiB")
    picker = start_picker(f"endpoints: [{A}]\n", "--body-memory", "16384GiB")
    for one in running, picker:
        assert memory_line(one)["bytes"] == 1 << 44
        warning = next(line for line in one.log_lines() if "usable_bytes" in line)
        assert warning["level"] == "warning" and warning["setting"] == "body memory"


# ---- pressure ----------------------------------------------------------------------------------------

@pytest.fixture
def fake_cgroup(tmp_path):
    """A folder in place of the kernel's, and a command that runs a server under it."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    prefix = cgroup_prefix(str(folder))
    if prefix is None or str(folder) not in prefix:
        pytest.skip("no files can be mounted in place of the kernel's here; memory_pressure_test remains")
    return folder, prefix


def infer(running, number):
    body = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[%d]}]}' % number
    assert http1.request(running.address, "POST", "/v2/models/cached/infer", body).status == 200


def test_memory_pressure_shrinks_caches(start_server, tmp_path, fake_cgroup):
    """The working set reaches the limit of the group: the response cache is emptied by and by."""
    folder, prefix = fake_cgroup
    (folder / "memory.current").write_text("1000\n")
    repository.Identity("cached", [("FP32", repository.FREE)], more="response_cache { enable: true }").write(
        str(tmp_path / "models"))
    running = start_server("--model-repository", tmp_path / "models", "--cache-size", "16MiB", prefix=prefix)
    for number in range(20):
        infer(running, number)
    numbers = metrics.read(running.address)
    assert numbers["sluice_response_cache_entries"] == 20 and numbers["sluice_memory_pressure_total"] == 0
    (folder / "memory.current").write_text("536870000\n")
    metrics.wait_until(running.address, lambda n: n["sluice_memory_pressure_total"] > 0
                       and n["sluice_response_cache_entries"] < 12, "a smaller cache")
    (folder / "memory.current").write_text("1000\n")
    assert [line["level"] for line in running.log_lines() if "memory pressure" in str(line)] == ["warning"]
    infer(running, 1)
    running.wait_at_rest()

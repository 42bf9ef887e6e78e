"""Threads and memory that cannot be had: the process's address space is at its limit."""
import os
import resource
import subprocess

import pytest

from lib import http1, repository
from lib.server import binary, is_sanitized

STEP_BYTES, TOP_BYTES = 64 << 10, 3 << 20
OWN_WANT = (b"no thread", b"out of memory", b"annot allocate memory")

pytestmark = [pytest.mark.plain,
              pytest.mark.skipif(is_sanitized(), reason="a sanitizer reserves its own address space")]


def vm_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmSize:"))


def test_load_without_threads_or_memory_names_what_is_missing(start_server, tmp_path):
    """Threads that were started, but got no arena of the heap, ended the process with SIGSEGV."""
    model = repository.Identity("m", [("FP32", [-1])], max_batch_size=4, more="instance_group { count: 8 }")
    model.write(tmp_path / "models")
    repository.Identity("kept", [("FP32", [-1])]).write(tmp_path / "models")  # its backend stays mapped
    server = start_server("--model-repository", tmp_path / "models", "--model-control-mode", "explicit",
                          "--load-model", "kept", "--workers", "1", limits={resource.RLIMIT_STACK: 256 << 10})
    server.expect_error("model failed to load")

    def change(how):
        return http1.request(server.address, "POST", f"/v2/repository/models/m/{how}")

    hard = resource.prlimit(server.pid, resource.RLIMIT_AS)[1]
    answers = []
    for more in range(0, TOP_BYTES, STEP_BYTES):
        resource.prlimit(server.pid, resource.RLIMIT_AS, (vm_bytes(server.pid) + more, hard))
        try:
            answers.append(change("load"))
        except http1.Closed:  # no memory for the connection itself
            pass
        resource.prlimit(server.pid, resource.RLIMIT_AS, (hard, hard))
        assert change("unload").status == 200
    refused = [answer for answer in answers if answer.status != 200]
    assert refused and all(any(want in answer.body for want in OWN_WANT) for answer in refused)
    assert any(b"no thread" in answer.body for answer in refused)
    assert change("load").status == 200
    assert http1.request(server.address, "GET", "/v2/models/m/ready").status == 200


def test_start_without_address_space_for_the_heap_fails(repositories):
    """Rather than at the first thread that gets no arena."""
    command = [binary(), "serve", "--model-repository", repositories("default"), "--http", "127.0.0.1:0"]
    done = subprocess.run(command, env={**os.environ, "MALLOC_CONF": "narenas:4096"}, capture_output=True,
                          text=True, timeout=http1.PATIENCE, check=False, preexec_fn=lambda: resource.setrlimit(
                              resource.RLIMIT_AS, (1 << 30, 1 << 30)))
    assert done.returncode == 1
    assert "no address space for arena" in done.stderr and "ulimit -v" in done.stderr

"""--host-policy: instances run on the CPUs, and with memory of the NUMA node, that their instance_group names. Where
threads may run is read from /proc."""
import concurrent.futures
import json
import os
import pathlib

import numpy
import tritonclient.http

from lib import ensembles, http1, repository

CPUS = sorted(os.sched_getaffinity(0))
FIRST, LAST = CPUS[0], CPUS[-1]
ALL = set(CPUS)


def write(folder, name, *groups):
    """A model of the onnxruntime backend that multiplies by 2; `groups`: what its instance_group has."""
    ensembles.write_affine(folder, name, 2, 0)
    with open(folder / name / "config.pbtxt", "a", encoding="utf-8") as file:
        file.write("instance_group [ " + ", ".join(f"{{ {group} }}" for group in groups) + " ]\n" if groups else "")


def threads_of(server, model):
    """The threads of the model's instances, which are named after them, as folders of /proc."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    named = {(task / "comm").read_text().strip(): task for task in tasks}
    return [named[name] for name in sorted(named) if name.startswith(f"{model}/")]


def cpus_of(task):
    line = next(line for line in (task / "status").read_text().splitlines() if line.startswith("Cpus_allowed_list:"))
    ranges = (part.split("-") for part in line.split()[1].split(","))
    return {cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)}


def memory_of(task):
    """The thread's policy, which memory has that has none of its own: "default", "bind:0"."""
    return (task / "numa_maps").read_text().split()[1]


def reason(server, name):
    rows = json.loads(http1.request(server.address, "POST", "/v2/repository/index").body)
    return next(row.get("reason", "") for row in rows if row["name"] == name)


def infer(server, name, n=1):
    values = numpy.arange(4, dtype=numpy.float32).reshape(1, 4)
    x = tritonclient.http.InferInput("x", [1, 4], "FP32")
    x.set_data_from_numpy(values)
    with tritonclient.http.InferenceServerClient(server.address) as client:
        for _ in range(n):
            assert (client.infer(name, [x]).as_numpy("y") == 2 * values).all()


def test_instances_run_on_the_cpus_of_their_policy(start_server, tmp_path):
    models = tmp_path / "models"
    write(models, "pinned", 'count: 2 host_policy: "low"')
    write(models, "mixed", 'count: 2 host_policy: "high"', 'count: 1 host_policy: "low"', "kind: KIND_MODEL")
    write(models, "unknown", 'host_policy: "other"')
    write(models, "plain")
    server = start_server("--model-repository", models, "--host-policy", f"low,cpu-cores={FIRST}-{FIRST}",
                          "--host-policy", f"high,cpu-cores={LAST},1023", "--host-policy", "low,numa-node=0")
    assert [cpus_of(task) for task in threads_of(server, "pinned")] == [{FIRST}] * 2
    assert [cpus_of(task) for task in threads_of(server, "mixed")] == [{LAST}, {LAST}, {FIRST}, ALL]
    assert [memory_of(task) for task in threads_of(server, "mixed")] == ["default", "default", "bind:0", "default"]
    assert [cpus_of(task) for task in threads_of(server, "plain") + threads_of(server, "unknown")] == [ALL] * 2
    assert cpus_of(pathlib.Path(f"/proc/{server.process.pid}")) == ALL
    lines = [line for line in server.log_lines() if "policy" in line]
    assert sorted((line["model"], line["policy"]) for line in lines) == [("mixed", "high"), ("unknown", "other")]
    groups = json.loads(http1.request(server.address, "GET", "/v2/models/mixed/config").body)["instance_group"]
    assert [(group["count"], group["host_policy"]) for group in groups] == [(2, "high"), (1, "low"), (1, "")]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(infer, server, name, 200) for name in ("mixed", "pinned", "plain") * 3]:
            done.result()


def test_policies_of_kinds_are_of_instances_that_name_none(start_server, tmp_path):
    models = tmp_path / "models"
    write(models, "none")
    write(models, "auto", "kind: KIND_AUTO")
    write(models, "model", "kind: KIND_MODEL")
    repository.Identity("cheap", [("FP32", [-1])]).write(models)  # which would run on the workers
    server = start_server("--model-repository", models, "--host-policy", f"cpu,cpu-cores={FIRST}",
                          "--host-policy", f"model,cpu-cores={LAST}")
    for name, cpu in (("none", FIRST), ("auto", FIRST), ("model", LAST), ("cheap", FIRST)):
        assert [cpus_of(task) for task in threads_of(server, name)] == [{cpu}], name
    infer(server, "none")


def test_missing_cpus_and_nodes_fail_the_models_that_use_them(start_server, tmp_path):
    models = tmp_path / "models"
    write(models, "cpus", 'host_policy: "cpus"')
    write(models, "node", 'host_policy: "node"')
    write(models, "worker", 'host_policy: "fine"')
    write(models, "good", 'host_policy: "fine"')
    with open(models / "worker" / "config.pbtxt", "a", encoding="utf-8") as file:
        file.write('parameters { key: "sluice.run_on" value { string_value: "worker" } }\n')
    server = start_server("--model-repository", models, "--host-policy", "cpus,cpu-cores=1000-1010,1023",
                          "--host-policy", "node,numa-node=1000", "--host-policy", f"fine,cpu-cores={FIRST}",
                          "--host-policy", "unused,numa-node=1001", wait="loaded")
    server.expect_error("model failed to load")
    assert "host policy cpus: cpu-cores: this process may use none of the CPUs 1000-1010,1023; it may use " \
        in reason(server, "cpus")
    assert "host policy node: numa-node: this machine has no NUMA node 1000" in reason(server, "node")
    assert "sluice.run_on must not be worker" in reason(server, "worker")
    infer(server, "good")


def test_wrong_policy_ends_the_start(start_server, tmp_path):
    write(tmp_path / "models", "m")
    server = start_server("--model-repository", tmp_path / "models", "--host-policy", "p,cpu-cores=0-a", wait="nothing")
    assert server.wait_exit() == 2
    assert "--host-policy: p: cpu-cores: expected numbers and ranges, as 0-3,8, got \"0-a\"" in server.log_text()

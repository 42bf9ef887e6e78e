"""Models in Python whose workers are killed at random while clients send, cancel and leave, and one that is loaded and
unloaded all the time; beside them one good client of another model, none of whose requests fails. `make soak`;
SOAK_REQUESTS (100000) and SOAK_RELOADS (1000) change how many there are, SOAK_SEED what happens."""
import json
import os
import random
import signal
import threading
import time

import numpy
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1, python_models
from lib.python_models import DOES, FLAGS, tensor

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "100000"))
RELOADS = int(os.environ.get("SOAK_RELOADS", "1000"))
SEED = os.environ.get("SOAK_SEED", "1")
N_CLIENTS = 8
KILL_EVERY_S = 3
SLACK = 64 << 20
ECHO = tensor("input", "INPUT0", "FP32", [-1]) + tensor("output", "OUTPUT0", "FP32", [-1])


class Clients:
    """Threads that run until they are stopped, or have nothing left to do. What they raise is kept."""

    def __init__(self):
        self.over = threading.Event()
        self.raised = []
        self.threads = []

    def start(self, function, *arguments):
        def run():
            try:
                function(*arguments)
            except Exception as error:
                self.raised.append(error)
                raise
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        return self.threads[-1]

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def be_good(server, clients, counts):
    """One request after the other to `good`."""
    client = python_models.Client(server)
    array = numpy.arange(3, dtype=numpy.float32)
    while not clients.over.is_set():
        assert client.infer("good", {"INPUT0": array}).as_numpy("OUTPUT0").tolist() == [0, 1, 2]
        counts["good"] += 1
        time.sleep(0.001)


def send(server, number, n, counts):
    """Requests of any size; some are given up. Those that were not have their own answer, or the reason of none."""
    rolls = random.Random(f"{SEED} {number}")
    client = tritonclient.grpc.InferenceServerClient(server.grpc_address)
    for i in range(n):
        size = rolls.choice((1, 16, 1000, 10_000, 300_000))
        array = numpy.full(size, i, numpy.float32)
        inputs = [tritonclient.grpc.InferInput("INPUT0", [size], "FP32")]
        inputs[0].set_data_from_numpy(array)
        patience = rolls.choice((http1.PATIENCE, http1.PATIENCE, 0.001, 0.01))
        try:
            answer = client.infer("killed", inputs, client_timeout=patience)
            assert (answer.as_numpy("OUTPUT0") == array).all()
            counts["answered"] += 1
        except InferenceServerException as error:
            assert "DEADLINE_EXCEEDED" in error.status() or "UNAVAILABLE" in error.status(), error
            assert "DEADLINE_EXCEEDED" not in error.status() or patience < 1, error
            counts["given up" if patience < 1 else "refused"] += 1


def kill(server, clients, counts):
    """Workers of `killed`, at any moment: also while they write to shared memory."""
    rolls = random.Random(f"{SEED} kill")
    while not clients.over.wait(rolls.uniform(0, 2 * KILL_EVERY_S)):
        mine = python_models.workers(server.pid, "killed")
        if mine:
            os.kill(rolls.choice(mine), signal.SIGKILL)
            counts["killed"] += 1


def change(server, action):
    answer = http1.request(server.address, "POST", f"/v2/repository/models/reloaded/{action}", body=b"{}")
    assert answer.status == 200, answer.body


def reload(server, counts):
    client = python_models.Client(server)
    for i in range(RELOADS):
        change(server, "load")
        if i % 10 == 0:
            assert client.ask("reloaded", "again") == "again"
        change(server, "unload")
        counts["reloaded"] += 1


def test_workers_are_killed_and_models_reloaded(start_server, tmp_path):
    models = tmp_path / "models"
    python_models.write(models, "good", "echo", ECHO)
    python_models.write(models, "killed", "echo", ECHO + "instance_group { count: 3 }\n")
    python_models.write(models, "reloaded", "does", DOES)
    server = start_server("--model-repository", models, *FLAGS, "--model-control-mode", "explicit", "--load-model", "good",
                          "--load-model", "killed", grpc=("127.0.0.1:0",))
    server.expect_error("worker of instance")
    counts = dict.fromkeys(("good", "answered", "given up", "refused", "killed", "reloaded"), 0)
    clients = Clients()
    clients.start(be_good, server, clients, counts)
    time.sleep(5)
    before = server.rss_bytes()
    clients.start(kill, server, clients, counts)
    busy = [clients.start(send, server, number, REQUESTS // N_CLIENTS, counts) for number in range(N_CLIENTS)]
    busy.append(clients.start(reload, server, counts))
    for thread in busy:
        thread.join()
    clients.stop()
    print(json.dumps(counts))
    assert not clients.raised, clients.raised
    assert counts["reloaded"] == RELOADS and counts["answered"] > 0 and counts["killed"] > 0
    server.wait_for(lambda: len(python_models.workers(server.pid)) == 4, "all workers")
    server.wait_for(lambda: server.rss_bytes() < before + SLACK, "memory at rest")
    pid = server.pid
    server.stop()
    assert not python_models.workers(pid)
    assert not [name for name in os.listdir("/dev/shm") if "sluice" in name]

"""How states come and go: sequences that are idle too long, models that are loaded again or unloaded, memory
that is used up, a hundred sequences at once."""
import json
import random
import threading

import numpy
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, stateful
from lib.stateful import Client, config, initial, state

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

OLDEST = "oldest { max_candidate_sequences: 200 }"
GROWING = [state("OLD", "NEW", "FP32", [-1])]
MODELS = {
    "direct": (stateful.adder(), config(stateful.ADDER_STATES, 32, more="instance_group { count: 4 }")),
    "oldest": (stateful.adder(), config(stateful.ADDER_STATES, 8, OLDEST)),
    "short": (stateful.adder(), config(stateful.ADDER_STATES, idle_us=100000)),
    "grows": (stateful.collector(), config(GROWING, 0, OLDEST)),
    "wide": (stateful.collector(), config([state("OLD", "NEW", "FP32", [-1], initial("FP32", [250000]))], 0, OLDEST)),
}
BYTES = "sluice_sequence_state_bytes"


@pytest.fixture
def begin(start_server, tmp_path):
    """Starts a server. When the test is over nothing is left of its sequences, and it answers."""
    for name, (model, text) in MODELS.items():
        stateful.write(tmp_path / "models", name, model, text)
    started = []

    def start(*args):
        started.append(start_server("--model-repository", tmp_path / "models", *args, grpc=("127.0.0.1:0",)))
        return started[-1]
    yield start
    for server in started:
        client = Client("http", server)
        assert client.add("direct", 99, 4, start=True, end=True) == [4, 0]
        client.close()
        metrics.wait_at_rest(server.address, server.arenas)


def state_bytes(server):
    return metrics.read(server.address)[BYTES]


def wait_for_bytes(server, fits, what):
    return metrics.wait_until(server.address, lambda numbers: fits(numbers[BYTES]), what)[BYTES]


# ---- sequences that end --------------------------------------------------------------------------

def test_state_is_freed_at_end_and_when_idle(begin):
    server = begin()
    client = Client("http", server)
    first = state_bytes(server)  # the first values
    assert first >= 1000000
    for number in range(1, 5):
        assert client.add("direct", number, number, start=True) == [number, 0]
    assert 4 * 2 * 4 <= state_bytes(server) - first <= 4 * 2 * 256  # two numbers each, with their overhead
    for number in range(1, 5):
        client.add("direct", number, 1, end=True)
    wait_for_bytes(server, lambda n: n == first, "no state of a sequence that has ended")
    client.add("short", 1, 5, start=True)
    wait_for_bytes(server, lambda n: n == first, "no state of a sequence that was idle")
    with pytest.raises(InferenceServerException, match="max_sequence_idle_microseconds"):
        client.add("short", 1, 5)
    assert client.add("short", 1, 6, start=True, end=True) == [6, 0]
    client.close()


def test_state_first_value_is_shared(begin):
    """Sequences that have not been answered yet cost no state."""
    server = begin()
    client = Client("grpc", server)
    first = state_bytes(server)
    said = client("wide", 1, numpy.ones(3, numpy.float32), start=True, end=True)
    assert said["ALL"].shape == (250003,) and said["ALL"].sum() == 3
    wait_for_bytes(server, lambda n: n == first, "no state")
    client.close()


# ---- models that go ------------------------------------------------------------------------------

def test_state_ends_with_reload_and_unload(begin):
    server = begin("--model-control-mode", "explicit", "--load-model", "*")
    client = Client("http", server)
    client("grows", 1, numpy.ones(100000, numpy.float32), start=True)
    client.add("direct", 1, 5, start=True)
    before = state_bytes(server)
    changed = client.client.get_model_config("grows")
    changed["sequence_batching"]["max_sequence_idle_microseconds"] = "59000000"
    client.client.load_model("grows", config=json.dumps(changed))
    with pytest.raises(InferenceServerException, match="when the model is loaded again"):
        client("grows", 1, numpy.ones(1, numpy.float32))
    wait_for_bytes(server, lambda n: n <= before - 400000, "no state of the version before")
    said = client("grows", 1, numpy.ones(1, numpy.float32), start=True, end=True)
    assert said["ALL"].tolist() == [0, 1]
    assert client.add("direct", 1, 6) == [11, 5]
    for name in MODELS:
        if name != "direct":
            client.client.unload_model(name)
    wait_for_bytes(server, lambda n: n < 10000, "states of one model")
    assert client.add("direct", 1, 1, end=True) == [12, 6]
    client.close()


# ---- memory --------------------------------------------------------------------------------------

def test_state_over_memory_budget_is_refused(begin):
    """A state that does not fit fails its request and stays as it was; other clients are served."""
    server = begin("--client-memory", "64MiB", "--max-body-size", "4MiB")
    client = Client("http", server)
    part = numpy.ones(500000, numpy.float32)  # 2 MB
    n = 0
    with pytest.raises(InferenceServerException) as caught:
        for n in range(1, 100):
            client("grows", n, part, start=True, wanted=["ALL"])
            assert n < 40
    assert caught.value.status() == "503"
    assert 'state "NEW"' in caught.value.message() and "--client-memory" in caught.value.message()
    used = state_bytes(server)
    assert 30000000 < used < 44000000
    with pytest.raises(InferenceServerException, match="--client-memory"):
        client("grows", 1, part)
    assert client.add("direct", 1, 3, start=True) == [3, 0]
    assert client.add("direct", 1, 4, end=True) == [7, 3]
    for number in range(1, 10):  # each ends as it is: two million bytes and the new ones
        assert client("grows", number, part[:1], end=True)["ALL"].size == 500002
    said = client("grows", n, part, start=True)
    assert said["ALL"].size == 500001
    for number in range(10, n + 1):
        client("grows", number, part[:1], end=True)
    client.close()


def test_small_states_fit_where_large_ones_are_refused(begin):
    """A client whose states grow takes all that it can get; the sequences of others go on."""
    server = begin("--client-memory", "64MiB", "--max-body-size", "4MiB")
    client = Client("http", server)
    n = 0
    for n_bytes in (2000000, 200000, 70000):
        with pytest.raises(InferenceServerException, match="--client-memory"):
            for n in range(n + 1, n + 200):
                client("grows", n, numpy.ones(n_bytes // 4, numpy.float32), start=True)
    used = state_bytes(server)
    for number in range(201, 221):
        for _ in range(2):
            assert client("grows", number, numpy.ones(6000, numpy.float32), start=True)["ALL"].size == 6001
        assert client("grows", number, numpy.ones(6000, numpy.float32))["ALL"].size == 12001
    assert state_bytes(server) - used >= 20 * 48000  # all at once
    for number in [*range(1, n + 1), *range(201, 221)]:
        client("grows", number, numpy.ones(1, numpy.float32), start=True, end=True)
    client.close()


# ---- many ----------------------------------------------------------------------------------------

class Sequences(threading.Thread):
    """Sequences one after the other, and their sums."""

    def __init__(self, protocol, server, model, number, n):
        super().__init__(daemon=True)
        self.args, self.failed = (protocol, server, model, number, n), None
        self.start()

    def run(self):
        try:
            self.run_all(*self.args)
        except BaseException as why:
            self.failed = why

    def run_all(self, protocol, server, model, number, n):
        client, rng = Client(protocol, server), random.Random(number)
        for i in range(n):
            total, last, length = 0, 0, rng.randrange(1, 8)
            for turn in range(length):
                value = rng.randrange(1000)
                total += value
                assert client.add(model, f"{number} {i}", value, start=turn == 0,
                                  end=turn == length - 1) == [total, last]
                last = value
        client.close()


def test_state_hundred_sequences_at_once_keep_their_own(begin):
    server = begin()
    first = state_bytes(server)
    threads = [Sequences(("http", "grpc")[i % 2], server, ("direct", "oldest")[i // 2 % 2], i, 10) for i in range(100)]
    for thread in threads:
        thread.join()
    for thread in threads:
        if thread.failed:
            raise thread.failed
    wait_for_bytes(server, lambda n: n == first, "no state is left")


def test_state_reload_while_sequences_run(begin):
    """Each load ends the sequences; those that begin again are right."""
    server = begin("--model-control-mode", "explicit", "--load-model", "*")
    stop, failures, turns = threading.Event(), [], []

    def run(number):
        client = Client("http", server)
        try:
            while not stop.is_set():
                total = 0
                for turn in range(10):
                    try:
                        said = client.add("oldest", number, turn, start=turn == 0, end=turn == 9)
                    except InferenceServerException as why:
                        assert "START flag" in why.message() or "being stopped" in why.message(), why.message()
                        break
                    total += turn
                    assert said == [total, max(turn - 1, 0)]
                    turns.append(turn)
        except BaseException as why:
            failures.append(why)
        client.close()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    control = triton_http.InferenceServerClient(server.address.removeprefix("http://"), network_timeout=http1.PATIENCE)
    for i in range(10):
        changed = control.get_model_config("oldest")
        changed["sequence_batching"]["max_sequence_idle_microseconds"] = str(50000000 + i)
        control.load_model("oldest", config=json.dumps(changed))
        seen = len(turns)
        while len(turns) < seen + 20 and not failures:
            stop.wait(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    control.close()
    assert not failures, failures[0]

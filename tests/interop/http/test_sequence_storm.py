"""Many sequences at once, of clients who keep to the rules and of some who don't: they leave in the middle,
begin and never end, go on with what is over, begin again. Who keeps to the rules gets the right sums,
and when it is over nothing is left. STORM_SECONDS changes how long (10)."""
import os
import random
import threading
import time

import pytest
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, sequences
from lib.sequences import Client, adder, body_of

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

SECONDS = float(os.environ.get("STORM_SECONDS", "10"))
SHORT_US = 20000
LATER = """backend: "identity"
max_batch_size: 4
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output [ { name: "SUM" data_type: TYPE_INT32 dims: [ 1 ] },
         { name: "READY" data_type: TYPE_INT32 dims: [ 1 ] } ]
parameters { key: "respond_from" value { string_value: "thread" } }
sequence_batching { max_sequence_idle_microseconds: 20000
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 7, 8 ] } } }
"""
MODELS = {
    "direct": adder(more="instance_group { count: 2 }", idle_us=60000000),
    "oldest": adder("oldest { max_candidate_sequences: 3 max_queue_delay_microseconds: 200"
                    " preserve_ordering: true }", corrid="TYPE_STRING", idle_us=60000000,
                    more="instance_group { count: 2 }"),
    "short": adder(idle_us=SHORT_US),
    "later": LATER,  # whose fillers are answered after the execution, by another thread
}


@pytest.fixture
def server(start_server, tmp_path):
    server = start_server(*sequences.make(tmp_path, MODELS), "--max-queue-size", 50,
                          grpc=("127.0.0.1:0",))
    yield server
    metrics.wait_at_rest(server.address, server.arenas)


class Turns(threading.Thread):
    """Does `turn` until the time is over."""

    def __init__(self, turn, *args):
        super().__init__(daemon=True)
        self.turn, self.args, self.failed, self.n = turn, args, None, 0
        self.start()

    def run(self):
        rng = random.Random(repr(self.args))
        until = time.monotonic() + SECONDS
        try:
            while time.monotonic() < until:
                self.turn(rng, *self.args, self.n)
                self.n += 1
        except BaseException as why:
            self.failed = why


def keep_to_the_rules(rng, client, model, name, n):
    """A whole sequence, and its sums."""
    total, length = 0, rng.randrange(1, 8)
    for turn in range(length):
        value = rng.randrange(100)
        total += value
        said = client.add(model, f"{name} {n}", value, start=turn == 0, end=turn == length - 1)
        assert said["SUM"] == total


def see_its_own(rng, client, name, n):
    """Identity has no sums: a row is its own, and is no filler."""
    for turn in range(rng.randrange(1, 4)):
        value = rng.randrange(1, 100)
        try:
            result = client.client.infer("later", client.inputs("later", value),
                                         sequence_id=f"{name} {n}", sequence_start=turn == 0)
        except InferenceServerException as why:
            assert turn > 0 and "must specify the START flag" in why.message()  # it rested too long
            return
        assert int(result.as_numpy("SUM")[0, 0]) == value
        assert int(result.as_numpy("READY")[0, 0]) == 8


def break_them(rng, server, _name, _n):
    """Requests behind one another on connections that are lost, in a model whose sequences rest briefly."""
    number = rng.randrange(1, 9)
    connections = []
    for turn in range(rng.randrange(1, 5)):
        body = body_of(number, sequence_start=turn == 0 or rng.random() < 0.1,
                       sequence_end=rng.random() < 0.2, delay_us=rng.choice((0, 2000)),
                       timeout=rng.choice((1000, 1000000)))
        connections.append(http1.Connection(server.address))
        connections[-1].send(b"POST /v2/models/short/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                             % len(body) + body)
    for connection in connections:
        if rng.random() < 0.5:
            assert connection.read_answer("POST").status in (200, 400, 499, 503)
        connection.reset()


def test_sequence_storm_keeps_sums(server):
    clients = [Client(protocol, server) for protocol in ("http", "grpc") for _ in range(6)]
    turns = [Turns(keep_to_the_rules, client, ("direct", "oldest")[i % 2], f"rules {i}")
             for i, client in enumerate(clients[:4] + clients[6:10])]
    turns += [Turns(see_its_own, client, f"own {i}")
              for i, client in enumerate(clients[4:6] + clients[10:12])]
    turns += [Turns(break_them, server, f"breaks {i}") for i in range(3)]
    for turn in turns:
        turn.join()
    for client in clients:
        client.close()
    for turn in turns:
        if turn.failed:
            raise turn.failed
        assert turn.n > 0
    with Client("http", server) as client:
        assert client.add("short", 1, 3, start=True, end=True)["SUM"] == 3

"""Several pickers side by side over one pool of real servers. They don't know each other: what they share
is what the servers say of their load, corrected by what each has sent since. Requests are counted, not
timed."""
import collections
import http.client
import threading

import pytest

from lib.http1 import PATIENCE
from lib.pick_client import Proxy, answer_headers, endpoint_of, headers
from lib.repository import Identity
from lib.server import Server

pytestmark = pytest.mark.plain

N_PICKERS, N_SERVERS = 3, 4
INFER = "/v2/models/slow/infer"
BODY = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'
MODELS = [Identity("slow", [("FP32", [-1])], parameters={"delay_us": 5000}),
          Identity("slower", [("FP32", [-1])], parameters={"delay_us": 200000})]


@pytest.fixture
def servers(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    for model in MODELS:
        model.write(repository)
    started = []
    try:
        for _ in range(N_SERVERS):
            started.append(Server(tmp_path_factory.mktemp("server"), ["--model-repository", repository]))
        yield started
        for server in started:
            server.stop()
    finally:
        for server in started:
            server.kill()


@pytest.fixture
def pickers(servers, start_picker):
    listed = "".join(f"- {server.address}\n" for server in servers)
    pool = f"endpoints:\n{listed}metrics: {{preset: sluice, interval: 100ms, max_age: 30s}}\n"
    started = [start_picker(pool, "--reload-interval", "100ms") for _ in range(N_PICKERS)]
    for picker in started:
        picker.wait_loads(N_SERVERS)
    return started


def is_even(picks, share):
    """Has each of the servers what an even spread would give it, within `share`?"""
    even = sum(picks.values()) / N_SERVERS
    return len(picks) == N_SERVERS and all(abs(n - even) <= share * even for n in picks.values())


def run_until_even(pickers, n_each, n_requests, share):
    """A server that is stopped for long on a busy machine gets fewer requests: one of three runs has to be even."""
    runs, before = [], collections.Counter()
    while not any(is_even(run, share) for run in runs):
        assert len(runs) < 3, runs
        run_clients(pickers, n_each, n_requests)
        of_each = [picker.picks() for picker in pickers]
        picks = sum(of_each, collections.Counter())
        runs.append(picks - before)
        before = picks
        assert [sum(one.values()) for one in of_each] == [len(runs) * n_each * n_requests] * N_PICKERS


class Client(threading.Thread):
    """One after the other: asks a picker, sends the request where it says, tells it of the answer."""

    def __init__(self, picker, n):
        super().__init__(daemon=True)
        self.picker, self.n, self.failed = picker, n, None

    def run(self):
        connections = {}
        try:
            with Proxy(self.picker.grpc_addresses[0]) as proxy:
                for _ in range(self.n):
                    self.one(proxy, connections)
        except BaseException as error:  # the test's own thread tells it
            self.failed = error
        for connection in connections.values():
            connection.close()

    def one(self, proxy, connections):
        stream = proxy.stream(headers(INFER))
        endpoint = endpoint_of(stream.next())
        if endpoint not in connections:
            connections[endpoint] = http.client.HTTPConnection(endpoint, timeout=PATIENCE)
        connections[endpoint].request("POST", INFER, BODY)
        answer = connections[endpoint].getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        stream.send(answer_headers(end=True))
        stream.next()
        stream.reset()


def run_clients(pickers, n_each, n_requests):
    clients = [Client(picker, n_requests) for picker in pickers for _ in range(n_each)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        if client.failed:
            raise client.failed


def test_replicas_spread_requests_evenly(pickers):
    run_until_even(pickers, n_each=4, n_requests=150, share=0.15)
    for picker in pickers:
        picker.wait_at_rest()


def test_replicas_burst_spreads_evenly(pickers):
    """More requests at once than the servers run, and all at the same moment: no herd."""
    run_until_even(pickers, n_each=24, n_requests=10, share=0.15)
    for picker in pickers:
        picker.wait_at_rest()


def test_replicas_see_load_of_other_clients(servers, pickers):
    """Who knows no picker keeps two servers busy: what each picker sends goes to the other two. Their queues last, so that
    none is short for the moment in which its clients send the next requests."""
    busy = [server.address for server in servers[:2]]
    over = threading.Event()
    clients = []

    def keep_busy(address):
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
        while not over.is_set():
            connection.request("POST", "/v2/models/slower/infer", BODY)
            connection.getresponse().read()
        connection.close()
    for address in busy:
        clients += [threading.Thread(target=keep_busy, args=(address,), daemon=True) for _ in range(12)]
    for client in clients:
        client.start()
    try:
        for picker in pickers:
            picker.wait_until(
                lambda now: all(now.get(f'sluice_pick_endpoint_waiting_requests{{endpoint="{address}"}}', 0) >= 8
                                for address in busy), f"queues at {busy}")
        for picker in pickers:
            with Proxy(picker.grpc_addresses[0]) as proxy:
                for _ in range(6):
                    assert proxy.pick(INFER) not in busy
                    picker.wait_streams(0)
    finally:
        over.set()
        for client in clients:
            client.join()
    for picker in pickers:
        picker.wait_at_rest()

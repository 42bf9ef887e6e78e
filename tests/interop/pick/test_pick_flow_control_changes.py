"""Requests that wait at `sluice pick` while the world changes: their endpoints leave, their whole pool leaves, what
an endpoint said grows old, their bodies come in a great many pieces."""
import contextlib

import grpc
import pytest

from lib import h2, http1
from lib.ext_proc import classes
from lib.metric_pages import MetricPages
from lib.pick_client import PROCESS, Proxy, answer_headers, body, endpoint_of, headers, refusal_of
from lib.picker import n_waiting

pytestmark = pytest.mark.plain

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
QUICK = ("--reload-interval", "50ms", "--log-level", "debug")
FLOW = "saturation: {max_in_flight: 1}\nflow_control: {max_wait: 10m}\n"
DUPLEX = "FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED"


@pytest.fixture
def start(start_picker):
    return lambda pool, *args: start_picker(pool, *QUICK, *args)


def ask(proxy, **options):
    return proxy.stream(headers("/v1/completions", **options))


def finish(stream):
    """The answer to a request ends."""
    stream.send(answer_headers(end=True))
    stream.next()
    assert stream.close() == []


def test_queue_removed_endpoint_refuses_its_subset(start):
    """Who waits for those is told so, and does not wait for nothing; the others go on."""
    picker = start(f"endpoints: [{A}, {B}]\n{FLOW}")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = {where: ask(proxy, hint=where) for where in (A, B)}
        for where, stream in busy.items():
            assert endpoint_of(stream.next()) == where
        narrow, other = ask(proxy, hint=A), ask(proxy, hint=B)
        picker.wait_waiting(2)
        picker.write_pool(f"endpoints: [{B}]\n{FLOW}")
        status, _, text = refusal_of(narrow.next())
        assert status == 503 and "is in the pool and ready" in text
        picker.wait_waiting(1)
        finish(busy[B])
        assert endpoint_of(other.next()) == B
        finish(other)
        finish(busy[A])  # of an endpoint that has gone
    picker.wait_at_rest()


def pools_of(*names):
    return "pools:\n" + "".join(
        f"- name: {name}\n  match: {{authority: {name}}}\n  endpoints: [10.0.0.{ord(name) - ord('a') + 1}:8000]\n"
        "  saturation: {max_in_flight: 1}\n  flow_control: {max_wait: 10m}\n" for name in names)


def test_queue_removed_pool_serves_waiting(start):
    """Its requests go on: those that wait in it get their turn, whatever stands in the file by then."""
    picker = start(pools_of("a", "b"))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        def of(name):
            return ask(proxy, fields={":authority": name})
        busy = of("a")
        assert endpoint_of(busy.next()) == A
        queued = []
        for n in range(4):
            queued.append(of("a"))
            picker.wait_waiting(n + 1)
        picker.write_pool(pools_of("b"))
        picker.wait_until(lambda now: 'sluice_pick_pool_generation{pool="a"}' not in now, "a pool that has gone")
        assert refusal_of(of("a").next())[0] == 404
        queued[1].reset()
        picker.write_pool(pools_of("a", "b"))  # another one of the same name
        picker.wait_until(lambda now: 'sluice_pick_pool_generation{pool="a"}' in now, "a pool that has come")
        fresh = of("a")
        assert endpoint_of(fresh.next()) == A  # it knows nothing of the other's
        assert n_waiting(picker.numbers()) == 0
        finish(busy)
        for stream in (queued[0], queued[2]):
            assert endpoint_of(stream.next()) == A
            finish(stream)
        assert endpoint_of(queued[3].next()) == A
        picker.write_pool(pools_of("b"))
        finish(fresh)
        finish(queued[3])
    picker.wait_at_rest()


def test_queue_stale_load_admits(start):
    """Time alone ends the saturation: the server says nothing more, and nothing else happens."""
    with MetricPages("vllm:num_requests_waiting 5\n") as server:
        picker = start(f"endpoints: [{server.address}]\n"
                       "metrics: {preset: vllm, interval: 50ms, timeout: 3s, max_age: 3s}\n"
                       "saturation: {queue_depth: 5}\nflow_control: {max_wait: 10m}\n")
        picker.wait_until(lambda now: now.get(
            f'sluice_pick_endpoint_waiting_requests{{endpoint="{server.address}"}}') == 5, "a load")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            stream = ask(proxy)
            picker.wait_waiting(1)
            server.says("", "hang")
            assert endpoint_of(stream.next()) == server.address
            finish(stream)
    picker.wait_at_rest()


def test_queue_stale_load_admits_body_sent_with_headers(start):
    """Headers and body arrive together: --answer-timeout and max_wait, which are equal, begin and end in the same
    nanosecond."""
    with MetricPages("vllm:num_requests_waiting 5\n") as server:
        picker = start(f"endpoints: [{server.address}]\nmodels: [digits]\n"
                       "metrics: {preset: vllm, interval: 50ms, timeout: 3s, max_age: 3s}\n"
                       "saturation: {queue_depth: 5}\nflow_control: {max_wait: 10m}\n",
                       "--workers", 1, "--answer-timeout", "10m")
        picker.wait_loads(1)
        with h2.Connection(picker.grpc_addresses[0]) as connection:
            stream, frames = connection.open(h2.call_fields(PROCESS.encode()))
            sent = [headers("/v1/completions", config=DUPLEX), body(b'{"model": "digits"}', end=True)]
            data = b"".join(h2.message(message.SerializeToString()) for message in sent)
            connection.send(frames + h2.frame(h2.DATA, 0, stream, data))
            picker.wait_waiting(1)
            server.says("", "hang")
            said = connection.streams[stream]
            connection.run_until(said.messages)
            picked = classes()["ProcessingResponse"].FromString(said.messages()[0])
            assert endpoint_of(picked) == server.address
            connection.send(h2.reset(stream))
        picker.wait_at_rest()


def test_queue_small_body_pieces_count_overhead(start):
    """Each costs memory, however little is in it: the queue's limit of bytes holds, too."""
    picker = start(f"endpoints: [{A}]\nsaturation: {{max_in_flight: 1}}\nflow_control: {{max_bytes: 1MiB, max_wait: 10m}}\n")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = ask(proxy)
        assert endpoint_of(busy.next()) == A
        stream = ask(proxy, config=DUPLEX)
        picker.wait_waiting(1)
        stream.send(*[body(b"x")] * 1000)
        status, _, text = refusal_of(stream.next())
        assert status == 429 and "1048576 bytes" in text
        picker.wait_waiting(0)
        queued = ask(proxy, config=DUPLEX)
        picker.wait_waiting(1)
        assert "1 request queued" in http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()
        finish(busy)
        assert endpoint_of(queued.next()) == A
        finish(queued)
    picker.wait_at_rest()


def test_queue_admits_many_at_once(start):
    """More than are resumed between two polls of the worker's loop: all of them go on, though nothing else happens."""
    n = 200
    picker = start(f"endpoints: [{A}]\n{FLOW}", "--workers", "1")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        busy = ask(proxy)
        assert endpoint_of(busy.next()) == A
        queued = [ask(proxy) for _ in range(n)]
        picker.wait_waiting(n)
        picker.write_pool(f"endpoints: [{A}]\nsaturation: {{max_in_flight: {n + 1}}}\nflow_control: {{max_wait: 10m}}\n")
        for stream in queued:
            assert endpoint_of(stream.next()) == A
        for stream in [busy, *queued]:
            finish(stream)
        fresh = ask(proxy)
        assert endpoint_of(fresh.next()) == A
        finish(fresh)
    picker.wait_at_rest()


def test_queue_drain_timeout_cuts_off_waiting(start):
    """On several connections, at the headers and with bodies: what waits is cut off, and the picker ends in order."""
    picker = start(f"endpoints: [{A}, {B}]\n{FLOW}", "--drain-timeout", "5s", "--workers", "3")
    with contextlib.ExitStack() as open_ones:
        proxies = [open_ones.enter_context(Proxy(picker.grpc_addresses[0])) for _ in range(4)]
        busy = [ask(proxies[0]), ask(proxies[1])]
        assert {endpoint_of(stream.next()) for stream in busy} == {A, B}
        first = ask(proxies[2])
        picker.wait_waiting(1)
        queued = [ask(proxies[n % 4], config=DUPLEX if n % 2 else "NONE NONE") for n in range(24)]
        picker.wait_waiting(25)
        for stream in queued[1::2]:
            stream.send(*[body(b"x" * 1000)] * 10)
        picker.signal()
        picker.wait_for(lambda: "draining" in picker.log_text(), "a drain")
        finish(busy[0])
        assert endpoint_of(first.next()) in (A, B)  # and it does not end
        for stream in queued[4:8]:
            stream.reset()
        assert picker.wait_exit() == 0
        for stream in queued[:4] + queued[8:]:
            with pytest.raises(grpc.RpcError) as caught:
                stream.next()
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "requests in flight are aborted" in picker.log_text()

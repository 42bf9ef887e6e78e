"""`sluice pick` with endpoints that are names, against a DNS server whose records come and go, and which
falls silent, lies and dies."""
import threading
import time

import pytest

from lib import http1
from lib.metric_pages import MetricPages
from lib.names import Names
from lib.pick_client import Proxy, endpoint_of, headers
from lib.server import run

QUICK = ("--reload-interval", "50ms")
POOL = "sluice_pick_pool_endpoints"


@pytest.fixture
def names():
    with Names() as server:
        yield server


@pytest.fixture
def start(start_picker):
    """start(pool, flag, …): a picker of the test's own."""
    return lambda pool, *args: start_picker(pool, *QUICK, *args)


def pool_of(names, *endpoints, times="shortest: 50ms, timeout: 5s", more=""):
    listed = "".join(f"- {endpoint}\n" for endpoint in endpoints)
    return f"endpoints:\n{listed}dns: {{servers: ['{names.address}'], {times}}}\n{more}"


def picked(picker, n=30):
    """The endpoints of so many requests, one after the other."""
    with Proxy(picker.grpc_addresses[0]) as proxy:
        return {proxy.pick() for _ in range(n)}


def n_endpoints(numbers):
    return sum(value for name, value in numbers.items() if name.startswith(POOL + "{"))


def wait_endpoints(picker, *wanted):
    """The pool has these, and no others."""
    def fits(numbers):
        there = {name.split('"')[1] for name in numbers if name.startswith("sluice_pick_endpoint_ready{")}
        return there == set(wanted)
    return picker.wait_until(fits, f"the endpoints {wanted}")


def lookups(numbers, result):
    return numbers[f'sluice_pick_dns_lookups_total{{result="{result}"}}']


def wait_lookups(picker, result, more=2):
    """So many more of them have ended like that."""
    before = lookups(picker.numbers(), result)
    return picker.wait_until(lambda now: lookups(now, result) >= before + more, f"lookups: {result}")


def state(picker):
    return http1.request(picker.metrics_address, "GET", "/debug/state").body.decode()


def line_of(picker, name):
    return next(line for line in state(picker).splitlines() if line.startswith(f"name {name} "))


def wait_line(picker, name, *pieces):
    """What the status page says of the name, once one of the pieces is in it."""
    end = time.monotonic() + http1.PATIENCE
    while not any(piece in line_of(picker, name) for piece in pieces):
        assert time.monotonic() < end, line_of(picker, name)
        time.sleep(0.01)
    return line_of(picker, name)


def log_of(picker, event):
    return [line for line in picker.log_lines() if line.get("event", "").startswith(event)]


def check_logged_once(picker):
    """A name that fails is logged once, however often it is looked up; again only after it has recovered, as it may
    where the test's own server misses a time-out on a busy machine."""
    events = [line["event"] for line in log_of(picker, "DNS ")]
    assert any(event.startswith("DNS resolution failed") for event in events)
    assert all(event != after for event, after in zip(events, events[1:])), events


# ---- kinds of records ----------------------------------------------------------------------------

def test_dns_a_and_aaaa_records(start, names):
    """They are there from the first request on."""
    names.set("models.test", "A", "10.1.0.1", "10.1.0.2", ttl=60)
    names.set("models.test", "AAAA", "2001:db8::1", ttl=60)
    picker = start(pool_of(names, "models.test:8000"))
    assert picked(picker, 100) == {"10.1.0.1:8000", "10.1.0.2:8000", "[2001:db8::1]:8000"}
    assert names.n_asked("models.test", "A") == names.n_asked("models.test", "AAAA") == 1
    line = line_of(picker, "models.test")
    assert "(A and AAAA): resolved, answered " in line
    assert line.endswith(", 3 addresses: 10.1.0.1, 10.1.0.2, [2001:db8::1]")
    label = '{name="models.test",records="any"}'
    numbers = picker.numbers()
    assert numbers["sluice_pick_dns_addresses" + label] == 3
    assert numbers["sluice_pick_dns_failing" + label] == 0
    assert numbers["sluice_pick_dns_age_seconds" + label] >= 0


@pytest.mark.parametrize("kind, endpoint", [("A", "10.1.0.1:80"), ("AAAA", "[2001:db8::1]:80")])
def test_dns_single_record_type(start, names, kind, endpoint):
    names.set("models.test", "A", "10.1.0.1", ttl=60)
    names.set("models.test", "AAAA", "2001:db8::1", ttl=60)
    picker = start(pool_of(names, f"{{address: models.test, ports: 80, type: {kind}}}"))
    assert picked(picker) == {endpoint}
    assert names.n_asked("models.test") == 1


def test_dns_ports_and_labels(start, names):
    """An endpoint for each address and port; the labels are those of the entry."""
    names.set("a.test", "A", "10.1.0.1", "10.1.0.2", ttl=60)
    names.set("b.test", "A", "10.2.0.1", ttl=60)
    picker = start(pool_of(names, "{address: a.test, ports: [80, 81], labels: {zone: a}}",
                           "{address: b.test, labels: {zone: b}}", "{address: a.test:82, labels: {zone: b}}",
                           "10.3.0.1:80", more="ports: 90\nselector: {zone: a}\n"))
    wait_endpoints(picker, "10.1.0.1:80", "10.1.0.1:81", "10.1.0.2:80", "10.1.0.2:81")
    assert names.n_asked("a.test", "A") == 1  # two entries, one name
    picker.write_pool(pool_of(names, "{address: a.test, ports: [80, 81], labels: {zone: a}}",
                              "{address: b.test, labels: {zone: b}}", "{address: a.test:82, labels: {zone: b}}",
                              "10.3.0.1:80", more="ports: 90\nselector: {zone: b}\n"))
    wait_endpoints(picker, "10.2.0.1:90", "10.1.0.1:82", "10.1.0.2:82")
    assert names.n_asked("a.test", "A") == 1  # what is known of it stays


def test_dns_srv_lowest_priority_only(start, names):
    """SRV: the record's port, both kinds of address of each target, the lowest priority only."""
    names.set("_http._tcp.models.test", "SRV", (20, 0, 9000, "c.test"), (10, 5, 8001, "a.test"),
              (10, 0, 8002, "b.test"), (10, 0, 8003, "a.test"), ttl=60)
    names.set("a.test", "A", "10.1.0.1", ttl=60)
    names.set("a.test", "AAAA", "2001:db8::1", ttl=60)
    names.set("b.test", "A", "10.1.0.2", ttl=60)
    names.set("c.test", "A", "10.1.0.3", ttl=60)
    picker = start(pool_of(names, "{address: _http._tcp.models.test, type: SRV}"))
    assert picked(picker, 200) == {"10.1.0.1:8001", "[2001:db8::1]:8001", "10.1.0.2:8002", "10.1.0.1:8003",
                                   "[2001:db8::1]:8003"}
    assert names.n_asked("c.test") == 0


def test_dns_srv_missing_targets_use_next_priority(start, names):
    """Targets that don't exist leave it to the next priority, until they do."""
    names.set("_http._tcp.models.test", "SRV", (10, 0, 8001, "a.test"), (20, 0, 8002, "b.test"),
              (30, 0, 8003, "c.test"), ttl=0)
    names.set("b.test", "A", "10.1.0.2", ttl=0)
    names.set("c.test", "A", "10.1.0.3", ttl=0)
    picker = start(pool_of(names, "{address: _http._tcp.models.test, type: SRV}"))
    wait_endpoints(picker, "10.1.0.2:8002")
    names.set("a.test", "A", "10.1.0.1", ttl=0)
    wait_endpoints(picker, "10.1.0.1:8001")
    assert names.n_asked("c.test") == 0


def test_dns_srv_without_service_is_empty(start, names):
    """The target "." says so; a target that is no host is left out."""
    names.set("_http._tcp.none.test", "SRV", (0, 0, 80, "."), ttl=0)
    names.set("_http._tcp.odd.test", "SRV", (0, 0, 80, "a b.test"), (0, 0, 0, "c.test"), (0, 0, 81, "c.test"),
              ttl=0)
    names.set("c.test", "A", "10.1.0.3", ttl=0)
    picker = start(pool_of(names, "{address: _http._tcp.none.test, type: SRV}",
                           "{address: _http._tcp.odd.test, type: SRV}"))
    assert picked(picker) == {"10.1.0.3:81"}
    assert "has no addresses (the name has no such records)" in line_of(picker, "_http._tcp.none.test")
    assert "resolved in part (2 of its records name no host, or port 0)" in line_of(
        picker, "_http._tcp.odd.test")


def test_dns_cname_chain_is_followed(start, names):
    """A chain of them is followed, and counts no longer than the shortest of its records."""
    names.set("models.test", "CNAME", "one.test", ttl=0)
    names.set("one.test", "CNAME", "two.test", ttl=60)
    names.set("two.test", "CNAME", "three.test", ttl=60)
    names.set("three.test", "A", "10.1.0.1", ttl=60)
    picker = start(pool_of(names, "models.test:80"))
    assert picked(picker) == {"10.1.0.1:80"}
    names.set("models.test", "CNAME", "other.test", ttl=0)
    names.set("other.test", "A", "10.1.0.2", ttl=60)
    wait_endpoints(picker, "10.1.0.2:80")


def test_dns_name_on_command_line(start, names):
    """It is in the pool whatever the selector says."""
    names.set("models.test", "A", "10.1.0.1", ttl=60)
    picker = start(pool_of(names, "10.2.0.1:80", more="selector: {app: a}\n"), "--endpoint", "models.test:8000")
    assert picked(picker) == {"10.1.0.1:8000"}


def test_dns_localhost_uses_hosts_file(start, names):
    """localhost is no name for the DNS."""
    picker = start(pool_of(names, "{address: localhost, ports: 80, type: A}"))
    assert picked(picker) == {"127.0.0.1:80"}
    assert names.n_udp == 0


# ---- time ----------------------------------------------------------------------------------------

def test_dns_record_is_refreshed_after_ttl(start, names):
    """When their time is over, and not before: the other name's is not."""
    names.set("models.test", "A", "10.1.0.1", ttl=1)
    names.set("steady.test", "A", "10.2.0.1", ttl=3600)
    picker = start(pool_of(names, "models.test:80", "steady.test:80", times="shortest: 50ms, longest: 24h"))
    wait_endpoints(picker, "10.1.0.1:80", "10.2.0.1:80")
    names.set("models.test", "A", "10.1.0.2", ttl=1)
    wait_endpoints(picker, "10.1.0.2:80", "10.2.0.1:80")
    generation = picker.numbers()["sluice_pick_pool_generation"]
    n = names.n_asked("models.test", "A")
    picker.wait_until(lambda _: names.n_asked("models.test", "A") >= n + 2, "two more questions")
    assert names.n_asked("steady.test", "A") == 1
    assert picker.numbers()["sluice_pick_pool_generation"] == generation  # the same answer is no change


def test_dns_ttl_bounds(start, names):
    """A long time counts as `longest`; the file may make it shorter while it is running."""
    names.set("models.test", "A", "10.1.0.1", ttl=86400)
    picker = start(pool_of(names, "models.test:80", times="longest: 24h"))
    wait_endpoints(picker, "10.1.0.1:80")
    assert names.n_asked("models.test", "A") == 1
    names.set("models.test", "A", "10.1.0.2", ttl=86400)
    picker.write_pool(pool_of(names, "models.test:80", times="shortest: 20ms, longest: 100ms"))
    wait_endpoints(picker, "10.1.0.2:80")


def test_dns_record_change_under_load(start, names):
    """Whoever asks gets an endpoint, one that was in the DNS at some time; afterwards nothing is in flight."""
    every = [f"10.1.0.{n}" for n in range(1, 9)]
    names.set("models.test", "A", *every[:3], ttl=0)
    picker = start(pool_of(names, "models.test:80", times="shortest: 20ms"))
    ended, found, failed = threading.Event(), set(), []

    def load():
        try:
            with Proxy(picker.grpc_addresses[0]) as proxy:
                while not ended.is_set():
                    found.add(proxy.pick())
        except Exception as why:  # shown below
            failed.append(why)
    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for n in range(1, 12):
            chosen = [every[(n + i) % len(every)] for i in range(3)]
            names.set("models.test", "A", *chosen, ttl=0)
            wait_endpoints(picker, *(f"{address}:80" for address in chosen))
            assert picked(picker, 10) <= {f"{address}:80" for address in chosen}
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed and found <= {f"{address}:80" for address in every}
    picker.wait_at_rest()


def test_dns_unchanged_endpoint_keeps_in_flight_count(start, names):
    names.set("models.test", "A", "10.1.0.1", "10.1.0.2", ttl=0)
    picker = start(pool_of(names, "models.test:80"))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        held = [proxy.stream(headers()) for _ in range(2)]
        assert {endpoint_of(stream.next()) for stream in held} == {"10.1.0.1:80", "10.1.0.2:80"}
        names.set("models.test", "A", "10.1.0.2", "10.1.0.3", ttl=0)
        wait_endpoints(picker, "10.1.0.2:80", "10.1.0.3:80")
        count = 'sluice_pick_requests_in_flight{endpoint="10.1.0.%d:80"}'
        assert picker.numbers()[count % 2] == 1 and picker.numbers()[count % 3] == 0
        assert proxy.pick() == "10.1.0.3:80"
        for stream in held:
            stream.reset()
    picker.wait_at_rest()


# ---- what goes wrong -----------------------------------------------------------------------------

def check_it_stays(picker, names, result, why):
    """Whatever the server does, the pool is as it was, the page says why, and picks go on; then it is well."""
    label = '{name="models.test",records="A"}'
    numbers = wait_lookups(picker, result)
    assert numbers["sluice_pick_dns_failing" + label] == 1
    assert numbers["sluice_pick_dns_addresses" + label] == 2
    assert picked(picker) == {"10.1.0.1:80", "10.1.0.2:80"}
    wait_line(picker, "models.test", *why)  # on a busy machine one lookup may end for another reason
    names.behave("answer")
    names.set("models.test", "A", "10.1.0.2", "10.1.0.3", ttl=0)
    wait_endpoints(picker, "10.1.0.2:80", "10.1.0.3:80")
    assert picked(picker) == {"10.1.0.2:80", "10.1.0.3:80"}
    check_logged_once(picker)


@pytest.mark.parametrize("how, why", [
    ("drop", ["no server answered in time"]),
    ("noise", ["no server answered in time", "something that is no DNS"]),
    ("wrong_id", ["no server answered in time"]),
    ("servfail", ["no server answered, or each with an error", "SERVFAIL"]),
    ("refused", ["no server answered, or each with an error", "REFUSED"]),
    ("garbage", ["something that is no DNS", "in time"]),
    ("cut", ["something that is no DNS", "in time"]),
    ("loop", ["something that is no DNS", "in time"]),
])
def test_dns_invalid_answer_keeps_addresses(start, names, how, why):
    names.set("models.test", "A", "10.1.0.1", "10.1.0.2", ttl=0)
    picker = start(pool_of(names, "{address: models.test, ports: 80, type: A}",
                           times="shortest: 20ms, longest: 100ms, timeout: 100ms"))
    wait_endpoints(picker, "10.1.0.1:80", "10.1.0.2:80")
    names.behave(how)
    check_it_stays(picker, names, "failed", why)


@pytest.mark.parametrize("kind, address", [
    ("A", "0.0.0.0"), ("A", "224.0.0.1"), ("A", "255.255.255.255"), ("AAAA", "::"), ("AAAA", "ff02::1")])
def test_dns_address_of_no_server_is_ignored(start, names, kind, address):
    names.set("models.test", "A", "10.1.0.1", ttl=0)
    names.set("models.test", "AAAA", "::ffff:a01:1", ttl=0)  # the same server
    picker = start(pool_of(names, "{address: models.test, ports: 80}", times="shortest: 20ms, longest: 100ms"))
    wait_endpoints(picker, "10.1.0.1:80")
    names.set("models.test", kind, address, "10.1.0.2" if kind == "A" else "2001:db8::2", ttl=0)
    wait_endpoints(picker, *(["10.1.0.2:80", "10.1.0.1:80"] if kind == "A" else ["10.1.0.1:80", "[2001:db8::2]:80"]))
    wait_line(picker, "models.test", "has an address that no server can have")


@pytest.mark.parametrize("kind", ["A", "AAAA"])
def test_dns_malformed_record_is_no_address(start, names, kind):
    """Records whose data is not as long as an address, or of another class, are no addresses, whether c-ares leaves
    out each of them or, as later releases do, the answer that they are in."""
    addresses = [f"10.1.0.{n}" if kind == "A" else f"2001:db8::{n}" for n in (1, 2, 3)]
    first, second, third = (f"{address}:80" if kind == "A" else f"[{address}]:80" for address in addresses)
    names.set("models.test", kind, addresses[0], ttl=0)
    picker = start(pool_of(names, f"{{address: models.test, ports: 80, type: {kind}}}",
                           times="shortest: 20ms, longest: 100ms"))
    wait_endpoints(picker, first)
    names.behave("odd")
    for good in (addresses[1:2], []):
        names.set("models.test", kind, *good, ttl=0)
        n = names.n_asked("models.test")
        picker.wait_until(lambda _: names.n_asked("models.test") >= n + 3, "three more questions")
        assert picked(picker) in ({first}, {second})
    names.behave("answer")
    names.set("models.test", kind, addresses[2], ttl=0)
    wait_endpoints(picker, third)


@pytest.mark.parametrize("how", ["garbage", "cut", "loop", "noise", "servfail", "hang"])
def test_dns_srv_invalid_answer_keeps_addresses(start, names, how):
    """The same where the answer is for our own reader."""
    names.set("models.test", "SRV", *((0, 0, 80 + n, f"host-{n}.test") for n in range(60)), ttl=0)
    for n in range(60):
        names.set(f"host-{n}.test", "A", f"10.1.0.{n}", ttl=0)
    picker = start(pool_of(names, "{address: models.test, type: SRV}",
                           times="shortest: 20ms, longest: 100ms, timeout: 300ms"))
    picker.wait_until(lambda now: n_endpoints(now) == 60, "60 endpoints")
    names.behave(how, "models.test")
    wait_lookups(picker, "failed")
    assert n_endpoints(picker.numbers()) == 60 and len(picked(picker, 100)) > 20
    names.behave("answer", "models.test")
    names.set("models.test", "SRV", (0, 0, 80, "host-0.test"), ttl=0)
    wait_endpoints(picker, "10.1.0.0:80")


def test_dns_server_exit_keeps_addresses(start):
    names = Names()
    names.set("models.test", "A", "10.1.0.1", "10.1.0.2", ttl=0)
    picker = start(pool_of(names, "models.test:80", times="shortest: 20ms, longest: 100ms, timeout: 300ms"))
    wait_endpoints(picker, "10.1.0.1:80", "10.1.0.2:80")
    names.close()
    wait_lookups(picker, "failed", 3)
    assert picked(picker) == {"10.1.0.1:80", "10.1.0.2:80"}
    wait_line(picker, "models.test", "failing (no server answered")
    with Names() as other:  # the file names another server
        other.set("models.test", "A", "10.1.0.3", ttl=0)
        picker.write_pool(pool_of(other, "models.test:80", times="shortest: 20ms"))
        wait_endpoints(picker, "10.1.0.3:80")
        check_logged_once(picker)


def test_dns_failed_record_type_keeps_addresses(start, names):
    """Of two kinds one fails: its addresses stay, the other's come and go."""
    names.set("a.test", "A", "10.1.0.1", ttl=0)
    names.set("b.test", "A", "10.1.0.2", ttl=0)
    names.set("models.test", "SRV", (0, 0, 80, "a.test"), (0, 0, 81, "b.test"), ttl=0)
    picker = start(pool_of(names, "{address: models.test, type: SRV}",
                           times="shortest: 20ms, longest: 100ms, timeout: 300ms"))
    wait_endpoints(picker, "10.1.0.1:80", "10.1.0.2:81")
    names.behave("servfail", "a.test")
    wait_lookups(picker, "partial")
    names.set("b.test", "A", "10.1.0.3", ttl=0)
    wait_endpoints(picker, "10.1.0.1:80", "10.1.0.3:81")
    names.set("models.test", "SRV", (0, 0, 81, "b.test"), ttl=0)
    wait_endpoints(picker, "10.1.0.3:81")


@pytest.mark.parametrize("gone", ["forget", "empty", "lame"])
def test_dns_removed_name_expires(start, names, gone):
    """It keeps its addresses for a while, and then has none; when it is back, so are they."""
    names.set("models.test", "A", "10.1.0.1", ttl=0)
    names.set("models.test", "AAAA", "2001:db8::1", ttl=0)
    lose = {"forget": lambda: names.forget("models.test"), "lame": lambda: names.behave("lame"),
            "empty": lambda: [names.set("models.test", kind) for kind in ("A", "AAAA")]}[gone]
    pool = [names, "models.test:80", "10.2.0.1:80"]
    picker = start(pool_of(*pool, times="shortest: 20ms, longest: 100ms, keep: 1h"))
    wait_endpoints(picker, "10.1.0.1:80", "[2001:db8::1]:80", "10.2.0.1:80")
    with names.between_lookups("models.test"):
        lose()
    wait_lookups(picker, "empty", 3)
    assert n_endpoints(picker.numbers()) == 3
    picker.write_pool(pool_of(*pool, times="shortest: 20ms, longest: 100ms, keep: 0s"))
    wait_endpoints(picker, "10.2.0.1:80")
    assert picked(picker) == {"10.2.0.1:80"}
    assert "has no addresses (" in line_of(picker, "models.test")
    names.forget("models.test")
    names.set("models.test", "A", "10.1.0.7", ttl=0)
    names.behave("answer")
    wait_endpoints(picker, "10.1.0.7:80", "10.2.0.1:80")
    assert [line["kept"] for line in log_of(picker, "DNS name has no addresses")] == [2, 0]


def test_dns_unknown_name_has_no_endpoints(start, names):
    """The others are picked; a request for it alone is refused, and not for ever."""
    picker = start(pool_of(names, "nowhere.test:80"))
    assert "has no addresses (there is no such name)" in line_of(picker, "nowhere.test")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.refuse()[0] == 503
    names.set("nowhere.test", "A", "10.1.0.1", ttl=0)
    wait_endpoints(picker, "10.1.0.1:80")
    assert picked(picker) == {"10.1.0.1:80"}


def test_dns_start_without_server(start):
    """It starts all the same, with what it has, and finds the rest later."""
    with Names() as names:
        names.behave("drop")
        names.set("models.test", "A", "10.1.0.1", ttl=0)
        picker = start(pool_of(names, "models.test:80", "10.2.0.1:80",
                               times="shortest: 20ms, longest: 100ms, timeout: 4s"))
        assert picked(picker) == {"10.2.0.1:80"}
        assert "not answered yet" in line_of(picker, "models.test")
        names.behave("answer")
        wait_endpoints(picker, "10.1.0.1:80", "10.2.0.1:80")


def test_dns_truncated_answer_uses_tcp(start, names):
    """A thousand records: cut short over UDP, whole over TCP."""
    addresses = [f"10.1.{n // 250}.{n % 250}" for n in range(1000)]
    names.set("models.test", "A", *addresses, ttl=60)
    picker = start(pool_of(names, "models.test:80", times="timeout: 5s"))
    picker.wait_until(lambda now: n_endpoints(now) == 1000, "1,000 endpoints")
    assert names.n_tcp == 1
    assert picked(picker, 10) <= {f"{address}:80" for address in addresses}
    assert line_of(picker, "models.test").endswith(" and 900 more")


def test_dns_srv_thousand_records(start, names):
    names.set("models.test", "SRV", *((0, 0, 1 + n, f"host-{n % 100}.test") for n in range(1000)), ttl=60)
    for n in range(100):
        names.set(f"host-{n}.test", "A", f"10.1.0.{n}", ttl=60)
    picker = start(pool_of(names, "{address: models.test, type: SRV}", times="timeout: 5s"))
    picker.wait_until(lambda now: n_endpoints(now) == 1000, "1,000 endpoints")
    assert len(picked(picker, 50)) > 20


def test_dns_tcp_timeout_keeps_addresses(start, names):
    """An answer that is cut short over UDP, and hangs over TCP."""
    names.set("models.test", "A", "10.1.0.1", ttl=0)
    picker = start(pool_of(names, "{address: models.test, ports: 80, type: A}",
                           times="shortest: 20ms, longest: 100ms, timeout: 300ms"))
    wait_endpoints(picker, "10.1.0.1:80")
    names.behave("hang")
    names.set("models.test", "A", *(f"10.1.1.{n}" for n in range(100)), ttl=0)
    wait_lookups(picker, "failed")
    assert names.n_tcp > 0 and picked(picker) == {"10.1.0.1:80"}
    names.behave("answer")
    picker.wait_until(lambda now: n_endpoints(now) == 100, "100 endpoints")


def test_dns_many_names_half_failing(start, names):
    """Three hundred, half of which fail: the others are found, and keep being found."""
    for n in range(0, 300, 2):
        names.set(f"host-{n}.test", "A", f"10.1.{n // 200}.{n % 200}", ttl=0)
        names.behave("servfail", f"host-{n + 1}.test")
    picker = start(pool_of(names, *(f"host-{n}.test:80" for n in range(300)), times="shortest: 200ms"))
    picker.wait_until(lambda now: n_endpoints(now) == 150, "150 endpoints")
    names.set("host-298.test", "A", "10.9.9.9", ttl=0)
    picker.wait_until(lambda now: 'sluice_pick_endpoint_ready{endpoint="10.9.9.9:80"}' in now, "the new address")


# ---- with the rest -------------------------------------------------------------------------------

def test_dns_endpoints_are_health_checked(start, names):
    """Who comes from the DNS is checked like the others; a picker that starts knows them."""
    with MetricPages("ok", "127.0.0.1:0") as one:
        names.set("models.test", "A", "127.0.0.1", "127.0.0.2", ttl=0)
        picker = start(pool_of(names, f"models.test:{one.port}",
                               more="health: {http: /ready, interval: 20ms, timeout: 20s}\n"))
        picker.wait_until(lambda now: now[POOL + '{state="unchecked"}'] == 0, "checks")
        assert picked(picker) == {one.address}  # nothing listens at the other
        with MetricPages("ok", f"127.0.0.2:{one.port}") as other:
            picker.wait_ready_endpoints(2)
            assert picked(picker) == {one.address, other.address}


def test_dns_names_follow_file_reload(start, names):
    """Names come and go with it; one that can't be used leaves them as they are."""
    names.set("a.test", "A", "10.1.0.1", ttl=0)
    names.set("b.test", "A", "10.1.0.2", ttl=0)
    picker = start(pool_of(names, "a.test:80"))
    for n in range(3):
        picker.write_pool(pool_of(names, "b.test:80"))
        wait_endpoints(picker, "10.1.0.2:80")
        picker.write_pool(pool_of(names, "10.3.0.1:80"))
        wait_endpoints(picker, "10.3.0.1:80")
        picker.write_pool(pool_of(names, "a.test:80", f"b.test:8{n}"))
        wait_endpoints(picker, "10.1.0.1:80", f"10.1.0.2:8{n}")
    picker.expected_errors.append("pool configuration invalid: the previous one stays in use")
    picker.write_pool("endpoints: [10.0.0.256:80]\n")
    picker.wait_until(lambda now: now['sluice_reload_failures_total{files="pool"}'] == 1, "a failure")
    names.set("a.test", "A", "10.1.0.9", ttl=0)
    wait_endpoints(picker, "10.1.0.9:80", "10.1.0.2:82")


def test_dns_names_of_several_pools(start, names):
    """Each has its names, and may ask servers of its own; a name of both is asked for once."""
    names.set("a.test", "A", "10.1.0.1", ttl=60)
    names.set("b.test", "A", "10.1.0.2", ttl=0)
    with Names() as inner:
        inner.set("a.test", "A", "10.9.0.1", ttl=60)
        picker = start(f"""
pools:
- name: one
  match: {{path_prefix: /one}}
  endpoints: [a.test:80]
  dns: {{servers: ['{names.address}'], shortest: 50ms}}
- name: two
  match: {{path_prefix: /two}}
  endpoints: [a.test:81, b.test:82]
  dns: {{servers: ['{names.address}'], shortest: 50ms}}
- name: three
  match: {{path_prefix: /three}}
  endpoints: [a.test:83]
  dns: {{servers: ['{inner.address}'], shortest: 50ms}}
""")
        with Proxy(picker.grpc_addresses[0]) as proxy:
            def of(path):
                return {proxy.pick(path) for _ in range(30)}
            assert of("/one/x") == {"10.1.0.1:80"}
            assert of("/two/x") == {"10.1.0.1:81", "10.1.0.2:82"}
            assert of("/three/x") == {"10.9.0.1:83"}
            names.set("b.test", "A", "10.1.0.3", ttl=0)
            picker.wait_until(lambda now: any("10.1.0.3:82" in name for name in now), "the new address")
            assert of("/two/x") == {"10.1.0.1:81", "10.1.0.3:82"}
        assert names.n_asked("a.test", "A") == inner.n_asked("a.test", "A") == 1
        assert len([line for line in state(picker).splitlines() if line.startswith("name a.test ")]) == 2


def test_dns_check_queries_nothing(tmp_path, names):
    """Nothing is asked by it, nor by an explanation, which says so."""
    file = tmp_path / "pool.yaml"
    file.write_text(pool_of(names, "Models.test:80", "{address: _http._tcp.a.test, type: SRV, labels: {a: b}}"))
    done = run("pick", "--config", file, "--check", "--endpoint", "other.test:81")
    said = done.stdout
    assert done.returncode == 0
    assert "endpoints   0\n" in said and "names       3, " in said
    assert "  models.test                   A and AAAA, port 80\n" in said
    assert "  _http._tcp.a.test             SRV  a=b\n" in said
    assert "  other.test                    A and AAAA, port 81\n" in said
    assert f"dns         asks {names.address}, " in said
    assert "names are not resolved here" in run("pick", "--config", file, "--explain").stdout
    assert names.n_udp == 0


@pytest.mark.parametrize("endpoint", ["10.0.0.256:80", "models..test:80", "-:80x", "a b.test:80", "models.test",
                                      f"{'x' * 64}.test:80", "models.test:0", "models.test:65536", ":80",
                                      "models.test:+80"])
def test_dns_invalid_name_is_usage_error(endpoint):
    done = run("pick", "--endpoint", endpoint, "--check")
    assert done.returncode == 2 and "expected IP:PORT" in done.stderr and "NAME:PORT" in done.stderr

"""Session affinity by ids that clients send: requests of a session go to one endpoint, of each stage to its own, and
stay there when the configuration is read again."""
import pytest

from lib.pick_client import Proxy, endpoint_of, headers, set_headers
from lib.pick_config import upstream_config

pytestmark = pytest.mark.tsan

HEADER = "x-session-id"
PREFILLER = "x-prefiller-host-port"


def affinity(name, **parameters):
    return {"type": "session-affinity-filter", "name": name, "parameters": {"strategy": "session_id", **parameters}}


def profile(name, *plugins):
    return {"name": name, "plugins": [{"pluginRef": plugin} for plugin in plugins]}


def single(endpoints, **parameters):
    return upstream_config([affinity("sessions", **parameters), {"type": "random-picker"}, {"type": "agent-identity"}],
                           endpoints, schedulingProfiles=[profile("default", "sessions", "random-picker")])


def test_session_stays_at_its_endpoint(start_picker):
    """One of six at random for a new session; then always that one, by header or by an agent's header, over a reload
    and while other endpoints come and go; elsewhere when it leaves."""
    endpoints = [f"10.0.0.{i}:8000" for i in range(1, 7)]
    sources = {"sessionIdConfig": {"sources": [{"header": "X-Session-Id"}, {"attribute": "agent-identity"}]}}
    picker = start_picker(single(endpoints, **sources), "--reload-interval", "50ms")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        def of(name, header=HEADER):
            return proxy.pick(fields={header: name})
        first = {name: of(name) for name in map(str, range(30))}
        assert len(set(first.values())) > 1
        for _ in range(3):
            assert {name: of(name) for name in first} == first
        assert {name: of(name, "session_id") for name in first} == first  # an agent's own header has the id
        assert len({proxy.pick() for _ in range(100)}) == len(endpoints)
        picker.write_pool(single(endpoints + ["10.0.0.9:8000"], **sources))
        picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == 2, "the second pool")
        assert {name: of(name) for name in first} == first
        gone = first["7"]
        picker.write_pool(single([one for one in endpoints if one != gone], **sources))
        picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == 3, "the third pool")
        moved = {name: of(name) for name in first}
        assert gone not in moved.values()
        assert all(moved[name] == at for name, at in first.items() if at != gone)
        picker.write_pool(single(endpoints, **sources))
        picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == 4, "the fourth pool")
        assert {name: of(name) for name in first} == moved


def test_sessions_of_two_stages(start_picker):
    """Each stage has a plugin of its own, which binds the session to that stage's endpoint."""
    plugins = [{"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "always-disagg-pd-decider"}}},
               {"type": "always-disagg-pd-decider"}, {"type": "prefill-filter"}, {"type": "decode-filter"},
               {"type": "random-picker"}, affinity("at-decode"), affinity("at-prefill", profileName="prefill")]
    profiles = [profile("prefill", "prefill-filter", "at-prefill", "random-picker"),
                profile("decode", "decode-filter", "at-decode", "random-picker")]
    endpoints = [{"address": f"10.0.0.{i}:8000", "labels": {"llm-d.ai/role": "prefill" if i < 6 else "decode"}}
                 for i in range(1, 11)]
    picker = start_picker(upstream_config(plugins, endpoints, schedulingProfiles=profiles))

    def stages(proxy, name):
        said = proxy.ask("/v1/completions", fields={HEADER: name} if name else {})
        return endpoint_of(said), set_headers(said)[PREFILLER]
    with Proxy(picker.grpc_addresses[0]) as proxy:
        first = {name: stages(proxy, name) for name in map(str, range(12))}
        assert len({decode for decode, _ in first.values()}) > 1 and len({at for _, at in first.values()}) > 1
        for _ in range(3):
            assert {name: stages(proxy, name) for name in first} == first
        assert len({stages(proxy, None) for _ in range(60)}) > 10


def test_session_producers_find_ids_in_header_and_cookie(start_picker):
    """A source names a producer; the first id that there is counts. Cookies have a header each, as in HTTP/2, or share
    one; other cookies and blanks do not matter, and a malformed one is no session."""
    endpoints = [f"10.0.0.{i}:8000" for i in range(1, 7)]
    sources = [{"attribute": "SessionIDDataKey", "producer": "by-header"},
               {"attribute": "SessionIDDataKey", "producer": "session-id-producer"}]
    plugins = [affinity("sessions", sessionIdConfig={"sources": sources}), {"type": "random-picker"},
               {"type": "session-id-producer", "parameters": {"cookieName": "llm-d-session"}},
               {"type": "session-id-producer", "name": "by-header", "parameters": {"headerName": "X-Mine"}}]
    picker = start_picker(upstream_config(plugins, endpoints, schedulingProfiles=[
        profile("default", "sessions", "session-id-producer", "random-picker")]))
    with Proxy(picker.grpc_addresses[0]) as proxy:
        first = {name: proxy.pick(fields={"x-mine": name}) for name in map(str, range(20))}
        assert len(set(first.values())) > 1
        for form in ("llm-d-session={}", "a=1; llm-d-session={} ;b", "llm-d-sessions=7;llm-d-session={}"):
            assert {name: proxy.pick(fields={"cookie": form.format(name)}) for name in first} == first
        for name, at in first.items():
            assert proxy.pick(fields={"x-mine": name, "cookie": "llm-d-session=other"}) == at
            head = headers("/", fields={"cookie": "a=b"})
            head.request_headers.headers.headers.add(key="cookie", raw_value=f"llm-d-session={name}".encode())
            stream = proxy.stream(head)
            assert endpoint_of(stream.next()) == at
            stream.close()
            assert proxy.pick(fields={"x-mine": "  ", "cookie": f"llm-d-session={name}"}) == at
        for none in ({}, {"cookie": ""}, {"cookie": "llm-d-session"}, {"cookie": ";;;="}, {"cookie": "llm-d-session=a b"}):
            assert len({proxy.pick(fields=none) for _ in range(60)}) > 1, none

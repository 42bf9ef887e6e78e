"""A real Envoy, and servers that share the work on a request: three that decode, three that prefill, two that encode.
Each server says which headers it got: those that name the other servers are the picker's, whatever a client sent."""
import collections
import contextlib
import json
import re

import pytest

from lib import echo
from lib.gateway import IN_PROCESS, Gateway

ROLES = {"decode": 3, "prefill": 3, "encode": 2}
SERVER_HEADERS = {"prefill": "x-prefiller-host-port", "encode": "x-encoder-hosts-ports"}
OTHERS = ("x-data-parallel-host-port", "x-kv-cache-source-host-port")
FORGED = [arg for name in (*SERVER_HEADERS.values(), *OTHERS) for arg in ("-H", f"{name}: 203.0.113.1:1")]
CONFIGS = ("full-duplex.yaml", "buffered.yaml", IN_PROCESS)
PROFILE = """
profile:
  plugins:
    - type: decode-filter
    - type: prefill-filter
    - type: encode-filter
    - type: active-request-scorer
    - type: always-disagg-multimodal-decider
    - {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 100}}
    - type: disagg-profile-handler
      parameters:
        deciders: {prefill: prefix-based-pd-decider, encode: always-disagg-multimodal-decider}
  schedulingProfiles:
    - {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer}]}
    - {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: active-request-scorer}]}
    - {name: encode, plugins: [{pluginRef: encode-filter}, {pluginRef: active-request-scorer}]}
"""
# What the proxy lets the picker choose from.
HINT = """                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata:
                        - metadata_namespace: envoy.lb.subset_hint
                          value: {x-gateway-destination-endpoint-subset: %s}
"""
FIRST_FILTER = re.compile(r"^ +- name: (envoy\.filters\.http\.ext_proc|sluice)\n", re.M)


@pytest.fixture(scope="module")
def servers():
    """Those of each role."""
    with contextlib.ExitStack() as ending:
        started = {role: [echo.Echo(f"{role}{i}") for i in range(n)] for role, n in ROLES.items()}
        for one in sum(started.values(), []):
            ending.callback(one.close)
        yield started


def pool_of(servers):
    return "endpoints:\n" + "".join(
        f'- {{address: "{one.address}", labels: {{llm-d.ai/role: {role}}}}}\n'
        for role, some in servers.items() for one in some) + PROFILE


@pytest.fixture(params=CONFIGS)
def gateway(request, tmp_path, servers):
    decoders = [one.address for one in servers["decode"]]
    allowed = [one.address for some in servers.values() for one in some[:-1]]

    def start(pool=pool_of(servers), n_ready=8, hinted=False):
        def more(text):
            assert FIRST_FILTER.search(text)
            return FIRST_FILTER.sub(lambda found: HINT % json.dumps(allowed) + found[0], text) if hinted else text
        started = Gateway(tmp_path, request.param, decoders, change=lambda _: pool, more=more, n_ready=n_ready)
        ending.callback(started.kill)
        return started
    with contextlib.ExitStack() as ending:
        yield start


def chat(text, picture=False):
    content = [{"type": "text", "text": text}]
    if picture:
        content.append({"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}})
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()


def ask(gateway, body):
    """The server that answered, and what it was told of others."""
    said = gateway.ask("/v1/chat/completions", "-H", "content-type: application/json", *FORGED, body=body)
    assert not any(name in said["headers"] for name in OTHERS), said
    return said["server"], {role: said["headers"].get(name) for role, name in SERVER_HEADERS.items()}


@pytest.mark.parametrize("hinted", [False, True])
def test_envoy_stages_have_endpoints_of_their_role(gateway, servers, hinted):
    """Prompts that are long and new, with and without a picture, and short ones."""
    started = gateway(hinted=hinted)
    n_left_out = 1 if hinted else 0
    seen = collections.defaultdict(set)
    for number in range(24):
        server, others = ask(started, chat(f"{number:04d} " * 200, picture=number % 2 == 0))
        seen["decode"].add(server)
        seen["prefill"].add(others["prefill"])
        assert (others["encode"] is None) == (number % 2 == 1), others
        seen["encode"] |= {others["encode"]} - {None}
        server, others = ask(started, chat("short"))
        assert others == {"prefill": None, "encode": None}
    assert seen["decode"] == {one.name for one in servers["decode"][:3 - n_left_out]}
    for role in ("prefill", "encode"):
        assert seen[role] == {one.address for one in servers[role][:ROLES[role] - n_left_out]}
    numbers = started.picker.wait_at_rest()
    assert numbers['sluice_pick_stages_total{stage="prefill",result="picked"}'] == 24
    assert numbers['sluice_pick_stages_total{stage="prefill",result="left_out"}'] == 24
    assert numbers['sluice_pick_stages_total{stage="encode",result="picked"}'] == 12
    labels = 'plugin_name="disagg-profile-handler",plugin_type="disagg-profile-handler",model_name="m"'
    for decision, n in {"decode-only": 24, "prefill-decode": 12, "encode-prefill-decode": 12}.items():
        assert numbers[f'llm_d_epp_disagg_decision_total{{{labels},decision_type="{decision}"}}'] == n
    started.stop()


def test_envoy_stage_without_endpoint_is_skipped_or_refused(gateway, servers):
    """Neither a server that prefills nor one that encodes."""
    some = {"decode": servers["decode"]}
    started = gateway(pool_of(some), n_ready=3)
    _, others = ask(started, chat("x" * 1000, picture=True))
    assert others == {"prefill": None, "encode": None}
    started.stop()
    started = gateway(pool_of(some).replace("      parameters:\n", "      parameters:\n        missingStage: refuse\n"),
                      n_ready=3)
    reply = started.curl("/v1/chat/completions", "-H", "content-type: application/json",
                         body=chat("x" * 1000, picture=True))
    assert reply.status == 503, reply
    assert ask(started, chat("short"))[1] == {"prefill": None, "encode": None}
    started.stop()

"""What the gateways' conformance suite needs of the picker behind the gateway: its own requests, through a real
Envoy that tells the picker who served. The headers are switched on in each of the ways that there are."""
import collections
import concurrent.futures
import json

import pytest

from lib import echo
from lib.gateway import IN_PROCESS, Gateway, override_host_in_process

CHOOSE = "test-epp-endpoint-selection"
TOLD = "x-conformance-test-served-endpoint"
BODY = json.dumps({"model": "conformance-fake-model",
                   "prompt": "Write as if you were a critic: San Francisco"}).encode()
PLUGINS = """---
apiVersion: {version}
kind: EndpointPickerConfig
plugins:
- type: header-based-testing-filter
- type: destination-endpoint-served-verifier
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: header-based-testing-filter
  - pluginRef: max-score-picker
"""
FORMS = {
    "llm-d": PLUGINS.format(version="llm-d.ai/v1alpha1"),
    "upstream": PLUGINS.format(version="inference.networking.x-k8s.io/v1alpha1"),
    "setting": "protocol: {conformance: true}\n",
}


@pytest.fixture(scope="module", params=[(form, config) for form in FORMS for config in ("override-host.yaml", IN_PROCESS)],
                ids="-".join)
def gateway(request, tmp_path_factory):
    """Three backends behind it; the pool has nothing but their addresses and the form."""
    form, config = request.param
    with echo.three() as started:
        endpoints = [one.address for one in started]

        def change(text):
            return text[:text.index("models:")] + FORMS[form]
        made = Gateway(tmp_path_factory.mktemp("gateway"), config, endpoints, change=change, pool="pool-fallback.yaml",
                       more=lambda text: override_host_in_process(text, endpoints) if config == IN_PROCESS else text)
        made.form = form
        try:
            yield made
            made.stop()
        finally:
            made.kill()


def ask(gateway, chosen=None):
    """Returns: status, who the backend says it is, who served."""
    fields = ["-H", f"{CHOOSE}: {chosen}"] if chosen is not None else []
    reply = gateway.curl("/primary-gateway-test", "-H", "content-type: application/json", *fields, body=BODY)
    name = json.loads(reply.body)["server"] if reply.status == 200 else None
    return reply.status, name, reply.headers.get(TOLD)


def ask_many(gateway, chosen, n=100):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        return collections.Counter(pool.map(lambda _: ask(gateway, chosen), range(n)))


def test_conformance_each_address_is_served(gateway):
    for name, address in zip("abc", gateway.endpoints):
        assert ask_many(gateway, address, 20) == {(200, name, address): 20}


def test_conformance_two_addresses_are_served(gateway):
    a, _, c = gateway.endpoints
    said = ask_many(gateway, f"{c}, {a}")
    assert said.total() == 100
    assert set(said) <= {(200, "a", a), (200, "c", c)}


def test_conformance_ip_without_port_matches_all_ports(gateway):
    host = gateway.endpoints[0].rpartition(":")[0]
    said = ask_many(gateway, host, 30)
    assert set(said) <= {(200, name, address) for name, address in zip("abc", gateway.endpoints)}


@pytest.mark.parametrize("chosen", ["192.0.2.1:3000", "nobody", "127.0.0.1:1"])
def test_conformance_unknown_address_is_503(gateway, chosen):
    """Envoy's filter here fails open on errors, not on an answer of the picker's own."""
    assert ask(gateway, chosen) == (503, None, None)
    assert ask(gateway, gateway.endpoints[1])[:2] == (200, "b")


def test_conformance_request_without_header(gateway):
    """The plugin lets nobody through, as upstream's; the setting leaves such requests alone."""
    status, name, told = ask(gateway)
    if gateway.form == "setting":
        assert (status, told) == (200, dict(zip("abc", gateway.endpoints))[name])
    else:
        assert (status, name, told) == (503, None, None)

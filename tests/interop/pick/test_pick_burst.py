"""Requests of a burst, over several connections, are held for a moment and placed by their prompts; other traffic
is not held."""
import json

import pytest

from lib.pick_client import Proxy, body, endpoint_of, headers

CONFIG = """
endpoints: [10.0.0.1:8000, 10.0.0.2:8000, 10.0.0.3:8000, 10.0.0.4:8000]
---
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: token-producer
- type: burst-prefix-cache-producer
  parameters: {windowDurationMs: 1500, maxPerReplica: 4}
- type: prefix-cache-scorer
  parameters: {prefixMatchInfoProducerName: burst-prefix-cache-producer}
- type: load-aware-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-scorer, weight: 2.0}
  - {pluginRef: load-aware-scorer, weight: 1.0}
  - {pluginRef: max-score-picker}
"""


@pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "BUFFERED"])
def test_burst_is_placed_by_prompts(start_picker, mode):
    picker = start_picker(CONFIG, "--workers", "3")
    proxies = [Proxy(picker.grpc_addresses[0]) for _ in range(6)]
    streams = []
    for i in range(24):
        prompt = {"model": "m", "prompt": f"prompt {i % 3} " + "of many words " * 40}
        stream = proxies[i % 6].stream(headers("/v1/completions", config=f"{mode} NONE"))
        if mode == "BUFFERED":
            assert stream.next().WhichOneof("response") == "request_headers"
        streams.append(stream.send(body(json.dumps(prompt).encode(), True)))
    leaving = streams.pop()  # of prompt 2: it leaves while it is held
    leaving.reset()
    picked = [endpoint_of(stream.next()) for stream in streams]
    for number, most in ((0, 2), (1, 2), (2, 2)):
        of_prompt = picked[number::3]
        counts = [of_prompt.count(one) for one in set(of_prompt)]
        assert len(counts) <= most and max(counts) <= 4, picked
    for stream in streams:
        stream.reset()
    plain = proxies[0].stream(headers("/v1/models", method="GET", end=True))
    assert endpoint_of(plain.next())
    plain.reset()
    for proxy in proxies:
        proxy.channel.close()

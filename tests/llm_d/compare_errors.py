#!/usr/bin/env python3
"""Requests that fail, and odd ones, to llm-d-router's endpoint picker and to ours: status, headers and body of both.

  tests/llm_d/compare_errors.py ROUTER

ROUTER is a built llm-d-router (its cmd/epp), SLUICE_BUILD the build that is compared. Prints a row for each request, and ends
with 1 where statuses differ and DIFFERENT does not say so."""
import argparse
import contextlib
import json
import pathlib
import sys
import tempfile

import both
import cases
import compare_picks
import fleet

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
GOOD = json.dumps({"model": "m", "prompt": "a prompt"}).encode()
HEADER_PROFILES = {
    "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
    "plugins": [{"type": "queue-scorer"}, {"type": "decode-filter"}, {"type": "prefill-filter"}, {"type": "encode-filter"},
                {"type": "header-profile-handler"}],
    "schedulingProfiles": [{"name": role, "plugins": [{"pluginRef": f"{role}-filter"}, {"pluginRef": "queue-scorer"}]}
                           for role in ("decode", "prefill", "encode")]}
LABELS = cases.profile({"type": "label-selector-filter", "parameters": {"matchLabels": {"zone": "nowhere"}}}, "queue-scorer")
# (configuration, name, request)
REQUESTS = [
    ("plain", "a completion", {}),
    ("plain", "a body without a model", {"data": b'{"prompt": "x"}'}),
    ("plain", "a model that is a number", {"data": b'{"model": 1, "prompt": "x"}'}),
    ("plain", "an empty model", {"data": b'{"model": "", "prompt": "x"}'}),
    ("plain", "a body without a prompt", {"data": b'{"model": "m"}'}),
    ("plain", "a prompt that is a number", {"data": b'{"model": "m", "prompt": 1}'}),
    ("plain", "an empty prompt", {"data": b'{"model": "m", "prompt": ""}'}),
    ("plain", "messages that are a text", {"path": CHAT, "data": b'{"model": "m", "messages": "x"}'}),
    ("plain", "a chat without messages", {"path": CHAT, "data": b'{"model": "m", "messages": []}'}),
    ("plain", "a body that is cut off", {"data": b'{"model": "m", "prompt": "x'}),
    ("plain", "a body that is no JSON", {"data": b"hello"}),
    ("plain", "an empty body", {"data": b""}),
    ("plain", "a body that is a list", {"data": b"[]"}),
    ("plain", "a body that is not UTF-8", {"data": b'{"model": "m", "prompt": "\xff"}'}),
    ("plain", "a request without a body", {"path": "/v1/models", "data": None}),
    ("plain", "an unknown path", {"path": "/v1/other", "data": b'{"model": "m"}'}),
    ("plain", "a subset of an endpoint that is not there", {"hint": ["127.9.9.9:1"]}),
    ("plain", "an empty subset", {"hint": []}),
    ("plain", "an unknown objective", {"fields": {"x-llm-d-inference-objective": "none-such"}}),
    ("prefix", "a body without a model, with a prefix scorer", {"data": b'{"prompt": "x"}'}),
    ("prefix", "a body that is no JSON, with a prefix scorer", {"data": b"hello"}),
    ("prefix", "messages of unknown roles", {"path": CHAT, "data": b'{"model": "m", "messages": [{"role": "x", "content": "y"}]}'}),
    ("prefix", "if-available, and no endpoint has the prompt", {"fields": {"prefer": "if-available"}}),
    ("labels", "filters that leave no endpoint", {}),
    ("profiles", "no profile in the header", {}),
    ("profiles", "a profile in the header", {"fields": {"epp-profile": "prefill"}}),
    ("profiles", "an unknown profile in the header", {"fields": {"epp-profile": "none-such"}}),
]
CONFIGS = {"plain": cases.profile("queue-scorer"), "prefix": cases.profile("prefix-cache-scorer"), "labels": LABELS,
           "profiles": HEADER_PROFILES}
# Where statuses differ on purpose: {name: why}; docs/how-to/from-llm-d.md has them.
SENT_ON = "expected: what is wrong in a body is the model server's to say"
DIFFERENT = {name: SENT_ON for _, name, _ in REQUESTS if name.startswith(("a body ", "a model ", "an empty ", "a prompt ", "messages "))}
DIFFERENT |= {
    "a chat without messages": SENT_ON,
    "filters that leave no endpoint": "expected: no endpoint is there for such a request, and a later one may not be either",
    "an unknown profile in the header": "expected: the request is wrong, the pool is not busy",
}


def shown(answer):
    if not answer.status:
        return "picked" if answer.endpoints else f"no answer: {answer.body[:90]}"
    headers = " ".join(f"{key}={value}" for key, value in sorted(answer.headers.items()) if key != "content-length")
    return f"{answer.status} {headers} {answer.body[:160]!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("router")
    options = parser.parse_args()
    failed = 0
    for kind, config in CONFIGS.items():
        server = fleet.Server()
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            stack.callback(server.close)
            folder = pathlib.Path(folder)
            endpoints = [fleet.Endpoint(f"127.3.0.{i + 1}", server.port, f"e{i}", {fleet.ROLE: role}, {
                "waiting": i, "running": i, "kv": 0.1 * i, "block": 16, "blocks": 4000, "max_lora": 1, "loras": "",
                "waiting_loras": ""}) for i, role in enumerate(("decode", "prefill", "decode"))]
            server.serves(endpoints)
            whole = both.with_endpoints(config, endpoints, folder)
            pickers = (stack.enter_context(both.theirs(options.router, whole, folder, "200ms")),
                       stack.enter_context(both.ours(whole, folder, "200ms")))
            compare_picks.wait_for_scrapes(server, endpoints, (False, True))
            for name, request in ((name, request) for which, name, request in REQUESTS if which == kind):
                requests, answers = both.ask_both(pickers, **{"data": GOOD, "path": COMPLETIONS, **request})
                for one in requests:
                    one.reset()
                upstream, own = answers
                same = (upstream.status, bool(upstream.endpoints)) == (own.status, bool(own.endpoints))
                why = None if same else DIFFERENT.get(name)
                failed += not same and not why
                print(f"{name}: {'same' if same else why or 'DIFFERS'}\n    llm-d-router: {shown(upstream)}\n"
                      f"    sluice:       {shown(own)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

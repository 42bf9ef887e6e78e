"""A real Envoy, `sluice pick`, and upstream's own sidecar in front of each server that decodes: the two legs of a request
reach the servers that the picker named. The sidecar's path is in LLM_D_SIDECAR (tools/test-llm-d)."""
import collections
import contextlib
import http.server
import json
import os
import threading

import both
import pytest

from lib.gateway import Gateway
from lib.ports import free_port

SIDECAR = os.environ["LLM_D_SIDECAR"]
CONFIGS = ("full-duplex.yaml", "buffered.yaml")
N_DECODE, N_PREFILL = 3, 3
PREFILLER = "x-prefiller-host-port"
PROFILE = """
profile:
  plugins:
    - type: decode-filter
    - type: prefill-filter
    - type: active-request-scorer
    - {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 100}}
    - {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
  schedulingProfiles:
    - {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer}]}
    - {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: active-request-scorer}]}
"""


class Model:
    """A model server that keeps what it was asked. Its answer has its name, and of a prefill what decoding needs."""

    def __init__(self, name):
        self.name, self.asked, model = name, [], self

        class Asked(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # noqa: N802
                self.answer({})

            def do_POST(self):  # noqa: N802
                body = json.loads(self.read_body())
                headers = {key.lower(): value for key, value in self.headers.items()}
                model.asked.append((headers, body))
                wanted = body.get("kv_transfer_params") or {}
                self.answer({"server": name, "choices": [{"message": {"role": "assistant", "content": "x"}}],
                             "kv_transfer_params": {"remote_engine_id": name, "do_remote_prefill": True}
                             if wanted.get("do_remote_decode") else None})

            def read_body(self):
                if self.headers["transfer-encoding"] is None:
                    return self.rfile.read(int(self.headers["content-length"]))
                data = b""
                while size := int(self.rfile.readline(), 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return data

            def answer(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def sidecar(model, folder):
    """In front of that server. Yields its address."""
    port = free_port()
    command = [SIDECAR, f"--port={port}", f"--model-server-port={model.server.server_port}", "--secure-proxy=false",
               "--kv-connector=nixlv2"]
    with both.started(command, port, os.path.join(folder, f"{model.name}.log")):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """(name → those that decode, their sidecars' addresses, those that prefill, one that is in no pool)."""
    with contextlib.ExitStack() as ending:
        models = [Model(name) for name in (*(f"decode{i}" for i in range(N_DECODE)),
                                           *(f"prefill{i}" for i in range(N_PREFILL)), "forged")]
        for one in models:
            ending.callback(one.close)
        decode, prefill, forged = models[:N_DECODE], models[N_DECODE:-1], models[-1]
        folder = tmp_path_factory.mktemp("sidecars")
        sidecars = [ending.enter_context(sidecar(one, folder)) for one in decode]
        yield decode, sidecars, prefill, forged


@pytest.fixture(params=CONFIGS)
def gateway(request, tmp_path, servers):
    _, sidecars, prefill, _ = servers

    def start(with_prefill):
        endpoints = [(address, "decode") for address in sidecars]
        endpoints += [(one.address, "prefill") for one in prefill if with_prefill]
        pool = "endpoints:\n" + "".join(f'- {{address: "{address}", labels: {{llm-d.ai/role: {role}}}}}\n'
                                        for address, role in endpoints) + PROFILE
        started = Gateway(tmp_path, request.param, sidecars, change=lambda _: pool, n_ready=len(endpoints))
        ending.callback(started.kill)
        return started
    with contextlib.ExitStack() as ending:
        yield start


def ask(gateway, servers, text):
    """A request with forged headers. Returns: what each server was asked for it, and for which the picker counted it."""
    decode, sidecars, prefill, forged = servers
    everyone = [*decode, *prefill, forged]
    for one in everyone:
        one.asked.clear()
    before = gateway.picker.picks()
    body = {"model": "m", "max_tokens": 7, "stream": False, "messages": [{"role": "user", "content": text}]}
    said = gateway.ask("/v1/chat/completions", "-H", "content-type: application/json", "-H",
                       f"{PREFILLER}: {forged.address}", "-H", f"x-encoder-hosts-ports: {forged.address}",
                       "-H", f"x-data-parallel-host-port: {forged.address}", body=json.dumps(body).encode())
    gateway.picker.wait_at_rest()
    picked = collections.Counter(gateway.picker.picks()) - collections.Counter(before)
    names = dict(zip(sidecars, decode)) | {one.address: one for one in prefill}
    assert said["server"] in {one.name for one in decode}
    assert not forged.asked
    return {one.name: one.asked[:] for one in everyone if one.asked}, {names[address].name for address in picked}


def test_sidecar_legs_reach_picked_servers(gateway, servers):
    started = gateway(with_prefill=True)
    seen = set()
    for number in range(12):
        asked, picked = ask(started, servers, f"{number:04d} " * 200)
        assert set(asked) == picked and len(picked) == 2
        (prefill_name,), (decode_name,) = ([name for name in picked if name.startswith(kind)]
                                           for kind in ("prefill", "decode"))
        ((prefill_headers, prefill),), ((decode_headers, decode),) = asked[prefill_name], asked[decode_name]
        assert prefill["max_tokens"] == 1 and prefill["kv_transfer_params"]["do_remote_decode"] is True
        assert decode["max_tokens"] == 7 and decode["kv_transfer_params"]["remote_engine_id"] == prefill_name
        assert prefill["messages"] == decode["messages"]
        assert not {PREFILLER, "x-encoder-hosts-ports", "x-data-parallel-host-port"} & {*prefill_headers, *decode_headers}
        seen |= picked
        asked, picked = ask(started, servers, "short")
        assert set(asked) == picked and len(picked) == 1 and next(iter(picked)).startswith("decode")
        assert not asked[next(iter(picked))][0][1].get("kv_transfer_params")
    assert len(seen) == N_DECODE + N_PREFILL
    started.stop()


def test_sidecar_without_prefill_endpoint_decodes_alone(gateway, servers):
    started = gateway(with_prefill=False)
    for number in range(3):
        asked, picked = ask(started, servers, f"{number:04d} " * 200)
        assert set(asked) == picked and len(picked) == 1
        ((_, decode),) = asked[next(iter(picked))]
        assert decode["max_tokens"] == 7 and not decode.get("kv_transfer_params")
    started.stop()

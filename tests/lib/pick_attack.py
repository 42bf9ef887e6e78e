"""An attack on a picker: its configuration and its endpoints change all the time (several profiles or one, flow control
or none, a rollout or none, roles and revisions at random) while clients ask, answer, and go at any point. All of it is
drawn from a seed; `attack` returns when each client has had its number of requests."""
import collections
import json
import os
import random
import threading

from lib.pick_client import (Proxy, answer_body, answer_headers, body, endpoint_of, headers,
                             refusal_of)

FLAGS = ("--reload-interval", "10ms", "--workers", "2", "--log-level", "error")
DUPLEX = "FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED"
ROLES, REVISIONS = ("decode", "prefill", "encode"), "abc"
HOSTS = [f"10.0.0.{i}" for i in range(1, 21)]
REFUSALS = (429, 503)
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": [
    {"type": "text", "text": "x" * 3000},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}).encode()
USAGE = b'{"usage":{"prompt_tokens":5,"completion_tokens":7}}'


def replace(path, content):
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(f"{path}.new", path)


def endpoint(number, host, role, revision):
    return {"name": f"p{number}", "address": host, "port": "8000", "labels": {
        "llm-d.ai/role": role, "disaggregatedset.x-k8s.io/role": role, "disaggregatedset.x-k8s.io/name": "s",
        "disaggregatedset.x-k8s.io/revision": revision}}


def refs(*names):
    return [{"pluginRef": name} for name in names]


def plugin(kind, **parameters):
    return {"type": kind, "parameters": parameters} if parameters else {"type": kind}


STAGES = [{"name": "prefill", "plugins": refs("prefill-filter", "token-load-scorer")},
          {"name": "decode", "plugins": refs("decode-filter", "session-affinity-scorer", "active-request-scorer")},
          {"name": "encode", "plugins": refs("encode-filter", "queue-scorer")}]


class Attack:
    """`folder` has the file of the endpoints. `config` is a configuration: the first one is for the picker's start."""

    def __init__(self, folder, seed):
        self.rng, self.endpoints_file = random.Random(seed), os.path.join(folder, "endpoints.json")
        self.seed, self.counts, self.faults = seed, collections.Counter(), []
        self.write_endpoints()

    # ---- what changes ------------------------------------------------------------------------------

    def write_endpoints(self):
        rng = self.rng
        rows = [endpoint(i, rng.choice(HOSTS), rng.choice(ROLES), rng.choice(REVISIONS)) for i in range(rng.randint(0, 12))]
        replace(self.endpoints_file, {"endpoints": rows})

    def write_good_endpoints(self):
        replace(self.endpoints_file, {"endpoints": [endpoint(i, HOSTS[i], "decode", "a") for i in range(2)]})

    def config(self, is_staged, has_rollout, queues):
        rng = self.rng
        plugins = [plugin("file-discovery", path=self.endpoints_file, watchFile=True),
                   *map(plugin, ("queue-scorer", "active-request-scorer", "prefill-filter", "decode-filter", "encode-filter",
                                 "prefix-cache-scorer", "token-load-scorer", "session-affinity-scorer",
                                 "always-disagg-pd-decider", "always-disagg-multimodal-decider",
                                 "round-robin-fairness-policy", "program-aware-fairness")),
                   plugin("approx-prefix-cache-producer", lruCapacityPerServer=rng.choice([10, 1000])),
                   plugin("concurrency-detector", maxConcurrency=rng.choice([1, 2, 50]))]
        config = {"apiVersion": "llm-d.ai/v1", "kind": "EndpointPickerConfig", "plugins": plugins,
                  "dataLayer": {"discovery": {"endpoints": {"pluginRef": "file-discovery"}}},
                  "schedulingProfiles": [{"name": "default", "plugins": refs("prefix-cache-scorer", "active-request-scorer")}]}
        if is_staged:
            order, deciders = rng.choice(["decode-first", "prefill-first"]), {"encode": "always-disagg-multimodal-decider"}
            if order == "decode-first":  # else nothing is known yet that could decide on prefill
                deciders["prefill"] = "always-disagg-pd-decider"
            plugins.append(plugin("disagg-profile-handler", stageOrder=order, deciders=deciders))
            config["schedulingProfiles"] = rng.sample(STAGES, len(STAGES))
        if has_rollout:
            plugins.append(plugin("disaggregatedset-rollout-screener",
                                  scope={"labelSelector": "disaggregatedset.x-k8s.io/name=s"},
                                  revisionGating={"mode": rng.choice(["sum", "max-role"]),
                                                  "requireRoles": {"values": ["prefill", "decode"]}}))
        if queues:
            config["featureGates"] = ["flowControl"]
            config["flowControl"] = {
                "saturationDetector": {"pluginRef": "concurrency-detector"}, "defaultRequestTTL": "300ms",
                "noEndpointRequestTTL": "200ms", "defaultPriorityBand": {
                    "fairnessPolicyRef": rng.choice(["round-robin-fairness-policy", "program-aware-fairness"])}}
        return json.dumps(config)

    def first_config(self):
        return self.config(False, False, False)

    def change(self, picker):
        kind = self.rng.randint(0, 4)
        self.write_endpoints()
        if self.rng.random() < 0.3:
            picker.write_pool(self.config(kind > 0, kind >= 2, kind % 2 == 1))

    # ---- clients -----------------------------------------------------------------------------------

    def ask(self, proxy, rng):
        """One request, which may end anywhere. Returns: what became of it."""
        stream = proxy.stream(headers("/v1/chat/completions", config=DUPLEX,
                                      fields={"x-gateway-inference-fairness-id": rng.choice("abcd")}),
                              body(BODY, end=True))
        if rng.random() < 0.1:
            stream.reset()
            return "gone before the answer"
        said = stream.next()
        if said.WhichOneof("response") == "immediate_response":
            status = refusal_of(said)[0]
            assert status in REFUSALS, said
            stream.reset()
            return f"refused with {status}"
        address, _, port = endpoint_of(said).rpartition(":")
        assert address in HOSTS and port == "8000", said
        if rng.random() < 0.2:
            stream.reset()
            return "gone before the response"
        stream.send(answer_headers())
        if rng.random() < 0.3:
            stream.reset()
            return "gone in the response"
        stream.send(answer_body(USAGE, end=True))
        stream.close()
        return "answered"

    def client(self, picker, number, n_requests):
        rng = random.Random(f"{self.seed} {number}")
        left = n_requests
        try:
            while left > 0:
                with Proxy(picker.grpc_addresses[0]) as proxy:  # proxies come and go, too
                    for _ in range(min(left, rng.randint(1, 40))):
                        self.counts[self.ask(proxy, rng)] += 1
                        left -= 1
        except BaseException as fault:  # pylint: disable=broad-except
            self.faults.append(f"client {number}, {n_requests - left} requests in: {fault!r}")

    def run(self, picker, n_clients, n_requests):
        """Each client has so many requests. Then nothing is left of them, and a good request is answered."""
        clients = [threading.Thread(target=self.client, args=(picker, i, n_requests)) for i in range(n_clients)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            self.change(picker)
            clients[0].join(0.02)
            assert picker.process.poll() is None, picker.log_text()
        for client in clients:
            client.join()
        assert not self.faults, self.faults[:3]
        assert sum(self.counts.values()) == n_clients * n_requests
        picker.wait_at_rest()
        picker.write_pool(self.first_config())
        self.write_good_endpoints()
        picker.wait_ready_endpoints(2)
        with Proxy(picker.grpc_addresses[0]) as proxy:  # the endpoints may be those of the pool before
            picker.wait_for(lambda: proxy.ask("/v1/models").WhichOneof("response") == "request_headers", "a pick")
            assert proxy.pick("/v1/models") in (f"{HOSTS[0]}:8000", f"{HOSTS[1]}:8000")
        picker.wait_at_rest()

"""Pools of made-up model servers: their labels, their loads as the engines print them, all in one page, and one HTTP
server that answers every scrape of them. Each server is an address of 127.0.0.0/8 at the port of that one; scrapes are
counted by client."""
import asyncio
import collections
import threading

ROLE = "llm-d.ai/role"
ZONES = ("z1", "z2")
RANGES = ("0-100", "0-1000", "50-400", "400-4000", "1000-50000")
LORAS = ("adapter-1", "adapter-2", "adapter-3")
# The share of endpoints with each role, where a configuration has roles.
ROLES = ("decode", "decode", "prefill", "prefill", "encode", "prefill-decode", "both", "encode-prefill-decode", "")

PAGE = """# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="m"}} {waiting}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="m"}} {running}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{model_name="m"}} {kv}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="{block}",num_gpu_blocks="{blocks}"}} 1
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{{max_lora="{max_lora}",running_lora_adapters="{loras}",waiting_lora_adapters="{waiting_loras}"}} 1796000000
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{model_name="m"}} {waiting}
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{model_name="m"}} {running}
# TYPE sglang:token_usage gauge
sglang:token_usage{{model_name="m"}} {kv}
# TYPE sglang:cache_config_info gauge
sglang:cache_config_info{{page_size="{block}",num_pages="{blocks}"}} 1
# TYPE trtllm_num_requests_waiting gauge
trtllm_num_requests_waiting{{model_name="m"}} {waiting}
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{{model_name="m"}} {running}
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{{model_name="m"}} {kv}
# TYPE trtllm_kv_cache_tokens_per_block gauge
trtllm_kv_cache_tokens_per_block{{model_name="m"}} {block}
# TYPE trtllm_kv_cache_max_blocks gauge
trtllm_kv_cache_max_blocks{{model_name="m"}} {blocks}
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{{model="m",request_type="waiting",version="1"}} {waiting}
nv_trt_llm_request_metrics{{model="m",request_type="scheduled",version="1"}} {running}
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction",model="m",version="1"}} {kv}
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="tokens_per",model="m",version="1"}} {block}
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="max",model="m",version="1"}} {blocks}
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{{model="m",version="1"}} {waiting}
"""


class Endpoint:
    """`values`: what its page says."""

    def __init__(self, address, port, name, labels, values):
        self.address, self.port, self.name, self.labels, self.values = address, port, name, labels, values
        self.at = f"{address}:{port}"
        self.page = PAGE.format(**values).encode()

    def __repr__(self):
        shown = " ".join(f"{key}={value}" for key, value in self.values.items() if value not in ("", 0))
        labels = ",".join(f"{key.rpartition('/')[2]}={value}" for key, value in self.labels.items())
        return f"{self.name} {{{labels}}} {shown}"


def roles_of(endpoint):
    """Without the label it decodes."""
    role = endpoint.labels.get(ROLE, "decode")
    return {"prefill", "decode"} if role == "both" else set(role.split("-"))


def distinct(random, n, most, share_of_ties):
    """Numbers from 0 to `most`, mostly without two that are equal."""
    found = random.sample(range(most + 1), n)
    return [found[i - 1] if i and random.random() < share_of_ties else value for i, value in enumerate(found)]


def draw_pool(random, number, port, roles, most_waiting, most_kv):
    """A pool of two to eight. With `roles` there is an endpoint that decodes, and mostly one of each other role."""
    n = random.randint(4, 8) if roles else random.randint(2, 8)
    ties = 0 if roles else 0.1  # of other stages than the destination's no scores are known
    waiting = distinct(random, n, max(n, most_waiting), ties)
    running = [3 + value for value in distinct(random, n, 40, ties)]  # those that stay in flight run there, at most three
    kv = distinct(random, n, int(1000 * most_kv), ties)
    named = ["decode", "prefill"] * (random.random() < 0.9) + ["encode"] if roles else []
    pool = []
    for i in range(n):
        labels = {"zone": random.choice(ZONES), "gpu": random.choice(("a", "b")),
                  "topology.kubernetes.io/zone": random.choice(ZONES),
                  "topology.kubernetes.io/region": "r1",
                  "kubernetes.io/hostname": f"h{random.randint(1, 4)}"}
        if random.random() < 0.8:
            labels["llm-d.ai/context-length-range"] = random.choice(RANGES)
        role = named[i] if i < len(named) else random.choice(ROLES) if roles else ""
        if roles and i == len(named):
            role = "decode"
        if role:
            labels[ROLE] = role
        pool.append(Endpoint(f"127.{1 + number // 200}.{1 + number % 200}.{i + 1}", port, f"p{number}-{i}", labels, {
            "waiting": waiting[i], "running": running[i], "kv": kv[i] / 1000,
            "block": 16, "blocks": random.choice((2000, 4000, 8000)),
            "max_lora": random.randint(1, 3), "loras": ",".join(random.sample(LORAS, random.randint(0, 2))),
            "waiting_loras": ",".join(random.sample(LORAS, random.randint(0, 1)))}))
    return pool


class Scrape(asyncio.Protocol):
    def __init__(self, server):
        self.server, self.held = server, b""

    def connection_made(self, transport):
        self.transport = transport
        self.address = transport.get_extra_info("sockname")[0]

    def data_received(self, data):
        self.held += data
        while b"\r\n\r\n" in self.held:
            head, _, self.held = self.held.partition(b"\r\n\r\n")
            page = self.server.pages.get(self.address, b"")
            self.server.counts[self.address, b"Go-http-client" in head] += 1
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                                 b"Content-Length: %d\r\n\r\n" % len(page) + page)


class Server:
    """Serves the pages of a fleet. `counts`: of each address and client (True: a program in Go), its scrapes."""

    def __init__(self):
        self.pages, self.counts = {}, collections.Counter()
        self.loop = asyncio.new_event_loop()
        started = threading.Event()

        def serve():
            asyncio.set_event_loop(self.loop)
            listening = self.loop.run_until_complete(
                self.loop.create_server(lambda: Scrape(self), "0.0.0.0", 0, backlog=4096))
            self.port = listening.sockets[0].getsockname()[1]
            started.set()
            self.loop.run_forever()
            listening.close()
            for task in asyncio.all_tasks(self.loop):  # of connections that were just accepted
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
        self.thread = threading.Thread(target=serve, daemon=True)
        self.thread.start()
        started.wait()

    def serves(self, endpoints):
        self.pages = {endpoint.address: endpoint.page for endpoint in endpoints}
        self.counts.clear()

    def have_scraped(self, endpoints, clients, since):
        """Whether each client has scraped each endpoint three times since these counts: the first may have been asked before
        the end of a request was known, and what the second said has come into effect then."""
        return all(self.counts[endpoint.address, client] >= since[endpoint.address, client] + 3
                   for endpoint in endpoints for client in clients)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

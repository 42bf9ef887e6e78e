"""A crowd that makes the server hold what it can, in control groups of 512 MiB and 1 GiB with the default limits: the kernel
kills nothing, and good clients of each protocol are answered throughout, on connections of before and on new ones. Each
kind of crowd_clients.py alone, and all together. Printed: what the group, the process and the sockets held at most, what
the metrics say of it, and how long good clients waited. `make soak`; SOAK_CROWDS names kinds (`all` for all together)."""
import contextlib
import os
import resource
import subprocess
import sys
import threading
import time

import pytest

from lib import grpc_live, h2, http1, metrics, mip, server
from lib.certificates import Identity as Certificate
from lib.control_group import MemoryGroup
from lib.repository import FREE, Identity
from lib.slow_readers import write_models
import crowd_clients

MIB = 1 << 20
SIZES = [512 * MIB, 1024 * MIB]
TOGETHER = "all"
NAMES = os.environ.get("SOAK_CROWDS", "").split() or [*crowd_clients.KINDS, TOGETHER]
SHARE_TOGETHER = 0.2
QUIET_S, SENDING_S, HOLD_S = 2, 40, 5
DESCRIPTORS = 19000  # of the server, and of the crowd
PAUSE_S = 0.02
BODY = b'{"inputs":[{"name":"INPUT0","shape":[4],"datatype":"FP32","data":[1,2,3,4]}]}'
INFER_BYTES = grpc_live.proto.ModelInferRequest(model_name="small")
INFER_BYTES.inputs.add(name="INPUT0", datatype="FP32", shape=[4])
INFER_BYTES.raw_input_contents.append(bytes(16))
INFER_BYTES = INFER_BYTES.SerializeToString()


# ---- good clients --------------------------------------------------------------------------------

class OverHttp:
    def __init__(self, live):
        self.connection = http1.Connection(live.address)

    def ask(self):
        self.connection.send(http1.post(b"/v2/models/small/infer", BODY))
        answer = self.connection.read_answer("POST")
        assert answer.status == 200, str(answer)

    def close(self):
        self.connection.close()


class OverGrpc:
    def __init__(self, live):
        self.connection = h2.Connection(live.grpc_address)

    def ask(self):
        stream = self.connection.call(crowd_clients.INFER, INFER_BYTES)
        assert stream.status == 0, str(stream)

    def close(self):
        self.connection.close()


class OverMip:
    def __init__(self, live):
        self.connection = mip.Connection(live.mip_urls[1])

    def ask(self):
        assert self.connection.infer([[mip.as_json([1.0])]])

    def close(self):
        self.connection.close()


PROTOCOLS = {"http": OverHttp, "grpc": OverGrpc, "mip": OverMip}


class Good(threading.Thread):
    """A client that has a connection of before the crowd, and opens another one for each second request."""

    def __init__(self, name, live):
        super().__init__()
        self.name, self.live, self.make = name, live, PROTOCOLS[name]
        self.kept = self.make(live)
        self.kept.ask()
        self.ended, self.failed, self.times = threading.Event(), None, []

    def run(self):
        try:
            while not self.ended.wait(PAUSE_S):
                self.ask(lambda: contextlib.nullcontext(self.kept))
                self.ask(lambda: contextlib.closing(self.make(self.live)))
        except Exception as failure:  # pylint: disable=broad-except
            self.failed = f"{self.name}, request {len(self.times)}: {failure!r}"

    def ask(self, open_connection):
        began = time.monotonic()
        with open_connection() as client:
            client.ask()
        self.times.append(time.monotonic() - began)

    def p99_ms(self, first, last):
        times = sorted(self.times[first:last])
        return 1000 * times[len(times) * 99 // 100] if times else -1


# ---- the server ----------------------------------------------------------------------------------

@pytest.fixture(name="descriptors")
def more_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS, f"the hard limit on descriptors is {hard}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS if hard == resource.RLIM_INFINITY else hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(name="models", scope="module")
def models_on_disk(tmp_path_factory):
    folder = write_models(tmp_path_factory.mktemp("crowd") / "models")
    Identity("slowest", [("FP32", FREE)], parameters={"delay_us": 2000000}).write(str(folder))
    Identity("picture", [("UINT8", [3, 8, 8])], max_batch_size=8).write(str(folder))
    return folder


@pytest.fixture(name="start")
def start_in_group(start_server, models, tmp_path, descriptors):
    cert, key = Certificate("server").write(tmp_path / "server")

    def start(group):
        live = start_server("--model-repository", models, "--model-control-mode", "explicit", "--load-model", "*",
                            "--http-tls-cert", cert, "--http-tls-key", key, "--grpc-header-forward-pattern", "^a$",
                            "--mip", "tcp://127.0.0.1:0=picture", "--mip", "tcp://127.0.0.1:0=small",
                            listen=("http://127.0.0.1:0", "https://127.0.0.1:0"), grpc=("grpc://127.0.0.1:0",),
                            metrics_at="127.0.0.1:0", prefix=group.prefix)
        client_memory = metrics.read(live.metrics_address)["sluice_client_memory_limit_bytes"]
        assert client_memory == group.limit // 2
        lowered = [line for line in live.log_lines() if line["event"].startswith("fewer connections than")]
        assert {line.get("protocol") for line in lowered} >= {"grpc"}, "the log says which limit was lowered"
        return live
    return start


# ---- what is measured ----------------------------------------------------------------------------

class Watch(threading.Thread):
    """The most that was used, by whom; and at that time what the metrics say clients hold."""

    def __init__(self, live, group):
        super().__init__()
        self.live, self.group = live, group
        self.ended = threading.Event()
        self.most = self.rss = self.sockets = self.kernel = self.counted = 0
        self.at_most = {}

    def run(self):
        while not self.ended.wait(0.1):
            with contextlib.suppress(Exception):
                self.look()

    def look(self):
        used = self.group.used_bytes()
        self.sockets = max(self.sockets, self.group.socket_bytes())
        self.kernel = max(self.kernel, self.group.kernel_bytes())
        rss = self.live.rss_bytes()
        self.rss = max(self.rss, rss)
        if used > self.most:
            self.most = used
            numbers = metrics.read(self.live.metrics_address)
            held = {name.split("{")[1].rstrip("}"): value for name, value in numbers.items()
                    if name.startswith("sluice_client_memory_bytes{") and value > MIB}
            self.counted = sum(held.values())
            self.at_most = {"rss": rss, "sockets": self.group.socket_bytes(), "kernel": self.group.kernel_bytes(), **held}


def in_mib(numbers):
    return ", ".join(f"{name} {value / MIB:.0f}" for name, value in numbers.items())


@contextlib.contextmanager
def crowd_at(live, name):
    kinds, share = (",".join(crowd_clients.KINDS), SHARE_TOGETHER) if name == TOGETHER else (name, 1)
    addresses = {"http": live.addresses[0], "https": live.addresses[1].removeprefix("https://"),
                 "grpc": live.grpc_address, "mip": live.mip_urls[0].removeprefix("tcp://"),
                 "metrics": live.metrics_address}
    crowd = subprocess.Popen([sys.executable, crowd_clients.__file__, kinds, str(share), str(SENDING_S),
                              *(f"{name}={address}" for name, address in addresses.items())],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield crowd
    finally:
        crowd.kill()
        crowd.wait()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", SIZES, ids=["512MiB", "1GiB"])
def test_crowd_in_group(start, size, name):
    with MemoryGroup(size) as group, contextlib.ExitStack() as stack:
        live = start(group)
        stack.callback(live.kill)  # before the group is removed
        base = group.used_bytes()
        good = [Good(protocol, live) for protocol in PROTOCOLS]
        watch = Watch(live, group)
        for one in (*good, watch):
            one.start()
            stack.callback(one.join)
            stack.callback(one.ended.set)
        time.sleep(QUIET_S)
        quiet = [len(one.times) for one in good]
        with crowd_at(live, name) as crowd:
            print(f"\n{name} in {size // MIB} MiB: {crowd.stdout.readline().strip()}")
            time.sleep(HOLD_S)
            crowd.stdin.close()
            print(crowd.stdout.readline().strip())
            watch.ended.set()
            for one in good:
                one.ended.set()
            for one in good:
                one.join()
        watch.join()
        print(f"used {base / MIB:.0f} at first, {watch.most / MIB:.0f} at most of {size // MIB} MiB; rss {watch.rss / MIB:.0f},"
              f" sockets {watch.sockets / MIB:.0f}, kernel {watch.kernel / MIB:.0f}; at the most: {in_mib(watch.at_most)}")
        print("p99 in ms, without and with the crowd: " + ", ".join(
            f"{one.name} {one.p99_ms(0, n):.1f} {one.p99_ms(n, None):.1f} ({len(one.times) - n} answers, at most"
            f" {1000 * max(one.times[n:], default=0):.0f})" for one, n in zip(good, quiet)))
        assert group.n_killed() == 0 and live.process.poll() is None
        assert not [one.failed for one in good if one.failed]
        assert all(len(one.times) > n for one, n in zip(good, quiet))
        assert watch.most < size, "with v2, which counts sockets, the server would have been killed"
        live.stop()

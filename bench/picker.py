"""The endpoint picker against its floor: `pick_floor`, the same gRPC server with a constant answer;
and that against nghttpd with frames of the same size."""

import contextlib
import pathlib
import statistics
import struct
import subprocess
import tempfile

import lib

STREAMS = (1, 8, 32, 128)
CALL = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


def every_scorer():
    """A profile of all there are."""
    scorers = sorted(path.name for path in (lib.ROOT / "src/pick/pool/plugins").glob("*-scorer"))
    told = {"header-label-affinity-scorer": "{headerName: x-zone, labelKey: zone}",
            "endpoint-attribute-scorer": "{attributeKey: GPUUtilization, producer: dcgm-extractor, "
                                         "algorithm: {type: linear_lower_is_better}}"}
    plugins = "".join(f"    - {{type: {name}, parameters: {told.get(name, '{}')}}}\n"
                      for name in [*scorers, "max-score-picker"])
    return "profile:\n  plugins:\n" + plugins


PROMPTS_COMPARED = """profile:
  plugins: [{type: prefix-cache-scorer}, {type: active-request-scorer}]
"""
TOKENS_COUNTED = """profile:
  plugins: [{type: prefix-cache-scorer}, {type: active-request-scorer}, {type: token-load-scorer}]
"""


def pool(n_endpoints):
    """A pool's configuration, in which models matter: a body has to be looked into."""
    endpoints = "".join(f"  - 10.{i >> 16}.{i >> 8 & 255}.{i & 255}:8000\n" for i in range(n_endpoints))
    return f"endpoints:\n{endpoints}models: [digits]\n"


@contextlib.contextmanager
def picker(n_endpoints, more=""):
    """`sluice pick` with one worker. Yields its port and its process."""
    with tempfile.TemporaryDirectory() as folder:
        ready, config = pathlib.Path(folder, "ready"), pathlib.Path(folder, "pool.yaml")
        config.write_text(pool(n_endpoints) + more)
        with lib.process(lib.BUILD / "sluice", "pick", "--config", config, "--grpc", "127.0.0.1:0",
                         "--metrics", "none", "--workers", "1", "--log-level", "warning",
                         "--ready-file", ready) as child:
            def up():
                if child.poll() is not None:
                    raise SystemExit(f"bench: sluice pick ended with {child.returncode}")
                return ready.exists() and ready.read_text()
            yield int(lib.wait_for(up, "sluice pick").split("127.0.0.1:")[1].split()[0]), child


@contextlib.contextmanager
def floor():
    with lib.process(lib.BUILD / "bench" / "pick_floor", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                     text=True) as child:
        yield int(child.stdout.readline().rsplit(":", 1)[1]), child


def load(port, mode, body, streams):
    command = lib.generator(lib.BUILD / "bench" / "pick_load", f"127.0.0.1:{port}", mode,
                            body, streams, lib.SECONDS)
    return lib.pick_load_figures(command)


def against_floor(table, server, floor_server, what, goal, *asked):
    """Beside the rates, which are those of a client and a server in turn, what a pick takes of the server."""
    def rate(of):
        port, child = of
        before = lib.cpu_ns(child)
        result = load(port, *asked)
        cpu_us = (lib.cpu_ns(child) - before) / result["all"] / 1000
        figures.setdefault(port, []).append((result["p50_us"], result["p99_us"], cpu_us))
        return result["rate"]
    figures = {}
    ours, floors = lib.paired(lambda: rate(server), lambda: rate(floor_server))
    table.add(f"picks, {what} / constant", goal, ours, floors)
    (p50, p99, cpu), (*_, floor_cpu) = (map(statistics.median, zip(*figures[port]))
                                        for port, _ in (server, floor_server))
    print(f"{'':<44} p50 {p50:.0f} µs, p99 {p99:.0f} µs; {cpu:.2f} µs of a CPU each, the constant {floor_cpu:.2f}",
          flush=True)


def against_nghttpd(table, floor_port):
    """The floor itself: a request of a headers message's size, an answer of the same bytes."""
    message = struct.pack("!BL", 0, 300) + b"\x12\xa9\x02" + b"\x0a\xa6\x02" + bytes(294)
    with lib.request_file(message) as path, lib.nghttpd(CALL, 155) as nghttpd:
        for n in (1, 8, 32):
            ours, floors = lib.paired(lambda: lib.h2load(floor_port, CALL, path, n),
                                      lambda: lib.h2load(nghttpd, CALL, path, n))
            table.add(f"constant answer, {n} streams / nghttpd", 0.6, ours, floors)


def p99_beside_prompts(table, server, floor_server, body, streams):
    """A pick at a time on a connection of its own, while the same server gets long prompts on another. The two
    generators share a CPU, which the constant answer waits for as well."""
    def p99(of):
        command = lib.generator(lib.BUILD / "bench" / "pick_load", f"127.0.0.1:{of[0]}", "duplex", body, streams,
                                lib.SECONDS + 1)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as prompts:
            figures = load(of[0], "headers", 0, 1)["p99_us"]
            prompts.terminate()
        return figures
    ours, floors = lib.paired(lambda: p99(server), lambda: p99(floor_server))
    table.add(f"p99 of a pick beside {streams} prompts of {body} bytes", "-", floors, ours, "us: constant, sluice")


def rows(table, _folder):
    with floor() as floor_server:
        against_nghttpd(table, floor_server[0])
        for n_endpoints, goal, numbers in ((3, 0.85, STREAMS), (100, 0.8, (32,)), (1000, 0.8, (32,)),
                                           (10000, 0.8, (32,))):
            with picker(n_endpoints) as server:
                for n in numbers:
                    against_floor(table, server, floor_server, f"{n_endpoints} endpoints, {n} streams", goal,
                                  "headers", 0, n)
        for n_endpoints, goal in ((3, "-"), (100, 0.8), (1000, 0.6), (10000, "-")):
            with picker(n_endpoints, every_scorer()) as server:
                against_floor(table, server, floor_server, f"{n_endpoints} endpoints, every scorer, 32 streams",
                              goal, "headers", 0, 32)
        with picker(3, PROMPTS_COMPARED) as server:
            for body, streams in ((8000, 32), (220000, 1), (220000, 32), (220000, 150), (1000000, 1), (1000000, 32),
                                  (1000000, 150)):
                against_floor(table, server, floor_server, f"prompt of {body} bytes compared, {streams} streams",
                              0.8, "duplex", body, streams)
            p99_beside_prompts(table, server, floor_server, 220000, 150)
        with picker(3, TOKENS_COUNTED) as server:
            against_floor(table, server, floor_server, "prompt of 220000 bytes, tokens counted, 32 streams", 0.8,
                          "duplex", 220000, 32)
        with picker(3) as server:
            for mode, body in (("duplex", 200), ("duplex", 8000), ("duplex", 220000),
                               ("duplex", 1000000), ("buffered", 200), ("buffered", 220000)):
                for n in (1, 32):
                    against_floor(table, server, floor_server, f"{mode} {body} bytes, {n} streams", "-", mode,
                                  body, n)

"""What the measurements share: servers that are started and ended, load that is run, and ratios of
paired rounds. Servers run on the first of our CPUs, load on the second."""

import contextlib
import http.client as http_client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build")).resolve()
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU = str(CPUS[0])
LOAD_CPU = str(CPUS[1 % len(CPUS)])
SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
MAX_REPEATS = 10
# nginx is unpacked rather than installed, and servers are on no user's PATH.
PROGRAMS = os.pathsep.join([str(ROOT / ".deps" / "sysroot" / "usr" / "sbin"),
                            os.environ.get("PATH", os.defpath), "/usr/sbin"])


IDENTITY = """backend: "identity" max_batch_size: 64
input [{{ name: "INPUT0" data_type: TYPE_FP32 dims: [{dim}] }}]
output [{{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [{dim}] }}]
"""


def write_identity(folder, name, dim):
    version = pathlib.Path(folder, name, "1")
    version.mkdir(parents=True)
    version.parent.joinpath("config.pbtxt").write_text(IDENTITY.format(dim=dim))


STEP = """  step {{ model_name: "{model}" model_version: -1 input_map {{ key: "INPUT0" value: "{of}" }} output_map {{ key: "OUTPUT0" value: "{to}" }} }}
"""


def write_chain(folder, name, model, dim):
    """An ensemble of three steps, each of which is the identity model `model`."""
    pathlib.Path(folder, name, "1").mkdir(parents=True)
    tensors = ("INPUT0", "a", "b", "OUTPUT0")
    steps = "".join(STEP.format(model=model, of=of, to=to) for of, to in zip(tensors, tensors[1:]))
    config = IDENTITY.format(dim=dim).replace('backend: "identity"', 'platform: "ensemble"')
    pathlib.Path(folder, name, "config.pbtxt").write_text(config + "ensemble_scheduling {\n" + steps + "}\n")


def write_networks(folder):
    """The MLP and the CNN of the test models, as folder/mlp and folder/cnn."""
    python = ROOT / ".deps" / "venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit("bench: the networks are made with the Python packages in .deps/venv; `make tools` installs them")
    with tempfile.TemporaryDirectory() as made:
        subprocess.check_call([python, ROOT / "tests" / "models" / "make.py", made])
        for name in ("mlp", "cnn"):
            shutil.move(pathlib.Path(made, name), pathlib.Path(folder, name))


def pinned(cpu, program, *args):
    found = shutil.which(str(program), path=PROGRAMS)
    if not found:
        raise SystemExit(f"bench: {program} is missing; make bench builds and installs what is needed")
    return ["taskset", "-c", cpu, found, *map(str, args)]


def generator(program, *args):
    """A generator of load with one thread, on its CPU. It doesn't sleep (busy_epoll.c), where the CPU is its
    own."""
    awake = ["env", f"LD_PRELOAD={BUILD / 'bench' / 'busy_epoll.so'}"] if LOAD_CPU != SERVER_CPU else []
    taskset, flag, cpu, *command = pinned(LOAD_CPU, program, *args)
    return [taskset, flag, cpu, *awake, *command]


@contextlib.contextmanager
def process(*command, **kwargs):
    """A server on its CPU, ended by its own process id."""
    child = subprocess.Popen(pinned(SERVER_CPU, *command), **kwargs)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(predicate, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = predicate()
        if value:
            return value
        time.sleep(0.02)
    raise SystemExit(f"bench: {what} did not come up in {seconds} s")


@contextlib.contextmanager
def sluice(*models, flags=()):
    """`sluice serve` with one worker. Yields (port of HTTP, process); the process's `grpc` is gRPC's,
    its `mip` MIP's where a flag asked for one, its `urls` all there are."""
    with tempfile.TemporaryDirectory() as folder:
        ready = pathlib.Path(folder, "ready")
        command = [BUILD / "sluice", "serve", *models, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                   "--metrics", "none", "--workers", "1", "--metrics-interval", "0",
                   "--log-level", "warning", "--ready-file", ready, *flags]
        with process(*command) as child:
            def up():
                if child.poll() is not None:
                    raise SystemExit(f"bench: sluice ended with {child.returncode}")
                return ready.exists() and ready.read_text()
            text = wait_for(up, "sluice")
            child.urls = text.split()
            child.grpc = int(text.split("grpc://127.0.0.1:")[1].split()[0])
            child.mip = ([int(line.split("127.0.0.1:")[1].split("=")[0])
                          for line in text.splitlines() if line.startswith("tcp://")] or [None])[0]
            yield int(text.split("127.0.0.1:")[1].split()[0].strip('",')), child


NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; client_max_body_size 1g;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  default_type application/octet-stream;
  server {{ listen 127.0.0.1:{port}{tls}; location / {{ return 200 "{body}"; }} }}
}}
"""


def wait_for_port(port, what, child):
    def up():
        if child.poll() is not None:
            raise SystemExit(f"bench: {what} ended with {child.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
    wait_for(up, what)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def nginx(body_bytes, identity=None):
    """nginx that answers every request with 200 and that many bytes, over TLS where it is given a
    certificate and its key. Yields its port."""
    tls = " ssl; ssl_certificate {}; ssl_certificate_key {}".format(*identity) if identity else ""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        pathlib.Path(folder, "conf").write_text(
            NGINX.format(folder=folder, port=port, tls=tls, body="x" * body_bytes))
        with process("nginx", "-c", f"{folder}/conf", "-p", folder,
                     stderr=subprocess.DEVNULL) as child:
            wait_for_port(port, "nginx", child)
            yield port


@contextlib.contextmanager
def echo(program="echo"):
    """The store-and-forward echo, or `echo_uv`. Yields its port."""
    with process(BUILD / "bench" / program, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                 text=True) as child:
        yield int(child.stdout.readline())


@contextlib.contextmanager
def nghttpd(path, body_bytes):
    """nghttp2's own server with a file of that size, at the path of the call it stands for: as many bytes to
    decode. Yields its port."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        file = pathlib.Path(folder, path.lstrip("/"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * body_bytes)
        with process("nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", folder, port,
                     stdout=subprocess.DEVNULL) as child:
            wait_for_port(port, "nghttpd", child)
            yield port


def h2load(port, path, message_path, streams, seconds=None, connections=1):
    """h2load with that many streams on each connection. Returns requests a second."""
    command = generator("h2load", "-D", max(1, round(seconds or SECONDS)), "-c", connections, "-m",
                        streams, "-w", 30, "-W", 30, "-d", message_path, "-H",
                        "content-type: application/grpc", "-H", "te: trailers",
                        f"http://127.0.0.1:{port}{path}")
    return h2load_rate(command)


def h2load_http1(url, connections, head=(), body_path=None, n_requests=None):
    """h2load with HTTP/1.1, over TLS too. `n_requests`: for so many instead of a time. Returns requests
    a second."""
    length = ["-n", n_requests] if n_requests else ["-D", max(1, round(SECONDS))]
    command = generator("h2load", "--h1", "-c", connections, *length,
                        *(["-d", body_path] if body_path else []),
                        *(word for field in head for word in ("-H", field)), url)
    return h2load_rate(command)


def h2load_rate(command):
    text = subprocess.check_output(command, text=True, timeout=120, stderr=subprocess.STDOUT)
    words = dict(reversed(part.strip().split(" ")) for line in text.splitlines()
                 if line.startswith("requests:") for part in line[9:].split(","))
    if int(words["failed"]) > 0:
        raise SystemExit(f"bench: h2load: {text}")
    if int(words["succeeded"]) == 0:
        raise NoAnswer(f"bench: h2load: {text}")
    took, rate = [line for line in text.splitlines() if line.startswith("finished in")][0].split(",")[:2]
    return float(rate.split()[0])


def identity(folder):
    """A certificate for 127.0.0.1 that vouches for itself, with a key that is quick to sign with. Returns:
    the files of both."""
    cert, key = pathlib.Path(folder, "tls.crt"), pathlib.Path(folder, "tls.key")
    subprocess.check_call(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                           "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bench",
                           "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                          stderr=subprocess.DEVNULL)
    return cert, key


@contextlib.contextmanager
def request_file(*requests):
    """What `load` takes as its REQUEST-FILE: these in rotation."""
    with contextlib.ExitStack() as stack:
        names = []
        for request in requests:
            file = stack.enter_context(tempfile.NamedTemporaryFile())
            file.write(request)
            file.flush()
            names.append(file.name)
        yield ",".join(names)


def load(port, request_path, connections, seconds=None, reconnect=False):
    """One run of the load generator. Returns its figures."""
    command = generator(BUILD / "bench" / "load", "127.0.0.1", port, request_path,
                        connections, seconds or SECONDS, 0.3, *["reconnect"] * reconnect)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"bench: load failed: {done.stderr or done.stdout}")
    return figures_of(done.stdout, "answers")


def figures_of(text, n_answers):
    """The figures of a load in JSON; `n_answers` is the name of the one that counts answers."""
    figures = json.loads(text)
    if not figures[n_answers]:
        raise NoAnswer(f"bench: nothing was answered: {text}")
    return figures


def pick_load_figures(command):
    """Runs bench/pick_load."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise SystemExit(f"bench: pick_load: {done.stderr or done.stdout}")
    return figures_of(done.stdout, "picks")


def sluice_bench_step(command):
    """Runs `sluice bench` with one step and --json -. Returns: the step's figures."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    step = json.loads(done.stdout)["steps"][0] if done.stdout.startswith("{") else None
    if step and not step["failed"] and not step["succeeded"]:
        raise NoAnswer(f"bench: sluice bench: {done.stdout}")
    if done.returncode or not step or step["failed"]:
        raise SystemExit(f"bench: sluice bench failed: {done.stderr or done.stdout}")
    return step


def sluice_bench(url, model, shape, concurrency, n_requests=None):
    """One run of `sluice bench` with zeros of that shape, for SECONDS, or until so many are answered. Returns the
    megabytes a second, there and back."""
    length = ("-d", f"{SECONDS}s") if n_requests is None else ("-n", str(n_requests), "-d", "60s")
    command = pinned(LOAD_CPU, BUILD / "sluice", "bench", url, model, "--shape", shape, "--data", "zeros", "-c",
                     concurrency, *length, "-w", "300ms", "--quiet", "--json", "-",
                     *["--insecure"] * url.startswith("grpcs://"))
    return sluice_bench_step(command)["payload_bytes_per_second"] / 1e6


def floor(program, *arguments):
    """The rate of a floor that is a program of its own, on the server's CPU."""
    command = pinned(SERVER_CPU, BUILD / "bench" / program, *arguments)
    return json.loads(subprocess.check_output(command, text=True, timeout=120))["rate"]


def floats(n):
    return struct.pack(f"<{n}f", *((i % 17) / 17 for i in range(n)))


def get(port, path):
    connection = http_client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def metric(port, name):
    """A number of /metrics, summed over its labels."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in get(port, "/metrics").splitlines()
               if line.startswith((name + " ", name + "{")))


def first_input(port, model):
    """Name and shape of a model's first input, with 1 for what is open."""
    first = json.loads(get(port, f"/v2/models/{model}"))["inputs"][0]
    return first["name"], [1 if dim < 0 else dim for dim in first["shape"]]


def http(method, path, body=b"", headers=()):
    head = [f"{method} {path} HTTP/1.1", "Host: bench"]
    head += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def mip_packet(kind, payload=b""):
    return struct.pack("!4BL", 0, kind, 0, 0, len(payload)) + payload


def mip_json(value):
    """One element of one input, as a JSON item."""
    item = json.dumps(value).encode()
    return mip_packet(2, struct.pack("!2BH2L", 1, 0, 1, 2, len(item)) + item)


def binary_infer(model, name, shape, payload, datatype="FP32", request_id=None):
    """A binary request that asks for binary outputs."""
    text = json.dumps({**({"id": request_id} if request_id else {}), "inputs": [{"name": name, "shape": shape, "datatype": datatype,
                                   "parameters": {"binary_data_size": len(payload)}}],
                       "parameters": {"binary_data_output": True}}, separators=(",", ":")).encode()
    return http("POST", f"/v2/models/{model}/infer", text + payload,
                [("Content-Type", "application/octet-stream"),
                 ("Inference-Header-Content-Length", len(text))])


def mixed_infer(model, name, shape, payload, change_shape=True):
    """Requests as a service sends them: every other one has an id of its own and, with `change_shape`, two to four rows
    instead of one."""
    requests = []
    for i in range(16):
        n_rows = 1 + i // 2 % 4 if change_shape and i % 2 else 1
        requests.append(binary_infer(model, name, [n_rows * shape[0], *shape[1:]], payload * n_rows,
                                     request_id=f"request-{i:04}" if i % 2 else None))
    return requests


def pb_varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def pb_field(number, data):
    return pb_varint(number << 3 | 2) + pb_varint(len(data)) + data


def grpc_tensor(name, shape):
    return pb_field(1, name.encode()) + pb_field(2, b"FP32") + pb_field(3, b"".join(map(pb_varint, shape)))


def grpc_framed(message):
    return struct.pack("!BL", 0, len(message)) + message


def grpc_message(model, shape, payload, tensor="INPUT0"):
    """A ModelInferRequest with its prefix, written field by field."""
    return grpc_framed(pb_field(1, model.encode()) + pb_field(5, grpc_tensor(tensor, shape))
                       + pb_field(7, payload))


def grpc_answer(model, shape, payload, tensor):
    """The ModelInferResponse of such a model."""
    return grpc_framed(pb_field(1, model.encode()) + pb_field(2, b"1")
                       + pb_field(5, grpc_tensor(tensor, shape)) + pb_field(6, payload))


def answer_bytes(port, request):
    """The size of the body that a server answers this request with."""
    import http.client
    head, body = request.split(b"\r\n\r\n", 1)
    first, *fields = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body, dict(field.split(": ", 1) for field in fields))
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"bench: {path} answered {answer.status}: {data[:300]!r}")
    return len(data)


def parts_of(request):
    """Target, further fields and body of a request, as other loads want them."""
    head, body = request.split(b"\r\n\r\n", 1)
    first, *fields = head.decode().split("\r\n")
    left_out = ("host:", "content-length:")
    return first.split(" ")[1], [field for field in fields if not field.lower().startswith(left_out)], body


def callgrind(out, *options):
    """What stands in front of a command whose instructions are counted, into the file `out`."""
    return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *options]


def callgrind_total(out):
    return int(re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.M)[1])


def cpu_ns(child):
    """What those threads of it have run that are still there."""
    return sum(int(path.read_text().split()[0])
               for path in pathlib.Path(f"/proc/{child.pid}/task").glob("*/schedstat"))


def choice(n_endpoints, n_picks, n_subset, profile):
    """The picker's choice by itself. `profile`: 0: the fewest in flight; 1: the default; 2: every scorer;
    3: the same, with prompts held while they are in flight."""
    return list(map(str, (BUILD / "bench" / "pool_pick", n_endpoints, n_picks, n_subset, 1, profile)))


def choice_cost(n_endpoints, n_subset, profile, folder):
    """Instructions of a pick and its end."""
    # As many picks as requests are held at least, so that the counts have settled.
    n = max(2 * n_endpoints, 20000 // (1 + n_subset)) if profile == 0 else 50 + 20000 // n_endpoints
    totals = []
    for n_picks in (n, 3 * n):
        out = folder / "callgrind.out"
        subprocess.run(callgrind(out) + choice(n_endpoints, n_picks, n_subset, profile), check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        totals.append(callgrind_total(out))
    return (totals[1] - totals[0]) / (2 * n)


class Table:
    """Rows of ratios: what, goal, the median ratio over the rounds and its spread."""

    def __init__(self):
        self.rows = []
        print(f"{'measured':<44} {'goal':>5} {'ratio':>6} {'min':>6} {'max':>6}  "
              f"{'sluice':>10} {'floor':>10}", flush=True)

    def add(self, what, goal, ours, floors, unit="/s"):
        ratios = [a / b for a, b in zip(ours, floors)]
        row = {"what": what, "goal": goal, "ratio": statistics.median(ratios),
               "min": min(ratios), "max": max(ratios), "sluice": statistics.median(ours),
               "floor": statistics.median(floors), "unit": unit}
        self.rows.append(row)
        print(f"{what:<44} {goal:>5} {row['ratio']:>6.2f} {row['min']:>6.2f} {row['max']:>6.2f}  "
              f"{row['sluice']:>10.0f} {row['floor']:>10.0f} {unit}", flush=True)

    def add_excess(self, what, most_us, excesses):
        """Microseconds over a floor, round by round."""
        row = {"what": what, "goal": most_us, "excess_us": statistics.median(excesses),
               "min": min(excesses), "max": max(excesses), "unit": "us"}
        self.rows.append(row)
        print(f"{what:<44} {'<=' + str(most_us):>5} {row['excess_us']:>6.1f} {row['min']:>6.1f} "
              f"{row['max']:>6.1f}  us", flush=True)

    def write(self, path):
        pathlib.Path(path).write_text(json.dumps(self.rows, indent=1) + "\n")


class NoAnswer(SystemExit):
    """A load ended before its first answer."""


def answered(measure):
    """Repeats a measurement that ended without an answer, as short ones do on a machine with other load."""
    for _ in range(MAX_REPEATS):
        with contextlib.suppress(NoAnswer):
            return measure()
    return measure()


def paired(ours, theirs, rounds=None):
    """Runs the two in turn, so that a drift of the machine meets both. Returns two lists."""
    a, b = [], []
    for _ in range(rounds or ROUNDS):
        a.append(answered(ours))
        b.append(answered(theirs))
    return a, b

"""Rows of real models, and of looking at a server while it works.

What is possible for a model behind a protocol is 1 / (1/R_net + 1/R_model): R_net is the floor's rate with
the same bytes and connections, R_model that of the model in process, at the batch size that the server
reached in the same round."""

import contextlib
import os
import pathlib
import shutil
import statistics
import tempfile
import threading

import lib

CLIENTS = (1, 8, 32, 128)
INFER = "/inference.GRPCInferenceService/ModelInfer"


def models(table, folder):
    """The CNN, which is all that counts once it is asked, against the bound."""
    file = pathlib.Path(folder, "cnn", "1", "model.onnx")
    with lib.sluice("--model-repository", folder) as (port, _):
        request, _ = requests_of(port, "cnn")
        size = lib.answer_bytes(port, request)
        with lib.request_file(request) as path, lib.nginx(size) as nginx_port:
            for n in (1, 8, 32):
                ours, bounds = against_bound(port, file, lambda: lib.load(port, path, n)["rate"],
                                             lambda: lib.load(nginx_port, path, n)["rate"])[:2]
                table.add(f"cnn, {n} connections / bound", 0.95, ours, bounds)


def input_of(port, name):
    """Returns: name, shape and bytes of one row of the model's first input."""
    tensor, shape = lib.first_input(port, name)
    n_elements = 1
    for dim in shape:
        n_elements *= dim
    return tensor, shape, lib.floats(n_elements)


def requests_of(port, name):
    """Returns: a request of one row over HTTP, and one over gRPC."""
    tensor, shape, values = input_of(port, name)
    return (lib.binary_infer(name, tensor, shape, values),
            lib.grpc_message(name, shape, values, tensor))


def in_process(file, batch):
    """Requests a second at so many in each call."""
    batch = max(1, round(batch))
    return batch * lib.floor("inproc", file, batch, lib.SECONDS)


def counted(port):
    return (lib.metric(port, "nv_inference_count"), lib.metric(port, "nv_inference_exec_count"))


def against_bound(port, file, ours, net):
    """Returns: rates, bounds, and the batch size reached, round by round."""
    batches = []

    def run():
        requests, executions = counted(port)
        rate = ours()
        requests_after, executions_after = counted(port)
        batches.append((requests_after - requests) / (executions_after - executions))
        return rate

    def bound():
        return 1 / (1 / net() + 1 / in_process(file, batches[-1]))
    return (*lib.paired(run, bound), batches)


def over_http(table, port, what, file):
    """Half of the requests have ids of their own. All have one row: the bound counts requests of one row."""
    tensor, shape, values = input_of(port, "mlp")
    requests = lib.mixed_infer("mlp", tensor, shape, values, change_shape=False)
    size = round(statistics.mean(lib.answer_bytes(port, request) for request in requests))
    with lib.request_file(*requests) as path, lib.nginx(size) as floor:
        for n in CLIENTS:
            rows(table, f"mlp over HTTP, {n} clients, {what}", n, port, file,
                 lambda: lib.load(port, path, n), lambda: lib.load(floor, path, n))


def over_grpc(table, port, grpc_port, what, file):
    _, message = requests_of(port, "mlp")
    size = len(lib.grpc_answer("mlp", [1, 10], lib.floats(10), "y"))

    def load(target, path, message_path, n):
        rate = lib.h2load(target, path, message_path, 1, connections=n)
        return {"rate": rate, "p50_us": 1e6 * n / rate}  # it says no median: the mean
    with lib.request_file(message) as path, lib.nghttpd(INFER, size) as floor:
        for n in CLIENTS:
            rows(table, f"mlp over gRPC, {n} clients, {what}", n, port, file,
                 lambda: load(grpc_port, INFER, path, n), lambda: load(floor, INFER, path, n))


def rows(table, what, n, port, file, ours, net):
    """With one client what is added to a request's time, too."""
    times, floor_times = [], []

    def rate(run, seen):
        figures = run()
        seen.append(figures["p50_us"])
        return figures["rate"]
    rates, bounds, batches = against_bound(port, file, lambda: rate(ours, times),
                                           lambda: rate(net, floor_times))
    table.add(what, 0.85 if n >= 32 else "-", rates, bounds)
    if n == 1:
        alone_us = 1e6 / in_process(file, 1)
        table.add_excess(f"{what}: over floor and call", 30,
                         [a - b - alone_us for a, b in zip(times, floor_times)])
    else:
        print(f"    requests in an execution: {statistics.median(batches):.1f}", flush=True)


def mlp(table, folder):
    """The MLP over HTTP and gRPC, its requests batched or not."""
    file = pathlib.Path(folder, "mlp", "1", "model.onnx")
    for what, flags in (("batched", ()), ("one by one", ("--default-max-batch-size", "0"))):
        with lib.sluice("--model-repository", folder, flags=flags) as (port, child):
            over_http(table, port, what, file)
            over_grpc(table, port, child.grpc, what, file)


def ensemble(table, _folder):
    """An ensemble of three steps, each of which is a small model, against that model alone; and what each of the
    further steps takes of the server's CPU, with its model: the goal is that of the step without it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        lib.write_identity(folder, "identity", 16)
        lib.write_chain(folder, "chain", "identity", 16)
        port, child = stack.enter_context(lib.sluice("--model-repository", folder))
        paths = {name: stack.enter_context(lib.request_file(lib.binary_infer(name, "INPUT0", [1, 16], lib.floats(16))))
                 for name in ("identity", "chain")}
        for n in (1, 32):
            took_us = {"identity": [], "chain": []}

            def rate(name, counts):  # an inference counts for the ensemble and for each step
                requests, before = counted(port)[0], lib.cpu_ns(child)
                figures = lib.load(port, paths[name], n)
                n_requests = (counted(port)[0] - requests) / counts
                took_us[name].append((lib.cpu_ns(child) - before) / n_requests / 1000)
                return figures["rate"]
            ours, floors = lib.paired(lambda: rate("chain", 4), lambda: rate("identity", 1))
            table.add(f"ensemble of 3 steps, {n} connections / its model", "-", ours, floors)
            table.add_excess(f"a step of it with its model, {n} connections", 3,
                             [(a - b) / 2 for a, b in zip(took_us["chain"], took_us["identity"])])


OPENVINO = 'backend: "openvino" max_batch_size: 64\n'


def backends(table, folder):
    """The same models run by OpenVINO and by ONNX Runtime, in one server each: which is quicker here."""
    with tempfile.TemporaryDirectory() as other:
        for name in ("mlp", "cnn"):
            shutil.copytree(pathlib.Path(folder, name), pathlib.Path(other, name))
            pathlib.Path(other, name, "config.pbtxt").write_text(OPENVINO)
        with lib.sluice("--model-repository", other) as (openvino, _), \
                lib.sluice("--model-repository", folder) as (onnxruntime, _):
            for name, numbers in (("mlp", CLIENTS), ("cnn", (1, 8))):
                request, _ = requests_of(openvino, name)
                with lib.request_file(request) as path:
                    for n in numbers:
                        ours, floors = lib.paired(lambda: lib.load(openvino, path, n)["rate"],
                                                  lambda: lib.load(onnxruntime, path, n)["rate"])
                        table.add(f"{name}, {n} clients, OpenVINO / ONNX Runtime", "-", ours, floors)


# ---- being looked at -----------------------------------------------------------------------------

SCRAPES_PER_SECOND = 10


class Scraper:
    """Reads /metrics ten times a second while it is entered."""

    def __init__(self, port):
        self.port = port
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        os.sched_setaffinity(0, {int(lib.LOAD_CPU)})  # of this thread
        while not self.over.wait(1 / SCRAPES_PER_SECOND):
            lib.get(self.port, "/metrics")

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def scrape(table, folder):
    """Small inferences while /metrics is read on the same worker, against the same in peace; and what one
    reading costs, which is steadier than the difference of two rates."""
    request = lib.binary_infer("identity", "INPUT0", [1, 16], lib.floats(16))
    with lib.sluice("--model-repository", folder) as (port, child), lib.request_file(request) as path:
        def scraped():
            with Scraper(port):
                return lib.load(port, path, 32)["rate"]
        ours, floors = lib.paired(scraped, lambda: lib.load(port, path, 32)["rate"])
        table.add("identity [1,16], /metrics at 10 Hz / without", 0.99, ours, floors)
        before, n = lib.cpu_ns(child), 1000
        for _ in range(n):
            lib.get(port, "/metrics")
        share = (lib.cpu_ns(child) - before) / 1e9 / n * SCRAPES_PER_SECOND
        print(f"one reading of /metrics takes {share / SCRAPES_PER_SECOND * 1e6:.0f} us of CPU: at 10 Hz "
              f"{share:.2%} of a worker (goal: less than 1 %)", flush=True)

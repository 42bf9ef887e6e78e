"""The demonstration behind `make demo-pick`: one address in front of three servers. Envoy asks `sluice pick`
for each request which of them is to serve it; one is killed and comes back while requests come. Ends by
itself, with 1 where a request failed that should not have.

    demo_pick.py SLUICE MODEL.onnx HELDOUT.npz FOLDER"""

import http.client
import json
import pathlib
import struct
import subprocess
import sys
import threading
import time

import grpc
import numpy
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ask import Client
from demo import best
from draw import bad, bold, dim, good
from site_of_three import HOSTS, PATIENCE, Site

CONFIG = "model-in-body.yaml"
PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
N_CLIENTS = 6
TICK = 0.25


def show_site(site):
    print(f"\n{bold('Three servers, one address')}\n")
    for server in site.servers:
        print(f"   {server.address:<18}" + dim(f"sluice serve digits=digits.onnx; gRPC on {server.grpc_port}"))
    print(f"   {site.picker.address:<18}{dim('sluice pick --config pool.yaml')}")
    print(f"   {site.envoy.address:<18}{dim(f'Envoy with deploy/envoy/{CONFIG}: what clients know')}")


# ---- one request of each form --------------------------------------------------------------------

def messages(folder):
    """The messages of gRPC's service, from its description."""
    out = folder / "grpc_service.descriptors"
    subprocess.check_call(["protoc", f"-I{PROTO}", "--include_imports", f"--descriptor_set_out={out}",
                           "grpc_service.proto"])
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return message_factory.GetMessages(files.file, pool=descriptor_pool.DescriptorPool())


class OverGrpc:
    """The digits model over gRPC."""

    def __init__(self, folder, address, name, shape):
        kinds = messages(folder)
        self.kind, self.name, self.shape = kinds["inference.ModelInferRequest"], name, shape
        self.channel = grpc.insecure_channel(address)
        self.call = self.channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", self.kind.SerializeToString,
            kinds["inference.ModelInferResponse"].FromString)
        self.served_by = None

    def infer(self, values):
        request = self.kind(model_name="digits")
        request.inputs.add(name=self.name, datatype="FP32", shape=self.shape)
        request.raw_input_contents.append(struct.pack(f"<{len(values)}f", *values))
        answer, call = self.call.with_call(request, timeout=30)
        self.served_by = dict(call.initial_metadata())["x-served-by"]
        at = [output.name for output in answer.outputs].index("probabilities")
        data = answer.raw_output_contents[at]
        return {"probabilities": struct.unpack(f"<{len(data) // 4}f", data)}


class Served(Client):
    """The client of `make demo`, which also remembers who served."""

    def call(self, method, path, body=None, headers=None):
        start = time.perf_counter()
        self.connection.request(method, path, body, headers or {})
        answer = self.connection.getresponse()
        data = answer.read()
        self.seconds = time.perf_counter() - start
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {data.decode(errors='replace')}")
        self.served_by = answer.getheader("x-served-by")
        return data, answer.getheader("Inference-Header-Content-Length")


WIDTHS = (28, 22, 18)


def row(*cells):
    """The last one takes what is left of 100 columns."""
    print("   " + "".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS)) + cells[-1])


def show_forms(site, pictures, labels):
    print(f"\n{bold('A request in every form')}  "
          f"{dim('all to one address; the picker says where each one goes, and why')}\n")
    row("form", "its model is in", "served by", "answer")
    client = Served(*site.envoy.address.split(":"), "digits")
    first = client.metadata()["inputs"][0]
    name, shape = first["name"], [1] + first["shape"][1:]
    over_grpc = OverGrpc(site.folder, site.envoy.address, name, shape)
    forms = [("KServe JSON", "the path", client, lambda v: client.json(name, shape, v)),
             ("KServe binary tensors", "the path", client, lambda v: client.binary(name, shape, v)),
             ("KServe raw binary", "the path", client, client.raw),
             ("KServe gRPC", "the message's start", over_grpc, over_grpc.infer)]
    for i, (form, where, through, ask) in enumerate(forms * 2):
        values = [float(value) for value in pictures[i].reshape(-1)]
        digit, share = best(ask(values))
        verdict = good("right") if digit == labels[i] else bad(f"but a {labels[i]}")
        row(form, where, through.served_by, f"it is {digit} ({share:.0%}), {verdict}")
    for path, body in (("/v2/models/gpt/infer", "{}"), ("/v1/chat/completions", '{"model": "gpt"}')):
        status, said = refused(site, path, body)
        where = "the path" if "gpt" in path else "the body"
        row(path, where, "the picker", f"{status}: {said.partition(' (')[0]}")
    over_grpc.channel.close()


def refused(site, path, body):
    connection = http.client.HTTPConnection(site.envoy.address, timeout=30)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    said = json.loads(data)["error"]
    return answer.status, said["message"] if isinstance(said, dict) else said


def show_why(site):
    path = "/v2/models/digits/infer"
    print(f"\n{bold('Why')}  {dim(f'what the picker says of itself at /debug/pick?path={path}')}\n")
    for line in site.picker.page(f"/debug/pick?path={path}").splitlines():
        print(f"   {line}"[:100].rstrip())


# ---- requests while a server dies ----------------------------------------------------------------

class Load:
    """Clients that ask as fast as they can. What came of each request is kept with the time at which
    it began."""

    def __init__(self, address, body, headers):
        self.address, self.body, self.headers = address, body, headers
        self.outcomes = []
        self.ending = False
        self.threads = [threading.Thread(target=self.run) for _ in range(N_CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=30)
        while not self.ending:
            began = time.monotonic()
            try:
                connection.request("POST", "/v2/models/digits/infer", self.body, self.headers)
                answer = connection.getresponse()
                answer.read()
                served_by = answer.getheader("x-served-by") if answer.status == 200 else None
            except (OSError, http.client.HTTPException):
                connection.close()
                served_by = None
            self.outcomes.append((began, served_by))
        connection.close()

    def end(self):
        self.ending = True
        for thread in self.threads:
            thread.join()


class Board:
    """A line for each quarter of a second: how many requests each server served."""

    def __init__(self, site, load):
        self.site, self.load = site, load
        self.began, self.seen, self.most = time.monotonic(), 0, 1
        self.due = self.began + TICK
        addresses = "".join(f"{server.address:<24}" for server in site.servers)
        print(dim(f"   {'time':<9}{addresses}failed"))

    def say(self, text):
        """What just happened, below the line of the time until now."""
        self.line()
        print(f"   {time.monotonic() - self.began:5.2f} s  {bold(text)}")

    def line(self):
        until = len(self.load.outcomes)
        part = [served_by for _, served_by in self.load.outcomes[self.seen:until]]
        self.seen, self.due = until, time.monotonic() + TICK
        counts = [part.count(server.address) for server in self.site.servers]
        self.most = max(self.most, *counts)
        cells = "".join(f"{'█' * round(12 * n / self.most)} {n}".ljust(24) for n in counts)
        failed = part.count(None)
        print(f"   {time.monotonic() - self.began:5.2f} s  {cells}"
              f"{bad(str(failed)) if failed else 0}", flush=True)

    def wait(self, fits):
        """Until it is so; a line whenever one is due."""
        end = time.monotonic() + PATIENCE
        while not fits():
            if time.monotonic() > end:
                raise SystemExit("demo: what should happen did not")
            if time.monotonic() >= self.due:
                self.line()
            time.sleep(0.005)

    def lines(self, n):
        end = time.monotonic() + (n + 0.5) * TICK
        self.wait(lambda: time.monotonic() > end)


def watch(site, board):
    """Kills one and starts it again. Returns: when the picker knew."""
    board.lines(4)
    victim = site.servers[1]
    victim.kill()
    board.say(f"killed {victim.address}")
    board.wait(lambda: site.picker.n_ready() == len(HOSTS) - 1)
    knew = time.monotonic()
    board.say("the picker knows")
    board.lines(4)
    site.restart(victim)
    board.say(f"{victim.address} is started again")
    board.wait(lambda: site.picker.n_ready() == len(HOSTS))
    board.say("the picker knows")
    board.lines(4)
    return knew


def show_death(site, picture):
    sentence = f"{N_CLIENTS} clients ask as fast as they can; a line for each {TICK} s"
    print(f"\n{bold('A server dies')}  {dim(sentence)}\n")
    body = struct.pack(f"<{picture.size}f", *picture.reshape(-1))
    load = Load(site.envoy.address, body, {"Content-Type": "application/octet-stream",
                                           "Inference-Header-Content-Length": "0"})
    try:
        knew = watch(site, Board(site, load))
    finally:
        load.end()
    failed = [began for began, served_by in load.outcomes if served_by is None]
    after = sum(began > knew for began in failed)
    print(f"\n   {len(load.outcomes)} requests; {len(failed) - after} failed between the kill and the"
          f" moment when the picker knew, {bad(str(after)) if after else good('none')} after it.")
    return after


def left_in_flight(picker):
    """Envoy tells the picker of a request's end a moment after it has answered it."""
    end = time.monotonic() + 5
    while picker.n_in_flight() and time.monotonic() < end:
        time.sleep(0.05)
    return picker.n_in_flight()


def main(program, model, heldout, folder):
    data = numpy.load(heldout)
    pictures, labels = data["images"].astype(numpy.float32), data["labels"]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    site = Site(folder, program, model, CONFIG)
    try:
        show_site(site)
        show_forms(site, pictures, labels)
        show_why(site)
        n_failed = show_death(site, pictures[0])
        in_flight = left_in_flight(site.picker)
        site.stop()
    finally:
        site.kill()
    print(f"   In flight at the picker when all had ended: {in_flight}.\n\n"
          f"The files of this run are in {folder}; docs/envoy.md explains them.\n")
    return 1 if n_failed or in_flight else 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))

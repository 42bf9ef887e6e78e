"""Rows of clients: libsluice, Triton's Python client and a bare loop that writes a canned request and reads its
answer, each on the CPU of the load, against one server.

As a program, a run of Triton's client: clients.py http|grpc HOST:PORT MODEL SECONDS"""

import json
import socket
import struct
import subprocess
import sys
import time

MODEL, INPUT, N = "identity", "INPUT0", 16


def triton_main(protocol, address, model, seconds):
    """One inference after the other; its output is read."""
    import importlib

    import numpy
    client = importlib.import_module(f"tritonclient.{protocol}")
    server = client.InferenceServerClient(address)
    numbers = numpy.arange(N, dtype=numpy.float32).reshape(1, N)
    n, start = 0, time.monotonic()
    end = start + float(seconds)
    while time.monotonic() < end:
        tensor = client.InferInput(INPUT, [1, N], "FP32")
        tensor.set_data_from_numpy(numbers)
        assert server.infer(model, [tensor]).as_numpy("OUTPUT0")[0, 2] == 2
        n += 1
    print(json.dumps({"rate": n / (time.monotonic() - start)}))


def answer_size(port, request):
    """Bytes of a whole answer of HTTP, with its head."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65536)
    head = answer.split(b"\r\n\r\n")[0]
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")][0]
    return len(head) + 4 + int(length.split(b":")[1])


def frame(kind, flags, body):
    return struct.pack("!I", len(body))[1:] + struct.pack("!BBI", kind, flags, 0) + body


def grpc_frames(path, message):
    """HEADERS without the dynamic table, and DATA: the same bytes for each call, but for the stream."""
    def field(name, value):
        return name + bytes([len(value)]) + value.encode()
    head = (b"\x83\x86" + field(b"\x04", path) + field(b"\x01", "bench")  # POST, http, :path, :authority
            + field(b"\x0f\x10", "application/grpc") + field(b"\0\x02te", "trailers"))
    return frame(1, 4, head) + frame(0, 1, message)


def rows(table, folder):
    import lib
    python = lib.ROOT / ".deps" / "venv" / "bin" / "python"

    def rate(*command):
        done = subprocess.run(lib.pinned(lib.LOAD_CPU, *command), capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise SystemExit(f"bench: {command[0]} failed: {done.stderr}")
        return json.loads(done.stdout)["rate"]
    with lib.sluice("--model-repository", folder) as (port, child):
        request = lib.binary_infer(MODEL, INPUT, [1, N], lib.floats(N))
        frames = grpc_frames("/inference.GRPCInferenceService/ModelInfer",
                             lib.grpc_message(MODEL, [1, N], lib.floats(N)))
        for protocol, to, canned, size in (("http", port, request, [answer_size(port, request)]),
                                           ("grpc", child.grpc, frames, [])):
            with lib.request_file(canned) as path:
                ours, others = [], {"a bare loop": [], "tritonclient": []}
                for _ in range(lib.ROUNDS):
                    ours.append(rate(lib.BUILD / "bench" / "client_calls", f"{protocol}://127.0.0.1:{to}", MODEL,
                                     lib.SECONDS))
                    others["a bare loop"].append(rate(lib.BUILD / "bench" / "client_floor", protocol, to, path,
                                                      lib.SECONDS, *size))
                    others["tritonclient"].append(rate(python, __file__, protocol, f"127.0.0.1:{to}", MODEL,
                                                       lib.SECONDS))
            for name, goal in (("a bare loop", 0.6), ("tritonclient", 2)):
                table.add(f"libsluice, {protocol}, one call / {name}", goal, ours, others[name])


if __name__ == "__main__":
    triton_main(*sys.argv[1:])

"""Three ways to send the same picture to a model over KServe v2, with nothing but the standard library:
JSON, binary tensor data, and a raw binary request. Each returns the outputs by name."""

import http.client
import json
import struct
import time

FORMATS = {"FP32": "f", "INT64": "q"}
SIZES = {"FP32": 4, "INT64": 8}


class Client:
    """One connection, kept open."""

    def __init__(self, host, port, model):
        self.connection = http.client.HTTPConnection(host, port, timeout=30)
        self.path = f"/v2/models/{model}"
        self.connection.connect()
        self.seconds = 0.0

    def call(self, method, path, body=None, headers=None):
        start = time.perf_counter()
        self.connection.request(method, path, body, headers or {})
        answer = self.connection.getresponse()
        data = answer.read()
        self.seconds = time.perf_counter() - start
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {data.decode(errors='replace')}")
        return data, answer.getheader("Inference-Header-Content-Length")

    def metadata(self):
        return json.loads(self.call("GET", self.path)[0])

    def infer(self, body, headers):
        return outputs_of(*self.call("POST", f"{self.path}/infer", body, headers))

    def json(self, name, shape, values):
        request = {"inputs": [{"name": name, "shape": shape, "datatype": "FP32",
                               "data": list(values)}]}
        return self.infer(json.dumps(request), {"Content-Type": "application/json"})

    def binary(self, name, shape, values):
        payload = struct.pack(f"<{len(values)}f", *values)
        request = {"inputs": [{"name": name, "shape": shape, "datatype": "FP32",
                               "parameters": {"binary_data_size": len(payload)}}],
                   "parameters": {"binary_data_output": True}}
        head = json.dumps(request).encode()
        return self.infer(head + payload, {"Content-Type": "application/octet-stream",
                                           "Inference-Header-Content-Length": str(len(head))})

    def raw(self, values):
        return self.infer(struct.pack(f"<{len(values)}f", *values),
                          {"Content-Type": "application/octet-stream",
                           "Inference-Header-Content-Length": "0"})


def outputs_of(data, json_bytes):
    """The outputs of an answer, whichever form each came in."""
    at = int(json_bytes) if json_bytes else len(data)
    found = {}
    for output in json.loads(data[:at])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[output["name"]] = output["data"]
            continue
        kind = output["datatype"]
        found[output["name"]] = list(struct.unpack_from(
            f"<{size // SIZES[kind]}{FORMATS[kind]}", data, at))
        at += size
    return found

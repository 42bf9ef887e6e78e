"""A server with trace settings, its clients, and the files of traces that it writes."""
import http.client
import json
import pathlib

import numpy
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from lib import http1, metrics

CLIENTS = {"http": triton_http, "grpc": triton_grpc}
HANDLER = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START",
           "COMPUTE_END", "INFER_RESPONSE_COMPLETE", "REQUEST_END"]
TIMES = {"http": ["HTTP_RECV_START", "HTTP_RECV_END", *HANDLER, "HTTP_SEND_START", "HTTP_SEND_END"],
         "grpc": ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", *HANDLER, "GRPC_SEND_START", "GRPC_SEND_END"]}


class Live:
    """A server that may write traces, and a client for each protocol."""

    def __init__(self, start_server, folder, models, *settings, file=True, more=()):
        self.file = folder / "traces.json"
        flags = [f"triton,file={self.file}"] if file else []
        self.server = start_server("--model-repository", models, *(
            part for setting in [*flags, *settings] for part in ("--trace-config", setting)),
            *more, grpc=("127.0.0.1:0",))
        self.clients = {"http": triton_http.InferenceServerClient(self.server.address),
                        "grpc": triton_grpc.InferenceServerClient(self.server.grpc_address)}
        self.at_first = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1",
                         "log_frequency": "0", "trace_file": str(self.file) if file else "",
                         "trace_mode": "triton"}

    def get(self, protocol="http", model=""):
        return plain(self.clients[protocol].get_trace_settings(model))

    def set(self, protocol="http", model="", **settings):
        return plain(self.clients[protocol].update_trace_settings(model, settings))

    def infer(self, protocol="http", model="id_fp32", n=1, array=numpy.array([1, 2, 3], "<f4"), **more):
        module = CLIENTS[protocol]
        made = module.InferInput("INPUT0", list(array.shape), "FP32")
        made.set_data_from_numpy(array)
        for _ in range(n):
            answer = self.clients[protocol].infer(model, [made], **more)
            assert answer.as_numpy("OUTPUT0").tolist() == array.tolist()

    def count(self, result="written"):
        return metrics.read(self.server.address)[f'sluice_traces_total{{result="{result}"}}']

    def wait_count(self, n, result="written"):
        self.server.wait_for(lambda: self.count(result) == n, f"{n} traces {result}")

    def post(self, body, path="/v2/trace/setting"):
        """Returns: the status, and the body, if it is JSON what it says."""
        host, port = self.server.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=http1.PATIENCE)
        connection.request("POST", path, body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if answer.getheader("Content-Type") == "application/json" else data

    def check_alive(self):
        for protocol in CLIENTS:
            self.infer(protocol)

    def traces(self, suffix=""):
        return read(f"{self.file}{suffix}")


def read(path):
    """A file of traces by id: what is said of the request, its times in their order, its tensors."""
    traces = {}
    for item in json.loads(pathlib.Path(path).read_text()):
        trace = traces.setdefault(item["id"], {"times": [], "tensors": []})
        if "timestamps" in item:
            trace["times"] += [(time["name"], time["ns"]) for time in item["timestamps"]]
        elif "tensor" in item:
            trace["tensors"].append((item["activity"], item["tensor"]))
        else:
            trace["request"] = {key: value for key, value in item.items() if key != "id"}
    return dict(sorted(traces.items()))


def plain(said):
    """The settings as HTTP says them."""
    if isinstance(said, dict):
        return said
    return {key: list(value.value) if key == "trace_level" else value.value[0]
            for key, value in said.settings.items()}

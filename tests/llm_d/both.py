"""Two pickers with one configuration, llm-d-router's and ours, and the same requests to both."""
import contextlib
import copy
import os
import pathlib
import socket
import subprocess
import sys
import time

import grpc
import yaml

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib import http1, pick_client  # noqa: E402
from lib.ext_proc import DESTINATION, NAMESPACE  # noqa: E402
from lib.ports import free_ports  # noqa: E402
from lib.server import binary  # noqa: E402

MODES = "FULL_DUPLEX_STREAMED FULL_DUPLEX_STREAMED"
STAGE_HEADERS = ("x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port")
SCORES = "x-gateway-destination-endpoint-scores"
PICKERS = ("max-score-picker", "random-picker", "weighted-random-picker")
MOST_IN_LIST = 8  # endpoints of an answer, the best first: the most that ours names
FLAGS = ("--pool-name=file-discovery", "--pool-namespace=default", "--secure-serving=false", "--tracing=false",
         "--metrics-endpoint-auth=false", "--allow-experimental-plugins=true")


class Refused(Exception):
    """A picker did not start with a configuration."""


# ---- the configuration ---------------------------------------------------------------------------------

def with_endpoints(config, endpoints, folder):
    """With these (of fleet.py), in a file of that folder. Older routers know v1alpha1 only: what both versions have is
    as there."""
    path = folder / "endpoints.yaml"
    path.write_text(yaml.safe_dump({"endpoints": [
        {"name": one.name, "address": one.address, "port": str(one.port), "labels": one.labels} for one in endpoints]}))
    config = copy.deepcopy(config)
    config["apiVersion"] = "llm-d.ai/v1alpha1"
    config["plugins"] = [plugin for plugin in config["plugins"] if plugin["type"] != "file-discovery"]
    config["plugins"].append({"type": "file-discovery", "name": "compared-endpoints", "parameters": {"path": str(path)}})
    config["dataLayer"] = {**config.get("dataLayer", {}), "discovery": {"pluginRef": "compared-endpoints"}}
    return config


def with_lists(config):
    """So that an answer has all endpoints in the order of their scores, where a profile ends by max-score-picker: its
    profiles name one, or get one."""
    config = copy.deepcopy(config)
    pickers = {plugin.get("name", plugin["type"]): plugin for plugin in config["plugins"] if plugin["type"] in PICKERS}
    for plugin in pickers.values():
        plugin["parameters"] = {**(plugin.get("parameters") or {}), "maxNumOfEndpoints": MOST_IN_LIST}
    for profile in config.get("schedulingProfiles", []):
        if not any(step["pluginRef"] in pickers for step in profile["plugins"]):
            profile["plugins"].append({"pluginRef": "compared-picker"})
            if "compared-picker" not in [plugin.get("name") for plugin in config["plugins"]]:
                config["plugins"].append({"type": "max-score-picker", "name": "compared-picker",
                                          "parameters": {"maxNumOfEndpoints": MOST_IN_LIST}})
    return config


# ---- the two programs ---------------------------------------------------------------------------------

@contextlib.contextmanager
def started(command, port, log):
    """In the foreground, until it listens. Raises Refused with the end of its log."""
    with open(log, "wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 4 * http1.PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise Refused(pathlib.Path(log).read_text(encoding="utf-8", errors="replace").strip()[-700:])
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def serving(name, program, config, folder, interval):
    """Yields a proxy of the picker that the program's words start. Files in the folder have that name."""
    grpc_port, health, metrics = free_ports(3)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(with_lists(config), sort_keys=False))
    command = [*program, "--config-file", str(path), f"--grpc-port={grpc_port}", f"--grpc-health-port={health}",
               f"--metrics-port={metrics}", f"--refresh-metrics-interval={interval}", "--emit-endpoint-scores", *FLAGS]
    with started(command, grpc_port, folder / f"{name}.log"), pick_client.Proxy(f"127.0.0.1:{grpc_port}") as proxy:
        yield proxy


def theirs(router, config, folder, interval):
    return serving("theirs", [router, "--enable-pprof=false", "--v=0"], config, folder, interval)


def ours(config, folder, interval):
    return serving("ours", [binary(), "pick"], config, folder, interval)


# ---- requests -----------------------------------------------------------------------------------------

class Answer:
    """`endpoints`: of the destination, the best first; empty where `status` refuses. `scores`: by endpoint, where given.
    `stages`: the headers for sidecars. `headers`: all others that are set, `body`: of a refusal."""

    def __init__(self, status=0, body=""):
        self.endpoints, self.scores, self.stages, self.headers = [], {}, {}, {}
        self.status, self.body = status, body


def answer_of(said):
    kind = said.WhichOneof("response")
    held = getattr(said, kind)
    if kind == "immediate_response":
        found, mutation = Answer(held.status.code, held.body.decode(errors="replace")), held.headers
    else:
        found, mutation = Answer(), held.response.header_mutation
    for option in mutation.set_headers:
        found.headers[option.header.key.lower()] = (option.header.raw_value.decode() or option.header.value)
    found.stages = {name: found.headers.pop(name) for name in STAGE_HEADERS if name in found.headers}
    found.endpoints = [one for one in found.headers.pop(DESTINATION, "").split(",") if one]
    fields = said.dynamic_metadata.fields[NAMESPACE].struct_value.fields
    if SCORES in fields:
        found.scores = {name: value.number_value for name, value in fields[SCORES].struct_value.fields.items()}
    return found


class Request:
    """A stream of a proxy with full-duplex bodies. `hint`: the endpoints it may be sent to, in all messages, as Envoy."""

    def __init__(self, proxy, path="/v1/completions", fields=None, data=b"{}", hint=None):
        head = pick_client.headers(path, fields={"content-type": "application/json", **(fields or {})}, end=data is None,
                                   config=MODES, hint=hint)
        self.stream = proxy.stream(head)
        if data is not None:
            body = pick_client.body(data, end=True)
            body.metadata_context.CopyFrom(head.metadata_context)
            self.stream.send(body)
        self.has_body = data is not None

    def answer(self):
        """What the picker said to the headers, when it has taken the whole request."""
        said = answer_of(self.stream.next())
        if self.has_body and not said.status:
            while not self.is_last(message := self.stream.next()):
                if message.WhichOneof("response") == "immediate_response":
                    return answer_of(message)
        return said

    @staticmethod
    def is_last(message):
        return (message.WhichOneof("response") == "request_body"
                and message.request_body.response.body_mutation.streamed_response.end_of_stream)

    def respond(self, status=200, data=b'{"usage":{"prompt_tokens":1,"completion_tokens":1}}', fields=None):
        """The endpoint's response, whole. Returns: the headers that the picker set on it."""
        self.stream.send(pick_client.answer_headers(status, fields={"content-type": "application/json", **(fields or {})}))
        said = answer_of(self.stream.next())
        self.stream.send(pick_client.answer_body(data, end=True))
        self.stream.next()
        self.stream.close()
        return said.headers

    def reset(self):
        self.stream.reset()


def ask_both(pickers, **request):
    """Returns: requests and answers of both. A stream that ends without an answer is one with a status of 0 and the gRPC
    status as its body."""
    requests = [Request(picker, **request) for picker in pickers]
    answers = []
    for one in requests:
        try:
            answers.append(one.answer())
        except grpc.RpcError as error:
            answers.append(Answer(0, f"gRPC {error.code().name}: {error.details()}"))
        except StopIteration:
            raise SystemExit("a picker ended a stream without an answer") from None
    return requests, answers

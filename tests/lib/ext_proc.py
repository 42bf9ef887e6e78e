"""A stand-in for an endpoint picker that writes down what a proxy sends it and answers as a test says: for
learning what the proxy does. The messages come from proto/ext_proc.proto."""
import functools
import os
import threading
import time
from concurrent import futures

import grpc

from lib import http1
from lib.protos import classes_of
from lib.server import ROOT

PACKAGE = "envoy.service.ext_proc.v3"
DESTINATION = "x-gateway-destination-endpoint"
FALLBACK = DESTINATION + "-fallback"
NAMESPACE = "envoy.lb"


@functools.cache
def classes():
    """name → class of each message in the file."""
    return classes_of(os.path.join(ROOT, "proto", "ext_proc.proto"), PACKAGE)


# ---- answers -------------------------------------------------------------------------------------

def answer(phase):
    """To go on without a change; `phase` is the message's name (request_headers)."""
    said = classes()["ProcessingResponse"]()
    getattr(said, phase).SetInParent()
    return said


def set_header(said, phase, name, value):
    mutation = getattr(said, phase).response.header_mutation
    mutation.set_headers.add().header.MergeFrom(
        classes()["HeaderValue"](key=name, raw_value=value.encode()))


def pick(endpoint, phase="request_headers", header=True, metadata=True, fallback=None, body_mode=None):
    """The destination, as a picker says it. `metadata` may also be a list, for a list's value;
    `body_mode` (a mode's name) asks for the body."""
    said = answer(phase)
    getattr(said, phase).response.clear_route_cache = True
    if header:
        set_header(said, phase, DESTINATION, endpoint)
    if metadata:
        fields = said.dynamic_metadata.fields[NAMESPACE].struct_value.fields
        if isinstance(metadata, list):
            for item in metadata:
                fields[DESTINATION].list_value.values.add(string_value=item)
        else:
            fields[DESTINATION].string_value = endpoint
        if fallback:
            fields[FALLBACK].string_value = fallback
    if body_mode:
        mode = classes()["ProcessingMode"]
        said.mode_override.request_body_mode = mode.BodySendMode.Value(body_mode)
    return said


def headers_of(message):
    """Those of a message with headers or trailers."""
    which = message.WhichOneof("request")
    held = getattr(message, which)
    fields = (held.trailers if which.endswith("trailers") else held.headers).headers
    return {field.key: field.raw_value.decode() for field in fields}


def attributes_of(message):
    """As texts and numbers."""
    fields = message.attributes["envoy.filters.http.ext_proc"].fields
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in fields.items()}


# ---- the service ---------------------------------------------------------------------------------

class Stream:
    """What came on one stream. `ended` is set when the proxy has ended it."""

    def __init__(self):
        self.messages = []
        self.ended = threading.Event()

    def phases(self):
        return [message.WhichOneof("request") for message in self.messages]


class Recorder:
    """`say(phase, message)` returns the answer, or a list of them. It may be set anew at any time."""

    def __init__(self, say):
        self.say = say
        self.streams = []
        self.server = grpc.server(futures.ThreadPoolExecutor(32))
        method = grpc.stream_stream_rpc_method_handler(
            self.process, classes()["ProcessingRequest"].FromString,
            classes()["ProcessingResponse"].SerializeToString)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            PACKAGE + ".ExternalProcessor", {"Process": method}),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def process(self, messages, context):
        stream = Stream()
        self.streams.append(stream)
        context.add_callback(stream.ended.set)
        try:
            for message in messages:
                stream.messages.append(message)
                said = self.say(message.WhichOneof("request"), message)
                yield from said if isinstance(said, list) else [said]
        except grpc.RpcError:
            pass  # a reset: how Envoy ends most streams

    def last(self):
        """The newest stream."""
        end = time.monotonic() + http1.PATIENCE
        while not self.streams:
            assert time.monotonic() < end, "no stream"
            time.sleep(0.005)
        return self.streams[-1]

    def ended(self):
        """The newest stream, once it has ended."""
        stream = self.last()
        assert stream.ended.wait(http1.PATIENCE), f"a stream that goes on: {stream.phases()}"
        return stream

    def stop(self):
        self.server.stop(None).wait()

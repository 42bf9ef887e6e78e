"""A proxy's side of ext-proc, by hand: streams to an endpoint picker over grpcio, message by message. The
messages come from proto/ext_proc.proto."""
import queue

import grpc

from lib import http1
from lib.ext_proc import DESTINATION, NAMESPACE, PACKAGE, classes

PROCESS = f"/{PACKAGE}.ExternalProcessor/Process"
HINT_NAMESPACE = "envoy.lb.subset_hint"
HINT = "x-gateway-destination-endpoint-subset"


def new_message(config=None, hint=None):
    """`config`: the modes of the request's and the answer's body, by name ("NONE NONE"); `hint`: a text or a
    list of texts."""
    message = classes()["ProcessingRequest"]()
    if config:
        mode = classes()["ProcessingMode"].BodySendMode
        request, response = config.split()
        message.protocol_config.SetInParent()
        message.protocol_config.request_body_mode = mode.Value(request)
        message.protocol_config.response_body_mode = mode.Value(response)
    if hint is not None:
        field = message.metadata_context.filter_metadata[HINT_NAMESPACE].fields[HINT]
        if isinstance(hint, str):
            field.string_value = hint
        else:
            field.list_value.SetInParent()
            for item in hint:
                field.list_value.values.add(string_value=item)
    return message


def headers(path="/", method="POST", fields=None, end=False, config="NONE NONE", hint=None):
    message = new_message(config, hint)
    held = message.request_headers
    for name, value in {":method": method, ":path": path, ":authority": "test", ":scheme": "http",
                        **(fields or {})}.items():
        held.headers.headers.add(key=name, raw_value=value.encode())
    held.end_of_stream = end
    return message


def body(data=b"", end=False):
    message = new_message()
    message.request_body.body = data
    message.request_body.end_of_stream = end
    return message


def answer_headers(status=200, end=False, fields=None):
    message = new_message()
    for name, value in {":status": str(status), **(fields or {})}.items():
        message.response_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.response_headers.end_of_stream = end
    return message


def answer_body(data=b"", end=False):
    message = new_message()
    message.response_body.body = data
    message.response_body.end_of_stream = end
    return message


# ---- what was said -------------------------------------------------------------------------------

def set_headers(said):
    """name → value of those that an answer sets; they are raw, as Envoy wants them."""
    kind = said.WhichOneof("response")
    held = said.immediate_response.headers if kind == "immediate_response" else getattr(
        said, kind).response.header_mutation
    found = {}
    for option in held.set_headers:
        assert not option.header.value
        found[option.header.key] = option.header.raw_value.decode()
    return found


def endpoint_of(said):
    """The endpoint that was picked: the header and the metadata say the same."""
    by_header = set_headers(said)[DESTINATION]
    fields = said.dynamic_metadata.fields[NAMESPACE].struct_value.fields
    assert fields[DESTINATION].string_value == by_header
    return by_header


def refusal_of(said):
    """The status, headers and text of an answer that is no pick."""
    assert said.WhichOneof("response") == "immediate_response", said
    return (said.immediate_response.status.code, set_headers(said),
            said.immediate_response.body.decode())


# ---- streams -------------------------------------------------------------------------------------

class Stream:
    """One request of a proxy's. What is sent leaves at once."""

    def __init__(self, call):
        self.messages = queue.SimpleQueue()
        self.call = call(iter(self.messages.get, None), timeout=3 * http1.PATIENCE)  # all of it, with many steps

    def send(self, *messages):
        for message in messages:
            self.messages.put(message)
        return self

    def next(self):
        return next(self.call)

    def close(self):
        """Sends no more. Returns: all answers that still come."""
        self.messages.put(None)
        return list(self.call)

    def reset(self):
        """Ends it as Envoy does."""
        self.call.cancel()
        self.messages.put(None)


class Proxy:
    """A connection to a picker."""

    def __init__(self, address, credentials=None):
        options = [("grpc.use_local_subchannel_pool", 1),
                   ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = (grpc.secure_channel(address, credentials, options) if credentials
                        else grpc.insecure_channel(address, options))
        self.call = self.channel.stream_stream(
            PROCESS, request_serializer=classes()["ProcessingRequest"].SerializeToString,
            response_deserializer=classes()["ProcessingResponse"].FromString)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def stream(self, *messages):
        return Stream(self.call).send(*messages)

    def ask(self, *args, **options):
        """One request that is known by its headers. Returns: the answer; the stream is reset."""
        stream = self.stream(headers(*args, **options))
        said = stream.next()
        stream.reset()
        return said

    def pick(self, *args, **options):
        return endpoint_of(self.ask(*args, **options))

    def refuse(self, *args, **options):
        return refusal_of(self.ask(*args, **options))

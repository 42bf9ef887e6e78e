"""Collectors of OpenTelemetry's: they take traces over HTTP as JSON or protobuf, or over gRPC, hold them to the form,
and may refuse them."""
import functools
import http.server
import json
import os
import pathlib
import re
import ssl
import threading
from concurrent import futures

import grpc

from lib import http1
from lib.protos import classes_of

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

HEX16, HEX32 = re.compile("[0-9a-f]{16}"), re.compile("[0-9a-f]{32}")
NUMBER, INTEGER = re.compile("[0-9]{1,20}"), re.compile("-?[0-9]{1,19}")


def check(value, form, path="request"):
    """`form`: a type, a pattern, a list of one form, or a dict of members, those with "?" may be missing."""
    if isinstance(form, dict):
        assert isinstance(value, dict), (path, value)
        known = {name.rstrip("?") for name in form}
        assert value.keys() <= known, (path, value.keys() - known)
        for name, inner in form.items():
            if name.rstrip("?") in value:
                check(value[name.rstrip("?")], inner, f"{path}.{name}")
            else:
                assert name.endswith("?"), (path, name)
    elif isinstance(form, list):
        assert isinstance(value, list), (path, value)
        for at, item in enumerate(value):
            check(item, form[0], f"{path}[{at}]")
    elif isinstance(form, re.Pattern):
        assert isinstance(value, str) and form.fullmatch(value), (path, value)
    else:
        assert type(value) in (form if isinstance(form, tuple) else (form,)), (path, value)


# The members of opentelemetry/proto/trace/v1/trace.proto that are sent, in the JSON of OTLP.
VALUE = {"stringValue?": str, "intValue?": INTEGER, "doubleValue?": (int, float)}
ATTRIBUTES = [{"key": str, "value": {**VALUE, "arrayValue?": {"values": [VALUE]}}}]
SPAN = {"traceId": HEX32, "spanId": HEX16, "parentSpanId?": HEX16, "traceState?": str, "name": str,
        "kind": int, "startTimeUnixNano": NUMBER, "endTimeUnixNano": NUMBER, "attributes?": ATTRIBUTES,
        "events": [{"timeUnixNano": NUMBER, "name": str}], "status?": {"message?": str, "code": int}}
FORM = {"resourceSpans": [{"resource": {"attributes": ATTRIBUTES},
                           "scopeSpans": [{"scope": {"name": str, "version": str}, "spans": [SPAN]}]}]}


@functools.cache
def classes():
    """name → class of each message in otlp.proto."""
    return classes_of(os.path.join(os.path.dirname(__file__), "otlp.proto"), "otlp")


def json_of_value(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return {"arrayValue": {"values": [json_of_value(item) for item in value.array_value.values]}}
    found = getattr(value, kind)
    return {"string_value": {"stringValue": found}, "int_value": {"intValue": str(found)},
            "double_value": {"doubleValue": found}}[kind]


def json_of_attributes(attributes):
    return [{"key": item.key, "value": json_of_value(item.value)} for item in attributes]


def json_of_span(span):
    said = {"traceId": span.trace_id.hex(), "spanId": span.span_id.hex(), "name": span.name, "kind": span.kind,
            "startTimeUnixNano": str(span.start_time_unix_nano), "endTimeUnixNano": str(span.end_time_unix_nano),
            "attributes": json_of_attributes(span.attributes),
            "events": [{"timeUnixNano": str(event.time_unix_nano), "name": event.name} for event in span.events]}
    if span.parent_span_id:
        said["parentSpanId"] = span.parent_span_id.hex()
    if span.trace_state:
        said["traceState"] = span.trace_state
    if span.HasField("status"):
        said["status"] = {"message": span.status.message, "code": span.status.code}
    return said


def json_of_request(body):
    """A request in protobuf, as OTLP's JSON has it."""
    request = classes()["ExportTraceServiceRequest"].FromString(body)
    return {"resourceSpans": [
        {"resource": {"attributes": json_of_attributes(resource.resource.attributes)},
         "scopeSpans": [{"scope": {"name": scope.scope.name, "version": scope.scope.version},
                         "spans": [json_of_span(span) for span in scope.spans]}
                        for scope in resource.scope_spans]} for resource in request.resource_spans]}


class Taken:
    """What a collector was sent, and what it answers."""

    def __init__(self, answers, said):
        self.answers, self.said = list(answers), list(said)
        self.problems = []
        self.requests = []  # those taken: resource attributes, spans
        self.fields = []    # of each request: header fields or metadata, by name
        self.n_asked = 0
        self.changed = threading.Condition()

    def keep(self, request):
        check(request, FORM)
        (resource,) = request["resourceSpans"]
        (scope,) = resource["scopeSpans"]
        self.requests.append((plain(resource["resource"]["attributes"]), scope["spans"]))

    def spans(self):
        return [span for _, spans in self.requests for span in spans]

    def wait(self, fits, patience):
        with self.changed:
            assert self.changed.wait_for(lambda: self.problems or fits(), patience), self.requests
        assert not self.problems, self.problems

    def __enter__(self):
        return self


class Collector(Taken):
    """`answers`: statuses to begin with, and fields for them; then 200. `said`: the bodies of those that take. `tls`: see
    GrpcCollector."""

    def __init__(self, answers=(), said=(), tls=None):
        super().__init__(answers, said)
        self.scheme = "https" if tls else "http"
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls["cert"], tls["key"])
            if tls.get("client_ca"):
                context.load_verify_locations(tls["client_ca"])
                context.verify_mode = ssl.CERT_REQUIRED
            # Each connection's own thread does the handshake.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            self.server.handle_error = lambda *_: None
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server.server_port}/v1/traces"

    def handler(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.fields.append({name.lower(): value for name, value in self.headers.items()})
                status, fields = collector.take(self.path, self.headers["Content-Type"], body)
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", self.headers["Content-Type"])
                empty = b"{}" if self.headers["Content-Type"] == "application/json" else b""
                said = collector.said.pop(0) if status == 200 and collector.said else empty
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                pass
        return Handler

    def take(self, path, kind, body):
        with self.changed:
            self.n_asked += 1
            self.changed.notify_all()
            if self.answers:
                return self.answers.pop(0)
            try:
                assert path == "/v1/traces" and kind in ("application/json", "application/x-protobuf")
                self.keep(json.loads(body) if kind == "application/json" else json_of_request(body))
            except (AssertionError, ValueError) as why:
                self.problems.append(why)
                return 400, {}
            return 200, {}

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def credentials_of(tls):
    cert, key, client_ca = (pathlib.Path(tls[name]).read_bytes() if tls.get(name) else None
                            for name in ("cert", "key", "client_ca"))
    return grpc.ssl_server_credentials([(key, cert)], client_ca, client_ca is not None)


class GrpcCollector(Taken):
    """Over gRPC. `answers`: status codes to begin with; then OK. `said`: the messages of those that take. `tls`: its files,
    {"cert", "key", "client_ca"}, the last of which may be missing."""

    def __init__(self, answers=(), said=(), tls=None):
        super().__init__(answers, said)
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(self.export)
        service, _, method = EXPORT[1:].rpartition("/")
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        port = (self.server.add_secure_port("127.0.0.1:0", credentials_of(tls)) if tls
                else self.server.add_insecure_port("127.0.0.1:0"))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self.server.start()

    def export(self, body, context):
        with self.changed:
            self.n_asked += 1
            self.changed.notify_all()
            self.fields.append(dict(context.invocation_metadata()))
            if self.answers:
                context.abort(self.answers.pop(0), "not now")
            try:
                self.keep(json_of_request(body))
            except (AssertionError, ValueError) as why:
                self.problems.append(why)
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "malformed")
            return self.said.pop(0) if self.said else b""

    def __exit__(self, *_):
        self.server.stop(http1.PATIENCE).wait()  # those that are being answered first


def plain_value(value):
    """A text, a number as it is written, or a list of these."""
    (kind, found), = value.items()
    return [plain_value(item) for item in found["values"]] if kind == "arrayValue" else found


def plain(attributes):
    return {attribute["key"]: plain_value(attribute["value"]) for attribute in attributes}

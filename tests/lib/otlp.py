"""A collector of OpenTelemetry's: takes traces over HTTP as JSON, holds them to the form, and may refuse
them."""
import http.server
import json
import re
import threading

HEX16, HEX32 = re.compile("[0-9a-f]{16}"), re.compile("[0-9a-f]{32}")
NUMBER = re.compile("[0-9]{1,20}")


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
        assert type(value) is form, (path, value)


# The members of opentelemetry/proto/trace/v1/trace.proto that are sent, in the JSON of OTLP.
ATTRIBUTES = [{"key": str, "value": {"stringValue?": str, "intValue?": NUMBER}}]
SPAN = {"traceId": HEX32, "spanId": HEX16, "parentSpanId?": HEX16, "traceState?": str, "name": str,
        "kind": int, "startTimeUnixNano": NUMBER, "endTimeUnixNano": NUMBER, "attributes?": ATTRIBUTES,
        "events": [{"timeUnixNano": NUMBER, "name": str}], "status?": {"message?": str, "code": int}}
FORM = {"resourceSpans": [{"resource": {"attributes": ATTRIBUTES},
                           "scopeSpans": [{"scope": {"name": str, "version": str}, "spans": [SPAN]}]}]}


class Collector:
    """`answers`: statuses to begin with, and fields for them; then 200. `said`: the bodies of those that take."""

    def __init__(self, answers=(), said=()):
        self.answers, self.problems, self.said = list(answers), [], list(said)
        self.requests = []  # those taken: resource attributes, spans
        self.n_asked = 0
        self.changed = threading.Condition()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def handler(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, fields = collector.take(self.path, self.headers["Content-Type"], body)
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                said = collector.said.pop(0) if status == 200 and collector.said else b"{}"
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
                assert (path, kind) == ("/v1/traces", "application/json")
                request = json.loads(body)
                check(request, FORM)
                (resource,) = request["resourceSpans"]
                (scope,) = resource["scopeSpans"]
                self.requests.append((plain(resource["resource"]["attributes"]), scope["spans"]))
            except (AssertionError, ValueError) as why:
                self.problems.append(why)
                return 400, {}
            return 200, {}

    def spans(self):
        return [span for _, spans in self.requests for span in spans]

    def wait(self, fits, patience):
        with self.changed:
            assert self.changed.wait_for(lambda: self.problems or fits(), patience), self.requests
        assert not self.problems, self.problems

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def plain(attributes):
    return {attribute["key"]: next(iter(attribute["value"].values())) for attribute in attributes}
